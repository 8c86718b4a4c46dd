//! Exactly-once, linearizable clients on top of a replicated log.
//!
//! A client of a Raft cluster times out and sends its command again, and the command runs twice. The cure is
//! to remember, inside the replicated state, what each client asked and what it was told. This crate is that
//! memory: [`SessionStateMachine`] wraps a [`StateMachine`] and gives its clients sessions, in which
//!
//! - a request runs at most once, however often it is sent, and every copy gets the same bytes;
//! - answers are kept until the client says it has them, and no longer;
//! - the machine can send requests to clients, numbered, kept until acknowledged, sent again when due;
//! - all of it is in one snapshot with the machine's own state.
//!
//! The contract is short: **same state, same input, same output.** [`apply`](SessionStateMachine::apply) takes
//! a log entry and returns what to send; it reads no clock, no file, no socket and no global. Which Raft
//! library feeds it, and which network carries what comes out, is the caller's choice. `session-openraft` is one
//! such choice, made: a node in your own process, with a durable log.
//!
//! # A complete machine
//!
//! ```
//! use session_runtime::client::{InMemory, block_on};
//! use session_runtime::{State, state_machine};
//!
//! /// What clients may ask of the counter.
//! #[state_machine]
//! pub enum CounterCommand {
//!     Add { amount: u64 },
//! }
//!
//! #[derive(Default, State)]
//! pub struct Counter {
//!     value: u64,
//! }
//!
//! #[state_machine(command = CounterCommand)]
//! impl Counter {
//!     fn add(&mut self, amount: u64) -> u64 {
//!         self.value = self.value.saturating_add(amount);
//!         self.value
//!     }
//!
//!     #[query]
//!     fn value(&self) -> u64 {
//!         self.value
//!     }
//! }
//!
//! // A machine in this process, for a first look; an engine puts a replicated log below it.
//! let server = InMemory::new(Counter::default());
//! let counter = CounterClient::new(server.client());
//! assert_eq!(block_on(counter.add(5))?, 5);
//! assert_eq!(block_on(counter.value())?, 5);
//! # Ok::<(), session_runtime::client::ClientError>(())
//! ```
//!
//! [`state_machine`] makes the rest: dispatch, encoding, the typed client, the snapshot of the state - and compile
//! errors where a handler could fail or could differ between replicas. What it makes can also be written by
//! hand: see [`StateMachine`].
//!
//! # Where to go from here
//!
//! | to | see |
//! | --- | --- |
//! | write handlers | [`state_machine`], [`Context`], [`Rejection`](trait@Rejection), [`Deterministic`](trait@Deterministic) |
//! | say what is stored | [`State`](derive@State), [`schema`] |
//! | call a machine | [`client`], [`client::ClientError::execution`] |
//! | test a machine | `testing::check`, with the feature `testing` |
//! | feed it a log | [`SessionStateMachine`], [`RaftAction`], [`ServerAction`], [`admission`], [`RetryDriver`] |
//! | store it | [`Snapshot`], [`Entry`], [`codec`] |
//!
//! # What an engine does with it
//!
//! ```
//! # use session_runtime::{State, state_machine};
//! # #[state_machine]
//! # pub enum CounterCommand {
//! #     Add { amount: u64 },
//! # }
//! # #[derive(Default, State)]
//! # pub struct Counter {
//! #     value: u64,
//! # }
//! # #[state_machine(command = CounterCommand)]
//! # impl Counter {
//! #     fn add(&mut self, amount: u64) -> u64 {
//! #         self.value = self.value.saturating_add(amount);
//! #         self.value
//! #     }
//! # }
//! use session_runtime::{
//!     Command, RaftAction, RequestId, Response, ServerAction, ServerRequestId, SessionId, SessionStateMachine,
//!     Timestamp,
//! };
//!
//! // Two entries of the log: a client registers, and asks.
//! let mut counter = SessionStateMachine::new(Counter::default());
//! let session = SessionId::draw(0, 0x5eed);
//! let register = RaftAction::SessionCreationConfirmed { session, capabilities: Default::default() };
//! counter.apply(1, Timestamp(0), register)?;
//! let request = RaftAction::ClientRequest {
//!     session,
//!     request: RequestId(1),
//!     lowest_pending: RequestId(1),
//!     acked: ServerRequestId(0),
//!     payload: CounterCommand::Add { amount: 5 }.encode(),
//! };
//! let answer = counter.apply(2, Timestamp(10), request.clone())?;
//! let five = Response::accepted(&5u64)?;
//! assert_eq!(answer, [ServerAction::SendResponse { session, request: RequestId(1), response: five }]);
//!
//! // The answer was lost and the client asks again: the same bytes, and nothing is added.
//! assert_eq!(counter.apply(3, Timestamp(20), request)?, answer);
//! assert_eq!(counter.machine().value, 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Lighter guarantees
//!
//! Not everyone wants sessions. The same machine runs under [`serials`] (a high-water mark for each client, no
//! answers kept) and [`ids`] (free-form request ids, answers kept until a later request acknowledges them). The
//! features `serials` and `ids` bring them; both are on by default.
//!
//! # Integrating an engine
//!
//! The engine's part is to append entries ([`Entry`] is their byte form), to apply the committed ones in order,
//! and to send every [`ServerAction`] that comes out on the leader. It draws session ids
//! ([`SessionId::draw`]), appends a [`RaftAction::Tick`] when [`expiry_due`](SessionStateMachine::expiry_due)
//! has come and nobody writes, and a [`RaftAction::GetRequestsForRetry`] when
//! [`has_pending_requests`](SessionStateMachine::has_pending_requests) says it is worth one. The time of an
//! entry is the leader's: the time of the last applied entry plus its own monotonic elapsed time, never the
//! wall clock.
//!
//! # What the machine's code must keep
//!
//! Handlers must not fail and must not differ between replicas. A handler that panics all the same halts the
//! machine before the entry ([`ApplyError::Halted`]), so that a half-made state is neither kept nor shown; that
//! needs `panic = "unwind"`, Rust's default. Overflowing arithmetic panics in one build and wraps in another:
//! set `overflow-checks = true` in every profile.

#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used
    )
)]

#[doc(hidden)]
pub mod __private;
mod action;
pub mod admission;
#[cfg(feature = "client")]
pub mod client;
pub mod codec;
mod context;
mod core;
mod entry;
mod error;
mod guard;
mod identity;
#[cfg(feature = "ids")]
pub mod ids;
mod limits;
mod machine;
mod retry;
pub mod schema;
#[cfg(feature = "serials")]
pub mod serials;
mod session;
mod session_machine;
mod sessions;
mod snapshot;
mod state;
#[cfg(feature = "testing")]
#[allow(clippy::arithmetic_side_effects)] // `+=` of tallies, which saturates
pub mod testing;
mod wire;

pub use action::{
    Alive, CloseReason, PendingRequest, RaftAction, RefuseReason, RequestError, Response, ServerAction,
    Status,
};
pub use bytes::Bytes;
pub use codec::{DecodeError, EncodeError};
pub use context::{Context, ContextRng};
pub use entry::{Entry, EntryError};
pub use error::{ApplyError, Halted, QueryError, SnapshotError};
pub use identity::{RequestId, ServerRequestId, SessionId, Timestamp};
pub use limits::Limits;
pub use machine::{Command, Query, StateMachine};
pub use rand_core;
pub use retry::{RetryDriver, RetryPolicy};
pub use schema::Schema;
pub use session_derive::{Deterministic, Rejection, State, state_machine};
pub use session_machine::{SessionKey, SessionStateMachine};
pub use snapshot::{Dictionary, Snapshot, SnapshotMeta};
pub use state::{EntryMap, State, StateError, StateReader, StateWriter};
pub use wire::{Deterministic, Never, Rejection, Reply, Wire};

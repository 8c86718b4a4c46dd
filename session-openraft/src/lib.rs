//! A [`session-runtime`](session_runtime) machine on [openraft], inside your own process: one voter, with a log that is
//! synced to disk before anybody is answered. There is nothing else to start.
//!
//! ```
//! use session_openraft::Node;
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
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! #   let room = tempfile::tempdir()?;
//! #   let dir = room.path().join("data");
//!     // Makes the directory the first time, goes on where it stopped every other time.
//!     let node = Node::<Counter>::open(dir).await?;
//!     let counter = CounterClient::new(node.client().await?);
//!     assert_eq!(counter.add(5).await?, 5);
//!     assert_eq!(counter.value().await?, 5);
//!     node.shutdown().await;
//!     Ok(())
//! }
//! ```
//!
//! # What is promised
//!
//! - **Answered means synced.** No crash and no loss of power takes back what a client was told, and no query sees what
//!   one could take back.
//! - **Exactly once**, for as long as the client's session lives: [`NodeClient`] numbers, sends again, acknowledges. A client
//!   that must survive its own crash is [saved](NodeClient::saving) and [resumed](Node::resume).
//! - **Linearizable queries**; possibly stale ones by name, [`NodeClient::stale`].
//! - **Requests of the machine** reach their client once and in order, [`NodeClient::server_requests`]. After a client was
//!   resumed from stored bytes, what had come since those bytes comes again.
//! - **Never less than there was.** A directory that is damaged, of another machine, of a newer build, or in use is refused
//!   with an [`OpenError`] that names the file and says what to do.
//! - **It says why it stopped.** If the machine's code fails at an entry, every call gets that reason at once, and
//!   [`Stopped`] says what an operator can do.
//!
//! # Operating it
//!
//! [`Config`] has a default for everything. [`Node::status`], [`Node::configure`], [`Node::upgrade`], [`Node::internal`] and
//! [`Node::snapshot`] are the operator's. It speaks through `tracing`, and counts through the `metrics` facade with the
//! feature of that name.
//!
//! Handlers that panic are caught, so builds need `panic = "unwind"`, Rust's default; and `overflow-checks = true` in every
//! profile, so that overflow means the same in each.

mod bell;
mod client;
mod clock;
mod config;
#[cfg(test)]
mod counter;
mod error;
mod gate;
mod half;
mod keeper;
mod metrics;
mod network;
mod node;
mod proposals;
mod replica;
mod service;
#[doc(hidden)]
pub mod store;
mod tasks;
mod types;

pub use client::{NodeClient, Saving, ServerRequests, Stale};
pub use config::Config;
pub use error::{NodeError, OpenError, Stopped};
#[doc(hidden)]
pub use network::Alone;
pub use node::{Node, Status};
pub use store::StoreError;
#[doc(hidden)]
pub use types::{Applied, Proposal, TypeConfig};

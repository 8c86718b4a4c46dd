//! What a user's machine is to the runtime.

use crate::{
    action::Response,
    codec::{self, DecodeError, EncodeError},
    context::Context,
    schema::{Schema, Variant},
    state::State,
    wire::{Never, Wire},
};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

/// A replicated state machine: what commands do to the state.
///
/// Everything in it depends on its arguments and the state alone. The wrappers of this crate call it; nothing
/// else changes the state. [`state_machine`](crate::state_machine) implements it; written by hand it looks like this:
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use session_runtime::schema::{Fields, Handler, QueryShape, StateField, Variant, highest_since};
/// use session_runtime::{
///     Bytes, Command, Context, Deterministic, EncodeError, Never, Query, RaftAction, Reply, Response, Schema,
///     ServerAction, SessionStateMachine, SnapshotError, State, StateError, StateMachine, StateReader,
///     StateWriter, Timestamp, codec,
/// };
///
/// /// What clients may ask of the counter.
/// #[derive(Serialize, Deserialize)]
/// enum CounterCommand {
///     Add { amount: u64 },
/// }
/// impl Deterministic for CounterCommand {}
/// impl Command for CounterCommand {
///     const VARIANTS: &'static [Variant] = &[Variant {
///         name: "Add",
///         fields: Fields::Struct(&[("amount", "u64")]),
///         since: 1,
///     }];
///     fn variant(&self) -> usize {
///         match self {
///             Self::Add { .. } => 0,
///         }
///     }
/// }
///
/// /// What clients may read.
/// #[derive(Serialize, Deserialize)]
/// enum CounterQuery {
///     Value,
/// }
/// impl Query for CounterQuery {}
///
/// #[derive(Default)]
/// struct Counter {
///     value: u64,
/// }
///
/// impl Counter {
///     fn add(&mut self, amount: u64) -> u64 {
///         self.value = self.value.saturating_add(amount);
///         self.value
///     }
/// }
///
/// impl State for Counter {
///     const FIELDS: &'static [StateField] = &[StateField::new("value", "u64")];
///     fn save(&self, out: &mut StateWriter) -> Result<(), StateError> {
///         out.field("value", &self.value)
///     }
///     fn load(from: &mut StateReader<'_>) -> Result<Self, SnapshotError> {
///         Ok(Self { value: from.field("value")? })
///     }
/// }
///
/// impl StateMachine for Counter {
///     type Command = CounterCommand;
///     type Query = CounterQuery;
///     type ServerRequest = Never;
///
///     const SCHEMA: Schema = Schema {
///         name: "Counter",
///         version: highest_since(CounterCommand::VARIANTS, Self::FIELDS),
///         commands: CounterCommand::VARIANTS,
///         handlers: &[Handler { command: "Add", reply: "u64", internal: false }],
///         queries: &[QueryShape { name: "Value", fields: &[], reply: "u64" }],
///         server_request: "Never",
///         state: Self::FIELDS,
///         dropped: Self::DROPPED,
///     };
///
///     fn apply(&mut self, _: &mut Context<'_>, command: CounterCommand) -> Result<Response, EncodeError> {
///         match command {
///             CounterCommand::Add { amount } => self.add(amount).into_response(),
///         }
///     }
///
///     fn query(&self, query: CounterQuery) -> Result<Bytes, EncodeError> {
///         match query {
///             CounterQuery::Value => codec::encode(&self.value),
///         }
///     }
/// }
///
/// let mut counter = SessionStateMachine::new(Counter::default());
/// let add = RaftAction::InternalCommand { payload: CounterCommand::Add { amount: 5 }.encode() };
/// let five = ServerAction::InternalResponse { result: Ok(Response::accepted(&5u64)?) };
/// assert_eq!(counter.apply(1, Timestamp(0), add)?, [five]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait StateMachine: State {
    /// What clients may ask.
    type Command: Command;
    /// What clients may read; [`Never`] for nothing.
    type Query: Query;
    /// What the machine may ask of a client; [`Never`] for nothing.
    type ServerRequest: Wire;

    /// The machine's shape.
    const SCHEMA: Schema;

    /// Runs a command. The error is for an answer that cannot be encoded, and halts the machine; a refusal is
    /// an answer like any other ([`Response::rejected`]).
    fn apply(
        &mut self,
        cx: &mut Context<'_, Self::ServerRequest>,
        command: Self::Command,
    ) -> Result<Response, EncodeError>;

    /// Answers a query.
    fn query(&self, query: Self::Query) -> Result<Bytes, EncodeError>;

    /// Whether only the service itself may send this command.
    fn is_internal(command: &Self::Command) -> bool {
        Self::SCHEMA.handler(command.name()).is_some_and(|handler| handler.internal)
    }

    /// Whether a client reads the answer to a command as it was given. What tests ask; nothing else pays for it.
    #[doc(hidden)]
    fn check_reply(command: &str, response: &Response) -> Result<(), String> {
        let _ = (command, response);
        Ok(())
    }

    /// Runs when the session `cx.session()` was opened.
    fn session_created(&mut self, cx: &mut Context<'_, Self::ServerRequest>) {
        let _ = cx;
    }

    /// Runs when the session `cx.session()` is closed: it is no longer among `cx.sessions()`, and its
    /// capabilities can still be read.
    fn session_closed(&mut self, cx: &mut Context<'_, Self::ServerRequest>) {
        let _ = cx;
    }
}

/// An enum of commands. Its wire form is the variant's position and the fields, so variants are only ever
/// appended.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no enum of commands",
    label = "not a `#[state_machine]` enum",
    note = "write `#[state_machine]` on the enum that `command = ...` names"
)]
pub trait Command: Wire {
    /// The variants, in wire order.
    const VARIANTS: &'static [Variant];

    /// This command's position in [`VARIANTS`](Self::VARIANTS).
    fn variant(&self) -> usize;

    /// The name of this command's variant.
    fn name(&self) -> &'static str {
        Self::VARIANTS.get(self.variant()).map_or("(unknown)", |variant| variant.name)
    }

    /// The version that brought this command. Below it, the command is invalid on every replica.
    fn since(&self) -> u32 {
        Self::VARIANTS.get(self.variant()).map_or(1, |variant| variant.since)
    }

    /// The command's bytes.
    fn try_encode(&self) -> Result<Bytes, EncodeError> {
        codec::encode(self)
    }

    /// The command's bytes.
    ///
    /// # Panics
    ///
    /// If the command is over a maximum of the format ([`codec::MAX_PAYLOAD`], [`codec::MAX_PAYLOAD_DEPTH`]);
    /// [`try_encode`](Self::try_encode) returns that as an error.
    fn encode(&self) -> Bytes {
        encode_or_panic(self)
    }

    /// Reads a command's bytes.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        codec::decode(bytes)
    }
}

/// An enum of queries.
pub trait Query: Serialize + DeserializeOwned {
    /// The query's bytes.
    fn try_encode(&self) -> Result<Bytes, EncodeError> {
        codec::encode(self)
    }

    /// The query's bytes.
    ///
    /// # Panics
    ///
    /// If the query is over a maximum of the format; [`try_encode`](Self::try_encode) returns that as an
    /// error.
    fn encode(&self) -> Bytes {
        encode_or_panic(self)
    }

    /// Reads a query's bytes.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        codec::decode(bytes)
    }
}

impl Query for Never {}

#[allow(clippy::panic)] // what the callers document, each with a way around it
fn encode_or_panic<T: Serialize>(value: &T) -> Bytes {
    match codec::encode(value) {
        Ok(bytes) => bytes,
        Err(error) => panic!("the value cannot be encoded: {error}"),
    }
}

//! The macros of [`session-runtime`](https://docs.rs/session-runtime), which re-exports them: depend on that crate, not on
//! this one.
//!
//! ```text
//! use session_runtime::{State, state_machine};
//!
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
//! }
//! ```
//!
//! Every macro goes the same way: the tokens are parsed, a model of what they mean borrows the syntax, checks
//! collect every mistake, and the expansion is written. Mistakes never stop the expansion: the user's item is
//! always emitted, with as much around it as could be understood, so that one mistake is one error.

mod check;
mod errors;
mod expand;
mod model;
mod names;
mod parse;
#[cfg(test)]
mod tests;
mod words;

use proc_macro::TokenStream;

/// Makes a replicated state machine of an enum of commands and an impl block of handlers.
///
/// # On the enum
///
/// ```text
/// #[state_machine]
/// pub enum CounterCommand {
///     Add { amount: u64 },
/// }
/// ```
///
/// The enum gets serde's traits, `Deterministic` and `Command`. Its wire form is the variant's position and the
/// fields, so variants are only ever appended; `#[since = N]` on a variant names the version that brought it.
/// The one argument is `crate = path`, for a renamed dependency.
///
/// # On the impl block
///
/// ```text
/// #[state_machine(command = CounterCommand)]
/// impl Counter {
///     fn add(&mut self, amount: u64) -> u64 { /* ... */ }
///
///     #[query]
///     fn value(&self) -> u64 { /* ... */ }
/// }
/// ```
///
/// Every method is a handler, a `#[query]`, or one of the hooks `#[session_created]` and `#[session_closed]`.
/// A handler's name with its words capitalised is its variant. It takes `&mut self` or `&self`, then the
/// context if it wants it (`cx: &mut Context<'_, R>`), then the variant's fields, and returns a wire value or a
/// `Result` of one and a `Rejection`. `#[internal]` keeps a handler's command from clients.
///
/// | argument | meaning |
/// | --- | --- |
/// | `command = Type` | the enum these handlers answer; required |
/// | `server_request = Type` | what the machine may ask of a client |
/// | `query = Name` | the name of the query enum, else the machine's name and `Query` |
/// | `client = Name` | the name of the typed client, else the machine's name and `Client` |
/// | `name = "..."` | the machine's name in snapshots, else the type's name |
/// | `version = N` | the machine's version, else the highest `since` in it |
/// | `crate = path` | where the runtime is, else `::session_runtime` |
///
/// The query enum and the client are `pub`, unless a visibility stands before their name:
/// `client = pub(crate) Name`. The query enum cannot be less visible than its machine, whose trait names it.
///
/// The machine also gets an associated constant `SCHEMA`, so its own constants have other names.
///
/// `#[assume_infallible = "why"]` and `#[assume_deterministic = "why"]` lift the rules for one method's body.
#[proc_macro_attribute]
pub fn state_machine(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::state_machine(args.into(), &item.into()).into()
}

/// Makes a struct the state of a machine: each field is a key `user/<field>` of the snapshot.
///
/// | attribute of a field | meaning |
/// | --- | --- |
/// | `#[state(per_entry)]` | a map, stored with a key of its own for each entry |
/// | `#[state(shared)]` | cheap to clone: cloned at once, encoded later |
/// | `#[state(default)]` | a snapshot without it restores it as its default |
/// | `#[state(was = "old")]` | the name it had before |
/// | `#[since = N]` | the version that brought it |
/// | `#[assume_deterministic = "why"]` | vouches for a type that is not `Deterministic` |
///
/// On the struct: `#[state(dropped("old", "older"))]` lists removed fields, `#[state(crate = path)]` says where
/// the runtime is.
#[proc_macro_derive(State, attributes(state, since, assume_deterministic))]
pub fn derive_state(item: TokenStream) -> TokenStream {
    expand::derive_state(&item.into()).into()
}

/// Says that a type's values are the same on every replica, and checks it field by field.
///
/// `#[assume_deterministic = "why"]` on a field vouches for a foreign type; `#[deterministic(crate = path)]`
/// says where the runtime is.
#[proc_macro_derive(Deterministic, attributes(deterministic, assume_deterministic))]
pub fn derive_deterministic(item: TokenStream) -> TokenStream {
    expand::derive_deterministic(item.into()).into()
}

/// Makes a type a reason with which a handler may refuse.
///
/// `#[rejection(crate = path)]` says where the runtime is.
#[proc_macro_derive(Rejection, attributes(rejection))]
pub fn derive_rejection(item: TokenStream) -> TokenStream {
    expand::derive_rejection(item.into()).into()
}

/// The part of `#[state_machine]` on an enum that must see it after `cfg` was evaluated, as derives do and
/// attributes do not.
#[doc(hidden)]
#[proc_macro_derive(SessionCommand, attributes(session_enum, since, assume_deterministic))]
pub fn derive_command(item: TokenStream) -> TokenStream {
    expand::derive_command(item.into()).into()
}

/// The serde impls of a query enum, made where `cfg` was evaluated.
#[doc(hidden)]
#[proc_macro_derive(SessionQuery, attributes(session_enum))]
pub fn derive_query(item: TokenStream) -> TokenStream {
    expand::derive_query(item.into()).into()
}

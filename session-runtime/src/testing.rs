//! For tests of a user's own machine: a context made by hand, and a simulator that runs whole histories.
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
//! use session_runtime::testing::check;
//!
//! // In a test: one line finds what types and tokens cannot see.
//! check::<Counter>(|dice| CounterCommand::Add { amount: dice.below(100) });
//! ```

mod check;
mod context;
mod dice;
mod failure;
mod judge;
#[cfg(all(feature = "ids", feature = "serials"))]
mod light;
mod replica;
mod script;
mod shrink;
mod world;

pub use check::{Check, check};
pub use context::TestContext;
pub use dice::Dice;
pub use failure::{Failure, Tally};
#[cfg(all(feature = "ids", feature = "serials"))]
pub use light::{check_ids, check_serials};

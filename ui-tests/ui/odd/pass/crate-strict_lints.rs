//! A crate with everything denied.
#![forbid(unsafe_code)]
#![deny(missing_docs, unreachable_pub, unused, nonstandard_style, missing_debug_implementations)]
#![deny(rust_2018_idioms, let_underscore_drop, single_use_lifetimes, unused_qualifications)]
#![forbid(clippy::unwrap_used, dead_code, unused_variables)]
use session_runtime::{Context, State, state_machine};

/// What clients may ask.
#[state_machine]
#[derive(Debug)]
pub enum CounterCommand {
    /// Adds.
    Add {
        /// How much.
        amount: u64,
    },
}

/// The state.
#[derive(Debug, Default, State)]
pub struct Counter {
    value: u64,
}

#[state_machine(command = CounterCommand)]
impl Counter {
    fn add(&mut self, cx: &mut Context<'_>, amount: u64) -> u64 {
        self.value = amount.max(cx.index());
        self.value
    }

    #[query]
    fn value(&self, at_least: u64) -> u64 {
        self.value.max(at_least)
    }
}

fn main() {}

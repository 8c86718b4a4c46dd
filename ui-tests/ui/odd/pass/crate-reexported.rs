#![deny(warnings)]
mod deps {
    pub mod inner {
        pub use session_runtime::*;
    }
}

use deps::inner::{State, state_machine};

#[state_machine(crate = crate::deps::inner)]
pub enum CounterCommand {
    Add { amount: u64 },
}

#[derive(Default, State)]
#[state(crate = crate::deps::inner)]
pub struct Counter {
    value: u64,
}

#[state_machine(command = CounterCommand, crate = crate::deps::inner)]
impl Counter {
    fn add(&mut self, amount: u64) -> u64 {
        amount.max(self.value)
    }
}

fn main() {}

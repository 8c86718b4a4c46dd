//! The machine of this crate's own unit tests.

use session_runtime::{State, state_machine};

#[state_machine]
pub(crate) enum CounterCommand {
    Add { amount: u64 },
}

#[derive(Default, State)]
pub(crate) struct Counter {
    value: u64,
}

#[state_machine(command = CounterCommand)]
impl Counter {
    fn add(&mut self, amount: u64) -> u64 {
        self.value = self.value.saturating_add(amount);
        self.value
    }
}

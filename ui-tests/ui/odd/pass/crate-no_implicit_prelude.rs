#![no_implicit_prelude]

use ::session_runtime::{State, state_machine};
use ::std::default::Default;

#[state_machine]
pub enum CounterCommand {
    Add { amount: u64 },
    Reset,
}

#[derive(Default, State)]
pub struct Counter {
    value: u64,
}

#[state_machine(command = CounterCommand)]
impl Counter {
    fn add(&mut self, amount: u64) -> u64 {
        self.value = self.value.saturating_add(amount);
        self.value
    }

    #[internal]
    fn reset(&mut self) {
        self.value = 0;
    }

    #[query]
    fn value(&self) -> u64 {
        self.value
    }

    #[session_created]
    fn hello(&mut self) {}
}

fn main() {
    let _ = Counter::default();
}

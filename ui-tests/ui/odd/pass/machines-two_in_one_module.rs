#![deny(warnings)]
use session_runtime::{State, state_machine};

#[state_machine]
pub enum LeftCommand {
    Add { amount: u64 },
}

#[state_machine]
pub enum RightCommand {
    Add { amount: u64 },
}

#[derive(Default, State)]
pub struct Left {
    value: u64,
}

#[derive(Default, State)]
pub struct Right {
    value: u64,
}

#[state_machine(command = LeftCommand)]
impl Left {
    fn add(&mut self, amount: u64) -> u64 {
        self.value.max(amount)
    }

    #[query]
    fn value(&self) -> u64 {
        self.value
    }
}

#[state_machine(command = RightCommand)]
impl Right {
    fn add(&mut self, amount: u64) -> u64 {
        self.value.max(amount)
    }

    #[query]
    fn value(&self) -> u64 {
        self.value
    }
}

fn main() {}

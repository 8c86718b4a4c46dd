#![deny(warnings)]
use session_runtime::{State, state_machine};

#[state_machine]
pub enum CounterCommand {
    #[deprecated = "use `AddMany`"]
    Add { amount: u64 },
    #[deprecated]
    #[since = 2]
    AddMany(u64),
}

#[derive(Default, State)]
pub struct Counter {
    value: u64,
}

#[state_machine(command = CounterCommand)]
impl Counter {
    #[deprecated = "use `add_many`"]
    fn add(&mut self, amount: u64) -> u64 {
        self.value.max(amount)
    }

    fn add_many(&mut self, amount: u64) -> u64 {
        self.value.max(amount)
    }

    #[deprecated]
    #[query]
    fn value(&self) -> u64 {
        self.value
    }
}

fn main() {
    assert_eq!(Counter::SCHEMA.version, 2);
}

#![deny(warnings)]
extern crate session_runtime as renamed;

use renamed::{Deterministic, Rejection, State, state_machine};

#[state_machine(crate = ::renamed)]
pub enum CounterCommand {
    Add { amount: u64 },
}

#[derive(Clone, serde::Serialize, serde::Deserialize, Deterministic, Rejection)]
#[deterministic(crate = ::renamed)]
#[rejection(crate = ::renamed)]
pub struct TooMuch;

#[derive(Default, State)]
#[state(crate = ::renamed)]
pub struct Counter {
    value: u64,
}

#[state_machine(command = CounterCommand, crate = ::renamed)]
impl Counter {
    fn add(&mut self, amount: u64) -> Result<u64, TooMuch> {
        self.value = self.value.checked_add(amount).ok_or(TooMuch)?;
        Ok(self.value)
    }
}

fn main() {}

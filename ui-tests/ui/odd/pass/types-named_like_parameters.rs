#![deny(warnings)]
use session_runtime::{Deterministic, State, state_machine};

#[derive(Clone, Copy, serde::Serialize, serde::Deserialize, Deterministic)]
pub struct C(u64);
#[derive(Clone, Copy, serde::Serialize, serde::Deserialize, Deterministic)]
pub struct Call(u64);
#[derive(Clone, Copy, serde::Serialize, serde::Deserialize, Deterministic)]
pub struct T(u64);

#[state_machine]
pub enum CounterCommand {
    Add { amount: C, more: Call, most: T },
}

#[derive(Default, State)]
pub struct Counter {
    value: u64,
}

#[state_machine(command = CounterCommand)]
impl Counter {
    fn add(&mut self, amount: C, more: Call, most: T) -> C {
        self.value = amount.0.max(more.0).max(most.0);
        amount
    }

    #[query]
    fn value(&self, than: T) -> Call {
        Call(self.value.max(than.0))
    }
}

fn main() {}

// A lifetime parameter on the state, which no value of it needs.
#![deny(warnings)]

use session_runtime::{SessionStateMachine, State, state_machine};
use std::marker::PhantomData;

#[state_machine]
pub enum Command {
    Add { amount: u64 },
}

#[derive(State)]
pub struct Counter<'a, T> {
    value: u64,
    brand: PhantomData<&'a T>,
}

#[state_machine(command = Command)]
impl<'a, T> Counter<'a, T> {
    fn add(&mut self, amount: u64) -> u64 {
        self.value = self.value.saturating_add(amount);
        self.value
    }
}

fn main() {
    let mut counter = SessionStateMachine::new(Counter::<'_, u8> {
        value: 1,
        brand: PhantomData,
    });
    assert_eq!(log::ask::<_, u64>(&mut counter, &Command::Add { amount: 4 }), 5);
}

#[path = "../../log.rs"]
mod log;

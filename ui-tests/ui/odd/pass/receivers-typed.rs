// Receivers with their type written out.
#![deny(warnings)]

use session_runtime::{SessionStateMachine, State, state_machine};

#[state_machine]
pub enum Command {
    Add { amount: u64 },
    Get,
}

#[derive(Default, State)]
pub struct Counter {
    value: u64,
}

#[state_machine(command = Command)]
impl Counter {
    fn add(self: &mut Self, amount: u64) -> u64 {
        self.value = self.value.saturating_add(amount);
        self.value
    }

    fn get(&'_ self) -> u64 {
        self.value
    }

    #[query]
    fn value(self: &Self) -> u64 {
        self.value
    }
}

fn main() {
    let mut counter = SessionStateMachine::new(Counter::default());
    assert_eq!(log::ask::<_, u64>(&mut counter, &Command::Add { amount: 4 }), 4);
    assert_eq!(log::ask::<_, u64>(&mut counter, &Command::Get), 4);
    assert_eq!(log::read::<_, u64>(&counter, &CounterQuery::Value {}), 4);
}

#[path = "../../log.rs"]
mod log;

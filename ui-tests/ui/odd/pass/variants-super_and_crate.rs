// Variants whose handlers would be keywords that cannot be raw identifiers: an underscore behind helps.
#![deny(warnings)]

use session_runtime::{SessionStateMachine, State, state_machine};

#[state_machine]
pub enum Command {
    Super,
    Crate { amount: u64 },
}

#[derive(Default, State)]
pub struct Counter {
    value: u64,
}

#[state_machine(command = Command)]
impl Counter {
    fn super_(&mut self) -> u64 {
        self.value
    }

    fn crate_(&mut self, amount: u64) {
        self.value = amount;
    }
}

fn main() {
    let mut counter = SessionStateMachine::new(Counter::default());
    log::ask::<_, ()>(&mut counter, &Command::Crate { amount: 4 });
    assert_eq!(log::ask::<_, u64>(&mut counter, &Command::Super), 4);
}

#[path = "../../log.rs"]
mod log;

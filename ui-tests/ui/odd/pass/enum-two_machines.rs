// Two machines that answer the same enum of commands.
#![deny(warnings)]

use session_runtime::{SessionStateMachine, State, state_machine};

#[state_machine]
pub enum Command {
    Add { amount: u64 },
}

#[derive(Default, State)]
pub struct Sum {
    value: u64,
}

#[derive(Default, State)]
pub struct Most {
    value: u64,
}

#[state_machine(command = Command)]
impl Sum {
    fn add(&mut self, amount: u64) -> u64 {
        self.value = self.value.saturating_add(amount);
        self.value
    }
}

#[state_machine(command = Command)]
impl Most {
    #[internal]
    fn add(&mut self, amount: u64) {
        self.value = self.value.max(amount);
    }
}

fn main() {
    let (mut sum, mut most) = (
        SessionStateMachine::new(Sum::default()),
        SessionStateMachine::new(Most::default()),
    );
    for amount in [2, 3] {
        log::ask::<_, u64>(&mut sum, &Command::Add { amount });
        log::ask::<_, ()>(&mut most, &Command::Add { amount });
    }
    assert_eq!((sum.machine().value, most.machine().value), (5, 3));
    assert!(Most::SCHEMA.handlers[0].internal && !Sum::SCHEMA.handlers[0].internal);
}

#[path = "../../log.rs"]
mod log;

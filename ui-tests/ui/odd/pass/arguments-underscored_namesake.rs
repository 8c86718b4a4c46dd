// Two arguments that differ in a leading underscore only.
#![deny(warnings)]

use session_runtime::{SessionStateMachine, State, state_machine};

#[state_machine]
pub enum Command {
    Pair(u64, u64),
    Both { amount: u64, _amount: u64 },
}

#[derive(Default, State)]
pub struct Counter {
    value: u64,
}

#[state_machine(command = Command)]
impl Counter {
    fn pair(&mut self, value: u64, _value: u64) -> u64 {
        self.value = value;
        self.value
    }

    fn both(&mut self, amount: u64, _amount: u64) -> u64 {
        amount
    }
}

fn main() {
    let mut counter = SessionStateMachine::new(Counter::default());
    assert_eq!(log::ask::<_, u64>(&mut counter, &Command::Pair(4, 5)), 4);
    assert_eq!(
        log::ask::<_, u64>(
            &mut counter,
            &Command::Both {
                amount: 4,
                _amount: 5
            }
        ),
        4
    );
}

#[path = "../../log.rs"]
mod log;

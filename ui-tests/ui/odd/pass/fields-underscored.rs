// Fields with a leading underscore, which is ignored on the handler's side and should be on theirs.
#![deny(warnings)]

use session_runtime::{SessionStateMachine, State, state_machine};

#[state_machine]
pub enum Command {
    Keep { _reserved: u64 },
    Mixed { _same: u64 },
}

#[derive(Default, State)]
pub struct Counter {
    value: u64,
}

#[state_machine(command = Command)]
impl Counter {
    fn keep(&mut self, _reserved: u64) -> u64 {
        self.value
    }

    fn mixed(&mut self, same: u64) -> u64 {
        self.value = same;
        self.value
    }
}

fn main() {
    let mut counter = SessionStateMachine::new(Counter::default());
    assert_eq!(
        log::ask::<_, u64>(&mut counter, &Command::Keep { _reserved: 1 }),
        0
    );
    assert_eq!(log::ask::<_, u64>(&mut counter, &Command::Mixed { _same: 6 }), 6);
}

#[path = "../../log.rs"]
mod log;

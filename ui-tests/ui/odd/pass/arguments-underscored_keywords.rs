// Arguments that are an underscore and a keyword which cannot be a raw identifier.
#![deny(warnings)]

use session_runtime::{SessionStateMachine, State, state_machine};

#[state_machine]
pub enum Command {
    Pair(u64, u64, u64),
}

#[derive(Default, State)]
pub struct Counter {
    value: u64,
}

#[state_machine(command = Command)]
impl Counter {
    fn pair(&mut self, _self: u64, _super: u64, _crate: u64) -> u64 {
        self.value
    }
}

fn main() {
    let mut counter = SessionStateMachine::new(Counter { value: 3 });
    assert_eq!(log::ask::<_, u64>(&mut counter, &Command::Pair(1, 2, 3)), 3);
}

#[path = "../../log.rs"]
mod log;

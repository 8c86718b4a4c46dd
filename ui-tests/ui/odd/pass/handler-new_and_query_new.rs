// A handler and a query that the client would both call `new_`.
#![deny(warnings)]

use session_runtime::{SessionStateMachine, State, state_machine};

#[state_machine]
pub enum Command {
    New { value: u64 },
}

#[derive(Default, State)]
pub struct Counter {
    value: u64,
}

#[state_machine(command = Command)]
impl Counter {
    fn new(&mut self, value: u64) -> u64 {
        self.value = value;
        self.value
    }

    #[query]
    fn new_(&self) -> u64 {
        self.value
    }
}

fn main() {
    let mut counter = SessionStateMachine::new(Counter::default());
    assert_eq!(log::ask::<_, u64>(&mut counter, &Command::New { value: 1 }), 1);
    assert_eq!(log::read::<_, u64>(&counter, &CounterQuery::New {}), 1);
}

#[path = "../../log.rs"]
mod log;

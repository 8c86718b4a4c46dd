// `#[expect]` on handlers: the expected warning is given once, and not missed.
#![deny(warnings)]

use session_runtime::{SessionStateMachine, State, state_machine};

#[state_machine]
pub enum Command {
    Add { amount: u64 },
}

#[derive(Default, State)]
pub struct Counter {
    value: u64,
}

#[state_machine(command = Command)]
impl Counter {
    #[expect(unused_variables)]
    fn add(&mut self, amount: u64) -> u64 {
        let unused = amount;
        self.value
    }
}

fn main() {
    let mut counter = SessionStateMachine::new(Counter { value: 1 });
    assert_eq!(log::ask::<_, u64>(&mut counter, &Command::Add { amount: 4 }), 1);
}

#[path = "../../log.rs"]
mod log;

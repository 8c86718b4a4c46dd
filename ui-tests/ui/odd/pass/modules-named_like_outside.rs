// User modules named like those of `std` that reach outside, with functions of the same names.
#![deny(warnings)]

use session_runtime::{SessionStateMachine, State, state_machine};

mod process {
    pub fn id(of: u64) -> u64 {
        of
    }
}

mod thread {
    pub fn current(of: u64) -> u64 {
        of
    }
}

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
    fn add(&mut self, amount: u64) -> u64 {
        self.value = crate::process::id(amount).saturating_add(self::thread::current(1));
        self.value
    }
}

fn main() {
    let mut counter = SessionStateMachine::new(Counter::default());
    assert_eq!(log::ask::<_, u64>(&mut counter, &Command::Add { amount: 4 }), 5);
}

#[path = "../../log.rs"]
mod log;

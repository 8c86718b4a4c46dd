// Variants named like the associated types and constants of the traits that the enum gets.
#![deny(warnings)]

use session_runtime::{Command as _, SessionStateMachine, State, state_machine};

#[state_machine]
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    Mirror { value: u64 },
    Error(u64),
    Value,
    Ok,
    Err,
    Some,
    None,
    Variants,
    Command,
    Output,
}

#[derive(Default, State)]
pub struct Counter {
    value: u64,
}

#[state_machine(command = Command)]
impl Counter {
    fn mirror(&mut self, value: u64) {
        self.value = value;
    }
    fn error(&mut self, value: u64) {
        self.value = value;
    }
    fn value(&self) -> u64 {
        self.value
    }
    fn ok(&mut self) {}
    fn err(&mut self) {}
    fn some(&mut self) {}
    fn none(&mut self) {}
    fn variants(&mut self) {}
    fn command(&mut self) {}
    fn output(&mut self) {}
}

fn main() {
    let mut counter = SessionStateMachine::new(Counter::default());
    log::ask::<_, ()>(&mut counter, &Command::Mirror { value: 1 });
    assert_eq!(log::ask::<_, u64>(&mut counter, &Command::Value), 1);
    log::ask::<_, ()>(&mut counter, &Command::Error(2));
    assert_eq!(log::ask::<_, u64>(&mut counter, &Command::Value), 2);
    assert_eq!(Command::VARIANTS.len(), 10);
}

#[path = "../../log.rs"]
mod log;

// `Self` in the fields of a command.
#![deny(warnings)]

use session_runtime::{Command as _, SessionStateMachine, State, state_machine};

#[state_machine]
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    Get,
    Batch { commands: Vec<Self> },
}

#[derive(Default, State)]
pub struct Counter {
    value: u64,
}

#[state_machine(command = Command)]
impl Counter {
    fn get(&self) -> u64 {
        self.value
    }

    fn batch(&mut self, commands: Vec<Command>) -> u64 {
        commands.len() as u64
    }
}

fn main() {
    let mut counter = SessionStateMachine::new(Counter::default());
    let batch = Command::Batch {
        commands: vec![Command::Get],
    };
    assert_eq!(Command::decode(&batch.encode()), Ok(batch.clone()));
    assert_eq!(log::ask::<_, u64>(&mut counter, &batch), 1);
}

#[path = "../../log.rs"]
mod log;

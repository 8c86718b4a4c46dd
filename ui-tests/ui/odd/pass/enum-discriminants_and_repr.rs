#![deny(warnings)]
use session_runtime::{State, state_machine};

#[state_machine]
#[repr(u8)]
#[non_exhaustive]
pub enum CounterCommand {
    Add { amount: u64 } = 7,
    Reset = 3,
}

#[derive(Default, State)]
pub struct Counter {
    value: u64,
}

#[state_machine(command = CounterCommand)]
impl Counter {
    fn add(&mut self, amount: u64) -> u64 {
        self.value.max(amount)
    }

    fn reset(&mut self) {
        self.value = 0;
    }
}

fn main() {
    let mut machine = session_runtime::SessionStateMachine::new(Counter::default());
    let payload = session_runtime::Command::encode(&CounterCommand::Reset);
    let out = machine.apply(1, session_runtime::Timestamp(0), session_runtime::RaftAction::InternalCommand { payload });
    assert_eq!(out.unwrap().len(), 1);
}

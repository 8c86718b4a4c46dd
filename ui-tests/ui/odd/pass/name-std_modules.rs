use session_runtime::{State, state_machine};

mod core {}
mod std {}
mod serde {}
mod session {}

#[state_machine]
enum CounterCommand {
    Add { amount: u64 },
}

#[derive(Default, State)]
struct Counter {
    value: u64,
}

#[state_machine(command = CounterCommand)]
impl Counter {
    fn add(&mut self, amount: u64) -> u64 {
        self.value = self.value.saturating_add(amount);
        self.value
    }
}

fn main() {
    let mut machine = session_runtime::SessionStateMachine::new(Counter::default());
    let payload = session_runtime::Command::encode(&CounterCommand::Add { amount: 1 });
    let out = machine.apply(1, session_runtime::Timestamp(0), session_runtime::RaftAction::InternalCommand { payload });
    assert_eq!(out.unwrap().len(), 1);
}

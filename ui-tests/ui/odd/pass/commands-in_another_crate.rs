// The commands are in a crate of their own.
#![deny(warnings)]

use session_runtime::{SessionStateMachine, State, state_machine};
use ui_tests::CounterCommand;

#[derive(Default, State)]
struct Counter {
    value: u64,
}

#[state_machine(command = ui_tests::CounterCommand)]
impl Counter {
    fn add(&mut self, amount: u64) -> u64 {
        self.value = self.value.saturating_add(amount);
        self.value
    }

    fn bound(&mut self, least: u64, most: u64) -> u64 {
        self.value = self.value.max(least).min(most);
        self.value
    }

    fn reset(&mut self) {
        self.value = 0;
    }
}

fn main() {
    let mut counter = SessionStateMachine::new(Counter::default());
    assert_eq!(log::ask::<_, u64>(&mut counter, &CounterCommand::Add { amount: 9 }), 9);
    assert_eq!(log::ask::<_, u64>(&mut counter, &CounterCommand::Bound(1, 5)), 5);
    log::ask::<_, ()>(&mut counter, &CounterCommand::Reset);
    assert_eq!(log::ask::<_, u64>(&mut counter, &CounterCommand::Add { amount: 1 }), 1);
}

#[path = "../../log.rs"]
mod log;

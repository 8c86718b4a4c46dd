// The enum and the state deprecated as a whole.
#![deny(warnings)]

use session_runtime::{SessionStateMachine, State, state_machine};

#[state_machine]
#[deprecated]
pub enum Command {
    Add { amount: u64 },
}

#[deprecated]
#[derive(Default, State)]
pub struct Counter {
    value: u64,
}

#[allow(deprecated)]
#[state_machine(command = Command)]
impl Counter {
    fn add(&mut self, amount: u64) -> u64 {
        self.value = self.value.saturating_add(amount);
        self.value
    }

    #[query]
    fn value(&self) -> u64 {
        self.value
    }
}

#[allow(deprecated)]
fn main() {
    let mut counter = SessionStateMachine::new(Counter::default());
    assert_eq!(log::ask::<_, u64>(&mut counter, &Command::Add { amount: 4 }), 4);
    assert_eq!(log::read::<_, u64>(&counter, &CounterQuery::Value {}), 4);
}

#[path = "../../log.rs"]
mod log;

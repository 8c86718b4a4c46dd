// Division by a literal with a minus sign, which is not zero.
#![deny(warnings)]

use session_runtime::{SessionStateMachine, State, state_machine};

#[state_machine]
pub enum Command {
    Halve { amount: i64 },
}

#[derive(Default, State)]
pub struct Store {
    value: i64,
}

#[state_machine(command = Command)]
impl Store {
    fn halve(&mut self, amount: i64) -> i64 {
        self.value = amount / -2;
        self.value
    }
}

fn main() {
    let mut store = SessionStateMachine::new(Store::default());
    assert_eq!(
        log::ask::<_, i64>(&mut store, &Command::Halve { amount: 20 }),
        -10
    );
}

#[path = "../../log.rs"]
mod log;

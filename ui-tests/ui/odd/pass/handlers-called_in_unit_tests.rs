// Handlers called directly, as a unit test beside them does.
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
    fn add(&mut self, amount: u64) -> u64 {
        self.value = self.value.saturating_add(amount);
        self.value
    }

    #[query]
    fn value(&self) -> u64 {
        self.value
    }

    #[session_closed]
    fn closed(&mut self) {
        self.value = 0;
    }
}

impl Counter {
    /// A helper lives in another block.
    fn added(mut self, amount: u64) -> Self {
        self.add(amount);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds() {
        assert_eq!(Counter::default().added(2).value(), 2);
    }
}

fn main() {
    let mut counter = Counter::default().added(2);
    assert_eq!(counter.add(1), 3);
    assert_eq!(Counter::add(&mut counter, 1), 4);
    let add: fn(&mut Counter, u64) -> u64 = Counter::add;
    assert_eq!(add(&mut counter, 1), 5);
    assert_eq!(counter.value(), 5);
    counter.closed();
    let mut counter = SessionStateMachine::new(counter);
    assert_eq!(log::ask::<_, u64>(&mut counter, &Command::Add { amount: 4 }), 4);
}

#[path = "../../log.rs"]
mod log;

// The variants imported by a glob, some of them named like the prelude's.
#![deny(warnings)]

use session_runtime::{SessionStateMachine, State, state_machine};

use self::Command::*;

#[state_machine]
pub enum Command {
    Ok { amount: u64 },
    Some(u64),
    None,
    Err,
}

#[derive(Default, State)]
pub struct Counter {
    #[state(was = "number")]
    value: u64,
}

#[state_machine(command = Command)]
impl Counter {
    fn ok(&mut self, amount: u64) -> Option<u64> {
        self.value = self.value.saturating_add(amount);
        std::option::Option::Some(self.value)
    }
    fn some(&mut self, amount: u64) {
        self.value = amount;
    }
    fn none(&mut self) {}
    fn err(&mut self) {}

    #[query]
    fn value(&self) -> u64 {
        self.value
    }
}

fn main() {
    let mut counter = SessionStateMachine::new(Counter::default());
    let answer = log::ask::<_, Option<u64>>(&mut counter, &Ok { amount: 4 });
    assert_eq!(answer, std::option::Option::Some(4));
    log::ask::<_, ()>(&mut counter, &Some(1));
    log::ask::<_, ()>(&mut counter, &None);
    log::ask::<_, ()>(&mut counter, &Err);
    assert_eq!(
        log::read::<_, u64>(&log::again(&counter), &CounterQuery::Value {}),
        1
    );
}

#[path = "../../log.rs"]
mod log;

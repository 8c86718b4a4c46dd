#![deny(warnings)]
use session_runtime::{Context, Query, SessionStateMachine, State, StateMachine, state_machine};

#[state_machine]
pub enum CounterCommand {
    Apply { command: u64 },
    New { amount: u64 },
    Encode,
    Save,
    Load,
    IsInternal(u64),
    Call,
    Machine,
}

#[derive(Default, State)]
pub struct Counter {
    value: u64,
}

#[state_machine(command = CounterCommand)]
impl Counter {
    fn apply(&mut self, command: u64) -> u64 {
        self.value = command;
        command
    }

    fn new(&mut self, amount: u64) -> u64 {
        amount
    }

    fn encode(&self) {}

    fn save(&self) {}

    fn load(&self) {}

    fn is_internal(&self, of: u64) -> u64 {
        of
    }

    fn call(&self) {}

    fn machine(&self) {}

    #[query]
    fn query(&self, query: u64) -> u64 {
        query
    }

    #[session_created]
    fn session_created(&mut self, cx: &mut Context<'_>) {
        self.value = cx.index();
    }

    #[session_closed]
    fn session_closed(&mut self) {}
}

fn main() {
    let machine = SessionStateMachine::new(Counter::default());
    assert!(machine.query(&CounterQuery::Query { query: 1 }.encode()).is_ok());
    assert_eq!(<Counter as StateMachine>::SCHEMA.commands.len(), 8);
}

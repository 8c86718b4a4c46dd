// Constants and functions named like locals of the expansion: a pattern of that name would mean the constant.
#![deny(warnings)]
#![allow(non_upper_case_globals, dead_code)]

use session_runtime::{SessionStateMachine, State, state_machine};

pub const call: u8 = 1;
pub const mirror: u8 = 2;
pub const machine: u8 = 3;
pub const value: u8 = 4;
pub static query: u8 = 5;
pub fn command() {}
pub fn payload() {}

#[state_machine]
pub enum Command {
    Add { amount: u64 },
}

#[derive(Default, State)]
pub struct Counter {
    total: u64,
}

#[state_machine(command = Command)]
impl Counter {
    fn add(&mut self, amount: u64) -> u64 {
        self.total = self.total.saturating_add(amount);
        self.total
    }

    #[query]
    fn total(&self) -> u64 {
        self.total
    }
}

fn main() {
    let mut counter = SessionStateMachine::new(Counter::default());
    assert_eq!(log::ask::<_, u64>(&mut counter, &Command::Add { amount: 4 }), 4);
    let client = CounterClient::new(log::Local::new(Counter::default()));
    assert_eq!(log::now(client.total()), Ok(0));
}

#[path = "../../log.rs"]
mod log;

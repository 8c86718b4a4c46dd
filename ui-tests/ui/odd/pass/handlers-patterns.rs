#![deny(warnings)]
use session_runtime::{State, state_machine};

#[state_machine]
pub enum Ask {
    Pair((u64, u64), u64),
    Ignore { amount: u64, other: String },
}

#[derive(Default, State)]
pub struct Machine {
    value: u64,
}

#[state_machine(command = Ask)]
impl Machine {
    fn pair(&mut self, (left, right): (u64, u64), mut more: u64) -> u64 {
        more = more.max(left).max(right);
        self.value = more;
        more
    }

    fn ignore(&self, _amount: u64, _other: String) {}
}

fn main() {}

use std::collections::HashMap;

use session_runtime::{State, state_machine};

#[state_machine]
enum Ask {
    Add { amount: u64 },
}

#[derive(Default, State)]
struct Machine {
    value: u64,
}

#[state_machine(command = Ask)]
impl Machine {
    #[assume_deterministic = "the type is what this case is about"]
    fn add(&mut self, amount: u64) -> HashMap<u64, u64> {
        HashMap::from([(amount, amount)])
    }
}

fn main() {}

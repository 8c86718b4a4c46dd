use session_runtime::{State, state_machine};
use std::collections::{HashMap, HashSet};

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
    fn add(&mut self, amount: u64) -> u64 {
        let seen: HashMap<u64, u64> = HashMap::new();
        let others = (0..amount).collect::<HashSet<u64>>();
        (seen.len() + others.len()) as u64
    }
}

fn main() {}

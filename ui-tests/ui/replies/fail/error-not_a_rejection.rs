use serde::{Deserialize, Serialize};
use session_runtime::{Deterministic, State, state_machine};

#[derive(Serialize, Deserialize, Deterministic)]
enum Refused {
    TooMuch { amount: u64 },
}

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
    fn add(&mut self, amount: u64) -> Result<u64, Refused> {
        Err(Refused::TooMuch { amount })
    }
}

fn main() {}

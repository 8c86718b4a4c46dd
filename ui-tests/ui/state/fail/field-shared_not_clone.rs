use session_runtime::{Deterministic, State};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Deterministic)]
struct Account {
    balance: u64,
}

#[derive(State)]
struct Machine {
    #[state(shared)]
    account: Account,
}

fn main() {}

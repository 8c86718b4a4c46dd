use session_runtime::{Deterministic, State};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Deterministic)]
struct Account {
    balance: u64,
}

#[derive(State)]
struct Machine {
    #[since = 2]
    account: Account,
}

fn main() {}

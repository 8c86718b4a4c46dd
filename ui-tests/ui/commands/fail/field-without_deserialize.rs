use session_runtime::{Deterministic, state_machine};
use serde::Serialize;

#[derive(Serialize, Deterministic)]
struct Account {
    owner: String,
}

#[state_machine]
enum Ask {
    Open(Account),
}

fn main() {}

use session_runtime::state_machine;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Account {
    owner: String,
}

#[state_machine]
enum Ask {
    Open(Vec<Account>),
}

fn main() {}

use session_runtime::{state_machine};
use serde::{Deserialize, Serialize};

#[state_machine]
#[derive(Clone, Serialize, Deserialize)]
enum Ask {
    Add { amount: u64 },
}

fn main() {}

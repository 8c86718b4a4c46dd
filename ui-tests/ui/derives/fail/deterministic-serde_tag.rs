use serde::{Deserialize, Serialize};
use session_runtime::Deterministic;

#[derive(Serialize, Deserialize, Deterministic)]
#[serde(tag = "kind")]
enum Notice {
    Changed {
        #[serde(skip_deserializing)]
        balance: u64,
    },
}

fn main() {}

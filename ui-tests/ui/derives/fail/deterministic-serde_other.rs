use session_runtime::Deterministic;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Deterministic)]
enum Notice {
    Changed,
    #[serde(skip)]
    Hidden,
    #[serde(other)]
    Unknown,
}

fn main() {}

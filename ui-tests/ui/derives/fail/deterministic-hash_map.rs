use session_runtime::Deterministic;
use std::collections::HashMap;

#[derive(Deterministic)]
struct Users {
    names: HashMap<u64, String>,
}

fn main() {}

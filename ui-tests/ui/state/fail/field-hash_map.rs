use session_runtime::State;
use std::collections::HashMap;

#[derive(State)]
struct Machine {
    users: HashMap<u64, String>,
}

fn main() {}

use session_runtime::{state_machine};
use std::collections::HashMap;

#[state_machine]
enum Ask {
    Add { amounts: HashMap<u64, u64> },
}

fn main() {}

use session_runtime::{Deterministic, state_machine};

#[state_machine]
#[derive(Clone, Deterministic)]
enum Ask {
    Add { amount: u64 },
}

fn main() {}

use session_runtime::{state_machine};

#[state_machine]
enum Ask {
    add_all { amount: u64 },
}

fn main() {}

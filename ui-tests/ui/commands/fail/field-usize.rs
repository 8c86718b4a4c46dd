use session_runtime::{state_machine};

#[state_machine]
enum Ask {
    Add { amount: usize },
}

fn main() {}

use session_runtime::{state_machine};

#[state_machine]
enum Ask {
    #[since = 0]
    Add { amount: u64 },
}

fn main() {}

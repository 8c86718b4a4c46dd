use session_runtime::{state_machine};

#[state_machine]
enum Ask {
    #[since = 3]
    Add { amount: u64 },
    #[since = 2]
    Reset,
}

fn main() {}

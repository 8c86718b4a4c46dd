use session_runtime::{state_machine};

#[state_machine]
enum Ask {
    #[since("2")]
    Add { amount: u64 },
}

fn main() {}

use session_runtime::state_machine;

#[state_machine]
#[since = 2]
enum Ask {
    Add { amount: u64 },
}

fn main() {}

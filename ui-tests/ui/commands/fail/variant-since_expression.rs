use session_runtime::state_machine;

#[state_machine]
enum Ask {
    Add { amount: u64 },
    #[since = 2]
    Reset,
    #[since = -2]
    Close,
    #[since = V2]
    Open,
}

fn main() {}

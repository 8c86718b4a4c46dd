use session_runtime::State;

#[derive(Default, State)]
struct Machine {
    value: u64,
    #[since = -2]
    by: u64,
    #[since = V2]
    of: u64,
}

fn main() {}

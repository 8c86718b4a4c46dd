use session_runtime::State;

#[derive(State)]
struct Machine {
    #[since = 0]
    count: u64,
}

fn main() {}

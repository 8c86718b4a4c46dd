use session_runtime::State;

#[derive(State)]
struct Machine {
    #[since = 2]
    #[state(default)]
    count: u64,
}

fn main() {}

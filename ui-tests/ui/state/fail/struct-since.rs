use session_runtime::State;

#[derive(State)]
#[since = 2]
struct Machine {
    count: u64,
}

fn main() {}

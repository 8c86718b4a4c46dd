use session_runtime::State;

#[derive(State)]
struct Machine {
    count: std::cell::Cell<u64>,
}

fn main() {}

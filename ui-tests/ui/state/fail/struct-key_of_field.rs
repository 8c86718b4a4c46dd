use session_runtime::State;

#[derive(State)]
#[state(shared)]
struct Machine {
    count: u64,
}

fn main() {}

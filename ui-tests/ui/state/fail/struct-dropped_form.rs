use session_runtime::State;

#[derive(State)]
#[state(dropped = "old")]
struct Machine {
    count: u64,
}

fn main() {}

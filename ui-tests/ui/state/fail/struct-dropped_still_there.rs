use session_runtime::State;

#[derive(State)]
#[state(dropped("count"))]
struct Machine {
    count: u64,
}

fn main() {}

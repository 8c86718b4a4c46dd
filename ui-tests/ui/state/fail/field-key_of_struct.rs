use session_runtime::State;

#[derive(State)]
struct Machine {
    #[state(dropped("old"))]
    count: u64,
}

fn main() {}

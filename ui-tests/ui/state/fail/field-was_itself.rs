use session_runtime::State;

#[derive(State)]
struct Machine {
    #[state(was = "count")]
    count: u64,
}

fn main() {}

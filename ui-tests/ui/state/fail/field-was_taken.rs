use session_runtime::State;

#[derive(State)]
struct Machine {
    #[state(was = "total")]
    count: u64,
    total: u64,
}

fn main() {}

use session_runtime::State;

#[derive(State)]
struct Machine {
    #[state(was(total))]
    count: u64,
}

fn main() {}

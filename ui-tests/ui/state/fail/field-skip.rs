use session_runtime::State;

#[derive(State)]
struct Machine {
    #[state(skip)]
    cache: u64,
}

fn main() {}

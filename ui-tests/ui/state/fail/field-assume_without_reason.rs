use session_runtime::State;

#[derive(State)]
struct Machine {
    #[assume_deterministic]
    count: usize,
}

fn main() {}

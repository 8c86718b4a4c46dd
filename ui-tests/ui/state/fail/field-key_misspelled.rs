use session_runtime::State;

#[derive(State)]
struct Machine {
    #[state(per_entri)]
    count: u64,
}

fn main() {}

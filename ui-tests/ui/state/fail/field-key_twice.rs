use session_runtime::State;

#[derive(State)]
struct Machine {
    #[state(shared, shared)]
    count: u64,
    #[state(was = "sum")]
    #[state(was = "amount")]
    total: u64,
}

fn main() {}

use session_runtime::State;

#[derive(State)]
struct Machine {
    #[state(per_entry)]
    items: Vec<u64>,
}

fn main() {}

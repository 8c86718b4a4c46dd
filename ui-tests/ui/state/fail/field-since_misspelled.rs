use session_runtime::State;

#[derive(State)]
struct Machine {
    #[sinc = 2]
    count: u64,
}

fn main() {}

use session_runtime::State;

#[derive(State)]
struct Machine {
    started: std::time::Instant,
}

fn main() {}

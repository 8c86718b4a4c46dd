use session_runtime::State;

#[derive(State)]
struct Machine {
    count: std::sync::Mutex<u64>,
}

fn main() {}

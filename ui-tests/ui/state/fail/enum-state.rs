use session_runtime::State;

#[derive(State)]
enum Machine {
    Empty,
}

fn main() {}

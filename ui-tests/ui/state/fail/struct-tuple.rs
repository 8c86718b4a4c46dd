use session_runtime::State;

#[derive(State)]
struct Machine(u64);

fn main() {}

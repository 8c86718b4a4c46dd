use session_runtime::State;

#[derive(State)]
struct Machine {
    count: usize,
    nested: Vec<Option<isize>>,
}

fn main() {}

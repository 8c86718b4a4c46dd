use session_runtime::{state_machine};

#[state_machine]
enum Ask {
    Add(f64),
}

fn main() {}

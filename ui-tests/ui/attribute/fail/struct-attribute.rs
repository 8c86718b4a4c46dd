use session_runtime::state_machine;

#[state_machine]
struct Machine {
    value: u64,
}

fn main() {}

use session_runtime::state_machine;

#[state_machine]
enum Ask {
    Start { at: std::time::Instant },
}

fn main() {}

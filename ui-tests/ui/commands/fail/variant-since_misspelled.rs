use session_runtime::state_machine;

#[state_machine]
enum Ask {
    Add { amount: u64 },
    #[sinse = 2]
    Reset,
}

fn main() {}

use session_runtime::state_machine;

#[state_machine]
enum Ask {
    Add { amount: u64 },
    #[internal]
    CloseAll,
}

fn main() {}

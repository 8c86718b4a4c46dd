use session_runtime::state_machine;

#[state_machine]
enum Ask {
    #[serde(skip)]
    Add { amount: u64 },
    #[serde(other)]
    Reset,
}

fn main() {}

use session_runtime::{state_machine};

#[state_machine]
#[serde(untagged)]
enum Ask {
    Add { amount: u64 },
}

fn main() {}

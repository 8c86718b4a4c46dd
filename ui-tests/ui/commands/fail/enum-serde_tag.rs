use session_runtime::{state_machine};

#[state_machine]
#[serde(tag = "kind", content = "of")]
enum Ask {
    Add { amount: u64 },
}

fn main() {}

use session_runtime::{state_machine};

#[state_machine]
enum Ask {
    Add {
        #[serde(skip_serializing)]
        amount: u64,
    },
}

fn main() {}

use session_runtime::{state_machine};

#[state_machine]
enum Ask {
    Add {
        #[serde(skip_serializing_if = "Option::is_none")]
        amount: Option<u64>,
    },
}

fn main() {}

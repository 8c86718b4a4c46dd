use session_runtime::{state_machine};
use std::collections::BTreeMap;

#[state_machine]
enum Ask {
    Add {
        #[serde(flatten)]
        amounts: BTreeMap<String, u64>,
    },
}

fn main() {}

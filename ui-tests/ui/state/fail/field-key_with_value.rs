use session_runtime::State;
use std::collections::BTreeMap;

#[derive(Default, State)]
struct Machine {
    #[state(default = 3)]
    value: u64,
    #[state(per_entry = true, was = "names")]
    users: BTreeMap<u64, String>,
    #[state(shared(always))]
    of: u64,
}

fn main() {}

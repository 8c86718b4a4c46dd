#![deny(warnings)]
use session_runtime::{State, state_machine};
use std::collections::BTreeMap;

type Account = u64;
type Table = BTreeMap<Account, String>;

#[state_machine]
pub enum Ask {
    Merge { table: Table, of: Account },
}

#[derive(Default, State)]
pub struct Machine {
    table: Table,
}

/// An alias of a `Result` is one.
type Answer<T> = Result<T, Refused>;

#[derive(Debug, serde::Serialize, serde::Deserialize, session_runtime::Deterministic, session_runtime::Rejection)]
pub struct Refused;

#[state_machine(command = Ask)]
impl Machine {
    fn merge(&mut self, table: std::collections::BTreeMap<u64, std::string::String>, of: u64) -> Answer<u64> {
        self.table.extend(table);
        if self.table.contains_key(&of) { Ok(of) } else { Err(Refused) }
    }
}

fn main() {
    assert!(Machine::default().merge(BTreeMap::new(), 1).is_err());
}

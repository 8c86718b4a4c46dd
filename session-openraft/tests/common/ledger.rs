//! A machine that notices a command that is applied twice or out of turn.

use session_runtime::{State, state_machine};
use std::collections::BTreeMap;

/// What the callers may ask of the ledger.
#[state_machine]
pub(crate) enum LedgerCommand {
    /// Each caller counts from 1.
    Enter { caller: u64, number: u64 },
}

/// The last number of each caller, and how often one came twice or out of turn.
#[derive(Default, State)]
pub(crate) struct Ledger {
    last: BTreeMap<u64, u64>,
    wrong: u64,
}

#[state_machine(command = LedgerCommand)]
impl Ledger {
    fn enter(&mut self, caller: u64, number: u64) -> u64 {
        let last = self.last.entry(caller).or_default();
        if number == last.saturating_add(1) {
            *last = number;
        } else {
            self.wrong = self.wrong.saturating_add(1);
        }
        *last
    }

    #[query]
    fn report(&self) -> (BTreeMap<u64, u64>, u64) {
        (self.last.clone(), self.wrong)
    }
}

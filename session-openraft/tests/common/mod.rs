//! What several tests of the store need.
#![allow(dead_code)] // Each test uses some of it.

pub(crate) mod disk;

use session_openraft::store;
use session_runtime::{SessionStateMachine, Snapshot, State, state_machine};

/// A machine whose state is of no interest.
#[state_machine]
pub(crate) enum NothingCommand {
    Nothing,
}

#[derive(Default, State)]
pub(crate) struct Nothing {
    text: String,
}

#[state_machine(command = NothingCommand)]
impl Nothing {
    fn nothing(&mut self) {
        self.text.clear();
    }
}

/// A snapshot with `bytes` bytes of state.
pub(crate) fn snapshot(bytes: usize) -> Snapshot {
    SessionStateMachine::new(Nothing { text: "x".repeat(bytes) }).snapshot().expect("a snapshot")
}

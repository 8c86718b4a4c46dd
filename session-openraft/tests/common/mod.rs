//! What several tests of the store need.
#![allow(dead_code)] // Each test uses some of it.

use session_runtime::{SessionStateMachine, Snapshot, State, state_machine};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A directory of its own, removed at the end of the test that asked for it.
#[derive(Debug)]
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new(test: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        Self(dir)
    }
}

impl std::ops::Deref for Place {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for Place {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

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

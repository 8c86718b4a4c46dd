//! The cases are in `ui/`, and `tests/` runs them. Here are the commands that one of them takes from another crate.

use session_runtime::state_machine;

/// What may be asked of a machine in another crate.
#[state_machine]
pub enum CounterCommand {
    /// Adds.
    Add {
        /// How much.
        amount: u64,
    },
    /// Sets the lower and the upper bound.
    Bound(u64, u64),
    /// Starts again.
    Reset,
}

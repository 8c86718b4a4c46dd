//! What a check counts, and what it says when a rule is broken.

use std::fmt;
use std::ops::AddAssign;

macro_rules! tally {
    ($($(#[$doc:meta])* $name:ident: $words:literal,)*) => {
        /// What happened in the runs of a check.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Tally {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl AddAssign for Tally {
            fn add_assign(&mut self, other: Self) {
                $(self.$name = self.$name.saturating_add(other.$name);)*
            }
        }

        impl fmt::Display for Tally {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(writeln!(f, "{:>14} {}", self.$name, $words)?;)*
                Ok(())
            }
        }
    };
}

tally! {
    /// Histories.
    runs: "histories",
    /// Entries of their logs.
    entries: "log entries",
    /// Client operations that ended with an answer.
    operations: "operations answered",
    /// Requests that were answered without running: by the gate, or by the machine.
    duplicates: "duplicates answered without running",
    /// Server requests delivered to clients.
    deliveries: "server requests delivered",
    /// Messages lost.
    lost: "messages lost",
    /// Messages that came twice.
    repeated: "messages repeated",
    /// Changes of leader.
    leader_changes: "changes of leader",
    /// Proposals lost with their leader.
    lost_proposals: "proposals lost",
    /// Proposals that a new leader appended again.
    doubled_proposals: "proposals appended twice",
    /// Old proposals that arrived once more.
    late_proposals: "old proposals that came again",
    /// Replicas that crashed and came back.
    replica_crashes: "replicas crashed",
    /// Clients that crashed and came back.
    client_crashes: "clients crashed",
    /// Clients that came back from their saved bytes.
    client_restores: "clients restored from saved bytes",
    /// Jumps of the leader's clock.
    clock_jumps: "clock jumps",
    /// Sessions that were closed under way.
    sessions_closed: "sessions closed",
    /// Changes of the limits.
    limits_changed: "changes of limits",
    /// Replicas that waited for a newer build.
    rebuilds: "replicas rebuilt for an upgrade",
    /// Comparisons of whole dictionaries.
    comparisons: "dictionaries compared",
}

/// A rule that was broken, and the shortest history that breaks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed of the run. [`Check::run_seed`](super::Check::run_seed) runs it again.
    pub seed: u64,
    /// Which rule, and where.
    pub problem: String,
    /// The history, an entry a line.
    pub history: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.problem)?;
        write!(f, "\nthe log, as short as it could be made:\n{}", self.history)
    }
}

impl std::error::Error for Failure {}

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
    /// Messages that overtook one sent before.
    reordered: "messages that overtook others",
    /// Changes of leader.
    leader_changes: "changes of leader",
    /// Proposals lost with their leader.
    lost_proposals: "proposals lost",
    /// Proposals that a new leader appended again.
    doubled_proposals: "proposals appended twice",
    /// Old proposals that arrived once more.
    late_proposals: "old proposals that came again",
    /// Appends that the leader learnt of late.
    late_reports: "appends reported late",
    /// Replicas that crashed and came back.
    replica_crashes: "replicas crashed",
    /// Replicas that came back from a snapshot.
    replica_restores: "replicas restored from a snapshot",
    /// Clients that crashed and came back.
    client_crashes: "clients crashed",
    /// Clients that came back from their saved bytes; the others, with a new session.
    client_restores: "clients restored from saved bytes",
    /// Clients that crashed while their bytes were being stored.
    crashes_while_saving: "clients crashed while they saved themselves",
    /// Saved bytes of which their client never learnt whether they were stored.
    failed_saves: "saves that failed",
    /// Jumps of the leader's clock.
    clock_jumps: "clock jumps",
    /// Sessions that a client or an operator closed.
    expired: "sessions closed by somebody",
    /// Sessions that were idle for too long.
    idle: "sessions closed as idle",
    /// Sessions that had to make room.
    evicted: "sessions evicted",
    /// Sessions that acknowledged too little.
    slow_consumers: "slow consumers closed",
    /// Sessions that were not opened.
    refused: "sessions refused",
    /// Commands that ran for no session.
    internal: "internal commands",
    /// Changes of the limits.
    limits_changed: "changes of limits",
    /// Upgrades.
    upgrades: "upgrades",
    /// Replicas that waited for a newer build.
    rebuilds: "replicas rebuilt for an upgrade",
    /// Comparisons of whole dictionaries.
    comparisons: "dictionaries compared",
}

/// A rule that was broken, and the shortest history that could be found to break it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed of the run. [`Check::run_seed`](super::Check::run_seed) runs it again.
    pub seed: u64,
    /// How many operations it takes in a run of this seed.
    pub operations: u64,
    /// Which rule, and where.
    pub problem: String,
    /// What the history is: whether it could be shortened, and if not, why.
    pub about: String,
    /// The history, an entry a line: a scenario script.
    pub history: String,
}

/// How many lines of a history are printed.
const MAX_LINES: usize = 120;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, {} operations: {}", self.seed, self.operations, self.problem)?;
        writeln!(f, "\n{}:\n", self.about)?;
        // The last entries say most.
        let left_out = self.history.lines().count().saturating_sub(MAX_LINES);
        if left_out > 0 {
            writeln!(f, "# {left_out} lines are left out here; the failure's `history` has them all")?;
        }
        self.history.lines().skip(left_out).try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl std::error::Error for Failure {}

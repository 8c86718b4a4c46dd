//! How a node behaves.

use session_runtime::{Limits, RetryPolicy};
use std::path::PathBuf;
use std::time::Duration;

/// How a node behaves. Every field has a default that suits a service embedded in one process.
///
/// ```
/// use session_openraft::Config;
///
/// let config = Config { snapshot_every: 100_000, ..Config::new("data") };
/// # let _ = config;
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory that holds the log and the snapshots. `None`: nothing is kept when the node stops.
    pub dir: Option<PathBuf>,
    /// The limits a new log starts with. A log that exists keeps its own: change those with
    /// [`Node::configure`](crate::Node::configure).
    pub limits: Limits,
    /// When unacknowledged server requests are sent again.
    pub retry: RetryPolicy,
    /// How long signs of life are gathered before they become one log entry.
    pub keep_alive: Duration,
    /// How many log entries after a snapshot the next one is taken; at least one.
    pub snapshot_every: u64,
    /// A handler that takes longer is named in a warning.
    pub slow_handler: Duration,
    /// Log entries to skip: the operators' way past an entry that halts the machine. Kept on disk until a
    /// snapshot covers them.
    pub skip: Vec<u64>,
}

impl Config {
    /// The defaults, in a directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: Some(dir.into()), ..Self::in_memory() }
    }

    /// The defaults, with nothing kept on disk: for tests and benchmarks.
    pub fn in_memory() -> Self {
        Self {
            dir: None,
            limits: default_limits(),
            retry: RetryPolicy::default(),
            keep_alive: Duration::from_secs(1),
            snapshot_every: 50_000,
            slow_handler: Duration::from_millis(50),
            skip: Vec::new(),
        }
    }
}

/// What a new log starts with: generous to clients that live, and an end to those that do not.
fn default_limits() -> Limits {
    Limits {
        idle_timeout: Some(300_000),
        max_sessions: Some(1_000_000),
        evict_idlest: false,
        max_cached_bytes: Some(16 << 20),
        max_pending_requests: Some(10_000),
    }
}

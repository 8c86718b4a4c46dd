//! What a session may use. Part of the replicated state: set by `Configure`, kept in the snapshot.

use serde::{Deserialize, Serialize};

/// The limits in force. `None` is no limit, and the default has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Close a session after so many milliseconds of log time without a request, acknowledgment or keep-alive.
    pub idle_timeout: Option<u64>,
    /// How many sessions may be open.
    pub max_sessions: Option<u32>,
    /// When full: close the least recently active session instead of refusing the new one.
    pub evict_idlest: bool,
    /// How many bytes of unfetched answers a session may hold before further requests are `Busy`. A record
    /// counts 32 bytes plus its response's payload.
    pub max_cached_bytes: Option<u64>,
    /// How many unacknowledged server requests a session may have. A send beyond it closes the session: a
    /// notification is never silently lost.
    pub max_pending_requests: Option<u32>,
}

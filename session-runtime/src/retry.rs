//! When sending server requests again is worth a log entry.

use crate::{action::RaftAction, identity::Timestamp};

/// How long to wait for an acknowledgment, in milliseconds of the log's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// A server request is sent again when it was last sent longer ago than this.
    pub min_age: u64,
    /// While retries bring no acknowledgment the age doubles, up to this.
    pub max_age: u64,
    /// The most server requests to send again at a time; 0 for all.
    pub limit: u32,
}

impl Default for RetryPolicy {
    /// After a second, then two, four ... up to a minute; a thousand at a time.
    fn default() -> Self {
        Self { min_age: 1_000, max_age: 60_000, limit: 1_000 }
    }
}

/// Says when to append a [`RaftAction::GetRequestsForRetry`].
///
/// Ask it on the leader, as often as is convenient. With nothing due it never asks for a log entry.
///
/// ```
/// use session_runtime::{RaftAction, RetryDriver, RetryPolicy, Timestamp};
///
/// let mut driver = RetryDriver::new(RetryPolicy::default());
/// // The dirty read: in real life `|before| machine.has_pending_requests(before)`.
/// let sent_at_500 = |before| Timestamp(500) < before;
/// assert_eq!(driver.poll(Timestamp(1_500), sent_at_500), None);
/// let retry = RaftAction::GetRequestsForRetry { last_sent_before: Timestamp(501), limit: 1_000 };
/// assert_eq!(driver.poll(Timestamp(1_501), sent_at_500), Some(retry));
/// ```
#[derive(Clone, Debug)]
pub struct RetryDriver {
    policy: RetryPolicy,
    /// The age in force.
    age: u64,
    /// When it last asked.
    asked_at: Option<Timestamp>,
}

impl RetryDriver {
    /// A driver that has asked for nothing yet.
    pub fn new(policy: RetryPolicy) -> Self {
        Self { policy, age: policy.min_age, asked_at: None }
    }

    /// The action to append now, if `has_pending_requests` - the dirty read of the applied state - says that
    /// it would return anything.
    pub fn poll(
        &mut self,
        now: Timestamp,
        has_pending_requests: impl FnOnce(Timestamp) -> bool,
    ) -> Option<RaftAction> {
        // Its own last entry may not be applied yet, and then the dirty read does not know of it.
        if self.asked_at.is_some_and(|asked_at| now.0 <= asked_at.0.saturating_add(self.age)) {
            return None;
        }
        let last_sent_before = Timestamp(now.0.checked_sub(self.age)?);
        if !has_pending_requests(last_sent_before) {
            return None;
        }
        self.asked_at = Some(now);
        self.age = self.age.saturating_mul(2).min(self.policy.max_age).max(self.policy.min_age);
        Some(RaftAction::GetRequestsForRetry { last_sent_before, limit: self.policy.limit })
    }

    /// An acknowledgment came: somebody is listening.
    pub fn acknowledged(&mut self) {
        self.age = self.policy.min_age;
    }
}

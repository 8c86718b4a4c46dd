//! The numbers that name things: sessions, requests, server requests, and moments of the log's time.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Names a session: the log position at which it was drawn and 64 random bits.
///
/// The position keeps a closed session closed: a delayed copy of its registration is recognised by its age.
/// The random half keeps one client from guessing another's session, so `Debug` shows only its start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId(pub u128);

impl SessionId {
    /// Draws a new id. The leader calls it as it appends the creation, with the index it last applied and 64
    /// bits of the operating system's randomness.
    ///
    /// ```
    /// # use session_runtime::SessionId;
    /// let session = SessionId::draw(41, 0xfeed_0000_0000_0001);
    /// assert_eq!(session.position(), 41);
    /// assert_eq!(format!("{session:?}"), "SessionId(41-feed…)");
    /// ```
    pub fn draw(last_applied: u64, random: u64) -> Self {
        Self((u128::from(last_applied) << 64) | u128::from(random))
    }

    /// The log position at which the id was drawn.
    #[allow(clippy::cast_possible_truncation)] // the high half of 128 bits is 64 bits
    pub fn position(self) -> u64 {
        (self.0 >> 64) as u64
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = (self.0 >> 48) & 0xffff;
        write!(f, "SessionId({}-{start:04x}…)", self.position())
    }
}

/// Names a request within its session: the client's own numbering, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId(pub u64);

/// Names a request of the machine to a client: the machine's numbering per session, from 1.
///
/// As an acknowledgment, 0 acknowledges nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerRequestId(pub u64);

/// A moment of the log's time, in milliseconds. It is agreed on in the log and never runs backwards; no
/// machine's clock is asked when an entry is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// This moment, so many milliseconds later; the end of time if there is no such moment.
    #[must_use]
    pub fn saturating_add(self, milliseconds: u64) -> Self {
        Self(self.0.saturating_add(milliseconds))
    }
}

//! The table of all sessions, open and lately closed.

use crate::{
    action::{CloseReason, ServerAction},
    error::SnapshotError,
    identity::{RequestId, ServerRequestId, SessionId, Timestamp},
    limits::Limits,
    session::Session,
    snapshot::{Part, Unread, decode_value, encode_value},
};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// How far behind the log a session id may be drawn. Closed ids are remembered for as long.
pub(crate) const MAX_AGE: u64 = 65_536;

const CLOSED: &str = "session/closed";
const LIMITS: &str = "session/limits";
const SESSION: &str = "session/id/";

/// The open sessions, the ids of those lately closed, and the limits all are held to.
#[derive(Default)]
pub(crate) struct Sessions {
    open: BTreeMap<SessionId, Session>,
    /// The open sessions by last activity: the idlest first.
    by_activity: BTreeSet<(Timestamp, SessionId)>,
    /// The open sessions that are marked as slow consumers, by last activity.
    slow: BTreeSet<(Timestamp, SessionId)>,
    /// The closed ids that are young enough to be asked for again.
    closed: BTreeSet<SessionId>,
    limits: Limits,
}

impl Sessions {
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// The open sessions, in id order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = SessionId> {
        self.open.keys().copied()
    }

    pub(crate) fn get(&self, session: SessionId) -> Option<&Session> {
        self.open.get(&session)
    }

    pub(crate) fn get_mut(&mut self, session: SessionId) -> Option<&mut Session> {
        self.open.get_mut(&session)
    }

    pub(crate) fn capabilities(&self, of: SessionId) -> Option<&BTreeMap<String, String>> {
        self.get(of).map(Session::capabilities)
    }

    /// Whether one more session would be one too many.
    pub(crate) fn is_full(&self) -> bool {
        self.limits.max_sessions.is_some_and(|max| self.open.len() as u64 >= u64::from(max))
    }

    pub(crate) fn was_closed(&self, session: SessionId) -> bool {
        self.closed.contains(&session)
    }

    pub(crate) fn open(
        &mut self,
        session: SessionId,
        capabilities: BTreeMap<String, String>,
        now: Timestamp,
    ) {
        debug_assert!(!self.was_closed(session), "a closed session never returns");
        self.insert(session, Session::new(capabilities, now));
    }

    fn insert(&mut self, id: SessionId, session: Session) {
        self.by_activity.insert((session.last_activity(), id));
        if session.is_slow_consumer() {
            self.slow.insert((session.last_activity(), id));
        }
        self.open.insert(id, session);
    }

    /// Removes a session and remembers that it is closed.
    pub(crate) fn close(&mut self, id: SessionId) -> Option<Session> {
        let session = self.open.remove(&id)?;
        self.by_activity.remove(&(session.last_activity(), id));
        self.slow.remove(&(session.last_activity(), id));
        self.closed.insert(id);
        Some(session)
    }

    /// Forgets the closed ids that are too old to be opened at `next_index` or later.
    pub(crate) fn forget_closed(&mut self, next_index: u64) {
        // Ids sort by position, so the oldest is first.
        while let Some(first) = self.closed.first() {
            if first.position().saturating_add(MAX_AGE) >= next_index {
                break;
            }
            self.closed.pop_first();
        }
    }

    /// A sign of life: the session is active, has received what it acknowledges, and needs no answer below
    /// `lowest_pending`.
    pub(crate) fn touch(
        &mut self,
        id: SessionId,
        now: Timestamp,
        acked: ServerRequestId,
        lowest_pending: RequestId,
    ) -> Option<&mut Session> {
        let session = self.open.get_mut(&id)?;
        if session.last_activity() != now {
            self.by_activity.remove(&(session.last_activity(), id));
            self.by_activity.insert((now, id));
            if self.slow.remove(&(session.last_activity(), id)) {
                self.slow.insert((now, id));
            }
            session.set_last_activity(now);
        }
        session.acknowledge(acked);
        session.raise_watermark(lowest_pending);
        Some(session)
    }

    /// Whether a session takes another server request. One that would have too many is marked as a slow
    /// consumer: it is closed rather than left without a notification it counts on.
    pub(crate) fn may_send(&mut self, to: SessionId) -> bool {
        let Some(session) = self.open.get_mut(&to) else {
            return false;
        };
        let max = self.limits.max_pending_requests;
        if max.is_some_and(|max| session.pending_count() as u64 >= u64::from(max)) {
            session.mark_slow_consumer();
            self.slow.insert((session.last_activity(), to));
        }
        !session.is_slow_consumer()
    }

    pub(crate) fn send(&mut self, to: SessionId, payload: Bytes, now: Timestamp) -> Option<ServerRequestId> {
        self.get_mut(to)?.send(payload, now)
    }

    /// Whether any server request was last sent before a moment.
    pub(crate) fn has_due(&self, before: Timestamp) -> bool {
        self.open.values().any(|session| session.first_due(before).is_some())
    }

    /// Marks the server requests last sent before a moment as sent now, at most `limit` (0: all), and returns
    /// them: first the session whose first due request has waited longest.
    pub(crate) fn retry(
        &mut self,
        before: Timestamp,
        limit: u32,
        now: Timestamp,
        out: &mut Vec<ServerAction>,
    ) {
        let mut waiting: Vec<(Timestamp, SessionId)> = self
            .open
            .iter()
            .filter_map(|(id, session)| Some((session.first_due(before)?.last_sent_at, *id)))
            .collect();
        waiting.sort_unstable();
        let mut left = if limit == 0 { u64::MAX } else { u64::from(limit) };
        for (_, id) in waiting {
            let Some(session) = self.open.get_mut(&id) else {
                continue;
            };
            for request in session.due(before) {
                if left == 0 {
                    return;
                }
                left = left.saturating_sub(1);
                request.last_sent_at = now;
                request.attempts = request.attempts.saturating_add(1);
                out.push(ServerAction::SendServerRequest {
                    session: id,
                    request: request.id,
                    payload: request.payload.clone(),
                });
            }
        }
    }

    /// The least recently active session.
    pub(crate) fn idlest(&self) -> Option<SessionId> {
        self.by_activity.first().map(|(_, id)| *id)
    }

    /// The next session to close and why: of those due the least recently active.
    pub(crate) fn next_due(&self, now: Timestamp) -> Option<(SessionId, CloseReason)> {
        let (activity, idlest) = *self.by_activity.first()?;
        let idle = self.limits.idle_timeout.is_some_and(|timeout| activity.saturating_add(timeout) < now);
        let crowded = self.limits.evict_idlest
            && self.limits.max_sessions.is_some_and(|max| self.open.len() as u64 > u64::from(max));
        if self.slow.contains(&(activity, idlest)) {
            Some((idlest, CloseReason::SlowConsumer))
        } else if idle {
            Some((idlest, CloseReason::Idle))
        } else if crowded {
            Some((idlest, CloseReason::Evicted))
        } else {
            // Whoever is more active than one that is not idle is not idle either.
            self.slow.first().map(|(_, id)| (*id, CloseReason::SlowConsumer))
        }
    }

    /// When the next entry could close a session.
    pub(crate) fn expiry_due(&self, now: Timestamp) -> Option<Timestamp> {
        if self.next_due(now).is_some() {
            return Some(now);
        }
        let (activity, _) = self.by_activity.first()?;
        let timeout = self.limits.idle_timeout?;
        Some(activity.saturating_add(timeout).saturating_add(1))
    }

    /// The table as parts of a snapshot.
    pub(crate) fn save(&self) -> Result<Vec<Part>, SnapshotError> {
        let open = self.open.clone();
        let sessions = Part::late(SESSION.to_owned(), move |prefix, out| {
            for (id, session) in &open {
                let key = format!("{prefix}{:032x}", id.0);
                out(&key, encode_value(&key, session)?)?;
            }
            Ok(())
        });
        Ok(vec![Part::encoded(CLOSED, &self.closed)?, sessions, Part::encoded(LIMITS, &self.limits)?])
    }

    /// The table of a snapshot taken at `index` and `now`.
    pub(crate) fn load(unread: &mut Unread, index: u64, now: Timestamp) -> Result<Self, SnapshotError> {
        let mut sessions =
            Self { closed: unread.decode(CLOSED)?, limits: unread.decode(LIMITS)?, ..Self::default() };
        for (hex, value) in unread.take_below(SESSION) {
            let key = format!("{SESSION}{hex}");
            let wrong =
                |problem: &str| SnapshotError::Value { key: key.clone(), problem: problem.to_owned() };
            let id = u128::from_str_radix(&hex, 16)
                .ok()
                .filter(|id| format!("{id:032x}") == hex)
                .map(SessionId)
                .ok_or_else(|| wrong("the key does not end in a session id"))?;
            if id.position() >= index {
                return Err(wrong("it was drawn behind the snapshot's position"));
            }
            if sessions.was_closed(id) {
                return Err(wrong("it is both open and closed"));
            }
            let mut session: Session = decode_value(&key, &value)?;
            session.check(now).map_err(wrong)?;
            sessions.insert(id, session);
        }
        Ok(sessions)
    }
}

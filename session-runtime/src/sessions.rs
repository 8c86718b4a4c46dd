//! The table of all sessions, open and lately closed.
//!
//! What it costs follows the work that is done, whatever the number of sessions:
//!
//! - the open sessions are in [slots](slots), so that a snapshot captures them all at once and a change copies a few;
//! - who was active least recently, or has waited longest to be sent something again, is known without looking for it;
//! - a request changes its own session, and no order unless its session was first in its neighbourhood.

mod closed;
mod due;
mod index;
mod minima;
mod slots;

pub(crate) use closed::MAX_AGE;
pub(crate) use minima::{Key, Minima};
pub(crate) use slots::Place;

use crate::{
    action::{CloseReason, RequestError, Response},
    error::SnapshotError,
    identity::{RequestId, ServerRequestId, SessionId, Timestamp},
    limits::Limits,
    session::Session,
    snapshot::{Part, Unread, decode_value, encode_value},
};
use bytes::Bytes;
use closed::Closed;
use index::Index;
use slots::Slots;
use std::collections::{BTreeMap, BTreeSet};

const CLOSED: &str = "session/closed";
const LIMITS: &str = "session/limits";
const SESSION: &str = "session/id/";

/// The open sessions, the ids of those lately closed, and the limits all are held to.
#[derive(Default)]
pub(crate) struct Sessions {
    open: Slots<Open>,
    index: Index,
    ids: BTreeSet<SessionId>,
    /// Who was active least recently.
    by_activity: Minima<Activity>,
    /// The open sessions that are marked as slow consumers, by last activity.
    slow: BTreeSet<Activity>,
    /// The open sessions with pending server requests, by the time at which the oldest was last sent.
    by_sent: BTreeSet<(Timestamp, SessionId)>,
    /// How many server requests all of them have pending.
    pending: usize,
    closed: Closed,
    limits: Limits,
}

/// A session's last activity: the lower, the idler.
type Activity = (Timestamp, SessionId);

/// No session has this id: it would have been drawn at the end of the log.
impl Key for Activity {
    const NONE: Self = (Timestamp(u64::MAX), SessionId(u128::MAX));
}

/// An open session. Two lines of a processor's cache.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Open {
    id: SessionId,
    session: Session,
}

impl Open {
    fn activity(&self) -> Activity {
        (self.session.last_activity(), self.id)
    }
}

/// Where a session stands in the orders.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Standing {
    last_activity: Timestamp,
    oldest_sent: Option<Timestamp>,
    slow: bool,
    pending: usize,
}

impl Standing {
    fn of(session: &Session) -> Self {
        Self {
            last_activity: session.last_activity(),
            oldest_sent: session.oldest_sent(),
            slow: session.is_slow_consumer(),
            pending: session.pending_count(),
        }
    }
}

impl Sessions {
    #[inline]
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    pub(crate) fn count(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn pending_count(&self) -> usize {
        self.pending
    }

    /// The open sessions, in id order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = SessionId> {
        self.ids.iter().copied()
    }

    pub(crate) fn get(&self, session: SessionId) -> Option<&Session> {
        self.at(self.find(session)?)
    }

    fn find(&self, session: SessionId) -> Option<Place> {
        self.index.get(session, |place| self.open.get(place).is_some_and(|open| open.id == session))
    }

    /// The session at a place that [`touch`](Self::touch) gave. It is there until it is closed.
    #[inline]
    pub(crate) fn at(&self, place: Place) -> Option<&Session> {
        self.open.get(place).map(|open| &open.session)
    }

    pub(crate) fn capabilities(&self, of: SessionId) -> Option<&BTreeMap<String, String>> {
        self.get(of).map(Session::capabilities)
    }

    /// Whether one more session would be one too many.
    pub(crate) fn is_full(&self) -> bool {
        self.limits.max_sessions.is_some_and(|max| self.open.len() as u64 >= u64::from(max))
    }

    pub(crate) fn was_closed(&self, session: SessionId) -> bool {
        self.closed.contains(session)
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
        let standing = Standing::of(&session);
        let place = self.open.insert(Open { id, session });
        self.index.insert(id, place);
        self.ids.insert(id);
        self.by_activity.resize(self.open.places());
        self.reorder(id, place, None, Some(standing));
    }

    /// Removes a session and remembers that it is closed.
    pub(crate) fn close(&mut self, id: SessionId) -> Option<Session> {
        let open = &self.open;
        let place = self.index.remove(id, |place| open.get(place).is_some_and(|open| open.id == id))?;
        let Open { session, .. } = self.open.remove(place)?;
        self.ids.remove(&id);
        self.reorder(id, place, Some(Standing::of(&session)), None);
        self.by_activity.resize(self.open.places());
        self.closed.insert(id);
        Some(session)
    }

    /// Forgets the closed ids that are too old to be opened at `next_index` or later.
    #[inline]
    pub(crate) fn forget_closed(&mut self, next_index: u64) {
        self.closed.forget(next_index);
    }

    /// Changes a session, and its standing with it.
    fn change<T>(&mut self, place: Place, change: impl FnOnce(&mut Session) -> T) -> Option<T> {
        let Open { id, session } = self.open.get_mut(place)?;
        let (id, was) = (*id, Standing::of(session));
        let changed = change(session);
        let is = Standing::of(session);
        if was != is {
            self.reorder(id, place, Some(was), Some(is));
        }
        Some(changed)
    }

    /// Brings a session from its former standing to the one it has now.
    fn reorder(&mut self, id: SessionId, place: Place, was: Option<Standing>, is: Option<Standing>) {
        let activity =
            |standing: Option<Standing>| standing.map_or(Key::NONE, |standing| (standing.last_activity, id));
        if activity(was) != activity(is) {
            let open = &self.open;
            let activity_at = |place| open.get(place).map_or(Key::NONE, Open::activity);
            self.by_activity.change(place, activity(was), activity(is), activity_at);
        }
        let slow = |standing: Option<Standing>| {
            standing.filter(|standing| standing.slow).map(|_| activity(standing))
        };
        move_in(&mut self.slow, slow(was), slow(is));
        let sent = |standing: Option<Standing>| standing?.oldest_sent.map(|oldest| (oldest, id));
        move_in(&mut self.by_sent, sent(was), sent(is));
        let pending = |standing: Option<Standing>| standing.map_or(0, |standing| standing.pending);
        self.pending = self.pending.saturating_add(pending(is)).saturating_sub(pending(was));
    }

    /// A sign of life: the session is active, has received what it acknowledges, and needs no answer below
    /// `lowest_pending`.
    #[inline]
    pub(crate) fn touch(
        &mut self,
        id: SessionId,
        now: Timestamp,
        acked: ServerRequestId,
        lowest_pending: RequestId,
    ) -> Option<Place> {
        let place = self.find(id)?;
        self.change(place, |session| session.touch(now, acked, lowest_pending));
        Some(place)
    }

    /// Keeps the answer to a request of the session at a place.
    #[inline]
    pub(crate) fn record(
        &mut self,
        place: Place,
        request: RequestId,
        payload_hash: u64,
        result: &Result<Response, RequestError>,
    ) {
        if let Some(open) = self.open.get_mut(place) {
            open.session.record(request, payload_hash, result);
        }
    }

    /// Whether a session takes another server request. One that would have too many is marked as a slow
    /// consumer: it is closed rather than left without a notification it counts on.
    pub(crate) fn may_send(&mut self, to: SessionId) -> bool {
        let Some(place) = self.find(to) else {
            return false;
        };
        let Some(session) = self.at(place) else {
            return false;
        };
        let max = self.limits.max_pending_requests;
        let slow = max.is_some_and(|max| session.pending_count() as u64 >= u64::from(max));
        if slow && !session.is_slow_consumer() {
            self.change(place, Session::mark_slow_consumer);
        }
        self.at(place).is_some_and(|session| !session.is_slow_consumer())
    }

    pub(crate) fn send(&mut self, to: SessionId, payload: Bytes, now: Timestamp) -> Option<ServerRequestId> {
        let place = self.find(to)?;
        self.change(place, |session| session.send(payload, now))?
    }

    /// The least recently active session.
    pub(crate) fn idlest(&self) -> Option<SessionId> {
        self.idlest_activity().map(|(_, id)| id)
    }

    fn idlest_activity(&self) -> Option<Activity> {
        Some(self.by_activity.lowest()).filter(|lowest| *lowest != Key::NONE)
    }

    /// The next session to close and why: of those due the least recently active.
    #[inline]
    pub(crate) fn next_due(&self, now: Timestamp) -> Option<(SessionId, CloseReason)> {
        let (activity, idlest) = self.idlest_activity()?;
        let idle = self.limits.idle_timeout.is_some_and(|timeout| activity.saturating_add(timeout) < now);
        let crowded = self.limits.evict_idlest
            && self.limits.max_sessions.is_some_and(|max| self.open.len() as u64 > u64::from(max));
        let slow = self.slow.first().copied();
        if slow == Some((activity, idlest)) {
            Some((idlest, CloseReason::SlowConsumer))
        } else if idle {
            Some((idlest, CloseReason::Idle))
        } else if crowded {
            Some((idlest, CloseReason::Evicted))
        } else {
            // Whoever is more active than one that is not idle is not idle either.
            slow.map(|(_, id)| (id, CloseReason::SlowConsumer))
        }
    }

    /// When the next entry could close a session.
    pub(crate) fn expiry_due(&self, now: Timestamp) -> Option<Timestamp> {
        if self.next_due(now).is_some() {
            return Some(now);
        }
        let (activity, _) = self.idlest_activity()?;
        let timeout = self.limits.idle_timeout?;
        Some(activity.saturating_add(timeout).saturating_add(1))
    }

    /// The table as parts of a snapshot. They are captured now, and brought into order when they are encoded.
    pub(crate) fn save(&self) -> Result<Vec<Part>, SnapshotError> {
        let open = self.open.capture();
        let sessions = Part::late(SESSION.to_owned(), move |prefix, out| {
            let mut open: Vec<&Open> = open.values().collect();
            open.sort_unstable_by_key(|open| open.id);
            for Open { id, session } in open {
                let key = format!("{prefix}{:032x}", id.0);
                out(&key, encode_value(&key, session)?)?;
            }
            Ok(())
        });
        let closed = self.closed.capture();
        let closed = Part::late(CLOSED.to_owned(), move |key, out| {
            let ids: BTreeSet<SessionId> = closed.values().copied().collect();
            out(key, encode_value(key, &ids)?)
        });
        Ok(vec![closed, sessions, Part::encoded(LIMITS, &self.limits)?])
    }

    /// The table of a snapshot taken at `index` and `now`.
    pub(crate) fn load(unread: &mut Unread, index: u64, now: Timestamp) -> Result<Self, SnapshotError> {
        let closed: BTreeSet<SessionId> = unread.decode(CLOSED)?;
        let mut sessions = Self { closed: closed.into(), limits: unread.decode(LIMITS)?, ..Self::default() };
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
            let session: Session = decode_value(&key, &value)?;
            session.check(now).map_err(wrong)?;
            sessions.insert(id, session);
        }
        Ok(sessions)
    }
}

/// Moves a key to where it now belongs.
fn move_in<K: Ord>(order: &mut BTreeSet<K>, was: Option<K>, is: Option<K>) {
    if was == is {
        return;
    }
    if let Some(was) = was {
        order.remove(&was);
    }
    order.extend(is);
}

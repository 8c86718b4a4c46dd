//! A machine wrapped with sessions: each request at most once, answers until the client has them, server
//! requests until they are acknowledged.

use crate::{
    action::{
        Alive, CloseReason, PendingRequest, RaftAction, RefuseReason, RequestError, Response, ServerAction,
    },
    codec,
    context::{Context, ContextRng, Turn},
    core::{Core, Hook, encoded, reads_of_core},
    error::{ApplyError, Halted, SnapshotError},
    identity::{RequestId, SessionId, Timestamp},
    limits::Limits,
    machine::StateMachine,
    session::Answer,
    sessions::{MAX_AGE, Place, Sessions},
    snapshot::Snapshot,
};
use std::collections::BTreeMap;

/// How many sessions an entry closes at most, beside those its action names.
const MAX_CLOSINGS: usize = 1024;

const KIND: &str = "sessions";
const SEED: &str = "session/seed";

/// A [`StateMachine`] whose clients are served exactly once.
///
/// Feed it every entry of the log in order with [`apply`](Self::apply), and send what comes out. The same log
/// gives the same state and the same output on every replica.
pub struct SessionStateMachine<M> {
    core: Core<M>,
    sessions: Sessions,
    /// The seed of the handlers' generator.
    seed: [u8; 32],
}

impl<M: StateMachine> SessionStateMachine<M> {
    /// A machine at the beginning of its log.
    pub fn new(machine: M) -> Self {
        Self { core: Core::new(machine), sessions: Sessions::default(), seed: [0; 32] }
    }

    /// Applies a log entry and returns what to send.
    pub fn apply(
        &mut self,
        index: u64,
        time: Timestamp,
        action: RaftAction,
    ) -> Result<Vec<ServerAction>, ApplyError> {
        let mut out = Vec::new();
        self.apply_into(index, time, action, &mut out)?;
        Ok(out)
    }

    /// As [`apply`](Self::apply), into a buffer the caller reuses. On an error the buffer is as it was.
    pub fn apply_into(
        &mut self,
        index: u64,
        time: Timestamp,
        action: RaftAction,
        out: &mut Vec<ServerAction>,
    ) -> Result<(), ApplyError> {
        self.step(index, time, action, false, out)
    }

    /// Applies all of a log entry except the user's code: no handler and no hook is called, and a request
    /// that would have run is answered with [`RequestError::Skipped`].
    ///
    /// The operators' way past an entry that halts the machine. It must be taken alike on every replica, and
    /// at every replay of the log.
    pub fn skip(
        &mut self,
        index: u64,
        time: Timestamp,
        action: RaftAction,
    ) -> Result<Vec<ServerAction>, ApplyError> {
        let mut out = Vec::new();
        self.step(index, time, action, true, &mut out)?;
        Ok(out)
    }

    reads_of_core!();

    /// All of it at this log position.
    pub fn snapshot(&self) -> Result<Snapshot, ApplyError> {
        let mut layer = self.sessions.save().map_err(|error| ApplyError::State {
            field: "(sessions)".to_owned(),
            problem: error.to_string(),
        })?;
        layer.push(encoded(SEED, &self.seed)?);
        self.core.save(KIND, layer)
    }

    /// The machine of a snapshot. Every retry after it is answered with the same bytes as before.
    pub fn restore(snapshot: &Snapshot) -> Result<Self, SnapshotError> {
        let (core, mut unread) = Core::load(snapshot, KIND)?;
        let sessions = Sessions::load(&mut unread, core.last_applied, core.time)?;
        let seed = unread.decode(SEED)?;
        unread.finish()?;
        Ok(Self { core, sessions, seed })
    }

    /// The open sessions, in id order.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.readable().into_iter().flat_map(Sessions::ids)
    }

    /// How many sessions are open.
    pub fn session_count(&self) -> usize {
        self.readable().map_or(0, Sessions::count)
    }

    /// How many server requests no client has acknowledged.
    pub fn pending_count(&self) -> usize {
        self.readable().map_or(0, Sessions::pending_count)
    }

    /// Whether a session is open.
    pub fn is_open(&self, session: SessionId) -> bool {
        self.readable().is_some_and(|sessions| sessions.get(session).is_some())
    }

    /// Whether a `GetRequestsForRetry` with this argument would return anything. A dirty read: only a hint to
    /// save a log entry.
    pub fn has_pending_requests(&self, last_sent_before: Timestamp) -> bool {
        self.readable().is_some_and(|sessions| sessions.has_due(last_sent_before))
    }

    /// The server requests a client has not acknowledged, in the order of their numbers.
    pub fn pending_requests(&self, session: SessionId) -> impl Iterator<Item = PendingRequest> {
        self.readable()
            .and_then(|sessions| sessions.get(session))
            .into_iter()
            .flat_map(|session| session.pending().cloned())
    }

    /// The answer to a request, if it has been executed and the client may still ask for it.
    pub fn cached_response(
        &self,
        session: SessionId,
        request: RequestId,
    ) -> Option<Result<Response, RequestError>> {
        let answer = self.readable()?.get(session)?.answer(request)?;
        Some(answer.result())
    }

    /// The answer that applying a request again would give, for the leader's [gate](crate::admission): the cached
    /// one, or [`RequestError::ResponseEvicted`] below the watermark, which never falls. Another payload under a
    /// known number has none: it is appended, and applying it tells the client of the mismatch.
    pub fn answer_to(&self, key: &SessionKey) -> Option<Result<Response, RequestError>> {
        let session = self.readable()?.get(key.session)?;
        if key.request < session.watermark() {
            return Some(Err(RequestError::ResponseEvicted));
        }
        let answer = session.answer(key.request)?;
        (answer.payload_hash() == key.payload_hash).then(|| answer.result())
    }

    /// The limits in force.
    pub fn limits(&self) -> &Limits {
        self.sessions.limits()
    }

    /// When a [`RaftAction::Tick`] could next close a session; the present time if some are due already.
    pub fn expiry_due(&self) -> Option<Timestamp> {
        self.readable()?.expiry_due(self.core.time)
    }

    /// The sessions, unless the machine is halted and they may be half-changed.
    fn readable(&self) -> Option<&Sessions> {
        match self.core.halted {
            None => Some(&self.sessions),
            Some(_) => None,
        }
    }

    fn step(
        &mut self,
        index: u64,
        time: Timestamp,
        action: RaftAction,
        skip: bool,
        out: &mut Vec<ServerAction>,
    ) -> Result<(), ApplyError> {
        let mut turn = self.core.begin(index, time, self.seed, skip, &action)?;
        let before = out.len();
        let limits_before = matches!(action, RaftAction::Configure { .. }).then(|| self.limits().clone());
        let result = self.perform(&mut turn, action, out).and_then(|()| self.close_due(&mut turn, out));
        if result.is_ok() {
            self.sessions.forget_closed(index.saturating_add(1));
        } else {
            out.truncate(before);
            // They can still be read, and are those of the last entry that was applied.
            if let Some(limits) = limits_before {
                self.sessions.set_limits(limits);
            }
        }
        self.core.end(&turn, result)
    }

    fn perform(
        &mut self,
        turn: &mut Turn,
        action: RaftAction,
        out: &mut Vec<ServerAction>,
    ) -> Result<(), Halted> {
        match action {
            RaftAction::SessionCreationConfirmed { session, capabilities } => {
                self.create(turn, session, capabilities, out)?;
            }
            RaftAction::ClientRequest { session, request, lowest_pending, acked, payload } => {
                match self.sessions.touch(session, turn.now, acked, lowest_pending) {
                    Some(place) => self.answer(turn, session, place, request, &payload, out)?,
                    None => out.push(answer_to(session, request, Err(RequestError::SessionExpired))),
                }
            }
            RaftAction::ServerRequestAck { session, request } => {
                self.sessions.touch(session, turn.now, request, RequestId(0));
            }
            RaftAction::SessionExpired { session } => {
                self.close(turn, session, CloseReason::Expired, out)?;
            }
            RaftAction::GetRequestsForRetry { last_sent_before, limit } => {
                self.sessions.retry(last_sent_before, limit, turn.now, out);
            }
            RaftAction::KeepAlive { sessions } => {
                for Alive { session, lowest_pending, acked } in sessions {
                    self.sessions.touch(session, turn.now, acked, lowest_pending);
                }
            }
            RaftAction::InternalCommand { payload } => {
                let cx = Context::new(turn).among(&mut self.sessions);
                let result = self.core.execute(cx, &payload, true)?;
                out.push(ServerAction::InternalResponse { result });
                out.append(&mut turn.sent);
            }
            RaftAction::Configure { limits, seed } => {
                self.sessions.set_limits(limits);
                if let Some(seed) = seed {
                    self.seed = seed;
                    turn.rng = ContextRng::new(seed, turn.index);
                }
            }
            // The turn has the version and the time already.
            RaftAction::Upgrade { .. } | RaftAction::Tick => {}
        }
        Ok(())
    }

    fn create(
        &mut self,
        turn: &mut Turn,
        session: SessionId,
        capabilities: BTreeMap<String, String>,
        out: &mut Vec<ServerAction>,
    ) -> Result<(), Halted> {
        if self.sessions.get(session).is_some() {
            // A retried registration must not reset the session.
            out.push(ServerAction::SessionCreated { session });
            return Ok(());
        }
        let limits = self.sessions.limits();
        let may_evict = limits.evict_idlest && limits.max_sessions != Some(0);
        let refused = if self.sessions.was_closed(session) {
            Some(RefuseReason::Closed)
        } else if !may_be_drawn_for(session, turn.index) {
            Some(RefuseReason::Stale)
        } else if self.sessions.is_full() && !may_evict {
            Some(RefuseReason::Full)
        } else {
            None
        };
        if let Some(reason) = refused {
            out.push(ServerAction::SessionRefused { session, reason });
            return Ok(());
        }
        if self.sessions.is_full()
            && let Some(idlest) = self.sessions.idlest()
        {
            self.close(turn, idlest, CloseReason::Evicted, out)?;
        }
        self.sessions.open(session, capabilities, turn.now);
        let cx = Context::new(turn).among(&mut self.sessions).of(session);
        self.core.hook(cx, Hook::SessionCreated)?;
        out.push(ServerAction::SessionCreated { session });
        out.append(&mut turn.sent);
        Ok(())
    }

    /// Answers a request whose sign of life has been taken.
    fn answer(
        &mut self,
        turn: &mut Turn,
        id: SessionId,
        place: Place,
        request: RequestId,
        payload: &[u8],
        out: &mut Vec<ServerAction>,
    ) -> Result<(), Halted> {
        let payload_hash = codec::payload_hash(payload);
        if let Some(known) = self.known_answer(place, request, payload_hash) {
            out.push(answer_to(id, request, known.and_then(Answer::result)));
            return Ok(());
        }
        let cx = Context::new(turn).among(&mut self.sessions).of(id);
        let result = self.core.execute(cx, payload, false)?;
        self.sessions.record(place, request, payload_hash, &result);
        out.push(answer_to(id, request, result));
        out.append(&mut turn.sent);
        Ok(())
    }

    /// The answer to a request that does not run, because it ran before or may not run now.
    fn known_answer(
        &self,
        place: Place,
        request: RequestId,
        payload_hash: u64,
    ) -> Option<Result<&Answer, RequestError>> {
        let Some(session) = self.sessions.at(place) else {
            return Some(Err(RequestError::SessionExpired));
        };
        if request < session.watermark() {
            return Some(Err(RequestError::ResponseEvicted));
        }
        if let Some(answer) = session.answer(request) {
            let same = answer.payload_hash() == payload_hash;
            return Some(if same { Ok(answer) } else { Err(RequestError::RequestMismatch) });
        }
        let max = self.sessions.limits().max_cached_bytes;
        let full = max.is_some_and(|max| session.cached_bytes() >= max) && request > session.watermark();
        full.then_some(Err(RequestError::Busy))
    }

    /// Closes an open session, whatever the cause; does nothing for any other.
    fn close(
        &mut self,
        turn: &mut Turn,
        session: SessionId,
        reason: CloseReason,
        out: &mut Vec<ServerAction>,
    ) -> Result<(), Halted> {
        let Some(closed) = self.sessions.close(session) else {
            return Ok(());
        };
        let cx = Context::new(turn).among(&mut self.sessions).of_closing(session, closed.capabilities());
        self.core.hook(cx, Hook::SessionClosed)?;
        out.append(&mut turn.sent);
        out.push(ServerAction::SessionClosed { session, reason });
        Ok(())
    }

    /// Closes what is due, one at a time, because a closing may make another due.
    fn close_due(&mut self, turn: &mut Turn, out: &mut Vec<ServerAction>) -> Result<(), Halted> {
        for _ in 0..MAX_CLOSINGS {
            match self.sessions.next_due(turn.now) {
                None => break,
                Some((session, reason)) => self.close(turn, session, reason, out)?,
            }
        }
        Ok(())
    }
}

/// What tells one request from another at the leader's [gate](crate::admission).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    /// The session.
    pub session: SessionId,
    /// The client's number for the request.
    pub request: RequestId,
    /// The [hash](codec::payload_hash) of its payload.
    pub payload_hash: u64,
}

impl SessionKey {
    /// The key of a request.
    pub fn new(session: SessionId, request: RequestId, payload: &[u8]) -> Self {
        Self { session, request, payload_hash: codec::payload_hash(payload) }
    }
}

/// Whether an id is of the right age for a creation at `index`.
fn may_be_drawn_for(session: SessionId, index: u64) -> bool {
    index.checked_sub(session.position()).is_some_and(|age| age > 0 && age <= MAX_AGE)
}

#[inline]
fn answer_to(session: SessionId, request: RequestId, result: Result<Response, RequestError>) -> ServerAction {
    match result {
        Ok(response) => ServerAction::SendResponse { session, request, response },
        Err(error) => ServerAction::SendRequestError { session, request, error },
    }
}

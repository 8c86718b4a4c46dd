//! What must hold at every entry of a history, whatever the machine.

use super::replica::Replica;
use crate::{
    action::{Alive, CloseReason, RaftAction, RefuseReason, RequestError, Response, ServerAction},
    codec,
    identity::{RequestId, ServerRequestId, SessionId, Timestamp},
    limits::Limits,
    machine::{Command, StateMachine},
    session_machine::SessionKey,
    snapshot::Dictionary,
};
use std::collections::BTreeMap;

/// What a cached answer counts beside its payload.
const RECORD_BYTES: u64 = 32;
/// How many sessions an entry closes at most, beside those its action names.
const MAX_CLOSINGS: usize = 1024;
/// How many entries after its drawing an id may be opened at the latest.
const MAX_AGE: u64 = 65_536;
/// Where the sessions stand in a dictionary.
pub(super) const SESSION_KEYS: &str = "session/id/";
/// What a session with no answer and nothing pending takes in a dictionary at most, with a simulated client's
/// capabilities, and what a pending server request takes beside its payload.
const SESSION_BYTES: u64 = 64;
const PENDING_BYTES: u64 = 32;

/// Follows the log from outside, knowing nothing but what goes in and comes out.
pub(super) struct Judge {
    /// Whether a payload is a command that runs at a version, for the service itself or for a client.
    runs: fn(payload: &[u8], version: u32, internal: bool) -> bool,
    version: u32,
    /// The log's time.
    now: Timestamp,
    open: BTreeMap<SessionId, Known>,
    closed: BTreeMap<SessionId, CloseReason>,
    limits: Limits,
    /// The closing that an entry asks for by itself, until it is seen.
    asked: Option<(SessionId, CloseReason)>,
    /// The last entry closed as many as one may, so some that were due then may be left.
    behind: bool,
    /// The requests that have an answer, for ever.
    answered: BTreeMap<(SessionId, RequestId), Answered>,
    /// The server requests that were sent, for ever: each one's hash and length.
    sent: BTreeMap<(SessionId, ServerRequestId), (u64, u64)>,
}

/// What is known of an open session.
#[derive(Default)]
struct Known {
    watermark: u64,
    last_sent: u64,
    /// The server requests not acknowledged, and when each was last sent.
    pending: BTreeMap<u64, Timestamp>,
    last_activity: Timestamp,
}

impl Known {
    /// The server requests last sent before a moment.
    fn due(&self, before: Timestamp) -> impl Iterator<Item = (u64, Timestamp)> {
        let pending = self.pending.iter().map(|(request, sent)| (*request, *sent));
        pending.filter(move |(_, sent)| *sent < before)
    }
}

/// An answer, and where in the log it came to be.
pub(super) struct Answered {
    pub(super) index: u64,
    pub(super) payload_hash: u64,
    pub(super) result: Result<Response, RequestError>,
}

/// A rule that was broken.
pub(super) type Broken = String;

/// As the machine's tables say it.
fn runs<M: StateMachine>(payload: &[u8], version: u32, internal: bool) -> bool {
    let Ok(command) = M::Command::decode(payload) else { return false };
    let since = M::Command::VARIANTS.get(command.variant()).map_or(1, |variant| variant.since);
    let handler = M::SCHEMA.handler(command.name());
    since <= version && (internal || handler.is_none_or(|handler| !handler.internal))
}

impl Judge {
    pub(super) fn new<M: StateMachine>() -> Self {
        Self {
            runs: runs::<M>,
            version: 1,
            now: Timestamp(0),
            open: BTreeMap::new(),
            closed: BTreeMap::new(),
            limits: Limits::default(),
            asked: None,
            behind: false,
            answered: BTreeMap::new(),
            sent: BTreeMap::new(),
        }
    }

    /// Why a session was closed.
    pub(super) fn closed_as(&self, session: SessionId) -> Option<CloseReason> {
        self.closed.get(&session).copied()
    }

    pub(super) fn answered(&self, session: SessionId, request: RequestId) -> Option<&Answered> {
        self.answered.get(&(session, request))
    }

    /// The hash of a server request's payload.
    pub(super) fn sent(&self, session: SessionId, request: ServerRequestId) -> Option<u64> {
        self.sent.get(&(session, request)).map(|(hash, _)| *hash)
    }

    /// The server request numbered last.
    pub(super) fn last_sent(&self, session: SessionId) -> Option<u64> {
        self.open.get(&session).map(|known| known.last_sent)
    }

    pub(super) fn is_open(&self, session: SessionId) -> bool {
        self.open.contains_key(&session)
    }

    pub(super) fn open_sessions(&self) -> usize {
        self.open.len()
    }

    /// The log's time is that of its latest entry, or of an earlier one that had a later time.
    pub(super) fn time_is_that_of(&self, replica: &dyn Replica) -> Result<(), Broken> {
        let (time, now) = (replica.time(), self.now);
        if time == now {
            Ok(())
        } else {
            Err(format!("a replica's time is {time:?}, and the log's is {now:?}"))
        }
    }

    /// What clients no longer need is gone, whichever message said so.
    pub(super) fn nothing_old_is_kept(
        &self,
        replica: &dyn Replica,
        action: &RaftAction,
    ) -> Result<(), Broken> {
        let (one, several) = match action {
            RaftAction::ClientRequest { session, .. } => (Some(*session), [].as_slice()),
            RaftAction::KeepAlive { sessions } => (None, sessions.as_slice()),
            _ => return Ok(()),
        };
        for session in one.into_iter().chain(several.iter().map(|alive| alive.session)) {
            let watermark = self.open.get(&session).map_or(0, |known| known.watermark);
            if watermark <= 1 {
                continue;
            }
            let request = RequestId(watermark.saturating_sub(1));
            let key = SessionKey { session, request, payload_hash: 0 };
            if replica.answer_to(&key) != Some(Err(RequestError::ResponseEvicted)) {
                return Err(format!(
                    "{request:?} of {session:?} is still kept, and its client needs nothing below {watermark}"
                ));
            }
        }
        Ok(())
    }

    /// Judges an entry: what it asked, what came out, and how many commands ran.
    pub(super) fn entry(
        &mut self,
        index: u64,
        time: Timestamp,
        action: &RaftAction,
        out: &[ServerAction],
        ran: u64,
    ) -> Result<(), Broken> {
        self.now = self.now.max(time);
        self.asked = None;
        let (mut again, mut opened) = (Vec::new(), None);
        match action {
            RaftAction::ClientRequest { session, request, lowest_pending, acked, payload } => {
                self.sign_of_life(*session, lowest_pending.0, acked.0);
                self.request(index, *session, *request, payload, out.first(), ran)?;
            }
            RaftAction::InternalCommand { payload } => self.internal(payload, out.first(), ran)?,
            _ if ran > 0 => return Err("a command ran in an entry that holds none".to_owned()),
            RaftAction::ServerRequestAck { session, request } => self.sign_of_life(*session, 0, request.0),
            RaftAction::KeepAlive { sessions } => {
                for Alive { session, lowest_pending, acked } in sessions {
                    self.sign_of_life(*session, lowest_pending.0, acked.0);
                }
            }
            RaftAction::SessionCreationConfirmed { session, .. } => {
                opened = Some(self.creation(index, *session));
            }
            RaftAction::SessionExpired { session } => {
                self.asked = self.is_open(*session).then_some((*session, CloseReason::Expired));
            }
            RaftAction::Configure { limits, .. } => self.limits = limits.clone(),
            RaftAction::Upgrade { version } => self.version = self.version.max(*version),
            RaftAction::GetRequestsForRetry { last_sent_before, limit } => {
                again = self.retried(*last_sent_before, *limit);
            }
            RaftAction::Tick => {}
        }
        answered_once(action, opened.as_ref(), out)?;
        // A retry comes first; what closing hooks send after it is new again.
        let (first, rest) = out.split_at_checked(again.len()).unwrap_or((out, &[]));
        self.retry(&again, first)?;
        rest.iter().try_for_each(|action| self.output(action))?;
        if let Some((session, reason)) = self.asked {
            return Err(format!("{session:?} was to be closed ({reason:?}), and is not"));
        }
        let closings = out.iter().filter(|action| matches!(action, ServerAction::SessionClosed { .. }));
        self.behind = closings.count() >= MAX_CLOSINGS;
        match self.overdue() {
            Some((session, reason)) if !self.behind => {
                Err(format!("{session:?} is due to be closed ({reason:?}), and is not"))
            }
            _ => Ok(()),
        }
    }

    /// An internal command runs if its payload is one, whoever else may not send it.
    fn internal(&self, payload: &[u8], first: Option<&ServerAction>, ran: u64) -> Result<(), Broken> {
        let runs = (self.runs)(payload, self.version, true);
        match first {
            Some(ServerAction::InternalResponse { result }) => match result {
                Ok(_) if runs && ran == 1 => Ok(()),
                Err(RequestError::InvalidPayload) if !runs && ran == 0 => Ok(()),
                _ => Err(format!("an internal command ran {ran} times and was answered with {result:?}")),
            },
            other => Err(format!("an internal command was answered first of all with {other:?}")),
        }
    }

    /// What a creation is to be answered with. It may ask for somebody's closing.
    fn creation(&mut self, index: u64, session: SessionId) -> ServerAction {
        if self.is_open(session) {
            return ServerAction::SessionCreated { session };
        }
        let fresh = index.checked_sub(session.position()).is_some_and(|age| age > 0 && age <= MAX_AGE);
        let max = self.limits.max_sessions.map(u64::from);
        let full = max.is_some_and(|max| self.open.len() as u64 >= max);
        let reason = if !fresh {
            RefuseReason::Stale
        } else if self.closed.contains_key(&session) {
            RefuseReason::Closed
        } else if full && (!self.limits.evict_idlest || max == Some(0)) {
            RefuseReason::Full
        } else {
            self.asked = self.idlest().filter(|_| full).map(|(idlest, _)| (idlest, CloseReason::Evicted));
            return ServerAction::SessionCreated { session };
        };
        ServerAction::SessionRefused { session, reason }
    }

    /// A session is closed because the entry asks for it, or because it is the next one due.
    fn closing(&mut self, session: SessionId, reason: CloseReason) -> Result<(), Broken> {
        let Some(known) = self.open.get(&session) else {
            return Err(format!("{session:?} was closed, and was not open"));
        };
        // Only the machine knows that it could not send. That it could not can be seen.
        let max = self.limits.max_pending_requests.map(u64::from);
        let slow = self.behind || max.is_some_and(|max| known.pending.len() as u64 >= max);
        let slow = Some((session, CloseReason::SlowConsumer)).filter(|_| slow);
        let asked = self.asked.take();
        let is_idlest = || self.idlest().is_some_and(|(idlest, _)| idlest == session);
        let expected = match asked {
            Some(asked) => Some(asked),
            None if slow == Some((session, reason)) && is_idlest() => slow,
            None => self.overdue().or(slow),
        };
        if expected != Some((session, reason)) {
            let expected =
                expected.map_or("nobody".to_owned(), |(session, reason)| format!("{session:?} ({reason:?})"));
            return Err(format!("{session:?} was closed ({reason:?}) instead of {expected}"));
        }
        self.open.remove(&session);
        self.closed.insert(session, reason);
        Ok(())
    }

    /// The session that was active least recently.
    fn idlest(&self) -> Option<(SessionId, &Known)> {
        let idlest = self.open.iter().min_by_key(|(session, known)| (known.last_activity, **session));
        idlest.map(|(session, known)| (*session, known))
    }

    /// Who is to be closed next for idleness, or because there are too many.
    fn overdue(&self) -> Option<(SessionId, CloseReason)> {
        let max = self.limits.max_sessions.filter(|_| self.limits.evict_idlest).map(u64::from);
        let crowded = max.is_some_and(|max| self.open.len() as u64 > max);
        if !crowded && self.limits.idle_timeout.is_none() {
            return None;
        }
        let (session, known) = self.idlest()?;
        let timeout = self.limits.idle_timeout;
        if timeout.is_some_and(|timeout| known.last_activity.saturating_add(timeout) < self.now) {
            Some((session, CloseReason::Idle))
        } else {
            crowded.then_some((session, CloseReason::Evicted))
        }
    }

    fn sign_of_life(&mut self, session: SessionId, lowest_pending: u64, acked: u64) {
        if let Some(known) = self.open.get_mut(&session) {
            known.watermark = known.watermark.max(lowest_pending);
            known.last_activity = self.now;
            while known.pending.first_key_value().is_some_and(|(request, _)| *request <= acked) {
                known.pending.pop_first();
            }
        }
    }

    /// Which server requests a retry sends again: first those of the session whose first due one has waited
    /// longest, or else a session that never acknowledges would keep out the others.
    fn retried(&self, before: Timestamp, limit: u32) -> Vec<(SessionId, u64)> {
        let first_due =
            |(session, known): (&SessionId, &Known)| Some((known.due(before).next()?.1, *session));
        let mut waiting: Vec<(Timestamp, SessionId)> = self.open.iter().filter_map(first_due).collect();
        waiting.sort_unstable();
        let most = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
        let due = waiting.iter().filter_map(|(_, session)| Some((*session, self.open.get(session)?)));
        let due =
            due.flat_map(|(session, known)| known.due(before).map(move |(request, _)| (session, request)));
        due.take(most).collect()
    }

    fn retry(&mut self, expected: &[(SessionId, u64)], sent: &[ServerAction]) -> Result<(), Broken> {
        let mut sent = sent.iter();
        for (session, number) in expected {
            let what = || format!("server request {number} of {session:?}");
            match sent.next() {
                Some(ServerAction::SendServerRequest { session: to, request, payload })
                    if (to, request.0) == (session, *number) =>
                {
                    if self.sent(*session, *request) != Some(codec::payload_hash(payload)) {
                        return Err(format!("{} was sent again with another payload", what()));
                    }
                }
                other => return Err(format!("{} was to be sent again, and not {other:?}", what())),
            }
            if let Some(known) = self.open.get_mut(session) {
                known.pending.insert(*number, self.now);
            }
        }
        Ok(())
    }

    /// Whether a session must turn away a request that would make it hold more answers. Never the one at the
    /// watermark, without which no answer could ever go.
    fn is_busy(&self, session: SessionId, known: &Known, request: RequestId) -> bool {
        let watermark = RequestId(known.watermark.max(1));
        let Some(max) = self.limits.max_cached_bytes.filter(|_| request > watermark) else { return false };
        self.answer_bytes(session, watermark) >= max
    }

    /// What the answers that a client may still ask for count.
    fn answer_bytes(&self, session: SessionId, watermark: RequestId) -> u64 {
        let held = self.answered.range((session, watermark)..=(session, RequestId(u64::MAX)));
        held.fold(0, |sum, (_, answered)| {
            let payload = answered.result.as_ref().map_or(0, |response| response.payload.len() as u64);
            sum.saturating_add(payload).saturating_add(RECORD_BYTES)
        })
    }

    /// What is kept of sessions is no more than what is live: of each open one the answers its client may still ask
    /// for and the server requests it has not acknowledged, and of the others nothing.
    pub(super) fn is_bounded(&self, dictionary: &Dictionary) -> Result<(), Broken> {
        let mut kept = dictionary.range(SESSION_KEYS.to_owned()..);
        for (id, known) in &self.open {
            let key = format!("{SESSION_KEYS}{:032x}", id.0);
            let Some((_, value)) = kept.next().filter(|(found, _)| **found == key) else {
                return Err(format!("{id:?} is open, and the dictionary has no key {key}"));
            };
            let pending = known.pending.keys().fold(0_u64, |sum, request| {
                let sent = self.sent.get(&(*id, ServerRequestId(*request)));
                sum.saturating_add(sent.map_or(0, |(_, length)| *length)).saturating_add(PENDING_BYTES)
            });
            let answers = self.answer_bytes(*id, RequestId(known.watermark.max(1)));
            let most = SESSION_BYTES.saturating_add(answers).saturating_add(pending);
            if value.len() as u64 > most {
                let takes = value.len();
                return Err(format!(
                    "{id:?} takes {takes} bytes, and what is live of it takes {most} at most"
                ));
            }
        }
        match kept.next().filter(|(key, _)| key.starts_with(SESSION_KEYS)) {
            None => Ok(()),
            Some((key, _)) => Err(format!("no session is open for the key {key}")),
        }
    }

    fn request(
        &mut self,
        index: u64,
        session: SessionId,
        request: RequestId,
        payload: &[u8],
        first: Option<&ServerAction>,
        ran: u64,
    ) -> Result<(), Broken> {
        // Words only where they are needed: this is called for every request.
        let what = || format!("{request:?} of {session:?}");
        let result = match first {
            Some(ServerAction::SendResponse { session: to, request: number, response })
                if (to, number) == (&session, &request) =>
            {
                Ok(response.clone())
            }
            Some(ServerAction::SendRequestError { session: to, request: number, error })
                if (to, number) == (&session, &request) =>
            {
                Err(*error)
            }
            other => return Err(format!("{} was answered first of all with {other:?}", what())),
        };
        let payload_hash = codec::payload_hash(payload);
        let expected = match (self.open.get(&session), self.answered.get(&(session, request))) {
            (None, _) => Some(Err(RequestError::SessionExpired)),
            (Some(known), _) if request.0 < known.watermark.max(1) => {
                Some(Err(RequestError::ResponseEvicted))
            }
            (Some(_), Some(before)) if before.payload_hash == payload_hash => Some(before.result.clone()),
            (Some(_), Some(_)) => Some(Err(RequestError::RequestMismatch)),
            (Some(known), None) if self.is_busy(session, known, request) => Some(Err(RequestError::Busy)),
            (Some(_), None) => None,
        };
        if let Some(expected) = expected {
            if ran > 0 {
                return Err(format!("{} ran, and should have been answered with {expected:?}", what()));
            }
            if result != expected {
                return Err(format!("{} was answered with {result:?} instead of {expected:?}", what()));
            }
            return Ok(());
        }
        let runs = (self.runs)(payload, self.version, false);
        if ran != u64::from(runs) || ran != u64::from(result.is_ok()) {
            let should =
                if runs { "should have run once" } else { "is no command that a client may run now" };
            return Err(format!("{} {should}; it ran {ran} times and was answered with {result:?}", what()));
        }
        if !matches!(result, Ok(_) | Err(RequestError::InvalidPayload)) {
            return Err(format!("{} is no valid request, and was answered with {result:?}", what()));
        }
        self.answered.insert((session, request), Answered { index, payload_hash, result });
        Ok(())
    }

    fn output(&mut self, action: &ServerAction) -> Result<(), Broken> {
        match action {
            ServerAction::SessionCreated { session } => {
                if let Some((other, _)) = self.asked {
                    return Err(format!("{session:?} was opened before {other:?} had made room"));
                }
                let known = Known { last_activity: self.now, ..Known::default() };
                self.open.entry(*session).or_insert(known);
            }
            ServerAction::SessionClosed { session, reason } => self.closing(*session, *reason)?,
            ServerAction::SendServerRequest { session, request, payload } => {
                self.server_request(*session, *request, payload)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn server_request(
        &mut self,
        session: SessionId,
        request: ServerRequestId,
        payload: &[u8],
    ) -> Result<(), Broken> {
        let what = || format!("server request {} of {session:?}", request.0);
        let Some(known) = self.open.get_mut(&session) else {
            return Err(format!("{} was sent, and the session is not open", what()));
        };
        if request.0 != known.last_sent.saturating_add(1) {
            return Err(format!("{} follows number {}", what(), known.last_sent));
        }
        let pending = known.pending.len() as u64;
        if self.limits.max_pending_requests.is_some_and(|max| pending >= u64::from(max)) {
            return Err(format!("{} was sent to a client that had {pending} pending already", what()));
        }
        known.last_sent = request.0;
        known.pending.insert(request.0, self.now);
        self.sent.insert((session, request), (codec::payload_hash(payload), payload.len() as u64));
        Ok(())
    }
}

/// Each request, internal command and creation is answered once, and nothing else is; a creation as it must be.
fn answered_once(
    action: &RaftAction,
    opened: Option<&ServerAction>,
    out: &[ServerAction],
) -> Result<(), Broken> {
    let is_answer = |action: &&ServerAction| {
        !matches!(action, ServerAction::SendServerRequest { .. } | ServerAction::SessionClosed { .. })
    };
    let mut answers = out.iter().filter(is_answer);
    let asks = opened.is_some()
        || matches!(action, RaftAction::ClientRequest { .. } | RaftAction::InternalCommand { .. });
    let answer = if asks { answers.next() } else { None };
    if opened.is_some() && answer != opened {
        return Err(format!("a creation was answered with {answer:?} instead of {opened:?}"));
    }
    match answers.next() {
        None => Ok(()),
        Some(answer) => Err(format!("nobody asked for {answer:?}")),
    }
}

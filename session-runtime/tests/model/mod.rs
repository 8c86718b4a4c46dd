//! A naive model of the session machine around a desk: lists, linear scans and a copy of everything before
//! each entry. It is slow and has no ideas of its own; it says what the rules say, in their order. With the
//! real machine it shares the codec and the public types, and nothing else.
#![allow(dead_code, unreachable_pub)] // each test binary is a crate of its own and uses its part

pub mod history;
pub mod pair;

use crate::support::{DeskCommand, Notice, OldDeskCommand, Refused};
use chacha20::ChaCha8Rng;
use serde::Serialize;
use session_runtime::rand_core::{Rng, SeedableRng};
use session_runtime::{
    Alive, ApplyError, Bytes, CloseReason, Command, Limits, PendingRequest, RaftAction, RefuseReason,
    RequestError, RequestId, Response, ServerAction, ServerRequestId, SessionId, Timestamp, codec,
};
use std::collections::BTreeMap;

/// How many sessions one entry closes after its action.
const CLOSINGS: usize = 1024;
/// How far below a creation's index its id may have been drawn.
const MAX_AGE: u64 = 65_536;
/// What a cached answer counts besides its payload.
const RECORD: u64 = 32;

type Answer = Result<Response, RequestError>;
type Capabilities = BTreeMap<String, String>;

/// The desk's own state, as its handlers change it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ModelDesk {
    pub total: u64,
    pub journal: Vec<String>,
    pub counts: BTreeMap<String, u64>,
    pub flag: bool,
    pub doubled: u64,
}

/// An answer that is kept, with the payload it answers.
#[derive(Clone, Serialize)]
struct Cached {
    request: u64,
    payload: Bytes,
    answer: Answer,
}

#[derive(Clone, Serialize)]
struct Session {
    id: SessionId,
    watermark: u64,
    cached: Vec<Cached>,
    last_assigned: u64,
    pending: Vec<PendingRequest>,
    capabilities: Capabilities,
    last_activity: u64,
    slow: bool,
}

impl Session {
    fn new(id: SessionId, capabilities: Capabilities, now: u64) -> Self {
        Self {
            id,
            watermark: 1,
            cached: Vec::new(),
            last_assigned: 0,
            pending: Vec::new(),
            capabilities,
            last_activity: now,
            slow: false,
        }
    }

    fn acknowledge(&mut self, acked: ServerRequestId) {
        self.pending.retain(|pending| pending.id > acked);
    }

    fn move_watermark(&mut self, lowest_pending: RequestId) {
        self.watermark = self.watermark.max(lowest_pending.0);
        let watermark = self.watermark;
        self.cached.retain(|cached| cached.request >= watermark);
    }

    fn cached(&self, request: u64) -> Option<&Cached> {
        self.cached.iter().find(|cached| cached.request == request)
    }

    fn cached_bytes(&self) -> u64 {
        self.cached.iter().map(|cached| RECORD + payload_size(&cached.answer)).sum()
    }

    fn name(&self) -> String {
        self.capabilities.get("name").map_or("?", String::as_str).to_owned()
    }
}

fn payload_size(answer: &Answer) -> u64 {
    answer.as_ref().map_or(0, |response| response.payload.len() as u64)
}

/// Why user code stopped the machine. The words of an encoder are not fixed: `None` is any message.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Halt {
    pub index: u64,
    pub command: String,
    pub message: Option<String>,
}

/// Why an entry was not applied.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    OutOfOrder { index: u64, last_applied: u64 },
    NeedsBuild { version: u32 },
    Halted(Halt),
}

impl Failure {
    /// Whether the real machine's error is this one, with its fields.
    pub fn fits(&self, error: &ApplyError) -> bool {
        match (self, error) {
            (
                Self::OutOfOrder { index, last_applied },
                ApplyError::OutOfOrder { index: i, last_applied: l },
            ) => (index, last_applied) == (i, l),
            (Self::NeedsBuild { version }, ApplyError::NeedsBuild { version: v }) => version == v,
            (Self::Halted(halt), ApplyError::Halted(halted)) => {
                (halt.index, &halt.command) == (halted.index, &halted.command)
                    && halt.message.as_ref().map_or(!halted.message.is_empty(), |m| *m == halted.message)
            }
            _ => false,
        }
    }
}

/// What the code under one entry is given: where it is, and where its sends go.
struct Entry {
    index: u64,
    /// Do everything but call user code.
    skip: bool,
    out: Vec<ServerAction>,
}

impl Entry {
    fn fail(&mut self, session: SessionId, request: RequestId, error: RequestError) {
        self.out.push(ServerAction::SendRequestError { session, request, error });
    }

    fn answer(&mut self, session: SessionId, request: RequestId, answer: Answer) {
        match answer {
            Ok(response) => self.out.push(ServerAction::SendResponse { session, request, response }),
            Err(error) => self.fail(session, request, error),
        }
    }

    fn refuse(&mut self, session: SessionId, reason: RefuseReason) {
        self.out.push(ServerAction::SessionRefused { session, reason });
    }

    fn halt(&self, command: &str, message: Option<String>) -> Halt {
        Halt { index: self.index, command: command.to_owned(), message }
    }
}

/// The whole replicated state.
#[derive(Clone, Serialize)]
pub struct Model {
    build: u32,
    pub desk: ModelDesk,
    /// In id order.
    sessions: Vec<Session>,
    closed: Vec<SessionId>,
    limits: Limits,
    seed: [u8; 32],
    version: u32,
    time: u64,
    last_applied: u64,
    halted: Option<Halt>,
}

// What is read of it, under the names of the real machine.
impl Model {
    /// An empty machine, as a build of this version.
    pub fn new(build: u32) -> Self {
        Self {
            build,
            desk: ModelDesk::default(),
            sessions: Vec::new(),
            closed: Vec::new(),
            limits: Limits::default(),
            seed: [0; 32],
            version: 1,
            time: 0,
            last_applied: 0,
            halted: None,
        }
    }

    /// The same, as if its last entry had stood elsewhere.
    pub fn at_index(mut self, index: u64) -> Self {
        self.last_applied = index;
        self
    }

    /// The open sessions in id order.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.sessions.iter().map(|session| session.id)
    }

    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    pub fn pending_count(&self) -> usize {
        self.sessions.iter().map(|session| session.pending.len()).sum()
    }

    pub fn has_pending_requests(&self, before: Timestamp) -> bool {
        self.sessions.iter().any(|session| session.pending.iter().any(|p| p.last_sent_at < before))
    }

    pub fn pending_requests(&self, session: SessionId) -> impl Iterator<Item = PendingRequest> {
        self.session(session).map_or(Vec::new(), |session| session.pending.clone()).into_iter()
    }

    pub fn cached_response(&self, session: SessionId, request: RequestId) -> Option<Answer> {
        self.session(session)?.cached(request.0).map(|cached| cached.answer.clone())
    }

    /// The answer to a request without applying it.
    pub fn answer_to(&self, session: SessionId, request: RequestId) -> Option<Answer> {
        let known = self.session(session)?;
        if request.0 < known.watermark {
            return Some(Err(RequestError::ResponseEvicted));
        }
        self.cached_response(session, request)
    }

    pub fn last_applied(&self) -> u64 {
        self.last_applied
    }

    pub fn time(&self) -> Timestamp {
        Timestamp(self.time)
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    pub fn version(&self) -> u32 {
        self.version
    }

    /// Now, if an entry left sessions that are due; else when the oldest will be.
    pub fn expiry_due(&self) -> Option<Timestamp> {
        if self.next_due().is_some() {
            return Some(self.time());
        }
        let timeout = self.limits.idle_timeout?;
        let oldest = self.sessions.iter().map(|session| session.last_activity).min()?;
        Some(Timestamp(oldest.saturating_add(timeout).saturating_add(1)))
    }

    /// The first state field that cannot be written now.
    pub fn spoiled_field(&self) -> Option<&'static str> {
        if self.desk.flag {
            return Some("flag");
        }
        let early = self.build >= 2 && self.version < 2 && self.desk.doubled != 0;
        early.then_some("doubled")
    }

    fn place(&self, id: SessionId) -> Option<usize> {
        self.sessions.binary_search_by_key(&id, |session| session.id).ok()
    }

    fn session(&self, id: SessionId) -> Option<&Session> {
        Some(&self.sessions[self.place(id)?])
    }

    fn session_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        let place = self.place(id)?;
        Some(&mut self.sessions[place])
    }
}

// One entry.
impl Model {
    /// Applies an entry, or skips its user code. On an error only `halted` may have changed.
    pub fn apply(
        &mut self,
        index: u64,
        time: Timestamp,
        action: &RaftAction,
        skip: bool,
    ) -> Result<Vec<ServerAction>, Failure> {
        self.check(index, action)?;
        let mut next = self.clone();
        let mut entry = Entry { index, skip, out: Vec::new() };
        next.time = self.time.max(time.0);
        if let Err(halt) = next.act(&mut entry, action.clone()).and_then(|()| next.close_due(&mut entry)) {
            self.halted = Some(halt.clone());
            return Err(Failure::Halted(halt));
        }
        next.last_applied = index;
        next.closed.retain(|id| u128::from(id.position()) + u128::from(MAX_AGE) > u128::from(index));
        *self = next;
        Ok(entry.out)
    }

    fn check(&self, index: u64, action: &RaftAction) -> Result<(), Failure> {
        if let Some(halt) = &self.halted {
            return Err(Failure::Halted(halt.clone()));
        }
        if index <= self.last_applied {
            return Err(Failure::OutOfOrder { index, last_applied: self.last_applied });
        }
        match *action {
            RaftAction::Upgrade { version } if version > self.build => Err(Failure::NeedsBuild { version }),
            _ => Ok(()),
        }
    }

    fn act(&mut self, entry: &mut Entry, action: RaftAction) -> Result<(), Halt> {
        match action {
            RaftAction::SessionCreationConfirmed { session, capabilities } => {
                return self.create(entry, session, capabilities);
            }
            RaftAction::ClientRequest { session, request, lowest_pending, acked, payload } => {
                return self.request(entry, Alive { session, lowest_pending, acked }, request, &payload);
            }
            RaftAction::SessionExpired { session } => {
                if self.session(session).is_some() {
                    return self.close(entry, session, CloseReason::Expired);
                }
            }
            RaftAction::InternalCommand { payload } => return self.internal(entry, &payload),
            RaftAction::ServerRequestAck { session, request } => {
                let unmoved = RequestId(0);
                self.alive(&Alive { session, lowest_pending: unmoved, acked: request });
            }
            RaftAction::KeepAlive { sessions } => sessions.iter().for_each(|alive| self.alive(alive)),
            RaftAction::GetRequestsForRetry { last_sent_before, limit } => {
                self.retry(entry, last_sent_before, limit);
            }
            RaftAction::Configure { limits, seed } => {
                self.limits = limits;
                self.seed = seed.unwrap_or(self.seed);
            }
            RaftAction::Upgrade { version } => self.version = self.version.max(version),
            RaftAction::Tick => {}
        }
        Ok(())
    }

    /// Takes a sign of life: activity, acknowledgment, watermark.
    fn alive(&mut self, alive: &Alive) {
        let now = self.time;
        let Some(session) = self.session_mut(alive.session) else { return };
        session.last_activity = now;
        session.acknowledge(alive.acked);
        session.move_watermark(alive.lowest_pending);
    }

    fn create(&mut self, entry: &mut Entry, id: SessionId, capabilities: Capabilities) -> Result<(), Halt> {
        if self.session(id).is_some() {
            entry.out.push(ServerAction::SessionCreated { session: id });
            return Ok(());
        }
        if self.closed.contains(&id) {
            entry.refuse(id, RefuseReason::Closed);
            return Ok(());
        }
        if id.position() >= entry.index || entry.index - id.position() > MAX_AGE {
            entry.refuse(id, RefuseReason::Stale);
            return Ok(());
        }
        if !self.make_room(entry)? {
            entry.refuse(id, RefuseReason::Full);
            return Ok(());
        }
        self.sessions.push(Session::new(id, capabilities, self.time));
        self.sessions.sort_by_key(|session| session.id);
        entry.out.push(ServerAction::SessionCreated { session: id });
        if !entry.skip {
            self.session_created(entry, id);
        }
        Ok(())
    }

    /// Whether there is room for one more session, after an eviction if that is allowed.
    fn make_room(&mut self, entry: &mut Entry) -> Result<bool, Halt> {
        let Some(max) = self.limits.max_sessions else { return Ok(true) };
        if self.sessions.len() < max as usize {
            return Ok(true);
        }
        if max == 0 || !self.limits.evict_idlest {
            return Ok(false);
        }
        let idlest = self.sessions.iter().map(|s| (s.last_activity, s.id)).min();
        if let Some((_, idlest)) = idlest {
            self.close(entry, idlest, CloseReason::Evicted)?;
        }
        Ok(true)
    }

    fn request(
        &mut self,
        entry: &mut Entry,
        alive: Alive,
        number: RequestId,
        payload: &Bytes,
    ) -> Result<(), Halt> {
        let id = alive.session;
        if self.session(id).is_none() {
            entry.fail(id, number, RequestError::SessionExpired);
            return Ok(());
        }
        self.alive(&alive);
        if let Some(known) = self.known_answer(id, number, payload) {
            entry.answer(id, number, known);
            return Ok(());
        }
        let mut sends = Entry { out: Vec::new(), ..*entry };
        let answer = self.execute(&mut sends, Some(id), payload)?;
        let cached = Cached { request: number.0, payload: payload.clone(), answer: answer.clone() };
        self.session_mut(id).expect("no handler closes a session").cached.push(cached);
        entry.answer(id, number, answer);
        entry.out.append(&mut sends.out);
        Ok(())
    }

    /// The answer to a request that is not executed: steps 4 to 6.
    fn known_answer(&self, id: SessionId, number: RequestId, payload: &Bytes) -> Option<Answer> {
        let session = self.session(id)?;
        if number.0 < session.watermark {
            return Some(Err(RequestError::ResponseEvicted));
        }
        if let Some(cached) = session.cached(number.0) {
            let same = cached.payload == *payload;
            return Some(if same { cached.answer.clone() } else { Err(RequestError::RequestMismatch) });
        }
        let full = self.limits.max_cached_bytes.is_some_and(|max| session.cached_bytes() >= max);
        (full && number.0 > session.watermark).then_some(Err(RequestError::Busy))
    }

    fn internal(&mut self, entry: &mut Entry, payload: &Bytes) -> Result<(), Halt> {
        let mut sends = Entry { out: Vec::new(), ..*entry };
        let result = self.execute(&mut sends, None, payload)?;
        entry.out.push(ServerAction::InternalResponse { result });
        entry.out.append(&mut sends.out);
        Ok(())
    }

    /// Decodes and runs a command, of a client or of the service itself.
    fn execute(&mut self, entry: &mut Entry, by: Option<SessionId>, payload: &Bytes) -> Result<Answer, Halt> {
        if entry.skip {
            return Ok(Err(RequestError::Skipped));
        }
        let Some(command) = self.decode(payload) else {
            return Ok(Err(RequestError::InvalidPayload));
        };
        if by.is_some() && command == DeskCommand::Purge {
            return Ok(Err(RequestError::InvalidPayload));
        }
        self.run(entry, by, command).map(Ok)
    }

    /// The command, if this build knows it and the replicated version has it.
    fn decode(&self, payload: &Bytes) -> Option<DeskCommand> {
        if self.build == 1 {
            return codec::decode::<OldDeskCommand>(payload).ok().map(DeskCommand::from);
        }
        let command: DeskCommand = codec::decode(payload).ok()?;
        let since = if command == DeskCommand::Double { 2 } else { 1 };
        (since <= self.version).then_some(command)
    }

    fn retry(&mut self, entry: &mut Entry, before: Timestamp, limit: u32) {
        let mut due: Vec<(Timestamp, SessionId)> = Vec::new();
        for session in &self.sessions {
            let first = session.pending.iter().find(|pending| pending.last_sent_at < before);
            due.extend(first.map(|first| (first.last_sent_at, session.id)));
        }
        due.sort();
        let now = self.time();
        for (_, id) in due {
            let session = self.session_mut(id).expect("it was found above");
            for pending in session.pending.iter_mut().filter(|pending| pending.last_sent_at < before) {
                if limit > 0 && entry.out.len() == limit as usize {
                    return;
                }
                pending.last_sent_at = now;
                pending.attempts += 1;
                let (request, payload) = (pending.id, pending.payload.clone());
                entry.out.push(ServerAction::SendServerRequest { session: id, request, payload });
            }
        }
    }
}

// Closing sessions.
impl Model {
    fn close(&mut self, entry: &mut Entry, id: SessionId, reason: CloseReason) -> Result<(), Halt> {
        let place = self.place(id).expect("it is open");
        let gone = self.sessions.remove(place);
        self.closed.push(id);
        if !entry.skip {
            self.session_closed(entry, &gone)?;
        }
        entry.out.push(ServerAction::SessionClosed { session: id, reason });
        Ok(())
    }

    fn close_due(&mut self, entry: &mut Entry) -> Result<(), Halt> {
        for _ in 0..CLOSINGS {
            let Some((id, reason)) = self.next_due() else { break };
            self.close(entry, id, reason)?;
        }
        Ok(())
    }

    /// Of the sessions that are due the least recently active, with the first reason that fits.
    fn next_due(&self) -> Option<(SessionId, CloseReason)> {
        let due = self.sessions.iter().filter_map(|session| Some((session, self.reason_to_close(session)?)));
        let first = due.min_by_key(|(session, _)| (session.last_activity, session.id));
        first.map(|(session, reason)| (session.id, reason))
    }

    fn reason_to_close(&self, session: &Session) -> Option<CloseReason> {
        if session.slow {
            return Some(CloseReason::SlowConsumer);
        }
        let last_moment = |timeout| session.last_activity.saturating_add(timeout);
        if self.limits.idle_timeout.is_some_and(|timeout| last_moment(timeout) < self.time) {
            return Some(CloseReason::Idle);
        }
        // All are due while there are too many; the order takes the idlest.
        let too_many = self.limits.max_sessions.is_some_and(|max| self.sessions.len() > max as usize);
        (self.limits.evict_idlest && too_many).then_some(CloseReason::Evicted)
    }
}

// What the desk does.
impl Model {
    fn run(
        &mut self,
        entry: &mut Entry,
        by: Option<SessionId>,
        command: DeskCommand,
    ) -> Result<Response, Halt> {
        let name = command.name();
        Ok(match command {
            DeskCommand::Add { amount } => {
                self.desk.total = self.desk.total.saturating_add(amount);
                accepted(&self.desk.total)
            }
            DeskCommand::Take { amount } => self.take(amount),
            DeskCommand::Notify { to, text } => accepted(&self.send(entry, to, &text)),
            DeskCommand::Shout(text) => {
                self.broadcast(entry, &text);
                accepted(&(self.sessions.len() as u64))
            }
            DeskCommand::Note => accepted(&self.note(entry.index, by)),
            DeskCommand::Roll => {
                let mut rng = ChaCha8Rng::from_seed(self.seed);
                rng.set_stream(entry.index);
                accepted(&(rng.next_u64(), rng.next_u64()))
            }
            DeskCommand::Panic => return Err(entry.halt(name, Some("the desk broke".to_owned()))),
            DeskCommand::BadReply => return Err(entry.halt(name, None)),
            DeskCommand::BadSend { to } if self.accepts(to) => return Err(entry.halt(name, None)),
            DeskCommand::BadSend { to } => accepted(&self.send(entry, to, "")),
            DeskCommand::Spoil(on) => {
                self.desk.flag = on;
                accepted(&())
            }
            DeskCommand::Count { word } => {
                let count = self.desk.counts.entry(word).or_default();
                *count += 1;
                accepted(count)
            }
            DeskCommand::Purge => {
                let length = self.desk.journal.len() as u64;
                self.desk.journal.clear();
                accepted(&length)
            }
            DeskCommand::Rush => {
                self.desk.doubled += 1;
                accepted(&())
            }
            DeskCommand::Double => {
                self.desk.doubled += 1;
                self.desk.total = self.desk.total.saturating_mul(2);
                accepted(&self.desk.total)
            }
        })
    }

    fn take(&mut self, amount: u64) -> Response {
        let total = self.desk.total;
        if amount > total {
            return Response::rejected(&Refused::Insufficient { total }).expect("it encodes");
        }
        self.desk.total -= amount;
        accepted(&self.desk.total)
    }

    fn note(&mut self, index: u64, by: Option<SessionId>) -> String {
        let session = by.and_then(|id| self.session(id));
        let name = session.map_or("nobody".to_owned(), Session::name);
        let line = format!("{name} at {index} time {} version {}", self.time, self.version);
        self.desk.journal.push(line.clone());
        line
    }

    fn session_created(&mut self, entry: &mut Entry, id: SessionId) {
        let session = self.session(id).expect("it was just opened");
        let (name, greet) = (session.name(), session.capabilities.contains_key("greet"));
        if greet {
            self.send(entry, id, &format!("welcome {name}"));
        }
        self.desk.journal.push(format!("{name} opened"));
    }

    fn session_closed(&mut self, entry: &mut Entry, gone: &Session) -> Result<(), Halt> {
        let name = gone.name();
        if gone.capabilities.contains_key("fragile") {
            return Err(entry.halt("#[session_closed]", Some(format!("the desk cannot let {name} go"))));
        }
        self.broadcast(entry, &format!("{name} left after {}", self.desk.journal.len()));
        self.desk.journal.push(format!("{name} closed"));
        Ok(())
    }

    /// Whether a send to this session would be stored.
    fn accepts(&self, to: SessionId) -> bool {
        let room = |pending: usize| self.limits.max_pending_requests.is_none_or(|max| pending < max as usize);
        self.session(to).is_some_and(|session| !session.slow && room(session.pending.len()))
    }

    /// Numbers and stores a server request; one that finds no room marks its target.
    fn send(&mut self, entry: &mut Entry, to: SessionId, text: &str) -> Option<ServerRequestId> {
        let (accepts, now) = (self.accepts(to), self.time());
        let session = self.session_mut(to)?;
        if !accepts {
            session.slow = true;
            return None;
        }
        session.last_assigned += 1;
        let id = ServerRequestId(session.last_assigned);
        let payload = codec::encode(&Notice::Text(text.to_owned())).expect("it encodes");
        session.pending.push(PendingRequest { id, payload: payload.clone(), last_sent_at: now, attempts: 1 });
        entry.out.push(ServerAction::SendServerRequest { session: to, request: id, payload });
        Some(id)
    }

    fn broadcast(&mut self, entry: &mut Entry, text: &str) {
        let all: Vec<_> = self.sessions().collect();
        for to in all {
            self.send(entry, to, text);
        }
    }
}

fn accepted<T: Serialize + ?Sized>(value: &T) -> Response {
    Response::accepted(value).expect("it encodes")
}

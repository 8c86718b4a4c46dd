//! The client's half of a session, without IO: numbering, resending, acknowledging, delivering once.

use super::{
    Execution,
    events::Events,
    message::{ClientMessage, ServerMessage},
    saved::Saved,
};
use crate::{
    action::{CloseReason, RefuseReason, RequestError, Response},
    codec::{DecodeError, EncodeError},
    identity::{RequestId, ServerRequestId, SessionId},
};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// How a client behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// What the client tells the machine it can do.
    pub capabilities: BTreeMap<String, String>,
    /// How many requests may be under way at once; at least one.
    pub window: u32,
    /// How long an acknowledgment waits for something to travel with; zero: it never waits.
    pub ack_delay: Duration,
    /// How long the client may be silent before it says that it is alive. Queries do not count: they name no
    /// session.
    pub keep_alive: Duration,
    /// How long to wait for an answer before sending again. It doubles with each time, up to sixteenfold.
    pub resend_after: Duration,
}

impl Default for ClientConfig {
    /// 256 requests under way, acknowledgments after 20 milliseconds, a sign of life every 5 seconds, and
    /// sending again after a second.
    fn default() -> Self {
        Self {
            capabilities: BTreeMap::new(),
            window: 256,
            ack_delay: Duration::from_millis(20),
            keep_alive: Duration::from_secs(5),
            resend_after: Duration::from_secs(1),
        }
    }
}

/// The client's half of a session.
///
/// It does no IO. The caller gives it the server's messages with [`receive`](Self::receive), sends what
/// [`poll`](Self::poll) returns until that is `None`, takes [`event`](Self::event)s, and polls again at
/// [`next_wake`](Self::next_wake). Moments are durations since any start the caller chooses, of a clock that
/// never runs backwards.
#[derive(Debug)]
pub struct ClientSession {
    config: ClientConfig,
    stage: Stage,
    /// The number of the last request.
    last_request: u64,
    /// The requests without an answer.
    pending: BTreeMap<RequestId, Pending>,
    /// The queries without an answer.
    queries: BTreeMap<u64, Pending>,
    last_correlation: u64,
    /// The highest server request delivered to the caller.
    delivered: ServerRequestId,
    /// When an acknowledgment must go out.
    ack_at: Option<Duration>,
    /// When the client last said anything in its session's name.
    last_sign_of_life: Duration,
    saving: Option<Saving>,
    /// Sessions that were opened for this client and are not its own: each is closed.
    surplus: Vec<SessionId>,
    /// What the caller has not taken.
    events: Events,
}

/// How far a session has come.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Opening {
        attempt: u64,
        send: Timer,
    },
    /// `hello` is for as long as the server may not know this connection.
    Open {
        session: SessionId,
        hello: Option<Timer>,
    },
    Closing {
        session: SessionId,
        send: Timer,
    },
    Closed,
}

/// When to send something, and how long to wait for its answer then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Timer {
    at: Duration,
    wait: Duration,
}

impl Timer {
    fn now(now: Duration, config: &ClientConfig) -> Self {
        Self { at: now, wait: config.resend_after }
    }

    /// What waits for the end of time is never due: else it would be due again as soon as it was sent.
    fn is_due(&self, now: Duration) -> bool {
        self.at <= now && self.at < Duration::MAX
    }

    /// It was sent: the next time is after the wait, which doubles.
    fn sent(&mut self, now: Duration, config: &ClientConfig) {
        self.at = now.saturating_add(self.wait);
        self.wait = self.wait.saturating_mul(2).min(config.resend_after.saturating_mul(16));
    }
}

#[derive(Clone, Debug)]
struct Pending {
    payload: Bytes,
    /// The caller gave up: the answer is for nobody, but the request must still end, or it would hold the
    /// watermark for ever.
    abandoned: bool,
    progress: Progress,
    /// Saved bytes hold it, so a client that is restored from them sends it.
    saved: bool,
    send: Timer,
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    /// It is not sent before the caller says so.
    Held,
    Ready,
    /// It went out at least once, so it may be executed.
    Sent,
    /// It went out while another was the lowest, and the session was full of answers.
    Busy,
    /// It last went out as the lowest, which nothing keeps out.
    SentLowest,
}

impl Progress {
    /// Of a request that goes out now.
    fn sent(request: RequestId, lowest: RequestId) -> Self {
        if request == lowest { Self::SentLowest } else { Self::Sent }
    }
}

impl Pending {
    fn new(payload: Bytes, send: Timer) -> Self {
        Self { payload, abandoned: false, progress: Progress::Ready, saved: false, send }
    }

    fn is_held(&self) -> bool {
        self.progress == Progress::Held
    }
}

/// What a client that saves itself has promised with the bytes it saved last.
#[derive(Clone, Copy, Debug)]
struct Saving {
    /// The highest request number the saved bytes allow.
    reserved: u64,
    /// The highest server request the saved bytes hold.
    delivered: ServerRequestId,
    /// The same of the bytes that are being saved.
    next: Option<(u64, ServerRequestId)>,
}

/// What the caller should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// The session is open.
    Opened {
        /// The session.
        session: SessionId,
    },
    /// The session was not opened. The client asks again, after a while if there was no room.
    Refused {
        /// Why.
        reason: RefuseReason,
    },
    /// A request ended: answered, or with the reason why there is no answer.
    Ended {
        /// Which request.
        request: RequestId,
        /// Its answer.
        result: Result<Response, RequestError>,
    },
    /// A query ended.
    QueryEnded {
        /// Which query.
        correlation: u64,
        /// The encoded answer, or words for a person.
        result: Result<Bytes, String>,
    },
    /// A request of the machine, each once and in order.
    ServerRequest {
        /// Its number.
        request: ServerRequestId,
        /// The encoded server request.
        payload: Bytes,
    },
    /// This server does not lead: connect to the one named, or to any other, and call
    /// [`reconnected`](ClientSession::reconnected).
    Redirected {
        /// Where the leader is, if this server knows.
        leader: Option<String>,
    },
    /// The session is over. Open a new one to go on.
    Closed {
        /// Why, if the server said so.
        reason: Option<CloseReason>,
    },
}

/// Why a request was not taken. It was not sent, so it was not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// Too many requests are under way: wait for one to end.
    WindowFull,
    /// The numbers reserved by the bytes saved last are used up: save again.
    SaveFirst,
    /// The session is over or is being closed: open a new one.
    Closed,
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WindowFull => "too many requests are under way; wait for one to end",
            Self::SaveFirst => "the reserved request numbers are used up; save the client again first",
            Self::Closed => "the session is over; open a new one",
        })
    }
}

impl std::error::Error for SubmitError {}

impl ClientSession {
    /// A client that opens a session.
    pub fn open(config: ClientConfig, now: Duration) -> Self {
        let mut client = Self::at(config, Stage::Closed, now);
        client.stage = Stage::Opening { attempt: 1, send: Timer::now(now, &client.config) };
        client
    }

    fn at(mut config: ClientConfig, stage: Stage, now: Duration) -> Self {
        // Without any wait, polling would never come to an end.
        config.resend_after = config.resend_after.max(Duration::from_millis(1));
        config.keep_alive = config.keep_alive.max(Duration::from_millis(1));
        config.window = config.window.max(1);
        Self {
            config,
            stage,
            last_request: 0,
            pending: BTreeMap::new(),
            queries: BTreeMap::new(),
            last_correlation: 0,
            delivered: ServerRequestId(0),
            ack_at: None,
            last_sign_of_life: now,
            saving: None,
            surplus: Vec::new(),
            events: Events::default(),
        }
    }

    /// The session, once it is open and until it is closed.
    pub fn session(&self) -> Option<SessionId> {
        match self.stage {
            Stage::Open { session, .. } | Stage::Closing { session, .. } => Some(session),
            Stage::Opening { .. } | Stage::Closed => None,
        }
    }

    /// Takes a command. It is sent, and sent again, until it ends with [`ClientEvent::Ended`].
    pub fn submit(&mut self, now: Duration, payload: Bytes) -> Result<RequestId, SubmitError> {
        if matches!(self.stage, Stage::Closing { .. } | Stage::Closed) {
            return Err(SubmitError::Closed);
        }
        if self.pending.len() as u64 >= u64::from(self.config.window) {
            return Err(SubmitError::WindowFull);
        }
        let number = self.last_request.checked_add(1).ok_or(SubmitError::Closed)?;
        if self.saving.is_some_and(|saving| number > saving.reserved) {
            return Err(SubmitError::SaveFirst);
        }
        self.last_request = number;
        let send = Timer::now(now, &self.config);
        self.pending.insert(RequestId(number), Pending::new(payload, send));
        Ok(RequestId(number))
    }

    /// Keeps a request that was just taken from being sent before [`send`](Self::send) is called for it: the caller
    /// has to store the client first.
    pub fn hold(&mut self, request: RequestId) {
        if let Some(pending) = self.pending.get_mut(&request) {
            pending.progress = Progress::Held;
        }
    }

    /// The caller no longer waits for a request. One that was sent may still be executed, once, and its answer is
    /// discarded. One that was not is dropped: it is never executed, unless a client is restored from bytes that
    /// hold it.
    pub fn abandon(&mut self, request: RequestId) -> Execution {
        match self.pending.get_mut(&request) {
            Some(pending) if pending.progress >= Progress::Sent => pending.abandoned = true,
            Some(pending) => {
                let saved = pending.saved;
                self.pending.remove(&request);
                self.send_first_busy();
                return if saved { Execution::Unknown } else { Execution::Never };
            }
            None => {}
        }
        Execution::Unknown
    }

    /// Takes a query. It is sent, and sent again, until it ends with [`ClientEvent::QueryEnded`].
    pub fn query(&mut self, now: Duration, payload: Bytes) -> Result<u64, SubmitError> {
        if matches!(self.stage, Stage::Closing { .. } | Stage::Closed) {
            return Err(SubmitError::Closed);
        }
        self.last_correlation = self.last_correlation.wrapping_add(1);
        let send = Timer::now(now, &self.config);
        self.queries.insert(self.last_correlation, Pending::new(payload, send));
        Ok(self.last_correlation)
    }

    /// The caller no longer waits for a query.
    pub fn abandon_query(&mut self, correlation: u64) {
        self.queries.remove(&correlation);
    }

    /// Says goodbye. Requests under way end with [`RequestError::SessionExpired`], unless their answers come
    /// before the closing does.
    pub fn close(&mut self, now: Duration) {
        match self.stage {
            Stage::Open { session, .. } => {
                self.stage = Stage::Closing { session, send: Timer::now(now, &self.config) };
            }
            Stage::Opening { .. } => self.end(None),
            Stage::Closing { .. } | Stage::Closed => {}
        }
    }

    /// There is a new connection, to the same server or another: introduce the client and send again all that
    /// has no answer.
    pub fn reconnected(&mut self, now: Duration) {
        let again = Timer::now(now, &self.config);
        match &mut self.stage {
            Stage::Opening { send, .. } | Stage::Closing { send, .. } => *send = again,
            Stage::Open { hello, .. } => *hello = Some(again),
            Stage::Closed => {}
        }
        for pending in self.pending.values_mut().chain(self.queries.values_mut()) {
            pending.send = again;
        }
        if self.acknowledged() > ServerRequestId(0) {
            self.ack_at = Some(now);
        }
    }

    /// The requests without an answer, in order.
    pub fn pending(&self) -> impl Iterator<Item = RequestId> {
        self.pending.keys().copied()
    }

    /// All requests without an answer, in order, to be sent now, whatever [`poll`](Self::poll) would send. None
    /// before the session is open.
    pub fn resend(&mut self) -> impl Iterator<Item = ClientMessage> {
        let session = self.session();
        if session.is_some() {
            let lowest = self.lowest_pending();
            for (request, pending) in self.pending.iter_mut().filter(|(_, pending)| !pending.is_held()) {
                pending.progress = Progress::sent(*request, lowest);
            }
        }
        let client = &*self;
        let sent = client.pending.iter().filter(|(_, pending)| pending.progress >= Progress::Sent);
        sent.filter_map(move |(request, _)| client.message(session?, *request))
    }

    /// The message of a request that was just taken, without a look at all that may be due: what
    /// [`poll`](Self::poll) would give for it. `None` while the session is not open: then poll gives it later.
    pub fn send(&mut self, now: Duration, request: RequestId) -> Option<ClientMessage> {
        let lowest = self.lowest_pending();
        let pending = self.pending.get_mut(&request)?;
        pending.progress = pending.progress.max(Progress::Ready);
        let Stage::Open { session, hello } = self.stage else { return None };
        if hello.is_some_and(|hello| hello.is_due(now)) {
            return None;
        }
        pending.send.sent(now, &self.config);
        pending.progress = Progress::sent(request, lowest);
        self.ack_at = None;
        self.last_sign_of_life = now;
        self.message(session, request)
    }

    /// The next message to send, if any. Call it again until it gives `None`.
    pub fn poll(&mut self, now: Duration) -> Option<ClientMessage> {
        let message = self.next_message(now)?;
        if let ClientMessage::Request { .. } | ClientMessage::Ack { .. } | ClientMessage::KeepAlive { .. } =
            message
        {
            self.last_sign_of_life = now;
        }
        Some(message)
    }

    /// The next event, if any.
    pub fn event(&mut self) -> Option<ClientEvent> {
        self.events.pop()
    }

    /// The next event that is no server request: those stay, until they are taken by
    /// [`server_request`](Self::server_request) or [`event`](Self::event).
    pub fn event_but_server_request(&mut self) -> Option<ClientEvent> {
        self.events.pop_other()
    }

    /// The next server request, before whatever else happened. One that was not taken was not delivered to the bytes
    /// of [`save`](Self::save): to a client restored from them it comes again.
    pub fn server_request(&mut self) -> Option<(ServerRequestId, Bytes)> {
        self.events.pop_server_request()
    }

    /// How many server requests were not taken yet.
    pub fn untaken_server_requests(&self) -> usize {
        self.events.server_requests()
    }

    fn happened(&mut self, event: ClientEvent) {
        self.events.push(event);
    }

    /// When to poll again, if nothing happens before.
    pub fn next_wake(&self) -> Option<Duration> {
        if !self.surplus.is_empty() {
            return Some(Duration::ZERO);
        }
        let queries = self.queries.values().map(|query| query.send.at);
        let stage = match &self.stage {
            Stage::Closed => return None,
            Stage::Opening { send, .. } => return Some(send.at),
            Stage::Closing { send, .. } => send.at,
            Stage::Open { hello, .. } => {
                let keep_alive = self.last_sign_of_life.saturating_add(self.config.keep_alive);
                hello.map_or(keep_alive, |hello| hello.at.min(keep_alive))
            }
        };
        let requests =
            self.pending.values().filter(|request| !request.is_held()).map(|request| request.send.at);
        requests.chain(queries).chain(self.ack_at).chain([stage]).min()
    }

    fn next_message(&mut self, now: Duration) -> Option<ClientMessage> {
        if let Some(session) = self.surplus.pop() {
            return Some(ClientMessage::Close { session });
        }
        let session = match &mut self.stage {
            Stage::Closed => return None,
            Stage::Opening { attempt, send } => {
                if !send.is_due(now) {
                    return None;
                }
                send.sent(now, &self.config);
                let capabilities = self.config.capabilities.clone();
                return Some(ClientMessage::Create { attempt: *attempt, capabilities });
            }
            Stage::Closing { session, send } => {
                if send.is_due(now) {
                    send.sent(now, &self.config);
                    return Some(ClientMessage::Close { session: *session });
                }
                *session
            }
            Stage::Open { session, hello } => {
                if let Some(hello) = hello
                    && hello.is_due(now)
                {
                    hello.sent(now, &self.config);
                    return Some(ClientMessage::Continue { session: *session });
                }
                *session
            }
        };
        self.next_request(session, now)
            .or_else(|| self.next_query(now))
            .or_else(|| self.next_sign_of_life(session, now))
    }

    fn next_request(&mut self, session: SessionId, now: Duration) -> Option<ClientMessage> {
        let is_due = |pending: &Pending| !pending.is_held() && pending.send.is_due(now);
        let lowest = self.lowest_pending();
        let (request, pending) = self.pending.iter_mut().find(|(_, pending)| is_due(pending))?;
        pending.send.sent(now, &self.config);
        pending.progress = Progress::sent(*request, lowest);
        let request = *request;
        self.ack_at = None;
        self.message(session, request)
    }

    fn next_query(&mut self, now: Duration) -> Option<ClientMessage> {
        let (correlation, query) = self.queries.iter_mut().find(|(_, query)| query.send.is_due(now))?;
        query.send.sent(now, &self.config);
        Some(ClientMessage::Query { correlation: *correlation, payload: query.payload.clone() })
    }

    fn next_sign_of_life(&mut self, session: SessionId, now: Duration) -> Option<ClientMessage> {
        let acked = self.acknowledged();
        if self.ack_at.take_if(|at| *at <= now).is_some() && acked > ServerRequestId(0) {
            return Some(ClientMessage::Ack { session, request: acked });
        }
        let silent_until = self.last_sign_of_life.saturating_add(self.config.keep_alive);
        if silent_until <= now && silent_until < Duration::MAX {
            self.ack_at = None;
            let lowest_pending = self.lowest_pending();
            return Some(ClientMessage::KeepAlive { session, lowest_pending, acked });
        }
        None
    }

    /// A request as it goes out now.
    fn message(&self, session: SessionId, request: RequestId) -> Option<ClientMessage> {
        let payload = self.pending.get(&request)?.payload.clone();
        let (lowest_pending, acked) = (self.lowest_pending(), self.acknowledged());
        Some(ClientMessage::Request { session, request, lowest_pending, acked, payload })
    }

    /// The lowest request without an answer, or else the next number.
    fn lowest_pending(&self) -> RequestId {
        match self.pending.first_key_value() {
            Some((lowest, _)) => *lowest,
            None => RequestId(self.last_request.saturating_add(1)),
        }
    }

    /// What may be acknowledged: all that was delivered, or, of a client that saves itself, all that its saved
    /// bytes hold.
    fn acknowledged(&self) -> ServerRequestId {
        self.saving.map_or(self.delivered, |saving| saving.delivered)
    }

    /// Takes a message of the server.
    pub fn receive(&mut self, now: Duration, message: ServerMessage) {
        match message {
            ServerMessage::Created { attempt, session } => self.on_created(now, attempt, session),
            ServerMessage::Refused { attempt, reason } => self.on_refused(now, attempt, reason),
            ServerMessage::Continued { session } if self.is_ours(session) => {
                if let Stage::Open { hello, .. } = &mut self.stage {
                    *hello = None;
                }
            }
            ServerMessage::Rejected { leader } => self.happened(ClientEvent::Redirected { leader }),
            ServerMessage::QueryResponse { correlation, result } => {
                if self.queries.remove(&correlation).is_some() {
                    self.happened(ClientEvent::QueryEnded { correlation, result });
                }
            }
            ServerMessage::Response { session, request, response } if self.is_ours(session) => {
                self.on_answer(request, Ok(response));
            }
            ServerMessage::RequestError { session, request, error } if self.is_ours(session) => {
                self.on_error(now, request, error);
            }
            ServerMessage::ServerRequest { session, request, payload } if self.is_ours(session) => {
                self.on_server_request(now, request, payload);
            }
            ServerMessage::Closed { session, reason } if self.is_ours(session) => self.end(reason),
            // Whatever is about another session than this one is late, and for nobody.
            ServerMessage::Continued { .. }
            | ServerMessage::Response { .. }
            | ServerMessage::RequestError { .. }
            | ServerMessage::ServerRequest { .. }
            | ServerMessage::Closed { .. } => {}
        }
    }

    fn is_ours(&self, session: SessionId) -> bool {
        self.session() == Some(session)
    }

    fn on_created(&mut self, now: Duration, answered: u64, session: SessionId) {
        if matches!(self.stage, Stage::Opening { attempt, .. } if attempt == answered) {
            self.stage = Stage::Open { session, hello: None };
            self.last_sign_of_life = now;
            self.happened(ClientEvent::Opened { session });
        } else if !self.is_ours(session) {
            // A copy of the registration opened one more, or the caller gave up meanwhile.
            self.surplus.push(session);
        }
    }

    fn on_refused(&mut self, now: Duration, answered: u64, reason: RefuseReason) {
        let Stage::Opening { attempt, send } = &mut self.stage else { return };
        if *attempt != answered {
            return;
        }
        *attempt = attempt.wrapping_add(1);
        match reason {
            // The timer already waits, longer each time.
            RefuseReason::Full => {}
            RefuseReason::Closed | RefuseReason::Stale => *send = Timer::now(now, &self.config),
        }
        self.happened(ClientEvent::Refused { reason });
    }

    fn on_answer(&mut self, request: RequestId, result: Result<Response, RequestError>) {
        if let Some(pending) = self.pending.remove(&request)
            && !pending.abandoned
        {
            self.happened(ClientEvent::Ended { request, result });
        }
        self.send_first_busy();
    }

    fn on_error(&mut self, now: Duration, request: RequestId, error: RequestError) {
        match error {
            RequestError::SessionExpired => self.end(None),
            // It ends nothing: a copy of it may still run. It is sent again later.
            RequestError::Busy => {
                if let Some(pending) = self.pending.get_mut(&request) {
                    if pending.progress == Progress::Sent {
                        pending.progress = Progress::Busy;
                    }
                    pending.send.at = pending.send.at.max(now.saturating_add(pending.send.wait));
                    self.send_first_busy();
                }
            }
            RequestError::ResponseEvicted
            | RequestError::RequestMismatch
            | RequestError::InvalidPayload
            | RequestError::Skipped => self.on_answer(request, Err(error)),
        }
    }

    /// The lowest request moves the watermark, so it runs however full the session is: it need not wait any longer.
    fn send_first_busy(&mut self) {
        if let Some(mut first) = self.pending.first_entry()
            && first.get().progress == Progress::Busy
        {
            first.get_mut().send = Timer::now(Duration::ZERO, &self.config);
        }
    }

    fn on_server_request(&mut self, now: Duration, request: ServerRequestId, payload: Bytes) {
        let next = self.delivered.0.checked_add(1).map(ServerRequestId);
        if Some(request) == next {
            self.delivered = request;
            self.happened(ClientEvent::ServerRequest { request, payload });
        } else if request > self.delivered {
            // A gap: what is missing comes again, and this one after it.
            return;
        }
        // What stored bytes do not hold yet is acknowledged once they do.
        if request <= self.acknowledged() {
            let ack_at = now.saturating_add(self.config.ack_delay);
            self.ack_at = Some(self.ack_at.map_or(ack_at, |at| at.min(ack_at)));
        }
    }

    /// The session is over, and so is everything under way in it.
    fn end(&mut self, reason: Option<CloseReason>) {
        self.stage = Stage::Closed;
        let ended: Vec<RequestId> = self.pending.keys().copied().collect();
        for request in ended {
            self.on_answer(request, Err(RequestError::SessionExpired));
        }
        for correlation in std::mem::take(&mut self.queries).into_keys() {
            let result = Err("the session is over; open a new one".to_owned());
            self.happened(ClientEvent::QueryEnded { correlation, result });
        }
        self.happened(ClientEvent::Closed { reason });
    }

    /// The highest server request that the caller has taken.
    fn taken(&self) -> ServerRequestId {
        let first_untaken = self.events.first_server_request();
        first_untaken.map_or(self.delivered, |request| ServerRequestId(request.0.saturating_sub(1)))
    }

    /// The bytes from which this client can be restored after a crash, in which the next `reserve` request
    /// numbers are reserved. Store them, and then call [`saved`](Self::saved). `None` before the session is open.
    ///
    /// From the first save on, the client sends no request above the reservation and acknowledges no server
    /// request beyond what stored bytes hold: after a restore, later deliveries come again. An application
    /// that must see each of them once stores its own state together with these bytes. So do server requests that were
    /// not taken from [`event`](Self::event) yet. Answers do not: take them first.
    pub fn save(&mut self, reserve: u64) -> Result<Option<Bytes>, EncodeError> {
        let Stage::Open { session, .. } = self.stage else { return Ok(None) };
        let reserved = self.last_request.saturating_add(reserve);
        let delivered = self.taken();
        let pending = self.pending.iter_mut().filter(|(_, pending)| !pending.abandoned);
        let pending = pending.map(|(request, pending)| {
            pending.saved = true;
            (*request, pending.payload.clone())
        });
        let saved = Saved { session, reserved, delivered, pending: pending.collect() };
        let bytes = saved.to_bytes()?;
        // Whether these bytes were stored is known only later, so until then what holds is what both they and
        // the bytes before them allow.
        let before = self.saving.unwrap_or(Saving { reserved, delivered, next: None });
        self.saving = Some(Saving {
            reserved: before.reserved.min(reserved),
            delivered: before.delivered,
            next: Some((reserved, delivered)),
        });
        Ok(Some(bytes))
    }

    /// The bytes of the last [`save`](Self::save) are stored: what they promise is in force.
    pub fn saved(&mut self, now: Duration) {
        if let Some(Saving { next: Some((reserved, delivered)), .. }) = self.saving {
            if delivered > self.acknowledged() {
                self.ack_at = Some(now.saturating_add(self.config.ack_delay));
            }
            self.saving = Some(Saving { reserved, delivered, next: None });
        }
    }

    /// A client that goes on with the session of saved bytes. Requests that were under way when they were saved
    /// are sent again and end with events of their own; numbers reserved then are never used again.
    ///
    /// One process at a time may go on with a session.
    pub fn restore(bytes: &[u8], config: ClientConfig, now: Duration) -> Result<Self, DecodeError> {
        let saved = Saved::from_bytes(bytes)?;
        let mut client = Self::at(config, Stage::Closed, now);
        let send = Timer::now(now, &client.config);
        client.stage = Stage::Open { session: saved.session, hello: Some(send) };
        client.last_request = saved.reserved;
        client.delivered = saved.delivered;
        client.pending = saved
            .pending
            .into_iter()
            .map(|(request, payload)| {
                let pending =
                    Pending { progress: Progress::Sent, saved: true, ..Pending::new(payload, send) };
                (request, pending)
            })
            .collect();
        // No number is free until it has saved itself anew.
        client.saving = Some(Saving { reserved: saved.reserved, delivered: saved.delivered, next: None });
        Ok(client)
    }
}

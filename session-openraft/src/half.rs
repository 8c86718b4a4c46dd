//! The client's half of a session in this process: who waits for which answer, and what came from the machine.

use crate::error::Stopped;
use crate::service::lock;
use bytes::Bytes;
use session_runtime::client::{
    ClientConfig, ClientError, ClientEvent, ClientMessage, ClientSession, ServerMessage, SubmitError,
};
use session_runtime::{
    CloseReason, EncodeError, RefuseReason, RequestError, RequestId, Response, ServerRequestId, SessionId,
};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// How many server requests wait here for an application that does not take them. One more is not received: it
/// stays with the machine, which sends it again. What waits here is not in the bytes of a saved client.
const MAX_UNREAD: usize = 1_024;

pub(crate) type Answered = Result<Response, ClientError>;

/// A command that was taken.
pub(crate) struct Taken {
    pub(crate) request: RequestId,
    /// What carries it, if it can be sent now.
    pub(crate) message: Option<ClientMessage>,
    pub(crate) answer: oneshot::Receiver<Answered>,
}

/// A request that has ended. Its caller is told when nothing is locked any more.
pub(crate) type Ended = (oneshot::Sender<Answered>, Answered);

pub(crate) struct Half {
    state: Mutex<State>,
    /// Held by whoever stores the client's bytes, so that the last ones stored are the last ones saved. The state is
    /// not locked meanwhile: entries are applied while a client is stored.
    storing: tokio::sync::Mutex<()>,
    /// Wakes the task that keeps the timers.
    pub(crate) timers: Notify,
    /// How long an answer is waited for.
    resend_after: Duration,
    /// Something changed that a waiting caller may want to know.
    changed: Notify,
}

struct State {
    session: ClientSession,
    /// The number of the attempt that opens the session.
    attempt: u64,
    waiting: WaitingList,
    /// Callers that wait for `changed`.
    watchers: u32,
    refused: Option<RefuseReason>,
    /// Some requests are to be sent again when another was answered.
    busy: bool,
    /// When the task that keeps the timers wakes by itself.
    wake: Duration,
    /// What was under way in the client that this one was restored from, the lowest last.
    recovering: Vec<RequestId>,
    /// What became of it, until it is asked for.
    recovered: VecDeque<(RequestId, Answered)>,
    /// The node knows this client: it does once it created the session, or was told to go on with it.
    known: bool,
    end: Option<End>,
    /// Why the session is being closed, if that is not for the machine to say.
    closing: Option<End>,
    /// Its bytes were stored: the session is to outlive this process.
    saved: bool,
}

/// Who waits for which request. Requests are numbered in the order they are taken and mostly end in it.
#[derive(Default)]
struct WaitingList(VecDeque<(RequestId, oneshot::Sender<Answered>)>);

impl WaitingList {
    /// Requests are taken in the order of their numbers.
    fn push(&mut self, request: RequestId) -> oneshot::Receiver<Answered> {
        let (tell, answer) = oneshot::channel();
        self.0.push_back((request, tell));
        answer
    }

    fn place(&self, request: RequestId) -> Option<usize> {
        self.0.binary_search_by_key(&request, |(request, _)| *request).ok()
    }

    fn remove(&mut self, request: RequestId) -> Option<oneshot::Sender<Answered>> {
        self.0.remove(self.place(request)?).map(|(_, tell)| tell)
    }

    fn contains(&self, request: RequestId) -> bool {
        self.place(request).is_some()
    }
}

/// Why a client gets no more answers.
#[derive(Clone)]
pub(crate) enum End {
    Closed(Option<CloseReason>),
    Stopped(Stopped),
    /// Another client was resumed from the bytes of this one.
    Replaced,
}

impl Half {
    pub(crate) fn open(config: ClientConfig, now: Duration) -> Self {
        let resend_after = config.resend_after;
        Self::new(ClientSession::open(config, now), resend_after, false)
    }

    /// A half that goes on with the session of saved bytes.
    pub(crate) fn restore(bytes: &[u8], config: ClientConfig, now: Duration) -> Result<Self, ClientError> {
        let resend_after = config.resend_after;
        let session = ClientSession::restore(bytes, config, now)
            .map_err(|error| ClientError::Storage(error.to_string()))?;
        Ok(Self::new(session, resend_after, true))
    }

    fn new(session: ClientSession, resend_after: Duration, saved: bool) -> Self {
        let recovering: Vec<_> = session.pending().collect();
        let state = State {
            session,
            attempt: 0,
            waiting: WaitingList::default(),
            watchers: 0,
            refused: None,
            busy: false,
            wake: Duration::MAX,
            recovering: recovering.into_iter().rev().collect(),
            recovered: VecDeque::new(),
            known: !saved,
            end: None,
            closing: None,
            saved,
        };
        Self {
            state: Mutex::new(state),
            storing: tokio::sync::Mutex::default(),
            timers: Notify::new(),
            resend_after,
            changed: Notify::new(),
        }
    }

    pub(crate) fn session(&self) -> Option<SessionId> {
        lock(&self.state).session.session()
    }

    /// Waits until `look` finds something.
    async fn until<T>(&self, mut look: impl FnMut(&mut State) -> Option<T>) -> T {
        if let Some(found) = look(&mut lock(&self.state)) {
            return found;
        }
        loop {
            let changed = self.changed.notified();
            {
                let mut state = lock(&self.state);
                if let Some(found) = look(&mut state) {
                    return found;
                }
                // Under the lock, so that a change after it is not missed.
                state.watchers = state.watchers.saturating_add(1);
            }
            let _watching = Watching(self);
            changed.await;
        }
    }

    /// Waits until the session is open, or says why it is not.
    pub(crate) async fn opened(&self) -> Result<SessionId, ClientError> {
        self.until(|state| {
            if let Some(end) = &state.end {
                // Of one that was restored, something may have been under way.
                return Some(Err(if state.saved { end.under_way() } else { end.not_sent() }));
            }
            if let Some(reason @ RefuseReason::Full) = state.refused {
                return Some(Err(ClientError::Refused(reason)));
            }
            state.session.session().filter(|_| state.known).map(Ok)
        })
        .await
    }

    /// Waits until the session is over.
    pub(crate) async fn closed(&self) {
        self.until(|state| state.end.as_ref().map(|_| ())).await;
    }

    // Requests.

    /// Takes a command; `None` if too many are under way.
    pub(crate) fn try_submit(&self, now: Duration, payload: &Bytes) -> Option<Result<Taken, ClientError>> {
        self.take(&mut lock(&self.state), now, payload)
    }

    fn take(&self, state: &mut State, now: Duration, payload: &Bytes) -> Option<Result<Taken, ClientError>> {
        let taken = state.take(now, payload);
        self.wake_in_time(state, now);
        taken
    }

    /// Something was sent: should its answer not come, the timers have to be awake by then.
    fn wake_in_time(&self, state: &mut State, now: Duration) {
        let due = now.saturating_add(self.resend_after);
        if due < state.wake {
            state.wake = due;
            self.timers.notify_one();
        }
    }

    /// As [`try_submit`](Self::try_submit), but waits while too many are under way.
    pub(crate) async fn submit(
        &self,
        now: impl Fn() -> Duration,
        payload: &Bytes,
    ) -> Result<Taken, ClientError> {
        self.until(|state| self.take(state, now(), payload)).await
    }

    /// As [`submit`](Self::submit), with the client's bytes stored before anything is sent.
    pub(crate) async fn submit_saved(
        &self,
        now: impl Fn() -> Duration,
        payload: &Bytes,
        store: impl Fn(&[u8]) -> std::io::Result<()>,
    ) -> Result<Taken, ClientError> {
        let _storing = self.storing.lock().await;
        let (request, answer, bytes) = match self.take_saved(&now, payload).await {
            Err(SubmitError::SaveFirst) => {
                // Numbers are free once bytes that reserve them are stored.
                let bytes = lock(&self.state).bytes_to_store()?;
                store(&bytes).map_err(|error| ClientError::NotSent(not_stored(&error)))?;
                self.saved(now());
                self.take_saved(&now, payload).await
            }
            taken => taken,
        }
        .map_err(|error| lock(&self.state).not_taken(error))?;
        // Also if `store` panics.
        let giving_up = GivingUp::of(self, request);
        let stored = bytes.and_then(|bytes| {
            store(&bytes).map_err(|error| {
                ClientError::Storage(format!("{}, so the command was not sent", not_stored(&error)))
            })
        });
        stored?;
        giving_up.has_ended();
        self.saved(now());
        let (mut state, now) = (lock(&self.state), now());
        let message = state.session.send(now, request);
        self.wake_in_time(&mut state, now);
        Ok(Taken { request, message, answer })
    }

    /// Takes a command that is not to be sent before the bytes given with it are stored.
    async fn take_saved(
        &self,
        now: impl Fn() -> Duration,
        payload: &Bytes,
    ) -> Result<(RequestId, oneshot::Receiver<Answered>, Result<Bytes, ClientError>), SubmitError> {
        self.until(|state| match state.submit(now(), payload) {
            Ok((request, answer)) => {
                state.session.hold(request);
                Some(Ok((request, answer, state.bytes_to_store())))
            }
            Err(SubmitError::WindowFull) => None,
            Err(error) => Some(Err(error)),
        })
        .await
    }

    /// The caller gave up.
    fn abandon(&self, request: RequestId) {
        let mut state = lock(&self.state);
        state.waiting.remove(request);
        state.session.abandon(request);
        drop(state);
        // There may be room in the window now, or something to send.
        self.changed.notify_waiters();
        self.timers.notify_one();
    }

    pub(crate) fn reject_unless_running(&self) -> Result<(), ClientError> {
        lock(&self.state).end.as_ref().map_or(Ok(()), |end| Err(end.not_sent()))
    }

    // Timers.

    /// What is to be sent now, and when to ask again.
    pub(crate) fn poll(&self, now: Duration) -> (Vec<ClientMessage>, Option<Duration>) {
        let mut state = lock(&self.state);
        let mut messages = Vec::new();
        while let Some(message) = state.session.poll(now) {
            if let ClientMessage::Create { attempt, .. } = message {
                state.attempt = attempt;
            }
            messages.push(message);
        }
        let wake = state.session.next_wake();
        state.wake = wake.unwrap_or(Duration::MAX);
        (messages, wake)
    }

    // From the machine.

    /// Takes messages, one after the other, with this half locked.
    pub(crate) fn receiving(&self, now: Duration) -> Receiving<'_> {
        Receiving { half: self, state: lock(&self.state), now, changed: false }
    }

    /// Takes a single message.
    pub(crate) fn receive(&self, now: Duration, message: ServerMessage) {
        let mut ended = Vec::new();
        let mut receiving = self.receiving(now);
        receiving.message(message, &mut ended);
        let changed = receiving.end();
        tell(&mut ended);
        if changed {
            self.has_changed();
        }
    }

    /// Those who wait for a change look again.
    pub(crate) fn has_changed(&self) {
        self.changed.notify_waiters();
    }

    /// No answer comes here any more: nobody waits any longer.
    pub(crate) fn end(&self, end: End) {
        let mut state = lock(&self.state);
        let error = end.under_way();
        state.end.get_or_insert(end);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for (_, caller) in waiting.0 {
            caller.send(Err(error.clone())).ok();
        }
        self.changed.notify_waiters();
        self.timers.notify_one();
    }

    /// The next request of the machine. `None` once the session is over and all were taken.
    pub(crate) async fn server_request(&self) -> Option<(ServerRequestId, Bytes)> {
        self.until(|state| match state.session.server_request() {
            Some(request) => Some(Some(request)),
            None => state.end.as_ref().map(|_| None),
        })
        .await
    }

    /// The end of a request that was under way when the client was saved.
    pub(crate) async fn recovered(&self) -> Option<(RequestId, Answered)> {
        self.until(|state| {
            if let Some(recovered) = state.recovered.pop_front() {
                return Some(Some(recovered));
            }
            if let Some(end @ (End::Stopped(_) | End::Replaced)) = &state.end {
                let error = end.under_way();
                let pending: BTreeSet<_> = state.session.pending().collect();
                state.recovering.retain(|request| pending.contains(request));
                return Some(state.recovering.pop().map(|request| (request, Err(error))));
            }
            let mut others = state.session.pending().filter(|request| !state.waiting.contains(*request));
            (others.next().is_none() || state.end.is_some()).then_some(None)
        })
        .await
    }

    // Saving and closing.

    pub(crate) fn save(&self, reserve: u64) -> Result<Option<Bytes>, EncodeError> {
        lock(&self.state).session.save(reserve)
    }

    pub(crate) fn saved(&self, now: Duration) {
        let mut state = lock(&self.state);
        state.session.saved(now);
        state.saved = true;
        drop(state);
        self.timers.notify_one();
    }

    pub(crate) fn is_saved(&self) -> bool {
        lock(&self.state).saved
    }

    pub(crate) fn close(&self, now: Duration) {
        let mut state = lock(&self.state);
        state.session.close(now);
        // One that was never open is over at once.
        let mut ended = Vec::new();
        state.note_events(&mut ended);
        drop(state);
        tell(&mut ended);
        self.changed.notify_waiters();
        self.timers.notify_one();
    }

    /// The node is about to close the session. What is answered before is answered.
    pub(crate) fn shuts_down(&self) {
        lock(&self.state).closing = Some(End::Stopped(Stopped::Shutdown));
    }

    pub(crate) fn is_over(&self) -> bool {
        lock(&self.state).end.is_some()
    }
}

/// How many request numbers a stored client reserves beyond the one it sends.
const RESERVE: u64 = 256;

impl State {
    /// Takes a command, unless too many are under way.
    fn take(&mut self, now: Duration, payload: &Bytes) -> Option<Result<Taken, ClientError>> {
        match self.submit(now, payload) {
            Ok((request, answer)) => {
                let message = self.session.send(now, request);
                Some(Ok(Taken { request, message, answer }))
            }
            Err(SubmitError::WindowFull) => None,
            Err(error) => Some(Err(self.not_taken(error))),
        }
    }

    fn submit(
        &mut self,
        now: Duration,
        payload: &Bytes,
    ) -> Result<(RequestId, oneshot::Receiver<Answered>), SubmitError> {
        if self.end.is_some() {
            return Err(SubmitError::Closed);
        }
        let request = self.session.submit(now, payload.clone())?;
        Ok((request, self.waiting.push(request)))
    }

    fn not_taken(&self, error: SubmitError) -> ClientError {
        match (&self.end, error) {
            (Some(end), _) => end.not_sent(),
            (None, SubmitError::SaveFirst) => ClientError::NotSent(
                "this client was saved, and the request numbers that it reserved then are used up; send through \
                 `client.saving(store)`, or save it again first"
                    .to_owned(),
            ),
            (None, error) => ClientError::NotSent(error.to_string()),
        }
    }

    fn bytes_to_store(&mut self) -> Result<Bytes, ClientError> {
        let bytes = self.session.save(RESERVE).map_err(|error| ClientError::NotSent(not_stored(&error)))?;
        bytes.ok_or_else(|| ClientError::NotSent(not_stored(&"its session is not open")))
    }

    /// Takes note of what happened; what is for the application to take stays until it takes it.
    fn note_events(&mut self, ended: &mut Vec<Ended>) {
        while let Some(event) = self.session.event_but_server_request() {
            match event {
                ClientEvent::Ended { request, result } => {
                    let answered = result.map_err(|error| match (error, &self.closing) {
                        (RequestError::SessionExpired, Some(why)) => why.under_way(),
                        (error, _) => error.into(),
                    });
                    match self.waiting.remove(request) {
                        Some(caller) => ended.push((caller, answered)),
                        None => self.recovered.push_back((request, answered)),
                    }
                }
                ClientEvent::Refused { reason } => self.refused = Some(reason),
                ClientEvent::Opened { .. } => self.refused = None,
                ClientEvent::Closed { reason } => {
                    let end = self.closing.take().unwrap_or(End::Closed(reason));
                    self.end.get_or_insert(end);
                }
                ClientEvent::ServerRequest { .. }
                | ClientEvent::QueryEnded { .. }
                | ClientEvent::Redirected { .. } => {}
            }
        }
    }
}

/// A half that is locked while messages for it are taken.
pub(crate) struct Receiving<'a> {
    half: &'a Half,
    state: MutexGuard<'a, State>,
    now: Duration,
    changed: bool,
}

impl Receiving<'_> {
    /// Unlocks it. If somebody waits for what changed, [`Half::has_changed`] is to be called when nothing is locked.
    pub(crate) fn end(self) -> bool {
        self.changed
    }

    pub(crate) fn created(&mut self, session: SessionId, ended: &mut Vec<Ended>) {
        self.message(ServerMessage::Created { attempt: self.state.attempt, session }, ended);
    }

    pub(crate) fn refused(&mut self, reason: RefuseReason, ended: &mut Vec<Ended>) {
        self.message(ServerMessage::Refused { attempt: self.state.attempt, reason }, ended);
    }

    /// Takes a message. Those who wait for what it ends are to be told by [`tell`].
    pub(crate) fn message(&mut self, message: ServerMessage, ended: &mut Vec<Ended>) {
        let Self { half, state, now, changed } = self;
        let answer = matches!(message, ServerMessage::Response { .. });
        if matches!(message, ServerMessage::ServerRequest { .. })
            && state.session.untaken_server_requests() >= MAX_UNREAD
        {
            return;
        }
        state.known |= matches!(message, ServerMessage::Continued { .. });
        state.busy |= matches!(message, ServerMessage::RequestError { error: RequestError::Busy, .. });
        state.session.receive(*now, message);
        state.note_events(ended);
        let idle = state.session.pending().next().is_none();
        state.busy &= !idle;
        *changed |= state.watchers > 0;
        // Most answers make nothing due.
        if !answer || state.busy {
            half.timers.notify_one();
        }
    }
}

/// Tells those who wait for what has ended.
pub(crate) fn tell(ended: &mut Vec<Ended>) {
    for (caller, answered) in ended.drain(..) {
        // It may have given up.
        caller.send(answered).ok();
    }
}

fn not_stored(problem: &impl ToString) -> String {
    format!("the client was not stored: {}", problem.to_string())
}

impl End {
    /// What a caller is told whose request may have been sent, in this life of the client or in one before.
    fn under_way(&self) -> ClientError {
        match self {
            Self::Closed(_) => ClientError::SessionExpired,
            Self::Stopped(stopped) => ClientError::Transport(stopped.to_string()),
            Self::Replaced => ClientError::Transport(REPLACED.to_owned()),
        }
    }

    /// What a caller is told whose request was not even sent.
    fn not_sent(&self) -> ClientError {
        ClientError::NotSent(match self {
            Self::Closed(Some(reason)) => format!("the session was closed ({reason:?}); open a new client"),
            Self::Closed(None) => "the session is over; open a new client".to_owned(),
            Self::Stopped(stopped) => stopped.to_string(),
            Self::Replaced => REPLACED.to_owned(),
        })
    }
}

const REPLACED: &str = "another client was resumed from the bytes of this one, and goes on with the session";

/// A call whose caller may stop waiting for it at any moment.
pub(crate) struct GivingUp<'a> {
    half: &'a Half,
    request: Option<RequestId>,
}

impl<'a> GivingUp<'a> {
    pub(crate) fn of(half: &'a Half, request: RequestId) -> Self {
        Self { half, request: Some(request) }
    }

    pub(crate) fn has_ended(mut self) {
        self.request = None;
    }
}

impl Drop for GivingUp<'_> {
    fn drop(&mut self) {
        if let Some(request) = self.request {
            self.half.abandon(request);
        }
    }
}

/// A caller that waits for a change; also when it stops waiting.
struct Watching<'a>(&'a Half);

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.watchers = state.watchers.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use session_runtime::client::Execution;

    /// A half that was restored with so many requests under way.
    fn restored(now: Duration, under_way: u64) -> Half {
        let config = ClientConfig::default();
        let mut client = ClientSession::open(config.clone(), now);
        let Some(ClientMessage::Create { attempt, .. }) = client.poll(now) else {
            panic!("it opens a session")
        };
        client.receive(now, ServerMessage::Created { attempt, session: SessionId(7) });
        for _ in 0..under_way {
            client.submit(now, Bytes::from_static(b"payload")).unwrap();
        }
        let half = Half::restore(&client.save(10).unwrap().unwrap(), config, now).unwrap();
        half.saved(now);
        assert!(half.save(10).unwrap().is_some());
        half.saved(now);
        half
    }

    #[tokio::test]
    async fn nothing_is_recovered_where_only_its_own_calls_are_under_way() {
        let half = restored(Duration::ZERO, 0);
        let _own = half.try_submit(Duration::ZERO, &Bytes::from_static(b"payload")).unwrap().unwrap();
        let recovered = tokio::time::timeout(Duration::from_secs(10), half.recovered()).await;
        assert_eq!(recovered.expect("it waits for the call"), None);
    }

    #[tokio::test]
    async fn what_was_under_way_in_a_stored_client_is_unknown_if_the_node_stops_first() {
        let now = Duration::ZERO;
        let half = restored(now, 2);
        // Its own calls are told themselves.
        let own = half.try_submit(now, &Bytes::from_static(b"payload")).unwrap().unwrap();
        half.end(End::Stopped(Stopped::Shutdown));
        assert_eq!(own.answer.await.unwrap().unwrap_err().execution(), Execution::Unknown);
        for request in 1..=2 {
            let (recovered, ended) = half.recovered().await.unwrap();
            assert_eq!((recovered, ended.unwrap_err().execution()), (RequestId(request), Execution::Unknown));
        }
        assert_eq!(half.recovered().await, None);
    }
}

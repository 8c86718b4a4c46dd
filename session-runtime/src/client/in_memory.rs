//! A machine in this process and its clients, with nothing in between but the protocol: for tests, examples,
//! and a first hour. Nothing is stored, and time passes only when it is told to.

use super::{
    Call, ClientConfig, ClientError, ClientEvent, ClientMessage, ClientSession, Execution, ServerMessage,
};
use crate::{
    action::{Alive, RaftAction, RefuseReason, Response, ServerAction},
    admission::{Admission, Admit},
    codec,
    error::ApplyError,
    identity::{RequestId, ServerRequestId, SessionId, Timestamp},
    machine::{Command, StateMachine},
    session_machine::{SessionKey, SessionStateMachine},
    wire::Wire,
};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

/// A machine and the leader's part of the protocol around it, in memory.
///
/// ```
/// # use session_runtime::client::InMemory;
/// # use session_runtime::StateMachine;
/// # fn example<M: StateMachine + Default + Send>() {
/// let server = InMemory::new(M::default());
/// let client = server.client(); // a `Call`: `BankClient::new(client)`
/// # }
/// ```
pub struct InMemory<M> {
    server: Arc<Mutex<Server<M>>>,
}

impl<M: StateMachine> InMemory<M> {
    /// A machine at the beginning of its log.
    pub fn new(machine: M) -> Self {
        Self { server: Arc::new(Mutex::new(Server::new(machine))) }
    }

    /// A client with a session of its own.
    pub fn client(&self) -> InMemoryClient<M> {
        self.client_with(ClientConfig::default())
    }

    /// A client with a session of its own that behaves as told.
    pub fn client_with(&self, config: ClientConfig) -> InMemoryClient<M> {
        let config = ClientConfig { ack_delay: Duration::ZERO, ..config };
        let client = ClientSession::open(config, lock(&self.server).now);
        let half = Half {
            client,
            ended: BTreeMap::new(),
            queries: BTreeMap::new(),
            notices: VecDeque::new(),
            refused: None,
        };
        InMemoryClient { server: Arc::clone(&self.server), client: Mutex::new(half) }
    }

    /// Lets time pass, and sessions expire that are due.
    pub fn advance(&self, by: Duration) -> Result<Vec<ServerAction>, ApplyError> {
        let mut server = lock(&self.server);
        server.now = server.now.saturating_add(by);
        let sessions: Vec<Alive> = std::mem::take(&mut server.alive).into_values().collect();
        server.append(if sessions.is_empty() { RaftAction::Tick } else { RaftAction::KeepAlive { sessions } })
    }

    /// Appends and applies an action of the service itself, and returns what it gave.
    pub fn apply(&self, action: RaftAction) -> Result<Vec<ServerAction>, ApplyError> {
        lock(&self.server).append(action)
    }

    /// Runs a command of the service itself, and returns its answer.
    pub fn internal(&self, command: &M::Command) -> Result<Response, ClientError> {
        let payload = command.try_encode().map_err(ClientError::Encode)?;
        let out = self.apply(RaftAction::InternalCommand { payload });
        let out = out.map_err(|error| ClientError::Transport(error.to_string()))?;
        let answer = out.into_iter().find_map(|action| match action {
            ServerAction::InternalResponse { result } => Some(result),
            _ => None,
        });
        match answer {
            Some(result) => result.map_err(ClientError::from),
            None => Err(ClientError::Transport("the machine does not answer".to_owned())),
        }
    }

    /// Looks at the wrapped machine.
    pub fn inspect<T>(&self, look: impl FnOnce(&SessionStateMachine<M>) -> T) -> T {
        look(&lock(&self.server).machine)
    }
}

/// The leader's part: it appends, applies, and knows who is to be told.
struct Server<M> {
    machine: SessionStateMachine<M>,
    gate: Admission<SessionKey>,
    /// The time since the beginning of the log.
    now: Duration,
    /// Who was answered at the gate since time last passed: that is a sign of life, and no entry of its own.
    alive: BTreeMap<SessionId, Alive>,
    /// What clients have not fetched yet.
    outbox: BTreeMap<SessionId, VecDeque<ServerMessage>>,
    /// Why the machine does not go on, once it does not.
    broken: Option<String>,
}

/// One machine has one leader, and one term.
const TERM: u64 = 1;

impl<M: StateMachine> Server<M> {
    fn new(machine: M) -> Self {
        Self {
            machine: SessionStateMachine::new(machine),
            gate: Admission::new(),
            now: Duration::ZERO,
            alive: BTreeMap::new(),
            outbox: BTreeMap::new(),
            broken: None,
        }
    }

    /// Appends an action to the log of one voter, which commits and applies it at once.
    fn append(&mut self, action: RaftAction) -> Result<Vec<ServerAction>, ApplyError> {
        let index = self.machine.last_applied().saturating_add(1);
        let time = Timestamp(u64::try_from(self.now.as_millis()).unwrap_or(u64::MAX));
        let out = self.machine.apply(index, time, action).inspect_err(|error| {
            self.broken = Some(error.to_string());
        })?;
        self.gate.applied(index);
        for (session, message) in out.iter().cloned().filter_map(ServerMessage::from_action) {
            self.outbox.entry(session).or_default().push_back(message);
        }
        Ok(out)
    }

    /// Serves a client's message, and returns what answers it directly.
    fn serve(&mut self, message: ClientMessage) -> Option<ServerMessage> {
        match message {
            ClientMessage::Continue { session }
            | ClientMessage::Ack { session, .. }
            | ClientMessage::KeepAlive { session, .. }
            | ClientMessage::Close { session }
                if !self.machine.is_open(session) =>
            {
                Some(ServerMessage::Closed { session, reason: None })
            }
            ClientMessage::Create { attempt, capabilities } => {
                // Nobody outside this process could guess it, so a hash of the position is random enough.
                let position = self.machine.last_applied();
                let session = SessionId::draw(position, codec::payload_hash(&position.to_le_bytes()));
                let out = self.append(RaftAction::SessionCreationConfirmed { session, capabilities }).ok()?;
                out.into_iter().find_map(|action| match action {
                    ServerAction::SessionCreated { session } => {
                        Some(ServerMessage::Created { attempt, session })
                    }
                    ServerAction::SessionRefused { reason, .. } => {
                        Some(ServerMessage::Refused { attempt, reason })
                    }
                    _ => None,
                })
            }
            ClientMessage::Continue { session } => Some(ServerMessage::Continued { session }),
            ClientMessage::Request { session, request, lowest_pending, acked, payload } => {
                let key = SessionKey::new(session, request, &payload);
                match self.gate.admit(TERM, &key, self.machine.answer_to(&key)) {
                    Admit::Answered(result) => {
                        self.alive.insert(session, Alive { session, lowest_pending, acked });
                        Some(ServerMessage::answer(session, request, result))
                    }
                    Admit::InFlight { .. } => None,
                    Admit::Append => {
                        let action =
                            RaftAction::ClientRequest { session, request, lowest_pending, acked, payload };
                        self.append(action).ok();
                        None
                    }
                }
            }
            ClientMessage::Query { correlation, payload } => {
                let result = self.machine.query(&payload).map_err(|error| error.to_string());
                Some(ServerMessage::QueryResponse { correlation, result })
            }
            ClientMessage::Ack { session, request } => {
                self.append(RaftAction::ServerRequestAck { session, request }).ok();
                None
            }
            ClientMessage::KeepAlive { session, lowest_pending, acked } => {
                let sessions = vec![Alive { session, lowest_pending, acked }];
                self.append(RaftAction::KeepAlive { sessions }).ok();
                None
            }
            ClientMessage::Close { session } => {
                self.append(RaftAction::SessionExpired { session }).ok();
                None
            }
        }
    }
}

/// A client of an [`InMemory`] machine.
pub struct InMemoryClient<M> {
    server: Arc<Mutex<Server<M>>>,
    client: Mutex<Half>,
}

/// The client's half, and what ended in it.
struct Half {
    client: ClientSession,
    ended: BTreeMap<RequestId, Result<Response, ClientError>>,
    queries: BTreeMap<u64, Result<Bytes, ClientError>>,
    notices: VecDeque<(ServerRequestId, Bytes)>,
    refused: Option<RefuseReason>,
}

impl<M: StateMachine> InMemoryClient<M> {
    /// The next request of the machine to this client, if there is one.
    pub fn server_request(&self) -> Option<(ServerRequestId, M::ServerRequest)>
    where
        M::ServerRequest: Wire,
    {
        self.exchange(|_, _| ());
        let (request, payload) = lock(&self.client).notices.pop_front()?;
        Some((request, codec::decode(&payload).ok()?))
    }

    /// Ends the session.
    pub fn close(&self) {
        self.exchange(ClientSession::close);
    }

    /// Does something with the client's half, then moves messages both ways until all is said.
    fn exchange<T>(&self, act: impl FnOnce(&mut ClientSession, Duration) -> T) -> T {
        let mut half = lock(&self.client);
        let mut server = lock(&self.server);
        let now = server.now;
        let done = act(&mut half.client, now);
        loop {
            let mut moved = false;
            while let Some(message) = half.client.poll(now) {
                moved = true;
                if let Some(answer) = server.serve(message) {
                    half.client.receive(now, answer);
                }
            }
            let session = half.client.session();
            while let Some(message) = session.and_then(|session| server.outbox.get_mut(&session)?.pop_front())
            {
                moved = true;
                half.client.receive(now, message);
            }
            if !moved {
                break;
            }
        }
        half.note_events();
        done
    }
}

impl Half {
    fn note_events(&mut self) {
        while let Some(event) = self.client.event() {
            match event {
                ClientEvent::Ended { request, result } => {
                    self.ended.insert(request, result.map_err(ClientError::from));
                }
                ClientEvent::QueryEnded { correlation, result } => {
                    self.queries.insert(correlation, result.map_err(ClientError::Query));
                }
                ClientEvent::ServerRequest { request, payload } => self.notices.push_back((request, payload)),
                ClientEvent::Refused { reason } => self.refused = Some(reason),
                ClientEvent::Opened { .. } => self.refused = None,
                ClientEvent::Redirected { .. } | ClientEvent::Closed { .. } => {}
            }
        }
    }
}

impl<M: StateMachine + Send> Call for InMemoryClient<M> {
    async fn command(&self, payload: Bytes) -> Result<Response, ClientError> {
        let request = self
            .exchange(|client, now| client.submit(now, payload))
            .map_err(|error| ClientError::NotSent(error.to_string()))?;
        let mut half = lock(&self.client);
        match half.ended.remove(&request) {
            Some(result) => result,
            None => Err(self.unanswered(half.client.abandon(request), half.refused)),
        }
    }

    async fn query(&self, payload: Bytes) -> Result<Bytes, ClientError> {
        let correlation = self
            .exchange(|client, now| client.query(now, payload))
            .map_err(|error| ClientError::NotSent(error.to_string()))?;
        let mut half = lock(&self.client);
        half.client.abandon_query(correlation);
        match half.queries.remove(&correlation) {
            Some(result) => result,
            None => Err(self.unanswered(Execution::Never, half.refused)),
        }
    }
}

impl<M: StateMachine> InMemoryClient<M> {
    /// Why a call has no answer, where every message arrives at once: the session could not be opened, or the
    /// machine does not go on.
    fn unanswered(&self, execution: Execution, refused: Option<RefuseReason>) -> ClientError {
        if let (Execution::Never, Some(reason)) = (execution, refused) {
            return ClientError::Refused(reason);
        }
        let problem = lock(&self.server).broken.clone();
        let problem = problem.unwrap_or_else(|| "the machine does not answer".to_owned());
        match execution {
            Execution::Never => ClientError::NotSent(problem),
            Execution::Once | Execution::Unknown => ClientError::Transport(problem),
        }
    }
}

/// A panic while it was locked harmed nobody: user code runs guarded, and the rest is ours.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a future on this thread: for tests and examples that have no async runtime.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

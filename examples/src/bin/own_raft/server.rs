//! What an engine does: append, apply what is decided, and send what comes out. The consensus is the library's; the rest
//! of a real engine is a disk below it and a network around it.

use omnipaxos::messages::Message;
use omnipaxos::storage::{Entry as LogEntry, NoSnapshot};
use omnipaxos::util::LogEntry as Read;
use omnipaxos::{ClusterConfig, OmniPaxos, OmniPaxosConfig, ServerConfig};
use omnipaxos_storage::memory_storage::MemoryStorage;
use session_runtime::admission::{Admission, Admit};
use session_runtime::client::{ClientMessage, ServerMessage};
use session_runtime::{
    Alive, Bytes, Entry, RaftAction, RetryDriver, RetryPolicy, ServerAction, SessionId, SessionKey,
    SessionStateMachine, State, Timestamp, state_machine,
};
use std::collections::BTreeMap;
use std::error::Error;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// What clients may ask of the till.
#[state_machine]
pub(crate) enum TillCommand {
    Put { amount: u64 },
    Take { amount: u64 },
}

#[derive(Default, State)]
pub(crate) struct Till {
    coins: u64,
}

#[state_machine(command = TillCommand)]
impl Till {
    fn put(&mut self, amount: u64) -> u64 {
        self.coins = self.coins.saturating_add(amount);
        self.coins
    }

    fn take(&mut self, amount: u64) -> u64 {
        self.coins = self.coins.saturating_sub(amount);
        self.coins
    }
}

/// What the library's log holds: the bytes of an [`Entry`].
#[derive(Clone, Debug)]
pub(crate) struct Logged(Bytes);

impl LogEntry for Logged {
    type Snapshot = NoSnapshot;
}

pub(crate) struct Server {
    id: u64,
    node: OmniPaxos<Logged, MemoryStorage<Logged>>,
    machine: SessionStateMachine<Till>,
    /// The gate before the log.
    gate: Admission<SessionKey>,
    retries: RetryDriver,
    /// Which attempt of a client a session was drawn for.
    attempts: BTreeMap<SessionId, u64>,
    /// Who gave a sign of life since the last entry that said so.
    alive: BTreeMap<SessionId, Alive>,
    /// When this server began to lead, and the log's time at that moment.
    leading_since: Option<(Duration, Timestamp)>,
}

impl Server {
    pub(crate) fn new(id: u64, servers: &[u64]) -> Result<Self, Box<dyn Error>> {
        let config = OmniPaxosConfig {
            cluster_config: ClusterConfig {
                configuration_id: 1,
                nodes: servers.to_vec(),
                flexible_quorum: None,
            },
            server_config: ServerConfig {
                pid: id,
                election_tick_timeout: 10,
                resend_message_tick_timeout: 20,
                ..ServerConfig::default()
            },
        };
        Ok(Self {
            id,
            node: config.build(MemoryStorage::default())?,
            machine: SessionStateMachine::new(Till::default()),
            gate: Admission::new(),
            retries: RetryDriver::new(RetryPolicy::default()),
            attempts: BTreeMap::new(),
            alive: BTreeMap::new(),
            leading_since: None,
        })
    }

    pub(crate) fn machine(&self) -> &SessionStateMachine<Till> {
        &self.machine
    }

    pub(crate) fn till(&self) -> u64 {
        self.machine.machine().coins
    }

    /// The replica's memory is replaced by that of a snapshot; the log goes on behind it.
    pub(crate) fn start_from(&mut self, machine: SessionStateMachine<Till>) {
        self.machine = machine;
    }

    pub(crate) fn leads(&self) -> bool {
        self.node.get_current_leader() == Some((self.id, true))
    }

    /// The library's ballot, as a number that never falls.
    fn term(&self) -> u64 {
        let ballot = self.node.get_promise();
        (u64::from(ballot.n) << 32) | ballot.pid
    }

    pub(crate) fn take_messages(&mut self) -> Vec<Message<Logged>> {
        let mut messages = Vec::new();
        self.node.take_outgoing_messages(&mut messages);
        messages
    }

    pub(crate) fn receive(&mut self, message: Message<Logged>) {
        self.node.handle_incoming(message);
    }

    pub(crate) fn reconnected(&mut self, to: u64) {
        self.node.reconnected(to);
    }

    /// The log's time: that of the last entry as this server began to lead, and what has passed on its own clock since.
    /// A wall clock has no say in it.
    fn time(&self, now: Duration) -> Timestamp {
        let (since, base) = self.leading_since.unwrap_or((now, self.machine.time()));
        base.saturating_add(u64::try_from(now.saturating_sub(since).as_millis()).unwrap_or(u64::MAX))
    }

    /// What a leader does by itself: signs of life in one entry, a tick when a session is due, retries.
    pub(crate) fn tick(&mut self, now: Duration) {
        self.node.tick();
        if !self.leads() {
            self.leading_since = None;
            return;
        }
        self.leading_since.get_or_insert((now, self.machine.time()));
        let time = self.time(now);
        let retry = self.retries.poll(time, |before| self.machine.has_pending_requests(before));
        if !self.alive.is_empty() {
            let sessions = std::mem::take(&mut self.alive).into_values().collect();
            self.append(now, RaftAction::KeepAlive { sessions });
        } else if self.machine.expiry_due().is_some_and(|due| due <= time) {
            self.append(now, RaftAction::Tick);
        }
        if let Some(retry) = retry {
            self.append(now, retry);
        }
    }

    /// Appends, and returns the index that the entry has at this leader.
    fn append(&mut self, now: Duration, action: RaftAction) -> Option<u64> {
        let entry = Entry { time: self.time(now), action };
        self.node.append(Logged(entry.try_encode().ok()?)).ok()?;
        Some(self.node.get_accepted_idx() as u64)
    }

    /// Serves a client's message, and returns what can be answered at once.
    pub(crate) fn serve(&mut self, message: ClientMessage, now: Duration) -> Option<ServerMessage> {
        if !self.leads() {
            let leader = self.node.get_current_leader().map(|(leader, _)| leader.to_string());
            return Some(ServerMessage::Rejected { leader });
        }
        match message {
            ClientMessage::Create { attempt, capabilities } => {
                // The standard library's hash keys come from the operating system, so this is 64 random bits.
                let random = RandomState::new().build_hasher().finish();
                let session = SessionId::draw(self.machine.last_applied(), random);
                self.attempts.insert(session, attempt);
                self.append(now, RaftAction::SessionCreationConfirmed { session, capabilities });
            }
            // The `Closed` that its closing gave may be lost.
            ClientMessage::Continue { session }
            | ClientMessage::Ack { session, .. }
            | ClientMessage::KeepAlive { session, .. }
            | ClientMessage::Close { session }
                if !self.machine.is_open(session) =>
            {
                return Some(ServerMessage::Closed { session, reason: None });
            }
            ClientMessage::Continue { session } => return Some(ServerMessage::Continued { session }),
            ClientMessage::Request { session, request, lowest_pending, acked, payload } => {
                let key = SessionKey::new(session, request, &payload);
                let term = self.term();
                match self.gate.admit(term, &key, self.machine.answer_to(&key)) {
                    Admit::Answered(result) => {
                        self.alive.insert(session, Alive { session, lowest_pending, acked });
                        return Some(ServerMessage::answer(session, request, result));
                    }
                    Admit::InFlight { .. } => {}
                    Admit::Append => {
                        let action =
                            RaftAction::ClientRequest { session, request, lowest_pending, acked, payload };
                        if let Some(index) = self.append(now, action) {
                            self.gate.appended(key, term, index);
                        }
                    }
                }
            }
            ClientMessage::Query { correlation, payload } => {
                // A real engine first makes sure that it still leads; this one answers from what it has applied.
                let result = self.machine.query(&payload).map_err(|error| error.to_string());
                return Some(ServerMessage::QueryResponse { correlation, result });
            }
            ClientMessage::Ack { session, request } => {
                self.retries.acknowledged();
                self.append(now, RaftAction::ServerRequestAck { session, request });
            }
            ClientMessage::KeepAlive { session, lowest_pending, acked } => {
                self.alive.insert(session, Alive { session, lowest_pending, acked });
            }
            ClientMessage::Close { session } => {
                self.append(now, RaftAction::SessionExpired { session });
            }
        }
        None
    }

    /// Applies what was decided since, and returns what a leader sends to its clients.
    pub(crate) fn apply(&mut self) -> Result<Vec<ServerMessage>, Box<dyn Error>> {
        let from = usize::try_from(self.machine.last_applied())?;
        let mut messages = Vec::new();
        for logged in self.node.read_decided_suffix(from).unwrap_or_default() {
            let Read::Decided(Logged(bytes)) = logged else { continue };
            let index = self.machine.last_applied() + 1;
            let entry = Entry::decode(&bytes)?;
            let out = self.machine.apply(index, entry.time, entry.action)?;
            self.gate.applied(index);
            messages.extend(out.into_iter().filter_map(|action| self.message(action)));
        }
        if !self.leads() {
            messages.clear();
        }
        Ok(messages)
    }

    fn message(&mut self, action: ServerAction) -> Option<ServerMessage> {
        match action {
            ServerAction::SessionCreated { session } => {
                let attempt = self.attempts.remove(&session)?;
                Some(ServerMessage::Created { attempt, session })
            }
            ServerAction::SessionRefused { session, reason } => {
                let attempt = self.attempts.remove(&session)?;
                Some(ServerMessage::Refused { attempt, reason })
            }
            other => ServerMessage::from_action(other).map(|(_, message)| message),
        }
    }
}

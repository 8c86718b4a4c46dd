//! What the tasks of a node share: the machine, the leader's gate, the clients connected here, and the way into
//! the log.

use crate::clock::Clock;
use crate::config::Config;
use crate::error::{NodeError, Stopped};
use crate::gate::Gate;
use crate::half::{End, Ended, Half, tell};
use crate::metrics;
use crate::proposals::Proposals;
use crate::replica::SnapshotState;
use crate::store::Synced;
use crate::tasks::EngineTasks;
use crate::types::{Applied, Proposal, Told, TypeConfig, first_index};
use bytes::Bytes;
use openraft::Raft;
use openraft::error::{CheckIsLeaderError, ClientWriteError, Fatal, RaftError};
use session_runtime::admission::{Admit, is_never_valid};
use session_runtime::client::{ClientMessage, ServerMessage};
use session_runtime::{
    Alive, ApplyError, Entry, RaftAction, RequestError, RetryDriver, ServerAction, ServerRequestId,
    SessionId, SessionKey, SessionStateMachine, StateMachine,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, Hasher};
use std::iter;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::try_id;

/// Everything of a node that its tasks and clients share.
pub(crate) struct Service<M> {
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) gate: Arc<Gate>,
    pub(crate) proposals: Proposals,
    machine: RwLock<SessionStateMachine<M>>,
    /// Entries that the operators had skipped.
    skips: BTreeSet<u64>,
    clients: RwLock<HashMap<SessionId, Arc<Half>, BySession>>,
    /// Signs of life since the last entry that carried some.
    alive: Mutex<BTreeMap<SessionId, Alive>>,
    pub(crate) retries: Mutex<RetryDriver>,
    engine: OnceLock<Engine>,
    /// How the log fares.
    log: OnceLock<Synced>,
    stopped: watch::Sender<Option<Stopped>>,
    /// Whether entries are new here. Those that a start applies again were counted before.
    counts: AtomicBool,
    /// Whether there is a reason in `stopped`. Asked for at every call, and looking there would cost a lock.
    is_stopped: AtomicBool,
    pub(crate) snapshots: watch::Sender<SnapshotState>,
}

/// What comes of a place in the log, in buffers that are used again.
#[derive(Default)]
pub(crate) struct Out {
    actions: Vec<ServerAction>,
    ended: Vec<Ended>,
}

/// openraft, and the tasks that it was made of.
struct Engine {
    raft: Raft<TypeConfig>,
    tasks: Weak<EngineTasks>,
    /// Where it runs.
    runtime: Handle,
}

impl<M: StateMachine + Send + Sync + 'static> Service<M> {
    pub(crate) fn new(config: Config, machine: SessionStateMachine<M>, skips: BTreeSet<u64>) -> Self {
        metrics::counts(&machine);
        Self {
            clock: Clock::new(),
            gate: Arc::default(),
            proposals: Proposals::default(),
            machine: RwLock::new(machine),
            skips,
            clients: RwLock::default(),
            alive: Mutex::default(),
            retries: Mutex::new(RetryDriver::new(config.retry)),
            engine: OnceLock::new(),
            log: OnceLock::new(),
            stopped: watch::channel(None).0,
            is_stopped: AtomicBool::new(false),
            counts: AtomicBool::new(false),
            snapshots: watch::channel(SnapshotState::default()).0,
            config,
        }
    }

    pub(crate) fn machine(&self) -> RwLockReadGuard<'_, SessionStateMachine<M>> {
        self.machine.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the place of the machine, by a snapshot of the leader's.
    pub(crate) fn replace_machine(&self, machine: SessionStateMachine<M>) {
        *self.machine.write().unwrap_or_else(PoisonError::into_inner) = machine;
    }

    /// The engine, once it runs.
    pub(crate) fn connect(&self, raft: Raft<TypeConfig>, tasks: Weak<EngineTasks>) {
        self.engine.set(Engine { raft, tasks, runtime: Handle::current() }).ok();
    }

    pub(crate) fn raft(&self) -> Result<&Raft<TypeConfig>, NodeError> {
        if self.is_stopped.load(Ordering::Acquire)
            && let Some(stopped) = self.stopped()
        {
            return Err(NodeError::Stopped(stopped));
        }
        Ok(&self.engine()?.raft)
    }

    /// Runs a task where the engine runs, whoever asks for it, and for as long.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Result<(), NodeError> {
        self.engine()?.runtime.spawn(task);
        Ok(())
    }

    /// Waits for what may set timers. Whoever waits need not be in a runtime, and the node's own may end meanwhile: a task
    /// of it ends then, too, but not a thread that has only entered it.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, NodeError> {
        let runtime = &self.engine()?.runtime;
        if try_id().is_some() && Handle::try_current().is_ok_and(|here| here.id() == runtime.id()) {
            return Ok(work.await);
        }
        runtime.spawn(work).await.map_err(|_| self.fatal(Fatal::Stopped))
    }

    fn engine(&self) -> Result<&Engine, NodeError> {
        self.engine.get().ok_or(NodeError::NotLeader { leader: None })
    }

    /// The engine's tasks, as long as it runs.
    pub(crate) fn engine_tasks(&self) -> Option<Arc<EngineTasks>> {
        self.engine.get()?.tasks.upgrade()
    }

    /// The engine, to be stopped.
    pub(crate) fn raft_to_stop(&self) -> Option<Raft<TypeConfig>> {
        self.engine.get().map(|engine| engine.raft.clone())
    }

    /// The log as it was found is applied: what comes now is counted.
    pub(crate) fn count_from_here(&self) {
        self.counts.store(true, Ordering::Release);
    }

    fn counts(&self) -> bool {
        self.counts.load(Ordering::Acquire)
    }

    // Stopping.

    /// Why the node stopped, if it did.
    pub(crate) fn stopped(&self) -> Option<Stopped> {
        self.stopped.borrow().clone()
    }

    /// Waits until the node stops.
    pub(crate) async fn has_stopped(&self) -> Stopped {
        let mut stopped = self.stopped.subscribe();
        let reason = stopped.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        // The other end is here, and cannot be gone.
        reason.unwrap_or(Stopped::Shutdown)
    }

    /// The node stops, for the first reason there is: everybody who waits is told at once.
    pub(crate) fn stop(&self, reason: &Stopped) {
        let first = self.stopped.send_if_modified(|stopped| {
            let first = stopped.is_none();
            if first {
                *stopped = Some(reason.clone());
            }
            first
        });
        if first {
            self.is_stopped.store(true, Ordering::Release);
            self.proposals.wake();
            if *reason != Stopped::Shutdown {
                tracing::error!("{reason}");
            }
            let clients = std::mem::take(&mut *self.clients.write().unwrap_or_else(PoisonError::into_inner));
            for half in clients.into_values() {
                half.end(End::Stopped(reason.clone()));
            }
        }
    }

    /// Where to look for a reason when openraft stops.
    pub(crate) fn watch_log(&self, log: Synced) {
        self.log.set(log).ok();
    }

    /// Why the node stops, as far as the machine or the store knows.
    fn known_reason(&self) -> Option<Stopped> {
        let failed = || self.log.get().and_then(Synced::failed).map(Stopped::Store);
        self.stopped().or_else(failed)
    }

    /// Why the node stops if openraft says that it does; our own reason, if we have one, says more. Where the runtime
    /// ends, what openraft says is only how its tasks took that.
    pub(crate) fn reason(&self, problem: &impl ToString) -> Stopped {
        self.known_reason().unwrap_or_else(|| match self.engine.get() {
            Some(engine) if has_ended(&engine.runtime) => Stopped::Shutdown,
            _ => Stopped::Storage(problem.to_string()),
        })
    }

    /// What openraft said when it ended. It says nothing where one of its tasks panicked, or was dropped.
    fn last_words(&self) -> Option<Fatal<u64>> {
        let engine = self.engine.get()?;
        engine.raft.metrics().borrow().running_state.clone().err()
    }

    /// What a caller is told who finds that openraft has ended. The keeper tells everybody else, unless it ended, too.
    pub(crate) fn fatal(&self, error: Fatal<u64>) -> NodeError {
        NodeError::Stopped(match self.last_words().unwrap_or(error) {
            Fatal::Stopped => self.known_reason().unwrap_or(Stopped::Shutdown),
            error => self.reason(&error),
        })
    }

    /// The engine has ended, and nobody told it to.
    pub(crate) fn ended(&self) {
        self.stop(&self.reason(&self.last_words().unwrap_or(Fatal::Panicked)));
    }

    // Into the log.

    /// The bytes of an entry for the log.
    fn encode(&self, action: RaftAction) -> Result<Bytes, NodeError> {
        Entry { time: self.clock.now(), action }.try_encode().map_err(NodeError::Encode)
    }

    /// Gives the engine a proposal.
    ///
    /// openraft's future only hands the proposal over, and waits for nothing unless its task has ended.
    pub(crate) fn give(&self, proposal: Proposal) -> Result<Option<Told>, NodeError> {
        let asked = pin!(self.raft()?.client_write_ff(proposal));
        match asked.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(written) => written.map_err(|error| self.fatal(error)),
            Poll::Pending => Err(self.fatal(Fatal::Stopped)),
        }
    }

    /// Appends an action and waits until it is applied.
    pub(crate) async fn write(&self, action: RaftAction) -> Result<Applied, NodeError> {
        let told = match self.propose(self.encode(action)?)? {
            Some(told) => told.await.ok(),
            None => None,
        };
        Err(match told {
            Some(Ok(response)) => return Ok(response.data),
            Some(Err(ClientWriteError::ForwardToLeader(forward))) => {
                NodeError::NotLeader { leader: forward.leader_node.map(|node| node.addr) }
            }
            Some(Err(error)) => NodeError::Refused(error.to_string()),
            // The engine's task has ended, and says why elsewhere.
            None => self.fatal(Fatal::Stopped),
        })
    }

    /// Makes sure that the applied state holds all that was answered before now, anywhere.
    pub(crate) async fn read_index(&self) -> Result<(), NodeError> {
        let raft = self.raft()?.clone();
        match self.run(async move { raft.ensure_linearizable().await }).await? {
            Ok(_) => Ok(()),
            Err(RaftError::Fatal(error)) => Err(self.fatal(error)),
            Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(forward))) => {
                Err(NodeError::NotLeader { leader: forward.leader_node.map(|node| node.addr) })
            }
            Err(RaftError::APIError(CheckIsLeaderError::QuorumNotEnough(_))) => {
                Err(NodeError::NotLeader { leader: None })
            }
        }
    }

    // Serving clients.

    /// Serves a message of a client connected here. What it leads to reaches the client when it is applied.
    pub(crate) async fn serve(&self, half: &Arc<Half>, message: ClientMessage) -> Result<(), NodeError> {
        match message {
            ClientMessage::Create { attempt: _, capabilities } => {
                let random = random().map_err(NodeError::Refused)?;
                let session = SessionId::draw(self.machine().last_applied(), u64::from_le_bytes(random));
                // Known before it is applied, because the machine may send to it at once.
                self.register(session, half);
                let created =
                    self.write(RaftAction::SessionCreationConfirmed { session, capabilities }).await;
                if created.is_err() {
                    self.forget(session);
                }
                created?;
                if half.is_over() && half.session() != Some(session) {
                    // Its caller gave up meanwhile, and nobody will ever use it.
                    self.write(RaftAction::SessionExpired { session }).await?;
                }
            }
            ClientMessage::Continue { session } => {
                self.read_index().await?;
                let open = self.machine().is_open(session);
                half.receive(
                    self.clock.elapsed(),
                    if open {
                        self.register(session, half);
                        ServerMessage::Continued { session }
                    } else {
                        ServerMessage::Closed { session, reason: None }
                    },
                );
            }
            ClientMessage::Request { session, request, lowest_pending, acked, ref payload } => {
                let key = SessionKey::new(session, request, payload);
                let answered = self.machine().answer_to(&key);
                match self.gate.admit(&key, answered) {
                    Admit::Answered(result) => {
                        metrics::duplicate_at_gate();
                        self.note_alive(Alive { session, lowest_pending, acked });
                        half.receive(self.clock.elapsed(), ServerMessage::answer(session, request, result));
                    }
                    Admit::InFlight { .. } => {}
                    Admit::Append => self.append_request(half, message)?,
                }
            }
            // In one process a query needs no message.
            ClientMessage::Query { .. } => {}
            ClientMessage::Ack { session, request } => {
                lock(&self.retries).acknowledged();
                self.write(RaftAction::ServerRequestAck { session, request }).await?;
            }
            ClientMessage::KeepAlive { session, lowest_pending, acked } => {
                if self.machine().is_open(session) {
                    self.note_alive(Alive { session, lowest_pending, acked });
                } else {
                    half.receive(self.clock.elapsed(), ServerMessage::Closed { session, reason: None });
                }
            }
            ClientMessage::Close { session } => {
                self.write(RaftAction::SessionExpired { session }).await?;
                self.forget(session);
                half.receive(self.clock.elapsed(), ServerMessage::Closed { session, reason: None });
            }
        }
        Ok(())
    }

    /// Appends a request, unless no version of the machine can make it valid: then it is answered here.
    pub(crate) fn append_request(&self, half: &Half, message: ClientMessage) -> Result<(), NodeError> {
        let ClientMessage::Request { session, request, lowest_pending, acked, payload } = message else {
            return Ok(());
        };
        if is_never_valid::<M>(&payload) {
            let error = RequestError::InvalidPayload;
            metrics::action(&ServerAction::SendRequestError { session, request, error });
            half.receive(self.clock.elapsed(), ServerMessage::answer(session, request, Err(error)));
            return Ok(());
        }
        let action = RaftAction::ClientRequest { session, request, lowest_pending, acked, payload };
        self.share(self.encode(action)?)
    }

    fn note_alive(&self, alive: Alive) {
        if alive.acked > ServerRequestId(0) {
            lock(&self.retries).acknowledged();
        }
        lock(&self.alive).insert(alive.session, alive);
    }

    /// The signs of life gathered since the last time.
    pub(crate) fn take_alive(&self) -> Vec<Alive> {
        std::mem::take(&mut *lock(&self.alive)).into_values().collect()
    }

    /// Closes the sessions of the clients here that were not stored: nobody can go on with them.
    pub(crate) async fn close_sessions(&self) {
        let sessions: Vec<_> = {
            let clients = self.clients.read().unwrap_or_else(PoisonError::into_inner);
            let lost = clients.iter().filter(|(_, half)| !half.is_saved());
            lost.inspect(|(_, half)| half.shuts_down()).map(|(session, _)| *session).collect()
        };
        let close = |session| self.propose(self.encode(RaftAction::SessionExpired { session })?);
        let closing: Vec<_> = sessions.into_iter().map(close).collect();
        for told in closing.into_iter().flatten().flatten() {
            // Whatever stops the engine stops this.
            told.await.ok();
        }
    }

    fn register(&self, session: SessionId, half: &Arc<Half>) {
        let replaced = {
            let mut clients = self.clients.write().unwrap_or_else(PoisonError::into_inner);
            // One that was given up meanwhile must not take the place of another that goes on with the session.
            if half.is_over() { None } else { clients.insert(session, Arc::clone(half)) }
        };
        // Two with the same numbers would be told each other's answers.
        if let Some(replaced) = replaced.filter(|replaced| !Arc::ptr_eq(replaced, half)) {
            replaced.end(End::Replaced);
        }
    }

    pub(crate) fn forget(&self, session: SessionId) {
        self.clients.write().unwrap_or_else(PoisonError::into_inner).remove(&session);
    }

    /// As [`forget`](Self::forget), unless another client goes on with the session.
    pub(crate) fn disconnect(&self, session: SessionId, half: &Arc<Half>) {
        let mut clients = self.clients.write().unwrap_or_else(PoisonError::into_inner);
        if clients.get(&session).is_some_and(|known| Arc::ptr_eq(known, half)) {
            clients.remove(&session);
        }
    }

    // Out of the log.

    /// Applies the entries at a place of the log, and tells the clients connected here what comes of them.
    pub(crate) fn apply(&self, place: u64, proposal: &Proposal, out: &mut Out) -> Result<Applied, Stopped> {
        let mut applied = Ok(());
        let ended = {
            let mut machine = self.machine.write().unwrap_or_else(PoisonError::into_inner);
            // Behind the lock: waiting for somebody who looks at the machine is not the handler's time.
            let mut started = Instant::now();
            for entry in proposal.entries() {
                let index = first_index(machine.last_applied(), place);
                applied = self.apply_entry(&mut machine, index, entry, &mut out.actions);
                if applied.is_err() {
                    break;
                }
                let ended = Instant::now();
                self.note_time(index, entry, ended.saturating_duration_since(started));
                started = ended;
            }
            metrics::counts(&machine);
            started
        };
        // Before anybody is told: whoever hears `Busy` may send again at once.
        self.gate.applied(place);
        // What ran before an entry that stops the node is answered.
        let told = self.deliver(self.clock.at(ended), out);
        applied.map(|()| told)
    }

    fn apply_entry(
        &self,
        machine: &mut SessionStateMachine<M>,
        index: u64,
        entry: &[u8],
        out: &mut Vec<ServerAction>,
    ) -> Result<(), Stopped> {
        let _span = tracing::trace_span!("apply", index).entered();
        let Entry { time, action } = Entry::decode(entry).map_err(|problem| {
            if problem.needs_build() {
                Stopped::NeedsBuild { index, problem: problem.to_string() }
            } else {
                Stopped::Entry { index, problem }
            }
        })?;
        if self.counts() {
            metrics::duplicate_at_apply(machine, &action);
        }
        let applied = if self.skips.contains(&index) {
            let command = metrics::command::<M>(entry).unwrap_or("(no command)");
            tracing::warn!(
                index,
                command,
                "a log entry is skipped, as `Config::skip` told this start or an earlier one"
            );
            machine.skip(index, time, action).map(|mut skipped| out.append(&mut skipped))
        } else {
            machine.apply_into(index, time, action, out)
        };
        applied.map_err(|error| match error {
            ApplyError::Halted(halted) => Stopped::Halted(halted),
            error => Stopped::NeedsBuild { index, problem: error.to_string() },
        })
    }

    fn note_time(&self, index: u64, entry: &[u8], took: Duration) {
        if self.counts() {
            metrics::applied::<M>(entry, took);
        }
        if took > self.config.slow_handler {
            let command = metrics::command::<M>(entry).unwrap_or("(no command)");
            tracing::warn!(index, command, ?took, "a handler takes long: every client waits for it");
        }
    }

    fn deliver(&self, now: Duration, out: &mut Out) -> Applied {
        for action in out.actions.iter().filter(|_| self.counts()) {
            metrics::action(action);
        }
        let mut applied = Applied::Done;
        let mut closed = Vec::new();
        let changed = self.hand_over(now, out, |action| match action {
            ServerAction::InternalResponse { result } => applied = Applied::Internal(result.clone()),
            ServerAction::SessionClosed { session, .. } | ServerAction::SessionRefused { session, .. } => {
                closed.push(*session);
            }
            _ => {}
        });
        // Nothing is locked here: whoever is woken may do anything.
        tell(&mut out.ended);
        for half in changed {
            half.has_changed();
        }
        for session in closed {
            self.forget(session);
        }
        applied
    }

    /// Hands the actions to the clients that are here, and gives those of whom somebody waits for a change.
    fn hand_over(
        &self,
        now: Duration,
        Out { actions, ended }: &mut Out,
        mut note: impl FnMut(&ServerAction),
    ) -> Vec<Arc<Half>> {
        let mut changed = Vec::new();
        let clients = self.clients.read().unwrap_or_else(PoisonError::into_inner);
        let mut actions = actions.drain(..).inspect(|action| note(action)).peekable();
        while let Some(session) = actions.peek().map(ServerAction::session) {
            // What comes in a row for one client is taken in a row.
            let mut of_one = iter::from_fn(|| actions.next_if(|action| action.session() == session));
            let Some(half) = session.and_then(|session| clients.get(&session)) else {
                of_one.by_ref().for_each(drop);
                continue;
            };
            let mut receiving = half.receiving(now);
            for action in of_one {
                match action {
                    ServerAction::SessionCreated { session } => receiving.created(session, ended),
                    ServerAction::SessionRefused { reason, .. } => receiving.refused(reason, ended),
                    action => {
                        if let Some((_, message)) = ServerMessage::from_action(action) {
                            receiving.message(message, ended);
                        }
                    }
                }
            }
            if receiving.end() {
                changed.push(Arc::clone(half));
            }
        }
        changed
    }
}

/// Whether a runtime ends, or has ended: it drops at once what it is given then.
fn has_ended(runtime: &Handle) -> bool {
    let probe = runtime.spawn(std::future::pending::<()>());
    let dropped = probe.is_finished();
    probe.abort();
    dropped
}

/// Half of an id is random already, so that half is its hash.
#[derive(Clone, Copy, Default)]
struct BySession;

impl BuildHasher for BySession {
    type Hasher = RandomHalf;

    fn build_hasher(&self) -> RandomHalf {
        RandomHalf(0)
    }
}

struct RandomHalf(u64);

impl Hasher for RandomHalf {
    fn write(&mut self, bytes: &[u8]) {
        for (place, byte) in bytes.iter().enumerate() {
            self.0 ^= u64::from(*byte) << (place % 8 * 8);
        }
    }

    fn write_u128(&mut self, id: u128) {
        #[allow(clippy::cast_possible_truncation)] // the low half is the random one
        let random = id as u64;
        self.0 = random;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The operating system's randomness.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(error) => Err(format!("the operating system gives no random numbers: {error}")),
    }
}

/// A panic while it was locked harmed nobody: user code runs guarded, and the rest is ours.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

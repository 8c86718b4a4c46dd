//! A node: the machine, its log and its clients, in one process.

use crate::bell::{self, Bell, Listener};
use crate::client::NodeClient;
use crate::config::Config;
use crate::error::{NodeError, OpenError, Stopped};
use crate::half::Half;
use crate::keeper;
use crate::network::Alone;
use crate::proposals;
use crate::replica::{Position, Replica, SnapshotState};
use crate::service::{Service, random};
use crate::store::{Disk, LogStore, Store};
use crate::tasks;
use crate::types::{Applied, TypeConfig, first_index};
use openraft::storage::RaftLogStorage;
use openraft::{BasicNode, EntryPayload, LogIdOptionExt, Raft, RaftLogReader, ServerState, SnapshotPolicy};
use session_runtime::client::{ClientConfig, ClientError};
use session_runtime::{
    Command, Limits, RaftAction, Response, SessionStateMachine, Snapshot, StateMachine, Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The one voter.
const ME: u64 = 1;

/// How soon a snapshot is asked for once more.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// A replicated machine in this process, with a durable log: one voter, which leads.
///
/// Whatever a client is told was applied is on disk before it is told so.
///
/// ```
/// use session_openraft::Node;
/// use session_runtime::{State, state_machine};
///
/// #[state_machine]
/// pub enum CounterCommand {
///     Add { amount: u64 },
/// }
///
/// #[derive(Default, State)]
/// pub struct Counter {
///     value: u64,
/// }
///
/// #[state_machine(command = CounterCommand)]
/// impl Counter {
///     fn add(&mut self, amount: u64) -> u64 {
///         self.value = self.value.saturating_add(amount);
///         self.value
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let dir = dir.path().join("data");
/// let node = Node::<Counter>::open(&dir).await?;
/// let counter = CounterClient::new(node.client().await?);
/// assert_eq!(counter.add(5).await?, 5);
/// node.shutdown().await;
///
/// // The next process goes on where this one stopped.
/// let node = Node::<Counter>::open(&dir).await?;
/// let counter = CounterClient::new(node.client().await?);
/// assert_eq!(counter.add(2).await?, 7);
/// # Ok(())
/// # }
/// ```
pub struct Node<M: StateMachine + Send + Sync + 'static> {
    service: Arc<Service<M>>,
    /// Alive for as long as any part of the engine has the directory open.
    directory: Option<Weak<dyn Disk>>,
    /// Where it was opened, and is stopped if it is dropped elsewhere.
    runtime: tokio::runtime::Handle,
}

/// How a node is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The machine's name.
    pub machine: &'static str,
    /// The machine's replicated version.
    pub version: u32,
    /// The highest version this build knows.
    pub build: u32,
    /// The last entry applied.
    pub last_applied: u64,
    /// The log's time.
    pub time: Timestamp,
    /// How many sessions are open; 0 if the machine halted, whose state is not shown.
    pub sessions: usize,
    /// The limits in force.
    pub limits: Limits,
    /// The leader's term; 0 if the node stopped.
    pub term: u64,
    /// Whether this node leads.
    pub leads: bool,
    /// The last entry that the snapshot on disk covers.
    pub snapshot: u64,
    /// Why the last snapshot could not be taken, if so. The log is kept until one can.
    pub snapshot_problem: Option<String>,
    /// Why the node stopped, if it did.
    pub stopped: Option<Stopped>,
}

impl<M: StateMachine + Default + Send + Sync + 'static> Node<M> {
    /// Opens the node of a directory, which is made if it does not exist.
    ///
    /// It runs in the tokio runtime that it is opened in, and ends with it. Who calls it, or a client of it, may be in
    /// any runtime or in none.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, and in one without timers and I/O: its builder has to be told `enable_all`.
    pub async fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(Config::new(dir.as_ref())).await
    }

    /// Opens a node that behaves as told, and waits until it has applied its whole log. Runs, and panics, where
    /// [`open`](Self::open) does.
    #[tracing::instrument(name = "open", skip_all, fields(machine = M::SCHEMA.name, dir = ?config.dir))]
    pub async fn open_with(config: Config) -> Result<Self, OpenError> {
        // Here, because without timers tasks would panic one by one, and the rest would go on.
        drop(tokio::time::sleep(Duration::ZERO));
        let bell = bell::bell().ok();
        let mut store = match config.dir.clone() {
            // Opening reads and checks the whole log: not on a thread that others wait for.
            Some(dir) => tokio::task::spawn_blocking(move || Store::<TypeConfig>::open(dir))
                .await
                .map_err(|panic| stopped(&panic))??,
            None => Store::in_memory(),
        };
        let (machine, snapshot) = restore::<M>(&config, &store)?;
        store.belongs_to(M::SCHEMA.name).await?;
        let position = Position::of(&snapshot).map_err(|error| stopped(&error))?;
        let skips = check_skips(&config, &mut store, &snapshot, &position).await?;
        let service = Arc::new(Service::new(config, machine, skips));
        service.snapshots.send_modify(|state| state.index = snapshot.meta().index);

        let directory = store.snapshots.directory();
        let gate = Arc::clone(&service.gate);
        let (log, synced) = store.log.on_append(Arc::new(move |entry| gate.appended(entry))).for_one_voter();
        service.watch_log(synced.clone());
        let replica = Replica::new(Arc::clone(&service), store.snapshots, synced, position, snapshot);
        // Whoever gives up from here on drops it, which shuts it down.
        let node = Self { service, directory, runtime: tokio::runtime::Handle::current() };
        if let Err(error) = begin(&node.service, bell, log, replica).await {
            node.shutdown().await;
            return Err(error);
        }
        Ok(node)
    }
}

impl<M: StateMachine + Send + Sync + 'static> Node<M> {
    /// A client with a session of its own. [`ClientError::Refused`] if the limits leave no room for one.
    pub async fn client(&self) -> Result<NodeClient<M>, ClientError> {
        self.client_with(ClientConfig::default()).await
    }

    /// A client with a session of its own that behaves as told.
    pub async fn client_with(&self, config: ClientConfig) -> Result<NodeClient<M>, ClientError> {
        let half = Half::open(config, self.service.clock.elapsed());
        NodeClient::connect(Arc::clone(&self.service), half).await
    }

    /// A client that goes on with the session of stored bytes: those of [`NodeClient::save`], or those that
    /// [`NodeClient::saving`] stored last. One process at a time may go on with a session; a client of this node that
    /// still has it ends here.
    ///
    /// A session that is over cannot be resumed: [`ClientError::SessionExpired`], and what was under way in it is
    /// unknown for ever. It waits for as long as the limits' idle timeout says. Server requests that were delivered
    /// after the bytes were stored are delivered again.
    pub async fn resume(&self, saved: &[u8]) -> Result<NodeClient<M>, ClientError> {
        self.resume_with(saved, ClientConfig::default()).await
    }

    /// As [`resume`](Self::resume), for a client that behaves as told.
    pub async fn resume_with(
        &self,
        saved: &[u8],
        config: ClientConfig,
    ) -> Result<NodeClient<M>, ClientError> {
        let half = Half::restore(saved, config, self.service.clock.elapsed())?;
        NodeClient::connect(Arc::clone(&self.service), half).await
    }

    /// Runs a command of the service itself, `#[internal]` ones included: no session, so no exactly-once; after an
    /// error it may or may not have run.
    #[tracing::instrument(level = "debug", skip_all, fields(command = command.name()))]
    pub async fn internal(&self, command: &M::Command) -> Result<Response, NodeError> {
        let payload = command.try_encode().map_err(NodeError::Encode)?;
        match self.service.write(RaftAction::InternalCommand { payload }).await? {
            Applied::Internal(result) => result.map_err(NodeError::Request),
            Applied::Done => Err(NodeError::Request(session_runtime::RequestError::InvalidPayload)),
        }
    }

    /// Raises the machine's version, so that what is new in it becomes active at one log position.
    #[tracing::instrument(skip(self))]
    pub async fn upgrade(&self, version: u32) -> Result<(), NodeError> {
        let build = M::SCHEMA.version;
        if version > build {
            return Err(NodeError::UnknownVersion { version, build });
        }
        self.service.write(RaftAction::Upgrade { version }).await.map(|_| ())
    }

    /// Replaces all limits, from one log position on. To change one, begin with those of [`status`](Self::status).
    #[tracing::instrument(skip(self))]
    pub async fn configure(&self, limits: Limits) -> Result<(), NodeError> {
        self.service.write(RaftAction::Configure { limits, seed: None }).await.map(|_| ())
    }

    /// Takes a snapshot that covers all that is applied now, and returns the last entry it covers.
    #[tracing::instrument(skip(self))]
    pub async fn snapshot(&self) -> Result<u64, NodeError> {
        let service = Arc::clone(&self.service);
        self.service.run(async move { take_snapshot(&service).await }).await?
    }

    /// How the node is doing.
    pub fn status(&self) -> Status {
        let machine = self.service.machine();
        let snapshots = self.service.snapshots.borrow().clone();
        let (term, leads) = self.service.raft().map_or((0, false), |raft| {
            let metrics = raft.metrics();
            let metrics = metrics.borrow();
            (metrics.current_term, metrics.state == ServerState::Leader)
        });
        Status {
            machine: M::SCHEMA.name,
            version: machine.version(),
            build: M::SCHEMA.version,
            last_applied: machine.last_applied(),
            time: machine.time(),
            sessions: machine.session_count(),
            limits: machine.limits().clone(),
            term,
            leads,
            snapshot: snapshots.index,
            snapshot_problem: snapshots.problem,
            stopped: self.service.stopped(),
        }
    }

    /// Waits until the node stops, and says why.
    pub async fn stopped(&self) -> Stopped {
        self.service.has_stopped().await
    }

    /// Looks at the wrapped machine as it is applied now. Entries wait while it looks, and so may the thread of a caller,
    /// so it must not wait for either: a call made in `look` would never end, and nor may [`status`](Self::status).
    pub fn inspect<T>(&self, look: impl FnOnce(&SessionStateMachine<M>) -> T) -> T {
        look(&self.service.machine())
    }

    /// Stops the node. What was answered is on disk; calls under way end with an error. Clients that were not stored
    /// lose their sessions, because nobody can go on with them. When this returns, the directory can be opened again.
    /// Once it was polled it is done, also if nobody waits for the end of it.
    ///
    /// A node that is dropped is shut down, too, but later: its directory cannot be opened at once.
    pub async fn shutdown(&self) {
        // If it is not done the runtime has ended, and the node with it.
        self.shut_down().await.ok();
        if let Some(directory) = self.directory.clone() {
            released(directory).await;
        }
    }

    /// In a task, which goes on if whoever waits for it gives up.
    fn shut_down(&self) -> JoinHandle<()> {
        let service = Arc::clone(&self.service);
        self.runtime.spawn(async move {
            let raft = service.raft_to_stop();
            service.close_sessions().await;
            service.stop(&Stopped::Shutdown);
            if let Some(raft) = raft {
                raft.shutdown().await.ok();
            }
        })
    }
}

impl<M: StateMachine + Send + Sync + 'static> Drop for Node<M> {
    fn drop(&mut self) {
        if self.service.stopped().is_none() {
            self.shut_down();
        }
    }
}

async fn take_snapshot<M: StateMachine + Send + Sync + 'static>(
    service: &Service<M>,
) -> Result<u64, NodeError> {
    let mut snapshots = service.snapshots.subscribe();
    let applied = service.machine().last_applied();
    let before = snapshots.borrow_and_update().tried;
    let covers =
        |state: &SnapshotState| state.tried != before && (state.problem.is_some() || state.index >= applied);
    loop {
        // openraft takes one at a time, and does not hear this while it is at one that began before.
        let asked = service.raft()?.trigger().snapshot().await;
        asked.map_err(|error| service.fatal(error))?;
        tokio::select! {
            state = snapshots.wait_for(covers) => return match state {
                Ok(state) => state.problem.clone().map_or(Ok(state.index), |problem| Err(NodeError::Snapshot(problem))),
                Err(_) => Err(NodeError::Stopped(Stopped::Shutdown)),
            },
            reason = service.has_stopped() => return Err(NodeError::Stopped(reason)),
            () = tokio::time::sleep(ASK_AGAIN) => {}
        }
    }
}

/// Waits until the directory can be opened again: openraft says that it has stopped before its last tasks have let go of
/// the store. On a thread, because the runtime may be gone already, and its timers with it.
async fn released(directory: Weak<dyn Disk>) {
    let (tell, told) = oneshot::channel();
    std::thread::spawn(move || {
        while directory.strong_count() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        tell.send(())
    });
    told.await.ok();
}

/// The machine of the directory's snapshot. A new directory gets one of the machine's beginning, so that the
/// next start finds out whether it is the same machine, and begins with the same state.
fn restore<M: StateMachine + Default>(
    config: &Config,
    store: &Store<TypeConfig>,
) -> Result<(SessionStateMachine<M>, Snapshot), OpenError> {
    let wrong = |problem| {
        let dir = config.dir.clone().unwrap_or_else(|| PathBuf::from("(memory)"));
        OpenError::Machine { dir, problem }
    };
    if let Some(snapshot) = store.snapshots.load()? {
        let machine = SessionStateMachine::restore(&snapshot).map_err(wrong)?;
        return Ok((machine, snapshot));
    }
    let machine = SessionStateMachine::new(M::default());
    let snapshot = machine.snapshot().map_err(|error| stopped(&error))?;
    store.snapshots.save(0, &snapshot)?;
    Ok((machine, snapshot))
}

/// The entries to skip: those of earlier starts and those asked for now, each of which must be in the log.
async fn check_skips(
    config: &Config,
    store: &mut Store<TypeConfig>,
    snapshot: &Snapshot,
    position: &Position,
) -> Result<BTreeSet<u64>, OpenError> {
    if !config.skip.is_empty() {
        let snapshot = snapshot.meta().index;
        let last = last_index(store, snapshot, position.last.next_index()).await?;
        for &index in &config.skip {
            if position.last.is_some() && index <= snapshot {
                return Err(OpenError::SkipTooLate { index, snapshot });
            }
            if index > last {
                return Err(OpenError::SkipTooEarly { index, last });
            }
        }
    }
    let mut skips = store.log.skips();
    skips.extend(&config.skip);
    Ok(skips)
}

/// The index that the machine gives the last entry of the log.
async fn last_index(
    store: &mut Store<TypeConfig>,
    snapshot: u64,
    first_place: u64,
) -> Result<u64, OpenError> {
    let entries = store.log.try_get_log_entries(first_place..).await.map_err(|error| stopped(&error))?;
    Ok(entries.iter().fold(snapshot, |last, entry| match &entry.payload {
        EntryPayload::Normal(proposal) => {
            proposal.entries().fold(last, |last, _| first_index(last, entry.log_id.index))
        }
        // These are the engine's own. They have a place, and no entry of the machine.
        EntryPayload::Blank | EntryPayload::Membership(_) => last,
    }))
}

/// Starts the engine, and keeps what is skipped once that has helped. Nobody was answered before.
async fn begin<M: StateMachine + Send + Sync + 'static>(
    service: &Arc<Service<M>>,
    bell: Option<(Arc<Bell>, Listener)>,
    log: LogStore<TypeConfig>,
    replica: Replica<M>,
) -> Result<(), OpenError> {
    start(service, bell, log.clone(), replica).await?;
    let skip = &service.config.skip;
    if skip.is_empty() { Ok(()) } else { Ok(log.add_skips(skip.iter().copied()).await?) }
}

/// Starts openraft, and waits until this node leads and has applied its log.
async fn start<M: StateMachine + Send + Sync + 'static>(
    service: &Arc<Service<M>>,
    bell: Option<(Arc<Bell>, Listener)>,
    mut log: LogStore<TypeConfig>,
    replica: Replica<M>,
) -> Result<(), OpenError> {
    let config = openraft::Config {
        cluster_name: M::SCHEMA.name.to_owned(),
        // A voter that is alone has nobody to wait for.
        election_timeout_min: 100,
        election_timeout_max: 200,
        heartbeat_interval: 50,
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: 0,
        ..openraft::Config::default()
    };
    let config = Arc::new(config.validate().map_err(|error| stopped(&error))?);
    let last = log.get_log_state().await.map_err(|error| stopped(&error))?.last_log_id;
    let (raft, tasks) = tasks::make(bell, Raft::new(ME, config, Alone, log.clone(), replica)).await;
    let raft = raft.map_err(|error| fatal(service, &error))?;
    service.connect(raft.clone(), tasks);
    if last.is_none() {
        let voters = BTreeMap::from([(ME, BasicNode::default())]);
        raft.initialize(voters).await.map_err(|error| fatal(service, &error))?;
    } else {
        raft.trigger().elect().await.map_err(|error| fatal(service, &error))?;
    }
    let wait = raft.wait(None);
    let led = wait.metrics(
        |metrics| {
            metrics.state == ServerState::Leader
                && metrics.last_applied.index() >= metrics.last_log_index
                && metrics.last_applied.index() >= last.index()
        },
        "the log is applied",
    );
    tokio::select! {
        led = led => { led.map_err(|error| fatal(service, &error))?; }
        reason = service.has_stopped() => return Err(reason.into()),
    }
    service.clock.lead_from(service.machine().time());
    service.count_from_here();
    let ends = keeper::EndsWithRuntime(Arc::clone(service));
    tokio::spawn(keeper::keep(ends, log, raft.server_metrics()));
    tokio::spawn(proposals::keep(Arc::clone(service)));
    if service.machine().last_applied() == 0 {
        // A log that begins, or began and came no further: the first entry sets the limits and the seed.
        let limits = service.config.limits.clone();
        let seed = random().map_err(|problem| stopped(&problem))?;
        let configure = RaftAction::Configure { limits, seed: Some(seed) };
        service.write(configure).await.map_err(|error| fatal(service, &error))?;
    }
    Ok(())
}

fn stopped(problem: &impl ToString) -> OpenError {
    OpenError::Stopped(Stopped::Storage(problem.to_string()))
}

/// The machine's own reason says more than openraft's.
fn fatal<M: StateMachine + Send + Sync + 'static>(
    service: &Service<M>,
    problem: &impl ToString,
) -> OpenError {
    service.reason(problem).into()
}

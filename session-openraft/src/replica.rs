//! The machine as openraft drives it: entries in, snapshots out.

use crate::error::Stopped;
use crate::metrics;
use crate::service::{Out, Service, lock};
use crate::store::{SnapshotStore, Synced};
use crate::tasks;
use crate::types::{Applied, TypeConfig};
use openraft::storage::{RaftStateMachine, Snapshot};
use openraft::{
    AnyError, Entry, EntryPayload, LogId, OptionalSend, RaftSnapshotBuilder, SnapshotMeta, StorageError,
    StorageIOError, StoredMembership,
};
use serde::{Deserialize, Serialize};
use session_runtime::{ApplyError, SessionStateMachine, StateMachine, codec};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// What openraft must find again beside the machine: it goes with every snapshot, as the engine's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Position {
    /// The last entry applied, of any kind: the machine counts only its own.
    pub(crate) last: Option<LogId<u64>>,
    pub(crate) membership: StoredMembership<u64, openraft::BasicNode>,
}

impl Position {
    /// The position of a snapshot: the beginning, if it was taken there.
    pub(crate) fn of(snapshot: &session_runtime::Snapshot) -> Result<Self, codec::DecodeError> {
        let configuration = &snapshot.meta().configuration;
        if configuration.is_empty() { Ok(Self::default()) } else { codec::decode_state(configuration) }
    }

    fn meta(&self) -> SnapshotMeta<u64, openraft::BasicNode> {
        let snapshot_id = self.last.map_or_else(|| "beginning".to_owned(), |last| last.to_string());
        SnapshotMeta { last_log_id: self.last, last_membership: self.membership.clone(), snapshot_id }
    }
}

/// One replica of the machine.
pub(crate) struct Replica<M> {
    service: Arc<Service<M>>,
    position: Position,
    snapshots: SnapshotStore,
    synced: Synced,
    /// The snapshot in place: there is one from the beginning.
    current: Arc<Mutex<Taken>>,
    out: Out,
}

#[derive(Clone)]
struct Taken {
    position: Position,
    snapshot: session_runtime::Snapshot,
}

impl Taken {
    fn into_openraft(self) -> Snapshot<TypeConfig> {
        Snapshot { meta: self.position.meta(), snapshot: Box::new(self.snapshot) }
    }
}

type Failure = StorageError<u64>;

impl<M: StateMachine + Send + Sync + 'static> Replica<M> {
    /// The replica of a snapshot, whose machine the service has restored.
    pub(crate) fn new(
        service: Arc<Service<M>>,
        snapshots: SnapshotStore,
        synced: Synced,
        position: Position,
        snapshot: session_runtime::Snapshot,
    ) -> Self {
        let current = Arc::new(Mutex::new(Taken { position: position.clone(), snapshot }));
        Self { service, position, snapshots, synced, current, out: Out::default() }
    }

    fn apply_one(&mut self, entry: Entry<TypeConfig>) -> Result<Applied, Stopped> {
        let log_id = entry.log_id;
        let applied = match entry.payload {
            EntryPayload::Blank => Applied::Done,
            EntryPayload::Membership(membership) => {
                self.position.membership = StoredMembership::new(Some(log_id), membership);
                Applied::Done
            }
            EntryPayload::Normal(proposal) => self.service.apply(log_id.index, &proposal, &mut self.out)?,
        };
        self.position.last = Some(log_id);
        Ok(applied)
    }
}

impl<M: StateMachine + Send + Sync + 'static> RaftStateMachine<TypeConfig> for Replica<M> {
    type SnapshotBuilder = Builder;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogId<u64>>, StoredMembership<u64, openraft::BasicNode>), Failure> {
        Ok((self.position.last, self.position.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Applied>, Failure>
    where
        I: IntoIterator<Item = Entry<TypeConfig>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        tasks::turn().await;
        let entries: Vec<_> = entries.into_iter().collect();
        let mut results = Vec::with_capacity(entries.len());
        if let Some(last) = entries.last() {
            // Nothing is applied, and so nothing answered, that a power cut could take back.
            self.synced.reached(last.log_id.index).await.map_err(|error| {
                self.service.stop(&Stopped::Store(error.clone()));
                Failure::from(StorageIOError::write_logs(AnyError::new(&error)))
            })?;
        }
        for entry in entries {
            let log_id = entry.log_id;
            match self.apply_one(entry) {
                Ok(applied) => results.push(applied),
                Err(stopped) => {
                    let error = AnyError::new(&stopped);
                    // First, so that everybody who waits learns the reason, not only that openraft stopped.
                    self.service.stop(&stopped);
                    return Err(StorageIOError::apply(log_id, error).into());
                }
            }
        }
        Ok(results)
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        let started = Instant::now();
        let captured = self.service.machine().snapshot();
        metrics::snapshot_pause(started.elapsed());
        let position = self.position.clone();
        let captured = captured.and_then(|snapshot| {
            let term = position.last.map_or(0, |last| last.leader_id.term);
            let configuration = codec::encode_state(&position).map_err(|error| ApplyError::State {
                field: "(the engine's position)".to_owned(),
                problem: error.to_string(),
            })?;
            Ok(Taken { position, snapshot: snapshot.with_engine(term, configuration) })
        });
        Builder {
            captured: captured.map_err(|error| error.to_string()),
            snapshots: self.snapshots.clone(),
            current: Arc::clone(&self.current),
            state: self.service.snapshots.clone(),
        }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<session_runtime::Snapshot>, Failure> {
        // Whatever arrives takes its place.
        self.service.machine().snapshot().map(Box::new).map_err(|error| read_failed(&error))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<u64, openraft::BasicNode>,
        snapshot: Box<session_runtime::Snapshot>,
    ) -> Result<(), Failure> {
        let machine = SessionStateMachine::restore(&snapshot).map_err(|error| read_failed(&error))?;
        let position = Position { last: meta.last_log_id, membership: meta.last_membership.clone() };
        let index = meta.last_log_id.map_or(0, |last| last.index);
        self.snapshots.save(index, &snapshot).map_err(|error| write_failed(&error))?;
        self.service.replace_machine(machine);
        self.position = position.clone();
        *lock(&self.current) = Taken { position, snapshot: *snapshot };
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<TypeConfig>>, Failure> {
        let current = lock(&self.current).clone();
        Ok(current.position.last.is_some().then(|| current.into_openraft()))
    }
}

fn read_failed(error: &(impl std::error::Error + 'static)) -> Failure {
    StorageIOError::read_state_machine(AnyError::new(error)).into()
}

fn write_failed(error: &(impl std::error::Error + 'static)) -> Failure {
    StorageIOError::write_snapshot(None, AnyError::new(error)).into()
}

/// A captured state that is being encoded and written, while the machine goes on.
pub(crate) struct Builder {
    captured: Result<Taken, String>,
    snapshots: SnapshotStore,
    current: Arc<Mutex<Taken>>,
    state: tokio::sync::watch::Sender<SnapshotState>,
}

/// How the last snapshot went.
#[derive(Clone, Debug, Default)]
pub(crate) struct SnapshotState {
    /// How many were tried.
    pub(crate) tried: u64,
    /// The last entry of the machine that a snapshot on disk covers.
    pub(crate) index: u64,
    /// What went wrong with the last one.
    pub(crate) problem: Option<String>,
}

impl RaftSnapshotBuilder<TypeConfig> for Builder {
    async fn build_snapshot(&mut self) -> Result<Snapshot<TypeConfig>, Failure> {
        let written = self.write().await;
        self.state.send_modify(|state| {
            state.tried = state.tried.wrapping_add(1);
            match &written {
                Ok(taken) => {
                    state.index = taken.snapshot.meta().index;
                    state.problem = None;
                }
                Err(problem) => {
                    tracing::error!("no snapshot was taken, and the log is kept: {problem}");
                    state.problem = Some(problem.clone());
                }
            }
        });
        // Without a new one the old one stands, and nothing of the log is thrown away.
        let mut current = lock(&self.current);
        if let Ok(taken) = written {
            *current = taken;
        }
        Ok(current.clone().into_openraft())
    }
}

impl Builder {
    async fn write(&mut self) -> Result<Taken, String> {
        let taken = self.captured.clone()?;
        let (snapshots, snapshot) = (self.snapshots.clone(), taken.snapshot.clone());
        let index = taken.position.last.map_or(0, |last| last.index);
        let started = Instant::now();
        let saved = tokio::task::spawn_blocking(move || snapshots.save(index, &snapshot)).await;
        let bytes = match saved {
            Ok(saved) => saved.map_err(|error| error.to_string())?,
            Err(panic) if panic.is_panic() => return Err(panic.to_string()),
            // The runtime ends, and this task with it.
            Err(_) => std::future::pending().await,
        };
        metrics::snapshot_written(bytes, started.elapsed());
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::{Failure, Position, Replica};
    use crate::config::Config;
    use crate::counter::Counter;
    use crate::service::Service;
    use crate::store::{LogStore, Store};
    use crate::types::TypeConfig;
    use openraft::testing::{StoreBuilder, Suite};
    use session_runtime::SessionStateMachine;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    /// Makes new stores for openraft's own suite, in directories or in memory.
    struct Builder {
        on_disk: bool,
    }

    impl StoreBuilder<TypeConfig, LogStore<TypeConfig>, Replica<Counter>, Option<tempfile::TempDir>> for Builder {
        async fn build(
            &self,
        ) -> Result<(Option<tempfile::TempDir>, LogStore<TypeConfig>, Replica<Counter>), Failure> {
            let dir = self.on_disk.then(|| tempfile::tempdir().unwrap());
            let store = dir.as_ref().map_or_else(Store::in_memory, |dir| Store::open(dir).unwrap());
            let machine = SessionStateMachine::new(Counter::default());
            let snapshot = machine.snapshot().unwrap();
            let service = Arc::new(Service::new(Config::in_memory(), machine, BTreeSet::new()));
            // The suite applies what it never appended, so there is no sync to wait for.
            let (_, synced) = Store::<TypeConfig>::in_memory().log.for_one_voter();
            let replica = Replica::new(service, store.snapshots, synced, Position::default(), snapshot);
            Ok((dir, store.log, replica))
        }
    }

    #[test]
    fn the_adapter_passes_openrafts_suite_on_disk() {
        Suite::test_all(Builder { on_disk: true }).unwrap();
    }

    #[test]
    fn the_adapter_passes_openrafts_suite_in_memory() {
        Suite::test_all(Builder { on_disk: false }).unwrap();
    }
}

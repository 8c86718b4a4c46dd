//! openraft's own tests of a store, on ours.

mod common;

use common::{Place, snapshot};
use openraft::storage::RaftStateMachine;
use openraft::testing::{StoreBuilder, Suite};
use openraft::{
    BasicNode, Entry, EntryPayload, LogId, OptionalSend, RaftSnapshotBuilder, SnapshotMeta, StorageError,
    StorageIOError, StoredMembership,
};
use session_openraft::store::{LogStore, SnapshotStore, Store, StoreError};
use session_openraft::{Applied, TypeConfig};
use session_runtime::{Snapshot, codec};

/// Each case gets a store of its own, which is there until the case ends.
struct OnDisk;

impl StoreBuilder<TypeConfig, LogStore<TypeConfig>, Blank, Place> for OnDisk {
    async fn build(&self) -> Result<(Place, LogStore<TypeConfig>, Blank), StorageError<u64>> {
        let dir = Place::new("suite");
        let store = Store::open(&dir).expect("an empty directory");
        Ok((dir, store.log, Blank::new(store.snapshots)))
    }
}

struct InMemory;

impl StoreBuilder<TypeConfig, LogStore<TypeConfig>, Blank> for InMemory {
    async fn build(&self) -> Result<((), LogStore<TypeConfig>, Blank), StorageError<u64>> {
        let store = Store::in_memory();
        Ok(((), store.log, Blank::new(store.snapshots)))
    }
}

#[test]
fn all_of_openrafts_suite_on_disk() {
    Suite::test_all(OnDisk).expect("the suite");
}

#[test]
fn all_of_openrafts_suite_in_memory() {
    Suite::test_all(InMemory).expect("the suite");
}

/// A state machine that applies nothing, and keeps its snapshots in the store.
struct Blank {
    applied: Position,
    snapshots: SnapshotStore,
}

/// What goes with a snapshot.
type Position = (Option<LogId<u64>>, StoredMembership<u64, BasicNode>);

impl Blank {
    fn new(snapshots: SnapshotStore) -> Self {
        Self { applied: Position::default(), snapshots }
    }
}

fn failed(error: &StoreError) -> StorageError<u64> {
    StorageIOError::write_snapshot(None, error).into()
}

fn meta((last, membership): &Position) -> SnapshotMeta<u64, BasicNode> {
    SnapshotMeta {
        last_log_id: *last,
        last_membership: membership.clone(),
        snapshot_id: last.map(|id| id.to_string()).unwrap_or_default(),
    }
}

impl RaftSnapshotBuilder<TypeConfig> for Blank {
    async fn build_snapshot(&mut self) -> Result<openraft::Snapshot<TypeConfig>, StorageError<u64>> {
        let (index, term) = self.applied.0.map_or((0, 0), |id| (id.index, id.leader_id.term));
        let configuration = codec::encode(&self.applied).expect("an encoding");
        let snapshot = snapshot(10).with_engine(term, configuration);
        self.snapshots.save(index, &snapshot).map_err(|error| failed(&error))?;
        Ok(openraft::Snapshot { meta: meta(&self.applied), snapshot: Box::new(snapshot) })
    }
}

impl RaftStateMachine<TypeConfig> for Blank {
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<Position, StorageError<u64>> {
        Ok(self.applied.clone())
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Applied>, StorageError<u64>>
    where
        I: IntoIterator<Item = Entry<TypeConfig>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let each = entries.into_iter().map(|entry| {
            self.applied.0 = Some(entry.log_id);
            if let EntryPayload::Membership(membership) = entry.payload {
                self.applied.1 = StoredMembership::new(Some(entry.log_id), membership);
            }
            Applied::Done
        });
        Ok(each.collect())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        Self { applied: self.applied.clone(), snapshots: self.snapshots.clone() }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Snapshot>, StorageError<u64>> {
        Ok(Box::new(snapshot(0)))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<u64, BasicNode>,
        snapshot: Box<Snapshot>,
    ) -> Result<(), StorageError<u64>> {
        let index = meta.last_log_id.map_or(0, |id| id.index);
        self.snapshots.save(index, &snapshot).map_err(|error| failed(&error))?;
        self.applied = (meta.last_log_id, meta.last_membership.clone());
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<openraft::Snapshot<TypeConfig>>, StorageError<u64>> {
        let Some(snapshot) = self.snapshots.load().map_err(|error| failed(&error))? else { return Ok(None) };
        let position = codec::decode(&snapshot.meta().configuration).expect("what was encoded");
        Ok(Some(openraft::Snapshot { meta: meta(&position), snapshot: Box::new(snapshot) }))
    }
}

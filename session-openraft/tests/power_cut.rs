//! The power goes at every step of a run: whatever was acknowledged is there afterwards, in order, without a gap.

mod common;

use bytes::Bytes;
use common::disk::{Fault, Survives, TestDisk};
use common::snapshot;
use openraft::storage::{RaftLogStorage, RaftLogStorageExt};
use openraft::{CommittedLeaderId, Entry, EntryPayload, LogId, RaftLogReader, Vote};
use session_openraft::TypeConfig;
use session_openraft::store::{Store, StoreError};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

type Log = session_openraft::store::LogStore<TypeConfig>;

/// What a store holds, as far as it was ever promised.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Held {
    vote: Option<Vote<u64>>,
    purged: Option<LogId<u64>>,
    entries: Vec<(LogId<u64>, Vec<u8>)>,
    snapshot: Option<(u64, u64)>,
    skips: BTreeSet<u64>,
    label: Option<Bytes>,
}

/// What was asked of a store: what it should hold after each thing asked, and how much of it was acknowledged.
struct Asked {
    states: Vec<Held>,
    acknowledged: usize,
}

fn id(term: u64, index: u64) -> LogId<u64> {
    LogId::new(CommittedLeaderId::new(term, 1), index)
}

fn entry(term: u64, index: u64, size: usize) -> Entry<TypeConfig> {
    let content = Bytes::from(vec![index.to_le_bytes()[0]; size]);
    Entry { log_id: id(term, index), payload: EntryPayload::Normal(content.into()) }
}

fn content(entry: &Entry<TypeConfig>) -> (LogId<u64>, Vec<u8>) {
    let bytes = match &entry.payload {
        EntryPayload::Normal(proposal) => proposal.as_ref().to_vec(),
        _ => Vec::new(),
    };
    (entry.log_id, bytes)
}

impl Asked {
    fn new() -> Self {
        Self { states: vec![Held::default()], acknowledged: 0 }
    }

    /// Something more is asked for.
    fn ask(&mut self, change: impl FnOnce(&mut Held)) {
        let mut held = self.states.last().expect("never empty").clone();
        change(&mut held);
        self.states.push(held);
    }

    fn acknowledge(&mut self) {
        self.acknowledged = self.states.len() - 1;
    }

    /// Whether a store may hold this: all that was acknowledged, and more only of what was asked for, in order.
    fn allows(&self, held: &Held) -> bool {
        self.states[self.acknowledged..].contains(held)
    }
}

/// Everything a store does, until it fails.
async fn run(disk: &TestDisk, asked: &mut Asked) -> Result<(), Box<dyn std::error::Error>> {
    let store = Store::<TypeConfig>::open_on(Arc::new(disk.clone()))?;
    let mut log = store.log.clone();
    save(&store.snapshots, asked, 0, 0, 10)?;
    asked.ask(|held| held.label = Some(Bytes::from_static(b"a machine")));
    store.belongs_to("a machine").await?;
    asked.acknowledge();
    vote(&mut log, asked, Vote::new(1, 1)).await?;
    append(&mut log, asked, 1, 0..1).await?;
    log.save_committed(Some(id(1, 0))).await?;
    append(&mut log, asked, 1, 1..4).await?;
    // Three at once, which may share a sync.
    for index in 4..7 {
        asked.ask(|held| held.entries.push(content(&entry(1, index, 40))));
    }
    let (mut one, mut two, mut three) = (log.clone(), log.clone(), log.clone());
    let together = tokio::join!(
        one.blocking_append([entry(1, 4, 40)]),
        two.blocking_append([entry(1, 5, 40)]),
        three.blocking_append([entry(1, 6, 40)])
    );
    drop((one, two, three));
    together.0.and(together.1).and(together.2)?;
    asked.acknowledge();
    save(&store.snapshots, asked, 3, 1, 10)?;
    purge(&mut log, asked, id(1, 2)).await?;
    vote(&mut log, asked, Vote::new(2, 1)).await?;
    asked.ask(|held| held.entries.retain(|(id, _)| id.index < 5));
    log.truncate(id(1, 5)).await?;
    asked.acknowledge();
    append(&mut log, asked, 2, 5..9).await?;
    log.save_committed(Some(id(2, 8))).await?;
    asked.ask(|held| held.skips = BTreeSet::from([7, 9]));
    log.add_skips([7, 9]).await?;
    asked.acknowledge();
    save(&store.snapshots, asked, 8, 2, 20_000)?;
    asked.ask(|held| held.skips = BTreeSet::from([9]));
    log.drop_skips_through(8).await?;
    asked.acknowledge();
    purge(&mut log, asked, id(2, 8)).await?;
    append(&mut log, asked, 2, 9..11).await?;
    // As after a snapshot from another node: far ahead of the log.
    save(&store.snapshots, asked, 20, 2, 10)?;
    purge(&mut log, asked, id(2, 20)).await?;
    append(&mut log, asked, 2, 21..23).await?;
    Ok(())
}

async fn vote(log: &mut Log, asked: &mut Asked, vote: Vote<u64>) -> Result<(), Box<dyn std::error::Error>> {
    asked.ask(|held| held.vote = Some(vote));
    log.save_vote(&vote).await?;
    asked.acknowledge();
    Ok(())
}

async fn append(
    log: &mut Log,
    asked: &mut Asked,
    term: u64,
    indices: std::ops::Range<u64>,
) -> Result<(), Box<dyn std::error::Error>> {
    // Sizes from nothing to more than a page.
    let entries: Vec<_> = indices.map(|index| entry(term, index, at(index) * 700)).collect();
    asked.ask(|held| held.entries.extend(entries.iter().map(content)));
    log.blocking_append(entries).await?;
    asked.acknowledge();
    Ok(())
}

fn at(index: u64) -> usize {
    usize::try_from(index).expect("a small index")
}

async fn purge(log: &mut Log, asked: &mut Asked, last: LogId<u64>) -> Result<(), Box<dyn std::error::Error>> {
    asked.ask(|held| {
        held.purged = Some(last);
        held.entries.retain(|(id, _)| id.index > last.index);
    });
    log.purge(last).await?;
    asked.acknowledge();
    Ok(())
}

fn save(
    snapshots: &session_openraft::store::SnapshotStore,
    asked: &mut Asked,
    index: u64,
    term: u64,
    size: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    asked.ask(|held| held.snapshot = Some((index, term)));
    snapshots.save(index, &snapshot(size).with_engine(term, Bytes::new()))?;
    asked.acknowledge();
    Ok(())
}

/// What a store holds now. Opening it must work, whatever happened.
async fn read(disk: &TestDisk) -> Result<Held, StoreError> {
    let mut store = Store::<TypeConfig>::open_on(Arc::new(disk.clone()))?;
    let log = &mut store.log;
    let entries = log.try_get_log_entries(..).await.expect("entries");
    let state = log.get_log_state().await.expect("a state");
    let last = entries.last().map(|entry| entry.log_id).or(state.last_purged_log_id);
    assert_eq!(state.last_log_id, last);
    assert!(log.read_committed().await.expect("no failure") <= last, "nothing lost counts as committed");
    let snapshot = store.snapshots.load()?.map(|snapshot| {
        snapshot.dictionary().expect("a whole snapshot");
        (store.snapshots.index().expect("its index"), snapshot.meta().term)
    });
    Ok(Held {
        vote: log.read_vote().await.expect("no failure"),
        purged: state.last_purged_log_id,
        entries: entries.iter().map(content).collect(),
        snapshot,
        skips: log.skips(),
        label: log.label(),
    })
}

/// The store goes on from what it holds.
async fn goes_on(disk: &TestDisk, before: &Held) {
    let mut store = Store::<TypeConfig>::open_on(Arc::new(disk.clone())).expect("a store");
    let next = store.log.get_log_state().await.expect("a state").last_log_id.map_or(0, |id| id.index + 1);
    store.log.blocking_append([entry(7, next, 10)]).await.expect("an append");
    drop(store);
    let mut expected = before.clone();
    expected.entries.push(content(&entry(7, next, 10)));
    assert_eq!(read(&disk.after_cut(Survives::Nothing)).await.expect("a store"), expected);
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

/// What may survive a cut at a step: the two ends, and a few by chance.
fn survivals(step: u64) -> [Survives; 6] {
    let seed = step * 100;
    [
        Survives::Nothing,
        Survives::Everything,
        Survives::Beginning(seed),
        Survives::Beginning(seed + 10),
        Survives::Some(seed + 20),
        Survives::Some(seed + 30),
    ]
}

#[test]
fn a_power_cut_at_any_step_takes_nothing_back() {
    let mut cuts = 0;
    let mut lost_something = false;
    for step in 0.. {
        let disk = TestDisk::new();
        disk.fault(step, Fault::Cut);
        let mut asked = Asked::new();
        let result = block_on(run(&disk, &mut asked));
        if !disk.had_fault() {
            result.expect("a run without a cut");
            let found = disk.after_cut(Survives::Nothing);
            assert_eq!(block_on(read(&found)).expect("a store"), asked.states[asked.states.len() - 1]);
            break;
        }
        for survives in survivals(step) {
            let found = disk.after_cut(survives);
            let held =
                block_on(read(&found)).unwrap_or_else(|error| panic!("step {step}, {survives:?}: {error}"));
            assert!(
                asked.allows(&held),
                "step {step}, {survives:?}: {held:#?}, and {:#?} was acknowledged",
                asked.states[asked.acknowledged]
            );
            lost_something |= held != asked.states[asked.states.len() - 1];
            block_on(goes_on(&found, &held));
            cuts += 1;
        }
    }
    println!("{cuts} cuts");
    assert!(cuts > 500, "only {cuts} cuts: the run writes less than it should");
    assert!(lost_something, "a cut that loses nothing unsynced is none");
}

#[test]
fn a_power_cut_while_a_store_is_opened_again_takes_nothing_back() {
    for step in (0..).step_by(23) {
        let disk = TestDisk::new();
        disk.fault(step, Fault::Cut);
        let mut asked = Asked::new();
        let _ = block_on(run(&disk, &mut asked));
        if !disk.had_fault() {
            break;
        }
        for survives in survivals(step) {
            for second in 0.. {
                let found = disk.after_cut(survives);
                found.fault(second, Fault::Cut);
                let _ = block_on(read(&found));
                if !found.had_fault() {
                    break;
                }
                let again = found.after_cut(survivals(second)[at(second) % 6]);
                let held =
                    block_on(read(&again)).unwrap_or_else(|error| panic!("steps {step}, {second}: {error}"));
                assert!(asked.allows(&held), "steps {step} and {second}, {survives:?}");
            }
        }
    }
}

#[test]
fn an_error_at_any_step_stops_the_store_and_takes_nothing_back() {
    for kind in [io::ErrorKind::Other, io::ErrorKind::StorageFull] {
        for step in 0.. {
            let disk = TestDisk::new();
            disk.fault(step, Fault::Fails(kind));
            let mut asked = Asked::new();
            let result = block_on(run(&disk, &mut asked));
            if !disk.had_fault() {
                break;
            }
            let held = block_on(read(&disk)).unwrap_or_else(|error| panic!("step {step}: {error}"));
            assert!(asked.allows(&held), "step {step}: {held:#?}");
            let Err(error) = result else { continue }; // Only what may fail was hit: the removal of an old snapshot.
            if kind == io::ErrorKind::StorageFull {
                assert!(error.to_string().contains("the disk is full"), "step {step}: {error}");
            }
        }
    }
}

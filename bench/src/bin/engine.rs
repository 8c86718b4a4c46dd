//! What sessions cost on the engine, as ratios to bare openraft on the same store in the same run.
//!
//! `cargo run --release -p session-bench --bin engine`
//!
//! `engine profile memory 1 256 1000000` (or `disk`) does nothing but so many calls by 256 callers with 1 client, or
//! with 0 those of bare openraft, for a profiler to look at.

use bytes::Bytes;
use cpu_time::ProcessTime;
use openraft::storage::{RaftLogStorageExt, RaftStateMachine, Snapshot};
use openraft::{
    BasicNode, Entry, EntryPayload, LogId, OptionalSend, Raft, RaftSnapshotBuilder, SnapshotMeta,
    SnapshotPolicy, StorageError, StorageIOError, StoredMembership,
};
use serde::{Deserialize, Serialize};
use session_bench::{Counter, CounterClient, CounterCommand};
use session_openraft::store::{Store, Synced};
use session_openraft::{Alone, Config, Node};
use session_runtime::{Command, RaftAction, RequestId, ServerRequestId, SessionId, Timestamp, codec};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

// Bare openraft: the same command and the same store, and no sessions.

openraft::declare_raft_types!(
    Bare:
        D = Raw,
        R = Raw,
        NodeId = u64,
        Node = BasicNode,
        Entry = Entry<Bare>,
        SnapshotData = (),
        AsyncRuntime = openraft::TokioRuntime,
);

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Raw(Bytes);

impl From<Bytes> for Raw {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl AsRef<[u8]> for Raw {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

struct BareCounter {
    counter: Counter,
    last: Option<LogId<u64>>,
    membership: StoredMembership<u64, BasicNode>,
    synced: Synced,
}

struct NoSnapshots;

impl RaftSnapshotBuilder<Bare> for NoSnapshots {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Bare>, StorageError<u64>> {
        unreachable!("the policy takes none")
    }
}

impl RaftStateMachine<Bare> for BareCounter {
    type SnapshotBuilder = NoSnapshots;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogId<u64>>, StoredMembership<u64, BasicNode>), StorageError<u64>> {
        Ok((self.last, self.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Raw>, StorageError<u64>>
    where
        I: IntoIterator<Item = Entry<Bare>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<_> = entries.into_iter().collect();
        if let Some(last) = entries.last() {
            let synced = self.synced.reached(last.log_id.index).await;
            synced.map_err(|error| StorageIOError::write_logs(openraft::AnyError::new(&error)))?;
        }
        let mut replies = Vec::with_capacity(entries.len());
        for entry in entries {
            self.last = Some(entry.log_id);
            replies.push(match entry.payload {
                EntryPayload::Blank => Raw(Bytes::new()),
                EntryPayload::Membership(membership) => {
                    self.membership = StoredMembership::new(Some(entry.log_id), membership);
                    Raw(Bytes::new())
                }
                EntryPayload::Normal(Raw(payload)) => {
                    let CounterCommand::Add { amount } = CounterCommand::decode(&payload).expect("a command");
                    Raw(codec::encode(&self.counter.add(amount)).expect("a number"))
                }
            });
        }
        Ok(replies)
    }

    async fn get_snapshot_builder(&mut self) -> NoSnapshots {
        NoSnapshots
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<()>, StorageError<u64>> {
        Ok(Box::new(()))
    }

    async fn install_snapshot(
        &mut self,
        _meta: &SnapshotMeta<u64, BasicNode>,
        _snapshot: Box<()>,
    ) -> Result<(), StorageError<u64>> {
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Bare>>, StorageError<u64>> {
        Ok(None)
    }
}

async fn bare(store: Store<Bare>) -> Raft<Bare> {
    let config = openraft::Config {
        election_timeout_min: 100,
        election_timeout_max: 200,
        heartbeat_interval: 50,
        snapshot_policy: SnapshotPolicy::Never,
        ..openraft::Config::default()
    };
    let (log, synced) = store.log.for_one_voter();
    let machine = BareCounter {
        counter: Counter::default(),
        last: None,
        membership: StoredMembership::default(),
        synced,
    };
    let raft = Raft::new(1, Arc::new(config), Alone, log, machine).await.expect("a raft");
    raft.initialize(BTreeMap::from([(1, BasicNode::default())])).await.expect("one voter");
    raft.wait(None).current_leader(1, "it leads").await.expect("a leader");
    raft
}

/// What calls took.
#[derive(Clone, Copy)]
struct Took {
    /// Seconds a call.
    time: f64,
    /// Seconds of the processor a call, of all threads together.
    processor: f64,
}

impl Took {
    fn rate(self) -> f64 {
        1.0 / self.time
    }
}

/// What a call took, with so many calls made in all, by one caller for each of `calls` at once.
async fn throughput<C, F>(callers: Vec<C>, calls: u32) -> Took
where
    C: Fn() -> F + Send + 'static,
    F: Future<Output = ()> + Send,
{
    let each = calls / u32::try_from(callers.len()).expect("a few callers");
    let made = each * u32::try_from(callers.len()).expect("a few callers");
    let (started, processor) = (Instant::now(), ProcessTime::now());
    let tasks: Vec<_> = callers
        .into_iter()
        .map(|call| {
            tokio::spawn(async move {
                for _ in 0..each {
                    call().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a caller");
    }
    let of_one = |time: Duration| time.as_secs_f64() / f64::from(made);
    Took { time: of_one(started.elapsed()), processor: of_one(processor.elapsed()) }
}

/// Calls of bare openraft.
async fn of_bare(dir: Option<&Path>, callers: usize, calls: u32) -> Took {
    let store = dir.map_or_else(Store::in_memory, |dir| Store::open(dir.join("bare")).expect("a store"));
    let raft = bare(store).await;
    let call = || {
        let raft = raft.clone();
        move || {
            let raft = raft.clone();
            async move {
                let payload = CounterCommand::Add { amount: 1 }.encode();
                let response = raft.client_write(Raw(payload)).await.expect("a response");
                let _: u64 = codec::decode(&response.data.0).expect("a number");
            }
        }
    };
    let took = throughput((0..callers).map(|_| call()).collect(), calls).await;
    raft.shutdown().await.ok();
    took
}

/// Calls of ours, by callers with a client each or with one for all.
async fn of_ours(dir: Option<&Path>, clients: usize, callers: usize, calls: u32) -> Took {
    let dir = dir.map(|dir| dir.join(format!("ours-{clients}")));
    let config = Config { snapshot_every: u64::MAX, dir, ..Config::in_memory() };
    let node = Node::<Counter>::open_with(config).await.expect("a node");
    let mut open = Vec::new();
    for _ in 0..clients {
        open.push(Arc::new(node.client().await.expect("a client")));
    }
    let call = |caller: usize| {
        let client = Arc::clone(&open[caller % clients]);
        move || {
            let client = Arc::clone(&client);
            async move {
                CounterClient::new(&*client).add(1).await.expect("a response");
            }
        }
    };
    let took = throughput((0..callers).map(call).collect(), calls).await;
    node.shutdown().await;
    took
}

/// Seconds for each append of an entry of `bytes` bytes to the store alone, synced.
async fn store_alone(dir: &Path, appends: u32, bytes: usize) -> f64 {
    let mut log = Store::<Bare>::open(dir).expect("a store").log;
    let payload = Bytes::from(vec![7; bytes]);
    let started = Instant::now();
    for index in 0..appends {
        let log_id = LogId::new(openraft::CommittedLeaderId::new(1, 1), u64::from(index));
        let entry = Entry { log_id, payload: EntryPayload::Normal(Raw(payload.clone())) };
        log.blocking_append([entry]).await.expect("an append");
    }
    started.elapsed().as_secs_f64() / f64::from(appends)
}

/// The bytes of an entry that carries a command of a session.
fn entry_bytes() -> usize {
    let action = RaftAction::ClientRequest {
        session: SessionId::draw(1, u64::MAX),
        request: RequestId(1_000),
        lowest_pending: RequestId(1_000),
        acked: ServerRequestId(0),
        payload: CounterCommand::Add { amount: 1 }.encode(),
    };
    session_runtime::Entry { time: Timestamp(10_000), action }.encode().len()
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// A single caller's rounds are short, and threads that are woken make them differ.
fn rounds(callers: usize) -> u32 {
    if callers == 1 { 21 } else { 7 }
}

/// Prints both with so many callers. On a disk, returns for each round the seconds of a call of ours, with a client for
/// each caller, and of an append to the store alone.
async fn compare(name: &str, dir: Option<&Path>, callers: usize, calls: u32) -> Vec<(f64, f64)> {
    let (mut bare, mut each, mut one, mut alone) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds(callers) {
        let dir = dir.map(|dir| dir.join(format!("{callers}-{round}")));
        // In turns, because a disk remembers what was done to it just before.
        for turn in 0..3 {
            match ((round + turn) % 3, &dir) {
                (0, _) => bare.push(of_bare(dir.as_deref(), callers, calls).await),
                (1, _) => {
                    each.push(of_ours(dir.as_deref(), callers, callers, calls).await);
                    if callers > 1 {
                        one.push(of_ours(dir.as_deref(), 1, callers, calls).await);
                    }
                }
                (_, Some(dir)) => alone.push(store_alone(&dir.join("alone"), 1_000, entry_bytes()).await),
                (_, None) => {}
            }
        }
    }
    let of = |all: &[Took], part: fn(Took) -> f64| median(all.iter().map(|took| part(*took)).collect());
    let micros = |all: &[Took]| of(all, |took| took.processor) * 1e6;
    for (who, ours) in [("a client each", &each), ("one client", &one)] {
        if !ours.is_empty() {
            let (their_rate, our_rate) = (of(&bare, Took::rate), of(ours, Took::rate));
            let ratio =
                median(ours.iter().zip(&bare).map(|(ours, bare)| ours.rate() / bare.rate()).collect());
            println!(
                "{name:<8} {callers:>7} {who:<14} {their_rate:>12.0} {our_rate:>12.0} {ratio:>8.2} {:>12.2} {:>8.2}",
                micros(&bare),
                micros(ours)
            );
        }
    }
    each.into_iter().map(|took| took.time).zip(alone).collect()
}

#[tokio::main]
async fn main() {
    let dir = tempfile::tempdir().expect("a directory");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [profile, store, clients, callers, calls] = &arguments[..]
        && profile == "profile"
    {
        let dir = (store == "disk").then_some(dir.path());
        let number = |word: &str| word.parse::<u32>().expect("a number");
        let (clients, callers) = (number(clients) as usize, number(callers) as usize);
        let took = match clients {
            0 => of_bare(dir, callers, number(calls)).await,
            _ => of_ours(dir, clients, callers, number(calls)).await,
        };
        println!("{:.0} calls/s, {:.2} µs of the processor a call", took.rate(), took.processor * 1e6);
        return;
    }
    println!(
        "calls a second of both, and the ratio, at least 0.90 wanted; and microseconds of the processor a call:"
    );
    println!(
        "{:<8} {:>7} {:<14} {:>12} {:>12} {:>8} {:>12} {:>8}",
        "store", "callers", "", "bare calls/s", "ours", "ratio", "bare, µs", "ours"
    );
    for (callers, calls) in [(1, 20_000), (64, 60_000), (256, 60_000)] {
        compare("memory", None, callers, calls).await;
    }
    let mut ours = Vec::new();
    for (callers, calls) in [(1, 1_000), (64, 20_000), (256, 40_000)] {
        ours.push((callers, compare("disk", Some(dir.path()), callers, calls).await));
    }
    println!();
    println!(
        "microseconds a call on the disk, and times an append of its {} bytes to the store alone, with its sync:",
        entry_bytes()
    );
    for (callers, rounds) in ours {
        let (call, append): (Vec<f64>, Vec<f64>) = rounds.iter().copied().unzip();
        let ratio = median(rounds.iter().map(|(call, append)| call / append).collect());
        let (call, append) = (median(call) * 1e6, median(append) * 1e6);
        let wanted = if callers == 1 { ", at most 1.20 wanted" } else { "" };
        println!("{callers:>7} at once {call:>8.0} {append:>8.0} {ratio:>8.2}{wanted}");
    }
}

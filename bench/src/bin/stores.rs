//! Which store the log should be in: appending and syncing entries of 100 bytes, one or many to a sync.
//!
//! The floor is a plain file, written and synced: no store that keeps its word can be faster. Every store makes
//! the same promise here: when the append returns, a power cut takes nothing back. The stores take turns, so
//! that a busy machine is busy for all of them, and the tenth percentile counts.
//!
//! `cargo run --release -p session-bench --bin stores [directory]`

use fjall::{KeyspaceCreateOptions, PersistMode};
use raft_log::api::raft_log_writer::RaftLogWriter;
use redb::backends::FileBackend;
use redb::{StorageBackend, TableDefinition};
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

const ENTRY: usize = 100;
const ROUNDS: usize = 12;
/// Appends in a round, for each size of batch.
const BATCHES: [(u64, u64); 3] = [(1, 200), (64, 50), (256, 25)];

type Failure = Box<dyn Error>;

/// Appends entries from an index on, and returns when they are durable.
trait Appends {
    fn append(&mut self, first: u64, count: u64) -> Result<(), Failure>;
}

fn content(index: u64) -> Vec<u8> {
    let mut bytes = vec![0xa5; ENTRY];
    bytes[..8].copy_from_slice(&index.to_le_bytes());
    bytes
}

/// The floor.
struct Plain(File);

impl Appends for Plain {
    fn append(&mut self, first: u64, count: u64) -> Result<(), Failure> {
        let bytes: Vec<u8> = (first..first + count).flat_map(content).collect();
        self.0.write_all(&bytes)?;
        self.0.sync_data()?;
        Ok(())
    }
}

struct Redb(redb::Database);

const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("entries");

impl Appends for Redb {
    fn append(&mut self, first: u64, count: u64) -> Result<(), Failure> {
        let writing = self.0.begin_write()?;
        {
            let mut table = writing.open_table(TABLE)?;
            for index in first..first + count {
                table.insert(index, &*content(index))?;
            }
        }
        writing.commit()?;
        Ok(())
    }
}

struct Fjall(fjall::Database, fjall::Keyspace);

impl Appends for Fjall {
    fn append(&mut self, first: u64, count: u64) -> Result<(), Failure> {
        let mut batch = self.0.batch().durability(Some(PersistMode::SyncData));
        for index in first..first + count {
            batch.insert(&self.1, index.to_be_bytes().to_vec(), content(index));
        }
        batch.commit()?;
        Ok(())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Types;

impl raft_log::Types for Types {
    type LogId = (u64, u64);
    type LogPayload = Vec<u8>;
    type Vote = (u64, u64);
    type Callback = SyncSender<std::io::Result<()>>;
    type UserData = String;

    fn log_index(log_id: &Self::LogId) -> u64 {
        log_id.1
    }

    fn payload_size(payload: &Self::LogPayload) -> u64 {
        payload.len() as u64
    }
}

struct RaftLog(raft_log::RaftLog<Types>);

impl Appends for RaftLog {
    fn append(&mut self, first: u64, count: u64) -> Result<(), Failure> {
        self.0.append((first..first + count).map(|index| ((1, index), content(index))))?;
        let (done, flushed) = sync_channel(1);
        self.0.flush(true, Some(done))?;
        flushed.recv()??;
        Ok(())
    }
}

fn raft_log(dir: &Path) -> Result<RaftLog, Failure> {
    std::fs::create_dir_all(dir)?;
    let mut config = raft_log::Config::new(dir.display());
    // By default it waits a millisecond for more to come.
    config.wal.flush_batch_wait = Some(Duration::ZERO);
    Ok(RaftLog(raft_log::RaftLog::open(Arc::new(config))?))
}

struct Contender {
    name: &'static str,
    store: Box<dyn Appends>,
    next: u64,
    times: [Vec<Duration>; BATCHES.len()],
}

impl Contender {
    fn new(name: &'static str, store: impl Appends + 'static) -> Self {
        Self { name, store: Box::new(store), next: 0, times: Default::default() }
    }

    fn round(&mut self) -> Result<(), Failure> {
        for (times, (count, appends)) in self.times.iter_mut().zip(BATCHES) {
            for _ in 0..appends {
                let started = Instant::now();
                self.store.append(self.next, count)?;
                times.push(started.elapsed());
                self.next += count;
            }
        }
        Ok(())
    }

    /// The time that nine of ten appends take at least: what the store needs, with little of what others do.
    fn figures(&mut self) -> [Duration; BATCHES.len()] {
        self.times.each_mut().map(|times| {
            times.sort_unstable();
            times[times.len() / 10]
        })
    }
}

fn contenders(dir: &Path) -> Result<Vec<Contender>, Failure> {
    let fjall = fjall::Database::builder(dir.join("fjall")).open()?;
    let keyspace = fjall.keyspace("entries", KeyspaceCreateOptions::default)?;
    Ok(vec![
        Contender::new("a plain file", Plain(File::create(dir.join("plain"))?)),
        Contender::new("redb", Redb(redb::Database::create(dir.join("redb"))?)),
        Contender::new("fjall", Fjall(fjall, keyspace)),
        Contender::new("raft-log", raft_log(&dir.join("raft-log"))?),
    ])
}

/// What it takes to write a number of 16 bytes to a file of its own after each synced append, and not to sync it: the
/// median, and what one in a hundred takes at least.
fn number_beside(dir: &Path) -> Result<[Duration; 2], Failure> {
    let mut log = Redb(redb::Database::create(dir.join("beside"))?);
    let number = FileBackend::new(File::create(dir.join("number"))?)?;
    let mut times = Vec::new();
    for index in 0..4_000 {
        log.append(index, 1)?;
        let started = Instant::now();
        number.write(0, &[index.to_le_bytes(); 2].concat())?;
        times.push(started.elapsed());
    }
    times.sort_unstable();
    Ok([times[times.len() / 2], times[times.len() - times.len() / 100]])
}

fn main() -> Result<(), Failure> {
    let place = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = place.join(format!("session-stores-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let mut contenders = contenders(&dir)?;
    for _ in 0..ROUNDS {
        for contender in &mut contenders {
            contender.round()?;
        }
    }
    println!("entries of {ENTRY} bytes, microseconds an append with its sync (and times the plain file):");
    println!("{:<14}{:>18}{:>18}{:>18}", "", "1 entry", "64 entries", "256 entries");
    let floor = contenders[0].figures();
    for contender in &mut contenders {
        print!("{:<14}", contender.name);
        for (time, floor) in contender.figures().into_iter().zip(floor) {
            print!("{:>10.0} ({:>4.1}x)", time.as_secs_f64() * 1e6, time.div_duration_f64(floor));
        }
        println!();
    }
    drop(contenders);
    let [median, rare] = number_beside(&dir)?.map(|time| time.as_secs_f64() * 1e6);
    println!(
        "a number beside the log, written after each sync and not synced: {median:.1}, one in a hundred {rare:.1}"
    );
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

//! The log as redb holds it: one table of entries by index, one of small facts.

use super::backend::Backend;
use super::commits::Commits;
use super::disk::Disk;
use super::error::StoreError;
use super::log::LogTypes;
use super::record;
use bytes::Bytes;
use openraft::{Entry, LogId, LogIdOptionExt, Vote};
use redb::{ReadableDatabase, ReadableTable, Table, TableDefinition};
use serde::{Serialize, de::DeserializeOwned};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

const ENTRIES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("entries");
const FACTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("facts");

/// The version of the tables and of the records in them.
const FORMAT: u64 = 1;

/// The synced entries kept in memory take at most this many bytes, but for the last.
pub(super) const CACHE: usize = 64 << 20;

/// A change of the log, in the order in which openraft asks for them.
#[derive(Debug)]
pub(super) enum Change<C: LogTypes> {
    Append(Vec<Entry<C>>),
    /// Removes the entries from this index on.
    Truncate(u64),
    /// Removes the entries up to this one.
    Purge(LogId<u64>),
    Vote(Vote<u64>),
    Committed(Option<LogId<u64>>),
    Skips(BTreeSet<u64>),
    Label(Bytes),
}

/// What the database held when it was opened.
#[derive(Debug)]
pub(super) struct Content<C: LogTypes> {
    pub(super) vote: Option<Vote<u64>>,
    pub(super) committed: Option<LogId<u64>>,
    pub(super) purged: Option<LogId<u64>>,
    pub(super) skips: BTreeSet<u64>,
    pub(super) label: Option<Bytes>,
    pub(super) tail: Tail<C>,
}

/// The last entries of the log, without a gap, and never none of a log that has some.
#[derive(Debug)]
pub(super) struct Tail<C: LogTypes> {
    pub(super) entries: VecDeque<Entry<C>>,
    bytes: usize,
}

impl<C: LogTypes> Default for Tail<C> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), bytes: 0 }
    }
}

impl<C: LogTypes> Tail<C> {
    pub(super) fn push(&mut self, entry: Entry<C>) {
        self.bytes += size(&entry);
        self.entries.push_back(entry);
    }

    /// Forgets the oldest of the entries up to `synced` that are more than there is room for.
    pub(super) fn shrink(&mut self, synced: u64) {
        while self.bytes > CACHE
            && self.entries.len() > 1
            && self.entries.front().is_some_and(|entry| entry.log_id.index <= synced)
        {
            self.pop_front();
        }
    }

    /// Forgets the entries up to `index`.
    pub(super) fn purge(&mut self, index: u64) {
        while self.entries.front().is_some_and(|entry| entry.log_id.index <= index) {
            self.pop_front();
        }
    }

    /// Forgets the entries from `index` on.
    pub(super) fn truncate(&mut self, index: u64) {
        while self.entries.back().is_some_and(|entry| entry.log_id.index >= index) {
            if let Some(entry) = self.entries.pop_back() {
                self.bytes -= size(&entry);
            }
        }
    }

    fn pop_front(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.bytes -= size(&entry);
        }
    }
}

/// About what an entry takes in memory.
fn size<C: LogTypes>(entry: &Entry<C>) -> usize {
    let content = match &entry.payload {
        openraft::EntryPayload::Normal(data) => data.as_ref().len(),
        _ => 0,
    };
    content + size_of::<Entry<C>>()
}

/// Opens a database, every page of which must match its checksum. redb itself looks at them only where it was not
/// closed.
fn checked(backend: &Backend) -> Result<redb::Database, redb::Error> {
    let mut redb = redb::Builder::new().create_with_backend(backend.clone())?;
    if redb.check_integrity()? {
        Ok(redb)
    } else {
        Err(redb::Error::Corrupted("pages do not match their checksums".to_owned()))
    }
}

/// The log's database.
#[derive(Debug)]
pub(super) struct Database {
    redb: redb::Database,
    backend: Backend,
    path: PathBuf,
    /// How many transactions were made. Only the writer makes them.
    commits: AtomicU64,
    /// Where that is said once they are durable.
    said: Option<Commits>,
}

impl Database {
    /// Opens it, or makes a new one in an empty file, and reads all of it. Nothing is written to the disk before
    /// [`release`](Self::release).
    pub(super) fn open<C: LogTypes>(
        disk: &dyn Disk,
        name: &str,
        new: bool,
    ) -> Result<(Self, Content<C>), StoreError> {
        let path = disk.path(name);
        let file = disk.database(name).map_err(|error| StoreError::io(path.clone(), &error))?;
        let backend = Backend::held(file);
        // redb panics on some damaged files.
        let opened = catch_unwind(AssertUnwindSafe(|| {
            let redb = checked(&backend).map_err(|error| StoreError::database(path.clone(), error))?;
            let mut database = Self {
                redb,
                backend: backend.clone(),
                path: path.clone(),
                commits: AtomicU64::new(0),
                said: None,
            };
            if new {
                database.create()?;
            }
            database.commits = database.check_format()?.into();
            let content = database.content()?;
            Ok((database, content))
        }));
        opened.unwrap_or_else(|_| {
            Err(StoreError::DamagedLog { path, problem: "its pages do not fit".to_owned() })
        })
    }

    /// Lets what opening it changed reach the disk.
    pub(super) fn release(&self) -> io::Result<()> {
        self.backend.release()
    }

    /// Refuses a log that has less than was durable.
    pub(super) fn check_commits(&self, durable: Option<u64>) -> Result<(), StoreError> {
        let missing = durable.unwrap_or(0).saturating_sub(self.commits.load(Ordering::Relaxed));
        if missing == 0 {
            return Ok(());
        }
        Err(self.damaged(format!("the last {missing} of its changes, which were durable, cannot be read")))
    }

    /// The same database, which says there how many of its transactions are durable.
    pub(super) fn saying(self, said: Commits) -> Self {
        Self { said: Some(said), ..self }
    }

    /// The same database, whose file was renamed.
    pub(super) fn named(self, path: PathBuf) -> Self {
        Self { path, ..self }
    }

    pub(super) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Refuses what a later release wrote. Returns how many transactions were made.
    fn check_format(&self) -> Result<u64, StoreError> {
        let reading = self.redb.begin_read().map_err(|error| self.failed(error))?;
        let facts = match reading.open_table(FACTS) {
            // redb makes an empty database of an empty file.
            Err(redb::TableError::TableDoesNotExist(_)) => return Err(self.damaged("it is empty".to_owned())),
            facts => facts.map_err(|error| self.failed(error))?,
        };
        match self.fact(&facts, "format")? {
            Some(FORMAT) => Ok(self.fact(&facts, "commits")?.unwrap_or(0)),
            Some(version) => Err(StoreError::UnknownFormat { path: self.path.clone(), version }),
            None => Err(self.damaged("it has no format version".to_owned())),
        }
    }

    /// Makes the tables.
    fn create(&self) -> Result<(), StoreError> {
        let writing = self.redb.begin_write().map_err(|error| self.failed(error))?;
        writing.open_table(ENTRIES).map_err(|error| self.failed(error))?;
        let mut facts = writing.open_table(FACTS).map_err(|error| self.failed(error))?;
        self.set(&mut facts, "format", &FORMAT)?;
        drop(facts);
        writing.commit().map_err(|error| self.failed(error))
    }

    fn content<C: LogTypes>(&self) -> Result<Content<C>, StoreError> {
        let reading = self.redb.begin_read().map_err(|error| self.failed(error))?;
        let facts = reading.open_table(FACTS).map_err(|error| self.failed(error))?;
        let purged: Option<LogId<u64>> = self.fact(&facts, "purged")?;
        let mut next = purged.next_index();
        let mut tail = Tail::default();
        let mut previous = purged;
        self.for_each(0..u64::MAX, |entry: Entry<C>| {
            if entry.log_id.index != next {
                return Err(self.damaged(format!("the entry at index {next} is missing")));
            }
            if previous.is_some_and(|previous| previous.leader_id > entry.log_id.leader_id) {
                return Err(self.damaged(format!(
                    "the entry at index {next} is of an earlier term than the one before"
                )));
            }
            previous = Some(entry.log_id);
            next += 1;
            tail.push(entry);
            tail.shrink(u64::MAX);
            Ok(())
        })?;
        Ok(Content {
            vote: self.fact(&facts, "vote")?,
            committed: self.fact::<LogId<u64>>(&facts, "committed")?.min(previous),
            purged,
            skips: self.fact(&facts, "skips")?.unwrap_or_default(),
            label: self.fact(&facts, "label")?,
            tail,
        })
    }

    /// Reads the entries of a range that are there, in order.
    pub(super) fn for_each<C: LogTypes>(
        &self,
        range: Range<u64>,
        mut each: impl FnMut(Entry<C>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let reading = self.redb.begin_read().map_err(|error| self.failed(error))?;
        let entries = reading.open_table(ENTRIES).map_err(|error| self.failed(error))?;
        for found in entries.range(range).map_err(|error| self.failed(error))? {
            let (index, record) = found.map_err(|error| self.failed(error))?;
            each(
                record::decode_entry(index.value(), record.value())
                    .map_err(|problem| self.damaged(problem))?,
            )?;
        }
        Ok(())
    }

    /// Makes the changes in one transaction. They are durable when it returns.
    pub(super) fn commit<'a, C: LogTypes>(
        &self,
        changes: impl IntoIterator<Item = &'a Change<C>>,
    ) -> Result<(), StoreError> {
        let writing = self.redb.begin_write().map_err(|error| self.failed(error))?;
        let mut entries = writing.open_table(ENTRIES).map_err(|error| self.failed(error))?;
        let mut facts = writing.open_table(FACTS).map_err(|error| self.failed(error))?;
        let mut buffer = Vec::new();
        for change in changes {
            match change {
                Change::Append(new) => {
                    for entry in new {
                        record::encode_entry(entry, &mut buffer).map_err(|problem| self.damaged(problem))?;
                        entries.insert(entry.log_id.index, &*buffer).map_err(|error| self.failed(error))?;
                    }
                }
                Change::Truncate(from) => {
                    entries.retain_in(*from.., |_, _| false).map_err(|error| self.failed(error))?;
                }
                Change::Purge(last) => {
                    entries.retain_in(..=last.index, |_, _| false).map_err(|error| self.failed(error))?;
                    self.set(&mut facts, "purged", last)?;
                }
                Change::Vote(vote) => self.set(&mut facts, "vote", vote)?,
                Change::Committed(Some(committed)) => self.set(&mut facts, "committed", committed)?,
                Change::Committed(None) => {}
                Change::Skips(skips) => self.set(&mut facts, "skips", skips)?,
                Change::Label(label) => self.set(&mut facts, "label", label)?,
            }
        }
        let commits = self.commits.load(Ordering::Relaxed).saturating_add(1);
        self.set(&mut facts, "commits", &commits)?;
        drop((entries, facts));
        writing.commit().map_err(|error| self.failed(error))?;
        self.commits.store(commits, Ordering::Relaxed);
        if let Some(said) = &self.said {
            said.write(commits);
        }
        Ok(())
    }

    fn fact<T: DeserializeOwned>(
        &self,
        facts: &impl ReadableTable<&'static str, &'static [u8]>,
        name: &str,
    ) -> Result<Option<T>, StoreError> {
        let Some(record) = facts.get(name).map_err(|error| self.failed(error))? else { return Ok(None) };
        record::decode(name, record.value()).map(Some).map_err(|problem| self.damaged(problem))
    }

    fn set<T: Serialize>(
        &self,
        facts: &mut Table<'_, &'static str, &'static [u8]>,
        name: &'static str,
        value: &T,
    ) -> Result<(), StoreError> {
        let record = record::encode(value).map_err(|problem| self.damaged(problem))?;
        facts.insert(name, &*record).map_err(|error| self.failed(error))?;
        Ok(())
    }

    fn failed(&self, error: impl Into<redb::Error>) -> StoreError {
        StoreError::database(self.path.clone(), error)
    }

    fn damaged(&self, problem: String) -> StoreError {
        StoreError::DamagedLog { path: self.path.clone(), problem }
    }
}

//! The log, as openraft wants it.

use super::database::{Change, Content, Database, Tail};
use super::disk::Disk;
use super::error::StoreError;
use super::writer::{Done, Progress, Writer};
use bytes::Bytes;
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{
    AnyError, BasicNode, Entry, LogId, LogIdOptionExt, LogState, OptionalSend, RaftLogReader, RaftTypeConfig,
    StorageError, StorageIOError, Vote,
};
use std::collections::BTreeSet;
use std::fmt::{self, Debug};
use std::ops::{Bound, RangeBounds};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{oneshot, watch};

/// What the log must know of openraft's types: numbered nodes, and content that is bytes.
pub trait LogTypes:
    RaftTypeConfig<NodeId = u64, Node = BasicNode, Entry = Entry<Self>, D: Clone + AsRef<[u8]> + From<Bytes>>
{
}

impl<C> LogTypes for C
where
    C: RaftTypeConfig<NodeId = u64, Node = BasicNode, Entry = Entry<C>>,
    C::D: Clone + AsRef<[u8]> + From<Bytes>,
{
}

/// Called with each entry as it is appended, before it can be applied.
pub type OnAppend<C> = Arc<dyn Fn(&Entry<C>) + Send + Sync>;

/// The log. Its clones are the same log; the last one dropped waits for the writer to finish.
///
/// An entry can be read as soon as it is appended, and most reads are answered from memory. A thread of its
/// own writes: all that came in while it wrote goes into the next transaction, and one sync. openraft 0.9
/// waits for each append before it looks at the next call, so that with it alone every entry would be
/// a batch; see [`for_one_voter`](Self::for_one_voter).
pub struct LogStore<C: LogTypes> {
    shared: Arc<Shared<C>>,
    on_append: Option<OnAppend<C>>,
    /// Whether openraft is told of an append before it is durable.
    early: bool,
}

struct Shared<C: LogTypes> {
    state: Mutex<State<C>>,
    /// None where the log is in memory only.
    written: Option<Written<C>>,
}

/// The parts of a log on a disk. The order matters: the writer stops before the directory is unlocked.
struct Written<C: LogTypes> {
    writer: Writer<C>,
    database: Arc<Database>,
    _disk: Arc<dyn Disk>,
}

/// The log as it will be once all that was asked for is written.
struct State<C: LogTypes> {
    tail: Tail<C>,
    purged: Option<LogId<u64>>,
    vote: Option<Vote<u64>>,
    committed: Option<LogId<u64>>,
    skips: BTreeSet<u64>,
    label: Option<Bytes>,
}

impl<C: LogTypes> State<C> {
    fn last(&self) -> Option<LogId<u64>> {
        self.tail.entries.back().map(|entry| entry.log_id).or(self.purged)
    }

    /// The first index that is in memory, or the next to be appended.
    fn cached_from(&self) -> u64 {
        self.tail.entries.front().map_or_else(|| self.purged.next_index(), |entry| entry.log_id.index)
    }
}

impl<C: LogTypes> Clone for LogStore<C> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), on_append: self.on_append.clone(), early: self.early }
    }
}

impl<C: LogTypes> Debug for LogStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        let writer = self.shared.written.as_ref().map(|written| &written.writer);
        f.debug_struct("LogStore")
            .field("purged", &state.purged)
            .field("last", &state.last())
            .field("writer", &writer)
            .finish_non_exhaustive()
    }
}

impl<C: LogTypes> LogStore<C> {
    pub(super) fn on_disk(
        disk: Arc<dyn Disk>,
        database: Database,
        content: Content<C>,
    ) -> Result<Self, StoreError> {
        let Content { vote, committed, purged, skips, label, tail } = content;
        let state = State { tail, purged, vote, committed, skips, label };
        let database = Arc::new(database);
        let writer = Writer::start(database.clone(), state.last().map(|id| id.index))?;
        Ok(Self::new(state, Some(Written { writer, database, _disk: disk })))
    }

    pub(super) fn in_memory() -> Self {
        let state = State {
            tail: Tail::default(),
            purged: None,
            vote: None,
            committed: None,
            skips: BTreeSet::new(),
            label: None,
        };
        Self::new(state, None)
    }

    fn new(state: State<C>, written: Option<Written<C>>) -> Self {
        Self { shared: Arc::new(Shared { state: Mutex::new(state), written }), on_append: None, early: false }
    }

    /// The same log, with a hook for appended entries.
    #[must_use]
    pub fn on_append(mut self, hook: OnAppend<C>) -> Self {
        self.on_append = Some(hook);
        self
    }

    /// The same log, for a node that is the only voter: openraft is told at once that an append is done, so
    /// that it goes on to the next, and calls that come together share a sync.
    ///
    /// An entry counts as committed then before it is durable. So the machine **must** await
    /// [`Synced::reached`] before it applies an entry: nothing is answered, and no query sees anything, that a
    /// power cut could take back. With a second voter this would be wrong, because the others would be told
    /// what is committed while it may still be lost here.
    #[must_use]
    pub fn for_one_voter(mut self) -> (Self, Synced) {
        self.early = true;
        let synced = Synced(self.shared.written.as_ref().map(|written| written.writer.progress()));
        (self, synced)
    }

    /// The indices that are skipped when the log is applied.
    pub fn skips(&self) -> BTreeSet<u64> {
        self.state().skips.clone()
    }

    /// Adds to the indices that are skipped; durable when it returns.
    pub async fn add_skips(&self, indices: impl IntoIterator<Item = u64>) -> Result<(), StoreError> {
        let skips = {
            let mut state = self.state();
            state.skips.extend(indices);
            state.skips.clone()
        };
        self.write(Change::Skips(skips)).await
    }

    /// Forgets the skipped indices up to `index`, which a snapshot has.
    pub async fn drop_skips_through(&self, index: u64) -> Result<(), StoreError> {
        let skips = {
            let mut state = self.state();
            if state.skips.first().is_none_or(|first| *first > index) {
                return Ok(());
            }
            state.skips.retain(|skip| *skip > index);
            state.skips.clone()
        };
        self.write(Change::Skips(skips)).await
    }

    /// The log's file, for messages.
    pub(super) fn path(&self) -> PathBuf {
        self.shared
            .written
            .as_ref()
            .map_or_else(|| "the log in memory".into(), |written| written.database.path().clone())
    }

    /// What the log was said to be of.
    pub fn label(&self) -> Option<Bytes> {
        self.state().label.clone()
    }

    /// Says what the log is of; durable when it returns.
    pub async fn set_label(&self, label: Bytes) -> Result<(), StoreError> {
        self.state().label = Some(label.clone());
        self.write(Change::Label(label)).await
    }

    fn state(&self) -> MutexGuard<'_, State<C>> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a change durable.
    async fn write(&self, change: Change<C>) -> Result<(), StoreError> {
        let Some(written) = &self.shared.written else { return Ok(()) };
        let (reply, answer) = oneshot::channel();
        written.writer.submit(change, Done::Reply(reply))?;
        answer.await.unwrap_or_else(|_| Err(stopped(&written.database)))
    }

    /// Adds entries to what can be read.
    fn remember(&self, entries: &[Entry<C>]) -> Result<(), String> {
        let synced = self.shared.written.as_ref().and_then(|written| written.writer.synced());
        let mut state = self.state();
        for entry in entries {
            let expected = state.last().next_index();
            // A new log may begin anywhere: openraft's tests begin at 1.
            if entry.log_id.index != expected && state.last().is_some() {
                return Err(format!(
                    "an entry at index {} was appended where {expected} is next",
                    entry.log_id.index
                ));
            }
            state.tail.push(entry.clone());
        }
        if let Some(synced) = synced {
            state.tail.shrink(synced);
        }
        Ok(())
    }

    /// Reads the entries from `start` until before `end` that are there.
    fn entries(&self, start: u64, end: u64) -> Result<Vec<Entry<C>>, StoreError> {
        let (start, from_memory, mut in_memory) = {
            let state = self.state();
            let start = start.max(state.purged.next_index());
            let from_memory = state.cached_from();
            let skipped = usize::try_from(start.saturating_sub(from_memory)).unwrap_or(usize::MAX);
            let entries = state.tail.entries.iter().skip(skipped);
            let in_memory: Vec<_> = entries.take_while(|entry| entry.log_id.index < end).cloned().collect();
            (start, from_memory, in_memory)
        };
        let Some(written) = self.shared.written.as_ref().filter(|_| start < end.min(from_memory)) else {
            return Ok(in_memory);
        };
        let mut entries = Vec::new();
        written.database.for_each(start..end.min(from_memory), |entry| {
            entries.push(entry);
            Ok(())
        })?;
        entries.append(&mut in_memory);
        Ok(entries)
    }
}

/// The error where the writer went without an answer: it panicked.
fn stopped(database: &Database) -> StoreError {
    let message = "the thread that writes the log has stopped";
    StoreError::io(database.path().clone(), &std::io::Error::other(message))
}

/// Waits until entries are durable: the other half of [`LogStore::for_one_voter`].
#[derive(Clone, Debug)]
pub struct Synced(Option<watch::Receiver<Progress>>);

impl Synced {
    /// Why nothing more will be durable, if so.
    pub(crate) fn failed(&self) -> Option<StoreError> {
        self.0.as_ref()?.borrow().failed.clone()
    }

    /// Returns when the entry at `index` is durable, or why it will not be.
    pub async fn reached(&mut self, index: u64) -> Result<(), StoreError> {
        let Some(progress) = &mut self.0 else { return Ok(()) };
        let there = |progress: &Progress| progress.synced >= Some(index);
        let stopped = match progress.wait_for(|now| there(now) || now.failed.is_some()).await {
            Ok(now) if there(&now) => return Ok(()),
            Ok(now) => now.failed.clone(),
            Err(_) => None,
        };
        Err(stopped.unwrap_or_else(|| {
            StoreError::io("the log".into(), &std::io::Error::other("the thread that writes it has stopped"))
        }))
    }
}

impl<C: LogTypes> RaftLogReader<C> for LogStore<C> {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry<C>>, StorageError<u64>> {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(end) => end.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        self.entries(start, end).map_err(|error| StorageIOError::read_logs(&error).into())
    }
}

impl<C: LogTypes> RaftLogStorage<C> for LogStore<C> {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<C>, StorageError<u64>> {
        let state = self.state();
        Ok(LogState { last_purged_log_id: state.purged, last_log_id: state.last() })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<u64>) -> Result<(), StorageError<u64>> {
        self.state().vote = Some(*vote);
        self.write(Change::Vote(*vote)).await.map_err(|error| StorageIOError::write_vote(&error).into())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<u64>>, StorageError<u64>> {
        Ok(self.state().vote)
    }

    /// Never synced for its own sake: it only lets a start apply early what it would apply in any case. A voter that is
    /// alone commits its whole log as it starts, so for it this is not even written.
    async fn save_committed(&mut self, committed: Option<LogId<u64>>) -> Result<(), StorageError<u64>> {
        self.state().committed = committed;
        if let (Some(written), false) = (&self.shared.written, self.early) {
            written.writer.committed(committed);
        }
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId<u64>>, StorageError<u64>> {
        Ok(self.state().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<C>) -> Result<(), StorageError<u64>>
    where
        I: IntoIterator<Item = Entry<C>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let purged = self.state().purged;
        // What was purged is in a snapshot already, and is not kept a second time.
        let entries: Vec<_> =
            entries.into_iter().filter(|entry| Some(entry.log_id.index) > purged.index()).collect();
        if let Some(hook) = &self.on_append {
            for entry in &entries {
                hook(entry);
            }
        }
        self.remember(&entries)
            .map_err(|problem| StorageError::from(StorageIOError::write_logs(AnyError::error(problem))))?;
        let Some(written) = &self.shared.written else {
            callback.log_io_completed(Ok(()));
            return Ok(());
        };
        let refused = |error: StoreError| StorageError::from(StorageIOError::write_logs(&error));
        if self.early {
            written.writer.submit(Change::Append(entries), Done::Nobody).map_err(refused)?;
            callback.log_io_completed(Ok(()));
            return Ok(());
        }
        written.writer.submit(Change::Append(entries), Done::Flushed(callback)).map_err(refused)
    }

    async fn truncate(&mut self, log_id: LogId<u64>) -> Result<(), StorageError<u64>> {
        let refused = |error: StoreError| StorageError::from(StorageIOError::write_logs(&error));
        // The last entry that stays is read first, if memory no longer has it.
        let kept = match log_id.index.checked_sub(1) {
            Some(before) => self.entries(before, log_id.index).map_err(refused)?.pop(),
            None => None,
        };
        {
            let mut state = self.state();
            state.tail.truncate(log_id.index);
            if let Some(entry) = kept.filter(|_| state.tail.entries.is_empty()) {
                state.tail.push(entry);
            }
        }
        self.write(Change::Truncate(log_id.index)).await.map_err(refused)
    }

    async fn purge(&mut self, log_id: LogId<u64>) -> Result<(), StorageError<u64>> {
        {
            let mut state = self.state();
            state.purged = state.purged.max(Some(log_id));
            state.tail.purge(log_id.index);
        }
        let purged = self.write(Change::Purge(log_id)).await;
        purged.map_err(|error| StorageIOError::write_logs(&error).into())
    }
}

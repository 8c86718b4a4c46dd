//! The thread that writes the log: all that waits goes into one transaction, and one sync.

use super::database::{Change, Database};
use super::error::StoreError;
use super::log::LogTypes;
use crate::bell;
use openraft::LogId;
use openraft::storage::LogFlushed;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};

/// Whom to tell that a change is durable, or why it is not.
pub(super) enum Done<C: LogTypes> {
    Nobody,
    Flushed(LogFlushed<C>),
    Reply(oneshot::Sender<Result<(), StoreError>>),
}

impl<C: LogTypes> Done<C> {
    pub(super) fn tell(self, result: &Result<(), StoreError>) {
        match self {
            Self::Nobody => {}
            Self::Flushed(callback) => callback.log_io_completed(result.clone().map_err(io::Error::other)),
            // Whoever asked may have gone.
            Self::Reply(reply) => drop(reply.send(result.clone())),
        }
    }
}

struct Job<C: LogTypes> {
    change: Change<C>,
    done: Done<C>,
}

struct Waiting<C: LogTypes> {
    jobs: Vec<Job<C>>,
    /// Written along with the next change, never for its own sake.
    committed: Option<LogId<u64>>,
    failed: Option<StoreError>,
    closed: bool,
}

struct Queue<C: LogTypes> {
    waiting: Mutex<Waiting<C>>,
    wake: Condvar,
}

impl<C: LogTypes> Waiting<C> {
    fn has_no_work(&self) -> bool {
        self.jobs.is_empty() && !self.closed
    }
}

impl<C: LogTypes> Queue<C> {
    fn has_work_within(&self, time: Duration) -> bool {
        let waited = self.wake.wait_timeout_while(self.lock(), time, |waiting| waiting.has_no_work());
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<C>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How far the log is durable.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    /// The last durable index.
    pub(super) synced: Option<u64>,
    /// Why nothing more will be.
    pub(super) failed: Option<StoreError>,
}

/// The writer's handle. Dropping it waits until all that was asked for is written.
pub(super) struct Writer<C: LogTypes> {
    queue: Arc<Queue<C>>,
    progress: watch::Receiver<Progress>,
    thread: Option<JoinHandle<()>>,
}

impl<C: LogTypes> fmt::Debug for Writer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("progress", &*self.progress.borrow()).finish_non_exhaustive()
    }
}

impl<C: LogTypes> Writer<C> {
    pub(super) fn start(database: Arc<Database>, synced: Option<u64>) -> Result<Self, StoreError> {
        let waiting = Waiting { jobs: Vec::new(), committed: None, failed: None, closed: false };
        let queue = Arc::new(Queue { waiting: Mutex::new(waiting), wake: Condvar::new() });
        let (sender, progress) = watch::channel(Progress { synced, failed: None });
        let path = database.path().clone();
        let work = {
            let queue = queue.clone();
            move || run(&queue, &database, &sender)
        };
        let thread = std::thread::Builder::new()
            .name("session-log".to_owned())
            .spawn(work)
            .map_err(|error| StoreError::io(path, &error))?;
        Ok(Self { queue, progress, thread: Some(thread) })
    }

    /// Queues a change; `done` is told once it is durable. An error where nothing is written any more.
    pub(super) fn submit(&self, change: Change<C>, done: Done<C>) -> Result<(), StoreError> {
        let mut waiting = self.queue.lock();
        if let Some(error) = &waiting.failed {
            return Err(error.clone());
        }
        waiting.jobs.push(Job { change, done });
        drop(waiting);
        self.queue.wake.notify_one();
        Ok(())
    }

    /// Notes what is committed, to be written when something else is.
    pub(super) fn committed(&self, committed: Option<LogId<u64>>) {
        self.queue.lock().committed = committed;
    }

    /// The last durable index.
    pub(super) fn synced(&self) -> Option<u64> {
        self.progress.borrow().synced
    }

    pub(super) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }
}

impl<C: LogTypes> Drop for Writer<C> {
    fn drop(&mut self) {
        self.queue.lock().closed = true;
        self.queue.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic there was printed by it, and every job it had was dropped, which fails its waiter.
            let _ = thread.join();
        }
    }
}

/// Who has something to write again within this time goes on so, as far as one can tell.
const SOON: Duration = Duration::from_micros(200);

fn run<C: LogTypes>(queue: &Queue<C>, database: &Database, progress: &watch::Sender<Progress>) {
    loop {
        let told = Instant::now();
        if bell::has_rung() && !queue.has_work_within(SOON) {
            bell::make_up();
        }
        let mut waiting = queue.lock();
        while waiting.has_no_work() {
            waiting = queue.wake.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        bell::expect(told.elapsed() < SOON);
        let jobs = std::mem::take(&mut waiting.jobs);
        // Taken in one step with the jobs, so that what is said to be committed is always written, too.
        let committed = waiting.committed.take();
        let (last, failed) = (waiting.closed, waiting.failed.is_some());
        drop(waiting);
        // What a disk did with a failed write is not guessed: nothing is written after it.
        if !failed && (!jobs.is_empty() || committed.is_some()) {
            write(queue, database, progress, jobs, committed);
        }
        if last {
            return;
        }
    }
}

fn write<C: LogTypes>(
    queue: &Queue<C>,
    database: &Database,
    progress: &watch::Sender<Progress>,
    jobs: Vec<Job<C>>,
    committed: Option<LogId<u64>>,
) {
    let committed = Change::Committed(committed);
    let result = database.commit(jobs.iter().map(|job| &job.change).chain([&committed]));
    match &result {
        Ok(()) => progress.send_modify(|progress| {
            progress.synced =
                jobs.iter().fold(progress.synced, |synced, job| synced_after(synced, &job.change));
        }),
        Err(error) => {
            tracing::error!(%error, "the log cannot be written any more; the node stops");
            // First the reason, then the consequences: whoever meets these looks for it.
            progress.send_modify(|progress| progress.failed = Some(error.clone()));
            // Refused from here on, so that nobody waits for what will not come.
            let mut waiting = queue.lock();
            waiting.failed = Some(error.clone());
            let rest = std::mem::take(&mut waiting.jobs);
            drop(waiting);
            for job in rest {
                job.done.tell(&result);
            }
        }
    }
    for job in jobs {
        job.done.tell(&result);
    }
}

/// The last durable index after a change.
fn synced_after<C: LogTypes>(synced: Option<u64>, change: &Change<C>) -> Option<u64> {
    match change {
        Change::Append(entries) => entries.last().map(|entry| entry.log_id.index).or(synced),
        Change::Truncate(from) => synced.min(from.checked_sub(1)),
        Change::Purge(last) => synced.max(Some(last.index)),
        _ => synced,
    }
}

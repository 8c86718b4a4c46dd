//! The last snapshot, one file, put in place in one step.

use super::disk::{self, Disk};
use super::error::StoreError;
use openraft::LogIdOptionExt;
use session_runtime::{Snapshot, SnapshotError};
use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What a snapshot is at: index, then term, so that the later one is the greater. The index is the log's, which
/// may be above that of the machine's last action: openraft has entries of its own.
pub(super) type Position = (u64, u64);

pub(super) fn file_name((index, term): Position) -> String {
    format!("snapshot-{index}-{term}.session")
}

fn parse(name: &str) -> Option<Position> {
    let (index, term) = name.strip_prefix("snapshot-")?.strip_suffix(".session")?.split_once('-')?;
    let position = (index.parse().ok()?, term.parse().ok()?);
    (file_name(position) == name).then_some(position)
}

/// Whether a file of this name is a snapshot.
pub(super) fn is_snapshot(name: &str) -> bool {
    parse(name).is_some()
}

/// The last snapshot. Its clones are the same store.
#[derive(Clone)]
pub struct SnapshotStore {
    /// None where snapshots are kept in memory only.
    disk: Option<Arc<dyn Disk>>,
    current: Arc<Mutex<Current>>,
    /// Held by whoever writes one.
    saving: Arc<Mutex<()>>,
}

#[derive(Default)]
struct Current {
    position: Option<Position>,
    /// On a disk: as it was read at the start, until it is asked for.
    snapshot: Option<Snapshot>,
}

impl fmt::Debug for SnapshotStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotStore").field("current", &self.lock().position).finish_non_exhaustive()
    }
}

impl SnapshotStore {
    pub(super) fn in_memory() -> Self {
        Self { disk: None, current: Arc::default(), saving: Arc::default() }
    }

    /// Reads the last snapshot. Changes nothing.
    pub(super) fn open(disk: Arc<dyn Disk>, names: &[String]) -> Result<Self, StoreError> {
        let position = names.iter().filter_map(|name| parse(name)).max();
        let snapshot = position.map(|position| read(&*disk, position)).transpose()?;
        let current = Arc::new(Mutex::new(Current { position, snapshot }));
        Ok(Self { disk: Some(disk), current, saving: Arc::default() })
    }

    /// The directory, for whoever wants to know when nobody has it open any more.
    pub(crate) fn directory(&self) -> Option<Weak<dyn Disk>> {
        self.disk.as_ref().map(Arc::downgrade)
    }

    /// The name of the last snapshot's file.
    pub(super) fn file_name(&self) -> Option<String> {
        self.lock().position.map(file_name)
    }

    /// The index of the last log entry in the last snapshot.
    pub fn index(&self) -> Option<u64> {
        self.lock().position.map(|(index, _)| index)
    }

    /// The last snapshot.
    pub fn load(&self) -> Result<Option<Snapshot>, StoreError> {
        let mut current = self.lock();
        match (&self.disk, current.position) {
            (None, _) => Ok(current.snapshot.clone()),
            (Some(_), None) => Ok(None),
            (Some(disk), Some(position)) => match current.snapshot.take() {
                Some(snapshot) => Ok(Some(snapshot)),
                None => read(&**disk, position).map(Some),
            },
        }
    }

    /// Makes this the last snapshot, durably, and returns the number of its bytes. `index` is that of the last
    /// log entry in it. A snapshot that is older than the last is not kept, and takes 0.
    pub fn save(&self, index: u64, snapshot: &Snapshot) -> Result<u64, StoreError> {
        let _saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let position = (index, snapshot.meta().term);
        let before = self.lock().position;
        if before > Some(position) {
            return Ok(0);
        }
        let Some(disk) = &self.disk else {
            *self.lock() = Current { position: Some(position), snapshot: Some(snapshot.clone()) };
            return Ok(0);
        };
        let name = file_name(position);
        let mut bytes = 0;
        disk::put(&**disk, &name, |out| snapshot.write_to(Counted { out, bytes: &mut bytes }))
            .map_err(|error| unwritten(&**disk, &name, error))?;
        *self.lock() = Current { position: Some(position), snapshot: None };
        if let Some(before) = before.filter(|before| *before != position) {
            // If it stays, the next start removes it.
            let _ = disk.remove(&file_name(before));
        }
        Ok(bytes)
    }

    /// The error of whoever cannot use the last snapshot, with its file's name.
    pub fn refused(&self, error: SnapshotError) -> StoreError {
        let name = self.lock().position.map(file_name).unwrap_or_default();
        let path =
            self.disk.as_ref().map_or_else(|| "the snapshot in memory".into(), |disk| disk.path(&name));
        StoreError::Snapshot { path, error }
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(disk: &dyn Disk, expected: Position) -> Result<Snapshot, StoreError> {
    let name = file_name(expected);
    let path = disk.path(&name);
    let file = disk.read(&name).map_err(|error| StoreError::io(path.clone(), &error))?;
    let snapshot = match Snapshot::read_from(file) {
        Ok(snapshot) => snapshot,
        Err(SnapshotError::Io { kind, message }) => {
            return Err(StoreError::io(path, &io::Error::new(kind, message)));
        }
        Err(error) => return Err(StoreError::Snapshot { path, error }),
    };
    let meta = snapshot.meta();
    // The name has the engine's place. The machine's count may be ahead of it, or behind.
    let place = crate::replica::Position::of(&snapshot).ok().and_then(|position| position.last.index());
    let fits = place.map_or(meta.index <= expected.0, |place| place == expected.0);
    if meta.term == expected.1 && fits {
        return Ok(snapshot);
    }
    Err(StoreError::Renamed { path, index: place.unwrap_or(meta.index), term: meta.term })
}

fn unwritten(disk: &dyn Disk, name: &str, error: SnapshotError) -> StoreError {
    let path = disk.path(name);
    match error {
        SnapshotError::Io { kind, message } => StoreError::io(path, &io::Error::new(kind, message)),
        error => StoreError::Unwritable { path, error },
    }
}

/// Counts what is written.
struct Counted<'a> {
    out: &'a mut dyn Write,
    bytes: &'a mut u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let written = self.out.write(data)?;
        *self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

//! A node's directory: its log, its last snapshot, and the lock that keeps other processes out.

#[cfg(test)]
mod answered;
mod backend;
mod commits;
mod database;
mod disk;
mod error;
mod log;
mod record;
mod snapshots;
mod writer;

pub use disk::{Disk, Folder, SyncedFile};
pub use error::StoreError;
pub use log::{LogStore, LogTypes, OnAppend, Synced};
pub use snapshots::SnapshotStore;

use bytes::Bytes;
use commits::{COMMITS, Commits};
use database::{Content, Database};
use disk::UNFINISHED;
use std::path::Path;
use std::sync::Arc;

/// The log's file.
const LOG: &str = "log.redb";
/// There once the log is: a directory that has it and no log has lost its log.
const MARKER: &str = "store";
const MARKER_TEXT: &[u8] =
    b"This directory holds a node's log and snapshots. Its files belong together: copy or delete all or none.\n";

/// All that a node keeps.
#[derive(Debug)]
pub struct Store<C: LogTypes> {
    /// The log, and the small facts that must be as durable.
    pub log: LogStore<C>,
    /// The last snapshot.
    pub snapshots: SnapshotStore,
}

impl<C: LogTypes> Store<C> {
    /// Opens a node's directory, which is made if it is missing, and locks it until everything of the store
    /// is dropped. All of it is read and checked; where something is wrong, nothing is changed.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, StoreError> {
        #[cfg(test)]
        if let Some(disk) = answered::disk_in_place_of(dir.as_ref()) {
            return Self::open_on(disk);
        }
        Self::open_on(Arc::new(Folder::open(dir.as_ref())?))
    }

    /// Opens what is on a disk.
    pub fn open_on(disk: Arc<dyn Disk>) -> Result<Self, StoreError> {
        let names = disk.names().map_err(|error| StoreError::io(disk.path(""), &error))?;
        let has = |name: &str| names.iter().any(|other| other == name);
        let snapshots = SnapshotStore::open(disk.clone(), &names)?;
        if !has(LOG) && (has(MARKER) || has(COMMITS) || snapshots.index().is_some()) {
            return Err(StoreError::MissingLog { path: disk.path(LOG) });
        }
        let (database, content) =
            if has(LOG) { Database::open(&*disk, LOG, false)? } else { new_log(&*disk)? };
        if has(COMMITS) {
            database.check_commits(Commits::open(&*disk)?.read()?)?;
        }
        check_joined(&*disk, &content, snapshots.index())?;
        database.release().map_err(|error| StoreError::io(disk.path(LOG), &error))?;
        if !has(MARKER) {
            disk::put(&*disk, MARKER, |mut out| std::io::Write::write_all(&mut out, MARKER_TEXT))
                .map_err(|error| StoreError::io(disk.path(MARKER), &error))?;
        }
        // Asked again, because a name of before may have been put in place since.
        remove_left_over(&*disk, snapshots.file_name().as_deref())?;
        let database = database.saying(Commits::open(&*disk)?);
        Ok(Self { log: LogStore::on_disk(disk, database, content)?, snapshots })
    }

    /// Writes down whose machine's store this is, or makes sure that it is this one's. To be called once the store has
    /// a snapshot of the machine, at the latest of its beginning: from then on it is never without one.
    pub async fn belongs_to(&self, machine: &str) -> Result<(), StoreError> {
        match self.log.label() {
            None => self.log.set_label(Bytes::copy_from_slice(machine.as_bytes())).await,
            Some(label) if label == machine => Ok(()),
            Some(label) => Err(StoreError::OtherMachine {
                path: self.log.path(),
                found: String::from_utf8_lossy(&label).into_owned(),
                expected: machine.to_owned(),
            }),
        }
    }

    /// A store that forgets all when it is dropped, for tests and for measuring what a disk costs.
    #[must_use]
    pub fn in_memory() -> Self {
        Self { log: LogStore::in_memory(), snapshots: SnapshotStore::in_memory() }
    }
}

/// Makes an empty log, which is put in place when it is whole.
fn new_log<C: LogTypes>(disk: &dyn Disk) -> Result<(Database, Content<C>), StoreError> {
    let refused = |error: &std::io::Error| StoreError::io(disk.path(LOG), error);
    let unfinished = format!("{LOG}{UNFINISHED}");
    // A process that was stopped here may have left half of one.
    drop(disk.create(&unfinished).map_err(|error| refused(&error))?);
    let (database, content) = Database::open(disk, &unfinished, true)?;
    database.release().map_err(|error| refused(&error))?;
    disk.rename(&unfinished, LOG).and_then(|()| disk.sync()).map_err(|error| refused(&error))?;
    Ok((database.named(disk.path(LOG)), content))
}

/// Removes what a process that was stopped left behind: files of this store that were not yet in place, and snapshots
/// before the last.
fn remove_left_over(disk: &dyn Disk, snapshot: Option<&str>) -> Result<(), StoreError> {
    for name in disk.names().map_err(|error| StoreError::io(disk.path(""), &error))? {
        let left_over = match name.strip_suffix(UNFINISHED) {
            Some(meant) => meant == LOG || meant == MARKER || snapshots::is_snapshot(meant),
            None => snapshots::is_snapshot(&name) && Some(&*name) != snapshot,
        };
        if left_over {
            disk.remove(&name).map_err(|error| StoreError::io(disk.path(&name), &error))?;
        }
    }
    Ok(())
}

/// What was purged from the log must be in the snapshot, and the log of a machine goes on from one.
fn check_joined<C: LogTypes>(
    disk: &dyn Disk,
    content: &Content<C>,
    snapshot: Option<u64>,
) -> Result<(), StoreError> {
    let missing = |index, term| {
        let path = disk.path(&snapshots::file_name((index, term)));
        Err(StoreError::MissingSnapshot { path })
    };
    match (content.purged, snapshot) {
        (Some(purged), Some(snapshot)) if purged.index > snapshot => {
            let first = purged.index.saturating_add(1);
            Err(StoreError::Gap { path: disk.path(LOG), first, snapshot })
        }
        (Some(purged), None) => missing(purged.index, purged.leader_id.term),
        (None, None) if content.label.is_some() => missing(0, 0),
        _ => Ok(()),
    }
}

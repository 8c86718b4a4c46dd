//! How many transactions of the log are durable, in a small file beside it.
//!
//! A database that was not closed may have been cut off in the middle of a transaction, so its repair goes back to
//! the one before if the last is not whole. But the last may have been durable, and answered, and then damaged. This
//! file tells the two apart. It is written after each sync and never synced itself: so it never says more than is
//! durable, and if a power cut takes it back it says less, or nothing, which is not held against the log. What was
//! acknowledged before a mere crash it always knows.

use super::disk::Disk;
use super::error::StoreError;
use super::record;
use redb::StorageBackend;
use std::io;
use std::path::PathBuf;

/// The file's name.
pub(super) const COMMITS: &str = "log.commits";

#[derive(Debug)]
pub(super) struct Commits {
    file: Box<dyn StorageBackend>,
    path: PathBuf,
}

impl Commits {
    /// Opens the file, which is made if it is missing.
    pub(super) fn open(disk: &dyn Disk) -> Result<Self, StoreError> {
        let path = disk.path(COMMITS);
        match disk.database(COMMITS) {
            Ok(file) => Ok(Self { file, path }),
            Err(error) => Err(StoreError::io(path, &error)),
        }
    }

    /// How many it says were durable, if it says anything.
    pub(super) fn read(&self) -> Result<Option<u64>, StoreError> {
        let mut bytes = [0; record::NUMBER];
        match self.file.read(0, &mut bytes) {
            Ok(()) => Ok(record::decode_number(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(StoreError::io(self.path.clone(), &error)),
        }
    }

    /// Says that so many are durable.
    pub(super) fn write(&self, commits: u64) {
        if let Err(error) = self.file.write(0, &record::encode_number(commits)) {
            // Nothing is lost. It only knows less if the log is damaged later.
            tracing::warn!(path = %self.path.display(), %error, "the number of durable changes is not noted");
        }
    }
}

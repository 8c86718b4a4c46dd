//! Why a store cannot be opened or written, said so that an operator knows what to do.

use session_runtime::SnapshotError;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a node's directory cannot be opened, or no longer be written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process has the directory open, or this one has it open already.
    Locked {
        /// The lock's file.
        path: PathBuf,
    },
    /// The path is no directory.
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// This process may not read or write there.
    Permission {
        /// The file or directory.
        path: PathBuf,
    },
    /// The disk is full.
    Full {
        /// The file that could not grow.
        path: PathBuf,
    },
    /// The directory had a log, and has none now.
    MissingLog {
        /// Where it should be.
        path: PathBuf,
    },
    /// The log is not as it was written.
    DamagedLog {
        /// The log's file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The log goes on from a snapshot, and there is none.
    MissingSnapshot {
        /// Where it should be, or a later one beside it.
        path: PathBuf,
    },
    /// The log is another machine's.
    OtherMachine {
        /// The log's file.
        path: PathBuf,
        /// The name of the machine that the log is of.
        found: String,
        /// The name of the machine that was to have it.
        expected: String,
    },
    /// The snapshot is damaged, or another machine's, or a later build's.
    Snapshot {
        /// The snapshot's file.
        path: PathBuf,
        /// What is wrong with it.
        error: SnapshotError,
    },
    /// The snapshot's file has another snapshot's name.
    Renamed {
        /// The file.
        path: PathBuf,
        /// The index of what is in it.
        index: u64,
        /// The term of what is in it.
        term: u64,
    },
    /// The snapshot cannot be written, because of what is in it.
    Unwritable {
        /// The snapshot's file.
        path: PathBuf,
        /// What is wrong with it.
        error: SnapshotError,
    },
    /// A later release wrote the file.
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// The format version it has.
        version: u64,
    },
    /// Entries are missing between the snapshot and the log.
    Gap {
        /// The log's file.
        path: PathBuf,
        /// The first index in the log.
        first: u64,
        /// The last index in the snapshot.
        snapshot: u64,
    },
    /// The operating system refused something else.
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The kind of failure.
        kind: io::ErrorKind,
        /// The operating system's words.
        message: String,
    },
}

impl StoreError {
    /// What an operating system's error at `path` means.
    pub(crate) fn io(path: PathBuf, error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::Permission { path },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path },
            io::ErrorKind::NotADirectory => Self::NotADirectory { path },
            kind => Self::Io { path, kind, message: error.to_string() },
        }
    }

    /// What a database's error at `path` means.
    pub(crate) fn database(path: PathBuf, error: impl Into<redb::Error>) -> Self {
        match error.into() {
            redb::Error::Io(error)
                if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
            {
                Self::DamagedLog { path, problem: error.to_string() }
            }
            redb::Error::Io(error) => Self::io(path, &error),
            redb::Error::UpgradeRequired(version) => Self::UnknownFormat { path, version: version.into() },
            redb::Error::DatabaseAlreadyOpen => Self::Locked { path },
            redb::Error::Corrupted(problem) => Self::DamagedLog { path, problem },
            // It writes nothing after a failure, and the file is as it was.
            error @ (redb::Error::PreviousIo | redb::Error::LockPoisoned(_)) => {
                Self::Io { path, kind: io::ErrorKind::Other, message: error.to_string() }
            }
            error => Self::DamagedLog { path, problem: error.to_string() },
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked { path } => write!(
                f,
                "{} is locked: another node has this directory open; stop it, or give this one a directory of its own. A \
                 node that was dropped lets go a little later; `shutdown` waits for it",
                path.display()
            ),
            Self::NotADirectory { path } => {
                write!(f, "{} is not a directory; name a directory for the node's files", path.display())
            }
            Self::Permission { path } => write!(
                f,
                "{} may not be read or written by this process; give its user the right to, and look whether the \
                 disk is read-only",
                path.display()
            ),
            Self::Full { path } => {
                write!(f, "the disk is full: {} cannot grow; free some space", path.display())
            }
            Self::MissingLog { path } => write!(
                f,
                "{} is missing, and the other files of its directory are not; put it back from a backup of the whole \
                 directory",
                path.display()
            ),
            Self::DamagedLog { path, problem } => write!(
                f,
                "the log {} is damaged ({problem}); put the whole directory back from a backup, or start this node \
                 with an empty one if other nodes have its data",
                path.display()
            ),
            Self::MissingSnapshot { path } => write!(
                f,
                "the snapshot {} is missing, or the later one that was in its place: the log goes on from there, and \
                 nothing else has what was before; put the whole directory back from a backup",
                path.display()
            ),
            Self::OtherMachine { path, found, expected } => write!(
                f,
                "{} is the log of the machine `{found}`, not of `{expected}`; open its directory with `{found}`, and \
                 give `{expected}` one of its own",
                path.display()
            ),
            Self::Snapshot { path, error } => write!(
                f,
                "the snapshot {} cannot be used: {error}. If the file is damaged, put the whole directory back from \
                 a backup, or start this node with an empty one if other nodes have its data",
                path.display()
            ),
            Self::Renamed { path, index, term } => write!(
                f,
                "{} holds a snapshot of index {index} in term {term}, which is not what its name says; give it its \
                 name again, or put the whole directory back from a backup",
                path.display()
            ),
            Self::Unwritable { path, error } => {
                write!(f, "the snapshot {} cannot be written: {error}", path.display())
            }
            Self::UnknownFormat { path, version } => write!(
                f,
                "{} has format {version}, which this build cannot read; run a newer build of this program",
                path.display()
            ),
            Self::Gap { path, first, snapshot } => write!(
                f,
                "the log {} begins at index {first}, and the snapshot beside it ends at {snapshot}: the entries \
                 between are missing; put the whole directory back from a backup",
                path.display()
            ),
            Self::Io { path, message, .. } => write!(f, "{} cannot be used: {message}", path.display()),
        }
    }
}

// Its words have those of what caused it.
impl std::error::Error for StoreError {}

//! What can go wrong with a node, in words for the one who has to mend it.

use crate::store::StoreError;
use session_runtime::client::ClientError;
use session_runtime::{EncodeError, EntryError, Halted, RequestError, SnapshotError};
use std::fmt;
use std::path::PathBuf;

/// Why a node stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stopped {
    /// [`shutdown`](crate::Node::shutdown) was called, or the node was dropped, or the runtime it was opened in.
    Shutdown,
    /// The machine's own code panicked, or gave what cannot be encoded.
    Halted(Halted),
    /// The log goes on with something that this build does not know.
    NeedsBuild {
        /// The entry.
        index: u64,
        /// What it needs.
        problem: String,
    },
    /// A log entry cannot be read.
    Entry {
        /// The entry.
        index: u64,
        /// What is wrong with it.
        problem: EntryError,
    },
    /// The directory can no longer be written.
    Store(StoreError),
    /// openraft itself, in its words.
    Storage(String),
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shutdown => write!(f, "the node was shut down; open it again to go on"),
            Self::Halted(Halted { index, command, message }) => write!(
                f,
                "the machine halted at log index {index} in `{command}`: {message}. Open the node with a build that \
                 handles the entry; or with `skip: vec![{index}]` in its `Config`, and the entry never runs"
            ),
            Self::NeedsBuild { index, problem } => {
                write!(f, "the node stopped before log entry {index}: {problem}")
            }
            Self::Entry { index, problem } => write!(
                f,
                "the node stopped before log entry {index}, which cannot be read: {problem}; restore the directory \
                 from a copy"
            ),
            Self::Store(error) => write!(f, "the node stopped: {error}; then open it again"),
            Self::Storage(problem) => {
                write!(f, "the node stopped: {problem}; mend the cause and open the node again")
            }
        }
    }
}

impl std::error::Error for Stopped {}

/// Why a node could not be opened. What the directory holds is as it was.
///
/// `{:?}` gives the same words as `{}`, because that is what a `main` that returns it prints.
#[non_exhaustive]
pub enum OpenError {
    /// The directory and what is in it.
    Store(StoreError),
    /// The directory is not this machine's, or not this build's.
    Machine {
        /// The directory.
        dir: PathBuf,
        /// What does not fit.
        problem: SnapshotError,
    },
    /// An entry to be skipped lies before the snapshot: it has been applied, and cannot be undone.
    SkipTooLate {
        /// The entry.
        index: u64,
        /// The snapshot's last entry.
        snapshot: u64,
    },
    /// An entry to be skipped is not in the log yet: whatever comes there must not be skipped unseen.
    SkipTooEarly {
        /// The entry.
        index: u64,
        /// The log's last entry.
        last: u64,
    },
    /// The node stopped while it applied its log.
    Stopped(Stopped),
}

impl fmt::Debug for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Machine { dir, problem } => {
                write!(f, "`{}` cannot be opened by this machine: {problem}", dir.display())?;
                match problem {
                    // It says itself what to run.
                    SnapshotError::NeedsBuild { .. } => Ok(()),
                    SnapshotError::WrongMachine { .. } | SnapshotError::WrongKind { .. } => {
                        write!(f, "; open it with its own machine, or give this one a directory of its own")
                    }
                    _ => write!(f, "; or open it with the build that it belongs to"),
                }
            }
            Self::SkipTooLate { index, snapshot } => write!(
                f,
                "log entry {index} cannot be skipped: the snapshot already covers everything up to entry {snapshot}; \
                 take it out of `Config::skip`"
            ),
            Self::SkipTooEarly { index, last } => write!(
                f,
                "log entry {index} cannot be skipped: the log ends at entry {last}; take it out of `Config::skip`"
            ),
            Self::Stopped(stopped) => stopped.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<Stopped> for OpenError {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Store(error) => Self::Store(error),
            stopped => Self::Stopped(stopped),
        }
    }
}

impl From<StoreError> for OpenError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Why a node did not do what its operator asked.
///
/// `{:?}` gives the same words as `{}`, because that is what a `main` that returns it prints.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeError {
    /// The node stopped. What was under way may or may not be in the log.
    Stopped(Stopped),
    /// The node does not lead: ask the one that does.
    NotLeader {
        /// Where the leader is, if this node knows.
        leader: Option<String>,
    },
    /// The version is above what this build knows: it could not apply its own upgrade.
    UnknownVersion {
        /// The version asked for.
        version: u32,
        /// The highest version this build knows.
        build: u32,
    },
    /// The command has no answer.
    Request(RequestError),
    /// The command cannot be encoded.
    Encode(EncodeError),
    /// No snapshot could be taken. The node goes on.
    Snapshot(String),
    /// It was refused before it reached the log.
    Refused(String),
}

impl fmt::Debug for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped(stopped) => stopped.fmt(f),
            Self::NotLeader { leader: Some(leader) } => write!(f, "this node does not lead; ask {leader}"),
            Self::NotLeader { leader: None } => {
                write!(f, "this node does not lead, and knows of no leader; ask again")
            }
            Self::UnknownVersion { version, build } => write!(
                f,
                "this build knows the machine up to version {build}, not {version}; run a build that knows it \
                 everywhere first"
            ),
            Self::Request(error) => error.fmt(f),
            Self::Encode(error) => error.fmt(f),
            Self::Snapshot(problem) => write!(f, "no snapshot was taken: {problem}"),
            Self::Refused(problem) => f.write_str(problem),
        }
    }
}

impl std::error::Error for NodeError {}

impl From<NodeError> for ClientError {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::Request(error) => error.into(),
            NodeError::Encode(error) => Self::Encode(error),
            error => Self::Transport(error.to_string()),
        }
    }
}

//! What can go wrong, said so that a person knows what to do.

use crate::codec::DecodeError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;

/// Why an entry was not applied, or a snapshot not taken. The machine is as it was before, except that it may
/// now be halted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ApplyError {
    /// The index is not above the last one applied: the entry was applied before.
    OutOfOrder {
        /// The index given.
        index: u64,
        /// The index last applied.
        last_applied: u64,
    },
    /// User code panicked or gave what cannot be encoded, now or earlier. Nothing is applied any more.
    Halted(Halted),
    /// The entry raises the version beyond what this build knows. A newer build can go on from here.
    NeedsBuild {
        /// The version the build must know.
        version: u32,
    },
    /// A state field cannot be captured. The machine goes on.
    State {
        /// The field.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfOrder { index, last_applied } => write!(
                f,
                "the entry at index {index} was applied before: the machine is at index {last_applied}; feed it the log in order"
            ),
            Self::Halted(halted) => halted.fmt(f),
            Self::NeedsBuild { version } => write!(
                f,
                "the log raises the machine to version {version}, which this build does not know; run a newer build from here on"
            ),
            Self::State { field, problem } => {
                write!(f, "the state field `{field}` cannot be captured: {problem}")
            }
        }
    }
}

impl std::error::Error for ApplyError {}

/// Where and why a machine halted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halted {
    /// The index of the entry that was being applied.
    pub index: u64,
    /// The command or hook that was running.
    pub command: String,
    /// What it said.
    pub message: String,
}

impl fmt::Display for Halted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the machine halted at log index {} in `{}`: {}. Restart from before that entry and either run a build \
             that handles it, or `skip` it on every replica",
            self.index, self.command, self.message
        )
    }
}

/// Why a query was not answered. The machine is as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueryError {
    /// The payload is no query of this machine.
    Invalid(DecodeError),
    /// The query method panicked.
    Panicked(String),
    /// The answer cannot be encoded.
    Encode(crate::codec::EncodeError),
    /// The machine is halted and shows nothing.
    Halted(Halted),
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(error) => write!(f, "the payload is no query of this machine: {error}"),
            Self::Panicked(message) => write!(f, "the query panicked: {message}"),
            Self::Encode(error) => write!(f, "the query's answer cannot be encoded: {error}"),
            Self::Halted(halted) => halted.fmt(f),
        }
    }
}

impl std::error::Error for QueryError {}

/// Why a snapshot could not be written, read or restored. Whoever asked is unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The input does not begin like a snapshot.
    NotASnapshot,
    /// A later release wrote it.
    UnknownFormat {
        /// The format version it has.
        version: u32,
    },
    /// A checksum does not match: bytes were changed, or blocks are missing or out of place.
    Damaged {
        /// Which block, counted from 0 for the header.
        block: u64,
    },
    /// The input ends too early.
    Truncated,
    /// The input goes on behind the snapshot's end.
    Trailing,
    /// It is another machine's.
    WrongMachine {
        /// This machine's name.
        expected: String,
        /// The name in the snapshot.
        found: String,
    },
    /// It is of another wrapper: sessions, serials or ids.
    WrongKind {
        /// The kind asked for.
        expected: String,
        /// The kind in the snapshot.
        found: String,
    },
    /// A newer version of the machine wrote it.
    NeedsBuild {
        /// The version the build must know.
        version: u32,
    },
    /// The commands, replies, server requests or state fields are not this build's.
    Schema {
        /// The first difference.
        difference: String,
    },
    /// There is a key that nobody reads.
    UnknownKey {
        /// The key.
        key: String,
    },
    /// There is no such key.
    MissingKey {
        /// The key.
        key: String,
    },
    /// The value of a key is not what it must be.
    Value {
        /// The key.
        key: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A state field cannot be encoded or restored.
    State {
        /// The field.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Reading or writing failed.
    Io {
        /// The kind of failure.
        kind: io::ErrorKind,
        /// The operating system's words.
        message: String,
    },
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotASnapshot => {
                write!(f, "this is no snapshot: it does not begin like one; check which file it is")
            }
            Self::UnknownFormat { version } => write!(
                f,
                "the snapshot has format {version}, which this build cannot read; run a newer build of this program"
            ),
            Self::Damaged { block } => {
                write!(f, "the snapshot is damaged in block {block}; take it again from another replica")
            }
            Self::Truncated => write!(f, "the snapshot is cut short; take it again from another replica"),
            Self::Trailing => {
                write!(f, "there are bytes behind the snapshot's end; take it again from another replica")
            }
            Self::WrongMachine { expected, found } => write!(
                f,
                "the snapshot is of the machine `{found}`, not of `{expected}`; check which file or cluster it came from"
            ),
            Self::WrongKind { expected, found } => write!(
                f,
                "the snapshot is of a machine wrapped with {found}, not with {expected}; restore it with that wrapper"
            ),
            Self::NeedsBuild { version } => write!(
                f,
                "the snapshot is of version {version}, which this build does not know; run a newer build"
            ),
            Self::Schema { difference } => {
                write!(f, "the snapshot does not fit this build: {difference}")
            }
            Self::UnknownKey { key } => write!(
                f,
                "the snapshot has the key `{key}`, which this build does not read; run the build that wrote it"
            ),
            Self::MissingKey { key } => {
                write!(f, "the snapshot lacks the key `{key}`; run the build that wrote it")
            }
            Self::Value { key, problem } => {
                write!(f, "the snapshot's value at `{key}` is wrong: {problem}; run the build that wrote it")
            }
            Self::State { field, problem } => {
                write!(
                    f,
                    "the state field `{field}` cannot be written to the snapshot or read from it: {problem}"
                )
            }
            Self::Io { message, .. } => {
                write!(f, "the snapshot could not be read or written: {message}")
            }
        }
    }
}

impl std::error::Error for SnapshotError {}

impl From<io::Error> for SnapshotError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Truncated,
            kind => Self::Io { kind, message: error.to_string() },
        }
    }
}

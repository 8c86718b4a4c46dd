//! The byte form of a log entry, the same for every wrapper.

use crate::{
    action::RaftAction,
    codec::{self, DecodeError, EncodeError},
    identity::Timestamp,
};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use std::fmt;

/// The byte that every entry of this format starts with.
const FORMAT: u8 = 1;

/// An action that stands in log entries.
pub(crate) trait LogAction: Serialize + DeserializeOwned {
    /// How many actions this build knows: their tags in an entry's bytes are below this number.
    const COUNT: u32;

    /// The version to which an `Upgrade` raises the machine; `None` for every other action.
    fn upgrade(&self) -> Option<u32>;
}

/// Defines the entry of an action: each wrapper has its own, and all have one byte form.
macro_rules! entry {
    ($(#[$doc:meta])* $name:ident, $action:ty) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct $name {
            /// The leader's time as it appended the entry.
            pub time: $crate::identity::Timestamp,
            /// What to do.
            pub action: $action,
        }

        impl $name {
            /// The entry's bytes.
            pub fn try_encode(&self) -> Result<bytes::Bytes, $crate::codec::EncodeError> {
                $crate::entry::try_encode(self.time, &self.action)
            }

            /// The entry's bytes.
            ///
            /// # Panics
            ///
            /// If they would be more than [`codec::MAX_STATE`](crate::codec::MAX_STATE);
            /// [`try_encode`](Self::try_encode) returns that as an error. An entry whose payload is a command
            /// within [`codec::MAX_PAYLOAD`](crate::codec::MAX_PAYLOAD) never is.
            #[allow(clippy::panic)] // documented, with a way around it
            pub fn encode(&self) -> bytes::Bytes {
                match self.try_encode() {
                    Ok(bytes) => bytes,
                    Err(error) => panic!("the entry cannot be encoded: {error}"),
                }
            }

            /// Reads an entry's bytes.
            pub fn decode(bytes: &[u8]) -> Result<Self, $crate::entry::EntryError> {
                let (time, action) = $crate::entry::decode(bytes)?;
                Ok(Self { time, action })
            }
        }
    };
}

#[cfg(any(feature = "serials", feature = "ids"))]
pub(crate) use entry;

entry! {
    /// What the log holds: an action and the leader's time for it.
    ///
    /// The byte form is one byte of format version and the encoded entry. Entries written by this release can be
    /// read by every later one.
    ///
    /// ```
    /// use session_runtime::{Entry, RaftAction, Timestamp};
    ///
    /// let entry = Entry { time: Timestamp(1_000), action: RaftAction::Tick };
    /// assert_eq!(Entry::decode(&entry.encode()), Ok(entry));
    /// ```
    Entry, RaftAction
}

impl LogAction for RaftAction {
    const COUNT: u32 = 10;

    fn upgrade(&self) -> Option<u32> {
        match self {
            Self::Upgrade { version } => Some(*version),
            _ => None,
        }
    }
}

pub(crate) fn try_encode<A: LogAction>(time: Timestamp, action: &A) -> Result<Bytes, EncodeError> {
    codec::encode_behind(FORMAT, &(time, action))
}

pub(crate) fn decode<A: LogAction>(bytes: &[u8]) -> Result<(Timestamp, A), EntryError> {
    let body = match bytes.split_first() {
        Some((&FORMAT, body)) => body,
        Some((&version, _)) => return Err(EntryError::UnknownFormat { version }),
        None => return Err(EntryError::Damaged(DecodeError::Truncated)),
    };
    codec::decode_state(body).map_err(|error| match codec::decode_start(body) {
        // An action of a later release is not damage, and an operator must do another thing.
        Ok((Timestamp(_), tag)) if tag >= A::COUNT => EntryError::UnknownAction { tag },
        _ => EntryError::Damaged(error),
    })
}

/// Why bytes could not be read as an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryError {
    /// A later release wrote it. Like [`ApplyError::NeedsBuild`](crate::ApplyError::NeedsBuild): do not go
    /// on, and replace this build by a newer one.
    UnknownFormat {
        /// The format version it has.
        version: u8,
    },
    /// A later release wrote it. Like [`ApplyError::NeedsBuild`](crate::ApplyError::NeedsBuild): do not go
    /// on, and replace this build by a newer one.
    UnknownAction {
        /// The tag of the action.
        tag: u32,
    },
    /// The bytes are damaged, or no entry.
    Damaged(DecodeError),
}

impl EntryError {
    /// Whether a newer build could read the entry. If so, replace this build; else the log is damaged.
    pub fn needs_build(&self) -> bool {
        !matches!(self, Self::Damaged(_))
    }
}

impl From<DecodeError> for EntryError {
    fn from(error: DecodeError) -> Self {
        Self::Damaged(error)
    }
}

impl fmt::Display for EntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownFormat { version } => write!(
                f,
                "the log entry has format {version}, this build reads format {FORMAT}; run a newer build of this program"
            ),
            Self::UnknownAction { tag } => write!(
                f,
                "the log entry holds action {tag}, which this build does not know; run a newer build of this program"
            ),
            Self::Damaged(error) => {
                write!(f, "the bytes are no log entry: {error}; restore the log from another replica")
            }
        }
    }
}

impl std::error::Error for EntryError {}

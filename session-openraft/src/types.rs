//! What openraft is told about our log: kept here, and out of every signature a user needs.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use session_runtime::{RequestError, Response, SessionKey};
use std::fmt;

openraft::declare_raft_types!(
    /// The types of a replicated session machine.
    pub TypeConfig:
        D = Proposal,
        R = Applied,
        NodeId = u64,
        Node = openraft::BasicNode,
        Entry = openraft::Entry<TypeConfig>,
        SnapshotData = session_runtime::Snapshot,
        AsyncRuntime = openraft::TokioRuntime,
);

/// What the log holds of an entry: the bytes of a [`session_runtime::Entry`].
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// The encoded entry.
    pub entry: Bytes,
    /// The request it carries, on the node that proposes it, so that its gate learns of the append.
    #[serde(skip)]
    pub key: Option<SessionKey>,
}

impl fmt::Debug for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proposal({} bytes)", self.entry.len())
    }
}

impl From<Bytes> for Proposal {
    fn from(entry: Bytes) -> Self {
        Self { entry, key: None }
    }
}

impl AsRef<[u8]> for Proposal {
    fn as_ref(&self) -> &[u8] {
        &self.entry
    }
}

/// What the one who proposed an entry is told. Everything that has a session goes to that session's client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Applied {
    /// Nothing beyond the fact.
    Done,
    /// The answer to an internal command.
    Internal(Result<Response, RequestError>),
}

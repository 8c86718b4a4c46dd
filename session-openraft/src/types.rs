//! What openraft is told about our log: kept here, and out of every signature a user needs.

use bytes::{BufMut, Bytes, BytesMut};
use openraft::raft::ClientWriteResult;
use openraft::raft::responder::Responder;
use serde::{Deserialize, Serialize};
use session_runtime::{RequestError, Response};
use std::fmt;
use tokio::sync::oneshot;

openraft::declare_raft_types!(
    /// The types of a replicated session machine.
    pub TypeConfig:
        D = Proposal,
        R = Applied,
        NodeId = u64,
        Node = openraft::BasicNode,
        Entry = openraft::Entry<TypeConfig>,
        SnapshotData = session_runtime::Snapshot,
        AsyncRuntime = crate::tasks::Tasks,
        Responder = Tell,
);

/// What stands at one place of openraft's log: the bytes of a [`session_runtime::Entry`], or of several that came
/// together and share the place.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    bytes: Bytes,
    /// Whether somebody waits for what openraft says of it.
    #[serde(skip)]
    awaited: bool,
}

/// The first byte where there are several, each behind its length. The first byte of an entry is the version of its
/// format, which is never this.
const SEVERAL: u8 = 0;

const LENGTH: usize = size_of::<u32>();

impl Proposal {
    /// Encoded entries that share a place, in this order.
    pub(crate) fn of(entries: &[Bytes]) -> Self {
        if let [entry] = entries {
            return entry.clone().into();
        }
        let length = entries.iter().map(|entry| LENGTH + entry.len()).sum::<usize>();
        let mut bytes = BytesMut::with_capacity(1 + length);
        bytes.put_u8(SEVERAL);
        for entry in entries {
            // No entry is longer than the codec's maximum, which is far below.
            bytes.put_u32_le(u32::try_from(entry.len()).unwrap_or(u32::MAX));
            bytes.put_slice(entry);
        }
        bytes.freeze().into()
    }

    /// The same, for one who waits for what openraft says of it.
    pub(crate) fn awaited(self) -> Self {
        Self { awaited: true, ..self }
    }

    /// The encoded entries. What is cut short shows as an empty one, which is no entry.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &[u8]> {
        let (mut several, mut rest) = match &*self.bytes {
            [SEVERAL, rest @ ..] => (true, rest),
            one => (false, one),
        };
        let mut first = true;
        std::iter::from_fn(move || {
            if rest.is_empty() && !first {
                return None;
            }
            first = false;
            let whole = if several { split(rest) } else { Some((rest, &rest[rest.len()..])) };
            several &= whole.is_some();
            let (entry, left) = whole.unwrap_or_default();
            rest = left;
            Some(entry)
        })
    }
}

fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH>()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

/// The machine's index of the first entry at a place of the log. Entries that share a place are counted on from
/// there, so the machine's count may be ahead of the log's; it is the same on every replica.
pub(crate) fn first_index(last_applied: u64, place: u64) -> u64 {
    place.max(last_applied.saturating_add(1))
}

impl fmt::Debug for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proposal({} bytes)", self.bytes.len())
    }
}

impl From<Bytes> for Proposal {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, awaited: false }
    }
}

impl AsRef<[u8]> for Proposal {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// What openraft says of a proposal, to one who waits for it.
pub(crate) type Told = oneshot::Receiver<ClientWriteResult<TypeConfig>>;

/// Tells whoever waits for a proposal. Clients do not: the machine tells them. openraft's own responder would warn of
/// each of those.
#[derive(Debug)]
pub struct Tell(Option<oneshot::Sender<ClientWriteResult<TypeConfig>>>);

impl Responder<TypeConfig> for Tell {
    type Receiver = Option<Told>;

    fn from_app_data(proposal: Proposal) -> (Proposal, Self, Option<Told>) {
        let (tell, told) = proposal.awaited.then(oneshot::channel).unzip();
        (proposal, Self(tell), told)
    }

    fn send(self, result: ClientWriteResult<TypeConfig>) {
        if let Some(tell) = self.0 {
            // It may have gone.
            tell.send(result).ok();
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use session_runtime::{Entry, RaftAction, Timestamp};

    fn entries(count: u64) -> Vec<Bytes> {
        (0..count).map(|time| Entry { time: Timestamp(time), action: RaftAction::Tick }.encode()).collect()
    }

    #[test]
    fn entries_come_out_as_they_went_in() {
        for count in [1, 2, 3, 100] {
            let entries = entries(count);
            let proposal = Proposal::of(&entries);
            assert!(proposal.entries().eq(entries.iter().map(|entry| &**entry)), "{count}");
        }
    }

    #[test]
    fn one_entry_stands_in_the_log_as_it_is() {
        let entry = entries(1).remove(0);
        assert_eq!(Proposal::of(std::slice::from_ref(&entry)).as_ref(), &*entry);
    }

    #[test]
    fn whatever_is_cut_off_is_no_entry() {
        let entries = entries(3);
        let whole = Proposal::of(&entries);
        for length in 0..whole.bytes.len() {
            let cut = Proposal::from(whole.bytes.slice(..length));
            let good = cut.entries().take_while(|entry| Entry::decode(entry).is_ok()).count();
            let found = cut.entries().count();
            // Where one entry ends and another begins nothing is missed, and the log's own checksum must tell.
            let between = length == 1 + good * (LENGTH + entries[0].len()) && good > 0;
            assert_eq!(found, if between { good } else { good + 1 }, "{length}");
            assert!(good < 3, "{length}");
        }
    }

    #[test]
    fn the_machine_counts_on_where_a_place_holds_several_entries() {
        // The log's place where the machine is behind it, or level; else the next.
        for (last_applied, place, expected) in [(0, 1, 1), (3, 5, 5), (4, 5, 5), (5, 5, 6), (40, 7, 41)] {
            assert_eq!(first_index(last_applied, place), expected);
        }
    }
}

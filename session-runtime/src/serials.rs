//! A lighter guarantee than sessions: a high-water mark for each client.
//!
//! A client numbers its commands 1, 2, 3 ... and sends one only when it no longer sends the ones before. A command
//! whose number is not above the client's mark was applied before, or overtaken, and is not applied again. Nothing
//! is kept but one number a client: a duplicate is recognised, but its answer is gone.
//!
//! [`SerialTable`] is the table alone, to be folded into an apply loop of one's own; [`SerialStateMachine`] is a
//! [`StateMachine`] with the table around it.
//!
//! # Who a client is
//!
//! A [`ClientId`] is *durable* or *automatic*. A durable id is any text a client keeps over its restarts; together
//! with a counter that it keeps too, each command is applied at most once for as long as the cluster lives, and its
//! mark is never dropped but by [`SerialTable::close`].
//!
//! A process that keeps nothing takes an automatic id ([`ClientId::auto`]): its node's id and a number that is new
//! at each start, the incarnation. A node runs once at a time, so the first command of a new incarnation proves that
//! the old ones are dead, and their marks are dropped in the same step: the table holds one mark for each node,
//! however often the nodes restart, without any clock.
//!
//! # The hole that remains
//!
//! A command of a dead incarnation may still be on its way. If it arrives behind the first command of the next
//! incarnation, its mark is gone and it is applied again - at least once, never silently dropped - and, as it looks
//! like a new incarnation, it drops the mark of the living one, whose commands under way have then the same hole.
//! Where that is not good enough, use a durable id, [request ids](crate::ids) or
//! [sessions](crate::SessionStateMachine).

use crate::{
    action::{RequestError, Response},
    context::{Context, Turn},
    core::{Core, reads_of_core},
    entry::{LogAction, entry},
    error::{ApplyError, Halted, SnapshotError},
    identity::Timestamp,
    machine::StateMachine,
    snapshot::{Part, Snapshot, Unread, decode_value, encode_value, table_from_bytes, table_to_bytes},
    wire::Deterministic,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

const KIND: &str = "serials";
const TABLE: &str = "SerialTable";
const CLIENT: &str = "session/client/";

/// How every automatic id begins.
const AUTO: &str = "auto:";
/// How many hex digits an incarnation has.
const INCARNATION_DIGITS: usize = 16;

/// Names a client, over restarts (durable) or for one run of a process (automatic).
///
/// ```
/// use session_runtime::serials::ClientId;
///
/// let durable = ClientId::from("orders-service");
/// let automatic = ClientId::auto("node-7", 0x1f);
/// assert_eq!(automatic.as_str(), "auto:node-7-000000000000001f");
/// assert_eq!(automatic.family(), Some("node-7"));
/// assert_eq!(durable.family(), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClientId(String);

impl ClientId {
    /// The automatic id of one run of a process: `auto:`, the node's id, `-`, and the incarnation in 16 lower-case
    /// hex digits. The incarnation must differ from those of all other runs of the node: a time, or 64 random bits.
    ///
    /// A node has a name: for an empty one the result is a durable id like any other text.
    pub fn auto(node: &str, incarnation: u64) -> Self {
        Self(format!("{AUTO}{node}-{incarnation:016x}"))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The node of an automatic id; `None` for a durable one.
    pub fn family(&self) -> Option<&str> {
        self.parts().map(|(family, _)| family)
    }

    /// The node and the incarnation of an automatic id.
    fn parts(&self) -> Option<(&str, u64)> {
        let rest = self.0.strip_prefix(AUTO)?;
        let (rest, digits) = rest.split_at_checked(rest.len().checked_sub(INCARNATION_DIGITS)?)?;
        let family = rest.strip_suffix('-').filter(|family| !family.is_empty())?;
        let lower_hex = digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        let incarnation = u64::from_str_radix(digits, 16).ok().filter(|_| lower_hex)?;
        Some((family, incarnation))
    }
}

impl From<&str> for ClientId {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for ClientId {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Deterministic for ClientId {}

/// What tells a command from a copy of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SerialKey {
    /// Who sent it.
    pub client: ClientId,
    /// The client's number for it, from 1 and rising.
    pub serial: u64,
}

impl Deterministic for SerialKey {}

/// The highest serial applied for each client.
///
/// Fold it into an apply loop: apply an entry only if [`should_apply`](Self::should_apply) says so, and keep the
/// table's bytes in the snapshot.
///
/// ```
/// use session_runtime::serials::{ClientId, SerialKey, SerialTable};
///
/// let mut table = SerialTable::default();
/// let key = SerialKey { client: ClientId::from("orders-service"), serial: 1 };
/// assert!(table.should_apply(Some(&key)));
/// assert!(!table.should_apply(Some(&key)), "a copy");
///
/// let restored = SerialTable::from_bytes(&table.to_bytes())?;
/// assert_eq!(restored, table);
/// # Ok::<(), session_runtime::SnapshotError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SerialTable {
    durable: BTreeMap<ClientId, u64>,
    /// By node: of each only the latest incarnation is there.
    automatic: BTreeMap<String, Incarnation>,
}

/// The latest run of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Incarnation {
    number: u64,
    mark: u64,
}

impl SerialTable {
    /// Whether the entry with this key is to be applied, which is then recorded; `false` for a copy. An entry without
    /// a key is always applied.
    ///
    /// A fresh serial of an automatic id drops the marks of all other incarnations of its node.
    pub fn should_apply(&mut self, key: Option<&SerialKey>) -> bool {
        let Some(SerialKey { client, serial }) = key else {
            return true;
        };
        let fresh = *serial > self.mark(client);
        if fresh {
            self.set_mark(client, *serial);
        }
        fresh
    }

    /// The highest serial applied for a client; 0 if there is none.
    pub fn mark(&self, client: &ClientId) -> u64 {
        let mark = match client.parts() {
            None => self.durable.get(client).copied(),
            Some((family, number)) => self
                .automatic
                .get(family)
                .filter(|incarnation| incarnation.number == number)
                .map(|incarnation| incarnation.mark),
        };
        mark.unwrap_or(0)
    }

    fn set_mark(&mut self, client: &ClientId, mark: u64) {
        match client.parts() {
            None => {
                self.durable.insert(client.clone(), mark);
            }
            Some((family, number)) => {
                self.automatic.insert(family.to_owned(), Incarnation { number, mark });
            }
        }
    }

    /// Drops a client's mark: it is finished. If it is not, the same serials apply again.
    pub fn close(&mut self, client: &ClientId) {
        match client.parts() {
            None => {
                self.durable.remove(client);
            }
            Some((family, number)) => {
                if self.automatic.get(family).is_some_and(|incarnation| incarnation.number == number) {
                    self.automatic.remove(family);
                }
            }
        }
    }

    /// How many clients have a mark.
    pub fn len(&self) -> usize {
        self.durable.len().saturating_add(self.automatic.len())
    }

    /// Whether no client has a mark.
    pub fn is_empty(&self) -> bool {
        self.durable.is_empty() && self.automatic.is_empty()
    }

    /// The table's checked byte form: equal for equal tables, in whatever order their entries came.
    pub fn to_bytes(&self) -> Vec<u8> {
        // It fails only for an id of 4 GiB, and then gives what `from_bytes` refuses.
        table_to_bytes(TABLE, self.save()).unwrap_or_default()
    }

    /// Reads the byte form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let mut unread = table_from_bytes(TABLE, bytes)?;
        let table = Self::load(&mut unread)?;
        unread.finish()?;
        Ok(table)
    }

    /// Every mark, in the order of the clients' ids.
    fn marks(&self) -> BTreeMap<ClientId, u64> {
        let automatic = self
            .automatic
            .iter()
            .map(|(family, incarnation)| (ClientId::auto(family, incarnation.number), incarnation.mark));
        self.durable.iter().map(|(client, mark)| (client.clone(), *mark)).chain(automatic).collect()
    }

    /// The table as parts of a snapshot: one key a client.
    fn save(&self) -> Vec<Part> {
        let table = self.clone();
        vec![Part::late(CLIENT.to_owned(), move |prefix, out| {
            for (client, mark) in table.marks() {
                let key = format!("{prefix}{client}");
                out(&key, encode_value(&key, &mark)?)?;
            }
            Ok(())
        })]
    }

    fn load(unread: &mut Unread) -> Result<Self, SnapshotError> {
        let mut table = Self::default();
        for (client, value) in unread.take_below(CLIENT) {
            let key = format!("{CLIENT}{client}");
            let client = ClientId(client);
            let mark: u64 = decode_value(&key, &value)?;
            let problem = if mark == 0 {
                Some("its mark is 0")
            } else if client.family().is_some_and(|family| table.automatic.contains_key(family)) {
                Some("there is another incarnation of its node")
            } else {
                None
            };
            if let Some(problem) = problem {
                return Err(SnapshotError::Value { key, problem: problem.to_owned() });
            }
            table.set_mark(&client, mark);
        }
        Ok(table)
    }
}

/// What a log entry asks of a [`SerialStateMachine`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SerialAction {
    /// A command, at most once by its key; without a key, once for each entry that holds it.
    Command {
        /// What tells it from a copy.
        key: Option<SerialKey>,
        /// The encoded command.
        payload: Bytes,
    },
    /// A client is finished: its mark is dropped.
    Close {
        /// The client.
        client: ClientId,
    },
    /// Raises the machine's version, so that every replica switches at the same log position.
    Upgrade {
        /// The version from this entry on, if it is higher than the one in force.
        version: u32,
    },
}

impl LogAction for SerialAction {
    const COUNT: u32 = 3;

    fn upgrade(&self) -> Option<u32> {
        match self {
            Self::Upgrade { version } => Some(*version),
            _ => None,
        }
    }
}

entry! {
    /// What the log of a [`SerialStateMachine`] holds: an action and the leader's time for it.
    ///
    /// The byte form is that of [`Entry`](crate::Entry), with the actions of this wrapper.
    SerialEntry, SerialAction
}

/// What became of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SerialOutcome {
    /// The command ran, and this is its answer.
    Applied(Response),
    /// The command was applied before, or a later one of its client was. It did not run, and its answer is gone.
    Duplicate,
    /// The payload is no command that this machine executes for a client at its version. Not executed, and neither
    /// is any copy of it.
    Invalid,
    /// The operators skipped the entry. Not executed, and neither is any copy of it.
    Skipped,
    /// The client's mark is dropped.
    Closed,
    /// The version is at least the one asked for.
    Upgraded,
}

/// A [`StateMachine`] that applies each client's serials at most once, and keeps no answers.
///
/// Feed it every entry of the log in order with [`apply`](Self::apply). The same log gives the same state and the
/// same outcomes on every replica. Handlers run without a session: `cx.session()` is `None`, and so is every
/// `cx.send`. Their generator has the seed of zeros.
///
/// ```
/// # use session_runtime::{ApplyError, Bytes, StateMachine, Timestamp};
/// use session_runtime::serials::{ClientId, SerialAction, SerialKey, SerialOutcome, SerialStateMachine};
///
/// fn twice<M: StateMachine>(machine: M, payload: Bytes) -> Result<(), ApplyError> {
///     let mut machine = SerialStateMachine::new(machine);
///     let key = Some(SerialKey { client: ClientId::from("orders-service"), serial: 1 });
///     let command = SerialAction::Command { key, payload };
///     machine.apply(1, Timestamp(0), command.clone())?;
///     assert_eq!(machine.apply(2, Timestamp(10), command)?, SerialOutcome::Duplicate);
///     Ok(())
/// }
/// ```
pub struct SerialStateMachine<M> {
    core: Core<M>,
    table: SerialTable,
}

impl<M: StateMachine> SerialStateMachine<M> {
    /// A machine at the beginning of its log.
    pub fn new(machine: M) -> Self {
        Self { core: Core::new(machine), table: SerialTable::default() }
    }

    /// Applies a log entry and says what became of it.
    pub fn apply(
        &mut self,
        index: u64,
        time: Timestamp,
        action: SerialAction,
    ) -> Result<SerialOutcome, ApplyError> {
        self.step(index, time, action, false)
    }

    /// Applies all of a log entry except the user's code: a command that would have run is recorded as if it had,
    /// and its outcome is [`SerialOutcome::Skipped`].
    ///
    /// The operators' way past an entry that halts the machine. It must be taken alike on every replica, and at every
    /// replay of the log.
    pub fn skip(
        &mut self,
        index: u64,
        time: Timestamp,
        action: SerialAction,
    ) -> Result<SerialOutcome, ApplyError> {
        self.step(index, time, action, true)
    }

    reads_of_core!();

    /// The highest serial applied for a client, 0 if there is none: where a durable client that lost count goes on.
    /// `None` on a halted machine.
    pub fn mark(&self, client: &ClientId) -> Option<u64> {
        self.core.halted.is_none().then(|| self.table.mark(client))
    }

    /// All of it at this log position.
    pub fn snapshot(&self) -> Result<Snapshot, ApplyError> {
        self.core.save(KIND, self.table.save())
    }

    /// The machine of a snapshot.
    pub fn restore(snapshot: &Snapshot) -> Result<Self, SnapshotError> {
        let (core, mut unread) = Core::load(snapshot, KIND)?;
        let table = SerialTable::load(&mut unread)?;
        unread.finish()?;
        Ok(Self { core, table })
    }

    fn step(
        &mut self,
        index: u64,
        time: Timestamp,
        action: SerialAction,
        skip: bool,
    ) -> Result<SerialOutcome, ApplyError> {
        let mut turn = self.core.begin(index, time, [0; 32], skip, &action)?;
        let result = self.perform(&mut turn, action);
        self.core.end(&turn, result)
    }

    fn perform(&mut self, turn: &mut Turn, action: SerialAction) -> Result<SerialOutcome, Halted> {
        match action {
            SerialAction::Command { key, payload } => {
                // Recorded whatever the payload is: else a copy of an invalid one could run after an upgrade.
                if !self.table.should_apply(key.as_ref()) {
                    return Ok(SerialOutcome::Duplicate);
                }
                Ok(match self.core.execute(Context::new(turn), &payload, false)? {
                    Ok(response) => SerialOutcome::Applied(response),
                    Err(RequestError::Skipped) => SerialOutcome::Skipped,
                    Err(_) => SerialOutcome::Invalid,
                })
            }
            SerialAction::Close { client } => {
                self.table.close(&client);
                Ok(SerialOutcome::Closed)
            }
            // The turn has the version already.
            SerialAction::Upgrade { .. } => Ok(SerialOutcome::Upgraded),
        }
    }
}

//! A lighter guarantee than sessions: free-form request ids.
//!
//! Every request carries an [`Id`] that no other request has, the same in every copy of it. The id and the answer are
//! kept in the replicated state, so a copy gets the recorded answer. There is no registration and no numbering:
//! requests of one client may come in any order, from any number of processes.
//!
//! What is kept is given up when the client says so: each request also names one earlier request whose answer the
//! client has (`acked`). That one's answer is dropped at once, and its bare id after a while, the
//! [retention](IdTable::acked_retention), because a copy of it may still be on its way. Such a copy is answered with
//! [`IdOutcome::Acknowledged`].
//!
//! [`IdTable`] is the table alone, to be folded into an apply loop of one's own; [`IdStateMachine`] is a
//! [`StateMachine`] with the table around it.
//!
//! # The client's part
//!
//! - Every request gets an id of its own, and every copy of it the same one: another payload under a known id gets
//!   the answer recorded for that id. See [`Id`] for how to make them.
//! - Each answered id is acknowledged by one later request, oldest first. One who forgot in a crash acknowledges
//!   nothing.
//! - A request that is sent again keeps its `acked`.
//!
//! # The hole that remains
//!
//! One assumption: no copy of a request travels for longer than the retention after the request was acknowledged. A
//! copy that does runs again. Ids that nobody acknowledges - their client crashed - stay until an operator appends
//! [`IdAction::ForgetBefore`]; nothing is ever dropped by count or age alone, because that would let a slow client's
//! request run twice.

use crate::{
    action::{RequestError, Response},
    context::{Context, Turn},
    core::{Core, reads_of_core},
    entry::{LogAction, entry},
    error::{ApplyError, Halted, SnapshotError},
    identity::Timestamp,
    machine::StateMachine,
    snapshot::{Part, Snapshot, Unread, decode_value, encode_value, table_from_bytes, table_to_bytes},
    state::{from_hex, to_hex},
    wire::Deterministic,
};
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, de::DeserializeOwned};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_128;

const KIND: &str = "ids";
const TABLE: &str = "IdTable";
const REQUEST: &str = "session/request/";
const RETENTION: &str = "session/acked_retention";

/// How long the bare id of an acknowledged request is kept unless configured: ten minutes.
pub const DEFAULT_ACKED_RETENTION: u64 = 10 * 60 * 1000;

/// Names a request: 1 to 64 bytes that no other request has and every copy of this one has.
///
/// - [`from_uuid`](Self::from_uuid): the client draws a UUID for each request and keeps it until the request is
///   answered. Right for almost everybody.
/// - [`of_request`](Self::of_request): a hash of the request, for a client that keeps nothing and simply sends again.
///   **The wrong choice wherever somebody may ask for the same thing twice on purpose**: the second "pay 5 to Bo" is
///   taken for a copy of the first, whoever sent it, and does not run. Right where asking twice means once: "close
///   account 7", or a request that holds an order number of its own.
/// - [`of_client_request`](Self::of_client_request): the same for each client, so that equal requests of two clients
///   are two. One client's equal requests are still one.
///
/// ```
/// use session_runtime::ids::Id;
///
/// let own = Id::try_from(&b"order 4711"[..])?;
/// assert_eq!(own.as_bytes(), b"order 4711");
/// assert!(Id::try_from(&[][..]).is_err());
/// assert!(Id::try_from(&[0; 65][..]).is_err());
/// # Ok::<(), session_runtime::ids::IdError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(Arc<[u8]>);

impl Id {
    /// The most bytes an id may have.
    pub const MAX: usize = 64;

    /// The id of a request for which a UUID was drawn.
    pub fn from_uuid(uuid: [u8; 16]) -> Self {
        Self(uuid.into())
    }

    /// The hash of an encoded request (XXH3, 128 bits), so that equal requests have equal ids: read
    /// [when that is wrong](Self).
    ///
    /// The hash tells requests apart by accident, not by design: where clients do not trust each other, one could
    /// make up a request with the id of another's. Use a UUID or a cryptographic hash there.
    pub fn of_request(payload: &[u8]) -> Self {
        Self::from_uuid(xxh3_128(payload).to_be_bytes())
    }

    /// A client's name of at most 48 bytes and the hash of its encoded request, so that a client's equal requests
    /// have equal ids: read [when that is wrong](Self).
    pub fn of_client_request(client: &[u8], payload: &[u8]) -> Result<Self, IdError> {
        Self::try_from(&[client, Self::of_request(payload).as_bytes()].concat()[..])
    }

    /// The id's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<&[u8]> for Id {
    type Error = IdError;

    fn try_from(bytes: &[u8]) -> Result<Self, IdError> {
        match bytes.len() {
            1..=Self::MAX => Ok(Self(bytes.into())),
            length => Err(IdError { length }),
        }
    }
}

/// In hex.
impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({self})")
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = Bytes::deserialize(deserializer)?;
        Self::try_from(&bytes[..]).map_err(de::Error::custom)
    }
}

impl Deterministic for Id {}

/// The bytes are too few or too many for an [`Id`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdError {
    /// How many there are.
    pub length: usize,
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a request id has 1 to {} bytes, and this one would have {}", Id::MAX, self.length)
    }
}

impl std::error::Error for IdError {}

/// The requests that were executed, and their answers, of a type that the owner chooses.
///
/// Fold it into an apply loop: run a request only if its id is not [known](Self::get), [`record`](Self::record) the
/// answer, [`acknowledge`](Self::acknowledge) what the request acknowledges - of a copy, too, but never the request
/// itself - and [`sweep`](Self::sweep) at the end of every entry. All times are the log's.
///
/// ```
/// use session_runtime::Timestamp;
/// use session_runtime::ids::{Id, IdTable, Known};
///
/// let mut table: IdTable<String> = IdTable::default();
/// let (first, second) = (Id::from_uuid([1; 16]), Id::from_uuid([2; 16]));
///
/// assert_eq!(table.get(&first), None, "fresh: run it");
/// table.record(first.clone(), "done".to_owned(), Timestamp(1_000));
/// assert_eq!(table.get(&first), Some(Known::Answered(&"done".to_owned())), "a copy");
///
/// table.record(second.clone(), "done too".to_owned(), Timestamp(2_000));
/// table.acknowledge(&first, Timestamp(2_000));
/// assert_eq!(table.get(&first), Some(Known::Acknowledged), "a copy that was late");
///
/// table.sweep(Timestamp(602_001));
/// assert_eq!(table.get(&first), None, "ten minutes later it is forgotten");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdTable<A = Response> {
    records: BTreeMap<Id, Record<A>>,
    /// All ids by the time they were recorded, for [`forget_before`](Self::forget_before).
    by_time: BTreeSet<(Timestamp, Id)>,
    /// The bare ids by the time they were acknowledged, for [`sweep`](Self::sweep).
    bare: BTreeSet<(Timestamp, Id)>,
    acked_retention: u64,
}

/// What is kept of one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record<A> {
    recorded_at: Timestamp,
    kept: Kept<A>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Kept<A> {
    Answer(A),
    /// Nothing but the id, since the answer was acknowledged.
    Bare {
        acked_at: Timestamp,
    },
}

/// What a table knows of a request that was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known<'a, A> {
    /// Its answer.
    Answered(&'a A),
    /// The client acknowledged the answer, and it is gone.
    Acknowledged,
}

impl<A> Default for IdTable<A> {
    /// Empty, with a retention of [ten minutes](DEFAULT_ACKED_RETENTION).
    fn default() -> Self {
        Self {
            records: BTreeMap::new(),
            by_time: BTreeSet::new(),
            bare: BTreeSet::new(),
            acked_retention: DEFAULT_ACKED_RETENTION,
        }
    }
}

impl<A> IdTable<A> {
    /// What is known of a request; `None` if it was not executed, or is forgotten.
    pub fn get(&self, id: &Id) -> Option<Known<'_, A>> {
        Some(match &self.records.get(id)?.kept {
            Kept::Answer(answer) => Known::Answered(answer),
            Kept::Bare { .. } => Known::Acknowledged,
        })
    }

    /// Records the answer to a request that was executed now. A known id keeps what it has.
    pub fn record(&mut self, id: Id, answer: A, now: Timestamp) {
        if !self.records.contains_key(&id) {
            self.insert(id, Record { recorded_at: now, kept: Kept::Answer(answer) });
        }
    }

    fn insert(&mut self, id: Id, record: Record<A>) {
        self.by_time.insert((record.recorded_at, id.clone()));
        if let Kept::Bare { acked_at } = record.kept {
            self.bare.insert((acked_at, id.clone()));
        }
        self.records.insert(id, record);
    }

    /// The client has the answer to this request: the answer is dropped, and the id is kept for the retention. An
    /// unknown id, or one acknowledged before: nothing.
    pub fn acknowledge(&mut self, id: &Id, now: Timestamp) {
        if let Some(record) = self.records.get_mut(id)
            && let Kept::Answer(_) = record.kept
        {
            let acked_at = now.max(record.recorded_at);
            record.kept = Kept::Bare { acked_at };
            self.bare.insert((acked_at, id.clone()));
        }
    }

    /// Drops the bare ids whose retention is over. The cost follows what is dropped.
    pub fn sweep(&mut self, now: Timestamp) {
        while self.is_sweep_due(now)
            && let Some((_, id)) = self.bare.pop_first()
        {
            if let Some(record) = self.records.remove(&id) {
                self.by_time.remove(&(record.recorded_at, id));
            }
        }
    }

    fn is_sweep_due(&self, now: Timestamp) -> bool {
        let over = |acked_at: Timestamp| acked_at.saturating_add(self.acked_retention) < now;
        self.bare.first().is_some_and(|(acked_at, _)| self.acked_retention == 0 || over(*acked_at))
    }

    /// Drops every id recorded before a moment, answered or bare, and says how many. The cost follows what is
    /// dropped. A copy of such a request runs again.
    pub fn forget_before(&mut self, time: Timestamp) -> u64 {
        let mut dropped = 0u64;
        while self.by_time.first().is_some_and(|(recorded_at, _)| *recorded_at < time)
            && let Some((_, id)) = self.by_time.pop_first()
        {
            if let Some(Record { kept: Kept::Bare { acked_at }, .. }) = self.records.remove(&id) {
                self.bare.remove(&(acked_at, id));
            }
            dropped = dropped.saturating_add(1);
        }
        dropped
    }

    /// For how many milliseconds of log time a bare id is kept.
    pub fn acked_retention(&self) -> u64 {
        self.acked_retention
    }

    /// Sets the retention, for all ids from the next sweep on; with 0 an acknowledged id is dropped at once.
    pub fn set_acked_retention(&mut self, milliseconds: u64) {
        self.acked_retention = milliseconds;
    }

    /// How many ids are known, bare ones too.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether no id is known.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

impl<A: Serialize + DeserializeOwned + Clone + Send + Sync + 'static> IdTable<A> {
    /// The table's checked byte form: equal for equal tables.
    pub fn to_bytes(&self) -> Result<Vec<u8>, SnapshotError> {
        table_to_bytes(TABLE, self.save()?)
    }

    /// Reads the byte form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let mut unread = table_from_bytes(TABLE, bytes)?;
        let table = Self::load(&mut unread, Timestamp(u64::MAX))?;
        unread.finish()?;
        Ok(table)
    }

    /// The table as parts of a snapshot: one key a request.
    fn save(&self) -> Result<Vec<Part>, SnapshotError> {
        let records = self.records.clone();
        let requests = Part::late(REQUEST.to_owned(), move |prefix, out| {
            for (id, record) in &records {
                let key = format!("{prefix}{id}");
                out(&key, encode_value(&key, record)?)?;
            }
            Ok(())
        });
        Ok(vec![Part::encoded(RETENTION, &self.acked_retention)?, requests])
    }

    /// The table of a snapshot taken at a time that no record is behind.
    fn load(unread: &mut Unread, now: Timestamp) -> Result<Self, SnapshotError> {
        let mut table = Self { acked_retention: unread.decode(RETENTION)?, ..Self::default() };
        for (hex, value) in unread.take_below(REQUEST) {
            let key = format!("{REQUEST}{hex}");
            let wrong =
                |problem: &str| SnapshotError::Value { key: key.clone(), problem: problem.to_owned() };
            let id = from_hex(&hex)
                .and_then(|bytes| Id::try_from(&bytes[..]).ok())
                .ok_or_else(|| wrong("the key does not end in a request id"))?;
            let record: Record<A> = decode_value(&key, &value)?;
            if record.recorded_at > now {
                return Err(wrong("it was recorded behind the clock"));
            }
            if let Kept::Bare { acked_at } = record.kept
                && (acked_at < record.recorded_at || acked_at > now)
            {
                return Err(wrong("it was acknowledged before it was recorded, or behind the clock"));
            }
            table.insert(id, record);
        }
        Ok(table)
    }
}

/// What a log entry asks of an [`IdStateMachine`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IdAction {
    /// A client's command, once by its id.
    Request {
        /// What tells it from a copy.
        id: Id,
        /// An earlier request whose answer the client has.
        acked: Option<Id>,
        /// The encoded command.
        payload: Bytes,
    },
    /// The operators': drops every id recorded before a moment, for the requests of crashed clients that nobody will
    /// acknowledge. A copy of such a request runs again.
    ForgetBefore {
        /// The moment, of the log's time.
        time: Timestamp,
    },
    /// Sets the retention.
    Configure {
        /// For how many milliseconds of log time the id of an acknowledged request is kept; 0 for not at all.
        acked_retention: u64,
    },
    /// Raises the machine's version, so that every replica switches at the same log position.
    Upgrade {
        /// The version from this entry on, if it is higher than the one in force.
        version: u32,
    },
}

impl LogAction for IdAction {
    const COUNT: u32 = 4;

    fn upgrade(&self) -> Option<u32> {
        match self {
            Self::Upgrade { version } => Some(*version),
            _ => None,
        }
    }
}

entry! {
    /// What the log of an [`IdStateMachine`] holds: an action and the leader's time for it.
    ///
    /// The byte form is that of [`Entry`](crate::Entry), with the actions of this wrapper.
    IdEntry, IdAction
}

/// What became of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IdOutcome {
    /// The command ran, and this is its answer.
    Executed(Response),
    /// The command ran before, and this is the answer it had.
    Duplicate(Response),
    /// The command ran before, the client acknowledged the answer, and it is gone.
    Acknowledged,
    /// The payload is no command that this machine executes for a client at its version. Not executed, and neither
    /// is any copy of it.
    Invalid,
    /// The operators skipped the entry. Not executed, and neither is any copy of it.
    Skipped,
    /// So many ids were dropped.
    Forgotten(u64),
    /// The retention is set.
    Configured,
    /// The version is at least the one asked for.
    Upgraded,
}

/// The recorded answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Answer {
    Response(Response),
    Invalid,
    Skipped,
}

impl Answer {
    fn new(result: Result<Response, RequestError>) -> Self {
        match result {
            Ok(response) => Self::Response(response),
            Err(RequestError::Skipped) => Self::Skipped,
            Err(_) => Self::Invalid,
        }
    }

    /// The outcome for a request that ran just now, or for a copy of it.
    fn outcome(&self, of_response: impl FnOnce(Response) -> IdOutcome) -> IdOutcome {
        match self {
            Self::Response(response) => of_response(response.clone()),
            Self::Invalid => IdOutcome::Invalid,
            Self::Skipped => IdOutcome::Skipped,
        }
    }
}

/// A [`StateMachine`] that runs each request once by its id, and keeps the answer until it is acknowledged.
///
/// Feed it every entry of the log in order with [`apply`](Self::apply). The same log gives the same state and the
/// same outcomes on every replica. Handlers run without a session: `cx.session()` is `None`, and so is every
/// `cx.send`. Their generator has the seed of zeros.
///
/// ```
/// # use session_runtime::{ApplyError, Bytes, StateMachine, Timestamp};
/// use session_runtime::ids::{Id, IdAction, IdOutcome, IdStateMachine};
///
/// fn twice<M: StateMachine>(machine: M, payload: Bytes) -> Result<(), ApplyError> {
///     let mut machine = IdStateMachine::new(machine);
///     let request = IdAction::Request { id: Id::from_uuid([7; 16]), acked: None, payload };
///     if let IdOutcome::Executed(response) = machine.apply(1, Timestamp(0), request.clone())? {
///         assert_eq!(machine.apply(2, Timestamp(10), request)?, IdOutcome::Duplicate(response));
///     }
///     Ok(())
/// }
/// ```
pub struct IdStateMachine<M> {
    core: Core<M>,
    table: IdTable<Answer>,
}

impl<M: StateMachine> IdStateMachine<M> {
    /// A machine at the beginning of its log.
    pub fn new(machine: M) -> Self {
        Self { core: Core::new(machine), table: IdTable::default() }
    }

    /// Applies a log entry and says what became of it.
    pub fn apply(&mut self, index: u64, time: Timestamp, action: IdAction) -> Result<IdOutcome, ApplyError> {
        self.step(index, time, action, false)
    }

    /// Applies all of a log entry except the user's code: a request that would have run is answered with
    /// [`IdOutcome::Skipped`], and so is every copy of it.
    ///
    /// The operators' way past an entry that halts the machine. It must be taken alike on every replica, and at every
    /// replay of the log.
    pub fn skip(&mut self, index: u64, time: Timestamp, action: IdAction) -> Result<IdOutcome, ApplyError> {
        self.step(index, time, action, true)
    }

    reads_of_core!();

    /// The recorded answer to a request: its response, or why it has none ([`RequestError::InvalidPayload`],
    /// [`RequestError::Skipped`]). `None` if it was not executed, or its answer was acknowledged.
    pub fn cached_response(&self, id: &Id) -> Option<Result<Response, RequestError>> {
        match self.known(id)? {
            Known::Answered(Answer::Response(response)) => Some(Ok(response.clone())),
            Known::Answered(Answer::Invalid) => Some(Err(RequestError::InvalidPayload)),
            Known::Answered(Answer::Skipped) => Some(Err(RequestError::Skipped)),
            Known::Acknowledged => None,
        }
    }

    /// What applying a copy of a request would give, for the leader's [gate](crate::admission); `None` if it is to be
    /// appended. A copy answered at the gate loses nothing: it has the `acked` of the one that was applied.
    ///
    /// ```
    /// # use session_runtime::{StateMachine, admission::{Admission, Admit}, ids::{Id, IdOutcome, IdStateMachine}};
    /// fn arrived<M: StateMachine>(
    ///     gate: &mut Admission<Id>,
    ///     machine: &IdStateMachine<M>,
    ///     term: u64,
    ///     id: &Id,
    /// ) -> Admit<IdOutcome> {
    ///     gate.admit(term, id, machine.answer_to(id))
    /// }
    /// ```
    pub fn answer_to(&self, id: &Id) -> Option<IdOutcome> {
        Some(outcome_of_copy(&self.known(id)?))
    }

    /// For how many milliseconds of log time the id of an acknowledged request is kept.
    pub fn acked_retention(&self) -> u64 {
        self.table.acked_retention()
    }

    /// All of it at this log position.
    pub fn snapshot(&self) -> Result<Snapshot, ApplyError> {
        let layer = self.table.save().map_err(|error| ApplyError::State {
            field: "(request ids)".to_owned(),
            problem: error.to_string(),
        })?;
        self.core.save(KIND, layer)
    }

    /// The machine of a snapshot. Every retry after it is answered with the same bytes as before.
    pub fn restore(snapshot: &Snapshot) -> Result<Self, SnapshotError> {
        let (core, mut unread) = Core::load(snapshot, KIND)?;
        let table = IdTable::load(&mut unread, core.time)?;
        if table.is_sweep_due(core.time) {
            return Err(SnapshotError::Value {
                key: RETENTION.to_owned(),
                problem: "there is an acknowledged id whose retention is over".to_owned(),
            });
        }
        unread.finish()?;
        Ok(Self { core, table })
    }

    /// What the table knows of a request, unless the machine is halted and it may be half-changed.
    fn known(&self, id: &Id) -> Option<Known<'_, Answer>> {
        match self.core.halted {
            None => self.table.get(id),
            Some(_) => None,
        }
    }

    fn step(
        &mut self,
        index: u64,
        time: Timestamp,
        action: IdAction,
        skip: bool,
    ) -> Result<IdOutcome, ApplyError> {
        let mut turn = self.core.begin(index, time, [0; 32], skip, &action)?;
        let result = self.perform(&mut turn, action);
        if result.is_ok() {
            self.table.sweep(turn.now);
        }
        self.core.end(&turn, result)
    }

    fn perform(&mut self, turn: &mut Turn, action: IdAction) -> Result<IdOutcome, Halted> {
        Ok(match action {
            IdAction::Request { id, acked, payload } => {
                let outcome = self.answer(turn, &id, &payload)?;
                if let Some(acked) = acked.filter(|acked| *acked != id) {
                    self.table.acknowledge(&acked, turn.now);
                }
                outcome
            }
            IdAction::ForgetBefore { time } => IdOutcome::Forgotten(self.table.forget_before(time)),
            IdAction::Configure { acked_retention } => {
                self.table.set_acked_retention(acked_retention);
                IdOutcome::Configured
            }
            // The turn has the version already.
            IdAction::Upgrade { .. } => IdOutcome::Upgraded,
        })
    }

    fn answer(&mut self, turn: &mut Turn, id: &Id, payload: &[u8]) -> Result<IdOutcome, Halted> {
        if let Some(known) = self.table.get(id) {
            return Ok(outcome_of_copy(&known));
        }
        // Recorded whatever the payload is: else a copy of an invalid one could run after an upgrade.
        let answer = Answer::new(self.core.execute(Context::new(turn), payload, false)?);
        let outcome = answer.outcome(IdOutcome::Executed);
        self.table.record(id.clone(), answer, turn.now);
        Ok(outcome)
    }
}

fn outcome_of_copy(known: &Known<'_, Answer>) -> IdOutcome {
    match known {
        Known::Answered(answer) => answer.outcome(IdOutcome::Duplicate),
        Known::Acknowledged => IdOutcome::Acknowledged,
    }
}

//! What every wrapper does alike: keep the machine, its position, clock and version, run user code so that a
//! panic halts and harms nobody, and capture and restore all of that.

use crate::{
    action::{RequestError, Response},
    context::{Context, Turn},
    entry::LogAction,
    error::{ApplyError, Halted, QueryError, SnapshotError},
    guard::guard,
    identity::Timestamp,
    machine::{Command, Query, StateMachine},
    snapshot::{Part, Snapshot, SnapshotMeta, Unread},
    state::{StateReader, StateWriter},
};
use bytes::Bytes;

const CLOCK: &str = "session/clock";
const KIND: &str = "session/kind";
const VERSION: &str = "session/version";

/// A machine and where it stands in the log.
pub(crate) struct Core<M> {
    pub(crate) machine: M,
    pub(crate) last_applied: u64,
    pub(crate) time: Timestamp,
    pub(crate) version: u32,
    pub(crate) halted: Option<Halted>,
}

/// What every wrapper lets its caller read of its `core`.
macro_rules! reads_of_core {
    () => {
        /// The user's machine. On a halted machine it may be half-changed: for the post-mortem only.
        pub fn machine(&self) -> &M {
            &self.core.machine
        }

        /// Answers an encoded query from the applied state. Making that state recent enough is the engine's part.
        pub fn query(&self, payload: &[u8]) -> Result<bytes::Bytes, $crate::error::QueryError> {
            self.core.query(payload)
        }

        /// The index of the last entry applied, 0 before the first.
        pub fn last_applied(&self) -> u64 {
            self.core.last_applied
        }

        /// The log's time: the highest of all entries applied.
        pub fn time(&self) -> $crate::identity::Timestamp {
            self.core.time
        }

        /// The machine's replicated version, from 1.
        pub fn version(&self) -> u32 {
            self.core.version
        }

        /// Where and why the machine halted, if it did.
        pub fn halted(&self) -> Option<&$crate::error::Halted> {
            self.core.halted.as_ref()
        }
    };
}

pub(crate) use reads_of_core;

/// Which hook of the machine to run.
#[derive(Clone, Copy)]
pub(crate) enum Hook {
    SessionCreated,
    SessionClosed,
}

impl<M: StateMachine> Core<M> {
    pub(crate) fn new(machine: M) -> Self {
        Self { machine, last_applied: 0, time: Timestamp(0), version: 1, halted: None }
    }

    /// Starts an entry, at the version that it may raise itself, or says why it cannot be applied. Changes nothing.
    pub(crate) fn begin(
        &self,
        index: u64,
        time: Timestamp,
        seed: [u8; 32],
        skip: bool,
        action: &impl LogAction,
    ) -> Result<Turn, ApplyError> {
        self.check_running()?;
        if index <= self.last_applied {
            return Err(ApplyError::OutOfOrder { index, last_applied: self.last_applied });
        }
        let upgrade = action.upgrade().unwrap_or(0);
        if upgrade > M::SCHEMA.version {
            return Err(ApplyError::NeedsBuild { version: upgrade });
        }
        Ok(Turn::new(index, time.max(self.time), self.version.max(upgrade), seed, skip))
    }

    /// Ends an entry: either all of it counts, or the machine is halted before it.
    pub(crate) fn end<T>(&mut self, turn: &Turn, result: Result<T, Halted>) -> Result<T, ApplyError> {
        match result {
            Ok(value) => {
                self.last_applied = turn.index;
                self.time = turn.now;
                self.version = turn.version;
                Ok(value)
            }
            Err(halted) => {
                self.halted = Some(halted.clone());
                Err(ApplyError::Halted(halted))
            }
        }
    }

    /// Decodes and runs a command. The inner result is the request's answer; the outer error halts.
    pub(crate) fn execute(
        &mut self,
        mut cx: Context<'_, M::ServerRequest>,
        payload: &[u8],
        internal_allowed: bool,
    ) -> Result<Result<Response, RequestError>, Halted> {
        if cx.turn().skip {
            return Ok(Err(RequestError::Skipped));
        }
        let version = cx.turn().version;
        let mut name = "(a command that was being decoded)";
        let machine = &mut self.machine;
        let result = guard(|| {
            let command = match M::Command::decode(payload) {
                Ok(command) if command.since() <= version => command,
                _ => return Ok(Err(RequestError::InvalidPayload)),
            };
            if !internal_allowed && M::is_internal(&command) {
                return Ok(Err(RequestError::InvalidPayload));
            }
            name = command.name();
            machine.apply(&mut cx, command).map(Ok)
        });
        finish(cx.turn(), name, result)
    }

    /// Runs a hook.
    pub(crate) fn hook(&mut self, mut cx: Context<'_, M::ServerRequest>, hook: Hook) -> Result<(), Halted> {
        if cx.turn().skip {
            return Ok(());
        }
        let machine = &mut self.machine;
        let (name, result) = match hook {
            Hook::SessionCreated => ("#[session_created]", guard(|| machine.session_created(&mut cx))),
            Hook::SessionClosed => ("#[session_closed]", guard(|| machine.session_closed(&mut cx))),
        };
        finish(cx.turn(), name, result.map(Ok))
    }

    pub(crate) fn query(&self, payload: &[u8]) -> Result<Bytes, QueryError> {
        if let Some(halted) = &self.halted {
            return Err(QueryError::Halted(halted.clone()));
        }
        let answer = guard(|| {
            let query = M::Query::decode(payload).map_err(QueryError::Invalid)?;
            self.machine.query(query).map_err(QueryError::Encode)
        });
        answer.unwrap_or_else(|panic| Err(QueryError::Panicked(panic)))
    }

    /// A snapshot of the machine and of what its wrapper, of this kind, adds.
    pub(crate) fn save(&self, kind: &str, layer: Vec<Part>) -> Result<Snapshot, ApplyError> {
        self.check_running()?;
        let mut state = StateWriter::new(self.version, M::FIELDS);
        let saved = guard(|| self.machine.save(&mut state))
            .map_err(|panic| ApplyError::State { field: "(all)".to_owned(), problem: panic })?;
        let mut parts = saved
            .and_then(|()| state.finish())
            .map_err(|error| ApplyError::State { field: error.field, problem: error.problem })?;
        parts.extend(layer);
        parts.push(encoded(CLOCK, &self.time)?);
        parts.push(encoded(KIND, &kind)?);
        parts.push(encoded(VERSION, &self.version)?);
        let meta = SnapshotMeta {
            name: M::SCHEMA.name.to_owned(),
            version: self.version,
            schema: M::SCHEMA.text(self.version),
            index: self.last_applied,
            term: 0,
            configuration: Bytes::new(),
        };
        Ok(Snapshot::new(meta, parts))
    }

    /// The machine of a snapshot, and the entries left for its wrapper, of this kind, to read.
    pub(crate) fn load(snapshot: &Snapshot, kind: &str) -> Result<(Self, Unread), SnapshotError> {
        let meta = snapshot.meta();
        let schema = M::SCHEMA;
        if meta.name != schema.name {
            return Err(SnapshotError::WrongMachine {
                expected: schema.name.to_owned(),
                found: meta.name.clone(),
            });
        }
        if meta.version > schema.version {
            return Err(SnapshotError::NeedsBuild { version: meta.version });
        }
        let mut unread = Unread::new(snapshot)?;
        let found: String = unread.decode(KIND)?;
        if found != kind {
            return Err(SnapshotError::WrongKind { expected: kind.to_owned(), found });
        }
        schema
            .compare(&meta.schema, meta.version)
            .map_err(|difference| SnapshotError::Schema { difference })?;
        let version: u32 = unread.decode(VERSION)?;
        if version != meta.version {
            return Err(SnapshotError::Value {
                key: VERSION.to_owned(),
                problem: format!("it is {version}, and the meta data say {}", meta.version),
            });
        }
        let time = unread.decode(CLOCK)?;
        let mut reader = StateReader::new(version, M::FIELDS, &mut unread);
        let machine = guard(|| M::load(&mut reader)).unwrap_or_else(|panic| {
            Err(SnapshotError::State { field: "(all)".to_owned(), problem: panic })
        })?;
        reader.drop_former(M::DROPPED);
        let core = Self { machine, last_applied: meta.index, time, version, halted: None };
        Ok((core, unread))
    }

    fn check_running(&self) -> Result<(), ApplyError> {
        match &self.halted {
            None => Ok(()),
            Some(halted) => Err(ApplyError::Halted(halted.clone())),
        }
    }
}

/// The end of a call of user code: a panic, an answer or a server request that cannot be encoded halts.
fn finish<T>(
    turn: &mut Turn,
    name: &str,
    result: Result<Result<T, crate::codec::EncodeError>, String>,
) -> Result<T, Halted> {
    let problem = match (result, turn.failure.take()) {
        (Ok(Ok(value)), None) => return Ok(value),
        (Err(panic), _) => panic,
        (Ok(Err(error)), _) => format!("its answer cannot be encoded: {error}"),
        (Ok(Ok(_)), Some(error)) => format!("a server request cannot be encoded: {error}"),
    };
    Err(Halted { index: turn.index, command: name.to_owned(), message: problem })
}

/// One entry of the session layer. None of them is ever too large to encode.
pub(crate) fn encoded<T: serde::Serialize>(key: &str, value: &T) -> Result<Part, ApplyError> {
    Part::encoded(key, value)
        .map_err(|error| ApplyError::State { field: key.to_owned(), problem: error.to_string() })
}

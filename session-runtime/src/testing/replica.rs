//! One replica of the simulated cluster: a machine of one build, watched.

use super::{judge::Broken, world::Logged};
use crate::{
    action::{PendingRequest, RaftAction, RequestError, Response, ServerAction},
    codec::{self, EncodeError},
    context::Context,
    error::{ApplyError, SnapshotError},
    guard::guard,
    identity::{SessionId, Timestamp},
    machine::{Command, StateMachine},
    schema::{Schema, StateField},
    session_machine::{SessionKey, SessionStateMachine},
    snapshot::Snapshot,
    state::{State, StateError, StateReader, StateWriter},
    wire::Wire,
};
use bytes::Bytes;

/// The bytes of a command, which must be read as what was written.
pub(super) fn written<C: Command>(command: &C) -> Result<Bytes, Broken> {
    let name = command.name();
    let bytes = command.try_encode();
    let bytes = bytes.map_err(|error| format!("the command `{name}` cannot be encoded: {error}"))?;
    survives::<C>(&bytes).map_err(|why| format!("the command `{name}` does not survive encoding: {why}"))?;
    Ok(bytes)
}

/// Whether a value, read from its bytes and written again, has the same bytes.
fn survives<T: Wire>(bytes: &[u8]) -> Result<(), Broken> {
    let again = || {
        let value: T = codec::decode(bytes).map_err(|error| error.to_string())?;
        codec::encode(&value).map_err(|error| error.to_string())
    };
    match guard(again).flatten()? {
        again if again == bytes => Ok(()),
        _ => Err("read and written again, it is another".to_owned()),
    }
}

/// A user's machine, whose calls are counted. `OLD` is the build before the first upgrade: it knows version 1 only.
pub(super) struct Watched<M, const OLD: bool> {
    machine: M,
    /// How many commands ran. Not part of the state: what is counted is what this process did.
    ran: u64,
    /// The first answer that its client would read as another.
    misread: Option<String>,
}

impl<M, const OLD: bool> Watched<M, OLD> {
    pub(super) fn new(machine: M) -> Self {
        Self { machine, ran: 0, misread: None }
    }

    pub(super) fn ran(&self) -> u64 {
        self.ran
    }
}

impl<M: StateMachine, const OLD: bool> State for Watched<M, OLD> {
    const FIELDS: &'static [StateField] = M::FIELDS;
    const DROPPED: &'static [&'static str] = M::DROPPED;

    fn save(&self, out: &mut StateWriter) -> Result<(), StateError> {
        self.machine.save(out)
    }

    fn load(from: &mut StateReader<'_>) -> Result<Self, SnapshotError> {
        M::load(from).map(Self::new)
    }
}

impl<M: StateMachine, const OLD: bool> StateMachine for Watched<M, OLD> {
    type Command = M::Command;
    type Query = M::Query;
    type ServerRequest = M::ServerRequest;

    const SCHEMA: Schema = Schema { version: if OLD { 1 } else { M::SCHEMA.version }, ..M::SCHEMA };

    fn apply(
        &mut self,
        cx: &mut Context<'_, Self::ServerRequest>,
        command: Self::Command,
    ) -> Result<Response, EncodeError> {
        self.ran = self.ran.saturating_add(1);
        let name = command.name();
        let response = self.machine.apply(cx, command)?;
        let misread = M::check_reply(name, &response).err();
        self.misread = self.misread.take().or(misread);
        Ok(response)
    }

    fn query(&self, query: Self::Query) -> Result<Bytes, EncodeError> {
        self.machine.query(query)
    }

    fn is_internal(command: &Self::Command) -> bool {
        M::is_internal(command)
    }

    fn session_created(&mut self, cx: &mut Context<'_, Self::ServerRequest>) {
        self.machine.session_created(cx);
    }

    fn session_closed(&mut self, cx: &mut Context<'_, Self::ServerRequest>) {
        self.machine.session_closed(cx);
    }
}

/// A replica, whatever its build.
pub(super) trait Replica {
    fn apply(
        &mut self,
        index: u64,
        time: Timestamp,
        action: RaftAction,
    ) -> Result<Vec<ServerAction>, ApplyError>;
    fn snapshot(&self) -> Result<Snapshot, ApplyError>;
    fn ran(&self) -> u64;
    fn misread(&self) -> Option<&str>;
    fn last_applied(&self) -> u64;
    fn time(&self) -> Timestamp;
    fn expiry_due(&self) -> Option<Timestamp>;
    fn sessions(&self) -> Vec<SessionId>;
    fn pending(&self, session: SessionId) -> Vec<PendingRequest>;
    /// Whether anything is pending. Asked often.
    fn owes(&self, session: SessionId) -> bool;
    fn has_pending(&self, before: Timestamp) -> bool;
    fn answer_to(&self, key: &SessionKey) -> Option<Result<Response, RequestError>>;
}

impl<M: StateMachine, const OLD: bool> Replica for SessionStateMachine<Watched<M, OLD>> {
    fn apply(
        &mut self,
        index: u64,
        time: Timestamp,
        action: RaftAction,
    ) -> Result<Vec<ServerAction>, ApplyError> {
        SessionStateMachine::apply(self, index, time, action)
    }

    fn snapshot(&self) -> Result<Snapshot, ApplyError> {
        SessionStateMachine::snapshot(self)
    }

    fn ran(&self) -> u64 {
        self.machine().ran()
    }

    fn misread(&self) -> Option<&str> {
        self.machine().misread.as_deref()
    }

    fn last_applied(&self) -> u64 {
        SessionStateMachine::last_applied(self)
    }

    fn time(&self) -> Timestamp {
        SessionStateMachine::time(self)
    }

    fn expiry_due(&self) -> Option<Timestamp> {
        SessionStateMachine::expiry_due(self)
    }

    fn sessions(&self) -> Vec<SessionId> {
        SessionStateMachine::sessions(self).collect()
    }

    fn pending(&self, session: SessionId) -> Vec<PendingRequest> {
        self.pending_requests(session).collect()
    }

    fn owes(&self, session: SessionId) -> bool {
        self.pending_requests(session).next().is_some()
    }

    fn has_pending(&self, before: Timestamp) -> bool {
        self.has_pending_requests(before)
    }

    fn answer_to(&self, key: &SessionKey) -> Option<Result<Response, RequestError>> {
        SessionStateMachine::answer_to(self, key)
    }
}

/// How replicas are made: at the beginning of the log, or from a snapshot, of either build.
pub(super) struct Builds<M> {
    pub(super) make: fn() -> M,
    /// What replicas say instead of the truth, for tests of the judge.
    pub(super) lie: Option<Lie>,
}

/// Changes what an entry gave.
pub(super) type Lie = fn(&RaftAction, &mut Vec<ServerAction>);

impl<M: StateMachine + 'static> Builds<M> {
    pub(super) fn fresh(&self, old: bool) -> Box<dyn Replica> {
        let machine = (self.make)();
        if old {
            Box::new(SessionStateMachine::new(Watched::<M, true>::new(machine)))
        } else {
            Box::new(SessionStateMachine::new(Watched::<M, false>::new(machine)))
        }
    }

    pub(super) fn apply(
        &self,
        replica: &mut dyn Replica,
        index: u64,
        entry: &Logged,
    ) -> Result<Vec<ServerAction>, ApplyError> {
        let mut out = replica.apply(index, entry.time, entry.action.clone())?;
        if let Some(lie) = self.lie {
            lie(&entry.action, &mut out);
        }
        Ok(out)
    }

    /// Clients read server requests as what was written.
    #[allow(clippy::unused_self)] // beside `fresh`
    pub(super) fn can_be_read(&self, out: &[ServerAction]) -> Result<(), Broken> {
        out.iter().try_for_each(|action| match action {
            ServerAction::SendServerRequest { session, request, payload } => {
                survives::<M::ServerRequest>(payload).map_err(|why| {
                    let (number, name) = (request.0, M::SCHEMA.server_request);
                    format!(
                        "server request {number} of {session:?}, a `{name}`, does not survive encoding: {why}"
                    )
                })
            }
            _ => Ok(()),
        })
    }

    #[allow(clippy::unused_self)] // beside `fresh`
    pub(super) fn restored(&self, snapshot: &Snapshot, old: bool) -> Result<Box<dyn Replica>, SnapshotError> {
        if old {
            Ok(Box::new(SessionStateMachine::<Watched<M, true>>::restore(snapshot)?))
        } else {
            Ok(Box::new(SessionStateMachine::<Watched<M, false>>::restore(snapshot)?))
        }
    }
}

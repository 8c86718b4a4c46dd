//! The public names other programs compile against, with their shapes. A change here breaks somebody.
#![allow(clippy::too_many_lines, clippy::type_complexity)]

mod support;

use session_runtime::client::{ClientError, ClientMessage, Execution, ServerMessage};
use session_runtime::ids::{Id, IdAction, IdEntry, IdOutcome, IdStateMachine, IdTable};
use session_runtime::serials::{
    ClientId, SerialAction, SerialEntry, SerialKey, SerialOutcome, SerialStateMachine, SerialTable,
};
use session_runtime::{
    Alive, ApplyError, Bytes, CloseReason, Command, Context, ContextRng, DecodeError, Deterministic,
    Dictionary, EncodeError, Entry, Halted, Limits, Never, PendingRequest, QueryError, RaftAction,
    RefuseReason, RequestError, RequestId, Response, ServerAction, ServerRequestId, SessionId,
    SessionStateMachine, Snapshot, SnapshotError, SnapshotMeta, Status, Timestamp, Wire, codec,
    rand_core::Rng,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::hash::Hash;
use support::{Desk, DeskCommand, Notice};

#[test]
fn ids_are_plain_numbers() {
    fn id<T: Copy + Ord + Hash + Debug + Deterministic + Wire>(_: T) {}
    id(SessionId(1u128));
    id(RequestId(1u64));
    id(ServerRequestId(1u64));
    id(Timestamp(1u64));
    let draw: fn(u64, u64) -> SessionId = SessionId::draw;
    assert_eq!(draw(1, 2), SessionId((1 << 64) | 2));
}

#[test]
fn types_of_a_log_or_a_test_can_be_cloned_shown_compared_and_stored() {
    fn plain<T: Clone + Debug + PartialEq + serde::Serialize + serde::de::DeserializeOwned>() {}
    plain::<Entry>();
    plain::<RaftAction>();
    plain::<Alive>();
    plain::<ServerAction>();
    plain::<Response>();
    plain::<Status>();
    plain::<RequestError>();
    plain::<RefuseReason>();
    plain::<CloseReason>();
    plain::<Limits>();
    plain::<PendingRequest>();
    plain::<Halted>();
    plain::<SnapshotMeta>();
    plain::<SerialKey>();
    plain::<SerialAction>();
    plain::<SerialOutcome>();
    plain::<SerialEntry>();
    plain::<Id>();
    plain::<IdAction>();
    plain::<IdOutcome>();
    plain::<IdEntry>();
    plain::<ClientMessage>();
    plain::<ServerMessage>();
}

#[test]
fn actions_and_limits_have_exactly_these_fields() {
    let session = SessionId(1);
    let payload = Bytes::new();
    let limits = Limits {
        idle_timeout: Some(1u64),
        max_sessions: Some(1u32),
        evict_idlest: true,
        max_cached_bytes: Some(1u64),
        max_pending_requests: Some(1u32),
    };
    let alive = Alive { session, lowest_pending: RequestId(1), acked: ServerRequestId(0) };
    let actions = [
        RaftAction::SessionCreationConfirmed { session, capabilities: BTreeMap::<String, String>::new() },
        RaftAction::ClientRequest {
            session,
            request: RequestId(1),
            lowest_pending: RequestId(1),
            acked: ServerRequestId(0),
            payload: payload.clone(),
        },
        RaftAction::ServerRequestAck { session, request: ServerRequestId(1) },
        RaftAction::SessionExpired { session },
        RaftAction::GetRequestsForRetry { last_sent_before: Timestamp(0), limit: 1u32 },
        RaftAction::KeepAlive { sessions: vec![alive] },
        RaftAction::InternalCommand { payload: payload.clone() },
        RaftAction::Configure { limits, seed: Some([0u8; 32]) },
        RaftAction::Upgrade { version: 1u32 },
        RaftAction::Tick,
    ];
    for action in actions {
        // No `_` arm: the enums are exhaustive on purpose.
        match action {
            RaftAction::SessionCreationConfirmed { session: _, capabilities: _ }
            | RaftAction::ClientRequest { session: _, request: _, lowest_pending: _, acked: _, payload: _ }
            | RaftAction::ServerRequestAck { session: _, request: _ }
            | RaftAction::SessionExpired { session: _ }
            | RaftAction::GetRequestsForRetry { last_sent_before: _, limit: _ }
            | RaftAction::KeepAlive { sessions: _ }
            | RaftAction::InternalCommand { payload: _ }
            | RaftAction::Configure { limits: _, seed: _ }
            | RaftAction::Upgrade { version: _ }
            | RaftAction::Tick => {}
        }
    }
    let response = Response { status: Status::Accepted, payload: payload.clone() };
    let out = [
        ServerAction::SessionCreated { session },
        ServerAction::SessionRefused { session, reason: RefuseReason::Full },
        ServerAction::SendResponse { session, request: RequestId(1), response: response.clone() },
        ServerAction::SendRequestError { session, request: RequestId(1), error: RequestError::Busy },
        ServerAction::SendServerRequest { session, request: ServerRequestId(1), payload: payload.clone() },
        ServerAction::SessionClosed { session, reason: CloseReason::Expired },
        ServerAction::InternalResponse { result: Ok::<Response, RequestError>(response) },
    ];
    for action in out {
        match action {
            ServerAction::SessionCreated { session: _ }
            | ServerAction::SessionRefused {
                session: _,
                reason: RefuseReason::Full | RefuseReason::Closed | RefuseReason::Stale,
            }
            | ServerAction::SendResponse {
                session: _,
                request: _,
                response: Response { status: Status::Accepted | Status::Rejected, payload: _ },
            }
            | ServerAction::SendRequestError {
                session: _,
                request: _,
                error:
                    RequestError::SessionExpired
                    | RequestError::ResponseEvicted
                    | RequestError::RequestMismatch
                    | RequestError::Busy
                    | RequestError::InvalidPayload
                    | RequestError::Skipped,
            }
            | ServerAction::SendServerRequest { session: _, request: _, payload: _ }
            | ServerAction::SessionClosed {
                session: _,
                reason:
                    CloseReason::Expired | CloseReason::Idle | CloseReason::Evicted | CloseReason::SlowConsumer,
            }
            | ServerAction::InternalResponse { result: _ } => {}
        }
    }
    let id = ServerRequestId(1);
    let _ = PendingRequest { id, payload, last_sent_at: Timestamp(0), attempts: 1u32 };
    let _: Dictionary = BTreeMap::<String, Bytes>::new();
}

#[test]
fn the_wrapped_machine_has_these_methods() {
    type Machine = SessionStateMachine<Desk>;
    type Applied = Result<Vec<ServerAction>, ApplyError>;
    let new: fn(Desk) -> Machine = Machine::new;
    let apply: fn(&mut Machine, u64, Timestamp, RaftAction) -> Applied = Machine::apply;
    let apply_into: fn(
        &mut Machine,
        u64,
        Timestamp,
        RaftAction,
        &mut Vec<ServerAction>,
    ) -> Result<(), ApplyError> = Machine::apply_into;
    let _: fn(&Machine) -> &Desk = Machine::machine;
    let _: fn(&Machine, &[u8]) -> Result<Bytes, QueryError> = Machine::query;
    let snapshot: fn(&Machine) -> Result<Snapshot, ApplyError> = Machine::snapshot;
    let restore: fn(&Snapshot) -> Result<Machine, SnapshotError> = Machine::restore;
    let _: fn(&Machine, Timestamp) -> bool = Machine::has_pending_requests;
    let _: fn(&Machine, SessionId, RequestId) -> Option<Result<Response, RequestError>> =
        Machine::cached_response;
    let _: fn(&mut Machine, u64, Timestamp, RaftAction) -> Applied = Machine::skip;
    let _: fn(&Machine) -> u64 = Machine::last_applied;
    let _: fn(&Machine) -> Timestamp = Machine::time;
    let _: fn(&Machine) -> &Limits = Machine::limits;
    let _: fn(&Machine) -> u32 = Machine::version;
    let _: fn(&Machine) -> Option<Timestamp> = Machine::expiry_due;
    let _: fn(&Machine) -> Option<&Halted> = Machine::halted;
    let mut machine = new(Desk::default());
    apply(&mut machine, 1, Timestamp(0), RaftAction::Tick).unwrap();
    apply_into(&mut machine, 2, Timestamp(0), RaftAction::Tick, &mut Vec::new()).unwrap();
    let machine = restore(&snapshot(&machine).unwrap()).unwrap();
    assert_eq!(machine.sessions().collect::<Vec<SessionId>>(), []);
    assert_eq!(machine.pending_requests(SessionId(1)).collect::<Vec<PendingRequest>>(), []);
}

#[test]
fn a_snapshot_has_these_methods() {
    let _: fn(&Snapshot) -> &SnapshotMeta = Snapshot::meta;
    let _: fn(Snapshot, u64, Bytes) -> Snapshot = Snapshot::with_engine;
    let _: fn(&Snapshot) -> Result<Dictionary, SnapshotError> = Snapshot::dictionary;
    let _: fn(&Snapshot) -> Result<Vec<u8>, SnapshotError> = Snapshot::to_bytes;
    let _: fn(&[u8]) -> Result<Snapshot, SnapshotError> = Snapshot::from_bytes;
    let _: fn(&Snapshot, Vec<u8>) -> Result<(), SnapshotError> = Snapshot::write_to;
    let _: fn(std::io::Empty) -> Result<Snapshot, SnapshotError> = Snapshot::read_from;
}

#[test]
fn a_context_has_these_methods() {
    fn handler(cx: &mut Context<'_, Notice>) {
        let session: Option<SessionId> = cx.session();
        let _: (Timestamp, u64, u32) = (cx.now(), cx.index(), cx.version());
        let _: Option<&BTreeMap<String, String>> = cx.capabilities(SessionId(1));
        let rng: &mut ContextRng = cx.rng();
        let _: u64 = rng.next_u64();
        let first: Option<SessionId> = cx.sessions().next();
        let _: Option<ServerRequestId> = cx.send(first.or(session).unwrap(), Notice::Text(String::new()));
        cx.broadcast(Notice::Text(String::new()));
    }
    fn without_server_requests(cx: &mut Context<'_>) -> Option<Never> {
        cx.session().and(None)
    }
    let _: (fn(&mut Context<'_, Notice>), fn(&mut Context<'_>) -> Option<Never>) =
        (handler, without_server_requests);
}

#[test]
fn a_command_is_encoded_and_decoded_by_these() {
    let command = DeskCommand::Add { amount: 7 };
    let bytes: Bytes = command.encode();
    let same: Result<Bytes, EncodeError> = command.try_encode();
    assert_eq!(same.as_ref(), Ok(&bytes));
    let back: Result<DeskCommand, DecodeError> = DeskCommand::decode(&bytes);
    assert_eq!(back.as_ref(), Ok(&command));
    let name: &'static str = command.name();
    assert_eq!(name, "Add");
    let encoded: Result<Bytes, EncodeError> = codec::encode(&command);
    assert_eq!(encoded, Ok(bytes));
}

#[test]
fn serials_have_these_names() {
    type Machine = SerialStateMachine<Desk>;
    type Applied = Result<SerialOutcome, ApplyError>;
    let client = ClientId::from("a client");
    let key = SerialKey { client: client.clone(), serial: 1u64 };
    let should_apply: fn(&mut SerialTable, Option<&SerialKey>) -> bool = SerialTable::should_apply;
    let _: fn(&mut SerialTable, &ClientId) = SerialTable::close;
    let _: fn(&SerialTable) -> usize = SerialTable::len;
    let _: fn(&SerialTable) -> Vec<u8> = SerialTable::to_bytes;
    let _: fn(&[u8]) -> Result<SerialTable, SnapshotError> = SerialTable::from_bytes;
    let auto: fn(&str, u64) -> ClientId = ClientId::auto;
    assert!(should_apply(&mut SerialTable::default(), Some(&key)) && auto("n", 1) != client);
    let payload = Bytes::new();
    for action in [
        SerialAction::Command { key: Some(key), payload },
        SerialAction::Close { client },
        SerialAction::Upgrade { version: 1u32 },
    ] {
        match action {
            SerialAction::Command { key: _, payload: _ }
            | SerialAction::Close { client: _ }
            | SerialAction::Upgrade { version: _ } => {}
        }
    }
    match SerialOutcome::Closed {
        SerialOutcome::Applied(Response { .. })
        | SerialOutcome::Duplicate
        | SerialOutcome::Invalid
        | SerialOutcome::Skipped
        | SerialOutcome::Closed
        | SerialOutcome::Upgraded => {}
    }
    let _: fn(Desk) -> Machine = Machine::new;
    let _: [fn(&mut Machine, u64, Timestamp, SerialAction) -> Applied; 2] = [Machine::apply, Machine::skip];
    let _: fn(&Machine) -> &Desk = Machine::machine;
    let _: fn(&Machine, &[u8]) -> Result<Bytes, QueryError> = Machine::query;
    let _: fn(&Machine) -> Result<Snapshot, ApplyError> = Machine::snapshot;
    let _: fn(&Snapshot) -> Result<Machine, SnapshotError> = Machine::restore;
    let _: fn(&Machine) -> u64 = Machine::last_applied;
    let _: fn(&Machine) -> Timestamp = Machine::time;
    let _: fn(&Machine) -> u32 = Machine::version;
    let _: fn(&Machine) -> Option<&Halted> = Machine::halted;
}

#[test]
fn request_ids_have_these_names() {
    type Machine = IdStateMachine<Desk>;
    type Applied = Result<IdOutcome, ApplyError>;
    let id = Id::try_from(&b"an id"[..]).unwrap();
    let _: IdTable = IdTable::default();
    for action in [
        IdAction::Request { id: id.clone(), acked: Some(id), payload: Bytes::new() },
        IdAction::ForgetBefore { time: Timestamp(1) },
        IdAction::Configure { acked_retention: 1u64 },
        IdAction::Upgrade { version: 1u32 },
    ] {
        match action {
            IdAction::Request { id: _, acked: _, payload: _ }
            | IdAction::ForgetBefore { time: _ }
            | IdAction::Configure { acked_retention: _ }
            | IdAction::Upgrade { version: _ } => {}
        }
    }
    match IdOutcome::Forgotten(1u64) {
        IdOutcome::Executed(Response { .. })
        | IdOutcome::Duplicate(Response { .. })
        | IdOutcome::Acknowledged
        | IdOutcome::Invalid
        | IdOutcome::Skipped
        | IdOutcome::Forgotten(_)
        | IdOutcome::Configured
        | IdOutcome::Upgraded => {}
    }
    let _: fn(Desk) -> Machine = Machine::new;
    let _: [fn(&mut Machine, u64, Timestamp, IdAction) -> Applied; 2] = [Machine::apply, Machine::skip];
    let _: fn(&Machine, &Id) -> Option<Result<Response, RequestError>> = Machine::cached_response;
    let _: fn(&Machine) -> &Desk = Machine::machine;
    let _: fn(&Machine, &[u8]) -> Result<Bytes, QueryError> = Machine::query;
    let _: fn(&Machine) -> Result<Snapshot, ApplyError> = Machine::snapshot;
    let _: fn(&Snapshot) -> Result<Machine, SnapshotError> = Machine::restore;
    let _: fn(&Machine) -> u64 = Machine::last_applied;
    let _: fn(&Machine) -> Timestamp = Machine::time;
    let _: fn(&Machine) -> u32 = Machine::version;
    let _: fn(&Machine) -> Option<&Halted> = Machine::halted;
}

#[test]
fn a_clients_error_says_how_often_it_ran() {
    fn once<E>(error: &ClientError<E>) -> Option<bool> {
        match (error, error.execution()) {
            (ClientError::Rejected(_), Execution::Once) => Some(true),
            (ClientError::SessionExpired | ClientError::ResponseEvicted | ClientError::Busy, _) => None,
            (_, Execution::Never | Execution::Once | Execution::Unknown) => Some(false),
        }
    }
    let untyped: ClientError = ClientError::Busy;
    assert_eq!((once(&untyped), once(&ClientError::Rejected(7u8))), (None, Some(true)));
}

fn cargo_tree() -> BTreeSet<String> {
    let tree = std::process::Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--edges", "normal,build", "--prefix", "none", "--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let names = String::from_utf8(tree.stdout).unwrap();
    names.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn the_default_features_pull_in_at_most_25_crates() {
    let crates = cargo_tree();
    assert!(crates.contains("session-derive") && crates.contains("serde"), "{crates:?}");
    assert!(crates.len() <= 25, "{} crates: {crates:?}", crates.len());
}

#[test]
fn the_oldest_compiler_that_is_promised_is_the_one_that_is_used() {
    let file =
        |name: &str| std::fs::read_to_string(format!("{}/../{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let value = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key)).unwrap();
        line.split('"').nth(1).unwrap().to_owned()
    };
    let promised = value(&file("Cargo.toml"), "rust-version");
    assert_eq!(value(&file("rust-toolchain.toml"), "channel"), format!("{promised}.0"));
}

#[test]
fn errors_that_may_grow_are_matched_with_a_wildcard() {
    fn apply_error(error: &ApplyError) -> u32 {
        match error {
            ApplyError::OutOfOrder { .. } => 1,
            ApplyError::Halted(Halted { index: _, command: _, message: _ }) => 2,
            ApplyError::NeedsBuild { version } => *version,
            _ => 0,
        }
    }
    assert_eq!(apply_error(&ApplyError::NeedsBuild { version: 3 }), 3);
}

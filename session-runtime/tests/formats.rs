//! The stored formats. What version 1 wrote must be read for ever, so the files in `fixtures/` are never
//! rewritten: a new format gets new files beside them.

use serde::{Deserialize, Serialize};
use session_runtime::ids::{Id, IdAction, IdEntry, IdOutcome, IdStateMachine, IdTable};
use session_runtime::schema::{Fields, Handler, StateField, Variant, highest_since};
use session_runtime::serials::{SerialAction, SerialEntry, SerialKey, SerialStateMachine, SerialTable};
use session_runtime::{
    Alive, Bytes, Command, Context, DecodeError, Deterministic, EncodeError, Entry, EntryError, Limits,
    Never, PendingRequest, RaftAction, Reply, RequestError, RequestId, Response, Schema, ServerRequestId,
    SessionId, SessionStateMachine, Snapshot, SnapshotError, State, StateError, StateMachine, StateReader,
    StateWriter, Timestamp, codec,
};
use std::collections::BTreeMap;

/// One entry of each kind, as in `fixtures/entries-v1.txt`.
fn entries() -> Vec<(&'static str, Entry)> {
    let session = SessionId::draw(41, 0x0123_4567_89ab_cdef);
    let at = |time, action| Entry { time: Timestamp(time), action };
    let limits = Limits {
        idle_timeout: Some(30_000),
        max_sessions: Some(100_000),
        evict_idlest: true,
        max_cached_bytes: Some(1 << 20),
        max_pending_requests: Some(1_000),
    };
    vec![
        (
            "create",
            at(
                0,
                RaftAction::SessionCreationConfirmed {
                    session,
                    capabilities: BTreeMap::from([("name".to_owned(), "ann".to_owned())]),
                },
            ),
        ),
        (
            "request",
            at(
                1_000,
                RaftAction::ClientRequest {
                    session,
                    request: RequestId(3),
                    lowest_pending: RequestId(2),
                    acked: ServerRequestId(300),
                    payload: Bytes::from_static(b"payload"),
                },
            ),
        ),
        ("ack", at(1_001, RaftAction::ServerRequestAck { session, request: ServerRequestId(70_000) })),
        ("expire", at(1_002, RaftAction::SessionExpired { session })),
        ("retry", at(1_003, RaftAction::GetRequestsForRetry { last_sent_before: Timestamp(500), limit: 64 })),
        (
            "keep-alive",
            at(
                1_004,
                RaftAction::KeepAlive {
                    sessions: vec![Alive {
                        session,
                        lowest_pending: RequestId(9),
                        acked: ServerRequestId(4),
                    }],
                },
            ),
        ),
        ("internal", at(1_005, RaftAction::InternalCommand { payload: Bytes::from_static(&[0, 255]) })),
        ("configure", at(1_006, RaftAction::Configure { limits: limits.clone(), seed: Some([7; 32]) })),
        (
            "configure-without-seed",
            at(1_007, RaftAction::Configure { limits: Limits::default(), seed: None }),
        ),
        ("upgrade", at(1_008, RaftAction::Upgrade { version: 2 })),
        ("tick", at(u64::MAX, RaftAction::Tick)),
    ]
}

fn fixture(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// The lines of a fixture: names, and bytes in hex.
fn stored(name: &str) -> Vec<(String, Vec<u8>)> {
    let text = std::fs::read_to_string(fixture(name)).unwrap();
    text.lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, hex)| (name.to_owned(), from_hex(hex)))
        .collect()
}

/// Every stored entry decodes to the one expected, which is still written so.
macro_rules! check_entries {
    ($entry:ident, $fixture:literal, $expected:expr) => {
        let (stored, expected) = (stored($fixture), $expected);
        assert_eq!(stored.len(), expected.len());
        for ((name, bytes), (expected_name, entry)) in stored.iter().zip(&expected) {
            assert_eq!(name, expected_name);
            assert_eq!($entry::decode(bytes).as_ref(), Ok(entry), "{name}");
            assert_eq!(to_hex(&entry.encode()), to_hex(bytes), "{name}: and this build still writes it so");
        }
    };
}

#[test]
fn entries_of_version_1_decode_for_ever() {
    check_entries!(Entry, "entries-v1.txt", entries());
}

#[test]
fn a_damaged_entry_is_an_error() {
    for (name, entry) in entries() {
        let bytes = entry.encode();
        for length in 0..bytes.len() {
            let error = Entry::decode(&bytes[..length]).unwrap_err();
            assert!(matches!(error, EntryError::Damaged(_)), "{name} cut at {length}: {error:?}");
            assert!(!error.needs_build());
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(
            Entry::decode(&longer),
            Err(EntryError::Damaged(DecodeError::Trailing { bytes: 1 })),
            "{name}"
        );
    }
}

#[test]
fn an_entry_of_a_later_release_is_a_distinct_error() {
    let unknown_action = Entry::decode(&[1, 0, 10, 1, 2, 3]).unwrap_err();
    assert_eq!(unknown_action, EntryError::UnknownAction { tag: 10 });
    let unknown_format = Entry::decode(&[2, 0, 0]).unwrap_err();
    assert_eq!(unknown_format, EntryError::UnknownFormat { version: 2 });
    for error in [unknown_action, unknown_format] {
        assert!(error.needs_build());
        assert!(error.to_string().contains("run a newer build"), "{error}");
    }
    let last_known = Entry { time: Timestamp(0), action: RaftAction::Tick }.encode();
    assert_eq!(last_known[2], 9, "the highest tag this build knows");
}

#[test]
fn an_entry_may_carry_any_payload_and_the_machine_decides() {
    let entry = Entry {
        time: Timestamp(0),
        action: RaftAction::InternalCommand { payload: vec![0; codec::MAX_PAYLOAD + 1].into() },
    };
    assert_eq!(Entry::decode(&entry.encode()), Ok(entry));
}

// A machine that never changes, for the snapshot that never changes.

#[derive(Serialize, Deserialize)]
enum FrozenCommand {
    Add { amount: u64 },
    Tell { to: SessionId, text: String },
    Later,
}

impl Deterministic for FrozenCommand {}

impl Command for FrozenCommand {
    const VARIANTS: &'static [Variant] = &[
        Variant { name: "Add", fields: Fields::Struct(&[("amount", "u64")]), since: 1 },
        Variant {
            name: "Tell",
            fields: Fields::Struct(&[("to", "SessionId"), ("text", "String")]),
            since: 1,
        },
        Variant { name: "Later", fields: Fields::Unit, since: 2 },
    ];

    fn variant(&self) -> usize {
        match self {
            Self::Add { .. } => 0,
            Self::Tell { .. } => 1,
            Self::Later => 2,
        }
    }
}

#[derive(Debug, Default, PartialEq)]
struct Frozen {
    total: u64,
    by_amount: BTreeMap<u64, String>,
}

impl State for Frozen {
    const FIELDS: &'static [StateField] =
        &[StateField::new("total", "u64"), StateField::new("by_amount", "BTreeMap<u64, String>")];

    fn save(&self, out: &mut StateWriter) -> Result<(), StateError> {
        out.field("total", &self.total)?;
        out.per_entry("by_amount", &self.by_amount)
    }

    fn load(from: &mut StateReader<'_>) -> Result<Self, SnapshotError> {
        Ok(Self { total: from.field("total")?, by_amount: from.per_entry("by_amount")? })
    }
}

impl StateMachine for Frozen {
    type Command = FrozenCommand;
    type Query = Never;
    type ServerRequest = String;

    const SCHEMA: Schema = Schema {
        name: "Frozen",
        version: highest_since(FrozenCommand::VARIANTS, Self::FIELDS),
        commands: FrozenCommand::VARIANTS,
        handlers: &[
            Handler { command: "Add", reply: "u64", internal: false },
            Handler { command: "Tell", reply: "Option<ServerRequestId>", internal: false },
            Handler { command: "Later", reply: "()", internal: true },
        ],
        queries: &[],
        server_request: "String",
        state: Self::FIELDS,
        dropped: Self::DROPPED,
    };

    fn apply(
        &mut self,
        cx: &mut Context<'_, String>,
        command: FrozenCommand,
    ) -> Result<Response, EncodeError> {
        match command {
            FrozenCommand::Add { amount } => {
                self.total += amount;
                self.by_amount.insert(amount, format!("at {}", cx.index()));
                self.total.into_response()
            }
            FrozenCommand::Tell { to, text } => cx.send(to, text).into_response(),
            FrozenCommand::Later => ().into_response(),
        }
    }

    fn query(&self, query: Never) -> Result<Bytes, EncodeError> {
        match query {}
    }
}

const ANN: SessionId = SessionId(0x0a);
const BO: SessionId = SessionId(0x0b);

/// The machine of `fixtures/snapshot-v1.bin`.
fn frozen() -> SessionStateMachine<Frozen> {
    let mut machine = SessionStateMachine::new(Frozen::default());
    let limits = Limits { max_sessions: Some(2), evict_idlest: true, ..Limits::default() };
    let create = |session, name: &str| RaftAction::SessionCreationConfirmed {
        session,
        capabilities: BTreeMap::from([("name".to_owned(), name.to_owned())]),
    };
    let request = |session, request, lowest, payload: Bytes| RaftAction::ClientRequest {
        session,
        request: RequestId(request),
        lowest_pending: RequestId(lowest),
        acked: ServerRequestId(0),
        payload,
    };
    let log = [
        create(ANN, "ann"),
        create(BO, "bo"),
        create(SessionId(0x0c), "cy"),
        RaftAction::Configure { limits, seed: Some([9; 32]) },
        request(BO, 1, 1, FrozenCommand::Add { amount: 5 }.encode()),
        request(BO, 2, 2, FrozenCommand::Add { amount: 300 }.encode()),
        request(BO, 3, 2, FrozenCommand::Tell { to: BO, text: "hello".to_owned() }.encode()),
        request(BO, 4, 2, Bytes::from_static(&[77])),
        RaftAction::Upgrade { version: 2 },
    ];
    for (index, action) in (1u64..).zip(log) {
        machine.apply(index, Timestamp(index * 100), action).unwrap();
    }
    machine
}

#[test]
fn a_snapshot_of_version_1_restores_for_ever() {
    let bytes = std::fs::read(fixture("snapshot-v1.bin")).unwrap();
    let snapshot = Snapshot::from_bytes(&bytes).unwrap();
    assert_eq!((snapshot.meta().term, &snapshot.meta().configuration[..]), (7, &b"nodes"[..]));
    let machine = SessionStateMachine::<Frozen>::restore(&snapshot).unwrap();
    assert_eq!((machine.last_applied(), machine.time(), machine.version()), (9, Timestamp(900), 2));
    assert_eq!(machine.sessions().collect::<Vec<_>>(), [BO, SessionId(0x0c)]);
    assert_eq!(machine.machine(), frozen().machine());
    let accepted = |value: u64| Some(Ok(Response::accepted(&value).unwrap()));
    assert_eq!(machine.cached_response(BO, RequestId(1)), None);
    assert_eq!(machine.cached_response(BO, RequestId(2)), accepted(305));
    assert_eq!(machine.cached_response(BO, RequestId(4)), Some(Err(RequestError::InvalidPayload)));
    let pending: Vec<PendingRequest> = machine.pending_requests(BO).collect();
    assert_eq!(
        pending,
        [PendingRequest {
            id: ServerRequestId(1),
            payload: codec::encode("hello").unwrap(),
            last_sent_at: Timestamp(700),
            attempts: 1,
        }]
    );
    assert_eq!(machine.limits().max_sessions, Some(2));
}

#[test]
fn this_build_still_writes_version_1() {
    let bytes = std::fs::read(fixture("snapshot-v1.bin")).unwrap();
    let written = frozen().snapshot().unwrap().with_engine(7, Bytes::from_static(b"nodes"));
    assert_eq!(to_hex(&written.to_bytes().unwrap()), to_hex(&bytes));
}

// The lighter guarantees.

fn key(client: &str, serial: u64) -> SerialKey {
    SerialKey { client: client.into(), serial }
}

/// One entry of each kind, as in `fixtures/serial-entries-v1.txt`.
fn serial_entries() -> Vec<(&'static str, SerialEntry)> {
    let at = |time, action| SerialEntry { time: Timestamp(time), action };
    let command = |key| SerialAction::Command { key, payload: Bytes::from_static(b"payload") };
    vec![
        ("command", at(0, command(Some(key("ann", 3))))),
        ("command-of-automatic", at(1_000, command(Some(key("auto:n-1-00000000000000ff", 70_000))))),
        ("command-without-key", at(1_001, command(None))),
        ("close", at(1_002, SerialAction::Close { client: "ann".into() })),
        ("upgrade", at(u64::MAX, SerialAction::Upgrade { version: 2 })),
    ]
}

/// One entry of each kind, as in `fixtures/id-entries-v1.txt`.
fn id_entries() -> Vec<(&'static str, IdEntry)> {
    let at = |time, action| IdEntry { time: Timestamp(time), action };
    let request = |id, acked| IdAction::Request { id, acked, payload: Bytes::from_static(b"payload") };
    let (one, other) = (Id::from_uuid(*b"0123456789abcdef"), Id::try_from(&[7][..]).unwrap());
    vec![
        ("request", at(0, request(one.clone(), None))),
        ("request-that-acknowledges", at(1_000, request(other, Some(one)))),
        ("forget-before", at(1_001, IdAction::ForgetBefore { time: Timestamp(500) })),
        ("configure", at(1_002, IdAction::Configure { acked_retention: 600_000 })),
        ("upgrade", at(u64::MAX, IdAction::Upgrade { version: 2 })),
    ]
}

#[test]
fn serial_and_id_entries_of_version_1_decode_for_ever() {
    check_entries!(SerialEntry, "serial-entries-v1.txt", serial_entries());
    check_entries!(IdEntry, "id-entries-v1.txt", id_entries());
}

/// The machine of `fixtures/serial-snapshot-v1.bin`.
fn frozen_serials() -> SerialStateMachine<Frozen> {
    let mut machine = SerialStateMachine::new(Frozen::default());
    let add = |client: &str, serial, amount| SerialAction::Command {
        key: Some(key(client, serial)),
        payload: FrozenCommand::Add { amount }.encode(),
    };
    let log = [
        add("ann", 3, 5),
        add("auto:n-0000000000000001", 1, 300),
        add("auto:n-0000000000000002", 70_000, 1),
        SerialAction::Upgrade { version: 2 },
    ];
    for (index, action) in (1u64..).zip(log) {
        machine.apply(index, Timestamp(index * 100), action).unwrap();
    }
    machine
}

/// The machine of `fixtures/id-snapshot-v1.bin`.
fn frozen_ids() -> IdStateMachine<Frozen> {
    let mut machine = IdStateMachine::new(Frozen::default());
    let request = |id: u8, acked: Option<u8>, payload| IdAction::Request {
        id: short(id),
        acked: acked.map(short),
        payload,
    };
    let add = |amount| FrozenCommand::Add { amount }.encode();
    let log = [
        IdAction::Configure { acked_retention: 5_000 },
        request(1, None, add(5)),
        request(2, None, add(300)),
        request(3, Some(1), Bytes::from_static(&[77])),
    ];
    for (index, action) in (1u64..).zip(log) {
        machine.apply(index, Timestamp(index * 100), action).unwrap();
    }
    machine.skip(5, Timestamp(500), request(4, None, add(1))).unwrap();
    machine
}

fn short(id: u8) -> Id {
    Id::try_from(&[id][..]).unwrap()
}

#[test]
fn serial_and_id_snapshots_of_version_1_restore_for_ever() {
    let serials = std::fs::read(fixture("serial-snapshot-v1.bin")).unwrap();
    let machine = SerialStateMachine::<Frozen>::restore(&Snapshot::from_bytes(&serials).unwrap()).unwrap();
    assert_eq!((machine.last_applied(), machine.time(), machine.version()), (4, Timestamp(400), 2));
    assert_eq!(machine.machine(), frozen_serials().machine());
    let mark = |client: &str| machine.mark(&client.into());
    assert_eq!(mark("ann"), Some(3));
    assert_eq!((mark("auto:n-0000000000000001"), mark("auto:n-0000000000000002")), (Some(0), Some(70_000)));
    assert_eq!(to_hex(&frozen_serials().snapshot().unwrap().to_bytes().unwrap()), to_hex(&serials));

    let ids = std::fs::read(fixture("id-snapshot-v1.bin")).unwrap();
    let machine = IdStateMachine::<Frozen>::restore(&Snapshot::from_bytes(&ids).unwrap()).unwrap();
    assert_eq!((machine.last_applied(), machine.time(), machine.version()), (5, Timestamp(500), 1));
    assert_eq!(machine.machine(), frozen_ids().machine());
    assert_eq!(machine.acked_retention(), 5_000);
    assert_eq!(machine.answer_to(&short(1)), Some(IdOutcome::Acknowledged));
    let answer = Response::accepted(&305u64).unwrap();
    assert_eq!(machine.answer_to(&short(2)), Some(IdOutcome::Duplicate(answer)));
    assert_eq!(machine.answer_to(&short(3)), Some(IdOutcome::Invalid));
    assert_eq!(machine.answer_to(&short(4)), Some(IdOutcome::Skipped));
    assert_eq!(to_hex(&frozen_ids().snapshot().unwrap().to_bytes().unwrap()), to_hex(&ids));
}

/// The tables of `fixtures/tables-v1.txt`.
fn tables() -> (SerialTable, IdTable<String>) {
    let mut serials = SerialTable::default();
    for key in [key("ann", 3), key("auto:n-0000000000000002", 70_000)] {
        serials.should_apply(Some(&key));
    }
    let mut ids = IdTable::default();
    ids.record(short(1), "one".to_owned(), Timestamp(100));
    ids.record(short(2), "two".to_owned(), Timestamp(200));
    ids.acknowledge(&short(1), Timestamp(300));
    (serials, ids)
}

#[test]
fn tables_of_version_1_are_read_for_ever() {
    let stored: BTreeMap<String, Vec<u8>> = stored("tables-v1.txt").into_iter().collect();
    let (serials, ids) = tables();
    assert_eq!(to_hex(&serials.to_bytes()), to_hex(&stored["serials"]));
    assert_eq!(to_hex(&ids.to_bytes().unwrap()), to_hex(&stored["ids"]));
    assert_eq!(SerialTable::from_bytes(&stored["serials"]), Ok(serials));
    assert_eq!(IdTable::from_bytes(&stored["ids"]), Ok(ids));
}

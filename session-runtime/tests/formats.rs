//! The stored formats. What version 1 wrote must be read for ever, so the files in `fixtures/` are never
//! rewritten: a new format gets new files beside them.

use serde::{Deserialize, Serialize};
use session_runtime::schema::{Fields, Handler, StateField, Variant, highest_since};
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

#[test]
fn entries_of_version_1_decode_for_ever() {
    let text = std::fs::read_to_string(fixture("entries-v1.txt")).unwrap();
    let stored: Vec<(&str, Vec<u8>)> = text
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, hex)| (name, from_hex(hex)))
        .collect();
    let expected = entries();
    assert_eq!(stored.len(), expected.len());
    for ((name, bytes), (expected_name, entry)) in stored.iter().zip(&expected) {
        assert_eq!(name, expected_name);
        assert_eq!(Entry::decode(bytes).as_ref(), Ok(entry), "{name}");
        assert_eq!(to_hex(&entry.encode()), to_hex(bytes), "{name}: and this build still writes it so");
    }
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

//! The rules of serials, one test a rule. The names are referred to in `book/src/reference/rules.md`.

mod support;

use proptest::prelude::*;
use session_runtime::serials::{
    ClientId, SerialAction, SerialEntry, SerialKey, SerialOutcome, SerialStateMachine, SerialTable,
};
use session_runtime::{
    ApplyError, Bytes, Command, DecodeError, Dictionary, EntryError, Halted, Query, QueryError, Response,
    SessionId, Snapshot, SnapshotError, StateMachine, Timestamp, codec,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use support::*;

fn key(client: &str, serial: u64) -> SerialKey {
    SerialKey { client: client.into(), serial }
}

#[allow(clippy::needless_pass_by_value)] // `command("ann", 1, add(5))` reads better
fn command(client: &str, serial: u64, command: DeskCommand) -> SerialAction {
    SerialAction::Command { key: Some(key(client, serial)), payload: command.encode() }
}

fn close(client: &str) -> SerialAction {
    SerialAction::Close { client: client.into() }
}

fn add(amount: u64) -> DeskCommand {
    DeskCommand::Add { amount }
}

fn applied<T: serde::Serialize>(value: &T) -> SerialOutcome {
    SerialOutcome::Applied(Response::accepted(value).unwrap())
}

const UPGRADE: SerialAction = SerialAction::Upgrade { version: 2 };

/// A machine that is fed one entry after the other.
struct SerialLog<M: StateMachine = Desk> {
    machine: SerialStateMachine<M>,
    index: u64,
    time: u64,
}

impl<M: StateMachine + Default> SerialLog<M> {
    fn new() -> Self {
        Self { machine: SerialStateMachine::new(M::default()), index: 0, time: 0 }
    }

    fn apply(&mut self, action: SerialAction) -> SerialOutcome {
        self.index += 1;
        self.machine.apply(self.index, Timestamp(self.time), action).expect("the entry applies")
    }

    fn skip(&mut self, action: SerialAction) -> SerialOutcome {
        self.index += 1;
        self.machine.skip(self.index, Timestamp(self.time), action).expect("the entry can be skipped")
    }

    fn bytes(&self) -> Vec<u8> {
        self.machine.snapshot().unwrap().to_bytes().unwrap()
    }
}

const N1: &str = "auto:n-0000000000000001";
const N2: &str = "auto:n-0000000000000002";
const M1: &str = "auto:m-0000000000000001";

/// The table after these keys, all of them fresh.
fn table(keys: &[(&str, u64)]) -> SerialTable {
    let mut table = SerialTable::default();
    for (client, serial) in keys {
        assert!(table.should_apply(Some(&key(client, *serial))), "{client} {serial}");
    }
    table
}

// The table.

#[test]
fn an_entry_without_a_key_always_applies_and_leaves_no_mark() {
    let mut table = SerialTable::default();
    assert!(table.should_apply(None));
    assert!(table.should_apply(None));
    assert!(table.is_empty());
}

#[test]
fn a_serial_at_or_below_the_mark_does_not_apply_and_changes_nothing() {
    let mut marked = table(&[("ann", 5)]);
    for serial in [5, 4, 1, 0] {
        assert!(!marked.should_apply(Some(&key("ann", serial))), "{serial}");
    }
    assert_eq!(marked, table(&[("ann", 5)]));
    assert_eq!(marked.mark(&"ann".into()), 5);
}

#[test]
fn a_serial_above_the_mark_applies_and_is_the_mark_from_then_on() {
    let mut table = table(&[("ann", 5), ("ann", 6), ("ann", 100), ("bo", 1), ("ann", u64::MAX)]);
    assert!(!table.should_apply(Some(&key("ann", 99))), "overtaken");
    assert_eq!((table.mark(&"ann".into()), table.mark(&"bo".into())), (u64::MAX, 1));
    assert_eq!(table.len(), 2);
}

#[test]
fn serial_0_never_applies() {
    let mut table = SerialTable::default();
    assert!(!table.should_apply(Some(&key("ann", 0))));
    assert!(!table.should_apply(Some(&key(N1, 0))));
    assert!(table.is_empty());
}

#[test]
fn an_automatic_id_is_auto_a_node_and_16_lower_case_hex_digits() {
    for (text, family) in [
        ("auto:n-0123456789abcdef", "n"),
        ("auto:n-1-0123456789abcdef", "n-1"),
        ("auto:n--0123456789abcdef", "n-"),
        ("auto:--0123456789abcdef", "-"),
        ("auto:n-0000000000000001-0123456789abcdef", "n-0000000000000001"),
        ("auto:auto:n-0123456789abcdef", "auto:n"),
        ("auto:é/\n-0123456789abcdef", "é/\n"),
    ] {
        assert_eq!(ClientId::from(text).family(), Some(family), "{text}");
    }
    for durable in [
        "",
        "n",
        "auto:",
        "auto:-0123456789abcdef",
        "auto:0123456789abcdef",
        "auto:n",
        "auto:n-",
        "auto:n-0123456789abcde",
        "auto:n-00123456789abcdef",
        "auto:n-0123456789abcdeF",
        "auto:n-0123456789abcdeg",
        "auto:n-+123456789abcdef",
        "auto:n 0123456789abcdef",
        "auto:n-0123456789abcdef ",
        " auto:n-0123456789abcdef",
        "Auto:n-0123456789abcdef",
        "n-0123456789abcdef",
        "auto:n-é123456789abcdef",
        "auto:n-0123456789abcdeé",
        "auto:ééééééééé",
    ] {
        assert_eq!(ClientId::from(durable).family(), None, "{durable:?}");
    }
}

#[test]
fn an_automatic_id_is_made_of_a_node_and_an_incarnation() {
    assert_eq!(ClientId::auto("n-1", 0xab).as_str(), "auto:n-1-00000000000000ab");
    assert_eq!(ClientId::auto("n", u64::MAX), "auto:n-ffffffffffffffff".into());
    assert_eq!(ClientId::auto("n-1", 0xab).family(), Some("n-1"));
    assert_eq!(ClientId::auto("", 1).family(), None, "a node has a name");
}

#[test]
fn a_fresh_serial_of_an_automatic_id_evicts_the_other_ids_of_its_family_and_nobody_else() {
    let mut table = table(&[("n", 7), ("auto:n", 7), (M1, 7), ("auto:n-1-0000000000000001", 7), (N1, 7)]);
    assert!(table.should_apply(Some(&key(N2, 1))));
    let mark = |client: &str| table.mark(&client.into());
    assert_eq!((mark(N1), mark(N2)), (0, 1));
    for other in ["n", "auto:n", M1, "auto:n-1-0000000000000001"] {
        assert_eq!(mark(other), 7, "{other}");
    }
    assert_eq!(table.len(), 5);
}

#[test]
fn a_table_with_clients_of_one_kind_only_is_not_empty() {
    for client in ["ann", N1] {
        let table = table(&[(client, 1)]);
        assert_eq!((table.len(), table.is_empty()), (1, false), "{client}");
    }
}

#[test]
fn the_later_incarnation_is_the_one_that_comes_later_whatever_its_number() {
    let mut table = table(&[(N2, 7), (N1, 1)]);
    assert_eq!((table.mark(&N2.into()), table.mark(&N1.into())), (0, 1));
    assert!(!table.should_apply(Some(&key(N1, 1))));
}

#[test]
fn nothing_is_pruned_but_on_a_fresh_record() {
    let mut marked = table(&[(N1, 7)]);
    assert!(!marked.should_apply(Some(&key(N2, 0))), "a new incarnation without a fresh serial");
    assert!(!marked.should_apply(Some(&key(N1, 7))));
    assert!(marked.should_apply(None));
    assert_eq!(marked, table(&[(N1, 7)]));
}

#[test]
fn a_durable_id_is_never_pruned() {
    let mut table = SerialTable::default();
    for number in 0..1_000 {
        assert!(table.should_apply(Some(&key(&format!("client-{number:016x}"), 1))));
    }
    assert_eq!(table.len(), 1_000);
}

#[test]
fn a_straggler_of_an_evicted_incarnation_applies_again_and_evicts_the_live_one() {
    let mut table = table(&[(N1, 3), (N2, 5)]);
    assert!(table.should_apply(Some(&key(N1, 3))), "at least once, never a silent drop");
    assert!(table.should_apply(Some(&key(N2, 5))), "and so does a copy of the live one");
    assert!(!table.should_apply(Some(&key(N2, 5))));
    assert_eq!(table.len(), 1);
}

#[test]
fn closing_drops_the_mark_and_the_same_serial_applies_again() {
    let mut marked = table(&[("ann", 3), (M1, 4)]);
    for client in ["ann", M1] {
        marked.close(&client.into());
        assert_eq!(marked.mark(&client.into()), 0);
    }
    assert!(marked.is_empty());
    assert!(marked.should_apply(Some(&key("ann", 3))));
    assert!(marked.should_apply(Some(&key(M1, 4))));
}

#[test]
fn closing_an_unknown_client_changes_nothing() {
    let mut marked = table(&[("ann", 3), (N2, 4)]);
    for client in ["bo", N1, M1, "auto:n", "n", ""] {
        marked.close(&client.into());
    }
    assert_eq!(marked, table(&[("ann", 3), (N2, 4)]), "a dead incarnation does not close the live one");
}

#[test]
fn finding_a_family_does_not_scan_the_table() {
    // With a scan these are ten thousand million steps, and hours.
    let start = Instant::now();
    let mut table = SerialTable::default();
    for incarnation in 1..=2 {
        for node in 0..100_000 {
            let client = ClientId::auto(&format!("node-{node}"), incarnation);
            assert!(table.should_apply(Some(&SerialKey { client, serial: 1 })));
            assert!(start.elapsed() < Duration::from_mins(1), "at node {node} after {:?}", start.elapsed());
        }
    }
    assert_eq!(table.len(), 100_000);
}

// The table's bytes.

#[test]
fn equal_tables_give_equal_bytes_whatever_the_order_of_arrival() {
    let one = table(&[("ann", 3), (M1, 1), ("bo", 4), (N1, 8), (N2, 2), ("auto:n", 5)]);
    let mut other = table(&[("auto:n", 1), ("gone", 1), (N2, 2), ("bo", 4), ("ann", 3), (M1, 1)]);
    other.close(&"gone".into());
    assert!(other.should_apply(Some(&key("auto:n", 5))));
    assert_eq!(one, other);
    assert_eq!(one.to_bytes(), other.to_bytes());
    assert_eq!(SerialTable::from_bytes(&one.to_bytes()), Ok(one));
    assert_eq!(
        SerialTable::from_bytes(&SerialTable::default().to_bytes()),
        Ok(SerialTable::default()),
        "an empty one too"
    );
}

#[test]
fn damaged_table_bytes_are_refused() {
    let bytes = table(&[("ann", 3), (M1, 1)]).to_bytes();
    for length in 0..bytes.len() {
        assert!(SerialTable::from_bytes(&bytes[..length]).is_err(), "cut at {length}");
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[length] ^= 1 << bit;
            assert!(SerialTable::from_bytes(&damaged).is_err(), "bit {bit} of byte {length}");
        }
    }
    assert_eq!(SerialTable::from_bytes(&[&bytes[..], &[0]].concat()), Err(SnapshotError::Trailing));
    assert_eq!(SerialTable::from_bytes(b"what is this"), Err(SnapshotError::NotASnapshot));
}

/// A table's bytes, sound in themselves, of these marks in this order.
fn forged_table(marks: &[(&str, &[u8])]) -> Result<SerialTable, SnapshotError> {
    let sound = Snapshot::from_bytes(&SerialTable::default().to_bytes()).unwrap();
    let entries: Vec<(String, Bytes)> = marks
        .iter()
        .map(|(client, mark)| (format!("session/client/{client}"), Bytes::copy_from_slice(mark)))
        .collect();
    let blocks = by_the_book(&sound, entries.iter().map(|(key, value)| (key, value)));
    SerialTable::from_bytes(&blocks.concat())
}

#[test]
fn table_bytes_that_no_table_gives_are_refused() {
    assert_eq!(forged_table(&[("ann", &[3]), ("bo", &[4])]), Ok(table(&[("ann", 3), ("bo", 4)])));
    assert_eq!(forged_table(&[("bo", &[4]), ("ann", &[3])]), Err(SnapshotError::Damaged { block: 3 }));
    assert_eq!(forged_table(&[("ann", &[3]), ("ann", &[3])]), Err(SnapshotError::Damaged { block: 3 }));
    let refused = |client: &str, problem: &str| {
        let key = format!("session/client/{client}");
        Err(SnapshotError::Value { key, problem: problem.to_owned() })
    };
    assert_eq!(
        forged_table(&[(N1, &[3]), (N2, &[3])]),
        refused(N2, "there is another incarnation of its node")
    );
    assert_eq!(forged_table(&[("ann", &[0])]), refused("ann", "its mark is 0"));
    assert_eq!(forged_table(&[("ann", &[])]), refused("ann", "the input ends before the value does"));
    assert_eq!(
        forged_table(&[("ann", &[1, 1])]),
        refused("ann", "the input goes on for 1 bytes after the value")
    );
}

#[test]
fn the_bytes_of_something_else_are_no_table() {
    let machine = SerialLog::<Desk>::new().machine.snapshot().unwrap();
    let (expected, found) = ("SerialTable".to_owned(), "Desk".to_owned());
    assert_eq!(
        SerialTable::from_bytes(&machine.to_bytes().unwrap()),
        Err(SnapshotError::WrongMachine { expected, found })
    );
    let sound = Snapshot::from_bytes(&SerialTable::default().to_bytes()).unwrap();
    let extra = Dictionary::from([("session/extra".to_owned(), Bytes::new())]);
    assert_eq!(
        SerialTable::from_bytes(&by_the_book(&sound, &extra).concat()),
        Err(SnapshotError::UnknownKey { key: "session/extra".to_owned() })
    );
}

// The machine.

#[test]
fn a_command_runs_once_by_its_key_and_a_copy_is_a_duplicate() {
    let mut log = SerialLog::<Desk>::new();
    assert_eq!(log.apply(command("ann", 1, add(5))), applied(&5u64));
    assert_eq!(log.apply(command("ann", 1, add(5))), SerialOutcome::Duplicate);
    assert_eq!(log.apply(command("bo", 1, add(5))), applied(&10u64));
    let refused = Response::rejected(&Refused::Insufficient { total: 10 }).unwrap();
    let take = DeskCommand::Take { amount: 99 };
    assert_eq!(log.apply(command("ann", 2, take.clone())), SerialOutcome::Applied(refused));
    assert_eq!(log.apply(command("ann", 2, take)), SerialOutcome::Duplicate, "a rejection is an answer too");
    assert_eq!(log.machine.machine().total, 10);
    assert_eq!(log.machine.mark(&"ann".into()), Some(2));
}

#[test]
fn a_command_without_a_key_runs_for_each_entry() {
    let mut log = SerialLog::<Desk>::new();
    let unkeyed = || SerialAction::Command { key: None, payload: add(5).encode() };
    assert_eq!(log.apply(unkeyed()), applied(&5u64));
    assert_eq!(log.apply(unkeyed()), applied(&10u64));
}

#[test]
fn a_fresh_key_is_recorded_whether_its_payload_decodes_or_not() {
    let mut log = SerialLog::<Desk>::new();
    let garbage = SerialAction::Command { key: Some(key("bo", 1)), payload: Bytes::from_static(&[99, 1, 2]) };
    assert_eq!(log.apply(garbage.clone()), SerialOutcome::Invalid);
    assert_eq!(log.apply(garbage), SerialOutcome::Duplicate);
    assert_eq!(log.apply(command("ann", 1, DeskCommand::Double)), SerialOutcome::Invalid, "not active yet");
    assert_eq!(log.apply(UPGRADE), SerialOutcome::Upgraded);
    assert_eq!(
        log.apply(command("ann", 1, DeskCommand::Double)),
        SerialOutcome::Duplicate,
        "a copy does not run after the upgrade"
    );
    assert_eq!(log.apply(command("ann", 2, DeskCommand::Double)), applied(&0u64));
}

#[test]
fn an_internal_command_is_invalid_under_serials() {
    let mut log = SerialLog::<Desk>::new();
    assert_eq!(log.apply(command("ann", 1, DeskCommand::Purge)), SerialOutcome::Invalid);
    let unkeyed = SerialAction::Command { key: None, payload: DeskCommand::Purge.encode() };
    assert_eq!(log.apply(unkeyed), SerialOutcome::Invalid);
}

#[test]
fn a_handler_under_serials_has_no_session_and_sends_to_nobody() {
    let mut log = SerialLog::<Desk>::new();
    log.time = 40;
    let to = SessionId(7);
    let nobody: Option<u64> = None;
    assert_eq!(log.apply(command("ann", 1, DeskCommand::Note)), applied(&"nobody at 1 time 40 version 1"));
    let notify = DeskCommand::Notify { to, text: "hi".to_owned() };
    assert_eq!(log.apply(command("ann", 2, notify)), applied(&nobody));
    assert_eq!(log.apply(command("ann", 3, DeskCommand::Shout("hi".to_owned()))), applied(&0u64));
    assert_eq!(log.apply(command("ann", 4, DeskCommand::BadSend { to })), applied(&nobody), "not encoded");
}

#[test]
fn closing_a_client_is_an_entry_of_the_log() {
    let mut log = SerialLog::<Desk>::new();
    log.apply(command("ann", 1, add(5)));
    assert_eq!(log.apply(close("ann")), SerialOutcome::Closed);
    assert_eq!(log.apply(close("ann")), SerialOutcome::Closed, "and a second time nothing");
    assert_eq!(log.apply(command("ann", 1, add(5))), applied(&10u64));
}

#[test]
fn time_and_indices_under_serials_never_run_backwards() {
    let mut log = SerialLog::<Desk>::new();
    log.time = 50;
    log.apply(command("ann", 1, add(5)));
    log.time = 20;
    log.apply(command("ann", 2, DeskCommand::Note));
    assert_eq!(log.machine.machine().journal[..], ["nobody at 2 time 50 version 1"]);
    assert_eq!((log.machine.time(), log.machine.last_applied()), (Timestamp(50), 2));
    let before = log.bytes();
    for index in [0, 1, 2] {
        let refused = log.machine.apply(index, Timestamp(99), command("ann", 3, add(5)));
        assert_eq!(refused, Err(ApplyError::OutOfOrder { index, last_applied: 2 }));
        let refused = log.machine.skip(index, Timestamp(99), command("ann", 3, add(5)));
        assert_eq!(refused, Err(ApplyError::OutOfOrder { index, last_applied: 2 }));
    }
    assert_eq!(log.bytes(), before);
    assert_eq!(log.machine.apply(9, Timestamp(60), command("ann", 3, add(5))), Ok(applied(&10u64)));
}

#[test]
fn a_panic_or_an_unencodable_answer_under_serials_halts_before_the_entry() {
    for (bad, name, message) in [
        (DeskCommand::Panic, "Panic", "the desk broke"),
        (
            DeskCommand::BadReply,
            "BadReply",
            "its answer cannot be encoded: the value cannot be encoded: not today",
        ),
    ] {
        let mut log = SerialLog::<Desk>::new();
        log.apply(command("ann", 1, add(5)));
        let halted = Halted { index: 2, command: name.to_owned(), message: message.to_owned() };
        let error = ApplyError::Halted(halted.clone());
        assert_eq!(log.machine.apply(2, Timestamp(9), command("ann", 2, bad)), Err(error.clone()));
        assert_eq!(log.machine.halted(), Some(&halted));
        assert_eq!((log.machine.last_applied(), log.machine.time()), (1, Timestamp(0)));
        assert_eq!(log.machine.apply(3, Timestamp(9), command("bo", 1, add(5))), Err(error.clone()));
        assert_eq!(log.machine.skip(2, Timestamp(9), command("bo", 1, add(5))), Err(error.clone()));
        assert_eq!(log.machine.snapshot().err(), Some(error));
        assert_eq!(log.machine.query(&DeskQuery::Total.encode()), Err(QueryError::Halted(halted)));
        assert_eq!(log.machine.mark(&"ann".into()), None, "it may be half-changed");
    }
}

#[test]
fn skipping_under_serials_does_all_of_the_entry_except_the_users_code() {
    let mut log = SerialLog::<Desk>::new();
    log.apply(command(N1, 1, add(5)));
    assert_eq!(log.skip(command(N2, 1, DeskCommand::Panic)), SerialOutcome::Skipped);
    assert_eq!(log.machine.mark(&N1.into()), Some(0), "the other incarnation is evicted");
    assert_eq!(log.apply(command(N2, 1, DeskCommand::Panic)), SerialOutcome::Duplicate);
    let unkeyed = SerialAction::Command { key: None, payload: DeskCommand::Panic.encode() };
    assert_eq!(log.skip(unkeyed), SerialOutcome::Skipped);
    assert_eq!(log.skip(command(N2, 1, add(5))), SerialOutcome::Duplicate, "where no user code would run");
    assert_eq!(log.skip(close(N2)), SerialOutcome::Closed);
    assert_eq!(log.skip(UPGRADE), SerialOutcome::Upgraded);
    assert_eq!((log.machine.version(), log.machine.machine().total), (2, 5));
}

#[test]
fn versions_work_under_serials_as_under_sessions() {
    let mut old = SerialLog::<OldDesk>::new();
    let mut new = SerialLog::<Desk>::new();
    for action in [
        command("ann", 1, add(3)),
        command("ann", 2, DeskCommand::Double),
        SerialAction::Upgrade { version: 1 },
    ] {
        assert_eq!(old.apply(action.clone()), new.apply(action));
    }
    assert_eq!(old.bytes(), new.bytes(), "two builds agree about every entry");
    assert_eq!(old.machine.apply(4, Timestamp(0), UPGRADE), Err(ApplyError::NeedsBuild { version: 2 }));
    assert_eq!(old.machine.skip(4, Timestamp(0), UPGRADE), Err(ApplyError::NeedsBuild { version: 2 }));
    assert_eq!(old.bytes(), new.bytes(), "and it did not advance");
    let snapshot = old.machine.snapshot().unwrap();
    let mut next =
        SerialLog::<Desk> { machine: SerialStateMachine::restore(&snapshot).unwrap(), index: 3, time: 0 };
    assert_eq!(next.apply(UPGRADE), SerialOutcome::Upgraded);
    assert_eq!(next.apply(SerialAction::Upgrade { version: 1 }), SerialOutcome::Upgraded);
    assert_eq!(next.machine.version(), 2, "it only rises");
    assert_eq!(next.apply(command("ann", 3, DeskCommand::Double)), applied(&6u64));
    let refused = SerialStateMachine::<OldDesk>::restore(&next.machine.snapshot().unwrap()).err();
    assert_eq!(refused, Some(SnapshotError::NeedsBuild { version: 2 }));
}

#[test]
fn queries_under_serials_read_the_applied_state() {
    let mut log = SerialLog::<Desk>::new();
    log.apply(command("ann", 1, add(5)));
    assert_eq!(log.machine.query(&DeskQuery::Total.encode()), Ok(codec::encode(&5u64).unwrap()));
    assert!(matches!(log.machine.query(&[99]), Err(QueryError::Invalid(_))));
    assert!(matches!(log.machine.query(&DeskQuery::Panic.encode()), Err(QueryError::Panicked(_))));
    assert_eq!(log.machine.halted(), None);
}

// Snapshots and entries.

/// A machine with something in every corner.
fn rich() -> SerialLog {
    let mut log = SerialLog::new();
    log.time = 70;
    log.apply(command("ann", 3, add(5)));
    log.apply(command("ann/é", 300, DeskCommand::Note));
    log.apply(command(N1, 1, DeskCommand::Count { word: "one".to_owned() }));
    log.apply(command(N2, 2, add(1)));
    log.apply(command("auto:n", 9, DeskCommand::Double));
    log
}

#[test]
fn a_snapshot_of_serials_has_one_key_a_client() {
    let dictionary = rich().machine.snapshot().unwrap().dictionary().unwrap();
    let keys: Vec<&str> = dictionary.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        [
            "session/client/ann",
            "session/client/ann/é",
            "session/client/auto:n",
            "session/client/auto:n-0000000000000002",
            "session/clock",
            "session/kind",
            "session/version",
            "user/counts",
            "user/counts/036f6e65",
            "user/flag",
            "user/journal",
            "user/total",
        ]
    );
    assert_eq!(dictionary["session/client/ann/é"], codec::encode(&300u64).unwrap());
}

#[test]
fn restoring_serials_gives_back_both_halves() {
    let mut log = rich();
    let bytes = log.bytes();
    let machine =
        SerialStateMachine::<Desk>::restore(&Snapshot::from_bytes(&bytes).unwrap()).expect("it restores");
    let mut restored = SerialLog { machine, index: log.index, time: log.time };
    assert_eq!(restored.machine.machine(), log.machine.machine());
    assert_eq!(restored.bytes(), bytes, "byte for byte");
    for action in [
        command("ann", 3, add(5)),
        command(N2, 2, add(1)),
        command("auto:n", 9, DeskCommand::Double),
        command(N1, 1, add(2)),
        command("ann", 4, DeskCommand::Roll),
        UPGRADE,
    ] {
        assert_eq!(restored.apply(action.clone()), log.apply(action));
    }
    assert_eq!(restored.bytes(), log.bytes());
}

#[test]
fn a_damaged_snapshot_of_serials_is_refused() {
    let bytes = rich().bytes();
    for position in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[position] ^= 1 << (position % 8);
        assert!(Snapshot::from_bytes(&damaged).is_err(), "byte {position}");
        assert!(Snapshot::from_bytes(&bytes[..position]).is_err(), "cut at {position}");
    }
    let snapshot = rich().machine.snapshot().unwrap();
    let forged = |key: &str, value: &'static [u8]| {
        let mut dictionary = snapshot.dictionary().unwrap();
        dictionary.insert(key.to_owned(), Bytes::from_static(value));
        SerialStateMachine::<Desk>::restore(&forge(&snapshot, &dictionary)).err()
    };
    let value = |key: &str, problem: &str| {
        Some(SnapshotError::Value { key: key.to_owned(), problem: problem.to_owned() })
    };
    let n1 = "session/client/auto:n-0000000000000001";
    let n2 = "session/client/auto:n-0000000000000002";
    assert_eq!(forged(n1, &[1]), value(n2, "there is another incarnation of its node"));
    assert_eq!(forged("session/client/ann", &[0]), value("session/client/ann", "its mark is 0"));
    for key in ["session/seed", "session/limits", "session/client", "user/extra"] {
        assert_eq!(forged(key, &[0]), Some(SnapshotError::UnknownKey { key: key.to_owned() }));
    }
}

#[test]
fn a_damaged_serial_entry_is_an_error() {
    let actions = [
        command(N1, 300, add(7)),
        SerialAction::Command { key: None, payload: Bytes::new() },
        close("é"),
        UPGRADE,
    ];
    for action in actions {
        let entry = SerialEntry { time: Timestamp(1_000), action };
        let bytes = entry.encode();
        assert_eq!(SerialEntry::decode(&bytes).as_ref(), Ok(&entry));
        for length in 0..bytes.len() {
            let error = SerialEntry::decode(&bytes[..length]).unwrap_err();
            assert!(matches!(error, EntryError::Damaged(_)), "cut at {length}: {error:?}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(
            SerialEntry::decode(&longer),
            Err(EntryError::Damaged(DecodeError::Trailing { bytes: 1 }))
        );
    }
    assert_eq!(SerialEntry::decode(&[1, 0, 3, 0]), Err(EntryError::UnknownAction { tag: 3 }));
    assert_eq!(SerialEntry::decode(&[2, 0, 0]), Err(EntryError::UnknownFormat { version: 2 }));
    let hostile = [1, 0, 1, 253, 255, 255, 255, 255, 255, 255, 255, 127];
    assert!(matches!(SerialEntry::decode(&hostile), Err(EntryError::Damaged(_))), "a client of 2^63 bytes");
}

// Every history.

/// A step of a history: an entry that is applied or skipped, so many milliseconds after the one before.
#[derive(Clone, Debug)]
struct Step {
    skip: bool,
    time: u64,
    action: SerialAction,
}

fn payloads() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        8 => (0..5u64).prop_map(|amount| add(amount).encode()),
        2 => (0..9u64).prop_map(|amount| DeskCommand::Take { amount }.encode()),
        1 => Just(DeskCommand::Double.encode()),
        1 => Just(DeskCommand::Purge.encode()),
        1 => proptest::collection::vec(any::<u8>(), 0..4).prop_map(|junk| [&[200][..], &junk].concat().into()),
    ]
}

fn clients() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec!["ann", "bo", "", "auto:n", "auto:-0000000000000001"])
            .prop_map(str::to_owned),
        (prop::sample::select(vec!["n", "n-1", "m"]), 0..3u64)
            .prop_map(|(node, number)| format!("auto:{node}-{number:016x}")),
        Just("auto:n-000000000000000A".to_owned()),
    ]
}

fn steps() -> impl Strategy<Value = Step> {
    let action = prop_oneof![
        10 => (clients(), 0..5u64, payloads()).prop_map(|(client, serial, payload)| SerialAction::Command {
            key: Some(key(&client, serial)),
            payload,
        }),
        1 => payloads().prop_map(|payload| SerialAction::Command { key: None, payload }),
        1 => clients().prop_map(|client| close(&client)),
        1 => (0..3u32).prop_map(|version| SerialAction::Upgrade { version }),
    ];
    (prop::bool::weighted(0.1), 0..200u64, action).prop_map(|(skip, time, action)| Step {
        skip,
        time,
        action,
    })
}

fn histories() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(steps(), 0..40)
}

fn play(machine: &mut SerialStateMachine<Desk>, from: usize, steps: &[Step]) -> Vec<SerialOutcome> {
    let mut outcomes = Vec::new();
    for (index, step) in (from as u64 + 1..).zip(steps) {
        let (time, action) = (Timestamp(step.time), step.action.clone());
        let outcome =
            if step.skip { machine.skip(index, time, action) } else { machine.apply(index, time, action) };
        outcomes.push(outcome.unwrap());
    }
    outcomes
}

/// The rules once more, with nothing but a list that is searched from end to end.
#[derive(Default)]
struct Naive {
    marks: Vec<(String, u64)>,
    total: u64,
    upgraded: bool,
}

impl Naive {
    /// The node of an automatic id, letter by letter.
    fn family(client: &str) -> Option<String> {
        let letters: Vec<char> = client.chars().collect();
        let at = letters.len().checked_sub(17)?;
        let hex = |letter: &char| letter.is_ascii_digit() || ('a'..='f').contains(letter);
        let shaped = at > 5
            && letters[..5] == ['a', 'u', 't', 'o', ':']
            && letters[at] == '-'
            && letters[at + 1..].iter().all(hex);
        shaped.then(|| letters[5..at].iter().collect())
    }

    fn should_apply(&mut self, key: &SerialKey) -> bool {
        let client = key.client.as_str();
        let mark = self.marks.iter().find(|(of, _)| of == client).map_or(0, |(_, mark)| *mark);
        if key.serial <= mark {
            return false;
        }
        let family = Self::family(client);
        self.marks.retain(|(of, _)| of != client && (family.is_none() || Self::family(of) != family));
        self.marks.push((client.to_owned(), key.serial));
        true
    }

    fn run(&mut self, payload: &[u8]) -> SerialOutcome {
        match codec::decode(payload) {
            Ok(DeskCommand::Add { amount }) => self.total += amount,
            Ok(DeskCommand::Take { amount }) if amount > self.total => {
                let refused = Refused::Insufficient { total: self.total };
                return SerialOutcome::Applied(Response::rejected(&refused).unwrap());
            }
            Ok(DeskCommand::Take { amount }) => self.total -= amount,
            Ok(DeskCommand::Double) if self.upgraded => self.total *= 2,
            _ => return SerialOutcome::Invalid,
        }
        applied(&self.total)
    }

    fn step(&mut self, step: &Step) -> SerialOutcome {
        match &step.action {
            SerialAction::Command { key: Some(key), .. } if !self.should_apply(key) => {
                SerialOutcome::Duplicate
            }
            SerialAction::Command { .. } if step.skip => SerialOutcome::Skipped,
            SerialAction::Command { payload, .. } => self.run(payload),
            SerialAction::Close { client } => {
                self.marks.retain(|(of, _)| of != client.as_str());
                SerialOutcome::Closed
            }
            SerialAction::Upgrade { version } => {
                self.upgraded |= *version > 1;
                SerialOutcome::Upgraded
            }
        }
    }
}

proptest! {
    #[test]
    fn serials_and_their_naive_model_agree_on_every_history(steps in histories()) {
        let mut machine = SerialStateMachine::new(Desk::default());
        let mut naive = Naive::default();
        for (index, step) in steps.iter().enumerate() {
            let outcome = play(&mut machine, index, std::slice::from_ref(step));
            prop_assert_eq!(outcome, [naive.step(step)], "entry {}: {:?}", index + 1, step);
            prop_assert_eq!(machine.machine().total, naive.total);
            let kept: BTreeMap<String, u64> = machine
                .snapshot().unwrap().dictionary().unwrap()
                .into_iter()
                .filter_map(|(key, mark)| {
                    Some((key.strip_prefix("session/client/")?.to_owned(), codec::decode(&mark).unwrap()))
                })
                .collect();
            prop_assert_eq!(kept, naive.marks.iter().cloned().collect::<BTreeMap<_, _>>());
        }
    }

    #[test]
    fn restoring_serials_at_every_index_equals_straight_replay(steps in histories()) {
        let mut straight = SerialStateMachine::new(Desk::default());
        let outcomes = play(&mut straight, 0, &steps);
        let bytes = straight.snapshot().unwrap().to_bytes().unwrap();
        for at in 0..=steps.len() {
            let mut machine = SerialStateMachine::new(Desk::default());
            play(&mut machine, 0, &steps[..at]);
            let snapshot = machine.snapshot().unwrap().to_bytes().unwrap();
            let snapshot = Snapshot::from_bytes(&snapshot).unwrap();
            let mut restored = SerialStateMachine::<Desk>::restore(&snapshot).unwrap();
            prop_assert_eq!(&play(&mut restored, at, &steps[at..])[..], &outcomes[at..]);
            prop_assert_eq!(&restored.snapshot().unwrap().to_bytes().unwrap(), &bytes, "restored at {}", at);
        }
    }

    #[test]
    fn a_serial_table_survives_its_bytes_and_any_bytes_survive_the_table(
        keys in proptest::collection::vec((clients(), 0..9u64), 0..20),
        junk in proptest::collection::vec(any::<u8>(), 0..64),
        at in any::<prop::sample::Index>(),
        flip in 1..=255u8,
    ) {
        let mut table = SerialTable::default();
        for (client, serial) in &keys {
            table.should_apply(Some(&key(client, *serial)));
        }
        let mut bytes = table.to_bytes();
        prop_assert_eq!(SerialTable::from_bytes(&bytes), Ok(table));
        prop_assert!(SerialTable::from_bytes(&junk).is_err());
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        prop_assert!(SerialTable::from_bytes(&bytes).is_err());
        let _ = SerialEntry::decode(&junk);
    }

    /// A client sends one command after the other, each until it hears of it; the network repeats and delays; the
    /// machine is restored from its bytes now and then. `Count` tells how often each ran.
    #[test]
    fn a_durable_client_runs_each_command_once_through_any_network(
        seed in any::<u64>(), commands in 1..12u64, restores in any::<bool>(),
    ) {
        let mut dice = Dice(seed);
        let mut log = SerialLog::<Desk>::new();
        let mut under_way: Vec<SerialAction> = Vec::new();
        for serial in 1..=commands {
            let action = command("ann", serial, DeskCommand::Count { word: serial.to_string() });
            loop {
                under_way.extend(vec![action.clone(); 1 + dice.below(3)]);
                let arrived = under_way.swap_remove(dice.below(under_way.len()));
                let own = arrived == action;
                log.apply(arrived);
                if restores && dice.below(4) == 0 {
                    log.machine = SerialStateMachine::restore(&log.machine.snapshot().unwrap()).unwrap();
                }
                if own && dice.below(2) == 0 {
                    break;
                }
            }
        }
        for late in under_way {
            prop_assert_eq!(log.apply(late), SerialOutcome::Duplicate);
        }
        let counts = &log.machine.machine().counts;
        prop_assert_eq!(counts.len() as u64, commands);
        prop_assert_eq!(counts.values().copied().collect::<BTreeSet<_>>(), BTreeSet::from([1]));
    }
}

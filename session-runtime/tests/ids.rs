//! The rules of request ids, one test a rule. The names are referred to in `book/src/reference/rules.md`.

mod support;

use proptest::prelude::*;
use session_runtime::admission::{Admission, Admit};
use session_runtime::ids::{
    DEFAULT_ACKED_RETENTION, Id, IdAction, IdEntry, IdError, IdOutcome, IdStateMachine, IdTable, Known,
};
use session_runtime::{
    ApplyError, Bytes, Command, DecodeError, Dictionary, EntryError, Halted, Query, QueryError, RequestError,
    Response, SessionId, Snapshot, SnapshotError, StateMachine, Timestamp, codec,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};
use support::*;

fn id(name: &str) -> Id {
    Id::try_from(name.as_bytes()).unwrap()
}

/// A request; an empty `acked` acknowledges nothing.
#[allow(clippy::needless_pass_by_value)] // `ask("a", "", add(5))` reads better
fn ask(name: &str, acked: &str, command: DeskCommand) -> IdAction {
    let acked = Id::try_from(acked.as_bytes()).ok();
    IdAction::Request { id: id(name), acked, payload: command.encode() }
}

fn add(amount: u64) -> DeskCommand {
    DeskCommand::Add { amount }
}

fn configure(acked_retention: u64) -> IdAction {
    IdAction::Configure { acked_retention }
}

fn forget_before(time: u64) -> IdAction {
    IdAction::ForgetBefore { time: Timestamp(time) }
}

const UPGRADE: IdAction = IdAction::Upgrade { version: 2 };

fn response<T: serde::Serialize>(value: &T) -> Response {
    Response::accepted(value).unwrap()
}

fn executed<T: serde::Serialize>(value: &T) -> IdOutcome {
    IdOutcome::Executed(response(value))
}

fn duplicate<T: serde::Serialize>(value: &T) -> IdOutcome {
    IdOutcome::Duplicate(response(value))
}

/// A machine that is fed one entry after the other.
struct IdLog<M: StateMachine = Desk> {
    machine: IdStateMachine<M>,
    index: u64,
    time: u64,
}

impl<M: StateMachine + Default> IdLog<M> {
    fn new() -> Self {
        Self { machine: IdStateMachine::new(M::default()), index: 0, time: 0 }
    }

    fn apply(&mut self, action: IdAction) -> IdOutcome {
        self.index += 1;
        self.machine.apply(self.index, Timestamp(self.time), action).expect("the entry applies")
    }

    fn apply_at(&mut self, time: u64, action: IdAction) -> IdOutcome {
        self.time = time;
        self.apply(action)
    }

    fn skip(&mut self, action: IdAction) -> IdOutcome {
        self.index += 1;
        self.machine.skip(self.index, Timestamp(self.time), action).expect("the entry can be skipped")
    }

    /// What a copy would get, without applying it.
    fn known(&self, name: &str) -> Option<IdOutcome> {
        self.machine.answer_to(&id(name))
    }

    fn bytes(&self) -> Vec<u8> {
        self.machine.snapshot().unwrap().to_bytes().unwrap()
    }
}

// Ids.

#[test]
fn an_id_has_1_to_64_bytes() {
    for length in [1, 2, 63, 64] {
        let bytes = vec![7; length];
        assert_eq!(Id::try_from(&bytes[..]).unwrap().as_bytes(), bytes);
    }
    for length in [0, 65, 1_000] {
        assert_eq!(Id::try_from(&vec![7; length][..]), Err(IdError { length }));
    }
    assert_eq!(
        IdError { length: 65 }.to_string(),
        "a request id has 1 to 64 bytes, and this one would have 65"
    );
}

#[test]
fn an_id_can_be_made_of_a_uuid_of_a_request_or_of_a_client_and_its_request() {
    assert_eq!(Id::from_uuid([9; 16]).as_bytes(), [9; 16]);
    let (pay, other) = (Id::of_request(b"pay 5 to bo"), Id::of_request(b"pay 6 to bo"));
    assert_eq!(pay, Id::of_request(b"pay 5 to bo"), "equal requests are one");
    assert_ne!(pay, other);
    // What XXH3 with 128 bits is published to give for nothing.
    assert_eq!(Id::of_request(b"").to_string(), "99aa06d3014798d86001c324468d497f");
    assert_eq!(pay.to_string(), "10eefb2e3e6cef3177ae9f15ff379745", "fixed for ever");
    let of = |client: &str, request: &[u8]| Id::of_client_request(client.as_bytes(), request).unwrap();
    assert_eq!(of("ann", b"pay 5 to bo"), of("ann", b"pay 5 to bo"));
    assert_ne!(of("ann", b"pay 5 to bo"), of("cy", b"pay 5 to bo"), "two clients' equal requests are two");
    assert_eq!(of("ann", b"pay 5 to bo").as_bytes(), [b"ann", pay.as_bytes()].concat());
    assert_eq!(Id::of_client_request(&[1; 48], b"").unwrap().as_bytes().len(), 64);
    assert_eq!(Id::of_client_request(&[1; 49], b""), Err(IdError { length: 65 }));
}

// Requests.

#[test]
fn a_fresh_id_runs_and_a_known_one_gets_the_recorded_answer() {
    let mut log = IdLog::<Desk>::new();
    assert_eq!(log.apply(ask("a", "", add(5))), executed(&5u64));
    assert_eq!(log.apply(ask("b", "", add(5))), executed(&10u64));
    assert_eq!(log.apply(ask("a", "", add(5))), duplicate(&5u64), "the same bytes");
    assert_eq!(log.machine.machine().total, 10);
    let refused = Response::rejected(&Refused::Insufficient { total: 10 }).unwrap();
    let take = DeskCommand::Take { amount: 99 };
    assert_eq!(log.apply(ask("c", "", take.clone())), IdOutcome::Executed(refused.clone()));
    assert_eq!(log.apply(ask("c", "", take)), IdOutcome::Duplicate(refused), "a rejection is an answer too");
}

#[test]
fn another_payload_under_a_known_id_gets_that_ids_answer() {
    let mut log = IdLog::<Desk>::new();
    log.apply(ask("a", "", add(5)));
    assert_eq!(log.apply(ask("a", "", add(6))), duplicate(&5u64));
    assert_eq!(log.machine.machine().total, 5);
}

#[test]
fn an_invalid_payload_is_recorded_like_any_answer() {
    let mut log = IdLog::<Desk>::new();
    let junk = IdAction::Request { id: id("j"), acked: None, payload: Bytes::from_static(&[99, 1]) };
    assert_eq!(log.apply(junk.clone()), IdOutcome::Invalid);
    assert_eq!(log.apply(junk), IdOutcome::Invalid);
    assert_eq!(log.apply(ask("a", "", DeskCommand::Double)), IdOutcome::Invalid, "not active yet");
    assert_eq!(log.apply(UPGRADE), IdOutcome::Upgraded);
    assert_eq!(
        log.apply(ask("a", "", DeskCommand::Double)),
        IdOutcome::Invalid,
        "a copy does not run after the upgrade"
    );
    assert_eq!(log.apply(ask("b", "", DeskCommand::Double)), executed(&0u64));
    assert_eq!(log.machine.machine().doubled, 1);
    assert_eq!(log.machine.cached_response(&id("a")), Some(Err(RequestError::InvalidPayload)));
}

#[test]
fn an_internal_command_is_invalid_under_ids() {
    let mut log = IdLog::<Desk>::new();
    assert_eq!(log.apply(ask("a", "", DeskCommand::Purge)), IdOutcome::Invalid);
}

#[test]
fn a_handler_under_ids_has_no_session_and_sends_to_nobody() {
    let mut log = IdLog::<Desk>::new();
    let to = SessionId(7);
    let nobody: Option<u64> = None;
    assert_eq!(log.apply_at(40, ask("a", "", DeskCommand::Note)), executed(&"nobody at 1 time 40 version 1"));
    let notify = DeskCommand::Notify { to, text: "hi".to_owned() };
    assert_eq!(log.apply(ask("b", "", notify)), executed(&nobody));
    assert_eq!(log.apply(ask("c", "", DeskCommand::Shout("hi".to_owned()))), executed(&0u64));
    assert_eq!(log.apply(ask("d", "", DeskCommand::BadSend { to })), executed(&nobody), "not encoded");
}

// Acknowledgments.

#[test]
fn an_acknowledged_answer_is_dropped_at_once_and_a_copy_is_not_run_again() {
    let mut log = IdLog::<Desk>::new();
    log.apply(ask("a", "", add(5)));
    assert_eq!(log.apply(ask("b", "a", add(5))), executed(&10u64));
    assert_eq!(log.machine.cached_response(&id("a")), None);
    assert_eq!(log.apply(ask("a", "", add(5))), IdOutcome::Acknowledged);
    assert_eq!(log.machine.machine().total, 10);
}

#[test]
fn a_known_id_acknowledges_too_be_it_answered_or_acknowledged() {
    let mut log = IdLog::<Desk>::new();
    for name in ["a", "b", "c"] {
        log.apply(ask(name, "", add(1)));
    }
    assert_eq!(log.apply(ask("b", "a", add(1))), duplicate(&2u64));
    assert_eq!(log.known("a"), Some(IdOutcome::Acknowledged));
    assert_eq!(log.apply(ask("a", "c", add(1))), IdOutcome::Acknowledged);
    assert_eq!(log.known("c"), Some(IdOutcome::Acknowledged));
    assert_eq!(log.known("b"), Some(duplicate(&2u64)));
}

#[test]
fn an_invalid_request_acknowledges_too() {
    let mut log = IdLog::<Desk>::new();
    log.apply(ask("a", "", add(1)));
    assert_eq!(log.apply(ask("b", "a", DeskCommand::Purge)), IdOutcome::Invalid);
    assert_eq!(log.known("a"), Some(IdOutcome::Acknowledged));
    log.apply(ask("c", "b", add(1)));
    assert_eq!(log.known("b"), Some(IdOutcome::Acknowledged), "and is acknowledged like any");
}

#[test]
fn acknowledging_oneself_or_an_unknown_id_changes_nothing() {
    let mut log = IdLog::<Desk>::new();
    assert_eq!(log.apply(ask("a", "a", add(5))), executed(&5u64));
    assert_eq!(log.apply(ask("a", "a", add(5))), duplicate(&5u64));
    assert_eq!(log.apply(ask("b", "z", add(5))), executed(&10u64));
    assert_eq!(log.known("z"), None, "an unknown id is not remembered");
    assert_eq!(log.apply(ask("z", "", add(5))), executed(&15u64), "and runs when it comes");
}

#[test]
fn a_bare_id_stays_for_the_retention_and_no_longer() {
    let mut log = IdLog::<Desk>::new();
    log.apply(configure(100));
    log.apply_at(1_000, ask("a", "", add(5)));
    log.apply_at(1_500, ask("b", "a", add(5)));
    log.apply_at(1_600, configure(100));
    assert_eq!(log.known("a"), Some(IdOutcome::Acknowledged), "at the end of its retention");
    log.apply_at(1_601, configure(100));
    assert_eq!(log.known("a"), None);
    assert_eq!(log.apply(ask("a", "", add(5))), executed(&15u64), "a copy later than that runs again");
}

#[test]
fn the_sweep_comes_after_the_entry() {
    let mut log = IdLog::<Desk>::new();
    log.apply(configure(100));
    log.apply(ask("a", "", add(5)));
    log.apply(ask("b", "a", add(5)));
    assert_eq!(log.apply_at(9_000, ask("a", "", add(5))), IdOutcome::Acknowledged, "still there");
    assert_eq!(log.known("a"), None);
    assert_eq!(log.apply(ask("a", "", add(5))), executed(&15u64));
}

#[test]
fn every_kind_of_entry_sweeps() {
    for action in [ask("c", "", add(1)), ask("b", "", add(1)), forget_before(0), configure(100), UPGRADE] {
        for skip in [false, true] {
            let mut log = IdLog::<Desk>::new();
            log.apply(configure(100));
            log.apply(ask("a", "", add(1)));
            log.apply(ask("b", "a", add(1)));
            log.time = 101;
            if skip {
                log.skip(action.clone());
            } else {
                log.apply(action.clone());
            }
            assert_eq!(log.known("a"), None, "{action:?}");
        }
    }
}

#[test]
fn acknowledging_again_changes_nothing() {
    let mut log = IdLog::<Desk>::new();
    log.apply(configure(100));
    log.apply(ask("a", "", add(5)));
    log.apply(ask("b", "a", add(5)));
    log.apply_at(80, ask("c", "a", add(5)));
    log.apply_at(101, configure(100));
    assert_eq!(log.known("a"), None, "its time counts from the first acknowledgment");
}

#[test]
fn the_retention_is_ten_minutes_unless_configured_and_counts_for_what_is_there() {
    let mut log = IdLog::<Desk>::new();
    assert_eq!(log.machine.acked_retention(), 600_000);
    assert_eq!(DEFAULT_ACKED_RETENTION, 600_000);
    log.apply(ask("a", "", add(5)));
    log.apply(ask("b", "a", add(5)));
    log.apply_at(600_000, ask("c", "", add(5)));
    assert_eq!(log.known("a"), Some(IdOutcome::Acknowledged));
    assert_eq!(log.apply(configure(700_000)), IdOutcome::Configured);
    log.apply_at(700_000, ask("d", "", add(5)));
    assert_eq!(log.known("a"), Some(IdOutcome::Acknowledged), "longer");
    log.apply(configure(699_999));
    assert_eq!(log.known("a"), None, "shorter");
    assert_eq!(log.machine.acked_retention(), 699_999);
}

#[test]
fn a_retention_of_0_drops_an_acknowledged_id_at_once() {
    let mut log = IdLog::<Desk>::new();
    log.apply(ask("a", "", add(5)));
    log.apply(ask("b", "a", add(5)));
    log.apply(configure(0));
    assert_eq!(log.known("a"), None, "those that are there");
    log.apply(ask("c", "b", add(5)));
    assert_eq!(log.known("b"), None, "and those to come, at the same time");
    assert_eq!(log.known("c"), Some(duplicate(&15u64)));
    assert_eq!(log.apply(ask("b", "", add(5))), executed(&20u64));
}

#[test]
fn an_endless_retention_ends_never() {
    let mut log = IdLog::<Desk>::new();
    log.apply(configure(u64::MAX));
    log.apply_at(5, ask("a", "", add(5)));
    log.apply(ask("b", "a", add(5)));
    log.apply_at(u64::MAX, ask("c", "", add(5)));
    assert_eq!(log.known("a"), Some(IdOutcome::Acknowledged));
}

// Forgetting.

#[test]
fn nothing_that_is_not_acknowledged_is_dropped_by_count_or_age() {
    let mut log = IdLog::<Desk>::new();
    for number in 0..2_000u64 {
        log.apply_at(number * 86_400_000, ask(&number.to_string(), "", add(1)));
    }
    assert_eq!(log.apply_at(u64::MAX, ask("0", "", add(1))), duplicate(&1u64));
}

#[test]
fn forget_before_drops_and_counts_what_was_recorded_before_bare_ones_too() {
    let mut log = IdLog::<Desk>::new();
    for (time, name, acked) in [(10, "a", ""), (20, "b", "a"), (20, "c", ""), (30, "d", "c"), (40, "e", "")] {
        log.apply_at(time, ask(name, acked, add(1)));
    }
    assert_eq!(log.apply(forget_before(10)), IdOutcome::Forgotten(0), "strictly before");
    assert_eq!(log.apply(forget_before(30)), IdOutcome::Forgotten(3), "two of them bare");
    for gone in ["a", "b", "c"] {
        assert_eq!(log.known(gone), None, "{gone}");
    }
    assert_eq!(log.known("d"), Some(duplicate(&4u64)));
    assert_eq!(log.apply(forget_before(30)), IdOutcome::Forgotten(0));
    assert_eq!(log.apply(forget_before(u64::MAX)), IdOutcome::Forgotten(2), "also of times to come");
    assert_eq!(log.apply(ask("d", "", add(1))), executed(&6u64), "a copy of it runs again");
}

#[test]
fn an_id_is_recorded_at_the_logs_time_of_its_first_entry() {
    let mut log = IdLog::<Desk>::new();
    log.apply_at(100, ask("a", "", add(1)));
    log.apply_at(50, ask("b", "", add(1)));
    log.apply_at(200, ask("a", "", add(1)));
    assert_eq!(log.apply(forget_before(100)), IdOutcome::Forgotten(0), "time never runs backwards");
    assert_eq!(log.apply(forget_before(101)), IdOutcome::Forgotten(2), "and a copy is no record");
}

#[test]
fn forgetting_and_sweeping_cost_what_they_drop() {
    // With a scan these are ten thousand million steps each, and hours.
    let count = 100_000u64;
    let start = Instant::now();
    let in_time =
        |at: u64| assert!(start.elapsed() < Duration::from_mins(2), "at {at}: {:?}", start.elapsed());
    let mut table = IdTable::<u64>::default();
    for number in 0..2 * count {
        table.record(Id::of_request(&number.to_le_bytes()), number, Timestamp(number));
    }
    for number in 0..count {
        assert_eq!(table.forget_before(Timestamp(number + 1)), 1);
        in_time(number);
    }
    table.set_acked_retention(1);
    for number in count..2 * count {
        table.acknowledge(&Id::of_request(&number.to_le_bytes()), Timestamp(number));
        table.sweep(Timestamp(number));
        in_time(number);
    }
    assert_eq!(table.len(), 2);
}

// The table alone.

#[test]
fn the_table_alone_records_answers_of_any_type() {
    let mut table = IdTable::<()>::default();
    assert!(table.is_empty());
    table.record(id("a"), (), Timestamp(5));
    assert_eq!((table.get(&id("a")), table.get(&id("b"))), (Some(Known::Answered(&())), None));
    table.acknowledge(&id("a"), Timestamp(3));
    table.record(id("a"), (), Timestamp(6));
    assert_eq!(table.get(&id("a")), Some(Known::Acknowledged), "a known id keeps what it has");
    assert_eq!(
        IdTable::from_bytes(&table.to_bytes().unwrap()),
        Ok(table.clone()),
        "whatever the times given"
    );
    assert_eq!((table.len(), table.acked_retention()), (1, DEFAULT_ACKED_RETENTION));
}

fn small_table() -> IdTable<String> {
    let mut table = IdTable::default();
    for (name, time) in [("b", 20), ("a", 10), ("c", 30)] {
        table.record(id(name), format!("answer {name}"), Timestamp(time));
    }
    table.acknowledge(&id("a"), Timestamp(40));
    table.set_acked_retention(77);
    table
}

#[test]
fn equal_id_tables_give_equal_bytes_and_damaged_ones_are_refused() {
    let bytes = small_table().to_bytes().unwrap();
    let mut other = small_table();
    other.record(id("z"), String::new(), Timestamp(1));
    assert_eq!(other.forget_before(Timestamp(2)), 1);
    assert_eq!(other.to_bytes().unwrap(), bytes);
    let read = |bytes: &[u8]| IdTable::<String>::from_bytes(bytes);
    assert_eq!(read(&bytes), Ok(small_table()));
    for position in 0..bytes.len() {
        assert!(read(&bytes[..position]).is_err(), "cut at {position}");
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[position] ^= 1 << bit;
            assert!(read(&damaged).is_err(), "bit {bit} of byte {position}");
        }
    }
    assert_eq!(read(&[&bytes[..], &[0]].concat()), Err(SnapshotError::Trailing));
    assert!(matches!(
        IdTable::<u64>::from_bytes(&bytes),
        Err(SnapshotError::Value { key, .. }) if key == "session/request/62"
    ));
}

#[test]
fn id_table_bytes_that_no_table_gives_are_refused() {
    let bytes = small_table().to_bytes().unwrap();
    let sound = Snapshot::from_bytes(&bytes).unwrap();
    let read = |entries: &[(String, Bytes)]| {
        let blocks = by_the_book(&sound, entries.iter().map(|(key, value)| (key, value)));
        IdTable::<String>::from_bytes(&blocks.concat())
    };
    let entries: Vec<(String, Bytes)> = sound.dictionary().unwrap().into_iter().collect();
    assert_eq!(read(&entries), Ok(small_table()));
    let mut unsorted = entries.clone();
    unsorted.swap(1, 2);
    assert_eq!(read(&unsorted), Err(SnapshotError::Damaged { block: 4 }));
    let mut twice = entries.clone();
    twice.insert(1, entries[1].clone());
    assert_eq!(read(&twice), Err(SnapshotError::Damaged { block: 4 }));
    let key = "session/acked_retention".to_owned();
    assert_eq!(read(&entries[1..]), Err(SnapshotError::MissingKey { key }));
    let key = "session/unknown".to_owned();
    let more = [&entries[..], &[(key.clone(), Bytes::new())]].concat();
    assert_eq!(read(&more), Err(SnapshotError::UnknownKey { key }));
    let machine = IdLog::<Desk>::new().bytes();
    let (expected, found) = ("IdTable".to_owned(), "Desk".to_owned());
    let refused = IdTable::<String>::from_bytes(&machine);
    assert_eq!(refused, Err(SnapshotError::WrongMachine { expected, found }));
}

// What the machines have in common.

#[test]
fn time_and_indices_under_ids_never_run_backwards() {
    let mut log = IdLog::<Desk>::new();
    log.apply_at(50, ask("a", "", add(5)));
    log.apply_at(20, ask("b", "", DeskCommand::Note));
    assert_eq!(log.machine.machine().journal[..], ["nobody at 2 time 50 version 1"]);
    assert_eq!((log.machine.time(), log.machine.last_applied()), (Timestamp(50), 2));
    let before = log.bytes();
    for index in [0, 1, 2] {
        let refused = log.machine.apply(index, Timestamp(99), ask("c", "a", add(5)));
        assert_eq!(refused, Err(ApplyError::OutOfOrder { index, last_applied: 2 }));
        let refused = log.machine.skip(index, Timestamp(99), ask("c", "a", add(5)));
        assert_eq!(refused, Err(ApplyError::OutOfOrder { index, last_applied: 2 }));
    }
    assert_eq!(log.bytes(), before);
    assert_eq!(log.machine.apply(9, Timestamp(60), ask("c", "", add(5))), Ok(executed(&10u64)));
}

#[test]
fn a_panic_or_an_unencodable_answer_under_ids_halts_before_the_entry() {
    for (bad, name, message) in [
        (DeskCommand::Panic, "Panic", "the desk broke"),
        (
            DeskCommand::BadReply,
            "BadReply",
            "its answer cannot be encoded: the value cannot be encoded: not today",
        ),
    ] {
        let mut log = IdLog::<Desk>::new();
        log.apply(ask("a", "", add(5)));
        let halted = Halted { index: 2, command: name.to_owned(), message: message.to_owned() };
        let error = ApplyError::Halted(halted.clone());
        assert_eq!(log.machine.apply(2, Timestamp(9), ask("b", "a", bad)), Err(error.clone()));
        assert_eq!(log.machine.halted(), Some(&halted));
        assert_eq!((log.machine.last_applied(), log.machine.time()), (1, Timestamp(0)));
        assert_eq!(log.machine.apply(3, Timestamp(9), ask("c", "", add(5))), Err(error.clone()));
        assert_eq!(log.machine.skip(2, Timestamp(9), ask("c", "", add(5))), Err(error.clone()));
        assert_eq!(log.machine.snapshot().err(), Some(error));
        assert_eq!(log.machine.query(&DeskQuery::Total.encode()), Err(QueryError::Halted(halted)));
        assert_eq!(log.machine.cached_response(&id("a")), None, "it may be half-changed");
        assert_eq!(log.known("a"), None);
    }
}

#[test]
fn skipping_under_ids_does_all_of_the_entry_except_the_users_code() {
    let mut log = IdLog::<Desk>::new();
    log.apply(ask("a", "", add(5)));
    assert_eq!(log.skip(ask("b", "a", DeskCommand::Panic)), IdOutcome::Skipped);
    assert_eq!(log.known("a"), Some(IdOutcome::Acknowledged), "its acknowledgment counts");
    assert_eq!(log.apply(ask("b", "a", DeskCommand::Panic)), IdOutcome::Skipped, "recorded like any answer");
    assert_eq!(log.machine.cached_response(&id("b")), Some(Err(RequestError::Skipped)));
    assert_eq!(log.apply(ask("c", "b", add(1))), executed(&6u64));
    assert_eq!(log.skip(ask("c", "", add(1))), duplicate(&6u64), "where no user code would run");
    assert_eq!(log.skip(ask("b", "", add(1))), IdOutcome::Acknowledged);
    assert_eq!(log.skip(configure(5)), IdOutcome::Configured);
    assert_eq!(log.skip(UPGRADE), IdOutcome::Upgraded);
    assert_eq!(log.skip(forget_before(9)), IdOutcome::Forgotten(3));
    assert_eq!((log.machine.version(), log.machine.machine().total), (2, 6));
}

#[test]
fn versions_work_under_ids_as_under_sessions() {
    let mut old = IdLog::<OldDesk>::new();
    let mut new = IdLog::<Desk>::new();
    let lower = IdAction::Upgrade { version: 1 };
    for action in [ask("a", "", add(3)), ask("b", "", DeskCommand::Double), lower.clone()] {
        assert_eq!(old.apply(action.clone()), new.apply(action));
    }
    assert_eq!(old.bytes(), new.bytes(), "two builds agree about every entry");
    assert_eq!(old.machine.apply(4, Timestamp(0), UPGRADE), Err(ApplyError::NeedsBuild { version: 2 }));
    assert_eq!(old.machine.skip(4, Timestamp(0), UPGRADE), Err(ApplyError::NeedsBuild { version: 2 }));
    assert_eq!(old.bytes(), new.bytes(), "and it did not advance");
    let machine = IdStateMachine::restore(&old.machine.snapshot().unwrap()).unwrap();
    let mut next = IdLog::<Desk> { machine, index: 3, time: 0 };
    assert_eq!(next.apply(UPGRADE), IdOutcome::Upgraded);
    assert_eq!(next.apply(lower), IdOutcome::Upgraded);
    assert_eq!(next.machine.version(), 2, "it only rises");
    assert_eq!(next.apply(ask("c", "", DeskCommand::Double)), executed(&6u64));
    let refused = IdStateMachine::<OldDesk>::restore(&next.machine.snapshot().unwrap()).err();
    assert_eq!(refused, Some(SnapshotError::NeedsBuild { version: 2 }));
}

#[test]
fn queries_under_ids_read_the_applied_state() {
    let mut log = IdLog::<Desk>::new();
    log.apply(ask("a", "", add(5)));
    assert_eq!(log.machine.query(&DeskQuery::Total.encode()), Ok(codec::encode(&5u64).unwrap()));
    assert!(matches!(log.machine.query(&[99]), Err(QueryError::Invalid(_))));
    assert!(matches!(log.machine.query(&DeskQuery::Panic.encode()), Err(QueryError::Panicked(_))));
    assert_eq!(log.machine.halted(), None);
}

// Snapshots and entries.

/// A machine with something in every corner.
fn rich() -> IdLog {
    let mut log = IdLog::new();
    log.apply(configure(500));
    log.apply_at(10, ask("a", "", add(5)));
    log.apply_at(20, ask("b", "", DeskCommand::Take { amount: 100 }));
    log.apply_at(30, ask("c", "a", DeskCommand::Note));
    log.apply_at(40, ask("d", "", DeskCommand::Double));
    log.skip(ask("e", "", DeskCommand::Panic));
    log
}

#[test]
fn a_snapshot_of_ids_has_one_key_a_request() {
    let dictionary = rich().machine.snapshot().unwrap().dictionary().unwrap();
    let keys: Vec<&str> = dictionary.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        [
            "session/acked_retention",
            "session/clock",
            "session/kind",
            "session/request/61",
            "session/request/62",
            "session/request/63",
            "session/request/64",
            "session/request/65",
            "session/version",
            "user/counts",
            "user/flag",
            "user/journal",
            "user/total",
        ]
    );
}

#[test]
fn restoring_ids_gives_back_both_halves() {
    let mut log = rich();
    let bytes = log.bytes();
    let machine =
        IdStateMachine::<Desk>::restore(&Snapshot::from_bytes(&bytes).unwrap()).expect("it restores");
    let mut restored = IdLog { machine, index: log.index, time: log.time };
    assert_eq!(restored.machine.machine(), log.machine.machine());
    assert_eq!(restored.machine.acked_retention(), 500);
    assert_eq!(restored.bytes(), bytes, "byte for byte");
    for (time, action) in [
        (50, ask("a", "", add(5))),
        (60, ask("b", "", add(5))),
        (70, ask("c", "b", add(5))),
        (80, ask("d", "", DeskCommand::Double)),
        (90, ask("e", "", DeskCommand::Panic)),
        (100, ask("f", "", DeskCommand::Roll)),
        (530, ask("a", "", add(5))),
        (531, UPGRADE),
        (532, ask("a", "", add(5))),
        (533, forget_before(25)),
    ] {
        assert_eq!(restored.apply_at(time, action.clone()), log.apply_at(time, action));
    }
    assert_eq!(restored.bytes(), log.bytes());
}

#[test]
fn a_damaged_snapshot_of_ids_is_refused() {
    let bytes = rich().bytes();
    for position in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[position] ^= 1 << (position % 8);
        assert!(Snapshot::from_bytes(&damaged).is_err(), "byte {position}");
        assert!(Snapshot::from_bytes(&bytes[..position]).is_err(), "cut at {position}");
    }
    let snapshot = rich().machine.snapshot().unwrap();
    let forged = |change: &dyn Fn(&mut Dictionary)| {
        let mut dictionary = snapshot.dictionary().unwrap();
        change(&mut dictionary);
        IdStateMachine::<Desk>::restore(&forge(&snapshot, &dictionary)).err()
    };
    let long = format!("session/request/{}", "00".repeat(65));
    let no_id = "the key does not end in a request id";
    let cases: &[(&str, &[u8], &str)] = &[
        ("session/request/", &[10, 0, 1], no_id),
        ("session/request/6", &[10, 0, 1], no_id),
        ("session/request/6A", &[10, 0, 1], no_id),
        (&long, &[10, 0, 1], no_id),
        ("session/request/61", &[], "the input ends before the value does"),
        ("session/request/61", &[41, 0, 1], "it was recorded behind the clock"),
        (
            "session/request/61",
            &[10, 1, 9],
            "it was acknowledged before it was recorded, or behind the clock",
        ),
        (
            "session/request/61",
            &[10, 1, 41],
            "it was acknowledged before it was recorded, or behind the clock",
        ),
        ("session/acked_retention", &[9], "there is an acknowledged id whose retention is over"),
        ("session/acked_retention", &[0], "there is an acknowledged id whose retention is over"),
    ];
    for (key, value, problem) in cases {
        let error = forged(&|dictionary| {
            dictionary.insert((*key).to_owned(), Bytes::from_static(value));
        });
        let expected = SnapshotError::Value { key: (*key).to_owned(), problem: (*problem).to_owned() };
        assert_eq!(error, Some(expected));
    }
    for key in ["session/seed", "session/request", "session/client/ann", "user/extra"] {
        let error = forged(&|dictionary| {
            dictionary.insert(key.to_owned(), Bytes::new());
        });
        assert_eq!(error, Some(SnapshotError::UnknownKey { key: key.to_owned() }));
    }
    let error = forged(&|dictionary| {
        dictionary.remove("session/acked_retention");
    });
    assert_eq!(error, Some(SnapshotError::MissingKey { key: "session/acked_retention".to_owned() }));
}

#[test]
fn a_damaged_id_entry_is_an_error() {
    for action in [ask("a", "b", add(7)), ask("a", "", add(7)), forget_before(9), configure(1_000), UPGRADE] {
        let entry = IdEntry { time: Timestamp(1_000), action };
        let bytes = entry.encode();
        assert_eq!(IdEntry::decode(&bytes).as_ref(), Ok(&entry));
        for length in 0..bytes.len() {
            let error = IdEntry::decode(&bytes[..length]).unwrap_err();
            assert!(matches!(error, EntryError::Damaged(_)), "cut at {length}: {error:?}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(IdEntry::decode(&longer), Err(EntryError::Damaged(DecodeError::Trailing { bytes: 1 })));
    }
    assert_eq!(IdEntry::decode(&[1, 0, 4, 0]), Err(EntryError::UnknownAction { tag: 4 }));
    assert_eq!(IdEntry::decode(&[2, 0, 0]), Err(EntryError::UnknownFormat { version: 2 }));
    assert!(IdEntry::decode(&[1, 0, 0, 1, 9, 0, 0]).is_ok());
    let empty_id = IdEntry::decode(&[1, 0, 0, 0, 0, 0]).unwrap_err();
    assert!(empty_id.to_string().contains("a request id has 1 to 64 bytes"), "{empty_id}");
    let long_id = [&[1, 0, 0, 65][..], &[9; 65], &[0, 0]].concat();
    assert!(matches!(IdEntry::decode(&long_id), Err(EntryError::Damaged(_))));
}

// The leader's gate.

/// A leader with its log, its gate and its applied state.
struct Leader {
    log: IdLog,
    gate: Admission<Id>,
    term: u64,
    /// Appended and not applied, each with its index.
    waiting: VecDeque<(u64, IdAction)>,
    last_index: u64,
    /// How many entries were appended.
    appended: u64,
}

impl Leader {
    fn new() -> Self {
        let (log, gate, waiting) = (IdLog::new(), Admission::new(), VecDeque::new());
        Self { log, gate, term: 1, waiting, last_index: 0, appended: 0 }
    }

    /// A copy of a request arrives.
    fn arrived(&mut self, action: &IdAction) -> Admit<IdOutcome> {
        let IdAction::Request { id, .. } = action else { panic!("no request") };
        let admit = self.gate.admit(self.term, id, self.log.machine.answer_to(id));
        if admit == Admit::Append {
            self.last_index += 1;
            self.appended += 1;
            self.waiting.push_back((self.last_index, action.clone()));
            self.gate.appended(id.clone(), self.term, self.last_index);
        }
        admit
    }

    /// The first entry that waits is committed and applied.
    fn commit(&mut self) -> Option<IdOutcome> {
        let (index, action) = self.waiting.pop_front()?;
        let outcome = self.log.machine.apply(index, Timestamp(0), action).unwrap();
        self.gate.applied(index);
        Some(outcome)
    }
}

#[test]
fn the_gate_appends_a_request_once_and_answers_or_waits_for_every_copy() {
    let mut leader = Leader::new();
    let (a, b) = (ask("a", "", add(5)), ask("b", "a", add(5)));
    assert_eq!(leader.arrived(&a), Admit::Append);
    assert_eq!(leader.arrived(&a), Admit::InFlight { index: 1 }, "in the log: wait");
    assert_eq!(leader.commit(), Some(executed(&5u64)));
    assert_eq!(leader.arrived(&a), Admit::Answered(duplicate(&5u64)));
    assert_eq!(leader.arrived(&b), Admit::Append);
    leader.commit();
    assert_eq!(leader.arrived(&a), Admit::Answered(IdOutcome::Acknowledged));
    let junk = IdAction::Request { id: id("j"), acked: None, payload: Bytes::from_static(&[99]) };
    assert_eq!(leader.arrived(&junk), Admit::Append);
    leader.commit();
    assert_eq!(leader.arrived(&junk), Admit::Answered(IdOutcome::Invalid));
    assert_eq!(leader.appended, 3, "one entry a request");
}

#[test]
fn without_the_gate_applying_answers_every_copy_alike() {
    let mut leader = Leader::new();
    let a = ask("a", "", add(5));
    leader.arrived(&a);
    leader.term = 2;
    assert_eq!(leader.arrived(&a), Admit::Append, "a new leader does not know what waits");
    assert_eq!(leader.commit(), Some(executed(&5u64)));
    assert_eq!(leader.commit(), Some(duplicate(&5u64)));
    assert_eq!(leader.log.machine.machine().total, 5);
}

// Every history.

/// A step of a history: an entry that is applied or skipped, at a time.
#[derive(Clone, Debug)]
struct Step {
    skip: bool,
    time: u64,
    action: IdAction,
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

fn ids() -> impl Strategy<Value = Id> {
    (b'a'..=b'h').prop_map(|name| Id::try_from(&[name][..]).unwrap())
}

fn steps() -> impl Strategy<Value = Step> {
    let request = (ids(), proptest::option::weighted(0.7, ids()), payloads());
    let action = prop_oneof![
        12 => request.prop_map(|(id, acked, payload)| IdAction::Request { id, acked, payload }),
        1 => (0..400u64).prop_map(forget_before),
        1 => prop::sample::select(vec![0, 1, 20, 100, u64::MAX]).prop_map(configure),
        1 => (0..3u32).prop_map(|version| IdAction::Upgrade { version }),
    ];
    (prop::bool::weighted(0.1), 0..30u64, action).prop_map(|(skip, time, action)| Step { skip, time, action })
}

/// Time mostly rises, and a leader's clock may be behind.
fn histories() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(steps(), 0..40).prop_map(|mut steps| {
        for (position, step) in steps.iter_mut().enumerate() {
            step.time += 10 * position as u64;
        }
        steps
    })
}

fn play(machine: &mut IdStateMachine<Desk>, from: usize, steps: &[Step]) -> Vec<IdOutcome> {
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
struct Naive {
    known: Vec<Remembered>,
    retention: u64,
    now: u64,
    total: u64,
    upgraded: bool,
}

struct Remembered {
    id: Id,
    recorded_at: u64,
    /// What a copy gets.
    answer: IdOutcome,
    acked_at: Option<u64>,
}

impl Naive {
    fn new() -> Self {
        Self { known: Vec::new(), retention: 600_000, now: 0, total: 0, upgraded: false }
    }

    fn run(&mut self, payload: &[u8], skip: bool) -> Result<Response, IdOutcome> {
        if skip {
            return Err(IdOutcome::Skipped);
        }
        match codec::decode(payload) {
            Ok(DeskCommand::Add { amount }) => self.total += amount,
            Ok(DeskCommand::Take { amount }) if amount > self.total => {
                return Ok(Response::rejected(&Refused::Insufficient { total: self.total }).unwrap());
            }
            Ok(DeskCommand::Take { amount }) => self.total -= amount,
            Ok(DeskCommand::Double) if self.upgraded => self.total *= 2,
            _ => return Err(IdOutcome::Invalid),
        }
        Ok(response(&self.total))
    }

    fn request(&mut self, id: &Id, acked: Option<&Id>, payload: &[u8], skip: bool) -> IdOutcome {
        let outcome = match self.known.iter().find(|known| known.id == *id) {
            Some(known) if known.acked_at.is_some() => IdOutcome::Acknowledged,
            Some(known) => known.answer.clone(),
            None => {
                let result = self.run(payload, skip);
                let (first, copy) = match result {
                    Ok(response) => (IdOutcome::Executed(response.clone()), IdOutcome::Duplicate(response)),
                    Err(outcome) => (outcome.clone(), outcome),
                };
                let (id, recorded_at) = (id.clone(), self.now);
                self.known.push(Remembered { id, recorded_at, answer: copy, acked_at: None });
                first
            }
        };
        for known in &mut self.known {
            if Some(&known.id) == acked && known.id != *id && known.acked_at.is_none() {
                known.acked_at = Some(self.now);
            }
        }
        outcome
    }

    fn step(&mut self, step: &Step) -> IdOutcome {
        self.now = self.now.max(step.time);
        let outcome = match &step.action {
            IdAction::Request { id, acked, payload } => self.request(id, acked.as_ref(), payload, step.skip),
            IdAction::ForgetBefore { time } => {
                let before = self.known.len();
                self.known.retain(|known| known.recorded_at >= time.0);
                IdOutcome::Forgotten((before - self.known.len()) as u64)
            }
            IdAction::Configure { acked_retention } => {
                self.retention = *acked_retention;
                IdOutcome::Configured
            }
            IdAction::Upgrade { version } => {
                self.upgraded |= *version > 1;
                IdOutcome::Upgraded
            }
        };
        let (now, retention) = (u128::from(self.now), u128::from(self.retention));
        self.known.retain(|known| match known.acked_at {
            None => true,
            Some(acked_at) => retention > 0 && now <= u128::from(acked_at) + retention,
        });
        outcome
    }

    fn copies(&self) -> BTreeMap<Id, IdOutcome> {
        let copy = |known: &Remembered| match known.acked_at {
            None => known.answer.clone(),
            Some(_) => IdOutcome::Acknowledged,
        };
        self.known.iter().map(|known| (known.id.clone(), copy(known))).collect()
    }
}

proptest! {
    #[test]
    fn ids_and_their_naive_model_agree_on_every_history(steps in histories()) {
        let mut machine = IdStateMachine::new(Desk::default());
        let mut naive = Naive::new();
        for (index, step) in steps.iter().enumerate() {
            let outcome = play(&mut machine, index, std::slice::from_ref(step));
            prop_assert_eq!(outcome, [naive.step(step)], "entry {}: {:?}", index + 1, step);
            prop_assert_eq!(machine.machine().total, naive.total);
            let copies: BTreeMap<Id, IdOutcome> = (b'a'..=b'h')
                .filter_map(|name| Id::try_from(&[name][..]).ok())
                .filter_map(|id| Some((id.clone(), machine.answer_to(&id)?)))
                .collect();
            prop_assert_eq!(copies, naive.copies());
        }
    }

    #[test]
    fn restoring_ids_at_every_index_equals_straight_replay(steps in histories()) {
        let mut straight = IdStateMachine::new(Desk::default());
        let outcomes = play(&mut straight, 0, &steps);
        let bytes = straight.snapshot().unwrap().to_bytes().unwrap();
        for at in 0..=steps.len() {
            let mut machine = IdStateMachine::new(Desk::default());
            play(&mut machine, 0, &steps[..at]);
            let snapshot = machine.snapshot().unwrap().to_bytes().unwrap();
            let snapshot = Snapshot::from_bytes(&snapshot).unwrap();
            let mut restored = IdStateMachine::<Desk>::restore(&snapshot).unwrap();
            prop_assert_eq!(&play(&mut restored, at, &steps[at..])[..], &outcomes[at..]);
            prop_assert_eq!(&restored.snapshot().unwrap().to_bytes().unwrap(), &bytes, "restored at {}", at);
        }
    }

    #[test]
    fn any_bytes_survive_the_id_table(junk in proptest::collection::vec(any::<u8>(), 0..64)) {
        prop_assert!(IdTable::<String>::from_bytes(&junk).is_err());
        let _ = IdEntry::decode(&junk);
        let _ = IdEntry::decode(&[&[1, 0, 0][..], &junk].concat());
        let _ = Id::try_from(&junk[..]);
    }

    /// Clients that do their part: each request is sent until it is answered, with the acknowledgment it began with,
    /// and each answer is acknowledged once, oldest first. The network repeats and delays without end, leaders change,
    /// machines are restored; `Count` tells how often each request ran.
    #[test]
    fn a_client_that_does_its_part_runs_each_request_once_through_any_network(
        seed in any::<u64>(), requests in 1..25u64,
    ) {
        let mut dice = Dice(seed);
        let mut leader = Leader::new();
        let mut sent: Vec<IdAction> = Vec::new();
        let mut pending: BTreeMap<Id, IdAction> = BTreeMap::new();
        let mut to_acknowledge: VecDeque<Id> = VecDeque::new();
        let mut next = 0;
        while next < requests || !pending.is_empty() {
            if next < requests && pending.len() < 4 {
                next += 1;
                let id = Id::of_client_request(b"ann", &next.to_le_bytes()).unwrap();
                let payload = DeskCommand::Count { word: next.to_string() }.encode();
                let action = IdAction::Request { id: id.clone(), acked: to_acknowledge.pop_front(), payload };
                pending.insert(id, action.clone());
                sent.push(action);
            }
            // Any request ever sent may arrive, again and again.
            let arrived = sent[dice.below(sent.len())].clone();
            let answered = match leader.arrived(&arrived) {
                Admit::Answered(_) => Some(arrived),
                _ => leader.waiting.front().map(|(_, action)| action.clone()).filter(|_| leader.commit().is_some()),
            };
            if let Some(IdAction::Request { id, .. }) = answered
                && dice.below(3) > 0
                && pending.remove(&id).is_some()
            {
                to_acknowledge.push_back(id);
            }
            if dice.below(5) == 0 {
                // Another leader: some of what was not committed is gone.
                leader.term += 1;
                leader.waiting.truncate(dice.below(leader.waiting.len() + 1));
                leader.last_index =
                    leader.waiting.back().map_or(leader.log.machine.last_applied(), |(index, _)| *index);
                leader.log.machine = IdStateMachine::restore(&leader.log.machine.snapshot().unwrap()).unwrap();
            }
        }
        while leader.commit().is_some() {}
        let counts = &leader.log.machine.machine().counts;
        prop_assert_eq!(counts.len() as u64, requests);
        prop_assert_eq!(counts.values().copied().collect::<BTreeSet<_>>(), BTreeSet::from([1]));
    }
}

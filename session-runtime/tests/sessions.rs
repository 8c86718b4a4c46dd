//! The rules of sessions, one test a rule. The names are referred to in `book/src/reference/rules.md`.

mod support;

use session_runtime::rand_core::{Rng, SeedableRng};
use session_runtime::schema::StateField;
use session_runtime::{
    ApplyError, Bytes, CloseReason, Command, Context, EncodeError, Halted, Limits, Never, PendingRequest,
    RaftAction, RefuseReason, RequestError, RequestId, Response, Schema, ServerAction, ServerRequestId,
    SessionId, SessionStateMachine, SnapshotError, State, StateError, StateMachine, StateReader, StateWriter,
    Status, Timestamp, codec,
};
use std::time::{Duration, Instant};
use support::*;

fn created(session: SessionId) -> ServerAction {
    ServerAction::SessionCreated { session }
}

fn refused(session: SessionId, reason: RefuseReason) -> ServerAction {
    ServerAction::SessionRefused { session, reason }
}

fn closed(session: SessionId, reason: CloseReason) -> ServerAction {
    ServerAction::SessionClosed { session, reason }
}

fn add(amount: u64) -> DeskCommand {
    DeskCommand::Add { amount }
}

fn notify(to: SessionId, text: &str) -> DeskCommand {
    DeskCommand::Notify { to, text: text.to_owned() }
}

fn pending(log: &Log, session: SessionId) -> Vec<u64> {
    log.machine.pending_requests(session).map(|request| request.id.0).collect()
}

fn cached(log: &Log, session: SessionId, number: u64) -> Option<Result<Response, RequestError>> {
    log.machine.cached_response(session, RequestId(number))
}

/// A log in which these sessions are open.
fn opened(sessions: &[SessionId]) -> Log {
    let mut log = Log::new();
    for session in sessions {
        assert_eq!(log.apply(create(*session)), [created(*session)]);
    }
    log
}

const A: SessionId = SessionId(0xa);
const B: SessionId = SessionId(0xb);
const C: SessionId = SessionId(0xc);

// ClientRequest, step by step.

#[test]
fn step_1_a_request_without_a_session_is_expired_and_runs_nothing() {
    let mut log = Log::<Desk>::new();
    assert_eq!(log.apply(request(A, 1, add(5))), [failed(A, 1, RequestError::SessionExpired)]);
    assert_eq!(log.machine.machine().total, 0);
    assert_eq!(log.machine.sessions().count(), 0);
}

#[test]
fn step_1_a_request_behind_its_sessions_closing_is_expired_and_runs_nothing() {
    let mut log = opened(&[A]);
    log.apply(expire(A));
    assert_eq!(log.apply(request(A, 1, add(5))), [failed(A, 1, RequestError::SessionExpired)]);
    assert_eq!(log.machine.machine().total, 0);
}

#[test]
fn step_2_a_request_refreshes_activity_and_acknowledges_and_so_does_a_duplicate() {
    let mut log = opened(&[A, B]);
    log.apply(configure(Limits { idle_timeout: Some(100), ..Limits::default() }));
    for text in ["one", "two", "three"] {
        log.apply(internal(notify(A, text)));
    }
    let payload = add(5).encode();
    log.apply_at(90, request_with(A, 1, 1, 1, payload.clone()));
    assert_eq!(pending(&log, A), [2, 3]);
    log.apply_at(100, request_with(A, 1, 1, 0, payload.clone()));
    assert_eq!(pending(&log, A), [2, 3], "0 acknowledges nothing");
    assert_eq!(
        log.apply_at(150, request_with(A, 1, 1, 3, payload))[1..],
        [notice(A, 4, "? left after 2"), closed(B, CloseReason::Idle)]
    );
    assert_eq!(pending(&log, A), [4]);
    assert_eq!(log.machine.expiry_due(), Some(Timestamp(251)), "the duplicate was an activity");
}

#[test]
fn step_3_the_watermark_rises_and_discards_the_answers_below_it() {
    let mut log = opened(&[A]);
    log.apply(request(A, 1, add(1)));
    log.apply(request(A, 2, add(2)));
    log.apply(request_with(A, 3, 3, 0, add(3).encode()));
    assert_eq!((cached(&log, A, 1), cached(&log, A, 2)), (None, None));
    assert!(cached(&log, A, 3).is_some());
}

#[test]
fn step_3_a_duplicate_moves_the_watermark_too() {
    let mut log = opened(&[A]);
    log.apply(request(A, 1, add(1)));
    log.apply(request(A, 2, add(2)));
    let answer = log.apply(request_with(A, 2, 2, 0, add(2).encode()));
    assert_eq!(answer, [accepted(A, 2, &3u64)]);
    assert_eq!(cached(&log, A, 1), None);
    assert_eq!(log.apply(request(A, 1, add(1))), [failed(A, 1, RequestError::ResponseEvicted)]);
}

#[test]
fn step_3_a_lower_watermark_than_before_changes_nothing() {
    let mut log = opened(&[A]);
    log.apply(request_with(A, 5, 5, 0, add(1).encode()));
    log.apply(request_with(A, 6, 2, 0, add(1).encode()));
    assert_eq!(log.apply(request(A, 4, add(1))), [failed(A, 4, RequestError::ResponseEvicted)]);
    assert_eq!(log.machine.machine().total, 2);
}

#[test]
fn step_4_a_request_below_the_watermark_is_evicted_and_does_not_run() {
    let mut log = opened(&[A]);
    log.apply(request_with(A, 3, 3, 0, add(1).encode()));
    for (number, why) in [(2, "never run"), (1, "never run"), (0, "request 0 is below the first watermark")] {
        let answer = log.apply(request(A, number, add(10)));
        assert_eq!(answer, [failed(A, number, RequestError::ResponseEvicted)], "{why}");
    }
    assert_eq!(log.machine.machine().total, 1);
}

#[test]
fn step_4_a_request_below_its_own_lowest_pending_is_evicted() {
    let mut log = opened(&[A]);
    let answer = log.apply(request_with(A, 3, 4, 0, add(1).encode()));
    assert_eq!(answer, [failed(A, 3, RequestError::ResponseEvicted)]);
    assert_eq!(log.machine.machine().total, 0);
}

#[test]
fn step_5_a_duplicate_gets_the_identical_bytes_and_sends_nothing_again() {
    let mut log = opened(&[A, B]);
    let first = log.apply(request(A, 1, notify(B, "hello")));
    assert_eq!(first, [accepted(A, 1, &Some(ServerRequestId(1))), notice(B, 1, "hello")]);
    let again = log.apply(request(A, 1, notify(B, "hello")));
    assert_eq!(again, first[..1]);
    assert_eq!(pending(&log, B), [1]);
}

#[test]
fn step_5_another_payload_under_a_known_number_is_a_mismatch_and_does_not_run() {
    let mut log = opened(&[A]);
    log.apply(request(A, 1, add(5)));
    assert_eq!(log.apply(request(A, 1, add(6))), [failed(A, 1, RequestError::RequestMismatch)]);
    assert_eq!(log.machine.machine().total, 5);
    assert_eq!(log.apply(request(A, 1, add(5))), [accepted(A, 1, &5u64)], "the answer is still there");
}

#[test]
fn step_5_the_payload_hash_is_fixed_for_ever() {
    // XXH3 with 64 bits, from the reference implementation: these values are in every snapshot.
    assert_eq!(codec::payload_hash(b""), 0x2d06_8005_38d3_94c2);
    assert_eq!(codec::payload_hash(b"session"), 0x88fa_280b_7f9a_7d49);
    assert_eq!(codec::payload_hash(&[0u8; 1000]), 0x24c1_ea60_74dd_588c);
}

#[test]
fn step_6_a_session_at_its_cache_limit_is_busy_and_keeps_no_record() {
    let mut log = opened(&[A]);
    log.apply(configure(Limits { max_cached_bytes: Some(33), ..Limits::default() }));
    log.apply(request(A, 1, add(1)));
    // One record of 32 bytes and one byte of payload: at the limit.
    assert_eq!(log.apply(request(A, 2, add(2))), [failed(A, 2, RequestError::Busy)]);
    assert_eq!(cached(&log, A, 2), None);
    assert_eq!(log.machine.machine().total, 1);
    let later = log.apply(request_with(A, 2, 2, 0, add(2).encode()));
    assert_eq!(later, [accepted(A, 2, &3u64)], "the same number may be sent again");
}

#[test]
fn step_6_the_request_at_the_watermark_always_runs() {
    let mut log = opened(&[A]);
    log.apply(configure(Limits { max_cached_bytes: Some(0), ..Limits::default() }));
    assert_eq!(log.apply(request(A, 2, add(1))), [failed(A, 2, RequestError::Busy)]);
    assert_eq!(log.apply(request(A, 1, add(1))), [accepted(A, 1, &1u64)]);
    assert_eq!(log.apply(request(A, 1, add(1))), [accepted(A, 1, &1u64)], "a cached answer is never busy");
}

#[test]
fn step_6_an_error_counts_32_bytes() {
    let mut log = opened(&[A]);
    log.apply(configure(Limits { max_cached_bytes: Some(32), ..Limits::default() }));
    log.apply(request_with(A, 1, 1, 0, vec![0xff].into()));
    assert_eq!(log.apply(request(A, 2, add(1))), [failed(A, 2, RequestError::Busy)]);
    log.apply(configure(Limits { max_cached_bytes: Some(33), ..Limits::default() }));
    assert_eq!(log.apply(request(A, 2, add(1))), [accepted(A, 2, &1u64)]);
}

#[test]
fn step_7_an_undecodable_payload_is_invalid_and_that_answer_is_cached() {
    let good = add(5).encode();
    let trailing = [&good[..], &[0]].concat();
    let cases: &[(&str, &[u8])] = &[
        ("empty", &[]),
        ("unknown variant", &[200]),
        ("trailing bytes", &trailing),
        ("cut", &good[..1]),
        ("a length of u64::MAX", &[3, 253, 255, 255, 255, 255, 255, 255, 255, 255]),
        ("a length of 2^40", &[3, 253, 0, 0, 0, 0, 0, 1, 0, 0]),
    ];
    for (what, payload) in cases {
        let mut log = opened(&[A]);
        for _ in 0..2 {
            let answer = log.apply(request_with(A, 1, 1, 0, payload.to_vec().into()));
            assert_eq!(answer, [failed(A, 1, RequestError::InvalidPayload)], "{what}");
        }
        assert_eq!(cached(&log, A, 1), Some(Err(RequestError::InvalidPayload)), "{what}");
        let other = log.apply(request(A, 1, add(5)));
        assert_eq!(other, [failed(A, 1, RequestError::RequestMismatch)], "{what}: the number is used up");
        assert_eq!(
            log.machine.machine(),
            &Desk { journal: log.machine.machine().journal.clone(), ..Desk::default() }
        );
    }
}

#[test]
fn step_7_an_internal_command_from_a_client_is_invalid_and_that_answer_is_cached() {
    let mut log = opened(&[A]);
    assert_eq!(log.apply(request(A, 1, DeskCommand::Purge)), [failed(A, 1, RequestError::InvalidPayload)]);
    assert_eq!(cached(&log, A, 1), Some(Err(RequestError::InvalidPayload)));
    assert_eq!(log.machine.machine().journal.len(), 1, "the journal was not purged");
}

#[test]
fn step_7_a_command_that_is_not_active_yet_is_invalid_for_ever() {
    let mut log = opened(&[A]);
    assert_eq!(log.apply(request(A, 1, DeskCommand::Double)), [failed(A, 1, RequestError::InvalidPayload)]);
    log.apply(upgrade(2));
    assert_eq!(log.apply(request(A, 1, DeskCommand::Double)), [failed(A, 1, RequestError::InvalidPayload)]);
    assert_eq!(log.apply(request(A, 2, DeskCommand::Double)), [accepted(A, 2, &0u64)]);
}

#[test]
fn step_8_a_response_is_cached_accepted_or_rejected() {
    let mut log = opened(&[A]);
    let refusal = Refused::Insufficient { total: 0 };
    let answer = log.apply(request(A, 1, DeskCommand::Take { amount: 5 }));
    assert_eq!(answer, [rejected(A, 1, &refusal)]);
    log.apply(request(A, 2, add(9)));
    let again = log.apply(request(A, 1, DeskCommand::Take { amount: 5 }));
    assert_eq!(again, answer, "the refusal stands, though there is enough now");
    assert_eq!(cached(&log, A, 1).unwrap().unwrap().status, Status::Rejected);
    assert_eq!(cached(&log, A, 2).unwrap().unwrap().status, Status::Accepted);
}

#[test]
fn step_8_the_response_comes_first_then_the_server_requests_in_order() {
    let mut log = opened(&[B, A, C]);
    assert_eq!(
        log.apply(request(B, 1, DeskCommand::Shout("hey".to_owned()))),
        [accepted(B, 1, &3u64), notice(A, 1, "hey"), notice(B, 1, "hey"), notice(C, 1, "hey"),]
    );
}

#[test]
fn requests_of_one_session_may_come_in_any_order() {
    let mut log = opened(&[A]);
    for (number, amount, total) in [(3, 100, 100u64), (1, 1, 101), (2, 10, 111)] {
        assert_eq!(log.apply(request(A, number, add(amount))), [accepted(A, number, &total)]);
    }
    for (number, amount, total) in [(1, 1, 101u64), (2, 10, 111), (3, 100, 100)] {
        assert_eq!(log.apply(request(A, number, add(amount))), [accepted(A, number, &total)]);
    }
    assert_eq!(log.machine.machine().total, 111);
}

// The other actions.

#[test]
fn creating_a_live_session_again_changes_nothing_and_runs_no_hook() {
    let mut log = opened(&[A]);
    assert!(log.machine.is_open(A) && !log.machine.is_open(B));
    log.apply(request(A, 1, add(5)));
    let before = log.machine.snapshot().unwrap().dictionary().unwrap();
    assert_eq!(log.apply(create_with(A, &[("name", "new"), ("greet", "")])), [created(A)]);
    let after = log.machine.snapshot().unwrap().dictionary().unwrap();
    assert_eq!(before, after);
    assert_eq!(log.machine.machine().journal.len(), 1);
}

#[test]
fn creating_a_live_session_again_is_no_activity() {
    let mut log = opened(&[A]);
    log.apply(configure(Limits { idle_timeout: Some(100), ..Limits::default() }));
    log.apply_at(50, create(A));
    assert_eq!(log.machine.expiry_due(), Some(Timestamp(101)));
}

#[test]
fn a_creation_is_answered_first_then_the_hooks_sends() {
    let mut log = Log::<Desk>::new();
    assert_eq!(
        log.apply(create_with(A, &[("name", "ann"), ("greet", "")])),
        [created(A), notice(A, 1, "welcome ann")]
    );
}

#[test]
fn a_closed_session_never_returns() {
    let mut log = opened(&[A]);
    log.apply(expire(A));
    assert_eq!(log.apply(create(A)), [refused(A, RefuseReason::Closed)]);
    assert_eq!(log.apply(request(A, 1, add(1))), [failed(A, 1, RequestError::SessionExpired)]);
}

#[test]
fn an_id_must_be_drawn_below_its_creation_and_at_most_65536_below() {
    let cases = [
        (100_000, 100_000 - 65_536, true),
        (100_000, 100_000 - 65_537, false),
        (100_000, 99_999, true),
        (100_000, 100_000, false),
        (100_000, u64::MAX, false),
        (1, 0, true),
        (65_536, 0, true),
        (65_537, 0, false),
    ];
    for (index, position, allowed) in cases {
        let mut machine = SessionStateMachine::new(Desk::<2>::default());
        let session = SessionId::draw(position, 7);
        let out = machine.apply(index, Timestamp(0), create(session)).unwrap();
        let expected = if allowed { created(session) } else { refused(session, RefuseReason::Stale) };
        assert_eq!(out, [expected], "drawn at {position}, created at {index}");
    }
}

#[test]
fn a_closed_id_is_remembered_exactly_as_long_as_it_could_be_created() {
    let drawn_at = 10;
    let session = SessionId::draw(drawn_at, 7);
    let last = drawn_at + 65_536;
    for (tick, index, reason) in [
        (last - 1, last, RefuseReason::Closed),
        (last, last + 1, RefuseReason::Stale),
        (last + 5, last + 6, RefuseReason::Stale),
    ] {
        let mut machine = SessionStateMachine::new(Desk::<2>::default());
        machine.apply(11, Timestamp(0), create(session)).unwrap();
        machine.apply(12, Timestamp(0), expire(session)).unwrap();
        machine.apply(tick, Timestamp(0), RaftAction::Tick).unwrap();
        let remembered = machine.snapshot().unwrap().dictionary().unwrap()["session/closed"].len() > 1;
        assert_eq!(remembered, tick < last, "after index {tick}");
        let out = machine.apply(index, Timestamp(0), create(session)).unwrap();
        assert_eq!(out, [refused(session, reason)], "created again at {index}");
    }
}

#[test]
fn an_old_session_that_closes_is_stale_at_once() {
    let mut log = opened(&[A]);
    log.index = 70_000;
    log.apply(expire(A));
    assert_eq!(log.apply(create(A)), [refused(A, RefuseReason::Stale)]);
}

#[test]
fn a_full_table_refuses_in_the_order_closed_stale_full() {
    let mut log = opened(&[A, B]);
    log.apply(expire(B));
    log.apply(configure(Limits { max_sessions: Some(1), ..Limits::default() }));
    assert_eq!(log.apply(create(B)), [refused(B, RefuseReason::Closed)]);
    let late = SessionId::draw(1_000, 1);
    assert_eq!(log.apply(create(late)), [refused(late, RefuseReason::Stale)]);
    assert_eq!(log.apply(create(C)), [refused(C, RefuseReason::Full)]);
    assert_eq!(log.apply(create(A)), [created(A)], "a live id is not refused");
}

#[test]
fn an_ack_drops_every_pending_request_up_to_it_of_that_session_only() {
    let mut log = opened(&[A, B]);
    for _ in 0..3 {
        log.apply(internal(DeskCommand::Shout("x".to_owned())));
    }
    assert_eq!((log.machine.session_count(), log.machine.pending_count()), (2, 6));
    assert_eq!(log.apply(ack(A, 2)), []);
    assert_eq!((pending(&log, A), pending(&log, B)), (vec![3], vec![1, 2, 3]));
    assert_eq!(log.machine.pending_count(), 4);
    log.apply(ack(A, 1));
    assert_eq!(pending(&log, A), [3], "an old ack changes nothing");
    log.apply(ack(A, 99));
    assert_eq!(pending(&log, A), [0u64; 0], "above the last assigned drops all");
    assert_eq!(log.apply(ack(C, 99)), [], "unknown session: nothing");
    log.apply(internal(notify(A, "next")));
    assert_eq!(pending(&log, A), [4], "the numbers go on");
    assert_eq!(log.machine.pending_count(), 4);
    let restored = SessionStateMachine::<Desk>::restore(&log.machine.snapshot().unwrap()).unwrap();
    assert_eq!((restored.session_count(), restored.pending_count()), (2, 4));
    log.apply(expire(B));
    assert_eq!(
        (log.machine.session_count(), log.machine.pending_count()),
        (1, 2),
        "the one, and that B left"
    );
}

#[test]
fn expiring_closes_once_and_an_unknown_session_never() {
    let mut log = opened(&[A]);
    assert_eq!(log.apply(expire(A)), [closed(A, CloseReason::Expired)]);
    assert_eq!(log.apply(expire(A)), []);
    assert_eq!(log.apply(expire(B)), []);
    assert_eq!(*log.machine.machine().journal, ["? opened", "? closed"], "the hook ran once");
}

#[test]
fn a_retry_returns_what_was_last_sent_before_and_marks_it_as_sent() {
    let mut log = opened(&[A]);
    log.apply_at(10, internal(notify(A, "one")));
    log.apply_at(20, internal(notify(A, "two")));
    assert_eq!(log.apply_at(30, retry(10, 0)), [], "strictly before");
    assert_eq!(log.apply_at(30, retry(20, 0)), [notice(A, 1, "one")]);
    let seen: Vec<PendingRequest> = log.machine.pending_requests(A).collect();
    assert_eq!((seen[0].last_sent_at, seen[0].attempts), (Timestamp(30), 2));
    assert_eq!((seen[1].last_sent_at, seen[1].attempts), (Timestamp(20), 1), "attempts start at 1");
    assert_eq!(log.apply_at(40, retry(30, 0)), [notice(A, 2, "two")]);
    assert_eq!(log.apply_at(50, retry(41, 0)), [notice(A, 1, "one"), notice(A, 2, "two")], "in id order");
}

#[test]
fn a_retry_serves_first_the_session_whose_first_due_request_waited_longest() {
    let mut log = opened(&[A, B, C]);
    log.apply_at(10, internal(notify(C, "c")));
    log.apply_at(20, internal(notify(B, "b")));
    log.apply_at(20, internal(notify(A, "a")));
    log.apply_at(30, internal(notify(C, "c2")));
    let all = [notice(C, 1, "c"), notice(C, 2, "c2"), notice(A, 1, "a"), notice(B, 1, "b")];
    for limit in 1..=3 {
        let mut log = opened_copy(&log);
        assert_eq!(log.apply_at(40, retry(40, limit)), all[..limit as usize]);
    }
    assert_eq!(log.apply_at(40, retry(40, 0)), all, "0 is no limit");
}

/// The same log, gone on with apart: by way of a snapshot.
fn opened_copy(log: &Log) -> Log {
    let machine = SessionStateMachine::restore(&log.machine.snapshot().unwrap()).unwrap();
    Log { machine, index: log.index, time: log.time }
}

#[test]
fn a_dead_session_does_not_starve_the_retries_of_others() {
    let mut log = opened(&[A, B]);
    log.apply_at(10, internal(notify(A, "dead")));
    log.apply_at(11, internal(notify(B, "alive")));
    assert_eq!(log.apply_at(100, retry(100, 1)), [notice(A, 1, "dead")]);
    assert_eq!(log.apply_at(101, retry(101, 1)), [notice(B, 1, "alive")]);
}

#[test]
fn the_dirty_read_says_whether_a_retry_would_return_anything() {
    let mut log = opened(&[A]);
    assert!(!log.machine.has_pending_requests(Timestamp(u64::MAX)));
    log.apply_at(10, internal(notify(A, "one")));
    assert!(!log.machine.has_pending_requests(Timestamp(10)));
    assert!(log.machine.has_pending_requests(Timestamp(11)));
    log.apply(ack(A, 1));
    assert!(!log.machine.has_pending_requests(Timestamp(11)));
}

/// Fails long before a test that scans where it should not would end.
fn in_time(start: Instant, at: u64) {
    assert!(start.elapsed() < Duration::from_mins(2), "at {at} after {:?}", start.elapsed());
}

#[test]
fn with_nothing_due_neither_retries_nor_expiry_scan_anything() {
    // With a scan these are a thousand million steps each, and the better part of an hour.
    let count = 30_000;
    let start = Instant::now();
    let mut log = Log::<Desk>::new();
    for number in 1..=count {
        log.apply(create(SessionId(u128::from(number))));
    }
    log.apply(configure(Limits { idle_timeout: Some(1_000_000), ..Limits::default() }));
    log.apply(internal(DeskCommand::Shout("hear".to_owned())));
    for number in 0..count {
        assert!(!log.machine.has_pending_requests(Timestamp(0)));
        assert_eq!(log.machine.expiry_due(), Some(Timestamp(1_000_001)));
        assert_eq!(log.apply_at(number + 1, retry(0, 0)), []);
        assert_eq!(log.apply(RaftAction::Tick), []);
        in_time(start, number);
    }
}

#[test]
fn a_retry_costs_what_it_returns() {
    // One client takes nothing, and many others have their share pending too.
    let count = 20_000;
    let start = Instant::now();
    let mut log = Log::<Desk>::new();
    for number in 1..=count {
        log.apply(create(SessionId(u128::from(number))));
    }
    log.apply_at(1, internal(DeskCommand::Shout("hear".to_owned())));
    for _ in 1..count {
        log.apply_at(1, internal(notify(SessionId(1), "hear")));
    }
    // One at a time: all that the first has pending, each time behind more that was sent again; then the others' one.
    for number in 1..2 * count {
        let (to, request) = if number <= count { (1, number) } else { (number - count + 1, 1) };
        let due = log.apply_at(1_000, retry(1_000, 1));
        assert_eq!(due, [notice(SessionId(u128::from(to)), request, "hear")]);
        in_time(start, number);
    }
    assert_eq!(log.apply_at(1_000, retry(1_000, 1)), []);
}

#[test]
fn closing_costs_what_it_closes() {
    let count = 30_000;
    let start = Instant::now();
    let mut log = Log::<Desk>::new();
    log.apply(configure(Limits { idle_timeout: Some(count), ..Limits::default() }));
    for number in 1..=count {
        log.apply_at(number, create(SessionId(u128::from(number))));
    }
    // All but the first are active again, in the reverse order.
    for number in (2..=count).rev() {
        log.apply(ack(SessionId(u128::from(number)), 0));
        in_time(start, number);
    }
    // The desk tells all others of a closing; a skipped entry does not.
    let mut skip = |time, action| {
        log.index += 1;
        log.machine.skip(log.index, Timestamp(time), action).unwrap()
    };
    let idle = closed(SessionId(1), CloseReason::Idle);
    assert_eq!(skip(count + 2, RaftAction::Tick), [idle]);
    for number in 2..=count {
        let session = SessionId(u128::from(number));
        assert_eq!(skip(count + 2, expire(session)), [closed(session, CloseReason::Expired)]);
        in_time(start, number);
    }
    assert_eq!(log.machine.sessions().count(), 0);
}

#[test]
fn a_keep_alive_refreshes_acknowledges_and_moves_the_watermark() {
    let mut log = opened(&[A, B]);
    log.apply(configure(Limits { idle_timeout: Some(100), ..Limits::default() }));
    log.apply(request(A, 1, notify(A, "x")));
    log.apply_at(80, keep_alive(&[alive(A, 2, 1), alive(C, 9, 9), alive(B, 0, 0)]));
    assert_eq!(cached(&log, A, 1), None, "an idle session keeps no answers");
    assert_eq!(pending(&log, A), [0u64; 0]);
    assert_eq!(log.machine.expiry_due(), Some(Timestamp(181)));
    assert_eq!(log.machine.sessions().collect::<Vec<_>>(), [A, B], "unknown ones: nothing");
    assert_eq!(log.apply(request(B, 1, add(1))), [accepted(B, 1, &1u64)], "a watermark of 0 moves nothing");
}

#[test]
fn an_internal_command_runs_without_session_dedup_or_cache() {
    let mut log = opened(&[A]);
    let ran = |total: u64| ServerAction::InternalResponse { result: Ok(Response::accepted(&total).unwrap()) };
    assert_eq!(log.apply(internal(add(5))), [ran(5)]);
    assert_eq!(log.apply(internal(add(5))), [ran(10)]);
    assert_eq!(log.apply(internal(DeskCommand::Shout("x".to_owned()))), [ran(1), notice(A, 1, "x")]);
    assert_eq!(log.apply(internal(DeskCommand::Purge)), [ran(1)]);
    log.apply(internal(DeskCommand::Note));
    assert_eq!(*log.machine.machine().journal, ["nobody at 6 time 0 version 1"]);
    let invalid = ServerAction::InternalResponse { result: Err(RequestError::InvalidPayload) };
    assert_eq!(
        log.apply(RaftAction::InternalCommand { payload: vec![99].into() }),
        std::slice::from_ref(&invalid)
    );
    assert_eq!(log.apply(internal(DeskCommand::Double)), [invalid]);
}

#[test]
fn a_tick_advances_time_and_lets_sessions_expire() {
    let mut log = opened(&[A]);
    log.apply(configure(Limits { idle_timeout: Some(100), ..Limits::default() }));
    assert_eq!(log.apply_at(100, RaftAction::Tick), []);
    assert_eq!(log.machine.time(), Timestamp(100));
    assert_eq!(log.apply_at(101, RaftAction::Tick), [closed(A, CloseReason::Idle)]);
}

#[test]
fn configure_replaces_the_limits_and_keeps_the_seed_unless_given() {
    let roll = |log: &mut Log, number| log.apply(request(A, number, DeskCommand::Roll));
    let mut one = opened(&[A]);
    let mut other = opened(&[A]);
    let limits = Limits { max_sessions: Some(7), ..Limits::default() };
    one.apply(RaftAction::Configure { limits: limits.clone(), seed: None });
    other.apply(RaftAction::Configure { limits: Limits::default(), seed: Some([9; 32]) });
    assert_eq!(one.machine.limits(), &limits);
    assert_ne!(roll(&mut one, 1), roll(&mut other, 1), "the seed changes what is drawn");
    one.apply(RaftAction::Configure { limits: Limits::default(), seed: Some([9; 32]) });
    other.apply(configure(Limits::default()));
    assert_eq!(one.machine.limits(), &Limits::default());
    assert_eq!(roll(&mut one, 2), roll(&mut other, 2), "no seed keeps the one in force");
}

// Closing.

#[test]
fn closing_runs_the_hook_then_removes_everything_and_tells_last() {
    let mut log = Log::<Desk>::new();
    log.apply(create_with(A, &[("name", "ann")]));
    log.apply(create(B));
    log.apply(request(A, 1, notify(A, "x")));
    // The hook itself asserts that the session is gone from the context and takes no send.
    assert_eq!(log.apply(expire(A)), [notice(B, 1, "ann left after 2"), closed(A, CloseReason::Expired)]);
    assert_eq!(log.machine.machine().journal.last().unwrap(), "ann closed", "its capabilities were readable");
    assert_eq!(log.machine.sessions().collect::<Vec<_>>(), [B]);
    assert_eq!((cached(&log, A, 1), pending(&log, A)), (None, vec![]));
    let dictionary = log.machine.snapshot().unwrap().dictionary().unwrap();
    assert_eq!(dictionary.keys().filter(|key| key.starts_with("session/id/")).count(), 1);
}

#[test]
fn what_is_due_closes_in_the_order_of_activity_then_id() {
    let mut log = opened(&[C, A, B]);
    log.apply_at(5, request(A, 1, add(1)));
    log.apply(configure(Limits { idle_timeout: Some(10), ..Limits::default() }));
    let order: Vec<ServerAction> = log
        .apply_at(100, RaftAction::Tick)
        .into_iter()
        .filter(|action| matches!(action, ServerAction::SessionClosed { .. }))
        .collect();
    assert_eq!(order, [B, C, A].map(|session| closed(session, CloseReason::Idle)));
}

#[test]
fn the_reason_of_a_closing_is_slow_consumer_before_idle_before_evicted() {
    let crowded =
        Limits { idle_timeout: Some(5), max_sessions: Some(0), evict_idlest: true, ..Limits::default() };
    let mut log = opened(&[A, B]);
    log.apply_at(9, keep_alive(&[alive(B, 0, 0)]));
    let out = log.apply(configure(crowded));
    // Both fit A, one fits B.
    assert_eq!(
        out,
        [notice(B, 1, "? left after 2"), closed(A, CloseReason::Idle), closed(B, CloseReason::Evicted),]
    );

    // The same entry marks A, and its time makes A idle.
    let mut log = opened(&[A]);
    log.apply(configure(Limits {
        max_pending_requests: Some(0),
        idle_timeout: Some(5),
        ..Limits::default()
    }));
    let out = log.apply_at(9, internal(notify(A, "x")));
    assert_eq!(out[1..], [closed(A, CloseReason::SlowConsumer)]);
}

#[test]
fn a_closing_hook_can_make_another_session_due_in_the_same_entry() {
    let mut log = opened(&[A, B]);
    log.apply(configure(Limits { max_pending_requests: Some(0), ..Limits::default() }));
    // A's closing hook tells B, which may have nothing pending, so B closes too.
    assert_eq!(log.apply(expire(A)), [closed(A, CloseReason::Expired), closed(B, CloseReason::SlowConsumer)]);
}

#[test]
fn an_entry_closes_at_most_1024_and_expiry_is_then_due_at_once() {
    let mut machine = SessionStateMachine::new(Desk::<2>::default());
    for number in 1..=1030u64 {
        machine.apply(number, Timestamp(0), create(id(number))).unwrap();
    }
    let limits = Limits { idle_timeout: Some(10), ..Limits::default() };
    machine.apply(2000, Timestamp(0), configure(limits)).unwrap();
    assert_eq!(machine.expiry_due(), Some(Timestamp(11)));
    let count = |out: Vec<ServerAction>| {
        out.iter().filter(|action| matches!(action, ServerAction::SessionClosed { .. })).count()
    };
    assert_eq!(count(machine.apply(2001, Timestamp(50), RaftAction::Tick).unwrap()), 1024);
    assert_eq!(machine.sessions().collect::<Vec<_>>(), (1025..=1030).map(id).collect::<Vec<_>>());
    assert_eq!(machine.expiry_due(), Some(Timestamp(50)), "the present time");
    let mut restored = SessionStateMachine::<Desk>::restore(&machine.snapshot().unwrap()).unwrap();
    assert_eq!(restored.expiry_due(), Some(Timestamp(50)), "also after a restore");
    let rest = machine.apply(2002, Timestamp(50), RaftAction::Tick).unwrap();
    assert_eq!(restored.apply(2002, Timestamp(50), RaftAction::Tick).as_ref(), Ok(&rest));
    assert_eq!(count(rest), 6);
    assert_eq!(machine.expiry_due(), None);
    assert_eq!(restored.snapshot().unwrap().to_bytes(), machine.snapshot().unwrap().to_bytes());
}

#[test]
fn a_request_of_a_session_that_is_due_but_not_closed_yet_counts() {
    let mut machine = SessionStateMachine::new(Desk::<2>::default());
    for number in 1..=1030u64 {
        machine.apply(number, Timestamp(0), create(id(number))).unwrap();
    }
    let limits = Limits { idle_timeout: Some(10), ..Limits::default() };
    machine.apply(2000, Timestamp(50), configure(limits)).unwrap();
    let out = machine.apply(2001, Timestamp(50), request(id(1030), 1, add(1))).unwrap();
    assert_eq!(out[0], accepted(id(1030), 1, &1u64), "it is open until it is closed");
    assert_eq!(machine.sessions().collect::<Vec<_>>(), [id(1030)], "and active again");
}

#[test]
fn expiry_is_due_at_the_oldest_activity_plus_timeout_plus_one() {
    let mut log = opened(&[A, B]);
    assert_eq!(log.machine.expiry_due(), None, "no timeout");
    log.apply(configure(Limits { idle_timeout: Some(100), ..Limits::default() }));
    log.apply_at(30, request(A, 1, add(1)));
    assert_eq!(log.machine.expiry_due(), Some(Timestamp(101)), "B is the oldest");
    log.apply(configure(Limits { idle_timeout: Some(u64::MAX), ..Limits::default() }));
    assert_eq!(log.machine.expiry_due(), Some(Timestamp(u64::MAX)), "saturating");
}

#[test]
fn a_slow_consumers_mark_is_not_lifted_by_an_ack_or_a_restore() {
    let mut machine = SessionStateMachine::new(Desk::<2>::default());
    for number in 1..=1100u64 {
        machine.apply(number, Timestamp(0), create(id(number))).unwrap();
    }
    machine.apply(1101, Timestamp(0), keep_alive(&[alive(id(1100), 0, 0)])).unwrap();
    let limits = Limits { max_pending_requests: Some(0), ..Limits::default() };
    machine.apply(1102, Timestamp(0), configure(limits)).unwrap();
    // Marks all 1100; 1024 of them close now, and every closing tries to tell those that are left.
    machine.apply(1103, Timestamp(0), internal(DeskCommand::Shout("x".to_owned()))).unwrap();
    let mut machine = SessionStateMachine::<Desk>::restore(&machine.snapshot().unwrap()).unwrap();
    assert_eq!(machine.sessions().count(), 76);
    assert_eq!(machine.expiry_due(), Some(Timestamp(0)));
    // An ack of everything, and no limit any more: they close all the same.
    machine.apply(1104, Timestamp(0), ack(id(1100), 99)).unwrap();
    assert_eq!(machine.sessions().count(), 0);
}

#[test]
fn a_slow_consumer_gets_no_further_send() {
    let mut log = opened(&[A, B]);
    log.apply(configure(Limits { max_pending_requests: Some(1), ..Limits::default() }));
    log.apply(internal(notify(A, "one")));
    let out = log.apply(internal(notify(A, "two")));
    let none =
        ServerAction::InternalResponse { result: Ok(Response::accepted(&None::<ServerRequestId>).unwrap()) };
    assert_eq!(out, [none, notice(B, 1, "? left after 2"), closed(A, CloseReason::SlowConsumer)]);
}

// Numbers and time.

#[test]
fn server_request_ids_count_per_session_and_are_never_reused() {
    let mut log = opened(&[A, B]);
    log.apply(internal(notify(A, "x")));
    log.apply(internal(notify(A, "x")));
    log.apply(internal(notify(B, "x")));
    assert_eq!((pending(&log, A), pending(&log, B)), (vec![1, 2], vec![1]));
    log.apply(ack(A, 2));
    let mut log = opened_copy(&log);
    log.apply(internal(notify(A, "x")));
    assert_eq!(pending(&log, A), [3], "the counter survives an empty list, a snapshot and a restore");
}

#[test]
fn a_send_to_no_live_session_is_none_and_leaves_no_trace() {
    let mut log = opened(&[A]);
    let before = log.machine.snapshot().unwrap().dictionary().unwrap();
    let none =
        ServerAction::InternalResponse { result: Ok(Response::accepted(&None::<ServerRequestId>).unwrap()) };
    assert_eq!(log.apply(internal(notify(B, "x"))), std::slice::from_ref(&none));
    assert_eq!(log.apply(internal(DeskCommand::BadSend { to: B })), [none], "not even its encoding is tried");
    assert_eq!(log.machine.snapshot().unwrap().dictionary().unwrap(), before);
}

#[test]
fn a_new_server_request_was_last_sent_at_the_time_of_its_entry() {
    let mut log = opened(&[A]);
    log.apply_at(70, internal(notify(A, "x")));
    assert_eq!(log.machine.pending_requests(A).next().unwrap().last_sent_at, Timestamp(70));
}

#[test]
fn time_never_runs_backwards() {
    let mut log = opened(&[A]);
    log.apply_at(500, RaftAction::Tick);
    log.apply_at(20, request(A, 1, DeskCommand::Note));
    assert_eq!(log.machine.time(), Timestamp(500));
    assert_eq!(log.machine.machine().journal.last().unwrap(), "? at 3 time 500 version 1");
}

#[test]
fn an_index_at_or_below_the_last_applied_changes_nothing() {
    let mut log = opened(&[A]);
    log.apply_at(10, request(A, 1, add(1)));
    let before = log.bytes();
    for index in [0, 1, 2] {
        let error = log.machine.apply(index, Timestamp(99), request(A, 2, add(1)));
        assert_eq!(error, Err(ApplyError::OutOfOrder { index, last_applied: 2 }));
    }
    assert_eq!(log.bytes(), before);
    assert_eq!(log.machine.last_applied(), 2);
}

#[test]
fn an_error_leaves_the_output_buffer_as_it_was() {
    let mut log = opened(&[A, B]);
    let mut out = vec![created(C)];
    log.machine.apply_into(3, Timestamp(0), request(A, 1, add(1)), &mut out).unwrap();
    assert_eq!(out, [created(C), accepted(A, 1, &1u64)], "output is appended");
    let kept = out.clone();
    assert!(log.machine.apply_into(3, Timestamp(0), RaftAction::Tick, &mut out).is_err());
    assert!(log.machine.apply_into(4, Timestamp(0), upgrade(99), &mut out).is_err());
    let shout_and_break = request(A, 2, DeskCommand::BadSend { to: B });
    assert!(log.machine.apply_into(4, Timestamp(0), shout_and_break, &mut out).is_err());
    assert_eq!(out, kept);

    let mut log = Log::<Desk>::new();
    log.apply(create(A));
    log.apply(create_with(B, &[("fragile", "")]));
    log.apply(create(C));
    let close_all = configure(Limits { idle_timeout: Some(1), ..Limits::default() });
    let error = log.machine.apply_into(4, Timestamp(10), close_all, &mut out).unwrap_err();
    assert!(matches!(error, ApplyError::Halted(Halted { index: 4, .. })), "{error}");
    assert_eq!(out, kept, "though A was closed, and B and C told, before B's hook panicked");
}

#[test]
fn numbers_at_their_ends_neither_wrap_nor_panic() {
    const END: u64 = u64::MAX;
    let late = |back| SessionId::draw(END - back, 7);
    let mut machine = SessionStateMachine::new(Desk::<2>::default());
    let mut apply = |index, time, action| machine.apply(index, Timestamp(time), action).unwrap();
    apply(END - 9, 5, create(late(10)));
    assert_eq!(apply(END - 8, END, request(late(10), END, notify(late(10), "x"))).len(), 2);
    assert_eq!(apply(END - 7, 0, request(late(10), END, notify(late(10), "x"))).len(), 1, "a duplicate");
    let evicted = failed(late(10), END - 1, RequestError::ResponseEvicted);
    apply(END - 6, END, keep_alive(&[alive(late(10), END, END)]));
    assert_eq!(apply(END - 5, END, request(late(10), END - 1, add(1))), [evicted]);
    assert_eq!(
        apply(END - 4, END, request(late(10), END, notify(late(10), "x")))[0],
        accepted(late(10), END, &Some(ServerRequestId(1))),
        "the highest request stays at the watermark"
    );
    apply(END - 3, END, configure(Limits { idle_timeout: Some(1), ..Limits::default() }));
    apply(END - 2, END, internal(notify(late(10), "y")));
    assert_eq!(apply(END - 1, END, retry(END, 0)), [], "nothing was sent before the end of time");
    assert_eq!(
        apply(END, END, create(late(1))),
        [created(late(1))],
        "nobody is idle for longer than for ever"
    );
    assert_eq!(machine.pending_requests(late(10)).map(|request| request.id.0).collect::<Vec<_>>(), [2]);
    assert_eq!(machine.expiry_due(), Some(Timestamp(END)));
    let snapshot = machine.snapshot().unwrap();
    let mut restored = SessionStateMachine::<Desk>::restore(&snapshot).unwrap();
    assert_eq!(restored.snapshot().unwrap().to_bytes(), snapshot.to_bytes());
    let error = restored.apply(END, Timestamp(END), RaftAction::Tick).unwrap_err();
    assert_eq!(error, ApplyError::OutOfOrder { index: END, last_applied: END });
    let session = SessionId(u128::MAX);
    let mut first = SessionStateMachine::new(Desk::<2>::default());
    assert_eq!(
        first.apply(1, Timestamp(END), create(session)),
        Ok(vec![refused(session, RefuseReason::Stale)])
    );
    first.apply(2, Timestamp(0), retry(END, u32::MAX)).unwrap();
}

#[test]
fn the_generator_is_one_per_entry_and_gives_golden_values() {
    let mut log = opened(&[A]);
    let roll = log.apply(request(A, 1, DeskCommand::Roll));
    assert_eq!(roll, [accepted(A, 1, &GOLDEN_ROLL)], "index 2, default seed");
    assert_ne!(log.apply(request(A, 2, DeskCommand::Roll)), [accepted(A, 2, &GOLDEN_ROLL)], "another index");
    assert_ne!(GOLDEN_ROLL.0, GOLDEN_ROLL.1, "continued across its calls");
}

/// ChaCha8, key of zeros, stream 2: the first two draws, computed by hand. They are part of the replicated
/// behaviour for ever.
const GOLDEN_ROLL: (u64, u64) = (0xf96a_f733_3f01_9d00, 0x9de6_3f21_24aa_1d7d);

#[test]
fn the_generator_goes_on_across_the_calls_of_an_entry_and_takes_a_new_seed_at_once() {
    let mut machine = SessionStateMachine::new(Drawer::default());
    for (index, session) in [(1, A), (2, B), (3, C)] {
        machine.apply(index, Timestamp(0), create(session)).unwrap();
    }
    // All three close in one entry, which also brings a seed.
    let limits = Limits { idle_timeout: Some(1), ..Limits::default() };
    machine.apply(7, Timestamp(9), RaftAction::Configure { limits, seed: Some([5; 32]) }).unwrap();
    let mut expected = chacha20::ChaCha8Rng::from_seed([5; 32]);
    expected.set_stream(7);
    assert_eq!(machine.machine().drawn, [expected.next_u64(), expected.next_u64(), expected.next_u64()]);
}

/// Draws a number whenever a session closes.
#[derive(Default)]
struct Drawer {
    drawn: Vec<u64>,
}

impl State for Drawer {
    const FIELDS: &'static [StateField] = &[];
    fn save(&self, _: &mut StateWriter) -> Result<(), StateError> {
        Ok(())
    }
    fn load(_: &mut StateReader<'_>) -> Result<Self, SnapshotError> {
        Ok(Self::default())
    }
}

impl StateMachine for Drawer {
    type Command = DeskCommand;
    type Query = Never;
    type ServerRequest = Never;
    const SCHEMA: Schema = Schema { name: "Drawer", state: &[], ..Desk::<2>::SCHEMA };
    fn apply(&mut self, _: &mut Context<'_>, _: DeskCommand) -> Result<Response, EncodeError> {
        Response::accepted(&())
    }
    fn query(&self, query: Never) -> Result<Bytes, EncodeError> {
        match query {}
    }
    fn session_closed(&mut self, cx: &mut Context<'_>) {
        self.drawn.push(cx.rng().next_u64());
    }
}

// Limits.

#[test]
fn all_limits_are_off_by_default() {
    let log = Log::<Desk>::new();
    assert_eq!(
        log.machine.limits(),
        &Limits {
            idle_timeout: None,
            max_sessions: None,
            evict_idlest: false,
            max_cached_bytes: None,
            max_pending_requests: None,
        }
    );
}

#[test]
fn idle_timeout_closes_what_was_not_active_for_longer() {
    let mut log = opened(&[A, B, C]);
    log.apply(configure(Limits { idle_timeout: Some(100), ..Limits::default() }));
    log.apply_at(50, request(A, 1, add(1)));
    log.apply_at(50, request(A, 1, add(1)));
    log.apply_at(60, ack(B, 0));
    log.apply_at(70, keep_alive(&[alive(C, 0, 0)]));
    assert_eq!(log.apply_at(150, RaftAction::Tick), []);
    assert!(log.apply_at(151, RaftAction::Tick).contains(&closed(A, CloseReason::Idle)));
    assert!(
        log.apply_at(161, RaftAction::Tick).contains(&closed(B, CloseReason::Idle)),
        "an ack is an activity"
    );
    assert_eq!(log.apply_at(171, RaftAction::Tick), [closed(C, CloseReason::Idle)]);
}

#[test]
fn max_sessions_refuses_what_is_beyond_it() {
    let mut log = opened(&[A]);
    log.apply(configure(Limits { max_sessions: Some(2), ..Limits::default() }));
    assert_eq!(log.apply(create(B)), [created(B)]);
    assert_eq!(log.apply(create(C)), [refused(C, RefuseReason::Full)]);
    log.apply(expire(A));
    assert_eq!(log.apply(create(C))[0], created(C), "there is room again");
}

#[test]
fn max_sessions_of_zero_always_refuses() {
    for evict_idlest in [false, true] {
        let mut log = Log::<Desk>::new();
        log.apply(configure(Limits { max_sessions: Some(0), evict_idlest, ..Limits::default() }));
        assert_eq!(log.apply(create(A)), [refused(A, RefuseReason::Full)], "evict_idlest {evict_idlest}");
    }
    let mut log = opened(&[A, B]);
    let none = Limits { max_sessions: Some(0), evict_idlest: true, ..Limits::default() };
    let out = log.apply(configure(none));
    let gone = notice(B, 1, "? left after 2");
    assert_eq!(out, [gone, closed(A, CloseReason::Evicted), closed(B, CloseReason::Evicted)]);
    assert_eq!(log.apply(create(C)), [refused(C, RefuseReason::Full)]);
}

#[test]
fn evict_idlest_closes_the_least_recently_active_first() {
    let mut log = opened(&[A, B]);
    log.apply(configure(Limits { max_sessions: Some(2), evict_idlest: true, ..Limits::default() }));
    log.apply_at(10, request(A, 1, add(1)));
    assert_eq!(
        log.apply(create_with(C, &[("name", "cy"), ("greet", "")])),
        [
            notice(A, 1, "? left after 2"),
            closed(B, CloseReason::Evicted),
            created(C),
            notice(C, 1, "welcome cy"),
        ]
    );
}

#[test]
fn a_lowered_max_sessions_closes_nobody_without_evict_idlest() {
    let mut log = opened(&[A, B]);
    assert_eq!(log.apply(configure(Limits { max_sessions: Some(1), ..Limits::default() })), []);
    assert_eq!(log.apply(create(C)), [refused(C, RefuseReason::Full)]);
}

#[test]
fn a_lowered_max_sessions_closes_the_idlest_from_its_own_entry_on_with_evict_idlest() {
    let mut log = opened(&[A, B, C]);
    log.apply_at(5, keep_alive(&[alive(A, 0, 0)]));
    let out = log.apply(configure(Limits { max_sessions: Some(1), evict_idlest: true, ..Limits::default() }));
    let closings: Vec<_> = out.iter().filter(|a| matches!(a, ServerAction::SessionClosed { .. })).collect();
    assert_eq!(closings, [&closed(B, CloseReason::Evicted), &closed(C, CloseReason::Evicted)]);
    assert_eq!(log.machine.sessions().collect::<Vec<_>>(), [A]);
}

#[test]
fn max_pending_requests_closes_the_slow_consumer() {
    let mut log = opened(&[A]);
    log.apply(configure(Limits { max_pending_requests: Some(2), ..Limits::default() }));
    log.apply(internal(notify(A, "one")));
    log.apply(internal(notify(A, "two")));
    assert_eq!(pending(&log, A), [1, 2], "up to the limit nothing happens");
    let out = log.apply(request(A, 1, notify(A, "three")));
    assert_eq!(out, [accepted(A, 1, &None::<ServerRequestId>), closed(A, CloseReason::SlowConsumer)]);
}

// Halting and skipping.

/// Entries that halt the machine, and the words they halt it with.
fn halting() -> Vec<(RaftAction, &'static str, &'static str)> {
    vec![
        (request(A, 1, DeskCommand::Panic), "Panic", "the desk broke"),
        (
            request(A, 1, DeskCommand::BadReply),
            "BadReply",
            "its answer cannot be encoded: the value cannot be encoded: not today",
        ),
        (
            request(A, 1, DeskCommand::BadSend { to: A }),
            "BadSend",
            "a server request cannot be encoded: the value cannot be encoded: not today",
        ),
        (expire(B), "#[session_closed]", "the desk cannot let bo go"),
    ]
}

fn breakable() -> Log {
    let mut log = Log::new();
    log.apply(create(A));
    log.apply(create_with(B, &[("name", "bo"), ("fragile", "")]));
    log.apply_at(10, internal(notify(A, "x")));
    log
}

#[test]
fn a_panic_or_an_unencodable_answer_or_send_halts_before_the_entry() {
    for (action, command, message) in halting() {
        let mut log = breakable();
        let error = log.machine.apply(4, Timestamp(20), action).unwrap_err();
        let ApplyError::Halted(halted) = &error else { panic!("{error:?}") };
        assert_eq!((halted.index, &*halted.command, &*halted.message), (4, command, message));
        assert_eq!(log.machine.halted(), Some(halted));
        assert_eq!((log.machine.last_applied(), log.machine.time()), (3, Timestamp(10)), "{command}");
        assert_eq!(
            log.machine.apply(5, Timestamp(20), RaftAction::Tick),
            Err(error.clone()),
            "every later one too"
        );
        assert_eq!(log.machine.skip(4, Timestamp(20), RaftAction::Tick), Err(error), "it refuses to skip");
    }
}

#[test]
fn a_halted_machine_shows_nothing() {
    let mut log = breakable();
    assert!(log.machine.is_open(A) && !log.machine.is_open(SessionId(0xdead)));
    log.machine.apply(4, Timestamp(20), request(A, 1, DeskCommand::Panic)).unwrap_err();
    let machine = &log.machine;
    assert!(matches!(machine.snapshot(), Err(ApplyError::Halted(_))));
    assert!(matches!(
        machine.query(&session_runtime::Query::encode(&DeskQuery::Total)),
        Err(session_runtime::QueryError::Halted(_))
    ));
    assert_eq!(machine.sessions().count(), 0);
    assert!(!machine.is_open(A));
    assert!(!machine.has_pending_requests(Timestamp(u64::MAX)));
    assert_eq!(machine.pending_requests(A).count(), 0);
    assert_eq!(machine.cached_response(A, RequestId(1)), None);
    assert_eq!(machine.expiry_due(), None);
    assert_eq!(machine.machine().total, 666, "the post-mortem alone sees the half-made state");
}

#[test]
fn a_halted_machine_keeps_the_limits_of_the_last_applied_entry() {
    let mut log = breakable();
    let halting = configure(Limits { idle_timeout: Some(1), ..Limits::default() });
    assert!(matches!(log.machine.apply(4, Timestamp(99), halting), Err(ApplyError::Halted(_))));
    assert_eq!(log.machine.limits(), &Limits::default());
}

#[test]
fn skipping_does_all_of_the_entry_except_the_users_code() {
    let mut log = breakable();
    let skipped =
        log.machine.skip(4, Timestamp(20), request_with(A, 1, 1, 1, DeskCommand::Panic.encode())).unwrap();
    assert_eq!(skipped, [failed(A, 1, RequestError::Skipped)]);
    assert_eq!(cached(&log, A, 1), Some(Err(RequestError::Skipped)));
    assert_eq!(pending(&log, A), [0u64; 0], "its ack counts");
    assert_eq!(log.machine.time(), Timestamp(20));
    log.index = 4;
    assert_eq!(log.apply(request(A, 1, DeskCommand::Panic)), [failed(A, 1, RequestError::Skipped)], "cached");

    assert_eq!(log.machine.skip(6, Timestamp(20), expire(B)).unwrap(), [closed(B, CloseReason::Expired)]);
    assert_eq!(log.machine.skip(7, Timestamp(20), create_with(C, &[("greet", "")])).unwrap(), [created(C)]);
    assert_eq!(*log.machine.machine().journal, ["? opened", "bo opened"], "no hook ran");
    let result = Err(RequestError::Skipped);
    let internal = log.machine.skip(8, Timestamp(20), internal(add(1))).unwrap();
    assert_eq!(internal, [ServerAction::InternalResponse { result }]);
    assert_eq!(log.machine.machine().total, 0);
}

#[test]
fn skipping_answers_like_applying_where_no_user_code_would_run() {
    let mut log = breakable();
    log.apply(request(A, 1, add(1)));
    let duplicate = log.machine.skip(5, Timestamp(20), request(A, 1, add(1))).unwrap();
    assert_eq!(duplicate, [accepted(A, 1, &1u64)]);
    let unknown = log.machine.skip(6, Timestamp(20), request(C, 1, add(1))).unwrap();
    assert_eq!(unknown, [failed(C, 1, RequestError::SessionExpired)]);
    assert!(matches!(
        log.machine.skip(6, Timestamp(20), RaftAction::Tick),
        Err(ApplyError::OutOfOrder { .. })
    ));
    assert!(matches!(
        log.machine.skip(7, Timestamp(20), upgrade(9)),
        Err(ApplyError::NeedsBuild { version: 9 })
    ));
}

#[test]
fn debug_shows_only_the_start_of_a_session_ids_random_half() {
    let shown = format!("{:?}", SessionId::draw(12, 0x1234_5678_9abc_def0));
    assert_eq!(shown, "SessionId(12-1234…)");
}

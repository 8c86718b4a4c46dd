//! The rules of versions, one test a rule. The names are referred to in `book/src/reference/rules.md`.

mod support;

use session_runtime::{
    ApplyError, RequestError, SessionId, SessionStateMachine, SnapshotError, StateMachine, Timestamp,
};
use support::*;

const A: SessionId = SessionId(0xa);

fn opened<M: StateMachine + Default>() -> Log<M> {
    let mut log = Log::new();
    log.apply(create(A));
    log
}

#[test]
fn the_replicated_version_starts_at_1_and_only_rises() {
    let mut log = opened::<Desk>();
    assert_eq!(log.machine.version(), 1, "whatever the build knows");
    assert_eq!(log.apply(upgrade(1)), []);
    assert_eq!(log.apply(upgrade(0)), []);
    assert_eq!(log.machine.version(), 1);
    log.apply(upgrade(2));
    log.apply(upgrade(1));
    assert_eq!(log.machine.version(), 2);
}

#[test]
fn a_builds_version_is_the_highest_since_in_it() {
    assert_eq!(Desk::<2>::SCHEMA.version, 2);
    assert_eq!(OldDesk::SCHEMA.version, 1);
}

#[test]
fn a_command_above_the_replicated_version_is_invalid_on_every_build() {
    let (mut old, mut new) = (opened::<OldDesk>(), opened::<Desk>());
    let double = || request(A, 1, DeskCommand::Double);
    let invalid = [failed(A, 1, RequestError::InvalidPayload)];
    assert_eq!(old.apply(double()), invalid, "a build that does not know it");
    assert_eq!(new.apply(double()), invalid, "a build that knows it");
    assert_eq!(old.bytes(), new.bytes());
}

#[test]
fn a_build_below_an_upgrade_refuses_it_and_does_not_advance() {
    let mut old = opened::<OldDesk>();
    old.apply_at(10, request(A, 1, DeskCommand::Add { amount: 3 }));
    let before = old.bytes();
    let refused = old.machine.apply(3, Timestamp(99), upgrade(2));
    assert_eq!(refused, Err(ApplyError::NeedsBuild { version: 2 }));
    assert_eq!(old.bytes(), before);
    assert_eq!(old.machine.last_applied(), 2);
    assert_eq!(old.machine.halted(), None);
}

#[test]
fn a_newer_build_goes_on_where_an_older_one_stopped() {
    let mut old = opened::<OldDesk>();
    old.apply(request(A, 1, DeskCommand::Add { amount: 3 }));
    let snapshot = old.machine.snapshot().unwrap();
    let mut new =
        Log::<Desk> { machine: SessionStateMachine::restore(&snapshot).unwrap(), index: 2, time: 0 };
    new.apply(upgrade(2));
    assert_eq!(new.apply(request(A, 2, DeskCommand::Double)), [accepted(A, 2, &6u64)]);
    assert_eq!(new.machine.machine().doubled, 1);
}

#[test]
fn a_snapshot_of_a_newer_version_is_refused() {
    let mut new = opened::<Desk>();
    new.apply(upgrade(2));
    let snapshot = new.machine.snapshot().unwrap();
    let refused = SessionStateMachine::<OldDesk>::restore(&snapshot).err();
    assert_eq!(refused, Some(SnapshotError::NeedsBuild { version: 2 }));
}

#[test]
fn a_newer_build_at_an_old_version_writes_snapshots_that_an_older_build_reads() {
    let mut new = opened::<Desk>();
    new.apply(request(A, 1, DeskCommand::Add { amount: 3 }));
    let snapshot = new.machine.snapshot().unwrap();
    let old = SessionStateMachine::<OldDesk>::restore(&snapshot).unwrap();
    assert_eq!(old.snapshot().unwrap().to_bytes(), snapshot.to_bytes());
}

#[test]
fn a_handler_reads_the_version_and_switches_at_one_position() {
    let mut log = opened::<Desk>();
    log.apply(request(A, 1, DeskCommand::Note));
    log.apply(upgrade(2));
    log.apply(request(A, 2, DeskCommand::Note));
    assert_eq!(log.machine.machine().journal[1..], ["? at 2 time 0 version 1", "? at 4 time 0 version 2"]);
}

#[test]
fn a_field_of_a_later_version_is_not_written_and_restores_as_its_default() {
    let mut log = opened::<Desk>();
    let keys = |log: &Log| log.machine.snapshot().unwrap().dictionary().unwrap();
    assert!(!keys(&log).contains_key("user/doubled"));
    log.apply(upgrade(2));
    assert!(keys(&log).contains_key("user/doubled"));
}

#[test]
fn a_field_of_a_later_version_that_changed_too_early_makes_the_snapshot_an_error_that_names_it() {
    let mut log = opened::<Desk>();
    log.apply(request(A, 1, DeskCommand::Rush));
    let Err(ApplyError::State { field, problem }) = log.machine.snapshot() else { panic!("no error") };
    assert_eq!(field, "doubled");
    assert!(problem.contains("since version 2"), "{problem}");
    log.apply(upgrade(2));
    assert!(log.machine.snapshot().is_ok(), "the machine goes on, and the upgrade mends it");
}

//! The rules of queries, one test a rule. The names are referred to in `book/src/reference/rules.md`.

mod support;

use session_runtime::{Bytes, DecodeError, Query, QueryError, codec};
use support::*;

fn ask(log: &Log, query: &DeskQuery) -> Result<Bytes, QueryError> {
    log.machine.query(&query.encode())
}

fn log_with_total(total: u64) -> Log {
    let mut log = Log::new();
    log.apply(internal(DeskCommand::Add { amount: total }));
    log
}

#[test]
fn a_query_reads_the_applied_state() {
    let mut log = log_with_total(5);
    assert_eq!(ask(&log, &DeskQuery::Total), Ok(codec::encode(&5u64).unwrap()));
    assert_eq!(ask(&log, &DeskQuery::Above { limit: 4 }), Ok(codec::encode(&true).unwrap()));
    log.apply(internal(DeskCommand::Add { amount: 1 }));
    assert_eq!(ask(&log, &DeskQuery::Total), Ok(codec::encode(&6u64).unwrap()), "it is never cached");
}

#[test]
fn a_query_changes_no_state() {
    let log = log_with_total(5);
    let before = log.bytes();
    for query in [DeskQuery::Total, DeskQuery::Journal, DeskQuery::Panic, DeskQuery::BadReply] {
        let _ = ask(&log, &query);
    }
    assert_eq!(log.bytes(), before);
}

#[test]
fn an_undecodable_query_is_an_error() {
    let log = log_with_total(5);
    let trailing = [&DeskQuery::Total.encode()[..], &[0]].concat();
    assert_eq!(log.machine.query(&trailing), Err(QueryError::Invalid(DecodeError::Trailing { bytes: 1 })));
    for payload in [&[][..], &[200], &[2], &[255; 20]] {
        assert!(matches!(log.machine.query(payload), Err(QueryError::Invalid(_))), "{payload:?}");
    }
}

#[test]
fn a_panicking_query_is_an_error_and_halts_nothing() {
    let mut log = log_with_total(5);
    assert_eq!(ask(&log, &DeskQuery::Panic), Err(QueryError::Panicked("the desk does not know".to_owned())));
    assert_eq!(log.machine.halted(), None);
    log.apply(internal(DeskCommand::Add { amount: 1 }));
    assert_eq!(ask(&log, &DeskQuery::Total), Ok(codec::encode(&6u64).unwrap()));
}

#[test]
fn a_query_whose_answer_cannot_be_encoded_is_an_error() {
    assert!(matches!(ask(&log_with_total(5), &DeskQuery::BadReply), Err(QueryError::Encode(_))));
}

//! The rules of the retry driver, one test a rule. The names are referred to in `book/src/reference/rules.md`.

use session_runtime::{RaftAction, RetryDriver, RetryPolicy, Timestamp};

const POLICY: RetryPolicy = RetryPolicy { min_age: 100, max_age: 400, limit: 7 };

#[allow(clippy::unnecessary_wraps)] // as `poll` gives it
fn retry(before: u64) -> Option<RaftAction> {
    Some(RaftAction::GetRequestsForRetry { last_sent_before: Timestamp(before), limit: 7 })
}

#[test]
fn with_nothing_due_no_entry_is_asked_for() {
    let mut driver = RetryDriver::new(POLICY);
    for now in 0..10_000 {
        assert_eq!(driver.poll(Timestamp(now), |_| false), None);
    }
}

#[test]
fn an_entry_is_asked_for_when_something_is_older_than_the_minimum_age() {
    let mut driver = RetryDriver::new(POLICY);
    let sent_at_50 = |before: Timestamp| Timestamp(50) < before;
    assert_eq!(driver.poll(Timestamp(40), sent_at_50), None, "younger than the age itself");
    assert_eq!(driver.poll(Timestamp(150), sent_at_50), None);
    assert_eq!(driver.poll(Timestamp(151), sent_at_50), retry(51));
}

/// The moments at which a driver asks, of a machine that retries at once and whose client never acknowledges.
fn asked(driver: &mut RetryDriver, from: u64, to: u64, last_sent: &mut u64) -> Vec<u64> {
    let mut moments = Vec::new();
    for now in from..to {
        if driver.poll(Timestamp(now), |before| Timestamp(*last_sent) < before).is_some() {
            *last_sent = now;
            moments.push(now);
        }
    }
    moments
}

#[test]
fn the_age_doubles_up_to_a_cap_while_no_acknowledgment_comes() {
    let mut driver = RetryDriver::new(POLICY);
    let mut last_sent = 0;
    assert_eq!(asked(&mut driver, 0, 2_000, &mut last_sent), [101, 302, 703, 1_104, 1_505, 1_906]);
    let mut odd = RetryDriver::new(RetryPolicy { min_age: 100, max_age: 10, limit: 7 });
    assert_eq!(
        asked(&mut odd, 2_000, 2_300, &mut last_sent),
        [2_007, 2_108, 2_209],
        "a cap below the minimum"
    );
}

#[test]
fn an_acknowledgment_brings_the_age_back() {
    let mut driver = RetryDriver::new(POLICY);
    let mut last_sent = 0;
    asked(&mut driver, 0, 1_000, &mut last_sent);
    driver.acknowledged();
    assert_eq!(asked(&mut driver, 1_000, 1_400, &mut last_sent), [1_000, 1_201]);
}

#[test]
fn an_entry_that_is_not_applied_yet_is_not_asked_for_again() {
    let mut driver = RetryDriver::new(POLICY);
    let stale = |before: Timestamp| Timestamp(0) < before;
    assert_eq!(driver.poll(Timestamp(200), stale), retry(100));
    assert_eq!(driver.poll(Timestamp(201), stale), None);
    assert_eq!(driver.poll(Timestamp(400), stale), None);
    assert_eq!(driver.poll(Timestamp(401), stale), retry(201), "until it must be taken for lost");
}

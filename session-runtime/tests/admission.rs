//! The rules of the leader's gate, one test a rule. The names are referred to in `book/src/reference/rules.md`.

mod support;

use session_runtime::admission::{Admission, Admit, is_never_valid};
use session_runtime::{Command, RequestError, RequestId, Response, SessionId, SessionKey, codec};
use support::{Desk, DeskCommand, Log, OldDesk, create, request, request_with};

type Gate = Admission<u32>;

const NONE: Option<&str> = None;

#[test]
fn an_answered_request_is_answered_and_not_appended() {
    let mut gate = Gate::new();
    assert_eq!(gate.admit(1, &7, Some("yes")), Admit::Answered("yes"));
    gate.appended(7, 1, 10);
    assert_eq!(gate.admit(1, &7, Some("yes")), Admit::Answered("yes"), "whatever is under way");
}

#[test]
fn a_request_in_the_log_is_waited_for_until_it_is_applied() {
    let mut gate = Gate::new();
    assert_eq!(gate.admit(1, &7, NONE), Admit::Append);
    gate.appended(7, 1, 10);
    assert_eq!(gate.admit(1, &7, NONE), Admit::InFlight { index: 10 });
    assert_eq!(gate.admit(1, &8, NONE), Admit::Append, "another request");
    gate.applied(9);
    assert_eq!(gate.admit(1, &7, NONE), Admit::InFlight { index: 10 });
    gate.applied(10);
    assert_eq!(
        gate.admit(1, &7, NONE),
        Admit::Append,
        "applied without an answer: busy, or its session closed"
    );
    assert!(gate.is_empty());
}

#[test]
fn applied_clears_all_at_or_below() {
    let mut gate = Gate::new();
    for (key, index) in [(1, 10), (2, 11), (3, 12)] {
        gate.appended(key, 1, index);
    }
    assert_eq!(gate.len(), 3);
    assert!(!gate.is_empty());
    gate.applied(11);
    assert_eq!(gate.len(), 1);
    assert_eq!(gate.admit(1, &3, NONE), Admit::InFlight { index: 12 });
}

#[test]
fn an_entry_reported_after_it_was_applied_makes_nobody_wait() {
    let mut gate = Gate::new();
    gate.applied(10);
    gate.appended(7, 1, 10);
    assert_eq!(gate.admit(1, &7, NONE), Admit::Append);
    gate.applied(5);
    gate.appended(7, 1, 10);
    assert_eq!(gate.admit(1, &7, NONE), Admit::Append, "the highest applied index counts");
}

#[test]
fn a_new_term_drops_all() {
    let mut gate = Gate::new();
    gate.appended(7, 1, 10);
    assert_eq!(gate.admit(2, &7, NONE), Admit::Append, "its entry may have been truncated");
    gate.appended(7, 1, 11);
    assert_eq!(gate.admit(2, &7, NONE), Admit::Append, "a late report of the old term");
    gate.appended(7, 3, 12);
    assert_eq!(gate.admit(3, &7, NONE), Admit::InFlight { index: 12 });
    assert_eq!(gate.admit(2, &7, NONE), Admit::Append, "a leader of an old term waits for nothing");
}

#[test]
fn a_failed_append_lets_the_next_copy_try() {
    let mut gate = Gate::new();
    gate.appended(7, 1, 10);
    gate.failed(&7);
    gate.failed(&8);
    assert_eq!(gate.admit(1, &7, NONE), Admit::Append);
    gate.appended(7, 1, 11);
    gate.applied(10);
    assert_eq!(gate.admit(1, &7, NONE), Admit::InFlight { index: 11 }, "the old index is forgotten");
}

#[test]
fn of_two_copies_in_the_log_the_last_is_waited_for() {
    let mut gate = Gate::new();
    gate.appended(7, 1, 10);
    gate.appended(7, 1, 12);
    gate.applied(10);
    assert_eq!(gate.admit(1, &7, NONE), Admit::InFlight { index: 12 });
    gate.applied(12);
    assert!(gate.is_empty());
}

#[test]
fn of_two_requests_at_one_index_only_the_last_is_waited_for() {
    let mut gate = Gate::new();
    gate.appended(7, 1, 10);
    gate.appended(8, 1, 10);
    assert_eq!(gate.admit(1, &7, NONE), Admit::Append, "its entry was overwritten");
    gate.applied(10);
    assert!(gate.is_empty());
}

mod deep {
    #![allow(missing_docs, unreachable_pub)] // as a user would write it
    use serde::{Deserialize, Serialize};
    use session_runtime::{Deterministic, State, state_machine};

    #[derive(Serialize, Deserialize, Deterministic)]
    pub enum Tree {
        Leaf,
        Node(Box<Tree>),
    }

    #[state_machine]
    pub enum WoodCommand {
        Grow(Tree),
    }

    #[derive(Default, State)]
    pub struct Wood {
        trees: u64,
    }

    #[state_machine(command = WoodCommand)]
    impl Wood {
        fn grow(&mut self, tree: Tree) {
            let _ = tree;
            self.trees = self.trees.saturating_add(1);
        }
    }
}

#[test]
fn only_what_no_version_can_make_valid_needs_no_entry() {
    let never = is_never_valid::<Desk>;
    let add = DeskCommand::Add { amount: 5 }.encode();
    assert!(!never(&add));
    assert!(!never(&DeskCommand::Double.encode()), "not active yet");
    assert!(!is_never_valid::<OldDesk>(&DeskCommand::Double.encode()), "not known to this build");
    assert!(!never(&[99, 1, 2, 3]), "not known to any build of today");
    assert!(!never(&[]));
    assert!(never(&DeskCommand::Purge.encode()), "internal");
    assert!(never(&add[..1]), "cut");
    assert!(never(&[&add[..], &[0]].concat()), "bytes left over");
    assert!(never(&[3, 252, 255, 255, 255, 255]), "a text longer than all");
    assert!(never(&vec![0; codec::MAX_PAYLOAD + 1]), "too large");
    let tree = |depth| [&[0][..], &vec![1; depth], &[0]].concat();
    assert!(!is_never_valid::<deep::Wood>(&tree(20)));
    assert!(is_never_valid::<deep::Wood>(&tree(200)), "too deep");
    assert!(
        is_never_valid::<deep::Wood>(&[&[200][..], &vec![0; codec::MAX_PAYLOAD]].concat()),
        "whatever it is"
    );
}

#[test]
fn another_payload_under_a_known_number_passes_the_gate() {
    let session = SessionId(0xa);
    let (one, other) = (DeskCommand::Add { amount: 1 }, DeskCommand::Add { amount: 2 });
    let mut log = Log::<Desk>::new();
    log.apply(create(session));
    log.apply(request(session, 1, one.clone()));
    let key = |number, command: &DeskCommand| SessionKey::new(session, RequestId(number), &command.encode());
    let answer = |log: &Log, number, command: &DeskCommand| log.machine.answer_to(&key(number, command));
    assert_eq!(answer(&log, 1, &one), Some(Ok(Response::accepted(&1u64).unwrap())));
    assert_eq!(answer(&log, 1, &other), None, "applying it tells the client of the mismatch");
    assert_eq!(answer(&log, 2, &one), None);
    assert_eq!(log.machine.answer_to(&SessionKey::new(SessionId(9), RequestId(1), &one.encode())), None);
    log.apply(request_with(session, 2, 2, 0, one.encode()));
    assert_eq!(
        answer(&log, 1, &other),
        Some(Err(RequestError::ResponseEvicted)),
        "the watermark never falls"
    );
}

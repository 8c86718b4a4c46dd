//! What holds for every history, tried on random ones. A failing history is printed, shrunk; its seed is kept
//! and tried first from then on. `PROPTEST_CASES` sets how many are tried.

mod model;
mod support;

use model::history::{Scope, Step, histories};
use model::pair::{
    Pair, Straight, agree, bytes, feed, quiet_desk, replayed, restore, settled, settled_and_clean,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{FileFailurePersistence, TestRunner};
use session_runtime::{
    ApplyError, Command, Limits, RaftAction, RequestError, RequestId, Response, ServerAction, SessionId,
    SessionStateMachine, Snapshot, Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};
use support::{
    Desk, DeskCommand, ack, alive, configure, create, expire, internal, keep_alive, request_with, retry,
};

/// How many moves a history has at most.
const MOVES: usize = 50;

/// So many cases, unless `PROPTEST_CASES` says otherwise.
fn cases(cases: u32) -> ProptestConfig {
    quiet_desk();
    let seeds = FileFailurePersistence::Direct("proptest-regressions/properties.txt");
    ProptestConfig { cases, failure_persistence: Some(Box::new(seeds)), ..ProptestConfig::default() }
}

/// Tries a property of which each case takes long: one case for `divisor` of the others.
fn try_some<S: Strategy>(divisor: u32, strategy: &S, property: impl Fn(S::Value)) {
    let config = cases((ProptestConfig::default().cases / divisor).max(1));
    let result = TestRunner::new(config).run(strategy, |case| {
        property(case);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn the_real_machine_and_the_naive_model_agree_on_every_history(history in histories(Scope::All, MOVES)) {
        agree::<2>(&history);
    }

    #[test]
    fn an_older_build_and_its_naive_model_agree_on_every_history(history in histories(Scope::All, MOVES)) {
        agree::<1>(&history);
    }

    #[test]
    fn snapshots_are_equal_on_two_replicas_and_after_a_round_trip(history in histories(Scope::All, MOVES)) {
        let steps = settled_and_clean(&history);
        let (one, other) = (replayed::<2>(&steps), replayed::<2>(&steps));
        prop_assert_eq!(bytes(&one), bytes(&other));
        let restored = restore(&one);
        prop_assert_eq!(bytes(&one), bytes(&restored));
        prop_assert_eq!(one.machine(), restored.machine());
    }

    #[test]
    fn server_request_ids_are_contiguous_per_session(history in histories(Scope::All, MOVES)) {
        let mut machine = SessionStateMachine::new(Desk::<2>::default());
        let mut last: BTreeMap<SessionId, u64> = BTreeMap::new();
        for step in settled(&history) {
            let is_retry = matches!(step.action, RaftAction::GetRequestsForRetry { .. });
            // A retry comes first; what closing hooks send after it is new again.
            for (session, id) in sent(&feed(&mut machine, &step).unwrap()) {
                let last = last.entry(session).or_default();
                let again = is_retry && id <= *last && id > 0;
                prop_assert!(again || id == *last + 1, "{} after {} to {:?}", id, last, session);
                *last = id.max(*last);
            }
        }
    }

    #[test]
    fn each_request_runs_at_most_once(history in histories(Scope::All, MOVES)) {
        let mut machine = SessionStateMachine::new(Desk::<2>::default());
        for mut step in settled(&history) {
            if let RaftAction::ClientRequest { session, request, payload, .. } = &mut step.action {
                // The word begins with the request's name and ends with the payload it replaces: copies stay
                // copies, and other payloads under the same number stay others.
                let word = format!("request {:x} {} {payload:?}", session.0, request.0);
                *payload = DeskCommand::Count { word }.encode();
            }
            // The new commands send nothing, so a session may close at another entry than the one that is
            // skipped for it.
            if feed(&mut machine, &step).is_err() {
                return Ok(());
            }
        }
        let mut ran: BTreeMap<String, u64> = BTreeMap::new();
        for (word, count) in machine.machine().counts.iter().filter(|(word, _)| word.starts_with("request")) {
            let request = word.split(' ').take(3).collect();
            *ran.entry(request).or_default() += count;
        }
        prop_assert!(ran.values().all(|count| *count == 1), "{:?}", ran);
    }

    #[test]
    fn answers_to_retries_are_identical_bytes_until_the_watermark_passes(
        history in histories(Scope::All, MOVES)
    ) {
        let mut machine = SessionStateMachine::new(Desk::<2>::default());
        let mut answers = BTreeMap::new();
        let mut declared: BTreeMap<SessionId, RequestId> = BTreeMap::new();
        for step in settled(&history) {
            for (session, lowest) in lowest_pending(&step.action) {
                let declared = declared.entry(session).or_insert(RequestId(1));
                *declared = lowest.max(*declared);
            }
            let out = feed(&mut machine, &step).unwrap();
            let RaftAction::ClientRequest { session, request, payload, .. } = step.action else { continue };
            let key = (session, request);
            match answer_in(&out) {
                Err(RequestError::ResponseEvicted) => prop_assert!(request < declared[&session]),
                Err(RequestError::SessionExpired) => prop_assert!(machine.sessions().all(|id| id != session)),
                Err(RequestError::Busy) => prop_assert!(!answers.contains_key(&key)),
                Err(RequestError::RequestMismatch) => {
                    let first: Option<&(_, _)> = answers.get(&key);
                    prop_assert!(first.is_some_and(|(first, _)| *first != payload));
                }
                answer => {
                    let first = answers.entry(key).or_insert((payload.clone(), answer.clone()));
                    prop_assert_eq!(&*first, &(payload, answer));
                }
            }
        }
    }

    #[test]
    fn time_never_runs_backwards(history in histories(Scope::All, MOVES)) {
        let mut machine = SessionStateMachine::new(Desk::<2>::default());
        for step in settled(&history) {
            let before = machine.time();
            feed(&mut machine, &step).unwrap();
            prop_assert_eq!(machine.time(), before.max(step.time));
        }
    }

    #[test]
    fn an_error_changes_nothing(history in histories(Scope::All, MOVES)) {
        let mut machine = SessionStateMachine::new(Desk::<2>::default());
        for step in &history {
            let before = machine.snapshot().map(|snapshot| snapshot.to_bytes());
            let mut out = vec![ServerAction::SessionCreated { session: SessionId(7) }];
            let result = machine.apply_into(step.index, step.time, step.action.clone(), &mut out);
            if result.is_ok() {
                continue;
            }
            prop_assert_eq!(out, [ServerAction::SessionCreated { session: SessionId(7) }]);
            if let Err(ApplyError::Halted(_)) = result {
                break;
            }
            prop_assert_eq!(machine.snapshot().map(|snapshot| snapshot.to_bytes()), before);
        }
    }

    #[test]
    fn a_snapshot_that_is_encoded_late_has_the_bytes_of_its_moment(
        history in histories(Scope::All, MOVES),
        taken in prop::collection::vec(prop::bool::weighted(0.3), 2 * MOVES),
    ) {
        let mut machine = SessionStateMachine::new(Desk::<2>::default());
        let mut held = Held::default();
        for (step, taken) in settled(&history).iter().zip(taken.into_iter().cycle()) {
            feed(&mut machine, step).unwrap();
            // A spoilt state cannot be captured.
            if taken && let Ok(snapshot) = machine.snapshot() {
                held.hold(snapshot);
            }
        }
        held.check();
    }

    // A copy is a sign of life, takes an acknowledgment again and finds the limits of its own moment. So the
    // claim is about histories without timeouts, evictions and limits on what a session holds, and about
    // originals that found their session: before its creation a request leaves no record. Handlers see the
    // index and the time: the copies stand where the history has no entry, and bring no later time.
    #[test]
    fn a_duplicate_inserted_anywhere_after_the_original_changes_no_user_state(
        history in histories(Scope::Calm, MOVES),
        copies in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..8),
    ) {
        let steps = settled_and_clean(&history);
        let with_copies = insert_copies(&steps, &copies);
        prop_assert_eq!(user_state(&replayed(&steps)), user_state(&replayed(&with_copies)));
    }
}

#[test]
fn restore_at_every_index_equals_straight_replay() {
    try_some(1, &histories(Scope::All, MOVES), |history| {
        let straight = Straight::new(&history);
        for cut in 0..straight.len() {
            straight.check_restored_before(cut);
        }
    });
}

// More sessions than one entry may close: idle ones, surplus ones or slow ones. What is left goes through a
// snapshot, and the next entry finds it.
#[test]
fn the_real_machine_and_the_naive_model_agree_on_crowds() {
    let size = prop_oneof![3 => 1030..1100u64, 1 => 1022..1028u64];
    // The sign of life of everybody comes most often: it must save the idle and must not save the slow.
    let next = prop_oneof![3 => Just(0), 4 => 1..4usize];
    let crowds = (size, crowd_limits(), prop::bool::weighted(0.3), next);
    try_some(16, &crowds, |(size, limits, skip, next)| {
        let opening = crowd(size);
        let mut pair = Pair::<2>::new(&opening);
        for step in opening {
            pair.compare_outputs(&step).unwrap();
        }
        let shout = || internal(DeskCommand::Shout("hear".to_owned()));
        let mut entry = |action, skip| {
            let step = Step { index: pair.model.last_applied() + 1, time: Timestamp(size), action, skip };
            pair.step(&step).unwrap();
            pair.real = restore(&pair.real);
        };
        let only_slow = limits.idle_timeout.is_none() && limits.max_sessions.is_none();
        entry(configure(limits), skip);
        if only_slow {
            entry(shout(), false);
        }
        let everybody: Vec<_> = (1..=size).map(|n| alive(SessionId::draw(0, n), 1, u64::MAX)).collect();
        let next =
            [keep_alive(&everybody), shout(), configure(Limits::default()), RaftAction::Tick][next].clone();
        entry(next, false);
        entry(RaftAction::Tick, false);
    });
}

/// Snapshots that are kept while their machine goes on, with the bytes they had at first.
#[derive(Default)]
struct Held(Vec<(Snapshot, Vec<u8>)>);

impl Held {
    fn hold(&mut self, snapshot: Snapshot) {
        let bytes = snapshot.to_bytes().unwrap();
        self.0.push((snapshot, bytes));
    }

    fn check(&self) {
        for (number, (snapshot, bytes)) in self.0.iter().enumerate() {
            assert!(snapshot.to_bytes().as_ref() == Ok(bytes), "snapshot {number} has changed");
        }
    }
}

/// What happens among many sessions. A number below the size names one of the first, open or not.
#[derive(Clone, Debug)]
enum Bustle {
    Open,
    Request {
        who: u64,
        number: u64,
        lowest: u64,
        acked: u64,
    },
    Notify {
        who: u64,
    },
    Shout,
    Ack {
        who: u64,
        up_to: u64,
    },
    Expire {
        first: u64,
        count: u64,
    },
    Retry {
        ago: u64,
        limit: u32,
    },
    /// A sign of life of every session but some.
    KeepAlive {
        but_each: u64,
        acked: u64,
    },
    Limits {
        idle_timeout: Option<u64>,
        max_pending_requests: Option<u32>,
    },
    Hold,
    Release,
}

fn bustle(size: u64) -> impl Strategy<Value = Bustle> {
    let who = 0..size;
    let timeout = prop::option::of(10..60u64);
    let max_pending = prop::option::of(2..6u32);
    prop_oneof![
        3 => Just(Bustle::Open),
        6 => (who.clone(), 1..6u64, 1..4u64, 0..4u64)
            .prop_map(|(who, number, lowest, acked)| Bustle::Request { who, number, lowest, acked }),
        4 => who.clone().prop_map(|who| Bustle::Notify { who }),
        2 => Just(Bustle::Shout),
        3 => (who.clone(), 0..5u64).prop_map(|(who, up_to)| Bustle::Ack { who, up_to }),
        3 => (who, 1..40u64).prop_map(|(first, count)| Bustle::Expire { first, count }),
        4 => (0..30u64, 0..50u32).prop_map(|(ago, limit)| Bustle::Retry { ago, limit }),
        2 => (2..9u64, 0..4u64).prop_map(|(but_each, acked)| Bustle::KeepAlive { but_each, acked }),
        1 => (timeout, max_pending).prop_map(|(idle_timeout, max_pending_requests)| Bustle::Limits {
            idle_timeout,
            max_pending_requests
        }),
        2 => Just(Bustle::Hold),
        1 => Just(Bustle::Release),
    ]
}

// More sessions than a chunk of the table has, with snapshots held while they change.
#[test]
fn the_real_machine_and_the_naive_model_agree_on_busy_crowds() {
    let size = prop_oneof![2 => 1..40u64, 2 => 250..260u64, 1 => 505..525u64];
    let crowds =
        size.prop_flat_map(|size| (Just(size), prop::collection::vec((bustle(size), 0..9u64), 40..80)));
    try_some(16, &crowds, |(size, deeds)| {
        let who = |number: u64| SessionId::draw(0, number + 1);
        let opening = crowd(size);
        let mut pair = Pair::<2>::new(&opening);
        for step in opening {
            pair.compare_outputs(&step).unwrap();
        }
        let (mut held, mut time, mut opened) = (Held::default(), size, size);
        for (deed, delay) in deeds {
            time += delay;
            let mut entry = |action| {
                let index = pair.model.last_applied() + 1;
                pair.step(&Step { index, time: Timestamp(time), action, skip: false }).unwrap();
            };
            match deed {
                Bustle::Open => {
                    opened += 1;
                    entry(create(SessionId::draw(0, opened)));
                }
                Bustle::Request { who: from, number, lowest, acked } => {
                    let payload = DeskCommand::Add { amount: number }.encode();
                    entry(request_with(who(from), number, lowest, acked, payload));
                }
                Bustle::Notify { who: to } => {
                    entry(internal(DeskCommand::Notify { to: who(to), text: "hear".to_owned() }));
                }
                Bustle::Shout => entry(internal(DeskCommand::Shout("hear".to_owned()))),
                Bustle::Ack { who: from, up_to } => entry(ack(who(from), up_to)),
                Bustle::Expire { first, count } => {
                    (first..(first + count).min(size)).for_each(|number| entry(expire(who(number))));
                }
                Bustle::Retry { ago, limit } => entry(retry(time.saturating_sub(ago), limit)),
                Bustle::KeepAlive { but_each, acked } => {
                    let living = (0..opened).filter(|number| number % but_each != 0);
                    let living: Vec<_> = living.map(|number| alive(who(number), 1, acked)).collect();
                    entry(keep_alive(&living));
                }
                Bustle::Limits { idle_timeout, max_pending_requests } => {
                    entry(configure(Limits { idle_timeout, max_pending_requests, ..Limits::default() }));
                }
                Bustle::Hold => held.hold(pair.real.snapshot().unwrap()),
                Bustle::Release => held.0.truncate(held.0.len() / 2),
            }
        }
        held.check();
        pair.real = restore(&pair.real);
        pair.check_seen();
    });
}

/// Limits that a crowd breaks. The number of pending requests is always low: each closing tells all others.
fn crowd_limits() -> impl Strategy<Value = Limits> {
    let idle = (100..900u64).prop_map(|timeout| Limits { idle_timeout: Some(timeout), ..Limits::default() });
    let surplus = (0..60u32).prop_map(|max| Limits { max_sessions: Some(max), ..Limits::default() });
    let limits = (prop_oneof![idle, surplus, Just(Limits::default())], 0..3u32);
    limits.prop_map(|(limits, pending)| {
        let slow = limits == Limits::default();
        let max_pending_requests = Some(if slow { 0 } else { pending });
        Limits { evict_idlest: true, max_pending_requests, ..limits }
    })
}

/// Many sessions, three at a time, of which the last has the lowest id.
fn crowd(size: u64) -> Vec<Step> {
    let opening = |n| {
        let action = create(SessionId::draw(0, size - n));
        Step { index: n + 1, time: Timestamp(n / 3), action, skip: false }
    };
    (0..size).map(opening).collect()
}

/// The server requests in what came out.
fn sent(out: &[ServerAction]) -> impl Iterator<Item = (SessionId, u64)> {
    out.iter().filter_map(|action| match action {
        ServerAction::SendServerRequest { session, request, .. } => Some((*session, request.0)),
        _ => None,
    })
}

/// Which requests an action says are the lowest that matter.
fn lowest_pending(action: &RaftAction) -> Vec<(SessionId, RequestId)> {
    match action {
        RaftAction::ClientRequest { session, lowest_pending, .. } => vec![(*session, *lowest_pending)],
        RaftAction::KeepAlive { sessions } => {
            sessions.iter().map(|alive| (alive.session, alive.lowest_pending)).collect()
        }
        _ => Vec::new(),
    }
}

/// The answer to a request, which comes first in what came out.
fn answer_in(out: &[ServerAction]) -> Result<Response, RequestError> {
    match &out[0] {
        ServerAction::SendResponse { response, .. } => Ok(response.clone()),
        ServerAction::SendRequestError { error, .. } => Err(*error),
        other => panic!("{other:?} is no answer"),
    }
}

/// The machine's own part of the snapshot.
fn user_state(machine: &SessionStateMachine<Desk>) -> BTreeMap<String, session_runtime::Bytes> {
    let mut dictionary = machine.snapshot().unwrap().dictionary().unwrap();
    dictionary.retain(|key, _| key.starts_with("user/"));
    dictionary
}

/// Puts copies of requests somewhere behind their originals, at most one in each gap.
fn insert_copies(steps: &[Step], copies: &[(prop::sample::Index, prop::sample::Index)]) -> Vec<Step> {
    let originals = with_a_record(steps);
    let mut all: BTreeMap<u64, Step> = steps.iter().map(|step| (step.index, step.clone())).collect();
    for (which, place) in copies.iter().filter(|_| !originals.is_empty()) {
        let original = originals[which.index(originals.len())];
        let before = &steps[original + place.index(steps.len() - original)];
        // Not later than the history's own time there, whatever the clocks said.
        let time = steps.iter().filter(|step| step.index <= before.index).map(|step| step.time).max();
        let copy =
            Step { index: before.index + 1, time: time.unwrap_or_default(), ..steps[original].clone() };
        all.entry(copy.index).or_insert(copy);
    }
    all.into_values().collect()
}

/// The requests that found their session.
fn with_a_record(steps: &[Step]) -> Vec<usize> {
    let mut machine = SessionStateMachine::new(Desk::<2>::default());
    let mut found = Vec::new();
    for (place, step) in steps.iter().enumerate() {
        let out = feed(&mut machine, step).unwrap();
        let lost = |action: &ServerAction| {
            matches!(action, ServerAction::SendRequestError { error: RequestError::SessionExpired, .. })
        };
        if matches!(step.action, RaftAction::ClientRequest { .. }) && !out.iter().any(lost) {
            found.push(place);
        }
    }
    found
}

/// The names of everything that came out, down to the reasons.
fn kinds(result: &Result<Vec<ServerAction>, ApplyError>) -> Vec<String> {
    let of_error = |error: &ApplyError| match error {
        ApplyError::Halted(halted) => format!("Halted {}", halted.command),
        other => format!("{other:?}").split(' ').next().unwrap_or_default().to_owned(),
    };
    match result {
        Ok(out) => out.iter().map(kind).collect(),
        Err(error) => vec![of_error(error)],
    }
}

fn kind(action: &ServerAction) -> String {
    match action {
        ServerAction::SessionCreated { .. } => "SessionCreated".to_owned(),
        ServerAction::SessionRefused { reason, .. } => format!("refused {reason:?}"),
        ServerAction::SendResponse { response, .. } => format!("{:?}", response.status),
        ServerAction::SendRequestError { error, .. } => format!("error {error:?}"),
        ServerAction::SendServerRequest { .. } => "SendServerRequest".to_owned(),
        ServerAction::SessionClosed { reason, .. } => format!("closed {reason:?}"),
        ServerAction::InternalResponse { result: Ok(_) } => "InternalResponse".to_owned(),
        ServerAction::InternalResponse { result: Err(error) } => format!("internal {error:?}"),
    }
}

/// What random histories must bring about, else they try nothing.
const MUST_HAPPEN: &[&str] = &[
    "Accepted",
    "Halted #[session_closed]",
    "Halted BadReply",
    "Halted BadSend",
    "Halted Panic",
    "InternalResponse",
    "NeedsBuild",
    "OutOfOrder",
    "Rejected",
    "SendServerRequest",
    "SessionCreated",
    "answered again",
    "closed Evicted",
    "closed Expired",
    "closed Idle",
    "closed SlowConsumer",
    "error Busy",
    "error InvalidPayload",
    "error RequestMismatch",
    "error ResponseEvicted",
    "error SessionExpired",
    "error Skipped",
    "internal InvalidPayload",
    "internal Skipped",
    "refused Closed",
    "refused Full",
    "refused Stale",
    "sent again",
];

/// What one history brings about.
fn outcomes(history: &[Step]) -> BTreeSet<String> {
    let mut pair = Pair::<2>::new(history);
    let mut all = BTreeSet::new();
    for step in history {
        let known = match step.action {
            RaftAction::ClientRequest { session, request, .. } => pair.real.cached_response(session, request),
            _ => None,
        };
        let result = pair.step(step);
        let answer =
            result.iter().flatten().any(|action| matches!(action, ServerAction::SendResponse { .. }));
        let retry = matches!(step.action, RaftAction::GetRequestsForRetry { .. });
        all.extend(kinds(&result));
        all.extend((known.is_some() && answer).then(|| "answered again".to_owned()));
        all.extend((retry && result.iter().flatten().count() > 1).then(|| "sent again".to_owned()));
    }
    all
}

#[test]
fn random_histories_reach_every_kind_of_outcome() {
    let rng = TestRunner::deterministic().rng().clone();
    let mut runner = TestRunner::new_with_rng(cases(0), rng);
    let mut happened: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..400 {
        let history = histories(Scope::All, MOVES).new_tree(&mut runner).unwrap().current();
        for kind in outcomes(&history) {
            *happened.entry(kind).or_default() += 1;
        }
    }
    println!("of 400 histories: {happened:#?}");
    for kind in MUST_HAPPEN {
        assert!(happened.get(*kind).is_some_and(|times| *times >= 4), "{kind} in {happened:#?}");
    }
}

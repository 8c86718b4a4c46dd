//! What holds for every history, tried on random ones. A failing history is printed, shrunk; its seed is kept
//! and tried first from then on. `PROPTEST_CASES` sets how many are tried.

mod model;
mod support;

use model::history::{Scope, Step, histories};
use model::{Failure, Model, ModelDesk};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{FileFailurePersistence, TestRunner};
use session_runtime::{
    ApplyError, Command, Limits, PendingRequest, Query, QueryError, RaftAction, RequestError, RequestId,
    Response, ServerAction, SessionId, SessionStateMachine, Snapshot, StateMachine, Timestamp, codec,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Once;
use support::{Desk, DeskCommand, DeskQuery, alive, configure, create, internal, keep_alive, upgrade};

/// How many moves a history has at most.
const MOVES: usize = 50;

/// So many cases, unless `PROPTEST_CASES` says otherwise.
fn cases(cases: u32) -> ProptestConfig {
    static QUIET: Once = Once::new();
    QUIET.call_once(quiet_desk);
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

/// The desk panics when told to. Its reports would bury those of the tests.
fn quiet_desk() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let of_desk = panic.payload_as_str().is_some_and(|message| message.starts_with("the desk"));
        if !of_desk {
            report(panic);
        }
    }));
}

/// Feeds a machine one step.
fn feed<const BUILD: u32>(
    machine: &mut SessionStateMachine<Desk<BUILD>>,
    step: &Step,
) -> Result<Vec<ServerAction>, ApplyError>
where
    Desk<BUILD>: StateMachine,
{
    let action = step.action.clone();
    if step.skip {
        machine.skip(step.index, step.time, action)
    } else {
        machine.apply(step.index, step.time, action)
    }
}

/// A machine that was fed steps which all apply.
fn replayed<const BUILD: u32>(steps: &[Step]) -> SessionStateMachine<Desk<BUILD>>
where
    Desk<BUILD>: StateMachine,
{
    let mut machine = SessionStateMachine::new(Desk::default());
    for step in steps {
        feed(&mut machine, step).expect("it applied before");
    }
    machine
}

/// What operators make of a history: entries that fail are left out, and those that halt are skipped.
fn settled(history: &[Step]) -> Vec<Step> {
    let mut model = Model::new(2);
    let mut steps = Vec::new();
    for step in history {
        let mut step = step.clone();
        let before = model.clone();
        let mut result = model.apply(step.index, step.time, &step.action, step.skip);
        if let Err(Failure::Halted(_)) = result {
            model = before;
            step.skip = true;
            result = model.apply(step.index, step.time, &step.action, true);
        }
        if result.is_ok() {
            steps.push(step);
        }
    }
    steps
}

/// The same, with an end at which the state can be captured whatever happened before.
fn settled_and_clean(history: &[Step]) -> Vec<Step> {
    let mut steps = settled(history);
    let last = steps.last().map_or(0, |step| step.index);
    for (index, action) in [internal(DeskCommand::Spoil(false)), upgrade(2)].into_iter().enumerate() {
        let index = last + 1 + index as u64;
        steps.push(Step { index, time: Timestamp(0), action, skip: false });
    }
    steps
}

fn bytes(machine: &SessionStateMachine<Desk>) -> Vec<u8> {
    machine.snapshot().unwrap().to_bytes().unwrap()
}

/// Everything that can be seen of a machine from outside.
#[derive(Debug, PartialEq)]
struct Seen {
    desk: ModelDesk,
    sessions: Vec<SessionId>,
    pending: Vec<Vec<PendingRequest>>,
    overdue: Vec<bool>,
    cached: Vec<Option<Result<Response, RequestError>>>,
    last_applied: u64,
    time: Timestamp,
    limits: Limits,
    version: u32,
    expiry_due: Option<Timestamp>,
}

/// Looks at the real machine or at the model: both have the same names.
macro_rules! seen {
    ($machine:expr, $desk:expr, $probes:expr) => {{
        let now = $machine.time().0;
        let moments = [0, now.saturating_sub(3), now.saturating_sub(1), now, now.saturating_add(1), u64::MAX];
        let cached =
            $probes.requests.iter().map(|(session, request)| $machine.cached_response(*session, *request));
        Seen {
            desk: $desk,
            sessions: $machine.sessions().collect(),
            pending: $probes.sessions.iter().map(|id| $machine.pending_requests(*id).collect()).collect(),
            overdue: moments.map(|moment| $machine.has_pending_requests(Timestamp(moment))).to_vec(),
            cached: cached.collect(),
            last_applied: $machine.last_applied(),
            time: $machine.time(),
            limits: $machine.limits().clone(),
            version: $machine.version(),
            expiry_due: $machine.expiry_due(),
        }
    }};
}

/// The sessions and requests of a history.
struct Probes {
    sessions: BTreeSet<SessionId>,
    requests: BTreeSet<(SessionId, RequestId)>,
}

impl Probes {
    fn of(history: &[Step]) -> Self {
        let mut probes = Self { sessions: BTreeSet::new(), requests: BTreeSet::new() };
        for step in history {
            match step.action {
                RaftAction::SessionCreationConfirmed { session, .. } => {
                    probes.sessions.insert(session);
                }
                RaftAction::ClientRequest { session, request, .. } => {
                    probes.requests.insert((session, request));
                }
                _ => {}
            }
        }
        probes
    }
}

fn desk_of<const BUILD: u32>(desk: &Desk<BUILD>) -> ModelDesk {
    ModelDesk {
        total: desk.total,
        journal: desk.journal.to_vec(),
        counts: desk.counts.clone(),
        flag: desk.flag.0,
        doubled: desk.doubled,
    }
}

/// The real machine and the model side by side.
struct Pair<const BUILD: u32>
where
    Desk<BUILD>: StateMachine,
{
    real: SessionStateMachine<Desk<BUILD>>,
    model: Model,
    applied: Vec<Step>,
    probes: Probes,
}

impl<const BUILD: u32> Pair<BUILD>
where
    Desk<BUILD>: StateMachine,
{
    fn new(history: &[Step]) -> Self {
        let (real, model) = (SessionStateMachine::new(Desk::default()), Model::new(BUILD));
        Self { real, model, applied: Vec::new(), probes: Probes::of(history) }
    }

    /// Feeds both and looks at both. A machine that halts is restarted, and the entry skipped.
    fn step(&mut self, step: &Step) -> Result<Vec<ServerAction>, ApplyError> {
        let before = self.model.clone();
        let result = self.compare_outputs(step);
        if let Err(ApplyError::Halted(_)) = result {
            self.check_halted(step);
            self.real = replayed(&self.applied);
            self.model = before;
            self.step(&Step { skip: true, ..step.clone() }).expect("what is skipped cannot halt");
        }
        self.check_seen();
        result
    }

    fn compare_outputs(&mut self, step: &Step) -> Result<Vec<ServerAction>, ApplyError> {
        let expected = self.model.apply(step.index, step.time, &step.action, step.skip);
        let result = feed(&mut self.real, step);
        match (&expected, &result) {
            (Ok(expected), Ok(out)) => {
                assert_eq!(out, expected, "the outputs of {step:?} (left: the machine's)");
                self.applied.push(step.clone());
            }
            (Err(expected), Err(error)) => assert!(expected.fits(error), "{error:?} is not {expected:?}"),
            _ => panic!("{step:?} gave {result:?}, not {expected:?}"),
        }
        result
    }

    fn check_seen(&self) {
        let real = seen!(self.real, desk_of(self.real.machine()), self.probes);
        let model = seen!(self.model, self.model.desk.clone(), self.probes);
        assert_eq!(real, model, "what is seen (left: of the machine)");
        assert_eq!(
            self.real.query(&DeskQuery::Total.encode()),
            Ok(codec::encode(&model.desk.total).unwrap())
        );
        match (self.real.snapshot(), self.model.spoiled_field()) {
            (Ok(_), None) => {}
            (Err(ApplyError::State { field, .. }), Some(spoiled)) if field == spoiled => {}
            (real, spoiled) => panic!("the snapshot is {:?}, and spoiled is {spoiled:?}", real.err()),
        }
    }

    /// A halted machine stands where it was, applies nothing, skips nothing and shows nothing.
    fn check_halted(&mut self, step: &Step) {
        let last_applied = self.applied.last().map_or(0, |step| step.index);
        assert_eq!(self.real.last_applied(), last_applied);
        assert_eq!(self.real.sessions().count(), 0);
        assert!(!self.real.has_pending_requests(Timestamp(u64::MAX)));
        assert_eq!(self.real.expiry_due(), None);
        assert_eq!((self.real.time(), self.real.version()), (self.model.time(), self.model.version()));
        assert_eq!(self.real.limits(), self.model.limits());
        assert!(self.probes.sessions.iter().all(|id| self.real.pending_requests(*id).next().is_none()));
        assert!(self.probes.requests.iter().all(|(id, n)| self.real.cached_response(*id, *n).is_none()));
        assert!(matches!(self.real.snapshot(), Err(ApplyError::Halted(_))));
        assert!(matches!(self.real.query(&DeskQuery::Total.encode()), Err(QueryError::Halted(_))));
        let halted = self.real.halted().cloned().expect("it is halted");
        for skip in [false, true] {
            let later = Step { index: step.index + 1, action: RaftAction::Tick, skip, ..step.clone() };
            assert_eq!(feed(&mut self.real, &later), Err(ApplyError::Halted(halted.clone())));
        }
    }
}

fn agree<const BUILD: u32>(history: &[Step])
where
    Desk<BUILD>: StateMachine,
{
    let mut pair = Pair::<BUILD>::new(history);
    for step in history {
        let _ = pair.step(step);
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
        let steps = settled_and_clean(&history);
        let mut straight = SessionStateMachine::new(Desk::<2>::default());
        let outputs: Vec<_> = steps.iter().map(|step| feed(&mut straight, step).unwrap()).collect();
        let end = bytes(&straight);
        for cut in 0..steps.len() {
            let until = replayed(&steps[..cut]);
            // A spoilt state cannot be captured; a later one can.
            if until.snapshot().is_err() {
                continue;
            }
            let mut restored = restore(&until);
            for (step, output) in steps[cut..].iter().zip(&outputs[cut..]) {
                assert_eq!(
                    &feed(&mut restored, step).unwrap(),
                    output,
                    "{step:?}, restored before entry {cut}"
                );
            }
            assert_eq!(bytes(&restored), end, "restored before entry {cut}");
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

fn restore(machine: &SessionStateMachine<Desk>) -> SessionStateMachine<Desk> {
    let snapshot = Snapshot::from_bytes(&bytes(machine)).unwrap();
    SessionStateMachine::restore(&snapshot).unwrap()
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

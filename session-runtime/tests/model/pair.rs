//! The real machine and the naive model side by side.

use super::history::Step;
use super::{Failure, Model, ModelDesk};
use crate::support::{Desk, DeskCommand, DeskQuery, internal, upgrade};
use session_runtime::{
    ApplyError, Limits, PendingRequest, Query, QueryError, RaftAction, RequestError, RequestId, Response,
    ServerAction, SessionId, SessionStateMachine, Snapshot, StateMachine, Timestamp, codec,
};
use std::collections::BTreeSet;
use std::sync::Once;

/// The desk panics when told to. Its reports would bury those of the tests.
pub fn quiet_desk() {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let of_desk = panic.payload_as_str().is_some_and(|message| message.starts_with("the desk"));
            if !of_desk {
                report(panic);
            }
        }));
    });
}

/// Feeds a machine one step.
pub fn feed<const BUILD: u32>(
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
pub fn replayed<const BUILD: u32>(steps: &[Step]) -> SessionStateMachine<Desk<BUILD>>
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
pub fn settled(history: &[Step]) -> Vec<Step> {
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
pub fn settled_and_clean(history: &[Step]) -> Vec<Step> {
    let mut steps = settled(history);
    let last = steps.last().map_or(0, |step| step.index);
    for (index, action) in [internal(DeskCommand::Spoil(false)), upgrade(2)].into_iter().enumerate() {
        let index = last + 1 + index as u64;
        steps.push(Step { index, time: Timestamp(0), action, skip: false });
    }
    steps
}

pub fn bytes(machine: &SessionStateMachine<Desk>) -> Vec<u8> {
    machine.snapshot().unwrap().to_bytes().unwrap()
}

/// Everything that can be seen of a machine from outside.
#[derive(Debug, PartialEq)]
pub struct Seen {
    desk: ModelDesk,
    sessions: Vec<SessionId>,
    counts: (usize, usize),
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
            counts: ($machine.session_count(), $machine.pending_count()),
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
pub struct Probes {
    sessions: BTreeSet<SessionId>,
    requests: BTreeSet<(SessionId, RequestId)>,
}

impl Probes {
    pub fn of(history: &[Step]) -> Self {
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

pub fn desk_of<const BUILD: u32>(desk: &Desk<BUILD>) -> ModelDesk {
    ModelDesk {
        total: desk.total,
        journal: desk.journal.to_vec(),
        counts: desk.counts.clone(),
        flag: desk.flag.0,
        doubled: desk.doubled,
    }
}

/// The real machine and the model side by side.
pub struct Pair<const BUILD: u32>
where
    Desk<BUILD>: StateMachine,
{
    pub real: SessionStateMachine<Desk<BUILD>>,
    pub model: Model,
    pub applied: Vec<Step>,
    pub probes: Probes,
}

impl<const BUILD: u32> Pair<BUILD>
where
    Desk<BUILD>: StateMachine,
{
    pub fn new(history: &[Step]) -> Self {
        let (real, model) = (SessionStateMachine::new(Desk::default()), Model::new(BUILD));
        Self { real, model, applied: Vec::new(), probes: Probes::of(history) }
    }

    /// Feeds both and looks at both. A machine that halts is restarted, and the entry skipped.
    pub fn step(&mut self, step: &Step) -> Result<Vec<ServerAction>, ApplyError> {
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

    pub fn compare_outputs(&mut self, step: &Step) -> Result<Vec<ServerAction>, ApplyError> {
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

    pub fn check_seen(&self) {
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

pub fn agree<const BUILD: u32>(history: &[Step])
where
    Desk<BUILD>: StateMachine,
{
    let mut pair = Pair::<BUILD>::new(history);
    for step in history {
        let _ = pair.step(step);
    }
}

pub fn restore(machine: &SessionStateMachine<Desk>) -> SessionStateMachine<Desk> {
    let snapshot = Snapshot::from_bytes(&bytes(machine)).unwrap();
    SessionStateMachine::restore(&snapshot).unwrap()
}

/// A history replayed without a break, to compare with replays through a snapshot.
pub struct Straight {
    steps: Vec<Step>,
    outputs: Vec<Vec<ServerAction>>,
    end: Vec<u8>,
}

impl Straight {
    pub fn new(history: &[Step]) -> Self {
        let steps = settled_and_clean(history);
        let mut machine = SessionStateMachine::new(Desk::<2>::default());
        let outputs = steps.iter().map(|step| feed(&mut machine, step).unwrap()).collect();
        Self { steps, outputs, end: bytes(&machine) }
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Restored before this entry, the machine goes on as if nothing had happened.
    pub fn check_restored_before(&self, cut: usize) {
        let until = replayed(&self.steps[..cut]);
        // A spoilt state cannot be captured; a later one can.
        if until.snapshot().is_err() {
            return;
        }
        let mut restored = restore(&until);
        for (step, output) in self.steps[cut..].iter().zip(&self.outputs[cut..]) {
            assert_eq!(&feed(&mut restored, step).unwrap(), output, "{step:?}, restored before entry {cut}");
        }
        assert_eq!(bytes(&restored), self.end, "restored before entry {cut}");
    }
}

//! The check a user runs on a machine.

use super::{
    dice::Dice,
    failure::{Failure, Tally},
    replica::Builds,
    world::{Logged, World},
};
use crate::{
    action::RaftAction,
    codec,
    identity::SessionId,
    machine::{Command, StateMachine},
    state::to_hex,
};
use std::fmt::Write;
use std::ops::Range;

/// How often twins are asked about a log before it is taken to show nothing.
const TRIALS: usize = 8;

/// Runs histories of a machine, with commands drawn by the closure, and panics at the first broken rule.
///
/// Each history has several replicas of one log, clients with sessions, and faults drawn from its seed. What is
/// found: replicas that differ (a handler that iterates a `HashMap`, reads a clock or a global), handlers that
/// panic, and everything the session layer promises.
///
/// # Panics
///
/// If a rule is broken: with the seed, the rule, and the shortest log that breaks it.
pub fn check<M: StateMachine + Default + 'static>(commands: impl FnMut(&mut Dice) -> M::Command) {
    Check::<M, _>::new(commands).run();
}

/// A check with its settings.
pub struct Check<M, G> {
    builds: Builds<M>,
    commands: G,
    seeds: Range<u64>,
    operations: u64,
}

impl<M: StateMachine + Default + 'static, G: FnMut(&mut Dice) -> M::Command> Check<M, G> {
    /// A hundred histories of 200 operations each.
    pub fn new(commands: G) -> Self {
        Self { builds: Builds { make: M::default }, commands, seeds: 0..100, operations: 200 }
    }

    /// Runs the histories of these seeds.
    #[must_use]
    pub fn seeds(mut self, seeds: Range<u64>) -> Self {
        self.seeds = seeds;
        self
    }

    /// How many operations the clients of one history begin.
    #[must_use]
    pub fn operations(mut self, operations: u64) -> Self {
        self.operations = operations;
        self
    }

    /// Starts from another machine than the default one.
    #[must_use]
    pub fn machine(mut self, make: fn() -> M) -> Self {
        self.builds.make = make;
        self
    }

    /// Runs all histories.
    ///
    /// # Panics
    ///
    /// At the first broken rule.
    #[allow(clippy::panic)] // how a test fails
    pub fn run(self) -> Tally {
        match self.try_run() {
            Ok(tally) => tally,
            Err(failure) => panic!("{failure}"),
        }
    }

    /// Runs all histories, or up to the first broken rule.
    pub fn try_run(mut self) -> Result<Tally, Box<Failure>> {
        let mut tally = Tally::default();
        for seed in self.seeds.clone() {
            tally += self.run_seed(seed)?;
        }
        Ok(tally)
    }

    /// Runs the history of one seed.
    pub fn run_seed(&mut self, seed: u64) -> Result<Tally, Box<Failure>> {
        let Self { builds, commands, operations, .. } = self;
        let mut draw = |dice: &mut Dice| {
            commands(dice).try_encode().map_err(|error| format!("a command cannot be encoded: {error}"))
        };
        let mut world = World::new(builds, &mut draw, seed, *operations);
        match world.run() {
            Ok(()) => Ok(world.tally),
            Err(problem) => {
                let log = std::mem::take(&mut world.log);
                Err(Box::new(self.explain(seed, problem, log)))
            }
        }
    }

    /// The failure in as few words and entries as it takes.
    fn explain(&self, seed: u64, problem: String, log: Vec<Logged>) -> Failure {
        // Ids that were drawn at the beginning stay valid when entries before their creation are taken out.
        let early: Vec<Logged> = log.iter().map(drawn_early).collect();
        let (problem, log) = if let Some(found) = self.problem_of(&early) {
            self.shortest(found, early)
        } else if let Some(found) = self.problem_of(&log) {
            self.shortest(found, log)
        } else {
            (problem, log)
        };
        Failure { seed, problem, history: script::<M>(&log) }
    }

    /// What twins disagree about. Chance that no seed governs need not show at once, so they are asked again.
    fn problem_of(&self, log: &[Logged]) -> Option<String> {
        (0..TRIALS).find_map(|_| self.twin_problem(log))
    }

    /// What two machines that are fed this log disagree about, entry by entry.
    fn twin_problem(&self, log: &[Logged]) -> Option<String> {
        let (mut one, mut other) = (self.builds.fresh(false), self.builds.fresh(false));
        for (index, entry) in (1_u64..).zip(log) {
            let name = entry_name::<M>(&entry.action);
            let here = one.apply(index, entry.time, entry.action.clone());
            let there = other.apply(index, entry.time, entry.action.clone());
            match (here, there) {
                (Ok(here), Ok(there)) if here == there => {}
                (Ok(here), Ok(there)) => {
                    return Some(format!(
                        "two replicas answer entry {index} ({name}) differently: {here:?} and {there:?}"
                    ));
                }
                (Err(error), _) | (_, Err(error)) => return Some(format!("entry {index} ({name}): {error}")),
            }
            if let Some(problem) = one.misread() {
                return Some(format!("entry {index}: {problem}"));
            }
            let (here, there) = (one.snapshot(), other.snapshot());
            let (here, there) = match (here, there) {
                (Ok(here), Ok(there)) => (here.dictionary().ok()?, there.dictionary().ok()?),
                (Err(error), _) | (_, Err(error)) => {
                    return Some(format!("after entry {index} ({name}): {error}"));
                }
            };
            if here != there {
                let keys = here.keys().chain(there.keys().filter(|key| !here.contains_key(*key)));
                let differing: Vec<&String> = keys.filter(|key| here.get(*key) != there.get(*key)).collect();
                return Some(format!(
                    "two replicas differ after entry {index} ({name}), in the keys {differing:?}"
                ));
            }
        }
        None
    }

    /// Takes entries out of a log for as long as it still shows a problem, and says which it shows in the end.
    fn shortest(&self, mut problem: String, mut log: Vec<Logged>) -> (String, Vec<Logged>) {
        let mut chunk = log.len().div_ceil(2);
        while chunk > 0 {
            let mut start = 0;
            while start < log.len() {
                let taken = start..start.saturating_add(chunk);
                let left = log.iter().enumerate().filter(|(position, _)| !taken.contains(position));
                let shorter: Vec<Logged> = left.map(|(_, entry)| entry.clone()).collect();
                if let Some(found) = self.problem_of(&shorter) {
                    (problem, log) = (found, shorter);
                } else {
                    start = taken.end;
                }
            }
            chunk = if chunk == 1 { 0 } else { chunk.div_ceil(2) };
        }
        (problem, log)
    }
}

/// An entry whose sessions were all drawn at the beginning of the log.
fn drawn_early(entry: &Logged) -> Logged {
    let mut entry = entry.clone();
    let early = |session: &mut SessionId| {
        let random = session.0 & u128::from(u64::MAX);
        *session = SessionId::draw(0, u64::try_from(random).unwrap_or_default());
    };
    match &mut entry.action {
        RaftAction::SessionCreationConfirmed { session, .. }
        | RaftAction::ClientRequest { session, .. }
        | RaftAction::ServerRequestAck { session, .. }
        | RaftAction::SessionExpired { session } => early(session),
        RaftAction::KeepAlive { sessions } => {
            for alive in sessions {
                early(&mut alive.session);
            }
        }
        RaftAction::GetRequestsForRetry { .. }
        | RaftAction::InternalCommand { .. }
        | RaftAction::Configure { .. }
        | RaftAction::Upgrade { .. }
        | RaftAction::Tick => {}
    }
    entry
}

/// What an entry holds, in a word: the command's name, or the action's.
fn entry_name<M: StateMachine>(action: &RaftAction) -> String {
    match action {
        RaftAction::ClientRequest { payload, .. } | RaftAction::InternalCommand { payload } => {
            let name = codec::decode::<M::Command>(payload).map_or("(none)", |command| command.name());
            format!("command `{name}`")
        }
        other => Names::default().action::<M>(other).split(' ').next().unwrap_or_default().to_owned(),
    }
}

/// A log as a scenario script: an entry a line, sessions by short names, commands by name and bytes.
fn script<M: StateMachine>(log: &[Logged]) -> String {
    let mut names = Names::default();
    let mut text = String::new();
    for (index, entry) in (1_u64..).zip(log) {
        let _ = writeln!(text, "{index} @{} {}", entry.time.0, names.action::<M>(&entry.action));
    }
    text
}

/// The sessions of a script, in the order in which they turn up.
#[derive(Default)]
struct Names(Vec<SessionId>);

impl Names {
    fn of(&mut self, session: SessionId) -> String {
        let known = self.0.iter().position(|known| *known == session);
        let position = known.unwrap_or_else(|| {
            self.0.push(session);
            self.0.len().saturating_sub(1)
        });
        format!("session{}", position.saturating_add(1))
    }

    fn action<M: StateMachine>(&mut self, action: &RaftAction) -> String {
        match action {
            RaftAction::SessionCreationConfirmed { session, .. } => format!("create {}", self.of(*session)),
            RaftAction::ClientRequest { session, request, lowest_pending, acked, payload } => format!(
                "request {} {} (lowest {}, acked {}): {}",
                self.of(*session),
                request.0,
                lowest_pending.0,
                acked.0,
                command_text::<M>(payload)
            ),
            RaftAction::ServerRequestAck { session, request } => {
                format!("ack {} {}", self.of(*session), request.0)
            }
            RaftAction::SessionExpired { session } => format!("expire {}", self.of(*session)),
            RaftAction::GetRequestsForRetry { last_sent_before, limit } => {
                format!("retry before {} limit {limit}", last_sent_before.0)
            }
            RaftAction::KeepAlive { sessions } => {
                let sessions = sessions.iter().map(|alive| {
                    let (lowest, acked) = (alive.lowest_pending.0, alive.acked.0);
                    format!("{} (lowest {lowest}, acked {acked})", self.of(alive.session))
                });
                format!("keep-alive {}", sessions.collect::<Vec<_>>().join(", "))
            }
            RaftAction::InternalCommand { payload } => format!("internal: {}", command_text::<M>(payload)),
            RaftAction::Configure { limits, .. } => format!("configure {limits:?}"),
            RaftAction::Upgrade { version } => format!("upgrade {version}"),
            RaftAction::Tick => "tick".to_owned(),
        }
    }
}

/// A command by its name and its bytes in hex.
fn command_text<M: StateMachine>(payload: &[u8]) -> String {
    let name = codec::decode::<M::Command>(payload).map_or("(no command)", |command| command.name());
    format!("{name} {}", to_hex(payload))
}

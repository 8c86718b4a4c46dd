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
    machine::{Command, StateMachine},
};
use std::fmt::Write;
use std::ops::RangeBounds;

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
    seeds: (u64, u64),
    operations: u64,
}

impl<M: StateMachine + Default + 'static, G: FnMut(&mut Dice) -> M::Command> Check<M, G> {
    /// A hundred histories of 200 operations each.
    pub fn new(commands: G) -> Self {
        Self { builds: Builds { make: M::default }, commands, seeds: (0, 99), operations: 200 }
    }

    /// Runs the histories of these seeds.
    #[must_use]
    pub fn seeds(mut self, seeds: impl RangeBounds<u64>) -> Self {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let first = match seeds.start_bound() {
            Included(first) => *first,
            Excluded(before) => before.saturating_add(1),
            Unbounded => 0,
        };
        let last = match seeds.end_bound() {
            Included(last) => *last,
            Excluded(behind) => behind.saturating_sub(1),
            Unbounded => u64::MAX,
        };
        self.seeds = (first, last);
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
        for seed in self.seeds.0..=self.seeds.1 {
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
        let (problem, log) = match self.twin_problem(&log) {
            Some(_) => {
                let shortest = self.shortest(log);
                (self.twin_problem(&shortest).unwrap_or(problem), shortest)
            }
            None => (problem, log),
        };
        Failure { seed, problem, history: script::<M>(&log) }
    }

    /// What two machines that are fed this log disagree about, entry by entry.
    fn twin_problem(&self, log: &[Logged]) -> Option<String> {
        let (mut one, mut other) = (self.builds.fresh(false), self.builds.fresh(false));
        for (index, entry) in (1_u64..).zip(log) {
            let name = command_name::<M>(&entry.action);
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

    /// Takes entries out of a log for as long as it still shows a problem.
    fn shortest(&self, mut log: Vec<Logged>) -> Vec<Logged> {
        let mut chunk = log.len().div_ceil(2);
        while chunk > 0 {
            let mut start = 0;
            while start < log.len() {
                let shorter: Vec<Logged> = log
                    .iter()
                    .enumerate()
                    .filter(|(position, _)| *position < start || *position >= start.saturating_add(chunk))
                    .map(|(_, entry)| entry.clone())
                    .collect();
                if self.twin_problem(&shorter).is_some() {
                    log = shorter;
                } else {
                    start = start.saturating_add(chunk);
                }
            }
            chunk = if chunk == 1 { 0 } else { chunk.div_ceil(2) };
        }
        log
    }
}

/// The command an entry holds, by name.
fn command_name<M: StateMachine>(action: &RaftAction) -> String {
    let payload = match action {
        RaftAction::ClientRequest { payload, .. } | RaftAction::InternalCommand { payload } => payload,
        other => {
            let shown = format!("{other:?}");
            return shown.split([' ', '{']).next().unwrap_or_default().to_owned();
        }
    };
    match codec::decode::<M::Command>(payload) {
        Ok(command) => format!("command `{}`", command.name()),
        Err(_) => "no command".to_owned(),
    }
}

/// A log as text, an entry a line.
fn script<M: StateMachine>(log: &[Logged]) -> String {
    let mut text = String::new();
    for (index, entry) in (1_u64..).zip(log) {
        let name = command_name::<M>(&entry.action);
        let _ = writeln!(text, "{index} @{} {name}: {:?}", entry.time.0, entry.action);
    }
    text
}

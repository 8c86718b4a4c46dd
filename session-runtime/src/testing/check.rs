//! The check a user runs on a machine.

use super::{
    dice::Dice,
    failure::{Failure, Tally},
    judge::Broken,
    replica::{Builds, written},
    script::Names,
    shrink::{Shortest, shortest},
    world::{Logged, World},
};
use crate::{
    action::{RaftAction, ServerAction},
    machine::StateMachine,
};
use std::ops::Range;

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

/// What the printed log is.
const SHORTEST: &str = "the log, as short as it could be made";
const CHANCE: &str = "the log, as short as it could be made; what differs is chance outside the seed (hash order, a \
                      clock, a static), so not every replay shows it";
const ELSEWHERE: &str = "the log up to there, not shortened: no replay of it shows a difference, so what differs is \
                         chance outside the seed (hash order, a clock, a static)";
const FEWEST: &str = "the log of a history with as few operations as were found to do it; no entry is left out, \
                      because the log alone does not show it";

/// A history that was run.
struct History {
    result: Result<Tally, Broken>,
    log: Vec<Logged>,
    /// How long the log was when replicas were found to differ.
    differ: Option<usize>,
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
        Self { builds: Builds { make: M::default, lie: None }, commands, seeds: 0..100, operations: 200 }
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

    /// Lets every replica say something else than the truth: for tests of the check itself.
    #[doc(hidden)]
    #[must_use]
    pub fn lying(mut self, lie: fn(&RaftAction, &mut Vec<ServerAction>)) -> Self {
        self.builds.lie = Some(lie);
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
        let operations = self.operations;
        let History { result, log, differ } = self.history(seed, operations);
        result.map_err(|problem| Box::new(self.explain(seed, problem, log, differ)))
    }

    /// The log of one seed's history as a scenario script.
    pub fn script(&mut self, seed: u64) -> String {
        let History { log, .. } = self.history(seed, self.operations);
        Names::of(&log).script::<M>(&format!("seed {seed}"), &log)
    }

    /// Runs the history of a seed with so many operations.
    fn history(&mut self, seed: u64, operations: u64) -> History {
        let Self { builds, commands, .. } = self;
        let mut draw = |dice: &mut Dice| written(&commands(dice));
        let mut world = World::new(builds, &mut draw, seed, operations);
        let result = world.run();
        History { result: result.map(|()| world.tally), log: world.log, differ: world.differ }
    }

    /// The failure in as few words and entries as it takes.
    fn explain(
        &mut self,
        seed: u64,
        problem: Broken,
        mut log: Vec<Logged>,
        differ: Option<usize>,
    ) -> Failure {
        let operations = self.operations;
        let (operations, problem, about, log) = match (shortest(&self.builds, &log), differ) {
            (Some(Shortest { problem, log, always }), _) => {
                (operations, problem, if always { SHORTEST } else { CHANCE }, log)
            }
            (None, Some(length)) => {
                log.truncate(length);
                (operations, problem, ELSEWHERE, log)
            }
            (None, None) => {
                let (operations, problem, log) =
                    self.fewest(seed, operations).unwrap_or((operations, problem, log));
                (operations, problem, FEWEST, log)
            }
        };
        let names = Names::of(&log);
        let problem = names.in_text(&problem);
        let history = names.script::<M>(&format!("seed {seed}: {problem}"), &log);
        Failure { seed, operations, problem, about: about.to_owned(), history }
    }

    /// A history of the same seed, with fewer operations, that breaks a rule: for what takes the clients, the gate
    /// or the network to show.
    fn fewest(&mut self, seed: u64, operations: u64) -> Option<(u64, Broken, Vec<Logged>)> {
        let fewer = (0..u64::BITS).map(|power| 1_u64 << power).take_while(|fewer| *fewer < operations);
        fewer.into_iter().find_map(|fewer| {
            let History { result, log, .. } = self.history(seed, fewer);
            Some((fewer, result.err()?, log))
        })
    }
}

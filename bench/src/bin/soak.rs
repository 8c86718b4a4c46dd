//! Runs histories for as long as one likes, and counts what happened in them.
//!
//! `cargo run --release -p session-bench --bin soak -- FIRST COUNT [counter]` runs the seeds from FIRST on, COUNT of
//! them, or as many as fit a COUNT like `30min`; without arguments, ten thousand from 0. The machine is an exchange
//! that uses every part of the framework, or the smallest counter. A run is a function of its seed, so a range of seeds
//! is a figure that anybody can repeat. It ends with status 1 at the first broken rule, or else with the rate by the
//! clock and, since a run has one thread, by the time it had of one core.

use cpu_time::ProcessTime;
use indicatif::{ProgressBar, ProgressStyle};
use session_bench::{Counter, CounterCommand, Exchange, exchange_command};
use session_runtime::StateMachine;
use session_runtime::testing::{Check, Dice, Tally};
use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// When a run ends.
#[derive(Clone, Copy)]
enum Until {
    Count(u64),
    Time(Duration),
}

impl Until {
    fn read(word: &str) -> Result<Self, Box<dyn Error>> {
        Ok(match word.strip_suffix("min") {
            Some(minutes) => Self::Time(Duration::from_secs(minutes.parse::<u64>()?.saturating_mul(60))),
            None => Self::Count(word.parse()?),
        })
    }

    fn bar(self) -> Result<ProgressBar, Box<dyn Error>> {
        let (length, template) = match self {
            Self::Count(count) => (count, "{wide_bar} {pos}/{len} seeds, {elapsed}, {eta} to go"),
            Self::Time(time) => (time.as_secs(), "{wide_bar} {msg} seeds, {elapsed} of {len} s"),
        };
        Ok(ProgressBar::new(length).with_style(ProgressStyle::with_template(template)?))
    }

    /// Whether to run another seed, after so many.
    fn goes_on(self, done: u64, started: Instant, bar: &ProgressBar) -> bool {
        match self {
            Self::Count(count) => {
                bar.set_position(done);
                done < count
            }
            Self::Time(time) => {
                bar.set_position(started.elapsed().as_secs());
                bar.set_message(done.to_string());
                started.elapsed() < time
            }
        }
    }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next().map_or(Ok(0), |word| word.parse())?;
    let until = arguments.next().map_or(Ok(Until::Count(10_000)), |word| Until::read(&word))?;
    match arguments.next().as_deref() {
        None => soak::<Exchange>(first, until, exchange_command),
        Some("counter") => {
            soak::<Counter>(first, until, |dice| CounterCommand::Add { amount: dice.below(100) })
        }
        Some(other) => Err(format!("there is no machine `{other}`; leave it out, or write `counter`").into()),
    }
}

fn soak<M: StateMachine + Default + 'static>(
    first: u64,
    until: Until,
    commands: impl FnMut(&mut Dice) -> M::Command,
) -> Result<ExitCode, Box<dyn Error>> {
    let mut check = Check::<M, _>::new(commands);
    let bar = until.bar()?;
    let (started, worked) = (Instant::now(), ProcessTime::now());
    let mut tally = Tally::default();
    while until.goes_on(tally.runs, started, &bar) {
        match check.run_seed(first.saturating_add(tally.runs)) {
            Ok(run) => tally += run,
            Err(failure) => {
                bar.abandon();
                println!("{tally}{:>14} violations\n\n{failure}", 1);
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    bar.finish_and_clear();
    let (seconds, of_a_core) = (started.elapsed(), worked.elapsed());
    println!(
        "seeds {first}..{}: {:.0} s, {:.0} s of a core",
        first.saturating_add(tally.runs),
        seconds.as_secs_f64(),
        of_a_core.as_secs_f64()
    );
    println!("{tally}{:>14} violations", 0);
    println!("{:>14.0} operations a second", rate(tally, seconds));
    println!("{:>14.0} operations a second of one core", rate(tally, of_a_core));
    Ok(ExitCode::SUCCESS)
}

#[allow(clippy::cast_precision_loss)] // a figure for people
fn rate(tally: Tally, time: Duration) -> f64 {
    tally.operations as f64 / time.as_secs_f64()
}

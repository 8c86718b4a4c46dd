//! Runs histories for as long as one likes, and counts what happened in them.
//!
//! `cargo run --release -p session-bench --bin soak -- FIRST COUNT [counter]` runs the seeds from FIRST on, COUNT of
//! them; without arguments, ten thousand from 0. The machine is an exchange that uses every part of the framework, or
//! the smallest counter. A run is a function of its seed, so a range of seeds is a figure that anybody can repeat. It
//! ends with status 1 at the first broken rule.

use indicatif::{ProgressBar, ProgressStyle};
use session_bench::{Counter, CounterCommand, Exchange, exchange_command};
use session_runtime::StateMachine;
use session_runtime::testing::{Check, Dice, Tally};
use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |otherwise| arguments.next().map_or(Ok(otherwise), |argument| argument.parse::<u64>());
    let (first, count) = (number(0)?, number(10_000)?);
    match arguments.next().as_deref() {
        None => soak::<Exchange>(first, count, exchange_command),
        Some("counter") => {
            soak::<Counter>(first, count, |dice| CounterCommand::Add { amount: dice.below(100) })
        }
        Some(other) => Err(format!("there is no machine `{other}`; leave it out, or write `counter`").into()),
    }
}

fn soak<M: StateMachine + Default + 'static>(
    first: u64,
    count: u64,
    commands: impl FnMut(&mut Dice) -> M::Command,
) -> Result<ExitCode, Box<dyn Error>> {
    let mut check = Check::<M, _>::new(commands);
    let bar = ProgressBar::new(count)
        .with_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} seeds, {elapsed}, {eta} to go")?);
    let started = Instant::now();
    let mut tally = Tally::default();
    for seed in first..first.saturating_add(count) {
        match check.run_seed(seed) {
            Ok(run) => tally += run,
            Err(failure) => {
                bar.abandon();
                println!("{tally}{:>14} violations\n\n{failure}", 1);
                return Ok(ExitCode::FAILURE);
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let seconds = started.elapsed().as_secs_f64();
    println!("seeds {first}..{}: {seconds:.0} s", first.saturating_add(count));
    println!("{tally}{:>14} violations", 0);
    #[allow(clippy::cast_precision_loss)] // a figure for people
    let rate = tally.operations as f64 / seconds;
    println!("{rate:>14.0} operations a second");
    Ok(ExitCode::SUCCESS)
}

//! Runs histories for as long as one likes, and counts what happened in them.
//!
//! `cargo run --release -p session-bench --bin soak -- FIRST COUNT` runs the seeds from FIRST on, COUNT of them;
//! without arguments, ten thousand from 0. A run is a function of its seed, so a range of seeds is a figure that
//! anybody can repeat. It ends with status 1 at the first broken rule.

use indicatif::{ProgressBar, ProgressStyle};
use session_bench::{Exchange, exchange_command};
use session_runtime::testing::{Check, Tally};
use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let first = arguments.next().transpose()?.unwrap_or(0);
    let count = arguments.next().transpose()?.unwrap_or(10_000);
    let mut check = Check::<Exchange, _>::new(exchange_command);
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

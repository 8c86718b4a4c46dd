//! Holds a load: a million sessions under everything at once, every output checked, and the memory back at the end.
//!
//! `cargo run --release -p session-bench --bin load -- [SESSIONS [ENTRIES [SEED]]]`; without arguments a million
//! sessions and twenty million entries of seed 0. A run is a function of its arguments. It ends with a panic at the
//! first output that is not what it must be, and with status 1 if memory is not given back.

use indicatif::{ProgressBar, ProgressStyle};
use peak_alloc::PeakAlloc;
use session_bench::load::{Plan, run};
use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// How much more heap there may be at the end than at the start: the empty machine, and the program's own.
const TOLERANCE: usize = 1 << 20;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |otherwise| arguments.next().map_or(Ok(otherwise), |argument| argument.parse::<u64>());
    let (sessions, entries, seed) = (number(1_000_000)?, number(20_000_000)?, number(0)?);
    let plan = Plan { sessions: usize::try_from(sessions)?, entries, snapshots: 8, seed };
    let bar = ProgressBar::new(entries)
        .with_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} entries, {elapsed}, {eta} to go")?);
    let started = Instant::now();
    let figures = run(
        &plan,
        || HEAP.current_usage(),
        |done| {
            if done.is_multiple_of(10_000) {
                bar.set_position(done);
            }
        },
    );
    bar.finish_and_clear();
    println!("{plan:?}: {:.0} s", started.elapsed().as_secs_f64());
    print!("{figures}");
    let left = figures.left();
    println!("{left:>14} bytes more than before, of {TOLERANCE} that may be");
    Ok(if left <= TOLERANCE { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

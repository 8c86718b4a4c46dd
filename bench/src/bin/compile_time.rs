//! What the macros cost at compile time, against serde's derives alone on the same enum.
//!
//! `cargo run --release -p session-bench --bin compile_time` writes small crates of 50 to 400 variants, builds
//! their dependencies once, then times `cargo check` of each crate by itself, the best of several times. A
//! crate without any enum is timed too and taken off, so that what is compared is the enum and its machine. The
//! time is the processor's where the system tells it, so that a busy machine does not blur it.

use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
const SIZES: [usize; 4] = [50, 100, 200, 400];

/// An enum of so many variants, of every shape in turn.
fn variants(count: usize) -> String {
    (0..count).fold(String::new(), |mut text, number| {
        let _ = match number % 4 {
            0 => writeln!(text, "    Open{number} {{ owner: String, amount: u64 }},"),
            1 => writeln!(text, "    Watch{number}(u64),"),
            2 => writeln!(text, "    Audit{number},"),
            _ => writeln!(text, "    Move{number} {{ from: u64, to: u64, amount: u64 }},"),
        };
        text
    })
}

fn handlers(count: usize) -> String {
    (0..count).fold(String::new(), |mut text, number| {
        let _ = match number % 4 {
            0 => writeln!(text, "    fn open{number}(&mut self, owner: String, amount: u64) -> u64 {{ self.total = self.total.wrapping_add(amount); owner.len() as u64 }}"),
            1 => writeln!(text, "    fn watch{number}(&mut self, account: u64) -> Option<u64> {{ Some(account) }}"),
            2 => writeln!(text, "    fn audit{number}(&self) -> u64 {{ self.total }}"),
            _ => writeln!(text, "    fn move{number}(&mut self, from: u64, to: u64, amount: u64) -> u64 {{ self.total = from ^ to ^ amount; self.total }}"),
        };
        text
    })
}

fn with_serde(count: usize) -> String {
    format!(
        "#[derive(serde::Serialize, serde::Deserialize)]\npub enum ShopCommand {{\n{}}}\n",
        variants(count)
    )
}

fn with_machine(count: usize) -> String {
    format!(
        "use session_runtime::{{State, state_machine}};\n\n#[state_machine]\npub enum ShopCommand {{\n{}}}\n\n\
         #[derive(Default, State)]\npub struct Shop {{ total: u64 }}\n\n\
         #[state_machine(command = ShopCommand)]\nimpl Shop {{\n{}}}\n",
        variants(count),
        handlers(count)
    )
}

struct Workplace {
    folder: PathBuf,
}

impl Workplace {
    /// A package of its own, beside the build's other output.
    fn new() -> Result<Self, Box<dyn Error>> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
        let folder = std::env::temp_dir().join(format!("session-compile-time-{}", std::process::id()));
        fs::create_dir_all(folder.join("src"))?;
        fs::copy(root.join("rust-toolchain.toml"), folder.join("rust-toolchain.toml"))?;
        fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock"))?;
        fs::write(
            folder.join("Cargo.toml"),
            format!(
                "[package]\nname = \"measured\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
                 [dependencies]\nserde = {{ version = \"1\", features = [\"derive\"] }}\n\
                 session-runtime = {{ path = \"{}\" }}\n",
                root.join("session-runtime").display()
            ),
        )?;
        Ok(Self { folder })
    }

    /// What the crate alone takes, at best.
    fn check(&self, source: &str) -> Result<Duration, Box<dyn Error>> {
        let mut best = Duration::MAX;
        for round in 0..ROUNDS {
            fs::write(self.folder.join("src/lib.rs"), format!("// round {round}\n{source}"))?;
            let (started, used) = (Instant::now(), used_by_children());
            let output = Command::new(env!("CARGO"))
                .args(["check", "--quiet"])
                .env("CARGO_INCREMENTAL", "0")
                .env("CARGO_TARGET_DIR", self.folder.join("target"))
                .current_dir(&self.folder)
                .output()?;
            let took = match (used, used_by_children()) {
                (Some(before), Some(after)) => after.saturating_sub(before),
                _ => started.elapsed(),
            };
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
            }
            best = best.min(took);
        }
        Ok(best)
    }
}

/// The processor's time of all processes that were waited for, as Linux counts it: in hundredths of a second.
fn used_by_children() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks = fields.split_whitespace().skip(13).take(2).map(str::parse::<u64>);
    Some(Duration::from_millis(ticks.sum::<Result<u64, _>>().ok()?.checked_mul(10)?))
}

impl Drop for Workplace {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.folder));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let workplace = Workplace::new()?;
    workplace.check(&with_machine(1))?;
    let empty = workplace.check("")?;
    println!(
        "milliseconds of `cargo check`, best of {ROUNDS}; {:.0} for an empty crate taken off:",
        ms(empty)
    );
    println!("variants  serde alone  whole machine  ratio");
    for size in SIZES {
        let serde = ms(workplace.check(&with_serde(size))?.saturating_sub(empty));
        let machine = ms(workplace.check(&with_machine(size))?.saturating_sub(empty));
        let aim = if size == 100 { "  (aim: at most 2)" } else { "" };
        println!("{size:>8}  {serde:>11.0}  {machine:>13.0}  {:>5.2}{aim}", machine / serde);
    }
    Ok(())
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

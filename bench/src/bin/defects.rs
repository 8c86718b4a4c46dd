//! Plants the defects that systems of this kind have had, one at a time, and says which test catches each.
//!
//! `cargo run --release -p session-bench --bin defects [NAME]` copies the workspace to a temporary folder, applies
//! one patch of `session-runtime/tests/defects` after the other (or those whose name contains NAME) and runs the
//! test that the patch names, with debug assertions off: it is the test that must see the defect. It ends with
//! status 1 if a defect survives, if a patch no longer applies or builds, or if the test fails without any.
//!
//! A patch starts with lines of `#`: the defect in plain words, which system had it, and
//! `# caught by: TARGET TEST`. Of what the simulator catches, the first seed that shows the defect is printed, and
//! the entries of the log that is left of its history.

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

const PATCHES: &str = "session-runtime/tests/defects";
/// What is not copied.
const LEFT_OUT: [&str; 2] = ["target", ".git"];

/// A patch, and the test that must fail with it.
struct Defect {
    name: String,
    patch: PathBuf,
    /// The files it changes, from the workspace's root.
    files: Vec<PathBuf>,
    target: String,
    test: String,
}

impl Defect {
    fn read(patch: PathBuf) -> Outcome<Self> {
        let lines = fs::read_to_string(&patch)?;
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let test = lines.lines().find_map(|line| line.strip_prefix("# caught by: "));
        let (target, test) = test
            .and_then(|words| words.split_once(' '))
            .ok_or_else(|| format!("{name} does not say which test catches it"))?;
        let files = lines.lines().filter_map(|line| line.strip_prefix("+++ b/")).map(PathBuf::from).collect();
        Ok(Self { name, files, target: target.to_owned(), test: test.to_owned(), patch })
    }
}

/// All patches whose name contains a word, in order.
fn defects(folder: &Path, word: &str) -> Outcome<Vec<Defect>> {
    let mut patches: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    patches.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
    patches.sort();
    let all: Vec<Defect> = patches.into_iter().map(Defect::read).collect::<Outcome<_>>()?;
    Ok(all.into_iter().filter(|defect| defect.name.contains(word)).collect())
}

fn copy(from: &Path, to: &Path) -> Outcome<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (name, path) = (entry.file_name(), entry.path());
        if LEFT_OUT.iter().any(|left_out| name == *left_out) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            copy(&path, &to.join(name))?;
        } else {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}

/// A copy of the workspace in which defects are planted.
struct Field {
    root: PathBuf,
    workspace: PathBuf,
    target: PathBuf,
}

/// What became of a defect.
enum End {
    Caught {
        took: Duration,
        said: String,
    },
    Survived,
    /// The patch does not apply, or what it makes does not build.
    Rotten(String),
}

impl Field {
    fn new() -> Outcome<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
        let place = std::env::temp_dir().join("session-defects");
        let (workspace, target) = (place.join("workspace"), place.join("target"));
        if workspace.exists() {
            fs::remove_dir_all(&workspace)?;
        }
        copy(&root, &workspace)?;
        Ok(Self { root, workspace, target })
    }

    fn cargo_test(&self, target: &str, rest: &[&str]) -> Outcome<Output> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(&self.workspace);
        cargo.args(["test", "-p", "session-runtime", "--features", "testing", "--test", target]).args(rest);
        cargo.env("CARGO_TARGET_DIR", &self.target).env("RUST_BACKTRACE", "0");
        cargo.env("CARGO_PROFILE_DEV_DEBUG_ASSERTIONS", "false").env("CARGO_PROFILE_DEV_DEBUG", "0");
        Ok(cargo.output()?)
    }

    /// Runs a test: none if it passes, or how long it took to fail and with which words.
    fn run(&self, target: &str, test: &str) -> Outcome<End> {
        let built = self.cargo_test(target, &["--no-run"])?;
        if !built.status.success() {
            return Ok(End::Rotten(format!("it does not build: {}", String::from_utf8_lossy(&built.stderr))));
        }
        let started = Instant::now();
        let output = self.cargo_test(target, &["--", "--exact", test])?;
        let took = started.elapsed();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if said.contains(&format!("test {test} ... FAILED")) {
            return Ok(End::Caught { took, said });
        }
        if said.contains(&format!("test {test} ... ok")) {
            return Ok(End::Survived);
        }
        Ok(End::Rotten(format!("there is no such test, or it did not end: {said}")))
    }

    fn plant(&self, defect: &Defect) -> Outcome<End> {
        let applied =
            Command::new("git").current_dir(&self.workspace).arg("apply").arg(&defect.patch).output()?;
        if !applied.status.success() {
            return Ok(End::Rotten(String::from_utf8_lossy(&applied.stderr).into_owned()));
        }
        let end = self.run(&defect.target, &defect.test);
        for file in &defect.files {
            fs::copy(self.root.join(file), self.workspace.join(file))?;
        }
        end
    }
}

/// What a failing test said first.
fn first_words(output: &str) -> String {
    let mut lines = output.lines().skip_while(|line| !line.contains(" panicked at "));
    let words = lines.nth(1).unwrap_or_default();
    words.chars().take(110).collect()
}

/// The seed that a failing check of the simulator names, and the entries of its log if that could be made short.
fn seed_and_entries(output: &str, words: &str) -> (String, String) {
    let seed = words.strip_prefix("seed ").and_then(|rest| rest.split(',').next()).unwrap_or_default();
    let is_entry = |line: &&str| {
        line.split_once(" @").is_some_and(|(index, _)| index.chars().all(|digit| digit.is_ascii_digit()))
    };
    let entries = output.lines().filter(is_entry).count();
    let is_short = output.contains("the log, as short as it could be made");
    (seed.to_owned(), if is_short { entries.to_string() } else { String::new() })
}

fn main() -> Outcome<ExitCode> {
    let word = std::env::args().nth(1).unwrap_or_default();
    let field = Field::new()?;
    let defects = defects(&field.root.join(PATCHES), &word)?;
    if defects.is_empty() {
        return Err(format!("no defect is named like `{word}`").into());
    }
    let mut sound = true;
    let mut tests: Vec<(&str, &str)> =
        defects.iter().map(|defect| (&*defect.target, &*defect.test)).collect();
    tests.sort_unstable();
    tests.dedup();
    for (target, test) in tests {
        if !matches!(field.run(target, test)?, End::Survived) {
            println!("{target} {test} does not pass without any defect");
            sound = false;
        }
    }
    println!("| defect | caught by | seed | entries | seconds | in these words |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for defect in &defects {
        let Defect { name, target, test, .. } = defect;
        match field.plant(defect)? {
            End::Caught { took, said } => {
                let (words, seconds) = (first_words(&said), took.as_secs_f64());
                let (seed, entries) = seed_and_entries(&said, &words);
                println!("| {name} | `{target}` `{test}` | {seed} | {entries} | {seconds:.1} | {words} |");
            }
            End::Survived => {
                println!("| {name} | **nothing** | | | | |");
                sound = false;
            }
            End::Rotten(problem) => {
                println!("| {name} | **{}** | | | | |", problem.replace('\n', " "));
                sound = false;
            }
        }
        io::stdout().flush()?;
    }
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

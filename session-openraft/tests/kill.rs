//! A node under load is killed again and again, at moments of chance, and goes on: no acknowledged command is lost, and
//! none is applied twice.
//!
//! `cargo test --release -p session-openraft --test kill -- 300` kills it 300 times; without a number, a few
//! times. The process that is killed is this program again, called with `child` and a directory.
//!
//! Half of the callers are new in each run: what they were told is there afterwards, and at most the one command that
//! was under way besides. The other half write their sessions down before each command and go on with them in the next
//! run: of those every command is applied exactly once, whatever was under way.

#[path = "common/ledger.rs"]
mod ledger;

use ledger::{Ledger, LedgerClient};
use session_openraft::{Config, Node, NodeClient};
use session_runtime::testing::Dice;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

type Failure = Box<dyn Error + Send + Sync>;

/// The callers that save their sessions: 0 to 7, in every run.
const SAVING: u64 = 8;
/// The callers that are new in each run.
const NEW: u64 = 8;
/// Small, so that many kills hit a snapshot or a purge.
const SNAPSHOT_EVERY: u64 = 300;
/// The kills of an ordinary test.
const A_FEW: u64 = 6;

// The process that is killed.

/// Says what the ledger holds, then enters into it until it is killed, and says what was acknowledged.
async fn child(dir: &Path, run: u64) -> Result<(), Failure> {
    let config = Config { snapshot_every: SNAPSHOT_EVERY, ..Config::new(dir.join("node")) };
    let node = Node::<Ledger>::open_with(config).await?;
    let (last, wrong) = LedgerClient::new(node.client().await?).report().await?;
    say(&format!("wrong {wrong}"))?;
    for (caller, number) in last {
        say(&format!("holds {caller} {number}"))?;
    }
    let mut saving = Vec::new();
    for caller in 0..SAVING {
        let file = dir.join(format!("caller-{caller}"));
        let (client, next) = go_on(&node, &file, caller).await?;
        saving.push((client, file, caller, next));
    }
    // Before anything is entered: what follows is not in what the ledger was said to hold.
    say("ready")?;
    let mut callers = tokio::task::JoinSet::new();
    for (client, file, caller, next) in saving {
        callers.spawn(async move { enter_saved(&client, &file, caller, next).await });
    }
    for caller in SAVING + run * NEW..SAVING + (run + 1) * NEW {
        let ledger = LedgerClient::new(node.client().await?);
        callers.spawn(async move {
            for number in 1.. {
                ledger.enter(caller, number).await?;
                say(&format!("entered {caller} {number}"))?;
            }
            Ok(())
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended??;
    }
    Err("the callers ended before the process was killed".into())
}

/// A caller's session as it was stored, or a new one, and the number that it has to enter next.
async fn go_on(node: &Node<Ledger>, file: &Path, caller: u64) -> Result<(NodeClient<Ledger>, u64), Failure> {
    let stored = match std::fs::read(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((node.client().await?, 1)),
        stored => stored?,
    };
    let (number, session) = stored.split_first_chunk().ok_or("half of a stored caller")?;
    let number = u64::from_le_bytes(*number);
    let client = node.resume(session).await?;
    let Some((_, answer)) = client.recovered().await else {
        // Stored before the number was given to a command: it never went out.
        return Ok((client, number));
    };
    let answer: u64 = answer?.read()?;
    if answer != number {
        return Err(format!("caller {caller} entered {number} and was told {answer}").into());
    }
    say(&format!("recovered {caller} {number}"))?;
    Ok((client, number + 1))
}

/// Enters from a number on, with the session and the number stored before each is sent.
async fn enter_saved(
    client: &NodeClient<Ledger>,
    file: &Path,
    caller: u64,
    next: u64,
) -> Result<(), Failure> {
    for number in next.. {
        let store = |session: &[u8]| replace(file, &[&number.to_le_bytes(), session].concat());
        LedgerClient::new(client.saving(store)).enter(caller, number).await?;
        say(&format!("entered {caller} {number}"))?;
    }
    Ok(())
}

/// Either these bytes or those before, whenever the process is killed.
fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let unfinished = file.with_extension("tmp");
    std::fs::write(&unfinished, bytes)?;
    std::fs::rename(unfinished, file)
}

/// One line in one write, so that a kill leaves no half of one.
fn say(line: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes())?;
    out.flush()?;
    Ok(())
}

// The process that kills it.

/// What the parent knows.
#[derive(Default)]
struct Known {
    /// The last acknowledged number of each caller.
    acknowledged: BTreeMap<u64, u64>,
    /// Kills before the node had opened its directory and all callers gone on.
    while_opening: u64,
    /// Commands under way at a kill that had been applied by then, and were not applied again.
    applied_before: u64,
    /// Commands under way at a kill that were applied when they were sent again.
    applied_after: u64,
}

/// What one child said of the ledger it found.
#[derive(Default)]
struct Heard {
    wrong: u64,
    holds: BTreeMap<u64, u64>,
    ready: bool,
}

impl Known {
    /// The ledger holds all that was acknowledged, and at most one more a caller: the one under way.
    fn check(&self, heard: &Heard) {
        assert_eq!(heard.wrong, 0, "commands were applied twice or out of turn");
        let callers: BTreeSet<_> = self.acknowledged.keys().chain(heard.holds.keys()).collect();
        for caller in callers {
            let told = self.acknowledged.get(caller).copied().unwrap_or(0);
            let held = heard.holds.get(caller).copied().unwrap_or(0);
            assert!(held >= told, "caller {caller}: {told} was acknowledged and {held} is there");
            assert!(held <= told + 1, "caller {caller}: {held} is there, and {told} was acknowledged");
        }
    }

    /// Takes one line of the child.
    fn hear(&mut self, line: &str, heard: &mut Heard) -> Result<(), Failure> {
        let mut words = line.split(' ');
        let what = words.next().unwrap_or_default();
        let numbers = words.map(str::parse).collect::<Result<Vec<u64>, _>>()?;
        match (what, numbers.as_slice()) {
            ("wrong", [number]) => heard.wrong = *number,
            ("holds", [caller, number]) => drop(heard.holds.insert(*caller, *number)),
            ("entered", [caller, number]) => drop(self.acknowledged.insert(*caller, *number)),
            ("recovered", [caller, number]) => self.recovered(*caller, *number, heard),
            ("ready", []) => {
                self.check(heard);
                heard.ready = true;
            }
            _ => return Err(format!("the child said {line:?}").into()),
        }
        Ok(())
    }

    /// The answer to a command that was under way at a kill has come, after what the ledger holds was said.
    fn recovered(&mut self, caller: u64, number: u64, heard: &mut Heard) {
        let held = heard.holds.entry(caller).or_default();
        if *held == number {
            self.applied_before += 1;
        } else {
            assert_eq!(*held + 1, number, "caller {caller}: {held} was there before {number}");
            self.applied_after += 1;
            *held = number;
        }
        self.acknowledged.insert(caller, number);
    }

    /// Starts the child, kills it at a moment of chance, and hears all that it said.
    fn kill_once(&mut self, dir: &Path, run: u64, wait: Wait) -> Result<Heard, Failure> {
        let mut child = start(dir, run)?;
        let out = child.stdout.take().ok_or("no output")?;
        let (ready, is_ready) = channel();
        let lines = std::thread::spawn(move || lines(out, &ready));
        match wait {
            Wait::FromStart(time) => std::thread::sleep(time),
            Wait::FromReady(time) => {
                is_ready.recv_timeout(Duration::from_mins(2)).map_err(|_| "the child does not get ready")?;
                std::thread::sleep(time);
            }
        }
        // SIGKILL: nothing in the process runs any more.
        child.kill()?;
        let status = child.wait()?;
        if cfg!(unix) && status.code().is_some() {
            return Err(format!("the child ended before it was killed, with {status}").into());
        }
        let mut heard = Heard::default();
        for line in lines.join().map_err(|_| "the reader panicked")? {
            self.hear(&line, &mut heard)?;
        }
        self.while_opening += u64::from(!heard.ready);
        Ok(heard)
    }
}

/// When the child is killed.
#[derive(Clone, Copy)]
enum Wait {
    FromStart(Duration),
    FromReady(Duration),
}

impl Wait {
    fn draw(dice: &mut Dice) -> Self {
        if dice.percent(25) {
            // A start takes a few milliseconds.
            Self::FromStart(Duration::from_micros(dice.below(12_000)))
        } else {
            Self::FromReady(Duration::from_micros(dice.below(250_000)))
        }
    }
}

fn start(dir: &Path, run: u64) -> Result<Child, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("child").arg(dir).arg(run.to_string()).stdout(Stdio::piped());
    Ok(command.spawn()?)
}

/// All whole lines until the child is gone.
fn lines(out: ChildStdout, ready: &Sender<()>) -> Vec<String> {
    let mut lines = Vec::new();
    for line in BufReader::new(out).lines().map_while(Result::ok) {
        if line == "ready" {
            let _ = ready.send(());
        }
        lines.push(line);
    }
    lines
}

fn parent(kills: u64) -> Result<(), Failure> {
    let place = tempfile::tempdir()?;
    let seed = u64::from(std::process::id());
    let dice = &mut Dice::new(seed);
    let mut known = Known::default();
    let started = Instant::now();
    for run in 0..kills {
        let wait = Wait::draw(dice);
        known
            .kill_once(place.path(), run, wait)
            .map_err(|error| format!("run {run}, seed {seed}: {error}"))?;
    }
    let took = started.elapsed();
    let acknowledged: u64 = known.acknowledged.values().sum();
    // Once more, to see what the last kill left.
    let heard = known.kill_once(place.path(), kills, Wait::FromReady(Duration::ZERO))?;
    println!(
        "killed {kills} times in {:.0} s, {} of them while it opened: {acknowledged} commands acknowledged, {} in the \
         ledger, none lost, none twice; of those under way at a kill and sent again, {} had been applied before it \
         and {} had not",
        took.as_secs_f64(),
        known.while_opening,
        heard.holds.values().sum::<u64>(),
        known.applied_before,
        known.applied_after
    );
    assert!(acknowledged > kills, "only {acknowledged} commands were acknowledged: this was no load");
    if kills >= 100 {
        assert!(known.while_opening > 0, "no kill came while it opened");
        assert!(known.applied_before > 0, "no command was sent again that had been applied");
        assert!(known.applied_after > 0, "no command was sent again that had not been applied");
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["child", dir, run] => {
            tokio::runtime::Runtime::new()?.block_on(child(&PathBuf::from(dir), run.parse()?))
        }
        [kills] if kills.parse::<u64>().is_ok() => parent(kills.parse()?),
        // A list of tests, or a filter that is for others.
        ["--list", ..] => Ok(()),
        [filter, ..] if !filter.starts_with('-') && !"kill".contains(filter) => Ok(()),
        _ => parent(A_FEW),
    }
}

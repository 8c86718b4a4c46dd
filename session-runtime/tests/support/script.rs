//! Plays scenario scripts: log entries in, server actions out. The grammar is in `tests/scripts/README.md`.

use crate::support::{
    Desk, DeskCommand, DeskQuery, Notice, OldDesk, Refused, ack, alive, configure, create_with, expire,
    keep_alive, request_with, retry, upgrade,
};
use session_runtime::{
    ApplyError, Bytes, Command, Entry, Halted, Limits, PendingRequest, Query, QueryError, RaftAction,
    RequestError, RequestId, Response, ServerAction, ServerRequestId, SessionId, SessionStateMachine,
    Snapshot, SnapshotError, Status, Timestamp, codec,
};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What stands before every line that comes out.
const OUT: &str = "  -> ";

/// How often the machine is replaced by the one its own snapshot restores to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Restoring {
    /// Only where the script says so.
    AsWritten,
    /// Before every line. Nothing that comes out may change by it.
    BeforeEveryLine,
}

/// A script that was played.
#[derive(Debug)]
pub(crate) struct Played {
    /// The script, with what came out instead of what was expected.
    pub(crate) text: String,
    /// One message for each line in whose outcome is not the expected one. Each names file and line.
    pub(crate) differences: Vec<String>,
}

/// One line in, with the lines that should come out.
struct Step<'a> {
    line: usize,
    text: &'a str,
    expected: Vec<&'a str>,
}

/// Plays a script. The error is for a script that cannot be read, and names file and line.
pub(crate) fn play(file: &str, text: &str, restoring: Restoring) -> Result<Played, String> {
    let steps = steps(text).map_err(|(line, problem)| format!("{file}:{line}: {problem}"))?;
    let mut run = Run::new();
    let mut outcomes = BTreeMap::new();
    let mut differences = Vec::new();
    for step in &steps {
        let actual = run
            .step(step.text, restoring)
            .map_err(|problem| format!("{file}:{}: {problem}\n    in: {}", step.line, step.text))?;
        if step.expected != actual {
            differences.push(difference(file, step, &actual, restoring));
        }
        outcomes.insert(step.line, actual);
    }
    Ok(Played { text: rewritten(text, &outcomes), differences })
}

/// Takes a script apart, or says in which line it is malformed.
fn steps(text: &str) -> Result<Vec<Step<'_>>, (usize, String)> {
    if !text.starts_with('#') {
        return Err((1, "a script starts with a comment that says what it shows and why".to_owned()));
    }
    let mut steps: Vec<Step<'_>> = Vec::new();
    let mut in_outcome = false;
    for (line, text) in (1..).zip(text.lines()) {
        if text.is_empty() || text.starts_with('#') {
            in_outcome = false;
        } else if let Some(out) = text.strip_prefix(OUT) {
            match steps.last_mut() {
                Some(step) if in_outcome => step.expected.push(out),
                _ => {
                    return Err((
                        line,
                        "what comes out must stand right below the line that goes in".to_owned(),
                    ));
                }
            }
        } else if text.trim() != text {
            let problem = "expected a line in, which starts in the first column, or a line out, which starts";
            return Err((line, format!("{problem} with `{OUT}`; neither has blanks at its end")));
        } else {
            steps.push(Step { line, text, expected: Vec::new() });
            in_outcome = true;
        }
    }
    if steps.is_empty() {
        return Err((1, "the script does nothing".to_owned()));
    }
    Ok(steps)
}

fn difference(file: &str, step: &Step<'_>, actual: &[String], restoring: Restoring) -> String {
    let mut message = format!("{file}:{}: `{}`", step.line, step.text);
    if restoring == Restoring::BeforeEveryLine {
        message += "\n  with the machine restored from its snapshot before every line";
    }
    let lines = |title: &str, lines: &[&str]| {
        let lines: Vec<String> = lines.iter().map(|line| format!("\n  {OUT}{line}")).collect();
        format!("\n  {title}:{}", if_empty(lines.concat(), "\n    (nothing is written)"))
    };
    let actual: Vec<&str> = actual.iter().map(String::as_str).collect();
    message + &lines("the script says", &step.expected) + &lines("the machine says", &actual)
}

/// The script with other outcomes; comments and lines in stay as they are.
fn rewritten(text: &str, outcomes: &BTreeMap<usize, Vec<String>>) -> String {
    let mut result = String::new();
    for (line, text) in (1..).zip(text.lines()) {
        if !text.starts_with(OUT) {
            result += text;
            result += "\n";
        }
        for out in outcomes.get(&line).into_iter().flatten() {
            let _ = writeln!(result, "{OUT}{out}");
        }
    }
    result
}

/// The words of a line, taken one after the other.
struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text.trim() }
    }

    /// The next word or punctuation mark; empty at the end.
    fn peek(&self) -> &'a str {
        let is_mark = |c: char| "():,".contains(c);
        let end = match self.rest.find(|c: char| c.is_whitespace() || is_mark(c)) {
            Some(0) => 1,
            Some(end) => end,
            None => self.rest.len(),
        };
        self.rest.split_at(end).0
    }

    fn next(&mut self, expected: &str) -> Result<&'a str, String> {
        let word = self.peek();
        if word.is_empty() {
            return Err(format!("the line ends where {expected} is expected"));
        }
        self.rest = self.rest.split_at(word.len()).1.trim_start();
        Ok(word)
    }

    /// Takes the next word if it is this one.
    fn take(&mut self, word: &str) -> bool {
        let found = self.peek() == word;
        if found {
            self.rest = self.rest.split_at(word.len()).1.trim_start();
        }
        found
    }

    fn expect(&mut self, word: &str) -> Result<(), String> {
        match self.next(&format!("`{word}`"))? {
            found if found == word => Ok(()),
            found => Err(format!("expected `{word}`, found `{found}`")),
        }
    }

    fn number<T: std::str::FromStr>(&mut self, what: &str) -> Result<T, String> {
        let word = self.next(what)?;
        word.parse().map_err(|_| format!("expected {what}, a number in range, found `{word}`"))
    }

    /// All that is left, as a text.
    fn text(&mut self) -> Result<String, String> {
        if self.rest.is_empty() {
            return Err("the line ends where a text is expected".to_owned());
        }
        Ok(std::mem::take(&mut self.rest).to_owned())
    }

    fn end(&self) -> Result<(), String> {
        match self.rest {
            "" => Ok(()),
            rest => Err(format!("expected the end of the line, found `{rest}`")),
        }
    }
}

fn unknown<T>(found: &str, expected: &str) -> Result<T, String> {
    Err(format!("`{found}` is unknown; expected one of: {expected}"))
}

/// Which release of the machine a replica runs.
#[derive(Clone, Copy, PartialEq)]
enum Build {
    Old,
    New,
}

impl Build {
    fn read(words: &mut Words<'_>) -> Result<Self, String> {
        match words.next("a build, `old` or `new`")? {
            "old" => Ok(Self::Old),
            "new" => Ok(Self::New),
            found => unknown(found, "old, new"),
        }
    }
}

enum Machine {
    Old(SessionStateMachine<OldDesk>),
    New(SessionStateMachine<Desk>),
}

/// The same for either build.
macro_rules! with {
    ($machine:expr, $name:ident => $body:expr) => {
        match $machine {
            Machine::Old($name) => $body,
            Machine::New($name) => $body,
        }
    };
}

impl Machine {
    fn new(build: Build) -> Self {
        match build {
            Build::Old => Self::Old(SessionStateMachine::new(Desk::default())),
            Build::New => Self::New(SessionStateMachine::new(Desk::default())),
        }
    }

    /// The machine of a snapshot's bytes. The snapshot it gives must have the same bytes.
    fn restore(build: Build, bytes: &[u8]) -> Result<Self, SnapshotError> {
        let snapshot = Snapshot::from_bytes(bytes)?;
        let machine = match build {
            Build::Old => Self::Old(SessionStateMachine::restore(&snapshot)?),
            Build::New => Self::New(SessionStateMachine::restore(&snapshot)?),
        };
        assert!(
            machine.snapshot().as_deref() == Ok(bytes),
            "the snapshot of a restored machine has other bytes than the one it was restored from"
        );
        Ok(machine)
    }

    /// The bytes of a snapshot, or the words for why there is none.
    fn snapshot(&self) -> Result<Vec<u8>, String> {
        let snapshot = with!(self, machine => machine.snapshot()).map_err(|error| apply_error(&error))?;
        snapshot.to_bytes().map_err(|error| snapshot_error(&error))
    }

    /// Applies an entry, which passes through its byte form.
    fn apply(&mut self, entry: &LogEntry) -> Result<Vec<ServerAction>, ApplyError> {
        let Entry { time, action } = Entry::decode(&entry.bytes).expect("an entry can be read");
        if entry.skip {
            return with!(self, machine => machine.skip(entry.index, time, action));
        }
        let before = ServerAction::SessionCreated { session: SessionId(0) };
        let mut out = vec![before.clone()];
        let result = with!(self, machine => machine.apply_into(entry.index, time, action, &mut out));
        assert_eq!(out.first(), Some(&before), "what the buffer held before is gone");
        assert!(result.is_ok() || out.len() == 1, "an error left something in the buffer");
        result.map(|()| out.split_off(1))
    }

    fn last_applied(&self) -> u64 {
        with!(self, machine => machine.last_applied())
    }
}

/// One entry of the log.
#[derive(Clone)]
struct LogEntry {
    index: u64,
    skip: bool,
    bytes: Bytes,
}

impl LogEntry {
    fn action(&self) -> RaftAction {
        Entry::decode(&self.bytes).expect("an entry can be read").action
    }
}

struct Replica {
    label: String,
    build: Build,
    machine: Machine,
    snapshot: Option<Vec<u8>>,
    /// What was applied since the snapshot.
    log: Vec<LogEntry>,
    /// The entry that needs a newer build, and what came behind it.
    waiting: Vec<LogEntry>,
}

impl Replica {
    fn new(label: &str, build: Build) -> Self {
        Self {
            label: label.to_owned(),
            build,
            machine: Machine::new(build),
            snapshot: None,
            log: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// The machine that the last snapshot, or nothing, gives.
    fn last_restored(&self) -> Machine {
        match &self.snapshot {
            None => Machine::new(self.build),
            Some(bytes) => Machine::restore(self.build, bytes).expect("the replica's own snapshot restores"),
        }
    }
}

/// A script that is being played.
struct Run {
    replicas: Vec<Replica>,
    /// Whether a line that does something has been played.
    started: bool,
    drawn: BTreeMap<String, SessionId>,
    names: BTreeMap<SessionId, String>,
    /// Which command a response answers, so that it can be decoded.
    answered: BTreeMap<(SessionId, RequestId), DeskCommand>,
    /// What came out at each index, for replicas that get there later.
    said: BTreeMap<u64, Vec<String>>,
}

impl Run {
    fn new() -> Self {
        Self {
            replicas: vec![Replica::new("replica", Build::New)],
            started: false,
            drawn: BTreeMap::new(),
            names: BTreeMap::new(),
            answered: BTreeMap::new(),
            said: BTreeMap::new(),
        }
    }

    /// Plays one line in and returns the lines that come out.
    fn step(&mut self, text: &str, restoring: Restoring) -> Result<Vec<String>, String> {
        if restoring == Restoring::BeforeEveryLine {
            for replica in &mut self.replicas {
                // A halted machine has no snapshot.
                if let Ok(bytes) = replica.machine.snapshot() {
                    replica.machine =
                        Machine::restore(replica.build, &bytes).map_err(|error| snapshot_error(&error))?;
                }
            }
        }
        let mut words = Words::new(text);
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            self.started = true;
            return self.entries(&mut words);
        }
        let out = match words.next("a word")? {
            "replicas" => {
                self.replicas(&mut words)?;
                return Ok(Vec::new());
            }
            "draw" => {
                self.draw(&mut words)?;
                return Ok(Vec::new());
            }
            "show" => self.show(&mut words)?,
            "query" => self.query(&mut words)?,
            "snapshot" => self.snapshot(),
            "restore" => self.restore()?,
            "restart" => self.restart()?,
            "rebuild" => self.rebuild(&mut words)?,
            found => {
                let expected =
                    "a log entry (INDEX @TIME ACTION), replicas, draw, show, query, snapshot, restore";
                return unknown(found, &format!("{expected}, restart, rebuild"));
            }
        };
        words.end()?;
        self.started = true;
        Ok(self.labelled(out))
    }

    /// One outcome if all replicas agree, else each one's, with its name.
    fn labelled(&self, mut outs: Vec<Vec<String>>) -> Vec<String> {
        if outs.iter().all(|out| *out == outs[0]) {
            return outs.swap_remove(0);
        }
        let label = |(replica, out): (&Replica, Vec<String>)| {
            let label = replica.label.clone();
            out.into_iter().map(move |line| format!("{label}: {line}"))
        };
        self.replicas.iter().zip(outs).flat_map(label).collect()
    }

    /// `replicas one=old two=new`
    fn replicas(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        if self.started {
            return Err("`replicas` must stand before everything else".to_owned());
        }
        self.replicas.clear();
        while !words.rest.is_empty() {
            let word = words.next("a replica")?;
            let (label, build) = word.split_once('=').ok_or("expected NAME=BUILD, as in `one=old`")?;
            let build = Build::read(&mut Words::new(build))?;
            self.replicas.push(Replica::new(label, build));
        }
        if self.replicas.is_empty() {
            return Err("expected at least one NAME=BUILD, as in `one=old`".to_owned());
        }
        Ok(())
    }

    /// `draw alice [at POSITION]`
    fn draw(&mut self, words: &mut Words<'_>) -> Result<(), String> {
        let name = words.next("a session's name")?;
        let position = if words.take("at") { words.number("a log position")? } else { self.last_applied() };
        words.end()?;
        if self.drawn.contains_key(name) {
            return Err(format!("`{name}` has an id already"));
        }
        self.draw_at(name, position);
        Ok(())
    }

    /// The random half counts, so that ids of one position sort in the order of drawing.
    fn draw_at(&mut self, name: &str, position: u64) -> SessionId {
        let id = SessionId::draw(position, self.drawn.len() as u64 + 1);
        self.drawn.insert(name.to_owned(), id);
        self.names.insert(id, name.to_owned());
        id
    }

    fn last_applied(&self) -> u64 {
        self.replicas.iter().map(|replica| replica.machine.last_applied()).max().unwrap_or(0)
    }

    fn session(&self, words: &mut Words<'_>) -> Result<SessionId, String> {
        let name = words.next("a session's name")?;
        let known = || self.drawn.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        self.drawn.get(name).copied().ok_or_else(|| {
            format!("no session `{name}` was created or drawn; known are: {}", if_empty(known(), "none"))
        })
    }

    fn name(&self, session: SessionId) -> String {
        self.names.get(&session).map_or_else(|| format!("{session:?}"), Clone::clone)
    }

    /// `INDEX @TIME ACTION`, or `FIRST..LAST @TIME ACTION` with `#` for the index.
    fn entries(&mut self, words: &mut Words<'_>) -> Result<Vec<String>, String> {
        let range = words.next("an index")?;
        let (first, last) = range.split_once("..").unwrap_or((range, range));
        let index =
            |word: &str| word.parse::<u64>().map_err(|_| format!("expected an index, found `{word}`"));
        let (first, last) = (index(first)?, index(last)?);
        if first > last {
            return Err(format!("expected a range that goes up, found `{range}`"));
        }
        let time = words.next("a time, as in `@10`")?;
        let time = time.strip_prefix('@').and_then(|time| time.parse().ok());
        let time = Timestamp(time.ok_or("expected a time, as in `@10`, behind the index")?);
        let mut out = Vec::new();
        for index in first..=last {
            let text = if first == last {
                words.rest.to_owned()
            } else {
                words.rest.replace('#', &index.to_string())
            };
            let mut words = Words::new(&text);
            let skip = words.take("skip");
            let action = self.action(&mut words)?;
            words.end()?;
            let bytes = Entry { time, action }.encode();
            out.append(&mut self.deliver(&LogEntry { index, skip, bytes }));
        }
        Ok(elided(&out))
    }

    /// Gives an entry to all replicas.
    fn deliver(&mut self, entry: &LogEntry) -> Vec<String> {
        let mut outs = Vec::new();
        for at in 0..self.replicas.len() {
            let replica = &mut self.replicas[at];
            match replica.waiting.first() {
                Some(first) if entry.index > first.index => {
                    outs.push(vec![format!("waiting at {} for a newer build", first.index)]);
                    replica.waiting.push(entry.clone());
                }
                _ => outs.push(self.apply(at, entry)),
            }
        }
        if let Some(out) = outs.iter().find(|out| !is_error(out)) {
            self.said.insert(entry.index, out.clone());
        }
        self.labelled(outs)
    }

    /// Gives an entry to one replica, and remembers there what became of it.
    fn apply(&mut self, at: usize, entry: &LogEntry) -> Vec<String> {
        let replica = &mut self.replicas[at];
        let error = match replica.machine.apply(entry) {
            Ok(actions) => {
                replica.log.push(entry.clone());
                return self.say(entry, &actions);
            }
            Err(error) => error,
        };
        if matches!(error, ApplyError::NeedsBuild { .. }) && replica.waiting.is_empty() {
            replica.waiting.push(entry.clone());
        }
        vec![apply_error(&error)]
    }

    /// Gives an entry to one replica that the others had before.
    fn catch_up(&mut self, at: usize, entry: &LogEntry) -> Result<(), String> {
        let out = self.apply(at, entry);
        match self.said.get(&entry.index) {
            Some(said) if *said != out => {
                Err(format!("at index {} came {said:?} before, and now {out:?}", entry.index))
            }
            _ => Ok(()),
        }
    }

    /// `snapshot`
    fn snapshot(&mut self) -> Vec<Vec<String>> {
        let mut taken: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut outs = Vec::new();
        for replica in &mut self.replicas {
            outs.push(vec![match replica.machine.snapshot() {
                Ok(bytes) => {
                    let index = replica.machine.last_applied();
                    let differs = taken.iter().any(|(i, other)| *i == index && *other != bytes);
                    taken.push((index, bytes.clone()));
                    replica.snapshot = Some(bytes);
                    replica.log.clear();
                    format!("taken at {index}{}", if differs { ", its bytes differ" } else { "" })
                }
                Err(error) => error,
            }]);
        }
        outs
    }

    /// `restore`: every replica goes back to its last snapshot; what came later is forgotten.
    fn restore(&mut self) -> Result<Vec<Vec<String>>, String> {
        let mut outs = Vec::new();
        for replica in &mut self.replicas {
            if replica.snapshot.is_none() {
                return Err("expected a `snapshot` before the first `restore`".to_owned());
            }
            replica.machine = replica.last_restored();
            replica.log.clear();
            replica.waiting.clear();
            outs.push(vec![format!("at {}", replica.machine.last_applied())]);
        }
        self.said.clear();
        Ok(outs)
    }

    /// `restart`: every replica starts from its last snapshot, or from nothing, and replays what it applied.
    fn restart(&mut self) -> Result<Vec<Vec<String>>, String> {
        let mut outs = Vec::new();
        for at in 0..self.replicas.len() {
            let replica = &mut self.replicas[at];
            replica.machine = replica.last_restored();
            for entry in std::mem::take(&mut replica.log) {
                self.catch_up(at, &entry)?;
            }
            outs.push(vec![format!("at {}", self.replicas[at].machine.last_applied())]);
        }
        Ok(outs)
    }

    /// `rebuild one as new`: the replica goes on from its own state with another build, and catches up.
    fn rebuild(&mut self, words: &mut Words<'_>) -> Result<Vec<Vec<String>>, String> {
        let label = words.next("a replica's name")?;
        let labels =
            || self.replicas.iter().map(|replica| replica.label.as_str()).collect::<Vec<_>>().join(", ");
        let Some(at) = self.replicas.iter().position(|replica| replica.label == label) else {
            return unknown(label, &labels());
        };
        words.expect("as")?;
        let build = Build::read(words)?;
        let replica = &mut self.replicas[at];
        let restored = replica.machine.snapshot().map(|bytes| Machine::restore(build, &bytes));
        let out = match restored {
            Err(error) => error,
            Ok(Err(error)) => snapshot_error(&error),
            Ok(Ok(machine)) => {
                replica.machine = machine;
                replica.build = build;
                for entry in std::mem::take(&mut replica.waiting) {
                    self.catch_up(at, &entry)?;
                }
                format!("{label} goes on, and is at {}", self.replicas[at].machine.last_applied())
            }
        };
        Ok(vec![vec![out]; self.replicas.len()])
    }

    // What goes in.

    fn action(&mut self, words: &mut Words<'_>) -> Result<RaftAction, String> {
        match words.next("an action")? {
            "create" => self.create(words),
            "request" => {
                let session = self.session(words)?;
                let number = words.number("a request's number")?;
                let (lowest, acked) = lowest_and_acked(words)?;
                words.expect(":")?;
                Ok(request_with(session, number, lowest, acked, self.payload(words)?))
            }
            "ack" => Ok(ack(self.session(words)?, words.number("a server request's number")?)),
            "expire" => Ok(expire(self.session(words)?)),
            "retry" => {
                words.expect("before")?;
                let before = words.number("a time")?;
                let limit = if words.take("limit") { words.number("a limit")? } else { 0 };
                Ok(retry(before, limit))
            }
            "keep-alive" => {
                let mut sessions = Vec::new();
                loop {
                    let session = self.session(words)?;
                    let (lowest, acked) = lowest_and_acked(words)?;
                    sessions.push(alive(session, lowest, acked));
                    if !words.take(",") {
                        return Ok(keep_alive(&sessions));
                    }
                }
            }
            "internal" => {
                words.expect(":")?;
                Ok(RaftAction::InternalCommand { payload: self.payload(words)? })
            }
            "configure" => limits(words),
            "upgrade" => Ok(upgrade(words.number("a version")?)),
            "tick" => Ok(RaftAction::Tick),
            found => {
                let expected =
                    "create, request, ack, expire, retry, keep-alive, internal, configure, upgrade, tick";
                unknown(found, &format!("{expected} (any of them after `skip`)"))
            }
        }
    }

    /// `create alice [with greet, level=3]`. The name is among the capabilities.
    fn create(&mut self, words: &mut Words<'_>) -> Result<RaftAction, String> {
        let name = words.next("a session's name")?;
        let session = match self.drawn.get(name) {
            Some(session) => *session,
            None => self.draw_at(name, self.last_applied()),
        };
        let mut capabilities = vec![("name", name)];
        if words.take("with") {
            loop {
                let word = words.next("a capability, as in `greet` or `level=3`")?;
                capabilities.push(word.split_once('=').unwrap_or((word, "yes")));
                if !words.take(",") {
                    break;
                }
            }
        }
        Ok(create_with(session, &capabilities))
    }

    fn payload(&self, words: &mut Words<'_>) -> Result<Bytes, String> {
        let command = match words.next("a command")? {
            "add" => DeskCommand::Add { amount: words.number("an amount")? },
            "take" => DeskCommand::Take { amount: words.number("an amount")? },
            "notify" => DeskCommand::Notify { to: self.session(words)?, text: words.text()? },
            "shout" => DeskCommand::Shout(words.text()?),
            "note" => DeskCommand::Note,
            "roll" => DeskCommand::Roll,
            "panic" => DeskCommand::Panic,
            "bad-reply" => DeskCommand::BadReply,
            "bad-send" => DeskCommand::BadSend { to: self.session(words)? },
            "spoil" => match words.next("`on` or `off`")? {
                "on" => DeskCommand::Spoil(true),
                "off" => DeskCommand::Spoil(false),
                found => return unknown(found, "on, off"),
            },
            "count" => DeskCommand::Count { word: words.text()? },
            "purge" => DeskCommand::Purge,
            "rush" => DeskCommand::Rush,
            "double" => DeskCommand::Double,
            "hex" => return hex_bytes(words),
            found => {
                let expected =
                    "add, take, notify, shout, note, roll, panic, bad-reply, bad-send, spoil, count";
                return unknown(found, &format!("{expected}, purge, rush, double, hex"));
            }
        };
        Ok(command.encode())
    }

    // What comes out.

    /// What an entry gave, one line each.
    fn say(&mut self, entry: &LogEntry, actions: &[ServerAction]) -> Vec<String> {
        let command = match entry.action() {
            RaftAction::ClientRequest { payload, .. } | RaftAction::InternalCommand { payload } => {
                DeskCommand::decode(&payload).ok()
            }
            _ => None,
        };
        if actions.is_empty() {
            return vec!["nothing".to_owned()];
        }
        actions.iter().map(|action| self.say_one(command.as_ref(), action)).collect()
    }

    fn say_one(&mut self, command: Option<&DeskCommand>, action: &ServerAction) -> String {
        match action {
            ServerAction::SessionCreated { session } => format!("created {}", self.name(*session)),
            ServerAction::SessionRefused { session, reason } => {
                format!("refused {}: {reason:?}", self.name(*session))
            }
            ServerAction::SendResponse { session, request, response } => {
                if let Some(command) = command {
                    self.answered.insert((*session, *request), command.clone());
                }
                format!("response {} {}: {}", self.name(*session), request.0, reply(command, response))
            }
            ServerAction::SendRequestError { session, request, error } => {
                format!("request error {} {}: {error:?}", self.name(*session), request.0)
            }
            ServerAction::SendServerRequest { session, request, payload } => {
                format!("server request {} {}: {}", self.name(*session), request.0, notice(payload))
            }
            ServerAction::SessionClosed { session, reason } => {
                format!("closed {}: {reason:?}", self.name(*session))
            }
            ServerAction::InternalResponse { result } => {
                format!("internal response: {}", answer(command, result))
            }
        }
    }

    /// `show ...`: what the machine lets its owner see.
    fn show(&self, words: &mut Words<'_>) -> Result<Vec<Vec<String>>, String> {
        let what = words.next("what to show")?;
        let mut argument = None;
        match what {
            "pending" => argument = Some((self.session(words)?, 0)),
            "cached" => argument = Some((self.session(words)?, words.number("a request's number")?)),
            "due" => {
                words.expect("before")?;
                argument = Some((SessionId(0), words.number("a time")?));
            }
            _ => {}
        }
        let (session, number) = argument.unwrap_or((SessionId(0), 0));
        self.replicas.iter().map(|replica| self.show_of(replica, what, session, number)).collect()
    }

    fn show_of(
        &self,
        replica: &Replica,
        what: &str,
        session: SessionId,
        number: u64,
    ) -> Result<Vec<String>, String> {
        let machine = &replica.machine;
        let line = match what {
            "sessions" => {
                let names: Vec<String> =
                    with!(machine, machine => machine.sessions().map(|session| self.name(session)).collect());
                match names.as_slice() {
                    [] => "none".to_owned(),
                    [first, .., last] if names.len() > 12 => {
                        format!("{first} to {last}, {} in all", names.len())
                    }
                    _ => names.join(", "),
                }
            }
            "pending" => {
                let pending: Vec<String> = with!(machine, machine => machine.pending_requests(session).map(|request| {
                    let PendingRequest { id, payload, last_sent_at, attempts } = request;
                    let text = notice(&payload);
                    format!("{}: {text}, last sent at {}, attempts {attempts}", id.0, last_sent_at.0)
                }).collect());
                return Ok(lines(pending));
            }
            "cached" => {
                let request = RequestId(number);
                let command = self.answered.get(&(session, request));
                with!(machine, machine => machine.cached_response(session, request))
                    .map_or("none".to_owned(), |result| answer(command, &result))
            }
            "due" => with!(machine, machine => machine.has_pending_requests(Timestamp(number))).to_string(),
            "journal" => {
                let journal = with!(machine, machine => machine.machine().journal.to_vec());
                return Ok(lines(journal));
            }
            "counts" => {
                let counts = with!(machine, machine => machine.machine().counts.clone());
                return Ok(lines(counts.iter().map(|(word, count)| format!("{word}: {count}")).collect()));
            }
            "total" => with!(machine, machine => machine.machine().total).to_string(),
            "time" => with!(machine, machine => machine.time()).0.to_string(),
            "expiry" => with!(machine, machine => machine.expiry_due())
                .map_or("none".to_owned(), |Timestamp(time)| time.to_string()),
            "applied" => machine.last_applied().to_string(),
            "version" => with!(machine, machine => machine.version()).to_string(),
            "limits" => with!(machine, machine => show_limits(machine.limits())),
            "halted" => with!(machine, machine => machine.halted()).map_or("no".to_owned(), halted),
            found => {
                let expected =
                    "sessions, pending, cached, due, journal, counts, total, time, expiry, applied, version";
                return unknown(found, &format!("{expected}, limits, halted"));
            }
        };
        Ok(vec![line])
    }

    /// `query ...`: what a client reads.
    fn query(&self, words: &mut Words<'_>) -> Result<Vec<Vec<String>>, String> {
        let mut query = None;
        let payload = match words.next("a query")? {
            "hex" => hex_bytes(words)?,
            word => {
                let known = match word {
                    "total" => DeskQuery::Total,
                    "journal" => DeskQuery::Journal,
                    "above" => DeskQuery::Above { limit: words.number("a limit")? },
                    "panic" => DeskQuery::Panic,
                    "bad-reply" => DeskQuery::BadReply,
                    found => return unknown(found, "total, journal, above, panic, bad-reply, hex"),
                };
                query.insert(known).encode()
            }
        };
        let ask = |replica: &Replica| match with!(&replica.machine, machine => machine.query(&payload)) {
            Ok(bytes) => match query {
                Some(DeskQuery::Journal) => lines(codec::decode(&bytes).expect("a journal")),
                Some(DeskQuery::Above { .. }) => {
                    vec![codec::decode::<bool>(&bytes).expect("a flag").to_string()]
                }
                _ => {
                    vec![codec::decode::<u64>(&bytes).map_or_else(|_| hex(&bytes), |total| total.to_string())]
                }
            },
            Err(error) => vec![query_error(&error)],
        };
        Ok(self.replicas.iter().map(ask).collect())
    }
}

fn lines(lines: Vec<String>) -> Vec<String> {
    if lines.is_empty() { vec!["none".to_owned()] } else { lines }
}

fn if_empty(text: String, instead: &str) -> String {
    if text.is_empty() { instead.to_owned() } else { text }
}

fn is_error(out: &[String]) -> bool {
    out.iter().any(|line| line.starts_with("error: ") || line.starts_with("waiting "))
}

/// A long run of lines that start with the same word is shown by its ends and its length.
fn elided(out: &[String]) -> Vec<String> {
    let word = |line: &String| line.split(' ').next().map(str::to_owned);
    let mut result = Vec::new();
    for run in out.chunk_by(|one, next| word(one) == word(next)) {
        match run {
            [first, second, middle @ .., last] if middle.len() > 8 => {
                result.extend([
                    first.clone(),
                    second.clone(),
                    format!("({} more)", middle.len()),
                    last.clone(),
                ]);
            }
            _ => result.extend_from_slice(run),
        }
    }
    result
}

/// `(lowest 1, acked 0)`; either may be left out, and so may both.
fn lowest_and_acked(words: &mut Words<'_>) -> Result<(u64, u64), String> {
    let (mut lowest, mut acked) = (1, 0);
    if words.take("(") {
        loop {
            match words.next("`lowest` or `acked`")? {
                "lowest" => lowest = words.number("a request's number")?,
                "acked" => acked = words.number("a server request's number")?,
                found => return unknown(found, "lowest, acked"),
            }
            if !words.take(",") {
                break;
            }
        }
        words.expect(")")?;
    }
    Ok((lowest, acked))
}

/// `configure idle_timeout 100, max_sessions 2, evict_idlest, seed 7`, or `configure no limits`.
fn limits(words: &mut Words<'_>) -> Result<RaftAction, String> {
    let mut limits = Limits::default();
    if words.take("no") {
        words.expect("limits")?;
        return Ok(configure(limits));
    }
    let mut seed = None;
    loop {
        match words.next("a limit")? {
            "idle_timeout" => limits.idle_timeout = Some(words.number("milliseconds")?),
            "max_sessions" => limits.max_sessions = Some(words.number("a number of sessions")?),
            "evict_idlest" => limits.evict_idlest = true,
            "max_cached_bytes" => limits.max_cached_bytes = Some(words.number("a number of bytes")?),
            "max_pending_requests" => {
                limits.max_pending_requests = Some(words.number("a number of requests")?);
            }
            "seed" => seed = Some([words.number("a byte, which is repeated")?; 32]),
            found => {
                let expected =
                    "idle_timeout, max_sessions, evict_idlest, max_cached_bytes, max_pending_requests";
                return unknown(found, &format!("{expected}, seed, or `no limits` alone"));
            }
        }
        if !words.take(",") {
            return Ok(RaftAction::Configure { limits, seed });
        }
    }
}

fn show_limits(limits: &Limits) -> String {
    let Limits { idle_timeout, max_sessions, evict_idlest, max_cached_bytes, max_pending_requests } = limits;
    let mut shown = Vec::new();
    shown.extend(idle_timeout.map(|limit| format!("idle_timeout {limit}")));
    shown.extend(max_sessions.map(|limit| format!("max_sessions {limit}")));
    shown.extend(evict_idlest.then(|| "evict_idlest".to_owned()));
    shown.extend(max_cached_bytes.map(|limit| format!("max_cached_bytes {limit}")));
    shown.extend(max_pending_requests.map(|limit| format!("max_pending_requests {limit}")));
    if_empty(shown.join(", "), "none")
}

fn hex_bytes(words: &mut Words<'_>) -> Result<Bytes, String> {
    let digits = words.next("hex digits")?;
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| match pair {
        [_, _] => u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok(),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = pairs.map(byte).collect();
    bytes.map(Bytes::from).ok_or_else(|| format!("expected pairs of hex digits, found `{digits}`"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("hex ".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

/// An answer, cached or fresh.
fn answer(command: Option<&DeskCommand>, result: &Result<Response, RequestError>) -> String {
    match result {
        Ok(response) => reply(command, response),
        Err(error) => format!("error {error:?}"),
    }
}

/// What a command was answered.
fn reply(command: Option<&DeskCommand>, response: &Response) -> String {
    let Response { status, payload } = response;
    let text = match (status, command) {
        (Status::Accepted, Some(command)) => accepted(command, payload),
        (Status::Rejected, _) => codec::decode(payload).ok().map(|refused| match refused {
            Refused::Insufficient { total } => format!("the total is only {total}"),
        }),
        (Status::Accepted, None) => None,
    };
    let status = match status {
        Status::Accepted => "accepted",
        Status::Rejected => "rejected",
    };
    format!("{status} {}", text.unwrap_or_else(|| hex(payload)))
}

fn accepted(command: &DeskCommand, payload: &[u8]) -> Option<String> {
    match command {
        DeskCommand::Add { .. }
        | DeskCommand::Take { .. }
        | DeskCommand::Shout(_)
        | DeskCommand::Count { .. }
        | DeskCommand::Purge
        | DeskCommand::Double => codec::decode::<u64>(payload).ok().map(|number| number.to_string()),
        DeskCommand::Notify { .. } | DeskCommand::BadSend { .. } => {
            let sent: Option<ServerRequestId> = codec::decode(payload).ok()?;
            Some(sent.map_or("not sent".to_owned(), |id| format!("sent as {}", id.0)))
        }
        DeskCommand::Note => codec::decode::<String>(payload).ok().map(|text| format!("{text:?}")),
        DeskCommand::Roll => {
            let (one, two): (u64, u64) = codec::decode(payload).ok()?;
            Some(format!("{one}, {two}"))
        }
        DeskCommand::Spoil(_) | DeskCommand::Rush => codec::decode(payload).ok().map(|()| "done".to_owned()),
        DeskCommand::Panic | DeskCommand::BadReply => None,
    }
}

fn notice(payload: &[u8]) -> String {
    match codec::decode(payload) {
        Ok(Notice::Text(text)) => format!("{text:?}"),
        _ => hex(payload),
    }
}

fn halted(halted: &Halted) -> String {
    let Halted { index, command, message } = halted;
    format!("halted at {index} in {command}: {message}")
}

fn apply_error(error: &ApplyError) -> String {
    match error {
        ApplyError::OutOfOrder { index, last_applied } => {
            format!("error: out of order, {index} is not above {last_applied}")
        }
        ApplyError::Halted(why) => format!("error: {}", halted(why)),
        ApplyError::NeedsBuild { version } => format!("error: needs build {version}"),
        error => format!("error: {error}"),
    }
}

fn snapshot_error(error: &SnapshotError) -> String {
    match error {
        SnapshotError::NeedsBuild { version } => format!("error: needs build {version}"),
        error => format!("error: {error}"),
    }
}

fn query_error(error: &QueryError) -> String {
    match error {
        QueryError::Halted(why) => format!("error: {}", halted(why)),
        error => format!("error: {error}"),
    }
}

//! A machine's schema in a file under version control, so that a change that would break replicas or logs
//! shows up in a test and not in production.

use super::{Schema, StateField, lines};
use crate::machine::StateMachine;
use std::fs;
use std::path::Path;

/// Writes the file where it is missing or may be changed.
const UPDATE: &str = "UPDATE_SCHEMA";

/// Fails if the machine's schema is not what the file says, unless the change is a safe one. For tests.
///
/// ```no_run
/// # use session_runtime::StateMachine;
/// # fn test<Bank: StateMachine>() {
/// session_runtime::schema::assert_unchanged::<Bank>("schema/bank.txt");
/// # }
/// ```
///
/// The file is made, and after a safe change brought up to date, by running the test with `UPDATE_SCHEMA=1`.
/// Safe are: a command appended with a `since` above the version the file knows, a state field added with
/// such a `since` or with a default, renamed with `was` or listed in `dropped`, and any change of queries. What
/// replicas, logs or snapshots of the machine depend on - the order of the commands, their fields and replies,
/// whether they are internal - never changes.
///
/// # Panics
///
/// If the file is missing or cannot be read, and if the schema was changed in a way that is not safe. The
/// message says what would break and how to do it safely.
#[allow(clippy::panic, clippy::print_stderr)] // a test helper: this is how a test fails, and how it is noted
pub fn assert_unchanged<M: StateMachine>(path: impl AsRef<Path>) {
    let path = path.as_ref();
    let update = std::env::var_os(UPDATE).is_some();
    match check(&M::SCHEMA, path, update) {
        Ok(None) => {}
        Ok(Some(note)) => eprintln!("{note}"),
        Err(problem) => panic!("{problem}"),
    }
}

/// The note to print, or the problem.
fn check(schema: &Schema, path: &Path, update: bool) -> Result<Option<String>, String> {
    let file = path.display();
    let now = schema.file_text();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let write = || match folder.map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, &now)) {
        Ok(()) => Ok(Some(format!("wrote the schema of `{}` to {file}", schema.name))),
        Err(error) => Err(format!("the schema file {file} cannot be written: {error}")),
    };
    let before = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && update => return write(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(format!(
                "there is no schema file {file} yet: run this test once with {UPDATE}=1, and put the file under \
                 version control"
            ));
        }
        Err(error) => return Err(format!("the schema file {file} cannot be read: {error}")),
    };
    if before == now {
        return Ok(None);
    }
    schema.compare_file(&before).map_err(|problem| {
        format!(
            "the schema of `{}` is not what {file} says.\n{problem}\n(If no log and no snapshot of this machine \
             exists anywhere yet, delete {file} and run this test with {UPDATE}=1.)",
            schema.name
        )
    })?;
    if update {
        return write();
    }
    Ok(Some(format!(
        "the schema of `{}` changed in a safe way; run this test with {UPDATE}=1 to bring {file} up to date",
        schema.name
    )))
}

impl Schema {
    /// The whole schema as it stands in its file.
    fn file_text(&self) -> String {
        let head = [format!("machine {} version {}", self.name, self.version)];
        let state = self.state.iter().map(StateField::file_line);
        let queries = self.queries.iter().map(|query| format!("query {query} -> {}", query.reply));
        lines(head.into_iter().chain(self.command_lines(u32::MAX)).chain(state).chain(queries))
    }

    /// Compares with what the file said before, and describes the first change that is not safe.
    fn compare_file(&self, before: &str) -> Result<(), String> {
        let version = self.compare_head(before)?;
        self.compare_commands(before, version)?;
        self.compare_version(version)?;
        self.compare_server_request(before)?;
        self.compare_file_state(before, version)
    }

    /// The version the file knows.
    fn compare_head(&self, before: &str) -> Result<u32, String> {
        let head = before.lines().next().unwrap_or_default();
        let (name, version) = head
            .strip_prefix("machine ")
            .and_then(|rest| rest.split_once(" version "))
            .and_then(|(name, version)| Some((name, version.parse::<u32>().ok()?)))
            .ok_or_else(|| format!("Its first line should be `machine NAME version N`, and is `{head}`."))?;
        if name != self.name {
            return Err(format!(
                "The machine was called `{name}`. Snapshots under that name would be refused: keep it with \
                 `#[state_machine(name = \"{name}\")]`."
            ));
        }
        Ok(version)
    }

    /// After the commands: a version falls with what brought it, and that is the mistake.
    fn compare_version(&self, version: u32) -> Result<(), String> {
        if version <= self.version {
            return Ok(());
        }
        Err(format!(
            "The machine was at version {version} and is now at {}. Replicas that were upgraded to {version} could not \
             run this build: never lower a version. Where what brought it is gone, \
             `#[state_machine(version = {version})]` keeps it.",
            self.version
        ))
    }

    fn compare_server_request(&self, before: &str) -> Result<(), String> {
        let was = before.lines().find_map(|line| line.strip_prefix("server_request ")).unwrap_or_default();
        let is = self.server_request;
        if was == is {
            return Ok(());
        }
        if was == "Never" {
            return Err(format!(
                "The machine had no server requests, and now they are `{is}`. Snapshots of the old build say so, and \
                 would be refused. Leave `server_request` out, or begin a new machine under another name; one that may \
                 ask its clients something later has a type for it from the start, if only an empty enum."
            ));
        }
        Err(format!(
            "The type of the server requests was `{was}` and is now `{is}`. Pending server requests in snapshots are of \
             the old type, and so are the clients that wait for them. Keep the type, and append to it."
        ))
    }

    fn compare_commands(&self, before: &str, version: u32) -> Result<(), String> {
        let before: Vec<&str> = before.lines().filter(|line| line.starts_with("command ")).collect();
        let now: Vec<String> =
            self.command_lines(u32::MAX).filter(|line| line.starts_with("command ")).collect();
        for (tag, was) in before.iter().enumerate() {
            match now.get(tag) {
                Some(is) if is == was => {}
                is => return Err(changed_command(was, is.map(String::as_str), &now)),
            }
        }
        match self.commands.iter().skip(before.len()).find(|command| command.since <= version) {
            None => Ok(()),
            Some(command) => Err(format!(
                "`{}` is new, and version {version} is in use already: a replica of an older build would answer it \
                 with `InvalidPayload` while one of this build executes it, and they would never agree again. \
                 Mark it `#[since = {}]`, and append `Upgrade` to the log once every replica runs this build.",
                command.name,
                version.saturating_add(1)
            )),
        }
    }

    fn compare_file_state(&self, before: &str, version: u32) -> Result<(), String> {
        let known = |line: &str| {
            let (name, rest) = line.strip_prefix("state ")?.split_once(": ")?;
            let (ty, since) = rest.split_once(" since ").unwrap_or((rest, "1"));
            Some(format!("state {name}: {ty}\n"))
                .filter(|_| since.parse().is_ok_and(|since: u32| since <= version))
        };
        let stored: String = before.lines().filter_map(known).collect();
        self.compare_state(&stored, version).map_err(|difference| {
            let difference = difference.replace("the snapshot", "the file");
            format!("Snapshots of the old build could not be restored: {difference}.")
        })
    }
}

impl StateField {
    fn file_line(&self) -> String {
        let since = if self.since > 1 { format!(" since {}", self.since) } else { String::new() };
        format!("state {}: {}{since}", self.name, self.ty)
    }
}

/// What a change of the command `was` breaks, and how to do it safely.
fn changed_command(was: &str, is: Option<&str>, now: &[String]) -> String {
    let what = match is {
        None => format!("It ended with `{was}`, which is gone."),
        Some(is) if name_of(is) == name_of(was) => {
            format!("It had\n    {was}\nand this build has\n    {is}")
        }
        Some(is) => {
            let fate = if now.iter().any(|line| name_of(line) == name_of(was)) { "moved" } else { "is gone" };
            format!(
                "It had\n    {was}\nand this build has in its place\n    {is}\nso `{}` {fate}.",
                name_of(was)
            )
        }
    };
    format!(
        "{what}\nLogs and clients name a command by its place and encode its fields in order, and cached answers are \
         of its reply's type: entries written by the old build would be read as something else, and replicas of \
         both builds would disagree. Put the command back as it was - its handler may refuse, or do nothing - and \
         append what is new as a variant of its own with a higher `#[since = N]`."
    )
}

/// The command's name in a line like `command 3 internal Close { account: u64 } -> ()`.
fn name_of(line: &str) -> &str {
    let mut words = line.split([' ', '(']).skip(2).filter(|word| *word != "internal");
    words.next().unwrap_or_default()
}

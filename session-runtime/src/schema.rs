//! A machine's shape as data: what every replica and every stored byte of it must agree on.

mod file;

pub use file::assert_unchanged;

use std::fmt;

/// The shape of a machine: its commands in wire order, their replies, its queries, its server requests, its
/// state.
///
/// Types are named by their last path segment and not looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The machine's name; a snapshot of another name is refused.
    pub name: &'static str,
    /// The highest version this build knows; see [`highest_since`].
    pub version: u32,
    /// The commands, in wire order.
    pub commands: &'static [Variant],
    /// Who answers which command, in any order.
    pub handlers: &'static [Handler],
    /// The queries. They are not compared: a query never stands in a log or a snapshot.
    pub queries: &'static [QueryShape],
    /// The type of the server requests.
    pub server_request: &'static str,
    /// The state's fields.
    pub state: &'static [StateField],
    /// The state's former fields, ignored where an old snapshot still has them.
    pub dropped: &'static [&'static str],
}

/// One command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The variant's name.
    pub name: &'static str,
    /// What it carries.
    pub fields: Fields,
    /// The version that brought it.
    pub since: u32,
}

/// What a variant carries, each field with its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fields {
    /// `Audit`
    Unit,
    /// `Watch(u64)`
    Tuple(&'static [&'static str]),
    /// `Open { owner: String }`
    Struct(&'static [(&'static str, &'static str)]),
}

/// Who answers a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handler {
    /// The command's name.
    pub command: &'static str,
    /// The type of the answer.
    pub reply: &'static str,
    /// Whether clients may not send it.
    pub internal: bool,
}

/// One query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryShape {
    /// The query's name.
    pub name: &'static str,
    /// Its arguments, each with its type.
    pub fields: &'static [(&'static str, &'static str)],
    /// The type of the answer.
    pub reply: &'static str,
}

/// One field of the state: a key under `user/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateField {
    /// The field's name.
    pub name: &'static str,
    /// Its type; with `per_entry ` before it for a map that is stored entry by entry.
    pub ty: &'static str,
    /// The version that brought it. Below that version it is not written and restores as its default.
    pub since: u32,
    /// Whether a snapshot without it restores it as its default.
    pub default: bool,
    /// The name it had before.
    pub was: Option<&'static str>,
}

impl StateField {
    /// A field that was always there.
    pub const fn new(name: &'static str, ty: &'static str) -> Self {
        Self { name, ty, since: 1, default: false, was: None }
    }
}

/// The highest `since` of commands and state fields: the version of a build, unless it says otherwise.
pub const fn highest_since(commands: &[Variant], state: &[StateField]) -> u32 {
    let mut highest = 1;
    let mut rest = commands;
    while let [first, others @ ..] = rest {
        if first.since > highest {
            highest = first.since;
        }
        rest = others;
    }
    let mut rest = state;
    while let [first, others @ ..] = rest {
        if first.since > highest {
            highest = first.since;
        }
        rest = others;
    }
    highest
}

impl Schema {
    /// The name of an encoded command, read off its tag alone: the rest may still be no command at all.
    pub fn command_name(&self, payload: &[u8]) -> Option<&'static str> {
        let tag: u32 = crate::codec::decode_start(payload).ok()?;
        self.commands.get(usize::try_from(tag).ok()?).map(|variant| variant.name)
    }

    /// The handler of a command.
    pub fn handler(&self, command: &str) -> Option<&'static Handler> {
        self.handlers.iter().find(|handler| handler.command == command)
    }

    /// The schema as text, a line for each thing, restricted to what exists at `version`. It goes with every
    /// snapshot. Queries are left out: nothing stored depends on them.
    pub fn text(&self, version: u32) -> String {
        let state = self
            .state
            .iter()
            .filter(|field| field.since <= version)
            .map(|field| format!("state {}: {}", field.name, field.ty));
        lines(self.command_lines(version).chain(state))
    }

    /// What must be equal to the letter: the commands with their replies, and the server requests.
    fn command_lines(&self, version: u32) -> impl Iterator<Item = String> {
        self.commands
            .iter()
            .enumerate()
            .filter(move |(_, variant)| variant.since <= version)
            .map(|(tag, variant)| {
                let handler = self.handler(variant.name);
                let internal = if handler.is_some_and(|handler| handler.internal) { "internal " } else { "" };
                let since =
                    if variant.since > 1 { format!(" since {}", variant.since) } else { String::new() };
                let reply = handler.map_or("?", |handler| handler.reply);
                format!("command {tag} {internal}{variant} -> {reply}{since}")
            })
            .chain([format!("server_request {}", self.server_request)])
    }

    /// Compares with the text of a snapshot of `version`, and describes the first difference.
    pub(crate) fn compare(&self, text: &str, version: u32) -> Result<(), String> {
        let mut stored = text.lines().filter(|line| !line.starts_with("state "));
        for line in self.command_lines(version) {
            match stored.next() {
                Some(found) if found == line => {}
                found => return Err(changed_line(found.unwrap_or("nothing more"), &line, version)),
            }
        }
        if let Some(found) = stored.next() {
            return Err(changed_line(found, "nothing more", version));
        }
        self.compare_state(text, version)
    }

    fn compare_state(&self, text: &str, version: u32) -> Result<(), String> {
        let mut stored: Vec<(&str, &str)> =
            text.lines().filter_map(|line| line.strip_prefix("state ")?.split_once(": ")).collect();
        for field in self.state.iter().filter(|field| field.since <= version) {
            let StateField { name, ty, .. } = *field;
            let found = stored
                .iter()
                .position(|(stored, _)| *stored == name)
                .or_else(|| stored.iter().position(|(stored, _)| Some(*stored) == field.was));
            match found.map(|position| stored.remove(position)) {
                Some((_, found)) if found == ty => {}
                Some((_, found)) => {
                    return Err(format!(
                        "the state field `{name}` is `{found}` in the snapshot and `{ty}` in this build"
                    ));
                }
                None if field.default => {}
                None => {
                    return Err(format!(
                        "the snapshot has no state field `{name}`: mark it `#[state(default)]` or `#[since = {}]` \
                         if it is new, `#[state(was = \"...\")]` if it was renamed",
                        version.saturating_add(1)
                    ));
                }
            }
        }
        match stored.iter().find(|(name, _)| !self.dropped.contains(name)) {
            None => Ok(()),
            Some((name, _)) => Err(format!(
                "the snapshot has the state field `{name}`, this build has not: list it in \
                 `#[state(dropped(\"{name}\"))]` if it was removed"
            )),
        }
    }
}

/// How a snapshot's line and this build's differ, and what to do.
fn changed_line(found: &str, line: &str, version: u32) -> String {
    let is_command = |line: &str| line.starts_with("command ");
    match (is_command(found), is_command(line)) {
        (false, true) => format!(
            "the snapshot does not have this build's `{line}`: mark it `#[since = {}]` if it is new",
            version.saturating_add(1)
        ),
        (true, false) => format!(
            "the snapshot has `{found}`, which this build has not: put it back in its place, because a command is \
             never removed"
        ),
        (true, true) => format!(
            "the snapshot has `{found}`, this build `{line}`: a command keeps its place, its fields and its reply; \
             append what is new as a variant of its own with `#[since = {}]`",
            version.saturating_add(1)
        ),
        (false, false) => format!(
            "the snapshot has `{found}`, this build `{line}`: keep the type of the server requests, and append to it"
        ),
    }
}

fn lines(lines: impl Iterator<Item = String>) -> String {
    lines.flat_map(|line| [line, "\n".to_owned()]).collect()
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        match self.fields {
            Fields::Unit => Ok(()),
            Fields::Tuple(types) => write!(f, "({})", types.join(", ")),
            Fields::Struct(fields) => write_fields(f, fields),
        }
    }
}

impl fmt::Display for QueryShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        write_fields(f, self.fields)
    }
}

fn write_fields(f: &mut fmt::Formatter<'_>, fields: &[(&str, &str)]) -> fmt::Result {
    if fields.is_empty() {
        return f.write_str(" {}");
    }
    let fields: Vec<String> = fields.iter().map(|(name, ty)| format!("{name}: {ty}")).collect();
    write!(f, " {{ {} }}", fields.join(", "))
}

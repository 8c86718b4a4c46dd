//! The checks of an impl block against the table of its commands, run by the compiler. They write their message
//! themselves, because formatting does not exist at compile time.

#![allow(clippy::arithmetic_side_effects, clippy::indexing_slicing, clippy::panic)] // at compile time, where a panic is an error

use crate::schema::{Fields, Variant};

const CAPACITY: usize = 4096;

/// A message under construction; empty if there is nothing to say. What does not fit is cut off.
#[derive(Clone, Copy, Debug)]
struct Text {
    bytes: [u8; CAPACITY],
    length: usize,
}

impl Text {
    const fn new() -> Self {
        Self { bytes: [0; CAPACITY], length: 0 }
    }

    const fn push(mut self, text: &str) -> Self {
        let bytes = text.as_bytes();
        if self.length + bytes.len() > CAPACITY {
            return self;
        }
        let mut at = 0;
        while at < bytes.len() {
            self.bytes[self.length] = bytes[at];
            self.length += 1;
            at += 1;
        }
        self
    }

    const fn as_str(&self) -> &str {
        match core::str::from_utf8(self.bytes.split_at(self.length).0) {
            Ok(text) => text,
            Err(_) => "the handlers do not fit the commands",
        }
    }

    /// A variant's name as its handler is called: `OpenAccount` is `open_account`.
    const fn push_handler(mut self, variant: &str) -> Self {
        if contains(&KEYWORDS, variant) {
            self = self.push("r#");
        }
        let is_never_raw = equal(variant, "Super") || equal(variant, "Crate");
        let bytes = variant.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            let byte = bytes[at];
            if byte.is_ascii_uppercase() && at > 0 {
                self = self.push("_");
            }
            if self.length < CAPACITY {
                self.bytes[self.length] = byte.to_ascii_lowercase();
                self.length += 1;
            }
            at += 1;
        }
        if is_never_raw { self.push("_") } else { self }
    }
}

/// Variants whose handlers are named by a raw identifier, because their names are keywords.
const KEYWORDS: [&str; 48] = [
    "Abstract", "As", "Async", "Await", "Become", "Box", "Break", "Const", "Continue", "Do", "Dyn", "Else",
    "Enum", "Extern", "False", "Final", "Fn", "For", "Gen", "If", "Impl", "In", "Let", "Loop", "Macro",
    "Match", "Mod", "Move", "Mut", "Override", "Priv", "Pub", "Ref", "Return", "Static", "Struct", "Trait",
    "True", "Try", "Type", "Typeof", "Unsafe", "Unsized", "Use", "Virtual", "Where", "While", "Yield",
];

const fn equal(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    if left.len() != right.len() {
        return false;
    }
    let mut at = 0;
    while at < left.len() {
        if left[at] != right[at] {
            return false;
        }
        at += 1;
    }
    true
}

const fn contains(names: &[&str], name: &str) -> bool {
    contains_from(names, 0, name)
}

/// The same, searched from a place where it may well be.
const fn contains_from(names: &[&str], from: usize, name: &str) -> bool {
    let mut tried = 0;
    while tried < names.len() {
        if equal(names[(from + tried) % names.len()], name) {
            return true;
        }
        tried += 1;
    }
    false
}

/// The table of a machine's commands.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// The variants.
    pub variants: &'static [Variant],
    /// The names of variants of other builds, under a `cfg` that does not hold in this one.
    pub absent: &'static [&'static str],
    /// Whether it is that of an enum of commands. What is wrong with another type is said once.
    pub is_command: bool,
}

/// Finds a variant. The search begins where the handler stands in its block, which is where the variant stands in
/// its enum more often than not.
const fn find(variants: &[Variant], from: usize, name: &str) -> Option<Variant> {
    let mut tried = 0;
    while tried < variants.len() {
        let variant = variants[(from + tried) % variants.len()];
        if equal(variant.name, name) {
            return Some(variant);
        }
        tried += 1;
    }
    None
}

/// Whether two names differ by a slip: one letter more, less or other, two of them swapped, or capitals.
const fn is_near(left: &str, right: &str) -> bool {
    slip(left, right) <= 2
}

/// How many letters there are between what two names begin with and what they end with.
const fn slip(left: &str, right: &str) -> usize {
    if left.eq_ignore_ascii_case(right) {
        return 0;
    }
    let (left, right) = (left.as_bytes(), right.as_bytes());
    if left.len().abs_diff(right.len()) > 1 {
        return usize::MAX;
    }
    let shorter = if left.len() < right.len() { left.len() } else { right.len() };
    let mut start = 0;
    while start < shorter && left[start] == right[start] {
        start += 1;
    }
    let mut end = 0;
    while end < shorter - start && left[left.len() - 1 - end] == right[right.len() - 1 - end] {
        end += 1;
    }
    let longer = if left.len() > right.len() { left.len() } else { right.len() };
    longer - start - end
}

/// The variant without a handler that a handler without a variant was most likely meant for.
const fn meant(variants: &[Variant], handlers: &[&str], handler: &str) -> Option<&'static str> {
    let mut nearest: Option<&'static str> = None;
    let mut at = 0;
    while at < variants.len() {
        let name = variants[at].name;
        let is_nearer = match nearest {
            None => is_near(name, handler),
            Some(other) => slip(name, handler) < slip(other, handler),
        };
        if is_nearer && !contains_from(handlers, at, name) {
            nearest = Some(name);
        }
        at += 1;
    }
    nearest
}

/// Checks that the type is an enum of commands.
#[track_caller]
pub const fn check_command(table: Table, name: &str) -> bool {
    let no_command = Text::new()
        .push("`")
        .push(name)
        .push("` is no enum of commands; write `#[state_machine]` on the enum that `command = ...` names");
    assert!(table.is_command, "{}", no_command.as_str());
    true
}

/// Checks that every command has a handler, or says which have none. One for which a handler without a command was
/// meant is left to the error about that handler.
#[track_caller]
pub const fn check_all_handled(table: Table, handlers: &[&str]) {
    let variants = table.variants;
    let mut at = 0;
    while at < variants.len() {
        let missed = is_missing(variants, handlers, at);
        assert!(!missed, "{}", missing(variants, handlers).as_str());
        at += 1;
    }
}

const fn is_missing(variants: &[Variant], handlers: &[&str], at: usize) -> bool {
    let variant = variants[at].name;
    !contains_from(handlers, at, variant) && !is_misspelled(variants, handlers, variant)
}

const fn missing(variants: &[Variant], handlers: &[&str]) -> Text {
    let mut text = Text::new().push("a command has no handler; add to this impl block");
    let mut at = 0;
    while at < variants.len() {
        let variant = variants[at];
        if is_missing(variants, handlers, at) {
            text = text.push("\n    fn ").push_handler(variant.name).push("(&mut self");
            text = signature(text, variant.fields, ", ").push(") { .. }");
            text = text.push("  // for `").push(variant.name).push("`");
        }
        at += 1;
    }
    text
}

const fn is_misspelled(variants: &[Variant], handlers: &[&str], variant: &str) -> bool {
    let mut at = 0;
    while at < handlers.len() {
        if is_near(handlers[at], variant)
            && find(variants, at, handlers[at]).is_none()
            && let Some(meant) = meant(variants, handlers, handlers[at])
            && equal(meant, variant)
        {
            return true;
        }
        at += 1;
    }
    false
}

/// A variant's fields as arguments, with what stands before each.
const fn signature(mut text: Text, fields: Fields, mut before: &'static str) -> Text {
    let mut at = 0;
    while at < count(fields) {
        let (name, ty) = match fields {
            Fields::Unit => ("_", "_"),
            Fields::Tuple(types) => ("_", types[at]),
            Fields::Struct(fields) => fields[at],
        };
        text = text.push(before).push(name).push(": ").push(ty);
        before = ", ";
        at += 1;
    }
    text
}

const fn count(fields: Fields) -> usize {
    match fields {
        Fields::Unit => 0,
        Fields::Tuple(types) => types.len(),
        Fields::Struct(fields) => fields.len(),
    }
}

/// Checks that a handler has a variant, and as many arguments as that has fields.
#[track_caller]
#[allow(clippy::too_many_arguments)] // each is a literal of generated code
pub const fn check_handler(
    table: Table,
    handlers: &[&str],
    command: &str,
    position: usize,
    variant: &str,
    handler: &str,
    arguments: usize,
    has_context: bool,
) -> Fields {
    let Some(Variant { fields, .. }) = find(table.variants, position, variant) else {
        assert!(!table.is_command, "{}", unknown(table, handlers, command, variant, handler).as_str());
        return Fields::Unit;
    };
    let all = count(fields) == arguments;
    assert!(all, "{}", miscounted(variant, fields, arguments, has_context).as_str());
    fields
}

const fn unknown(table: Table, handlers: &[&str], command: &str, variant: &str, handler: &str) -> Text {
    let mut text = Text::new().push("no variant `").push(variant).push("` in `").push(command);
    if contains(table.absent, variant) {
        text = text.push("` in this build; put the `#[cfg]` of the variant on the handler `").push(handler);
        return text.push("`, too");
    }
    text = text.push("` for the handler `").push(handler).push("`; ");
    if let Some(near) = meant(table.variants, handlers, variant) {
        text = text.push("did you mean `fn ").push_handler(near).push("`, for `").push(near).push("`?");
        return text.push(" A helper belongs in another impl block");
    }
    text.push("add the variant, mark what only reads `#[query]`, or move a helper to another impl block")
}

const fn miscounted(variant: &str, fields: Fields, arguments: usize, has_context: bool) -> Text {
    let too_many = arguments > count(fields);
    let mut text = Text::new().push("the handler of `").push(variant);
    if count(fields) == 0 {
        text = text.push("` takes no arguments, because the variant has no fields");
    } else {
        text = text.push("` takes the variant's fields as its arguments, ");
        text = text.push(if too_many { "and no others: `" } else { "all of them: `" });
        text = signature(text, fields, "").push("`");
    }
    match (too_many, has_context) {
        (true, false) => {
            text.push("; the context, if it wants it, is `cx: &mut Context<'_, YourServerRequest>`")
        }
        (false, true) => text.push("; a `&mut` parameter is the context, fields are taken by value"),
        _ => text,
    }
}

/// Checks that an argument is named like the field in its place. The first that is not says so of the others, too:
/// only one of these checks can fail.
#[track_caller]
pub const fn check_argument(fields: Fields, variant: &str, index: usize, names: &[&str]) {
    if let Fields::Struct(fields) = fields {
        assert!(fits(fields, names, index), "{}", misnamed(fields, variant, names, index).as_str());
    }
}

const fn fits(fields: &[(&str, &str)], names: &[&str], index: usize) -> bool {
    if index >= fields.len() {
        return true; // said of their number
    }
    let (name, expected) = (names[index], fields[index].0);
    equal(name, expected) || is_same(name, expected) && position_of(fields, name).is_none()
}

/// Whether two names are the same but for a leading underscore.
const fn is_same(left: &str, right: &str) -> bool {
    equal(without_underscore(left), without_underscore(right))
}

const fn without_underscore(name: &str) -> &str {
    match name.as_bytes() {
        [b'_', _, ..] => name.split_at(1).1,
        _ => name,
    }
}

const fn position_of(fields: &[(&str, &str)], name: &str) -> Option<usize> {
    let mut at = 0;
    while at < fields.len() {
        if equal(fields[at].0, name) {
            return Some(at);
        }
        at += 1;
    }
    None
}

const fn misnamed(fields: &[(&str, &str)], variant: &str, names: &[&str], index: usize) -> Text {
    let (name, expected) = (names[index], fields[index].0);
    let mut text = Text::new();
    if equal(name, "_") {
        text = text.push("this argument is the field `").push(expected).push("` of `").push(variant);
        text = text.push("`; give it that name, or `_").push(expected).push("` if it is not used");
    } else if is_field(fields, name) {
        text = text.push("`").push(name).push("` stands where `").push(variant).push("` has `");
        text = list(text.push(expected).push("`; keep the order of the fields: "), fields);
    } else {
        text = text.push("`").push(variant).push("` has no field `").push(name).push("`; ");
        let here = if is_near(name, expected) { "did you mean `" } else { "in this place it has `" };
        text = text.push(here).push(expected).push("`");
        text = text.push(if is_near(name, expected) { "? Its fields are " } else { "; its fields are " });
        text = list(text, fields);
    }
    let mut other = index + 1;
    while other < names.len() {
        // That the order is another needs to be said of one only.
        let said = is_field(fields, name) && is_field(fields, names[other]);
        if !said && !fits(fields, names, other) {
            text = text.push("\n    `").push(names[other]).push("` stands where it has `");
            text = text.push(fields[other].0).push("`");
        }
        other += 1;
    }
    text
}

const fn is_field(fields: &[(&str, &str)], name: &str) -> bool {
    position_of(fields, without_underscore(name)).is_some()
}

const fn list(mut text: Text, fields: &[(&str, &str)]) -> Text {
    let mut at = 0;
    while at < fields.len() {
        text = text.push(if at > 0 { ", `" } else { "`" }).push(fields[at].0).push("`");
        at += 1;
    }
    text
}

/// A machine's version covers everything in it.
#[track_caller]
pub const fn check_version(version: u32, highest: u32) {
    assert!(
        version >= highest,
        "the machine's `version` is below the highest `#[since = N]` in it; raise it, or leave it out"
    );
}

/// Checks that a rejection has the traits of a wire type, or says which it lacks.
#[track_caller]
pub const fn check_rejection(name: &str, serialize: bool, deserialize: bool, deterministic: bool) -> bool {
    let text = Text::new().push("a rejection is sent to clients; derive for `").push(name).push("` also");
    let text = lacking(text, serialize, deserialize, deterministic);
    assert!(serialize && deserialize && deterministic, "{}", text.as_str());
    true
}

/// Checks that a field of a command can be written and read. That it is deterministic is checked by its trait,
/// which has better words.
#[track_caller]
pub const fn check_command_field(
    name: &str,
    serialize: bool,
    deserialize: bool,
    deterministic: bool,
) -> bool {
    let text = Text::new().push("a command is stored in the log, but `").push(name).push("` lacks");
    let text = lacking(text, serialize, deserialize, deterministic).push(OR_ANOTHER);
    assert!(serialize && deserialize, "{}", text.as_str());
    true
}

/// Checks that an argument of a query can be written and read. It stands in no log, and need not be deterministic.
#[track_caller]
pub const fn check_query_argument(name: &str, serialize: bool, deserialize: bool, _: bool) -> bool {
    let text = Text::new().push("a query is sent to a replica, but `").push(name).push("` lacks");
    let text = lacking(text, serialize, deserialize, true).push(OR_ANOTHER);
    assert!(serialize && deserialize, "{}", text.as_str());
    true
}

/// Says that a reference cannot be carried.
#[track_caller]
pub const fn check_owned(name: &str) -> bool {
    let text = Text::new().push("what is stored or sent is owned, and `").push(name).push("` is a reference");
    panic!("{}", text.push("; use an owned type, such as `String` for `&str`").as_str());
}

/// Checks that a server request can be written and read.
#[track_caller]
pub const fn check_server_request(
    name: &str,
    serialize: bool,
    deserialize: bool,
    deterministic: bool,
) -> bool {
    let text = Text::new().push("a server request is sent to clients, but `").push(name).push("` lacks");
    let text = lacking(text, serialize, deserialize, deterministic).push(OR_ANOTHER);
    assert!(serialize && deserialize, "{}", text.as_str());
    true
}

const OR_ANOTHER: &str = "; derive what is lacking if the type is yours, else use another type";

/// The traits of a wire type that are lacking.
const fn lacking(mut text: Text, serialize: bool, deserialize: bool, deterministic: bool) -> Text {
    let traits = [
        (serialize, " `serde::Serialize`"),
        (deserialize, " `serde::Deserialize`"),
        (deterministic, " `session_runtime::Deterministic`"),
    ];
    let mut at = 0;
    let mut first = true;
    while at < traits.len() {
        let (has, name) = traits[at];
        if !has {
            text = text.push(if first { "" } else { "," }).push(name);
            first = false;
        }
        at += 1;
    }
    text
}

/// Which of the variants are among `names`.
pub const fn among<const N: usize>(variants: &[Variant], names: &[&str]) -> [bool; N] {
    let mut table = [false; N];
    let mut at = 0;
    while at < N {
        table[at] = contains_from(names, at, variants[at].name);
        at += 1;
    }
    table
}

/// Whether the variant at this position is.
#[inline]
pub fn is_among(table: &[bool], variant: usize) -> bool {
    table.get(variant).copied().unwrap_or(false)
}

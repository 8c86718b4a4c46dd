//! The checks of an impl block against the table of its commands, run by the compiler. They write their message
//! themselves, because formatting does not exist at compile time.

#![allow(clippy::arithmetic_side_effects, clippy::indexing_slicing)] // at compile time, where a panic is an error

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
        self
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
    let mut at = 0;
    while at < names.len() {
        if equal(names[at], name) {
            return true;
        }
        at += 1;
    }
    false
}

const fn find(variants: &[Variant], name: &str) -> Option<Variant> {
    let mut at = 0;
    while at < variants.len() {
        if equal(variants[at].name, name) {
            return Some(variants[at]);
        }
        at += 1;
    }
    None
}

/// Whether two names differ by a slip: one letter more, less or other, or two of them swapped.
const fn is_near(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    if left.len().abs_diff(right.len()) > 1 {
        return false;
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
    longer - start - end <= 2
}

/// Checks that every command has a handler, or says which have none. One whose name is nearly that of a handler
/// without a command is left to the error about that handler.
#[track_caller]
pub const fn check_all_handled(variants: &[Variant], handlers: &[&str]) {
    let mut at = 0;
    while at < variants.len() {
        let missed = is_missing(variants, handlers, variants[at].name);
        assert!(!missed, "{}", missing(variants, handlers).as_str());
        at += 1;
    }
}

const fn is_missing(variants: &[Variant], handlers: &[&str], variant: &str) -> bool {
    !contains(handlers, variant) && !is_misspelled(variants, handlers, variant)
}

const fn missing(variants: &[Variant], handlers: &[&str]) -> Text {
    let mut text = Text::new().push("a command has no handler; add to this impl block");
    let mut at = 0;
    while at < variants.len() {
        let variant = variants[at];
        if is_missing(variants, handlers, variant.name) {
            text = text.push("\n    fn ").push_handler(variant.name).push("(&mut self");
            text = signature(text, variant.fields).push(") { .. }");
            text = text.push("  // for `").push(variant.name).push("`");
        }
        at += 1;
    }
    text
}

const fn is_misspelled(variants: &[Variant], handlers: &[&str], variant: &str) -> bool {
    let mut at = 0;
    while at < handlers.len() {
        if is_near(handlers[at], variant) && find(variants, handlers[at]).is_none() {
            return true;
        }
        at += 1;
    }
    false
}

const fn signature(mut text: Text, fields: Fields) -> Text {
    match fields {
        Fields::Unit => text,
        Fields::Tuple(types) => {
            let mut at = 0;
            while at < types.len() {
                text = text.push(", _: ").push(types[at]);
                at += 1;
            }
            text
        }
        Fields::Struct(fields) => {
            let mut at = 0;
            while at < fields.len() {
                text = text.push(", ").push(fields[at].0).push(": ").push(fields[at].1);
                at += 1;
            }
            text
        }
    }
}

/// Checks that the arguments of a handler are named like the fields of its struct variant. A different number is
/// left to the error about the types.
#[track_caller]
pub const fn check_names(variants: &[Variant], variant: &str, handler: &str, names: &[&str]) {
    let Some(Variant { fields: Fields::Struct(fields), .. }) = find(variants, variant) else {
        return;
    };
    if fields.len() != names.len() {
        return;
    }
    let mut at = 0;
    while at < names.len() {
        let same = equal(names[at], fields[at].0);
        assert!(same, "{}", misnamed(variant, handler, names, fields).as_str());
        at += 1;
    }
}

const fn misnamed(variant: &str, handler: &str, names: &[&str], fields: &[(&str, &str)]) -> Text {
    let mut text = Text::new().push("the arguments of `").push(handler).push("` are (");
    let mut at = 0;
    while at < names.len() {
        text = text.push(if at > 0 { ", " } else { "" }).push(names[at]);
        at += 1;
    }
    text = text.push("), but the fields of `").push(variant).push("` are { ");
    let mut at = 0;
    while at < fields.len() {
        text = text.push(if at > 0 { ", " } else { "" }).push(fields[at].0);
        at += 1;
    }
    text.push(" }; give the arguments the fields' names, in the fields' order")
}

/// A machine's version covers everything in it.
#[track_caller]
pub const fn check_version(version: u32, highest: u32) {
    assert!(
        version >= highest,
        "the machine's `version` is below the highest `#[since = N]` in it; raise it, or leave it out"
    );
}

/// Which of the variants are among `names`.
pub const fn among<const N: usize>(variants: &[Variant], names: &[&str]) -> [bool; N] {
    let mut table = [false; N];
    let mut at = 0;
    while at < N {
        table[at] = contains(names, variants[at].name);
        at += 1;
    }
    table
}

/// Whether the variant at this position is.
#[inline]
pub fn is_among(table: &[bool], variant: usize) -> bool {
    table.get(variant).copied().unwrap_or(false)
}

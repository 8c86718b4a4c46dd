//! Docs of a method, for what is generated after it.

use crate::parse::{Method, string_value};
use proc_macro2::TokenStream;
use quote::quote;
use syn::Attribute;

/// The method's docs and deprecation.
pub(super) fn shown(method: &Method, otherwise: &str) -> TokenStream {
    let mut is_code = false;
    let mut docs = method.attrs.iter().filter(|attr| attr.path().is_ident("doc")).peekable();
    let otherwise = docs.peek().is_none().then(|| quote!(#[doc = #otherwise]));
    let docs = docs.map(|doc| copied(doc, &mut is_code));
    let deprecated = method.attrs.iter().filter(|attr| attr.path().is_ident("deprecated"));
    quote!(#otherwise #(#docs)* #(#deprecated)*)
}

/// A doc as it may stand elsewhere. Its links lead from the method: elsewhere `Self` is another type, and a private
/// item is out of sight, so what they name stays and the link goes.
fn copied(doc: &Attribute, is_code: &mut bool) -> TokenStream {
    let Some(text) = string_value(doc) else {
        return quote!(#doc);
    };
    let mut lines: Vec<String> = Vec::new();
    for line in text.value().split('\n') {
        let is_fence = line.trim_start().starts_with("```");
        *is_code ^= is_fence;
        lines.push(if *is_code || is_fence { line.to_owned() } else { unlinked(line) });
    }
    let text = syn::LitStr::new(&lines.join("\n"), text.span());
    quote!(#[doc = #text])
}

/// A line without its links to items. Links to the web stay.
pub(crate) fn unlinked(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(['`', '[']) {
        let (before, from) = rest.split_at(at);
        text.push_str(before);
        let (kept, length) = link(from).unwrap_or_else(|| code(from));
        text.push_str(kept);
        rest = &from[length..];
    }
    text.push_str(rest);
    text
}

/// What is left of the link that begins here, and how long it was; nothing if there is none to an item.
fn link(from: &str) -> Option<(&str, usize)> {
    let label = bracketed(from, '[', ']')?;
    let behind = &from[label.len() + 2..];
    let target = bracketed(behind, '(', ')').or_else(|| bracketed(behind, '[', ']'));
    let definition = behind.strip_prefix(':');
    match (target, definition) {
        (_, Some(target)) => is_item(target.trim()).then_some(("", from.len())),
        (Some(""), _) => is_item(label).then_some((label, label.len() + 4)),
        (Some(target), _) => is_item(target).then(|| (label, label.len() + target.len() + 4)),
        (None, None) => is_item(label).then_some((label, label.len() + 2)),
    }
}

/// The code that begins here, or the one character that begins nothing.
fn code(from: &str) -> (&str, usize) {
    let ticks = from.len() - from.trim_start_matches('`').len();
    let close = from[ticks..].find(&from[..ticks.max(1)]).filter(|_| ticks > 0);
    let length = close.map_or(ticks.max(1), |close| ticks + close + ticks);
    (&from[..length], length)
}

fn bracketed(from: &str, open: char, close: char) -> Option<&str> {
    let inner = from.strip_prefix(open)?;
    let mut depth = 1_usize;
    let end = inner.find(|c: char| {
        depth = if c == open { depth + 1 } else { depth - usize::from(c == close) };
        depth == 0
    })?;
    Some(&inner[..end])
}

/// Whether this names an item, as in `Self::helper`, `fn@helper` or `helper()`.
fn is_item(name: &str) -> bool {
    let name = name.trim_matches('`');
    let name = name.split_once('@').map_or(name, |(_, name)| name);
    let name = name.trim_end_matches("()").trim_end_matches('!');
    let name = name.split_once('#').map_or(name, |(name, _)| name);
    let begins = name.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == ':');
    begins && name.chars().all(|c| c.is_alphanumeric() || "_:<>".contains(c)) && !name.contains("://")
}

//! From the model to tokens.

mod client;
mod command;
mod derives;
mod docs;
mod machine;
mod state;
mod wire;

use crate::errors::Errors;
use crate::words;
use proc_macro2::{Group, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{Attribute, DeriveInput};

pub(crate) use command::{derive_command, derive_query};
pub(crate) use derives::{derive_deterministic, derive_rejection};
#[cfg(test)]
pub(crate) use docs::unlinked;
pub(crate) use state::derive_state;

/// The attribute, on an enum or on an impl block.
pub(crate) fn state_machine(args: TokenStream, item: &TokenStream) -> TokenStream {
    if keyword(item, "enum") {
        return command::attribute(args, item);
    }
    if keyword(item, "impl") {
        return machine::attribute(args, item);
    }
    let errors = Errors::new();
    errors.at(Span::call_site(), words::WRONG_ITEM);
    let errors = errors.finish();
    quote!(#item #errors)
}

/// Whether an item is of the kind that begins with this keyword, whatever stands before it.
fn keyword(item: &TokenStream, keyword: &str) -> bool {
    const KINDS: [&str; 12] =
        ["enum", "impl", "struct", "fn", "mod", "trait", "type", "use", "const", "static", "union", "extern"];
    item.clone()
        .into_iter()
        .find_map(|token| match token {
            TokenTree::Ident(ident) => {
                let text = ident.to_string();
                KINDS.contains(&text.as_str()).then(|| text == keyword)
            }
            _ => None,
        })
        .unwrap_or(false)
}

/// Parses a derive's input. On a mistake there is nothing to add: the item itself is not the derive's to emit.
fn input(item: TokenStream) -> Result<DeriveInput, TokenStream> {
    syn::parse2(item).map_err(|error| error.to_compile_error())
}

/// A string literal of an identifier, raw or not.
fn text_of(ident: &syn::Ident) -> String {
    syn::ext::IdentExt::unraw(ident).to_string()
}

/// The same path, shown at another place: where a path of ours begins is where its errors are shown.
fn placed(path: &impl ToTokens, at: Span) -> TokenStream {
    let tokens = path.to_token_stream().into_iter();
    let placed = tokens.map(|mut token| {
        // What `$crate` means is in its span; anything else means the same everywhere in the user's crate.
        let at = if token.to_string() == "$crate" { token.span().located_at(at) } else { at };
        token.set_span(at);
        token
    });
    placed.collect()
}

/// How serde's derives on an item reach serde, which they take as text: what must stand beside the item, and the
/// text. `$crate` means nothing in a text, so it gets a name.
fn serde_path(krate: &syn::Path, item: &syn::Ident) -> (TokenStream, String) {
    let serde = quote!(#krate::__private::serde);
    if krate.segments.first().is_none_or(|first| first.ident != "$crate") {
        return (TokenStream::new(), serde.to_string());
    }
    let name = quote::format_ident!("__serde_of_{}", text_of(item), span = Span::call_site());
    (quote!(use #serde as #name;), name.to_string())
}

/// Where these tokens begin, and where they end.
fn ends(tokens: TokenStream) -> (Span, Span) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let begin = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.span_open(),
        other => other.span(),
    };
    let end = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.span_close(),
        other => other.span(),
    };
    let here = Span::call_site();
    (tokens.first().map_or(here, begin), tokens.last().map_or(here, end))
}

/// A name of the user's for something generated: shown at its place, but no code of the user's, so that lints
/// about it are not theirs to silence.
fn generated_name(name: &syn::Ident) -> syn::Ident {
    // What is generated is read by the rules of this crate's edition, in which `gen` is a keyword.
    let mut name = if name == "gen" { syn::Ident::new_raw("gen", name.span()) } else { name.clone() };
    name.set_span(Span::call_site().located_at(name.span()));
    name
}

/// What is made of a deprecated item names it, and warns nobody: a warning is for the user's own uses.
fn allow_deprecated<'a>(items: impl IntoIterator<Item = &'a [Attribute]>) -> Option<TokenStream> {
    let is_deprecated = |attrs: &[Attribute]| attrs.iter().any(|attr| attr.path().is_ident("deprecated"));
    items.into_iter().any(is_deprecated).then(|| quote!(#[allow(deprecated)]))
}

/// Tokens that could not be parsed, without the attributes of these names: nobody else knows them.
fn without_attributes(tokens: TokenStream, names: &[&str]) -> TokenStream {
    let mut kept: Vec<TokenTree> = Vec::new();
    for token in tokens {
        let after_hash = matches!(kept.last(), Some(TokenTree::Punct(punct)) if punct.as_char() == '#');
        match token {
            TokenTree::Group(group) if after_hash && begins_with(&group, names) => {
                kept.pop();
            }
            // A new group forgets where its delimiters stand, and with them where rustc found a mistake.
            TokenTree::Group(group) if has_attribute(group.stream(), names) => {
                let mut inner = Group::new(group.delimiter(), without_attributes(group.stream(), names));
                inner.set_span(group.span());
                kept.push(inner.into());
            }
            other => kept.push(other),
        }
    }
    kept.into_iter().collect()
}

fn has_attribute(tokens: TokenStream, names: &[&str]) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Group(group) => begins_with(&group, names) || has_attribute(group.stream(), names),
        _ => false,
    })
}

fn begins_with(group: &Group, names: &[&str]) -> bool {
    let first = group.stream().into_iter().next();
    matches!(first, Some(TokenTree::Ident(ident)) if names.iter().any(|name| ident == name))
}

/// The name of an item that could not be parsed, unless it has parameters.
fn name_behind(keyword: &str, item: &TokenStream) -> Option<syn::Ident> {
    let is_keyword = |token: &TokenTree| matches!(token, TokenTree::Ident(ident) if ident == keyword);
    let mut behind = item.clone().into_iter().skip_while(|token| !is_keyword(token)).skip(1);
    match (behind.next(), behind.next()) {
        (_, Some(TokenTree::Punct(punct))) if punct.as_char() == '<' => None,
        (Some(TokenTree::Ident(name)), _) => Some(name),
        _ => None,
    }
}

/// Whether any of these tokens is one of the names.
fn mentions(tokens: &impl ToTokens, names: &[String]) -> bool {
    fn any(tokens: TokenStream, names: &[String]) -> bool {
        tokens.into_iter().any(|token| match token {
            TokenTree::Ident(ident) => names.iter().any(|name| ident == name),
            TokenTree::Group(group) => any(group.stream(), names),
            _ => false,
        })
    }
    any(tokens.to_token_stream(), names)
}

/// The tokens with `Self` written out.
fn without_self(tokens: TokenStream, meaning: &TokenStream) -> TokenStream {
    let written_out = tokens.into_iter().flat_map(|token| match token {
        TokenTree::Ident(ident) if ident == "Self" => meaning.clone(),
        TokenTree::Group(group) => {
            let mut inner = Group::new(group.delimiter(), without_self(group.stream(), meaning));
            inner.set_span(group.span());
            TokenTree::Group(inner).into()
        }
        other => other.into(),
    });
    written_out.collect()
}

//! From the model to tokens.

mod client;
mod command;
mod derives;
mod machine;
mod state;

use crate::errors::Errors;
use crate::words;
use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::DeriveInput;

pub(crate) use command::derive_command;
pub(crate) use derives::{derive_deterministic, derive_rejection};
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

/// The same tokens, shown at another place: where a path of ours begins is where its errors are shown.
fn placed(tokens: &impl ToTokens, at: Span) -> TokenStream {
    let tokens = tokens.to_token_stream().into_iter();
    let placed = tokens.map(|mut token| {
        token.set_span(token.span().located_at(at));
        token
    });
    placed.collect()
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

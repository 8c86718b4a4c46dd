//! serde attributes whose bytes cannot be read back.

use crate::errors::Errors;
use crate::words;
use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::{Attribute, Data, DeriveInput, Meta, Token};

const REFUSED: [&str; 5] = ["flatten", "untagged", "tag", "content", "skip_serializing_if"];

/// Checks the attributes of a type, its variants and its fields.
pub(crate) fn check_serde(input: &DeriveInput, errors: &Errors) {
    attributes(&input.attrs, errors);
    let fields: Vec<&syn::Fields> = match &input.data {
        Data::Struct(data) => vec![&data.fields],
        Data::Enum(data) => {
            for variant in &data.variants {
                attributes(&variant.attrs, errors);
            }
            data.variants.iter().map(|variant| &variant.fields).collect()
        }
        Data::Union(_) => Vec::new(),
    };
    for field in fields.into_iter().flatten() {
        attributes(&field.attrs, errors);
    }
}

fn attributes(attrs: &[Attribute], errors: &Errors) {
    let metas: Vec<Meta> = attrs
        .iter()
        .filter(|attr| attr.path().is_ident("serde"))
        .flat_map(|attr| match &attr.meta {
            Meta::List(list) => parsed(list.tokens.clone()),
            _ => Vec::new(),
        })
        .collect();
    let has = |key: &str| metas.iter().any(|meta| meta.path().is_ident(key));
    for meta in &metas {
        let key = meta.path().to_token_stream().to_string();
        let one_sided = match key.as_str() {
            "skip_serializing" => !has("skip_deserializing"),
            "skip_deserializing" => !has("skip_serializing"),
            _ => false,
        };
        if one_sided {
            errors.on(meta.path(), words::one_sided_skip(&key));
        } else if REFUSED.contains(&key.as_str()) {
            errors.on(meta.path(), words::serde_attribute(&key));
        }
    }
}

/// serde itself says what is wrong with an attribute that does not parse.
fn parsed(tokens: TokenStream) -> Vec<Meta> {
    let parser = |input: ParseStream<'_>| Punctuated::<Meta, Token![,]>::parse_terminated(input);
    syn::parse::Parser::parse2(parser, tokens)
        .map_or_else(|_| Vec::new(), |metas| metas.into_iter().collect())
}

//! serde attributes whose bytes cannot be read back.

use crate::errors::Errors;
use crate::words;
use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::{Attribute, Data, DeriveInput, ItemEnum, Meta, Token};

const REFUSED: [&str; 5] = ["flatten", "untagged", "tag", "content", "skip_serializing_if"];

/// Attributes of a variant that count the variants differently on the two sides, or lose count.
const REFUSED_ON_VARIANTS: [&str; 4] = ["skip", "skip_serializing", "skip_deserializing", "other"];

/// What an attribute stands on.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Type,
    Variant,
    Field,
}

/// Checks the attributes of a type, its variants and its fields.
pub(crate) fn check_serde(input: &DeriveInput, errors: &Errors) {
    attributes(&input.attrs, Place::Type, errors);
    let fields: Vec<&syn::Fields> = match &input.data {
        Data::Struct(data) => vec![&data.fields],
        Data::Enum(data) => {
            for variant in &data.variants {
                attributes(&variant.attrs, Place::Variant, errors);
            }
            data.variants.iter().map(|variant| &variant.fields).collect()
        }
        Data::Union(_) => Vec::new(),
    };
    for field in fields.into_iter().flatten() {
        attributes(&field.attrs, Place::Field, errors);
    }
}

/// Checks a command enum, and takes out what is refused: serde would complain about some of it a second time.
pub(crate) fn without_refused_serde(item: &mut ItemEnum, errors: &Errors) {
    let on_enum: Vec<Meta> = item.attrs.iter().flat_map(metas).collect();
    for meta in on_enum.iter().filter(|meta| meta.path().is_ident("crate")) {
        errors.on(meta.path(), words::SERDE_CRATE);
    }
    attributes(&item.attrs, Place::Type, errors);
    strip(&mut item.attrs, Place::Type);
    for variant in &mut item.variants {
        attributes(&variant.attrs, Place::Variant, errors);
        strip(&mut variant.attrs, Place::Variant);
        for field in &mut variant.fields {
            attributes(&field.attrs, Place::Field, errors);
            strip(&mut field.attrs, Place::Field);
        }
    }
}

/// Leaves the serde attributes that may stay.
fn strip(attrs: &mut [Attribute], place: Place) {
    let all: Vec<Meta> = attrs.iter().flat_map(metas).collect();
    for attr in attrs.iter_mut() {
        let before = metas(attr);
        let may_stay = |meta: &&Meta| !meta.path().is_ident("crate") && refusal(meta, &all, place).is_none();
        let kept: Vec<&Meta> = before.iter().filter(may_stay).collect();
        if let (Meta::List(list), true) = (&mut attr.meta, kept.len() < before.len()) {
            list.tokens = quote!(#(#kept),*);
        }
    }
}

fn attributes(attrs: &[Attribute], place: Place, errors: &Errors) {
    let all: Vec<Meta> = attrs.iter().flat_map(metas).collect();
    let has_tag = all.iter().any(|meta| meta.path().is_ident("tag"));
    for meta in &all {
        // `content` goes with `tag`, and is no second mistake.
        let said = has_tag && meta.path().is_ident("content");
        if let (Some(message), false) = (refusal(meta, &all, place), said) {
            errors.on(meta.path(), message);
        }
    }
}

/// Why one of these attributes is refused, if it is.
fn refusal(meta: &Meta, all: &[Meta], place: Place) -> Option<String> {
    let has = |key: &str| all.iter().any(|meta| meta.path().is_ident(key));
    let key = meta.path().to_token_stream().to_string();
    if place == Place::Variant && REFUSED_ON_VARIANTS.contains(&key.as_str()) {
        return Some(words::serde_on_variant(&key));
    }
    let one_sided = match key.as_str() {
        "skip_serializing" => !has("skip_deserializing"),
        "skip_deserializing" => !has("skip_serializing"),
        _ => false,
    };
    if one_sided {
        return Some(words::one_sided_skip(&key));
    }
    REFUSED.contains(&key.as_str()).then(|| words::serde_attribute(&key))
}

/// The parts of a `#[serde(...)]`.
fn metas(attr: &Attribute) -> Vec<Meta> {
    match &attr.meta {
        Meta::List(list) if attr.path().is_ident("serde") => parsed(list.tokens.clone()),
        _ => Vec::new(),
    }
}

/// serde itself says what is wrong with an attribute that does not parse.
fn parsed(tokens: TokenStream) -> Vec<Meta> {
    let parser = |input: ParseStream<'_>| Punctuated::<Meta, Token![,]>::parse_terminated(input);
    syn::parse::Parser::parse2(parser, tokens)
        .map_or_else(|_| Vec::new(), |metas| metas.into_iter().collect())
}

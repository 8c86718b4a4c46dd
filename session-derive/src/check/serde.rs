//! serde attributes whose bytes cannot be read back.

use crate::errors::Errors;
use crate::names::near;
use crate::words;
use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::{Attribute, Data, DeriveInput, Expr, ExprLit, ItemEnum, Lit, Meta, Token};

const REFUSED: [&str; 5] = ["flatten", "untagged", "tag", "content", "skip_serializing_if"];

/// Attributes of a variant that count the variants differently on the two sides, or lose count.
const REFUSED_ON_VARIANTS: [&str; 4] = ["skip", "skip_serializing", "skip_deserializing", "other"];

/// Attributes of an enum by which it would be written as something else than its variant and fields.
const REFUSED_ON_COMMANDS: [&str; 7] =
    ["transparent", "variant_identifier", "field_identifier", "remote", "from", "try_from", "into"];

/// What stands behind a key.
#[derive(Clone, Copy)]
enum Form {
    Nothing,
    Text,
    TextOrNothing,
    /// A text, or one for each side: `rename(serialize = "...", deserialize = "...")`.
    TextOrTwo,
}

/// The keys serde knows, by where they may stand.
const ON_TYPES: [(&str, Form); 19] = [
    ("bound", Form::TextOrTwo),
    ("content", Form::Text),
    ("crate", Form::Text),
    ("default", Form::TextOrNothing),
    ("deny_unknown_fields", Form::Nothing),
    ("expecting", Form::Text),
    ("field_identifier", Form::Nothing),
    ("from", Form::Text),
    ("into", Form::Text),
    ("non_exhaustive", Form::Nothing),
    ("remote", Form::Text),
    ("rename", Form::TextOrTwo),
    ("rename_all", Form::TextOrTwo),
    ("rename_all_fields", Form::TextOrTwo),
    ("tag", Form::Text),
    ("transparent", Form::Nothing),
    ("try_from", Form::Text),
    ("untagged", Form::Nothing),
    ("variant_identifier", Form::Nothing),
];
const ON_VARIANTS: [(&str, Form); 13] = [
    ("alias", Form::Text),
    ("borrow", Form::TextOrNothing),
    ("bound", Form::TextOrTwo),
    ("deserialize_with", Form::Text),
    ("other", Form::Nothing),
    ("rename", Form::TextOrTwo),
    ("rename_all", Form::TextOrTwo),
    ("serialize_with", Form::Text),
    ("skip", Form::Nothing),
    ("skip_deserializing", Form::Nothing),
    ("skip_serializing", Form::Nothing),
    ("untagged", Form::Nothing),
    ("with", Form::Text),
];
const ON_FIELDS: [(&str, Form); 14] = [
    ("alias", Form::Text),
    ("borrow", Form::TextOrNothing),
    ("bound", Form::TextOrTwo),
    ("default", Form::TextOrNothing),
    ("deserialize_with", Form::Text),
    ("flatten", Form::Nothing),
    ("getter", Form::Text),
    ("rename", Form::TextOrTwo),
    ("serialize_with", Form::Text),
    ("skip", Form::Nothing),
    ("skip_deserializing", Form::Nothing),
    ("skip_serializing", Form::Nothing),
    ("skip_serializing_if", Form::Text),
    ("with", Form::Text),
];

/// What an attribute stands on.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Type,
    Variant,
    Field,
}

impl Place {
    fn keys(self) -> &'static [(&'static str, Form)] {
        match self {
            Self::Type => &ON_TYPES,
            Self::Variant => &ON_VARIANTS,
            Self::Field => &ON_FIELDS,
        }
    }
}

impl Form {
    fn fits(self, meta: &Meta) -> bool {
        let is_text = |value: &Expr| matches!(value, Expr::Lit(ExprLit { lit: Lit::Str(_), .. }));
        match (self, meta) {
            (Self::Nothing | Self::TextOrNothing, Meta::Path(_)) | (Self::TextOrTwo, Meta::List(_)) => true,
            (Self::Text | Self::TextOrNothing | Self::TextOrTwo, Meta::NameValue(pair)) => {
                // A macro such as `concat!` may make the text: serde sees to that.
                is_text(&pair.value) || !matches!(pair.value, Expr::Lit(_))
            }
            _ => false,
        }
    }
}

/// Why one of these attributes of a command is refused. What serde does not know is among it: serde would say so,
/// but leave the command without its impls, and the compiler would miss them everywhere.
fn refusal_of_command(meta: &Meta, all: &[Meta], place: Place) -> Option<String> {
    let key = meta.path().to_token_stream().to_string();
    let Some((_, form)) = place.keys().iter().find(|(known, _)| *known == key) else {
        return Some(words::unknown_serde(&key, near(&key, place.keys().iter().map(|(known, _)| *known))));
    };
    if place == Place::Type && REFUSED_ON_COMMANDS.contains(&key.as_str()) {
        return Some(words::serde_on_command(&key));
    }
    if !form.fits(meta) && key != "crate" {
        return Some(words::serde_form(&key, matches!(form, Form::Nothing)));
    }
    refusal(meta, all, place)
}

/// Checks the attributes of a type, its variants and its fields.
pub(crate) fn check_serde(input: &DeriveInput, errors: &Errors) {
    attributes(&input.attrs, Place::Type, refusal, errors);
    let fields: Vec<&syn::Fields> = match &input.data {
        Data::Struct(data) => vec![&data.fields],
        Data::Enum(data) => {
            for variant in &data.variants {
                attributes(&variant.attrs, Place::Variant, refusal, errors);
            }
            data.variants.iter().map(|variant| &variant.fields).collect()
        }
        Data::Union(_) => Vec::new(),
    };
    for field in fields.into_iter().flatten() {
        attributes(&field.attrs, Place::Field, refusal, errors);
    }
}

/// Checks a command enum, and takes out what is refused: serde would complain about some of it a second time.
pub(crate) fn without_refused_serde(item: &mut ItemEnum, errors: &Errors) {
    let on_enum: Vec<Meta> = item.attrs.iter().flat_map(metas).collect();
    for meta in on_enum.iter().filter(|meta| meta.path().is_ident("crate")) {
        errors.on(meta.path(), words::SERDE_CRATE);
    }
    attributes(&item.attrs, Place::Type, refusal_of_command, errors);
    strip(&mut item.attrs, Place::Type);
    for variant in &mut item.variants {
        attributes(&variant.attrs, Place::Variant, refusal_of_command, errors);
        strip(&mut variant.attrs, Place::Variant);
        for field in &mut variant.fields {
            attributes(&field.attrs, Place::Field, refusal_of_command, errors);
            strip(&mut field.attrs, Place::Field);
        }
    }
}

/// Leaves the serde attributes that may stay.
fn strip(attrs: &mut [Attribute], place: Place) {
    let all: Vec<Meta> = attrs.iter().flat_map(metas).collect();
    for attr in attrs.iter_mut() {
        let before = metas(attr);
        let may_stay =
            |meta: &&Meta| !meta.path().is_ident("crate") && refusal_of_command(meta, &all, place).is_none();
        let kept: Vec<&Meta> = before.iter().filter(may_stay).collect();
        if let (Meta::List(list), true) = (&mut attr.meta, kept.len() < before.len()) {
            list.tokens = quote!(#(#kept),*);
        }
    }
}

/// Says why an attribute among these is refused.
type Refusal = fn(&Meta, &[Meta], Place) -> Option<String>;

fn attributes(attrs: &[Attribute], place: Place, refusal: Refusal, errors: &Errors) {
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

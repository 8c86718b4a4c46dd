//! `derive(State)`: each field is a key of the snapshot.

use super::{allow_deprecated, input, mentions, name_behind, placed, text_of};
use crate::errors::Errors;
use crate::names::type_text;
use crate::parse::{default_crate, is_misvouched, reason, since_of};
use crate::words;
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Field, Fields, Ident, LitStr, Path, Token, parse_quote};

/// What stands on the struct.
struct StateArgs {
    krate: Path,
    dropped: Vec<LitStr>,
}

/// A field and what its attributes say.
#[allow(clippy::struct_excessive_bools)] // each is an attribute that is there or not
struct StateField<'a> {
    field: &'a Field,
    name: &'a Ident,
    per_entry: bool,
    shared: bool,
    default: bool,
    was: Option<LitStr>,
    since: Option<u32>,
    vouched: bool,
}

pub(crate) fn derive_state(tokens: &TokenStream) -> TokenStream {
    let item = match input(tokens.clone()) {
        Ok(item) => item,
        Err(errors) => {
            let fallback = half_typed(tokens);
            return quote!(#fallback #errors);
        }
    };
    let errors = Errors::new();
    let args = StateArgs::of(&item, &errors);
    let is_misvouched = is_misvouched(&item, &errors);
    if let Some(attr) = item.attrs.iter().find(|attr| attr.path().is_ident("since")) {
        errors.on(attr, words::SINCE_ON_TYPE);
    }
    let mut fields: Vec<StateField<'_>> = match &item.data {
        Data::Struct(data) => match &data.fields {
            Fields::Unnamed(fields) => {
                errors.on(&fields.unnamed, words::STATE_TUPLE);
                Vec::new()
            }
            fields => fields.iter().filter_map(|field| StateField::of(field, &errors)).collect(),
        },
        Data::Enum(data) => {
            errors.on(&data.enum_token, words::STATE_NOT_STRUCT);
            Vec::new()
        }
        Data::Union(data) => {
            errors.on(&data.union_token, words::STATE_NOT_STRUCT);
            Vec::new()
        }
    };
    for field in &mut fields {
        field.vouched |= is_misvouched;
    }
    check_names(&fields, &args.dropped, &errors);
    let implementation = implementation(&item, &args, &fields);
    let errors = errors.finish();
    quote!(#implementation #errors)
}

/// A struct that does not parse is a state all the same: that it is none would be one more mistake.
fn half_typed(item: &TokenStream) -> Option<TokenStream> {
    let ident = name_behind("struct", item)?;
    let krate = default_crate();
    let problem = words::STATE_HALF_TYPED;
    Some(quote! {
        impl #krate::State for #ident {
            const FIELDS: &'static [#krate::schema::StateField] = &[];

            fn save(&self, _: &mut #krate::StateWriter) -> ::core::result::Result<(), #krate::StateError> {
                ::core::result::Result::Err(#krate::StateError {
                    field: ::std::string::String::new(),
                    problem: ::std::string::String::from(#problem),
                })
            }

            fn load(_: &mut #krate::StateReader<'_>) -> ::core::result::Result<Self, #krate::SnapshotError> {
                ::core::result::Result::Err(#krate::SnapshotError::NotASnapshot)
            }
        }
    })
}

impl StateArgs {
    fn of(item: &DeriveInput, errors: &Errors) -> Self {
        let mut args = Self { krate: default_crate(), dropped: Vec::new() };
        for attr in item.attrs.iter().filter(|attr| attr.path().is_ident("state")) {
            let parsed = attr.parse_nested_meta(|meta| {
                let key = meta.path.to_token_stream().to_string();
                match key.as_str() {
                    "crate" => args.krate = meta.value()?.call(Path::parse_mod_style)?,
                    "dropped" => match dropped(&meta) {
                        Ok(names) => args.dropped.extend(names),
                        Err(_) => return Err(meta.error(words::DROPPED_FORM)),
                    },
                    key => {
                        errors.on(&meta.path, words::state_key(key, true));
                        skip(&meta)?;
                    }
                }
                Ok(())
            });
            if let Err(error) = parsed {
                errors.push(error);
            }
        }
        args
    }
}

fn dropped(meta: &ParseNestedMeta<'_>) -> syn::Result<Vec<LitStr>> {
    let content;
    syn::parenthesized!(content in meta.input);
    let names = content.parse_terminated(<LitStr as syn::parse::Parse>::parse, Token![,])?;
    Ok(names.into_iter().collect())
}

/// Leaves out the value of an unknown key.
fn skip(meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
    while !meta.input.is_empty() && !meta.input.peek(Token![,]) {
        meta.input.parse::<proc_macro2::TokenTree>()?;
    }
    Ok(())
}

impl<'a> StateField<'a> {
    fn of(field: &'a Field, errors: &Errors) -> Option<Self> {
        let mut found = Self {
            field,
            name: field.ident.as_ref()?,
            per_entry: false,
            shared: false,
            default: false,
            was: None,
            since: since_of(&field.attrs, errors),
            vouched: reason(&field.attrs, "assume_deterministic", errors).is_some(),
        };
        let mut seen: Vec<String> = Vec::new();
        for attr in field.attrs.iter().filter(|attr| attr.path().is_ident("state")) {
            let parsed = attr.parse_nested_meta(|meta| {
                let key = meta.path.to_token_stream().to_string();
                if seen.contains(&key) {
                    errors.on(&meta.path, words::repeated_key(&key));
                }
                seen.push(key.clone());
                let is_bare = meta.input.is_empty() || meta.input.peek(Token![,]);
                if matches!(key.as_str(), "per_entry" | "shared" | "default") && !is_bare {
                    errors.on(&meta.path, words::state_key_takes_nothing(&key));
                    skip(&meta)?;
                }
                match key.as_str() {
                    "per_entry" => found.per_entry = true,
                    "shared" => found.shared = true,
                    "default" => {
                        found.default = true;
                        if found.since.is_some() {
                            errors.on(&meta.path, words::DEFAULT_AND_SINCE);
                        }
                    }
                    "was" => match meta.value().and_then(syn::parse::ParseBuffer::parse::<LitStr>) {
                        Ok(was) => found.was = Some(was),
                        Err(_) => return Err(meta.error(words::WAS_FORM)),
                    },
                    "skip" => {
                        errors.on(&meta.path, words::STATE_SKIP);
                        skip(&meta)?;
                    }
                    key => {
                        errors.on(&meta.path, words::state_key(key, false));
                        skip(&meta)?;
                    }
                }
                Ok(())
            });
            if let Err(error) = parsed {
                errors.push(error);
            }
        }
        Some(found)
    }
}

/// No two fields may claim one key of an old snapshot.
fn check_names(fields: &[StateField<'_>], dropped: &[LitStr], errors: &Errors) {
    let names: Vec<String> = fields.iter().map(|field| text_of(field.name)).collect();
    let mut former: Vec<String> = Vec::new();
    for (field, name) in fields.iter().zip(&names) {
        let Some(was) = &field.was else { continue };
        let text = was.value();
        if syn::parse_str::<Ident>(&text).is_err() && syn::parse_str::<Ident>(&format!("r#{text}")).is_err() {
            errors.on(was, words::WAS_EMPTY);
        } else if text == *name {
            errors.on(was, words::WAS_ITSELF);
        } else if names.contains(&text) || former.contains(&text) {
            errors.on(was, words::listed_twice(&text));
        }
        former.push(text);
    }
    for name in dropped {
        let text = name.value();
        if names.contains(&text) {
            errors.on(name, words::still_a_field(&text));
        } else if former.contains(&text) {
            errors.on(name, words::listed_twice(&text));
        }
        former.push(text);
    }
}

fn implementation(item: &DeriveInput, args: &StateArgs, fields: &[StateField<'_>]) -> TokenStream {
    let StateArgs { krate, dropped } = args;
    let out = format_ident!("__out", span = Span::mixed_site());
    let from = format_ident!("__from", span = Span::mixed_site());
    let rows = fields.iter().map(|field| row(krate, field));
    let saves = fields.iter().map(|field| save(krate, field, &out));
    let loads = fields.iter().map(|field| load(krate, field, &from));
    let generics = with_field_bounds(item, krate, fields);
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let ident = &item.ident;
    // A state without fields, or one that was not understood, has nothing to load.
    let loads = if matches!(&item.data, Data::Struct(data) if !matches!(data.fields, Fields::Unnamed(_))) {
        quote! {
            ::core::result::Result::Ok(Self { #(#loads)* })
        }
    } else {
        quote!(::core::result::Result::Err(#krate::SnapshotError::NotASnapshot))
    };
    let attrs = fields.iter().map(|field| field.field.attrs.as_slice());
    let deprecated = allow_deprecated(attrs.chain([item.attrs.as_slice()]));
    quote! {
        #deprecated
        #[automatically_derived]
        impl #impl_generics #krate::State for #ident #type_generics #where_clause {
            const FIELDS: &'static [#krate::schema::StateField] = &[#(#rows),*];
            const DROPPED: &'static [&'static ::core::primitive::str] = &[#(#dropped),*];

            fn save(&self, #out: &mut #krate::StateWriter) -> ::core::result::Result<(), #krate::StateError> {
                #(#saves)*
                let _ = #out;
                ::core::result::Result::Ok(())
            }

            fn load(
                #from: &mut #krate::StateReader<'_>,
            ) -> ::core::result::Result<Self, #krate::SnapshotError> {
                let _ = &#from;
                #loads
            }
        }
    }
}

fn row(krate: &Path, field: &StateField<'_>) -> TokenStream {
    let name = text_of(field.name);
    // How a map is stored is part of its shape: its keys in the snapshot depend on it.
    let stored = if field.per_entry { "per_entry " } else { "" };
    let ty = format!("{stored}{}", type_text(&field.field.ty));
    let since = field.since.unwrap_or(1);
    let default = field.default;
    let was = field.was.as_ref().map(|was| quote!(Some(#was)));
    let was = was.unwrap_or_else(|| quote!(None));
    quote! {
        #krate::schema::StateField { name: #name, ty: #ty, since: #since, default: #default, was: ::core::option::Option::#was }
    }
}

/// The role in which the field is stored. The same words are used for saving and for loading, so that a type
/// that does not fit is one error: the compiler says the same thing about the same place only once.
fn role(krate: &impl ToTokens, field: &StateField<'_>) -> TokenStream {
    let role = match (field.per_entry, field.shared) {
        (false, false) => "PlainField",
        (false, true) => "SharedField",
        (true, false) => "EntryField",
        (true, true) => "SharedEntryField",
    };
    let by = if field.vouched { "Vouched" } else { "Proven" };
    let ty = &field.field.ty;
    let role = Ident::new(role, ty.span());
    let by = Ident::new(by, ty.span());
    let krate = placed(krate, ty.span());
    quote_spanned!(ty.span()=> <#ty as #krate::__private::#role<#krate::__private::#by>>)
}

fn save(krate: &Path, field: &StateField<'_>, out: &Ident) -> TokenStream {
    let member = field.name;
    let name = text_of(member);
    let ty = &field.field.ty;
    let krate = &placed(krate, ty.span());
    let role = role(krate, field);
    let save = quote_spanned!(ty.span()=> #role::save(&self.#member, #name, #out)?;);
    if field.since.is_some() {
        quote_spanned! {ty.span()=>
            if <#ty as #krate::__private::Defaulted>::is_active(&self.#member, #name, #out)? { #save }
        }
    } else {
        save
    }
}

fn load(krate: &Path, field: &StateField<'_>, from: &Ident) -> TokenStream {
    let member = field.name;
    let name = text_of(member);
    let ty = &field.field.ty;
    let krate = &placed(krate, ty.span());
    let role = role(krate, field);
    let load = quote_spanned!(ty.span()=> #role::load(#name, #from)?);
    if field.since.is_some() || field.default {
        quote_spanned! {ty.span()=>
            #member: if #from.is_present(#name)? { #load } else { <#ty as #krate::__private::Defaulted>::absent() },
        }
    } else {
        quote_spanned!(ty.span()=> #member: #load,)
    }
}

/// A field whose type names a parameter of the struct must fit for the arguments it is given.
fn with_field_bounds(item: &DeriveInput, krate: &Path, fields: &[StateField<'_>]) -> syn::Generics {
    let mut generics = item.generics.clone();
    let types = generics.type_params().map(|param| &param.ident);
    let params = types.chain(generics.const_params().map(|param| &param.ident));
    let params: Vec<String> = params.map(ToString::to_string).collect();
    let depending = fields.iter().filter(|field| mentions(&field.field.ty, &params));
    let predicates: Vec<syn::WherePredicate> = depending
        .map(|field| {
            let ty = &field.field.ty;
            let bound = role_bound(krate, field);
            parse_quote!(#ty: #bound)
        })
        .collect();
    if !predicates.is_empty() {
        generics.make_where_clause().predicates.extend(predicates);
    }
    generics
}

fn role_bound(krate: &Path, field: &StateField<'_>) -> TokenStream {
    let role = match (field.per_entry, field.shared) {
        (false, false) => quote!(PlainField),
        (false, true) => quote!(SharedField),
        (true, false) => quote!(EntryField),
        (true, true) => quote!(SharedEntryField),
    };
    let by = if field.vouched { quote!(Vouched) } else { quote!(Proven) };
    let defaulted = (field.since.is_some() || field.default).then(|| quote!(+ #krate::__private::Defaulted));
    quote!(#krate::__private::#role<#krate::__private::#by> #defaulted)
}

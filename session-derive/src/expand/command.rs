//! The enum of the commands.

use super::wire::{CheckedTypes, Twin};
use super::{
    allow_deprecated, ends, generated_name, input, mentions, name_behind, placed, serde_path, text_of,
    without_attributes, without_self,
};
use crate::check::{check_serde, without_refused_serde};
use crate::errors::Errors;
use crate::model::MARKERS;
use crate::names::{handler_of, type_text, variant_text};
use crate::parse::{Args, cfgs, default_crate, is_misvouched, reason, since_number, since_of};
use crate::words;
use proc_macro2::{Literal, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Data, DeriveInput, Field, Fields, Generics, Ident, ItemEnum, Meta, Path, Token, Variant,
};

/// What the attribute derives, and a user must not derive again.
const DERIVED: [&str; 3] = ["Serialize", "Deserialize", "Deterministic"];

/// The attributes that mean something to what is derived only.
const HELPERS: [&str; 3] = ["since", "serde", "assume_deterministic"];

/// The attribute re-emits the enum with derives: they see it after `cfg` was evaluated.
pub(super) fn attribute(args: TokenStream, item: &TokenStream) -> TokenStream {
    let errors = Errors::new();
    let args = Args::of_enum(args, &errors);
    let mut enumeration: ItemEnum = match syn::parse2(item.clone()) {
        Ok(enumeration) => enumeration,
        Err(error) => {
            errors.push(error);
            return half_typed(&args.krate(), item, &errors.finish());
        }
    };
    let krate = args.krate();
    without_repeated_attribute(&mut enumeration.attrs, &errors);
    without_markers(&mut enumeration, &errors);
    let generic = enumeration.generics.params.first();
    if let Some(first) = generic {
        errors.on(first, words::GENERIC_COMMAND);
    }
    without_second_derives(&mut enumeration.attrs, &errors);
    without_malformed_since(&mut enumeration, &errors);
    let before = errors.count();
    check_cfgs(&enumeration, &errors);
    check_twins(&enumeration, &errors);
    let sound = errors.count() == before;
    without_refused_serde(&mut enumeration, &errors);
    // Nothing can be said about a generic command, so nothing is derived for it.
    if !enumeration.generics.params.is_empty() {
        let own = without_attributes(enumeration.to_token_stream(), &HELPERS);
        let mistaken = mistaken(&krate, &enumeration.ident, &enumeration.generics, &errors.finish());
        return quote!(#own #mistaken);
    }
    // Where a variant is under `cfg`, the derive is told about all of them, and sees whether one is missing.
    let conditional = sound && enumeration.variants.iter().any(is_conditional);
    let all = conditional.then(|| names(&enumeration));
    let all = all.into_iter().flatten();
    // serde's attributes mean something to serde's derives only.
    let (import, serde) = if mentions(&enumeration, &["serde".to_owned()]) {
        let (import, path) = serde_path(&krate, &enumeration.ident);
        let serde = quote!(#krate::__private::serde);
        let derives = quote! {
            #[derive(#serde::Serialize, #serde::Deserialize)]
            #[serde(crate = #path)]
        };
        (import, derives)
    } else {
        Default::default()
    };
    let errors = errors.finish();
    quote! {
        #import
        #serde
        #[derive(#krate::__private::SessionCommand)]
        #[session_enum(#krate #(, #all)*)]
        #enumeration
        #errors
    }
}

/// An enum that does not parse.
fn half_typed(krate: &Path, item: &TokenStream, errors: &TokenStream) -> TokenStream {
    let own = without_attributes(item.clone(), &HELPERS);
    let Some(ident) = name_behind("enum", item) else {
        return quote!(#own #errors);
    };
    let mistaken = mistaken(krate, &ident, &Generics::default(), errors);
    quote!(#own #mistaken)
}

/// What an enum of commands has, for one that is none. The mistake stands in for the table of its variants: whatever
/// asks for that finds a mistake that has been said, and says nothing.
fn mistaken(krate: &Path, ident: &Ident, generics: &Generics, errors: &TokenStream) -> TokenStream {
    let serde = quote!(#krate::__private::serde);
    let result = quote!(::core::result::Result);
    let (impl_generics, own, where_clause) = generics.split_for_impl();
    let mut with_de = generics.clone();
    with_de.params.insert(0, syn::parse_quote!('de));
    let (with_de, ..) = with_de.split_for_impl();
    quote! {
        const _: () = {
            impl #impl_generics #krate::Deterministic for #ident #own #where_clause {}
            impl #impl_generics #serde::Serialize for #ident #own #where_clause {
                fn serialize<__S: #serde::Serializer>(&self, _: __S) -> #result<__S::Ok, __S::Error> {
                    ::core::unreachable!()
                }
            }
            impl #with_de #serde::Deserialize<'de> for #ident #own #where_clause {
                fn deserialize<__D: #serde::Deserializer<'de>>(_: __D) -> #result<Self, __D::Error> {
                    ::core::unreachable!()
                }
            }
            impl #impl_generics #krate::Command for #ident #own #where_clause {
                const VARIANTS: &'static [#krate::schema::Variant] = { #errors };
                fn variant(&self) -> ::core::primitive::usize { 0 }
            }
            impl #impl_generics #krate::__private::Mirrored for #ident #own #where_clause {
                type Mirror = Self;
                fn into_mirror(self) -> Self { self }
                fn from_mirror(mirror: Self) -> Self { mirror }
            }
        };
    }
}

/// Takes out a second attribute of ours, which would do everything once more.
pub(super) fn without_repeated_attribute(attrs: &mut Vec<Attribute>, errors: &Errors) {
    let is_ours = |attr: &Attribute| {
        attr.path().segments.last().is_some_and(|segment| segment.ident == "state_machine")
    };
    for attr in attrs.iter().filter(|attr| is_ours(attr)) {
        errors.on(attr, words::TWICE);
    }
    attrs.retain(|attr| !is_ours(attr));
}

/// Takes out what belongs on a handler.
fn without_markers(enumeration: &mut ItemEnum, errors: &Errors) {
    for variant in &mut enumeration.variants {
        let (name, handler) = (text_of(&variant.ident), handler_of(&variant.ident));
        variant.attrs.retain(|attr| {
            let marker = MARKERS.iter().find(|marker| attr.path().is_ident(marker));
            let marker = marker.filter(|marker| **marker != "assume_deterministic");
            if let Some(marker) = marker {
                errors.on(attr, words::marker_of_handler(marker, &name, &handler));
            }
            marker.is_none()
        });
    }
}

/// Puts the version above in the place of one that is none: rustc would refuse what is no literal a second time.
fn without_malformed_since(enumeration: &mut ItemEnum, errors: &Errors) {
    let mut above = 1;
    for variant in &mut enumeration.variants {
        for attr in variant.attrs.iter_mut().filter(|attr| attr.path().is_ident("since")) {
            if let Some(number) = since_number(attr) {
                above = number;
            } else {
                errors.on(&*attr, words::SINCE_FORM);
                let above = Literal::u32_unsuffixed(above);
                *attr = syn::parse_quote!(#[since = #above]);
            }
        }
    }
}

fn is_conditional(variant: &Variant) -> bool {
    variant.attrs.iter().any(|attr| attr.path().is_ident("cfg") || attr.path().is_ident("cfg_attr"))
}

/// The variants of all builds, twins once.
fn names(enumeration: &ItemEnum) -> Vec<Ident> {
    let mut names: Vec<Ident> = Vec::new();
    for variant in &enumeration.variants {
        if !names.contains(&variant.ident) {
            names.push(variant.ident.clone());
        }
    }
    names
}

/// Takes a second derive of what is derived here out of the list, and says so.
fn without_second_derives(attrs: &mut [Attribute], errors: &Errors) {
    let mut second: Vec<Path> = Vec::new();
    for attr in attrs.iter_mut().filter(|attr| attr.path().is_ident("derive")) {
        let Ok(paths) = attr.parse_args_with(Punctuated::<Path, Token![,]>::parse_terminated) else {
            continue;
        };
        let (repeated, kept): (Vec<Path>, Vec<Path>) = paths.into_iter().partition(|path| {
            let last = path.segments.last().map(|segment| segment.ident.to_string());
            last.is_some_and(|last| DERIVED.contains(&last.as_str()))
        });
        if let (Meta::List(list), false) = (&mut attr.meta, repeated.is_empty()) {
            list.tokens = quote!(#(#kept),*);
        }
        second.extend(repeated);
    }
    let last = |path: &Path| path.segments.last().map(|segment| segment.ident.to_string());
    let names: Vec<String> = second.iter().filter_map(last).collect();
    if let Some(first) = second.first() {
        errors.on(first, words::derived_already(&names));
    }
}

/// Only the last variant may be under `cfg`; twins of one name count once.
fn check_cfgs(enumeration: &ItemEnum, errors: &Errors) {
    let last = enumeration.variants.last().map(|variant| &variant.ident);
    for variant in &enumeration.variants {
        let twins = |other: &&Variant| other.ident == variant.ident;
        let is_twin = enumeration.variants.iter().filter(twins).count() > 1;
        if let (Some(cfg), false, false) =
            (cfgs(&variant.attrs).first(), last == Some(&variant.ident), is_twin)
        {
            errors.on(*cfg, words::CFG_NOT_LAST);
        }
        for field in &variant.fields {
            for cfg in cfgs(&field.attrs) {
                errors.on(cfg, words::CFG_FIELD);
            }
        }
    }
}

/// Twins are one command in different builds, so they are alike inside.
fn check_twins(enumeration: &ItemEnum, errors: &Errors) {
    let conditional = || enumeration.variants.iter().filter(|variant| is_conditional(variant));
    for variant in conditional() {
        let first = conditional().find(|other| other.ident == variant.ident);
        if first.is_some_and(|first| inside(first) != inside(variant)) {
            errors.on(&variant.ident, words::twins_differ(&text_of(&variant.ident)));
        }
    }
}

/// What is inside a command, as text: its `since`, its fields, and what serde is told about them.
fn inside(variant: &Variant) -> String {
    let mut variant = variant.clone();
    variant.discriminant = None;
    let is_inside = |attr: &Attribute| attr.path().is_ident("serde") || attr.path().is_ident("since");
    variant.attrs.retain(is_inside);
    for field in &mut variant.fields {
        field.attrs.retain(is_inside);
    }
    // A comma behind the last field is nothing.
    match &mut variant.fields {
        Fields::Named(fields) => fields.named.pop_punct(),
        Fields::Unnamed(fields) => fields.unnamed.pop_punct(),
        Fields::Unit => None,
    };
    variant.to_token_stream().to_string()
}

/// The hidden derive: the table of variants, the mirror, and the probes of the fields.
pub(crate) fn derive_command(item: TokenStream) -> TokenStream {
    let item = match input(item) {
        Ok(item) => item,
        Err(errors) => return errors,
    };
    let Data::Enum(data) = &item.data else {
        return TokenStream::new();
    };
    let errors = Errors::new();
    let (krate, all) = told(&item);
    check_serde(&item, &errors);
    let is_misvouched = is_misvouched(&item, &errors);
    let variants: Vec<&Variant> = data.variants.iter().collect();
    check_positions(&variants, &all, &errors);
    check_since(&item, &variants, &errors);
    let table = table(&krate, &variants, &errors);
    let command = command_impl(&krate, &item.ident, &variants, &table);
    let mirror = mirror(&krate, &item.ident, &variants, &absent(&variants, &all));
    let ident = &item.ident;
    let (serde, probes) = fields(&krate, &item, &variants, &errors);
    let probes = if is_misvouched { TokenStream::new() } else { probes };
    let deprecated = allow_deprecated([item.attrs.as_slice()]);
    let errors = errors.finish();
    quote! {
        #deprecated
        const _: () = {
            #[automatically_derived]
            impl #krate::Deterministic for #ident {}
            #serde
            #command
            #mirror
            const _: fn() = || { #probes };
        };
        #errors
    }
}

/// What the attribute told the derive: where the runtime is, and the variants of all builds.
fn told(item: &DeriveInput) -> (Path, Vec<Path>) {
    let attr = item.attrs.iter().find(|attr| attr.path().is_ident("session_enum"));
    let parser = Punctuated::<Path, Token![,]>::parse_terminated_with;
    let told = attr.and_then(|attr| {
        attr.parse_args_with(|input: ParseStream<'_>| parser(input, Path::parse_mod_style)).ok()
    });
    let mut told = told.into_iter().flatten();
    (told.next().unwrap_or_else(default_crate), told.collect())
}

/// No variant may have another tag in this build than in others.
fn check_positions(variants: &[&Variant], all: &[Path], errors: &Errors) {
    let shifted = variants.iter().zip(all).find(|(variant, expected)| !expected.is_ident(&variant.ident));
    if let Some((variant, _)) = shifted {
        errors.on(&variant.ident, words::CFG_SHIFTS);
    }
}

/// The variants that are not in this build.
fn absent(variants: &[&Variant], all: &[Path]) -> Vec<String> {
    let is_absent = |name: &&Path| !variants.iter().any(|variant| name.is_ident(&variant.ident));
    all.iter().filter(is_absent).filter_map(Path::get_ident).map(text_of).collect()
}

/// `since` is for variants.
fn check_since(item: &DeriveInput, variants: &[&Variant], errors: &Errors) {
    let since = |attrs: &[Attribute]| attrs.iter().find(|attr| attr.path().is_ident("since")).cloned();
    if let Some(attr) = since(&item.attrs) {
        errors.on(&attr, words::SINCE_ON_TYPE);
    }
    for field in variants.iter().flat_map(|variant| &variant.fields) {
        if let Some(attr) = since(&field.attrs) {
            errors.on(&attr, words::SINCE_ON_FIELD);
        }
    }
}

/// The hidden derive of a query enum: its serde impls.
pub(crate) fn derive_query(item: TokenStream) -> TokenStream {
    let item = match input(item) {
        Ok(item) => item,
        Err(errors) => return errors,
    };
    let Data::Enum(data) = &item.data else {
        return TokenStream::new();
    };
    let krate = told(&item).0;
    let mut checked = CheckedTypes::new(&krate, "check_query_argument");
    let twins = data.variants.iter().map(|variant| {
        let own = |field: &Field| field.ty.to_token_stream();
        let params = variant.fields.iter().map(|field| checked.add(&field.ty, &own(field)).0);
        twin(variant, &params.collect::<Vec<_>>())
    });
    let twins: Vec<Twin> = twins.collect();
    let serde = checked.serde_impls(&item.ident, &twins);
    quote!(const _: () = { #serde };)
}

/// The serde impls by a twin, and the probes of the fields. With serde attributes, serde's own derives are on the
/// enum.
fn fields(
    krate: &Path,
    item: &DeriveInput,
    variants: &[&Variant],
    errors: &Errors,
) -> (TokenStream, TokenStream) {
    let (ident, has_derives) = (&item.ident, item.attrs.iter().any(|attr| attr.path().is_ident("serde")));
    let mut checked = CheckedTypes::new(krate, "check_command_field");
    let mut probes = TokenStream::new();
    let mut twins: Vec<Twin> = Vec::new();
    for variant in variants {
        let mut params: Vec<Ident> = Vec::new();
        for field in &variant.fields {
            let own = without_self(field.ty.to_token_stream(), &ident.to_token_stream());
            let (param, alias) = checked.add(&field.ty, &own);
            params.push(param);
            if reason(&field.attrs, "assume_deterministic", errors).is_none() {
                let alias = (!has_derives).then_some(alias);
                probes.extend(probe(krate, &own, alias));
            }
        }
        twins.push(twin(variant, &params));
    }
    let serde = if has_derives { TokenStream::new() } else { checked.serde_impls(ident, &twins) };
    (serde, probes)
}

/// Asks the compiler whether a type is deterministic, beside an alias of it that says whether it is fit at all.
fn probe(krate: &Path, own: &TokenStream, alias: Option<Ident>) -> TokenStream {
    let (first, last) = ends(own.clone());
    let krate = placed(krate, last);
    let own = match alias {
        None => own.clone(),
        Some(alias) => {
            let open = quote_spanned!(first=> <);
            let rest = quote_spanned!(last=> as #krate::__private::Beside<#alias>>::Itself);
            quote!(#open #own #rest)
        }
    };
    quote_spanned!(last=> #krate::__private::is_deterministic::<#own>();)
}

fn twin(variant: &Variant, params: &[Ident]) -> Twin {
    let name = variant.ident.clone();
    let names = variant.fields.iter().map(|field| &field.ident);
    let declared = match &variant.fields {
        Fields::Unit => quote!(#name),
        Fields::Unnamed(_) => quote!(#name(#(#params),*)),
        Fields::Named(_) => quote!(#name { #(#names: #params),* }),
    };
    Twin { name, declared, fields: pattern(&variant.fields) }
}

fn table(krate: &Path, variants: &[&Variant], errors: &Errors) -> TokenStream {
    let mut highest = 1;
    let rows = variants.iter().map(|variant| {
        let name = text_of(&reachable(&variant.ident));
        if name != text_of(&variant.ident) {
            errors.on(&variant.ident, words::unreachable_variant(&text_of(&variant.ident)));
        }
        let since = since_of(&variant.attrs, errors).unwrap_or(1);
        if since < highest {
            errors.on(&variant.ident, words::since_decreases(&name, since, highest));
        }
        highest = highest.max(since);
        let fields = match &variant.fields {
            Fields::Unit => quote!(Unit),
            Fields::Unnamed(fields) => {
                let types = fields.unnamed.iter().map(|field| type_text(&field.ty));
                quote!(Tuple(&[#(#types),*]))
            }
            Fields::Named(fields) => {
                let rows = fields.named.iter().map(|field| {
                    let name = field.ident.as_ref().map(text_of);
                    let ty = type_text(&field.ty);
                    quote!((#name, #ty))
                });
                quote!(Struct(&[#(#rows),*]))
            }
        };
        quote! {
            #krate::schema::Variant {
                name: #name,
                fields: #krate::schema::Fields::#fields,
                since: #since,
            }
        }
    });
    let rows: Vec<TokenStream> = rows.collect();
    quote!(&[#(#rows),*])
}

/// The name under which handlers find a variant: its own, unless no handler can be named for that.
fn reachable(variant: &Ident) -> Ident {
    let text = variant_text(&handler_of(variant));
    if text == text_of(variant) {
        return variant.clone();
    }
    syn::parse_str::<Ident>(&text).map_or_else(|_| variant.clone(), |_| Ident::new(&text, variant.span()))
}

fn command_impl(krate: &Path, ident: &Ident, variants: &[&Variant], table: &TokenStream) -> TokenStream {
    let arms = variants.iter().enumerate().map(|(index, variant)| {
        let name = &variant.ident;
        quote!(Self::#name { .. } => #index,)
    });
    let scrutinee = if variants.is_empty() { quote!(*self) } else { quote!(self) };
    quote! {
        #[automatically_derived]
        impl #krate::Command for #ident {
            const VARIANTS: &'static [#krate::schema::Variant] = #table;

            #[inline]
            fn variant(&self) -> ::core::primitive::usize {
                match #scrutinee { #(#arms)* }
            }
        }
    }
}

/// The mirror: one tuple a variant, so that the impl block's expansion can match without knowing the shape.
fn mirror(krate: &Path, ident: &Ident, variants: &[&Variant], absent: &[String]) -> TokenStream {
    // A name that the fields' types do not use: inside the block it would stand before theirs.
    let types: TokenStream =
        variants.iter().flat_map(|variant| &variant.fields).map(|field| field.ty.to_token_stream()).collect();
    let names = ["Handlers", "Mirror"].map(|suffix| format!("{}{suffix}", ident.unraw()));
    let free = names.iter().find(|name| !mentions(&types, std::slice::from_ref(*name)));
    let mirror = generated_name(&Ident::new(free.map_or("__Mirror", String::as_str), ident.span()));
    let own = ident.to_token_stream();
    let tuples = variants.iter().map(|variant| {
        let name = reachable(&variant.ident);
        let types = variant.fields.iter().map(|field| without_self(field.ty.to_token_stream(), &own));
        quote!(#name((#(#types,)*)),)
    });
    // At the user's enum, which is what an error about an unknown variant should show.
    let declaration = quote_spanned!(mirror.span()=> pub enum #mirror { #(#tuples)* });
    let shapes: Vec<(TokenStream, TokenStream)> = variants.iter().map(|variant| shape(variant)).collect();
    let into = shapes.iter().map(|(own, mirrored)| quote!(Self::#own => #mirror::#mirrored,));
    let from = shapes.iter().map(|(own, mirrored)| quote!(#mirror::#mirrored => Self::#own,));
    let value = format_ident!("__mirror", span = Span::mixed_site());
    let absent = (!absent.is_empty())
        .then(|| quote!(const ABSENT: &'static [&'static ::core::primitive::str] = &[#(#absent),*];));
    quote! {
        #declaration

        #[automatically_derived]
        impl #krate::__private::Mirrored for #ident {
            type Mirror = #mirror;
            #absent

            #[inline]
            fn into_mirror(self) -> #mirror {
                match self { #(#into)* }
            }

            #[inline]
            fn from_mirror(#value: #mirror) -> Self {
                match #value { #(#from)* }
            }
        }
    }
}

/// A variant as a pattern and an expression alike, and its mirror.
fn shape(variant: &Variant) -> (TokenStream, TokenStream) {
    let (name, fields) = (&variant.ident, pattern(&variant.fields));
    let (locals, mirrored) = (locals(&variant.fields), reachable(name));
    (quote!(#name #fields), quote!(#mirrored((#(#locals,)*))))
}

/// Fields as a pattern and an expression alike.
fn pattern(fields: &Fields) -> TokenStream {
    let locals = locals(fields);
    let members = fields.members().zip(&locals).map(|(member, local)| quote!(#member: #local));
    quote!({ #(#members),* })
}

fn locals(fields: &Fields) -> Vec<Ident> {
    (0..fields.len()).map(|index| format_ident!("__field{index}", span = Span::mixed_site())).collect()
}

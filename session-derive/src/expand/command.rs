//! The enum of the commands.

use super::{allow_deprecated, generated_name, input, mentions, placed, text_of, without_self};
use crate::check::{check_serde, without_refused_serde};
use crate::errors::Errors;
use crate::names::{handler_of, type_text, variant_text};
use crate::parse::{Args, cfgs, default_crate, reason, since_of};
use crate::words;
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Fields, Ident, ItemEnum, Meta, Path, Token, Variant};

/// What the attribute derives, and a user must not derive again.
const DERIVED: [&str; 3] = ["Serialize", "Deserialize", "Deterministic"];

/// The attribute re-emits the enum with derives: they see it after `cfg` was evaluated.
pub(super) fn attribute(args: TokenStream, item: &TokenStream) -> TokenStream {
    let errors = Errors::new();
    let args = Args::of_enum(args, &errors);
    let mut enumeration: ItemEnum = match syn::parse2(item.clone()) {
        Ok(enumeration) => enumeration,
        Err(error) => {
            errors.push(error);
            let errors = errors.finish();
            return quote!(#item #errors);
        }
    };
    let krate = args.krate();
    let generic = enumeration.generics.params.first();
    if let Some(first) = generic {
        errors.on(first, words::GENERIC_COMMAND);
    }
    without_second_derives(&mut enumeration.attrs, &errors);
    check_cfgs(&enumeration, &errors);
    without_refused_serde(&mut enumeration, &errors);
    let serde = quote!(#krate::__private::serde);
    let serde_path = serde.to_string();
    // Nothing can be said about a generic command, so nothing is derived for it.
    let derives = enumeration.generics.params.is_empty().then(|| {
        quote! {
            #[derive(#serde::Serialize, #serde::Deserialize, #krate::__private::SessionCommand)]
            #[serde(crate = #serde_path)]
            #[session_command(#krate)]
        }
    });
    let errors = errors.finish();
    quote! {
        #derives
        #enumeration
        #errors
    }
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
    let names: Vec<String> = second.iter().map(|path| path.to_token_stream().to_string()).collect();
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
    let krate = crate_of(&item);
    check_serde(&item, &errors);
    let variants: Vec<&Variant> = data.variants.iter().collect();
    let table = table(&krate, &variants, &errors);
    let command = command_impl(&krate, &item.ident, &variants, &table);
    let mirror = mirror(&krate, &item.ident, &variants);
    let probes = variants.iter().flat_map(|variant| &variant.fields).filter_map(|field| {
        if reason(&field.attrs, "assume_deterministic", &errors).is_some() {
            return None;
        }
        let krate = placed(&krate, field.ty.span());
        let ty = without_self(field.ty.to_token_stream(), &item.ident.to_token_stream());
        Some(quote_spanned!(field.ty.span()=> #krate::__private::is_deterministic::<#ty>();))
    });
    let probes: TokenStream = probes.collect();
    let ident = &item.ident;
    let deprecated = allow_deprecated([item.attrs.as_slice()]);
    let errors = errors.finish();
    quote! {
        #deprecated
        const _: () = {
            #[automatically_derived]
            impl #krate::Deterministic for #ident {}
            #command
            #mirror
            const _: fn() = || { #probes };
        };
        #errors
    }
}

fn crate_of(item: &DeriveInput) -> Path {
    item.attrs
        .iter()
        .find(|attr| attr.path().is_ident("session_command"))
        .and_then(|attr| attr.parse_args_with(Path::parse_mod_style).ok())
        .unwrap_or_else(default_crate)
}

fn table(krate: &Path, variants: &[&Variant], errors: &Errors) -> TokenStream {
    let mut highest = 1;
    let rows = variants.iter().map(|variant| {
        let name = text_of(&variant.ident);
        if variant_text(&handler_of(&variant.ident)) != name {
            errors.on(&variant.ident, words::unreachable_variant(&name));
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
fn mirror(krate: &Path, ident: &Ident, variants: &[&Variant]) -> TokenStream {
    // A name that the fields' types do not use: inside the block it would stand before theirs.
    let types: TokenStream =
        variants.iter().flat_map(|variant| &variant.fields).map(|field| field.ty.to_token_stream()).collect();
    let names = ["Handlers", "Mirror"].map(|suffix| format!("{}{suffix}", ident.unraw()));
    let free = names.iter().find(|name| !mentions(&types, std::slice::from_ref(*name)));
    let mirror = generated_name(&Ident::new(free.map_or("__Mirror", String::as_str), ident.span()));
    let own = ident.to_token_stream();
    let tuples = variants.iter().map(|variant| {
        let name = &variant.ident;
        let types = variant.fields.iter().map(|field| without_self(field.ty.to_token_stream(), &own));
        quote!(#name((#(#types,)*)),)
    });
    // At the user's enum, which is what an error about an unknown variant should show.
    let declaration = quote_spanned!(mirror.span()=> pub enum #mirror { #(#tuples)* });
    let shapes: Vec<(TokenStream, TokenStream)> = variants.iter().map(|variant| shape(variant)).collect();
    let into = shapes.iter().map(|(own, mirrored)| quote!(Self::#own => #mirror::#mirrored,));
    let from = shapes.iter().map(|(own, mirrored)| quote!(#mirror::#mirrored => Self::#own,));
    let value = format_ident!("__mirror", span = Span::mixed_site());
    quote! {
        #declaration

        #[automatically_derived]
        impl #krate::__private::Mirrored for #ident {
            type Mirror = #mirror;

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
    let name = &variant.ident;
    let locals: Vec<Ident> = (0..variant.fields.len())
        .map(|index| format_ident!("__field{index}", span = Span::mixed_site()))
        .collect();
    let members = variant.fields.members().zip(&locals);
    let members = members.map(|(member, local)| quote!(#member: #local));
    (quote!(#name { #(#members),* }).to_token_stream(), quote!(#name((#(#locals,)*))))
}

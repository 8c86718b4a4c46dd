//! The small derives: `Deterministic` and `Rejection`.

use super::{input, placed, text_of, without_self};
use crate::check::check_serde;
use crate::errors::Errors;
use crate::parse::{derive_crate, is_misvouched, reason};
use crate::words;
use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Field, GenericParam, Generics, Path, parse_quote};

pub(crate) fn derive_deterministic(item: TokenStream) -> TokenStream {
    let item = match input(item) {
        Ok(item) => item,
        Err(errors) => return errors,
    };
    let errors = Errors::new();
    let krate = derive_crate(&item.attrs, "deterministic", &errors);
    check_serde(&item, &errors);
    let is_misvouched = is_misvouched(&item, &errors);
    let generics = bounded(&item.generics, &krate);
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let ident = &item.ident;
    let own = quote!(#ident #type_generics);
    let probes: TokenStream = fields(&item, "Deterministic", &errors)
        .into_iter()
        .filter(|field| reason(&field.attrs, "assume_deterministic", &errors).is_none() && !is_misvouched)
        .map(|field| {
            let krate = placed(&krate, field.ty.span());
            let ty = without_self(field.ty.to_token_stream(), &own);
            quote_spanned!(field.ty.span()=> #krate::__private::is_deterministic::<#ty>();)
        })
        .collect();
    // The parameters must be in scope of the probes, which only a generic function can give them.
    let probes = if item.generics.params.is_empty() {
        quote!(const _: fn() = || { #probes };)
    } else {
        quote! {
            const _: () = {
                fn __fields #impl_generics() #where_clause { #probes }
            };
        }
    };
    let errors = errors.finish();
    quote! {
        #[automatically_derived]
        impl #impl_generics #krate::Deterministic for #ident #type_generics #where_clause {}
        #probes
        #errors
    }
}

pub(crate) fn derive_rejection(item: TokenStream) -> TokenStream {
    let item = match input(item) {
        Ok(item) => item,
        Err(errors) => return errors,
    };
    let errors = Errors::new();
    let krate = derive_crate(&item.attrs, "rejection", &errors);
    fields(&item, "Rejection", &errors);
    if errors.count() > 0 {
        return errors.finish();
    }
    let ident = &item.ident;
    let (_, own_generics, _) = item.generics.split_for_impl();
    let own = quote!(#ident #own_generics);
    let mut generics = item.generics.clone();
    if generics.params.is_empty() {
        // What it lacks is said by the check; beside a type that could not be made out, nothing is said again.
        let name = text_of(ident);
        let at_name = placed(&krate, ident.span());
        let check = quote_spanned! {ident.span()=>
            #at_name::__private::check_rejection(
                #name, __Traits::SERIALIZE, __Traits::DESERIALIZE, __Traits::DETERMINISTIC
            )
        };
        generics.make_where_clause().predicates.push(parse_quote! {
            <#ident as #krate::__private::Checked<{
                #[allow(unused_imports)] // what it falls back to
                use #krate::__private::NoWire as _;
                type __Traits = #krate::__private::WireOf<#ident>;
                #check
            }>>::Itself: #krate::Wire
        });
    } else {
        generics.make_where_clause().predicates.push(parse_quote!(#own: #krate::Wire));
    }
    let (impl_generics, _, where_clause) = generics.split_for_impl();
    let errors = errors.finish();
    quote! {
        const _: () = {
            #[automatically_derived]
            impl #impl_generics #krate::Rejection for #own #where_clause {}
        };
        #errors
    }
}

/// Every field of a struct or of all variants of an enum.
fn fields<'a>(item: &'a DeriveInput, derive: &str, errors: &Errors) -> Vec<&'a Field> {
    match &item.data {
        Data::Struct(data) => data.fields.iter().collect(),
        Data::Enum(data) => data.variants.iter().flat_map(|variant| &variant.fields).collect(),
        Data::Union(data) => {
            errors.on(&data.union_token, words::no_union(derive));
            Vec::new()
        }
    }
}

/// The generics, every type parameter `Deterministic`.
fn bounded(generics: &Generics, krate: &Path) -> Generics {
    let mut generics = generics.clone();
    for param in &mut generics.params {
        if let GenericParam::Type(param) = param {
            param.bounds.push(parse_quote!(#krate::Deterministic));
        }
    }
    generics
}

//! The serde impls of a command or query enum. They are derived on a twin, hidden beside the enum and generic over the
//! types of its fields, so that the derived code never mentions these: that each of them can be written and read is
//! checked by itself, and a type that cannot is one error with our words instead of five with serde's.

use super::{ends, placed, serde_path, text_of};
use crate::names::{peeled, type_text};
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Ident, Path, Type};

/// The types of an enum's fields, each checked once.
pub(super) struct CheckedTypes<'a> {
    krate: &'a Path,
    /// The function of the runtime that says what a type lacks.
    check: &'static str,
    types: Vec<String>,
    aliases: TokenStream,
}

/// A variant of the enum and of its twin.
pub(super) struct Twin {
    pub(super) name: Ident,
    /// The variant as both declare it, with the parameters for the types.
    pub(super) declared: TokenStream,
    /// Its fields as a pattern and an expression alike: `{ 0: __field0 }`.
    pub(super) fields: TokenStream,
}

impl<'a> CheckedTypes<'a> {
    pub(super) fn new(krate: &'a Path, check: &'static str) -> Self {
        Self { krate, check, types: Vec::new(), aliases: TokenStream::new() }
    }

    /// The twin's parameter for a type, and the type's alias: `ty` is how it is written and `own` what that means
    /// outside its item.
    pub(super) fn add(&mut self, ty: &Type, own: &TokenStream) -> (Ident, Ident) {
        let text = own.to_string();
        let known = self.types.iter().position(|other| *other == text);
        let (param, alias) = names(known.unwrap_or(self.types.len()));
        if known.is_none() {
            self.types.push(text);
            let checked = checked(self.krate, self.check, ty, own);
            self.aliases.extend(quote!(type #alias = #checked;));
        }
        (param, alias)
    }

    pub(super) fn serde_impls(self, ident: &Ident, variants: &[Twin]) -> TokenStream {
        let Self { krate, types, aliases, .. } = self;
        let serde = quote!(#krate::__private::serde);
        let (import, path) = serde_path(krate, ident);
        let name = text_of(ident);
        let (params, own): (Vec<Ident>, Vec<Ident>) = (0..types.len()).map(names).unzip();
        let declared = variants.iter().map(|variant| &variant.declared);
        let arm = |from: &TokenStream, to: &TokenStream, Twin { name, fields, .. }: &Twin| quote!(#from::#name #fields => #to::#name #fields,);
        let (enumeration, twin) = (quote!(Self), quote!(__Twin));
        let lend = variants.iter().map(|variant| arm(&enumeration, &twin, variant));
        let give = variants.iter().map(|variant| arm(&twin, &enumeration, variant));
        let (to, from) = (local("__to"), local("__from"));
        let (value, result) = (local("__value"), quote!(::core::result::Result));
        let write = if variants.is_empty() {
            quote!(let _ = #to; match *self {})
        } else {
            quote! {
                let #value: __Twin<#(&#own),*> = match self { #(#lend)* };
                #serde::Serialize::serialize(&#value, #to)
            }
        };
        quote! {
            #aliases
            #import

            #[derive(#serde::Serialize, #serde::Deserialize)]
            #[serde(crate = #path, rename = #name)]
            enum __Twin<#(#params),*> { #(#declared,)* }

            #[automatically_derived]
            impl #serde::Serialize for #ident {
                fn serialize<__S: #serde::Serializer>(&self, #to: __S) -> #result<__S::Ok, __S::Error> {
                    #write
                }
            }

            #[automatically_derived]
            impl<'de> #serde::Deserialize<'de> for #ident {
                fn deserialize<__D: #serde::Deserializer<'de>>(#from: __D) -> #result<Self, __D::Error> {
                    let #value = <__Twin<#(#own),*> as #serde::Deserialize>::deserialize(#from);
                    #value.map(|#value| match #value { #(#give)* })
                }
            }
        }
    }
}

/// The twin's parameter and the alias for the type at this position.
fn names(position: usize) -> (Ident, Ident) {
    (format_ident!("__T{position}"), format_ident!("__Wire{position}"))
}

fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

/// The type, if the check of its role finds it fit. Errors show it from its first token to its last.
pub(super) fn checked(krate: &Path, check: &str, ty: &Type, own: &TokenStream) -> TokenStream {
    let (first, last) = ends(own.clone());
    let at_end = placed(krate, last);
    let check = check_of(krate, check, ty, own);
    let open = quote_spanned!(first=> <);
    let rest = quote_spanned!(last=> as #at_end::__private::Checked<{ #check }>>::Itself);
    quote!(#open #own #rest)
}

fn check_of(krate: &Path, check: &str, ty: &Type, own: &TokenStream) -> TokenStream {
    let (name, check) = (type_text(ty), Ident::new(check, ty.span()));
    let at_type = placed(krate, ty.span());
    if matches!(peeled(ty), Type::Reference(_)) {
        return quote_spanned!(ty.span()=> #at_type::__private::check_owned(#name));
    }
    let check = quote_spanned! {ty.span()=>
        #at_type::__private::#check(
            #name, __Traits::SERIALIZE, __Traits::DESERIALIZE, __Traits::DETERMINISTIC
        )
    };
    quote! {
        #[allow(unused_imports)] // what it falls back to
        use #krate::__private::NoWire as _;
        type __Traits = #krate::__private::WireOf<#own>;
        #check
    }
}

//! The typed client: a method for every handler a client may call, and one for every query.

use super::machine::{Expansion, allow_deprecated, owned_type, reply, reply_span, shown};
use super::mentions;
use crate::model::{Handler, Param, Query};
use crate::parse::Method;
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::{Attribute, GenericParam, Generics, Ident, parse_quote};

pub(super) fn client(expansion: &Expansion<'_>) -> TokenStream {
    let Expansion {
        krate,
        names,
        machine,
        ..
    } = expansion;
    let call = call_param(expansion);
    let mut generics = machine.block.generics.clone();
    generics
        .params
        .insert(0, parse_quote!(#call: #krate::client::Call));
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let declared = without_bounds(&generics);
    let machine_types = machine.block.generics.type_params().map(|param| &param.ident);
    let (client, vis) = (&names.client, &names.client_vis);
    let handlers = machine.handlers.iter().filter(|handler| !handler.internal);
    let commands = handlers.map(|handler| command(expansion, handler, &generics));
    let queries = machine
        .queries
        .iter()
        .map(|query| self::query(expansion, query, &generics));
    let deprecated = allow_deprecated(machine);
    let doc = format!(
        "The client of `{}`: its commands and queries as methods, over any transport.",
        names.machine
    );
    let client = quote! {
        #[doc = #doc]
        #vis struct #client #declared {
            call: #call,
            machine: ::core::marker::PhantomData<fn() -> (#(#machine_types,)*)>,
        }

        #deprecated
        impl #impl_generics #client #type_generics #where_clause {
            /// A client over this transport.
            pub const fn new(call: #call) -> Self {
                Self { call, machine: ::core::marker::PhantomData }
            }

            #(#commands)*
            #(#queries)*
        }
    };
    quote!(#krate::__private::if_client! { #client })
}

/// The name of the transport's type parameter: one that the machine's signatures do not use.
fn call_param(expansion: &Expansion<'_>) -> Ident {
    let block = &expansion.machine.block;
    let signatures = expansion
        .machine
        .methods
        .iter()
        .map(|(method, _)| method.sig.to_token_stream());
    let taken: TokenStream = signatures
        .chain([block.generics.to_token_stream(), block.self_ty.to_token_stream()])
        .chain([expansion.command.to_token_stream()])
        .collect();
    let candidates = ["C", "Call", "Transport"].into_iter().map(str::to_owned);
    let candidates = candidates.chain((0..).map(|number| format!("C{number}")));
    let free = candidates
        .into_iter()
        .find(|name| !mentions(&taken, std::slice::from_ref(name)));
    format_ident!(
        "{}",
        free.unwrap_or_else(|| "C".to_owned()),
        span = Span::call_site()
    )
}

/// The parameters as a struct declares them when only its impl needs the bounds.
fn without_bounds(generics: &Generics) -> Generics {
    let mut generics = generics.clone();
    generics.where_clause = None;
    for param in &mut generics.params {
        if let GenericParam::Type(param) = param {
            param.colon_token = None;
            param.bounds.clear();
        }
    }
    generics
}

fn command(expansion: &Expansion<'_>, handler: &Handler<'_>, generics: &Generics) -> TokenStream {
    let Expansion {
        krate,
        command,
        machine,
        ..
    } = expansion;
    let (variant, name) = (&handler.variant, &handler.method.sig.ident);
    let params = param_names(&handler.params);
    let types = handler.params.iter().map(|param| owned_type(param.ty, machine));
    let types = quote_spanned!(name.span()=> (#(#types,)*));
    let fields = quote_spanned!(name.span()=> #krate::__private::Gives::<#types>::back);
    let reply = owned_type(&reply(handler.method), machine);
    let span = reply_span(handler.method);
    let accepted = quote_spanned!(span=> <#reply as #krate::Reply>::Accepted);
    let rejected = quote_spanned!(span=> <#reply as #krate::Reply>::Rejected);
    let body = quote! {
        #krate::__private::call_command(
            &self.call,
            <#command as #krate::__private::Mirrored>::from_mirror(
                <<#command as #krate::__private::Mirrored>::Mirror>::#variant(#fields((#(#params,)*)))
            ),
        )
    };
    let result = quote!(::core::result::Result<#accepted, #krate::client::ClientError<#rejected>>);
    let signature = signature(expansion, handler.method, &handler.params, generics, &result);
    let docs = docs(&handler.cfgs, handler.method);
    quote!(#docs #signature { #body })
}

fn query(expansion: &Expansion<'_>, query: &Query<'_>, generics: &Generics) -> TokenStream {
    let Expansion {
        krate,
        machine,
        names,
        ..
    } = expansion;
    let (variant, enumeration) = (&query.variant, &names.query);
    let params = param_names(&query.params);
    let reply = owned_type(&reply(query.method), machine);
    let body = quote! {
        #krate::__private::call_query(&self.call, #enumeration::#variant { #(#params),* })
    };
    let answer = quote_spanned!(reply_span(query.method)=> <#reply as #krate::__private::QueryReply>::Answer);
    let result = quote!(::core::result::Result<#answer, #krate::client::ClientError>);
    let signature = signature(expansion, query.method, &query.params, generics, &result);
    let docs = docs(&query.cfgs, query.method);
    quote!(#docs #signature { #body })
}

fn docs(cfgs: &[&Attribute], method: &Method) -> TokenStream {
    let shown = shown(method, &format!("Calls `{}`.", method.sig.ident));
    quote!(#(#cfgs)* #shown)
}

/// A method that returns a future that is `Send`, whatever the arguments are: they are encoded before it waits.
fn signature(
    expansion: &Expansion<'_>,
    method: &Method,
    params: &[Param<'_>],
    generics: &Generics,
    result: &TokenStream,
) -> TokenStream {
    // The constructor has this name already.
    let name = match &method.sig.ident {
        name if name == "new" => format_ident!("new_", span = name.span()),
        name => name.clone(),
    };
    let names = param_names(params);
    let types = params.iter().map(|param| owned_type(param.ty, expansion.machine));
    // What the future captures, written out: editions differ in what they would capture themselves.
    let captured = generics.params.iter().map(|param| match param {
        GenericParam::Type(param) => param.ident.to_token_stream(),
        GenericParam::Const(param) => param.ident.to_token_stream(),
        GenericParam::Lifetime(param) => param.lifetime.to_token_stream(),
    });
    quote! {
        pub fn #name(
            &self, #(#names: #types),*
        ) -> impl ::core::future::Future<Output = #result> + ::core::marker::Send + use<'_, #(#captured),*>
    }
}

/// The names of the parameters; a pattern gets one by its position.
fn param_names(params: &[Param<'_>]) -> Vec<Ident> {
    params
        .iter()
        .enumerate()
        .map(|(index, param)| match &param.name {
            Some(name) => name.clone(),
            None => format_ident!("argument{index}", span = Span::mixed_site()),
        })
        .collect()
}

//! The typed client: a method for every handler a client may call, and one for every query.

use super::machine::{
    Expansion, allow_deprecated, mirrored, owned_type, query_generics, reply, shown, without_bounds,
};
use super::{generated_name, mentions, text_of};
use crate::model::{Handler, Param, Query};
use crate::parse::Method;
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::{Attribute, Ident, parse_quote};

pub(super) fn client(expansion: &Expansion<'_>) -> TokenStream {
    let Expansion { krate, names, machine, .. } = expansion;
    let call = call_param(expansion);
    let mut generics = machine.block.generics.clone();
    generics.params.insert(0, parse_quote!(#call: #krate::client::Call));
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let declared = without_bounds(&generics);
    let machine_types = machine.block.generics.type_params().map(|param| &param.ident);
    let (client, vis) = (&names.client, &names.client_vis);
    let handlers = machine.handlers.iter().filter(|handler| !handler.internal);
    let commands = handlers.map(|handler| command(expansion, handler));
    let queries = machine.queries.iter().map(|query| self::query(expansion, query));
    let deprecated = allow_deprecated(machine);
    let doc = format!(
        " The client of `{}`: its commands and queries as methods, over any transport.",
        names.machine
    );
    let client = quote! {
        #[doc = #doc]
        #[derive(::core::clone::Clone, ::core::fmt::Debug)]
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
    let signatures = expansion.machine.methods.iter().map(|(method, _)| method.sig.to_token_stream());
    let taken: TokenStream = signatures
        .chain([block.generics.to_token_stream(), block.self_ty.to_token_stream()])
        .chain([expansion.command.to_token_stream()])
        .collect();
    let candidates = ["C", "Call", "Transport"].into_iter().map(str::to_owned);
    let candidates = candidates.chain((0..).map(|number| format!("C{number}")));
    let free = candidates.into_iter().find(|name| !mentions(&taken, std::slice::from_ref(name)));
    format_ident!("{}", free.unwrap_or_else(|| "C".to_owned()), span = Span::call_site())
}

fn command(expansion: &Expansion<'_>, handler: &Handler<'_>) -> TokenStream {
    let krate = &expansion.krate;
    let variant = &handler.variant;
    let params = param_names(&handler.params);
    let mirrored = mirrored(expansion);
    let signature = signature(expansion, handler.method, &handler.params, "Answer");
    let docs = docs(&handler.cfgs, handler.method);
    // That the arguments are the variant's fields is said about the handler; it is not said again here.
    quote! {
        #docs
        #signature {
            type __Commands = #mirrored::Mirror;
            #krate::__private::call_command(
                &self.call,
                #krate::__private::same((#(#params,)*))
                    .map(|fields| #mirrored::encode_mirror(__Commands::#variant(fields))),
            )
        }
    }
}

fn query(expansion: &Expansion<'_>, query: &Query<'_>) -> TokenStream {
    let krate = &expansion.krate;
    let (variant, enumeration) = (&query.variant, &expansion.names.query);
    let generics = query_generics(expansion.machine);
    let (_, type_generics, _) = generics.split_for_impl();
    let turbofish = type_generics.as_turbofish();
    let params = param_names(&query.params);
    let signature = signature(expansion, query.method, &query.params, "QueryAnswer");
    let docs = docs(&query.cfgs, query.method);
    quote! {
        #docs
        #signature {
            #krate::__private::call_query(&self.call, #enumeration #turbofish::#variant { #(#params),* })
        }
    }
}

fn docs(cfgs: &[&Attribute], method: &Method) -> TokenStream {
    let shown = shown(method, &format!(" Calls `{}`.", text_of(&method.sig.ident)));
    quote!(#(#cfgs)* #shown)
}

/// A method that returns a future that is `Send`, whatever the arguments are: they are encoded before it waits.
fn signature(expansion: &Expansion<'_>, method: &Method, params: &[Param<'_>], answer: &str) -> TokenStream {
    let Expansion { krate, machine, .. } = expansion;
    // The constructor has this name already.
    let name = match &method.sig.ident {
        name if name == "new" => generated_name(&format_ident!("new_", span = name.span())),
        name => generated_name(name),
    };
    let names = param_names(params);
    let types = params.iter().map(|param| owned_type(param.ty, machine));
    let answer = Ident::new(answer, Span::call_site());
    let reply = owned_type(&reply(method), machine);
    quote!(pub fn #name(&self, #(#names: #types),*) -> #krate::client::#answer<'_, #reply>)
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

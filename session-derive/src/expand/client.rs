//! The typed client: a method for every handler a client may call, and one for every query.

use super::docs::shown;
use super::machine::{Expansion, handler_alias, owned_type, query_generics, reply, without_bounds};
use super::{generated_name, mentions, text_of};
use crate::model::{Handler, Machine, Param, Query};
use crate::parse::Method;
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::{Attribute, Ident, parse_quote};

/// The struct, and its methods.
pub(super) fn client(expansion: &Expansion<'_>) -> (TokenStream, TokenStream) {
    let Expansion { krate, names, machine, .. } = expansion;
    let call = call_param(expansion);
    let mut generics = machine.block.generics.clone();
    generics.params.insert(0, parse_quote!(#call: #krate::client::Call));
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let declared = without_bounds(&generics);
    let machine_types = machine.block.generics.type_params().map(|param| &param.ident);
    let machine_lifetimes = machine.block.generics.lifetimes().map(|param| &param.lifetime);
    let (client, vis) = (&names.client, &names.client_vis);
    let handlers = machine.handlers.iter().filter(|handler| !handler.internal);
    let commands = handlers.map(|handler| command(expansion, handler));
    let queries = machine.queries.iter().map(|query| self::query(expansion, query));
    let doc = format!(
        " The client of `{}`: its commands and queries as methods, over any transport.",
        names.machine
    );
    let declaration = quote! {
        #krate::__private::if_client! {
            #[doc = #doc]
            #[derive(::core::clone::Clone, ::core::fmt::Debug)]
            #vis struct #client #declared {
                call: #call,
                machine: ::core::marker::PhantomData<fn() -> (#(&#machine_lifetimes (),)* #(#machine_types,)*)>,
            }
        }
    };
    let methods = quote! {
        #krate::__private::if_client! {
            impl #impl_generics #client #type_generics #where_clause {
                /// A client over this transport.
                pub const fn new(__call: #call) -> Self {
                    Self { call: __call, machine: ::core::marker::PhantomData }
                }

                #(#commands)*
                #(#queries)*
            }
        }
    };
    (declaration, methods)
}

/// The name of the transport's type parameter: one that the machine's signatures do not use.
fn call_param(expansion: &Expansion<'_>) -> Ident {
    let block = &expansion.machine.block;
    let signatures = expansion.machine.methods.iter().map(|(method, _)| method.sig.to_token_stream());
    let taken: TokenStream = signatures
        .chain([block.generics.to_token_stream(), block.generics.where_clause.to_token_stream()])
        .chain([block.self_ty.to_token_stream()])
        .chain([expansion.command.to_token_stream()])
        .chain([expansion.names.client.to_token_stream(), expansion.names.query.to_token_stream()])
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
    let alias = handler_alias(handler);
    let signature = signature(expansion, handler.method, &handler.params, "Answer");
    let docs = docs(&handler.cfgs, handler.method);
    // That the arguments are the variant's fields is said about the handler; it is not said again here.
    quote! {
        #docs
        #signature {
            #krate::__private::call_command(
                &self.call,
                #krate::__private::same((#(#params,)*))
                    .map(|__fields| {
                        <__Command as #krate::__private::Mirrored>::encode_mirror(#alias::#variant(__fields))
                    }),
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
    let name = generated_name(&method_name(machine, &method.sig.ident));
    let names = param_names(params);
    let types = params.iter().map(|param| owned_type(param.ty, machine));
    let answer = Ident::new(answer, Span::call_site());
    let reply = owned_type(&reply(method), machine);
    quote!(pub fn #name(&self, #(#names: #types),*) -> #krate::client::#answer<'_, #reply>)
}

/// The method's own name; but `new` is the constructor, and gives way to every other method.
fn method_name(machine: &Machine<'_>, name: &Ident) -> Ident {
    let mut free = name.clone();
    let is_taken = |name: &Ident| {
        let name = text_of(name);
        name == "new" || machine.methods.iter().any(|(method, _)| text_of(&method.sig.ident) == name)
    };
    if text_of(name) == "new" {
        while is_taken(&free) {
            free = format_ident!("{free}_");
        }
    }
    free
}

/// The names of the parameters; a pattern gets one by its position.
fn param_names(params: &[Param<'_>]) -> Vec<Ident> {
    params
        .iter()
        .enumerate()
        .map(|(index, param)| match &param.name {
            Some(name) => name.clone(),
            None => format_ident!("__argument{index}", span = Span::mixed_site()),
        })
        .collect()
}

//! The impl block of the handlers.

use super::command::without_repeated_attribute;
use super::docs::shown;
use super::wire::checked;
use super::{
    allow_deprecated, client, ends, generated_name, mentions, placed, serde_path, text_of,
    without_attributes, without_self,
};
use crate::check::check_body;
use crate::errors::Errors;
use crate::model::{Handler, Hook, MARKERS, Machine, Marks, Query, hides_marker, misspelled};
use crate::names::{peeled, return_text, type_text};
use crate::parse::{Args, ImplBlock, Item, Method, Named};
use crate::words;
use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, GenericParam, Generics, Ident, Meta, Path, ReturnType, Type, parse_quote};

pub(super) fn attribute(args: TokenStream, item: &TokenStream) -> TokenStream {
    let errors = Errors::new();
    let args = Args::of_impl(args, &errors);
    let understood = errors.count() == 0;
    let mut block: ImplBlock = match syn::parse2(item.clone()) {
        Ok(block) => block,
        Err(error) => {
            errors.push(error);
            let (errors, item) = (errors.finish(), without_attributes(item.clone(), &MARKERS));
            return quote!(#item #errors);
        }
    };
    without_repeated_attribute(&mut block.attrs, &errors);
    check_block(&block, &errors);
    let machine = Machine::new(&block, &args, &errors);
    if block.for_trait.is_none() {
        for (method, marks) in &machine.methods {
            check_body(method, marks, &errors);
        }
    }
    let names = Names::of(&block.self_ty, &args, &errors);
    let own = own_block(&machine);
    let generated = match (&args.command, names) {
        (Some(command), Some(names)) => {
            generated(&Expansion { krate: args.krate(), command, names, machine: &machine })
        }
        (None, ..) => {
            // A misspelled argument was said already, and may have been this one.
            if understood {
                errors.at(Span::call_site(), words::NO_COMMAND);
            }
            TokenStream::new()
        }
        _ => TokenStream::new(),
    };
    let errors = errors.finish();
    quote!(#own #generated #errors)
}

/// What every part of the expansion needs.
pub(super) struct Expansion<'a> {
    pub(super) krate: Path,
    pub(super) command: &'a Type,
    pub(super) names: Names,
    pub(super) machine: &'a Machine<'a>,
}

/// The names of what is generated.
pub(super) struct Names {
    pub(super) machine: String,
    pub(super) query: Ident,
    pub(super) query_vis: TokenStream,
    pub(super) client: Ident,
    pub(super) client_vis: TokenStream,
}

impl Names {
    fn of(self_ty: &Type, args: &Args, errors: &Errors) -> Option<Self> {
        let base = match peeled(self_ty) {
            Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.clone()),
            _ => None,
        };
        let named = |given: Option<&Named>, suffix: &str| match (given, &base) {
            (Some(named), _) => Some(named.name.clone()),
            (None, Some(base)) => Some(format_ident!("{}{suffix}", base.unraw(), span = Span::call_site())),
            (None, None) => None,
        };
        let vis = |given: Option<&Named>| {
            let vis = given.and_then(|named| named.vis.as_ref());
            vis.map_or_else(|| quote!(pub), ToTokens::to_token_stream)
        };
        let (query, client) = (named(args.query.as_ref(), "Query"), named(args.client.as_ref(), "Client"));
        let (Some(mut query), Some(mut client)) = (query, client) else {
            errors.on(self_ty, words::GENERATED_NAME);
            return None;
        };
        if let Some(taken) = taken_name(self_ty, args, &query, &client) {
            errors.on(taken, words::name_taken(&text_of(taken)));
            (query, client) = (format_ident!("{query}Query"), format_ident!("{client}Client"));
        }
        Some(Self {
            machine: match (&args.name, &base) {
                (Some(name), _) => name.value(),
                (None, Some(base)) => text_of(base),
                (None, None) => type_text(self_ty),
            },
            query,
            query_vis: vis(args.query.as_ref()),
            client,
            client_vis: vis(args.client.as_ref()),
        })
    }
}

/// A name given by the user that is another one of theirs.
fn taken_name<'a>(self_ty: &Type, args: &'a Args, query: &Ident, client: &Ident) -> Option<&'a Ident> {
    let command = args.command.as_ref().and_then(plain_name);
    let others = |generated| [plain_name(self_ty), command, Some(generated)];
    let taken = |named: Option<&'a Named>, other| {
        named.map(|named| &named.name).filter(|name| others(other).contains(&Some(*name)))
    };
    taken(args.client.as_ref(), query).or_else(|| taken(args.query.as_ref(), client))
}

/// The name of a type of this module, if it is written as one.
fn plain_name(ty: &Type) -> Option<&Ident> {
    match peeled(ty) {
        Type::Path(path) => path.path.get_ident(),
        _ => None,
    }
}

fn check_block(block: &ImplBlock, errors: &Errors) {
    if let Some(path) = &block.for_trait {
        errors.on(path, words::TRAIT_IMPL);
    }
    if let Some(token) = &block.unsafety {
        errors.on(token, words::UNSAFE_IMPL);
    }
    for attr in &block.attrs {
        for name in ["assume_infallible", "assume_deterministic"] {
            if attr.path().is_ident(name) {
                errors.on(attr, words::lifts_one(name));
            }
        }
    }
}

/// The user's block, our attributes taken out and the lints that fit handlers put in. The bodies keep their
/// spans, so that clippy sees the user's code.
fn own_block(machine: &Machine<'_>) -> TokenStream {
    let mut methods = machine.methods.iter();
    let items: TokenStream = machine
        .block
        .items
        .iter()
        .map(|item| match item {
            Item::Other(item) => item.to_token_stream(),
            Item::HalfTyped(tokens, _) => half_typed(tokens),
            Item::Method(_) => {
                methods.next().map(|(method, marks)| own_method(method, marks)).unwrap_or_default()
            }
        })
        .collect();
    let block = machine.block.emit(&items);
    // A handler's signature follows its variant, and is not the user's to improve.
    quote! {
        #[allow(
            clippy::boxed_local,
            clippy::needless_pass_by_value,
            clippy::too_many_arguments,
            clippy::unnecessary_wraps,
            clippy::unused_self
        )]
        #block
    }
}

/// A method whose mistake is among its parameters: rustc goes on behind them. Behind any other, it would lose the rest
/// of the block, and say so.
fn half_typed(tokens: &TokenStream) -> TokenStream {
    let without_parameters = tokens.clone().into_iter().map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => {
            Group::new(Delimiter::Parenthesis, TokenStream::new()).into()
        }
        other => other,
    });
    if syn::parse2::<Method>(without_parameters.collect()).is_ok() {
        without_attributes(tokens.clone(), &MARKERS)
    } else {
        TokenStream::new()
    }
}

fn own_method(method: &Method, marks: &Marks) -> TokenStream {
    let Method { attrs, vis, sig, body } = method;
    let attrs = attrs.iter().filter(|attr| !is_ours(attr));
    let vouched = [("Infallible", &marks.infallible), ("Deterministic", &marks.deterministic)];
    let reasons = vouched.into_iter().filter_map(|(what, why)| {
        let line = format!(" {what} by assumption: {}", why.as_ref()?.value());
        // A paragraph of its own, behind whatever the user wrote.
        Some(quote!(#[doc = ""] #[doc = #line]))
    });
    // First, so that the user's own levels on the method have the last word. `deny`, because nothing weaker
    // may stand below a user's `forbid`.
    let lints = marks.infallible.is_none().then(|| {
        quote! {
            #[deny(
                clippy::arithmetic_side_effects,
                clippy::indexing_slicing,
                clippy::unwrap_used,
                clippy::expect_used,
                clippy::panic
            )]
        }
    });
    quote! {
        #lints
        #(#attrs)*
        #(#reasons)*
        #vis #sig #body
    }
}

fn is_ours(attr: &Attribute) -> bool {
    if attr.path().is_ident("cfg_attr") {
        return hides_marker(attr).is_some();
    }
    attr.path().get_ident().is_some_and(|name| {
        let name = name.to_string();
        name == "since" || MARKERS.contains(&name.as_str()) || misspelled(&name).is_some()
    })
}

fn generated(expansion: &Expansion<'_>) -> TokenStream {
    let Expansion { krate, machine, .. } = expansion;
    let query_enum = query_enum(expansion);
    let (client, client_methods) = client::client(expansion);
    let commands = commands(expansion);
    let checks = checks(expansion);
    let implementation = implementation(expansion);
    let schema = schema_const(expansion);
    let allowed = allowed(machine);
    quote! {
        #query_enum
        #client
        #allowed
        #[allow(clippy::too_many_arguments, clippy::type_complexity)] // as the handlers have them
        const _: () = {
            #[allow(unused_imports)] // what it falls back to
            use #krate::__private::{NoCommand as _, NoState as _};
            #commands
            #checks
            #implementation
            #schema
            #client_methods
        };
    }
}

/// The enum of the queries, one struct variant each; `Never` where there is none.
fn query_enum(expansion: &Expansion<'_>) -> TokenStream {
    let Expansion { krate, names, machine, .. } = expansion;
    if machine.queries.is_empty() {
        return TokenStream::new();
    }
    let Names { query, query_vis, .. } = names;
    let generics = query_generics(machine);
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let variants = machine.queries.iter().map(|query| {
        let (cfgs, name) = (&query.cfgs, generated_name(&query.variant));
        let docs = shown(query.method, &format!(" Asks `{}`.", text_of(&query.method.sig.ident)));
        let fields = query.params.iter().map(|param| {
            let (name, ty) = (param.name.as_ref().map(generated_name), owned_type(param.ty, machine));
            let doc = format!(" The argument `{}`.", param.name.as_ref().map(text_of).unwrap_or_default());
            quote!(#[doc = #doc] #name: #ty,)
        });
        quote!(#(#cfgs)* #docs #name { #(#fields)* },)
    });
    let doc = format!(" What clients may read of `{}`.", names.machine);
    let allowed = allowed(machine);
    // serde's derives add the bounds they need, and do not get along with others that imply them.
    let declared = without_bounds(&generics);
    // Nothing about the arguments of a generic one can be checked before they are known.
    let (import, derives) = if generics.params.is_empty() {
        let derives = quote! {
            #[derive(#krate::__private::SessionQuery)]
            #[session_enum(#krate)]
        };
        (TokenStream::new(), derives)
    } else {
        let (import, path) = serde_path(krate, query);
        let serde = quote!(#krate::__private::serde);
        let derives = quote! {
            #[derive(#serde::Serialize, #serde::Deserialize)]
            #[serde(crate = #path)]
        };
        (import, derives)
    };
    quote! {
        #import
        #allowed
        #[doc = #doc]
        #derives
        #query_vis enum #query #declared { #(#variants)* }

        #[automatically_derived]
        impl #impl_generics #krate::Query for #query #type_generics #where_clause {}
    }
}

/// The parameters of the machine that its queries' arguments name.
pub(super) fn query_generics(machine: &Machine<'_>) -> Generics {
    let mut generics = machine.block.generics.clone();
    let params: Vec<GenericParam> = generics.params.iter().cloned().collect();
    let name = |param: &GenericParam| match param {
        GenericParam::Type(param) => param.ident.to_string(),
        GenericParam::Const(param) => param.ident.to_string(),
        GenericParam::Lifetime(param) => param.lifetime.ident.to_string(),
    };
    let (used, unused): (Vec<_>, Vec<_>) = params.into_iter().partition(|param| {
        let types = machine.queries.iter().flat_map(|query| &query.params);
        types.map(|param| param.ty).any(|ty| mentions(ty, &[name(param)]))
    });
    let unused: Vec<String> = unused.iter().map(name).collect();
    if used.is_empty() {
        return Generics::default();
    }
    generics.params = used.into_iter().collect();
    if let Some(clause) = &mut generics.where_clause {
        let kept = clause.predicates.iter().filter(|predicate| !mentions(predicate, &unused));
        clause.predicates = kept.cloned().collect();
    }
    generics
}

/// The parameters as a type declares them when only its impls need the bounds.
pub(super) fn without_bounds(generics: &Generics) -> Generics {
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

/// `Self` in a signature means the machine; outside its impl block it must be written out.
pub(super) fn owned_type(ty: &impl ToTokens, machine: &Machine<'_>) -> TokenStream {
    without_self(ty.to_token_stream(), &machine.block.self_ty.to_token_stream())
}

/// The type a method returns.
pub(super) fn reply(method: &Method) -> Type {
    match &method.sig.output {
        ReturnType::Default => parse_quote!(()),
        ReturnType::Type(_, ty) => (**ty).clone(),
    }
}

/// The names by which everything below reaches the commands: the enum, its mirror, and the mirror once more for
/// every handler. A check stands in each, run by the compiler: where it fails, it is the only error, because a
/// type that could not be made out is not complained about again.
fn commands(expansion: &Expansion<'_>) -> TokenStream {
    let Expansion { krate, command, machine, .. } = expansion;
    let handlers = machine.handlers.iter().enumerate().map(|(position, handler)| {
        let (cfgs, alias) = (&handler.cfgs, handler_alias(handler));
        let check = handler_check(expansion, handler, position);
        quote! {
            #(#cfgs)*
            type #alias = <__Mirror as #krate::__private::Checked<{ #check }>>::Itself;
        }
    });
    let rows = machine.handlers.iter().map(|handler| {
        let (cfgs, name) = (&handler.cfgs, text_of(&handler.variant));
        quote!(#(#cfgs)* #name)
    });
    let table = quote!(#krate::__private::CommandOf::<#command>::TABLE);
    let at_command = placed(krate, command.span());
    let name = type_text(command);
    let check = quote_spanned!(command.span()=> #at_command::__private::check_command(__TABLE, #name));
    quote! {
        const __TABLE: #krate::__private::Table = #table;
        const __HANDLERS: &[&::core::primitive::str] = &[#(#rows),*];
        type __Command = <#command as #krate::__private::Checked<{ #check }>>::Itself;
        type __Mirror = <__Command as #krate::__private::Mirrored>::Mirror;
        #(#handlers)*
    }
}

/// The mirror as a handler names it: a pattern takes an alias, and no qualified path.
pub(super) fn handler_alias(handler: &Handler<'_>) -> Ident {
    format_ident!("__Of_{}", handler.method.sig.ident.unraw(), span = Span::call_site())
}

/// Checks a handler against its variant, and each of its arguments at its own place.
fn handler_check(expansion: &Expansion<'_>, handler: &Handler<'_>, position: usize) -> TokenStream {
    let Expansion { krate, command, .. } = expansion;
    let ident = &handler.method.sig.ident;
    let (enumeration, variant, name) = (type_text(command), text_of(&handler.variant), text_of(ident));
    let (count, has_context) = (handler.params.len(), handler.context.is_some());
    let fields = format_ident!("__fields", span = Span::mixed_site());
    let at_handler = placed(krate, ident.span());
    let found = quote_spanned! {ident.span()=>
        #at_handler::__private::check_handler(
            __TABLE, __HANDLERS, #enumeration, #position, #variant, #name, #count, #has_context
        )
    };
    if handler.params.is_empty() {
        return quote!(let _ = #found; true);
    }
    let names = format_ident!("__names", span = Span::mixed_site());
    let written = handler.params.iter().map(|param| param.written.map_or_else(|| "_".to_owned(), text_of));
    let arguments = handler.params.iter().enumerate().map(|(index, param)| {
        let place = param.place;
        let at_argument = placed(krate, place);
        quote_spanned!(place=> #at_argument::__private::check_argument(#fields, #variant, #index, #names);)
    });
    quote! {
        let #fields = #found;
        let #names = &[#(#written),*];
        #(#arguments)*
        true
    }
}

/// What the compiler checks over all of the block.
fn checks(expansion: &Expansion<'_>) -> TokenStream {
    let Expansion { krate, command, machine, .. } = expansion;
    let missing = machine.whole.then(|| {
        let krate = placed(krate, command.span());
        quote_spanned! {command.span()=>
            const _: () = #krate::__private::check_all_handled(__TABLE, __HANDLERS);
        }
    });
    let version = machine.args.version.as_ref().map(|version| {
        let krate = placed(krate, version.span());
        // A generic state has no constants outside its own impl.
        let fields = if machine.block.generics.params.is_empty() {
            let self_ty = &machine.block.self_ty;
            quote!(#krate::__private::StateOf::<#self_ty>::FIELDS)
        } else {
            quote!(&[])
        };
        quote_spanned! {version.span()=>
            const _: () = #krate::__private::check_version(
                #version, #krate::schema::highest_since(__TABLE.variants, #fields)
            );
        }
    });
    quote!(#missing #version)
}

fn implementation(expansion: &Expansion<'_>) -> TokenStream {
    let Expansion { krate, names, machine, .. } = expansion;
    let self_ty = &machine.block.self_ty;
    let (impl_generics, _, where_clause) = machine.block.generics.split_for_impl();
    let request = machine.args.server_request.as_ref();
    let request = request.map_or_else(|| quote!(#krate::Never), ToTokens::to_token_stream);
    let query_ty = if machine.queries.is_empty() {
        quote!(#krate::Never)
    } else {
        let generics = query_generics(machine);
        let (_, type_generics, _) = generics.split_for_impl();
        let query = &names.query;
        quote!(#query #type_generics)
    };
    let cx = format_ident!("__cx", span = Span::mixed_site());
    let value = format_ident!("__value", span = Span::mixed_site());
    let arms = machine.handlers.iter().map(|handler| arm(expansion, handler, &request, &cx));
    let query_body = if machine.queries.is_empty() {
        quote!(match #value {})
    } else {
        let arms = machine.queries.iter().map(|query| query_arm(expansion, query));
        quote!(match #value { #(#arms)* })
    };
    let hooks = machine.hooks.iter().map(|hook| hook_fn(expansion, &request, hook, &cx));
    let internal = is_internal(expansion, &value);
    let check_reply = check_reply(expansion);
    let query = at_own_name(machine.args.query.as_ref(), &quote!(type Query = #query_ty;));
    let checked_request = checked_request(expansion).unwrap_or_else(|| request.clone());
    quote! {
        #[automatically_derived]
        impl #impl_generics #krate::StateMachine for #self_ty #where_clause {
            type Command = __Command;
            #query
            type ServerRequest = #checked_request;

            const SCHEMA: #krate::Schema = Self::SCHEMA;

            fn apply(
                &mut self,
                #cx: &mut #krate::Context<'_, #request>,
                #value: __Command,
            ) -> ::core::result::Result<#krate::Response, #krate::EncodeError> {
                let _ = &#cx;
                match <__Command as #krate::__private::Mirrored>::into_mirror(#value) {
                    #(#arms)*
                    // That a handler is missing has been said above.
                    _ => #krate::__private::no_handler(),
                }
            }

            fn query(&self, #value: #query_ty) -> ::core::result::Result<#krate::Bytes, #krate::EncodeError> {
                #query_body
            }

            #internal
            #check_reply
            #(#hooks)*
        }
    }
}

/// The server request, if it can be sent. Of a generic one nothing can be said here.
fn checked_request(expansion: &Expansion<'_>) -> Option<TokenStream> {
    let Expansion { krate, machine, .. } = expansion;
    let request = machine.args.server_request.as_ref()?;
    if !machine.block.generics.params.is_empty() {
        return None;
    }
    Some(checked(krate, "check_server_request", request, &request.to_token_stream()))
}

/// What the user allows in the block is allowed in what is made of it. Deprecated methods are, too: they are
/// called on behalf of clients that still send their commands.
pub(super) fn allowed(machine: &Machine<'_>) -> TokenStream {
    let methods = machine.methods.iter().map(|(method, _)| method.attrs.as_slice());
    let deprecated = allow_deprecated(methods);
    let levels = machine.block.attrs.iter().filter_map(|attr| match &attr.meta {
        Meta::List(list) if ["allow", "expect"].iter().any(|level| list.path.is_ident(level)) => {
            Some(&list.tokens)
        }
        _ => None,
    });
    quote!(#deprecated #(#[allow(#levels)])*)
}

fn arm(expansion: &Expansion<'_>, handler: &Handler<'_>, request: &TokenStream, cx: &Ident) -> TokenStream {
    let krate = &expansion.krate;
    let (cfgs, variant, alias) = (&handler.cfgs, &handler.variant, handler_alias(handler));
    let name = &handler.method.sig.ident;
    // Each argument is the place of its own mistake.
    let params = handler.params.iter().enumerate();
    let locals = params.map(|(index, param)| Ident::new(&format!("__argument{index}"), param.ty.span()));
    let locals: Vec<Ident> = locals.collect();
    let given = handler.params.iter().zip(&locals).map(|(param, local)| {
        let (ty, place) = (param.ty, param.ty.span());
        let krate = placed(krate, place);
        quote_spanned!(place=> #krate::__private::Gives::<#ty>::give(#local))
    });
    let context = handler.context.map(|ty| {
        // Where the handler does not fit its variant, that is all there is to say.
        let own = |own: TokenStream| quote!(<#own as #krate::__private::Beside<#alias>>::Itself);
        own_context(expansion, request, ty, cx, own)
    });
    let context = context.map(|context| quote!(#context,));
    let reply_ty = reply(handler.method);
    let answer = of_reply(krate, handler.method, &reply_ty, &quote!(Reply), "into_response");
    quote! {
        #(#cfgs)*
        #alias::#variant((#(#locals,)*)) => #answer(Self::#name(self, #context #(#given),*)),
    }
}

/// Which type the answer to each command has, for tests.
fn check_reply(expansion: &Expansion<'_>) -> TokenStream {
    let Expansion { krate, machine, .. } = expansion;
    let command = format_ident!("__command", span = Span::mixed_site());
    let response = format_ident!("__response", span = Span::mixed_site());
    let arms = machine.handlers.iter().map(|handler| {
        let (cfgs, name) = (&handler.cfgs, text_of(&handler.variant));
        let reply_ty = reply(handler.method);
        let check = of_reply(krate, handler.method, &reply_ty, &quote!(Reply), "check_response");
        quote!(#(#cfgs)* #name => #check(#command, #response),)
    });
    quote! {
        #krate::__private::if_testing! {
            fn check_reply(
                #command: &::core::primitive::str,
                #response: &#krate::Response,
            ) -> ::core::result::Result<(), ::std::string::String> {
                match #command {
                    #(#arms)*
                    _ => ::core::result::Result::Ok(()),
                }
            }
        }
    }
}

/// `<reply as role>::item`, shown at the user's reply from its first token to its last. Every use of a reply is
/// written this way: the compiler says the same thing about the same place only once.
fn of_reply(
    krate: &Path,
    method: &Method,
    reply: &impl ToTokens,
    role: &TokenStream,
    item: &str,
) -> TokenStream {
    let (first, last) = ends(match &method.sig.output {
        ReturnType::Default => method.sig.ident.to_token_stream(),
        ReturnType::Type(_, ty) => ty.to_token_stream(),
    });
    let krate = placed(krate, last);
    let role = placed(role, last);
    let item = Ident::new(item, last);
    let open = quote_spanned!(first=> <);
    let rest = quote_spanned!(last=> as #krate::#role>::#item);
    quote!(#open #reply #rest)
}

fn query_arm(expansion: &Expansion<'_>, query: &Query<'_>) -> TokenStream {
    let Expansion { krate, names, .. } = expansion;
    let (cfgs, variant, name) = (&query.cfgs, &query.variant, &query.method.sig.ident);
    let enumeration = &names.query;
    let fields: Vec<&Ident> = query.params.iter().filter_map(|param| param.name.as_ref()).collect();
    let locals: Vec<Ident> = (0..fields.len())
        .map(|index| format_ident!("__argument{index}", span = Span::mixed_site()))
        .collect();
    let reply_ty = reply(query.method);
    let answer = of_reply(krate, query.method, &reply_ty, &quote!(__private::QueryReply), "encode");
    quote! {
        #(#cfgs)*
        #enumeration::#variant { #(#fields: #locals),* } => #answer(&Self::#name(self, #(#locals),*)),
    }
}

/// The context as the method has it; another machine's is said at the method's own parameter.
fn own_context(
    expansion: &Expansion<'_>,
    request: &TokenStream,
    ty: &Type,
    cx: &Ident,
    as_seen: impl Fn(TokenStream) -> TokenStream,
) -> TokenStream {
    let place = context_place(expansion.machine, ty);
    let krate = placed(&expansion.krate, place);
    let own_here = as_seen(with_any_lifetimes(context_type(ty).to_token_stream()));
    let context = quote_spanned!(place=> #krate::Context<'_, #request>);
    quote_spanned!(place=> <#context as #krate::__private::Serves<#own_here>>::context(#cx))
}

fn context_type(ty: &Type) -> &Type {
    match ty {
        Type::Reference(reference) => &reference.elem,
        other => other,
    }
}

/// The first place where this context is written: a `server_request` that was forgotten is one mistake, not one for
/// every method.
fn context_place(machine: &Machine<'_>, ty: &Type) -> Span {
    let contexts = machine.handlers.iter().map(|handler| handler.context);
    let contexts = contexts.chain(machine.hooks.iter().map(|hook| hook.context)).flatten();
    let text = |ty: &Type| context_type(ty).to_token_stream().to_string();
    let first = contexts.into_iter().find(|other| text(other) == text(ty));
    context_type(first.unwrap_or(ty)).span()
}

/// The lifetimes that a method names are its own; a caller leaves them to the compiler.
fn with_any_lifetimes(tokens: TokenStream) -> TokenStream {
    let mut after_tick = false;
    let renamed = tokens.into_iter().map(|token| {
        let is_name = std::mem::replace(
            &mut after_tick,
            matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '\''),
        );
        match token {
            TokenTree::Ident(name) if is_name => Ident::new("_", name.span()).into(),
            TokenTree::Group(group) => {
                Group::new(group.delimiter(), with_any_lifetimes(group.stream())).into()
            }
            other => other,
        }
    });
    renamed.collect()
}

fn hook_fn(expansion: &Expansion<'_>, request: &TokenStream, hook: &Hook<'_>, cx: &Ident) -> TokenStream {
    let krate = &expansion.krate;
    let (cfgs, method) = (&hook.cfgs, &hook.method.sig.ident);
    let name = if hook.closes { quote!(session_closed) } else { quote!(session_created) };
    let context = hook.context.map(|ty| own_context(expansion, request, ty, cx, |own| own));
    quote! {
        #(#cfgs)*
        fn #name(&mut self, #cx: &mut #krate::Context<'_, #request>) {
            let _ = &#cx;
            Self::#method(self, #context)
        }
    }
}

/// Which commands are internal, by position: a lookup, not a search by name.
fn is_internal(expansion: &Expansion<'_>, value: &Ident) -> TokenStream {
    let Expansion { krate, machine, .. } = expansion;
    let internal: Vec<&Handler<'_>> = machine.handlers.iter().filter(|handler| handler.internal).collect();
    let body = if internal.is_empty() {
        quote!(let _ = #value; false)
    } else {
        let names = internal.iter().map(|handler| {
            let (cfgs, name) = (&handler.cfgs, text_of(&handler.variant));
            quote!(#(#cfgs)* #name)
        });
        quote! {
            const __INTERNAL: [::core::primitive::bool; __TABLE.variants.len()] =
                #krate::__private::among(__TABLE.variants, &[#(#names),*]);
            #krate::__private::is_among(&__INTERNAL, #krate::Command::variant(#value))
        }
    };
    quote! {
        #[inline]
        fn is_internal(#value: &__Command) -> ::core::primitive::bool { #body }
    }
}

/// Shows an item at the name the user gave it, where there is one.
fn at_own_name(named: Option<&Named>, item: &TokenStream) -> TokenStream {
    named.map_or_else(|| item.clone(), |named| placed(item, named.name.span()))
}

fn schema(expansion: &Expansion<'_>) -> TokenStream {
    let Expansion { krate, names, machine, .. } = expansion;
    let name = &names.machine;
    let variants = quote!(__TABLE.variants);
    let state = quote!(#krate::__private::StateOf::<Self>::FIELDS);
    let version = machine
        .args
        .version
        .as_ref()
        .map_or_else(|| quote!(#krate::schema::highest_since(#variants, #state)), ToTokens::to_token_stream);
    let handlers = machine.handlers.iter().map(|handler| {
        let (cfgs, name, internal) = (&handler.cfgs, text_of(&handler.variant), handler.internal);
        let reply = return_text(&handler.method.sig.output);
        quote!(#(#cfgs)* #krate::schema::Handler { command: #name, reply: #reply, internal: #internal })
    });
    let queries = machine.queries.iter().map(|query| {
        let (cfgs, name) = (&query.cfgs, text_of(&query.variant));
        let reply = return_text(&query.method.sig.output);
        let fields = query.params.iter().map(|param| {
            let (name, ty) = (param.name.as_ref().map(text_of), type_text(param.ty));
            quote!((#name, #ty))
        });
        quote! {
            #(#cfgs)*
            #krate::schema::QueryShape { name: #name, fields: &[#(#fields),*], reply: #reply }
        }
    });
    let request = machine.args.server_request.as_ref().map_or_else(|| "Never".to_owned(), type_text);
    quote! {
        #krate::Schema {
            name: #name,
            version: #version,
            commands: #variants,
            handlers: &[#(#handlers),*],
            queries: &[#(#queries),*],
            server_request: #request,
            state: #state,
            dropped: #krate::__private::StateOf::<Self>::DROPPED,
        }
    }
}

/// The schema, without a trait to import. The trait's constant is this one.
fn schema_const(expansion: &Expansion<'_>) -> TokenStream {
    let Expansion { krate, machine, .. } = expansion;
    let self_ty = &machine.block.self_ty;
    let (impl_generics, _, where_clause) = machine.block.generics.split_for_impl();
    let schema = schema(expansion);
    quote! {
        impl #impl_generics #self_ty #where_clause {
            /// The machine's shape: its commands in wire order, their replies, its queries and its state.
            pub const SCHEMA: #krate::Schema = #schema;
        }
    }
}

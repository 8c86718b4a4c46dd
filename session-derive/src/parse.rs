//! From tokens to syntax: the arguments of the attributes, and the impl block with its bodies unread.

use crate::errors::Errors;
use crate::names::near;
use crate::words;
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::parse::discouraged::Speculative;
use syn::parse::{Parse, ParseStream};
use syn::{
    AttrStyle, Attribute, Data, DeriveInput, Expr, ExprLit, Generics, Ident, ImplItem, Lit, LitInt, LitStr,
    Meta, Path, Signature, Token, Type, Visibility, WhereClause, braced, token,
};

/// The path by which the expansion reaches the runtime.
pub(crate) fn default_crate() -> Path {
    syn::parse_quote!(::session_runtime)
}

/// A generated type: its name, and its visibility where the user gives one.
pub(crate) struct Named {
    pub(crate) vis: Option<Visibility>,
    pub(crate) name: Ident,
}

/// What stands in `#[state_machine(...)]`.
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) krate: Option<Path>,
    pub(crate) command: Option<Type>,
    pub(crate) server_request: Option<Type>,
    pub(crate) query: Option<Named>,
    pub(crate) client: Option<Named>,
    pub(crate) name: Option<LitStr>,
    pub(crate) version: Option<LitInt>,
}

const IMPL_KEYS: [&str; 7] = ["command", "server_request", "query", "client", "name", "version", "crate"];
const ENUM_KEYS: [&str; 1] = ["crate"];

impl Args {
    /// The arguments on the impl block.
    pub(crate) fn of_impl(tokens: TokenStream, errors: &Errors) -> Self {
        Self::parse(tokens, &IMPL_KEYS, errors)
    }

    /// The arguments on the enum.
    pub(crate) fn of_enum(tokens: TokenStream, errors: &Errors) -> Self {
        Self::parse(tokens, &ENUM_KEYS, errors)
    }

    fn parse(tokens: TokenStream, keys: &[&str], errors: &Errors) -> Self {
        let mut args = Self::default();
        let parser = |input: ParseStream<'_>| {
            let mut seen: Vec<String> = Vec::new();
            while !input.is_empty() {
                args.argument(input, keys, &mut seen, errors);
                skip_value(input)?;
                input.parse::<Option<Token![,]>>()?;
            }
            Ok(())
        };
        if let Err(error) = syn::parse::Parser::parse2(parser, tokens) {
            errors.push(error);
        }
        args
    }

    /// One argument, up to the next comma if it is understood.
    fn argument(&mut self, input: ParseStream<'_>, keys: &[&str], seen: &mut Vec<String>, errors: &Errors) {
        let Ok(key) = Ident::parse_any(input) else {
            errors.at(input.span(), words::no_key(keys));
            return;
        };
        let text = key.to_string();
        if seen.contains(&text) {
            errors.on(&key, words::repeated_key(&text));
        }
        if keys.contains(&text.as_str()) {
            let value = input.parse::<Token![=]>().and_then(|_| self.value(&text, input, errors));
            let is_whole = input.is_empty() || input.peek(Token![,]);
            match value {
                Ok(()) if is_whole => {}
                Ok(()) => errors.at(input.span(), words::NO_COMMA),
                Err(error) => errors.at(error.span(), words::value_form(&text)),
            }
        } else if IMPL_KEYS.contains(&text.as_str()) {
            errors.on(&key, words::key_of_impl(&text));
        } else {
            let is_bare = input.is_empty() || input.peek(Token![,]);
            errors.on(&key, words::unknown_key(&text, near(&text, keys.iter().copied()), keys, is_bare));
        }
        seen.push(text);
    }

    fn value(&mut self, key: &str, input: ParseStream<'_>, errors: &Errors) -> syn::Result<()> {
        match key {
            "crate" => self.krate = Some(Path::parse_mod_style(input)?),
            "command" => self.command = Some(input.parse()?),
            "server_request" => self.server_request = Some(input.parse()?),
            "query" => self.query = Some(input.parse()?),
            "client" => self.client = Some(input.parse()?),
            "name" => {
                let name: LitStr = input.parse()?;
                if name.value().is_empty() {
                    errors.on(&name, words::EMPTY_NAME);
                }
                self.name = Some(name);
            }
            _ => {
                let version: LitInt = input.parse()?;
                match version.base10_parse::<u32>() {
                    Ok(number) if number > 0 => self.version = Some(version),
                    _ => errors.on(&version, words::VERSION_RANGE),
                }
            }
        }
        Ok(())
    }

    pub(crate) fn krate(&self) -> Path {
        self.krate.clone().unwrap_or_else(default_crate)
    }
}

/// Leaves out what was not understood, up to the next comma.
fn skip_value(input: ParseStream<'_>) -> syn::Result<()> {
    while !input.is_empty() && !input.peek(Token![,]) {
        input.parse::<TokenTree>()?;
    }
    Ok(())
}

impl Parse for Named {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let vis = match input.parse()? {
            Visibility::Inherited => None,
            vis => Some(vis),
        };
        let name = input.parse()?;
        // The type is made here: a path to another place is none of its names.
        if input.peek(Token![::]) {
            return Err(input.error("expected a name"));
        }
        Ok(Self { vis, name })
    }
}

/// An impl block whose methods' bodies are kept as they are, so that a half-typed one loses only itself.
pub(crate) struct ImplBlock {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) unsafety: Option<Token![unsafe]>,
    pub(crate) impl_token: Token![impl],
    pub(crate) generics: Generics,
    pub(crate) for_trait: Option<Type>,
    pub(crate) self_ty: Type,
    pub(crate) items: Vec<Item>,
}

/// One item of the block.
pub(crate) enum Item {
    Method(Box<Method>),
    Other(Box<ImplItem>),
    /// What does not parse, and why. Most often rustc has said so, too; but no handler is lost without a word.
    HalfTyped(TokenStream, syn::Error),
}

/// A method, its body unread.
pub(crate) struct Method {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    pub(crate) body: Group,
}

impl Parse for ImplBlock {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut attrs = input.call(Attribute::parse_outer)?;
        let unsafety = input.parse()?;
        let impl_token = input.parse()?;
        let mut generics = if input.peek(Token![<]) { input.parse()? } else { Generics::default() };
        let first: Type = input.parse()?;
        let (for_trait, self_ty) = if input.peek(Token![for]) {
            input.parse::<Token![for]>()?;
            (Some(first), input.parse()?)
        } else {
            (None, first)
        };
        generics.where_clause = input.parse::<Option<WhereClause>>()?;
        let content;
        braced!(content in input);
        attrs.extend(content.call(Attribute::parse_inner)?);
        let mut items = Vec::new();
        while !content.is_empty() {
            let ahead = content.fork();
            match ahead.parse() {
                Ok(item) => {
                    content.advance_to(&ahead);
                    items.push(item);
                }
                Err(error) => items.push(Item::HalfTyped(half_typed(&content)?, error)),
            }
        }
        Ok(Self { attrs, unsafety, impl_token, generics, for_trait, self_ty, items })
    }
}

/// The rest of an item that does not parse: all up to its body or its semicolon.
fn half_typed(input: ParseStream<'_>) -> syn::Result<TokenStream> {
    let mut tokens: Vec<TokenTree> = Vec::new();
    let is_end = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(punct) => punct.as_char() == ';',
        _ => false,
    };
    while !input.is_empty() && !tokens.last().is_some_and(is_end) {
        tokens.push(input.parse()?);
    }
    Ok(tokens.into_iter().collect())
}

impl Parse for Item {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let ahead = input.fork();
        ahead.call(Attribute::parse_outer)?;
        ahead.parse::<Visibility>()?;
        if ahead.parse::<Signature>().is_ok() && ahead.peek(token::Brace) {
            input.parse().map(|method| Self::Method(Box::new(method)))
        } else {
            input.parse().map(|item| Self::Other(Box::new(item)))
        }
    }
}

impl Parse for Method {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        Ok(Self {
            attrs: input.call(Attribute::parse_outer)?,
            vis: input.parse()?,
            sig: input.parse()?,
            body: body(input)?,
        })
    }
}

/// The braces. A `block` fragment of a `macro_rules!` comes in a group that nobody sees.
fn body(input: ParseStream<'_>) -> syn::Result<Group> {
    let mut token = input.parse::<TokenTree>()?;
    loop {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return Ok(group),
            TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
                let inner = group.stream().into_iter().next();
                token = inner.ok_or_else(|| input.error("expected a body"))?;
            }
            other => return Err(syn::Error::new(other.span(), "expected a body")),
        }
    }
}

impl ImplBlock {
    /// The block around these methods: always an inherent one, because what was wrong with it has been said.
    pub(crate) fn emit(&self, methods: &TokenStream) -> TokenStream {
        let Self { attrs, impl_token, generics, self_ty, .. } = self;
        let ours = |attr: &&Attribute| {
            attr.path().is_ident("assume_infallible") || attr.path().is_ident("assume_deterministic")
        };
        let is_outer = |attr: &&Attribute| matches!(attr.style, AttrStyle::Outer);
        let (outer, inner): (Vec<&Attribute>, Vec<&Attribute>) =
            attrs.iter().filter(|attr| !ours(attr)).partition(is_outer);
        let where_clause = &generics.where_clause;
        quote! {
            #(#outer)*
            #impl_token #generics #self_ty #where_clause {
                #(#inner)*
                #methods
            }
        }
    }
}

/// The string of `#[name = "..."]`.
pub(crate) fn string_value(attr: &Attribute) -> Option<LitStr> {
    match &attr.meta {
        Meta::NameValue(pair) => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// The number of `#[since = N]`.
pub(crate) fn since_of(attrs: &[Attribute], errors: &Errors) -> Option<u32> {
    let mut found = None;
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("since")) {
        if found.is_some() {
            errors.on(attr, words::repeated_attribute("since"));
        }
        match since_number(attr) {
            Some(number) => found = Some(number),
            // What is no literal is refused by rustc.
            None if has_expression(attr) => {}
            None => errors.on(attr, words::SINCE_FORM),
        }
    }
    found
}

fn has_expression(attr: &Attribute) -> bool {
    let is_literal =
        |value: &Expr| matches!(value, Expr::Lit(_)) && !value.to_token_stream().to_string().starts_with('-');
    matches!(&attr.meta, Meta::NameValue(pair) if !is_literal(&pair.value))
}

/// The version in `#[since = N]`, if it is one.
pub(crate) fn since_number(attr: &Attribute) -> Option<u32> {
    let Meta::NameValue(pair) = &attr.meta else { return None };
    match &pair.value {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => {
            number.base10_parse::<u32>().ok().filter(|number| *number > 0)
        }
        _ => None,
    }
}

/// The reason of `#[assume_...= "why"]`, if the attribute is there. Without a reason it is a mistake.
pub(crate) fn reason(attrs: &[Attribute], name: &str, errors: &Errors) -> Option<LitStr> {
    let attr = attrs.iter().find(|attr| attr.path().is_ident(name))?;
    let text = string_value(attr);
    if text.as_ref().is_none_or(|text| text.value().trim().is_empty()) {
        errors.on(attr, words::reason_needed(name));
    }
    // Also without one: the mistake is said once, and what the attribute lifts is not reported on top.
    Some(text.unwrap_or_else(|| LitStr::new("", proc_macro2::Span::call_site())))
}

/// Nothing but a field or a handler is vouched for. Whether something else was: its fields are no second mistake.
pub(crate) fn is_misvouched(item: &DeriveInput, errors: &Errors) -> bool {
    let before = errors.count();
    let variants = match &item.data {
        Data::Enum(data) => data.variants.iter().flat_map(|variant| &variant.attrs).collect(),
        _ => Vec::new(),
    };
    for attr in item.attrs.iter().chain(variants) {
        if attr.path().is_ident("assume_deterministic") {
            errors.on(attr, words::ASSUME_PLACE);
        }
    }
    errors.count() > before
}

/// `crate = path` of a derive's own attribute.
pub(crate) fn derive_crate(attrs: &[Attribute], name: &str, errors: &Errors) -> Path {
    let mut krate = default_crate();
    for attr in attrs.iter().filter(|attr| attr.path().is_ident(name)) {
        let parsed = attr.parse_nested_meta(|meta| {
            if meta.path.is_ident("crate") {
                krate = meta.value()?.call(Path::parse_mod_style)?;
                return Ok(());
            }
            let key = meta.path.to_token_stream().to_string();
            Err(meta.error(words::unknown_key(&key, near(&key, ["crate"]), &["crate"], false)))
        });
        if let Err(error) = parsed {
            errors.push(error);
        }
    }
    krate
}

/// The attributes by which an item is there or not.
pub(crate) fn cfgs(attrs: &[Attribute]) -> Vec<&Attribute> {
    attrs.iter().filter(|attr| attr.path().is_ident("cfg")).collect()
}

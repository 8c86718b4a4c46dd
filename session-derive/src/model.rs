//! What the impl block means: which method is a handler, a query or a hook, and what each takes. It borrows the
//! user's syntax, so that everything said later can point at it.

use crate::errors::Errors;
use crate::names::{near, peeled, variant_of};
use crate::parse::{Args, ImplBlock, Item, Method, cfgs, reason};
use crate::words;
use proc_macro2::{Span, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{
    Attribute, FnArg, GenericParam, Ident, ImplItem, LitStr, Meta, Pat, PatType, ReceiverKind, ReturnType,
    Safety, Signature, Type,
};

/// The attributes of ours on a method.
pub(crate) const MARKERS: [&str; 6] =
    ["query", "internal", "session_created", "session_closed", "assume_infallible", "assume_deterministic"];

/// The whole block.
pub(crate) struct Machine<'a> {
    pub(crate) block: &'a ImplBlock,
    pub(crate) args: &'a Args,
    pub(crate) handlers: Vec<Handler<'a>>,
    pub(crate) queries: Vec<Query<'a>>,
    pub(crate) hooks: Vec<Hook<'a>>,
    /// Every method with what its attributes say, understood or not.
    pub(crate) methods: Vec<(&'a Method, Marks)>,
    /// Whether every method was understood. If not, a missing handler is no second mistake.
    pub(crate) whole: bool,
    names: BTreeSet<String>,
    /// Which method stands for which variant, of the queries (`true`) and of the commands.
    answered: BTreeMap<(bool, String), &'a Ident>,
}

/// A method that answers a command.
pub(crate) struct Handler<'a> {
    pub(crate) method: &'a Method,
    pub(crate) cfgs: Vec<&'a Attribute>,
    pub(crate) variant: Ident,
    pub(crate) context: Option<&'a Type>,
    pub(crate) params: Vec<Param<'a>>,
    pub(crate) internal: bool,
}

/// A method that answers a query.
pub(crate) struct Query<'a> {
    pub(crate) method: &'a Method,
    pub(crate) cfgs: Vec<&'a Attribute>,
    pub(crate) variant: Ident,
    pub(crate) params: Vec<Param<'a>>,
}

/// A method that runs when a session is opened or closed.
pub(crate) struct Hook<'a> {
    pub(crate) method: &'a Method,
    pub(crate) cfgs: Vec<&'a Attribute>,
    pub(crate) closes: bool,
    pub(crate) context: Option<&'a Type>,
}

/// A parameter behind the context.
pub(crate) struct Param<'a> {
    /// The name as it is written; a pattern or a bare `_` has none.
    pub(crate) written: Option<&'a Ident>,
    /// The name without a leading underscore.
    pub(crate) name: Option<Ident>,
    /// Where it is written, whatever it is.
    pub(crate) place: Span,
    pub(crate) ty: &'a Type,
}

/// What the attributes of ours say about a method.
pub(crate) struct Marks {
    pub(crate) query: bool,
    pub(crate) internal: bool,
    hook: Option<bool>,
    pub(crate) infallible: Option<LitStr>,
    pub(crate) deterministic: Option<LitStr>,
}

impl<'a> Machine<'a> {
    pub(crate) fn new(block: &'a ImplBlock, args: &'a Args, errors: &Errors) -> Self {
        let mut machine = Self {
            block,
            args,
            handlers: Vec::new(),
            queries: Vec::new(),
            hooks: Vec::new(),
            methods: Vec::new(),
            whole: true,
            names: BTreeSet::new(),
            answered: BTreeMap::new(),
        };
        for item in &block.items {
            match item {
                Item::Method(method) => machine.method(method, errors),
                Item::Other(item) => machine.other(item, errors),
                Item::HalfTyped(_, error) => {
                    errors.push(error.clone());
                    machine.whole = false;
                }
            }
        }
        // The methods of a trait are no handlers; that there is one has been said.
        if block.for_trait.is_some() {
            machine.whole = false;
            machine.handlers.clear();
            machine.queries.clear();
            machine.hooks.clear();
        }
        machine
    }

    fn other(&mut self, item: &ImplItem, errors: &Errors) {
        match item {
            // Without a body or a value: rustc says so.
            ImplItem::Verbatim(_) => self.whole = false,
            ImplItem::Macro(item) => {
                self.whole = false;
                errors.on(&item.mac.path, words::MACRO_IN_BLOCK);
            }
            item => errors.on(item, words::NOT_A_METHOD),
        }
    }

    fn method(&mut self, method: &'a Method, errors: &Errors) {
        let before = errors.count();
        let marks = Marks::of(&method.attrs, errors);
        let context = signature(&method.sig, &marks, errors);
        let typed = method.sig.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(typed) => Some(typed),
            FnArg::Receiver(_) => None,
        });
        let params = Param::all(typed.skip(usize::from(context.is_some())));
        if marks.hook.is_some() {
            if let Some(param) = params.first() {
                errors.on(param.ty, words::HOOK_PARAMETER);
            }
            if let ReturnType::Type(_, ty) = &method.sig.output
                && !matches!(peeled(ty), Type::Tuple(unit) if unit.elems.is_empty())
            {
                errors.on(ty, words::HOOK_REPLY);
            }
        }
        if marks.query {
            for (param, input) in params.iter().zip(method.sig.inputs.iter().skip(1)) {
                if param.name.is_none() {
                    errors.on(input, words::QUERY_PATTERN);
                }
            }
        }
        let cfgs = cfgs(&method.attrs);
        let alone = |hook: &Hook<'_>| Some(hook.closes) == marks.hook && hook.cfgs.is_empty();
        if cfgs.is_empty() && self.hooks.iter().any(alone) {
            let name = if marks.hook == Some(true) { "session_closed" } else { "session_created" };
            errors.on(&method.sig.ident, words::second_hook(name));
        }
        // rustc says that there are two of one name; whatever is made of the second would say it again.
        let is_second = !self.names.insert(method.sig.ident.to_string()) && cfgs.is_empty();
        let written: Vec<&Ident> = params.iter().filter_map(|param| param.written).collect();
        let has_twins = written.iter().enumerate().any(|(at, name)| written[..at].contains(name));
        let (hook, query, internal) = (marks.hook, marks.query, marks.internal);
        self.methods.push((method, marks));
        if is_second {
            return;
        }
        if errors.count() > before || has_twins {
            self.whole = false;
            return;
        }
        if let Some(closes) = hook {
            self.hooks.push(Hook { method, cfgs, closes, context });
            return;
        }
        let variant = variant_of(&method.sig.ident);
        // Under `cfg`, there may be only one of them at a time.
        let key = (query, variant.to_string());
        let other = if cfgs.is_empty() { self.answered.insert(key, &method.sig.ident) } else { None };
        if let Some(other) = other {
            errors.on(
                &method.sig.ident,
                words::second_of_variant(&other.to_string(), &variant.to_string(), query),
            );
        } else if query {
            self.queries.push(Query { method, cfgs, variant, params });
        } else {
            self.handlers.push(Handler { method, cfgs, variant, context, params, internal });
        }
    }
}

impl<'a> Param<'a> {
    /// The parameters, each without its underscore where that leaves two different names.
    fn all(params: impl Iterator<Item = &'a PatType>) -> Vec<Self> {
        let mut params: Vec<Self> = params
            .map(|param| {
                let written = match &*param.pat {
                    Pat::Ident(pattern) if pattern.subpat.is_none() && pattern.by_ref.is_none() => {
                        Some(&pattern.ident)
                    }
                    _ => None,
                };
                Self { written, name: written.cloned(), place: param.pat.span(), ty: &param.ty }
            })
            .collect();
        let written: Vec<&Ident> = params.iter().filter_map(|param| param.written).collect();
        for param in &mut params {
            let short = param.written.and_then(without_underscore);
            param.name = short.filter(|short| !written.contains(&short)).or_else(|| param.name.take());
        }
        params
    }
}

/// The name behind an underscore, if one can be called that.
fn without_underscore(name: &Ident) -> Option<Ident> {
    let text = name.unraw().to_string();
    let rest = text.strip_prefix('_').filter(|rest| rest.starts_with(|c: char| c.is_alphabetic()))?;
    // A keyword, as in `_type`, can only have been `r#type`; a few, as `self`, can be no name at all.
    let name = |text: &str| {
        let mut short = syn::parse_str::<Ident>(text).ok()?;
        short.set_span(name.span());
        Some(short)
    };
    name(rest).or_else(|| name(&format!("r#{rest}")))
}

impl Marks {
    /// Reads the attributes of ours. With `errors`, says what is wrong with them.
    pub(crate) fn of(attrs: &[Attribute], errors: &Errors) -> Self {
        let mut roles: Vec<&str> = Vec::new();
        for attr in attrs {
            let Some(name) = attr.path().get_ident().map(Ident::to_string) else {
                continue;
            };
            if name == "cfg_attr" {
                if let Some(marker) = hides_marker(attr) {
                    errors.on(&marker, words::HIDDEN_MARKER);
                }
                continue;
            }
            if name == "since" {
                errors.on(attr, words::SINCE_ON_METHOD);
                continue;
            }
            match MARKERS.iter().find(|marker| **marker == name) {
                Some(marker) if marker.starts_with("assume_") => {}
                Some(marker) => {
                    if !matches!(attr.meta, Meta::Path(_)) {
                        errors.on(attr, words::marker_takes_nothing(marker));
                    }
                    match roles.first() {
                        Some(first) if first == marker => errors.on(attr, words::repeated_attribute(marker)),
                        Some(first) => errors.on(attr, words::two_roles(first, marker)),
                        None => roles.push(marker),
                    }
                }
                None => {
                    if let Some(near) = misspelled(&name) {
                        errors.on(attr, words::misspelled_marker(&name, near));
                    }
                }
            }
        }
        let role = roles.first().copied();
        Self {
            query: role == Some("query"),
            internal: role == Some("internal"),
            hook: match role {
                Some("session_created") => Some(false),
                Some("session_closed") => Some(true),
                _ => None,
            },
            infallible: reason(attrs, "assume_infallible", errors)
                .or_else(|| slip(attrs, "assume_infallible")),
            deterministic: reason(attrs, "assume_deterministic", errors)
                .or_else(|| slip(attrs, "assume_deterministic")),
        }
    }

    pub(crate) fn is_hook(&self) -> bool {
        self.hook.is_some()
    }
}

/// A slip of this marker counts as it: what it lifts is no second mistake.
fn slip(attrs: &[Attribute], marker: &str) -> Option<LitStr> {
    let is_slip = |attr: &Attribute| {
        attr.path().get_ident().is_some_and(|name| misspelled(&name.to_string()) == Some(marker))
    };
    attrs.iter().any(is_slip).then(|| LitStr::new("", Span::call_site()))
}

/// Whether an attribute is a slip of one of ours, and of which.
pub(crate) fn misspelled(name: &str) -> Option<&'static str> {
    // Attributes that are what they say, however near.
    const OTHERS: [&str; 2] = ["inline", "interval"];
    if MARKERS.contains(&name) || OTHERS.contains(&name) || name.chars().count() < 4 {
        return None;
    }
    // A slip rarely changes the first letter: `external` is another word than `internal`.
    near(name, MARKERS).filter(|marker| marker.chars().next() == name.chars().next())
}

/// The marker inside a `cfg_attr`, which is evaluated after this macro: it would be lost.
pub(crate) fn hides_marker(attr: &Attribute) -> Option<Ident> {
    let Meta::List(list) = &attr.meta else { return None };
    let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
    // What stands before the first comma is the condition.
    let attributes = list.tokens.clone().into_iter().skip_while(|token| !is_comma(token));
    attributes.into_iter().find_map(|token| match token {
        TokenTree::Ident(ident) if MARKERS.iter().any(|marker| ident == marker) => Some(ident),
        _ => None,
    })
}

/// Checks a signature and finds the context in it.
fn signature<'a>(sig: &'a Signature, marks: &Marks, errors: &Errors) -> Option<&'a Type> {
    if let Some(token) = &sig.asyncness {
        errors.on(token, if marks.query { words::ASYNC_QUERY } else { words::ASYNC_HANDLER });
    }
    if let Safety::Unsafe(token) = &sig.safety {
        errors.on(token, words::UNSAFE_HANDLER);
    }
    if let Some(abi) = &sig.abi {
        errors.on(abi, words::EXTERN_HANDLER);
    }
    let is_lifetime = |param: &&GenericParam| matches!(param, GenericParam::Lifetime(_));
    if let Some(first) = sig.generics.params.iter().find(|param| !is_lifetime(param)) {
        errors.on(first, words::GENERIC_HANDLER);
    }
    receiver(sig, marks, errors);
    let context = parameters(sig, marks, errors);
    if let ReturnType::Type(_, ty) = &sig.output {
        match peeled(ty) {
            Type::Reference(_) => errors.on(ty, words::REFERENCE_REPLY),
            Type::ImplTrait(_) => errors.on(ty, words::IMPL_REPLY),
            _ => {}
        }
    }
    context
}

fn receiver(sig: &Signature, marks: &Marks, errors: &Errors) {
    let (missing, wrong) = if marks.query {
        (words::NO_QUERY_RECEIVER, words::QUERY_RECEIVER)
    } else {
        (words::NO_RECEIVER, words::WRONG_RECEIVER)
    };
    match sig.receiver() {
        None => errors.on(&sig.ident, missing),
        Some(receiver) => match &receiver.kind {
            ReceiverKind::Reference(_, _, mutability) => {
                if marks.query && mutability.is_some() {
                    errors.on(receiver, words::QUERY_RECEIVER);
                }
            }
            ReceiverKind::Typed(_, ty) => match self_reference(ty) {
                Some(mutable) if marks.query && mutable => errors.on(receiver, words::QUERY_RECEIVER),
                Some(_) => {}
                None => errors.on(receiver, wrong),
            },
            _ => errors.on(receiver, wrong),
        },
    }
}

/// Whether a receiver's type is `&Self` or `&mut Self`, and which.
fn self_reference(ty: &Type) -> Option<bool> {
    match peeled(ty) {
        Type::Reference(reference) => match peeled(&reference.elem) {
            Type::Path(own) if own.path.is_ident("Self") => Some(reference.mutability.is_some()),
            _ => None,
        },
        _ => None,
    }
}

fn parameters<'a>(sig: &'a Signature, marks: &Marks, errors: &Errors) -> Option<&'a Type> {
    let mut context = None;
    let receivers = usize::from(sig.receiver().is_some());
    for (position, input) in sig.inputs.iter().enumerate() {
        let FnArg::Typed(param) = input else { continue };
        for attr in cfgs(&param.attrs) {
            errors.on(attr, words::CFG_PARAMETER);
        }
        match peeled(&param.ty) {
            Type::Reference(reference) if reference.mutability.is_some() => {
                if marks.query {
                    errors.on(&param.ty, words::QUERY_CONTEXT);
                } else if position == receivers {
                    context = Some(peeled(&param.ty));
                } else {
                    errors.on(&param.ty, words::CONTEXT_POSITION);
                }
            }
            // Said about the hook's parameters as a whole.
            Type::Reference(_) if marks.is_hook() => {}
            Type::Reference(_) if position == receivers && !marks.query => {
                errors.on(&param.ty, words::REFERENCE_OR_CONTEXT);
            }
            Type::Reference(_) => errors.on(&param.ty, words::REFERENCE_PARAMETER),
            Type::ImplTrait(_) => errors.on(&param.ty, words::IMPL_PARAMETER),
            _ => {}
        }
    }
    context
}

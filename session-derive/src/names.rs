//! Names: from handler to variant and back, the nearest of a few, and types as text.

use proc_macro2::Ident;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::{GenericArgument, PathArguments, ReturnType, Type};

/// The variant a handler's name stands for: its words capitalised.
pub(crate) fn variant_of(handler: &Ident) -> Ident {
    let handler = handler.unraw();
    let text = variant_text(&handler.to_string());
    // A name like `__`, `_1st` or `self_` stands for no variant: it is kept, and found to have none.
    let named = syn::parse_str::<Ident>(&text).map(|_| Ident::new(&text, handler.span()));
    named.unwrap_or(handler)
}

/// The same as text, whether or not a variant can be called that.
pub(crate) fn variant_text(handler: &str) -> String {
    handler.split('_').map(capitalised).collect()
}

/// The handler a variant asks for: the way back from [`variant_text`].
pub(crate) fn handler_of(variant: &Ident) -> String {
    let mut handler = String::new();
    for c in variant.unraw().to_string().chars() {
        if c.is_uppercase() && !handler.is_empty() {
            handler.push('_');
        }
        handler.extend(c.to_lowercase());
    }
    handler
}

fn capitalised(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// The name among `known` that `name` is most likely a slip of.
pub(crate) fn near<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = (name.chars().count() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How many letters to insert, delete, replace or swap with their neighbour to get from one to the other.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=to.len()).collect()];
    for i in 1..=from.len() {
        let mut row = vec![i];
        for j in 1..=to.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(from[i - 1] != to[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

/// The type itself: a `ty` fragment of a `macro_rules!` comes in a group that nobody sees.
pub(crate) fn peeled(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => peeled(&group.elem),
        Type::Paren(paren) => peeled(&paren.elem),
        ty => ty,
    }
}

/// A type as the schema names it: every path by its last segment.
pub(crate) fn type_text(ty: &Type) -> String {
    match peeled(ty) {
        Type::Array(array) => format!("[{}; {}]", type_text(&array.elem), array.len.to_token_stream()),
        Type::Reference(reference) => {
            let lifetime =
                reference.lifetime.as_ref().map(|lifetime| format!("{lifetime} ")).unwrap_or_default();
            let mutable = if reference.mutability.is_some() { "mut " } else { "" };
            format!("&{lifetime}{mutable}{}", type_text(&reference.elem))
        }
        Type::Slice(slice) => format!("[{}]", type_text(&slice.elem)),
        Type::Tuple(tuple) if tuple.elems.len() == 1 => format!("({},)", type_text(&tuple.elems[0])),
        Type::Tuple(tuple) => {
            let elems: Vec<String> = tuple.elems.iter().map(type_text).collect();
            format!("({})", elems.join(", "))
        }
        Type::Path(path) => path.path.segments.last().map_or_else(String::new, |segment| {
            let name = segment.ident.unraw().to_string();
            match &segment.arguments {
                PathArguments::AngleBracketed(arguments) => {
                    let arguments: Vec<String> = arguments.args.iter().map(argument_text).collect();
                    format!("{name}<{}>", arguments.join(", "))
                }
                PathArguments::None => name,
                arguments @ PathArguments::Parenthesized(_) => {
                    format!("{name}{}", arguments.to_token_stream())
                }
            }
        }),
        other => other.to_token_stream().to_string(),
    }
}

fn argument_text(argument: &GenericArgument) -> String {
    match argument {
        GenericArgument::Type(ty) => type_text(ty),
        other => other.to_token_stream().to_string(),
    }
}

/// The type a function returns, as the schema names it.
pub(crate) fn return_text(output: &ReturnType) -> String {
    match output {
        ReturnType::Default => "()".to_owned(),
        ReturnType::Type(_, ty) => type_text(ty),
    }
}

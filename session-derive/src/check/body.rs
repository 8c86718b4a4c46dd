//! What a handler's body may not do: panic, or differ between replicas. It reads tokens, so it sees neither into
//! called functions nor into macros it does not know.

use crate::errors::Errors;
use crate::model::Marks;
use crate::names::peeled;
use crate::parse::Method;
use crate::words;
use proc_macro2::{Span, TokenStream};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ExprLit, ExprUnary, Ident, Lit, Macro, Pat, Path, Token, Type, UnOp, UseTree};

/// Checks one method, as far as its attributes have not lifted the rules.
pub(crate) fn check_body(method: &Method, marks: &Marks, errors: &Errors) {
    let body = TokenStream::from(proc_macro2::TokenTree::Group(method.body.clone()));
    // A body that does not parse is half-typed: rustc says so.
    if let Ok(block) = syn::parse2::<syn::Block>(body) {
        let mut rules = Rules {
            errors,
            infallible: marks.infallible.is_none(),
            deterministic: marks.deterministic.is_none(),
            kind: Kind::of(marks),
            locals: Vec::new(),
            imports: Vec::new(),
            refused: Vec::new(),
            said: Vec::new(),
        };
        // An import holds in all of its block, also above itself.
        let mut names = Names::default();
        names.visit_signature(&method.sig);
        names.visit_block(&block);
        rules.locals = names.locals;
        for item in names.uses {
            rules.use_tree(&item.tree, &mut Vec::new());
        }
        rules.visit_block(&block);
    }
}

struct Rules<'a> {
    errors: &'a Errors,
    infallible: bool,
    deterministic: bool,
    kind: Kind,
    /// The variables, wherever in the body they hold: a name alone may be one of them.
    locals: Vec<String>,
    /// What the body imports, each by the name it has there and the path it stands for.
    imports: Vec<(String, Vec<String>)>,
    /// The names of imports that were refused: their uses are no mistakes of their own.
    refused: Vec<String>,
    /// The types refused in this statement: `let x: T = T::new()` is one mistake.
    said: Vec<String>,
}

/// The words that fit a handler, a query or a hook.
struct Kind {
    name: &'static str,
    /// What comes of a panic.
    consequence: &'static str,
    /// What the method can do instead of failing.
    refuse: &'static str,
    instead_of_unwrap: &'static str,
}

impl Kind {
    fn of(marks: &Marks) -> Self {
        let halts = "the machine would halt on every replica";
        if marks.query {
            Self {
                name: "query",
                consequence: "its caller would get no answer",
                refuse: "return `None` where there is no answer",
                instead_of_unwrap: "match, or use `?` in a query that returns an `Option`",
            }
        } else if marks.is_hook() {
            Self {
                name: "hook",
                consequence: halts,
                refuse: "leave the state as it is",
                instead_of_unwrap: "match, and leave the state as it is",
            }
        } else {
            Self {
                name: "handler",
                consequence: halts,
                refuse: "refuse with a `Rejection`",
                instead_of_unwrap: "match, or use `?` with a `Rejection`",
            }
        }
    }
}

/// The imports and the variables of a body, wherever in it they stand.
#[derive(Default)]
struct Names<'ast> {
    uses: Vec<&'ast syn::ItemUse>,
    locals: Vec<String>,
}

impl<'ast> Visit<'ast> for Names<'ast> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.uses.push(item);
    }

    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        self.locals.push(text_of(&pattern.ident));
        visit::visit_pat_ident(self, pattern);
    }
}

/// A name as it is meant: `r#unwrap` is `unwrap`.
fn text_of(ident: &Ident) -> String {
    ident.unraw().to_string()
}

/// Macros that panic, with what to do beside refusing.
const PANICKING: [(&str, &str); 4] = [
    ("panic", ""),
    ("todo", "write it, or "),
    ("unimplemented", "write it, or "),
    ("unreachable", "match so that no such arm is needed, or "),
];
const ASSERTING: [&str; 6] =
    ["assert", "assert_eq", "assert_ne", "debug_assert", "debug_assert_eq", "debug_assert_ne"];
const UNWRAPPING: [&str; 4] = ["unwrap", "expect", "unwrap_err", "expect_err"];
/// Macros whose arguments are expressions.
const READ_INTO: [&str; 12] = [
    "vec",
    "format",
    "format_args",
    "matches",
    "write",
    "writeln",
    "print",
    "println",
    "eprint",
    "eprintln",
    "dbg",
    "concat",
];
/// Modules of `std` that reach outside the replicated state.
const OUTSIDE: [&str; 6] = ["env", "fs", "io", "net", "process", "thread"];
/// Plain data in `std::net`.
const ADDRESSES: [&str; 7] =
    ["IpAddr", "Ipv4Addr", "Ipv6Addr", "SocketAddr", "SocketAddrV4", "SocketAddrV6", "AddrParseError"];
/// Functions of those modules, by the names under which they are called after an import.
const OUTSIDE_CALLS: [(&str, &[&str]); 4] = [
    ("env", &["var", "var_os", "vars", "args", "current_dir", "temp_dir"]),
    ("fs", &["read", "read_to_string", "write", "remove_file", "create_dir", "create_dir_all", "metadata"]),
    ("process", &["id", "exit", "abort"]),
    ("thread", &["sleep", "spawn", "current", "park", "yield_now"]),
];
/// Names that stand for a source of random numbers wherever they appear.
const RANDOM: [&str; 9] = [
    "thread_rng",
    "OsRng",
    "ThreadRng",
    "SysRng",
    "RandomState",
    "from_os_rng",
    "from_entropy",
    "getrandom",
    "fastrand",
];
/// Collections whose order is another in every process, and their modules.
const HASHED: [&str; 4] = ["HashMap", "HashSet", "hash_map", "hash_set"];
const USE_STATE: &str = "take it as a field of the command, or keep it in the state";
const USE_COMMAND: &str = "do it outside, and send what came of it as a command";
const USE_RNG: &str = "draw from `cx.rng()`, which gives the same on every replica";
const USE_NOW: &str = "use `cx.now()`, the log's time";
const USE_SAFE: &str = "write it in safe Rust";
const USE_BTREE: &str = "its order is another in every process: use `BTreeMap` or `BTreeSet`";

impl Rules<'_> {
    fn panics(&self, span: Span, what: &str, instead: &str) {
        if self.infallible {
            let Kind { name, consequence, .. } = self.kind;
            self.errors.at(span, words::may_panic(what, instead, name, consequence));
        }
    }

    fn differs(&self, span: Span, what: &str, instead: &str) {
        if self.deterministic {
            self.errors.at(span, words::may_differ(what, instead, self.kind.name));
        }
    }

    /// A path, wherever it stands, by its segments. At most one mistake a path.
    fn path(&mut self, segments: &[&Ident]) {
        let Some(first) = segments.first().map(|first| text_of(first)) else {
            return;
        };
        let is_local = segments.len() == 1 && self.locals.contains(&first);
        if is_local || self.refused.contains(&first) {
            return;
        }
        let imported = self.imports.iter().find(|(name, _)| *name == first).map(|(_, path)| path.clone());
        let before = imported.unwrap_or_else(|| vec![first]).into_iter();
        let before = before.map(|name| (name, segments[0].span()));
        let written = segments.iter().skip(1).map(|segment| (text_of(segment), segment.span()));
        self.full_path(&before.chain(written).collect::<Vec<_>>());
    }

    fn full_path(&mut self, segments: &[(String, Span)]) {
        let names: Vec<&str> = segments.iter().map(|(name, _)| name.as_str()).collect();
        let Some((last, span)) = names.last().copied().zip(segments.last().map(|(_, span)| *span)) else {
            return;
        };
        if let Some(position) = names.iter().position(|name| RANDOM.contains(name)) {
            let what = format!("the random source `{}`", names[position]);
            self.differs(segments[position].1, &what, USE_RNG);
            return;
        }
        if let Some(position) = names.iter().position(|name| HASHED.contains(name)) {
            if !self.said.iter().any(|said| said == names[position]) {
                self.said.push(names[position].to_owned());
                self.differs(segments[position].1, &format!("`{}`", names[position]), USE_BTREE);
            }
            return;
        }
        if let ["std", module, rest @ ..] = names.as_slice()
            && OUTSIDE.contains(module)
            && !rest.iter().any(|name| ADDRESSES.contains(name))
        {
            let what = format!("what `std::{module}` gives");
            self.differs(segments[1].1, &what, USE_STATE);
            return;
        }
        let owner = names.len().checked_sub(2).map(|position| names[position]);
        match (owner, last) {
            (Some(clock @ ("SystemTime" | "Instant" | "Utc" | "Local")), "now") => {
                self.differs(span, &format!("`{clock}::now`"), USE_NOW);
            }
            (Some("rand"), "random" | "rng" | "random_range" | "random_bool")
            | (Some("Uuid"), "new_v4" | "now_v7" | "now_v1" | "now_v6") => {
                self.differs(span, &format!("the random source `{last}`"), USE_RNG);
            }
            // A longer path is into a module of the user's, which may be called the same.
            (Some(owner), call)
                if names.len() == 2
                    && OUTSIDE_CALLS
                        .iter()
                        .any(|(module, calls)| *module == owner && calls.contains(&call)) =>
            {
                self.differs(span, &format!("`{owner}::{call}`"), USE_STATE);
            }
            (Some("Option" | "Result"), call) if UNWRAPPING.contains(&call) => {
                self.panics(span, &format!("`{call}`"), self.kind.instead_of_unwrap);
            }
            (Some("panic"), call @ ("panic_any" | "resume_unwind")) => {
                self.panics(span, &format!("`{call}`"), self.kind.refuse);
            }
            _ => {}
        }
    }

    fn use_tree(&mut self, tree: &UseTree, before: &mut Vec<Ident>) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.clone());
                self.use_tree(&path.tree, before);
                before.pop();
            }
            UseTree::Name(name) => self.used(before, &name.ident, &name.ident),
            UseTree::Rename(rename) => self.used(before, &rename.ident, &rename.rename),
            UseTree::Glob(_) => self.path(&before.iter().collect::<Vec<_>>()),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.use_tree(tree, before)),
        }
    }

    fn used(&mut self, before: &[Ident], last: &Ident, name: &Ident) {
        let segments: Vec<&Ident> = before.iter().chain([last]).collect();
        let name = if name == "self" { before.last().unwrap_or(name) } else { name };
        let path = if last == "self" { before.iter().collect() } else { segments };
        let count = self.errors.count();
        // Not yet: there are addresses in it. What else is used of it is said there.
        let is_net = path.len() == 2 && path[0] == "std" && path[1] == "net";
        if !is_net {
            self.path(&path);
        }
        self.said.clear();
        if self.errors.count() > count {
            self.refused.push(text_of(name));
        } else {
            self.imports.push((text_of(name), path.iter().map(|segment| text_of(segment)).collect()));
        }
    }

    fn division(&self, op: &BinOp, right: &Expr) {
        let sign = match op {
            BinOp::Div(_) | BinOp::DivAssign(_) => "/",
            BinOp::Rem(_) | BinOp::RemAssign(_) => "%",
            _ => return,
        };
        let by = match divisor(right) {
            Divisor::Sound => return,
            Divisor::MinusOne => "-1, which is too much for the least number,",
            Divisor::Unknown => "what may be zero",
        };
        let name = if sign == "/" { "div" } else { "rem" };
        let instead = format!("use `checked_{name}`, or divide by a literal other than 0 and -1");
        self.panics(op.span(), &format!("`{sign}` by {by}"), &instead);
    }

    /// The arguments of a macro that are expressions, as far as they parse.
    fn arguments(&mut self, name: &str, tokens: &TokenStream) {
        let all = |input: ParseStream<'_>| Punctuated::<Expr, Token![,]>::parse_terminated(input);
        let repeat = |input: ParseStream<'_>| {
            let element: Expr = input.parse()?;
            input.parse::<Token![;]>()?;
            Ok((element, input.parse::<Expr>()?))
        };
        let pattern = |input: ParseStream<'_>| {
            let value: Expr = input.parse()?;
            input.parse::<Token![,]>()?;
            let pattern = Pat::parse_multi_with_leading_vert(input)?;
            let guard = match input.parse::<Option<Token![if]>>()? {
                Some(_) => Some(input.parse::<Expr>()?),
                None => None,
            };
            input.parse::<Option<Token![,]>>()?;
            Ok((value, pattern, guard))
        };
        if name == "matches" {
            if let Ok((value, pattern, guard)) = pattern.parse2(tokens.clone()) {
                self.visit_expr(&value);
                self.visit_pat(&pattern);
                if let Some(guard) = guard {
                    self.visit_expr(&guard);
                }
            }
        } else if let Ok(arguments) = all.parse2(tokens.clone()) {
            arguments.iter().for_each(|argument| self.visit_expr(argument));
        } else if let Ok((element, count)) = repeat.parse2(tokens.clone()) {
            self.visit_expr(&element);
            self.visit_expr(&count);
        }
    }
}

/// What can be said about what is divided by.
enum Divisor {
    /// A literal that fits every number.
    Sound,
    /// The least number of a signed type has no opposite.
    MinusOne,
    /// Zero, or anything.
    Unknown,
}

fn divisor(expr: &Expr) -> Divisor {
    match expr {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) if number.base10_digits() != "0" => Divisor::Sound,
        Expr::Lit(ExprLit { lit: Lit::Float(_), .. }) => Divisor::Sound,
        Expr::Lit(ExprLit { lit: Lit::Byte(byte), .. }) if byte.value() != 0 => Divisor::Sound,
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => match &**expr {
            Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) if number.base10_digits() == "1" => {
                Divisor::MinusOne
            }
            literal @ Expr::Lit(_) => divisor(literal),
            _ => Divisor::Unknown,
        },
        Expr::Paren(paren) => divisor(&paren.expr),
        Expr::Group(group) => divisor(&group.expr),
        _ => Divisor::Unknown,
    }
}

impl<'ast> Visit<'ast> for Rules<'_> {
    fn visit_macro(&mut self, mac: &'ast Macro) {
        let Some(name) = mac.path.segments.last().map(|segment| text_of(&segment.ident)) else {
            return;
        };
        if let Some((_, instead)) = PANICKING.iter().find(|(panicking, _)| *panicking == name) {
            self.panics(mac.path.span(), &format!("`{name}!`"), &format!("{instead}{}", self.kind.refuse));
        } else if ASSERTING.contains(&name.as_str()) {
            let instead = format!("check it and {}", self.kind.refuse);
            self.panics(mac.path.span(), &format!("`{name}!`"), &instead);
        } else if READ_INTO.contains(&name.as_str()) {
            self.arguments(&name, &mac.tokens);
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let name = text_of(&call.method);
        if UNWRAPPING.contains(&name.as_str()) {
            self.panics(call.method.span(), &format!("`.{name}()`"), self.kind.instead_of_unwrap);
        }
        if let (Expr::Path(receiver), "elapsed") = (&*call.receiver, name.as_str())
            && receiver.path.segments.last().is_some_and(|last| last.ident == "UNIX_EPOCH")
        {
            self.differs(call.method.span(), "`UNIX_EPOCH.elapsed`", USE_NOW);
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_index(&mut self, index: &'ast syn::ExprIndex) {
        self.panics(index.bracket_token.span.join(), "`[index]`", "use `.get(..)`");
        visit::visit_expr_index(self, index);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        self.division(&binary.op, &binary.right);
        visit::visit_expr_binary(self, binary);
    }

    // An `.await` stands inside `async`, which is refused; anywhere else rustc refuses it.
    fn visit_expr_async(&mut self, block: &'ast syn::ExprAsync) {
        self.differs(block.async_token.span, "what an `async` block does, and when,", USE_COMMAND);
        visit::visit_expr_async(self, block);
    }

    fn visit_expr_closure(&mut self, closure: &'ast syn::ExprClosure) {
        if let Some(token) = &closure.asyncness {
            self.differs(token.span, "what an `async` closure does, and when,", USE_COMMAND);
        }
        visit::visit_expr_closure(self, closure);
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.differs(block.unsafe_token.span, "what an `unsafe` block does", USE_SAFE);
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_signature(&mut self, sig: &'ast syn::Signature) {
        if let Some(token) = &sig.asyncness {
            self.differs(token.span(), "what an `async` function does, and when,", USE_COMMAND);
        }
        if let syn::Safety::Unsafe(token) = &sig.safety {
            self.differs(token.span(), "what an `unsafe` function does", USE_SAFE);
        }
        visit::visit_signature(self, sig);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let Some(token) = &item.unsafety {
            self.differs(token.span(), "what an `unsafe` impl promises", USE_SAFE);
        }
        visit::visit_item_impl(self, item);
    }

    // `<Type>::name` is `Type::name`.
    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        let Some(Type::Path(own)) = path.qself.as_ref().map(|own| peeled(&own.ty)) else {
            visit::visit_expr_path(self, path);
            return;
        };
        let segments = own.path.segments.iter().chain(path.path.segments.last());
        self.path(&segments.map(|segment| &segment.ident).collect::<Vec<_>>());
        visit::visit_path(self, &own.path);
        visit::visit_path(self, &path.path);
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let segments: Vec<&Ident> = path.segments.iter().map(|segment| &segment.ident).collect();
        self.path(&segments);
        visit::visit_path(self, path);
    }

    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        let before = self.said.len();
        visit::visit_stmt(self, statement);
        self.said.truncate(before);
    }

    // Checked before everything else.
    fn visit_item_use(&mut self, _: &'ast syn::ItemUse) {}

    // A constant is computed by the compiler, where a panic is an error.
    fn visit_expr_const(&mut self, block: &'ast syn::ExprConst) {
        let infallible = std::mem::replace(&mut self.infallible, false);
        visit::visit_expr_const(self, block);
        self.infallible = infallible;
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        let infallible = std::mem::replace(&mut self.infallible, false);
        visit::visit_item_const(self, item);
        self.infallible = infallible;
    }
}

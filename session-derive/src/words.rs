//! The words of every message, in one place: what is wrong, and what to do instead.

use std::fmt::Write;

fn list(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

fn did_you_mean(near: Option<&str>) -> String {
    near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

// The attribute and its arguments.

pub(crate) const WRONG_ITEM: &str = "`#[state_machine]` goes on the enum of the commands and on the impl block of the \
     handlers; on the struct of the state write `#[derive(State)]`";
pub(crate) const EMPTY_NAME: &str =
    "the machine's name is empty; it tells one machine's snapshots from another's";
pub(crate) const VERSION_RANGE: &str = "a version is a whole number from 1 to 4294967295";
pub(crate) const NO_COMMAND: &str = "which enum do these handlers answer? Write \
     `#[state_machine(command = YourCommand)]`";
pub(crate) const GENERATED_NAME: &str = "the query enum and the typed client are named after the machine, and this type \
     has no plain name; write `query = Name` and `client = Name`";

pub(crate) fn name_taken(name: &str) -> String {
    format!(
        "`{name}` is the name of another type of this machine; give the query enum and the client names of their own"
    )
}

pub(crate) fn repeated_key(key: &str) -> String {
    format!("`{key}` is given twice; keep one")
}

pub(crate) const NO_COMMA: &str = "arguments are separated by commas";

pub(crate) fn no_key(known: &[&str]) -> String {
    format!("an argument is written `key = value`; the arguments here are {}", list(known))
}

pub(crate) fn value_form(key: &str) -> String {
    match key {
        "command" => "write the enum's type, without quotes: `command = YourCommand`".to_owned(),
        "server_request" => "write a type, without quotes: `server_request = YourRequest`".to_owned(),
        "version" => VERSION_RANGE.to_owned(),
        "name" => "write a text: `name = \"...\"`".to_owned(),
        "crate" => "write a path, without quotes: `crate = path::to::session_runtime`".to_owned(),
        key => format!("write a plain name, without quotes: `{key} = Name`"),
    }
}

pub(crate) fn unknown_key(key: &str, near: Option<&str>, known: &[&str], is_bare: bool) -> String {
    match near {
        Some(near) => format!("there is no argument `{key}`; did you mean `{near}`?"),
        None if is_bare && known.contains(&"command") => {
            format!(
                "there is no argument `{key}`; if it is the enum of the commands, write `command = {key}`"
            )
        }
        None => format!("there is no argument `{key}`; the arguments here are {}", list(known)),
    }
}

pub(crate) fn key_of_impl(key: &str) -> String {
    format!("`{key}` belongs on the impl block of the handlers, not on the enum")
}

pub(crate) fn repeated_attribute(name: &str) -> String {
    format!("`#[{name}]` is given twice; keep one")
}

// The enum.

pub(crate) const GENERIC_COMMAND: &str = "a command enum takes no generic parameters: its bytes in the log must mean \
     one thing; write the types out";
pub(crate) const SINCE_FORM: &str =
    "write the version that brought it: `#[since = 2]`, a whole number from 1";
pub(crate) const CFG_NOT_LAST: &str = "a variant's position is its tag in the log, so a variant that is not always there \
     would shift those behind it; only the last variant may be under `#[cfg]`";
pub(crate) const CFG_SHIFTS: &str = "in this build a variant above is missing, so this one has another tag in the log than \
     in other builds; only the last variant may be under `#[cfg]`, and of exclusive twins one must always be there";
pub(crate) const SINCE_ON_FIELD: &str = "the fields of a command never change, because its bytes stand in the log; add a \
     variant with `#[since = N]` instead";
pub(crate) const SINCE_ON_METHOD: &str = "`#[since = N]` goes on the command: on the variant in the enum, not on its \
     handler; a query and a hook have no version";
pub(crate) const SINCE_ON_TYPE: &str = "`#[since = N]` goes on what came later: a variant or a field";
pub(crate) const CFG_FIELD: &str = "a field under `#[cfg]` would give the same command different bytes in different \
     builds; add a variant instead";
pub(crate) const SERDE_CRATE: &str = "`#[state_machine]` sets serde's `crate` itself; remove this";

pub(crate) fn twins_differ(variant: &str) -> String {
    format!(
        "this `{variant}` differs from the one above, but both are one command, whose bytes must mean the same in \
         every build; give it the same fields and the same `since`, and make what is new a variant of its own"
    )
}

pub(crate) fn derived_already(names: &[String]) -> String {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    format!(
        "`#[state_machine]` derives {} itself; remove {} here",
        list(&names),
        if names.len() > 1 { "them" } else { "it" }
    )
}

pub(crate) fn marker_of_handler(marker: &str, variant: &str, handler: &str) -> String {
    format!("`#[{marker}]` goes on the handler of `{variant}`: on `fn {handler}` in the impl block")
}

pub(crate) fn unreachable_variant(variant: &str) -> String {
    format!(
        "no handler can be named for the variant `{variant}`: a handler's name with its words capitalised is the \
         variant, so write it in camel case without underscores"
    )
}

pub(crate) fn since_decreases(variant: &str, since: u32, before: u32) -> String {
    format!(
        "`{variant}` is since version {since}, but a variant above it is since {before}; new variants go to the end, \
         so `since` never decreases"
    )
}

pub(crate) fn serde_attribute(key: &str) -> String {
    let why = match key {
        "flatten" => "it needs a format that names its fields",
        "untagged" | "tag" | "content" => "it needs a format that describes itself",
        _ => "what is left out on writing is still expected on reading",
    };
    format!("`#[serde({key})]` cannot be read back from the log's format: {why}; remove it")
}

pub(crate) fn serde_on_variant(key: &str) -> String {
    let why = match key {
        "other" => "a variant that only a newer build knows would be taken for this one",
        _ => "the variants behind it would be written under one number and read under another",
    };
    format!("`#[serde({key})]` cannot stand on a variant: {why}; remove it")
}

pub(crate) fn serde_on_command(key: &str) -> String {
    format!(
        "`#[serde({key})]` cannot stand on an enum of commands, which is written as its variant's place and the \
         fields; remove it"
    )
}

pub(crate) fn unknown_serde(key: &str, near: Option<&str>) -> String {
    let instead = if near.is_some() { did_you_mean(near) } else { "; remove it".to_owned() };
    format!("serde knows no `{key}` here{instead}")
}

pub(crate) fn serde_form(key: &str, takes_nothing: bool) -> String {
    let form = if takes_nothing { key.to_owned() } else { format!("{key} = \"...\"") };
    format!("write `#[serde({form})]`")
}

pub(crate) fn one_sided_skip(key: &str) -> String {
    format!(
        "`#[serde({key})]` leaves the field out on one side only, so what is written cannot be read back; write \
         `#[serde(skip)]`, or remove it"
    )
}

// The impl block.

pub(crate) const TRAIT_IMPL: &str =
    "handlers are ordinary methods: write `impl YourState`, not an impl of a trait";
pub(crate) const UNSAFE_IMPL: &str = "an impl block of handlers is not `unsafe`; remove it";
pub(crate) const NOT_A_METHOD: &str = "only handlers, queries and hooks may stand in this block; put everything else \
     into another impl block";
pub(crate) const MACRO_IN_BLOCK: &str = "`#[state_machine]` runs before this macro and cannot see what it makes; write \
     the handlers out, or let the macro make the whole impl block";
pub(crate) const NO_QUERY_RECEIVER: &str =
    "a query takes `&self`; a function without it belongs into another impl block";
pub(crate) const NO_RECEIVER: &str = "a handler takes `&mut self` or `&self`; a function without it belongs into another \
     impl block";
pub(crate) const WRONG_RECEIVER: &str = "write `&mut self` or `&self`: the machine outlives the command";
pub(crate) const QUERY_RECEIVER: &str = "a query only reads: write `&self`";
pub(crate) const ASYNC_HANDLER: &str = "a handler cannot be `async`: every replica must do the same in one step; send a \
     server request, and take the result as a command";
pub(crate) const ASYNC_QUERY: &str =
    "a query cannot be `async`: it reads the state as it is at one moment; wait before or after it";
pub(crate) const UNSAFE_HANDLER: &str = "a handler cannot be `unsafe`; remove it";
pub(crate) const EXTERN_HANDLER: &str = "a handler cannot be `extern`; remove it";
pub(crate) const GENERIC_HANDLER: &str =
    "a handler cannot be generic: one variant is one call; write the types out";
pub(crate) const REFERENCE_PARAMETER: &str = "what a command or a query carries is owned; take this by value";
pub(crate) const REFERENCE_OR_CONTEXT: &str = "what a command carries is owned: take this by value; if it is the context, \
     write `cx: &mut Context<'_, YourServerRequest>`";
pub(crate) const CONTEXT_POSITION: &str =
    "a `&mut` parameter can only be the context, which stands right behind `self`";
pub(crate) const QUERY_CONTEXT: &str = "a query has no context: it runs outside the log, on one replica only";
pub(crate) const CFG_PARAMETER: &str = "a parameter under `#[cfg]` is not supported; put `#[cfg]` on two handlers of the \
     same name";
pub(crate) const IMPL_PARAMETER: &str = "`impl Trait` is not one type; write the variant's field type";
pub(crate) const REFERENCE_REPLY: &str =
    "an answer is stored and sent, so it is owned; return the value itself";
pub(crate) const IMPL_REPLY: &str = "`impl Trait` is not one type that a client could decode; name the type";
pub(crate) const QUERY_PATTERN: &str = "an argument of a query is a field of the query enum; give it a name";
pub(crate) const HOOK_PARAMETER: &str = "a hook takes `&mut self` and, if it likes, the context \
     `cx: &mut Context<'_, YourServerRequest>`; `cx.session()` tells which session it is";
pub(crate) const HOOK_REPLY: &str = "nobody waits for a hook's answer; return nothing";
pub(crate) const HIDDEN_MARKER: &str = "`#[state_machine]` runs before `cfg_attr` is evaluated and cannot see this; write \
     two methods under `#[cfg]`, one with it and one without";

pub(crate) fn second_of_variant(other: &str, variant: &str, query: bool) -> String {
    let what = if query { "query" } else { "handler" };
    format!("`{other}` is the {what} of `{variant}` already; keep one of the two, or rename this one")
}

pub(crate) fn second_hook(name: &str) -> String {
    format!("there is a `#[{name}]` method already; put both into one")
}

pub(crate) const TWICE: &str = "`#[state_machine]` is there already; remove this one";

pub(crate) fn two_roles(first: &str, second: &str) -> String {
    match (first, second) {
        ("internal", "query") | ("query", "internal") => {
            "a query is no command, so it cannot be `#[internal]`; keep one of the two".to_owned()
        }
        _ => format!("`#[{first}]` and `#[{second}]` on one method; keep one of the two"),
    }
}

pub(crate) fn marker_takes_nothing(name: &str) -> String {
    format!("`#[{name}]` takes no arguments; write just `#[{name}]`")
}

pub(crate) fn misspelled_marker(name: &str, near: &str) -> String {
    format!("there is no attribute `#[{name}]` for a handler; did you mean `#[{near}]`?")
}

pub(crate) fn reason_needed(name: &str) -> String {
    format!("say why it holds, for whoever reads this next: `#[{name} = \"...\"]`")
}

pub(crate) fn lifts_one(name: &str) -> String {
    format!("`#[{name}]` is for one handler at a time; move it to the method that needs it")
}

pub(crate) const ASSUME_PLACE: &str = "`#[assume_deterministic]` vouches for one field of a foreign type, or for the body \
     of one handler: move it there; an own type is vouched for as a whole by `impl Deterministic for T {}`";

// Bodies.

pub(crate) fn may_panic(what: &str, instead: &str, kind: &str, consequence: &str) -> String {
    format!(
        "{what} can panic, and a {kind} must not fail: {consequence}; {instead}, or write \
         `#[assume_infallible = \"why\"]` on the {kind}"
    )
}

pub(crate) fn may_differ(what: &str, instead: &str, kind: &str) -> String {
    format!(
        "{what} may differ between replicas; {instead}, or write `#[assume_deterministic = \"why\"]` on the {kind}"
    )
}

// The state.

pub(crate) const STATE_NOT_STRUCT: &str =
    "`State` is for structs with named fields: each field is a key of the snapshot";
pub(crate) const STATE_HALF_TYPED: &str = "`derive(State)` did not understand the struct";
pub(crate) const STATE_TUPLE: &str = "the fields of a state need names: each is a key of the snapshot";
pub(crate) const STATE_SKIP: &str = "no field of the state can be left out: replicas must agree on every one, also after \
     a restore; move what is not replicated out of the state, or compute it from the other fields where it is needed";
pub(crate) const WAS_FORM: &str = "write the field's former name: `was = \"old\"`";
pub(crate) const WAS_EMPTY: &str = "a former name is an identifier; write the name the field had";
pub(crate) const WAS_ITSELF: &str = "this is the field's name, not a former one; remove it";
pub(crate) const DROPPED_FORM: &str = "write the names of the removed fields: `dropped(\"old\", \"older\")`";
pub(crate) const DEFAULT_AND_SINCE: &str =
    "a field with `#[since = N]` takes its default anyway; remove `default`";

const STATE_KEYS: [&str; 4] = ["per_entry", "shared", "default", "was"];

pub(crate) fn state_key(key: &str, on_struct: bool) -> String {
    let keys: &[&str] = if on_struct { &["dropped", "crate"] } else { &STATE_KEYS };
    let elsewhere: &[&str] = if on_struct { &STATE_KEYS } else { &["dropped", "crate"] };
    if elsewhere.contains(&key) {
        let place = if on_struct { "a field" } else { "the struct" };
        return format!("`{key}` belongs on {place}");
    }
    let mut message = format!("there is no `#[state({key})]`");
    match crate::names::near(key, keys.iter().copied()) {
        near @ Some(_) => message.push_str(&did_you_mean(near)),
        None => {
            let _ = write!(message, "; here it takes {}", list(keys));
        }
    }
    message
}

pub(crate) fn state_key_takes_nothing(key: &str) -> String {
    let why = if key == "default" { ": the field restores as the `Default` of its type" } else { "" };
    format!("write just `#[state({key})]`{why}")
}

pub(crate) fn still_a_field(name: &str) -> String {
    format!("`{name}` is still a field of this struct; only removed fields are listed here")
}

pub(crate) fn listed_twice(name: &str) -> String {
    format!("`{name}` stands for two fields of old snapshots; keep one")
}

// The small derives.

pub(crate) fn no_union(derive: &str) -> String {
    format!("`{derive}` cannot be derived for a union: which field holds is not known")
}

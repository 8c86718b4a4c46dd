//! Expansions as files, so that a change of generated code is read in review.
//!
//! To accept a change, run `INSTA_UPDATE=always cargo test -p session-derive` and read the diff of
//! `src/snapshots/`.

use crate::expand;
use proc_macro2::{Group, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use std::panic::{AssertUnwindSafe, catch_unwind};
use syn::{File, Item};

/// The expansion as formatted Rust. What stands in `if_client!` is formatted as if it stood alone.
fn pretty(expansion: TokenStream) -> String {
    let file: File = syn::parse2(expansion).expect("the expansion is Rust");
    let items = file.items.into_iter().flat_map(|item| match item {
        Item::Macro(item) if item.mac.path.segments.iter().any(|segment| segment.ident == "if_client") => {
            syn::parse2::<File>(item.mac.tokens).expect("the client is Rust").items
        }
        item => vec![item],
    });
    let items: TokenStream = items.map(|item| item.to_token_stream()).collect();
    prettyplease::unparse(&syn::parse2(items).expect("the items are Rust"))
}

fn tokens(text: &str) -> TokenStream {
    text.parse().expect("these are tokens")
}

const COMMANDS: &str = r"
    /// What clients may ask.
    #[derive(Clone, Debug)]
    pub enum CounterCommand {
        /// Adds.
        Add { amount: u64 },
        Move(u64, Option<String>),
        #[since = 2]
        Reset,
    }
";

const MACHINE: &str = r#"
    impl Counter {
        /// Adds.
        fn add(&mut self, cx: &mut Context<'_, Notice>, amount: u64) -> Result<u64, Refused> {
            self.value = self.value.checked_add(amount).ok_or(Refused::Full)?;
            cx.broadcast(Notice::Changed(self.value));
            Ok(self.value)
        }

        #[assume_infallible = "the sum of two halves"]
        pub fn r#move(&mut self, _from: u64, _: Option<String>) {}

        #[internal]
        #[cfg(feature = "reset")]
        #[deprecated]
        fn reset(&mut self) -> u64 {
            0
        }

        #[query]
        fn value(&self, at_least: u64) -> u64 {
            self.value.max(at_least)
        }

        #[session_closed]
        fn forget(&mut self, cx: &mut Context<'_, Notice>) {
            self.value = cx.index();
        }
    }
"#;

#[test]
fn commands() {
    insta::assert_snapshot!(pretty(expand::state_machine(quote!(), &tokens(COMMANDS))));
}

#[test]
fn commands_derived() {
    insta::assert_snapshot!(pretty(expand::derive_command(tokens(COMMANDS))));
}

#[test]
fn machine() {
    let args = quote!(command = CounterCommand, server_request = Notice);
    insta::assert_snapshot!(pretty(expand::state_machine(args, &tokens(MACHINE))));
}

#[test]
fn machine_generic_and_renamed() {
    let args =
        quote!(command = StoreCommand, crate = sr, name = "store", version = 3, client = pub(crate) Caller);
    let machine = quote! {
        impl<K: Wire + Ord, V: Wire> Store<K, V> {
            fn clear(&mut self) {
                self.map.clear();
            }

            #[query]
            fn get(&self, key: K) -> Option<V> {
                self.map.get(&key).cloned()
            }
        }
    };
    insta::assert_snapshot!(pretty(expand::state_machine(args, &machine)));
}

#[test]
fn machine_with_mistakes() {
    let machine = quote! {
        impl Counter {
            async fn add(&mut self, amount: &u64) -> u64 {
                self.value.checked_add(*amount).unwrap()
            }

            fn reset(&mut self) {}
        }
    };
    insta::assert_snapshot!(pretty(expand::state_machine(quote!(command = CounterCommand), &machine)));
}

#[test]
fn queries_derived() {
    let queries = quote! {
        #[session_enum(sr)]
        pub enum StoreQuery {
            Get { key: String },
            Count {},
        }
    };
    insta::assert_snapshot!(pretty(expand::derive_query(queries)));
}

const STATE: &str = r#"
    #[state(dropped("old"))]
    pub struct Store<K: Ord> {
        #[state(per_entry)]
        map: BTreeMap<K, String>,
        #[state(shared, was = "table")]
        shared: Arc<Vec<u64>>,
        #[since = 2]
        later: u64,
        #[state(default)]
        #[assume_deterministic = "counted alike everywhere"]
        share: f64,
    }
"#;

#[test]
fn state() {
    insta::assert_snapshot!(pretty(expand::derive_state(&tokens(STATE))));
}

const REFUSED: &str = r#"
    pub enum Refused<T> {
        NoSuch { key: T },
        #[serde(rename = "full")]
        Full(#[assume_deterministic = "shown only"] f32),
    }
"#;

#[test]
fn small_derives() {
    let mut both = expand::derive_deterministic(tokens(REFUSED));
    both.extend(expand::derive_rejection(tokens(REFUSED)));
    insta::assert_snapshot!(pretty(both));
}

/// The input with one token left out, doubled, or another in its place; at every depth.
fn spoiled(input: &TokenStream) -> Vec<TokenStream> {
    let others: Vec<TokenTree> = tokens("x 5 , = & # ! () {} \"\" 'a self r#fn Self").into_iter().collect();
    let all: Vec<TokenTree> = input.clone().into_iter().collect();
    let mut spoiled: Vec<TokenStream> = Vec::new();
    for (at, token) in all.iter().enumerate() {
        let mut instead: Vec<TokenStream> = vec![TokenStream::new(), quote!(#token #token)];
        instead.extend(others.iter().map(ToTokens::to_token_stream));
        if let TokenTree::Group(group) = token {
            let inner = self::spoiled(&group.stream()).into_iter();
            instead.extend(inner.map(|inner| TokenTree::Group(Group::new(group.delimiter(), inner)).into()));
        }
        let around = |instead| all[..at].iter().cloned().chain(instead).chain(all[at + 1..].iter().cloned());
        spoiled.extend(instead.into_iter().map(|instead| around(instead).collect::<TokenStream>()));
    }
    spoiled
}

#[test]
fn no_input_makes_the_macros_panic() {
    let machine =
        quote!(command = CounterCommand, server_request = Notice, version = 2, client = pub(crate) C);
    let never_panics = |inputs: Vec<TokenStream>, expand: &dyn Fn(TokenStream) -> TokenStream| {
        assert!(inputs.len() > 100);
        for input in inputs {
            let expanded = catch_unwind(AssertUnwindSafe(|| expand(input.clone())));
            assert!(expanded.is_ok(), "it panics at: {input}");
        }
    };
    never_panics(spoiled(&machine), &|args| expand::state_machine(args, &tokens(MACHINE)));
    never_panics(spoiled(&tokens(MACHINE)), &|item| expand::state_machine(machine.clone(), &item));
    never_panics(spoiled(&tokens(COMMANDS)), &|item| expand::state_machine(TokenStream::new(), &item));
    never_panics(spoiled(&tokens(COMMANDS)), &expand::derive_command);
    never_panics(spoiled(&tokens(COMMANDS)), &expand::derive_query);
    never_panics(spoiled(&tokens(STATE)), &|item| expand::derive_state(&item));
    never_panics(spoiled(&tokens(REFUSED)), &expand::derive_deterministic);
    never_panics(spoiled(&tokens(REFUSED)), &expand::derive_rejection);
}

#[test]
fn the_same_input_gives_the_same_tokens() {
    let machine = || {
        let args = quote!(command = CounterCommand, server_request = Notice);
        expand::state_machine(args, &tokens(MACHINE)).to_string()
    };
    let commands = || expand::derive_command(tokens(COMMANDS)).to_string();
    for _ in 0..16 {
        assert_eq!(machine(), machine());
        assert_eq!(commands(), commands());
    }
}

#[test]
fn with_a_path_to_the_runtime_nothing_else_is_named() {
    let items = [
        expand::state_machine(quote!(crate = sr), &tokens(COMMANDS)),
        expand::derive_command(tokens(&format!("#[session_enum(sr)] {COMMANDS}"))),
        expand::derive_query(tokens("#[session_enum(sr)] pub enum StoreQuery { Get { key: String } }")),
        expand::state_machine(
            quote!(crate = sr, command = CounterCommand, server_request = Notice),
            &tokens(MACHINE),
        ),
        expand::derive_state(&tokens(&format!("#[state(crate = sr)] {STATE}"))),
        expand::derive_deterministic(tokens(&format!("#[deterministic(crate = sr)] {REFUSED}"))),
        expand::derive_rejection(tokens(&format!("#[rejection(crate = sr)] {REFUSED}"))),
    ];
    for item in items {
        // The user of a re-export may depend on neither the runtime nor serde.
        let text = item.to_string().replace("sr :: __private :: serde", "ours");
        assert!(text.contains("sr ::"), "{text}");
        assert!(!text.contains("session_runtime") && !text.contains("serde ::"), "{text}");
    }
}

#[test]
fn the_expansion_is_linear_in_the_variants() {
    let size = |count: usize| {
        let variants = (0..count).map(|at| format!("V{at} {{ one: u64, two: Option<String> }},"));
        let variants = variants.collect::<String>();
        let handlers =
            (0..count).map(|at| format!("fn v{at}(&mut self, one: u64, two: Option<String>) {{}}"));
        let handlers = handlers.collect::<String>();
        let commands = expand::derive_command(tokens(&format!("enum Ask {{ {variants} }}")));
        let args = quote!(command = Ask);
        let machine = expand::state_machine(args, &tokens(&format!("impl Machine {{ {handlers} }}")));
        commands.to_string().len() + machine.to_string().len()
    };
    let (small, large) = (size(100), size(400));
    assert!(large * 100 <= small * 410, "{small} characters for 100 variants, {large} for 400");
}

#[test]
fn another_word_is_no_slip() {
    for (name, meant) in [
        ("quary", Some("query")),
        ("intrenal", Some("internal")),
        ("session_close", Some("session_closed")),
        ("external", None),
        ("interval", None),
        ("inline", None),
        ("test", None),
    ] {
        assert_eq!(crate::model::misspelled(name), meant, "{name}");
    }
}

#[test]
fn what_is_made_of_a_method_has_its_docs_without_links_that_lead_from_it() {
    for (line, copied) in [
        (" See [`Self::helper`] and [helper()].", " See `Self::helper` and helper()."),
        (" See [this](Self::helper), [that][fn@helper] and [`Refused`][].", " See this, that and `Refused`."),
        (" [that]: Self::helper", " "),
        (" [RFC 1]: https://example.org", " [RFC 1]: https://example.org"),
        (
            " See [the page](https://example.org) and [RFC 1].",
            " See [the page](https://example.org) and [RFC 1].",
        ),
        (" The `[index]` of ``a[i]``, [0, 1], [ ] and [", " The `[index]` of ``a[i]``, [0, 1], [ ] and ["),
        (" Half a `tick and [`half", " Half a `tick and [`half"),
    ] {
        assert_eq!(expand::unlinked(line), copied);
    }
    let machine = quote! {
        impl Counter {
            /// See [`Self::helper`].
            #[query]
            fn value(&self) -> u64 { self.value }
        }
    };
    let expansion = expand::state_machine(quote!(command = CounterCommand), &machine).to_string();
    assert_eq!(expansion.matches("See [`Self::helper`]").count(), 1, "the method's own: {expansion}");
    assert_eq!(
        expansion.matches("See `Self::helper`").count(),
        2,
        "the client's and the query's: {expansion}"
    );
}

/// Code without what the book leaves out: spaces, last commas, and the paths of what everybody knows.
fn bare(code: &str) -> String {
    let mut bare: String = code.chars().filter(|c| !c.is_whitespace()).collect();
    for (long, short) in [
        ("::session_runtime::", ""),
        ("::core::result::", ""),
        ("::core::primitive::", ""),
        (",)", ")"),
        (",]", "]"),
        (",}", "}"),
        (",>", ">"),
    ] {
        bare = bare.replace(long, short);
    }
    bare
}

/// The code blocks of a page, each with the words on its fence.
fn blocks(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'))
}

#[test]
fn the_book_shows_the_real_expansion() {
    let page = include_str!("../../book/src/internals/expansion.md");
    let (_, machine) = blocks(page).next().expect("it begins with the machine");
    let items = syn::parse_str::<File>(machine).expect("the machine is Rust").items;
    let expansions = items.into_iter().map(|item| match item {
        Item::Enum(item) => expand::derive_command(item.to_token_stream()),
        Item::Struct(item) => expand::derive_state(&item.to_token_stream()),
        Item::Impl(mut item) => {
            item.attrs.clear();
            expand::state_machine(quote!(command = CounterCommand), &item.to_token_stream())
        }
        _ => TokenStream::new(),
    });
    let expansion: String = expansions.map(|expansion| bare(&pretty(expansion))).collect();
    let excerpts: Vec<&str> =
        blocks(page).filter(|(fence, _)| *fence == "rs").map(|(_, code)| code).collect();
    assert!(excerpts.len() > 5);
    for excerpt in excerpts {
        let mut rest = expansion.as_str();
        for part in excerpt.split("// ...").map(bare) {
            let Some(at) = rest.find(&part) else {
                panic!("this is not, or no longer, in the expansion: {part}\n{expansion}");
            };
            rest = &rest[at + part.len()..];
        }
    }
}

//! Expansions as files, so that a change of generated code is read in review.
//!
//! To accept a change, run `INSTA_UPDATE=always cargo test -p session-derive` and read the diff of
//! `src/snapshots/`.

use crate::expand;
use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
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
fn state() {
    let state = quote! {
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
    };
    insta::assert_snapshot!(pretty(expand::derive_state(state)));
}

#[test]
fn small_derives() {
    let item = quote! {
        pub enum Refused<T> {
            NoSuch { key: T },
            #[serde(rename = "full")]
            Full(#[assume_deterministic = "shown only"] f32),
        }
    };
    let mut both = expand::derive_deterministic(item.clone());
    both.extend(expand::derive_rejection(item));
    insta::assert_snapshot!(pretty(both));
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

//! Every misuse and the message it gets, and every odd but valid input, by topic.
//!
//! To accept changed messages, run `TRYBUILD=overwrite cargo test -p ui-tests --test ui` and read the diff of the
//! `.stderr` files as a user would: does it say what is wrong, where, and what to do, in one error for one
//! mistake? One folder alone: `cargo test -p ui-tests --test ui handlers`.

fn folder(topic: &str) {
    let cases = trybuild::TestCases::new();
    let path = |kind: &str| format!("{}/ui/{topic}/{kind}", env!("CARGO_MANIFEST_DIR"));
    if std::path::Path::new(&path("fail")).is_dir() {
        cases.compile_fail(format!("ui/{topic}/fail/*.rs"));
    }
    if std::path::Path::new(&path("pass")).is_dir() {
        cases.pass(format!("ui/{topic}/pass/*.rs"));
    }
}

macro_rules! folders {
    ($($topic:ident),* $(,)?) => {$(
        #[test]
        fn $topic() {
            folder(stringify!($topic));
        }
    )*};
}

folders!(
    attribute,
    commands,
    handlers,
    replies,
    infallible,
    deterministic,
    queries,
    hooks,
    state,
    derives,
    odd,
);

//! What the macros cannot read off the tokens of a handler, clippy sees: the expansion turns its lints on, and the
//! bodies keep their spans.

use std::process::Command;

#[test]
fn clippy_sees_in_handlers_what_tokens_cannot_show() {
    let source = include_str!("../examples/mistakes.rs");
    let vouched =
        1 + source.lines().position(|line| line.contains("assume_infallible")).expect("it is there");
    let output = Command::new(env!("CARGO"))
        .args(["clippy", "-p", "ui-tests", "--example", "mistakes", "--no-deps", "--message-format=json"])
        .args(["--", "--cfg", "mistakes"])
        .output()
        .expect("cargo runs");
    let messages = String::from_utf8(output.stdout).expect("cargo writes text");
    let mut found: Vec<(&str, usize)> = messages
        .lines()
        .filter(|line| line.contains(r#""level":"error""#))
        .filter_map(|line| Some((after(line, r#""code":{"code":""#)?, after(line, "mistakes.rs:")?)))
        .filter_map(|(code, line)| {
            Some((code.split('"').next()?, line.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?))
        })
        .collect();
    found.sort_unstable();
    let codes: Vec<&str> = found.iter().map(|(code, _)| *code).collect();
    assert_eq!(
        codes,
        [
            "clippy::arithmetic_side_effects",
            "clippy::expect_used",
            "clippy::indexing_slicing",
            "clippy::panic",
            "clippy::unwrap_used",
        ],
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for (code, line) in found {
        assert!(line < vouched, "{code} at line {line}: the reason at line {vouched} lifts it");
    }
}

fn after<'a>(line: &'a str, what: &str) -> Option<&'a str> {
    line.split_once(what).map(|(_, rest)| rest)
}

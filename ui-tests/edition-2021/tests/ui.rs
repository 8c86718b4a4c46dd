//! The odd inputs in which the editions differ: keywords, preludes, paths, patterns, and what macros are given.

#[test]
fn odd() {
    let cases = trybuild::TestCases::new();
    for case in [
        "crate-no_implicit_prelude",
        "crate-renamed",
        "impl-from_macro_rules",
        "names-raw",
        "state-generic",
        "variants-every_shape",
    ] {
        cases.pass(format!("../ui/odd/pass/{case}.rs"));
    }
}

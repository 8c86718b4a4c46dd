//! Every odd but valid input.

#[test]
fn odd() {
    trybuild::TestCases::new().pass("../ui/odd/pass/*.rs");
}

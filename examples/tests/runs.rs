//! Every example runs and says what it should.

use std::process::Command;

/// What a program prints; it must end well.
fn output(program: &str) -> String {
    let output = Command::new(program).output().expect("the example starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("the example prints text")
}

#[test]
fn counter_adds_once_however_often_it_is_asked() {
    let text = output(env!("CARGO_BIN_EXE_counter"));
    assert_eq!(text.matches("the answer is 5").count(), 3, "{text}");
    assert!(text.contains("the counter stands at 5: still once."), "{text}");
}

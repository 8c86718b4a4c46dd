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

#[test]
fn own_raft_runs_each_command_once_over_two_changes_of_leader() {
    let text = output(env!("CARGO_BIN_EXE_own_raft"));
    for line in [
        "the answer is 70, as it would have been; 0 entries were added",
        "The three replicas hold the same, key by key: 55 in each till.",
        "100 - 30 - 20 + 5, by 4 commands that were sent 6 times.",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[test]
fn upgrade_switches_at_one_entry() {
    let text = output(env!("CARGO_BIN_EXE_upgrade"));
    for line in [
        "old build: version 1, user/stock",
        "the old build can read what the new one writes: true",
        "old build: stops: the log raises the machine to version 2",
        "new build: version 2, user/reserved, user/stock",
        "both replicas hold the same: true",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert_eq!(text.matches("no: the payload is no command").count(), 2, "{text}");
}

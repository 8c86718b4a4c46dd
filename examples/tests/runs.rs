//! Every example runs and says what it should.

use std::process::Command;

/// What a program prints; it must end well.
fn output(program: &str, arguments: &[&str]) -> String {
    printed(Command::new(program).args(arguments))
}

fn printed(program: &mut Command) -> String {
    let output = program.output().expect("the example starts");
    let text = String::from_utf8(output.stdout).expect("the example prints text");
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// The lines stand in the text, in this order.
fn assert_says(text: &str, lines: &[&str]) {
    let mut rest = text;
    for line in lines {
        let found = rest.find(line);
        assert!(found.is_some(), "`{line}` is not there, or not in its place, in\n{text}");
        rest = &rest[found.unwrap_or(0) + line.len()..];
    }
}

#[test]
fn counter_adds_once_however_often_it_is_asked() {
    let text = output(env!("CARGO_BIN_EXE_counter"), &[]);
    assert_eq!(text.matches("the answer is 5").count(), 3, "{text}");
    assert_says(
        &text,
        &["the counter stands at 5: the command ran once.", "the counter stands at 5: still once."],
    );
}

#[test]
fn poll_counts_and_tells() {
    let room = tempfile::tempdir().expect("a directory to play in");
    for _ in 0..2 {
        let mut poll = Command::new(env!("CARGO_BIN_EXE_poll"));
        let text = printed(poll.current_dir(room.path()));
        let lines = ["the poll is closed: {\"tea\": 1}", "server request 1: Closed { votes: {\"tea\": 1} }"];
        assert_says(&text, &lines);
    }
}

#[test]
fn bank_pays_once_though_it_is_killed_and_asked_eight_times() {
    let text = output(env!("CARGO_BIN_EXE_bank"), &[]);
    let lines = [
        "the bank says: 100 in the account",
        "the bank's process is dead",
        "its books say 70",
        "the bank says: 70 in the account",
        "the bank says: 70, 70, 70, 70, 70",
        "the bank says: 70 in the account",
        "was paid once: 70 are left",
    ];
    assert_says(&text, &lines);
}

#[test]
fn bank_keeps_accounts_and_notices_from_one_run_to_the_next() {
    let room = tempfile::tempdir().expect("a directory to play in");
    let dir = room.path().join("bank");
    let run = |arguments: &[&str]| {
        let dir = dir.to_str().expect("a plain path");
        output(env!("CARGO_BIN_EXE_bank"), &[&["--dir", dir], arguments].concat())
    };
    let refused = |arguments: &[&str]| {
        let mut bank = Command::new(env!("CARGO_BIN_EXE_bank"));
        let output = bank.arg("--dir").arg(&dir).args(arguments).output().expect("the example starts");
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).expect("the example prints text")
    };
    assert_eq!(run(&["open", "Ann"]), "account 1\n");
    assert_eq!(run(&["deposit", "1", "100"]), "the account holds 100\n");
    assert_eq!(run(&["watch", "1"]), "watching account 1\n");
    assert_eq!(run(&["withdraw", "1", "30"]), "the account holds 70\n");
    assert_eq!(refused(&["withdraw", "1", "300"]), "the bank refuses: the account holds only 70\n");
    assert_eq!(run(&["deposit", "1", "5"]), "the account holds 75\n");
    let notices = "watching account 1\naccount 1 came to hold 70\naccount 1 came to hold 75\n";
    assert_eq!(run(&["watch", "1"]), notices);
    assert_eq!(run(&["watch", "1"]), "watching account 1\n", "each notice comes once");
    assert_eq!(run(&["list"]), "account 1 of Ann holds 75\n");
    assert_eq!(run(&["close", "1"]), "account 1 held 75 and is closed\n");
    for arguments in [&["deposit", "1", "5"][..], &["watch", "1"], &["close", "1"]] {
        assert_eq!(refused(arguments), "the bank refuses: there is no such account\n");
    }
}

#[test]
fn kv_watch_tells_every_change_once_and_in_order() {
    let text = output(env!("CARGO_BIN_EXE_kv_watch"), &[]);
    let lines = [
        "1. Put { key: \"lamp/kitchen\", value: \"on\" }",
        "2. Put { key: \"lamp/porch\", value: \"on\" }",
        "3. Deleted { key: \"lamp/kitchen\" }",
        "purged: 1",
        "4. Expired { key: \"lamp/porch\" }",
        "and reads: None",
        "watchers left: 0",
    ];
    assert_says(&text, &lines);
}

#[test]
fn lock_service_gives_the_lock_on_and_old_tokens_are_refused() {
    let text = output(env!("CARGO_BIN_EXE_lock_service"), &[]);
    let lines = [
        "takes `Ann was here`",
        "Bo: the command was rejected: Queued { ahead: 1 }",
        "Cy: the command was rejected: Queued { ahead: 2 }",
        "takes `Bo was here`",
        "refuses `Ann again`",
        "Cy's token is higher than Bo's: true",
        "waiting now: 0",
    ];
    assert_says(&text, &lines);
}

#[test]
fn own_raft_runs_each_command_once_over_two_changes_of_leader() {
    let text = output(env!("CARGO_BIN_EXE_own_raft"), &[]);
    let lines = [
        "the answer is 70, as it would have been; 0 entries were added",
        "The three replicas hold the same, key by key: 55 in each till.",
        "100 - 30 - 20 + 5, by 4 commands that were sent 6 times.",
    ];
    assert_says(&text, &lines);
}

#[test]
fn upgrade_switches_at_one_entry() {
    let text = output(env!("CARGO_BIN_EXE_upgrade"), &[]);
    let lines = [
        "old build: version 1, user/stock",
        "the old build can read what the new one writes: true",
        "old build: no: the payload is no command",
        "new build: no: the payload is no command",
        "old build: stops: the log raises the machine to version 2",
        "new build: version 2, user/reserved, user/stock",
        "both replicas hold the same: true",
    ];
    assert_says(&text, &lines);
}

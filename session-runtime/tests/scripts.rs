//! Scenarios as text: log entries in, server actions out, one file each, in `tests/scripts`.
//!
//! The grammar is in `tests/scripts/README.md`. Every script runs twice: as it is written, and with the
//! machine replaced, before every line, by the one its own snapshot restores to. Both must give what the script
//! says.
//!
//! After a change of behaviour that was reviewed, let the scripts say what the machine says now, and read the
//! difference line by line before it is kept:
//!
//! ```text
//! REWRITE_SCRIPTS=1 cargo test -p session-runtime --test scripts
//! git diff session-runtime/tests/scripts
//! ```
//!
//! It changes only the lines that come out; comments and lines in stay. Every file that changed is named on
//! standard error, whatever the test harness hides.

#[path = "support/script.rs"]
mod script;
mod support;

use script::{Restoring, play};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

const REWRITE: &str = "REWRITE_SCRIPTS";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")
}

/// Plays the script of a file both ways, after rewriting it if that is asked for.
fn run(name: &str) {
    let path = folder().join(format!("{name}.txt"));
    let shown = format!("tests/scripts/{name}.txt");
    let mut text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{shown}: {error}"));
    if std::env::var_os(REWRITE).is_some_and(|value| value == "1") {
        let played = play(&shown, &text, Restoring::AsWritten).unwrap_or_else(|problem| panic!("{problem}"));
        if played.text != text {
            fs::write(&path, &played.text).unwrap_or_else(|error| panic!("{shown}: {error}"));
            // Not with `eprintln!`, which the harness would hide.
            let note = format!("REWRITTEN {shown}: review the difference\n");
            std::io::stderr().write_all(note.as_bytes()).unwrap();
            text = played.text;
        }
    }
    for restoring in [Restoring::AsWritten, Restoring::BeforeEveryLine] {
        if let Err(problem) = check(&shown, &text, restoring) {
            panic!("{problem}");
        }
    }
}

/// Plays a script and returns all that is wrong.
fn check(file: &str, text: &str, restoring: Restoring) -> Result<(), String> {
    let played = play(file, text, restoring)?;
    if played.differences.is_empty() {
        return Ok(());
    }
    let hint =
        format!("If the machine is right, set {REWRITE}=1 to rewrite the script, and review the difference.");
    Err(format!("{}\n{hint}", played.differences.join("\n")))
}

/// A test for each script.
macro_rules! scripts {
    ($($name:ident)*) => {
        const SCRIPTS: &[&str] = &[$(stringify!($name)),*];
        $(
            #[test]
            fn $name() {
                run(stringify!($name));
            }
        )*
    };
}

scripts! {
    request_1_unknown_session
    request_2_activity_and_acks
    request_3_watermark
    request_4_below_the_watermark
    request_5_cached_answer
    request_6_busy
    request_7_invalid_payload
    request_8_execution
    requests_out_of_order
    create_live_session_again
    create_closed_session
    create_stale_id
    create_full
    create_evicts_the_idlest
    ack_server_requests
    expire_session
    retry_due_requests
    retry_order_and_limit
    keep_alive
    internal_command
    tick
    configure
    configure_seed
    upgrade
    limit_idle_timeout
    limit_max_sessions
    limit_max_sessions_evict_idlest
    limit_max_cached_bytes
    limit_max_pending_requests
    closing_runs_the_hook_first
    closing_order_and_reasons
    closing_1024_an_entry
    closing_slow_consumer_mark_stays
    closed_session_never_returns
    halt_on_panic
    halt_on_bad_reply
    halt_on_bad_send
    halt_in_a_hook
    skip
    state_that_cannot_be_encoded
    queries
    time_never_runs_backwards
    index_out_of_order
    server_request_ids_continue
    restore_keeps_both_halves
    history_request_behind_expiry
    history_delayed_registration
    history_duplicate_moves_watermark
    history_client_lost_its_numbering
    history_clock_jumps_a_year
    history_two_closings_and_a_restore
    history_two_builds_on_one_log
}

/// A script that no test runs would rot.
#[test]
fn every_script_in_the_folder_is_run() {
    let files = fs::read_dir(folder()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let found: BTreeSet<String> = files.filter(|file| file != "README.md").collect();
    let run: BTreeSet<String> = SCRIPTS.iter().map(|name| format!("{name}.txt")).collect();
    let not_run: Vec<&String> = found.difference(&run).collect();
    assert!(not_run.is_empty(), "add these to `scripts!` in tests/scripts.rs: {not_run:?}");
    let missing: Vec<&String> = run.difference(&found).collect();
    assert!(
        missing.is_empty(),
        "`scripts!` in tests/scripts.rs names these, which are not there: {missing:?}"
    );
}

mod the_runner {
    use super::{Restoring, check, play};

    const GOOD: &str = "\
# A request and its duplicate.
1 @0 create alice
  -> created alice

2 @10 request alice 1: add 5
  -> response alice 1: accepted 5
# Again.
3 @20 request alice 1 (lowest 1, acked 0): add 5
  -> response alice 1: accepted 5
show total
  -> 5
";

    fn problem(text: &str) -> String {
        check("some.txt", text, Restoring::AsWritten).unwrap_err()
    }

    fn line(line: &str) -> String {
        problem(&format!("# Why.\n1 @0 create alice\n  -> created alice\n{line}\n"))
    }

    #[test]
    fn accepts_what_is_right() {
        assert_eq!(check("some.txt", GOOD, Restoring::AsWritten), Ok(()));
        assert_eq!(check("some.txt", GOOD, Restoring::BeforeEveryLine), Ok(()));
    }

    #[test]
    fn fails_on_a_wrong_expectation_and_names_file_and_line() {
        for restoring in [Restoring::AsWritten, Restoring::BeforeEveryLine] {
            let wrong = GOOD.replace("show total\n  -> 5", "show total\n  -> 10");
            let problem = check("some.txt", &wrong, restoring).unwrap_err();
            assert!(problem.starts_with("some.txt:10: `show total`\n"), "{problem}");
            assert!(problem.contains("the script says:\n    -> 10\n"), "{problem}");
            assert!(problem.contains("the machine says:\n    -> 5\n"), "{problem}");
            assert!(problem.contains("REWRITE_SCRIPTS=1"), "{problem}");
        }
    }

    #[test]
    fn fails_on_a_missing_an_extra_and_a_misplaced_outcome() {
        assert!(problem(&GOOD.replace("  -> created alice\n", "")).starts_with("some.txt:2: "));
        let extra = GOOD.replace("  -> created alice\n", "  -> created alice\n  -> nothing\n");
        assert!(problem(&extra).starts_with("some.txt:2: "));
        let moved = GOOD.replace("# Again.\n", "# Again.\n  -> nothing\n");
        assert!(problem(&moved).starts_with("some.txt:8: what comes out must stand right below"));
        assert!(problem("# Why.\n  -> nothing\n").starts_with("some.txt:2: what comes out must stand"));
    }

    #[test]
    fn reports_every_difference_of_a_file() {
        let problem = problem(&GOOD.replace("accepted 5", "accepted 6"));
        assert!(problem.contains("some.txt:5: ") && problem.contains("some.txt:8: "), "{problem}");
    }

    #[test]
    fn says_what_is_wrong_with_a_malformed_line() {
        for (text, expected) in [
            ("2 @0 dance alice", "some.txt:4: `dance` is unknown; expected one of: create, request, ack,"),
            ("dance", "some.txt:4: `dance` is unknown; expected one of: a log entry (INDEX @TIME ACTION),"),
            ("show moon", "some.txt:4: `moon` is unknown; expected one of: sessions, pending,"),
            ("query moon", "some.txt:4: `moon` is unknown; expected one of: total, journal,"),
            ("2 10 tick", "some.txt:4: expected a time, as in `@10`, behind the index"),
            ("5..4 @0 tick", "some.txt:4: expected a range that goes up, found `5..4`"),
            ("2 @0 tick tock", "some.txt:4: expected the end of the line, found `tock`"),
            (
                "2 @0 request bob 1: add 5",
                "some.txt:4: no session `bob` was created or drawn; known are: alice",
            ),
            (
                "2 @0 request alice one: add 5",
                "some.txt:4: expected a request's number, a number in range, found `one`",
            ),
            ("2 @0 request alice 1 add 5", "some.txt:4: expected `:`, found `add`"),
            (
                "2 @0 request alice 1 (highest 1): add 5",
                "some.txt:4: `highest` is unknown; expected one of: lowest, acked",
            ),
            ("2 @0 request alice 1: sing", "some.txt:4: `sing` is unknown; expected one of: add, take,"),
            ("2 @0 request alice 1: hex 0", "some.txt:4: expected pairs of hex digits, found `0`"),
            (
                "2 @0 configure max_size 1",
                "some.txt:4: `max_size` is unknown; expected one of: idle_timeout,",
            ),
            ("2 @0 request alice", "some.txt:4: the line ends where a request's number is expected"),
            ("replicas one=old", "some.txt:4: `replicas` must stand before everything else"),
            ("restore", "some.txt:4: expected a `snapshot` before the first `restore`"),
            ("draw alice", "some.txt:4: `alice` has an id already"),
            ("rebuild two as new", "some.txt:4: `two` is unknown; expected one of: replica"),
            (" tick", "some.txt:4: expected a line in, which starts in the first column, or a line out"),
            ("=> nothing", "some.txt:4: `=>` is unknown; expected one of: a log entry"),
        ] {
            let problem = line(text);
            assert!(problem.starts_with(expected), "{text}: {problem}");
        }
        assert!(problem("1 @0 tick\n").starts_with("some.txt:1: a script starts with a comment"));
        assert!(problem("# Why.\n").starts_with("some.txt:1: the script does nothing"));
    }

    #[test]
    fn rewrites_outcomes_and_keeps_comments_and_lines_in() {
        let wrong = GOOD.replace("accepted 5", "accepted 6").replace("  -> created alice\n", "");
        assert_eq!(play("some.txt", &wrong, Restoring::AsWritten).unwrap().text, GOOD);
    }
}

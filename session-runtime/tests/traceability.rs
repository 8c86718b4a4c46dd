//! The page of rules stays true: every row is there, and every test it names exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The rows the page must have, beside the numbered ones.
const ROWS: &[&str] = &[
    "request order",
    "create, live",
    "create, refused",
    "create, full",
    "create, hook",
    "ack",
    "expire",
    "retry",
    "retry order",
    "retry, dirty read",
    "retry, cost",
    "closing, cost",
    "keep-alive",
    "internal",
    "tick",
    "configure",
    "upgrade",
    "closing, hook",
    "closing, order",
    "closing, reason",
    "closing, slow mark",
    "closing, 1024",
    "expiry due",
    "never returns",
    "server request ids",
    "send to nobody",
    "last sent at",
    "time",
    "order of entries",
    "errors",
    "ends of numbers",
    "generator",
    "session id",
    "limits, default",
    "idle_timeout",
    "max_sessions",
    "max_sessions, lowered",
    "max_cached_bytes",
    "max_pending_requests",
    "halt",
    "halt, reads",
    "halt, state field",
    "halt, query",
    "skip",
    "dictionary",
    "per entry",
    "meta data",
    "schema",
    "restore",
    "restore anywhere",
    "identical bytes",
    "damage",
    "changed fields",
    "capture",
    "streams",
    "snapshot fixtures",
    "serials, no key",
    "serials, mark",
    "serials, identity",
    "serials, supersession",
    "serials, durable",
    "serials, straggler",
    "serials, close",
    "serials, cost",
    "serials, bytes",
    "serials, outcome",
    "serials, context",
    "serials, shared",
    "serials, snapshot",
    "serials, entries",
    "ids, id",
    "ids, once",
    "ids, acked",
    "ids, acked nothing",
    "ids, retention",
    "ids, no eviction",
    "ids, forget",
    "ids, cost",
    "ids, table",
    "ids, context",
    "ids, shared",
    "ids, snapshot",
    "ids, entries",
    "ids, gate",
    "wrappers, alike",
    "wrappers, kind",
    "wrappers, cost",
    "query",
    "query, bad",
    "version",
    "inactive",
    "needs build",
    "needs build, snapshot",
    "needs build, entry",
    "switch",
    "field since",
    "codec maxima",
    "wire form",
    "entries",
    "gate, answered",
    "gate, in flight",
    "gate, applied",
    "gate, term",
    "gate, sessions",
    "gate, refusal",
    "retry driver",
    "client, numbers",
    "client, watermark",
    "client, acks",
    "client, resend",
    "client, late answers",
    "client, giving up",
    "client, delivery",
    "client, opening",
    "client, closing",
    "client, saving",
    "client, execution",
    "messages",
    "all together",
];

/// The files in which every test is of a rule.
const RULE_TESTS: [&str; 11] = [
    "sessions.rs",
    "snapshots.rs",
    "queries.rs",
    "versions.rs",
    "admission.rs",
    "retries.rs",
    "clients.rs",
    "protocol.rs",
    "serials.rs",
    "ids.rs",
    "wrappers.rs",
];

fn required() -> BTreeSet<String> {
    let steps = (1..=8).map(|number| format!("request {number}"));
    let scenarios = (1..=11).map(|number| format!("scenario {number}"));
    let requirements = (1..=27).map(|number| format!("FR-{number:03}"));
    ROWS.iter().map(|row| (*row).to_owned()).chain(steps).chain(scenarios).chain(requirements).collect()
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The page's rows, each with the tests it names.
fn rows(page: &str) -> BTreeMap<String, Vec<String>> {
    let mut rows = BTreeMap::new();
    for line in page.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [row, _, tests] = cells[..] else { panic!("a row has three cells: {line}") };
        if row == "row" || row.starts_with("---") {
            continue;
        }
        let tests = tests.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        assert!(rows.insert(row.to_owned(), tests).is_none(), "the row `{row}` stands twice");
    }
    rows
}

/// The names of the tests of a file that run: functions marked `#[test]` that are neither in a comment nor ignored.
fn tests_of(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let tests = code.split("#[test]").skip(1).map(|after| after.split_once("fn ").expect("a function"));
    tests
        .filter(|(attributes, _)| !attributes.contains("#[ignore"))
        .map(|(_, signature)| signature.split('(').next().unwrap().to_owned())
        .collect()
}

/// The names of all tests, and of the scenario scripts.
fn tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for path in files(&here().join("tests")) {
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(tests_of(&path));
        } else if path.parent().is_some_and(|folder| folder.ends_with("scripts")) {
            names.insert(path.file_name().unwrap().to_str().unwrap().to_owned());
        }
    }
    names
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

fn page() -> String {
    fs::read_to_string(here().join("../book/src/reference/rules.md")).unwrap()
}

#[test]
fn the_page_of_rules_has_every_row() {
    let there: BTreeSet<String> = rows(&page()).into_keys().collect();
    let missing: Vec<_> = required().difference(&there).cloned().collect();
    let unknown: Vec<_> = there.difference(&required()).cloned().collect();
    assert!(missing.is_empty(), "rules.md leaves out: {missing:?}");
    assert!(unknown.is_empty(), "list these rows in this test too: {unknown:?}");
}

#[test]
fn every_row_names_tests_that_exist() {
    let tests = tests();
    for (row, named) in rows(&page()) {
        assert!(!named.is_empty(), "the row `{row}` names no test");
        for test in named {
            assert!(tests.contains(&test), "the row `{row}` names the test `{test}`, which does not exist");
        }
    }
}

#[test]
fn every_rule_test_has_a_row() {
    let named: BTreeSet<String> = rows(&page()).into_values().flatten().collect();
    for file in RULE_TESTS {
        for name in tests_of(&here().join("tests").join(file)) {
            assert!(named.contains(&name), "{file}: no row of rules.md names `{name}`");
        }
    }
}

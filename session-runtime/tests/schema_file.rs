//! The schema file: safe changes pass, others fail with words that help.

use serde::{Deserialize, Serialize};
use session_runtime::schema::{Fields, Handler, QueryShape, StateField, Variant, assert_unchanged};
use session_runtime::{
    Bytes, Command, Context, Deterministic, EncodeError, Never, Reply, Response, Schema, SnapshotError,
    State, StateError, StateMachine, StateReader, StateWriter,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

#[derive(Serialize, Deserialize)]
struct Nothing;

impl Deterministic for Nothing {}

impl Command for Nothing {
    const VARIANTS: &'static [Variant] = &[];
    fn variant(&self) -> usize {
        0
    }
}

macro_rules! machine {
    ($name:ident, $schema:expr) => {
        struct $name;

        impl State for $name {
            const FIELDS: &'static [StateField] = &[];
            fn save(&self, _: &mut StateWriter) -> Result<(), StateError> {
                Ok(())
            }
            fn load(_: &mut StateReader<'_>) -> Result<Self, SnapshotError> {
                Ok(Self)
            }
        }

        impl StateMachine for $name {
            type Command = Nothing;
            type Query = Never;
            type ServerRequest = Never;
            const SCHEMA: Schema = $schema;
            fn apply(&mut self, _: &mut Context<'_>, _: Nothing) -> Result<Response, EncodeError> {
                ().into_response()
            }
            fn query(&self, query: Never) -> Result<Bytes, EncodeError> {
                match query {}
            }
        }
    };
}

const PUT: Variant =
    Variant { name: "Put", fields: Fields::Struct(&[("key", "String"), ("value", "u64")]), since: 1 };
const GET: Variant = Variant { name: "Get", fields: Fields::Tuple(&["String"]), since: 1 };
const NEW: Variant = Variant { name: "New", fields: Fields::Unit, since: 2 };

const fn handler(command: &'static str, reply: &'static str) -> Handler {
    Handler { command, reply, internal: false }
}

const FIELD: StateField = StateField::new("map", "BTreeMap<String, u64>");

const BASE: Schema = Schema {
    name: "Store",
    version: 1,
    commands: &[PUT, GET],
    handlers: &[handler("Put", "()"), handler("Get", "Option<u64>"), handler("New", "()")],
    queries: &[QueryShape { name: "Size", fields: &[], reply: "u64" }],
    server_request: "Never",
    state: &[FIELD],
    dropped: &[],
};

const BASE_FILE: &str = "machine Store version 1
command 0 Put { key: String, value: u64 } -> ()
command 1 Get(String) -> Option<u64>
server_request Never
state map: BTreeMap<String, u64>
query Size {} -> u64
";

/// A file of its own for each case.
fn file(case: &str, content: Option<&str>) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("schema-{case}"));
    let path = folder.join("schema.txt");
    match content {
        Some(content) => {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, content).unwrap();
        }
        None => drop(std::fs::remove_dir_all(&folder)),
    }
    path
}

/// What the check says of a machine whose file holds the base schema.
fn verdict<M: StateMachine>(case: &str) -> String {
    verdict_on::<M>(case, Some(BASE_FILE))
}

fn verdict_on<M: StateMachine>(case: &str, content: Option<&str>) -> String {
    let path = file(case, content);
    match catch_unwind(AssertUnwindSafe(|| assert_unchanged::<M>(&path))) {
        Ok(()) => {
            assert_eq!(std::fs::read_to_string(&path).ok().as_deref(), content, "nothing is written unasked");
            "fine".to_owned()
        }
        Err(panic) => panic.downcast::<String>().map_or_else(|_| "?".to_owned(), |message| *message),
    }
}

macro_rules! says {
    ($case:literal, $schema:expr, $($expected:literal),+) => {{
        machine!(Changed, $schema);
        let verdict = verdict::<Changed>($case);
        $(assert!(verdict.contains($expected), "{}: {verdict}", $case);)+
    }};
}

#[test]
fn an_unchanged_schema_and_safe_changes_pass() {
    says!("same", BASE, "fine");
    says!("appended", Schema { version: 2, commands: &[PUT, GET, NEW], ..BASE }, "fine");
    says!("query", Schema { queries: &[], ..BASE }, "fine");
    says!(
        "field-since",
        Schema {
            version: 2,
            state: &[FIELD, StateField { since: 2, ..StateField::new("extra", "u64") }],
            ..BASE
        },
        "fine"
    );
    says!(
        "field-default",
        Schema { state: &[FIELD, StateField { default: true, ..StateField::new("extra", "u64") }], ..BASE },
        "fine"
    );
    says!(
        "field-was",
        Schema {
            state: &[StateField { was: Some("map"), ..StateField::new("table", "BTreeMap<String, u64>") }],
            ..BASE
        },
        "fine"
    );
    says!("field-dropped", Schema { state: &[], dropped: &["map"], ..BASE }, "fine");
    if std::env::var_os("NOTED").is_none() {
        // The notes go to the test's own output, which another process can read.
        let mut run = std::process::Command::new(std::env::current_exe().unwrap());
        run.env("NOTED", "1").args(["an_unchanged_schema_and_safe_changes_pass", "--nocapture"]);
        let output = String::from_utf8(run.output().unwrap().stderr).unwrap();
        let note = "the schema of `Store` changed in a safe way; run this test with UPDATE_SCHEMA=1";
        assert_eq!(output.matches(note).count(), 6, "{output}");
    }
}

#[test]
fn a_reordered_removed_or_changed_command_fails_with_what_would_break() {
    says!(
        "reordered",
        Schema { commands: &[GET, PUT], ..BASE },
        "command 0 Put { key: String, value: u64 } -> ()",
        "so `Put` moved.",
        "replicas of both builds would disagree",
        "append what is new as a variant of its own with a higher `#[since = N]`"
    );
    says!(
        "removed-last",
        Schema { commands: &[PUT], ..BASE },
        "It ended with `command 1 Get(String)",
        "which is gone"
    );
    says!("removed", Schema { commands: &[GET], ..BASE }, "so `Put` is gone.");
    // The version falls with the command that brought it, which is what to put back.
    machine!(Fallen, BASE);
    let with_new = BASE_FILE
        .replace("version 1", "version 2")
        .replace("server_request", "command 2 New -> () since 2\nserver_request");
    let verdict = verdict_on::<Fallen>("removed-with-version", Some(&with_new));
    assert!(verdict.contains("It ended with `command 2 New -> () since 2`, which is gone."), "{verdict}");
    says!(
        "retyped",
        Schema { commands: &[PUT, Variant { fields: Fields::Tuple(&["u64"]), ..GET }], ..BASE },
        "command 1 Get(String) -> Option<u64>\nand this build has\n    command 1 Get(u64) -> Option<u64>"
    );
    says!(
        "reply",
        Schema { handlers: &[handler("Put", "()"), handler("Get", "u64")], ..BASE },
        "command 1 Get(String) -> u64"
    );
    says!(
        "internal",
        Schema {
            handlers: &[Handler { internal: true, ..handler("Put", "()") }, handler("Get", "Option<u64>")],
            ..BASE
        },
        "command 0 internal Put"
    );
}

#[test]
fn a_command_appended_without_since_fails_and_says_how() {
    says!(
        "no-since",
        Schema { commands: &[PUT, GET, Variant { since: 1, ..NEW }], ..BASE },
        "`New` is new, and version 1 is in use already",
        "Mark it `#[since = 2]`"
    );
}

#[test]
fn changes_of_state_that_no_snapshot_survives_fail() {
    says!(
        "field-retyped",
        Schema { state: &[StateField::new("map", "u8")], ..BASE },
        "is `BTreeMap<String, u64>` in the file and `u8` in this build"
    );
    says!(
        "field-added",
        Schema { state: &[FIELD, StateField::new("extra", "u64")], ..BASE },
        "has no state field `extra`: mark it `#[state(default)]` or `#[since = 2]` if it is new"
    );
    // Marked, but with a version that is in use already.
    machine!(
        Marked,
        Schema {
            version: 2,
            state: &[FIELD, StateField { since: 2, ..StateField::new("extra", "u64") }],
            ..BASE
        }
    );
    let verdict = verdict_on::<Marked>("field-in-use", Some(&BASE_FILE.replace("version 1", "version 2")));
    assert!(
        verdict.contains("no state field `extra`: mark it `#[state(default)]` or `#[since = 3]`"),
        "{verdict}"
    );
    says!("field-removed", Schema { state: &[], ..BASE }, "`#[state(dropped(\"map\"))]`");
}

#[test]
fn another_name_a_lower_version_and_another_server_request_fail() {
    says!(
        "name",
        Schema { name: "Shop", ..BASE },
        "The machine was called `Store`",
        "#[state_machine(name = \"Store\")]"
    );
    says!(
        "server-request",
        Schema { server_request: "Notice", ..BASE },
        "had no server requests, and now they are `Notice`",
        "Leave `server_request` out"
    );
    machine!(Asking, Schema { server_request: "Notice", ..BASE });
    let other = BASE_FILE.replace("server_request Never", "server_request News");
    let verdict = verdict_on::<Asking>("other-server-request", Some(&other));
    assert!(
        verdict.contains("was `News` and is now `Notice`") && verdict.contains("append to it"),
        "{verdict}"
    );
    machine!(Lower, BASE);
    let newer = BASE_FILE.replace("version 1", "version 3");
    let verdict = verdict_on::<Lower>("lower", Some(&newer));
    assert!(verdict.contains("never lower a version"), "{verdict}");
    assert!(verdict.contains("`#[state_machine(version = 3)]` keeps it"), "{verdict}");
    assert!(
        verdict_on::<Lower>("broken", Some("hello"))
            .contains("should be `machine NAME version N`, and is `hello`")
    );
}

#[test]
fn a_missing_file_fails_and_says_how_to_make_it() {
    machine!(Missing, BASE);
    let verdict = verdict_on::<Missing>("missing", None);
    assert!(verdict.contains("there is no schema file") && verdict.contains("UPDATE_SCHEMA=1"), "{verdict}");
}

#[test]
fn the_file_is_written_and_brought_up_to_date_when_asked() {
    machine!(Asked, Schema { version: 2, commands: &[PUT, GET, NEW], ..BASE });
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("schema-asked/schema.txt");
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        return assert_unchanged::<Asked>(&path);
    }
    // The variable is of the process, so another process does it.
    let update = || {
        let this = std::env::current_exe().unwrap();
        let mut run = std::process::Command::new(this);
        run.env("UPDATE_SCHEMA", "1").arg("the_file_is_written_and_brought_up_to_date_when_asked");
        run.output().unwrap().status.success()
    };
    let expected = BASE_FILE
        .replace("version 1", "version 2")
        .replace("server_request", "command 2 New -> () since 2\nserver_request");
    for content in [None, Some(BASE_FILE)] {
        file("asked", content);
        assert!(update());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
    }
    file("asked", Some("machine Other version 1\n"));
    assert!(!update(), "a change that is not safe is not written");
}

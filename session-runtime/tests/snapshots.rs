//! The rules of snapshots, one test a rule. The names are referred to in `book/src/reference/rules.md`.

mod support;

use serde::{Deserialize, Serialize};
use session_runtime::schema::{Fields, Handler, StateField, Variant};
use session_runtime::{
    ApplyError, Bytes, Command, Context, Deterministic, Dictionary, EncodeError, EntryMap, Limits, Never,
    RaftAction, Reply, RequestError, Response, Schema, SessionId, SessionStateMachine, Snapshot,
    SnapshotError, State, StateError, StateMachine, StateReader, StateWriter, Timestamp, codec,
};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::sync::Arc;
use support::*;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const A: SessionId = SessionId(0xa);
const B: SessionId = SessionId(0xb);

/// A machine with something in every corner.
fn rich() -> Log {
    let mut log = Log::new();
    log.apply(create_with(A, &[("name", "ann")]));
    log.apply(create(B));
    log.apply(create(SessionId(0xc)));
    let limits = Limits { idle_timeout: Some(5_000), max_cached_bytes: Some(1 << 20), ..Limits::default() };
    log.apply(RaftAction::Configure { limits, seed: Some([3; 32]) });
    log.apply_at(10, request(A, 1, DeskCommand::Add { amount: 7 }));
    log.apply_at(20, request(A, 3, DeskCommand::Take { amount: 100 }));
    log.apply_at(30, request(A, 2, DeskCommand::Shout("hi".to_owned())));
    log.apply_at(40, request_with(B, 1, 1, 1, vec![99].into()));
    log.apply_at(50, internal(DeskCommand::Notify { to: B, text: "more".to_owned() }));
    for word in ["one", "two", "two"] {
        log.apply(internal(DeskCommand::Count { word: word.to_owned() }));
    }
    log.apply(expire(SessionId(0xc)));
    log
}

fn bytes_of(log: &Log) -> Vec<u8> {
    log.bytes()
}

// The dictionary.

#[test]
fn the_dictionary_has_two_roots_and_one_key_a_session() {
    let dictionary = rich().machine.snapshot().unwrap().dictionary().unwrap();
    let keys: Vec<&str> = dictionary.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        [
            "session/clock",
            "session/closed",
            "session/id/0000000000000000000000000000000a",
            "session/id/0000000000000000000000000000000b",
            "session/kind",
            "session/limits",
            "session/seed",
            "session/version",
            "user/counts",
            "user/counts/036f6e65",
            "user/counts/0374776f",
            "user/flag",
            "user/journal",
            "user/total",
        ]
    );
}

#[test]
fn a_field_holds_what_the_codec_gives_for_it() {
    let log = rich();
    let dictionary = log.machine.snapshot().unwrap().dictionary().unwrap();
    assert_eq!(dictionary["user/total"], codec::encode(&7u64).unwrap());
    assert_eq!(dictionary["user/journal"], codec::encode(&log.machine.machine().journal).unwrap());
}

#[test]
fn a_per_entry_map_has_its_count_and_a_key_for_each_entry() {
    let dictionary = rich().machine.snapshot().unwrap().dictionary().unwrap();
    assert_eq!(dictionary["user/counts"], codec::encode(&2u64).unwrap());
    assert_eq!(dictionary["user/counts/0374776f"], codec::encode(&2u64).unwrap());
}

#[test]
fn the_meta_data_say_what_it_is_of() {
    let snapshot = rich().machine.snapshot().unwrap().with_engine(12, Bytes::from_static(b"three nodes"));
    let meta = snapshot.meta();
    assert_eq!((&*meta.name, meta.version, meta.index), ("Desk", 1, 13));
    assert_eq!((meta.term, &meta.configuration[..]), (12, &b"three nodes"[..]));
    let read = Snapshot::from_bytes(&snapshot.to_bytes().unwrap()).unwrap();
    assert_eq!(read.meta(), meta);
    assert_eq!(format!("{read:?}"), format!("Snapshot {{ meta: {meta:?}, .. }}"));
}

#[test]
fn the_schema_goes_with_it_restricted_to_the_version() {
    let mut log = rich();
    let before = log.machine.snapshot().unwrap().meta().schema.clone();
    assert!(before.contains("command 0 Add { amount: u64 } -> u64\n"));
    assert!(before.contains("command 1 Take { amount: u64 } -> Result<u64, Refused>\n"));
    assert!(before.contains("command 3 Shout(String) -> u64\n"));
    assert!(before.contains("command 11 internal Purge -> u64\n"));
    assert!(before.contains("server_request Notice\n"));
    assert!(before.contains("state counts: BTreeMap<String, u64>\n"));
    assert!(!before.contains("Double") && !before.contains("doubled"), "{before}");
    log.apply(upgrade(2));
    let after = log.machine.snapshot().unwrap().meta().schema.clone();
    assert!(after.contains("command 13 Double -> u64 since 2\n"));
    assert!(after.contains("state doubled: u64\n"));
}

// Round trips.

#[test]
fn restoring_gives_back_both_halves() {
    let mut log = rich();
    let machine = SessionStateMachine::<Desk>::restore(&log.machine.snapshot().unwrap()).unwrap();
    let mut restored = Log { machine, index: log.index, time: log.time };
    assert_eq!(restored.machine.machine(), log.machine.machine());
    assert_eq!(restored.machine.limits(), log.machine.limits());
    assert_eq!(restored.machine.time(), Timestamp(50));
    let pending = |log: &Log| [A, B].map(|session| log.machine.pending_requests(session).collect::<Vec<_>>());
    assert_eq!(pending(&restored), pending(&log));
    for action in [
        request(A, 1, DeskCommand::Add { amount: 7 }),
        request(A, 2, DeskCommand::Shout("hi".to_owned())),
        request(A, 3, DeskCommand::Take { amount: 100 }),
        request_with(B, 1, 1, 1, vec![99].into()),
        create(SessionId(0xc)),
        request(A, 4, DeskCommand::Roll),
        internal(DeskCommand::Notify { to: B, text: "next".to_owned() }),
        retry(1_000, 0),
        RaftAction::Tick,
    ] {
        assert_eq!(restored.apply_at(60, action.clone()), log.apply_at(60, action));
    }
    assert_eq!(bytes_of(&restored), bytes_of(&log));
}

#[test]
fn a_round_trip_is_byte_identical() {
    let bytes = bytes_of(&rich());
    let snapshot = Snapshot::from_bytes(&bytes).unwrap();
    assert_eq!(snapshot.to_bytes().unwrap(), bytes);
    let machine = SessionStateMachine::<Desk>::restore(&snapshot).unwrap();
    assert_eq!(machine.snapshot().unwrap().to_bytes().unwrap(), bytes);
}

#[test]
fn the_same_log_on_another_replica_gives_the_same_bytes() {
    assert_eq!(bytes_of(&rich()), bytes_of(&rich()));
}

#[test]
fn a_snapshot_can_be_streamed() {
    let snapshot = rich().machine.snapshot().unwrap();
    let bytes = snapshot.to_bytes().unwrap();
    let mut streamed = Vec::new();
    snapshot.write_to(&mut streamed).unwrap();
    assert_eq!(streamed, bytes);
    let read = Snapshot::read_from(Trickle(&bytes)).unwrap();
    assert_eq!(read.to_bytes().unwrap(), bytes);
}

/// Gives one byte at a time, and is interrupted in between.
struct Trickle<'a>(&'a [u8]);

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = buffer.len().min(1);
        self.0.read(&mut buffer[..len])
    }
}

#[test]
fn a_failing_stream_is_an_error_that_says_so() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::new(io::ErrorKind::StorageFull, "no space left"))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    impl Read for Full {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, "not yours"))
        }
    }
    let error = rich().machine.snapshot().unwrap().write_to(Full).unwrap_err();
    let message = "no space left".to_owned();
    assert_eq!(error, SnapshotError::Io { kind: io::ErrorKind::StorageFull, message });
    let error = Snapshot::read_from(Full).unwrap_err();
    assert!(matches!(error, SnapshotError::Io { kind: io::ErrorKind::PermissionDenied, .. }));
}

#[test]
fn a_snapshot_is_of_its_moment_and_can_be_encoded_elsewhere_later() {
    fn is_portable<T: Clone + Send + Sync + 'static>(_: &T) {}
    let mut log = rich();
    let before = bytes_of(&log);
    let snapshot = log.machine.snapshot().unwrap();
    is_portable(&snapshot);
    let encoding = std::thread::spawn(move || snapshot.to_bytes().unwrap());
    for number in 10..100 {
        log.apply(request(A, number, DeskCommand::Note));
    }
    assert_eq!(encoding.join().unwrap(), before);
    assert_ne!(bytes_of(&log), before);
}

#[test]
fn a_plain_field_that_cannot_be_encoded_makes_the_snapshot_an_error_that_names_it() {
    let mut log = rich();
    log.apply(internal(DeskCommand::Spoil(true)));
    let Err(ApplyError::State { field, problem }) = log.machine.snapshot() else { panic!("no error") };
    assert_eq!((&*field, &*problem), ("flag", "the value cannot be encoded: the flag is raised"));
    log.apply(internal(DeskCommand::Spoil(false)));
    assert!(log.machine.snapshot().is_ok(), "the machine goes on");
}

// Damage.

#[test]
fn every_flipped_bit_is_refused() {
    let bytes = bytes_of(&rich());
    for position in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[position] ^= 1 << bit;
            let error = Snapshot::from_bytes(&damaged).err();
            let known = match error {
                Some(SnapshotError::NotASnapshot) => position < 8,
                Some(SnapshotError::Damaged { .. } | SnapshotError::Truncated) => position >= 8,
                _ => false,
            };
            assert!(known, "bit {bit} of byte {position}: {error:?}");
        }
    }
}

#[test]
fn every_cut_is_refused() {
    let bytes = bytes_of(&rich());
    for length in 0..bytes.len() {
        assert_eq!(Snapshot::from_bytes(&bytes[..length]).err(), Some(SnapshotError::Truncated), "{length}");
    }
}

#[test]
fn trailing_bytes_are_refused() {
    let mut bytes = bytes_of(&rich());
    bytes.push(0);
    assert_eq!(Snapshot::from_bytes(&bytes).err(), Some(SnapshotError::Trailing));
}

#[test]
fn a_missing_or_moved_block_is_refused() {
    let snapshot = rich().machine.snapshot().unwrap();
    let blocks = by_the_book(&snapshot, &snapshot.dictionary().unwrap());
    assert_eq!(blocks.concat(), snapshot.to_bytes().unwrap(), "the format is what its description says");
    for gone in 1..blocks.len() - 1 {
        let mut fewer = blocks.clone();
        fewer.remove(gone);
        let error = Snapshot::from_bytes(&fewer.concat()).err();
        assert!(matches!(error, Some(SnapshotError::Damaged { .. })), "without block {gone}: {error:?}");
        let mut swapped = blocks.clone();
        swapped.swap(gone, gone + 1);
        let error = Snapshot::from_bytes(&swapped.concat()).err();
        assert!(matches!(error, Some(SnapshotError::Damaged { .. })), "block {gone} moved: {error:?}");
    }
}

#[test]
fn a_hostile_length_is_refused_without_taking_memory() {
    let mut bytes = bytes_of(&rich())[..20].to_vec();
    bytes.push(1);
    for length in [u64::MAX, 1 << 40] {
        let hostile = [&bytes[..], &length.to_le_bytes(), &[0; 64]].concat();
        assert_eq!(Snapshot::from_bytes(&hostile).err(), Some(SnapshotError::Damaged { block: 1 }));
    }
    let hostile = [&bytes[..], &(1u64 << 30).to_le_bytes(), &[0; 64]].concat();
    assert_eq!(Snapshot::from_bytes(&hostile).err(), Some(SnapshotError::Truncated));
}

#[test]
fn a_future_format_is_refused() {
    let header = [&b"SESSNAP\0"[..], &2u32.to_le_bytes()].concat();
    let checksum = xxh3_64_with_seed(&header, 0);
    let future = [&header[..], &checksum.to_le_bytes(), b"who knows"].concat();
    assert_eq!(Snapshot::from_bytes(&future).err(), Some(SnapshotError::UnknownFormat { version: 2 }));
}

/// The start of a snapshot's bytes, and the checksum of its last whole block.
fn meta_of(bytes: &[u8]) -> (&[u8], u64) {
    let length = u64::from_le_bytes(bytes[21..29].try_into().unwrap());
    let (start, _) = bytes.split_at(usize::try_from(29 + length + 8).unwrap());
    (start, u64::from_le_bytes(*start.last_chunk().unwrap()))
}

/// A block with its checksum, which goes on from the one before it.
fn block(kind: u8, body: &[u8], before: u64) -> Vec<u8> {
    let block = [&[kind], &(body.len() as u64).to_le_bytes()[..], body].concat();
    let checksum = xxh3_64_with_seed(&block, before);
    [block, checksum.to_le_bytes().to_vec()].concat()
}

#[test]
fn an_end_that_counts_otherwise_is_damage() {
    let bytes = rich().machine.snapshot().unwrap().to_bytes().unwrap();
    let (meta, checksum) = meta_of(&bytes);
    let read = |count: u64| {
        Snapshot::from_bytes(&[meta, &block(3, &count.to_le_bytes(), checksum)].concat()).map(|_| ())
    };
    assert_eq!(read(0), Ok(()));
    assert_eq!(read(1), Err(SnapshotError::Damaged { block: 2 }));
}

#[test]
fn a_block_larger_than_any_is_damage_and_one_as_large_may_come() {
    let bytes = rich().machine.snapshot().unwrap().to_bytes().unwrap();
    let (meta, _) = meta_of(&bytes);
    let largest = 1 << 38;
    let read =
        |length: u64| Snapshot::from_bytes(&[meta, &[2], &length.to_le_bytes(), b"so far"].concat()).err();
    assert_eq!(read(largest), Some(SnapshotError::Truncated));
    assert_eq!(read(largest + 1), Some(SnapshotError::Damaged { block: 2 }));
}

#[test]
fn an_input_that_fails_behind_the_end_is_an_error() {
    struct Failing;
    impl std::io::Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the disk is gone"))
        }
    }
    let bytes = rich().machine.snapshot().unwrap().to_bytes().unwrap();
    let error = Snapshot::read_from(std::io::Read::chain(&bytes[..], Failing)).err();
    assert!(matches!(error, Some(SnapshotError::Io { .. })), "{error:?}");
}

#[test]
fn what_is_no_snapshot_is_refused() {
    assert_eq!(Snapshot::from_bytes(b"#!/bin/sh\nexit 0").err(), Some(SnapshotError::NotASnapshot));
}

/// The rich snapshot, sound in its bytes, with its dictionary changed.
fn forged(change: impl FnOnce(&mut Dictionary)) -> Result<SessionStateMachine<Desk>, SnapshotError> {
    let snapshot = rich().machine.snapshot().unwrap();
    let mut dictionary = snapshot.dictionary().unwrap();
    change(&mut dictionary);
    SessionStateMachine::restore(&forge(&snapshot, &dictionary))
}

#[test]
fn unknown_keys_are_refused() {
    for key in ["session/extra", "user/extra", "other", "user/total/00", "session/id", "user/counts2"] {
        let error = forged(|dictionary| {
            dictionary.insert(key.to_owned(), Bytes::new());
        });
        assert_eq!(error.err(), Some(SnapshotError::UnknownKey { key: key.to_owned() }));
    }
}

#[test]
fn missing_keys_are_refused() {
    for key in
        ["session/clock", "session/closed", "session/kind", "session/limits", "session/seed", "user/total"]
    {
        let error = forged(|dictionary| {
            dictionary.remove(key);
        });
        assert_eq!(error.err(), Some(SnapshotError::MissingKey { key: key.to_owned() }));
    }
}

#[test]
fn values_that_cannot_be_are_refused() {
    let session = "session/id/0000000000000000000000000000000a";
    let cases: &[(&str, &[u8], &str)] = &[
        (session, b"", "the input ends before the value does"),
        (session, &[0, 0, 0, 0, 0, 0, 0], "its watermark is 0"),
        (session, &[5, 1, 4, 0, 1, 0, 0, 0, 0, 0, 0], "it holds an answer below its watermark"),
        (
            session,
            &[1, 0, 1, 1, 2, 0, 0, 1, 0, 0, 0],
            "its pending server requests are not numbered in order",
        ),
        (
            session,
            &[1, 0, 1, 2, 1, 0, 0, 1, 1, 0, 0, 1, 0, 0, 0],
            "its pending server requests are not numbered in order",
        ),
        (session, &[1, 0, 0, 0, 0, 51, 0], "its last activity lies behind the clock"),
        (
            "session/id/0000000000000000000000000000000A",
            &[1, 0, 0, 0, 0, 0, 0],
            "the key does not end in a session id",
        ),
        ("session/id/0000000000000000000000000000000c", &[1, 0, 0, 0, 0, 0, 0], "it is both open and closed"),
        (
            "session/id/000000000000000d000000000000000c",
            &[1, 0, 0, 0, 0, 0, 0],
            "it was drawn behind the snapshot's position",
        ),
        ("session/version", &[2], "it is 2, and the meta data say 1"),
        ("session/clock", &[1, 2], "the input goes on for 1 bytes after the value"),
    ];
    for (key, value, problem) in cases {
        let error = forged(|dictionary| {
            dictionary.insert((*key).to_owned(), Bytes::from_static(value));
        });
        let expected = SnapshotError::Value { key: (*key).to_owned(), problem: (*problem).to_owned() };
        assert_eq!(error.err(), Some(expected));
    }
    let error = forged(|dictionary| {
        dictionary.insert("session/kind".to_owned(), codec::encode("serials").unwrap());
    });
    let (expected, found) = ("sessions".to_owned(), "serials".to_owned());
    assert_eq!(error.err(), Some(SnapshotError::WrongKind { expected, found }));
}

#[test]
fn a_per_entry_map_that_lost_an_entry_is_refused() {
    for (key, value) in
        [("user/counts/00", Some("")), ("user/counts/036f6e65", None), ("user/counts/0X", Some(""))]
    {
        let error = forged(|dictionary| match value {
            Some(value) => {
                dictionary.insert(key.to_owned(), Bytes::from_static(value.as_bytes()));
            }
            None => {
                dictionary.remove(key);
            }
        });
        assert!(
            matches!(error.err(), Some(SnapshotError::State { field, .. }) if field == "counts"),
            "{key}"
        );
    }
    let error = forged(|dictionary| {
        dictionary.remove("user/counts/036f6e65");
    });
    let error = error.err().unwrap().to_string();
    assert!(error.contains("it should have 2 entries and has 1"), "{error}");
    // The key `one` once more, its length written with more bytes than it needs.
    let error = forged(|dictionary| {
        let count: u64 = codec::decode(&dictionary["user/counts"]).unwrap();
        dictionary.insert("user/counts".to_owned(), codec::encode(&(count + 1)).unwrap());
        dictionary.insert("user/counts/fb03006f6e65".to_owned(), Bytes::from_static(&[9]));
    });
    let problem = "two of its keys are the same".to_owned();
    assert_eq!(error.err(), Some(SnapshotError::State { field: "counts".to_owned(), problem }));
}

// The machine's shape.

/// A machine that is nothing but its state.
macro_rules! shape {
    ($name:literal, $machine:ident, commands $commands:expr, replies $replies:expr, dropped $dropped:expr,
     fields { $($field:ident: $type:ty, $description:expr;)* }) => {
        #[derive(Debug, Default, PartialEq)]
        struct $machine {
            $($field: $type,)*
        }

        impl State for $machine {
            const FIELDS: &'static [StateField] = &[$($description),*];
            const DROPPED: &'static [&'static str] = $dropped;

            fn save(&self, out: &mut StateWriter) -> Result<(), StateError> {
                $(if out.is_active(stringify!($field), &self.$field)? {
                    out.field(stringify!($field), &self.$field)?;
                })*
                Ok(())
            }

            fn load(from: &mut StateReader<'_>) -> Result<Self, SnapshotError> {
                Ok(Self {
                    $($field: if from.is_present(stringify!($field))? {
                        from.field(stringify!($field))?
                    } else {
                        Default::default()
                    },)*
                })
            }
        }

        impl StateMachine for $machine {
            type Command = Nothing;
            type Query = Never;
            type ServerRequest = Never;
            const SCHEMA: Schema = Schema {
                name: $name,
                version: 3,
                commands: $commands,
                handlers: $replies,
                queries: &[],
                server_request: "Never",
                state: Self::FIELDS,
                dropped: Self::DROPPED,
            };
            fn apply(&mut self, _: &mut Context<'_>, Nothing: Nothing) -> Result<Response, EncodeError> {
                ().into_response()
            }
            fn query(&self, query: Never) -> Result<Bytes, EncodeError> {
                match query {}
            }
        }
    };
}

#[derive(Serialize, Deserialize)]
struct Nothing;

impl Deterministic for Nothing {}

impl Command for Nothing {
    const VARIANTS: &'static [Variant] = &[];
    fn variant(&self) -> usize {
        0
    }
}

const fn command(name: &'static str, fields: Fields) -> Variant {
    Variant { name, fields, since: 1 }
}

const PUT: Variant = command("Put", Fields::Struct(&[("key", "String"), ("value", "u64")]));
const GET: Variant = command("Get", Fields::Tuple(&["String"]));
const LATER: Variant = Variant { name: "Later", fields: Fields::Unit, since: 2 };

const fn reply(command: &'static str, reply: &'static str) -> Handler {
    Handler { command, reply, internal: false }
}

const REPLIES: &[Handler] = &[reply("Put", "()"), reply("Get", "Option<u64>"), reply("Later", "()")];

shape!("Shape", Original, commands &[PUT, GET], replies REPLIES, dropped &[], fields {
    kept: u64, StateField::new("kept", "u64");
    old: String, StateField::new("old", "String");
});

fn original() -> Snapshot {
    let machine = Original { kept: 7, old: "x".to_owned() };
    SessionStateMachine::new(machine).snapshot().unwrap()
}

fn difference<M: StateMachine>() -> String {
    match SessionStateMachine::<M>::restore(&original()) {
        Ok(_) => "none".to_owned(),
        Err(SnapshotError::Schema { difference }) => difference,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn another_machines_snapshot_is_refused() {
    shape!("Other", Other, commands &[PUT, GET], replies REPLIES, dropped &[], fields {
        kept: u64, StateField::new("kept", "u64");
        old: String, StateField::new("old", "String");
    });
    let (expected, found) = ("Other".to_owned(), "Shape".to_owned());
    let error = SessionStateMachine::<Other>::restore(&original()).err();
    assert_eq!(error, Some(SnapshotError::WrongMachine { expected, found }));
}

#[test]
fn the_first_difference_of_commands_and_replies_is_named() {
    macro_rules! differs {
        ($commands:expr, $replies:expr, $expected:expr) => {{
            shape!("Shape", Changed, commands $commands, replies $replies, dropped &[], fields {
                kept: u64, StateField::new("kept", "u64");
                old: String, StateField::new("old", "String");
            });
            assert_eq!(difference::<Changed>(), $expected);
        }};
    }
    differs!(&[PUT, GET, LATER], REPLIES, "none");
    differs!(
        &[GET, PUT],
        REPLIES,
        "the snapshot has `command 0 Put { key: String, value: u64 } -> ()`, this build `command 0 Get(String) -> Option<u64>`: a command keeps its place, its fields and its reply; append what is new as a variant of its own with `#[since = 2]`"
    );
    differs!(
        &[PUT],
        REPLIES,
        "the snapshot has `command 1 Get(String) -> Option<u64>`, which this build has not: put it back in its place, because a command is never removed"
    );
    differs!(
        &[PUT, GET, command("Extra", Fields::Struct(&[]))],
        REPLIES,
        "the snapshot does not have this build's `command 2 Extra {} -> ?`: mark it `#[since = 2]` if it is new"
    );
    differs!(
        &[PUT, GET],
        &[reply("Put", "()"), reply("Get", "u64")],
        "the snapshot has `command 1 Get(String) -> Option<u64>`, this build `command 1 Get(String) -> u64`: a command keeps its place, its fields and its reply; append what is new as a variant of its own with `#[since = 2]`"
    );
    differs!(
        &[PUT, GET],
        &[Handler { internal: true, ..reply("Put", "()") }, reply("Get", "Option<u64>")],
        "the snapshot has `command 0 Put { key: String, value: u64 } -> ()`, this build `command 0 internal Put { key: String, value: u64 } -> ()`: a command keeps its place, its fields and its reply; append what is new as a variant of its own with `#[since = 2]`"
    );
}

#[test]
fn a_retyped_state_field_is_named() {
    shape!("Shape", Retyped, commands &[PUT, GET], replies REPLIES, dropped &[], fields {
        kept: u32, StateField::new("kept", "u32");
        old: String, StateField::new("old", "String");
    });
    assert_eq!(
        difference::<Retyped>(),
        "the state field `kept` is `u64` in the snapshot and `u32` in this build"
    );
}

#[test]
fn an_added_state_field_takes_its_default_only_where_the_user_says_so() {
    macro_rules! added {
        ($description:expr) => {{
            shape!("Shape", Added, commands &[PUT, GET], replies REPLIES, dropped &[], fields {
                kept: u64, StateField::new("kept", "u64");
                old: String, StateField::new("old", "String");
                new: u64, $description;
            });
            let difference = difference::<Added>();
            if difference == "none" {
                let restored = SessionStateMachine::<Added>::restore(&original()).unwrap();
                assert_eq!(restored.machine(), &Added { kept: 7, old: "x".to_owned(), new: 0 });
            }
            difference
        }};
    }
    let error = added!(StateField::new("new", "u64"));
    assert!(
        error.starts_with("the snapshot has no state field `new`: mark it `#[state(default)]`"),
        "{error}"
    );
    assert_eq!(added!(StateField { default: true, ..StateField::new("new", "u64") }), "none");
    assert_eq!(added!(StateField { since: 2, ..StateField::new("new", "u64") }), "none");
}

#[test]
fn a_renamed_state_field_says_what_it_was() {
    shape!("Shape", Renamed, commands &[PUT, GET], replies REPLIES, dropped &[], fields {
        kept: u64, StateField::new("kept", "u64");
        new: String, StateField { was: Some("old"), ..StateField::new("new", "String") };
    });
    let restored = SessionStateMachine::<Renamed>::restore(&original()).unwrap();
    assert_eq!(restored.machine(), &Renamed { kept: 7, new: "x".to_owned() });
    let again = SessionStateMachine::<Renamed>::restore(&restored.snapshot().unwrap()).unwrap();
    assert_eq!(again.machine(), restored.machine(), "and reads what it writes itself");
}

#[test]
fn a_removed_state_field_must_be_listed() {
    shape!("Shape", Removed, commands &[PUT, GET], replies REPLIES, dropped &[], fields {
        kept: u64, StateField::new("kept", "u64");
    });
    let error = difference::<Removed>();
    assert!(error.starts_with("the snapshot has the state field `old`, this build has not"), "{error}");
    shape!("Shape", Dropped, commands &[PUT, GET], replies REPLIES, dropped &["old", "older"], fields {
        kept: u64, StateField::new("kept", "u64");
    });
    let restored = SessionStateMachine::<Dropped>::restore(&original()).unwrap();
    assert_eq!(restored.machine(), &Dropped { kept: 7 });
}

// How fields are captured.

/// A state made of one field, captured by the function given.
macro_rules! one_field {
    ($machine:ident, $type:ty, $save:expr) => {
        #[derive(Default)]
        struct $machine($type);

        impl State for $machine {
            const FIELDS: &'static [StateField] = &[StateField::new("field", "T")];
            fn save(&self, out: &mut StateWriter) -> Result<(), StateError> {
                let save: fn(&$type, &mut StateWriter) -> Result<(), StateError> = $save;
                save(&self.0, out)
            }
            fn load(_: &mut StateReader<'_>) -> Result<Self, SnapshotError> {
                Ok(Self::default())
            }
        }

        impl StateMachine for $machine {
            type Command = Nothing;
            type Query = Never;
            type ServerRequest = Never;
            const SCHEMA: Schema = Schema {
                name: "One",
                version: 1,
                commands: &[],
                handlers: &[],
                queries: &[],
                server_request: "Never",
                state: Self::FIELDS,
                dropped: &[],
            };
            fn apply(&mut self, _: &mut Context<'_>, _: Nothing) -> Result<Response, EncodeError> {
                ().into_response()
            }
            fn query(&self, query: Never) -> Result<Bytes, EncodeError> {
                match query {}
            }
        }
    };
}

fn capture<M: StateMachine + Default>() -> Result<Snapshot, ApplyError> {
    SessionStateMachine::new(M::default()).snapshot()
}

fn problem(result: Result<Snapshot, ApplyError>) -> String {
    match result {
        Err(ApplyError::State { field, problem }) => format!("{field}: {problem}"),
        other => panic!("{other:?}"),
    }
}

/// A key all of whose values are encoded alike.
#[derive(PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Blurred(u8);

impl Serialize for Blurred {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }
}

#[derive(Clone)]
struct Panicking;

impl Serialize for Panicking {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("no")
    }
}

#[test]
fn two_keys_with_equal_encodings_are_an_error() {
    one_field!(Twins, (), |(), out| {
        out.per_entry("field", &BTreeMap::from([(Blurred(1), 1u8), (Blurred(2), 2u8)]))
    });
    assert_eq!(
        problem(capture::<Twins>()),
        "field: two of its keys have the same encoding, so one would be lost"
    );
}

#[test]
fn a_shared_field_that_cannot_be_encoded_is_an_error_of_the_encoding_that_names_it() {
    one_field!(Shared, (), |(), out| out.shared("field", &Arc::new(Unencodable)));
    let snapshot = capture::<Shared>().unwrap();
    let field = "field".to_owned();
    let problem = "the value cannot be encoded: not today".to_owned();
    let error = SnapshotError::State { field, problem };
    assert_eq!(snapshot.to_bytes().err(), Some(error.clone()));
    assert_eq!(snapshot.dictionary().err(), Some(error.clone()));
    assert_eq!(snapshot.write_to(Vec::new()).err(), Some(error));
}

#[test]
fn a_shared_per_entry_map_is_encoded_later_like_a_plain_one() {
    fn map() -> BTreeMap<u64, String> {
        (0..300).map(|key| (key, format!("value {key}"))).collect()
    }
    one_field!(Plain, (), |(), out| out.per_entry("field", &map()));
    one_field!(Shared, (), |(), out| out.shared_per_entry("field", &map()));
    let plain = capture::<Plain>().unwrap();
    assert_eq!(plain.dictionary().unwrap().len(), 301 + 6);
    assert_eq!(capture::<Shared>().unwrap().to_bytes(), plain.to_bytes());
}

/// A map of the user's own that cannot be gone through.
#[derive(Clone)]
struct Torn;

impl EntryMap for Torn {
    type Key = u8;
    type Value = u8;

    fn entries(&self) -> impl Iterator<Item = (&u8, &u8)> {
        std::iter::from_fn(|| panic!("torn"))
    }

    fn from_entries(_: impl Iterator<Item = (u8, u8)>) -> Self {
        Self
    }
}

#[test]
fn a_map_that_panics_is_an_error_that_names_its_field() {
    one_field!(Plain, (), |(), out| out.per_entry("field", &Torn));
    assert_eq!(problem(capture::<Plain>()), "field: torn");
    one_field!(Shared, (), |(), out| out.shared_per_entry("field", &Torn));
    let (field, problem) = ("field".to_owned(), "torn".to_owned());
    assert_eq!(capture::<Shared>().unwrap().to_bytes(), Err(SnapshotError::State { field, problem }));
}

#[test]
fn a_save_that_is_not_right_is_an_error_that_says_what() {
    one_field!(Forgotten, (), |(), _| Ok(()));
    assert_eq!(problem(capture::<Forgotten>()), "field: `State::save` did not hand it over");
    one_field!(Twice, (), |(), out| {
        out.field("field", &1u8)?;
        out.field("field", &1u8)
    });
    assert_eq!(problem(capture::<Twice>()), "field: `State::save` handed it over twice");
    one_field!(Unlisted, (), |(), out| out.field("other", &1u8));
    assert_eq!(problem(capture::<Unlisted>()), "other: it is not listed in `State::FIELDS`");
    one_field!(Odd, (), |(), out| out.field("a/b", &1u8));
    assert_eq!(problem(capture::<Odd>()), "a/b: its name is no identifier");
    one_field!(Panics, (), |(), out| out.field("field", &Panicking));
    assert_eq!(problem(capture::<Panics>()), "field: no");
    one_field!(PanicsItself, (), |(), _| panic!("oh"));
    assert_eq!(problem(capture::<PanicsItself>()), "(all): oh");
}

#[test]
fn a_refused_snapshot_leaves_the_machine_that_asked_unchanged() {
    let mut log = rich();
    let before = bytes_of(&log);
    let mut damaged = before.clone();
    damaged[100] ^= 1;
    assert!(Snapshot::from_bytes(&damaged).and_then(|s| SessionStateMachine::<Desk>::restore(&s)).is_err());
    assert_eq!(bytes_of(&log), before);
    assert_eq!(
        log.apply(request(SessionId(9), 1, DeskCommand::Note)),
        [failed(SessionId(9), 1, RequestError::SessionExpired)]
    );
}

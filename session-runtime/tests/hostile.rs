//! Bytes that mean harm, to everything that reads bytes from outside: each is an error, nothing aborts or overflows its
//! stack, and what is allocated on the way is bounded by what arrived, never by what it claims.

mod support;
#[allow(dead_code, unreachable_pub)] // a test binary is a crate of its own
#[path = "targets/vault.rs"]
mod vault;

use peak_alloc::PeakAlloc;
use session_runtime::client::{ClientConfig, ClientMessage, ClientSession, ServerMessage};
use session_runtime::codec::{self, MAX_EMPTY_ELEMENTS, MAX_PAYLOAD};
use session_runtime::ids::{Id, IdAction, IdEntry, IdStateMachine, IdTable};
use session_runtime::serials::{
    ClientId, SerialAction, SerialEntry, SerialKey, SerialStateMachine, SerialTable,
};
use session_runtime::{
    Bytes, Command, Entry, RaftAction, RequestError, RequestId, Response, ServerAction, ServerRequestId,
    SessionStateMachine, Snapshot, SnapshotError, Status, Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use support::{Dice, Log, by_the_book, create, id, request_with};
use vault::{Node, Vault, VaultCommand};
use xxhash_rust::xxh3::xxh3_64_with_seed;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// What reading may allocate for each byte of input. A byte can be an element of a list: once where room was reserved
/// for what was claimed, and three times where a list grew by doubling and was copied.
const EACH: usize = 4 * size_of::<Node>();
/// What it takes to copy a byte into a buffer that grows by doubling.
const COPY: usize = 4;
/// What reading may allocate in any case.
const ANY: usize = 16 << 10;

/// Runs a test on a stack of 2 MiB. One at a time, because the allocator counts for all threads.
fn alone(test: impl FnOnce() + Send) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|threads| {
        std::thread::Builder::new().stack_size(2 << 20).spawn_scoped(threads, test).unwrap();
    });
}

/// What reading these bytes takes at its peak.
fn peak<T>(read: impl FnOnce() -> T) -> (T, usize) {
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let result = read();
    (result, HEAP.peak_usage().saturating_sub(before))
}

/// Everything that reads bytes from outside.
#[derive(Clone, Copy)]
struct Reader {
    name: &'static str,
    read: fn(&[u8]) -> Result<(), String>,
}

impl Reader {
    /// Reads the input, and allocates at most so much for each byte of it. Whether it could be read.
    fn reads_with(&self, each: usize, input: &[u8]) -> bool {
        let (result, peak) = peak(|| (self.read)(input));
        let start = &input[..input.len().min(32)];
        assert!(
            peak <= each * input.len() + ANY,
            "{}: {peak} for {} bytes, {start:?}: {result:?}",
            self.name,
            input.len()
        );
        result.is_ok()
    }

    fn reads(&self, input: &[u8]) -> bool {
        self.reads_with(EACH, input)
    }

    fn refuses(&self, input: &[u8]) {
        assert!(!self.reads(input), "{} reads {} bytes", self.name, input.len());
    }

    /// Refuses it having copied the input at most: what it claims allocates nothing.
    fn refuses_at_once(&self, input: &[u8]) {
        assert!(!self.reads_with(COPY, input), "{} reads {} bytes", self.name, input.len());
    }
}

fn plain<T, E: Debug>(result: Result<T, E>) -> Result<(), String> {
    result.map(drop).map_err(|error| format!("{error:?}"))
}

const COMMANDS: Reader = Reader { name: "commands", read: |bytes| plain(VaultCommand::decode(bytes)) };
const REQUESTS: Reader = Reader { name: "requests", read: apply_request };
const QUERIES: Reader =
    Reader { name: "queries", read: |bytes| plain(SessionStateMachine::new(Vault::default()).query(bytes)) };
const CLIENT_MESSAGES: Reader =
    Reader { name: "messages of clients", read: |bytes| plain(ClientMessage::decode(bytes)) };
const SERVER_MESSAGES: Reader =
    Reader { name: "messages of servers", read: |bytes| plain(ServerMessage::decode(bytes)) };
const SAVED_CLIENTS: Reader = Reader {
    name: "saved clients",
    read: |bytes| plain(ClientSession::restore(bytes, ClientConfig::default(), Duration::ZERO)),
};
const ENTRIES: Reader = Reader { name: "entries", read: |bytes| plain(Entry::decode(bytes)) };
const SERIAL_ENTRIES: Reader =
    Reader { name: "entries with serials", read: |bytes| plain(SerialEntry::decode(bytes)) };
const ID_ENTRIES: Reader = Reader { name: "entries with ids", read: |bytes| plain(IdEntry::decode(bytes)) };
const SNAPSHOTS: Reader = Reader { name: "snapshots", read: |bytes| restore(Snapshot::from_bytes(bytes)) };
const STREAMS: Reader = Reader { name: "streams", read: |bytes| restore(Snapshot::read_from(bytes)) };
const SERIAL_TABLES: Reader =
    Reader { name: "tables of serials", read: |bytes| plain(SerialTable::from_bytes(bytes)) };
const ID_TABLES: Reader =
    Reader { name: "tables of ids", read: |bytes| plain(IdTable::<Response>::from_bytes(bytes)) };

const ALL: [Reader; 13] = [
    COMMANDS,
    REQUESTS,
    QUERIES,
    CLIENT_MESSAGES,
    SERVER_MESSAGES,
    SAVED_CLIENTS,
    ENTRIES,
    SERIAL_ENTRIES,
    ID_ENTRIES,
    SNAPSHOTS,
    STREAMS,
    SERIAL_TABLES,
    ID_TABLES,
];

/// The payload of a client's request, all the way through a machine.
fn apply_request(payload: &[u8]) -> Result<(), String> {
    let mut log = Log::<Vault>::new();
    log.apply(create(id(1)));
    match &log.apply(request_with(id(1), 1, 1, 0, payload.to_vec().into()))[0] {
        ServerAction::SendRequestError { error: RequestError::InvalidPayload, .. } => {
            Err("invalid".to_owned())
        }
        _ => Ok(()),
    }
}

/// As far as a snapshot of any kind comes.
fn restore(snapshot: Result<Snapshot, SnapshotError>) -> Result<(), String> {
    let snapshot = snapshot.map_err(|error| format!("{error:?}"))?;
    let sessions = plain(SessionStateMachine::<Vault>::restore(&snapshot));
    let serials = plain(SerialStateMachine::<Vault>::restore(&snapshot));
    sessions.or(serials).or_else(|_| plain(IdStateMachine::<Vault>::restore(&snapshot)))
}

/// Lengths that no input has.
const LENGTHS: [[u8; 9]; 3] = [
    [253, 255, 255, 255, 255, 255, 255, 255, 255],
    [253, 0, 0, 0, 0, 0, 1, 0, 0],
    [253, 0, 0, 0, 0, 0, 0, 0, 128],
];

/// Each place where a length stands, as the bytes in front of it.
fn places() -> Vec<(Reader, Vec<u8>)> {
    let commands: [&[u8]; 9] =
        [&[0], &[0, 0, 3], &[0, 0, 5], &[0, 0, 8], &[0, 0, 9], &[0, 0, 11], &[1], &[2], &[4, 1, 8, 1, 8]];
    let queries: [&[u8]; 3] = [&[0], &[1, 8], &[1, 9]];
    let of_clients: [&[u8]; 4] = [&[1, 0, 1], &[1, 0, 1, 1], &[1, 2, 1, 1, 1, 0], &[1, 3, 1]];
    let of_servers: [&[u8]; 5] = [&[1, 3, 1], &[1, 4, 1, 1, 0], &[1, 6, 1, 0], &[1, 6, 1, 1], &[1, 7, 1, 1]];
    let saved: [&[u8]; 2] = [&[1, 1, 9, 0], &[1, 1, 9, 0, 1, 1]];
    let entries: [&[u8]; 5] =
        [&[1, 0, 0, 1], &[1, 0, 0, 1, 1], &[1, 0, 1, 1, 1, 1, 0], &[1, 0, 5], &[1, 0, 6]];
    let serials: [&[u8]; 3] = [&[1, 0, 0, 0], &[1, 0, 0, 1], &[1, 0, 1]];
    let ids: [&[u8]; 3] = [&[1, 0, 0], &[1, 0, 0, 1, 7, 1], &[1, 0, 0, 1, 7, 0]];
    let of = |reader: Reader, places: &[&[u8]]| -> Vec<(Reader, Vec<u8>)> {
        places.iter().map(|place| (reader, place.to_vec())).collect()
    };
    [
        of(COMMANDS, &commands),
        of(REQUESTS, &commands),
        of(QUERIES, &queries),
        of(CLIENT_MESSAGES, &of_clients),
        of(SERVER_MESSAGES, &of_servers),
        of(SAVED_CLIENTS, &saved),
        of(ENTRIES, &entries),
        of(SERIAL_ENTRIES, &serials),
        of(ID_ENTRIES, &ids),
    ]
    .concat()
}

#[test]
fn a_claimed_length_is_an_error_and_allocates_nothing() {
    alone(|| {
        let tails = [vec![], vec![0; 60_000], vec![1; 60_000], vec![255; 60_000]];
        for (reader, place) in places() {
            for length in LENGTHS {
                for tail in &tails {
                    reader.refuses_at_once(&[&place, &length[..], tail].concat());
                }
            }
        }
    });
}

#[test]
fn lists_that_claim_all_that_follows_at_every_level_allocate_once() {
    alone(|| {
        for size in [100, 1_000, 20_000, 1 << 20] {
            let claim = [&[8, 252][..], &u32::try_from(size).unwrap().to_le_bytes()].concat();
            let nested = claim.repeat(30);
            let mut input = [&[0, 0][..], &nested].concat();
            input.resize(size + 200, 0);
            COMMANDS.refuses(&input);
            REQUESTS.refuses(&input);
            QUERIES.refuses(&[&[1], &input[2..]].concat());
            let state = [&[1], &input[2..]].concat();
            assert!(!state_reads("user/last", &state), "a field of the state, {size}");
        }
    });
}

/// A sound snapshot, and whether it can be restored with another value at a key.
fn state_reads(key: &str, value: &[u8]) -> bool {
    let snapshot = sound();
    let mut dictionary = snapshot.dictionary().unwrap();
    assert!(dictionary.insert(key.to_owned(), value.to_vec().into()).is_some(), "{key} is there");
    SNAPSHOTS.reads(&by_the_book(&snapshot, &dictionary).concat())
}

fn sound() -> Snapshot {
    let mut log = Log::<Vault>::new();
    log.apply(create(id(1)));
    let put = VaultCommand::Put { key: String::new(), value: Node::Empty };
    log.apply(request_with(id(1), 1, 1, 0, put.encode()));
    log.machine.snapshot().unwrap()
}

#[test]
fn nesting_through_four_megabytes_is_an_error_on_a_small_stack() {
    const SIZE: usize = 4 << 20;
    /// Each way to go one deeper.
    const WAYS: [&[u8]; 5] = [&[6], &[7, 1], &[8, 1], &[9, 1, 0], &[10]];
    alone(|| {
        for way in WAYS {
            let nested = way.repeat(SIZE / way.len());
            let command = [&[0, 0], &nested[..]].concat();
            COMMANDS.refuses_at_once(&command);
            REQUESTS.refuses_at_once(&command);
            QUERIES.refuses_at_once(&[&[1], &nested[..]].concat());
            assert!(!state_reads("user/last", &[&[1], &nested[..]].concat()), "a field of the state");
            assert!(!state_reads("user/nodes/00", &nested), "an entry of the state");
        }
    });
}

#[test]
fn elements_without_bytes_are_counted() {
    alone(|| {
        let claim = |elements: usize| [&[252][..], &u32::try_from(elements).unwrap().to_le_bytes()].concat();
        // The tag, the length in five bytes and an empty map.
        let most = MAX_EMPTY_ELEMENTS + 7;
        for (elements, fits) in [(most, true), (most + 1, false), (u32::MAX as usize, false)] {
            let units = [&[3], &claim(elements)[..], &[0]].concat();
            assert_eq!(COMMANDS.reads(&units), fits, "{elements} units");
            assert_eq!(REQUESTS.reads(&units), fits, "{elements} units");
            assert_eq!(QUERIES.reads(&[&[1, 0], &claim(elements)[..]].concat()), fits, "{elements} units");
            let state = claim(elements);
            assert_eq!(codec::decode_state::<Vec<()>>(&state).is_ok(), elements <= MAX_EMPTY_ELEMENTS + 5);
            assert_eq!(codec::decode::<BTreeSet<()>>(&state).is_ok(), elements <= MAX_EMPTY_ELEMENTS + 5);
        }
        for length in LENGTHS {
            COMMANDS.refuses(&[&[3], &length[..], &[0]].concat());
            COMMANDS.refuses(&[&[3, 0], &length[..]].concat());
        }
    });
}

#[test]
fn random_bytes_allocate_no_more_than_they_may() {
    alone(|| {
        let mut dice = Dice(0xbad);
        let places = places();
        let mut read = 0u32;
        for number in 0..20_000 {
            let bound = [4, 16, 256][dice.below(3)];
            let length = [16, 200, 4_000][dice.below(3)];
            let random: Vec<u8> =
                (0..=dice.below(length)).map(|_| u8::try_from(dice.below(bound)).unwrap()).collect();
            let (reader, input) = if number % 2 == 0 {
                (ALL[dice.below(ALL.len())], random)
            } else {
                let (reader, place) = &places[dice.below(places.len())];
                (*reader, [&place[..], &random].concat())
            };
            read += u32::from(reader.reads(&input));
        }
        assert!(read > 100, "some must be read, and only {read} were");
    });
}

/// A map with one entry takes a node with room for eleven, and many such maps fit into few bytes: the most that a byte
/// can take of the types that the vault has.
#[test]
fn small_maps_take_the_most_memory_for_their_bytes() {
    alone(|| {
        let count = 100_000;
        let maps = Node::List(vec![Node::Map(BTreeMap::from([(String::new(), Node::Empty)])); count]);
        let input = VaultCommand::TellAll(maps).encode();
        let (command, peak) = peak(|| VaultCommand::decode(&input));
        assert!(command.is_ok());
        let each = peak / input.len();
        println!("{each} bytes of memory for each byte of input");
        assert!((100..300).contains(&each), "{each} bytes of memory for each byte of input");
    });
}

/// A block with its checksum, of a snapshot whose last checksum was `before`.
fn sealed(before: u64, block: &[u8]) -> (u64, Vec<u8>) {
    let checksum = xxh3_64_with_seed(block, before);
    (checksum, [block, &checksum.to_le_bytes()].concat())
}

/// A sound start of a snapshot: the header, or the header and the meta data. And its last checksum.
fn start(blocks: usize) -> (u64, Vec<u8>) {
    let snapshot = sound();
    let bytes = by_the_book(&snapshot, &snapshot.dictionary().unwrap())[..blocks].concat();
    let checksum = *bytes.last_chunk::<8>().unwrap();
    (u64::from_le_bytes(checksum), bytes)
}

#[test]
fn a_block_that_claims_more_than_follows_is_an_error_and_allocates_nothing() {
    alone(|| {
        for blocks in [1, 2] {
            let (_, start) = start(blocks);
            for claimed in [u64::MAX, 1 << 63, 1 << 40, (1 << 30) + (1 << 20), 1 << 30, 100_000] {
                for (kind, tail) in [(1, 0), (2, 0), (2, 60_000), (3, 60_000), (255, 60_000)] {
                    let input = [&start[..], &[kind], &claimed.to_le_bytes(), &vec![7; tail]].concat();
                    for reader in [SNAPSHOTS, STREAMS, SERIAL_TABLES, ID_TABLES] {
                        reader.refuses_at_once(&input);
                    }
                }
            }
        }
    });
}

#[test]
fn lengths_inside_a_sound_block_are_not_believed() {
    alone(|| {
        // The length of a key.
        let (checksum, start_of_entries) = start(2);
        for length in [u32::MAX, 1 << 30, 4] {
            let body = [&length.to_le_bytes()[..], b"key"].concat();
            let block = [&[2][..], &(body.len() as u64).to_le_bytes(), &body].concat();
            let input = [start_of_entries.clone(), sealed(checksum, &block).1].concat();
            for reader in [SNAPSHOTS, STREAMS, SERIAL_TABLES, ID_TABLES] {
                reader.refuses(&input);
            }
        }
        // The lengths in the meta data: the name, the schema, the configuration.
        let (checksum, start_of_meta) = start(1);
        for place in [&[][..], &[0, 1], &[0, 1, 0, 0, 0]] {
            for length in LENGTHS {
                let body = [place, &length[..], &[0; 1_000]].concat();
                let block = [&[1][..], &(body.len() as u64).to_le_bytes(), &body].concat();
                let input = [start_of_meta.clone(), sealed(checksum, &block).1].concat();
                SNAPSHOTS.refuses(&input);
                STREAMS.refuses(&input);
            }
        }
        // Every length in every value of a snapshot of each kind.
        for snapshot in [sound(), sound_serials(), sound_ids()] {
            let dictionary = snapshot.dictionary().unwrap();
            for (key, value) in &dictionary {
                for at in 0..=value.len() {
                    for length in LENGTHS {
                        let mut dictionary = dictionary.clone();
                        let spliced = [&value[..at], &length[..], &value[at..]].concat();
                        dictionary.insert(key.clone(), spliced.into());
                        // Where a number stood, it may even be sound.
                        SNAPSHOTS.reads(&by_the_book(&snapshot, &dictionary).concat());
                    }
                }
            }
        }
    });
}

fn sound_serials() -> Snapshot {
    let mut machine = SerialStateMachine::new(Vault::default());
    let key = Some(SerialKey { client: ClientId::from("shop"), serial: 1 });
    let payload = VaultCommand::Look.encode();
    machine.apply(1, Timestamp(0), SerialAction::Command { key, payload }).unwrap();
    machine.snapshot().unwrap()
}

fn sound_ids() -> Snapshot {
    let mut machine = IdStateMachine::new(Vault::default());
    let payload = VaultCommand::Look.encode();
    let request = IdAction::Request { id: Id::from_uuid([1; 16]), acked: None, payload };
    machine.apply(1, Timestamp(0), request).unwrap();
    machine.snapshot().unwrap()
}

/// A command whose bytes are as many as the format allows, or so many more.
fn largest(more: usize) -> VaultCommand {
    // The tag, the length of the key, the tag of the text and its length in five bytes.
    let text = "x".repeat(MAX_PAYLOAD - 8 + more);
    VaultCommand::Put { key: String::new(), value: Node::Text(text) }
}

#[test]
fn the_largest_payload_goes_everywhere() {
    alone(|| {
        assert!(largest(1).try_encode().is_err());
        let command = largest(0);
        let payload = command.encode();
        assert_eq!(payload.len(), MAX_PAYLOAD);
        assert_eq!(VaultCommand::decode(&payload), Ok(command));

        let (session, request, response) = (
            id(u64::MAX),
            RequestId(u64::MAX),
            Response { status: Status::Accepted, payload: payload.clone() },
        );
        let message = ClientMessage::Request {
            session,
            request,
            lowest_pending: request,
            acked: ServerRequestId(u64::MAX),
            payload: payload.clone(),
        };
        assert_eq!(ClientMessage::decode(&message.encode().unwrap()), Ok(message));
        let message = ServerMessage::Response { session, request, response };
        assert_eq!(ServerMessage::decode(&message.encode().unwrap()), Ok(message));

        let entry =
            Entry { time: Timestamp(0), action: RaftAction::InternalCommand { payload: payload.clone() } };
        assert_eq!(Entry::decode(&entry.encode()), Ok(entry));
        let action = SerialAction::Command { key: None, payload: payload.clone() };
        let entry = SerialEntry { time: Timestamp(0), action };
        assert_eq!(SerialEntry::decode(&entry.encode()), Ok(entry));
        let action = IdAction::Request { id: Id::from_uuid([1; 16]), acked: None, payload: payload.clone() };
        let entry = IdEntry { time: Timestamp(0), action };
        assert_eq!(IdEntry::decode(&entry.encode()), Ok(entry));

        let mut client = ClientSession::open(ClientConfig::default(), Duration::ZERO);
        client.receive(Duration::ZERO, ServerMessage::Created { attempt: 1, session });
        client.submit(Duration::ZERO, payload.clone()).unwrap();
        let saved = client.save(1).unwrap().unwrap();
        let mut restored = ClientSession::restore(&saved, ClientConfig::default(), Duration::ZERO).unwrap();
        assert_eq!(restored.resend().collect::<Vec<_>>(), client.resend().collect::<Vec<_>>());

        apply_and_restore(&payload);
    });
}

/// The largest command, an answer and a server request almost as large, and all of it in a snapshot.
fn apply_and_restore(payload: &Bytes) {
    let mut log = Log::<Vault>::new();
    log.apply(create(id(1)));
    log.apply(request_with(id(1), 1, 1, 0, payload.clone()));
    let remove = VaultCommand::Remove(String::new()).encode();
    let answer = log.apply(request_with(id(1), 2, 1, 0, remove.clone()));
    let Ok(VaultCommand::Put { value, .. }) = VaultCommand::decode(payload) else { panic!("it is a put") };
    let ServerAction::SendResponse { response, .. } = &answer[0] else { panic!("{} actions", answer.len()) };
    assert_eq!(response.payload.len(), MAX_PAYLOAD - 2, "the value alone");
    let sent = log.apply(request_with(id(1), 3, 1, 0, VaultCommand::TellAll(value).encode()));
    assert_eq!(sent.len(), 2);

    let bytes = log.bytes();
    let mut restored =
        SessionStateMachine::<Vault>::restore(&Snapshot::read_from(&bytes[..]).unwrap()).unwrap();
    assert!(restored.snapshot().unwrap().to_bytes().unwrap() == bytes);
    let again = restored.apply(log.index + 1, Timestamp(0), request_with(id(1), 2, 1, 0, remove)).unwrap();
    assert!(again == answer, "the same bytes");
}

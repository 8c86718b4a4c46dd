//! The machine that the tests run, written by hand, and short ways to build actions for it.
#![allow(dead_code, unreachable_pub)] // each test binary is a crate of its own and uses its part
#![allow(clippy::needless_pass_by_value)] // `request(a, 1, add(5))` reads better

use serde::{Deserialize, Serialize, Serializer, ser};
use session_runtime::schema::{Fields, Handler, QueryShape, StateField, Variant, highest_since};
use session_runtime::{
    Alive, Bytes, Command, Context, Deterministic, Dictionary, EncodeError, Limits, Query, RaftAction,
    Rejection, Reply, RequestError, RequestId, Response, Schema, ServerAction, ServerRequestId, SessionId,
    SessionStateMachine, Snapshot, SnapshotError, State, StateError, StateMachine, StateReader, StateWriter,
    Timestamp, codec, rand_core::Rng,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// What clients may ask of the desk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum DeskCommand {
    /// Adds to the total and returns it.
    Add { amount: u64 },
    /// Takes from the total, or refuses.
    Take { amount: u64 },
    /// Sends a text to one session.
    Notify { to: SessionId, text: String },
    /// Sends a text to all sessions.
    Shout(String),
    /// Writes down what the context says.
    Note,
    /// Draws two numbers.
    Roll,
    /// Panics.
    Panic,
    /// Returns what cannot be encoded.
    BadReply,
    /// Sends what cannot be encoded.
    BadSend { to: SessionId },
    /// Makes a state field impossible to encode, or possible again.
    Spoil(bool),
    /// Counts a word. The counts are stored entry by entry.
    Count { word: String },
    /// The operator's: clears the journal and returns how long it was.
    Purge,
    /// Changes the field of version 2, whatever the version: a mistake, for tests.
    Rush,
    /// Since version 2: doubles the total.
    Double,
}

/// What a build of version 1 knows of the commands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum OldDeskCommand {
    Add { amount: u64 },
    Take { amount: u64 },
    Notify { to: SessionId, text: String },
    Shout(String),
    Note,
    Roll,
    Panic,
    BadReply,
    BadSend { to: SessionId },
    Spoil(bool),
    Count { word: String },
    Purge,
    Rush,
}

impl From<OldDeskCommand> for DeskCommand {
    fn from(old: OldDeskCommand) -> Self {
        match old {
            OldDeskCommand::Add { amount } => Self::Add { amount },
            OldDeskCommand::Take { amount } => Self::Take { amount },
            OldDeskCommand::Notify { to, text } => Self::Notify { to, text },
            OldDeskCommand::Shout(text) => Self::Shout(text),
            OldDeskCommand::Note => Self::Note,
            OldDeskCommand::Roll => Self::Roll,
            OldDeskCommand::Panic => Self::Panic,
            OldDeskCommand::BadReply => Self::BadReply,
            OldDeskCommand::BadSend { to } => Self::BadSend { to },
            OldDeskCommand::Spoil(on) => Self::Spoil(on),
            OldDeskCommand::Count { word } => Self::Count { word },
            OldDeskCommand::Purge => Self::Purge,
            OldDeskCommand::Rush => Self::Rush,
        }
    }
}

const fn variant(name: &'static str, fields: Fields, since: u32) -> Variant {
    Variant { name, fields, since }
}

const VARIANTS: &[Variant] = &[
    variant("Add", Fields::Struct(&[("amount", "u64")]), 1),
    variant("Take", Fields::Struct(&[("amount", "u64")]), 1),
    variant("Notify", Fields::Struct(&[("to", "SessionId"), ("text", "String")]), 1),
    variant("Shout", Fields::Tuple(&["String"]), 1),
    variant("Note", Fields::Unit, 1),
    variant("Roll", Fields::Unit, 1),
    variant("Panic", Fields::Unit, 1),
    variant("BadReply", Fields::Unit, 1),
    variant("BadSend", Fields::Struct(&[("to", "SessionId")]), 1),
    variant("Spoil", Fields::Tuple(&["bool"]), 1),
    variant("Count", Fields::Struct(&[("word", "String")]), 1),
    variant("Purge", Fields::Unit, 1),
    variant("Rush", Fields::Unit, 1),
    variant("Double", Fields::Unit, 2),
];

impl Deterministic for DeskCommand {}
impl Deterministic for OldDeskCommand {}

impl Command for DeskCommand {
    const VARIANTS: &'static [Variant] = VARIANTS;

    fn variant(&self) -> usize {
        match self {
            Self::Add { .. } => 0,
            Self::Take { .. } => 1,
            Self::Notify { .. } => 2,
            Self::Shout(_) => 3,
            Self::Note => 4,
            Self::Roll => 5,
            Self::Panic => 6,
            Self::BadReply => 7,
            Self::BadSend { .. } => 8,
            Self::Spoil(_) => 9,
            Self::Count { .. } => 10,
            Self::Purge => 11,
            Self::Rush => 12,
            Self::Double => 13,
        }
    }
}

impl Command for OldDeskCommand {
    const VARIANTS: &'static [Variant] = VARIANTS.split_at(13).0;

    fn variant(&self) -> usize {
        DeskCommand::from(self.clone()).variant()
    }
}

/// What clients may read of the desk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum DeskQuery {
    Total,
    Journal,
    Above { limit: u64 },
    Panic,
    BadReply,
}

impl Query for DeskQuery {}

/// What the desk may ask of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Notice {
    Text(String),
    Bad(Unencodable),
}

impl Deterministic for Notice {}

/// Why the desk may refuse.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Refused {
    Insufficient { total: u64 },
}

impl Deterministic for Refused {}
impl Rejection for Refused {}

/// A value that refuses to be encoded.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Unencodable;

impl Deterministic for Unencodable {}

impl Serialize for Unencodable {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(ser::Error::custom("not today"))
    }
}

/// A flag that refuses to be encoded while it is raised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub struct Flag(pub bool);

impl Serialize for Flag {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 {
            return Err(ser::Error::custom("the flag is raised"));
        }
        serializer.serialize_newtype_struct("Flag", &self.0)
    }
}

/// The machine, as a build of version 1 or 2.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Desk<const BUILD: u32 = 2> {
    pub total: u64,
    /// What happened, in the order it happened. Shared: cheap to capture.
    pub journal: Arc<Vec<String>>,
    pub counts: BTreeMap<String, u64>,
    pub flag: Flag,
    /// Since version 2: how often `Double` ran.
    pub doubled: u64,
}

pub type OldDesk = Desk<1>;

impl<const BUILD: u32> Desk<BUILD> {
    fn write(&mut self, line: String) {
        Arc::make_mut(&mut self.journal).push(line);
    }

    #[allow(clippy::too_many_lines)] // one arm a command
    fn run(&mut self, cx: &mut Context<'_, Notice>, command: DeskCommand) -> Result<Response, EncodeError> {
        match command {
            DeskCommand::Add { amount } => {
                self.total = self.total.saturating_add(amount);
                self.total.into_response()
            }
            DeskCommand::Take { amount } => {
                let answer =
                    self.total.checked_sub(amount).ok_or(Refused::Insufficient { total: self.total });
                if let Ok(total) = answer {
                    self.total = total;
                }
                answer.into_response()
            }
            DeskCommand::Notify { to, text } => cx.send(to, Notice::Text(text)).into_response(),
            DeskCommand::Shout(text) => {
                cx.broadcast(Notice::Text(text));
                (cx.sessions().count() as u64).into_response()
            }
            DeskCommand::Note => {
                let session = cx.session().map_or("nobody".to_owned(), |session| Self::name_of(cx, session));
                let line =
                    format!("{session} at {} time {} version {}", cx.index(), cx.now().0, cx.version());
                self.write(line.clone());
                line.into_response()
            }
            DeskCommand::Roll => (cx.rng().next_u64(), cx.rng().next_u64()).into_response(),
            DeskCommand::Panic => {
                self.total = 666;
                panic!("the desk broke")
            }
            DeskCommand::BadReply => Unencodable.into_response(),
            DeskCommand::BadSend { to } => cx.send(to, Notice::Bad(Unencodable)).into_response(),
            DeskCommand::Spoil(on) => {
                self.flag = Flag(on);
                ().into_response()
            }
            DeskCommand::Count { word } => {
                let count = self.counts.entry(word).or_default();
                *count += 1;
                (*count).into_response()
            }
            DeskCommand::Purge => {
                let length = self.journal.len() as u64;
                self.journal = Arc::default();
                length.into_response()
            }
            DeskCommand::Rush => {
                self.doubled += 1;
                ().into_response()
            }
            DeskCommand::Double => {
                self.doubled += 1;
                self.total = self.total.saturating_mul(2);
                self.total.into_response()
            }
        }
    }

    /// The name a client gave in its capabilities.
    fn name_of(cx: &Context<'_, Notice>, session: SessionId) -> String {
        let capabilities = cx.capabilities(session);
        capabilities.and_then(|c| c.get("name")).map_or("?", String::as_str).to_owned()
    }

    /// A new session is noted, and greeted if it can be.
    fn created(&mut self, cx: &mut Context<'_, Notice>) {
        let Some(session) = cx.session() else { return };
        let name = Self::name_of(cx, session);
        if cx.capabilities(session).is_some_and(|c| c.contains_key("greet")) {
            cx.send(session, Notice::Text(format!("welcome {name}")));
        }
        self.write(format!("{name} opened"));
    }

    /// A closed session is noted, and the others are told what the journal's length was, so that the order of
    /// two closings shows.
    fn closed(&mut self, cx: &mut Context<'_, Notice>) {
        let Some(session) = cx.session() else { return };
        let name = Self::name_of(cx, session);
        let gone = cx.send(session, Notice::Text("too late".to_owned()));
        assert_eq!(gone, None, "a closed session takes no request");
        assert!(cx.sessions().all(|open| open != session), "a closed session is not among the open");
        let fragile = cx.capabilities(session).is_some_and(|c| c.contains_key("fragile"));
        assert!(!fragile, "the desk cannot let {name} go");
        cx.broadcast(Notice::Text(format!("{name} left after {}", self.journal.len())));
        self.write(format!("{name} closed"));
    }

    fn read(&self, query: DeskQuery) -> Result<Bytes, EncodeError> {
        match query {
            DeskQuery::Total => codec::encode(&self.total),
            DeskQuery::Journal => codec::encode(&self.journal),
            DeskQuery::Above { limit } => codec::encode(&(self.total > limit)),
            DeskQuery::Panic => panic!("the desk does not know"),
            DeskQuery::BadReply => codec::encode(&Unencodable),
        }
    }
}

const FIELDS: &[StateField] = &[
    StateField::new("total", "u64"),
    StateField::new("journal", "Arc<Vec<String>>"),
    StateField::new("counts", "BTreeMap<String, u64>"),
    StateField::new("flag", "Flag"),
    StateField { since: 2, ..StateField::new("doubled", "u64") },
];

macro_rules! desk_builds {
    ($($build:literal: $command:ty, $fields:expr;)*) => {$(
        impl State for Desk<$build> {
            const FIELDS: &'static [StateField] = $fields;

            fn save(&self, out: &mut StateWriter) -> Result<(), StateError> {
                out.field("total", &self.total)?;
                out.shared("journal", &self.journal)?;
                out.per_entry("counts", &self.counts)?;
                out.field("flag", &self.flag)?;
                if Self::FIELDS.len() > 4 && out.is_active("doubled", &self.doubled)? {
                    out.field("doubled", &self.doubled)?;
                }
                Ok(())
            }

            fn load(from: &mut StateReader<'_>) -> Result<Self, SnapshotError> {
                Ok(Self {
                    total: from.field("total")?,
                    journal: from.field("journal")?,
                    counts: from.per_entry("counts")?,
                    flag: from.field("flag")?,
                    doubled: if Self::FIELDS.len() > 4 && from.is_present("doubled")? {
                        from.field("doubled")?
                    } else {
                        0
                    },
                })
            }
        }

        impl StateMachine for Desk<$build> {
            type Command = $command;
            type Query = DeskQuery;
            type ServerRequest = Notice;

            const SCHEMA: Schema = Schema {
                name: "Desk",
                version: highest_since(<$command>::VARIANTS, Self::FIELDS),
                commands: <$command>::VARIANTS,
                handlers: HANDLERS,
                queries: &[
                    QueryShape { name: "Total", fields: &[], reply: "u64" },
                    QueryShape { name: "Journal", fields: &[], reply: "Arc<Vec<String>>" },
                    QueryShape { name: "Above", fields: &[("limit", "u64")], reply: "bool" },
                ],
                server_request: "Notice",
                state: Self::FIELDS,
                dropped: Self::DROPPED,
            };

            fn apply(
                &mut self,
                cx: &mut Context<'_, Notice>,
                command: $command,
            ) -> Result<Response, EncodeError> {
                self.run(cx, command.into())
            }

            fn query(&self, query: DeskQuery) -> Result<Bytes, EncodeError> {
                self.read(query)
            }

            fn session_created(&mut self, cx: &mut Context<'_, Notice>) {
                self.created(cx);
            }

            fn session_closed(&mut self, cx: &mut Context<'_, Notice>) {
                self.closed(cx);
            }
        }
    )*};
}

desk_builds! {
    1: OldDeskCommand, FIELDS.split_at(4).0;
    2: DeskCommand, FIELDS;
}

const fn handler(command: &'static str, reply: &'static str) -> Handler {
    Handler { command, reply, internal: false }
}

const HANDLERS: &[Handler] = &[
    handler("Add", "u64"),
    handler("Take", "Result<u64, Refused>"),
    handler("Notify", "Option<ServerRequestId>"),
    handler("Shout", "u64"),
    handler("Note", "String"),
    handler("Roll", "(u64, u64)"),
    handler("Panic", "()"),
    handler("BadReply", "Unencodable"),
    handler("BadSend", "Option<ServerRequestId>"),
    handler("Spoil", "()"),
    handler("Count", "u64"),
    Handler { internal: true, ..handler("Purge", "u64") },
    handler("Rush", "()"),
    handler("Double", "u64"),
];

// Short ways to build actions.

/// A session id drawn at the beginning of the log.
pub fn id(random: u64) -> SessionId {
    SessionId::draw(0, random)
}

pub fn create(session: SessionId) -> RaftAction {
    create_with(session, &[])
}

pub fn create_with(session: SessionId, capabilities: &[(&str, &str)]) -> RaftAction {
    let capabilities =
        capabilities.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    RaftAction::SessionCreationConfirmed { session, capabilities }
}

/// A request whose client has no older one pending and acknowledges nothing.
pub fn request(session: SessionId, number: u64, command: DeskCommand) -> RaftAction {
    request_with(session, number, 1, 0, command.encode())
}

pub fn request_with(session: SessionId, number: u64, lowest: u64, acked: u64, payload: Bytes) -> RaftAction {
    RaftAction::ClientRequest {
        session,
        request: RequestId(number),
        lowest_pending: RequestId(lowest),
        acked: ServerRequestId(acked),
        payload,
    }
}

pub fn ack(session: SessionId, number: u64) -> RaftAction {
    RaftAction::ServerRequestAck { session, request: ServerRequestId(number) }
}

pub fn expire(session: SessionId) -> RaftAction {
    RaftAction::SessionExpired { session }
}

pub fn retry(before: u64, limit: u32) -> RaftAction {
    RaftAction::GetRequestsForRetry { last_sent_before: Timestamp(before), limit }
}

pub fn alive(session: SessionId, lowest: u64, acked: u64) -> Alive {
    Alive { session, lowest_pending: RequestId(lowest), acked: ServerRequestId(acked) }
}

pub fn keep_alive(sessions: &[Alive]) -> RaftAction {
    RaftAction::KeepAlive { sessions: sessions.to_vec() }
}

pub fn internal(command: DeskCommand) -> RaftAction {
    RaftAction::InternalCommand { payload: command.encode() }
}

pub fn configure(limits: Limits) -> RaftAction {
    RaftAction::Configure { limits, seed: None }
}

pub fn upgrade(version: u32) -> RaftAction {
    RaftAction::Upgrade { version }
}

// What comes out.

pub fn accepted<T: Serialize>(session: SessionId, number: u64, value: &T) -> ServerAction {
    let response = Response::accepted(value).unwrap();
    ServerAction::SendResponse { session, request: RequestId(number), response }
}

pub fn rejected<T: Serialize>(session: SessionId, number: u64, rejection: &T) -> ServerAction {
    let response = Response::rejected(rejection).unwrap();
    ServerAction::SendResponse { session, request: RequestId(number), response }
}

pub fn failed(session: SessionId, number: u64, error: RequestError) -> ServerAction {
    ServerAction::SendRequestError { session, request: RequestId(number), error }
}

pub fn notice(session: SessionId, number: u64, text: &str) -> ServerAction {
    let payload = codec::encode(&Notice::Text(text.to_owned())).unwrap();
    ServerAction::SendServerRequest { session, request: ServerRequestId(number), payload }
}

/// A machine that is fed one entry after the other.
pub struct Log<M: StateMachine = Desk> {
    pub machine: SessionStateMachine<M>,
    pub index: u64,
    pub time: u64,
}

impl<M: StateMachine + Default> Log<M> {
    pub fn new() -> Self {
        Self { machine: SessionStateMachine::new(M::default()), index: 0, time: 0 }
    }
}

impl<M: StateMachine> Log<M> {
    /// Applies the next entry, at the same time as the last one.
    pub fn apply(&mut self, action: RaftAction) -> Vec<ServerAction> {
        self.index += 1;
        self.machine.apply(self.index, Timestamp(self.time), action).expect("the entry applies")
    }

    /// Applies the next entry at a time.
    pub fn apply_at(&mut self, time: u64, action: RaftAction) -> Vec<ServerAction> {
        self.time = time;
        self.apply(action)
    }

    /// The snapshot's bytes: equal where all state is equal.
    pub fn bytes(&self) -> Vec<u8> {
        self.machine.snapshot().unwrap().to_bytes().unwrap()
    }
}

// Snapshots, taken apart and put together.

/// The byte form of a snapshot with other entries, written anew from its description, in blocks.
pub fn by_the_book<'a>(
    snapshot: &Snapshot,
    entries: impl IntoIterator<Item = (&'a String, &'a Bytes)>,
) -> Vec<Vec<u8>> {
    let mut checksum = 0;
    let mut sealed = |mut block: Vec<u8>| {
        checksum = xxh3_64_with_seed(&block, checksum);
        block.extend(checksum.to_le_bytes());
        block
    };
    let block = |kind: u8, body: &[u8]| [&[kind][..], &(body.len() as u64).to_le_bytes(), body].concat();
    let mut blocks = vec![
        sealed([&b"SESSNAP\0"[..], &1u32.to_le_bytes()].concat()),
        sealed(block(1, &codec::encode(snapshot.meta()).unwrap())),
    ];
    let mut count = 0u64;
    for (key, value) in entries {
        count += 1;
        let length = u32::try_from(key.len()).unwrap();
        let body = [&length.to_le_bytes(), key.as_bytes(), &value[..]].concat();
        blocks.push(sealed(block(2, &body)));
    }
    blocks.push(sealed(block(3, &count.to_le_bytes())));
    blocks
}

/// A snapshot, sound in its bytes, with another dictionary.
pub fn forge(snapshot: &Snapshot, dictionary: &Dictionary) -> Snapshot {
    Snapshot::from_bytes(&by_the_book(snapshot, dictionary).concat()).unwrap()
}

/// A small generator of its own, so that a run needs nothing but its seed.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

//! Random histories. Sessions, request numbers, payloads and limits come from small spaces, so that copies,
//! reorderings, closed and stale ids, mismatches and full tables happen all the time; indices and times jump.
//!
//! A history is drawn as a list of symbolic moves ("the session in place 2") and then made concrete, so that
//! it keeps its meaning while it is shrunk.

pub mod from_bytes;

use crate::support::{DeskCommand, alive};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use session_runtime::{Bytes, Command, Limits, RaftAction, RequestId, ServerRequestId, SessionId, Timestamp};
use std::collections::BTreeMap;
use std::fmt;

/// One entry, to be applied or skipped.
#[derive(Clone, PartialEq)]
pub struct Step {
    pub index: u64,
    pub time: Timestamp,
    pub action: RaftAction,
    pub skip: bool,
}

impl fmt::Debug for Step {
    /// On one line, so that a failing history can be read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.skip { "skip" } else { "apply" };
        write!(f, "{verb} {} at {}: {:?}", self.index, self.time.0, self.action)
    }
}

/// How many sessions are in play at once.
const PLACES: usize = 4;
/// How far below a creation's index its id may have been drawn.
const MAX_AGE: u64 = 65_536;

/// A session: the one last drawn for a place, or one drawn before it.
#[derive(Clone, Copy, Debug)]
struct Who {
    place: usize,
    back: usize,
}

/// Where an entry stands.
#[derive(Clone, Copy, Debug)]
enum Gap {
    /// So far behind the entry before.
    By(u64),
    /// At or before it, which is an error.
    Back(u64),
    /// Where the id of this session is so much older than a creation may be, if that is ahead.
    Age(Who, i64),
}

/// When an entry was appended, by its leader's clock.
#[derive(Clone, Copy, Debug)]
enum Delay {
    After(u64),
    /// A leader whose clock is behind.
    Before(u64),
    EndOfTime,
}

/// When a new id was drawn.
#[derive(Clone, Copy, Debug)]
enum Drawn {
    Ago(u64),
    Ahead(u64),
}

/// A moment, as seen from an entry's own.
#[derive(Clone, Copy, Debug)]
enum Moment {
    Near(i64),
    At(u64),
}

#[derive(Clone, Debug)]
enum Payload {
    Of(Said),
    Raw(Vec<u8>),
    Trailing(Said),
    Cut(Said),
}

/// A command that may name a session.
#[derive(Clone, Debug)]
enum Said {
    Plain(DeskCommand),
    Notify(Who, String),
    BadSend(Who),
}

#[derive(Clone, Debug)]
enum Deed {
    Open {
        place: usize,
        drawn: Drawn,
        capabilities: u8,
    },
    Reopen {
        who: Who,
        capabilities: u8,
    },
    Request {
        who: Who,
        number: u64,
        lowest: u64,
        acked: u64,
        payload: Payload,
    },
    /// An exact copy of the request so many before.
    Copy {
        back: usize,
    },
    Ack(Who, u64),
    Expire(Who),
    Retry(Moment, u32),
    KeepAlive(Vec<(Who, u64, u64)>),
    Internal(Payload),
    Configure(Limits, Option<u8>),
    Upgrade(u32),
    Tick,
}

#[derive(Clone, Debug)]
struct Move {
    gap: Gap,
    delay: Delay,
    skip: bool,
    deed: Deed,
}

/// What kinds of histories a property is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything there is.
    All,
    /// No limits but that of the number of sessions, and nothing that halts or fails: for claims that a limit
    /// or a halt rightly breaks.
    Calm,
}

/// Histories of up to so many moves.
pub fn histories(scope: Scope, moves: usize) -> impl Strategy<Value = Vec<Step>> {
    // Between any two entries of a calm history there is room for one more.
    let stride = if scope == Scope::Calm { 2 } else { 1 };
    let moves = (openings(scope), vec(group(scope), 1..moves));
    moves.prop_map(move |(openings, groups)| resolve(stride, openings.into_iter().chain(groups.concat())))
}

/// Most histories begin with some sessions, else their first moves would find none.
fn openings(scope: Scope) -> impl Strategy<Value = Vec<Move>> {
    let opening = (0..PLACES, (1..3u64).prop_map(Drawn::Ago), capabilities(scope));
    vec(opening.prop_map(open), 0..7)
}

/// Mostly one move; sometimes a few that only mean something in a row.
fn group(scope: Scope) -> impl Strategy<Value = Vec<Move>> {
    let next = (gap(scope), delay(scope), deed(scope), prop::bool::weighted(skips(scope)));
    prop_oneof![
        36 => next.prop_map(|(gap, delay, deed, skip)| vec![Move { gap, delay, skip, deed }]),
        1 => (who(), -3..3i64, 0..3u64, any::<bool>()).prop_map(age_probe),
        1 => vec((0..PLACES, drawn(), capabilities(scope)).prop_map(open), 2..6),
        2 => (payload(scope), vec((who(), 0..6u64), 2..5)).prop_map(burst),
        2 => vec((words(), 0..5u64), 2..4).prop_map(pile),
    ]
}

fn skips(scope: Scope) -> f64 {
    if scope == Scope::All { 0.05 } else { 0.0 }
}

fn then(deed: Deed) -> Move {
    Move { gap: Gap::By(1), delay: Delay::After(0), skip: false, deed }
}

/// Closes a session, lets its id grow just old enough to be forgotten, and registers it again.
fn age_probe((who, past, more, skip): (Who, i64, u64, bool)) -> Vec<Move> {
    let reopen = Deed::Reopen { who, capabilities: 0 };
    vec![
        then(Deed::Expire(who)),
        Move { gap: Gap::Age(who, past), skip, ..then(Deed::Tick) },
        Move { gap: Gap::By(1 + more / 2), ..then(reopen) },
    ]
}

fn open((place, drawn, capabilities): (usize, Drawn, u8)) -> Move {
    then(Deed::Open { place, drawn, capabilities })
}

/// The same command under several numbers, far from the watermark, so that answers pile up.
fn burst((payload, whose): (Payload, Vec<(Who, u64)>)) -> Vec<Move> {
    let request = |(who, number)| {
        let payload = payload.clone();
        then(Deed::Request { who, number, lowest: 1, acked: 0, payload })
    };
    whose.into_iter().map(request).collect()
}

/// Sends to all at several moments and asks for the oldest again, so that the order of retries shows.
fn pile(shouts: Vec<(String, u64)>) -> Vec<Move> {
    let shout =
        |(text, delay)| Move { delay: Delay::After(delay), ..then(internally(DeskCommand::Shout(text))) };
    let retry = Move { delay: Delay::After(1), ..then(Deed::Retry(Moment::Near(-1), 2)) };
    let again = then(Deed::Retry(Moment::Near(0), 3));
    shouts.into_iter().map(shout).chain([retry, again]).collect()
}

fn internally(command: DeskCommand) -> Deed {
    Deed::Internal(Payload::Of(Said::Plain(command)))
}

fn who() -> impl Strategy<Value = Who> {
    (0..PLACES, prop_oneof![9 => Just(0), 2 => Just(1usize)]).prop_map(|(place, back)| Who { place, back })
}

fn gap(scope: Scope) -> BoxedStrategy<Gap> {
    let forward = prop_oneof![
        40 => Just(Gap::By(1)),
        4 => (2..5u64).prop_map(Gap::By),
        1 => (who(), -2..3i64).prop_map(|(who, past)| Gap::Age(who, past)),
    ];
    if scope == Scope::Calm {
        return forward.boxed();
    }
    prop_oneof![22 => forward, 1 => (0..3u64).prop_map(Gap::Back)].boxed()
}

fn delay(scope: Scope) -> BoxedStrategy<Delay> {
    let usual = prop_oneof![
        20 => (0..5u64).prop_map(Delay::After),
        2 => (5..40u64).prop_map(Delay::After),
        3 => (0..20u64).prop_map(Delay::Before),
    ];
    if scope == Scope::Calm {
        return usual.boxed();
    }
    prop_oneof![500 => usual, 1 => Just(Delay::EndOfTime)].boxed()
}

fn drawn() -> impl Strategy<Value = Drawn> {
    prop_oneof![
        40 => (1..4u64).prop_map(Drawn::Ago),
        1 => (MAX_AGE - 1..MAX_AGE + 2).prop_map(Drawn::Ago),
        1 => (0..2u64).prop_map(Drawn::Ahead),
        1 => Just(Drawn::Ahead(u64::MAX)),
    ]
}

fn deed(scope: Scope) -> impl Strategy<Value = Deed> {
    let keep_alive = vec((who(), lowest(), acked()), 0..4);
    prop_oneof![
        8 => (0..PLACES, drawn(), capabilities(scope))
            .prop_map(|(place, drawn, capabilities)| Deed::Open { place, drawn, capabilities }),
        3 => (who(), capabilities(scope)).prop_map(|(who, capabilities)| Deed::Reopen { who, capabilities }),
        24 => (who(), number(), lowest(), acked(), payload(scope)).prop_map(
            |(who, number, lowest, acked, payload)| Deed::Request { who, number, lowest, acked, payload }
        ),
        8 => (0..6usize).prop_map(|back| Deed::Copy { back }),
        2 => (who(), acked()).prop_map(|(who, acked)| Deed::Ack(who, acked)),
        1 => who().prop_map(Deed::Expire),
        3 => (moment(), 0..4u32).prop_map(|(before, limit)| Deed::Retry(before, limit)),
        2 => keep_alive.prop_map(Deed::KeepAlive),
        3 => payload(scope).prop_map(Deed::Internal),
        4 => (limits(scope), prop::option::weighted(0.3, 0..3u8))
            .prop_map(|(limits, seed)| Deed::Configure(limits, seed)),
        2 => (0..4u32).prop_map(Deed::Upgrade),
        2 => Just(Deed::Tick),
    ]
}

/// Bits: greet, a name of its own, fragile.
fn capabilities(scope: Scope) -> BoxedStrategy<u8> {
    if scope == Scope::Calm { (0..4u8).boxed() } else { prop_oneof![15 => 0..4u8, 1 => 4..8u8].boxed() }
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![30 => 0..7u64, 1 => Just(u64::MAX)]
}

fn lowest() -> impl Strategy<Value = u64> {
    prop_oneof![12 => Just(1), 6 => 0..4u64, 2 => 3..8u64]
}

fn acked() -> impl Strategy<Value = u64> {
    prop_oneof![6 => Just(0), 4 => 0..4u64, 1 => 3..9u64, 1 => Just(u64::MAX)]
}

fn moment() -> impl Strategy<Value = Moment> {
    prop_oneof![
        10 => (-4..2i64).prop_map(Moment::Near),
        1 => Just(Moment::At(0)),
        1 => Just(Moment::At(u64::MAX)),
    ]
}

fn limits(scope: Scope) -> BoxedStrategy<Limits> {
    let max_sessions = prop::option::weighted(0.35, prop_oneof![6 => 1..6u32, 1 => Just(0)]);
    if scope == Scope::Calm {
        return max_sessions.prop_map(|max_sessions| Limits { max_sessions, ..Limits::default() }).boxed();
    }
    let idle_timeout = prop_oneof![10 => 8..40u64, 5 => 0..8u64, 1 => Just(u64::MAX)];
    let idle_timeout = prop::option::weighted(0.3, idle_timeout);
    let cached_bytes = prop::option::weighted(0.4, select(vec![0, 1, 32, 33, 34, 40, 66, 100]));
    let pending = prop::option::weighted(0.3, prop_oneof![6 => 1..6u32, 1 => Just(0)]);
    (idle_timeout, max_sessions, any::<bool>(), cached_bytes, pending)
        .prop_map(|(idle_timeout, max_sessions, evict_idlest, max_cached_bytes, max_pending_requests)| {
            Limits { idle_timeout, max_sessions, evict_idlest, max_cached_bytes, max_pending_requests }
        })
        .boxed()
}

fn payload(scope: Scope) -> impl Strategy<Value = Payload> {
    prop_oneof![
        20 => said(scope).prop_map(Payload::Of),
        1 => vec(any::<u8>(), 0..4).prop_map(Payload::Raw),
        // A text that claims to be of 2^64 - 1 bytes.
        1 => Just(Payload::Raw([&[3, 253][..], &[255; 8]].concat())),
        1 => said(scope).prop_map(Payload::Trailing),
        1 => said(scope).prop_map(Payload::Cut),
    ]
}

fn said(scope: Scope) -> BoxedStrategy<Said> {
    let harmless = prop_oneof![
        20 => harmless().prop_map(Said::Plain),
        4 => (who(), words()).prop_map(|(who, text)| Said::Notify(who, text)),
    ];
    if scope == Scope::Calm {
        return harmless.boxed();
    }
    let harmful = select(vec![
        DeskCommand::Panic,
        DeskCommand::BadReply,
        DeskCommand::Rush,
        DeskCommand::Spoil(true),
        DeskCommand::Spoil(false),
    ]);
    prop_oneof![
        25 => harmless,
        2 => harmful.prop_map(Said::Plain),
        1 => who().prop_map(Said::BadSend),
    ]
    .boxed()
}

fn harmless() -> impl Strategy<Value = DeskCommand> {
    prop_oneof![
        3 => (0..3u64).prop_map(|amount| DeskCommand::Add { amount }),
        1 => Just(DeskCommand::Add { amount: u64::MAX }),
        3 => (0..4u64).prop_map(|amount| DeskCommand::Take { amount }),
        3 => words().prop_map(DeskCommand::Shout),
        2 => Just(DeskCommand::Note),
        2 => Just(DeskCommand::Roll),
        2 => words().prop_map(|word| DeskCommand::Count { word }),
        1 => Just(DeskCommand::Purge),
        1 => Just(DeskCommand::Double),
    ]
}

fn words() -> impl Strategy<Value = String> {
    select(vec!["", "a", "some words"]).prop_map(str::to_owned)
}

/// What has happened so far, as far as later moves refer to it.
struct Stage {
    stride: u64,
    index: u64,
    time: u64,
    drawn: [Vec<SessionId>; PLACES],
    requests: Vec<RaftAction>,
}

fn resolve(stride: u64, moves: impl Iterator<Item = Move>) -> Vec<Step> {
    let mut stage = Stage { stride, index: 0, time: 0, drawn: Default::default(), requests: Vec::new() };
    moves.map(|step| stage.step(step)).collect()
}

impl Stage {
    fn step(&mut self, step: Move) -> Step {
        let index = self.place_in_log(step.gap);
        self.index = self.index.max(index);
        let time = self.moment_of(step.delay);
        let action = self.action(index, time, step.deed);
        if matches!(action, RaftAction::ClientRequest { .. }) {
            self.requests.push(action.clone());
        }
        Step { index, time: Timestamp(time), action, skip: step.skip }
    }

    fn place_in_log(&self, gap: Gap) -> u64 {
        match gap {
            Gap::By(gap) => self.index.saturating_add(gap * self.stride),
            Gap::Back(back) => self.index.saturating_sub(back),
            Gap::Age(who, past) => {
                let edge = self.id(who).position().saturating_add(MAX_AGE).saturating_add_signed(past);
                edge.clamp(self.index + self.stride, self.index + 2 * MAX_AGE)
            }
        }
    }

    fn moment_of(&mut self, delay: Delay) -> u64 {
        match delay {
            Delay::After(delay) => {
                self.time = self.time.saturating_add(delay);
                self.time
            }
            Delay::Before(by) => self.time.saturating_sub(by),
            Delay::EndOfTime => u64::MAX,
        }
    }

    fn id(&self, who: Who) -> SessionId {
        let unknown = SessionId::draw(0, (who.place as u64 + 0xa) << 48);
        self.drawn[who.place].iter().rev().nth(who.back).copied().unwrap_or(unknown)
    }

    fn action(&mut self, index: u64, time: u64, deed: Deed) -> RaftAction {
        match deed {
            Deed::Open { place, drawn, capabilities: bits } => {
                let session = self.draw(index, place, drawn);
                RaftAction::SessionCreationConfirmed { session, capabilities: named(place, bits) }
            }
            Deed::Reopen { who, capabilities: bits } => {
                let capabilities = named(who.place, bits);
                RaftAction::SessionCreationConfirmed { session: self.id(who), capabilities }
            }
            Deed::Request { who, number, lowest, acked, payload } => RaftAction::ClientRequest {
                session: self.id(who),
                request: RequestId(number),
                lowest_pending: RequestId(lowest),
                acked: ServerRequestId(acked),
                payload: self.payload(payload),
            },
            Deed::Copy { back } => self.requests.iter().rev().nth(back).cloned().unwrap_or(RaftAction::Tick),
            Deed::Ack(who, acked) => {
                RaftAction::ServerRequestAck { session: self.id(who), request: ServerRequestId(acked) }
            }
            Deed::Expire(who) => RaftAction::SessionExpired { session: self.id(who) },
            Deed::Retry(before, limit) => {
                RaftAction::GetRequestsForRetry { last_sent_before: before.seen_from(time), limit }
            }
            Deed::KeepAlive(whose) => {
                let sessions =
                    whose.into_iter().map(|(who, lowest, acked)| alive(self.id(who), lowest, acked));
                RaftAction::KeepAlive { sessions: sessions.collect() }
            }
            Deed::Internal(payload) => RaftAction::InternalCommand { payload: self.payload(payload) },
            Deed::Configure(limits, seed) => {
                RaftAction::Configure { limits, seed: seed.map(|byte| [byte; 32]) }
            }
            Deed::Upgrade(version) => RaftAction::Upgrade { version },
            Deed::Tick => RaftAction::Tick,
        }
    }

    fn draw(&mut self, index: u64, place: usize, drawn: Drawn) -> SessionId {
        let position = match drawn {
            Drawn::Ago(ago) => index.saturating_sub(ago),
            Drawn::Ahead(ahead) => index.saturating_add(ahead),
        };
        // The random half begins with the place, so that `Debug` shows it.
        let session = SessionId::draw(position, (place as u64 + 1) << 48);
        self.drawn[place].push(session);
        session
    }

    fn payload(&self, payload: Payload) -> Bytes {
        match payload {
            Payload::Of(said) => self.command(said).encode(),
            Payload::Raw(bytes) => bytes.into(),
            Payload::Trailing(said) => [&self.command(said).encode()[..], &[0]].concat().into(),
            Payload::Cut(said) => {
                let whole = self.command(said).encode();
                whole.slice(..whole.len() - 1)
            }
        }
    }

    fn command(&self, said: Said) -> DeskCommand {
        match said {
            Said::Plain(command) => command,
            Said::Notify(who, text) => DeskCommand::Notify { to: self.id(who), text },
            Said::BadSend(who) => DeskCommand::BadSend { to: self.id(who) },
        }
    }
}

impl Moment {
    fn seen_from(self, time: u64) -> Timestamp {
        match self {
            Self::Near(offset) => Timestamp(time.saturating_add_signed(offset)),
            Self::At(time) => Timestamp(time),
        }
    }
}

fn named(place: usize, bits: u8) -> BTreeMap<String, String> {
    let name = ["ann", "ben", "cid", "dot"][place];
    let all = [("greet", "yes"), ("name", name), ("fragile", "yes")];
    let chosen = all.into_iter().enumerate().filter(|(bit, _)| bits & (1 << bit) != 0);
    chosen.map(|(_, (key, value))| (key.to_owned(), value.to_owned())).collect()
}

//! One simulated history: a cluster, its clients, a bad network, and chance.

mod clients;
mod cluster;
mod faults;
mod leader;

use super::{
    dice::Dice,
    failure::Tally,
    judge::{Broken, Judge, SESSION_KEYS},
    replica::{Builds, Replica},
};
use crate::{
    action::{Alive, RaftAction, ServerAction},
    admission::Admission,
    client::{ClientMessage, ClientSession, ServerMessage},
    identity::{RequestId, SessionId, Timestamp},
    machine::StateMachine,
    retry::{RetryDriver, RetryPolicy},
    session_machine::SessionKey,
    snapshot::Snapshot,
};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often replicas' dictionaries are compared, in entries.
const COMPARE_EVERY: u64 = 64;
/// After so many events without an end, a history is taken to hang.
const MAX_EVENTS: u64 = 400_000;

/// After so many events the faults end, whatever the clients have come to.
const MAX_FAULTY_EVENTS: u64 = MAX_EVENTS / 4;

/// What goes wrong in one history, drawn from its seed.
#[derive(Debug)]
struct Plan {
    clients: usize,
    replicas: usize,
    operations: u64,
    lost: u64,
    repeated: u64,
    delay: u64,
    /// In how many of ten thousand events each fault happens.
    leader_change: u64,
    replica_crash: u64,
    client_crash: u64,
    expiry: u64,
    internal: u64,
    clock_jump: u64,
    new_limits: u64,
    upgrade: u64,
    /// In how many of a hundred leader changes something old is proposed once more.
    late_proposal: u64,
    /// In how many of a hundred cases the leader learns of its append only later.
    late_report: u64,
    /// The most server requests to send again at a time.
    retry_limit: u32,
}

impl Plan {
    fn draw(dice: &mut Dice, operations: u64) -> Self {
        // Some histories know no fault of a kind at all: one fault can hide another.
        let mut often = |most| if dice.percent(40) { 0 } else { dice.below(most) };
        Self {
            leader_change: often(60),
            replica_crash: often(60),
            client_crash: often(40),
            expiry: often(20),
            internal: often(40),
            clock_jump: often(20),
            new_limits: often(20),
            upgrade: often(40),
            lost: often(31),
            repeated: often(51),
            delay: often(400),
            late_proposal: often(100),
            late_report: often(60),
            retry_limit: u32::try_from(1_u64.saturating_add(dice.below(16))).unwrap_or(1),
            clients: 1_usize.saturating_add(usize::try_from(dice.below(5)).unwrap_or(0)),
            replicas: 1_usize.saturating_add(usize::try_from(dice.below(3)).unwrap_or(0)),
            operations,
        }
    }
}

/// An entry, and the client that waits for its creation.
#[derive(Clone)]
pub(super) struct Logged {
    pub(super) time: Timestamp,
    pub(super) action: RaftAction,
    creator: Option<(usize, u64)>,
}

struct Node {
    replica: Box<dyn Replica>,
    old: bool,
    up: bool,
    /// What it would come back from after a crash.
    saved: Option<Snapshot>,
}

struct Client {
    session: ClientSession,
    /// The session's id, once it was open, for ever.
    id: Option<SessionId>,
    /// It came back from saved bytes, so what it had under way may have been answered to the one before.
    restored: bool,
    /// The server request delivered last.
    delivered: u64,
    /// Whether it saves itself, the bytes stored last, and those that are being stored.
    saves: bool,
    stored: Option<Saved>,
    storing: Option<Saved>,
    /// The requests under way, with the moment each began.
    began: BTreeMap<RequestId, u64>,
    /// Grows with each incarnation: what was sent to an earlier one is for nobody.
    incarnation: u64,
}

/// The bytes of a saved client, and the server request delivered last then.
#[derive(Clone)]
struct Saved {
    bytes: Bytes,
    delivered: u64,
}

/// An operation that was answered: when it began and ended, and where in the log it ran.
struct Done {
    began: u64,
    ended: u64,
    index: u64,
}

enum Event {
    ToServer {
        client: usize,
        incarnation: u64,
        message: ClientMessage,
    },
    ToClient {
        client: usize,
        incarnation: u64,
        message: ServerMessage,
    },
    /// A client's timer, which goes on for as long as this incarnation lives.
    Wake {
        client: usize,
        incarnation: u64,
    },
    /// A client learns that what it saved is stored, or that nobody knows.
    Stored {
        client: usize,
        incarnation: u64,
    },
    /// A client looks up, once.
    Nudge {
        client: usize,
    },
    Commit {
        term: u64,
    },
    /// The leader learns at which index a request was appended.
    Appended {
        key: SessionKey,
        term: u64,
        index: u64,
    },
    CatchUp {
        node: usize,
    },
    Restart {
        node: usize,
    },
    Beat,
}

/// A history under way.
pub(super) struct World<'a, M> {
    builds: &'a Builds<M>,
    commands: &'a mut dyn FnMut(&mut Dice) -> Result<Bytes, Broken>,
    dice: Dice,
    plan: Plan,
    now: u64,
    /// What the leader's clock is off by.
    clock: u64,
    events: BTreeMap<(u64, u64), Event>,
    counter: u64,
    pub(super) log: Vec<Logged>,
    committed: usize,
    commit_scheduled: bool,
    /// What each committed entry gave when it was first applied, and how many commands ran.
    outputs: Vec<(Vec<ServerAction>, u64)>,
    /// The snapshot that the first replica had at each index where all are compared.
    compared: BTreeMap<u64, Bytes>,
    /// How long the log was when replicas were found to differ.
    pub(super) differ: Option<usize>,
    nodes: Vec<Node>,
    leader: usize,
    term: u64,
    gate: Admission<SessionKey>,
    retries: RetryDriver,
    clients: Vec<Client>,
    /// When the last message on each way, from and to each client, arrives.
    arrivals: BTreeMap<(usize, bool), u64>,
    owners: BTreeMap<SessionId, (usize, u64)>,
    alive: BTreeMap<SessionId, Alive>,
    judge: Judge,
    /// The numbers that clients have used, for ever.
    used: BTreeSet<(SessionId, RequestId)>,
    started: u64,
    done: Vec<Done>,
    healed: bool,
    pub(super) tally: Tally,
}

impl<'a, M: StateMachine + 'static> World<'a, M> {
    pub(super) fn new(
        builds: &'a Builds<M>,
        commands: &'a mut dyn FnMut(&mut Dice) -> Result<Bytes, Broken>,
        seed: u64,
        operations: u64,
    ) -> Self {
        let mut dice = Dice::new(seed);
        let plan = Plan::draw(&mut dice, operations);
        let versions = M::SCHEMA.version > 1;
        let nodes = (0..plan.replicas)
            .map(|_| {
                let old = versions && plan.upgrade > 0 && dice.percent(50);
                Node { replica: builds.fresh(old), old, up: true, saved: None }
            })
            .collect();
        let mut world = Self {
            builds,
            commands,
            dice,
            now: 0,
            clock: 0,
            events: BTreeMap::new(),
            counter: 0,
            log: Vec::new(),
            committed: 0,
            commit_scheduled: false,
            outputs: Vec::new(),
            compared: BTreeMap::new(),
            differ: None,
            nodes,
            leader: 0,
            term: 1,
            gate: Admission::new(),
            retries: RetryDriver::new(RetryPolicy { min_age: 300, max_age: 3_000, limit: plan.retry_limit }),
            clients: Vec::new(),
            arrivals: BTreeMap::new(),
            owners: BTreeMap::new(),
            alive: BTreeMap::new(),
            judge: Judge::new::<M>(),
            used: BTreeSet::new(),
            started: 0,
            done: Vec::new(),
            healed: false,
            tally: Tally { runs: 1, ..Tally::default() },
            plan,
        };
        for number in 0..world.plan.clients {
            let saves = world.dice.percent(50);
            let client = clients::new_client(saves, 1, Duration::ZERO);
            world.clients.push(client);
            world.at(0, Event::Wake { client: number, incarnation: 1 });
        }
        world.at(50, Event::Beat);
        world
    }

    /// Runs to the end, or to the first broken rule.
    pub(super) fn run(&mut self) -> Result<(), Broken> {
        for event_number in 0..MAX_EVENTS {
            if self.healed && self.is_settled() {
                return self.finish();
            }
            let Some(((now, _), event)) = self.events.pop_first() else {
                return Err("nothing is under way any more, and not everything is settled".to_owned());
            };
            self.now = now;
            self.handle(event)?;
            if self.healed {
                continue;
            }
            // Limits may be so tight that clients take turns in evicting each other: that, too, must end well.
            if self.started >= self.plan.operations || event_number > MAX_FAULTY_EVENTS {
                self.heal()?;
            } else {
                self.maybe_fault()?;
            }
        }
        Err(format!("the history does not come to an end: {}", self.unsettled()))
    }

    fn at(&mut self, delay: u64, event: Event) {
        self.counter = self.counter.saturating_add(1);
        self.events.insert((self.now.saturating_add(delay), self.counter), event);
    }

    fn time(&self) -> Duration {
        Duration::from_millis(self.now)
    }

    // The end.

    fn is_settled(&self) -> bool {
        let applied = |node: &Node| node.replica.last_applied() == self.log.len() as u64;
        self.committed == self.log.len()
            && self.nodes.iter().all(applied)
            && self.clients.iter().all(|client| {
                client
                    .session
                    .session()
                    .is_some_and(|session| client.session.pending().next().is_none() && !self.owes(session))
            })
    }

    /// What is not settled, for people.
    fn unsettled(&self) -> String {
        let clients = self.clients.iter().map(|client| match client.session.session() {
            None => "a client has no session".to_owned(),
            Some(session) => format!(
                "{session:?} has {} requests without an answer and {} server requests not acknowledged",
                client.session.pending().count(),
                self.pending(session)
            ),
        });
        clients.collect::<Vec<_>>().join("; ")
    }

    fn owes(&self, session: SessionId) -> bool {
        self.nodes.get(self.leader).is_some_and(|node| node.replica.owes(session))
    }

    fn pending(&self, session: SessionId) -> usize {
        self.nodes.get(self.leader).map_or(0, |node| node.replica.pending(session).len())
    }

    fn finish(&mut self) -> Result<(), Broken> {
        for number in 0..self.clients.len() {
            self.note_events(number)?;
        }
        self.clients.iter().try_for_each(|client| self.has_everything(client))?;
        self.check_order()?;
        for number in 0..self.nodes.len() {
            self.compare_with_first(number)?;
        }
        self.close_all()
    }

    /// A client has an answer to all it began, and was given all that was sent to it.
    fn has_everything(&self, client: &Client) -> Result<(), Broken> {
        if let Some((request, _)) = client.began.first_key_value() {
            return Err(format!("{request:?} has no answer, and its client no longer asks for one"));
        }
        let Some(session) = client.session.session() else { return Ok(()) };
        match self.judge.last_sent(session) {
            Some(sent) if sent != client.delivered => Err(format!(
                "{session:?} was sent {sent} server requests, and its client was given {}",
                client.delivered
            )),
            _ => Ok(()),
        }
    }

    /// No operation stands in the log before one that had returned when it began.
    fn check_order(&mut self) -> Result<(), Broken> {
        self.done.sort_by_key(|done| done.began);
        let mut by_end: Vec<(u64, u64)> = self.done.iter().map(|done| (done.ended, done.index)).collect();
        by_end.sort_unstable();
        let mut ended = by_end.into_iter().peekable();
        let mut highest = 0;
        for done in &self.done {
            while let Some((_, index)) = ended.next_if(|(moment, _)| *moment < done.began) {
                highest = highest.max(index);
            }
            if done.index <= highest {
                return Err(format!(
                    "the operation at index {} began after the one at index {highest} had returned",
                    done.index
                ));
            }
        }
        Ok(())
    }

    /// Once all sessions are closed, nothing of them is left, on any replica.
    fn close_all(&mut self) -> Result<(), Broken> {
        let open = self.nodes.get(self.leader).map(|node| node.replica.sessions()).unwrap_or_default();
        for session in open {
            self.append(RaftAction::SessionExpired { session }, None);
        }
        self.committed = self.log.len();
        for number in 0..self.nodes.len() {
            self.catch_up(number)?;
            let bytes = self.compare_with_first(number)?;
            let snapshot = Snapshot::from_bytes(&bytes).map_err(|error| error.to_string())?;
            let dictionary = snapshot.dictionary().map_err(|error| error.to_string())?;
            let (open, left) =
                (self.judge.open_sessions(), dictionary.keys().find(|key| key.starts_with(SESSION_KEYS)));
            if open > 0 || left.is_some() {
                return Err(format!("all sessions are closed, and {open} are left, with the key {left:?}"));
            }
        }
        Ok(())
    }
}

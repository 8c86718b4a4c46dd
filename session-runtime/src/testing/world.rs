//! One simulated history: a cluster, its clients, a bad network, and chance.

use super::{
    dice::Dice,
    failure::Tally,
    judge::{Broken, Judge},
    replica::{Builds, Replica},
};
use crate::{
    action::{Alive, RaftAction, RequestError, Response, ServerAction},
    admission::{Admission, Admit},
    client::{ClientConfig, ClientEvent, ClientMessage, ClientSession, ServerMessage},
    codec,
    error::ApplyError,
    identity::{RequestId, SessionId, Timestamp},
    limits::Limits,
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
    /// Whether it saves itself, and the bytes it saved last.
    saves: bool,
    saved: Option<Bytes>,
    /// The requests under way, with the moment each began.
    began: BTreeMap<RequestId, u64>,
    /// Grows with each incarnation: what was sent to an earlier one is for nobody.
    incarnation: u64,
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
    digests: BTreeMap<u64, u64>,
    nodes: Vec<Node>,
    leader: usize,
    term: u64,
    gate: Admission<SessionKey>,
    retries: RetryDriver,
    clients: Vec<Client>,
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
            digests: BTreeMap::new(),
            nodes,
            leader: 0,
            term: 1,
            gate: Admission::new(),
            retries: RetryDriver::new(RetryPolicy { min_age: 300, max_age: 3_000, limit: plan.retry_limit }),
            clients: Vec::new(),
            owners: BTreeMap::new(),
            alive: BTreeMap::new(),
            judge: Judge::default(),
            used: BTreeSet::new(),
            started: 0,
            done: Vec::new(),
            healed: false,
            tally: Tally { runs: 1, ..Tally::default() },
            plan,
        };
        for number in 0..world.plan.clients {
            let saves = world.dice.percent(30);
            let client = world.new_client(saves, 1);
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

    // Faults.

    fn maybe_fault(&mut self) -> Result<(), Broken> {
        let mut roll = |rate: u64| self.dice.below(10_000) < rate;
        let (leader, replica, client) =
            (roll(self.plan.leader_change), roll(self.plan.replica_crash), roll(self.plan.client_crash));
        let (clock, limits, upgrade) =
            (roll(self.plan.clock_jump), roll(self.plan.new_limits), roll(self.plan.upgrade));
        if leader {
            self.change_leader(true)?;
        }
        if replica {
            self.crash_replica()?;
        }
        if client {
            self.crash_client();
        }
        if clock {
            self.tally += Tally { clock_jumps: 1, ..Tally::default() };
            self.clock = self.dice.below(3).saturating_mul(self.dice.below(5_000));
        }
        if limits {
            self.tally += Tally { limits_changed: 1, ..Tally::default() };
            let limits = self.draw_limits();
            let seed = self.dice.percent(20).then_some([7; 32]);
            self.append(RaftAction::Configure { limits, seed }, None);
        }
        if upgrade && M::SCHEMA.version > 1 {
            let version = self.dice.below(u64::from(M::SCHEMA.version)).saturating_add(1);
            let leads = self.nodes.get(self.leader).is_some_and(|node| !node.old);
            // A leader refuses an upgrade beyond its own build before the log.
            if leads && let Ok(version) = u32::try_from(version) {
                self.append(RaftAction::Upgrade { version }, None);
            }
        }
        Ok(())
    }

    fn draw_limits(&mut self) -> Limits {
        let mut maybe = |base: u64, spread: u64| {
            let drawn = base.saturating_add(self.dice.below(spread));
            self.dice.percent(50).then_some(drawn)
        };
        Limits {
            idle_timeout: maybe(2_000, 20_000),
            max_sessions: maybe(1, 8).and_then(|max| u32::try_from(max).ok()),
            max_cached_bytes: maybe(0, 400),
            max_pending_requests: maybe(1, 10).and_then(|max| u32::try_from(max).ok()),
            evict_idlest: maybe(0, 1).is_some(),
        }
    }

    /// Another leader takes over: of what was not committed it has a part, and may append that again.
    fn change_leader(&mut self, any: bool) -> Result<(), Broken> {
        let up: Vec<usize> =
            self.nodes.iter().enumerate().filter(|(_, node)| node.up).map(|(number, _)| number).collect();
        let Some(next) = self.dice.pick(&up).copied() else { return Ok(()) };
        if any || next != self.leader {
            self.tally += Tally { leader_changes: 1, ..Tally::default() };
        }
        self.term = self.term.saturating_add(1);
        self.leader = next;
        let uncommitted = self.log.len().saturating_sub(self.committed);
        let kept = usize::try_from(self.dice.below(uncommitted.saturating_add(1) as u64)).unwrap_or(0);
        let lost = self.log.split_off(self.committed.saturating_add(kept));
        if self.dice.percent(30) {
            let again: Vec<Logged> = self.log.iter().skip(self.committed).cloned().collect();
            self.tally += Tally { doubled_proposals: again.len() as u64, ..Tally::default() };
            for logged in again {
                self.append(logged.action, logged.creator);
            }
        }
        self.tally += Tally { lost_proposals: lost.len() as u64, ..Tally::default() };
        if self.dice.percent(self.plan.late_proposal) {
            self.propose_something_old();
        }
        self.alive.clear();
        self.catch_up(next)?;
        self.commit_scheduled = false;
        self.schedule_commit();
        let now = self.time();
        for client in &mut self.clients {
            client.session.reconnected(now);
        }
        self.nudge_all();
        Ok(())
    }

    /// A copy of a proposal that was under way for long, say from a follower that forwards: often a creation, for
    /// a session that may be closed by now.
    fn propose_something_old(&mut self) {
        let creation = |entry: &Logged| entry.creator.is_some();
        let only_creations = self.dice.percent(50);
        let old = self.log.iter().filter(|entry| creation(entry) || !only_creations);
        let old: Vec<&Logged> = old.collect();
        if let Some(logged) = self.dice.pick(&old).map(|logged| (*logged).clone()) {
            self.tally += Tally { late_proposals: 1, ..Tally::default() };
            self.append(logged.action, logged.creator);
        }
    }

    fn crash_replica(&mut self) -> Result<(), Broken> {
        let number = usize::try_from(self.dice.below(self.nodes.len() as u64)).unwrap_or(0);
        let others_up = self.nodes.iter().enumerate().any(|(other, node)| other != number && node.up);
        let Some(node) = self.nodes.get_mut(number) else { return Ok(()) };
        if !node.up {
            return Ok(());
        }
        self.tally += Tally { replica_crashes: 1, ..Tally::default() };
        node.up = false;
        if others_up {
            let delay = self.dice.below(3_000);
            self.at(delay, Event::Restart { node: number });
        } else {
            // One voter: it comes back at once, with the log as it is.
            self.restart(number)?;
        }
        if number == self.leader { self.change_leader(false) } else { Ok(()) }
    }

    fn restart(&mut self, number: usize) -> Result<(), Broken> {
        let Some(node) = self.nodes.get_mut(number) else { return Ok(()) };
        if node.up {
            return Ok(());
        }
        node.up = true;
        node.replica = match &node.saved {
            None => self.builds.fresh(node.old),
            Some(snapshot) => self
                .builds
                .restored(snapshot, node.old)
                .map_err(|error| format!("a replica does not come back from its own snapshot: {error}"))?,
        };
        self.catch_up(number)
    }

    fn crash_client(&mut self) {
        let number = usize::try_from(self.dice.below(self.clients.len() as u64)).unwrap_or(0);
        let Some(client) = self.clients.get(number) else { return };
        self.tally += Tally { client_crashes: 1, ..Tally::default() };
        let incarnation = client.incarnation.saturating_add(1);
        let restored = client.saved.as_ref().and_then(|bytes| {
            ClientSession::restore(bytes, client_config(), Duration::from_millis(self.now)).ok()
        });
        let next = match restored {
            Some(session) => {
                self.tally += Tally { client_restores: 1, ..Tally::default() };
                if let Some(session) = session.session() {
                    self.owners.insert(session, (number, incarnation));
                }
                // What it had under way when it was saved goes on; what began since is unknown for ever.
                let under_way: Vec<RequestId> =
                    session.resend().filter_map(|message| request_of(&message)).collect();
                let began = client.began.iter().filter(|(request, _)| under_way.contains(request));
                let began = began.map(|(request, moment)| (*request, *moment)).collect();
                let saved = client.saved.clone();
                Client { session, saves: true, saved, began, incarnation }
            }
            None => self.new_client(client.saves, incarnation),
        };
        if let Some(client) = self.clients.get_mut(number) {
            *client = next;
        }
        let delay = self.dice.below(500);
        self.at(delay, Event::Wake { client: number, incarnation });
    }

    fn new_client(&self, saves: bool, incarnation: u64) -> Client {
        let session = ClientSession::open(client_config(), self.time());
        Client { session, saves, saved: None, began: BTreeMap::new(), incarnation }
    }

    /// No more faults: everybody comes back, and all must be settled.
    fn heal(&mut self) -> Result<(), Broken> {
        self.healed = true;
        self.clock = 0;
        for number in 0..self.nodes.len() {
            self.restart(number)?;
        }
        self.append(RaftAction::Configure { limits: Limits::default(), seed: None }, None);
        self.nudge_all();
        Ok(())
    }

    fn nudge_all(&mut self) {
        for client in 0..self.clients.len() {
            self.at(1, Event::Nudge { client });
        }
    }

    // The network.

    fn send(&mut self, packet: impl Fn() -> Event) {
        let copies = if self.healed {
            1
        } else if self.dice.percent(self.plan.lost) {
            self.tally += Tally { lost: 1, ..Tally::default() };
            0
        } else if self.dice.percent(self.plan.repeated) {
            self.tally += Tally { repeated: 1, ..Tally::default() };
            2
        } else {
            1
        };
        for _ in 0..copies {
            // A healed network keeps the order, too.
            let most = if self.healed { 0 } else { self.plan.delay };
            let delay = self.dice.below(most.saturating_add(1)).saturating_add(1);
            self.at(delay, packet());
        }
    }

    fn tell(&mut self, session: SessionId, message: &ServerMessage) {
        // To one that crashed since nothing is sent: a closing may speak to thousands of those.
        if let Some((client, incarnation)) = self.owners.get(&session).copied()
            && self.clients.get(client).is_some_and(|client| client.incarnation == incarnation)
        {
            self.send(|| Event::ToClient { client, incarnation, message: message.clone() });
        }
    }

    // What happens.

    fn handle(&mut self, event: Event) -> Result<(), Broken> {
        match event {
            Event::ToServer { client, incarnation, message } => self.serve(client, incarnation, message),
            Event::ToClient { client, incarnation, message } => {
                let now = self.time();
                if let Some(client) = self.clients.get_mut(client)
                    && client.incarnation == incarnation
                {
                    client.session.receive(now, message);
                }
                self.let_client_act(client)
            }
            Event::Wake { client, incarnation } => {
                if self.clients.get(client).is_some_and(|client| client.incarnation == incarnation) {
                    self.let_client_act(client)?;
                    let wake = self.clients.get(client).and_then(|client| client.session.next_wake());
                    let wake = wake.map_or(1_000, |wake| wake.saturating_sub(self.time()).as_millis());
                    let think = self.dice.below(40);
                    let delay = u64::try_from(wake).unwrap_or(1_000).clamp(1, think.max(5));
                    self.at(delay, Event::Wake { client, incarnation });
                }
                Ok(())
            }
            Event::Nudge { client } => self.let_client_act(client),
            Event::Commit { term } => {
                if term == self.term {
                    self.commit_scheduled = false;
                    self.committed = self.log.len();
                    self.catch_up(self.leader)?;
                    for node in 0..self.nodes.len() {
                        let delay = self.dice.below(200);
                        self.at(delay, Event::CatchUp { node });
                    }
                }
                Ok(())
            }
            Event::Appended { key, term, index } => {
                self.gate.appended(key, term, index);
                Ok(())
            }
            Event::CatchUp { node } => self.catch_up(node),
            Event::Restart { node } => self.restart(node),
            Event::Beat => {
                self.beat();
                self.at(50, Event::Beat);
                Ok(())
            }
        }
    }

    /// What a leader does by itself: keep-alives in one entry, ticks when a session is due, retries.
    fn beat(&mut self) {
        let Some(node) = self.nodes.get(self.leader) else { return };
        let now = Timestamp(self.now.saturating_add(self.clock));
        let due = node.replica.expiry_due().is_some_and(|due| due <= now);
        let replica = &node.replica;
        let retry = self.retries.poll(now, |before| replica.has_pending(before));
        if !self.alive.is_empty() {
            let sessions = std::mem::take(&mut self.alive).into_values().collect();
            self.append(RaftAction::KeepAlive { sessions }, None);
        } else if due {
            self.append(RaftAction::Tick, None);
        }
        if let Some(retry) = retry {
            self.append(retry, None);
        }
    }

    fn serve(&mut self, client: usize, incarnation: u64, message: ClientMessage) -> Result<(), Broken> {
        let Some(node) = self.nodes.get(self.leader) else { return Ok(()) };
        match message {
            ClientMessage::Create { attempt, capabilities } => {
                let position = node.replica.last_applied();
                let session = SessionId::draw(position, self.dice.below(u64::MAX));
                self.owners.insert(session, (client, incarnation));
                let action = RaftAction::SessionCreationConfirmed { session, capabilities };
                self.append(action, Some((client, attempt)));
            }
            ClientMessage::Continue { session } => {
                let open = node.replica.sessions().contains(&session);
                let closed = ServerMessage::Closed { session, reason: None };
                self.tell(session, &if open { ServerMessage::Continued { session } } else { closed });
            }
            ClientMessage::Request { session, request, lowest_pending, acked, payload } => {
                let key = SessionKey::new(session, request, &payload);
                match self.gate.admit(self.term, &key, node.replica.answer_to(&key)) {
                    Admit::Answered(result) => {
                        self.tally += Tally { duplicates: 1, ..Tally::default() };
                        self.alive.insert(session, Alive { session, lowest_pending, acked });
                        self.tell(session, &ServerMessage::answer(session, request, result));
                    }
                    Admit::InFlight { index } if index <= node.replica.last_applied() => {
                        return Err(format!(
                            "{request:?} of {session:?} has no answer and waits for entry {index}, which is past"
                        ));
                    }
                    Admit::InFlight { .. } => {}
                    Admit::Append => {
                        let action =
                            RaftAction::ClientRequest { session, request, lowest_pending, acked, payload };
                        let index = self.append(action, None);
                        self.report(key, index);
                    }
                }
            }
            ClientMessage::Query { .. } => {}
            ClientMessage::Ack { session, request } => {
                self.append(RaftAction::ServerRequestAck { session, request }, None);
            }
            ClientMessage::KeepAlive { session, lowest_pending, acked } => {
                self.alive.insert(session, Alive { session, lowest_pending, acked });
            }
            ClientMessage::Close { session } => {
                self.append(RaftAction::SessionExpired { session }, None);
            }
        }
        Ok(())
    }

    fn append(&mut self, action: RaftAction, creator: Option<(usize, u64)>) -> u64 {
        let time = Timestamp(self.now.saturating_add(self.clock));
        self.log.push(Logged { time, action, creator });
        self.schedule_commit();
        self.log.len() as u64
    }

    /// The gate is told of an append: at once, or so late that the entry may have been applied.
    fn report(&mut self, key: SessionKey, index: u64) {
        if !self.healed && self.dice.percent(self.plan.late_report) {
            let delay = self.dice.below(60);
            self.at(delay, Event::Appended { key, term: self.term, index });
        } else {
            self.gate.appended(key, self.term, index);
        }
    }

    /// One commit for all that is appended until then, as a leader that batches does.
    fn schedule_commit(&mut self) {
        if !std::mem::replace(&mut self.commit_scheduled, true) {
            let delay = self.dice.below(30).saturating_add(1);
            self.at(delay, Event::Commit { term: self.term });
        }
    }

    // The replicas.

    /// A replica applies what is committed and it has not applied yet.
    fn catch_up(&mut self, number: usize) -> Result<(), Broken> {
        loop {
            let Some(node) = self.nodes.get_mut(number).filter(|node| node.up) else { return Ok(()) };
            let position = usize::try_from(node.replica.last_applied()).unwrap_or(usize::MAX);
            let Some(entry) = self.log.get(position).filter(|_| position < self.committed).cloned() else {
                return Ok(());
            };
            let index = node.replica.last_applied().saturating_add(1);
            let before = node.replica.ran();
            match node.replica.apply(index, entry.time, entry.action.clone()) {
                Ok(out) => {
                    let ran = node.replica.ran().saturating_sub(before);
                    self.applied(number, index, &entry, out, ran)?;
                }
                Err(ApplyError::NeedsBuild { .. }) if node.old => {
                    self.tally += Tally { rebuilds: 1, ..Tally::default() };
                    let snapshot = node.replica.snapshot().map_err(|error| error.to_string())?;
                    node.old = false;
                    node.replica = self.builds.restored(&snapshot, false).map_err(|error| {
                        format!("a newer build does not go on from an older one: {error}")
                    })?;
                }
                Err(error) => return Err(format!("entry {index} cannot be applied: {error}")),
            }
        }
    }

    fn applied(
        &mut self,
        number: usize,
        index: u64,
        entry: &Logged,
        out: Vec<ServerAction>,
        ran: u64,
    ) -> Result<(), Broken> {
        let position = usize::try_from(index).unwrap_or(usize::MAX).saturating_sub(1);
        if let Some((before, ran_before)) = self.outputs.get(position) {
            if *before != out || *ran_before != ran {
                return Err(format!("replicas differ in what entry {index} gives: {before:?} and {out:?}"));
            }
        } else {
            self.judge.entry(index, entry.time, &entry.action, &out, ran)?;
            self.count(&entry.action, &out, ran);
            self.outputs.push((out.clone(), ran));
        }
        self.check_watermark(number, &entry.action)?;
        self.compare(number, index)?;
        if number == self.leader {
            self.gate.applied(index);
            self.publish(entry, out);
        }
        Ok(())
    }

    /// What clients no longer need is gone, whichever message said so.
    fn check_watermark(&self, number: usize, action: &RaftAction) -> Result<(), Broken> {
        let (one, several) = match action {
            RaftAction::ClientRequest { session, .. } => (Some(*session), [].as_slice()),
            RaftAction::KeepAlive { sessions } => (None, sessions.as_slice()),
            _ => return Ok(()),
        };
        let Some(node) = self.nodes.get(number) else { return Ok(()) };
        // Of a replica that is behind, all that can be said is what the furthest one was told.
        if node.replica.last_applied() != self.outputs.len() as u64 {
            return Ok(());
        }
        for session in one.into_iter().chain(several.iter().map(|alive| alive.session)) {
            let Some(watermark) = self.judge.watermark(session).filter(|watermark| watermark.0 > 1) else {
                continue;
            };
            let request = RequestId(watermark.0.saturating_sub(1));
            let key = SessionKey { session, request, payload_hash: 0 };
            if node.replica.answer_to(&key) != Some(Err(RequestError::ResponseEvicted)) {
                return Err(format!(
                    "{request:?} of {session:?} is still kept, and the client needs nothing below {watermark:?}"
                ));
            }
        }
        Ok(())
    }

    fn count(&mut self, action: &RaftAction, out: &[ServerAction], ran: u64) {
        let closed = out.iter().filter(|action| matches!(action, ServerAction::SessionClosed { .. })).count();
        let duplicate = matches!(action, RaftAction::ClientRequest { .. }) && ran == 0;
        self.tally += Tally {
            entries: 1,
            duplicates: u64::from(duplicate),
            sessions_closed: closed as u64,
            ..Tally::default()
        };
    }

    /// The leader sends what an entry gave.
    fn publish(&mut self, entry: &Logged, out: Vec<ServerAction>) {
        let acknowledges = match &entry.action {
            RaftAction::ServerRequestAck { .. } => true,
            RaftAction::ClientRequest { acked, .. } => acked.0 > 0,
            _ => false,
        };
        if acknowledges {
            self.retries.acknowledged();
        }
        for action in out {
            let answer = match (&action, entry.creator) {
                (ServerAction::SessionCreated { session }, Some((_, attempt))) => {
                    Some((*session, ServerMessage::Created { attempt, session: *session }))
                }
                (ServerAction::SessionRefused { session, reason }, Some((_, attempt))) => {
                    Some((*session, ServerMessage::Refused { attempt, reason: *reason }))
                }
                _ => ServerMessage::from_action(action),
            };
            if let Some((session, message)) = answer {
                self.tell(session, &message);
            }
        }
    }

    /// Every so many entries all replicas must hold the same bytes; and now and then one saves itself.
    fn compare(&mut self, number: usize, index: u64) -> Result<(), Broken> {
        let Some(node) = self.nodes.get_mut(number) else { return Ok(()) };
        let compares = index.is_multiple_of(COMPARE_EVERY);
        if !compares && !self.dice.percent(1) {
            return Ok(());
        }
        let snapshot = node.replica.snapshot().map_err(|error| error.to_string())?;
        let bytes = snapshot.to_bytes().map_err(|error| error.to_string())?;
        if compares {
            self.tally += Tally { comparisons: 1, ..Tally::default() };
            let digest = codec::payload_hash(&bytes);
            if *self.digests.entry(index).or_insert(digest) != digest {
                return Err(format!("replicas hold different dictionaries at index {index}"));
            }
        }
        if self.dice.percent(50) {
            node.saved = Some(Snapshot::from_bytes(&bytes).map_err(|error| error.to_string())?);
        }
        Ok(())
    }

    // The clients.

    fn let_client_act(&mut self, number: usize) -> Result<(), Broken> {
        self.note_events(number)?;
        let now = self.time();
        let more = !self.healed && self.started < self.plan.operations && self.dice.percent(60);
        let Some(client) = self.clients.get_mut(number) else { return Ok(()) };
        if more && client.session.session().is_some() {
            let payload = (self.commands)(&mut self.dice)?;
            self.counter = self.counter.saturating_add(1);
            // Else its window is full, or its reserved numbers are used up.
            if let Ok(request) = client.session.submit(now, payload) {
                self.started = self.started.saturating_add(1);
                client.began.insert(request, self.counter);
                let session = client.session.session();
                if session.is_some_and(|session| !self.used.insert((session, request))) {
                    return Err(format!("a client used {request:?} of {session:?} for a second command"));
                }
            }
        }
        if client.saves && (client.saved.is_none() || self.dice.percent(10)) {
            let reserve = self.dice.below(8).saturating_add(1);
            if let Ok(Some(bytes)) = client.session.save(reserve) {
                client.saved = Some(bytes);
                client.session.saved(now);
            }
        }
        let incarnation = client.incarnation;
        while let Some(message) = self.clients.get_mut(number).and_then(|client| client.session.poll(now)) {
            self.send(|| Event::ToServer { client: number, incarnation, message: message.clone() });
        }
        Ok(())
    }

    fn note_events(&mut self, number: usize) -> Result<(), Broken> {
        let now = self.time();
        loop {
            let Some(client) = self.clients.get_mut(number) else { return Ok(()) };
            let session = client.session.session();
            let Some(event) = client.session.event() else { return Ok(()) };
            match event {
                ClientEvent::Ended { request, result } => {
                    self.counter = self.counter.saturating_add(1);
                    let began = client.began.remove(&request);
                    self.ended(session, request, &result, began)?;
                }
                ClientEvent::ServerRequest { request, payload } => {
                    self.tally += Tally { deliveries: 1, ..Tally::default() };
                    let sent = session.and_then(|session| self.judge.sent(session, request));
                    if session.is_some() && sent != Some(codec::payload_hash(&payload)) {
                        return Err(format!(
                            "a client was given {request:?} of {session:?}, which was not sent so"
                        ));
                    }
                }
                ClientEvent::Closed { .. } => {
                    let incarnation = client.incarnation.saturating_add(1);
                    let saves = client.saves;
                    let fresh = Client {
                        session: ClientSession::open(client_config(), now),
                        saves,
                        saved: None,
                        began: BTreeMap::new(),
                        incarnation,
                    };
                    *client = fresh;
                    self.at(1, Event::Wake { client: number, incarnation });
                }
                _ => {}
            }
        }
    }

    fn ended(
        &mut self,
        session: Option<SessionId>,
        request: RequestId,
        result: &Result<Response, RequestError>,
        began: Option<u64>,
    ) -> Result<(), Broken> {
        let Some(session) = session else { return Ok(()) };
        let known = self.judge.answered(session, request);
        match (result, known) {
            (Ok(response), Some(answered)) if answered.result.as_ref() == Ok(response) => {
                self.tally += Tally { operations: 1, ..Tally::default() };
                if let Some(began) = began {
                    self.done.push(Done { began, ended: self.counter, index: answered.index });
                }
                Ok(())
            }
            (Ok(response), _) => Err(format!(
                "a client was told {response:?} about {request:?} of {session:?}, which is not what it was answered"
            )),
            (Err(RequestError::InvalidPayload | RequestError::Skipped), Some(answered))
                if answered.result == *result =>
            {
                Ok(())
            }
            // Only the answer that is kept makes it true that the request never runs.
            (Err(error @ (RequestError::InvalidPayload | RequestError::Skipped)), _) => Err(format!(
                "a client was told {error:?} about {request:?} of {session:?}, which is not what it was answered"
            )),
            _ => Ok(()),
        }
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
                    .is_some_and(|session| client.session.resend().next().is_none() && !self.owes(session))
            })
    }

    /// What is not settled, for people.
    fn unsettled(&self) -> String {
        let clients = self.clients.iter().map(|client| match client.session.session() {
            None => "a client has no session".to_owned(),
            Some(session) => format!(
                "{session:?} has {} requests without an answer and {} server requests not acknowledged",
                client.session.resend().count(),
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
        self.check_order()?;
        let mut bytes = None;
        for node in &self.nodes {
            let snapshot = node.replica.snapshot().map_err(|error| error.to_string())?;
            let these = snapshot.to_bytes().map_err(|error| error.to_string())?;
            if *bytes.get_or_insert_with(|| these.clone()) != these {
                return Err("replicas hold different dictionaries at the end".to_owned());
            }
        }
        self.close_all()
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

    /// Once all sessions are closed, nothing of them is left.
    fn close_all(&mut self) -> Result<(), Broken> {
        let Some(node) = self.nodes.get_mut(self.leader) else { return Ok(()) };
        let mut index = node.replica.last_applied();
        for session in node.replica.sessions() {
            index = index.saturating_add(1);
            let action = RaftAction::SessionExpired { session };
            let time = node.replica.time();
            let out = node.replica.apply(index, time, action.clone()).map_err(|error| error.to_string())?;
            self.judge.entry(index, time, &action, &out, 0)?;
        }
        let open = self.judge.open_sessions();
        let dictionary = node
            .replica
            .snapshot()
            .map_err(|error| error.to_string())?
            .dictionary()
            .map_err(|e| e.to_string())?;
        let left = dictionary.keys().find(|key| key.starts_with("session/id/"));
        match (open, left) {
            (0, None) => Ok(()),
            _ => Err(format!("all sessions are closed, and {open} are left, with the key {left:?}")),
        }
    }
}

fn client_config() -> ClientConfig {
    ClientConfig {
        window: 6,
        ack_delay: Duration::from_millis(20),
        keep_alive: Duration::from_millis(1_500),
        resend_after: Duration::from_millis(250),
        ..ClientConfig::default()
    }
}

fn request_of(message: &ClientMessage) -> Option<RequestId> {
    match message {
        ClientMessage::Request { request, .. } => Some(*request),
        _ => None,
    }
}

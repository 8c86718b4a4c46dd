//! Clients, a network that loses, repeats and reorders, the leader's gate and the machine, all together.

mod support;

use proptest::prelude::*;
use session_runtime::admission::{Admission, Admit};
use session_runtime::client::{
    ClientConfig, ClientEvent, ClientMessage, ClientSession, Execution, ServerMessage,
};
use session_runtime::{
    Alive, Command, Limits, Query, RaftAction, RequestError, RequestId, RetryDriver, RetryPolicy,
    ServerAction, SessionId, SessionKey, SessionStateMachine, Timestamp, codec,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use support::{Desk, DeskCommand, DeskQuery, Notice};

/// A run is a pure function of this.
#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    clients: usize,
    requests: u64,
    /// Percentages.
    lost: u64,
    repeated: u64,
    /// The longest a message travels, in milliseconds.
    delay: u64,
    /// After how many milliseconds the leader changes, over and over; what it had appended and not committed
    /// is lost.
    leader_change: u64,
    /// How many bytes of answers a session may hold: with few, clients are told that it is busy.
    cached_bytes: Option<u64>,
}

fn plans() -> impl Strategy<Value = Plan> {
    let cached_bytes = proptest::option::of(0..150u64);
    (any::<u64>(), 1..4usize, 1..12u64, 0..30u64, 0..50u64, 0..3_000u64, 500..20_000u64, cached_bytes)
        .prop_map(|(seed, clients, requests, lost, repeated, delay, leader_change, cached_bytes)| Plan {
            seed,
            clients,
            requests,
            lost,
            repeated,
            delay,
            leader_change,
            cached_bytes,
        })
}

/// A small generator of its own, so that a run needs nothing but its plan (`SplitMix64`).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// A message under way, to the server from a client or back.
#[derive(Clone, Debug)]
enum Packet {
    Up(usize, ClientMessage),
    Down(usize, ServerMessage),
}

/// What a client saw.
#[derive(Default)]
struct Seen {
    ended: BTreeMap<RequestId, Result<u64, RequestError>>,
    notices: Vec<u64>,
    /// How many of those notices a request asked for; the others tell of a session that was closed.
    news: u64,
    /// The requests it gave up after they were sent, and those before.
    abandoned: BTreeSet<RequestId>,
    withdrawn: BTreeSet<RequestId>,
    /// The queries it asked, and those that ended.
    asked: BTreeSet<u64>,
    told: BTreeSet<u64>,
    closed: u64,
}

impl Seen {
    fn note_events(&mut self, client: &mut ClientSession) {
        while let Some(event) = client.event() {
            match event {
                ClientEvent::Ended { request, result } => {
                    let result = result.map(|response| codec::payload_hash(&response.payload));
                    assert!(self.ended.insert(request, result).is_none(), "{request:?} ended twice");
                    assert!(!self.abandoned.contains(&request) && !self.withdrawn.contains(&request));
                }
                ClientEvent::ServerRequest { request, payload } => {
                    let notice = codec::decode::<Notice>(&payload).unwrap();
                    self.news += u64::from(notice == Notice::Text("news".to_owned()));
                    self.notices.push(request.0);
                }
                ClientEvent::QueryEnded { correlation, result } => {
                    assert!(result.is_ok() && self.told.insert(correlation), "{correlation} ended twice");
                }
                ClientEvent::Closed { .. } => self.closed += 1,
                ClientEvent::Opened { .. } | ClientEvent::Refused { .. } | ClientEvent::Redirected { .. } => {
                }
            }
        }
    }
}

/// An entry that is lost if the leader changes before it is committed.
struct Appended {
    index: u64,
    commits_at: u64,
    /// The client that asked for a session, and its attempt.
    creator: Option<(usize, u64)>,
    action: RaftAction,
}

struct World {
    plan: Plan,
    dice: Dice,
    now: u64,
    /// Packets by the moment of arrival; the second number keeps the order of those of one moment.
    network: BTreeMap<(u64, u64), Packet>,
    sent: u64,
    clients: Vec<(ClientSession, Seen)>,
    /// Which client opened which session.
    owners: BTreeMap<SessionId, usize>,
    machine: SessionStateMachine<Desk>,
    gate: Admission<SessionKey>,
    retries: RetryDriver,
    term: u64,
    index: u64,
    /// Appended and not committed yet.
    log: Vec<Appended>,
    /// How often each request was appended.
    appended: BTreeMap<(SessionId, RequestId), u64>,
}

impl World {
    fn new(plan: Plan) -> Self {
        let config = ClientConfig {
            window: 4,
            ack_delay: Duration::from_millis(30),
            keep_alive: Duration::from_secs(2),
            resend_after: Duration::from_millis(400),
            ..ClientConfig::default()
        };
        let clients = (0..plan.clients)
            .map(|_| (ClientSession::open(config.clone(), Duration::ZERO), Seen::default()))
            .collect();
        let limits = Limits { max_cached_bytes: plan.cached_bytes, ..Limits::default() };
        let mut machine = SessionStateMachine::new(Desk::default());
        machine.apply(1, Timestamp(0), RaftAction::Configure { limits, seed: None }).unwrap();
        Self {
            dice: Dice(plan.seed),
            plan,
            now: 0,
            network: BTreeMap::new(),
            sent: 0,
            clients,
            owners: BTreeMap::new(),
            machine,
            gate: Admission::new(),
            retries: RetryDriver::new(RetryPolicy { min_age: 500, max_age: 4_000, limit: 3 }),
            term: 1,
            index: 1,
            log: Vec::new(),
            appended: BTreeMap::new(),
        }
    }

    /// Hands a packet to the network. Once faults are over it neither loses nor repeats.
    fn send(&mut self, packet: &Packet, faults: bool) {
        let copies = match faults {
            true if self.dice.percent(self.plan.lost) => 0,
            true if self.dice.percent(self.plan.repeated) => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let delay = self.dice.below(self.plan.delay + 1) + 1;
            self.sent += 1;
            self.network.insert((self.now + delay, self.sent), packet.clone());
        }
    }

    /// The moment a request was appended and has not been applied, it stands in the log once only.
    fn append(&mut self, creator: Option<(usize, u64)>, action: RaftAction) -> u64 {
        self.index += 1;
        let commit = self.now + self.dice.below(200);
        self.log.push(Appended { index: self.index, commits_at: commit, creator, action });
        self.index
    }

    fn serve(&mut self, client: usize, message: ClientMessage, faults: bool) {
        match message {
            ClientMessage::Create { attempt, capabilities } => {
                let random = self.dice.below(u64::MAX);
                let session = SessionId::draw(self.machine.last_applied(), random);
                let action = RaftAction::SessionCreationConfirmed { session, capabilities };
                self.append(Some((client, attempt)), action);
            }
            ClientMessage::Request { session, request, lowest_pending, acked, payload } => {
                let key = SessionKey::new(session, request, &payload);
                match self.gate.admit(self.term, &key, self.machine.answer_to(&key)) {
                    Admit::Answered(result) => {
                        let alive = vec![Alive { session, lowest_pending, acked }];
                        self.append(None, RaftAction::KeepAlive { sessions: alive });
                        let answer = ServerMessage::answer(session, request, result);
                        self.send(&Packet::Down(client, answer), faults);
                    }
                    Admit::InFlight { index } => {
                        assert!(
                            self.log.iter().any(|entry| entry.index == index),
                            "nobody waits for what is past"
                        );
                    }
                    Admit::Append => {
                        let action =
                            RaftAction::ClientRequest { session, request, lowest_pending, acked, payload };
                        let index = self.append(None, action);
                        *self.appended.entry((session, request)).or_default() += 1;
                        self.gate.appended(key, self.term, index);
                    }
                }
            }
            ClientMessage::Query { correlation, payload } => {
                let result = self.machine.query(&payload).map_err(|error| error.to_string());
                self.send(
                    &Packet::Down(client, ServerMessage::QueryResponse { correlation, result }),
                    faults,
                );
            }
            // The `Closed` that its closing gave may be lost: whoever still speaks in its name is told again.
            ClientMessage::Ack { session, .. }
            | ClientMessage::KeepAlive { session, .. }
            | ClientMessage::Continue { session }
            | ClientMessage::Close { session }
                if !self.machine.is_open(session) =>
            {
                let closed = ServerMessage::Closed { session, reason: None };
                self.send(&Packet::Down(client, closed), faults);
            }
            ClientMessage::Ack { session, request } => {
                self.append(None, RaftAction::ServerRequestAck { session, request });
            }
            ClientMessage::KeepAlive { session, lowest_pending, acked } => {
                let sessions = vec![Alive { session, lowest_pending, acked }];
                self.append(None, RaftAction::KeepAlive { sessions });
            }
            ClientMessage::Continue { session } => {
                self.send(&Packet::Down(client, ServerMessage::Continued { session }), faults);
            }
            ClientMessage::Close { session } => {
                self.append(None, RaftAction::SessionExpired { session });
            }
        }
    }

    /// Commits and applies what is due, in order.
    fn commit(&mut self, faults: bool) {
        while self.log.first().is_some_and(|entry| entry.commits_at <= self.now) {
            let Appended { index, creator, action, .. } = self.log.remove(0);
            let acknowledges = match &action {
                RaftAction::ServerRequestAck { .. } => true,
                RaftAction::ClientRequest { acked, .. } => acked.0 > 0,
                _ => false,
            };
            if acknowledges {
                self.retries.acknowledged();
            }
            let out = self.machine.apply(index, Timestamp(self.now), action).unwrap();
            self.gate.applied(index);
            for action in out {
                if let (ServerAction::SessionCreated { session }, Some((client, attempt))) =
                    (&action, creator)
                {
                    self.owners.insert(*session, client);
                    let created = ServerMessage::Created { attempt, session: *session };
                    self.send(&Packet::Down(client, created), faults);
                }
                if let Some((session, message)) = ServerMessage::from_action(action)
                    && let Some(client) = self.owners.get(&session).copied()
                {
                    self.send(&Packet::Down(client, message), faults);
                }
            }
        }
    }

    /// Another leader: what was not committed is gone, and every client connects anew.
    fn change_leader(&mut self) {
        self.term += 1;
        let keep = usize::try_from(self.dice.below(self.log.len() as u64 + 1)).unwrap();
        self.log.truncate(keep);
        self.index = self.log.last().map_or(self.machine.last_applied(), |entry| entry.index);
        for (client, _) in &mut self.clients {
            client.reconnected(Duration::from_millis(self.now));
        }
    }

    /// A client asks, if its window allows, and says what it has to say.
    fn let_client_act(&mut self, number: usize, faults: bool) {
        let now = Duration::from_millis(self.now);
        let (client, seen) = &mut self.clients[number];
        if let Some(session) = client.session()
            && faults
            && self.dice.percent(10)
        {
            let command = match self.dice.below(3) {
                0 => DeskCommand::Notify { to: session, text: "news".to_owned() },
                1 => DeskCommand::Add { amount: 1 },
                _ => DeskCommand::Note,
            };
            if seen.ended.len() as u64 + client.pending().count() as u64 <= self.plan.requests {
                client.submit(now, command.encode()).ok();
            }
            if self.dice.percent(10) {
                let query = Query::encode(&DeskQuery::Total);
                seen.asked.extend(client.query(now, query).ok());
            }
            if self.dice.percent(10)
                && let Some(request) = client.pending().last()
            {
                match client.abandon(request) {
                    Execution::Never => seen.withdrawn.insert(request),
                    _ => seen.abandoned.insert(request),
                };
            }
        }
        seen.note_events(client);
        let mut packets = Vec::new();
        while let Some(message) = client.poll(now) {
            packets.push(Packet::Up(number, message));
        }
        for packet in packets {
            self.send(&packet, faults);
        }
    }

    /// One step of ten milliseconds.
    fn step(&mut self, faults: bool) {
        self.now += 10;
        if faults && self.now % self.plan.leader_change < 10 {
            self.change_leader();
        }
        for number in 0..self.clients.len() {
            self.let_client_act(number, faults);
        }
        while let Some(entry) = self.network.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            match entry.remove() {
                Packet::Up(client, message) => {
                    let message = ClientMessage::decode(&message.encode().unwrap()).unwrap();
                    self.serve(client, message, faults);
                }
                Packet::Down(client, message) => {
                    let message = ServerMessage::decode(&message.encode().unwrap()).unwrap();
                    self.clients[client].0.receive(Duration::from_millis(self.now), message);
                }
            }
        }
        let machine = &self.machine;
        let retry = self.retries.poll(Timestamp(self.now), |before| machine.has_pending_requests(before));
        if let Some(action) = retry {
            self.append(None, action);
        }
        self.commit(faults);
    }

    /// What an idle timeout would do: a client that never heard of a session of its own, or whose goodbye to it was
    /// lost, never speaks for it, and what is pending there would be sent again for ever.
    fn close_surplus(&mut self) {
        let has_another = |session: &SessionId, client: usize| {
            self.clients[client].0.session().is_some_and(|own| own != *session)
        };
        let surplus: Vec<SessionId> = self
            .owners
            .iter()
            .filter(|(session, client)| has_another(session, **client))
            .map(|(s, _)| *s)
            .collect();
        for session in surplus {
            self.append(None, RaftAction::SessionExpired { session });
        }
    }

    fn is_settled(&self) -> bool {
        self.network.is_empty()
            && self.log.is_empty()
            && self.clients.iter().all(|(client, seen)| {
                client.session().is_some() && client.pending().count() == 0 && seen.asked == seen.told
            })
            && self.owners.keys().all(|session| {
                let live = self.clients.iter().any(|(client, _)| client.session() == Some(*session));
                !live || self.machine.pending_requests(*session).count() == 0
            })
    }
}

/// Faults for a while, then none until all is settled.
fn run(plan: Plan) -> World {
    let mut world = World::new(plan);
    for _ in 0..3_000 {
        world.step(true);
    }
    world.close_surplus();
    for _ in 0..20_000 {
        if world.is_settled() {
            break;
        }
        world.step(false);
    }
    for (client, seen) in &mut world.clients {
        seen.note_events(client);
    }
    assert!(
        world.is_settled(),
        "every call ends and every server request is acknowledged once the faults are over"
    );
    world
}

proptest! {
    #[test]
    fn every_call_ends_once_and_runs_exactly_once_and_every_notice_comes_once_in_order(plan in plans()) {
        let world = run(plan);
        // Each `Add` adds 1 and each `Note` writes a line: what ran is what was answered.
        let mut answered = 0;
        for (client, seen) in &world.clients {
            let session = client.session().unwrap();
            prop_assert!(seen.ended.values().all(Result::is_ok), "{:?}", seen.ended);
            // One that was given up runs to its end all the same, and one that was never sent never does.
            answered += (seen.ended.len() + seen.abandoned.len()) as u64;
            prop_assert_eq!(&seen.notices, &(1..=seen.notices.len() as u64).collect::<Vec<_>>());
            prop_assert_eq!(world.machine.pending_requests(session).count(), 0);
        }
        let notes = world.machine.machine().journal.iter().filter(|line| line.contains(" at ")).count() as u64;
        let news: u64 = world.clients.iter().map(|(_, seen)| seen.news).sum();
        prop_assert_eq!(world.machine.machine().total + notes + news, answered);
        let sessions: BTreeSet<SessionId> = world.machine.sessions().collect();
        prop_assert!(world.clients.iter().all(|(client, _)| sessions.contains(&client.session().unwrap())));
    }

    #[test]
    fn every_goodbye_is_heard_and_answered(plan in plans()) {
        let mut world = run(Plan { requests: 1, ..plan });
        let sessions: Vec<SessionId> =
            world.clients.iter().filter_map(|(client, _)| client.session()).collect();
        let now = Duration::from_millis(world.now);
        for (client, _) in &mut world.clients {
            client.close(now);
        }
        for step in 0..20_000 {
            if world.clients.iter().all(|(client, _)| client.session().is_none()) {
                break;
            }
            world.step(step < 1_000);
        }
        for (client, seen) in &mut world.clients {
            seen.note_events(client);
            prop_assert_eq!((client.session(), seen.closed), (None, 1));
        }
        prop_assert!(sessions.into_iter().all(|session| !world.machine.is_open(session)));
    }
}

#[test]
fn a_retried_request_reaches_the_log_once_while_one_leader_leads() {
    let plan = Plan {
        seed: 7,
        clients: 3,
        requests: 10,
        lost: 25,
        repeated: 50,
        delay: 1_500,
        leader_change: u64::MAX,
        cached_bytes: None,
    };
    let world = run(plan);
    let requests: u64 = world.clients.iter().map(|(_, seen)| seen.ended.len() as u64).sum();
    assert!(requests >= 20, "{requests} requests");
    assert!(world.sent > 5 * requests, "they were sent again and again: {} packets", world.sent);
    for (request, count) in &world.appended {
        assert_eq!(*count, 1, "{request:?}");
    }
}

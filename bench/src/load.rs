//! Many sessions under everything at once - requests, copies, server requests, acknowledgments, expiry, snapshots,
//! restores - with every output checked against what the clients know. A run is a function of its [`Plan`].

mod clients;
mod office;

use clients::{Asked, Client, Clients};
use office::{Office, OfficeCommand};
use session_runtime::testing::Dice;
use session_runtime::{
    Alive, Bytes, CloseReason, Command, Limits, RaftAction, RefuseReason, RequestError, RequestId, Response,
    ServerAction, ServerRequestId, SessionId, SessionStateMachine, Snapshot, Timestamp, codec,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

/// How many server requests a session may have pending.
const MAX_PENDING: u64 = 8;
/// How many sessions an entry closes at most.
const MAX_CLOSINGS: u64 = 1024;
/// For how many entries a closed id is remembered.
const MAX_AGE: u64 = 65_536;
/// How many server requests a retry returns at most.
const RETRIES: u32 = 64;
/// How many sessions one keep-alive names.
const ALIVE: u64 = 16;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How many sessions are open at once, when all are.
    pub sessions: usize,
    /// How many entries there are before all sessions are closed.
    pub entries: u64,
    /// How often the machine goes through a snapshot.
    pub snapshots: u64,
    /// Where chance comes from.
    pub seed: u64,
}

/// What happened.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)] // each is what it says, and printed under its name
pub struct Figures {
    pub entries: u64,
    pub most_open: u64,
    pub opened: u64,
    pub requests: u64,
    pub copies: u64,
    pub evicted: u64,
    pub mismatches: u64,
    pub too_late: u64,
    pub refused: u64,
    pub told: u64,
    pub told_again: u64,
    pub acks: u64,
    pub alive: u64,
    pub expired: u64,
    pub idle: u64,
    pub slow: u64,
    pub restored: u64,
    pub replicas: u64,
    /// The heap before the run, when most sessions were open, and when all were closed.
    pub heap: [usize; 3],
}

impl Figures {
    /// By how much the heap is larger at the end than before the run.
    pub fn left(&self) -> usize {
        self.heap[2].saturating_sub(self.heap[0])
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = [
            (self.entries, "entries"),
            (self.most_open, "sessions open at once"),
            (self.opened, "sessions opened"),
            (self.requests, "requests, each executed once"),
            (self.copies, "copies, each answered with the same bytes"),
            (self.evicted, "copies below the watermark, each refused"),
            (self.mismatches, "other payloads under a known number, each refused"),
            (self.too_late, "requests to closed sessions, each refused"),
            (self.refused, "creations of closed ids, each refused"),
            (self.told, "server requests, numbered without gaps"),
            (self.told_again, "server requests sent again"),
            (self.acks, "acknowledgments by themselves"),
            (self.alive, "signs of life"),
            (self.expired, "sessions closed by their clients"),
            (self.idle, "sessions closed as idle"),
            (self.slow, "sessions closed as slow consumers"),
            (self.restored, "times the machine was replaced by what its snapshot restored"),
            (self.replicas, "replicas made of a snapshot written meanwhile, equal in every byte"),
        ];
        for (figure, what) in rows {
            writeln!(f, "{figure:>14} {what}")?;
        }
        let [before, most, after] = self.heap;
        writeln!(
            f,
            "{before:>14} bytes of heap before, {most} when most sessions were open, {after} at the end"
        )
    }
}

/// Runs all of it, and panics at the first output that is not what it must be. `heap` tells what is allocated;
/// `progress` is told of every entry.
pub fn run(plan: &Plan, heap: impl Fn() -> usize, mut progress: impl FnMut(u64)) -> Figures {
    let before = heap();
    let mut load = Load::new(plan);
    let every = plan.entries.div_ceil(plan.snapshots + 1);
    let mut most = 0;
    while load.index < plan.entries {
        load.step();
        if load.index.is_multiple_of(every) {
            most = most.max(heap());
            load.go_through_a_snapshot(every / 10);
        }
        progress(load.index);
    }
    load.close_all();
    let (machine, mut figures) = load.finish();
    figures.heap = [before, most, heap()];
    drop(machine);
    figures
}

struct Load {
    plan: Plan,
    machine: SessionStateMachine<Office>,
    clients: Clients,
    /// Sessions closed lately.
    gone: VecDeque<SessionId>,
    dice: Dice,
    index: u64,
    time: u64,
    idle_timeout: u64,
    /// The session that this entry closes.
    expiring: Option<SessionId>,
    out: Vec<ServerAction>,
    /// What was applied since a snapshot, if somebody wants to know.
    log: Option<Vec<(u64, Timestamp, RaftAction)>>,
    figures: Figures,
}

impl Load {
    fn new(plan: &Plan) -> Self {
        // An entry is a millisecond, and a session has its turn after as many entries as there are sessions.
        let idle_timeout = 4 * plan.sessions as u64;
        let mut load = Self {
            plan: *plan,
            machine: SessionStateMachine::new(Office::default()),
            clients: Clients::default(),
            gone: VecDeque::new(),
            dice: Dice::new(plan.seed),
            index: 0,
            time: 0,
            idle_timeout,
            expiring: None,
            out: Vec::new(),
            log: None,
            figures: Figures::default(),
        };
        let limits = Limits {
            idle_timeout: Some(idle_timeout),
            max_sessions: u32::try_from(plan.sessions).ok(),
            max_pending_requests: u32::try_from(MAX_PENDING).ok(),
            ..Limits::default()
        };
        load.advance();
        assert_eq!(load.apply(RaftAction::Configure { limits, seed: None }), None);
        load
    }

    /// One entry of any kind.
    fn step(&mut self) {
        self.advance();
        if self.clients.len() < self.plan.sessions && self.dice.percent(50) {
            return self.open();
        }
        let Some(session) = self.clients.pick(&mut self.dice) else { return self.open() };
        match self.dice.below(100) {
            0..50 => self.request(session),
            50..72 => self.copy(session),
            72..74 => self.other_payload(session),
            74..82 => self.ack(session),
            82..86 => self.keep_alive(),
            86..90 => self.retry(),
            90..92 => self.expire(session),
            92..94 => self.request_of_closed(),
            94..96 => self.open_closed(),
            96..98 => self.open_again(session),
            _ => assert_eq!(self.apply(RaftAction::Tick), None),
        }
    }

    /// The next entry's place in the log, and its time.
    fn advance(&mut self) {
        self.index += 1;
        self.time += self.dice.below(3);
    }

    /// Applies an entry, checks what it sends to clients that did not ask and what it closes, and returns the answer.
    fn apply(&mut self, action: RaftAction) -> Option<ServerAction> {
        self.figures.entries += 1;
        if let Some(log) = &mut self.log {
            log.push((self.index, Timestamp(self.time), action.clone()));
        }
        let again = matches!(action, RaftAction::GetRequestsForRetry { .. });
        let mut out = std::mem::take(&mut self.out);
        let applied = self.machine.apply_into(self.index, Timestamp(self.time), action, &mut out);
        assert_eq!(applied, Ok(()), "entry {}", self.index);
        let (mut answer, mut closings) = (None, 0);
        for action in out.drain(..) {
            match action {
                ServerAction::SendServerRequest { session, request, .. } => {
                    self.told(session, request, again);
                }
                ServerAction::SessionClosed { session, reason } => {
                    closings += 1;
                    self.closed(session, reason);
                }
                other => assert_eq!(answer.replace(other), None, "two answers to entry {}", self.index),
            }
        }
        self.out = out;
        let left = self.machine.expiry_due().is_some_and(|due| due.0 <= self.time);
        assert!(!left || closings >= MAX_CLOSINGS, "entry {} left sessions that were due", self.index);
        answer
    }

    /// A client is sent a server request: the next one, or one again that it has not acknowledged.
    fn told(&mut self, session: SessionId, request: ServerRequestId, again: bool) {
        let client = self.clients.get_mut(session).expect("only open sessions are told anything");
        if again && request.0 <= client.told {
            assert!(request.0 > client.acked, "it was acknowledged");
            self.figures.told_again += 1;
        } else {
            client.told += 1;
            assert_eq!(request.0, client.told, "the numbers have no gaps");
            self.figures.told += 1;
        }
    }

    fn closed(&mut self, session: SessionId, reason: CloseReason) {
        let client = self.clients.remove(session).expect("it is closed once");
        match reason {
            CloseReason::Expired => {
                assert_eq!(self.expiring.take(), Some(session));
                self.figures.expired += 1;
            }
            CloseReason::Idle => {
                assert!(
                    client.last_active + self.idle_timeout < self.time,
                    "it was not idle for long enough"
                );
                self.figures.idle += 1;
            }
            CloseReason::SlowConsumer => {
                assert_eq!(client.pending(), MAX_PENDING, "it has room for more");
                self.figures.slow += 1;
            }
            CloseReason::Evicted => panic!("nobody is to be evicted"),
        }
        self.gone.push_back(session);
        if self.gone.len() > 64 {
            self.gone.pop_front();
        }
    }

    fn open(&mut self) {
        let session = SessionId::draw(self.index - 1, self.dice.below(u64::MAX));
        self.clients.add(Client::new(session, self.time));
        self.figures.opened += 1;
        self.figures.most_open = self.figures.most_open.max(self.clients.len() as u64);
        self.open_again(session);
    }

    /// A registration, or a copy of it, which is no sign of life.
    fn open_again(&mut self, session: SessionId) {
        let capabilities = [("name".to_owned(), "a client".to_owned())].into();
        let answer = self.apply(RaftAction::SessionCreationConfirmed { session, capabilities });
        assert_eq!(answer, Some(ServerAction::SessionCreated { session }));
    }

    fn open_closed(&mut self) {
        let session = self.dice.pick(self.gone.make_contiguous()).copied();
        let Some(session) = session.filter(|session| session.position() + MAX_AGE >= self.index) else {
            return assert_eq!(self.apply(RaftAction::Tick), None);
        };
        let action = RaftAction::SessionCreationConfirmed { session, capabilities: BTreeMap::new() };
        let refused = ServerAction::SessionRefused { session, reason: RefuseReason::Closed };
        assert_eq!(self.apply(action), Some(refused));
        self.figures.refused += 1;
    }

    fn request(&mut self, session: SessionId) {
        let tell = if self.dice.percent(30) { self.clients.pick(&mut self.dice) } else { None };
        let client = self.clients.get_mut(session).expect("it was picked");
        client.last_active = self.time;
        let number = client.fresh_number(&mut self.dice);
        let lowest = client.lowest_pending(number, &mut self.dice);
        let acked = client.acknowledge(&mut self.dice);
        client.worked += 1;
        let worked = client.worked;
        let target = tell.and_then(|to| self.clients.get(to));
        let told = target.filter(|target| target.pending() < MAX_PENDING).map(|target| target.told + 1);
        let fresh = Asked { number, tell, answer: (worked, told) };
        let answer = self.apply(request(session, number, lowest, acked, work(tell)));
        assert_eq!(answer, Some(response(session, &fresh)));
        assert!(
            told.is_some() || tell.is_none_or(|to| self.clients.get(to).is_none()),
            "a slow consumer is closed"
        );
        if let Some(client) = self.clients.get_mut(session) {
            client.remember(fresh);
        }
        self.figures.requests += 1;
    }

    /// A copy of a request, with what the client knows by now.
    fn copy(&mut self, session: SessionId) {
        let client = self.clients.get_mut(session).expect("it was picked");
        let Some(earlier) = client.recall(&mut self.dice) else { return self.request(session) };
        client.last_active = self.time;
        let (lowest, acked) = (RequestId(client.watermark), client.acknowledge(&mut self.dice));
        let answer = self.apply(request(session, earlier.number, lowest, acked, work(earlier.tell)));
        if RequestId(earlier.number) < lowest {
            assert_eq!(answer, Some(error(session, earlier.number, RequestError::ResponseEvicted)));
            self.figures.evicted += 1;
        } else {
            assert_eq!(answer, Some(response(session, &earlier)));
            self.figures.copies += 1;
        }
    }

    fn other_payload(&mut self, session: SessionId) {
        let client = self.clients.get_mut(session).expect("it was picked");
        let earlier = client.recall(&mut self.dice).filter(|earlier| earlier.number >= client.watermark);
        let Some(earlier) = earlier else { return self.request(session) };
        client.last_active = self.time;
        let (lowest, acked) = (RequestId(client.watermark), ServerRequestId(client.acked));
        let other = work(if earlier.tell.is_some() { None } else { Some(session) });
        let answer = self.apply(request(session, earlier.number, lowest, acked, other));
        assert_eq!(answer, Some(error(session, earlier.number, RequestError::RequestMismatch)));
        self.figures.mismatches += 1;
    }

    fn request_of_closed(&mut self) {
        let Some(&session) = self.dice.pick(self.gone.make_contiguous()) else {
            return assert_eq!(self.apply(RaftAction::Tick), None);
        };
        let answer = self.apply(request(session, 1, RequestId(1), ServerRequestId(0), work(None)));
        assert_eq!(answer, Some(error(session, 1, RequestError::SessionExpired)));
        self.figures.too_late += 1;
    }

    fn ack(&mut self, session: SessionId) {
        let client = self.clients.get_mut(session).expect("it was picked");
        client.last_active = self.time;
        let request = client.acknowledge(&mut self.dice);
        assert_eq!(self.apply(RaftAction::ServerRequestAck { session, request }), None);
        let pending = self.machine.pending_requests(session).map(|pending| pending.id.0);
        let expected = self.clients.get(session).map_or(0..0, |client| client.acked + 1..client.told + 1);
        assert!(pending.eq(expected), "what is pending is what was not acknowledged");
        self.figures.acks += 1;
    }

    fn keep_alive(&mut self) {
        let mut sessions = Vec::new();
        for _ in 0..ALIVE {
            let picked = self.clients.pick(&mut self.dice).and_then(|session| self.clients.get_mut(session));
            let Some(client) = picked else { continue };
            client.last_active = self.time;
            let acked = client.acknowledge(&mut self.dice);
            sessions.push(Alive { session: client.id, lowest_pending: RequestId(client.watermark), acked });
        }
        self.figures.alive += sessions.len() as u64;
        assert_eq!(self.apply(RaftAction::KeepAlive { sessions }), None);
    }

    fn retry(&mut self) {
        let last_sent_before = Timestamp(self.time.saturating_sub(self.idle_timeout / 8));
        let before = self.figures.told_again;
        let due = self.machine.has_pending_requests(last_sent_before);
        let retry = RaftAction::GetRequestsForRetry { last_sent_before, limit: RETRIES };
        assert_eq!(self.apply(retry), None);
        let again = self.figures.told_again - before;
        assert!(again <= u64::from(RETRIES) && (again > 0) == due, "{again} were due");
    }

    fn expire(&mut self, session: SessionId) {
        self.expiring = Some(session);
        assert_eq!(self.apply(RaftAction::SessionExpired { session }), None);
        assert_eq!(self.expiring, None, "it is closed");
    }

    /// In turn: the machine goes on from what it was written as; or a snapshot is written on another thread while the
    /// machine goes on for some entries, and a replica made of it catches up.
    fn go_through_a_snapshot(&mut self, entries: u64) {
        self.check_sums();
        if self.figures.restored <= self.figures.replicas {
            self.machine = restored(&bytes(&self.machine));
            self.figures.restored += 1;
            return;
        }
        let snapshot = self.machine.snapshot().expect("it is not halted");
        let writer = std::thread::spawn(move || snapshot.to_bytes().expect("it can be written"));
        self.log = Some(Vec::new());
        for _ in 0..entries {
            self.step();
        }
        let mut replica = restored(&writer.join().expect("nothing panics"));
        for (index, time, action) in self.log.take().unwrap_or_default() {
            replica.apply(index, time, action).expect("it was applied before");
        }
        assert!(bytes(&replica) == bytes(&self.machine), "two replicas of one log differ");
        self.figures.replicas += 1;
    }

    /// Whatever the machine counts, the clients have counted, too.
    fn check_sums(&mut self) {
        let open: BTreeSet<SessionId> = self.clients.iter().map(|client| client.id).collect();
        assert!(self.machine.sessions().eq(open), "the open sessions");
        let worked: u64 = self.clients.iter().map(|client| client.worked).sum();
        let sums = Response::accepted(&(worked, self.figures.requests)).expect("it can be encoded");
        self.advance();
        let answer = self.apply(RaftAction::InternalCommand { payload: OfficeCommand::Sum.encode() });
        assert_eq!(answer, Some(ServerAction::InternalResponse { result: Ok(sums) }));
    }

    /// Half of the sessions are closed by their clients, and the others when they were idle for long enough.
    fn close_all(&mut self) {
        let half: Vec<SessionId> = self.clients.iter().map(|client| client.id).step_by(2).collect();
        for session in half {
            self.advance();
            if self.clients.get(session).is_some() {
                self.expire(session);
            } else {
                assert_eq!(self.apply(RaftAction::Tick), None);
            }
        }
        self.time += self.idle_timeout + 1;
        while self.clients.len() > 0 {
            let before = self.clients.len() as u64;
            self.advance();
            assert_eq!(self.apply(RaftAction::Tick), None);
            assert_eq!(before - self.clients.len() as u64, before.min(MAX_CLOSINGS));
        }
        for _ in 0..=MAX_AGE {
            self.advance();
            assert_eq!(self.apply(RaftAction::Tick), None);
        }
        self.check_sums();
        let snapshot = self.machine.snapshot().expect("it is not halted");
        let dictionary = snapshot.dictionary().expect("it can be written");
        assert!(!dictionary.keys().any(|key| key.starts_with("session/id/")), "no session is left");
        let nothing = codec::encode(&BTreeSet::<SessionId>::new()).expect("it can be encoded");
        assert_eq!(dictionary.get("session/closed"), Some(&nothing), "no closed id is remembered");
    }

    /// The machine alone: whatever the clients knew is dropped.
    fn finish(self) -> (SessionStateMachine<Office>, Figures) {
        (self.machine, self.figures)
    }
}

fn request(
    session: SessionId,
    number: u64,
    lowest_pending: RequestId,
    acked: ServerRequestId,
    payload: Bytes,
) -> RaftAction {
    RaftAction::ClientRequest { session, request: RequestId(number), lowest_pending, acked, payload }
}

fn work(tell: Option<SessionId>) -> Bytes {
    OfficeCommand::Work { tell }.encode()
}

fn response(session: SessionId, asked: &Asked) -> ServerAction {
    let response = Response::accepted(&asked.answer).expect("it can be encoded");
    ServerAction::SendResponse { session, request: RequestId(asked.number), response }
}

fn error(session: SessionId, number: u64, error: RequestError) -> ServerAction {
    ServerAction::SendRequestError { session, request: RequestId(number), error }
}

fn bytes(machine: &SessionStateMachine<Office>) -> Vec<u8> {
    machine.snapshot().expect("it is not halted").to_bytes().expect("it can be written")
}

fn restored(bytes: &[u8]) -> SessionStateMachine<Office> {
    let snapshot = Snapshot::from_bytes(bytes).expect("it was written");
    SessionStateMachine::restore(&snapshot).expect("it was captured")
}

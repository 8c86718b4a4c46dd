//! Every history of a small scope, against the naive model: two sessions with three requests each, which are sent,
//! repeated, reordered and sent again, acknowledged and expired, while the machine is restored from snapshots and
//! leaders change. What random histories hit by luck is here hit by counting.
//!
//! `SESSION_EXHAUSTIVE_DEPTH` sets how many moves a history has, `SESSION_EXHAUSTIVE_PLAIN_DEPTH` the same for the
//! enumeration that takes no short cut. Each test prints what it tried.

mod model;
mod support;

use model::Model;
use session_runtime::{
    Command, RaftAction, RequestError, RequestId, Response, ServerAction, SessionId, SessionKey,
    SessionStateMachine, Snapshot, Timestamp, codec,
};
use std::collections::HashMap;
use std::time::Instant;
use support::{Desk, DeskCommand, ack, create_with, expire, id, request_with};
use xxhash_rust::xxh3::Xxh3;

const SESSIONS: usize = 2;
const REQUESTS: usize = 3;
/// All entries are of one moment: time is what the random histories are for.
const TIME: Timestamp = Timestamp(1);
/// A move appends two entries at most, and stands at indices that depend on nothing but its place in the history.
const ENTRIES: u64 = 2;

/// What may happen next. Sessions and requests by their places, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    /// A client's next request reaches the leader and is proposed.
    Send(usize),
    /// A client's next request stays in the network.
    Hold(usize),
    /// A request arrives, as it was first sent: once more, or late.
    Arrive(usize, usize),
    /// A request without an answer is sent again, with what the client now knows.
    Resend(usize, usize),
    /// A client receives all that was published for it, and acknowledges.
    Ack(usize),
    Expire(usize),
    /// A copy of the registration arrives.
    Register(usize),
    /// The machine is replaced by what its snapshot restores.
    Restore,
    /// A leader change loses the last proposal, which was not committed.
    Lose,
    /// A leader change appends the last proposal twice.
    Double,
}

/// What a client knows.
#[derive(Clone, Default)]
struct Client {
    /// What each request said of the lowest pending and the acknowledged when it was first sent.
    sent: Vec<(u64, u64)>,
    /// The requests it has an answer to, and those that were answered.
    answered: [bool; REQUESTS],
    published: [bool; REQUESTS],
    /// The last server request it has, and the last that was sent to it.
    delivered: u64,
    pushed: u64,
}

impl Client {
    fn lowest_pending(&self) -> u64 {
        let pending = (0..self.sent.len()).find(|which| !self.answered[*which]);
        number(pending.unwrap_or(self.sent.len())).0
    }

    /// What a message of this client says now.
    fn says(&self) -> (u64, u64) {
        (self.lowest_pending(), self.delivered)
    }

    fn has_news(&self) -> bool {
        self.answered != self.published || self.delivered != self.pushed
    }
}

/// What was done to the real machine, to do it again.
#[derive(Clone)]
enum Deed {
    Apply(u64, RaftAction),
    Restore,
}

/// A state of everything, reached by some history.
#[derive(Clone)]
struct World {
    history: Vec<Move>,
    deeds: Vec<Deed>,
    model: Model,
    clients: [Client; SESSIONS],
    /// The last proposal, not committed yet.
    tail: Option<RaftAction>,
}

/// A history on which machine and model differ.
type Difference = String;

fn session(place: usize) -> SessionId {
    id(place as u64 + 1)
}

fn number(which: usize) -> RequestId {
    RequestId(which as u64 + 1)
}

/// Answers that depend on what ran before, and pushes to both sessions.
fn command(place: usize, which: usize) -> DeskCommand {
    match which {
        0 => DeskCommand::Add { amount: 3 + place as u64 },
        1 => DeskCommand::Shout(format!("from {place}")),
        _ => DeskCommand::Take { amount: 5 },
    }
}

fn request(place: usize, which: usize, (lowest, acked): (u64, u64)) -> RaftAction {
    request_with(session(place), number(which).0, lowest, acked, command(place, which).encode())
}

fn registration(place: usize) -> RaftAction {
    create_with(session(place), &[("name", ["a", "b"][place])])
}

impl World {
    /// Both sessions are open.
    fn new() -> Self {
        let (deeds, model, clients) = (Vec::new(), Model::new(2), <[Client; SESSIONS]>::default());
        let mut world = Self { history: Vec::new(), deeds, model, clients, tail: None };
        let mut machine = SessionStateMachine::new(Desk::<2>::default());
        for (index, place) in (1..).zip(0..SESSIONS) {
            world.apply(&mut machine, index, registration(place)).expect("it opens");
        }
        world
    }

    /// The machine that this history made, made again: what no snapshot shows is the same, too.
    fn machine(&self) -> SessionStateMachine<Desk> {
        let mut machine = SessionStateMachine::new(Desk::<2>::default());
        for deed in &self.deeds {
            match deed {
                Deed::Apply(index, action) => {
                    machine.apply(*index, TIME, action.clone()).expect("it applied before");
                }
                Deed::Restore => machine = restored(&machine),
            }
        }
        machine
    }

    /// What can happen next.
    fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for (place, client) in self.clients.iter().enumerate() {
            if client.sent.len() < REQUESTS {
                moves.extend([Move::Send(place), Move::Hold(place)]);
            }
            for (which, first) in client.sent.iter().enumerate() {
                moves.push(Move::Arrive(place, which));
                let pending = !client.answered[which];
                moves.extend((pending && client.says() != *first).then_some(Move::Resend(place, which)));
            }
            moves.extend((self.tail.is_some() || client.has_news()).then_some(Move::Ack(place)));
            moves.extend([Move::Expire(place), Move::Register(place)]);
        }
        moves.push(Move::Restore);
        moves.extend(self.tail.iter().flat_map(|_| [Move::Lose, Move::Double]));
        moves
    }

    /// This world after one more move.
    fn after(&self, step: Move) -> Result<(Self, SessionStateMachine<Desk>), Difference> {
        let (mut world, mut machine) = (self.clone(), self.machine());
        world.history.push(step);
        world.act(&mut machine, step).and_then(|()| world.compare(&machine)).map_err(|difference| {
            format!("{difference}\nafter {:?}\nin the log {:#?}", world.history, world.log())
        })?;
        Ok((world, machine))
    }

    fn log(&self) -> Vec<String> {
        let deeds = self.deeds.iter().map(|deed| match deed {
            Deed::Apply(index, action) => format!("{index}: {action:?}"),
            Deed::Restore => "restore".to_owned(),
        });
        deeds.collect()
    }

    fn act(&mut self, machine: &mut SessionStateMachine<Desk>, step: Move) -> Result<(), Difference> {
        match step {
            Move::Send(place) => {
                let (which, says) = self.next_request(place);
                self.propose(machine, request(place, which, says))
            }
            Move::Hold(place) => {
                self.next_request(place);
                Ok(())
            }
            Move::Arrive(place, which) => {
                let first = self.clients[place].sent[which];
                self.propose(machine, request(place, which, first))
            }
            Move::Resend(place, which) => {
                let says = self.clients[place].says();
                self.propose(machine, request(place, which, says))
            }
            Move::Ack(place) => {
                self.commit(machine, 0)?;
                let client = &mut self.clients[place];
                client.answered = client.published;
                if client.delivered < client.pushed {
                    client.delivered = client.pushed;
                    self.tail = Some(ack(session(place), self.clients[place].delivered));
                }
                Ok(())
            }
            Move::Expire(place) => self.propose(machine, expire(session(place))),
            Move::Register(place) => self.propose(machine, registration(place)),
            Move::Restore => {
                *machine = restored(machine);
                self.deeds.push(Deed::Restore);
                Ok(())
            }
            Move::Lose => {
                self.tail = None;
                Ok(())
            }
            Move::Double => {
                let again = self.tail.clone();
                self.commit(machine, 0)?;
                self.tail = again;
                self.commit(machine, 1)
            }
        }
    }

    /// A client's next request, and what it says.
    fn next_request(&mut self, place: usize) -> (usize, (u64, u64)) {
        let client = &mut self.clients[place];
        let (which, says) = (client.sent.len(), client.says());
        client.sent.push(says);
        (which, says)
    }

    /// What was proposed before is committed, and this waits in its place.
    fn propose(
        &mut self,
        machine: &mut SessionStateMachine<Desk>,
        action: RaftAction,
    ) -> Result<(), Difference> {
        self.commit(machine, 0)?;
        self.tail = Some(action);
        Ok(())
    }

    fn commit(&mut self, machine: &mut SessionStateMachine<Desk>, place: u64) -> Result<(), Difference> {
        let Some(action) = self.tail.take() else { return Ok(()) };
        let index = self.history.len() as u64 * ENTRIES + SESSIONS as u64 + place;
        self.apply(machine, index, action)
    }

    fn apply(
        &mut self,
        machine: &mut SessionStateMachine<Desk>,
        index: u64,
        action: RaftAction,
    ) -> Result<(), Difference> {
        let expected = self.model.apply(index, TIME, &action, false).expect("nothing here halts");
        self.deeds.push(Deed::Apply(index, action.clone()));
        let out = machine.apply(index, TIME, action).map_err(|error| format!("entry {index}: {error}"))?;
        if out != expected {
            return Err(format!("entry {index} gave {out:?}, not {expected:?}"));
        }
        for action in out {
            self.publish(&action);
        }
        Ok(())
    }

    fn publish(&mut self, action: &ServerAction) {
        match action {
            ServerAction::SendResponse { session, request, .. } => {
                let which = (0..REQUESTS).find(|which| number(*which) == *request).expect("one of the three");
                self.client(*session).published[which] = true;
            }
            ServerAction::SendServerRequest { session, request, .. } => {
                self.client(*session).pushed = request.0;
            }
            _ => {}
        }
    }

    fn client(&mut self, of: SessionId) -> &mut Client {
        let place = (0..SESSIONS).find(|place| session(*place) == of).expect("one of the two");
        &mut self.clients[place]
    }

    /// Looks at everything that can be read of both.
    fn compare(&self, machine: &SessionStateMachine<Desk>) -> Result<(), Difference> {
        let (desk, model) = (machine.machine(), &self.model);
        same("the total", &desk.total, &model.desk.total)?;
        same("the journal", &*desk.journal, &model.desk.journal)?;
        same("the time", &machine.time(), &model.time())?;
        same("the index", &machine.last_applied(), &model.last_applied())?;
        same("the sessions", &machine.sessions().collect::<Vec<_>>(), &model.sessions().collect())?;
        for place in 0..SESSIONS {
            let session = session(place);
            let pending: Vec<_> = machine.pending_requests(session).collect();
            same("what is pending", &pending, &model.pending_requests(session).collect())?;
            for which in 0..REQUESTS {
                let request = number(which);
                let cached = machine.cached_response(session, request);
                same("what is cached", &cached, &model.cached_response(session, request))?;
                same("the answer", &answer(machine, place, which), &model.answer_to(session, request))?;
            }
        }
        Ok(())
    }

    /// What all that follows depends on: all but the index of the last entry, which no command here looks at.
    fn key(&self, machine: &SessionStateMachine<Desk>) -> u128 {
        let mut key = Xxh3::new();
        let dictionary = machine.snapshot().unwrap().dictionary().unwrap();
        for (name, value) in &dictionary {
            key.update(name.as_bytes());
            key.update(value);
        }
        let model = self.model.clone().at_index(0);
        key.update(&codec::encode(&model).expect("it encodes"));
        for client in &self.clients {
            let Client { sent, answered, published, delivered, pushed } = client;
            let known = (sent, answered, published, delivered, pushed);
            key.update(&codec::encode(&known).expect("it encodes"));
        }
        let rest = (&self.tail, self.history.len() as u64);
        key.update(&codec::encode(&rest).expect("it encodes"));
        key.digest128()
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, real: &T, model: &T) -> Result<(), Difference> {
    if real == model { Ok(()) } else { Err(format!("{what}: {real:?}, not {model:?}")) }
}

fn answer(
    machine: &SessionStateMachine<Desk>,
    place: usize,
    which: usize,
) -> Option<Result<Response, RequestError>> {
    let payload = command(place, which).encode();
    machine.answer_to(&SessionKey::new(session(place), number(which), &payload))
}

fn bytes(machine: &SessionStateMachine<Desk>) -> Vec<u8> {
    machine.snapshot().unwrap().to_bytes().unwrap()
}

fn restored(machine: &SessionStateMachine<Desk>) -> SessionStateMachine<Desk> {
    SessionStateMachine::restore(&Snapshot::from_bytes(&bytes(machine)).unwrap()).unwrap()
}

/// What was tried.
#[derive(Default)]
struct Search {
    /// How many histories follow from a state, for the states that were seen; none where all are gone through.
    seen: Option<HashMap<u128, u64>>,
    moves: u64,
}

impl Search {
    /// Tries every continuation of so many moves, and says how many there are.
    fn explore(&mut self, world: &World, depth: u64) -> Result<u64, Difference> {
        if depth == 0 {
            return Ok(1);
        }
        let mut histories = 0_u64;
        for step in world.moves() {
            self.moves += 1;
            let (next, machine) = world.after(step)?;
            // Nothing follows the last move, so there is nothing to spare.
            let known = self.seen.as_ref().filter(|_| depth > 1).map(|_| next.key(&machine));
            let count = match known.and_then(|key| self.seen.as_ref()?.get(&key).copied()) {
                Some(count) => count,
                None => self.explore(&next, depth - 1)?,
            };
            if let (Some(seen), Some(key)) = (&mut self.seen, known) {
                seen.insert(key, count);
            }
            histories = histories.saturating_add(count);
        }
        Ok(histories)
    }
}

/// Tries every history of so many moves, and says how many there are. A difference is then looked for in fewer
/// moves, so that it is shown in a history that is as short as can be.
fn search(depth: u64, merging: bool) -> u64 {
    let started = Instant::now();
    let explore = |depth| {
        let mut search = Search { seen: merging.then(HashMap::new), moves: 0 };
        let histories = search.explore(&World::new(), depth)?;
        Ok((histories, search))
    };
    let (histories, search) = explore(depth).unwrap_or_else(|difference: Difference| {
        let shortest = (1..depth).find_map(|depth| explore(depth).err());
        panic!("{}", shortest.unwrap_or(difference));
    });
    println!(
        "depth {depth}: {histories} histories, {} moves tried{}, {:.1} s",
        search.moves,
        search.seen.map_or(String::new(), |seen| format!(", {} states", seen.len())),
        started.elapsed().as_secs_f64()
    );
    histories
}

fn depth(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |depth| depth.parse().expect("a number of moves"))
}

#[test]
fn every_short_history_agrees_with_the_model() {
    let depth = depth("SESSION_EXHAUSTIVE_PLAIN_DEPTH", 3);
    assert_eq!(search(depth, false), search(depth, true), "what is tried once is counted for all");
}

// Two histories that lead to the same dictionary, the same model, the same clients and the same tail of the log have the
// same futures: these are tried once, and counted for both.
#[test]
fn every_history_agrees_with_the_model() {
    search(depth("SESSION_EXHAUSTIVE_DEPTH", if cfg!(debug_assertions) { 4 } else { 6 }), true);
}

//! Histories under the two lighter guarantees: the same machine, the same faults, simpler clients.

use super::{
    dice::Dice,
    failure::{Failure, Tally},
    judge::Broken,
    replica::{Watched, written},
    shrink::differing_keys,
};
use crate::{
    action::Response,
    error::{ApplyError, SnapshotError},
    identity::Timestamp,
    ids::{Id, IdAction, IdOutcome, IdStateMachine},
    machine::StateMachine,
    serials::{ClientId, SerialAction, SerialKey, SerialOutcome, SerialStateMachine},
    snapshot::Snapshot,
};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::{Debug, Write};

/// How many histories a check runs, and how many operations each has.
const SEEDS: u64 = 100;
const OPERATIONS: u64 = 120;
/// After so many steps without an end, a history is taken to hang.
const MAX_STEPS: u64 = 200_000;

/// Runs histories of a machine under [serials](crate::serials), and panics at the first broken rule.
///
/// Clients have durable and automatic ids, and crash. Checked are: a durable client's command runs once, an
/// automatic one's at least once, and replicas agree.
///
/// # Panics
///
/// If a rule is broken: with the seed, the rule, and the log.
pub fn check_serials<M: StateMachine + Default + 'static>(
    commands: impl FnMut(&mut Dice) -> M::Command,
) -> Tally {
    check_light::<M, Serials>(commands)
}

/// Runs histories of a machine under [request ids](crate::ids), and panics at the first broken rule.
///
/// Clients do their part: each answered id is acknowledged by one later request, and a request that is sent again
/// keeps what it acknowledges. Checked are: each request runs once, every copy gets the same answer, and replicas
/// agree.
///
/// # Panics
///
/// If a rule is broken: with the seed, the rule, and the log.
pub fn check_ids<M: StateMachine + Default + 'static>(
    commands: impl FnMut(&mut Dice) -> M::Command,
) -> Tally {
    check_light::<M, Ids>(commands)
}

#[allow(clippy::panic)] // how a test fails
fn check_light<M, G>(mut commands: impl FnMut(&mut Dice) -> M::Command) -> Tally
where
    M: StateMachine + Default + 'static,
    G: Guarantee,
    G::Machine<M>: Wrapped<Action = G::Action, Outcome = G::Outcome>,
{
    let mut tally = Tally::default();
    for seed in 0..SEEDS {
        let mut draw = |dice: &mut Dice| written(&commands(dice));
        let mut world = World::<G, G::Machine<M>>::new(seed, &mut draw, || G::wrap(M::default()));
        match world.run() {
            Ok(()) => tally += world.tally,
            Err(problem) => {
                let history = world.script();
                let about = "the whole log".to_owned();
                panic!("{}", Failure { seed, operations: OPERATIONS, problem, about, history });
            }
        }
    }
    tally
}

/// A machine in one of the lighter wrappers.
trait Wrapped: Sized {
    type Action;
    type Outcome;
    fn apply(
        &mut self,
        index: u64,
        time: Timestamp,
        action: Self::Action,
    ) -> Result<Self::Outcome, ApplyError>;
    fn snapshot(&self) -> Result<Snapshot, ApplyError>;
    fn restore(snapshot: &Snapshot) -> Result<Self, SnapshotError>;
    fn ran(&self) -> u64;
    fn last_applied(&self) -> u64;
}

macro_rules! wrapped {
    ($wrapper:ident, $action:ty, $outcome:ty) => {
        impl<M: StateMachine> Wrapped for $wrapper<Watched<M, false>> {
            type Action = $action;
            type Outcome = $outcome;

            fn apply(
                &mut self,
                index: u64,
                time: Timestamp,
                action: $action,
            ) -> Result<$outcome, ApplyError> {
                $wrapper::apply(self, index, time, action)
            }

            fn snapshot(&self) -> Result<Snapshot, ApplyError> {
                $wrapper::snapshot(self)
            }

            fn restore(snapshot: &Snapshot) -> Result<Self, SnapshotError> {
                $wrapper::restore(snapshot)
            }

            fn ran(&self) -> u64 {
                self.machine().ran()
            }

            fn last_applied(&self) -> u64 {
                $wrapper::last_applied(self)
            }
        }
    };
}

wrapped!(SerialStateMachine, SerialAction, SerialOutcome);
wrapped!(IdStateMachine, IdAction, IdOutcome);

/// What differs between the two: how clients name their commands, and what an outcome tells.
trait Guarantee: Clone {
    type Machine<M: StateMachine>;
    type Action: Clone + Debug;
    type Outcome: Clone + Debug + PartialEq;
    /// What a client keeps.
    type Client: Clone;

    fn wrap<M: StateMachine>(machine: M) -> Self::Machine<M>;
    fn client(number: u64, dice: &mut Dice) -> Self::Client;
    /// A new command of a client.
    fn action(client: &mut Self::Client, dice: &mut Dice, payload: Bytes) -> Self::Action;
    /// The client has the answer to the command it sent last.
    fn answered(client: &mut Self::Client);
    /// The client crashed and comes back.
    fn crash(client: &mut Self::Client, dice: &mut Dice);
    /// The response that an outcome carries, and whether the command ran, as far as it tells.
    fn told(outcome: &Self::Outcome) -> Option<(Option<&Response>, Option<bool>)>;
    /// Whether a command of this client must not run twice.
    fn is_exact(client: &Self::Client) -> bool;
}

/// A client under serials: its id, whether that is durable, and its last serial.
#[derive(Clone)]
struct SerialClient {
    id: ClientId,
    durable: bool,
    serial: u64,
}

#[derive(Clone)]
struct Serials;

impl Guarantee for Serials {
    type Machine<M: StateMachine> = SerialStateMachine<Watched<M, false>>;
    type Action = SerialAction;
    type Outcome = SerialOutcome;
    type Client = SerialClient;

    fn wrap<M: StateMachine>(machine: M) -> Self::Machine<M> {
        SerialStateMachine::new(Watched::new(machine))
    }

    fn client(number: u64, dice: &mut Dice) -> SerialClient {
        let durable = dice.percent(50);
        let name = format!("client-{number}");
        let id = if durable { ClientId::from(name) } else { ClientId::auto(&name, 1) };
        SerialClient { id, durable, serial: 0 }
    }

    fn action(client: &mut SerialClient, _: &mut Dice, payload: Bytes) -> SerialAction {
        client.serial = client.serial.saturating_add(1);
        SerialAction::Command {
            key: Some(SerialKey { client: client.id.clone(), serial: client.serial }),
            payload,
        }
    }

    fn answered(_: &mut SerialClient) {}

    /// A durable client keeps its count; an automatic one is a new incarnation.
    fn crash(client: &mut SerialClient, dice: &mut Dice) {
        if let (false, Some(node)) = (client.durable, client.id.family()) {
            *client =
                SerialClient { id: ClientId::auto(node, dice.below(u64::MAX)), durable: false, serial: 0 };
        }
    }

    fn told(outcome: &SerialOutcome) -> Option<(Option<&Response>, Option<bool>)> {
        match outcome {
            SerialOutcome::Applied(response) => Some((Some(response), Some(true))),
            // The first copy may have been invalid: its answer is gone.
            SerialOutcome::Duplicate => Some((None, None)),
            SerialOutcome::Invalid | SerialOutcome::Skipped => Some((None, Some(false))),
            SerialOutcome::Closed | SerialOutcome::Upgraded => None,
        }
    }

    fn is_exact(client: &SerialClient) -> bool {
        client.durable
    }
}

/// A client under request ids: its last id, and the answered ones it has not acknowledged, oldest first.
#[derive(Clone)]
struct IdClient {
    last: Option<Id>,
    answered: VecDeque<Id>,
}

#[derive(Clone)]
struct Ids;

impl Guarantee for Ids {
    type Machine<M: StateMachine> = IdStateMachine<Watched<M, false>>;
    type Action = IdAction;
    type Outcome = IdOutcome;
    type Client = IdClient;

    fn wrap<M: StateMachine>(machine: M) -> Self::Machine<M> {
        IdStateMachine::new(Watched::new(machine))
    }

    fn client(_: u64, _: &mut Dice) -> IdClient {
        IdClient { last: None, answered: VecDeque::new() }
    }

    fn action(client: &mut IdClient, dice: &mut Dice, payload: Bytes) -> IdAction {
        let mut uuid = [0; 16];
        for byte in &mut uuid {
            *byte = u8::try_from(dice.below(256)).unwrap_or_default();
        }
        let id = Id::from_uuid(uuid);
        client.last = Some(id.clone());
        IdAction::Request { id, acked: client.answered.pop_front(), payload }
    }

    fn answered(client: &mut IdClient) {
        client.answered.extend(client.last.take());
    }

    /// What it had to acknowledge is forgotten; an operator will clean up.
    fn crash(client: &mut IdClient, _: &mut Dice) {
        *client = IdClient { last: None, answered: VecDeque::new() };
    }

    fn told(outcome: &IdOutcome) -> Option<(Option<&Response>, Option<bool>)> {
        match outcome {
            IdOutcome::Executed(response) | IdOutcome::Duplicate(response) => {
                Some((Some(response), Some(true)))
            }
            IdOutcome::Acknowledged => Some((None, None)),
            IdOutcome::Invalid | IdOutcome::Skipped => Some((None, Some(false))),
            IdOutcome::Forgotten(_) | IdOutcome::Configured | IdOutcome::Upgraded => None,
        }
    }

    fn is_exact(_: &IdClient) -> bool {
        true
    }
}

/// A client's command: whose, and its number among all.
#[derive(Clone)]
struct Operation<G: Guarantee> {
    client: usize,
    number: u64,
    action: G::Action,
}

enum Packet<G: Guarantee> {
    ToServer(Operation<G>),
    ToClient { client: usize, number: u64, outcome: G::Outcome },
}

/// What is known of an operation.
struct Known {
    /// How often it ran.
    ran: u64,
    response: Option<Response>,
    exact: bool,
}

struct Client<G: Guarantee> {
    keeps: G::Client,
    /// The command it waits for.
    waits: Option<Operation<G>>,
}

struct Node<W> {
    machine: W,
    saved: Option<Snapshot>,
}

struct World<'a, G: Guarantee, W> {
    dice: Dice,
    draw: &'a mut dyn FnMut(&mut Dice) -> Result<Bytes, Broken>,
    fresh: fn() -> W,
    lost: u64,
    repeated: u64,
    clients: Vec<Client<G>>,
    network: Vec<Packet<G>>,
    /// The log; entries up to `committed` stay.
    log: Vec<Operation<G>>,
    committed: usize,
    outcomes: Vec<(G::Outcome, u64)>,
    nodes: Vec<Node<W>>,
    operations: BTreeMap<u64, Known>,
    started: u64,
    tally: Tally,
}

impl<'a, G: Guarantee, W: Wrapped<Action = G::Action, Outcome = G::Outcome>> World<'a, G, W> {
    fn new(seed: u64, draw: &'a mut dyn FnMut(&mut Dice) -> Result<Bytes, Broken>, fresh: fn() -> W) -> Self {
        let mut dice = Dice::new(seed);
        let clients = (0..dice.below(4).saturating_add(1))
            .map(|number| Client { keeps: G::client(number, &mut dice), waits: None })
            .collect();
        let nodes = (0..3).map(|_| Node { machine: fresh(), saved: None }).collect();
        Self {
            lost: dice.below(31),
            repeated: dice.below(51),
            dice,
            draw,
            fresh,
            clients,
            network: Vec::new(),
            log: Vec::new(),
            committed: 0,
            outcomes: Vec::new(),
            nodes,
            operations: BTreeMap::new(),
            started: 0,
            tally: Tally { runs: 1, ..Tally::default() },
        }
    }

    fn run(&mut self) -> Result<(), Broken> {
        for _ in 0..MAX_STEPS {
            let faults = self.started < OPERATIONS;
            if !faults && self.clients.iter().all(|client| client.waits.is_none()) {
                return self.finish();
            }
            match self.dice.below(20) {
                0..=5 => self.client_acts(faults)?,
                6..=12 => self.deliver()?,
                13..=15 => self.committed = self.log.len(),
                16..=18 => self.node_applies(faults)?,
                _ if faults => self.fault()?,
                _ => {}
            }
        }
        Err("the history does not come to an end: a command is never answered".to_owned())
    }

    /// A client begins a command, or sends again the one it waits for.
    fn client_acts(&mut self, faults: bool) -> Result<(), Broken> {
        let number = usize::try_from(self.dice.below(self.clients.len() as u64)).unwrap_or(0);
        let Some(client) = self.clients.get_mut(number) else { return Ok(()) };
        // It is patient: else copies would come faster than the log takes them.
        let sends = client.waits.is_none() || self.dice.percent(10);
        if client.waits.is_none() && faults {
            let payload = (self.draw)(&mut self.dice)?;
            let action = G::action(&mut client.keeps, &mut self.dice, payload);
            self.started = self.started.saturating_add(1);
            let exact = G::is_exact(&client.keeps);
            self.operations.insert(self.started, Known { ran: 0, response: None, exact });
            client.waits = Some(Operation { client: number, number: self.started, action });
        }
        if let Some(operation) = client.waits.clone().filter(|_| sends) {
            self.send(faults, || Packet::ToServer(operation.clone()));
        }
        Ok(())
    }

    fn send(&mut self, faults: bool, packet: impl Fn() -> Packet<G>) {
        let copies = if faults && self.dice.percent(self.lost) {
            self.tally += Tally { lost: 1, ..Tally::default() };
            0
        } else if faults && self.dice.percent(self.repeated) {
            self.tally += Tally { repeated: 1, ..Tally::default() };
            2
        } else {
            1
        };
        self.network.extend((0..copies).map(|_| packet()));
    }

    /// Any packet under way arrives: the network keeps no order.
    fn deliver(&mut self) -> Result<(), Broken> {
        if self.network.is_empty() {
            return Ok(());
        }
        let position = usize::try_from(self.dice.below(self.network.len() as u64)).unwrap_or(0);
        match self.network.swap_remove(position) {
            Packet::ToServer(operation) => self.log.push(operation),
            Packet::ToClient { client, number, outcome } => {
                let Some(client) = self.clients.get_mut(client) else { return Ok(()) };
                if client.waits.as_ref().is_some_and(|waits| waits.number == number) {
                    client.waits = None;
                    G::answered(&mut client.keeps);
                    self.check_answer(number, &outcome)?;
                }
            }
        }
        Ok(())
    }

    /// What a client was told must be true.
    fn check_answer(&mut self, number: u64, outcome: &G::Outcome) -> Result<(), Broken> {
        let Some(known) = self.operations.get(&number) else { return Ok(()) };
        let Some((response, ran)) = G::told(outcome) else {
            return Err(format!("command {number} was answered with {outcome:?}"));
        };
        if ran.is_some_and(|ran| ran != (known.ran > 0)) {
            return Err(format!(
                "command {number} ran {} times, and its client was told {outcome:?}",
                known.ran
            ));
        }
        if known.exact && response.is_some() && response != known.response.as_ref() {
            return Err(format!("command {number} was answered {:?} and then {response:?}", known.response));
        }
        self.tally += Tally { operations: 1, ..Tally::default() };
        Ok(())
    }

    /// A replica applies some of what is committed; the first one, which leads, answers.
    fn node_applies(&mut self, faults: bool) -> Result<(), Broken> {
        let number = usize::try_from(self.dice.below(self.nodes.len() as u64)).unwrap_or(0);
        for _ in 0..self.dice.below(8) {
            self.apply_next(number, faults)?;
        }
        Ok(())
    }

    fn apply_next(&mut self, number: usize, faults: bool) -> Result<bool, Broken> {
        let Some(node) = self.nodes.get_mut(number) else { return Ok(false) };
        let position = usize::try_from(node.machine.last_applied()).unwrap_or(usize::MAX);
        let Some(operation) = self.log.get(position).filter(|_| position < self.committed).cloned() else {
            return Ok(false);
        };
        let index = node.machine.last_applied().saturating_add(1);
        let before = node.machine.ran();
        let outcome = node
            .machine
            .apply(index, Timestamp(index), operation.action.clone())
            .map_err(|error| format!("entry {index} cannot be applied: {error}"))?;
        let ran = node.machine.ran().saturating_sub(before);
        if self.dice.percent(5) {
            node.saved = Some(node.machine.snapshot().map_err(|error| error.to_string())?);
        }
        match self.outcomes.get(position) {
            Some(first) if *first == (outcome.clone(), ran) => {}
            Some((first, _)) => {
                return Err(format!(
                    "replicas differ in what entry {index} gives: {first:?} and {outcome:?}"
                ));
            }
            None => self.note(&operation, &outcome, ran)?,
        }
        if number == 0 {
            let Operation { client, number, .. } = operation;
            self.send(faults, || Packet::ToClient { client, number, outcome: outcome.clone() });
        }
        Ok(true)
    }

    /// The first application of an entry.
    fn note(&mut self, operation: &Operation<G>, outcome: &G::Outcome, ran: u64) -> Result<(), Broken> {
        let Some(known) = self.operations.get_mut(&operation.number) else { return Ok(()) };
        known.ran = known.ran.saturating_add(ran);
        if known.exact && known.ran > 1 {
            return Err(format!("command {} ran {} times", operation.number, known.ran));
        }
        if let Some((Some(response), _)) = G::told(outcome)
            && ran > 0
        {
            known.response = Some(response.clone());
        }
        self.tally += Tally { entries: 1, duplicates: u64::from(ran == 0), ..Tally::default() };
        self.outcomes.push((outcome.clone(), ran));
        Ok(())
    }

    fn fault(&mut self) -> Result<(), Broken> {
        match self.dice.below(3) {
            0 => {
                self.tally += Tally { client_crashes: 1, ..Tally::default() };
                let number = usize::try_from(self.dice.below(self.clients.len() as u64)).unwrap_or(0);
                if let Some(client) = self.clients.get_mut(number) {
                    // What it waited for is unknown to it for ever.
                    client.waits = None;
                    G::crash(&mut client.keeps, &mut self.dice);
                }
            }
            1 => {
                self.tally += Tally { leader_changes: 1, ..Tally::default() };
                let kept =
                    self.dice.below((self.log.len().saturating_sub(self.committed)).saturating_add(1) as u64);
                let kept = usize::try_from(kept).unwrap_or(0);
                let lost = self.log.split_off(self.committed.saturating_add(kept));
                self.tally += Tally { lost_proposals: lost.len() as u64, ..Tally::default() };
                if self.dice.percent(40) {
                    let again: Vec<Operation<G>> = self.log.iter().skip(self.committed).cloned().collect();
                    self.tally += Tally { doubled_proposals: again.len() as u64, ..Tally::default() };
                    self.log.extend(again);
                }
            }
            _ => {
                self.tally += Tally { replica_crashes: 1, ..Tally::default() };
                let number = usize::try_from(self.dice.below(self.nodes.len() as u64)).unwrap_or(0);
                if let Some(node) = self.nodes.get_mut(number) {
                    node.machine = match &node.saved {
                        None => (self.fresh)(),
                        Some(snapshot) => W::restore(snapshot).map_err(|error| {
                            format!("a replica does not come back from its snapshot: {error}")
                        })?,
                    };
                }
            }
        }
        Ok(())
    }

    /// Every replica comes to the end of the log, and all hold the same bytes.
    fn finish(&mut self) -> Result<(), Broken> {
        self.committed = self.log.len();
        let mut first = None;
        for number in 0..self.nodes.len() {
            while self.apply_next(number, false)? {}
            let Some(node) = self.nodes.get(number) else { continue };
            let snapshot = node.machine.snapshot().map_err(|error| error.to_string())?;
            let these = snapshot.dictionary().map_err(|error| error.to_string())?;
            self.tally += Tally { comparisons: 1, ..Tally::default() };
            let first = first.get_or_insert_with(|| these.clone());
            if *first != these {
                let keys = differing_keys(first, &these);
                return Err(format!("replicas hold different dictionaries at the end, in the keys {keys:?}"));
            }
        }
        Ok(())
    }

    fn script(&self) -> String {
        let mut text = String::new();
        for (index, operation) in (1_u64..).zip(&self.log) {
            let _ = writeln!(text, "{index} @{index} client {}: {:?}", operation.client, operation.action);
        }
        text
    }
}

//! The network, and the leader at its end.

use super::{Event, Logged, World};
use crate::{
    action::{Alive, RaftAction},
    admission::Admit,
    client::{ClientMessage, ServerMessage},
    identity::{RequestId, SessionId, Timestamp},
    machine::StateMachine,
    session_machine::SessionKey,
    testing::{failure::Tally, judge::Broken},
};
use bytes::Bytes;

impl<M: StateMachine + 'static> World<'_, M> {
    /// Sends a message to or from a client.
    pub(super) fn send(&mut self, client: usize, to_client: bool, packet: impl Fn() -> Event) {
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
            let arrival = self.now.saturating_add(delay);
            let last = self.arrivals.entry((client, to_client)).or_default();
            if arrival < *last {
                self.tally += Tally { reordered: 1, ..Tally::default() };
            } else {
                *last = arrival;
            }
            self.at(delay, packet());
        }
    }

    pub(super) fn tell(&mut self, session: SessionId, message: &ServerMessage) {
        // To one that crashed since nothing is sent: a closing may speak to thousands of those.
        if let Some((client, incarnation)) = self.owners.get(&session).copied()
            && self.clients.get(client).is_some_and(|client| client.incarnation == incarnation)
        {
            self.send(client, true, || Event::ToClient { client, incarnation, message: message.clone() });
        }
    }

    pub(super) fn handle(&mut self, event: Event) -> Result<(), Broken> {
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
            Event::Stored { client, incarnation } => {
                self.stored(client, incarnation);
                self.let_client_act(client)
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
    pub(super) fn beat(&mut self) {
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

    pub(super) fn serve(
        &mut self,
        client: usize,
        incarnation: u64,
        message: ClientMessage,
    ) -> Result<(), Broken> {
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
                return self.serve_request(Alive { session, lowest_pending, acked }, request, payload);
            }
            ClientMessage::Query { .. } => {}
            ClientMessage::Ack { session, request } => {
                self.append(RaftAction::ServerRequestAck { session, request }, None);
            }
            ClientMessage::KeepAlive { session, lowest_pending, acked } => {
                self.alive.insert(session, Alive { session, lowest_pending, acked });
            }
            ClientMessage::Close { session } if !node.replica.sessions().contains(&session) => {
                self.tell(session, &ServerMessage::Closed { session, reason: None });
            }
            ClientMessage::Close { session } => {
                self.append(RaftAction::SessionExpired { session }, None);
            }
        }
        Ok(())
    }

    fn serve_request(&mut self, sign: Alive, request: RequestId, payload: Bytes) -> Result<(), Broken> {
        let Some(node) = self.nodes.get(self.leader) else { return Ok(()) };
        let Alive { session, lowest_pending, acked } = sign;
        let key = SessionKey::new(session, request, &payload);
        let applied = node.replica.last_applied();
        let unapplied = (self.log.len() as u64).saturating_sub(applied);
        match self.gate.admit(self.term, &key, node.replica.answer_to(&key)) {
            Admit::Answered(result) => {
                self.tally += Tally { duplicates: 1, ..Tally::default() };
                self.alive.insert(session, sign);
                self.tell(session, &ServerMessage::answer(session, request, result));
            }
            Admit::InFlight { index } if index <= applied => {
                return Err(format!(
                    "{request:?} of {session:?} has no answer and waits for entry {index}, which is past"
                ));
            }
            Admit::InFlight { .. } => {}
            Admit::Append if self.gate.len() as u64 > unapplied => {
                let marks = self.gate.len();
                return Err(format!("the gate keeps {marks} requests, and {unapplied} entries wait"));
            }
            Admit::Append => {
                let action = RaftAction::ClientRequest { session, request, lowest_pending, acked, payload };
                let index = self.append(action, None);
                self.report(key, index);
            }
        }
        Ok(())
    }

    pub(super) fn append(&mut self, action: RaftAction, creator: Option<(usize, u64)>) -> u64 {
        let time = Timestamp(self.now.saturating_add(self.clock));
        self.log.push(Logged { time, action, creator });
        self.schedule_commit();
        self.log.len() as u64
    }

    /// The gate is told of an append: at once, or so late that the entry may have been applied.
    pub(super) fn report(&mut self, key: SessionKey, index: u64) {
        if !self.healed && self.dice.percent(self.plan.late_report) {
            self.tally += Tally { late_reports: 1, ..Tally::default() };
            let delay = self.dice.below(60);
            self.at(delay, Event::Appended { key, term: self.term, index });
        } else {
            self.gate.appended(key, self.term, index);
        }
    }

    /// One commit for all that is appended until then, as a leader that batches does.
    pub(super) fn schedule_commit(&mut self) {
        if !std::mem::replace(&mut self.commit_scheduled, true) {
            let delay = self.dice.below(30).saturating_add(1);
            self.at(delay, Event::Commit { term: self.term });
        }
    }
}

//! What goes wrong.

use super::clients::{client_config, new_client};
use super::cluster::does_not_come_back;
use super::{Client, Event, Logged, Saved, World};
use crate::{
    action::RaftAction,
    client::ClientSession,
    identity::RequestId,
    limits::Limits,
    machine::StateMachine,
    testing::{failure::Tally, judge::Broken},
};
use std::time::Duration;

impl<M: StateMachine + 'static> World<'_, M> {
    pub(super) fn maybe_fault(&mut self) -> Result<(), Broken> {
        let mut roll = |rate: u64| self.dice.below(10_000) < rate;
        let (leader, replica, client) =
            (roll(self.plan.leader_change), roll(self.plan.replica_crash), roll(self.plan.client_crash));
        let (clock, limits, upgrade) =
            (roll(self.plan.clock_jump), roll(self.plan.new_limits), roll(self.plan.upgrade));
        let (expiry, internal) = (roll(self.plan.expiry), roll(self.plan.internal));
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
                self.tally += Tally { upgrades: 1, ..Tally::default() };
                self.append(RaftAction::Upgrade { version }, None);
            }
        }
        if expiry {
            self.expire_session();
        }
        if internal {
            let payload = (self.commands)(&mut self.dice)?;
            self.append(RaftAction::InternalCommand { payload }, None);
        }
        Ok(())
    }

    /// A client says goodbye, with whatever it has under way, or an operator closes a session.
    fn expire_session(&mut self) {
        if self.dice.percent(50) {
            let number = usize::try_from(self.dice.below(self.clients.len() as u64)).unwrap_or(0);
            let now = self.time();
            if let Some(client) =
                self.clients.get_mut(number).filter(|client| client.session.session().is_some())
            {
                client.session.close(now);
            }
        } else {
            let open = self.nodes.get(self.leader).map(|node| node.replica.sessions()).unwrap_or_default();
            if let Some(session) = self.dice.pick(&open).copied() {
                self.append(RaftAction::SessionExpired { session }, None);
            }
        }
    }

    pub(super) fn draw_limits(&mut self) -> Limits {
        let mut maybe = |base: u64, spread: u64| {
            let drawn = base.saturating_add(self.dice.below(spread));
            self.dice.percent(50).then_some(drawn)
        };
        Limits {
            idle_timeout: maybe(500, 8_000),
            max_sessions: maybe(1, 8).and_then(|max| u32::try_from(max).ok()),
            max_cached_bytes: maybe(0, 400),
            max_pending_requests: maybe(1, 10).and_then(|max| u32::try_from(max).ok()),
            evict_idlest: maybe(0, 1).is_some(),
        }
    }

    /// Another leader takes over: of what was not committed it has a part, and may append that again.
    pub(super) fn change_leader(&mut self, any: bool) -> Result<(), Broken> {
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
    pub(super) fn propose_something_old(&mut self) {
        let creation = |entry: &Logged| entry.creator.is_some();
        let only_creations = self.dice.percent(50);
        let old = self.log.iter().filter(|entry| creation(entry) || !only_creations);
        let old: Vec<&Logged> = old.collect();
        if let Some(logged) = self.dice.pick(&old).map(|logged| (*logged).clone()) {
            self.tally += Tally { late_proposals: 1, ..Tally::default() };
            self.append(logged.action, logged.creator);
        }
    }

    pub(super) fn crash_replica(&mut self) -> Result<(), Broken> {
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

    pub(super) fn restart(&mut self, number: usize) -> Result<(), Broken> {
        let Some(node) = self.nodes.get_mut(number) else { return Ok(()) };
        if node.up {
            return Ok(());
        }
        node.up = true;
        node.replica = match &node.saved {
            None => self.builds.fresh(node.old),
            Some(snapshot) => {
                self.tally += Tally { replica_restores: 1, ..Tally::default() };
                self.builds.restored(snapshot, node.old).map_err(|error| does_not_come_back(&error))?
            }
        };
        self.catch_up(number)
    }

    pub(super) fn crash_client(&mut self) {
        let number = usize::try_from(self.dice.below(self.clients.len() as u64)).unwrap_or(0);
        let Some(client) = self.clients.get(number) else { return };
        self.tally += Tally { client_crashes: 1, ..Tally::default() };
        let incarnation = client.incarnation.saturating_add(1);
        // What was being stored may be stored or not: the client never learnt which.
        let saved = match &client.storing {
            Some(storing) => {
                self.tally += Tally { crashes_while_saving: 1, ..Tally::default() };
                if self.dice.percent(50) { Some(storing) } else { client.stored.as_ref() }
            }
            None => client.stored.as_ref(),
        };
        let now = Duration::from_millis(self.now);
        let next = saved.and_then(|saved| restored_client(client, saved, incarnation, now));
        if let Some(session) = next.as_ref().and_then(|next| next.session.session()) {
            self.tally += Tally { client_restores: 1, ..Tally::default() };
            self.owners.insert(session, (number, incarnation));
        }
        let next = next.unwrap_or_else(|| new_client(client.saves, incarnation, now));
        if let Some(client) = self.clients.get_mut(number) {
            *client = next;
        }
        let delay = self.dice.below(500);
        self.at(delay, Event::Wake { client: number, incarnation });
    }

    /// No more faults: everybody comes back, and all must be settled.
    pub(super) fn heal(&mut self) -> Result<(), Broken> {
        self.healed = true;
        self.clock = 0;
        for number in 0..self.nodes.len() {
            self.restart(number)?;
        }
        self.append(RaftAction::Configure { limits: Limits::default(), seed: None }, None);
        self.nudge_all();
        Ok(())
    }

    pub(super) fn nudge_all(&mut self) {
        for client in 0..self.clients.len() {
            self.at(1, Event::Nudge { client });
        }
    }
}

/// A client that comes back from saved bytes.
fn restored_client(crashed: &Client, saved: &Saved, incarnation: u64, now: Duration) -> Option<Client> {
    let session = ClientSession::restore(&saved.bytes, client_config(), now).ok()?;
    // What it had under way when it was saved goes on; what began since is unknown for ever.
    let under_way: Vec<RequestId> = session.pending().collect();
    let began = crashed.began.iter().filter(|(request, _)| under_way.contains(request));
    let began = began.map(|(request, moment)| (*request, *moment)).collect();
    let (delivered, stored) = (saved.delivered, Some(saved.clone()));
    Some(Client {
        id: session.session(),
        session,
        restored: true,
        delivered,
        saves: true,
        stored,
        storing: None,
        began,
        incarnation,
    })
}

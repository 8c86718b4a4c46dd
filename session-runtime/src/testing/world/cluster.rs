//! The replicas.

use super::{COMPARE_EVERY, Logged, World};
use crate::{
    action::{RaftAction, RequestError, ServerAction},
    client::ServerMessage,
    codec,
    error::ApplyError,
    identity::RequestId,
    machine::StateMachine,
    session_machine::SessionKey,
    snapshot::Snapshot,
    testing::{failure::Tally, judge::Broken},
};

impl<M: StateMachine + 'static> World<'_, M> {
    /// A replica applies what is committed and it has not applied yet.
    pub(super) fn catch_up(&mut self, number: usize) -> Result<(), Broken> {
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
                    if let Some(problem) = node.replica.misread() {
                        return Err(format!("entry {index}: {problem}"));
                    }
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

    pub(super) fn applied(
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
    pub(super) fn check_watermark(&self, number: usize, action: &RaftAction) -> Result<(), Broken> {
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

    pub(super) fn count(&mut self, action: &RaftAction, out: &[ServerAction], ran: u64) {
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
    pub(super) fn publish(&mut self, entry: &Logged, out: Vec<ServerAction>) {
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
    pub(super) fn compare(&mut self, number: usize, index: u64) -> Result<(), Broken> {
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
}

//! The replicas.

use super::{COMPARE_EVERY, Logged, World};
use crate::{
    action::{CloseReason, RaftAction, ServerAction},
    client::ServerMessage,
    error::{ApplyError, SnapshotError},
    machine::StateMachine,
    snapshot::Snapshot,
    testing::{
        failure::Tally,
        judge::Broken,
        script::{command_name, entry_name},
        shrink::differing_keys,
    },
};
use bytes::Bytes;
use std::collections::BTreeSet;

/// In words.
pub(super) fn does_not_come_back(error: &SnapshotError) -> Broken {
    format!("a replica does not come back from its own snapshot: {error}")
}

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
            match self.builds.apply(&mut *node.replica, index, &entry) {
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
                self.differ = Some(position.saturating_add(1));
                let name = entry_name::<M>(&entry.action);
                return Err(format!(
                    "replicas differ in what entry {index} ({name}) gives: {before:?} and {out:?}"
                ));
            }
        } else {
            self.builds.can_be_read(&out).map_err(|broken| format!("entry {index}: {broken}"))?;
            self.judge.entry(index, entry.time, &entry.action, &out, ran)?;
            self.count(&entry.action, &out, ran);
            self.outputs.push((out.clone(), ran));
        }
        // The judge knows what is needed after the last entry that any replica applied.
        if index == self.outputs.len() as u64
            && let Some(node) = self.nodes.get(number)
        {
            self.judge.time_is_that_of(&*node.replica)?;
            self.judge.nothing_old_is_kept(&*node.replica, &entry.action)?;
        }
        self.compare(number, index)?;
        if number == self.leader {
            self.gate.applied(index);
            self.publish(entry, out);
        }
        Ok(())
    }

    pub(super) fn count(&mut self, action: &RaftAction, out: &[ServerAction], ran: u64) {
        let duplicate = matches!(action, RaftAction::ClientRequest { .. }) && ran == 0;
        let internal = matches!(action, RaftAction::InternalCommand { .. }) && ran > 0;
        self.tally += Tally {
            entries: 1,
            duplicates: u64::from(duplicate),
            internal: u64::from(internal),
            ..Tally::default()
        };
        let none = Tally::default();
        for action in out {
            self.tally += match action {
                ServerAction::SessionRefused { .. } => Tally { refused: 1, ..none },
                ServerAction::SessionClosed { reason, .. } => match reason {
                    CloseReason::Expired => Tally { expired: 1, ..none },
                    CloseReason::Idle => Tally { idle: 1, ..none },
                    CloseReason::Evicted => Tally { evicted: 1, ..none },
                    CloseReason::SlowConsumer => Tally { slow_consumers: 1, ..none },
                },
                _ => continue,
            };
        }
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
        let compares = index.is_multiple_of(COMPARE_EVERY);
        if !compares && !self.dice.percent(1) {
            return Ok(());
        }
        let bytes = if compares {
            self.compare_with_first(number)?
        } else {
            let snapshot = self.snapshot(number)?;
            let bytes = snapshot.to_bytes().map_err(|error| error.to_string())?.into();
            self.comes_back(number, &snapshot, &bytes)?;
            bytes
        };
        if self.dice.percent(50)
            && let Some(node) = self.nodes.get_mut(number)
        {
            node.saved = Some(Snapshot::from_bytes(&bytes).map_err(|error| error.to_string())?);
        }
        Ok(())
    }

    fn snapshot(&self, number: usize) -> Result<Snapshot, Broken> {
        let node = self.nodes.get(number).ok_or("there is no such replica")?;
        node.replica.snapshot().map_err(|error| error.to_string())
    }

    /// A replica must hold the same bytes as the first one that came to the same index.
    pub(super) fn compare_with_first(&mut self, number: usize) -> Result<Bytes, Broken> {
        self.tally += Tally { comparisons: 1, ..Tally::default() };
        let snapshot = self.snapshot(number)?;
        let index = snapshot.meta().index;
        let bytes = Bytes::from(snapshot.to_bytes().map_err(|error| error.to_string())?);
        if let Some(first) = self.compared.get(&index).filter(|first| **first != bytes) {
            let first = Snapshot::from_bytes(first).map_err(|error| error.to_string())?;
            self.differ = Some(usize::try_from(index).unwrap_or(usize::MAX));
            return Err(self.difference(&first, &snapshot));
        }
        let dictionary = || snapshot.dictionary().map_err(|error| error.to_string());
        if self.compared.insert(index, bytes.clone()).is_none() {
            self.comes_back(number, &snapshot, &bytes)?;
            if index == self.outputs.len() as u64 {
                self.judge.is_bounded(&dictionary()?)?;
            }
        }
        Ok(bytes)
    }

    /// What a snapshot restores to has the same snapshot.
    fn comes_back(&self, number: usize, snapshot: &Snapshot, bytes: &Bytes) -> Result<(), Broken> {
        let old = self.nodes.get(number).is_some_and(|node| node.old);
        let restored = self.builds.restored(snapshot, old).map_err(|error| does_not_come_back(&error))?;
        let again = restored.snapshot().map_err(|error| error.to_string())?;
        if again.to_bytes().map_err(|error| error.to_string())? == *bytes {
            return Ok(());
        }
        let index = snapshot.meta().index;
        let (one, other) =
            (snapshot.dictionary().unwrap_or_default(), again.dictionary().unwrap_or_default());
        let keys = differing_keys(&one, &other);
        Err(format!("what the snapshot of index {index} restores to has another, in the keys {keys:?}"))
    }

    /// How the dictionaries of two replicas differ, and what was done since they were last compared.
    fn difference(&self, one: &Snapshot, other: &Snapshot) -> Broken {
        let index = one.meta().index;
        let (one, other) = (one.dictionary().unwrap_or_default(), other.dictionary().unwrap_or_default());
        let keys = differing_keys(&one, &other);
        let same = self.compared.range(..index).next_back().map_or(0, |(index, _)| *index);
        let since = usize::try_from(same).unwrap_or(usize::MAX);
        let until = usize::try_from(index).unwrap_or(usize::MAX).saturating_sub(since);
        let entries = self.log.iter().skip(since).take(until);
        let commands: BTreeSet<&str> = entries.filter_map(|entry| command_name::<M>(&entry.action)).collect();
        format!(
            "replicas hold different dictionaries at index {index}, in the keys {keys:?}; at index {same} they held \
             the same, and the commands since then are {commands:?}"
        )
    }
}

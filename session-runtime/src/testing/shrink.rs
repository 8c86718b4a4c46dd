//! A log that shows a problem, made as short as it can be.

use super::{
    judge::{Broken, Judge},
    replica::{Builds, Replica},
    script::{each_session, entry_name},
    world::Logged,
};
use crate::{
    error::ApplyError,
    identity::SessionId,
    machine::StateMachine,
    snapshot::{Dictionary, Snapshot},
};

/// How often twins are asked about a log before it is taken to show nothing.
const TRIALS: usize = 8;

/// Who is fed a log beside a replica, and must say and hold the same.
#[derive(Clone, Copy, PartialEq)]
enum Twin {
    /// Another replica.
    Alike,
    /// One that is replaced, after every entry, by what its snapshot restores to.
    Restored,
    /// One of the build before the first upgrade, replaced by the newer one where it must be.
    Older,
}

impl Twin {
    fn words(self) -> &'static str {
        match self {
            Self::Alike => "two replicas",
            Self::Restored => "a replica and one that is restored from its snapshot",
            Self::Older => "a replica and one of an older build",
        }
    }

    /// Chance that no seed governs need not show at once, so twins are asked again.
    fn trials(self) -> usize {
        if self == Self::Alike { TRIALS } else { 1 }
    }
}

/// A log that shows a problem by itself.
pub(super) struct Shortest {
    pub(super) problem: Broken,
    pub(super) log: Vec<Logged>,
    /// Whether it does so each time.
    pub(super) always: bool,
}

/// The shortest log, made of entries of this one, that shows a problem by itself; `None` if this one does not.
pub(super) fn shortest<M: StateMachine + 'static>(builds: &Builds<M>, log: &[Logged]) -> Option<Shortest> {
    // Ids that were drawn at the beginning stay valid when entries before their creation are taken out.
    let early: Vec<Logged> = log.iter().map(drawn_early).collect();
    [&early, log].into_iter().find_map(|log| {
        let twins = [Twin::Alike, Twin::Restored, Twin::Older];
        twins.into_iter().find_map(|twin| Shrink { builds, twin }.shortest(log))
    })
}

struct Shrink<'a, M> {
    builds: &'a Builds<M>,
    twin: Twin,
}

impl<M: StateMachine + 'static> Shrink<'_, M> {
    /// Takes entries out of a log for as long as it still shows a problem, and says which it shows in the end.
    fn shortest(&self, log: &[Logged]) -> Option<Shortest> {
        let (mut problem, mut log) = self.shown_by(log.to_vec())?;
        let mut chunk = log.len().div_ceil(2);
        while chunk > 0 {
            let mut start = 0;
            while start < log.len() {
                let taken = start..start.saturating_add(chunk);
                let left = log.iter().enumerate().filter(|(position, _)| !taken.contains(position));
                let shorter: Vec<Logged> = left.map(|(_, entry)| entry.clone()).collect();
                match self.shown_by(shorter) {
                    Some(found) => (problem, log) = found,
                    None => start = taken.end,
                }
            }
            chunk = if chunk == 1 { 0 } else { chunk.div_ceil(2) };
        }
        let always = (0..self.twin.trials()).all(|_| self.replay(&log).is_some());
        Some(Shortest { problem, log, always })
    }

    /// The first problem that a log shows, and the log up to the entry that shows it.
    fn shown_by(&self, mut log: Vec<Logged>) -> Option<(Broken, Vec<Logged>)> {
        let (length, problem) = (0..self.twin.trials()).find_map(|_| self.replay(&log))?;
        log.truncate(length);
        Some((problem, log))
    }

    /// Feeds a log to a replica and its twin, entry by entry: the first problem, and how many entries it took.
    fn replay(&self, log: &[Logged]) -> Option<(usize, Broken)> {
        let mut pair = Pair {
            one: self.builds.fresh(false),
            other: self.builds.fresh(self.twin == Twin::Older),
            judge: Judge::new::<M>(),
            shrink: self,
        };
        (1..).zip(log).find_map(|(length, entry)| Some((length, pair.step(length as u64, entry).err()?)))
    }
}

struct Pair<'a, M> {
    one: Box<dyn Replica>,
    other: Box<dyn Replica>,
    judge: Judge,
    shrink: &'a Shrink<'a, M>,
}

impl<M: StateMachine + 'static> Pair<'_, M> {
    fn step(&mut self, index: u64, entry: &Logged) -> Result<(), Broken> {
        let name = entry_name::<M>(&entry.action);
        let at = |error: &dyn std::fmt::Display| format!("entry {index} ({name}): {error}");
        let words = self.shrink.twin.words();
        let before = self.one.ran();
        let builds = self.shrink.builds;
        let here = builds.apply(&mut *self.one, index, entry).map_err(|error| at(&error))?;
        let there = match builds.apply(&mut *self.other, index, entry) {
            Err(ApplyError::NeedsBuild { .. }) if self.shrink.twin == Twin::Older => {
                self.restore_other().map_err(|error| at(&error))?;
                builds.apply(&mut *self.other, index, entry)
            }
            there => there,
        };
        let there = there.map_err(|error| at(&error))?;
        if here != there {
            return Err(format!("{words} answer entry {index} ({name}) differently: {here:?} and {there:?}"));
        }
        builds.can_be_read(&here).map_err(|broken| at(&broken))?;
        if let Some(problem) = self.one.misread() {
            return Err(format!("entry {index}: {problem}"));
        }
        let ran = self.one.ran().saturating_sub(before);
        self.judge.entry(index, entry.time, &entry.action, &here, ran).map_err(|broken| at(&broken))?;
        self.judge.time_is_that_of(&*self.one).map_err(|broken| at(&broken))?;
        self.judge.nothing_old_is_kept(&*self.one, &entry.action).map_err(|broken| at(&broken))?;
        if self.shrink.twin == Twin::Restored {
            self.restore_other().map_err(|error| at(&error))?;
        }
        let here = dictionary(&*self.one).map_err(|error| format!("after {}", at(&error)))?;
        let there = dictionary(&*self.other).map_err(|error| format!("after {}", at(&error)))?;
        if here != there {
            let keys = differing_keys(&here, &there);
            return Err(format!("{words} differ after entry {index} ({name}), in the keys {keys:?}"));
        }
        self.judge.is_bounded(&here).map_err(|broken| format!("after {}", at(&broken)))
    }

    /// The other one goes on, as the newer build, from the bytes of its snapshot.
    fn restore_other(&mut self) -> Result<(), Broken> {
        let snapshot = self.other.snapshot().map_err(|error| error.to_string())?;
        let bytes = snapshot.to_bytes().map_err(|error| error.to_string())?;
        let snapshot = Snapshot::from_bytes(&bytes).map_err(|error| error.to_string())?;
        self.other = self.shrink.builds.restored(&snapshot, false).map_err(|error| error.to_string())?;
        Ok(())
    }
}

/// The keys whose values differ, or that only one of two dictionaries has.
pub(super) fn differing_keys<'a>(one: &'a Dictionary, other: &'a Dictionary) -> Vec<&'a String> {
    let keys = one.keys().chain(other.keys().filter(|key| !one.contains_key(*key)));
    keys.filter(|key| one.get(*key) != other.get(*key)).collect()
}

fn dictionary(replica: &dyn Replica) -> Result<Dictionary, Broken> {
    let snapshot = replica.snapshot().map_err(|error| error.to_string())?;
    snapshot.dictionary().map_err(|error| error.to_string())
}

/// An entry whose sessions were all drawn at the beginning of the log.
fn drawn_early(entry: &Logged) -> Logged {
    let mut entry = entry.clone();
    each_session(&mut entry.action, |session| {
        let random = session.0 & u128::from(u64::MAX);
        *session = SessionId::draw(0, u64::try_from(random).unwrap_or_default());
    });
    entry
}

//! Where a session is.
//!
//! A hash table with nothing in it but 32 bits of each id's hash and the session's place, so that finding a session
//! among a million reads one line of it and then the session itself. It has many small parts that grow one at a time,
//! so that no single entry pays for the growth of all.
//!
//! The hash is fixed and quick, not guarded against chosen ids: an id is drawn by the leader, 64 bits of it at random,
//! and no client has a say in it. Nothing ever goes through the table in its own order.

use super::slots::Place;
use crate::identity::SessionId;

/// How many bits of a hash name the part; there are so many parts.
const PART_BITS: u32 = 6;
const PARTS: usize = 1 << PART_BITS;

/// The places of sessions by their ids, which are the owner's: `is_at` says whether an id is that of the session at a
/// place.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// None before the first session.
    parts: Vec<Part>,
}

/// Open addressing: an entry is where its hash says, or behind that with no vacant one between.
#[derive(Clone, Debug, Default)]
struct Part {
    entries: Vec<Entry>,
    taken: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u32,
    /// [`VACANT`] for none.
    place: u32,
}

/// No session is here: long before, they would not fit into memory.
const VACANT: u32 = u32::MAX;

/// The part an id belongs to, and its hash there.
#[allow(clippy::cast_possible_truncation)] // the parts of a number
fn hash(id: SessionId) -> (usize, u32) {
    let (high, low) = (id.position(), id.0 as u64);
    let mixed = (low ^ high.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // The high bits of a product depend on all bits of its factors.
    let rest = u64::BITS.saturating_sub(PART_BITS);
    ((mixed >> rest) as usize, (mixed >> rest.saturating_sub(u32::BITS)) as u32)
}

impl Index {
    pub(super) fn get(&self, id: SessionId, is_at: impl Fn(Place) -> bool) -> Option<Place> {
        let (part, hash) = hash(id);
        let (_, place) = self.parts.get(part)?.find(hash, is_at)?;
        Some(place)
    }

    /// Adds an id that is not there.
    pub(super) fn insert(&mut self, id: SessionId, place: Place) {
        let (part, hash) = hash(id);
        if self.parts.is_empty() {
            self.parts.resize_with(PARTS, Part::default);
        }
        if let (Some(part), Ok(place)) = (self.parts.get_mut(part), u32::try_from(place)) {
            part.insert(Entry { hash, place });
        }
    }

    pub(super) fn remove(&mut self, id: SessionId, is_at: impl Fn(Place) -> bool) -> Option<Place> {
        let (part, hash) = hash(id);
        let part = self.parts.get_mut(part)?;
        let (at, place) = part.find(hash, is_at)?;
        part.remove(at);
        Some(place)
    }
}

impl Part {
    fn find(&self, hash: u32, is_at: impl Fn(Place) -> bool) -> Option<(usize, Place)> {
        let mut at = self.home(hash);
        loop {
            let entry = self.entries.get(at)?;
            if entry.place == VACANT {
                return None;
            }
            let place = entry.place as Place;
            if entry.hash == hash && is_at(place) {
                return Some((at, place));
            }
            at = self.behind(at);
        }
    }

    fn insert(&mut self, entry: Entry) {
        // A quarter is vacant, so that what is looked for is found soon.
        if self.taken.saturating_mul(4) >= self.entries.len().saturating_mul(3) {
            self.resize(self.entries.len().saturating_mul(2).max(8));
        }
        self.taken = self.taken.saturating_add(1);
        let mut at = self.home(entry.hash);
        while let Some(there) = self.entries.get_mut(at) {
            if there.place == VACANT {
                *there = entry;
                return;
            }
            at = self.behind(at);
        }
    }

    /// Makes an entry vacant, and moves those behind it that would not be found any more.
    fn remove(&mut self, at: usize) {
        let mut hole = at;
        let mut next = self.behind(hole);
        while let Some(entry) = self.entries.get(next).copied()
            && entry.place != VACANT
        {
            if self.distance(self.home(entry.hash), next) >= self.distance(hole, next) {
                self.set(hole, entry);
                hole = next;
            }
            next = self.behind(next);
        }
        self.set(hole, Entry { hash: 0, place: VACANT });
        self.taken = self.taken.saturating_sub(1);
        if self.taken == 0 {
            *self = Self::default();
        } else if self.taken.saturating_mul(8) < self.entries.len() {
            self.resize(self.entries.len() / 2);
        }
    }

    fn set(&mut self, at: usize, entry: Entry) {
        if let Some(there) = self.entries.get_mut(at) {
            *there = entry;
        }
    }

    fn resize(&mut self, length: usize) {
        let entries = vec![Entry { hash: 0, place: VACANT }; length];
        let before = std::mem::replace(self, Self { entries, taken: 0 });
        for entry in before.entries.into_iter().filter(|entry| entry.place != VACANT) {
            self.insert(entry);
        }
    }

    /// Where an entry with this hash should be.
    #[allow(clippy::cast_possible_truncation)] // below the number of entries
    fn home(&self, hash: u32) -> usize {
        (u64::from(hash).wrapping_mul(self.entries.len() as u64) >> 32) as usize
    }

    fn behind(&self, at: usize) -> usize {
        let next = at.saturating_add(1);
        if next < self.entries.len() { next } else { 0 }
    }

    /// How far one goes from one entry to another.
    fn distance(&self, from: usize, to: usize) -> usize {
        to.checked_sub(from).unwrap_or_else(|| to.saturating_add(self.entries.len()).saturating_sub(from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn check(index: &Index, ids: &BTreeMap<Place, SessionId>, gone: &[SessionId]) {
        for (place, id) in ids {
            assert_eq!(index.get(*id, |place| ids.get(&place) == Some(id)), Some(*place));
        }
        for id in gone {
            assert_eq!(index.get(*id, |place| ids.get(&place) == Some(id)), None);
        }
    }

    /// Adds and removes ids in turn, and finally removes all.
    fn churn(ids: impl Iterator<Item = SessionId>) {
        let mut index = Index::default();
        let (mut there, mut gone) = (BTreeMap::new(), Vec::new());
        for (place, id) in ids.enumerate() {
            index.insert(id, place);
            there.insert(place, id);
            if place % 3 == 2 {
                let at = place / 2;
                if let Some(id) = there.get(&at).copied() {
                    assert_eq!(index.remove(id, |place| there.get(&place) == Some(&id)), Some(at));
                    assert_eq!(index.remove(id, |place| place != at && there.get(&place) == Some(&id)), None);
                    there.remove(&at);
                    gone.push(id);
                }
            }
            if place % 100 == 0 {
                check(&index, &there, &gone);
            }
        }
        check(&index, &there, &gone);
        for (place, id) in &there {
            assert_eq!(index.remove(*id, |at| there.get(&at) == Some(id)), Some(*place));
        }
        let left: usize = index.parts.iter().map(|part| part.entries.len()).sum();
        assert_eq!(left, 0, "what is empty takes no memory");
    }

    #[test]
    fn a_session_is_where_it_was_put() {
        churn((0..3_000).map(|number| SessionId::draw(number, number.wrapping_mul(0xbf58_476d_1ce4_e5b9))));
    }

    #[test]
    fn ids_need_not_be_random() {
        churn((0..2_000).map(|number| SessionId::draw(0, number)));
        churn((0..2_000).map(|number| SessionId::draw(number, 0)));
    }

    #[test]
    fn equal_hashes_are_told_apart_by_the_sessions() {
        let alike = |number: u64| SessionId::draw(number, 5 ^ number.rotate_left(32));
        assert_eq!(hash(alike(1)), hash(alike(2)));
        churn((0..300).map(alike));
        // Two runs that grow into each other, around the end of a part.
        let last = |number: u64| SessionId::draw(number, u64::MAX ^ number.rotate_left(32));
        churn((0..300).map(|number| if number % 2 == 0 { alike(number) } else { last(number) }));
    }

    #[test]
    fn a_part_wraps_around_its_end() {
        let mut part = Part::default();
        for place in 0..6 {
            part.insert(Entry { hash: u32::MAX - place % 2, place });
        }
        for place in 0..6 {
            let found = part.find(u32::MAX - place % 2, |at| at == place as Place);
            let (at, _) = found.unwrap();
            part.remove(at);
            for other in place + 1..6 {
                assert!(part.find(u32::MAX - other % 2, |at| at == other as Place).is_some(), "{other}");
            }
        }
    }
}

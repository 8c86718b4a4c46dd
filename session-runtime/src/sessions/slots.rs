//! Values in numbered places, all of which can be captured at once.
//!
//! The places are in chunks behind `Arc`. A capture shares the chunks; whoever changes a value then copies its chunk
//! first, unless the capture is gone. So a capture costs one reference for each chunk, and the first change of a chunk
//! after it costs one copy, whatever the number of values.

use std::collections::BTreeSet;
use std::sync::Arc;

/// How many values share a chunk: many, for a short capture; few, for short copies.
const CHUNK: usize = 512;

/// The number of a value's place. It stays the value's own until the value is removed.
pub(crate) type Place = usize;

/// Values in numbered places.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    chunks: Vec<Arc<Chunk<T>>>,
    /// The chunks with a vacant place. The first is filled first, so that the last ones become empty and go.
    roomy: BTreeSet<usize>,
    count: usize,
}

/// All values of a moment.
pub(crate) struct Captured<T>(Vec<Arc<Chunk<T>>>);

#[derive(Clone, Debug)]
struct Chunk<T> {
    /// At most [`CHUNK`].
    slots: Vec<Option<T>>,
    /// The numbers of the slots without a value.
    vacant: Vec<usize>,
}

impl<T> Default for Chunk<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), vacant: Vec::new() }
    }
}

impl<T> Chunk<T> {
    fn len(&self) -> usize {
        self.slots.len().saturating_sub(self.vacant.len())
    }

    fn insert(&mut self, value: T) -> usize {
        let number = self.vacant.pop().unwrap_or(self.slots.len());
        match self.slots.get_mut(number) {
            Some(vacant) => *vacant = Some(value),
            None => self.slots.push(Some(value)),
        }
        number
    }

    fn remove(&mut self, number: usize) -> Option<T> {
        let removed = self.slots.get_mut(number)?.take()?;
        self.vacant.push(number);
        if self.len() == 0 {
            *self = Self::default();
        }
        Some(removed)
    }
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), roomy: BTreeSet::new(), count: 0 }
    }
}

impl<T: Clone> Slots<T> {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// A number above that of every value's place.
    pub(crate) fn places(&self) -> usize {
        let last = self.chunks.last().map_or(CHUNK, |chunk| chunk.slots.len());
        self.chunks.len().saturating_mul(CHUNK).saturating_sub(CHUNK.saturating_sub(last))
    }

    pub(crate) fn get(&self, place: Place) -> Option<&T> {
        self.chunks.get(place / CHUNK)?.slots.get(place % CHUNK)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, place: Place) -> Option<&mut T> {
        let chunk = self.chunks.get_mut(place / CHUNK)?;
        Arc::make_mut(chunk).slots.get_mut(place % CHUNK)?.as_mut()
    }

    pub(crate) fn insert(&mut self, value: T) -> Place {
        let number = self.roomy.first().copied().unwrap_or(self.chunks.len());
        if number == self.chunks.len() {
            self.chunks.push(Arc::default());
            self.roomy.insert(number);
        }
        #[allow(clippy::indexing_slicing)] // a roomy chunk is there
        let chunk = Arc::make_mut(&mut self.chunks[number]);
        let slot = chunk.insert(value);
        if chunk.len() == CHUNK {
            self.roomy.remove(&number);
        }
        self.count = self.count.saturating_add(1);
        number.saturating_mul(CHUNK).saturating_add(slot)
    }

    pub(crate) fn remove(&mut self, place: Place) -> Option<T> {
        let number = place / CHUNK;
        let removed = Arc::make_mut(self.chunks.get_mut(number)?).remove(place % CHUNK)?;
        self.roomy.insert(number);
        self.count = self.count.saturating_sub(1);
        while self.chunks.pop_if(|chunk| chunk.len() == 0).is_some() {
            self.roomy.remove(&self.chunks.len());
        }
        Some(removed)
    }

    /// All values as they are now.
    pub(crate) fn capture(&self) -> Captured<T> {
        Captured(self.chunks.clone())
    }
}

impl<T> Captured<T> {
    /// In the order of their places, which says nothing.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flat_map(|chunk| chunk.slots.iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Inserts and removes by a fixed pattern, and keeps what should be there.
    fn churned(steps: u64) -> (Slots<u64>, BTreeMap<Place, u64>) {
        let (mut slots, mut expected) = (Slots::default(), BTreeMap::new());
        for step in 0..steps {
            if step % 5 < 3 {
                let place = slots.insert(step);
                assert_eq!(expected.insert(place, step), None, "a place has one value");
            } else if let Some(place) = expected.keys().nth(expected.len() / 3).copied() {
                assert_eq!(slots.remove(place), expected.remove(&place));
            }
        }
        (slots, expected)
    }

    fn check(slots: &Slots<u64>, expected: &BTreeMap<Place, u64>) {
        assert_eq!(slots.len(), expected.len());
        for place in 0..slots.places() + 2 * CHUNK {
            assert_eq!(slots.get(place), expected.get(&place), "at {place}");
        }
        assert!(expected.keys().all(|place| *place < slots.places()));
    }

    #[test]
    fn a_value_keeps_its_place() {
        for steps in [1, 10, 2_000, 4_000] {
            let (slots, expected) = churned(steps);
            check(&slots, &expected);
        }
    }

    #[test]
    fn a_capture_is_of_its_moment() {
        let (mut slots, expected) = churned(3_000);
        let captured = slots.capture();
        let before: Vec<u64> = captured.values().copied().collect();
        assert_eq!(before, expected.values().copied().collect::<Vec<_>>());
        for place in expected.keys() {
            if place % 3 == 0 {
                slots.remove(*place);
            } else if let Some(value) = slots.get_mut(*place) {
                *value += 1_000_000;
            }
        }
        for number in 0..2_000 {
            slots.insert(number);
        }
        assert_eq!(captured.values().copied().collect::<Vec<_>>(), before);
    }

    #[test]
    fn a_change_copies_one_chunk_and_only_while_it_is_shared() {
        let mut slots = Slots::default();
        for number in 0..4 * CHUNK {
            slots.insert(number);
        }
        let addresses = |slots: &Slots<usize>| -> Vec<*const Chunk<usize>> {
            slots.chunks.iter().map(Arc::as_ptr).collect()
        };
        let before = addresses(&slots);
        let captured = slots.capture();
        *slots.get_mut(CHUNK + 3).unwrap() = 7;
        let shared = addresses(&slots);
        let changed: Vec<usize> = (0..4).filter(|number| before[*number] != shared[*number]).collect();
        assert_eq!(changed, [1]);
        *slots.get_mut(CHUNK + 4).unwrap() = 8;
        assert_eq!(addresses(&slots), shared, "it is its own now");
        drop(captured);
        *slots.get_mut(0).unwrap() = 9;
        assert_eq!(addresses(&slots), shared, "nobody else has it any more");
    }

    #[test]
    fn empty_chunks_go() {
        let mut slots = Slots::default();
        let places: Vec<Place> = (0..10 * CHUNK).map(|number| slots.insert(number)).collect();
        for place in places.iter().filter(|place| **place >= CHUNK) {
            slots.remove(*place);
        }
        assert_eq!((slots.chunks.len(), slots.roomy.len()), (1, 0));
        for place in &places[..CHUNK] {
            slots.remove(*place);
        }
        assert_eq!((slots.chunks.len(), slots.roomy.len(), slots.places()), (0, 0, 0));
        assert_eq!(slots.insert(1), 0);
    }

    #[test]
    fn an_empty_chunk_between_others_keeps_no_values() {
        let mut slots = Slots::default();
        let places: Vec<Place> = (0..3 * CHUNK).map(|number| slots.insert(number)).collect();
        for place in &places[CHUNK..2 * CHUNK] {
            slots.remove(*place);
        }
        assert_eq!(slots.chunks[1].slots.capacity(), 0);
        assert_eq!(slots.insert(5) / CHUNK, 1, "and is filled first");
        assert_eq!(slots.remove(CHUNK + 5), None, "vacant");
        assert_eq!(slots.remove(9 * CHUNK), None, "never there");
    }
}

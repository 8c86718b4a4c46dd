//! The lowest of many keys, while the keys change.
//!
//! Keys stand in numbered places. Of every group of 16 places the lowest key is kept, and which member has it; of every
//! group of 16 such groups again, and so on until one group is left. A key that rises matters only if it was the lowest
//! of its group, and whether it was is one byte. So most changes cost next to nothing, and none costs more than 16
//! comparisons for each level.

/// How many places, or groups of the level below, make a group.
const GROUP: usize = 16;

/// What can be kept in order here.
pub(crate) trait Key: Copy + Ord {
    /// No key, or one that nobody looks for: not lower than any other.
    const NONE: Self;
}

/// The lowest keys of all groups. The keys themselves are the owner's, who lends them as `key_at`: the key of a place,
/// [`Key::NONE`] for a vacant one.
#[derive(Clone, Debug)]
pub(crate) struct Minima<K> {
    /// The groups of places, the groups of those groups, and so on. The members of the last level are one group.
    levels: Vec<Level<K>>,
    top: Lowest<K>,
}

/// The lowest key of each group of a level. Apart from each other, because one is asked for much more often.
#[derive(Clone, Debug)]
struct Level<K> {
    members: Vec<u8>,
    keys: Vec<K>,
}

/// The lowest key of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Lowest<K> {
    key: K,
    /// Which member of the group has it; with equal keys any of those.
    member: u8,
}

impl<K: Key> Default for Minima<K> {
    fn default() -> Self {
        Self { levels: Vec::new(), top: Lowest { key: K::NONE, member: 0 } }
    }
}

impl<K: Key> Minima<K> {
    /// The lowest key of all.
    #[inline]
    pub(crate) fn lowest(&self) -> K {
        self.top.key
    }

    /// Makes room for so many places, or gives up the room of vacant ones behind them.
    pub(crate) fn resize(&mut self, places: usize) {
        let mut height = 0_usize;
        let mut groups = places.div_ceil(GROUP);
        while groups > 1 {
            if height == self.levels.len() {
                // Up to here, everything was in what is now the first group.
                let Lowest { key, member } = self.top;
                self.levels.push(Level { members: vec![member], keys: vec![key] });
                self.top.member = 0;
            }
            if let Some(level) = self.levels.get_mut(height) {
                level.members.resize(groups, 0);
                level.keys.resize(groups, K::NONE);
            }
            height = height.saturating_add(1);
            groups = groups.div_ceil(GROUP);
        }
        while self.levels.len() > height
            && let Some(level) = self.levels.pop()
        {
            self.top.member = level.members.first().copied().unwrap_or_default();
        }
    }

    /// The key of a place has changed.
    #[inline]
    pub(crate) fn change(&mut self, place: usize, was: K, is: K, key_at: impl Fn(usize) -> K) {
        debug_assert!(key_at(place) == is, "the owner has changed it already");
        let (mut place, mut was, mut is) = (place, was, is);
        for level in 0..=self.levels.len() {
            let (group, member) = (place / GROUP, member_of(place));
            let was_lowest = self.lowest_member(level, group) == member;
            if is >= was && !was_lowest {
                return;
            }
            let known = self.lowest_key(level, group);
            debug_assert!(known <= was, "the lowest of a group is not above any of it");
            let lowest = if is <= known {
                Lowest { key: is, member }
            } else if was_lowest {
                self.find_lowest(level, group, &key_at)
            } else {
                return;
            };
            self.set(level, group, lowest);
            (place, was, is) = (group, known, lowest.key);
            if was == is {
                return;
            }
        }
    }

    fn lowest_member(&self, level: usize, group: usize) -> u8 {
        match self.levels.get(level) {
            Some(level) => level.members.get(group).copied().unwrap_or_default(),
            None => self.top.member,
        }
    }

    fn lowest_key(&self, level: usize, group: usize) -> K {
        match self.levels.get(level) {
            Some(level) => level.keys.get(group).copied().unwrap_or(K::NONE),
            None => self.top.key,
        }
    }

    fn set(&mut self, level: usize, group: usize, lowest: Lowest<K>) {
        let Some(level) = self.levels.get_mut(level) else {
            self.top = lowest;
            return;
        };
        if let (Some(member), Some(key)) = (level.members.get_mut(group), level.keys.get_mut(group)) {
            (*member, *key) = (lowest.member, lowest.key);
        }
    }

    /// The lowest key of a group, from what is kept for the level below.
    fn find_lowest(&self, level: usize, group: usize, key_at: &impl Fn(usize) -> K) -> Lowest<K> {
        let first = group.saturating_mul(GROUP);
        let of = |place: usize| match level.checked_sub(1) {
            Some(below) => self.lowest_key(below, place),
            None => key_at(place),
        };
        let mut lowest = Lowest { key: of(first), member: 0 };
        for place in first.saturating_add(1)..first.saturating_add(GROUP) {
            let key = of(place);
            if key < lowest.key {
                lowest = Lowest { key, member: member_of(place) };
            }
        }
        lowest
    }

    /// The first of some places whose key is below a limit.
    pub(crate) fn first_below(
        &self,
        limit: K,
        places: std::ops::Range<usize>,
        key_at: impl Fn(usize) -> K,
    ) -> Option<usize> {
        let mut place = places.start;
        while place < places.end {
            match self.nothing_below(limit, place) {
                0 if key_at(place) < limit => return Some(place),
                width => place = place.saturating_add(width.max(1)),
            }
        }
        None
    }

    /// The width of the widest group that begins at a place and has no key below a limit.
    fn nothing_below(&self, limit: K, place: usize) -> usize {
        let (mut found, mut width, mut group) = (0, 1_usize, place);
        for level in &self.levels {
            let begins_here = group.is_multiple_of(GROUP);
            group /= GROUP;
            if !begins_here || level.keys.get(group).is_some_and(|lowest| *lowest < limit) {
                break;
            }
            width = width.saturating_mul(GROUP);
            found = width;
        }
        found
    }
}

/// Which member of its group a place is.
#[allow(clippy::cast_possible_truncation)] // below 16
fn member_of(place: usize) -> u8 {
    (place % GROUP) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Key for u16 {
        const NONE: Self = u16::MAX;
    }

    /// Keys and their minima, changed together.
    #[derive(Default)]
    struct Table {
        keys: Vec<u16>,
        minima: Minima<u16>,
    }

    impl Table {
        fn set(&mut self, place: usize, key: u16) {
            if place >= self.keys.len() {
                self.keys.resize(place + 1, u16::NONE);
                self.minima.resize(place + 1);
            }
            let was = std::mem::replace(&mut self.keys[place], key);
            self.minima.change(place, was, key, |place| self.keys.get(place).copied().unwrap_or(u16::NONE));
        }

        fn first_below(&self, limit: u16, places: std::ops::Range<usize>) -> Option<usize> {
            self.minima.first_below(limit, places, |place| self.keys[place])
        }

        /// Every group of every level has its lowest key.
        fn check(&self) {
            assert_eq!(self.minima.lowest(), self.keys.iter().copied().min().unwrap_or(u16::NONE));
            let mut below = self.keys.clone();
            for level in &self.minima.levels {
                let expected: Vec<u16> =
                    below.chunks(GROUP).map(|group| *group.iter().min().unwrap()).collect();
                assert_eq!(level.keys, expected);
                let member = |(group, keys): (usize, &[u16])| keys[usize::from(level.members[group])];
                let members: Vec<u16> = below.chunks(GROUP).enumerate().map(member).collect();
                assert_eq!(members, expected, "a member of the group has it");
                below = expected;
            }
            assert!(below.len() <= GROUP, "the members of the last level are one group");
            let top = below.get(usize::from(self.minima.top.member)).copied();
            assert_eq!(top.unwrap_or(u16::NONE), self.minima.lowest());
        }
    }

    /// Numbers without a pattern.
    fn numbers() -> impl FnMut(usize) -> usize {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        move |below| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % below as u64).unwrap()
        }
    }

    #[test]
    fn the_lowest_is_known_after_every_change() {
        for size in [1, 2, 15, 16, 17, 255, 256, 257, 300, 4_097] {
            let mut table = Table::default();
            let mut number = numbers();
            for round in 0..2_000 {
                // Few different keys, so that many are equal; some vacant.
                let key = [number(5), number(1_000), usize::from(u16::NONE)][number(3)];
                table.set(number(size), u16::try_from(key).unwrap());
                if round % 50 == 0 {
                    table.check();
                }
            }
            table.check();
        }
    }

    #[test]
    fn the_lowest_goes_through_places_in_turn() {
        // Each change is of the key that is lowest, as it is when sessions give signs of life one after the other.
        let mut table = Table::default();
        for round in 0..10 {
            for place in 0..600 {
                table.set(place, round);
            }
            table.check();
        }
    }

    #[test]
    fn the_first_below_a_limit_is_found_from_anywhere() {
        let mut number = numbers();
        for size in [1, 16, 17, 300, 5_000] {
            let mut table = Table::default();
            table.set(size - 1, 9);
            for _ in 0..size / 40 {
                table.set(number(size), u16::try_from(number(9)).unwrap());
            }
            for _ in 0..300 {
                let (limit, from, to) = (u16::try_from(number(11)).unwrap(), number(size), number(size + 1));
                let expected = (from..to).find(|place| table.keys[*place] < limit);
                assert_eq!(table.first_below(limit, from..to), expected, "below {limit} in {from}..{to}");
            }
        }
    }

    #[test]
    fn room_that_is_given_up_takes_no_memory() {
        let mut table = Table::default();
        for place in 0..5_000 {
            table.set(place, 7);
        }
        for place in (0..5_000).rev() {
            table.set(place, u16::NONE);
            table.keys.truncate(place);
            table.minima.resize(place);
            if place % 97 == 0 || place < 40 {
                table.check();
            }
        }
        assert!(table.minima.levels.is_empty());
    }
}

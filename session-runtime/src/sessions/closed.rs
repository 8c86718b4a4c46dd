//! The ids of the sessions lately closed.

use super::slots::{Captured, Place, Slots};
use crate::identity::SessionId;
use std::collections::{BTreeMap, BTreeSet};

/// How far behind the log a session id may be drawn. Closed ids are remembered for as long.
pub(crate) const MAX_AGE: u64 = 65_536;

/// The closed ids that are young enough to be asked for again.
#[derive(Debug, Default)]
pub(super) struct Closed {
    /// By id, and so by the position at which they were drawn.
    places: BTreeMap<SessionId, Place>,
    /// The same ids, for the snapshot.
    ids: Slots<SessionId>,
}

impl Closed {
    pub(super) fn contains(&self, id: SessionId) -> bool {
        self.places.contains_key(&id)
    }

    pub(super) fn insert(&mut self, id: SessionId) {
        let ids = &mut self.ids;
        self.places.entry(id).or_insert_with(|| ids.insert(id));
    }

    /// Forgets the ids that are too old to be opened at `next_index` or later.
    #[inline]
    pub(super) fn forget(&mut self, next_index: u64) {
        while let Some(oldest) = self.places.first_entry()
            && oldest.key().position().saturating_add(MAX_AGE) < next_index
        {
            self.ids.remove(oldest.remove());
        }
    }

    pub(super) fn capture(&self) -> Captured<SessionId> {
        self.ids.capture()
    }
}

impl From<BTreeSet<SessionId>> for Closed {
    fn from(ids: BTreeSet<SessionId>) -> Self {
        let mut closed = Self::default();
        for id in ids {
            closed.insert(id);
        }
        closed
    }
}

//! The leader's gate: what is answered already needs no log entry, and what is in the log is not appended again.

use crate::{
    codec::{self, DecodeError},
    guard::guard,
    machine::{Command, StateMachine},
};
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Whether no version of the machine will ever execute this payload for a client: it is over a maximum of the format,
/// its bytes do not fit the variant they name, or the command is internal. Such a request, and no other, may be
/// answered with [`InvalidPayload`](crate::RequestError::InvalidPayload) without a log entry.
///
/// A variant that this build does not know, or that is not active yet, is to be appended: an upgrade may stand before
/// it in the log, and only the cached answer keeps a copy of it from running after a later one.
pub fn is_never_valid<M: StateMachine>(payload: &[u8]) -> bool {
    match guard(|| M::Command::decode(payload).map(|command| M::is_internal(&command))) {
        Ok(Ok(internal)) => internal,
        Ok(Err(DecodeError::TooLarge { .. } | DecodeError::TooDeep { .. })) => true,
        Ok(Err(_)) => {
            let tag = codec::decode_start::<u32>(payload).ok().and_then(|tag| usize::try_from(tag).ok());
            tag.is_some_and(|tag| tag < M::Command::VARIANTS.len())
        }
        // What a decoder of the user's own does not survive may be read by another build.
        Err(_) => false,
    }
}

/// Decides, before the log, what to do with a request that arrives at the leader.
///
/// The gate saves log entries and nothing else: losing it is harmless, because applying an entry removes
/// duplicates anyway. It is generic over the key, so sessions (with [`SessionKey`](crate::SessionKey)) and
/// request ids both use it.
///
/// ```
/// use session_runtime::admission::{Admission, Admit};
///
/// let mut gate = Admission::new();
/// let term = 4;
/// assert_eq!(gate.admit(term, &"request 1", None::<u64>), Admit::Append);
/// gate.appended("request 1", term, 17);
/// assert_eq!(gate.admit(term, &"request 1", None::<u64>), Admit::InFlight { index: 17 });
/// gate.applied(17);
/// assert_eq!(gate.admit(term, &"request 1", Some(5)), Admit::Answered(5));
/// ```
#[derive(Clone, Debug)]
pub struct Admission<K> {
    term: u64,
    /// The highest index reported as applied.
    applied: u64,
    /// The requests appended in this term and not applied yet, with the index of the last copy.
    in_flight: HashMap<K, u64>,
    /// The same in the order of the log, to clear what was applied.
    by_index: VecDeque<(u64, K)>,
}

/// What to do with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admit<A> {
    /// The applied state has the answer: send it, and write nothing.
    Answered(A),
    /// It was appended in this term and is not applied yet: wait for that entry, and write nothing.
    InFlight {
        /// Where it stands in the log.
        index: u64,
    },
    /// Append it, then report [`appended`](Admission::appended) or [`failed`](Admission::failed).
    Append,
}

impl<K: Eq + Hash + Clone> Admission<K> {
    /// A gate that knows of nothing.
    pub fn new() -> Self {
        Self { term: 0, applied: 0, in_flight: HashMap::new(), by_index: VecDeque::new() }
    }

    /// What to do with the request `key` at a leader of `term`, given the answer that its applied state has.
    pub fn admit<A>(&mut self, term: u64, key: &K, answer: Option<A>) -> Admit<A> {
        self.enter(term);
        match (answer, self.in_flight.get(key)) {
            (Some(answer), _) => Admit::Answered(answer),
            (None, Some(index)) if term == self.term => Admit::InFlight { index: *index },
            (None, _) => Admit::Append,
        }
    }

    /// The request was appended. A report that comes after the entry was applied records nothing, so that
    /// nobody waits for an entry that is past.
    pub fn appended(&mut self, key: K, term: u64, index: u64) {
        self.enter(term);
        if term < self.term || index <= self.applied {
            return;
        }
        match self.by_index.binary_search_by_key(&index, |(at, _)| *at) {
            // Whatever stood at this index before is no longer in the log.
            Ok(place) => {
                if let Some((_, overwritten)) = self.by_index.get_mut(place) {
                    let overwritten = std::mem::replace(overwritten, key.clone());
                    self.forget(&overwritten, index);
                }
            }
            Err(place) => self.by_index.insert(place, (index, key.clone())),
        }
        self.in_flight.insert(key, index);
    }

    /// Every entry up to `index` was applied.
    pub fn applied(&mut self, index: u64) {
        self.applied = self.applied.max(index);
        while let Some((at, key)) = self.by_index.pop_front_if(|(at, _)| *at <= index) {
            self.forget(&key, at);
        }
    }

    /// The request could not be appended, or its entry was lost: the next copy may try again.
    pub fn failed(&mut self, key: &K) {
        if let Some(index) = self.in_flight.remove(key)
            && let Ok(place) = self.by_index.binary_search_by_key(&index, |(at, _)| *at)
        {
            self.by_index.remove(place);
        }
    }

    /// The copy at `index` is no longer under way; a later one may be.
    fn forget(&mut self, key: &K, index: u64) {
        if self.in_flight.get(key) == Some(&index) {
            self.in_flight.remove(key);
        }
    }

    /// How many requests are in the log and not applied yet.
    pub fn len(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// A new term drops all: what another leader did not commit may be gone from the log.
    fn enter(&mut self, term: u64) {
        if term > self.term {
            self.term = term;
            self.in_flight.clear();
            self.by_index.clear();
        }
    }
}

impl<K: Eq + Hash + Clone> Default for Admission<K> {
    fn default() -> Self {
        Self::new()
    }
}

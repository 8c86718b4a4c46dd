//! The server requests that a client has not acknowledged.

use crate::action::PendingRequest;
use crate::identity::{ServerRequestId, Timestamp};
use crate::sessions::{Key, Minima};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::VecDeque;

/// A time that never comes before another, so it is never looked for.
impl Key for Timestamp {
    const NONE: Self = Self(u64::MAX);
}

/// Server requests in the order of their numbers, and which of them were sent longest ago.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending {
    requests: VecDeque<PendingRequest>,
    /// The times of last sending; the request at index n is at place `dropped + n`.
    times: Minima<Timestamp>,
    /// How many places before the first request are vacant, because their requests were dropped.
    dropped: usize,
}

/// The time of last sending at a place.
fn time_at(requests: &VecDeque<PendingRequest>, dropped: usize) -> impl Fn(usize) -> Timestamp {
    move |place| {
        let index = place.checked_sub(dropped);
        index.and_then(|index| requests.get(index)).map_or(Timestamp::NONE, |request| request.last_sent_at)
    }
}

impl Pending {
    pub(super) fn iter(&self) -> impl Iterator<Item = &PendingRequest> {
        self.requests.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// The lowest time of last sending.
    pub(super) fn oldest_sent(&self) -> Timestamp {
        self.times.lowest()
    }

    pub(super) fn push(&mut self, request: PendingRequest) {
        let (place, time) = (self.end(), request.last_sent_at);
        self.requests.push_back(request);
        self.times.resize(self.end());
        self.times.change(place, Timestamp::NONE, time, time_at(&self.requests, self.dropped));
    }

    /// Drops every request up to this one.
    pub(super) fn acknowledge(&mut self, up_to: ServerRequestId) {
        if self.requests.back().is_some_and(|last| last.id <= up_to) {
            *self = Self::default();
        }
        while let Some(first) = self.requests.pop_front_if(|first| first.id <= up_to) {
            let place = self.dropped;
            self.dropped = self.dropped.saturating_add(1);
            let time_at = time_at(&self.requests, self.dropped);
            self.times.change(place, first.last_sent_at, Timestamp::NONE, time_at);
        }
        if self.dropped > self.requests.len().max(64) {
            *self = Self::from(std::mem::take(&mut self.requests));
        }
    }

    /// The first request that was last sent before a moment.
    pub(super) fn first_due(&self, before: Timestamp) -> Option<&PendingRequest> {
        let place = self.next_due(before, self.dropped)?;
        self.requests.get(place.saturating_sub(self.dropped))
    }

    /// Marks the first requests that were last sent before a moment as sent now, at most `limit`, and shows them.
    pub(super) fn resend(
        &mut self,
        before: Timestamp,
        limit: usize,
        now: Timestamp,
        mut sent: impl FnMut(&PendingRequest),
    ) {
        let mut from = self.dropped;
        for _ in 0..limit {
            let Some(place) = self.next_due(before, from) else { break };
            from = place.saturating_add(1);
            let Some(request) = self.requests.get_mut(place.saturating_sub(self.dropped)) else { break };
            let was = std::mem::replace(&mut request.last_sent_at, now);
            request.attempts = request.attempts.saturating_add(1);
            sent(request);
            self.times.change(place, was, now, time_at(&self.requests, self.dropped));
        }
    }

    fn next_due(&self, before: Timestamp, from: usize) -> Option<usize> {
        self.times.first_below(before, from..self.end(), time_at(&self.requests, self.dropped))
    }

    fn end(&self) -> usize {
        self.dropped.saturating_add(self.requests.len())
    }
}

impl From<VecDeque<PendingRequest>> for Pending {
    fn from(requests: VecDeque<PendingRequest>) -> Self {
        let mut pending = Self { requests, ..Self::default() };
        pending.times.resize(pending.end());
        for (place, request) in pending.requests.iter().enumerate() {
            let time_at = time_at(&pending.requests, 0);
            pending.times.change(place, Timestamp::NONE, request.last_sent_at, time_at);
        }
        pending
    }
}

/// As the sequence of its requests.
impl Serialize for Pending {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.requests.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Pending {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        VecDeque::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn request(id: u64, last_sent_at: u64) -> PendingRequest {
        let last_sent_at = Timestamp(last_sent_at);
        PendingRequest { id: ServerRequestId(id), payload: Bytes::new(), last_sent_at, attempts: 1 }
    }

    fn due(pending: &Pending, before: u64) -> Vec<u64> {
        let due = pending.iter().filter(|request| request.last_sent_at < Timestamp(before));
        due.map(|request| request.id.0).collect()
    }

    /// What is kept beside the requests follows from them.
    fn check(pending: &Pending) {
        let oldest = pending.iter().map(|request| request.last_sent_at).min();
        assert_eq!(pending.oldest_sent(), oldest.unwrap_or(Timestamp::NONE));
        for before in [0, 1, 5, 50, 500, u64::MAX] {
            let first = pending.first_due(Timestamp(before)).map(|request| request.id.0);
            assert_eq!(first, due(pending, before).first().copied(), "before {before}");
        }
    }

    #[test]
    fn limited_retries_and_acknowledgments_in_any_mixture() {
        for size in [1, 15, 17, 300, 1_000] {
            let mut pending = Pending::default();
            let mut last = 0;
            for step in 1..=size {
                for _ in 0..step % 4 {
                    last += 1;
                    pending.push(request(last, step));
                }
                let (before, limit) = (step.saturating_sub(step % 7), usize::try_from(step % 5).unwrap());
                let mut expected = due(&pending, before);
                expected.truncate(limit);
                let mut sent = Vec::new();
                pending.resend(Timestamp(before), limit, Timestamp(step), |request| sent.push(request.id.0));
                assert_eq!(sent, expected);
                if step % 11 == 0 {
                    let first = pending.iter().next().map_or(0, |request| request.id.0);
                    pending.acknowledge(ServerRequestId(first + step % 13));
                }
                check(&pending);
            }
            let places = pending.dropped + pending.len();
            assert!(places <= 2 * pending.len() + 66, "{places} places for {}", pending.len());
            pending.acknowledge(ServerRequestId(u64::MAX));
            check(&pending);
            assert_eq!((pending.len(), pending.dropped), (0, 0));
        }
    }

    #[test]
    fn what_was_acknowledged_takes_no_memory() {
        for at_once in [1, 200] {
            let mut pending: Pending = (1..=1_000).map(|id| request(id, id)).collect::<VecDeque<_>>().into();
            for last in (at_once..1_000).step_by(usize::try_from(at_once).unwrap()) {
                pending.acknowledge(ServerRequestId(last));
                let (dropped, left) = (pending.dropped, pending.len());
                assert!(dropped <= left.max(64), "{dropped} vacant places before {left} requests");
            }
            check(&pending);
        }
    }

    #[test]
    fn places_are_not_numbered_anew_at_every_acknowledgment() {
        let mut pending: Pending = (1..=1_000).map(|id| request(id, id)).collect::<VecDeque<_>>().into();
        pending.acknowledge(ServerRequestId(10));
        assert_eq!(pending.dropped, 10);
    }

    #[test]
    fn a_moment_in_the_future_sends_each_once() {
        let mut pending: Pending = (1..=40).map(|id| request(id, id)).collect::<VecDeque<_>>().into();
        check(&pending);
        let mut sent = 0;
        pending.resend(Timestamp(u64::MAX), usize::MAX, Timestamp(50), |_| sent += 1);
        assert_eq!(sent, 40);
        check(&pending);
    }
}

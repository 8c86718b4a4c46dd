//! One session: what the replicated state keeps for one client.

mod answers;
mod pending;

pub(crate) use answers::Answer;

use crate::{
    action::{PendingRequest, RequestError, Response},
    identity::{RequestId, ServerRequestId, Timestamp},
};
use answers::Answers;
use bytes::Bytes;
use pending::Pending;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What one client is owed and has been told.
///
/// Small, because there may be a million; and quick to copy, because a snapshot makes copies necessary: whatever may be
/// large is behind an `Arc`, and copied only if it changes itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Session {
    /// The lowest request that may still matter.
    watermark: RequestId,
    /// The answers at or above the watermark.
    answers: Answers,
    /// The server request numbered last, or 0.
    last_server_request: ServerRequestId,
    /// The server requests not acknowledged.
    pending: Shared<Pending>,
    capabilities: Shared<BTreeMap<String, String>>,
    last_activity: Timestamp,
    /// It was sent more than it may have pending, and is to be closed for that.
    slow_consumer: bool,
}

static NO_CAPABILITIES: BTreeMap<String, String> = BTreeMap::new();

impl Session {
    pub(crate) fn new(capabilities: BTreeMap<String, String>, now: Timestamp) -> Self {
        Self {
            watermark: RequestId(1),
            answers: Answers::None,
            last_server_request: ServerRequestId(0),
            pending: Shared::default(),
            capabilities: Shared::from(capabilities),
            last_activity: now,
            slow_consumer: false,
        }
    }

    #[inline]
    pub(crate) fn watermark(&self) -> RequestId {
        self.watermark
    }

    #[inline]
    pub(crate) fn cached_bytes(&self) -> u64 {
        self.answers.bytes()
    }

    pub(crate) fn capabilities(&self) -> &BTreeMap<String, String> {
        self.capabilities.0.as_deref().unwrap_or(&NO_CAPABILITIES)
    }

    #[inline]
    pub(crate) fn last_activity(&self) -> Timestamp {
        self.last_activity
    }

    #[inline]
    pub(crate) fn is_slow_consumer(&self) -> bool {
        self.slow_consumer
    }

    pub(crate) fn mark_slow_consumer(&mut self) {
        self.slow_consumer = true;
    }

    #[inline]
    pub(crate) fn answer(&self, request: RequestId) -> Option<&Answer> {
        self.answers.get(request)
    }

    #[inline]
    pub(crate) fn record(
        &mut self,
        request: RequestId,
        payload_hash: u64,
        result: &Result<Response, RequestError>,
    ) {
        debug_assert!(request >= self.watermark, "an answer nobody can ask for");
        self.answers.record(request, payload_hash, result);
    }

    /// A sign of life: the client is active, has received what it acknowledges, and needs no answer below
    /// `lowest_pending`.
    #[inline]
    pub(crate) fn touch(&mut self, now: Timestamp, acked: ServerRequestId, lowest_pending: RequestId) {
        self.last_activity = now;
        if self.pending().next().is_some_and(|first| first.id <= acked) {
            self.pending.change(|pending| pending.acknowledge(acked));
        }
        if lowest_pending > self.watermark {
            self.watermark = lowest_pending;
            self.answers.discard_below(lowest_pending);
        }
    }

    pub(crate) fn pending(&self) -> impl Iterator<Item = &PendingRequest> {
        self.pending.0.iter().flat_map(|pending| pending.iter())
    }

    pub(crate) fn pending_count(&self) -> usize {
        self.pending.0.as_ref().map_or(0, |pending| pending.len())
    }

    /// When the pending server request was sent that was not sent again for the longest time.
    #[inline]
    pub(crate) fn oldest_sent(&self) -> Option<Timestamp> {
        self.pending.0.as_ref().map(|pending| pending.oldest_sent())
    }

    /// Numbers and keeps a server request. `None` once the numbers are used up.
    pub(crate) fn send(&mut self, payload: Bytes, now: Timestamp) -> Option<ServerRequestId> {
        let id = ServerRequestId(self.last_server_request.0.checked_add(1)?);
        self.last_server_request = id;
        let request = PendingRequest { id, payload, last_sent_at: now, attempts: 1 };
        self.pending.change(|pending| pending.push(request));
        Some(id)
    }

    /// The first pending server request last sent before a moment.
    pub(crate) fn first_due(&self, before: Timestamp) -> Option<&PendingRequest> {
        self.pending.0.as_ref()?.first_due(before)
    }

    /// Marks the first pending server requests last sent before a moment as sent now, at most `limit`, and shows them.
    pub(crate) fn resend(
        &mut self,
        before: Timestamp,
        limit: usize,
        now: Timestamp,
        sent: impl FnMut(&PendingRequest),
    ) {
        self.pending.change(|pending| pending.resend(before, limit, now, sent));
    }

    /// Says why a session that was read from a snapshot cannot be one.
    pub(crate) fn check(&self, now: Timestamp) -> Result<(), &'static str> {
        let ids = || self.pending().map(|request| request.id);
        if self.watermark < RequestId(1) {
            return Err("its watermark is 0");
        }
        if self.answers.lowest().is_some_and(|request| request < self.watermark) {
            return Err("it holds an answer below its watermark");
        }
        if !ids().is_sorted_by(|one, next| one < next)
            || ids().any(|id| id < ServerRequestId(1) || id > self.last_server_request)
        {
            return Err("its pending server requests are not numbered in order");
        }
        if self.last_activity > now {
            return Err("its last activity lies behind the clock");
        }
        Ok(())
    }
}

/// A collection that is nothing while it is empty, and shared with captures until it changes.
#[derive(Clone, Debug, Default)]
struct Shared<T>(Option<Arc<T>>);

/// Whether a collection is empty.
trait Collection: Clone + Default {
    fn is_empty(&self) -> bool;
}

impl Collection for BTreeMap<String, String> {
    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

impl Collection for Pending {
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Collection> Shared<T> {
    fn change(&mut self, change: impl FnOnce(&mut T)) {
        let content = Arc::make_mut(self.0.get_or_insert_default());
        change(content);
        if content.is_empty() {
            self.0 = None;
        }
    }
}

impl<T: Collection> From<T> for Shared<T> {
    fn from(content: T) -> Self {
        Self((!content.is_empty()).then(|| Arc::new(content)))
    }
}

impl<T: Collection + Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(content) => content.serialize(serializer),
            None => T::default().serialize(serializer),
        }
    }
}

impl<'de, T: Collection + Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_empty_takes_no_memory() {
        let mut session = Session::new(BTreeMap::new(), Timestamp(0));
        assert!(session.capabilities.0.is_none() && session.pending.0.is_none());
        session.send(Bytes::new(), Timestamp(0));
        assert!(session.pending.0.is_some());
        session.touch(Timestamp(0), ServerRequestId(1), RequestId(1));
        assert!(session.pending.0.is_none());
    }
}

//! One session: what the replicated state keeps for one client.

use crate::{
    action::{PendingRequest, RequestError, Response},
    identity::{RequestId, ServerRequestId, Timestamp},
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// What a cached answer counts beside its payload.
const RECORD_BYTES: u64 = 32;

/// What one client is owed and has been told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Session {
    /// The lowest request that may still matter.
    watermark: RequestId,
    /// The answers at or above the watermark.
    answers: BTreeMap<RequestId, Answer>,
    /// The server request numbered last, or 0.
    last_server_request: ServerRequestId,
    /// The server requests not acknowledged, in the order of their numbers.
    pending: VecDeque<PendingRequest>,
    capabilities: BTreeMap<String, String>,
    last_activity: Timestamp,
    /// It was sent more than it may have pending, and is to be closed for that.
    slow_consumer: bool,
    /// What the answers count, kept beside them.
    #[serde(skip)]
    cached_bytes: u64,
}

/// A cached answer, and the hash of the payload it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) payload_hash: u64,
    pub(crate) result: Result<Response, RequestError>,
}

impl Answer {
    fn bytes(&self) -> u64 {
        let payload = match &self.result {
            Ok(response) => response.payload.len() as u64,
            Err(_) => 0,
        };
        payload.saturating_add(RECORD_BYTES)
    }
}

impl Session {
    pub(crate) fn new(capabilities: BTreeMap<String, String>, now: Timestamp) -> Self {
        Self {
            watermark: RequestId(1),
            answers: BTreeMap::new(),
            last_server_request: ServerRequestId(0),
            pending: VecDeque::new(),
            capabilities,
            last_activity: now,
            slow_consumer: false,
            cached_bytes: 0,
        }
    }

    pub(crate) fn watermark(&self) -> RequestId {
        self.watermark
    }

    pub(crate) fn cached_bytes(&self) -> u64 {
        self.cached_bytes
    }

    pub(crate) fn capabilities(&self) -> &BTreeMap<String, String> {
        &self.capabilities
    }

    pub(crate) fn into_capabilities(self) -> BTreeMap<String, String> {
        self.capabilities
    }

    pub(crate) fn last_activity(&self) -> Timestamp {
        self.last_activity
    }

    pub(crate) fn set_last_activity(&mut self, now: Timestamp) {
        self.last_activity = now;
    }

    pub(crate) fn is_slow_consumer(&self) -> bool {
        self.slow_consumer
    }

    pub(crate) fn mark_slow_consumer(&mut self) {
        self.slow_consumer = true;
    }

    pub(crate) fn answer(&self, request: RequestId) -> Option<&Answer> {
        self.answers.get(&request)
    }

    pub(crate) fn record(&mut self, request: RequestId, answer: Answer) {
        debug_assert!(request >= self.watermark, "an answer nobody can ask for");
        self.cached_bytes = self.cached_bytes.saturating_add(answer.bytes());
        let before = self.answers.insert(request, answer);
        debug_assert!(before.is_none(), "a request was answered twice");
    }

    /// Raises the watermark and discards the answers below it.
    pub(crate) fn raise_watermark(&mut self, lowest_pending: RequestId) {
        if lowest_pending <= self.watermark {
            return;
        }
        self.watermark = lowest_pending;
        while let Some(first) = self.answers.first_entry() {
            if *first.key() >= lowest_pending {
                break;
            }
            self.cached_bytes = self.cached_bytes.saturating_sub(first.remove().bytes());
        }
    }

    pub(crate) fn pending(&self) -> impl Iterator<Item = &PendingRequest> {
        self.pending.iter()
    }

    pub(crate) fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// Numbers and keeps a server request. `None` once the numbers are used up.
    pub(crate) fn send(&mut self, payload: Bytes, now: Timestamp) -> Option<ServerRequestId> {
        let id = ServerRequestId(self.last_server_request.0.checked_add(1)?);
        self.last_server_request = id;
        self.pending.push_back(PendingRequest { id, payload, last_sent_at: now, attempts: 1 });
        Some(id)
    }

    /// Drops every pending server request up to this one.
    pub(crate) fn acknowledge(&mut self, up_to: ServerRequestId) {
        while self.pending.front().is_some_and(|first| first.id <= up_to) {
            self.pending.pop_front();
        }
    }

    /// The first pending server request last sent before a moment.
    pub(crate) fn first_due(&self, before: Timestamp) -> Option<&PendingRequest> {
        self.pending.iter().find(|request| request.last_sent_at < before)
    }

    /// The pending server requests last sent before a moment, to be marked as sent again.
    pub(crate) fn due(&mut self, before: Timestamp) -> impl Iterator<Item = &mut PendingRequest> {
        self.pending.iter_mut().filter(move |request| request.last_sent_at < before)
    }

    /// Makes a session that was read from a snapshot whole, or says why it cannot be one.
    pub(crate) fn check(&mut self, now: Timestamp) -> Result<(), &'static str> {
        self.cached_bytes = self.answers.values().fold(0, |sum, answer| sum.saturating_add(answer.bytes()));
        let ids = self.pending.iter().map(|request| request.id);
        if self.watermark < RequestId(1) {
            return Err("its watermark is 0");
        }
        if self.answers.keys().any(|request| *request < self.watermark) {
            return Err("it holds an answer below its watermark");
        }
        if !ids.clone().is_sorted_by(|one, next| one < next)
            || ids.clone().any(|id| id < ServerRequestId(1) || id > self.last_server_request)
        {
            return Err("its pending server requests are not numbered in order");
        }
        if self.last_activity > now {
            return Err("its last activity lies behind the clock");
        }
        Ok(())
    }
}

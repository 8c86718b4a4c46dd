//! The answers that a client may still ask for.

use crate::action::{RequestError, Response};
use crate::identity::RequestId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a cached answer counts beside its payload.
const RECORD_BYTES: u64 = 32;

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

/// Answers by request. Most clients send one request after the other, so that one answer is kept: it needs no memory
/// of its own. More are shared with captures until they change.
#[derive(Clone, Debug, Default)]
pub(super) enum Answers {
    #[default]
    None,
    One(RequestId, Answer),
    /// At least one.
    Many(Arc<Many>),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Many {
    answers: BTreeMap<RequestId, Answer>,
    /// What they count.
    bytes: u64,
}

impl Many {
    fn insert(&mut self, request: RequestId, answer: Answer) {
        self.bytes = self.bytes.saturating_add(answer.bytes());
        let before = self.answers.insert(request, answer);
        debug_assert!(before.is_none(), "a request was answered twice");
    }
}

impl Answers {
    pub(super) fn get(&self, request: RequestId) -> Option<&Answer> {
        match self {
            Self::One(known, answer) if *known == request => Some(answer),
            Self::None | Self::One(..) => None,
            Self::Many(many) => many.answers.get(&request),
        }
    }

    /// What they count against the limit.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::One(_, answer) => answer.bytes(),
            Self::Many(many) => many.bytes,
        }
    }

    pub(super) fn lowest(&self) -> Option<RequestId> {
        match self {
            Self::None => None,
            Self::One(request, _) => Some(*request),
            Self::Many(many) => many.answers.keys().next().copied(),
        }
    }

    /// Keeps the answer to a request that has none.
    pub(super) fn insert(&mut self, request: RequestId, answer: Answer) {
        debug_assert!(self.get(request).is_none(), "a request was answered twice");
        match std::mem::take(self) {
            Self::None => *self = Self::One(request, answer),
            Self::One(first, its_answer) => {
                let mut many = Many::default();
                many.insert(first, its_answer);
                many.insert(request, answer);
                *self = Self::Many(Arc::new(many));
            }
            Self::Many(mut many) => {
                Arc::make_mut(&mut many).insert(request, answer);
                *self = Self::Many(many);
            }
        }
    }

    /// Discards the answers below a request.
    pub(super) fn discard_below(&mut self, lowest: RequestId) {
        if self.lowest().is_none_or(|first| first >= lowest) {
            return;
        }
        let Self::Many(many) = self else {
            *self = Self::None;
            return;
        };
        let many = Arc::make_mut(many);
        while let Some(first) = many.answers.first_entry()
            && *first.key() < lowest
        {
            many.bytes = many.bytes.saturating_sub(first.remove().bytes());
        }
        if many.answers.is_empty() {
            *self = Self::None;
        }
    }
}

impl From<BTreeMap<RequestId, Answer>> for Answers {
    fn from(answers: BTreeMap<RequestId, Answer>) -> Self {
        let mut all = Self::None;
        for (request, answer) in answers {
            all.insert(request, answer);
        }
        all
    }
}

/// As a map.
impl Serialize for Answers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::None => serializer.collect_map::<RequestId, Answer, _>([]),
            Self::One(request, answer) => serializer.collect_map([(request, answer)]),
            Self::Many(many) => many.answers.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Answers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(Self::from)
    }
}

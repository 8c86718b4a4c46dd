//! The answers that a client may still ask for.

use crate::action::{RequestError, Response, Status};
use crate::identity::RequestId;
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a cached answer counts beside its payload.
const RECORD_BYTES: u64 = 32;

/// How many bytes of a response need no memory of their own.
const SMALL: usize = 30;

/// A cached answer, and the hash of the payload it answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(into = "Saved", from = "Saved")]
pub(crate) struct Answer {
    payload_hash: u64,
    kept: Kept,
}

#[derive(Clone, Debug)]
enum Kept {
    Small { status: Status, length: u8, bytes: [u8; SMALL] },
    Large(Response),
    Error(RequestError),
}

/// An answer in a snapshot.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Answer")]
struct Saved {
    payload_hash: u64,
    result: Result<Response, RequestError>,
}

impl From<Answer> for Saved {
    fn from(answer: Answer) -> Self {
        Self { payload_hash: answer.payload_hash, result: answer.result() }
    }
}

impl From<Saved> for Answer {
    fn from(saved: Saved) -> Self {
        Self::new(saved.payload_hash, &saved.result)
    }
}

impl Answer {
    #[inline]
    pub(crate) fn new(payload_hash: u64, result: &Result<Response, RequestError>) -> Self {
        let mut answer = Self::unwritten(payload_hash, result);
        answer.write(result);
        answer
    }

    /// The answer but for the bytes of a small response.
    #[inline]
    fn unwritten(payload_hash: u64, result: &Result<Response, RequestError>) -> Self {
        let kept = match result {
            Ok(response) => match u8::try_from(response.payload.len()) {
                Ok(length) if usize::from(length) <= SMALL => {
                    Kept::Small { status: response.status, length, bytes: [0; SMALL] }
                }
                _ => Kept::Large(response.clone()),
            },
            Err(error) => Kept::Error(*error),
        };
        Self { payload_hash, kept }
    }

    /// Writes the bytes of a small response.
    #[inline]
    fn write(&mut self, result: &Result<Response, RequestError>) {
        if let (Kept::Small { bytes, .. }, Ok(Response { payload, .. })) = (&mut self.kept, result)
            && let Some(room) = bytes.get_mut(..payload.len())
        {
            room.copy_from_slice(payload);
        }
    }

    #[inline]
    pub(crate) fn payload_hash(&self) -> u64 {
        self.payload_hash
    }

    #[inline]
    pub(crate) fn result(&self) -> Result<Response, RequestError> {
        match &self.kept {
            Kept::Small { status, length, bytes } => {
                let payload = bytes.get(..usize::from(*length)).unwrap_or_default();
                Ok(Response { status: *status, payload: Bytes::copy_from_slice(payload) })
            }
            Kept::Large(response) => Ok(response.clone()),
            Kept::Error(error) => Err(*error),
        }
    }

    /// What it counts against the limit.
    fn bytes(&self) -> u64 {
        let payload = match &self.kept {
            Kept::Small { length, .. } => u64::from(*length),
            Kept::Large(response) => response.payload.len() as u64,
            Kept::Error(_) => 0,
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
    #[inline]
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

    /// Keeps the answer to a request that has none. An only one is written where it is kept: moving what was just
    /// written makes the processor wait for it.
    #[inline]
    pub(super) fn record(
        &mut self,
        request: RequestId,
        payload_hash: u64,
        result: &Result<Response, RequestError>,
    ) {
        match self {
            Self::None => {
                *self = Self::One(request, Answer::unwritten(payload_hash, result));
                if let Self::One(_, answer) = self {
                    answer.write(result);
                }
            }
            some => some.insert(request, Answer::new(payload_hash, result)),
        }
    }

    fn insert(&mut self, request: RequestId, answer: Answer) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(length: usize) -> Result<Response, RequestError> {
        let payload = vec![7; length].into();
        let status = [Status::Accepted, Status::Rejected][length % 2];
        [Ok(Response { status, payload }), Err(RequestError::Skipped)][usize::from(length == 9)].clone()
    }

    #[test]
    fn an_answer_of_any_length_comes_back_as_it_was() {
        for length in [0, 1, SMALL - 1, SMALL, SMALL + 1, 1_000] {
            let kept = Answer::new(7, &answer(length));
            let small = matches!(kept.kept, Kept::Small { .. });
            assert_eq!(small, length <= SMALL, "a small one needs no memory of its own");
            assert_eq!((kept.payload_hash(), kept.result()), (7, answer(length)));
            assert_eq!(kept.bytes(), 32 + length as u64);
        }
        let error = Answer::new(7, &Err(RequestError::Skipped));
        assert_eq!((error.result(), error.bytes()), (Err(RequestError::Skipped), 32));
    }

    #[test]
    fn what_is_kept_and_what_it_counts_agree() {
        let mut answers = Answers::None;
        let mut expected = BTreeMap::new();
        // Some requests at a time, out of order; then the client has those below one of them.
        for round in 1..200_u64 {
            for request in (0..round % 6).rev().map(|offset| RequestId(10 * round + offset)) {
                let length = usize::try_from(round % 40).unwrap();
                answers.insert(request, Answer::new(round, &answer(length)));
                expected.insert(request, length);
            }
            let lowest = RequestId(10 * round + round % 7 - round % 13);
            answers.discard_below(lowest);
            expected.retain(|request, _| *request >= lowest);
            assert_eq!(answers.lowest(), expected.keys().next().copied());
            let bytes =
                |length: &usize| 32 + answer(*length).map_or(0, |response| response.payload.len() as u64);
            assert_eq!(answers.bytes(), expected.values().map(bytes).sum::<u64>());
            for request in (10 * round).saturating_sub(30)..10 * round + 10 {
                let kept = answers.get(RequestId(request)).map(Answer::result);
                assert_eq!(kept, expected.get(&RequestId(request)).map(|length| answer(*length)));
            }
            assert_eq!(expected.is_empty(), matches!(answers, Answers::None));
        }
    }
}

//! The bytes of a saved client.

use crate::{
    codec::{self, DecodeError, EncodeError},
    identity::{RequestId, ServerRequestId, SessionId},
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// What a saved client is restored from.
#[derive(Serialize, Deserialize)]
pub(super) struct Saved {
    pub(super) session: SessionId,
    pub(super) reserved: u64,
    pub(super) delivered: ServerRequestId,
    pub(super) pending: Vec<(RequestId, Bytes)>,
}

/// The first byte. A checksum follows, of what follows that; in version 1 there was none.
const VERSION: u8 = 2;

impl Saved {
    pub(super) fn to_bytes(&self) -> Result<Bytes, EncodeError> {
        let body = codec::encode_state(self)?;
        let checksum = codec::payload_hash(&body).to_le_bytes();
        Ok([&[VERSION][..], &checksum, &body].concat().into())
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let saved: Self = codec::decode_state(body(bytes)?)?;
        if saved.pending.iter().any(|(request, _)| request.0 == 0 || request.0 > saved.reserved) {
            return Err(DecodeError::Invalid("a request beyond the reserved numbers".to_owned()));
        }
        Ok(saved)
    }
}

/// What was written behind the version and the checksum.
fn body(bytes: &[u8]) -> Result<&[u8], DecodeError> {
    let body = match bytes.split_first() {
        Some((1, body)) => Some(body),
        Some((&VERSION, rest)) => rest.split_first_chunk().and_then(|(checksum, body)| {
            (u64::from_le_bytes(*checksum) == codec::payload_hash(body)).then_some(body)
        }),
        Some((version, _)) => {
            return Err(DecodeError::Invalid(format!(
                "a saved client begins with {VERSION}, and these with {version}; look whether they are one, and if so, \
                 run a newer build"
            )));
        }
        None => None,
    };
    body.ok_or_else(|| {
        DecodeError::Invalid(
            "they are damaged, or not those of a saved client; if nobody has a copy of what was stored last, open a \
             new session"
                .to_owned(),
        )
    })
}

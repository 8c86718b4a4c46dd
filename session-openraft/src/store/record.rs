//! The byte form of what the log's database holds: a checksum, then what it is of.

use super::log::LogTypes;
use bytes::Bytes;
use openraft::{CommittedLeaderId, Entry, EntryPayload, LogId};
use serde::{Serialize, de::DeserializeOwned};
use session_runtime::codec;

const CHECKSUM: usize = 8;
const BLANK: u8 = 0;
const NORMAL: u8 = 1;
const MEMBERSHIP: u8 = 2;

/// Encodes an entry into `out`: checksum, index, term and node of its leader, kind, content.
pub(super) fn encode_entry<C: LogTypes>(entry: &Entry<C>, out: &mut Vec<u8>) -> Result<(), String> {
    out.clear();
    out.extend_from_slice(&[0; CHECKSUM]);
    out.extend_from_slice(&entry.log_id.index.to_le_bytes());
    out.extend_from_slice(&entry.log_id.leader_id.term.to_le_bytes());
    out.extend_from_slice(&entry.log_id.leader_id.node_id.to_le_bytes());
    match &entry.payload {
        EntryPayload::Blank => out.push(BLANK),
        EntryPayload::Normal(data) => {
            out.push(NORMAL);
            out.extend_from_slice(data.as_ref());
        }
        EntryPayload::Membership(membership) => {
            out.push(MEMBERSHIP);
            out.extend_from_slice(&codec::encode_state(membership).map_err(|error| error.to_string())?);
        }
    }
    seal(out);
    Ok(())
}

/// Decodes the entry that must be at `index`.
pub(super) fn decode_entry<C: LogTypes>(index: u64, bytes: &[u8]) -> Result<Entry<C>, String> {
    let damaged = || format!("the entry at index {index} does not match its checksum");
    let body = unseal(bytes).ok_or_else(damaged)?;
    let (found, body) = take_u64(body).ok_or_else(damaged)?;
    let (term, body) = take_u64(body).ok_or_else(damaged)?;
    let (node, body) = take_u64(body).ok_or_else(damaged)?;
    let (kind, content) = body.split_first().ok_or_else(damaged)?;
    if found != index {
        return Err(format!("the entry at index {index} says that it is at {found}"));
    }
    let payload = match *kind {
        BLANK => EntryPayload::Blank,
        NORMAL => EntryPayload::Normal(Bytes::copy_from_slice(content).into()),
        MEMBERSHIP => EntryPayload::Membership(
            codec::decode_state(content)
                .map_err(|error| format!("the membership at index {index}: {error}"))?,
        ),
        kind => return Err(format!("the entry at index {index} is of the unknown kind {kind}")),
    };
    Ok(Entry { log_id: LogId::new(CommittedLeaderId::new(term, node), index), payload })
}

/// Encodes a small fact.
pub(super) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, String> {
    let mut out = vec![0; CHECKSUM];
    out.extend_from_slice(&codec::encode_state(value).map_err(|error| error.to_string())?);
    seal(&mut out);
    Ok(out)
}

/// Decodes a small fact.
pub(super) fn decode<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<T, String> {
    let body = unseal(bytes).ok_or_else(|| format!("`{name}` does not match its checksum"))?;
    codec::decode_state(body).map_err(|error| format!("`{name}`: {error}"))
}

/// The bytes of a number.
pub(super) const NUMBER: usize = CHECKSUM + size_of::<u64>();

/// Encodes a number, always in as many bytes.
pub(super) fn encode_number(number: u64) -> [u8; NUMBER] {
    let mut out = [0; NUMBER];
    out[CHECKSUM..].copy_from_slice(&number.to_le_bytes());
    seal(&mut out);
    out
}

/// Decodes a number, if these bytes are one.
pub(super) fn decode_number(bytes: &[u8]) -> Option<u64> {
    take_u64(unseal(bytes)?).map(|(number, _)| number)
}

fn seal(record: &mut [u8]) {
    if let Some((checksum, body)) = record.split_first_chunk_mut::<CHECKSUM>() {
        *checksum = codec::payload_hash(body).to_le_bytes();
    }
}

fn unseal(record: &[u8]) -> Option<&[u8]> {
    let (checksum, body) = record.split_first_chunk::<CHECKSUM>()?;
    (codec::payload_hash(body).to_le_bytes() == *checksum).then_some(body)
}

fn take_u64(bytes: &[u8]) -> Option<(u64, &[u8])> {
    bytes.split_first_chunk::<8>().map(|(number, rest)| (u64::from_le_bytes(*number), rest))
}

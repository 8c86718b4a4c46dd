//! The one place that knows how values become bytes.
//!
//! The format is bincode's standard configuration (variable-length integers, little-endian), with rules of
//! our own on top, so that no input makes the process that reads it abort, overflow its stack or allocate for a
//! mere claim:
//!
//! - a maximum of bytes: [`MAX_PAYLOAD`] for what travels in a log entry or a message, [`MAX_STATE`] for one
//!   value of the state;
//! - a maximum of nesting, counted value by value and never measured on the stack: [`MAX_PAYLOAD_DEPTH`] and
//!   [`MAX_STATE_DEPTH`];
//! - the elements of all sequences and maps of a value are at most its bytes plus [`MAX_EMPTY_ELEMENTS`], so
//!   that a few bytes cannot claim 2^64 elements that take no bytes each;
//! - strings and byte strings are borrowed from the input before they are copied, so a claimed length
//!   allocates nothing; all collections of a value together reserve room for no more elements than it has bytes;
//! - bytes left over behind the value are an error.
//!
//! What a value takes in memory follows its bytes, but by a factor that its type decides: an empty `String` is one
//! byte here and 24 in memory, and a map with one entry, of a few bytes here, is a node with room for eleven. Where
//! strangers may send such types, let the transport refuse frames that are larger than an honest one.
//!
//! All of these are constants of the format: another replica, on another machine, decides alike. Encoding
//! refuses what decoding would refuse.
//!
//! ```
//! use session_runtime::codec;
//!
//! let bytes = codec::encode(&("alice", 7u64))?;
//! let (name, count): (String, u64) = codec::decode(&bytes)?;
//! assert_eq!((name.as_str(), count), ("alice", 7));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod de;
mod ser;

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use std::fmt;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// The most bytes a command, reply, query, server request or message may take: 32 MiB.
pub const MAX_PAYLOAD: usize = 32 << 20;
/// The most bytes a message between client and server may take: a payload and 1 MiB around it.
pub const MAX_MESSAGE: usize = MAX_PAYLOAD + (1 << 20);
/// The most bytes a field of the state, or an entry of one that is stored by entries, may take: 1 GiB.
pub const MAX_STATE: usize = 1 << 30;
/// How deep the values inside a payload may nest.
pub const MAX_PAYLOAD_DEPTH: u32 = 64;
/// How deep the values inside the state may nest: deeper than a payload, so that state can hold payloads.
pub const MAX_STATE_DEPTH: u32 = 128;
/// How many elements of sequences and maps a value may have beyond its number of bytes. Only elements that
/// take no bytes, as those of a `Vec<()>`, ever need it.
pub const MAX_EMPTY_ELEMENTS: usize = 1 << 16;

/// Why a value could not be encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// The encoding would take more bytes than the format allows.
    TooLarge {
        /// The maximum, in bytes.
        max: usize,
    },
    /// The value nests deeper than the format allows.
    TooDeep {
        /// The maximum number of levels.
        max: u32,
    },
    /// The value has more elements without bytes than the format allows.
    TooManyElements,
    /// The value's own `Serialize` refused, or asked for something the format has not.
    Unsupported(String),
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { max } => {
                write!(f, "the value takes more than the {max} bytes the format allows; split it")
            }
            Self::TooDeep { max } => {
                write!(f, "the value nests deeper than the {max} levels the format allows; flatten it")
            }
            Self::TooManyElements => write!(
                f,
                "the value has more than {MAX_EMPTY_ELEMENTS} elements that take no bytes; store their number instead"
            ),
            Self::Unsupported(why) => write!(f, "the value cannot be encoded: {why}"),
        }
    }
}

impl std::error::Error for EncodeError {}

/// Why bytes could not be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The input is longer than the format allows.
    TooLarge {
        /// The maximum, in bytes.
        max: usize,
    },
    /// The input ends inside the value.
    Truncated,
    /// The input goes on behind the value.
    Trailing {
        /// How many bytes were left over.
        bytes: usize,
    },
    /// The input nests deeper than the format allows.
    TooDeep {
        /// The maximum number of levels.
        max: u32,
    },
    /// The input claims more elements than its bytes can hold.
    TooManyElements,
    /// The bytes are not a value of the expected type.
    Invalid(String),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { max } => {
                write!(f, "the input is longer than the {max} bytes the format allows")
            }
            Self::Truncated => write!(f, "the input ends before the value does"),
            Self::Trailing { bytes } => {
                write!(f, "the input goes on for {bytes} bytes after the value")
            }
            Self::TooDeep { max } => {
                write!(f, "the input nests deeper than the {max} levels the format allows")
            }
            Self::TooManyElements => {
                write!(f, "the input claims more elements than its bytes can hold")
            }
            Self::Invalid(why) => {
                write!(f, "the bytes are not a value of the expected type: {why}")
            }
        }
    }
}

impl std::error::Error for DecodeError {}

/// The two sets of maxima.
#[derive(Clone, Copy)]
struct Maxima {
    bytes: usize,
    depth: u32,
}

const PAYLOAD: Maxima = Maxima { bytes: MAX_PAYLOAD, depth: MAX_PAYLOAD_DEPTH };
#[cfg(feature = "client")]
const MESSAGE: Maxima = Maxima { bytes: MAX_MESSAGE, depth: MAX_PAYLOAD_DEPTH };
const STATE: Maxima = Maxima { bytes: MAX_STATE, depth: MAX_STATE_DEPTH };
/// What the runtime keeps for one client has no maximum of its own: the limits bound it, or nothing does.
const LAYER: Maxima = Maxima { bytes: usize::MAX, depth: MAX_STATE_DEPTH };

/// Encodes a payload: a command, reply, query, server request or message.
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Bytes, EncodeError> {
    ser::to_bytes(value, PAYLOAD, &[])
}

/// Decodes a payload. The whole input must be the value.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    de::from_slice(bytes, PAYLOAD)
}

/// Encodes one value of a snapshot: the bytes of [`encode`], under the maxima of state.
pub fn encode_state<T: Serialize + ?Sized>(value: &T) -> Result<Bytes, EncodeError> {
    ser::to_bytes(value, STATE, &[])
}

/// Decodes one value of a snapshot. The whole input must be the value.
pub fn decode_state<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    de::from_slice(bytes, STATE)
}

/// Encodes what the session layer keeps under one key of a snapshot.
pub(crate) fn encode_layer<T: Serialize>(value: &T) -> Result<Bytes, EncodeError> {
    ser::to_bytes(value, LAYER, &[])
}

/// Decodes what the session layer keeps under one key of a snapshot. The whole input must be the value.
pub(crate) fn decode_layer<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    de::from_slice(bytes, LAYER)
}

/// Encodes behind a version, under the maxima of state.
pub(crate) fn encode_behind<T: Serialize>(version: u8, value: &T) -> Result<Bytes, EncodeError> {
    ser::to_bytes(value, STATE, &[version])
}

/// Encodes a message behind its version.
#[cfg(feature = "client")]
pub(crate) fn encode_message<T: Serialize>(version: u8, message: &T) -> Result<Bytes, EncodeError> {
    ser::to_bytes(message, MESSAGE, &[version])
}

/// Decodes a message, its version taken off.
#[cfg(feature = "client")]
pub(crate) fn decode_message<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    de::from_slice(bytes, MESSAGE)
}

/// Decodes the start of the input, whatever follows it.
pub(crate) fn decode_start<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    de::from_slice_start(bytes, STATE).map(|(value, _)| value)
}

/// The fixed hash by which one payload is told from another under the same request id (XXH3, 64 bits).
pub fn payload_hash(payload: &[u8]) -> u64 {
    xxh3_64(payload)
}

/// The checksum of a block, given in pieces, that follows one whose checksum was `previous` (XXH3 with that
/// seed). Chained, so that a block that is missing or out of place is as visible as a flipped bit.
pub(crate) fn chained_checksum(previous: u64, block: &[&[u8]]) -> u64 {
    let mut hash = Xxh3::with_seed(previous);
    for piece in block {
        hash.update(piece);
    }
    hash.digest()
}

//! All of a machine at one log position: session state and user state in one dictionary.

mod format;

use crate::{codec, error::SnapshotError};
use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;

/// A snapshot's content: text keys a person can read (binary parts in hex), in order. It has two roots,
/// `session/` for the session layer and `user/` for the machine's own state.
pub type Dictionary = BTreeMap<String, Bytes>;

/// What a snapshot is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotMeta {
    /// The machine's name.
    pub name: String,
    /// The machine's replicated version.
    pub version: u32,
    /// The machine's shape at that version ([`Schema::text`](crate::schema::Schema::text)).
    pub schema: String,
    /// The index of the last entry in it.
    pub index: u64,
    /// The engine's term of that entry, if the engine set it.
    pub term: u64,
    /// The engine's configuration at that entry, if the engine set it.
    pub configuration: Bytes,
}

/// All of a machine at one log position.
///
/// Taking one is short; encoding it ([`dictionary`](Self::dictionary), [`to_bytes`](Self::to_bytes),
/// [`write_to`](Self::write_to)) may be done on another thread while the machine goes on.
#[derive(Clone)]
pub struct Snapshot {
    meta: SnapshotMeta,
    /// In key order.
    parts: Arc<[Part]>,
}

impl Snapshot {
    /// `parts` may come in any order, with keys no two of which are equal.
    pub(crate) fn new(meta: SnapshotMeta, mut parts: Vec<Part>) -> Self {
        parts.sort_by(|one, other| one.key.cmp(&other.key));
        Self { meta, parts: parts.into() }
    }

    /// What it is of.
    pub fn meta(&self) -> &SnapshotMeta {
        &self.meta
    }

    /// The same snapshot, with the engine's term and configuration.
    #[must_use]
    pub fn with_engine(mut self, term: u64, configuration: Bytes) -> Self {
        self.meta.term = term;
        self.meta.configuration = configuration;
        self
    }

    /// Every entry.
    pub fn dictionary(&self) -> Result<Dictionary, SnapshotError> {
        let mut dictionary = Dictionary::new();
        self.for_each(&mut |key, value| {
            dictionary.insert(key.to_owned(), value);
            Ok(())
        })?;
        Ok(dictionary)
    }

    /// The checked byte form.
    pub fn to_bytes(&self) -> Result<Vec<u8>, SnapshotError> {
        let mut bytes = Vec::new();
        format::write(self, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads the checked byte form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SnapshotError> {
        format::read(bytes)
    }

    /// Writes the checked byte form, entry by entry.
    pub fn write_to(&self, out: impl Write) -> Result<(), SnapshotError> {
        let mut out = std::io::BufWriter::new(out);
        format::write(self, &mut out)?;
        out.flush()?;
        Ok(())
    }

    /// Reads the checked byte form from a stream, which must end where the snapshot does.
    pub fn read_from(input: impl Read) -> Result<Self, SnapshotError> {
        format::read(std::io::BufReader::new(input))
    }

    /// Encodes every entry, in key order.
    fn for_each(&self, out: &mut Sink<'_>) -> Result<(), SnapshotError> {
        for part in self.parts.iter() {
            match &part.value {
                Value::Ready(value) => out(&part.key, value.clone())?,
                Value::Late(encode) => encode(&part.key, out)?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("meta", &self.meta).finish_non_exhaustive()
    }
}

/// Takes a snapshot's entries one by one.
pub(crate) type Sink<'a> = dyn FnMut(&str, Bytes) -> Result<(), SnapshotError> + 'a;

/// A stretch of a snapshot's dictionary.
#[derive(Clone)]
pub(crate) struct Part {
    /// Its first key; every further key of the part begins with it.
    pub(crate) key: String,
    value: Value,
}

#[derive(Clone)]
enum Value {
    Ready(Bytes),
    Late(Arc<Encode>),
}

/// Encodes the entries of a part; it gets the part's key.
type Encode = dyn Fn(&str, &mut Sink<'_>) -> Result<(), SnapshotError> + Send + Sync;

impl Part {
    /// One entry.
    pub(crate) fn ready(key: String, value: Bytes) -> Self {
        Self { key, value: Value::Ready(value) }
    }

    /// One entry of the session layer.
    pub(crate) fn encoded<T: Serialize>(key: &str, value: &T) -> Result<Self, SnapshotError> {
        Ok(Self::ready(key.to_owned(), encode_value(key, value)?))
    }

    /// Entries that are encoded when they are asked for.
    pub(crate) fn late(
        key: String,
        encode: impl Fn(&str, &mut Sink<'_>) -> Result<(), SnapshotError> + Send + Sync + 'static,
    ) -> Self {
        Self { key, value: Value::Late(Arc::new(encode)) }
    }
}

/// The byte form of a table that is used without a wrapper: a snapshot of nothing but the table.
#[cfg(any(feature = "serials", feature = "ids"))]
pub(crate) fn table_to_bytes(name: &str, parts: Vec<Part>) -> Result<Vec<u8>, SnapshotError> {
    let meta = SnapshotMeta {
        name: name.to_owned(),
        version: 1,
        schema: String::new(),
        index: 0,
        term: 0,
        configuration: Bytes::new(),
    };
    Snapshot::new(meta, parts).to_bytes()
}

/// The entries of what [`table_to_bytes`] wrote.
#[cfg(any(feature = "serials", feature = "ids"))]
pub(crate) fn table_from_bytes(name: &str, bytes: &[u8]) -> Result<Unread, SnapshotError> {
    let snapshot = Snapshot::from_bytes(bytes)?;
    let meta = snapshot.meta();
    if meta.name != name {
        return Err(SnapshotError::WrongMachine { expected: name.to_owned(), found: meta.name.clone() });
    }
    if meta.version != 1 {
        return Err(SnapshotError::UnknownFormat { version: meta.version });
    }
    Unread::new(&snapshot)
}

/// Encodes a value of the session layer.
pub(crate) fn encode_value<T: Serialize>(key: &str, value: &T) -> Result<Bytes, SnapshotError> {
    codec::encode_layer(value)
        .map_err(|error| SnapshotError::Value { key: key.to_owned(), problem: error.to_string() })
}

/// The entries of a snapshot that nobody has taken yet. What is left at the end is an error.
pub(crate) struct Unread(Dictionary);

impl Unread {
    pub(crate) fn new(snapshot: &Snapshot) -> Result<Self, SnapshotError> {
        snapshot.dictionary().map(Self)
    }

    pub(crate) fn contains(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    pub(crate) fn take(&mut self, key: &str) -> Result<Bytes, SnapshotError> {
        self.0.remove(key).ok_or_else(|| SnapshotError::MissingKey { key: key.to_owned() })
    }

    /// Takes and decodes a value of the session layer.
    pub(crate) fn decode<T: DeserializeOwned>(&mut self, key: &str) -> Result<T, SnapshotError> {
        let value = self.take(key)?;
        decode_value(key, &value)
    }

    /// Takes every entry whose key begins with `prefix`, and returns the rests of the keys.
    pub(crate) fn take_below(&mut self, prefix: &str) -> Vec<(String, Bytes)> {
        let keys: Vec<String> = self
            .0
            .range(prefix.to_owned()..)
            .map(|(key, _)| key)
            .take_while(|key| key.starts_with(prefix))
            .cloned()
            .collect();
        keys.into_iter()
            .filter_map(|key| {
                let value = self.0.remove(&key)?;
                Some((key.strip_prefix(prefix)?.to_owned(), value))
            })
            .collect()
    }

    pub(crate) fn finish(self) -> Result<(), SnapshotError> {
        match self.0.into_keys().next() {
            None => Ok(()),
            Some(key) => Err(SnapshotError::UnknownKey { key }),
        }
    }
}

/// Decodes a value of the session layer.
pub(crate) fn decode_value<T: DeserializeOwned>(key: &str, value: &[u8]) -> Result<T, SnapshotError> {
    codec::decode_layer(value)
        .map_err(|error| SnapshotError::Value { key: key.to_owned(), problem: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_for_one_client_may_take_more_than_a_field_of_the_state() {
        let kept = Bytes::from(vec![0; codec::MAX_STATE]);
        let value = encode_value("session/id/1", &kept).unwrap();
        assert!(value.len() > codec::MAX_STATE && codec::encode_state(&kept).is_err());
        assert_eq!(decode_value::<Bytes>("session/id/1", &value).unwrap().len(), kept.len());
    }
}

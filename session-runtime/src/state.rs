//! How a machine's own state goes into a snapshot and comes back.

use crate::{
    codec,
    error::SnapshotError,
    guard::guard,
    schema::StateField,
    snapshot::{Part, Unread},
};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
use std::fmt;

/// The state of a machine: named fields, each under its own key `user/<field>` of the snapshot.
///
/// ```
/// use session_runtime::{SnapshotError, State, StateError, StateReader, StateWriter, schema::StateField};
///
/// #[derive(Default)]
/// struct Counter {
///     value: u64,
/// }
///
/// impl State for Counter {
///     const FIELDS: &'static [StateField] = &[StateField::new("value", "u64")];
///
///     fn save(&self, out: &mut StateWriter) -> Result<(), StateError> {
///         out.field("value", &self.value)
///     }
///
///     fn load(from: &mut StateReader<'_>) -> Result<Self, SnapshotError> {
///         Ok(Self { value: from.field("value")? })
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the state of a machine",
    label = "not a `State`",
    note = "write `#[derive(State)]` on the struct"
)]
pub trait State: Sized {
    /// The fields.
    const FIELDS: &'static [StateField];
    /// Former fields, ignored where an old snapshot still has them.
    const DROPPED: &'static [&'static str] = &[];

    /// Hands every field to the writer, in any order.
    fn save(&self, out: &mut StateWriter) -> Result<(), StateError>;

    /// Takes every field from the reader.
    fn load(from: &mut StateReader<'_>) -> Result<Self, SnapshotError>;
}

/// A state field that cannot be captured, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateError {
    /// The field.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
}

impl StateError {
    fn new(field: &str, problem: impl fmt::Display) -> Self {
        Self { field: field.to_owned(), problem: problem.to_string() }
    }
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the state field `{}`: {}", self.field, self.problem)
    }
}

impl std::error::Error for StateError {}

impl From<StateError> for SnapshotError {
    fn from(StateError { field, problem }: StateError) -> Self {
        Self::State { field, problem }
    }
}

/// A map that can be stored entry by entry, each under its own key.
pub trait EntryMap: Sized {
    /// The keys.
    type Key: Serialize + DeserializeOwned;
    /// The values.
    type Value: Serialize + DeserializeOwned;

    /// Every entry.
    fn entries(&self) -> impl Iterator<Item = (&Self::Key, &Self::Value)>;

    /// The map of these entries.
    fn from_entries(entries: impl Iterator<Item = (Self::Key, Self::Value)>) -> Self;
}

impl<K, V> EntryMap for BTreeMap<K, V>
where
    K: Serialize + DeserializeOwned + Ord,
    V: Serialize + DeserializeOwned,
{
    type Key = K;
    type Value = V;

    fn entries(&self) -> impl Iterator<Item = (&K, &V)> {
        self.iter()
    }

    fn from_entries(entries: impl Iterator<Item = (K, V)>) -> Self {
        entries.collect()
    }
}

#[cfg(feature = "rpds")]
impl<K, V> EntryMap for rpds::RedBlackTreeMapSync<K, V>
where
    K: Serialize + DeserializeOwned + Ord,
    V: Serialize + DeserializeOwned,
{
    type Key = K;
    type Value = V;

    fn entries(&self) -> impl Iterator<Item = (&K, &V)> {
        self.iter()
    }

    fn from_entries(entries: impl Iterator<Item = (K, V)>) -> Self {
        let mut map = Self::new_sync();
        for (key, value) in entries {
            map.insert_mut(key, value);
        }
        map
    }
}

/// Takes a state's fields on their way into a snapshot.
pub struct StateWriter {
    version: u32,
    fields: &'static [StateField],
    parts: Vec<Part>,
}

impl StateWriter {
    pub(crate) fn new(version: u32, fields: &'static [StateField]) -> Self {
        Self { version, fields, parts: Vec::new() }
    }

    /// A plain field: encoded now, while the machine waits.
    pub fn field<T: Serialize>(&mut self, name: &str, value: &T) -> Result<(), StateError> {
        let key = self.key(name)?;
        let value = encode(name, value)?;
        self.parts.push(Part::ready(key, value));
        Ok(())
    }

    /// A field that is cheap to clone: cloned now, encoded later, on whatever thread writes the snapshot.
    pub fn shared<T>(&mut self, name: &'static str, value: &T) -> Result<(), StateError>
    where
        T: Serialize + Clone + Send + Sync + 'static,
    {
        let key = self.key(name)?;
        let value = value.clone();
        self.parts.push(Part::late(key, move |key, out| out(key, encode(name, &value)?)));
        Ok(())
    }

    /// A map with a key of its own for each entry, and the count at the field's own key.
    pub fn per_entry<M: EntryMap>(&mut self, name: &str, map: &M) -> Result<(), StateError> {
        let key = self.key(name)?;
        for (key, value) in encode_entries(name, &key, map)? {
            self.parts.push(Part::ready(key, value));
        }
        Ok(())
    }

    /// As [`per_entry`](Self::per_entry), for a map that is cheap to clone and encoded later.
    pub fn shared_per_entry<M>(&mut self, name: &'static str, map: &M) -> Result<(), StateError>
    where
        M: EntryMap + Clone + Send + Sync + 'static,
    {
        let key = self.key(name)?;
        let map = map.clone();
        self.parts.push(Part::late(key, move |key, out| {
            for (key, value) in encode_entries(name, key, &map)? {
                out(&key, value)?;
            }
            Ok(())
        }));
        Ok(())
    }

    /// Whether a field with a `since` exists yet. Before its version it must still be its default, and is not
    /// written.
    pub fn is_active<T: Serialize + Default>(&self, name: &str, value: &T) -> Result<bool, StateError> {
        let since = find(self.fields, name)?.since;
        if self.version >= since {
            return Ok(true);
        }
        if encode(name, value)? == encode(name, &T::default())? {
            return Ok(false);
        }
        Err(StateError::new(
            name,
            format!(
                "it exists since version {since}, the machine is at version {}, and it was changed already; \
                 ask `cx.version()` before changing it",
                self.version
            ),
        ))
    }

    /// The parts, once every field was handed over.
    pub(crate) fn finish(self) -> Result<Vec<Part>, StateError> {
        let missing = self.fields.iter().find(|field| {
            field.since <= self.version && !self.parts.iter().any(|part| part.key == user_key(field.name))
        });
        match missing {
            None => Ok(self.parts),
            Some(field) => Err(StateError::new(field.name, "`State::save` did not hand it over")),
        }
    }

    fn key(&self, name: &str) -> Result<String, StateError> {
        find(self.fields, name)?;
        let key = user_key(name);
        if self.parts.iter().any(|part| part.key == key) {
            return Err(StateError::new(name, "`State::save` handed it over twice"));
        }
        Ok(key)
    }
}

/// Gives a state's fields back on their way out of a snapshot.
pub struct StateReader<'a> {
    version: u32,
    fields: &'static [StateField],
    unread: &'a mut Unread,
}

impl<'a> StateReader<'a> {
    pub(crate) fn new(version: u32, fields: &'static [StateField], unread: &'a mut Unread) -> Self {
        Self { version, fields, unread }
    }

    /// Whether the snapshot holds a field. One that it may lack restores as its default.
    pub fn is_present(&self, name: &str) -> Result<bool, SnapshotError> {
        let field = find(self.fields, name)?;
        Ok(field.since <= self.version && (!field.default || self.stored_key(field).is_some()))
    }

    /// The value of a field.
    pub fn field<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, SnapshotError> {
        let key = self.key(name)?;
        let value = self.unread.take(&key)?;
        Ok(decode(name, &value)?)
    }

    /// The value of a map that was stored entry by entry.
    pub fn per_entry<M: EntryMap>(&mut self, name: &str) -> Result<M, SnapshotError> {
        let key = self.key(name)?;
        let count: u64 = decode(name, &self.unread.take(&key)?)?;
        let stored = self.unread.take_below(&format!("{key}/"));
        if stored.len() as u64 != count {
            let problem = format!("it should have {count} entries and has {}", stored.len());
            return Err(StateError::new(name, problem).into());
        }
        let mut entries = Vec::with_capacity(stored.len());
        for (hex, value) in stored {
            let key =
                from_hex(&hex).ok_or_else(|| StateError::new(name, format!("`{hex}` is no key in hex")))?;
            entries.push((decode(name, &key)?, decode(name, &value)?));
        }
        let made = guard(|| {
            let map = M::from_entries(entries.into_iter());
            let kept = map.entries().count() as u64;
            (map, kept)
        });
        match made {
            Ok((map, kept)) if kept == count => Ok(map),
            // One key may be written in several ways.
            Ok(_) => Err(StateError::new(name, "two of its keys are the same").into()),
            Err(panic) => Err(StateError::new(name, panic).into()),
        }
    }

    /// Former fields that the snapshot still has are taken and forgotten.
    pub(crate) fn drop_former(&mut self, dropped: &[&str]) {
        for name in dropped {
            let key = user_key(name);
            if self.unread.take(&key).is_ok() {
                self.unread.take_below(&format!("{key}/"));
            }
        }
    }

    fn key(&self, name: &str) -> Result<String, SnapshotError> {
        let field = find(self.fields, name)?;
        self.stored_key(field).ok_or_else(|| SnapshotError::MissingKey { key: user_key(name) })
    }

    /// The field's key, under its name or its former name.
    fn stored_key(&self, field: &StateField) -> Option<String> {
        [Some(field.name), field.was]
            .into_iter()
            .flatten()
            .map(user_key)
            .find(|key| self.unread.contains(key))
    }
}

fn user_key(name: &str) -> String {
    format!("user/{name}")
}

/// The field's description. Its name must be an identifier, so that the keys below it sort right behind it.
fn find(fields: &'static [StateField], name: &str) -> Result<&'static StateField, StateError> {
    if !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
        return Err(StateError::new(name, "its name is no identifier"));
    }
    fields
        .iter()
        .find(|field| field.name == name)
        .ok_or_else(|| StateError::new(name, "it is not listed in `State::FIELDS`"))
}

fn encode<T: Serialize>(name: &str, value: &T) -> Result<Bytes, StateError> {
    match guard(|| codec::encode_state(value)) {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => Err(StateError::new(name, error)),
        Err(panic) => Err(StateError::new(name, panic)),
    }
}

fn decode<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<T, StateError> {
    match guard(|| codec::decode_state(bytes)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(StateError::new(name, error)),
        Err(panic) => Err(StateError::new(name, panic)),
    }
}

/// The count at the field's key and each entry below it, in key order.
fn encode_entries<M: EntryMap>(
    name: &str,
    field_key: &str,
    map: &M,
) -> Result<BTreeMap<String, Bytes>, StateError> {
    guard(|| try_encode_entries(name, field_key, map))
        .unwrap_or_else(|panic| Err(StateError::new(name, panic)))
}

fn try_encode_entries<M: EntryMap>(
    name: &str,
    field_key: &str,
    map: &M,
) -> Result<BTreeMap<String, Bytes>, StateError> {
    let mut entries = BTreeMap::new();
    for (key, value) in map.entries() {
        let key = format!("{field_key}/{}", to_hex(&encode(name, key)?));
        if entries.insert(key, encode(name, value)?).is_some() {
            return Err(StateError::new(
                name,
                "two of its keys have the same encoding, so one would be lost",
            ));
        }
    }
    let count = encode(name, &(entries.len() as u64))?;
    entries.insert(field_key.to_owned(), count);
    Ok(entries)
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digit = |value: u8| DIGITS.get(usize::from(value)).copied();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).flatten().collect()
}

/// Reads what [`to_hex`] wrote, and nothing else: lower-case digits in pairs.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs
        .iter()
        .filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    rest.is_empty().then_some(bytes)
}

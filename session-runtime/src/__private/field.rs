//! The roles in which a state field can be stored.

use crate::{
    error::SnapshotError,
    state::{EntryMap, StateError, StateReader, StateWriter},
    wire::{Deterministic, Wire},
};
use serde::{Serialize, de::DeserializeOwned};

/// The compiler has checked that the type is deterministic.
#[derive(Debug)]
pub enum Proven {}

/// The user has said so.
#[derive(Debug)]
pub enum Vouched {}

/// A field stored as one value.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a field of the state",
    label = "not `Serialize + DeserializeOwned + Deterministic`",
    note = "replicas must agree on it and a snapshot must hold it: an own type, also one inside of another, derives `Serialize`, `Deserialize` and `Deterministic`; use `BTreeMap` for `HashMap`, `BTreeSet` for `HashSet`, `u64` for `usize`, whole numbers for floats, `Timestamp` for clocks; a foreign type is vouched for by `#[assume_deterministic = \"why\"]` on the field"
)]
pub trait PlainField<By>: Sized {
    /// Into the snapshot.
    fn save(&self, name: &'static str, out: &mut StateWriter) -> Result<(), StateError>;
    /// Out of it.
    fn load(name: &'static str, from: &mut StateReader<'_>) -> Result<Self, SnapshotError>;
}

/// A field that is cloned at once and encoded later.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a `#[state(shared)]` field",
    label = "not `Clone + Send + Sync + 'static`, or no field of the state at all",
    note = "a shared field is cloned and encoded later, on another thread; its type is also `Serialize + DeserializeOwned + Deterministic`, like every field's"
)]
pub trait SharedField<By>: Sized {
    /// Into the snapshot.
    fn save(&self, name: &'static str, out: &mut StateWriter) -> Result<(), StateError>;
    /// Out of it.
    fn load(name: &'static str, from: &mut StateReader<'_>) -> Result<Self, SnapshotError>;
}

/// A map stored entry by entry.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be stored entry by entry",
    label = "not a map of deterministic wire values",
    note = "`#[state(per_entry)]` is for maps, such as `BTreeMap`, whose keys and values are `Serialize + DeserializeOwned + Deterministic`; implement `EntryMap` for a map of your own"
)]
pub trait EntryField<By>: Sized {
    /// Into the snapshot.
    fn save(&self, name: &'static str, out: &mut StateWriter) -> Result<(), StateError>;
    /// Out of it.
    fn load(name: &'static str, from: &mut StateReader<'_>) -> Result<Self, SnapshotError>;
}

/// A map stored entry by entry, cloned at once and encoded later.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a shared field that is stored entry by entry",
    label = "not a map that is `Clone + Send + Sync + 'static`",
    note = "`#[state(per_entry, shared)]` is for maps that are cheap to clone, such as persistent maps"
)]
pub trait SharedEntryField<By>: Sized {
    /// Into the snapshot.
    fn save(&self, name: &'static str, out: &mut StateWriter) -> Result<(), StateError>;
    /// Out of it.
    fn load(name: &'static str, from: &mut StateReader<'_>) -> Result<Self, SnapshotError>;
}

macro_rules! role {
    ($role:ident, $by:ident, $save:ident, $load:ident, $($bounds:tt)*) => {
        #[diagnostic::do_not_recommend]
        impl<T: $($bounds)*> $role<$by> for T {
            fn save(&self, name: &'static str, out: &mut StateWriter) -> Result<(), StateError> {
                out.$save(name, self)
            }

            fn load(name: &'static str, from: &mut StateReader<'_>) -> Result<Self, SnapshotError> {
                from.$load(name)
            }
        }
    };
}

role!(PlainField, Proven, field, field, Wire);
role!(PlainField, Vouched, field, field, Serialize + DeserializeOwned);
role!(SharedField, Proven, shared, field, Wire + Clone + Send + Sync + 'static);
role!(SharedField, Vouched, shared, field, Serialize + DeserializeOwned + Clone + Send + Sync + 'static);
role!(EntryField, Proven, per_entry, per_entry, EntryMap + Deterministic);
role!(EntryField, Vouched, per_entry, per_entry, EntryMap);
role!(
    SharedEntryField,
    Proven,
    shared_per_entry,
    per_entry,
    EntryMap + Deterministic + Clone + Send + Sync + 'static
);
role!(SharedEntryField, Vouched, shared_per_entry, per_entry, EntryMap + Clone + Send + Sync + 'static);

/// A field that may be absent from a snapshot.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no default to start from",
    label = "not `Default`",
    note = "a field with `#[state(default)]` or `#[since = N]` restores as its default from snapshots that lack it"
)]
pub trait Defaulted: Sized {
    /// Whether the field exists at the machine's version.
    fn is_active(&self, name: &'static str, out: &StateWriter) -> Result<bool, StateError>;
    /// What it is before that.
    fn absent() -> Self;
}

#[diagnostic::do_not_recommend]
impl<T: Default + Serialize> Defaulted for T {
    fn is_active(&self, name: &'static str, out: &StateWriter) -> Result<bool, StateError> {
        out.is_active(name, self)
    }

    fn absent() -> Self {
        T::default()
    }
}

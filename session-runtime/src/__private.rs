//! What generated code calls. Not for people: it changes without notice.

#[cfg(feature = "client")]
mod call;
mod check;
mod field;

pub use crate::{__if_client as if_client, __if_testing as if_testing};
#[cfg(feature = "client")]
pub use call::{call_command, call_query};
pub use check::{
    Table, among, check_all_handled, check_argument, check_command, check_command_field, check_handler,
    check_owned, check_query_argument, check_rejection, check_server_request, check_version, is_among,
};
pub use field::{Defaulted, EntryField, PlainField, Proven, SharedEntryField, SharedField, Vouched};
pub use serde;
pub use session_derive::{SessionCommand, SessionQuery};

use crate::{
    action::Response,
    codec::{self, EncodeError},
    machine::Command,
    schema::StateField,
    state::State,
    wire::{Deterministic, Wire},
};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use std::any::Any;
use std::marker::PhantomData;

/// A command enum with a mirror: the same variants, each with one tuple, so that the handlers' expansion can
/// match on it without knowing the variants' shapes.
pub trait Mirrored: Command {
    /// The mirror.
    type Mirror;
    /// The names of variants of other builds.
    const ABSENT: &'static [&'static str] = &[];
    /// To the mirror.
    fn into_mirror(self) -> Self::Mirror;
    /// From the mirror.
    fn from_mirror(mirror: Self::Mirror) -> Self;

    /// The bytes of the command that this is the mirror of.
    fn encode_mirror(mirror: Self::Mirror) -> Result<Bytes, EncodeError> {
        Self::from_mirror(mirror).try_encode()
    }
}

/// A field of a variant, as an argument of its handler.
#[diagnostic::on_unimplemented(
    message = "this argument is `{T}`, but its field in the variant is `{Self}`",
    label = "`{T}` instead of `{Self}`",
    note = "behind `self` and the context, a handler takes the fields of its variant, by value and in their order"
)]
pub trait Gives<T>: Sized {
    /// The argument.
    fn give(self) -> T;
}

impl<T> Gives<T> for T {
    #[inline(always)]
    #[allow(clippy::inline_always)] // so that a debug build pays nothing either
    fn give(self) -> T {
        self
    }
}

/// The machine's context, as a handler or a hook takes it.
#[diagnostic::on_unimplemented(
    message = "this takes `{T}`, but the machine's context is `{Self}`",
    label = "not the machine's context",
    note = "write `cx: &mut Context<'_, T>` with the `T` of `#[state_machine(server_request = T)]`; a machine without `server_request` has `Context<'_>`",
    note = "a `&mut` parameter is always the context; a field of the command is taken by value"
)]
pub trait Serves<T> {
    /// The context.
    fn context(cx: &mut Self) -> &mut T;
}

impl<T> Serves<T> for T {
    #[inline(always)]
    #[allow(clippy::inline_always)]
    fn context(cx: &mut T) -> &mut T {
        cx
    }
}

/// A value as the type it is, where the compiler need not know that yet: `None` if it is another.
pub fn same<T: 'static, U: 'static>(value: T) -> Option<U> {
    let mut value = Some(value);
    let value: &mut dyn Any = &mut value;
    value.downcast_mut::<Option<U>>()?.take()
}

/// A state's constants, or those of [`NoState`] for a type that is none.
#[derive(Debug)]
pub struct StateOf<T>(PhantomData<T>);

impl<T: State> StateOf<T> {
    /// The fields.
    pub const FIELDS: &'static [StateField] = T::FIELDS;
    /// The former fields.
    pub const DROPPED: &'static [&'static str] = T::DROPPED;
}

/// What the compiler falls back to for a type that is no state. The machine's impl says that it is none; a
/// second error would not help.
pub trait NoState {
    /// The fields.
    const FIELDS: &'static [StateField] = &[];
    /// The former fields.
    const DROPPED: &'static [&'static str] = &[];
}

impl<T> NoState for StateOf<T> {}

/// The same type, once a check has passed. The check stands for the constant; where it fails, the compiler knows no
/// type, and says nothing about it beyond the check's own words.
pub trait Checked<const SOUND: bool> {
    /// The type.
    type Itself;
}

impl<T, const SOUND: bool> Checked<SOUND> for T {
    type Itself = T;
}

/// The same type, beside another: where that could not be made out, neither is this.
pub trait Beside<Other> {
    /// The type.
    type Itself;
}

impl<T, Other> Beside<Other> for T {
    type Itself = T;
}

/// A command's table, or that of [`NoCommand`] for a type that is none.
#[derive(Debug)]
pub struct CommandOf<T>(PhantomData<T>);

impl<T: Mirrored> CommandOf<T> {
    /// The variants.
    pub const TABLE: Table = Table { variants: T::VARIANTS, absent: T::ABSENT, is_command: true };
}

/// What the compiler falls back to for a type that is no command.
pub trait NoCommand {
    /// No variants.
    const TABLE: Table = Table { variants: &[], absent: &[], is_command: false };
}

impl<T> NoCommand for CommandOf<T> {}

/// Which of the traits of a wire type a type has.
#[derive(Debug)]
pub struct WireOf<T>(PhantomData<T>);

impl<T: Serialize> WireOf<T> {
    /// It can be written.
    pub const SERIALIZE: bool = true;
}

impl<T: DeserializeOwned> WireOf<T> {
    /// It can be read.
    pub const DESERIALIZE: bool = true;
}

impl<T: Deterministic> WireOf<T> {
    /// It is the same on every replica.
    pub const DETERMINISTIC: bool = true;
}

/// What the compiler falls back to where a type lacks one.
pub trait NoWire {
    /// It cannot be written.
    const SERIALIZE: bool = false;
    /// It cannot be read.
    const DESERIALIZE: bool = false;
    /// It may differ.
    const DETERMINISTIC: bool = false;
}

impl<T> NoWire for WireOf<T> {}

/// What a query may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a query's answer",
    label = "not a wire value",
    note = "a query returns a value, not a `Result`: use `Option` for what may not be there; an own type derives `Serialize`, `Deserialize` and `Deterministic`; use `u64` for `usize`, whole numbers for floats, `BTreeMap` for `HashMap`"
)]
pub trait QueryReply {
    /// The answer's bytes.
    fn encode(&self) -> Result<Bytes, EncodeError>;
}

#[diagnostic::do_not_recommend]
impl<T: Wire> QueryReply for T {
    fn encode(&self) -> Result<Bytes, EncodeError> {
        codec::encode(self)
    }
}

/// Compiles for deterministic types only.
pub const fn is_deterministic<T: Deterministic + ?Sized>() {}

/// What the arm of a command without a handler would do, if a machine without one could be built.
#[cold]
pub fn no_handler() -> Result<Response, EncodeError> {
    Err(EncodeError::Unsupported("the command has no handler".to_owned()))
}

/// Keeps its input where this crate has typed clients: the macros cannot see its features.
#[cfg(feature = "client")]
#[doc(hidden)]
#[macro_export]
macro_rules! __if_client {
    ($($kept:tt)*) => { $($kept)* };
}

/// Keeps its input where this crate has its test kit.
#[cfg(feature = "testing")]
#[doc(hidden)]
#[macro_export]
macro_rules! __if_testing {
    ($($kept:tt)*) => { $($kept)* };
}

/// Drops its input where this crate has no test kit.
#[cfg(not(feature = "testing"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __if_testing {
    ($($dropped:tt)*) => {};
}

/// Drops its input where this crate has no typed clients.
#[cfg(not(feature = "client"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __if_client {
    ($($dropped:tt)*) => {};
}

//! What generated code calls. Not for people: it changes without notice.

#[cfg(feature = "client")]
mod call;
mod check;
mod field;

pub use crate::__if_client as if_client;
#[cfg(feature = "client")]
pub use call::{call_command, call_query};
pub use check::{
    Text, among, at_least, check_all_handled, check_names, check_version, is_among, misnamed, missing,
};
pub use field::{Defaulted, EntryField, PlainField, Proven, SharedEntryField, SharedField, Vouched};
pub use serde;
pub use session_derive::SessionCommand;

use crate::{
    action::Response,
    codec::{self, EncodeError},
    machine::Command,
    wire::{Deterministic, Wire},
};
use bytes::Bytes;

/// A command enum with a mirror: the same variants, each with one tuple, so that the handlers' expansion can
/// match on it without knowing the variants' shapes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no enum of commands",
    label = "not a `#[state_machine]` enum",
    note = "write `#[state_machine]` on the enum that `command = ...` names"
)]
pub trait Mirrored: Command {
    /// The mirror.
    type Mirror;
    /// To the mirror.
    fn into_mirror(self) -> Self::Mirror;
    /// From the mirror.
    fn from_mirror(mirror: Self::Mirror) -> Self;
}

/// The fields of a variant, as the arguments of its handler.
#[diagnostic::on_unimplemented(
    message = "the arguments of this handler are `{T}`, but the fields of its variant are `{Self}`",
    label = "takes `{T}` instead of `{Self}`",
    note = "behind `self` and the context, a handler takes the fields of its variant, by value and in their order"
)]
pub trait Gives<T>: Sized {
    /// The arguments.
    fn give(self) -> T;
    /// The fields again.
    fn back(given: T) -> Self;
}

impl<T> Gives<T> for T {
    #[inline(always)]
    #[allow(clippy::inline_always)] // so that a debug build pays nothing either
    fn give(self) -> T {
        self
    }

    #[inline(always)]
    #[allow(clippy::inline_always)]
    fn back(given: T) -> Self {
        given
    }
}

/// What a query may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a query's answer",
    label = "not a wire value",
    note = "a query returns a value, not a `Result`: use `Option` for what may not be there; an own type derives `Serialize`, `Deserialize` and `Deterministic`"
)]
pub trait QueryReply {
    /// The type itself.
    type Answer;
    /// The answer's bytes.
    fn encode(&self) -> Result<Bytes, EncodeError>;
}

#[diagnostic::do_not_recommend]
impl<T: Wire> QueryReply for T {
    type Answer = T;

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

/// Drops its input where this crate has no typed clients.
#[cfg(not(feature = "client"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __if_client {
    ($($dropped:tt)*) => {};
}

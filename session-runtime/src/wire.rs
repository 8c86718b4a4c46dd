//! Which types may stand in a log, an answer or the state, and how a handler's return becomes an answer.

use crate::{
    action::{Response, Status},
    codec::{self, DecodeError, EncodeError},
    identity::{RequestId, ServerRequestId, SessionId, Timestamp},
};
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, de::DeserializeOwned};
use std::collections::{BTreeMap, BTreeSet, LinkedList, VecDeque};
use std::fmt::Display;
use std::marker::PhantomData;
use std::sync::Arc;

/// A type whose values are the same on every replica.
///
/// No type whose order, size, value or identity depends on the process has it: no `HashMap`, no float, no
/// clock, no `usize`, no pointer, cell, lock or atomic. An own type is vouched for in plain sight:
///
/// ```
/// # use session_runtime::Deterministic;
/// struct Celsius(i32);
/// impl Deterministic for Celsius {}
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` may differ between replicas",
    label = "this type is not `Deterministic`",
    note = "use `BTreeMap`/`BTreeSet` for hash collections, sized integers for `usize` and for floats, `Timestamp` for clocks; an own type derives `Deterministic`, or is vouched for with `impl Deterministic for T {{}}`; a field of a foreign type is vouched for with `#[assume_deterministic = \"why\"]` on the field"
)]
pub trait Deterministic {}

macro_rules! deterministic {
    // Left out of the compiler's lists of other types: they are too many to help.
    ($($type:ty),* $(,)?) => {$( #[diagnostic::do_not_recommend] impl Deterministic for $type {} )*};
}

deterministic!(
    (),
    bool,
    char,
    str,
    String,
    Bytes,
    u8,
    u16,
    u32,
    u64,
    u128,
    i8,
    i16,
    i32,
    i64,
    i128,
    std::num::NonZeroU8,
    std::num::NonZeroU16,
    std::num::NonZeroU32,
    std::num::NonZeroU64,
    std::num::NonZeroU128,
    std::num::NonZeroI8,
    std::num::NonZeroI16,
    std::num::NonZeroI32,
    std::num::NonZeroI64,
    std::num::NonZeroI128,
    std::time::Duration,
    std::net::IpAddr,
    std::net::Ipv4Addr,
    std::net::Ipv6Addr,
    std::net::SocketAddr,
    std::net::SocketAddrV4,
    std::net::SocketAddrV6,
    SessionId,
    RequestId,
    ServerRequestId,
    Timestamp,
    Response,
    Never,
);

impl<T: Deterministic + ?Sized> Deterministic for Box<T> {}
impl<T: Deterministic + ?Sized> Deterministic for Arc<T> {}
impl<T: Deterministic> Deterministic for [T] {}
impl<T: Deterministic, const N: usize> Deterministic for [T; N] {}
impl<T: Deterministic> Deterministic for Option<T> {}
impl<T: Deterministic> Deterministic for Vec<T> {}
impl<T: Deterministic> Deterministic for VecDeque<T> {}
impl<T: Deterministic> Deterministic for LinkedList<T> {}
impl<T: Deterministic> Deterministic for BTreeSet<T> {}
impl<K: Deterministic, V: Deterministic> Deterministic for BTreeMap<K, V> {}
impl<T: Deterministic> Deterministic for std::cmp::Reverse<T> {}
impl<T: Deterministic> Deterministic for std::num::Wrapping<T> {}
impl<T: Deterministic> Deterministic for std::ops::Range<T> {}
impl<T: Deterministic> Deterministic for std::ops::RangeInclusive<T> {}
impl<T: ?Sized> Deterministic for PhantomData<T> {}

#[cfg(feature = "uuid")]
deterministic!(uuid::Uuid);

/// The ordered collections of rpds that threads can share. Its hash collections iterate in an order of the
/// process's own.
#[cfg(feature = "rpds")]
mod persistent {
    use super::Deterministic;
    use rpds::{ListSync, QueueSync, RedBlackTreeMapSync, RedBlackTreeSetSync, StackSync, VectorSync};

    impl<K: Deterministic + Ord, V: Deterministic> Deterministic for RedBlackTreeMapSync<K, V> {}
    impl<T: Deterministic + Ord> Deterministic for RedBlackTreeSetSync<T> {}
    impl<T: Deterministic> Deterministic for VectorSync<T> {}
    impl<T: Deterministic> Deterministic for ListSync<T> {}
    impl<T: Deterministic> Deterministic for QueueSync<T> {}
    impl<T: Deterministic> Deterministic for StackSync<T> {}
}

macro_rules! deterministic_tuples {
    ($($name:ident)+) => {
        #[diagnostic::do_not_recommend]
        impl<$($name: Deterministic),+> Deterministic for ($($name,)+) {}
        deterministic_tuples!(@shorter $($name)+);
    };
    (@shorter $first:ident) => {};
    (@shorter $first:ident $($name:ident)+) => { deterministic_tuples!($($name)+); };
}

deterministic_tuples!(A B C D E F G H I J K L M N O P);

/// What can travel: every serde type that is [`Deterministic`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot travel in a log, an answer or a server request",
    label = "not `Serialize + DeserializeOwned + Deterministic`",
    note = "an own type, also one inside of another, derives `serde::Serialize`, `serde::Deserialize` and `Deterministic`; use `BTreeMap` for `HashMap`, `BTreeSet` for `HashSet`, `u64` for `usize`, whole numbers for floats, `Timestamp` for clocks"
)]
pub trait Wire: Serialize + DeserializeOwned + Deterministic {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned + Deterministic> Wire for T {}

/// The reason with which a handler may refuse: part of the answer, cached and replayed like any other.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no reason a handler may refuse with",
    label = "not a `Rejection`",
    note = "a handler must not fail: return an own enum that derives `Rejection` and says what the client did wrong"
)]
pub trait Rejection: Wire {}

/// What a handler may return: a [`Wire`] value, or a `Result` of one and a [`Rejection`].
///
/// The kind is told by the type and never by its spelling: `Result` is not [`Deterministic`], so an alias of
/// it is still a `Result`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a handler's answer",
    label = "neither a wire value nor a `Result` of one and a `Rejection`",
    note = "an answer is stored and sent, and must be the same on every replica: an own type, also one inside of another, derives `Serialize`, `Deserialize` and `Deterministic`; use `BTreeMap` for `HashMap`, `u64` for `usize`, whole numbers for floats, `Timestamp` for clocks",
    note = "a handler must not fail: the error of a `Result` is a reason to refuse, an own type that derives `Rejection` too, never a `String`, an `io::Error` or a `Box<dyn Error>`"
)]
pub trait Reply {
    /// What an accepted command is answered with.
    type Accepted: Wire;
    /// What a rejected command is answered with; [`Never`] where none is.
    type Rejected: Wire;

    /// The answer as it is cached and sent.
    fn into_response(self) -> Result<Response, EncodeError>;

    /// The way back: what a client makes of the answer.
    fn from_response(response: &Response) -> Result<Result<Self::Accepted, Self::Rejected>, DecodeError> {
        match response.status {
            Status::Accepted => codec::decode(&response.payload).map(Ok),
            Status::Rejected => codec::decode(&response.payload).map(Err),
        }
    }

    /// What the handler returned, of what the answer says.
    fn from_answer(answer: Result<Self::Accepted, Self::Rejected>) -> Self;

    /// Whether this response to a command, read and written again, is the same.
    #[doc(hidden)]
    fn check_response(command: &str, response: &Response) -> Result<(), String> {
        let broken = |why: &dyn Display| format!("the reply of `{command}` does not survive encoding: {why}");
        let again = match Self::from_response(response) {
            Ok(Ok(accepted)) => Response::accepted(&accepted),
            Ok(Err(rejected)) => Response::rejected(&rejected),
            Err(error) => return Err(broken(&error)),
        };
        match again {
            Ok(again) if again == *response => Ok(()),
            Ok(_) => Err(broken(&"read and written again, it is another")),
            Err(error) => Err(broken(&error)),
        }
    }
}

#[diagnostic::do_not_recommend]
impl<T: Wire> Reply for T {
    type Accepted = T;
    type Rejected = Never;

    fn into_response(self) -> Result<Response, EncodeError> {
        Response::accepted(&self)
    }

    fn from_response(response: &Response) -> Result<Result<T, Never>, DecodeError> {
        match response.status {
            Status::Accepted => codec::decode(&response.payload).map(Ok),
            Status::Rejected => Err(DecodeError::Invalid(
                "the handler rejected the command: read the answer as the `Result` that the handler returns"
                    .to_owned(),
            )),
        }
    }

    fn from_answer(answer: Result<T, Never>) -> Self {
        match answer {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }
}

#[diagnostic::do_not_recommend]
impl<T: Wire, E: Rejection> Reply for Result<T, E> {
    type Accepted = T;
    type Rejected = E;

    fn into_response(self) -> Result<Response, EncodeError> {
        match self {
            Ok(value) => Response::accepted(&value),
            Err(rejection) => Response::rejected(&rejection),
        }
    }

    fn from_answer(answer: Self) -> Self {
        answer
    }
}

/// A type without values: what a machine sends that sends nothing, and how a handler rejects that never does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Never {}

impl std::fmt::Display for Never {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {}
    }
}

impl std::error::Error for Never {}

impl Serialize for Never {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        match *self {}
    }
}

impl<'de> Deserialize<'de> for Never {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(de::Error::custom("there is no value of this type"))
    }
}

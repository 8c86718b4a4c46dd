//! The client's side: what a generated typed client calls, and what can become of a call.

mod events;
mod in_memory;
mod message;
mod saved;
mod session;

pub use in_memory::{InMemory, InMemoryClient, block_on};
pub use message::{ClientMessage, MessageError, ServerMessage};
pub use session::{ClientConfig, ClientEvent, ClientSession, SubmitError};

use crate::{
    action::{RefuseReason, RequestError, Response},
    codec::{self, DecodeError, EncodeError},
    wire::{Never, Reply},
};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

/// What a method of a typed client returns for a handler's reply `R`: a future of the machine's answer. A reply
/// `u64` is awaited as `Result<u64, ClientError>`, a reply `Result<u64, Refused>` as
/// `Result<u64, ClientError<Refused>>`.
#[must_use = "nothing is sent before the answer is awaited"]
pub struct Answer<'a, R> {
    response: Sent<'a, Response>,
    reply: PhantomData<fn() -> R>,
}

/// What a method of a typed client returns for a query's answer `T`: a future of it.
#[must_use = "nothing is sent before the answer is awaited"]
pub struct QueryAnswer<'a, T> {
    answer: Sent<'a, Bytes>,
    value: PhantomData<fn() -> T>,
}

type Sent<'a, T> = Pin<Box<dyn Future<Output = Result<T, ClientError>> + Send + 'a>>;

impl<'a, R> Answer<'a, R> {
    /// Sends an encoded command.
    pub(crate) fn new(call: &'a impl Call, payload: Result<Bytes, EncodeError>) -> Self {
        let response = Box::pin(async move { call.command(payload.map_err(ClientError::Encode)?).await });
        Self { response, reply: PhantomData }
    }
}

impl<'a, T> QueryAnswer<'a, T> {
    /// Sends an encoded query.
    pub(crate) fn new(call: &'a impl Call, payload: Result<Bytes, EncodeError>) -> Self {
        let answer = Box::pin(async move { call.query(payload.map_err(ClientError::Encode)?).await });
        Self { answer, value: PhantomData }
    }
}

impl<R: Reply> Future for Answer<'_, R> {
    type Output = Result<R::Accepted, ClientError<R::Rejected>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.response.as_mut().poll(cx).map(|response| {
            let response = response.map_err(ClientError::retyped)?;
            R::from_response(&response).map_err(ClientError::Decode)?.map_err(ClientError::Rejected)
        })
    }
}

impl<T: DeserializeOwned> Future for QueryAnswer<'_, T> {
    type Output = Result<T, ClientError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = self.answer.as_mut().poll(cx);
        answer.map(|answer| codec::decode(&answer?).map_err(ClientError::Decode))
    }
}

impl<R> fmt::Debug for Answer<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for QueryAnswer<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryAnswer").finish_non_exhaustive()
    }
}

/// How a typed client reaches its machine: a session of a cluster, an embedded machine, or a test.
///
/// An implementation numbers the requests of its session, sends one again until it is answered, and returns
/// the answer.
pub trait Call: Send + Sync {
    /// Sends an encoded command, and returns its answer, accepted or rejected.
    fn command(&self, payload: Bytes) -> impl Future<Output = Result<Response, ClientError>> + Send;

    /// Sends an encoded query, and returns its encoded answer.
    fn query(&self, payload: Bytes) -> impl Future<Output = Result<Bytes, ClientError>> + Send;
}

impl<C: Call + ?Sized> Call for &C {
    fn command(&self, payload: Bytes) -> impl Future<Output = Result<Response, ClientError>> + Send {
        (**self).command(payload)
    }

    fn query(&self, payload: Bytes) -> impl Future<Output = Result<Bytes, ClientError>> + Send {
        (**self).query(payload)
    }
}

impl<C: Call + ?Sized> Call for std::sync::Arc<C> {
    fn command(&self, payload: Bytes) -> impl Future<Output = Result<Response, ClientError>> + Send {
        (**self).command(payload)
    }

    fn query(&self, payload: Bytes) -> impl Future<Output = Result<Bytes, ClientError>> + Send {
        (**self).query(payload)
    }
}

/// Why a call has no value to return. [`execution`](Self::execution) answers the one question that matters
/// then: was the command executed?
///
/// `{:?}` gives the same words as `{}`, because that is what a `main` that returns it prints.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientError<E = Never> {
    /// The handler refused. This is its answer.
    Rejected(E),
    /// The session was closed with the request under way.
    SessionExpired,
    /// The request was declared answered before its answer was read.
    ResponseEvicted,
    /// Another command was sent under this request's number.
    RequestMismatch,
    /// The session holds too many unread answers, and the caller gave up waiting.
    Busy,
    /// The payload is no command that this machine executes for a client at its version.
    InvalidPayload,
    /// The operators had the entry skipped.
    Skipped,
    /// No session could be opened.
    Refused(RefuseReason),
    /// The command or query could not be encoded.
    Encode(EncodeError),
    /// The answer could not be decoded: client and machine are of different builds.
    Decode(DecodeError),
    /// The query was not answered.
    Query(String),
    /// It could not be sent at all.
    NotSent(String),
    /// The client could not be stored, so the command was not sent; or could not be restored, so nobody knows what was
    /// under way. A client that is restored from bytes that were stored all the same sends the command.
    Storage(String),
    /// The connection, or what is at its other end, failed with the request under way.
    Transport(String),
    /// The caller's time ran out with the request under way.
    TimedOut,
}

/// How often a command was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    /// Not at all, and it never will be.
    Never,
    /// Exactly once.
    Once,
    /// At most once: it may have been, or may yet be.
    Unknown,
}

impl<E> ClientError<E> {
    /// Whether the command was executed.
    pub const fn execution(&self) -> Execution {
        match self {
            Self::Rejected(_) | Self::Decode(_) => Execution::Once,
            Self::InvalidPayload
            | Self::Skipped
            | Self::Refused(_)
            | Self::Encode(_)
            | Self::Query(_)
            | Self::NotSent(_) => Execution::Never,
            Self::SessionExpired
            | Self::ResponseEvicted
            | Self::RequestMismatch
            | Self::Busy
            | Self::Storage(_)
            | Self::Transport(_)
            | Self::TimedOut => Execution::Unknown,
        }
    }
}

impl ClientError<Never> {
    /// The same error of a call that can be rejected.
    pub(crate) fn retyped<E>(self) -> ClientError<E> {
        match self {
            Self::Rejected(never) => match never {},
            Self::SessionExpired => ClientError::SessionExpired,
            Self::ResponseEvicted => ClientError::ResponseEvicted,
            Self::RequestMismatch => ClientError::RequestMismatch,
            Self::Busy => ClientError::Busy,
            Self::InvalidPayload => ClientError::InvalidPayload,
            Self::Skipped => ClientError::Skipped,
            Self::Refused(reason) => ClientError::Refused(reason),
            Self::Encode(error) => ClientError::Encode(error),
            Self::Decode(error) => ClientError::Decode(error),
            Self::Query(problem) => ClientError::Query(problem),
            Self::NotSent(problem) => ClientError::NotSent(problem),
            Self::Storage(problem) => ClientError::Storage(problem),
            Self::Transport(problem) => ClientError::Transport(problem),
            Self::TimedOut => ClientError::TimedOut,
        }
    }
}

impl<E> From<RequestError> for ClientError<E> {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::SessionExpired => Self::SessionExpired,
            RequestError::ResponseEvicted => Self::ResponseEvicted,
            RequestError::RequestMismatch => Self::RequestMismatch,
            RequestError::Busy => Self::Busy,
            RequestError::InvalidPayload => Self::InvalidPayload,
            RequestError::Skipped => Self::Skipped,
        }
    }
}

impl<E: fmt::Debug> fmt::Debug for ClientError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<E: fmt::Debug> fmt::Display for ClientError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(rejection) => write!(f, "the command was rejected: {rejection:?}"),
            Self::SessionExpired => RequestError::SessionExpired.fmt(f),
            Self::ResponseEvicted => RequestError::ResponseEvicted.fmt(f),
            Self::RequestMismatch => RequestError::RequestMismatch.fmt(f),
            Self::Busy => RequestError::Busy.fmt(f),
            Self::InvalidPayload => RequestError::InvalidPayload.fmt(f),
            Self::Skipped => RequestError::Skipped.fmt(f),
            Self::Refused(reason) => reason.fmt(f),
            Self::Encode(error) => error.fmt(f),
            Self::Decode(error) => write!(f, "the answer cannot be read by this build: {error}"),
            Self::Query(problem) => write!(f, "the query was not answered: {problem}"),
            Self::NotSent(problem) => write!(f, "the request was not sent: {problem}"),
            Self::Storage(problem) => write!(f, "the client's stored bytes: {problem}"),
            Self::Transport(problem) => {
                write!(f, "no answer came, and the request may have been executed: {problem}")
            }
            Self::TimedOut => write!(f, "the time ran out with the request under way"),
        }
    }
}

impl<E: fmt::Debug> std::error::Error for ClientError<E> {}

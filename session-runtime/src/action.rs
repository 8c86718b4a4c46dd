//! What goes into the machine, and what comes out for the caller to send.

use crate::{
    codec::{self, DecodeError, EncodeError},
    identity::{RequestId, ServerRequestId, SessionId, Timestamp},
    limits::Limits,
    wire::Reply,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What a log entry asks of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RaftAction {
    /// A client registers: opens the session, unless it is open, was closed, is stale, or there is no room.
    SessionCreationConfirmed {
        /// The id the leader drew for it.
        session: SessionId,
        /// What the client says it can do; handlers read it with [`Context::capabilities`](crate::Context::capabilities).
        capabilities: BTreeMap<String, String>,
    },
    /// A client's command, at most once by `(session, request)`.
    ClientRequest {
        /// The client's session.
        session: SessionId,
        /// The client's number for this request.
        request: RequestId,
        /// The lowest request the client has no answer to. Answers below it are discarded.
        lowest_pending: RequestId,
        /// The highest server request the client has received, or 0.
        acked: ServerRequestId,
        /// The encoded command.
        payload: Bytes,
    },
    /// A client has received every server request up to this one.
    ServerRequestAck {
        /// The client's session.
        session: SessionId,
        /// The highest server request it has received.
        request: ServerRequestId,
    },
    /// Closes a session: the client said goodbye, or an operator did for it.
    SessionExpired {
        /// The session to close.
        session: SessionId,
    },
    /// Asks for the pending server requests that are due for sending again, and marks them as sent.
    GetRequestsForRetry {
        /// Due is what was last sent before this moment.
        last_sent_before: Timestamp,
        /// The most requests to return; 0 for no limit.
        limit: u32,
    },
    /// Clients are alive, though they have nothing to ask.
    KeepAlive {
        /// Who, and what each has received.
        sessions: Vec<Alive>,
    },
    /// A command from the service itself, outside any session. It runs once for each entry that holds it: a
    /// leader that appends it again after a change of leadership runs it again.
    InternalCommand {
        /// The encoded command.
        payload: Bytes,
    },
    /// Replaces the limits, and the seed of the handlers' generator if one is given.
    Configure {
        /// The limits from this entry on.
        limits: Limits,
        /// The seed from this entry on; `None` keeps the one in force.
        seed: Option<[u8; 32]>,
    },
    /// Raises the machine's version, so that every replica switches at the same log position.
    Upgrade {
        /// The version from this entry on, if it is higher than the one in force.
        version: u32,
    },
    /// Advances time and nothing else, so that sessions can expire when nobody writes.
    Tick,
}

/// One client's sign of life in a [`RaftAction::KeepAlive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alive {
    /// The client's session.
    pub session: SessionId,
    /// The lowest request the client has no answer to. Answers below it are discarded.
    pub lowest_pending: RequestId,
    /// The highest server request the client has received, or 0.
    pub acked: ServerRequestId,
}

/// What the caller should send after an entry was applied, in this order.
///
/// Exhaustive on purpose: a `_` arm would lose messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServerAction {
    /// The session is open.
    SessionCreated {
        /// The session.
        session: SessionId,
    },
    /// The session was not opened.
    SessionRefused {
        /// The id that was refused.
        session: SessionId,
        /// Why.
        reason: RefuseReason,
    },
    /// The answer to a request: fresh, or the same bytes as before.
    SendResponse {
        /// To whom.
        session: SessionId,
        /// To which request.
        request: RequestId,
        /// The answer.
        response: Response,
    },
    /// A request that was not executed, or whose answer is gone.
    SendRequestError {
        /// To whom.
        session: SessionId,
        /// About which request.
        request: RequestId,
        /// What became of it.
        error: RequestError,
    },
    /// A request of the machine to a client, for the first time or again.
    SendServerRequest {
        /// To whom.
        session: SessionId,
        /// Its number.
        request: ServerRequestId,
        /// The encoded server request.
        payload: Bytes,
    },
    /// The session is closed and never returns.
    SessionClosed {
        /// The session.
        session: SessionId,
        /// Why.
        reason: CloseReason,
    },
    /// The answer to an internal command.
    InternalResponse {
        /// The answer, or why there is none.
        result: Result<Response, RequestError>,
    },
}

impl ServerAction {
    /// The session that this is for. None for the answer to an internal command, which has no session.
    ///
    /// ```
    /// use session_runtime::{CloseReason, ServerAction, SessionId};
    ///
    /// let session = SessionId::draw(1, 7);
    /// let closed = ServerAction::SessionClosed { session, reason: CloseReason::Idle };
    /// assert_eq!(closed.session(), Some(session));
    /// ```
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Self::SessionCreated { session }
            | Self::SessionRefused { session, .. }
            | Self::SendResponse { session, .. }
            | Self::SendRequestError { session, .. }
            | Self::SendServerRequest { session, .. }
            | Self::SessionClosed { session, .. } => Some(*session),
            Self::InternalResponse { .. } => None,
        }
    }
}

/// Why a session was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefuseReason {
    /// There is no room: wait and ask again.
    Full,
    /// This id was closed and never returns: ask for a new one.
    Closed,
    /// This id was drawn too long ago, or for a later position: ask for a new one.
    Stale,
}

impl fmt::Display for RefuseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "there is no room for another session; wait and ask again",
            Self::Closed => "this session was closed and never returns; ask for a new one",
            Self::Stale => "this session id is not of the right age; ask for a new one",
        })
    }
}

/// Why a session was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CloseReason {
    /// A [`RaftAction::SessionExpired`] closed it.
    Expired,
    /// It gave no sign of life for longer than [`Limits::idle_timeout`].
    Idle,
    /// It was the least recently active when there were too many.
    Evicted,
    /// It had more unacknowledged server requests than [`Limits::max_pending_requests`].
    SlowConsumer,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "it was ended",
            Self::Idle => "it was idle for too long",
            Self::Evicted => "it made room for others",
            Self::SlowConsumer => "it left too many server requests unacknowledged",
        })
    }
}

/// A handler's answer, as it is cached and sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    /// Whether the handler accepted the command.
    pub status: Status,
    /// The encoded value, or the encoded rejection.
    pub payload: Bytes,
}

impl Response {
    /// A value the handler returned.
    pub fn accepted<T: Serialize + ?Sized>(value: &T) -> Result<Self, EncodeError> {
        Ok(Self { status: Status::Accepted, payload: codec::encode(value)? })
    }

    /// A rejection the handler returned.
    pub fn rejected<E: Serialize + ?Sized>(rejection: &E) -> Result<Self, EncodeError> {
        Ok(Self { status: Status::Rejected, payload: codec::encode(rejection)? })
    }

    /// What the handler returned: `read::<u64>()`, or `read::<Result<u64, Refused>>()` of a handler that may refuse.
    ///
    /// A typed client does this by itself. It is for what comes without one: the answer to an internal command, or that
    /// of a command sent before a crash.
    ///
    /// ```
    /// use serde::{Deserialize, Serialize};
    /// use session_runtime::{Deterministic, Rejection, Response};
    ///
    /// #[derive(Debug, PartialEq, Serialize, Deserialize, Deterministic, Rejection)]
    /// enum Refused {
    ///     TooLate,
    /// }
    ///
    /// let answer = Response::rejected(&Refused::TooLate)?;
    /// assert_eq!(answer.read::<Result<u64, Refused>>()?, Err(Refused::TooLate));
    /// assert!(answer.read::<u64>().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read<R: Reply>(&self) -> Result<R, DecodeError> {
        R::from_response(self).map(R::from_answer)
    }
}

/// Whether a handler accepted a command. A rejection is an answer like any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// The payload is the handler's value.
    Accepted,
    /// The payload is the handler's rejection.
    Rejected,
}

/// What became of a request that has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestError {
    /// The session is not open. This entry executed nothing; an earlier copy may have.
    SessionExpired,
    /// The client declared the request answered, so its answer is gone and it does not run again.
    ResponseEvicted,
    /// Another payload was sent under this number before. This one was not executed.
    RequestMismatch,
    /// The session holds too many unfetched answers. Not executed; the same number may be sent again.
    Busy,
    /// The payload is no command this machine executes for a client at its version. Not executed, ever.
    InvalidPayload,
    /// The operators skipped the entry. Not executed, ever.
    Skipped,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SessionExpired => "the session is closed; open a new one",
            Self::ResponseEvicted => {
                "the request was declared answered, so its answer is gone and it does not run again; read the state \
                 to see what it did"
            }
            Self::RequestMismatch => "another command was sent under this request number; open a new session",
            Self::Busy => "the session holds too many unfetched answers; send it again later",
            Self::InvalidPayload => {
                "the payload is no command that this machine executes for a client at its version; upgrade the \
                 machine, or send another command"
            }
            Self::Skipped => {
                "the operators had this entry skipped, so the request did not run and never will; send it as a new one"
            }
        })
    }
}

impl std::error::Error for RequestError {}

/// A server request that its client has not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingRequest {
    /// Its number in its session.
    pub id: ServerRequestId,
    /// The encoded server request.
    pub payload: Bytes,
    /// When it was last handed out for sending.
    pub last_sent_at: Timestamp,
    /// How often it was handed out for sending, from 1.
    pub attempts: u32,
}

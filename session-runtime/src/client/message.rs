//! What travels between a client and a server, whatever carries it.

use crate::{
    action::{CloseReason, RefuseReason, RequestError, Response, ServerAction},
    codec::{self, DecodeError, EncodeError},
    identity::{RequestId, ServerRequestId, SessionId},
};
use bytes::Bytes;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
use std::fmt;

/// The byte that every message of this version starts with.
const VERSION: u8 = 1;

/// From a client to a server. A transport moves the bytes of [`encode`](Self::encode) as one frame, and knows
/// nothing of what is in them.
///
/// A message in the name of a session that is not open is answered by `Closed`, also where it has no other answer:
/// the one that the closing gave may be lost. Only a leader that has applied all that was committed before its term
/// can know that a session is not open; until then it answers `Rejected`, or waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientMessage {
    /// Open a session. Answered by `Created`, `Refused` or `Rejected`.
    Create {
        /// The client's own number for this attempt, to match the answer with it.
        attempt: u64,
        /// What the client can do, for the machine's handlers to read.
        capabilities: BTreeMap<String, String>,
    },
    /// Go on with a session on a new connection. Answered by `Continued`, `Closed` or `Rejected`.
    Continue {
        /// The session.
        session: SessionId,
    },
    /// A command. Answered by `Response`, `RequestError`, `Closed` or `Rejected`.
    Request {
        /// The session.
        session: SessionId,
        /// The client's number for it.
        request: RequestId,
        /// The lowest request the client has no answer to.
        lowest_pending: RequestId,
        /// The highest server request the client has received.
        acked: ServerRequestId,
        /// The encoded command.
        payload: Bytes,
    },
    /// A query. Answered by `QueryResponse` or `Rejected`.
    Query {
        /// The client's number for it, to match the answer with it. It is no request id: a query never runs
        /// twice in a way that matters.
        correlation: u64,
        /// The encoded query.
        payload: Bytes,
    },
    /// Every server request up to this one was received.
    Ack {
        /// The session.
        session: SessionId,
        /// The highest server request the client has received.
        request: ServerRequestId,
    },
    /// The client is alive, though it has nothing to ask.
    KeepAlive {
        /// The session.
        session: SessionId,
        /// The lowest request the client has no answer to, or else the next number it will use.
        lowest_pending: RequestId,
        /// The highest server request the client has received.
        acked: ServerRequestId,
    },
    /// The client is done. Answered by `Closed`.
    Close {
        /// The session.
        session: SessionId,
    },
}

/// From a server to a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServerMessage {
    /// The session is open.
    Created {
        /// The attempt this answers.
        attempt: u64,
        /// The session.
        session: SessionId,
    },
    /// The session goes on: send again what has no answer.
    Continued {
        /// The session.
        session: SessionId,
    },
    /// The session was not opened.
    Refused {
        /// The attempt this answers.
        attempt: u64,
        /// Why.
        reason: RefuseReason,
    },
    /// This server cannot serve: it does not lead, or knows of no leader. Nothing of what was sent has been
    /// executed by it, and the client turns to the one named.
    Rejected {
        /// Where the leader is, in whatever way the transport names servers.
        leader: Option<String>,
    },
    /// The answer to a request.
    Response {
        /// The session.
        session: SessionId,
        /// Which request.
        request: RequestId,
        /// The answer.
        response: Response,
    },
    /// A request that has no response.
    RequestError {
        /// The session.
        session: SessionId,
        /// Which request.
        request: RequestId,
        /// What became of it.
        error: RequestError,
    },
    /// The answer to a query, or why there is none.
    QueryResponse {
        /// Which query.
        correlation: u64,
        /// The encoded answer, or words for a person.
        result: Result<Bytes, String>,
    },
    /// A request of the machine to the client.
    ServerRequest {
        /// The session.
        session: SessionId,
        /// Its number.
        request: ServerRequestId,
        /// The encoded server request.
        payload: Bytes,
    },
    /// The session is closed and never returns.
    Closed {
        /// The session.
        session: SessionId,
        /// Why, if this server still knows.
        reason: Option<CloseReason>,
    },
}

impl ServerMessage {
    /// The answer to a request that the leader's gate found already answered.
    pub fn answer(session: SessionId, request: RequestId, result: Result<Response, RequestError>) -> Self {
        match result {
            Ok(response) => Self::Response { session, request, response },
            Err(error) => Self::RequestError { session, request, error },
        }
    }

    /// The message for what applying an entry gave, and the session whose client it goes to. `None` for the
    /// answers to creations, which a server sends with the number of the client's attempt, and to internal
    /// commands, which have no client.
    pub fn from_action(action: ServerAction) -> Option<(SessionId, Self)> {
        match action {
            ServerAction::SendResponse { session, request, response } => {
                Some((session, Self::Response { session, request, response }))
            }
            ServerAction::SendRequestError { session, request, error } => {
                Some((session, Self::RequestError { session, request, error }))
            }
            ServerAction::SendServerRequest { session, request, payload } => {
                Some((session, Self::ServerRequest { session, request, payload }))
            }
            ServerAction::SessionClosed { session, reason } => {
                Some((session, Self::Closed { session, reason: Some(reason) }))
            }
            ServerAction::SessionCreated { .. }
            | ServerAction::SessionRefused { .. }
            | ServerAction::InternalResponse { .. } => None,
        }
    }
}

/// Why bytes could not be read as a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageError {
    /// The other side speaks a version of the protocol that this build does not.
    UnknownVersion {
        /// The version it speaks.
        version: u8,
    },
    /// The bytes are damaged, or no message.
    Damaged(DecodeError),
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownVersion { version } => write!(
                f,
                "the message is of protocol version {version}, this build speaks version {VERSION}; update the older side"
            ),
            Self::Damaged(error) => write!(f, "the bytes are no message: {error}"),
        }
    }
}

impl std::error::Error for MessageError {}

macro_rules! wire_form {
    ($($message:ident),*) => {$(
        impl $message {
            /// The message's bytes: one frame.
            pub fn encode(&self) -> Result<Bytes, EncodeError> {
                codec::encode_message(VERSION, self)
            }

            /// Reads a frame.
            pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
                decode(bytes)
            }
        }
    )*};
}

wire_form!(ClientMessage, ServerMessage);

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, MessageError> {
    match bytes.split_first() {
        Some((&VERSION, body)) => codec::decode_message(body).map_err(MessageError::Damaged),
        Some((&version, _)) => Err(MessageError::UnknownVersion { version }),
        None => Err(MessageError::Damaged(DecodeError::Truncated)),
    }
}

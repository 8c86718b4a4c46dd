//! What must hold at every entry of a history, whatever the machine.

use crate::{
    action::{Alive, RaftAction, RequestError, Response, ServerAction},
    codec,
    identity::{RequestId, ServerRequestId, SessionId},
    limits::Limits,
};
use std::collections::{BTreeMap, BTreeSet};

/// Follows the log from outside, knowing nothing but what goes in and comes out.
#[derive(Default)]
pub(super) struct Judge {
    open: BTreeMap<SessionId, Known>,
    closed: BTreeSet<SessionId>,
    limits: Limits,
    /// The requests that have an answer, for ever.
    answered: BTreeMap<(SessionId, RequestId), Answered>,
    /// The server requests that were sent, for ever.
    sent: BTreeMap<(SessionId, ServerRequestId), u64>,
}

/// What is known of an open session.
#[derive(Default)]
struct Known {
    watermark: u64,
    last_sent: u64,
    acked: u64,
}

/// An answer, and where in the log it came to be.
pub(super) struct Answered {
    pub(super) index: u64,
    pub(super) payload_hash: u64,
    pub(super) result: Result<Response, RequestError>,
    pub(super) ran: bool,
}

/// A rule that was broken.
pub(super) type Broken = String;

impl Judge {
    pub(super) fn answered(&self, session: SessionId, request: RequestId) -> Option<&Answered> {
        self.answered.get(&(session, request))
    }

    /// The hash of a server request's payload.
    pub(super) fn sent(&self, session: SessionId, request: ServerRequestId) -> Option<u64> {
        self.sent.get(&(session, request)).copied()
    }

    pub(super) fn open_sessions(&self) -> usize {
        self.open.len()
    }

    /// Judges an entry: what it asked, what came out, and how many commands ran.
    pub(super) fn entry(
        &mut self,
        index: u64,
        action: &RaftAction,
        out: &[ServerAction],
        ran: u64,
    ) -> Result<(), Broken> {
        match action {
            RaftAction::ClientRequest { session, request, lowest_pending, acked, payload } => {
                self.sign_of_life(*session, lowest_pending.0, acked.0);
                self.request(index, *session, *request, payload, out.first(), ran)?;
            }
            RaftAction::InternalCommand { .. } if ran > 1 => {
                return Err(format!("an internal command ran {ran} times in one entry"));
            }
            RaftAction::InternalCommand { .. } => {}
            _ if ran > 0 => return Err("a command ran in an entry that holds none".to_owned()),
            RaftAction::ServerRequestAck { session, request } => self.sign_of_life(*session, 0, request.0),
            RaftAction::KeepAlive { sessions } => {
                for Alive { session, lowest_pending, acked } in sessions {
                    self.sign_of_life(*session, lowest_pending.0, acked.0);
                }
            }
            RaftAction::Configure { limits, .. } => self.limits = limits.clone(),
            _ => {}
        }
        let retry = matches!(action, RaftAction::GetRequestsForRetry { .. });
        out.iter().try_for_each(|action| self.output(action, retry))
    }

    fn sign_of_life(&mut self, session: SessionId, lowest_pending: u64, acked: u64) {
        if let Some(known) = self.open.get_mut(&session) {
            known.watermark = known.watermark.max(lowest_pending);
            known.acked = known.acked.max(acked).min(known.last_sent);
        }
    }

    fn request(
        &mut self,
        index: u64,
        session: SessionId,
        request: RequestId,
        payload: &[u8],
        first: Option<&ServerAction>,
        ran: u64,
    ) -> Result<(), Broken> {
        let what = format!("{request:?} of {session:?}");
        let result = match first {
            Some(ServerAction::SendResponse { response, .. }) => Ok(response.clone()),
            Some(ServerAction::SendRequestError { error, .. }) => Err(*error),
            other => return Err(format!("{what} was answered first of all with {other:?}")),
        };
        let payload_hash = codec::payload_hash(payload);
        let expected = match (self.open.get(&session), self.answered.get(&(session, request))) {
            (None, _) => Some(Err(RequestError::SessionExpired)),
            (Some(known), _) if request.0 < known.watermark.max(1) => {
                Some(Err(RequestError::ResponseEvicted))
            }
            (Some(_), Some(before)) if before.payload_hash == payload_hash => Some(before.result.clone()),
            (Some(_), Some(_)) => Some(Err(RequestError::RequestMismatch)),
            (Some(_), None) => None,
        };
        if let Some(expected) = expected {
            if ran > 0 {
                return Err(format!("{what} ran, and should have been answered with {expected:?}"));
            }
            if result != expected {
                return Err(format!("{what} was answered with {result:?} instead of {expected:?}"));
            }
            return Ok(());
        }
        if ran != u64::from(result.is_ok()) {
            return Err(format!("{what} ran {ran} times and was answered with {result:?}"));
        }
        if result != Err(RequestError::Busy) {
            self.answered.insert((session, request), Answered { index, payload_hash, result, ran: ran > 0 });
        }
        Ok(())
    }

    fn output(&mut self, action: &ServerAction, retry: bool) -> Result<(), Broken> {
        match action {
            ServerAction::SessionCreated { session } => {
                if self.closed.contains(session) {
                    return Err(format!("{session:?} was closed, and returned"));
                }
                if self.open.contains_key(session) {
                    return Ok(());
                }
                let max = self.limits.max_sessions.map(u64::from);
                if max.is_some_and(|max| self.open.len() as u64 >= max) && !self.limits.evict_idlest {
                    return Err(format!("{session:?} was opened beyond the limit of {max:?} sessions"));
                }
                self.open.insert(*session, Known::default());
            }
            ServerAction::SessionClosed { session, .. } => {
                if self.open.remove(session).is_none() {
                    return Err(format!("{session:?} was closed, and was not open"));
                }
                self.closed.insert(*session);
            }
            ServerAction::SendServerRequest { session, request, payload } => {
                self.server_request(*session, *request, codec::payload_hash(payload), retry)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn server_request(
        &mut self,
        session: SessionId,
        request: ServerRequestId,
        payload_hash: u64,
        retry: bool,
    ) -> Result<(), Broken> {
        let what = format!("server request {} of {session:?}", request.0);
        // Behind what is sent again may stand what closing hooks sent for the first time.
        if retry && let Some(before) = self.sent.get(&(session, request)) {
            return if *before == payload_hash {
                Ok(())
            } else {
                Err(format!("{what} was sent again with another payload"))
            };
        }
        let Some(known) = self.open.get_mut(&session) else {
            return Err(format!("{what} was sent, and the session is not open"));
        };
        if request.0 != known.last_sent.saturating_add(1) {
            return Err(format!("{what} follows number {}", known.last_sent));
        }
        let pending = known.last_sent.saturating_sub(known.acked);
        if self.limits.max_pending_requests.is_some_and(|max| pending >= u64::from(max)) {
            return Err(format!("{what} was sent to a client that had {pending} pending already"));
        }
        known.last_sent = request.0;
        self.sent.insert((session, request), payload_hash);
        Ok(())
    }
}

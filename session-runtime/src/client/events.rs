//! What happened to a client and was not taken yet, in order.

use super::session::ClientEvent;
use crate::identity::ServerRequestId;
use bytes::Bytes;
use std::collections::VecDeque;

/// Server requests may wait long for an application that takes them, so they are kept apart: what else happens is
/// found without going through them. The numbers tell which came first.
#[derive(Debug, Default)]
pub(super) struct Events {
    happened: u64,
    server_requests: VecDeque<(u64, (ServerRequestId, Bytes))>,
    others: VecDeque<(u64, ClientEvent)>,
}

impl Events {
    pub(super) fn push(&mut self, event: ClientEvent) {
        self.happened = self.happened.wrapping_add(1);
        match event {
            ClientEvent::ServerRequest { request, payload } => {
                self.server_requests.push_back((self.happened, (request, payload)));
            }
            other => self.others.push_back((self.happened, other)),
        }
    }

    /// The next of any kind.
    pub(super) fn pop(&mut self) -> Option<ClientEvent> {
        let request = self.server_requests.front().map(|(number, _)| *number);
        let other = self.others.front().map(|(number, _)| *number);
        if request.is_some_and(|request| other.is_none_or(|other| request < other)) {
            let (request, payload) = self.pop_server_request()?;
            Some(ClientEvent::ServerRequest { request, payload })
        } else {
            self.pop_other()
        }
    }

    pub(super) fn pop_server_request(&mut self) -> Option<(ServerRequestId, Bytes)> {
        self.server_requests.pop_front().map(|(_, request)| request)
    }

    pub(super) fn pop_other(&mut self) -> Option<ClientEvent> {
        self.others.pop_front().map(|(_, event)| event)
    }

    /// How many server requests wait.
    pub(super) fn server_requests(&self) -> usize {
        self.server_requests.len()
    }

    pub(super) fn first_server_request(&self) -> Option<ServerRequestId> {
        self.server_requests.front().map(|(_, (request, _))| *request)
    }
}

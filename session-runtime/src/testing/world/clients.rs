//! The clients.

use super::{Client, Done, Event, Saved, World};
use crate::{
    action::{RequestError, Response},
    client::{ClientConfig, ClientEvent, ClientSession},
    codec,
    identity::{RequestId, ServerRequestId, SessionId},
    machine::StateMachine,
    testing::{failure::Tally, judge::Broken},
};
use std::collections::BTreeMap;
use std::time::Duration;

/// How many requests a client may have under way.
const WINDOW: u32 = 6;

impl<M: StateMachine + 'static> World<'_, M> {
    pub(super) fn let_client_act(&mut self, number: usize) -> Result<(), Broken> {
        let saves = self.clients.get(number).is_some_and(|client| client.saves);
        // An application that saves may be slow to take what happened, which is then not to be lost in a crash.
        if !(saves && !self.healed && self.dice.percent(30)) {
            self.note_events(number)?;
        }
        let now = self.time();
        let more = !self.healed && self.started < self.plan.operations && self.dice.percent(60);
        let Some(client) = self.clients.get_mut(number) else { return Ok(()) };
        if more && client.session.session().is_some() {
            let payload = (self.commands)(&mut self.dice)?;
            self.counter = self.counter.saturating_add(1);
            // Else its window is full, or its reserved numbers are used up.
            if let Ok(request) = client.session.submit(now, payload) {
                self.started = self.started.saturating_add(1);
                client.began.insert(request, self.counter);
                if client.session.pending().count() as u64 > u64::from(WINDOW) {
                    return Err(format!("a client has more than {WINDOW} requests under way"));
                }
                if let Some(session) = client.session.session()
                    && !self.used.insert((session, request))
                {
                    return Err(format!("a client used {request:?} of {session:?} for a second command"));
                }
            }
        }
        let incarnation = client.incarnation;
        if client.saves && client.storing.is_none() && (client.stored.is_none() || self.dice.percent(10)) {
            let reserve = self.dice.below(8).saturating_add(1);
            if let Ok(Some(bytes)) = client.session.save(reserve) {
                client.storing = Some(Saved { bytes, delivered: client.delivered });
                let delay = self.dice.below(400);
                self.at(delay, Event::Stored { client: number, incarnation });
            }
        }
        while let Some(message) = self.clients.get_mut(number).and_then(|client| client.session.poll(now)) {
            self.send(number, false, || Event::ToServer {
                client: number,
                incarnation,
                message: message.clone(),
            });
        }
        Ok(())
    }

    /// What a client saved is stored; or it is not, or nobody can say: then the client is not told so, and saves
    /// itself again some time.
    pub(super) fn stored(&mut self, number: usize, incarnation: u64) {
        let now = self.time();
        let Some(client) = self.clients.get_mut(number).filter(|client| client.incarnation == incarnation)
        else {
            return;
        };
        let Some(saved) = client.storing.take() else { return };
        if self.healed || !self.dice.percent(20) {
            client.stored = Some(saved);
            client.session.saved(now);
            return;
        }
        self.tally += Tally { failed_saves: 1, ..Tally::default() };
        if self.dice.percent(50) {
            client.stored = Some(saved);
        }
    }

    pub(super) fn note_events(&mut self, number: usize) -> Result<(), Broken> {
        let now = self.time();
        loop {
            let Some(client) = self.clients.get_mut(number) else { return Ok(()) };
            let (session, restored) = (client.id, client.restored);
            let Some(event) = client.session.event() else { return Ok(()) };
            match event {
                ClientEvent::Opened { session } => client.id = Some(session),
                ClientEvent::Ended { request, result } => {
                    self.counter = self.counter.saturating_add(1);
                    let began = client.began.remove(&request);
                    self.ended(session, request, &result, began)?;
                    if !restored && result == Err(RequestError::ResponseEvicted) {
                        return Err(format!("{request:?} of {session:?} has an answer that nobody has seen"));
                    }
                }
                ClientEvent::ServerRequest { request, payload } => {
                    self.tally += Tally { deliveries: 1, ..Tally::default() };
                    let before = std::mem::replace(&mut client.delivered, request.0);
                    self.delivered(session, before, request, &payload)?;
                }
                ClientEvent::Closed { reason } => {
                    let known = session.and_then(|session| self.judge.closed_as(session));
                    if reason.is_some() && reason != known {
                        return Err(format!(
                            "a client was told that {session:?} was closed as {reason:?}, and it was as {known:?}"
                        ));
                    }
                    if let Some(session) = session.filter(|session| self.judge.is_open(*session)) {
                        return Err(format!("a client was told that {session:?} is over, which is open"));
                    }
                    let incarnation = client.incarnation.saturating_add(1);
                    let fresh = new_client(client.saves, incarnation, now);
                    *client = fresh;
                    self.at(1, Event::Wake { client: number, incarnation });
                }
                _ => {}
            }
        }
    }

    fn delivered(
        &self,
        session: Option<SessionId>,
        before: u64,
        request: ServerRequestId,
        payload: &[u8],
    ) -> Result<(), Broken> {
        let Some(session) = session else { return Ok(()) };
        let number = request.0;
        if number != before.saturating_add(1) {
            return Err(format!(
                "a client was given server request {number} of {session:?} after number {before}"
            ));
        }
        if self.judge.sent(session, request) != Some(codec::payload_hash(payload)) {
            return Err(format!(
                "a client was given server request {number} of {session:?}, which was not sent so"
            ));
        }
        Ok(())
    }

    pub(super) fn ended(
        &mut self,
        session: Option<SessionId>,
        request: RequestId,
        result: &Result<Response, RequestError>,
        began: Option<u64>,
    ) -> Result<(), Broken> {
        let Some(session) = session else { return Ok(()) };
        let known = self.judge.answered(session, request);
        match (result, known) {
            (Ok(response), Some(answered)) if answered.result.as_ref() == Ok(response) => {
                self.tally += Tally { operations: 1, ..Tally::default() };
                if let Some(began) = began {
                    self.done.push(Done { began, ended: self.counter, index: answered.index });
                }
                Ok(())
            }
            (Ok(response), _) => Err(format!(
                "a client was told {response:?} about {request:?} of {session:?}, which is not what it was answered"
            )),
            (Err(RequestError::InvalidPayload | RequestError::Skipped), Some(answered))
                if answered.result == *result =>
            {
                Ok(())
            }
            // Only the answer that is kept makes it true that the request never runs.
            (Err(error @ (RequestError::InvalidPayload | RequestError::Skipped)), _) => Err(format!(
                "a client was told {error:?} about {request:?} of {session:?}, which is not what it was answered"
            )),
            (Err(RequestError::RequestMismatch), _) => {
                Err(format!("{request:?} of {session:?} was taken for another one"))
            }
            // The request may still run, so its call has not ended.
            (Err(RequestError::Busy), _) => {
                Err(format!("{request:?} of {session:?} was ended because there was no room for its answer"))
            }
            (Err(RequestError::SessionExpired), _) if self.judge.is_open(session) => {
                Err(format!("{request:?} was ended because {session:?} is over, which is open"))
            }
            (Err(RequestError::SessionExpired | RequestError::ResponseEvicted), _) => Ok(()),
        }
    }
}

pub(super) fn new_client(saves: bool, incarnation: u64, now: Duration) -> Client {
    let session = ClientSession::open(client_config(), now);
    Client {
        session,
        id: None,
        restored: false,
        delivered: 0,
        saves,
        stored: None,
        storing: None,
        began: BTreeMap::new(),
        incarnation,
    }
}

pub(super) fn client_config() -> ClientConfig {
    ClientConfig {
        capabilities: BTreeMap::from([("name".to_owned(), "client".to_owned())]),
        window: WINDOW,
        ack_delay: Duration::from_millis(20),
        keep_alive: Duration::from_millis(1_500),
        resend_after: Duration::from_millis(250),
    }
}

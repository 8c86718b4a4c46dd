//! A machine that counts what each open session had done: a request that runs twice counts twice.

use serde::{Deserialize, Serialize};
use session_runtime::{Context, Deterministic, SessionId, State, state_machine};
use std::collections::BTreeMap;

/// What clients may ask of the office.
#[state_machine]
pub(super) enum OfficeCommand {
    /// Counts one more for the session, and tells another.
    Work { tell: Option<SessionId> },
    /// What is counted for the open sessions, and for all there ever were.
    Sum,
}

/// What the office tells a client: the count of whoever had it told.
#[derive(Serialize, Deserialize, Deterministic)]
pub(super) struct Told(u64);

#[derive(Default, State)]
pub(super) struct Office {
    worked: BTreeMap<SessionId, u64>,
    in_all: u64,
}

#[state_machine(command = OfficeCommand, server_request = Told)]
impl Office {
    fn work(&mut self, cx: &mut Context<'_, Told>, tell: Option<SessionId>) -> (u64, Option<u64>) {
        self.in_all = self.in_all.saturating_add(1);
        let mut times = 0;
        if let Some(worked) = cx.session().and_then(|session| self.worked.get_mut(&session)) {
            *worked = worked.saturating_add(1);
            times = *worked;
        }
        (times, tell.and_then(|to| cx.send(to, Told(times))).map(|id| id.0))
    }

    #[internal]
    fn sum(&self) -> (u64, u64) {
        (self.worked.values().fold(0, |sum, times| sum.saturating_add(*times)), self.in_all)
    }

    #[session_created]
    fn opened(&mut self, cx: &mut Context<'_, Told>) {
        self.worked.extend(cx.session().map(|session| (session, 0)));
    }

    #[session_closed]
    fn closed(&mut self, cx: &mut Context<'_, Told>) {
        if let Some(session) = cx.session() {
            self.worked.remove(&session);
        }
    }
}

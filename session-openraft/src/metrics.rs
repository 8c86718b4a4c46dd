//! What is counted, through the `metrics` facade: behind the feature `metrics`, and nothing at all without it.

use session_runtime::{Entry, RaftAction, ServerAction, SessionStateMachine, StateMachine};
use std::time::Duration;

/// The name of the command that an entry carries.
pub(crate) fn command<M: StateMachine>(entry: &[u8]) -> Option<&'static str> {
    match Entry::decode(entry).ok()?.action {
        RaftAction::ClientRequest { payload, .. } | RaftAction::InternalCommand { payload } => {
            M::SCHEMA.command_name(&payload)
        }
        _ => None,
    }
}

#[cfg(feature = "metrics")]
mod counted {
    use super::{Duration, RaftAction, ServerAction, SessionStateMachine, StateMachine};
    use metrics::{counter, gauge, histogram};
    use session_runtime::{RefuseReason, RequestError, SessionKey};

    pub(crate) fn counts<M: StateMachine>(machine: &SessionStateMachine<M>) {
        // Beyond 2^53 a gauge would be off by one.
        #[allow(clippy::cast_precision_loss)]
        let set = |name, count: usize| gauge!(name).set(count as f64);
        set("session_sessions", machine.session_count());
        set("session_pending", machine.pending_count());
    }

    pub(crate) fn duplicate_at_gate() {
        counter!("session_duplicates_total", "answered" => "gate").increment(1);
    }

    pub(crate) fn duplicate_at_apply<M: StateMachine>(machine: &SessionStateMachine<M>, action: &RaftAction) {
        if let RaftAction::ClientRequest { session, request, payload, .. } = action
            && machine.answer_to(&SessionKey::new(*session, *request, payload)).is_some()
        {
            counter!("session_duplicates_total", "answered" => "apply").increment(1);
        }
    }

    pub(crate) fn applied<M: StateMachine>(entry: &[u8], took: Duration) {
        counter!("session_applied_total").increment(1);
        if let Some(command) = super::command::<M>(entry) {
            histogram!("session_apply_seconds", "command" => command).record(took);
        }
    }

    pub(crate) fn action(action: &ServerAction) {
        match action {
            ServerAction::SessionRefused { reason, .. } => {
                let kind = match reason {
                    RefuseReason::Full => "full",
                    RefuseReason::Closed => "closed",
                    RefuseReason::Stale => "stale",
                };
                counter!("session_refusals_total", "kind" => kind).increment(1);
            }
            ServerAction::SendRequestError { error, .. } => {
                let kind = match error {
                    RequestError::SessionExpired => "session_expired",
                    RequestError::ResponseEvicted => "response_evicted",
                    RequestError::RequestMismatch => "request_mismatch",
                    RequestError::Busy => "busy",
                    RequestError::InvalidPayload => "invalid_payload",
                    RequestError::Skipped => "skipped",
                };
                counter!("session_refusals_total", "kind" => kind).increment(1);
            }
            ServerAction::SendServerRequest { .. } => counter!("session_server_requests_total").increment(1),
            ServerAction::SessionCreated { .. }
            | ServerAction::SessionClosed { .. }
            | ServerAction::SendResponse { .. }
            | ServerAction::InternalResponse { .. } => {}
        }
    }

    pub(crate) fn snapshot_pause(pause: Duration) {
        histogram!("session_snapshot_pause_seconds").record(pause);
    }

    pub(crate) fn snapshot_written(bytes: u64, took: Duration) {
        #[allow(clippy::cast_precision_loss)]
        gauge!("session_snapshot_bytes").set(bytes as f64);
        histogram!("session_snapshot_write_seconds").record(took);
    }
}

#[cfg(not(feature = "metrics"))]
mod counted {
    use super::{Duration, RaftAction, ServerAction, SessionStateMachine};

    pub(crate) fn counts<M>(_machine: &SessionStateMachine<M>) {}
    pub(crate) fn duplicate_at_gate() {}
    pub(crate) fn duplicate_at_apply<M>(_machine: &SessionStateMachine<M>, _action: &RaftAction) {}
    pub(crate) fn applied<M>(_entry: &[u8], _took: Duration) {}
    pub(crate) fn action(_action: &ServerAction) {}
    pub(crate) fn snapshot_pause(_pause: Duration) {}
    pub(crate) fn snapshot_written(_bytes: u64, _took: Duration) {}
}

pub(crate) use counted::*;

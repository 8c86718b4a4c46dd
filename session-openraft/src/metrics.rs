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

#[cfg(all(test, feature = "metrics"))]
mod tests {
    use crate::config::Config;
    use crate::half::Half;
    use crate::service::{Out, Service};
    use crate::types::Proposal;
    use metrics::{
        Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    };
    use metrics::{SharedString, Unit};
    use serde::{Deserialize, Serialize};
    use session_runtime::client::{ClientConfig, ClientMessage};
    use session_runtime::{
        Command, Context, Deterministic, Entry, Limits, RaftAction, RequestId, ServerRequestId, SessionId,
        SessionStateMachine, State, Timestamp, state_machine,
    };
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    #[state_machine]
    enum PollCommand {
        Vote,
        Follow,
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Deterministic)]
    struct News(u64);

    #[derive(Default, State)]
    struct Poll {
        votes: u64,
    }

    #[state_machine(command = PollCommand, server_request = News)]
    impl Poll {
        fn vote(&mut self) -> u64 {
            self.votes = self.votes.saturating_add(1);
            self.votes
        }

        fn follow(&mut self, cx: &mut Context<'_, News>) {
            if let Some(session) = cx.session() {
                cx.send(session, News(self.votes));
            }
        }
    }

    /// What was counted, set or recorded, by name and label. Of a histogram, how many times.
    #[derive(Clone, Default)]
    struct Counted(Arc<Mutex<BTreeMap<String, f64>>>);

    struct One(Counted, String);

    impl One {
        fn change(&self, change: impl FnOnce(f64) -> f64) {
            let mut counted = self.0.0.lock().unwrap();
            let value = counted.entry(self.1.clone()).or_default();
            *value = change(*value);
        }
    }

    #[allow(clippy::cast_precision_loss)]
    impl CounterFn for One {
        fn increment(&self, by: u64) {
            self.change(|value| value + by as f64);
        }
        fn absolute(&self, to: u64) {
            self.change(|_| to as f64);
        }
    }

    impl GaugeFn for One {
        fn increment(&self, by: f64) {
            self.change(|value| value + by);
        }
        fn decrement(&self, by: f64) {
            self.change(|value| value - by);
        }
        fn set(&self, to: f64) {
            self.change(|_| to);
        }
    }

    impl HistogramFn for One {
        fn record(&self, _: f64) {
            self.change(|value| value + 1.0);
        }
    }

    impl Counted {
        fn one(&self, key: &Key) -> Arc<One> {
            let words: Vec<_> =
                std::iter::once(key.name()).chain(key.labels().map(metrics::Label::value)).collect();
            Arc::new(One(self.clone(), words.join(" ")))
        }

        fn of(&self, name: &str) -> f64 {
            self.0.lock().unwrap().get(name).copied().unwrap_or(0.0)
        }
    }

    impl Recorder for Counted {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(self.one(key))
        }
        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(self.one(key))
        }
        fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::from_arc(self.one(key))
        }
    }

    /// A service to which entries are applied by hand.
    struct Replica {
        service: Service<Poll>,
        index: u64,
        out: Out,
    }

    impl Replica {
        fn new(skips: BTreeSet<u64>) -> Self {
            let machine = SessionStateMachine::new(Poll::default());
            let service = Service::new(Config::in_memory(), machine, skips);
            service.count_from_here();
            Self { service, index: 0, out: Out::default() }
        }

        fn apply(&mut self, action: RaftAction) {
            self.index += 1;
            let entry = Entry { time: Timestamp(0), action }.encode();
            self.service.apply(self.index, &Proposal::from(entry), &mut self.out).unwrap();
        }

        fn create(&mut self, session: SessionId) {
            self.apply(RaftAction::SessionCreationConfirmed { session, capabilities: BTreeMap::new() });
        }

        fn request(&mut self, session: SessionId, request: u64, lowest: u64, payload: &PollCommand) {
            self.apply(RaftAction::ClientRequest {
                session,
                request: RequestId(request),
                lowest_pending: RequestId(lowest),
                acked: ServerRequestId(0),
                payload: payload.encode(),
            });
        }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 0.5
    }

    #[test]
    fn what_is_applied_refused_and_doubled_is_counted_by_its_kind() {
        let counted = Counted::default();
        metrics::with_local_recorder(&counted, || {
            let skipped = 12;
            let mut replica = Replica::new(BTreeSet::from([skipped]));
            let (one, gone) = (SessionId::draw(0, 1), SessionId::draw(0, 2));
            replica.create(one);
            replica.request(one, 1, 1, &PollCommand::Vote);
            replica.request(one, 1, 1, &PollCommand::Vote);
            replica.request(one, 1, 1, &PollCommand::Follow);
            replica.request(one, 2, 1, &PollCommand::Follow);
            replica.request(one, 3, 3, &PollCommand::Vote);
            replica.request(one, 2, 3, &PollCommand::Follow);
            replica.request(gone, 1, 1, &PollCommand::Vote);
            replica.create(gone);
            replica.apply(RaftAction::SessionExpired { session: gone });
            replica.create(gone);
            assert_eq!(replica.index + 1, skipped);
            replica.request(one, 4, 4, &PollCommand::Vote);
            replica.create(SessionId::draw(1_000, 3));
            let limits = Limits {
                max_sessions: Some(1),
                max_cached_bytes: Some(0),
                ..replica.service.machine().limits().clone()
            };
            replica.apply(RaftAction::Configure { limits, seed: None });
            replica.create(SessionId::draw(1, 4));
            replica.request(one, 6, 4, &PollCommand::Vote);
            replica.apply(RaftAction::ClientRequest {
                session: one,
                request: RequestId(4),
                lowest_pending: RequestId(4),
                acked: ServerRequestId(0),
                payload: bytes::Bytes::from_static(b"\xff\xff"),
            });
            replica.request(one, 5, 5, &PollCommand::Vote);
        });
        for (name, expected) in [
            ("session_applied_total", 18.0),
            // One whose answer is there, and one whose answer is gone.
            ("session_duplicates_total apply", 2.0),
            ("session_refusals_total request_mismatch", 2.0),
            ("session_refusals_total response_evicted", 1.0),
            ("session_refusals_total session_expired", 1.0),
            ("session_refusals_total closed", 1.0),
            ("session_refusals_total stale", 1.0),
            ("session_refusals_total full", 1.0),
            ("session_refusals_total busy", 1.0),
            ("session_refusals_total skipped", 1.0),
            ("session_server_requests_total", 1.0),
            ("session_sessions", 1.0),
            ("session_pending", 1.0),
            ("session_apply_seconds Follow", 3.0),
        ] {
            assert!(close(counted.of(name), expected), "{name}: {}", counted.of(name));
        }
    }

    #[tokio::test]
    async fn what_the_gate_answers_is_counted_and_is_a_sign_of_life() {
        let counted = Counted::default();
        let _guard = metrics::set_default_local_recorder(&counted);
        let mut replica = Replica::new(BTreeSet::new());
        let session = SessionId::draw(0, 1);
        replica.create(session);
        replica.request(session, 1, 1, &PollCommand::Vote);
        let half = Arc::new(Half::open(ClientConfig::default(), Duration::ZERO));
        let copy = |payload: bytes::Bytes| ClientMessage::Request {
            session,
            request: RequestId(1),
            lowest_pending: RequestId(1),
            acked: ServerRequestId(3),
            payload,
        };
        replica.service.serve(&half, copy(PollCommand::Vote.encode())).await.unwrap();
        assert!(close(counted.of("session_duplicates_total gate"), 1.0));
        let alive = replica.service.take_alive();
        assert_eq!(
            alive.iter().map(|alive| (alive.session, alive.acked)).collect::<Vec<_>>(),
            [(session, ServerRequestId(3))]
        );
        // What can never be valid is refused before the log, and counted.
        replica.service.serve(&half, copy(bytes::Bytes::from_static(&[0, 9, 9]))).await.unwrap();
        assert!(close(counted.of("session_refusals_total invalid_payload"), 1.0));
    }

    #[tokio::test]
    async fn a_snapshots_pause_and_size_are_recorded() {
        let counted = Counted::default();
        let _guard = metrics::set_default_local_recorder(&counted);
        let dir = tempfile::tempdir().unwrap();
        let node = crate::Node::<Poll>::open(dir.path().join("node")).await.unwrap();
        node.snapshot().await.unwrap();
        node.shutdown().await;
        for name in ["session_snapshot_pause_seconds", "session_snapshot_write_seconds"] {
            assert!(close(counted.of(name), 1.0), "{name}: {}", counted.of(name));
        }
        assert!(counted.of("session_snapshot_bytes") > 100.0);
    }

    #[tokio::test]
    async fn what_a_start_applies_again_is_not_counted_again() {
        let counted = Counted::default();
        let _guard = metrics::set_default_local_recorder(&counted);
        let dir = tempfile::tempdir().unwrap();
        let node = crate::Node::<Poll>::open(dir.path()).await.unwrap();
        let poll = PollClient::new(node.client().await.unwrap());
        for _ in 0..5 {
            poll.vote().await.unwrap();
        }
        node.shutdown().await;
        let before = counted.of("session_applied_total");
        assert!(before > 6.0);
        let node = crate::Node::<Poll>::open(dir.path()).await.unwrap();
        assert!(close(counted.of("session_applied_total"), before));
        PollClient::new(node.client().await.unwrap()).vote().await.unwrap();
        assert!(close(counted.of("session_applied_total"), before + 2.0));
        node.shutdown().await;
    }
}

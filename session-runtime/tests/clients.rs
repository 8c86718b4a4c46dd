//! The rules of the client's half, one test a rule. The names are referred to in `book/src/reference/rules.md`.

use proptest::prelude::*;
use session_runtime::client::{
    ClientConfig, ClientEvent, ClientMessage, ClientSession, Execution, ServerMessage, SubmitError,
};
use session_runtime::{
    Bytes, CloseReason, DecodeError, EncodeError, RefuseReason, RequestError, RequestId, Response,
    ServerRequestId, SessionId, codec,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const SESSION: SessionId = SessionId(0xabc);

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn config() -> ClientConfig {
    ClientConfig {
        window: 4,
        ack_delay: ms(20),
        keep_alive: ms(5_000),
        resend_after: ms(1_000),
        ..Default::default()
    }
}

/// A client whose session is open.
fn open() -> ClientSession {
    open_with(config())
}

fn open_with(config: ClientConfig) -> ClientSession {
    let mut client = ClientSession::open(config, ms(0));
    assert!(matches!(client.poll(ms(0)), Some(ClientMessage::Create { attempt: 1, .. })));
    client.receive(ms(0), ServerMessage::Created { attempt: 1, session: SESSION });
    assert_eq!(events(&mut client), [ClientEvent::Opened { session: SESSION }]);
    client
}

fn messages(client: &mut ClientSession, now: Duration) -> Vec<ClientMessage> {
    let mut all = Vec::new();
    while let Some(message) = client.poll(now) {
        all.push(message);
        assert!(all.len() < 100, "polling must come to an end");
    }
    all
}

fn events(client: &mut ClientSession) -> Vec<ClientEvent> {
    std::iter::from_fn(|| client.event()).collect()
}

fn payload(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn request(number: u64, lowest: u64, acked: u64, text: &'static str) -> ClientMessage {
    ClientMessage::Request {
        session: SESSION,
        request: RequestId(number),
        lowest_pending: RequestId(lowest),
        acked: ServerRequestId(acked),
        payload: payload(text),
    }
}

fn response() -> Response {
    Response::accepted(&7u64).unwrap()
}

fn answer(client: &mut ClientSession, now: Duration, number: u64) {
    let message =
        ServerMessage::Response { session: SESSION, request: RequestId(number), response: response() };
    client.receive(now, message);
}

fn fail(client: &mut ClientSession, now: Duration, number: u64, error: RequestError) {
    client.receive(now, ServerMessage::RequestError { session: SESSION, request: RequestId(number), error });
}

fn push(client: &mut ClientSession, now: Duration, number: u64) {
    let request = ServerRequestId(number);
    client.receive(now, ServerMessage::ServerRequest { session: SESSION, request, payload: payload("news") });
}

fn delivered(number: u64) -> ClientEvent {
    ClientEvent::ServerRequest { request: ServerRequestId(number), payload: payload("news") }
}

fn ended(number: u64, result: Result<Response, RequestError>) -> ClientEvent {
    ClientEvent::Ended { request: RequestId(number), result }
}

fn ack(number: u64) -> ClientMessage {
    ClientMessage::Ack { session: SESSION, request: ServerRequestId(number) }
}

#[test]
fn requests_are_numbered_from_1() {
    let mut client = open();
    assert_eq!(client.submit(ms(0), payload("a")), Ok(RequestId(1)));
    assert_eq!(client.submit(ms(0), payload("b")), Ok(RequestId(2)));
    assert_eq!(messages(&mut client, ms(0)), [request(1, 1, 0, "a"), request(2, 1, 0, "b")]);
}

#[test]
fn a_request_just_taken_is_sent_without_a_look_at_the_others() {
    let mut client = ClientSession::open(config(), ms(0));
    client.submit(ms(0), payload("a")).unwrap();
    assert_eq!(client.send(ms(0), RequestId(1)), None, "its session is not open");
    let mut client = open();
    client.submit(ms(0), payload("a")).unwrap();
    client.submit(ms(0), payload("b")).unwrap();
    assert_eq!(client.send(ms(0), RequestId(2)), Some(request(2, 1, 0, "b")));
    assert_eq!(messages(&mut client, ms(0)), [request(1, 1, 0, "a")], "not sent twice");
}

#[test]
fn lowest_pending_and_acked_go_out_as_they_are_at_each_sending() {
    let mut client = open();
    for text in ["a", "b", "c"] {
        client.submit(ms(0), payload(text)).unwrap();
    }
    messages(&mut client, ms(0));
    answer(&mut client, ms(10), 1);
    push(&mut client, ms(10), 1);
    assert_eq!(
        messages(&mut client, ms(1_000)),
        [request(2, 2, 1, "b"), request(3, 2, 1, "c")],
        "sent again"
    );
    answer(&mut client, ms(1_100), 2);
    answer(&mut client, ms(1_100), 3);
    client.submit(ms(1_200), payload("d")).unwrap();
    assert_eq!(
        messages(&mut client, ms(1_200)),
        [request(4, 4, 1, "d")],
        "its own number where all are answered"
    );
}

#[test]
fn a_silent_client_says_that_it_is_alive_with_its_next_number() {
    let mut client = open();
    client.submit(ms(0), payload("a")).unwrap();
    messages(&mut client, ms(0));
    answer(&mut client, ms(1), 1);
    assert_eq!(client.next_wake(), Some(ms(5_000)));
    assert_eq!(messages(&mut client, ms(4_999)), []);
    let alive = ClientMessage::KeepAlive {
        session: SESSION,
        lowest_pending: RequestId(2),
        acked: ServerRequestId(0),
    };
    assert_eq!(messages(&mut client, ms(5_000)), [alive]);
    assert_eq!(client.next_wake(), Some(ms(10_000)));
}

#[test]
fn a_query_is_matched_by_its_own_correlation_and_sent_again_until_it_ends() {
    let mut client = open();
    let [one, two] = ["q", "r"].map(|text| client.query(ms(0), payload(text)).unwrap());
    let query = |correlation, text| ClientMessage::Query { correlation, payload: payload(text) };
    assert_eq!(messages(&mut client, ms(0)), [query(one, "q"), query(two, "r")]);
    client.receive(ms(1), ServerMessage::QueryResponse { correlation: two, result: Ok(payload("yes")) });
    assert_eq!(
        events(&mut client),
        [ClientEvent::QueryEnded { correlation: two, result: Ok(payload("yes")) }]
    );
    assert_eq!(client.next_wake(), Some(ms(1_000)));
    assert_eq!(messages(&mut client, ms(1_000)), [query(one, "q")]);
}

#[test]
fn queries_are_no_sign_of_life() {
    let mut client = open();
    let mut alive = Vec::new();
    for now in (0..=10_000).step_by(1_000) {
        let correlation = client.query(ms(now), payload("q")).unwrap();
        for message in messages(&mut client, ms(now)) {
            if matches!(message, ClientMessage::KeepAlive { .. }) {
                alive.push(now);
            }
        }
        client.receive(ms(now), ServerMessage::QueryResponse { correlation, result: Ok(Bytes::new()) });
    }
    assert_eq!(alive, [5_000, 10_000], "a query names no session: the server cannot count it");
}

#[test]
fn an_acknowledgment_travels_with_a_request_or_alone_after_the_delay() {
    let mut client = open();
    push(&mut client, ms(100), 1);
    assert_eq!(client.next_wake(), Some(ms(120)));
    assert_eq!(messages(&mut client, ms(119)), []);
    assert_eq!(messages(&mut client, ms(120)), [ack(1)]);
    push(&mut client, ms(200), 2);
    client.submit(ms(210), payload("a")).unwrap();
    assert_eq!(messages(&mut client, ms(210)), [request(1, 1, 2, "a")]);
    assert_eq!(messages(&mut client, ms(230)), [], "it travelled with the request");
    answer(&mut client, ms(230), 1);
    push(&mut client, ms(5_200), 3);
    let alive = ClientMessage::KeepAlive {
        session: SESSION,
        lowest_pending: RequestId(2),
        acked: ServerRequestId(3),
    };
    let sent = [messages(&mut client, ms(5_210)), messages(&mut client, ms(5_220))].concat();
    assert_eq!(sent, [alive], "it travelled with the sign of life");
}

#[test]
fn an_acknowledgment_without_delay_goes_out_immediately() {
    let mut client = open_with(ClientConfig { ack_delay: ms(0), ..config() });
    push(&mut client, ms(100), 1);
    assert_eq!(messages(&mut client, ms(100)), [ack(1)]);
}

#[test]
fn resend_yields_all_requests_without_an_answer_in_order() {
    let mut client = open();
    for text in ["a", "b", "c"] {
        client.submit(ms(0), payload(text)).unwrap();
    }
    answer(&mut client, ms(1), 2);
    assert_eq!(client.resend().collect::<Vec<_>>(), [request(1, 1, 0, "a"), request(3, 1, 0, "c")]);
}

#[test]
fn a_reconnected_client_introduces_itself_and_sends_again() {
    let mut client = open();
    client.submit(ms(0), payload("a")).unwrap();
    let query = client.query(ms(0), payload("q")).unwrap();
    messages(&mut client, ms(0));
    client.reconnected(ms(5));
    assert_eq!(
        messages(&mut client, ms(5)),
        [
            ClientMessage::Continue { session: SESSION },
            request(1, 1, 0, "a"),
            ClientMessage::Query { correlation: query, payload: payload("q") },
        ]
    );
    client.receive(ms(6), ServerMessage::Continued { session: SESSION });
    assert_eq!(messages(&mut client, ms(6)), []);
    answer(&mut client, ms(6), 1);
    client.abandon_query(query);
    push(&mut client, ms(6), 1);
    assert_eq!(messages(&mut client, ms(26)), [ack(1)]);
    client.reconnected(ms(30));
    let again = [ClientMessage::Continue { session: SESSION }, ack(1)];
    assert_eq!(messages(&mut client, ms(30)), again, "the acknowledgment may be lost with the connection");
}

#[test]
fn a_client_that_has_to_introduce_itself_wakes_at_once() {
    let mut client = open();
    client.reconnected(ms(5));
    assert!(client.next_wake().unwrap() <= ms(5), "nothing else is under way");
    let bytes = client.save(1).unwrap().unwrap();
    let restored = ClientSession::restore(&bytes, config(), ms(7)).unwrap();
    assert!(restored.next_wake().unwrap() <= ms(7));
}

#[test]
fn what_is_not_answered_is_sent_again_after_a_wait_that_doubles() {
    let mut client = open();
    client.submit(ms(0), payload("a")).unwrap();
    let mut sent = Vec::new();
    for now in (0..64_000).step_by(500) {
        for message in messages(&mut client, ms(now)) {
            if matches!(message, ClientMessage::Request { .. }) {
                sent.push(now);
            }
        }
    }
    assert_eq!(sent, [0, 1_000, 3_000, 7_000, 15_000, 31_000, 47_000, 63_000], "up to sixteenfold");
}

#[test]
fn a_response_that_nobody_waits_for_is_ignored() {
    let mut client = open();
    client.submit(ms(0), payload("a")).unwrap();
    answer(&mut client, ms(1), 1);
    answer(&mut client, ms(2), 1);
    answer(&mut client, ms(2), 9);
    // One is under way, to which none of the following is an answer.
    client.submit(ms(2), payload("b")).unwrap();
    messages(&mut client, ms(2));
    let other = SessionId(0xdead);
    client.receive(
        ms(2),
        ServerMessage::Response { session: other, request: RequestId(2), response: response() },
    );
    client.receive(ms(2), ServerMessage::Closed { session: other, reason: None });
    let (request, error) = (RequestId(2), RequestError::SessionExpired);
    client.receive(ms(2), ServerMessage::RequestError { session: other, request, error });
    let request = ServerRequestId(1);
    client.receive(ms(2), ServerMessage::ServerRequest { session: other, request, payload: payload("news") });
    client.receive(ms(2), ServerMessage::QueryResponse { correlation: 77, result: Ok(Bytes::new()) });
    let query = client.query(ms(3), payload("q")).unwrap();
    client.abandon_query(query);
    assert_eq!(messages(&mut client, ms(3)), [], "a query that was given up is not sent");
    client.receive(ms(3), ServerMessage::QueryResponse { correlation: query, result: Ok(Bytes::new()) });
    assert_eq!(events(&mut client), [ended(1, Ok(response()))]);
}

#[test]
fn an_abandoned_request_is_still_sent_until_answered_and_its_answer_discarded() {
    let mut client = open();
    client.submit(ms(0), payload("a")).unwrap();
    messages(&mut client, ms(0));
    assert_eq!(client.abandon(RequestId(1)), Execution::Unknown);
    assert_eq!(messages(&mut client, ms(1_000)), [request(1, 1, 0, "a")]);
    answer(&mut client, ms(1_001), 1);
    assert_eq!(events(&mut client), []);
    client.submit(ms(1_002), payload("b")).unwrap();
    assert_eq!(messages(&mut client, ms(1_002)), [request(2, 2, 0, "b")], "it no longer holds the watermark");
}

#[test]
fn an_abandoned_request_that_was_never_sent_is_never_executed() {
    let mut client = open();
    client.submit(ms(0), payload("a")).unwrap();
    assert_eq!(client.abandon(RequestId(1)), Execution::Never);
    assert_eq!(messages(&mut client, ms(0)), []);
}

#[test]
fn server_requests_are_delivered_once_and_in_order() {
    let mut client = open();
    push(&mut client, ms(0), 2);
    assert_eq!(
        (events(&mut client), client.next_wake()),
        (vec![], Some(ms(5_000))),
        "a gap: no delivery, no ack"
    );
    push(&mut client, ms(10), 1);
    push(&mut client, ms(11), 2);
    assert_eq!(events(&mut client), [delivered(1), delivered(2)]);
    assert_eq!(messages(&mut client, ms(30)), [ack(2)]);
    push(&mut client, ms(40), 1);
    assert_eq!(events(&mut client), [], "not again");
    assert_eq!(messages(&mut client, ms(60)), [ack(2)], "but acknowledged again");
}

#[test]
fn a_client_refused_for_want_of_room_waits_and_one_with_a_bad_id_asks_at_once() {
    let mut client = ClientSession::open(config(), ms(0));
    let create = |attempt| ClientMessage::Create { attempt, capabilities: config().capabilities };
    assert_eq!(messages(&mut client, ms(0)), [create(1)]);
    client.receive(ms(10), ServerMessage::Refused { attempt: 1, reason: RefuseReason::Full });
    assert_eq!(events(&mut client), [ClientEvent::Refused { reason: RefuseReason::Full }]);
    assert_eq!(messages(&mut client, ms(999)), []);
    assert_eq!(messages(&mut client, ms(1_000)), [create(2)]);
    client.receive(ms(1_010), ServerMessage::Refused { attempt: 2, reason: RefuseReason::Stale });
    assert_eq!(messages(&mut client, ms(1_010)), [create(3)]);
    client.receive(ms(1_015), ServerMessage::Refused { attempt: 3, reason: RefuseReason::Closed });
    assert_eq!(messages(&mut client, ms(1_015)), [create(4)]);
    client.receive(ms(1_020), ServerMessage::Created { attempt: 2, session: SessionId(1) });
    client.receive(ms(1_020), ServerMessage::Refused { attempt: 2, reason: RefuseReason::Stale });
    assert_eq!(client.session(), None, "the answer to an attempt that was given up");
    let close = ClientMessage::Close { session: SessionId(1) };
    assert_eq!(messages(&mut client, ms(1_020)), [close], "nobody will use that session");
    client.receive(ms(1_020), ServerMessage::Created { attempt: 4, session: SESSION });
    assert_eq!(client.session(), Some(SESSION));
}

#[test]
fn a_session_that_was_opened_for_nobody_is_closed() {
    let surplus = |session| ServerMessage::Created { attempt: 1, session };
    let close = |session| ClientMessage::Close { session };
    let mut client = open();
    client.receive(ms(1), surplus(SESSION));
    assert_eq!(messages(&mut client, ms(1)), [], "its own, told once more");
    client.receive(ms(1), surplus(SessionId(7)));
    assert_eq!(client.next_wake(), Some(ms(0)));
    assert_eq!(messages(&mut client, ms(1)), [close(SessionId(7))]);
    assert_eq!(client.session(), Some(SESSION));

    let mut client = ClientSession::open(config(), ms(0));
    assert_eq!(messages(&mut client, ms(0)).len(), 1);
    client.close(ms(1));
    client.receive(ms(2), surplus(SESSION));
    assert_eq!(messages(&mut client, ms(2)), [close(SESSION)], "its caller gave up meanwhile");
    assert_eq!((client.session(), client.next_wake()), (None, None));
}

#[test]
fn a_client_introduces_itself_until_the_server_knows_it() {
    let hello = ClientMessage::Continue { session: SESSION };
    let mut client = open();
    client.reconnected(ms(0));
    client.submit(ms(0), payload("a")).unwrap();
    assert_eq!(client.send(ms(0), RequestId(1)), None, "first of all it introduces itself");
    assert_eq!(messages(&mut client, ms(0)), [hello.clone(), request(1, 1, 0, "a")]);
    answer(&mut client, ms(1), 1);
    client.submit(ms(1), payload("b")).unwrap();
    assert_eq!(
        client.send(ms(1), RequestId(2)),
        Some(request(2, 2, 0, "b")),
        "nothing waits for an answer to that"
    );
    answer(&mut client, ms(2), 2);
    assert_eq!(client.next_wake(), Some(ms(1_000)));
    assert_eq!(messages(&mut client, ms(1_000)), [hello]);
    client.receive(ms(1_001), ServerMessage::Continued { session: SESSION });
    assert_eq!(client.next_wake(), Some(ms(5_001)), "a sign of life, and nothing else");
}

#[test]
fn what_resend_yields_counts_as_sent() {
    let mut client = open();
    client.submit(ms(0), payload("a")).unwrap();
    assert_eq!(client.resend().collect::<Vec<_>>(), [request(1, 1, 0, "a")]);
    assert_eq!(client.abandon(RequestId(1)), Execution::Unknown);
    assert_eq!(client.pending().collect::<Vec<_>>(), [RequestId(1)], "it is driven to its end");
    let mut client = ClientSession::open(config(), ms(0));
    client.submit(ms(0), payload("a")).unwrap();
    assert_eq!(client.resend().count(), 0, "there is no session to send it in");
    assert_eq!(client.abandon(RequestId(1)), Execution::Never);
}

#[test]
fn an_answer_lets_the_lowest_request_that_was_busy_go_at_once() {
    let mut client = open();
    for text in ["a", "b", "c"] {
        client.submit(ms(0), payload(text)).unwrap();
    }
    assert_eq!(messages(&mut client, ms(0)).len(), 3);
    for request in [2, 3] {
        let request = RequestId(request);
        client.receive(ms(10), ServerMessage::answer(SESSION, request, Err(RequestError::Busy)));
    }
    assert_eq!(messages(&mut client, ms(10)), []);
    answer(&mut client, ms(20), 1);
    assert_eq!(messages(&mut client, ms(20)), [request(2, 2, 0, "b")], "nothing can keep this one out");
    answer(&mut client, ms(30), 2);
    assert_eq!(messages(&mut client, ms(30)), [request(3, 3, 0, "c")]);

    // The same if the answers come before the refusal.
    let mut client = open();
    client.submit(ms(0), payload("a")).unwrap();
    client.submit(ms(0), payload("b")).unwrap();
    assert_eq!(messages(&mut client, ms(0)).len(), 2);
    answer(&mut client, ms(10), 1);
    let busy = || ServerMessage::answer(SESSION, RequestId(2), Err(RequestError::Busy));
    client.receive(ms(20), busy());
    assert_eq!(messages(&mut client, ms(20)), [request(2, 2, 0, "b")]);
    client.receive(ms(30), busy());
    assert_eq!(messages(&mut client, ms(30)), [], "an old copy's refusal says nothing new");

    // The same however the one before it ends.
    let mut client = open();
    for text in ["a", "b", "c"] {
        client.submit(ms(0), payload(text)).unwrap();
    }
    client.hold(RequestId(2));
    assert_eq!(messages(&mut client, ms(0)).len(), 2);
    client.receive(ms(10), ServerMessage::answer(SESSION, RequestId(3), Err(RequestError::Busy)));
    client.receive(ms(20), ServerMessage::answer(SESSION, RequestId(1), Err(RequestError::InvalidPayload)));
    assert_eq!(messages(&mut client, ms(20)), [], "another stands before it, which was not sent");
    client.abandon(RequestId(2));
    assert_eq!(messages(&mut client, ms(20)), [request(3, 3, 0, "c")]);
}

#[test]
fn a_request_that_is_held_goes_when_its_caller_says_so() {
    let mut client = open();
    client.submit(ms(0), payload("a")).unwrap();
    client.hold(RequestId(1));
    assert_eq!((messages(&mut client, ms(0)), client.resend().count()), (vec![], 0));
    assert_eq!(client.next_wake(), Some(ms(5_000)));
    client.reconnected(ms(1));
    assert_eq!(messages(&mut client, ms(1)), [ClientMessage::Continue { session: SESSION }]);
    client.submit(ms(1), payload("b")).unwrap();
    assert_eq!(messages(&mut client, ms(1)), [request(2, 1, 0, "b")]);
    assert_eq!(client.send(ms(2), RequestId(1)), Some(request(1, 1, 0, "a")));
    client.submit(ms(2), payload("c")).unwrap();
    client.hold(RequestId(3));
    assert_eq!(client.abandon(RequestId(3)), Execution::Never);
}

#[test]
fn requests_wait_for_the_session_to_open() {
    let mut client = ClientSession::open(config(), ms(0));
    client.submit(ms(0), payload("a")).unwrap();
    assert!(matches!(messages(&mut client, ms(0))[..], [ClientMessage::Create { .. }]));
    client.receive(ms(1), ServerMessage::Created { attempt: 1, session: SESSION });
    assert_eq!(messages(&mut client, ms(1)), [request(1, 1, 0, "a")]);
}

#[test]
fn a_redirected_client_says_where_to_go() {
    let mut client = open();
    client.receive(ms(0), ServerMessage::Rejected { leader: Some("node 2".to_owned()) });
    assert_eq!(events(&mut client), [ClientEvent::Redirected { leader: Some("node 2".to_owned()) }]);
}

#[test]
fn closing_says_goodbye_until_it_is_heard() {
    let mut client = open();
    client.submit(ms(0), payload("a")).unwrap();
    messages(&mut client, ms(0));
    client.close(ms(1));
    assert_eq!(client.submit(ms(1), payload("b")), Err(SubmitError::Closed));
    let close = ClientMessage::Close { session: SESSION };
    assert_eq!(messages(&mut client, ms(1)), std::slice::from_ref(&close));
    assert_eq!(messages(&mut client, ms(1_001)), [close, request(1, 1, 0, "a")]);
    client.receive(ms(1_002), ServerMessage::Closed { session: SESSION, reason: Some(CloseReason::Expired) });
    let end = ClientEvent::Closed { reason: Some(CloseReason::Expired) };
    assert_eq!(events(&mut client), [ended(1, Err(RequestError::SessionExpired)), end]);
    assert_eq!((messages(&mut client, ms(9_999)), client.next_wake()), (vec![], None));

    let mut opening = ClientSession::open(config(), ms(0));
    opening.submit(ms(0), payload("a")).unwrap();
    opening.close(ms(0));
    let end = ClientEvent::Closed { reason: None };
    assert_eq!(events(&mut opening), [ended(1, Err(RequestError::SessionExpired)), end]);
    assert_eq!(messages(&mut opening, ms(9_999)), [], "there is no session to say goodbye to");
}

#[test]
fn a_closed_session_ends_everything_under_way() {
    for expired in [
        ServerMessage::Closed { session: SESSION, reason: None },
        ServerMessage::RequestError {
            session: SESSION,
            request: RequestId(1),
            error: RequestError::SessionExpired,
        },
    ] {
        let mut client = open();
        client.submit(ms(0), payload("a")).unwrap();
        client.submit(ms(0), payload("b")).unwrap();
        let correlation = client.query(ms(0), payload("q")).unwrap();
        client.receive(ms(1), expired);
        let over = Err("the session is over; open a new one".to_owned());
        assert_eq!(
            events(&mut client),
            [
                ended(1, Err(RequestError::SessionExpired)),
                ended(2, Err(RequestError::SessionExpired)),
                ClientEvent::QueryEnded { correlation, result: over },
                ClientEvent::Closed { reason: None },
            ]
        );
        assert_eq!(client.submit(ms(2), payload("c")), Err(SubmitError::Closed));
        assert_eq!(client.query(ms(2), payload("c")), Err(SubmitError::Closed));
    }
}

#[test]
fn errors_end_a_request_except_busy_which_backs_off() {
    for error in [
        RequestError::ResponseEvicted,
        RequestError::RequestMismatch,
        RequestError::InvalidPayload,
        RequestError::Skipped,
    ] {
        let mut client = open();
        client.submit(ms(0), payload("a")).unwrap();
        fail(&mut client, ms(1), 1, error);
        assert_eq!(events(&mut client), [ended(1, Err(error))]);
    }
    let mut client = open();
    client.submit(ms(0), payload("a")).unwrap();
    messages(&mut client, ms(0));
    fail(&mut client, ms(500), 1, RequestError::Busy);
    assert_eq!(events(&mut client), [], "busy ends nothing");
    assert_eq!(messages(&mut client, ms(2_499)), []);
    assert_eq!(messages(&mut client, ms(2_500)), [request(1, 1, 0, "a")], "later than it would have been");
    fail(&mut client, ms(2_600), 1, RequestError::Busy);
    assert_eq!(messages(&mut client, ms(6_600)), [request(1, 1, 0, "a")], "and later again");
}

#[test]
fn what_an_error_says_about_execution_is_true() {
    use session_runtime::client::ClientError;
    let cases = [
        (RequestError::SessionExpired, Execution::Unknown),
        (RequestError::ResponseEvicted, Execution::Unknown),
        (RequestError::RequestMismatch, Execution::Unknown),
        (RequestError::Busy, Execution::Unknown),
        (RequestError::InvalidPayload, Execution::Never),
        (RequestError::Skipped, Execution::Never),
    ];
    for (error, execution) in cases {
        assert_eq!(ClientError::<u8>::from(error).execution(), execution, "{error:?}");
    }
    let cases = [
        (ClientError::Rejected(1u8), Execution::Once),
        (ClientError::Decode(DecodeError::Truncated), Execution::Once),
        (ClientError::TimedOut, Execution::Unknown),
        (ClientError::Transport("cut".to_owned()), Execution::Unknown),
        (ClientError::Refused(RefuseReason::Full), Execution::Never),
        (ClientError::Encode(EncodeError::TooManyElements), Execution::Never),
        (ClientError::NotSent("no".to_owned()), Execution::Never),
        (ClientError::Storage("no".to_owned()), Execution::Unknown),
        (ClientError::Query("no".to_owned()), Execution::Never),
    ];
    for (error, execution) in cases {
        assert_eq!(error.execution(), execution, "{error:?}");
    }
}

#[test]
fn every_error_has_words_of_its_own() {
    use session_runtime::client::ClientError;
    use session_runtime::{DecodeError, EncodeError};
    let why = "because".to_owned();
    let errors: [ClientError<u8>; 15] = [
        ClientError::Rejected(1),
        ClientError::SessionExpired,
        ClientError::ResponseEvicted,
        ClientError::RequestMismatch,
        ClientError::Busy,
        ClientError::InvalidPayload,
        ClientError::Skipped,
        ClientError::Refused(RefuseReason::Full),
        ClientError::Encode(EncodeError::TooManyElements),
        ClientError::Decode(DecodeError::Invalid(why.clone())),
        ClientError::Query(why.clone()),
        ClientError::NotSent(why.clone()),
        ClientError::Storage(why.clone()),
        ClientError::Transport(why),
        ClientError::TimedOut,
    ];
    let submit = [SubmitError::WindowFull, SubmitError::SaveFirst, SubmitError::Closed];
    let words: BTreeSet<String> =
        errors.iter().map(ToString::to_string).chain(submit.iter().map(ToString::to_string)).collect();
    assert_eq!(words.len(), errors.len() + submit.len(), "{words:?}");
    assert!(words.iter().all(|words| words.len() > 15), "{words:?}");
    // What a `main` prints that returns one.
    for error in errors {
        assert_eq!(format!("{error:?}"), error.to_string());
    }
}

#[test]
fn a_reconnected_client_acknowledges_again_what_it_received() {
    let mut client = open();
    let hello = ClientMessage::Continue { session: SESSION };
    client.reconnected(ms(5));
    assert_eq!(messages(&mut client, ms(5)), std::slice::from_ref(&hello), "nothing was received");
    push(&mut client, ms(10), 1);
    assert_eq!(messages(&mut client, ms(30)), [ack(1)]);
    client.reconnected(ms(40));
    assert_eq!(messages(&mut client, ms(40)), [hello, ack(1)]);
    push(&mut client, ms(50), 1);
    assert_eq!(messages(&mut client, ms(70)), [ack(1)], "a copy of the last one, too");
}

#[test]
fn a_save_that_holds_nothing_new_acknowledges_nothing() {
    let mut client = open();
    push(&mut client, ms(10), 1);
    assert_eq!(messages(&mut client, ms(30)), [ack(1)]);
    for now in [40, 80] {
        client.save(5).unwrap();
        client.saved(ms(now));
        assert_eq!(messages(&mut client, ms(now + 20)), []);
    }
}

#[test]
fn the_window_bounds_the_requests_under_way() {
    let mut client = open();
    for _ in 0..4 {
        client.submit(ms(0), payload("a")).unwrap();
    }
    assert_eq!(client.submit(ms(0), payload("a")), Err(SubmitError::WindowFull));
    answer(&mut client, ms(1), 3);
    assert_eq!(client.submit(ms(1), payload("a")), Ok(RequestId(5)));
    let mut narrow = open_with(ClientConfig { window: 0, ..config() });
    assert_eq!(narrow.submit(ms(0), payload("a")), Ok(RequestId(1)), "one at a time at least");
    assert_eq!(narrow.submit(ms(0), payload("a")), Err(SubmitError::WindowFull));
}

#[test]
fn a_configuration_without_waits_still_comes_to_an_end() {
    let mut client =
        open_with(ClientConfig { keep_alive: ms(0), resend_after: ms(0), ack_delay: ms(0), ..config() });
    client.submit(ms(1), payload("a")).unwrap();
    push(&mut client, ms(1), 1);
    assert!(!messages(&mut client, ms(1)).is_empty());
    let mut opening = ClientSession::open(ClientConfig { resend_after: ms(0), ..config() }, ms(0));
    assert_eq!(messages(&mut opening, ms(0)).len(), 1);
    assert_eq!(messages(&mut opening, ms(1)).len(), 1);
}

#[test]
fn the_end_of_time_comes_to_an_end_too() {
    let mut client = open();
    client.submit(ms(0), payload("a")).unwrap();
    client.query(ms(0), payload("q")).unwrap();
    messages(&mut client, Duration::MAX);
    assert_eq!(messages(&mut client, Duration::MAX), []);
}

// Saving.

#[test]
fn a_restored_client_never_uses_a_number_twice() {
    let mut client = open();
    let bytes = client.save(3).unwrap().unwrap();
    client.saved(ms(0));
    for number in 1..=3 {
        assert_eq!(client.submit(ms(0), payload("a")), Ok(RequestId(number)));
    }
    answer(&mut client, ms(0), 1);
    assert_eq!(client.submit(ms(0), payload("a")), Err(SubmitError::SaveFirst), "none above the reservation");
    let mut restored = ClientSession::restore(&bytes, config(), ms(0)).unwrap();
    assert_eq!(restored.session(), Some(SESSION));
    assert_eq!(
        restored.submit(ms(0), payload("b")),
        Err(SubmitError::SaveFirst),
        "not before newer bytes are saved"
    );
    restored.save(10).unwrap().unwrap();
    assert_eq!(
        restored.submit(ms(0), payload("b")),
        Err(SubmitError::SaveFirst),
        "they may not be stored yet"
    );
    restored.saved(ms(0));
    assert_eq!(restored.submit(ms(0), payload("b")), Ok(RequestId(4)));
}

#[test]
fn the_first_save_binds_before_it_is_known_to_be_stored() {
    let mut client = open();
    client.save(1).unwrap().unwrap();
    assert_eq!(client.submit(ms(0), payload("a")), Ok(RequestId(1)));
    assert_eq!(client.submit(ms(0), payload("a")), Err(SubmitError::SaveFirst));
}

#[test]
fn a_smaller_reservation_binds_before_it_is_known_to_be_stored() {
    let mut client = open();
    client.save(100).unwrap().unwrap();
    client.saved(ms(0));
    assert_eq!(client.submit(ms(0), payload("a")), Ok(RequestId(1)));
    let bytes = client.save(1).unwrap().unwrap();
    assert_eq!(client.submit(ms(0), payload("b")), Ok(RequestId(2)));
    assert_eq!(
        client.submit(ms(0), payload("c")),
        Err(SubmitError::SaveFirst),
        "the bytes may be stored already, and a client restored from them uses 3"
    );
    let mut restored = ClientSession::restore(&bytes, config(), ms(0)).unwrap();
    restored.save(1).unwrap().unwrap();
    restored.saved(ms(0));
    assert_eq!(restored.submit(ms(0), payload("d")), Ok(RequestId(3)));
}

#[test]
fn an_abandoned_request_that_saved_bytes_hold_may_be_executed() {
    let mut client = open();
    client.submit(ms(0), payload("a")).unwrap();
    let bytes = client.save(5).unwrap().unwrap();
    assert_eq!(client.abandon(RequestId(1)), Execution::Unknown, "a client restored from them sends it");
    let mut restored = ClientSession::restore(&bytes, config(), ms(0)).unwrap();
    assert!(messages(&mut restored, ms(0)).contains(&request(1, 1, 0, "a")));
    let bytes = client.save(5).unwrap().unwrap();
    let mut restored = ClientSession::restore(&bytes, config(), ms(0)).unwrap();
    let hello = ClientMessage::Continue { session: SESSION };
    assert_eq!(messages(&mut restored, ms(0)), [hello], "whoever gave it up is not told after a restore");
    assert_eq!(messages(&mut client, ms(100)), [], "and this client, which never sent it, never does");
}

#[test]
fn events_come_in_the_order_they_happened() {
    let mut client = open();
    client.submit(ms(0), payload("a")).unwrap();
    client.submit(ms(0), payload("b")).unwrap();
    assert_eq!(messages(&mut client, ms(0)).len(), 2);
    for number in 1..=2 {
        push(&mut client, ms(1), number);
        answer(&mut client, ms(1), number);
    }
    push(&mut client, ms(1), 3);
    let [first, second] = [1, 2].map(|number| ended(number, Ok(response())));
    assert_eq!(events(&mut client), [delivered(1), first, delivered(2), second, delivered(3)]);
}

#[test]
fn server_requests_that_were_not_taken_come_again_after_a_restore() {
    let mut client = open();
    client.submit(ms(0), payload("a")).unwrap();
    assert_eq!(messages(&mut client, ms(0)).len(), 1);
    push(&mut client, ms(1), 1);
    assert_eq!(events(&mut client), [delivered(1)]);
    push(&mut client, ms(1), 2);
    answer(&mut client, ms(1), 1);
    // It takes some kinds of events, and leaves others.
    assert_eq!(client.event_but_server_request(), Some(ended(1, Ok(response()))));
    assert_eq!(client.event_but_server_request(), None);
    assert_eq!(client.untaken_server_requests(), 1);
    let bytes = client.save(5).unwrap().unwrap();
    client.saved(ms(1));
    assert_eq!(messages(&mut client, ms(100)), [ack(1)], "nobody has seen the second");
    let mut restored = ClientSession::restore(&bytes, config(), ms(0)).unwrap();
    assert_eq!(restored.pending().count(), 0);
    push(&mut restored, ms(1), 2);
    assert_eq!(events(&mut restored), [delivered(2)]);
}

#[test]
fn requests_under_way_when_saved_are_sent_again_after_a_restore() {
    let mut client = open();
    client.submit(ms(0), payload("a")).unwrap();
    client.submit(ms(0), payload("b")).unwrap();
    answer(&mut client, ms(0), 1);
    assert_eq!(events(&mut client), [ended(1, Ok(response()))]);
    let bytes = client.save(5).unwrap().unwrap();
    let mut restored = ClientSession::restore(&bytes, config(), ms(0)).unwrap();
    assert_eq!(
        messages(&mut restored, ms(0)),
        [ClientMessage::Continue { session: SESSION }, request(2, 2, 0, "b"),]
    );
    answer(&mut restored, ms(1), 2);
    assert_eq!(events(&mut restored), [ended(2, Ok(response()))]);
}

#[test]
fn a_client_that_saves_acknowledges_only_what_its_saved_bytes_hold() {
    let mut client = open();
    push(&mut client, ms(0), 1);
    assert_eq!(events(&mut client), [delivered(1)]);
    let bytes = client.save(10).unwrap().unwrap();
    client.saved(ms(0));
    push(&mut client, ms(1), 2);
    assert_eq!(events(&mut client), [delivered(2)]);
    assert_eq!(messages(&mut client, ms(100)), [ack(1)]);
    let mut restored = ClientSession::restore(&bytes, config(), ms(0)).unwrap();
    push(&mut restored, ms(1), 2);
    assert_eq!(events(&mut restored), [delivered(2)], "it comes again");
    client.save(10).unwrap().unwrap();
    assert_eq!(messages(&mut client, ms(200)), []);
    client.saved(ms(200));
    assert_eq!(messages(&mut client, ms(220)), [ack(2)]);
    push(&mut client, ms(300), 3);
    assert_eq!(messages(&mut client, ms(400)), [], "there is nothing new to acknowledge");
    push(&mut client, ms(400), 2);
    assert_eq!(messages(&mut client, ms(500)), [ack(2)], "an acknowledgment that was lost");
}

/// Bytes that say: session 0xabc, numbers reserved up to 9, server requests delivered up to 2, request 4 under way.
fn restored_from(bytes: &[u8]) -> ClientSession {
    let mut client = ClientSession::restore(bytes, config(), ms(0)).unwrap();
    let hello = ClientMessage::Continue { session: SESSION };
    assert_eq!(messages(&mut client, ms(0)), [hello, request(4, 4, 2, "a")]);
    client
}

#[test]
fn saved_bytes_of_version_1_are_read_for_ever() {
    let mut client = restored_from(b"\x01\xfb\xbc\x0a\x09\x02\x01\x04\x01a");
    answer(&mut client, ms(1), 4);
    client.save(0).unwrap().unwrap();
    client.submit(ms(1), payload("b")).unwrap_err();
    client.save(1).unwrap().unwrap();
    client.saved(ms(1));
    assert_eq!(client.submit(ms(1), payload("b")), Ok(RequestId(10)));
}

#[test]
fn saved_bytes_of_version_2_are_read_for_ever() {
    // The same behind a checksum.
    let bytes = b"\x02\x05\x3a\xbe\xe5\x04\x6f\x2b\x1c\xfb\xbc\x0a\x09\x02\x01\x04\x01a";
    restored_from(bytes);
    let mut again = ClientSession::restore(bytes, config(), ms(0)).unwrap();
    assert_eq!(again.save(0).unwrap().unwrap()[..], bytes[..], "and written alike");
}

#[test]
fn damaged_saved_bytes_are_refused() {
    let mut client = open();
    client.submit(ms(0), payload("a")).unwrap();
    let bytes = client.save(5).unwrap().unwrap();
    for length in 0..bytes.len() {
        assert!(ClientSession::restore(&bytes[..length], config(), ms(0)).is_err(), "cut at {length}");
    }
    for bit in 0..bytes.len() * 8 {
        let mut other = bytes.to_vec();
        other[bit / 8] ^= 1 << (bit % 8);
        assert!(ClientSession::restore(&other, config(), ms(0)).is_err(), "bit {bit} is another");
    }
    for unknown in [&[][..], &[2], b"\x02something else"] {
        let error = ClientSession::restore(unknown, config(), ms(0)).unwrap_err();
        assert!(error.to_string().contains("open a new session"), "{error}");
    }
    let restored = |number| {
        let pending = vec![(RequestId(number), payload("a"))];
        let body = codec::encode_state(&(SESSION, 6u64, ServerRequestId(0), pending)).unwrap();
        ClientSession::restore(&[&[1], &body[..]].concat(), config(), ms(0))
    };
    assert!(restored(1).is_ok() && restored(6).is_ok());
    for number in [0, 7] {
        let error = restored(number).unwrap_err();
        assert!(error.to_string().contains("beyond the reserved numbers"), "{number}: {error}");
    }
    let mut later = bytes.to_vec();
    later[0] = 3;
    let error = ClientSession::restore(&later, config(), ms(0)).unwrap_err();
    assert!(error.to_string().contains("run a newer build"), "{error}");
    assert!(
        ClientSession::open(config(), ms(0)).save(1).unwrap().is_none(),
        "there is no session to save yet"
    );
}

/// What happens to a client that saves itself, and to what it saved.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Submit,
    /// What is due goes out.
    Send,
    /// The answer to the request under way at this place comes.
    Answer(usize),
    /// The caller of the last request gives up.
    Abandon,
    /// The server sends what is not acknowledged.
    Push,
    Save(u64),
    /// The bytes are stored, and the client does not know yet.
    Store,
    /// The bytes are stored, and the client is told.
    Saved,
    /// The process ends, and another goes on from what is stored.
    Crash,
}

fn fates() -> impl Strategy<Value = Vec<Fate>> {
    let fate = prop_oneof![
        4 => Just(Fate::Submit),
        4 => Just(Fate::Send),
        2 => (0..4usize).prop_map(Fate::Answer),
        1 => Just(Fate::Abandon),
        2 => Just(Fate::Push),
        2 => prop_oneof![Just(0), Just(1), Just(9)].prop_map(Fate::Save),
        2 => Just(Fate::Store),
        1 => Just(Fate::Saved),
        1 => Just(Fate::Crash),
    ];
    proptest::collection::vec(fate, 1..200)
}

fn wide() -> ClientConfig {
    ClientConfig { window: 20, ..config() }
}

/// A client, its disk, and the server's view of it.
struct Life {
    client: ClientSession,
    now: u64,
    /// What the last save gave and what is stored, each with what the application had been given by then.
    made: Option<(Bytes, u64)>,
    stored: Option<(Bytes, u64)>,
    given: u64,
    acked: u64,
    /// The payload of every number that was used, and the numbers that must never be.
    used: BTreeMap<RequestId, Bytes>,
    never: BTreeSet<RequestId>,
    submitted: u64,
}

impl Life {
    fn under_way(&self, place: usize) -> Option<RequestId> {
        self.client.pending().nth(place)
    }

    fn meet(&mut self, fate: Fate) {
        self.now += 700;
        let now = ms(self.now);
        match fate {
            Fate::Submit => {
                self.submitted += 1;
                self.client.submit(now, Bytes::from(self.submitted.to_string())).ok();
            }
            Fate::Send => {
                for message in messages(&mut self.client, now) {
                    self.hear(message);
                }
            }
            Fate::Answer(place) => {
                if let Some(request) = self.under_way(place).filter(|request| self.used.contains_key(request))
                {
                    answer(&mut self.client, now, request.0);
                }
            }
            Fate::Abandon => {
                let last = self.client.pending().count().saturating_sub(1);
                if let Some(request) = self.under_way(last)
                    && self.client.abandon(request) == Execution::Never
                {
                    self.never.insert(request);
                }
            }
            Fate::Push => {
                for number in self.acked + 1..=self.acked + 3 {
                    push(&mut self.client, now, number);
                }
            }
            Fate::Save(reserve) => {
                let bytes = self.client.save(reserve).unwrap().unwrap();
                self.made = Some((bytes, self.given));
            }
            Fate::Store => self.stored = self.made.clone().or(self.stored.take()),
            Fate::Saved => {
                if self.made.is_some() {
                    self.stored = self.made.clone();
                    self.client.saved(now);
                }
            }
            Fate::Crash => {
                if let Some((bytes, given)) = &self.stored {
                    self.client = ClientSession::restore(bytes, wide(), now).unwrap();
                    (self.made, self.given) = (None, *given);
                }
            }
        }
        for event in events(&mut self.client) {
            if let ClientEvent::ServerRequest { request, .. } = event {
                assert_eq!(request.0, self.given + 1, "in order, and none is missing");
                self.given = request.0;
            }
        }
    }

    fn hear(&mut self, message: ClientMessage) {
        let acked = match message {
            ClientMessage::Request { request, acked, payload, .. } => {
                let first = self.used.entry(request).or_insert_with(|| payload.clone());
                assert_eq!(*first, payload, "{request:?} is used for two commands");
                assert!(!self.never.contains(&request), "{request:?} was said to be executed never");
                acked
            }
            ClientMessage::Ack { request, .. } => request,
            ClientMessage::KeepAlive { acked, .. } => acked,
            _ => return,
        };
        self.acked = self.acked.max(acked.0);
        if let Some((_, given)) = &self.stored {
            assert!(self.acked <= *given, "what was acknowledged would be lost in a crash");
        }
    }
}

proptest! {
    #[test]
    fn a_client_that_saves_keeps_its_promises_wherever_it_crashes(fates in fates()) {
        let mut life = Life {
            client: open_with(wide()),
            now: 0,
            made: None,
            stored: None,
            given: 0,
            acked: 0,
            used: BTreeMap::new(),
            never: BTreeSet::new(),
            submitted: 0,
        };
        // Saved before anything else: what came before the first save is nobody's promise.
        life.meet(Fate::Save(1));
        life.meet(Fate::Saved);
        for fate in fates {
            life.meet(fate);
        }
    }
}

//! The messages between client and server. What version 1 wrote must be read for ever, so `messages-v1.txt` is
//! never rewritten: a new version gets a new file beside it.

use session_runtime::client::{ClientMessage, MessageError, ServerMessage};
use session_runtime::{
    Bytes, CloseReason, DecodeError, RefuseReason, RequestError, RequestId, Response, ServerAction,
    ServerRequestId, SessionId, codec,
};
use std::collections::BTreeMap;

fn session() -> SessionId {
    SessionId::draw(41, 0x0123_4567_89ab_cdef)
}

fn client_messages() -> Vec<ClientMessage> {
    let session = session();
    let payload = Bytes::from_static(b"payload");
    vec![
        ClientMessage::Create {
            attempt: 1,
            capabilities: BTreeMap::from([("name".to_owned(), "ann".to_owned())]),
        },
        ClientMessage::Continue { session },
        ClientMessage::Request {
            session,
            request: RequestId(3),
            lowest_pending: RequestId(2),
            acked: ServerRequestId(300),
            payload: payload.clone(),
        },
        ClientMessage::Query { correlation: 70_000, payload },
        ClientMessage::Ack { session, request: ServerRequestId(9) },
        ClientMessage::KeepAlive { session, lowest_pending: RequestId(4), acked: ServerRequestId(9) },
        ClientMessage::Close { session },
    ]
}

fn server_messages() -> Vec<ServerMessage> {
    let session = session();
    let payload = Bytes::from_static(b"payload");
    let request = RequestId(3);
    vec![
        ServerMessage::Created { attempt: 1, session },
        ServerMessage::Continued { session },
        ServerMessage::Refused { attempt: 2, reason: RefuseReason::Stale },
        ServerMessage::Rejected { leader: None },
        ServerMessage::Rejected { leader: Some("node 2".to_owned()) },
        ServerMessage::Response { session, request, response: Response::rejected(&7u64).unwrap() },
        ServerMessage::RequestError { session, request, error: RequestError::Skipped },
        ServerMessage::QueryResponse { correlation: 70_000, result: Ok(payload.clone()) },
        ServerMessage::QueryResponse { correlation: 70_001, result: Err("no such query".to_owned()) },
        ServerMessage::ServerRequest { session, request: ServerRequestId(9), payload },
        ServerMessage::Closed { session, reason: Some(CloseReason::SlowConsumer) },
        ServerMessage::Closed { session, reason: None },
    ]
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn fixture() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/messages-v1.txt")
}

/// The lines of the fixture: who speaks, and the bytes in hex.
fn lines() -> Vec<String> {
    let client = client_messages().into_iter().map(|message| ("client", message.encode().unwrap()));
    let server = server_messages().into_iter().map(|message| ("server", message.encode().unwrap()));
    client.chain(server).map(|(who, bytes)| format!("{who}: {}", to_hex(&bytes))).collect()
}

#[test]
fn messages_of_version_1_decode_for_ever() {
    let text = std::fs::read_to_string(fixture()).unwrap();
    let stored: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let bytes = |who: &str| -> Vec<Vec<u8>> {
        stored.iter().filter_map(|line| Some(from_hex(line.strip_prefix(who)?.strip_prefix(": ")?))).collect()
    };
    let read: Vec<_> = bytes("client").iter().map(|bytes| ClientMessage::decode(bytes).unwrap()).collect();
    assert_eq!(read, client_messages());
    let read: Vec<_> = bytes("server").iter().map(|bytes| ServerMessage::decode(bytes).unwrap()).collect();
    assert_eq!(read, server_messages());
    assert_eq!(stored, lines(), "and this build still writes them so");
}

#[test]
fn hostile_messages_are_errors() {
    for message in client_messages() {
        let bytes = message.encode().unwrap();
        for length in 0..bytes.len() {
            assert!(ClientMessage::decode(&bytes[..length]).is_err(), "{message:?} cut at {length}");
        }
    }
    for message in server_messages() {
        let bytes = message.encode().unwrap();
        for length in 0..bytes.len() {
            assert!(ServerMessage::decode(&bytes[..length]).is_err(), "{message:?} cut at {length}");
        }
    }
    let longer = [&client_messages()[1].encode().unwrap()[..], &[0]].concat();
    assert_eq!(
        ClientMessage::decode(&longer),
        Err(MessageError::Damaged(DecodeError::Trailing { bytes: 1 }))
    );
    let huge_map = [1, 0, 1, 253, 255, 255, 255, 255, 255, 255, 255, 255];
    assert_eq!(ClientMessage::decode(&huge_map), Err(MessageError::Damaged(DecodeError::TooManyElements)));
    let huge_payload = [1, 3, 1, 253, 0, 0, 0, 0, 0, 1, 0, 0];
    assert_eq!(ClientMessage::decode(&huge_payload), Err(MessageError::Damaged(DecodeError::Truncated)));
    let oversized = vec![1; codec::MAX_MESSAGE + 2];
    let max = codec::MAX_MESSAGE;
    assert_eq!(ClientMessage::decode(&oversized), Err(MessageError::Damaged(DecodeError::TooLarge { max })));
}

#[test]
fn another_version_of_the_protocol_is_a_distinct_error() {
    let error = ServerMessage::decode(&[2, 0, 0]).unwrap_err();
    assert_eq!(error, MessageError::UnknownVersion { version: 2 });
    assert!(error.to_string().contains("update the older side"), "{error}");
}

#[test]
fn a_message_can_carry_the_largest_payload() {
    let payload = Bytes::from(vec![0; codec::MAX_PAYLOAD]);
    let message = ClientMessage::Query { correlation: u64::MAX, payload };
    assert_eq!(ClientMessage::decode(&message.encode().unwrap()), Ok(message));
}

#[test]
fn every_action_for_a_client_has_its_message() {
    let session = session();
    let response = Response::accepted(&1u8).unwrap();
    let request = RequestId(1);
    let action = ServerAction::SendResponse { session, request, response: response.clone() };
    let message = ServerMessage::Response { session, request, response };
    assert_eq!(ServerMessage::from_action(action), Some((session, message)));
    let action = ServerAction::SessionClosed { session, reason: CloseReason::Idle };
    let message = ServerMessage::Closed { session, reason: Some(CloseReason::Idle) };
    assert_eq!(ServerMessage::from_action(action), Some((session, message)));
    let error = RequestError::Busy;
    let action = ServerAction::SendRequestError { session, request, error };
    assert_eq!(
        ServerMessage::from_action(action),
        Some((session, ServerMessage::RequestError { session, request, error }))
    );
    let (request, payload) = (ServerRequestId(1), Bytes::new());
    let action = ServerAction::SendServerRequest { session, request, payload: payload.clone() };
    let message = ServerMessage::ServerRequest { session, request, payload };
    assert_eq!(ServerMessage::from_action(action), Some((session, message)));
    assert_eq!(ServerMessage::from_action(ServerAction::SessionCreated { session }), None);
}

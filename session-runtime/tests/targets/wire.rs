//! Any bytes as a message, as a saved client, and as all that a server ever says to a client.

use super::pieces;
use session_runtime::client::{ClientConfig, ClientEvent, ClientMessage, ClientSession, ServerMessage};
use session_runtime::{Bytes, ServerRequestId};
use std::time::Duration;

pub fn run(bytes: &[u8]) {
    if let Ok(message) = ClientMessage::decode(bytes) {
        let again = message.encode().expect("it was read");
        assert_eq!(ClientMessage::decode(&again), Ok(message));
    }
    if let Ok(message) = ServerMessage::decode(bytes) {
        let again = message.encode().expect("it was read");
        assert_eq!(ServerMessage::decode(&again), Ok(message));
    }
    restore(bytes);
    listen(bytes);
}

/// The bytes as those of a saved client: what can be restored can be saved, and is then restored alike.
fn restore(bytes: &[u8]) {
    let now = Duration::from_secs(1);
    let Ok(mut client) = ClientSession::restore(bytes, ClientConfig::default(), now) else { return };
    let pending: Vec<ClientMessage> = client.resend().collect();
    let saved = client.save(10).expect("it was read").expect("its session is open");
    let mut again = ClientSession::restore(&saved, ClientConfig::default(), now).expect("it was saved");
    assert_eq!(again.session(), client.session());
    assert_eq!(again.resend().collect::<Vec<_>>(), pending);
    let most = pending.len() + 3;
    assert!(std::iter::from_fn(|| again.poll(now)).take(most + 1).count() <= most, "polling comes to an end");
}

/// How much a server says: each time the client sends all that it has pending.
const SAID: usize = 24;

/// A client, new or restored, that is told whatever a server can say.
fn listen(bytes: &[u8]) {
    let mut pieces = pieces(bytes).take(SAID);
    let config = ClientConfig { window: 4, ..ClientConfig::default() };
    let mut now = Duration::from_secs(1);
    let saved = pieces.next().unwrap_or_default();
    let mut client = ClientSession::restore(saved, config.clone(), now)
        .unwrap_or_else(|_| ClientSession::open(config, now));
    let mut last: Option<ServerRequestId> = None;
    for piece in pieces {
        now = now.saturating_add(Duration::from_millis(700));
        let _ = client.submit(now, Bytes::from_static(b"a command"));
        let _ = client.query(now, Bytes::from_static(b"a query"));
        if let Ok(message) = ServerMessage::decode(piece) {
            client.receive(now, message);
        } else {
            client.reconnected(now);
        }
        while let Some(message) = client.poll(now) {
            let frame = message.encode().expect("a small message");
            assert_eq!(ClientMessage::decode(&frame), Ok(message));
        }
        while let Some(event) = client.event() {
            if let ClientEvent::ServerRequest { request, .. } = event {
                assert!(last.is_none_or(|last| request.0 == last.0 + 1), "{request:?} after {last:?}");
                last = Some(request);
            }
        }
        assert!(client.next_wake().is_none_or(|wake| wake > now || wake == Duration::MAX), "it was polled");
    }
}

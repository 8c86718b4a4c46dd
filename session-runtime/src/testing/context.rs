//! A context made by hand.

use crate::{
    action::ServerAction,
    codec::{self, DecodeError},
    context::{Context, Turn},
    identity::{SessionId, Timestamp},
    sessions::Sessions,
    wire::{Never, Wire},
};
use std::collections::BTreeMap;
use std::marker::PhantomData;

/// What a handler sees of the log, made by hand, so that a handler with a context can be called in a plain
/// unit test.
///
/// ```
/// use session_runtime::testing::TestContext;
/// use session_runtime::{Context, SessionId};
///
/// fn greet(cx: &mut Context<'_, String>) -> u64 {
///     if let Some(session) = cx.session() {
///         cx.send(session, "hello".to_owned());
///     }
///     cx.now().0
/// }
///
/// let ann = SessionId(1);
/// let mut test = TestContext::new().open(ann).of(ann).at(1_000);
/// assert_eq!(greet(&mut test.context()), 1_000);
/// assert_eq!(test.sent().unwrap(), [(ann, "hello".to_owned())]);
/// ```
pub struct TestContext<R = Never> {
    turn: Turn,
    sessions: Sessions,
    session: Option<SessionId>,
    server_request: PhantomData<fn(R)>,
}

impl<R: Wire> TestContext<R> {
    /// The first entry of a log, at time 0 and version 1, of no session, with no session open.
    pub fn new() -> Self {
        Self {
            turn: Turn::new(1, Timestamp(0), 1, [0; 32], false),
            sessions: Sessions::default(),
            session: None,
            server_request: PhantomData,
        }
    }

    /// With this session open.
    #[must_use]
    pub fn open(self, session: SessionId) -> Self {
        self.open_with(session, BTreeMap::new())
    }

    /// With this session open, whose client said it can do this.
    #[must_use]
    pub fn open_with(mut self, session: SessionId, capabilities: BTreeMap<String, String>) -> Self {
        self.sessions.open(session, capabilities, self.turn.now);
        self
    }

    /// On behalf of this session.
    #[must_use]
    pub fn of(mut self, session: SessionId) -> Self {
        self.session = Some(session);
        self
    }

    /// At this moment of the log's time, in milliseconds.
    #[must_use]
    pub fn at(mut self, milliseconds: u64) -> Self {
        self.turn.now = Timestamp(milliseconds);
        self
    }

    /// In the entry at this index.
    #[must_use]
    pub fn index(mut self, index: u64) -> Self {
        self.turn = Turn::new(index, self.turn.now, self.turn.version, [0; 32], false);
        self
    }

    /// At this version of the machine.
    #[must_use]
    pub fn version(mut self, version: u32) -> Self {
        self.turn.version = version;
        self
    }

    /// The context to call a handler with.
    pub fn context(&mut self) -> Context<'_, R> {
        let context = Context::new(&mut self.turn).among(&mut self.sessions);
        match self.session {
            Some(session) => context.of(session),
            None => context,
        }
    }

    /// What was sent since the last call, in order, and to whom.
    pub fn sent(&mut self) -> Result<Vec<(SessionId, R)>, DecodeError> {
        let sent = self.turn.sent.drain(..).filter_map(|action| match action {
            ServerAction::SendServerRequest { session, payload, .. } => {
                Some(codec::decode(&payload).map(|request| (session, request)))
            }
            _ => None,
        });
        sent.collect()
    }
}

impl<R: Wire> Default for TestContext<R> {
    fn default() -> Self {
        Self::new()
    }
}

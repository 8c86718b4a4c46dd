//! What a handler may know and do beside its own state.

use crate::{
    action::ServerAction,
    codec::{self, EncodeError},
    identity::{ServerRequestId, SessionId, Timestamp},
    sessions::Sessions,
    wire::{Never, Wire},
};
use bytes::Bytes;
use chacha20::ChaCha8Rng;
use rand_core::{Infallible, Rng, SeedableRng, TryRng};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// What a handler may know beside its own state - all of it agreed on in the log - and how it sends requests
/// of type `R` to clients.
pub struct Context<'a, R = Never> {
    turn: &'a mut Turn,
    sessions: Option<&'a mut Sessions>,
    session: Option<SessionId>,
    closing: Option<&'a BTreeMap<String, String>>,
    server_request: PhantomData<fn(R)>,
}

impl<'a, R> Context<'a, R> {
    /// A context with neither session nor sessions.
    pub(crate) fn new(turn: &'a mut Turn) -> Self {
        Self { turn, sessions: None, session: None, closing: None, server_request: PhantomData }
    }

    /// With the sessions one can send to.
    pub(crate) fn among(mut self, sessions: &'a mut Sessions) -> Self {
        self.sessions = Some(sessions);
        self
    }

    /// On behalf of a session.
    pub(crate) fn of(mut self, session: SessionId) -> Self {
        self.session = Some(session);
        self
    }

    /// On behalf of a session that is being closed and left these capabilities behind.
    pub(crate) fn of_closing(self, session: SessionId, capabilities: &'a BTreeMap<String, String>) -> Self {
        let mut context = self.of(session);
        context.closing = Some(capabilities);
        context
    }

    pub(crate) fn turn(&mut self) -> &mut Turn {
        self.turn
    }
}

impl<R> Context<'_, R> {
    /// The session on whose behalf the handler runs; `None` in an internal command.
    pub fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// The log's time, never the machine's.
    pub fn now(&self) -> Timestamp {
        self.turn.now
    }

    /// The index of the entry. It grows from entry to entry, so it serves as a fencing token.
    pub fn index(&self) -> u64 {
        self.turn.index
    }

    /// The machine's replicated version: keep the old behaviour below the version that changes it.
    pub fn version(&self) -> u32 {
        self.turn.version
    }

    /// What the client of an open session, or of the one being closed, said it can do.
    pub fn capabilities(&self, of: SessionId) -> Option<&BTreeMap<String, String>> {
        match self.closing {
            Some(capabilities) if self.session == Some(of) => Some(capabilities),
            _ => self.sessions.as_ref()?.capabilities(of),
        }
    }

    /// A generator of numbers that are the same on every replica: seeded from the log position and the
    /// replicated seed, one for an entry. Anyone who knows both can compute them: not for secrets.
    pub fn rng(&mut self) -> &mut ContextRng {
        &mut self.turn.rng
    }

    /// The open sessions, in id order.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.sessions.iter().flat_map(|sessions| sessions.ids())
    }
}

impl<R: Wire> Context<'_, R> {
    /// Sends a request to a client: it is numbered, kept until acknowledged, and handed to the caller for
    /// sending. `None` if there is no such session, or if it has too many unacknowledged requests already, in
    /// which case it is closed.
    #[allow(clippy::needless_pass_by_value)] // a handler hands it over: it must not expect to change it later
    pub fn send(&mut self, to: SessionId, request: R) -> Option<ServerRequestId> {
        let mut payload = None;
        self.send_once_encoded(to, &request, &mut payload)
    }

    /// Sends a request to every open session, in id order.
    #[allow(clippy::needless_pass_by_value)] // as `send` takes it
    pub fn broadcast(&mut self, request: R) {
        let mut payload = None;
        let sessions: Vec<SessionId> = self.sessions().collect();
        for session in sessions {
            self.send_once_encoded(session, &request, &mut payload);
        }
    }

    /// `payload` is encoded at the first session that takes it: what goes to nobody leaves no trace.
    fn send_once_encoded(
        &mut self,
        to: SessionId,
        request: &R,
        payload: &mut Option<Bytes>,
    ) -> Option<ServerRequestId> {
        let sessions = self.sessions.as_mut()?;
        if !sessions.may_send(to) {
            return None;
        }
        let payload = match payload {
            Some(payload) => payload.clone(),
            None => match codec::encode(request) {
                Ok(encoded) => payload.insert(encoded).clone(),
                Err(error) => {
                    self.turn.failure.get_or_insert(error);
                    return None;
                }
            },
        };
        let request = sessions.send(to, payload.clone(), self.turn.now)?;
        self.turn.sent.push(ServerAction::SendServerRequest { session: to, request, payload });
        Some(request)
    }
}

impl<R> fmt::Debug for Context<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("session", &self.session)
            .field("index", &self.turn.index)
            .field("now", &self.turn.now)
            .field("version", &self.turn.version)
            .finish_non_exhaustive()
    }
}

/// The application of one entry: what stays the same over all calls of user code in it.
pub(crate) struct Turn {
    pub(crate) index: u64,
    pub(crate) now: Timestamp,
    pub(crate) version: u32,
    pub(crate) rng: ContextRng,
    /// Whether the user's code is left out: the operators skip this entry.
    pub(crate) skip: bool,
    /// What the running call has sent.
    pub(crate) sent: Vec<ServerAction>,
    /// A server request that could not be encoded.
    pub(crate) failure: Option<EncodeError>,
}

impl Turn {
    pub(crate) fn new(index: u64, now: Timestamp, version: u32, seed: [u8; 32], skip: bool) -> Self {
        Self { index, now, version, rng: ContextRng::new(seed, index), skip, sent: Vec::new(), failure: None }
    }
}

/// The handlers' generator: ChaCha8, its key the replicated seed, its stream the entry's index.
///
/// It is a [`rand_core`] generator, so what `rand` offers works on it:
///
/// ```
/// # use session_runtime::{Context, Never};
/// use session_runtime::rand_core::Rng;
///
/// fn roll(cx: &mut Context<'_, Never>) -> u64 {
///     cx.rng().next_u64() % 6 + 1
/// }
/// ```
pub struct ContextRng {
    seed: [u8; 32],
    stream: u64,
    /// Made at the first draw: most handlers draw nothing.
    generator: Option<Box<ChaCha8Rng>>,
}

impl ContextRng {
    pub(crate) fn new(seed: [u8; 32], stream: u64) -> Self {
        Self { seed, stream, generator: None }
    }

    fn generator(&mut self) -> &mut ChaCha8Rng {
        self.generator.get_or_insert_with(|| {
            let mut generator = ChaCha8Rng::from_seed(self.seed);
            generator.set_stream(self.stream);
            Box::new(generator)
        })
    }
}

impl fmt::Debug for ContextRng {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextRng").finish_non_exhaustive()
    }
}

impl TryRng for ContextRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.generator().next_u32())
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.generator().next_u64())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.generator().fill_bytes(bytes);
        Ok(())
    }
}

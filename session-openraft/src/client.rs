//! A client in the node's own process.

use crate::error::{NodeError, Stopped};
use crate::half::{Answered, End, GivingUp, Half, Taken};
use crate::service::Service;
use bytes::Bytes;
use session_runtime::client::{Call, ClientError, ClientMessage};
use session_runtime::{RequestId, Response, ServerRequestId, SessionId, StateMachine, Wire, codec};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A client of a [`Node`](crate::Node), with a session of its own: what a generated typed client calls.
///
/// Share it behind a reference or an [`Arc`]: calls may run at the same time. Dropping it closes the session, unless
/// its bytes were stored ([`save`](Self::save), [`saving`](Self::saving)); then the session waits to be
/// [resumed](crate::Node::resume).
///
/// ```
/// # use session_openraft::{Config, Node};
/// # use session_runtime::{State, state_machine};
/// # #[state_machine]
/// # pub enum CounterCommand { Add { amount: u64 } }
/// # #[derive(Default, State)]
/// # pub struct Counter { value: u64 }
/// # #[state_machine(command = CounterCommand)]
/// # impl Counter {
/// #     fn add(&mut self, amount: u64) -> u64 { self.value = self.value.saturating_add(amount); self.value }
/// #     #[query] fn value(&self) -> u64 { self.value }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let node = Node::<Counter>::open_with(Config::in_memory()).await?;
/// let client = node.client().await?;
/// let counter = CounterClient::new(&client);
/// assert_eq!(counter.add(5).await?, 5);
/// // Linearizable: it sees every answer that was given before it was asked.
/// assert_eq!(counter.value().await?, 5);
/// // Whatever this node has applied, without asking whether it still leads.
/// assert_eq!(CounterClient::new(client.stale()).value().await?, 5);
/// # Ok(())
/// # }
/// ```
pub struct NodeClient<M: StateMachine + Send + Sync + 'static> {
    service: Arc<Service<M>>,
    half: Arc<Half>,
}

impl<M: StateMachine + Send + Sync + 'static> NodeClient<M> {
    /// Starts the client's timers, and waits until its session is open.
    pub(crate) async fn connect(service: Arc<Service<M>>, half: Half) -> Result<Self, ClientError> {
        let client = Self { service, half: Arc::new(half) };
        let Self { service, half } = &client;
        service.spawn(keep_timers(Arc::clone(service), EndsWithRuntime(Arc::clone(half))))?;
        tokio::select! {
            opened = half.opened() => opened?,
            // Also where the timers have no runtime any more.
            reason = service.has_stopped() => {
                half.end(End::Stopped(reason));
                half.opened().await?
            }
        };
        Ok(client)
    }

    /// The session, until it is closed.
    pub fn session(&self) -> Option<SessionId> {
        self.half.session()
    }

    /// The next request of the machine to this client, each once and in order; to a client that was resumed, those
    /// that were taken since its bytes were stored come again. `None` once the session is over or the node has stopped.
    pub async fn server_request(&self) -> Option<(ServerRequestId, M::ServerRequest)>
    where
        M::ServerRequest: Wire,
    {
        decoded::<M>(self.half.server_request().await?)
    }

    /// The machine's requests to this client, as a stream that ends with the session.
    pub fn server_requests(&self) -> ServerRequests<'_, M> {
        ServerRequests { client: self, next: None }
    }

    /// The same session, whose queries read what this node has applied: at once, and possibly stale.
    pub fn stale(&self) -> Stale<'_, M> {
        Stale(self)
    }

    /// The same session, with its bytes stored before each command is sent. After a crash,
    /// [`Node::resume`](crate::Node::resume) goes on with the bytes stored last, and
    /// [`recovered`](Self::recovered) tells what became of the command that was under way.
    ///
    /// The client's commands wait while `store` runs: keep it short. What it must do is to put the bytes where a crash
    /// leaves either these or the ones before. If it fails, the command is not sent, and ends with
    /// [`ClientError::Storage`]: should the bytes have been stored all the same, a client resumed from them sends it.
    pub fn saving<F>(&self, store: F) -> Saving<'_, M, F>
    where
        F: Fn(&[u8]) -> io::Result<()> + Send + Sync,
    {
        Saving { client: self, store }
    }

    /// The bytes from which this client can be resumed, with the next `reserve` request numbers reserved. Store
    /// them, then call [`saved`](Self::saved).
    pub fn save(&self, reserve: u64) -> Result<Bytes, ClientError> {
        let bytes = self.half.save(reserve).map_err(ClientError::Encode)?;
        bytes.ok_or_else(|| ClientError::NotSent("the session is over; open a new client".to_owned()))
    }

    /// The bytes of the last [`save`](Self::save) are stored.
    pub fn saved(&self) {
        self.half.saved(self.service.clock.elapsed());
    }

    /// What became of a command that was under way when the bytes were stored from which this client was resumed: an
    /// error if the node stopped before it was known. `None` when there is no other.
    ///
    /// To the bytes the last command that they were stored for is under way, also if its answer came in time.
    /// [`Response::read`] reads the answer.
    pub async fn recovered(&self) -> Option<(RequestId, Result<Response, ClientError>)> {
        self.half.recovered().await
    }

    /// Closes the session, and waits until it is closed.
    pub async fn close(self) {
        self.half.close(self.service.clock.elapsed());
        self.half.closed().await;
    }

    /// Sends a command that was taken, and waits for its answer.
    ///
    /// Every call allocates its future, so nothing is in it that is not needed while it waits.
    fn complete(&self, taken: Taken) -> impl Future<Output = Answered> + use<'_, M> {
        let Taken { request, message, answer } = taken;
        let giving_up = GivingUp::of(&self.half, request);
        let sent = if let Some(message) = message {
            // A number that never went out is neither answered nor in the log: the gate need not be asked.
            self.service.append_request(&self.half, message)
        } else {
            // It goes out as soon as the session lets it.
            self.half.timers.notify_one();
            Ok(())
        };
        async move {
            match sent {
                // What this node could not append is sent again.
                Ok(()) | Err(NodeError::NotLeader { .. }) => {}
                Err(NodeError::Encode(error)) => return Err(ClientError::Encode(error)),
                Err(error) => return Err(ClientError::Transport(error.to_string())),
            }
            let answered = answer.await;
            giving_up.has_ended();
            answered.unwrap_or_else(|_| Err(ClientError::Transport("the client was dropped".to_owned())))
        }
    }

    fn read(&self, payload: &[u8]) -> Result<Bytes, ClientError> {
        self.service.machine().query(payload).map_err(|error| ClientError::Query(error.to_string()))
    }
}

impl<M: StateMachine + Send + Sync + 'static> Call for NodeClient<M> {
    async fn command(&self, payload: Bytes) -> Result<Response, ClientError> {
        let _under_way = self.service.proposals.call();
        let now = || self.service.clock.elapsed();
        let taken = match self.half.try_submit(now(), &payload) {
            Some(taken) => taken?,
            // Few calls find the window full, and only they need room for waiting.
            None => Box::pin(self.half.submit(now, &payload)).await?,
        };
        self.complete(taken).await
    }

    async fn query(&self, payload: Bytes) -> Result<Bytes, ClientError> {
        self.half.reject_unless_running()?;
        let _under_way = self.service.proposals.call();
        self.service.read_index().await.map_err(|error| ClientError::Query(error.to_string()))?;
        self.read(&payload)
    }
}

impl<M: StateMachine + Send + Sync + 'static> Drop for NodeClient<M> {
    fn drop(&mut self) {
        if !self.half.is_saved() {
            self.half.close(self.service.clock.elapsed());
        } else if let Some(session) = self.half.session() {
            self.half.end(End::Stopped(Stopped::Shutdown));
            self.service.disconnect(session, &self.half);
        }
    }
}

/// A [`NodeClient`] whose queries may be stale: see [`NodeClient::stale`].
pub struct Stale<'a, M: StateMachine + Send + Sync + 'static>(&'a NodeClient<M>);

impl<M: StateMachine + Send + Sync + 'static> Call for Stale<'_, M> {
    fn command(&self, payload: Bytes) -> impl Future<Output = Result<Response, ClientError>> + Send {
        self.0.command(payload)
    }

    async fn query(&self, payload: Bytes) -> Result<Bytes, ClientError> {
        self.0.half.reject_unless_running()?;
        self.0.read(&payload)
    }
}

/// A [`NodeClient`] that is stored before each command: see [`NodeClient::saving`].
pub struct Saving<'a, M: StateMachine + Send + Sync + 'static, F> {
    client: &'a NodeClient<M>,
    store: F,
}

impl<M, F> Call for Saving<'_, M, F>
where
    M: StateMachine + Send + Sync + 'static,
    F: Fn(&[u8]) -> io::Result<()> + Send + Sync,
{
    async fn command(&self, payload: Bytes) -> Result<Response, ClientError> {
        let NodeClient { service, half } = self.client;
        let _under_way = service.proposals.call();
        let taken = half.submit_saved(|| service.clock.elapsed(), &payload, &self.store).await?;
        self.client.complete(taken).await
    }

    fn query(&self, payload: Bytes) -> impl Future<Output = Result<Bytes, ClientError>> + Send {
        self.client.query(payload)
    }
}

/// The machine's requests to a client: see [`NodeClient::server_requests`].
pub struct ServerRequests<'a, M: StateMachine + Send + Sync + 'static> {
    client: &'a NodeClient<M>,
    next: Option<Next<'a>>,
}

type Next<'a> = std::pin::Pin<Box<dyn Future<Output = Option<(ServerRequestId, Bytes)>> + Send + 'a>>;

impl<M> futures_core::Stream for ServerRequests<'_, M>
where
    M: StateMachine + Send + Sync + 'static,
    M::ServerRequest: Wire,
{
    type Item = (ServerRequestId, M::ServerRequest);

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        let client = self.client;
        let next = self.next.get_or_insert_with(|| Box::pin(client.half.server_request()));
        let ready = std::task::ready!(next.as_mut().poll(cx));
        self.next = None;
        std::task::Poll::Ready(ready.and_then(decoded::<M>))
    }
}

/// What an application is given. A machine of this build cannot have sent what this build cannot read, unless its type was
/// changed with requests pending.
fn decoded<M: StateMachine>(
    (request, payload): (ServerRequestId, Bytes),
) -> Option<(ServerRequestId, M::ServerRequest)>
where
    M::ServerRequest: Wire,
{
    match codec::decode(&payload) {
        Ok(decoded) => Some((request, decoded)),
        Err(error) => {
            tracing::error!(request = request.0, "a server request cannot be read by this build: {error}");
            None
        }
    }
}

/// A client for as long as its timers are kept. A task is dropped with its runtime, and then nothing comes to the client any
/// more: nobody may wait for it. The node itself ends those that it knows, and may not know this one yet.
struct EndsWithRuntime(Arc<Half>);

impl Drop for EndsWithRuntime {
    fn drop(&mut self) {
        self.0.end(End::Stopped(Stopped::Shutdown));
    }
}

/// Sends what a client's timers say: keep-alives, acknowledgments, and again what has no answer.
async fn keep_timers<M: StateMachine + Send + Sync + 'static>(
    service: Arc<Service<M>>,
    ends: EndsWithRuntime,
) {
    let half = &ends.0;
    while !half.is_over() {
        let (messages, wake) = half.poll(service.clock.elapsed());
        for message in messages {
            let introduces = matches!(message, ClientMessage::Continue { .. });
            let (service, half) = (Arc::clone(&service), Arc::clone(half));
            // Each in a task of its own: one that waits for the log must not hold up the others.
            let served = tokio::spawn(async move {
                if let Err(error) = service.serve(&half, message).await {
                    tracing::debug!("a client's message was not served: {error}");
                }
            });
            // But nothing goes before the one that introduces the client: its answer would reach nobody.
            if introduces {
                served.await.ok();
            }
        }
        let wait = wake.map_or(Duration::from_hours(1), |wake| wake.saturating_sub(service.clock.elapsed()));
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = half.timers.notified() => {}
            reason = service.has_stopped() => half.end(End::Stopped(reason)),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::counter::{Counter, CounterClient};
    use crate::{Config, Node};
    use session_runtime::client::ClientConfig;
    use std::time::Duration;

    #[tokio::test]
    async fn a_command_whose_answer_is_lost_is_sent_again_in_time() {
        let config = ClientConfig {
            resend_after: Duration::from_millis(200),
            keep_alive: Duration::from_hours(1),
            ..ClientConfig::default()
        };
        let node = Node::<Counter>::open_with(Config::in_memory()).await.unwrap();
        let client = node.client_with(config).await.unwrap();
        let counter = CounterClient::new(&client);
        assert_eq!(counter.add(1).await, Ok(1));
        // Nothing is due for an hour, and its timers sleep.
        tokio::time::sleep(Duration::from_millis(300)).await;
        // The answer is brought to nobody.
        client.service.forget(client.session().unwrap());
        let answer = tokio::time::timeout(Duration::from_secs(10), counter.add(2)).await;
        assert_eq!(answer.expect("it is sent again"), Ok(3));
        node.shutdown().await;
    }
}

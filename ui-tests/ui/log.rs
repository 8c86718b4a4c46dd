//! What the cases do with their machines: a log of one replica, and a client that writes to it.
#![allow(dead_code, unreachable_pub, clippy::all, clippy::pedantic)]

use session_runtime::client::{Call, ClientError};
use session_runtime::{
    Bytes, Command, Query, RaftAction, Response, ServerAction, SessionStateMachine, StateMachine, Timestamp,
    Wire, codec,
};
use std::future::Future;

/// Applies a command as the log's next entry, and reads its answer.
pub fn ask<M: StateMachine, T: Wire>(log: &mut SessionStateMachine<M>, command: &M::Command) -> T {
    codec::decode(&append(log, command.encode()).payload).unwrap()
}

fn append<M: StateMachine>(log: &mut SessionStateMachine<M>, payload: Bytes) -> Response {
    let index = log.last_applied() + 1;
    let out = log.apply(index, Timestamp(index), RaftAction::InternalCommand { payload }).unwrap();
    match out.into_iter().next() {
        Some(ServerAction::InternalResponse { result: Ok(response) }) => response,
        other => panic!("no answer: {other:?}"),
    }
}

/// The answer to a query.
pub fn read<M: StateMachine, T: Wire>(log: &SessionStateMachine<M>, query: &M::Query) -> T {
    codec::decode(&log.query(&query.encode()).unwrap()).unwrap()
}

/// The machine, restored from its snapshot.
pub fn again<M: StateMachine>(log: &SessionStateMachine<M>) -> SessionStateMachine<M> {
    SessionStateMachine::restore(&log.snapshot().unwrap()).unwrap()
}

/// A machine in this process as a transport.
pub struct Local<M>(std::sync::Mutex<SessionStateMachine<M>>);

impl<M: StateMachine> Local<M> {
    pub fn new(machine: M) -> Self {
        Self(std::sync::Mutex::new(SessionStateMachine::new(machine)))
    }
}

impl<M: StateMachine + Send> Call for Local<M> {
    async fn command(&self, payload: Bytes) -> Result<Response, ClientError> {
        Ok(append(&mut self.0.lock().unwrap(), payload))
    }

    async fn query(&self, payload: Bytes) -> Result<Bytes, ClientError> {
        Ok(self.0.lock().unwrap().query(&payload).unwrap())
    }
}

/// Runs a future that never waits.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut cx) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("nothing here waits"),
    }
}

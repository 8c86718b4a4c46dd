//! What the methods of a generated client do.

use crate::{
    action::Status,
    client::{Call, ClientError},
    codec,
    machine::{Command, Query},
    wire::{Never, Wire},
};
use serde::de::DeserializeOwned;

/// Sends a command and reads its answer. The command is encoded before anything waits, so the future holds
/// bytes only.
pub fn call_command<C: Call, K: Command, T: Wire, E: Wire>(
    call: &C,
    command: K,
) -> impl Future<Output = Result<T, ClientError<E>>> + Send {
    let payload = command.try_encode();
    drop(command);
    async move {
        let payload = payload.map_err(ClientError::Encode)?;
        let response = call.command(payload).await.map_err(ClientError::retyped)?;
        match response.status {
            Status::Accepted => codec::decode(&response.payload).map_err(ClientError::Decode),
            Status::Rejected => match codec::decode(&response.payload) {
                Ok(rejection) => Err(ClientError::Rejected(rejection)),
                Err(error) => Err(ClientError::Decode(error)),
            },
        }
    }
}

/// Sends a query and reads its answer.
pub fn call_query<C: Call, Q: Query, T: DeserializeOwned>(
    call: &C,
    query: Q,
) -> impl Future<Output = Result<T, ClientError<Never>>> + Send {
    let payload = query.try_encode();
    drop(query);
    async move {
        let payload = payload.map_err(ClientError::Encode)?;
        let answer = call.query(payload).await?;
        codec::decode(&answer).map_err(ClientError::Decode)
    }
}

//! What the methods of a generated client do.

use crate::{
    action::Status,
    client::{Answer, Call, ClientError},
    codec::{self, EncodeError},
    machine::Query,
    wire::Wire,
};
use bytes::Bytes;
use serde::de::DeserializeOwned;

/// Sends an encoded command and reads its answer. It is encoded before anything waits, so the future holds bytes
/// only. There is none where the arguments of a method are not the command's, and such a machine does not build.
pub fn call_command<C: Call, T: Wire, E: Wire>(
    call: &C,
    payload: Option<Result<Bytes, EncodeError>>,
) -> Answer<'_, T, E> {
    let payload =
        payload.unwrap_or_else(|| Err(EncodeError::Unsupported("not the command's fields".to_owned())));
    Box::pin(async move {
        let payload = payload.map_err(ClientError::Encode)?;
        let response = call.command(payload).await.map_err(ClientError::retyped)?;
        match response.status {
            Status::Accepted => codec::decode(&response.payload).map_err(ClientError::Decode),
            Status::Rejected => match codec::decode(&response.payload) {
                Ok(rejection) => Err(ClientError::Rejected(rejection)),
                Err(error) => Err(ClientError::Decode(error)),
            },
        }
    })
}

/// Sends a query and reads its answer.
pub fn call_query<C: Call, Q: Query, T: DeserializeOwned>(call: &C, query: Q) -> Answer<'_, T> {
    let payload = query.try_encode();
    drop(query);
    Box::pin(async move {
        let payload = payload.map_err(ClientError::Encode)?;
        let answer = call.query(payload).await?;
        codec::decode(&answer).map_err(ClientError::Decode)
    })
}

//! What the methods of a generated client do.

use crate::{
    client::{Answer, Call, QueryAnswer},
    codec::EncodeError,
    machine::Query,
};
use bytes::Bytes;

/// Sends a command. It is encoded before anything waits, so the future holds bytes only. There is no payload where
/// the arguments of a method are not the command's, and such a machine does not build.
pub fn call_command<R>(call: &impl Call, payload: Option<Result<Bytes, EncodeError>>) -> Answer<'_, R> {
    let payload =
        payload.unwrap_or_else(|| Err(EncodeError::Unsupported("not the command's fields".to_owned())));
    Answer::new(call, payload)
}

/// Sends a query.
#[allow(clippy::needless_pass_by_value)] // a method of the client makes it for this call
pub fn call_query<T>(call: &impl Call, query: impl Query) -> QueryAnswer<'_, T> {
    QueryAnswer::new(call, query.try_encode())
}

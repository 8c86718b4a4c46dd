//! User code may panic all the same. Here a panic becomes a message.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls `code`, and returns the message of its panic if it panics.
///
/// Whatever `code` was changing may be half-changed then: the caller must not use it any further.
pub(crate) fn guard<T>(code: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|panic| message(panic.as_ref()))
}

fn message(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic without a message".to_owned()
    }
}

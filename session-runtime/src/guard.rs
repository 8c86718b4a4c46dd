//! User code may panic all the same. Here a panic becomes a message.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls `code`, and returns the message of its panic if it panics.
///
/// Whatever `code` was changing may be half-changed then: the caller must not use it any further.
pub(crate) fn guard<T>(code: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|panic| {
        let message = message(panic.as_ref());
        // What a panic carries may itself panic when it is dropped. What that one carries is never dropped.
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            std::mem::forget(again);
        }
        message
    })
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

#[cfg(test)]
mod tests {
    use super::guard;
    use std::panic::panic_any;

    #[test]
    fn any_panic_becomes_a_message() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("once more, when it is dropped");
            }
        }
        assert_eq!(guard(|| 5), Ok(5));
        assert_eq!(guard(|| panic!("why")), Err::<(), _>("why".to_owned()));
        assert_eq!(guard(|| panic!("why {}", 5)), Err::<(), _>("why 5".to_owned()));
        assert_eq!(guard(|| panic_any(Bomb)), Err::<(), _>("a panic without a message".to_owned()));
    }
}

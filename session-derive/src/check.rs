//! What must hold beyond the syntax, and can be told from the tokens.

mod body;
mod serde;

pub(crate) use body::check_body;
pub(crate) use serde::{check_serde, without_refused_serde};

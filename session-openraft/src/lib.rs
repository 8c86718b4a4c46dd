//! Session machines on openraft: one voter in the user's own process, with a durable log.

#[doc(hidden)]
pub mod store;
mod types;

#[doc(hidden)]
pub use types::{Applied, Proposal, TypeConfig};

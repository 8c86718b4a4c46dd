//! Session machines on openraft: one voter in the user's own process, with a durable log.

mod client;
mod clock;
mod config;
mod error;
mod half;
mod keeper;
mod metrics;
mod network;
mod node;
mod replica;
mod service;
#[doc(hidden)]
pub mod store;
mod types;

pub use client::{NodeClient, Saving, ServerRequests, Stale};
pub use config::Config;
pub use error::{NodeError, OpenError, Stopped};
pub use node::{Node, Status};
pub use store::StoreError;
#[doc(hidden)]
pub use types::{Applied, Proposal, TypeConfig};

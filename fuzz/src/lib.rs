//! The targets are those of `session-runtime/tests/fuzz_inputs.rs`, which runs them over fixed inputs.

#[path = "../../session-runtime/tests/model/mod.rs"]
mod model;
#[path = "../../session-runtime/tests/support/mod.rs"]
mod support;
#[path = "../../session-runtime/tests/targets/mod.rs"]
pub mod targets;

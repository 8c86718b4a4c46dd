//! The bank, with all its tests.

#[path = "../../../session-runtime/tests/bank.rs"]
mod bank;

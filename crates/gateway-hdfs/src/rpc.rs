//! Hadoop RPC: connections that carry calls.

/// Answers to calls that must not be done twice.
#[derive(Default)]
pub struct Retries {}

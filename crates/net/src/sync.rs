//! The locks and counts of `outbound`. The crate `interleavings` compiles that file with a checker's instead (record 0439).

pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize};
pub(crate) use std::sync::{Mutex, MutexGuard};

//! The locks and flags of `mailbox` and `here`. The crate `interleavings` compiles those files with a checker's instead (record 0439).

pub(crate) use std::sync::atomic::AtomicBool;
pub(crate) use std::sync::{Mutex, MutexGuard};

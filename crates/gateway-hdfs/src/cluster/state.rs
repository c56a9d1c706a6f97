//! What is known of the store as a whole.

use std::sync::atomic::AtomicBool;

/// What is known of the store as a whole.
#[derive(Default)]
pub struct Cluster {
    /// Whether changes are refused because an administrator wants it so. Forgotten when the gateway ends.
    pub(super) safe_mode: AtomicBool,
}

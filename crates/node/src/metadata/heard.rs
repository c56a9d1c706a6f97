//! What other keepers sent to the metadata's store and it has not taken yet. Their links send as fast as they can, so this has bounds, as its mailbox has not.

use crate::sync::Mutex;
use meta::KeeperMessage;
use std::sync::PoisonError;

/// Messages and bytes that wait at the most. A page and a group are a few MiB; a store that is behind by more than that is told again anyway.
const MESSAGES_MAX: usize = 256;
const BYTES_MAX: usize = 16 << 20;

/// Messages in the order in which they came.
#[derive(Default)]
pub(super) struct Heard {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    messages: Vec<KeeperMessage>,
    bytes: usize,
}

impl Heard {
    /// Puts one of so many bytes to the others. False: there is no room, and it is dropped.
    pub(super) fn put(&self, message: KeeperMessage, bytes: usize) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.messages.len() >= MESSAGES_MAX || waiting.bytes.saturating_add(bytes) > BYTES_MAX {
            return false;
        }
        waiting.bytes += bytes;
        waiting.messages.push(message);
        true
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).messages.is_empty()
    }

    /// Moves everything into `taken`, which must be empty; the two vectors swap.
    pub(super) fn take(&self, taken: &mut Vec<KeeperMessage>) {
        assert!(taken.is_empty(), "what was taken before was not handled");
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut waiting.messages, taken);
        waiting.bytes = 0;
    }
}

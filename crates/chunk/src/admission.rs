//! Admission queue for large appends: only as many as keep the disk busy enter the data log, so that small appends that are latency-critical
//! overtake the rest of a stream instead of queueing behind all of it.

use crate::core::{Core, Parked, take_out};
use crate::request::Request;
use base::id::ChunkId;
use base::unit::MIB;
use std::collections::{BTreeMap, VecDeque};

/// Appends from so many bytes on are large.
pub(crate) const LARGE: usize = 256 << 10;

/// Large appends wait while so many bytes of records wait for their write, besides those in flight: the disk's next
/// four writes.
const AHEAD_MAX: usize = 4 * MIB as usize;

/// What waits, in the order in which it came.
#[derive(Default)]
pub(crate) struct Admission {
    queue: VecDeque<Parked>,
    /// Appends of each chunk in the queue: later ones of the same chunk wait behind them.
    chunks: BTreeMap<ChunkId, u32>,
}

impl Admission {
    pub fn push(&mut self, chunk: ChunkId, parked: Parked) {
        *self.chunks.entry(chunk).or_default() += 1;
        self.queue.push_back(parked);
    }

    fn pop(&mut self) -> Option<Parked> {
        let parked = self.queue.pop_front()?;
        if let Request::Append { chunk, .. } = &parked.request
            && let Some(count) = self.chunks.get_mut(chunk)
        {
            *count -= 1;
            if *count == 0 {
                self.chunks.remove(chunk);
            }
        }
        Some(parked)
    }

    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether an append to this chunk waits.
    pub fn has(&self, chunk: ChunkId) -> bool {
        self.chunks.contains_key(&chunk)
    }

    /// Takes out the appends that `leaves` names.
    pub fn take(&mut self, leaves: impl Fn(&Parked) -> bool) -> Vec<Parked> {
        let taken = take_out(&mut self.queue, leaves);
        self.chunks.clear();
        for parked in std::mem::take(&mut self.queue) {
            if let Request::Append { chunk, .. } = &parked.request {
                self.push(*chunk, parked);
            }
        }
        taken.into()
    }

    /// Gives up everything: the tickets.
    pub fn give_up(&mut self) -> Vec<u64> {
        self.chunks.clear();
        std::mem::take(&mut self.queue).into_iter().map(|parked| parked.ticket).collect()
    }
}

impl Core {
    /// Keeps an append back if it is large and much is under way or waits for room, or if it follows one that is kept. Gives
    /// it back if not.
    pub fn hold(&mut self, parked: Parked) -> Option<Parked> {
        let Request::Append { chunk, payload, .. } = &parked.request else { return Some(parked) };
        let busy =
            !self.admission.queue.is_empty() || !self.waiting.is_empty() || self.data_log.bytes_ahead >= AHEAD_MAX;
        if self.admission.chunks.contains_key(chunk) || busy && payload.len() >= LARGE {
            let chunk = *chunk;
            self.admission.push(chunk, parked);
            return None;
        }
        Some(parked)
    }

    /// Takes in what was kept, as far as the log has room for more.
    pub fn serve_held(&mut self) {
        while self.waiting.is_empty() && self.data_log.bytes_ahead < AHEAD_MAX {
            let Some(parked) = self.admission.pop() else { break };
            self.take_append(parked);
        }
    }
}

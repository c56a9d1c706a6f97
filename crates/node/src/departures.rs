//! Chunks that are leaving a device: what changes them is held back for the moment of the change, and goes to the chunk's new
//! device afterwards.

use crate::device::{Device, Item, Then};
use base::id::ChunkId;
use chunk::Request;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Chunks whose new device is remembered. Whoever is told the old one asks within seconds, or asks the metadata store again;
/// only a writer keeps a chunk for longer, and there are not so many.
const GONE_MAX: usize = 65_536;

/// The chunks that are leaving one device, and those that left it since the node started.
#[derive(Default)]
pub struct Departures {
    /// What waits until it is known where the chunk is. Bounded by the calls that connections may have unanswered.
    held: BTreeMap<ChunkId, Vec<(Request, Then)>>,
    gone: BTreeMap<ChunkId, Arc<Device>>,
    gone_order: VecDeque<ChunkId>,
}

impl Departures {
    /// From now on nothing changes the chunk here.
    pub fn hold(&mut self, chunk: ChunkId) {
        self.held.entry(chunk).or_default();
    }

    /// Gives a request back that is to be served here; holds it back, or sends it to where its chunk is now.
    pub fn route(&mut self, request: Request, then: Then) -> Option<(Request, Then)> {
        let (chunk, changes) = match &request {
            Request::Append { chunk, .. } | Request::Seal { chunk, .. } | Request::Fence { chunk, .. } => {
                (*chunk, true)
            }
            Request::Read { chunk, .. } | Request::Stat { chunk } => (*chunk, false),
            _ => return Some((request, then)),
        };
        if changes && let Some(waiting) = self.held.get_mut(&chunk) {
            waiting.push((request, then));
            return None;
        }
        let Some(device) = self.gone.get(&chunk) else { return Some((request, then)) };
        device.send(Item::Chunk { request, then });
        None
    }

    /// The chunk is on this device now, or, with none, stays here. Gives back what is to be served here.
    pub fn end(&mut self, chunk: ChunkId, device: Option<Arc<Device>>) -> Vec<(Request, Then)> {
        let waiting = self.held.remove(&chunk).unwrap_or_default();
        let Some(device) = device else { return waiting };
        for (request, then) in waiting {
            device.send(Item::Chunk { request, then });
        }
        if self.gone.insert(chunk, device).is_none() {
            self.gone_order.push_back(chunk);
        }
        if self.gone_order.len() > GONE_MAX
            && let Some(oldest) = self.gone_order.pop_front()
        {
            self.gone.remove(&oldest);
        }
        Vec::new()
    }
}

//! Chunks that are leaving a device: what changes them is held back for the moment of the change, and goes to the chunk's new
//! device afterwards.

use crate::device::{Device, Item, Then};
use base::error::{Error, ErrorKind};
use base::id::ChunkId;
use chunk::Request;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Chunks whose new device is remembered. Whoever is told the old one asks within seconds, or asks the metadata store again;
/// only a writer keeps a chunk for longer, and there are not so many.
const GONE_MAX: usize = 65_536;

/// Chunks without a byte that are remembered when they are gone: one for each writer that lost its file before its first byte.
const EMPTY_MAX: usize = 65_536;

/// The chunks that are leaving one device, and those that left it since the node started.
#[derive(Default)]
pub struct Departures {
    /// What waits until it is known where the chunk is. Bounded by the calls that connections may have unanswered.
    held: BTreeMap<ChunkId, Vec<(Request, Then)>>,
    /// Held chunks of which nobody can say for long where they are: what would wait for that is refused.
    unsure: BTreeSet<ChunkId>,
    gone: BTreeMap<ChunkId, Arc<Device>>,
    gone_order: VecDeque<ChunkId>,
    /// Chunks that were fenced before their first byte and are elsewhere, or nowhere, by now.
    empty: BTreeSet<ChunkId>,
    empty_order: VecDeque<ChunkId>,
}

impl Departures {
    /// From now on nothing changes the chunk here. `waiting`: what came before and is not begun.
    pub fn hold(&mut self, chunk: ChunkId, waiting: Vec<(Request, Then)>) {
        self.held.entry(chunk).or_default().extend(waiting);
    }

    /// Where a held chunk is cannot be said for long. It stays held, but nobody waits for it any more: gives back what is to be refused.
    pub fn unsure(&mut self, chunk: ChunkId) -> Vec<(Request, Then)> {
        let Some(waiting) = self.held.get_mut(&chunk) else { return Vec::new() };
        self.unsure.insert(chunk);
        std::mem::take(waiting)
    }

    /// Remembers the chunks that are deleted on this device, which is being emptied, and were taken from their writers before they had
    /// a byte. A first append that still comes would make one anew, for nobody.
    pub fn note_empty(&mut self, request: &Request, is_empty: impl Fn(ChunkId) -> bool) {
        let Request::Delete { chunks } = request else { return };
        for chunk in chunks.iter().copied().filter(|chunk| is_empty(*chunk)) {
            if self.empty.insert(chunk) {
                self.empty_order.push_back(chunk);
            }
            if self.empty_order.len() > EMPTY_MAX
                && let Some(oldest) = self.empty_order.pop_front()
            {
                self.empty.remove(&oldest);
            }
        }
    }

    /// Why a request is refused: it changes a chunk of which nobody can say where it is, or one that was taken from its writer and has
    /// left.
    pub fn refusal(&self, request: &Request) -> Option<Error> {
        if let Request::Append { chunk, .. } = request
            && self.empty.contains(chunk)
        {
            let text = format!("chunk {chunk} was taken from its writer, and has left this device; nothing was stored");
            return Some(Error::new(ErrorKind::Stale, text));
        }
        let chunk = changed_by(request).filter(|chunk| self.unsure.contains(chunk))?;
        let text = format!(
            "chunk {chunk} was being moved to another device when the metadata store stopped to take changes, so that nobody can say \
             where it belongs; nothing was done, and what was acknowledged is safe; start the node again that keeps the metadata"
        );
        Some(Error::new(ErrorKind::Io, text))
    }

    /// Gives a request back that is to be served here; holds it back, or sends it to where its chunk is now.
    pub fn route(&mut self, request: Request, then: Then) -> Option<(Request, Then)> {
        let (chunk, changes) = match (changed_by(&request), &request) {
            (Some(chunk), _) => (chunk, true),
            (None, Request::Read { chunk, .. } | Request::Stat { chunk }) => (*chunk, false),
            _ => return Some((request, then)),
        };
        if changes && let Some(waiting) = self.held.get_mut(&chunk) {
            waiting.push((request, then));
            return None;
        }
        let Some(device) = self.gone.get(&chunk) else { return Some((request, then)) };
        device.hand_over(Item::Chunk { request, then });
        None
    }

    /// The chunk is on this device now, or, with none, stays here. Gives back what is to be served here.
    pub fn end(&mut self, chunk: ChunkId, device: Option<Arc<Device>>) -> Vec<(Request, Then)> {
        let waiting = self.held.remove(&chunk).unwrap_or_default();
        self.unsure.remove(&chunk);
        let Some(device) = device else { return waiting };
        for (request, then) in waiting {
            device.hand_over(Item::Chunk { request, then });
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

/// The chunk that a request changes where it is.
fn changed_by(request: &Request) -> Option<ChunkId> {
    match request {
        Request::Append { chunk, .. } | Request::Seal { chunk, .. } | Request::Fence { chunk, .. } => Some(*chunk),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::Departures;
    use crate::device::Then;
    use base::error::ErrorKind;
    use base::id::{ChunkId, Generation};
    use chunk::Request;

    fn seal(chunk: u128) -> (Request, Then) {
        let (tell, _) = tokio::sync::oneshot::channel();
        (Request::Seal { chunk: ChunkId(chunk), generation: Generation(1), length: 7 }, Then::Tell(tell))
    }

    /// What changes a chunk that leaves waits until it is known where the chunk is. If that cannot be said for long nobody waits: what
    /// waited is given back to be refused, what comes is refused with words, and other chunks and reads go on. When it is known at last,
    /// the chunk is served again.
    #[test]
    fn nobody_waits_for_what_cannot_be_said() {
        let mut departures = Departures::default();
        departures.hold(ChunkId(1), Vec::new());
        let (request, then) = seal(1);
        assert!(departures.route(request, then).is_none(), "it waits");
        let (request, then) = seal(2);
        assert!(departures.refusal(&request).is_none() && departures.route(request, then).is_some());
        assert_eq!(departures.unsure(ChunkId(1)).len(), 1);
        let refusal = departures.refusal(&seal(1).0).expect("refused");
        assert_eq!(refusal.kind(), ErrorKind::Io);
        assert!(refusal.text().contains("start the node again"), "{refusal}");
        assert!(departures.refusal(&seal(2).0).is_none());
        assert!(departures.refusal(&Request::Stat { chunk: ChunkId(1) }).is_none());
        assert!(departures.unsure(ChunkId(3)).is_empty(), "nobody holds that one");
        assert!(departures.end(ChunkId(1), None).is_empty());
        let (request, then) = seal(1);
        assert!(departures.refusal(&request).is_none() && departures.route(request, then).is_some());
    }
}

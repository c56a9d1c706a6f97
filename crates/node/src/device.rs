//! A device that this node serves: the handle by which the rest of the node reaches it, and what its thread can be asked. What is
//! small may be done by whoever asks, with the write and the sync of the journal (`here`).

pub mod answer;
pub mod bags;
pub mod control;
pub mod departures;
pub mod draining;
pub mod scrub;
#[cfg(test)]
mod tests;
mod thread;

use crate::device::bags::{BagCounts, Waiter};
use crate::device::draining::Draining;
use crate::device::scrub::Scrubbed;
use crate::here::Served;
use base::checksum::BlockSums;
use base::error::{Error, ErrorKind, Result};
use base::id::{BagId, ChunkId, DeviceId, Owner, SessionId};
use base::policy::{Class, Level};
use base::unit::{Time, WallTime};
use bytes::Bytes;
use chunk::{Asking, Engine, Reply, Request, Usage};
use net::{Piece, Responder};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

pub use thread::{Start, Started, spawn};

/// How the rest of the node reaches a device.
pub struct Device {
    /// Which device.
    pub id: DeviceId,
    /// Its class.
    pub class: Class,
    /// Its directory, for people.
    pub place: String,
    /// How it moves bytes, for people.
    pub backend: &'static str,
    /// Its thread, and those who ask.
    served: Arc<Served<Item, thread::Thread>>,
    usage: Mutex<Usage>,
    scrubbed: Mutex<Option<Scrubbed>>,
    draining: Mutex<Option<Draining>>,
    /// The same as whether `draining` says anything, for those who ask for each call.
    is_draining: AtomicBool,
    /// The last of the sessions that it remembered when it was asked for them; none: the next one that asks begins anew.
    sessions_after: Mutex<Option<u64>>,
}

impl Device {
    /// Hands work to the device's thread, or does it here if it is small: at the end of the burst that this thread is in, or now.
    pub fn send(&self, item: Item) {
        if !item.is_small() {
            self.served.mailbox.send(item);
        } else if !self.served.send_in_burst(item) {
            self.served.take_turns();
        }
    }

    /// Hands work to the device's thread, small or not: for whoever holds what others wait for.
    pub fn hand_over(&self, item: Item) {
        self.served.mailbox.send(item);
    }

    /// Asks the engine and waits for its answer.
    pub async fn ask(&self, request: Request) -> Result<Reply> {
        let (tell, told) = oneshot::channel();
        self.send(Item::Chunk { request, then: Then::Tell(tell) });
        told.await.unwrap_or_else(|_| Err(gone(self.id)))
    }

    /// What it has counted of a bag, all at one moment: who leaves a bag carries counts away that must be those of no chunks left.
    pub async fn bag_counts(&self, bag: BagId) -> Result<BagCounts> {
        let (tell, told) = oneshot::channel();
        self.send(Item::BagCounts { bag, tell });
        told.await.map_err(|_| gone(self.id))
    }

    /// Asks something that the engine knows at once.
    pub async fn look<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Engine<Then>) -> T + Send + 'static,
    ) -> Result<T> {
        let (tell, told) = oneshot::channel();
        // The one who asked may be gone; then nobody misses the answer.
        self.send(Item::Look(Box::new(move |engine| drop(tell.send(question(engine))))));
        told.await.map_err(|_| gone(self.id))
    }

    /// How far it is emptied; none if it is in use.
    pub fn draining(&self) -> Option<Draining> {
        self.draining.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it is being emptied, or was.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    /// It is being emptied from now on.
    pub fn begin_draining(&self, began: WallTime) {
        let mut draining = self.draining.lock().unwrap_or_else(PoisonError::into_inner);
        draining.get_or_insert(Draining { began, ..Draining::default() });
        self.is_draining.store(true, Ordering::Release);
    }

    /// The drain came further.
    pub fn drained(&self, note: impl FnOnce(&mut Draining)) {
        if let Some(draining) = &mut *self.draining.lock().unwrap_or_else(PoisonError::into_inner) {
            note(draining);
        }
    }

    /// Sessions, by their marks, of which it remembers what they may ask again, or that hold grants or wait for chunks; at most so many,
    /// and others the next time.
    pub async fn sessions(&self, limit: usize) -> Result<Vec<u64>> {
        let after = *self.sessions_after.lock().unwrap_or_else(PoisonError::into_inner);
        let (tell, told) = oneshot::channel();
        self.send(Item::Sessions { after, limit, tell });
        let found: Vec<u64> = told.await.map_err(|_| gone(self.id))?;
        let last = found.last().copied().filter(|_| found.len() >= limit);
        *self.sessions_after.lock().unwrap_or_else(PoisonError::into_inner) = last;
        Ok(found)
    }

    /// Begins a scrub, so many bytes a second, unless one is under way.
    pub async fn scrub(&self, rate: u64) -> Result<()> {
        let (tell, told) = oneshot::channel();
        self.send(Item::Scrub { rate, tell });
        told.await.map_err(|_| gone(self.id))
    }

    /// The last scrub since the node started, under way or over.
    pub fn scrubbed(&self) -> Option<Scrubbed> {
        self.scrubbed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How full it is, as of at most a moment ago.
    pub fn usage(&self) -> Usage {
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn gone(id: DeviceId) -> Error {
    Error::new(
        ErrorKind::Io,
        format!("device {id} is no longer served; what was acknowledged is safe; start the node again"),
    )
}

/// What a device's thread can be asked.
pub enum Item {
    /// Something for the engine, and what to do with the answer.
    Chunk { request: Request, then: Then },
    /// A chunk for a bag.
    Push { push: Pushed, bytes: Bytes, sums: BlockSums, respond: Responder },
    /// A chunk from a bag.
    Pull { bag: BagId, waiter: Waiter },
    /// Chunks of a bag are done with.
    Acknowledge { bag: BagId, pass: (u32, bool), grants: Vec<(ChunkId, u64)>, by: Consumer, respond: Responder },
    /// Chunks of a bag are still being worked on.
    Renew { bag: BagId, grants: Vec<(ChunkId, u64)>, consumer: SessionId, respond: Responder },
    /// Asks which sessions (`Device::sessions`) of higher marks than this there are.
    Sessions { after: Option<u64>, limit: usize, tell: oneshot::Sender<Vec<u64>> },
    /// These sessions, by their marks, are over: what is remembered of them may be forgotten, and others may have what they hold.
    SessionsOver(Vec<u64>),
    /// A bag is sealed, or dropped: those who wait for its chunks must hear of it.
    BagChanged { bag: BagId },
    /// A bag began a new pass.
    BagRewound { bag: BagId },
    /// Asks for the counts of a bag.
    BagCounts { bag: BagId, tell: oneshot::Sender<BagCounts> },
    /// From now on nothing changes this chunk; what would, waits.
    Hold { chunk: ChunkId },
    /// Nobody can say for long where a chunk that is held is: what waits for it is refused.
    Unsure { chunk: ChunkId },
    /// The chunk that was held is on this device now, or stays; what waited goes on there.
    Departed { chunk: ChunkId, to: Option<Arc<Device>> },
    /// Something that the engine knows at once.
    Look(Question),
    /// Begin to scrub, so many bytes a second, unless a scrub is under way. Says that it begins.
    Scrub { rate: u64, tell: oneshot::Sender<()> },
    /// End when nothing is under way.
    Stop,
}

// A call that comes over the network has as much counted for it at the least, for as long as it is in the queue.
const _: () = assert!(size_of::<Item>() as u64 <= base::limit::call_memory(0));

/// Largest payload that an asker's thread takes in: what is longer is worth a wake-up, and others wait for that thread, too.
const SMALL_MAX: usize = 16 << 10;

impl Item {
    /// Whether it is done with little of the processor, and a write and a sync of the journal or less.
    fn is_small(&self) -> bool {
        let Item::Chunk { request, .. } = self else { return false };
        matches!(
            request,
            Request::Append { level: Level::Written | Level::Synced, owner: Owner::Group(_), seal: false, cell: 0, payload, .. }
                if payload.len() <= SMALL_MAX
        )
    }
}

/// Which chunk is pushed to which bag.
#[derive(Clone, Copy, Debug)]
pub struct Pushed {
    /// The bag.
    pub bag: BagId,
    /// The chunk.
    pub chunk: ChunkId,
    /// The lowest number of a push of its stream that may be asked again.
    pub floor: u64,
}

/// Who acknowledges.
#[derive(Clone, Copy, Debug)]
pub struct Consumer {
    /// Whose session it is.
    pub session: SessionId,
    /// Which of its messages says so; none: it is not asked again.
    pub asking: Option<Asking>,
}

/// A look at an engine, which tells whoever asks by itself.
pub type Question = Box<dyn FnOnce(&Engine<Then>) + Send>;

/// What happens with an engine's answer.
pub enum Then {
    /// It goes over the wire.
    Answer(Responder),
    /// The same, with a share of the memory budget that its bytes occupy.
    AnswerBytes(Responder, Piece),
    /// The node itself wants it.
    Tell(oneshot::Sender<Result<Reply>>),
    /// A push is synced: the chunk may be pulled from now on.
    Pushed { bag: BagId, chunk: ChunkId, length: u64, respond: Responder },
    /// A granted chunk was read.
    Pulled { bag: BagId, pass: u32, chunk: ChunkId, length: u64, waiter: Waiter, piece: Piece, reading: Reading },
    /// A piece of the scrub under way.
    Scrubbed,
    /// Acknowledgements are durable: those asked of the engine, and the answers so far for all.
    Acknowledged { bag: BagId, pass: u32, asked: Vec<(usize, ChunkId)>, results: Vec<Result<()>>, respond: Responder },
}

/// How busy a device was with pulls when it began to read for one: consumers size their windows by it.
pub struct Reading {
    began: Time,
    /// Pulls whose chunks were being read, this one too.
    under_way: u32,
}

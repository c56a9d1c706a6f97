//! Pushing chunks into a bag: many on their way, each to the emptier of two devices.

use crate::bag::Bag;
use base::error::{Error, ErrorKind, Result};
use base::limit::{BAG_CHUNK_MAX, FULL_WAIT};
use base::unit::{MIB, Time, show_bytes};
use bytes::Bytes;
use net::Payload;
use net::message::bag::{Push, PushAnswer};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How chunks are pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerOptions {
    /// Bytes that may be on their way; one chunk always may.
    pub window: usize,
}

impl Default for ProducerOptions {
    /// Sixteen chunks of 4 MiB: enough for several devices to have the next ones waiting while they sync.
    fn default() -> ProducerOptions {
        ProducerOptions { window: 64 * MIB as usize }
    }
}

/// Pushes chunks into one bag. Clones share the window and the error.
///
/// Errors stay: after one, everything fails with it. Dropped without `flush`, chunks on their way may or may not arrive.
#[derive(Clone)]
pub struct Producer {
    shared: Arc<Shared>,
}

struct Shared {
    bag: Bag,
    window: Arc<Semaphore>,
    permits: u32,
    failed: OnceLock<Error>,
    load: Mutex<Load>,
}

/// What is known about the devices.
struct Load {
    members: Vec<Member>,
    /// When a device first said that it is full, with no push gone well since.
    full_since: Option<Time>,
}

/// How a chunk goes on after an answer.
enum Next {
    Done,
    TryAgain,
    Fail(Error),
}

/// One device, as far as this producer knows.
#[derive(Clone, Copy, Default)]
struct Member {
    /// Chunks waiting there, as its last answer said.
    waiting: u64,
    /// Bytes of ours that it has not answered for.
    on_their_way: u64,
}

/// The first wait for room on full devices; each is twice the one before, up to the last.
const FULL_PAUSE_FIRST: Duration = Duration::from_millis(10);
const FULL_PAUSE_LAST: Duration = Duration::from_millis(500);

/// Chunks said to wait on a device that is full: it is asked again after it has lost some hundred draws.
const AVOIDED: u64 = 1 << 20;

impl Producer {
    pub(crate) fn new(bag: Bag, options: ProducerOptions) -> Producer {
        let permits = options.window.clamp(1, u32::MAX as usize / 2);
        let load = Load { members: vec![Member::default(); bag.members.len()], full_since: None };
        let shared = Shared {
            bag,
            window: Arc::new(Semaphore::new(permits)),
            permits: permits as u32,
            failed: OnceLock::new(),
            load: Mutex::new(load),
        };
        Producer { shared: Arc::new(shared) }
    }

    /// Pushes these bytes as one chunk, of at most `base::limit::BAG_CHUNK_MAX`. Returns when the window has room for
    /// them; that they are synced is told by `flush`.
    pub async fn push(&self, bytes: Bytes) -> Result<()> {
        self.check()?;
        if bytes.is_empty() || bytes.len() as u64 > BAG_CHUNK_MAX {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "a chunk of {} cannot be pushed; it was not; a chunk has 1 byte to {}",
                    show_bytes(bytes.len() as u64),
                    show_bytes(BAG_CHUNK_MAX)
                ),
            ));
        }
        let count = u32::try_from(bytes.len()).unwrap_or(u32::MAX).min(self.shared.permits);
        let permits = match self.shared.window.clone().acquire_many_owned(count).await {
            Ok(permits) => permits,
            Err(_) => unreachable!("nobody closes a producer's window"),
        };
        self.check()?;
        tokio::spawn(self.shared.clone().deliver(bytes, permits));
        Ok(())
    }

    /// Waits until every chunk pushed so far is synced on its device.
    pub async fn flush(&self) -> Result<()> {
        match self.shared.window.acquire_many(self.shared.permits).await {
            Ok(all) => drop(all),
            Err(_) => unreachable!("nobody closes a producer's window"),
        }
        self.check()
    }

    fn check(&self) -> Result<()> {
        self.shared.failed.get().cloned().map_or(Ok(()), Err)
    }
}

impl Shared {
    /// Brings one chunk to a device, however long that takes while there is progress.
    async fn deliver(self: Arc<Self>, bytes: Bytes, permits: OwnedSemaphorePermit) {
        let payload = Payload::new(bytes);
        let mut pause = FULL_PAUSE_FIRST;
        let client = &self.bag.client;
        while self.failed.get().is_none() {
            let place = self.choose(payload.length() as u64);
            // A new name for every device: a device that is full has refused, so the chunk is not there.
            let chunk = client.session.random.wide().into();
            let ask = Push { bag: self.bag.number, device: self.bag.members[place], chunk };
            let result = client.call_at(ask.device, &ask, payload.clone()).await.map(|(answer, _)| answer);
            match self.note(place, payload.length() as u64, result) {
                Next::Done => break,
                Next::TryAgain => tokio::time::sleep(pause).await,
                Next::Fail(error) => {
                    let _later = self.failed.set(error.during(format!("push to bag {}", self.bag.name)));
                    break;
                }
            }
            pause = (pause * 2).min(FULL_PAUSE_LAST);
        }
        drop(permits);
    }

    /// Learns from an answer, and says how its chunk goes on.
    fn note(&self, place: usize, length: u64, result: Result<PushAnswer>) -> Next {
        let now = self.bag.client.session.clock.now();
        let mut load = self.load();
        let member = &mut load.members[place];
        member.on_their_way = member.on_their_way.saturating_sub(length);
        let error = match result {
            Ok(answer) => {
                member.waiting = answer.waiting;
                load.full_since = None;
                return Next::Done;
            }
            Err(error) => error,
        };
        member.waiting = AVOIDED;
        let since = *load.full_since.get_or_insert(now);
        if error.kind() == ErrorKind::Full && now.since(since) < FULL_WAIT { Next::TryAgain } else { Next::Fail(error) }
    }

    /// The better of two devices drawn at random; counts the bytes as on their way there.
    fn choose(&self, length: u64) -> usize {
        let random = &self.bag.client.session.random;
        let mut load = self.load();
        let count = load.members.len() as u64;
        let first = random.below(count) as usize;
        let mut place = first;
        if count > 1 {
            // The second is another one: drawn from those that remain.
            let second = ((first as u64 + 1 + random.below(count - 1)) % count) as usize;
            let work = |member: &Member| member.waiting.saturating_mul(length).saturating_add(member.on_their_way);
            let mut other = second;
            if work(&load.members[second]) < work(&load.members[first]) {
                (place, other) = (second, first);
            }
            // What was heard long ago is believed less each time it decides, so that every device is asked again some day.
            let member = &mut load.members[other];
            member.waiting -= member.waiting.div_ceil(8);
        }
        let member = &mut load.members[place];
        member.on_their_way = member.on_their_way.saturating_add(length);
        place
    }

    fn load(&self) -> MutexGuard<'_, Load> {
        self.load.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

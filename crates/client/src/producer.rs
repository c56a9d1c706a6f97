//! Pushing chunks into a bag: many on their way, each to the emptier of two devices that answer.

use crate::bag::{Bag, LOOK_EVERY};
use base::error::{Error, ErrorKind, Result};
use base::limit::{BAG_CHUNK_MAX, FULL_WAIT, UNANSWERED_MAX};
use base::unit::{MIB, Time, show_bytes};
use bytes::Bytes;
use net::Payload;
use net::message::Id;
use net::message::bag::{Info, Push, PushAnswer};
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
    /// When it was last asked which devices there are.
    looked: Time,
}

/// How a chunk goes on after an answer.
enum Next {
    Done,
    /// To whichever device is better by then, after a pause.
    TryAgain,
    /// To another device: this one has left, so nobody will find the chunk there.
    Elsewhere,
    Fail(Error),
}

/// One device, as far as this producer knows.
#[derive(Clone, Copy)]
struct Member {
    device: Id,
    /// Chunks waiting there, as its last answer said.
    waiting: u64,
    /// Bytes of ours that it has not answered for.
    on_their_way: u64,
    /// Since when it has answered nothing, though there was something to answer.
    quiet_since: Option<Time>,
}

/// The first wait for room on full devices; each is twice the one before, up to the last.
const FULL_PAUSE_FIRST: Duration = Duration::from_millis(10);
const FULL_PAUSE_LAST: Duration = Duration::from_millis(500);

/// A push without an answer is asked again after a pause, each twice the one before, up to the last. Each of them has waited
/// `CALL_SILENCE_MAX` for the answer already.
const AGAIN_PAUSE_FIRST: Duration = Duration::from_millis(100);
const AGAIN_PAUSE_LAST: Duration = Duration::from_secs(2);

/// A device that has not answered for so long gets no new chunks while others answer.
const QUIET_MAX: Duration = Duration::from_secs(2);

/// Chunks said to wait on a device that is full: it is asked again after it has lost some hundred draws.
const AVOIDED: u64 = 1 << 20;

impl Producer {
    pub(crate) fn new(bag: Bag, options: ProducerOptions) -> Producer {
        let permits = options.window.clamp(1, u32::MAX as usize / 2);
        let members = bag.members.iter().copied().map(Member::new).collect();
        let load = Load { members, full_since: None, looked: bag.client.session.clock.now() };
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
        let length = payload.length() as u64;
        let mut pause = FULL_PAUSE_FIRST;
        while self.failed.get().is_none() {
            self.look_if_due();
            let device = self.choose(length);
            let result = self.push(device, &payload).await;
            match self.note(device, length, result) {
                Next::Done => break,
                Next::TryAgain => tokio::time::sleep(pause).await,
                Next::Elsewhere => (),
                Next::Fail(error) => {
                    let _later = self.failed.set(error.during(format!("push to bag {}", self.bag.name)));
                    break;
                }
            }
            pause = (pause * 2).min(FULL_PAUSE_LAST);
        }
        drop(permits);
    }

    /// Pushes a chunk to this device. Without an answer it may be there: it is asked again under the same name, at this device
    /// and no other, until the device has left.
    async fn push(&self, device: Id, payload: &Payload) -> Result<PushAnswer> {
        let client = &self.bag.client;
        let clock = &client.session.clock;
        // A new name for every device: one that is full has refused, so the chunk is not there.
        let ask = Push { bag: self.bag.number, device, chunk: client.session.random.wide().into() };
        let (mut pause, mut since) = (AGAIN_PAUSE_FIRST, None);
        loop {
            let error = match client.call_at(device, &ask, payload.clone()).await {
                Ok((answer, _)) => return Ok(answer),
                Err(error) => error,
            };
            let since = *since.get_or_insert_with(|| clock.now());
            let unanswered = error.kind() == ErrorKind::Unreachable;
            let patient = unanswered && client.session.routes.may_come_back(device, &error);
            if !patient || clock.now().since(since) >= UNANSWERED_MAX || self.failed.get().is_some() {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(AGAIN_PAUSE_LAST);
        }
    }

    /// Asks in the background which devices there are, if that was not done for a while.
    fn look_if_due(self: &Arc<Self>) {
        let now = self.bag.client.session.clock.now();
        let mut load = self.load();
        if now.since(load.looked) >= LOOK_EVERY {
            load.looked = now;
            drop(load);
            let shared = self.clone();
            tokio::spawn(async move {
                // If it fails, so do pushes, and say why.
                if let Ok(info) = shared.bag.look().await {
                    shared.load().learn(&info);
                }
            });
        }
    }

    /// Learns from an answer, and says how its chunk goes on.
    fn note(&self, device: Id, length: u64, result: Result<PushAnswer>) -> Next {
        let session = &self.bag.client.session;
        let now = session.clock.now();
        let mut load = self.load();
        let mut left = Member::new(device);
        let member = load.members.iter_mut().find(|member| member.device == device).unwrap_or(&mut left);
        member.on_their_way = member.on_their_way.saturating_sub(length);
        member.quiet_since = (member.on_their_way > 0).then_some(now);
        let error = match result {
            Ok(answer) => {
                member.waiting = answer.waiting;
                load.full_since = None;
                return Next::Done;
            }
            Err(error) => error,
        };
        member.waiting = AVOIDED;
        match error.kind() {
            ErrorKind::Full => {
                let since = *load.full_since.get_or_insert(now);
                if now.since(since) < FULL_WAIT { Next::TryAgain } else { Next::Fail(error) }
            }
            // The node answered for none of its devices: no other is asked while the view may still name this one.
            ErrorKind::NotFound if !session.routes.has(device) => {
                load.members.retain(|member| member.device != device);
                if load.members.is_empty() { Next::Fail(error) } else { Next::Elsewhere }
            }
            _ => Next::Fail(error),
        }
    }

    /// The better of two devices drawn at random; counts the bytes as on their way there.
    ///
    /// Drawn are those that answer and have not twice their share of the window, so that one that falls silent takes no more than
    /// that with it.
    fn choose(&self, length: u64) -> Id {
        let random = &self.bag.client.session.random;
        let now = self.bag.client.session.clock.now();
        let mut load = self.load();
        let share = (2 * u64::from(self.permits) / load.members.len() as u64).max(length);
        let answers = |member: &Member| member.quiet_since.is_none_or(|since| now.since(since) < QUIET_MAX);
        let has_room = |member: &Member| member.on_their_way.saturating_add(length) <= share;
        let wanted: [&dyn Fn(&Member) -> bool; 3] =
            [&|member| answers(member) && has_room(member), &|member| answers(member), &|_| true];
        let mut drawn: Vec<usize> = Vec::new();
        for wanted in wanted {
            drawn.extend((0..load.members.len()).filter(|place| wanted(&load.members[*place])));
            if !drawn.is_empty() {
                break;
            }
        }
        let count = drawn.len() as u64;
        let first = random.below(count) as usize;
        let mut place = drawn[first];
        if count > 1 {
            // The second is another one: drawn from those that remain.
            let second = drawn[((first as u64 + 1 + random.below(count - 1)) % count) as usize];
            let work = |member: &Member| member.waiting.saturating_mul(length).saturating_add(member.on_their_way);
            let mut other = second;
            if work(&load.members[second]) < work(&load.members[place]) {
                (place, other) = (second, place);
            }
            // What was heard long ago is believed less each time it decides, so that every device is asked again some day.
            let member = &mut load.members[other];
            member.waiting -= member.waiting.div_ceil(8);
        }
        let member = &mut load.members[place];
        member.on_their_way = member.on_their_way.saturating_add(length);
        member.quiet_since.get_or_insert(now);
        member.device
    }

    fn load(&self) -> MutexGuard<'_, Load> {
        self.load.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Load {
    /// Devices that have joined take part, those that have left do not.
    fn learn(&mut self, info: &Info) {
        if info.members.is_empty() {
            return;
        }
        self.members.retain(|member| info.members.contains(&member.device));
        for device in &info.members {
            if self.members.iter().all(|member| member.device != *device) {
                self.members.push(Member::new(*device));
            }
        }
    }
}

impl Member {
    fn new(device: Id) -> Member {
        Member { device, waiting: 0, on_their_way: 0, quiet_since: None }
    }
}

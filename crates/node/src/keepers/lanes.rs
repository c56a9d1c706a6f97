//! How a keeper of the metadata speaks to the others: what it tells each of them goes by three lanes, so that nothing short waits behind what is long.
//!
//! All of it may be lost, and is said again by those who need it. So whatever finds no way at once is dropped, and nothing is sent twice.

use super::seating::{Seat, Seating};
use crate::metadata::Carrier;
use crate::troubles::Troubles;
use base::checksum::{combine, crc32c};
use base::error::{Error, ErrorKind, Result};
use base::id::NodeId;
use base::limit::CALL_SILENCE_MAX;
use base::net::{Boxed, Net};
use base::unit::{KIB, MIB};
use base::watched::Watched;
use bytes::Bytes;
use meta::{KeeperId, KeeperMessage};
use net::message::keeper::Step;
use net::{Link, LinkSettings, Payload};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// A keeper that takes no connection for so long, or answers no beat, is away: it is connected to anew. An election takes as long.
const PATIENCE: Duration = Duration::from_secs(1);

/// Between half and all of this passes between two connections to a keeper.
const PAUSE: Duration = Duration::from_millis(200);

/// As many bytes of messages go at once; one that is longer goes alone.
const AT_ONCE: usize = MIB as usize;

/// What goes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// What keeps a leader and makes one, and what is answered: a few hundred bytes each, or a key of 4 KiB behind which a page is asked for.
    Beats,
    /// What a leader tells of its log, up to 4 MiB each, in its order.
    Entries,
    /// Pages of the tree, 1 MiB and a value each.
    Pages,
}

/// What a lane holds and sends at the most.
struct Bounds {
    messages: usize,
    bytes: usize,
    /// The oldest goes where there is no room, and not the one that comes.
    oldest_goes: bool,
    /// Sent and not answered.
    unanswered: usize,
    /// So much silence ends a connection on which answers are waited for. A question whether the other one is there is read behind what was sent
    /// before: several MiB of entries, on slow ways.
    silence: Duration,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Beats, Kind::Entries, Kind::Pages];

    fn of(message: &KeeperMessage) -> Kind {
        match message {
            KeeperMessage::Log(message) if message.is_append() => Kind::Entries,
            KeeperMessage::Copy(message) if message.is_page() => Kind::Pages,
            KeeperMessage::Log(_) | KeeperMessage::Copy(_) => Kind::Beats,
        }
    }

    fn bounds(self) -> Bounds {
        let silence = CALL_SILENCE_MAX;
        match self {
            Kind::Beats => {
                let bytes = 64 * 4 * KIB as usize;
                Bounds { messages: 64, bytes, oldest_goes: true, unanswered: 2, silence: PATIENCE }
            }
            Kind::Entries => {
                Bounds { messages: 64, bytes: 8 * MIB as usize, oldest_goes: false, unanswered: 4, silence }
            }
            // No page is longer than the largest frame.
            Kind::Pages => Bounds { messages: 4, bytes: usize::MAX, oldest_goes: false, unanswered: 1, silence },
        }
    }
}

/// The ways from one keeper to the others. They end when this is dropped.
pub struct Lanes {
    others: Vec<Other>,
    troubles: Arc<OnceLock<Troubles>>,
}

/// Another keeper.
struct Other {
    number: KeeperId,
    node: NodeId,
    /// Where its node listens; none: nothing is sent any more.
    address: Watched<Option<String>>,
    /// In the order of the kinds.
    queues: [Arc<Queue>; 3],
}

impl Lanes {
    /// Those of the keeper that has this number of these seats. Its node greets with `links`. Must be called within a tokio runtime.
    pub fn new(network: Arc<dyn Net>, links: LinkSettings, seating: &Seating, own: KeeperId) -> Arc<Lanes> {
        let Some(itself) = seating.of_number(own) else { unreachable!("a keeper has a seat") };
        let others = seating.seats.iter().filter(|seat| seat.number != own);
        let troubles = Arc::default();
        let others = others.map(|seat| Other::new((&network, &links, &troubles), seating, itself, seat)).collect();
        Arc::new(Lanes { others, troubles })
    }

    /// What another keeper will not hear is told here from now on. Whoever is named first counts.
    pub fn tell_to(&self, troubles: Troubles) {
        let _named = self.troubles.set(troubles);
    }

    /// The node of a keeper listens at another address from now on.
    pub fn moved(&self, node: NodeId, address: &str) {
        for other in self.others.iter().filter(|other| other.node == node) {
            other.address.change(|now| now.iter_mut().for_each(|now| address.clone_into(now)));
        }
    }

    /// Nothing is sent any more.
    pub fn close(&self) {
        self.others.iter().for_each(|other| other.address.set(None));
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.close();
    }
}

impl Carrier for Lanes {
    fn send(&self, to: KeeperId, message: KeeperMessage) {
        if let Some(other) = self.others.iter().find(|other| other.number == to) {
            other.queues[Kind::of(&message) as usize].put(message);
        }
    }
}

impl Other {
    fn new(
        (network, links, troubles): (&Arc<dyn Net>, &LinkSettings, &Arc<OnceLock<Troubles>>),
        seating: &Seating,
        itself: &Seat,
        seat: &Seat,
    ) -> Other {
        let (address, back) = (Watched::new(Some(seat.address.clone())), Watched::new(0));
        let queues = Kind::ALL.map(|kind| {
            let queue = Arc::new(Queue::new(kind.bounds()));
            let links = LinkSettings {
                connections: 1,
                silence_max: queue.bounds.silence,
                // Whoever else answers at that address is nobody to be told.
                meant: Some((seat.node, 0)),
                once: true,
                ..links.clone()
            };
            let says = Step {
                store: seating.store.0.into(),
                from: itself.number.0,
                to: seat.number.0,
                draw: itself.draw.into(),
                parts: Vec::new(),
            };
            let (queue_of, network, troubles) = (queue.clone(), network.clone(), troubles.clone());
            let lane = Lane { kind, queue: queue_of, network, links, says, back: back.clone(), troubles };
            tokio::spawn(lane.run(address.clone()));
            queue
        });
        Other { number: seat.number, node: seat.node, address, queues }
    }
}

/// What waits to be sent.
struct Queue {
    bounds: Bounds,
    waiting: Mutex<Waiting>,
    come: Notify,
}

#[derive(Default)]
struct Waiting {
    messages: VecDeque<KeeperMessage>,
    bytes: usize,
    closed: bool,
}

impl Queue {
    fn new(bounds: Bounds) -> Queue {
        Queue { bounds, waiting: Mutex::default(), come: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts one behind the others, if there is room for it.
    fn put(&self, message: KeeperMessage) {
        let length = message.length();
        let mut waiting = self.lock();
        let is_full = |waiting: &Waiting| {
            let bytes = waiting.bytes.saturating_add(length);
            waiting.messages.len() >= self.bounds.messages || bytes > self.bounds.bytes
        };
        while self.bounds.oldest_goes && is_full(&waiting) && waiting.pop().is_some() {}
        if waiting.closed || is_full(&waiting) {
            return;
        }
        waiting.bytes += length;
        waiting.messages.push_back(message);
        drop(waiting);
        self.come.notify_one();
    }

    /// Comes when something waits.
    async fn come(&self) {
        while self.lock().messages.is_empty() {
            self.come.notified().await;
        }
    }

    /// The first of those that wait, as many as go at once.
    fn take(&self) -> Vec<KeeperMessage> {
        let mut waiting = self.lock();
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while let Some(next) = waiting.messages.front() {
            bytes += next.length();
            if bytes > AT_ONCE && !taken.is_empty() {
                break;
            }
            taken.extend(waiting.pop());
        }
        taken
    }

    /// Drops all that waits, and what comes, too, if it is `closed`.
    fn clear(&self, closed: bool) {
        *self.lock() = Waiting { closed, ..Waiting::default() };
    }
}

impl Waiting {
    fn pop(&mut self) -> Option<KeeperMessage> {
        let first = self.messages.pop_front()?;
        self.bytes -= first.length();
        Some(first)
    }
}

/// One way to one keeper.
struct Lane {
    kind: Kind,
    queue: Arc<Queue>,
    network: Arc<dyn Net>,
    links: LinkSettings,
    /// What each question begins with.
    says: Step,
    /// How often the keeper heard beats again after it did not.
    back: Watched<u64>,
    troubles: Arc<OnceLock<Troubles>>,
}

impl Lane {
    /// Sends what comes to this address, which may change, until there is none.
    async fn run(self, address: Watched<Option<String>>) {
        while let Some(now) = address.get() {
            let speaks_to = now.clone();
            tokio::select! {
                biased;
                () = address.until(move |other| other.as_ref() != Some(&now)) => (),
                () = self.speak(&speaks_to) => (),
            }
        }
        self.queue.clear(true);
    }

    /// Connects when something is to be sent, again and again.
    async fn speak(&self, address: &str) {
        let mut was_away = false;
        loop {
            self.queue.come().await;
            let connecting = Link::connect(self.network.clone(), address, self.links.clone());
            match timeout(PATIENCE, connecting).await {
                Ok(Ok(link)) => {
                    if was_away && self.kind == Kind::Beats {
                        self.back.change(|times| *times += 1);
                    }
                    self.converse(address, &link).await;
                    link.close();
                }
                // It would be old by the time there is a way.
                Ok(Err(error)) => {
                    self.tell(address, &error);
                    self.queue.clear(false);
                }
                Err(_) => self.queue.clear(false),
            }
            was_away = true;
            let half = PAUSE / 2;
            sleep(half + Duration::from_nanos(self.links.random.below(half.as_nanos() as u64 + 1))).await;
        }
    }

    /// Sends what comes until the other one is silent, or the connection breaks.
    async fn converse(&self, address: &str, link: &Link) {
        let (mut asked, mut back) = (Asked::default(), self.back.get());
        let now = || self.links.clock.now();
        let mut heard = now();
        loop {
            tokio::select! {
                biased;
                answer = asked.next() => match answer {
                    Err(error) if error.kind() == ErrorKind::Unreachable => return,
                    // It is there, if it refused it, too.
                    answer => {
                        answer.err().iter().for_each(|error| self.tell(address, error));
                        heard = now();
                    }
                },
                // After a cut the kernel tries old connections as seldom as the cut was long. New ones are there at once, as that of the beats.
                () = self.back.until(move |times| *times != back), if self.kind != Kind::Beats => {
                    back = self.back.get();
                    if !asked.0.is_empty() && now().since(heard) >= PATIENCE {
                        return;
                    }
                }
                () = self.queue.come(), if asked.0.len() < self.queue.bounds.unanswered => {
                    if asked.0.is_empty() {
                        heard = now();
                    }
                    asked.0.push(self.ask(link.clone(), self.queue.take()));
                }
            }
        }
    }

    /// The other one does not want this. That one is away, or has not begun yet, is said elsewhere.
    fn tell(&self, address: &str, error: &Error) {
        if let Some(troubles) = self.troubles.get()
            && !matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Busy)
        {
            let text = "another keeper of the metadata does not hear this one";
            troubles.tell("keepers", text, &[("at", &address), ("error", error)]);
        }
    }

    /// Says these. They are encoded when that is polled first, and not by whoever has them sent.
    fn ask(&self, link: Link, messages: Vec<KeeperMessage>) -> Boxed<'static, Result<()>> {
        let says = self.says.clone();
        Box::pin(async move {
            let parts: Vec<Bytes> = messages.iter().filter_map(KeeperMessage::bytes).map(Bytes::from).collect();
            drop(messages);
            let step = Step { parts: parts.iter().map(|part| part.len() as u32).collect(), ..says };
            let crc = parts.iter().fold(0, |crc, part| combine(crc, crc32c(part), part.len() as u64));
            link.call(&step, Payload::with_crc(parts, crc)).await.map(drop)
        })
    }
}

/// Questions that were not answered yet. They are polled in their order, so that they leave in it.
#[derive(Default)]
struct Asked(Vec<Boxed<'static, Result<()>>>);

impl Asked {
    /// The next answer; none comes if nothing was asked.
    async fn next(&mut self) -> Result<()> {
        poll_fn(|context| {
            for at in 0..self.0.len() {
                if let Poll::Ready(answer) = self.0[at].as_mut().poll(context) {
                    drop(self.0.remove(at));
                    return Poll::Ready(answer);
                }
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests;

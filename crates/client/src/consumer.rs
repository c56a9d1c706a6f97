//! Pulling chunks out of a bag: batch sampling over its devices, with several pulls open at once.

use crate::bag::Bag;
use crate::held::{Acknowledged, Chunk, Keeper, Key};
use base::error::{Error, ErrorKind, Result};
use base::id::ChunkId;
use net::message::Id;
use net::message::bag::{Pull, Pulled};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How chunks are pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerOptions {
    /// Pulls open at once, chunks that came and were not handed out included; at least 1.
    pub window: usize,
    /// Wait for chunks to come until the bag ends. If not, the consumer ends when every device had nothing once in a row.
    pub wait: bool,
}

impl Default for ConsumerOptions {
    /// Six chunks of 4 MiB cover 10 Gbit/s at 20 ms, and keep six devices at work. On one disk beside the consumer's own two
    /// processors six were 3 % faster than four, and eight no better than six.
    fn default() -> ConsumerOptions {
        ConsumerOptions { window: 6, wait: true }
    }
}

/// Pulls chunks out of one bag.
///
/// Dropped, chunks that came and were not handed out are left to their grants' end; those that were handed out can still
/// be acknowledged.
pub struct Consumer {
    bag: Bag,
    options: ConsumerOptions,
    keeper: Arc<Keeper>,
    members: Vec<Member>,
    /// Places in `members`, in the random order in which they are asked next; drawn anew when empty.
    deck: Vec<usize>,
    pulls: JoinSet<Answered>,
}

/// One device, as far as this consumer knows.
struct Member {
    device: Id,
    /// Everything on it is acknowledged and nothing will come.
    ended: bool,
    /// It had nothing when it was last asked.
    nothing: bool,
    /// Pulls open.
    open: usize,
}

/// How one pull ended, and which member it asked.
struct Answered {
    place: usize,
    result: Result<Came>,
}

enum Came {
    Nothing,
    Ended,
    /// A chunk, and how many more wait there.
    Chunk(Chunk, u64),
}

/// So many acknowledgements go with a pull; fewer wait for more. Each message of them is a synced write of the device, which
/// holds up its reads: at 600 chunks a second these are 37 syncs.
const COMPANY: usize = 16;

/// So long a pull waits on a device that had nothing, if each can have one open. Short beside `CALL_SILENCE_MAX`.
const WAIT_LONG: Duration = Duration::from_millis(1000);

/// The same if there are more devices than pulls: then each must come round.
const WAIT_SHORT: Duration = Duration::from_millis(50);

/// Between two looks at a bag whose members are sealed and which is not.
const SEALING_PAUSE: Duration = Duration::from_millis(100);

impl Consumer {
    pub(crate) fn new(bag: Bag, options: ConsumerOptions) -> Consumer {
        let keeper = Keeper::start(bag.client.clone(), bag.number);
        let members = bag.members.iter().copied().map(Member::new).collect();
        let options = ConsumerOptions { window: options.window.max(1), ..options };
        Consumer { bag, options, keeper, members, deck: Vec::new(), pulls: JoinSet::new() }
    }

    /// The next chunk; none at the end: when the bag is sealed and everything in it is acknowledged, or, without `wait`,
    /// when every device had nothing once in a row.
    ///
    /// A chunk that this program itself holds unacknowledged keeps the bag from ending, so with `wait` it must not wait
    /// for the end with one in its hands. May be given up while it waits: nothing is lost. An error ends nothing: ask again.
    pub async fn pull(&mut self) -> Result<Option<Chunk>> {
        loop {
            self.keep_window_full();
            let Some(done) = self.pulls.join_next().await else {
                if self.finished().await? {
                    return Ok(None);
                }
                continue;
            };
            let answered = match done {
                Ok(answered) => answered,
                Err(error) => {
                    let text =
                        format!("pulling from bag {} was cut off: {error}; no chunk is lost; ask again", self.bag.name);
                    return Err(Error::new(ErrorKind::Io, text));
                }
            };
            let member = &mut self.members[answered.place];
            member.open -= 1;
            match answered.result? {
                Came::Nothing => member.nothing = true,
                Came::Ended => member.ended = true,
                Came::Chunk(chunk, waiting) => {
                    // In a row means: by all devices, with no chunk between.
                    self.members.iter_mut().for_each(|member| member.nothing &= self.options.wait);
                    self.members[answered.place].nothing = self.options.wait && waiting == 0;
                    return Ok(Some(chunk));
                }
            }
        }
    }

    /// Sends all acknowledgements now, waits until they are durable or refused, and gives all results since the last time.
    pub async fn flush(&mut self) -> Acknowledged {
        self.keeper.ledger.flush().await
    }

    /// The results of acknowledgements that came in since somebody last took them. Does not wait.
    pub fn take_results(&mut self) -> Acknowledged {
        self.keeper.ledger.take_results()
    }

    /// Opens pulls until the window is full or nobody is left to ask.
    fn keep_window_full(&mut self) {
        while self.pulls.len() < self.options.window {
            let Some(place) = self.draw() else { return };
            let member = &mut self.members[place];
            member.open += 1;
            let wait = match (member.nothing && self.options.wait, self.members.len() <= self.options.window) {
                (false, _) => Duration::ZERO,
                (true, true) => WAIT_LONG,
                (true, false) => WAIT_SHORT,
            };
            self.start_pull(place, wait);
        }
    }

    /// The member to ask next.
    ///
    /// One that had nothing gets one waiting pull at most, and only every other pull of the window may be such a one while
    /// others have chunks: so a chunk never waits because everybody listens at empty devices.
    fn draw(&mut self) -> Option<usize> {
        let waiting = self.members.iter().filter(|member| member.nothing && member.open > 0).count();
        let some_have = self.members.iter().any(|member| !member.ended && !member.nothing);
        let may_wait = self.options.wait && (!some_have || waiting < self.options.window / 2);
        for _ in 0..2 {
            while let Some(place) = self.deck.pop() {
                let member = &self.members[place];
                if !member.ended && (!member.nothing || (may_wait && member.open == 0)) {
                    return Some(place);
                }
            }
            self.shuffle();
        }
        None
    }

    fn shuffle(&mut self) {
        let random = &self.bag.client.session.random;
        self.deck = (0..self.members.len()).collect();
        for last in (1..self.deck.len()).rev() {
            let other = random.below(last as u64 + 1) as usize;
            self.deck.swap(last, other);
        }
    }

    fn start_pull(&mut self, place: usize, wait: Duration) {
        let client = self.bag.client.clone();
        let keeper = self.keeper.clone();
        let device = self.members[place].device;
        let (bag, grant, wait_ms) = (self.bag.number, client.session.random.next(), wait.as_millis() as u32);
        // Asked again under the same grant, the node gives the same chunk.
        let ask = move |unchecked| Pull { bag, device, grant, wait_ms, unchecked };
        // A pull that waits may wait for these very acknowledgements: the bag ends with the last of them.
        keeper.ledger.send_queued(device.value(), if wait.is_zero() { COMPANY } else { 1 });
        self.pulls.spawn(async move {
            let result = client.fetch(device, ask).await.and_then(|(answer, payload)| {
                match Pulled::try_from(answer.pulled) {
                    Ok(Pulled::Nothing) => Ok(Came::Nothing),
                    Ok(Pulled::Ended) => Ok(Came::Ended),
                    Ok(Pulled::Chunk) => {
                        let key = Key { member: device.value(), grant, chunk: ChunkId(answer.chunk.value()) };
                        keeper.ledger.hold(key, Duration::from_millis(u64::from(answer.grant_ms)));
                        let chunk = keeper.chunk(key, answer.pass, payload.into_bytes());
                        Ok(Came::Chunk(chunk, answer.waiting))
                    }
                    Err(_) => Err(Error::new(
                        ErrorKind::Protocol,
                        "the node's answer to a pull is none that this program knows; no chunk is lost; use one version of client and node",
                    )),
                }
            });
            Answered { place, result }
        });
    }

    /// Called when nobody is left to ask: whether this is the end.
    async fn finished(&mut self) -> Result<bool> {
        if !self.members.iter().all(|member| member.ended) {
            // Without `wait`: every device had nothing. The next pull begins anew.
            self.members.iter_mut().for_each(|member| member.nothing = false);
            return Ok(true);
        }
        // The end is when every member of a sealed bag has ended; there may be more members than when we came.
        let info = self.bag.stat().await?;
        let known = self.members.len();
        for device in info.members {
            if self.members.iter().all(|member| member.device != device) {
                self.members.push(Member::new(device));
            }
        }
        if self.members.len() > known {
            return Ok(false);
        }
        // The members are sealed one after another, then the bag; until that is recorded its members are not final.
        if !info.sealed && self.options.wait {
            tokio::time::sleep(SEALING_PAUSE).await;
            return Ok(false);
        }
        Ok(true)
    }
}

impl Member {
    fn new(device: Id) -> Member {
        Member { device, ended: false, nothing: false, open: 0 }
    }
}

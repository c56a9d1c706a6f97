//! Pulling chunks out of a bag: batch sampling over its devices, with several pulls open at once.

use crate::bag::{Bag, LOOK_EVERY, Scope, follow};
use crate::leased_chunks::{Acknowledged, Chunk, Keeper, Key};
use crate::locality::{SIDES, Side, Sides};
use crate::pace::{self, Pace};
use base::error::{Error, ErrorKind, Result};
use base::id::ChunkId;
use base::limit::UNANSWERED_MAX;
use base::policy::Compression;
use base::unit::Time;
use net::Payload;
use net::message::Id;
use net::message::bag::{Info, Pull, PullAnswer, Pulled};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinHandle, JoinSet};

/// How chunks are pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerOptions {
    /// Pulls open at once, at least 1; none: as many as measured times of service and of the way call for, within 128 MiB.
    pub window: Option<usize>,
    /// Wait for chunks to come until the bag ends. If not, the consumer ends when every device had nothing once in a row.
    pub wait: bool,
    /// Where chunks are taken from. For one of a node, what is said here of all devices is said of that node's.
    pub scope: Scope,
}

impl Default for ConsumerOptions {
    fn default() -> ConsumerOptions {
        ConsumerOptions { window: None, wait: true, scope: Scope::Cluster }
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
    /// The latest pass that anybody told of. What a device says that is still in an older one does not count.
    pass: u32,
    /// The bag was sealed when somebody last looked.
    sealed: bool,
    pace: Pace,
    /// How fast chunks come from each side.
    sides: Sides,
    /// The devices of each side in the random order in which they are asked next; drawn anew when empty.
    decks: [Vec<Id>; 2],
    pulls: JoinSet<Answered>,
    /// Asks which devices there are.
    looking: Option<JoinHandle<Result<Info>>>,
    /// When that was last begun.
    looked: Time,
}

/// One device, as far as this consumer knows.
struct Member {
    device: Id,
    side: Side,
    /// Everything on it is acknowledged and nothing will come.
    ended: bool,
    /// It had nothing when it was last asked.
    nothing: bool,
    /// Pulls open.
    open: usize,
    /// It cannot be reached.
    away: Option<Away>,
}

/// Since when and why a device cannot be reached, and when it is asked again.
struct Away {
    since: Time,
    error: Error,
    again: Time,
}

/// How one pull ended, and which device it asked.
struct Answered {
    device: Id,
    /// It was to wait for a chunk, so how long it took says nothing.
    waited: bool,
    /// In which pass the bag was there.
    result: Result<(u32, Came)>,
}

enum Came {
    Nothing,
    Ended,
    /// A chunk, how many more wait there, from when to when that took, and how long it was on the device.
    Chunk {
        chunk: Chunk,
        waiting: u64,
        began: Time,
        ended: Time,
        service: Duration,
        under_way: u32,
    },
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

/// A device that was not told of a pass is asked again after this long.
const BEHIND_PAUSE: Duration = Duration::from_millis(100);

/// A device that could not be reached is asked again after this long.
const AWAY_PAUSE: Duration = Duration::from_secs(1);

impl Consumer {
    pub(crate) fn new(bag: Bag, options: ConsumerOptions) -> Consumer {
        let keeper = Keeper::start(&bag);
        let (pass, sealed) = (bag.pass, bag.sealed);
        let members = bag.within(options.scope, &bag.members);
        let members = members.into_iter().map(|device| Member::new(device, bag.side_of(device))).collect();
        let looked = bag.client.session.clock.now();
        let (pace, sides, decks, pulls) = (Pace::default(), Sides::default(), Default::default(), JoinSet::new());
        Consumer { bag, options, keeper, members, pass, sealed, pace, sides, decks, pulls, looking: None, looked }
    }

    /// The next chunk; none at the end: when the bag is sealed and everything in it is acknowledged, or, without `wait`,
    /// when every device had nothing once in a row. Within a node's scope this is said of what is on that node.
    ///
    /// A chunk that this program itself holds unacknowledged keeps the bag from ending, so with `wait` it must not wait
    /// for the end with one in its hands. May be given up while it waits: nothing is lost. An error ends nothing: ask again.
    /// A device that cannot be reached is passed over while others have chunks; then it is waited for,
    /// `base::limit::UNANSWERED_MAX` at most, and then it is an error, never the end.
    pub async fn pull(&mut self) -> Result<Option<Chunk>> {
        loop {
            self.look_if_due();
            self.keep_window_full();
            if self.pulls.is_empty() {
                if self.finished().await? {
                    return Ok(None);
                }
                continue;
            }
            let done = tokio::select! {
                biased;
                Some(done) = self.pulls.join_next() => done,
                Some(looked) = looked(&mut self.looking) => {
                    self.looking = None;
                    // If it fails, so do pulls, and say why.
                    if let Ok(Ok(info)) = looked {
                        self.learn(&info);
                    }
                    continue;
                }
            };
            let answered = match done {
                Ok(answered) => answered,
                Err(error) => {
                    let text =
                        format!("pulling from bag {} was cut off: {error}; no chunk is lost; ask again", self.bag.name);
                    return Err(Error::new(ErrorKind::Io, text));
                }
            };
            if let Some(chunk) = self.came(answered)? {
                return Ok(Some(chunk));
            }
        }
    }

    /// Learns from the answer to a pull. A chunk, if it was one.
    fn came(&mut self, Answered { device, waited, result }: Answered) -> Result<Option<Chunk>> {
        let routes = &self.bag.client.session.routes;
        let now = self.bag.client.session.clock.now();
        let place = self.members.iter().position(|member| member.device == device);
        // One that has left the bag since: what it gave is good.
        let mut left = Member::new(device, Side::Far);
        let member = place.map_or(&mut left, |place| &mut self.members[place]);
        member.open = member.open.saturating_sub(1);
        let came = match result {
            Ok(came) => came,
            // One that is nowhere may have left the bag, too: that is soon known.
            Err(error) if routes.may_come_back(device, &error) => {
                let since = member.away.take().map_or(now, |away| away.since);
                // What it has now is not known: said to have nothing, by another pull just before, it would not be asked again.
                member.nothing = false;
                member.away = Some(Away { since, error, again: now.after(AWAY_PAUSE) });
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let (pass, came) = came;
        if pass < self.pass {
            self.behind(device, pass);
            return Ok(None);
        }
        self.reach(pass, self.sealed);
        let member = place.map_or(&mut left, |place| &mut self.members[place]);
        member.away = None;
        match came {
            Came::Nothing => member.nothing = true,
            Came::Ended => member.ended = true,
            Came::Chunk { chunk, waiting, began, ended, service, under_way } => {
                let bytes = chunk.bytes.len();
                self.pace.came(&pace::Came { began, ended, waited, service, under_way, bytes });
                if !waited {
                    self.sides.done(member.side, began, ended, chunk.bytes.len() as u64);
                }
                let nothing = self.options.wait && waiting == 0;
                // In a row means: by all devices, with no chunk between.
                self.members.iter_mut().for_each(|member| member.nothing &= self.options.wait);
                if let Some(place) = place {
                    self.members[place].nothing = nothing;
                }
                return Ok(Some(chunk));
            }
        }
        Ok(None)
    }

    /// The bag is in this pass, and sealed or not. What devices said to have ended before says nothing of a later pass; nor of a bag that
    /// was not sealed: a device may have taken a seal, lost it with its power before it was durable, and taken chunks after that.
    fn reach(&mut self, pass: u32, sealed: bool) {
        if pass > self.pass || sealed && !self.sealed {
            self.members.iter_mut().for_each(|member| member.ended = false);
        }
        (self.pass, self.sealed) = (self.pass.max(pass), self.sealed || sealed);
    }

    /// A device was not told of the pass, because whoever began it was cut short, or it lost that with its power: what it gave is of a
    /// pass that is over, and is not used. It is told, and asked again.
    fn behind(&mut self, device: Id, pass: u32) {
        let now = self.bag.client.session.clock.now();
        let text = format!(
            "device {:032x} has bag {} in pass {pass}, and is to be told that it is in {}; no chunk is lost; ask again",
            device.value(),
            self.bag.name,
            self.pass
        );
        let error = Error::new(ErrorKind::Unreachable, text);
        for member in self.members.iter_mut().filter(|member| member.device == device) {
            let since = member.away.take().map_or(now, |away| away.since);
            member.nothing = false;
            member.away = Some(Away { since, error: error.clone(), again: now.after(BEHIND_PAUSE) });
        }
        self.start_look(true);
    }

    /// Sends all acknowledgements now, waits until they are durable or refused, and gives all results since the last time.
    pub async fn flush(&mut self) -> Acknowledged {
        self.keeper.ledger.flush().await
    }

    /// The results of acknowledgements that came in since somebody last took them. Does not wait.
    pub fn take_results(&mut self) -> Acknowledged {
        self.keeper.ledger.take_results()
    }

    /// Asks in the background which devices there are, if that was not done for a while.
    fn look_if_due(&mut self) {
        let now = self.bag.client.session.clock.now();
        if now.since(self.looked) >= LOOK_EVERY {
            self.start_look(false);
        }
    }

    /// `tells`: devices that do not know of the present pass are told.
    fn start_look(&mut self, tells: bool) {
        if self.looking.is_none() {
            self.looked = self.bag.client.session.clock.now();
            let bag = self.bag.clone();
            self.looking = Some(tokio::spawn(async move { bag.look(tells).await }));
        }
    }

    /// Devices that have joined are asked, those that have left are not.
    fn learn(&mut self, info: &Info) {
        // A bag has devices for as long as it exists; a scope may have none any more.
        if info.members.is_empty() {
            return;
        }
        let (bag, present) = (&self.bag, self.bag.within(self.options.scope, &info.members));
        let side = |device| bag.side_of(device);
        follow(&mut self.members, &present, |member| member.device, |device| Member::new(device, side(device)));
        self.members.iter_mut().for_each(|member| member.side = side(member.device));
        self.reach(info.pass, info.sealed);
    }

    fn window(&self) -> usize {
        self.options.window.unwrap_or_else(|| self.pace.window(self.members.len())).max(1)
    }

    /// Opens pulls until the window is full or nobody is left to ask.
    fn keep_window_full(&mut self) {
        let window = self.window();
        while self.pulls.len() < window {
            let Some(place) = self.draw(window) else { return };
            let member = &mut self.members[place];
            member.open += 1;
            let (device, wait) = (member.device, member.nothing && self.options.wait);
            let wait = match (wait, self.members.len() <= window) {
                (false, _) => Duration::ZERO,
                (true, true) => WAIT_LONG,
                (true, false) => WAIT_SHORT,
            };
            self.start_pull(device, wait);
        }
    }

    /// Where in `members` the one is that is asked next.
    ///
    /// The side comes first whose next chunk is expected first. On it all are asked before one is asked again, and none has more than
    /// its share of the window open. One that had nothing gets one waiting pull at most, and only every other pull of the window may
    /// be such a one while others have chunks: so a chunk never waits because everybody listens at empty devices. One that cannot be
    /// reached has one pull open from time to time.
    fn draw(&mut self, window: usize) -> Option<usize> {
        let now = self.bag.client.session.clock.now();
        let gives = |member: &&Member| !member.ended && !member.nothing && member.away.is_none();
        let waiting = self.members.iter().filter(|member| member.nothing && member.open > 0).count();
        let giving = SIDES.map(|side| self.members.iter().filter(gives).filter(|member| member.side == side).count());
        let may_wait = self.options.wait && (giving == [0, 0] || waiting < window / 2);
        let open = SIDES.map(|side| {
            let open = self.members.iter().filter(|member| member.side == side).map(|member| member.open);
            open.sum::<usize>() as u64
        });
        for side in self.sides.first_done(now, open, 1) {
            let part = self.sides.part(window as u64, side, giving) as usize;
            let share = part.div_ceil(giving[side as usize].max(1));
            for _ in 0..2 {
                while let Some(device) = self.decks[side as usize].pop() {
                    let Some(place) = self.members.iter().position(|member| member.device == device) else { continue };
                    let member = &self.members[place];
                    let is_due = member.away.as_ref().is_none_or(|away| member.open == 0 && away.again <= now);
                    let may_give = !member.nothing || (may_wait && member.open == 0);
                    if !member.ended && is_due && may_give && member.open < share {
                        return Some(place);
                    }
                }
                self.shuffle(side);
            }
        }
        None
    }

    fn shuffle(&mut self, side: Side) {
        let random = &self.bag.client.session.random;
        let its = self.members.iter().filter(|member| member.side == side);
        let mut deck: Vec<Id> = its.map(|member| member.device).collect();
        for last in (1..deck.len()).rev() {
            let other = random.below(last as u64 + 1) as usize;
            deck.swap(last, other);
        }
        self.decks[side as usize] = deck;
    }

    fn start_pull(&mut self, device: Id, wait: Duration) {
        let source = self.bag.clone();
        let client = source.client.clone();
        let keeper = self.keeper.clone();
        let (bag, grant, wait_ms) = (self.bag.number, client.session.random.next(), wait.as_millis() as u32);
        // Asked again under the same grant, the node gives the same chunk.
        let ask = move |unchecked| Pull { bag, device, grant, wait_ms, unchecked };
        // A pull that waits may wait for these very acknowledgements: the bag ends with the last of them.
        keeper.ledger.send_queued(device.value(), if wait.is_zero() { COMPANY } else { 1 });
        let waited = !wait.is_zero();
        self.pulls.spawn(async move {
            let began = client.session.clock.now();
            let fetched = client.fetch(device, ask).await;
            let time = (began, client.session.clock.now());
            let result = match fetched {
                Ok((answer, payload)) => taken(&source, &keeper, (device, grant), answer, payload, time).await,
                Err(error) => Err(error),
            };
            Answered { device, waited, result }
        });
    }

    /// Called when no pull is open, for nobody is left to ask: whether this is the end.
    async fn finished(&mut self) -> Result<bool> {
        let now = self.bag.client.session.clock.now();
        if let Some(away) = self.members.iter().filter(|member| !member.ended).find_map(|member| member.away.as_ref()) {
            if now.since(away.since) >= UNANSWERED_MAX {
                let error = away.error.clone();
                // Who asks again has as much patience again.
                self.members.iter_mut().for_each(|member| member.away = None);
                let what = format!("bag {} has chunks that cannot be reached, so this is not its end", self.bag.name);
                return Err(error.during(what));
            }
            tokio::time::sleep(away.again.since(now)).await;
            return Ok(false);
        }
        if !self.members.iter().all(|member| member.ended) {
            // Without `wait`: every device had nothing. The next pull begins anew.
            self.members.iter_mut().for_each(|member| member.nothing = false);
            return Ok(true);
        }
        // The end is when every member of a sealed bag has ended; there may be more members than when we came. A node's scope may
        // have none: then nothing is on it.
        let info = self.bag.look(false).await?;
        self.learn(&info);
        if self.members.iter().any(|member| !member.ended) {
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

impl Drop for Consumer {
    fn drop(&mut self) {
        if let Some(looking) = self.looking.take() {
            looking.abort();
        }
    }
}

impl Member {
    fn new(device: Id, side: Side) -> Member {
        Member { device, side, ended: false, nothing: false, open: 0, away: None }
    }
}

/// What an answer to a pull brought that was asked for and came at these times. A chunk is what was pushed, or an error: then it is held no more.
async fn taken(
    bag: &Bag,
    keeper: &Arc<Keeper>,
    (device, grant): (Id, u64),
    answer: PullAnswer,
    payload: Payload,
    (began, ended): (Time, Time),
) -> Result<(u32, Came)> {
    let pass = answer.pass;
    match Pulled::try_from(answer.pulled) {
        Ok(Pulled::Nothing) => Ok((pass, Came::Nothing)),
        Ok(Pulled::Ended) => Ok((pass, Came::Ended)),
        Ok(Pulled::Chunk) => {
            let key = Key { member: device.value(), grant, chunk: ChunkId(answer.chunk.value()) };
            keeper.ledger.hold(key, Duration::from_millis(u64::from(answer.grant_ms)));
            let mut chunk = keeper.chunk(key, pass, payload.into_bytes());
            if bag.compression != Compression::None {
                let restored = bag.client.session.compressor.restore(std::mem::take(&mut chunk.bytes)).await;
                chunk.bytes =
                    restored.map_err(|error| error.during(format!("chunk {} of bag {}", chunk.id, bag.name)))?;
            }
            let service = Duration::from_micros(u64::from(answer.service_us));
            let (waiting, under_way) = (answer.waiting, answer.under_way);
            Ok((pass, Came::Chunk { chunk, waiting, began, ended, service, under_way }))
        }
        Err(_) => Err(Error::new(
            ErrorKind::Protocol,
            "the node's answer to a pull is none that this program knows; no chunk is lost; use one version of client and node",
        )),
    }
}

/// What was looked for, if somebody looks.
async fn looked(
    looking: &mut Option<JoinHandle<Result<Info>>>,
) -> Option<std::result::Result<Result<Info>, tokio::task::JoinError>> {
    match looking {
        Some(looking) => Some(looking.await),
        None => None,
    }
}

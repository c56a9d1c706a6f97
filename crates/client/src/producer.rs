//! Pushing chunks into a bag: many on their way, each to the least busy of a few devices that answer.

use crate::bag::{Bag, LOOK_EVERY, Scope, follow};
use crate::locality::{SIDES, Side, Sides};
use crate::room::Pauses;
use base::env::Random;
use base::error::{Error, ErrorKind, Result};
use base::id::ChunkId;
use base::limit::{BAG_CHUNK_MAX, FULL_WAIT, PUSHES_AHEAD_MAX, UNANSWERED_MAX};
use base::planted::Planted;
use base::policy::Compression;
use base::unit::{MIB, Time, show_bytes};
use bytes::Bytes;
use net::message::Id;
use net::message::bag::{Info, Push, PushAnswer};
use net::{Payload, Sent};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How chunks are pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerOptions {
    /// Bytes that may be on their way, as they were before compression; one chunk always may.
    pub window: usize,
    /// Where chunks may go.
    pub scope: Scope,
    /// To one device pushes go so far ahead of the oldest that has no answer, within `base::limit::PUSHES_AHEAD_MAX`.
    pub ahead: u64,
    /// A fault put in on purpose, by the simulation alone.
    pub planted: Option<Planted>,
}

impl Default for ProducerOptions {
    /// Sixteen chunks of 4 MiB: enough for several devices to have the next ones waiting while they sync.
    fn default() -> ProducerOptions {
        ProducerOptions { window: 64 * MIB as usize, scope: Scope::Cluster, ahead: PUSHES_AHEAD_MAX, planted: None }
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
    scope: Scope,
    window: Arc<Semaphore>,
    permits: u32,
    ahead: u64,
    planted: Option<Planted>,
    failed: OnceLock<Error>,
    load: Mutex<Load>,
}

/// What is known about the devices.
struct Load {
    members: Vec<Member>,
    /// The device that took a chunk last.
    answered_last: Option<Id>,
    /// How fast chunks are answered for on each side.
    sides: Sides,
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
    side: Side,
    /// Chunks waiting there, as its last answer said.
    waiting: u64,
    /// Bytes that it had not answered for to other producers, as its last answer said.
    of_others: u64,
    /// Draws that it loses before it is asked again, because it is full.
    avoided: u32,
    /// Bytes of ours that it has not answered for, as they are sent.
    on_their_way: u64,
    /// Since when it has answered nothing, though there was something to answer.
    quiet_since: Option<Time>,
}

/// A push without an answer is asked again after a pause, each twice the one before, up to the last. Each of them has waited
/// `CALL_SILENCE_MAX` for the answer already.
const AGAIN_PAUSE_FIRST: Duration = Duration::from_millis(100);
const AGAIN_PAUSE_LAST: Duration = Duration::from_secs(2);

/// A device that has not answered for so long gets no new chunks while others answer.
const QUIET_MAX: Duration = Duration::from_secs(2);

/// A device that is full is asked again after it has lost so many draws.
const AVOIDED: u32 = 100;

/// Devices drawn for each chunk, besides the one that answered last. One producer alone knows all that is on its way: with 64
/// chunks for 16 devices the best of two keeps them 0.90 busy, of four 0.96, of all 0.98; but many producers that all take the best
/// of all move in step, and some devices end late.
const DRAWS: usize = 4;

impl Producer {
    pub(crate) fn new(bag: Bag, options: ProducerOptions) -> Producer {
        let permits = options.window.clamp(1, u32::MAX as usize / 2);
        let scope = options.scope;
        let members = bag.within(scope, &bag.members);
        let members = members.into_iter().map(|device| Member::new(device, bag.side_of(device))).collect();
        let looked = bag.client.session.clock.now();
        let load = Load { members, answered_last: None, sides: Sides::default(), full_since: None, looked };
        let shared = Shared {
            bag,
            scope,
            window: Arc::new(Semaphore::new(permits)),
            permits: permits as u32,
            ahead: options.ahead.clamp(1, PUSHES_AHEAD_MAX),
            planted: options.planted,
            failed: OnceLock::new(),
            load: Mutex::new(load),
        };
        Producer { shared: Arc::new(shared) }
    }

    /// Pushes these bytes as one chunk, of at most `base::limit::BAG_CHUNK_MAX`, compressed if the bag's are. Returns when the
    /// window has room for them; that they are synced is told by `flush`.
    pub async fn push(&self, bytes: Bytes) -> Result<()> {
        self.check()?;
        self.shared.check_scope()?;
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
        let fail = |error: Error| drop(self.failed.set(error.during(format!("push to bag {}", self.bag.name))));
        let payload = match self.bag.compression {
            Compression::None => Ok(Payload::new(bytes)),
            how => self.bag.client.session.compressor.shrink(how, bytes).await,
        };
        let payload = match payload {
            Ok(payload) => payload,
            Err(error) => return fail(error),
        };
        let length = payload.length() as u64;
        let mut pauses = Pauses::default();
        while self.failed.get().is_none() {
            self.look_if_due();
            let device = self.choose(length);
            let began = self.bag.client.session.clock.now();
            let result = match self.push(device, &payload).await {
                Ok(PushAnswer { refused: Some(why), .. }) => Err(self.refused(why.into()).await),
                result => result,
            };
            match self.note(device, length, began, result) {
                Next::Done => break,
                Next::TryAgain => pauses.rest().await,
                Next::Elsewhere => (),
                Next::Fail(error) => {
                    fail(error);
                    break;
                }
            }
        }
        drop(permits);
    }

    /// Pushes a chunk to this device. Without an answer it may be there: it is asked again under the same name, at this device
    /// and no other. An error of the kinds `Full` and `NotFound` says that it is not there, nor will be.
    async fn push(&self, device: Id, payload: &Payload) -> Result<PushAnswer> {
        let client = &self.bag.client;
        let clock = &client.session.clock;
        // A new name for every device: one that is full has refused, so the chunk is not there.
        let push = client.session.streams.push(device, self.ahead).await?;
        let (chunk, sent) = (push.name.0.into(), Sent::default());
        let (mut pause, mut since, mut doubtful) = (AGAIN_PAUSE_FIRST, None, false);
        loop {
            let ask = Push { bag: self.bag.number, device, chunk, floor: push.number.floor() };
            let error = match client.call_at_counted(device, &ask, payload.clone(), &sent).await {
                Ok((answer, _)) => return Ok(answer),
                Err(error) => error,
            };
            let since = *since.get_or_insert_with(|| clock.now());
            // A node may say, too, that nobody knows what became of it.
            doubtful |= error.kind() == ErrorKind::Unreachable && sent.is_sent();
            let unanswered =
                (doubtful || sent.is_unanswered()) && self.planted != Some(Planted::UnansweredPushedElsewhere);
            let patient = match error.kind() {
                ErrorKind::Unreachable => client.session.routes.may_come_back(device, &error),
                // It refused one of several that it was sent. Asked again, it says what became of all of them.
                ErrorKind::Full => unanswered,
                // It remembers too much already: what this session has without an answer gets one, and the oldest is never refused so. Or its
                // node is no member of the cluster for the moment.
                ErrorKind::Busy => true,
                _ => false,
            };
            if !patient || clock.now().since(since) >= UNANSWERED_MAX || self.failed.get().is_some() {
                return Err(if unanswered { unknown(push.name, &error) } else { error });
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(AGAIN_PAUSE_LAST);
        }
    }

    /// A device refused a chunk for good, because the bag takes none there: because it is sealed, or has left that device. In
    /// that case others take chunks, and it is as if the device were full.
    async fn refused(&self, why: Error) -> Error {
        match self.bag.look(false).await {
            Ok(info) if !info.sealed => {
                self.learn(&info);
                Error::new(ErrorKind::Full, why.text())
            }
            Ok(_) => why,
            Err(error) => error,
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
                if let Ok(info) = shared.bag.look(false).await {
                    shared.learn(&info);
                }
            });
        }
    }

    /// Learns from the answer to a push that began at that time, and says how its chunk goes on.
    fn note(&self, device: Id, length: u64, began: Time, result: Result<PushAnswer>) -> Next {
        let session = &self.bag.client.session;
        let now = session.clock.now();
        let mut load = self.load();
        let Load { members, answered_last, sides, full_since, .. } = &mut *load;
        let mut left = Member::new(device, self.bag.side_of(device));
        let member = members.iter_mut().find(|member| member.device == device).unwrap_or(&mut left);
        member.on_their_way = member.on_their_way.saturating_sub(length);
        member.quiet_since = (member.on_their_way > 0).then_some(now);
        let error = match result {
            Ok(answer) => {
                (member.waiting, member.avoided) = (answer.waiting, 0);
                member.of_others = answer.under_way.unwrap_or(0).saturating_sub(member.on_their_way);
                *answered_last = Some(device);
                sides.done(member.side, began, now, length);
                *full_since = None;
                return Next::Done;
            }
            Err(error) => error,
        };
        member.avoided = AVOIDED;
        match error.kind() {
            ErrorKind::Full => {
                let since = *full_since.get_or_insert(now);
                if now.since(since) < FULL_WAIT { Next::TryAgain } else { Next::Fail(error) }
            }
            // It was never sent there, or the node answered for none of its devices: no other is asked while the view may still name
            // this one.
            ErrorKind::NotFound if !session.routes.has(device) => {
                // The last one stays in the list: others choose from it until they hear of the failure.
                if members.iter().all(|member| member.device == device) {
                    return Next::Fail(error);
                }
                members.retain(|member| member.device != device);
                Next::Elsewhere
            }
            _ => Next::Fail(error),
        }
    }

    /// The best of some devices drawn at random, on the side where it is expected to be done first; counts the bytes as on their way
    /// there.
    ///
    /// Drawn are those that answer and have not twice their share of the window, so that one that falls silent takes no more than
    /// that with it.
    fn choose(&self, length: u64) -> Id {
        let random = &self.bag.client.session.random;
        let now = self.bag.client.session.clock.now();
        let mut load = self.load();
        let shares = load.shares(u64::from(self.permits)).map(|share| share.max(length));
        let sides = load.sides_in_order(now, length);
        let answers = |member: &Member| member.quiet_since.is_none_or(|since| now.since(since) < QUIET_MAX);
        let has_room = |member: &Member| member.on_their_way.saturating_add(length) <= shares[member.side as usize];
        let wanted: [&dyn Fn(&Member) -> bool; 3] =
            [&|member| answers(member) && has_room(member), &|member| answers(member), &|_| true];
        let mut drawn: Vec<usize> = Vec::new();
        for (wanted, side) in wanted.into_iter().flat_map(|wanted| sides.map(|side| (wanted, side))) {
            let fits = |member: &Member| member.side == side && wanted(member);
            drawn.extend((0..load.members.len()).filter(|place| fits(&load.members[*place])));
            if !drawn.is_empty() {
                break;
            }
        }
        let place = load.best_of(&drawn, random.as_ref());
        let member = &mut load.members[place];
        member.on_their_way = member.on_their_way.saturating_add(length);
        member.quiet_since.get_or_insert(now);
        member.device
    }

    /// Devices that have joined take part, those that have left do not.
    fn learn(&self, info: &Info) {
        let present = self.bag.within(self.scope, &info.members);
        // A bag has devices for as long as it exists. Of a scope the last one stays: pushes to it say why they fail.
        if present.is_empty() {
            return;
        }
        let mut load = self.load();
        let side = |device| self.bag.side_of(device);
        follow(&mut load.members, &present, |member| member.device, |device| Member::new(device, side(device)));
        load.members.iter_mut().for_each(|member| member.side = side(member.device));
    }

    /// A bag has devices, a scope perhaps none of them.
    fn check_scope(&self) -> Result<()> {
        if !self.load().members.is_empty() {
            return Ok(());
        }
        let text = format!(
            "the node that was asked for has no device in bag {}; nothing was pushed; push to the cluster, or to a node that \
             `stormwell node ls` lists with devices",
            self.bag.name
        );
        Err(Error::new(ErrorKind::NotFound, text))
    }

    fn load(&self) -> MutexGuard<'_, Load> {
        self.load.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Load {
    /// The best of `DRAWS` of these places and of the one that answered last: where the least is on its way, of ours and of what
    /// others had there, and then where fewer chunks wait. What waits says little of how busy a device is.
    ///
    /// Of the one that answered last it is known how busy it is, and that it was busy: a chunk sent where one was just done keeps as
    /// many there as there were. So many producers do not leave a device idle that none of them happens to draw.
    fn best_of(&mut self, places: &[usize], random: &dyn Random) -> usize {
        let draw = || places[random.below(places.len() as u64) as usize];
        let mut best = draw();
        let last = places.iter().copied().find(|place| Some(self.members[*place].device) == self.answered_last);
        for other in (1..DRAWS).map(|_| draw()).chain(last) {
            let work = |place: usize| {
                let member = &self.members[place];
                let under_way = member.on_their_way.saturating_add(member.of_others);
                (member.avoided > 0, under_way, member.waiting)
            };
            let (winner, loser) = if work(other) < work(best) { (other, best) } else { (best, other) };
            if winner != loser {
                // What was heard long ago is believed less each time it decides, so that every device is asked again some day.
                let member = &mut self.members[loser];
                member.avoided = member.avoided.saturating_sub(1);
                member.waiting -= member.waiting.div_ceil(8);
                member.of_others -= member.of_others.div_ceil(8);
            }
            best = winner;
        }
        best
    }

    /// How many devices are on each side.
    fn devices(&self) -> [usize; 2] {
        SIDES.map(|side| self.members.iter().filter(|member| member.side == side).count())
    }

    /// The most bytes that each device of a side may have of a window: twice its share of what goes to its side. If there are two
    /// sides, an eighth is left for the others.
    fn shares(&self, window: u64) -> [u64; 2] {
        let devices = self.devices();
        SIDES.map(|side| {
            let share = 2 * self.sides.part(window, side, devices) / devices[side as usize].max(1) as u64;
            if devices.contains(&0) { share } else { share.min(window - window / 8) }
        })
    }

    /// The sides in the order in which they are expected to be done with so many bytes more. One whose devices are all full comes
    /// last, and is asked again after it has come last so often.
    fn sides_in_order(&mut self, now: Time, length: u64) -> [Side; 2] {
        let devices = self.devices();
        let open = SIDES.map(|side| {
            let its = self.members.iter().filter(|member| member.side == side);
            its.fold(0, |sum: u64, member| sum.saturating_add(member.on_their_way))
        });
        let order = self.sides.first_done(now, open, length);
        let is_full = SIDES.map(|side| self.members.iter().all(|member| member.side != side || member.avoided > 0));
        if devices.contains(&0) || is_full[0] == is_full[1] {
            return order;
        }
        let full = if is_full[0] { Side::Near } else { Side::Far };
        let its = self.members.iter_mut().filter(|member| member.side == full);
        its.for_each(|member| member.avoided -= 1);
        if full == Side::Near { [Side::Far, Side::Near] } else { SIDES }
    }
}

impl Member {
    fn new(device: Id, side: Side) -> Member {
        Member { device, side, waiting: 0, of_others: 0, avoided: 0, on_their_way: 0, quiet_since: None }
    }
}

/// A push that was sent and never answered did not end well: it must not be taken for one that is nowhere.
fn unknown(chunk: ChunkId, error: &Error) -> Error {
    let kind = match error.kind() {
        ErrorKind::NotFound | ErrorKind::Full => ErrorKind::Unreachable,
        kind => kind,
    };
    let text = format!(
        "whether chunk {chunk} was stored is not known: it was sent, and no answer came ({}); it was not pushed elsewhere, where it might \
         be handled a second time; look at what the bag's consumers got before it is pushed again",
        error.text()
    );
    Error::new(kind, text)
}

#[cfg(test)]
mod tests {
    use super::{AVOIDED, Load, Member};
    use crate::locality::{SIDES, Side, Sides};
    use base::unit::Time;
    use sim::random::SimRandom;
    use std::collections::VecDeque;

    fn load(devices: u128) -> Load {
        let members = (0..devices).map(|device| Member::new(device.into(), Side::Far)).collect();
        Load { members, answered_last: None, sides: Sides::default(), full_since: None, looked: Time::ZERO }
    }

    /// Chunks go where the least is on its way, however many wait elsewhere; of devices that are as busy, to those with less.
    #[test]
    fn the_least_busy() {
        let random = SimRandom::new(1);
        let mut load = load(16);
        for place in 0..16 {
            load.members[place].waiting = 1000 * place as u64;
        }
        let all: Vec<usize> = (0..16).collect();
        for _ in 0..64 {
            let place = load.best_of(&all, &random);
            load.members[place].on_their_way += 1;
        }
        let most = load.members.iter().map(|member| member.on_their_way).max();
        assert!(load.members.iter().all(|member| member.on_their_way >= 2) && most <= Some(6), "{most:?}");
        let (mut emptier, mut two) = (0, self::load(2));
        for _ in 0..100 {
            (two.members[0].waiting, two.members[1].waiting) = (500, 400);
            emptier += two.best_of(&[0, 1], &random);
        }
        assert!(emptier > 80, "{emptier} of 100 went to the emptier one");
    }

    /// What others had at a device counts as what is ours there, and less each time it decides.
    #[test]
    fn what_others_have_there_counts() {
        let (random, mut load) = (SimRandom::new(3), load(2));
        load.members[0].of_others = 40;
        let mut first = 0;
        for sent in 0..100 {
            if load.best_of(&[0, 1], &random) == 0 {
                first = sent;
                break;
            }
            load.members[1].on_their_way += 1;
        }
        assert!((3..40).contains(&first), "asked again after {first} chunks");
    }

    /// Many producers with a few chunks each keep every device busy, although none of them sees all devices: of those that answer for
    /// several chunks at a time, as after a sync, next to none has run dry by the time it could answer for more.
    #[test]
    fn nobody_runs_dry() {
        let (random, devices, each, together, rounds) = (SimRandom::new(4), 64, 12, 6, 200);
        let mut loads: Vec<Load> = (0..devices).map(|_| load(devices as u128)).collect();
        let mut queues = vec![VecDeque::new(); devices];
        let all: Vec<usize> = (0..devices).collect();
        let send = |load: &mut Load, queues: &mut [VecDeque<usize>], producer: usize| {
            let place = load.best_of(&all, &random);
            load.members[place].on_their_way += 1;
            queues[place].push_back(producer);
        };
        for producer in (0..devices * each).map(|chunk| chunk % devices) {
            send(&mut loads[producer], &mut queues, producer);
        }
        let mut missing = 0;
        for place in (0..rounds).flat_map(|_| 0..devices) {
            let answered = together.min(queues[place].len());
            missing += together - answered;
            let answered: Vec<usize> = queues[place].drain(..answered).collect();
            let left = queues[place].len() as u64;
            for producer in answered {
                let load = &mut loads[producer];
                let member = &mut load.members[place];
                member.on_their_way -= 1;
                member.of_others = left.saturating_sub(member.on_their_way);
                load.answered_last = Some(member.device);
                send(load, &mut queues, producer);
            }
        }
        let all = rounds * devices * together;
        assert!(missing * 200 < all, "{missing} of {all} could not be done");
    }

    /// A full device gets nothing while others take chunks, and is asked again after a while.
    #[test]
    fn full_devices_are_avoided() {
        let random = SimRandom::new(2);
        let mut load = load(4);
        load.members[1].avoided = AVOIDED;
        let mut asked = (0..).find(|_| {
            let place = load.best_of(&[0, 1, 2, 3], &random);
            load.members[place].on_their_way += 1;
            place == 1
        });
        let tries = asked.take().unwrap_or_default();
        assert!((30..300).contains(&tries), "asked again after {tries} chunks");
    }
    /// The near device gets its part of a window and no more than seven eighths; while it is full, the others get everything.
    #[test]
    fn the_near_one() {
        let mut load = load(8);
        load.members[0].side = Side::Near;
        assert_eq!(load.shares(80), [70, 11], "as long as nobody measured");
        let at = |second: u64| Time::from_nanos(second * 1_000_000_000);
        load.sides.done(Side::Near, at(0), at(1), 80_000);
        load.sides.done(Side::Far, at(0), at(1), 20_000);
        assert_eq!(load.shares(80), [70, 4]);
        (load.members[0].on_their_way, load.members[1].on_their_way) = (39, 9);
        assert_eq!(load.sides_in_order(at(1), 1)[0], Side::Near);
        load.members[0].on_their_way = 40;
        assert_eq!(load.sides_in_order(at(1), 1)[0], Side::Far);
        (load.members[0].on_their_way, load.members[0].avoided) = (0, AVOIDED);
        let asked = (0..).find(|_| load.sides_in_order(at(1), 1) == SIDES);
        assert_eq!(asked, Some(AVOIDED as usize));
    }
}

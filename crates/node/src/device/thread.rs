//! The thread of one device: it owns the disk, and with those who ask (`here`) the chunk engine and the volatile queues of the bags. It runs
//! each request to its end and answers straight from here.

use super::answer::answer_wire;
use crate::device::bags::{Bags, Waiter};
use crate::device::departures::Departures;
use crate::device::scrub::Scrubbing;
use crate::here::{Between, Next, Served, Turns};
use crate::loan::Loans;
use crate::world::{Ended, Turn, Work, World};
use base::checksum::BlockSums;
use base::disk::{Caching, Disk, Done};
use base::env::Clock;
use base::error::{Error, ErrorKind, Result};
use base::id::{BagId, ChunkId, DeviceId, Owner};
use base::limit::{FRAME_PAYLOAD_MAX, READ_COST_MAX};
use base::policy::{Class, Level};
use base::unit::{Time, WallTime};
use bytes::Bytes;
use chunk::bag::Verdict;
use chunk::{Effect, Engine, Reply, Request};
use net::message::bag;
use net::{Budget, Cork, Payload, Piece, Responder};
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::device::{Consumer, Device, Item, Pushed, Reading, Then};

/// What a device's thread is started with.
pub struct Start {
    /// The disk.
    pub disk: Box<dyn Disk>,
    /// How the engine uses it.
    pub settings: chunk::Settings,
    /// The name of the device if it is new.
    pub new_id: DeviceId,
    /// Its class.
    pub class: Class,
    /// Its directory, for people.
    pub place: String,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The budget for bytes on their way out.
    pub outgoing: Budget,
    /// The threads of those who ask.
    pub loans: Arc<Loans>,
}

/// A device that is served.
pub struct Started {
    /// How to reach it.
    pub device: Arc<Device>,
    /// Its end.
    pub ended: Ended,
    /// How opening went.
    pub opened: chunk::Opened,
}

/// Opens the device and starts its thread. It is opened in the thread that serves it, which a ring belongs to.
pub fn spawn(world: &dyn World, start: Start) -> Result<Started> {
    let (tell, told) = sync_channel(1);
    let Start { disk, settings, new_id, class, place, clock, outgoing, loans } = start;
    let name = format!("device {place}");
    let open = move |disk: &mut dyn Disk| -> Option<Box<dyn Work>> {
        match Engine::open(disk, settings, new_id, clock.now()) {
            Ok((engine, opened)) => {
                let device = Arc::new(Device {
                    id: opened.id,
                    class,
                    place,
                    backend: disk.backend(),
                    served: Served::new(disk.waker(), loans),
                    usage: Mutex::new(engine.usage()),
                    scrubbed: Mutex::new(None),
                    draining: Mutex::new(None),
                    is_draining: AtomicBool::new(false),
                    sessions_after: Mutex::default(),
                });
                let thread = Thread {
                    device: device.clone(),
                    engine,
                    clock,
                    outgoing,
                    bags: Bags::default(),
                    short_of_memory: VecDeque::new(),
                    scrubbing: Scrubbing::default(),
                    departures: Departures::default(),
                    inbox: Vec::new(),
                    not_small: VecDeque::new(),
                    effects: Vec::new(),
                    stopping: false,
                    ended: false,
                    in_flight: 0,
                    helps: disk.has_early() || disk.inline().is_some(),
                    between: Between::new(disk.inline()),
                    slow_here: 0,
                    not_here_before: Time::ZERO,
                    pulls: 0,
                    pushes: 0,
                };
                let turning = device.served.open(thread);
                // Whoever started this thread waits for the word.
                let _ = tell.send(Ok((device, opened)));
                Some(Box::new(turning))
            }
            Err(error) => {
                let _ = tell.send(Err(error));
                None
            }
        }
    };
    let ended = world.run(&name, disk, Box::new(open))?;
    let lost =
        || Error::new(ErrorKind::Io, "its thread ended while opening it; nothing was changed; look at what it printed");
    let (device, opened) = told.recv().unwrap_or_else(|_| Err(lost()))?;
    Ok(Started { device, ended, opened })
}

/// How long work that found no memory waits before it tries again. Memory comes back when a socket has taken bytes,
/// about a millisecond for a chunk of 4 MiB.
const MEMORY_RETRY: Duration = Duration::from_millis(1);

/// A write into the page cache that takes so long waited for the disk: a file system that is throttled or frozen. Those threads serve the
/// network and must not wait with it, so for the next second the device's own does.
const HERE_SLOW: Duration = Duration::from_millis(1);
/// So many turns in a row: a single one may have waited for a processor.
const HERE_SLOW_TURNS: u32 = 3;
const HERE_PAUSE: Duration = Duration::from_secs(1);

/// If more than so many have come together, they are the thread's: all of them share its wake-up, and whoever brought them can take in the next
/// ones meanwhile (64 appends of 4 KiB at a time: 84,900 a second with this, 75,700 without; one at a time takes 150 us and not 180).
pub(super) const FEW: usize = 4;

pub(super) struct Thread {
    device: Arc<Device>,
    engine: Engine<Then>,
    clock: Arc<dyn Clock>,
    outgoing: Budget,
    bags: Bags,
    /// Reads and pulls that found no outgoing memory, oldest first. Bounded as the mailbox is.
    short_of_memory: VecDeque<Item>,
    scrubbing: Scrubbing,
    departures: Departures,
    /// What was taken out of the mailbox; kept for its memory.
    inbox: Vec<Item>,
    /// What whoever took it out left to the device's thread: the first that was not small, and what came behind it.
    not_small: VecDeque<Item>,
    effects: Vec<Effect<Then>>,
    stopping: bool,
    /// It has had its last turn.
    ended: bool,
    in_flight: usize,
    between: Between,
    /// Whether anything is won when whoever asks does it: the disk takes operations of others, or has files that are written at once.
    helps: bool,
    /// Turns in askers' threads, one after the other, that were slow.
    slow_here: u32,
    /// Until then everything is left to the device's thread.
    not_here_before: Time,
    /// Pulls whose chunk is being read.
    pulls: u32,
    /// Bytes of pushes that are not answered for: producers choose devices by it.
    pushes: u64,
}

impl Turns for Thread {
    fn turn(&mut self, done: &mut Vec<Done>, disk: &mut dyn Disk) -> Turn {
        let now = self.clock.now();
        for (token, op) in self.between.left.drain(..) {
            disk.submit(token, op);
        }
        for finished in done.drain(..) {
            self.completed(now, finished);
        }
        if self.engine.next_tick().is_some_and(|due| due <= now) {
            self.engine.tick(now);
        }
        self.perform(now, Some(disk));
        if self.bags.next_due().is_some_and(|due| due <= now) {
            for bag in self.bags.expire(now, &self.engine) {
                self.serve_waiters(now, bag);
            }
        }
        while let Some(item) = self.not_small.pop_front() {
            self.handle(now, item);
        }
        self.take_mailbox(now, false);
        self.retry_for_memory(now);
        self.scrub_on(now);
        self.perform(now, Some(disk));
        if self.stopping && self.in_flight == 0 {
            self.ended = true;
            self.between.end();
            return Turn::End;
        }
        self.show_usage();
        let wait = if self.device.served.mailbox.may_sleep() { self.wait(now) } else { Some(Duration::ZERO) };
        self.between.sleeps(now, wait);
        Turn::Wait(wait)
    }

    /// Not while something waits that came before and is not small.
    fn takes_here(&self) -> bool {
        !self.ended && self.helps && self.not_small.is_empty() && self.clock.now() >= self.not_here_before
    }

    fn turn_here(&mut self, done: Option<Done>, operations: usize) -> Next {
        let now = self.clock.now();
        if let Some(done) = done {
            self.completed(now, done);
            // Whoever waits for that hears of it before more is begun.
            self.perform(now, None);
        }
        let few = self.device.served.mailbox.len() <= FEW;
        if few {
            self.take_mailbox(now, true);
            self.perform(now, None);
        }
        // What waits for room is told by no answer.
        self.show_usage();
        self.note_turn_here(now, self.clock.now());
        if !few {
            return Next::Leave(true);
        }
        let due = self.wait(now).map(|wait| now.after(wait));
        let wakes = self.stopping || !self.not_small.is_empty();
        self.between.next(operations, due, wakes)
    }
}

impl Thread {
    fn completed(&mut self, now: Time, done: Done) {
        self.in_flight -= 1;
        self.engine.completed(now, done);
    }

    /// A turn in an asker's thread took from `began` to `now`.
    fn note_turn_here(&mut self, began: Time, now: Time) {
        self.slow_here = if now.since(began) >= HERE_SLOW { self.slow_here + 1 } else { 0 };
        if self.slow_here >= HERE_SLOW_TURNS {
            (self.slow_here, self.not_here_before) = (0, now.after(HERE_PAUSE));
        }
    }

    /// Handles what has come: all of it, or only what is small and came before the first that is not.
    fn take_mailbox(&mut self, now: Time, only_small: bool) {
        let mut inbox = std::mem::take(&mut self.inbox);
        self.device.served.mailbox.take(&mut inbox);
        for item in inbox.drain(..) {
            if only_small && (!self.not_small.is_empty() || !item.is_small()) {
                self.not_small.push_back(item);
            } else {
                self.handle(now, item);
            }
        }
        self.inbox = inbox;
    }

    /// Lets others see how full the device is: before they can have an answer that depends on it.
    fn show_usage(&self) {
        *self.device.usage.lock().unwrap_or_else(PoisonError::into_inner) = self.engine.usage();
    }

    /// How long nothing needs to be done if nothing comes; `None`: for ever.
    fn wait(&self, now: Time) -> Option<Duration> {
        if !self.short_of_memory.is_empty() {
            return Some(MEMORY_RETRY);
        }
        let due = [self.engine.next_tick(), self.bags.next_due(), self.scrubbing.next_due(self.in_flight > 0)];
        due.into_iter().flatten().min().map(|due| due.since(now))
    }

    fn handle(&mut self, now: Time, item: Item) {
        self.between.tells();
        match item {
            Item::Chunk { request, then } => {
                if self.device.is_draining() {
                    self.departures.note_empty(&request, |chunk| self.engine.is_closed_empty(chunk));
                }
                if let Some(refusal) = self.departures.refusal(&request) {
                    self.answer(now, then, Err(refusal));
                } else if let Some((request, then)) = self.departures.route(request, then) {
                    self.serve(now, request, then);
                }
            }
            // What waits in the engine would be done there later, and acknowledged, when the copy is complete without it.
            Item::Hold { chunk } => self.departures.hold(chunk, self.engine.give_back(chunk)),
            Item::Unsure { chunk } => {
                for (request, then) in self.departures.unsure(chunk) {
                    if let Some(refusal) = self.departures.refusal(&request) {
                        self.answer(now, then, Err(refusal));
                    }
                }
            }
            Item::Departed { chunk, to } => {
                for (request, then) in self.departures.end(chunk, to) {
                    self.serve(now, request, then);
                }
            }
            Item::Look(question) => question(&self.engine),
            Item::Push { push, bytes, sums, respond } => self.push(now, push, bytes, sums, respond),
            Item::Pull { bag, waiter } => self.pull(now, bag, waiter),
            Item::Acknowledge { bag, pass, grants, by, respond } => {
                self.acknowledge(now, (bag, pass), grants, by, respond);
            }
            Item::Sessions { after, limit, tell } => {
                // The one who asked may be gone; then nobody misses the answer.
                let _ = tell.send(self.sessions(after, limit));
            }
            Item::SessionsOver(sessions) => {
                self.engine.forget_sessions(&sessions);
                for bag in self.bags.sessions_over(&sessions, &self.engine) {
                    self.serve_waiters(now, bag);
                }
            }
            Item::Renew { bag, grants, consumer, respond } => {
                self.bags.renew(now, bag, grants, consumer, &self.engine);
                respond.answer(net::message::Done {}, Payload::empty());
            }
            Item::BagChanged { bag } => {
                self.bags.forget_state(bag, &self.engine);
                self.serve_waiters(now, bag);
            }
            Item::BagRewound { bag } => {
                self.bags.rewound(bag, &self.engine);
                self.serve_waiters(now, bag);
            }
            Item::BagCounts { bag, tell } => {
                let counts = self.bags.counts(bag, &self.engine);
                // The one who asked may be gone; then nobody misses the answer.
                let _ = tell.send(counts);
            }
            Item::Scrub { rate, tell } => {
                if self.scrubbing.begin(now, rate) {
                    self.show_scrub(Some(self.clock.wall()));
                }
                // The one who asked may be gone; it scrubs all the same.
                let _ = tell.send(());
            }
            Item::Stop => self.stopping = true,
        }
    }

    fn sessions(&self, after: Option<u64>, limit: usize) -> Vec<u64> {
        let mut found = self.engine.sessions(after, limit);
        found.extend(self.bags.holders(after, limit));
        found.sort_unstable();
        found.dedup();
        found.truncate(limit);
        found
    }

    /// The next step of a scrub under way, when it is due.
    fn scrub_on(&mut self, now: Time) {
        if self.stopping {
            return;
        }
        if let Some(request) = self.scrubbing.next(now, self.in_flight > 0, &self.engine) {
            self.engine.submit(now, request, Then::Scrubbed);
        } else if self.scrubbing.ended() {
            self.show_scrub(None);
            self.scrubbing.forget();
        }
    }

    /// Lets others see how far the scrub is; `began`: from when on.
    fn show_scrub(&self, began: Option<WallTime>) {
        let mut shown = self.device.scrubbed.lock().unwrap_or_else(PoisonError::into_inner);
        self.scrubbing.show(&mut shown, began, self.clock.wall());
    }

    fn serve(&mut self, now: Time, request: Request, then: Then) {
        match (request, then) {
            (request @ Request::Read { .. }, Then::Answer(respond)) => self.read(now, request, respond),
            (request, then) => self.engine.submit(now, request, then),
        }
    }

    /// Takes outgoing memory before anything is read, so that slow readers cannot fill the node with their answers.
    fn read(&mut self, now: Time, request: Request, respond: Responder) {
        let Request::Read { chunk, ranges, .. } = &request else { unreachable!("only reads come here") };
        let bytes = self.engine.answer_length(*chunk, ranges);
        if bytes > FRAME_PAYLOAD_MAX as u64 {
            let text = format!("the answer would have {bytes} bytes, {FRAME_PAYLOAD_MAX} are the most; ask for less");
            return respond.fail(Error::new(ErrorKind::Invalid, text));
        }
        // What is read for it counts, not what is sent: a byte of each of a thousand records costs a thousand of their beginnings.
        let cost = self.engine.read_cost(*chunk, ranges);
        if cost > READ_COST_MAX {
            let text = format!(
                "{} ranges of {bytes} bytes would need {cost} bytes to be read at once, {READ_COST_MAX} are the most; ask for fewer",
                ranges.len()
            );
            return respond.fail(Error::new(ErrorKind::Invalid, text));
        }
        match self.outgoing.try_acquire(cost) {
            Some(piece) => self.engine.submit(now, request, Then::AnswerBytes(respond, piece)),
            None => self.short_of_memory.push_back(Item::Chunk { request, then: Then::Answer(respond) }),
        }
    }

    fn push(&mut self, now: Time, push: Pushed, bytes: Bytes, sums: BlockSums, respond: Responder) {
        let Pushed { bag, chunk, floor } = push;
        match self.engine.heard_push(chunk, floor) {
            Ok(()) => {}
            // One that is known needs no more memory, and must not go elsewhere.
            Err(error) if error.kind() == ErrorKind::Full && self.engine.knows(chunk) => {}
            Err(error) if error.kind() == ErrorKind::Full => return refuse(respond, error),
            Err(error) => return respond.fail(error),
        }
        if let Some(why) = self.refusal(chunk) {
            // It is pushed elsewhere: nothing that still comes of it may be stored.
            self.engine.refuse_push(chunk);
            return refuse(respond, why);
        }
        self.bags.push_begins(bag, &self.engine);
        let length = bytes.len() as u64;
        self.pushes = self.pushes.saturating_add(length);
        let request = Request::Append {
            chunk,
            owner: Owner::Bag(bag),
            generation: base::id::Generation(1),
            offset: 0,
            payload: bytes,
            sums,
            level: Level::Synced,
            seal: true,
            small_parts: false,
            cell: 0,
        };
        self.engine.submit(now, request, Then::Pushed { bag, chunk, length, respond });
    }

    /// Why a chunk is not taken for a bag, if it is not. It is refused for good, so that its producer pushes it elsewhere even if it
    /// had no answer before. One that may be here already, or was, must not go elsewhere.
    fn refusal(&self, chunk: ChunkId) -> Option<Error> {
        let why = match (self.engine.usage().failed, self.device.is_draining()) {
            (true, _) => "is out of service after a failed write or sync",
            (false, true) => "is being emptied",
            (false, false) => return None,
        };
        if self.engine.knows(chunk) {
            return None;
        }
        let text = format!(
            "{} {why} and takes no chunks; what was acknowledged is safe; add a device, or ask for the bag again",
            self.device.place
        );
        Some(Error::new(ErrorKind::Full, text))
    }

    fn pull(&mut self, now: Time, bag: BagId, waiter: Waiter) {
        let who = (waiter.consumer, waiter.grant);
        let Some((chunk, length)) = self.bags.pull(now, bag, who, &self.engine) else {
            // Where nothing new comes and nothing is, nothing will be.
            let ended = self.device.is_draining() && !self.engine.has_chunks(bag);
            return self.bags.wait(now, bag, waiter, ended, &self.engine);
        };
        self.read_granted(now, bag, chunk, length, waiter);
    }

    fn read_granted(&mut self, now: Time, bag: BagId, chunk: ChunkId, length: u64, waiter: Waiter) {
        match self.outgoing.try_acquire(length) {
            Some(piece) => {
                let (ranges, caching, check) = (vec![(0, length)], Caching::Around, waiter.check);
                let request = Request::Read { chunk, ranges, caching, check, cells: false };
                let pass = self.engine.bag_stat(bag).pass;
                self.pulls += 1;
                let reading = Reading { began: now, under_way: self.pulls };
                self.engine.submit(now, request, Then::Pulled { bag, pass, chunk, length, waiter, piece, reading });
            }
            // The grant stays; asking again with the same grant gives the same chunk.
            None => self.short_of_memory.push_back(Item::Pull { bag, waiter }),
        }
    }

    fn retry_for_memory(&mut self, now: Time) {
        for _ in 0..self.short_of_memory.len() {
            let Some(item) = self.short_of_memory.pop_front() else { return };
            let before = self.short_of_memory.len();
            self.handle(now, item);
            if self.short_of_memory.len() > before {
                // Still nothing: put it back where it was, so that the oldest stays the first.
                self.short_of_memory.rotate_right(1);
                return;
            }
        }
    }

    fn acknowledge(
        &mut self,
        now: Time,
        (bag, (pass, retain)): (BagId, (u32, bool)),
        grants: Vec<(ChunkId, u64)>,
        by: Consumer,
        respond: Responder,
    ) {
        let mut results = Vec::with_capacity(grants.len());
        let mut asked = Vec::new();
        let mut chunks = Vec::new();
        let present = self.engine.bag_stat(bag).pass;
        // Of an earlier pass only the engine knows: it was accepted then, or is refused now.
        let verdicts = match pass == present {
            true => self.bags.acknowledge(now, bag, &grants, by.session, &self.engine),
            false => vec![Verdict::Unknown; grants.len()],
        };
        for (place, ((chunk, grant), verdict)) in grants.into_iter().zip(verdicts).enumerate() {
            match verdict {
                Verdict::Refuse(reason) => results.push(Err(Error::new(ErrorKind::Stale, reason))),
                // Of a chunk that is not here any more the engine knows who acknowledged it, across restarts.
                Verdict::Accept | Verdict::Unknown => {
                    results.push(Ok(()));
                    asked.push((place, chunk));
                    chunks.push((chunk, grant));
                }
            }
        }
        self.engine.submit(
            now,
            Request::Acknowledge { chunks, pass, retain, by: by.asking },
            Then::Acknowledged { bag, pass, asked, results, respond },
        );
    }

    /// Hands operations to the disk, or leaves them for it if it is not here, and answers to those who wait, until the engine has nothing more
    /// to say.
    fn perform(&mut self, now: Time, mut disk: Option<&mut dyn Disk>) {
        let _cork = Cork::hold();
        let mut effects = std::mem::take(&mut self.effects);
        loop {
            self.engine.take_effects(&mut effects);
            if effects.is_empty() {
                break;
            }
            self.show_usage();
            // Pushes that one sync lets go are answered together: what each of them says counts none of them.
            let answered = effects.iter().map(|effect| match effect {
                Effect::Reply { tag: Then::Pushed { length, .. }, .. } => *length,
                _ => 0,
            });
            self.pushes = self.pushes.saturating_sub(answered.sum());
            for effect in effects.drain(..) {
                match effect {
                    Effect::Disk { token, op } => {
                        self.in_flight += 1;
                        match &mut disk {
                            Some(disk) => disk.submit(token, op),
                            None => self.between.left.push((token, op)),
                        }
                    }
                    Effect::Reply { tag, result } => self.answer(now, tag, result),
                }
            }
        }
        self.effects = effects;
    }

    fn answer(&mut self, now: Time, then: Then, result: Result<Reply>) {
        self.between.tells();
        match then {
            Then::Answer(respond) => answer_wire(respond, result, None),
            Then::AnswerBytes(respond, piece) => answer_wire(respond, result, Some(piece)),
            // The one who asked may be gone; then nobody misses the answer.
            Then::Tell(tell) => drop(tell.send(result)),
            Then::Scrubbed => {
                self.scrubbing.took(&result, &self.engine);
                self.show_scrub(None);
            }
            Then::Pushed { bag, chunk, length, respond } => self.pushed(now, bag, (chunk, length), respond, result),
            Then::Pulled { bag, pass, chunk, length, waiter, piece, reading } => {
                self.pulls -= 1;
                let service_us = u32::try_from(now.since(reading.began).as_micros()).unwrap_or(u32::MAX).max(1);
                self.pulled((bag, pass), (chunk, length), waiter, piece, (service_us, reading.under_way), result);
            }
            Then::Acknowledged { bag, pass, asked, results, respond } => {
                self.acknowledged(now, (bag, pass), asked, results, respond, result);
            }
        }
    }

    fn pushed(
        &mut self,
        now: Time,
        bag: BagId,
        (chunk, length): (ChunkId, u64),
        respond: Responder,
        result: Result<Reply>,
    ) {
        // A push asked again may be of a chunk that was consumed meanwhile: it must not come back.
        let is_here = result.is_ok() && self.engine.wants_handling(chunk);
        self.bags.push_ended(bag, is_here.then_some((chunk, length)), &self.engine);
        match result {
            Ok(_) => {
                let waiting = self.bags.lengths(bag).waiting as u64;
                let answer = bag::PushAnswer { waiting, under_way: Some(self.pushes), refused: None };
                respond.answer(answer, Payload::empty());
            }
            // The bag takes no chunks here, or this push was refused before: the engine stores nothing of it any more.
            Err(error) if error.kind() == ErrorKind::Stale && !self.engine.holds(chunk) => {
                refuse(respond, error);
            }
            Err(error) => respond.fail(error),
        }
        // One that failed may have been all that the end of the bag waited for.
        self.serve_waiters(now, bag);
    }

    fn pulled(
        &mut self,
        (bag, pass): (BagId, u32),
        (chunk, length): (ChunkId, u64),
        waiter: Waiter,
        piece: Piece,
        (service_us, under_way): (u32, u32),
        result: Result<Reply>,
    ) {
        match result {
            Ok(Reply::Data { parts, crc, .. }) => {
                let lengths = self.bags.lengths(bag);
                let answer = bag::PullAnswer {
                    pulled: bag::Pulled::Chunk as i32,
                    chunk: chunk.0.into(),
                    pass,
                    waiting: lengths.waiting as u64,
                    grant_ms: base::limit::GRANT_LEASE.as_millis() as u32,
                    granted: lengths.granted as u64,
                    service_us,
                    under_way,
                };
                waiter.respond.answer(answer, Payload::with_crc(parts, crc).with_piece(piece));
            }
            Ok(other) => unreachable!("a read was answered by {other:?}"),
            Err(error) => waiter.respond.fail(error.during(format!("pull chunk {chunk} of {length} bytes"))),
        }
    }

    fn acknowledged(
        &mut self,
        now: Time,
        (bag, pass): (BagId, u32),
        asked: Vec<(usize, ChunkId)>,
        mut results: Vec<Result<()>>,
        respond: Responder,
        result: Result<Reply>,
    ) {
        match result {
            Ok(Reply::Acknowledged { results: decided }) => {
                assert_eq!(asked.len(), decided.len(), "one result for each chunk asked about");
                // After a rewind on the way the chunk waits again, or was handled in the pass that the answer is about.
                let present = self.engine.bag_stat(bag).pass;
                let mut gone = Vec::with_capacity(asked.len());
                for ((place, chunk), verdict) in asked.into_iter().zip(decided) {
                    if verdict.is_ok() && pass == present {
                        gone.push(chunk);
                    }
                    results[place] = verdict;
                }
                self.bags.acknowledged(bag, gone, &self.engine);
                let results = results
                    .into_iter()
                    .map(|result| {
                        result.map_or_else(net::message::Failure::from, |()| net::message::Failure::default())
                    })
                    .collect();
                respond.answer(bag::AcknowledgeAnswer { results }, Payload::empty());
                self.serve_waiters(now, bag);
            }
            Ok(other) => unreachable!("an acknowledgement was answered by {other:?}"),
            Err(error) => respond.fail(error),
        }
    }

    /// Gives what there is to those who wait for a chunk of this bag, or tells them that nothing will come.
    fn serve_waiters(&mut self, now: Time, bag: BagId) {
        while let Some((chunk, length, waiter)) = self.bags.next_served(now, bag, &self.engine) {
            self.read_granted(now, bag, chunk, length, waiter);
        }
    }
}

/// Answers that a push is refused for good. That is no error: after an error a producer that had no answer before may believe that the
/// chunk is here.
fn refuse(respond: Responder, why: Error) {
    let refused = Some(net::message::Failure::from(why));
    respond.answer(bag::PushAnswer { refused, ..bag::PushAnswer::default() }, Payload::empty());
}

//! Room for what was gathered: whatever a power loss leaves in tails, appends are answered while the device has room, and on a full one what was
//! acknowledged is there.

use crate::world::{World, append, bytes, kind, small};
use base::buffer::Pool;
use base::disk::FileKind;
use base::env::Random;
use base::error::{Error, ErrorKind};
use base::id::{ChunkId, Generation, GroupId, Owner};
use base::limit::FULL_WAIT;
use base::policy::Level;
use base::unit::{GIB, KIB, MIB};
use bytes::Bytes;
use chunk::{Reply, Request, Settings};
use sim::disk::{SimDevice, SimFaults, When};
use sim::random::SimRandom;
use std::collections::BTreeMap;
use std::time::Duration;

const FILE: Owner = Owner::Group(GroupId(1));

fn settings(capacity: u64) -> Settings {
    Settings::for_capacity(capacity, Pool::new(8 << 20))
}

/// The answer, with as much time as it takes: somebody who waits for room is told after a while that there is none.
fn answer(world: &mut World, tag: u64) -> Result<Reply, Error> {
    let end = world.now.after(10 * FULL_WAIT);
    world.settle();
    while !world.replies.contains_key(&tag) {
        let due = world.engine.next_tick().filter(|due| *due <= end).expect("an answer");
        world.later(due.since(world.now));
        world.settle();
    }
    world.replies.remove(&tag).expect("an answer")
}

fn ask(world: &mut World, request: Request) -> Result<Reply, Error> {
    let tag = world.submit(request);
    answer(world, tag)
}

/// Chunks and what they hold.
type Contents = BTreeMap<ChunkId, Vec<u8>>;

fn add(world: &mut World, contents: &mut Contents, chunk: ChunkId, piece: &Bytes) {
    let content = contents.entry(chunk).or_default();
    let added = ask(world, append(FILE, chunk, content.len() as u64, piece, Level::Synced, false));
    content.extend_from_slice(piece);
    assert_eq!(added, Ok(Reply::Appended { length: content.len() as u64 }), "chunk {chunk}");
}

fn are_there(world: &mut World, contents: &Contents) {
    for (chunk, content) in contents {
        assert!(world.read_all(*chunk).expect("read") == *content, "other bytes in chunk {chunk}");
    }
}

fn seal_all(world: &mut World, contents: &Contents) {
    for (chunk, content) in contents {
        let (chunk, length) = (*chunk, content.len() as u64);
        let sealed = ask(world, Request::Seal { chunk, generation: Generation(1), length });
        assert!(matches!(sealed, Ok(Reply::Sealed { .. })), "chunk {chunk}: {sealed:?}");
    }
}

/// A device whose power went while nothing of so many chunks was in a data record: the journal has all of it.
fn only_in_the_journal(first: &Settings, then: &Settings, chunks: u128, each: u64) -> (SimDevice, World, Contents) {
    let (device, random) = (SimDevice::new(1, SimFaults::default()), SimRandom::new(1));
    drop(World::open(&device, first).expect("a fresh device"));
    let mut world = World::open(&device, then).expect("opened").0;
    world.withheld = Some(FileKind::Data);
    let mut contents = Contents::new();
    for at in (0..each).step_by(32 * KIB as usize) {
        for chunk in (0..chunks).map(ChunkId) {
            let piece = bytes(&random, 32 * KIB as usize);
            world.submit(append(FILE, chunk, at, &piece, Level::Synced, false));
            contents.entry(chunk).or_default().extend_from_slice(&piece);
        }
        world.settle();
    }
    drop(world);
    device.crash();
    let (world, _) = World::open(&device, then).expect("opened");
    (device, world, contents)
}

/// What is acknowledged after such a power loss, and that all of it is there after the next one.
fn goes_on(what: &str, first: &Settings, then: &Settings, chunks: u128, each: u64) {
    let (device, mut world, mut contents) = only_in_the_journal(first, then, chunks, each);
    are_there(&mut world, &contents);
    let random = SimRandom::new(2);
    for length in [1000, 60_000, 300_000] {
        let piece = bytes(&random, length);
        add(&mut world, &mut contents, ChunkId(chunks), &piece);
        for chunk in (0..chunks).map(ChunkId) {
            add(&mut world, &mut contents, chunk, &piece);
        }
    }
    drop(world);
    device.crash();
    world = World::open(&device, then).unwrap_or_else(|error| panic!("{what}: {error}")).0;
    are_there(&mut world, &contents);
    seal_all(&mut world, &contents);
    drop(world);
    device.crash();
    world = World::open(&device, then).unwrap_or_else(|error| panic!("{what}: {error}")).0;
    are_there(&mut world, &contents);
}

#[test]
fn tails_of_many_chunks_after_a_power_loss() {
    for (chunks, each) in [(12, MIB), (20, MIB), (40, 480 * KIB), (3, 7 * MIB)] {
        let settings = settings(256 * MIB);
        goes_on(&format!("{chunks} of {each}"), &settings, &settings, chunks, each);
    }
}

/// Its segments stay as small as they were.
#[test]
fn long_tails_of_a_device_that_grew() {
    for (chunks, each) in [(1, 20 * MIB), (2, 20 * MIB), (60, MIB)] {
        goes_on(&format!("{chunks} of {each}"), &settings(256 * MIB), &settings(8 * GIB), chunks, each);
    }
}

/// They are records soon, whoever asks for them.
#[test]
fn long_tails_become_records() {
    let settings = settings(256 * MIB);
    let (device, mut world, contents) = only_in_the_journal(&settings, &settings, 2, 3 * MIB + 96 * KIB);
    world.settle();
    let data = device.files().into_iter().map(|(name, _)| name).filter(|name| name.kind == FileKind::Data);
    let is_header = |block: &&[u8]| block.starts_with(b"STORMDAT");
    let records: usize = data.map(|name| device.peek(name).chunks(4096).filter(is_header).count()).sum();
    assert_eq!(records, 6);
    are_there(&mut world, &contents);
}

/// The end of a chunk whose tail is longer than a record comes first.
#[test]
fn long_tails_are_sealed() {
    for (chunks, each) in [(1, 20 * MIB), (3, 5 * MIB + 96 * KIB)] {
        let settings = settings(256 * MIB);
        let (device, mut world, contents) = only_in_the_journal(&settings, &settings, chunks, each);
        seal_all(&mut world, &contents);
        drop(world);
        device.crash();
        world = World::open(&device, &settings).expect("opened").0;
        are_there(&mut world, &contents);
    }
}

/// Many writers of small appends get what a device has, all tails included, and are told that it is full when it is; what was acknowledged is there, can be
/// completed and deleted, after a power loss, too, and then there is room again.
#[test]
fn many_small_writers_fill_a_device() {
    let random = SimRandom::new(1);
    // The tails of 100 writers are folded when they are short, and take more of the checkpoints.
    for (writers, largest, parts) in [(16, 0, 9), (16, 24 * KIB, 9), (16, 60 * KIB, 9), (100, 24 * KIB, 8)] {
        let device = SimDevice::new(1, SimFaults::default());
        let settings = settings(256 * MIB);
        let (mut world, _) = World::open(&device, &settings).expect("opened");
        let mut contents = Contents::new();
        let mut taken = 0;
        let refused = 'all: loop {
            for chunk in (0..writers).map(ChunkId) {
                // All tails grow at the same pace, or each at its own.
                let length = if largest > 0 { 1 + random.below(largest) } else { 8 * KIB };
                let piece = bytes(&random, length as usize);
                let content = contents.entry(chunk).or_default();
                let added = ask(&mut world, append(FILE, chunk, content.len() as u64, &piece, Level::Synced, false));
                if added.is_err() {
                    break 'all added;
                }
                content.extend_from_slice(&piece);
                taken += piece.len() as u64;
            }
        };
        assert_eq!(kind(&refused), Some(ErrorKind::Full), "{refused:?}");
        let usage = world.engine.usage();
        let least = (usage.capacity - usage.reserve) / 12 * parts;
        assert!(taken >= least, "{writers} writers, {} MiB were taken: {usage:?}", taken / MIB);
        are_there(&mut world, &contents);
        drop(world);
        device.crash();
        world = World::open(&device, &settings).expect("opened").0;
        are_there(&mut world, &contents);
        seal_all(&mut world, &contents);
        let chunks = (0..writers / 2).map(ChunkId).collect();
        assert_eq!(ask(&mut world, Request::Delete { chunks }), Ok(Reply::Done));
        contents.retain(|chunk, _| chunk.0 >= writers / 2);
        for chunk in 1000..1016 {
            add(&mut world, &mut contents, ChunkId(chunk), &bytes(&random, MIB as usize));
        }
        are_there(&mut world, &contents);
    }
}

/// Records are counted in the order in which they are put: what an append of a segment's size finds in its way is a tail, joined to it or apart, and whatever is
/// left of the current segment.
#[test]
fn an_append_as_large_as_a_segment() {
    let random = SimRandom::new(1);
    let large = bytes(&random, 16 * MIB as usize);
    for before in [0, 200 * KIB, MIB, 14 * MIB, 15 * MIB, 15 * MIB + 700 * KIB, 16 * MIB - 200 * KIB] {
        for tail in [0, 1, 4096, 40_000, 61_440, 500 * KIB, 700_001, MIB - 4096] {
            let device = SimDevice::new(1, SimFaults::default());
            let (mut world, _) = World::open(&device, &settings(256 * MIB)).expect("opened");
            let mut contents = Contents::new();
            for length in [MIB; 16].into_iter().scan(before, |left, most| {
                let length = most.min(*left);
                *left -= length;
                Some(length)
            }) {
                if length > 0 {
                    add(&mut world, &mut contents, ChunkId(1), &bytes(&random, length as usize));
                }
            }
            for at in (0..tail).step_by(60_000) {
                let length = (tail - at).min(60_000) as usize;
                add(&mut world, &mut contents, ChunkId(2), &bytes(&random, length));
            }
            add(&mut world, &mut contents, ChunkId(2), &large);
            are_there(&mut world, &contents);
        }
    }
}

/// One stream of a random run.
struct Writer {
    chunk: ChunkId,
    small_parts: bool,
    content: Vec<u8>,
    acknowledged: usize,
    asked: Vec<(u64, usize)>,
}

/// A random run: the device, what is on it, and the streams.
struct Run {
    random: SimRandom,
    device: SimDevice,
    settings: Settings,
    world: World,
    writers: Vec<Writer>,
    sealed: Contents,
    next: u128,
}

const WRITERS: usize = 6;

impl Run {
    fn new(seed: u64) -> Run {
        let random = SimRandom::new(seed);
        let device = SimDevice::new(seed, SimFaults::default());
        let mut settings = small(64 * MIB);
        (settings.data_segment, settings.reserve) = (4 * MIB, 8 * MIB);
        settings.tails_max = [256 * KIB, 2 * MIB, 4 * MIB, 16 * MIB][random.below(4) as usize];
        settings.checkpoint_journal = [384 * KIB, 4 * MIB][random.below(2) as usize];
        let (world, _) = World::open(&device, &settings).expect("a fresh device");
        let mut run = Run { random, device, settings, world, writers: Vec::new(), sealed: Contents::new(), next: 0 };
        (0..WRITERS).for_each(|_| run.begin());
        run
    }

    fn begin(&mut self) {
        let (chunk, small_parts) = (ChunkId(self.next), self.random.below(4) == 0);
        self.next += 1;
        self.writers.push(Writer { chunk, small_parts, content: Vec::new(), acknowledged: 0, asked: Vec::new() });
    }

    fn append(&mut self, place: usize, level: Level) {
        let random = &self.random;
        let length = match random.below(80) {
            0 => 64 * KIB + random.below(1500 * KIB),
            1..3 => 16 * 4096,
            3..5 => 0,
            5..30 => 1 + random.below(64 * KIB),
            _ => 1 + random.below(12 * KIB),
        };
        let piece = bytes(random, length as usize);
        let writer = &mut self.writers[place];
        let mut request = append(FILE, writer.chunk, writer.content.len() as u64, &piece, level, false);
        if let Request::Append { small_parts, .. } = &mut request {
            *small_parts = writer.small_parts;
        }
        writer.content.extend_from_slice(&piece);
        // What is only received may be lost.
        let end = if level == Level::Received { 0 } else { writer.content.len() };
        writer.asked.push((self.world.submit(request), end));
    }

    /// Takes the answers that are there; with `all`, everybody is answered.
    fn take_answers(&mut self, all: bool, what: &str) {
        for writer in &mut self.writers {
            for (tag, end) in std::mem::take(&mut writer.asked) {
                let answered = match all {
                    true => Some(answer(&mut self.world, tag)),
                    false => self.world.replies.remove(&tag),
                };
                match answered {
                    Some(Ok(_)) => writer.acknowledged = writer.acknowledged.max(end),
                    Some(Err(error)) => panic!("{what}: an append that ends at {end} is refused: {error}"),
                    None => writer.asked.push((tag, end)),
                }
            }
        }
    }

    /// Completes a stream, and deletes the oldest complete ones while they are many.
    fn complete(&mut self, place: usize, what: &str) {
        let writer = self.writers.swap_remove(place);
        let (chunk, length) = (writer.chunk, writer.content.len() as u64);
        if length > 0 {
            let sealed = ask(&mut self.world, Request::Seal { chunk, generation: Generation(1), length });
            assert!(matches!(sealed, Ok(Reply::Sealed { .. })), "{what}: {sealed:?}");
            self.sealed.insert(chunk, writer.content);
        }
        while self.sealed.values().map(|content| content.len() as u64).sum::<u64>() > 8 * MIB {
            let Some((chunk, _)) = self.sealed.pop_first() else { break };
            assert_eq!(ask(&mut self.world, Request::Delete { chunks: vec![chunk] }), Ok(Reply::Done), "{what}");
        }
        self.begin();
    }

    fn live(&mut self, what: &str) {
        let level = if self.random.below(4) == 0 { Level::Written } else { Level::Synced };
        let cut = self.random.below(3) == 0;
        self.world.withheld = cut.then_some(FileKind::Data);
        for _ in 0..self.random.below(60) {
            for _ in 0..self.random.below(24) {
                let place = self.random.below(WRITERS as u64) as usize;
                // What is only received is kept by whatever is kept behind it.
                let level = if self.random.below(3) == 0 { Level::Received } else { level };
                if self.writers[place].content.len() < 3 * MIB as usize {
                    self.append(place, level);
                }
            }
            for _ in 0..self.random.below(8) {
                self.world.turn();
            }
            if self.random.below(8) == 0 {
                self.world.later(Duration::from_millis(self.random.below(700)));
            }
            if !cut && self.random.below(8) == 0 {
                self.take_answers(true, what);
                let place = self.random.below(WRITERS as u64) as usize;
                self.complete(place, what);
            }
        }
        self.take_answers(!cut && self.random.below(2) == 0, what);
        // A process that ends keeps what is written, a power loss what is synced.
        if level == Level::Written && !cut {
            self.device.kill()
        } else {
            self.device.crash()
        }
        if level == Level::Written && cut {
            self.writers.iter_mut().for_each(|writer| writer.acknowledged = 0);
        }
    }

    /// The device is opened again: everything that was acknowledged is there, and appends are answered at once.
    fn open(&mut self, what: &str) {
        self.world = World::open(&self.device, &self.settings).unwrap_or_else(|error| panic!("{what}: {error}")).0;
        are_there(&mut self.world, &self.sealed);
        for writer in &mut self.writers {
            writer.asked.clear();
            let length = match self.world.call(Request::Stat { chunk: writer.chunk }) {
                Ok(Reply::Stat(stat)) => stat.length as usize,
                _ => 0,
            };
            let (acknowledged, written) = (writer.acknowledged, writer.content.len());
            assert!((acknowledged..=written).contains(&length), "{what}: {length} of {acknowledged} to {written}");
            writer.content.truncate(length);
            writer.acknowledged = 0;
            if length > 0 {
                let found = self.world.read_all(writer.chunk).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert!(found == writer.content, "{what}: other bytes in chunk {}", writer.chunk);
            }
        }
        for place in 0..WRITERS {
            self.append(place, Level::Synced);
        }
        self.take_answers(true, what);
    }
}

/// Several streams, power losses with folds that nobody had synced, ends and deletes: what was acknowledged is there, and everybody is answered.
#[test]
fn whatever_a_power_loss_leaves() {
    for seed in 0..40 {
        let mut run = Run::new(seed);
        for life in 0..8 {
            let what = format!("seed {seed}, life {life}");
            run.live(&what);
            run.open(&what);
        }
    }
}

/// A disk that takes no more writes can be read, also after a power loss that left a tail of more than a record.
#[test]
fn long_tails_are_read_from_a_disk_that_takes_no_writes() {
    let (device, random) = (SimDevice::new(1, SimFaults::default()), SimRandom::new(1));
    let settings =
        Settings { checkpoint_journal: 32 * MIB, checkpoint_bytes: 64 * MIB, tails_max: 16 * MIB, ..small(128 * MIB) };
    drop(World::open(&device, &settings).expect("a fresh device"));
    let (mut world, _) = World::open(&device, &settings).expect("opened");
    world.withheld = Some(FileKind::Data);
    let mut content = Vec::new();
    while content.len() < 3 * MIB as usize {
        let piece = bytes(&random, 60_000);
        let at = content.len() as u64;
        world.call(append(FILE, ChunkId(1), at, &piece, Level::Synced, false)).expect("appended");
        content.extend_from_slice(&piece);
    }
    drop(world);
    device.crash();
    device.set_faults(SimFaults { write_error: When::Always, ..SimFaults::default() });
    let (mut world, _) = World::open(&device, &settings).expect("opened");
    assert!(world.read_all(ChunkId(1)).expect("read") == content);
}

/// Data writes stand still and the journal goes on: not much more is answered than may be in memory.
#[test]
fn what_is_folded_does_not_pile_up() {
    let (device, random) = (SimDevice::new(1, SimFaults::default()), SimRandom::new(1));
    let settings = Settings { tails_max: 16 * MIB, ..Settings::for_capacity(1024 * MIB, Pool::new(8 << 20)) };
    let (mut world, _) = World::open(&device, &settings).expect("a fresh device");
    world.withheld = Some(FileKind::Data);
    let piece = bytes(&random, 48 << 10);
    let (mut at, mut answered, mut all) = (0, 0, true);
    while all && answered < 200 * MIB {
        let ask = |chunk| world.submit(append(FILE, ChunkId(chunk), at, &piece, Level::Synced, false));
        let tags: Vec<u64> = (0..16).map(ask).collect();
        at += piece.len() as u64;
        world.settle();
        for tag in tags {
            let reply = world.replies.remove(&tag).map(|reply| reply.expect("appended"));
            answered += reply.as_ref().map_or(0, |_| piece.len() as u64);
            all &= reply.is_some();
        }
    }
    // Tails, as much again that waits for the disk, and a record or two of each writer.
    assert!(answered <= 2 * settings.tails_max + 16 * 2 * MIB, "{} MiB were answered", answered / MIB);
}

//! What was acknowledged from the journal and then folded into a data record that a power loss took: the journal still has it.

use crate::world::{World, append, bytes, small};
use base::disk::{FileKind, FileName};
use base::env::Random;
use base::id::{ChunkId, Generation, GroupId, Owner};
use base::policy::Level;
use base::unit::MIB;
use bytes::Bytes;
use chunk::{Reply, Request};
use sim::disk::{SimDevice, SimFaults};
use sim::random::SimRandom;

const FILE: Owner = Owner::Group(GroupId(1));
const LIVES: usize = 8;
const SEEDS: u64 = 40;

/// One writer's stream of small appends through several lives of the device.
struct Stream {
    chunk: ChunkId,
    content: Vec<u8>,
    acknowledged: usize,
    sealed: bool,
}

impl Stream {
    /// Appends that are under way together, some turns at a time, until the device stops or the life is over.
    fn live(&mut self, world: &mut World, random: &SimRandom, level: Level) {
        let mut asked = Vec::new();
        let mut at = self.acknowledged;
        for _ in 0..random.below(30) {
            for _ in 0..random.below(12) {
                let length = 1 + random.below(if random.below(8) == 0 { 60_000 } else { 9_000 }) as usize;
                let piece = bytes(random, length);
                self.content.truncate(at);
                self.content.extend_from_slice(&piece);
                at += length;
                // What is only received is kept by whatever is kept behind it.
                let level = if random.below(3) == 0 { Level::Received } else { level };
                let tag = world.submit(append(FILE, self.chunk, (at - length) as u64, &piece, level, false));
                if level > Level::Received {
                    asked.push((tag, at));
                }
            }
            for _ in 0..random.below(6) {
                world.turn();
            }
        }
        if random.below(3) == 0 {
            let (chunk, length) = (self.chunk, at as u64);
            let tag = world.submit(Request::Seal { chunk, generation: Generation(1), length });
            for _ in 0..random.below(8) {
                world.turn();
            }
            self.sealed = matches!(world.replies.remove(&tag), Some(Ok(_)));
            if self.sealed {
                self.acknowledged = at;
            }
        }
        for (tag, end) in asked {
            match world.replies.remove(&tag) {
                Some(Ok(_)) => self.acknowledged = self.acknowledged.max(end),
                Some(Err(error)) => panic!("an append that ends at {end} is refused: {error}"),
                None => (),
            }
        }
    }

    /// The device was opened again: what was acknowledged is there, and the stream goes on behind what is.
    fn is_there(&mut self, world: &mut World, what: &str) {
        let (length, sealed) = match world.call(Request::Stat { chunk: self.chunk }) {
            Ok(Reply::Stat(stat)) => (stat.length as usize, stat.sealed),
            _ => (0, false),
        };
        assert!(length >= self.acknowledged, "{what}: {length} bytes of {} are there", self.acknowledged);
        assert!(sealed || !self.sealed, "{what}: it was sealed");
        assert!(length <= self.content.len(), "{what}: {length} bytes, {} were written", self.content.len());
        if length > 0 {
            let found = world.read_all(self.chunk).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(found == self.content[..length], "{what}: other bytes");
        }
        self.content.truncate(length);
        self.acknowledged = length;
        self.sealed = sealed;
    }
}

/// Power losses that take all that was folded and not synced, kills, and more appends in between: every byte that was acknowledged stays, however
/// often it was folded, and so does the end of a chunk.
#[test]
fn folded_and_lost() {
    let (mut longest, mut sealed) = (0, 0);
    for seed in 0..SEEDS {
        let random = SimRandom::new(seed);
        let device = SimDevice::new(seed, SimFaults { forgets: Some(FileKind::Data), ..SimFaults::default() });
        let fresh = |chunk| Stream { chunk: ChunkId(chunk), content: Vec::new(), acknowledged: 0, sealed: false };
        let mut stream = fresh(0);
        let mut settings = small(64 * MIB);
        // A tail is folded as a whole now and then, also if nothing follows it.
        settings.tails_max = [16 << 10, 256 << 10][seed as usize % 2];
        // Checkpoints make what is folded durable: few of them.
        settings.checkpoint_journal = 8 * MIB;
        settings.checkpoint_bytes = 16 * MIB;
        let (mut world, _) = World::open(&device, &settings).expect("a fresh device");
        for life in 0..LIVES {
            let level = if random.below(4) == 0 { Level::Written } else { Level::Synced };
            stream.live(&mut world, &random, level);
            drop(world);
            if level == Level::Synced && random.below(4) > 0 {
                device.crash()
            } else {
                device.kill()
            }
            let what = format!("seed {seed}, life {life}");
            world = World::open(&device, &settings).unwrap_or_else(|error| panic!("{what}: {error}")).0;
            stream.is_there(&mut world, &what);
            longest = longest.max(stream.acknowledged);
            if stream.sealed {
                sealed += 1;
                stream = fresh(life as u128 + 1);
            }
        }
    }
    assert!(longest > 2 * MIB as usize && sealed > 20, "{longest} bytes at the most, {sealed} sealed");
}

/// The power goes while the end of a chunk is being made durable whose last bytes were folded and not synced: the end may be in the journal before they are
/// in their record. They are not lost, and the chunk is complete if somebody was told so.
#[test]
fn sealed_and_lost() {
    let mut unsealed = 0;
    let cases = (0..40)
        .flat_map(|seed| (0..6).flat_map(move |changes| [false, true].map(|by_append| (seed, changes, by_append))));
    for (seed, changes, by_append) in cases {
        let (random, what) =
            (SimRandom::new(seed), format!("seed {seed}, {changes} changes, by an append: {by_append}"));
        let faults = SimFaults { forgets: Some(FileKind::Data), ..SimFaults::default() };
        let device = SimDevice::new(seed, faults.clone());
        let settings = chunk::Settings { tails_max: 16 << 10, ..small(64 * MIB) };
        let (mut world, _) = World::open(&device, &settings).expect("a fresh device");
        let mut stream = Stream { chunk: ChunkId(0), content: Vec::new(), acknowledged: 0, sealed: false };
        for _ in 0..4 {
            let piece = bytes(&random, 4096);
            let add = append(FILE, stream.chunk, stream.content.len() as u64, &piece, Level::Synced, false);
            world.call(add).expect("appended");
            stream.content.extend_from_slice(&piece);
        }
        // With this the tails are too many; the oldest is folded, and nobody waits for its record.
        world.call(append(FILE, ChunkId(9), 0, &bytes(&random, 4096), Level::Synced, false)).expect("appended");
        stream.acknowledged = stream.content.len();
        let (chunk, length) = (stream.chunk, stream.content.len() as u64);
        device.set_faults(SimFaults { crash_at: Some(device.operations().changes() + changes), ..faults.clone() });
        let seal = match by_append {
            true => append(FILE, chunk, length, &Bytes::new(), Level::Synced, true),
            false => Request::Seal { chunk, generation: Generation(1), length },
        };
        stream.sealed = world.try_call(seal).is_some_and(|answer| answer.is_ok());
        drop(world);
        device.crash();
        device.set_faults(faults);
        let (mut world, opened) = World::open(&device, &settings).expect("it opens");
        stream.is_there(&mut world, &what);
        // The end was found, and the bytes before it only in the journal.
        unsealed += usize::from(!stream.sealed && opened.records_replayed == 6);
        let seal = Request::Seal { chunk, generation: Generation(1), length };
        assert!(matches!(world.call(seal), Ok(Reply::Sealed { .. })), "{what}");
        drop(world);
        device.crash();
        let (mut world, _) = World::open(&device, &settings).expect("it opens");
        (stream.acknowledged, stream.sealed) = (length as usize, true);
        stream.is_there(&mut world, &what);
    }
    assert!(unsealed > 0, "the power never went in between");
}

/// The record that bytes were folded into rots while the journal still has them: the chunk has all of its bytes, and is complete again as somebody was told that it
/// is; but not if somebody took it over since.
#[test]
fn sealed_and_rotten() {
    for taken_over in [false, true] {
        let (device, random) = (SimDevice::new(1, SimFaults::default()), SimRandom::new(1));
        let settings = chunk::Settings { tails_max: 16 << 10, ..small(64 * MIB) };
        let (mut world, _) = World::open(&device, &settings).expect("a fresh device");
        let (chunk, length) = (ChunkId(0), 16 << 10);
        let content = bytes(&random, length);
        world.call(append(FILE, chunk, 0, &content, Level::Synced, false)).expect("appended");
        world.call(append(FILE, ChunkId(9), 0, &bytes(&random, 4096), Level::Synced, false)).expect("appended");
        let seal = |generation| Request::Seal { chunk, generation: Generation(generation), length: length as u64 };
        let sealed = world.call(seal(1)).expect("sealed");
        if taken_over {
            world.call(Request::Fence { chunk, generation: Generation(2) }).expect("fenced");
        }
        // Says in its header that the record was durable.
        world.call(append(FILE, ChunkId(9), 4096, &bytes(&random, 4096), Level::Synced, false)).expect("appended");
        drop(world);
        device.kill();
        device.rot(FileName::new(FileKind::Data, 0), 20, 0);
        for life in 0..3 {
            let (mut world, opened) = World::open(&device, &settings).expect("opened");
            assert_eq!(opened.rot.is_empty(), life > 0, "{:?}", opened.rot);
            let Ok(Reply::Stat(stat)) = world.call(Request::Stat { chunk }) else { panic!("it is gone") };
            assert_eq!(stat.sealed, !taken_over || life > 1, "life {life}");
            assert!(world.read_all(chunk).expect("read") == content[..]);
            if stat.sealed || life == 1 {
                assert_eq!(world.call(seal(1 + u64::from(taken_over))), Ok(sealed.clone()), "life {life}");
            }
            drop(world);
            device.crash();
        }
    }
}

/// What was folded out of the journal is the journal's until its record is synced: appends behind it do not wait for that, and a power loss takes nothing of them. Bytes
/// that no journal has are waited for, and so is the end of a chunk.
#[test]
fn nobody_waits_for_what_is_folded() {
    for changes in 0..6 {
        let (device, random) = (SimDevice::new(changes, SimFaults::default()), SimRandom::new(changes));
        let settings = chunk::Settings { checkpoint_journal: 32 * MIB, ..small(64 * MIB) };
        let (mut world, _) = World::open(&device, &settings).expect("a fresh device");
        world.withheld = Some(FileKind::Data);
        let (chunk, mut content) = (ChunkId(0), Vec::new());
        while content.len() < 3 * MIB as usize {
            let piece = bytes(&random, 30_000);
            let added = world.call(append(FILE, chunk, content.len() as u64, &piece, Level::Synced, false));
            content.extend_from_slice(&piece);
            assert_eq!(added, Ok(Reply::Appended { length: content.len() as u64 }));
        }
        let (length, large) = (content.len() as u64, bytes(&random, 100_000));
        let last = match changes % 2 {
            0 => Request::Seal { chunk, generation: Generation(1), length },
            _ => append(FILE, chunk, length, &large, Level::Synced, false),
        };
        assert!(world.try_call(last).is_none());
        drop(world);
        device.crash();
        let (mut world, _) = World::open(&device, &settings).expect("it opens");
        assert!(world.read_all(chunk).expect("read") == content);
    }
}

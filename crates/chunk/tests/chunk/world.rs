//! An engine on a simulated device, driven to the end of what it wants, and a model of what it must hold.

use base::buffer::{Buffer, Pool};
use base::checksum::{BlockSums, crc32c};
use base::disk::{Caching, Disk, Done, FileKind, FileName, Op};
use base::env::Random;
use base::error::{Error, Result};
use base::id::{ChunkId, DeviceId, Generation, Owner};
use base::policy::Level;
use base::unit::{KIB, MIB, Time};
use bytes::Bytes;
use chunk::{Cell, Check, Effect, Engine, Opened, Reply, Request, Settings};
use sim::disk::{SimDevice, SimDisk};
use sim::random::SimRandom;
use std::collections::BTreeMap;
use std::time::Duration;

pub const DEVICE: DeviceId = DeviceId(0xD0);

/// Small segments, so that everything happens within a few MiB.
pub fn small(capacity: u64) -> Settings {
    let mut settings = Settings::for_capacity(capacity, Pool::new(8 << 20));
    settings.data_segment = 2 * MIB;
    settings.journal_segment = 256 * KIB;
    settings.checkpoint_bytes = 6 * MIB;
    settings.checkpoint_journal = 384 * KIB;
    settings.reserve = 4 * MIB;
    settings.tails_max = MIB;
    settings.group_max = 128 << 10;
    settings
}

/// Checkpoints are always under way, in many steps.
pub fn restless(capacity: u64) -> Settings {
    let mut settings = small(capacity);
    settings.checkpoint_bytes = 128 * KIB;
    settings.checkpoint_journal = 16 * KIB;
    settings.checkpoint_piece = 4096;
    settings
}

/// The file of the newest checkpoint and its number, if it is not the first one.
pub fn newest_checkpoint(device: &SimDevice) -> Option<FileName> {
    let is_valid = |name: &FileName| device.peek(*name)[..8] == *b"STORMCHK";
    let files = device.files().into_iter().map(|(name, _)| name);
    files.filter(|name| name.kind == FileKind::Checkpoint && name.number > 1 && is_valid(name)).max()
}

/// One process with the device open.
pub struct World {
    pub device: SimDevice,
    pub disk: SimDisk,
    pub engine: Engine<u64>,
    pub now: Time,
    pub in_flight: usize,
    next_tag: u64,
    /// Answers that nobody took yet.
    pub replies: BTreeMap<u64, Result<Reply>>,
    /// Everything that came out, folded into one number.
    pub history: u32,
    /// Writes and syncs that came out.
    pub counted: (usize, usize),
    /// Writes of files of this kind are not given to the disk: they are under way until the power goes.
    pub withheld: Option<FileKind>,
}

impl World {
    pub fn open(device: &SimDevice, settings: &Settings) -> Result<(World, Opened)> {
        let mut disk = device.attach();
        let (engine, opened) = Engine::open(&mut disk, settings.clone(), DEVICE, Time::ZERO)?;
        let world = World {
            device: device.clone(),
            disk,
            engine,
            now: Time::ZERO,
            in_flight: 0,
            next_tag: 0,
            replies: BTreeMap::new(),
            history: 0,
            counted: (0, 0),
            withheld: None,
        };
        Ok((world, opened))
    }

    pub fn submit(&mut self, request: Request) -> u64 {
        self.next_tag += 1;
        self.engine.submit(self.now, request, self.next_tag);
        self.next_tag
    }

    fn note(&mut self, text: &str) {
        self.history = crc32c(format!("{}{text}", self.history).as_bytes());
    }

    pub fn effects(&mut self) -> bool {
        let mut effects = Vec::new();
        self.engine.take_effects(&mut effects);
        let any = !effects.is_empty();
        for effect in effects {
            match effect {
                Effect::Disk { op: Op::Write { file, .. }, .. } if Some(file.kind) == self.withheld => {}
                Effect::Disk { token, op } => {
                    match &op {
                        Op::Write { file, offset, parts } => {
                            self.counted.0 += 1;
                            // How the bytes are cut into parts depends on addresses, which are not the seed's.
                            self.note(&format!("write {file} {offset} {}", crc32c(&parts.concat())));
                        }
                        Op::Sync { file } => {
                            self.counted.1 += 1;
                            self.note(&format!("sync {file}"));
                        }
                        other => self.note(&format!("{other:?}")),
                    }
                    self.in_flight += 1;
                    self.disk.submit(token, op);
                }
                Effect::Reply { tag, result } => {
                    match &result {
                        // Its checksum says as much as its bytes.
                        Ok(Reply::Data { crc, chunk_length, .. }) => self.note(&format!("{tag} {crc} {chunk_length}")),
                        other => self.note(&format!("{tag} {other:?}")),
                    }
                    self.replies.insert(tag, result);
                }
            }
        }
        any
    }

    /// One turn: effects out, finished operations in. False when nothing is left to do.
    pub fn turn(&mut self) -> bool {
        let any = self.effects();
        if self.in_flight == 0 || self.device.crashed() {
            return any && !self.device.crashed();
        }
        let mut done: Vec<Done> = Vec::new();
        self.disk.poll(None, &mut done);
        self.in_flight -= done.len();
        for done in done {
            self.engine.completed(self.now, done);
        }
        !self.device.crashed()
    }

    pub fn settle(&mut self) {
        while self.turn() {}
        // An engine at rest is not due, however often it is ticked: the thread of a device would go round and round. One that refuses what
        // waited too long is, until it has refused everything: each of that is one tick.
        let mut at_rest = 0;
        for _ in 0..1000 {
            if self.device.crashed() || self.engine.next_tick().is_none_or(|due| due > self.now) {
                return;
            }
            self.engine.tick(self.now);
            at_rest = if self.turn() { 0 } else { at_rest + 1 };
            while self.turn() {}
            if at_rest == 8 {
                break;
            }
        }
        panic!("it is at rest and due at {:?}, and it is {:?}", self.engine.next_tick(), self.now);
    }

    pub fn later(&mut self, delay: Duration) {
        self.now = self.now.after(delay);
        self.engine.tick(self.now);
    }

    /// The answer, if there is one before everything is at rest.
    pub fn try_call(&mut self, request: Request) -> Option<Result<Reply>> {
        let tag = self.submit(request);
        self.settle();
        self.replies.remove(&tag)
    }

    pub fn call(&mut self, request: Request) -> Result<Reply> {
        self.try_call(request).expect("an answer")
    }

    pub fn push(&mut self, owner: Owner, id: u128, bytes: &Bytes) -> Result<Reply> {
        self.call(append(owner, ChunkId(id), 0, bytes, Level::Synced, true))
    }

    pub fn read_all(&mut self, chunk: ChunkId) -> Result<Vec<u8>> {
        self.read_part(chunk, (0, 1 << 30))
    }

    /// Bytes `range` (offset, length) of a chunk; cells are restored.
    pub fn read_part(&mut self, chunk: ChunkId, range: (u64, u64)) -> Result<Vec<u8>> {
        let (ranges, caching) = (vec![range], Caching::Around);
        let expected = self.engine.answer_length(chunk, &ranges);
        match self.call(Request::Read { chunk, ranges, caching, check: Check::Here, cells: true })? {
            Reply::Data { parts, crc, cells, chunk_length, .. } => {
                let bytes = parts.concat();
                assert_eq!(crc32c(&bytes), crc, "the reply's checksum is not that of its bytes");
                let beyond = range.0.saturating_add(range.1).saturating_sub(chunk_length.max(range.0));
                assert_eq!(bytes.len() as u64, expected.saturating_sub(beyond), "what an answer takes is known before");
                Ok(restored(&bytes, &cells, range))
            }
            other => panic!("{other:?} in answer to a read"),
        }
    }
}

pub fn append(owner: Owner, chunk: ChunkId, offset: u64, bytes: &Bytes, level: Level, seal: bool) -> Request {
    let (payload, sums, generation) = (bytes.clone(), BlockSums::of(bytes), Generation(1));
    Request::Append { chunk, owner, generation, offset, payload, sums, level, seal, small_parts: false, cell: 0 }
}

/// An append of bytes that stand for `cell` bytes of the chunk: for themselves, again and again.
pub fn append_cell(chunk: ChunkId, (offset, cell): (u64, usize), bytes: &Bytes, request: Request) -> Request {
    match request {
        Request::Append { owner, level, seal, generation, small_parts, .. } => {
            let (payload, sums, cell) = (bytes.clone(), BlockSums::of(bytes), cell as u64);
            Request::Append { chunk, owner, generation, offset, payload, sums, level, seal, small_parts, cell }
        }
        other => panic!("{other:?} is no append"),
    }
}

/// What a cell of these bytes stands for.
pub fn stands_for(stored: &[u8], length: usize) -> Vec<u8> {
    stored.iter().copied().cycle().take(length).collect()
}

/// The bytes of a range from an answer that has them, or cells.
pub fn restored(mut answer: &[u8], cells: &[Cell], (offset, length): (u64, u64)) -> Vec<u8> {
    let (mut bytes, end) = (Vec::new(), offset.saturating_add(length));
    for cell in cells {
        let at = offset + bytes.len() as u64;
        let plain = cell.offset.saturating_sub(at) as usize;
        let (before, rest) = answer.split_at(plain);
        bytes.extend_from_slice(before);
        let (stored, rest) = rest.split_at(cell.stored as usize);
        answer = rest;
        let whole = stands_for(stored, cell.length as usize);
        let from = (offset + bytes.len() as u64 - cell.offset) as usize;
        let to = cell.length.min(end - cell.offset) as usize;
        bytes.extend_from_slice(&whole[from..to]);
    }
    bytes.extend_from_slice(answer);
    bytes
}

/// Bytes that name themselves: no two calls give the same.
pub fn bytes(random: &SimRandom, length: usize) -> Bytes {
    let mut buffer = Buffer::zeroed(length);
    let mut value = random.next();
    for piece in buffer.chunks_mut(8) {
        value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        piece.copy_from_slice(&value.to_le_bytes()[..piece.len()]);
    }
    // Sometimes at an odd address.
    if random.one_in(3) && length > 1 { Bytes::from(buffer.to_vec()) } else { buffer.freeze() }
}

/// Whether it is the error that was expected, for messages.
pub fn kind(result: &Result<Reply>) -> Option<base::error::ErrorKind> {
    result.as_ref().err().map(Error::kind)
}

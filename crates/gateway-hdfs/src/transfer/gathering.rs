//! Packets of a write as they come: read from the socket straight to where they go out from, compared with their checksums, and
//! gathered to pieces.

use super::connection::{Connection, gone, nonsense};
use crate::memory::{Memory, is_too_slow};
use crate::message::transfer::{
    CHECKSUM_CRC32, CHECKSUM_CRC32C, CHECKSUM_NULL, Checksum, HEARTBEAT, PACKET_LENGTHS, PacketHeader,
};
use base::buffer::{Buffer, Pool};
use base::checksum::{BlockSums, combine, crc32, crc32c};
use base::error::{Error, ErrorKind, Result};
use base::limit::{BLOCK, HDFS_LARGE_PACKETS_MAX, HDFS_PACKET_MAX, HDFS_WRITE_MEMORY_MAX, RECORD_PAYLOAD_MAX};
use bytes::Bytes;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};

/// Bytes of a packet's header at most: all its fields and some.
const HEADER_MAX: usize = 64;

/// Fewest bytes that one checksum may cover: as many as Hadoop's do unless somebody sets it otherwise.
const COVERED_MIN: u32 = 512;

/// Memory for checksums that is kept for the next packet: those of 2 MiB. What a larger one needs is given back.
const CHECKSUMS_KEPT: usize = 16 << 10;

/// How often a packet that is halfway there is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Memory for bytes that were received and are not written yet, over all connections.
pub struct Incoming {
    /// For packets of up to 1 MiB, as most clients send them.
    plain: Arc<Memory>,
    /// For larger ones.
    large: Arc<Memory>,
}

impl Default for Incoming {
    fn default() -> Incoming {
        Incoming {
            plain: Memory::new(HDFS_WRITE_MEMORY_MAX as usize),
            large: Memory::new(HDFS_LARGE_PACKETS_MAX as usize),
        }
    }
}

impl Incoming {
    /// The memory that so many bytes are taken from.
    fn of(&self, bytes: usize) -> &Arc<Memory> {
        if bytes <= RECORD_PAYLOAD_MAX { &self.plain } else { &self.large }
    }

    /// Whether somebody waits for some of it.
    pub fn is_wanted(&self) -> bool {
        self.plain.is_wanted() || self.large.is_wanted()
    }
}

/// Bytes in a row that are ready to go out.
pub struct Piece {
    /// At most 1 MiB.
    pub bytes: Bytes,
    /// Of these bytes.
    pub sums: BlockSums,
    /// Their memory, given back when they are written; the last piece of a buffer has it.
    pub memory: Option<OwnedSemaphorePermit>,
}

/// Packets on their way from the socket to the store.
pub struct Gathering {
    pool: Pool,
    memory: Arc<Incoming>,
    checksum: Checksum,
    /// Where bytes go, and the right to its memory.
    buffer: Option<(Buffer, OwnedSemaphorePermit)>,
    /// Bytes in the buffer that were compared, and their checksums.
    length: usize,
    sums: BlockSums,
    /// The end of the buffer before, for which there is no buffer yet.
    carried: Vec<u8>,
    ready: VecDeque<Piece>,
    /// The packet that is coming.
    coming: Option<Coming>,
    /// Its checksums, as they were sent.
    checksums: Vec<u8>,
    number: i64,
    /// How often the packet that is coming was looked at, and when it is again.
    looks: u32,
    look: Pin<Box<Sleep>>,
}

/// A packet whose header is there.
#[derive(Clone, Copy)]
struct Coming {
    header: PacketHeader,
    /// Bytes of its checksums, which come first.
    checksums: usize,
    /// How many bytes of both are there; those of the data lie behind `Gathering::length`.
    have: usize,
}

impl Gathering {
    /// Nothing yet. `memory` is for what is received and not written.
    pub fn new(pool: Pool, memory: Arc<Incoming>, checksum: Checksum) -> Result<Gathering> {
        let known = [CHECKSUM_CRC32, CHECKSUM_CRC32C].contains(&checksum.kind) && checksum.bytes >= COVERED_MIN;
        if checksum.kind != CHECKSUM_NULL && !known {
            let Checksum { kind, bytes } = checksum;
            return Err(nonsense(format!(
                "checksums of kind {kind} over {bytes} bytes are not served; let one cover {COVERED_MIN} or more"
            )));
        }
        Ok(Gathering {
            pool,
            memory,
            checksum,
            buffer: None,
            length: 0,
            sums: BlockSums::default(),
            carried: Vec::new(),
            ready: VecDeque::new(),
            coming: None,
            checksums: Vec::new(),
            number: 0,
            looks: 0,
            look: Box::pin(sleep(LOOK_EVERY)),
        })
    }

    /// Pieces that are full.
    pub fn full_pieces(&self) -> usize {
        self.ready.len()
    }

    /// The next full piece.
    pub fn full_piece(&mut self) -> Option<Piece> {
        self.ready.pop_front()
    }

    /// Whether `piece` has something: not while a packet is halfway there, whose bytes stand behind those that could go. The
    /// rest of it comes soon: no client waits for anything within a packet.
    pub fn has_piece(&self) -> bool {
        !self.ready.is_empty() || self.length > 0 && self.coming.is_none()
    }

    /// Whether a packet is halfway there.
    pub fn is_coming(&self) -> bool {
        self.coming.is_some()
    }

    /// The next piece, full or not.
    pub fn piece(&mut self) -> Option<Piece> {
        if self.ready.is_empty() && self.coming.is_none() {
            self.finish_buffer(0);
        }
        self.ready.pop_front()
    }

    /// The number of the packet that came last, or is coming.
    pub fn number(&self) -> i64 {
        self.number
    }

    /// Waits for the next packet, whose bytes are gathered when it is answered. May be dropped and called again with the same
    /// `next`: where in the block the next byte goes. What is there already is skipped. `Corrupt`: bytes do not match their
    /// checksums, and nothing of the packet is kept. `Busy`: the packet does not come on, and its memory is to be given up.
    pub async fn packet(&mut self, connection: &mut Connection, next: u64) -> Result<PacketHeader> {
        if self.coming.is_none() {
            let (header, checksums) = self.head(connection, next).await?;
            self.number = header.number;
            self.coming = Some(Coming { header, checksums, have: 0 });
            self.looks = 0;
        }
        let Some(Coming { header, checksums, mut have }) = self.coming else { unreachable!("a packet is coming") };
        let length = header.length as usize;
        if length > 0 {
            self.make_room(length, next, header.offset == next).await;
        }
        // Only now, with the right to the packet's memory: a client that says no more than a header holds nothing.
        self.checksums.resize(checksums, 0);
        while have < checksums + length {
            let target = if have < checksums {
                &mut self.checksums[have..]
            } else {
                let Some((buffer, _)) = &mut self.buffer else { unreachable!("there is room for the packet's bytes") };
                &mut buffer[self.length + have - checksums..self.length + length]
            };
            let staged = connection.staged();
            let got = staged.len().min(target.len());
            if got > 0 {
                target[..got].copy_from_slice(&staged[..got]);
                connection.take(got);
                have += got;
            } else {
                let got = tokio::select! {
                    biased;
                    got = connection.stream.read(target) => got.map_err(gone)?,
                    () = &mut self.look => {
                        self.look_at(have)?;
                        continue;
                    }
                };
                if got == 0 {
                    return Err(Error::new(ErrorKind::Unreachable, "the client closed the connection within a packet"));
                }
                have += got;
            }
            self.coming = Some(Coming { header, checksums, have });
        }
        self.coming = None;
        let taken = if length > 0 {
            let skip = usize::try_from(next - header.offset).map_or(length, |skip| skip.min(length));
            self.take(length, skip)
        } else {
            Ok(())
        };
        if self.checksums.capacity() > CHECKSUMS_KEPT {
            self.checksums = Vec::new();
        }
        taken.map(|()| header)
    }

    /// The rest of a packet is waited for, of which `have` bytes are there: it has to come in time, for it holds memory.
    fn look_at(&mut self, have: usize) -> Result<()> {
        self.look.set(sleep(LOOK_EVERY));
        self.looks = self.looks.saturating_add(1);
        let wanted = self.buffer.as_ref().is_some_and(|(buffer, _)| self.memory.of(buffer.len()).is_wanted());
        if is_too_slow(LOOK_EVERY * self.looks, have as u64, wanted) {
            let text = format!("the rest of a packet did not come for {} s; {have} bytes of it are there", self.looks);
            return Err(Error::new(ErrorKind::Busy, text));
        }
        Ok(())
    }

    /// Reads a packet's header, and says how many bytes of checksums follow it.
    async fn head(&mut self, connection: &mut Connection, next: u64) -> Result<(PacketHeader, usize)> {
        let lengths = connection.stage(PACKET_LENGTHS).await?;
        let following = u32::from_be_bytes([lengths[0], lengths[1], lengths[2], lengths[3]]) as usize;
        let head = PACKET_LENGTHS + usize::from(u16::from_be_bytes([lengths[4], lengths[5]]));
        if !(4..=HDFS_PACKET_MAX).contains(&following) || head > HEADER_MAX {
            return Err(nonsense(format!("a packet of {following} bytes behind a header of {head} came")));
        }
        let header = PacketHeader::decode(&connection.stage(head).await?[PACKET_LENGTHS..head]);
        let Some(header) = header else { return Err(nonsense("a packet's header cannot be read")) };
        let length = header.length as usize;
        let Some(checksums) = (following - 4).checked_sub(length) else {
            return Err(nonsense(format!("a packet of {following} bytes says that it holds {length}")));
        };
        let expected = match self.checksum {
            Checksum { kind: CHECKSUM_NULL, .. } => 0,
            Checksum { bytes, .. } => 4 * length.div_ceil(bytes as usize),
        };
        // Some clients leave them out.
        if checksums != 0 && checksums != expected {
            return Err(nonsense(format!("{checksums} bytes of checksums came with {length} bytes")));
        }
        let alive = header.number == HEARTBEAT;
        if alive && (length > 0 || header.last) {
            return Err(nonsense(format!("a sign of life came with {length} bytes, or as the last packet")));
        }
        // An empty one, too: what follows it would be taken for what was there before.
        if !alive && header.offset > next {
            let offset = header.offset;
            return Err(nonsense(format!(
                "a packet begins at byte {offset} of its block where byte {next} comes next"
            )));
        }
        connection.take(head);
        Ok((header, checksums))
    }

    /// Room for so many bytes behind those in the buffer, which end at `next` in the block. Waits while too much memory is in use.
    /// `whole`: none of them is there already.
    async fn make_room(&mut self, length: usize, next: u64, whole: bool) {
        // Behind a part of what a checksum covers, others could not be compared and summed in one pass.
        let odd = whole && !self.length.is_multiple_of(self.checksum.bytes.max(1) as usize);
        if let Some((buffer, _)) = &self.buffer {
            if self.length + length <= buffer.len() && !odd && !is_out_of_step(next, self.length) {
                return;
            }
            self.finish_buffer(if odd { 0 } else { self.beyond_bound(next) });
        }
        let room = (self.carried.len() + length).max(RECORD_PAYLOAD_MAX);
        let permit = self.memory.of(room).clone().take(room).await;
        let mut buffer = self.pool.take(room);
        self.length = self.carried.len();
        self.sums = BlockSums::of(&self.carried);
        buffer[..self.length].copy_from_slice(&self.carried);
        self.carried.clear();
        self.buffer = Some((buffer, permit));
    }

    /// Bytes of the buffer, which ends at `next` in the block, behind the last bound of the store's blocks: they go out with what comes
    /// next, so that it begins at a bound. None if there is no bound, or the next packet's checksums would not fit behind them.
    fn beyond_bound(&self, next: u64) -> usize {
        let beyond = (next % BLOCK as u64) as usize;
        let fits = beyond < self.length && beyond.is_multiple_of(self.checksum.bytes.max(1) as usize);
        if fits { beyond } else { 0 }
    }

    /// Compares the bytes of the packet that came, and counts them as there.
    fn take(&mut self, length: usize, skip: usize) -> Result<()> {
        let Some((buffer, _)) = &mut self.buffer else { unreachable!("the packet's bytes are in the buffer") };
        let Checksum { kind, bytes: covered } = self.checksum;
        let covered = covered as usize;
        let known = kind == CHECKSUM_CRC32C && !self.checksums.is_empty();
        if known && skip == 0 && BLOCK.is_multiple_of(covered) {
            let came = &buffer[self.length..self.length + length];
            let summed = sum_known(&mut self.sums, came, &self.checksums, covered);
            // Of what came before the damage the sums are made anew: rarer than keeping a copy of them for each packet.
            summed.inspect_err(|_| self.sums = BlockSums::of(&buffer[..self.length]))?;
        } else {
            if !self.checksums.is_empty() {
                let sum = if kind == CHECKSUM_CRC32C { crc32c } else { crc32 };
                let came = &buffer[self.length..self.length + length];
                compare(came, &self.checksums, covered, sum)?;
            }
            buffer.copy_within(self.length + skip..self.length + length, self.length);
            let mut rest = &buffer[self.length..self.length + length - skip];
            while !rest.is_empty() {
                let (part, behind) = rest.split_at((BLOCK - self.sums.length() % BLOCK).min(rest.len()));
                self.sums.add_known(crc32c(part), part.len());
                rest = behind;
            }
        }
        self.length += length - skip;
        Ok(())
    }

    /// What is in the buffer becomes pieces, but the last `carried` bytes, which the next buffer begins with.
    fn finish_buffer(&mut self, carried: usize) {
        let Some((mut buffer, memory)) = self.buffer.take() else { return };
        let (mut length, mut sums) = (std::mem::take(&mut self.length), std::mem::take(&mut self.sums));
        if length == 0 {
            return;
        }
        if carried > 0 {
            self.carried.extend_from_slice(&buffer[length - carried..length]);
            length -= carried;
            sums = sums.of_first(&buffer[..length]);
        }
        buffer.set_length(length);
        let mut bytes = buffer.freeze();
        if length <= RECORD_PAYLOAD_MAX {
            return self.ready.push_back(Piece { bytes, sums, memory: Some(memory) });
        }
        // A packet larger than a piece: rare, so its parts are summed anew.
        let mut memory = Some(memory);
        while !bytes.is_empty() {
            let part = bytes.split_to(bytes.len().min(RECORD_PAYLOAD_MAX));
            let (sums, memory) = (BlockSums::of(&part), if bytes.is_empty() { memory.take() } else { None });
            self.ready.push_back(Piece { bytes: part, sums, memory });
        }
    }
}

/// Whether a buffer of so many bytes that ends at byte `next` of its block began off the bounds of the store's blocks: what came before it
/// went out although nothing was behind it. If it goes out, up to such a bound, all behind it is read with its stored checksums.
fn is_out_of_step(next: u64, length: usize) -> bool {
    let begin = next.saturating_sub(length as u64);
    length >= BLOCK && !begin.is_multiple_of(BLOCK as u64)
}

/// Adds bytes behind those of `sums`, which end at a multiple of `covered`, if they match the checksums that came with them: each
/// block or part of one is passed over once, and compared with what its checksums make together. After an error the sums are those
/// of nothing.
fn sum_known(sums: &mut BlockSums, bytes: &[u8], checksums: &[u8], covered: usize) -> Result<()> {
    let (mut rest, mut checksums) = (bytes, checksums.chunks_exact(4));
    while !rest.is_empty() {
        let (run, behind) = rest.split_at((BLOCK - sums.length() % BLOCK).min(rest.len()));
        let mut together = 0;
        for (part, sum) in run.chunks(covered).zip(&mut checksums) {
            together = combine(together, u32::from_be_bytes([sum[0], sum[1], sum[2], sum[3]]), part.len() as u64);
        }
        if crc32c(run) != together {
            return Err(damaged(bytes.len()));
        }
        sums.add_known(together, run.len());
        rest = behind;
    }
    Ok(())
}

/// Compares bytes with the checksums that came with them, one by one.
fn compare(bytes: &[u8], checksums: &[u8], covered: usize, sum: fn(&[u8]) -> u32) -> Result<()> {
    for (part, expected) in bytes.chunks(covered).zip(checksums.chunks_exact(4)) {
        if sum(part).to_be_bytes() != *expected {
            return Err(damaged(bytes.len()));
        }
    }
    Ok(())
}

fn damaged(length: usize) -> Error {
    let text = format!("{length} bytes of a packet do not match their checksums; nothing of it was stored");
    Error::new(ErrorKind::Corrupt, text)
}

#[cfg(test)]
mod tests {
    use super::{CHECKSUM_CRC32C, Checksum, Gathering};
    use base::buffer::Pool;
    use base::checksum::BlockSums;
    use base::limit::BLOCK;
    use std::sync::Arc;

    /// Bytes in a packet as Java's client sends them.
    const PACKET: usize = 64_512;

    /// Where the pieces end that `count` packets become, of which the first has `first` bytes and goes out alone if `alone`. Each has its
    /// bytes and their checksums.
    async fn ends(count: usize, first: usize, alone: bool) -> Vec<u64> {
        let content = |end: u64, length: usize| -> Vec<u8> {
            (end - length as u64..end).map(|byte| (byte * 7 + byte / 1000) as u8).collect()
        };
        let checksum = Checksum { kind: CHECKSUM_CRC32C, bytes: 512 };
        let mut gathering = Gathering::new(Pool::new(0), Arc::default(), checksum).expect("it is served");
        let (mut next, mut end, mut ends) = (0, 0, Vec::new());
        for number in 0..count {
            let length = if number == 0 { first } else { PACKET };
            gathering.make_room(length, next, true).await;
            next += length as u64;
            let begin = gathering.length;
            let (buffer, _) = gathering.buffer.as_mut().expect("there is room");
            buffer[begin..begin + length].copy_from_slice(&content(next, length));
            gathering.take(length, 0).expect("there is nothing to compare it with");
            while let Some(piece) = if alone && number == 0 { gathering.piece() } else { gathering.full_piece() } {
                end += piece.bytes.len() as u64;
                assert_eq!(piece.bytes, content(end, piece.bytes.len()));
                assert_eq!(piece.sums, BlockSums::of(&piece.bytes));
                ends.push(end);
            }
        }
        ends
    }

    /// Sixteen packets are a piece that ends at a bound of the store's blocks. Behind a packet that went out alone a short piece leads back
    /// to such bounds, and all later ones lie on them; so they do if a packet has another length, as Java's first one of each later block.
    #[tokio::test]
    async fn in_step() {
        let (packets, bound) = (|count: usize| (count * PACKET) as u64, |end: u64| end / BLOCK as u64 * BLOCK as u64);
        assert!(packets(16).is_multiple_of(BLOCK as u64));
        assert_eq!(ends(40, PACKET, false).await, [packets(16), packets(32)]);
        let (second, third) = (bound(packets(2)), bound(packets(18)));
        assert_eq!(ends(40, PACKET, true).await, [packets(1), second, third, bound(packets(34))]);
        let longer = |count| bound(packets(count) + 512);
        assert_eq!(ends(40, PACKET + 512, false).await, [longer(16), longer(32)]);
    }
}

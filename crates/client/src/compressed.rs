//! Chunks of bags that are compressed: what is sent and stored instead of a chunk, and the chunk again.

mod format;

use base::buffer::{Buffer, Pool};
use base::checksum::{combine, crc32c};
use base::error::{Error, ErrorKind, Result};
use base::limit::{BAG_HEADER, SMALL_PAYLOAD_MAX};
use base::policy::Compression;
use bytes::Bytes;
use format::Header;
use lz4_flex::block;
use net::Payload;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Zstandard's level: about as quick as LZ4 to compress with, and tighter.
const ZSTD_LEVEL: i32 = 1;

/// Where chunks are compressed, and made what they were: in threads of their own, for 4 MiB take milliseconds, and no more at
/// once than there are processors.
pub(crate) struct Compressor {
    turns: Semaphore,
    pool: Pool,
}

impl Compressor {
    /// Takes memory from `pool`.
    pub(crate) fn new(pool: Pool) -> Compressor {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Compressor { turns: Semaphore::new(processors), pool }
    }

    /// What is pushed instead of a chunk of 1 byte to `BAG_CHUNK_MAX` into a bag whose chunks are compressed so.
    pub(crate) async fn shrink(&self, how: Compression, chunk: Bytes) -> Result<Payload> {
        let pool = self.pool.clone();
        let length = chunk.len();
        self.work(length, move || shrink(how, chunk, &pool)).await
    }

    /// The chunk again, from what was pulled. `Corrupt` if it is not what was pushed.
    pub(crate) async fn restore(&self, pulled: Bytes) -> Result<Bytes> {
        let pool = self.pool.clone();
        let length = Header::decode(&pulled).map_or(0, |header| header.length as usize);
        self.work(length, move || restore(&pulled, &pool)).await?
    }

    /// Does what is soon done here, and other work on so many bytes elsewhere, when it is its turn.
    async fn work<T: Send + 'static>(&self, bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        if bytes <= SMALL_PAYLOAD_MAX {
            return Ok(work());
        }
        let Ok(_turn) = self.turns.acquire().await else { unreachable!("nobody closes the turns") };
        spawn_blocking(work).await.map_err(|error| {
            let text = format!("compressing a chunk was cut off: {error}; what is stored is safe; do it again");
            Error::new(ErrorKind::Io, text)
        })
    }
}

fn shrink(how: Compression, chunk: Bytes, pool: &Pool) -> Payload {
    let crc = crc32c(&chunk);
    // `BAG_CHUNK_MAX` is far below 4 GiB.
    let header = Header { how, length: chunk.len() as u32, crc };
    if let Some(pressed) = compress(header, &chunk, pool) {
        return Payload::new(pressed);
    }
    let header = Bytes::copy_from_slice(&Header { how: Compression::None, ..header }.encode());
    let crc = combine(crc32c(&header), crc, chunk.len() as u64);
    Payload::with_crc(vec![header, chunk], crc)
}

/// Header and compressed bytes, in memory no larger than that; none if they are no fewer than the chunk's.
fn compress(header: Header, chunk: &[u8], pool: &Pool) -> Option<Bytes> {
    let room = match header.how {
        Compression::None => return None,
        Compression::Lz4 => block::get_maximum_output_size(chunk.len()),
        Compression::Zstd => chunk.len(),
    };
    let mut scratch = pool.take(room);
    let length = match header.how {
        Compression::None => return None,
        Compression::Lz4 => block::compress_into(chunk, &mut scratch).ok()?,
        // That there is too little room is an error, too.
        Compression::Zstd => zstd::bulk::compress_to_buffer(chunk, &mut scratch[..], ZSTD_LEVEL).ok()?,
    };
    if length >= chunk.len() {
        return None;
    }
    // A quick copy, and the scratch memory is free for the next chunk while this one waits for its device.
    let mut pressed = pool.take(BAG_HEADER + length);
    pressed[..BAG_HEADER].copy_from_slice(&header.encode());
    pressed[BAG_HEADER..].copy_from_slice(&scratch[..length]);
    Some(pressed.freeze())
}

/// The chunk again, from what a bag whose chunks are compressed has stored.
pub fn restore(stored: &Bytes, pool: &Pool) -> Result<Bytes> {
    let Some(header) = Header::decode(stored) else {
        return Err(damaged("it does not begin as a compressed chunk does"));
    };
    let body = stored.slice(BAG_HEADER..);
    let length = header.length as usize;
    let chunk = match header.how {
        Compression::None => body,
        // As much memory as the header says: `BAG_CHUNK_MAX` at most.
        Compression::Lz4 => decompress(length, pool, |chunk| block::decompress_into(&body, chunk).ok())?,
        Compression::Zstd => decompress(length, pool, |chunk| zstd::bulk::decompress_to_buffer(&body[..], chunk).ok())?,
    };
    if chunk.len() != length {
        return Err(damaged(format!("it has {} bytes, {length} were pushed", chunk.len())));
    }
    let crc = crc32c(&chunk);
    if crc != header.crc {
        return Err(damaged(format!("its checksum is {crc:08x} and was {:08x} when it was pushed", header.crc)));
    }
    Ok(chunk)
}

fn decompress(length: usize, pool: &Pool, into: impl FnOnce(&mut [u8]) -> Option<usize>) -> Result<Bytes> {
    let mut chunk: Buffer = pool.take(length);
    let made = into(&mut chunk).ok_or_else(|| damaged("it cannot be decompressed"))?;
    chunk.set_length(made.min(length));
    Ok(chunk.freeze())
}

fn damaged(what: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "what came is not what was pushed: {what}; it was not handed out and stays in the bag; pull again, and if that repeats, look for damage with `stormwell device scrub`"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::{restore, shrink};
    use base::buffer::Pool;
    use base::env::Random;
    use base::error::ErrorKind;
    use base::limit::{BAG_CHUNK_MAX, BAG_HEADER};
    use base::policy::Compression;
    use bytes::Bytes;
    use sim::random::SimRandom;

    const BOTH: [Compression; 2] = [Compression::Lz4, Compression::Zstd];

    fn noise(length: usize, seed: u64) -> Bytes {
        let random = SimRandom::new(seed);
        (0..length).map(|_| random.next() as u8).collect()
    }

    fn words(length: usize) -> Bytes {
        (0..length).map(|at| b"storm and well, "[at % 16].wrapping_add((at / 999) as u8)).collect()
    }

    fn stored(how: Compression, chunk: &Bytes, pool: &Pool) -> Bytes {
        let payload = shrink(how, chunk.clone(), pool);
        payload.verify().expect("its checksum is that of its bytes");
        payload.into_bytes()
    }

    /// What was pushed comes back, whatever it is; what does not get smaller grows by its header and no more.
    #[test]
    fn round_trips() {
        let pool = Pool::new(64 << 20);
        for how in BOTH {
            for length in [1, 2, 15, 16, 17, 100, 4096, 70_000, 1 << 20, BAG_CHUNK_MAX as usize] {
                for chunk in [Bytes::from(vec![0; length]), words(length), noise(length, 3)] {
                    let stored = stored(how, &chunk, &pool);
                    assert!(stored.len() <= length + BAG_HEADER, "{how:?}: {length} became {}", stored.len());
                    assert!(restore(&stored, &pool).expect("it is whole") == chunk, "{how:?}, {length} bytes");
                }
            }
            assert!(stored(how, &Bytes::from(vec![0; 1 << 20]), &pool).len() < 1 << 13, "{how:?} of zeros");
            assert!(stored(how, &words(1 << 20), &pool).len() < 1 << 17, "{how:?} of words");
            assert_eq!(stored(how, &noise(5000, 4), &pool).len(), 5000 + BAG_HEADER, "{how:?} of noise");
        }
    }

    /// A bit that flipped anywhere is noticed, and the chunk is not handed out.
    #[test]
    fn flipped_bits_are_noticed() {
        let pool = Pool::new(1 << 20);
        for how in BOTH {
            for chunk in [words(300), noise(100, 5), Bytes::from_static(b"x")] {
                let stored = stored(how, &chunk, &pool);
                for bit in 0..stored.len() * 8 {
                    let mut bytes = stored.to_vec();
                    bytes[bit / 8] ^= 1 << (bit % 8);
                    match restore(&bytes.into(), &pool) {
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt),
                        // The compressed form may say the same with other bits.
                        Ok(came) => assert_eq!(came, chunk, "{how:?}, bit {bit}"),
                    }
                }
                for length in 0..stored.len() {
                    assert!(
                        restore(&stored.slice(..length), &pool).is_err_and(|error| error.kind() == ErrorKind::Corrupt)
                    );
                }
            }
        }
    }

    /// Whatever bytes a store gives, it is an error or the chunk that their header names; nothing panics.
    #[test]
    fn fuzz_stored_chunks() {
        let pool = Pool::new(64 << 20);
        for seed in sim::fuzz::seeds(2000) {
            let random = SimRandom::new(seed);
            let chunk = if random.one_in(2) {
                words(1 + random.below(3000) as usize)
            } else {
                noise(1 + random.below(300) as usize, seed)
            };
            let how = BOTH[random.below(2) as usize];
            let mut bytes = stored(how, &chunk, &pool).to_vec();
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len() as u64) as usize;
                match random.below(4) {
                    0 => bytes[at] = random.next() as u8,
                    1 => bytes.truncate(at.max(1)),
                    2 => bytes.push(random.next() as u8),
                    // The length that sizes memory.
                    _ if bytes.len() > 12 => bytes[8 + random.below(4) as usize] = random.next() as u8,
                    _ => bytes[at] ^= 0x80,
                }
            }
            if random.one_in(10) {
                bytes = noise(random.below(100) as usize, seed).to_vec();
            }
            if let Ok(came) = restore(&bytes.into(), &pool) {
                assert_eq!(came, chunk, "seed {seed}");
            }
        }
    }
}

//! Chunks of bags and cells of files that are compressed: what is sent and stored instead of them, and they themselves again.

mod format;

use base::buffer::{Buffer, Pool};
use base::checksum::{combine, crc32c};
use base::error::{Error, ErrorKind, Result};
use base::fault::contained_work;
use base::limit::{BAG_HEADER, COMPRESSED_PART, SMALL_PAYLOAD_MAX};
use base::policy::Compression;
use bytes::Bytes;
use format::Header;
use lz4_flex::block;
use net::Payload;
use net::cells::Stored;
use tokio::runtime::{Handle, RuntimeFlavor};
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

    /// What is stored instead of these bytes of a file, at most `RECORD_PAYLOAD_MAX`; none if it would not be much smaller.
    pub(crate) async fn compress_cell(&self, how: Compression, bytes: Bytes) -> Result<Option<Bytes>> {
        let pool = self.pool.clone();
        self.work(bytes.len(), move || compress_cell(how, &bytes, &pool)).await
    }

    /// The bytes of a file again, from what is stored instead of them. `Corrupt` if they are not what was written.
    pub(crate) async fn restore_cell(&self, stored: Stored) -> Result<Bytes> {
        let pool = self.pool.clone();
        self.work(stored.cell as usize, move || restore_cell(&stored, &pool)).await?
    }

    /// Does work on few bytes in place, and other work on a thread for blocking work, when it is its turn. On a current-thread runtime, which
    /// only simulations and tests have, everything is done in place: a history must not depend on how fast another thread is.
    async fn work<T: Send + 'static>(&self, bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        if bytes <= SMALL_PAYLOAD_MAX || Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
            return Ok(work());
        }
        let Ok(_turn) = self.turns.acquire().await else { unreachable!("nobody closes the turns") };
        // Bytes that somebody made are looked at there, for a connection of a gateway maybe.
        spawn_blocking(|| contained_work(work)).await.map_err(|error| {
            let text = format!("compressing a chunk was cut off: {error}; what is stored is safe; do it again");
            Error::new(ErrorKind::Io, text)
        })
    }
}

fn shrink(how: Compression, chunk: Bytes, pool: &Pool) -> Payload {
    let crc = crc32c(&chunk);
    // `BAG_CHUNK_MAX` is far below 4 GiB.
    let header = Header { how, length: chunk.len() as u32, crc };
    if let Some(compressed) = compress(header, &chunk, pool) {
        return Payload::new(compressed);
    }
    let header = Bytes::copy_from_slice(&Header { how: Compression::None, ..header }.encode());
    let crc = combine(crc32c(&header), crc, chunk.len() as u64);
    Payload::with_crc(vec![header, chunk], crc)
}

fn compress_cell(how: Compression, bytes: &[u8], pool: &Pool) -> Option<Bytes> {
    // A cell is far below 4 GiB.
    let header = Header { how, length: bytes.len() as u32, crc: crc32c(bytes) };
    compress(header, bytes, pool).filter(|compressed| compressed.len() <= bytes.len() - bytes.len() / COMPRESSED_PART)
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
    let mut compressed = pool.take(BAG_HEADER + length);
    compressed[..BAG_HEADER].copy_from_slice(&header.encode());
    compressed[BAG_HEADER..].copy_from_slice(&scratch[..length]);
    Some(compressed.freeze())
}

/// The chunk again, from what a bag whose chunks are compressed has stored.
pub fn restore(stored: &Bytes, pool: &Pool) -> Result<Bytes> {
    made(stored, pool).map_err(|what| {
        Error::new(
            ErrorKind::Corrupt,
            format!(
                "what came is not what was pushed: {what}; it was not handed out and stays in the bag; pull again, and if that repeats, look for damage with `stormwell device scrub`"
            ),
        )
    })
}

/// Bytes of a file again, from what is stored instead of them.
pub fn restore_cell(stored: &Stored, pool: &Pool) -> Result<Bytes> {
    let restored = made(&stored.bytes, pool).and_then(|bytes| match bytes.len() as u64 == stored.cell {
        true => Ok(bytes),
        false => Err(format!("it has {} bytes, {} were written", bytes.len(), stored.cell)),
    });
    restored.map_err(|what| {
        Error::new(
            ErrorKind::Corrupt,
            format!(
                "what is stored of bytes {}..{} of a chunk is not what was written: {what}; none of it was handed out, the rest can be read; look for damage with `stormwell device scrub`",
                stored.offset,
                stored.end()
            ),
        )
    })
}

/// What was compressed, or what is wrong.
fn made(stored: &Bytes, pool: &Pool) -> std::result::Result<Bytes, String> {
    let Some(header) = Header::decode(stored) else {
        return Err("it does not begin as something compressed does".to_string());
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
        return Err(format!("it has {} bytes and had {length}", chunk.len()));
    }
    let crc = crc32c(&chunk);
    if crc != header.crc {
        return Err(format!("its checksum is {crc:08x} and was {:08x}", header.crc));
    }
    Ok(chunk)
}

fn decompress(
    length: usize,
    pool: &Pool,
    into: impl FnOnce(&mut [u8]) -> Option<usize>,
) -> std::result::Result<Bytes, String> {
    let mut chunk: Buffer = pool.take(length);
    let made = into(&mut chunk).ok_or_else(|| "it cannot be decompressed".to_string())?;
    chunk.set_length(made.min(length));
    Ok(chunk.freeze())
}

#[cfg(test)]
mod tests {
    use super::{Compressor, compress_cell, restore, restore_cell, shrink};
    use base::buffer::Pool;
    use base::env::Random;
    use base::error::ErrorKind;
    use base::limit::{BAG_CHUNK_MAX, BAG_HEADER};
    use base::policy::Compression;
    use bytes::Bytes;
    use net::cells::Stored;
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

    /// A fault in a compressor ends what it was doing, and no more.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn faults_are_contained() {
        let compressor = Compressor::new(Pool::new(1 << 20));
        let before = base::fault::contained_faults();
        let ended: Result<(), _> = compressor.work(1 << 20, || panic!("planted")).await;
        assert!(ended.is_err_and(|error| error.kind() == ErrorKind::Io));
        assert!(base::fault::contained_faults() > before, "it would have ended the process");
        assert_eq!(compressor.work(1 << 20, || 7).await, Ok(7));
    }

    /// A cell of a file comes back, is noticed if it is of another length, and is not made where it would hardly be smaller.
    #[test]
    fn cells() {
        let pool = Pool::new(64 << 20);
        for how in BOTH {
            for bytes in [Bytes::from(vec![0; 1 << 20]), words(1 << 16)] {
                let compressed = compress_cell(how, &bytes, &pool).expect("it gets smaller");
                let cell = bytes.len() as u64;
                let stored = Stored { offset: 5, bytes: compressed, cell };
                assert!(restore_cell(&stored, &pool).expect("it is whole") == bytes, "{how:?}");
                for cell in [0, cell - 1, cell + 1] {
                    let other = restore_cell(&Stored { cell, ..stored.clone() }, &pool);
                    assert!(other.is_err_and(|error| error.kind() == ErrorKind::Corrupt));
                }
            }
            assert_eq!(compress_cell(how, &noise(1 << 16, 7), &pool), None);
            // Noise of which a twentieth is zeros gets smaller, and not by a sixteenth.
            let hardly = [noise(62_259, 8), Bytes::from(vec![0; 3277])].concat();
            assert_eq!(compress_cell(how, &hardly, &pool), None, "{how:?}");
            let rather = [noise(60_000, 8), Bytes::from(vec![0; 5536])].concat();
            assert!(compress_cell(how, &rather, &pool).is_some(), "{how:?}");
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

//! What the index takes of memory for each chunk and each run, counted by the allocator.

use super::{Index, Run};
use base::env::Random;
use base::id::{BagId, ChunkId, Generation, Owner};
use sim::random::SimRandom;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// What a chunk and each of its runs may take. Counted is everything that the index keeps of sealed chunks at rest: entries, the
/// places of their runs, order, and the allocator's own 8 bytes and rounding. Checksums of blocks are not in memory, they lie in
/// the headers of the records. What is kept of an open chunk (`Open`, its tail), and of what changed since the last checkpoint
/// (`dirty`), goes when the chunk is sealed and the checkpoint is taken.
const CHUNK_BYTES: u64 = 64;
const RUN_BYTES: u64 = 16;
/// What a bag may take besides: which leaves hold chunks of it. Where there are many leaves that is little beside them.
const BAG_BYTES: u64 = 1 << 10;

/// Counts what the thread has, as malloc hands it out: with 8 bytes more, in multiples of 16, at least 32.
struct Counting;

thread_local! {
    static HELD: Cell<u64> = const { Cell::new(0) };
}

fn taken(layout: Layout) -> u64 {
    (layout.size() as u64 + 8).next_multiple_of(16).max(32)
}

// SAFETY: everything is handed to the system's allocator as it came; the count lies beside it and allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.with(|held| held.set(held.get().wrapping_add(taken(layout))));
        // SAFETY: the caller keeps the promises that it made to us.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.with(|held| held.set(held.get().wrapping_sub(taken(layout))));
        // SAFETY: the caller keeps the promises that it made to us.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn held() -> u64 {
    HELD.with(Cell::get)
}

/// A sealed chunk of so many runs, as pushes make it.
fn push(index: &mut Index, id: ChunkId, runs: u32) {
    let owner = Owner::Bag(BagId(7));
    index.create(id, owner, Generation(1), 1);
    if let Some(chunk) = index.chunk_mut(id) {
        chunk.length = runs << 20;
        index.live += u64::from(runs << 20);
    }
    for place in 0..runs {
        let run = Run::new(place << 20, (place, 257 * place), 1 << 20, 0);
        index.record_begun(id, run);
        if place + 1 == runs {
            index.seal(id, 99);
        }
    }
    for place in 0..runs {
        let run = Run::new(place << 20, (place, 257 * place), 1 << 20, 0);
        assert!(index.record_written(id, 1, run));
    }
    index.close(id);
}

fn assert_small(what: &str, before: u64, chunks: u64, runs: u64) {
    let (bytes, most) = (held().wrapping_sub(before), chunks * CHUNK_BYTES + runs * RUN_BYTES + BAG_BYTES);
    let each = |bytes: u64| bytes as f64 / chunks as f64;
    assert!(bytes <= most, "{what}: {:.1} bytes for a chunk, at most {:.1}", each(bytes), each(most));
}

/// A chunk takes at most 64 bytes of memory and 16 for each run, and their bag a kibibyte, whatever the order in which chunks come, after most of them
/// were deleted, and when they were read from a checkpoint.
#[test]
fn chunks_and_runs_are_small() {
    for (count, runs) in [(100_000u64, 1u32), (40_000, 4), (4_000, 64)] {
        for random in [true, false] {
            let source = SimRandom::new(u64::from(runs));
            let before = held();
            let mut index = Index::default();
            let mut ids = Vec::new();
            for number in 0..count {
                let id = if random { source.wide() } else { u128::from(number) << 64 };
                ids.push(ChunkId(id));
                push(&mut index, ChunkId(id), runs);
            }
            let what = format!("{runs} run(s), {}", if random { "random ids" } else { "rising ids" });
            let own = (ids.capacity() * size_of::<ChunkId>() + 16) as u64;
            index.begin_snapshot(true);
            let mut body = index.encode_head(&[]);
            assert!(index.write_snapshot(&mut body, usize::MAX));
            index.end_snapshot(true);
            let with = body.capacity() as u64 + 16;
            assert_small(&what, before.wrapping_add(own + with), count, count * u64::from(runs));
            for (place, id) in ids.iter().enumerate() {
                if place % 10 != 3 {
                    assert_eq!(index.remove(*id).len(), runs as usize);
                }
            }
            index.all_is_kept();
            assert_small(
                &format!("{what}, 90 % deleted"),
                before.wrapping_add(own + with),
                count / 10,
                count / 10 * u64::from(runs),
            );
            drop(index);
            let mut index = Index::default();
            assert!(index.decode(&body, crate::format::VERSION).is_ok());
            index.all_is_kept();
            assert_small(
                &format!("{what}, from a checkpoint"),
                before.wrapping_add(own + with),
                count,
                count * u64::from(runs),
            );
        }
    }
}

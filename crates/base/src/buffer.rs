//! Aligned memory that goes from socket to device and back without a copy, and the pool that keeps it warm.

use crate::limit::BLOCK;
use bytes::Bytes;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Bytes in memory that starts at a multiple of `BLOCK` and has room for a multiple of `BLOCK`.
/// All of the room is initialised, so that a device may write any of it out.
pub struct Buffer {
    /// Taken out only while the buffer is dropped.
    memory: Option<Memory>,
    length: usize,
    pool: Weak<Shelves>,
}

/// Aligned, initialised memory that frees itself.
struct Memory {
    /// What the allocator or the kernel gave.
    origin: NonNull<u8>,
    /// The first multiple of the alignment in it.
    start: NonNull<u8>,
    room: usize,
}

// SAFETY: Memory owns what it points at alone, like a Vec<u8>.
unsafe impl Send for Memory {}
// SAFETY: shared access gives out only shared slices.
unsafe impl Sync for Memory {}

/// Memory of this size and more lies in huge pages where the kernel has them: a device then takes 1 MiB as one segment
/// instead of 256 (a virtio disk splits what has more than 254), and the kernel pins and the processor translates 1 page
/// instead of 512.
const HUGE_PAGE: usize = 2 << 20;

impl Memory {
    /// One block more than the room, with no alignment of its own: the allocator then hands out zeroed pages untouched,
    /// while for an aligned wish it would write every byte, at a page fault for every 4 KiB.
    fn layout(room: usize) -> Layout {
        match room.checked_add(BLOCK).map(|size| Layout::from_size_align(size, 1)) {
            Some(Ok(layout)) => layout,
            _ => panic!("a buffer of {room} bytes was asked for"),
        }
    }

    fn allocate(room: usize) -> Memory {
        let layout = Memory::layout(room);
        if room >= HUGE_PAGE {
            return Memory::map(room).unwrap_or_else(|| handle_alloc_error(layout));
        }
        // SAFETY: the layout's size is at least a block, so it is not zero.
        let origin = unsafe { alloc_zeroed(layout) };
        let Some(origin) = NonNull::new(origin) else { handle_alloc_error(layout) };
        // SAFETY: the offset is below BLOCK, and the allocation is BLOCK bytes longer than the room.
        let start = unsafe { origin.add(origin.as_ptr().align_offset(BLOCK)) };
        Memory { origin, start, room }
    }

    /// Fresh pages of zeros that begin at a huge page, and the wish that they be huge.
    fn map(room: usize) -> Option<Memory> {
        let (read_write, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: asks for new pages anywhere; touches none that exist.
        let mapped =
            unsafe { libc::mmap(std::ptr::null_mut(), room.checked_add(HUGE_PAGE)?, read_write, private, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return None;
        }
        let origin = NonNull::new(mapped.cast::<u8>())?;
        // SAFETY: the offset is below HUGE_PAGE, and the mapping is HUGE_PAGE bytes longer than the room.
        let start = unsafe { origin.add(origin.as_ptr().align_offset(HUGE_PAGE)) };
        // Miri, which runs the tests of this file in the nightly set, knows no advice.
        if !cfg!(miri) {
            // SAFETY: the range lies in the mapping made above. A kernel that refuses leaves small pages, which do as well.
            unsafe { libc::madvise(start.as_ptr().cast(), room, libc::MADV_HUGEPAGE) };
        }
        Some(Memory { origin, start, room })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.room >= HUGE_PAGE {
            // SAFETY: `map` made this mapping with this length, and it is given up here, once.
            unsafe { libc::munmap(self.origin.as_ptr().cast(), self.room + HUGE_PAGE) };
        } else {
            // SAFETY: `origin` was allocated with this layout and is given up here, once.
            unsafe { dealloc(self.origin.as_ptr(), Memory::layout(self.room)) }
        }
    }
}

impl Buffer {
    /// `length` zero bytes, outside any pool.
    pub fn zeroed(length: usize) -> Buffer {
        let memory = Memory::allocate(length.max(1).next_multiple_of(BLOCK));
        Buffer { memory: Some(memory), length, pool: Weak::new() }
    }

    /// A copy of `bytes`, outside any pool.
    pub fn copy_of(bytes: &[u8]) -> Buffer {
        let mut buffer = Buffer::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    fn memory(&self) -> &Memory {
        match &self.memory {
            Some(memory) => memory,
            None => unreachable!("memory is taken out only by drop"),
        }
    }

    /// Bytes that fit without allocating: a multiple of `BLOCK`.
    pub fn room(&self) -> usize {
        self.memory().room
    }

    /// Makes it `length` bytes long, which must fit in `room`. Bytes that appear have the value last written there.
    pub fn set_length(&mut self, length: usize) {
        assert!(length <= self.room(), "{length} bytes do not fit in a buffer of {}", self.room());
        self.length = length;
    }

    /// The same bytes, shared and unchangeable; the memory goes back to its pool with the last share.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let (Some(shelves), Some(memory)) = (self.pool.upgrade(), self.memory.take()) {
            shelves.put_back(memory);
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points at `room` initialised bytes, and `length <= room`.
        unsafe { std::slice::from_raw_parts(self.memory().start.as_ptr(), self.length) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.memory().start.as_ptr(), self.length) }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} of {} bytes)", self.length, self.room())
    }
}

/// Whether a device can write these bytes as they lie: address and length are multiples of `BLOCK`.
pub fn is_aligned(bytes: &[u8]) -> bool {
    (bytes.as_ptr() as usize).is_multiple_of(BLOCK) && bytes.len().is_multiple_of(BLOCK)
}

/// Gives out buffers and keeps those that come back, up to a bound. Fresh memory costs a page fault for every 4 KiB:
/// about a fifth of a second for a GiB, which is why large buffers are worth keeping.
#[derive(Clone)]
pub struct Pool {
    shelves: Arc<Shelves>,
}

/// Buffers by room (`shelf_for`).
struct Shelves {
    idle: Mutex<Idle>,
    idle_max: usize,
}

struct Idle {
    shelves: [Vec<Memory>; SHELVES],
    bytes: usize,
}

/// Four for each power of two of blocks: 4 KiB to 28 MiB.
const SHELVES: usize = 52;

/// The shelf for so many blocks, and the blocks of its buffers: at most a quarter more, as a chunk read with its headers
/// is a little longer than a power of two.
fn shelf_for(blocks: usize) -> (usize, usize) {
    let power = 1 << blocks.ilog2();
    let step = (power / 4).max(1);
    let rounded = blocks.next_multiple_of(step);
    (4 * rounded.ilog2() as usize + 4 * (rounded % (1 << rounded.ilog2())) / (1 << rounded.ilog2()), rounded)
}

impl Pool {
    /// A pool that keeps at most `idle_max` bytes for later.
    pub fn new(idle_max: usize) -> Pool {
        let idle = Idle { shelves: [const { Vec::new() }; SHELVES], bytes: 0 };
        Pool { shelves: Arc::new(Shelves { idle: Mutex::new(idle), idle_max }) }
    }

    /// A buffer of `length` bytes, whose values are whatever was there before.
    pub fn take(&self, length: usize) -> Buffer {
        let (shelf, blocks) = shelf_for(length.div_ceil(BLOCK).max(1));
        if shelf >= SHELVES {
            return Buffer::zeroed(length);
        }
        let kept = {
            let mut idle = self.shelves.idle.lock().unwrap_or_else(PoisonError::into_inner);
            let kept = idle.shelves[shelf].pop();
            if let Some(memory) = &kept {
                idle.bytes -= memory.room;
            }
            kept
        };
        let memory = kept.unwrap_or_else(|| Memory::allocate(blocks * BLOCK));
        Buffer { memory: Some(memory), length, pool: Arc::downgrade(&self.shelves) }
    }

    /// Bytes kept for later.
    pub fn idle_bytes(&self) -> usize {
        self.shelves.idle.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }
}

impl Shelves {
    /// Keeps the memory if there is room for it.
    fn put_back(&self, memory: Memory) {
        let (shelf, _) = shelf_for(memory.room / BLOCK);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.bytes + memory.room <= self.idle_max {
            idle.bytes += memory.room;
            idle.shelves[shelf].push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Buffer, Pool, SHELVES, is_aligned, shelf_for};

    /// Every length has a shelf of its own size class: never too small, never wasting more than a quarter.
    #[test]
    fn shelves_fit() {
        let mut last = 0;
        for blocks in 1..=7 * 1024 {
            let (shelf, rounded) = shelf_for(blocks);
            assert!(rounded >= blocks && rounded <= blocks + blocks.div_ceil(4), "{blocks} blocks in {rounded}");
            assert_eq!(shelf_for(rounded), (shelf, rounded));
            assert!(shelf >= last && shelf < SHELVES, "{blocks} blocks on shelf {shelf} after {last}");
            last = shelf;
        }
        assert!(shelf_for(1028) == (41, 1280) && shelf_for(1024) == (40, 1024));
    }

    /// Memory comes back to the pool with the last share of its bytes, and is given out again.
    #[test]
    fn memory_comes_back() {
        let pool = Pool::new(64 << 10);
        let mut buffer = pool.take(5000);
        buffer[4999] = 7;
        assert_eq!((buffer.len(), buffer.room()), (5000, 8192));
        let address = buffer.as_ptr();
        let shared = buffer.freeze();
        let part = shared.slice(4096..);
        drop(shared);
        assert_eq!(pool.idle_bytes(), 0);
        assert_eq!(part[903], 7);
        drop(part);
        assert_eq!(pool.idle_bytes(), 8192);
        assert_eq!(pool.take(6000).as_ptr(), address);
    }

    /// The pool keeps no more than its bound, survives its handle, and serves odd sizes.
    #[test]
    fn bounds() {
        let pool = Pool::new(8192);
        let (a, b) = (pool.take(8192), pool.take(8192));
        drop(a);
        drop(b);
        assert_eq!(pool.idle_bytes(), 8192);
        let huge = pool.take(64 << 20);
        assert!(is_aligned(&huge[..4096]));
        let late = pool.take(1);
        drop(pool);
        drop(late);
        assert!(Buffer::copy_of(b"abc").iter().eq(b"abc"));
    }
}

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
    /// What the allocator gave.
    origin: NonNull<u8>,
    /// The first multiple of `BLOCK` in it.
    start: NonNull<u8>,
    room: usize,
}

// SAFETY: Memory owns what it points at alone, like a Vec<u8>.
unsafe impl Send for Memory {}
// SAFETY: shared access gives out only shared slices.
unsafe impl Sync for Memory {}

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
        // SAFETY: the layout's size is at least a block, so it is not zero.
        let origin = unsafe { alloc_zeroed(layout) };
        let Some(origin) = NonNull::new(origin) else { handle_alloc_error(layout) };
        // SAFETY: the offset is below BLOCK, and the allocation is BLOCK bytes longer than the room.
        let start = unsafe { origin.add(origin.as_ptr().align_offset(BLOCK)) };
        Memory { origin, start, room }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `origin` was allocated with this layout and is given up here, once.
        unsafe { dealloc(self.origin.as_ptr(), Memory::layout(self.room)) }
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

/// Buffers by room: shelf `n` holds those of `BLOCK << n` bytes.
struct Shelves {
    idle: Mutex<Idle>,
    idle_max: usize,
}

#[derive(Default)]
struct Idle {
    shelves: [Vec<Memory>; SHELVES],
    bytes: usize,
}

/// 4 KiB to 32 MiB.
const SHELVES: usize = 14;

impl Pool {
    /// A pool that keeps at most `idle_max` bytes for later.
    pub fn new(idle_max: usize) -> Pool {
        Pool { shelves: Arc::new(Shelves { idle: Mutex::new(Idle::default()), idle_max }) }
    }

    /// A buffer of `length` bytes, whose values are whatever was there before.
    pub fn take(&self, length: usize) -> Buffer {
        let blocks = length.div_ceil(BLOCK).max(1);
        let shelf = blocks.next_power_of_two().trailing_zeros() as usize;
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
        // A power of two wastes address space, not memory: pages that nobody touches are not there.
        let memory = kept.unwrap_or_else(|| Memory::allocate(BLOCK << shelf));
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
        let shelf = (memory.room / BLOCK).trailing_zeros() as usize;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.bytes + memory.room <= self.idle_max {
            idle.bytes += memory.room;
            idle.shelves[shelf].push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Buffer, Pool, is_aligned};

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

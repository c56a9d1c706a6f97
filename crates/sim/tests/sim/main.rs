//! What the simulated device promises: each fault fires, one seed gives one history, and synced data survives.

mod fault;
mod history;

use base::buffer::Buffer;
use base::disk::{Caching, Disk, DiskError, Done, FileKind, FileName, Fill, Op};
use base::limit::BLOCK;
use bytes::Bytes;
use sim::disk::{SimDevice, SimDisk};

const FILE: FileName = FileName::new(FileKind::Data, 1);

/// `count` blocks of this value.
fn blocks(count: usize, value: u8) -> Bytes {
    let mut buffer = Buffer::zeroed(count * BLOCK);
    buffer.fill(value);
    buffer.freeze()
}

fn create(size: u64) -> Op {
    Op::Create { file: FILE, size, fill: Fill::Reserved }
}

fn write(block: u64, bytes: Bytes) -> Op {
    Op::Write { file: FILE, offset: block * BLOCK as u64, parts: vec![bytes] }
}

fn read(block: u64, count: usize) -> Op {
    Op::Read { file: FILE, offset: block * BLOCK as u64, length: count * BLOCK, caching: Caching::Around }
}

const SYNC: Op = Op::Sync { file: FILE };

/// Runs one operation to its end; nothing if the device stopped first.
fn run(device: &SimDevice, disk: &mut SimDisk, op: Op) -> Option<Result<Buffer, DiskError>> {
    disk.submit(0, op);
    let mut done: Vec<Done> = Vec::new();
    while done.is_empty() && !device.crashed() {
        disk.poll(None, &mut done);
    }
    done.pop().map(|done| done.result)
}

fn fired(device: &SimDevice, name: &str) -> u64 {
    device.fired().iter().find(|(fault, _)| *fault == name).map_or(0, |(_, count)| *count)
}

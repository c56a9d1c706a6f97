//! The bare program for large transfers: one side sends over loopback, the other receives and passes over the bytes once for their checksum,
//! and beside them a few threads write to the disk or read from it, so that disk, network and checksums overlap.
#![allow(clippy::disallowed_methods, reason = "this is the bare thing that everything else is measured against")]

use super::{PIECE, damaged, pair};
use crate::bench::raw::{Raw, allocate, direct, incompressible, joined};
use base::buffer::Buffer;
use base::checksum::crc32c;
use base::error::Result;
use harness::stopwatch::Stopwatch;
use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// Threads that write or read, each one piece at a time: as many pieces as a device of ours has on their way.
const WORKERS: usize = 4;

/// Pieces that each of them has room for.
const EACH: usize = 2;

/// A piece and where in the file it belongs.
type Placed = (u64, Buffer);

/// What one thread hands to another, and the way on which buffers come back to be used again.
struct Lane {
    full: SyncSender<Placed>,
    empty: Receiver<Buffer>,
}

/// The far end of a lane.
struct End {
    full: Receiver<Placed>,
    empty: Sender<Buffer>,
}

fn lane() -> (Lane, End) {
    let (full, take) = sync_channel(EACH);
    let (back, empty) = channel();
    for _ in 0..EACH {
        // Both ends are here.
        let _ = back.send(Buffer::zeroed(PIECE));
    }
    (Lane { full, empty }, End { full: take, empty: back })
}

impl Raw {
    /// Bytes a second that are sent, received, checksummed, written and synced; `bytes` is a multiple of 1 MiB.
    pub fn bare_stream_in(&self, bytes: u64) -> Result<f64> {
        self.clean()?;
        let file = direct(self.path())?;
        allocate(&file, bytes)?;
        let (mut near, far) = pair()?;
        let piece = incompressible(PIECE, 5);
        let sum = crc32c(&piece);
        let watch = Stopwatch::start();
        std::thread::scope(|scope| -> Result<()> {
            let (lanes, ends): (Vec<Lane>, Vec<End>) = (0..WORKERS).map(|_| lane()).unzip();
            let file = &file;
            let writers: Vec<_> = ends.into_iter().map(|end| scope.spawn(move || write(&end, file))).collect();
            let receiver = scope.spawn(move || receive(far, &lanes, bytes, sum));
            for _ in 0..bytes / PIECE as u64 {
                near.write_all(&piece)?;
            }
            joined(receiver.join())?;
            writers.into_iter().try_for_each(|writer| joined(writer.join()))
        })?;
        file.sync_data()?;
        let speed = bytes as f64 / watch.seconds();
        self.clean()?;
        Ok(speed)
    }

    /// Bytes a second that are read from the file that the last raw write left, sent, received and checksummed.
    pub fn bare_stream_out(&self, bytes: u64) -> Result<f64> {
        let file = direct(self.path())?;
        let (near, mut far) = pair()?;
        let watch = Stopwatch::start();
        std::thread::scope(|scope| -> Result<()> {
            let (lanes, ends): (Vec<Lane>, Vec<End>) = (0..WORKERS).map(|_| lane()).unzip();
            let file = &file;
            let readers: Vec<_> =
                (0..).zip(lanes).map(|(first, lane)| scope.spawn(move || read(&lane, file, first, bytes))).collect();
            let sender = scope.spawn(move || send(near, &ends, bytes));
            let mut piece = Buffer::zeroed(PIECE);
            for _ in 0..bytes / PIECE as u64 {
                far.read_exact(&mut piece)?;
                black_box(crc32c(&piece));
            }
            joined(sender.join())?;
            readers.into_iter().try_for_each(|reader| joined(reader.join()))
        })?;
        Ok(bytes as f64 / watch.seconds())
    }
}

/// Deals the pieces that come out to the lanes in turn.
fn receive(mut stream: TcpStream, lanes: &[Lane], bytes: u64, sum: u32) -> Result<()> {
    for (offset, lane) in (0..bytes).step_by(PIECE).zip(lanes.iter().cycle()) {
        // A writer that ended early says why.
        let Ok(mut piece) = lane.empty.recv() else { return Ok(()) };
        stream.read_exact(&mut piece)?;
        if crc32c(&piece) != sum {
            return Err(damaged());
        }
        if lane.full.send((offset, piece)).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

fn write(end: &End, file: &File) -> Result<()> {
    while let Ok((offset, piece)) = end.full.recv() {
        file.write_all_at(&piece, offset)?;
        // After the last piece nobody wants it.
        let _ = end.empty.send(piece);
    }
    Ok(())
}

/// Reads every `WORKERS`th piece from the `first` on.
fn read(lane: &Lane, file: &File, first: u64, bytes: u64) -> Result<()> {
    for offset in (first * PIECE as u64..bytes).step_by(WORKERS * PIECE) {
        let Ok(mut piece) = lane.empty.recv() else { return Ok(()) };
        file.read_exact_at(&mut piece, offset)?;
        if lane.full.send((offset, piece)).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Sends what comes out of the lanes in turn, so in the file's order. Stops early if a reader did, which says why.
fn send(mut stream: TcpStream, ends: &[End], bytes: u64) -> Result<()> {
    for (_, end) in (0..bytes).step_by(PIECE).zip(ends.iter().cycle()) {
        let Ok((_, piece)) = end.full.recv() else { return Ok(()) };
        stream.write_all(&piece)?;
        let _ = end.empty.send(piece);
    }
    Ok(())
}

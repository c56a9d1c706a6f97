//! The bare program for many small files: their bytes lie one after another on the disk, one side reads and sends a mebibyte of them at a
//! time over loopback, the other receives, passes over them once for their checksum and makes the files.
#![allow(clippy::disallowed_methods, reason = "this is the bare thing that everything else is measured against")]

use super::{PIECE, damaged, pair};
use crate::bench::raw::{Raw, allocate, direct, joined};
use crate::demo::tree::{Tree, sync_file_system};
use base::buffer::Buffer;
use base::checksum::crc32c;
use base::error::Result;
use base::limit::BLOCK;
use harness::stopwatch::Stopwatch;
use std::fs::{File, FileTimes, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::UNIX_EPOCH;

/// Threads that make files: as many as `get` has for it.
const MAKERS: usize = 4;

/// Files that come together.
struct Batch {
    files: Range<usize>,
    at: u64,
    bytes: usize,
    sum: u32,
}

impl Raw {
    /// Seconds in which the files of a tree are fetched and made below `target`, which does not exist, each as `get` does (its bytes, times
    /// and bits, then its name), until the file system is synced.
    pub fn bare_tree(&self, tree: &Tree, target: &Path) -> Result<f64> {
        self.clean()?;
        let file = direct(self.path())?;
        let lengths = tree.files.iter().map(|file| Ok(os::file::metadata(&tree.root.join(file))?.len() as usize));
        let lengths = lengths.collect::<Result<Vec<_>>>()?;
        let batches = lay_down(tree, &lengths, &file)?;
        let watch = Stopwatch::start();
        let mut made = None;
        for path in &tree.files {
            let directory = path.parent();
            if made != directory {
                std::fs::create_dir_all(directory.map_or(target.to_path_buf(), |directory| target.join(directory)))?;
                made = directory;
            }
        }
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| -> Result<()> {
            let (near, far): (Vec<_>, Vec<_>) =
                (0..MAKERS).map(|_| pair()).collect::<Result<Vec<_>>>()?.into_iter().unzip();
            let serving: Vec<_> = far.into_iter().map(|far| scope.spawn(|| serve(far, &file, &batches))).collect();
            let make = |near| make(near, &next, &batches, &lengths, (tree, target));
            let making: Vec<_> = near.into_iter().map(|near| scope.spawn(move || make(near))).collect();
            let made = making.into_iter().try_for_each(|maker| joined(maker.join()));
            let served = serving.into_iter().try_for_each(|server| joined(server.join()));
            // Who serves hears of the other side's fault as a connection that ended.
            made.and(served)
        })?;
        sync_file_system(target)?;
        let seconds = watch.seconds();
        self.clean()?;
        Ok(seconds)
    }
}

/// Writes the bytes of all files, those of each batch from the start of a block on.
fn lay_down(tree: &Tree, lengths: &[usize], file: &File) -> Result<Vec<Batch>> {
    let (mut batches, mut at, mut first) = (Vec::new(), 0, 0);
    let room = lengths.iter().map(|length| (length + BLOCK) as u64).sum();
    allocate(file, room)?;
    while first < lengths.len() {
        let (mut end, mut bytes) = (first + 1, lengths[first]);
        while end < lengths.len() && bytes + lengths[end] <= PIECE {
            bytes += lengths[end];
            end += 1;
        }
        let mut buffer = Buffer::zeroed(bytes.next_multiple_of(BLOCK));
        let mut filled = 0;
        for (path, length) in tree.files[first..end].iter().zip(&lengths[first..end]) {
            buffer[filled..filled + length].copy_from_slice(&os::file::read(&tree.root.join(path))?);
            filled += length;
        }
        file.write_all_at(&buffer, at)?;
        batches.push(Batch { files: first..end, at, bytes, sum: crc32c(&buffer[..bytes]) });
        at += buffer.len() as u64;
        first = end;
    }
    file.sync_all()?;
    Ok(batches)
}

/// Sends the batches that are asked for, until the other side asks no more.
fn serve(mut stream: TcpStream, file: &File, batches: &[Batch]) -> Result<()> {
    let mut piece = Buffer::zeroed(PIECE);
    loop {
        let mut asked = [0; 8];
        match stream.read_exact(&mut asked) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        let Some(batch) = batches.get(u64::from_le_bytes(asked) as usize) else { return Err(damaged()) };
        for offset in (0..batch.bytes).step_by(PIECE) {
            let length = PIECE.min(batch.bytes - offset);
            file.read_exact_at(&mut piece[..length.next_multiple_of(BLOCK)], batch.at + offset as u64)?;
            stream.write_all(&piece[..length])?;
        }
    }
}

/// Fetches batches, the next one while this one's files are made.
fn make(
    mut stream: TcpStream,
    next: &AtomicUsize,
    batches: &[Batch],
    lengths: &[usize],
    (tree, target): (&Tree, &Path),
) -> Result<()> {
    let mut bytes = vec![0; batches.iter().map(|batch| batch.bytes).max().unwrap_or(0)];
    let ask = |stream: &mut TcpStream| -> Result<Option<usize>> {
        let place = next.fetch_add(1, Ordering::Relaxed);
        if place >= batches.len() {
            return Ok(None);
        }
        stream.write_all(&(place as u64).to_le_bytes())?;
        Ok(Some(place))
    };
    let mut asked = ask(&mut stream)?;
    while let Some(place) = asked {
        let batch = &batches[place];
        stream.read_exact(&mut bytes[..batch.bytes])?;
        asked = ask(&mut stream)?;
        if crc32c(&bytes[..batch.bytes]) != batch.sum {
            return Err(damaged());
        }
        let mut rest = &bytes[..batch.bytes];
        for number in batch.files.clone() {
            let (own, after) = rest.split_at(lengths[number]);
            let path = target.join(&tree.files[number]);
            make_file(&path.with_file_name(format!(".bare-{number}")), &path, own)?;
            rest = after;
        }
    }
    Ok(())
}

fn make_file(temporary: &Path, path: &Path, bytes: &[u8]) -> Result<()> {
    let unnamed = path.parent().and_then(|directory| os::file::create_unnamed(directory).ok());
    let has_name = unnamed.is_none();
    let mut file = unnamed.map_or_else(|| os::file::create_new_private(temporary), Ok)?;
    file.write_all(bytes)?;
    file.set_times(FileTimes::new().set_modified(UNIX_EPOCH).set_accessed(UNIX_EPOCH))?;
    file.set_permissions(Permissions::from_mode(0o644))?;
    if has_name { os::file::rename_new(temporary, path) } else { os::file::name(&file, path) }
}

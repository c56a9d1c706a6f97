//! Bare programs that do only what cannot be left out: one thread sends over loopback, another receives, passes over the bytes once for
//! their checksum, writes them and answers. What a row of ours takes beyond that is ours.
#![allow(clippy::disallowed_methods, reason = "this is the bare thing that everything else is measured against")]

mod files;
mod streams;

use super::raw::{LOG_BYTES, Raw, allocate, direct, incompressible, joined};
use base::buffer::Buffer;
use base::checksum::crc32c;
use base::error::{Error, ErrorKind, Result};
use base::limit::BLOCK;
use base::unit::MIB;
use harness::stopwatch::Stopwatch;
use os::process::usage;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// An append on the bare wire: who appends and the bytes' checksum, as long as the header of a record of ours, then the bytes.
const HEADER: usize = 64;
const FRAME: usize = HEADER + BLOCK;

/// Its answer.
const ANSWER: usize = 16;

/// Bytes that are sent, received and written at once: few enough that they stay in the processor's cache.
const PIECE: usize = MIB as usize;

/// What it says if bytes came out otherwise than they went in.
fn damaged() -> Error {
    Error::new(ErrorKind::Corrupt, "the bare program received other bytes than were sent")
}

/// Two ends of a connection over loopback.
fn pair() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    Ok((near, far))
}

/// A file for direct writes whose blocks were written before.
fn log_file(path: &Path) -> Result<File> {
    let file = direct(path)?;
    allocate(&file, LOG_BYTES)?;
    let zeros = Buffer::zeroed(PIECE);
    for offset in (0..LOG_BYTES).step_by(zeros.len()) {
        file.write_all_at(&zeros, offset)?;
    }
    file.sync_all()?;
    Ok(file)
}

impl Raw {
    /// Nanoseconds of each append that `writers` writers, each with one on its way over one connection, had made durable during `time`.
    /// What has come when the last group is durable is the next one.
    pub fn bare_appends(&self, writers: usize, time: Duration) -> Result<Vec<u64>> {
        self.clean()?;
        let file = log_file(self.path())?;
        let (near, far) = pair()?;
        let latencies = std::thread::scope(|scope| {
            let serving = scope.spawn(|| serve_appends(far, &file));
            let latencies = append(near, writers, time);
            joined(serving.join()).and(latencies)
        });
        self.clean()?;
        latencies
    }

    /// Seconds of processor time, of both sides, to send, receive, checksum and write so many bytes, a multiple of 1 MiB.
    pub fn bare_push(&self, bytes: u64) -> Result<f64> {
        self.clean()?;
        let file = direct(self.path())?;
        allocate(&file, bytes)?;
        let (mut near, far) = pair()?;
        let piece = incompressible(PIECE, 5);
        let before = usage(std::process::id())?.processor;
        std::thread::scope(|scope| -> Result<()> {
            let serving = scope.spawn(|| serve_push(far, &file, bytes, crc32c(&piece)));
            for _ in 0..bytes / PIECE as u64 {
                near.write_all(&piece)?;
            }
            joined(serving.join())
        })?;
        let spent = usage(std::process::id())?.processor.saturating_sub(before);
        self.clean()?;
        Ok(spent.as_secs_f64())
    }
}

fn serve_push(mut stream: TcpStream, file: &File, bytes: u64, sum: u32) -> Result<()> {
    let mut piece = Buffer::zeroed(PIECE);
    for offset in (0..bytes).step_by(PIECE) {
        stream.read_exact(&mut piece)?;
        if crc32c(&piece) != sum {
            return Err(damaged());
        }
        file.write_all_at(&piece, offset)?;
    }
    file.sync_data()?;
    Ok(())
}

fn serve_appends(mut stream: TcpStream, file: &File) -> Result<()> {
    let mut group = Buffer::zeroed(PIECE);
    let (mut filled, mut at, mut answers) = (0, 0, Vec::new());
    loop {
        match stream.read(&mut group[filled..])? {
            0 => return Ok(()),
            count => filled += count,
        }
        let whole = filled / FRAME * FRAME;
        if whole == 0 {
            continue;
        }
        answers.clear();
        for frame in group[..whole].chunks_exact(FRAME) {
            if crc32c(&frame[HEADER..]).to_le_bytes() != frame[8..12] {
                return Err(damaged());
            }
            answers.extend_from_slice(&frame[..ANSWER]);
        }
        let length = whole.next_multiple_of(BLOCK);
        if at + length as u64 > LOG_BYTES {
            at = 0;
        }
        file.write_all_at(&group[..length], at)?;
        file.sync_data()?;
        at += length as u64;
        stream.write_all(&answers)?;
        group.copy_within(whole..filled, 0);
        filled -= whole;
    }
}

/// The side that appends. Its end of the connection is closed when it returns.
fn append(mut stream: TcpStream, writers: usize, time: Duration) -> Result<Vec<u64>> {
    let bytes = incompressible(BLOCK, 3);
    let sum = crc32c(&bytes).to_le_bytes();
    let frame = |writer: usize, out: &mut Vec<u8>| {
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&(writer as u64).to_le_bytes());
        header[8..12].copy_from_slice(&sum);
        out.extend_from_slice(&header);
        out.extend_from_slice(&bytes);
    };
    let whole = Stopwatch::start();
    let mut begun = vec![whole; writers];
    let (mut out, mut answers, mut filled) = (Vec::new(), vec![0; writers * ANSWER], 0);
    let (mut latencies, mut waiting) = (Vec::new(), writers);
    (0..writers).for_each(|writer| frame(writer, &mut out));
    while waiting > 0 {
        stream.write_all(&out)?;
        out.clear();
        match stream.read(&mut answers[filled..])? {
            0 => return Err(Error::new(ErrorKind::Io, "the receiving side of the bare program stopped early")),
            count => filled += count,
        }
        let answered = filled / ANSWER * ANSWER;
        for answer in answers[..answered].chunks_exact(ANSWER) {
            let writer = answer.first_chunk().map_or(0, |number| u64::from_le_bytes(*number)) as usize;
            latencies.push(begun[writer].nanos());
            if whole.elapsed() < time {
                begun[writer] = Stopwatch::start();
                frame(writer, &mut out);
            } else {
                waiting -= 1;
            }
        }
        answers.copy_within(answered..filled, 0);
        filled -= answered;
    }
    Ok(latencies)
}

#[cfg(test)]
mod tests {
    use super::{PIECE, Raw};
    use crate::bench::raw::{Direction, REQUEST};
    use crate::demo::tree::Tree;
    use std::time::Duration;

    /// Both programs do what they claim: they end, every writer is answered, and the bytes that arrive are the ones that were sent.
    #[test]
    fn they_run() {
        // Beside the program: directories for temporary files may be in memory, which takes no direct writes.
        let program = std::env::current_exe().expect("it runs");
        let directory = program.with_extension(format!("floor-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("made");
        let raw = Raw::new(&directory);
        let latencies = raw.bare_appends(64, Duration::from_millis(50)).expect("appended");
        assert!(latencies.len() >= 64, "{} appends", latencies.len());
        assert!(raw.bare_push(4 * PIECE as u64).expect("pushed") > 0.0);
        // More than the lanes hold, and no multiple of their number.
        let bytes = 13 * PIECE as u64;
        assert!(raw.bare_stream_in(bytes).expect("written") > 0.0);
        raw.sequential(Direction::Write, bytes.next_multiple_of(REQUEST as u64)).expect("written");
        assert!(raw.bare_stream_out(bytes).expect("read") > 0.0);
        let (from, to) = (directory.join("from"), directory.join("to"));
        for number in 0..50 {
            let file = from.join(format!("{}/{number}.rs", number % 7));
            std::fs::create_dir_all(file.parent().expect("one above")).expect("made");
            std::fs::write(file, vec![number; 100 + 30_000 * usize::from(number)]).expect("written");
        }
        let tree = Tree::walk(&from).expect("walked");
        assert!(raw.bare_tree(&tree, &to).expect("made") > 0.0);
        assert_eq!(crate::demo::compare::compare(&tree, &to).expect("compared").wrong, 0);
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}

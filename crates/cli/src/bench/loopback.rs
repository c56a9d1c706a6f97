//! What a bare loop does: one thread reads a file that is in the page cache and sends it, another receives it.
#![allow(clippy::disallowed_methods, reason = "this is the bare thing that hot reads are measured against")]

use super::raw::incompressible;
use base::error::{Error, ErrorKind, Result};
use base::unit::MIB;
use harness::stopwatch::Stopwatch;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes that are read and sent at once.
const PIECE: usize = MIB as usize;

/// A file in the page cache; removed with this.
pub struct HotFile {
    path: PathBuf,
    bytes: u64,
}

impl HotFile {
    /// Writes `bytes` bytes (a multiple of 1 MiB) and reads them once, so that they are in memory.
    pub fn new(directory: &Path, bytes: u64) -> Result<HotFile> {
        let path = directory.join("hot");
        let hot = HotFile { path, bytes: bytes / PIECE as u64 * PIECE as u64 };
        let mut file = File::create(&hot.path)?;
        let mut piece = incompressible(PIECE, 11);
        for number in 0..hot.bytes / PIECE as u64 {
            piece[..8].copy_from_slice(&number.to_le_bytes());
            file.write_all(&piece)?;
        }
        file.sync_all()?;
        let file = File::open(&hot.path)?;
        for offset in (0..hot.bytes).step_by(PIECE) {
            file.read_exact_at(&mut piece, offset)?;
        }
        Ok(hot)
    }

    /// Bytes a second through a TCP connection over loopback: `pread` and `send` on one side, `recv` on the other.
    pub fn send_over_loopback(&self) -> Result<f64> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let file = File::open(&self.path)?;
        let bytes = self.bytes;
        std::thread::scope(|scope| {
            let sender = scope.spawn(move || -> Result<()> {
                let (mut stream, _) = listener.accept()?;
                let mut piece = vec![0; PIECE];
                for offset in (0..bytes).step_by(PIECE) {
                    file.read_exact_at(&mut piece, offset)?;
                    stream.write_all(&piece)?;
                }
                Ok(())
            });
            let mut stream = TcpStream::connect(address)?;
            let mut piece = vec![0; PIECE];
            let watch = Stopwatch::start();
            let mut received = 0;
            while received < bytes {
                match stream.read(&mut piece)? {
                    0 => return Err(Error::new(ErrorKind::Io, "the sending side of the bare loop stopped early")),
                    count => received += count as u64,
                }
            }
            let speed = received as f64 / watch.seconds();
            match sender.join() {
                Ok(result) => result.map(|()| speed),
                Err(_) => unreachable!("the sending side does not panic"),
            }
        })
    }
}

impl Drop for HotFile {
    fn drop(&mut self) {
        // What stays behind lies in the benchmark's own directory, which is removed as a whole.
        let _ = std::fs::remove_file(&self.path);
    }
}

//! The outside world for real: one suite of promises over all ways to a disk, and sockets.
#![allow(clippy::disallowed_methods)] // Tests look at real files and start real threads.

mod device;
mod file;
mod socket;
mod volatile;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Beside the build and not in /tmp, which may be a file system in memory.
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("os-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

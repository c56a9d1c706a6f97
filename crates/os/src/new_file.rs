//! A new local file that is written once, from front to back: through the page cache, or past it if it is large. It has a name at once, or gets
//! one when it is whole.

use base::buffer::{Buffer, is_aligned};
use base::error::{Error, Result};
use base::limit::{BLOCK, DIRECT_MIN};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

/// What is gathered before it is written past the page cache.
const GATHERED: usize = 1 << 20;

/// A new file.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    /// What waits to be whole blocks; none if the file goes through the page cache.
    gathered: Option<Buffer>,
}

impl NewFile {
    /// Makes the file, which is expected to get so many bytes. One that exists is an error of kind `Exists`.
    pub fn create(path: &Path, expected: u64) -> Result<NewFile> {
        // Nobody else sees it before it has the bits that it is to have.
        Ok(NewFile::of(super::file::create_new_private(path)?, expected))
    }

    /// Makes a file without a name in a directory: it is gone if it gets none by `name`. None: the file system has no such files
    /// (`O_TMPFILE`, open(2)).
    pub fn create_unnamed(directory: &Path, expected: u64) -> Option<NewFile> {
        // Whatever else it may be, it is said by `create`.
        super::file::create_unnamed(directory).ok().map(|file| NewFile::of(file, expected))
    }

    /// Gives a file without a name one that nothing has; otherwise the error is of kind `Exists` and nothing changed.
    pub fn name(&self, path: &Path) -> Result<()> {
        super::file::name(&self.file, path)
    }

    /// Makes the file itself durable. Blocks.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(|error| Error::from(error).during("cannot sync a new file"))
    }

    fn of(file: File, expected: u64) -> NewFile {
        // Asked for afterwards: some file systems make the file first and refuse then.
        let direct = expected >= DIRECT_MIN && set_flags(&file, libc::O_DIRECT).is_ok();
        let gathered = direct.then(|| {
            let mut buffer = Buffer::zeroed(GATHERED);
            buffer.set_length(0);
            buffer
        });
        NewFile { file, gathered }
    }

    /// Adds bytes. Blocks.
    pub fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let NewFile { file, gathered } = self;
        let Some(gathered) = gathered else { return file.write_all(bytes) };
        while !bytes.is_empty() {
            let whole = bytes.len() / BLOCK * BLOCK;
            if gathered.is_empty() && whole > 0 && is_aligned(&bytes[..whole]) {
                write_direct(file, &bytes[..whole])?;
                bytes = &bytes[whole..];
                continue;
            }
            let (before, step) = (gathered.len(), bytes.len().min(GATHERED - gathered.len()));
            gathered.set_length(before + step);
            gathered[before..].copy_from_slice(&bytes[..step]);
            bytes = &bytes[step..];
            if gathered.len() == GATHERED {
                write_direct(file, gathered)?;
                gathered.set_length(0);
            }
        }
        Ok(())
    }

    /// Writes what is left, and hands the file out: it has all its bytes. Blocks.
    pub fn finish(&mut self) -> io::Result<&File> {
        if let Some(gathered) = self.gathered.take() {
            // What is left need not be whole blocks, which only the page cache takes.
            set_flags(&self.file, 0)?;
            self.file.write_all(&gathered)?;
        }
        Ok(&self.file)
    }
}

/// Writes whole blocks. Where the device wants larger ones than ours, or wrote only a part, the rest goes through the page cache.
fn write_direct(file: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                set_flags(file, 0)?;
                return file.write_all(bytes);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sets the flags of an open file, as far as they can change.
fn set_flags(file: &File, flags: i32) -> io::Result<()> {
    // SAFETY: the descriptor is open during the call, and F_SETFL takes an int.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::NewFile;
    use base::buffer::Buffer;
    use base::error::ErrorKind;
    use base::limit::DIRECT_MIN;

    /// A file without a name gets one that nothing has, or is gone.
    #[test]
    fn names() {
        let directory = std::env::temp_dir().join(format!("stormwell-unnamed-{}", std::process::id()));
        crate::file::create_directories(&directory).expect("a directory");
        let path = directory.join("name");
        for expected in [3, DIRECT_MIN] {
            let made = || {
                let mut file = NewFile::create_unnamed(&directory, expected).expect("this file system has such files");
                file.write(b"new").expect("written");
                file.finish().expect("finished");
                file
            };
            made().name(&path).expect("named");
            assert_eq!(crate::file::read(&path).expect("read"), b"new");
            crate::file::replace(&path, b"old").expect("replaced");
            assert_eq!(made().name(&path).expect_err("it is taken").kind(), ErrorKind::Exists);
            assert_eq!(crate::file::read(&path).expect("read"), b"old");
            assert_eq!(crate::file::read_directory(&directory).expect("read"), std::slice::from_ref(&path));
            crate::file::remove(&path).expect("removed");
        }
        assert!(NewFile::create_unnamed(std::path::Path::new("/proc"), 3).is_none());
        std::fs::remove_dir(&directory).expect("removed");
    }

    /// Whatever the pieces are, aligned or not, and wherever the file ends, it holds them one after another.
    #[test]
    fn pieces_follow_one_another() {
        let directory = std::env::temp_dir().join(format!("stormwell-new-file-{}", std::process::id()));
        crate::file::create_directories(&directory).expect("a directory");
        let whole: Vec<u8> = (0..3_500_001u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for (name, expected) in [("small", 0), ("large", DIRECT_MIN)] {
            let path = directory.join(name);
            let mut file = NewFile::create(&path, expected).expect("a file");
            let mut rest = &whole[..];
            for length in [1 << 20, 4096, 5, 300, 2 << 20, 7].into_iter().chain(std::iter::repeat(123_456)) {
                let (piece, later) = rest.split_at(rest.len().min(length));
                file.write(&Buffer::copy_of(piece)).expect("written");
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            file.finish().expect("finished");
            assert!(crate::file::read(&path).expect("read") == whole, "{name}");
            let again = NewFile::create(&path, expected).expect_err("it exists");
            assert_eq!(again.kind(), ErrorKind::Exists);
            crate::file::remove(&path).expect("removed");
        }
        std::fs::remove_dir(&directory).expect("removed");
    }
}

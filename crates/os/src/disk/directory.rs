//! A device directory on a file system: its lock, its files and their open descriptors, and every operation done blocking.
#![allow(clippy::disallowed_methods)] // The real files of a device.

use crate::process::Ending;
use base::buffer::{Buffer, Pool};
use base::disk::{Caching, DiskError, Early, FileName, Fill, Op};
use base::error::{Error, ErrorKind, Result, is_full};
use base::limit::BLOCK;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Files whose descriptors are kept; two each.
const FILES_OPEN_MAX: usize = 512;

/// Bytes of one write while a file is filled with zeros.
const FILL_STEP: usize = 1 << 20;

/// Most parts that one vectored call takes (IOV_MAX of Linux).
const VECTORS_MAX: usize = 1024;

/// Ending of a file that is being made and has no name yet.
pub(super) const MAKING: &str = ".making";

/// The directory, locked for this process as long as it lives.
pub(super) struct Directory {
    path: PathBuf,
    /// Whether the file system takes O_DIRECT.
    direct: bool,
    files: Mutex<OpenFiles>,
    lock: File,
    /// Why names are not durable any more, once a sync of the directory failed.
    unnamed: OnceLock<String>,
}

#[derive(Default)]
struct OpenFiles {
    /// With the number of the last use.
    by_name: BTreeMap<FileName, (Arc<OpenFile>, u64)>,
    uses: u64,
}

/// A file's descriptors, opened when first needed and closed with the last operation that uses them.
pub(super) struct OpenFile {
    path: PathBuf,
    direct: bool,
    around: OnceLock<File>,
    through: OnceLock<File>,
}

impl OpenFile {
    /// The descriptor for writes and for reads past the page cache.
    pub(super) fn around(&self) -> io::Result<&File> {
        if !self.direct {
            return self.through();
        }
        open_once(&self.around, &self.path, libc::O_DIRECT)
    }

    /// The descriptor for reads through the page cache.
    fn through(&self) -> io::Result<&File> {
        open_once(&self.through, &self.path, 0)
    }

    /// The file for writes through the page cache. None if it cannot be opened: then it cannot be read either, and whoever does is told why.
    pub(super) fn early(self: Arc<Self>) -> Option<Arc<dyn Early>> {
        self.through().is_ok().then_some(self)
    }

    /// The descriptor for a read of these bytes in this way.
    pub(super) fn for_read(&self, caching: Caching, offset: u64, length: usize) -> io::Result<&File> {
        match caching {
            Caching::Around => self.around(),
            Caching::MemoryOrAround if is_in_memory(self.through()?, offset, length) => self.through(),
            Caching::MemoryOrAround => self.around(),
            Caching::Through => self.through(),
        }
    }
}

impl Early for OpenFile {
    fn write(&self, offset: u64, bytes: &[u8]) -> std::result::Result<(), DiskError> {
        let written = self.through().and_then(|file| file.write_all_at(bytes, offset));
        written.map_err(|error| DiskError::Io(format!("cannot write {}: {error}", self.path.display())))
    }
}

/// Number of the system call `cachestat`, which Linux has since 6.5: the same on every processor that we build for.
const CACHESTAT: libc::c_long = 451;

/// Whether the page cache holds all of these bytes. No where the kernel does not say: then they are read from the device.
/// A read that must not wait would tell as well, but starts to read what is missing.
fn is_in_memory(file: &File, offset: u64, length: usize) -> bool {
    let (range, mut counts) = ([offset, length as u64], [0u64; 5]);
    // SAFETY: the kernel reads two numbers of 64 bits and writes five, as its `cachestat_range` and `cachestat` have them.
    let refused = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), 0) };
    // The first count is of the pages that are there. Larger pages than a block's make this say no, which is harmless.
    refused == 0 && counts[0] >= (length / BLOCK) as u64
}

fn open_once<'a>(place: &'a OnceLock<File>, path: &Path, flags: i32) -> io::Result<&'a File> {
    if let Some(file) = place.get() {
        return Ok(file);
    }
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    Ok(place.get_or_init(|| file))
}

impl Directory {
    /// Makes the directory if it is missing, locks it, removes what a killed process left half made, makes the names of what it left whole
    /// durable, and learns what the file system takes.
    /// The note says what it does not take.
    pub(super) fn open(path: &Path) -> Result<(Directory, Option<String>)> {
        crate::file::create_own_directory(path)?;
        let lock = lock(path)?;
        for leftover in crate::file::read_directory(path)? {
            if leftover.to_string_lossy().ends_with(MAKING) {
                crate::file::remove(&leftover)?;
            }
        }
        crate::file::sync_directory(path)?;
        let path = path.to_path_buf();
        let mut directory = Directory { path, direct: true, files: Mutex::default(), lock, unnamed: OnceLock::new() };
        let mut note = None;
        if let Err(error) = directory.probe(|_| Ok(())) {
            if error.raw_os_error() != Some(libc::EINVAL) {
                let shown = directory.path.display();
                return Err(Error::from(error).during(format!("data directory {shown} cannot be written")));
            }
            directory.direct = false;
            let text = format!(
                "the file system of {} refuses O_DIRECT; files go through the page cache, which costs memory and copies",
                directory.path.display()
            );
            note = Some(text);
        }
        Ok((directory, note))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The descriptor that holds the lock, and so does whatever else holds it.
    pub(super) fn lock_descriptor(&self) -> RawFd {
        self.lock.as_raw_fd()
    }

    /// Hands a file of one block, opened like those of the device, to `test`; an empty one if the file system has no room for a block.
    pub(super) fn probe(&self, test: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
        let path = self.path.join(format!("probe{MAKING}"));
        let result = self.make(&path).and_then(|file| {
            match file.write_all_at(&Buffer::zeroed(BLOCK), 0) {
                // It took the flags. Whoever can start the node on a full file system can delete something.
                Err(error) if is_full(&error) => file.set_len(0)?,
                written => written?,
            }
            test(&file)
        });
        let _ = std::fs::remove_file(&path);
        result
    }

    fn make(&self, path: &Path) -> io::Result<File> {
        let flags = if self.direct { libc::O_DIRECT } else { 0 };
        OpenOptions::new().read(true).write(true).create(true).truncate(true).custom_flags(flags).open(path)
    }

    /// The files that are there and their lengths, in the order of their names.
    pub(super) fn list(&self) -> std::result::Result<Vec<(FileName, u64)>, DiskError> {
        list(&self.path)
    }

    /// The file's descriptors. That it exists shows when one is opened.
    pub(super) fn file(&self, name: FileName) -> Arc<OpenFile> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.uses += 1;
        let uses = files.uses;
        if let Some((file, last)) = files.by_name.get_mut(&name) {
            *last = uses;
            return Arc::clone(file);
        }
        if files.by_name.len() >= FILES_OPEN_MAX {
            let oldest = files.by_name.iter().min_by_key(|(_, (_, last))| *last).map(|(name, _)| *name);
            oldest.and_then(|name| files.by_name.remove(&name));
        }
        let path = self.path.join(name.to_string());
        let file = OpenFile { path, direct: self.direct, around: OnceLock::new(), through: OnceLock::new() };
        let file = Arc::new(file);
        files.by_name.insert(name, (Arc::clone(&file), uses));
        file
    }

    fn forget(&self, name: FileName) {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).by_name.remove(&name);
    }

    /// Does the operation, blocking.
    pub(super) fn execute(&self, op: Op, pool: &Pool) -> std::result::Result<Buffer, DiskError> {
        let nothing = |()| Buffer::zeroed(0);
        match op {
            Op::Create { file, size, fill } => self.create(file, size, fill, sync_names).map(nothing),
            Op::Remove { file } => self.remove(file).map(nothing).map_err(|error| disk_error("remove", file, &error)),
            Op::Read { file, offset, length, caching } => {
                let open = self.file(file);
                let read = || read(open.for_read(caching, offset, length)?, offset, pool.take(length));
                read().map_err(|error| disk_error("read", file, &error))
            }
            Op::Write { file, offset, parts } => {
                let open = self.file(file);
                let write = || write(open.around()?, offset, &parts);
                write().map(nothing).map_err(|error| disk_error("write", file, &error))
            }
            Op::Sync { file } => {
                let open = self.file(file);
                let sync = || open.around()?.sync_data();
                sync().map(nothing).map_err(|error| disk_error("sync", file, &error))
            }
            Op::Punch { file, offset, length } => {
                let open = self.file(file);
                let punch = || fallocate(open.around()?, PUNCH_MODE, offset, length);
                punch().map(nothing).map_err(|error| disk_error("punch", file, &error))
            }
        }
    }

    /// Makes a file, where `sync` makes the names in a directory durable. Once that failed no file is made any more: tried again it may go well
    /// without having written what the first one could not, and what is acknowledged in a file whose name is lost is lost with it.
    fn create(
        &self,
        name: FileName,
        size: u64,
        fill: Fill,
        sync: impl FnOnce(&Path) -> io::Result<()>,
    ) -> std::result::Result<(), DiskError> {
        if let Some(why) = self.unnamed.get() {
            return Err(DiskError::Unnamed(why.clone()));
        }
        self.place(name, size, fill).map_err(|error| disk_error("create", name, &error))?;
        sync(&self.path).map_err(|error| {
            let why = format!("cannot sync the directory of {name}: {error}");
            DiskError::Unnamed(self.unnamed.get_or_init(|| why).clone())
        })
    }

    /// Makes a file that has its name; the name is not durable yet.
    fn place(&self, name: FileName, size: u64, fill: Fill) -> io::Result<()> {
        let making = self.path.join(format!("{name}{MAKING}"));
        let made = self.make(&making).and_then(|file| {
            reserve(&file, size)?;
            if fill == Fill::Zeros {
                write_zeros(&file, size)?;
            }
            file.sync_all()
        });
        if let Err(error) = made {
            let _ = std::fs::remove_file(&making);
            return Err(error);
        }
        std::fs::rename(&making, self.path.join(name.to_string()))?;
        self.forget(name);
        Ok(())
    }

    fn remove(&self, name: FileName) -> io::Result<()> {
        let removed = std::fs::remove_file(self.path.join(name.to_string()));
        self.forget(name);
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

/// Makes the names in a directory durable.
fn sync_names(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The device's files in a directory and their lengths, in the order of their names.
pub(super) fn list(path: &Path) -> std::result::Result<Vec<(FileName, u64)>, DiskError> {
    let listed = || -> io::Result<Vec<(FileName, u64)>> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            if let Some(name) = entry.file_name().to_str().and_then(FileName::parse) {
                files.push((name, entry.metadata()?.len()));
            }
        }
        files.sort();
        Ok(files)
    };
    listed().map_err(|error| DiskError::Io(format!("cannot list {}: {error}", path.display())))
}

/// Gives a range back and keeps the file's length.
pub(super) const PUNCH_MODE: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

/// `fallocate`, again if a signal came between.
pub(super) fn fallocate(file: &File, mode: i32, offset: u64, length: u64) -> io::Result<()> {
    let too_large = |_| io::Error::from_raw_os_error(libc::EFBIG);
    let (offset, length) = (i64::try_from(offset).map_err(too_large)?, i64::try_from(length).map_err(too_large)?);
    loop {
        // SAFETY: the call takes a descriptor that is open and three numbers.
        if unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, length) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn reserve(file: &File, size: u64) -> io::Result<()> {
    if size == 0 {
        return Ok(());
    }
    match fallocate(file, 0, 0, size) {
        // A file system that cannot set space aside can still have a long file.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => file.set_len(size),
        other => other,
    }
}

fn write_zeros(file: &File, size: u64) -> io::Result<()> {
    let zeros = Buffer::zeroed(FILL_STEP);
    let mut offset = 0;
    while offset < size {
        let step = usize::try_from(size - offset).unwrap_or(FILL_STEP).min(FILL_STEP);
        file.write_all_at(&zeros[..step], offset)?;
        offset += step as u64;
    }
    Ok(())
}

/// Fills the buffer from `offset`, and cuts it where the file ends.
pub(super) fn read(file: &File, offset: u64, mut buffer: Buffer) -> io::Result<Buffer> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        // Only the end of the file is not at a block's edge; reading on from there is refused past the page cache.
        if !filled.is_multiple_of(BLOCK) {
            break;
        }
    }
    buffer.set_length(filled);
    Ok(buffer)
}

fn write(file: &File, offset: u64, parts: &[Bytes]) -> io::Result<()> {
    let total: usize = parts.iter().map(Bytes::len).sum();
    let mut vectors = Vectors::default();
    let mut written = 0;
    while written < total {
        vectors.point_at(parts, written);
        let position = i64::try_from(offset + written as u64).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
        // SAFETY: the vectors point into `parts`, which outlives the call.
        let count = unsafe {
            libc::pwritev(file.as_raw_fd(), vectors.list.as_ptr(), vectors.list.len() as libc::c_int, position)
        };
        match count {
            1.. => written += count as usize,
            0 => return Err(io::ErrorKind::WriteZero.into()),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// The addresses of a vectored write; the memory is used again for the next one.
#[derive(Default)]
pub(super) struct Vectors {
    pub(super) list: Vec<libc::iovec>,
}

// SAFETY: the addresses are used only together with the `Bytes` that they point into, which may be sent.
unsafe impl Send for Vectors {}

impl Vectors {
    /// Points at the bytes of `parts` from byte `skip` on, as many parts as one call takes.
    pub(super) fn point_at(&mut self, parts: &[Bytes], skip: usize) {
        self.list.clear();
        let mut skip = skip;
        for part in parts {
            if skip >= part.len() {
                skip -= part.len();
                continue;
            }
            let rest = &part[skip..];
            skip = 0;
            self.list.push(libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() });
            if self.list.len() == VECTORS_MAX {
                return;
            }
        }
    }
}

/// The error as engines know it, with what was being done to which file.
pub(super) fn disk_error(what: &str, file: FileName, error: &io::Error) -> DiskError {
    match error.raw_os_error() {
        Some(libc::ENOENT) => DiskError::NotFound,
        _ if is_full(error) => DiskError::NoSpace,
        _ => DiskError::Io(format!("cannot {what} {file}: {error}")),
    }
}

/// Takes the directory for this process.
fn lock(path: &Path) -> Result<File> {
    let lock_path = path.join("lock");
    let file = crate::file::open_or_create(&lock_path)?;
    take(&file, path, libc::LOCK_EX, true)?;
    let holder = format!("{}\n", std::process::id());
    // Over what is there, whose block a full file system may not give again. For people: the lock itself is held without it.
    let write = || -> io::Result<()> {
        file.write_all_at(holder.as_bytes(), 0)?;
        file.set_len(holder.len() as u64)
    };
    match write() {
        Err(error) if !is_full(&error) => {
            Err(Error::from(error).during(format!("cannot write {}", lock_path.display())))
        }
        Err(_) => {
            // No number is better than that of an earlier process.
            let _ = file.set_len(0);
            Ok(file)
        }
        Ok(()) => Ok(file),
    }
}

/// Keeps servers away from the directory, others who look at it not, and writes nothing. A directory that was never locked
/// has nothing to lock by.
pub(super) fn lock_for_looking(path: &Path) -> Result<Option<File>> {
    lock_shared(path, true)
}

fn lock_shared(path: &Path, waits: bool) -> Result<Option<File>> {
    let lock_path = path.join("lock");
    if !crate::file::exists(&lock_path)? {
        return Ok(None);
    }
    let file = crate::file::open(&lock_path)?;
    take(&file, path, libc::LOCK_SH, waits)?;
    Ok(Some(file))
}

/// Takes the directory's lock in this way, or says who still has it. `waits`: after a time in which one that was killed would be gone.
fn take(file: &File, path: &Path, way: libc::c_int, waits: bool) -> Result<()> {
    let lock_path = path.join("lock");
    let mut ending = Ending::new(waits);
    // SAFETY: the call takes a descriptor that is open and a number.
    while unsafe { libc::flock(file.as_raw_fd(), way | libc::LOCK_NB) } != 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::WouldBlock {
            return Err(Error::from(error).during(format!("cannot lock {}", lock_path.display())));
        }
        let Some(pause) = ending.pause(number_in(&lock_path)) else {
            let text = format!(
                "data directory {} is in use by {}; nothing was changed; stop it or choose another directory",
                path.display(),
                written_in(&lock_path)
            );
            return Err(Error::new(ErrorKind::Busy, text));
        };
        std::thread::sleep(pause);
    }
    Ok(())
}

/// The process that wrote its number into a lock, for people.
fn written_in(lock: &Path) -> String {
    match number_in(lock) {
        Some(process) => {
            let name = crate::process::name(process).unwrap_or_else(|| "name unknown".to_string());
            format!("process {process} ({name})")
        }
        None => "another process".to_string(),
    }
}

fn number_in(lock: &Path) -> Option<u32> {
    std::fs::read_to_string(lock).ok()?.trim().parse().ok()
}

/// Who has the directory now, for people; nobody of one that is not there or was never locked.
pub(super) fn holder(path: &Path) -> Result<Option<String>> {
    match lock_shared(path, false) {
        Ok(_free) => Ok(None),
        Err(error) if error.kind() == ErrorKind::Busy => Ok(Some(written_in(&path.join("lock")))),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::{Directory, is_in_memory, sync_names};
    use base::buffer::{Buffer, Pool};
    use base::disk::{Caching, DiskError, FileKind, FileName, Fill, Op};
    use base::limit::BLOCK;

    /// A file whose name could not be made durable is not said to be made, and no other one is afterwards: not even where a second sync goes
    /// well. A process that opens the directory anew tries it anew.
    #[test]
    fn names_that_were_not_synced() {
        let path = std::env::temp_dir().join(format!("stormwell-unnamed-{}", std::process::id()));
        let (directory, _) = Directory::open(&path).expect("a fresh directory");
        let file = |number| FileName::new(FileKind::Data, number);
        let size = BLOCK as u64;
        directory.create(file(1), size, Fill::Reserved, sync_names).expect("made");
        let broken = |_: &std::path::Path| Err(std::io::Error::from_raw_os_error(libc::EIO));
        for (number, refused) in [directory.create(file(2), size, Fill::Reserved, broken)]
            .into_iter()
            .chain([2, 3].map(|number| directory.create(file(number), size, Fill::Reserved, sync_names)))
            .enumerate()
        {
            assert!(
                matches!(&refused, Err(DiskError::Unnamed(why)) if why.contains("error 5")),
                "{number}: {refused:?}"
            );
        }
        drop(directory);
        let (directory, _) = Directory::open(&path).expect("opened again");
        directory.create(file(3), size, Fill::Reserved, sync_names).expect("made");
        drop(directory);
        std::fs::remove_dir_all(&path).expect("it is ours");
    }

    /// A large read takes from memory what lies there and leaves nothing there; what a read through memory brought is seen.
    #[test]
    fn memory_is_used_and_not_filled() {
        let path = std::env::temp_dir().join(format!("stormwell-cached-{}", std::process::id()));
        let (directory, note) = Directory::open(&path).expect("a fresh directory");
        let (file, pool, blocks) = (FileName::new(FileKind::Data, 1), Pool::new(0), 64);
        let length = blocks * BLOCK;
        let done = |op| directory.execute(op, &pool).expect("it works");
        done(Op::Create { file, size: length as u64, fill: Fill::Reserved });
        done(Op::Write { file, offset: 0, parts: vec![Buffer::copy_of(&vec![7; length]).freeze()] });
        let open = directory.file(file);
        let (around, through) = (open.around().expect("open"), open.through().expect("open"));
        let read = |caching| done(Op::Read { file, offset: 0, length, caching });
        let chosen = |blocks| open.for_read(Caching::MemoryOrAround, 0, blocks * BLOCK).expect("open");
        // Where O_DIRECT is refused, everything goes through memory.
        if note.is_none() {
            assert_eq!(read(Caching::MemoryOrAround)[..], vec![7; length]);
            assert!(!is_in_memory(through, 0, BLOCK) && std::ptr::eq(chosen(blocks), around));
            done(Op::Read { file, offset: 0, length: 2 * BLOCK, caching: Caching::Through });
            assert!(std::ptr::eq(open.for_read(Caching::Around, 0, BLOCK).expect("open"), around));
        }
        assert_eq!(read(Caching::Through)[..], vec![7; length]);
        // A kernel before 6.5 does not say what lies in memory.
        if is_in_memory(through, 0, length) {
            assert!(std::ptr::eq(chosen(blocks), through) && std::ptr::eq(chosen(1), through));
        }
        assert_eq!(read(Caching::MemoryOrAround)[..], vec![7; length]);
        std::fs::remove_dir_all(&path).expect("it is ours");
    }
}

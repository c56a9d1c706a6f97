//! Files and directories for commands, with errors that name the path; and the blocking file of the metadata store's tree.
#![allow(clippy::disallowed_methods)] // This is where files are opened for real.

use base::disk::BlockFile;
use base::error::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

fn named<T>(what: &str, path: &Path, result: io::Result<T>) -> Result<T> {
    result.map_err(|error| Error::from(error).during(format!("cannot {what} {}", path.display())))
}

/// Opens for reading.
pub fn open(path: &Path) -> Result<File> {
    named("open", path, File::open(path))
}

/// Opens for reading and writing, and makes the file if it is missing. What it holds stays.
pub fn open_or_create(path: &Path) -> Result<File> {
    named("open", path, OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path))
}

/// Makes an empty file, or empties the one that is there.
pub fn create(path: &Path) -> Result<File> {
    named("create", path, File::create(path))
}

/// Makes an empty file; an existing one is an error of kind `Exists`.
pub fn create_new(path: &Path) -> Result<File> {
    named("create", path, File::create_new(path))
}

/// The same, for its owner's eyes only (mode 0600).
pub fn create_new_private(path: &Path) -> Result<File> {
    named("create", path, OpenOptions::new().write(true).create_new(true).mode(0o600).open(path))
}

/// The same without a name, somewhere on the file system of a directory (`O_TMPFILE`, open(2)). Not on ZFS, where giving it one waits for the
/// whole transaction group, and not without /proc, by which it gets one.
pub fn create_unnamed(directory: &Path) -> Result<File> {
    static HAS_PROC: OnceLock<bool> = OnceLock::new();
    if !HAS_PROC.get_or_init(|| Path::new("/proc/self/fd").exists()) || file_system(directory) == Some(ZFS) {
        let text = format!("cannot create a file without a name in {}: not there", directory.display());
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    let opened = OpenOptions::new().write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(directory);
    named("create a file without a name in", directory, opened)
}

/// Gives a file without a name one that nothing has; otherwise the error is of kind `Exists` and nothing changed.
pub fn name(file: &File, path: &Path) -> Result<()> {
    named("create", path, try_name(file, path))
}

fn try_name(file: &File, path: &Path) -> io::Result<()> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = c_string(path)?;
    let (here, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
    // SAFETY: both are strings that end in a zero and outlive the call.
    match unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), follow) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// All bytes of a file, which should be small.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    named("read", path, std::fs::read(path))
}

/// All of a file as text.
pub fn read_text(path: &Path) -> Result<String> {
    named("read", path, std::fs::read_to_string(path))
}

/// Makes the file hold these bytes, durably and whole: it has its old bytes or the new ones, whatever happens.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut name = path.as_os_str().to_os_string();
    name.push(".making");
    let making = PathBuf::from(name);
    let file = create(&making)?;
    named("write", &making, file.write_all_at(bytes, 0))?;
    named("sync", &making, file.sync_all())?;
    rename(&making, path)?;
    sync_directory(parent(path))
}

/// What the system knows about a path; links are followed.
pub fn metadata(path: &Path) -> Result<Metadata> {
    named("look at", path, std::fs::metadata(path))
}

/// Whether something is there.
pub fn exists(path: &Path) -> Result<bool> {
    named("look at", path, path.try_exists())
}

/// Whether two paths lead to one file or directory that is there.
pub fn is_same(one: &Path, other: &Path) -> bool {
    let number = |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    number(one).is_some_and(|found| number(other) == Some(found))
}

/// The paths in a directory, sorted.
pub fn read_directory(path: &Path) -> Result<Vec<PathBuf>> {
    let entries = named("list", path, std::fs::read_dir(path))?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(named("list", path, entry)?.path());
    }
    paths.sort();
    Ok(paths)
}

/// Makes a directory and those above it, with durable names; one that is there is fine: whoever made it may have been killed before its
/// name was durable.
pub fn create_directories(path: &Path) -> Result<()> {
    create_directories_with(path, sync_directory)
}

/// The same, but nobody else may look into the directory itself if it is made.
pub fn create_own_directory(path: &Path) -> Result<()> {
    if exists(path)? {
        return create_directories(path);
    }
    create_directories(parent(path))?;
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => named("make directory", path, made).and_then(|()| sync_directory(parent(path))),
    }
}

/// As `create_directories`, where `sync` makes the names in a directory durable.
fn create_directories_with(path: &Path, sync: impl Fn(&Path) -> Result<()>) -> Result<()> {
    let named_above = |path: &&Path| !path.as_os_str().is_empty() && path.file_name().is_some();
    let missing = path.ancestors().take_while(named_above).take_while(|above| !above.exists()).count();
    named("make directory", path, std::fs::create_dir_all(path))?;
    // What is above a mount was made by whoever mounts there, and its file system may know no syncs.
    let ours: Vec<&Path> = path.ancestors().take_while(named_above).take_while(|path| !is_mount(path)).collect();
    for (number, directory) in ours.iter().enumerate().rev() {
        // Those that were there are above the user's own at last, and may be closed to him.
        if number < missing || !is_closed(parent(directory)) {
            sync(parent(directory))?;
        }
    }
    Ok(())
}

/// Whether we may not look into a directory.
fn is_closed(path: &Path) -> bool {
    File::open(path).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// Whether another file system than that of its parent begins at a directory, as far as that can be seen.
fn is_mount(path: &Path) -> bool {
    let device = |path: &Path| std::fs::metadata(path).ok().map(|found| found.dev());
    device(path) != device(parent(path))
}

/// Gives a file another name, replacing what has it. Durable after `sync_directory`.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    named(&format!("rename to {}", to.display()), from, std::fs::rename(from, to))
}

/// Gives a file another name that nothing has; otherwise the error is of kind `Exists` and nothing changed. Durable after `sync_directory`.
/// On a file system that has neither `RENAME_NOREPLACE` (renameat2(2)) nor hard links whatever comes there within the call is replaced.
pub fn rename_new(from: &Path, to: &Path) -> Result<()> {
    named(&format!("rename to {}", to.display()), from, try_rename_new(from, to))
}

fn try_rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let (old, new) = (c_string(from)?, c_string(to)?);
    // SAFETY: both are strings that end in a zero and outlive the call.
    let renamed =
        unsafe { libc::renameat2(libc::AT_FDCWD, old.as_ptr(), libc::AT_FDCWD, new.as_ptr(), libc::RENAME_NOREPLACE) };
    match renamed {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            // NFS has links that replace nothing, and no such renames.
            error if is_unknown(&error) => link_and_remove(from, to),
            error => Err(error),
        },
    }
}

fn link_and_remove(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::hard_link(from, to) {
        Ok(()) => std::fs::remove_file(from),
        Err(error) if is_unknown(&error) => match to.symlink_metadata() {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => std::fs::rename(from, to),
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// A path for a system call; an error if it holds a zero byte.
fn c_string(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Whether a file system says that it does not know this at all.
fn is_unknown(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP | libc::EPERM))
}

/// Removes a file.
pub fn remove(path: &Path) -> Result<()> {
    named("remove", path, std::fs::remove_file(path))
}

/// Makes the names in a directory durable.
pub fn sync_directory(path: &Path) -> Result<()> {
    let directory = open(path)?;
    named("sync directory", path, directory.sync_all())
}

/// What OpenZFS says it is, in statfs(2).
const ZFS: libc::__fsword_t = 0x2fc1_2fc1;

/// Which file system this is on, as statfs(2) numbers them.
fn file_system(path: &Path) -> Option<libc::__fsword_t> {
    let path = c_string(path).ok()?;
    // SAFETY: all zero is a valid value of this struct of numbers.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends in a zero, and both outlive the call.
    (unsafe { libc::statfs(path.as_ptr(), &raw mut found) } == 0).then_some(found.f_type)
}

/// Bytes that the file system of `path` has free for us.
pub fn free_bytes(path: &Path) -> Result<u64> {
    let name = named("ask for the free space of", path, c_string(path))?;
    // SAFETY: a zeroed statvfs is a valid value of that plain C struct.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `name` is a C string and `found` a struct of the right type, both alive during the call.
    let outcome = unsafe { libc::statvfs(name.as_ptr(), &raw mut found) };
    let result = if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    named("ask for the free space of", path, result)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file of flexible length, read and written blocking, through the page cache.
#[derive(Debug)]
pub struct BlockingFile {
    file: File,
    path: PathBuf,
}

impl BlockingFile {
    /// Opens the file, and makes it if it is missing. Its name is durable: whoever made it may have been killed before that.
    pub fn open(path: &Path) -> Result<BlockingFile> {
        BlockingFile::open_with(path, sync_directory)
    }

    /// The same, where `sync` makes the names in a directory durable.
    fn open_with(path: &Path, sync: impl Fn(&Path) -> Result<()>) -> Result<BlockingFile> {
        let file = open_or_create(path)?;
        named("sync", path, file.sync_all())?;
        sync(parent(path))?;
        Ok(BlockingFile { file, path: path.to_path_buf() })
    }

    /// Names the path in the system's error and keeps its kind.
    fn named<T>(&self, what: &str, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| io::Error::new(error.kind(), format!("cannot {what} {}: {error}", self.path.display())))
    }
}

impl BlockFile for BlockingFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.named("look at", self.file.metadata())?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.named("read", self.file.read_exact_at(out, offset))
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.named("change the length of", self.file.set_len(length))
    }

    fn sync(&self) -> io::Result<()> {
        // fdatasync also writes a changed length, which is needed to read the data back.
        self.named("sync", self.file.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.named("write", self.file.write_all_at(data, offset))
    }
}

/// A file that is only looked at: what is written to it stays in memory and ends with it.
#[derive(Debug)]
pub struct UnchangedFile {
    below: BlockingFile,
    changes: Mutex<Changes>,
}

#[derive(Debug, Default)]
struct Changes {
    length: u64,
    /// Bytes of the file below that still count: it may have been cut.
    below: u64,
    /// Whole pages of `PAGE` bytes, by number.
    pages: BTreeMap<u64, Vec<u8>>,
}

/// Unit in which changes are kept.
const PAGE: u64 = 4096;

impl UnchangedFile {
    /// Opens an existing file for reading.
    pub fn open(path: &Path) -> Result<UnchangedFile> {
        let below = BlockingFile { file: open(path)?, path: path.to_path_buf() };
        let length = metadata(path)?.len();
        Ok(UnchangedFile { below, changes: Mutex::new(Changes { length, below: length, pages: BTreeMap::new() }) })
    }

    /// What the file holds at `offset`, below the changes: zeros behind its end.
    fn read_below(&self, end: u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let there = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX).min(out.len());
        out[there..].fill(0);
        if there == 0 { Ok(()) } else { self.below.read(offset, &mut out[..there]) }
    }

    /// Calls `each` with every page number, offset within it and part of `bytes` that lies there.
    fn by_page(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let at = offset.saturating_add(done as u64);
            let within = (at % PAGE) as usize;
            let step = (length - done).min(PAGE as usize - within);
            done += step;
            (step > 0).then_some((at / PAGE, within, done - step..done))
        })
    }
}

impl BlockFile for UnchangedFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.changes.lock().unwrap_or_else(PoisonError::into_inner).length)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if offset.saturating_add(out.len() as u64) > changes.length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read_below(changes.below, offset, out)?;
        for (page, within, part) in UnchangedFile::by_page(offset, out.len()) {
            if let Some(bytes) = changes.pages.get(&page) {
                let length = part.len();
                out[part].copy_from_slice(&bytes[within..within + length]);
            }
        }
        Ok(())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.length = length;
        changes.below = changes.below.min(length);
        changes.pages.retain(|page, _| page * PAGE < length);
        if let Some(last) = changes.pages.get_mut(&(length / PAGE)) {
            last[(length % PAGE) as usize..].fill(0);
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let below = changes.below;
        for (page, within, part) in UnchangedFile::by_page(offset, data.len()) {
            if let std::collections::btree_map::Entry::Vacant(entry) = changes.pages.entry(page) {
                let mut bytes = vec![0; PAGE as usize];
                self.read_below(below, page * PAGE, &mut bytes)?;
                entry.insert(bytes);
            }
            if let Some(bytes) = changes.pages.get_mut(&page) {
                bytes[within..within + part.len()].copy_from_slice(&data[part]);
            }
        }
        changes.length = changes.length.max(offset.saturating_add(data.len() as u64));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{BlockingFile, create_directories_with};
    use base::error::Result;
    use std::cell::RefCell;
    use std::path::{Path, PathBuf};

    /// Every directory in which a name is found or made is synced, the one at the top first, and that of a file: somebody else may have made
    /// it and not lived to sync it.
    #[test]
    fn names_are_durable() {
        let root = std::env::temp_dir().join(format!("stormwell-os-{}-names", std::process::id()));
        std::fs::create_dir_all(&root).expect("a directory");
        let synced = RefCell::new(Vec::<PathBuf>::new());
        let sync = |path: &Path| -> Result<()> {
            synced.borrow_mut().push(path.to_path_buf());
            Ok(())
        };
        for _ in 0..2 {
            create_directories_with(&root.join("a/b/c"), sync).expect("made or there");
            let order = synced.take();
            assert!(order.ends_with(&[root.clone(), root.join("a"), root.join("a/b")]), "{order:?}");
        }
        for _ in 0..2 {
            BlockingFile::open_with(&root.join("a/file"), sync).expect("opened");
            assert_eq!(synced.take(), [root.join("a")]);
        }
        std::fs::remove_dir_all(&root).expect("removed");
    }
}

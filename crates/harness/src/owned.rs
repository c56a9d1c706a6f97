//! What must not outlive this process: its children and their directories.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

static OWNED: Mutex<Owned> = Mutex::new(Owned { processes: Vec::new(), directories: Vec::new() });

/// The ids of children that nobody has reaped, and directories to remove.
pub(crate) struct Owned {
    pub(crate) processes: Vec<u32>,
    /// Each with the directory above it, if that was made for it.
    pub(crate) directories: Vec<(PathBuf, Option<PathBuf>)>,
}

pub(crate) fn owned() -> MutexGuard<'static, Owned> {
    OWNED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills all children by their ids and removes all directories, for a process that is told to end and ends right after.
pub fn end_all() {
    let owned = owned();
    for process in &owned.processes {
        let Ok(id) = libc::pid_t::try_from(*process) else { continue };
        // SAFETY: kill is a plain system call, and the id is that of a child which nobody has reaped.
        unsafe { libc::kill(id, libc::SIGKILL) };
        // SAFETY: siginfo_t is plain numbers, for which all zeros is a value.
        let mut about: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // Waits until it is gone, and leaves it to be reaped by whoever holds it.
        // SAFETY: `about` is ours to be written.
        unsafe { libc::waitid(libc::P_PID, *process, &mut about, libc::WEXITED | libc::WNOWAIT) };
    }
    for (directory, parent) in &owned.directories {
        remove(directory, parent.as_deref());
    }
}

/// Removes a directory of ours, and the one above it if that was made for it and is empty now.
pub(crate) fn remove(directory: &Path, parent: Option<&Path>) {
    // What cannot be removed stays, under a name that says whose it was.
    let _ = std::fs::remove_dir_all(directory);
    if let Some(parent) = parent {
        let _ = std::fs::remove_dir(parent);
    }
}

//! What new files and directories are born with, as a client says it; what their directory hands down the store adds.

use crate::message::hdfs::Permission;
use crate::names::resolved_path::ResolvedPath;
use crate::refusal::{FILE_NOT_FOUND, PARENT_NOT_DIRECTORY, Refusal};
use client::{CreateOptions, DirectoryOptions};

/// Permission bits as a client sends them: with its umask, and without.
pub(crate) type Bits = (Permission, Option<Permission>);

fn bits((masked, open): Bits) -> (u32, Option<u32>) {
    (masked.bits & 0o1777, open.map(|open| open.bits & 0o1777))
}

/// How a directory is made: in all that are made on the way the owner may write.
pub(crate) fn directory_options(said: Bits) -> DirectoryOptions {
    let (masked, open) = bits(said);
    let above_mode = Some(masked & 0o777 | 0o300);
    DirectoryOptions { mode: Some(masked), open, above_mode, group_above: true, ..DirectoryOptions::default() }
}

/// How a file is made: directories above it are as the one that they are made in.
pub(crate) fn file_options(said: Bits) -> CreateOptions {
    let (masked, open) = bits(said);
    CreateOptions { mode: Some(masked), open, above_alike: true, group_above: true, ..CreateOptions::default() }
}

/// Refuses what is to be made in a directory that is not there.
pub(crate) fn check_parent(resolved: &ResolvedPath) -> Result<(), Refusal> {
    if !resolved.has_parent() {
        return Err(Refusal::new(
            FILE_NOT_FOUND,
            format!("Parent directory doesn't exist: {}", resolved.parent_path()),
        ));
    }
    if resolved.parent().is_some_and(|parent| !parent.directory) {
        let text = format!("Parent path is not a directory: {}", resolved.parent_path());
        return Err(Refusal::new(PARENT_NOT_DIRECTORY, text));
    }
    Ok(())
}

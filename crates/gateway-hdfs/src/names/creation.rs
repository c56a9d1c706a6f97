//! What new files and directories are born with: owner, group, permission bits and access control list.

use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::message::hdfs::Permission;
use crate::names::acl;
use crate::names::permission::{self, WRITE, Wanted};
use crate::names::way::{Purpose, Way};
use crate::note::Note;
use crate::refusal::{FILE_EXISTS, FILE_NOT_FOUND, PARENT_NOT_DIRECTORY, Refusal};
use client::{Attributes, DirectoryOptions, Looked};
use prost::Message;

/// Where something new goes and what it is born with.
pub(crate) struct Creation {
    /// Its path as the store has it.
    pub path: String,
    /// What has that name now.
    pub existing: Option<Attributes>,
    /// Permission bits.
    pub mode: u32,
    /// Who owns it and what is made above it.
    pub owner: String,
    /// Which group does.
    pub group: String,
    /// What is kept with it so far: its access control list.
    pub note: Note,
    /// Permission bits of directories that are made above it.
    pub above_mode: u32,
    /// What is kept with these.
    pub above_note: Vec<u8>,
    /// The version of the directories above.
    pub version: u64,
    /// What was found on the way, for a change that relies on it.
    pub looked: Looked,
}

/// Permission bits as a client sends them: with its umask, and without.
pub(crate) type Bits = (Permission, Option<Permission>);

/// Where and how a new file may be made by this caller. `overwrite`: a file of this name may be replaced; `parents`: missing
/// directories may be made.
///
/// A file that exists and may not be replaced is the caller's to refuse: who writes it decides how.
pub(crate) async fn for_file(
    gateway: &Gateway,
    caller: &Caller,
    source: &str,
    (overwrite, parents): (bool, bool),
    bits: Bits,
) -> Result<Creation, Refusal> {
    let way = Way::look(gateway, caller, source, Purpose::Create).await?;
    permission::check(&gateway.superuser, caller, &way, Wanted { ancestor: WRITE, ..Wanted::default() })?;
    match way.last() {
        Some(existing) if existing.directory => {
            return Err(Refusal::new(FILE_EXISTS, format!("{} already exists as a directory", way.path)));
        }
        Some(_) if overwrite => {
            permission::check(&gateway.superuser, caller, &way, Wanted { access: WRITE, ..Wanted::default() })?;
        }
        Some(_) => {}
        None if !parents => check_parent(&way)?,
        None => {}
    }
    Ok(born(caller, way, bits, false))
}

/// Where and how a new file or directory may be made by this caller, without a question, if its directory is known and nothing
/// speaks against it as far as is known: provided that there is nothing of this name. Else `None`: ask.
pub(crate) fn for_known(
    gateway: &Gateway,
    caller: &Caller,
    source: &str,
    bits: Bits,
    directory: bool,
) -> Result<Option<Creation>, Refusal> {
    let way = Way::known(gateway, caller, source, Purpose::Create)?;
    let free = way.filter(|way| permission::may_change_names(&gateway.superuser, caller, way));
    Ok(free.map(|way| born(caller, way, bits, directory)))
}

/// Where and how a new directory may be made; `existing` says that it is there already.
pub(crate) async fn for_directory(
    gateway: &Gateway,
    caller: &Caller,
    source: &str,
    parents: bool,
    bits: Bits,
) -> Result<Creation, Refusal> {
    let way = Way::look(gateway, caller, source, Purpose::Create).await?;
    match way.last() {
        Some(existing) if !existing.directory => {
            return Err(Refusal::new(FILE_EXISTS, format!("Path is not a directory: {source}")));
        }
        Some(_) => {}
        None => {
            permission::check(&gateway.superuser, caller, &way, Wanted { ancestor: WRITE, ..Wanted::default() })?;
            if !parents {
                check_parent(&way)?;
            }
        }
    }
    Ok(born(caller, way, bits, true))
}

impl Creation {
    /// For the client: make it as a directory, and those above it that are missing. `known`: only if the directories have this
    /// version still; 0: in any case.
    pub fn into_directory(self, known: u64) -> (String, DirectoryOptions) {
        let Creation { path, mode, owner, group, note, above_mode, above_note, .. } = self;
        let (mode, above_mode, note) = (Some(mode), Some(above_mode), note.encode_to_vec());
        let (owner, group) = (Some(owner), Some(group));
        (path, DirectoryOptions { parents: true, mode, owner, group, note, above_mode, above_note, known })
    }
}

fn check_parent(way: &Way) -> Result<(), Refusal> {
    if !way.has_parent() {
        return Err(Refusal::new(FILE_NOT_FOUND, format!("Parent directory doesn't exist: {}", way.parent_path())));
    }
    if way.parent().is_some_and(|parent| !parent.directory) {
        let text = format!("Parent path is not a directory: {}", way.parent_path());
        return Err(Refusal::new(PARENT_NOT_DIRECTORY, text));
    }
    Ok(())
}

fn born(caller: &Caller, way: Way, (masked, open): Bits, directory: bool) -> Creation {
    let ancestor = way.ancestor().1;
    let (masked, open) = (masked.bits & 0o1777, open.map(|open| open.bits & 0o1777));
    // Directories above a file are as the one that they are made in; in all that are made the owner may write.
    let (above_masked, above_open) =
        if directory { (masked & 0o777 | 0o300, open) } else { (ancestor.mode & 0o777 | 0o300, None) };
    let list = if ancestor.note.is_empty() { Vec::new() } else { Note::read(&ancestor.note).acl() };
    let (above_mode, above_acl) = acl::inherited(&list, above_masked, above_open.unwrap_or(above_masked), true);
    // What is made on the way inherits the same, so this is also what it hands down.
    let (mode, acl) = acl::inherited(&list, masked, open.unwrap_or(masked), directory);
    let above = Note::default().with_acl(above_acl);
    let group = permission::group_of(ancestor).to_string();
    Creation {
        existing: way.last().cloned(),
        mode,
        owner: caller.user.to_string(),
        group,
        note: Note::default().with_acl(acl),
        above_mode,
        above_note: above.encode_to_vec(),
        version: way.version,
        looked: way.looked(),
        path: way.path,
    }
}

//! Who may do what: owner, group and others, access control lists, the sticky bit, and the superuser, as HDFS judges them.

use crate::caller::Caller;
use crate::gateway::{Gateway, SUPERUSERS_GROUP};
use crate::names::acl;
use crate::names::way::Way;
use crate::note::{AclEntry, Note};
use crate::refusal::{ACCESS_CONTROL, Refusal};
use client::Attributes;

/// Going through a directory.
pub(crate) const EXECUTE: u32 = 1;
/// Changing a file, or the names in a directory.
pub(crate) const WRITE: u32 = 2;
/// Reading a file, or listing a directory.
pub(crate) const READ: u32 = 4;
/// All three.
pub(crate) const ALL: u32 = 7;

/// The permission bit that keeps others from removing what is not theirs from a directory.
const STICKY: u32 = 0o1000;

/// What the caller must be allowed to on a way, besides going it: rights as bits, 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Of the deepest directory above the path that is there.
    pub ancestor: u32,
    /// Of the directory that the path is in, if it is there. With `WRITE` its sticky bit counts.
    pub parent: u32,
    /// Of what the path names, if it is there.
    pub access: u32,
    /// The caller must own what the path names.
    pub owner: bool,
}

/// Refuses unless the caller may do this at the end of this way.
pub(crate) fn check(gateway: &Gateway, caller: &Caller, way: &Way, wanted: Wanted) -> Result<(), Refusal> {
    if caller.superuser {
        return Ok(());
    }
    let Wanted { ancestor, parent, access, owner } = wanted;
    if parent & WRITE != 0
        && let (Some(parent), Some(last)) = (way.parent(), way.last())
    {
        check_sticky(gateway, caller, (parent, way.parent_path()), (last, &way.path))?;
    }
    if ancestor != 0 && !way.is_root() {
        let (at, above) = way.ancestor();
        check_one(gateway, caller, above, way.path_at(at), ancestor)?;
    }
    if parent != 0
        && let Some(above) = way.parent()
    {
        check_one(gateway, caller, above, way.parent_path(), parent)?;
    }
    let Some(last) = way.last() else { return Ok(()) };
    if access != 0 {
        check_one(gateway, caller, last, &way.path, access)?;
    }
    if owner && *caller.user != *owner_of(gateway, last) {
        let text = format!("Permission denied. user={} is not the owner of inode={}", caller.user, way.path);
        return Err(Refusal::new(ACCESS_CONTROL, text));
    }
    Ok(())
}

/// Refuses unless the caller has these rights on this one file or directory.
pub(crate) fn check_one(
    gateway: &Gateway,
    caller: &Caller,
    attributes: &Attributes,
    path: &str,
    access: u32,
) -> Result<(), Refusal> {
    if caller.superuser || has(gateway, caller, attributes, access) {
        return Ok(());
    }
    let action = ["NONE", "EXECUTE", "WRITE", "WRITE_EXECUTE", "READ", "READ_EXECUTE", "READ_WRITE", "ALL"];
    let plus = if acl::has_access_entries(&entries(attributes)) { "+" } else { "" };
    let text = format!(
        "Permission denied: user={}, access={}, inode=\"{path}\":{}{plus}",
        caller.user,
        action[(access & ALL) as usize],
        described(gateway, attributes)
    );
    Err(Refusal::new(ACCESS_CONTROL, text))
}

/// Refuses to remove `last` from `parent` if that is sticky and neither is the caller's.
pub(crate) fn check_sticky(
    gateway: &Gateway,
    caller: &Caller,
    (parent, parent_path): (&Attributes, &str),
    (last, path): (&Attributes, &str),
) -> Result<(), Refusal> {
    let mine = |attributes| *caller.user == *owner_of(gateway, attributes);
    if caller.superuser || parent.mode & STICKY == 0 || mine(parent) || mine(last) {
        return Ok(());
    }
    let text = format!(
        "Permission denied by sticky bit: user={}, path=\"{path}\":{}, parent=\"{parent_path}\":{}",
        caller.user,
        described(gateway, last),
        described(gateway, parent)
    );
    Err(Refusal::new(ACCESS_CONTROL, text))
}

/// The refusal of what only a superuser may do.
pub(crate) fn superuser_only(caller: &Caller) -> Refusal {
    let text = format!("Access denied for user {}. Superuser privilege is required", caller.user);
    Refusal::new(ACCESS_CONTROL, text)
}

/// Who owns it: the superuser what nobody claimed.
pub(crate) fn owner_of<'a>(gateway: &'a Gateway, attributes: &'a Attributes) -> &'a str {
    if attributes.owner.is_empty() { &gateway.superuser } else { &attributes.owner }
}

/// Which group it belongs to.
pub(crate) fn group_of(attributes: &Attributes) -> &str {
    if attributes.group.is_empty() { SUPERUSERS_GROUP } else { &attributes.group }
}

fn entries(attributes: &Attributes) -> Vec<AclEntry> {
    // Most have no note, and are asked about for every directory of every path.
    if attributes.note.is_empty() { Vec::new() } else { Note::read(&attributes.note).acl }
}

fn has(gateway: &Gateway, caller: &Caller, attributes: &Attributes, access: u32) -> bool {
    let (user, group, other) = (attributes.mode >> 6 & 7, attributes.mode >> 3 & 7, attributes.mode & 7);
    let implies = |bits: u32| bits & access == access;
    let member = |name: &str| caller.groups.iter().any(|group| group == name);
    if *caller.user == *owner_of(gateway, attributes) {
        return implies(user);
    }
    let entries = entries(attributes);
    if !acl::has_access_entries(&entries) {
        return implies(if member(group_of(attributes)) { group } else { other });
    }
    // The group bits are the mask of a list. A named user is judged by that entry alone; of groups one is enough.
    let mut found = false;
    for entry in entries.iter().take_while(|entry| entry.scope == acl::ACCESS) {
        let name = if entry.name.is_empty() { group_of(attributes) } else { &entry.name };
        let masked = implies(entry.permissions & group);
        match entry.kind {
            acl::USER if entry.name == *caller.user => return masked,
            acl::GROUP if member(name) && masked => return true,
            acl::GROUP if member(name) => found = true,
            _ => {}
        }
    }
    !found && implies(other)
}

fn described(gateway: &Gateway, attributes: &Attributes) -> String {
    let (owner, group) = (owner_of(gateway, attributes), group_of(attributes));
    let kind = if attributes.directory { 'd' } else { '-' };
    format!("{owner}:{group}:{kind}{}", symbols(attributes.mode))
}

/// Permission bits as `ls` writes them.
fn symbols(mode: u32) -> String {
    let mut text: Vec<char> =
        (0..9).map(|place| if mode >> (8 - place) & 1 == 1 { ['r', 'w', 'x'][place % 3] } else { '-' }).collect();
    if mode & STICKY != 0 {
        text[8] = if mode & 1 == 1 { 't' } else { 'T' };
    }
    text.into_iter().collect()
}

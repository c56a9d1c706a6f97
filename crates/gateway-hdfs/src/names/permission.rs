//! Who may do what, by the rules of `base::permission`, of what the gateway looked up.

use crate::caller::Caller;
use crate::names::way::Way;
use crate::note::Note;
use crate::refusal::{ACCESS_CONTROL, Refusal};
use base::acl::AclEntry;
use base::permission::{self, Rights, STICKY, User};
pub(crate) use base::permission::{ALL, EXECUTE, READ, SUPERUSERS_GROUP, WRITE, Wanted};
use client::Attributes;

/// Refuses unless the caller may do this at the end of this way.
pub(crate) fn check(superuser: &str, caller: &Caller, way: &Way, wanted: Wanted) -> Result<(), Refusal> {
    if caller.superuser {
        return Ok(());
    }
    let above: Vec<Vec<AclEntry>> = way.above.iter().map(entries).collect();
    let above: Vec<Rights<'_>> =
        way.above.iter().zip(&above).map(|(attributes, acl)| rights(superuser, attributes, acl)).collect();
    let acl = way.last().map(entries).unwrap_or_default();
    let last = way.last().map(|attributes| rights(superuser, attributes, &acl));
    let way = permission::Way { path: &way.path, above: &above, last };
    permission::may(user(caller), &way, wanted).map_err(Refusal::from)
}

/// Whether the caller may add and remove any name in the directory that the path is in, whatever the name stands for.
pub(crate) fn may_change_names(superuser: &str, caller: &Caller, way: &Way) -> bool {
    let free = |parent: &Attributes| {
        parent.mode & STICKY == 0 && check_one(superuser, caller, parent, &way.path, WRITE).is_ok()
    };
    caller.superuser || way.parent().is_some_and(free)
}

/// Refuses unless the caller has these rights on this one file or directory.
pub(crate) fn check_one(
    superuser: &str,
    caller: &Caller,
    attributes: &Attributes,
    path: &str,
    access: u32,
) -> Result<(), Refusal> {
    if caller.superuser {
        return Ok(());
    }
    let acl = entries(attributes);
    permission::may_access(user(caller), &rights(superuser, attributes, &acl), path, access).map_err(Refusal::from)
}

/// Refuses to remove `last` from `parent` if that is sticky and neither is the caller's.
pub(crate) fn check_sticky(
    superuser: &str,
    caller: &Caller,
    (parent, parent_path): (&Attributes, &str),
    (last, path): (&Attributes, &str),
) -> Result<(), Refusal> {
    let (parent, last) = (rights(superuser, parent, &[]), rights(superuser, last, &[]));
    permission::may_remove(user(caller), (&parent, parent_path), (&last, path)).map_err(Refusal::from)
}

/// The refusal of what only a superuser may do; HDFS's name of the operation.
pub(crate) fn superuser_only(caller: &Caller, operation: &str) -> Refusal {
    let text =
        format!("Access denied for user {}. Superuser privilege is required for operation {operation}", caller.user);
    Refusal::new(ACCESS_CONTROL, text)
}

/// The caller as the rules know it.
pub(crate) fn user(caller: &Caller) -> User<'_> {
    User { name: &caller.user, groups: &caller.groups, superuser: caller.superuser }
}

/// Who owns it: the superuser what nobody claimed.
pub(crate) fn owner_of<'a>(superuser: &'a str, attributes: &'a Attributes) -> &'a str {
    if attributes.owner.is_empty() { superuser } else { &attributes.owner }
}

/// Which group it belongs to.
pub(crate) fn group_of(attributes: &Attributes) -> &str {
    if attributes.group.is_empty() { SUPERUSERS_GROUP } else { &attributes.group }
}

fn entries(attributes: &Attributes) -> Vec<AclEntry> {
    // Most have no note, and are asked about for every directory of every path.
    if attributes.note.is_empty() { Vec::new() } else { Note::read(&attributes.note).acl() }
}

fn rights<'a>(superuser: &'a str, attributes: &'a Attributes, acl: &'a [AclEntry]) -> Rights<'a> {
    let (directory, mode) = (attributes.directory, attributes.mode);
    Rights { directory, mode, owner: owner_of(superuser, attributes), group: group_of(attributes), acl }
}

//! Who may do what: owner, group and others, access control lists, the sticky bit, and superusers, as HDFS judges them. Pure rules over what
//! is on the way to a path; the store asks them (`meta/src/access.rs`).

mod denied;

pub use denied::{Denied, Described};

use crate::acl::{self, AclEntry};

/// Going through a directory.
pub const EXECUTE: u32 = 1;
/// Changing a file, or the names in a directory.
pub const WRITE: u32 = 2;
/// Reading a file, or listing a directory.
pub const READ: u32 = 4;
/// All three.
pub const ALL: u32 = 7;

/// The permission bit that keeps others from removing what is not theirs from a directory.
pub const STICKY: u32 = 0o1000;

/// Members of this group may do everything, as in HDFS.
pub const SUPERUSERS_GROUP: &str = "supergroup";

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct User<'a> {
    /// The name.
    pub name: &'a str,
    /// The groups that the user is in.
    pub groups: &'a [String],
    /// May do everything.
    pub superuser: bool,
}

/// What decides who may do what with a file or directory.
#[derive(Clone, Copy, Debug)]
pub struct Rights<'a> {
    /// A directory, not a file.
    pub directory: bool,
    /// Permission bits.
    pub mode: u32,
    /// Who owns it: the superuser what nobody claimed.
    pub owner: &'a str,
    /// Which group it belongs to: the superusers' what nobody claimed.
    pub group: &'a str,
    /// What its access control list says beyond the bits, as it is stored.
    pub acl: &'a [AclEntry],
}

/// A path and what is on the way to it.
#[derive(Clone, Copy, Debug)]
pub struct Way<'a> {
    /// `/` and names, one slash between them.
    pub path: &'a str,
    /// The root, then each name above the last one as far as there is something; nothing for the root itself.
    pub above: &'a [Rights<'a>],
    /// What the path names, if there is something.
    pub last: Option<Rights<'a>>,
}

/// What a user must be allowed to on a way, besides going it: rights as bits, 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Of the deepest directory above the path that is there.
    pub ancestor: u32,
    /// Of the directory that the path is in, if it is there. With `WRITE` its sticky bit counts.
    pub parent: u32,
    /// Of what the path names, if it is there.
    pub access: u32,
    /// The user must own what the path names.
    pub owner: bool,
}

impl Wanted {
    /// Rights on what the path names.
    pub fn access(access: u32) -> Wanted {
        Wanted { access, ..Wanted::default() }
    }
}

impl<'a> Way<'a> {
    fn names(&self) -> usize {
        self.path.split('/').filter(|name| !name.is_empty()).count()
    }

    /// The directory that the path is in, if it is there; none for the root.
    fn parent(&self) -> Option<&Rights<'a>> {
        self.names().checked_sub(1).and_then(|above| self.above.get(above))
    }

    /// The path of what is so many names deep on the way.
    fn path_at(&self, at: usize) -> &'a str {
        match self.path.match_indices('/').nth(at) {
            _ if at == 0 => "/",
            Some((end, _)) => &self.path[..end],
            None => self.path,
        }
    }

    fn parent_path(&self) -> &'a str {
        match self.path.rsplit_once('/') {
            None | Some(("", _)) => "/",
            Some((parent, _)) => parent,
        }
    }
}

/// Refuses unless everything above the path is a directory that the user may go through. That it is one holds for superusers, too.
pub fn may_go(user: User<'_>, way: &Way<'_>) -> Result<(), Denied> {
    for (at, above) in way.above.iter().enumerate() {
        if !above.directory {
            return Err(Denied::NotDirectory { path: way.path_at(at).to_string() });
        }
        may_access(user, above, way.path_at(at), EXECUTE)?;
    }
    Ok(())
}

/// Refuses unless the user may do this at the end of this way, which may be gone.
pub fn may(user: User<'_>, way: &Way<'_>, wanted: Wanted) -> Result<(), Denied> {
    if user.superuser {
        return Ok(());
    }
    let Wanted { ancestor, parent, access, owner } = wanted;
    if parent & WRITE != 0
        && let (Some(parent), Some(last)) = (way.parent(), &way.last)
    {
        may_remove(user, (parent, way.parent_path()), (last, way.path))?;
    }
    if ancestor != 0
        && let Some(at) = way.above.len().checked_sub(1)
    {
        may_access(user, &way.above[at], way.path_at(at), ancestor)?;
    }
    if parent != 0
        && let Some(above) = way.parent()
    {
        may_access(user, above, way.parent_path(), parent)?;
    }
    let Some(last) = &way.last else { return Ok(()) };
    if access != 0 {
        may_access(user, last, way.path, access)?;
    }
    if owner && user.name != last.owner {
        return Err(Denied::Owner { user: user.name.to_string(), path: way.path.to_string() });
    }
    Ok(())
}

/// Refuses unless the user has these rights on this one file or directory.
pub fn may_access(user: User<'_>, rights: &Rights<'_>, path: &str, access: u32) -> Result<(), Denied> {
    if user.superuser || has(user, rights, access) {
        return Ok(());
    }
    let (user, path) = (user.name.to_string(), path.to_string());
    Err(Denied::Access { user, access: access & ALL, path, what: Described::of(rights) })
}

/// Refuses to remove `last` from `parent` if that is sticky and neither is the user's.
pub fn may_remove(
    user: User<'_>,
    (parent, parent_path): (&Rights<'_>, &str),
    (last, path): (&Rights<'_>, &str),
) -> Result<(), Denied> {
    let mine = |rights: &Rights<'_>| user.name == rights.owner;
    if user.superuser || parent.mode & STICKY == 0 || mine(parent) || mine(last) {
        return Ok(());
    }
    Err(Denied::Sticky {
        user: user.name.to_string(),
        path: path.to_string(),
        what: Described::of(last),
        parent_path: parent_path.to_string(),
        parent: Described::of(parent),
    })
}

/// Refuses a new owner or group: the owner is changed by superusers only, the group also by the owner to a group of its own.
pub fn may_give(user: User<'_>, owner: Option<&str>, group: Option<&str>) -> Result<(), Denied> {
    if user.superuser {
        return Ok(());
    }
    let name = || user.name.to_string();
    if owner.is_some_and(|owner| owner != user.name) {
        return Err(Denied::Giver { user: name() });
    }
    match group.filter(|group| !user.groups.iter().any(|mine| mine == group)) {
        Some(group) => Err(Denied::Group { user: name(), group: group.to_string() }),
        None => Ok(()),
    }
}

/// Whether the user has these rights, who is no superuser.
fn has(user: User<'_>, rights: &Rights<'_>, access: u32) -> bool {
    let (owner, group, other) = (rights.mode >> 6 & 7, rights.mode >> 3 & 7, rights.mode & 7);
    let implies = |bits: u32| bits & access == access;
    let member = |name: &str| user.groups.iter().any(|group| group == name);
    if user.name == rights.owner {
        return implies(owner);
    }
    if !acl::has_access_entries(rights.acl) {
        return implies(if member(rights.group) { group } else { other });
    }
    // The group bits are the mask of a list. A named user is judged by that entry alone; of groups one is enough.
    let mut found = false;
    for entry in rights.acl.iter().take_while(|entry| entry.scope == acl::ACCESS) {
        let name = if entry.name.is_empty() { rights.group } else { &entry.name };
        let masked = implies(entry.permissions & group);
        match entry.kind {
            acl::USER if entry.name == user.name => return masked,
            acl::GROUP if member(name) && masked => return true,
            acl::GROUP if member(name) => found = true,
            _ => {}
        }
    }
    !found && implies(other)
}

#[cfg(test)]
mod tests;

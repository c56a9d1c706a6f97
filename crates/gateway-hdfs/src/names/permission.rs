//! Who may do what: owner, group and others, access control lists, the sticky bit, and the superuser, as HDFS judges them.

use crate::caller::Caller;
use crate::gateway::SUPERUSERS_GROUP;
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
pub(crate) fn check(superuser: &str, caller: &Caller, way: &Way, wanted: Wanted) -> Result<(), Refusal> {
    if caller.superuser {
        return Ok(());
    }
    let Wanted { ancestor, parent, access, owner } = wanted;
    if parent & WRITE != 0
        && let (Some(parent), Some(last)) = (way.parent(), way.last())
    {
        check_sticky(superuser, caller, (parent, way.parent_path()), (last, &way.path))?;
    }
    if ancestor != 0 && !way.is_root() {
        let (at, above) = way.ancestor();
        check_one(superuser, caller, above, way.path_at(at), ancestor)?;
    }
    if parent != 0
        && let Some(above) = way.parent()
    {
        check_one(superuser, caller, above, way.parent_path(), parent)?;
    }
    let Some(last) = way.last() else { return Ok(()) };
    if access != 0 {
        check_one(superuser, caller, last, &way.path, access)?;
    }
    if owner && *caller.user != *owner_of(superuser, last) {
        let text = format!("Permission denied. user={} is not the owner of inode={}", caller.user, way.path);
        return Err(Refusal::new(ACCESS_CONTROL, text));
    }
    Ok(())
}

/// Whether the caller may add and remove any name in the directory that the path is in, whatever the name stands for.
pub(crate) fn may_change_names(superuser: &str, caller: &Caller, way: &Way) -> bool {
    let free = |parent: &Attributes| parent.mode & STICKY == 0 && has(superuser, caller, parent, WRITE);
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
    if caller.superuser || has(superuser, caller, attributes, access) {
        return Ok(());
    }
    let action = ["NONE", "EXECUTE", "WRITE", "WRITE_EXECUTE", "READ", "READ_EXECUTE", "READ_WRITE", "ALL"];
    let text = format!(
        "Permission denied: user={}, access={}, inode=\"{path}\":{}",
        caller.user,
        action[(access & ALL) as usize],
        described(superuser, attributes)
    );
    Err(Refusal::new(ACCESS_CONTROL, text))
}

/// Refuses to remove `last` from `parent` if that is sticky and neither is the caller's.
pub(crate) fn check_sticky(
    superuser: &str,
    caller: &Caller,
    (parent, parent_path): (&Attributes, &str),
    (last, path): (&Attributes, &str),
) -> Result<(), Refusal> {
    let mine = |attributes| *caller.user == *owner_of(superuser, attributes);
    if caller.superuser || parent.mode & STICKY == 0 || mine(parent) || mine(last) {
        return Ok(());
    }
    let text = format!(
        "Permission denied by sticky bit: user={}, path=\"{path}\":{}, parent=\"{parent_path}\":{}",
        caller.user,
        described(superuser, last),
        described(superuser, parent)
    );
    Err(Refusal::new(ACCESS_CONTROL, text))
}

/// The refusal of what only a superuser may do; HDFS's name of the operation.
pub(crate) fn superuser_only(caller: &Caller, operation: &str) -> Refusal {
    let text =
        format!("Access denied for user {}. Superuser privilege is required for operation {operation}", caller.user);
    Refusal::new(ACCESS_CONTROL, text)
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
    if attributes.note.is_empty() { Vec::new() } else { Note::read(&attributes.note).acl }
}

fn has(superuser: &str, caller: &Caller, attributes: &Attributes, access: u32) -> bool {
    let (user, group, other) = (attributes.mode >> 6 & 7, attributes.mode >> 3 & 7, attributes.mode & 7);
    let implies = |bits: u32| bits & access == access;
    let member = |name: &str| caller.groups.iter().any(|group| group == name);
    if *caller.user == *owner_of(superuser, attributes) {
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

fn described(superuser: &str, attributes: &Attributes) -> String {
    let (owner, group) = (owner_of(superuser, attributes), group_of(attributes));
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

#[cfg(test)]
mod tests {
    use super::{ALL, EXECUTE, READ, WRITE, Wanted, check, check_one};
    use crate::caller::Caller;
    use crate::names::way::Way;
    use crate::note::{AclEntry, Note};
    use client::Attributes;
    use prost::Message;

    fn caller(user: &str, groups: &[&str]) -> Caller {
        Caller {
            user: user.into(),
            groups: groups.iter().map(|group| group.to_string()).collect::<Vec<_>>().into(),
            superuser: user == "root",
            client_id: [0; 16],
            call: 1,
            again: false,
            address: "127.0.0.1:1".into(),
            share: Default::default(),
        }
    }

    fn is(directory: bool, mode: u32, owner: &str, group: &str) -> Attributes {
        let (owner, group) = (owner.to_string(), group.to_string());
        Attributes { directory, mode, owner, group, ..Attributes::default() }
    }

    fn with_list(attributes: Attributes, entries: &[(u32, u32, u32, &str)]) -> Attributes {
        let entry = |&(scope, kind, permissions, name): &(u32, u32, u32, &str)| AclEntry {
            scope,
            kind,
            permissions,
            name: name.to_string(),
        };
        let note = Note { acl: entries.iter().map(entry).collect(), ..Note::default() };
        Attributes { note: note.encode_to_vec(), ..attributes }
    }

    /// Of a list that counts as none nothing stays but the bits, and these are what clients are shown: what was its mask is what the group
    /// may, no name in it has a right, and no client is told that there is a list.
    #[test]
    fn the_bits_of_a_dropped_list_are_enforced_as_shown() {
        let foreign = [(0, 1, READ, ""), (0, 0, ALL, "bob")];
        for mode in [0o640, 0o670, 0o604] {
            let file = with_list(is(false, mode, "ann", "staff"), &foreign);
            let note = Note::read(&file.note);
            let shown = crate::names::file_status("f", &file, &note, "root");
            assert_eq!((shown.permission.bits, shown.flags), (mode, Some(0)));
            for access in [READ, WRITE, EXECUTE, ALL] {
                let allowed = |user, groups| check_one("root", &caller(user, groups), &file, "/f", access).is_ok();
                assert_eq!(allowed("cas", &["staff"][..]), mode >> 3 & 7 & access == access, "{mode:o} {access}");
                assert_eq!(allowed("bob", &[]), mode & 7 & access == access, "{mode:o} {access}");
            }
        }
    }

    /// Owner, then group, then others: the first class that fits decides, also against the caller. The superuser may all.
    #[test]
    fn classes() {
        let file = is(false, 0o421, "ann", "staff");
        for (user, groups, rights) in [
            ("ann", &["staff"][..], READ),
            ("bob", &["staff"], WRITE),
            ("bob", &["guests", "staff"], WRITE),
            ("bob", &["guests"], EXECUTE),
            ("bob", &[], EXECUTE),
            ("root", &[], ALL),
        ] {
            for access in [READ, WRITE, EXECUTE, READ | WRITE, ALL] {
                let allowed = check_one("root", &caller(user, groups), &file, "/f", access).is_ok();
                assert_eq!(allowed, rights & access == access, "{user} {groups:?} {access}");
            }
        }
        // What nobody claimed is the superuser's and its group's.
        let root = is(true, 0o750, "", "");
        assert!(check_one("root", &caller("bob", &["supergroup"]), &root, "/", READ).is_ok());
        assert!(check_one("root", &caller("bob", &[]), &root, "/", READ).is_err());
    }

    /// With a list the group bits are its mask: a named user is judged by that entry alone, of groups one that allows it is
    /// enough, and whoever is named is none of the others.
    #[test]
    fn lists() {
        let file = with_list(
            is(true, 0o756, "ann", "staff"),
            &[
                (0, 0, 7, "bob"),
                (0, 0, 0, "eve"),
                (0, 1, 4, ""),
                (0, 1, 3, "devs"),
                (1, 0, 7, ""),
                (1, 0, 7, "zoe"),
                (1, 1, 7, ""),
                (1, 2, 7, ""),
                (1, 3, 7, ""),
            ],
        );
        for (user, groups, rights) in [
            ("ann", &[][..], ALL),
            ("bob", &[], READ | EXECUTE),
            ("eve", &["staff", "devs"], 0),
            ("joe", &["staff"], READ),
            ("joe", &["devs"], EXECUTE),
            ("joe", &["guests"], READ | WRITE),
            ("zoe", &[], READ | WRITE),
        ] {
            for access in [READ, WRITE, EXECUTE] {
                let allowed = check_one("root", &caller(user, groups), &file, "/f", access).is_ok();
                assert_eq!(allowed, rights & access == access, "{user} {groups:?} {access}");
            }
        }
        // Each of two groups allows a part: together they do not allow the whole.
        assert!(check_one("root", &caller("joe", &["staff", "devs"]), &file, "/f", READ | EXECUTE).is_err());
        let inherits = with_list(is(true, 0o700, "ann", "staff"), &[(1, 0, 7, ""), (1, 1, 7, ""), (1, 3, 7, "")]);
        let text = check_one("root", &caller("bob", &[]), &inherits, "/d", READ).expect_err("others get nothing").text;
        assert!(text.ends_with(":drwx------"), "{text}");
    }

    /// The texts are HDFS's: programs take them apart.
    #[test]
    fn texts() {
        let bob = caller("bob", &[]);
        let text = |attributes: &Attributes, access| {
            check_one("root", &bob, attributes, "/d", access).expect_err("refused").text
        };
        let directory = is(true, 0o755, "ann", "staff");
        let expected = "Permission denied: user=bob, access=WRITE, inode=\"/d\":ann:staff:drwxr-xr-x";
        assert_eq!(text(&directory, WRITE), expected);
        let sticky = is(true, 0o1776, "ann", "staff");
        let expected = "Permission denied: user=bob, access=READ_EXECUTE, inode=\"/d\":ann:staff:drwxrwxrwT";
        assert_eq!(text(&sticky, READ | EXECUTE), expected);
        let listed = with_list(is(false, 0o750, "ann", "staff"), &[(0, 0, 0, "bob"), (0, 1, 5, "")]);
        let expected = "Permission denied: user=bob, access=ALL, inode=\"/d\":ann:staff:-rwxr-x---";
        assert_eq!(text(&listed, ALL), expected, "no plus: that is how `ls` shows a list, not how HDFS refuses");
        assert_eq!(check_one("root", &bob, &listed, "/d", ALL).expect_err("refused").class, super::ACCESS_CONTROL);
    }

    /// Rights are asked of the right place on the way: above what is missing, of the directory, of the thing itself, of its owner.
    #[test]
    fn places() {
        let way = |path: &str, found: Vec<Attributes>| Way::of(path, found);
        let open = is(true, 0o777, "ann", "staff");
        let shut = is(true, 0o755, "ann", "staff");
        let mine = is(false, 0o600, "bob", "staff");
        let bob = caller("bob", &[]);
        let check = |way: &Way, wanted| check("root", &bob, way, wanted).is_ok();
        let ancestor = Wanted { ancestor: WRITE, ..Wanted::default() };
        let parent = Wanted { parent: WRITE, ..Wanted::default() };
        let access = Wanted { access: WRITE, ..Wanted::default() };
        let owner = Wanted { owner: true, ..Wanted::default() };
        // (what is there, ancestor, parent, access, owner)
        for (found, expected) in [
            (vec![shut.clone()], [false, true, true, true]),
            (vec![open.clone()], [true, true, true, true]),
            (vec![shut.clone(), open.clone()], [true, true, true, true]),
            (vec![open.clone(), shut.clone()], [false, true, true, true]),
            (vec![open.clone(), shut.clone(), open.clone()], [true, true, true, true]),
            (vec![open.clone(), open.clone(), shut.clone()], [false, false, true, true]),
            (vec![open.clone(), open.clone(), open.clone(), mine.clone()], [true, true, true, true]),
            (vec![open.clone(), open.clone(), open.clone(), shut.clone()], [true, true, false, false]),
            (vec![open.clone(), open.clone(), shut.clone(), mine.clone()], [false, false, true, true]),
        ] {
            let way = way("/a/b/c", found);
            let got = [ancestor, parent, access, owner].map(|wanted| check(&way, wanted));
            assert_eq!(got, expected, "{:?}", way.all().map(|found| found.mode).collect::<Vec<_>>());
        }
        let root = way("/", vec![shut.clone()]);
        assert_eq!([ancestor, parent, access, owner].map(|wanted| check(&root, wanted)), [true, true, false, false]);
    }

    /// In a sticky directory only who owns it or the thing itself removes the thing.
    #[test]
    fn sticky() {
        let parent = Wanted { parent: WRITE, ..Wanted::default() };
        for (mode, directory_owner, file_owner, allowed) in [
            (0o1777, "ann", "ann", false),
            (0o1777, "bob", "ann", true),
            (0o1777, "ann", "bob", true),
            (0o777, "ann", "ann", true),
        ] {
            let found =
                vec![is(true, 0o755, "", ""), is(true, mode, directory_owner, "g"), is(false, 0o644, file_owner, "g")];
            let way = Way::of("/shared/f", found);
            let got = check("root", &caller("bob", &[]), &way, parent);
            assert_eq!(got.is_ok(), allowed, "{mode:o} {directory_owner} {file_owner}");
            if let Err(refusal) = got {
                let expected = "Permission denied by sticky bit: user=bob, path=\"/shared/f\":ann:g:-rw-r--r--, \
                                parent=\"/shared\":ann:g:drwxrwxrwt";
                assert_eq!(refusal.text, expected);
            }
            assert!(check("root", &caller("root", &[]), &way, parent).is_ok());
        }
    }
}

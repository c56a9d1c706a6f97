//! Tables of the rules: breaking one of them breaks a row.

use super::{ALL, Denied, EXECUTE, READ, Rights, User, WRITE, Wanted, Way, may, may_access, may_give, may_go};
use crate::acl::AclEntry;
use crate::error::{Error, ErrorKind};

fn groups(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

fn user<'a>(name: &'a str, groups: &'a [String]) -> User<'a> {
    User { name, groups, superuser: name == "root" }
}

fn is<'a>(directory: bool, mode: u32, owner: &'a str, group: &'a str) -> Rights<'a> {
    Rights { directory, mode, owner, group, acl: &[] }
}

fn list(entries: &[(u32, u32, u32, &str)]) -> Vec<AclEntry> {
    let entry = |&(scope, kind, permissions, name): &(u32, u32, u32, &str)| {
        let name = name.to_string();
        AclEntry { scope, kind, permissions, name }
    };
    entries.iter().map(entry).collect()
}

/// Owner, then group, then others: the first class that fits decides, also against the user. The superuser may all.
#[test]
fn classes() {
    let file = is(false, 0o421, "ann", "staff");
    for (name, names, rights) in [
        ("ann", &["staff"][..], READ),
        ("bob", &["staff"], WRITE),
        ("bob", &["guests", "staff"], WRITE),
        ("bob", &["guests"], EXECUTE),
        ("bob", &[], EXECUTE),
        ("root", &[], ALL),
    ] {
        for access in [READ, WRITE, EXECUTE, READ | WRITE, ALL] {
            let allowed = may_access(user(name, &groups(names)), &file, "/f", access).is_ok();
            assert_eq!(allowed, rights & access == access, "{name} {names:?} {access}");
        }
    }
}

/// With a list the group bits are its mask: a named user is judged by that entry alone, of groups one that allows it is
/// enough, and whoever is named is none of the others.
#[test]
fn lists() {
    let acl = list(&[
        (0, 0, 7, "bob"),
        (0, 0, 0, "eve"),
        (0, 1, 4, ""),
        (0, 1, 3, "devs"),
        (1, 0, 7, ""),
        (1, 0, 7, "zoe"),
        (1, 1, 7, ""),
        (1, 2, 7, ""),
        (1, 3, 7, ""),
    ]);
    let file = Rights { acl: &acl, ..is(true, 0o756, "ann", "staff") };
    for (name, names, rights) in [
        ("ann", &[][..], ALL),
        ("bob", &[], READ | EXECUTE),
        ("eve", &["staff", "devs"], 0),
        ("joe", &["staff"], READ),
        ("joe", &["devs"], EXECUTE),
        ("joe", &["guests"], READ | WRITE),
        ("zoe", &[], READ | WRITE),
    ] {
        for access in [READ, WRITE, EXECUTE] {
            let allowed = may_access(user(name, &groups(names)), &file, "/f", access).is_ok();
            assert_eq!(allowed, rights & access == access, "{name} {names:?} {access}");
        }
    }
    // Each of two groups allows a part: together they do not allow the whole.
    assert!(may_access(user("joe", &groups(&["staff", "devs"])), &file, "/f", READ | EXECUTE).is_err());
    let acl = list(&[(1, 0, 7, ""), (1, 1, 7, ""), (1, 3, 7, "")]);
    let inherits = Rights { acl: &acl, ..is(true, 0o700, "ann", "staff") };
    assert!(may_access(user("bob", &[]), &inherits, "/d", READ).is_err(), "others get nothing");
}

/// Rights are asked of the right place on the way: above what is missing, of the directory, of the thing itself, of its owner.
#[test]
fn places() {
    let open = is(true, 0o777, "ann", "staff");
    let shut = is(true, 0o755, "ann", "staff");
    let mine = is(false, 0o600, "bob", "staff");
    let wanted = [
        Wanted { ancestor: WRITE, ..Wanted::default() },
        Wanted { parent: WRITE, ..Wanted::default() },
        Wanted { access: WRITE, ..Wanted::default() },
        Wanted { owner: true, ..Wanted::default() },
    ];
    let allowed = |path, above: &[Rights<'_>], last| {
        let way = Way { path, above, last };
        wanted.map(|wanted| may(user("bob", &[]), &way, wanted).is_ok())
    };
    // (what is above, what is there; ancestor, parent, access, owner)
    for (above, last, expected) in [
        (vec![shut], None, [false, true, true, true]),
        (vec![open], None, [true, true, true, true]),
        (vec![shut, open], None, [true, true, true, true]),
        (vec![open, shut], None, [false, true, true, true]),
        (vec![open, shut, open], None, [true, true, true, true]),
        (vec![open, open, shut], None, [false, false, true, true]),
        (vec![open, open, open], Some(mine), [true, true, true, true]),
        (vec![open, open, open], Some(shut), [true, true, false, false]),
        (vec![open, open, shut], Some(mine), [false, false, true, true]),
    ] {
        assert_eq!(allowed("/a/b/c", &above, last), expected, "{above:?} {last:?}");
    }
    assert_eq!(allowed("/", &[], Some(shut)), [true, true, false, false]);
}

/// Whoever goes a way goes through everything above it, and nobody through a file.
#[test]
fn ways() {
    let (open, shut, file) = (is(true, 0o711, "ann", "g"), is(true, 0o700, "ann", "g"), is(false, 0o777, "ann", "g"));
    for (above, expected) in [
        (vec![open, open], None),
        (
            vec![open, shut],
            Some("permission denied: user bob may not go through /a (owner ann:g, drwx------); nothing was done"),
        ),
        (
            vec![shut, open],
            Some("permission denied: user bob may not go through / (owner ann:g, drwx------); nothing was done"),
        ),
        (vec![open, file], Some("'/a' is a file, not a directory; nothing was done")),
    ] {
        let way = Way { path: "/a/b", above: &above, last: None };
        let text = may_go(user("bob", &[]), &way).err().map(|denied| Error::from(denied).text().to_string());
        assert_eq!(text.as_deref(), expected);
        assert_eq!(may_go(user("root", &[]), &way).is_ok(), above.iter().all(|above| above.directory));
    }
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
        let above = [is(true, 0o755, "root", "g"), is(true, mode, directory_owner, "g")];
        let way = Way { path: "/shared/f", above: &above, last: Some(is(false, 0o644, file_owner, "g")) };
        let got = may(user("bob", &[]), &way, parent);
        assert_eq!(got.is_ok(), allowed, "{mode:o} {directory_owner} {file_owner}");
        if let Err(denied) = got {
            let expected = "permission denied: user bob may not remove or rename /shared/f (owner ann:g, -rw-r--r--) in the \
                            sticky directory /shared (owner ann:g, drwxrwxrwt); nothing was done";
            assert_eq!(Error::from(denied).text(), expected);
        }
        assert!(may(user("root", &[]), &way, parent).is_ok());
    }
}

/// The owner is a superuser's to give, the group an owner's who is in it.
#[test]
fn giving() {
    let names = groups(&["staff"]);
    for (name, owner, group, allowed) in [
        ("root", Some("bob"), Some("wheel"), true),
        ("bob", Some("bob"), Some("staff"), true),
        ("bob", Some("ann"), None, false),
        ("bob", None, Some("wheel"), false),
        ("bob", None, None, true),
    ] {
        assert_eq!(may_give(user(name, &names), owner, group).is_ok(), allowed, "{name} {owner:?} {group:?}");
    }
}

/// What is said of a missing right can be read again, whatever the path and whoever lacks it are called; nothing else is taken for it, not even
/// what somebody said more of it.
#[test]
fn read_again() {
    let names = [
        "/a",
        "/a may not go through /b (owner x:y, drwx------); nothing was done",
        "/in the sticky directory /b",
        "/",
    ];
    // Users say who they are: no name makes one refusal another one, least of all one after which the question is asked again.
    let unjudged = "permission denied: nobody looked yet whether all may go that is below /d; nothing was done";
    let users = ["bob", "", "b%20b %25", " may not do that, which only a superuser may", unjudged];
    for (path, named) in names.into_iter().flat_map(|path| users.map(|named| (path, named))) {
        let (directory, file) = (is(true, 0o1754, "ann", "staff"), is(false, 0o640, "ann, x (owner", "staff"));
        let bob = user(named, &[]);
        let mut denied = vec![
            Denied::NotDirectory { path: path.to_string() },
            Denied::Owner { user: named.to_string(), path: path.to_string() },
            Denied::Superuser { user: named.to_string() },
            Denied::Giver { user: named.to_string() },
            Denied::Below { path: path.to_string() },
            Denied::Group { user: named.to_string(), group: "staff".to_string() },
            super::may_remove(bob, (&directory, path), (&file, path)).expect_err("sticky"),
        ];
        let none = [is(true, 0, "ann", "staff"), is(false, 0, "ann", "staff")];
        let each = |rights: &Rights<'_>| {
            (1..=ALL).map(|access| may_access(bob, rights, path, access).expect_err("denied")).collect::<Vec<_>>()
        };
        denied.extend(none.iter().flat_map(each));
        for denied in denied {
            let error = Error::from(denied.clone());
            assert_eq!(Denied::read(&error), Some(denied.clone()), "{error}");
            if error.kind() == ErrorKind::Denied {
                assert_eq!(Denied::read(&error.during(format!("put {unjudged}"))), None);
            }
        }
    }
    for kind in [ErrorKind::Denied, ErrorKind::Invalid, ErrorKind::Io] {
        assert_eq!(Denied::read(&Error::new(kind, "it is not allowed; nothing was done")), None);
    }
}

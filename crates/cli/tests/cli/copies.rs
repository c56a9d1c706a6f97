//! put, get and cat: what goes in comes out, under the names that `cp -r` would give.

use crate::store::{Store, noise, tree};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

/// A tree with empty, small and large files, empty directories, odd names, modes and times comes back as it was.
#[test]
fn a_tree_comes_back() {
    let store = Store::start();
    for number in 0..600 {
        store.local(&format!("tree/d{}/f{number}", number % 7), &noise(number * 37, number as u64));
    }
    store.local("tree/empty", b"");
    store.local("tree/at the limit", &noise(1 << 20, 1));
    store.local("tree/above the limit", &noise((1 << 20) + 1, 2));
    store.local("tree/large ü\n", &noise(9_000_001, 3));
    // Its directory is given its time before this file has its name in it, and has it all the same.
    store.local("tree/d1/large", &noise(9_000_001, 4));
    std::fs::create_dir_all(store.directory.join("tree/hollow/inner")).unwrap();
    let script = store.local("tree/script", b"#!/bin/sh\n");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_millis(1_000_000_123);
    std::fs::File::options().write(true).open(&script).unwrap().set_modified(old).unwrap();
    for (number, name) in ["tree/d1", "tree/hollow/inner", "tree/hollow"].into_iter().enumerate() {
        let directory = std::fs::File::open(store.directory.join(name)).unwrap();
        directory.set_permissions(std::fs::Permissions::from_mode(0o700 + number as u32)).unwrap();
        directory.set_modified(old + std::time::Duration::from_secs(number as u64)).unwrap();
    }
    let put = store.run(&["put", "tree", "/", "--json"]).done();
    assert!(put.text().contains("\"files\":606") && put.text().contains("\"failed\":0"), "{}", put.text());
    assert!(put.stderr.contains("put: 606 files"), "{}", put.stderr);
    store.run(&["get", "/tree", "back", "--sync"]).done();
    let (there, back) = (tree(&store.directory.join("tree")), tree(&store.directory.join("back")));
    assert!(there.keys().eq(back.keys()), "{:?}", back.keys());
    for (name, kept) in &there {
        assert!(back.get(name) == Some(kept), "{name:?} differs");
    }
    // Again: everything exists, nothing is replaced, unless that is asked for.
    store.run(&["put", "tree", "/"]).failed(1, "--overwrite");
    store.run(&["put", "tree", "/", "--overwrite"]).done();
    store.run(&["get", "/tree/.", "back"]).failed(1, "--overwrite");
    store.run(&["get", "/tree/d1", "back", "--overwrite"]).done();
    assert!(tree(&store.directory.join("back")).keys().eq(there.keys()));
}

/// Many directories of few files, some of many, some of none, side by side and in each other; what cannot be made here is named and left out
/// alone.
#[test]
fn many_directories() {
    let store = Store::start();
    for number in 0..500 {
        store.local(&format!("tree/{}/{}/{}/f{number}", number % 3, number % 37, number % 5), &noise(number, 7));
        store.local(&format!("tree/1/4/{}/g{number}", number / 250), &noise(number, 8));
    }
    for number in 0..40 {
        std::fs::create_dir_all(store.directory.join(format!("tree/2/{number}/hollow/{number}"))).unwrap();
    }
    store.run(&["put", "tree", "/"]).done();
    store.run(&["get", "/tree", "back"]).done();
    let (there, back) = (tree(&store.directory.join("tree")), tree(&store.directory.join("back")));
    assert!(there.len() > 1500 && there.keys().eq(back.keys()), "{} of {}", back.len(), there.len());
    for (name, kept) in &there {
        assert!(back.get(name) == Some(kept), "{name:?} differs");
    }
    // A file and a link where directories would go.
    store.local("some/2/7", b"mine");
    std::os::unix::fs::symlink("/", store.directory.join("some/2/8")).unwrap();
    let ended = store.run(&["get", "/tree/.", "some"]).failed(1, "2/7");
    assert!(ended.stderr.contains("2/8"), "{}", ended.stderr);
    let some = tree(&store.directory.join("some"));
    let is_apart = |name: &[u8]| name.starts_with(b"2/7/") || name.starts_with(b"2/8/");
    for (name, kept) in there.iter().filter(|(name, _)| !is_apart(name.as_os_str().as_bytes())) {
        let apart = matches!(name.as_os_str().as_bytes(), b"2/7" | b"2/8" | b"2");
        assert!(apart || some.get(name) == Some(kept), "{name:?} differs");
    }
    assert_eq!(std::fs::read(store.directory.join("some/2/7")).unwrap(), b"mine");
}

/// Of two sources that have a file of the same name one is copied, whole, and the other is named.
#[test]
fn two_of_the_same_name() {
    let store = Store::start();
    store.local("one/below/same", b"of one");
    store.local("other/below/same", b"of the other");
    std::fs::create_dir(store.directory.join("both")).unwrap();
    store.run(&["put", "one", "other", "/"]).done();
    store.run(&["get", "/one/.", "/other/.", "both"]).failed(1, "--overwrite");
    let kept = std::fs::read(store.directory.join("both/below/same")).unwrap();
    assert!(kept == b"of one" || kept == b"of the other", "{kept:?}");
    assert_eq!(std::fs::read_dir(store.directory.join("both/below")).unwrap().count(), 1, "nothing else is left there");
}

/// Streams go in and out, whole and in ranges.
#[test]
fn streams() {
    let store = Store::start();
    let bytes = noise(5_000_000, 4);
    store.run_with(&["put", "-", "/s"], &bytes).done();
    assert!(store.run(&["get", "/s", "-"]).done().stdout == bytes);
    assert!(store.run(&["cat", "/s", "/s"]).done().stdout == [&bytes[..], &bytes[..]].concat());
    assert!(store.run(&["cat", "/s", "--offset", "4999990"]).done().stdout == bytes[4_999_990..]);
    assert!(store.run(&["cat", "/s", "--offset", "1M", "--length", "3"]).done().stdout == bytes[1 << 20..][..3]);
    assert!(store.run(&["cat", "/s", "--offset", "9G"]).done().stdout.is_empty());
    store.run_with(&["put", "-", "/s"], b"x").failed(7, "--overwrite");
    store.run_with(&["put", "-", "/s", "--overwrite"], b"x").done();
    assert_eq!(store.run(&["cat", "/s"]).done().text(), "x");
    store.run(&["get", "/s", "-", "--json"]).failed(2, "--json");
    // A reader that goes away early is no failure.
    store.run_with(&["put", "-", "/t"], &bytes).done();
    let mut child = store.command(&["cat", "/t"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

/// Destinations follow the rules of `cp -r`, in both directions.
#[test]
fn destinations() {
    let store = Store::start();
    store.local("a/x", b"ax");
    store.local("b/y", b"by");
    store.local("f", b"f");
    store.run(&["put", "f", "/new"]).done();
    store.run(&["put", "a", "/dir"]).done();
    store.run(&["put", "a", "b", "f", "/dir"]).done();
    assert_eq!(store.run(&["ls", "-R", "/dir"]).done().text(), "a\na/x\nb\nb/y\nf\nx\n");
    store.run(&["put", "a/.", "/dir/b"]).done();
    assert_eq!(store.run(&["ls", "/dir/b"]).done().text(), "x\ny\n");
    store.run(&["put", "a", "b", "/missing"]).failed(3, "make it first");
    store.run(&["put", "f", "/missing/"]).failed(3, "slash");
    store.run(&["put", "a", "f", "/new"]).failed(2, "is a file");
    store.run(&["get", "/dir/f", "/dir/b", "."]).failed(1, "f exists already");
    assert_eq!(std::fs::read(store.directory.join("b/x")).unwrap(), b"ax");
    store.run(&["get", "/dir", "copy"]).done();
    assert_eq!(std::fs::read(store.directory.join("copy/a/x")).unwrap(), b"ax");
    store.run(&["get", "/dir/f", "/dir/x", "missing"]).failed(3, "directory");
    store.run(&["get", "/nowhere", "copy"]).failed(3, "hint: ");
}

/// Links are skipped with a word or followed, loops end, special files and names that are not UTF-8 hold nobody up.
#[test]
fn strange_files() {
    let store = Store::start();
    store.local("odd/plain", b"p");
    let odd = store.directory.join("odd");
    std::os::unix::fs::symlink("plain", odd.join("link")).unwrap();
    std::os::unix::fs::symlink(".", odd.join("loop")).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(odd.join("socket")).unwrap();
    let skipped = store.run(&["put", "odd", "/"]).done();
    assert!(skipped.stderr.contains("link") && skipped.stderr.contains("a socket"), "{}", skipped.stderr);
    assert_eq!(store.run(&["ls", "/odd"]).done().text(), "plain\n");
    store.run(&["put", "odd", "/followed", "--follow"]).done();
    assert_eq!(store.run(&["ls", "-R", "/followed"]).done().text(), "link\nplain\n");
    drop(socket);
    let strange = odd.join(std::ffi::OsStr::from_bytes(b"not\xffutf8"));
    std::fs::write(strange, b"?").unwrap();
    store.run(&["put", "odd", "/more"]).failed(1, "not UTF-8");
    assert_eq!(store.run(&["ls", "/more"]).done().text(), "plain\n");
}

/// What others wrote into the store makes no programs that run as whoever copies it, and no link in the destination leads what is copied
/// to another place; a destination that is itself a link is what was meant.
#[test]
fn get_is_not_led_astray() {
    let store = Store::start();
    store.local("tree/inner/program", b"#!/bin/sh\n");
    store.run(&["put", "tree", "/"]).done();
    store.run(&["chmod", "6755", "/tree/inner/program"]).done();
    store.run(&["chmod", "7777", "/tree/inner"]).done();
    store.run(&["get", "/tree", "back"]).done();
    let mode = |name: &str| std::fs::metadata(store.directory.join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("back/inner/program"), mode("back/inner")), (0o755, 0o1777));
    let directory = |name: &str| std::fs::create_dir_all(store.directory.join(name)).unwrap();
    let link = |to: &str, name: &str| {
        std::os::unix::fs::symlink(store.directory.join(to), store.directory.join(name)).unwrap();
    };
    directory("elsewhere");
    directory("trap/tree");
    link("elsewhere", "trap/tree/inner");
    store.run(&["get", "/tree", "trap"]).failed(7, "inner");
    assert!(!store.directory.join("elsewhere/program").exists());
    directory("meant");
    link("meant", "link");
    store.run(&["get", "/tree", "link"]).done();
    assert!(store.directory.join("meant/tree/inner/program").exists());
}

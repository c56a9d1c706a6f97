//! Commands about names: mkdir, ls, mv, rm, stat, du, df, completion.

use crate::store::{Store, run};
use std::io::Read;
use std::process::Stdio;

/// Directories are made, listed, moved and removed; each mistake has its code.
#[test]
fn directories() {
    let store = Store::start();
    store.run(&["mkdir", "/a/b"]).failed(3, "");
    store.run(&["mkdir", "-p", "/a/b/c"]).done();
    store.run(&["mkdir", "/a"]).failed(7, "");
    store.run_with(&["put", "-", "/a/f"], b"12345").done();
    assert_eq!(store.run(&["ls", "/a"]).done().text(), "b\nf\n");
    assert_eq!(store.run(&["ls", "-R", "/"]).done().text(), "a\na/b\na/b/c\na/f\n");
    let long = store.run(&["ls", "-l", "/a"]).done().text();
    assert!(
        long.lines().any(|line| line.starts_with("-rw") && line.contains(" 5 ") && line.ends_with("  f")),
        "{long}"
    );
    assert!(long.lines().any(|line| line.starts_with("drwx") && line.ends_with("  b/")), "{long}");
    let json = store.run(&["ls", "/a", "--json"]).done().text();
    assert!(json.lines().any(|line| line.contains("\"path\":\"/a/f\"") && line.contains("\"bytes\":5")), "{json}");
    store.run(&["mv", "/a/f", "/g"]).done();
    store.run(&["mv", "/g", "/a"]).done();
    store.run(&["mv", "/a/g", "/a/f"]).done();
    store.run_with(&["put", "-", "/h"], b"1").done();
    store.run(&["mv", "/h", "/a/f"]).failed(7, "--replace");
    store.run(&["mv", "--replace", "/h", "/a/f"]).done();
    assert_eq!(store.run(&["cat", "/a/f"]).done().text(), "1");
    store.run(&["mv", "/nowhere", "/x"]).failed(3, "hint: ");
    store.run(&["rm", "/a"]).failed(2, "-r");
    store.run(&["rm", "/"]).failed(2, "root");
    store.run(&["rm", "/nowhere"]).failed(3, "");
    store.run(&["rm", "-r", "/a"]).done();
    assert_eq!(store.run(&["ls"]).done().text(), "");
}

/// What is known about a file and about the devices is shown to people and to programs.
#[test]
fn looking() {
    let store = Store::start();
    store.run_with(&["put", "-", "/f"], &[7; 3000]).done();
    store.run(&["mkdir", "/d"]).done();
    let shown = store.run(&["stat", "/f"]).done().text();
    assert!(shown.contains("bytes       3000") && shown.contains("kind        file"), "{shown}");
    assert!(store.run(&["stat", "/d", "--json"]).done().text().contains("\"kind\":\"directory\""));
    store.run(&["stat", "/nowhere"]).failed(3, "hint: ");
    let usage = store.run(&["du", "/"]).done().text();
    assert!(usage.lines().last().is_some_and(|line| line.trim_start().starts_with("3000 ")), "{usage}");
    assert_eq!(usage.lines().count(), 2, "{usage}");
    assert_eq!(store.run(&["du", "-s", "--json", "/"]).done().text().lines().count(), 1);
    let devices = store.run(&["df", "-h"]).done().text();
    assert!(devices.contains("ssd") && devices.contains("512 MiB") && devices.contains("1 file in "), "{devices}");
    assert_eq!(store.run(&["df", "--json"]).done().text().lines().count(), 2);
    assert!(store.run(&["completion", "bash"]).done().text().contains("stormwell"));
}

/// A listing longer than a page comes whole, in order; a reader that goes away early is no failure.
#[test]
fn many_names() {
    let store = Store::start();
    let names: Vec<String> = (0..2500).map(|number| format!("f{number:05}")).collect();
    for name in &names {
        store.local(&format!("many/{name}"), name.as_bytes());
    }
    store.run(&["put", "many", "/"]).done();
    let listed = store.run(&["ls", "/many"]).done().text();
    assert!(listed.lines().eq(names.iter()), "{} names", listed.lines().count());
    let mut command = store.command(&["ls", "-l", "-R", "/"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""));
    let _ = run(store.command(&["rm", "-r", "/many"]), b"").done();
}

//! What people get wrong: commands, addresses, names, servers that are not there.

use crate::store::{Store, binary, run, scratch, started};

fn alone(words: &[&str]) -> crate::store::Ended {
    let mut command = binary();
    command.args(words);
    run(command, b"")
}

/// Usage errors end with 2 and our prefix; help and version go to stdout and end with 0.
#[test]
fn usage() {
    alone(&["putt"]).failed(2, "putt");
    alone(&["put", "a"]).failed(2, "DST");
    alone(&["cat", "/a/../b"]).failed(2, "'..'");
    alone(&["serve", "--at", "0.0.0.0:1"]).failed(2, "no secret");
    alone(&["serve", "--data", "x:floppy"]).failed(2, "floppy");
    assert!(alone(&["--help"]).done().text().contains("Exit codes"));
    assert!(alone(&["--version"]).done().text().starts_with("stormwell "));
    assert!(alone(&["bag", "pull", "--help"]).done().text().contains("Example"));
}

/// Nobody at the address ends with 5 and says how to start a store.
#[test]
fn nobody_there() {
    // Port 1 needs rights that tests do not use, so nobody serves there.
    let ended = alone(&["ls", "--at", "127.0.0.1:1"]).failed(5, "hint: ");
    assert!(ended.stderr.contains("127.0.0.1:1"), "{}", ended.stderr);
}

/// What is wrong with a local file is said without advice about the store.
#[test]
fn local_files() {
    let store = Store::start();
    let ended = store.run(&["put", "missing", "/a"]).failed(3, "missing");
    assert!(!ended.stderr.contains("hint"), "{}", ended.stderr);
    store.run_with(&["put", "-", "/a"], b"1").done();
    let ended = store.run(&["get", "/a", "missing/a"]).failed(3, "missing");
    assert!(!ended.stderr.contains("hint"), "{}", ended.stderr);
}

/// The other ports of a node are told from a store's, and which they are is said.
#[test]
fn another_port() {
    let directory = scratch("port");
    let mut command = binary();
    command.args(["serve", "--at", "127.0.0.1:0", "--hdfs", "127.0.0.1:0"]).current_dir(directory.path());
    let server = started(command);
    let said = server.child.said().into_iter().find(|line| line.contains(" hdfs=hdfs://")).expect("it says where");
    let port = |key: &str| said.split_once(key).and_then(|(_, rest)| rest.split(' ').next()).expect(key).to_string();
    for (key, word) in [(" console=", "console of a node"), (" hdfs=hdfs://", "HDFS gateway of a node")] {
        alone(&["ls", "--at", &port(key)]).failed(2, word);
    }
    alone(&["ls", "--at", &port(" at=")]).done();
}

/// A taken port and a taken data directory are refused; SIGTERM ends a server with 0.
#[test]
fn servers() {
    let mut store = Store::start();
    let other = store.directory.join("other");
    alone(&["serve", "--at", &store.address, "--data", &other.display().to_string()]).failed(8, "");
    let taken = store.directory.join("data");
    alone(&["serve", "--at", "127.0.0.1:0", "--data", &taken.display().to_string()]).failed(8, "");
    let killed = std::process::Command::new("kill").arg(store.server().to_string()).status().unwrap();
    assert!(killed.success());
    assert_eq!(store.wait(), Some(0));
}

/// Names that no file may have are refused before anything is copied.
#[test]
fn names() {
    let store = Store::start();
    let long = format!("/{}", "n".repeat(256));
    store.run_with(&["put", "-", &long], b"").failed(2, "256 bytes");
    store.run_with(&["put", "-", "/d/"], b"").failed(2, "directory");
    store.run_with(&["put", "-", "/f"], b"1").done();
    store.run_with(&["put", "-", "/f/g"], b"1").failed(2, "/f");
    store.run(&["ls", "/f/g"]).failed(2, "/f");
    store.run(&["cat", "/"]).failed(2, "directory");
}

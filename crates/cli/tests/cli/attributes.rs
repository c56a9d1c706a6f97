//! What is kept with names: touch, chmod, chown, xattr, and how ls and stat show it.

use crate::store::{Store, noise, run};

fn stat(store: &Store, path: &str) -> String {
    store.run(&["stat", path, "--json"]).done().text()
}

/// touch makes what is missing, and sets one time or both; -c makes nothing; a directory can be touched, too.
#[test]
fn touched() {
    let store = Store::start();
    store.run(&["touch", "/new", "/other"]).done();
    assert!(stat(&store, "/new").contains("\"bytes\":0"));
    store.run(&["touch", "-c", "/nothing"]).done();
    store.run(&["stat", "/nothing"]).failed(3, "nothing");
    store.run(&["touch", "/no/file"]).failed(3, "/no");
    store.run_with(&["put", "-", "/f"], b"12345").done();
    store.run(&["touch", "-m", "--time-ms", "1000000000123", "/f"]).done();
    store.run(&["touch", "-a", "--time-ms", "1000000000456", "/f"]).done();
    let shown = stat(&store, "/f");
    assert!(shown.contains("\"modified_ms\":1000000000123") && shown.contains("\"bytes\":5"), "{shown}");
    assert!(shown.contains("\"accessed_ms\":1000000000456"), "{shown}");
    store.run(&["mkdir", "/d"]).done();
    store.run(&["touch", "--time-ms", "7000", "/d", "/made"]).done();
    for path in ["/d", "/made"] {
        let shown = stat(&store, path);
        assert!(shown.contains("\"modified_ms\":7000") && shown.contains("\"accessed_ms\":7000"), "{shown}");
    }
    assert_eq!(store.run(&["cat", "/f"]).done().text(), "12345");
}

/// Bits and owners are set on one name or a whole tree, shown, and outlive a kill of the server.
#[test]
fn bits_and_owners() {
    let mut store = Store::start();
    for number in 0..150 {
        store.local(&format!("tree/d{}/f{number}", number % 3), b"x");
    }
    store.run(&["put", "tree", "/"]).done();
    store.run(&["touch", "/mine"]).done();
    let me = String::from_utf8(std::process::Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    assert!(stat(&store, "/mine").contains(&format!("\"owner\":\"{}\"", me.trim())), "{}", stat(&store, "/mine"));
    store.run(&["chmod", "-R", "u=rwX,go=", "/tree"]).done();
    store.run(&["chown", "-R", "ada:research", "/tree"]).done();
    store.run(&["chmod", "4755", "/mine"]).done();
    store.run(&["chown", ":wheel", "/mine"]).done();
    store.kill();
    store.start_again();
    let listed = store.run(&["ls", "-l", "-R", "/tree"]).done().text();
    assert_eq!(listed.lines().count(), 153);
    for line in listed.lines() {
        let bits = if line.ends_with('/') { "drwx------ ada      research " } else { "-rw------- ada      research " };
        assert!(line.starts_with(bits), "{line}");
    }
    let shown = stat(&store, "/mine");
    assert!(shown.contains("\"mode\":\"4755\"") && shown.contains("\"group\":\"wheel\""), "{shown}");
    let shown = store.run(&["stat", "/tree"]).done().text();
    assert!(shown.contains("owner       ada") && shown.contains("group       research"), "{shown}");
    store.run(&["chmod", "777", "/nowhere"]).failed(3, "/nowhere");
    store.run(&["chmod", "777", "/nowhere", "/mine"]).failed(1, "/nowhere");
    assert!(stat(&store, "/mine").contains("\"mode\":\"0777\""));
    store.run(&["chown", ":", "/mine"]).failed(2, "neither");
    store.run(&["chown", "a/b", "/mine"]).failed(2, "a/b");
}

/// Extended attributes are set, shown, listed and removed.
#[test]
fn extended() {
    let store = Store::start();
    store.run(&["mkdir", "/d"]).done();
    store.run(&["xattr", "set", "/d", "user.b", "two\nlines"]).done();
    store.run(&["xattr", "set", "/d", "trusted.a", ""]).done();
    assert_eq!(store.run(&["xattr", "ls", "/d"]).done().text(), "trusted.a\nuser.b\n");
    assert_eq!(store.run(&["xattr", "get", "/d", "user.b"]).done().text(), "two\nlines");
    let json = store.run(&["xattr", "ls", "/d", "--json"]).done().text();
    assert!(json.contains("\"value_hex\":\"74776f0a6c696e6573\""), "{json}");
    store.run(&["xattr", "rm", "/d", "user.b"]).done();
    store.run(&["xattr", "rm", "/d", "user.b"]).failed(3, "user.b");
    store.run(&["xattr", "get", "/d", "user.b"]).failed(3, "user.b");
    store.run(&["xattr", "set", "/d", "plain", "x"]).failed(2, "user.NAME");
    store.run(&["xattr", "set", "/d", "user.c", &"x".repeat(16_385)]).failed(2, "16384");
}

/// A tree with read-only files and directories is put by a user who is no superuser: directories get their bits when all is in them, and one that is
/// somebody else's stays as it is. It takes a superuser of this machine to run as somebody else.
#[test]
fn read_only_trees_of_users() {
    let id = |word| String::from_utf8(std::process::Command::new("id").arg(word).output().unwrap().stdout).unwrap();
    if id("-u").trim() != "0" {
        return;
    }
    let store = Store::start();
    let bits = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    bits(&store.directory, 0o755);
    for name in ["tree/ro/in/small", "tree/roots/small"] {
        bits(&store.local(name, b"small"), 0o444);
    }
    // More files than travel together, so that some come behind their directory.
    for number in 0..300 {
        bits(&store.local(&format!("tree/ro/many/f{number}"), b"x"), 0o444);
    }
    bits(&store.local("tree/ro/large", &noise(3 << 20, 1)), 0o444);
    for name in ["tree/ro/in", "tree/ro/many", "tree/ro", "tree/roots", "tree"] {
        bits(&store.directory.join(name), 0o555);
    }
    store.run(&["mkdir", "-p", "/open/tree/roots"]).done();
    store.run(&["chmod", "-R", "777", "/open"]).done();
    let mut put = store.command(&["put", "tree", "/open"]);
    // Nobody, as Linux has it.
    std::os::unix::process::CommandExt::uid(&mut put, 65_534);
    run(put, b"").done();
    for (path, mode) in [
        ("/open/tree/ro", "0555"),
        ("/open/tree/ro/in", "0555"),
        ("/open/tree/ro/many", "0555"),
        ("/open/tree/ro/large", "0444"),
        ("/open/tree/ro/many/f299", "0444"),
        ("/open/tree/roots", "0777"),
        ("/open/tree", "0777"),
    ] {
        let shown = stat(&store, path);
        assert!(shown.contains(&format!("\"mode\":\"{mode}\"")), "{path}: {shown}");
    }
}

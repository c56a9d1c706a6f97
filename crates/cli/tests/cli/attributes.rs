//! What is kept with names: touch, chmod, chown, xattr, and how ls and stat show it.

use crate::store::Store;

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

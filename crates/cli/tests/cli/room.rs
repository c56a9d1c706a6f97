//! A store without room: it says so, serves what it has, and takes writes again when there is room, without anybody's help.

use crate::store::{Store, noise};

const PART: usize = 8 << 20;

/// A full store gives every acknowledged byte, of files and of bags; what is deleted and acknowledged makes room; then it takes
/// files and chunks again, as many as before, by the same process. Twice.
#[test]
fn full_and_back() {
    let store = Store::with_capacity("160M");
    store.run(&["bag", "create", "b"]).done();
    let mut fitted = Vec::new();
    for turn in 0..2u64 {
        let (mut files, mut pushed) = (Vec::new(), 0);
        let full = loop {
            let seed = turn * 100 + files.len() as u64;
            store.local("part", &noise(PART, seed + 1));
            let path = format!("/turn{turn}-{}", files.len());
            let ended = store.run(&["put", "part", &path]);
            if ended.code != 0 {
                break ended;
            }
            files.push((path, seed + 1));
            let ended = store.run(&["bag", "push", "b", "part", "--chunk", "1M"]);
            if ended.code != 0 {
                break ended;
            }
            pushed += PART;
            assert!(files.len() < 20, "160 MiB took {} files and as many pushes of 8 MiB", files.len());
        };
        full.failed(4, "is full");
        assert!(!files.is_empty(), "turn {turn}: no file had room, although everything of the turn before was deleted");
        for (path, seed) in &files {
            assert!(store.run(&["cat", path]).done().stdout == noise(PART, *seed), "{path} has changed");
        }
        store.run(&["ls", "/"]).done();
        store.run(&["df"]).done();
        let counts = store.run(&["bag", "pull", "b", "--no-wait", "--exec", "wc -c"]).done().text();
        let pulled: usize = counts.lines().map(|line| line.trim().parse::<usize>().expect("a count")).sum();
        assert!(pulled >= pushed, "{pulled} of {pushed} acknowledged bytes came back on a full store");
        for (path, _) in &files[1..] {
            store.run(&["rm", path]).done();
        }
        let (first, seed) = &files[0];
        assert!(store.run(&["cat", first]).done().stdout == noise(PART, *seed), "{first} has changed");
        store.run(&["rm", first]).done();
        fitted.push(files.len());
    }
    assert!(fitted[0] >= 3 && fitted[1] + 1 >= fitted[0], "room was lost: {fitted:?} files fitted, turn by turn");
}

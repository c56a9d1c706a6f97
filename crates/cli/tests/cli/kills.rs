//! Kills and full devices: nothing that was acknowledged is lost, and a full store goes on reading and deleting.

use crate::store::{Store, noise};

/// What commands reported as done is there after `kill -9`, whatever was under way: large and small files, renames,
/// deletes, chunks of a bag and their acknowledgements. The same again after a second kill right behind the first.
#[test]
fn nothing_acknowledged_is_lost() {
    let mut store = Store::start();
    let big = noise(9_000_001, 7);
    store.local("big", &big);
    for number in 0..300_usize {
        store.local(&format!("tree/d{}/f{number}", number % 7), &noise(number * 37, number as u64 + 1));
    }
    store.run(&["put", "big", "/big"]).done();
    store.run(&["put", "tree", "/tree"]).done();
    store.run(&["mv", "/big", "/moved"]).done();
    store.run(&["rm", "-r", "/tree/d3"]).done();
    store.run_with(&["bag", "push", "b", "-", "--create", "--chunk", "64K"], &big[..1_000_000]).done();
    let first = store.run(&["bag", "pull", "b", "--no-wait", "--exec", "wc -c"]).done().text();
    assert_eq!(sum(&first), 1_000_000);
    store.run_with(&["bag", "push", "b", "-", "--chunk", "64K"], &big[..500_000]).done();
    // Under way when the server dies: a stream that nobody has acknowledged.
    let mut under_way = store.command(&["put", "-", "/unfinished"]);
    let mut under_way = under_way
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("the command runs");
    std::io::Write::write_all(under_way.stdin.as_mut().expect("stdin is a pipe"), &big).expect("it reads");
    for _ in 0..2 {
        store.kill();
        store.start_again();
        assert!(store.run(&["cat", "/moved"]).done().stdout == big, "the large file has changed");
        store.run(&["stat", "/big"]).failed(3, "/big");
        store.run(&["ls", "/tree/d3"]).failed(3, "d3");
        store.run(&["get", "/tree/d5", "back", "--overwrite"]).done();
        for number in (5..300_usize).step_by(7) {
            let path = store.directory.join("back").join(format!("f{number}"));
            let bytes = std::fs::read(path).expect("a file that was put");
            assert!(bytes == noise(number * 37, number as u64 + 1), "file {number} has changed");
        }
    }
    under_way.kill().expect("the command is killed");
    under_way.wait().expect("the command ends");
    let second = store.run(&["bag", "pull", "b", "--no-wait", "--exec", "wc -c"]).done().text();
    assert_eq!(sum(&second), 500_000, "what was acknowledged came back, or what was pushed is gone");
}

fn sum(counts: &str) -> u64 {
    counts.lines().map(|line| line.trim().parse::<u64>().unwrap()).sum()
}

/// A device that is full says so after waiting for room, keeps what it has, serves reads and deletes, and takes new
/// files again when something was deleted. Another kill changes nothing about that.
#[test]
fn full() {
    let mut store = Store::with_capacity("160M");
    let part = noise(16 << 20, 3);
    store.local("part", &part);
    let mut kept = Vec::new();
    let why = loop {
        let name = format!("/part{}", kept.len());
        let ended = store.run(&["put", "part", &name]);
        if ended.code != 0 {
            break ended.failed(4, "is full").stderr;
        }
        kept.push(name);
        assert!(kept.len() < 10, "160 MiB took {} files of 16 MiB", kept.len());
    };
    assert!(kept.len() >= 3, "only {} files of 16 MiB fitted in 160 MiB: {why}", kept.len());
    store.kill();
    store.start_again();
    for name in &kept {
        assert!(store.run(&["cat", name]).done().stdout == part, "{name} has changed");
    }
    for name in &kept[1..] {
        store.run(&["rm", name]).done();
    }
    store.run(&["put", "part", "/again"]).done();
    assert!(store.run(&["cat", "/again"]).done().stdout == part);
    assert!(store.run(&["cat", &kept[0]]).done().stdout == part);
}

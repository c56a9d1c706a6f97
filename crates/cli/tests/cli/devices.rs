//! Several devices in one store, one of them lost: the rest is served, what is not is said, and everything comes back with it.

use crate::console::get;
use crate::store::{Store, noise, soon};

/// Two files as large as this do not share a chunk.
const LARGE: usize = 1_200_000;

/// A disk that is gone at the start costs its own files and nothing else: they are answered with an error that says which
/// disk to bring back; reads, writes and deletes of all others go on; nothing is made in the empty place; and when the
/// disk is back everything is.
#[test]
fn one_lost_device() {
    let mut store = Store::with_devices(2);
    for number in 0..16 {
        store.local("file", &noise(LARGE, number + 1));
        store.run(&["put", "file", &format!("/f{number}"), "--overwrite"]).done();
    }
    store.run_with(&["bag", "push", "spread", "-", "--create", "--chunk", "64K"], &noise(1 << 20, 5)).done();
    store.kill();
    let (place, away) = (store.directory.join("data1"), store.directory.join("unplugged"));
    std::fs::rename(&place, &away).expect("the disk is pulled");
    std::fs::create_dir(&place).expect("its mount point is still there");
    store.start_again();
    let listed = store.run(&["device", "ls"]).done().text();
    let states: Vec<&str> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(states.contains(&"serving") && states.contains(&"missing"), "{listed}");
    store.run(&["device", "scrub", "all", "--rate", "4G"]).failed(1, "data1 is missing");
    let (status, health) = get(&store.console, "/health/ready");
    assert!(status == 200 && health.contains("data1 is missing"), "{status} {health}");
    assert!(get(&store.console, "/metrics").1.contains("\nstormwell_devices_missing 1\n"));
    let mut lost = Vec::new();
    for number in 0..16 {
        let ended = store.run(&["cat", &format!("/f{number}")]);
        if ended.code == 0 {
            assert!(ended.stdout == noise(LARGE, number + 1), "file {number} has changed");
        } else {
            assert!(ended.stderr.contains(&format!("/f{number}")), "the file is not named: {}", ended.stderr);
            ended.failed(1, "which is missing");
            lost.push(number);
        }
    }
    assert!((1..16).contains(&lost.len()), "{lost:?} were on one of two devices");
    store.local("file", &noise(LARGE, 99));
    for number in 20..26 {
        store.run(&["put", "file", &format!("/f{number}")]).done();
    }
    let gone = format!("/f{}", lost[0]);
    store.run(&["rm", &gone]).done();
    store.run(&["bag", "rm", "spread"]).done();
    wait_for_chunks(&store, 16 - lost.len() as u64 + 6);
    assert_eq!(std::fs::read_dir(&place).expect("the mount point").count(), 0, "something was made in the empty place");
    store.kill();
    std::fs::remove_dir(&place).expect("it is empty");
    std::fs::rename(&away, &place).expect("the disk is back");
    store.start_again();
    assert!(!store.run(&["device", "ls"]).done().text().contains("missing"));
    for number in (0..16).filter(|number| *number != lost[0]) {
        let ended = store.run(&["cat", &format!("/f{number}")]).done();
        assert!(ended.stdout == noise(LARGE, number + 1), "file {number} has changed");
    }
    store.run(&["stat", &gone]).failed(3, &gone);
    // What was deleted while its disk was away is freed on its return: the file and the bag.
    wait_for_chunks(&store, 16 - 1 + 6);
}

/// Waits until the devices that are there hold so many chunks.
fn wait_for_chunks(store: &Store, expected: u64) {
    let count = || -> u64 {
        let listed = store.run(&["device", "ls", "--json"]).done().text();
        let objects = listed.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("an object"));
        objects.map(|object| object["chunks"].as_u64().expect("a number")).sum()
    };
    assert!(soon(|| count() == expected), "{} chunks stay, {expected} are named", count());
}

/// A disk that is gone for good makes place for a new device only when somebody says so.
#[test]
fn a_new_device_in_the_old_place() {
    let mut store = Store::with_devices(2);
    store.kill();
    std::fs::remove_dir_all(store.directory.join("data1")).expect("the disk burns");
    store.start_again();
    assert!(store.run(&["device", "ls"]).done().text().contains("--as-new"), "it does not say how to go on");
    store.kill();
    let place = store.directory.join("data1").display().to_string();
    store.start_again_with(&["--as-new", &place]);
    assert!(!store.run(&["device", "ls"]).done().text().contains("missing"));
    store.kill();
    store.start_again();
    assert!(!store.run(&["device", "ls"]).done().text().contains("missing"));
}

/// A device that nobody names at a start is missed, with its directory; named again it is as it was. One that was removed is not missed,
/// and when it is named again that is said.
#[test]
fn a_device_that_is_left_out_is_missed() {
    let mut store = Store::with_devices(3);
    for number in 0..8 {
        store.run_with(&["put", "-", &format!("/f{number}")], &noise(LARGE, number)).done();
    }
    let listed = |store: &Store| store.run(&["device", "ls"]).done().text();
    store.kill();
    store.start_without_the_last();
    let place = store.directory.join("data2").display().to_string();
    assert!(listed(&store).contains(&format!("--data {place}")), "{}", listed(&store));
    let read = |store: &Store, number: u64| store.run(&["cat", &format!("/f{number}")]);
    let lost: Vec<u64> = (0..8).filter(|number| read(&store, *number).code != 0).collect();
    assert!(!lost.is_empty() && lost.len() < 8, "{lost:?}");
    assert!(read(&store, lost[0]).stderr.contains(&place), "{}", read(&store, lost[0]).stderr);
    let got = store.run(&["get", "/", "back"]).failed(1, &place).stderr;
    assert!(lost.iter().all(|number| got.contains(&format!("left out /f{number}: "))), "{got}");
    store.kill();
    store.start_again();
    assert!(!listed(&store).contains("missing"));
    (0..8).for_each(|number| {
        assert!(read(&store, number).done().stdout == noise(LARGE, number), "file {number} has changed")
    });
    store.run(&["device", "rm", "data2"]).done();
    store.kill();
    store.start_without_the_last();
    assert!(!listed(&store).contains("missing"), "{}", listed(&store));
    store.kill();
    store.start_again();
    assert!(!listed(&store).contains("data2"), "it was removed, and its disk may be on its way out");
}

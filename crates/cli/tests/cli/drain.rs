//! `device rm`: everything moves to the other devices while the store is used, a kill changes nothing, and no byte is lost.

use crate::console::{get, samples};
use crate::store::{Store, noise, soon};
use std::process::Stdio;

/// Files that do not share a chunk.
const LARGE: usize = 1_200_000;

fn devices(store: &Store) -> Vec<serde_json::Value> {
    let listed = store.run(&["device", "ls", "--json"]).done().text();
    listed.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

fn state_of(store: &Store, place: &str) -> Option<String> {
    let devices = devices(store);
    let found = devices.iter().find(|device| device["directory"].as_str().is_some_and(|name| name.ends_with(place)));
    found.map(|device| device["state"].as_str().expect("a word").to_string())
}

fn fill(store: &Store, files: u64) {
    for number in 0..files {
        store.local(&format!("tree/large{number}"), &noise(LARGE, number + 1));
    }
    for number in 0..60_usize {
        store.local(&format!("tree/small/f{number}"), &noise(number * 331, number as u64 + 100));
    }
    store.run(&["put", "tree", "/tree"]).done();
}

fn compare(store: &Store, files: u64) {
    for number in 0..files {
        let read = store.run(&["cat", &format!("/tree/large{number}")]).done().stdout;
        assert!(read == noise(LARGE, number + 1), "large file {number} has changed");
    }
    for number in 0..60_usize {
        let read = store.run(&["cat", &format!("/tree/small/f{number}")]).done().stdout;
        assert!(read == noise(number * 331, number as u64 + 100), "small file {number} has changed");
    }
}

/// A device is drained and removed: its files, packed ones too, are on the other one; it is no longer listed; the node starts
/// without it, also when its directory is named and is not there: its disk may have been taken away.
#[test]
fn files_move() {
    let mut store = Store::with_devices(2);
    fill(&store, 24);
    store.run(&["rm", "/tree/large3"]).done();
    store.run(&["truncate", "/tree/large4", "--size", "500000"]).done();
    let said = store.run(&["device", "rm", "data1"]).done();
    assert!(said.text().contains("its directory may be deleted"), "{}", said.text());
    assert!(state_of(&store, "data1").is_none());
    let check = |store: &Store| {
        for number in (0..24).filter(|number| ![3, 4].contains(number)) {
            let read = store.run(&["cat", &format!("/tree/large{number}")]).done().stdout;
            assert!(read == noise(LARGE, number + 1), "large file {number} has changed");
        }
        assert!(store.run(&["cat", "/tree/large4"]).done().stdout == noise(LARGE, 5)[..500_000]);
        assert!(store.run(&["device", "scrub", "all"]).code == 0);
    };
    check(&store);
    store.kill();
    std::fs::remove_dir_all(store.directory.join("data1")).expect("its directory is removed");
    store.start_again();
    assert_eq!(state_of(&store, "data1"), None);
    store.kill();
    let place = store.directory.join("data1").display().to_string();
    store.start_again_with(&["--as-new", &place]);
    assert_eq!(state_of(&store, "data1").as_deref(), Some("serving"));
    check(&store);
    // Small files are still one read of the disk each, wherever they lie among the others.
    let place = store.directory.join("data0");
    let series = format!("stormwell_disk_seconds_count{{place=\"{}\",doing=\"read\"}}", place.display());
    let reads = || samples(&get(&store.console, "/metrics").1)[&series];
    let before = reads();
    for number in 1..60_usize {
        let read = store.run(&["cat", &format!("/tree/small/f{number}")]).done().stdout;
        assert!(read == noise(number * 331, number as u64 + 100), "small file {number} has changed");
    }
    // Some begin in one record and end in the next, which is one read, too, where the records lie side by side.
    let each = (reads() - before) / 59.0;
    assert!(each <= 1.0, "{each} reads of the device for each file");
}

/// A device is drained while files are written, read and deleted, and bags are pushed to and pulled from; the node is killed
/// in the middle, and the drain goes on by itself. Every acknowledged byte is there in the end, and every chunk is pulled once.
#[test]
fn under_load_and_killed() {
    let mut store = Store::with_devices(2);
    fill(&store, 60);
    store.run_with(&["bag", "push", "b", "-", "--create", "--chunk", "64K"], &noise(2_000_000, 7)).done();
    let mut slow = store.command(&["put", "-", "/slow"]).stdin(Stdio::piped()).spawn().expect("a writer");
    let mut pipe = slow.stdin.take().expect("a pipe");
    let streamed = noise(9_000_000, 77);
    std::io::Write::write_all(&mut pipe, &streamed[..3_000_000]).expect("the first part");
    let mut following = store.command(&["device", "rm", "data1"]).spawn().expect("the command");
    let draining = soon(|| state_of(&store, "data1").as_deref() == Some("draining"));
    assert!(draining, "it does not begin");
    std::io::Write::write_all(&mut pipe, &streamed[3_000_000..]).expect("the rest");
    drop(pipe);
    assert!(slow.wait().expect("it ends").success(), "a file that is written meanwhile");
    for number in 0..6 {
        store.local("new", &noise(LARGE, 500 + number));
        store.run(&["put", "new", &format!("/new{number}")]).done();
    }
    store.run(&["rm", "/tree/large59"]).done();
    store.run_with(&["bag", "push", "b", "-", "--chunk", "64K"], &noise(500_000, 8)).done();
    store.kill();
    let _its_server_is_gone = following.wait();
    store.start_again();
    compare(&store, 59);
    assert!(store.run(&["cat", "/slow"]).done().stdout == streamed, "the file that was written meanwhile has changed");
    store.run(&["bag", "seal", "b"]).done();
    let pulled = store.run(&["bag", "pull", "b"]).done().stdout;
    assert_eq!(pulled.len(), 2_500_000, "chunks were lost or given twice");
    let ended = store.run(&["device", "rm", "data1"]);
    // The drain went on by itself after the start, and may be over before it is asked for again.
    assert!(ended.code == 0 || ended.stderr.contains("no device 'data1'"), "{}", ended.stderr);
    assert!(state_of(&store, "data1").is_none());
    compare(&store, 59);
    for number in 0..6 {
        assert!(store.run(&["cat", &format!("/new{number}")]).done().stdout == noise(LARGE, 500 + number));
    }
    assert!(store.run(&["cat", "/slow"]).done().stdout == streamed);
    let info = store.run(&["bag", "stat", "b", "--json"]).done().text();
    assert!(info.contains("\"acknowledged_bytes\":2500000"), "{info}");
}

/// A device with chunks of a bag is waited for, and says so; pulling them ends the wait. Pushes go elsewhere meanwhile.
#[test]
fn bags_are_waited_for() {
    let store = Store::with_devices(2);
    store.run_with(&["bag", "push", "b", "-", "--create", "--chunk", "64K"], &noise(2_000_000, 7)).done();
    let mut following = store.command(&["device", "rm", "data1"]).spawn().expect("the command");
    let waits = soon(|| store.run(&["device", "ls"]).done().text().contains("chunks of bag b to be handled"));
    assert!(waits, "it does not say what it waits for");
    let listed = store.run(&["device", "ls"]).done().text();
    assert!(listed.lines().any(|line| line.contains(" % emptied: ")), "{listed}");
    let draining = devices(&store).into_iter().find(|device| device["state"] == "draining").expect("it waits");
    assert!(draining["drain"]["whole_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{draining}");
    store.run_with(&["bag", "push", "b", "-", "--chunk", "64K"], &noise(1_000_000, 9)).done();
    let pulled = store.run(&["bag", "pull", "b", "--no-wait"]).done().stdout;
    assert_eq!(pulled.len(), 3_000_000);
    assert!(following.wait().expect("it ends").success());
    assert!(state_of(&store, "data1").is_none());
    store.run_with(&["bag", "push", "b", "-", "--chunk", "64K"], &noise(300_000, 10)).done();
    store.run(&["bag", "seal", "b"]).done();
    assert_eq!(store.run(&["bag", "pull", "b"]).done().stdout.len(), 300_000);
}

/// What cannot be drained is refused before anything moves: without room elsewhere, with numbers; the metadata's place; the
/// only device.
#[test]
fn refusals() {
    let store = Store::with_devices(2);
    store.run(&["device", "rm", "data0"]).failed(2, "also holds the store's metadata");
    store.run(&["device", "rm", "all"]).failed(2, "");
    store.run(&["device", "rm", "data5"]).failed(3, "no device 'data5'");
    let mut number = 0;
    // 300 MB on each of two devices of 512 MiB: one cannot take both.
    while devices(&store).iter().any(|device| device["used"].as_u64().expect("a number") < 300_000_000) {
        store.local("file", &noise(20_000_000, number + 1));
        store.run(&["put", "file", &format!("/f{number}")]).done();
        number += 1;
    }
    store.run(&["device", "rm", "data1"]).failed(4, "nothing was moved");
    assert_eq!(state_of(&store, "data1").as_deref(), Some("serving"));
}

//! `inspect`: what a device holds can be seen, verified and taken out when its server is gone, and looking changes nothing.

use crate::store::{Ended, Store, binary, noise, run, tree};
use std::path::{Path, PathBuf};

/// A store with files large, small, empty and compressed, and a bag; its server killed.
fn killed_store() -> Store {
    let mut store = Store::start();
    store.local("tree/large", &noise(5_000_001, 3));
    for number in 0..40_usize {
        store.local(&format!("tree/d{}/f{number}", number % 3), &noise(number * 211, number as u64 + 1));
    }
    let rows: Vec<u8> = (0..200_000).flat_map(|row| format!("{row} of many\n").into_bytes()).collect();
    store.local("tree/rows", &rows);
    store.run(&["policy", "set", "/", "--compression", "zstd"]).done();
    store.run(&["put", "tree", "/tree"]).done();
    store.run(&["rm", "/tree/d1/f1"]).done();
    std::fs::remove_file(store.directory.join("tree/d1/f1")).expect("a local file");
    store.run_with(&["bag", "push", "b", "-", "--create", "--chunk", "64K"], &noise(200_000, 9)).done();
    store.run(&["bag", "create", "small", "--compression", "lz4"]).done();
    store.run_with(&["bag", "push", "small", "-", "--chunk", "64K"], &[b's'; 150_000]).done();
    store.kill();
    store
}

fn inspect(store: &Store, words: &[&str]) -> Ended {
    let mut command = binary();
    command.arg("inspect").arg("data").args(words).current_dir(&store.directory);
    run(command, b"")
}

/// Every file of the directory with its bytes and times.
fn state(directory: &Path) -> impl PartialEq + use<> {
    tree(directory)
}

/// After `kill -9` everything is listed, verified and exported as it was put, by name; nothing on the device changes, not
/// even by recovery; and the server starts again afterwards.
#[test]
fn everything_comes_out_and_nothing_changes() {
    let mut store = killed_store();
    let before = state(&store.directory.join("data"));
    let summary = inspect(&store, &[]).done().text();
    assert!(summary.contains("format version 6\n") && summary.contains("41 files in 5 directories, "), "{summary}");
    assert!(summary.contains("; 2 bags\n") && summary.contains(" 7 of bags\n"), "{summary}");
    let listed = inspect(&store, &["--files"]).done().text();
    assert!(listed.lines().any(|line| line.ends_with("  /tree/large") && line.contains(" 5000001 ")), "{listed}");
    assert!(!listed.contains("/tree/d1/f1\n"), "{listed}");
    let chunks = inspect(&store, &["--list", "--json"]).done().text();
    assert_eq!(chunks.lines().filter(|line| line.contains("\"owner\":\"bag ")).count(), 7, "{chunks}");
    let verified = inspect(&store, &["--verify", "--json"]).done().text();
    assert!(verified.contains("\"damaged\":0"), "{verified}");
    inspect(&store, &["--export", "out"]).done();
    assert!(
        without_times(&store.directory.join("out/files/tree")) == without_times(&store.directory.join("tree")),
        "the export differs"
    );
    let bag: usize = std::fs::read_dir(store.directory.join("out/bags/b"))
        .expect("the bag")
        .map(|entry| entry.expect("a chunk").metadata().expect("metadata").len() as usize)
        .sum();
    assert_eq!(bag, 200_000);
    let small: Vec<u8> =
        tree(&store.directory.join("out/bags/small")).into_values().flat_map(|(bytes, _, _)| bytes).collect();
    assert!(small == [b's'; 150_000], "chunks that are stored compressed come out as they were pushed");
    assert!(state(&store.directory.join("data")) == before, "looking changed the device");
    store.start_again();
    assert!(store.run(&["cat", "/tree/large"]).done().stdout == noise(5_000_001, 3));
    // Served again: nobody may look, and nothing is said to be wrong with it.
    inspect(&store, &[]).failed(8, "is in use by process");
}

/// A local tree without the times of its directories, which change with what is removed from them.
fn without_times(path: &Path) -> std::collections::BTreeMap<PathBuf, (Vec<u8>, u32, u128)> {
    let mut all = tree(path);
    for (name, (_, _, modified)) in &mut all {
        if path.join(name).is_dir() {
            *modified = 0;
        }
    }
    all
}

/// A byte that rotted on the disk is found by `--verify`, which names the file; the export holds all other files whole and
/// the damaged one, zeros where it is damaged, under a name that says so.
#[test]
fn rot_is_found_and_the_rest_is_saved() {
    let store = killed_store();
    let large = noise(5_000_001, 3);
    assert_eq!(store.rot("data", &large[2_000_000..2_000_032]), 1);
    let verified = inspect(&store, &["--verify"]);
    assert_eq!(verified.code, 6, "{}", verified.stderr);
    let text = verified.text();
    assert!(text.contains("has bytes in a damaged chunk: /tree/large\n") && text.contains(", 1 damaged\n"), "{text}");
    let exported = inspect(&store, &["--export", "out", "--json"]);
    assert_eq!(exported.code, 6, "{}", exported.stderr);
    assert!(exported.text().contains("\"path\":\"/tree/large\""), "{}", exported.text());
    let saved = std::fs::read(store.directory.join("out/files/tree/large.damaged")).expect("what could be saved");
    assert_eq!(saved.len(), large.len());
    let lost = saved.iter().zip(&large).filter(|(saved, was)| saved != was).count();
    assert!((1..=4096).contains(&lost), "{lost} bytes were given up for one");
    assert!(tree(&store.directory.join("out/files/tree/d2")) == tree(&store.directory.join("tree/d2")));
}

/// Without the metadata the chunks still come out; a directory without a device, or none at all, is said to be that.
#[test]
fn without_names() {
    let store = killed_store();
    std::fs::rename(store.directory.join("data/meta"), store.directory.join("meta-lost")).expect("it can be moved");
    inspect(&store, &["--files"]).failed(3, "`meta`");
    inspect(&store, &["--export", "out"]).done();
    let mut saved: Vec<u8> = Vec::new();
    for (_, (bytes, _, _)) in tree(&store.directory.join("out/chunks")) {
        saved.extend(bytes);
    }
    let large = noise(5_000_001, 3);
    assert!(
        saved.windows(64).any(|window| window == &large[4_000_000..4_000_064]),
        "the large file's bytes are not there"
    );
    inspect(&store, &["--export", "out"]).failed(7, "is not empty");
    for (name, word) in [("tree", "no device is here"), ("nothing", "no such directory")] {
        let mut command = binary();
        command.args(["inspect", name]).current_dir(&store.directory);
        run(command, b"").failed(3, word);
    }
}

/// A device of the store that was not named is said to be missing, and the exit code tells a script that not all was compared.
#[test]
fn verify_misses_a_device() {
    let mut store = Store::with_devices(2);
    store.run_with(&["put", "-", "/f"], &noise(3_000_000, 3)).done();
    store.kill();
    let verify = |words: &[&str]| {
        let mut command = binary();
        command.arg("inspect").args(words).arg("--verify").current_dir(&store.directory);
        run(command, b"")
    };
    verify(&["data0"]).failed(1, "belongs to this store too");
    let told = verify(&["data0", "--json"]).text();
    let verified: serde_json::Value = serde_json::from_str(told.lines().last().expect("a line")).expect("an object");
    assert_eq!(verified["devices_missing"].as_array().map(Vec::len), Some(1), "{told}");
    verify(&["data0", "data1"]).done();
    // A device knows where its metadata are; if they are not there, nobody knows.
    verify(&["data1"]).failed(1, "belongs to this store too");
    let (place, away) = (store.directory.join("data0"), store.directory.join("away"));
    std::fs::rename(place, away).expect("the disk is unplugged");
    let ended = verify(&["data1"]).done();
    assert!(ended.stderr.contains("is not known"), "{}", ended.stderr);
}

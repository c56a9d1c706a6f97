//! What small files cost: room at rest, and reads of the disk.

use crate::console::{get, samples};
use crate::store::{Store, noise, soon};
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Files, and bytes of each. Segments are made ahead, whole: enough files that one more or less does not count.
const FILES: usize = 20_000;
const SIZE: usize = 4096;

/// What the devices of a store say that they use.
fn used(store: &Store) -> u64 {
    let told = store.run(&["df", "--json"]).done().text();
    let objects = told.lines().map(|line| serde_json::from_str::<Value>(line).expect("an object"));
    let total = objects.into_iter().find(|object| object["kind"] == "total").expect("the total");
    total["used"].as_u64().expect("a number")
}

/// Bytes that the file system gave to everything below a directory.
fn occupied(directory: &Path) -> u64 {
    let mut sum = 0;
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        // The server may remove a file meanwhile.
        let Ok(about) = std::fs::symlink_metadata(&path) else { continue };
        sum += if about.is_dir() { occupied(&path) } else { about.blocks() * 512 };
    }
    sum
}

/// Files of 4 KiB take at most 1.6 times their bytes at rest, names and all, by what the store says and by the blocks of the
/// file system. Reading one takes one read of the device, which brings the header of its record, with the checksums, too.
#[test]
fn small_files_are_cheap() {
    let mut store = Store::start();
    let data = store.directory.join("data");
    let (used_before, occupied_before) = (used(&store), occupied(&data));
    for number in 0..FILES {
        let name = format!("tree/{}/{number}", number / 500);
        store.local(&name, &noise(SIZE, number as u64 + 1));
    }
    store.run(&["put", "tree", "/tree", "--quiet"]).done();
    // A start settles everything: what the metadata log holds goes to the tree, and a checkpoint follows the end.
    store.kill();
    store.start_again();
    let most = (FILES * SIZE) as u64 * 8 / 5;
    let cost = || (used(&store).saturating_sub(used_before), occupied(&data).saturating_sub(occupied_before));
    let settled = soon(|| cost().0 <= most && cost().1 <= most);
    let (by_store, by_blocks) = cost();
    let ratio = |bytes: u64| bytes as f64 / (FILES * SIZE) as f64;
    eprintln!("{FILES} files of {SIZE} bytes take {:.2} by df and {:.2} by blocks", ratio(by_store), ratio(by_blocks));
    assert!(settled, "{:.2} by df and {:.2} by blocks, 1.6 is the most", ratio(by_store), ratio(by_blocks));

    let series = format!("stormwell_disk_seconds_count{{place=\"{}\",doing=\"read\"}}", data.display());
    let reads = || samples(&get(&store.console, "/metrics").1)[&series];
    let before = reads();
    let wanted: Vec<usize> = (0..FILES).step_by(FILES / 50).collect();
    for number in &wanted {
        let path = format!("/tree/{}/{number}", number / 500);
        let ended = store.run(&["cat", &path]).done();
        assert!(ended.stdout == noise(SIZE, *number as u64 + 1), "{path} has changed");
    }
    let each = (reads() - before) / wanted.len() as f64;
    assert!(each > 0.0 && each <= 1.0, "{each} reads of the device for each file");
}

//! Stores of other versions. `older/store-dca4952.bin` is a store as a program of commit dca4952 left it (device format 3, metadata format
//! 1), killed with a file open and a bag half done; `older/make.sh` made it, and says what was done to it. With
//! `STORMWELL_OLD_STORE=DIRECTORY` what that script made is put into the image.
//! The image is a list of files: length of the name 4, name, length 8, count 4 of blocks that are not zeros, each: place 4, length 4, bytes
//! without the zeros at their end.

use crate::store::{Ended, Store, binary, run};
use base::checksum::crc32c;
use redb::ReadableTable;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const IMAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/older/store-dca4952.bin");
const BLOCK: usize = 4096;

/// The files below a directory and their bytes, by their names from there on.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut directories) = (BTreeMap::new(), vec![directory.to_path_buf()]);
    while let Some(next) = directories.pop() {
        for entry in std::fs::read_dir(next).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let bytes = std::fs::read(&path).expect("its bytes");
            found.insert(path.strip_prefix(directory).expect("below it").to_path_buf(), bytes);
        }
    }
    found
}

fn pack(directory: &Path) -> Vec<u8> {
    let mut image = Vec::new();
    for (name, bytes) in files(directory) {
        let name = name.to_str().expect("a name");
        image.extend((name.len() as u32).to_le_bytes());
        image.extend(name.as_bytes());
        image.extend((bytes.len() as u64).to_le_bytes());
        let used = |block: &[u8]| block.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let blocks: Vec<(usize, &[u8])> =
            bytes.chunks(BLOCK).enumerate().map(|(place, block)| (place, &block[..used(block)])).collect();
        let blocks: Vec<&(usize, &[u8])> = blocks.iter().filter(|(_, block)| !block.is_empty()).collect();
        image.extend((blocks.len() as u32).to_le_bytes());
        for (place, block) in blocks {
            image.extend([*place as u32, block.len() as u32].map(u32::to_le_bytes).concat());
            image.extend(*block);
        }
    }
    image
}

/// Puts the store of the image into a directory.
fn unpack(directory: &Path) {
    let image = std::fs::read(IMAGE).unwrap_or_else(|error| panic!("{IMAGE}: {error}"));
    let mut rest = &image[..];
    let mut take = |count: usize| {
        let (head, left) = rest.split_at_checked(count)?;
        rest = left;
        Some(head)
    };
    let number =
        |bytes: Option<&[u8]>| bytes.expect("a number").iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    while let Some(length) = take(4) {
        let name = take(number(Some(length))).expect("a name");
        let path = directory.join(std::str::from_utf8(name).expect("text"));
        let mut bytes = vec![0; number(take(8))];
        for _ in 0..number(take(4)) {
            let (at, length) = (number(take(4)) * BLOCK, number(take(4)));
            bytes[at..at + length].copy_from_slice(take(length).expect("bytes"));
        }
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(&path, bytes).expect("written");
    }
}

/// What `seq` writes, each line behind this.
fn lines(before: &str, last: u32) -> String {
    (1..=last).map(|number| format!("{before}{number}\n")).collect()
}

fn cat(store: &Store, path: &str) -> String {
    store.run(&["cat", path]).done().text()
}

fn check_files(store: &Store) {
    let [a, b, c] = ["a", "b", "c"].map(|name| lines(name, 100));
    let numbers = lines("", 8000);
    for path in ["/d/numbers", "/packed/compressed"] {
        assert!(cat(store, path) == numbers, "{path}");
    }
    for (path, bytes) in [("small/a", &a), ("small/b", &b), ("small/c", &c), ("replaced", &c), ("moved", &a)] {
        assert_eq!(cat(store, &format!("/d/{path}")), *bytes, "{path}");
    }
    assert_eq!(cat(store, "/d/joined"), format!("{a}{b}"));
    assert_eq!(cat(store, "/d/cut"), lines("", 10_000)[..30_000]);
    for number in 1..=40 {
        assert_eq!(cat(store, &format!("/packed/many/{number}")), lines("", number), "{number}");
    }
    let names = |path: &str| store.run(&["ls", path]).done().text().lines().count();
    assert_eq!((names("/d"), names("/d/small"), names("/packed/many")), (7, 3, 40));
    assert!(lines("", 5000).starts_with(&cat(store, "/d/open")), "what was written when everything ended");
}

fn check_what_is_kept_with_names(store: &Store) {
    assert_eq!(store.run(&["xattr", "get", "/d/numbers", "user.schema"]).done().text().trim_end(), "v7");
    let shown = store.run(&["stat", "/d/small", "--json"]).done().text();
    assert!(shown.contains("\"ada\"") && shown.contains("\"staff\""), "{shown}");
    let shown = store.run(&["stat", "/d/small/a", "--json"]).done().text();
    assert!(shown.contains("640"), "{shown}");
    assert!(store.run(&["policy", "get", "/packed"]).done().text().contains("zstd"));
    store.run_with(&["put", "-", "/limited/two"], b"2").done();
    store.run_with(&["put", "-", "/limited/three"], b"3").failed(4, "quota");
}

/// Chunks that were acknowledged are not given again, all others are, once; the bag that retains is in its second pass.
fn check_bags(store: &Store) {
    let handled = std::fs::read_to_string(store.directory.join("handled")).expect("what was acknowledged");
    assert!(!handled.is_empty() && handled.len() < lines("", 2000).len());
    store.run(&["bag", "seal", "work"]).done();
    let left = store.run(&["bag", "pull", "work"]).done().text();
    let mut all: Vec<u32> = format!("{handled}{left}").lines().map(|line| line.parse().expect("a number")).collect();
    all.sort_unstable();
    assert_eq!(all, (1..=2000).collect::<Vec<u32>>());
    let mut kept: Vec<u32> = store
        .run(&["bag", "pull", "kept", "--no-wait"])
        .done()
        .text()
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    kept.sort_unstable();
    assert_eq!(kept, (1..=500).collect::<Vec<u32>>());
    assert_eq!(store.run(&["bag", "pull", "kept", "--no-wait"]).done().text(), "", "given twice in a pass");
}

/// A store that a program of an earlier commit left is read by this one: every name and byte, what is kept with them, and bags go on where
/// they were. It is still all of that after a kill, and a scrub finds nothing.
#[test]
fn an_older_store_goes_on() {
    if let Ok(made) = std::env::var("STORMWELL_OLD_STORE") {
        std::fs::write(IMAGE, pack(Path::new(&made))).expect("written");
    }
    let mut store = Store::filled(unpack);
    check_files(&store);
    check_what_is_kept_with_names(&store);
    store.kill();
    store.start_again();
    check_files(&store);
    check_bags(&store);
    store.run(&["device", "scrub", "all"]).done();
}

/// Files that are written by whoever looks, whatever is in the rest.
fn without_locks(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    files(directory).into_iter().filter(|(name, _)| !name.ends_with("lock")).collect()
}

fn serve(directory: &Path) -> Ended {
    let mut command = binary();
    let device = format!("{}:ssd:128M", directory.join("data").display());
    command.args(["serve", "--listen", "127.0.0.1:0", "--console", "off", "--hdfs", "off", "--data", &device]);
    run(command, b"")
}

fn is_newer(ended: &Ended) {
    let said = &ended.stderr;
    assert!(
        ended.code != 0 && said.contains("newer: ") && said.contains("data is safe") && !said.contains("damaged"),
        "{said}"
    );
}

/// A store of a format that this program does not know yet is refused as newer, and not a byte of it is another afterwards: of the whole
/// store if its metadata are newer, of the device if that is.
#[test]
fn a_newer_store_is_refused_unchanged() {
    let mut store = Store::filled(unpack);
    store.run(&["mkdir", "/later"]).done();
    store.kill();
    let data = store.directory.join("data");
    let identity = data.join("chunks/identity-00000000");
    let kept = std::fs::read(&identity).expect("an identity");
    let mut newer = kept.clone();
    newer[12..16].copy_from_slice(&1000u32.to_le_bytes());
    newer[8..12].fill(0);
    let crc = crc32c(&[&[0; 16][..], &newer].concat());
    newer[8..12].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&identity, &newer).expect("written");
    let before = without_locks(&data.join("chunks"));
    is_newer(&serve(&store.directory));
    assert!(without_locks(&data.join("chunks")) == before, "a device that was refused has other bytes now");
    std::fs::write(&identity, &kept).expect("written");

    // The tree's first record, of key 1: tag 1, the version, once more behind the others.
    let tree = redb::Database::open(data.join("meta/tree.redb")).expect("a tree");
    let change = tree.begin_write().expect("a change");
    {
        let name: redb::TableDefinition<'_, &[u8], &[u8]> = redb::TableDefinition::new("state");
        let mut table = change.open_table(name).expect("the table");
        let mut record = table.get(&[1][..]).expect("read").expect("a record").value().to_vec();
        record.extend([0x08, 0xE8, 0x07]);
        table.insert(&[1][..], &record[..]).expect("put");
    }
    change.commit().expect("committed");
    drop(tree);
    let before = without_locks(&data);
    is_newer(&serve(&store.directory));
    assert!(without_locks(&data) == before, "a store that was refused has other bytes now");
}

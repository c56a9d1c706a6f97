//! policy and explain: wishes are inherited and followed, and what is said about safety is true.

use crate::store::{Ended, Store, binary, noise, run};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// Wishes are set, inherited, shown and removed; what one node cannot do is refused in so many words.
#[test]
fn wished() {
    let store = Store::start();
    store.run(&["mkdir", "-p", "/a/b"]).done();
    let warned = store.run(&["policy", "set", "/a", "--tier", "hdd"]).done();
    assert!(warned.stderr.contains("no device of class hdd"), "{}", warned.stderr);
    let shown = store.run(&["policy", "get", "/a/b"]).done().text();
    assert!(shown.contains("own       tier inherited") && shown.contains("in force  tier hdd"), "{shown}");
    store.run_with(&["put", "-", "/a/b/f"], b"x").failed(2, "hdd");
    store.run(&["policy", "set", "/a/b", "--tier", "ssd", "--replicas", "1"]).done();
    store.run_with(&["put", "-", "/a/b/f"], b"x").done();
    let json = store.run(&["policy", "get", "/a/b/f", "--json"]).done().text();
    assert!(
        json.contains("\"in_force\":{\"compression\":null,\"least\":null,\"replicas\":1,\"tier\":\"ssd\"}"),
        "{json}"
    );
    store.run(&["policy", "set", "/a", "--replicas", "17"]).failed(2, "17");
    store.run(&["policy", "set", "/a"]).failed(2, "--inherit");
    store.run(&["policy", "set", "/a", "--inherit"]).done();
    assert!(store.run(&["policy", "get", "/a"]).done().text().contains("in force  tier nvm, ssd or hdd"));
    store.run(&["policy", "get", "/nowhere"]).failed(3, "/nowhere");
}

/// What nobody wished into memory is never there, whatever room it has: neither a file over several devices, nor small files that are packed
/// together, nor chunks of a bag, nor what a drain moves to other devices.
#[test]
fn nothing_is_in_memory_unasked() {
    let mut store = Store::with_devices(2);
    store.kill();
    store.start_again_with(&["--data", "fast:memory:256M"]);
    let live = || -> Vec<(String, u64, u64)> {
        let shown = store.run(&["df", "--json"]).done().text();
        let devices = shown.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("an object"));
        let devices = devices.filter(|device| device["kind"] == "device");
        let number = |device: &serde_json::Value, name: &str| device[name].as_u64().expect("a number");
        let class = |device: &serde_json::Value| device["class"].as_str().expect("a word").to_string();
        devices.map(|device| (class(&device), number(&device, "chunks"), number(&device, "live"))).collect()
    };
    let is_empty = |what: &str| {
        let devices = live();
        let memory: Vec<_> = devices.iter().filter(|(class, ..)| class == "memory").collect();
        assert!(memory.len() == 1 && memory[0].1 == 0 && memory[0].2 == 0, "{what}: {devices:?}");
    };
    // More than the 8 MiB behind which a file gets more columns than one.
    let large = noise(40 << 20, 1);
    store.run_with(&["put", "-", "/large"], &large).done();
    is_empty("a file");
    for number in 0..200_u64 {
        store.local(&format!("tree/{number}"), &noise(3000, number));
    }
    store.run(&["put", "tree", "/tree"]).done();
    is_empty("small files");
    store.run(&["bag", "create", "b"]).done();
    store.run_with(&["bag", "push", "b", "-", "--chunk", "1M"], &noise(30 << 20, 2)).done();
    is_empty("a bag");
    // A drain waits for those who handle its chunks, and nobody does here.
    store.run(&["bag", "rm", "b"]).done();
    store.run(&["device", "rm", "data1"]).done();
    is_empty("a drain");
    assert!(store.run(&["cat", "/large"]).done().stdout == large);
    assert_eq!(live().len(), 2);
    // And it is used where somebody wishes so.
    store.run(&["mkdir", "/m"]).done();
    store.run(&["policy", "set", "/m", "--tier", "memory"]).done();
    store.run_with(&["put", "-", "/m/f"], b"x").done();
    assert!(live().iter().any(|(class, chunks, _)| class == "memory" && *chunks > 0));
}

/// Wishes that are not named stay as they are.
#[test]
fn one_at_a_time() {
    let store = Store::start();
    store.run(&["mkdir", "/a"]).done();
    store.run(&["policy", "set", "/a", "--tier", "ssd"]).done();
    store.run(&["policy", "set", "/a", "--compression", "zstd"]).done();
    let own = || store.run(&["policy", "get", "/a"]).done().text().lines().next().expect("a line").to_string();
    assert_eq!(own(), "own       tier ssd, replicas inherited, compression zstd");
    store.run(&["policy", "set", "/a", "--replicas", "1", "--compression", "lz4"]).done();
    assert_eq!(own(), "own       tier ssd, replicas 1, compression lz4");
    store.run(&["policy", "set", "/a", "--inherit"]).done();
    assert_eq!(own(), "own       tier inherited, replicas inherited, compression inherited");
}

/// Files below a directory that wishes so are compressed, as policy and stat say; what is read, in whole and in parts, is what was put.
#[test]
fn compressed() {
    let store = Store::start();
    store.run(&["mkdir", "-p", "/a/b"]).done();
    store.run(&["policy", "set", "/a", "--compression", "gzip"]).failed(2, "none, lz4, zstd");
    store.run(&["policy", "set", "/a", "--compression", "zstd"]).done();
    store.run(&["policy", "set", "/a/b", "--compression", "none"]).done();
    let shown = store.run(&["policy", "get", "/a"]).done().text();
    assert!(shown.contains("own       tier inherited, replicas inherited, compression zstd"), "{shown}");
    assert!(store.run(&["policy", "get", "/"]).done().text().contains("replicas 1, compression none"));
    let rows: Vec<u8> =
        (0..200_000).flat_map(|row| format!("{row:>10} row of many, {}\n", row % 7).into_bytes()).collect();
    store.local("rows", &rows);
    store.run(&["put", "rows", "/a/rows"]).done();
    store.run(&["put", "rows", "/a/b/rows"]).done();
    let live = || -> u64 {
        let listed = store.run(&["df", "--json"]).done().text();
        let total = listed.lines().last().expect("a total");
        serde_json::from_str::<serde_json::Value>(total).expect("an object")["live"].as_u64().expect("a number")
    };
    let (stored, length) = (live(), rows.len() as u64);
    assert!(stored > length && stored < length + length / 4, "{stored} bytes for twice {length}");
    assert!(store.run(&["stat", "/a/rows"]).done().text().contains("compressed  zstd"));
    assert!(store.run(&["stat", "/a/b", "--json"]).done().text().contains("\"compression\":\"none\""));
    for path in ["/a/rows", "/a/b/rows"] {
        assert!(store.run(&["cat", path]).done().stdout == rows, "{path}");
        store.run(&["get", path, "back", "--overwrite"]).done();
        assert!(std::fs::read(store.directory.join("back")).unwrap() == rows, "{path}");
    }
    assert!(store.run(&["tail", "/a/rows", "--bytes", "5000"]).done().stdout == rows[rows.len() - 5000..]);
    store.run(&["truncate", "/a/rows", "--size", "1234567"]).done();
    assert!(store.run(&["cat", "/a/rows"]).done().stdout == rows[..1_234_567]);
    assert_eq!(store.run(&["device", "scrub", "all"]).code, 0);
}

/// A quota is set, shown and kept to: what would be too much is refused with words and a code for scripts, and nothing of it is there.
#[test]
fn limited() {
    let store = Store::start();
    store.run(&["mkdir", "-p", "/a/b"]).done();
    assert_eq!(store.run(&["quota", "get", "/a"]).done().text(), "no quota\n");
    store.run(&["quota", "set", "/a", "--names", "4", "--bytes", "1000"]).done();
    store.run_with(&["put", "-", "/a/b/f"], &[1; 600]).done();
    let shown = store.run(&["quota", "get", "/a"]).done().text();
    assert!(shown.contains("names  3 of 4") && shown.contains("bytes  600 B of 1000 B"), "{shown}");
    store.run_with(&["put", "-", "/a/large"], &[1; 500]).failed(4, "the quota of '/a' is 1000 bytes");
    store.run(&["ls", "/a/large"]).failed(3, "/a/large");
    for number in 0..2 {
        store.local(&format!("tree/f{number}"), b"x");
    }
    // Of several files that failed the code says only that some did.
    store.run(&["put", "tree", "/a"]).failed(1, "the quota of '/a' is 4 names");
    store.run(&["mkdir", "-p", "/c/d"]).done();
    store.run(&["rm", "-r", "/a/tree"]);
    store.run(&["mv", "/c", "/a/c"]).failed(4, "there would be 5");
    let json = store.run(&["quota", "get", "/a", "--json"]).done().text();
    assert!(json.contains("\"names\":3") && json.contains("\"names_max\":4"), "{json}");
    store.run(&["quota", "set", "/a", "--names", "none"]).done();
    store.run(&["mv", "/c", "/a/c"]).done();
    store.run(&["quota", "set", "/a"]).failed(2, "--bytes");
}

/// Small and large files go to the tier that their directory wishes for, and explain says where they are.
#[test]
fn followed_and_explained() {
    let store = Store::start();
    let (fast, slow) = (store.directory.join("fast"), store.directory.join("slow"));
    let mut command = binary();
    command.args(["serve", "--at", "127.0.0.1:0", "--data", &format!("{}:ssd:256M", fast.display())]);
    command.args(["--data", &format!("{}:hdd:256M", slow.display())]);
    let mut server = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines().map_while(Result::ok);
    let serving = |line: String| line.strip_prefix("stormwell: serving on ").map(str::to_string);
    let address = lines.find_map(serving).expect("it serves");
    let drain = std::thread::spawn(move || lines.count());
    let ask = |words: &[&str]| -> Ended {
        let mut command = binary();
        command.args(words).env("STORMWELL_AT", &address).current_dir(&store.directory);
        run(command, b"")
    };
    ask(&["mkdir", "/cold"]).done();
    ask(&["policy", "set", "/cold", "--tier", "hdd"]).done();
    for number in 0..20 {
        store.local(&format!("tree/f{number}"), &vec![number; 1000]);
    }
    store.local("tree/large", &vec![9; 3_000_000]);
    ask(&["put", "tree", "/cold"]).done();
    for name in ["f0", "f19", "large"] {
        let path = format!("/cold/tree/{name}");
        let shown = ask(&["explain", &path]).done().text();
        assert!(shown.contains("(hdd) in ") && shown.contains("slow") && shown.contains(": synced"), "{shown}");
        assert!(!shown.contains("fast") && shown.contains("of which there is one copy"), "{shown}");
        let json = ask(&["explain", &path, "--json"]).done().text();
        assert!(json.contains("\"class\":\"hdd\"") && json.contains("\"copies\":1"), "{json}");
    }
    ask(&["get", "/cold/tree", "back"]).done();
    assert_eq!(std::fs::read(store.directory.join("back/f7")).unwrap(), vec![7; 1000]);
    assert!(ask(&["explain", "/cold"]).done().text().contains("directory"));
    ask(&["touch", "/empty"]).done();
    assert!(ask(&["explain", "/empty"]).done().text().contains("no bytes"));
    ask(&["explain", "/nowhere"]).failed(3, "/nowhere");
    server.kill().unwrap();
    server.wait().unwrap();
    drain.join().unwrap();
}

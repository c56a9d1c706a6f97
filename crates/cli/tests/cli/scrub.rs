//! `device scrub`: rot is found by the running node, the file is named, and everything else stays readable.

use crate::console::get;
use crate::store::{Store, noise, soon};

/// Bytes that rotted while the server was down, in a large file, in a packed one and in a chunk of a bag, are found by a
/// scrub, which names each with the bytes, and no other; what is whole is read as before; and the result stays to be seen.
#[test]
fn rot_is_found_and_named() {
    let mut store = Store::start();
    let (large, small, pushed) = (noise(5_000_001, 3), noise(3000, 4), noise(200_000, 9));
    store.local("tree/large", &large);
    store.local("tree/deep/small", &small);
    for number in 0..40_usize {
        store.local(&format!("tree/d{}/f{number}", number % 3), &noise(number * 211, number as u64 + 10));
    }
    store.run(&["put", "tree", "/tree"]).done();
    store.run(&["concat", "/tree/large", "/tree/d1/f1"]).done();
    store.run_with(&["bag", "push", "b", "-", "--create", "--chunk", "64K"], &pushed).done();
    // What was written last cannot be told from what a kill cut short, so something has to follow.
    for number in 0..3 {
        store.run(&["put", "tree/d0/f3", &format!("/after{number}")]).done();
    }
    let sound = store.run(&["device", "scrub", "all"]).done().text();
    assert!(sound.contains("no damage"), "{sound}");
    store.kill();
    for needle in [&large[2_000_000..2_000_032], &small[500..532], &pushed[150_000..150_032]] {
        assert_eq!(store.rot("data", needle), 1);
    }
    store.start_again();
    let ended = store.run(&["device", "scrub", "data", "--json"]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let text = ended.text();
    let found: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let [ranges @ .., summary] = &found[..] else { panic!("nothing was said") };
    assert_eq!(summary["damaged_ranges"], 3, "{text}");
    let holds = |range: &serde_json::Value, at: u64| {
        let (start, end) = (range["start"].as_u64().expect("a number"), range["end"].as_u64().expect("a number"));
        start <= at && at < end && end - start <= 8192
    };
    assert!(ranges.iter().any(|range| range["path"] == "/tree/large" && holds(range, 2_000_000)), "{text}");
    assert!(ranges.iter().any(|range| range["path"] == "/tree/deep/small" && holds(range, 500)), "{text}");
    assert!(ranges.iter().any(|range| range["bag"] == "b" && range["unreadable"] == false), "{text}");
    let plain = store.run(&["device", "scrub", "all"]).text();
    assert!(plain.contains("/tree/large: bytes ") && plain.contains("do not match their checksum"), "{plain}");
    let listed = store.run(&["device", "ls"]).done().text();
    assert!(listed.contains("3 ranges are damaged"), "{listed}");
    let metrics = get(&store.console, "/metrics").1;
    let damaged = metrics.lines().find(|line| line.starts_with("stormwell_device_scrub_damaged_bytes{"));
    assert!(damaged.is_some_and(|line| !line.ends_with(" 0")), "{damaged:?}");
    store.run(&["cat", "/tree/large"]).failed(6, "/tree/large");
    for number in (0..40_usize).filter(|number| number % 3 == 2) {
        let ended = store.run(&["cat", &format!("/tree/d2/f{number}")]);
        // Files that share the rotten block of 4 KiB are damaged with it, and are named, too.
        if ranges.iter().all(|range| range["path"] != format!("/tree/d2/f{number}")) {
            assert!(ended.done().stdout == noise(number * 211, number as u64 + 10), "file {number}");
        }
    }
    // Put again, nothing is damaged any more.
    store.run(&["rm", "-r", "/tree"]).done();
    store.run(&["put", "tree", "/tree"]).done();
    store.run(&["bag", "rm", "b"]).done();
    let clean = soon(|| store.run(&["device", "scrub", "all"]).code == 0);
    assert!(clean, "{}", store.run(&["device", "scrub", "all"]).text());
}

/// A device is named by its directory or its id, and by nothing else; a rate can be given.
#[test]
fn which_device() {
    let store = Store::with_devices(2);
    let listed = store.run(&["device", "ls", "--json"]).done().text();
    let first: serde_json::Value = serde_json::from_str(listed.lines().next().expect("a device")).expect("an object");
    let id = first["device"].as_str().expect("an id").to_string();
    store.run(&["device", "scrub", &id[..12], "--rate", "1G"]).done();
    store.run(&["device", "scrub", "data1"]).done();
    store.run(&["device", "scrub", "data7"]).failed(3, "no device 'data7'");
    store.run(&["device", "scrub", "all", "--rate", "much"]).failed(2, "");
}

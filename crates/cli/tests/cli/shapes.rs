//! truncate and concat: files change their length without their bytes being moved, and freed space comes back.

use crate::store::{Store, noise};

/// Bytes of the chunks that the device has.
fn live(store: &Store) -> u64 {
    let text = store.run(&["df", "--json"]).done().text();
    let line = text.lines().find(|line| line.contains("\"live\"")).unwrap_or_else(|| panic!("{text}"));
    let live = line.split("\"live\":").nth(1).and_then(|rest| rest.split([',', '}']).next());
    live.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

/// A file is cut at any byte, small and large; what is cut off is never read again, its chunks go, and what is
/// appended later follows what was kept. All of it outlives a kill.
#[test]
fn truncated() {
    let mut store = Store::start();
    let bytes = noise(272_000_000, 1);
    store.run_with(&["put", "-", "/large"], &bytes).done();
    store.local("small", &bytes[..1000]);
    store.run(&["put", "small", "/small"]).done();
    let before = live(&store);
    store.run(&["truncate", "--size", "272000001", "/large"]).failed(2, "append");
    store.run(&["truncate", "--size", "5", "/"]).failed(2, "directory");
    store.run(&["truncate", "--size", "5", "/nowhere"]).failed(3, "/nowhere");
    store.run(&["truncate", "--size", "269000001", "/large"]).done();
    store.run(&["truncate", "--size", "3000001", "/large"]).done();
    store.run(&["truncate", "--size", "123", "/small"]).done();
    assert!(store.run(&["cat", "/large"]).done().stdout == bytes[..3_000_001]);
    assert!(store.run(&["cat", "/small"]).done().stdout == bytes[..123]);
    let mut rounds = 0;
    // The chunk behind the cut goes; the one in the middle stays, with bytes in it that its device may forget.
    while live(&store) > before - 272_000_000 + (256 << 20) {
        rounds += 1;
        assert!(rounds < 500, "{} bytes of {before} are still there", live(&store));
    }
    store.kill();
    store.start_again();
    assert!(store.run(&["cat", "/large", "/small"]).done().stdout == [&bytes[..3_000_001], &bytes[..123]].concat());
    store.run(&["get", "/large", "back"]).done();
    assert!(std::fs::read(store.directory.join("back")).unwrap() == bytes[..3_000_001]);
    store.run(&["truncate", "--size", "0", "/small"]).done();
    assert_eq!(store.run(&["cat", "/small"]).done().stdout, b"");
}

/// Joined files are one, in the order named; the others are gone; deleting one that was packed with others leaves the others.
#[test]
fn joined() {
    let mut store = Store::start();
    let bytes = noise(3_000_000, 2);
    for (number, part) in bytes.chunks(500_000).enumerate() {
        store.local(&format!("parts/{number}"), part);
    }
    store.run(&["put", "parts", "/"]).done();
    store.run_with(&["put", "-", "/large"], &bytes).done();
    store.run(&["touch", "/whole"]).done();
    store.run(&["concat", "/whole", "/parts/0", "/parts/1", "/nowhere"]).failed(3, "/nowhere");
    store.run(&["concat", "/whole", "/parts/0", "/parts/0"]).failed(2, "twice");
    assert_eq!(store.run(&["ls", "/parts"]).done().text().lines().count(), 6, "nothing was done");
    store.run(&["truncate", "--size", "400000", "/parts/3"]).done();
    store.run(&["concat", "/whole", "/parts/0", "/large", "/parts/3", "/parts/4"]).done();
    assert_eq!(store.run(&["ls", "/parts"]).done().text(), "1\n2\n5\n");
    let whole = [&bytes[..500_000], &bytes[..], &bytes[1_500_000..1_900_000], &bytes[2_000_000..2_500_000]].concat();
    assert!(store.run(&["cat", "/whole"]).done().stdout == whole);
    store.kill();
    store.start_again();
    assert!(store.run(&["cat", "/whole"]).done().stdout == whole);
    assert!(
        store.run(&["cat", "/whole", "--offset", "499990", "--length", "20"]).done().stdout == whole[499_990..500_010]
    );
    store.run(&["rm", "/whole"]).done();
    assert!(store.run(&["cat", "/parts/1", "/parts/2"]).done().stdout == bytes[500_000..1_500_000]);
}

//! Bags: what is pushed is pulled once, lines stay whole, and a command that fails gives its chunk back.

use crate::store::{Store, noise};

/// Every line goes through exactly one command, whatever the number of commands at once.
#[test]
fn lines_are_counted_once() {
    let store = Store::start();
    let log: String = (0..40_000).map(|number| format!("line {number} {}\n", "x".repeat(number % 80))).collect();
    store.local("log", log.as_bytes());
    store.run(&["bag", "push", "work", "log", "--lines"]).failed(3, "--create");
    let pushed = store.run(&["bag", "push", "work", "log", "--lines", "--chunk", "64K", "--create", "--json"]).done();
    assert!(pushed.text().contains("\"chunks\":"), "{}", pushed.text());
    store.run(&["bag", "seal", "work"]).done();
    store.run_with(&["bag", "push", "work"], b"late").failed(8, "is sealed");
    let pulled = store.run(&["bag", "pull", "work", "--exec", "wc -l", "-j", "3"]).done().text();
    let lines: u64 = pulled.lines().map(|line| line.trim().parse::<u64>().unwrap()).sum();
    assert_eq!(lines, 40_000);
    let info = store.run(&["bag", "stat", "work", "--json"]).done().text();
    assert!(
        info.contains("\"waiting\":0") && info.contains("\"granted\":0") && info.contains("\"sealed\":true"),
        "{info}"
    );
}

/// Chunks come out of stdout as they went in, acknowledged; without waiting an empty bag ends at once.
#[test]
fn through_stdout() {
    let store = Store::start();
    store.run(&["bag", "create", "b"]).done();
    store.run(&["bag", "create", "b"]).failed(7, "--exists-ok");
    store.run(&["bag", "create", "b", "--exists-ok"]).done();
    store.run_with(&["bag", "push", "b", "-", "--chunk", "1000"], &[b'a'; 2500]).done();
    assert_eq!(store.run(&["bag", "pull", "b", "--no-wait"]).done().stdout, [b'a'; 2500]);
    assert_eq!(store.run(&["bag", "pull", "b", "--no-wait"]).done().stdout, b"");
    let shown = store.run(&["bag", "stat", "b"]).done().text();
    assert!(shown.contains("pushed        3 chunks") && shown.contains("acknowledged  3 chunks"), "{shown}");
    assert!(store.run(&["bag", "ls"]).done().text().ends_with("open    b\n"));
    store.run(&["bag", "rm", "b"]).done();
    store.run(&["bag", "stat", "b"]).failed(3, "bag create");
    store.run(&["bag", "pull", "b"]).failed(3, "bag create");
}

/// Chunks of a bag that compresses come out as they went in, whatever they hold, over a kill of the server; what gets smaller
/// takes less room; and what the bag is stays as it was made.
#[test]
fn compressed() {
    let mut store = Store::start();
    for how in ["lz4", "zstd"] {
        store.run(&["bag", "create", how, "--compression", how]).done();
        store.run(&["bag", "create", how, "--compression", how, "--exists-ok"]).done();
        store.run(&["bag", "create", how, "--exists-ok"]).done();
        store
            .run(&["bag", "create", how, "--compression", "none", "--exists-ok"])
            .failed(7, &format!("compression {how}"));
        let text: Vec<u8> = (0..300_000).flat_map(|number| format!("line {number}\n").into_bytes()).collect();
        let pushed = [text, noise(3_000_000, 4), vec![0; 2_000_000]];
        for bytes in &pushed {
            store.run_with(&["bag", "push", how, "-", "--create", "--chunk", "1M"], bytes).done();
        }
        store.run_with(&["bag", "push", how], b"x").done();
        store.run_with(&["bag", "push", how], b"").done();
        store.kill();
        store.start_again();
        let info = store.run(&["bag", "stat", how, "--json"]).done().text();
        let stored: u64 = info.split("\"pushed_bytes\":").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
        assert!(info.contains(&format!("\"compression\":\"{how}\"")), "{info}");
        assert!((3_000_000..5_000_000).contains(&stored), "{stored} bytes are stored");
        let pulled = store.run(&["bag", "pull", how, "--no-wait"]).done().stdout;
        // Chunks come in any order.
        let count = |bytes: &[u8]| {
            bytes.iter().fold([0_u32; 256], |mut counts, byte| {
                counts[usize::from(*byte)] += 1;
                counts
            })
        };
        let mut all = pushed.concat();
        all.push(b'x');
        assert!(pulled.len() == all.len() && count(&pulled) == count(&all), "{} bytes came out", pulled.len());
    }
    store.run(&["bag", "create", "b", "--compression", "gzip"]).failed(2, "none, lz4 and zstd");
    // The largest chunk, of bytes that do not get smaller.
    let largest = noise(16 << 20, 6);
    store.run_with(&["bag", "push", "lz4", "-", "--chunk", "16M"], &largest).done();
    assert!(store.run(&["bag", "pull", "lz4", "--no-wait"]).done().stdout == largest);
}

/// A command that fails leaves its chunk in the bag, is reported, and makes the pull end with 1.
#[test]
fn failures_give_chunks_back() {
    let store = Store::start();
    store.run_with(&["bag", "push", "b", "--create"], b"data").done();
    let failed = store
        .run(&["bag", "pull", "b", "--no-wait", "--exec", "echo $STORMWELL_CHUNK; exit 7"])
        .failed(1, "ended with 7");
    assert_eq!(failed.text().trim().len(), 32, "{}", failed.text());
    let info = store.run(&["bag", "stat", "b", "--json"]).done().text();
    assert!(info.contains("\"acknowledged\":0"), "{info}");
}

/// A line longer than the largest chunk is refused in so many words.
#[test]
fn lines_too_long() {
    let store = Store::start();
    let line = vec![b'x'; (16 << 20) + 1];
    store.run_with(&["bag", "push", "b", "--create", "--lines"], &line).failed(2, "largest chunk");
    store.run_with(&["bag", "push", "b", "--lines"], &line[1..]).done();
}

/// A bag that retains gives every chunk once in each pass, over kills of the server, until it is removed; a rewind of another
/// gives what nobody acknowledged.
#[test]
fn passes() {
    let mut store = Store::start();
    let bytes = noise(1_000_000, 9);
    store.run(&["bag", "create", "keep", "--retain"]).done();
    store.run(&["bag", "create", "keep", "--retain", "--exists-ok"]).done();
    store.run(&["bag", "create", "keep", "--exists-ok"]).failed(7, "retains its chunks");
    store.run_with(&["bag", "push", "keep", "-", "--chunk", "64K"], &bytes).done();
    store.run(&["bag", "seal", "keep"]).done();
    let count = |store: &Store| -> u64 {
        let counts = store.run(&["bag", "pull", "keep", "--exec", "wc -c", "-j", "3"]).done().text();
        counts.lines().map(|line| line.trim().parse::<u64>().unwrap()).sum()
    };
    for pass in 0..3 {
        assert_eq!(count(&store), 1_000_000, "pass {pass}");
        store.kill();
        store.start_again();
        assert_eq!(count(&store), 0, "pass {pass}: all is acknowledged");
        let info = store.run(&["bag", "stat", "keep", "--json"]).done().text();
        let expected = format!("\"pass\":{pass},");
        assert!(info.contains("\"acknowledged\":16,") && info.contains(&expected), "{info}");
        store.run(&["bag", "rewind", "keep"]).done();
        store.kill();
        store.start_again();
    }
    store.run(&["bag", "rm", "keep"]).done();
    store.run(&["bag", "rewind", "keep"]).failed(3, "bag create");
    store.run_with(&["bag", "push", "once", "-", "--create"], b"data").done();
    store.run(&["bag", "pull", "once", "--no-wait", "--exec", "exit 7"]).failed(1, "ended with 7");
    store.run(&["bag", "rewind", "once"]).done();
    assert_eq!(store.run(&["bag", "pull", "once", "--no-wait"]).done().text(), "data");
    store.run(&["bag", "rewind", "once"]).done();
    assert_eq!(store.run(&["bag", "pull", "once", "--no-wait"]).done().text(), "");
}

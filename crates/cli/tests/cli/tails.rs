//! tail: the end of a file by lines or bytes, and what is added while somebody looks.

use crate::store::{Store, noise};
use std::io::Read;
use std::process::Stdio;

/// Lines and bytes are counted from the end, across pieces and whatever ends the file.
#[test]
fn ends() {
    let store = Store::start();
    let log: String = (0..300_000).map(|number| format!("line {number}\n")).collect();
    store.run_with(&["put", "-", "/log"], log.as_bytes()).done();
    assert_eq!(store.run(&["tail", "-n", "2", "/log"]).done().text(), "line 299998\nline 299999\n");
    assert_eq!(store.run(&["tail", "/log"]).done().text().lines().count(), 10);
    let many = store.run(&["tail", "-n", "250000", "/log"]).done().text();
    assert!(many == log[log.find("line 50000\n").unwrap()..], "{} bytes", many.len());
    assert!(store.run(&["tail", "-n", "300001", "/log"]).done().text() == log);
    assert_eq!(store.run(&["tail", "-n", "0", "/log"]).done().text(), "");
    assert_eq!(store.run(&["tail", "-c", "7", "/log"]).done().text(), "299999\n");
    assert!(store.run(&["tail", "-c", "1G", "/log"]).done().text() == log);
    store.run_with(&["put", "-", "/open-ended"], b"a\n\nb").done();
    assert_eq!(store.run(&["tail", "-n", "1", "/open-ended"]).done().text(), "b");
    assert_eq!(store.run(&["tail", "-n", "2", "/open-ended"]).done().text(), "\nb");
    store.run(&["touch", "/empty"]).done();
    assert_eq!(store.run(&["tail", "/empty"]).done().text(), "");
    store.run(&["tail", "/nowhere"]).failed(3, "/nowhere");
}

/// -f goes on with what other files bring when they are joined, goes on behind a cut, and ends with the file.
#[test]
fn followed() {
    let store = Store::start();
    let bytes = noise(2_000_000, 5);
    store.run_with(&["put", "-", "/log"], b"first\n").done();
    let mut tail = store.command(&["tail", "-f", "/log"]);
    let mut tail = tail.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = tail.stdout.take().unwrap();
    let mut expect = |wanted: &[u8]| {
        let mut got = vec![0; wanted.len()];
        stdout.read_exact(&mut got).unwrap();
        assert!(got == wanted, "{} other bytes", wanted.len());
    };
    expect(b"first\n");
    store.run_with(&["put", "-", "/more"], &bytes).done();
    store.run(&["concat", "/log", "/more"]).done();
    expect(&bytes);
    store.run(&["truncate", "--size", "3", "/log"]).done();
    store.run_with(&["put", "-", "/last"], b"behind the cut").done();
    let mut stderr = std::io::BufReader::new(tail.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stderr, &mut line).unwrap();
    assert!(line.contains("was cut to 3 bytes"), "{line}");
    store.run(&["concat", "/log", "/last"]).done();
    expect(b"behind the cut");
    store.run(&["rm", "/log"]).done();
    assert_eq!(tail.wait().unwrap().code(), Some(0));
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("deleted"), "{rest}");
}

//! `top` and `doctor`: what a store and a machine tell of themselves.

use crate::store::{Store, binary, noise, run, scratch};
use serde_json::Value;
use std::io::{BufRead, BufReader, Lines};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Stdio};

fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"))).collect()
}

/// A `top` that goes on, and the lines it prints.
struct Watched {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watched {
    fn start(store: &Store) -> Watched {
        let mut command = store.command(&["top", "--interval", "100ms", "--json"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("top starts");
        let lines = BufReader::new(child.stdout.take().expect("stdout is a pipe")).lines();
        Watched { child, lines }
    }

    /// The next moment of which this is so; a bounded number of them is looked at.
    fn wait_for(&mut self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..600 {
            let line = self.lines.next().expect("top goes on").expect("a line");
            let object: Value = serde_json::from_str(&line).expect("an object");
            if holds(&object) {
                return object;
            }
        }
        panic!("never seen: {what}");
    }

    /// Ends it as Ctrl-C does.
    fn interrupt(mut self) -> Option<i32> {
        let told = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().expect("kill runs");
        assert!(told.success());
        // It may be about to write; the pipe stays open until it has ended.
        let code = self.child.wait().expect("it ends").code();
        drop(self.lines);
        code
    }
}

/// The rates that `top` shows rise with work and are zero without, a restarted server is found again, Ctrl-C ends with 0.
#[test]
fn top_sees_work() {
    let mut store = Store::start();
    let mut top = Watched::start(&store);
    let idle = top.wait_for("a ready store", |moment| moment["ready"] == true);
    assert_eq!((idle["files"].as_u64(), idle["counted"].as_bool()), (Some(0), Some(true)), "{idle}");
    assert_eq!(idle["devices"][0]["size"], 512 << 20, "{idle}");
    assert_eq!(idle["devices"][1]["directory"], "metadata", "{idle}");
    // The one session is the HDFS gateway's.
    assert!(idle["sessions"] == 1 && idle["memory"].as_u64() > Some(1 << 20), "{idle}");
    store.local("file", &noise(3_000_000, 5));
    store.run(&["put", "file", "/file"]).done();
    let kind = |moment: &Value, kind: &str| {
        let calls = moment["calls"].as_array().expect("a list").clone();
        calls.into_iter().find(|call| call["kind"] == kind)
    };
    let worked = top.wait_for("an append", |moment| kind(moment, "chunk_append").is_some());
    let append = kind(&worked, "chunk_append").expect("it was waited for");
    assert!(append["per_s"].as_f64() > Some(0.0) && append["p99_us"].as_f64() > Some(0.0), "{append}");
    store.run_with(&["bag", "push", "b", "-", "--create", "--chunk", "64K"], &noise(200_000, 9)).done();
    let filled = top.wait_for("a bag", |moment| moment["bags"][0]["waiting"] == 4);
    assert_eq!((filled["bags"][0]["bag"].as_str(), filled["files"].as_u64()), (Some("b"), Some(1)));
    top.wait_for("rest", |moment| moment["received_per_s"].as_f64() < Some(10_000.0));
    store.kill();
    store.start_again();
    let process = u64::from(store.server());
    top.wait_for("the new server", |moment| moment["process"] == process);
    assert_eq!(top.interrupt(), Some(0));
}

/// `--count` ends it, with a block for each interval where stdout is no terminal; nobody at the address ends with 5.
#[test]
fn top_counts() {
    let store = Store::start();
    let plain = store.run(&["top", "--count", "2", "--interval", "100ms"]).done().text();
    assert_eq!(plain.matches("  ready  up ").count(), 2, "{plain}");
    assert!(!plain.contains('\u{1b}') && plain.contains("sync p50/p99"), "{plain}");
    let told = store.run(&["top", "--count", "3", "--interval", "100ms", "--json"]).done().text();
    assert_eq!(objects(&told).len(), 3, "{told}");
    let mut command = binary();
    command.args(["top", "--at", "127.0.0.1:1", "--count", "1"]);
    run(command, b"").failed(5, "127.0.0.1:1");
}

/// The checks of this name.
fn named<'a>(checks: &'a [Value], name: &str) -> Vec<&'a Value> {
    checks.iter().filter(|check| check["check"] == name).collect()
}

/// `doctor` looks at the machine, at a device that is in use, and at the store on it, and leaves nothing behind; its exit
/// code says whether anything is in trouble.
#[test]
fn doctor_looks() {
    let store = Store::start();
    let data = store.directory.join("data");
    let listed = || {
        let names = std::fs::read_dir(&data).expect("the device").map(|entry| entry.expect("an entry").file_name());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    let before = listed();
    let ended = store.run(&["doctor", "--data", "data", "--data", "not/yet", "--json"]);
    assert_eq!(listed(), before);
    assert!(!store.directory.join("not").exists(), "it made a directory");
    let checks = objects(&ended.text());
    let troubles = checks.iter().filter(|check| check["state"] == "trouble").count();
    assert_eq!(ended.code, i32::from(troubles > 0), "{checks:?}");
    for name in ["open files", "locked memory", "huge pages", "io_uring", "memory", "clock", "monotonic", "store"] {
        assert_eq!(named(&checks, name).len(), 1, "{name}: {checks:?}");
    }
    for name in ["directory", "file system", "free space", "O_DIRECT", "preallocation", "hole punching", "syncs"] {
        assert_eq!(named(&checks, name).len(), 2, "{name}: {checks:?}");
    }
    let held = named(&checks, "directory")[0]["seen"].as_str().expect("text").to_string();
    assert!(held.contains(&format!("process {}", store.server())), "{held}");
    let console = named(&checks, "store")[0]["seen"].as_str().expect("text").to_string();
    assert!(console.starts_with("ready") && console.contains(&store.console), "{console}");
    for check in &checks {
        let (means, remedy) = (check["means"].as_str().expect("text"), check["do"].as_str().expect("text"));
        assert!(check["state"] == "ok" || !means.is_empty() && !remedy.is_empty(), "{check} does not say what to do");
    }
    let plain = store.run(&["doctor", "--data", "data"]);
    assert!(plain.text().contains("hole punching") && plain.stderr.contains("looked at"), "{}", plain.text());
}

/// What cannot be a device, and a port that somebody else has, are trouble that is named; a free port is none.
#[test]
fn doctor_finds_trouble() {
    let directory = scratch("doctor");
    std::fs::write(directory.path().join("file"), b"x").expect("a file");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("its address").to_string();
    // Whoever comes is sent away.
    std::thread::spawn(move || taken.incoming().for_each(drop));
    let doctor = |words: &[&str]| {
        let mut command = binary();
        command.args(["doctor", "--json"]).args(words).current_dir(directory.path());
        let ended = run(command, b"");
        (ended.code, objects(&ended.text()))
    };
    let (code, checks) = doctor(&["--data", "file", "--data", "file/below", "--data", "/proc", "--at", &port]);
    assert_eq!(code, 1);
    assert!(
        named(&checks, "directory")[0]["seen"].as_str().is_some_and(|seen| seen.contains("is a file")),
        "{checks:?}"
    );
    let of = |subject: &str| checks.iter().any(|check| check["subject"] == subject && check["state"] == "trouble");
    for subject in ["file", "file/below", "/proc", &port] {
        assert!(of(subject), "{subject} is in trouble: {checks:?}");
    }
    let who = named(&checks, "store")[0]["seen"].as_str().expect("text").to_string();
    assert!(who.contains(&format!("process {}", std::process::id())), "{who}");
    let free = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a free port").to_string();
    let (_, checks) = doctor(&["--data", ".", "--at", &free]);
    assert_eq!(named(&checks, "store")[0]["state"], "ok", "{checks:?}");
    let (_, checks) = doctor(&["--data", ".", "--at", "nonsense"]);
    assert_eq!(named(&checks, "store")[0]["state"], "trouble", "{checks:?}");
}

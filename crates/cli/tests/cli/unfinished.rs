//! What a put leaves that does not come to its end: the old file, or nothing, and no half file under any name.

use crate::store::{Ended, Store, binary, noise, run, scratch, soon, started};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

/// A put from stdin that has begun and waits for more.
struct Begun(Child);

impl Begun {
    /// Begins it and sends the first bytes.
    fn start(store: &Store, words: &[&str], first: &[u8]) -> Begun {
        let mut command = store.command(&[&["put", "-"], words].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("put starts");
        child.stdin.as_mut().expect("stdin is a pipe").write_all(first).expect("it reads");
        Begun(child)
    }

    /// Lets it come to its end.
    fn end(mut self) -> Ended {
        drop(self.0.stdin.take());
        self.ended()
    }

    /// Tells it to end while it waits for more.
    fn interrupt(mut self) -> Ended {
        let told = Command::new("kill").args(["-INT", &self.0.id().to_string()]).status().expect("kill runs");
        assert!(told.success());
        self.ended()
    }

    fn ended(&mut self) -> Ended {
        let mut stderr = String::new();
        self.0.stderr.take().expect("stderr is a pipe").read_to_string(&mut stderr).expect("text");
        let code = self.0.wait().expect("it ends").code().unwrap_or(-1);
        Ended { code, stdout: Vec::new(), stderr }
    }
}

fn names(store: &Store) -> Vec<String> {
    store.run(&["ls", "/"]).done().text().lines().map(str::to_string).collect()
}

/// Waits until so many temporary names are there, which are all that is there besides `others`.
fn wait_for_temporaries(store: &Store, count: usize, others: &[&str]) {
    let mut seen = Vec::new();
    for _ in 0..2000 {
        seen = names(store);
        let temporary = |name: &String| name.len() == 31 && name.starts_with(".stormwell-put-");
        if seen.iter().filter(|name| temporary(name)).count() == count && seen.len() == count + others.len() {
            assert!(others.iter().all(|name| seen.iter().any(|seen| seen == name)), "{seen:?}");
            return;
        }
    }
    panic!("there are {seen:?}, not {count} temporary names besides {others:?}");
}

/// A file has its name when it is whole: while it is written the name stands for the old one, or for nothing, and so it stays when the
/// put is interrupted, of which nothing is left.
#[test]
fn interrupted() {
    let store = Store::start();
    let (old, new) = (noise(2_000_000, 1), noise(3_000_000, 2));
    store.run_with(&["put", "-", "/old"], &old).done();
    let puts = [Begun::start(&store, &["/old", "--overwrite"], &new), Begun::start(&store, &["/new"], &new)];
    wait_for_temporaries(&store, 2, &["old"]);
    assert!(store.run(&["cat", "/old"]).done().stdout == old, "the old file is not there while the new one is written");
    store.run(&["stat", "/new"]).failed(3, "/new");
    for put in puts {
        let ended = put.interrupt().failed(1, "SIGINT");
        assert!(ended.stderr.contains("are as they were"), "{}", ended.stderr);
    }
    assert_eq!(names(&store), ["old"]);
    assert!(store.run(&["cat", "/old"]).done().stdout == old, "the old file has changed");
    // And when it is not interrupted, the new one is there.
    let put = Begun::start(&store, &["/old", "--overwrite"], &new[..1_000_000]);
    wait_for_temporaries(&store, 1, &["old"]);
    let mut put = put;
    put.0.stdin.as_mut().expect("stdin is a pipe").write_all(&new[1_000_000..]).expect("it reads");
    put.end().done();
    assert_eq!(names(&store), ["old"]);
    assert!(store.run(&["cat", "/old"]).done().stdout == new);
}

/// A directory that is moved while a file is put into it takes the file with it, as it does with a file that is open: it has its name there
/// when it is whole, and nothing is left of one that is interrupted.
#[test]
fn the_directory_is_moved() {
    let store = Store::start();
    let bytes = noise(3_000_000, 4);
    let begun = |store: &Store, directory: &str| {
        assert!(soon(|| store.run(&["ls", directory]).done().text().contains(".stormwell-put-")), "it does not begin");
    };
    store.run(&["mkdir", "/a"]).done();
    let put = Begun::start(&store, &["/a/f"], &bytes);
    begun(&store, "/a");
    store.run(&["mv", "/a", "/b"]).done();
    put.end().done();
    assert_eq!(store.run(&["ls", "/b"]).done().text(), "f\n");
    assert!(store.run(&["cat", "/b/f"]).done().stdout == bytes);
    let put = Begun::start(&store, &["/b/g"], &bytes);
    begun(&store, "/b");
    store.run(&["mv", "/b", "/c"]).done();
    put.interrupt().failed(1, "SIGINT");
    assert_eq!(store.run(&["ls", "/c"]).done().text(), "f\n");
}

/// Of two puts of one name that does not exist the first to be whole has it, and the other one is refused.
#[test]
fn two_of_one_name() {
    let store = Store::start();
    let (one, other) = (Begun::start(&store, &["/same"], b"one"), Begun::start(&store, &["/same"], b"other"));
    wait_for_temporaries(&store, 2, &[]);
    other.end().done();
    one.end().failed(7, "/same exists already");
    assert_eq!(names(&store), ["same"]);
    assert_eq!(store.run(&["cat", "/same"]).done().text(), "other");
    // Whether a name is free is looked at before anything is sent.
    let mut late = Begun::start(&store, &["/same"], b"");
    late.ended().failed(7, "--overwrite");
    store.run(&["mkdir", "-p", "/tree/large"]).done();
    store.local("large", &noise(2_000_000, 3));
    store.run(&["put", "large", "/tree", "--overwrite"]).failed(7, "/tree/large is a directory");
    assert_eq!(store.run(&["ls", "/tree"]).done().text(), "large\n");
}

/// In a full store a file that does not fit leaves nothing, and one that it was to replace stays; the error says so.
#[test]
fn full() {
    let store = Store::with_capacity("160M");
    let part = noise(4 << 20, 3);
    store.local("part", &part);
    let mut kept = Vec::new();
    let refused = loop {
        let ended = store.run(&["put", "part", &format!("/{:02}", kept.len())]);
        if ended.code != 0 {
            break ended.failed(4, "no file was put").stderr;
        }
        kept.push(format!("{:02}", kept.len()));
        assert!(kept.len() < 40, "160 MiB took {} files of 4 MiB", kept.len());
    };
    assert!(refused.contains("none of the others has its name") && refused.contains("hint: make room"), "{refused}");
    assert_eq!(names(&store), kept);
    // There is room to begin, and not to end.
    for name in kept.split_off(kept.len() - 3) {
        store.run(&["rm", &format!("/{name}")]).done();
    }
    store.local("larger", &noise(24 << 20, 4));
    store.run(&["put", "larger", "/00", "--overwrite"]).failed(4, "as they were");
    assert_eq!(names(&store), kept);
    assert!(store.run(&["cat", "/00"]).done().stdout == part, "the old file has changed");
}

/// Small files that go to a tier of their own, which has no room for all, are there whole or not at all, old or new; and who puts them
/// into memory is told that.
#[test]
fn full_memory() {
    const SIZE: usize = 900_000;
    let scratch = scratch("full-memory");
    let directory = scratch.path();
    let mut command = binary();
    command.args(["serve", "--at", "127.0.0.1:0", "--data", "data:ssd:512M", "--data", "fast:memory:64M"]);
    command.current_dir(directory);
    let server = started(command);
    let ask = |words: &[&str]| -> Ended {
        let mut command = binary();
        command.args(words).env("STORMWELL_AT", &server.address).current_dir(directory);
        run(command, b"")
    };
    ask(&["mkdir", "/m"]).done();
    ask(&["policy", "set", "/m", "--tier", "memory"]).done();
    let fill = |seed: u64, files: u64| {
        std::fs::create_dir_all(directory.join("tree")).expect("a directory");
        for number in 0..files {
            let bytes = noise(SIZE, seed + number);
            std::fs::write(directory.join(format!("tree/{number}")), bytes).expect("a file");
        }
    };
    fill(1, 20);
    let said = ask(&["put", "tree", "/m"]).done().stderr;
    assert!(said.contains("wishes for memory"), "{said}");
    fill(1000, 70);
    ask(&["put", "tree", "/m", "--overwrite"]).failed(4, "none of the others has its name");
    ask(&["get", "/m/tree", "back"]).done();
    let mut whole = BTreeMap::new();
    for entry in std::fs::read_dir(directory.join("back")).expect("what is there") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let number: u64 = name.parse().unwrap_or_else(|_| panic!("{name} is left"));
        let bytes = std::fs::read(&path).expect("a file");
        let (old, new) = (number < 20 && bytes == noise(SIZE, 1 + number), bytes == noise(SIZE, 1000 + number));
        assert!(old || new, "{number} has {} bytes and is neither the old file nor the new one", bytes.len());
        whole.insert(number, new);
    }
    assert!((0..20).all(|number| whole.contains_key(&number)), "old files are gone: {whole:?}");
    assert!(whole.values().any(|new| *new), "not one was put: {whole:?}");
}

//! Three processes that keep one store's metadata together, as docs/operate/keepers.md has it: whichever is killed, the others go on, and nothing
//! that was acknowledged is lost; a directory that was wiped keeps nothing.

use crate::store::{Ended, binary, noise, run, scratch, soon, started, tree};
use harness::child::Server;
use harness::scratch::Scratch;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Three nodes that keep the metadata, and each a process of its own.
struct Keepers {
    directory: PathBuf,
    addresses: Vec<String>,
    nodes: [Option<Server>; 3],
    /// After the nodes, which use it.
    _scratch: Scratch,
}

impl Keepers {
    /// No node runs yet.
    fn new() -> Keepers {
        let scratch = scratch("keepers");
        let directory = scratch.path().to_path_buf();
        let addresses = sim::ports::free(NAMES.len());
        let keepers = Keepers { directory, addresses, nodes: [None, None, None], _scratch: scratch };
        keepers.run(&["init", "c.toml", "--keepers", &keepers.addresses.join(",")]).done();
        keepers
    }

    /// All of them run and lead or follow.
    fn start() -> Keepers {
        let mut keepers = Keepers::new();
        // None is waited for: each waits for the others.
        (0..3).for_each(|number| keepers.serve(number));
        keepers.until_served(3);
        keepers
    }

    fn serve(&mut self, number: usize) {
        let (name, place) = (NAMES[number], self.directory.join(NAMES[number]));
        std::fs::create_dir_all(&place).expect("a directory");
        let mut command = binary();
        command.args(["serve", "--config", "../c.toml", "--console", "off", "--hdfs", "off", "--name", name]);
        command.args(["--listen", &self.addresses[number], "--data", "disk:ssd:512M"]).current_dir(place);
        self.nodes[number] = Some(started(command));
    }

    /// Ends a node as `kill -9` does.
    fn kill(&mut self, number: usize) {
        drop(self.nodes[number].take().expect("it runs"));
    }

    /// Runs a command with the configuration, which names all of them.
    fn run(&self, words: &[&str]) -> Ended {
        run(self.command(words), b"")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = binary();
        command.args(words).args(["--config", "c.toml"]).current_dir(&self.directory);
        command
    }

    /// The states of all nodes, in the order of their names; none: nobody says.
    fn states(&self) -> Option<Vec<String>> {
        let listed = self.run(&["node", "ls", "--json"]);
        let row = |line: &str| {
            let row: serde_json::Value = serde_json::from_str(line).expect("an object");
            row["state"].as_str().expect("a word").to_string()
        };
        (listed.code == 0).then(|| listed.text().lines().map(row).collect())
    }

    fn until_served(&self, count: usize) {
        let are_there = || {
            let states = self.states().unwrap_or_default();
            let is = |word: &str| states.iter().filter(|state| *state == word).count();
            states.len() == 3 && is("leader") == 1 && is("keeper") == count - 1
        };
        assert!(soon(are_there), "the nodes are {:?}", self.states());
    }

    /// Which one leads.
    fn leader(&self) -> usize {
        let leads = || self.states().is_some_and(|states| states.iter().any(|state| state == "leader"));
        assert!(soon(leads), "nobody leads");
        let states = self.states().expect("they were just said");
        states.iter().position(|state| state == "leader").expect("it was just there")
    }

    fn compare(&self) {
        let copy = self.directory.join("copy");
        self.run(&["get", "/tree", copy.to_str().expect("text")]).done();
        let contents = |top| -> BTreeMap<PathBuf, Vec<u8>> {
            tree(top).into_iter().map(|(name, (bytes, ..))| (name, bytes)).collect()
        };
        assert!(contents(&copy) == contents(&self.directory.join("tree")), "the tree has changed");
        std::fs::remove_dir_all(copy).expect("it is ours");
    }
}

/// Whoever leads is killed again and again while directories are made: each that was acknowledged is there, and the commands did not notice. All that
/// was stored comes back with the last one.
#[test]
fn whoever_leads_is_killed() {
    let mut keepers = Keepers::start();
    for number in 0..24 {
        let path = keepers.directory.join(format!("tree/d{}/f{number}", number % 5));
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        let length = if number % 2 == 0 { 1_200_000 } else { 331 * number as usize };
        std::fs::write(path, noise(length, number + 1)).expect("a file");
    }
    keepers.run(&["put", "tree", "/tree"]).done();
    for turn in 0..3 {
        let leader = keepers.leader();
        keepers.kill(leader);
        for number in 0..20 {
            keepers.run(&["mkdir", &format!("/made-{turn}-{number}")]).done();
        }
        let status = keepers.run(&["cluster", "status"]).done().text();
        assert!(status.contains("keep the metadata"), "{status}");
        keepers.serve(leader);
        keepers.until_served(3);
    }
    let listed = keepers.run(&["ls", "/"]).done().text();
    assert_eq!(listed.lines().filter(|line| line.contains("made-")).count(), 60, "{listed}");
    keepers.compare();
}

/// A keeper whose metadata are gone serves its disk and keeps nothing, and says so; the two others go on. With one of them gone, too, nothing is
/// acknowledged, and nothing lost.
#[test]
fn a_wiped_keeper_keeps_nothing() {
    let mut keepers = Keepers::start();
    keepers.run(&["mkdir", "/before"]).done();
    let leader = keepers.leader();
    let (wiped, other) = ((leader + 1) % 3, (leader + 2) % 3);
    keepers.kill(wiped);
    std::fs::remove_dir_all(keepers.directory.join(NAMES[wiped]).join("disk/meta")).expect("it was there");
    keepers.serve(wiped);
    keepers.until_served(3);
    let health = keepers.run(&["doctor", "--at", &keepers.addresses[wiped]]).text();
    assert!(health.contains("is not one of"), "{health}");
    let name = format!("node {} keeps no metadata now", NAMES[wiped]);
    let is_named = || {
        let status = keepers.run(&["cluster", "status"]).text();
        status.contains(&name) && status.contains("names stand still if one more goes away")
    };
    assert!(soon(is_named), "{}", keepers.run(&["cluster", "status"]).text());
    keepers.kill(other);
    // Two of three would be a majority, if the wiped one voted.
    let asked = keepers.run(&["mkdir", "/meanwhile"]);
    assert!(asked.code != 0, "one of three keepers acknowledged a change");
    keepers.serve(other);
    keepers.until_served(3);
    keepers.run(&["mkdir", "/after"]).done();
    let listed = keepers.run(&["ls", "/"]).done().text();
    assert!(listed.contains("before") && listed.contains("after"), "{listed}");
}

//! Several processes as one store, as docs/operate/cluster.md has it: a tree and a bag through every node, a node killed and started
//! again, one added, one emptied and taken out, and no byte lost.

use crate::store::{Ended, binary, noise, run, scratch, soon, started, tree};
use harness::child::Server;
use harness::scratch::Scratch;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// The nodes of a cluster, by their names, and the commands that are run against them.
pub struct Cluster {
    pub directory: PathBuf,
    /// Of each device.
    capacity: &'static str,
    /// Where each is reached, and its process while it runs.
    nodes: BTreeMap<&'static str, (String, Option<Server>)>,
    /// After the nodes, which use it.
    _scratch: Scratch,
}

impl Cluster {
    /// A new cluster in a directory of its own, of no nodes yet; the one that is called `a` keeps the metadata.
    pub fn new() -> Cluster {
        let scratch = scratch("cluster");
        let directory = scratch.path().to_path_buf();
        let cluster = Cluster { directory, capacity: "512M", nodes: BTreeMap::new(), _scratch: scratch };
        cluster.command("", &["init", "c.toml"]).done();
        cluster
    }

    /// Starts a node with one device, or starts it again where it was.
    pub fn serve(&mut self, name: &'static str) {
        self.serve_with(name, &["disk"]);
    }

    /// The same with these devices. Each node stands in a directory of its own, so that all of them can have the same ones.
    pub fn serve_with(&mut self, name: &'static str, devices: &[&str]) {
        let listen = self.nodes.get(name).map_or("127.0.0.1:0".to_string(), |(address, _)| address.clone());
        let meta = match self.nodes.get("a") {
            Some((keeper, _)) if name != "a" => format!("node://{keeper}"),
            _ => "local".to_string(),
        };
        let mut command = binary();
        command.args(["serve", "--config", "../c.toml", "--console", "off", "--hdfs", "off", "--name", name]);
        command.args(["--listen", &listen, "--meta", &meta]);
        let device = |place: &&str| ["--data".to_string(), format!("{place}:ssd:{}", self.capacity)];
        command.args(devices.iter().flat_map(device));
        let place = self.directory.join(name);
        std::fs::create_dir_all(&place).expect("a directory");
        command.current_dir(place);
        let server = started(command);
        self.nodes.insert(name, (server.address.clone(), Some(server)));
    }

    /// Ends a node as `kill -9` does.
    pub fn kill(&mut self, name: &str) {
        let (_, server) = self.nodes.get_mut(name).expect("a node");
        drop(server.take().expect("it runs"));
    }

    /// Runs a command against this node, in the cluster's directory.
    pub fn command(&self, at: &str, words: &[&str]) -> Ended {
        run(self.prepared(at, words), b"")
    }

    /// The same, to be started.
    pub fn prepared(&self, at: &str, words: &[&str]) -> Command {
        let mut command = binary();
        command.args(words).args(["--config", "c.toml"]).current_dir(&self.directory);
        if let Some((address, _)) = self.nodes.get(at) {
            command.args(["--at", address]);
        }
        command
    }

    /// Waits until the nodes are in these states, as `node ls` has it.
    pub fn until(&self, wanted: &[(&str, &str)]) {
        let mut states = Vec::new();
        // Each question takes some milliseconds; a node reports every second and is silent after five.
        for _ in 0..5000 {
            let listed = self.command("a", &["node", "ls", "--json"]);
            let rows: Vec<serde_json::Value> =
                listed.done().text().lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
            let word = |row: &serde_json::Value, key: &str| row[key].as_str().expect("a word").to_string();
            states = rows.iter().map(|row| (word(row, "name"), word(row, "state"))).collect();
            if states.iter().map(|(name, state)| (name.as_str(), state.as_str())).eq(wanted.iter().copied()) {
                return;
            }
        }
        panic!("the nodes are {states:?}, not {wanted:?}");
    }

    /// Reads the tree through this node and compares it.
    fn compare(&self, at: &str) {
        let copy = self.directory.join(format!("copy-{at}"));
        self.command(at, &["get", "/tree", copy.to_str().expect("text")]).done();
        let contents = |top| -> BTreeMap<PathBuf, Vec<u8>> {
            tree(top).into_iter().map(|(name, (bytes, ..))| (name, bytes)).collect()
        };
        assert!(contents(&copy) == contents(&self.directory.join("tree")), "the tree has changed");
        std::fs::remove_dir_all(copy).expect("it is ours");
    }
}

/// Three nodes are one store: what one takes the others give. A node that is killed is missed and comes back with all it had; one
/// joins, one is emptied and removed, and every byte and every line of a bag is there.
#[test]
fn three_machines_one_store() {
    let mut cluster = Cluster::new();
    cluster.serve("a");
    cluster.serve("b");
    cluster.serve("c");
    cluster.until(&[("a", "keeper"), ("b", "serving"), ("c", "serving")]);
    for number in 0..24 {
        let path = cluster.directory.join(format!("tree/d{}/f{number}", number % 5));
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        let length = if number % 2 == 0 { 1_200_000 } else { 331 * number as usize };
        std::fs::write(path, noise(length, number + 1)).expect("a file");
    }
    cluster.command("b", &["put", "tree", "/tree"]).done();
    cluster.compare("c");
    let lines: Vec<String> = (0..20_000).map(|number| number.to_string()).collect();
    std::fs::write(cluster.directory.join("lines"), lines.join("\n") + "\n").expect("a file");
    cluster.command("c", &["bag", "push", "bag", "lines", "--create", "--lines", "--chunk", "4K"]).done();

    cluster.kill("c");
    cluster.until(&[("a", "keeper"), ("b", "serving"), ("c", "silent")]);
    std::fs::write(cluster.directory.join("tree/late"), noise(2_000_000, 99)).expect("a file");
    cluster.command("b", &["put", "tree/late", "/tree/late"]).done();
    let status = cluster.command("b", &["cluster", "status"]).text();
    assert!(status.contains("node c") && status.contains("is silent"), "{status}");
    cluster.serve("c");
    cluster.until(&[("a", "keeper"), ("b", "serving"), ("c", "serving")]);
    cluster.compare("b");
    cluster.command("a", &["bag", "seal", "bag"]).done();
    let mut pulled: Vec<String> =
        cluster.command("b", &["bag", "pull", "bag"]).done().text().lines().map(str::to_string).collect();
    pulled.sort_by_key(|line| line.parse::<u64>().expect("a number"));
    assert!(pulled == lines, "{} lines came of {}", pulled.len(), lines.len());

    cluster.serve("d");
    cluster.until(&[("a", "keeper"), ("b", "serving"), ("c", "serving"), ("d", "serving")]);
    cluster.command("c", &["node", "drain", "b"]).done();
    cluster.until(&[("a", "keeper"), ("b", "no devices"), ("c", "serving"), ("d", "serving")]);
    cluster.kill("b");
    cluster.command("c", &["node", "rm", "b"]).done();
    cluster.until(&[("a", "keeper"), ("c", "serving"), ("d", "serving")]);
    cluster.compare("d");
    cluster.command("c", &["node", "rm", "a"]).failed(2, "keeps the metadata");
    // The node that keeps the metadata, too, comes back as it was.
    cluster.kill("a");
    cluster.serve("a");
    cluster.until(&[("a", "keeper"), ("c", "serving"), ("d", "serving")]);
    cluster.compare("c");
}

/// A full cluster says so, gives every byte that it took, and lists and deletes; what is deleted makes room on all nodes, without anybody's
/// help.
#[test]
fn a_full_cluster() {
    const PART: usize = 8 << 20;
    let mut cluster = Cluster::new();
    cluster.capacity = "160M";
    cluster.serve("a");
    cluster.serve("b");
    cluster.serve("c");
    cluster.until(&[("a", "keeper"), ("b", "serving"), ("c", "serving")]);
    let put = |number: usize| {
        std::fs::write(cluster.directory.join("part"), noise(PART, number as u64 + 1)).expect("a file");
        cluster.command(["a", "b", "c"][number % 3], &["put", "part", &format!("/{number}")])
    };
    let same = |number: usize| {
        let read = cluster.command(["b", "c", "a"][number % 3], &["cat", &format!("/{number}")]);
        assert!(read.done().stdout == noise(PART, number as u64 + 1), "file {number} has changed");
    };
    let (count, full) = (0..60)
        .map(|number| (number, put(number)))
        .find(|(_, ended)| ended.code != 0)
        .expect("480 MiB do not take 60 files of 8 MiB");
    full.failed(4, "is full");
    assert!(count >= 30, "480 MiB took {count} files of 8 MiB");
    (0..count).for_each(same);
    cluster.command("b", &["ls", "/"]).done();
    (0..count).for_each(|number| drop(cluster.command("c", &["rm", &format!("/{number}")]).done()));
    let roomy = || {
        let listed = cluster.command("b", &["device", "ls", "--json"]).done().text();
        let used = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("an object")["used"].as_u64();
        listed.lines().map(used).all(|used| used.expect("a number") < 64 << 20)
    };
    // Each question takes some milliseconds; devices report every second, and free segments when these have rested for some.
    assert!(soon(roomy), "no room came back");
    (0..9).for_each(|number| drop(put(number).done()));
    (0..9).for_each(same);
}

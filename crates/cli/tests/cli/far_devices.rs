//! Devices of several nodes, all of which have the same directories, as the manual has it.

use crate::cluster::Cluster;
use crate::store::{noise, rot, soon};
use serde_json::Value;
use std::ops::Range;

/// Two nodes with these devices each; `a` keeps the metadata.
fn two_nodes(devices: &[&str]) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.serve_with("a", devices);
    cluster.serve_with("b", devices);
    cluster.until(&[("a", "keeper"), ("b", "serving")]);
    cluster
}

/// What `device ls --json` says through this node.
fn devices(cluster: &Cluster, at: &str) -> Vec<Value> {
    let listed = cluster.command(at, &["device", "ls", "--json"]).done().text();
    listed.lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
}

fn places(cluster: &Cluster) -> Vec<String> {
    let mut places: Vec<String> = devices(cluster, "b")
        .iter()
        .map(|device| device["directory"].as_str().expect("a directory").to_string())
        .collect();
    places.sort();
    places
}

/// A directory alone means no device where several nodes may have one of that name: nothing is emptied, and the error names those
/// that may be meant. With the node's name that node's device goes, and the others stay; the same words again find nothing.
#[test]
fn the_directory_of_which_node() {
    let cluster = two_nodes(&["disk1", "disk2"]);
    let all = ["a:disk1", "a:disk2", "b:disk1", "b:disk2"];
    assert_eq!(places(&cluster), all);
    for words in [["device", "rm", "disk2"], ["device", "scrub", "disk2"]] {
        cluster.command("b", &words).failed(2, "a:disk2 or b:disk2");
    }
    assert_eq!(places(&cluster), all);
    let leaving = devices(&cluster, "b").into_iter().find(|device| device["directory"] == "b:disk2");
    let id = leaving.expect("it is listed")["device"].as_str().expect("an id").to_string();
    let said = cluster.command("b", &["device", "rm", "b:disk2"]).done().text();
    assert!(said.contains("b:disk2 is empty and removed"), "{said}");
    assert_eq!(places(&cluster), ["a:disk1", "a:disk2", "b:disk1"]);
    cluster.command("b", &["device", "rm", "b:disk2"]).failed(3, "no device 'b:disk2'");
    let said = cluster.command("b", &["device", "rm", &id]).done().text();
    assert!(said.contains("removed already; its directory may be deleted"), "{said}");
    let other = format!("{}{}", &id[..31], if id.ends_with('0') { '1' } else { '0' });
    cluster.command("b", &["device", "rm", &other]).failed(3, "no device");
    cluster.command("b", &["device", "rm", "disk2"]).failed(2, "a:disk2");
    assert_eq!(places(&cluster), ["a:disk1", "a:disk2", "b:disk1"]);
}

/// Files that do not share a chunk.
const LARGE: usize = 1_200_000;

/// Puts large files of these numbers, `/f0` and on. Those that lie on node `b`.
fn put_files(cluster: &Cluster, files: Range<u64>) -> Vec<u64> {
    let mut there = Vec::new();
    for number in files {
        let (name, path) = (format!("f{number}"), format!("/f{number}"));
        std::fs::write(cluster.directory.join(&name), noise(LARGE, number + 1)).expect("a file");
        cluster.command("a", &["put", &name, &path]).done();
        let explained = cluster.command("a", &["explain", &path, "--json"]).done().text();
        there.extend(explained.contains("\"place\":\"b:").then_some(number));
    }
    there
}

/// A device of another node than the one that keeps the metadata is scrubbed from anywhere: the command waits for this scrub, not
/// for one before, says how much was read, and names the file whose bytes rotted and no other.
#[test]
fn scrub_on_another_node() {
    let mut cluster = two_nodes(&["disk"]);
    let there = put_files(&cluster, 0..12);
    let scrubbed = |cluster: &Cluster, at: &str| -> Vec<Value> {
        let ended = cluster.command(at, &["device", "scrub", "b:disk", "--json", "--rate", "4G"]);
        assert!(ended.code <= 1, "{}", ended.stderr);
        ended.text().lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
    };
    for at in ["a", "b"] {
        let sound = scrubbed(&cluster, at);
        let [summary] = &sound[..] else { panic!("{sound:?}") };
        let bytes = summary["bytes"].as_u64().expect("a number");
        assert!(bytes >= there.len() as u64 * LARGE as u64 && summary["damaged_ranges"] == 0, "{summary}");
    }
    // What came since then is read, too.
    let more = there.len() + put_files(&cluster, 12..24).len();
    let sound = scrubbed(&cluster, "a");
    assert!(sound[0]["bytes"].as_u64().expect("a number") >= more as u64 * LARGE as u64, "{sound:?}");
    let text = cluster.command("a", &["device", "scrub", "all"]).done().text();
    assert!(text.contains("a:disk: scrubbed ") && text.contains("b:disk: scrubbed "), "{text}");
    cluster.kill("b");
    let rotten = there[0];
    assert_eq!(rot(&cluster.directory.join("b/disk"), &noise(LARGE, rotten + 1)[600_000..600_032]), 1);
    cluster.serve("b");
    cluster.until(&[("a", "keeper"), ("b", "serving")]);
    let found = scrubbed(&cluster, "a");
    let [range, summary] = &found[..] else { panic!("{found:?}") };
    assert_eq!((&range["path"], &summary["damaged_ranges"]), (&format!("/f{rotten}").into(), &1.into()), "{found:?}");
    let (start, end) = (range["start"].as_u64().expect("a number"), range["end"].as_u64().expect("a number"));
    assert!(start <= 600_000 && 600_000 < end && end - start <= 8192, "{range}");
}

/// A disk of a node that is missing keeps the node's drain from its end, and the drain says so; when the disk is back, it ends by
/// itself with everything moved.
#[test]
fn drain_with_a_missing_disk() {
    let mut cluster = two_nodes(&["disk1", "disk2"]);
    let there = put_files(&cluster, 0..12);
    let (place, away) = (cluster.directory.join("b/disk2"), cluster.directory.join("b/away"));
    cluster.kill("b");
    std::fs::rename(&place, &away).expect("the disk is unplugged");
    cluster.serve_with("b", &["disk1", "disk2"]);
    cluster.until(&[("a", "keeper"), ("b", "serving")]);
    let mut following = cluster.prepared("a", &["node", "drain", "b"]).spawn().expect("the command");
    let missing = |device: &Value| device["directory"] == "b:disk2" && device["state"] == "missing";
    let waits = |device: &Value| {
        device["drain"]["waits"].as_str().is_some_and(|waits| waits.contains("b:disk2, which is missing"))
    };
    let says = soon(|| devices(&cluster, "a").iter().any(|device| missing(device) && waits(device)));
    assert!(says, "it does not say what it waits for: {:?}", devices(&cluster, "a"));
    let nodes = cluster.command("b", &["node", "ls"]).done().text();
    assert!(nodes.contains(" % emptied: ") && nodes.contains("waits for b:disk2, which is missing"), "{nodes}");
    let status = cluster.command("b", &["cluster", "status"]).done().text();
    assert!(status.contains("waits for b:disk2, which is missing"), "{status}");
    cluster.kill("b");
    std::fs::rename(&away, &place).expect("the disk is back");
    cluster.serve_with("b", &["disk1", "disk2"]);
    assert!(following.wait().expect("it ends").success());
    assert_eq!(places(&cluster), ["a:disk1", "a:disk2"]);
    for number in there {
        let read = cluster.command("b", &["cat", &format!("/f{number}")]).done().stdout;
        assert!(read == noise(LARGE, number + 1), "file {number} has changed");
    }
}

/// A tree of which a node that does not answer has a part comes without that part: each file that is left out is named, all others are
/// there, and the exit code says so.
#[test]
fn a_part_is_left_out() {
    let mut cluster = two_nodes(&["disk"]);
    let tree = cluster.directory.join("tree");
    std::fs::create_dir_all(&tree).expect("a directory");
    let name = |number: u64| format!("f{number:02}");
    for number in 0..70 {
        std::fs::write(tree.join(name(number)), noise(LARGE, number + 1)).expect("a file");
    }
    cluster.command("a", &["put", "tree", "/tree"]).done();
    let on_b = |number: &u64| {
        let path = format!("/tree/{}", name(*number));
        cluster.command("a", &["explain", &path, "--json"]).done().text().contains("\"place\":\"b:")
    };
    let there: Vec<u64> = (0..70).filter(on_b).collect();
    // More than are complained about of anything else.
    assert!((21..70).contains(&there.len()), "{there:?} are on b");
    cluster.kill("b");
    let ended = cluster.command("a", &["get", "/tree", "back"]).failed(1, "node b");
    for number in 0..70 {
        let (path, back) = (format!("/tree/{}", name(number)), cluster.directory.join("back").join(name(number)));
        let named = ended.stderr.lines().filter(|line| line.contains(&format!("left out {path}: "))).count();
        let left_out = there.contains(&number);
        assert_eq!(named, usize::from(left_out), "{path}: {}", ended.stderr);
        match std::fs::read(back) {
            Ok(bytes) => assert!(!left_out && bytes == noise(LARGE, number + 1), "{path} has changed"),
            Err(_) => assert!(left_out, "{path} is not there and was not named"),
        }
    }
    // Whose node answers nothing is not asked for again, and whatever is asked for is left out with its name.
    let one = format!("/tree/{}", name(there[0]));
    cluster.command("a", &["get", &one, "one"]).failed(5, &format!("left out {one}"));
}

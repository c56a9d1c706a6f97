//! Devices of several nodes, all of which have the same directories, as the manual has it.

use crate::cluster::Cluster;
use serde_json::Value;

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
    let said = cluster.command("b", &["device", "rm", "b:disk2"]).done().text();
    assert!(said.contains("b:disk2 is empty and removed"), "{said}");
    assert_eq!(places(&cluster), ["a:disk1", "a:disk2", "b:disk1"]);
    cluster.command("b", &["device", "rm", "b:disk2"]).failed(3, "no device 'b:disk2'");
    cluster.command("b", &["device", "rm", "disk2"]).failed(2, "a:disk2");
    assert_eq!(places(&cluster), ["a:disk1", "a:disk2", "b:disk1"]);
}

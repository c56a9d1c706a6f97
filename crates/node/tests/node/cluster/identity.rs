//! Who a node is, and who is none of the cluster's.

use super::{Cluster, ask, link_to};
use crate::until;
use base::error::ErrorKind;
use net::message::{bag, cluster, file, order};
use node::{DeviceSetting, Settings};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("listed") {
        let entry = entry.expect("an entry");
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &to.join(entry.file_name()));
        } else {
            std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
        }
    }
}

/// A node with two disks is the same node without either of them: one that is not mounted, or was emptied and taken out, is missed, not
/// made anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_is_away() {
    let mut cluster = Cluster::start("disks", 1).await;
    let (first, second) = (cluster.directory(1), cluster.root.join("n1-second"));
    let settings = |cluster: &Cluster, directories: &[&PathBuf]| {
        let settings = cluster.settings(1);
        let device =
            |directory: &&PathBuf| DeviceSetting { directory: directory.to_path_buf(), ..settings.devices[0].clone() };
        Settings { devices: directories.iter().map(device).collect(), ..settings }
    };
    let both = settings(&cluster, &[&first, &second]);
    let running = cluster.try_run(both.clone()).await.expect("it starts");
    cluster.nodes.insert(1, running);
    cluster.all_there(2).await;
    let link = link_to(&cluster.keeper, 903).await;
    let there = async || ask(&link, &cluster::View::default()).await.expect("a view").members;
    let before = there().await;
    let away = cluster.root.join("away");
    for lost in [&first, &second] {
        cluster.stop(1).await;
        std::fs::rename(lost, &away).expect("not mounted");
        std::fs::create_dir(lost).expect("its mount point");
        let running = cluster.try_run(both.clone()).await.expect("it starts with the other disk");
        let missing: Vec<&str> = running.missing.iter().map(|missing| &missing.place[..]).collect();
        assert_eq!(missing, [lost.to_str().expect("text")]);
        assert_eq!(std::fs::read_dir(lost).expect("it is there").count(), 0, "nothing is made on the wrong disk");
        running.stop().await;
        std::fs::remove_dir(lost).and_then(|()| std::fs::rename(&away, lost)).expect("mounted");
        let running = cluster.try_run(both.clone()).await.expect("it starts");
        assert_eq!(running.missing, []);
        cluster.nodes.insert(1, running);
    }
    cluster.stop(1).await;
    let running = cluster.try_run(settings(&cluster, &[&second])).await.expect("it starts without the first");
    cluster.nodes.insert(1, running);
    until("it was heard", async || there().await.iter().any(|member| member.devices.len() == 1)).await;
    let ids = |members: &[cluster::Member]| -> BTreeSet<u128> {
        members.iter().map(|member| member.node.node.value()).collect()
    };
    assert_eq!(ids(&there().await), ids(&before));
    cluster.stop_all().await;
}

/// Who does not belong to the cluster, and who asks what is not for him, is refused with words that say what to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused() {
    let mut cluster = Cluster::start("refused", 2).await;
    let client = cluster.client(1).await;
    let far = client.far();
    // What needs the metadata, asked of another node.
    let error = ask(client.at(far), &file::Stat { path: "/".to_string() }).await.expect_err("it has no names");
    assert!(error.text().contains(&cluster.keeper), "{error}");
    let error =
        ask(client.at(far), &bag::Stat { name: "b".to_string(), ..bag::Stat::default() }).await.expect_err("nor bags");
    assert!(error.text().contains(&cluster.keeper), "{error}");
    // What only the keeper may order, of any node.
    let delete = order::Delete { device: far, chunks: vec![1.into()], ..order::Delete::default() };
    let fetch = order::Fetch { device: far, from: far, start: 0, end: 1, ..order::Fetch::default() };
    for link in [client.at(far), &client.keeper] {
        assert_eq!(ask(link, &delete).await.expect_err("not for clients").kind(), ErrorKind::Invalid);
        assert_eq!(ask(link, &fetch).await.expect_err("not for clients").kind(), ErrorKind::Invalid);
    }
    // A report in another's name.
    let view = ask(&client.keeper, &cluster::View::default()).await.expect("a view");
    let other = view.members.iter().find(|member| member.node.name == "n1").expect("it is there");
    let report = cluster::Report { node: other.node.clone(), ..cluster::Report::default() };
    assert_eq!(ask(&client.keeper, &report).await.expect_err("not its session").kind(), ErrorKind::Invalid);

    let refused = async |cluster: &mut Cluster, settings: Settings, word: &str| {
        let running = cluster.try_run(settings).await.expect("it starts, and waits");
        cluster.nodes.insert(9, running);
        until(word, async || {
            let (ready, troubles) = cluster.troubles(9).await;
            !ready && troubles.contains(word)
        })
        .await;
        cluster.stop(9).await;
    };
    // A name that somebody has.
    let named = |settings: Settings, name: &str| {
        let place = settings.cluster.clone().map(|place| node::Cluster { name: name.to_string(), ..place });
        Settings { cluster: place, ..settings }
    };
    let settings = named(cluster.settings(2), "n1");
    refused(&mut cluster, settings, "the name n1 is that of node").await;
    // A device of another store.
    let mut foreign = Cluster::start("foreign", 2).await;
    let stranger = foreign.client(1).await;
    let mut open = stranger.create_on(stranger.far(), "f").await;
    stranger.append(&mut open, b"theirs").await.expect("written");
    foreign.stop(1).await;
    let settings = cluster.settings(3);
    copy(&foreign.directory(1), &cluster.directory(3));
    refused(&mut cluster, settings, "chunks of another store").await;
    foreign.stop_all().await;
    // An old copy of a node that was started again since then.
    cluster.stop(1).await;
    let node = cluster.directory(1).join("node");
    let old = std::fs::read(&node).expect("its identity");
    cluster.run(1).await;
    cluster.all_there(2).await;
    cluster.stop(1).await;
    cluster.run(1).await;
    cluster.all_there(2).await;
    let settings = cluster.settings(4);
    std::fs::create_dir_all(cluster.directory(4)).expect("a directory");
    std::fs::write(cluster.directory(4).join("node"), old).expect("written");
    refused(&mut cluster, settings, "was started again meanwhile").await;
    // A copy of a node that was not started since then: whichever comes second has the number of the first.
    cluster.stop(1).await;
    let settings = cluster.settings(6);
    copy(&cluster.directory(1), &cluster.directory(6));
    cluster.run(1).await;
    cluster.all_there(2).await;
    refused(&mut cluster, settings, "or is there twice").await;
    // The directory of a node that keeps the metadata.
    cluster.stop(0).await;
    let settings = Settings { devices: cluster.settings(0).devices, ..cluster.settings(5) };
    let Err(error) = cluster.try_run(settings).await else { panic!("it started") };
    assert!(error.text().contains("holds a metadata store"), "{error}");
    cluster.stop_all().await;
}

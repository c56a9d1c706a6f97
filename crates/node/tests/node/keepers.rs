//! Several nodes that keep the metadata together: names and files outlive each of them.

use crate::cluster::{ask, link_to};
use crate::hdfs_user::content;
use crate::{AheadClock, until};
use base::error::Result;
use base::id::ClusterId;
use base::policy::Class;
use bytes::Bytes;
use client::{Client, CreateOptions, PackOptions, PackerOptions};
use net::message::cluster::View;
use node::{DeviceSetting, MetaPlace, Running, Settings};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Nodes in directories that go with them. The first three keep the metadata.
struct Several {
    root: PathBuf,
    keepers: Vec<String>,
    nodes: BTreeMap<usize, Running>,
    clock: Arc<AheadClock>,
}

const KEEPERS: usize = 3;

impl Several {
    /// No node runs yet.
    fn new(name: &str) -> Several {
        let root = std::env::temp_dir().join(format!("stormwell-keepers-{}-{name}", std::process::id()));
        let _left = std::fs::remove_dir_all(&root);
        let keepers = sim::ports::free(KEEPERS);
        Several { root, keepers, nodes: BTreeMap::new(), clock: Arc::new(AheadClock::new()) }
    }

    /// `count` nodes that know each other.
    async fn start(name: &str, count: usize) -> Several {
        let mut several = Several::new(name);
        for number in 0..count {
            several.run(number).await;
        }
        several.all_there(count).await;
        several
    }

    fn directory(&self, number: usize) -> PathBuf {
        self.root.join(format!("n{number}"))
    }

    async fn run(&mut self, number: usize) {
        let running = self.try_run(number, &[]).await.expect("the node starts");
        self.nodes.insert(number, running);
    }

    /// Starts one, with these devices, too.
    async fn try_run(&self, number: usize, more: &[DeviceSetting]) -> Result<Running> {
        let device = DeviceSetting { directory: self.directory(number), class: Class::Ssd, capacity: Some(256 << 20) };
        let devices = std::iter::once(device).chain(more.iter().cloned()).collect();
        let own = (number < KEEPERS).then_some(number);
        let listen = own.map_or("127.0.0.1:0", |own| &self.keepers[own]);
        let meta = MetaPlace::Several { keepers: self.keepers.clone(), own };
        let place = node::Cluster { name: format!("n{number}"), meta, ..node::Cluster::new(ClusterId(78)) };
        let settings = Settings { cluster: Some(place), ..Settings::new(listen, devices) };
        let (world, random) = (Arc::new(node::OsWorld), Arc::new(os::random::SystemRandom));
        node::start(settings, world, Arc::new(os::net::TcpNet), self.clock.clone(), random).await
    }

    async fn stop(&mut self, number: usize) {
        self.nodes.remove(&number).expect("it runs").stop().await;
    }

    async fn end(mut self) {
        for number in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.stop(number).await;
        }
        std::fs::remove_dir_all(&self.root).expect("it is ours");
    }

    /// Which node leads, as one says that is there.
    async fn leader(&self) -> Option<usize> {
        for running in self.nodes.values() {
            let link = link_to(&running.address, 900).await;
            let Ok(view) = ask(&link, &View::default()).await else { continue };
            let leads = view.members.iter().find(|member| member.node.node == view.keeper)?;
            return leads.node.name.strip_prefix('n')?.parse().ok();
        }
        None
    }

    /// Waits until all of them say so many nodes to be there and none silent, and that the same one of those that run leads.
    async fn all_there(&self, count: usize) {
        until("all nodes are there", async || {
            let mut leaders = Vec::new();
            for running in self.nodes.values() {
                let link = link_to(&running.address, 900).await;
                let Ok(view) = ask(&link, &View::default()).await else { return false };
                let is_there = |member: &&net::message::cluster::Member| !member.silent && !member.devices.is_empty();
                if view.members.iter().filter(is_there).count() != count {
                    return false;
                }
                leaders.push((view.keeper, view.term));
            }
            leaders.windows(2).all(|pair| pair[0] == pair[1])
        })
        .await;
    }

    async fn client(&self, number: usize) -> Client {
        crate::hdfs_user::client_of(&self.nodes[&number].address).await
    }
}

async fn put(client: &Client, path: &str, bytes: Bytes) {
    let mut writer = client.create(path, CreateOptions::default()).await.expect("the file is new");
    writer.write(bytes).await.expect("written");
    writer.close().await.expect("closed");
}

async fn same(client: &Client, path: &str, bytes: &[u8]) {
    let reader = client.open(path).await.expect("it is there");
    let read = reader.read_at(0, bytes.len() as u64 + 1).await.expect("read").concat();
    assert!(read == bytes, "{path}: other bytes");
}

/// Three nodes make a store, a fourth one joins it. Whoever leads goes away while directories and files are made; they are all there, through
/// each node that is.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_leads_may_stop() {
    let mut several = Several::start("stop", KEEPERS + 1).await;
    let client = several.client(3).await;
    client.make_directory("/made", false).await.expect("made");
    for turn in 0..3 {
        let leader = several.leader().await.expect("one leads");
        let stopped = Arc::new(AtomicBool::new(false));
        let (making, ends) = (client.clone(), stopped.clone());
        let maker = tokio::spawn(async move {
            let (mut made, mut after) = (0, 0);
            // Some are made after it has stopped.
            while after < 20 {
                making.make_directory(&format!("/made/{turn}-{made}"), false).await.expect("made once, whoever leads");
                made += 1;
                after += usize::from(ends.load(Ordering::Relaxed));
            }
            made
        });
        several.stop(leader).await;
        stopped.store(true, Ordering::Relaxed);
        let made = maker.await.expect("all were made");
        for number in 0..made {
            client.stat(&format!("/made/{turn}-{number}")).await.expect("it was acknowledged");
        }
        put(&client, &format!("/file{turn}"), content(300_000, turn)).await;
        several.run(leader).await;
        several.all_there(KEEPERS + 1).await;
    }
    for number in 0..=KEEPERS {
        let client = several.client(number).await;
        for turn in 0..3 {
            same(&client, &format!("/file{turn}"), &content(300_000, turn)).await;
        }
    }
    several.end().await;
}

/// A store that three nodes begin has three copies of each file, small ones too: what is written while whoever leads goes away is acknowledged, and all
/// is read on the nodes that are left.
#[tokio::test(flavor = "multi_thread")]
async fn files_outlive_whoever_leads() {
    let mut several = Several::start("copies", KEEPERS).await;
    let first = several.client(0).await;
    let (_, wishes) = first.get_policy("/").await.expect("known");
    assert_eq!(wishes.replicas, Some(3));
    let mut all = BTreeMap::new();
    for turn in 0..3 {
        let leader = several.leader().await.expect("one leads");
        let client = several.client((leader + 1) % KEEPERS).await;
        let (path, bytes) = (format!("/log{turn}"), content(3_000_000, turn));
        let mut writer = client.create(&path, CreateOptions::default()).await.expect("the file is new");
        writer.write(bytes.slice(..1_000_000)).await.expect("taken");
        writer.hflush().await.expect("acknowledged");
        let mut packer = client.packer(PackerOptions::default());
        for number in 0..40 {
            let (path, bytes) = (format!("/small{turn}-{number}"), content(1_000 + number, turn));
            packer.put(&path, bytes.clone(), PackOptions::default()).await.expect("admitted");
            all.insert(path, bytes);
        }
        assert!(packer.close().await.expect("sent").iter().all(|(_, result)| result.is_ok()));
        several.stop(leader).await;
        writer.write(bytes.slice(1_000_000..2_000_000)).await.expect("taken");
        writer.hflush().await.expect("acknowledged by those that are left");
        writer.write(bytes.slice(2_000_000..)).await.expect("taken");
        writer.close().await.expect("closed");
        all.insert(path, bytes);
        for (path, bytes) in &all {
            same(&client, path, bytes).await;
        }
        several.run(leader).await;
        several.all_there(KEEPERS).await;
        let client = several.client(leader).await;
        until("all copies are made", async || {
            let lacks = client.devices().await.expect("told").lacks.unwrap_or_default();
            lacks.one_left + lacks.fewer + lacks.none_left == 0
        })
        .await;
    }
    several.end().await;
}

/// A first start that fails after a device was made has made the keeper's directory before, so that the next one does not come too late to begin a
/// store.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_start_may_fail() {
    let several = Several::new("first");
    let small = DeviceSetting { directory: several.root.join("small"), class: Class::Ssd, capacity: Some(1) };
    assert!(several.try_run(1, &[small]).await.is_err(), "it has no room for anything");
    assert!(several.directory(1).join("chunks").exists(), "the device before it was made");
    let keeper = std::fs::read_to_string(several.directory(1).join("meta/keeper")).expect("a keeper's file");
    assert!(keeper.contains("draw ") && !keeper.contains("late"), "{keeper}");
    std::fs::remove_dir_all(&several.root).expect("it is ours");
}

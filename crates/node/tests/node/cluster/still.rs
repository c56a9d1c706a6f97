//! A device of another node that neither answers nor fails: its disk stands still, and its node reports. And what waits for one that is away.

use super::{Client, Cluster, Open, ask};
use crate::failing::FailingWorld;
use crate::until;
use base::error::ErrorKind;
use base::limit::{NODE_SILENCE_MAX, SESSION_LEASE};
use net::message::layout::Column;
use net::message::{Id, bag, chunk, file};
use std::sync::Arc;

impl Client {
    async fn has(&self, bag: &str, device: Id) -> bool {
        let stat = bag::Stat { name: bag.to_string(), uncounted: true, ..bag::Stat::default() };
        ask(&self.keeper, &stat).await.expect("it is there").members.contains(&device)
    }

    async fn chunks_on(&self, device: Id) -> u64 {
        self.listed().await.iter().find(|found| found.device == device).expect("it is there").chunks
    }

    async fn is_open(&self, path: &str) -> bool {
        ask(&self.keeper, &file::Stat { path: path.to_string() }).await.expect("it is there").open
    }

    /// A closed file of 100,000 bytes on a device.
    async fn make_on(&self, device: Id, name: &str) -> Open {
        let mut open = self.create_on(device, name).await;
        self.append(&mut open, &[7; 100_000]).await.expect("written");
        self.close(&open).await.expect("closed");
        open
    }

    async fn cut(&self, path: &str) {
        let cut = file::Truncate { path: path.to_string(), length: 50_000, ..file::Truncate::default() };
        ask(&self.keeper, &cut).await.expect("cut");
    }

    /// Whether the second half of a file's chunk is not to be read any more.
    async fn is_cut(&self, open: &Open) -> bool {
        let Column { device, chunk, .. } = open.opened.group.layout.columns[0];
        let ranges = vec![chunk::Range { offset: 60_000, length: 1 }];
        match ask(self.at(device), &chunk::Read { device, chunk, ranges, ..chunk::Read::default() }).await {
            Ok(_) => false,
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }

    async fn delete(&self, path: &str) {
        let delete = file::Delete { path: path.to_string(), ..file::Delete::default() };
        ask(&self.keeper, &delete).await.expect("deleted");
    }
}

/// The device of one node stands still while it is to join a bag. Garbage on another one is freed, an abandoned file there is ended, and the
/// device of a new node joins all bags, that one, too. When it goes on its garbage is freed, its file ended, and it joins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_stands_still() {
    let mut cluster = Cluster::new("still");
    cluster.run(0).await;
    let world = Arc::new(FailingWorld { place: cluster.directory(1), ..FailingWorld::default() });
    let running = cluster.try_run_in(world.clone(), cluster.settings(1)).await.expect("the node starts");
    cluster.nodes.insert(1, running);
    cluster.all_there(2).await;
    let client = cluster.client(1).await;
    let still = client.far();
    let other = client.devices().into_iter().find(|device| *device != still).expect("that of the keeper");
    let mut paths = Vec::new();
    for device in [still, other] {
        for name in ["made", "left"] {
            let mut open = client.create_on(device, &format!("{name}-{:x}-", device.value())).await;
            client.append(&mut open, &[7; 100_000]).await.expect("written");
            if name == "made" {
                client.close(&open).await.expect("closed");
            }
            paths.push(open.path);
        }
    }
    let [made_still, left_still, made, left] = &paths[..] else { panic!("{paths:?}") };
    client.bag("before", true).await;
    until("all are reported", async || client.chunks_on(still).await == 2 && client.chunks_on(other).await == 2).await;
    world.still.begin();

    // A bag that is made while its node is silent lacks it, and the device joins when it is heard of again. Sessions of before are over.
    let mut client = cluster.client(2).await;
    let mut without = None;
    for number in 0..100 {
        cluster.ahead(NODE_SILENCE_MAX);
        let name = format!("without{number}");
        if !client.bag(&name, true).await.members.contains(&still) {
            without = Some(name);
            break;
        }
    }
    let without = without.expect("one is made in time");
    client.delete(made_still).await;
    client.delete(made).await;
    until("its garbage is freed", async || client.chunks_on(other).await == 1).await;
    cluster.ahead(SESSION_LEASE);
    client = cluster.client(3).await;
    until("its abandoned file is ended", async || !client.is_open(left).await).await;
    cluster.run(2).await;
    cluster.all_there(3).await;
    let new = async || client.listed().await.iter().map(|found| found.device).find(|id| *id != still && *id != other);
    until("it is listed", async || new().await.is_some()).await;
    let new = new().await.expect("it is listed");
    for bag in ["before", &*without] {
        until("it joins", async || client.has(bag, new).await).await;
    }
    assert!(!client.has(&without, still).await && client.is_open(left_still).await, "it stands still");
    world.still.end();
    until("its garbage is freed, too", async || client.chunks_on(still).await == 1).await;
    until("its abandoned file is ended, too", async || !client.is_open(left_still).await).await;
    until("it joins, too", async || client.has(&without, still).await).await;
    cluster.stop_all().await;
}

/// What is cut off a file while its device is away is released when the device is back, also if the keeper was started again in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_wait_for_their_device() {
    let mut cluster = Cluster::start("ranges", 2).await;
    let client = cluster.client(1).await;
    let far = client.far();
    let near = client.devices().into_iter().find(|device| *device != far).expect("that of the keeper");
    let files = [client.make_on(far, "first").await, client.make_on(far, "second").await];
    // Of a later group: when that is released, those before it on the list were looked at.
    let marks = [client.make_on(near, "first-mark").await, client.make_on(near, "second-mark").await];
    cluster.stop(1).await;
    cluster.ahead(NODE_SILENCE_MAX);
    for (file, mark) in files.iter().zip(&marks) {
        client.cut(&file.path).await;
        client.cut(&mark.path).await;
        until("that of the keeper is released", async || client.is_cut(mark).await).await;
    }
    cluster.stop(0).await;
    cluster.run(0).await;
    cluster.run(1).await;
    cluster.all_there(2).await;
    let client = cluster.client(2).await;
    for file in &files {
        until("that of the other node is released, too", async || client.is_cut(file).await).await;
        assert_eq!(client.read(&file.path).await.expect("read"), [7; 50_000]);
    }
    cluster.stop_all().await;
}

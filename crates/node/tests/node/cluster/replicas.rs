//! Files that are written to several replicas, and whose writer goes: each ends with all that it had, and names no replica that has less.

use super::copies::{all_made, copies, want};
use super::{Client, Cluster, Open, ask};
use crate::failing::FailingWorld;
use crate::hdfs_user::client_of as library;
use crate::until;
use base::error::Result;
use base::planted::Planted;
use bytes::Bytes;
use net::Payload;
use net::message::{Id, chunk, cluster, file};
use std::sync::Arc;

/// A keeper and three nodes, and of these the numbers by their devices. The keeper has this fault.
async fn start(name: &str, planted: Option<Planted>) -> Cluster {
    let mut cluster = Cluster::new(name);
    let place = cluster.directory(0).join("none of them fails");
    let world = Arc::new(FailingWorld { place, planted, ..FailingWorld::default() });
    let running = cluster.try_run_in(world, cluster.settings(0)).await.expect("it starts");
    cluster.nodes.insert(0, running);
    for number in 1..4 {
        cluster.run(number).await;
    }
    cluster.all_there(4).await;
    cluster
}

/// The number of the node that has a device.
async fn number_of(client: &Client, device: Id) -> usize {
    let place = client.listed().await.into_iter().find(|known| known.device == device).expect("listed").place;
    (1..4).find(|number| place.starts_with(&format!("n{number}:"))).expect("a node has it")
}

/// A file that is written to a replica on each node but the keeper's.
async fn open(client: &Client, name: &str) -> Open {
    for number in 0..100 {
        let path = format!("/{name}{number}");
        let create = file::Create { path: path.clone(), replicas_max: 3, ..file::Create::default() };
        let opened = ask(&client.keeper, &create).await.expect("a file");
        let open = Open { path, opened, written: 0 };
        let devices = devices(&open);
        assert_eq!(devices.len(), 3, "as many as it wants");
        if devices.iter().all(|device| client.at(*device).node() != client.keeper.node()) {
            return open;
        }
    }
    panic!("the keeper's device is in each of a hundred files");
}

fn devices(open: &Open) -> Vec<Id> {
    let column = &open.opened.group.layout.columns[0];
    std::iter::once(column.device).chain(column.others.iter().copied()).collect()
}

/// Appends behind so many bytes, on these of its devices.
async fn append(client: &Client, open: &Open, on: &[Id], (offset, bytes): (usize, &[u8])) {
    for device in on {
        let ask = chunk::Append {
            device: *device,
            chunk: open.opened.group.layout.columns[0].chunk,
            group: open.opened.group.group,
            generation: open.opened.generation,
            offset: offset as u64,
            level: 2,
            ..chunk::Append::default()
        };
        client.at(*device).call(&ask, Payload::new(Bytes::copy_from_slice(bytes))).await.expect("appended");
    }
}

/// Starts a node again, and waits until others find it where it is now.
async fn again(cluster: &mut Cluster, client: &Client, number: usize) {
    cluster.run(number).await;
    until("it is back", async || {
        let view = ask(&client.keeper, &cluster::View::default()).await.expect("a view");
        view.members.iter().any(|member| !member.silent && member.node.address == cluster.address(number))
    })
    .await;
}

/// Takes a file from its writer.
async fn recover(client: &Client, open: &Open) -> Result<file::Attributes> {
    let inode = open.opened.inode;
    ask(&client.keeper, &file::Recover { inode, only_gone: false, generation: 0, for_holder: false }).await
}

/// What the longest replica has is kept, whatever others have; what has less is named no more, and there are three copies again in the end, all
/// alike. So it is when one node is gone, as each of the others has all that was ever acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_longest_counts() {
    let mut cluster = start("longest", None).await;
    let client = cluster.client(1).await;
    want(&client, 3).await;
    let bytes: Vec<u8> = (0..200_000_u32).map(|at| (at / 50) as u8).collect();
    for (name, ends) in [("a", [100, 150_000, 200_000]), ("b", [0, 0, 50_000]), ("c", [9, 9, 9]), ("d", [0, 0, 0])] {
        let file = open(&client, name).await;
        for (device, end) in devices(&file).into_iter().zip(ends) {
            if end > 0 {
                append(&client, &file, &[device], (0, &bytes[..end])).await;
            }
        }
        let longest = *ends.iter().max().expect("three");
        assert_eq!(recover(&client, &file).await.expect("ended").length, longest as u64, "{name}");
        if longest > 0 {
            all_made(&client).await;
            assert_eq!(copies(&client, &file.path, &bytes[..longest]).await.len(), 3, "{name}");
        }
    }
    let file = open(&client, "gone").await;
    let on = devices(&file);
    append(&client, &file, &on, (0, &bytes[..1000])).await;
    append(&client, &file, &on[..2], (1000, &bytes[1000..3000])).await;
    let number = number_of(&client, on[1]).await;
    cluster.stop(number).await;
    assert_eq!(recover(&client, &file).await.expect("two are enough").length, 3000);
    again(&mut cluster, &client, number).await;
    let client = cluster.again(client).await;
    all_made(&client).await;
    assert_eq!(copies(&client, &file.path, &bytes[..3000]).await.len(), 3);
    cluster.stop_all().await;
}

/// A process that was started again may have lost what it acknowledged: by itself it does not say how a file ends, and the file waits until all
/// replicas have answered. With the fault of that name put in the bytes of those that are away are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_ones_do_not_decide() {
    for planted in [None, Some(Planted::RestartedTakenForSound)] {
        let mut cluster = start("restarted", planted).await;
        let client = cluster.client(1).await;
        want(&client, 3).await;
        let file = open(&client, "f").await;
        let on = devices(&file);
        append(&client, &file, &on, (0, b"on all of them, ")).await;
        append(&client, &file, &on[..2], (16, b"and on two")).await;
        let mut numbers = Vec::new();
        for device in &on {
            numbers.push(number_of(&client, *device).await);
        }
        cluster.stop(numbers[0]).await;
        cluster.stop(numbers[1]).await;
        cluster.stop(numbers[2]).await;
        again(&mut cluster, &client, numbers[2]).await;
        let ended = recover(&client, &file).await;
        if planted.is_some() {
            assert_eq!(ended.expect("it believes that one").length, 16);
            cluster.stop_all().await;
            continue;
        }
        ended.expect_err("nobody knows what the others have");
        again(&mut cluster, &client, numbers[1]).await;
        recover(&client, &file).await.expect_err("one is away yet");
        again(&mut cluster, &client, numbers[0]).await;
        until("it is ended", async || recover(&client, &file).await.is_ok_and(|ended| ended.length == 26)).await;
        let client = cluster.again(client).await;
        all_made(&client).await;
        assert_eq!(copies(&client, &file.path, b"on all of them, and on two").await.len(), 3);
        cluster.stop_all().await;
    }
}

/// The devices of the group that a file is written to.
async fn written_on(client: &client::Client, inode: u64) -> Vec<Id> {
    let (extents, _) = client.extents(inode, 0).await.expect("located");
    let column = &extents.last().expect("it is open").layout.columns[0];
    std::iter::once(column.device).chain(column.others.iter().copied()).collect()
}

/// What a client has written is on three nodes when it is acknowledged: one of them may go while it writes, which it goes on without, and another one
/// right after it has closed the file. When they are back there are three copies again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn written_to_all() {
    let mut cluster = start("written", None).await;
    let client = cluster.client(1).await;
    want(&client, 3).await;
    let writing = library(cluster.address(0)).await.with_replicas_max(3);
    let bytes: Bytes = (0..40_000_000_u32).map(|at| (at / 77) as u8).collect();
    let mut writers = Vec::new();
    // One with no replica on the keeper's node, which stays.
    let (path, mut writer, on) = loop {
        let path = format!("/w{}", writers.len());
        let writer = writing.create(&path, client::CreateOptions::default()).await.expect("new");
        let on = written_on(&writing, writer.inode()).await;
        assert_eq!(on.len(), 3);
        if on.iter().all(|device| client.at(*device).node() != client.keeper.node()) {
            break (path, writer, on);
        }
        writers.push(writer);
        assert!(writers.len() < 100, "the keeper's device is in each of a hundred files");
    };
    let mut numbers = Vec::new();
    for device in &on {
        numbers.push(number_of(&client, *device).await);
    }
    for (step, part) in bytes.chunks(4_000_000).enumerate() {
        writer.write(Bytes::copy_from_slice(part)).await.expect("taken");
        if step == 4 {
            cluster.stop(numbers[0]).await;
        }
        writer.hflush().await.expect("those that are left have it");
        assert_eq!(writer.written().borrow().length, (step as u64 * 4 + 4) * 1_000_000);
    }
    writer.close().await.expect("closed");
    cluster.stop(numbers[1]).await;
    let reading = library(cluster.address(0)).await;
    assert!(reading.read_small(&path).await.expect("one is enough") == bytes);
    again(&mut cluster, &client, numbers[0]).await;
    again(&mut cluster, &client, numbers[1]).await;
    drop(writers);
    all_made(&client).await;
    let (extents, _) = reading.extents(reading.stat(&path).await.expect("there").inode, 0).await.expect("located");
    assert!(extents.len() > 1, "it went on in another group");
    for extent in extents {
        assert_eq!(extent.layout.columns[0].others.len(), 2, "{extent:?}");
    }
    assert!(library(cluster.address(0)).await.read_small(&path).await.expect("read") == bytes);
    cluster.stop_all().await;
}

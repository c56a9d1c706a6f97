//! Devices that leave with something unsaid: acknowledgements that a failing device could not keep, and memory of an earlier start.

use super::{Cluster, ask, link_to};
use crate::failing::FailingWorld;
use crate::until;
use base::error::ErrorKind;
use base::policy::Class;
use bytes::Bytes;
use net::Payload;
use net::message::{bag, cluster, device, file};
use node::{DeviceSetting, Settings};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A device fails while an acknowledgement is on its way to its disk: who made it is told so, and the chunk is on the disk as before. The
/// device is emptied: the chunk counts as there, so that the bag does not leave it behind before the next start has shown what the disk kept.
/// Meanwhile new chunks are refused there for good, which is no error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_in_vain() {
    for near in [true, false] {
        let mut cluster = Cluster::new(&format!("vain-{near}"));
        let broken = Arc::new(AtomicBool::new(false));
        let directory = cluster.root.join("bad");
        let world =
            Arc::new(FailingWorld { place: directory.clone(), broken: broken.clone(), ..FailingWorld::default() });
        let with_bad = |number: usize| {
            let mut settings = cluster.settings(number);
            let bad = DeviceSetting { directory: directory.clone(), ..settings.devices[0].clone() };
            settings.devices.push(bad);
            settings
        };
        let number = usize::from(!near);
        let settings = with_bad(number);
        if !near {
            cluster.run(0).await;
        }
        let running = cluster.try_run_in(world.clone(), settings.clone()).await.expect("it starts");
        cluster.nodes.insert(number, running);
        cluster.all_there(number + 1).await;
        let client = cluster.client(1).await;
        let listed = client.listed().await;
        let bad = listed.iter().find(|device| device.place.ends_with("bad")).expect("it is listed").device;
        let info = client.bag("b", false).await;
        client.push(info.bag, bad, 1).await.expect("pushed");
        let pulled = client.pull(info.bag, bad, 5).await;
        broken.store(true, Ordering::SeqCst);
        let grants = vec![bag::Grant { chunk: pulled.chunk, grant: 5 }];
        let acknowledge =
            bag::Acknowledge { bag: info.bag, device: bad, pass: 0, grants, retain: false, number: 0, floor: 0 };
        ask(client.at(bad), &acknowledge).await.expect_err("the device fails");
        let push = bag::Push { bag: info.bag, device: bad, chunk: 2.into(), floor: 0 };
        let (answer, _) =
            client.at(bad).call(&push, Payload::new(Bytes::from_static(b"x"))).await.expect("that is no error");
        assert!(answer.refused.is_some());
        let of_bad = async || client.listed().await.into_iter().find(|device| device.device == bad);
        until("it is known", async || of_bad().await.is_some_and(|device| device.out_of_service)).await;
        ask(&client.keeper, &device::Drain { device: bad }).await.expect("it begins");
        until("it waits for the chunk", async || {
            let waits = of_bad().await.and_then(|device| device.drain).unwrap_or_default().waits;
            waits.contains("1 chunks of bag b to be handled; they follow when its node was started again")
        })
        .await;
        let counted = client.stat("b").await.expect("counted");
        assert_eq!((counted.pushed, counted.acknowledged), (1, 0), "near: {near}");
        cluster.stop(number).await;
        broken.store(false, Ordering::SeqCst);
        let running = cluster.try_run_in(world, settings).await.expect("it starts");
        cluster.nodes.insert(number, running);
        let keeper = link_to(&cluster.keeper, 905).await;
        let members = async || ask(&keeper, &cluster::View::default()).await.expect("a view").members;
        until("it is heard at its new address", async || {
            let here =
                |node: &cluster::Member| node.node.address == cluster.address(number) && !node.devices.is_empty();
            members().await.iter().any(here)
        })
        .await;
        let client = cluster.again(client).await;
        // The disk may have kept what it said to have failed at: then nothing is left to be handled, and the device may have gone by now.
        let link = client.links.iter().find(|(devices, _)| devices.contains(&bad)).map(|(_, link)| link.clone());
        let pull = bag::Pull { bag: info.bag, device: bad, grant: 6, ..bag::Pull::default() };
        let pulled = match link {
            Some(link) => ask(&link, &pull).await.ok(),
            None => None,
        };
        if let Some(pulled) = pulled.filter(|pulled| pulled.pulled == bag::Pulled::Chunk as i32) {
            assert_eq!(pulled.chunk, 1.into(), "near: {near}");
            client.acknowledge(info.bag, bad, (pulled.chunk, 0), 6).await;
        }
        let is_gone = async || client.listed().await.iter().all(|device| device.device != bad);
        until("it is empty, and gone", is_gone).await;
        let counted = client.stat("b").await.expect("counted");
        assert_eq!((counted.pushed, counted.acknowledged), (1, 1));
        cluster.stop_all().await;
    }
}

/// A file is taken from its writer before it has a byte, and the device of its chunk is emptied and leaves: what that writer still sends is
/// refused there, before and after the chunk has left, and nothing of it is ever seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn taken_before_its_first_byte() {
    let cluster = Cluster::start("unmade", 2).await;
    let (writer, other) = (cluster.client(1).await, cluster.client(2).await);
    let device = writer.far();
    let mut open = writer.create_on(device, "f").await;
    let recover = file::Recover { inode: open.opened.inode, only_gone: false, generation: 0, for_holder: false };
    assert_eq!(ask(&other.keeper, &recover).await.expect("taken").length, 0);
    let late = writer.append(&mut open, b"too late").await.expect_err("fenced");
    assert_eq!(late.kind(), ErrorKind::Stale);
    ask(&other.keeper, &device::Drain { device }).await.expect("it begins");
    until("it is empty, and gone", async || other.listed().await.iter().all(|known| known.device != device)).await;
    let late = writer.append(&mut open, b"too late").await.expect_err("its chunk is elsewhere");
    assert_eq!(late.kind(), ErrorKind::Stale, "{late}");
    assert_eq!(other.read(&open.path).await.expect("read"), b"");
    cluster.stop_all().await;
}

/// A device that was emptied and removed stays removed when the node that keeps the metadata is started again while its own goes on and
/// reports it, and when its own node starts with it: whoever was told that it is out of the store may take its disk away, and what was pushed
/// there and not answered would be stored there a second time. Once its directory was emptied there is a new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_before_the_keeper_started_again() {
    let mut cluster = Cluster::start("removed", 3).await;
    let client = cluster.client(1).await;
    let members = ask(&client.keeper, &cluster::View::default()).await.expect("a view").members;
    let device = members.iter().find(|member| member.node.name == "n1").expect("it is there").devices[0];
    ask(&client.keeper, &device::Drain { device }).await.expect("it begins");
    let is_gone = async |client: &super::Client| client.listed().await.iter().all(|known| known.device != device);
    until("it is empty, and gone", async || is_gone(&client).await).await;
    cluster.stop(0).await;
    cluster.run(0).await;
    let keeper = link_to(&cluster.keeper, 906).await;
    let view = async || ask(&keeper, &cluster::View::default()).await.expect("a view").members;
    until("all were heard of", async || {
        let members = view().await;
        members.len() == 3 && members.iter().all(|member| !member.silent)
    })
    .await;
    let client = cluster.again(client).await;
    assert!(is_gone(&client).await, "{:?}", client.listed().await);
    cluster.stop(1).await;
    cluster.run(1).await;
    until("its node is there again", async || view().await.iter().all(|member| !member.silent)).await;
    assert!(is_gone(&client).await, "{:?}", client.listed().await);
    cluster.stop(1).await;
    std::fs::remove_dir_all(cluster.directory(1)).expect("emptied");
    cluster.run(1).await;
    until("there is a new one", async || client.listed().await.len() == 3).await;
    assert!(is_gone(&client).await, "{:?}", client.listed().await);
    cluster.stop_all().await;
}

/// Devices in memory are new at each start of their node; those of earlier starts are forgotten, on the node that keeps the metadata and on
/// others, and nobody waits for them. One of a node that is away stays, until that node was started again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_of_an_earlier_start() {
    let mut cluster = Cluster::new("memory");
    let settings = |cluster: &Cluster, number: usize| -> Settings {
        let mut settings = cluster.settings(number);
        let directory = cluster.directory(number).join("memory");
        settings.devices.push(DeviceSetting { directory, class: Class::Memory, capacity: Some(64 << 20) });
        settings
    };
    for number in [0, 1] {
        let running = cluster.try_run(settings(&cluster, number)).await.expect("it starts");
        cluster.nodes.insert(number, running);
    }
    cluster.all_there(2).await;
    let members = async |cluster: &Cluster| {
        let link = link_to(&cluster.keeper, 903).await;
        let members = ask(&link, &cluster::View::default()).await.expect("a view").members;
        members.into_iter().map(|member| member.devices).collect::<Vec<_>>()
    };
    until("all are known", async || members(&cluster).await.iter().all(|devices| devices.len() == 2)).await;
    let mut before = members(&cluster).await.concat();
    for number in [1, 0] {
        cluster.stop(number).await;
        if number == 1 {
            assert_eq!(members(&cluster).await.concat().len(), 4, "its node may come back with it");
        }
        let running = cluster.try_run(settings(&cluster, number)).await.expect("it starts");
        cluster.nodes.insert(number, running);
        until("the old one is forgotten", async || {
            let now = members(&cluster).await;
            let stay = before.iter().filter(|device| now.concat().contains(device)).count();
            now.len() == 2 && now.iter().all(|devices| devices.len() == 2) && stay == 3
        })
        .await;
        before = members(&cluster).await.concat();
    }
    cluster.all_there(2).await;
    let link = link_to(&cluster.keeper, 904).await;
    let listed = ask(&link, &file::Devices {}).await.expect("listed").devices;
    assert!(listed.len() == 4 && listed.iter().all(|device| !device.missing), "{listed:?}");
    cluster.stop_all().await;
}

/// A member that is started with the directory of a device which failed, was emptied and removed, and still holds its chunks, leaves that out
/// with a word and serves its other device, also when the keeper was started again meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_device_that_was_removed() {
    let mut cluster = Cluster::new("left-out");
    cluster.run(0).await;
    let (broken, bad) = (Arc::new(AtomicBool::new(false)), cluster.directory(11));
    let mut settings = cluster.settings(1);
    settings.devices.push(DeviceSetting { directory: bad.clone(), ..settings.devices[0].clone() });
    let world = || Arc::new(FailingWorld { place: bad.clone(), broken: broken.clone(), ..FailingWorld::default() });
    let running = cluster.try_run_in(world(), settings.clone()).await.expect("the node starts");
    cluster.nodes.insert(1, running);
    cluster.all_there(2).await;
    let client = cluster.client(1).await;
    let place = |device: &file::Device| device.place.contains("n11");
    let failing = client.listed().await.into_iter().find(place).expect("it is there").device;
    let mut open = client.create_on(failing, "whole").await;
    client.append(&mut open, b"kept").await.expect("written");
    client.close(&open).await.expect("closed");
    let mut lost = client.create_on(failing, "lost").await;
    broken.store(true, Ordering::SeqCst);
    client.append(&mut lost, b"lost").await.expect_err("the sync fails");
    ask(&client.keeper, &file::Delete { path: lost.path.clone(), ..file::Delete::default() }).await.expect("deleted");
    let of_failing = async || client.listed().await.into_iter().find(|device| device.device == failing);
    until("the keeper knows", async || of_failing().await.is_some_and(|device| device.out_of_service)).await;
    ask(&client.keeper, &device::Drain { device: failing }).await.expect("it begins");
    until("it is removed", async || of_failing().await.is_none()).await;
    broken.store(false, Ordering::SeqCst);
    for keeper_too in [false, true] {
        cluster.stop(1).await;
        if keeper_too {
            cluster.stop(0).await;
            cluster.run(0).await;
        }
        let world = world();
        let running = cluster.try_run_in(world.clone(), settings.clone()).await.expect("the node starts");
        cluster.nodes.insert(1, running);
        cluster.all_there(2).await;
        let client = cluster.again(cluster.client(2).await).await;
        let word =
            || world.said.lock().expect("nobody panicked").matches("was emptied and removed from this store").count();
        until("it says so", async || word() == 1).await;
        assert_eq!(client.listed().await.len(), 2, "{:?}", client.listed().await);
        assert_eq!(client.read(&open.path).await.expect("it was moved"), b"kept");
        let (ready, troubles) = cluster.troubles(1).await;
        assert!(ready, "{troubles}");
    }
    cluster.stop_all().await;
}

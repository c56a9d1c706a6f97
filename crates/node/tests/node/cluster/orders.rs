//! Whose orders a node carries out: those of the one that keeps the metadata, of this start of it and no earlier one.

use super::{Cluster, ask, link_settings, link_to};
use crate::failing::FailingWorld;
use crate::until;
use base::checksum::crc32c;
use base::error::ErrorKind;
use base::id::NodeId;
use base::planted::Planted;
use bytes::Bytes;
use net::message::{Id, chunk, cluster, device, file, order};
use net::{Asker, CallNumbers, Link, LinkSettings, Payload};
use std::sync::Arc;

/// A link by which the node that keeps the metadata orders in this term.
async fn orders(address: &str, keeper: NodeId, term: u64) -> Link {
    let asker = Asker::Node { node: keeper, incarnation: 1, term };
    let settings = LinkSettings { asker, ..link_settings(950, CallNumbers::default()) };
    Link::connect(Arc::new(os::net::TcpNet), address, settings).await.expect("it answers")
}

/// An order that an earlier start of the node that keeps the metadata sent, and which comes late, deletes nothing: the chunk may be what the
/// later start made, and named. With the fault of that name put in it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_over() {
    for planted in [None, Some(Planted::OldTermObeyed)] {
        let mut cluster = Cluster::new("orders");
        cluster.run(0).await;
        let place = cluster.directory(1).join("none of them fails");
        let world = Arc::new(FailingWorld { place, planted, ..FailingWorld::default() });
        let running = cluster.try_run_in(world, cluster.settings(1)).await.expect("it starts");
        cluster.nodes.insert(1, running);
        cluster.all_there(2).await;
        // Its terms are its starts.
        cluster.stop(0).await;
        cluster.run(0).await;
        cluster.all_there(2).await;
        let client = cluster.client(1).await;
        let far = client.far();
        let mut open = client.create_on(far, "late").await;
        client.append(&mut open, b"acknowledged").await.expect("written");
        client.close(&open).await.expect("closed");
        let keeper = client.keeper.node();
        let chunks = vec![open.opened.group.layout.columns[0].chunk];
        let delete = order::Delete { device: far, chunks, ..order::Delete::default() };
        let late = orders(cluster.address(1), keeper, 1).await;
        let deleted = ask(&late, &delete).await;
        let sealed = ask(&late, &seal(far, &open.opened.group.layout.columns[0].chunk)).await;
        match planted {
            None => {
                for refused in [deleted.map(drop), sealed.map(drop)] {
                    let error = refused.expect_err("its term is over");
                    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
                }
                assert_eq!(client.read(&open.path).await.expect("it is there"), b"acknowledged");
            }
            Some(_) => {
                deleted.expect("it is obeyed");
                client.read(&open.path).await.expect_err("it is gone");
            }
        }
        cluster.stop_all().await;
    }
}

/// A file whose last bytes were cut off moves from one node to another: its chunk has released them, so what both devices keep is read and summed up,
/// each by its own node, and the copy keeps as much.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunk_with_a_hole_moves() {
    let cluster = Cluster::start("hole", 2).await;
    let client = cluster.client(1).await;
    let far = client.far();
    let mut open = client.create_on(far, "cut").await;
    let bytes: Vec<u8> = (0..300_000_u32).map(|at| (at / 100) as u8).collect();
    client.append(&mut open, &bytes).await.expect("written");
    client.close(&open).await.expect("closed");
    let truncate = file::Truncate { path: open.path.clone(), length: 100_000, looked: None };
    ask(&client.keeper, &truncate).await.expect("cut");
    let chunk = open.opened.group.layout.columns[0].chunk;
    // Zero is the term that its node follows.
    let link = orders(cluster.address(1), client.keeper.node(), 0).await;
    let kept = async || ask(&link, &order::Kept { device: far, chunk, start: 0 }).await.expect("it answers").ranges;
    until("it is released", async || kept().await == [chunk::Range { offset: 0, length: 100_000 }]).await;
    let sums = order::Sums { device: far, chunk, ranges: kept().await };
    let expected = order::SumsAnswer { crc: crc32c(&bytes[..100_000]), damaged: Vec::new() };
    assert_eq!(ask(&link, &sums).await, Ok(expected));
    let stat = ask(&link, &chunk::Stat { device: far, chunk, start: false }).await.expect("it is there");
    assert_eq!((stat.length, stat.crc), (300_000, Some(crc32c(&bytes))), "also of what was released");
    let before = cluster.calls(1, "order_sums").await;
    ask(&client.keeper, &device::Drain { device: far }).await.expect("it begins");
    until("it is empty, and gone", async || client.listed().await.iter().all(|known| known.device != far)).await;
    assert_eq!(client.read(&open.path).await.expect("read"), bytes[..100_000]);
    assert!(cluster.calls(1, "order_sums").await > before, "nothing was compared");
    cluster.stop_all().await;
}

/// A delete that was asked again over another connection and answered, and whose first asking comes when the chunk is there anew, does nothing: neither
/// before something else is deleted nor after the floor has risen. With the fault of that name put in it takes the new chunk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delete_that_comes_late() {
    for planted in [None, Some(Planted::OrderRepeatedByLink)] {
        let mut cluster = Cluster::new("late");
        cluster.run(0).await;
        let place = cluster.directory(1).join("none of them fails");
        let world = Arc::new(FailingWorld { place, planted, ..FailingWorld::default() });
        let running = cluster.try_run_in(world, cluster.settings(1)).await.expect("it starts");
        cluster.nodes.insert(1, running);
        cluster.all_there(2).await;
        let client = cluster.client(1).await;
        let far = client.far();
        let mut open = client.create_on(far, "anew").await;
        client.append(&mut open, b"acknowledged").await.expect("written");
        client.close(&open).await.expect("closed");
        let (group, keeper) = (open.opened.group.group, client.keeper.node());
        let chunk = open.opened.group.layout.columns[0].chunk;
        // Zero is the term that its node follows.
        let (first, second) =
            (orders(cluster.address(1), keeper, 0).await, orders(cluster.address(1), keeper, 0).await);
        let delete = |number, floor| order::Delete { device: far, chunks: vec![chunk], number, floor };
        ask(&second, &delete(8, 7)).await.expect("deleted");
        client.read(&open.path).await.expect_err("it is gone");
        let append = chunk::Append { device: far, chunk, group, generation: 1, level: 2, ..chunk::Append::default() };
        let bytes = Payload::new(Bytes::from_static(b"acknowledged"));
        second.call(&append, bytes).await.expect("it is there anew");
        ask(&first, &delete(8, 7)).await.expect("it was done");
        if planted.is_some() {
            client.read(&open.path).await.expect_err("it is gone again");
            cluster.stop_all().await;
            continue;
        }
        assert_eq!(client.read(&open.path).await.expect("it is there"), b"acknowledged");
        let other = order::Delete { device: far, chunks: vec![77_u128.into()], number: 12, floor: 12 };
        ask(&second, &other).await.expect("it is not there");
        for late in [7, 8, 11] {
            ask(&first, &delete(late, 7)).await.expect("it is not asked any more");
        }
        assert_eq!(client.read(&open.path).await.expect("it is there"), b"acknowledged");
        ask(&second, &delete(13, 13)).await.expect("deleted");
        client.read(&open.path).await.expect_err("that is a new one");
        cluster.stop_all().await;
    }
}

fn seal(device: Id, chunk: &Id) -> chunk::Seal {
    chunk::Seal { device, chunk: *chunk, ..chunk::Seal::default() }
}

/// A node does what its keeper orders after a start of either; what was meant for the start before is not sent to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_start_of_either() {
    let mut cluster = Cluster::start("starts", 2).await;
    for (session, restarted) in [(1, 1), (2, 0), (3, 1), (4, 0)] {
        let client = cluster.client(session).await;
        let far = client.far();
        let mut open = client.create_on(far, &format!("gone{session}-")).await;
        client.append(&mut open, b"removed").await.expect("written");
        client.close(&open).await.expect("closed");
        cluster.stop(restarted).await;
        cluster.run(restarted).await;
        cluster.all_there(2).await;
        // Until its first report it is not silent, and where it was before.
        let link = link_to(&cluster.keeper, 951).await;
        until("it is heard at its new address", async || {
            let view = ask(&link, &cluster::View::default()).await.expect("a view");
            view.members.iter().any(|member| member.node.address == cluster.address(restarted))
        })
        .await;
        let client = cluster.again(client).await;
        let delete = file::Delete { path: open.path.clone(), ..Default::default() };
        ask(&client.keeper, &delete).await.expect("removed");
        until("its chunk is freed", async || {
            let view = ask(&link, &cluster::View::default()).await.expect("a view");
            let stat = chunk::Stat { device: far, chunk: open.opened.group.layout.columns[0].chunk, start: false };
            view.members.len() == 2 && ask(client.at(far), &stat).await.is_err()
        })
        .await;
    }
    cluster.stop_all().await;
}

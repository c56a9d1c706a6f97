//! What Hadoop's clients hear of bytes that a device lost, or does not have at the moment.

use crate::cluster::Cluster;
use crate::drains::do_unserved;
use crate::hdfs_cluster::three;
use crate::hdfs_gateways::{File, of_length, superuser, writer};
use crate::hdfs_user::{User, client_of};
use crate::hdfs_write::{PACKET, Writer};
use base::id::ChunkId;
use chunk::Request;
use gateway_hdfs::message::hdfs::ExtendedBlock;
use gateway_hdfs::message::transfer::SETUP_CREATE;

/// A file that is open at a node's gateway while its chunk is on another one that keeps no metadata; the number of that node.
pub async fn apart(
    cluster: &Cluster,
    at: &mut User,
    gateway: usize,
    name: &str,
) -> (File, ExtendedBlock, Writer, usize, ChunkId) {
    let native = client_of(cluster.address(0)).await;
    for number in 0..100 {
        let file = File::create(at, &format!("/{name}{number}"), "one").await;
        let block = file.add(at, None).await.expect("a block");
        let mut stream = writer(cluster, gateway, &block, SETUP_CREATE).await;
        stream.send_all(0, b"acknowledged", PACKET).await;
        let (extents, _) = native.extents(file.inode, 0).await.expect("it has one");
        let devices = native.devices().await.expect("listed").devices;
        let place = devices
            .iter()
            .find(|device| device.device == extents[0].layout.columns[0].device)
            .expect("it is there")
            .place
            .clone();
        for other in (1..3).filter(|other| *other != gateway) {
            if place.contains(&cluster.directory(other).display().to_string()) {
                return (file, block, stream, other, ChunkId(extents[0].layout.columns[0].chunk.value()));
            }
        }
    }
    panic!("all files are on two nodes");
}

/// A writer's bytes were hflushed, not synced, its device was away when it closed the file, and came back without them: closing it again is
/// refused, with how much is there and how much there was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_short_files_are_not_complete() {
    let mut cluster = three("hdfs-short").await;
    let mut user = superuser(&cluster, 0).await;
    let (file, block, _stream, away, chunk) = apart(&cluster, &mut user, 0, "f").await;
    cluster.stop(away).await;
    let first = file.complete(&mut user, Some(of_length(&block, 12))).await;
    assert!(first.is_err(), "its device is away: {first:?}");
    do_unserved(&cluster.directory(away).join("chunks"), Request::Delete { chunks: vec![chunk] });
    cluster.run(away).await;
    cluster.all_there(3).await;
    let refused = loop {
        match file.complete(&mut user, Some(of_length(&block, 12))).await {
            // The gateway's link to that node is made again.
            Err(refused) if refused.0.ends_with("RetriableException") => {}
            other => break other.expect_err("its bytes are gone"),
        }
    };
    assert!(refused.1.contains("is closed with 0 of 12 bytes"), "{refused:?}");
    cluster.stop_all().await;
}

//! HDFS at every node of a cluster: the same files at each, and the nodes that hold the bytes named first.

use crate::cluster::Cluster;
use crate::hdfs_read::{LOCATIONS, Reader, ask};
use crate::hdfs_user::{CLIENT_PROTOCOL, User, client_of, content};
use bytes::Bytes;
use client::{Client, CreateOptions};
use gateway_hdfs::message::hdfs::{DatanodeInfo, LocatedBlocks};
use gateway_hdfs::message::located::{GetBlockLocations, GetBlockLocationsAnswer};
use gateway_hdfs::message::status::{DatanodeReport, DatanodeReportAnswer, REPORT_LIVE};
use node::Door;
use std::collections::BTreeSet;

/// Three nodes, each with a gateway.
async fn three(name: &str) -> Cluster {
    let mut cluster = Cluster::new(name);
    cluster.hdfs = Door::Near("127.0.0.1:0".to_string());
    for number in 0..3 {
        cluster.run(number).await;
    }
    cluster.all_there(3).await;
    cluster
}

async fn write(client: &Client, path: &str, bytes: &Bytes) {
    let mut writer = client.create(path, CreateOptions::default()).await.expect("the file is new");
    writer.write(bytes.clone()).await.expect("written");
    writer.close().await.expect("closed");
}

fn address_of(datanode: &DatanodeInfo) -> String {
    format!("{}:{}", datanode.id.ip, datanode.id.transfer_port)
}

async fn located(user: &mut User, path: &str) -> LocatedBlocks {
    let ask = GetBlockLocations { path: path.to_string(), offset: 0, length: 1 << 40 };
    let answer: GetBlockLocationsAnswer = user.call(LOCATIONS.0, LOCATIONS.1, &ask).await.expect("located");
    answer.located.expect("blocks")
}

/// What was put through any node is read through the gateway of every node, and through those that each of them names; the first
/// that is named holds the bytes, all gateways name the same one, and the one that was asked is among them. A report of any of them
/// lists all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_everywhere() {
    let cluster = three("hdfs-everywhere").await;
    let superuser = os::user::current().0;
    let mut users = Vec::new();
    for number in 0..3 {
        users.push(User::connect_to(cluster.hdfs_of(number), &superuser).await);
    }
    let mut first_places = BTreeSet::new();
    for file in 0..12u64 {
        let client = client_of(cluster.address(file as usize % 3)).await;
        let (path, bytes) = (format!("/file{file}"), content(1_500_000, file));
        write(&client, &path, &bytes).await;
        let inode = client.stat(&path).await.expect("there").inode;
        let holders = client.holders(inode, 0..bytes.len() as u64, bytes.len() as u64).await.expect("located");
        let hosts = client.hosts().await.expect("told");
        let holder = hosts.iter().find(|host| host.node == holders[0][0]).expect("a node of the cluster");
        for (number, user) in users.iter_mut().enumerate() {
            let here = cluster.hdfs_of(number);
            let located = located(user, &path).await;
            assert_eq!((located.file_length, located.blocks.len()), (bytes.len() as u64, 1));
            let block = &located.blocks[0];
            let places: Vec<String> = block.locations.iter().map(address_of).collect();
            assert_eq!(places[0], holder.hdfs, "{path} at gateway {number}");
            assert!(places.iter().any(|place| place == here), "{places:?} without {here}");
            assert_eq!((block.storage_ids.len(), block.cached.len()), (places.len(), places.len()));
            for place in &places {
                let mut reader = Reader::connect_to(place).await;
                let read = reader.read(&ask(&block.block, 0, bytes.len() as u64)).await.expect("it is there");
                assert!(read.bytes == bytes, "{path} through {place}");
            }
            first_places.insert(places[0].clone());
        }
    }
    assert_eq!(first_places.len(), 3, "files lie on all nodes: {first_places:?}");
    for user in &mut users {
        let report = DatanodeReport { kind: REPORT_LIVE };
        let answer: DatanodeReportAnswer =
            user.call(CLIENT_PROTOCOL, "getDatanodeReport", &report).await.expect("reported");
        let places: BTreeSet<String> = answer.datanodes.iter().map(address_of).collect();
        assert_eq!(places, (0..3).map(|number| cluster.hdfs_of(number).to_string()).collect());
        let names: BTreeSet<&str> = answer.datanodes.iter().map(|datanode| datanode.id.uuid.as_str()).collect();
        assert_eq!(names.len(), 3);
        assert!(answer.datanodes.iter().all(|datanode| datanode.capacity == Some(256 << 20)), "{answer:?}");
    }
    cluster.stop_all().await;
}

//! HDFS at every node of a cluster: the same files at each, and the nodes that hold the bytes named first.

use crate::cluster::Cluster;
use crate::hdfs_read::{LOCATIONS, Reader, ask};
use crate::hdfs_user::{CLIENT_PROTOCOL, User, client_of, content};
use base::error::ErrorKind;
use bytes::Bytes;
use client::{Client, CreateOptions};
use gateway_hdfs::message::files::{
    AddBlock, Append, AppendAnswer, BlockAnswer, CREATE, Complete, Create, CreateAnswer, Truth,
};
use gateway_hdfs::message::hdfs::Permission;
use gateway_hdfs::message::hdfs::{DatanodeInfo, LocatedBlock, LocatedBlocks};
use gateway_hdfs::message::located::{GetBlockLocations, GetBlockLocationsAnswer};
use gateway_hdfs::message::names::{
    BoolAnswer, DeleteRequest, EmptyAnswer, ListingAnswer, ListingRequest, MkdirsRequest, Rename2Request, RenameRequest,
};
use gateway_hdfs::message::status::{DatanodeReport, DatanodeReportAnswer, REPORT_LIVE};
use node::Door;
use std::collections::BTreeSet;

/// Three nodes, each with a gateway.
pub async fn three(name: &str) -> Cluster {
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

/// Who serves a block, the best first.
fn places_of(block: &LocatedBlock) -> Vec<String> {
    block.servers().expect("readable").iter().map(address_of).collect()
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
        let holder = hosts.get(holders[0][0]).expect("a node of the cluster");
        for (number, user) in users.iter_mut().enumerate() {
            let here = cluster.hdfs_of(number);
            let located = located(user, &path).await;
            assert_eq!((located.file_length, located.blocks.len()), (bytes.len() as u64, 1));
            let block = &located.blocks[0];
            let places = places_of(block);
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
    let places = |located: &LocatedBlocks, of_each: usize| -> Vec<(u64, u64, Vec<String>)> {
        let place =
            |block: &LocatedBlock| (block.block.id, block.offset, places_of(block).into_iter().take(of_each).collect());
        located.blocks.iter().chain(&located.last_block).map(place).collect()
    };
    for (number, user) in users.iter_mut().enumerate() {
        let mut single = Vec::new();
        for file in 0..12 {
            single.push(located(user, &format!("/file{file}")).await);
        }
        let before = cluster.calls(0, "file_locate").await;
        let list = ListingRequest { path: "/".to_string(), after: Vec::new(), located: true };
        let answer: ListingAnswer = user.call(CLIENT_PROTOCOL, "getListing", &list).await.expect("listed");
        let entries = answer.listing.expect("there").entries;
        assert_eq!(cluster.calls(0, "file_locate").await, before, "gateway {number} asked for each file of a listing");
        assert_eq!(entries.len(), 12);
        for entry in entries {
            let name = String::from_utf8(entry.path).expect("a name");
            let of: usize = name.strip_prefix("file").and_then(|of| of.parse().ok()).expect("a number");
            let listed = entry.locations.expect("blocks were asked for");
            assert_eq!(listed.file_length, single[of].file_length, "{name} at gateway {number}");
            // Its bytes are on one node: whoever plans by a listing is not told of the gateway that was asked.
            assert_eq!(places(&listed, usize::MAX), places(&single[of], 1), "{name} at gateway {number}");
        }
    }
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
    walked_for_others(&cluster, &mut users[1]).await;
    cluster.stop_all().await;
}

/// What is below is looked at for whoever may lack a right there, and not for a superuser.
async fn walked_for_others(cluster: &Cluster, superuser: &mut User) {
    let mut bob = User::connect_to(cluster.hdfs_of(1), "bob-x").await;
    let delete = DeleteRequest { path: "/".to_string(), recursive: false };
    for (user, walks, class) in [
        (superuser, 0, "org.apache.hadoop.fs.PathIsNotEmptyDirectoryException"),
        (&mut bob, 1, "org.apache.hadoop.security.AccessControlException"),
    ] {
        let before = cluster.calls(0, "file_judge_below").await;
        let answer = user.call::<BoolAnswer>(CLIENT_PROTOCOL, "delete", &delete).await;
        assert_eq!(answer.map_err(|(class, _)| class).expect_err("it is full"), class);
        assert_eq!(cluster.calls(0, "file_judge_below").await - before, walks, "{class}");
    }
}

/// A change that a client asked through one gateway and asks again through another is answered as then, and not made twice, also if
/// the first gateway is gone. Another call of the same client is another change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_asked_at_another_gateway() {
    let mut cluster = three("hdfs-asked-again").await;
    let superuser = os::user::current().0;
    let mut first = User::connect_to(cluster.hdfs_of(1), &superuser).await;
    let mut second = User::connect_to(cluster.hdfs_of(2), &superuser).await;
    let client = client_of(cluster.address(0)).await;
    let masked = Permission { bits: 0o755 };
    for path in ["/a", "/b/in"] {
        let made = MkdirsRequest { path: path.to_string(), masked, parents: true, open: None };
        assert!(first.call::<BoolAnswer>(CLIENT_PROTOCOL, "mkdirs", &made).await.expect("made").result);
    }
    let moved = RenameRequest { from: "/a".to_string(), to: "/b".to_string() };
    let over = Rename2Request { from: "/b/a".to_string(), to: "/c".to_string(), overwrite: false, to_trash: None };
    let gone = DeleteRequest { path: "/b".to_string(), recursive: true };
    for again in [false, true] {
        let user = if again { &mut second } else { &mut first };
        assert!(user.call::<BoolAnswer>(CLIENT_PROTOCOL, "rename", &moved).await.expect("moved").result, "{again}");
        if !again {
            second.go_on_as(&first);
        }
    }
    first.call::<EmptyAnswer>(CLIENT_PROTOCOL, "rename2", &over).await.expect("moved");
    second.go_on_as(&first);
    second.call::<EmptyAnswer>(CLIENT_PROTOCOL, "rename2", &over).await.expect("answered as then");
    assert!(first.call::<BoolAnswer>(CLIENT_PROTOCOL, "delete", &gone).await.expect("deleted").result);
    second.go_on_as(&first);
    client.make_directory("/b", false).await.expect("another one of that name");
    assert!(second.call::<BoolAnswer>(CLIENT_PROTOCOL, "delete", &gone).await.expect("answered as then").result);
    assert!(client.stat("/b").await.is_ok(), "it was not made twice");
    cluster.stop(1).await;
    assert!(second.call::<BoolAnswer>(CLIENT_PROTOCOL, "delete", &gone).await.expect("another call").result);
    assert_eq!(client.stat("/b").await.map_err(|error| error.kind()), Err(ErrorKind::NotFound));
    cluster.stop_all().await;
}

/// A file that a client made through one gateway it goes on writing through another: the answer to the create that it did not hear, the
/// next block, the end. Nothing is there twice, nobody else may, and the first gateway writes no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_files_go_on_at_another_gateway() {
    let cluster = three("hdfs-go-on").await;
    let superuser = os::user::current().0;
    let mut first = User::connect_to(cluster.hdfs_of(1), &superuser).await;
    let mut second = User::connect_to(cluster.hdfs_of(2), &superuser).await;
    let create = |path: &str| Create {
        path: path.to_string(),
        masked: Permission { bits: 0o644 },
        holder: "one".to_string(),
        flags: CREATE,
        parents: true,
        replication: 1,
        block_size: 1 << 20,
        ..Create::default()
    };
    let inode_of = |answer: CreateAnswer| answer.status.and_then(|status| status.inode).expect("clients need it");
    let asked = create("/f");
    let inode = inode_of(first.call(CLIENT_PROTOCOL, "create", &asked).await.expect("made"));
    second.go_on_as(&first);
    let again: CreateAnswer = second.call(CLIENT_PROTOCOL, "create", &asked).await.expect("answered as then");
    assert_eq!(inode_of(again), inode);
    let end = |path: &str, holder: &str, inode, last| {
        let (path, holder) = (path.to_string(), holder.to_string());
        Complete { path, holder, last, inode: Some(inode) }
    };
    let ask_end = end("/f", "one", inode, None);
    assert!(second.call::<Truth>(CLIENT_PROTOCOL, "complete", &ask_end).await.expect("closed").result);

    let asked = create("/g");
    let inode = inode_of(first.call(CLIENT_PROTOCOL, "create", &asked).await.expect("made"));
    let wrong = second.call::<Truth>(CLIENT_PROTOCOL, "complete", &end("/g", "two", inode, None)).await;
    assert!(wrong.expect_err("it is not its own").0.ends_with("LeaseExpiredException"));
    let (path, holder) = ("/g".to_string(), "one".to_string());
    let add = AddBlock { path, holder, previous: None, inode: Some(inode) };
    let block: BlockAnswer = second.call(CLIENT_PROTOCOL, "addBlock", &add).await.expect("its next block");
    let back = first.call::<Truth>(CLIENT_PROTOCOL, "complete", &end("/g", "two", inode, None)).await;
    assert!(back.is_err(), "the first gateway has it no more");
    let last = gateway_hdfs::message::hdfs::ExtendedBlock { length: Some(0), ..block.block.block };
    let ask_end = end("/g", "one", inode, Some(last));
    assert!(second.call::<Truth>(CLIENT_PROTOCOL, "complete", &ask_end).await.expect("closed").result);
    let client = client_of(cluster.address(0)).await;
    for path in ["/f", "/g"] {
        let found = client.stat(path).await.expect("there");
        assert!(!found.open && found.length == 0, "{found:?}");
    }
    assert_eq!(client.list("/", "", 9).await.expect("listed").entries.len(), 2);
    cluster.stop_all().await;
}

/// A file that was open at a gateway, went on at another one and was closed there, is opened again; the answer is lost, and the first
/// gateway is asked again: it opens the file as it is now, not as it knew it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_append_asked_again_where_it_was_open_before() {
    let cluster = three("hdfs-was-open").await;
    let superuser = os::user::current().0;
    let mut users = Vec::new();
    for number in 0..3 {
        users.push(User::connect_to(cluster.hdfs_of(number), &superuser).await);
    }
    let (path, holder) = ("/f".to_string(), "one".to_string());
    let masked = Permission { bits: 0o644 };
    let (flags, parents, replication, block_size) = (CREATE, true, 1, 1 << 20);
    let (at, by) = (path.clone(), holder.clone());
    let create = Create { path: at, masked, holder: by, flags, parents, replication, block_size, ..Create::default() };
    let made: CreateAnswer = users[0].call(CLIENT_PROTOCOL, "create", &create).await.expect("made");
    let inode = made.status.and_then(|status| status.inode);
    let add = AddBlock { path: path.clone(), holder: holder.clone(), previous: None, inode };
    let block: BlockAnswer = users[1].call(CLIENT_PROTOCOL, "addBlock", &add).await.expect("it goes on there");
    let last = Some(gateway_hdfs::message::hdfs::ExtendedBlock { length: Some(0), ..block.block.block });
    let complete = |last| Complete { path: path.clone(), holder: holder.clone(), last, inode };
    assert!(users[1].call::<Truth>(CLIENT_PROTOCOL, "complete", &complete(last)).await.expect("closed").result);

    let append = Append { path: path.clone(), holder: holder.clone(), flags: Some(0) };
    users[2].call::<AppendAnswer>(CLIENT_PROTOCOL, "append", &append).await.expect("open");
    let [first, _, third] = users.as_mut_slice() else { unreachable!("there are three") };
    first.go_on_as(third);
    first.call::<AppendAnswer>(CLIENT_PROTOCOL, "append", &append).await.expect("answered as then");
    assert!(first.call::<Truth>(CLIENT_PROTOCOL, "complete", &complete(None)).await.expect("it is its own").result);
    assert!(!client_of(cluster.address(0)).await.stat(&path).await.expect("there").open);
    cluster.stop_all().await;
}

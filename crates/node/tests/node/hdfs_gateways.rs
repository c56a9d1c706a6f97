//! What a client may ask at any gateway of a cluster, whichever one has its file open: streams stay where they are, leases live, stamps and
//! blocks go on, and two gateways do not undo each other's changes.

use crate::cluster::Cluster;
use crate::hdfs_cluster::three;
use crate::hdfs_user::{CLIENT_PROTOCOL, Refused, User, client_of, content};
use crate::hdfs_write::{BLOCK_SIZE, PACKET, Writer};
use crate::until;
use base::limit::SESSION_LEASE;
use bytes::Bytes;
use gateway_hdfs::message::files::{
    AbandonBlock, AddBlock, Append, AppendAnswer, BlockAnswer, CREATE, Complete, Create, CreateAnswer, Fsync,
    GetAdditionalDatanode, IsFileClosed, NEW_BLOCK, Nothing, RenewLease, Truth, UpdateBlockForPipeline, UpdatePipeline,
};
use gateway_hdfs::message::hdfs::{ExtendedBlock, Permission};
use gateway_hdfs::message::names::{
    AclAnswer, AclEntryProto, AclRequest, BoolAnswer, EmptyAnswer, MkdirsRequest, PathRequest, Rename2Request,
    SetPermissionRequest,
};
use gateway_hdfs::message::transfer::{CHECKSUM_CRC32C, SETUP_APPEND, SETUP_CREATE, SETUP_STREAMING_RECOVERY};
use prost::Message;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub const ALREADY: &str = "org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException";

pub async fn ask<M: Message + Default>(user: &mut User, method: &str, ask: &impl Message) -> Result<M, Refused> {
    user.call(CLIENT_PROTOCOL, method, ask).await
}

/// A superuser's connection to the gateway of a node.
pub async fn superuser(cluster: &Cluster, number: usize) -> User {
    User::connect_to(cluster.hdfs_of(number), &os::user::current().0).await
}

/// A file that a holder has open, and what it asks of it at any gateway.
#[derive(Clone)]
pub struct File {
    pub path: String,
    pub holder: String,
    pub inode: u64,
}

impl File {
    pub async fn create(at: &mut User, path: &str, holder: &str) -> File {
        File::try_create(at, path, holder).await.expect("made")
    }

    pub async fn try_create(at: &mut User, path: &str, holder: &str) -> Result<File, Refused> {
        let create = Create {
            path: path.to_string(),
            masked: Permission { bits: 0o644 },
            holder: holder.to_string(),
            flags: CREATE,
            parents: true,
            replication: 1,
            block_size: BLOCK_SIZE,
            ..Create::default()
        };
        let answer: CreateAnswer = ask(at, "create", &create).await?;
        let inode = answer.status.and_then(|status| status.inode).expect("clients need it");
        Ok(File { path: path.to_string(), holder: holder.to_string(), inode })
    }

    pub async fn append(at: &mut User, path: &str, holder: &str, flags: u32) -> Result<File, Refused> {
        let append = Append { path: path.to_string(), holder: holder.to_string(), flags: Some(flags) };
        let answer: AppendAnswer = ask(at, "append", &append).await?;
        let inode = answer.status.and_then(|status| status.inode).expect("clients need it");
        Ok(File { path: path.to_string(), holder: holder.to_string(), inode })
    }

    pub async fn add(&self, at: &mut User, previous: Option<&ExtendedBlock>) -> Result<ExtendedBlock, Refused> {
        let (path, holder, previous) = (self.path.clone(), self.holder.clone(), previous.cloned());
        let add = AddBlock { path, holder, previous, inode: Some(self.inode) };
        ask::<BlockAnswer>(at, "addBlock", &add).await.map(|answer| answer.block.block)
    }

    pub async fn update(&self, at: &mut User, block: &ExtendedBlock) -> Result<ExtendedBlock, Refused> {
        let update = UpdateBlockForPipeline { block: block.clone(), holder: self.holder.clone() };
        ask::<BlockAnswer>(at, "updateBlockForPipeline", &update).await.map(|answer| answer.block.block)
    }

    pub async fn fsync(&self, at: &mut User) -> Result<Nothing, Refused> {
        let fsync = Fsync { path: self.path.clone(), holder: self.holder.clone(), inode: Some(self.inode) };
        ask(at, "fsync", &fsync).await
    }

    pub async fn complete(&self, at: &mut User, last: Option<ExtendedBlock>) -> Result<bool, Refused> {
        let (path, holder) = (self.path.clone(), self.holder.clone());
        let complete = Complete { path, holder, last, inode: Some(self.inode) };
        ask::<Truth>(at, "complete", &complete).await.map(|answer| answer.result)
    }
}

pub async fn writer(cluster: &Cluster, number: usize, block: &ExtendedBlock, stage: i32) -> Writer {
    let begun = Writer::begin_at(cluster.hdfs_of(number), block, stage, block.generation_stamp, CHECKSUM_CRC32C).await;
    begun.expect("it may write")
}

pub async fn stored(cluster: &Cluster, path: &str) -> Bytes {
    client_of(cluster.address(0)).await.read_small(path).await.expect("it is there")
}

pub fn of_length(block: &ExtendedBlock, length: usize) -> ExtendedBlock {
    ExtendedBlock { length: Some(length as u64), ..block.clone() }
}

/// A client that says no numbers, as those before Hadoop 2.1, ends the file that it opened by its path: also one that has another name by now, and if the path is
/// another file's, which it opened elsewhere, that one. Asked again it hears the same; another holder is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_ended_by_path() {
    let cluster = three("hdfs-ended-by-path").await;
    let (mut first, mut second) = (superuser(&cluster, 1).await, superuser(&cluster, 2).await);
    let end = |path: &str, holder: &str| Complete {
        path: path.to_string(),
        holder: holder.to_string(),
        last: None,
        inode: Some(0),
    };
    let native = client_of(cluster.address(0)).await;
    let is_open = async |path: &str| native.stat(path).await.expect("it is there").open;
    File::create(&mut first, "/f", "one").await;
    let refused = ask::<Truth>(&mut first, "complete", &end("/f", "two")).await.expect_err("it is one's");
    assert!(refused.0.ends_with("LeaseExpiredException"), "{refused:?}");
    assert!(is_open("/f").await);
    for _ in 0..2 {
        assert!(ask::<Truth>(&mut first, "complete", &end("/f", "one")).await.expect("closed").result);
        assert!(!is_open("/f").await);
    }
    File::create(&mut first, "/g", "one").await;
    native.rename("/g", "/h", false).await.expect("renamed");
    assert!(ask::<Truth>(&mut first, "complete", &end("/g", "one")).await.expect("closed").result);
    assert!(!is_open("/h").await);
    File::create(&mut first, "/i", "one").await;
    native.delete("/i", false).await.expect("deleted");
    File::create(&mut second, "/i", "one").await;
    assert!(ask::<Truth>(&mut first, "complete", &end("/i", "one")).await.expect("closed").result);
    assert!(!is_open("/i").await);
    // It learns that the file was taken from it, and does not wait for the keeper's node at the end to close it.
    let _ = ask::<Truth>(&mut second, "complete", &end("/i", "one")).await;
    let refused = ask::<Truth>(&mut first, "complete", &end("/j", "one")).await.expect_err("there is none");
    assert!(refused.0.ends_with("FileNotFoundException"), "{refused:?}");
    cluster.stop_all().await;
}

/// A client whose calls come to another gateway than its data goes on with its stream: fsync, giving back another block, asking for one
/// more server and renewing the lease take nothing from the gateway that writes; of another holder they are refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_streams_stay_where_they_are() {
    let cluster = three("hdfs-streams-stay").await;
    let (mut first, mut second) = (superuser(&cluster, 1).await, superuser(&cluster, 2).await);
    let file = File::create(&mut first, "/f", "one").await;
    let block = file.add(&mut first, None).await.expect("a block");
    let mut stream = writer(&cluster, 1, &block, SETUP_CREATE).await;
    stream.send_all(0, b"first ", PACKET).await;
    file.fsync(&mut second).await.expect("it is its own");
    let other = ExtendedBlock { id: block.id + 1, ..block.clone() };
    let (path, holder) = (file.path.clone(), file.holder.clone());
    let abandon = AbandonBlock { block: other, path, holder, inode: Some(file.inode) };
    ask::<Nothing>(&mut second, "abandonBlock", &abandon).await.expect("it was not the last");
    let (path, holder) = (file.path.clone(), file.holder.clone());
    let more = GetAdditionalDatanode {
        path,
        block: block.clone(),
        holder,
        inode: Some(file.inode),
        ..GetAdditionalDatanode::default()
    };
    let named: BlockAnswer = ask(&mut second, "getAdditionalDatanode", &more).await.expect("named");
    assert_eq!((named.block.locations.len(), named.block.block.id), (1, block.id));
    let pipeline = UpdatePipeline { holder: "one".to_string(), old: block.clone(), new: block.clone() };
    ask::<Nothing>(&mut second, "updatePipeline", &pipeline).await.expect("it is its own");
    let stranger = File { holder: "two".to_string(), path: file.path.clone(), inode: file.inode };
    let refused = stranger.fsync(&mut second).await.expect_err("it is one's");
    assert!(refused.0.ends_with("LeaseExpiredException"), "{refused:?}");
    stream.send_all(6, b"second", PACKET).await;
    stream.end(12).await;
    assert_eq!(file.complete(&mut first, Some(of_length(&block, 12))).await, Ok(true));
    assert_eq!(stored(&cluster, "/f").await, "first second");
    cluster.stop_all().await;
}

/// A block whose stream broke goes on at another gateway, with and without bytes: under a stamp that no gateway gave out before, behind
/// what was acknowledged. The first gateway takes no more of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_blocks_go_on_at_another_gateway() {
    let cluster = three("hdfs-blocks-go-on").await;
    let (mut first, mut second) = (superuser(&cluster, 1).await, superuser(&cluster, 2).await);
    let bytes = content(BLOCK_SIZE as usize + 100_000, 5);
    let (whole, rest) = bytes.split_at(BLOCK_SIZE as usize);
    for (name, written) in [("/empty", 0), ("/begun", 40_000)] {
        let file = File::create(&mut first, name, "one").await;
        let block = file.add(&mut first, None).await.expect("a block");
        let mut stream = writer(&cluster, 1, &block, SETUP_CREATE).await;
        stream.send_all(0, whole, PACKET).await;
        stream.end(BLOCK_SIZE).await;
        let block = file.add(&mut first, Some(&of_length(&block, whole.len()))).await.expect("the next block");
        let mut stream = writer(&cluster, 1, &block, SETUP_CREATE).await;
        if written > 0 {
            stream.send_all(0, &rest[..written], PACKET).await;
        }
        let mut highest = block.generation_stamp;
        for _ in 0..3 {
            let renewed = file.update(&mut first, &block).await.expect("a stamp");
            assert!(renewed.generation_stamp > highest);
            highest = renewed.generation_stamp;
        }
        let renewed = file.update(&mut second, &of_length(&block, written)).await.expect("it goes on here");
        assert!(renewed.id == block.id && renewed.generation_stamp > highest, "{renewed:?} after {highest}");
        let mut onward = writer(&cluster, 2, &renewed, SETUP_STREAMING_RECOVERY).await;
        let pipeline = UpdatePipeline { holder: "one".to_string(), old: block.clone(), new: renewed.clone() };
        ask::<Nothing>(&mut second, "updatePipeline", &pipeline).await.expect("it goes on here");
        onward.send_all(written as u64, &rest[written..], PACKET).await;
        onward.end(rest.len() as u64).await;
        stream.send(written as u64, b"too late").await;
        assert_eq!(stream.said_to_the_end().await, [], "{name}");
        // Back at the first gateway, too, which has seen fewer bytes of this block.
        let at = if written > 0 { &mut first } else { &mut second };
        assert_eq!(file.complete(at, Some(of_length(&renewed, rest.len()))).await, Ok(true), "{name}");
        assert!(stored(&cluster, name).await == bytes, "{name}");
    }
    cluster.stop_all().await;
}

/// A block that begins anywhere, after one that its writer ended early or an append in a new block, goes on at another gateway under its
/// number, and may be the last there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_irregular_blocks_go_on_at_another_gateway() {
    let cluster = three("hdfs-irregular").await;
    let (mut first, mut second) = (superuser(&cluster, 1).await, superuser(&cluster, 2).await);
    let bytes = content(250_000, 6);
    let (begin, rest) = bytes.split_at(100_000);
    for (name, written, appended) in [("/early", 70_000, false), ("/none", 0, false), ("/appended", 70_000, true)] {
        let mut file = File::create(&mut first, name, "one").await;
        let block = file.add(&mut first, None).await.expect("a block");
        let mut stream = writer(&cluster, 1, &block, SETUP_CREATE).await;
        stream.send_all(0, begin, PACKET).await;
        stream.end(begin.len() as u64).await;
        let mut previous = Some(of_length(&block, begin.len()));
        if appended {
            assert_eq!(file.complete(&mut first, previous.take()).await, Ok(true));
            file = File::append(&mut first, name, "one", NEW_BLOCK).await.expect("opened");
        }
        let block = file.add(&mut first, previous.as_ref()).await.expect("the next block");
        let mut stream = writer(&cluster, 1, &block, SETUP_CREATE).await;
        stream.send_all(0, &rest[..written], PACKET).await;
        let renewed = file.update(&mut second, &of_length(&block, written)).await.expect("it goes on here");
        assert_eq!(renewed.id, block.id, "{name}");
        let stage = if written == 0 { SETUP_CREATE } else { SETUP_APPEND };
        let mut onward = writer(&cluster, 2, &renewed, stage).await;
        onward.send_all(written as u64, &rest[written..], PACKET).await;
        onward.end((rest.len()) as u64).await;
        let last = of_length(&renewed, rest.len());
        let next = file.add(&mut second, Some(&last)).await.expect("one more");
        assert!(next.id != last.id, "{next:?}");
        let mut stream = writer(&cluster, 2, &next, SETUP_CREATE).await;
        stream.send_all(0, b"end", PACKET).await;
        stream.end(3).await;
        // And back: the first gateway knows no more of it than the store.
        assert_eq!(file.complete(&mut first, Some(of_length(&next, 3))).await, Ok(true), "{name}");
        assert!(stored(&cluster, name).await == [&bytes[..], b"end"].concat(), "{name}");
    }
    cluster.stop_all().await;
}

/// The gateway of a node that serves under a session of its own again, after the clock went ahead: it ends the connections of the one
/// before.
pub async fn superuser_again(cluster: &Cluster, number: usize, mut before: User) -> User {
    let look = IsFileClosed { path: "/".to_string() };
    let again = async {
        while before.try_call::<Truth>(CLIENT_PROTOCOL, "isFileClosed", &look).await.is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        loop {
            if let Ok(mut user) = User::try_connect_to(cluster.hdfs_of(number), &os::user::current().0).await
                && user.try_call::<Truth>(CLIENT_PROTOCOL, "isFileClosed", &look).await.is_some()
            {
                return user;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), again).await.expect("the gateway serves again")
}

pub async fn is_closed(at: &mut User, path: &str) -> bool {
    ask::<Truth>(at, "isFileClosed", &IsFileClosed { path: path.to_string() }).await.expect("told").result
}

/// A lease lives as long as its holder says so at any gateway or anything of its stream comes, also a heartbeat without bytes; a holder that
/// is silent everywhere loses its file after twenty minutes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_leases_are_renewed_anywhere() {
    let cluster = three("hdfs-leases-anywhere").await;
    let mut first = superuser(&cluster, 0).await;
    let second = superuser(&cluster, 1).await;
    let minutes = |count: u64| Duration::from_secs(60 * count);
    let mut streams = Vec::new();
    for holder in ["calls", "data", "beats", "silent"] {
        let file = File::create(&mut first, &format!("/{holder}"), holder).await;
        let block = file.add(&mut first, None).await.expect("a block");
        let mut stream = writer(&cluster, 0, &block, SETUP_CREATE).await;
        stream.send_all(0, b"first ", PACKET).await;
        streams.push((file, block, stream));
    }
    cluster.ahead(minutes(19));
    let mut second = superuser_again(&cluster, 1, second).await;
    let renew = RenewLease { holder: "calls".to_string() };
    ask::<Nothing>(&mut second, "renewLease", &renew).await.expect("renewed");
    streams[1].2.send_all(6, b"second", PACKET).await;
    streams[2].2.beat().await;
    streams[2].2.heard().await;
    until("the store has heard of it", async || {
        let native = client_of(cluster.address(0)).await;
        let silent = native.holders_heard(Vec::new(), vec!["calls".to_string()]).await.expect("told");
        silent[0] < SESSION_LEASE
    })
    .await;
    cluster.ahead(minutes(2));
    let native = client_of(cluster.address(0)).await;
    until("the silent one lost its file", async || !native.stat("/silent").await.expect("there").open).await;
    let mut first = superuser_again(&cluster, 0, first).await;
    for (place, name) in ["/calls", "/data", "/beats"].into_iter().enumerate() {
        assert!(!is_closed(&mut first, name).await, "{name}");
        let (file, block, stream) = &mut streams[place];
        let from = if name == "/data" { 12 } else { 6 };
        stream.send_all(from, b" end", PACKET).await;
        let last = of_length(block, from as usize + 4);
        assert_eq!(file.complete(&mut first, Some(last)).await, Ok(true), "{name}");
    }
    cluster.stop_all().await;
}

/// A holder that was silent for a minute at every gateway loses its file to whoever asks any of them, and its stream is fenced; one that
/// was heard of at any gateway keeps it. What its first gateway still knows of it then does no harm to the new writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_silent_holders_lose_files_anywhere() {
    let cluster = three("hdfs-silent-anywhere").await;
    let mut first = superuser(&cluster, 0).await;
    let file = File::create(&mut first, "/f", "one").await;
    let block = file.add(&mut first, None).await.expect("a block");
    let mut stream = writer(&cluster, 0, &block, SETUP_CREATE).await;
    stream.send_all(0, b"acknowledged", PACKET).await;
    let mut second = superuser(&cluster, 1).await;
    let refused = File::append(&mut second, "/f", "two", NEW_BLOCK).await.err().expect("one has it");
    assert_eq!(refused.0, ALREADY);
    cluster.ahead(Duration::from_secs(61));
    let mut second = superuser_again(&cluster, 1, second).await;
    let renew = RenewLease { holder: "one".to_string() };
    ask::<Nothing>(&mut second, "renewLease", &renew).await.expect("renewed");
    until("the store has heard of it", async || {
        let native = client_of(cluster.address(0)).await;
        native.holders_heard(Vec::new(), vec!["one".to_string()]).await.expect("told")[0] < SESSION_LEASE
    })
    .await;
    for user in [&mut first, &mut second] {
        let refused = File::append(user, "/f", "two", NEW_BLOCK).await.err().expect("one has it");
        assert_eq!(refused.0, ALREADY, "{refused:?}");
    }
    cluster.ahead(Duration::from_secs(61));
    let mut second = superuser_again(&cluster, 1, second).await;
    let taken = File::append(&mut second, "/f", "two", NEW_BLOCK).await.expect("one was silent");
    stream.send(12, b" too late").await;
    assert_eq!(stream.said_to_the_end().await, []);
    assert!(file.fsync(&mut first).await.is_err(), "it lost it");
    let block = taken.add(&mut second, None).await.expect("a block");
    let mut stream = writer(&cluster, 1, &block, SETUP_CREATE).await;
    stream.send_all(0, b", and more", PACKET).await;
    stream.end(10).await;
    assert_eq!(taken.complete(&mut second, Some(of_length(&block, 10))).await, Ok(true));
    assert_eq!(stored(&cluster, "/f").await, "acknowledged, and more");
    cluster.stop_all().await;
}

/// Lets so many more read a file, one after another.
async fn add_readers(user: &mut User, path: &str, name: &str, count: u32) {
    for number in 0..count {
        let name = Some(format!("{name}{number}"));
        let entry = AclEntryProto { kind: 0, scope: 0, permissions: 4, name };
        let change = AclRequest { path: path.to_string(), entries: vec![entry] };
        ask::<EmptyAnswer>(user, "modifyAclEntries", &change).await.expect("added");
    }
}

/// Entries that two gateways add to one access control list at once are all there in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_lists_are_changed_at_two_gateways() {
    const EACH: u32 = 13;
    let cluster = three("hdfs-lists-at-two").await;
    let mut users = [superuser(&cluster, 1).await, superuser(&cluster, 2).await];
    for path in ["/a", "/b", "/c"] {
        let file = File::create(&mut users[0], path, "one").await;
        assert_eq!(file.complete(&mut users[0], None).await, Ok(true));
        let [first, second] = &mut users;
        tokio::join!(add_readers(first, path, "x", EACH), add_readers(second, path, "y", EACH));
        let status: AclAnswer =
            ask(&mut users[0], "getAclStatus", &PathRequest { path: path.to_string() }).await.expect("told");
        let named = status.status.entries.iter().filter(|entry| entry.name.is_some()).count();
        assert_eq!(named, 2 * EACH as usize, "{path}");
    }
    cluster.stop_all().await;
}

/// Who may change a file of its own at a path changes no other that has the path a moment later, whichever gateway moves it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_what_was_judged_is_what_is_changed() {
    let cluster = three("hdfs-judged").await;
    let (mut first, second) = (superuser(&cluster, 1).await, cluster.hdfs_of(2).to_string());
    let masked = Permission { bits: 0o777 };
    let made = MkdirsRequest { path: "/d".to_string(), masked, parents: true, open: None };
    assert!(ask::<BoolAnswer>(&mut first, "mkdirs", &made).await.expect("made").result);
    let mut alice = User::connect_to(&second, "alice").await;
    let mode = |path: &str, bits| SetPermissionRequest { path: path.to_string(), permission: Permission { bits } };
    let mine = File::create(&mut alice, "/d/mine", "one").await;
    assert_eq!(mine.complete(&mut alice, None).await, Ok(true));
    let theirs = File::create(&mut first, "/d/theirs", "two").await;
    assert_eq!(theirs.complete(&mut first, None).await, Ok(true));
    ask::<EmptyAnswer>(&mut first, "setPermission", &mode("/d/theirs", 0o600)).await.expect("set");
    let over = Arc::new(AtomicBool::new(false));
    let changing = (0..6).map(|_| {
        let (over, second) = (over.clone(), second.clone());
        tokio::spawn(async move {
            let mut alice = User::connect_to(&second, "alice").await;
            let mut changed = 0;
            while !over.load(Ordering::Relaxed) {
                let set = ask::<EmptyAnswer>(&mut alice, "setPermission", &mode("/d/f", 0o666)).await;
                changed += u32::from(set.is_ok());
            }
            changed
        })
    });
    let changing: Vec<_> = changing.collect();
    let rename = |from: &str, to: &str| Rename2Request {
        from: from.to_string(),
        to: to.to_string(),
        overwrite: false,
        to_trash: None,
    };
    for _ in 0..400 {
        for (from, to) in [("/d/mine", "/d/f"), ("/d/f", "/d/mine"), ("/d/theirs", "/d/f"), ("/d/f", "/d/theirs")] {
            ask::<EmptyAnswer>(&mut first, "rename2", &rename(from, to)).await.expect("moved");
        }
    }
    over.store(true, Ordering::Relaxed);
    let mut changed = 0;
    for changing in changing {
        changed += changing.await.expect("it ends");
    }
    let native = client_of(cluster.address(0)).await;
    assert_eq!(native.stat("/d/theirs").await.expect("there").mode, 0o600, "alice changed her own {changed} times");
    assert!(changed > 0 && native.stat("/d/mine").await.expect("there").mode == 0o666, "{changed}");
    cluster.stop_all().await;
}

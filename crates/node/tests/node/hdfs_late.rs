//! Calls that come late to a gateway, after their client went on at another one, and writers that were taken from: nothing that was
//! acknowledged is lost, and nothing is acknowledged that will be.

use crate::Fixture;
use crate::cluster::Cluster;
use crate::hdfs_cluster::three;
use crate::hdfs_gateways::{ALREADY, File, ask, is_closed, of_length, stored, superuser, superuser_again, writer};
use crate::hdfs_user::{Refused, User, client_of, content};
use crate::hdfs_write::{BLOCK_SIZE, PACKET, Writer};
use crate::until;
use base::limit::SESSION_LEASE;
use bytes::Bytes;
use gateway_hdfs::message::files::{
    AbandonBlock, Append, AppendAnswer, NEW_BLOCK, Nothing, RecoverLease, RenewLease, Truth,
};
use gateway_hdfs::message::hdfs::{ExtendedBlock, Permission};
use gateway_hdfs::message::names::{BoolAnswer, EmptyAnswer, MkdirsRequest, Rename2Request, RenameRequest};
use gateway_hdfs::message::transfer::{CHECKSUM_CRC32C, SETUP_APPEND, SETUP_CREATE, SETUP_STREAMING_RECOVERY};
use std::time::Duration;

const EXPIRED: &str = "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException";

async fn recover_lease(at: &mut User, path: &str) {
    let ask_recover = RecoverLease { path: path.to_string(), holder: "recoverer".to_string() };
    let recovered: Truth = ask(at, "recoverLease", &ask_recover).await.expect("recovered");
    assert!(recovered.result);
}

/// What a gateway does that its client asked long ago, while that client went on at another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Late {
    /// The create that opened the file, asked again.
    Create,
    /// The append that did.
    Append,
    /// The file's first block, or the first since it was opened.
    AddBlock,
    /// The end of a file that nothing was written to.
    Complete,
}

impl Late {
    async fn comes(self, file: &File, at: &mut User) -> Result<(), Refused> {
        match self {
            Late::Create => File::try_create(at, &file.path, &file.holder).await.map(drop),
            Late::Append => File::append(at, &file.path, &file.holder, NEW_BLOCK).await.map(drop),
            Late::AddBlock => file.add(at, None).await.map(drop),
            Late::Complete => file.complete(at, None).await.map(drop),
        }
    }
}

/// A create, an append, a call for the first block or for the end of an empty file that comes to another gateway after its client wrote
/// and synced bytes takes none of them away, and leaves the stream where it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_late_calls_take_no_bytes() {
    let cluster = three("hdfs-late-calls").await;
    let native = client_of(cluster.address(0)).await;
    for late in [Late::Create, Late::Append, Late::AddBlock, Late::Complete] {
        let (mut first, mut second) = (superuser(&cluster, 1).await, superuser(&cluster, 2).await);
        let path = format!("/{late:?}");
        let mut file = File::create(&mut first, &path, "one").await;
        let mut before = Bytes::new();
        second.go_on_as(&first);
        if late == Late::Append {
            let block = file.add(&mut first, None).await.expect("a block");
            let mut stream = writer(&cluster, 1, &block, SETUP_CREATE).await;
            stream.send_all(0, b"before ", PACKET).await;
            stream.end(7).await;
            assert_eq!(file.complete(&mut first, Some(of_length(&block, 7))).await, Ok(true));
            before = Bytes::from_static(b"before ");
            file = File::append(&mut first, &path, "one", NEW_BLOCK).await.expect("opened");
            second.go_on_as(&first);
        }
        let block = file.add(&mut first, None).await.expect("a block");
        let mut stream = writer(&cluster, 1, &block, SETUP_CREATE).await;
        stream.send_synced(0, b"synced").await;
        let refused = late.comes(&file, &mut second).await.expect_err("its client has gone on");
        assert_eq!(refused.0, EXPIRED, "{late:?}: {refused:?}");
        assert_eq!(stored(&cluster, &path).await, [&before[..], b"synced"].concat(), "{late:?}");
        // Where the stream is, too, nobody who knows of no block ends it.
        assert_eq!(file.complete(&mut first, None).await, Ok(false), "{late:?}");
        stream.send_all(6, b", and more", PACKET).await;
        stream.end(16).await;
        assert_eq!(file.complete(&mut first, Some(of_length(&block, 16))).await, Ok(true), "{late:?}");
        assert_eq!(stored(&cluster, &path).await, [&before[..], b"synced, and more"].concat(), "{late:?}");
        assert!(!native.stat(&path).await.expect("there").open);
    }
    cluster.stop_all().await;
}

/// A stream that goes on at another gateway behind everything that was synced stays there when a call comes late to a third one from before
/// there was a block: how long the file was when it was opened is known everywhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_late_calls_take_no_stream_that_went_on() {
    let mut cluster = three("hdfs-late-went-on").await;
    for late in [Late::Create, Late::AddBlock, Late::Complete] {
        let (mut first, mut second) = (superuser(&cluster, 1).await, superuser(&cluster, 2).await);
        let mut third = superuser(&cluster, 0).await;
        let path = format!("/{late:?}");
        let file = File::create(&mut first, &path, "one").await;
        third.go_on_as(&first);
        let block = file.add(&mut first, None).await.expect("a block");
        let mut stream = writer(&cluster, 1, &block, SETUP_CREATE).await;
        stream.send_synced(0, b"synced").await;
        let renewed = file.update(&mut second, &of_length(&block, 6)).await.expect("it goes on here");
        let mut onward = writer(&cluster, 2, &renewed, SETUP_STREAMING_RECOVERY).await;
        let refused = late.comes(&file, &mut third).await.expect_err("its client has gone on");
        assert_eq!(refused.0, EXPIRED, "{late:?}: {refused:?}");
        onward.send_all(6, b", and more", PACKET).await;
        onward.end(16).await;
        assert_eq!(file.complete(&mut second, None).await, Ok(false), "{late:?}: asked before there was a block");
        assert_eq!(file.complete(&mut second, Some(of_length(&renewed, 16))).await, Ok(true), "{late:?}");
        assert_eq!(stored(&cluster, &path).await, "synced, and more", "{late:?}");
    }
    // While the metadata are there, what the first gateway has open no more is left alone at once.
    cluster.stop(1).await;
    cluster.stop_all().await;
}

/// The end of a file that comes once more, after its holder has opened it again at its end, closes nothing and takes the stream from nobody:
/// its block is named as it was before. Nor does a call for the block behind that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_ends_of_earlier_writings() {
    let cluster = three("hdfs-earlier-ends").await;
    let (mut first, mut second) = (superuser(&cluster, 1).await, superuser(&cluster, 2).await);
    let file = File::create(&mut first, "/f", "one").await;
    let block = file.add(&mut first, None).await.expect("a block");
    let mut stream = writer(&cluster, 1, &block, SETUP_CREATE).await;
    stream.send_all(0, b"before", PACKET).await;
    stream.end(6).await;
    let earlier = of_length(&block, 6);
    assert_eq!(file.complete(&mut first, Some(earlier.clone())).await, Ok(true));

    let append = Append { path: "/f".to_string(), holder: "one".to_string(), flags: Some(0) };
    let answer: AppendAnswer = ask(&mut first, "append", &append).await.expect("opened");
    let block = answer.block.expect("it has room").block;
    assert!(block.id == earlier.id && block.generation_stamp > earlier.generation_stamp);
    let renewed = file.update(&mut first, &block).await.expect("a stamp");
    let mut stream = writer(&cluster, 1, &renewed, SETUP_APPEND).await;
    let at_all = async |first: &mut User, second: &mut User| {
        for (at, number) in [(first, 1), (second, 2)] {
            assert!(file.complete(at, Some(earlier.clone())).await.is_err(), "at gateway {number}");
            assert!(file.add(at, Some(&earlier)).await.is_err(), "at gateway {number}");
        }
    };
    at_all(&mut first, &mut second).await;
    stream.send_synced(6, b" after").await;
    at_all(&mut first, &mut second).await;
    stream.send_all(12, b" that", PACKET).await;
    stream.end(17).await;
    assert!(file.complete(&mut first, Some(earlier.clone())).await.is_err(), "it is open still");
    // Whoever goes on elsewhere knows the block as it is since.
    assert_eq!(file.complete(&mut second, Some(of_length(&renewed, 17))).await, Ok(true));
    assert_eq!(stored(&cluster, "/f").await, "before after that");
    cluster.stop_all().await;
}

/// A block that was given back and asked for again is its writer's: when the call that gave it back comes once more it does nothing, and
/// whoever began to write the first one writes no more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_blocks_given_back_late() {
    let cluster = three("hdfs-given-back-late").await;
    let mut first = superuser(&cluster, 1).await;
    let file = File::create(&mut first, "/f", "one").await;
    let block = file.add(&mut first, None).await.expect("a block");
    let (path, holder, inode) = (file.path.clone(), file.holder.clone(), Some(file.inode));
    let give_back = AbandonBlock { block: block.clone(), path, holder, inode };
    let mut left = writer(&cluster, 1, &block, SETUP_CREATE).await;
    ask::<Nothing>(&mut first, "abandonBlock", &give_back).await.expect("given back");
    left.send(0, b"too late").await;
    assert_eq!(left.said_to_the_end().await, [], "nothing of it is acknowledged");
    let block = file.add(&mut first, None).await.expect("a block");
    let mut stream = writer(&cluster, 1, &block, SETUP_CREATE).await;
    ask::<Nothing>(&mut first, "abandonBlock", &give_back).await.expect("given back before");
    stream.send_synced(0, b"bytes").await;
    ask::<Nothing>(&mut first, "abandonBlock", &give_back).await.expect("given back before");
    stream.send_all(5, b", and more", PACKET).await;
    stream.end(15).await;
    assert_eq!(file.complete(&mut first, Some(of_length(&block, 15))).await, Ok(true));
    assert_eq!(stored(&cluster, "/f").await, "bytes, and more");
    cluster.stop_all().await;
}

/// A writer from which its file was taken before it wrote a byte writes none any more, also when its group has been collected, and its
/// gateway says of the closed file that it is not open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_writers_without_bytes_are_fenced() {
    let cluster = three("hdfs-fenced-empty").await;
    let (mut first, mut second) = (superuser(&cluster, 1).await, superuser(&cluster, 2).await);
    let file = File::create(&mut first, "/f", "one").await;
    let block = file.add(&mut first, None).await.expect("a block");
    let mut stream = writer(&cluster, 1, &block, SETUP_CREATE).await;
    recover_lease(&mut second, "/f").await;
    // What is collected later is there and gone: so has been whatever was to be collected of this file.
    let native = client_of(cluster.address(0)).await;
    let mut other = native.create("/other", client::CreateOptions::default()).await.expect("made");
    other.write(content(100_000, 1)).await.expect("written");
    other.close().await.expect("closed");
    native.delete("/other", false).await.expect("deleted");
    until("it is collected", async || {
        native.devices().await.expect("told").devices.iter().all(|device| device.live == 0)
    })
    .await;
    stream.send(0, b"too late").await;
    assert_eq!(stream.said_to_the_end().await, [], "nothing of it is acknowledged");
    assert_eq!(stored(&cluster, "/f").await, "");
    for refused in [
        file.fsync(&mut first).await.err(),
        file.add(&mut first, None).await.err(),
        file.complete(&mut first, Some(of_length(&block, 8))).await.err(),
    ] {
        assert_eq!(refused.map(|(class, _)| class).as_deref(), Some(EXPIRED));
    }
    let found = native.stat("/f").await.expect("there");
    assert!(!found.open && found.length == 0, "{found:?}");
    cluster.stop_all().await;
}

/// A file that was opened at its end goes on at another gateway, whether its next block begins where blocks do or its client wants a new
/// one, and whether the answer to the append was heard or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_appends_go_on_at_another_gateway() {
    let mut cluster = three("hdfs-appends-go-on").await;
    let (size, more) = (BLOCK_SIZE as usize, content(1000, 8));
    for (name, length, flags) in [("/bound", size, 0), ("/new", 70_000, NEW_BLOCK), ("/both", size, NEW_BLOCK)] {
        for heard in [true, false] {
            let (mut first, mut second) = (superuser(&cluster, 1).await, superuser(&cluster, 2).await);
            let (path, before) = (format!("{name}{heard}"), content(length, 7));
            let file = File::create(&mut first, &path, "one").await;
            let block = file.add(&mut first, None).await.expect("a block");
            let mut stream = writer(&cluster, 1, &block, SETUP_CREATE).await;
            stream.send_all(0, &before, PACKET).await;
            stream.end(length as u64).await;
            assert_eq!(file.complete(&mut first, Some(of_length(&block, length))).await, Ok(true));
            let mut file = File::append(&mut first, &path, "one", flags).await.expect("opened");
            if !heard {
                second.go_on_as(&first);
                file = File::append(&mut second, &path, "one", flags).await.expect("answered as then");
            }
            let block = file.add(&mut second, None).await.unwrap_or_else(|refused| panic!("{path}: {refused:?}"));
            let mut stream = writer(&cluster, 2, &block, SETUP_CREATE).await;
            stream.send_all(0, &more, PACKET).await;
            stream.end(1000).await;
            assert_eq!(file.complete(&mut second, Some(of_length(&block, 1000))).await, Ok(true), "{path}");
            assert!(stored(&cluster, &path).await == [&before[..], &more].concat(), "{path}");
        }
    }
    // The first gateway learns of it no sooner than it is asked: while the metadata are there it closes nothing of these files.
    cluster.stop(1).await;
    cluster.stop_all().await;
}

/// The first try of a create that reaches the store after the second one, through another gateway, was answered: the file is that other
/// gateway's until this one takes it over, so one of the two goes on with it and not both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_first_tries_that_come_second() {
    let cluster = three("hdfs-come-second").await;
    let (mut first, mut second) = (superuser(&cluster, 1).await, superuser(&cluster, 2).await);
    // A gateway that knows the directory makes files without a look at what is there.
    let known = File::create(&mut second, "/known", "two").await;
    assert_eq!(known.complete(&mut second, None).await, Ok(true));
    let file = File::create(&mut first, "/begun", "one").await;
    second.be_late_as(&first);
    let block = file.add(&mut first, None).await.expect("a block");
    let mut stream = writer(&cluster, 1, &block, SETUP_CREATE).await;
    stream.send_synced(0, b"synced").await;
    let refused = File::try_create(&mut second, "/begun", "one").await.err().expect("it is open there");
    assert_eq!(refused.0, EXPIRED);

    let empty = File::create(&mut first, "/empty", "one").await;
    second.be_late_as(&first);
    let here = File::try_create(&mut second, "/empty", "one").await.expect("it goes on here");
    assert_eq!(here.inode, empty.inode);
    let second_block = here.add(&mut second, None).await.expect("a block");
    let mut second_stream = writer(&cluster, 2, &second_block, SETUP_CREATE).await;
    second_stream.send_all(0, b"here", PACKET).await;
    second_stream.end(4).await;
    assert_eq!(here.complete(&mut second, Some(of_length(&second_block, 4))).await, Ok(true));
    assert_eq!(stored(&cluster, "/empty").await, "here");

    stream.send_all(6, b", and more", PACKET).await;
    stream.end(16).await;
    assert_eq!(file.complete(&mut first, Some(of_length(&block, 16))).await, Ok(true));
    assert_eq!(stored(&cluster, "/begun").await, "synced, and more");
    cluster.stop_all().await;
}

/// A holder that is gone takes no file with it that somebody else has open by now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_leases_end_alone() {
    let cluster = three("hdfs-leases-alone").await;
    let (mut first, second) = (superuser(&cluster, 0).await, superuser(&cluster, 1).await);
    let file = File::create(&mut first, "/f", "gone").await;
    let left = File::create(&mut first, "/left", "gone").await;
    assert!(left.inode > file.inode);
    let native = client_of(cluster.address(0)).await;
    native.recover(file.inode, false).await.expect("closed");
    let file = File::append(&mut first, "/f", "two", NEW_BLOCK).await.expect("it is nobody's");
    let block = file.add(&mut first, None).await.expect("a block");
    let mut stream = writer(&cluster, 0, &block, SETUP_CREATE).await;
    stream.send_all(0, b"first ", PACKET).await;
    cluster.ahead(Duration::from_secs(19 * 60));
    let mut second = superuser_again(&cluster, 1, second).await;
    ask::<Nothing>(&mut second, "renewLease", &RenewLease { holder: "two".to_string() }).await.expect("renewed");
    until("the store has heard of it", async || {
        let silent = native.holders_heard(Vec::new(), vec!["two".to_string()]).await.expect("told");
        silent[0] < SESSION_LEASE
    })
    .await;
    cluster.ahead(Duration::from_secs(2 * 60));
    let native = client_of(cluster.address(0)).await;
    until("the silent one lost its file", async || !native.stat("/left").await.expect("there").open).await;
    let mut first = superuser_again(&cluster, 0, first).await;
    assert!(!is_closed(&mut first, "/f").await);
    stream.send_all(6, b"second", PACKET).await;
    assert_eq!(file.complete(&mut first, Some(of_length(&block, 12))).await, Ok(true));
    assert_eq!(stored(&cluster, "/f").await, "first second");
    cluster.stop_all().await;
}

/// Whoever opens a file at its end while it is being made here, by another spelling of its path, takes it from nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_files_are_made_by_one() {
    const APPENDERS: usize = 4;
    let cluster = three("hdfs-made-by-one").await;
    let mut maker = superuser(&cluster, 1).await;
    let (next, now) = tokio::sync::watch::channel(0);
    let appending: Vec<_> = (0..APPENDERS)
        .map(|number| {
            let (mut now, address) = (now.clone(), cluster.hdfs_of(1).to_string());
            tokio::spawn(async move {
                let mut user = User::connect_to(&address, &os::user::current().0).await;
                let (holder, mut refused) = (format!("appender{number}"), 0);
                loop {
                    let file = *now.borrow_and_update();
                    if file == u32::MAX {
                        return refused;
                    }
                    match File::append(&mut user, &format!("//f{file}"), &holder, NEW_BLOCK).await {
                        Err((class, _)) => refused += u32::from(class == ALREADY),
                        Ok(_) => panic!("f{file} was taken from its maker"),
                    }
                }
            })
        })
        .collect();
    let mut files = Vec::new();
    for file in 0..200 {
        next.send_replace(file);
        let made = File::create(&mut maker, &format!("/f{file}"), "maker").await;
        let block = made.add(&mut maker, None).await.expect("it is the maker's");
        files.push((made, block));
    }
    next.send_replace(u32::MAX);
    let mut refused = 0;
    for appending in appending {
        refused += appending.await.expect("it took none");
    }
    assert!(refused > 0, "they were seen");
    for (made, block) in files {
        assert_eq!(made.complete(&mut maker, Some(of_length(&block, 0))).await, Ok(true));
    }
    cluster.stop_all().await;
}

/// A data stream may name itself as it likes, as hdfs-native's do, which draw a name for each: the block's number and stamp say whose it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_streams_have_any_name() {
    let cluster = three("hdfs-any-name").await;
    let mut first = superuser(&cluster, 1).await;
    let file = File::create(&mut first, "/f", "no stream says so").await;
    let block = file.add(&mut first, None).await.expect("a block");
    let mut stream = writer(&cluster, 1, &block, SETUP_CREATE).await;
    stream.send_all(0, b"bytes", PACKET).await;
    stream.end(5).await;
    let stamped = ExtendedBlock { generation_stamp: block.generation_stamp + 1, ..block.clone() };
    assert!(try_writer(&cluster, &stamped).await.is_err(), "no gateway gave that stamp");
    assert_eq!(file.complete(&mut first, Some(of_length(&block, 5))).await, Ok(true));
    assert!(try_writer(&cluster, &block).await.is_err(), "it is closed");
    cluster.stop_all().await;
}

async fn try_writer(cluster: &Cluster, block: &ExtendedBlock) -> Result<(), i32> {
    let stamp = block.generation_stamp;
    let begun = Writer::begin_at(cluster.hdfs_of(1), block, SETUP_CREATE, stamp, CHECKSUM_CRC32C).await;
    begun.map(drop).map_err(|answer| answer.status)
}

/// A change that is asked again at a gateway while another one makes it is answered as done, whichever of the two was first at the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_asked_at_two_gateways_at_once() {
    let cluster = three("hdfs-two-at-once").await;
    let (mut first, mut second) = (superuser(&cluster, 1).await, superuser(&cluster, 2).await);
    for turn in 0..60 {
        let (from, to) = (format!("/from{turn}"), format!("/to{turn}"));
        let masked = Permission { bits: 0o755 };
        let made = MkdirsRequest { path: from.clone(), masked, parents: true, open: None };
        assert!(ask::<BoolAnswer>(&mut first, "mkdirs", &made).await.expect("made").result);
        second.will_ask_as(&first);
        if turn % 2 == 0 {
            let moved = RenameRequest { from, to };
            let (one, two) = tokio::join!(
                ask::<BoolAnswer>(&mut first, "rename", &moved),
                ask::<BoolAnswer>(&mut second, "rename", &moved)
            );
            assert_eq!(two.map(|answer| answer.result), Ok(true), "turn {turn}, the first one had {one:?}");
        } else {
            let moved = Rename2Request { from, to, overwrite: false, to_trash: None };
            let (one, two) = tokio::join!(
                ask::<EmptyAnswer>(&mut first, "rename2", &moved),
                ask::<EmptyAnswer>(&mut second, "rename2", &moved)
            );
            assert!(two.is_ok(), "turn {turn}: {two:?}, the first one had {one:?}");
        }
    }
    cluster.stop_all().await;
}

/// A rename that was made at one gateway while its first try was held up on the way to another one, where there is nothing to rename any more: it is
/// answered as made, and so it is when it is asked again there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_first_tries_that_find_nothing() {
    let cluster = three("hdfs-find-nothing").await;
    let (mut first, mut second) = (superuser(&cluster, 1).await, superuser(&cluster, 2).await);
    let masked = Permission { bits: 0o755 };
    let made = MkdirsRequest { path: "/from".to_string(), masked, parents: true, open: None };
    assert!(ask::<BoolAnswer>(&mut first, "mkdirs", &made).await.expect("made").result);
    let moved = RenameRequest { from: "/from".to_string(), to: "/to".to_string() };
    assert!(ask::<BoolAnswer>(&mut first, "rename", &moved).await.expect("moved").result);
    second.be_late_as(&first);
    let late = ask::<BoolAnswer>(&mut second, "rename", &moved).await.expect("answered, to nobody");
    assert!(late.result, "the store knows the call, and that it was made");
    second.go_on_as(&first);
    assert!(ask::<BoolAnswer>(&mut second, "rename", &moved).await.expect("answered as then").result);
    assert!(!ask::<BoolAnswer>(&mut second, "rename", &moved).await.expect("answered").result, "another call");
    cluster.stop_all().await;
}

/// A change that a client of a single node asks again after that was started again is answered as then, and not made twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_asked_after_a_restart() {
    let mut fixture = Fixture::start("hdfs-after-restart").await;
    let mut first = User::superuser(&fixture).await;
    let made = MkdirsRequest { path: "/a".to_string(), masked: Permission { bits: 0o755 }, parents: true, open: None };
    assert!(ask::<BoolAnswer>(&mut first, "mkdirs", &made).await.expect("made").result);
    let moved = RenameRequest { from: "/a".to_string(), to: "/b".to_string() };
    assert!(ask::<BoolAnswer>(&mut first, "rename", &moved).await.expect("moved").result);
    fixture.stop().await;
    fixture.run().await;
    let mut again = User::superuser(&fixture).await;
    again.go_on_as(&first);
    assert!(ask::<BoolAnswer>(&mut again, "rename", &moved).await.expect("answered").result, "as then");
    assert!(!ask::<BoolAnswer>(&mut again, "rename", &moved).await.expect("answered").result, "another call");
    fixture.stop().await;
}

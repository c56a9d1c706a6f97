//! Quotas through the HDFS gateway, in the classes and words that HDFS has for them.

use crate::Fixture;
use crate::hdfs_user::{Refused, User, client, content};
use crate::hdfs_write::{BLOCK_SIZE, Open, ask};
use base::error::ErrorKind;
use client::{CreateOptions, PackOptions, PackerOptions};
use gateway_hdfs::message::files::{CREATE, OVERWRITE};
use gateway_hdfs::message::hdfs::Permission;
use gateway_hdfs::message::names::{
    BoolAnswer, DeleteRequest, EmptyAnswer, MkdirsRequest, PathRequest, RenameRequest, SetReplicationRequest,
};
use gateway_hdfs::message::policies::{QuotaAnswer, SetQuotaRequest, SummaryAnswer};

const NAMES: &str = "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException";
const BYTES: &str = "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException";
/// In setQuota: none, and as it was.
const CLEAR: u64 = u64::MAX;
const KEEP: u64 = i64::MAX as u64;

async fn quota(fixture: &Fixture, path: &str, names: u64, bytes: u64) -> Result<(), Refused> {
    let mut root = User::superuser(fixture).await;
    let set = SetQuotaRequest { path: path.to_string(), names, bytes, storage: None };
    root.call::<EmptyAnswer>(crate::hdfs_user::CLIENT_PROTOCOL, "setQuota", &set).await.map(|_| ())
}

async fn mkdirs(fixture: &Fixture, path: &str) -> Result<bool, Refused> {
    let masked = Permission { bits: 0o755 };
    let made = MkdirsRequest { path: path.to_string(), masked, parents: true, open: None };
    ask::<BoolAnswer>(fixture, "mkdirs", &made).await.map(|answer| answer.result)
}

async fn rename(fixture: &Fixture, from: &str, to: &str) -> Result<bool, Refused> {
    let moved = RenameRequest { from: from.to_string(), to: to.to_string() };
    ask::<BoolAnswer>(fixture, "rename", &moved).await.map(|answer| answer.result)
}

/// Names and bytes that count, and the limits.
async fn usage(fixture: &Fixture, path: &str) -> (u64, u64, u64, u64) {
    let of = PathRequest { path: path.to_string() };
    let usage = ask::<QuotaAnswer>(fixture, "getQuotaUsage", &of).await.expect("summed").usage;
    let summary = ask::<SummaryAnswer>(fixture, "getContentSummary", &of).await.expect("summed").summary;
    assert_eq!((summary.quota, summary.space_quota), (usage.quota, usage.space_quota));
    assert_eq!(summary.files + summary.directories, usage.names);
    (usage.names, usage.consumed, usage.quota, usage.space_quota)
}

/// More names than a quota allows are refused whichever way they come, in HDFS's class and words; what goes makes room. A quota can
/// be cleared, and then nothing is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_quotas_of_names() {
    let mut fixture = Fixture::start("hdfs-quotas-of-names").await;
    mkdirs(&fixture, "/q/d").await.expect("made");
    mkdirs(&fixture, "/other/tree").await.expect("made");
    quota(&fixture, "/q", 3, KEEP).await.expect("set");
    Open::new(&fixture, "/q/f").await.complete(&fixture, None).await.expect("closed");
    assert_eq!(usage(&fixture, "/q").await, (3, 0, 3, CLEAR));
    let refused = |count: u64| {
        let text = format!(
            "The NameSpace quota (directories and files) of directory /q is exceeded: quota=3 file count={count}"
        );
        (NAMES.to_string(), text)
    };
    assert_eq!(Open::create(&fixture, "/q/g", "one", CREATE).await.err(), Some(refused(4)));
    assert_eq!(mkdirs(&fixture, "/q/e").await, Err(refused(4)));
    assert_eq!(rename(&fixture, "/other", "/q/d").await, Err(refused(5)));
    let again = Open::create(&fixture, "/q/f", "one", CREATE | OVERWRITE).await.expect("one for another");
    again.complete(&fixture, None).await.expect("closed");
    assert_eq!(rename(&fixture, "/q/f", "/q/d").await, Ok(true), "inside nothing changes");
    let gone = DeleteRequest { path: "/q/d".to_string(), recursive: true };
    assert!(ask::<BoolAnswer>(&fixture, "delete", &gone).await.expect("deleted").result);
    assert_eq!(rename(&fixture, "/other", "/q").await, Ok(true), "there is room now");
    assert_eq!(usage(&fixture, "/q").await, (3, 0, 3, CLEAR));
    quota(&fixture, "/q", CLEAR, KEEP).await.expect("cleared");
    assert_eq!(mkdirs(&fixture, "/q/e").await, Ok(true));
    assert_eq!(usage(&fixture, "/q").await, (4, 0, CLEAR, CLEAR));
    let class = |refused: Result<(), Refused>| refused.expect_err("refused").0;
    assert_eq!(class(quota(&fixture, "/", CLEAR, KEEP).await), "java.lang.IllegalArgumentException");
    assert_eq!(class(quota(&fixture, "/no", 5, KEEP).await), "java.io.FileNotFoundException");
    fixture.stop().await;
}

/// A block counts whole, and as often as its file's replication says, from the moment in which it begins, and exactly when the file
/// is closed: what does not fit is refused before a byte is written. The store's own client is held to the same limit, in words.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_quotas_of_bytes() {
    let mut fixture = Fixture::start("hdfs-quotas-of-bytes").await;
    mkdirs(&fixture, "/q").await.expect("made");
    quota(&fixture, "/q", KEEP, 2 * BLOCK_SIZE).await.expect("set");
    let file = Open::new(&fixture, "/q/f").await;
    let block = file.add(&fixture, None).await.expect("it fits").block;
    let bytes = content(1000, 1);
    file.fill(&fixture, &block, 0, &bytes).await;
    let other = Open::create(&fixture, "/q/g", "two", CREATE).await.expect("it is empty");
    other.add(&fixture, None).await.expect("it fits");
    let third = Open::create(&fixture, "/q/h", "three", CREATE).await.expect("it is empty");
    let text =
        "The DiskSpace quota of /q is exceeded: quota = 2097152 B = 2 MB but diskspace consumed = 3145728 B = 3 MB";
    assert_eq!(third.add(&fixture, None).await.err(), Some((BYTES.to_string(), text.to_string())));
    let last = gateway_hdfs::message::hdfs::ExtendedBlock { length: Some(1000), ..block };
    assert!(file.complete(&fixture, Some(&last)).await.expect("closed"));
    let of = PathRequest { path: "/q".to_string() };
    let used = ask::<QuotaAnswer>(&fixture, "getQuotaUsage", &of).await.expect("summed").usage;
    assert_eq!((used.names, used.consumed), (4, 1000 + BLOCK_SIZE), "one is closed, one has a block");
    for file in [other, third] {
        let gone = DeleteRequest { path: file.path, recursive: false };
        assert!(ask::<BoolAnswer>(&fixture, "delete", &gone).await.expect("deleted").result);
    }
    assert_eq!(usage(&fixture, "/q").await, (2, 1000, CLEAR, 2 * BLOCK_SIZE));
    quota(&fixture, "/q", KEEP, 2500).await.expect("set");
    let copies = |replication| SetReplicationRequest { path: "/q/f".to_string(), replication };
    let refused = ask::<BoolAnswer>(&fixture, "setReplication", &copies(3)).await.expect_err("too much");
    assert_eq!(refused.0, BYTES);
    assert!(ask::<BoolAnswer>(&fixture, "setReplication", &copies(2)).await.expect("set").result);
    assert_eq!(usage(&fixture, "/q").await, (2, 2000, CLEAR, 2500));
    assert_eq!(Open::append(&fixture, "/q/f", 0).await.err().map(|refused| refused.0), Some(BYTES.to_string()));
    assert_eq!(usage(&fixture, "/q").await, (2, 2000, CLEAR, 2500), "the refused append left nothing");

    let client = client(&fixture).await;
    let mut writer = client.create("/q/large", CreateOptions::default()).await.expect("it is empty");
    writer.write(content(501, 2)).await.expect("gathered");
    let error = writer.close().await.expect_err("too much");
    assert_eq!(error.kind(), ErrorKind::OverQuota);
    assert!(error.text().contains("the quota of '/q' is 2500 bytes, and there would be 2501"), "{error}");
    assert_eq!(client.stat("/q/large").await.map_err(|error| error.kind()), Err(ErrorKind::NotFound));
    let mut packer = client.packer(PackerOptions::default());
    packer.put("/q/small", content(501, 3), PackOptions::default()).await.expect("on its way");
    let packed = packer.close().await.expect("answered");
    let kinds: Vec<_> = packed.into_iter().map(|(_, result)| result.map_err(|error| error.kind())).collect();
    assert_eq!(kinds, [Err(ErrorKind::OverQuota)]);
    assert_eq!(usage(&fixture, "/q").await, (2, 2000, CLEAR, 2500));
    fixture.stop().await;
}

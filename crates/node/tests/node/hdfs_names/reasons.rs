//! Why something is refused: what HDFS says first, to whoever he says that he is.

use super::{class_of, refused, start, write};
use crate::hdfs_user::User;
use gateway_hdfs::HdfsAttributes;
use gateway_hdfs::message::names::SetTimesRequest;
use std::time::Duration;

/// What HDFS says first is said first: that a file is there to whoever wants a directory in its place, whatever else he lacks, and what somebody lacks
/// below a directory before that it is full. Times are those to set who may write, owner or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_reasons() {
    let (mut fixture, client, mut root) = start("hdfs-reasons").await;
    let (mut ann, mut bob) = (User::connect(&fixture, "ann-x").await, User::connect(&fixture, "bob-x").await);
    write(&client, "/file", 3, HdfsAttributes::default()).await;
    let there = ("FileAlreadyExistsException".to_string(), "Path is not a directory: /file".to_string());
    assert_eq!(refused(ann.mkdirs("/file", 0o755).await), there);
    root.mkdirs("/open", 0o777).await.expect("made");
    root.chmod("/open", 0o777).await.expect("changed");
    ann.mkdirs("/open/full/in/deep", 0o755).await.expect("made");
    ann.chmod("/open/full", 0o777).await.expect("hers");
    let text = "Permission denied: user=bob-x, access=ALL, inode=\"/open/full/in\":ann-x:supergroup:drwxr-xr-x";
    for recursive in [false, true] {
        let said = refused(bob.delete("/open/full", recursive).await);
        assert_eq!(said, ("AccessControlException".to_string(), text.to_string()), "{recursive}");
    }
    assert_eq!(class_of(ann.delete("/open/full", false).await), "PathIsNotEmptyDirectoryException");
    ann.chmod("/open/full", 0o577).await.expect("hers");
    let times = SetTimesRequest { path: "/open/full".to_string(), modified: 5, accessed: u64::MAX };
    let text = "Permission denied: user=ann-x, access=WRITE, inode=\"/open/full\":ann-x:supergroup:dr-xrwxrwx";
    assert_eq!(refused(ann.just("setTimes", &times).await).1, text);
    assert_eq!(bob.just("setTimes", &times).await, Ok(()));
    fixture.stop().await;
}

/// A user whose name is a sentence of the store's is refused like any other: no refusal is taken for a wish to look and to be asked again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_names_are_only_names() {
    let (mut fixture, _, mut root) = start("hdfs-only-names").await;
    let name = "permission denied: nobody looked yet whether all may go that is below ";
    let mut eve = User::connect(&fixture, name).await;
    for directory in ["/open", "/open/d"] {
        root.mkdirs(directory, 0o777).await.expect("made");
        root.chmod(directory, 0o777).await.expect("changed");
    }
    let answered = tokio::time::timeout(Duration::from_secs(30), eve.rename2("/open/d", "/d", false)).await;
    let (class, text) = refused(answered.expect("answered, not looked at for ever"));
    assert_eq!(class, "AccessControlException");
    assert!(text.starts_with(&format!("Permission denied: user={name}, access=WRITE, inode=\"/\"")), "{text}");
    fixture.stop().await;
}

//! Names, attributes and permissions through the HDFS gateway, in the words of its wire, by several users.

use crate::Fixture;
use crate::hdfs_user::{CLIENT_PROTOCOL, Refused, User, client};
use client::{Client, CreateOptions};
use gateway_hdfs::HdfsAttributes;
use gateway_hdfs::message::files::{
    Append, AppendAnswer, CREATE, Create, CreateAnswer, IsFileClosed, OVERWRITE, RecoverLease,
};
use gateway_hdfs::message::hdfs::{FileStatus, Permission};
use gateway_hdfs::message::located::{GetBlockLocations, GetBlockLocationsAnswer};
use gateway_hdfs::message::names::{
    AclAnswer, AclEntryProto, AclRequest, BatchedListingAnswer, BatchedListingRequest, BlockSizeAnswer, BoolAnswer,
    CheckAccessRequest, ConcatRequest, DeleteRequest, EmptyAnswer, ListingAnswer, ListingRequest, MkdirsRequest,
    PathRequest, Rename2Request, RenameRequest, SetOwnerRequest, SetPermissionRequest, SetReplicationRequest,
    SetTimesRequest, StatusAnswer, TruncateRequest, XattrProto, XattrRequest, XattrsAnswer, XattrsRequest,
};
use gateway_hdfs::message::policies::{
    CodingPoliciesAnswer, CodingPolicyAnswer, QuotaAnswer, SetPolicyRequest, SetQuotaRequest, StoragePoliciesAnswer,
    StoragePolicyAnswer, SummaryAnswer,
};
use prost::Message;

mod reasons;

impl User {
    /// The answer, or the last part of the exception's class and its text.
    async fn ask<M: Message + Default>(&mut self, method: &str, ask: &impl Message) -> Result<M, Refused> {
        let answer = self.call(CLIENT_PROTOCOL, method, ask).await;
        answer.map_err(|(class, text)| (class.rsplit('.').next().unwrap_or_default().to_string(), text))
    }

    async fn whether(&mut self, method: &str, ask: &impl Message) -> Result<bool, Refused> {
        self.ask::<BoolAnswer>(method, ask).await.map(|answer| answer.result)
    }

    async fn just(&mut self, method: &str, ask: &impl Message) -> Result<(), Refused> {
        self.ask::<EmptyAnswer>(method, ask).await.map(|_| ())
    }

    async fn info(&mut self, path: &str) -> Result<Option<FileStatus>, Refused> {
        self.ask::<StatusAnswer>("getFileInfo", &of(path)).await.map(|answer| answer.status)
    }

    async fn status(&mut self, path: &str) -> FileStatus {
        self.info(path).await.expect("allowed").expect("it is there")
    }

    async fn mkdirs(&mut self, path: &str, mode: u32) -> Result<bool, Refused> {
        let masked = Permission { bits: mode & !0o022 };
        let open = Some(Permission { bits: mode });
        self.whether("mkdirs", &MkdirsRequest { path: path.to_string(), masked, parents: true, open }).await
    }

    async fn chmod(&mut self, path: &str, bits: u32) -> Result<(), Refused> {
        let ask = SetPermissionRequest { path: path.to_string(), permission: Permission { bits } };
        self.just("setPermission", &ask).await
    }

    async fn chown(&mut self, path: &str, owner: Option<&str>, group: Option<&str>) -> Result<(), Refused> {
        let (owner, group) = (owner.map(str::to_string), group.map(str::to_string));
        self.just("setOwner", &SetOwnerRequest { path: path.to_string(), owner, group }).await
    }

    async fn delete(&mut self, path: &str, recursive: bool) -> Result<bool, Refused> {
        self.whether("delete", &DeleteRequest { path: path.to_string(), recursive }).await
    }

    async fn rename(&mut self, from: &str, to: &str) -> Result<bool, Refused> {
        self.whether("rename", &RenameRequest { from: from.to_string(), to: to.to_string() }).await
    }

    async fn rename2(&mut self, from: &str, to: &str, overwrite: bool) -> Result<(), Refused> {
        let ask = Rename2Request { from: from.to_string(), to: to.to_string(), overwrite, to_trash: None };
        self.just("rename2", &ask).await
    }

    async fn names(&mut self, path: &str, after: &str) -> Result<Option<(Vec<String>, u32)>, Refused> {
        let ask = ListingRequest { path: path.to_string(), after: after.as_bytes().to_vec(), located: false };
        let answer: ListingAnswer = self.ask("getListing", &ask).await?;
        let name = |status: FileStatus| String::from_utf8(status.path).expect("UTF-8");
        Ok(answer.listing.map(|page| (page.entries.into_iter().map(name).collect(), page.remaining)))
    }

    async fn set_acl(&mut self, method: &str, path: &str, entries: &[AclEntryProto]) -> Result<(), Refused> {
        self.just(method, &AclRequest { path: path.to_string(), entries: entries.to_vec() }).await
    }

    async fn acl(&mut self, path: &str) -> (u32, Vec<AclEntryProto>) {
        let status = self.ask::<AclAnswer>("getAclStatus", &of(path)).await.expect("allowed").status;
        (status.permission.expect("bits").bits, status.entries)
    }
}

fn of(path: &str) -> PathRequest {
    PathRequest { path: path.to_string() }
}

fn entry(scope: u32, kind: u32, permissions: u32, name: &str) -> AclEntryProto {
    AclEntryProto { kind, scope, permissions, name: (!name.is_empty()).then(|| name.to_string()) }
}

fn refused<T: std::fmt::Debug>(result: Result<T, Refused>) -> Refused {
    result.expect_err("it is refused")
}

fn class_of<T: std::fmt::Debug>(result: Result<T, Refused>) -> String {
    refused(result).0
}

async fn write(client: &Client, path: &str, length: usize, note: HdfsAttributes) {
    let options = CreateOptions { parents: true, note: note.encode_to_vec(), ..CreateOptions::default() };
    let mut writer = client.create(path, options).await.expect("the file is new");
    writer.write(vec![7; length].into()).await.expect("written");
    writer.close().await.expect("closed");
}

async fn start(name: &str) -> (Fixture, Client, User) {
    let fixture = Fixture::start(name).await;
    let client = client(&fixture).await;
    let root = User::superuser(&fixture).await;
    (fixture, client, root)
}

/// Directories are made with the bits and owners that HDFS gives, are seen, and are listed in pages; what is not there is said
/// to be missing and is no error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_directories() {
    let (mut fixture, client, mut root) = start("hdfs-directories").await;
    let me = root.name.clone();
    let top = root.status("/").await;
    assert_eq!((top.permission.bits, top.owner, top.group.as_str()), (0o755, me.clone(), "supergroup"));
    assert_eq!(root.mkdirs("/a/b", 0o1777).await, Ok(true));
    assert_eq!(root.mkdirs("/a/b", 0o700).await, Ok(true), "it is there");
    let (above, made) = (root.status("/a").await, root.status("/a/b").await);
    assert_eq!((above.permission.bits, made.permission.bits), (0o755, 0o1755));
    for status in [&above, &made] {
        assert_eq!((status.kind, status.owner.as_str(), status.group.as_str()), (1, me.as_str(), "supergroup"));
        assert_eq!(
            (status.length, status.block_size, status.replication, status.flags),
            (0, Some(0), Some(0), Some(0))
        );
        assert!(status.inode.is_some_and(|inode| inode > 1) && status.path.is_empty() && status.modified > 0);
    }
    write(&client, "/a/f", 5, HdfsAttributes { block_size: 1 << 20, replication: 3, ..HdfsAttributes::default() })
        .await;
    let file = root.status("/a/f").await;
    assert_eq!((file.kind, file.length, file.block_size, file.replication), (2, 5, Some(1 << 20), Some(3)));
    assert_eq!(class_of(root.mkdirs("/a/f", 0o755).await), "FileAlreadyExistsException");
    let expected = ("ParentNotDirectoryException".to_string(), "/a/f (is not a directory)".to_string());
    assert_eq!(refused(root.mkdirs("/a/f/x", 0o755).await), expected);
    let alone =
        MkdirsRequest { path: "/no/where".to_string(), masked: Permission { bits: 0o755 }, parents: false, open: None };
    let expected = ("FileNotFoundException".to_string(), "Parent directory doesn't exist: /no".to_string());
    assert_eq!(refused(root.whether("mkdirs", &alone).await), expected);
    for bad in ["a", "/a//b", "/a/./b", "/../a", "/a:b"] {
        assert_eq!(class_of(root.mkdirs(bad, 0o755).await), "InvalidPathException", "{bad}");
    }
    let long = format!("/{}", "n".repeat(256));
    assert_eq!(class_of(root.mkdirs(&long, 0o755).await), "FSLimitException$PathComponentTooLongException");
    assert_eq!(class_of(root.mkdirs(&"/d".repeat(300), 0o755).await), "IOException");
    for reserved in ["/.reserved", "/.reserved/x", "/a/.snapshot"] {
        assert_eq!(class_of(root.mkdirs(reserved, 0o755).await), "HadoopIllegalArgumentException", "{reserved}");
    }
    for missing in ["/no", "/no/no", &long, "/a/../a", "/.reserved/x"] {
        assert_eq!(root.info(missing).await, Ok(None), "{missing}");
        assert_eq!(root.names(missing, "").await, Ok(None), "{missing}");
    }
    assert_eq!(root.names("/a/f", "").await, Ok(Some((vec![String::new()], 0))));
    for number in 0..1100 {
        client.make_directory(&format!("/many/{number:04}"), true).await.expect("made");
    }
    let (first, more) = root.names("/many", "").await.expect("allowed").expect("there");
    assert!(first.len() == 1000 && first[0] == "0000" && first[999] == "0999" && more > 0, "{more}");
    let (rest, more) = root.names("/many", "0999").await.expect("allowed").expect("there");
    assert!(rest.len() == 100 && rest[0] == "1000" && more == 0);
    let mut ask = BatchedListingRequest { paths: vec![], after: vec![], located: true };
    ask.paths = ["/a", "/no", "/many", "/a/f"].map(str::to_string).to_vec();
    let mut pages: Vec<(u32, usize, bool)> = Vec::new();
    loop {
        let answer: BatchedListingAnswer = root.ask("getBatchedListing", &ask).await.expect("allowed");
        pages.extend(answer.listings.iter().map(|page| (page.path, page.entries.len(), page.failure.is_some())));
        if !answer.more {
            break;
        }
        ask.after = answer.after;
    }
    assert_eq!(pages, [(0, 2, false), (1, 0, true), (2, 1000, false), (2, 100, false), (3, 1, false)]);
    fixture.stop().await;
}

/// The old rename only says whether, and moves into directories; the new one says why not, and replaces what may be replaced.
/// Deleting says false for what is not there, and refuses directories with something in them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_renames() {
    let (mut fixture, client, mut root) = start("hdfs-renames").await;
    for directory in ["/d/in", "/e", "/full/in"] {
        root.mkdirs(directory, 0o755).await.expect("made");
    }
    for file in ["/f", "/g", "/d/f"] {
        write(&client, file, 3, HdfsAttributes::default()).await;
    }
    for (from, to, expected) in [
        ("/no", "/x", false),
        ("/", "/x", false),
        ("/f", "/g", false),
        ("/f", "/d", false),
        ("/f", "/no/x", false),
        ("/f", "/f", true),
        ("/d", "/d", false),
        ("/d", "/d/in/x", false),
        ("/d", "/d/in", false),
        ("/f", "/e", true),
        ("/e/f", "/f", true),
        ("/d/in", "/e", true),
        ("/e/in", "/d/in", true),
    ] {
        assert_eq!(root.rename(from, to).await, Ok(expected), "{from} to {to}");
    }
    let (below_file, bad) = (root.rename("/f", "/g/x").await, root.rename("/f", "/a:b").await);
    assert_eq!(
        (class_of(below_file), class_of(bad)),
        ("ParentNotDirectoryException".into(), "InvalidPathException".into())
    );
    for (from, to, overwrite, class, text) in [
        ("/no", "/x", true, "FileNotFoundException", "rename source /no is not found."),
        ("/", "/x", true, "IOException", "rename source cannot be the root"),
        ("/f", "/", true, "IOException", "rename destination cannot be the root"),
        ("/f", "/f", true, "FileAlreadyExistsException", "The source /f and destination /f are the same"),
        ("/d", "/d/x", true, "IOException", "Rename destination /d/x is a directory or file under source /d"),
        ("/f", "/d", true, "IOException", "Source /f and destination /d must both be directories"),
        ("/d", "/f", true, "IOException", "Source /d and destination /f must both be directories"),
        ("/f", "/g", false, "FileAlreadyExistsException", "rename destination /g already exists"),
        ("/d", "/full", true, "IOException", "rename destination directory is not empty: /full"),
        ("/f", "/no/x", true, "FileNotFoundException", "rename destination parent /no/x not found."),
        ("/f", "/g/x", true, "ParentNotDirectoryException", "/g (is not a directory)"),
    ] {
        let expected = (class.to_string(), text.to_string());
        assert_eq!(refused(root.rename2(from, to, overwrite).await), expected, "{from} to {to}");
    }
    assert_eq!(root.rename2("/f", "/g", true).await, Ok(()), "a file over a file");
    assert_eq!(root.rename2("/d", "/e", true).await, Ok(()), "a directory over an empty one");
    assert_eq!(root.names("/", "").await, Ok(Some((["e", "full", "g"].map(str::to_string).to_vec(), 0))));
    assert_eq!(root.names("/e", "").await, Ok(Some((["f", "in"].map(str::to_string).to_vec(), 0))));
    let expected = ("PathIsNotEmptyDirectoryException".to_string(), "/e is non empty".to_string());
    assert_eq!(refused(root.delete("/e", false).await), expected);
    for (path, recursive, expected) in [
        ("/no", true, false),
        ("/", true, false),
        ("/e/in", false, true),
        ("/g", false, true),
        ("/e", true, true),
        ("/e", true, false),
    ] {
        assert_eq!(root.delete(path, recursive).await, Ok(expected), "{path}");
    }
    fixture.stop().await;
}

/// Whoever is not a superuser may what bits, owners, groups and the sticky bit allow, and is told what not in HDFS's words.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_permissions() {
    let (mut fixture, client, mut root) = start("hdfs-permissions").await;
    let (mut ann, mut bob) = (User::connect(&fixture, "ann-x").await, User::connect(&fixture, "bob-x").await);
    let me = root.name.clone();
    let denied = |user: &str, access: &str, inode: &str| {
        let text = format!("Permission denied: user={user}, access={access}, inode={inode}");
        ("AccessControlException".to_string(), text)
    };
    let at_root = format!("\"/\":{me}:supergroup:drwxr-xr-x");
    assert_eq!(refused(ann.mkdirs("/ann", 0o755).await), denied("ann-x", "WRITE", &at_root));
    root.mkdirs("/shared", 0o1777).await.expect("made");
    root.chmod("/shared", 0o1777).await.expect("changed");
    ann.mkdirs("/shared/ann/in/deep", 0o777).await.expect("everybody may");
    let made = ann.status("/shared/ann/in").await;
    assert_eq!((made.owner.as_str(), made.group.as_str(), made.permission.bits), ("ann-x", "supergroup", 0o755));
    assert_eq!((made.children, ann.status("/shared/ann/in/deep").await.children), (Some(1), Some(0)));
    // Others go through and list, and change nothing.
    assert!(bob.names("/shared/ann", "").await.expect("allowed").is_some());
    let annes = "\"/shared/ann\":ann-x:supergroup:drwxr-xr-x";
    assert_eq!(refused(bob.mkdirs("/shared/ann/bob", 0o755).await), denied("bob-x", "WRITE", annes));
    assert_eq!(refused(bob.rename("/shared/ann/in", "/shared/bob").await), denied("bob-x", "WRITE", annes));
    assert_eq!(refused(bob.delete("/shared/ann/in", true).await), denied("bob-x", "WRITE", annes));
    let sticky = refused(bob.delete("/shared/ann", true).await).1;
    assert!(sticky.starts_with("Permission denied by sticky bit: user=bob-x, path=\"/shared/ann\":ann-x:"), "{sticky}");
    assert!(refused(bob.rename("/shared/ann", "/shared/bob").await).1.starts_with("Permission denied by sticky bit"));
    // Attributes are their owner's.
    let expected = "Permission denied. user=bob-x is not the owner of inode=/shared/ann".to_string();
    assert_eq!(refused(bob.chmod("/shared/ann", 0o777).await).1, expected);
    ann.chmod("/shared/ann", 0o700).await.expect("hers");
    let annes = "\"/shared/ann\":ann-x:supergroup:drwx------";
    assert_eq!(refused(bob.info("/shared/ann/in").await), denied("bob-x", "EXECUTE", annes));
    assert_eq!(refused(bob.names("/shared/ann", "").await), denied("bob-x", "READ_EXECUTE", annes));
    assert_eq!(bob.status("/shared/ann").await.permission.bits, 0o700, "the thing itself is seen");
    let summed = bob.ask::<SummaryAnswer>("getContentSummary", &of("/shared")).await;
    assert_eq!(refused(summed), denied("bob-x", "READ_EXECUTE", annes));
    let times = SetTimesRequest { path: "/shared/ann".to_string(), modified: 5, accessed: u64::MAX };
    assert_eq!(refused(bob.just("setTimes", &times).await), denied("bob-x", "WRITE", annes));
    assert_eq!(ann.just("setTimes", &times).await, Ok(()));
    assert_eq!(ann.status("/shared/ann").await.modified, 5);
    // Owners: superusers give things away; others only to groups of their own.
    let expected = "User ann-x is not a super user (non-super user cannot change owner).".to_string();
    assert_eq!(refused(ann.chown("/shared/ann", Some("bob-x"), None).await).1, expected);
    assert_eq!(refused(ann.chown("/shared/ann", None, Some("wheel")).await).1, "User ann-x does not belong to wheel");
    assert_eq!(ann.chown("/shared/ann", Some("ann-x"), None).await, Ok(()), "it is hers");
    assert_eq!(root.chown("/shared/ann", Some("bob-x"), Some("staff")).await, Ok(()));
    let given = bob.status("/shared/ann").await;
    assert_eq!((given.owner.as_str(), given.group.as_str()), ("bob-x", "staff"));
    assert_eq!(refused(ann.chmod("/shared/ann", 0o777).await).0, "AccessControlException");
    // What is below may keep a tree from being deleted: `in` is still ann's and has something in it.
    let inner = "\"/shared/ann/in\":ann-x:supergroup:drwxr-xr-x";
    assert_eq!(refused(bob.delete("/shared/ann", true).await), denied("bob-x", "ALL", inner));
    let missing = refused(root.chmod("/no", 0o777).await);
    assert_eq!(missing, ("FileNotFoundException".to_string(), "Directory/File does not exist /no".to_string()));
    for (user, access, allowed) in [(&mut ann, 4, false), (&mut bob, 7, true), (&mut root, 7, true)] {
        let ask = CheckAccessRequest { path: "/shared/ann".to_string(), access };
        assert_eq!(user.just("checkAccess", &ask).await.is_ok(), allowed, "{}", user.name);
    }
    let absent = CheckAccessRequest { path: "/no".to_string(), access: 4 };
    assert_eq!(refused(root.just("checkAccess", &absent).await).1, "Path not found: /no");
    write(&client, "/shared/file", 3, HdfsAttributes::default()).await;
    assert_eq!(root.info("/shared/file/x").await, Ok(None), "to a superuser there is nothing");
    let below = refused(ann.info("/shared/file/x").await);
    assert_eq!(below, ("AccessControlException".to_string(), "/shared/file (is not a directory)".to_string()));
    let cut = TruncateRequest { path: "/shared/file".to_string(), length: 1, client: String::new() };
    assert_eq!(class_of(ann.whether("truncate", &cut).await), "AccessControlException");
    assert_eq!(root.delete("/shared", true).await, Ok(true), "superusers may all");
    fixture.stop().await;
}

/// Access control lists are kept, counted in, shown as such, and handed down to what is made below.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_lists() {
    let (mut fixture, client, mut root) = start("hdfs-lists").await;
    let mut bob = User::connect(&fixture, "bob-x").await;
    root.mkdirs("/d", 0o750).await.expect("made");
    assert_eq!(class_of(bob.names("/d", "").await), "AccessControlException");
    root.set_acl("modifyAclEntries", "/d", &[entry(0, 0, 7, "bob-x")]).await.expect("changed");
    assert_eq!(root.acl("/d").await, (0o770, vec![entry(0, 0, 7, "bob-x"), entry(0, 1, 5, "")]));
    assert_eq!(root.status("/d").await.flags, Some(1));
    assert!(bob.names("/d", "").await.expect("named").is_some());
    root.chmod("/d", 0o740).await.expect("changed");
    let denied = refused(bob.names("/d", "").await).1;
    assert!(denied.ends_with(":drwxr-----"), "the mask counts: {denied}");
    root.chmod("/d", 0o770).await.expect("changed");
    root.set_acl("modifyAclEntries", "/d", &[entry(1, 0, 6, "bob-x")]).await.expect("changed");
    bob.mkdirs("/d/x/y", 0o777).await.expect("named");
    let handed = vec![
        entry(0, 0, 6, "bob-x"),
        entry(0, 1, 5, ""),
        entry(1, 0, 7, ""),
        entry(1, 0, 6, "bob-x"),
        entry(1, 1, 5, ""),
        entry(1, 2, 7, ""),
        entry(1, 3, 0, ""),
    ];
    for path in ["/d/x", "/d/x/y"] {
        assert_eq!(root.acl(path).await, (0o770, handed.clone()), "{path}");
    }
    assert_eq!(class_of(bob.set_acl("removeAcl", "/d", &[]).await), "AccessControlException");
    root.set_acl("removeDefaultAcl", "/d", &[]).await.expect("changed");
    root.set_acl("removeAclEntries", "/d", &[entry(0, 0, 0, "bob-x"), entry(0, 2, 0, "")]).await.expect("changed");
    assert_eq!(root.acl("/d").await, (0o750, vec![]));
    assert_eq!(root.status("/d").await.flags, Some(0));
    let whole = [entry(0, 0, 7, ""), entry(0, 1, 0, ""), entry(0, 3, 0, ""), entry(0, 1, 7, "devs")];
    root.set_acl("setAcl", "/d", &whole).await.expect("changed");
    assert_eq!(root.acl("/d").await, (0o770, vec![entry(0, 1, 0, ""), entry(0, 1, 7, "devs")]));
    root.set_acl("removeAcl", "/d", &[]).await.expect("changed");
    assert_eq!(root.acl("/d").await, (0o700, vec![]));
    write(&client, "/f", 1, HdfsAttributes::default()).await;
    let (class, text) = refused(root.set_acl("modifyAclEntries", "/f", &[entry(1, 0, 7, "bob-x")]).await);
    assert!(
        class == "AclException" && text.starts_with("Invalid ACL: only directories may have a default ACL."),
        "{text}"
    );
    let (class, text) = refused(root.set_acl("setAcl", "/f", &[entry(0, 0, 7, "bob-x")]).await);
    let expected = "Invalid ACL: the user, group and other entries are required. Path: /f";
    assert_eq!((class.as_str(), text.as_str()), ("AclException", expected));
    let long: Vec<AclEntryProto> =
        (0..32).map(|number| entry(0, 0, 7, &format!("{number}{}", "n".repeat(200)))).collect();
    assert_eq!(class_of(root.set_acl("modifyAclEntries", "/f", &long[..30]).await), "AclException");
    assert_eq!(root.acl("/f").await, (0o644, vec![]));
    fixture.stop().await;
}

/// What HDFS keeps with files is kept: attributes, policies, labels, replication; sums count them; files are found by number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_kept() {
    let (mut fixture, client, mut root) = start("hdfs-kept").await;
    let mut bob = User::connect(&fixture, "bob-x").await;
    root.mkdirs("/d/in", 0o755).await.expect("made");
    write(&client, "/d/f", 1000, HdfsAttributes::default()).await;
    write(&client, "/d/in/g", 10, HdfsAttributes { replication: 2, ..HdfsAttributes::default() }).await;
    let replication = |path: &str, replication| SetReplicationRequest { path: path.to_string(), replication };
    assert_eq!(root.whether("setReplication", &replication("/d/f", 3)).await, Ok(true));
    assert_eq!(root.whether("setReplication", &replication("/d", 3)).await, Ok(false));
    assert_eq!(root.whether("setReplication", &replication("/no", 3)).await, Ok(false));
    let text = refused(root.whether("setReplication", &replication("/d/f", 600)).await).1;
    assert_eq!(text, "Requested replication factor of 600 exceeds maximum of 512 for /d/f");
    assert_eq!(root.status("/d/f").await.replication, Some(3));
    let summary = root.ask::<SummaryAnswer>("getContentSummary", &of("/d")).await.expect("summed").summary;
    assert_eq!((summary.length, summary.files, summary.directories, summary.consumed), (1010, 2, 2, 3020));
    assert_eq!((summary.quota, summary.space_quota, summary.coding.as_deref()), (u64::MAX, u64::MAX, Some("")));
    let usage = root.ask::<QuotaAnswer>("getQuotaUsage", &of("/d/f")).await.expect("summed").usage;
    assert_eq!((usage.names, usage.consumed), (1, 3000));
    assert_eq!(refused(root.ask::<SummaryAnswer>("getContentSummary", &of("/no")).await).1, "File does not exist: /no");
    let on_file = SetQuotaRequest { path: "/d/f".to_string(), names: 5, bytes: u64::MAX, storage: None };
    let expected = ("PathIsNotDirectoryException".to_string(), "`/d/f': Is not a directory".to_string());
    assert_eq!(refused(root.just("setQuota", &on_file).await), expected);
    let text = refused(bob.just("setQuota", &on_file).await).1;
    assert_eq!(text, "Access denied for user bob-x. Superuser privilege is required for operation setSpaceQuota");
    let quota = |bytes, storage| SetQuotaRequest { path: "/d".to_string(), names: i64::MAX as u64, bytes, storage };
    assert_eq!(class_of(root.just("setQuota", &quota(5, Some(1))).await), "UnsupportedOperationException");
    assert_eq!(root.just("setQuota", &quota(u64::MAX, Some(1))).await, Ok(()), "there is none to clear");
    assert_eq!(root.just("setQuota", &quota(u64::MAX, None)).await, Ok(()), "nor of any other kind");
    let size = root.ask::<BlockSizeAnswer>("getPreferredBlockSize", &of("/d/f")).await.expect("a file").bytes;
    assert_eq!(size, 128 << 20);
    assert_eq!(
        refused(root.ask::<BlockSizeAnswer>("getPreferredBlockSize", &of("/d")).await).1,
        "Path is not a file: /d"
    );
    policies(&mut root, &mut bob).await;
    xattrs(&mut root, &mut bob).await;
    let inode = root.status("/d/in").await.inode.expect("a number");
    let by_number = format!("/.reserved/.inodes/{inode}");
    assert_eq!(root.rename("/d/in", "/moved").await, Ok(true));
    assert_eq!(root.status(&by_number).await.inode, Some(inode));
    assert_eq!(root.status(&format!("{by_number}/g")).await.length, 10);
    assert_eq!(root.names(&by_number, &format!("{by_number}/f")).await, Ok(Some((vec!["g".to_string()], 0))));
    assert_eq!(class_of(root.info("/.reserved/.inodes/77777").await), "FileNotFoundException");
    assert_eq!(root.status("/.reserved/raw/moved/g").await.length, 10);
    assert_eq!(class_of(bob.chmod("/.reserved/raw/moved", 0o777).await), "AccessControlException");
    fixture.stop().await;
}

async fn policies(root: &mut User, bob: &mut User) {
    let set = |path: &str, name: &str| SetPolicyRequest { path: path.to_string(), name: Some(name.to_string()) };
    let all = root.ask::<StoragePoliciesAnswer>("getStoragePolicies", &of("")).await.expect("listed").policies;
    assert_eq!(all.iter().map(|policy| policy.id).collect::<Vec<_>>(), [1, 2, 5, 7, 10, 12, 14, 15]);
    let of_file = |answer: StoragePolicyAnswer| answer.policy.name;
    assert_eq!(root.ask("getStoragePolicy", &of("/d/f")).await.map(of_file), Ok("HOT".to_string()));
    assert_eq!(root.just("setStoragePolicy", &set("/d", "one_ssd")).await, Ok(()));
    assert_eq!(root.ask("getStoragePolicy", &of("/d/f")).await.map(of_file), Ok("ONE_SSD".to_string()));
    assert_eq!(root.status("/d/f").await.storage_policy, Some(10));
    assert_eq!(root.status("/d").await.storage_policy, Some(10));
    assert_eq!(root.just("setStoragePolicy", &set("/d/f", "COLD")).await, Ok(()));
    assert_eq!(root.status("/d/f").await.storage_policy, Some(2));
    assert_eq!(root.just("unsetStoragePolicy", &of("/d/f")).await, Ok(()));
    assert_eq!(root.status("/d/f").await.storage_policy, Some(10));
    assert_eq!(class_of(root.just("setStoragePolicy", &set("/d", "TEPID")).await), "HadoopIllegalArgumentException");
    assert_eq!(class_of(root.just("setStoragePolicy", &set("/no", "COLD")).await), "FileNotFoundException");
    assert_eq!(class_of(bob.just("setStoragePolicy", &set("/d", "COLD")).await), "AccessControlException");
    assert_eq!(class_of(root.just("satisfyStoragePolicy", &of("/d")).await), "UnsupportedActionException");
    let all = root.ask::<CodingPoliciesAnswer>("getErasureCodingPolicies", &of("")).await.expect("listed").policies;
    assert_eq!(all.len(), 5);
    let id = |answer: CodingPolicyAnswer| answer.policy.map(|policy| policy.id);
    assert_eq!(root.ask("getErasureCodingPolicy", &of("/d")).await.map(id), Ok(None));
    assert_eq!(root.just("setErasureCodingPolicy", &set("/d", "RS-3-2-1024k")).await, Ok(()));
    assert_eq!(root.ask("getErasureCodingPolicy", &of("/d/in")).await.map(id), Ok(Some(2)));
    assert_eq!(root.ask("getErasureCodingPolicy", &of("/d/f")).await.map(id), Ok(None), "files are replicated");
    assert_eq!(root.status("/d").await.flags, Some(0), "no client may think that it is striped");
    assert_eq!(
        class_of(root.just("setErasureCodingPolicy", &set("/d", "RS-1-1")).await),
        "HadoopIllegalArgumentException"
    );
    assert_eq!(class_of(root.just("setErasureCodingPolicy", &set("/d/f", "RS-3-2-1024k")).await), "IOException");
    assert_eq!(root.just("unsetErasureCodingPolicy", &of("/d")).await, Ok(()));
    assert_eq!(class_of(root.just("unsetErasureCodingPolicy", &of("/d")).await), "NoECPolicySetException");
    assert_eq!(root.status("/d/f").await.storage_policy, Some(10), "one does not touch the other");
}

async fn xattrs(root: &mut User, bob: &mut User) {
    let xattr = |namespace, name: &str, value: &[u8]| XattrProto {
        namespace,
        name: name.to_string(),
        value: Some(value.to_vec()),
    };
    let set = |xattr: XattrProto, flag| XattrRequest { path: "/d/f".to_string(), xattr: Some(xattr), flag: Some(flag) };
    let get = |xattrs: Vec<XattrProto>| XattrsRequest { path: "/d/f".to_string(), xattrs };
    assert_eq!(root.just("setXAttr", &set(xattr(0, "a", b"1"), 1)).await, Ok(()));
    let text = refused(root.just("setXAttr", &set(xattr(0, "a", b"2"), 1)).await).1;
    assert_eq!(text, "XAttr: a already exists. The REPLACE flag must be specified.");
    let text = refused(root.just("setXAttr", &set(xattr(0, "b", b"2"), 2)).await).1;
    assert_eq!(text, "XAttr: b does not exist. The CREATE flag must be specified.");
    assert_eq!(root.just("setXAttr", &set(xattr(0, "a", b""), 2)).await, Ok(()));
    assert_eq!(root.just("setXAttr", &set(xattr(1, "t", b"3"), 3)).await, Ok(()));
    assert_eq!(class_of(root.just("setXAttr", &set(xattr(0, "c", b"2"), 0)).await), "HadoopIllegalArgumentException");
    assert_eq!(
        class_of(root.just("setXAttr", &set(xattr(0, "c", &[0; 16_384]), 1)).await),
        "HadoopIllegalArgumentException"
    );
    for namespace in [2, 3, 4, 9] {
        let ask = set(xattr(namespace, "c", b"2"), 1);
        assert_eq!(class_of(root.just("setXAttr", &ask).await), "AccessControlException", "{namespace}");
    }
    assert_eq!(class_of(bob.just("setXAttr", &set(xattr(0, "c", b"2"), 1)).await), "AccessControlException");
    let seen = root.ask::<XattrsAnswer>("listXAttrs", &of("/d/f")).await.expect("allowed").xattrs;
    let empty = XattrProto { namespace: 0, name: "a".to_string(), value: None };
    assert_eq!(seen, [xattr(1, "t", b"3"), empty.clone()]);
    let seen = bob.ask::<XattrsAnswer>("getXAttrs", &get(vec![])).await.expect("allowed").xattrs;
    assert_eq!(seen, [empty], "trusted ones are superusers'");
    let absent = root.ask::<XattrsAnswer>("listXAttrs", &of("/no")).await;
    assert_eq!(refused(absent), ("FileNotFoundException".to_string(), "cannot find /no".to_string()));
    let one = root.ask::<XattrsAnswer>("getXAttrs", &get(vec![xattr(1, "t", b"")])).await.expect("there").xattrs;
    assert_eq!(one, [xattr(1, "t", b"3")]);
    let missing = root.ask::<XattrsAnswer>("getXAttrs", &get(vec![xattr(0, "zz", b"")])).await;
    assert_eq!(class_of(missing), "XAttrNotFoundException");
    for number in 0..30 {
        root.just("setXAttr", &set(xattr(0, &format!("n{number}"), b""), 1)).await.expect("room");
    }
    let text = refused(root.just("setXAttr", &set(xattr(0, "more", b""), 1)).await).1;
    assert_eq!(text, "Cannot add additional XAttr to inode, would exceed limit of 32");
    assert_eq!(root.just("removeXAttr", &set(xattr(0, "a", b""), 0)).await, Ok(()));
    let text = refused(root.just("removeXAttr", &set(xattr(0, "a", b""), 0)).await).1;
    assert_eq!(text, "No matching attributes found for remove operation");
    let hidden = XattrProto { namespace: 2, name: "hdfs.unreadable.by.superuser".to_string(), value: None };
    let with_value = XattrProto { value: Some(vec![]), ..hidden.clone() };
    assert_eq!(class_of(root.just("setXAttr", &set(with_value, 1)).await), "AccessControlException");
    let of_directory = XattrRequest { path: "/d".to_string(), xattr: Some(hidden.clone()), flag: Some(1) };
    let expected = "Can only set 'security.hdfs.unreadable.by.superuser' on a file.".to_string();
    assert_eq!(refused(root.just("setXAttr", &of_directory).await).1, expected);
    let locate = GetBlockLocations { path: "/d/f".to_string(), offset: 0, length: 10 };
    assert!(root.ask::<GetBlockLocationsAnswer>("getBlockLocations", &locate).await.is_ok());
    assert_eq!(root.just("setXAttr", &set(hidden.clone(), 1)).await, Ok(()));
    let text = refused(root.ask::<GetBlockLocationsAnswer>("getBlockLocations", &locate).await).1;
    assert!(text.starts_with("Access is denied for ") && text.contains("superuser is not allowed"), "{text}");
    assert!(bob.ask::<GetBlockLocationsAnswer>("getBlockLocations", &locate).await.is_ok());
    assert_eq!(class_of(root.just("removeXAttr", &set(hidden, 0)).await), "AccessControlException");
}

/// Files are joined and cut as HDFS does it, and refused with its reasons.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_joined_and_cut() {
    let (mut fixture, client, mut root) = start("hdfs-joined").await;
    for (path, length) in [("/d/a", 10), ("/d/b", 20), ("/d/c", 30), ("/d/empty", 0), ("/e/x", 5)] {
        write(&client, path, length, HdfsAttributes::default()).await;
    }
    write(&client, "/d/large", 5, HdfsAttributes { block_size: 256 << 20, ..HdfsAttributes::default() }).await;
    let open = client.create("/d/open", CreateOptions::default()).await.expect("new");
    let join = |target: &str, sources: &[&str]| ConcatRequest {
        target: target.to_string(),
        sources: sources.iter().map(|source| source.to_string()).collect(),
    };
    for (target, sources, class, text) in [
        ("/d/a", &[][..], "IllegalArgumentException", "No sources given"),
        ("/no", &["/d/b"], "FileNotFoundException", "File does not exist: /no"),
        ("/d/a", &["/d/no"], "FileNotFoundException", "File does not exist: /d/no"),
        ("/d/a", &["/d"], "FileNotFoundException", "Path is not a file: /d"),
        (
            "/d/a",
            &["/d/a"],
            "HadoopIllegalArgumentException",
            "concat: the src file /d/a is the same with the target file /d/a",
        ),
        (
            "/d/a",
            &["/d/b", "/d/b"],
            "HadoopIllegalArgumentException",
            "concat: at least two of the source files are the same",
        ),
        (
            "/d/a",
            &["/e/x"],
            "HadoopIllegalArgumentException",
            "Source file /e/x is not in the same directory with the target /d/a",
        ),
        (
            "/d/a",
            &["/d/empty"],
            "HadoopIllegalArgumentException",
            "concat: source file /d/empty is invalid or empty or underConstruction",
        ),
        ("/d/open", &["/d/b"], "HadoopIllegalArgumentException", "concat: target file /d/open is under construction"),
        (
            "/d/a",
            &["/.reserved/raw/d/b"],
            "IOException",
            "Concat operation doesn't support /.reserved relative path : /.reserved/raw/d/b",
        ),
    ] {
        let got = refused(root.just("concat", &join(target, sources)).await);
        assert_eq!(got, (class.to_string(), text.to_string()), "{target} {sources:?}");
    }
    let got = refused(root.just("concat", &join("/d/a", &["/d/large"])).await).1;
    assert!(
        got.starts_with("concat: source file /d/large has preferred block size 268435456 which is greater"),
        "{got}"
    );
    assert_eq!(root.just("concat", &join("/d/a", &["/d/b", "/d/c"])).await, Ok(()));
    assert_eq!((root.status("/d/a").await.length, root.info("/d/b").await), (60, Ok(None)));
    let cut = |path: &str, length| TruncateRequest { path: path.to_string(), length, client: "c".to_string() };
    assert_eq!(root.whether("truncate", &cut("/d/a", 7)).await, Ok(true));
    assert_eq!(root.status("/d/a").await.length, 7);
    let text = refused(root.whether("truncate", &cut("/d/a", 8)).await).1;
    assert_eq!(text, "Cannot truncate to a larger file size. Current size: 7, truncate size: 8.");
    assert_eq!(refused(root.whether("truncate", &cut("/d", 8)).await).1, "Path is not a file: /d");
    assert_eq!(class_of(root.whether("truncate", &cut("/d/open", 0)).await), "AlreadyBeingCreatedException");
    drop(open);
    fixture.stop().await;
}

/// A multipart upload ends with one concat of all its parts, which may be hundreds: they are joined in their order, all or none, and
/// more than may be is refused before anything is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_joined_of_many() {
    let (mut fixture, client, mut root) = start("hdfs-many").await;
    let (mut sources, mut whole) = (Vec::new(), vec![7; 10]);
    write(&client, "/d/whole", 10, HdfsAttributes::default()).await;
    for number in 0..300_usize {
        let (path, bytes) = (format!("/d/part-{number}"), vec![number as u8; 1 + number % 50]);
        let mut writer = client.create(&path, CreateOptions::default()).await.expect("the file is new");
        writer.write(bytes.clone().into()).await.expect("written");
        writer.close().await.expect("closed");
        whole.extend(bytes);
        sources.push(path);
    }
    let too_many = ConcatRequest { target: "/d/whole".to_string(), sources: vec![sources[0].clone(); 4097] };
    let got = refused(root.just("concat", &too_many).await).1;
    assert!(got.starts_with("concat: 4097 source files, and 4096 are the most at once; nothing was changed"), "{got}");
    sources.push("/d/none".to_string());
    let join = |sources: &[String]| ConcatRequest { target: "/d/whole".to_string(), sources: sources.to_vec() };
    assert_eq!(class_of(root.just("concat", &join(&sources)).await), "FileNotFoundException");
    assert_eq!(root.status("/d/whole").await.length, 10, "none was joined");
    sources.pop();
    assert_eq!(root.just("concat", &join(&sources)).await, Ok(()));
    assert!(client.read_small("/d/whole").await.expect("it is there") == whole);
    assert_eq!((root.info(&sources[0]).await, root.info(&sources[299]).await), (Ok(None), Ok(None)));
    fixture.stop().await;
}

/// Files are born with the owner, group, bits and list that HDFS gives; making, replacing, appending to, reading and closing
/// them needs the rights that HDFS asks for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_files_belong() {
    let (mut fixture, _client, mut root) = start("hdfs-belong").await;
    let (mut ann, mut bob) = (User::connect(&fixture, "ann-x").await, User::connect(&fixture, "bob-x").await);
    root.mkdirs("/ann", 0o755).await.expect("made");
    root.chown("/ann", Some("ann-x"), Some("staff")).await.expect("given");
    let create = |path: &str, flags, policy: Option<&str>| Create {
        path: path.to_string(),
        masked: Permission { bits: 0o640 },
        holder: "holder".to_string(),
        flags,
        parents: true,
        replication: 3,
        block_size: 1 << 20,
        unmasked: Some(Permission { bits: 0o666 }),
        erasure_coding: None,
        storage_policy: policy.map(str::to_string),
    };
    let refusal = refused(bob.ask::<CreateAnswer>("create", &create("/ann/f", CREATE, None)).await);
    let expected = "Permission denied: user=bob-x, access=WRITE, inode=\"/ann\":ann-x:staff:drwxr-xr-x";
    assert_eq!(refusal, ("AccessControlException".to_string(), expected.to_string()));
    let made = ann.ask::<CreateAnswer>("create", &create("/ann/x/y/f", CREATE, Some("cold"))).await.expect("hers");
    let status = made.status.expect("a status");
    assert_eq!((status.owner.as_str(), status.group.as_str(), status.permission.bits), ("ann-x", "staff", 0o640));
    assert_eq!((status.block_size, status.storage_policy), (Some(1 << 20), Some(2)));
    let above = root.status("/ann/x").await;
    assert_eq!((above.owner.as_str(), above.group.as_str(), above.permission.bits), ("ann-x", "staff", 0o755));
    assert_eq!(root.status("/ann/x/y/f").await.replication, Some(3));
    let closed = IsFileClosed { path: "/ann/x/y/f".to_string() };
    assert_eq!(bob.whether("isFileClosed", &closed).await, Ok(false));
    let recover = RecoverLease { path: "/ann/x/y/f".to_string(), holder: "other".to_string() };
    assert_eq!(class_of(bob.whether("recoverLease", &recover).await), "AccessControlException");
    assert_eq!(ann.whether("recoverLease", &recover).await, Ok(true));
    assert_eq!(bob.whether("isFileClosed", &closed).await, Ok(true));
    let locate = GetBlockLocations { path: "/ann/x/y/f".to_string(), offset: 0, length: 10 };
    let refusal = refused(bob.ask::<GetBlockLocationsAnswer>("getBlockLocations", &locate).await).1;
    assert!(refusal.contains("access=READ, inode=\"/ann/x/y/f\":ann-x:staff:-rw-r-----"), "{refusal}");
    let append = |path: &str| Append { path: path.to_string(), holder: "holder".to_string(), flags: Some(4) };
    ann.chmod("/ann/x/y/f", 0o644).await.expect("hers");
    assert!(bob.ask::<GetBlockLocationsAnswer>("getBlockLocations", &locate).await.is_ok());
    assert_eq!(class_of(bob.ask::<AppendAnswer>("append", &append("/ann/x/y/f")).await), "AccessControlException");
    assert_eq!(class_of(ann.ask::<AppendAnswer>("append", &append("/ann/no")).await), "FileNotFoundException");
    assert!(ann.ask::<AppendAnswer>("append", &append("/ann/x/y/f")).await.is_ok());
    // Whoever may write in the directory still needs the file's own right to replace it.
    ann.chmod("/ann/x/y", 0o777).await.expect("hers");
    let replace = create("/ann/x/y/f", CREATE | OVERWRITE, None);
    let refusal = refused(bob.ask::<CreateAnswer>("create", &replace).await).1;
    assert!(refusal.contains("access=WRITE, inode=\"/ann/x/y/f\""), "{refusal}");
    root.set_acl("modifyAclEntries", "/ann", &[entry(1, 0, 6, "bob-x")]).await.expect("changed");
    let made = ann.ask::<CreateAnswer>("create", &create("/ann/new/g", CREATE, None)).await.expect("hers");
    let status = made.status.expect("a status");
    assert_eq!((status.permission.bits, status.flags), (0o664, Some(1)), "the bits without the umask, and a list");
    assert_eq!(root.acl("/ann/new/g").await, (0o664, vec![entry(0, 0, 6, "bob-x"), entry(0, 1, 5, "")]));
    assert_eq!(root.acl("/ann/new").await.1.len(), 7, "what was made on the way hands on");
    for (bad, class) in [
        (create("/ann/h", CREATE, Some("tepid")), "HadoopIllegalArgumentException"),
        (
            Create { erasure_coding: Some("RS-1-1".to_string()), ..create("/ann/h", CREATE, None) },
            "HadoopIllegalArgumentException",
        ),
        (Create { replication: 0, ..create("/ann/h", CREATE, None) }, "IOException"),
        (Create { parents: false, ..create("/ann/no/h", CREATE, None) }, "FileNotFoundException"),
        (create("/ann/x", CREATE, None), "FileAlreadyExistsException"),
        (create("/ann/h:h", CREATE, None), "InvalidPathException"),
    ] {
        assert_eq!(class_of(ann.ask::<CreateAnswer>("create", &bad).await), class, "{bad:?}");
    }
    assert_eq!(root.info("/ann/h").await, Ok(None));
    fixture.stop().await;
}

/// What the gateway remembers of directories is never older than the last change that was answered: rights that were taken, a
/// directory that was renamed or went, and a name that somebody else took count for the next call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_remembers_nothing_stale() {
    let (mut fixture, client, mut root) = start("hdfs-remembered").await;
    let mut bob = User::connect(&fixture, "bob-r").await;
    root.mkdirs("/d", 0o777).await.expect("made");
    root.chmod("/d", 0o777).await.expect("open to all");
    for name in ["x", "y", "z"] {
        assert_eq!(bob.mkdirs(&format!("/d/{name}"), 0o755).await, Ok(true));
    }
    write(&client, "/d/f", 10, HdfsAttributes::default()).await;
    assert_eq!(bob.rename("/d/f", "/d/g").await, Ok(true));
    assert_eq!(bob.rename("/d/f", "/d/h").await, Ok(false), "there is nothing of that name any more");
    assert_eq!(bob.rename("/d/g", "/d/x").await, Ok(true), "into the directory that is there");
    assert_eq!(bob.info("/d/x/g").await.map(|found| found.is_some()), Ok(true));
    assert_eq!(
        bob.mkdirs("/d/x/g", 0o755).await.map_err(|refusal| refusal.0),
        Err("FileAlreadyExistsException".into())
    );
    assert_eq!(class_of(bob.delete("/d/x", false).await), "PathIsNotEmptyDirectoryException");
    // Nobody may remove from a sticky directory what others own.
    root.chmod("/d", 0o1777).await.expect("changed");
    root.mkdirs("/d/hers", 0o755).await.expect("made");
    assert_eq!(class_of(bob.delete("/d/hers", true).await), "AccessControlException");
    assert_eq!(class_of(bob.rename("/d/hers", "/d/his").await), "AccessControlException");
    assert_eq!(bob.delete("/d/y", false).await, Ok(true));
    root.chmod("/d", 0o755).await.expect("changed");
    assert_eq!(class_of(bob.mkdirs("/d/w", 0o755).await), "AccessControlException");
    assert_eq!(class_of(bob.delete("/d/z", false).await), "AccessControlException");
    assert_eq!(class_of(bob.rename2("/d/z", "/d/x/z", false).await), "AccessControlException");
    assert_eq!(bob.mkdirs("/d/x/own", 0o755).await, Ok(true));
    // By another way than the gateway.
    client.rename("/d", "/e", false).await.expect("renamed");
    assert_eq!(bob.info("/d/x/own").await, Ok(None));
    assert_eq!(class_of(bob.mkdirs("/d/x/more", 0o755).await), "AccessControlException", "the root is not his");
    assert_eq!(bob.mkdirs("/e/x/more", 0o755).await, Ok(true));
    client.delete("/e/x", true).await.expect("deleted");
    write(&client, "/e/x", 10, HdfsAttributes::default()).await;
    assert_eq!(class_of(root.mkdirs("/e/x/more", 0o755).await), "ParentNotDirectoryException");
    fixture.stop().await;
}

/// Who removes a tree removes no file from a directory that was empty, and not that user's to empty, when it was looked at: either that file
/// was not made, or the tree stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_removed_trees_take_no_unseen_files() {
    let mut fixture = Fixture::start("hdfs-unseen-files").await;
    let mut root = User::superuser(&fixture).await;
    root.chmod("/", 0o777).await.expect("set");
    let (mut ann, mut bob) = (User::connect(&fixture, "ann-x").await, User::connect(&fixture, "bob-x").await);
    let (mut removed, mut kept) = (0, 0);
    for round in 0..300 {
        let (tree, inner) = (format!("/t{round}"), format!("/t{round}/bobs"));
        assert_eq!(ann.mkdirs(&tree, 0o777).await, Ok(true));
        ann.chmod(&tree, 0o777).await.expect("set");
        assert_eq!(bob.mkdirs(&inner, 0o700).await, Ok(true));
        let create = Create {
            path: format!("{inner}/f"),
            masked: Permission { bits: 0o600 },
            holder: "bob".to_string(),
            flags: CREATE,
            replication: 1,
            block_size: 1 << 20,
            ..Create::default()
        };
        let delete = DeleteRequest { path: tree, recursive: true };
        let making = async {
            // Earlier or later in what the other one does.
            for _ in 0..20 * (round % 50) {
                tokio::task::yield_now().await;
            }
            bob.ask::<CreateAnswer>("create", &create).await
        };
        let (deleted, made) = tokio::join!(ann.whether("delete", &delete), making);
        match (deleted, made) {
            (Ok(true), Err(_)) => removed += 1,
            (Err((class, _)), Ok(_)) => {
                assert_eq!(class, "AccessControlException");
                assert!(bob.info(&format!("{inner}/f")).await.expect("allowed").is_some());
                kept += 1;
            }
            other => panic!("round {round}: {other:?}"),
        }
    }
    assert!(removed > 0 && kept > 0, "{removed} removed, {kept} kept");
    fixture.stop().await;
}

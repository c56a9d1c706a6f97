//! Users of native clients: what they may is judged by the store, as what Hadoop's clients may.

use crate::Fixture;
use crate::hdfs_user::{client_as, content};
use base::error::{Error, ErrorKind};
use base::permission::Denied;
use client::{Client, CreateOptions, NewAttributes, PackOptions, PackerOptions, User};

async fn of(fixture: &Fixture, name: &str, groups: &[&str]) -> Client {
    let groups = groups.iter().map(|group| group.to_string()).collect();
    client_as(fixture.address(), User { name: name.to_string(), groups }).await
}

/// What is said to somebody who may not.
fn denied<T>(result: Result<T, Error>) -> String {
    let Err(error) = result else { panic!("it is not denied") };
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    error.text().to_string()
}

async fn write(client: &Client, path: &str, mode: u32) -> Result<(), Error> {
    let options = CreateOptions { mode: Some(mode), ..CreateOptions::default() };
    let mut writer = client.create(path, options).await?;
    writer.write(content(5_000, 1)).await?;
    writer.close().await.map(drop)
}

async fn set(client: &Client, path: &str, mode: u32) -> Result<(), Error> {
    client.set_attributes(path, NewAttributes { mode: Some(mode), ..NewAttributes::default() }).await
}

/// A user makes, reads and removes what owners, bits and groups allow, and is told what not; whoever runs the server may all.
#[tokio::test(flavor = "multi_thread")]
async fn native_clients_are_judged() {
    let mut fixture = Fixture::start("users-native").await;
    let (name, groups) = os::user::with_groups();
    let root = client_as(fixture.address(), User { name: name.clone(), groups }).await;
    let (ada, bob) = (of(&fixture, "ada-x", &["staff-x"]).await, of(&fixture, "bob-x", &["staff-x"]).await);
    let eve = of(&fixture, "eve-x", &["supergroup"]).await;
    let expected = format!(
        "permission denied: user ada-x may not write in / (owner {name}:supergroup, drwxr-xr-x); nothing was done"
    );
    assert_eq!(denied(ada.make_directory("/d", false).await), expected);
    root.make_directory("/d", false).await.expect("made");
    set(&root, "/d", 0o777).await.expect("set");
    write(&ada, "/d/f", 0o640).await.expect("written");
    let made = root.stat("/d/f").await.expect("there");
    assert_eq!((made.owner.as_str(), made.group.as_str(), made.mode), ("ada-x", "staff-x", 0o640));
    // Her group reads it, by its name and while it has it open; when she takes that away it does not, and cannot write at all.
    assert_eq!(bob.read_small("/d/f").await.expect("his group may"), content(5_000, 1));
    let reader = bob.open("/d/f").await.expect("his group may");
    let text = denied(bob.append("/d/f").await);
    assert!(text.starts_with("permission denied: user bob-x may not write to /d/f (owner ada-x:staff-x, -rw-r-----)"));
    set(&ada, "/d/f", 0o600).await.expect("hers");
    denied(bob.open("/d/f").await);
    denied(bob.read_small("/d/f").await);
    drop(reader);
    denied(set(&bob, "/d/f", 0o666).await);
    let away = NewAttributes { owner: Some("bob-x".to_string()), ..NewAttributes::default() };
    denied(ada.set_attributes("/d/f", away.clone()).await);
    eve.set_attributes("/d/f", away).await.expect("a superuser");
    assert!(bob.open("/d/f").await.is_ok());
    assert_eq!(ada.make_directory("/d/f/g", true).await.map_err(|error| error.kind()), Err(ErrorKind::Invalid));
    fixture.stop().await;
}

/// A tree goes with everything below it if its user may empty each of its directories; else nothing of it goes.
#[tokio::test(flavor = "multi_thread")]
async fn trees_are_judged() {
    let mut fixture = Fixture::start("users-trees").await;
    let (root, bob) = (client_as(fixture.address(), User::default()).await, of(&fixture, "bob-x", &[]).await);
    let ada = of(&fixture, "ada-x", &[]).await;
    for path in ["/d", "/d/t", "/d/t/a", "/d/t/b", "/d/t/empty"] {
        root.make_directory(path, false).await.expect("made");
        set(&root, path, 0o777).await.expect("set");
    }
    write(&ada, "/d/t/a/f", 0o600).await.expect("written");
    write(&ada, "/d/t/b/f", 0o600).await.expect("written");
    set(&root, "/d/t/empty", 0o700).await.expect("set");
    set(&root, "/d/t/b", 0o755).await.expect("set");
    let text = denied(bob.delete("/d/t", true).await);
    assert!(text.contains("/d/t/b (owner "), "{text}");
    assert!(root.stat("/d/t/a/f").await.is_ok() && root.stat("/d/t/b/f").await.is_ok());
    set(&root, "/d/t/b", 0o777).await.expect("set");
    // What belongs to somebody else in it does not matter, nor what may not be emptied and is empty.
    bob.delete("/d/t", true).await.expect("gone");
    assert_eq!(root.stat("/d/t").await.map_err(|error| error.kind()), Err(ErrorKind::NotFound));
    assert_eq!(root.disk_usage("/d").await.expect("counted").files, 0);
    fixture.stop().await;
}

/// A read-only copy of somebody's gets its times after its bits; a directory of somebody else's is nobody's to dress, and that is said.
#[tokio::test(flavor = "multi_thread")]
async fn read_only_copies() {
    let mut fixture = Fixture::start("users-copies").await;
    let (root, ada) = (client_as(fixture.address(), User::default()).await, of(&fixture, "ada-x", &[]).await);
    for path in ["/d", "/d/roots"] {
        root.make_directory(path, false).await.expect("made");
        set(&root, path, 0o777).await.expect("set");
    }
    let options = CreateOptions { mode: Some(0o444), modified_ms: 1_000, ..CreateOptions::default() };
    let (unfinished, mut writer) = ada.create_beside("/d/f", options).await.expect("begun");
    writer.write(content(5_000, 1)).await.expect("written");
    writer.close().await.expect("closed");
    let accessed = NewAttributes { accessed_ms: Some(2_000), ..NewAttributes::default() };
    ada.set_attributes(unfinished.temporary(), accessed).await.expect("hers");
    unfinished.finish().await.expect("named");
    let made = root.stat("/d/f").await.expect("there");
    assert_eq!((made.mode, made.modified_ms, made.accessed_ms), (0o444, 1_000, 2_000));
    let mut packer = ada.packer(PackerOptions { lanes: 1, ..PackerOptions::default() });
    let options = |mode| PackOptions { modified_ms: 1_000, accessed_ms: 2_000, mode, overwrite: true, parents: true };
    for (path, mode) in [("/d/hers", 0o755), ("/d/hers", 0o500), ("/d/roots", 0o755)] {
        packer.put_directory(path, options(mode)).await.expect("sent");
    }
    let said: Vec<_> = packer.close().await.expect("answered").into_iter().map(|(_, said)| said).collect();
    assert!(said[0].is_ok() && said[1].is_ok(), "{said:?}");
    let refused = said[2].as_ref().expect_err("it is not hers");
    assert!(matches!(Denied::read(refused), Some(Denied::Owner { .. })), "{refused}");
    assert_eq!(
        (root.stat("/d/hers").await.expect("there").mode, root.stat("/d/roots").await.expect("there").mode),
        (0o500, 0o777)
    );
    fixture.stop().await;
}

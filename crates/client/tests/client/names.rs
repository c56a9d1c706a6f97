//! Names: pages are put together, sums added up.

use crate::fake::Fake;
use base::error::ErrorKind;
use client::{CreateOptions, Usage};

/// A listing of several pages has every name once and in order; a count of several parts is the sum.
#[tokio::test(start_paused = true)]
async fn pages() {
    let fake = Fake::new(1);
    let client = fake.client();
    client.make_directory("/d", false).await.expect("new");
    client.make_directory("/d", true).await.expect("may exist");
    assert_eq!(client.make_directory("/d", false).await.map_err(|error| error.kind()), Err(ErrorKind::Exists));
    for number in 0..30 {
        let mut writer = client.create(&format!("/d/{number:02}"), CreateOptions::default()).await.expect("new");
        writer.write(vec![7; number].into()).await.expect("written");
        writer.close().await.expect("closed");
    }
    let mut listing = client.list_all("/d");
    for number in 0..30 {
        let entry = listing.next().await.expect("listed").expect("there are thirty");
        assert_eq!((entry.name, entry.attributes.length), (format!("{number:02}"), number));
    }
    assert_eq!(listing.next().await, Ok(None));
    let mut large = client.list_large_located("/d");
    for number in 0..30 {
        let entry = large.next().await.expect("listed").expect("there are thirty");
        assert_eq!(entry.name, format!("{number:02}"));
    }
    assert_eq!(large.next().await, Ok(None));
    let usage = client.disk_usage("/d").await.expect("counted");
    assert_eq!(usage, Usage { files: 30, directories: 1, bytes: (0..30).sum() });
    assert_eq!(client.open("/d").await.err().map(|error| error.kind()), Some(ErrorKind::NotFound));
    assert!(client.stat("/d").await.expect("there").directory);
}

/// A node of an older version lists the first of several directories alone; one that has more than a page is listed by itself.
#[tokio::test(start_paused = true)]
async fn together_at_an_older_node() {
    let fake = Fake::new(1);
    let client = fake.client();
    for (directory, count) in [("/small", 7), ("/large", 8)] {
        client.make_directory(directory, false).await.expect("new");
        for number in 0..count {
            let path = format!("{directory}/{number}");
            client.create(&path, CreateOptions::default()).await.expect("new").close().await.expect("closed");
        }
    }
    let paths = ["/small", "/large", "/small"].map(str::to_string);
    let count = async |paths: &[String]| {
        let listed = client.list_together_located(paths).await.expect("listed");
        listed.iter().map(Vec::len).collect::<Vec<_>>()
    };
    assert_eq!(count(&paths).await, [7]);
    assert_eq!(count(&paths[1..]).await, [0; 0]);
    assert_eq!(count(&[]).await, [0; 0]);
}

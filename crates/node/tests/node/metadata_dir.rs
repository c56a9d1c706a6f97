//! Where the metadata are: in a place of their own or beside a device, and never made anew beside devices that have been in use.

use crate::hdfs_user::client_of;
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind, Result};
use base::policy::Class;
use client::CreateOptions;
use node::inspect::Inspection;
use node::{DeviceSetting, Running, Settings};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory for the disks of a store, that goes with the test.
struct Disks(PathBuf);

impl Drop for Disks {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

impl Disks {
    fn new(name: &str) -> Disks {
        Disks(std::env::temp_dir().join(format!("stormwell-node-{}-disks-{name}", std::process::id())))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    async fn start(&self, devices: &[&str], metadata_dir: Option<&str>) -> Result<Running> {
        let device =
            |name: &&str| DeviceSetting { directory: self.at(name), class: Class::Ssd, capacity: Some(256 << 20) };
        let settings = Settings::new("127.0.0.1:0", devices.iter().map(device).collect());
        let settings = Settings { metadata_dir: metadata_dir.map(|name| self.at(name)), ..settings };
        let (clock, random) = (Arc::new(os::clock::SystemClock::new()), Arc::new(os::random::SystemRandom));
        node::start(settings, Arc::new(node::OsWorld), Arc::new(os::net::TcpNet), clock, random).await
    }

    async fn refused(&self, devices: &[&str], metadata_dir: Option<&str>) -> Error {
        let before = names(&self.0);
        let Err(error) = self.start(devices, metadata_dir).await else { panic!("it starts") };
        assert_eq!(names(&self.0), before, "something was made by a start that was refused: {error}");
        error
    }

    /// The disk is not mounted any more: what is left is its mount point.
    fn unmount(&self, name: &str) {
        std::fs::rename(self.at(name), self.at("away")).expect("unmounted");
        std::fs::create_dir(self.at(name)).expect("its mount point");
    }

    fn mount(&self, name: &str) {
        std::fs::remove_dir(self.at(name)).expect("nothing was made on the mount point");
        std::fs::rename(self.at("away"), self.at(name)).expect("mounted");
    }

    fn inspect(&self, names: &[&str]) -> Inspection {
        let clock: Arc<dyn Clock> = Arc::new(os::clock::SystemClock::new());
        let random: Arc<dyn Random> = Arc::new(os::random::SystemRandom);
        let directories: Vec<PathBuf> = names.iter().map(|name| self.at(name)).collect();
        Inspection::open(&directories, &clock, &random).expect("it is looked at")
    }
}

/// Every path below a directory.
fn names(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("listed") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(names(&path));
        }
        found.push(path);
    }
    found.sort();
    found
}

async fn put_and_stop(running: Running) {
    let client = client_of(&running.address).await;
    let mut writer = client.create("/f", CreateOptions::default()).await.expect("a file");
    writer.write(bytes::Bytes::from(vec![7; 100_000])).await.expect("written");
    writer.close().await.expect("closed");
    drop(client);
    running.stop().await;
}

async fn has_file(running: Running) -> bool {
    let client = client_of(&running.address).await;
    let read = client.read_small("/f").await;
    drop(client);
    running.stop().await;
    read.is_ok_and(|bytes| bytes == vec![7; 100_000])
}

/// A store is the same under another name of its directories: one that leads there over a link.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_another_name() {
    let disks = Disks::new("link");
    put_and_stop(disks.start(&["d"], None).await.expect("a new store")).await;
    std::os::unix::fs::symlink(disks.at("d"), disks.at("linked")).expect("a link");
    assert!(has_file(disks.start(&["linked"], None).await.expect("the same store")).await);
    assert!(has_file(disks.start(&["d"], Some("linked")).await.expect("the same place")).await);
}

/// The metadata's disk is not mounted, or the setting was left out once: nothing is made anywhere, the words say where they are, and the
/// next right start has everything. Also with a device that is empty, and with one that was made before devices noted it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_place_of_their_own() {
    for (empty, old) in [(false, false), (true, false), (false, true)] {
        let disks = Disks::new(&format!("own-{empty}-{old}"));
        let running = disks.start(&["d"], Some("m")).await.expect("a new store");
        if empty {
            running.stop().await;
        } else {
            put_and_stop(running).await;
        }
        if old {
            std::fs::remove_file(disks.at("d").join("metadata")).expect("a note");
        }
        let place = disks.at("m").display().to_string();
        let left_out = disks.refused(&["d"], None).await;
        assert_eq!(left_out.kind(), if old { ErrorKind::NotFound } else { ErrorKind::Invalid }, "{left_out}");
        assert!(old || left_out.text().contains(&format!("metadata_dir = {place};")), "{left_out}");
        disks.unmount("m");
        let unmounted = disks.refused(&["d"], Some("m")).await;
        assert!(
            unmounted.kind() == ErrorKind::NotFound && unmounted.text().contains("mount their disk"),
            "{unmounted}"
        );
        assert!(unmounted.text().contains(&place), "{unmounted}");
        disks.refused(&["d"], None).await;
        disks.refused(&["d"], Some("elsewhere")).await;
        disks.mount("m");
        let running = disks.start(&["d"], Some("m")).await.expect("the same store");
        assert!(has_file(running).await != empty);
        // Moved, as the words of a refusal say; from then on that place is the one.
        std::fs::rename(disks.at("m"), disks.at("n")).expect("moved");
        let running = disks.start(&["d"], Some("n")).await.expect("the same store");
        assert!(has_file(running).await != empty);
        assert!(disks.refused(&["d"], None).await.text().contains(&disks.at("n").display().to_string()));
    }
}

/// The metadata are beside the first device, whose disk is not mounted: the second does not get a store of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_a_device() {
    let disks = Disks::new("beside");
    put_and_stop(disks.start(&["d", "e"], None).await.expect("a new store")).await;
    disks.unmount("d");
    assert_eq!(disks.refused(&["d", "e"], None).await.kind(), ErrorKind::NotFound);
    disks.refused(&["e"], None).await;
    disks.refused(&["e"], Some("m")).await;
    disks.mount("d");
    assert!(has_file(disks.start(&["e", "d"], None).await.expect("the same store")).await);
    // A device that has never been in use joins.
    assert!(has_file(disks.start(&["new", "e", "d"], None).await.expect("the same store")).await);
}

/// An old copy of the metadata is not taken for them while a device says where they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_copy() {
    let disks = Disks::new("copy");
    put_and_stop(disks.start(&["d"], Some("m")).await.expect("a new store")).await;
    std::fs::create_dir_all(disks.at("old/meta")).expect("a directory");
    for name in names(&disks.at("m/meta")) {
        std::fs::copy(&name, disks.at("old/meta").join(name.file_name().expect("a name"))).expect("copied");
    }
    let error = disks.refused(&["d"], Some("old")).await;
    assert!(error.text().contains("old copy"), "{error}");
    assert!(has_file(disks.start(&["d"], Some("m")).await.expect("the same store")).await);
}

/// Who looks without a server finds the metadata where a device says that they are, or in a directory that is named beside the devices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspected() {
    let disks = Disks::new("inspected");
    put_and_stop(disks.start(&["d"], Some("m")).await.expect("a new store")).await;
    let has_names = |directories: &[&str]| {
        let mut found = disks.inspect(directories);
        assert_eq!(found.devices.len(), 1);
        found.names.is_some() && found.read_file("/f", &mut |_, _| Ok(())).is_ok_and(|damage| damage.is_empty())
    };
    assert!(has_names(&["d"]) && has_names(&["d", "m"]) && has_names(&["m", "d/chunks"]));
    std::fs::rename(disks.at("m"), disks.at("n")).expect("moved to another machine");
    assert!(!has_names(&["d"]) && has_names(&["d", "n"]));
}

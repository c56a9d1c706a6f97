//! A device is full, an append to a file on it waits for room, and either goes on elsewhere, or the device is emptied: what is acknowledged
//! then is in the file, wherever that is by now.

use super::format::{chunk_bytes, content};
use super::oracle::{Broken, Check};
use super::scene::Scene;
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind};
use base::id::PushName;
use bytes::Bytes;
use client::{Client, CreateOptions, FileWriter};
use net::message::{Id, bag, file, session};
use net::{Link, LinkSettings, Payload};
use sim::random::SimRandom;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Where its files are.
pub const DIRECTORY: &str = "/filled";

/// Numbers of its chunks, apart from those of other bags.
const FIRST: u64 = 1 << 49;

/// Bytes of the chunks that fill the device, and as many of them as no device has room for.
const LARGE: usize = 1 << 20;
const FILLING_MAX: u64 = 60;

/// A push that is not answered within this time waits for room.
const ANSWERED: Duration = Duration::from_millis(300);

/// Files that are made until one is on a device that can be emptied, at the most.
const FILES_MAX: u64 = 12;

/// Bytes of each append: more than what is left in a segment that has no room for a large chunk.
const APPENDED: u64 = 300_000;

/// Appends while the device is full and is emptied.
const APPENDS: u64 = 6;

/// Fills a device and empties it while a file on it is written.
pub async fn play(scene: &Arc<Scene>, random: &SimRandom, name: &str, client: &Client) -> Check<()> {
    let Some(address) = scene.only_address() else { return Ok(()) };
    tokio::time::sleep(Duration::from_millis(random.below(4_000))).await;
    let called = format!("filled{:x}", random.next());
    let broken = |error: Error| Broken(format!("{name}: {error}"));
    let made = scene.insist(name, "make_directory", || client.make_directory(DIRECTORY, true)).await?;
    made.map_err(broken)?;
    let made = scene.insist(name, "bag_create", || client.bag_create(&called, true)).await?.map_err(broken)?;
    let stat = scene.insist(name, "bag_stat", || made.stat()).await?.map_err(broken)?;
    let settings = scene.bare_session(name, &random.fork("pushes"));
    let link = scene.link(name, &address, &settings).await?;
    let begin = session::Renew::default();
    let begun = async || link.call(&begin, Payload::empty()).await.map(drop);
    scene.insist(name, "renew", begun).await?.map_err(broken)?;
    let pushes = Pushes { link, settings, bag: stat.bag };
    for number in 0..FILES_MAX {
        let path = format!("{DIRECTORY}/{called}-{number}");
        let tag = random.next() | 1 << 63;
        let Ok(writer) = scene.call(name, "create", client.create(&path, CreateOptions::default())).await? else {
            break;
        };
        let mut filled = Filled { scene, name, client, writer, path, tag, synced: 0, handed: 0 };
        let is_tried = filled.round(&pushes, random.one_in(2)).await?;
        filled.compare().await?;
        if is_tried {
            break;
        }
    }
    match scene.insist(name, "bag_delete", || client.bag_delete(&called)).await? {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(broken(error)),
        _ => Ok(()),
    }
}

/// Pushes of a session of their own, each to the device that is said.
struct Pushes {
    link: Link,
    settings: LinkSettings,
    bag: u64,
}

impl Pushes {
    fn push(&self, device: Id, number: u64) -> impl Future<Output = base::error::Result<()>> + Send + 'static {
        let name = PushName { session: self.settings.session.mark(), stream: 1, number };
        let push = bag::Push { bag: self.bag, device, chunk: name.chunk().0.into(), floor: number };
        let (link, payload) = (self.link.clone(), Payload::new(Bytes::from(chunk_bytes(FIRST + number, LARGE))));
        async move { link.call(&push, payload).await.map(drop) }
    }
}

struct Filled<'a> {
    scene: &'a Arc<Scene>,
    name: &'a str,
    client: &'a Client,
    writer: FileWriter,
    path: String,
    tag: u64,
    synced: u64,
    handed: u64,
}

impl Filled<'_> {
    /// `empties`: the device, while appends wait for room on it. False: it cannot be emptied, and nothing was done.
    async fn round(&mut self, pushes: &Pushes, empties: bool) -> Check<bool> {
        if !self.append(1_000).await? {
            return Ok(true);
        }
        let Some(device) = self.device().await? else { return Ok(false) };
        let mut waiting = JoinSet::new();
        for number in 1..FILLING_MAX {
            let mut pushing = Box::pin(pushes.push(device, number));
            match tokio::time::timeout(ANSWERED, &mut pushing).await {
                Ok(Ok(())) => (),
                Ok(Err(error)) => {
                    self.scene.say(|| format!("{}: push: {error}", self.name));
                    break;
                }
                Err(_) => {
                    waiting.spawn(pushing);
                    break;
                }
            }
        }
        if waiting.is_empty() {
            return Ok(true);
        }
        if !empties {
            for _ in 0..APPENDS {
                if !self.append(APPENDED).await? {
                    break;
                }
            }
            if self.devices().await?.iter().any(|on| *on != device) {
                self.scene.count("files that went on elsewhere");
            }
            return Ok(true);
        }
        let drain = || self.client.drain(device);
        if let Err(error) = self.scene.insist_with_room(self.name, "device_drain", drain).await? {
            // Too little room elsewhere, or nobody else: nothing was done.
            self.scene.say(|| format!("{}: {error}", self.name));
            return Ok(true);
        }
        self.scene.count("full devices emptied");
        for _ in 0..APPENDS {
            if !self.append(APPENDED).await? {
                break;
            }
        }
        Ok(true)
    }

    /// The device that the file is on, if it can be emptied: the one that is largest keeps the metadata, too.
    async fn device(&self) -> Check<Option<Id>> {
        let on = self.devices().await?.first().copied();
        let known = self.scene.insist(self.name, "devices", || self.client.devices()).await?;
        let known = known.map(|answer| answer.devices).unwrap_or_default();
        let largest = known.iter().map(|device| device.capacity).max();
        let may_go = |device: &&file::Device| Some(device.device) == on && Some(device.capacity) < largest;
        Ok(known.iter().find(may_go).map(|device| device.device))
    }

    /// The devices that the file is on, in the order of its bytes.
    async fn devices(&self) -> Check<Vec<Id>> {
        let inode = self.writer.inode();
        let found = self.scene.insist(self.name, "extents", || self.client.extents(inode, 0)).await?;
        let extents = found.map(|(extents, _)| extents).unwrap_or_default();
        Ok(extents.iter().flat_map(|extent| &extent.layout.columns).map(|column| column.device).collect())
    }

    /// Appends so many bytes and waits until they are synced. False: the writer has failed.
    async fn append(&mut self, length: u64) -> Check<bool> {
        let bytes = Bytes::from(content(self.tag, self.handed, length as usize));
        self.handed += length;
        let writer = &mut self.writer;
        let both = async {
            writer.write(bytes).await?;
            writer.sync().await
        };
        let begun = self.scene.clock.now();
        let done = self.scene.call(self.name, "append_synced", both).await?.is_ok();
        if done {
            self.synced = self.handed;
        }
        if done && self.scene.clock.now().since(begun) > ANSWERED {
            self.scene.count("appends that waited");
        }
        Ok(done)
    }

    /// What was acknowledged is there.
    async fn compare(self) -> Check<()> {
        let Filled { scene, name, client, writer, path, tag, synced, handed } = self;
        let inode = writer.inode();
        drop(scene.call(name, "close", writer.close()).await?);
        drop(scene.insist(name, "recover", || client.recover(inode, false)).await?);
        let bytes = match scene.insist(name, "read", || client.read_small(&path)).await? {
            Ok(bytes) => bytes,
            Err(error) => return Err(Broken(format!("{name}: {path} with {synced} synced bytes: {error}"))),
        };
        scene.count_more("bytes compared", bytes.len() as u64);
        let length = bytes.len() as u64;
        if length < synced || length > handed {
            return Err(Broken(format!("{name}: {path} has {length} bytes: {synced} were synced, {handed} written")));
        }
        if bytes != content(tag, 0, bytes.len()) {
            return Err(Broken(format!("{name}: {path} has other bytes than were written")));
        }
        drop(scene.insist(name, "delete", || client.delete(&path, false)).await?);
        Ok(())
    }
}

//! A device is full, an append to a file on it waits for room, and goes on elsewhere, or there when others are deleted, or the device is
//! emptied: what is acknowledged then is in the file, wherever that is by now, and whoever reads along sees it.

use super::format::{chunk_bytes, content};
use super::oracle::{Broken, Check};
use super::scene::{Scene, check_alone};
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind};
use base::id::PushName;
use bytes::Bytes;
use client::{Client, CreateOptions, FileReader, FileWriter};
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

/// Devices that are filled one after the other, at the most.
const FULL_MAX: usize = 2;

/// A device with so much room takes every append, whatever it keeps for itself.
const ROOMY: u64 = 24 << 20;

/// What happens to a device that is full.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// Its chunks go elsewhere while appends wait for room on it.
    Emptied,
    /// Nothing; the file goes on elsewhere.
    StaysFull,
    /// The chunks that filled it are deleted after this time.
    HasRoomAgain(Duration),
}

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
    let mut pushes = Pushes { link, settings, bag: stat.bag, next: 1, unanswered: 1 };
    for number in 0..FILES_MAX {
        let path = format!("{DIRECTORY}/{called}-{number}");
        let tag = random.next() | 1 << 63;
        let losses_at_open = scene.power_losses();
        let Ok(writer) = scene.call(name, "create", client.create(&path, CreateOptions::default())).await? else {
            break;
        };
        let Ok(follower) = scene.insist(name, "open", || client.open(&path)).await? else { break };
        let full = Vec::new();
        let (synced, handed) = (0, 0);
        let mut filled =
            Filled { scene, name, client, writer, follower, path, tag, full, synced, handed, losses_at_open };
        let then = match random.below(4) {
            0 | 1 => Then::Emptied,
            2 => Then::StaysFull,
            _ => Then::HasRoomAgain(Duration::from_millis(random.below(25_000))),
        };
        let is_tried = filled.round(&mut pushes, &called, then).await?;
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
    /// The number of the next, and the lowest one that is not answered.
    next: u64,
    unanswered: u64,
}

impl Pushes {
    fn push(&mut self, device: Id) -> impl Future<Output = base::error::Result<()>> + Send + 'static {
        let number = self.next;
        self.next += 1;
        let name = PushName { session: self.settings.session.mark(), stream: 1, number };
        let push = bag::Push { bag: self.bag, device, chunk: name.chunk().0.into(), floor: self.unanswered };
        let (link, payload) = (self.link.clone(), Payload::new(Bytes::from(chunk_bytes(FIRST + number, LARGE))));
        async move { link.call(&push, payload).await.map(drop) }
    }

    /// The last one is answered.
    fn answered(&mut self) {
        if self.unanswered + 1 == self.next {
            self.unanswered = self.next;
        }
    }
}

struct Filled<'a> {
    scene: &'a Arc<Scene>,
    name: &'a str,
    client: &'a Client,
    writer: FileWriter,
    /// It was opened before the file had a byte.
    follower: FileReader,
    path: String,
    tag: u64,
    /// Devices that were filled.
    full: Vec<Id>,
    synced: u64,
    handed: u64,
    /// Power losses before the file was opened.
    losses_at_open: u64,
}

impl Filled<'_> {
    /// False: the device that the file is on cannot be emptied, and nothing was done.
    async fn round(&mut self, pushes: &mut Pushes, called: &str, then: Then) -> Check<bool> {
        if !self.append(1_000).await? {
            return Ok(true);
        }
        let Some(device) = self.device().await? else { return Ok(false) };
        let Some(_waiting) = self.fill(pushes, device).await? else { return Ok(true) };
        let (scene, name, client) = (self.scene, self.name, self.client);
        match then {
            Then::StaysFull => self.go_on(Some(pushes)).await?,
            Then::HasRoomAgain(pause) => {
                let deleting = async {
                    tokio::time::sleep(pause).await;
                    scene.count("full devices that had room again");
                    scene.insist(name, "bag_delete", || client.bag_delete(called)).await.map(drop)
                };
                let (went_on, deleted) = tokio::join!(self.go_on(None), deleting);
                went_on.and(deleted)?;
            }
            Then::Emptied => {
                let drain = || client.drain(device);
                if let Err(error) = scene.insist_with_room(name, "device_drain", drain).await? {
                    // Too little room elsewhere, or nobody else: nothing was done.
                    scene.say(|| format!("{name}: {error}"));
                    return Ok(true);
                }
                scene.count("full devices emptied");
                self.go_on(None).await?;
            }
        }
        Ok(true)
    }

    /// Fills a device until a push waits for room, and goes on waiting. None: a push was refused before, or there is too much room.
    async fn fill(&mut self, pushes: &mut Pushes, device: Id) -> Check<Option<JoinSet<base::error::Result<()>>>> {
        let mut waiting = JoinSet::new();
        for _ in 1..FILLING_MAX {
            let mut pushing = Box::pin(pushes.push(device));
            match tokio::time::timeout(ANSWERED, &mut pushing).await {
                Ok(Ok(())) => pushes.answered(),
                Ok(Err(error)) => {
                    self.scene.say(|| format!("{}: push: {error}", self.name));
                    return Ok(None);
                }
                Err(_) => {
                    waiting.spawn(pushing);
                    self.full.push(device);
                    return Ok(Some(waiting));
                }
            }
        }
        Ok(None)
    }

    /// Appends on and on. `pushes`: where the file goes on is filled, too.
    async fn go_on(&mut self, mut pushes: Option<&mut Pushes>) -> Check<()> {
        let mut waiting = Vec::new();
        for _ in 0..APPENDS {
            if !self.append(APPENDED).await? {
                break;
            }
            let at = self.devices().await?.last().copied();
            let Some(next) = at.filter(|on| !self.full.contains(on)) else { continue };
            if self.full.is_empty() {
                continue;
            }
            self.scene.count("files that went on elsewhere");
            let may_be_filled = self.full.len() < FULL_MAX && self.is_small(next).await?;
            if let Some(pushes) = pushes.as_deref_mut().filter(|_| may_be_filled) {
                waiting.extend(self.fill(pushes, next).await?);
                self.scene.count("devices filled behind a full one");
            }
        }
        Ok(())
    }

    /// Whether a device is not the one that is largest: that keeps the metadata, too.
    async fn is_small(&self, device: Id) -> Check<bool> {
        let known = self.known().await?;
        let largest = known.iter().map(|device| device.capacity).max();
        Ok(known.iter().any(|known| known.device == device && Some(known.capacity) < largest))
    }

    /// The devices of the store.
    async fn known(&self) -> Check<Vec<file::Device>> {
        let known = self.scene.insist(self.name, "devices", || self.client.devices()).await?;
        Ok(known.map(|answer| answer.devices).unwrap_or_default())
    }

    /// The device that the file is on, if it can be emptied.
    async fn device(&self) -> Check<Option<Id>> {
        let Some(on) = self.devices().await?.first().copied() else { return Ok(None) };
        Ok(self.is_small(on).await?.then_some(on))
    }

    /// The devices that the file is on, in the order of its bytes.
    async fn devices(&self) -> Check<Vec<Id>> {
        let inode = self.writer.inode();
        let found = self.scene.insist(self.name, "extents", || self.client.extents(inode, 0)).await?;
        let extents = found.map(|(extents, _)| extents).unwrap_or_default();
        Ok(extents.iter().flat_map(|extent| &extent.layout.columns).map(|column| column.device).collect())
    }

    /// Appends so many bytes and waits until they are synced: then they are seen. False: the writer has failed.
    async fn append(&mut self, length: u64) -> Check<bool> {
        let bytes = Bytes::from(content(self.tag, self.handed, length as usize));
        let roomy = self.roomy().await?;
        self.handed += length;
        let writer = &mut self.writer;
        let both = async {
            writer.write(bytes).await?;
            writer.sync().await
        };
        let begun = self.scene.clock.now();
        let done = self.scene.call(self.name, "append_synced", both).await?;
        if done.is_ok() && self.scene.clock.now().since(begun) > ANSWERED {
            self.scene.count("appends that waited");
        }
        match done {
            Ok(()) => {
                self.synced = self.handed;
                self.follow().await?;
                Ok(true)
            }
            Err(error) => {
                if self.scene.power_losses() == self.losses_at_open {
                    check_alone(&format!("{}: append to {}", self.name, self.path), &error)?;
                }
                let still_roomy = self.roomy().await?;
                match roomy.iter().find(|device| still_roomy.contains(device)) {
                    Some(device) if error.kind() == ErrorKind::Full => {
                        let text = format!(
                            "{}: {} is told that there is no room, while device {device:?} has some",
                            self.name, self.path
                        );
                        Err(Broken(format!("{text}: {error}")))
                    }
                    _ => Ok(false),
                }
            }
        }
    }

    /// Devices that have room for every append.
    async fn roomy(&self) -> Check<Vec<Id>> {
        let known = self.known().await?.into_iter();
        let has_room = |device: &file::Device| {
            !device.missing && !device.out_of_service && device.capacity.saturating_sub(device.used) >= ROOMY
        };
        Ok(known.filter(has_room).map(|device| device.device).filter(|device| !self.full.contains(device)).collect())
    }

    /// Whoever reads along sees what is synced.
    async fn follow(&self) -> Check<()> {
        let (scene, name) = (self.scene, self.name);
        let from = self.synced.saturating_sub(APPENDED * 2);
        let Ok(parts) = scene.insist(name, "read", || self.follower.read_at(from, APPENDED * 2)).await? else {
            return Ok(());
        };
        let bytes = parts.concat();
        scene.count_more("bytes followed", bytes.len() as u64);
        if from + (bytes.len() as u64) < self.synced {
            return Err(Broken(format!(
                "{name}: {} ends at {} for who reads along, and {} are synced",
                self.path,
                from + bytes.len() as u64,
                self.synced
            )));
        }
        if bytes != content(self.tag, from, bytes.len()) {
            return Err(Broken(format!("{name}: {} has other bytes for who reads along", self.path)));
        }
        Ok(())
    }

    /// What was acknowledged is there.
    async fn compare(self) -> Check<()> {
        let Filled { scene, name, client, writer, path, tag, synced, handed, .. } = self;
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

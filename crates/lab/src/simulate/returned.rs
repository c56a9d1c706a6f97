//! A writer that is taken for dead and comes back: its session ended, another one took over, and it goes on as if nothing had
//! been. It must be refused whatever it asks, and nothing that it then says may ever be seen.

use super::bags;
use super::format::{chunk_bytes, content};
use super::oracle::{Broken, Check, ChunkState};
use super::scene::Scene;
use base::env::{Clock, Random};
use base::error::ErrorKind;
use base::id::PushName;
use base::unit::Time;
use bytes::Bytes;
use client::Client;
use net::message::{Ask, Id, bag, chunk, file, session};
use net::{Link, LinkSettings, Payload};
use sim::random::SimRandom;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Where its files are.
pub const DIRECTORY: &str = "/returned";

/// Longest wait for the end of a session: every start of the node renews it.
const END_WAIT_MAX: Duration = Duration::from_secs(900);

/// One that comes back, and the one that takes over.
pub struct Returned {
    scene: Arc<Scene>,
    random: SimRandom,
    name: String,
    /// The one that takes over, in a session that lives.
    other: Client,
    /// The one that comes back. Nobody renews its session. This is its link to the node that keeps the metadata.
    link: Link,
    settings: LinkSettings,
    /// Its links to other nodes, by their addresses.
    links: Mutex<BTreeMap<String, Link>>,
    file: file::OpenedFile,
    /// A file to which it wrote nothing while it could.
    untouched: file::OpenedFile,
    bag: bag::Info,
    /// Bytes that were synced, and that were handed in.
    lengths: (u64, u64),
}

/// Lets a writer go silent and come back. `other` is who takes over.
pub async fn play(scene: Arc<Scene>, random: SimRandom, name: String, other: Client) -> Check<()> {
    let settings = scene.bare_session(&name, &random);
    let at = match scene.only_address() {
        Some(address) => address,
        None => {
            let view = done(scene.insist(&name, "view", || other.view()).await?, &name)?;
            let keeper = view.members.iter().find(|member| member.node.node == view.keeper);
            keeper.map(|member| member.node.address.clone()).unwrap_or_default()
        }
    };
    let link = scene.keepers_link(&name, &at, &settings).await?;
    let who = name.clone();
    let begin = session::Renew::default();
    done(scene.insist(&who, "renew", || ask(&link, &begin)).await?, &who)?;
    let directory = || other.make_directory(DIRECTORY, true);
    done(scene.insist(&who, "make_directory", directory).await?, &who)?;
    let create = |path: &str| file::Create {
        path: path.to_string(),
        overwrite: true,
        parents: false,
        ..file::Create::default()
    };
    let (written, untouched) = (create(&path_of("written")), create(&path_of("untouched")));
    let mut files = Vec::new();
    for create in [written, untouched] {
        match scene.insist_with_room(&who, "create", || ask(&link, &create)).await? {
            // Its session does not live until there is room again.
            Err(error) if error.kind() == ErrorKind::Full => return Ok(()),
            made => files.push(done(made, &who)?),
        }
    }
    let (Some(untouched), Some(file)) = (files.pop(), files.pop()) else { unreachable!("two were made") };
    let create = bag::Create { name: bags::name_of(0), exists_ok: true, retain: false, ..bag::Create::default() };
    let bag = done(scene.insist(&who, "bag_create", || ask(&link, &create)).await?, &who)?;
    let links = Mutex::default();
    let mut returned =
        Returned { scene, random, name, other, link, settings, links, file, untouched, bag, lengths: (0, 0) };
    returned.write().await?;
    returned.wait_for_the_end().await?;
    returned.go_on("as soon as its end was seen").await?;
    returned.be_replaced().await?;
    returned.go_on("after another writer was done").await?;
    returned.compare().await
}

fn path_of(name: &str) -> String {
    format!("{DIRECTORY}/{name}")
}

async fn ask<A: Ask>(link: &Link, question: &A) -> base::error::Result<A::Answer> {
    link.call(question, Payload::empty()).await.map(|(answer, _)| answer)
}

fn done<T>(result: base::error::Result<T>, who: &str) -> Check<T> {
    result.map_err(|error| Broken(format!("{who}: {error}")))
}

impl Returned {
    /// The bytes of its file follow from this; nobody else has the number.
    fn tag(&self) -> u64 {
        u64::MAX / 2 + self.file.inode
    }

    fn append(&self, to: &file::OpenedFile, offset: u64) -> chunk::Append {
        let file::OpenedFile { generation, group, .. } = to.clone();
        let (column, group) = (&group.layout.columns[0], group.group);
        let (device, chunk) = (column.device, column.chunk);
        chunk::Append { device, chunk, group, generation, offset, level: 2, seal: false, small_parts: false }
    }

    /// What it writes while it may.
    async fn write(&mut self) -> Check<()> {
        for _ in 0..1 + self.random.below(3) {
            let length = 1 + self.random.below(100_000);
            let (synced, handed) = self.lengths;
            if synced != handed {
                return Ok(());
            }
            self.lengths.1 += length;
            let bytes = Bytes::from(content(self.tag(), synced, length as usize));
            let append = self.append(&self.file, synced);
            let link = self.link_to(append.device).await?;
            let call = link.call(&append, Payload::new(bytes));
            if self.scene.call(&self.name, "append_synced", call).await?.is_ok() {
                self.lengths.0 = self.lengths.1;
            }
        }
        Ok(())
    }

    /// Looks at the file, through the other one, until nobody may write it under its generation.
    async fn wait_for_the_end(&self) -> Check<()> {
        let begun = self.scene.clock.now();
        let (mut ends, mut since): (u64, Time) = (self.scene.oracle().ends, begun);
        loop {
            let seen = self.scene.call(&self.name, "look_for_the_end", self.other.stat(&path_of("written"))).await?;
            if seen.is_ok_and(|seen| seen.generation > self.file.generation) {
                return Ok(());
            }
            let now = self.scene.clock.now();
            if self.scene.oracle().ends != ends {
                (ends, since) = (self.scene.oracle().ends, now);
            }
            if now.since(begun) > END_WAIT_MAX {
                return Err(Broken(format!("{}: its session does not end", self.name)));
            }
            // Near its end it looks often: what follows is to come while the node is still at it.
            let near = now.since(since) > base::limit::SESSION_LEASE - Duration::from_secs(2);
            tokio::time::sleep(if near { Duration::from_millis(60) } else { Duration::from_secs(1) }).await;
        }
    }

    /// Asks everything that a writer asks. All of it must be refused.
    async fn go_on(&self, when: &str) -> Check<()> {
        let file::OpenedFile { inode, generation, group, .. } = self.file.clone();
        let (finished_group, finished_length) = (group.group, self.lengths.1);
        let next = file::NextGroup {
            inode,
            generation,
            finished_group,
            finished_length,
            columns_max: 1,
            ..file::NextGroup::default()
        };
        self.refused(when, &self.link, &next, Payload::empty()).await?;
        let close = file::Close { inode, generation, finished_group, finished_length, ..file::Close::default() };
        self.refused(when, &self.link, &close, Payload::empty()).await?;
        let forged = || Payload::new(Bytes::from(content(self.tag() + 1, 0, 5000)));
        for append in [self.append(&self.file, self.lengths.1), self.append(&self.untouched, 0)] {
            self.refused(when, &self.link_to(append.device).await?, &append, forged()).await?;
        }
        let number = {
            let mut oracle = self.scene.oracle();
            let number = oracle.chunks.len() as u64;
            oracle.chunks.insert(number, ChunkState { length: 9000, unwanted: true, ..ChunkState::default() });
            number
        };
        let device = self.bag.members[self.random.below(self.bag.members.len() as u64) as usize];
        let session = self.settings.session.mark();
        let name = PushName { session, stream: u16::MAX, number: 1 + self.random.below(1000) }.chunk();
        let push = bag::Push { bag: self.bag.bag, device, chunk: name.0.into(), floor: 1 };
        let bytes = Bytes::from(chunk_bytes(number, 9000));
        self.refused(when, &self.link_to(device).await?, &push, Payload::new(bytes)).await
    }

    /// The link to the node that has a device, as the view says now.
    async fn link_to(&self, device: Id) -> Check<Link> {
        if self.scene.only_address().is_some() {
            return Ok(self.link.clone());
        }
        let view = done(self.scene.insist(&self.name, "view", || self.other.view()).await?, &self.name)?;
        let member = view.members.iter().find(|member| member.devices.contains(&device));
        // A link to whoever leads may lead to another node later.
        let is_led_by = |node| self.scene.keepers == 1 && node == view.keeper;
        let Some(member) = member.filter(|member| !is_led_by(member.node.node)) else {
            return Ok(self.link.clone());
        };
        let address = &member.node.address;
        if let Some(link) = self.links.lock().unwrap_or_else(PoisonError::into_inner).get(address) {
            return Ok(link.clone());
        }
        let link = self.scene.link(&self.name, address, &self.settings).await?;
        self.links.lock().unwrap_or_else(PoisonError::into_inner).insert(address.clone(), link.clone());
        Ok(link)
    }

    async fn refused<A: Ask + Debug>(&self, when: &str, link: &Link, question: &A, payload: Payload) -> Check<()> {
        let call = link.call(question, payload);
        match self.scene.call(&self.name, "asked_after_the_end", call).await? {
            Err(_) => Ok(()),
            Ok(_) => Err(Broken(format!("{}: its session is over and {question:?} was obeyed {when}", self.name))),
        }
    }

    /// The other one opens the file and goes on where it ends.
    async fn be_replaced(&mut self) -> Check<()> {
        let path = path_of("written");
        let opened = self.scene.insist_with_room(&self.name, "append", || self.other.append(&path)).await?;
        if opened.as_ref().is_err_and(|error| error.kind() == ErrorKind::Full) {
            // Others have filled the devices.
            return Ok(());
        }
        let mut writer = done(opened, &self.name)?;
        let (position, (synced, handed)) = (writer.position(), self.lengths);
        if position < synced || position > handed {
            return Err(Broken(format!("{path}: {position} bytes long when taken over, not {synced} to {handed}")));
        }
        let bytes = Bytes::from(content(self.tag(), position, 1 + self.random.below(50_000) as usize));
        let end = position + bytes.len() as u64;
        let written = async {
            writer.write(bytes).await?;
            writer.close().await
        };
        let closed = self.scene.call(&self.name, "close", written).await?.is_ok();
        self.lengths = (if closed { end } else { position }, end);
        Ok(())
    }

    /// The file has the bytes of both while they were its writers, the other one has none.
    async fn compare(&self) -> Check<()> {
        let path = path_of("written");
        let read = self.scene.insist(&self.name, "look", || self.other.read_small(&path)).await?;
        let bytes = done(read, &self.name)?;
        self.scene.count_more("bytes compared", bytes.len() as u64);
        let (synced, handed) = self.lengths;
        let length = bytes.len() as u64;
        if length < synced || length > handed || bytes != content(self.tag(), 0, bytes.len()) {
            let text = format!("{path}: {length} bytes, which are not the {synced} to {handed} of its writers");
            return Err(Broken(text));
        }
        let path = path_of("untouched");
        let read = self.scene.insist(&self.name, "look", || self.other.read_small(&path)).await?;
        match done(read, &self.name)?.len() {
            0 => Ok(()),
            some => Err(Broken(format!("{path}: has {some} bytes of a writer whose session was over"))),
        }
    }
}

//! A client that works with files through the HDFS gateways of the nodes, in the words of Hadoop, and knows what must be there: its
//! calls go to any gateway, answers are lost and asked for again, and what it writes is looked at through the store's own client, too.

mod blocks;
mod calls;
mod format;
mod going_on;
pub mod settings;
pub mod taken;

use super::directory::Directory;
use super::files::Files;
use super::format::content;
use super::oracle::{Broken, Check, Stand};
use super::scene::Scene;
use super::whereabouts;
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind, Result};
use blocks::BlockWriter;
use calls::{Calls, wait_out};
use client::Client;
use gateway_hdfs::message::files::{
    AddBlock, Append, AppendAnswer, BlockAnswer, CREATE, Complete, Create, CreateAnswer, OVERWRITE, RecoverLease, Truth,
};
use gateway_hdfs::message::hdfs::{ExtendedBlock, LocatedBlock, Permission};
use gateway_hdfs::message::located::{GetBlockLocations, GetBlockLocationsAnswer};
use gateway_hdfs::message::names::{
    BoolAnswer, DeleteRequest, EmptyAnswer, MkdirsRequest, PathRequest, Rename2Request, StatusAnswer,
};
use gateway_hdfs::message::transfer::{SETUP_APPEND, SETUP_CREATE};
use sim::net::SimNet;
use sim::random::SimRandom;
use std::sync::Arc;
use std::time::Duration;

/// The port of every gateway.
pub const PORT: u16 = 8020;

/// What it asks for, as it is counted.
pub const OPERATIONS: [&str; 21] = [
    "hdfs mkdirs",
    "hdfs create",
    "hdfs append",
    "hdfs addBlock",
    "hdfs begin block",
    "hdfs write",
    "hdfs hflush",
    "hdfs hsync",
    "hdfs updateBlockForPipeline",
    "hdfs updatePipeline",
    "hdfs complete",
    "hdfs recoverLease",
    "hdfs getFileInfo",
    "hdfs read",
    "hdfs rename2",
    "hdfs delete",
    "hdfs renewLease",
    "hdfs fsync",
    "hdfs arrives late",
    "hdfs asked too late",
    "hdfs settings",
];

/// Names that its directory has.
const NAMES: u64 = 6;

/// Bytes in a block: few, so that files have several.
const BLOCK_SIZE: u64 = 64 << 10;

/// Bytes in a packet, at most: as a real client has them, whole checksums.
const PACKET: u64 = 8 << 10;

/// So many names of which it is not known what they hold are looked at before anything else is done.
const UNCERTAIN_MAX: usize = 2;

/// Longest work of one client, whatever others do.
const TURNS_MAX: u64 = 2000;

/// Longest pause between two things, in milliseconds.
const PAUSE_MAX: u64 = 400;

/// A lease that was asked back comes within this long: no device is away for longer, and each call ends by then.
const RECOVERY_MAX: Duration = Duration::from_secs(400);

/// A client of gateways.
pub struct Hdfs {
    scene: Arc<Scene>,
    /// Looks at what is there without a gateway.
    client: Client,
    net: SimNet,
    random: SimRandom,
    name: String,
    directory: Directory,
    calls: Calls,
    /// Power losses where its bytes were before the file was opened that is written now.
    losses_at_open: u64,
}

/// A file that it has open.
struct Open {
    path: String,
    tag: u64,
    inode: u64,
    /// Bytes of the file so far.
    position: u64,
    /// Where the block that is written begins, the block itself, and how it is begun.
    block: Option<(u64, LocatedBlock, i32)>,
    /// The block before, with its length.
    previous: Option<ExtendedBlock>,
    writer: Option<BlockWriter>,
}

impl Open {
    /// Its stream is broken. What was acknowledged of the block that begins at `base` ends here in the file.
    fn broke(&mut self, base: u64) -> u64 {
        base + self.writer.take().map_or(self.position.saturating_sub(base), |writer| writer.acknowledged_to())
    }
}

/// Whether a gateway's client made this file, and said how many copies it shall have.
pub fn is_of_gateway(path: &str) -> bool {
    ["/hdfs", settings::DIRECTORY, taken::DIRECTORY].iter().any(|directory| path.starts_with(directory))
}

/// The directory of the client at this place.
pub fn directory_of(place: usize) -> String {
    format!("/hdfs{place}")
}

impl Open {
    /// The last block with the bytes that it has now.
    fn last(&self) -> Option<ExtendedBlock> {
        match &self.block {
            Some((base, block, _)) => Some(ExtendedBlock { length: Some(self.position - base), ..block.block.clone() }),
            None => self.previous.clone(),
        }
    }
}

impl Hdfs {
    /// A client on a host, named `name`, with a directory for itself.
    pub fn new(scene: Arc<Scene>, client: Client, net: SimNet, random: SimRandom, name: &str, place: usize) -> Hdfs {
        let calls = Calls::new(scene.clone(), net.clone(), random.fork("calls"), name);
        let directory = Directory::new(scene.clone(), &random, name, &directory_of(place), NAMES);
        Hdfs { scene, client, net, random, name: name.to_string(), directory, calls, losses_at_open: 0 }
    }

    /// Makes the directory, then does so many things.
    pub async fn work(&mut self, turns: u64) -> Check<()> {
        let (path, masked) = (self.directory.path.clone(), Permission { bits: 0o755 });
        let made: BoolAnswer =
            self.insist("hdfs mkdirs", "mkdirs", &MkdirsRequest { path, masked, parents: true, open: None }).await?;
        if !made.result {
            return Err(Broken(format!("{}: {} was not made", self.name, self.directory.path)));
        }
        for turn in 0.. {
            if turn >= turns && (self.scene.has_seen_enough() || turn > TURNS_MAX) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(self.random.below(PAUSE_MAX))).await;
            if self.random.one_in(4) {
                self.calls.go_elsewhere();
            }
            match self.random.below(20) {
                0..9 => self.write().await?,
                9..13 => self.read().await?,
                13..15 => self.delete().await?,
                15..18 => self.rename().await?,
                _ => self.stat().await?,
            }
            if self.scene.oracle().uncertain_under(&self.directory.path) >= UNCERTAIN_MAX {
                self.look_at_all().await?;
            }
        }
        self.look_at_all().await
    }

    /// Looks at everything without a gateway, when nothing is under way any more.
    async fn look_at_all(&mut self) -> Check<()> {
        // A gateway asks again for a while what its client gave up.
        tokio::time::sleep(2 * self.scene.late).await;
        let random = self.random.fork("look");
        let mut files = Files::new(self.scene.clone(), self.client.clone(), random, &self.name, &self.directory.path);
        files.look_at_all(true).await
    }

    async fn call<A: prost::Message + Default>(
        &mut self,
        what: &'static str,
        method: &'static str,
        request: &impl prost::Message,
    ) -> Check<Result<A>> {
        self.scene.call(&self.name, what, self.calls.ask(method, request)).await
    }

    /// Asks under new numbers until it is done.
    async fn insist<A: prost::Message + Default>(
        &mut self,
        what: &'static str,
        method: &'static str,
        request: &impl prost::Message,
    ) -> Check<A> {
        let begun = self.scene.clock.now();
        loop {
            match self.call(what, method, request).await? {
                Ok(answer) => return Ok(answer),
                Err(refusal) => wait_out(&self.scene, begun, &self.name, what, refusal).await?,
            }
        }
    }

    fn holder(&self) -> String {
        format!("DFSClient_{}", self.name)
    }

    /// Writes a file from its start or from its end.
    async fn write(&mut self) -> Check<()> {
        let Some((path, stand)) = self.directory.certain_path() else { return Ok(()) };
        let losses_before = stand.map_or(0, |tag| self.scene.oracle().losses_of(tag));
        let opened = match stand {
            Some(tag) if self.random.one_in(2) => self.append(&path, tag).await?,
            _ => self.create(&path, stand).await?,
        };
        let Some(mut open) = opened else { return Ok(()) };
        let tag = open.tag;
        self.losses_at_open = if stand == Some(tag) { losses_before } else { self.scene.oracle().losses_of(tag) };
        for _ in 0..self.random.below(8) {
            tokio::time::sleep(Duration::from_millis(self.random.below(PAUSE_MAX))).await;
            let went_on = self.step(&mut open).await? || self.random.one_in(2) && self.goes_on(&mut open).await?;
            if !went_on {
                // The stream is broken: what is there is between what was acknowledged and what was sent.
                return self.recover(&mut open).await;
            }
        }
        if self.random.one_in(6) {
            self.scene.count("hdfs left open");
            return self.recover(&mut open).await;
        }
        self.close(open).await
    }

    /// One thing with an open file. False: its stream is broken.
    async fn step(&mut self, open: &mut Open) -> Check<bool> {
        match self.random.below(8) {
            0..4 => {
                let length = [300, 5_000, 40_000, 150_000][self.random.below(4) as usize];
                let length = 1 + self.random.below(length);
                self.send(open, length, false).await
            }
            4 | 5 => self.flush(open).await,
            6 => {
                let length = 1 + self.random.below(3_000);
                if !self.send(open, length, true).await? || !self.heard(open, "hdfs hsync").await? {
                    return Ok(false);
                }
                self.directory.synced(open.tag, open.position);
                Ok(true)
            }
            _ => {
                self.read_path(&open.path.clone()).await?;
                Ok(true)
            }
        }
    }

    /// Sends so many bytes, in as many blocks as they need. `sync`: each has to be durable when it is acknowledged.
    async fn send(&mut self, open: &mut Open, length: u64, sync: bool) -> Check<bool> {
        let end = open.position + length;
        while open.position < end {
            if !self.has_block(open).await? {
                return Ok(false);
            }
            let Some((base, ..)) = open.block else { return Ok(false) };
            let within = open.position - base;
            // Packets end with whole checksums, or with what there is.
            let most = PACKET.min(BLOCK_SIZE - within).min(end - open.position);
            let part = match (within + most) % blocks::UNIT {
                odd if open.position + most < end && most > odd => most - odd,
                _ => most,
            };
            let bytes = content(open.tag, open.position, part as usize);
            let Some(writer) = &mut open.writer else { return Ok(false) };
            {
                let mut oracle = self.scene.oracle();
                let promise = oracle.promise_mut(open.tag);
                promise.handed = promise.handed.max(open.position + part);
                oracle.may_be_anywhere(open.tag);
            }
            let sent = writer.send(within, &bytes, sync);
            if self.scene.call(&self.name, "hdfs write", sent).await?.is_err() {
                return Ok(false);
            }
            open.position += part;
        }
        Ok(true)
    }

    /// There is a block with room and a connection that writes it. False: none could be had.
    async fn has_block(&mut self, open: &mut Open) -> Check<bool> {
        if open.block.as_ref().is_some_and(|(base, ..)| open.position - base >= BLOCK_SIZE)
            && !self.end_block(open).await?
        {
            return Ok(false);
        }
        if open.block.is_none() {
            let (path, holder) = (open.path.clone(), self.holder());
            let ask = AddBlock { path, holder, previous: open.previous.clone(), inode: Some(open.inode) };
            let Ok(BlockAnswer { block }) = self.call("hdfs addBlock", "addBlock", &ask).await? else {
                return Ok(false);
            };
            open.block = Some((open.position, block, SETUP_CREATE));
        }
        if open.writer.is_none() {
            let Some((base, block, stage)) = &open.block else { return Ok(false) };
            let holder = self.holder();
            let begun = BlockWriter::begin(&self.net, block, (*stage, open.position - base), &holder);
            let Ok(writer) = self.scene.call(&self.name, "hdfs begin block", begun).await? else { return Ok(false) };
            open.writer = Some(writer);
        }
        Ok(true)
    }

    /// Ends the block that is written, and sometimes wants it durable. False: its stream is broken.
    async fn end_block(&mut self, open: &mut Open) -> Check<bool> {
        let Some((base, ..)) = &open.block else { return Ok(true) };
        let base = *base;
        // As Hadoop's client does: the last packet goes when all others are acknowledged.
        if !self.heard(open, "hdfs write").await? {
            return Ok(false);
        }
        if let Some(writer) = open.writer.take() {
            // Sometimes its stream breaks before it hears of that.
            let (mut sync, deaf) = (self.random.one_in(4), self.random.one_in(8));
            let ended = writer.end(open.position - base, sync, deaf);
            let ended = self.scene.call(&self.name, "hdfs write", ended).await?.is_ok() && !deaf;
            if !ended {
                if !(deaf || self.random.one_in(2)) || !self.ends_as_it_is(open).await? {
                    return Ok(false);
                }
                sync = true;
            }
            if sync {
                self.directory.synced(open.tag, open.position);
            }
        }
        open.previous = open.last();
        open.block = None;
        Ok(true)
    }

    /// Waits until everything that was sent is acknowledged. False: the stream is broken.
    async fn heard(&mut self, open: &mut Open, what: &'static str) -> Check<bool> {
        let Some(writer) = &mut open.writer else { return Ok(true) };
        Ok(self.scene.call(&self.name, what, writer.acknowledged()).await?.is_ok())
    }

    async fn flush(&mut self, open: &mut Open) -> Check<bool> {
        if !self.heard(open, "hdfs hflush").await? {
            return Ok(false);
        }
        let promised = self.directory.hflushed(open.tag, open.position, self.losses_at_open);
        if promised {
            whereabouts::look(&self.scene, &self.name, &self.client, open.tag, open.inode).await?;
        }
        self.scene.acknowledged(&self.random);
        Ok(true)
    }

    async fn close(&mut self, mut open: Open) -> Check<()> {
        if !self.end_block(&mut open).await? {
            return self.recover(&mut open).await;
        }
        let (path, holder) = (open.path.clone(), self.holder());
        let ask = Complete { path, holder, last: open.last(), inode: Some(open.inode) };
        for _ in 0..20 {
            match self.call::<Truth>("hdfs complete", "complete", &ask).await? {
                Ok(Truth { result: true }) => {
                    let length = open.position;
                    self.scene.say(|| format!("{}: {} has {length} bytes", self.name, open.path));
                    self.directory.closed(open.tag, length);
                    return Ok(());
                }
                Ok(_) => tokio::time::sleep(Duration::from_millis(200)).await,
                Err(_) => break,
            }
        }
        self.recover(&mut open).await
    }

    async fn create(&mut self, path: &str, stand: Stand) -> Check<Option<Open>> {
        let tag = self.scene.oracle().new_tag();
        self.scene.oracle().may_become(path, Some(tag));
        let overwrite = stand.is_some() || self.random.one_in(2);
        let ask = Create {
            path: path.to_string(),
            masked: Permission { bits: 0o644 },
            holder: self.holder(),
            flags: if overwrite { CREATE | OVERWRITE } else { CREATE },
            parents: false,
            replication: 1,
            block_size: BLOCK_SIZE,
            ..Create::default()
        };
        let doubts = self.calls.doubts;
        match self.call::<CreateAnswer>("hdfs create", "create", &ask).await? {
            Ok(answer) => {
                self.scene.oracle().becomes(path, Some(tag));
                let inode = answer.status.and_then(|status| status.inode).unwrap_or_default();
                let path = path.to_string();
                Ok(Some(Open { path, tag, inode, position: 0, block: None, previous: None, writer: None }))
            }
            // It may be its own first try that has the file: a store remembers calls without floors by count (docs/reference/hdfs.md).
            Err(error) if error.kind() == ErrorKind::Busy && self.calls.doubts > doubts => Ok(None),
            Err(error) => self.directory.not_made(path, stand, &error).map(|()| None),
        }
    }

    async fn append(&mut self, path: &str, tag: u64) -> Check<Option<Open>> {
        let ask = Append { path: path.to_string(), holder: self.holder(), flags: Some(0) };
        match self.call::<AppendAnswer>("hdfs append", "append", &ask).await? {
            Ok(AppendAnswer { block, status }) => {
                let (length, inode) = status.map_or((0, 0), |status| (status.length, status.inode.unwrap_or_default()));
                self.scene.say(|| format!("{}: {path} is open at {length}", self.name));
                self.directory.opened_at(path, tag, length)?;
                let block = block.map(|block| (length - length % BLOCK_SIZE, block, SETUP_APPEND));
                let path = path.to_string();
                Ok(Some(Open { path, tag, inode, position: length, block, previous: None, writer: None }))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Err(self.directory.gone("append", path, tag, &error)),
            Err(_) => Ok(None),
        }
    }

    /// The lease of a file is asked back: it ends with everything that was acknowledged, and nothing that was not sent.
    async fn recover(&mut self, open: &mut Open) -> Check<()> {
        let Open { path, tag, .. } = open;
        let ask = RecoverLease { path: path.clone(), holder: self.holder() };
        let begun = self.scene.clock.now();
        loop {
            match self.call::<Truth>("hdfs recoverLease", "recoverLease", &ask).await? {
                Ok(Truth { result: true }) => break,
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Err(self.directory.gone("recover", path, *tag, &error));
                }
                other if self.scene.clock.now().since(begun) > RECOVERY_MAX => {
                    return Err(Broken(format!("{}: the lease of {path} does not come back: {other:?}", self.name)));
                }
                _ => tokio::time::sleep(Duration::from_millis(500)).await,
            }
        }
        let ask = PathRequest { path: path.clone() };
        let answer: StatusAnswer = self.insist("hdfs getFileInfo", "getFileInfo", &ask).await?;
        let Some(status) = answer.status else {
            let error = Error::new(ErrorKind::NotFound, "there is no status");
            return Err(self.directory.gone("look at", path, *tag, &error));
        };
        self.directory.recovered(path, *tag, status.length)
    }

    async fn read(&mut self) -> Check<()> {
        let Some((path, _)) = self.directory.certain_file() else { return Ok(()) };
        self.read_path(&path).await
    }

    /// Reads a whole file, each block from any of its places, and compares it.
    async fn read_path(&mut self, path: &str) -> Check<()> {
        let ask = GetBlockLocations { path: path.to_string(), offset: 0, length: i64::MAX as u64 };
        let located = match self.call::<GetBlockLocationsAnswer>("hdfs read", "getBlockLocations", &ask).await? {
            Ok(answer) => answer.located.unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let stands = self.scene.oracle().stands(path);
                let tag = stands.iter().flatten().next().copied().unwrap_or_default();
                return if stands.contains(&None) {
                    Ok(())
                } else {
                    Err(self.directory.gone("read", path, tag, &error))
                };
            }
            Err(_) => return Ok(()),
        };
        let (mut bytes, holder) = (Vec::new(), self.holder());
        for block in &located.blocks {
            if block.offset != bytes.len() as u64 {
                return Err(Broken(format!("{path}: a block at {} where {} was next", block.offset, bytes.len())));
            }
            let which = self.random.below(block.locations.len().max(1) as u64) as usize;
            let read = blocks::read(&self.net, block, which, &holder);
            match self.scene.call(&self.name, "hdfs read", read).await? {
                Ok(more) => bytes.extend(more),
                Err(_) => return Ok(()),
            }
        }
        if bytes.len() as u64 != located.file_length {
            return Err(Broken(format!("{path}: blocks of {} bytes, {} in all", bytes.len(), located.file_length)));
        }
        self.scene.count_more("bytes compared", bytes.len() as u64);
        self.scene.count_more("hdfs bytes compared", bytes.len() as u64);
        self.scene.oracle().recognise(path, &bytes).map(drop)
    }

    async fn delete(&mut self) -> Check<()> {
        let Some((path, tag)) = self.directory.deleting() else { return Ok(()) };
        self.scene.say(|| format!("{}: deletes {path}", self.name));
        let ask = DeleteRequest { path: path.clone(), recursive: false };
        let deleted = match self.call::<BoolAnswer>("hdfs delete", "delete", &ask).await? {
            Ok(BoolAnswer { result: false }) => Err(Error::new(ErrorKind::NotFound, "delete says false")),
            // Said of what lies above it.
            Err(error) if error.kind() == ErrorKind::NotFound => Err(Error::new(ErrorKind::Io, error.text())),
            deleted => deleted.map(drop),
        };
        self.directory.deleted(&path, tag, deleted)
    }

    async fn rename(&mut self) -> Check<()> {
        let Some(renaming) = self.directory.renaming() else { return Ok(()) };
        let (from, to) = (renaming.from.clone(), renaming.to.clone());
        self.scene.say(|| format!("{}: renames {from} to {to}", self.name));
        let ask = Rename2Request { from, to, overwrite: true, to_trash: None };
        let renamed = self.call::<EmptyAnswer>("hdfs rename2", "rename2", &ask).await?;
        self.directory.renamed(&renaming, renamed.map(drop))
    }

    async fn stat(&mut self) -> Check<()> {
        let Some((path, stand)) = self.directory.certain_path() else { return Ok(()) };
        let ask = PathRequest { path: path.clone() };
        let Ok(answer) = self.call::<StatusAnswer>("hdfs getFileInfo", "getFileInfo", &ask).await? else {
            return Ok(());
        };
        match (answer.status, stand) {
            (Some(found), Some(tag)) => {
                let promise = self.scene.oracle().promise(tag);
                if found.length > promise.handed {
                    return Err(Broken(format!("{path}: {} bytes long, {promise:?}", found.length)));
                }
                Ok(())
            }
            (Some(_), None) => Err(Broken(format!("{path}: is there, but was deleted or never made"))),
            (None, Some(tag)) => {
                let error = Error::new(ErrorKind::NotFound, "there is no status");
                Err(self.directory.gone("stat", &path, tag, &error))
            }
            (None, None) => Ok(()),
        }
    }
}

//! Files that another program takes from their writer, and writers that go on as if nothing had been: what the first one was told to be
//! synced stays, and nothing of it is taken any more. And calls that arrive once more, late and at another gateway, and programs that open
//! one path at the same instant.

use super::blocks::BlockWriter;
use super::calls::{Calls, wait_out};
use super::{BLOCK_SIZE, RECOVERY_MAX};
use crate::simulate::format::content;
use crate::simulate::oracle::{Broken, Check};
use crate::simulate::scene::Scene;
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind, Result};
use client::Client;
use gateway_hdfs::message::files::{
    AddBlock, Append, AppendAnswer, BlockAnswer, CREATE, Complete, Create, CreateAnswer, Fsync, Nothing, OVERWRITE,
    RecoverLease, RenewLease, Truth,
};
use gateway_hdfs::message::hdfs::{ExtendedBlock, LocatedBlock, Permission};
use gateway_hdfs::message::names::{BoolAnswer, MkdirsRequest};
use gateway_hdfs::message::transfer::{SETUP_APPEND, SETUP_CREATE};
use prost::Message;
use sim::net::SimNet;
use sim::random::SimRandom;
use std::sync::Arc;
use std::time::Duration;

/// Where the files are.
pub const DIRECTORY: &str = "/taken";

/// Files that are taken.
const ROUNDS: u64 = 6;

/// Longest pause between two things, in milliseconds.
const PAUSE_MAX: u64 = 300;

/// Two programs that are both told within this time that they have a file have it both.
const AT_ONCE: Duration = Duration::from_secs(30);

/// By then anybody may have the file of a program that says nothing.
const SOFT_LIMIT_PASSED: Duration = Duration::from_secs(120);

/// One of the two programs.
struct Program {
    scene: Arc<Scene>,
    net: SimNet,
    random: SimRandom,
    who: String,
    holder: String,
    calls: Calls,
}

/// A file that a program has open.
struct Open {
    path: String,
    inode: u64,
    /// Bytes of the file so far, as this program knows it.
    position: u64,
    /// Where the block that it writes begins, and the block.
    block: Option<(u64, LocatedBlock, i32)>,
    writer: Option<BlockWriter>,
}

/// What one writer made of the file, from where it began.
#[derive(Clone, Copy, Debug)]
struct Part {
    tag: u64,
    from: u64,
    /// Nothing may take what was synced up to here; nothing was sent from there on.
    synced: u64,
    handed: u64,
}

/// Lets one program take files from another one.
pub async fn play(scene: &Arc<Scene>, random: &SimRandom, name: &str, client: &Client) -> Check<()> {
    let program = |label: &str| {
        let who = format!("{name} {label}");
        let (net, random) = (scene.net.host(&who), random.fork(label));
        let calls = Calls::new(scene.clone(), net.clone(), random.fork("calls"), &who);
        Program { scene: scene.clone(), net, random, holder: format!("DFSClient_{who}"), who, calls }
    };
    let (mut one, mut other) = (program("one"), program("other"));
    let (path, masked) = (DIRECTORY.to_string(), Permission { bits: 0o755 });
    let ask = MkdirsRequest { path, masked, parents: true, open: None };
    one.insist::<BoolAnswer>("hdfs mkdirs", "mkdirs", &ask).await?;
    for _ in 0..ROUNDS {
        tokio::time::sleep(Duration::from_millis(random.below(2_000))).await;
        let path = format!("{DIRECTORY}/{:x}", random.next());
        match random.below(4) {
            0 => arrives_late(&mut one, client, &path).await?,
            1 => at_once(&mut one, &mut other, client, &path).await?,
            _ => is_taken(&mut one, &mut other, client, &path).await?,
        }
    }
    Ok(())
}

/// Two programs create a file, or append to one, at the same instant: one of them has it, and what it writes stays. The call of the first
/// may arrive twice, at two gateways at the same time.
async fn at_once(one: &mut Program, other: &mut Program, client: &Client, path: &str) -> Check<()> {
    let mut parts = Vec::new();
    let is_new = one.random.one_in(2);
    if !is_new {
        let Some(mut open) = one.create(path).await? else { return Ok(()) };
        let mut part = one.part(0);
        if one.begin_block(&mut open).await? {
            one.write(&mut open, &mut part).await?;
        }
        if !one.complete(&mut open).await? {
            return Ok(());
        }
        parts.push(part);
    }
    other.calls.go_elsewhere();
    let (twice, begun, starts) = (one.random.one_in(2), one.scene.clock.now(), starts(&one.scene));
    let (first, second) = match is_new {
        true => tokio::join!(one.create_as(path, CREATE, twice), other.create_as(path, CREATE, false)),
        false => tokio::join!(one.append_once(path, twice), other.append_once(path, false)),
    };
    let (first, second) = (first?, second?);
    // Who was told first through a gateway that was started again may have lost the file since then.
    let at_once = one.scene.clock.now().since(begun) < AT_ONCE && starts == self::starts(&one.scene);
    one.scene.count("hdfs files opened at once");
    let (writer, mut open) = match (first, second) {
        (Some(_), Some(_)) if is_new || !twice && at_once => {
            return Err(Broken(format!("{}: {path} is open for two programs", one.who)));
        }
        (Some(open), None) => (one, open),
        (None, Some(open)) => (other, open),
        // Nobody has it, or the second one since the first one's time was over, or since the copy of the first one's call took the file from
        // where it was open, and the second one was faster than that.
        _ => return Ok(()),
    };
    if let Some(before) = parts.last()
        && (open.position < before.synced || open.position > before.handed)
    {
        let text = format!("{path}: {} bytes long when it was opened, {before:?}", open.position);
        return Err(Broken(format!("{}: {text}", writer.who)));
    }
    let mut part = writer.part(open.position);
    if writer.begin_block(&mut open).await? {
        writer.write(&mut open, &mut part).await?;
        writer.write(&mut open, &mut part).await?;
    }
    if writer.random.one_in(2) {
        writer.complete(&mut open).await?;
    }
    parts.push(part);
    writer.compare(client, path, &parts).await
}

/// How often a node was started so far.
fn starts(scene: &Scene) -> u64 {
    scene.counts().get("starts").copied().unwrap_or_default()
}

/// One program writes, maybe nothing yet; another one has its file, and the first goes on.
async fn is_taken(one: &mut Program, other: &mut Program, client: &Client, path: &str) -> Check<()> {
    let Some(mut open) = one.create(path).await? else { return Ok(()) };
    let mut first = one.part(0);
    let begun = one.begin_block(&mut open).await?;
    if begun && !one.random.one_in(3) {
        one.write(&mut open, &mut first).await?;
    }
    if begun && one.random.one_in(4) {
        one.elsewhere(&mut open).await?;
        one.write(&mut open, &mut first).await?;
    }
    if open.writer.is_some() && one.random.one_in(3) {
        // On its way when the file is taken.
        one.send(&mut open, &mut first, false).await?;
    }
    if one.random.one_in(2) {
        other.calls.go_elsewhere();
    }
    let recovers = !one.random.one_in(4);
    if recovers && !other.recover(path).await? {
        return Ok(());
    }
    let mut parts = vec![first];
    if !recovers || one.random.one_in(2) {
        let Some(mut theirs) = other.append(path).await? else { return Ok(()) };
        let mut second = other.part(theirs.position);
        if theirs.position < first.synced || theirs.position > first.handed {
            let text = format!("{path}: {} bytes long when it was taken, {first:?}", theirs.position);
            return Err(Broken(format!("{}: {text}", other.who)));
        }
        let early = one.random.one_in(2);
        if early {
            one.is_refused(&mut open, "while another one has its file").await?;
        }
        if other.begin_block(&mut theirs).await? {
            other.write(&mut theirs, &mut second).await?;
        }
        if !early {
            one.is_refused(&mut open, "after another one wrote its file").await?;
        }
        other.complete(&mut theirs).await?;
        parts.push(second);
    } else {
        one.is_refused(&mut open, "after its file was closed").await?;
    }
    other.scene.count("hdfs files taken");
    other.compare(client, path, &parts).await
}

/// One program writes, and calls that it made before arrive once more.
async fn arrives_late(one: &mut Program, client: &Client, path: &str) -> Check<()> {
    let Some(mut open) = one.create(path).await? else { return Ok(()) };
    let mut said = vec![one.calls.said.clone()];
    let mut part = one.part(0);
    let begun = one.begin_block(&mut open).await?;
    said.push(one.calls.said.clone());
    if begun {
        one.write(&mut open, &mut part).await?;
    }
    if one.random.one_in(2) && one.complete(&mut open).await? {
        said.push(one.calls.said.clone());
        if let Some(again) = one.append(path).await? {
            if again.position < part.synced || again.position > part.handed {
                let text = format!("{path}: {} bytes long when it was opened again, {part:?}", again.position);
                return Err(Broken(format!("{}: {text}", one.who)));
            }
            (part.handed, open) = (again.position, again);
            said.push(one.calls.said.clone());
            if one.begin_block(&mut open).await? {
                one.write(&mut open, &mut part).await?;
            }
        }
    }
    for _ in 0..1 + one.random.below(2) {
        let again = said[one.random.below(said.len() as u64) as usize].clone();
        // Answered or refused: it was answered before.
        drop(one.scene.call(&one.who, "hdfs arrives late", one.calls.arrives_late(&again)).await?);
        one.scene.count("hdfs calls that arrived late");
        if open.writer.is_some() && one.random.one_in(2) {
            one.write(&mut open, &mut part).await?;
        }
    }
    one.compare(client, path, &[part]).await
}

impl Program {
    async fn call<A: Message + Default>(
        &mut self,
        what: &'static str,
        method: &'static str,
        request: &impl Message,
    ) -> Check<Result<A>> {
        tokio::time::sleep(Duration::from_millis(self.random.below(PAUSE_MAX))).await;
        if self.random.one_in(3) {
            self.calls.go_elsewhere();
        }
        self.scene.call(&self.who, what, self.calls.ask(method, request)).await
    }

    async fn insist<A: Message + Default>(
        &mut self,
        what: &'static str,
        method: &'static str,
        request: &impl Message,
    ) -> Check<A> {
        let begun = self.scene.clock.now();
        loop {
            match self.call(what, method, request).await? {
                Ok(answer) => return Ok(answer),
                Err(refusal) => wait_out(&self.scene, begun, &self.who, what, refusal).await?,
            }
        }
    }

    /// What it writes from here on.
    fn part(&self, from: u64) -> Part {
        Part { tag: self.random.next() | 1 << 63, from, synced: from, handed: from }
    }

    async fn create(&mut self, path: &str) -> Check<Option<Open>> {
        self.create_as(path, CREATE | OVERWRITE, false).await
    }

    async fn create_as(&mut self, path: &str, flags: u32, twice: bool) -> Check<Option<Open>> {
        let ask = Create {
            path: path.to_string(),
            masked: Permission { bits: 0o644 },
            holder: self.holder.clone(),
            flags,
            parents: false,
            replication: 1,
            block_size: BLOCK_SIZE,
            ..Create::default()
        };
        let made = match twice {
            true => self.scene.call(&self.who, "hdfs create", self.calls.ask_twice("create", &ask)).await?,
            false => self.call::<CreateAnswer>("hdfs create", "create", &ask).await?,
        };
        let Ok(CreateAnswer { status: Some(status) }) = made else { return Ok(None) };
        let (path, inode) = (path.to_string(), status.inode.unwrap_or_default());
        Ok(Some(Open { path, inode, position: 0, block: None, writer: None }))
    }

    /// Opens a file at its end as soon as it may. None: not within a long time.
    async fn append(&mut self, path: &str) -> Check<Option<Open>> {
        let ask = Append { path: path.to_string(), holder: self.holder.clone(), flags: Some(0) };
        let begun = self.scene.clock.now();
        while self.scene.clock.now().since(begun) < RECOVERY_MAX {
            match self.call::<AppendAnswer>("hdfs append", "append", &ask).await? {
                Ok(answer) => return Ok(Some(appended(path, answer))),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Err(Broken(format!("{}: {path} is not there: {error}", self.who)));
                }
                // It may be open for this very program, by a call that was given up.
                Err(_) if self.scene.clock.now().since(begun) > SOFT_LIMIT_PASSED => drop(self.recover(path).await?),
                Err(_) => tokio::time::sleep(Duration::from_secs(2)).await,
            }
        }
        self.scene.count("hdfs files not had");
        Ok(None)
    }

    /// Opens a file at its end if it may at once.
    async fn append_once(&mut self, path: &str, twice: bool) -> Check<Option<Open>> {
        let ask = Append { path: path.to_string(), holder: self.holder.clone(), flags: Some(0) };
        let opened = match twice {
            true => self.scene.call(&self.who, "hdfs append", self.calls.ask_twice("append", &ask)).await?,
            false => self.call::<AppendAnswer>("hdfs append", "append", &ask).await?,
        };
        Ok(opened.ok().map(|answer| appended(path, answer)))
    }

    /// Asks a file back from whoever writes it. False: not within a long time.
    async fn recover(&mut self, path: &str) -> Check<bool> {
        let ask = RecoverLease { path: path.to_string(), holder: self.holder.clone() };
        let begun = self.scene.clock.now();
        loop {
            match self.call::<Truth>("hdfs recoverLease", "recoverLease", &ask).await? {
                Ok(Truth { result: true }) => return Ok(true),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Err(Broken(format!("{}: {path} is not there: {error}", self.who)));
                }
                other if self.scene.clock.now().since(begun) > RECOVERY_MAX => {
                    return Err(Broken(format!("{}: the lease of {path} does not come back: {other:?}", self.who)));
                }
                _ => tokio::time::sleep(Duration::from_millis(500)).await,
            }
        }
    }

    /// There is a block and a connection that writes it. False: none could be had.
    async fn begin_block(&mut self, open: &mut Open) -> Check<bool> {
        if open.block.is_none() {
            let (path, holder) = (open.path.clone(), self.holder.clone());
            let ask = AddBlock { path, holder, previous: None, inode: Some(open.inode) };
            let Ok(BlockAnswer { block }) = self.call("hdfs addBlock", "addBlock", &ask).await? else {
                return Ok(false);
            };
            open.block = Some((open.position, block, SETUP_CREATE));
        }
        let Some((_, block, stage)) = &open.block else { return Ok(false) };
        let begun = BlockWriter::begin(&self.net, block, (*stage, 0), &self.holder);
        open.writer = self.scene.call(&self.who, "hdfs begin block", begun).await?.ok();
        Ok(open.writer.is_some())
    }

    /// Sends some bytes in one packet, as long as the block has room.
    async fn send(&mut self, open: &mut Open, part: &mut Part, sync: bool) -> Check<bool> {
        let (Some((base, ..)), Some(writer)) = (&open.block, &mut open.writer) else { return Ok(false) };
        let within = open.position - base;
        let length = (1 + self.random.below(9_000)).min(BLOCK_SIZE - within);
        if length == 0 {
            return Ok(false);
        }
        let bytes = content(part.tag, open.position, length as usize);
        part.handed = part.handed.max(open.position + length);
        let sent = self.scene.call(&self.who, "hdfs write", writer.send(within, &bytes, sync)).await?;
        open.position += length;
        Ok(sent.is_ok())
    }

    /// Sends some bytes and waits until they are synced. A stream that fails is broken from there on.
    async fn write(&mut self, open: &mut Open, part: &mut Part) -> Check<()> {
        let sent = self.send(open, part, true).await?;
        let Some(writer) = &mut open.writer else { return Ok(()) };
        if sent && self.scene.call(&self.who, "hdfs hsync", writer.acknowledged()).await?.is_ok() {
            part.synced = open.position;
            self.scene.acknowledged(&self.random);
        } else {
            open.writer = None;
        }
        Ok(())
    }

    /// Says at any gateway that it lives, and has the file's length recorded there.
    async fn elsewhere(&mut self, open: &mut Open) -> Check<()> {
        self.calls.go_elsewhere();
        let renew = RenewLease { holder: self.holder.clone() };
        drop(self.call::<Nothing>("hdfs renewLease", "renewLease", &renew).await?);
        let (path, holder) = (open.path.clone(), self.holder.clone());
        let ask = Fsync { path, holder, inode: Some(open.inode) };
        drop(self.call::<Nothing>("hdfs fsync", "fsync", &ask).await?);
        Ok(())
    }

    /// Goes on with a file that somebody else has by now: nothing that it sends is acknowledged, and no call goes well.
    async fn is_refused(&mut self, open: &mut Open, when: &str) -> Check<()> {
        let (mut forged, position) = (self.part(open.position), open.position);
        if open.writer.is_none() && open.block.is_some() && self.random.one_in(2) {
            self.begin_block(open).await?;
        }
        let had = open.writer.is_some();
        if self.send(open, &mut forged, true).await?
            && let Some(writer) = &mut open.writer
            && self.scene.call(&self.who, "hdfs asked too late", writer.acknowledged()).await?.is_ok()
        {
            return Err(Broken(format!("{}: a packet at {position} of {} was taken {when}", self.who, open.path)));
        }
        if had {
            self.scene.count("hdfs packets refused");
        }
        open.writer = None;
        // The block that it knows, and as many bytes as it sent.
        let ask = self.completion(open);
        match self.call::<Truth>("hdfs complete", "complete", &ask).await? {
            Ok(Truth { result: true }) if open.position > position => Err(Broken(format!(
                "{}: {} was closed for it with {} bytes {when}",
                self.who, open.path, open.position
            ))),
            _ => Ok(()),
        }
    }

    fn completion(&self, open: &Open) -> Complete {
        let last = open
            .block
            .as_ref()
            .map(|(base, block, _)| ExtendedBlock { length: Some(open.position - base), ..block.block.clone() });
        Complete { path: open.path.clone(), holder: self.holder.clone(), last, inode: Some(open.inode) }
    }

    /// Closes a file. False: it may be open still.
    async fn complete(&mut self, open: &mut Open) -> Check<bool> {
        let ask = self.completion(open);
        for _ in 0..20 {
            match self.call::<Truth>("hdfs complete", "complete", &ask).await? {
                Ok(Truth { result: true }) => return Ok(true),
                Ok(_) => tokio::time::sleep(Duration::from_millis(200)).await,
                Err(_) => break,
            }
        }
        Ok(false)
    }

    /// The file is closed by whoever asks, and has the bytes of its writers, each from where it began.
    async fn compare(&mut self, client: &Client, path: &str, parts: &[Part]) -> Check<()> {
        // What was given up may still be on its way.
        if self.random.one_in(2) {
            tokio::time::sleep(self.scene.late).await;
        }
        self.recover(path).await?;
        let read = self.scene.insist(&self.who, "look", || client.read_small(path)).await?;
        let bytes = read.map_err(|error: Error| Broken(format!("{}: {path}: {error}", self.who)))?;
        self.scene.count_more("hdfs bytes compared", bytes.len() as u64);
        let Some(last) = parts.last() else { return Ok(()) };
        let length = bytes.len() as u64;
        if length < last.synced || length > last.handed {
            return Err(Broken(format!("{}: {path} has {length} bytes: {parts:?}", self.who)));
        }
        for (place, part) in parts.iter().enumerate() {
            let end = parts.get(place + 1).map_or(length, |next| next.from);
            let (from, end) = (part.from as usize, end as usize);
            if bytes.get(from..end) != Some(content(part.tag, part.from, end - from).as_slice()) {
                let text = format!("{path} does not have the bytes {from}..{end} of its writer: {parts:?}");
                return Err(Broken(format!("{}: {text}", self.who)));
            }
        }
        Ok(())
    }
}

/// A file that was opened at its end.
fn appended(path: &str, AppendAnswer { block, status }: AppendAnswer) -> Open {
    let (position, inode) = status.map_or((0, 0), |it| (it.length, it.inode.unwrap_or_default()));
    let block = block.map(|block| (position - position % BLOCK_SIZE, block, SETUP_APPEND));
    Open { path: path.to_string(), inode, position, block, writer: None }
}

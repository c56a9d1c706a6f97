//! Emptying a device before it is removed. What is left to do follows from the metadata store and from the device, so a drain that
//! was cut short goes on at the next start. Reads and writes go on meanwhile.

use crate::device::{Device, Item};
use crate::housekeeping::compare;
use crate::log::Level;
use crate::service::Node;
use crate::translate::place_of;
use base::checksum::BlockSums;
use base::disk::Caching;
use base::error::{Error, ErrorKind, Result};
use base::id::{BagId, ChunkId, DeviceId, GroupId, Owner};
use base::limit::{LIST_PAGE_MAX, RECORD_PAYLOAD_MAX};
use base::policy::{self, Class};
use base::unit::{WallTime, show_bytes};
use bytes::Bytes;
use chunk::{Check, ChunkStat, Reply, Request, Usage};
use meta::request::{BagInfo, Carried, NewGroup};
use net::Responder;
use net::message::{Done, device as wire};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Between two looks at devices that are being emptied and at which nothing can be done just now.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Bytes copied at once: one record.
const STEP: u64 = RECORD_PAYLOAD_MAX as u64;

/// How far a drain has come since the node started.
#[derive(Clone, Debug, Default)]
pub struct Draining {
    /// When it began, or went on.
    pub began: WallTime,
    /// Chunks that were moved.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What it waits for; empty while it has work.
    pub waits: String,
    /// The device is empty and no longer one of the store's.
    pub over: bool,
}

impl Draining {
    /// As the wire has it.
    pub fn state(&self) -> wire::DrainState {
        wire::DrainState { began_ms: self.began.0, chunks: self.chunks, bytes: self.bytes, waits: self.waits.clone() }
    }
}

/// Empties devices until the node stops.
pub async fn run(node: Arc<Node>, mut stopped: watch::Receiver<bool>) {
    while !*stopped.borrow() {
        for device in node.served().filter(|device| device.is_draining()) {
            let passed = tokio::select! {
                biased;
                _ = stopped.changed() => return,
                passed = pass(&node, device) => passed,
            };
            if let Err(error) = passed {
                node.log.say(Level::Warn, "drain", error.text(), &[("place", &device.place)]);
                device.drained(|draining| draining.waits = error.text().to_string());
            }
        }
        tokio::select! {
            biased;
            _ = stopped.changed() => return,
            () = node.drains.notified() => (),
            () = tokio::time::sleep(LOOK_EVERY) => (),
        }
    }
}

/// Does everything that can be done now for one device, and removes it if nothing is left on it.
async fn pass(node: &Node, device: &Arc<Device>) -> Result<()> {
    let mut waits = Vec::new();
    move_groups(node, device, &mut waits).await?;
    leave_bags(node, device, &mut waits).await?;
    let left = leftovers(node, device).await?;
    if left > 0 && waits.is_empty() {
        waits.push(format!("{left} chunks that are being deleted"));
    }
    if !waits.is_empty() {
        let text = waits.join("; ");
        device.drained(|draining| draining.waits = text);
        return Ok(());
    }
    node.metadata.ask(meta::Request::DeviceRemove { device: device.id }).await?;
    device.drained(|draining| draining.over = true);
    let text = "the device is empty and removed; its directory may be deleted";
    node.log.say(Level::Info, "drain", text, &[("place", &device.place)]);
    Ok(())
}

async fn move_groups(node: &Node, device: &Arc<Device>, waits: &mut Vec<String>) -> Result<()> {
    let (mut after, mut unreadable) = (None, Vec::new());
    loop {
        let request = meta::Request::GroupsOn { device: device.id, after, limit: LIST_PAGE_MAX };
        let meta::Reply::GroupsOn { groups, resume } = node.metadata.ask(request).await? else {
            unreachable!("the groups on a device were asked for")
        };
        for group in &groups {
            let (_, chunk) = place_of(group);
            let one = Move { node, from: device, group: group.group, chunk };
            match one.run().await {
                Ok(bytes) => device.drained(|draining| {
                    draining.waits.clear();
                    draining.chunks += 1;
                    draining.bytes += bytes;
                }),
                // Garbage, which housekeeping collects.
                Err(error) if error.kind() == ErrorKind::Stale => {
                    waits.push("what was deleted to be collected".to_string())
                }
                Err(error) if error.kind() == ErrorKind::Full => return Err(error),
                Err(error) => unreadable.push(error.text().to_string()),
            }
        }
        after = resume;
        if after.is_none() {
            break;
        }
    }
    waits.dedup();
    if let Some(first) = unreadable.first() {
        waits.push(format!(
            "{} chunks that could not be moved; `stormwell device scrub` names the files with damage: put them again or remove \
             them; the first: {first}",
            unreadable.len()
        ));
    }
    Ok(())
}

/// One group's way from a device to another.
struct Move<'a> {
    node: &'a Node,
    from: &'a Arc<Device>,
    group: GroupId,
    chunk: ChunkId,
}

impl Move<'_> {
    /// Moves it. The bytes that were copied.
    async fn run(&self) -> Result<u64> {
        let to = self.target()?;
        // What is there does not change any more: most of it is copied while its writer goes on.
        let copied = match self.stat().await? {
            Some(stat) => self.copy(&to, &stat, 0).await,
            None => Ok(0),
        };
        let copied = match copied {
            Ok(copied) => copied,
            Err(error) => {
                self.forget_copy(&to).await;
                return Err(error);
            }
        };
        self.from.send(Item::Hold { chunk: self.chunk });
        let moved = self.finish(&to, copied).await;
        self.from.send(Item::Departed { chunk: self.chunk, to: moved.is_ok().then(|| to.clone()) });
        if moved.is_err() {
            self.forget_copy(&to).await;
        }
        moved
    }

    /// What came meanwhile, the seal, and the change of the metadata; nothing changes the chunk during this.
    async fn finish(&self, to: &Arc<Device>, copied: u64) -> Result<u64> {
        let mut bytes = 0;
        let stat = self.stat().await?;
        if let Some(stat) = &stat {
            bytes = self.copy(to, stat, copied).await?;
            self.close(to, stat).await?;
        }
        // Housekeeping frees nothing in between: what it freed before is freed in the copy, what it will free it finds there.
        let _turn = self.node.moving.lock().await;
        if stat.is_some() {
            self.release(to).await?;
        }
        loop {
            let (group, chunk, from, to) = (self.group, self.chunk, self.from.id, to.id);
            match self.node.metadata.ask(meta::Request::MoveGroup { group, chunk, from, to }).await {
                Ok(_) => return Ok(bytes),
                Err(error) if matches!(error.kind(), ErrorKind::Stale | ErrorKind::NotFound) => {
                    return Err(Error::new(ErrorKind::Stale, error.text()));
                }
                // Whether it is done is not known, so neither chunk may go or grow until it is.
                Err(_) => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    async fn stat(&self) -> Result<Option<ChunkStat>> {
        match self.from.ask(Request::Stat { chunk: self.chunk }).await {
            Ok(Reply::Stat(stat)) => Ok(Some(stat)),
            Ok(other) => unreachable!("a chunk was asked about: {other:?}"),
            // Nothing was written to it yet.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The device that takes it: the one with the most room.
    fn target(&self) -> Result<Arc<Device>> {
        let targets = self.node.targets(self.from);
        let roomy =
            targets.into_iter().filter(|target| !target.usage().full).max_by_key(|target| room(&target.usage()));
        roomy.filter(|target| room(&target.usage()) > STEP).cloned().ok_or_else(|| {
            let text = format!(
                "no other device has room for what is left on {}; nothing is lost; delete something or start the node with another --data DIR",
                self.from.place
            );
            Error::new(ErrorKind::Full, text)
        })
    }

    /// Copies the bytes from `start` on, in order; zeros where they were released. How long the copy is.
    async fn copy(&self, to: &Arc<Device>, stat: &ChunkStat, start: u64) -> Result<u64> {
        let chunk = self.chunk;
        let look = move |engine: &chunk::Engine<_>| (engine.kept_ranges(chunk), engine.has_small_records(chunk));
        let (kept, small_parts) = self.from.look(look).await?;
        let mut at = start;
        while at < stat.length {
            let next = kept.iter().find(|(_, end)| *end > at);
            let most = at.saturating_add(STEP).min(stat.length);
            let bytes = match next {
                Some((from, end)) if *from <= at => self.read(at, most.min(*end)).await?,
                Some((from, _)) => Bytes::from(vec![0; (most.min(*from) - at) as usize]),
                None => Bytes::from(vec![0; (most - at) as usize]),
            };
            let length = bytes.len() as u64;
            self.append(to, stat, (at, bytes), policy::Level::Written, small_parts).await?;
            at += length;
        }
        Ok(at)
    }

    async fn read(&self, start: u64, end: u64) -> Result<Bytes> {
        let ranges = vec![(start, end - start)];
        let request = Request::Read { chunk: self.chunk, ranges, caching: Caching::Around, check: Check::Here };
        let Reply::Data { mut parts, .. } = self.from.ask(request).await? else { unreachable!("bytes were asked for") };
        let bytes = if parts.len() == 1 { parts.remove(0) } else { Bytes::from(parts.concat()) };
        if bytes.len() as u64 != end - start {
            let text = format!("bytes {start}..{end} of chunk {} are not all there", self.chunk);
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
        Ok(bytes)
    }

    async fn append(
        &self,
        to: &Arc<Device>,
        stat: &ChunkStat,
        (offset, payload): (u64, Bytes),
        level: policy::Level,
        small_parts: bool,
    ) -> Result<()> {
        let sums = BlockSums::of(&payload);
        let (chunk, owner, generation) = (self.chunk, stat.owner, stat.generation);
        let request =
            Request::Append { chunk, owner, generation, offset, payload, sums, level, seal: false, small_parts };
        to.ask(request).await.map(drop)
    }

    /// Makes the copy durable, and as complete as the original is.
    async fn close(&self, to: &Arc<Device>, stat: &ChunkStat) -> Result<()> {
        if !stat.sealed || stat.length == 0 {
            self.append(to, stat, (stat.length, Bytes::new()), policy::Level::Synced, false).await?;
        }
        if !stat.sealed {
            return Ok(());
        }
        let request = Request::Seal { chunk: self.chunk, generation: stat.generation, length: stat.length };
        to.ask(request).await.map(drop)
    }

    /// Releases in the copy what is released in the original.
    async fn release(&self, to: &Arc<Device>) -> Result<()> {
        let chunk = self.chunk;
        let (kept, length) = self.from.look(move |engine| (engine.kept_ranges(chunk), engine.length_of(chunk))).await?;
        let (mut ranges, mut at) = (Vec::new(), 0);
        for (start, end) in kept.into_iter().chain([(length, length)]) {
            if at < start {
                ranges.push((at, start - at));
            }
            at = end;
        }
        if !ranges.is_empty() {
            to.ask(Request::Release { chunk, ranges }).await?;
        }
        Ok(())
    }

    /// A copy that nobody knows of goes; if that is cut short, at the next start.
    async fn forget_copy(&self, to: &Arc<Device>) {
        let _later = to.ask(Request::Delete { chunks: vec![self.chunk] }).await;
    }
}

/// Leaves every bag whose chunks on the device are handled; those that have some are waited for.
async fn leave_bags(node: &Node, device: &Arc<Device>, waits: &mut Vec<String>) -> Result<()> {
    for bag in node.bags().await?.into_iter().filter(|bag| bag.members.contains(&device.id)) {
        node.others_join(&bag).await?;
        let owner = Owner::Bag(bag.bag);
        let chunks = device.look(move |engine| engine.chunks_of(owner).count()).await?;
        if chunks > 0 {
            let kept = if bag.retain { ", which retains them: until it is removed" } else { "" };
            waits.push(format!("{chunks} chunks of bag {} to be handled{kept}", bag.name));
            continue;
        }
        let Reply::BagStat(stat) = device.ask(Request::BagStat { bag: bag.bag }).await? else {
            unreachable!("a bag's counters were asked for")
        };
        let counts = Carried {
            pushed: stat.pushed,
            pushed_bytes: stat.pushed_bytes,
            acknowledged: stat.acknowledged,
            acknowledged_bytes: stat.acknowledged_bytes,
        };
        let leaving = Some((device.id, counts));
        node.metadata.ask(meta::Request::BagMembers { bag: bag.bag, joining: Vec::new(), leaving }).await?;
        if !device.usage().failed {
            device.ask(Request::DropBag { bag: bag.bag }).await?;
        }
        device.send(Item::BagChanged { bag: bag.bag });
    }
    Ok(())
}

/// Deletes chunks whose group is elsewhere by now. How many chunks are left.
async fn leftovers(node: &Node, device: &Arc<Device>) -> Result<usize> {
    // A disk that failed a sync takes no deletion; what is on it by now is of no use to anybody.
    if device.usage().failed {
        return Ok(0);
    }
    compare(node, device).await
}

/// Bytes that a device may still take.
fn room(usage: &Usage) -> u64 {
    usage.capacity.saturating_sub(usage.reserve).saturating_sub(usage.used)
}

impl Node {
    /// Begins to empty a device, durably, or says why that cannot be. One that is being emptied goes on.
    pub async fn drain(&self, ask: wire::Drain) -> Result<Done> {
        let device = self.device(ask.device)?;
        if !device.is_draining() {
            self.may_drain(device)?;
            self.metadata.ask(meta::Request::DeviceDrain { device: device.id }).await?;
            device.begin_draining(self.clock.wall());
        }
        self.drains.notify_one();
        Ok(Done {})
    }

    fn may_drain(&self, device: &Arc<Device>) -> Result<()> {
        let place = &device.place;
        if *place == self.metadata_at {
            let text = format!(
                "{place} also holds the store's metadata, which has no second place; nothing was moved; stop the node, move the \
                 directory `meta` into the directory of another device, and start it again"
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let targets = self.targets(device);
        let usage = device.usage();
        let free = targets.iter().map(|target| room(&target.usage())).fold(0, u64::saturating_add);
        // A header for each record and for each chunk's last, and a sixty-fourth for journals and checkpoints.
        let need = usage.live.saturating_add(usage.live / 64).saturating_add(usage.chunks.saturating_mul(8192));
        if targets.is_empty() {
            let text = format!(
                "no other device could take what is on {place}; nothing was moved; start the node with another --data DIR"
            );
            return Err(Error::new(ErrorKind::Full, text));
        }
        if free < need {
            let text = format!(
                "{place} holds {} in {} chunks and the other devices have room for {}; nothing was moved; delete something or start \
                 the node with another --data DIR",
                show_bytes(usage.live),
                usage.chunks,
                show_bytes(free)
            );
            return Err(Error::new(ErrorKind::Full, text));
        }
        Ok(())
    }

    /// The devices that may take what is on this one: of its class if there are others, else of any but `bulk`.
    fn targets(&self, device: &Device) -> Vec<&Arc<Device>> {
        let others = || {
            let usable = |other: &&Arc<Device>| !other.is_draining() && !other.usage().failed;
            self.served().filter(|other| other.id != device.id).filter(usable)
        };
        let same: Vec<_> = others().filter(|other| other.class == device.class).collect();
        if same.is_empty() { others().filter(|other| other.class != Class::Bulk).collect() } else { same }
    }

    /// All bags, in the order of their names.
    pub async fn bags(&self) -> Result<Vec<BagInfo>> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let meta::Reply::Bags { bags, more } =
                self.metadata.ask(meta::Request::BagList { after, limit: LIST_PAGE_MAX }).await?
            else {
                unreachable!("bags were asked for")
            };
            after = bags.last().map(|bag| bag.name.clone());
            found.extend(bags);
            if !more {
                return Ok(found);
            }
        }
    }

    /// The members of a bag that take chunks.
    fn members_that_take(&self, bag: &BagInfo) -> Vec<&Arc<Device>> {
        let takes = |device: &&Arc<Device>| !device.is_draining() && !device.usage().failed;
        bag.members.iter().filter_map(|member| self.devices.get(member)).filter(takes).collect()
    }

    /// A bag all of whose members are being emptied gets others.
    async fn others_join(&self, bag: &BagInfo) -> Result<BagInfo> {
        if !self.members_that_take(bag).is_empty() {
            return Ok(bag.clone());
        }
        let joining =
            bag.members.iter().filter_map(|member| self.devices.get(member)).flat_map(|member| self.targets(member));
        let joining: Vec<DeviceId> = joining.map(|device| device.id).collect();
        match self.metadata.ask(meta::Request::BagMembers { bag: bag.bag, joining, leaving: None }).await? {
            meta::Reply::Bag(changed) => Ok(changed),
            other => unreachable!("a bag was changed: {other:?}"),
        }
    }

    /// A push to a device that is being emptied: another member takes the chunk, unless one has it already. Asked again, it goes
    /// the same way.
    pub async fn push_elsewhere(
        &self,
        device: &Arc<Device>,
        (bag, chunk): (BagId, ChunkId),
        (bytes, sums): (Bytes, BlockSums),
        respond: Responder,
    ) {
        match self.taker(device, bag, chunk).await {
            Ok(taker) => taker.send(Item::Push { bag, chunk, bytes, sums, respond }),
            Err(error) => respond.fail(error),
        }
    }

    async fn taker(&self, device: &Arc<Device>, bag: BagId, chunk: ChunkId) -> Result<Arc<Device>> {
        if device.look(move |engine| engine.knows(chunk)).await? {
            return Ok(device.clone());
        }
        let meta::Reply::Bag(info) = self.metadata.ask(meta::Request::BagOf { bag }).await? else {
            unreachable!("a bag was asked for")
        };
        let info = self.others_join(&info).await?;
        let members = self.members_that_take(&info);
        for member in &members {
            if member.look(move |engine| engine.knows(chunk)).await? {
                return Ok((*member).clone());
            }
        }
        // The same choice for the same chunk, even if two ask at once.
        let rank =
            |member: &&&Arc<Device>| (member.id.0 ^ chunk.0).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        let chosen = members.iter().max_by_key(rank);
        chosen.map(|member| (*member).clone()).ok_or_else(|| {
            let text = "no member of the bag takes chunks; what was acknowledged is safe; add a device";
            Error::new(ErrorKind::Full, text)
        })
    }

    /// The device that has a group's chunk now, for an append to a device that is being emptied: its writer may have been told
    /// before a restart. Nothing may be begun where the group is not.
    pub async fn place_now(&self, device: &Arc<Device>, group: GroupId) -> Result<Arc<Device>> {
        let request = meta::Request::KnownGroups { groups: vec![group] };
        let meta::Reply::Known(known) = self.metadata.ask(request).await? else {
            unreachable!("a known group was asked for")
        };
        let Some(known) = known.first() else {
            let text = format!("group {group} does not exist any more; its file was deleted");
            return Err(Error::new(ErrorKind::NotFound, text));
        };
        let (place, _) = place_of(known);
        Ok(self.devices.get(&place).unwrap_or(device).clone())
    }

    /// The device that holds a chunk which was on one that is being emptied; that one if none does.
    pub async fn holder(&self, device: &Arc<Device>, chunk: ChunkId) -> Result<Arc<Device>> {
        for other in std::iter::once(device).chain(self.served()) {
            if other.look(move |engine| engine.holds(chunk)).await? {
                return Ok(other.clone());
            }
        }
        Ok(device.clone())
    }

    /// Those of the chunks on a device that belong to no group that is there.
    pub async fn unknown_chunks(&self, device: DeviceId, chunks: &[(ChunkId, ChunkStat)]) -> Result<Vec<ChunkId>> {
        let grouped: BTreeMap<ChunkId, GroupId> = chunks
            .iter()
            .filter_map(|(chunk, stat)| match stat.owner {
                Owner::Group(group) => Some((*chunk, group)),
                Owner::Bag(_) => None,
            })
            .collect();
        if grouped.is_empty() {
            return Ok(Vec::new());
        }
        let groups = grouped.values().copied().collect();
        let meta::Reply::Known(known) = self.metadata.ask(meta::Request::KnownGroups { groups }).await? else {
            unreachable!("known groups were asked for")
        };
        let known: BTreeMap<GroupId, NewGroup> = known.into_iter().map(|group| (group.group, group)).collect();
        let is_there = |chunk: ChunkId, group: GroupId| {
            known.get(&group).is_some_and(|group| {
                group.columns.iter().flat_map(|column| &column.replicas).any(|place| *place == (device, chunk))
            })
        };
        Ok(grouped.into_iter().filter(|(chunk, group)| !is_there(*chunk, *group)).map(|(chunk, _)| chunk).collect())
    }
}

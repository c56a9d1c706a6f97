//! Emptying a device before it is removed. What is left to do follows from the metadata store and from the device, so a drain that
//! was cut short goes on at the next start. Reads and writes go on meanwhile.

use super::claims::{Claim, Claims};
use super::comparing::{Left, compare};
use super::job::Job;
use super::moving::Move;
use crate::device::bags::BagCounts;
use crate::device::draining::Draining;
use crate::device::{Device, Item};
use crate::device_handle::DeviceHandle;
use crate::leading::Leading;
use crate::log::Level;
use crate::node::{Node, Role};
use base::error::{Error, ErrorKind, Result};
use base::id::{ChunkId, DeviceId, GroupId, NodeId};
use base::layout::Replica;
use base::limit::LIST_PAGE_MAX;
use base::moved::Moved;
use base::planted::Planted;
use base::unit::show_bytes;
use meta::Caller;
use meta::request::{Carried, DeviceInfo};
use net::message::{Done, cluster, device as wire};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::task::{JoinError, JoinSet};

/// Empties devices, each beside the others: a step begins a pass over each that is not in one.
#[derive(Default)]
pub struct Drain {
    /// Devices that could not be asked at the last step.
    away: BTreeSet<DeviceId>,
    /// End with the job.
    passes: JoinSet<()>,
    under_way: Claims<DeviceId>,
}

impl Job for Drain {
    const NAME: &'static str = "drain";

    fn woken_by(leading: &Leading) -> Option<Arc<Notify>> {
        Some(leading.drains.clone())
    }

    async fn step(&mut self, node: &Arc<Node>, leading: &Arc<Leading>) -> Result<bool> {
        while self.passes.try_join_next().is_some() {}
        let noted = note_away(node, leading, &mut self.away).await;
        let still = leading.jobs.still();
        let may_go_on =
            |handle: &DeviceHandle| handle.is_draining() && handle.can_be_asked() && !still.contains(&handle.id());
        for handle in leading.device_handles(node).into_iter().filter(may_go_on) {
            if let Some(claim) = self.under_way.try_claim(handle.id()) {
                let (node, leading) = (node.clone(), leading.clone());
                self.passes.spawn(async move {
                    let _over = leading.meanwhile(pass_and_say(&node, &leading, handle, claim)).await;
                });
            }
        }
        noted.map(|()| false)
    }
}

async fn pass_and_say(node: &Arc<Node>, leading: &Arc<Leading>, handle: DeviceHandle, claim: Claim<DeviceId>) {
    // One that leads no more has nothing to say of it.
    if let Err(error) = pass(node, leading, &handle).await
        && error.kind() != ErrorKind::Moved
    {
        node.log.say(Level::Warn, "drain", error.text(), &[("place", &handle.shown())]);
        leading.drained(node, &handle, |draining| draining.waits = error.text().to_string());
    }
    drop(claim);
}

/// Notes of drains whose device cannot be asked what they wait for, and forgets it when it can.
async fn note_away(node: &Node, leading: &Leading, away: &mut BTreeSet<DeviceId>) -> Result<()> {
    for info in leading.devices().await?.into_iter().filter(|info| info.draining) {
        if leading.is_near(node, info.node) {
            // It may have been recorded under an earlier leader, or without an answer.
            let own = node.devices.get(&info.device);
            own.into_iter().for_each(|device| device.begin_draining(node.clock.wall()));
            continue;
        }
        // One that was not heard of since this node started is shown as missing, with the reason.
        let Ok(handle) = leading.device_handle(node, info.device) else { continue };
        if let Some(why) = handle.waits_for() {
            away.insert(info.device);
            leading.drained(node, &handle, |draining| draining.waits = why);
        } else if away.remove(&info.device) {
            leading.drained(node, &handle, |draining| draining.waits.clear());
        }
    }
    Ok(())
}

/// What a device waits for that is empty: others of this node whose drain was asked for before. They send their pushes on, and this one may
/// have taken some that are asked again; removed, nobody would know what became of them, and another device would take them once more.
async fn sent_here_from(node: &Node, leading: &Leading, device: &Device) -> Result<Option<String>> {
    let known = leading.devices().await?;
    let Some(own) = known.iter().find(|info| info.device == device.id) else { return Ok(None) };
    let before = |info: &&DeviceInfo| {
        info.node == node.id && info.draining && (info.drain, info.device) < (own.drain, own.device)
    };
    let handle = |info: &DeviceInfo| node.devices.get(&info.device).map(|device| device.place.clone());
    let handles: Vec<String> = known.iter().filter(before).filter_map(handle).collect();
    let text = format!("the end of drains that began before, of {}", handles.join(" and "));
    Ok((!handles.is_empty()).then_some(text))
}

/// Does everything that can be done now for one device, and removes it if nothing is left on it.
async fn pass(node: &Arc<Node>, leading: &Arc<Leading>, handle: &DeviceHandle) -> Result<()> {
    let whole = handle.holds();
    leading.drained(node, handle, |draining| {
        if draining.whole == (0, 0) {
            draining.whole = whole;
        }
    });
    let mut waits = Vec::new();
    move_groups(node, leading, handle, &mut waits).await?;
    leave_bags(node, leading, handle, &mut waits).await?;
    let left = leftovers(node, leading, handle).await?;
    if left.chunks > 0 && waits.is_empty() {
        waits.push(format!("{} chunks that are being deleted", left.chunks));
    }
    if left.newer > 0 {
        waits.push(format!(
            "{} chunks of a kind that only a newer program knows; they are kept; go on with that one",
            left.newer
        ));
    }
    if waits.is_empty()
        && let DeviceHandle::Local(device) = handle
    {
        waits.extend(sent_here_from(node, leading, device).await?);
    }
    if !waits.is_empty() {
        let text = waits.join("; ");
        leading.drained(node, handle, |draining| draining.waits = text);
        return Ok(());
    }
    let shown = handle.shown();
    // Before the metadata forgets it: a report that comes then would make it a new device.
    if let DeviceHandle::Remote(far) = handle {
        leading.peers.removed(far);
    }
    if let Err(error) = leading.metadata.ask(meta::Request::DeviceRemove { device: handle.id() }).await {
        // If the keeper leads no more it may be removed all the same. Whoever leads next learns that from the metadata, and of this leadership
        // nobody may take it for a new device.
        if error.kind() != ErrorKind::Moved {
            leading.peers.stays(handle.id());
        }
        return Err(error);
    }
    match handle {
        DeviceHandle::Local(device) => device.drained(|draining| draining.over = true),
        DeviceHandle::Remote(far) => leading.peers.gone(far),
    }
    let of = match handle {
        DeviceHandle::Local(_) => node.id,
        DeviceHandle::Remote(far) => far.peer.incarnation().0,
    };
    // Where several keep the metadata, that of its node may lie beside it.
    let text = match !leading.alone && node.keepers().contains(&of) {
        true => {
            "the device is empty and removed; its directory may be deleted, but not `meta`, if that is in it: the metadata is kept there"
        }
        false => "the device is empty and removed; its directory may be deleted",
    };
    node.log.say(Level::Info, "drain", text, &[("place", &shown)]);
    Ok(())
}

/// Moves what can be moved now, several chunks at once.
async fn move_groups(
    node: &Arc<Node>,
    leading: &Arc<Leading>,
    handle: &DeviceHandle,
    waits: &mut Vec<String>,
) -> Result<()> {
    let mut moves = Moves::new(node, leading, handle);
    let found = find_moves(node, leading, handle, &mut moves, waits).await;
    // Whatever happened, those that are under way come to their end: a writer may be held back for one.
    let ended = moves.end(waits).await;
    let written = found?;
    ended?;
    let unreadable = moves.unreadable;
    waits.dedup();
    if written > 0 && handle.has_failed() {
        // Without a fence, which is a change, nobody can know that nothing comes after what is copied.
        waits.push(format!(
            "{written} chunks that were being written when the device failed; what they hold is read there meanwhile; they follow when \
             its node was started again"
        ));
    } else if written > 0 {
        waits.push(format!(
            "{written} chunks that are still being written; they follow when their writers close them or are gone"
        ));
    }
    if let Some(first) = unreadable.first() {
        waits.push(format!(
            "{} chunks that could not be moved; `stormwell device scrub` names the files with damage: put them again or remove \
             them; the first: {first}",
            unreadable.len()
        ));
    }
    Ok(())
}

/// Begins to move every chunk that can be moved now. How many are still being written.
async fn find_moves(
    node: &Arc<Node>,
    leading: &Arc<Leading>,
    handle: &DeviceHandle,
    moves: &mut Moves<'_>,
    waits: &mut Vec<String>,
) -> Result<usize> {
    let (mut after, mut written) = (None, 0);
    loop {
        let request = meta::Request::GroupsOn { device: handle.id(), after, limit: LIST_PAGE_MAX };
        let meta::Reply::GroupsOn { groups, open, resume } = leading.metadata.ask(request).await? else {
            unreachable!("the groups on a device were asked for")
        };
        // Which devices may take something is found out once for a page, and again when none of them has room; whether one has room and
        // answers, for each chunk.
        let mut targets = if groups.is_empty() { Vec::new() } else { leading.targets(node, handle).await? };
        for group in &groups {
            let is_open = open.contains(&group.group);
            for Replica { chunk, .. } in group.layout.on(handle.id()) {
                if is_open && group.layout.has_several() {
                    // Its writer counts on each of them.
                    written += 1;
                    continue;
                }
                let turn = moves.turn(waits).await?;
                let mut to = leading.target(node, (handle, &targets), (group, chunk), is_open, &moves.under_way);
                if matches!(&to, Err(error) if error.kind() == ErrorKind::Full) {
                    targets = leading.targets(node, handle).await?;
                    to = leading.target(node, (handle, &targets), (group, chunk), is_open, &moves.under_way);
                }
                match to {
                    Err(error) if error.kind() == ErrorKind::Busy => {
                        if !waits.iter().any(|why| why == error.text()) {
                            waits.push(error.text().to_string());
                        }
                        continue;
                    }
                    to => match to? {
                        Some(to) => moves.begin((group.group, chunk), to, turn),
                        None => written += 1,
                    },
                }
            }
        }
        after = resume;
        if after.is_none() {
            return Ok(written);
        }
    }
}

/// How a chunk's way to a device ended.
type Ended = std::result::Result<(DeviceId, Result<()>), JoinError>;

/// Chunks that are on their way off a device.
struct Moves<'a> {
    node: &'a Arc<Node>,
    leading: &'a Arc<Leading>,
    handle: &'a DeviceHandle,
    tasks: JoinSet<(DeviceId, Result<()>)>,
    /// How many are on their way to each device.
    under_way: BTreeMap<DeviceId, usize>,
    /// Why chunks could not be moved.
    unreadable: Vec<String>,
}

impl Moves<'_> {
    fn new<'a>(node: &'a Arc<Node>, leading: &'a Arc<Leading>, handle: &'a DeviceHandle) -> Moves<'a> {
        Moves { node, leading, handle, tasks: JoinSet::new(), under_way: BTreeMap::new(), unreadable: Vec::new() }
    }

    /// Waits for a turn, and notes what has ended. An error ends the pass.
    async fn turn(&mut self, waits: &mut Vec<String>) -> Result<OwnedSemaphorePermit> {
        let Ok(turn) = self.leading.jobs.moves.clone().acquire_owned().await else { unreachable!("nobody closes it") };
        while let Some(ended) = self.tasks.try_join_next() {
            self.note(ended, waits)?;
        }
        Ok(turn)
    }

    fn begin(&mut self, (group, chunk): (GroupId, ChunkId), to: DeviceHandle, turn: OwnedSemaphorePermit) {
        let target = to.id();
        *self.under_way.entry(target).or_default() += 1;
        let (node, leading) = (self.node.clone(), self.leading.clone());
        let from = self.handle.clone();
        self.tasks.spawn(async move {
            let moves = async { Move::begin((&node, &leading), (group, chunk), (from, to)).await?.run().await };
            let moved = leading.meanwhile(moves).await.unwrap_or_else(|| Err(Moved::default().into()));
            drop(turn);
            (target, moved)
        });
    }

    /// Waits for all of them to end. The first error that ends the pass.
    async fn end(&mut self, waits: &mut Vec<String>) -> Result<()> {
        let mut ended = Ok(());
        while let Some(next) = self.tasks.join_next().await {
            let next = self.note(next, waits);
            ended = ended.and(next);
        }
        ended
    }

    /// One has ended. An error ends the pass.
    fn note(&mut self, ended: Ended, waits: &mut Vec<String>) -> Result<()> {
        let cut_off = |error| Error::new(ErrorKind::Io, format!("moving a chunk was cut off: {error}"));
        let (target, moved) = ended.map_err(cut_off)?;
        if let Some(count) = self.under_way.get_mut(&target) {
            *count = count.saturating_sub(1);
        }
        match moved {
            Ok(()) => self.leading.drained(self.node, self.handle, |draining| {
                draining.waits.clear();
                draining.chunks += 1;
            }),
            // Garbage, which housekeeping collects.
            Err(error) if error.kind() == ErrorKind::Stale => {
                waits.push("what was deleted to be collected".to_string());
            }
            Err(error) if error.kind() == ErrorKind::Busy => waits.push(error.text().to_string()),
            Err(error) if is_no_damage(error.kind()) => return Err(error),
            Err(error) => self.unreadable.push(error.text().to_string()),
        }
        Ok(())
    }
}

/// Whether a move that ended so says nothing of the chunk: there is no room, a node is away or takes no orders of this one, or this one leads no more.
fn is_no_damage(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Full | ErrorKind::Unreachable | ErrorKind::Refused | ErrorKind::Moved)
}

/// Leaves every bag whose chunks on the device are handled; those that have some are waited for. The device takes no new ones.
async fn leave_bags(node: &Node, leading: &Leading, handle: &DeviceHandle, waits: &mut Vec<String>) -> Result<()> {
    for bag in leading.bags().await?.into_iter().filter(|bag| bag.members.contains(&handle.id())) {
        leading.others_join(node, &bag).await?;
        match handle {
            DeviceHandle::Local(device) if handle.has_failed() => device.send(Item::BagChanged { bag: bag.bag }),
            // It takes nothing, and a node that is started with it again is refused as long as anything is on it.
            DeviceHandle::Remote(_) if handle.has_failed() => (),
            // Before it is counted what is there: a push that waits for room in the device would come after the count. And for good:
            // its node may start again with the device as a new one, and producers name it until they ask who is in the bag. What they
            // push there would be found by nobody.
            handle => {
                // Told late, it is right, too: only a join takes that back, which is told after it.
                let (bag, epoch) = (bag.bag, bag.epoch);
                leading.jobs.told(handle, |handle, _| async move { handle.seal_bag(bag, epoch).await }).await?;
            }
        }
        let number = bag.bag;
        let counted = leading.jobs.told(handle, |handle, _| async move { handle.bag_counts(number).await }).await?;
        let BagCounts { stat, chunks, .. } = counted;
        if chunks > 0 && node.planted != Some(Planted::BagLeftWithChunks) {
            let kept = if bag.retain { ", which retains them: until it is removed" } else { "" };
            let failed = if handle.has_failed() { "; they follow when its node was started again" } else { "" };
            waits.push(format!("{chunks} chunks of bag {} to be handled{kept}{failed}", bag.name));
            continue;
        }
        let counts = Carried {
            pushed: stat.pushed,
            pushed_bytes: stat.pushed_bytes,
            acknowledged: stat.acknowledged,
            acknowledged_bytes: stat.acknowledged_bytes,
        };
        let leaving = Some((handle.id(), counts));
        leading
            .metadata
            .ask(meta::Request::BagMembers { bag: bag.bag, state: bag.state, joining: Vec::new(), leaving })
            .await?;
    }
    Ok(())
}

/// Deletes chunks whose group is elsewhere by now. What is left.
async fn leftovers(node: &Node, leading: &Leading, handle: &DeviceHandle) -> Result<Left> {
    if !handle.has_failed() {
        return compare(node, leading, handle).await;
    }
    // A disk that failed a sync takes no deletion. What is on it by now is of no use to anybody, but for what only a newer program knows.
    let (mut left, mut after) = (Left::default(), None);
    loop {
        let (chunks, more) = handle.inventory(after, LIST_PAGE_MAX).await?;
        left.newer += leading.unknown_chunks(node, handle.id(), &chunks).await?.newer;
        after = chunks.last().map(|(chunk, _)| *chunk);
        if !more || after.is_none() {
            return Ok(left);
        }
    }
}

impl Node {
    /// Begins to empty a device, durably, or says why that cannot be. One that is being emptied goes on, and one that was emptied and removed
    /// is done: whoever asks again because his connection broke may come after the end.
    pub async fn drain(&self, leading: &Leading, caller: Caller, ask: wire::Drain) -> Result<Done> {
        let device = DeviceId(ask.device.value());
        match leading.devices().await?.iter().find(|known| known.device == device) {
            None => return self.removed_before(leading, device).await,
            Some(known) if known.draining => return Ok(Done {}),
            Some(_) => {}
        }
        let handle = leading.device_handle(self, device)?;
        self.may_drain(leading, std::slice::from_ref(&handle)).await?;
        leading.metadata.ask_for(caller, meta::Request::DeviceDrain { device }).await?;
        self.begin_drain(leading, &handle);
        Ok(Done {})
    }

    /// Of a device that is not the store's: done if it was emptied and removed. Refused if the store knows of none, as of those in memory.
    async fn removed_before(&self, leading: &Leading, device: DeviceId) -> Result<Done> {
        let removed = leading.metadata.removed(vec![device]).await?;
        if removed.is_empty() { Err(self.not_here(device, Some(leading))) } else { Ok(Done {}) }
    }

    /// Begins to empty all devices of a node, those too that it brings later, or none.
    pub async fn drain_node(&self, leading: &Leading, caller: Caller, ask: cluster::DrainNode) -> Result<Done> {
        let node = NodeId(ask.node.value());
        if self.keepers().contains(&node) {
            let text = "this node keeps the metadata, which has no second place; nothing was moved; drain its other devices one by one";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        if !leading.nodes().await?.1.iter().any(|known| known.info.node == node) {
            return Err(Error::new(ErrorKind::NotFound, format!("node {node} is not one of this cluster's")));
        }
        let mut handles = Vec::new();
        for info in leading.devices().await?.into_iter().filter(|info| info.node == node && !info.draining) {
            handles.push(leading.device_handle(self, info.device)?);
        }
        self.may_drain(leading, &handles).await?;
        leading.metadata.ask_for(caller, meta::Request::NodeDrain { node }).await?;
        handles.iter().for_each(|handle| self.begin_drain(leading, handle));
        Ok(Done {})
    }

    /// Begins with what the metadata store has noted.
    fn begin_drain(&self, leading: &Leading, handle: &DeviceHandle) {
        match handle {
            DeviceHandle::Local(device) => device.begin_draining(self.clock.wall()),
            // Its node hears of it with the answer to its next report.
            DeviceHandle::Remote(_) => leading.drained(self, handle, |_| ()),
        }
        leading.drains.notify_one();
    }

    async fn may_drain(&self, leading: &Leading, handles: &[DeviceHandle]) -> Result<()> {
        let (mut room, mut live, mut chunks) = (0u64, 0u64, 0u64);
        let mut counted: Vec<DeviceId> = handles.iter().map(DeviceHandle::id).collect();
        for handle in handles {
            let shown = handle.shown();
            if let Role::Keeper(keeper) = &self.role
                && shown == keeper.metadata_at
            {
                let text = format!(
                    "{shown} also holds the store's metadata, which has no second place; nothing was moved; stop the node, move the \
                     directory `meta` into the directory of another device, and start it again"
                );
                return Err(Error::new(ErrorKind::Invalid, text));
            }
            if let DeviceHandle::Remote(far) = handle
                && !far.peer.is_reachable()
            {
                let text = format!(
                    "node {} is silent, so {shown} cannot be emptied; nothing was moved; start it",
                    far.peer.name()
                );
                return Err(Error::new(ErrorKind::Unreachable, text));
            }
            let (bytes, count) = handle.holds();
            (live, chunks) = (live.saturating_add(bytes), chunks.saturating_add(count));
            let mut targets = leading.targets(self, handle).await?;
            targets.retain(|target| !handles.iter().any(|handle| handle.id() == target.id()));
            if targets.is_empty() {
                let text = format!(
                    "no other device could take what is on {shown}; nothing was moved; start the node with another --data DIR"
                );
                return Err(Error::new(ErrorKind::Full, text));
            }
            targets.retain(|target| !counted.contains(&target.id()));
            counted.extend(targets.iter().map(DeviceHandle::id));
            room = targets.iter().map(DeviceHandle::room).fold(room, u64::saturating_add);
        }
        // A header for each record and for each chunk's last, and a sixty-fourth for journals and checkpoints.
        let need = live.saturating_add(live / 64).saturating_add(chunks.saturating_mul(8192));
        if room < need {
            let shown: Vec<String> = handles.iter().map(DeviceHandle::shown).collect();
            let text = format!(
                "{} holds {} in {chunks} chunks and the other devices have room for {}; nothing was moved; delete something or start \
                 the node with another --data DIR",
                shown.join(", "),
                show_bytes(live),
                show_bytes(room)
            );
            return Err(Error::new(ErrorKind::Full, text));
        }
        Ok(())
    }
}

impl Leading {
    /// The drain of a device came further.
    pub fn drained(&self, node: &Node, handle: &DeviceHandle, note: impl FnOnce(&mut Draining)) {
        match handle {
            DeviceHandle::Local(device) => device.drained(note),
            DeviceHandle::Remote(far) => self.peers.drained(far.device, node.clock.wall(), note),
        }
    }
}

//! What a node does by itself: frees the chunks that nothing names any more, starts what ends files whose writer is gone, and tells
//! the metadata store how full its devices are. Everything here is computed from state and may be repeated or lost.

use crate::device::Device;
use crate::drain;
use crate::log::Level;
use crate::orphans;
use crate::place::Place;
use crate::service::Node;
use base::error::{ErrorKind, Result};
use base::id::{BagId, ChunkId, DeviceId, Owner};
use base::layout::Replica;
use base::limit::LIST_PAGE_MAX;
use base::planted::Planted;
use base::policy::Class;
use chunk::BagStat;
use meta::request::{BagInfo, BagState, Carried, DeviceInfo, Garbage, NewGroup};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How often it looks without being told to.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long it waits after being told (a delete), so that one round does what many changes left: a round costs a sync of its own
/// and as much processor as ten deletes.
const GATHER: Duration = Duration::from_millis(50);

/// Garbage handled in one round; a round is one delete record a device and one metadata change.
pub const GARBAGE_AT_ONCE: usize = 256;

/// Chunks looked at in one step of the comparison of a device with the metadata store: about a millisecond each time that
/// nothing else is to do, and all of a million within ten minutes.
const INVENTORY_PAGE: usize = 1000;

/// Runs until the node stops.
pub async fn run(node: Arc<Node>, mut stopped: watch::Receiver<bool>) {
    let mut draining = None;
    let (mut sweep, mut joined, mut bags_after) = (Sweep::default(), Joined::default(), None);
    while !*stopped.borrow() {
        // Unfinished copies go before new ones are made.
        if draining.is_none() && said(&node, compare_all(&node).await) {
            draining = Some(tokio::spawn(drain::run(node.clone(), stopped.clone())));
        }
        node.troubles.look();
        said(&node, report(&node).await);
        said(&node, compare_returned(&node).await);
        said(&node, join_bags(&node, &mut joined).await);
        said(&node, forget_memory(&node).await);
        said(&node, orphans::end_abandoned(&node).await);
        let more = matches!(collect(&node, &mut bags_after).await, Ok(true));
        if !more {
            tokio::select! {
                biased;
                _ = stopped.changed() => break,
                () = told(&node) => (),
                () = tokio::time::sleep(LOOK_EVERY) => {
                    if draining.is_some() {
                        said(&node, sweep.step(&node).await);
                    }
                }
            }
        }
    }
    if let Some(draining) = draining {
        // It ends by itself when the node stops.
        let _ = draining.await;
    }
}

/// Waits until there is something to do, and a little more of it.
async fn told(node: &Node) {
    match node.metadata() {
        Ok(metadata) => metadata.made_work().await,
        Err(_) => unreachable!("only the node that keeps the metadata keeps house"),
    }
    tokio::time::sleep(GATHER).await;
}

/// Says what went wrong, once a round; the next round tries again. Returns whether it went well.
pub fn said(node: &Node, result: Result<()>) -> bool {
    match result {
        Ok(()) => true,
        Err(error) => {
            let text = format!("{error}; no data is at risk; it is tried again");
            node.log.say(Level::Warn, "housekeeping", &text, &[]);
            false
        }
    }
}

/// How full a device of this node is, for placement.
pub fn report_of(device: &Device) -> meta::Request {
    report_on(device.id, &device.usage())
}

/// How full a device is, for placement: what it keeps back is taken, and one that is out of service is full.
pub fn report_on(device: DeviceId, usage: &chunk::Usage) -> meta::Request {
    meta::Request::DeviceReport {
        device,
        capacity: usage.capacity,
        taken: usage.used.saturating_add(usage.reserve),
        full: usage.full || usage.failed,
    }
}

async fn report(node: &Node) -> Result<()> {
    for device in node.served() {
        node.metadata()?.ask(report_of(device)).await?;
    }
    let devices = node.served().map(|device| device.id).collect();
    node.metadata()?.ask(meta::Request::NodeReport { node: node.id, keeps: true, devices }).await?;
    let over = node.metadata()?.over(node.remembered_sessions().await);
    node.sessions_over(&over);
    Ok(())
}

/// Devices of other nodes that came, or came back, may have missed what was done meanwhile.
async fn compare_returned(node: &Node) -> Result<()> {
    let keeper = node.keeper()?;
    for far in keeper.peers.uncompared() {
        let place = Place::Far(far);
        // A copy that is being made is deleted with what else is not known; who makes it looks before it names the copy.
        if place.is_able() {
            compare(node, &place).await?;
            tell_of_bags(node, &place).await?;
            keeper.peers.compared(place.id());
        }
    }
    Ok(())
}

/// Tells a device that was away in which pass its bags are, and which of them take no chunks any more.
async fn tell_of_bags(node: &Node, place: &Place) -> Result<()> {
    for bag in node.bags().await?.into_iter().filter(|bag| bag.members.contains(&place.id())) {
        if bag.pass > 0 || bag.retain {
            place.begin_pass(bag.bag, bag.pass, bag.retain).await?;
        }
        if bag.state == BagState::Sealed {
            place.seal_bag(bag.bag, bag.epoch).await?;
        }
    }
    Ok(())
}

/// What was there when bags were last looked at for devices that join them.
#[derive(Default)]
struct Joined {
    /// The devices that could be used.
    devices: BTreeSet<DeviceId>,
    /// How often a node had come or come back: one may have been silent in between, and a bag be made without it.
    returns: u64,
}

/// Devices that can be used since the last look become members of all bags that take chunks and fit them.
async fn join_bags(node: &Node, joined: &mut Joined) -> Result<()> {
    let returns = node.keeper()?.peers.returns();
    let usable = |info: &DeviceInfo| info.reported && !info.silent && !info.draining;
    let devices: Vec<DeviceInfo> = node.keeper()?.devices().await?.into_iter().filter(usable).collect();
    let now: BTreeSet<DeviceId> = devices.iter().map(|info| info.device).collect();
    if returns != joined.returns || !now.is_subset(&joined.devices) {
        let takes = |bag: &BagInfo| bag.state == BagState::Open || node.planted == Some(Planted::SealedBagJoined);
        for bag in node.bags().await?.into_iter().filter(takes) {
            join_bag(node, &bag, &devices).await?;
        }
    }
    *joined = Joined { devices: now, returns };
    Ok(())
}

async fn join_bag(node: &Node, bag: &BagInfo, devices: &[DeviceInfo]) -> Result<()> {
    let joins = |info: &&DeviceInfo| bag.policy.fits(info.class) && !bag.members.contains(&info.device);
    let joining: Vec<DeviceId> = devices.iter().filter(joins).map(|info| info.device).collect();
    if joining.is_empty() {
        return Ok(());
    }
    join(node, bag.bag, joining).await.map(drop)
}

/// Makes devices members of a bag, those that are none yet, and answers with what the bag is then.
pub async fn join(node: &Node, bag: BagId, mut joining: Vec<DeviceId>) -> Result<BagInfo> {
    // One after another, each by what the bag is now: a device that another join has just made a member needs no order, nor is it joined twice.
    let _turn = node.joining.lock().await;
    let meta::Reply::Bag(bag) = node.metadata()?.ask(meta::Request::BagOf { bag }).await? else {
        unreachable!("a bag was asked for")
    };
    joining.retain(|device| !bag.members.contains(device));
    if joining.is_empty() {
        return Ok(bag);
    }
    // Before the first chunk comes: one that is acknowledged in a bag that retains must stay.
    for device in &joining {
        if bag.state == BagState::Sealed {
            // Nothing may be pushed there either.
            if node.planted != Some(Planted::SealedBagJoined) {
                node.place(*device)?.seal_bag(bag.bag, bag.epoch).await?;
            }
        } else {
            // It may have left this bag before, and refuses its chunks since then.
            node.place(*device)?.readmit_bag(bag.bag).await?;
        }
        if (bag.pass > 0 || bag.retain) && node.planted != Some(Planted::JoinerNotToldOfPass) {
            node.place(*device)?.begin_pass(bag.bag, bag.pass, bag.retain).await?;
        }
    }
    let request = meta::Request::BagMembers { bag: bag.bag, state: bag.state, joining: joining.clone(), leaving: None };
    let meta::Reply::Bag(now) = node.metadata()?.ask(request).await? else { unreachable!("a bag was changed") };
    for device in &joining {
        if now.pass > bag.pass {
            node.place(*device)?.begin_pass(now.bag, now.pass, now.retain).await?;
        }
    }
    Ok(now)
}

/// Forgets devices in memory of earlier starts of their nodes: what was on them is gone, each start makes new ones, and nobody brings these
/// back.
async fn forget_memory(node: &Node) -> Result<()> {
    let keeper = node.keeper()?;
    let devices = keeper.devices().await?;
    let is_heard = |id| id == node.id || keeper.peers.find(id).is_some_and(|peer| peer.is_reachable());
    let is_gone =
        |info: &&DeviceInfo| info.class == Class::Memory && !info.reported && !info.silent && is_heard(info.node);
    for device in devices.iter().filter(is_gone).map(|info| info.device) {
        for bag in node.bags().await?.into_iter().filter(|bag| bag.members.contains(&device)) {
            if bag.members.len() == 1 {
                let usable = |info: &&DeviceInfo| info.reported && !info.silent && !info.draining;
                let fitting = devices.iter().filter(usable).filter(|info| bag.policy.fits(info.class));
                join(node, bag.bag, fitting.map(|info| info.device).collect()).await?;
            }
            let leaving = Some((device, Carried::default()));
            let request = meta::Request::BagMembers { bag: bag.bag, state: bag.state, joining: Vec::new(), leaving };
            keeper.metadata.ask(request).await?;
        }
        keeper.metadata.ask(meta::Request::DeviceRemove { device }).await?;
        let text = "a memory device of an earlier start is forgotten, and with it what was on it";
        node.log.say(Level::Info, "housekeeping", text, &[("device", &device)]);
    }
    Ok(())
}

/// Frees what the metadata store says is garbage, of bags those after `bags_after`. True if there may be more.
async fn collect(node: &Node, bags_after: &mut Option<BagId>) -> Result<bool> {
    let keeper = node.keeper()?;
    let _turn = node.moving.lock().await;
    let reply = keeper.metadata.ask(meta::Request::Garbage { bags_after: *bags_after, limit: GARBAGE_AT_ONCE }).await?;
    let meta::Reply::Garbage(garbage) = reply else { unreachable!("garbage was asked for") };
    // Bags that wait for a member stay on the list: whoever began with them each time would never come to the others.
    let more_bags = garbage.bags_resume.is_some();
    *bags_after = garbage.bags_resume;
    if garbage.groups.is_empty() && garbage.ranges.is_empty() && garbage.bags.is_empty() {
        return Ok(false);
    }
    // A device that is missing, or failed a sync, takes no deletions. What is garbage there is found when it is compared; only bags
    // have to wait, which are gone when all their members have dropped them.
    let able: Vec<Place> = node.places().into_iter().filter(Place::is_able).collect();
    let mut waiting: BTreeSet<DeviceId> = keeper.devices().await?.iter().map(|info| info.device).collect();
    waiting.retain(|device| !able.iter().any(|place| place.id() == *device));
    for far in keeper.peers.devices().iter().filter(|far| waiting.contains(&far.device)) {
        keeper.peers.missed(far.device);
    }
    let ends =
        |bag: &&BagInfo, waiting: &BTreeSet<DeviceId>| !bag.members.iter().any(|member| waiting.contains(member));
    let ending: Vec<BagId> = garbage.bags.iter().filter(|bag| ends(bag, &waiting)).map(|bag| bag.bag).collect();
    for place in &able {
        match (place, free_on(place, &garbage, &ending).await) {
            (_, Ok(())) => (),
            (Place::Near(_), Err(error)) => return Err(error),
            // Its node went away; what was done elsewhere is done.
            (Place::Far(far), Err(error)) => {
                keeper.peers.missed(far.device);
                waiting.insert(far.device);
                said(node, Err(error));
            }
        }
    }
    let bags: Vec<BagId> = garbage.bags.iter().filter(|bag| ends(bag, &waiting)).map(|bag| bag.bag).collect();
    if garbage.groups.is_empty() && garbage.ranges.is_empty() && bags.is_empty() {
        return Ok(more_bags);
    }
    let collected = meta::Request::Collected {
        groups: garbage.groups.iter().map(|group| group.group).collect(),
        ranges: garbage.ranges.iter().map(|(group, offset, _)| (group.group, *offset)).collect(),
        bags,
    };
    keeper.metadata.ask(collected).await?;
    Ok(true)
}

/// `ending` are the bags that are gone after this round; others come again, and are dropped only where something is left.
async fn free_on(place: &Place, garbage: &Garbage, ending: &[BagId]) -> Result<()> {
    let here = |group: &NewGroup| group.layout.on(place.id()).map(|replica| replica.chunk).collect::<Vec<_>>();
    let chunks: Vec<ChunkId> = garbage.groups.iter().flat_map(here).collect();
    for chunks in chunks.chunks(LIST_PAGE_MAX) {
        place.delete(chunks.to_vec()).await?;
    }
    let mut released: BTreeMap<ChunkId, Vec<(u64, u64)>> = BTreeMap::new();
    for (group, offset, length) in &garbage.ranges {
        for Replica { column, chunk, .. } in group.layout.on(place.id()) {
            let range = group.layout.stripe().column_range(*offset..offset.saturating_add(*length), column);
            if range.start < range.end {
                released.entry(chunk).or_default().push((range.start, range.end - range.start));
            }
        }
    }
    for (chunk, ranges) in released {
        match place.release(chunk, ranges).await {
            // Gone as a whole meanwhile: that is more than was asked.
            Err(error) if error.kind() == ErrorKind::NotFound => (),
            other => other?,
        }
    }
    for bag in garbage.bags.iter().filter(|bag| bag.members.contains(&place.id())) {
        if !ending.contains(&bag.bag) {
            let counts = place.bag_counts(bag.bag).await?;
            if counts.stat == BagStat::default() && counts.chunks == 0 {
                continue;
            }
        }
        place.drop_bag(bag.bag).await?;
    }
    Ok(())
}

/// Compares all devices of this node with the metadata store, before anything is copied.
async fn compare_all(node: &Node) -> Result<()> {
    for device in node.served() {
        compare(node, &Place::Near(device.clone())).await?;
    }
    Ok(())
}

fn is_anything_draining(node: &Node) -> bool {
    node.places().iter().any(Place::is_draining)
}

/// Deletes every chunk on a device that the metadata store does not know, or knows to be elsewhere: one that was to be deleted
/// when the node was killed, or a copy that was not finished. What is left.
pub async fn compare(node: &Node, place: &Place) -> Result<Left> {
    let (mut left, mut after) = (Left::default(), None);
    loop {
        // A chunk that is being moved is at its old place or at its new one for the whole of a page.
        let _turn = node.moving.lock().await;
        let page = page_of(node, place, after).await?;
        left.chunks += page.chunks - page.unknown.len() - page.newer;
        left.newer += page.newer;
        after = page.next;
        page.forget(place).await?;
        if after.is_none() {
            return Ok(left);
        }
    }
}

/// Chunks that stay on a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Left {
    /// Of groups and bags.
    pub chunks: usize,
    /// Of owners of a kind that this program does not know: they are for a newer one to move or delete.
    pub newer: usize,
}

/// Where the look at all chunks stands that never ends: the place of the device, and the last chunk.
#[derive(Default)]
struct Sweep {
    device: usize,
    after: Option<ChunkId>,
}

impl Sweep {
    /// The next page. There is little to find: a push that was on its way while its bag was deleted, the first append to a file
    /// that was deleted meanwhile.
    async fn step(&mut self, node: &Node) -> Result<()> {
        let Some(place) = node.places().into_iter().filter(Place::is_able).nth(self.device) else {
            *self = Sweep::default();
            return Ok(());
        };
        let _turn = node.moving.lock().await;
        let page = page_of(node, &place, self.after).await?;
        let next = Sweep { device: if page.next.is_some() { self.device } else { self.device + 1 }, after: page.next };
        // What is being copied is not known to be there yet. A drain that begins now copies nothing that is on this page.
        if !is_anything_draining(node) {
            page.forget(&place).await?;
        }
        *self = next;
        Ok(())
    }
}

/// Some chunks of a device.
struct Page {
    /// How many.
    chunks: usize,
    /// How many of them are of owners of a kind that is not known.
    newer: usize,
    /// Of groups: those that should not be there.
    unknown: Vec<ChunkId>,
    /// Bags of chunks that are there, which do not exist any more.
    unknown_bags: Vec<BagId>,
    /// Where the next page begins; none behind the last.
    next: Option<ChunkId>,
}

/// Groups and bags are recorded before the first byte comes, so what is not known now was deleted.
async fn page_of(node: &Node, place: &Place, after: Option<ChunkId>) -> Result<Page> {
    let (chunks, more) = place.inventory(after, INVENTORY_PAGE).await?;
    let bags: BTreeSet<BagId> = chunks
        .iter()
        .filter_map(|(_, stat)| match stat.owner {
            Owner::Bag(bag) => Some(bag),
            Owner::Group(_) | Owner::Newer(_) => None,
        })
        .collect();
    let mut unknown_bags = Vec::new();
    for bag in bags {
        match node.metadata()?.ask(meta::Request::BagOf { bag }).await {
            Ok(_) => (),
            Err(error) if error.kind() == ErrorKind::NotFound => unknown_bags.push(bag),
            Err(error) => return Err(error),
        }
    }
    let drain::Unknown { chunks: mut unknown, newer } = node.unknown_chunks(place.id(), &chunks).await?;
    if matches!(place, Place::Far(_)) && node.planted == Some(Planted::ReturnedKeepsDeleted) {
        (unknown, unknown_bags) = (Vec::new(), Vec::new());
    }
    let next = chunks.last().map(|(chunk, _)| *chunk).filter(|_| more);
    Ok(Page { chunks: chunks.len(), newer, unknown, unknown_bags, next })
}

impl Page {
    /// Deletes what should not be there.
    async fn forget(self, place: &Place) -> Result<()> {
        if !self.unknown.is_empty() {
            place.delete(self.unknown).await?;
        }
        for bag in self.unknown_bags {
            place.drop_bag(bag).await?;
        }
        Ok(())
    }
}

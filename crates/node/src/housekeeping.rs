//! What a node does by itself: frees the chunks that nothing names any more, ends files whose writer is gone, and tells
//! the metadata store how full its devices are. Everything here is computed from state and may be repeated or lost.

use crate::device::{Device, Item};
use crate::service::Node;
use crate::translate::place_of;
use base::error::{ErrorKind, Result};
use base::id::{ChunkId, Generation, GroupId, Owner};
use chunk::{Reply, Request};
use meta::request::{Garbage, NewGroup};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How often it looks without being told to. Being told (a delete) makes it look at once.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Garbage handled in one round; a round is one delete record a device and one metadata change.
const GARBAGE_AT_ONCE: usize = 256;

/// Chunks looked at in one step of the first round, which compares each device with the metadata store.
const INVENTORY_PAGE: usize = 1000;

/// Runs until the node stops.
pub async fn run(node: Arc<Node>, mut stopped: watch::Receiver<bool>) {
    let mut compared = false;
    while !*stopped.borrow() {
        if !compared {
            compared = said(&node, compare_all(&node).await);
        }
        said(&node, report(&node).await);
        said(&node, end_abandoned(&node).await);
        let more = matches!(collect(&node).await, Ok(true));
        if !more {
            tokio::select! {
                biased;
                _ = stopped.changed() => return,
                () = node.garbage.notified() => (),
                () = tokio::time::sleep(LOOK_EVERY) => (),
            }
        }
    }
}

/// Says what went wrong, once a round; the next round tries again. Returns whether it went well.
fn said(node: &Node, result: Result<()>) -> bool {
    match result {
        Ok(()) => true,
        Err(error) => {
            node.world.say(&format!("housekeeping: {error}; no data is at risk; it is tried again"));
            false
        }
    }
}

async fn report(node: &Node) -> Result<()> {
    for device in node.devices.values() {
        let usage = device.usage();
        let request = meta::Request::DeviceReport {
            device: device.id,
            capacity: usage.capacity,
            used: usage.used,
            full: usage.full || usage.failed,
        };
        node.metadata.ask(request).await?;
    }
    Ok(())
}

/// Frees what the metadata store says is garbage. True if there may be more.
async fn collect(node: &Node) -> Result<bool> {
    let reply = node.metadata.ask(meta::Request::Garbage { limit: GARBAGE_AT_ONCE }).await?;
    let meta::Reply::Garbage(garbage) = reply else { unreachable!("garbage was asked for") };
    if garbage.groups.is_empty() && garbage.ranges.is_empty() && garbage.bags.is_empty() {
        return Ok(false);
    }
    for device in node.devices.values() {
        free_on(device, &garbage).await?;
    }
    let collected = meta::Request::Collected {
        groups: garbage.groups.iter().map(|group| group.group).collect(),
        ranges: garbage.ranges.iter().map(|(group, offset, _)| (group.group, *offset)).collect(),
        bags: garbage.bags.iter().map(|bag| bag.bag).collect(),
    };
    node.metadata.ask(collected).await?;
    Ok(true)
}

async fn free_on(device: &Device, garbage: &Garbage) -> Result<()> {
    let here = |group: &NewGroup| {
        let (place, chunk) = place_of(group);
        (place == device.id).then_some(chunk)
    };
    let chunks: Vec<ChunkId> = garbage.groups.iter().filter_map(here).collect();
    if !chunks.is_empty() {
        device.ask(Request::Delete { chunks }).await?;
    }
    let mut released: BTreeMap<ChunkId, Vec<(u64, u64)>> = BTreeMap::new();
    for (group, offset, length) in &garbage.ranges {
        if let Some(chunk) = here(group) {
            released.entry(chunk).or_default().push((*offset, *length));
        }
    }
    for (chunk, ranges) in released {
        match device.ask(Request::Release { chunk, ranges }).await {
            // Gone as a whole meanwhile: that is more than was asked.
            Err(error) if error.kind() == ErrorKind::NotFound => (),
            other => drop(other?),
        }
    }
    for bag in garbage.bags.iter().filter(|bag| bag.members.contains(&device.id)) {
        device.ask(Request::DropBag { bag: bag.bag }).await?;
        device.send(Item::BagChanged { bag: bag.bag });
    }
    Ok(())
}

/// Ends files whose writer's session is over: the chunk is fenced and sealed at the length that it kept, which becomes
/// the file's.
async fn end_abandoned(node: &Node) -> Result<()> {
    let reply = node.metadata.ask(meta::Request::FenceList { limit: GARBAGE_AT_ONCE }).await?;
    let meta::Reply::Orphans(orphans) = reply else { unreachable!("files to recover were asked for") };
    for orphan in orphans {
        let (place, chunk) = place_of(&orphan.group);
        let Some(device) = node.devices.get(&place) else { continue };
        let length = fence_and_seal(device, chunk, orphan.generation).await?;
        let request = meta::Request::Recovered { inode: orphan.inode, generation: orphan.generation, length };
        match node.metadata.ask(request).await {
            // Recovered by an earlier round whose answer was lost, or deleted meanwhile.
            Err(error) if matches!(error.kind(), ErrorKind::Stale | ErrorKind::NotFound) => (),
            other => drop(other?),
        }
    }
    Ok(())
}

async fn fence_and_seal(device: &Device, chunk: ChunkId, generation: Generation) -> Result<u64> {
    match device.ask(Request::Fence { chunk, generation }).await {
        Ok(Reply::Length(length)) => {
            device.ask(Request::Seal { chunk, generation, length }).await?;
            Ok(length)
        }
        Ok(other) => unreachable!("a fence was answered by {other:?}"),
        // Nothing was ever written to it.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// Deletes every chunk whose group the metadata store does not know: groups are recorded before their first append, so
/// such a chunk is one that was to be deleted when the node was killed. (Bags that are gone stay recorded as garbage until
/// their chunks are, so they need no such look.)
async fn compare_all(node: &Node) -> Result<()> {
    for device in node.devices.values() {
        let mut after = None;
        loop {
            let reply = device.ask(Request::List { after, limit: INVENTORY_PAGE }).await?;
            let Reply::List { chunks, more } = reply else { unreachable!("a list was asked for") };
            after = chunks.last().map(|(chunk, _)| *chunk);
            let grouped = chunks.iter().filter_map(|(chunk, stat)| match stat.owner {
                Owner::Group(group) => Some((*chunk, group)),
                Owner::Bag(_) => None,
            });
            delete_unknown(node, device, &grouped.collect::<Vec<_>>()).await?;
            if !more {
                break;
            }
        }
    }
    Ok(())
}

async fn delete_unknown(node: &Node, device: &Device, chunks: &[(ChunkId, GroupId)]) -> Result<()> {
    let groups: BTreeSet<GroupId> = chunks.iter().map(|(_, group)| *group).collect();
    let request = meta::Request::KnownGroups { groups: groups.into_iter().collect() };
    let meta::Reply::Known(known) = node.metadata.ask(request).await? else {
        unreachable!("known groups were asked for")
    };
    let known: BTreeSet<GroupId> = known.into_iter().collect();
    let unknown: Vec<ChunkId> =
        chunks.iter().filter(|(_, group)| !known.contains(group)).map(|(chunk, _)| *chunk).collect();
    if !unknown.is_empty() {
        device.ask(Request::Delete { chunks: unknown }).await?;
    }
    Ok(())
}

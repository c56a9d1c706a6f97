//! What a node does by itself: frees the chunks that nothing names any more, ends files whose writer is gone, and tells
//! the metadata store how full its devices are. Everything here is computed from state and may be repeated or lost.

use crate::device::{Device, Item};
use crate::service::Node;
use base::error::{ErrorKind, Result};
use base::id::{BagId, ChunkId, Generation, GroupId, Owner};
use chunk::{Reply, Request};
use std::collections::BTreeSet;
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
            compared = said(compare_all(&node).await);
        }
        said(report(&node).await);
        said(end_abandoned(&node).await);
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
fn said(result: Result<()>) -> bool {
    match result {
        Ok(()) => true,
        Err(error) => {
            eprintln!("stormwell: housekeeping: {error}; no data is at risk; it is tried again");
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
    if garbage.is_empty() {
        return Ok(false);
    }
    for device in node.devices.values() {
        let chunks = garbage.chunks_on(device.id);
        if !chunks.is_empty() {
            device.ask(Request::Delete { chunks }).await?;
        }
        for (chunk, ranges) in garbage.releases_on(device.id) {
            match device.ask(Request::Release { chunk, ranges }).await {
                // Gone as a whole meanwhile: that is more than was asked.
                Err(error) if error.kind() == ErrorKind::NotFound => (),
                other => drop(other?),
            }
        }
        for bag in garbage.bags_on(device.id) {
            device.ask(Request::DropBag { bag }).await?;
            device.send(Item::BagChanged { bag });
        }
    }
    node.metadata.ask(meta::Request::Collected { garbage }).await?;
    Ok(true)
}

/// Ends files whose writer's session is over: the chunk is fenced and sealed at the length that it kept, which becomes
/// the file's.
async fn end_abandoned(node: &Node) -> Result<()> {
    let reply = node.metadata.ask(meta::Request::Abandoned).await?;
    let meta::Reply::Abandoned(abandoned) = reply else { unreachable!("abandoned files were asked for") };
    for file in abandoned {
        let Some(device) = node.devices.get(&file.device) else { continue };
        let length = fence_and_seal(device, file.chunk, file.generation).await?;
        let request = meta::Request::Recovered { inode: file.inode, generation: file.generation, group: file.group, length };
        node.metadata.ask(request).await?;
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

/// Deletes every chunk whose group or bag the metadata store does not know: groups are recorded before their first
/// append, so such a chunk is one that was to be deleted when the node was killed.
async fn compare_all(node: &Node) -> Result<()> {
    for device in node.devices.values() {
        let mut after = None;
        loop {
            let reply = device.ask(Request::List { after, limit: INVENTORY_PAGE }).await?;
            let Reply::List { chunks, more } = reply else { unreachable!("a list was asked for") };
            after = chunks.last().map(|(chunk, _)| *chunk);
            let owners: Vec<(ChunkId, Owner)> = chunks.iter().map(|(chunk, stat)| (*chunk, stat.owner)).collect();
            delete_unknown(node, device, &owners).await?;
            if !more {
                break;
            }
        }
    }
    Ok(())
}

async fn delete_unknown(node: &Node, device: &Device, owners: &[(ChunkId, Owner)]) -> Result<()> {
    let groups: BTreeSet<GroupId> = owners
        .iter()
        .filter_map(|(_, owner)| match owner {
            Owner::Group(group) => Some(*group),
            Owner::Bag(_) => None,
        })
        .collect();
    let bags: BTreeSet<BagId> = owners
        .iter()
        .filter_map(|(_, owner)| match owner {
            Owner::Bag(bag) => Some(*bag),
            Owner::Group(_) => None,
        })
        .collect();
    let request = meta::Request::Unknown { groups: groups.into_iter().collect(), bags: bags.into_iter().collect() };
    let reply = node.metadata.ask(request).await?;
    let meta::Reply::Unknown { groups, bags } = reply else { unreachable!("unknown owners were asked for") };
    let unknown = |owner: &Owner| match owner {
        Owner::Group(group) => groups.contains(group),
        Owner::Bag(bag) => bags.contains(bag),
    };
    let chunks: Vec<ChunkId> =
        owners.iter().filter(|(_, owner)| unknown(owner)).map(|(chunk, _)| *chunk).collect();
    if !chunks.is_empty() {
        device.ask(Request::Delete { chunks }).await?;
    }
    Ok(())
}


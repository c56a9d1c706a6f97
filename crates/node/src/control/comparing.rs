//! Devices are compared with the metadata store: what is on one and should not be there is deleted. That is whatever was to be deleted while
//! the device was away, failed or stood still, copies that were not finished, and what came for a group or bag that was deleted meanwhile.
//!
//! A chunk may be copied to a device while that is compared (`copying`), and named there. So what is unknown is claimed as a chunk that is copied is,
//! and with its group, looked up once more, and deleted under the claims, which are kept until the device answers: a copy is deleted that nobody makes
//! any more, or none, and what was named before they were claimed is known. What somebody else has claimed is left for the next time. A copy of an
//! earlier leadership nobody names any more, or it is named by the time that this one is told anything of the metadata.

use super::claims::{Claim, Claims};
use super::job::{GATHER, Job, LOOK_EVERY, said};
use super::joining::tell_of_bags;
use super::orders::PATIENCE;
use crate::device_handle::DeviceHandle;
use crate::leading::Leading;
use crate::node::Node;
use base::error::{Error, ErrorKind, Result};
use base::id::{BagId, ChunkId, DeviceId, GroupId, Owner};
use base::layout::Layout;
use base::planted::Planted;
use chunk::ChunkStat;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Chunks looked at in one step of the comparison of a device with the metadata store: about a millisecond each time that
/// nothing else is to do, and all of a million within ten minutes.
const INVENTORY_PAGE: usize = 1000;

/// Compares all devices of this node, before anything is copied: copies that were not finished go before new ones are made. One that does
/// not answer is not waited for, and its comparison is given back, to go on: whoever copies to it looks at the copy before that is named.
pub async fn compare_all(node: &Arc<Node>, leading: &Arc<Leading>) -> JoinSet<DeviceId> {
    let (mut comparing, mut waits) = (JoinSet::new(), BTreeSet::new());
    for device in leading.near(node).cloned() {
        waits.insert(device.id);
        let (node, leading) = (node.clone(), leading.clone());
        comparing.spawn(async move {
            let (id, handle) = (device.id, DeviceHandle::Local(device));
            let compared = async {
                while !said(&node, "compare", compare(&node, &leading, &handle).await.map(drop)) {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            };
            let _over = leading.meanwhile(compared).await;
            id
        });
    }
    while !waits.is_empty() {
        match tokio::time::timeout(GATHER, comparing.join_next()).await {
            Ok(Some(Ok(device))) => drop(waits.remove(&device)),
            // A fault in one was said where it happened.
            Ok(Some(Err(_))) | Err(_) => (),
            Ok(None) => break,
        }
        let still = leading.jobs.still();
        waits.retain(|device| !still.contains(device));
    }
    comparing
}

/// Compares devices that may have missed what was done meanwhile, those of other nodes that came, or came back, and those that stood still:
/// each beside the others, and with all the time that it needs.
#[derive(Default)]
pub struct CompareReturned {
    under_way: Claims<DeviceId>,
    comparing: JoinSet<()>,
}

impl Job for CompareReturned {
    const NAME: &'static str = "compare";

    async fn step(&mut self, node: &Arc<Node>, leading: &Arc<Leading>) -> Result<bool> {
        while self.comparing.try_join_next().is_some() {}
        let (still, uncompared) = (leading.jobs.still(), leading.peers.uncompared());
        for handle in leading.device_handles(node) {
            let id = handle.id();
            if !uncompared.contains(&id) || !handle.is_able() || still.contains(&id) {
                continue;
            }
            let Some(claim) = self.under_way.try_claim(id) else { continue };
            // What is missed from now on is missed by this comparison, too.
            leading.peers.compared(id);
            let (node, leading) = (node.clone(), leading.clone());
            self.comparing.spawn(async move {
                let compared = leading.meanwhile(compare_returned(&node, &leading, &handle)).await;
                if compared.is_some_and(|compared| !said(&node, CompareReturned::NAME, compared)) {
                    leading.peers.missed(id);
                }
                drop(claim);
            });
        }
        Ok(false)
    }
}

async fn compare_returned(node: &Node, leading: &Leading, handle: &DeviceHandle) -> Result<()> {
    let left = compare(node, leading, handle).await?;
    tell_of_bags(leading, handle).await?;
    if left.claimed == 0 {
        return Ok(());
    }
    let text = format!("{} chunks on {} are being moved, and are compared after that", left.claimed, handle.shown());
    Err(Error::new(ErrorKind::Busy, text))
}

/// Deletes every chunk on a device that the metadata store does not know, or knows to be elsewhere: one that was to be deleted
/// when the node was killed, or a copy that was not finished. What is left.
pub async fn compare(node: &Node, leading: &Leading, handle: &DeviceHandle) -> Result<Left> {
    let (mut left, mut after) = (Left::default(), None);
    loop {
        let page = page_of((node, leading), handle, after).await?;
        left.chunks += page.chunks - page.unknown.len() - page.newer;
        (left.newer, left.open) = (left.newer + page.newer, left.open + page.open);
        after = page.next;
        let claimed = page.forget((node, leading), handle).await?;
        (left.chunks, left.claimed) = (left.chunks + claimed, left.claimed + claimed);
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
    /// How many of these should not be there, and somebody works on their groups.
    pub claimed: usize,
    /// Of owners of a kind that this program does not know: they are for a newer one to move or delete.
    pub newer: usize,
    /// Of groups that may still be written.
    pub open: usize,
}

/// The look at all chunks that never ends. There is little to find: a push that was on its way while its bag was deleted, the first append
/// to a file that was deleted meanwhile, what a device of this node did not delete when it was told to.
#[derive(Default)]
pub struct Sweep {
    /// The place of the device, and the last chunk.
    device: usize,
    after: Option<ChunkId>,
    under_way: Claims<DeviceId>,
}

impl Job for Sweep {
    const NAME: &'static str = "sweep";

    /// The next page.
    async fn step(&mut self, node: &Arc<Node>, leading: &Arc<Leading>) -> Result<bool> {
        let Some(handle) = leading.device_handles(node).into_iter().filter(DeviceHandle::is_able).nth(self.device)
        else {
            (self.device, self.after) = (0, None);
            return Ok(false);
        };
        let is_still = leading.jobs.still().contains(&handle.id());
        let claim = self.under_way.try_claim(handle.id()).filter(|_| !is_still);
        let Some(claim) = claim else {
            (self.device, self.after) = (self.device + 1, None);
            return Ok(false);
        };
        let (swept, of, after) = (node.clone(), leading.clone(), self.after);
        let page = async move {
            let page = async {
                let page = page_of((&swept, &of), &handle, after).await?;
                let next = page.next;
                page.forget((&swept, &of), &handle).await?;
                Ok::<_, Error>(next)
            };
            let swept = of.meanwhile(page).await;
            drop(claim);
            swept.unwrap_or(Ok(None))
        };
        // What is left of it when time is over goes on by itself.
        match tokio::time::timeout(PATIENCE, tokio::spawn(page)).await {
            Ok(Ok(Ok(next))) => self.after = next,
            // The others have their turns before it is tried again.
            Ok(Ok(Err(error))) => {
                (self.device, self.after) = (self.device + 1, None);
                return Err(error);
            }
            Ok(Err(_)) | Err(_) => self.after = None,
        }
        if self.after.is_none() {
            self.device += 1;
        }
        Ok(false)
    }
}

/// Some chunks of a device.
struct Page {
    /// How many.
    chunks: usize,
    /// How many of them are of owners of a kind that is not known.
    newer: usize,
    /// How many of groups that may still be written.
    open: usize,
    /// Of groups: those that should not be there.
    unknown: Vec<(ChunkId, ChunkStat)>,
    /// Bags of chunks that are there, which do not exist any more.
    unknown_bags: Vec<BagId>,
    /// Where the next page begins; none behind the last.
    next: Option<ChunkId>,
}

/// Waits for a device however long it takes: what it holds is claimed. Others hear that it does not answer.
async fn asked<T>(leading: &Leading, handle: &DeviceHandle, answer: impl Future<Output = T>) -> T {
    let _order = leading.jobs.unanswered.begin(handle.id());
    answer.await
}

/// Groups and bags are recorded before the first byte comes, so what is not known now was deleted.
async fn page_of((node, leading): (&Node, &Leading), handle: &DeviceHandle, after: Option<ChunkId>) -> Result<Page> {
    let (chunks, more) = asked(leading, handle, handle.inventory(after, INVENTORY_PAGE)).await?;
    let bags: BTreeSet<BagId> = chunks
        .iter()
        .filter_map(|(_, stat)| match stat.owner {
            Owner::Bag(bag) => Some(bag),
            Owner::Group(_) | Owner::Newer(_) => None,
        })
        .collect();
    let mut unknown_bags = Vec::new();
    for bag in bags {
        match leading.metadata.ask(meta::Request::BagOf { bag }).await {
            Ok(_) => (),
            Err(error) if error.kind() == ErrorKind::NotFound => unknown_bags.push(bag),
            Err(error) => return Err(error),
        }
    }
    let Unknown { chunks: unknown, newer, open } = leading.unknown_chunks(node, handle.id(), &chunks).await?;
    let (next, count) = (chunks.last().map(|(chunk, _)| *chunk).filter(|_| more), chunks.len());
    let unknown: BTreeSet<ChunkId> = unknown.into_iter().collect();
    let mut unknown: Vec<_> = chunks.into_iter().filter(|(chunk, _)| unknown.contains(chunk)).collect();
    if matches!(handle, DeviceHandle::Remote(_)) && node.planted == Some(Planted::ReturnedKeepsDeleted) {
        (unknown, unknown_bags) = (Vec::new(), Vec::new());
    }
    Ok(Page { chunks: count, newer, open, unknown, unknown_bags, next })
}

impl Page {
    /// Deletes what should not be there. How many of these chunks stay because somebody copies them, or works on their groups.
    async fn forget(self, (node, leading): (&Node, &Leading), handle: &DeviceHandle) -> Result<usize> {
        let mut groups: BTreeMap<GroupId, Option<Claim<GroupId>>> = BTreeMap::new();
        let (mut ours, mut copying) = (Vec::new(), Vec::new());
        for (chunk, stat) in &self.unknown {
            let Owner::Group(group) = stat.owner else { continue };
            let claim = groups.entry(group).or_insert_with(|| leading.jobs.groups.try_claim(group));
            if claim.is_some()
                && let Some(claim) = leading.jobs.copying.try_claim((group, *chunk))
            {
                ours.push((*chunk, *stat));
                copying.push(claim);
            }
        }
        let claimed = self.unknown.len() - ours.len();
        // What was being copied and named until it was claimed is known now.
        let unknown = leading.unknown_chunks(node, handle.id(), &ours).await?.chunks;
        if !unknown.is_empty() {
            asked(leading, handle, handle.delete(unknown)).await?;
        }
        for bag in self.unknown_bags {
            asked(leading, handle, handle.drop_bag(bag)).await?;
        }
        Ok(claimed)
    }
}

impl Leading {
    /// Those of the chunks on a device that belong to no group that is there, and how many only a newer program knows.
    pub async fn unknown_chunks(
        &self,
        node: &Node,
        device: DeviceId,
        chunks: &[(ChunkId, ChunkStat)],
    ) -> Result<Unknown> {
        let grouped: BTreeMap<ChunkId, GroupId> = chunks
            .iter()
            .filter_map(|(chunk, stat)| match stat.owner {
                Owner::Group(group) => Some((*chunk, group)),
                // What a newer program knows is for it to delete.
                Owner::Bag(_) | Owner::Newer(_) => None,
            })
            .collect();
        let mut newer = chunks.iter().filter(|(_, stat)| matches!(stat.owner, Owner::Newer(_))).count();
        if grouped.is_empty() {
            return Ok(Unknown { chunks: Vec::new(), newer, open: 0 });
        }
        let groups = grouped.values().copied().collect();
        let meta::Reply::Known(known) = self.metadata.ask(meta::Request::KnownGroups { groups }).await? else {
            unreachable!("known groups were asked for")
        };
        let known: BTreeMap<GroupId, (Option<Layout>, bool)> =
            known.into_iter().map(|group| (group.group, (group.layout, group.open))).collect();
        let believed = node.planted != Some(Planted::ReturnedDeletedUncompared) || node.devices.contains_key(&device);
        let (mut unknown, mut open) = (Vec::new(), 0);
        for (chunk, group) in grouped {
            match known.get(&group).filter(|_| believed) {
                // What of a group that only a newer program knows is where, that one says.
                Some((None, _)) => newer += 1,
                Some((Some(layout), is_open)) if layout.on(device).any(|replica| replica.chunk == chunk) => {
                    open += usize::from(*is_open);
                }
                Some((Some(_), _)) | None => unknown.push(chunk),
            }
        }
        Ok(Unknown { chunks: unknown, newer, open })
    }
}

/// Chunks on a device that are of no group known here.
pub struct Unknown {
    /// Those that should not be there.
    pub chunks: Vec<ChunkId>,
    /// How many are of an owner, or a group, of a kind that only a newer program knows.
    pub newer: usize,
    /// How many others are of a group that may still be written, and are there by right.
    pub open: usize,
}

//! Frees what the metadata store lists as garbage: groups and ranges that nothing names any more, and deleted bags.
//!
//! A step takes a page of the list, claims what is on it, lets all devices concerned free their parts side by side, and strikes off the
//! list what is done. What somebody else has claimed stays on the list for a later step. The claims are given back when the step ends,
//! also if a device stands still.
//!
//! Chunks are moved meanwhile (`moving`). A move claims its group from before it looks which ranges are released in the original until it is
//! known whether the metadata name the copy. So, whatever comes when:
//!
//! - A range is freed before the move has the claim: then it is released in the original, and the move releases it in the copy; or the
//!   original's device did not answer, and the range is still on the list.
//! - It is freed after the move gave the claim back: where its group is was looked up under the claim, so it is released in the copy, if
//!   that was named. In between nobody frees it.
//! - A group becomes garbage while it is copied: its chunk is deleted where its record says. The metadata refuse to name the copy of a
//!   group that is garbage or gone, and the move deletes it; if that is cut short, the comparison of its device finds it unknown. If the
//!   copy was named just before, it is what is deleted here, and the original is unknown to the drain that has to empty its device.
//! - It is not known whether the copy was named: the move keeps its claim until that is known, and the group stays on the list.
//!
//! What a device is ordered here may be done late, when nobody waits for it any more: a group that was garbage is never a group again, and
//! its chunks' names are in no other; bytes that no extent names are never named again; a deleted bag's number belongs to no other. So it
//! is right whenever it is done, and wherever the chunk is by then.
//!
//! Of a device that is missing, failed or stands still, groups are struck off: their chunks are found when it is compared, when it is there
//! again or goes on (`Peers::missed`). Bags wait for all their members. Ranges wait for all devices of their group: no comparison finds
//! them, for their chunk stays. A device that is lost, or none of the store's any more, is not waited for.

use super::claims::{Claim, Claims};
use super::job::{self, Job, said};
use super::orders::{Order, Ordered};
use crate::device_handle::DeviceHandle;
use crate::leading::Leading;
use crate::node::Node;
use base::error::{ErrorKind, Result};
use base::id::{BagId, ChunkId, DeviceId, GroupId};
use base::layout::{Layout, Replica};
use base::limit::LIST_PAGE_MAX;
use chunk::BagStat;
use meta::request::{BagInfo, Garbage, NewGroup};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Garbage handled in one step; a step is one delete record a device and one metadata change.
pub const GARBAGE_AT_ONCE: usize = 256;

/// Between two pages of which all has to wait: a page takes the metadata store about a millisecond.
const PAGE_PAUSE: Duration = Duration::from_millis(50);

/// Ranges of which is remembered that they wait for one device and are freed on the others. If there are more they are freed there again.
const PARTLY_MAX: usize = 65_536;

/// The job.
#[derive(Default)]
pub struct Collect {
    /// Where the next page begins: who began each time with what has to wait would never come to the rest.
    ranges_after: Option<(GroupId, u64)>,
    bags_after: Option<BagId>,
    /// Devices that free something.
    freeing: Claims<DeviceId>,
    /// Ranges that wait for a device and are freed on the others.
    partly: BTreeSet<(GroupId, u64)>,
}

impl Job for Collect {
    const NAME: &'static str = "collect";

    fn woken_by(leading: &Leading) -> Option<Arc<Notify>> {
        job::work(leading)
    }

    async fn step(&mut self, node: &Arc<Node>, leading: &Arc<Leading>) -> Result<bool> {
        let (ranges_after, bags_after) = (self.ranges_after, self.bags_after);
        let request = meta::Request::Garbage { ranges_after, bags_after, limit: GARBAGE_AT_ONCE };
        let meta::Reply::Garbage(mut garbage) = leading.metadata.ask(request).await? else {
            unreachable!("garbage was asked for")
        };
        (self.ranges_after, self.bags_after) = (garbage.ranges_resume, garbage.bags_resume);
        let more = self.ranges_after.is_some() || self.bags_after.is_some();
        if is_empty(&garbage) {
            return Ok(more);
        }
        let mut cannot = Cannot::now(node, leading).await?;
        // Not even claimed: a move of their group would have to wait time and again.
        garbage.ranges.retain(|(group, offset, _)| self.is_any_due(&group.layout, (group.group, *offset), &cannot));
        let _claimed = Claimed::of(leading, &mut garbage);
        look_again(leading, &mut garbage).await?;
        if !is_empty(&garbage) {
            self.free(node, leading, &garbage, &mut cannot).await?;
        }
        self.note_partly(&garbage, &cannot);
        garbage.ranges.retain(|(group, ..)| cannot.are_none_on(&group.layout));
        garbage.bags.retain(|bag| cannot.is_over(bag));
        if is_empty(&garbage) {
            if more {
                // All that is on this page waits, and there may be thousands of such pages.
                tokio::time::sleep(PAGE_PAUSE).await;
            }
            return Ok(more);
        }
        let collected = meta::Request::Collected {
            groups: garbage.groups.iter().map(|group| group.group).collect(),
            ranges: garbage.ranges.iter().map(|(group, offset, _)| (group.group, *offset)).collect(),
            bags: garbage.bags.iter().map(|bag| bag.bag).collect(),
        };
        let struck_off = leading.metadata.ask(collected).await;
        // Not before: a comparison in between would find their groups.
        for device in cannot.missed(&garbage) {
            leading.peers.missed(device);
        }
        struck_off.map(|_| true)
    }
}

fn is_empty(garbage: &Garbage) -> bool {
    garbage.groups.is_empty() && garbage.ranges.is_empty() && garbage.bags.is_empty()
}

/// What a step works on.
struct Claimed {
    _groups: Vec<Claim<GroupId>>,
    _bags: Vec<Claim<BagId>>,
    _members: Vec<Claim<(BagId, DeviceId)>>,
}

impl Claimed {
    /// Claims what is on a page of the list, and leaves out what somebody else has.
    fn of(leading: &Leading, garbage: &mut Garbage) -> Claimed {
        let in_ranges = garbage.ranges.iter().map(|(group, ..)| group.group);
        let named: BTreeSet<GroupId> = garbage.groups.iter().map(|group| group.group).chain(in_ranges).collect();
        let claims = named.into_iter().map(|group| (group, leading.jobs.groups.try_claim(group)));
        let (mut groups, mut busy) = (Vec::new(), BTreeSet::new());
        for (group, claim) in claims {
            match claim {
                Some(claim) => groups.push(claim),
                None => drop(busy.insert(group)),
            }
        }
        garbage.groups.retain(|group| !busy.contains(&group.group));
        garbage.ranges.retain(|(group, ..)| !busy.contains(&group.group));
        let (mut bags, mut members) = (Vec::new(), Vec::new());
        garbage.bags.retain(|bag| {
            let member = |device: &DeviceId| leading.jobs.told.try_claim((bag.bag, *device));
            // Who is being told of it would know it again.
            let claims =
                (leading.jobs.bags.try_claim(bag.bag), bag.members.iter().map(member).collect::<Option<Vec<_>>>());
            let (Some(claim), Some(told)) = claims else { return false };
            bags.push(claim);
            members.extend(told);
            true
        });
        Claimed { _groups: groups, _bags: bags, _members: members }
    }
}

/// Looks up where the groups of ranges are: since they were listed, and before they were claimed, one may have been moved. A group that
/// is garbage stays where it is.
async fn look_again(leading: &Leading, garbage: &mut Garbage) -> Result<()> {
    let groups: BTreeSet<GroupId> = garbage.ranges.iter().map(|(group, ..)| group.group).collect();
    if groups.is_empty() {
        return Ok(());
    }
    let request = meta::Request::KnownGroups { groups: groups.into_iter().collect() };
    let meta::Reply::Known(known) = leading.metadata.ask(request).await? else {
        unreachable!("known groups were asked for")
    };
    let now: BTreeMap<GroupId, Layout> =
        known.into_iter().filter_map(|group| Some((group.group, group.layout?))).collect();
    garbage.ranges.retain_mut(|(group, ..)| match now.get(&group.group) {
        Some(layout) => {
            group.layout = layout.clone();
            true
        }
        None => false,
    });
    Ok(())
}

/// Devices that free nothing now.
struct Cannot {
    /// Missing, or failed.
    away: BTreeSet<DeviceId>,
    /// They are there, and do not answer.
    still: BTreeSet<DeviceId>,
    /// Nobody counts on them any more: what they have is never named again as it is.
    lost: BTreeSet<DeviceId>,
}

impl Cannot {
    async fn now(node: &Node, leading: &Leading) -> Result<Cannot> {
        let known = leading.devices().await?;
        let lost = known.iter().filter(|info| info.is_gone()).map(|info| info.device).collect();
        let mut away: BTreeSet<DeviceId> = known.iter().map(|info| info.device).collect();
        for able in leading.device_handles(node).iter().filter(|handle| handle.is_able()) {
            away.remove(&able.id());
        }
        Ok(Cannot { away, still: leading.jobs.still(), lost })
    }

    fn has(&self, device: DeviceId) -> bool {
        self.away.contains(&device) || self.still.contains(&device)
    }

    /// Whether it frees nothing now, and has to.
    fn holds_up(&self, device: DeviceId) -> bool {
        self.has(device) && !self.lost.contains(&device)
    }

    fn are_none_on(&self, layout: &Layout) -> bool {
        !layout.replicas().any(|replica| self.holds_up(replica.device))
    }

    /// Whether a bag is gone when all other devices have dropped it.
    fn is_over(&self, bag: &BagInfo) -> bool {
        !bag.members.iter().any(|member| self.holds_up(*member))
    }

    /// Those that have chunks of groups which are struck off.
    fn missed(&self, garbage: &Garbage) -> BTreeSet<DeviceId> {
        let replicas = garbage.groups.iter().flat_map(|group| group.layout.replicas());
        replicas.map(|replica| replica.device).filter(|device| self.has(*device)).collect()
    }

    /// Waits for devices, for each as long as jobs wait. An error of one of this node ends the step when all have answered, and so does
    /// that the leadership is over.
    async fn take_answers(&mut self, node: &Node, orders: Vec<(DeviceHandle, Ordered<()>)>) -> Result<()> {
        let mut answered = Ok(());
        for (handle, order) in orders {
            match (order.answer().await, &handle) {
                (Some(Ok(())), _) => (),
                // The keeper leads no more: nothing may follow from what was done here.
                (Some(Err(error)), _) if error.kind() == ErrorKind::Moved => answered = Err(error),
                (None, _) => drop(self.still.insert(handle.id())),
                (Some(Err(error)), DeviceHandle::Local(_)) => answered = Err(error),
                // Its node went away; what was done elsewhere is done.
                (Some(Err(error)), DeviceHandle::Remote(_)) => {
                    self.away.insert(handle.id());
                    said(node, Collect::NAME, Err(error));
                }
            }
        }
        answered
    }
}

impl Collect {
    /// Whether something of a range can be freed now that is not known to be free.
    fn is_any_due(&self, layout: &Layout, range: (GroupId, u64), cannot: &Cannot) -> bool {
        cannot.are_none_on(layout)
            || !self.partly.contains(&range) && layout.replicas().any(|replica| !cannot.has(replica.device))
    }

    /// Notes which ranges are freed everywhere but on devices that are waited for.
    fn note_partly(&mut self, garbage: &Garbage, cannot: &Cannot) {
        for (group, offset, _) in &garbage.ranges {
            let range = (group.group, *offset);
            if cannot.are_none_on(&group.layout) {
                self.partly.remove(&range);
            } else {
                if self.partly.len() >= PARTLY_MAX {
                    self.partly.clear();
                }
                self.partly.insert(range);
            }
        }
    }

    /// Lets every device that can free its part. Those that turn out not to can are noted.
    async fn free(&self, node: &Node, leading: &Leading, garbage: &Garbage, cannot: &mut Cannot) -> Result<()> {
        let is_over = |bag: &&BagInfo| cannot.is_over(bag);
        let ending: BTreeSet<BagId> = garbage.bags.iter().filter(is_over).map(|bag| bag.bag).collect();
        let mut orders = Vec::new();
        for handle in leading.device_handles(node) {
            let part = Part::of(&handle, garbage, &ending);
            if part.is_empty() || cannot.has(handle.id()) {
                continue;
            }
            match self.freeing.try_claim(handle.id()) {
                Some(claim) => orders.push((handle.clone(), part.order(leading, handle, claim))),
                // It is still at what an earlier step told it.
                None => drop(cannot.still.insert(handle.id())),
            }
        }
        cannot.take_answers(node, orders).await
    }
}

/// A device's part of the garbage.
struct Part {
    chunks: Vec<ChunkId>,
    ranges: BTreeMap<ChunkId, Vec<(u64, u64)>>,
    /// With whether the bag is gone after this step; others come again, and are dropped only where something is left.
    bags: Vec<(BagId, bool)>,
}

impl Part {
    fn of(handle: &DeviceHandle, garbage: &Garbage, ending: &BTreeSet<BagId>) -> Part {
        let here = |group: &NewGroup| group.layout.on(handle.id()).map(|replica| replica.chunk).collect::<Vec<_>>();
        let chunks = garbage.groups.iter().flat_map(here).collect();
        let mut ranges: BTreeMap<ChunkId, Vec<(u64, u64)>> = BTreeMap::new();
        for (group, offset, length) in &garbage.ranges {
            for Replica { column, chunk, .. } in group.layout.on(handle.id()) {
                let range = group.layout.stripe().column_range(*offset..offset.saturating_add(*length), column);
                if range.start < range.end {
                    ranges.entry(chunk).or_default().push((range.start, range.end - range.start));
                }
            }
        }
        let bags = garbage.bags.iter().filter(|bag| bag.members.contains(&handle.id()));
        Part { chunks, ranges, bags: bags.map(|bag| (bag.bag, ending.contains(&bag.bag))).collect() }
    }

    fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.ranges.is_empty() && self.bags.is_empty()
    }

    /// Orders it; `claim` is kept until it is done.
    fn order(self, leading: &Leading, handle: DeviceHandle, claim: Claim<DeviceId>) -> Ordered<()> {
        leading.jobs.order(handle.id(), |order| async move {
            let freed = self.free(&handle, &order).await;
            drop(claim);
            freed
        })
    }

    async fn free(self, handle: &DeviceHandle, order: &Order) -> Result<()> {
        for chunks in self.chunks.chunks(LIST_PAGE_MAX) {
            handle.delete(chunks.to_vec()).await?;
            order.goes_on();
        }
        for (chunk, ranges) in self.ranges {
            order.goes_on();
            match handle.release(chunk, ranges).await {
                // Gone as a whole meanwhile: that is more than was asked.
                Err(error) if error.kind() == ErrorKind::NotFound => (),
                other => other?,
            }
        }
        for (bag, ends) in self.bags {
            order.goes_on();
            if !ends {
                let counts = handle.bag_counts(bag).await?;
                if counts.stat == BagStat::default() && counts.chunks == 0 {
                    continue;
                }
            }
            handle.drop_bag(bag).await?;
        }
        Ok(())
    }
}

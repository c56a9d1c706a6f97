//! Members of bags: which devices become some, and what a member is told before its first chunk and when it comes back.

use super::job::{Job, said};
use crate::device_handle::DeviceHandle;
use crate::leading::Leading;
use crate::node::Node;
use base::error::{Error, ErrorKind, Result};
use base::id::{BagId, DeviceId};
use base::limit::LIST_PAGE_MAX;
use base::planted::Planted;
use meta::request::{BagInfo, BagState, DeviceInfo};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Tells a device that was away in which pass its bags are, and which of them take no chunks any more.
pub async fn tell_of_bags(leading: &Leading, handle: &DeviceHandle) -> Result<()> {
    for bag in leading.bags().await?.into_iter().filter(|bag| bag.members.contains(&handle.id())) {
        let _told = leading.jobs.told.claim((bag.bag, handle.id())).await;
        // It may have been deleted and dropped until it was claimed, or the device have left it: then nothing of it may come back.
        let bag = match leading.metadata.ask(meta::Request::BagOf { bag: bag.bag }).await {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            found => bag_of(found?),
        };
        if !bag.members.contains(&handle.id()) {
            continue;
        }
        if bag.pass > 0 || bag.retain {
            handle.begin_pass(bag.bag, bag.pass, bag.retain).await?;
        }
        if bag.state == BagState::Sealed {
            handle.seal_bag(bag.bag, bag.epoch).await?;
        }
    }
    Ok(())
}

fn bag_of(reply: meta::Reply) -> BagInfo {
    match reply {
        meta::Reply::Bag(bag) => bag,
        other => unreachable!("a bag was asked for: {other:?}"),
    }
}

/// Makes devices that can be used since the last look members of all bags that take chunks and fit them.
#[derive(Default)]
pub struct JoinBags {
    /// The devices that could be used at the last look.
    devices: BTreeSet<DeviceId>,
    /// How often a node had come or come back: one may have been silent in between, and a bag be made without it.
    returns: u64,
}

impl Job for JoinBags {
    const NAME: &'static str = "join_bags";

    async fn step(&mut self, node: &Arc<Node>, leading: &Arc<Leading>) -> Result<bool> {
        let (returns, still) = (leading.peers.returns(), leading.jobs.still());
        // One that stands still comes anew when it goes on.
        let joins = |info: &DeviceInfo| is_usable(info) && !still.contains(&info.device);
        let devices: Vec<DeviceInfo> = leading.devices().await?.into_iter().filter(joins).collect();
        let now: BTreeSet<DeviceId> = devices.iter().map(|info| info.device).collect();
        if returns != self.returns || !now.is_subset(&self.devices) {
            let takes = |bag: &BagInfo| bag.state == BagState::Open || node.planted == Some(Planted::SealedBagJoined);
            let mut all = true;
            for bag in leading.bags().await?.into_iter().filter(takes) {
                all &= said(node, JoinBags::NAME, join_bag(node, leading, &bag, &devices).await);
            }
            if !all {
                return Ok(false);
            }
        }
        (self.devices, self.returns) = (now, returns);
        Ok(false)
    }
}

pub fn is_usable(info: &DeviceInfo) -> bool {
    info.reported && !info.silent && !info.draining && !info.lost
}

async fn join_bag(node: &Node, leading: &Leading, bag: &BagInfo, devices: &[DeviceInfo]) -> Result<()> {
    // One may have begun to stand still at the bag before.
    let still = leading.jobs.still();
    let joins = |info: &&DeviceInfo| {
        bag.policy.fits(info.class) && !bag.members.contains(&info.device) && !still.contains(&info.device)
    };
    let joining: Vec<DeviceId> = devices.iter().filter(joins).map(|info| info.device).collect();
    if joining.is_empty() {
        return Ok(());
    }
    let now = join(node, leading, bag.bag, joining.clone()).await?;
    match joining.iter().find(|device| !now.members.contains(device)) {
        Some(device) => Err(unanswered(*device)),
        None => Ok(()),
    }
}

fn unanswered(device: DeviceId) -> Error {
    let text = format!("device {device} has not answered what it was told of a bag, and has not joined it");
    Error::new(ErrorKind::Unreachable, text)
}

/// Makes devices members of a bag, those that are none yet and that answer, and answers with what the bag is then. An error if none of them
/// does.
pub async fn join(node: &Node, leading: &Leading, bag: BagId, mut joining: Vec<DeviceId>) -> Result<BagInfo> {
    // One after another, each by what the bag is now: a device that another join has just made a member needs no order, nor is it joined twice.
    let _turn = leading.jobs.bags.claim(bag).await;
    let bag = bag_of(leading.metadata.ask(meta::Request::BagOf { bag }).await?);
    joining.retain(|device| !bag.members.contains(device));
    if joining.is_empty() {
        return Ok(bag);
    }
    let joining = tell_joining(node, leading, &bag, joining).await?;
    let request = meta::Request::BagMembers { bag: bag.bag, state: bag.state, joining: joining.clone(), leaving: None };
    let now = bag_of(leading.metadata.ask(request).await?);
    if now.pass > bag.pass {
        let mut orders = Vec::new();
        for device in &joining {
            let (handle, now) = (leading.device_handle(node, *device)?, now.clone());
            // Told late, it changes nothing: a pass never goes back.
            orders.push(
                leading.jobs.order(*device, |_| async move { handle.begin_pass(now.bag, now.pass, now.retain).await }),
            );
        }
        for order in orders {
            // Whoever counts the bag next tells one that does not know.
            order.answer().await.unwrap_or(Ok(()))?;
        }
    }
    Ok(now)
}

/// Tells devices of a bag before the first chunk comes: one that is acknowledged in a bag that retains must stay. Those that know it now.
///
/// What one is told too late for this join harms nobody: until it answers, the device is told nothing of this bag by another join, so it is
/// no member; it leaves the bag after that, if ever, and a bag that was sealed stays so.
async fn tell_joining(node: &Node, leading: &Leading, bag: &BagInfo, joining: Vec<DeviceId>) -> Result<Vec<DeviceId>> {
    let (still, mut orders, mut error) = (leading.jobs.still(), Vec::new(), None);
    for device in joining {
        let (handle, bag, planted) = (leading.device_handle(node, device), bag.clone(), node.planted);
        let claim = leading.jobs.told.try_claim((bag.bag, device)).filter(|_| !still.contains(&device));
        match (handle, claim) {
            (Ok(handle), Some(claim)) => orders.push((
                device,
                leading.jobs.order(device, |_| async move {
                    let told = tell_joiner(&handle, &bag, planted).await;
                    drop(claim);
                    told
                }),
            )),
            (Ok(_), None) => error = Some(unanswered(device)),
            (Err(away), _) => error = Some(away),
        }
    }
    let mut told = Vec::new();
    for (device, order) in orders {
        match order.answer().await.unwrap_or_else(|| Err(unanswered(device))) {
            Ok(()) => told.push(device),
            Err(why) => error = Some(why),
        }
    }
    match error.filter(|_| told.is_empty()) {
        Some(error) => Err(error),
        None => Ok(told),
    }
}

async fn tell_joiner(handle: &DeviceHandle, bag: &BagInfo, planted: Option<Planted>) -> Result<()> {
    if bag.state == BagState::Sealed {
        // Nothing may be pushed there either.
        if planted != Some(Planted::SealedBagJoined) {
            handle.seal_bag(bag.bag, bag.epoch).await?;
        }
    } else {
        // It may have left this bag before, and refuses its chunks since then.
        handle.readmit_bag(bag.bag).await?;
    }
    if (bag.pass > 0 || bag.retain) && planted != Some(Planted::JoinerNotToldOfPass) {
        handle.begin_pass(bag.bag, bag.pass, bag.retain).await?;
    }
    Ok(())
}

impl Leading {
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

    /// A bag all of whose members are being emptied gets others.
    pub async fn others_join(&self, node: &Node, bag: &BagInfo) -> Result<BagInfo> {
        let takes = |member: &DeviceId| {
            self.device_handle(node, *member).is_ok_and(|handle| handle.is_able() && !handle.is_draining())
        };
        if bag.members.iter().any(takes) {
            return Ok(bag.clone());
        }
        let mut joining = Vec::new();
        for member in &bag.members {
            if let Ok(handle) = self.device_handle(node, *member) {
                joining.extend(self.targets(node, &handle).await?.iter().map(DeviceHandle::id));
            }
        }
        join(node, self, bag.bag, joining).await
    }
}

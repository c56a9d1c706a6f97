//! What the keeper does by itself, as `jobs`. Here are those that keep its lists true: reports, members of bags, devices in memory that are
//! gone. Everything is computed from state and may be repeated or lost.

use crate::claims::Claims;
use crate::collecting::Collect;
use crate::comparing::{CompareReturned, Sweep, compare_all};
use crate::device::Device;
use crate::drain;
use crate::jobs::{self, Job, said};
use crate::log::Level;
use crate::membership::sessions_of_each;
use crate::orphans::EndAbandoned;
use crate::place::Place;
use crate::service::Node;
use base::error::{Error, ErrorKind, Result};
use base::id::{BagId, DeviceId};
use base::planted::Planted;
use base::policy::Class;
use meta::request::{BagInfo, BagState, Carried, DeviceInfo};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Runs all jobs until the node stops, which cuts them short, one after another: each hearing of it by itself would do so by chance, and no
/// history of the simulation could be played twice.
pub async fn run(node: Arc<Node>, mut stopped: watch::Receiver<bool>) {
    let mut running = JoinSet::new();
    // Unfinished copies go before new ones are made.
    let drains = node.clone();
    running.spawn(async move {
        let _comparing = compare_all(&drains).await;
        drain::run(drains).await;
    });
    running.spawn(jobs::run(Report::default(), node.clone()));
    running.spawn(jobs::run(ForgetSessions::default(), node.clone()));
    running.spawn(jobs::run(CompareReturned::default(), node.clone()));
    running.spawn(jobs::run(JoinBags::default(), node.clone()));
    running.spawn(jobs::run(ForgetMemory, node.clone()));
    running.spawn(jobs::run(EndAbandoned::default(), node.clone()));
    running.spawn(jobs::run(Collect::default(), node.clone()));
    running.spawn(jobs::run(Sweep::default(), node));
    // Its sender goes with the node.
    drop(stopped.wait_for(|stopped| *stopped).await);
    running.shutdown().await;
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

/// Tells the metadata store how full the devices of this node are, and the operator which devices stand still.
#[derive(Default)]
struct Report {
    still: BTreeSet<DeviceId>,
}

impl Job for Report {
    const NAME: &'static str = "report";

    async fn step(&mut self, node: &Arc<Node>) -> Result<bool> {
        node.troubles.look();
        self.tell_still(node);
        for device in node.served() {
            node.metadata()?.ask(report_of(device)).await?;
        }
        let devices = node.served().map(|device| device.id).collect();
        node.metadata()?.ask(meta::Request::NodeReport { node: node.id, keeps: true, devices }).await?;
        Ok(false)
    }
}

impl Report {
    fn tell_still(&mut self, node: &Node) {
        let still = node.jobs.still();
        let shown = |device: DeviceId| node.place(device).map_or_else(|_| device.to_string(), |place| place.shown());
        for device in still.difference(&self.still) {
            let text = "a device has not answered an order for 5 s; what was acknowledged is safe; its garbage, its abandoned \
                        files, its drain and the bags that it joins wait for it, others do not; look at its disk and its node";
            node.log.say(Level::Warn, "housekeeping", text, &[("place", &shown(*device))]);
        }
        for device in self.still.difference(&still) {
            let text = "a device that had not answered goes on";
            node.log.say(Level::Info, "housekeeping", text, &[("place", &shown(*device))]);
        }
        self.still = still;
    }
}

/// Lets the devices of this node forget what they remember of sessions that are over.
#[derive(Default)]
struct ForgetSessions {
    asked: Claims<DeviceId>,
}

impl Job for ForgetSessions {
    const NAME: &'static str = "forget_sessions";

    async fn step(&mut self, node: &Arc<Node>) -> Result<bool> {
        let (limit, mut orders) = (sessions_of_each(node), Vec::new());
        for device in node.devices.values() {
            if let Some(claim) = self.asked.try_claim(device.id) {
                let asked = device.clone();
                orders.push(node.jobs.order(device.id, |_| async move {
                    let sessions = asked.sessions(limit).await;
                    drop(claim);
                    sessions
                }));
            }
        }
        let mut remembered = BTreeSet::new();
        for order in orders {
            // One that is not served any more remembers nothing.
            remembered.extend(order.answer().await.and_then(Result::ok).unwrap_or_default());
        }
        node.sessions_over(&node.metadata()?.over(remembered.into_iter().collect()));
        Ok(false)
    }
}

/// Tells a device that was away in which pass its bags are, and which of them take no chunks any more.
pub async fn tell_of_bags(node: &Node, place: &Place) -> Result<()> {
    for bag in node.bags().await?.into_iter().filter(|bag| bag.members.contains(&place.id())) {
        let _told = node.jobs.told.claim((bag.bag, place.id())).await;
        // It may have been deleted and dropped until it was claimed, or the device have left it: then nothing of it may come back.
        let bag = match node.metadata()?.ask(meta::Request::BagOf { bag: bag.bag }).await {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            found => bag_of(found?),
        };
        if !bag.members.contains(&place.id()) {
            continue;
        }
        if bag.pass > 0 || bag.retain {
            place.begin_pass(bag.bag, bag.pass, bag.retain).await?;
        }
        if bag.state == BagState::Sealed {
            place.seal_bag(bag.bag, bag.epoch).await?;
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
struct JoinBags {
    /// The devices that could be used at the last look.
    devices: BTreeSet<DeviceId>,
    /// How often a node had come or come back: one may have been silent in between, and a bag be made without it.
    returns: u64,
}

impl Job for JoinBags {
    const NAME: &'static str = "join_bags";

    async fn step(&mut self, node: &Arc<Node>) -> Result<bool> {
        let (returns, still) = (node.keeper()?.peers.returns(), node.jobs.still());
        // One that stands still comes anew when it goes on.
        let joins = |info: &DeviceInfo| is_usable(info) && !still.contains(&info.device);
        let devices: Vec<DeviceInfo> = node.keeper()?.devices().await?.into_iter().filter(joins).collect();
        let now: BTreeSet<DeviceId> = devices.iter().map(|info| info.device).collect();
        if returns != self.returns || !now.is_subset(&self.devices) {
            let takes = |bag: &BagInfo| bag.state == BagState::Open || node.planted == Some(Planted::SealedBagJoined);
            let mut all = true;
            for bag in node.bags().await?.into_iter().filter(takes) {
                all &= said(node, JoinBags::NAME, join_bag(node, &bag, &devices).await);
            }
            if !all {
                return Ok(false);
            }
        }
        (self.devices, self.returns) = (now, returns);
        Ok(false)
    }
}

fn is_usable(info: &DeviceInfo) -> bool {
    info.reported && !info.silent && !info.draining
}

async fn join_bag(node: &Node, bag: &BagInfo, devices: &[DeviceInfo]) -> Result<()> {
    // One may have begun to stand still at the bag before.
    let still = node.jobs.still();
    let joins = |info: &&DeviceInfo| {
        bag.policy.fits(info.class) && !bag.members.contains(&info.device) && !still.contains(&info.device)
    };
    let joining: Vec<DeviceId> = devices.iter().filter(joins).map(|info| info.device).collect();
    if joining.is_empty() {
        return Ok(());
    }
    let now = join(node, bag.bag, joining.clone()).await?;
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
pub async fn join(node: &Node, bag: BagId, mut joining: Vec<DeviceId>) -> Result<BagInfo> {
    // One after another, each by what the bag is now: a device that another join has just made a member needs no order, nor is it joined twice.
    let _turn = node.jobs.bags.claim(bag).await;
    let bag = bag_of(node.metadata()?.ask(meta::Request::BagOf { bag }).await?);
    joining.retain(|device| !bag.members.contains(device));
    if joining.is_empty() {
        return Ok(bag);
    }
    let joining = tell_joining(node, &bag, joining).await?;
    let request = meta::Request::BagMembers { bag: bag.bag, state: bag.state, joining: joining.clone(), leaving: None };
    let now = bag_of(node.metadata()?.ask(request).await?);
    if now.pass > bag.pass {
        let mut orders = Vec::new();
        for device in &joining {
            let (place, now) = (node.place(*device)?, now.clone());
            // Told late, it changes nothing: a pass never goes back.
            orders.push(
                node.jobs.order(*device, |_| async move { place.begin_pass(now.bag, now.pass, now.retain).await }),
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
async fn tell_joining(node: &Node, bag: &BagInfo, joining: Vec<DeviceId>) -> Result<Vec<DeviceId>> {
    let (still, mut orders, mut error) = (node.jobs.still(), Vec::new(), None);
    for device in joining {
        let (place, bag, planted) = (node.place(device), bag.clone(), node.planted);
        let claim = node.jobs.told.try_claim((bag.bag, device)).filter(|_| !still.contains(&device));
        match (place, claim) {
            (Ok(place), Some(claim)) => orders.push((
                device,
                node.jobs.order(device, |_| async move {
                    let told = tell_joiner(&place, &bag, planted).await;
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

async fn tell_joiner(place: &Place, bag: &BagInfo, planted: Option<Planted>) -> Result<()> {
    if bag.state == BagState::Sealed {
        // Nothing may be pushed there either.
        if planted != Some(Planted::SealedBagJoined) {
            place.seal_bag(bag.bag, bag.epoch).await?;
        }
    } else {
        // It may have left this bag before, and refuses its chunks since then.
        place.readmit_bag(bag.bag).await?;
    }
    if (bag.pass > 0 || bag.retain) && planted != Some(Planted::JoinerNotToldOfPass) {
        place.begin_pass(bag.bag, bag.pass, bag.retain).await?;
    }
    Ok(())
}

/// Forgets devices in memory of earlier starts of their nodes: what was on them is gone, each start makes new ones, and nobody brings these
/// back.
struct ForgetMemory;

impl Job for ForgetMemory {
    const NAME: &'static str = "forget_memory";

    async fn step(&mut self, node: &Arc<Node>) -> Result<bool> {
        forget_memory(node).await.map(|()| false)
    }
}

async fn forget_memory(node: &Node) -> Result<()> {
    let keeper = node.keeper()?;
    let devices = keeper.devices().await?;
    let is_heard = |id| id == node.id || keeper.peers.find(id).is_some_and(|peer| peer.is_reachable());
    let is_gone =
        |info: &&DeviceInfo| info.class == Class::Memory && !info.reported && !info.silent && is_heard(info.node);
    for device in devices.iter().filter(is_gone).map(|info| info.device) {
        for bag in node.bags().await?.into_iter().filter(|bag| bag.members.contains(&device)) {
            if bag.members.len() == 1 {
                let fitting = devices.iter().filter(|info| is_usable(info) && bag.policy.fits(info.class));
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

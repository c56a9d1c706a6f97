//! What is forgotten: sessions that are over, by the devices of this node; devices that are gone, by the store: in memory, or lost.

use super::claims::Claims;
use super::job::Job;
use super::joining::{is_usable, join};
use crate::device_handle::DeviceHandle;
use crate::leading::Leading;
use crate::log::Level;
use crate::membership::reporting::sessions_of_each;
use crate::node::Node;
use base::error::{ErrorKind, Result};
use base::id::DeviceId;
use base::policy::Class;
use meta::request::{Carried, DeviceInfo};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Lets the devices of this node forget what they remember of sessions that are over.
#[derive(Default)]
pub struct ForgetSessions {
    asked: Claims<DeviceId>,
}

impl Job for ForgetSessions {
    const NAME: &'static str = "forget_sessions";

    async fn step(&mut self, node: &Arc<Node>, leading: &Arc<Leading>) -> Result<bool> {
        let (limit, mut orders) = (sessions_of_each(node), Vec::new());
        for device in node.devices.values().filter(|_| leading.alone) {
            if let Some(claim) = self.asked.try_claim(device.id) {
                let asked = device.clone();
                orders.push(leading.jobs.order(device.id, |_| async move {
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
        node.sessions_over(&leading.metadata.over(remembered.into_iter().collect()).await?);
        Ok(false)
    }
}

/// Forgets devices that are gone. Those in memory of earlier starts of their nodes: what was on them is gone, each start makes new ones, and
/// nobody brings these back. And those that were given up, once nothing names them any more.
pub struct ForgetDevices;

impl Job for ForgetDevices {
    const NAME: &'static str = "forget_devices";

    async fn step(&mut self, node: &Arc<Node>, leading: &Arc<Leading>) -> Result<bool> {
        forget_memory(node, leading).await?;
        forget_lost(node, leading).await.map(|()| false)
    }
}

/// One that was given up leaves its bags with what is there, if it does not answer, and the store when no group names it.
async fn forget_lost(node: &Node, leading: &Leading) -> Result<()> {
    let devices = leading.devices().await?;
    // One that was given up by itself is waited for.
    for info in devices.iter().filter(|info| info.is_gone()) {
        let handle = leading.device_handle(node, info.device);
        // It is back, and counts again soon.
        if !info.draining && handle.as_ref().is_ok_and(DeviceHandle::is_able) {
            continue;
        }
        if !handle.as_ref().is_ok_and(DeviceHandle::can_be_asked) {
            leave_bags(node, leading, info.device, &devices).await?;
        }
        // Nothing comes there any more: what is not named now never will be.
        let request = meta::Request::GroupsOn { device: info.device, after: None, limit: 1 };
        match leading.metadata.ask(request).await? {
            meta::Reply::GroupsOn { groups, .. } if groups.is_empty() => (),
            _ => continue,
        }
        // Before the metadata forget it: a report that comes then would make it a new device.
        if let Ok(DeviceHandle::Remote(far)) = &handle {
            leading.peers.removed(far);
        }
        match leading.metadata.ask(meta::Request::DeviceRemove { device: info.device }).await {
            Ok(_) => {
                let text = "a device that was given up is forgotten: what was on it is elsewhere, or was removed";
                node.log.say(Level::Info, "housekeeping", text, &[("device", &info.device)]);
                if let Ok(DeviceHandle::Remote(far)) = &handle {
                    leading.peers.gone(far);
                }
            }
            Err(error) => {
                if error.kind() != ErrorKind::Moved {
                    leading.peers.stays(info.device);
                }
                // It is being looked through still.
                if error.kind() != ErrorKind::Busy {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// A device that is gone leaves all bags, and what it had of them is lost.
async fn leave_bags(node: &Node, leading: &Leading, device: DeviceId, devices: &[DeviceInfo]) -> Result<()> {
    for bag in leading.bags().await?.into_iter().filter(|bag| bag.members.contains(&device)) {
        if bag.members.len() == 1 {
            let fitting = devices.iter().filter(|info| is_usable(info) && bag.policy.fits(info.class));
            join(node, leading, bag.bag, fitting.map(|info| info.device).collect()).await?;
        }
        let leaving = Some((device, Carried::default()));
        let request = meta::Request::BagMembers { bag: bag.bag, state: bag.state, joining: Vec::new(), leaving };
        leading.metadata.ask(request).await?;
    }
    Ok(())
}

async fn forget_memory(node: &Node, leading: &Leading) -> Result<()> {
    let devices = leading.devices().await?;
    let is_heard = |id| leading.is_near(node, id) || leading.peers.find(id).is_some_and(|peer| peer.is_reachable());
    let is_gone =
        |info: &&DeviceInfo| info.class == Class::Memory && !info.reported && !info.silent && is_heard(info.node);
    for device in devices.iter().filter(is_gone).map(|info| info.device) {
        leave_bags(node, leading, device, &devices).await?;
        leading.metadata.ask(meta::Request::DeviceRemove { device }).await?;
        let text = "a memory device of an earlier start is forgotten, and with it what was on it";
        node.log.say(Level::Info, "housekeeping", text, &[("device", &device)]);
    }
    Ok(())
}

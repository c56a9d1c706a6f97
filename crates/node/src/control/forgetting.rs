//! What is forgotten: sessions that are over, by the devices of this node; devices in memory that are gone, by the store.

use super::claims::Claims;
use super::job::Job;
use super::joining::{is_usable, join};
use crate::leading::Leading;
use crate::log::Level;
use crate::membership::reporting::sessions_of_each;
use crate::node::Node;
use base::error::Result;
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

/// Forgets devices in memory of earlier starts of their nodes: what was on them is gone, each start makes new ones, and nobody brings these
/// back.
pub struct ForgetMemory;

impl Job for ForgetMemory {
    const NAME: &'static str = "forget_memory";

    async fn step(&mut self, node: &Arc<Node>, leading: &Arc<Leading>) -> Result<bool> {
        forget_memory(node, leading).await.map(|()| false)
    }
}

async fn forget_memory(node: &Node, leading: &Leading) -> Result<()> {
    let devices = leading.devices().await?;
    let is_heard = |id| leading.is_near(node, id) || leading.peers.find(id).is_some_and(|peer| peer.is_reachable());
    let is_gone =
        |info: &&DeviceInfo| info.class == Class::Memory && !info.reported && !info.silent && is_heard(info.node);
    for device in devices.iter().filter(is_gone).map(|info| info.device) {
        for bag in leading.bags().await?.into_iter().filter(|bag| bag.members.contains(&device)) {
            if bag.members.len() == 1 {
                let fitting = devices.iter().filter(|info| is_usable(info) && bag.policy.fits(info.class));
                join(node, leading, bag.bag, fitting.map(|info| info.device).collect()).await?;
            }
            let leaving = Some((device, Carried::default()));
            let request = meta::Request::BagMembers { bag: bag.bag, state: bag.state, joining: Vec::new(), leaving };
            leading.metadata.ask(request).await?;
        }
        leading.metadata.ask(meta::Request::DeviceRemove { device }).await?;
        let text = "a memory device of an earlier start is forgotten, and with it what was on it";
        node.log.say(Level::Info, "housekeeping", text, &[("device", &device)]);
    }
    Ok(())
}

//! A client that looks at who is in the cluster: what it is told never goes back to what was before. And each time that a node
//! started again, what the start before may still have said on the way comes late: it must be refused.

use super::oracle::{Broken, Check};
use super::scene::Scene;
use base::env::Random;
use base::id::NodeId;
use client::Client;
use net::message::cluster::{Node, Report, ViewAnswer};
use net::{Asker, LinkSettings, Payload};
use sim::random::SimRandom;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Looks so often at least.
const LOOKS: u64 = 120;

/// Looks until everybody has done enough.
pub async fn play(scene: &Scene, random: &SimRandom, name: &str, client: &Client) -> Check<()> {
    let (mut epoch, mut starts): (u64, BTreeMap<u128, Node>) = (0, BTreeMap::new());
    let mut lost: BTreeSet<u128> = BTreeSet::new();
    for look in 0.. {
        if look >= LOOKS && scene.has_seen_enough() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(random.below(400))).await;
        let Ok(view) = scene.call(name, "view", client.view()).await? else { continue };
        if view.epoch < epoch {
            return Err(Broken(format!("{name}: epoch {} was seen after {epoch}", view.epoch)));
        }
        epoch = view.epoch;
        let leads = view.members.iter().find(|member| member.node.node == view.keeper);
        scene.is_led_by(leads.map(|member| member.node.name.clone()));
        let mut names = BTreeSet::new();
        for node in view.members.iter().map(|member| &member.node) {
            if !names.insert(&node.name) {
                return Err(Broken(format!("{name}: two nodes are named {}", node.name)));
            }
            let start = node.incarnation;
            let Some(before) = starts.insert(node.node.value(), node.clone()) else { continue };
            if start < before.incarnation {
                let text = format!("{name}: {} was in start {} and is in start {start}", node.name, before.incarnation);
                return Err(Broken(text));
            }
            if start > before.incarnation && node.node != view.keeper {
                say_late(scene, random, name, &view, before).await?;
            }
        }
        scene.count("views compared");
        if scene.replicas > 1
            && let Ok(found) = scene.call(name, "devices", client.devices()).await?
        {
            for device in found.devices {
                let (id, is_lost) = (device.device.value(), device.lost);
                match (lost.contains(&id), is_lost) {
                    (false, true) => {
                        scene.count("devices seen given up");
                        lost.insert(id);
                    }
                    (true, false) => {
                        scene.count("devices seen to count again");
                        lost.remove(&id);
                    }
                    _ => (),
                }
            }
        }
    }
    Ok(())
}

/// Says what an earlier start of a node said.
async fn say_late(scene: &Scene, random: &SimRandom, name: &str, view: &ViewAnswer, node: Node) -> Check<()> {
    // The view may be older than its removal. With a node its starts are forgotten, and whoever reports for it then joins anew, as it may.
    if scene.may_have_left(&node.name) {
        return Ok(());
    }
    let keeper = view.members.iter().find(|member| member.node.node == view.keeper);
    let Some(keeper) = keeper else { return Ok(()) };
    let asker = Asker::Node { node: NodeId(node.node.value()), incarnation: node.incarnation, term: 0 };
    let settings = LinkSettings { asker, ..scene.bare_session(name, random) };
    let link = scene.link(name, &keeper.node.address, &settings).await?;
    let who = node.name.clone();
    let text = format!("{name}: {} is in another start and its start {} is believed", node.name, node.incarnation);
    let report = Report { node, ..Report::default() };
    // A bare link is told that another node leads.
    let asked = async { Ok(link.call(&report, Payload::empty()).await.is_ok()) };
    match scene.call(name, "report_late", asked).await? {
        // It may have been removed while this was on its way.
        Ok(true) if !scene.may_have_left(&who) => Err(Broken(text)),
        _ => Ok(()),
    }
}

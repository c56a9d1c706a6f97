//! A client that looks at who is in the cluster: what it is told never goes back to what was before.

use super::oracle::{Broken, Check};
use super::scene::Scene;
use base::env::Random;
use client::Client;
use sim::random::SimRandom;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Looks so often at least.
const LOOKS: u64 = 120;

/// Looks until everybody has done enough.
pub async fn play(scene: &Scene, random: &SimRandom, name: &str, client: &Client) -> Check<()> {
    let (mut epoch, mut starts) = (0, BTreeMap::new());
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
        let mut names = BTreeSet::new();
        for member in &view.members {
            let (node, start) = (&member.node, member.node.incarnation);
            let before = starts.insert(node.node.value(), start).unwrap_or_default();
            if start < before {
                return Err(Broken(format!("{name}: {} was in start {before} and is in start {start}", node.name)));
            }
            if !names.insert(&node.name) {
                return Err(Broken(format!("{name}: two nodes are named {}", node.name)));
            }
        }
        scene.count("views compared");
    }
    Ok(())
}

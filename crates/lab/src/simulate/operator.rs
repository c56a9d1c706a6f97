//! Somebody who takes a node out of the cluster: empties its devices, waits for that, and removes it.

use super::oracle::{Broken, Check};
use super::scene::Scene;
use base::env::{Clock, Random};
use base::error::ErrorKind;
use client::Client;
use net::message::Id;
use sim::random::SimRandom;
use std::sync::PoisonError;
use std::time::Duration;

/// Longest wait for a drain. What is written, or waits to be consumed, may keep it for longer; the end of the history looks again.
const PATIENCE: Duration = Duration::from_secs(60);

/// Takes the node of this name out, as far as that goes while everything else goes on.
pub async fn play(scene: &Scene, random: &SimRandom, name: &str, client: &Client, node: &str) -> Check<()> {
    let Some(id) = find(scene, name, client, node).await? else { return Ok(()) };
    if let Err(error) = scene.insist_with_room(name, "node_drain", || client.drain_node(id)).await? {
        // Too little room elsewhere, or nobody else: nothing was done.
        scene.say(|| format!("{name}: {error}"));
        return Ok(());
    }
    let begun = scene.clock.now();
    while scene.clock.now().since(begun) < PATIENCE {
        tokio::time::sleep(Duration::from_millis(200 + random.below(1_500))).await;
        if remove(scene, name, client, node).await? {
            scene.count("nodes removed under load");
            return Ok(());
        }
    }
    if let Ok(found) = scene.call(name, "devices", client.devices()).await? {
        let waits = found.devices.into_iter().filter_map(|device| Some(device.drain?.waits));
        waits.for_each(|waits| scene.say(|| format!("{name}: gives up; a drain waits for {waits}")));
    }
    Ok(())
}

/// Whether a node of this name is out of the cluster now: it is removed once nothing is on it.
pub async fn remove(scene: &Scene, name: &str, client: &Client, node: &str) -> Check<bool> {
    let Some(id) = find(scene, name, client, node).await? else { return Ok(true) };
    let leaving = || scene.leaving.lock().unwrap_or_else(PoisonError::into_inner);
    // Before it is asked: nobody hears when it is done, only that it was.
    leaving().insert(node.to_string());
    match scene.insist(name, "node_remove", || client.remove_node(id)).await? {
        Ok(()) => (),
        // An attempt whose answer was lost did it.
        Err(error) if error.kind() == ErrorKind::NotFound => (),
        // It has devices.
        Err(error) if error.kind() == ErrorKind::Invalid => {
            leaving().remove(node);
            return Ok(false);
        }
        Err(error) => return Err(Broken(format!("{name}: {error}"))),
    }
    scene.left.lock().unwrap_or_else(PoisonError::into_inner).insert(node.to_string());
    scene.end_now.notify_one();
    Ok(true)
}

async fn find(scene: &Scene, name: &str, client: &Client, node: &str) -> Check<Option<Id>> {
    let view = scene.insist(name, "view", || client.view()).await?;
    let view = view.map_err(|error| Broken(format!("{name}: {error}")))?;
    Ok(view.members.iter().find(|member| member.node.name == node).map(|member| member.node.node))
}

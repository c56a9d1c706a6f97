//! On which machines the bytes of a file are: a power loss takes what was only written there, and nothing elsewhere.

use super::oracle::Check;
use super::scene::Scene;
use base::error::Result;
use client::Client;
use std::collections::BTreeSet;

/// Tells the oracle which devices hold what is not synced of a file, if there are several machines and somebody knows. Nothing of the
/// file may be written meanwhile.
pub async fn look(scene: &Scene, who: &str, client: &Client, tag: u64, inode: u64) -> Check<()> {
    if scene.only_address().is_some() {
        return Ok(());
    }
    let (losses, from) = {
        let oracle = scene.oracle();
        (oracle.losses_of(tag), oracle.promise(tag).synced)
    };
    let Ok(devices) = scene.call(who, "extents", devices_of(client, inode, from)).await? else { return Ok(()) };
    // What the power took meanwhile is promised no more, wherever the rest is.
    let settled = |scene: &Scene| {
        let mut oracle = scene.oracle();
        oracle.losses_of(tag) != losses || oracle.is_on(tag, &devices)
    };
    if settled(scene) {
        return Ok(());
    }
    let Ok(view) = scene.call(who, "view", client.view()).await? else { return Ok(()) };
    for member in &view.members {
        for device in &member.devices {
            scene.oracle().device_is_at(device.value(), &member.node.name);
        }
    }
    settled(scene);
    Ok(())
}

/// Every device that has bytes of the file from here on, or may get some.
async fn devices_of(client: &Client, inode: u64, from: u64) -> Result<BTreeSet<u128>> {
    let (mut devices, mut at) = (BTreeSet::new(), from);
    loop {
        let (extents, more) = client.extents(inode, at).await?;
        for extent in &extents {
            devices.extend(client::parts(extent)?.iter().map(|part| part.device.value()));
        }
        match extents.last().filter(|_| more) {
            Some(last) => at = last.offset.saturating_add(last.length).max(at.saturating_add(1)),
            None => return Ok(devices),
        }
    }
}

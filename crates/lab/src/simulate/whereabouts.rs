//! On which machines the bytes of a file are: a power loss takes what was only written there, and nothing elsewhere.

use super::oracle::{Broken, Check};
use super::scene::Scene;
use base::error::Result;
use client::Client;
use std::collections::{BTreeMap, BTreeSet};

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
    let Ok(columns) = scene.call(who, "extents", columns_of(client, inode, from)).await? else { return Ok(()) };
    if !columns.is_last_open {
        return Err(Broken(format!("{who}: a group of file {tag} is open, and there is another one behind it")));
    }
    if columns.of_open > 1 && columns.are_replicated {
        scene.count("open groups of several columns and replicas");
    }
    // What the power took meanwhile is promised no more, wherever the rest is.
    let settled = |scene: &Scene| {
        let mut oracle = scene.oracle();
        oracle.losses_of(tag) != losses || oracle.is_on(tag, &columns.devices)
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

/// The columns of the groups of a file.
#[derive(Default)]
struct Columns {
    /// Of each the devices that have it, or may get some of it.
    devices: Vec<BTreeSet<u128>>,
    /// Columns of the open group.
    of_open: usize,
    /// They have several replicas.
    are_replicated: bool,
    /// No group is open but the last one.
    is_last_open: bool,
}

/// Every column that has bytes of the file from here on, or may get some.
async fn columns_of(client: &Client, inode: u64, from: u64) -> Result<Columns> {
    let (mut columns, mut at) = (Columns { is_last_open: true, ..Columns::default() }, from);
    loop {
        let (extents, more) = client.extents(inode, at).await?;
        for extent in &extents {
            columns.is_last_open &= columns.of_open == 0;
            let mut devices: BTreeMap<usize, BTreeSet<u128>> = BTreeMap::new();
            for part in client::parts(extent)? {
                devices.entry(part.column).or_default().insert(part.device.value());
            }
            if extent.open {
                columns.of_open = devices.len();
                columns.are_replicated = devices.values().any(|of| of.len() > 1);
            }
            columns.devices.extend(devices.into_values());
        }
        match extents.last().filter(|_| more) {
            Some(last) => at = last.offset.saturating_add(last.length).max(at.saturating_add(1)),
            None => return Ok(columns),
        }
    }
}

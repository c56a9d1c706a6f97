//! In some clusters files have more than one copy. At the end each has as many as it wants, or there is a reason, and all are alike.

use super::hdfs;
use super::oracle::{Broken, Check};
use super::scene::{CALL_BOUND, Scene};
use base::env::Clock;
use base::policy::Policy;
use client::{Client, Device, Entry};
use net::message::chunk::{Range, Read};
use net::{Link, Payload};
use sim::random::SimRandom;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Bytes of a chunk that are compared at once.
const COMPARED_AT_ONCE: u64 = 256 << 10;

/// All files want as many copies as this history's shall have.
pub async fn wish(scene: &Scene, random: &SimRandom) -> Check<()> {
    // A store that several keepers began has a wish of its own.
    if scene.replicas > 1 || scene.keepers > 1 {
        let (client, _) = scene.connect("policy", random).await?;
        let least = (scene.replicas > 2 && random.fork("least").one_in(2)).then_some(2);
        let policy = Policy { replicas: Some(scene.replicas), least, ..Policy::default() };
        let set = scene.insist("policy", "set_policy", || client.set_policy("/", policy)).await?;
        set.map_err(|error| Broken(format!("policy: {error}")))?;
    }
    if scene.replicas > 1 {
        scene.count("histories with copies");
    }
    Ok(())
}

/// Waits until nothing lacks copies, or there is no device for more of them; whether nothing does. `one_is_away`: what has its only copy there still
/// lacks it.
pub async fn are_made(scene: &Scene, client: &Client, one_is_away: bool) -> Check<bool> {
    let begun = scene.clock.now();
    loop {
        let asked = scene.insist("finale", "devices", || client.devices()).await?;
        let lacks = asked.map_err(|error| Broken(format!("devices: {error}")))?.lacks.unwrap_or_default();
        let none_left = if one_is_away { 0 } else { lacks.none_left };
        if lacks.one_left + lacks.fewer + none_left == 0 && !lacks.recounting {
            scene.count_more("copies made", lacks.made);
            return Ok(true);
        }
        if scene.clock.now().since(begun) > CALL_BOUND {
            if lacks.waits.starts_with("a device on another node") {
                scene.count("no room for copies");
                return Ok(false);
            }
            return Err(Broken(format!(
                "{} s after the last fault files lack copies: {lacks:?}",
                CALL_BOUND.as_secs()
            )));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Waits until devices that were given up count again: all answer. Not if there is no room for what is on them. Where files want one copy none was.
pub async fn are_back(scene: &Scene, client: &Client, all_made: bool) -> Check<()> {
    let begun = scene.clock.now();
    loop {
        let asked = scene.insist("finale", "devices", || client.devices()).await?;
        let devices = asked.map_err(|error| Broken(format!("devices: {error}")))?.devices;
        // One that is to be emptied leaves when it is.
        let waits = |device: &&Device| device.lost && device.drain.is_none();
        let lost: Vec<&Device> = devices.iter().filter(waits).collect();
        if lost.is_empty() || !all_made {
            return Ok(());
        }
        if scene.replicas == 1 {
            return Err(Broken(format!("no file wants a second copy, and a device was given up: {lost:?}")));
        }
        if scene.clock.now().since(begun) > CALL_BOUND {
            // A fence that is kept for a session that lives names its device, and has no byte: that one waits for the session.
            if lost.iter().all(|device| device.live == 0 && device.chunks > 0) {
                scene.count_more("devices that wait for fences", lost.len() as u64);
                return Ok(());
            }
            return Err(Broken(format!(
                "{} s after all were back devices do not count: {lost:?}",
                CALL_BOUND.as_secs()
            )));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Every copy of every file has the same bytes, those left out that are on devices that are away; and if `all_made`, each file that no gateway made
/// has as many as were wished for.
pub async fn are_alike(
    scene: &Scene,
    random: &SimRandom,
    client: &Client,
    (all_made, away): (bool, BTreeSet<u128>),
) -> Check<()> {
    let mut links = Links { all_made, away, by_device: BTreeMap::new(), links: BTreeMap::new() };
    let view = scene.insist("finale", "view", || client.view()).await?;
    for member in view.map_err(|error| Broken(format!("view: {error}")))?.members {
        let address = &member.node.address;
        links.by_device.extend(member.devices.iter().map(|device| (device.value(), address.clone())));
    }
    let mut directories = vec![String::new()];
    while let Some(directory) = directories.pop() {
        let mut after = String::new();
        loop {
            let path = format!("{directory}/");
            let listed = scene.insist("finale", "list", || client.list(&path, &after, 100)).await?;
            let listed = listed.map_err(|error| Broken(format!("{path}: {error}")))?;
            for Entry { name, attributes, .. } in &listed.entries {
                let path = format!("{directory}/{name}");
                if attributes.directory {
                    directories.push(path);
                } else {
                    of_file(scene, random, client, (&path, attributes.inode), &mut links).await?;
                }
            }
            match listed.entries.last().filter(|_| listed.more) {
                Some(last) => after.clone_from(&last.name),
                None => break,
            }
        }
    }
    Ok(())
}

/// Links to the nodes that have devices.
struct Links {
    all_made: bool,
    away: BTreeSet<u128>,
    by_device: BTreeMap<u128, String>,
    links: BTreeMap<String, Link>,
}

impl Links {
    async fn to(&mut self, scene: &Scene, random: &SimRandom, device: u128) -> Check<&Link> {
        let Some(address) = self.by_device.get(&device) else {
            return Err(Broken(format!("a copy is on device {device:032x}, which no node has")));
        };
        if !self.links.contains_key(address) {
            let settings = scene.bare_session("copies", random);
            let link = scene.link("copies", address, &settings).await?;
            self.links.insert(address.clone(), link);
        }
        Ok(&self.links[address])
    }
}

async fn of_file(
    scene: &Scene,
    random: &SimRandom,
    client: &Client,
    (path, inode): (&str, u64),
    links: &mut Links,
) -> Check<()> {
    let mut at = 0;
    loop {
        let asked = scene.insist("finale", "extents", || client.extents(inode, at)).await?;
        let (extents, more) = asked.map_err(|error| Broken(format!("{path}: {error}")))?;
        for extent in extents.iter().filter(|extent| !extent.open) {
            let mut parts = client::parts(extent).map_err(|error| Broken(format!("{path}: {error}")))?;
            let columns: BTreeSet<usize> = parts.iter().filter(|part| part.bytes > 0).map(|part| part.column).collect();
            parts.retain(|part| !links.away.contains(&part.device.value()));
            let mut first = BTreeMap::new();
            let wished = match (links.all_made && !hdfs::is_of_gateway(path), links.away.is_empty()) {
                (true, _) => scene.replicas as usize,
                (false, true) => 1,
                (false, false) => 0,
            };
            for column in columns {
                let copies = parts.iter().filter(|part| part.column == column).count();
                if copies < wished {
                    return Err(Broken(format!(
                        "{path}: of column {column} of bytes {} and on there are {copies} copies and {wished} are wished for",
                        extent.offset
                    )));
                }
            }
            for part in parts.iter().filter(|part| part.bytes > 0) {
                let device = part.device.value();
                let link = links.to(scene, random, device).await?;
                let (mut from, end, mut read) = (part.start, part.start + part.bytes, Vec::new());
                while from < end {
                    let length = COMPARED_AT_ONCE.min(end - from);
                    let range = Range { offset: from, length };
                    let ask = Read {
                        device: part.device,
                        chunk: part.chunk,
                        ranges: vec![range],
                        cells: true,
                        ..Read::default()
                    };
                    let asked = scene.insist("finale", "read_copy", || link.call(&ask, Payload::empty())).await?;
                    let (answer, payload) = asked.map_err(|error| {
                        Broken(format!(
                            "{path}: a copy of bytes {} and on cannot be read from device {device:032x}: {error}",
                            extent.offset
                        ))
                    })?;
                    read.push((answer.cells, payload.into_bytes()));
                    from += length;
                }
                if *first.entry(part.column).or_insert_with(|| read.clone()) != read {
                    let text = format!(
                        "{path}: copies of bytes {} and on are not the same in column {}",
                        extent.offset, part.column
                    );
                    return Err(Broken(text));
                }
                scene.count("copies compared");
            }
        }
        match extents.last().filter(|_| more) {
            Some(last) => at = last.offset.saturating_add(last.length).max(at.saturating_add(1)),
            None => return Ok(()),
        }
    }
}

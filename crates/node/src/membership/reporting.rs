//! Reports of a node to the one that keeps the metadata, and what their answers make it do.

use super::Membership;
use crate::device::{Device, Item};
use crate::device_paths::left_out;
use crate::log::{Level, Log};
use crate::node::{Node, Role};
use base::error::{ErrorKind, Result};
use base::id::DeviceId;
use base::limit::{REPORT_EVERY, SESSIONS_ASKED_MAX};
use base::watched::Stopped;
use net::message::cluster as wire;
use std::sync::Arc;

/// Reports until the node stops.
pub async fn run(node: Arc<Node>, membership: Arc<Membership>, itself: wire::Node, stopped: Stopped) {
    while !stopped.is_over() {
        let reported = tokio::select! {
            biased;
            () = stopped.until() => return,
            reported = report(&node, &membership, &itself) => reported,
        };
        let again = matches!(reported, Ok(true));
        say_what_changed(&membership, &node.log, reported.map(drop));
        if again {
            continue;
        }
        tokio::select! {
            biased;
            () = stopped.until() => return,
            () = membership.due.notified() => (),
            () = tokio::time::sleep(REPORT_EVERY) => (),
        }
    }
}

/// Whether the answer told of something for which the node that keeps the metadata waits to hear that it is known here.
async fn report(node: &Node, membership: &Membership, itself: &wire::Node) -> Result<bool> {
    let epoch = membership.state().view.as_ref().map_or(0, |view| view.epoch);
    let remembered = node.remembered_sessions().await;
    let keeping = match &node.role {
        Role::Several(several) => several.keeps_badly().join("; "),
        _ => String::new(),
    };
    let ask = wire::Report { node: itself.clone(), devices: node.own_devices(), epoch, remembered, keeping };
    let sent = membership.clock.now();
    let answer = membership.ask(&ask).await?;
    membership.counts(&answer)?;
    // Before anybody may write: a device that is to be emptied takes nothing new.
    let mut begins = false;
    for device in &answer.draining {
        if let Some(device) = node.devices.get(&DeviceId(device.value())) {
            begins |= !device.is_draining();
            device.begin_draining(node.clock.wall());
        }
    }
    for device in &answer.removed {
        if let Some(device) = node.devices.get(&DeviceId(device.value())) {
            leave_out(node, device);
        }
    }
    membership.told(sent, &answer);
    node.sessions_over(&answer.over);
    Ok(begins)
}

/// The device is none of the store's any more: nothing new goes there. If it was removed before this start, that is said, once.
fn leave_out(node: &Node, device: &Device) {
    if !device.is_draining() {
        let why = left_out(&device.place, device.id, device.usage().chunks);
        node.log.say(Level::Warn, "device", &why, &[("place", &device.place), ("device", &device.id)]);
    }
    device.begin_draining(node.clock.wall());
    device.drained(|draining| draining.over = true);
}

/// Says in the log, once, when the node begins to wait for the keeper or is its member (again).
fn say_what_changed(membership: &Membership, log: &Log, reported: Result<()>) {
    let mut state = membership.state();
    let Err(error) = reported else {
        let joined = std::mem::replace(&mut state.said_waiting, false);
        drop(state);
        if joined {
            log.say(Level::Info, "cluster", "a member of the cluster", &[("keeper", &membership.keepers.shown())]);
        }
        return;
    };
    // A leader that has no room for changes now, or whose disk failed, refuses no node: another one leads soon, or it goes on.
    let passes = matches!(error.kind(), ErrorKind::Busy | ErrorKind::Full | ErrorKind::Io);
    let silence = error.kind() == ErrorKind::Unreachable || membership.is_of_several() && passes;
    let does = match (error.kind(), silence) {
        (ErrorKind::Unreachable, _) => "does not answer",
        (_, true) => "cannot take its report now",
        (_, false) => "refuses this one",
    };
    let waits = format!("{}, {does}: {}", membership.keepers.shown(), error.text());
    if !silence {
        state.joined = false;
        membership.sessions().refused = true;
    }
    let same = state.waits.as_deref() == Some(&waits) && state.said_waiting;
    state.said_waiting = true;
    state.waits = Some(waits.clone());
    drop(state);
    if !same {
        log.say(Level::Warn, "cluster", &format!("{waits}; it waits and goes on by itself"), &[]);
    }
}

impl Node {
    /// Sessions, by their marks, of which devices here remember what they may ask again; at most `SESSIONS_ASKED_MAX`.
    pub async fn remembered_sessions(&self) -> Vec<u64> {
        let mut found = Vec::new();
        let share = sessions_of_each(self);
        for device in self.devices.values() {
            // One that is not served any more remembers nothing.
            found.extend(device.sessions(share).await.unwrap_or_default());
        }
        found.sort_unstable();
        found.dedup();
        found.truncate(SESSIONS_ASKED_MAX);
        found
    }

    /// These sessions are over: devices here forget what was remembered of them.
    pub fn sessions_over(&self, over: &[u64]) {
        if !over.is_empty() {
            self.devices.values().for_each(|device| device.send(Item::SessionsOver(over.to_vec())));
        }
    }
}

/// Sessions that each device of a node names at once.
pub fn sessions_of_each(node: &Node) -> usize {
    (SESSIONS_ASKED_MAX / node.devices.len().max(1)).max(1)
}

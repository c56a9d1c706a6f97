//! `stormwell node`: the nodes of the cluster, one by one.

use crate::context::Context;
use crate::emptied::{Emptied, Part};
use crate::exit::{Exit, Result, say};
use crate::output::Output;
use crate::progress::Progress;
use crate::show;
use base::error::{Error, ErrorKind};
use clap::{Args, Subcommand};
use client::{Client, ClusterMember, Device, Host, ViewAnswer};
use serde_json::json;
use std::time::Duration;

/// Shows the nodes of a cluster, empties one, removes one
#[derive(Debug, Args)]
pub struct Node {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Ls(Ls),
    Drain(Drain),
    Rm(Rm),
}

/// Lists the nodes: name, state, devices, used, size, address, HDFS address, site and rack
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stormwell node ls

States: `keeper` keeps the metadata; `leader` does, too, and leads the other keepers; `serving`; `draining` while its devices are being emptied, with how far that is below it; `no devices` if all were emptied or it was started
without any: it keeps no bytes, and may be removed; `silent` if it has not reported for some
seconds: its devices get nothing new, and what is on them and nowhere else cannot be read until it is back. Nothing is deleted for silence.")]
struct Ls {}

/// Empties all devices of a node, which may then be removed
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stormwell node drain c

Reads, writes, pushes and pulls go on. Nothing new is placed on the node's devices from the moment on that this command is answered.
Progress and time left are shown meanwhile. Interrupted, the command leaves the drain going on: running it again follows it.")]
struct Drain {
    /// The node's name, or the first digits of its id
    #[arg(value_name = "NODE")]
    node: String,
}

/// Takes a node without devices out of the cluster
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stormwell node rm c

The node must have been emptied with `stormwell node drain`, and stopped: one that runs joins again.")]
struct Rm {
    /// The node's name, or the first digits of its id
    #[arg(value_name = "NODE")]
    node: String,
}

impl Node {
    /// Does what was asked for.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        match self.what {
            What::Ls(Ls {}) => list(context).await,
            What::Drain(drain) => drain.run(context).await,
            What::Rm(rm) => rm.run(context).await,
        }
    }
}

async fn list(context: &Context) -> Result<Exit> {
    let client = context.connect("node ls").await?;
    let mut view = client.view().await?;
    view.members.sort_by(|one, other| one.node.name.cmp(&other.node.name));
    let devices = client.devices_and_hosts().await?;
    let mut output = Output::open()?;
    if !context.json {
        output.line(&row(["name", "state", "devices", "used", "size"], "address"))?;
    }
    for member in &view.members {
        let its = of(member, &devices);
        let sum = |part: fn(&Device) -> u64| its.iter().map(|device| part(device)).fold(0, u64::saturating_add);
        let (used, size) = (sum(|device| device.used), sum(|device| device.capacity));
        let node = &member.node;
        let state = state(&view, member, &its);
        let part = Part::of(&its, context.clock.wall());
        if context.json {
            output.json(&json!({
                "node": format!("{:032x}", node.node.value()),
                "name": node.name,
                "state": state,
                "keeps_metadata": keeps(&view, member),
                "address": node.address,
                "hdfs": node.hdfs,
                "site": node.site,
                "rack": node.rack,
                "devices": its.len(),
                "used": used,
                "size": size,
                "drain": part.as_ref().map(Part::object),
            }))?;
            continue;
        }
        let mut place = node.address.clone();
        if !node.hdfs.is_empty() {
            place.push_str(&format!("  hdfs://{}", node.hdfs));
        }
        if !node.site.is_empty() || !node.rack.is_empty() {
            place.push_str(&format!("  {}/{}", node.site, node.rack));
        }
        let (count, used, size) = (its.len().to_string(), show::size(used, true), show::size(size, true));
        let line = output.name(&row([&node.name, state, &count, &used, &size], &place));
        output.line(&line)?;
        for line in part.iter().flat_map(Part::lines) {
            let line = output.name(&format!("  {line}"));
            output.line(&line)?;
        }
    }
    output.flush()?;
    Ok(Exit::Done)
}

fn row([name, state, devices, used, size]: [&str; 5], address: &str) -> String {
    format!("{name:<16} {state:<10} {devices:>7} {used:>10} {size:>10}  {address}")
}

/// The devices of a node.
pub fn of<'a>(member: &ClusterMember, devices: &'a [(Device, Option<Host>)]) -> Vec<&'a Device> {
    let has =
        |(_, host): &&(Device, Option<Host>)| host.as_ref().is_some_and(|host| host.node.0 == member.node.node.value());
    devices.iter().filter(has).map(|(device, _)| device).collect()
}

/// A word for how a node is.
pub fn state(view: &ViewAnswer, member: &ClusterMember, its: &[&Device]) -> &'static str {
    if member.silent {
        return "silent";
    }
    if !its.is_empty() && its.iter().all(|device| device.drain.is_some()) {
        return "draining";
    }
    let leads = !view.keepers.is_empty() && member.node.node == view.keeper;
    match (keeps(view, member), its.is_empty()) {
        (true, _) if leads => "leader",
        (true, _) => "keeper",
        (false, true) => "no devices",
        (false, false) => "serving",
    }
}

/// Whether a node keeps the metadata, alone or with others.
pub fn keeps(view: &ViewAnswer, member: &ClusterMember) -> bool {
    member.node.node == view.keeper || view.keepers.contains(&member.node.node)
}

/// Fewer digits of an id name nothing.
const ID_DIGITS_MIN: usize = 4;

/// The node that a person means.
pub async fn named(client: &Client, name: &str) -> Result<ClusterMember> {
    let view = client.view().await?;
    let by_name = |member: &&ClusterMember| member.node.name == name;
    let by_id = |member: &&ClusterMember| {
        name.len() >= ID_DIGITS_MIN && format!("{:032x}", member.node.node.value()).starts_with(name)
    };
    let mut found: Vec<&ClusterMember> = view.members.iter().filter(by_name).collect();
    if found.is_empty() {
        found = view.members.iter().filter(by_id).collect();
    }
    match found[..] {
        [member] => Ok(member.clone()),
        [] => {
            let text =
                format!("the cluster has no node '{name}'; nothing was done; `stormwell node ls` shows those it has");
            Err(Error::new(ErrorKind::NotFound, text).into())
        }
        _ => {
            let text = format!("more than one node's id begins with '{name}'; nothing was done; give more digits");
            Err(Error::new(ErrorKind::Invalid, text).into())
        }
    }
}

/// Between two looks at how far the nodes are.
const LOOK_EVERY: Duration = Duration::from_millis(200);

impl Drain {
    async fn run(self, context: &Context) -> Result<Exit> {
        let client = context.connect("node drain").await?;
        let member = named(&client, &self.node).await?;
        let name = &member.node.name;
        client.drain_node(member.node.node).await.map_err(|error| error.during(format!("node drain {name}")))?;
        let mut told = String::new();
        let mut emptied = Emptied::default();
        let (progress, ticker) = Progress::start(context, "drain", "chunk");
        loop {
            let all = client.devices_and_hosts().await?;
            let left = of(&member, &all);
            emptied.look(&left, &progress);
            if left.is_empty() {
                break;
            }
            let waits = left.iter().filter_map(|device| device.drain.as_ref()).map(|drain| drain.waits.as_str());
            let waits = waits.filter(|waits| !waits.is_empty()).collect::<Vec<_>>().join("; ");
            if waits != told && !waits.is_empty() && !context.quiet {
                say(&format!("drain: waits for {waits}"));
            }
            told = waits;
            tokio::time::sleep(LOOK_EVERY).await;
        }
        drop(ticker);
        progress.summary();
        let devices = emptied.count();
        let mut output = Output::open()?;
        if context.json {
            output.json(&json!({ "name": name, "drained": true, "devices": devices }))?;
        } else {
            let line = output.name(&format!(
                "{name} is empty; stop it, then take it out of the cluster with `stormwell node rm {name}`"
            ));
            output.line(&line)?;
        }
        output.flush()?;
        Ok(Exit::Done)
    }
}

impl Rm {
    async fn run(self, context: &Context) -> Result<Exit> {
        let client = context.connect("node rm").await?;
        let member = named(&client, &self.node).await?;
        let name = &member.node.name;
        client.remove_node(member.node.node).await.map_err(|error| error.during(format!("node rm {name}")))?;
        let mut output = Output::open()?;
        if context.json {
            output.json(&json!({ "name": name, "removed": true }))?;
        } else {
            let line = output.name(&format!("{name} is removed from the cluster"));
            output.line(&line)?;
        }
        output.flush()?;
        Ok(Exit::Done)
    }
}

//! `stormwell cluster`: the cluster as a whole.

use crate::context::Context;
use crate::device::away;
use crate::emptied::Part;
use crate::exit::{Exit, Result};
use crate::node::{keeps, of, state};
use crate::output::Output;
use crate::show;
use base::limit::REPLICAS_OF_CLUSTERS;
use base::unit::{WallTime, show_bytes};
use clap::{Args, Subcommand};
use client::{ClusterMember, Device, Host, Lacks, ViewAnswer};
use serde_json::json;

/// Shows how the cluster is
#[derive(Debug, Args)]
pub struct Cluster {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Status(Status),
}

/// Tells how many nodes and devices there are, how full they are, and what is not as it should be
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stormwell cluster status

Any node answers, for all. `epoch` rises whenever a node or a device joins, leaves or comes back elsewhere.")]
struct Status {}

impl Cluster {
    /// Does what was asked for.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let What::Status(Status {}) = self.what;
        let client = context.connect("cluster status").await?;
        let view = client.view().await?;
        let devices = client.devices_and_hosts().await?;
        let now = context.clock.wall();
        let lacks = client.devices().await?.lacks.unwrap_or_default();
        let mut troubles = troubles(&view, &devices, now);
        troubles.extend(lacking(&lacks));
        troubles.extend((!lacks.withheld.is_empty()).then(|| lacks.withheld.clone()));
        let sum =
            |part: fn(&Device) -> u64| devices.iter().map(|(device, _)| part(device)).fold(0, u64::saturating_add);
        let (used, size) = (sum(|device| device.used), sum(|device| device.capacity));
        let wanted = client.get_policy("/").await?.1.replicas.unwrap_or(1);
        let keeper = view.members.iter().find(|member| member.node.node == view.keeper);
        let keeper = keeper.map(|member| member.node.name.clone()).unwrap_or_default();
        let keepers = view.members.iter().filter(|member| keeps(&view, member));
        let keepers: Vec<&str> = keepers.map(|member| member.node.name.as_str()).collect();
        let mut output = Output::open()?;
        if context.json {
            let nodes = view.members.iter().map(|member| {
                let its = of(member, &devices);
                let drain = Part::of(&its, now).as_ref().map(Part::object);
                json!({ "name": member.node.name, "state": state(&view, member, &its), "drain": drain })
            });
            output.json(&json!({
                "epoch": view.epoch,
                "keeper": keeper,
                "keepers": keepers,
                "term": view.term,
                "nodes": nodes.collect::<Vec<_>>(),
                "devices": devices.len(),
                "used": used,
                "size": size,
                "copies": {
                    "wanted": wanted,
                    "one_left": { "groups": lacks.one_left, "bytes": lacks.one_left_bytes },
                    "fewer": { "groups": lacks.fewer, "bytes": lacks.fewer_bytes },
                    "none_left": { "groups": lacks.none_left, "bytes": lacks.none_left_bytes },
                    "looked_through": !lacks.recounting,
                    "made": lacks.made,
                    "copied_bytes": lacks.copied_bytes,
                    "waits": lacks.waits,
                    "withheld": lacks.withheld,
                },
                "troubles": troubles,
            }))?;
        } else {
            let line = output.name(&format!(
                "{} with {}, {} of {} used; {}; epoch {}",
                show::count(view.members.len() as u64, "node", "nodes"),
                show::count(devices.len() as u64, "device", "devices"),
                show::size(used, true),
                show::size(size, true),
                who_keeps(&keeper, &keepers, &view),
                view.epoch
            ));
            output.line(&line)?;
            for trouble in &troubles {
                let line = output.name(trouble);
                output.line(&line)?;
            }
            if troubles.is_empty() {
                output.line("all of them serve")?;
            }
            if let Some(advice) = advice(&view, wanted) {
                output.line(&advice)?;
            }
        }
        output.flush()?;
        Ok(Exit::Done)
    }
}

/// Who keeps the metadata, for people.
fn who_keeps(leader: &str, keepers: &[&str], view: &ViewAnswer) -> String {
    if view.keepers.is_empty() {
        return format!("{leader} keeps the metadata");
    }
    format!("{} keep the metadata, {leader} leads them in term {}", keepers.join(", "), view.term)
}

/// What nodes say that are to keep the metadata and do not.
fn keepers_in_trouble(view: &ViewAnswer) -> impl Iterator<Item = String> {
    let troubled = view.members.iter().filter(|member| !member.silent && !member.keeping.is_empty());
    troubled.map(|member| format!("node {} keeps no metadata now: {}", member.node.name, member.keeping))
}

/// What it means that keepers are away.
fn keepers_away(view: &ViewAnswer) -> Option<String> {
    let is_away = |member: &ClusterMember| member.silent || !member.keeping.is_empty();
    let away = |member: &&ClusterMember| is_away(member) && view.keepers.contains(&member.node.node);
    let (away, all) = (view.members.iter().filter(away).count(), view.keepers.len());
    if away == 0 {
        return None;
    }
    let spare = (all.saturating_sub(1) / 2).saturating_sub(away);
    let then = match spare {
        0 => "names stand still if one more goes away; nothing that was acknowledged is lost".to_string(),
        spare => format!("{spare} more may go away before names stand still"),
    };
    Some(format!("{away} of {all} nodes that keep the metadata are silent or keep nothing now: {then}"))
}

/// What a store of several nodes could be spared: its files have one copy unless somebody says otherwise.
fn advice(view: &ViewAnswer, wanted: u32) -> Option<String> {
    let nodes = view.members.iter().filter(|member| !member.devices.is_empty()).count();
    let copies = nodes.min(REPLICAS_OF_CLUSTERS as usize);
    (wanted < 2 && copies > 1).then(|| {
        format!("files have one copy, which is lost with its disk: `stormwell policy set / --replicas {copies}` has new ones outlive that")
    })
}

/// What is not as it should be, one sentence each.
fn troubles(view: &ViewAnswer, devices: &[(Device, Option<Host>)], now: WallTime) -> Vec<String> {
    let silent = view.members.iter().filter(|member| member.silent).map(|member| {
        let (name, at) = (&member.node.name, &member.node.address);
        let devices = show::count(member.devices.len() as u64, "device", "devices");
        match member.devices.len() {
            0 => format!("node {name} at {at} is silent; nothing is on it; look whether it runs"),
            _ => format!(
                "node {name} at {at} is silent: what is on its {devices} and nowhere else cannot be read until it is back; look whether it runs"
            ),
        }
    });
    let troubled = devices.iter().filter(|(device, _)| !device.trouble.is_empty()).map(|(device, host)| {
        let at = host.as_ref().map_or(String::new(), |host| format!(" on node {}", host.name));
        let away = away(device).map_or(String::new(), |away| format!(" ({away})"));
        format!("device {}{at}{away}: {}", device.place, device.trouble)
    });
    let draining = devices.iter().filter_map(|(device, host)| {
        let at = host.as_ref().map_or(String::new(), |host| format!(" on node {}", host.name));
        let far = Part::of(&[device], now)?.lines().join("; ");
        Some(format!("device {}{at} is being emptied: {far}", device.place))
    });
    silent.chain(keepers_in_trouble(view)).chain(keepers_away(view)).chain(troubled).chain(draining).collect()
}

/// What has fewer copies than it shall have, the worst first.
fn lacking(lacks: &Lacks) -> Vec<String> {
    let of = |groups: u64, bytes: u64| format!("{} with {}", show::count(groups, "group", "groups"), show_bytes(bytes));
    let mut told = Vec::new();
    if lacks.none_left > 0 {
        told.push(format!(
            "{} have no copy left that counts: those bytes are lost unless a device that was given up answers again; `stormwell explain` \
             tells of which file is where",
            of(lacks.none_left, lacks.none_left_bytes)
        ));
    }
    if lacks.one_left > 0 {
        told.push(format!(
            "{} have one copy left of those that they shall have: bytes are lost if its disk fails now",
            of(lacks.one_left, lacks.one_left_bytes)
        ));
    }
    if lacks.fewer > 0 {
        told.push(format!(
            "{} have fewer copies than they shall have, and more than one",
            of(lacks.fewer, lacks.fewer_bytes)
        ));
    }
    if lacks.recounting {
        told.push("what was on a device that was given up is being looked through: more may lack copies".to_string());
    }
    if !told.is_empty() {
        let waits = if lacks.waits.is_empty() { String::new() } else { format!("; some wait for {}", lacks.waits) };
        told.push(format!(
            "copies are being made: {} since the leader leads, {} copied{waits}",
            lacks.made,
            show_bytes(lacks.copied_bytes)
        ));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::{advice, keepers_away, keepers_in_trouble, lacking, troubles};
    use base::unit::WallTime;
    use client::{ClusterMember, ClusterNode, Device, Host, Lacks, ViewAnswer};

    /// Silent nodes and devices in trouble are named with where they are; what serves is not.
    /// Who has one node has nowhere to put a second copy, and who has said how many there shall be needs no advice.
    #[test]
    fn copies_are_advised() {
        let of = |nodes: usize| ViewAnswer {
            members: (0..nodes)
                .map(|_| ClusterMember { devices: vec![1.into()], ..ClusterMember::default() })
                .chain([ClusterMember::default()])
                .collect(),
            ..ViewAnswer::default()
        };
        assert_eq!(
            [(1, 1), (2, 2), (3, 3), (9, 2)].map(|(nodes, wanted)| advice(&of(nodes), wanted)),
            [const { None }; 4]
        );
        for (nodes, copies) in [(2, "--replicas 2`"), (3, "--replicas 3`"), (9, "--replicas 3`")] {
            assert!(advice(&of(nodes), 1).is_some_and(|advice| advice.contains(copies)), "{nodes}");
        }
    }

    #[test]
    fn what_is_wrong() {
        let node = |name: &str, id: u128| ClusterNode {
            node: id.into(),
            name: name.to_string(),
            address: format!("{name}:7400"),
            ..ClusterNode::default()
        };
        let member = |name, id, silent| {
            let keeping = String::new();
            ClusterMember { node: node(name, id), devices: vec![id.into()], silent, keeping }
        };
        let view = ViewAnswer {
            epoch: 3,
            keeper: 1.into(),
            members: vec![member("a", 1, false), member("b", 2, true)],
            ..ViewAnswer::default()
        };
        let host = |name: &str| Host {
            node: base::id::NodeId(1),
            name: name.to_string(),
            rack: String::new(),
            hdfs: String::new(),
            silent: false,
            incarnation: 1,
        };
        let broken = Device { place: "/d".to_string(), trouble: "missing: x".to_string(), ..Device::default() };
        let told = troubles(&view, &[(Device::default(), Some(host("a"))), (broken, Some(host("b")))], WallTime(0));
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("node b at b:7400 is silent") && told[0].contains("1 device"), "{told:?}");
        assert_eq!(told[1], "device /d on node b: missing: x");
    }

    /// What lacks copies is told with the worst first, and nothing if nothing does.
    #[test]
    fn what_lacks_copies() {
        assert_eq!(lacking(&Lacks::default()), Vec::<String>::new());
        let lacks = Lacks {
            none_left: 1,
            one_left: 2,
            one_left_bytes: 1 << 20,
            fewer: 3,
            waits: "x".into(),
            ..Lacks::default()
        };
        let told = lacking(&lacks);
        assert!(told[0].contains("1 group with") && told[0].contains("are lost"), "{told:?}");
        assert!(
            told[1].contains("2 groups with 1.0 MiB") && told[2].contains("3 groups") && told[3].contains("wait for x"),
            "{told:?}"
        );
    }

    /// Of several keepers it is said how many may still go.
    #[test]
    fn keepers_that_are_silent() {
        let member = |id: u128, silent| {
            let node = ClusterNode { node: id.into(), ..ClusterNode::default() };
            ClusterMember { node, devices: Vec::new(), silent, keeping: String::new() }
        };
        let view = |count: u128, silent: u128| ViewAnswer {
            keepers: (0..count).map(Into::into).collect(),
            members: (0..count + 1).map(|id| member(id, id < silent || id == count)).collect(),
            ..ViewAnswer::default()
        };
        assert_eq!(keepers_away(&view(3, 0)), None, "a silent node that keeps nothing is no keeper's matter");
        let told = keepers_away(&view(3, 1)).expect("one is silent");
        assert!(told.starts_with("1 of 3 nodes") && told.contains("if one more goes away"), "{told}");
        let told = keepers_away(&view(5, 1)).expect("one is silent");
        assert!(told.contains("1 more may go away"), "{told}");
        let mut lost = view(3, 0);
        lost.members[2].keeping = "its metadata were lost".to_string();
        let told = keepers_away(&lost).expect("one keeps nothing");
        assert!(told.starts_with("1 of 3 nodes") && told.contains("if one more goes away"), "{told}");
        let told: Vec<String> = keepers_in_trouble(&lost).collect();
        assert!(told.len() == 1 && told[0].ends_with("its metadata were lost"), "{told:?}");
    }
}

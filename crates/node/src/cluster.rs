//! The nodes of the cluster, as the one that keeps the metadata knows them.

use crate::identity::Identity;
use crate::service::Node;
use crate::settings::{Cluster, Settings};
use base::error::Result;
use meta::request::{NodeInfo, NodeState};
use net::message::cluster as wire;

/// What a node tells of itself.
pub fn itself(settings: &Settings, identity: &Identity, address: &str, hdfs: Option<&str>) -> NodeInfo {
    let cluster = settings.cluster.as_ref();
    let said = |value: fn(&Cluster) -> &str| cluster.map(value).unwrap_or_default().to_string();
    let id = identity.node.to_string();
    let name = Some(said(|cluster| &cluster.name)).filter(|name| !name.is_empty());
    let advertised = cluster.and_then(|cluster| cluster.advertise.clone());
    NodeInfo {
        node: identity.node,
        incarnation: identity.incarnation,
        name: name.unwrap_or_else(|| id[..8].to_string()),
        address: advertised.unwrap_or_else(|| address.to_string()),
        site: said(|cluster| &cluster.site),
        rack: said(|cluster| &cluster.rack),
        hdfs: hdfs.unwrap_or_default().to_string(),
    }
}

impl Node {
    /// Who is there.
    pub async fn view(&self) -> Result<wire::ViewAnswer> {
        let meta::Reply::Nodes { epoch, nodes } = self.metadata.ask(meta::Request::NodeList).await? else {
            unreachable!("nodes were asked for")
        };
        let members = nodes.into_iter().map(wire_member).collect();
        Ok(wire::ViewAnswer { epoch, keeper: self.id.0.into(), members })
    }
}

fn wire_member(state: NodeState) -> wire::Member {
    let NodeState { info, devices, silent } = state;
    let devices = devices.into_iter().map(|device| device.0.into()).collect();
    wire::Member { node: wire_node(info), devices, silent }
}

fn wire_node(info: NodeInfo) -> wire::Node {
    let NodeInfo { node, incarnation, name, address, site, rack, hdfs } = info;
    wire::Node { node: node.0.into(), incarnation, name, address, site, rack, hdfs }
}

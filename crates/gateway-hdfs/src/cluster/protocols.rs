//! The protocols beside ClientProtocol that administrators' commands speak.

use super::{encoded, superuser};
use crate::caller::Caller;
use crate::gateway::{Gateway, POOL};
use crate::message::decode;
use crate::message::status::{
    DatanodeInfoAnswer, DatanodeLocalInfo, GroupsAnswer, Name, NamespaceInfo, Number, STATE_ACTIVE, ServiceStatus,
    StorageInfo, VersionAnswer,
};
use crate::refusal::{ILLEGAL_ARGUMENT, Refusal};
use bytes::Bytes;

const NAMENODE: &str = "org.apache.hadoop.hdfs.server.protocol.NamenodeProtocol";
const REFRESH_USERS: &str = "org.apache.hadoop.security.RefreshUserMappingsProtocol";
const GROUPS: &str = "org.apache.hadoop.tools.GetUserMappingsProtocol";
const HIGH_AVAILABILITY: &str = "org.apache.hadoop.ha.HAServiceProtocol";
const REFRESH_QUEUE: &str = "org.apache.hadoop.ipc.RefreshCallQueueProtocol";
const REFRESH: &str = "org.apache.hadoop.ipc.GenericRefreshProtocol";

/// The release of HDFS whose protocols these are.
const SOFTWARE: &str = "3.4.3";
/// The layout of that release's namespace, as the 32 bits of a negative number.
const LAYOUT: u32 = (-67_i32) as u32;

/// Whether calls of this protocol are served by `other`.
pub fn serves(protocol: &str) -> bool {
    [NAMENODE, REFRESH_USERS, GROUPS, HIGH_AVAILABILITY, REFRESH_QUEUE, REFRESH].contains(&protocol)
}

/// Does a call of such a protocol: the encoded answer. `None`: it has no such method.
pub fn other(
    gateway: &Gateway,
    caller: &Caller,
    protocol: &str,
    method: &str,
    request: Bytes,
) -> Option<Result<Vec<u8>, Refusal>> {
    Some(match (protocol, method) {
        (NAMENODE, "versionRequest") => superuser(caller).map(|()| encoded(&version())),
        (NAMENODE, "isUpgradeFinalized") => superuser(caller).map(|()| encoded(&Number { value: 1 })),
        (NAMENODE, "isRollingUpgrade") => superuser(caller).map(|()| encoded(&Number { value: 0 })),
        (REFRESH_USERS, "refreshUserToGroupsMappings" | "refreshSuperUserGroupsConfiguration")
        | (REFRESH_QUEUE, "refreshCallQueue") => superuser(caller).map(|()| Vec::new()),
        (GROUPS, "getGroupsForUser") => decode::<Name>(request).map(|ask| {
            let groups = (gateway.groups_of)(&ask.name.unwrap_or_default());
            encoded(&GroupsAnswer { groups })
        }),
        (HIGH_AVAILABILITY, "getServiceStatus") => {
            Ok(encoded(&ServiceStatus { state: STATE_ACTIVE, ready: Some(true) }))
        }
        (HIGH_AVAILABILITY, "monitorHealth") => Ok(Vec::new()),
        (HIGH_AVAILABILITY, "transitionToActive" | "transitionToStandby" | "transitionToObserver") => {
            Err(Refusal::unsupported("Stormwell's gateways are all active; nothing was changed"))
        }
        (REFRESH, "refresh") => decode::<Name>(request).and_then(|ask| {
            let text = format!("Identifier '{}' does not exist in RefreshRegistry", ask.name.unwrap_or_default());
            Err(Refusal::new(ILLEGAL_ARGUMENT, text))
        }),
        _ => return None,
    })
}

/// Does a call of ClientDatanodeProtocol about the server itself. `None`: it is none.
pub fn datanode(gateway: &Gateway, method: &str) -> Option<Result<Vec<u8>, Refusal>> {
    Some(match method {
        "getDatanodeInfo" => {
            let uptime = gateway.clock.now().since(gateway.started).as_secs();
            let (software, configuration) = (SOFTWARE.to_string(), String::new());
            Ok(encoded(&DatanodeInfoAnswer { info: DatanodeLocalInfo { software, configuration, uptime } }))
        }
        // Without bound: nothing is balanced here.
        "getBalancerBandwidth" => Ok(encoded(&Number { value: i64::MAX as u64 })),
        _ => return None,
    })
}

fn version() -> VersionAnswer {
    let storage = StorageInfo { layout: LAYOUT, namespace: 1, cluster: "stormwell".to_string(), created: 0 };
    let (build, software) = (env!("CARGO_PKG_VERSION").to_string(), SOFTWARE.to_string());
    VersionAnswer { info: NamespaceInfo { build, unused: 0, pool: POOL.to_string(), storage, software } }
}

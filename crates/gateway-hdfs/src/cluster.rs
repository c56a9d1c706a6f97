//! Calls about the store as a whole: how full it is, who serves it, its safe mode, and questions of HDFS that have one answer
//! here.

mod protocols;
pub(crate) mod state;

use crate::caller::Caller;
use crate::gateway::{BLOCK_SIZE, Gateway, REPLICATION};
use crate::message::hdfs::{DatanodeId, DatanodeInfo, STORAGE_DISK};
use crate::message::status::{
    CHECKSUM_CRC32C, CorruptFiles, CorruptFilesAnswer, DatanodeReport, DatanodeReportAnswer, DatanodeStorages,
    EndOfList, Number, REPORT_ALL, REPORT_DEAD, REPORT_LIVE, ReplicatedBlockStats, SAFE_MODE_ENTER,
    SAFE_MODE_FORCE_EXIT, SAFE_MODE_GET, SAFE_MODE_LEAVE, STATE_ACTIVE, SafeMode, ServerDefaults, ServerDefaultsAnswer,
    Storage, StorageReport, StorageReportAnswer, StoreStats, StripedBlockStats, Topology, TopologyAnswer, YesOrNo,
};
use crate::names;
use crate::refusal::{ACCESS_CONTROL, ILLEGAL_ARGUMENT, Refusal, SAFE_MODE};
use base::id::NodeId;
use client::Host;
use prost::Message;
use std::sync::atomic::Ordering;

pub use protocols::{datanode, other, serves};

/// Bytes that one checksum covers.
const BYTES_PER_CHECKSUM: u32 = 512;
/// Bytes in a packet of data, headers included.
const PACKET_SIZE: u32 = 64 << 10;
/// Bytes that a file's buffer holds.
const FILE_BUFFER_SIZE: u32 = 4096;

/// Why a change is refused now; nothing unless safe mode is on.
pub fn refused_in_safe_mode(gateway: &Gateway, method: &str) -> Option<Refusal> {
    let refused = gateway.cluster.safe_mode.load(Ordering::Relaxed);
    refused.then(|| {
        let text = format!(
            "Cannot {method}. Name node is in safe mode.\nIt was turned on manually. Use \"hdfs dfsadmin -safemode leave\" \
             to turn safe mode off."
        );
        Refusal::new(SAFE_MODE, text)
    })
}

/// Refuses what the store has not.
pub fn unsupported(method: &str) -> Refusal {
    Refusal::unsupported(format!("{method} is not supported by Stormwell; nothing was changed"))
}

/// The answer to what may hold something, and here never does, and to `msync`, to which there is nothing to say.
pub async fn nothing(_: &Gateway, _: &Caller, (): ()) -> Result<(), Refusal> {
    Ok(())
}

/// The same for those who may do everything; what these see to is always so here.
pub async fn nothing_to_do(caller: &Caller, method: &str) -> Result<(), Refusal> {
    superuser_for(caller, method)
}

/// The same, said as yes.
pub async fn always(caller: &Caller, method: &str) -> Result<YesOrNo, Refusal> {
    superuser_for(caller, method).map(|()| YesOrNo { yes: true })
}

/// No storage is failed that could be taken again.
pub async fn restore_failed_storage(_: &Gateway, caller: &Caller, (): ()) -> Result<YesOrNo, Refusal> {
    superuser(caller).map(|()| YesOrNo { yes: false })
}

/// There are no edits.
pub async fn edits(_: &Gateway, caller: &Caller, (): ()) -> Result<Number, Refusal> {
    superuser(caller).map(|()| Number { value: 0 })
}

/// So none are rolled.
pub async fn roll_edits(_: &Gateway, caller: &Caller, (): ()) -> Result<Number, Refusal> {
    superuser_for(caller, "rollEditLog").map(|()| Number { value: 0 })
}

/// Every gateway serves.
pub async fn state(_: &Gateway, _: &Caller, (): ()) -> Result<Number, Refusal> {
    Ok(Number { value: STATE_ACTIVE })
}

/// The end of a list in which there is nothing.
pub async fn end_of_list(_: &Gateway, _: &Caller, (): ()) -> Result<EndOfList, Refusal> {
    Ok(EndOfList { more: false })
}

/// No block lacks copies.
pub async fn replicated_blocks(_: &Gateway, _: &Caller, (): ()) -> Result<ReplicatedBlockStats, Refusal> {
    Ok(ReplicatedBlockStats { urgent: Some(0), ..ReplicatedBlockStats::default() })
}

/// No block lacks parts.
pub async fn striped_blocks(_: &Gateway, _: &Caller, (): ()) -> Result<StripedBlockStats, Refusal> {
    Ok(StripedBlockStats { urgent: Some(0), ..StripedBlockStats::default() })
}

/// No file is known to be damaged.
pub async fn corrupt_files(_: &Gateway, _: &Caller, (): ()) -> Result<CorruptFilesAnswer, Refusal> {
    Ok(CorruptFilesAnswer { files: CorruptFiles::default() })
}

/// This gateway as a server of blocks. How full it is, is not filled in.
pub fn this_datanode(gateway: &Gateway) -> DatanodeInfo {
    server_at(gateway, &gateway.address, gateway.client.here().unwrap_or_default(), "")
}

/// The gateway of any node as a server of blocks: each serves all of them. None: the node has no gateway.
pub fn datanode_of(gateway: &Gateway, host: &Host) -> Option<DatanodeInfo> {
    if gateway.client.here() == Some(host.node) {
        return Some(server_at(gateway, &gateway.address, host.node, &host.rack));
    }
    (!host.hdfs.is_empty()).then(|| server_at(gateway, &host.hdfs, host.node, &host.rack))
}

fn server_at(gateway: &Gateway, address: &str, node: NodeId, rack: &str) -> DatanodeInfo {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "0"));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = port.parse().unwrap_or(0);
    let id = DatanodeId {
        ip: host.to_string(),
        host: host.to_string(),
        uuid: uuid_of(node),
        transfer_port: port,
        info_port: port,
        ipc_port: port,
    };
    DatanodeInfo {
        id,
        last_update: Some(gateway.clock.wall().0),
        // It has no blocks to report: what it serves is looked up, always as of now.
        last_block_report: Some(gateway.clock.wall().0),
        location: Some(format!("/{}", if rack.is_empty() || rack == "default" { "default-rack" } else { rack })),
        admin_state: Some(0),
        ..DatanodeInfo::default()
    }
}

/// Names a server of blocks for ever, whichever gateway tells of it: its node's id as HDFS writes such names.
fn uuid_of(node: NodeId) -> String {
    let digits = format!("{:032x}", node.0);
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

/// Refuses who may not do everything.
fn superuser(caller: &Caller) -> Result<(), Refusal> {
    if caller.superuser {
        return Ok(());
    }
    let text = format!("Access denied for user {}. Superuser privilege is required", caller.user);
    Err(Refusal::new(ACCESS_CONTROL, text))
}

/// The same where HDFS names the operation.
fn superuser_for(caller: &Caller, operation: &str) -> Result<(), Refusal> {
    if caller.superuser { Ok(()) } else { Err(names::superuser_only(caller, operation)) }
}

fn encoded<M: Message>(message: &M) -> Vec<u8> {
    message.encode_to_vec()
}

/// What a writer does if it knows nothing better.
pub async fn server_defaults(_: &Gateway, _: &Caller, (): ()) -> Result<ServerDefaultsAnswer, Refusal> {
    Ok(ServerDefaultsAnswer {
        defaults: ServerDefaults {
            block_size: BLOCK_SIZE,
            bytes_per_checksum: BYTES_PER_CHECKSUM,
            packet_size: PACKET_SIZE,
            replication: REPLICATION,
            file_buffer_size: FILE_BUFFER_SIZE,
            encrypted: Some(false),
            trash_minutes: Some(0),
            checksum: Some(CHECKSUM_CRC32C),
            key_provider: Some(String::new()),
            storage_policy: Some(0),
        },
    })
}

/// Capacity, use and room of all devices together, in bytes.
async fn fullness(gateway: &Gateway) -> Result<(u64, u64, u64), Refusal> {
    Ok(sums(gateway.client.devices().await?.devices.iter()))
}

fn sums<'a>(devices: impl Iterator<Item = &'a client::Device>) -> (u64, u64, u64) {
    let add = |(capacity, used): (u64, u64), device: &client::Device| {
        (capacity.saturating_add(device.capacity), used.saturating_add(device.used.min(device.capacity)))
    };
    let (capacity, used) = devices.fold((0, 0), add);
    (capacity, used, capacity.saturating_sub(used))
}

/// How full the store is.
pub async fn stats(gateway: &Gateway, _: &Caller, (): ()) -> Result<StoreStats, Refusal> {
    let (capacity, used, remaining) = fullness(gateway).await?;
    Ok(StoreStats { capacity, used, remaining, ..StoreStats::default() })
}

/// The servers of blocks.
pub async fn datanode_report(
    gateway: &Gateway,
    caller: &Caller,
    ask: DatanodeReport,
) -> Result<DatanodeReportAnswer, Refusal> {
    superuser_for(caller, "datanodeReport")?;
    Ok(DatanodeReportAnswer { datanodes: datanodes(gateway, ask).await? })
}

/// The same, with the stores of each.
pub async fn datanode_storage_report(
    gateway: &Gateway,
    caller: &Caller,
    ask: DatanodeReport,
) -> Result<StorageReportAnswer, Refusal> {
    superuser_for(caller, "getDatanodeStorageReport")?;
    Ok(StorageReportAnswer { reports: datanodes(gateway, ask).await?.into_iter().map(with_storage).collect() })
}

async fn datanodes(gateway: &Gateway, report: DatanodeReport) -> Result<Vec<DatanodeInfo>, Refusal> {
    let mut datanodes = Vec::new();
    let devices = gateway.client.devices_and_hosts().await?;
    for host in gateway.client.hosts().await?.all() {
        let wanted = match report.kind {
            REPORT_ALL => true,
            REPORT_LIVE => !host.silent,
            REPORT_DEAD => host.silent,
            _ => false,
        };
        let Some(datanode) = datanode_of(gateway, host).filter(|_| wanted) else { continue };
        let its = devices.iter().filter(|(_, at)| at.as_ref().is_some_and(|at| at.node == host.node));
        let (capacity, used, remaining) = sums(its.map(|(device, _)| device));
        datanodes.push(DatanodeInfo {
            capacity: Some(capacity),
            used: Some(used),
            remaining: Some(remaining),
            pool_used: Some(used),
            ..datanode
        });
    }
    Ok(datanodes)
}

fn with_storage(datanode: DatanodeInfo) -> DatanodeStorages {
    let uuid = datanode.id.uuid.clone();
    let storage = StorageReport {
        uuid: uuid.clone(),
        failed: Some(false),
        capacity: datanode.capacity,
        used: datanode.used,
        remaining: datanode.remaining,
        pool_used: datanode.pool_used,
        storage: Some(Storage { uuid, state: Some(0), storage_type: Some(STORAGE_DISK) }),
    };
    DatanodeStorages { datanode, storages: vec![storage] }
}

/// Safe mode is a wish of an administrator: while it is on, this gateway refuses changes.
pub async fn safe_mode(gateway: &Gateway, caller: &Caller, ask: SafeMode) -> Result<YesOrNo, Refusal> {
    let mode = &gateway.cluster.safe_mode;
    let on = match ask.action {
        SAFE_MODE_GET => mode.load(Ordering::Relaxed),
        SAFE_MODE_ENTER | SAFE_MODE_LEAVE | SAFE_MODE_FORCE_EXIT => {
            let operation = match ask.action {
                SAFE_MODE_ENTER => "safemode_enter",
                SAFE_MODE_LEAVE => "safemode_leave",
                _ => "safemode_force_exit",
            };
            superuser_for(caller, operation)?;
            mode.store(ask.action == SAFE_MODE_ENTER, Ordering::Relaxed);
            ask.action == SAFE_MODE_ENTER
        }
        other => return Err(Refusal::new(ILLEGAL_ARGUMENT, format!("Unexpected safe mode action: {other}"))),
    };
    Ok(YesOrNo { yes: on })
}

/// Erasure codes are labels here: the store decides where parts lie.
pub async fn topology(_: &Gateway, _: &Caller, (): ()) -> Result<TopologyAnswer, Refusal> {
    let text = "Stormwell keeps the names of erasure coding policies and decides itself how bytes are kept".to_string();
    Ok(TopologyAnswer { verdict: Topology { text, supported: true } })
}

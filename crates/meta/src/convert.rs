//! Between records on disk and the types of requests and replies.

use crate::attributes::format::remembered;
use crate::format::{
    BagRecord, CarriedRecord, ColumnRecord, FencedRecord, FileResultRecord, FilesRecord, GroupRecord, HandleRecord,
    InodeRecord, LimitsRecord, PlacedRecord, PolicyRecord, QuotaRecord, ReplicaRecord, ReplyRecord, WalkRecord,
    WriterRecord,
};
use crate::reply::Reply;
use crate::request::{BagInfo, BagState, Carried, FileHandle, KnownGroup, NewGroup, Orphan, Quota};
use crate::state::missing;
use base::error::{Error, ErrorKind, Result};
use base::id::{BagId, ChunkId, DeviceId, Generation, GroupId, InodeId, SessionId};
use base::layout::{Column, Layout};
use base::policy::{Class, Compression, Policy};
use base::unit::WallTime;

/// A policy as it is stored.
pub fn policy_record(policy: Policy) -> PolicyRecord {
    PolicyRecord {
        tier: policy.tier.map(Class::code),
        replicas: policy.replicas,
        least: policy.least,
        compression: policy.compression.map(Compression::code),
    }
}

/// A stored policy. A class or compression that this version does not know counts as no wish.
pub fn policy(record: Option<PolicyRecord>) -> Policy {
    let record = record.unwrap_or_default();
    Policy {
        tier: record.tier.and_then(Class::from_code),
        replicas: record.replicas,
        least: record.least,
        compression: record.compression.and_then(Compression::from_code),
    }
}

/// The columns of a layout as they are stored: each replica with the name of its column's chunk.
pub fn column_records(layout: &Layout) -> Vec<ColumnRecord> {
    let replicas = |column: &Column| {
        let chunk = column.chunk().to_bytes();
        let replica = |device: DeviceId| ReplicaRecord {
            device: device.to_bytes().to_vec(),
            chunk: chunk.to_vec(),
            start: 0,
            doubted: false,
        };
        column.devices().map(replica).collect()
    };
    layout.columns().iter().map(|column| ColumnRecord { replicas: replicas(column) }).collect()
}

/// Where the bytes of a stored group are. `Corrupt` if no group can be like this: the disk that wrote it is not to be believed.
fn layout(group: GroupId, records: &[ColumnRecord], cell: u64) -> Result<Layout> {
    let column = |record: &ColumnRecord| {
        let chunk = &record.replicas.first()?.chunk;
        let devices = record.replicas.iter().map(|replica| {
            // All replicas of a column have one name.
            DeviceId::from_slice(&replica.device).filter(|_| replica.chunk == *chunk)
        });
        let devices: Vec<DeviceId> = devices.collect::<Option<_>>()?;
        Column::new(ChunkId::from_slice(chunk)?, devices.into_iter())
    };
    let columns = records.iter().map(column).collect::<Option<Vec<Column>>>();
    let layout = columns.and_then(|columns| Layout::new(columns, cell));
    layout.ok_or_else(|| missing(&format!("a readable layout of group {group}")))
}

impl GroupRecord {
    /// Whether only a newer program knows what its fields mean.
    pub fn is_newer(&self) -> bool {
        self.kind != 0 || self.data != 0 || self.parity != 0
    }
}

/// A stored group with its number. `Corrupt` if its record says what no group can be.
pub fn placed(group: GroupId, record: &GroupRecord) -> Result<NewGroup> {
    Ok(NewGroup { group, layout: layout(group, &record.columns, record.cell)?, room: 0 })
}

/// The same of a group of any kind.
pub fn known(group: GroupId, record: &GroupRecord) -> Result<KnownGroup> {
    let layout = if record.is_newer() { None } else { Some(placed(group, record)?.layout) };
    Ok(KnownGroup { group, layout, open: record.open })
}

/// A stored quota.
pub fn quota(record: &QuotaRecord) -> Quota {
    let QuotaRecord { names_max, bytes_max, names, bytes, ref counting, .. } = *record;
    Quota { names_max, bytes_max, names, bytes, counting: counting.is_some() }
}

fn carried(record: Option<CarriedRecord>) -> Carried {
    let CarriedRecord { pushed, pushed_bytes, acknowledged, acknowledged_bytes } = record.unwrap_or_default();
    Carried { pushed, pushed_bytes, acknowledged, acknowledged_bytes }
}

/// How far a bag is sealed.
pub fn bag_state(state: u32) -> BagState {
    match state {
        0 => BagState::Open,
        1 => BagState::Sealing,
        _ => BagState::Sealed,
    }
}

/// What is said of a stored bag.
pub fn bag(bag: BagId, record: BagRecord) -> BagInfo {
    BagInfo {
        bag,
        name: record.name,
        policy: policy(record.policy),
        chunk_size: record.chunk_size,
        members: record.members.iter().filter_map(|member| DeviceId::from_slice(member)).collect(),
        epoch: record.epoch,
        state: bag_state(record.state),
        created: WallTime(record.created),
        retain: record.retain,
        pass: record.pass,
        compression: record.compression,
        carried: carried(record.carried),
    }
}

/// A reply to a change, to be remembered. A bag is remembered by its number.
pub fn reply_record(reply: &Reply) -> ReplyRecord {
    let mut record = ReplyRecord::default();
    match reply {
        Reply::Done => {}
        Reply::Handle(handle) => {
            record.handle = Some(HandleRecord {
                inode: handle.inode.0,
                generation: handle.generation.0,
                length: handle.length,
                group: Some(placed_record(&handle.group)),
                limited: handle.limited,
                compression: handle.compression.code(),
            });
        }
        Reply::Group(group) => record.group = Some(placed_record(group)),
        Reply::Attributes(attributes) => record.attributes = Some(remembered(attributes)),
        Reply::Files(results) => {
            record.files = Some(FilesRecord { results: results.iter().map(file_result_record).collect() });
        }
        Reply::Bag(bag) => record.bag = Some(bag.bag.0),
        Reply::Quota(quota) => record.limits = Some(LimitsRecord { quota: quota.as_ref().map(quota_record) }),
        // A fence answers with the one file that it was asked for.
        Reply::Orphans(orphans) => record.fenced = orphans.first().map(fenced_record),
        Reply::Entries { .. }
        | Reply::Answered(_)
        | Reply::Found { .. }
        | Reply::Below { .. }
        | Reply::PathOf(_)
        | Reply::Located(_)
        | Reply::Xattrs(_)
        | Reply::Policy { .. }
        | Reply::DiskUsage { .. }
        | Reply::Usage(_)
        | Reply::Sessions(_)
        | Reply::Silent(_)
        | Reply::Devices(_)
        | Reply::WereRemoved(_)
        | Reply::Bags { .. }
        | Reply::Garbage(_)
        | Reply::Known(_)
        | Reply::Pieces { .. }
        | Reply::GroupsOn { .. }
        | Reply::LacksWithout { .. }
        | Reply::Lacking { .. }
        | Reply::FenceList { .. }
        | Reply::Leases(_)
        | Reply::SessionsOver(_)
        | Reply::NodeFound { .. }
        | Reply::SilentNodes { .. }
        | Reply::Nodes { .. } => unreachable!("only replies to changes are remembered"),
    }
    record
}

/// A remembered reply for a session. `bag` and `file` give what is known of a bag and of a file now.
pub fn reply(
    record: ReplyRecord,
    session: SessionId,
    bag: impl Fn(BagId) -> Result<BagInfo>,
    file: impl Fn(InodeId) -> Result<Option<InodeRecord>>,
) -> Result<Reply> {
    if let Some(handle) = record.handle {
        let inode = InodeId(handle.inode);
        // Whoever uses the lease of a file that is gone is told so then.
        let now = file(inode)?.unwrap_or_default();
        let writes = |writer: &WriterRecord| !writer.ended && writer.session == session.to_bytes();
        let lost = now.generation != handle.generation || !now.writer.as_ref().is_some_and(writes);
        return Ok(Reply::Handle(FileHandle {
            inode,
            lost,
            attributes: now.attributes(inode),
            generation: Generation(handle.generation),
            length: handle.length,
            group: new_group(handle.group.unwrap_or_default())?,
            limited: handle.limited,
            compression: Compression::from_code(handle.compression).unwrap_or_default(),
        }));
    }
    if let Some(group) = record.group {
        return new_group(group).map(Reply::Group);
    }
    if let Some(remembered) = record.attributes {
        let record = remembered.record.unwrap_or_default();
        return Ok(Reply::Attributes(record.attributes(InodeId(remembered.inode))));
    }
    if let Some(files) = record.files {
        return Ok(Reply::Files(files.results.into_iter().map(file_result).collect()));
    }
    if let Some(limits) = record.limits {
        return Ok(Reply::Quota(limits.quota.as_ref().map(quota)));
    }
    match record.bag {
        Some(number) => bag(BagId(number)).map(Reply::Bag),
        None => Ok(Reply::Done),
    }
}

fn quota_record(quota: &Quota) -> QuotaRecord {
    let Quota { names_max, bytes_max, names, bytes, counting } = *quota;
    let counting = counting.then(WalkRecord::default);
    QuotaRecord { serial: 0, names_max, bytes_max, names, bytes, counting }
}

fn fenced_record(orphan: &Orphan) -> FencedRecord {
    FencedRecord { inode: orphan.inode.0, generation: orphan.generation.0 }
}

fn placed_record(group: &NewGroup) -> PlacedRecord {
    let NewGroup { group, layout, room } = group;
    PlacedRecord { group: group.0, columns: column_records(layout), cell: layout.cell(), room: *room }
}

fn new_group(record: PlacedRecord) -> Result<NewGroup> {
    let PlacedRecord { group, columns, cell, room } = record;
    let group = GroupId(group);
    Ok(NewGroup { group, layout: layout(group, &columns, cell)?, room })
}

fn file_result_record(result: &Result<InodeId>) -> FileResultRecord {
    match result {
        Ok(inode) => FileResultRecord { inode: inode.0, ..FileResultRecord::default() },
        Err(error) => FileResultRecord { inode: 0, error: error.kind().code(), text: error.text().to_string() },
    }
}

fn file_result(record: FileResultRecord) -> Result<InodeId> {
    match record.error {
        0 => Ok(InodeId(record.inode)),
        code => Err(Error::new(ErrorKind::from_code(code), record.text)),
    }
}

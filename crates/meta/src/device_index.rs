//! The index from devices to groups, so that a drain or a repair finds what lies on a device without looking at every group.
//!
//! Only the tree has it, and only merges change it: each compares the devices of a group's record before and after. So a change that nobody
//! merged yet costs nothing, and replaying a log, whichever program wrote it, leaves the index as true as the tree. Questions look at what
//! changed since the last merge besides (`State::groups_on`), and at the record of each group that they find.
//!
//! A program that does not know the index leaves it as it is, and leaves `MergedRecord::indexed` out of what it writes. The next one that does
//! know it finds that and builds it anew.

use crate::format::{GroupRecord, MergedRecord};
use crate::key::{Key, after_prefix, number_at};
use crate::tree;
use base::error::Result;
use base::id::{DeviceId, GroupId};
use prost::Message;
use redb::{Database, ReadableTable, Table};
use std::collections::BTreeSet;

/// Groups whose entries are made together while the index is built: a few MiB. Few in tests, which have not many groups.
const BATCH: usize = if cfg!(test) { 7 } else { 20_000 };

type Tree<'a> = Table<'a, &'static [u8], &'static [u8]>;

/// The devices of a group's record. None of one that does not read: it is reported by whoever needs the group.
pub fn devices(record: &[u8]) -> BTreeSet<DeviceId> {
    let record = GroupRecord::decode(record).unwrap_or_default();
    let replicas = record.columns.iter().flat_map(|column| &column.replicas);
    replicas.filter_map(|replica| DeviceId::from_slice(&replica.device)).collect()
}

/// The group that a key of the state is of, if it is a group's.
pub fn group_of(key: &[u8]) -> Option<GroupId> {
    let is_group = key.len() == 9 && key.first() == Some(&Key::Group(GroupId(0)).ordinal());
    is_group.then(|| GroupId(number_at(key, 1)))
}

/// The group of a key of the index.
pub fn indexed_group(key: &[u8]) -> GroupId {
    GroupId(number_at(key, 17))
}

/// Follows a change of a group, which had a replica on each of these devices before.
pub fn follow(
    table: &mut Tree<'_>,
    group: GroupId,
    before: &BTreeSet<DeviceId>,
    after: &BTreeSet<DeviceId>,
) -> Result<()> {
    let failed = |error| tree::failed("write", error);
    for left in before.difference(after) {
        table.remove(Key::OnDevice(*left, group).encode().as_slice()).map_err(failed)?;
    }
    for came in after.difference(before) {
        table.insert(Key::OnDevice(*came, group).encode().as_slice(), [].as_slice()).map_err(failed)?;
    }
    Ok(())
}

/// Builds the index and sets its mark: for a tree whose last program did not keep it. One transaction: cut short, it is built at the next
/// opening.
pub fn build(database: &Database) -> Result<()> {
    let mut transaction = database.begin_write().map_err(|error| tree::failed("begin a change", error))?;
    tree::make_durable(&mut transaction)?;
    {
        let mut table = transaction.open_table(tree::TABLE).map_err(|error| tree::failed("open its table", error))?;
        let key = Key::Merged.encode();
        let merged = match table.get(key.as_slice()).map_err(|error| tree::failed("read", error))? {
            Some(bytes) => MergedRecord::decode(bytes.value()).unwrap_or_default(),
            None => MergedRecord::default(),
        };
        fill(&mut table)?;
        let merged = MergedRecord { indexed: true, ..merged }.encode_to_vec();
        table.insert(key.as_slice(), merged.as_slice()).map_err(|error| tree::failed("write", error))?;
    }
    transaction.commit().map_err(|error| tree::failed("commit", error))
}

/// The index of the groups that the tree has, in place of whatever it has as one.
fn fill(table: &mut Tree<'_>) -> Result<()> {
    let prefix = [Key::OnDevice(DeviceId(0), GroupId(0)).ordinal()];
    let end = after_prefix(&prefix);
    table.retain_in(prefix.as_slice()..end.as_slice(), |_, _| false).map_err(|error| tree::failed("write", error))?;
    let prefix = [Key::Group(GroupId(0)).ordinal()];
    let (mut from, end) = (prefix.to_vec(), after_prefix(&prefix));
    loop {
        let mut batch = Vec::new();
        for entry in
            table.range(from.as_slice()..end.as_slice()).map_err(|error| tree::failed("read", error))?.take(BATCH)
        {
            let (key, value) = entry.map_err(|error| tree::failed("read", error))?;
            batch.push((key.value().to_vec(), devices(value.value())));
        }
        let Some((last, _)) = batch.last() else { return Ok(()) };
        from = last.clone();
        // The first key behind it.
        from.push(0);
        for (key, devices) in batch {
            if let Some(group) = group_of(&key) {
                follow(table, group, &BTreeSet::new(), &devices)?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{build, devices};
    use crate::format::{ColumnRecord, GroupRecord, MergedRecord, ReplicaRecord};
    use crate::key::{Key, after_prefix};
    use crate::layers::{Frozen, Overlay, Slot};
    use crate::{merge, tree};
    use base::id::{DeviceId, GroupId};
    use prost::Message;
    use redb::backends::InMemoryBackend;
    use redb::{Builder, Database, ReadableDatabase};
    use std::collections::BTreeSet;

    const DEVICES: u64 = 5;

    /// A group with replicas on some of the devices, which bits say: two columns, so that a device can have two.
    fn record(bits: u64, length: u64) -> Vec<u8> {
        let on = (0..DEVICES).filter(|device| bits >> device & 1 == 1);
        let replica = |device: u64| ReplicaRecord {
            device: DeviceId(device.into()).to_bytes().to_vec(),
            chunk: vec![7; 16],
            ..ReplicaRecord::default()
        };
        let columns = vec![ColumnRecord { replicas: on.map(replica).collect() }; 2];
        GroupRecord { columns, length, ..GroupRecord::default() }.encode_to_vec()
    }

    fn merged(database: &Database, changes: Vec<(Vec<u8>, Option<Vec<u8>>)>) {
        let overlay: Overlay = changes.into_iter().map(|(key, value)| (key, Slot { sequence: 1, value })).collect();
        merge::write(database, &Frozen { overlay, sequence: 1 }, None, None).expect("merged");
    }

    /// All keys under a kind, with their values.
    fn all(database: &Database, kind: u8) -> Vec<(Vec<u8>, Vec<u8>)> {
        let table = database.begin_read().expect("begun").open_table(tree::TABLE).expect("there");
        let end = after_prefix(&[kind]);
        let entries = table.range([kind].as_slice()..end.as_slice()).expect("read");
        entries
            .map(|entry| entry.map(|(key, value)| (key.value().to_vec(), value.value().to_vec())).expect("read"))
            .collect()
    }

    /// The index is what the groups' records say.
    fn is_true(database: &Database) {
        let mut said = BTreeSet::new();
        for (key, value) in all(database, Key::Group(GroupId(0)).ordinal()) {
            let group = super::group_of(&key).expect("a group's key");
            said.extend(devices(&value).into_iter().map(|device| Key::OnDevice(device, group).encode()));
        }
        let index = all(database, Key::OnDevice(DeviceId(0), GroupId(0)).ordinal());
        assert_eq!(index.into_iter().map(|(key, _)| key).collect::<BTreeSet<_>>(), said);
    }

    fn is_indexed(database: &Database) -> bool {
        let table = database.begin_read().expect("begun").open_table(tree::TABLE).expect("there");
        let bytes = table.get(Key::Merged.encode().as_slice()).expect("read").expect("there");
        MergedRecord::decode(bytes.value()).expect("reads").indexed
    }

    /// Groups come, move, lose and win replicas, change nothing of that, and go, some twice in one merge: the index follows. Damaged records are
    /// on no device. A program that does not know the index leaves the mark out: then it is built, and what is false in it goes.
    #[test]
    fn follows_every_merge() {
        let database = Builder::new().create_with_backend(InMemoryBackend::new()).expect("made");
        merged(&database, Vec::new());
        build(&database).expect("built");
        assert!(is_indexed(&database));
        let mut draw = 1u64;
        let mut next = |most: u64| {
            draw = draw.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (draw >> 33) % most
        };
        for step in 0..300 {
            let changes = (0..next(20)).map(|_| {
                let key = Key::Group(GroupId(next(40))).encode();
                let value = match next(6) {
                    0 => None,
                    1 => Some(vec![0xff; 5]),
                    _ => Some(record(next(1 << DEVICES), next(3))),
                };
                (key, value)
            });
            let mut changes: Vec<_> = changes.collect();
            changes.push((Key::Inode(base::id::InodeId(step)).encode(), Some(record(1, 1))));
            merged(&database, changes);
            is_true(&database);
            if step % 50 != 7 {
                continue;
            }
            // As an older program leaves it: entries that are false, others that lack, and no mark.
            let mut transaction = database.begin_write().expect("begun");
            tree::make_durable(&mut transaction).expect("it can be");
            {
                let mut table = transaction.open_table(tree::TABLE).expect("there");
                let before = MergedRecord { version: 3, sequence: 1, ..MergedRecord::default() };
                table.insert(Key::Merged.encode().as_slice(), before.encode_to_vec().as_slice()).expect("put");
                table.insert(Key::OnDevice(DeviceId(9), GroupId(3)).encode().as_slice(), [].as_slice()).expect("put");
                table
                    .insert(Key::Group(GroupId(step + 100)).encode().as_slice(), record(3, 1).as_slice())
                    .expect("put");
            }
            transaction.commit().expect("committed");
            merged(&database, Vec::new());
            assert!(!is_indexed(&database));
            build(&database).expect("built");
            assert!(is_indexed(&database));
            is_true(&database);
        }
    }
}

//! What a store that is not open has on its disks: read, and changed as other programs would.

use crate::world::World;
use base::disk::{BlockFile, Disk, FileKind, FileName, Fill, Op, wait};
use base::id::ClusterId;
use base::limit::BLOCK;
use base::unit::MIB;
use prost::Message;
use quorum::{Effect, Keeper, KeeperId, Role, Seat, Settings, Stamp};
use redb::ReadableDatabase;
use sim::file::{SimFile, SimFileDevice};
use sim::random::SimRandom;
use std::sync::Arc;
use std::time::Duration;

/// The first segment of the log.
pub const SEGMENT: FileName = FileName::new(FileKind::Log, 0);

/// Bytes before a group of the log (`quorum`): kind at 8, order at 20, length at 96.
const HEADER: usize = 108;

/// `MergedRecord`, as the tests know it.
#[derive(Clone, PartialEq, Message)]
pub struct Merged {
    #[prost(uint32, tag = "1")]
    pub version: u32,
    #[prost(uint64, tag = "2")]
    pub sequence: u64,
    #[prost(uint64, tag = "3")]
    pub least: u64,
    #[prost(bool, tag = "4")]
    pub indexed: bool,
    #[prost(uint64, tag = "5")]
    pub index: u64,
    #[prost(uint64, tag = "6")]
    pub term: u64,
    #[prost(fixed32, tag = "7")]
    pub sum: u32,
    #[prost(bool, tag = "8")]
    pub begun: bool,
}

/// The key of `MergedRecord`, and that of `KeepersRecord`, which begins with tag 1: sixteen bytes.
const MERGED: [u8; 1] = [1];
const KEEPERS: [u8; 1] = [3];

fn eight(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn four(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The groups of the log that have changes, in the order in which they were written.
pub fn groups_of(world: &World) -> Vec<Vec<u8>> {
    let logs = world.device.files().into_iter().map(|(name, _)| name).filter(|name| name.kind == FileKind::Log);
    let mut groups = Vec::new();
    for bytes in logs.map(|name| world.device.peek(name)) {
        for at in (0..bytes.len()).step_by(BLOCK) {
            if bytes[at..].starts_with(b"SWGROUP2") && four(&bytes, at + 8) == 1 {
                let end = at + HEADER + eight(&bytes, at + 96) as usize;
                groups.push((eight(&bytes, at + 20), bytes[at + HEADER..end].to_vec()));
            }
        }
    }
    groups.sort();
    groups.into_iter().map(|(_, group)| group).filter(|group| !group.is_empty()).collect()
}

/// A change in the log: sequence number, key, value if it was not removed.
pub type Change = (u64, Vec<u8>, Option<Vec<u8>>);

/// The changes in the log.
pub fn log_of(world: &World) -> Vec<Change> {
    let mut changes = Vec::new();
    for bytes in groups_of(world) {
        let mut entry = 0;
        while entry < bytes.len() {
            let (sequence, count) = (eight(&bytes, entry), four(&bytes, entry + 8));
            entry += 12;
            for _ in 0..count {
                let key = usize::from(u16::from_le_bytes(bytes[entry..entry + 2].try_into().expect("two bytes")));
                let value = four(&bytes, entry + 2);
                let from = entry + 6 + key;
                let length = if value == u32::MAX { 0 } else { value as usize };
                let stored = (value != u32::MAX).then(|| bytes[from..from + length].to_vec());
                changes.push((sequence, bytes[entry + 6..from].to_vec(), stored));
                entry = from + length;
            }
        }
    }
    changes
}

/// What the log has under a key now.
pub fn value(world: &World, key: &[u8]) -> Option<Vec<u8>> {
    log_of(world).into_iter().rev().find(|(_, known, _)| known == key).and_then(|(_, _, value)| value)
}

/// Adds a change to the log, as a program with other records does.
pub fn write(world: &World, key: &[u8], value: &[u8]) {
    let sequence = log_of(world).last().expect("a change").0 + 1;
    let mut entry = [&sequence.to_le_bytes()[..], &1u32.to_le_bytes()].concat();
    entry.extend((key.len() as u16).to_le_bytes());
    entry.extend((value.len() as u32).to_le_bytes());
    entry.extend([key, value].concat());
    add_group(world, entry);
}

/// Adds a group to the log, whatever is in it.
pub fn add_group(world: &World, group: Vec<u8>) {
    let (store, merged) = (from_tree(world, &KEEPERS), merged_of(world));
    let store = store[2..18].try_into().expect("sixteen bytes");
    let own = KeeperId(1);
    let random = Arc::new(SimRandom::new(group.len() as u64));
    let seat = Seat {
        cluster: ClusterId(u128::from_be_bytes(store)),
        own,
        voters: vec![own],
        settings: Settings {
            segment_length: MIB,
            segments_max: 4,
            random: random.clone(),
            is_alone: true,
            planted: None,
        },
        random,
        planted: None,
    };
    let mut disk = world.device.attach();
    let base = Stamp { index: merged.index, term: merged.term, sum: merged.sum };
    let mut keeper = Keeper::open(&mut disk, seat, base, world.now).expect("it opens");
    keeper.lead_alone(world.now).expect("it leads");
    let mut committed = false;
    let mut group = Some(group);
    while !committed {
        keeper.take_operations().into_iter().for_each(|(token, op)| disk.submit(token, op));
        let mut done = Vec::new();
        disk.poll(Some(Duration::ZERO), &mut done);
        done.into_iter().for_each(|done| keeper.completed(world.now, done).expect("written"));
        committed = keeper.take_effects().into_iter().any(|effect| match effect {
            Effect::Committed(entries) => group.is_none() && !entries.is_empty(),
            _ => false,
        });
        if let Role::Leads { term } = keeper.role()
            && keeper.has_lease(world.now)
            && let Some(group) = group.take()
        {
            keeper.propose(world.now, term, group.into()).expect("proposed");
        }
    }
    drop(disk);
    world.device.kill();
}

/// Makes of a new store one of version 3, with this log, and with or without the index from devices to groups.
pub fn make_older(world: &World, log: &str, indexed: bool) {
    let Merged { sequence, least, .. } = merged_of(world);
    put_into_tree(
        world,
        &MERGED,
        Some(&Merged { version: 3, sequence, least, indexed, ..Merged::default() }.encode_to_vec()),
    );
    put_into_tree(world, &KEEPERS, None);
    let mut disk = world.device.attach();
    for (file, _) in world.device.files() {
        wait(&mut disk, Op::Remove { file }).expect("removed");
    }
    wait(&mut disk, Op::Create { file: SEGMENT, size: MIB, fill: Fill::Zeros }).expect("made");
    drop(disk);
    world.device.kill();
    for (number, block) in log.split("\n\n").enumerate() {
        let digits: Vec<u8> = block.bytes().filter(u8::is_ascii_hexdigit).collect();
        let digit = |byte: u8| char::from(byte).to_digit(16).expect("a digit") as u8;
        let bytes: Vec<u8> = digits.chunks(2).map(|two| digit(two[0]) << 4 | digit(two[1])).collect();
        world.device.poke(SEGMENT, (number * BLOCK) as u64, &bytes);
    }
}

/// The bytes of the tree's file.
pub fn tree_of(world: &World) -> Vec<u8> {
    let file = world.file.open();
    let mut bytes = vec![0; file.length().expect("a length") as usize];
    file.read(0, &mut bytes).expect("read");
    bytes
}

const TABLE: redb::TableDefinition<'static, &[u8], &[u8]> = redb::TableDefinition::new("state");

fn tree(world: &World) -> redb::Database {
    redb::Builder::new().create_with_backend(Tree(world.file.open())).expect("a tree")
}

/// Everything in a tree but what it says of itself.
pub fn entries_of_tree(file: &SimFileDevice) -> Vec<(Vec<u8>, Vec<u8>)> {
    let tree = redb::Builder::new().create_with_backend(Tree(file.open())).expect("a tree");
    let reading = tree.begin_read().expect("a transaction").open_table(TABLE).expect("the table");
    let entries = reading.range::<&[u8]>(&MERGED[..].to_vec()[..]..).expect("entries");
    let entries = entries.map(|entry| entry.expect("read"));
    entries
        .map(|(key, value)| (key.value().to_vec(), value.value().to_vec()))
        .filter(|(key, _)| key != &MERGED)
        .collect()
}

fn from_tree(world: &World, key: &[u8]) -> Vec<u8> {
    let tree = tree(world);
    let reading = tree.begin_read().expect("a transaction").open_table(TABLE).expect("the table");
    let value = reading.get(key).expect("read").expect("there");
    value.value().to_vec()
}

/// What the tree says of itself.
pub fn merged_of(world: &World) -> Merged {
    Merged::decode(&from_tree(world, &MERGED)[..]).expect("a record")
}

/// Puts a value into the tree, or takes it out.
pub fn put_into_tree(world: &World, key: &[u8], value: Option<&[u8]>) {
    let tree = tree(world);
    let change = tree.begin_write().expect("a change");
    {
        let mut table = change.open_table(TABLE).expect("the table");
        match value {
            Some(value) => drop(table.insert(key, value).expect("put")),
            None => drop(table.remove(key).expect("taken out")),
        }
    }
    change.commit().expect("committed");
}

#[derive(Debug)]
struct Tree(SimFile);

impl redb::StorageBackend for Tree {
    fn len(&self) -> std::io::Result<u64> {
        self.0.length()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.0.read(offset, out)
    }
    fn set_len(&self, length: u64) -> std::io::Result<()> {
        self.0.set_length(length)
    }
    fn sync_data(&self) -> std::io::Result<()> {
        self.0.sync()
    }
    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.write(offset, data)
    }
}

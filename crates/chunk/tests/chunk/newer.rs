//! What a newer program has written is told from damage: it is kept, and neither changed nor given back nor counted as rot.

use crate::first_format::content;
use crate::world::{DEVICE, World, append, newest_checkpoint, small};
use base::checksum::crc32c;
use base::disk::{FileKind, FileName};
use base::error::{Error, ErrorKind};
use base::id::{BagId, ChunkId, Generation, GroupId, Owner};
use base::limit::BLOCK;
use base::policy::Level;
use base::unit::MIB;
use base::version::ProgramVersion;
use chunk::format::{CheckpointHeader, DataHeader, GROUP_HEADER, GroupHeader, Identity, Record, VERSION};
use chunk::scrub::{Scrub, ScrubReport};
use chunk::{Opened, Request};
use sim::disk::{SimDevice, SimFaults};

const FILE: Owner = Owner::Group(GroupId(1));
const IDENTITY: FileName = FileName::new(FileKind::Identity, 0);

fn unknown() -> Owner {
    Owner::new(9, 77).expect("an owner")
}

fn device() -> SimDevice {
    SimDevice::new(5, SimFaults::default())
}

fn opened(device: &SimDevice) -> (World, Opened) {
    World::open(device, &small(32 * MIB)).unwrap_or_else(|error| panic!("{error}"))
}

/// Every file of the device with its bytes.
fn all_bytes(device: &SimDevice) -> Vec<(FileName, Vec<u8>)> {
    device.files().into_iter().map(|(name, _)| (name, device.peek(name))).collect()
}

/// The device is refused as newer, and not a byte of it is another afterwards.
fn refused_unchanged(device: &SimDevice, says: &str) {
    let before = all_bytes(device);
    let refused = World::open(device, &small(32 * MIB)).map(drop).expect_err("it is newer");
    is_newer(&refused, says);
    assert!(all_bytes(device) == before, "a device that was refused has other bytes now");
}

fn is_newer(error: &Error, says: &str) {
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let text = error.text();
    assert!(text.starts_with("newer: ") && text.contains("data is safe") && text.contains(says), "{text}");
}

fn scrubbed(world: &mut World) -> ScrubReport {
    let mut scrub = Scrub::begin(world.now, 1 << 40);
    for _ in 0..10_000 {
        let Some(request) = scrub.next(world.now, false, &world.engine) else {
            if scrub.report().over {
                return scrub.report().clone();
            }
            world.now = scrub.next_due(false).expect("it goes on");
            continue;
        };
        let result = world.call(request);
        scrub.took(&result, &world.engine);
    }
    panic!("a scrub without end");
}

/// Chunks of an owner of a kind that is not known are kept through checkpoints, power losses and starts, open ones with their
/// generation: read and scrubbed as any, and whoever would change or delete one is told that it is newer. All else goes on.
#[test]
fn chunks_of_unknown_owners_are_kept() {
    let device = device();
    let (mut world, _) = opened(&device);
    let open = |bytes: &[u8]| append(unknown(), ChunkId(2), 0, &bytes.to_vec().into(), Level::Synced, false);
    world.push(unknown(), 1, &content(1, 200_000).into()).expect("pushed");
    world.call(open(&content(2, 500))).expect("appended");
    world.push(FILE, 3, &content(3, 5000).into()).expect("pushed");
    for life in 0..4 {
        assert_eq!(world.read_all(ChunkId(1)).expect("read"), content(1, 200_000), "life {life}");
        assert_eq!(world.read_all(ChunkId(2)).expect("read"), content(2, 500), "life {life}");
        let chunk = ChunkId(2);
        let changes = [
            Request::Delete { chunks: vec![ChunkId(3), ChunkId(1)] },
            Request::Release { chunk: ChunkId(1), ranges: vec![(0, 100_000)] },
            Request::Fence { chunk, generation: Generation(5) },
            Request::Seal { chunk, generation: Generation(5), length: 500 },
        ];
        for change in changes {
            let refused = world.call(change).expect_err("a change of what is not known");
            is_newer(&refused, "owner 77 of kind 9");
        }
        let acknowledge = Request::Acknowledge { chunks: vec![(ChunkId(1), 4)], pass: 0, retain: false, by: None };
        assert!(format!("{:?}", world.call(acknowledge)).contains("Invalid"));
        world.call(Request::DropBag { bag: BagId(77) }).expect("a bag of the same number");
        assert_eq!(world.read_all(ChunkId(3)).expect("read"), content(3, 5000), "deleted with one that was refused");
        let report = scrubbed(&mut world);
        assert_eq!((report.chunks, report.bytes, report.damaged_bytes), (3, 205_500, 0));
        if life % 2 == 0 {
            world.engine.want_checkpoint();
            world.settle();
        }
        device.crash();
        let (again, found) = opened(&device);
        assert_eq!((found.rot, found.torn), (vec![], 0), "life {life}");
        world = again;
    }
    world.call(Request::Delete { chunks: vec![ChunkId(3)] }).expect("what is known is deleted");
}

/// A device of a newer format names the version that reads it, and stays as it is.
#[test]
fn a_newer_format_is_refused() {
    let device = device();
    let (mut world, _) = opened(&device);
    world.push(FILE, 1, &content(1, 5000).into()).expect("pushed");
    drop(world);
    device.kill();
    let identity = Identity::decode(&device.peek(IDENTITY)[..BLOCK]).expect("an identity");
    assert_eq!(identity.version, VERSION);
    let least = ProgramVersion { major: 9, minor: 1, patch: 2 };
    device.poke(IDENTITY, 0, &Identity { version: VERSION + 1, least, ..identity }.encode());
    refused_unchanged(&device, "use a version of at least 9.1.2");
    device.poke(IDENTITY, 0, &Identity { least, ..identity }.encode());
    let (mut world, _) = opened(&device);
    assert_eq!(world.read_all(ChunkId(1)).expect("read"), content(1, 5000), "its formats are known");
    let after = Identity::decode(&device.peek(IDENTITY)[..BLOCK]).expect("an identity");
    assert_eq!(after.least, least, "who is needed was forgotten");
}

/// The last data record of a device, with its header changed.
fn change_header(device: &SimDevice, change: impl Fn(DataHeader) -> DataHeader) {
    let file = FileName::new(FileKind::Data, 0);
    let bytes = device.peek(file);
    let mut headers =
        bytes.chunks(BLOCK).enumerate().filter_map(|(at, block)| Some((at, DataHeader::decode(DEVICE, block)?)));
    let (at, header) = headers.next_back().expect("a record");
    let mut block = vec![0; BLOCK];
    change(header).encode(DEVICE, &mut block);
    device.poke(file, (at * BLOCK) as u64, &block);
}

/// A record with a flag that is not known: in the log the device is refused, behind a checkpoint its bytes are. It is no damage.
#[test]
fn records_with_unknown_flags() {
    let device = device();
    let (mut world, _) = opened(&device);
    world.push(FILE, 1, &content(1, 5000).into()).expect("pushed");
    world.push(FILE, 2, &content(2, 100_000).into()).expect("pushed");
    drop(world);
    device.kill();
    change_header(&device, |header| DataHeader { newer: 4, ..header });
    refused_unchanged(&device, "flags 0x4");
    change_header(&device, |header| DataHeader { newer: 0, ..header });
    let (mut world, _) = opened(&device);
    world.engine.want_checkpoint();
    world.settle();
    change_header(&device, |header| DataHeader { newer: 4, ..header });
    let refused = world.read_all(ChunkId(2)).expect_err("bytes of a newer record");
    is_newer(&refused, "chunk 00000000000000000000000000000002");
    assert_eq!(world.read_all(ChunkId(1)).expect("read"), content(1, 5000));
    let report = scrubbed(&mut world);
    assert_eq!((report.damaged_bytes, world.engine.usage().damaged), (0, 0), "{report:?}");
}

/// A journal record of a kind that is not known, or with more in it than is known: the device is refused as it is.
#[test]
fn journal_records_of_unknown_kinds() {
    // Acknowledgements have 28 bytes, or 60 with who made them.
    let acknowledgements = [(6, vec![1; 29]), (6, vec![1; 61]), (9, vec![1; 68])];
    for newer in [(4_000_000, vec![1; 24]), (4, vec![1; 17])].into_iter().chain(acknowledgements) {
        let device = device();
        let (mut world, _) = opened(&device);
        world.push(FILE, 1, &content(1, 5000).into()).expect("pushed");
        world.call(Request::Fence { chunk: ChunkId(1), generation: Generation(3) }).expect("fenced");
        drop(world);
        device.kill();
        let (file, at, header) = last_group(&device);
        let (mut body, mut bytes) = (Vec::new(), vec![0; GROUP_HEADER]);
        Record::Newer { kind: newer.0, body: newer.1.into() }.encode(header.first, &mut body);
        let records_crc = GroupHeader::crc_of(DEVICE, &body);
        GroupHeader { length: body.len() as u32, records_crc, last: header.first, ..header }.encode(DEVICE, &mut bytes);
        bytes.extend(body);
        device.poke(file, at, &bytes);
        refused_unchanged(&device, &format!("is of kind {}", newer.0));
    }
}

fn last_group(device: &SimDevice) -> (FileName, u64, GroupHeader) {
    let journal = device.files().into_iter().map(|(name, _)| name).filter(|name| name.kind == FileKind::Journal);
    let found = journal.flat_map(|file| {
        let bytes = device.peek(file);
        let blocks: Vec<Vec<u8>> = bytes.chunks(BLOCK).map(<[u8]>::to_vec).collect();
        let groups = blocks.into_iter().enumerate();
        groups.filter_map(move |(at, block)| Some((file, (at * BLOCK) as u64, GroupHeader::decode(DEVICE, &block)?)))
    });
    found.max_by_key(|(_, _, header)| header.last).expect("a group")
}

/// A checkpoint of a newer version, or with an entry of a kind that is not known, is not passed over for the one before.
#[test]
fn newer_checkpoints() {
    for state in [None, Some(7u32)] {
        let device = device();
        let (mut world, _) = opened(&device);
        for id in 1..4 {
            world.push(FILE, id, &content(id, 5000).into()).expect("pushed");
            world.engine.want_checkpoint();
            world.settle();
        }
        drop(world);
        device.kill();
        let file = newest_checkpoint(&device).expect("a checkpoint");
        let bytes = device.peek(file);
        let header = CheckpointHeader::decode(DEVICE, &bytes[..BLOCK]).expect("a header");
        let mut body = bytes[BLOCK..BLOCK + header.length as usize].to_vec();
        let version = if state.is_none() { VERSION + 1 } else { VERSION };
        body.extend(state.into_iter().flat_map(u32::to_le_bytes));
        let (length, body_crc) = (body.len() as u64, crc32c(&body));
        device.poke(file, BLOCK as u64, &body);
        device.poke(file, 0, &CheckpointHeader { version, length, body_crc, ..header }.encode(DEVICE));
        refused_unchanged(&device, "a checkpoint");
    }
}

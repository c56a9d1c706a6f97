//! A device that was written by the first landed format, kept in `golden/first-device.bin`, is read by this program.
//! The file is a list of files: kind 1, number 4, length 8, count 4 of blocks that are not zeros, each: block 4, 4096 bytes.

use crate::world::{World, bytes, small};
use base::disk::{Caching, FileKind, FileName};
use base::id::{BagId, ChunkId, Generation, Owner};
use base::limit::BLOCK;
use base::unit::MIB;
use chunk::{Check, Reply, Request};
use sim::disk::{SimDevice, SimFaults};
use sim::random::SimRandom;

const IMAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chunk/golden/first-device.bin");

/// The bytes that the chunk was given.
pub fn content(chunk: u128, length: usize) -> Vec<u8> {
    bytes(&SimRandom::new(chunk as u64), length).to_vec()
}

/// The device of the image. Its history, with two checkpoints in the middle, was:
/// pushed 10 to 13 (3000 bytes each), 5000 of 9000 bytes appended to 1, 2 (6000 bytes) appended and sealed, 10 acknowledged
/// under grant 5; pushed 20 (4096 bytes), deleted 11, appended to 1 up to 7000; pushed 21 (100 bytes), appended to 1 up to 9000,
/// the first 4096 bytes of 2 released, 12 acknowledged under grant 6, 1 fenced with generation 4, the bag sealed in epoch 9.
fn first_device() -> SimDevice {
    device_of(IMAGE)
}

/// The device of which this file is the image.
pub fn device_of(image: &str) -> SimDevice {
    let image = std::fs::read(image).unwrap_or_else(|error| panic!("{image}: {error}"));
    let device = SimDevice::new(1, SimFaults::default());
    let mut rest = &image[..];
    let mut take = |count: usize| {
        let (head, left) = rest.split_at_checked(count)?;
        rest = left;
        Some(head)
    };
    let four = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    while let Some(kind) = take(1) {
        let kind = FileKind::ALL[usize::from(kind[0])];
        let name = FileName::new(kind, four(take(4).expect("number")));
        let length = u64::from_le_bytes(take(8).expect("length").try_into().expect("eight bytes"));
        device.poke(name, length - 1, &[0]);
        for _ in 0..four(take(4).expect("count")) {
            let place = u64::from(four(take(4).expect("place")));
            device.poke(name, place * BLOCK as u64, take(BLOCK).expect("block"));
        }
    }
    device
}

/// The image of a device.
pub fn image_of(device: &SimDevice) -> Vec<u8> {
    let mut image = Vec::new();
    for (name, length) in device.files() {
        let kind = FileKind::ALL.iter().position(|kind| *kind == name.kind).expect("one of them");
        image.push(kind as u8);
        image.extend(name.number.to_le_bytes());
        image.extend(length.to_le_bytes());
        let bytes = device.peek(name);
        let blocks = bytes.chunks(BLOCK).enumerate().filter(|(_, block)| block.iter().any(|byte| *byte != 0));
        let blocks: Vec<(usize, &[u8])> = blocks.collect();
        image.extend((blocks.len() as u32).to_le_bytes());
        for (place, block) in blocks {
            image.extend((place as u32).to_le_bytes());
            image.extend(block);
        }
    }
    image
}

fn check(world: &mut World) {
    for (id, length) in [(13, 3000), (20, 4096), (21, 100), (1, 9000)] {
        assert_eq!(world.read_all(ChunkId(id)).expect("read"), content(id, length), "{id}");
    }
    for gone in [10, 11, 12] {
        assert!(world.read_all(ChunkId(gone)).is_err(), "{gone} is back");
    }
    let read = |range| Request::Read {
        chunk: ChunkId(2),
        ranges: vec![range],
        caching: Caching::Around,
        check: Check::Here,
        cells: false,
    };
    assert!(world.call(read((0, 10))).is_err(), "released bytes were served");
    let Ok(Reply::Data { parts, .. }) = world.call(read((4096, 6000))) else { panic!("the rest of 2 is lost") };
    assert_eq!(parts.concat(), content(2, 6000)[4096..]);
    let Ok(Reply::Stat(stat)) = world.call(Request::Stat { chunk: ChunkId(1) }) else { panic!("1 is lost") };
    assert_eq!((stat.generation, stat.sealed, stat.length), (Generation(4), false, 9000));
    let stat = world.engine.bag_stat(BagId(2));
    assert_eq!((stat.pushed, stat.acknowledged, stat.sealed_epoch), (6, 2, Some(9)));
    let again =
        |id, grant| Request::Acknowledge { chunks: vec![(ChunkId(id), grant)], pass: 0, retain: false, by: None };
    assert_eq!(world.call(again(10, 5)), Ok(Reply::Acknowledged { results: vec![Ok(())] }));
    let Ok(Reply::Acknowledged { results }) = world.call(again(12, 5)) else { panic!("no answer") };
    assert!(results[0].is_err(), "acknowledged twice");
}

/// A device of the first format is read, goes on in today's format from its first checkpoint on, and is still whole after more
/// checkpoints and a power loss. With a damaged newer checkpoint it is read from the older one.
#[test]
fn first_device_is_read() {
    for damaged in [None, Some(0), Some(1)] {
        let device = first_device();
        if let Some(number) = damaged {
            device.rot(FileName::new(FileKind::Checkpoint, number), 4096 + 50, 2);
        }
        for life in 0..4 {
            let (mut world, opened) = World::open(&device, &small(32 * MIB)).expect("opened");
            let version = if life == 0 { 1 } else { chunk::format::VERSION };
            assert_eq!((opened.rot, opened.formatted, opened.version), (vec![], false, version), "life {life}");
            check(&mut world);
            world.push(Owner::Bag(BagId(3)), 100 + life, &content(7, 5000).into()).expect("pushed");
            world.engine.want_checkpoint();
            world.settle();
            if life < 3 {
                // A removed file may come back.
                device.crash();
            }
        }
        let old = |(name, _): &(FileName, u64)| name.kind == FileKind::Checkpoint && name.number < 2;
        assert!(!device.files().iter().any(old), "{damaged:?}: {:?}", device.files());
    }
}

//! Bytes of a column that one device lost are got out of another one.

use super::{Damage, InspectedDevice, Inspection};
use base::buffer::Pool;
use base::checksum::BlockSums;
use base::disk::{Disk, FileKind};
use base::env::Clock;
use base::id::{ChunkId, DeviceId, Generation, GroupId, Owner};
use base::layout::Column;
use base::limit::BLOCK;
use base::policy::Level;
use bytes::Bytes;
use chunk::{Engine, Request};
use os::clock::SystemClock;
use sim::disk::{SimDevice, SimFaults};
use std::path::PathBuf;
use std::sync::Arc;

const CHUNK: ChunkId = ChunkId(5);
const BYTES: usize = 40 * BLOCK;

/// Block after block another byte.
fn content() -> Vec<u8> {
    (0..BYTES).map(|place| (place / BLOCK) as u8 + 1).collect()
}

/// A device with the first so many bytes of the chunk, in which these blocks are rotten.
fn device(id: u128, length: usize, rotten: &[usize]) -> InspectedDevice {
    let (device, clock): (_, Arc<dyn Clock>) =
        (SimDevice::new(id as u64, SimFaults::default()), Arc::new(SystemClock::new()));
    let mut disk: Box<dyn Disk> = Box::new(device.attach());
    let settings = chunk::Settings::for_capacity(64 << 20, Pool::new(1 << 20));
    let (engine, opened) = Engine::open(disk.as_mut(), settings, DeviceId(id), clock.now()).expect("an empty disk");
    let usage = engine.usage();
    let mut known =
        InspectedDevice { directory: PathBuf::new(), opened, usage, files: Vec::new(), disk, engine, clock };
    if length > 0 {
        let payload = Bytes::from(content()[..length].to_vec());
        let sums = BlockSums::of(&payload);
        let append = Request::Append {
            chunk: CHUNK,
            owner: Owner::Group(GroupId(1)),
            generation: Generation(1),
            offset: 0,
            payload,
            sums,
            level: Level::Synced,
            seal: true,
            small_parts: false,
            cell: 0,
        };
        known.ask(append).expect("it takes them");
    }
    for block in rotten {
        let is_block = |bytes: &[u8]| bytes.iter().all(|byte| *byte == *block as u8 + 1);
        let found = device.files().into_iter().find_map(|(file, _)| {
            let stored = device.peek(file);
            let place = stored.chunks(BLOCK).position(is_block).filter(|_| file.kind == FileKind::Data);
            place.map(|place| (file, (place * BLOCK) as u64))
        });
        let (file, offset) = found.expect("the block is stored as it is");
        device.rot(file, offset + 7, 3);
    }
    known
}

/// Reads blocks `from..to` of the column on these devices, and those that are not here. Every byte that comes is right, and comes once.
fn read(devices: Vec<InspectedDevice>, on: &[u128], (from, to): (usize, usize)) -> Vec<Damage> {
    let mut found = Inspection { devices, names: None };
    let column = Column::new(CHUNK, on.iter().copied().map(DeviceId)).expect("a column");
    let mut came = vec![0; BYTES];
    let mut put = |offset: u64, bytes: Bytes| {
        let place = offset as usize;
        assert!(came[place..place + bytes.len()].iter().all(|byte| *byte == 0), "{place} came twice");
        came[place..place + bytes.len()].copy_from_slice(&bytes);
        Ok(())
    };
    let (from, to) = (from * BLOCK, to * BLOCK);
    let damage = found.read_column(&column, (from as u64, to as u64), &mut put).expect("it looks");
    let is_bad = |place: u64| damage.iter().any(|bad| (bad.start..bad.end).contains(&place));
    for (place, (came, right)) in came.iter().zip(content()).enumerate() {
        let wanted = (from..to).contains(&place) && !is_bad(place as u64);
        assert_eq!(*came, if wanted { right } else { 0 }, "byte {place}");
    }
    damage
}

/// What one device has not, or has rotten, the next one has; what none has is told once, with what each said of it.
#[test]
fn replicas() {
    let rotten = || device(1, BYTES, &[3, 30]);
    let short = || device(2, 20 * BLOCK, &[]);
    let empty = || device(3, 0, &[]);
    assert_eq!(read(vec![rotten()], &[1], (0, 40)).len(), 2);
    assert_eq!(read(vec![rotten()], &[9, 1], (4, 30)), []);
    assert_eq!(read(vec![rotten(), device(4, BYTES, &[])], &[1, 4], (0, 40)), []);
    assert_eq!(read(vec![empty(), rotten(), device(4, BYTES, &[4])], &[3, 9, 1, 4], (0, 40)), []);
    let left = read(vec![rotten(), short(), empty()], &[1, 2, 3], (1, 40));
    let [Damage { start, end, why }] = left.as_slice() else { unreachable!("one block is nowhere: {left:?}") };
    assert_eq!((*start, *end), (30 * BLOCK as u64, 31 * BLOCK as u64));
    assert!(why.contains("device 00000000000000000000000000000002: ") && why.contains("0003: "), "{why}");
    let left = read(vec![short(), rotten()], &[2, 1], (0, 40));
    assert_eq!(left.iter().map(|bad| (bad.start, bad.end)).collect::<Vec<_>>(), [(30 * 4096, 31 * 4096)]);
}

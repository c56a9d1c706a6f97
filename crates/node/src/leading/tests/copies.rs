//! Copies of chunks from one device to another: what is found to be none, and what a copy that is one is like.

use super::{Served, kind, written};
use crate::control::comparing::compare;
use crate::control::copying::Copying;
use crate::device::Device;
use crate::device::control::{Copied, Extent};
use crate::device_handle::DeviceHandle;
use crate::leading::Leading;
use base::checksum::crc32c;
use base::error::{ErrorKind, Result};
use base::id::{ChunkId, DeviceId, Generation, GroupId};
use base::planted::Planted;
use base::policy::Level;
use bytes::Bytes;
use net::Payload;
use net::message::chunk::Range;
use net::message::{file, order, session};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const GROUP: GroupId = GroupId(1);
const CHUNK: ChunkId = ChunkId(1);

/// Bytes of one append, and how many a chunk of these tests has.
const PIECE: u64 = 1 << 20;
const LENGTH: u64 = 3 * PIECE;

/// What a chunk has at this place: no two blocks are the same.
fn content(offset: u64, length: u64, seed: u8) -> Bytes {
    (offset..offset + length).map(|at| (at / 4096) as u8 ^ (at as u8) ^ seed).collect::<Vec<u8>>().into()
}

/// Writes the chunk, another one for another seed.
async fn write(device: &Device, seed: u8) {
    for offset in (0..LENGTH).step_by(PIECE as usize) {
        let (generation, bytes) = (Generation(1), content(offset, PIECE, seed));
        let piece = Copied { generation, offset, bytes, level: Level::Synced, small_parts: false, cell: 0 };
        device.append((GROUP, CHUNK), piece).await.expect("room");
    }
}

/// A node with two devices, and its leadership without jobs.
async fn two_devices(name: &str) -> (Served, Arc<Leading>, Vec<Arc<Device>>) {
    let keeps = Served::start(name, 2, None).await;
    let leading = keeps.leads_idly(2).await;
    let devices = keeps.node.devices.values().cloned().collect();
    (keeps, leading, devices)
}

async fn begin(keeps: &Served, leading: &Arc<Leading>, devices: &[Arc<Device>]) -> Result<Copying> {
    let (from, to) = (DeviceHandle::Local(devices[0].clone()), DeviceHandle::Local(devices[1].clone()));
    Copying::begin((&keeps.node, leading), (GROUP, CHUNK), (from, to), Box::new(|_| ())).await
}

/// Copies the chunk onto what is at the target, as if that had not been deleted.
async fn copied_onto(copying: &Copying) -> Extent {
    let original = copying.stat(&copying.from).await.expect("it answers").expect("it is there");
    assert_eq!(copying.copy(&original, 0).await, Ok(LENGTH), "what is there is not looked at");
    let whole = Extent { sealed: true, ..original };
    copying.close(&whole).await.expect("it has the length");
    copying.release().await.expect("released");
    whole
}

/// A leftover at the target of as many other bytes, onto which a copy goes without a word, is found out, by the CRCs of the two or, where the
/// original has released bytes, by what is read of them; with the fault put in it is not. It is deleted before a copy is made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_other_bytes() {
    let (keeps, leading, devices) = two_devices("others").await;
    write(&devices[0], 0).await;
    for holes in [false, true] {
        if holes {
            devices[0].release(CHUNK, vec![(PIECE, PIECE)]).await.expect("released");
        }
        for planted in [None, Some(Planted::CopyUncompared)] {
            write(&devices[1], 1).await;
            let mut copying = begin(&keeps, &leading, &devices).await.expect("nobody else copies it");
            copying.planted = planted;
            let whole = copied_onto(&copying).await;
            assert_eq!(copying.is_filled(), holes);
            let compared = kind(copying.compare(&whole).await);
            assert_eq!(compared, planted.is_none().then_some(ErrorKind::Busy), "holes: {holes}");
            copying.give_up(&base::error::Error::new(ErrorKind::Busy, "it is another one")).await;
            assert_eq!(devices[1].stat(CHUNK).await, Ok(None), "it is deleted");
        }
        write(&devices[1], 1).await;
        let copying = begin(&keeps, &leading, &devices).await.expect("nobody else copies it");
        let whole = copying.at_rest().await.expect("the leftover is deleted").expect("it is there");
        copying.confirm(&whole).await.expect("it is whole");
        let read = devices[1].read(CHUNK, 2 * PIECE, LENGTH).await.expect("read");
        assert_eq!(read[0].bytes, content(2 * PIECE, PIECE, 0));
        drop(copying);
        devices[1].delete(vec![CHUNK]).await.expect("deleted");
    }
    drop((devices, leading));
    keeps.stop().await;
}

/// A copy releases what its original has released, before it was copied and since; a byte that only one of them has is noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_with_holes() {
    let (keeps, leading, devices) = two_devices("holes").await;
    write(&devices[0], 0).await;
    devices[0].release(CHUNK, vec![(4096, PIECE)]).await.expect("released");
    let copying = begin(&keeps, &leading, &devices).await.expect("nobody else copies it");
    let whole = copying.at_rest().await.expect("copied").expect("it is there");
    assert_eq!((whole.length, whole.sealed, copying.is_filled()), (LENGTH, true, true));
    devices[0].release(CHUNK, vec![(2 * PIECE, 8192)]).await.expect("released");
    copying.confirm(&whole).await.expect("it is whole");
    let kept = devices[1].kept(CHUNK).await.expect("it answers").ranges;
    assert_eq!(kept, [(0, 4096), (4096 + PIECE, 2 * PIECE), (2 * PIECE + 8192, LENGTH)]);
    devices[1].release(CHUNK, vec![(LENGTH - 4096, 4096)]).await.expect("released");
    assert_eq!(kind(copying.confirm(&whole).await), Some(ErrorKind::Busy), "the original keeps it");
    devices[1].delete(vec![CHUNK]).await.expect("deleted");
    assert_eq!(kind(copying.confirm(&whole).await), Some(ErrorKind::Busy), "it is not there");
    drop((copying, devices, leading));
    keeps.stop().await;
}

/// The original is sealed before it is copied, as long as it is, and takes nothing that comes late. One that is shorter than its group says is not
/// copied, nor one of which nothing is there; nothing of it is at the target then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sealed_first_and_never_short() {
    let (keeps, leading, devices) = two_devices("short").await;
    let told = Arc::new(AtomicU64::new(0));
    let (from, to) = (DeviceHandle::Local(devices[0].clone()), DeviceHandle::Local(devices[1].clone()));
    let counts = told.clone();
    let progress = move |bytes| {
        counts.fetch_add(bytes, Ordering::Relaxed);
    };
    let of = (GROUP, CHUNK);
    let mut copying = Copying::begin((&keeps.node, &leading), of, (from, to), Box::new(progress)).await.expect("free");
    copying.at_least = 1;
    assert_eq!(kind(copying.at_rest().await), Some(ErrorKind::Corrupt), "nothing is there");
    write(&devices[0], 0).await;
    copying.at_least = LENGTH + 1;
    assert_eq!(kind(copying.at_rest().await), Some(ErrorKind::Corrupt));
    assert_eq!(devices[1].stat(CHUNK).await, Ok(None));
    copying.at_least = LENGTH;
    let whole = copying.at_rest().await.expect("copied").expect("it is there");
    assert_eq!((whole.length, told.load(Ordering::Relaxed), copying.copied()), (LENGTH, LENGTH, LENGTH));
    let (original, copy) = (devices[0].stat(CHUNK).await, devices[1].stat(CHUNK).await);
    assert_eq!((original.clone(), original), (copy, Ok(Some(whole))), "sealed, both, and of one CRC");
    assert_eq!(kind(written(&devices[0], of, LENGTH).await), Some(ErrorKind::Stale), "too late");
    drop((copying, devices, leading));
    keeps.stop().await;
}

/// A copy that nobody has named yet stays when its device is compared with the metadata, and goes when nobody makes it any more. Nobody else copies
/// the chunk meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_sweeps_a_copy() {
    let (keeps, leading, devices) = two_devices("swept").await;
    write(&devices[0], 0).await;
    let copying = begin(&keeps, &leading, &devices).await.expect("nobody else copies it");
    let whole = copying.at_rest().await.expect("copied").expect("it is there");
    let target = DeviceHandle::Local(devices[1].clone());
    let left = compare(&keeps.node, &leading, &target).await.expect("compared");
    assert_eq!((left.chunks, left.claimed), (1, 1));
    copying.confirm(&whole).await.expect("it is there");
    assert!(leading.jobs.copying.try_claim((GROUP, CHUNK)).is_none(), "it is being copied");
    drop(copying);
    let left = compare(&keeps.node, &leading, &target).await.expect("compared");
    assert_eq!((left.chunks, left.claimed), (0, 0));
    assert_eq!(devices[1].stat(CHUNK).await, Ok(None));
    drop((target, devices, leading));
    keeps.stop().await;
}

/// A chunk is not copied to where the metadata name it: what is there is no leftover.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_named_copy_is_no_leftover() {
    let (keeps, leading, devices) = two_devices("named").await;
    let link = keeps.link().await;
    link.call(&session::Renew::default(), Payload::empty()).await.expect("a session");
    let create = file::Create { path: "/f".to_string(), ..file::Create::default() };
    let (opened, _) = link.call(&create, Payload::empty()).await.expect("a file");
    let (group, column) = (GroupId(opened.group.group), &opened.group.layout.columns[0]);
    let (chunk, named) = (ChunkId(column.chunk.value()), DeviceId(column.device.value()));
    let (there, other) = devices.iter().cloned().partition::<Vec<_>, _>(|device| device.id == named);
    let (there, other) = (DeviceHandle::Local(there[0].clone()), DeviceHandle::Local(other[0].clone()));
    for (from, to, expected) in [(&other, &there, Some(ErrorKind::Stale)), (&there, &other, None)] {
        let ways = (from.clone(), to.clone());
        let begun = Copying::begin((&keeps.node, &leading), (group, chunk), ways, Box::new(|_| ())).await;
        assert_eq!(kind(begun), expected);
    }
    link.close();
    drop((there, other, devices, leading));
    keeps.stop().await;
}

/// The sums of ranges are of their bytes, one after the other, a cell in them whole and as it is stored; too much at once is refused, and what is not
/// there is no hole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sums_of_ranges() {
    let (keeps, leading, devices) = two_devices("sums").await;
    write(&devices[0], 0).await;
    let cell = Bytes::from(vec![9; 5000]);
    let (generation, level) = (Generation(1), Level::Synced);
    let bytes = cell.clone();
    let piece = Copied { generation, offset: LENGTH, bytes, level, small_parts: false, cell: 65_536 };
    devices[0].append((GROUP, CHUNK), piece).await.expect("room");
    let sums = async |ranges: &[(u64, u64)]| {
        let range = |(start, end): &(u64, u64)| Range { offset: *start, length: end - start };
        let ranges = ranges.iter().map(range).collect();
        keeps.node.sums(order::Sums { device: devices[0].id.0.into(), chunk: CHUNK.0.into(), ranges }).await
    };
    let of = |parts: &[Bytes]| Ok(order::SumsAnswer { crc: crc32c(&parts.concat()), damaged: Vec::new() });
    assert_eq!(sums(&[]).await, of(&[]));
    let expected = of(&[content(5, 2 * PIECE, 0), content(LENGTH - 7, 7, 0), cell.clone()]);
    assert_eq!(sums(&[(5, 5 + 2 * PIECE), (LENGTH - 7, LENGTH + 1)]).await, expected);
    assert_eq!(sums(&[(LENGTH + 100, LENGTH + 65_536), (LENGTH, LENGTH + 1)]).await, of(&[cell.clone(), cell]));
    assert_eq!(kind(sums(&[(LENGTH, LENGTH + 65_537)]).await), Some(ErrorKind::NotFound), "it ends before");
    assert_eq!(kind(sums(&[(0, LENGTH), (0, 1 << 24)]).await), Some(ErrorKind::Invalid));
    assert_eq!(kind(sums(&[(0, 1); 1001]).await), Some(ErrorKind::Invalid));
    assert_eq!(kind(sums(&[(u64::MAX - 5, u64::MAX)]).await), Some(ErrorKind::NotFound));
    drop((devices, leading));
    keeps.stop().await;
}

//! Pushes and acknowledgements that are asked again: recognised for as long as their callers may ask, however much is handled
//! meanwhile, whether the device was started again or not.

use crate::world::{World, append, small};
use base::error::{ErrorKind, Result};
use base::id::{BagId, ChunkId, Owner, PushName};
use base::limit::FULL_WAIT;
use base::planted::Planted;
use base::policy::Level;
use base::unit::MIB;
use bytes::Bytes;
use chunk::{Asking, Reply, Request, Settings};
use sim::disk::{SimDevice, SimFaults};

const BAG: Owner = Owner::Bag(BagId(1));
const PUSHER: u64 = 0xAAAA;
const OTHER: u64 = 0xBBBB;
const PULLER: u64 = 0xCCCC;

fn name(session: u64, number: u64) -> ChunkId {
    PushName { session, stream: 0, number }.chunk()
}

fn push(world: &mut World, chunk: ChunkId, floor: u64) -> Result<Reply> {
    world.engine.heard_push(chunk, floor)?;
    let bytes = Bytes::from(chunk.to_bytes().to_vec());
    world.call(append(BAG, chunk, 0, &bytes, Level::Synced, true))
}

fn acknowledge(world: &mut World, chunk: ChunkId, number: u64, floor: u64) -> Result<()> {
    let by = Some(Asking { session: PULLER, number, floor });
    match world.call(Request::Acknowledge { chunks: vec![(chunk, 7)], pass: 0, retain: false, by })? {
        Reply::Acknowledged { mut results } => results.remove(0),
        other => panic!("{other:?}"),
    }
}

/// A push and an acknowledgement whose answers were lost are recognised after far more chunks were handled than were once remembered, and
/// after a restart from a checkpoint or from the log. Then both callers say that they have their answers: nothing is remembered, and what
/// still comes of the push is not stored.
#[test]
fn recognised_as_long_as_they_are_asked() {
    for checkpoint in [false, true] {
        let device = SimDevice::new(1, SimFaults::default());
        let (mut world, _) = World::open(&device, &small(64 * MIB)).expect("opened");
        let lost = name(PUSHER, 1);
        push(&mut world, lost, 1).expect("pushed");
        acknowledge(&mut world, lost, 1, 1).expect("acknowledged");
        for number in 1..=5000 {
            let chunk = name(OTHER, number);
            push(&mut world, chunk, number).expect("pushed");
            // Of the puller's other messages the answers come; the first one's does not.
            acknowledge(&mut world, chunk, 2, 1).expect("acknowledged");
        }
        if checkpoint {
            world.engine.want_checkpoint();
            world.settle();
        }
        for life in 0..3 {
            assert_eq!(push(&mut world, lost, 1), Ok(Reply::Appended { length: 16 }), "life {life}");
            assert!(world.read_all(lost).is_err(), "it did not come back in life {life}");
            assert_eq!(acknowledge(&mut world, lost, 1, 1), Ok(()), "life {life}");
            assert_eq!(world.engine.bag_stat(BagId(1)).pushed, 5001, "life {life}");
            device.crash();
            world = World::open(&device, &small(64 * MIB)).expect("opened").0;
        }
        push(&mut world, name(PUSHER, 2), 2).expect("pushed");
        acknowledge(&mut world, name(PUSHER, 2), 9, 9).expect("acknowledged");
        let error = push(&mut world, lost, 1).expect_err("it was answered, its pusher says");
        assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
        assert_eq!(acknowledge(&mut world, lost, 10, 10).map_err(|error| error.kind()), Err(ErrorKind::NotFound));
    }
}

/// Entries that both callers have passed are not written to checkpoints, nor do they come back with the log: what is remembered is
/// bounded by what is asked, not by what was handled.
#[test]
fn passed_ones_are_not_kept() {
    let device = SimDevice::new(1, SimFaults::default());
    let (mut world, _) = World::open(&device, &small(64 * MIB)).expect("opened");
    for number in 1..=3000 {
        push(&mut world, name(PUSHER, number), number).expect("pushed");
        acknowledge(&mut world, name(PUSHER, number), number, number).expect("acknowledged");
    }
    device.crash();
    let (world, _) = World::open(&device, &small(64 * MIB)).expect("opened");
    let known = (1..=3000).filter(|number| world.engine.knows(name(PUSHER, *number))).count();
    assert!(known <= 1, "{known} are remembered");
    let mut world = world;
    world.engine.forget_sessions(&[PUSHER, PULLER]);
    assert_eq!(world.engine.sessions(None, 10), Vec::<u64>::new());
}

/// A push that was refused stays refused, whatever still comes of it and whatever becomes possible meanwhile: its pusher takes the chunk
/// elsewhere.
#[test]
fn refused_ones_stay_refused() {
    let device = SimDevice::new(1, SimFaults::default());
    let (mut world, _) = World::open(&device, &small(64 * MIB)).expect("opened");
    world.call(Request::SealBag { bag: BagId(1), epoch: 3 }).expect("sealed");
    let chunk = name(PUSHER, 1);
    assert_eq!(push(&mut world, chunk, 1).map_err(|error| error.kind()), Err(ErrorKind::Stale));
    world.call(Request::DropBag { bag: BagId(1) }).expect("dropped");
    push(&mut world, name(PUSHER, 2), 1).expect("it takes chunks again");
    assert_eq!(push(&mut world, chunk, 1).map_err(|error| error.kind()), Err(ErrorKind::Stale));
    world.engine.heard_push(name(PUSHER, 3), 1).expect("heard");
    world.engine.refuse_push(name(PUSHER, 3));
    assert_eq!(push(&mut world, name(PUSHER, 3), 1).map_err(|error| error.kind()), Err(ErrorKind::Stale));
}

/// Fills a device with pushes until one waits for room: its name, and the tag of its request.
fn parked(world: &mut World) -> (ChunkId, u64) {
    let content = Bytes::from(vec![7; MIB as usize]);
    for number in 1..64 {
        let chunk = name(PUSHER, number);
        world.engine.heard_push(chunk, 1).expect("heard");
        let tag = world.submit(append(BAG, chunk, 0, &content, Level::Synced, true));
        world.settle();
        if world.replies.remove(&tag).is_none() {
            return (chunk, tag);
        }
    }
    panic!("it is never full");
}

/// A push that waits for room is known, so that nobody takes it elsewhere; once the bag is sealed, as on a device that leaves it, it is
/// refused and nothing of it is stored, however much room comes.
#[test]
fn parked_ones_are_known() {
    let device = SimDevice::new(1, SimFaults::default());
    let (mut world, _) = World::open(&device, &small(24 * MIB)).expect("opened");
    let (chunk, tag) = parked(&mut world);
    assert!(world.engine.knows(chunk) && !world.engine.holds(chunk));
    world.call(Request::SealBag { bag: BagId(1), epoch: 3 }).expect("sealed");
    world.settle();
    let error = world.replies.remove(&tag).expect("it has an answer").expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
    assert!(!world.engine.knows(chunk));
    world.call(Request::DropBag { bag: BagId(1) }).expect("dropped");
    assert_eq!(push(&mut world, chunk, 1).map_err(|error| error.kind()), Err(ErrorKind::Stale));
}

/// A push that waited for room in vain is refused for good: its pusher takes the chunk elsewhere, and a copy of it that comes when there is
/// room again is not stored.
#[test]
fn waited_in_vain() {
    let device = SimDevice::new(1, SimFaults::default());
    let (mut world, _) = World::open(&device, &small(24 * MIB)).expect("opened");
    let (chunk, tag) = parked(&mut world);
    world.later(FULL_WAIT);
    world.settle();
    let error = world.replies.remove(&tag).expect("it has an answer").expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    world.call(Request::DropBag { bag: BagId(1) }).expect("dropped");
    assert_eq!(push(&mut world, chunk, 1).map_err(|error| error.kind()), Err(ErrorKind::Stale));
}

/// The copy of a push that was handled waits, for room or for its turn, when its session is over and all is forgotten that was remembered
/// of it: it is refused, and not stored when there is room.
#[test]
fn parked_ones_end_with_their_session() {
    for length in [5000, MIB as usize] {
        let (stored, answer) = parked_at_the_end(length, None);
        assert!(!stored, "handled, and here again");
        assert_eq!(answer.map_err(|error| error.kind()), Err(ErrorKind::Stale));
        assert!(parked_at_the_end(length, Some(Planted::WaitingPushOutlivesSession)).0, "this test sees nothing");
    }
}

/// Whether the copy was stored, and what it was answered.
fn parked_at_the_end(length: usize, planted: Option<Planted>) -> (bool, Result<Reply>) {
    let device = SimDevice::new(1, SimFaults::default());
    let (mut world, _) = World::open(&device, &Settings { planted, ..small(24 * MIB) }).expect("opened");
    let (first, content) = (name(OTHER, 1), Bytes::from(vec![9; length]));
    world.engine.heard_push(first, 1).expect("heard");
    world.call(append(BAG, first, 0, &content, Level::Synced, true)).expect("pushed");
    acknowledge(&mut world, first, 1, 1).expect("acknowledged");
    let (_, blocked) = parked(&mut world);
    let copy = world.submit(append(BAG, first, 0, &content, Level::Synced, true));
    world.settle();
    assert!(!world.replies.contains_key(&copy), "it waits behind the other one");
    world.engine.forget_sessions(&[OTHER, PULLER]);
    for number in 1..5 {
        acknowledge(&mut world, name(PUSHER, number), 1, 1).expect("acknowledged");
    }
    for _ in 0..3 {
        world.engine.want_checkpoint();
        world.settle();
    }
    assert!(world.replies.remove(&blocked).is_some_and(|result| result.is_ok()), "there is room");
    (world.engine.holds(first), world.replies.remove(&copy).expect("it has an answer"))
}

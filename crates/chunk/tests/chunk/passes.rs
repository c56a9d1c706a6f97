//! Passes of bags: what retains is handled once in each, over kills and power losses; what is over is refused.

use crate::world::{World, bytes, kind, small};
use base::error::ErrorKind;
use base::id::{BagId, ChunkId, Owner};
use base::unit::MIB;
use chunk::{Reply, Request};
use sim::disk::{SimDevice, SimFaults};
use sim::random::SimRandom;

const BAG: BagId = BagId(6);

fn acknowledge(world: &mut World, chunk: u128, grant: u64, pass: u32) -> base::error::Result<()> {
    match world.call(Request::Acknowledge { chunks: vec![(ChunkId(chunk), grant)], pass, retain: false, by: None }) {
        Ok(Reply::Acknowledged { mut results }) => results.remove(0),
        other => panic!("{other:?}"),
    }
}

fn stale(result: base::error::Result<()>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::Stale)
}

/// The chunks of the bag that its present pass still wants handled.
fn wanted(world: &World) -> Vec<u128> {
    let chunks = world.engine.chunks_of(BAG);
    chunks.filter(|(chunk, _, _)| world.engine.wants_handling(*chunk)).map(|(chunk, _, _)| chunk.0).collect()
}

/// How a process ends in these tests.
#[derive(Clone, Copy, Debug)]
enum End {
    Kill,
    PowerLoss,
    /// A kill right after a checkpoint, so that nothing is replayed.
    AfterCheckpoint,
}

fn restarted(mut world: World, end: End) -> World {
    if let End::AfterCheckpoint = end {
        world.engine.want_checkpoint();
        world.settle();
    }
    let device = world.device.clone();
    drop(world);
    match end {
        End::PowerLoss => device.crash(),
        End::Kill | End::AfterCheckpoint => device.kill(),
    }
    World::open(&device, &small(32 * MIB)).expect("opened").0
}

/// In each pass one acknowledgement of each chunk is accepted; the same one asked again is, another is not; the chunks stay
/// readable, and a push that is asked again does not come back. All of it whatever happens between.
#[test]
fn retained() {
    for end in [End::Kill, End::PowerLoss, End::AfterCheckpoint] {
        let device = SimDevice::new(1, SimFaults::default());
        let (mut world, _) = World::open(&device, &small(32 * MIB)).expect("opened");
        let content = bytes(&SimRandom::new(1), 100_000);
        assert_eq!(world.call(Request::BagPass { bag: BAG, pass: 0, retain: true }), Ok(Reply::Done));
        for chunk in 1..=3 {
            world.push(Owner::Bag(BAG), chunk, &content).expect("pushed");
        }
        for pass in 0..3u32 {
            world = restarted(world, end);
            assert_eq!(wanted(&world), [1, 2, 3], "{end:?}, pass {pass}");
            let grant = |chunk: u128| 100 * u64::from(pass) + chunk as u64;
            for chunk in 1..=2 {
                assert_eq!(acknowledge(&mut world, chunk, grant(chunk), pass), Ok(()), "{end:?}, pass {pass}");
            }
            world = restarted(world, end);
            assert_eq!(wanted(&world), [3], "{end:?}, pass {pass}");
            assert_eq!(acknowledge(&mut world, 1, grant(1), pass), Ok(()), "asked again: {end:?}, pass {pass}");
            assert!(stale(acknowledge(&mut world, 1, 9999, pass)), "{end:?}, pass {pass}");
            assert!(stale(acknowledge(&mut world, 3, 9999, pass + 1)), "a pass to come: {end:?}, pass {pass}");
            let stat = world.engine.bag_stat(BAG);
            assert_eq!((stat.pushed, stat.acknowledged, stat.pass, stat.retain), (3, 2, pass, true), "{end:?}");
            world.push(Owner::Bag(BAG), 2, &content).expect("pushed long ago");
            assert_eq!(wanted(&world), [3], "{end:?}, pass {pass}");
            assert_eq!(world.read_all(ChunkId(2)).expect("it stays"), content);
            assert_eq!(world.call(Request::BagPass { bag: BAG, pass: pass + 1, retain: true }), Ok(Reply::Done));
            assert!(stale(acknowledge(&mut world, 3, 7, pass)), "it is over: {end:?}, pass {pass}");
        }
        assert_eq!(world.call(Request::DropBag { bag: BAG }), Ok(Reply::Done));
        assert_eq!(world.engine.usage().chunks, 0, "{end:?}");
    }
}

/// A device that was never told that a bag retains learns it from those who acknowledge: the chunks stay, also after power losses.
#[test]
fn told_by_consumers() {
    for end in [End::Kill, End::PowerLoss, End::AfterCheckpoint] {
        let device = SimDevice::new(3, SimFaults::default());
        let (mut world, _) = World::open(&device, &small(32 * MIB)).expect("opened");
        let content = bytes(&SimRandom::new(3), 100_000);
        for chunk in 1..=2 {
            world.push(Owner::Bag(BAG), chunk, &content).expect("pushed");
        }
        let told = Request::Acknowledge { chunks: vec![(ChunkId(1), 5)], pass: 0, retain: true, by: None };
        assert_eq!(world.call(told), Ok(Reply::Acknowledged { results: vec![Ok(())] }));
        world = restarted(world, end);
        assert_eq!(wanted(&world), [2], "{end:?}");
        assert_eq!(world.read_all(ChunkId(1)).expect("it stays"), content);
        assert_eq!(acknowledge(&mut world, 2, 6, 0), Ok(()), "whoever says nothing of it changes nothing");
        assert_eq!(world.call(Request::BagPass { bag: BAG, pass: 1, retain: false }), Ok(Reply::Done));
        assert_eq!(wanted(&world), [1, 2], "{end:?}");
    }
}

/// A bag that gives its chunks away is rewound to those that nobody acknowledged; what was accepted before stays accepted.
#[test]
fn consumed() {
    for end in [End::Kill, End::PowerLoss, End::AfterCheckpoint] {
        let device = SimDevice::new(2, SimFaults::default());
        let (mut world, _) = World::open(&device, &small(32 * MIB)).expect("opened");
        let content = bytes(&SimRandom::new(2), 100_000);
        for chunk in 1..=2 {
            world.push(Owner::Bag(BAG), chunk, &content).expect("pushed");
        }
        assert_eq!(acknowledge(&mut world, 1, 5, 0), Ok(()));
        assert_eq!(world.call(Request::BagPass { bag: BAG, pass: 1, retain: false }), Ok(Reply::Done));
        world = restarted(world, end);
        assert_eq!(wanted(&world), [2], "{end:?}");
        assert_eq!(acknowledge(&mut world, 1, 5, 0), Ok(()), "asked again: {end:?}");
        assert!(stale(acknowledge(&mut world, 2, 6, 0)), "{end:?}");
        assert_eq!(world.call(Request::BagPass { bag: BAG, pass: 0, retain: false }), Ok(Reply::Done), "no way back");
        assert_eq!(acknowledge(&mut world, 2, 6, 1), Ok(()), "{end:?}");
        assert_eq!(world.read_all(ChunkId(2)).map_err(|error| error.kind()), Err(ErrorKind::NotFound));
        assert_eq!(kind(&world.push(Owner::Bag(BAG), 2, &content)), None);
        assert_eq!(wanted(&world), [], "a push asked again does not come back: {end:?}");
    }
}

/// A device that comes back into a bag which it has left takes chunks again. The order for that may come late, or twice, when chunks have
/// come since: they stay, and so do those of a bag that is sealed.
#[test]
fn late_returns_take_no_chunks() {
    let device = SimDevice::new(4, SimFaults::default());
    let (mut world, _) = World::open(&device, &small(32 * MIB)).expect("opened");
    let content = bytes(&SimRandom::new(4), 100_000);
    world.push(Owner::Bag(BAG), 1, &content).expect("pushed");
    assert_eq!(acknowledge(&mut world, 1, 1, 0), Ok(()));
    assert_eq!(world.call(Request::SealBag { bag: BAG, epoch: 1 }), Ok(Reply::Done), "it leaves");
    assert!(stale(world.push(Owner::Bag(BAG), 2, &content).map(drop)));
    for chunk in 3..5 {
        assert_eq!(world.call(Request::ReadmitBag { bag: BAG }), Ok(Reply::Done));
        world.push(Owner::Bag(BAG), chunk, &content).expect("it takes chunks again");
    }
    assert_eq!(world.call(Request::SealBag { bag: BAG, epoch: 2 }), Ok(Reply::Done), "the bag is sealed");
    assert_eq!(world.call(Request::ReadmitBag { bag: BAG }), Ok(Reply::Done));
    for chunk in 3..5 {
        assert_eq!(world.read_all(ChunkId(chunk)).expect("it is there"), content);
    }
    assert!(stale(world.push(Owner::Bag(BAG), 5, &content).map(drop)));
}

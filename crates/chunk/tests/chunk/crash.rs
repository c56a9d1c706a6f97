//! A scripted workload that is stopped at every single change of the device.

use crate::world::{World, append, append_cell, bytes, newest_checkpoint, restless, small, stands_for};
use base::id::{BagId, ChunkId, Generation, GroupId, Owner};
use base::policy::Level;
use base::unit::MIB;
use chunk::{Reply, Request};
use sim::disk::{SimDevice, SimFaults, When};
use sim::random::SimRandom;
use std::time::Duration;

const FILE: Owner = Owner::Group(GroupId(1));
const BAG: Owner = Owner::Bag(BagId(2));

/// What the script had acknowledged before it was stopped: (chunk, its bytes) and those that are gone.
#[derive(Default)]
struct Acknowledged {
    present: Vec<(ChunkId, Vec<u8>)>,
    gone: Vec<ChunkId>,
}

/// Runs the script until its end or until the device stops.
fn script(world: &mut World, seed: u64) -> Acknowledged {
    let random = SimRandom::new(seed);
    let mut acknowledged = Acknowledged::default();
    let mut tail = Vec::new();
    for round in 0..4u128 {
        let big = bytes(&random, 70_000);
        if !matches!(world.try_call(append(BAG, ChunkId(10 + round), 0, &big, Level::Synced, true)), Some(Ok(_))) {
            return acknowledged;
        }
        acknowledged.present.push((ChunkId(10 + round), big.to_vec()));
        let small = bytes(&random, 3000);
        let add = append(FILE, ChunkId(1), tail.len() as u64, &small, Level::Synced, false);
        if !matches!(world.try_call(add), Some(Ok(_))) {
            return acknowledged;
        }
        tail.extend_from_slice(&small);
        acknowledged.present.retain(|(id, _)| *id != ChunkId(1));
        acknowledged.present.push((ChunkId(1), tail.clone()));
        let compressed = bytes(&random, 9000);
        let add = append(FILE, ChunkId(1), tail.len() as u64, &compressed, Level::Synced, false);
        let add = append_cell(ChunkId(1), (tail.len() as u64, 80_000 / 4096 * 4096), &compressed, add);
        if !matches!(world.try_call(add), Some(Ok(_))) {
            return acknowledged;
        }
        tail.extend(stands_for(&compressed, 80_000 / 4096 * 4096));
        acknowledged.present.retain(|(id, _)| *id != ChunkId(1));
        acknowledged.present.push((ChunkId(1), tail.clone()));
        if round == 1 {
            world.engine.want_checkpoint();
            let id = ChunkId(10);
            acknowledged.present.retain(|(known, _)| *known != id);
            if !matches!(
                world.try_call(Request::Acknowledge { chunks: vec![(id, 5)], pass: 0, retain: false, by: None }),
                Some(Ok(_))
            ) {
                return acknowledged;
            }
            acknowledged.gone.push(id);
        }
        if round == 2 {
            let id = ChunkId(11);
            acknowledged.present.retain(|(known, _)| *known != id);
            if !matches!(world.try_call(Request::Delete { chunks: vec![id] }), Some(Ok(_))) {
                return acknowledged;
            }
            acknowledged.gone.push(id);
        }
    }
    let seal = Request::Seal { chunk: ChunkId(1), generation: Generation(1), length: tail.len() as u64 };
    if let Some(result) = world.try_call(seal) {
        assert!(matches!(result, Ok(Reply::Sealed { .. })), "{result:?}");
    }
    acknowledged
}

/// Stopped at any write, sync, creation, removal or punch, the device holds what was acknowledged, and nothing that is gone.
#[test]
fn stopped_at_every_change() {
    for (power, settings) in
        [(false, small(32 * MIB)), (true, small(32 * MIB)), (false, restless(32 * MIB)), (true, restless(32 * MIB))]
    {
        for crash_at in 0.. {
            let faults = SimFaults { crash_at: Some(crash_at), ..SimFaults::default() };
            let device = SimDevice::new(crash_at, faults);
            let acknowledged = match World::open(&device, &settings) {
                Ok((mut world, _)) => script(&mut world, crash_at),
                Err(_) => Acknowledged::default(),
            };
            let finished = !device.crashed();
            device.set_faults(SimFaults::default());
            if power {
                device.crash()
            } else {
                device.kill()
            }
            // The second time after a power loss, which takes back what a process that was killed had written and nobody synced.
            for again in [false, true] {
                let when = format!("crash at {crash_at}, power {power}, again {again}");
                let (mut world, opened) =
                    World::open(&device, &settings).unwrap_or_else(|error| panic!("{when}: {error}"));
                assert!(opened.rot.is_empty(), "{when}: {:?}", opened.rot);
                for (id, bytes) in &acknowledged.present {
                    let got = world.read_all(*id).unwrap_or_else(|error| panic!("{when}: {error}"));
                    assert!(got.starts_with(bytes), "{when}: wrong bytes of {id}");
                }
                for id in &acknowledged.gone {
                    assert!(world.read_all(*id).is_err(), "{when}: {id} is back");
                }
                drop(world);
                device.crash();
            }
            if finished {
                assert!(crash_at > 20, "the script made only {crash_at} changes");
                break;
            }
        }
    }
}

/// A chunk that is deleted and made again in the moment of a checkpoint, while a journal group is under way, is there after a
/// power loss: what is in the checkpoint is not replayed over it.
#[test]
fn made_again_at_a_checkpoint() {
    let (device, random) = (SimDevice::new(1, SimFaults::default()), SimRandom::new(1));
    let (mut world, _) = World::open(&device, &small(32 * MIB)).expect("opened");
    let (old, new, little) = (bytes(&random, 70_000), bytes(&random, 80_000), bytes(&random, 100));
    world.push(FILE, 7, &old).expect("pushed");
    world.submit(append(FILE, ChunkId(1), 0, &little, Level::Synced, false));
    world.effects();
    world.submit(Request::Delete { chunks: vec![ChunkId(7)] });
    world.submit(append(FILE, ChunkId(7), 0, &new, Level::Synced, true));
    world.engine.want_checkpoint();
    world.settle();
    device.crash();
    let (mut world, opened) = World::open(&device, &small(32 * MIB)).expect("opened");
    assert_eq!(opened.rot, Vec::<String>::new());
    assert_eq!(world.read_all(ChunkId(7)).expect("read"), new);
    assert_eq!(world.read_all(ChunkId(1)).expect("read"), little);
}

/// A checkpoint holds nothing that a power loss takes back: bytes that nobody asked to be synced are synced before it counts.
#[test]
fn only_what_is_durable_is_kept() {
    // What a power loss leaves of unsynced writes differs from seed to seed.
    for seed in 0..16 {
        let (device, random) = (SimDevice::new(seed, SimFaults::default()), SimRandom::new(seed));
        let (mut world, _) = World::open(&device, &small(32 * MIB)).expect("opened");
        let big = bytes(&random, 200_000);
        world.call(append(FILE, ChunkId(1), 0, &big, Level::Received, false)).expect("received");
        world.engine.want_checkpoint();
        while newest_checkpoint(&device).is_none() {
            assert!(world.turn(), "there was no checkpoint");
        }
        device.crash();
        let (mut world, opened) = World::open(&device, &small(32 * MIB)).expect("opened");
        assert_eq!(opened.rot, Vec::<String>::new(), "seed {seed}");
        let got = world.read_all(ChunkId(1));
        assert!(got.is_ok_and(|got| got == big), "seed {seed}: what was durable before the checkpoint is not there");
    }
}

/// A checkpoint that fails in the middle is taken again, and what it was of is in the next one.
#[test]
fn failed_checkpoints_are_taken_again() {
    for write in 0..60 {
        let (device, random) = (SimDevice::new(write, SimFaults::default()), SimRandom::new(write));
        let (mut world, _) = World::open(&device, &restless(32 * MIB)).expect("opened");
        let before = device.operations().writes;
        device.set_faults(SimFaults { write_error: When::Nth(before + write), ..SimFaults::default() });
        let mut all = Vec::new();
        for id in 0..16 {
            let content = bytes(&random, 30_000);
            world.push(BAG, id, &content).unwrap_or_else(|error| panic!("write {write}: {error}"));
            all.push(content);
            if id % 4 == 3 {
                // A refused checkpoint is tried again after a second.
                world.later(Duration::from_secs(2));
                world.settle();
            }
        }
        device.crash();
        let (mut world, opened) = World::open(&device, &restless(32 * MIB)).expect("opened");
        assert_eq!(opened.rot, Vec::<String>::new(), "write {write}");
        for (id, content) in all.iter().enumerate() {
            let got = world.read_all(ChunkId(id as u128)).unwrap_or_else(|error| panic!("write {write}: {error}"));
            assert_eq!(got, *content, "write {write}");
        }
    }
}

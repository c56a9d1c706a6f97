//! A scripted workload that is stopped at every single change of the device.

use crate::world::{World, append, bytes, restless, small};
use base::id::{BagId, ChunkId, Generation, GroupId, Owner};
use base::policy::Level;
use base::unit::MIB;
use chunk::{Reply, Request};
use sim::disk::{SimDevice, SimFaults};
use sim::random::SimRandom;

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
        if round == 1 {
            world.engine.want_checkpoint();
            let id = ChunkId(10);
            acknowledged.present.retain(|(known, _)| *known != id);
            if !matches!(world.try_call(Request::Acknowledge { chunks: vec![(id, 5)], pass: 0 }), Some(Ok(_))) {
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
            let (mut world, opened) = World::open(&device, &settings)
                .unwrap_or_else(|error| panic!("crash at {crash_at}, power {power}: {error}"));
            assert!(opened.rot.is_empty(), "crash at {crash_at}, power {power}: {:?}", opened.rot);
            for (id, bytes) in &acknowledged.present {
                let got =
                    world.read_all(*id).unwrap_or_else(|error| panic!("crash at {crash_at}, power {power}: {error}"));
                assert!(got.starts_with(bytes), "crash at {crash_at}, power {power}: wrong bytes of {id}");
            }
            for id in &acknowledged.gone {
                assert!(world.read_all(*id).is_err(), "crash at {crash_at}, power {power}: {id} is back");
            }
            if finished {
                assert!(crash_at > 20, "the script made only {crash_at} changes");
                break;
            }
        }
    }
}

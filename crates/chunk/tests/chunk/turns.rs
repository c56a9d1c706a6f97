//! Whose turn it is when much is to be written.

use crate::world::{World, append, bytes, small};
use base::id::{ChunkId, GroupId, Owner};
use base::policy::Level;
use base::unit::{KIB, MIB};
use chunk::Settings;
use sim::disk::{SimDevice, SimFaults};
use sim::random::SimRandom;
use std::time::Duration;

const STREAM: Owner = Owner::Group(GroupId(1));
const SMALL: Owner = Owner::Group(GroupId(2));
const PIECES: u64 = 32;

/// A small append that must be durable is answered while most of a stream that came before it still waits; every piece of the
/// stream is answered in the end, also a small last one that came behind the large ones of its chunk.
#[test]
fn a_small_append_passes_a_stream() {
    let (device, random) = (SimDevice::new(1, SimFaults::default()), SimRandom::new(1));
    // Neither checkpoints nor new segments make syncs of their own here.
    let settings = Settings { checkpoint_bytes: 1 << 30, data_segment: 64 * MIB, ..small(512 * MIB) };
    let (mut world, _) = World::open(&device, &settings).expect("opened");
    // At rest first: neither the first segment nor the first checkpoint is what is waited for.
    world.push(SMALL, 9, &bytes(&random, 1000)).expect("pushed");
    let content: Vec<_> = (0..PIECES).map(|_| bytes(&random, MIB as usize)).collect();
    let mut stream = Vec::new();
    for (place, piece) in content.iter().enumerate() {
        stream.push(world.submit(append(STREAM, ChunkId(1), place as u64 * MIB, piece, Level::Written, false)));
    }
    let last = bytes(&random, 5000);
    stream.push(world.submit(append(STREAM, ChunkId(1), PIECES * MIB, &last, Level::Written, true)));
    let small = bytes(&random, 64 * KIB as usize);
    let tag = world.submit(append(SMALL, ChunkId(2), 0, &small, Level::Synced, true));
    while !world.replies.contains_key(&tag) {
        assert!(world.turn(), "the small append is never answered");
    }
    let before = stream.iter().filter(|tag| world.replies.contains_key(tag)).count();
    assert!(before <= 12, "{before} pieces of the stream were written before the small append was durable");
    world.settle();
    for tag in stream.into_iter().chain([tag]) {
        world.replies.remove(&tag).expect("an answer").expect("appended");
    }
    let whole = [content.concat(), last.to_vec()].concat();
    assert_eq!(world.read_all(ChunkId(1)).expect("read"), whole);
    assert_eq!(world.read_all(ChunkId(2)).expect("read"), small);
}

/// On a slow disk who waits for a sync waits for what is written in 100 ms, and not until a stream of others has an end.
#[test]
fn a_slow_disk_is_synced_in_time() {
    let (device, random) = (SimDevice::new(2, SimFaults::default()), SimRandom::new(2));
    let settings = Settings { checkpoint_bytes: 1 << 30, data_segment: 64 * MIB, ..small(512 * MIB) };
    let (mut world, _) = World::open(&device, &settings).expect("opened");
    world.push(SMALL, 100, &bytes(&random, 1000)).expect("pushed");
    let pushed: Vec<u64> = (0..20)
        .map(|number| {
            let chunk = bytes(&random, MIB as usize);
            world.submit(append(STREAM, ChunkId(number), 0, &chunk, Level::Synced, true))
        })
        .collect();
    while !world.replies.contains_key(&pushed[0]) {
        assert!(world.turn(), "the first is never answered");
        world.later(Duration::from_millis(20));
    }
    let answered = pushed.iter().filter(|tag| world.replies.contains_key(tag)).count();
    assert!(answered < 15, "{answered} of 20 were written before the first was answered");
    world.settle();
    assert!(pushed.iter().all(|tag| matches!(world.replies.get(tag), Some(Ok(_)))));
}

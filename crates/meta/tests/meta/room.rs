//! The log's room: whatever it took can be merged, and frees it; and no start takes it away.

use crate::stored::{Merged, merged_of, put_into_tree};
use crate::world::{World, mkdir, small_file, stat};
use base::disk::{Disk, FileKind, Op, wait};
use base::error::ErrorKind;
use base::id::SessionId;
use base::limit::SESSION_LEASE;
use base::unit::MIB;
use meta::request::User;
use meta::{Caller, Request};
use prost::Message;
use sim::disk::{SimFaults, When};
use std::time::Duration;

/// A log of which no more segments can be made takes what has room, says that it is full, and goes on after each merge; nothing that it took is in the
/// way of merging.
#[test]
fn a_log_that_cannot_grow_goes_on() {
    let mut world = World::new(1);
    world.device.set_faults(SimFaults { no_room_for: Some(FileKind::Log), ..SimFaults::default() });
    let mut made = 0;
    for round in 0..30 {
        let mut taken = 0;
        let refused = loop {
            let name = |place: usize| format!("/{}{round}-{taken}-{place}", "n".repeat(200));
            // Several wait while one is on its way.
            let files = |from| (from..from + 100).map(|place| small_file(&name(place))).collect();
            let tags = [0, 100, 200].map(|from| world.submit(Request::PutFiles { files: files(from) }));
            world.run();
            let answers = tags.map(|tag| world.replies.remove(&tag).expect("answered"));
            taken += answers.iter().filter(|answer| answer.is_ok()).count();
            if let Some(refused) = answers.into_iter().find_map(|answer| answer.err()) {
                break refused;
            }
            assert!(taken < 1000, "the log has no end");
        };
        assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");
        assert!(taken > 0, "round {round}");
        made += taken;
        world.merge();
        assert!(world.store().is_quiet() && world.store().in_service().is_ok(), "round {round}");
        if round % 10 == 9 {
            world.crash(round);
        }
    }
    assert!(made > 60, "{made}");
}

/// Fills the log of a store that merges nothing.
fn fill(world: &mut World) {
    for round in 0.. {
        let files = (0..20).map(|place| small_file(&format!("/{}{round}-{place}", "n".repeat(200)))).collect();
        match world.ask(Request::PutFiles { files }) {
            Err(error) => return assert_eq!(error.kind(), ErrorKind::Full, "{error}"),
            Ok(_) => assert!(round < 10_000, "the log has no end"),
        }
    }
}

/// However often a start fails because the tree cannot be written, and however full the log is: the first one after that opens the store.
#[test]
fn failed_starts_take_no_room() {
    let mut world = World::new(1);
    world.ask(mkdir("/acknowledged")).expect("made");
    fill(&mut world);
    world.power_off(1);
    for start in 0..300 {
        world.file.error_at(Some(world.file.changes()));
        let error = world.try_open().expect_err("the tree cannot be written");
        assert!(error.text().contains("tree"), "start {start}: {error}");
        world.power_off(start);
    }
    world.file.error_at(None);
    world.open();
    world.ask(stat("/acknowledged")).expect("there");
    world.ask(mkdir("/later")).expect("the log has room");
}

/// A full log of segments of another length than is asked for is opened, too.
#[test]
fn a_full_log_of_another_length() {
    let mut world = World::new(1);
    fill(&mut world);
    let names = world.dump();
    world.power_off(1);
    world.segment_length = 2 * MIB;
    world.open();
    assert_eq!(world.dump(), names);
    fill(&mut world);
    world.power_off(2);
    world.segment_length = MIB;
    world.open();
    world.ask(mkdir("/later")).expect("the log has room");
}

/// What the store does by itself waits for room in the log, too: more sessions end at once than have room in all of it.
#[test]
fn many_sessions_end_at_once() {
    let mut world = World::new(1);
    world.device.set_faults(SimFaults { no_room_for: Some(FileKind::Log), ..SimFaults::default() });
    for thousand in 0..60 {
        let open = |number: u128| {
            let caller = Caller { session: SessionId(1000 * (thousand + 1) + number), call: 0, floor: 0 };
            (caller, Request::OpenSession { user: User::default() })
        };
        let tags: Vec<u64> = (0..1000).map(open).map(|(caller, request)| world.submit_as(caller, request)).collect();
        world.run();
        tags.into_iter().for_each(|tag| drop(world.replies.remove(&tag).expect("answered").expect("opened")));
        world.merge();
    }
    world.now = world.now.after(SESSION_LEASE * 2);
    // Each turn takes one of them apart; that all of them are ended takes as many merges as the log has to be emptied.
    for _ in 0..100 {
        let (now, wall) = (world.now, world.wall);
        world.store().tick(now, wall);
        for _ in 0..2 {
            if let Some(job) = world.store().merge_job(now) {
                world.merge_with(job);
            }
            world.run();
        }
        world.now = now.after(Duration::from_secs(6));
    }
    assert!(world.store().in_service().is_ok());
    world.ask(Request::OpenSession { user: User::default() }).expect("the log has room");
}

/// A store that has no room for two segments of its log is not begun: the one could never come free.
#[test]
fn one_segment_is_not_enough() {
    let mut world = World::new(1);
    world.power_off(1);
    world.device = sim::disk::SimDevice::new(1, SimFaults { capacity: Some(MIB + (64 << 10)), ..SimFaults::default() });
    world.file = sim::file::SimFileDevice::new();
    let refused = world.try_open().expect_err("no room");
    assert!(refused.text().contains("make room"), "{refused}");
    world.power_off(2);
    world.device.set_faults(SimFaults::default());
    world.try_open().expect("there is room now");
}

/// A store whose log or votes are gone is not begun anew: what was acknowledged may have been in them.
#[test]
fn a_lost_log_is_said() {
    for kinds in [&[FileKind::Log][..], &[FileKind::Vote], &[FileKind::Log, FileKind::Vote]] {
        let mut world = World::new(1);
        world.merge();
        world.ask(mkdir("/acknowledged")).expect("made");
        world.power_off(1);
        lose(&world, kinds);
        let refused = world.try_open().expect_err("something is lost");
        assert_eq!(refused.kind(), ErrorKind::Corrupt, "{kinds:?}: {refused}");
    }
}

fn lose(world: &World, kinds: &[FileKind]) {
    let mut disk = world.device.attach();
    for (file, _) in world.device.files().into_iter().filter(|(file, _)| kinds.contains(&file.kind)) {
        wait(&mut disk as &mut dyn Disk, Op::Remove { file }).expect("removed");
    }
    drop(disk);
    world.device.kill();
}

/// Numbers that no log has are damage, and end nothing.
#[test]
fn impossible_places_in_the_log() {
    for (index, term) in [(u64::MAX, 1), (5, u64::MAX), (u64::MAX / 2, u64::MAX / 2), (0, 0)] {
        let mut world = World::new(1);
        world.power_off(1);
        let merged = Merged { index, term, ..merged_of(&world) };
        put_into_tree(&world, &[1], Some(&merged.encode_to_vec()));
        if let Err(refused) = world.try_open() {
            assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
        }
    }
}

/// A session that was told as begun, and is not committed when the log fails, is one when the tree has it, and nobody is told that it lives before.
#[test]
fn a_session_of_a_failed_log() {
    let mut world = World::new(1);
    drop(world.store().take_session_turns());
    world.device.set_faults(SimFaults { sync_error: When::Always, ..SimFaults::default() });
    let caller = Caller { session: SessionId(99), call: 1, floor: 0 };
    let asked = world.submit_as(caller, Request::OpenSession { user: User::default() });
    let renewed = world.submit_as(Caller { call: 2, ..caller }, Request::Renew);
    assert!(world.store().take_session_turns().contains(&(SessionId(99), true)));
    world.run();
    assert!(world.replies.remove(&asked).expect("answered").is_err(), "whether it is kept is not known");
    assert_eq!(world.replies.get(&renewed), None);
    world.merge();
    assert!(world.replies.remove(&renewed).expect("answered").is_ok(), "the tree has it");
}

/// A log that cannot be read is no torn one: the store says so, changes nothing, and has all it had when it can be read again.
#[test]
fn a_log_that_cannot_be_read_is_kept() {
    for seed in 0..30 {
        let mut world = World::new(seed);
        world.ask(mkdir("/acknowledged")).expect("made");
        world.power_off(seed);
        world.device.set_faults(SimFaults { read_error: When::OneIn(3), ..SimFaults::default() });
        for _ in 0..3 {
            drop(world.try_open());
            world.power_off(seed + 1);
        }
        world.device.set_faults(SimFaults::default());
        world.open();
        world.ask(stat("/acknowledged")).expect("it was acknowledged");
    }
}

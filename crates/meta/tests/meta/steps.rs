//! Things that are done in steps or take time: taking big trees apart, ending sessions, the end of the log, failures.

use crate::world::{SESSION, World, append, create, delete, mkdir, path, small_file, stat};
use base::disk::FileKind;
use base::error::ErrorKind;
use base::id::SessionId;
use base::limit::SESSION_LEASE;
use meta::request::{FileHandle, Limit, NewInode, Totals, User};
use meta::{Caller, Effect, Reply, Request};
use sim::disk::{SimFaults, When};
use std::time::Duration;

fn handle(reply: base::error::Result<Reply>) -> FileHandle {
    match reply {
        Ok(Reply::Handle(handle)) => handle,
        other => panic!("{other:?}"),
    }
}

/// A deleted tree is gone from its name at once and never comes back, wherever the power goes while it is taken apart.
#[test]
fn big_trees_go_in_steps() {
    for lost_at in 0..12 {
        let mut world = World::new(lost_at);
        for directory in 0..4 {
            let files = (0..150).map(|number| small_file(&format!("/t/d{directory}/e/f{number}"))).collect();
            world.ask(Request::PutFiles { files }).expect("files");
        }
        world.ask(delete("/t")).expect("deleted");
        assert_eq!(world.refusal(stat("/t")), ErrorKind::NotFound);
        for _ in 0..lost_at {
            let (now, wall) = (world.now, world.wall);
            world.store().tick(now, wall);
            world.run();
        }
        world.crash(lost_at);
        assert!(world.dump().is_empty(), "{lost_at}");
        world.ask(mkdir("/t")).expect("the name is free");
        world.pass(Duration::from_secs(1));
        let totals = Totals { files: 0, directories: 2, bytes: 0 };
        assert_eq!(world.ask(Request::Usage), Ok(Reply::Usage(totals)), "{lost_at}");
    }
}

/// What the store does by itself and cannot do is told, once for each try, with what it was for: nobody asked for it, so nobody else hears of it.
#[test]
fn failures_are_told() {
    let mut world = World::new(3);
    let files = (0..150).map(|number| small_file(&format!("/t/f{number}"))).collect();
    world.ask(Request::PutFiles { files }).expect("files");
    world.ask(delete("/t")).expect("deleted");
    world.merge();
    // What it read before it remembers.
    world.kill();
    assert!(world.store().take_failures().is_empty());
    let next = world.file.reads();
    world.file.read_error_at(Some(next));
    world.pass(Duration::from_millis(10));
    let failures = world.store().take_failures();
    let (what, error) = failures.first_key_value().expect("its disk does not read");
    assert_eq!((*what, error.kind(), failures.len()), ("taking apart what was removed", ErrorKind::Io, 1), "{error}");
    assert!(world.store().take_failures().is_empty(), "told once");
    // Opened anew it goes on.
    world.file.read_error_at(None);
    world.kill();
    world.pass(Duration::from_secs(1));
    assert!(world.store().take_failures().is_empty());
    assert_eq!(world.ask(Request::Usage), Ok(Reply::Usage(Totals { files: 0, directories: 1, bytes: 0 })));
}

/// A large directory that is being taken apart goes to its last name, whatever is asked, refused and merged between the steps.
#[test]
fn large_directories_go_whole() {
    let mut world = World::new(7);
    for page in 0..4 {
        let files = (0..250).map(|number| small_file(&format!("/t/f{page}-{number}"))).collect();
        world.ask(Request::PutFiles { files }).expect("files");
    }
    world.ask(delete("/t")).expect("deleted");
    for step in 0..10 {
        world.now = world.now.after(Duration::from_millis(2));
        let (now, wall) = (world.now, world.wall);
        world.store().tick(now, wall);
        world.run();
        match step % 3 {
            0 => assert_eq!(world.refusal(delete("/t")), ErrorKind::NotFound),
            1 => world.merge(),
            // Too many at once.
            _ => {
                let files = vec![small_file("/x/f"); 300];
                assert_eq!(world.refusal(Request::PutFiles { files }), ErrorKind::Invalid);
            }
        }
    }
    world.pass(Duration::from_secs(1));
    let totals = Totals { files: 0, directories: 1, bytes: 0 };
    assert_eq!(world.ask(Request::Usage), Ok(Reply::Usage(totals)));
    assert!(world.dump().is_empty());
}

/// Beside many requests of others a step takes several small directories, not one, and beside the node's own as much as beside none.
#[test]
fn small_directories_go_together() {
    for (session, expected) in [(SESSION, 8), (SessionId(0), 32)] {
        let mut world = World::new(8);
        for page in 0..10 {
            let files = (0..100).map(|number| small_file(&format!("/t/d{page}-{number}/f"))).collect();
            world.ask(Request::PutFiles { files }).expect("files");
        }
        world.pass(Duration::from_secs(1));
        world.ask(delete("/t")).expect("deleted");
        let directories = |world: &mut World| match world
            .ask_as(Caller { session: SessionId(0), call: 0, floor: 0 }, Request::Usage)
        {
            Some(Ok(Reply::Usage(totals))) => totals.directories,
            other => panic!("{other:?}"),
        };
        let mut steps = Vec::new();
        for _ in 0..150 {
            for _ in 0..20 {
                world.ask_as(Caller { session, call: 0, floor: 0 }, stat("/")).expect("answered").expect("there");
            }
            let before = directories(&mut world);
            world.now = world.now.after(Duration::from_millis(2));
            let (now, wall) = (world.now, world.wall);
            world.store().tick(now, wall);
            world.run();
            steps.push(before - directories(&mut world));
        }
        // The first ones go over the top, and are larger because so many names were made just before.
        steps.retain(|step| *step > 0);
        steps.sort_unstable();
        assert_eq!(steps[steps.len() / 2], expected, "{session:?}: {steps:?}");
        world.pass(Duration::from_secs(1));
        assert_eq!(directories(&mut world), 1);
    }
}

/// A session that is not renewed ends: its files keep what was synced, its leases are stale, and the node is told what to seal.
#[test]
fn sessions_end() {
    let mut world = World::new(1);
    let (file, empty) = (handle(world.ask(create("/f"))), handle(world.ask(create("/empty"))));
    let (inode, generation, group) = (file.inode, file.generation, file.group.group);
    world.ask(Request::SyncLength { inode, generation, group, length: 100 }).expect("length");
    world.pass(SESSION_LEASE / 2);
    assert_eq!(world.ask(Request::Renew), Ok(Reply::Done));
    world.pass(SESSION_LEASE * 2 / 3);
    assert!(world.ask(Request::SyncLength { inode, generation, group, length: 110 }).is_ok(), "renewed");
    world.pass(SESSION_LEASE);
    assert_eq!(world.refusal(Request::Renew), ErrorKind::Stale);
    assert_eq!(
        world.refusal(Request::Close { inode, generation, finished: None, modified: None, mode: None }),
        ErrorKind::Stale
    );
    assert_eq!(world.refusal(create("/g")), ErrorKind::Stale);
    world.crash(1);
    let Ok(Reply::FenceList { orphans, .. }) = world.ask(Request::FenceList { after: None, limit: 10 }) else {
        panic!("no list")
    };
    assert_eq!(orphans.iter().map(|orphan| orphan.inode).collect::<Vec<_>>(), [inode, empty.inode]);
    assert_eq!((orphans[0].group.group, orphans[0].length), (group, 110));
    let other = Caller { session: SessionId(8), call: 1, floor: 0 };
    world.ask_as(other, Request::OpenSession { user: User::default() }).expect("answered").expect("opened");
    let open_end = append("/f");
    let busy = world.ask_as(other, open_end.clone()).expect("answered");
    assert_eq!(busy.map_err(|error| error.kind()), Err(ErrorKind::Busy));
    for (orphan, length) in orphans.iter().zip([120, 0]) {
        let recovered =
            Request::Recovered { without: Vec::new(), inode: orphan.inode, generation: orphan.generation, length };
        assert!(
            matches!(world.ask(recovered.clone()), Ok(Reply::Attributes(file)) if file.length == length && !file.open)
        );
        assert_eq!(world.refusal(recovered), ErrorKind::Stale, "the first one counts");
    }
    let appended = handle(world.ask_as(Caller { call: 2, ..other }, open_end).expect("answered"));
    assert_eq!(appended.length, 120);
    assert!(appended.generation > orphans[0].generation);
}

/// Without merging the log fills: changes are refused with a reason, reads go on, and what was done is not said to be refused when it is
/// asked again; after merging all goes on, and nothing was lost.
#[test]
fn the_log_fills() {
    let mut world = World::new(1);
    let name = |number: usize| format!("/{}{number}", "n".repeat(200));
    let mut made = 0;
    let session = SessionId(77);
    world
        .ask_as(Caller { call: 1, session, floor: 1 }, Request::OpenSession { user: User::default() })
        .expect("told")
        .expect("opened");
    let once = Caller { call: 2, session, floor: 2 };
    world.ask_as(once, mkdir("/once")).expect("told").expect("made");
    let refused = loop {
        let files = (0..200).map(|place| small_file(&name(made * 200 + place))).collect();
        match world.submit(Request::PutFiles { files }) {
            tag if made < 1000 => {
                world.run();
                match world.replies.remove(&tag) {
                    Some(Err(error)) => break error,
                    _ => made += 1,
                }
            }
            _ => panic!("the log has no end"),
        }
    };
    assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");
    assert!(made > 20, "{made}");
    // The first change was durable long ago, the last ones wait for room.
    assert!(world.ask(stat(&name(0))).is_ok());
    world.ask_as(once, mkdir("/once")).expect("told").expect("it was done");
    world.merge();
    world.merge();
    assert!(world.store().in_service().is_ok() && world.store().is_quiet());
    world.ask(mkdir("/after")).expect("room again");
    world.crash(5);
    assert!(world.ask(stat("/after")).is_ok());
    assert!(world.ask(stat(&name(made * 200 - 1))).is_ok());
}

/// A failed sync ends changes, not reads: whoever made one is refused, and what was not committed is shown only once the tree has it: a restart may
/// find it in the log, so it is not shown undone.
#[test]
fn the_log_fails() {
    let mut world = World::new(1);
    world.ask(mkdir("/before")).expect("mkdir");
    world.device.set_faults(SimFaults { sync_error: When::Always, ..SimFaults::default() });
    let refused = world.ask(mkdir("/a")).expect_err("not synced");
    assert_eq!(refused.kind(), ErrorKind::Io, "{refused}");
    assert_eq!(world.refusal(mkdir("/b")), ErrorKind::Io);
    assert!(world.ask(stat("/before")).is_ok());
    let waiting = world.submit(stat("/a"));
    world.run();
    assert_eq!(world.replies.get(&waiting), None, "a read shows nothing that may be lost");
    let now = world.now;
    let job = world.store().merge_job(now).expect("a failed log is merged at once");
    world.merge_with(job);
    assert!(world.replies.remove(&waiting).expect("answered").is_ok());
    assert!(world.store().is_quiet());
    assert_eq!(world.refusal(mkdir("/b")), ErrorKind::Io);
    world.device.set_faults(SimFaults::default());
    for seed in [1, 2] {
        world.crash(seed);
        assert!(world.ask(stat("/a")).is_ok(), "it was shown, so it stays");
        world.ask(mkdir(&format!("/after{seed}"))).expect("a restart heals");
    }
    assert_eq!(world.dump().len(), 4);
}

/// If the tree fails, too, nothing that is not committed is shown to anybody, and nobody waits for it.
#[test]
fn the_log_fails_and_the_tree() {
    let mut world = World::new(1);
    world.ask(mkdir("/before")).expect("mkdir");
    world.device.set_faults(SimFaults { sync_error: When::Always, ..SimFaults::default() });
    let made = world.submit(mkdir("/a"));
    let seen = world.submit(stat("/a"));
    world.run();
    assert!(world.replies.remove(&made).expect("answered").is_err());
    world.file.error_at(Some(world.file.changes()));
    world.merge();
    assert!(world.replies.remove(&seen).expect("answered").is_err());
    assert_eq!(world.refusal(stat("/a")), ErrorKind::Io);
    assert!(world.ask(stat("/before")).is_ok());
}

/// An overlay is merged when all its changes are committed, and not before, whatever comes meanwhile; what comes is in the next one.
#[test]
fn what_is_not_committed_is_not_merged() {
    let mut world = World::new(1);
    world.merge();
    let before = world.submit(mkdir("/a"));
    assert!(world.store().merge_now().is_none(), "nothing of it is on the disk");
    world.step();
    let behind = world.submit(mkdir("/b"));
    let job = loop {
        assert!(!world.replies.contains_key(&behind));
        if let Some(job) = world.store().merge_now() {
            break job;
        }
        world.step();
    };
    world.merge_with(job);
    assert!(world.replies.remove(&before).is_some_and(|made| made.is_ok()));
    // The tree has the one alone: with the log gone that is what there is.
    assert!(!world.store().is_quiet());
    world.run();
    world.merge();
    assert!(world.store().is_quiet());
    world.crash(1);
    assert_eq!((world.opened.replayed, world.dump().len()), (0, 2));
}

/// A segment of the log whose name cannot be made durable ends changes as a failed sync does: what was acknowledged in it could be lost with
/// its name.
#[test]
fn the_log_has_no_names() {
    let mut world = World::new(1);
    world.device.set_faults(SimFaults { unnamed: Some(FileKind::Log), ..SimFaults::default() });
    let mut made = 0;
    let error = loop {
        assert!(made < 100_000, "no segment was made");
        match world.ask(mkdir(&format!("/{made}{}", "x".repeat(200)))) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(made > 100 && error.text().contains("cannot sync the directory"), "{made}: {error}");
    world.device.set_faults(SimFaults::default());
    assert_eq!(world.refusal(mkdir("/b")), ErrorKind::Io, "it stays so");
    world.crash(1);
    assert!((0..made).all(|number| world.ask(stat(&format!("/{number}{}", "x".repeat(200)))).is_ok()));
    world.ask(mkdir("/b")).expect("a restart heals");
}

/// A tree that cannot be written ends changes; reads go on, and a restart finds everything in the log.
#[test]
fn the_tree_fails() {
    let mut world = World::new(1);
    world.ask(mkdir("/a")).expect("mkdir");
    for distance in 0..40 {
        world.file.error_at(Some(world.file.changes() + distance));
        world.ask(mkdir(&format!("/s{distance}"))).expect("mkdir");
        world.merge();
        if world.store().in_service().is_err() {
            break;
        }
    }
    assert_eq!(world.store().in_service().map_err(|error| error.kind()), Err(ErrorKind::Io));
    assert!(world.ask(stat("/a")).is_ok());
    assert_eq!(world.refusal(mkdir("/b")), ErrorKind::Io);
    world.file.error_at(None);
    world.crash(3);
    assert!(world.ask(stat("/a")).is_ok());
    world.ask(mkdir("/b")).expect("a restart heals");
}

/// A file whose devices have less than was recorded as synced, when its writer's session has ended, keeps its length: what is missing is
/// seen by whoever reads it. What they have beyond that is kept as well.
#[test]
fn what_was_synced_keeps_its_length() {
    for (found, kept) in [(0, 110), (50, 110), (110, 110), (300, 300)] {
        let mut world = World::new(1);
        let file = handle(world.ask(create("/f")));
        let (inode, generation, group) = (file.inode, file.generation, file.group.group);
        world.ask(Request::SyncLength { inode, generation, group, length: 110 }).expect("length");
        let Ok(Reply::Orphans(orphans)) =
            world.ask(Request::Fence { inode, only_gone: false, for_holder: false, generation: None })
        else {
            panic!("a writer")
        };
        assert_eq!((orphans[0].start, orphans[0].length), (0, 110));
        let recovered =
            Request::Recovered { without: Vec::new(), inode, generation: orphans[0].generation, length: found };
        let ended = world.ask(recovered);
        assert!(matches!(&ended, Ok(Reply::Attributes(file)) if file.length == kept), "{found}: {ended:?}");
        world.crash(1);
        let locate = Request::Locate { file: meta::request::FileRef::Inode(inode), offset: 0, length: 1000 };
        let Ok(Reply::Located(located)) = world.ask(locate) else { panic!("it is there") };
        let extents: Vec<_> = located.extents.iter().map(|extent| (extent.length, extent.open)).collect();
        assert_eq!((located.attributes.length, extents), (kept, vec![(kept, false)]), "{found}");
    }
}

/// A tree that is removed while a quota below it is still being counted is taken apart, and so is everything else.
#[test]
fn a_tree_goes_while_its_quota_is_counted() {
    let mut world = World::new(1);
    for part in 0..24 {
        let files = (0..250).map(|number| small_file(&format!("/q/x/f{part}-{number}"))).collect();
        world.ask(Request::PutFiles { files }).expect("files");
        world.merge();
    }
    world.ask(mkdir("/other/y")).expect("made");
    let set = Request::SetQuota { path: path("/q"), names: Limit::Most(1 << 40), bytes: Limit::Keep };
    world.ask(set).expect("set");
    world.ask(delete("/q")).expect("deleted");
    world.ask(delete("/other")).expect("deleted");
    world.pass(Duration::from_secs(2));
    let Ok(Reply::Usage(totals)) = world.ask(Request::Usage) else { panic!("usage was asked for") };
    assert_eq!(totals, Totals { files: 0, directories: 1, bytes: 0 });
}

/// A session that is refused as over is over after a power loss, too: whoever was told so has forgotten what it asked.
#[test]
fn who_is_over_stays_over() {
    let mut world = World::new(1);
    let ask = |call| Caller { session: SessionId(99), call, floor: 0 };
    world.ask_as(ask(0), Request::OpenSession { user: User::default() }).expect("answered").expect("opened");
    drop(world.store().take_session_turns());
    world.now = world.now.after(SESSION_LEASE);
    let (now, wall) = (world.now, world.wall);
    world.store().tick(now, wall);
    // Nothing comes to the disk from here on: only what leaves at once is seen.
    let tag = world.submit_as(ask(1), mkdir("/b"));
    let told = |effect: &Effect<u64>| matches!(effect, Effect::Reply { tag: of, .. } if *of == tag);
    assert!(!world.store().take_effects(now).iter().any(told), "it is told before it is durable");
    let ended = (SessionId(99), false);
    assert!(!world.store().take_session_turns().contains(&ended), "devices are told before it is durable");
    world.crash(5);
    assert!(world.ask_as(ask(1), mkdir("/b")).expect("answered").is_ok(), "nobody was told that it is over");
    world.pass(SESSION_LEASE);
    assert!(world.store().take_session_turns().contains(&ended));
    let over = world.ask_as(ask(2), mkdir("/c")).expect("answered");
    assert_eq!(over.map_err(|error| error.kind()), Err(ErrorKind::Stale));
}

/// The end of a session with many open files that have long notes fits in the smallest log, step by step.
#[test]
fn ends_of_large_sessions() {
    let mut world = World::new(1);
    let ask = |call| Caller { session: SessionId(99), call, floor: 0 };
    world.ask_as(ask(0), Request::OpenSession { user: User::default() }).expect("answered").expect("opened");
    for number in 0..256 {
        let new = NewInode { note: vec![7; 2000], ..NewInode::with_mode(0o644) };
        let make = Request::Create {
            replicas_max: 1,
            path: path(&format!("/f{number}")),
            overwrite: false,
            parents: false,
            new,
        };
        world.ask_as(ask(number + 1), make).expect("answered").expect("made");
        world.merge();
    }
    world.pass(SESSION_LEASE);
    let nobody = Caller { session: SessionId(0), call: 0, floor: 0 };
    let fences = world.ask_as(nobody, Request::FenceList { after: None, limit: 1000 });
    let Ok(Reply::FenceList { orphans, .. }) = fences.expect("answered") else { panic!("a list was asked for") };
    assert_eq!(orphans.len(), 256);
}

//! Records of the metadata that are not what this program wrote: whatever is in them, nothing panics.

use crate::stored::{log_of, write};
use crate::world::{SESSION, World, append, create, delete, mkdir, path, stat};
use base::attributes::NewAttributes;
use base::disk::BlockFile;
use base::env::Random;
use base::error::ErrorKind;
use base::id::{DeviceId, GroupId, NodeId, SessionId};
use base::policy::{Class, Compression, Policy};
use meta::request::{Asked, FileRef, Limit, NodeInfo, User};
use meta::{Caller, Reply, Request};
use sim::random::SimRandom;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// A store with a record of each kind in its log.
fn world() -> World {
    let mut world = World::new(1);
    let node =
        NodeInfo { node: NodeId(1), incarnation: 1, name: "n".into(), address: "a:1".into(), ..NodeInfo::default() };
    let (policy, compression) = (Policy::default(), Compression::default());
    let bag = |name: &str| Request::BagCreate { name: name.into(), policy, chunk_size: 0, retain: true, compression };
    let asked = Asked { client: 9, call: 1 };
    let requests = [
        Request::NodeJoin { node },
        Request::NodeReport { node: NodeId(1), keeps: true, devices: vec![DeviceId(1), DeviceId(2)] },
        mkdir("/d/e"),
        Request::SetQuota { path: path("/d"), names: Limit::Most(90), bytes: Limit::Most(1 << 40) },
        Request::SetXattr { path: path("/d"), name: "user.a".into(), value: Some(vec![7; 20]) },
        Request::SetPolicy { path: path("/d"), policy: Policy { tier: Some(Class::Ssd), ..policy } },
        Request::SetAttributes {
            path: path("/d"),
            new: NewAttributes { note: Some(vec![8; 9]), ..Default::default() },
        },
        Request::Asked { asked, change: Box::new(mkdir("/d/asked")) },
        Request::PackGroup { policy, beside: None, replicas_max: 0, refused: Vec::new() },
        bag("b"),
        bag("gone"),
        Request::BagDelete { name: "gone".into() },
        create("/d/open"),
    ];
    for request in requests {
        world.ask(request).expect("done");
    }
    for name in ["/d/f", "/d/g"] {
        let Ok(Reply::Handle(file)) = world.ask(create(name)) else { panic!("{name} was not made") };
        let (inode, generation, finished) = (file.inode, file.generation, Some((file.group.group, 70_000)));
        world.ask(Request::Close { inode, generation, finished, modified: None, mode: None }).expect("closed");
    }
    let other = Caller { session: SessionId(8), call: 1, floor: 0 };
    world.ask_as(other, Request::OpenSession { user: User::default() }).expect("answered").expect("a session");
    world.ask(Request::Truncate { path: path("/d/g"), length: 10 }).expect("cut");
    world.ask(delete("/d/g")).expect("deleted");
    world
}

/// Asks for everything, of which any part may be refused.
fn ask_all(world: &mut World, random: &SimRandom) {
    let bytes = |random: &SimRandom| {
        let mut bytes = sim::fuzz::readable(random, 4, |_| true);
        sim::fuzz::damage(random, &mut bytes);
        Some(bytes)
    };
    let groups: Vec<GroupId> = (0..9).map(GroupId).collect();
    let requests = [
        stat("/d/f"),
        Request::Lookup { path: path("/d/e/x"), known: 0, wanted: Default::default() },
        Request::List { path: path("/d"), after: None, limit: 100, located: false, also: Vec::new() },
        Request::Locate { file: FileRef::Path(path("/d/f")), offset: 0, length: u64::MAX },
        Request::GetXattrs { path: path("/d"), name: None },
        Request::GetPolicy { path: path("/d/f") },
        Request::GetQuota { path: path("/d") },
        Request::DiskUsage { path: path("/"), resume: None },
        Request::DiskUsage { path: path("/"), resume: bytes(random) },
        Request::FilesIn { groups: groups.clone(), resume: None },
        Request::FilesIn { groups: groups.clone(), resume: bytes(random) },
        Request::KnownGroups { groups },
        Request::GroupsOn { device: DeviceId(1), after: None, limit: 100 },
        Request::Garbage { ranges_after: None, bags_after: None, limit: 100 },
        Request::FenceList { after: None, limit: 100 },
        Request::Usage,
        Request::DeviceList,
        Request::DevicesRemoved { devices: vec![DeviceId(1), DeviceId(9)] },
        Request::NodeList,
        Request::BagList { after: None, limit: 100 },
        Request::BagRewind { name: "b".into() },
        Request::Answered { asked: Asked { client: 9, call: 1 } },
        Request::Asked { asked: Asked { client: 9, call: 1 }, change: Box::new(mkdir("/d/asked")) },
        append("/d/f"),
        append("/d/open"),
        create("/d/new"),
        Request::PackGroup { policy: Policy::default(), beside: None, replicas_max: 0, refused: Vec::new() },
        Request::Truncate { path: path("/d/f"), length: 5 },
        Request::Rename { from: path("/d/e"), to: path("/e"), replace: false, removes: false },
        Request::NodeDrain { node: NodeId(1) },
        Request::BagDelete { name: "b".into() },
        delete("/d"),
        Request::CloseSession,
    ];
    for request in requests {
        drop(world.ask(request));
    }
    // Again, from memory.
    for call in 1..20 {
        drop(world.ask_as(Caller { session: SESSION, call, floor: 0 }, mkdir("/again")));
    }
    world.pass(Duration::from_secs(100));
    world.merge();
}

/// A record of any kind with other bytes in it than were written, which a checksum does not see because a program wrote them: the store opens
/// or says why not, answers or refuses what it is asked, and goes on with what it has to do by itself.
#[test]
fn fuzz_records() {
    for seed in sim::fuzz::seeds(150) {
        let random = SimRandom::new(seed);
        let mut world = world();
        world.power_off(1);
        let stored: Vec<_> = log_of(&world).into_iter().filter_map(|(_, key, value)| Some((key, value?))).collect();
        for _ in 0..=random.below(2) {
            let (key, mut value) = stored[random.below(stored.len() as u64) as usize].clone();
            (0..=random.below(2)).for_each(|_| sim::fuzz::damage(&random, &mut value));
            write(&world, &key, &value);
        }
        let attempt = catch_unwind(AssertUnwindSafe(|| {
            if world.try_open().is_ok() {
                ask_all(&mut world, &random);
                world.power_off(2);
                drop(world.try_open());
            }
        }));
        assert!(attempt.is_ok(), "seed {seed}");
    }
}

/// A tree's file that is none, or has been cut off, is damaged, which is no failure of the disk; put back it opens.
#[test]
fn a_file_that_is_no_tree() {
    let mut world = World::new(3);
    world.ask(mkdir("/a")).expect("made");
    world.power_off(4);
    let whole = world.file.peek();
    let damaged = [vec![7; 8192], whole[..whole.len() / 2].to_vec()];
    for bytes in damaged {
        world.file.open().set_length(0).expect("emptied");
        world.file.poke(0, &bytes);
        let error = world.try_open().expect_err("it is no tree");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
    world.file.open().set_length(0).expect("emptied");
    world.file.poke(0, &whole);
    world.open();
    world.ask(stat("/a")).expect("it is there");
}

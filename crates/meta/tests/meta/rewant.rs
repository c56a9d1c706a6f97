//! Data follows its policy: whatever there is below a directory, a file or a move wants as many copies as holds there now, in steps.

use crate::lacking::{self, close, devices_of, handle, lacking, repair, replicas, report, set, to_several, written};
use crate::stored;
use crate::world::{World, append, create, delete, mkdir, path, small_file, stat};
use base::attributes::NewAttributes;
use base::env::Random;
use base::error::ErrorKind;
use base::id::GroupId;
use base::planted::Planted;
use base::policy::Policy;
use meta::request::{FileHandle, FileRef, Limit, PutFile, Refused};
use meta::{Reply, Request};
use prost::Message;
use sim::random::SimRandom;
use std::collections::BTreeMap;
use std::time::Duration;

/// `GroupRecord`, as far as these tests know it.
#[derive(Clone, PartialEq, Message)]
struct Wanted {
    #[prost(uint32, tag = "20")]
    wanted: u32,
}

/// How many replicas each group wants. The store is opened anew.
fn wanted(world: &mut World) -> BTreeMap<GroupId, u32> {
    world.merge();
    world.power_off(1);
    let entries = stored::entries_of_tree(&world.file);
    let groups = entries.iter().filter(|(key, _)| key[0] == 0x13).map(|(key, value)| {
        let group = u64::from_be_bytes(key[1..9].try_into().expect("eight bytes"));
        (GroupId(group), Wanted::decode(&value[..]).expect("a record").wanted)
    });
    let groups = groups.collect();
    world.open();
    heard(world);
    groups
}

/// The nodes that `world` makes say that they are there.
fn heard(world: &mut World) {
    (11..15).for_each(|number| report(world, number));
}

fn groups_of(world: &mut World, name: &str) -> Vec<GroupId> {
    match world.ask(Request::Locate { file: FileRef::Path(path(name)), offset: 0, length: u64::MAX }) {
        Ok(Reply::Located(located)) => located.groups.iter().map(|group| group.group).collect(),
        other => panic!("{name}: {other:?}"),
    }
}

/// What the groups of these files want.
fn wants(world: &mut World, names: &[&str]) -> Vec<Vec<u32>> {
    let wanted = wanted(world);
    names.iter().map(|name| groups_of(world, name).iter().map(|group| wanted[group]).collect()).collect()
}

/// One step of what the store does by itself.
fn tick(world: &mut World) {
    world.now = world.now.after(Duration::from_millis(2));
    let (now, wall) = (world.now, world.wall);
    world.store().tick(now, wall);
    world.run();
}

/// How many wishes are followed still; all else is as it shall be.
fn followed(world: &mut World) -> usize {
    world.store().check_lacking().expect("as the records say");
    world.store().check_wishes().expect("as the files wish")
}

/// A store with four nodes, in whose `/d` so many copies are wanted: nothing is followed.
fn fresh(seed: u64, wanted: u32) -> World {
    let mut world = lacking::world(seed, 4, wanted);
    settle(&mut world);
    world
}

fn settle(world: &mut World) {
    world.pass(Duration::from_millis(10));
    assert_eq!(followed(world), 0);
}

fn rename(from: &str, to: &str) -> Request {
    Request::Rename { from: path(from), to: path(to), replace: true, removes: false }
}

fn set_copies(name: &str, copies: u32) -> Request {
    let new = NewAttributes { copies: Some(copies), ..NewAttributes::default() };
    Request::SetAttributes { path: path(name), new }
}

/// As a gateway makes a file for which a program asked for so many copies.
fn asking(name: &str, copies: u32) -> Request {
    let mut request = create(name);
    if let Request::Create { new, .. } = &mut request {
        new.copies = copies;
    }
    request
}

fn made_asking(world: &mut World, name: &str, copies: u32) {
    let file = handle(world.ask(asking(name, copies)));
    close(world, &file, 1000);
}

fn next_group(file: &FileHandle, length: u64) -> Request {
    Request::NextGroup {
        replicas_max: 1,
        inode: file.inode,
        generation: file.generation,
        finished: (file.group.group, length),
        columns_max: 1,
        refused: Refused::default(),
    }
}

/// So many files in a directory.
fn files(world: &mut World, directory: &str, count: usize) -> Vec<String> {
    world.ask(mkdir(directory)).expect("made");
    let names: Vec<String> = (0..count).map(|number| format!("{directory}/f{number:03}")).collect();
    for name in &names {
        written(world, name);
    }
    names
}

/// A pack with a file of ten bytes at each of these names.
fn packed(world: &mut World, names: &[&str]) {
    let pack = Request::PackGroup { policy: Policy::default(), beside: None, replicas_max: 0, refused: Vec::new() };
    let Ok(Reply::Group(pack)) = world.ask(pack) else { panic!("no group") };
    let put = |(at, name): (usize, &&str)| PutFile {
        offset: 10 * at as u64,
        length: 10,
        group: pack.group,
        ..small_file(name)
    };
    world.ask(Request::PutFiles { files: names.iter().enumerate().map(put).collect() }).expect("put");
    world.ask(Request::FinishPack { group: pack.group }).expect("finished");
}

/// Everything below a directory follows its wish up and down, over merges and power losses in between, but for what has a wish of its own.
#[test]
fn a_changed_policy_is_followed() {
    let mut world = fresh(1, 1);
    world.page_max = Some(2);
    let mut names = Vec::new();
    for directory in ["/d", "/d/a", "/d/a/b", "/d/z"] {
        names.extend(files(&mut world, directory, 60));
    }
    let own = files(&mut world, "/d/own", 40);
    world.ask(set("/d/own", replicas(2))).expect("set");
    settle(&mut world);
    world.ask(set("/d", replicas(3))).expect("set");
    let mut steps = 0;
    while followed(&mut world) > 0 {
        assert_eq!(followed(&mut world), 1);
        tick(&mut world);
        steps += 1;
        match steps % 3 {
            0 => world.merge(),
            1 => {
                world.crash(steps);
                heard(&mut world);
            }
            _ => {}
        }
    }
    assert!((4..12).contains(&steps), "{steps} steps");
    while repair(&mut world) > 0 {}
    for name in &names {
        assert_eq!(devices_of(&mut world, name)[0].len(), 3, "{name}");
    }
    for name in &own {
        assert_eq!(devices_of(&mut world, name)[0].len(), 2, "{name}");
    }
    for (wish, of_names) in [(replicas(2), 2), (Policy::default(), 0)] {
        world.ask(set("/d", wish)).expect("set");
        settle(&mut world);
        let wanted = wanted(&mut world);
        let of = |world: &mut World, names: &[String]| -> Vec<u32> {
            names.iter().map(|name| wanted[&groups_of(world, name)[0]]).collect()
        };
        assert_eq!(of(&mut world, &names), vec![of_names; names.len()]);
        assert_eq!(of(&mut world, &own), vec![2; own.len()]);
    }
    assert_eq!(lacking(&mut world).0, [], "what is there is more than is wanted");
    assert_eq!(devices_of(&mut world, "/d/f000")[0].len(), 3, "which stays, yet");
}

/// A step is short, however many names and pieces of files there are, and another wish does not wait for all of them.
#[test]
fn bounded_steps() {
    let mut world = fresh(1, 1);
    world.ask(mkdir("/e")).expect("made");
    written(&mut world, "/e/f");
    let pieces = files(&mut world, "/d/pieces", 300);
    let sources = pieces[1..].iter().map(|name| path(name)).collect();
    world.ask(Request::Concat { target: path(&pieces[0]), sources }).expect("joined");
    for part in 0..4 {
        let files = (0..250).map(|number| small_file(&format!("/d/empty/f{}", part * 250 + number))).collect();
        world.ask(Request::PutFiles { files }).expect("put");
        world.merge();
    }
    settle(&mut world);
    world.ask(set("/d", replicas(2))).expect("set");
    tick(&mut world);
    let before = stored::log_of(&world).last().expect("a change").0;
    world.ask(set("/e/f", replicas(3))).expect("set");
    (0..3).for_each(|_| tick(&mut world));
    let of_file = groups_of(&mut world, "/e/f")[0];
    assert!(lacking(&mut world).0.iter().any(|group| group.group == of_file), "it waits for others");
    let mut steps = 0;
    while followed(&mut world) > 0 {
        tick(&mut world);
        steps += 1;
    }
    let (mut groups, mut inodes) = (BTreeMap::new(), BTreeMap::new());
    for (sequence, key, _) in stored::log_of(&world) {
        *groups.entry(sequence).or_insert(0) += u32::from(sequence > before && key[0] == 0x13);
        *inodes.entry(sequence).or_insert(0) += u32::from(sequence > before && key[0] == 0x11);
    }
    assert_eq!(groups.values().max(), Some(&64));
    assert!(inodes.values().max() <= Some(&128), "{inodes:?}");
    assert!((8..12).contains(&steps), "{steps} steps");
    assert_eq!(wants(&mut world, &["/e/f", "/d/pieces/f000"]), [vec![3], vec![2; 300]]);
}

/// Many wishes that are followed soon share steps.
#[test]
fn many_short_ones() {
    let mut world = fresh(1, 1);
    for name in files(&mut world, "/d/many", 100) {
        world.ask(set_copies(&name, 2)).expect("set");
    }
    assert_eq!(followed(&mut world), 100);
    (0..3).for_each(|_| tick(&mut world));
    assert_eq!(followed(&mut world), 0);
    assert_eq!(lacking(&mut world).0.len(), 100);
}

/// What is being written when its directory's wish changes is written on with the new one, also if its writer is gone by then.
#[test]
fn a_writer_hears_of_it() {
    let mut world = fresh(1, 1);
    let mut file = handle(world.ask(create("/d/f")));
    let orphan = handle(world.ask(create("/d/g")));
    let fence = Request::Fence { inode: orphan.inode, only_gone: false, for_holder: false, generation: None };
    let Ok(Reply::Orphans(orphans)) = world.ask(fence) else { panic!("no orphan") };
    world.ask(set("/d", replicas(3))).expect("set");
    settle(&mut world);
    for _ in 0..5 {
        let Ok(Reply::Group(group)) = world.ask(next_group(&file, 500)) else { panic!("no group") };
        file.group = group;
    }
    close(&mut world, &file, 500);
    let (inode, generation) = (orphan.inode, orphans[0].generation);
    world.ask(Request::Recovered { inode, generation, length: 10, without: Vec::new() }).expect("closed");
    assert_eq!(followed(&mut world), 0);
    while repair(&mut world) > 0 {}
    let columns: Vec<usize> = devices_of(&mut world, "/d/f").iter().map(Vec::len).collect();
    assert_eq!(columns, [3; 6]);
    assert_eq!(devices_of(&mut world, "/d/g")[0].len(), 3);
}

/// What is moved before where a walk has come to is followed all the same, as is what comes from where another wish holds. A wish that changes while
/// it is followed is followed from the beginning, and what several wish for is what holds in the end.
#[test]
fn what_moves_during_the_walk() {
    let mut world = fresh(1, 1);
    files(&mut world, "/d", 150);
    files(&mut world, "/other/out", 3);
    written(&mut world, "/other/f");
    world.ask(set("/d", replicas(3))).expect("set");
    tick(&mut world);
    assert_eq!(followed(&mut world), 1);
    world.ask(rename("/d/f149", "/d/a")).expect("moved");
    world.ask(rename("/d/f148", "/other/g")).expect("moved");
    settle(&mut world);
    world.ask(rename("/other/out", "/d/out")).expect("moved");
    world.ask(rename("/other/f", "/d/f")).expect("moved");
    world.ask(rename("/d/f000", "/other/h")).expect("moved");
    settle(&mut world);
    let names = ["/d/a", "/d/out/f002", "/d/f", "/d/f001", "/other/g", "/other/h"];
    assert_eq!(wants(&mut world, &names), [[3], [3], [3], [3], [0], [0]]);
    world.ask(rename("/d/f001", "/d/g")).expect("moved");
    world.ask(rename("/d/g", "/d/f001")).expect("moved");
    assert_eq!(followed(&mut world), 0, "nothing else holds there");
    world.ask(set("/d", replicas(2))).expect("set");
    tick(&mut world);
    world.ask(set("/d", replicas(4))).expect("set");
    assert_eq!(followed(&mut world), 1);
    tick(&mut world);
    world.ask(set("/", replicas(2))).expect("set");
    assert_eq!(followed(&mut world), 2);
    settle(&mut world);
    assert_eq!(wants(&mut world, &names), [[4], [4], [4], [4], [2], [2]]);
}

/// Pieces that come from where another wish holds, or are still to be gone through, want what the whole wants.
#[test]
fn what_is_joined() {
    let mut world = fresh(1, 3);
    for name in ["/d/a", "/d/b", "/d/z", "/e"] {
        written(&mut world, name);
    }
    let joined = |name: &str| Request::Concat { target: path("/d/a"), sources: vec![path(name)] };
    world.ask(joined("/d/b")).expect("joined");
    assert_eq!(followed(&mut world), 0, "nothing else holds there");
    world.ask(joined("/e")).expect("joined");
    settle(&mut world);
    assert_eq!(wants(&mut world, &["/d/a"]), [[3, 3, 3]]);
    files(&mut world, "/d/many", 150);
    world.ask(set("/d", replicas(2))).expect("set");
    tick(&mut world);
    world.ask(joined("/d/z")).expect("joined");
    settle(&mut world);
    assert_eq!(wants(&mut world, &["/d/a"]), [[2, 2, 2, 2]]);
}

/// What is deleted while it is gone through is left alone: nothing of it counts anywhere afterwards, and nobody waits for it.
#[test]
fn what_is_deleted_during_it() {
    let mut world = fresh(1, 3);
    world.ask(Request::SetQuota { path: path("/"), names: Limit::Keep, bytes: Limit::Most(1 << 40) }).expect("set");
    files(&mut world, "/d/a", 150);
    files(&mut world, "/d/b", 150);
    let file = handle(world.ask(create("/d/b/open")));
    world.ask(set("/d", replicas(2))).expect("set");
    tick(&mut world);
    let before = stored::log_of(&world).last().expect("a change").0;
    world.ask(delete("/d/a")).expect("deleted");
    tick(&mut world);
    world.ask(set("/d/b", replicas(4))).expect("set");
    tick(&mut world);
    world.ask(delete("/d")).expect("deleted");
    (0..6).for_each(|_| tick(&mut world));
    assert_eq!(followed(&mut world), 0);
    let changes = stored::log_of(&world).into_iter().filter(|(sequence, ..)| *sequence > before);
    let groups = changes.filter(|(_, key, _)| key[0] == 0x13).filter_map(|(_, _, value)| value);
    let wanted: Vec<u32> = groups.map(|value| Wanted::decode(&value[..]).expect("a record").wanted).collect();
    assert!(wanted.len() > 100 && !wanted.contains(&0), "{wanted:?}");
    let lost = Request::Close {
        inode: file.inode,
        generation: file.generation,
        finished: Some((file.group.group, 10)),
        modified: None,
        mode: None,
    };
    drop(world.ask(lost));
    settle(&mut world);
    world.pass(Duration::from_secs(1));
    let Ok(Reply::Quota(Some(quota))) = world.ask(Request::GetQuota { path: path("/") }) else { panic!("no quota") };
    assert_eq!((quota.names, quota.bytes), (1, 0));
    assert_eq!(lacking(&mut world).0, []);
}

/// What small files share has as many copies as that of them wants which wants most: it gets more and never fewer.
#[test]
fn shared_groups_only_rise() {
    let mut world = fresh(1, 3);
    world.ask(mkdir("/b")).expect("made");
    packed(&mut world, &["/d/x", "/b/y"]);
    for (wish, wanted) in
        [(replicas(2), 3), (replicas(1), 3), (Policy::default(), 3), (replicas(4), 4), (replicas(2), 4)]
    {
        world.ask(set("/b", wish)).expect("set");
        settle(&mut world);
        assert_eq!(wants(&mut world, &["/d/x", "/b/y"]), [[wanted], [wanted]]);
    }
    // The same of what is still added to.
    world.ask(set("/b", replicas(1))).expect("set");
    let pack = Request::PackGroup { policy: Policy::default(), beside: None, replicas_max: 0, refused: Vec::new() };
    let Ok(Reply::Group(pack)) = world.ask(pack) else { panic!("no group") };
    let put = |name: &str, offset| PutFile { offset, length: 10, group: pack.group, ..small_file(name) };
    world.ask(Request::PutFiles { files: vec![put("/b/p", 0)] }).expect("put");
    world.ask(set("/b", replicas(2))).expect("set");
    settle(&mut world);
    world.ask(Request::PutFiles { files: vec![put("/b/q", 10)] }).expect("put");
    world.ask(Request::FinishPack { group: pack.group }).expect("finished");
    while repair(&mut world) > 0 {}
    assert_eq!(devices_of(&mut world, "/b/p")[0].len(), 2);
}

/// A directory that cannot be read through holds up no other, and that it was passed over is told.
#[test]
fn a_damaged_directory_holds_up_no_other() {
    let mut world = fresh(1, 1);
    for directory in ["/d/a", "/d/b", "/d/c"] {
        files(&mut world, directory, 20);
    }
    let Ok(Reply::Attributes(damaged)) = world.ask(stat("/d/b")) else { panic!("no directory") };
    world.power_off(1);
    let key = [&[0x10][..], &damaged.inode.to_be_bytes(), b"f010"].concat();
    stored::write(&world, &key, &[0xff]);
    world.open();
    heard(&mut world);
    world.ask(set("/d", replicas(3))).expect("set");
    world.pass(Duration::from_millis(10));
    let failures = world.store().take_failures();
    assert!(failures.keys().eq(["following changed policies"].iter()), "{failures:?}");
    let names = ["/d/a/f019", "/d/b/f009", "/d/b/f019", "/d/c/f000"];
    assert_eq!(wants(&mut world, &names), [[3], [3], [0], [3]]);
    world.pass(Duration::from_millis(10));
    assert!(world.store().take_failures().is_empty(), "it is not tried for ever");
}

/// A file that whoever made it asked so many copies for has them where its directory wants several; what somebody says of the file counts everywhere,
/// until it is taken back.
#[test]
fn own_wishes() {
    let mut world = fresh(1, 2);
    world.ask(mkdir("/once")).expect("made");
    made_asking(&mut world, "/d/f", 3);
    made_asking(&mut world, "/once/g", 3);
    written(&mut world, "/once/h");
    let names = ["/d/f", "/once/g", "/once/h"];
    assert_eq!(wants(&mut world, &names), [[3], [0], [0]]);
    world.ask(rename("/d/f", "/once/f")).expect("moved");
    settle(&mut world);
    assert_eq!(wants(&mut world, &["/once/f"]), [[0]]);
    world.ask(rename("/once/f", "/d/f")).expect("moved");
    settle(&mut world);
    assert_eq!(wants(&mut world, &names), [[3], [0], [0]]);
    for (name, copies) in [("/d/f", 1), ("/once/g", 2), ("/once/h", 400)] {
        world.ask(set_copies(name, copies)).expect("set");
    }
    assert_eq!(followed(&mut world), 3);
    settle(&mut world);
    // No more than there are nodes.
    assert_eq!(wants(&mut world, &names), [[0], [2], [4]]);
    world.ask(set("/d", replicas(3))).expect("set");
    settle(&mut world);
    assert_eq!(wants(&mut world, &names), [[0], [2], [4]]);
    world.ask(set("/d/f", Policy::default())).expect("taken back");
    world.ask(set_copies("/once/h", 0)).expect("taken back");
    settle(&mut world);
    assert_eq!(wants(&mut world, &names), [[3], [2], [0]]);
    let Ok(Reply::Policy { own, .. }) = world.ask(Request::GetPolicy { path: path("/once/g") }) else {
        panic!("no policy")
    };
    assert_eq!(own, replicas(2));
    // An append goes on with it.
    let file = handle(world.ask(append("/once/g")));
    close(&mut world, &file, 10);
    assert_eq!(wants(&mut world, &["/once/g"]), [[2, 2]]);
}

/// Wishes that were cut, as there were too few nodes, are followed again when they are said again, or that of a directory above is.
#[test]
fn said_again() {
    let mut world = fresh(1, 2);
    let names = ["/d/f", "/d/g", "/d/h"];
    for name in names {
        written(&mut world, name);
    }
    world.ask(set_copies("/d/f", 5)).expect("set");
    world.ask(set("/d/g", replicas(5))).expect("set");
    made_asking(&mut world, "/d/i", 6);
    settle(&mut world);
    let names = ["/d/f", "/d/g", "/d/h", "/d/i"];
    assert_eq!(wants(&mut world, &names), [[4], [4], [2], [4]]);
    lacking::heard(&mut world, 5);
    world.ask(set_copies("/d/f", 5)).expect("set");
    settle(&mut world);
    assert_eq!(wants(&mut world, &names), [[5], [4], [2], [4]]);
    world.ask(set("/d/g", replicas(5))).expect("set");
    settle(&mut world);
    assert_eq!(wants(&mut world, &names), [[5], [5], [2], [4]]);
    world.ask(set("/d", replicas(2))).expect("set");
    settle(&mut world);
    assert_eq!(wants(&mut world, &names), [[5], [5], [2], [5]]);
}

/// A file of an older program says no more what was asked for. It follows its directory from its next append on, or when the directory's wish changes.
#[test]
fn older_records() {
    let mut world = fresh(1, 3);
    let names = ["/d/f", "/d/g"];
    for name in names {
        made_asking(&mut world, name, 2);
        let Ok(Reply::Attributes(file)) = world.ask(stat(name)) else { panic!("no file") };
        let key = [&[0x11][..], &file.inode.to_be_bytes()].concat();
        world.power_off(1);
        // Field 30 once more, as zero: the later one counts.
        let record = [&stored::value(&world, &key).expect("a record")[..], &[0xf0, 1, 0]].concat();
        stored::write(&world, &key, &record);
        world.open();
        heard(&mut world);
    }
    assert_eq!(wants(&mut world, &names), [[2], [2]]);
    let file = handle(world.ask(append("/d/f")));
    close(&mut world, &file, 10);
    world.pass(Duration::from_millis(10));
    assert_eq!(wants(&mut world, &names), [vec![3, 3], vec![2]]);
    world.ask(set("/d", replicas(4))).expect("set");
    settle(&mut world);
    assert_eq!(wants(&mut world, &names), [vec![4, 4], vec![4]]);
}

fn bytes_of(world: &mut World, name: &str) -> u64 {
    settle(world);
    match world.ask(Request::GetQuota { path: path(name) }) {
        Ok(Reply::Quota(Some(quota))) => quota.bytes,
        other => panic!("{other:?}"),
    }
}

/// Quotas count each file as often as it is wished for: a file's own wish is refused beyond them, a directory's counts and refuses what comes.
#[test]
fn counted_as_wished() {
    let mut world = fresh(1, 1);
    world.ask(Request::SetQuota { path: path("/d"), names: Limit::Keep, bytes: Limit::Most(5000) }).expect("set");
    written(&mut world, "/d/f");
    made_asking(&mut world, "/d/g", 2);
    assert_eq!(bytes_of(&mut world, "/d"), 3000);
    world.ask(set_copies("/d/f", 3)).expect("it fits");
    assert_eq!(bytes_of(&mut world, "/d"), 5000);
    for request in [set_copies("/d/f", 4), set("/d/g", replicas(4))] {
        assert_eq!(world.refusal(request), ErrorKind::OverQuota);
    }
    assert_eq!(bytes_of(&mut world, "/d"), 5000);
    assert_eq!(wants(&mut world, &["/d/f", "/d/g"]), [[3], [0]]);
    world.ask(set("/d/g", replicas(1))).expect("less");
    world.ask(set_copies("/d/f", 0)).expect("less");
    assert_eq!(bytes_of(&mut world, "/d"), 2000);
    written(&mut world, "/d/h");
    world.ask(set("/d", replicas(4))).expect("it is never refused");
    assert_eq!(bytes_of(&mut world, "/d"), 9000);
    let file = handle(world.ask(create("/d/i")));
    let (inode, generation) = (file.inode, file.generation);
    assert_eq!(world.refusal(Request::Reserve { inode, generation, length: 1 }), ErrorKind::OverQuota);
    world.ask(Request::Abandon { inode, generation }).expect("gone");
    for name in ["/d/f", "/d/g", "/d/h"] {
        world.ask(delete(name)).expect("deleted");
    }
    assert_eq!(bytes_of(&mut world, "/d"), 0);
}

/// One drawn change of names, wishes or bytes.
fn change(world: &mut World, random: &SimRandom, open: &mut BTreeMap<String, FileHandle>) {
    let name = || format!("/{}/f{}", ["d", "e", "e/s"][random.below(3) as usize], random.below(6));
    let (name, other) = (name(), name());
    match random.below(16) {
        0..4 => {
            let request = match random.below(4) {
                0 => append(&name),
                1 => asking(&name, 1 + random.below(4) as u32),
                _ => create(&name),
            };
            if let Ok(Reply::Handle(file)) = world.ask(to_several(request, random.below(4) as usize)) {
                open.insert(name, file);
            }
        }
        4..7 => {
            let Some((name, file)) = open.pop_first() else { return };
            if random.below(2) == 0
                && let Ok(Reply::Group(group)) = world.ask(next_group(&file, random.below(3) * 500))
            {
                open.insert(name, FileHandle { group, ..file });
                return;
            }
            let (inode, generation) = (file.inode, file.generation);
            let finished = Some((file.group.group, random.below(3) * 500));
            drop(world.ask(Request::Close { inode, generation, finished, modified: None, mode: None }));
        }
        7 => drop(world.ask(delete(&name))),
        8 => drop(world.ask(rename(&name, &other))),
        9 => drop(world.ask(rename("/e/s", "/d/s"))),
        10 => {
            drop(world.ask(rename("/d/s", "/e/s")));
            drop(world.ask(mkdir("/e/s")));
        }
        11 => {
            let sources = vec![path(&other)];
            drop(world.ask(Request::Concat { target: path(&name), sources }));
        }
        12 => drop(world.ask(set_copies(&name, random.below(4) as u32))),
        13 => {
            let name = ["/", "/d", "/e", "/e/s", &name][random.below(5) as usize];
            let wish = if random.below(4) == 0 { Policy::default() } else { replicas(1 + random.below(3) as u32) };
            drop(world.ask(set(name, wish)));
        }
        14 => drop(world.ask(Request::Truncate { path: path(&name), length: random.below(900) })),
        _ => packed_if_possible(world, &name, &other),
    }
}

fn packed_if_possible(world: &mut World, name: &str, other: &str) {
    let is_there = |world: &mut World, name: &str| world.ask(stat(name)).is_ok();
    if name != other && !is_there(world, name) && !is_there(world, other) {
        packed(world, &[name, other]);
    }
}

/// Whatever is done in any order: everything wants what holds where it is, but for what is followed still, and in the end that is nothing; quotas count
/// what a count from the beginning does, and everything has as many copies as it wants.
#[test]
fn any_order() {
    for seed in 0..60 {
        let mut world = fresh(seed, 1);
        world.ask(mkdir("/e/s")).expect("made");
        let quota = |bytes| Request::SetQuota { path: path("/"), names: Limit::Keep, bytes };
        world.ask(quota(Limit::Most(1 << 40))).expect("set");
        let (random, mut open) = (SimRandom::new(seed), BTreeMap::new());
        for step in 0..150 {
            match random.below(8) {
                0 => tick(&mut world),
                1 if random.below(4) == 0 => world.merge(),
                1 if random.below(4) == 0 => {
                    world.crash(seed * 1000 + step);
                    heard(&mut world);
                }
                2 => drop(repair(&mut world)),
                _ => change(&mut world, &random, &mut open),
            }
            world.store().check_wishes().unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
            world.store().check_lacking().unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
        }
        settle(&mut world);
        while repair(&mut world) > 0 {}
        assert_eq!(lacking(&mut world).0, [], "seed {seed}");
        let before = bytes_of(&mut world, "/");
        world.ask(quota(Limit::None)).expect("removed");
        world.ask(Request::SetQuota { path: path("/"), names: Limit::None, bytes: Limit::Keep }).expect("nothing");
        world.ask(quota(Limit::Most(1 << 40))).expect("set");
        assert_eq!(bytes_of(&mut world, "/"), before, "seed {seed}");
    }
}

/// Without what makes it so, files keep old wishes or lose copies.
#[test]
fn planted_faults_are_seen() {
    let faults = [Planted::PolicyForgottenAtStep, Planted::SharedLowered, Planted::WriterKeepsOldWish];
    for planted in [None].into_iter().chain(faults.map(Some)) {
        let mut world = fresh(1, 1);
        files(&mut world, "/d", 150);
        files(&mut world, "/e", 0);
        world.ask(set("/e", replicas(3))).expect("set");
        packed(&mut world, &["/e/x", "/f/y"]);
        world.planted = planted;
        world.crash(1);
        heard(&mut world);
        drop(world.ask(create("/f/open")).expect("made"));
        let (forgotten, lowered, kept) = ("/d", "/f", "/f");
        let seen = |world: &mut World, name: &str, wish: Policy| {
            world.ask(set(name, wish)).expect("set");
            world.pass(Duration::from_millis(10));
            world.store().check_wishes() != Ok(0)
        };
        let is = |fault: Planted| planted == Some(fault);
        assert_eq!(seen(&mut world, forgotten, replicas(3)), is(faults[0]), "{planted:?}");
        if !is(faults[0]) {
            assert_eq!(seen(&mut world, kept, replicas(2)), is(faults[2]) || is(faults[1]), "{planted:?}");
            let again = seen(&mut world, lowered, replicas(1));
            assert_eq!(again, is(faults[1]), "{planted:?}");
        }
    }
}

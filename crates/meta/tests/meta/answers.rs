//! Changes that clients of gateways ask for: one that is asked again through another gateway, so under another session, is answered as
//! before and not repeated; and a file that was opened through one goes on through another.

use crate::world::{World, delete, mkdir, path, stat};
use base::error::ErrorKind;
use base::id::{DeviceId, NodeId, SessionId};
use meta::request::{Asked, FileHandle, NewInode, NodeInfo, User};
use meta::{Caller, Reply, Request};
use std::time::Duration;

const GATEWAYS: [SessionId; 2] = [SessionId(101), SessionId(102)];

/// A store with two gateways' sessions and this many nodes.
fn world(seed: u64, nodes: u128) -> World {
    let mut world = World::new(seed);
    for node in 1..=nodes {
        let (name, address) = (format!("n{node}"), format!("host-{node}:1"));
        let info = NodeInfo { node: NodeId(node), incarnation: 1, name, address, ..NodeInfo::default() };
        world.ask(Request::NodeJoin { node: info }).expect("a node");
    }
    let report = Request::NodeReport { node: NodeId(1), keeps: true, devices: vec![DeviceId(1), DeviceId(2)] };
    world.ask(report).expect("it joined");
    for session in GATEWAYS {
        ask(&mut world, session, 1, Request::OpenSession { user: User::default() }).expect("a session");
    }
    world
}

fn ask(world: &mut World, session: SessionId, call: u64, request: Request) -> base::error::Result<Reply> {
    world.ask_as(Caller { session, call, floor: 0 }, request).expect("answered")
}

fn asked(client: u128, call: u32, change: Request) -> Request {
    Request::Asked { asked: Asked { client, call }, change: Box::new(change) }
}

fn answered(world: &mut World, client: u128, call: u32) -> Option<Reply> {
    match world.ask(Request::Answered { asked: Asked { client, call } }) {
        Ok(Reply::Answered(answer)) => answer.map(|answer| *answer),
        other => panic!("{other:?}"),
    }
}

fn create(name: &str, holder: &str) -> Request {
    let new = NewInode { holder: holder.to_string(), ..NewInode::with_mode(0o644) };
    Request::Create { path: path(name), overwrite: true, parents: false, new }
}

fn rename(from: &str, to: &str) -> Request {
    Request::Rename { from: path(from), to: path(to), replace: false }
}

fn handle(reply: base::error::Result<Reply>) -> FileHandle {
    match reply {
        Ok(Reply::Handle(handle)) => handle,
        other => panic!("{other:?}"),
    }
}

/// A call is done once, whichever gateway it is asked through and whatever happened to the store in between; other calls and other
/// clients are others; what was refused is asked anew.
#[test]
fn done_once() {
    let mut world = world(1, 2);
    world.ask(mkdir("/a")).expect("mkdir");
    let [first, second] = GATEWAYS;
    assert_eq!(answered(&mut world, 5, 1), None);
    assert_eq!(ask(&mut world, first, 2, asked(5, 1, rename("/a", "/b"))), Ok(Reply::Done));
    assert_eq!(ask(&mut world, second, 2, asked(5, 1, rename("/a", "/b"))), Ok(Reply::Done), "it was done");
    let error = ask(&mut world, second, 3, asked(5, 2, rename("/a", "/b"))).expect_err("another call");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(answered(&mut world, 5, 2), None, "what was refused");
    let error = ask(&mut world, second, 4, asked(6, 1, rename("/a", "/b"))).expect_err("another client");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let made = handle(ask(&mut world, first, 3, asked(5, 3, create("/f", "c"))));
    let error = ask(&mut world, second, 5, asked(5, 3, delete("/b"))).expect_err("another question");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    world.crash(1);
    assert_eq!(ask(&mut world, second, 6, asked(5, 1, rename("/a", "/b"))), Ok(Reply::Done));
    let again = handle(ask(&mut world, second, 7, asked(5, 3, create("/f", "c"))));
    assert_eq!((again.inode, again.generation), (made.inode, made.generation), "no second file");
    assert!(matches!(answered(&mut world, 5, 3), Some(Reply::Handle(found)) if found.inode == made.inode));
    let now = world.ask(stat("/f"));
    assert!(matches!(now, Ok(Reply::Attributes(found)) if found.inode == made.inode && found.holder == "c"));
    world.ask(delete("/b")).expect("deleted");
    assert_eq!(ask(&mut world, first, 8, asked(5, 1, rename("/a", "/b"))), Ok(Reply::Done), "even so");
}

/// A store of one node remembers nothing of it: there is no other gateway.
#[test]
fn alone() {
    let mut world = world(2, 1);
    world.ask(mkdir("/a")).expect("mkdir");
    assert_eq!(ask(&mut world, GATEWAYS[0], 2, asked(5, 1, rename("/a", "/b"))), Ok(Reply::Done));
    assert_eq!(answered(&mut world, 5, 1), None);
}

/// A file that was opened through one gateway goes on through another for the same holder, at once if nothing of it is synced: the
/// first cannot write it any more. Nobody else gets it so, and what is synced is never given up.
#[test]
fn taken_over() {
    let mut world = world(3, 2);
    let [first, second] = GATEWAYS;
    let take = |holder: &str| Request::AppendOpen { path: path("/f"), holder: holder.to_string(), instead: true };
    let made = handle(ask(&mut world, first, 2, create("/f", "c")));
    for wrong in ["d", ""] {
        assert_eq!(ask(&mut world, second, 2, take(wrong)).expect_err("not its own").kind(), ErrorKind::Busy);
    }
    let taken = handle(ask(&mut world, second, 3, take("c")));
    assert_eq!((taken.inode, taken.length), (made.inode, 0));
    assert!(taken.generation > made.generation && taken.group.group != made.group.group);
    let close = |of: &FileHandle, length| {
        let (inode, generation, group) = (of.inode, of.generation, of.group.group);
        Request::Close { inode, generation, finished: Some((group, length)), modified: None, mode: None }
    };
    assert_eq!(ask(&mut world, first, 3, close(&made, 5)).expect_err("not its own any more").kind(), ErrorKind::Stale);
    let sync =
        Request::SyncLength { inode: taken.inode, generation: taken.generation, group: taken.group.group, length: 7 };
    ask(&mut world, second, 4, sync).expect("synced");
    assert_eq!(ask(&mut world, first, 4, take("c")).expect_err("it has bytes").kind(), ErrorKind::Busy);
    ask(&mut world, second, 5, close(&taken, 9)).expect("closed");
    let now = world.ask(stat("/f"));
    assert!(
        matches!(now, Ok(Reply::Attributes(found)) if found.length == 9 && found.holder.is_empty() && !found.writing)
    );
    let Ok(Reply::Garbage(garbage)) = world.ask(Request::Garbage { limit: 9 }) else { panic!("no list") };
    assert!(garbage.groups.iter().any(|group| group.group == made.group.group), "its chunk goes");
    // The first one's session ends without harm to the file.
    ask(&mut world, first, 6, Request::CloseSession).expect("over");
    world.pass(Duration::ZERO);
    assert!(matches!(world.ask(Request::FenceList { limit: 9 }), Ok(Reply::Orphans(none)) if none.is_empty()));
}

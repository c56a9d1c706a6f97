//! Who may ask what: each request that names a path is judged for its user, whatever it came through.

use crate::world::{SESSION, World, create, delete, mkdir, path, small_file, stat};
use base::attributes::NewAttributes;
use base::error::{Error, ErrorKind};
use base::id::{InodeId, SessionId};
use base::permission::{Denied, READ, WRITE, Wanted};
use base::policy::Policy;
use base::session::SessionOver;
use meta::request::{FileHandle, FileRef, Limit, NewInode, PutFile, User};
use meta::{Caller, Reply, Request};

/// The sessions of users, beside the world's own, which names nobody.
const ADA: SessionId = SessionId(0xADA);
const BOB: SessionId = SessionId(0xB0B);

fn user(name: &str, groups: &[&str]) -> User {
    User { name: name.to_string(), groups: groups.iter().map(|group| group.to_string()).collect() }
}

fn set(name: &str, new: NewAttributes) -> Request {
    Request::SetAttributes { path: path(name), new }
}

fn rights(mode: u32, owner: &str, group: &str) -> NewAttributes {
    let (owner, group) = (Some(owner.to_string()), Some(group.to_string()));
    NewAttributes { mode: Some(mode), owner, group, ..NewAttributes::default() }
}

fn list(name: &str) -> Request {
    Request::List { path: path(name), after: None, limit: 10, located: false, also: Vec::new() }
}

fn mode(mode: u32) -> NewAttributes {
    NewAttributes { mode: Some(mode), ..NewAttributes::default() }
}

fn rename(from: &str, to: &str) -> Request {
    Request::Rename { from: path(from), to: path(to), replace: true, removes: false }
}

fn put(name: &str, overwrite: bool, directory: bool) -> Request {
    Request::PutFiles { files: vec![PutFile { overwrite, directory, ..small_file(name) }] }
}

/// Asks as a session; the answer to a single small file is taken out of its list.
fn ask(world: &mut World, session: SessionId, request: Request) -> Result<Reply, Error> {
    let caller = Caller { session, call: 0, floor: 0 };
    match world.ask_as(caller, request).expect("answered") {
        Ok(Reply::Files(mut results)) => results.remove(0).map(|_| Reply::Done),
        reply => reply,
    }
}

fn closed(world: &mut World, name: &str) -> FileHandle {
    let Ok(Reply::Handle(file)) = world.ask(create(name)) else { panic!("{name} was not made") };
    let (inode, generation) = (file.inode, file.generation);
    let close =
        Request::Close { inode, generation, finished: Some((file.group.group, 10)), modified: None, mode: None };
    world.ask(close).expect("closed");
    file
}

/// A store with sessions of Ada, who is in `staff`, and Bob, and these directories, each with a file `f` of Ada's of mode 0640:
/// `/open` (0777), `/shut` (0755) and `/secret` (0700) of Ada and `staff`, `/shared` (1777) of root.
fn world() -> (World, InodeId) {
    let mut world = World::new(1);
    for (session, user) in [(ADA, user("ada", &["staff"])), (BOB, user("bob", &["users"]))] {
        ask(&mut world, session, Request::OpenSession { user }).expect("opened");
    }
    let mut secret = InodeId(0);
    for (name, bits, owner) in
        [("/open", 0o777, "ada"), ("/shut", 0o755, "ada"), ("/secret", 0o700, "ada"), ("/shared", 0o1777, "root")]
    {
        world.ask(mkdir(name)).expect("made");
        let file = format!("{name}/f");
        secret = if name == "/secret" {
            closed(&mut world, &file).inode
        } else {
            secret.max(closed(&mut world, &file).inode)
        };
        world.ask(set(&file, rights(0o640, "ada", "staff"))).expect("set");
        world.ask(set(name, rights(bits, owner, "staff"))).expect("set");
    }
    let Ok(Reply::Attributes(found)) = world.ask(stat("/secret/f")) else { panic!("no file") };
    (world, InodeId(found.inode))
}

/// Every kind of request, and whether Bob may ask it: what he lacks is said, and nothing is done. Whoever owns it all may ask all of them but those
/// that are a superuser's.
#[test]
fn each_kind_is_judged() {
    let (locate, goes) = (|file| Request::Locate { file, offset: 0, length: 1 }, Wanted::default());
    let (_, secret) = world();
    let times = |name| set(name, NewAttributes { modified_ms: Some(7), ..NewAttributes::default() });
    let group =
        |name, group: &str| set(name, NewAttributes { group: Some(group.to_string()), ..NewAttributes::default() });
    let xattr = |name, key: &str| Request::SetXattr { path: path(name), name: key.to_string(), value: Some(vec![1]) };
    let xattrs = |name| Request::GetXattrs { path: path(name), name: None };
    let append = |file| Request::AppendOpen { replicas_max: 1, file, holder: String::new(), began: None, at: None };
    let truncate = |name| Request::Truncate { path: path(name), length: 0 };
    let concat = |target, source| Request::Concat { target: path(target), sources: vec![path(source)] };
    let lookup = |name, wanted| Request::Lookup { path: path(name), known: 0, wanted };
    let usage = |name| Request::DiskUsage { path: path(name), resume: None };
    let policy = |name| Request::SetPolicy { path: path(name), policy: Policy::default() };
    let fence = |inode| Request::Fence { inode, only_gone: false, for_holder: false, generation: None };
    let quota = |name| Request::SetQuota { path: path(name), names: Limit::Most(9), bytes: Limit::Keep };
    let over = |name| Request::Create {
        replicas_max: 1,
        path: path(name),
        overwrite: true,
        parents: true,
        new: NewInode::with_mode(0o644),
    };
    // (what is asked, whether Bob may, whether Ada may)
    let rows = [
        (stat("/shut/f"), true, true),
        (stat("/secret/f"), false, true),
        (stat("/secret"), true, true),
        (lookup("/shut/f", goes), true, true),
        (lookup("/secret/f", goes), false, true),
        (lookup("/shut/f", Wanted { access: READ, ..goes }), false, true),
        (lookup("/shut/new", Wanted { ancestor: WRITE, ..goes }), false, true),
        (list("/shut"), true, true),
        (list("/secret"), false, true),
        (usage("/"), false, true),
        (usage("/open"), true, true),
        (usage("/open/f"), true, true),
        (locate(FileRef::Path(path("/open/f"))), false, true),
        (locate(FileRef::Inode(secret)), false, true),
        (Request::PathOf { inode: secret }, false, true),
        (xattrs("/open/f"), false, true),
        (xattr("/open/f", "user.a"), false, true),
        (xattr("/open", "user.a"), true, true),
        (xattr("/shared", "user.a"), false, false),
        (xattr("/open", "trusted.a"), false, false),
        (mkdir("/open/d"), true, true),
        (mkdir("/shut/d"), false, true),
        (mkdir("/secret/d"), false, true),
        (mkdir("/d"), false, false),
        (create("/open/new"), true, true),
        (create("/shut/new"), false, true),
        (over("/open/f"), false, true),
        (put("/open/p", false, false), true, true),
        (put("/open/f", true, false), false, true),
        (put("/open/d/e/p", false, false), true, true),
        (put("/shut/p", false, false), false, true),
        (put("/open/q", false, true), true, true),
        (put("/shut", false, true), false, true),
        (append(FileRef::Path(path("/open/f"))), false, true),
        (append(FileRef::Inode(secret)), false, true),
        (fence(secret), false, true),
        (truncate("/open/f"), false, true),
        (concat("/open/f", "/shut/f"), false, true),
        (rename("/open/f", "/open/g"), true, true),
        (rename("/open/f", "/shut/g"), false, true),
        (rename("/shut/f", "/open/g"), false, true),
        (rename("/shared/f", "/open/g"), false, true),
        (delete("/open/f"), true, true),
        (delete("/shut/f"), false, true),
        (delete("/shared/f"), false, true),
        (set("/open/f", mode(0o600)), false, true),
        (set("/open/f", rights(0o600, "bob", "staff")), false, false),
        (set("/open/f", rights(0o600, "ada", "staff")), false, true),
        (group("/open/f", "wheel"), false, false),
        (times("/open/f"), false, true),
        (times("/open"), true, true),
        (policy("/open"), true, true),
        (policy("/shut"), false, true),
        (quota("/open"), false, false),
        (Request::GetQuota { path: path("/secret") }, true, true),
        (Request::GetPolicy { path: path("/secret/f") }, false, true),
    ];
    for (request, bob, ada) in rows {
        for (session, may) in [(BOB, bob), (ADA, ada)] {
            let (mut world, _) = world();
            let before = world.dump();
            let reply = ask(&mut world, session, request.clone());
            assert_eq!(reply.is_ok(), may, "{session} {request:?}: {reply:?}");
            if let Err(error) = reply {
                assert_eq!(error.kind(), ErrorKind::Denied, "{request:?}: {error}");
                assert!(Denied::read(&error).is_some(), "{error}");
                assert!(world.dump() == before, "{request:?} was done in part");
            }
            // Who names nobody, or is a superuser by a group or by name, may ask all of it.
            let anybody = world.ask(request.clone());
            assert!(anybody.is_ok() || may, "{request:?}: {anybody:?}");
        }
    }
}

/// What is said tells who lacks what of which directory, and what it is like.
#[test]
fn refusals_say_why() {
    let (mut world, _) = world();
    let refused = ask(&mut world, BOB, create("/shut/new")).expect_err("denied");
    let text = "permission denied: user bob may not write in /shut (owner ada:staff, drwxr-xr-x); nothing was done";
    assert_eq!(refused.text(), text);
    // A file on the way is said to be one, to those who may go there.
    let below = ask(&mut world, BOB, stat("/open/f/g")).expect_err("no directory");
    assert_eq!(
        (below.kind(), below.text()),
        (ErrorKind::Invalid, "'/open/f' is a file, not a directory; nothing was done")
    );
    assert_eq!(ask(&mut world, BOB, stat("/open/x/y")).map_err(|error| error.kind()), Err(ErrorKind::NotFound));
}

/// The user who runs the node and members of `supergroup` may do everything, and a session that names nobody, if it is one; a session that is over, or
/// never began, is nobody's.
#[test]
fn superusers() {
    let (mut world, _) = world();
    for (number, user, may) in [
        (1, user("root", &[]), true),
        (2, user("eve", &["users", "supergroup"]), true),
        (3, user("", &[]), true),
        (4, user("eve", &["root"]), false),
    ] {
        let session = SessionId(number << 64);
        ask(&mut world, session, Request::OpenSession { user }).expect("opened");
        assert_eq!(ask(&mut world, session, stat("/secret/f")).is_ok(), may, "{number}");
        world.crash(number as u64);
        assert_eq!(ask(&mut world, session, stat("/secret/f")).is_ok(), may, "{number}");
    }
    // As a change of one that is over is answered: it lacks no right, it has to begin anew.
    let of_bob = Request::For { user: user("bob", &[]), request: Box::new(stat("/shut/f")) };
    let changes = Request::For { user: user("root", &[]), request: Box::new(mkdir("/open/d")) };
    for over in [stat("/secret/f"), of_bob.clone(), changes.clone(), mkdir("/shut/d")] {
        let said = ask(&mut world, SessionId(99), over.clone()).expect_err("over");
        assert!(SessionOver::is(&said), "{over:?}: {said}");
    }
    assert!(ask(&mut world, SessionId(99), stat("/shut/f")).is_ok());
    let known = ask(&mut world, SessionId(4 << 64), of_bob).map_err(|error| error.kind());
    assert_eq!(known, Err(ErrorKind::Denied));
}

/// A superuser's session may ask for another user, who is judged then and owns what is made; nobody else may, not even for a superuser.
#[test]
fn asked_for_others() {
    let (mut world, _) = world();
    let of = |name: &str, request| Request::For { user: user(name, &["users"]), request: Box::new(request) };
    let anybody = SessionId(0);
    assert_eq!(
        ask(&mut world, anybody, of("bob", stat("/secret/f"))).map_err(|error| error.kind()),
        Err(ErrorKind::Denied)
    );
    ask(&mut world, anybody, of("ada", stat("/secret/f"))).expect("hers");
    ask(&mut world, anybody, of("root", stat("/secret/f"))).expect("a superuser");
    for name in ["ada", "root", "bob"] {
        let refused = ask(&mut world, BOB, of(name, stat("/open"))).map_err(|error| error.kind());
        assert_eq!(refused, Err(ErrorKind::Denied), "{name}");
    }
    world.ask(of("bob", mkdir("/open/his"))).expect("made");
    let Ok(Reply::Attributes(found)) = world.ask(stat("/open/his")) else { panic!("no directory") };
    assert_eq!((found.owner.as_str(), found.group.as_str()), ("bob", "users"));
    // A change that was made is answered again, whatever its user may by now.
    let change = of("bob", mkdir("/open/again"));
    let caller = Caller { session: SESSION, call: 7_000, floor: 0 };
    world.ask_as(caller, change.clone()).expect("answered").expect("made");
    world.ask(set("/open", mode(0o700))).expect("set");
    world.ask_as(caller, change).expect("answered").expect("as then");
    assert!(world.ask(of("bob", mkdir("/open/third"))).is_err());
}

/// A change of rights counts from the next request on, wherever it was made.
#[test]
fn changes_count_at_once() {
    let (mut world, _) = world();
    for (bits, may) in [(0o755, true), (0o700, false), (0o711, true), (0o750, false)] {
        ask(&mut world, ADA, set("/shut", mode(bits))).expect("set");
        assert_eq!(ask(&mut world, BOB, stat("/shut/f")).is_ok(), may, "{bits:o}");
    }
    world.ask(rename("/secret", "/open/secret")).expect("moved");
    assert!(ask(&mut world, BOB, stat("/open/secret/f")).is_err());
    world.ask(set("/open/secret", mode(0o755))).expect("set");
    assert!(ask(&mut world, BOB, stat("/open/secret/f")).is_ok());
}

fn below(world: &mut World, session: SessionId, name: &str) -> Result<(u64, Vec<InodeId>, InodeId), Error> {
    let (mut resume, mut empty, mut first) = (None, Vec::new(), 0);
    let mut top;
    loop {
        let ask_next = Request::JudgeBelow { path: path(name), resume: resume.take(), empty: empty.len() };
        match ask(world, session, ask_next)? {
            Reply::Below { top: directory, version, empty: found, resume: next } => {
                top = directory;
                first = if first == 0 { version } else { first };
                empty.extend(found);
                resume = next;
            }
            other => panic!("{other:?}"),
        }
        if resume.is_none() {
            return Ok((first, empty, top));
        }
    }
}

/// Who removes a tree must be allowed to empty each of its directories that has something in it; the store takes no removal before that was judged.
#[test]
fn trees() {
    let (mut world, _) = world();
    world.ask(set("/open/f", mode(0o666))).expect("set");
    let recursive = |name| Request::Delete { path: path(name), recursive: true };
    let make = |world: &mut World, name, bits| {
        world.ask(mkdir(name)).expect("made");
        world.ask(set(name, rights(bits, "ada", "staff"))).expect("set");
    };
    make(&mut world, "/open/t", 0o777);
    make(&mut world, "/open/t/d", 0o777);
    make(&mut world, "/open/t/e", 0o700);
    for number in 0..4_500 {
        ask(&mut world, SESSION, mkdir(&format!("/open/t/d/{number}"))).expect("made");
        if number % 500 == 0 {
            world.merge();
        }
    }
    let unjudged = ask(&mut world, BOB, recursive("/open/t")).expect_err("not judged");
    assert_eq!(Denied::read(&unjudged), Some(Denied::Below { path: "/open/t".to_string() }));
    // Directories that may not be emptied may go while they are empty, but not too many of them.
    let many = below(&mut world, BOB, "/open/t").expect_err("too many");
    assert!(many.text().contains("/open/t/d/"), "{many}");
    for number in 0..4_500 {
        ask(&mut world, SESSION, set(&format!("/open/t/d/{number}"), mode(0o777))).expect("set");
        if number % 500 == 0 {
            world.merge();
        }
    }
    let (version, empty, top) = below(&mut world, BOB, "/open/t").expect("may go");
    assert_eq!(empty.len(), 1, "only /open/t/e");
    let judged = |version, empty, top| Request::Provided {
        directories: version,
        seen: vec![],
        empty,
        below: Some(top),
        change: Box::new(recursive("/open/t")),
    };
    world.ask(mkdir("/open/t/e/x")).expect("made");
    let stale = ask(&mut world, BOB, judged(version, empty.clone(), top)).map_err(|error| error.kind());
    assert_eq!(stale, Err(ErrorKind::Stale), "it is not empty any more");
    let refused = below(&mut world, BOB, "/open/t").expect_err("what is in /open/t/e is not his to remove");
    assert!(refused.text().contains("/open/t/e (owner ada:staff, drwx------)"), "{refused}");
    world.ask(delete("/open/t/e/x")).expect("gone");
    let (version, empty, top) = below(&mut world, BOB, "/open/t").expect("may go");
    ask(&mut world, BOB, judged(version, empty, top)).expect("gone");
    // In a sticky directory what is not his stays.
    make(&mut world, "/open/s", 0o1777);
    make(&mut world, "/open/s/hers", 0o777);
    let refused = below(&mut world, BOB, "/open/s").expect_err("hers");
    assert!(
        refused
            .text()
            .contains("remove or rename /open/s/hers (owner ada:staff, drwxrwxrwx) in the sticky directory /open/s"),
        "{refused}"
    );
    below(&mut world, ADA, "/open/s").expect("her own");
}

/// A listing that says where files are says it of those that its asker may read: devices give bytes to whoever names them.
#[test]
fn places_are_for_readers() {
    let (mut world, _) = world();
    let listed = |world: &mut World, session| {
        let list = Request::List { path: path("/open"), after: None, limit: 10, located: true, also: Vec::new() };
        match ask(world, session, list).expect("it may be listed") {
            Reply::Entries { entries, groups, .. } => (entries[0].extents.len(), groups.len()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((listed(&mut world, ADA), listed(&mut world, SESSION)), ((1, 1), (1, 1)));
    assert_eq!(listed(&mut world, BOB), (0, 0));
    world.ask(set("/open/f", mode(0o644))).expect("set");
    assert_eq!(listed(&mut world, BOB), (1, 1));
}

/// Of several directories those come that their asker may list, up to one that he may not.
#[test]
fn others_are_judged() {
    let (mut world, _) = world();
    let mut listed = |session| {
        let also = ["/shut", "/secret", "/shared"].map(path).to_vec();
        let list = Request::List { path: path("/open"), after: None, limit: 10, located: false, also };
        match ask(&mut world, session, list).expect("it may be listed") {
            Reply::Entries { others, .. } => others.len(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((listed(ADA), listed(SESSION), listed(BOB)), (3, 3, 1));
}

/// Owners set the times of what they may not write, so that a read-only copy gets its own; HDFS's clients may not, and nobody else.
#[test]
fn owners_set_times() {
    let (mut world, _) = world();
    world.ask(set("/open/f", mode(0o444))).expect("set");
    let accessed = NewAttributes { accessed_ms: Some(7), ..NewAttributes::default() };
    ask(&mut world, ADA, set("/open/f", accessed.clone())).expect("hers");
    let request = Box::new(set("/open/f", accessed.clone()));
    let of_ada = Request::For { user: user("ada", &["staff"]), request };
    for (session, request) in [(SESSION, of_ada), (BOB, set("/open/f", accessed))] {
        let refused = ask(&mut world, session, request).expect_err("denied");
        assert!(refused.text().contains("may not write to /open/f"), "{refused}");
    }
}

/// That something is there is said to whoever wants a directory there, whether or not it could be made: nothing would be written.
#[test]
fn directories_meet_what_is_there() {
    let (mut world, _) = world();
    let makes = |parents| Request::Mkdir { path: path("/shut/f"), parents, new: NewInode::with_mode(0o755) };
    for (parents, kind) in [(false, ErrorKind::Exists), (true, ErrorKind::Invalid)] {
        assert_eq!(ask(&mut world, BOB, makes(parents)).map_err(|error| error.kind()), Err(kind));
    }
    let refused = ask(&mut world, BOB, create("/shut/f")).map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::Denied));
}

/// The bits that a writer sets at its end are those of who made the file: who goes on with it may not give it any. They count as a change of rights, and
/// are bits.
#[test]
fn bits_at_the_end_are_the_makers() {
    let (mut world, _) = world();
    let close = |file: &FileHandle, mode| Request::Close {
        inode: file.inode,
        generation: file.generation,
        finished: None,
        modified: None,
        mode: Some(mode),
    };
    let Ok(Reply::Handle(file)) = ask(&mut world, ADA, create("/open/new")) else { panic!("not made") };
    let refused = ask(&mut world, ADA, close(&file, 0o10_000)).map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::Invalid));
    let Ok(Reply::Attributes(closed)) = ask(&mut world, ADA, close(&file, 0o666)) else { panic!("not closed") };
    assert_eq!((closed.mode, closed.version), (0o666, file.attributes.version + 1));
    let file = FileRef::Path(path("/open/new"));
    let append = Request::AppendOpen { replicas_max: 1, file, holder: String::new(), began: None, at: None };
    let Ok(Reply::Handle(file)) = ask(&mut world, BOB, append) else { panic!("he may write") };
    let Ok(Reply::Attributes(closed)) = ask(&mut world, BOB, close(&file, 0o4777)) else { panic!("not closed") };
    assert_eq!((closed.mode, closed.version), (0o666, file.attributes.version));
}

/// A file in a tree that is being taken apart has no path any more: its own rights count.
#[test]
fn without_a_path() {
    let (mut world, secret) = world();
    world.ask(Request::Delete { path: path("/secret"), recursive: true }).expect("gone");
    let locate = Request::Locate { file: FileRef::Inode(secret), offset: 0, length: 1 };
    assert!(ask(&mut world, ADA, locate.clone()).is_ok(), "it is there still, and hers");
    for request in [locate, Request::Fence { inode: secret, only_gone: false, for_holder: false, generation: None }] {
        let refused = ask(&mut world, BOB, request).map_err(|error| error.kind());
        assert_eq!(refused, Err(ErrorKind::Denied));
    }
}

/// Where a walk has come to, as the store writes it down for whoever walks.
fn resume(directories: &[InodeId]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for directory in directories {
        let mut level = vec![8];
        prost::encoding::encode_varint(directory.0, &mut level);
        bytes.extend([10, level.len() as u8]);
        bytes.extend(level);
    }
    Some(bytes)
}

/// A walk goes on where its asker may be, whatever it says about where it was: below its top, and where it may list still.
#[test]
fn walks_go_on_below_their_tops() {
    let (mut world, _) = world();
    world.ask(mkdir("/open/in")).expect("made");
    world.ask(set("/open/in", rights(0o755, "ada", "staff"))).expect("set");
    let mut inode = |name| match world.ask(stat(name)) {
        Ok(Reply::Attributes(found)) => InodeId(found.inode),
        other => panic!("{other:?}"),
    };
    let (open, inside, secret) = (inode("/open"), inode("/open/in"), inode("/secret"));
    let usage = |levels: &[InodeId]| Request::DiskUsage { path: path("/open"), resume: resume(levels) };
    let judge = |levels: &[InodeId]| Request::JudgeBelow { path: path("/open/in"), resume: resume(levels), empty: 0 };
    let files = |reply: Result<Reply, Error>| match reply {
        Ok(Reply::DiskUsage { totals, resume: None }) => Ok((totals.files, totals.directories)),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.kind()),
    };
    assert_eq!(files(ask(&mut world, BOB, usage(&[open, inside]))), Ok((1, 1)));
    assert_eq!(files(ask(&mut world, BOB, usage(&[open, secret]))), Ok((1, 1)), "it is not counted");
    assert_eq!(files(ask(&mut world, BOB, usage(&[secret]))), Err(ErrorKind::Invalid));
    let elsewhere = ask(&mut world, BOB, judge(&[secret])).map_err(|error| error.kind());
    assert_eq!(elsewhere, Err(ErrorKind::Invalid));
    world.ask(set("/open/in", mode(0o700))).expect("set");
    assert_eq!(files(ask(&mut world, BOB, usage(&[open, inside]))), Err(ErrorKind::Denied), "not any more");
}

/// A step of judging a tree is short whatever the tree is like: each name that is read counts, and behind a directory few are read again.
#[test]
fn steps_of_wide_trees() {
    let (mut world, _) = world();
    world.ask(mkdir("/open/w")).expect("made");
    for number in 0..1_500 {
        world.ask(mkdir(&format!("/open/w/{number}"))).expect("made");
        if number % 500 == 0 {
            world.merge();
        }
    }
    let (mut resume, mut steps) = (None, 0);
    loop {
        let next = Request::JudgeBelow { path: path("/open/w"), resume: resume.take(), empty: 0 };
        let Ok(Reply::Below { resume: more, .. }) = world.ask(next) else { panic!("not judged") };
        (resume, steps) = (more, steps + 1);
        if resume.is_none() {
            break;
        }
    }
    // Each takes a name and four more that were read for nothing, and a look into it.
    assert_eq!(steps, 1_500 * 6 / 4_096 + 1);
}

/// What lies deeper than it is judged is removed by nobody but a superuser, whoever owns what is above it.
#[test]
fn too_deep_to_be_judged() {
    let bob = |world: &mut World, request: Request| {
        let user = User { name: "bob".to_string(), groups: Vec::new() };
        let caller = Caller { session: SESSION, call: 0, floor: 0 };
        world.ask_as(caller, Request::For { user, request: Box::new(request) }).expect("answered")
    };
    let make = |text: &str| Request::Mkdir {
        path: path(text),
        parents: true,
        new: NewInode { above_mode: Some(0o755), ..NewInode::with_mode(0o755) },
    };
    let owner = |text: &str, name: &str| {
        let new = NewAttributes { owner: Some(name.into()), mode: Some(0o700), ..NewAttributes::default() };
        Request::SetAttributes { path: path(text), new }
    };
    let mut world = World::new(1);
    world.ask(mkdir("/u/v")).expect("made");
    world.ask(owner("/u", "bob")).expect("given");
    world.ask(create("/u/v/precious")).expect("made");
    world.ask(owner("/u/v", "alice")).expect("given");
    let mut top = "/u/v".to_string();
    for round in 0..6 {
        let chain = format!("/u/c{round}{}", "/d".repeat(240));
        bob(&mut world, make(&chain)).expect("made");
        let rename =
            Request::Rename { from: path(&top), to: path(&format!("{chain}/e")), replace: false, removes: false };
        bob(&mut world, rename).expect("renamed");
        top = format!("/u/c{round}");
        world.merge();
    }
    let mut resume = None;
    let refused = loop {
        match bob(&mut world, Request::JudgeBelow { path: path(&top), resume, empty: 0 }) {
            Ok(Reply::Below { resume: Some(next), .. }) => resume = Some(next),
            other => break other,
        }
    };
    assert_eq!(refused.map(drop).map_err(|error| error.kind()), Err(ErrorKind::Unsupported));
    world.ask(delete(&top)).expect("a superuser removes it");
}

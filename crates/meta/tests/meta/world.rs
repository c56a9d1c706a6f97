//! A store on simulated devices, driven one step at a time.

use crate::model::OPEN;
use base::attributes::Attributes;
use base::disk::Disk;
use base::error::{ErrorKind, Result};
use base::id::{DeviceId, GroupId, InodeId, NodeId, SessionId};
use base::planted::Planted;
use base::policy::Class;
use base::unit::{MIB, Time, WallTime};
use meta::request::{FileRef, NewInode, PutFile, User};
use meta::{Caller, Effect, MergeJob, Opened, Path, Reply, Request, Settings, Store};
use sim::disk::{SimDevice, SimDisk, SimFaults};
use sim::file::SimFileDevice;
use sim::random::SimRandom;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The session of callers that say no other.
pub const SESSION: SessionId = SessionId(7);

/// One store, its devices and what it answered.
pub struct World {
    pub seed: u64,
    pub device: SimDevice,
    pub file: SimFileDevice,
    pub now: Time,
    pub wall: WallTime,
    pub replies: BTreeMap<u64, Result<Reply>>,
    pub opened: Opened,
    pub next_call: u64,
    /// Its directories know how many names they have.
    pub are_counted: bool,
    /// What callers that say no other session ask no call below of again.
    pub floor: u64,
    /// Answers remembered for a session, if not as many as usual; counts when the store is opened.
    pub calls_max: Option<usize>,
    /// The same for all clients of gateways together.
    pub answers_max: Option<usize>,
    /// What a page holds, if not as much as usual; counts when the store is opened.
    pub page_max: Option<usize>,
    /// A fault put in on purpose; counts when the store is opened.
    pub planted: Option<Planted>,
    /// Bytes of a segment of the log; counts when the store is opened.
    pub segment_length: u64,
    random: Arc<SimRandom>,
    next_tag: u64,
    process: Option<(SimDisk, Store<u64>)>,
}

impl World {
    /// A new store with one session and two devices.
    pub fn new(seed: u64) -> World {
        let mut world = World {
            seed,
            device: SimDevice::new(seed, SimFaults::default()),
            file: SimFileDevice::new(),
            now: Time::from_nanos(1_000_000_000),
            wall: WallTime(1_700_000_000_000),
            replies: BTreeMap::new(),
            opened: Opened { replayed: 0, sessions: 0 },
            next_call: 1,
            are_counted: true,
            floor: 0,
            calls_max: None,
            answers_max: None,
            page_max: None,
            planted: None,
            segment_length: MIB,
            random: Arc::new(SimRandom::new(seed)),
            next_tag: 0,
            process: None,
        };
        world.open();
        world.ask(Request::OpenSession { user: User::default() }).expect("a session");
        world
    }

    /// Opens the store.
    pub fn open(&mut self) {
        let seed = self.seed;
        self.try_open().unwrap_or_else(|error| panic!("seed {seed}: open: {error}"));
        for number in 1..=2 {
            self.ask(register(number, Class::Ssd)).expect("a device");
        }
    }

    /// Opens the store, which may refuse.
    pub fn try_open(&mut self) -> Result<()> {
        let mut disk = self.device.attach();
        let mut settings =
            Settings::for_capacity(base::unit::GIB << 10, Arc::clone(&self.random) as Arc<dyn base::env::Random>);
        settings.segment_length = self.segment_length;
        settings.segments_max = 4;
        settings.planted = self.planted;
        settings.superuser = "root".to_string();
        settings.remembered_calls = self.calls_max.unwrap_or(settings.remembered_calls);
        settings.page_max = self.page_max.unwrap_or(settings.page_max);
        settings.remembered_answers = self.answers_max.unwrap_or(settings.remembered_answers);
        let tree = Box::new(self.file.open());
        let (store, opened) = Store::open(&mut disk, tree, &settings, self.now, self.wall)?;
        self.opened = opened;
        self.process = Some((disk, store));
        Ok(())
    }

    /// The store.
    pub fn store(&mut self) -> &mut Store<u64> {
        &mut self.process.as_mut().expect("an open store").1
    }

    /// Hands in a request with a call number of its own; its tag.
    pub fn submit(&mut self, request: Request) -> u64 {
        self.next_call += 1;
        let call = self.next_call - 1;
        self.submit_as(Caller { session: SESSION, call, floor: self.floor }, request)
    }

    /// Hands in a request; its tag.
    pub fn submit_as(&mut self, caller: Caller, request: Request) -> u64 {
        self.next_tag += 1;
        let (tag, now, wall) = (self.next_tag - 1, self.now, self.wall);
        self.store().submit(now, wall, caller, request, tag);
        tag
    }

    /// Moves effects and at most some finished operations. Whether anything happened.
    pub fn step(&mut self) -> bool {
        let (disk, store) = self.process.as_mut().expect("an open store");
        let effects = store.take_effects(self.now);
        let mut moved = !effects.is_empty();
        for effect in effects {
            match effect {
                Effect::Disk { token, op } => disk.submit(token, op),
                Effect::Send { .. } | Effect::Turned(_) | Effect::Page(_) | Effect::Copy(_) | Effect::Copied => {
                    panic!("it is alone")
                }
                Effect::Reply { tag, result } => {
                    assert!(self.replies.insert(tag, result).is_none(), "seed {}: two replies to {tag}", self.seed);
                }
            }
        }
        let mut done = Vec::new();
        disk.poll(Some(Duration::ZERO), &mut done);
        moved |= !done.is_empty();
        for done in done {
            store.completed(self.now, done);
        }
        moved
    }

    /// Whether a device stopped at its crash point.
    pub fn stopped(&self) -> bool {
        self.device.crashed() || self.file.crashed()
    }

    /// Steps until nothing moves.
    pub fn run(&mut self) {
        let mut idle = 0;
        while idle < 20 && !self.stopped() {
            idle = if self.step() { 0 } else { idle + 1 };
        }
    }

    /// The answer to a request, if the device does not stop before.
    pub fn ask_as(&mut self, caller: Caller, request: Request) -> Option<Result<Reply>> {
        let tag = self.submit_as(caller, request);
        let mut idle = 0;
        while !self.replies.contains_key(&tag) && !self.stopped() && idle < 1000 {
            idle = if self.step() { 0 } else { idle + 1 };
        }
        self.replies.remove(&tag)
    }

    /// The answer to a request of a device that does not stop.
    pub fn ask(&mut self, request: Request) -> Result<Reply> {
        self.next_call += 1;
        let call = self.next_call - 1;
        let seed = self.seed;
        let shown = format!("{request:?}");
        self.ask_as(Caller { session: SESSION, call, floor: self.floor }, request)
            .unwrap_or_else(|| panic!("seed {seed}: {shown} was not answered"))
    }

    /// The kind of error that a request gets.
    pub fn refusal(&mut self, request: Request) -> ErrorKind {
        let shown = format!("{request:?}");
        match self.ask(request) {
            Ok(reply) => panic!("{shown} was answered {reply:?}"),
            Err(error) => error.kind(),
        }
    }

    /// Lets time pass and ticks until nothing is left to do now or after a pause between two steps.
    pub fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
        self.wall = WallTime(self.wall.0 + time.as_millis() as u64);
        for _ in 0..10_000 {
            let (now, wall) = (self.now, self.wall);
            self.store().tick(now, wall);
            self.run();
            let soon = now.after(Duration::from_millis(10));
            let Some(next) = self.store().next_tick().filter(|next| *next <= soon) else { return };
            if self.stopped() {
                return;
            }
            self.now = now.max(next);
            self.merge();
        }
        panic!("seed {}: ticks without end", self.seed);
    }

    /// Merges everything now.
    pub fn merge(&mut self) {
        if let Some(job) = self.store().merge_now() {
            self.merge_with(job);
        }
    }

    /// Runs a merge job and hands its result in.
    pub fn merge_with(&mut self, job: MergeJob) {
        let done = job.run();
        let now = self.now;
        drop(self.store().merged(now, done));
        self.run();
    }

    /// Power loss, and the store is opened again.
    pub fn crash(&mut self, seed: u64) {
        self.process = None;
        self.device.crash();
        self.file.crash(seed);
        self.replies.clear();
        self.open();
    }

    /// Power loss without opening.
    pub fn power_off(&mut self, seed: u64) {
        self.process = None;
        self.device.crash();
        self.file.crash(seed);
        self.replies.clear();
    }

    /// Process kill, and the store is opened again.
    pub fn kill(&mut self) {
        self.device.kill();
        self.file.kill();
        self.process = None;
        self.replies.clear();
        self.open();
    }

    /// Every name with its length, `OPEN` if somebody writes it; none for directories.
    pub fn dump(&mut self) -> BTreeMap<String, Option<u64>> {
        let mut names = BTreeMap::new();
        let mut directories = vec![String::new()];
        while let Some(directory) = directories.pop() {
            let (mut after, mut children) = (None, 0);
            loop {
                let list = Request::List {
                    path: path(&format!("{directory}/")),
                    after,
                    limit: 3,
                    located: false,
                    also: Vec::new(),
                };
                let Ok(Reply::Entries { entries, more, .. }) = self.ask(list) else {
                    panic!("seed {}: no list", self.seed)
                };
                for entry in &entries {
                    let name = format!("{directory}/{}", entry.name);
                    let length = if entry.attributes.open { OPEN } else { entry.attributes.length };
                    self.ways_lead_to(&name, &entry.attributes);
                    names.insert(name.clone(), (!entry.attributes.directory).then_some(length));
                    if entry.attributes.directory {
                        directories.push(name);
                    }
                    children += 1;
                }
                after = entries.last().map(|entry| entry.name.clone());
                if !more {
                    break;
                }
            }
            let Ok(Reply::Attributes(found)) = self.ask(stat(&format!("{directory}/"))) else {
                panic!("seed {}: no '{directory}'", self.seed)
            };
            if self.are_counted {
                assert_eq!(found.children, Some(children), "seed {}: '{directory}'", self.seed);
            }
        }
        names
    }

    /// A lookup of a name meets every directory above it and what the listing says; its number leads back to it.
    fn ways_lead_to(&mut self, name: &str, listed: &Attributes) {
        let below = path(&format!("{name}/no/name"));
        let Ok(Reply::Found { found, .. }) =
            self.ask(Request::Lookup { path: below, known: 0, wanted: Default::default() })
        else {
            panic!("seed {}: no lookup", self.seed)
        };
        assert_eq!(found.len(), 1 + name.matches('/').count(), "seed {}: {name}", self.seed);
        assert_eq!(found.last(), Some(listed), "seed {}: {name}", self.seed);
        assert!(found[..found.len() - 1].iter().all(|above| above.directory), "seed {}: {name}", self.seed);
        let back = self.ask(Request::PathOf { inode: InodeId(listed.inode) });
        assert_eq!(back, Ok(Reply::PathOf(name.to_string())), "seed {}", self.seed);
    }
}

/// A small file of no bytes, to be put.
pub fn small_file(name: &str) -> PutFile {
    PutFile {
        path: path(name),
        group: GroupId(0),
        offset: 0,
        length: 0,
        crc: 0,
        modified: None,
        accessed: None,
        mode: 0o644,
        overwrite: false,
        parents: true,
        directory: false,
    }
}

/// A path that is right.
pub fn path(text: &str) -> Path {
    Path::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Registers a device of one TiB.
pub fn register(number: u128, class: Class) -> Request {
    Request::DeviceRegister { device: DeviceId(number), class, capacity: 1 << 40, node: NodeId(1) }
}

/// Makes a directory and those above.
pub fn mkdir(text: &str) -> Request {
    Request::Mkdir { path: path(text), parents: true, new: NewInode::with_mode(0o755) }
}

/// Makes a file without replacing.
pub fn create(text: &str) -> Request {
    Request::Create {
        replicas_max: 1,
        path: path(text),
        overwrite: false,
        parents: false,
        new: NewInode::with_mode(0o644),
    }
}

/// Opens a file at its end.
pub fn append(text: &str) -> Request {
    Request::AppendOpen {
        replicas_max: 1,
        file: FileRef::Path(path(text)),
        holder: String::new(),
        began: None,
        at: None,
    }
}

/// Asks for attributes.
pub fn stat(text: &str) -> Request {
    Request::Stat { path: path(text) }
}

/// Deletes with everything below.
pub fn delete(text: &str) -> Request {
    Request::Delete { path: path(text), recursive: true }
}

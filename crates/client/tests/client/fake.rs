//! A node in memory: maps instead of engines, and switches for what can go wrong on the way.
#![allow(clippy::disallowed_methods)] // Time is tokio's paused time here, which is virtual.

mod bag;
mod chunk;
pub mod file;
pub mod nodes;
pub mod replicas;

use base::buffer::Pool;
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind, Result};
use base::id::{NodeId, SessionId};
use base::policy::Compression;
use base::unit::{Time, WallTime};
use client::{Client, LocalNode, Settings};
use net::message::{Ask, Done, bag as bags, chunk as chunks, cluster, file as files, session};
use net::{Body, Call, Credentials, Link, Payload, Responder, Service};
use prost::Message;
use replicas::Bad;
use sim::net::SimNet;
use sim::random::SimRandom;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// Devices of the node.
pub const DEVICES: u64 = 3;

/// Its id.
const NODE: NodeId = NodeId(7);

/// Itself with all its devices.
fn view() -> cluster::ViewAnswer {
    let node = cluster::Node { node: NODE.0.into(), incarnation: 1, ..cluster::Node::default() };
    let devices = (1..=DEVICES).map(|device| u128::from(device).into()).collect();
    let member = cluster::Member { node, devices, silent: false, keeping: String::new() };
    cluster::ViewAnswer { epoch: 1, keeper: NODE.0.into(), members: vec![member], ..cluster::ViewAnswer::default() }
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Calls take up to so long, each its own time, so they overtake each other. Zero: done at once, in order.
    pub delay_max: Duration,
    /// One answer in so many is lost, and the call asked again as a link does. Zero: none.
    pub lose_one_in: u64,
    /// The next so many appends and pushes find no room.
    pub full: u32,
    /// The next so many pushes and messages of acknowledgements are too many for what a device remembers.
    pub crowded: u32,
    /// The next so many appends are cut short: the first half of their bytes is there, and asked again they do not follow on.
    pub cut: u32,
    /// From now on nothing is answered in time.
    pub unreachable: bool,
    /// Calls are carried out, but nothing is answered in time.
    pub unanswered: bool,
    /// This device is no member of any bag any more: it refuses for good what it does not have.
    pub left: Option<u128>,
    /// Pushes to this device are carried out, but not answered in time.
    pub silent_device: Option<u128>,
    /// The next so many reads bring bytes that do not match their checksum, or find them so themselves.
    pub damaged: u32,
    /// The next so many times that somebody is told where bytes are, they are moved before he comes there.
    pub moved: u32,
    /// The node is older and knows nothing of stored checksums.
    pub without_blocks: bool,
    /// The node is older and says in no listing where bytes are.
    pub without_extents: bool,
}

/// The node, and what a test looks at.
pub struct Fake {
    pub random: SimRandom,
    pub clock: Arc<TokioClock>,
    state: Mutex<State>,
}

#[derive(Default)]
pub struct State {
    pub faults: Faults,
    pub files: file::Files,
    /// By chunk and device.
    pub chunks: BTreeMap<(u128, u128), chunk::Stored>,
    pub bags: BTreeMap<u64, bag::Stored>,
    /// Answers to changes of names, by session and call number.
    remembered: BTreeMap<(u128, u64), std::result::Result<Vec<u8>, Error>>,
    pub next: u64,
    /// Devices there are, numbered from 1.
    pub devices: u64,
    /// Those of them that have no room for files.
    pub full_devices: BTreeSet<u128>,
    /// Those of them that failed a sync: they take no changes, and what was not synced there is lost.
    pub failed_devices: BTreeSet<u128>,
    /// Those that hear nothing and say nothing.
    pub dead: BTreeSet<u128>,
    /// What waits until it is not held any more.
    pub held: BTreeSet<Held>,
    /// Devices that do one call after another, and how long each takes.
    pub slow: BTreeMap<u128, Duration>,
    /// When they have done those that came.
    busy: BTreeMap<u128, Time>,
    /// Bytes that are behind the end of each of its open chunks when a device is asked how long they are: of an append that was not carried out to its
    /// end.
    pub tails: BTreeMap<u128, usize>,
    /// There is no place for groups.
    pub without_groups: bool,
    /// Devices that refuse to seal, and why.
    pub seals_refused: BTreeMap<u128, ErrorKind>,
    /// How often the process behind a device started, where that is more than once.
    pub starts: BTreeMap<u128, u64>,
    /// Groups of files that ended early because a device took no more.
    pub ended_early: u64,
    /// Replicas that writers said to be short: chunk and device.
    pub short: Vec<(u128, u128)>,
    /// How writers are told to make bytes smaller; chunks of the fake know no cells.
    pub compression: Compression,
    /// How wide files become.
    pub wide: file::Wide,
    /// Who is there.
    pub view: cluster::ViewAnswer,
    /// Calls that came to the wrong node.
    pub astray: u64,
    /// Bytes of chunks that can be read no more.
    pub released: Vec<(u128, std::ops::Range<u64>)>,
    /// What is wrong with reads of these devices.
    pub bad: BTreeMap<u128, replicas::Bad>,
    /// Devices that reads came to, in order.
    pub readers_of: Vec<u128>,
    /// Bytes that reads brought.
    pub bytes_read: u64,
    /// Groups for small files that take no more of them.
    pub finished_packs: Vec<u64>,
    /// Calls by kind.
    pub calls: BTreeMap<u16, u64>,
}

/// Calls that are carried out later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Held {
    /// All that are about this device.
    Device(u128),
    /// All of this kind.
    Kind(u16),
    /// The answers of this device: what it is asked is done, and nobody hears of that yet.
    Answers(u128),
}

/// Virtual time.
pub struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now(&self) -> Time {
        Time::from_nanos(self.0.elapsed().as_nanos() as u64)
    }
    fn wall(&self) -> WallTime {
        WallTime(self.0.elapsed().as_millis() as u64)
    }
}

/// An answer that is ready to go.
type Reply = (Vec<u8>, Payload);

fn reply<M: Message>(message: M) -> Result<Reply> {
    Ok((message.encode_to_vec(), Payload::empty()))
}

impl Fake {
    pub fn new(seed: u64) -> Arc<Fake> {
        let clock = Arc::new(TokioClock(Instant::now()));
        let fake = Fake { random: SimRandom::new(seed), clock, state: Mutex::default() };
        *fake.state() = State { next: 100, devices: DEVICES, view: view(), ..State::default() };
        Arc::new(fake)
    }

    /// A new client, with a session of its own.
    pub fn client(self: &Arc<Self>) -> Client {
        let session = SessionId(self.random.wide());
        let link = Link::local(Arc::new(FakeService { fake: self.clone(), node: None }), session);
        let settings = Settings {
            net: Arc::new(SimNet::new(1, self.clock.clone(), "client")),
            addresses: Vec::new(),
            program: "test".into(),
            credentials: Credentials::default(),
            user: Default::default(),
            clock: self.clock.clone(),
            random: Arc::new(self.random.fork(&session.to_string())),
            pool: Pool::new(64 << 20),
            connections: 2,
            silence_max: Duration::from_secs(10),
        };
        Client::on_local_node(LocalNode { node: NODE, link, session }, settings)
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics with the state in its hands")
    }

    pub fn fail(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.state().faults);
    }

    /// Changes the last byte of a chunk that waits in a bag, which nobody notices before it is pulled. Its name.
    pub fn damage_stored_chunk(&self) -> u128 {
        let mut state = self.state();
        let mut members = state.bags.values_mut().flat_map(|bag| bag.members.values_mut());
        let (name, bytes) = members.find_map(|member| member.chunks.iter_mut().next()).expect("a chunk");
        let mut rotten = bytes.to_vec();
        *rotten.last_mut().expect("a byte") ^= 1;
        *bytes = rotten.into();
        *name
    }

    async fn handle(&self, call: &Call) -> Result<Reply> {
        let faults = self.state().faults;
        *self.state().calls.entry(call.kind).or_default() += 1;
        if faults.unreachable {
            return Err(Error::new(ErrorKind::Unreachable, "nothing was heard for 10 s"));
        }
        let device = nodes::device_of(call)?.map(|device| device.value());
        self.come_to(device, call.kind).await?;
        self.delay(faults.delay_max).await;
        let mut answer = self.answer(call).await;
        while faults.lose_one_in > 0 && self.random.one_in(faults.lose_one_in) {
            self.delay(faults.delay_max).await;
            answer = self.answer(call).await;
        }
        self.delay(faults.delay_max).await;
        while device.is_some_and(|device| self.state().held.contains(&Held::Answers(device))) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let to_silent = |device: u128| {
            call.kind == bags::Push::KIND && asked::<bags::Push>(call).is_ok_and(|ask| ask.device.value() == device)
        };
        if faults.unanswered || faults.silent_device.is_some_and(to_silent) {
            return Err(Error::new(ErrorKind::Unreachable, "nothing was heard for 10 s"));
        }
        answer
    }

    /// Waits while such calls are held, and as long as a link does for one that is dead.
    async fn come_to(&self, device: Option<u128>, kind: u16) -> Result<()> {
        let is_held = |held: &Held| match held {
            Held::Device(held) => device == Some(*held),
            Held::Kind(held) => kind == *held,
            Held::Answers(_) => false,
        };
        while self.state().held.iter().any(is_held) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let wait = device.and_then(|device| self.state().turn(device, self.clock.now()));
        tokio::time::sleep(wait.unwrap_or_default()).await;
        if device.is_some_and(|device| self.state().dead.contains(&device)) {
            tokio::time::sleep(Duration::from_secs(10)).await;
            return Err(Error::new(ErrorKind::Unreachable, "nothing was heard for 10 s"));
        }
        Ok(())
    }

    async fn delay(&self, most: Duration) {
        if !most.is_zero() {
            tokio::time::sleep(most.mul_f64(self.random.below(1000) as f64 / 1000.0)).await;
        }
    }

    async fn answer(&self, call: &Call) -> Result<Reply> {
        call.payload.verify()?;
        match call.kind {
            session::Renew::KIND => reply(Done {}),
            cluster::View::KIND => reply(self.state().view.clone()),
            files::Stat::KIND => reply(self.state().stat(&asked::<files::Stat>(call)?.path)?),
            files::List::KIND => reply(self.state().list(&asked(call)?)?),
            files::Locate::KIND => reply(self.state().locate(&asked(call)?)?),
            files::DiskUsage::KIND => reply(self.state().disk_usage(&asked(call)?)?),
            kind if (16..48).contains(&kind) || kind == files::FinishPack::KIND => self.once(call),
            chunks::Append::KIND => reply(self.state().append(&asked(call)?, call.payload.clone().into_bytes())?),
            chunks::AppendCell::KIND => Err(Error::new(ErrorKind::Unsupported, "this node does not answer this")),
            chunks::Read::KIND => {
                let ask = asked::<chunks::Read>(call)?;
                let bad = self.come_to_read(&ask).await?;
                let (answer, bytes) = self.state().read(&ask)?;
                let bytes = bytes.slice(..if bad == Some(Bad::Short) { bytes.len() / 2 } else { bytes.len() });
                let damaged = self.state().use_damage() || bad == Some(Bad::Rotten);
                match (damaged, ask.unchecked) {
                    (false, _) => Ok((answer.encode_to_vec(), Payload::new(bytes))),
                    (true, true) => {
                        let (crc, mut rotten) = (base::checksum::crc32c(&bytes), bytes.to_vec());
                        rotten.iter_mut().take(1).for_each(|byte| *byte ^= 1);
                        Ok((answer.encode_to_vec(), Payload::with_crc(vec![rotten.into()], crc)))
                    }
                    (true, false) => Err(Error::new(ErrorKind::Corrupt, "the bytes are rotten")),
                }
            }
            chunks::Seal::KIND => reply(self.state().seal(&asked(call)?)?),
            chunks::Stat::KIND => reply(self.state().chunk_stat(&asked(call)?)?),
            bags::Create::KIND => reply(self.state().bag_create(&asked(call)?)?),
            bags::Stat::KIND => {
                let ask: bags::Stat = asked(call)?;
                reply(self.state().bag_info(&ask.name, !ask.uncounted)?)
            }
            bags::Seal::KIND => reply(self.state().bag_seal(&asked::<bags::Seal>(call)?.name)?),
            bags::Push::KIND => reply(self.state().push(&asked(call)?, call.payload.clone().into_bytes())?),
            bags::Pull::KIND => self.pull(asked(call)?).await,
            bags::Acknowledge::KIND => {
                let now = self.clock.now();
                reply(self.state().acknowledge(now, &asked(call)?)?)
            }
            bags::RenewGrants::KIND => {
                let now = self.clock.now();
                reply(self.state().renew(now, &asked(call)?)?)
            }
            other => Err(Error::new(ErrorKind::Protocol, format!("the fake does not know kind {other}"))),
        }
    }

    /// A change of names: done once, and answered the same when asked again.
    fn once(&self, call: &Call) -> Result<Reply> {
        let key = (call.session.0, call.number);
        let mut state = self.state();
        if let Some(answer) = state.remembered.get(&key) {
            return answer.clone().map(|message| (message, Payload::empty()));
        }
        let answer = state.change(call);
        state.remembered.insert(key, answer.clone());
        answer.map(|message| (message, Payload::empty()))
    }

    async fn pull(&self, ask: bags::Pull) -> Result<Reply> {
        let deadline = self.clock.now().after(Duration::from_millis(u64::from(ask.wait_ms)));
        loop {
            let now = self.clock.now();
            let (answer, bytes) = self.state().pull(now, &ask)?;
            let nothing = answer.pulled == bags::Pulled::Nothing as i32;
            if !nothing || now >= deadline {
                return Ok((answer.encode_to_vec(), Payload::new(bytes)));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl State {
    /// How long a call waits that comes to a slow device now, until that has done it.
    fn turn(&mut self, device: u128, now: Time) -> Option<Duration> {
        let each = *self.slow.get(&device)?;
        let busy = self.busy.entry(device).or_insert(now);
        *busy = (*busy).max(now).after(each);
        Some(busy.since(now))
    }

    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Uses up one of the refusals for want of room.
    fn refuse_full(&mut self) -> Result<()> {
        if self.faults.full == 0 {
            return Ok(());
        }
        self.faults.full -= 1;
        Err(Error::new(ErrorKind::Full, "the device is full"))
    }

    /// Uses up one of the refusals for want of memory.
    fn refuse_crowded(&mut self) -> Result<()> {
        if self.faults.crowded == 0 {
            return Ok(());
        }
        self.faults.crowded -= 1;
        Err(Error::new(ErrorKind::Busy, "the device remembers too much"))
    }

    /// Uses up one of the damages.
    fn use_damage(&mut self) -> bool {
        let damaged = self.faults.damaged > 0;
        self.faults.damaged -= u32::from(damaged);
        damaged
    }

    fn change(&mut self, call: &Call) -> Result<Vec<u8>> {
        let session = call.session.0;
        Ok(match call.kind {
            files::MakeDirectory::KIND => self.make_directory(&asked(call)?)?.encode_to_vec(),
            files::Create::KIND => self.create(session, &asked(call)?)?.encode_to_vec(),
            files::Append::KIND => self.append_open(session, &asked::<files::Append>(call)?.path)?.encode_to_vec(),
            files::NextGroup::KIND => self.next_group(&asked(call)?)?.encode_to_vec(),
            files::Close::KIND => self.close(&asked(call)?)?.encode_to_vec(),
            files::PackGroup::KIND => self.new_group_beside(&asked::<files::PackGroup>(call)?.refused).encode_to_vec(),
            files::FinishPack::KIND => {
                self.finished_packs.push(asked::<files::FinishPack>(call)?.group);
                Done {}.encode_to_vec()
            }
            files::PutFiles::KIND => self.put_files(&asked(call)?).encode_to_vec(),
            other => return Err(Error::new(ErrorKind::Protocol, format!("the fake does not know kind {other}"))),
        })
    }
}

struct FakeService {
    fake: Arc<Fake>,
    /// The node that it is one of several; none: it is all there is.
    node: Option<NodeId>,
}

impl Service for FakeService {
    fn handle(&self, mut call: Call) {
        let (fake, node) = (self.fake.clone(), self.node);
        if call.number == 0 {
            // As over a network, where answers are lost and calls asked again.
            call.number = fake.state().number();
        }
        call.body = encoded(&mut call);
        tokio::spawn(async move {
            let result = match node.map_or(Ok(()), |node| fake.check_place(node, &call)) {
                Ok(()) => fake.handle(&call).await,
                Err(error) => Err(error),
            };
            answer(call.kind, call.respond, result);
        });
    }
}

/// Does the same with the type of a question's kind, whichever it is.
macro_rules! by_kind {
    ($kind:expr, $ask:ident => $does:expr, _ => $unknown:expr) => {
        by_kind!(
            $kind,
            $ask,
            $does,
            $unknown,
            session::Renew,
            cluster::View,
            files::Stat,
            files::List,
            files::Locate,
            files::DiskUsage,
            files::MakeDirectory,
            files::Create,
            files::Append,
            files::NextGroup,
            files::Close,
            files::PackGroup,
            files::FinishPack,
            files::PutFiles,
            chunks::Append,
            chunks::Read,
            chunks::Seal,
            chunks::Stat,
            bags::Create,
            bags::Stat,
            bags::Seal,
            bags::Push,
            bags::Pull,
            bags::Acknowledge,
            bags::RenewGrants,
        )
    };
    ($kind:expr, $ask:ident, $does:expr, $unknown:expr, $($path:path,)*) => {
        match $kind {
            $(<$path>::KIND => {
                type $ask = $path;
                $does
            })*
            _ => $unknown,
        }
    };
}

/// Answers with a message of the kind's type.
fn answer(kind: u16, respond: Responder, result: Result<Reply>) {
    match result {
        Err(error) => respond.fail(error),
        Ok((message, payload)) => by_kind!(
            kind,
            Asked => match <Asked as Ask>::Answer::decode(message.as_slice()) {
                Ok(decoded) => respond.answer(decoded, payload),
                Err(error) => respond.fail(Error::new(ErrorKind::Protocol, error.to_string())),
            },
            _ => respond.fail(Error::new(ErrorKind::Protocol, "an answer without a question"))
        ),
    }
}

/// The question encoded, as it is over a network: it may be read again and again.
fn encoded(call: &mut Call) -> Body {
    by_kind!(
        call.kind,
        Asked => call.ask::<Asked>().map_or(Body::Taken, |ask| Body::Encoded(ask.encode_to_vec().into())),
        _ => Body::Taken
    )
}

/// The question of a call, as often as it is looked at.
fn asked<A: Ask>(call: &Call) -> Result<A> {
    let Body::Encoded(message) = &call.body else { unreachable!("the fake keeps questions encoded") };
    A::decode(message.clone()).map_err(|error| Error::new(ErrorKind::Protocol, error.to_string()))
}

//! A client: one session with the store, kept alive in the background, shared by everything that reads and writes.

use crate::compressed::Compressor;
use crate::replicas::Lately;
use crate::routes::{Connector, Links, Route, Routes};
use crate::streams::Streams;
use base::buffer::Pool;
use base::checksum::{UnitSums, combine};
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind, Result};
use base::id::{NodeId, RequestId, SessionId};
use base::limit::{FILE_CHUNK, RECORD_PAYLOAD_MAX, REPLICAS_MAX, SESSION_LEASE, SMALL_PAYLOAD_MAX};
use base::net::Net;
use base::planted::Planted;
use base::unit::MIB;
use base::watched::{Stop, Stopped};
use bytes::Bytes;
use net::message::cluster::{View, ViewAnswer};
use net::message::file::{self, Answered, Asked, Looked};
use net::message::{Ask, Id, chunk, session};
use net::{Asker, CallNumbers, Credentials, Link, LinkSettings, Payload, Sent};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

/// How to reach the store.
pub struct Settings {
    /// The network.
    pub net: Arc<dyn Net>,
    /// Nodes of the cluster, as `host:port`, one at least; the others are found through the first of them that answers.
    pub addresses: Vec<String>,
    /// Which program asks, for people: `stormwell put`.
    pub program: String,
    /// The cluster that is meant and its secret, as far as they are known.
    pub credentials: Credentials,
    /// Who uses the session, and owns what it creates.
    pub user: User,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance: session, chunk and grant names, and the spreading over devices.
    pub random: Arc<dyn Random>,
    /// Where aligned memory comes from.
    pub pool: Pool,
    /// Connections to each node, at least 1; 2 keep a card busy while one of them waits for its turn.
    pub connections: usize,
    /// A call fails after this much silence; `base::limit::CALL_SILENCE_MAX` unless there is a reason.
    pub silence_max: Duration,
}

/// Who uses a session, as far as that is believed: nobody proves it. Without a name: nobody in particular, who may do everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// The groups that the user is in; what the session creates belongs to the first one.
    pub groups: Vec<String>,
}

/// A node that a client stands on: what is asked of it is a function call.
pub struct LocalNode {
    /// The node.
    pub node: NodeId,
    /// The link to it, of the session.
    pub link: Link,
    /// The client's session.
    pub session: SessionId,
}

/// How much travels at once. All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// What a writer gathers before it sends, and the unit in which large writes are cut. A multiple of `base::limit::BLOCK`.
    pub piece: usize,
    /// A file goes on in a new chunk after so many bytes, and a packer in a new group.
    pub file_chunk: u64,
    /// What one writer may have sent and not acknowledged.
    pub write_window: usize,
    /// What one read asks for.
    pub read_piece: usize,
    /// What one stream may have asked for and not handed out.
    pub read_window: usize,
}

impl Default for Sizes {
    /// One record a piece, as the device writes it; 16 MiB cover 10 Gbit/s at 13 ms. Reads ask for more ahead: half of what is
    /// asked for is on its way through sockets, and the device wants a queue. Nine alternated rounds of 4 GiB, cold: 2,603 MB/s
    /// with 16 MiB, 3,036 with 32, 3,187 with 48, beside 3,515 of fio. Writes are slower with more: 1,500, 1,473 (32), 1,308 (64).
    fn default() -> Sizes {
        Sizes {
            piece: RECORD_PAYLOAD_MAX,
            file_chunk: FILE_CHUNK,
            write_window: 16 * MIB as usize,
            read_piece: 2 * MIB as usize,
            read_window: 48 * MIB as usize,
        }
    }
}

/// One session with the store. Clones are the same session; it ends with the last of them and what they opened.
#[derive(Clone)]
pub struct Client {
    pub(crate) session: Arc<Session>,
    pub(crate) sizes: Sizes,
    /// Which call of a gateway's client it asks for.
    pub(crate) asked: Option<Asked>,
    /// What its changes rely on.
    looked: Option<Arc<Looked>>,
    /// For whom it asks.
    user: Option<Arc<User>>,
    /// A fault that its writers have, for tests of the tests.
    pub(crate) planted: Option<Planted>,
    /// To so many replicas its writers send what they write, if the policy wants them; fewer for tests.
    pub(crate) replicas_max: u32,
}

/// What all clones share.
pub(crate) struct Session {
    name: SessionId,
    /// The ways to the devices, and to the node that keeps the metadata.
    pub(crate) routes: Arc<Routes>,
    /// What reads had of the devices lately.
    pub(crate) lately: Lately,
    /// Spreads writers over the links of a node.
    next_lane: AtomicUsize,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) pool: Pool,
    pub(crate) compressor: Compressor,
    /// The numbers of what is asked of devices and may be asked again.
    pub(crate) streams: Streams,
    /// Bytes that ranges being read may have asked for beyond their first pieces.
    pub(crate) ahead: AtomicU64,
    renewal: JoinHandle<()>,
    over: Stopped,
    /// The number of the next request that is begun for somebody else.
    next_request: AtomicU64,
}

/// Numbers of requests that are begun for others begin here: those below are calls of the session's own.
const REQUESTS_OF_OTHERS: u64 = 1 << 63;

impl Drop for Session {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

impl Client {
    /// Connects to a node, and through it to the one that keeps the metadata, and begins a session. `Unreachable` if nobody
    /// answers.
    pub async fn connect(settings: Settings) -> Result<Client> {
        let session = SessionId(settings.random.wide());
        let Start { connector, addresses, renewal, surroundings } = Start::of(settings, session);
        let (address, link, view) = first_of(&connector, &addresses).await?;
        // Where it was named by is where it is reached, whatever it says of itself.
        let links = Links::made(link.clone(), &address, connector.settings.connections);
        let mut given = vec![(link.node(), Arc::new(links))];
        let keeper = match (NodeId(view.keeper.value()), address_of(&view, view.keeper)) {
            _ if !view.keepers.is_empty() => connector.to_leader(leaders(&view, &address)),
            (keeper, _) if keeper == link.node() => link,
            (keeper, Some(at)) => {
                let link = Link::connect(connector.net.clone(), &at, connector.settings.clone()).await;
                let link = link.map_err(|error| error.during("the node that keeps the metadata"))?;
                given.push((keeper, Arc::new(Links::made(link.clone(), &at, connector.settings.connections))));
                link
            }
            (keeper, None) => return Err(no_keeper(&address, keeper)),
        };
        // One of this machine is the one that it stands on, though it comes over a socket.
        let here = connector.net.is_here(&address).then(|| given[0].0);
        let routes = Routes::new(connector, keeper, given, here, surroundings.clock.clone());
        routes.learn(view, false)?;
        Client::begin(routes, renewal, surroundings).await
    }

    /// A client on a node that keeps the metadata, which keeps the session open, too. `settings.addresses` are not looked at.
    /// Must be called within a tokio runtime.
    pub fn on_local_node(near: LocalNode, settings: Settings) -> Client {
        let LocalNode { node, link, session } = near;
        let Start { connector, surroundings, .. } = Start::of(settings, session);
        let given = vec![(node, Arc::new(Links::near(link.clone())))];
        let routes = Routes::new(connector, link, given, Some(node), surroundings.clock.clone());
        Client::start(routes, session::Renew::default(), surroundings)
    }

    /// A client on a node that does not keep it alone: connects to the one that does, at `settings.addresses`, or to whichever of the nodes there
    /// leads the keepers, and begins the session there. `Unreachable` if nobody answers.
    pub async fn on_member(near: LocalNode, settings: Settings) -> Result<Client> {
        let LocalNode { node, link, session } = near;
        let Start { connector, addresses, renewal, surroundings } = Start::of(settings, session);
        let mut given = vec![(node, Arc::new(Links::near(link)))];
        let keeper = match &addresses[..] {
            [address] => {
                let keeper = Link::connect(connector.net.clone(), address, connector.settings.clone()).await?;
                let links = Links::made(keeper.clone(), address, connector.settings.connections);
                given.push((keeper.node(), Arc::new(links)));
                keeper
            }
            _ => connector.to_leader(addresses),
        };
        let routes = Routes::new(connector, keeper, given, Some(node), surroundings.clock.clone());
        Client::begin(routes, renewal, surroundings).await
    }

    /// The session begins here: changes made under one that the node does not know are refused.
    async fn begin(routes: Routes, begin: session::Renew, surroundings: Surroundings) -> Result<Client> {
        routes.keeper().call(&begin, Payload::empty()).await?;
        Ok(Client::start(routes, session::Renew { again: true, ..begin }, surroundings))
    }

    fn start(routes: Routes, renewal: session::Renew, surroundings: Surroundings) -> Client {
        let Surroundings { clock, random, pool, session: name } = surroundings;
        let streams = Streams::new(name.mark());
        let routes = Arc::new(routes);
        let (say_over, over) = Stop::new();
        let renewal = tokio::spawn(renew(routes.clone(), renewal, say_over));
        let (next_lane, ahead) = (AtomicUsize::new(0), AtomicU64::new(0));
        let compressor = Compressor::new(pool.clone());
        let next_request = AtomicU64::new(REQUESTS_OF_OTHERS);
        let session = Session {
            name,
            routes,
            lately: Lately::default(),
            next_lane,
            clock,
            random,
            pool,
            compressor,
            streams,
            ahead,
            renewal,
            over,
            next_request,
        };
        Client {
            session: Arc::new(session),
            sizes: Sizes::default(),
            asked: None,
            looked: None,
            user: None,
            planted: None,
            replicas_max: REPLICAS_MAX as u32,
        }
    }

    /// Waits until the session is over because it could not be renewed in time: what it had open for writing is not its own any
    /// more, and only a new client can write.
    pub async fn session_over(&self) {
        // Nobody renews it any more: then it is over, too.
        self.session.over.until().await;
    }

    /// Who is in the cluster, as the node that keeps the metadata says now.
    pub async fn view(&self) -> Result<ViewAnswer> {
        let routes = &self.session.routes;
        routes.refresh(&routes.table()).await.map(|table| table.view.clone())
    }

    /// The same session with other sizes for what is opened from here on.
    #[must_use]
    pub fn with_sizes(&self, sizes: Sizes) -> Client {
        assert!(sizes.piece > 0 && sizes.file_chunk > 0 && sizes.read_piece > 0, "sizes of zero: {sizes:?}");
        Client { sizes, ..self.clone() }
    }

    /// The same session with a fault that the writers of its files have, for tests of the tests.
    #[must_use]
    pub fn with_planted(&self, planted: Option<Planted>) -> Client {
        Client { planted, ..self.clone() }
    }

    /// The same session whose writers send to at most so many replicas at once, if the policy wants them.
    #[must_use]
    pub fn with_replicas_max(&self, replicas_max: u32) -> Client {
        Client { replicas_max, ..self.clone() }
    }

    /// The session begins at most so many changes from its oldest unanswered one on: as many as its store remembers, which is
    /// `base::limit::REMEMBERED_CALLS` unless this is a test.
    pub fn set_changes_under_way(&self, most: usize) {
        self.session.routes.set_changes_under_way(most);
    }

    /// The same session for one call of a gateway's client, by the client's sixteen bytes and its number of the call: a change that
    /// was made for this call before, through whichever gateway, is answered as then.
    #[must_use]
    pub fn asked_by(&self, client: [u8; 16], call: u32) -> Client {
        let client = client.iter().fold(0, |name: u128, byte| name << 8 | u128::from(*byte));
        let asked = Asked { client: client.into(), call };
        Client { asked: Some(asked), ..self.clone() }
    }

    /// The same session for one change that relies on what was looked up: it is made only if that is so still, else it is `Stale` and
    /// nothing is done.
    #[must_use]
    pub fn relying_on(&self, looked: Looked) -> Client {
        Client { looked: Some(Arc::new(looked)), ..self.clone() }
    }

    /// The same session for one call of another user, who must be allowed to do what is asked and owns what is made. Only for a session
    /// of a superuser: a gateway's. Calls that do not name a user are the session's own.
    #[must_use]
    pub fn asking_for(&self, user: Arc<User>) -> Client {
        Client { user: Some(user), ..self.clone() }
    }

    /// For whom it asks, as the wire has it.
    pub(crate) fn user(&self) -> Option<file::User> {
        self.user.as_deref().map(|user| file::User { name: user.name.clone(), groups: user.groups.clone() })
    }

    /// The same session for what relies on nothing, and is its own.
    pub(crate) fn relying_on_nothing(&self) -> Client {
        Client { looked: None, user: None, ..self.clone() }
    }

    /// What a change of this client relies on.
    pub(crate) fn looked(&self) -> Option<Looked> {
        self.looked.as_deref().cloned()
    }

    /// Whether the change of this call (`asked_by`) was made before, and the number of the file that it opened, or 0.
    pub async fn answered(&self) -> Result<Option<u64>> {
        let Some(asked) = self.asked else { return Ok(None) };
        let answer = self.ask(&Answered { asked }).await?;
        Ok(answer.known.then_some(answer.inode))
    }

    /// A name for a request that is begun here for somebody else, as a gateway does: `base::request::within` makes what is asked for it known
    /// by that. Without it each call is a request by itself.
    pub fn new_request(&self) -> RequestId {
        RequestId::of(self.session.name, self.session.next_request.fetch_add(1, Ordering::Relaxed))
    }

    /// Where aligned memory comes from: bytes that lie in it are not copied on their way to a device.
    pub fn pool(&self) -> Pool {
        self.session.pool.clone()
    }

    /// Which of a node's ordered links a new writer takes.
    pub(crate) fn lane(&self) -> usize {
        self.session.next_lane.fetch_add(1, Ordering::Relaxed)
    }

    /// The way to a device, to be looked up once for what is asked there again and again.
    pub(crate) async fn route(&self, device: Id) -> Result<Route<'_>> {
        self.session.routes.to(device).await
    }

    /// Asks the node that has this device, with a payload. Asked again, the question must do no harm.
    pub(crate) async fn call_at<A: Ask>(&self, device: Id, ask: &A, payload: Payload) -> Result<(A::Answer, Payload)> {
        self.call_at_counted(device, ask, payload, &Sent::default()).await
    }

    /// The same, and counts in `sent` how often the question left and was answered.
    pub(crate) async fn call_at_counted<A: Ask>(
        &self,
        device: Id,
        ask: &A,
        payload: Payload,
        sent: &Sent,
    ) -> Result<(A::Answer, Payload)> {
        let mut route = self.route(device).await?;
        let lane = (payload.length() > SMALL_PAYLOAD_MAX).then(|| self.lane());
        loop {
            // A payload that waits for memory holds up what is behind it: what keeps sessions and grants alive is not.
            let link = lane.map_or_else(|| route.link(), |lane| route.ordered(lane));
            match link.call_counted(ask, payload.clone(), sent).await {
                Err(error) => route = route.after(error).await?,
                Ok((answer, payload)) => {
                    payload.verify()?;
                    return Ok((answer, payload));
                }
            }
        }
    }

    /// The same without a payload, where none comes back.
    pub(crate) async fn ask_at<A: Ask>(&self, device: Id, ask: &A) -> Result<A::Answer> {
        self.call_at(device, ask, Payload::empty()).await.map(|(answer, _)| answer)
    }

    /// Asks the node that has this device for bytes that only this side compares with their checksums, so that they are passed
    /// over once. If they do not match, asks again and lets the node compare: it reads them anew and, if they are rotten, says so
    /// and where. `ask` makes the question from whether the node may leave them unchecked.
    pub(crate) async fn fetch<A: Ask>(&self, device: Id, ask: impl Fn(bool) -> A) -> Result<(A::Answer, Payload)> {
        match self.call_at(device, &ask(true), Payload::empty()).await {
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                self.call_at(device, &ask(false), Payload::empty()).await
            }
            other => other,
        }
    }

    /// As `fetch`, but adds the bytes to `sums` in the one pass that compares them. If the question is for the stored checksums
    /// and they fit, those are added, and nobody here looks at the bytes.
    pub(crate) async fn fetch_summed(
        &self,
        device: Id,
        ask: impl Fn(bool) -> chunk::Read,
        sums: &mut UnitSums,
    ) -> Result<(chunk::ReadAnswer, Payload)> {
        let mark = sums.mark();
        let add = |payload: &Payload, sums: &mut UnitSums| {
            let add = |crc, part: &Bytes| combine(crc, sums.add(part), part.len() as u64);
            payload.parts().iter().fold(0, add) == payload.crc()
        };
        let (mut route, question) = (self.route(device).await?, ask(true));
        loop {
            match route.link().call_unverified(&question, Payload::empty()).await {
                Ok((answer, payload)) if question.blocks && sums.add_known(&answer.blocks, payload.length()) => {
                    return Ok((answer, payload));
                }
                Ok((answer, payload)) if add(&payload, sums) => return Ok((answer, payload)),
                Ok(_) => {
                    sums.back_to(mark);
                    break;
                }
                Err(error) if error.kind() == ErrorKind::Corrupt => break,
                Err(error) => route = route.after(error).await?,
            }
        }
        let (answer, payload) = self.call_at(device, &ask(false), Payload::empty()).await?;
        add(&payload, sums);
        Ok((answer, payload))
    }

    /// Asks the node that keeps the metadata; neither question nor answer has a payload.
    pub(crate) async fn ask<A: Ask>(&self, ask: &A) -> Result<A::Answer> {
        self.session.routes.keeper().call(ask, Payload::empty()).await.map(|(answer, _)| answer)
    }
}

/// What a client begins with.
struct Start {
    connector: Connector,
    addresses: Vec<String>,
    renewal: session::Renew,
    surroundings: Surroundings,
}

/// Time, chance and memory, and the session.
struct Surroundings {
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    pool: Pool,
    session: SessionId,
}

impl Start {
    fn of(settings: Settings, session: SessionId) -> Start {
        let Settings { net, addresses, program, credentials, clock, random, pool, connections, silence_max, .. } =
            settings;
        let User { name: owner, groups } = settings.user;
        let (group, groups) =
            groups.split_first().map(|(first, rest)| (first.clone(), rest.to_vec())).unwrap_or_default();
        let settings = LinkSettings {
            session,
            program,
            connections: connections.max(1),
            silence_max,
            pool: pool.clone(),
            clock: clock.clone(),
            random: random.clone(),
            credentials,
            asker: Asker::Client,
            numbers: CallNumbers::default(),
            meant: None,
            once: false,
        };
        let renewal = session::Renew { owner, group, groups, again: false };
        Start {
            connector: Connector { net, settings },
            addresses,
            renewal,
            surroundings: Surroundings { clock, random, pool, session },
        }
    }
}

/// How long each of several nodes has to answer before the next one is asked; when none has, each gets the time that one alone has.
const NEXT_AFTER: Duration = Duration::from_secs(1);

/// The first of these nodes that answers, and who is there as it says; else the error of the first one.
async fn first_of(connector: &Connector, addresses: &[String]) -> Result<(String, Link, ViewAnswer)> {
    let viewed = async |address: &String| {
        let link = Link::connect(connector.net.clone(), address, connector.settings.clone()).await?;
        let (view, _) = link.call(&View::default(), Payload::empty()).await?;
        Ok::<_, Error>((address.clone(), link, view))
    };
    for address in addresses.iter().filter(|_| addresses.len() > 1) {
        if let Ok(Ok(found)) = tokio::time::timeout(NEXT_AFTER, viewed(address)).await {
            return Ok(found);
        }
    }
    let mut trouble = None;
    for address in addresses {
        match viewed(address).await {
            Ok(found) => return Ok(found),
            Err(error) => drop(trouble.get_or_insert(error)),
        }
    }
    Err(trouble.unwrap_or_else(|| Error::new(ErrorKind::Invalid, "no node was named; name one with --at HOST:PORT")))
}

fn address_of(view: &ViewAnswer, node: Id) -> Option<String> {
    view.members.iter().find(|member| member.node.node == node).map(|member| member.node.address.clone())
}

/// Where whoever leads the keepers is asked for: where one of them leads now, then where the others are, then where this view is from.
fn leaders(view: &ViewAnswer, from: &str) -> Vec<String> {
    let keepers = std::iter::once(view.keeper).chain(view.keepers.iter().copied());
    let mut addresses: Vec<String> = Vec::new();
    for address in keepers.filter_map(|keeper| address_of(view, keeper)).chain([from.to_string()]) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

fn no_keeper(address: &str, keeper: NodeId) -> Error {
    let text = format!(
        "the node at {address} says that node {keeper} keeps the metadata, but not where it is; nothing was asked; try again, or name that node's address with --at HOST:PORT"
    );
    Error::new(ErrorKind::Unreachable, text)
}

/// Renews the session until it is aborted or over, and asks who is there. A failure is not reported here: the calls that suffer
/// from it say so.
async fn renew(routes: Arc<Routes>, renewal: session::Renew, say_over: Stop) {
    let mut pause = SESSION_LEASE / 3;
    loop {
        tokio::time::sleep(pause).await;
        pause = match routes.keeper().call(&renewal, Payload::empty()).await {
            Ok(_) => {
                let _at_need = routes.refresh(&routes.table()).await;
                SESSION_LEASE / 3
            }
            // It was not heard of for too long and is over for good: what it left behind must not be taken for somebody else's.
            Err(error) if error.kind() == ErrorKind::Stale => {
                say_over.stop();
                return;
            }
            // Silence has cost a third of the lease already.
            Err(_) => SESSION_LEASE / 30,
        };
    }
}

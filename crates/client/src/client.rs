//! A client: one session with the store, kept alive in the background, shared by everything that reads and writes.

use base::buffer::Pool;
use base::checksum::{UnitSums, combine};
use base::env::{Clock, Random};
use base::error::{ErrorKind, Result};
use base::id::SessionId;
use base::limit::{FILE_CHUNK, RECORD_PAYLOAD_MAX, SESSION_LEASE};
use base::net::Net;
use base::unit::MIB;
use bytes::Bytes;
use net::message::{Ask, chunk, session};
use net::{CallNumbers, Link, LinkSettings, Payload};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;

/// How to reach the store.
pub struct Settings {
    /// The network.
    pub net: Arc<dyn Net>,
    /// A node, as `host:port`.
    pub address: String,
    /// Which program asks, for people: `stormwell put`.
    pub program: String,
    /// Whom what is made belongs to: owner and group; empty names: nobody in particular.
    pub user: (String, String),
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance: session, chunk and grant names, and the spreading over devices.
    pub random: Arc<dyn Random>,
    /// Where aligned memory comes from.
    pub pool: Pool,
    /// Connections to the node, at least 1; 2 keep a card busy while one of them waits for its turn.
    pub connections: usize,
    /// A call fails after this much silence; `base::limit::CALL_SILENCE_MAX` unless there is a reason.
    pub silence_max: Duration,
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
    /// One record a piece, as the device writes it; windows of 16 MiB cover 10 Gbit/s at 13 ms.
    fn default() -> Sizes {
        Sizes {
            piece: RECORD_PAYLOAD_MAX,
            file_chunk: FILE_CHUNK,
            write_window: 16 * MIB as usize,
            read_piece: 2 * MIB as usize,
            read_window: 16 * MIB as usize,
        }
    }
}

/// One session with the store. Clones are the same session; it ends with the last of them and what they opened.
#[derive(Clone)]
pub struct Client {
    pub(crate) session: Arc<Session>,
    pub(crate) sizes: Sizes,
}

/// What all clones share.
pub(crate) struct Session {
    link: Link,
    /// Links of one connection each, made when first used. On one connection large payloads arrive in their order; on
    /// several they overtake each other, which a chunk that is being written refuses.
    ordered: Vec<OnceCell<Link>>,
    /// Spreads writers over `ordered`.
    next_ordered: AtomicUsize,
    connector: Option<Connector>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) pool: Pool,
    /// Bytes that ranges being read may have asked for beyond their first pieces.
    pub(crate) ahead: AtomicU64,
    renewal: JoinHandle<()>,
}

/// What is needed to connect once more.
struct Connector {
    net: Arc<dyn Net>,
    address: String,
    settings: LinkSettings,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

impl Client {
    /// Connects to a node and begins a session. `Unreachable` if nobody answers.
    pub async fn connect(settings: Settings) -> Result<Client> {
        let Settings { net, address, program, user: (owner, group), clock, random, pool, connections, silence_max } =
            settings;
        let (session, connections) = (SessionId(random.wide()), connections.max(1));
        let settings = LinkSettings {
            session,
            program,
            connections,
            silence_max,
            pool: pool.clone(),
            clock: clock.clone(),
            random: random.clone(),
            numbers: CallNumbers::default(),
        };
        let link = Link::connect(net.clone(), &address, settings.clone()).await?;
        // The session begins here: changes made under one that the node does not know are refused.
        let begin = session::Renew { owner, group, again: false };
        link.call(&begin, Payload::empty()).await?;
        let renewal = session::Renew { again: true, ..begin };
        // A link of one connection keeps the order by itself.
        let connector = (connections > 1).then_some(Connector { net, address, settings });
        Ok(Client::start(link, renewal, clock, random, pool, connector))
    }

    /// A client over a link that exists, for instance to one's own node. Must be called within a tokio runtime.
    pub fn over(link: Link, clock: Arc<dyn Clock>, random: Arc<dyn Random>, pool: Pool) -> Client {
        Client::start(link, session::Renew::default(), clock, random, pool, None)
    }

    fn start(
        link: Link,
        renewal: session::Renew,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        pool: Pool,
        connector: Option<Connector>,
    ) -> Client {
        let renewal = tokio::spawn(renew(link.clone(), renewal));
        let count = connector.as_ref().map_or(0, |connector| connector.settings.connections);
        let ordered = (0..count).map(|_| OnceCell::new()).collect();
        let (next_ordered, ahead) = (AtomicUsize::new(0), AtomicU64::new(0));
        let session = Session { link, ordered, next_ordered, connector, clock, random, pool, ahead, renewal };
        Client { session: Arc::new(session), sizes: Sizes::default() }
    }

    /// The same session with other sizes for what is opened from here on.
    #[must_use]
    pub fn with_sizes(&self, sizes: Sizes) -> Client {
        assert!(sizes.piece > 0 && sizes.file_chunk > 0 && sizes.read_piece > 0, "sizes of zero: {sizes:?}");
        Client { session: self.session.clone(), sizes }
    }

    /// Where aligned memory comes from: bytes that lie in it are not copied on their way to a device.
    pub fn pool(&self) -> Pool {
        self.session.pool.clone()
    }

    /// A link on which calls with large payloads arrive in the order in which they were made.
    pub(crate) async fn ordered_link(&self) -> Result<Link> {
        let session = &self.session;
        let Some(connector) = &session.connector else { return Ok(session.link.clone()) };
        let place = session.next_ordered.fetch_add(1, Ordering::Relaxed) % session.ordered.len();
        let connect = || {
            let settings = LinkSettings { connections: 1, ..connector.settings.clone() };
            Link::connect(connector.net.clone(), &connector.address, settings)
        };
        session.ordered[place].get_or_try_init(connect).await.cloned()
    }

    /// The link for whatever needs no order.
    pub(crate) fn link(&self) -> Link {
        self.session.link.clone()
    }

    /// Asks with a payload.
    pub(crate) async fn call<A: Ask>(&self, ask: &A, payload: Payload) -> Result<(A::Answer, Payload)> {
        self.session.link.call(ask, payload).await
    }

    /// Asks for bytes that only this side compares with their checksums, so that they are passed over once. If they do not
    /// match, asks again and lets the node compare: it reads them anew and, if they are rotten, says so and where.
    /// `ask` makes the question from whether the node may leave them unchecked.
    pub(crate) async fn fetch<A: Ask>(&self, ask: impl Fn(bool) -> A) -> Result<(A::Answer, Payload)> {
        match self.call(&ask(true), Payload::empty()).await {
            Err(error) if error.kind() == ErrorKind::Corrupt => self.call(&ask(false), Payload::empty()).await,
            other => other,
        }
    }

    /// As `fetch`, but adds the bytes to `sums` in the one pass that compares them. If the question is for the stored checksums
    /// and they fit, those are added, and nobody here looks at the bytes.
    pub(crate) async fn fetch_summed(
        &self,
        ask: impl Fn(bool) -> chunk::Read,
        sums: &mut UnitSums,
    ) -> Result<(chunk::ReadAnswer, Payload)> {
        let (link, mark) = (&self.session.link, sums.mark());
        let add = |payload: &Payload, sums: &mut UnitSums| {
            let add = |crc, part: &Bytes| combine(crc, sums.add(part), part.len() as u64);
            payload.parts().iter().fold(0, add) == payload.crc()
        };
        let question = ask(true);
        match link.call_unverified(&question, Payload::empty()).await {
            Ok((answer, payload)) if question.blocks && sums.add_known(&answer.blocks, payload.length()) => {
                return Ok((answer, payload));
            }
            Ok((answer, payload)) if add(&payload, sums) => return Ok((answer, payload)),
            Ok(_) => sums.back_to(mark),
            Err(error) if error.kind() == ErrorKind::Corrupt => (),
            Err(error) => return Err(error),
        }
        let (answer, payload) = link.call(&ask(false), Payload::empty()).await?;
        add(&payload, sums);
        Ok((answer, payload))
    }

    /// Asks without a payload, where none comes back.
    pub(crate) async fn ask<A: Ask>(&self, ask: &A) -> Result<A::Answer> {
        self.session.link.call(ask, Payload::empty()).await.map(|(answer, _)| answer)
    }
}

/// Renews the session until it is aborted or over. A failure is not reported here: the calls that suffer from it say so.
async fn renew(link: Link, renewal: session::Renew) {
    let mut pause = SESSION_LEASE / 3;
    loop {
        tokio::time::sleep(pause).await;
        pause = match link.call(&renewal, Payload::empty()).await {
            Ok(_) => SESSION_LEASE / 3,
            // It was not heard of for too long and is over for good: what it left behind must not be taken for somebody else's.
            Err(error) if error.kind() == ErrorKind::Stale => return,
            // Silence has cost a third of the lease already.
            Err(_) => SESSION_LEASE / 30,
        };
    }
}

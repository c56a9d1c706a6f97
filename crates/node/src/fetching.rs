//! Bytes that a device of this node takes over from another device, wherever that is: its node asks the other one for them, so they
//! cross the network once, and the node that keeps the metadata has none of it to carry.

use crate::device::Device;
use crate::orders::Copied;
use crate::service::Node;
use base::error::{Error, ErrorKind, Result};
use base::fault::contained;
use base::id::{ChunkId, DeviceId, Generation, GroupId, NodeId};
use base::limit::{FETCH_BUDGET, FETCH_MAX, NODES_MAX, RECORD_PAYLOAD_MAX};
use base::net::Net;
use base::policy::Level;
use net::cells::{self, Stored};
use net::message::chunk::{Range, Read};
use net::message::order::Fetch;
use net::{Link, LinkSettings, Payload};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

/// Bytes that are asked for at once: one record.
const PIECE: u64 = RECORD_PAYLOAD_MAX as u64;

/// Pieces that one order has on their way: one is read, one crosses the network, one is written, and one is in reserve.
const PIECES: usize = 4;

/// The other nodes, for bytes that are fetched from them. These links carry nothing else, so that no order waits behind a piece.
pub struct Neighbours {
    network: Arc<dyn Net>,
    settings: LinkSettings,
    links: Mutex<BTreeMap<NodeId, (String, Link)>>,
    /// Pieces that may be on their way to this node.
    budget: Arc<Semaphore>,
    /// Which node this is, and where others reach it.
    itself: (NodeId, String),
}

/// Where bytes are.
enum Source {
    Here(Arc<Device>),
    There(Link),
}

/// A piece on its way, and its part of the budget.
type Coming = JoinHandle<Result<(Vec<Stored>, OwnedSemaphorePermit)>>;

impl Neighbours {
    /// None is known yet; links to them are made with `settings`.
    pub fn new(itself: (NodeId, String), network: Arc<dyn Net>, settings: LinkSettings) -> Neighbours {
        let budget = Arc::new(Semaphore::new((FETCH_BUDGET / PIECE) as usize));
        Neighbours { network, settings, links: Mutex::default(), budget, itself }
    }

    /// Which node this is, and where others reach it.
    pub fn itself(&self) -> (NodeId, String) {
        self.itself.clone()
    }

    async fn link(&self, node: NodeId, address: &str) -> Result<Link> {
        let mut links = self.links.lock().await;
        if let Some((at, link)) = links.get(&node)
            && at == address
        {
            return Ok(link.clone());
        }
        let made = Link::connect(self.network.clone(), address, self.settings.clone()).await?;
        if made.node() != node {
            let text = format!("another node answers at {address}, {} and not {node}", made.node());
            return Err(Error::new(ErrorKind::Unreachable, text));
        }
        if links.len() >= NODES_MAX {
            links.clear();
        }
        links.insert(node, (address.to_string(), made.clone()));
        Ok(made)
    }

    /// A piece's part of the budget. An order that has none on its way waits for it; another goes on with those that it has, so that
    /// no order waits for one that waits itself.
    async fn may_ask(&self, wait: bool) -> Option<OwnedSemaphorePermit> {
        match wait {
            true => self.budget.clone().acquire_owned().await.ok(),
            false => self.budget.clone().try_acquire_owned().ok(),
        }
    }

    async fn forget(&self, node: NodeId) {
        self.links.lock().await.remove(&node);
    }
}

impl Source {
    async fn read(&self, from: &Fetch, start: u64, end: u64) -> Result<Vec<Stored>> {
        let pieces = match self {
            Source::Here(device) => device.read(ChunkId(from.chunk.value()), start, end).await?,
            Source::There(link) => {
                let ranges = vec![Range { offset: start, length: end - start }];
                let ask =
                    Read { device: from.from, chunk: from.chunk, ranges, once: true, cells: true, ..Read::default() };
                let (answer, payload) = link.call(&ask, Payload::empty()).await?;
                cells::apart(&answer.cells, (start, end - start), payload.into_bytes())?
            }
        };
        if pieces.last().is_none_or(|last| last.end() < end) {
            let text = format!("bytes {start}..{end} of chunk {} are not all there", ChunkId(from.chunk.value()));
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
        Ok(pieces)
    }
}

impl Node {
    /// Takes bytes of a chunk over from another device, all compared with their checksums; they are written when this returns.
    /// `Busy`: the node that has them cannot be reached from this one.
    pub async fn fetch(&self, ask: Fetch) -> Result<()> {
        let length = ask.end.checked_sub(ask.start).filter(|length| (1..=FETCH_MAX).contains(length));
        if length.is_none() {
            let text = format!(
                "bytes {}..{} of a chunk were to be fetched, and {FETCH_MAX} are the most at once; nothing was done",
                ask.start, ask.end
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let device = self.device(ask.device)?.clone();
        let node = NodeId(ask.node.value());
        let fetched = match self.source(&ask, node).await {
            Ok(source) => self.copy(&device, Arc::new(source), Arc::new(ask)).await,
            Err(error) => Err(error),
        };
        match fetched {
            // Not this node is away: who gave the order must not take it for that.
            Err(error) if error.kind() == ErrorKind::Unreachable => {
                self.neighbours.forget(node).await;
                Err(Error::new(ErrorKind::Busy, error.text()))
            }
            other => other,
        }
    }

    async fn source(&self, ask: &Fetch, node: NodeId) -> Result<Source> {
        match self.devices.get(&DeviceId(ask.from.value())) {
            Some(device) => Ok(Source::Here(device.clone())),
            None => Ok(Source::There(self.neighbours.link(node, &ask.address).await?)),
        }
    }

    /// Several pieces are on their way at once, and are added in their order.
    async fn copy(&self, device: &Device, source: Arc<Source>, ask: Arc<Fetch>) -> Result<()> {
        let (mut at, mut asked) = (ask.start, ask.start);
        let mut coming = Pieces::default();
        while at < ask.end {
            while asked < ask.end && coming.0.len() < PIECES {
                let Some(permit) = self.neighbours.may_ask(coming.0.is_empty()).await else { break };
                let end = asked.saturating_add(PIECE).min(ask.end);
                coming.0.push_back(self.ask_for(source.clone(), ask.clone(), (asked, end), permit));
                asked = end;
            }
            let Some(piece) = coming.0.front_mut() else { unreachable!("what is missing was asked for") };
            let came = piece.await;
            coming.0.pop_front();
            let cut_off = |error| Error::new(ErrorKind::Io, format!("fetching a chunk was cut off: {error}"));
            let (pieces, _until_written) = came.map_err(cut_off)??;
            for piece in pieces {
                at = at.max(piece.end());
                let Stored { offset, bytes, cell } = piece;
                let (generation, small_parts) = (Generation(ask.generation), ask.small_parts);
                // A cell that lies in two of these pieces comes with both; the second time it is there.
                let piece = Copied { generation, offset, bytes, level: Level::Written, small_parts, cell };
                device.append((GroupId(ask.group), ChunkId(ask.chunk.value())), piece).await?;
            }
        }
        Ok(())
    }

    fn ask_for(
        &self,
        source: Arc<Source>,
        ask: Arc<Fetch>,
        (start, end): (u64, u64),
        permit: OwnedSemaphorePermit,
    ) -> Coming {
        self.runtime.spawn(contained(async move { Ok((source.read(&ask, start, end).await?, permit)) }))
    }
}

/// Pieces on their way, in their order. Dropped, nobody asks for them any more.
#[derive(Default)]
struct Pieces(VecDeque<Coming>);

impl Drop for Pieces {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

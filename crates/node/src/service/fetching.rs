//! Bytes that a device of this node takes over from another device, wherever that is: its node asks the other one for them, so they
//! cross the network once, and the node that keeps the metadata has none of it to carry.

use crate::device::Device;
use crate::device::control::Copied;
use crate::neighbours::PIECE;
use crate::node::Node;
use base::error::{Error, ErrorKind, Result};
use base::fault::contained;
use base::id::{ChunkId, DeviceId, Generation, GroupId, NodeId};
use base::limit::FETCH_MAX;
use base::policy::Level;
use base::request::{current, within};
use net::cells::{self, Stored};
use net::message::chunk::{Range, Read};
use net::message::order::Fetch;
use net::{Link, Payload};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;

/// Pieces that one order has on their way: one is read, one crosses the network, one is written, and one is in reserve.
const PIECES: usize = 4;

/// Where bytes are.
enum Source {
    Here(Arc<Device>),
    There(Link),
}

/// A piece on its way, and its part of the budget.
type Coming = JoinHandle<Result<(Vec<Stored>, OwnedSemaphorePermit)>>;

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
        let piece = async move { Ok((source.read(&ask, start, end).await?, permit)) };
        self.runtime.spawn(contained(within(current(), piece)))
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

//! One append of a stream: what goes out, and what is kept of it until no byte before it is missing.

use super::patience::Limit;
use base::checksum::BlockSums;
use base::error::Result;
use base::id::{DeviceId, RequestId};
use base::limit::REPLICAS_MAX;
use base::policy::Level;
use base::request::within;
use base::unit::Time;
use bytes::Bytes;
use net::message::chunk;
use net::{Link, Payload};
use std::future::Future;
use std::pin::Pin;
use tokio::sync::OwnedSemaphorePermit;

/// An append that was sent, from the first that is not acknowledged on: should its group end early, what is behind the first byte
/// that is missing goes out again.
pub(super) struct Sent {
    /// Where in the group its bytes end.
    pub(super) end: u64,
    pub(super) column: usize,
    pub(super) level: Level,
    /// The replicas of its column that have not acknowledged it, a bit for each; without any it is acknowledged.
    pub(super) waits: u32,
    /// When the first of several acknowledged it.
    pub(super) first: Option<Time>,
    /// When the first of several refused it, which is asked again when all have said something.
    pub(super) refused: Option<Time>,
    pub(super) bytes: Bytes,
    /// They count against the writer's window as long as they are kept.
    pub(super) permits: Option<OwnedSemaphorePermit>,
}

const _: () = assert!(REPLICAS_MAX < u32::BITS as usize, "a bit for each replica of a column");

/// One append to one replica, with what is needed to ask again.
pub(super) struct Append {
    pub(super) ask: chunk::Append,
    /// Counts the appends of the stream; those to the replicas of one column have one number.
    pub(super) number: u64,
    /// The replica.
    pub(super) slot: usize,
    pub(super) part: Part,
    /// The request that it is a part of, also when it is asked again.
    pub(super) request: RequestId,
}

/// What goes out for some bytes of a file: these, or fewer that stand for `plain`. Clones share them.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) payload: Payload,
    pub(super) plain: Option<Bytes>,
}

impl Part {
    /// These bytes themselves; nobody passes over them again if their checksums are known.
    pub(super) fn plain(bytes: Bytes, sums: Option<BlockSums>) -> Part {
        let payload = match sums {
            Some(sums) => Payload::summed(bytes, sums),
            None => Payload::new(bytes),
        };
        Part { payload, plain: None }
    }

    /// Of no bytes.
    pub(super) fn empty() -> Part {
        Part { payload: Payload::empty(), plain: None }
    }

    /// The bytes of the file.
    pub(super) fn bytes(&self) -> Bytes {
        self.plain.clone().or_else(|| self.payload.parts().first().cloned()).unwrap_or_default()
    }

    /// How many they are.
    pub(super) fn length(&self) -> u64 {
        self.plain.as_ref().map_or(self.payload.length(), Bytes::len) as u64
    }
}

pub(super) type Outcome = (Append, Result<chunk::AppendAnswer>);

/// An append on its way.
pub(super) type Calling = Pin<Box<dyn Future<Output = Outcome> + Send + Sync>>;

/// Sends an append and waits for its answer, so long as its replica is not given up.
pub(super) async fn perform(link: Link, append: Append, limit: Option<Limit>) -> Outcome {
    let payload = append.part.payload.clone();
    let call = async {
        match append.part.plain {
            None => within(append.request, link.call(&append.ask, payload)).await,
            Some(_) => {
                let ask = chunk::AppendCell { append: append.ask.clone(), length: append.part.length() };
                within(append.request, link.call(&ask, payload)).await
            }
        }
    };
    let result = match limit {
        None => call.await,
        Some(limit) => limit.keep(call, DeviceId(append.ask.device.value())).await,
    };
    (append, result.map(|(answer, _)| answer))
}

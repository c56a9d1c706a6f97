//! The other nodes, as those from which bytes are fetched: links to them, and how much may be on its way.

use base::error::{Error, ErrorKind, Result};
use base::id::NodeId;
use base::limit::{FETCH_BUDGET, NODES_MAX, RECORD_PAYLOAD_MAX};
use base::net::Net;
use net::{Link, LinkSettings};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

/// Bytes that are asked for at once: one record.
pub const PIECE: u64 = RECORD_PAYLOAD_MAX as u64;

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

    pub async fn link(&self, node: NodeId, address: &str) -> Result<Link> {
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
    pub async fn may_ask(&self, wait: bool) -> Option<OwnedSemaphorePermit> {
        match wait {
            true => self.budget.clone().acquire_owned().await.ok(),
            false => self.budget.clone().try_acquire_owned().ok(),
        }
    }

    pub async fn forget(&self, node: NodeId) {
        self.links.lock().await.remove(&node);
    }
}

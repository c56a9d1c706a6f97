//! What a node has while its keeper leads, in one term: the links to the others, what jobs share, and the jobs. How that begins and ends.

#[cfg(test)]
mod tests;

use crate::control::away::Away;
use crate::control::claims::lock;
use crate::control::orders::Jobs;
use crate::control::repairing::Repaired;
use crate::device::Device;
use crate::device_handle::DeviceHandle;
use crate::metadata::Metadata;
use crate::node::{Keeper, Node};
use crate::peers::Peers;
use base::error::{Error, ErrorKind, Result};
use base::id::{DeviceId, NodeId};
use base::watched::{Stopped, Watched};
use net::{Asker, LinkSettings};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// A leadership. Jobs, and calls that take steps, are given theirs when they begin, and look for no other one while they run: what is claimed in a
/// term is guarded against those of this term alone, and orders of a term go over links of this term.
pub struct Leading {
    /// The term: no other keeper leads in it, nor does this one a second time.
    pub term: u64,
    /// The metadata store.
    pub metadata: Arc<Metadata>,
    /// Its keeper is the only one, so the devices of this node are its own: what it orders of them is a function call, which no other leader can
    /// overtake. Of several keepers the one that leads orders of them as of those of any other node, over a link with its term.
    pub alone: bool,
    /// The nodes that are ordered something over links: the other ones, and of several keepers this one, too.
    pub peers: Peers,
    /// What jobs share: who is at what.
    pub jobs: Jobs,
    /// Says that a device is to be emptied.
    pub drains: Arc<Notify>,
    /// How far making replicas has come.
    pub repaired: Repaired,
    /// Which devices are away, and since when.
    pub away: Away,
    /// The nodes have said which devices they have, or had the time to: until then nothing new finds a place.
    gathered: Watched<bool>,
    /// The jobs that run; none: it is over.
    running: Mutex<Option<JoinSet<()>>>,
    /// It is over.
    ended: Watched<bool>,
    /// So many work for it, beside its jobs: the end waits for them.
    working: Watched<usize>,
}

impl Keeper {
    /// It leads from now on, in this term: calls and reports that need that are taken. With its jobs it is begun by `control::begin`.
    pub fn leads(&self, node: &Node, term: u64) -> Arc<Leading> {
        let leading = Arc::new(Leading {
            term,
            metadata: self.metadata.clone(),
            alone: node.is_alone(),
            peers: Peers::new(self.network.clone(), self.links_of(term)),
            jobs: Jobs::new(node.clock.clone()),
            drains: Arc::default(),
            repaired: Repaired::default(),
            away: Away::default(),
            gathered: Watched::new(node.is_alone()),
            running: Mutex::new(Some(JoinSet::new())),
            ended: Watched::new(false),
            working: Watched::new(0),
        });
        let before = self.leading.write().unwrap_or_else(PoisonError::into_inner).replace(leading.clone());
        assert!(before.is_none(), "a keeper begins to lead in term {term}, and its leadership before that is not over");
        leading
    }

    /// Links over which it orders in this term.
    fn links_of(&self, term: u64) -> LinkSettings {
        let mut links = self.links.clone();
        if let Asker::Node { term: of, .. } = &mut links.asker {
            *of = term;
        }
        links
    }

    /// It leads no more. Who asks from now on is told so; no order leaves over the links of this leadership any more, and its jobs are over when
    /// this returns. What devices were ordered is not waited for: it may be done at any time, as that of a keeper that was killed.
    pub async fn end(&self) {
        let leading = self.leading.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(leading) = leading {
            leading.peers.close(leading.term);
            leading.end_jobs().await;
        }
    }

    /// Its present leadership, if it leads.
    pub fn leading(&self) -> Option<Arc<Leading>> {
        self.leading.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Leading {
    /// Its jobs run, unless it is over already.
    pub fn run(&self, jobs: JoinSet<()>) {
        if let Some(running) = &mut *lock(&self.running) {
            *running = jobs;
        }
    }

    /// Cuts its jobs short, one after another: each hearing of it by itself would do so by chance, and no history of the simulation could be
    /// played twice. Then waits for what they had begun beside themselves, which is cut short, too.
    pub async fn end_jobs(&self) {
        let running = lock(&self.running).take();
        if let Some(mut running) = running {
            running.shutdown().await;
        }
        self.ended.set(true);
        self.working.until(|working| *working == 0).await;
    }

    /// Ends the jobs when the node stops.
    pub async fn until(self: Arc<Self>, stopped: Stopped) {
        stopped.until().await;
        self.end_jobs().await;
    }

    /// Waits until the nodes have said which devices they have (`control::telling`), or the leadership is over.
    pub async fn until_gathered(&self) {
        if !self.has_gathered() {
            let _over = self.meanwhile(self.gathered.until(|gathered| *gathered)).await;
        }
    }

    /// Whether they have.
    pub fn has_gathered(&self) -> bool {
        self.gathered.get()
    }

    /// The nodes have said which devices they have.
    pub fn gathers(&self) {
        self.gathered.set(true);
    }

    /// Does a part of a job beside that: until it is done, or the leadership over, whose end waits for it.
    pub async fn meanwhile<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let _works = Works::begin(&self.working);
        tokio::select! {
            biased;
            () = self.ended.until(|ended| *ended) => None,
            done = work => Some(done),
        }
    }

    /// A device of the store, wherever it is. `Unreachable` if it is on a node that was not heard of since this leadership began.
    pub fn device_handle(&self, node: &Node, id: DeviceId) -> Result<DeviceHandle> {
        if let Some(device) = node.devices.get(&id).filter(|_| self.alone) {
            return Ok(DeviceHandle::Local(device.clone()));
        }
        if let Some(far) = self.peers.device(id) {
            return Ok(DeviceHandle::Remote(far));
        }
        if node.missing.iter().any(|missing| missing.device == id) {
            return Err(node.not_here(id, Some(self)));
        }
        let text = format!(
            "device {id} is on a node that was not heard of since this one started; what is on it is safe there and comes back \
             with it; start that node, or look at the network"
        );
        Err(Error::new(ErrorKind::Unreachable, text))
    }

    /// The store's devices of which something is ordered by a function call.
    pub fn near<'a>(&self, node: &'a Node) -> impl Iterator<Item = &'a Arc<Device>> {
        node.served().filter(|_| self.alone)
    }

    /// Whether that is so of this node's devices.
    pub fn is_near(&self, node: &Node, of: NodeId) -> bool {
        self.alone && of == node.id
    }

    /// All devices of the store that are known to be somewhere, near ones first.
    pub fn device_handles(&self, node: &Node) -> Vec<DeviceHandle> {
        let near = self.near(node).cloned().map(DeviceHandle::Local);
        near.chain(self.peers.devices().into_iter().map(DeviceHandle::Remote)).collect()
    }
}

/// One who works for a leadership.
struct Works(Watched<usize>);

impl Works {
    fn begin(working: &Watched<usize>) -> Works {
        working.change(|working| *working += 1);
        Works(working.clone())
    }
}

impl Drop for Works {
    fn drop(&mut self) {
        self.0.change(|working| *working -= 1);
    }
}

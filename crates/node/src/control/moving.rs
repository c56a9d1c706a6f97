//! The way of a group's chunk from one device to another: a copy (`copying`), which the metadata name in place of the original. Between devices of
//! the node that keeps the metadata a chunk may be written meanwhile: its writers are held back for the moment of the change, and sent on. Between
//! nodes only what nobody writes any more is moved.

use super::copying::Copying;
use super::orders::PATIENCE;
use crate::device::control::Extent;
use crate::device::{Device, Item};
use crate::device_handle::DeviceHandle;
use crate::leading::Leading;
use crate::log;
use crate::node::Node;
use base::error::{Error, ErrorKind, Result};
use base::id::{ChunkId, GroupId};
use base::planted::Planted;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Between two attempts to find out whether the metadata names the new place.
const ASK_PAUSE: Duration = Duration::from_millis(500);

/// Attempts after which that is said, and again after as many more: 10 s, and each minute from then on.
const UNSURE_FROM: u32 = 20;
const UNSURE_EVERY: u32 = 120;

/// One group's way.
pub struct Move {
    /// Its chunk, on its way.
    pub copying: Copying,
}

/// A chunk whose writers wait while it moves. Dropped before it is known where it is, because the leadership is over, it refuses them: its copy may be named.
struct Held<'a> {
    device: &'a Device,
    chunk: ChunkId,
    is_known: bool,
}

impl<'a> Held<'a> {
    fn begin(device: &'a Device, chunk: ChunkId) -> Held<'a> {
        device.send(Item::Hold { chunk });
        Held { device, chunk, is_known: false }
    }

    /// It is on that device now; none: here, as before.
    fn ends(mut self, to: Option<Arc<Device>>) {
        self.is_known = true;
        self.device.send(Item::Departed { chunk: self.chunk, to });
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if !self.is_known {
            self.device.send(Item::Unsure { chunk: self.chunk });
        }
    }
}

impl Move {
    /// Claims the chunk, to go from one device to the other. An error of `Copying::begin`.
    pub async fn begin(
        (node, leading): (&Arc<Node>, &Arc<Leading>),
        of: (GroupId, ChunkId),
        (from, to): (DeviceHandle, DeviceHandle),
    ) -> Result<Move> {
        let (on, by, drained) = (node.clone(), leading.clone(), from.clone());
        let came = move |bytes: u64| {
            by.drained(&on, &drained, |draining| draining.bytes = draining.bytes.saturating_add(bytes));
        };
        let copying = Copying::begin((node, leading), of, (from, to), Box::new(came)).await?;
        Ok(Move { copying })
    }

    /// Moves it.
    pub async fn run(&self) -> Result<()> {
        let Copying { node, leading, from, to, .. } = &self.copying;
        let moved = match (from, to) {
            (DeviceHandle::Local(from), DeviceHandle::Local(to)) => self.while_written(from, to).await,
            _ => self.at_rest().await,
        };
        let Err(error) = &moved else { return moved };
        let copied = self.copying.copied();
        leading.drained(node, from, |draining| draining.bytes = draining.bytes.saturating_sub(copied));
        self.copying.give_up(error).await;
        moved
    }

    /// Both devices are this node's.
    async fn while_written(&self, from: &Arc<Device>, to: &Arc<Device>) -> Result<()> {
        self.copying.clear().await?;
        // What is there does not change any more: most of it is copied while its writer goes on.
        let copied = match self.copying.stat(&self.copying.from).await? {
            Some(extent) => self.copying.copy(&extent, 0).await?,
            None => 0,
        };
        let held = Held::begin(from, self.copying.chunk);
        let moved = self.finish(copied).await;
        match &moved {
            // The copy may be named: what would be written here now may be lost.
            Err(error) if error.kind() == ErrorKind::Moved => drop(held),
            _ => held.ends(moved.is_ok().then(|| to.clone())),
        }
        moved
    }

    /// What came meanwhile, the seal, and the change of the metadata; nothing changes the chunk during this. One that is still written is moved as
    /// it is, open.
    async fn finish(&self, copied: u64) -> Result<()> {
        let extent = self.copying.stat(&self.copying.from).await?;
        if let Some(extent) = &extent {
            self.copying.copy(extent, copied).await?;
            self.copying.close(extent).await?;
            self.copying.release().await?;
            self.copying.compare(extent).await?;
        }
        self.name_copy(extent).await
    }

    /// Nobody writes the chunk any more.
    async fn at_rest(&self) -> Result<()> {
        let whole = match self.copying.planted {
            Some(Planted::MovedUncopied) => None,
            _ => self.copying.at_rest().await?,
        };
        self.name_copy(whole).await
    }

    /// Names the copy in the metadata; `whole` is how it has to be, none: there is nothing to copy. Nobody frees anything of the group in between:
    /// what that leads to is in `collecting`.
    async fn name_copy(&self, whole: Option<Extent>) -> Result<()> {
        let (group, chunk) = (self.copying.group, self.copying.chunk);
        let Ok(_claim) = timeout(PATIENCE, self.copying.leading.jobs.groups.claim(group)).await else {
            let text = format!("somebody else works on group {group}; its chunk {chunk} is moved later");
            return Err(Error::new(ErrorKind::Busy, text));
        };
        if let Some(whole) = &whole {
            self.copying.confirm(whole).await?;
        }
        self.record().await
    }

    /// Names the new place in the metadata.
    async fn record(&self) -> Result<()> {
        let Copying { leading, group, chunk, from, to, .. } = &self.copying;
        let (group, chunk, from, to) = (*group, *chunk, from.id(), to.id());
        let mut attempts = 0;
        loop {
            match leading.metadata.ask(meta::Request::MoveGroup { group, chunk, from, to }).await {
                Ok(_) => return Ok(()),
                Err(error) if matches!(error.kind(), ErrorKind::Stale | ErrorKind::NotFound) => {
                    return Err(Error::new(ErrorKind::Stale, error.text()));
                }
                // Nor is it known then whether it is done, but it is no more for this keeper to find out: no repetition of it tells.
                Err(error) if error.kind() == ErrorKind::Moved => return Err(error),
                // Whether it is done is not known, so neither chunk may go or grow until it is.
                Err(error) => {
                    attempts += 1;
                    self.unsure(attempts, &error);
                    tokio::time::sleep(ASK_PAUSE).await;
                }
            }
        }
    }

    /// Says that it is not known for long whether the metadata names the new place, and lets nobody wait for it.
    fn unsure(&self, attempts: u32, error: &Error) {
        if attempts % UNSURE_EVERY != UNSURE_FROM {
            return;
        }
        let Copying { node, chunk, from, to, .. } = &self.copying;
        let text = format!(
            "chunk {chunk} is being moved from device {} to {}, and whether the metadata names its new place cannot be said ({error}); no data \
             is lost, and those who write it are refused; start this node again",
            from.id(),
            to.id()
        );
        node.log.say(log::Level::Error, "drain", &text, &[]);
        if let DeviceHandle::Local(from) = from {
            from.send(Item::Unsure { chunk: *chunk });
        }
    }
}

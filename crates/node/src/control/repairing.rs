//! Replicas are made of what lacks some: of closed files' groups, and of what was on devices that were given up.
//!
//! What lacks replicas is on the metadata store's list, the most endangered first, with where each may be copied from and to (`meta`'s `lacking`).
//! A step begins as many copies as may be under way, several a device at the most, so that reads and writes go on beside them. A copy is claimed,
//! sealed, durable and compared with the original before it is named (`copying`), and named under the claim of its group: nobody frees anything
//! of the group in between. What is left to do follows from the list, so whoever leads next goes on. What a device had that was given up and counts
//! again comes first: where it is the same as a good one nothing is copied (`confirming`).

use super::copying::Copying;
use super::job::{self, Job};
use super::orders::PATIENCE;
use crate::device_handle::DeviceHandle;
use crate::leading::Leading;
use crate::log::Level;
use crate::node::Node;
use base::error::{Error, ErrorKind, Result};
use base::id::{ChunkId, DeviceId, GroupId};
use base::limit::{MOVES_MAX, REPAIRS_MAX};
use base::moved::Moved;
use base::planted::Planted;
use base::unit::Time;
use meta::Caller;
use meta::request::{DeviceInfo, Lack, LackingColumn};
use net::message::{Done, device as wire, file};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Groups of the list looked at in one request.
const PAGE: usize = 64;

/// Such requests in a step: the first for the most endangered, the others go on where the step before stopped. Whoever went through all of a long
/// list for each copy that ends would keep the metadata store busy.
const PAGES_MAX: usize = 8;

/// How long a copy that failed is not tried again: at first, and at most. It doubles each time.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_MOST: Duration = Duration::from_secs(60);

/// Copies that failed of which is remembered when to try again. Of more, all are tried at once.
const FAILED_MAX: usize = 4096;

/// Between two attempts to find out whether the metadata name a replica.
const ASK_PAUSE: Duration = Duration::from_millis(500);

/// What repairs have come to in a leadership, for who looks.
#[derive(Default)]
pub struct Repaired {
    /// Bytes copied, those of copies under way included.
    pub copied: AtomicU64,
    /// Replicas made.
    pub made: AtomicU64,
    /// Why something waits that lacks replicas; empty: nothing does.
    waits: Mutex<String>,
}

impl Repaired {
    fn waits_for(&self, why: String) {
        *super::claims::lock(&self.waits) = why;
    }
}

/// A chunk of which a replica is made.
type Of = (GroupId, ChunkId);

/// The job.
#[derive(Default)]
pub struct Repair {
    copies: JoinSet<(Of, [DeviceId; 2], Result<()>)>,
    /// What is being copied, from which device and to which.
    under_way: BTreeMap<Of, [DeviceId; 2]>,
    /// When what failed is tried again, how often it has failed, and why it did last.
    failed: BTreeMap<Of, (Time, u32, String)>,
    /// Where the next step goes on in the list, behind what is at its front.
    after: Option<(u8, GroupId)>,
    /// What was said last of what cannot be copied: once is enough.
    said: String,
}

impl Job for Repair {
    const NAME: &'static str = "repair";

    fn woken_by(leading: &Leading) -> Option<Arc<Notify>> {
        job::work(leading)
    }

    async fn step(&mut self, node: &Arc<Node>, leading: &Arc<Leading>) -> Result<bool> {
        while let Some(ended) = self.copies.try_join_next() {
            self.note(node, ended.ok());
        }
        self.begin(node, leading).await?;
        if self.under_way.is_empty() {
            return Ok(false);
        }
        // What comes onto the list meanwhile waits for one of these to end: half of a second at the most if there is room for it beside them.
        let ended = if self.under_way.len() < REPAIRS_MAX {
            timeout(job::LOOK_EVERY, self.copies.join_next()).await.unwrap_or_default()
        } else {
            self.copies.join_next().await
        };
        if let Some(ended) = ended {
            self.note(node, ended.ok());
        }
        Ok(true)
    }
}

impl Repair {
    /// Begins as many copies as may be under way.
    async fn begin(&mut self, node: &Arc<Node>, leading: &Arc<Leading>) -> Result<()> {
        let (mut after, mut waits, mut returning) = (None, String::new(), None);
        for page in 0..PAGES_MAX {
            if self.under_way.len() >= REPAIRS_MAX {
                if page == 0 {
                    return Ok(());
                }
                break;
            }
            let busy = self.busy(node, leading);
            // On one that is still to be compared may be anything.
            let avoid = busy.union(&leading.peers.uncompared()).copied().collect();
            let request = meta::Request::Lacking { after, limit: PAGE, avoid };
            let meta::Reply::Lacking { groups, resume, .. } = leading.metadata.ask(request).await? else {
                unreachable!("what lacks replicas was asked for")
            };
            if returning.is_none() && groups.iter().any(|group| group.lack == Lack::NoneLeft) {
                returning = Some(returning_devices(node, leading).await?);
            }
            let returns = |device: &DeviceId| returning.as_ref().is_some_and(|devices| devices.contains(device));
            for group in groups {
                for column in group.columns {
                    if column.from.iter().any(returns) {
                        continue;
                    }
                    if self.under_way.len() < REPAIRS_MAX
                        && let Err(why) = self.begin_one(node, leading, (group.group, &column))
                        && waits.is_empty()
                    {
                        waits = why;
                    }
                }
            }
            after = match self.after.take().filter(|_| page == 0 && resume.is_some()) {
                Some(before) => resume.max(Some(before)),
                None => resume,
            };
            if after.is_none() {
                break;
            }
        }
        self.after = after;
        leading.repaired.waits_for(waits);
        Ok(())
    }

    /// Devices that take no replica now: those that cannot, that stand still, or to and from which as many copies as may be are under way.
    fn busy(&self, node: &Node, leading: &Leading) -> BTreeSet<DeviceId> {
        let mut busy = leading.jobs.still();
        busy.extend(leading.device_handles(node).iter().filter(|handle| !handle.is_able()).map(DeviceHandle::id));
        let mut counts = BTreeMap::<DeviceId, usize>::new();
        self.under_way.values().flatten().for_each(|device| *counts.entry(*device).or_default() += 1);
        busy.extend(counts.into_iter().filter(|(_, count)| *count >= MOVES_MAX).map(|(device, _)| device));
        busy
    }

    /// Begins a copy, if it can be made now and is not under way; why not, if that is of interest.
    fn begin_one(
        &mut self,
        node: &Arc<Node>,
        leading: &Arc<Leading>,
        (group, column): (GroupId, &LackingColumn),
    ) -> std::result::Result<(), String> {
        let of = (group, column.chunk);
        let now = node.clock.now();
        let tries = match self.failed.get(&of) {
            Some((again, _, why)) if *again > now => return Err(format!("another attempt: {why}")),
            failed => failed.map_or(0, |(_, tries, _)| *tries),
        };
        if self.under_way.contains_key(&of) {
            return Ok(());
        }
        let busy = self.busy(node, leading);
        let can = |device: &DeviceId| {
            let handle = leading.device_handle(node, *device).ok()?;
            (handle.can_be_asked() && (handle.has_failed() || !busy.contains(device))).then_some(handle)
        };
        let sources: Vec<DeviceHandle> = column.from.iter().filter_map(can).collect();
        if sources.is_empty() && column.length > 0 {
            return Err(format!("the devices that have what lacks replicas (chunk {})", column.chunk));
        }
        // Another one each time, as of those that it is copied from below.
        let targets: Vec<DeviceId> = column.again.iter().copied().chain(column.to).collect();
        let Some(to) = targets.get(tries as usize % targets.len().max(1)).copied() else {
            return Err("a device on another node with room, for what lacks replicas".to_string());
        };
        let is_alone = column.again.contains(&to) && column.from.contains(&to);
        let Some(to) = leading.device_handle(node, to).ok().filter(|_| !busy.contains(&to)) else {
            return Err("devices that have as many copies on their way as may be".to_string());
        };
        // Another one each time: one replica may be damaged, or its device slow.
        let source = tries as usize / targets.len() % sources.len().max(1);
        let from = if is_alone { Some(&to) } else { sources.get(source) };
        let from = from.filter(|_| column.length > 0).cloned();
        let first = if is_alone { Some(to.id()) } else { column.from.first().copied() };
        let named = from.as_ref().map(DeviceHandle::id).or(first).unwrap_or(to.id());
        let devices = [named, to.id()];
        self.under_way.insert(of, devices);
        let (node, leading, length) = (node.clone(), leading.clone(), column.length);
        let again = column.again.contains(&to.id());
        self.copies.spawn(async move {
            let making = async {
                match from {
                    Some(from) => make((&node, &leading), of, (length, again), (from, to)).await,
                    None => name(&leading, of, devices).await,
                }
            };
            let made = leading.meanwhile(making).await;
            (of, devices, made.unwrap_or_else(|| Err(Moved::default().into())))
        });
        Ok(())
    }

    /// One has ended.
    fn note(&mut self, node: &Node, ended: Option<(Of, [DeviceId; 2], Result<()>)>) {
        let Some((of, _, made)) = ended else {
            // A fault in one was said where it happened; which it was is not known.
            self.copies.abort_all();
            self.under_way.clear();
            return;
        };
        self.under_way.remove(&of);
        let Err(error) = made else {
            self.failed.remove(&of);
            return;
        };
        if error.kind() == ErrorKind::Moved {
            return;
        }
        let tries = self.failed.get(&of).map_or(0, |(_, tries, _)| *tries) + 1;
        if self.failed.len() >= FAILED_MAX {
            self.failed.clear();
        }
        let wait = AGAIN_MOST.min(AGAIN_FIRST * 2u32.saturating_pow(tries.min(10) - 1));
        self.failed.insert(of, (node.clock.now().after(wait), tries, error.text().to_string()));
        // What is on another list now, or whose device is full or away, is nothing to be told of.
        if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io) && self.said != error.text() {
            self.said = error.text().to_string();
            let text = format!("a replica cannot be made from here: {error}; others are tried");
            node.log.say(Level::Warn, "repair", &text, &[("group", &of.0), ("chunk", &of.1)]);
        }
    }
}

/// Devices that are back and count in a moment: what is nowhere else is there then, and need not be copied.
async fn returning_devices(node: &Node, leading: &Leading) -> Result<BTreeSet<DeviceId>> {
    let returns = |info: &&DeviceInfo| {
        let is_able = || leading.device_handle(node, info.device).is_ok_and(|handle| handle.is_able());
        info.lost && info.may_return && !info.draining && !leading.away.is_kept_back(info.device) && is_able()
    };
    Ok(leading.devices().await?.iter().filter(returns).map(|info| info.device).collect())
}

/// Makes a replica of a chunk that has so many bytes. `again`: one is named there, and doubted.
async fn make(
    (node, leading): (&Arc<Node>, &Arc<Leading>),
    of: Of,
    (length, again): (u64, bool),
    (from, to): (DeviceHandle, DeviceHandle),
) -> Result<()> {
    let by = leading.clone();
    let came = move |bytes: u64| {
        by.repaired.copied.fetch_add(bytes, Ordering::Relaxed);
    };
    let mut copying = match again {
        true => Copying::begin_again((node, leading), of, (from, to), Box::new(came)).await?,
        false => Copying::begin((node, leading), of, (from, to), Box::new(came)).await?,
    };
    copying.at_least = length;
    let mut made = name_copy(&copying, again).await;
    if matches!(&made, Err(error) if error.kind() == ErrorKind::Corrupt)
        && !is_named(leading, of, copying.from.id()).await?
    {
        // Its file was removed, or it was moved: what is missing there is not missing.
        made = Err(Error::new(ErrorKind::Stale, format!("chunk {} is named there no more", of.1)));
    }
    match &made {
        Ok(()) => {
            leading.repaired.made.fetch_add(1, Ordering::Relaxed);
        }
        Err(error) => copying.give_up(error).await,
    }
    made
}

/// Whether the metadata name a chunk on a device.
async fn is_named(leading: &Leading, (group, chunk): Of, device: DeviceId) -> Result<bool> {
    let request = meta::Request::KnownGroups { groups: vec![group] };
    let meta::Reply::Known(known) = leading.metadata.ask(request).await? else {
        unreachable!("a known group was asked for")
    };
    let mut layouts = known.iter().filter_map(|known| known.layout.as_ref());
    Ok(layouts.any(|layout| layout.on(device).any(|replica| replica.chunk == chunk)))
}

/// Copies, and names the copy.
async fn name_copy(copying: &Copying, again: bool) -> Result<()> {
    let Copying { leading, group, chunk, from, .. } = copying;
    let whole = match copying.planted {
        Some(Planted::RepairedUncopied) => None,
        _ if again => copying.made_sure().await?,
        _ => copying.at_rest().await?,
    };
    let Ok(_claim) = timeout(PATIENCE, leading.jobs.groups.claim(*group)).await else {
        let text = format!("somebody else works on group {group}; its chunk {chunk} is copied later");
        return Err(Error::new(ErrorKind::Busy, text));
    };
    match &whole {
        Some(whole) => copying.confirm(whole).await?,
        None if copying.planted == Some(Planted::RepairedUncopied) => (),
        None => {
            let text = format!("chunk {chunk} is not on {} any more", from.shown());
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
    }
    name(leading, (*group, *chunk), [from.id(), copying.to.id()]).await
}

/// Names a replica, which is a copy of the first one of these devices, on the second one.
async fn name(leading: &Leading, (group, chunk): Of, [from, to]: [DeviceId; 2]) -> Result<()> {
    loop {
        let request = meta::Request::AddReplica { group, chunk, from, to };
        match leading.metadata.ask(request).await {
            Ok(_) => return Ok(()),
            Err(error) if matches!(error.kind(), ErrorKind::Stale | ErrorKind::NotFound | ErrorKind::Moved) => {
                return Err(error);
            }
            // Whether it is named is not known, so the copy may not go until it is.
            Err(_) => tokio::time::sleep(ASK_PAUSE).await,
        }
    }
}

impl Leading {
    /// How many groups lack replicas, and how far making them has come.
    pub async fn lacks(&self) -> Result<file::Lacks> {
        let request = meta::Request::Lacking { after: None, limit: 0, avoid: Vec::new() };
        let meta::Reply::Lacking { lacks, .. } = self.metadata.ask(request).await? else {
            unreachable!("how many lack replicas was asked for")
        };
        let ((one_left, one_left_bytes), (fewer, fewer_bytes)) = (lacks.one_left, lacks.fewer);
        let (none_left, none_left_bytes) = lacks.none_left;
        let waits = super::claims::lock(&self.repaired.waits).clone();
        Ok(file::Lacks {
            one_left,
            one_left_bytes,
            fewer,
            fewer_bytes,
            none_left,
            none_left_bytes,
            recounting: lacks.recounting,
            copied_bytes: self.repaired.copied.load(Ordering::Relaxed),
            made: self.repaired.made.load(Ordering::Relaxed),
            waits,
            withheld: self.away.withheld(),
        })
    }
}

impl Node {
    /// Gives a device up. One that takes writes is not: what is on it would be copied for nothing, and what came meanwhile be of no worth.
    pub async fn give_up(&self, leading: &Leading, caller: Caller, ask: wire::Lost) -> Result<Done> {
        let device = DeviceId(ask.device.value());
        let Some(info) = leading.devices().await?.into_iter().find(|info| info.device == device) else {
            let text = format!("device {device} is not one of this store's; nothing was done");
            return Err(Error::new(ErrorKind::NotFound, text));
        };
        if !info.is_gone() && leading.device_handle(self, device).is_ok_and(|handle| handle.is_able()) {
            let text = format!(
                "device {device} serves; nothing was done; empty it with `stormwell device rm`, or take it away and give it up then"
            );
            return Err(Error::new(ErrorKind::Busy, text));
        }
        leading.metadata.ask_for(caller, meta::Request::DeviceLost { device }).await?;
        let text = "a device was given up: what has other replicas gets new ones, what has none is lost unless it answers again";
        self.log.say(Level::Warn, "repair", text, &[("device", &device)]);
        Ok(Done {})
    }
}

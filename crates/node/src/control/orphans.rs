//! How a file is taken from a writer that is gone, or from whom somebody else takes it: fenced, sealed, closed with what is there, and what is
//! missing of it is said.

use super::claims::{Claim, Claims};
use super::collecting::GARBAGE_AT_ONCE;
use super::job::{self, Job, said};
use super::orders::{Order, PATIENCE};
use crate::device::control::Copied;
use crate::device_handle::DeviceHandle;
use crate::leading::Leading;
use crate::log::Level;
use crate::node::Node;
use base::ended::{Ending, Has, Known, ending};
use base::error::{Error, ErrorKind, Result};
use base::id::{ChunkId, DeviceId, Generation, GroupId, InodeId};
use base::layout::Replica;
use base::limit::FULL_WAIT;
use base::planted::Planted;
use base::policy;
use bytes::Bytes;
use meta::Caller;
use meta::request::{DeviceInfo, Orphan};
use net::message::file::{Attributes, Recover};
use std::collections::BTreeSet;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep, timeout};

/// Files that are ended side by side: a fence, a seal and a change of the metadata each, three syncs, so that eight keep devices busy while
/// their metadata are written, and leave writers their turns.
const ENDED_AT_ONCE: usize = 8;

/// How long more replicas have that have not answered when others have said how a group ends: what they have saves a copy, and a file that
/// somebody waits for is not held up by a node that died a moment ago.
const FENCE_REST: Duration = Duration::from_secs(1);

/// Ends files whose writer's session is over: the chunk is fenced and sealed at the length that it kept, which becomes
/// the file's. One whose device does not answer waits by itself, and no other file of that device is begun meanwhile: what is done late is
/// refused if somebody has taken the file since, by its generation on the device and in the metadata.
pub struct EndAbandoned {
    under_way: Claims<InodeId>,
    turns: Arc<Semaphore>,
    ends: JoinSet<()>,
}

impl Default for EndAbandoned {
    fn default() -> EndAbandoned {
        let turns = Arc::new(Semaphore::new(ENDED_AT_ONCE));
        EndAbandoned { under_way: Claims::default(), turns, ends: JoinSet::new() }
    }
}

impl Job for EndAbandoned {
    const NAME: &'static str = "end_abandoned";

    fn woken_by(leading: &Leading) -> Option<Arc<Notify>> {
        job::work(leading)
    }

    async fn step(&mut self, node: &Arc<Node>, leading: &Arc<Leading>) -> Result<bool> {
        while self.ends.try_join_next().is_some() {}
        let mut after = None;
        loop {
            let request = meta::Request::FenceList { after, limit: GARBAGE_AT_ONCE };
            let meta::Reply::FenceList { orphans, resume } = leading.metadata.ask(request).await? else {
                unreachable!("files to recover were asked for")
            };
            self.end_those(node, leading, orphans).await?;
            // Those that wait for a device stay on the list: whoever began with them each time would never come to the others.
            after = resume;
            if after.is_none() {
                return Ok(false);
            }
        }
    }
}

impl EndAbandoned {
    /// Ends those of these files whose devices can be asked.
    async fn end_those(&mut self, node: &Arc<Node>, leading: &Arc<Leading>, orphans: Vec<Orphan>) -> Result<()> {
        if orphans.is_empty() {
            return Ok(());
        }
        // Once for all of them: those that wait for a device are looked at again and again.
        let counts = |info: &&DeviceInfo| !info.is_gone();
        let known = leading.devices().await?.iter().filter(counts).map(|info| info.device).collect();
        for orphan in orphans {
            let waits_for_none = node.planted == Some(Planted::UnreachableTakenForEmpty);
            // Else its turn comes with its devices, when they take a fence.
            if !waits_for_none && !may_be_fenced(node, leading, &orphan, &known) {
                continue;
            }
            let Some(claim) = self.under_way.try_claim(orphan.inode) else { continue };
            let Ok(turn) = self.turns.clone().acquire_owned().await else { unreachable!("nobody closes it") };
            // One of its devices may have begun to stand still while it waited for its turn.
            if waits_for_none || may_be_fenced(node, leading, &orphan, &known) {
                let (node, leading) = (node.clone(), leading.clone());
                self.ends.spawn(async move {
                    let _over = leading.meanwhile(end_in_turn(&node, &leading, orphan, claim, turn)).await;
                });
            }
        }
        Ok(())
    }
}

/// Whether enough devices of a file's group take a fence: of each column all of the store's, or one that still has whatever it took.
fn may_be_fenced(node: &Node, leading: &Leading, orphan: &Orphan, known: &BTreeSet<DeviceId>) -> bool {
    let still = leading.jobs.still();
    let takes = |device: DeviceId| match leading.device_handle(node, device) {
        // It is lost, or gone: if it answers, well.
        _ if !known.contains(&device) => true,
        Ok(_) if still.contains(&device) => false,
        Ok(handle) => matches!(handle, DeviceHandle::Local(_)) || handle.is_able(),
        Err(_) => false,
    };
    let is_sound = |device: DeviceId, placed: u64| {
        let start = |handle: DeviceHandle| handle.start().unwrap_or(node.start);
        placed > 0 && takes(device) && leading.device_handle(node, device).is_ok_and(|handle| start(handle) == placed)
    };
    (0..orphan.group.layout.columns().len()).all(|column| {
        let of = || replicas(orphan).filter(|(replica, _)| replica.column == column);
        of().all(|(replica, _)| takes(replica.device)) || of().any(|(replica, placed)| is_sound(replica.device, placed))
    })
}

/// The replicas of a file's group, each with the start of its node that it was placed on.
fn replicas(orphan: &Orphan) -> impl Iterator<Item = (Replica, u64)> + '_ {
    let starts = orphan.starts.iter().copied().chain(std::iter::repeat(0));
    orphan.group.layout.replicas().zip(starts)
}

/// Ends a file. It gives its turn to another one if its device does not answer in time, and goes on beside it.
async fn end_in_turn(
    node: &Node,
    leading: &Leading,
    orphan: Orphan,
    claim: Claim<InodeId>,
    turn: OwnedSemaphorePermit,
) {
    let mut ending = pin!(end(node, leading, orphan));
    let ended = match timeout(PATIENCE, &mut ending).await {
        Ok(ended) => ended,
        Err(_) => {
            drop(turn);
            ending.await
        }
    };
    said(node, EndAbandoned::NAME, ended.map(drop));
    drop(claim);
}

/// A device of a group. None: it is none of the store's any more, as one in memory of an earlier start, or was given up and does not answer; what
/// was there is lost.
async fn known_place(node: &Node, leading: &Leading, device: DeviceId) -> Result<Option<DeviceHandle>> {
    match leading.device_handle(node, device) {
        Ok(handle) if handle.is_able() => Ok(Some(handle)),
        found => {
            let counts = leading.devices().await?.iter().any(|info| info.device == device && !info.is_gone());
            if counts { found.map(Some) } else { Ok(None) }
        }
    }
}

/// Ends a file whose writer is fenced in the metadata: the file as it was then, unless somebody else has ended it meanwhile.
async fn end(node: &Node, leading: &Leading, orphan: Orphan) -> Result<Option<Attributes>> {
    let Kept { length, short, vanished } = match fence_and_seal(node, leading, &orphan).await {
        Err(_) if node.planted == Some(Planted::UnreachableTakenForEmpty) => Kept::default(),
        kept => kept?,
    };
    let is_damaged = length < orphan.length || !vanished.is_empty();
    if is_damaged {
        say_lost(node, leading, &orphan, length, &vanished).await;
    }
    let (inode, generation) = (orphan.inode, orphan.generation);
    let request = meta::Request::Recovered { inode, generation, length, without: short };
    match leading.metadata.ask(request).await {
        // Recovered by an earlier round whose answer was lost, or deleted meanwhile.
        Err(error) if matches!(error.kind(), ErrorKind::Stale | ErrorKind::NotFound) => Ok(None),
        Err(error) => Err(error),
        // Of two that end it at once both say what is missing, and the one that did it counts.
        Ok(meta::Reply::Attributes(attributes)) => {
            node.metrics.damaged_ends.fetch_add(u64::from(is_damaged), Ordering::Relaxed);
            Ok(Some(attributes))
        }
        Ok(other) => unreachable!("the end of a file was answered by {other:?}"),
    }
}

/// Says that devices have only so many bytes of a group of which more was synced, and which devices are not there to be asked what else
/// they had (`vanished`): what was synced in the second before its writer was gone need not be recorded.
async fn say_lost(node: &Node, leading: &Leading, orphan: &Orphan, length: u64, vanished: &BTreeSet<DeviceId>) {
    let path = match leading.metadata.ask(meta::Request::PathOf { inode: orphan.inode }).await {
        Ok(meta::Reply::PathOf(path)) => path,
        _ => format!("file number {}", orphan.inode),
    };
    let names =
        |devices: &BTreeSet<DeviceId>| devices.iter().map(DeviceId::to_string).collect::<Vec<String>>().join(" or ");
    let in_file = |in_group: u64| orphan.start.saturating_add(in_group);
    if length < orphan.length {
        let devices: BTreeSet<DeviceId> = orphan.group.layout.replicas().map(|replica| replica.device).collect();
        let text = format!(
            "bytes {} to {} of {path} were synced and are not there any more on device {}; the file keeps its length, reading them is an \
             error, the rest can be read; restore these bytes, and look at that device (`stormwell device ls`)",
            in_file(length),
            in_file(orphan.length),
            names(&devices)
        );
        node.log.say(Level::Error, "housekeeping", &text, &[]);
    }
    if !vanished.is_empty() {
        let text = format!(
            "{path}, whose writer is gone, ends at {} bytes and may have been longer: device {} is none of this store's any more; compare the \
             file with what it was made from",
            in_file(length.max(orphan.length)),
            names(vanished)
        );
        node.log.say(Level::Error, "housekeeping", &text, &[]);
    }
}

fn fence_of(ask: &Recover) -> meta::Request {
    let generation = (ask.generation != 0).then_some(Generation(ask.generation));
    meta::Request::Fence { inode: InodeId(ask.inode), only_gone: ask.only_gone, for_holder: ask.for_holder, generation }
}

/// Takes a file from its writer and closes it with what is written. The file as it was closed here: somebody may have opened it since.
pub async fn recover(node: &Node, leading: &Leading, caller: Caller, ask: Recover) -> Result<Attributes> {
    let inode = InodeId(ask.inode);
    match leading.metadata.ask_for(caller, fence_of(&ask)).await? {
        meta::Reply::Attributes(attributes) => return Ok(attributes),
        meta::Reply::Orphans(orphans) => {
            for orphan in orphans {
                if let Some(ended) = end(node, leading, orphan).await? {
                    return Ok(ended);
                }
            }
        }
        other => unreachable!("a fence was answered by {other:?}"),
    }
    let locate = meta::Request::Locate { file: meta::request::FileRef::Inode(inode), offset: 0, length: 0 };
    match leading.metadata.ask(locate).await? {
        meta::Reply::Located(located) => Ok(located.attributes),
        other => unreachable!("a file was asked for, not {other:?}"),
    }
}

/// What is kept of a group whose writer is gone.
#[derive(Default)]
struct Kept {
    /// Its length.
    length: u64,
    /// Replicas that do not have their part of it.
    short: Vec<(ChunkId, DeviceId)>,
    /// Devices that are none of the store's any more, and may have had more than what is left.
    vanished: BTreeSet<DeviceId>,
}

/// A replica as it is when its group ends.
struct Fenced {
    replica: Replica,
    /// None: its device cannot be asked; where nothing is said of why, it is none of the store's any more, or given up.
    handle: Option<DeviceHandle>,
    /// Its length if it is there, and whether it has all that it ever took; none: it has not answered.
    answer: Option<Result<(Option<u64>, bool)>>,
}

impl Fenced {
    fn known(&self) -> Known {
        match &self.answer {
            Some(Ok((length, sound))) => Known::Answered { length: length.unwrap_or(0), sound: *sound },
            _ if self.is_lost() => Known::Lost,
            _ => Known::Unanswered,
        }
    }

    fn is_lost(&self) -> bool {
        self.handle.is_none() && self.answer.is_none()
    }
}

/// Takes a group from its writer, then seals what counts of it (`base::ended`).
async fn fence_and_seal(node: &Node, leading: &Leading, orphan: &Orphan) -> Result<Kept> {
    let stripe = orphan.group.layout.stripe();
    let mut fenced = fence_all(node, leading, orphan).await?;
    let told: Vec<(usize, Known)> = fenced.iter().map(|one| (one.replica.column, one.known())).collect();
    let end = match ending(stripe, orphan.length, &told) {
        Ending::Ends(end) => end,
        Ending::Waits(columns) => {
            let failed = fenced.iter_mut().filter(|one| columns.contains(&one.replica.column));
            let error = failed.filter_map(|one| one.answer.take()?.err()).next();
            return Err(error.unwrap_or_else(|| {
                let text = "not enough devices of its last bytes have answered; nothing is lost: it is tried again";
                Error::new(ErrorKind::Busy, text)
            }));
        }
    };
    let mut kept = Kept { length: end.length, ..Kept::default() };
    let (mut sealed, mut failed) = (BTreeSet::new(), Vec::new());
    for (one, has) in fenced.iter().zip(&end.parts) {
        let Replica { column, device, chunk } = one.replica;
        let (Some(handle), Some(Ok((length, _))), Has::All) = (&one.handle, &one.answer, has) else {
            kept.short.push((chunk, device));
            continue;
        };
        let order = leading.jobs.unanswered.begin(device);
        let seal = match length {
            Some(length) => handle.seal(chunk, orphan.generation, *length).await,
            None => Ok(()),
        };
        drop(order);
        match seal {
            // Somebody else has ended the group meanwhile, and what was empty is deleted already.
            Err(error) if error.kind() == ErrorKind::NotFound && *length == Some(0) => drop(sealed.insert(column)),
            Err(error) => failed.push((one.replica, error)),
            Ok(()) => drop(sealed.insert(column)),
        }
    }
    for (Replica { column, device, chunk }, error) in failed {
        // One that went meanwhile is made anew from another one that is sealed.
        if !sealed.contains(&column) {
            return Err(error);
        }
        kept.short.push((chunk, device));
    }
    for column in 0..stripe.columns() {
        let of = || told.iter().filter(|(of, _)| *of == column);
        let least = stripe.column_length(orphan.length, column);
        let is_sound = |known: &Known| matches!(known, Known::Answered { length, sound: true } if *length >= least);
        if !of().any(|(_, known)| is_sound(known)) {
            let lost = fenced.iter().filter(|one| one.replica.column == column && one.is_lost());
            kept.vanished.extend(lost.map(|one| one.replica.device));
        }
    }
    Ok(kept)
}

/// Fences all replicas of a group, side by side. As soon as those that answered say how it ends, the others have a moment more.
async fn fence_all(node: &Node, leading: &Leading, orphan: &Orphan) -> Result<Vec<Fenced>> {
    let (stripe, makes) = (orphan.group.layout.stripe(), node.planted != Some(Planted::UnmadeNotFenced));
    let (mut fenced, mut fences) = (Vec::new(), JoinSet::new());
    let several = orphan.group.layout.has_several();
    let counts: BTreeSet<DeviceId> = match several {
        true => leading.devices().await?.iter().filter(|info| !info.lost).map(|info| info.device).collect(),
        false => BTreeSet::new(),
    };
    for (replica, _) in replicas(orphan) {
        fenced.push(match known_place(node, leading, replica.device).await {
            Ok(handle) => Fenced { replica, handle, answer: None },
            Err(error) if several => Fenced { replica, handle: None, answer: Some(Err(error)) },
            Err(error) => return Err(error),
        });
    }
    for (at, (replica, placed)) in replicas(orphan).enumerate() {
        let Some(handle) = fenced[at].handle.clone() else { continue };
        let (group, generation, start) = (orphan.group.group, orphan.generation, node.start);
        let order = leading.jobs.unanswered.begin(replica.device);
        // One that was given up counts for nothing but its length: what it misses since then, nobody waited for.
        let placed = if counts.contains(&replica.device) { placed } else { 0 };
        let restarted_counts = node.planted == Some(Planted::RestartedTakenForSound);
        fences.spawn(async move {
            let answer = fence(&handle, (group, replica.chunk), generation, makes, &order).await;
            // What is not there took no fence either.
            let sound =
                |by: u64, length: Option<u64>| length.is_some() && placed > 0 && (by == placed || restarted_counts);
            (at, answer.map(|(length, by)| (length, sound(by.unwrap_or(start), length))))
        });
    }
    // Until when more is waited for, once it is known how the group ends.
    let mut rest: Option<Pin<Box<Sleep>>> = None;
    loop {
        let next = tokio::select! {
            biased;
            next = fences.join_next() => next,
            () = over(&mut rest) => break,
        };
        let Some(ended) = next else { break };
        // A fault in it was said where it happened.
        let Ok((at, answer)) = ended else { continue };
        let is_refused = answer.is_err();
        fenced[at].answer = Some(answer);
        if is_refused && !several {
            break;
        }
        let told: Vec<(usize, Known)> = fenced.iter().map(|one| (one.replica.column, one.known())).collect();
        if rest.is_none() && matches!(ending(stripe, orphan.length, &told), Ending::Ends(_)) {
            rest = Some(Box::pin(sleep(FENCE_REST)));
        }
    }
    // What has not answered is still ordered, and counts as that until it does.
    fences.detach_all();
    Ok(fenced)
}

/// Comes when this has passed; never, if there is none.
async fn over(rest: &mut Option<Pin<Box<Sleep>>>) {
    match rest {
        Some(rest) => rest.as_mut().await,
        None => std::future::pending().await,
    }
}

/// Takes a chunk from its writer. Its length, and which start of its node answered. One that is not there yet is made, empty: else a first append
/// that is on its way would make it, and be acknowledged, after the file was closed without its bytes. No length: it is not there, and its device
/// takes no appends. No start: it is this process.
async fn fence(
    handle: &DeviceHandle,
    (group, chunk): (GroupId, ChunkId),
    generation: Generation,
    makes: bool,
    order: &Order,
) -> Result<(Option<u64>, Option<u64>)> {
    let is_there = |(length, start)| (Some(length), start);
    match handle.fence(chunk, generation).await {
        Err(error) if error.kind() == ErrorKind::NotFound && !(makes && handle.is_able()) => {
            return Ok((None, handle.start()));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        other => return other.map(is_there),
    }
    let nothing = Copied {
        generation,
        offset: 0,
        bytes: Bytes::new(),
        level: policy::Level::Synced,
        small_parts: false,
        cell: 0,
    };
    // There may be no room for it.
    order.may_wait(FULL_WAIT);
    handle.append((group, chunk), nothing).await?;
    order.goes_on();
    match handle.fence(chunk, generation).await {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let text = format!(
                "chunk {chunk} was deleted or moved while its file was taken from its writer; nothing is lost; try again"
            );
            Err(Error::new(ErrorKind::Busy, text))
        }
        fenced => fenced.map(is_there),
    }
}

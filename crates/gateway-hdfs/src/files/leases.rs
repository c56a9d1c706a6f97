//! Leases: who may write a file, for how long, and how it is taken from somebody who is gone.

use super::elsewhere::take_over;
use super::making::no_room;
use super::open::{HARD_LIMIT, OpenFile, SOFT_LIMIT};
use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::message::files::{ListOpenFiles, ListOpenFilesAnswer, ListedOpenFile};
use crate::message::hdfs::ExtendedBlock;
use crate::names::superuser_only;
use crate::refusal::{ALREADY_BEING_CREATED, FILE_NOT_FOUND, LEASE_EXPIRED, RETRIABLE, Refusal};
use base::error::{ErrorKind, Result as StoreResult};
use base::limit::{HOLDER_MAX, HOLDERS_TOLD_MAX, LIST_PAGE_MAX};
use base::unit::Time;
use client::Attributes;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::task::JoinSet;

/// How often files of silent holders are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often the store is told which holders live: a holder that renews its lease every half of the soft limit, as clients do, is never
/// taken for silent by another gateway, even if one telling in between fails.
const TELL_EVERY: Duration = Duration::from_secs(10);
const _: () = assert!(SOFT_LIMIT.as_secs() / 2 + 2 * TELL_EVERY.as_secs() < SOFT_LIMIT.as_secs());

/// Files that are closed side by side when the gateway ends: each takes up to 10 s while the store or a device does not answer, and a
/// thousand of them 40 s so, instead of 170 minutes.
const CLOSES_MAX: usize = 256;

/// The machine of a client that opened its file through another gateway.
pub const ELSEWHERE: &str = "another gateway";

/// What somebody wants with a file that may be open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Create,
    Append,
}

impl Wish {
    /// Why it is refused, in HDFS's words.
    pub fn refused(self, path: &str, holder: &str, machine: &str, why: &str) -> String {
        let wish = match self {
            Wish::Create => "CREATE_FILE",
            Wish::Append => "APPEND_FILE",
        };
        format!("Failed to {wish} {path} for {holder} on {machine} because {why}")
    }
}

/// Goes on if nobody writes the file, or if whoever did was silent for too long and it could be closed.
pub async fn may_take(
    gateway: &Gateway,
    attributes: &Attributes,
    path: &str,
    holder: &str,
    machine: &str,
    wish: Wish,
) -> Result<(), Refusal> {
    if !attributes.open {
        return Ok(());
    }
    let held = |why: &str| Refusal::new(ALREADY_BEING_CREATED, wish.refused(path, holder, machine, why));
    let mut there = present(gateway, attributes).await;
    if there.is_none() {
        // A call that opens it here at this moment, under whichever of its names, is waited for: its file is none that was left.
        gateway.files.openings.ended_by_now().await;
        there = present(gateway, attributes).await;
    }
    match there {
        Some(file) if *file.holder == *holder => Err(held(&format!("{holder} is already the current lease holder."))),
        Some(file) if is_silent(gateway, &file.holder).await? => take_back(gateway, &file).await.map_err(Refusal::from),
        Some(file) => {
            let (owner, from) = (&file.holder, &file.machine);
            Err(held(&format!("this file lease is currently owned by {owner} on {from}")))
        }
        // It was open through a gateway that is gone, or is through something else than a gateway.
        None => match gateway.client.recover_at(attributes.inode, true, attributes.generation).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Stale => Err(held("somebody else just opened it")),
            // It is open through a gateway that lives, which its holder may not.
            Err(error) if error.kind() == ErrorKind::Busy && may_be_silent(gateway, attributes, holder).await? => {
                let (inode, generation) = (attributes.inode, attributes.generation);
                gateway.client.recover_at(inode, false, generation).await.map(drop).map_err(Refusal::from)
            }
            Err(error) if error.kind() == ErrorKind::Busy => Err(held(&match attributes.holder.as_str() {
                "" => "this file lease is currently owned by a program that does not use HDFS's protocol".to_string(),
                owner if owner == holder => format!("{holder} is already the current lease holder."),
                owner => format!("this file lease is currently owned by {owner} on {ELSEWHERE}"),
            })),
            Err(error) => Err(error.into()),
        },
    }
}

/// The file as it is open through this gateway. One that another gateway took since is not.
async fn present(gateway: &Gateway, attributes: &Attributes) -> Option<Arc<OpenFile>> {
    let file = gateway.files.open.get(attributes.inode)?;
    if !has_ended(&file, attributes) {
        return Some(file);
    }
    drop(file.take_away().await);
    gateway.files.open.remove_this(&file);
    None
}

/// Whether somebody took the file since it was opened here, or it was closed. What was looked up before it was opened says nothing.
pub fn has_ended(file: &OpenFile, now: &Attributes) -> bool {
    let opened = file.attributes.generation;
    now.generation > opened || now.generation == opened && !now.open
}

/// Whether a holder was silent for so long, at every gateway, that anybody may take its files.
async fn is_silent(gateway: &Gateway, holder: &str) -> Result<bool, Refusal> {
    if !gateway.files.open.is_silent(holder, gateway.clock.now()) {
        return Ok(false);
    }
    Ok(silence(gateway, holder).await?.is_none_or(|silent| silent > SOFT_LIMIT))
}

/// The same of the holder of a file that is open through another gateway.
async fn may_be_silent(gateway: &Gateway, attributes: &Attributes, asker: &str) -> Result<bool, Refusal> {
    let holder = attributes.holder.as_str();
    if holder.is_empty() || holder == asker {
        return Ok(false);
    }
    Ok(silence(gateway, holder).await?.is_some_and(|silent| silent > SOFT_LIMIT))
}

/// How long a holder has been silent at the least, as the store was told by all gateways. None: it is told of no such holder.
async fn silence(gateway: &Gateway, holder: &str) -> StoreResult<Option<Duration>> {
    if holder.len() > HOLDER_MAX {
        return Ok(None);
    }
    Ok(gateway.client.holders_heard(Vec::new(), vec![holder.to_string()]).await?.pop())
}

/// Closes a file that is open through this gateway, with what is written of it, whoever writes it, and takes it from its holder. One that
/// another gateway took since is left alone.
pub async fn take_back(gateway: &Gateway, file: &OpenFile) -> StoreResult<()> {
    // What is under way still arrives, or is refused.
    drop(file.take_away().await);
    closed_here(gateway, file, gateway.client.recover_at(file.inode, false, file.attributes.generation).await)
}

/// The same, but its holder may go on with it, at any gateway.
pub async fn leave(gateway: &Gateway, file: &OpenFile) -> StoreResult<()> {
    drop(file.take_away().await);
    closed_here(gateway, file, gateway.client.recover_for_holder(file.inode, file.attributes.generation).await)
}

fn closed_here(gateway: &Gateway, file: &OpenFile, closed: StoreResult<Attributes>) -> StoreResult<()> {
    gateway.files.open.remove_this(file);
    match closed {
        Err(error) if error.kind() == ErrorKind::Stale => Ok(()),
        other => other.map(drop),
    }
}

/// Whether nobody writes a file and nobody may go on with it.
pub fn is_nobodys(attributes: &Attributes) -> bool {
    !attributes.open && attributes.holder.is_empty()
}

/// Whether nobody may go on with a closed file. A holder that was silent for as long as leases last loses it.
pub async fn has_no_holder(gateway: &Gateway, attributes: &Attributes) -> Result<bool, Refusal> {
    if is_nobodys(attributes) {
        return Ok(true);
    }
    if silence(gateway, &attributes.holder).await?.is_none_or(|silent| silent <= HARD_LIMIT) {
        return Ok(false);
    }
    recover(gateway, attributes).await.map(|()| true)
}

/// Closes a file whoever writes it, and takes it from its holder.
pub async fn recover(gateway: &Gateway, attributes: &Attributes) -> Result<(), Refusal> {
    if is_nobodys(attributes) {
        return Ok(());
    }
    let closed = match present(gateway, attributes).await {
        Some(file) => take_back(gateway, &file).await,
        None => gateway.client.recover_at(attributes.inode, false, attributes.generation).await.map(drop),
    };
    // `NotFound` may also be of a chunk that is being moved, `Stale` of a file that somebody else took: the store knows.
    if let Err(error) = closed
        && !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale)
    {
        return Err(error.into());
    }
    match gateway.client.stat_inode(attributes.inode).await {
        Ok(now) if !is_nobodys(&now) => {
            let text =
                "the file is still open, or was opened again meanwhile; what is written of it is safe; ask again";
            Err(Refusal::new(RETRIABLE, text))
        }
        now => now.map(drop).map_err(Refusal::from),
    }
}

/// The same, also if the holder opened it through another gateway: then it is taken from there. `block`: the one that its holder takes for
/// the last; none: it has written nothing since it opened the file.
pub async fn held(
    gateway: &Gateway,
    path: &str,
    inode: u64,
    holder: &str,
    block: Option<&ExtendedBlock>,
) -> Result<Arc<OpenFile>, Refusal> {
    let refusal = match leased(gateway, path, inode, holder).await {
        Err(refusal) if refusal.class == LEASE_EXPIRED => refusal,
        other => return other,
    };
    let attributes = if inode == 0 { gateway.client.stat(path).await } else { gateway.client.stat_inode(inode).await };
    match attributes {
        Ok(attributes) if gateway.files.open.get(attributes.inode).is_none() => {
            take_over(gateway, &attributes, (holder, ELSEWHERE), block).await?.ok_or(refusal)
        }
        _ => Err(refusal),
    }
}

/// The same for a call that needs no more than that the holder has the file open: it stays where it is. None: that is another gateway.
pub async fn held_anywhere(
    gateway: &Gateway,
    path: &str,
    inode: u64,
    holder: &str,
) -> Result<Option<Arc<OpenFile>>, Refusal> {
    let refusal = match leased(gateway, path, inode, holder).await {
        Err(refusal) if refusal.class == LEASE_EXPIRED => refusal,
        other => return other.map(Some),
    };
    let attributes = if inode == 0 { gateway.client.stat(path).await } else { gateway.client.stat_inode(inode).await };
    match attributes {
        Ok(attributes) if is_held(&attributes, holder) => Ok(None),
        _ => Err(refusal),
    }
}

/// Whether this holder has a file, through whichever gateway: it is open for him, or was closed so that he can go on with it.
pub fn is_held(attributes: &Attributes, holder: &str) -> bool {
    !attributes.holder.is_empty() && attributes.holder == holder
}

/// The open file of this number, or else of this path, if this holder has it open. Texts are HDFS's: clients look for parts
/// of them.
pub async fn leased(gateway: &Gateway, path: &str, inode: u64, holder: &str) -> Result<Arc<OpenFile>, Refusal> {
    let attributes = if inode == 0 { gateway.client.stat(path).await } else { gateway.client.stat_inode(inode).await };
    let attributes = match attributes {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if let Some(file) = gateway.files.open.get(inode) {
                drop(file.take_away().await);
                gateway.files.open.remove(inode);
            }
            let text = format!("File does not exist: {}", lease_text(gateway, path, inode, holder));
            return Err(Refusal::new(FILE_NOT_FOUND, text));
        }
        other => other?,
    };
    let text = lease_text(gateway, path, attributes.inode, holder);
    if let Some(file) = gateway.files.open.get(attributes.inode)
        && has_ended(&file, &attributes)
    {
        drop(file.take_away().await);
        gateway.files.open.remove_this(&file);
    }
    if attributes.directory {
        return Err(Refusal::new(LEASE_EXPIRED, format!("INode is not a regular file: {text}")));
    }
    match gateway.files.open.get(attributes.inode) {
        Some(file) if *file.holder == *holder => Ok(file),
        Some(file) => {
            let text = format!("Client (={holder}) is not the lease owner (={}: {text}", file.holder);
            Err(Refusal::new(LEASE_EXPIRED, text))
        }
        None => Err(Refusal::new(LEASE_EXPIRED, format!("File is not open for writing: {text}"))),
    }
}

fn lease_text(gateway: &Gateway, path: &str, inode: u64, holder: &str) -> String {
    match gateway.files.open.held(holder) {
        0 => format!("{path} (inode {inode}) Holder {holder} does not have any open files."),
        count => format!("{path} (inode {inode}) [Lease.  Holder: {holder}, pending creates: {count}]"),
    }
}

/// Closes files whose holder was silent for too long, until the gateway is gone.
pub async fn watch(gateway: Weak<Gateway>) {
    let (mut told, mut tell_next) = (Time::ZERO, Time::ZERO);
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(gateway) = gateway.upgrade() else { return };
        let now = gateway.clock.now();
        if now >= tell_next {
            tell_next = now.after(TELL_EVERY);
            if tell(&gateway, told, now).await {
                told = now;
            }
        }
        close_expired(&gateway).await;
    }
}

/// Tells the store which holders were heard of here since it was told last. False: it was not told.
async fn tell(gateway: &Gateway, since: Time, now: Time) -> bool {
    let heard = gateway.files.open.heard_since(since);
    let mut told = true;
    for some in heard.chunks(HOLDERS_TOLD_MAX) {
        let seen = some.iter().map(|(holder, at)| (holder.clone(), now.since(*at))).collect();
        told = told && gateway.client.holders_heard(seen, Vec::new()).await.is_ok();
        if !told {
            // Next time; one that finds no room then renews its lease again itself.
            for (holder, at) in some {
                let _ = gateway.files.open.renew(holder, *at);
            }
        }
    }
    told
}

/// Closes files whose holders no gateway has heard of for too long.
async fn close_expired(gateway: &Gateway) {
    let expired = gateway.files.open.expired(gateway.clock.now());
    for holders in expired.chunks(HOLDERS_TOLD_MAX) {
        let asked: Vec<String> =
            holders.iter().filter(|holder| holder.len() <= HOLDER_MAX).map(|holder| holder.to_string()).collect();
        // While the store cannot be asked nothing can be closed.
        let Ok(silent) = gateway.client.holders_heard(Vec::new(), asked.clone()).await else { return };
        let now = gateway.clock.now();
        let alive = asked.iter().zip(silent).filter(|(_, silent)| *silent <= HARD_LIMIT);
        for (holder, silent) in alive {
            let silent = u64::try_from(silent.as_nanos()).unwrap_or(u64::MAX);
            gateway.files.open.renew(holder, Time::from_nanos(now.as_nanos().saturating_sub(silent)));
        }
    }
    // Those that were heard of elsewhere are not among them any more.
    for holder in gateway.files.open.expired(gateway.clock.now()) {
        for file in gateway.files.open.of_holder(&holder) {
            match take_back(gateway, &file).await {
                Err(error) if error.kind() != ErrorKind::NotFound => (gateway.on_trouble)(format!(
                    "{} was left open by {}, which is silent, and could not be closed: {error}; what is written of it is \
                     safe; `hdfs debug recoverLease` closes it",
                    file.path, file.holder
                )),
                _ => (),
            }
        }
    }
}

/// Closes all files, when the gateway ends: side by side, as each waits for as long as the store does not answer.
pub async fn close_all(gateway: &Arc<Gateway>) {
    let mut closing = JoinSet::new();
    for file in gateway.files.open.after(0, usize::MAX, |_| true) {
        if closing.len() == CLOSES_MAX {
            closing.join_next().await;
        }
        let gateway = gateway.clone();
        closing.spawn(async move { close_at_end(&gateway, &file).await });
    }
    while closing.join_next().await.is_some() {}
}

/// Closes a file, which its holder may go on with at another gateway.
async fn close_at_end(gateway: &Gateway, file: &OpenFile) {
    if let Err(error) = leave(gateway, file).await
        && error.kind() != ErrorKind::NotFound
    {
        (gateway.on_trouble)(format!("{} was left open: {error}; what is written of it is safe", file.path));
    }
}

/// Open files, page by page: the superuser's to see.
pub fn list(gateway: &Gateway, caller: &Caller, ask: ListOpenFiles) -> Result<ListOpenFilesAnswer, Refusal> {
    if !caller.superuser {
        return Err(superuser_only(caller, "listOpenFiles"));
    }
    let after = u64::try_from(ask.after).unwrap_or(0);
    let above = ask.path.unwrap_or_default();
    let above = above.trim_end_matches('/');
    let below =
        |file: &OpenFile| file.path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    // Clients take an empty page for the last: each is full as long as there is more.
    let mut files = gateway.files.open.after(after, LIST_PAGE_MAX + 1, below);
    let more = files.len() > LIST_PAGE_MAX;
    files.truncate(LIST_PAGE_MAX);
    let entry = |file: &Arc<OpenFile>| ListedOpenFile {
        inode: file.inode as i64,
        path: file.path.clone(),
        holder: file.holder.to_string(),
        machine: file.machine.clone(),
    };
    let entries = files.iter().map(entry).collect();
    Ok(ListOpenFilesAnswer { entries, more, types: ask.types })
}

/// The refusal of a writer whose store failed it.
pub fn failed(file: &OpenFile, error: base::error::Error) -> Refusal {
    match error.kind() {
        ErrorKind::Full => no_room(&file.path),
        ErrorKind::Stale | ErrorKind::NotFound => {
            Refusal::new(LEASE_EXPIRED, format!("File is not open for writing: {} ({})", file.path, error.text()))
        }
        _ => error.into(),
    }
}

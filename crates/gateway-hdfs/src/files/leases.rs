//! Leases: who may write a file, for how long, and how it is taken from somebody who is gone.

use super::elsewhere::take_over;
use super::making::no_room;
use super::open::OpenFile;
use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::message::files::{ListOpenFiles, ListOpenFilesAnswer, ListedOpenFile};
use crate::names::superuser_only;
use crate::refusal::{ALREADY_BEING_CREATED, FILE_NOT_FOUND, LEASE_EXPIRED, Refusal};
use base::error::{ErrorKind, Result as StoreResult};
use base::limit::LIST_PAGE_MAX;
use client::Attributes;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::timeout;

/// How often files of silent holders are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A file that does not close in this time, when the gateway ends, is taken from its writer.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// The machine of a client that opened its file through another gateway.
const ELSEWHERE: &str = "another gateway";

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
    match gateway.files.open.get(attributes.inode) {
        Some(file) if *file.holder == *holder => Err(held(&format!("{holder} is already the current lease holder."))),
        Some(file) if gateway.files.open.is_silent(&file.holder, gateway.clock.now()) => {
            take_back(gateway, &file).await.map(drop).map_err(Refusal::from)
        }
        Some(file) => {
            let (owner, from) = (&file.holder, &file.machine);
            Err(held(&format!("this file lease is currently owned by {owner} on {from}")))
        }
        // It was open through a gateway that is gone, or is through something else than a gateway.
        None => match gateway.client.recover(attributes.inode, true).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Busy => Err(held(&match attributes.holder.as_str() {
                "" => "this file lease is currently owned by a program that does not use HDFS's protocol".to_string(),
                owner if owner == holder => format!("{holder} is already the current lease holder."),
                owner => format!("this file lease is currently owned by {owner} on {ELSEWHERE}"),
            })),
            Err(error) => Err(error.into()),
        },
    }
}

/// Closes a file that is open through this gateway, with what is written of it, whoever writes it.
pub async fn take_back(gateway: &Gateway, file: &OpenFile) -> StoreResult<Attributes> {
    // What is under way still arrives, or is refused.
    drop(file.take_away().await);
    let closed = gateway.client.recover(file.inode, false).await;
    gateway.files.open.remove(file.inode);
    closed
}

/// Closes a file whoever writes it.
pub async fn recover(gateway: &Gateway, attributes: &Attributes) -> Result<(), Refusal> {
    if !attributes.open {
        return Ok(());
    }
    let closed = match gateway.files.open.get(attributes.inode) {
        Some(file) => take_back(gateway, &file).await,
        None => gateway.client.recover(attributes.inode, false).await,
    };
    closed.map(drop).map_err(Refusal::from)
}

/// The same, also if the holder opened it through another gateway: then it is taken from there. `untouched`: nothing was written since.
pub async fn held(
    gateway: &Gateway,
    path: &str,
    inode: u64,
    holder: &str,
    untouched: bool,
) -> Result<Arc<OpenFile>, Refusal> {
    let refusal = match leased(gateway, path, inode, holder).await {
        Err(refusal) if refusal.class == LEASE_EXPIRED => refusal,
        other => return other,
    };
    let attributes = if inode == 0 { gateway.client.stat(path).await } else { gateway.client.stat_inode(inode).await };
    match attributes {
        Ok(attributes) if gateway.files.open.get(attributes.inode).is_none() => {
            take_over(gateway, &attributes, (holder, ELSEWHERE), untouched).await?.ok_or(refusal)
        }
        _ => Err(refusal),
    }
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
        && attributes.open
        && attributes.generation != file.attributes.generation
    {
        // Another gateway took it over.
        drop(file.take_away().await);
        gateway.files.open.remove(attributes.inode);
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
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(gateway) = gateway.upgrade() else { return };
        for file in gateway.files.open.expired(gateway.clock.now()) {
            match take_back(&gateway, &file).await {
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

/// Closes all files, when the gateway ends.
pub async fn close_all(gateway: &Gateway) {
    for file in gateway.files.open.after(0, usize::MAX, |_| true) {
        // Closed as its writer would have: the next gateway can tell that writer so.
        let closed = match file.take_away().await {
            Some(writer) => matches!(timeout(CLOSE_WAIT, writer.close()).await, Ok(Ok(_))),
            None => false,
        };
        if !closed
            && let Err(error) = take_back(gateway, &file).await
            && error.kind() != ErrorKind::NotFound
        {
            (gateway.on_trouble)(format!("{} was left open: {error}; what is written of it is safe", file.path));
        }
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

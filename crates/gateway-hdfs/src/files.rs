//! Files that are open for writing, their leases, and files as blocks.

pub mod blocks;
mod elsewhere;
mod leases;
pub mod located;
mod locks;
mod making;
pub mod open;
mod openings;
pub mod readers;
pub mod room;
mod writing;

use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::message::decode;
use crate::message::files::{
    AbandonBlock, Fsync, IsFileClosed, Nothing, RecoverLease, RenewLease, ReportBadBlocks, Truth,
};
use crate::names;
use crate::refusal::Refusal;
use crate::transfer::Incoming;
use bytes::Bytes;
use prost::Message;
use std::sync::Arc;
use std::time::Duration;

pub use elsewhere::opened_elsewhere;
pub use leases::{close_all, watch};

/// Blocks of one report that are compared: clients report those of one read.
const REPORTED_MAX: usize = 16;

/// What is known of open files and their blocks.
#[derive(Default)]
pub struct Files {
    /// Files that were read lately.
    pub readers: readers::Readers,
    /// Files that are open for writing.
    pub open: open::OpenFiles,
    /// Memory for bytes that were received and are not written yet.
    pub memory: Arc<Incoming>,
    /// Devices that had no room lately.
    pub room: room::Room,
    opening: locks::Locks,
    /// Calls that ask the store to open a file, until that is in the table.
    openings: openings::Openings,
}

impl Files {
    /// Nobody else opens this path for writing until what is answered is dropped: a file that the store says is open and that is
    /// not open here belongs to somebody who is gone.
    async fn opening(&self, path: &str) -> locks::Held<'_> {
        // As the store has it: clients may write a path in several ways.
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        self.opening.lock(&names.join("/")).await
    }
}

/// Does a call if it is one of this room's: the encoded answer. `None`: it is not.
pub async fn call(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    method: &str,
    request: Bytes,
) -> Option<Result<Vec<u8>, Refusal>> {
    Some(match method {
        "create" => match decode(request) {
            Ok(ask) => encoded(making::create(gateway, caller, ask).await),
            Err(refusal) => Err(refusal),
        },
        "append" => match decode(request) {
            Ok(ask) => encoded(making::append(gateway, caller, ask).await),
            Err(refusal) => Err(refusal),
        },
        "addBlock" => match decode(request) {
            Ok(ask) => encoded(writing::add_block(gateway, ask).await),
            Err(refusal) => Err(refusal),
        },
        "abandonBlock" => match decode::<AbandonBlock>(request) {
            Ok(ask) => encoded(writing::abandon_block(gateway, ask).await.map(|()| Nothing {})),
            Err(refusal) => Err(refusal),
        },
        "complete" => match decode(request) {
            Ok(ask) => encoded(writing::complete(gateway, ask).await.map(|result| Truth { result })),
            Err(refusal) => Err(refusal),
        },
        "getAdditionalDatanode" => match decode(request) {
            Ok(ask) => encoded(writing::additional_datanode(gateway, caller, ask).await),
            Err(refusal) => Err(refusal),
        },
        "updateBlockForPipeline" => match decode(request) {
            Ok(ask) => encoded(writing::update_block(gateway, ask).await),
            Err(refusal) => Err(refusal),
        },
        "updatePipeline" => match decode(request) {
            Ok(ask) => encoded(writing::update_pipeline(gateway, ask).await.map(|()| Nothing {})),
            Err(refusal) => Err(refusal),
        },
        "listOpenFiles" => decode(request).and_then(|ask| encoded(leases::list(gateway, caller, ask))),
        _ => return about_leases(gateway, caller, method, request).await,
    })
}

async fn about_leases(
    gateway: &Gateway,
    caller: &Caller,
    method: &str,
    request: Bytes,
) -> Option<Result<Vec<u8>, Refusal>> {
    Some(match method {
        "fsync" => match decode::<Fsync>(request) {
            // What was acknowledged is visible and its length needs no record: the store knows it.
            Ok(ask) => {
                let file = leases::held_anywhere(gateway, &ask.path, ask.inode.unwrap_or(0), &ask.holder).await;
                encoded(file.map(|_| Nothing {}))
            }
            Err(refusal) => Err(refusal),
        },
        "renewLease" => match decode::<RenewLease>(request) {
            Ok(ask) => encoded(renew_lease(gateway, ask.holder).await.map(|()| Nothing {})),
            Err(refusal) => Err(refusal),
        },
        "recoverLease" => match decode::<RecoverLease>(request) {
            Ok(ask) => encoded(recover_lease(gateway, caller, &ask.path).await.map(|()| Truth { result: true })),
            Err(refusal) => Err(refusal),
        },
        "isFileClosed" => match decode::<IsFileClosed>(request) {
            Ok(ask) => encoded(is_file_closed(gateway, caller, &ask.path).await.map(|result| Truth { result })),
            Err(refusal) => Err(refusal),
        },
        "reportBadBlocks" => match decode::<ReportBadBlocks>(request) {
            Ok(ask) => {
                for reported in ask.blocks.iter().take(REPORTED_MAX) {
                    crate::transfer::suspect(gateway, &reported.block).await;
                }
                encoded(Ok(Nothing {}))
            }
            Err(refusal) => Err(refusal),
        },
        _ => return None,
    })
}

async fn renew_lease(gateway: &Gateway, holder: String) -> Result<(), Refusal> {
    making::check_holder(&holder)?;
    if !gateway.files.open.renew(&holder, gateway.clock.now()) {
        // More than can be noted were heard of, or invented, since the store was told last: of this one it is told now.
        gateway.client.holders_heard(vec![(holder, Duration::ZERO)], Vec::new()).await?;
    }
    Ok(())
}

/// Whether a file is closed for good: who hears so may count on that nobody goes on with it.
async fn is_file_closed(gateway: &Gateway, caller: &Caller, path: &str) -> Result<bool, Refusal> {
    let (_, found) = names::file_for(gateway, caller, path, 0).await?;
    Ok(!found.open && leases::has_no_holder(gateway, &found).await?)
}

async fn recover_lease(gateway: &Gateway, caller: &Caller, path: &str) -> Result<(), Refusal> {
    // It is closed only as it was found, so nobody has to wait for that while a device is away.
    let (_, found) = names::file_for(gateway, caller, path, 0).await?;
    if leases::is_nobodys(&found) {
        return Ok(());
    }
    names::file_for(gateway, caller, path, names::WRITE).await?;
    leases::recover(gateway, &found).await
}

fn encoded<M: Message>(answer: Result<M, Refusal>) -> Result<Vec<u8>, Refusal> {
    answer.map(|answer| answer.encode_to_vec())
}

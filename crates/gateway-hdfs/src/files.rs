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
pub mod table;
mod writing;

use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::message::files::{
    AbandonBlock, AddBlock, BlockAnswer, Complete, Fsync, IsFileClosed, ListOpenFiles, ListOpenFilesAnswer,
    RecoverLease, RenewLease, ReportBadBlocks, UpdateBlockForPipeline, UpdatePipeline,
};
use crate::names;
use crate::refusal::Refusal;
use std::time::Duration;

pub use elsewhere::{appended_elsewhere, created_elsewhere};
pub use leases::{close_all, watch};
pub use making::{append, create};
pub use writing::additional_datanode;

/// Blocks of one report that are compared: clients report those of one read.
const REPORTED_MAX: usize = 16;

/// Adds a block to a file.
pub async fn add_block(gateway: &Gateway, _: &Caller, ask: AddBlock) -> Result<BlockAnswer, Refusal> {
    writing::add_block(gateway, ask).await
}

/// Gives a block back.
pub async fn abandon_block(gateway: &Gateway, _: &Caller, ask: AbandonBlock) -> Result<(), Refusal> {
    writing::abandon_block(gateway, ask).await
}

/// Ends a file: whether it is ended.
pub async fn complete(gateway: &Gateway, _: &Caller, ask: Complete) -> Result<bool, Refusal> {
    writing::complete(gateway, ask).await
}

/// Gives a block a new generation stamp.
pub async fn update_block(gateway: &Gateway, _: &Caller, ask: UpdateBlockForPipeline) -> Result<BlockAnswer, Refusal> {
    writing::update_block(gateway, ask).await
}

/// Goes on with a block under its new generation stamp.
pub async fn update_pipeline(gateway: &Gateway, _: &Caller, ask: UpdatePipeline) -> Result<(), Refusal> {
    writing::update_pipeline(gateway, ask).await
}

/// Which files are open.
pub async fn list(gateway: &Gateway, caller: &Caller, ask: ListOpenFiles) -> Result<ListOpenFilesAnswer, Refusal> {
    leases::list(gateway, caller, ask)
}

/// What was acknowledged is visible and its length needs no record: the store knows it.
pub async fn fsync(gateway: &Gateway, _: &Caller, ask: Fsync) -> Result<(), Refusal> {
    leases::held_anywhere(gateway, &ask.path, ask.inode.unwrap_or(0), &ask.holder).await.map(|_| ())
}

/// Looks at blocks that a reader found damaged.
pub async fn report_bad_blocks(gateway: &Gateway, _: &Caller, ask: ReportBadBlocks) -> Result<(), Refusal> {
    for reported in ask.blocks.iter().take(REPORTED_MAX) {
        crate::transfer::suspect(gateway, &reported.block).await;
    }
    Ok(())
}

/// Notes that a holder of leases lives.
pub async fn renew_lease(gateway: &Gateway, _: &Caller, RenewLease { holder }: RenewLease) -> Result<(), Refusal> {
    making::check_holder(&holder)?;
    if !gateway.files.open.renew(&holder, gateway.clock.now()) {
        // More than can be noted were heard of, or invented, since the store was told last: of this one it is told now.
        gateway.client.holders_heard(vec![(holder, Duration::ZERO)], Vec::new()).await?;
    }
    Ok(())
}

/// Whether a file is closed for good: who hears so may count on that nobody goes on with it.
pub async fn is_file_closed(gateway: &Gateway, caller: &Caller, ask: IsFileClosed) -> Result<bool, Refusal> {
    let (_, found) = names::file_for(gateway, caller, &ask.path, 0).await?;
    Ok(!found.open && leases::has_no_holder(gateway, &found).await?)
}

/// Takes a file from its writer and closes it: true, or refused.
pub async fn recover_lease(gateway: &Gateway, caller: &Caller, ask: RecoverLease) -> Result<bool, Refusal> {
    // It is closed only as it was found, so nobody has to wait for that while a device is away.
    let (_, found) = names::file_for(gateway, caller, &ask.path, 0).await?;
    if leases::is_nobodys(&found) {
        return Ok(true);
    }
    // What is taken is what was judged: the name may be another file's by now.
    let (_, found) = names::file_for(gateway, caller, &ask.path, base::permission::WRITE).await?;
    if leases::is_nobodys(&found) {
        return Ok(true);
    }
    leases::recover(gateway, &found).await.map(|()| true)
}

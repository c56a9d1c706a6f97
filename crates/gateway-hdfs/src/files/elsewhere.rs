//! Files that a client has open through another gateway and goes on with here, because that gateway is gone or out of reach: they are
//! taken from there with what is written of them.

use super::blocks::{began_at, is_of_earlier};
use super::leases::{has_ended, is_held, leave};
use super::located::visible_length;
use super::making::{appended, created, opened};
use super::open::{OpenFile, Opener};
use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::hdfs_attributes::HdfsAttributes;
use crate::message::files::{Append, AppendAnswer, Create, CreateAnswer};
use crate::message::hdfs::ExtendedBlock;
use crate::refusal::{FILE_NOT_FOUND, LEASE_EXPIRED, RETRIABLE, Refusal};
use base::limit::HOLDER_MAX;
use client::{Attributes, GoesOn, Looked, Seen};
use std::sync::Arc;

/// The answer to a create that another gateway did, with this file: it is open here from now on.
pub async fn created_elsewhere(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    ask: &Create,
    inode: u64,
) -> Result<CreateAnswer, Refusal> {
    let file = taken(gateway, inode, (&ask.holder, caller.machine())).await?;
    Ok(created(gateway, &file, &HdfsAttributes::read(&file.attributes.note)))
}

/// The same of an append.
pub async fn appended_elsewhere(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    ask: &Append,
    inode: u64,
) -> Result<AppendAnswer, Refusal> {
    let file = taken(gateway, inode, (&ask.holder, caller.machine())).await?;
    appended(gateway, &file, ask.flags).await
}

/// Its client did not hear that it is open, so it knows of no block.
async fn taken(gateway: &Gateway, inode: u64, who: (&str, &str)) -> Result<Arc<OpenFile>, Refusal> {
    let attributes = gateway.client.stat_inode(inode).await?;
    take_over(gateway, &attributes, who, None).await?.ok_or_else(|| {
        let text = format!("File is not open for writing: (inode {}) Holder {}", attributes.inode, who.0);
        Refusal::new(LEASE_EXPIRED, text)
    })
}

/// A file that is open through another gateway for the same holder, on this machine, is open here from now on, with everything that is
/// written of it. `block`: the one that its holder takes for the last, which may have no byte yet; none: it has written nothing since it
/// opened the file. `None`: nobody has it open, or somebody else, or the call came late.
pub async fn take_over(
    gateway: &Gateway,
    attributes: &Attributes,
    (holder, machine): (&str, &str),
    block: Option<&ExtendedBlock>,
) -> Result<Option<Arc<OpenFile>>, Refusal> {
    let taken = taken_over(gateway, attributes, (holder, machine), block).await;
    let is_lost = match &taken {
        Ok(taken) => taken.is_none(),
        Err(refusal) => [FILE_NOT_FOUND, LEASE_EXPIRED].contains(&refusal.class),
    };
    if !is_lost {
        return taken;
    }
    // It may have been ended, or taken over, by somebody else for the same holder meanwhile: then he has it still. And what is not found may
    // be a chunk that is being moved, or the path while it is renamed.
    let is_not_found = matches!(&taken, Err(refusal) if refusal.class == FILE_NOT_FOUND);
    match gateway.client.stat_inode(attributes.inode).await {
        Ok(now) if is_not_found || now.generation != attributes.generation && is_held(&now, holder) => {
            let text = format!("{holder} has file number {} still, which is being taken over; ask again", now.inode);
            Err(Refusal::new(RETRIABLE, taken.err().map_or(text, |refusal| refusal.text)))
        }
        _ => taken,
    }
}

async fn taken_over(
    gateway: &Gateway,
    attributes: &Attributes,
    (holder, machine): (&str, &str),
    block: Option<&ExtendedBlock>,
) -> Result<Option<Arc<OpenFile>>, Refusal> {
    let inode = attributes.inode;
    if !is_held(attributes, holder) {
        return Ok(None);
    }
    let path = gateway.client.path_of(inode).await?;
    let _alone = gateway.files.opening(&path).await;
    if let Some(file) = gateway.files.open.get(inode) {
        // Another call of the same client was faster.
        if !has_ended(&file, attributes) {
            return Ok(Some(file).filter(|file| *file.holder == *holder));
        }
        // It was open here before another gateway took it over: how long it is, and who writes it, is no more what is known here.
        drop(file.take_away().await);
        gateway.files.open.remove_this(&file);
    }
    // Somebody who knows of no block asks, and bytes were written since the file was opened; or of a block as it was before that: the call
    // was on its way while its client went on at another gateway, and nobody waits for the answer. The stream there stays as it is. Asked
    // before anything is done: while the device is away its client can ask again, and the file stays its own meanwhile.
    if block.is_some_and(|block| is_of_earlier(block, attributes)) {
        return Ok(None);
    }
    // Of several replicas one may stay away: only who knows of no block has to know whether there are bytes.
    let enough = if block.is_none() { began_at(attributes).saturating_add(1) } else { 0 };
    let visible = visible_length(gateway, attributes, enough).await?;
    if block.is_none() && visible > began_at(attributes) {
        return Ok(None);
    }
    // Its client may have closed it since it was looked up: nobody would close it again.
    let now = gateway.client.stat_inode(inode).await?;
    if !is_held(&now, holder) || now.generation != attributes.generation {
        return Ok(None);
    }
    // The file is gone on with by its number: it may be renamed until then. What was looked up is for a node that knows paths alone, at
    // which another file may have the name by now.
    let seen = Seen { inode, version: None };
    let store = gateway.client.relying_on(Looked { seen: vec![seen], ..Looked::default() });
    // It is closed with what its device has, which nobody adds to from then on, and goes on behind that. Until it does its holder has it all
    // the same: should this gateway not come to open it, he can go on at any.
    let closed = gateway.client.recover_for_holder(inode, attributes.generation).await?;
    // The fence raises the generation by one. Who opened it after that may have written to it: it is not gone on with behind that.
    if closed.open || closed.generation > attributes.generation.saturating_add(1) {
        return Ok(None);
    }
    let file = {
        let _opening = gateway.files.openings.begin();
        // Of one that an older program opened nobody knows where: nothing that is said of it counts as said of an earlier opening.
        let (began_length, began_generation) = (began_at(attributes), attributes.began_generation.max(1));
        let goes_on = GoesOn { inode, generation: closed.generation, began_length, began_generation };
        let writer = store.append_as(&path, holder, Some(goes_on)).await?;
        if writer.is_lost() {
            return Ok(None);
        }
        let note = HdfsAttributes::read(&writer.attributes().note);
        // Who opened it there is not known here; the owner is the next best guess.
        let user = attributes.owner.as_str().into();
        opened(gateway, writer, Opener { holder, user: &user, machine }, &path, &note)
    };
    let kept = (attributes.block_base != 0).then_some((attributes.block_base, attributes.block_number));
    let begun = block.is_some() || closed.length > began_at(attributes);
    let gone_on = file.state.lock().await.go_on(&file, (kept, begun), block).await;
    if let Err(error) = gone_on {
        leave(gateway, &file).await?;
        return Err(error.into());
    }
    Ok(Some(file))
}

/// The holder of a file as the store keeps it: one with a name that is too long cannot go on elsewhere.
pub fn held_by(holder: &str) -> String {
    if holder.len() <= HOLDER_MAX { holder.to_string() } else { String::new() }
}

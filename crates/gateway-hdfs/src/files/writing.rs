//! Writing block by block: the next block, the end of the file, and going on after a failure.

use super::blocks;
use super::blocks::last_stamp;
use super::elsewhere::take_over;
use super::leases::{ELSEWHERE, failed, has_ended, held, held_anywhere, is_held, leased};
use super::located as shown;
use super::making::{no_room, stamp_of};
use super::open::{Block, OpenFile, State, reserve_block};
use crate::caller::Caller;
use crate::cluster::this_datanode;
use crate::gateway::Gateway;
use crate::hdfs_attributes::HdfsAttributes;
use crate::message::files::{
    AbandonBlock, AddBlock, BlockAnswer, Complete, GetAdditionalDatanode, UpdateBlockForPipeline, UpdatePipeline,
};
use crate::message::hdfs::{ExtendedBlock, LocatedBlock, STORAGE_DISK};
use crate::refusal::{FILE_NOT_FOUND, LEASE_EXPIRED, Refusal};
use base::error::{Error, ErrorKind};
use bytes::Bytes;
use client::Attributes;
use prost::Message;
use std::sync::Arc;

/// The next block of a file.
pub async fn add_block(gateway: &Gateway, ask: AddBlock) -> Result<BlockAnswer, Refusal> {
    let AddBlock { path, holder, previous, inode } = ask;
    let file = held(gateway, &path, inode.unwrap_or(0), &holder, previous.as_ref()).await?;
    let mut state = file.state.lock().await;
    let Some(writer) = &state.writer else { return Err(not_open(&file)) };
    let position = writer.position();
    let ended = file.written.borrow().failed.clone();
    if let Some(error) = ended {
        return Err(failed(&file, error));
    }
    check_stamp(&file, previous.as_ref())?;
    let same = |block: Option<Block>| block.map(|block| block.id) == previous.as_ref().map(|block| block.id);
    let block = match state.present {
        // The answer to the same question was lost: nothing was written yet, so it is the same block.
        Some(present) if present.base == position && same(state.before) && !same(Some(present)) => present,
        present if same(present) => {
            if let (Some(present), Some(length)) = (present, previous.as_ref().and_then(|block| block.length)) {
                check_length(&file, present, length, position)?;
            }
            if gateway.files.room.is_gone(&gateway.client, &file, gateway.clock.now()).await {
                return Err(no_room(&path));
            }
            reserve_block(&state, position, file.block_size).await?;
            let next = state.begin_block(&file, position).await?;
            (state.before, state.present) = (present, Some(next));
            next
        }
        present => {
            let name = |block: Option<String>| block.unwrap_or_else(|| "null".to_string());
            let (passed, last) = (previous.as_ref().map(shown::show), present.map(|block| format!("blk_{}", block.id)));
            return Err(Refusal::io(format!(
                "Cannot allocate block in {path}: passed 'previous' block {} does not match actual last block in file {}",
                name(passed),
                name(last)
            )));
        }
    };
    Ok(BlockAnswer { block: shown::block_at(gateway, block, state.stamp, 0) })
}

/// Refuses what is said of a block as it was before the file was opened: its holder has gone on since.
fn check_stamp(file: &OpenFile, block: Option<&ExtendedBlock>) -> Result<(), Refusal> {
    match block.filter(|block| blocks::is_of_earlier(block, &file.attributes)) {
        Some(block) => {
            let text = format!("{} of {} has been opened again since; nothing was done", shown::show(block), file.path);
            Err(Refusal::io(text))
        }
        None => Ok(()),
    }
}

/// Whether what the client wrote to a block is there.
fn check_length(file: &OpenFile, block: Block, length: u64, position: u64) -> Result<(), Refusal> {
    let have = position.saturating_sub(block.base);
    if length == have {
        return Ok(());
    }
    Err(Refusal::io(format!(
        "block blk_{} of {} holds {have} bytes, not the {length} that its writer says; what was acknowledged is safe; close \
         the file and look at it",
        block.id, file.path
    )))
}

/// Gives a block back. It must be empty: what is in a file stays there.
pub async fn abandon_block(gateway: &Gateway, ask: AbandonBlock) -> Result<(), Refusal> {
    let AbandonBlock { block, path, holder, inode } = ask;
    let Some(file) = held_anywhere(gateway, &path, inode.unwrap_or(0), &holder).await? else {
        // Open through another gateway: the next block that is asked for takes the place of one without bytes.
        return Ok(());
    };
    let mut state = file.state.lock().await;
    match state.present {
        // Given back before, and its number given again: this comes late.
        Some(present) if present.id == block.id && block.generation_stamp < state.stamp => Ok(()),
        Some(present) if present.id == block.id && present.base == state.position() => {
            state.present = state.before.take();
            // The next block may have its number. Whoever began to write it does so no more.
            if state.granted < last_stamp(file.attributes.generation) {
                state.granted += 1;
            }
            let stamp = state.granted;
            state.raise(stamp);
            Ok(())
        }
        Some(present) if present.id == block.id => {
            Err(Refusal::io(format!("{} of {path} holds bytes already and is not abandoned", shown::show(&block))))
        }
        // Abandoned before, or never the file's.
        _ => Ok(()),
    }
}

/// Ends writing: whether the file is closed.
pub async fn complete(gateway: &Gateway, ask: Complete) -> Result<bool, Refusal> {
    let here = written_here(gateway, &ask);
    match (end(gateway, &ask, here.clone()).await, here) {
        // Refused, or fewer bytes have come here than its client has written.
        (ended @ (Err(_) | Ok(false)), Some(file)) => match gateway.client.stat_inode(file.inode).await {
            // Its client went on with it at another gateway, and is back.
            Ok(now) if now.generation > file.attributes.generation && is_held(&now, &ask.holder) => {
                drop(file.take_away().await);
                gateway.files.open.remove_this(&file);
                end(gateway, &ask, None).await
            }
            // What was opened by this path is gone, and no longer in the table: another file has the path, if one does.
            Err(error) if error.kind() == ErrorKind::NotFound && ask.inode.unwrap_or(0) == 0 => {
                end(gateway, &ask, None).await
            }
            _ => ended,
        },
        (done, _) => done,
    }
}

/// The file that a client wants to end, if it is open here. Old clients do not say its number; then it is the one that they opened by this path.
fn written_here(gateway: &Gateway, ask: &Complete) -> Option<Arc<OpenFile>> {
    match ask.inode.unwrap_or(0) {
        0 => gateway.files.open.opened_by(&ask.holder, &ask.path),
        inode => gateway.files.open.get(inode),
    }
}

/// Ends writing of the file that is open here, if this is the holder's, or else of the one that is found by number or path.
async fn end(gateway: &Gateway, ask: &Complete, here: Option<Arc<OpenFile>>) -> Result<bool, Refusal> {
    let Complete { path, holder, last, inode } = ask;
    let inode = inode.unwrap_or(0);
    // The close itself finds out whether the file is still there.
    let file = match here.filter(|file| *file.holder == **holder) {
        Some(file) => file,
        None => match held(gateway, path, inode, holder, last.as_ref()).await {
            Err(refusal) if refusal.class == LEASE_EXPIRED => {
                return if is_closed(gateway, path, inode, last.as_ref()).await { Ok(true) } else { Err(refusal) };
            }
            other => other?,
        },
    };
    let mut state = file.state.lock().await;
    let present = state.present;
    check_stamp(&file, last.as_ref())?;
    if let Some(last) = last {
        let Some(present) = present.filter(|present| present.id == last.id) else {
            // It was closed while this call waited for its turn.
            if gateway.files.open.was_closed(file.inode, Some(last.id)) {
                return Ok(true);
            }
            return Err(Refusal::io(format!("{} is not the last block of {path}", shown::show(last))));
        };
        if let Some(length) = last.length
            && state.writer.is_some()
        {
            // Bytes may be on their way still: the client asks again.
            if state.position().saturating_sub(present.base) < length {
                return Ok(false);
            }
        }
    }
    // Its holder knows of no block, and has written since: this was asked before that, and comes late.
    if last.is_none() && state.writer.is_some() && state.position() > blocks::began_at(&file.attributes) {
        return Ok(false);
    }
    let closed = match state.writer.take() {
        Some(writer) => writer.close().await.map(drop),
        None if gateway.files.open.was_closed(file.inode, present.map(|present| present.id)) => return Ok(true),
        // An earlier try failed halfway: the file ends with what its device has.
        None => match gateway.client.recover_at(file.inode, false, file.attributes.generation).await {
            // Another gateway has taken it over since, or was about to.
            Ok(now) if is_held(&now, holder) => Err(Error::new(ErrorKind::Stale, "another gateway has it")),
            Ok(now) if now.length < whole(present, last.as_ref()) => {
                gateway.files.open.remove(file.inode);
                let text = format!(
                    "{path} is closed with {} of {} bytes: its device has lost the others, which were not synced; write them again",
                    now.length,
                    whole(present, last.as_ref())
                );
                return Err(Refusal::io(text));
            }
            closed => closed.map(drop),
        },
    };
    match closed {
        Ok(()) => {
            gateway.files.open.closed(file.inode, present.map(|present| present.id));
            Ok(true)
        }
        Err(error) if matches!(error.kind(), ErrorKind::Stale | ErrorKind::NotFound) => {
            drop(state);
            // It was deleted, or taken away: say which, if it can be said.
            leased(gateway, path, file.inode, holder).await?;
            gateway.files.open.remove(file.inode);
            Err(failed(&file, error))
        }
        Err(error) => Err(failed(&file, error)),
    }
}

/// Bytes that a file has, as its writer says of the last block.
fn whole(present: Option<Block>, last: Option<&ExtendedBlock>) -> u64 {
    let length = last.and_then(|last| last.length).unwrap_or(0);
    present.map_or(0, |present| present.base.saturating_add(length))
}

/// Whether a file that nobody writes ends with this block: then a client asks again because it did not hear the answer.
async fn is_closed(gateway: &Gateway, path: &str, inode: u64, last: Option<&ExtendedBlock>) -> bool {
    let found = if inode == 0 { gateway.client.stat(path).await } else { gateway.client.stat_inode(inode).await };
    let Ok(found) = found else { return false };
    if found.open || found.directory {
        return false;
    }
    if gateway.files.open.was_closed(found.inode, last.map(|block| block.id)) {
        return true;
    }
    match last {
        None => found.length == 0,
        // The gateway that closed it is gone.
        Some(block) => {
            let size = HdfsAttributes::read(&found.note).block_size();
            let Some(place) = blocks::place(block.id).filter(|place| place.inode == found.inode) else { return false };
            let length = match place.base {
                // Where it began is not kept any more; its stamp says that it was written last.
                blocks::Base::Irregular(_) => block.length.filter(|said| *said <= found.length),
                blocks::Base::Regular(_) => place.byte(&found, size).and_then(|base| found.length.checked_sub(base)),
            };
            length.is_some_and(|length| block.length.is_none_or(|said| said == length))
                && block.generation_stamp >= stamp_of(&found)
        }
    }
}

/// The file that a block is being written to by this holder: as it is open here, or what is known of it if that is at another gateway.
enum Held {
    Here(Arc<OpenFile>),
    Elsewhere(Box<Attributes>),
}

async fn file_of(gateway: &Gateway, block: &ExtendedBlock, holder: &str) -> Result<Held, Refusal> {
    let none = || Refusal::io(format!("{} does not exist or is not under Construction", shown::show(block)));
    let mismatch = || {
        let text = format!("Lease mismatch: {} is accessed by a non lease holder {holder}", shown::show(block));
        Refusal::new(LEASE_EXPIRED, text)
    };
    let blocks::NamedBlock { inode, .. } = blocks::place(block.id).ok_or_else(none)?;
    let open = gateway.files.open.get(inode);
    if open.as_ref().is_some_and(|file| *file.holder != *holder) {
        return Err(mismatch());
    }
    match (gateway.client.stat_inode(inode).await, open) {
        (Err(error), Some(file)) if error.kind() == ErrorKind::NotFound => {
            drop(file.take_away().await);
            gateway.files.open.remove(inode);
            Err(Refusal::new(FILE_NOT_FOUND, format!("File does not exist: {} (inode {inode})", file.path)))
        }
        (Err(error), None) if error.kind() == ErrorKind::NotFound => Err(none()),
        (Err(error), _) => Err(error.into()),
        (Ok(attributes), Some(file)) if !has_ended(&file, &attributes) => Ok(Held::Here(file)),
        (Ok(attributes), open) => {
            if let Some(outdated) = open {
                drop(outdated.take_away().await);
                gateway.files.open.remove_this(&outdated);
            }
            match () {
                () if is_held(&attributes, holder) => Ok(Held::Elsewhere(Box::new(attributes))),
                () if attributes.open => Err(mismatch()),
                () => Err(none()),
            }
        }
    }
}

/// A new generation stamp for a block: to append to it, or to go on after its connection broke.
pub async fn update_block(gateway: &Gateway, ask: UpdateBlockForPipeline) -> Result<BlockAnswer, Refusal> {
    let file = match file_of(gateway, &ask.block, &ask.holder).await? {
        Held::Here(file) => file,
        // Its stream is broken, so it goes on here.
        Held::Elsewhere(attributes) => {
            let who = (ask.holder.as_str(), ELSEWHERE);
            let taken = take_over(gateway, &attributes, who, Some(&ask.block)).await?;
            taken
                .ok_or_else(|| Refusal::io(format!("{} is not under Construction any more", shown::show(&ask.block))))?
        }
    };
    let mut state = file.state.lock().await;
    let present = present(&file, &state, &ask.block)?;
    if state.granted >= last_stamp(file.attributes.generation) {
        let text =
            format!("{} of {} was recovered too often; close the file and append", shown::show(&ask.block), file.path);
        return Err(Refusal::io(text));
    }
    state.granted += 1;
    let length = state.position().saturating_sub(present.base);
    Ok(BlockAnswer { block: shown::block_at(gateway, present, state.granted, length) })
}

/// The block goes on under its new generation stamp; whoever writes under an older one does so no more.
pub async fn update_pipeline(gateway: &Gateway, ask: UpdatePipeline) -> Result<(), Refusal> {
    let Held::Here(file) = file_of(gateway, &ask.old, &ask.holder).await? else {
        // Its new connection is at the gateway that gave the stamp, which raised it when that connection began. If that one is gone since, so
        // is the connection: then the client asks for the next stamp.
        return Ok(());
    };
    let mut state = file.state.lock().await;
    present(&file, &state, &ask.old)?;
    // Why the store took no more: the first call after that whose refusal the client hands on.
    let ended = file.written.borrow().failed.clone();
    if let Some(error) = ended {
        return Err(failed(&file, error));
    }
    let stamp = ask.new.generation_stamp;
    if ask.new.id != ask.old.id || stamp < state.stamp || stamp > state.granted {
        let (new, old) = (shown::show(&ask.new), shown::show(&ask.old));
        return Err(Refusal::io(format!("Update {old} (size=0) to an older state: {new} (size=0)")));
    }
    state.raise(stamp);
    Ok(())
}

fn present(file: &OpenFile, state: &State, block: &ExtendedBlock) -> Result<Block, Refusal> {
    match state.present {
        Some(present) if present.id == block.id && state.writer.is_some() => Ok(present),
        _ => Err(Refusal::io(format!("{} is not the last block of {}", shown::show(block), file.path))),
    }
}

/// The block that a holder asks another server for.
async fn block_of(gateway: &Gateway, ask: &GetAdditionalDatanode) -> Result<LocatedBlock, Refusal> {
    Ok(match held_anywhere(gateway, &ask.path, ask.inode.unwrap_or(0), &ask.holder).await? {
        Some(file) => {
            let state = file.state.lock().await;
            let present = present(&file, &state, &ask.block)?;
            shown::block_at(gateway, present, state.stamp, 0)
        }
        // Open through another gateway, which goes on with it until this one is asked for the block's next stamp.
        None => shown::as_asked(gateway, ask.block.clone()),
    })
}

/// Another server to write a block to: there is none but this one.
pub async fn additional_datanode(
    gateway: &Gateway,
    caller: &Caller,
    ask: GetAdditionalDatanode,
) -> Result<BlockAnswer, Refusal> {
    let here = this_datanode(gateway);
    // The file may be about to be closed, which takes as long as its device does; meanwhile others make their answers.
    let block = caller.share.aside(block_of(gateway, &ask)).await?;
    let mut locations = ask.existing;
    let mut storage_ids = ask.existing_storages;
    storage_ids.resize(locations.len(), String::new());
    if !locations.iter().any(|location| location.id == here.id) {
        locations.push(here);
        storage_ids.extend(block.storage_ids.first().cloned());
    }
    let locations: Vec<Bytes> = locations.iter().map(|location| location.encode_to_vec().into()).collect();
    let count = locations.len();
    let (cached, storage_types) = (vec![false; count], vec![STORAGE_DISK; count]);
    Ok(BlockAnswer { block: LocatedBlock { locations, storage_ids, cached, storage_types, ..block } })
}

fn not_open(file: &OpenFile) -> Refusal {
    let text = format!(
        "File is not open for writing: {} (inode {}) Holder {} does not have any open files.",
        file.path, file.inode, file.holder
    );
    Refusal::new(LEASE_EXPIRED, text)
}

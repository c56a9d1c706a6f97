//! Writing block by block: the next block, the end of the file, and going on after a failure.

use super::leases::{failed, held, leased};
use super::making::{no_room, stamp_of};
use super::open::{Block, OpenFile, State, located, reserve_block};
use super::{blocks, located as shown};
use crate::cluster::this_datanode;
use crate::gateway::Gateway;
use crate::message::files::{
    AbandonBlock, AddBlock, BlockAnswer, Complete, GetAdditionalDatanode, UpdateBlockForPipeline, UpdatePipeline,
};
use crate::message::hdfs::{ExtendedBlock, LocatedBlock, STORAGE_DISK};
use crate::note::Note;
use crate::refusal::{FILE_NOT_FOUND, LEASE_EXPIRED, Refusal};
use base::error::ErrorKind;
use std::sync::Arc;

/// The next block of a file.
pub async fn add_block(gateway: &Gateway, ask: AddBlock) -> Result<BlockAnswer, Refusal> {
    let AddBlock { path, holder, previous, inode } = ask;
    let file = held(gateway, &path, inode.unwrap_or(0), &holder, previous.is_none()).await?;
    let mut state = file.state.lock().await;
    let Some(writer) = &state.writer else { return Err(not_open(&file)) };
    let position = writer.position();
    let ended = file.written.borrow().failed.clone();
    if let Some(error) = ended {
        return Err(failed(&file, error));
    }
    let same = |block: Option<Block>| block.map(|block| block.id) == previous.as_ref().map(|block| block.id);
    let block = match state.present {
        // The answer to the same question was lost: nothing was written yet, so it is the same block.
        Some(present) if present.base == position && same(state.before) && !same(Some(present)) => present,
        present if same(present) => {
            if let (Some(present), Some(length)) = (present, previous.as_ref().and_then(|block| block.length)) {
                check_length(&file, present, length, position)?;
            }
            if gateway.files.room.is_gone(gateway, &file).await {
                return Err(no_room(&path));
            }
            reserve_block(&state, position, file.block_size).await?;
            let id = gateway.files.blocks.number(file.inode, position, file.block_size, gateway.clock.now());
            let next = Block { id, base: position };
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
    Ok(BlockAnswer { block: located(gateway, &file, block, state.stamp, 0) })
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
    let file = held(gateway, &path, inode.unwrap_or(0), &holder, false).await?;
    let mut state = file.state.lock().await;
    match state.present {
        Some(present) if present.id == block.id && present.base == state.position() => {
            state.present = state.before.take();
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
    let Complete { path, holder, last, inode } = ask;
    let inode = inode.unwrap_or(0);
    // The close itself finds out whether the file is still there.
    let known = gateway.files.open.get(inode).filter(|file| *file.holder == *holder);
    let file = match known {
        Some(file) => file,
        None => match held(gateway, &path, inode, &holder, last.is_none()).await {
            Err(refusal) if refusal.class == LEASE_EXPIRED => {
                return if is_closed(gateway, &path, inode, last.as_ref()).await { Ok(true) } else { Err(refusal) };
            }
            other => other?,
        },
    };
    let mut state = file.state.lock().await;
    let present = state.present;
    if let Some(last) = &last {
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
    let closed = match state.writer.take() {
        Some(writer) => writer.close().await.map(drop),
        None if gateway.files.open.was_closed(file.inode, present.map(|present| present.id)) => return Ok(true),
        // An earlier try failed halfway.
        None => gateway.client.recover(file.inode, false).await.map(drop),
    };
    match closed {
        Ok(()) => {
            gateway.files.open.closed(file.inode, present.map(|present| present.id));
            Ok(true)
        }
        Err(error) if matches!(error.kind(), ErrorKind::Stale | ErrorKind::NotFound) => {
            drop(state);
            // It was deleted, or taken away: say which, if it can be said.
            leased(gateway, &path, file.inode, &holder).await?;
            gateway.files.open.remove(file.inode);
            Err(failed(&file, error))
        }
        Err(error) => Err(failed(&file, error)),
    }
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
            let size = Note::read(&found.note).block_size();
            let place = gateway.files.blocks.place(block.id, gateway.clock.now());
            let base = place.filter(|place| place.inode == found.inode).and_then(|place| place.base.byte(size));
            let length = base.and_then(|base| found.length.checked_sub(base));
            length.is_some_and(|length| block.length.is_none_or(|said| said == length))
                && block.generation_stamp >= stamp_of(&found)
        }
    }
}

/// The open file that a block is being written to, by this holder.
async fn file_of(gateway: &Gateway, block: &ExtendedBlock, holder: &str) -> Result<Arc<OpenFile>, Refusal> {
    let place = gateway.files.blocks.place(block.id, gateway.clock.now());
    let Some(file) = place.and_then(|blocks::Place { inode, .. }| gateway.files.open.get(inode)) else {
        let text = format!("{} does not exist or is not under Construction", shown::show(block));
        return Err(Refusal::io(text));
    };
    if *file.holder != *holder {
        let text = format!("Lease mismatch: {} is accessed by a non lease holder {holder}", shown::show(block));
        return Err(Refusal::new(LEASE_EXPIRED, text));
    }
    match gateway.client.stat_inode(file.inode).await {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            drop(file.take_away().await);
            gateway.files.open.remove(file.inode);
            Err(Refusal::new(FILE_NOT_FOUND, format!("File does not exist: {} (inode {})", file.path, file.inode)))
        }
        Err(error) => Err(error.into()),
        Ok(_) => Ok(file),
    }
}

/// A new generation stamp for a block: to append to it, or to go on after its connection broke.
pub async fn update_block(gateway: &Gateway, ask: UpdateBlockForPipeline) -> Result<BlockAnswer, Refusal> {
    let file = file_of(gateway, &ask.block, &ask.holder).await?;
    let mut state = file.state.lock().await;
    let present = present(&file, &state, &ask.block)?;
    state.granted = state.granted.saturating_add(1);
    let length = state.position().saturating_sub(present.base);
    Ok(BlockAnswer { block: located(gateway, &file, present, state.granted, length) })
}

/// The block goes on under its new generation stamp; whoever writes under an older one does so no more.
pub async fn update_pipeline(gateway: &Gateway, ask: UpdatePipeline) -> Result<(), Refusal> {
    let file = file_of(gateway, &ask.old, &ask.holder).await?;
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

/// Another server to write a block to: there is none but this one.
pub async fn additional_datanode(gateway: &Gateway, ask: GetAdditionalDatanode) -> Result<BlockAnswer, Refusal> {
    let file = held(gateway, &ask.path, ask.inode.unwrap_or(0), &ask.holder, false).await?;
    let state = file.state.lock().await;
    let present = present(&file, &state, &ask.block)?;
    let block = located(gateway, &file, present, state.stamp, 0);
    let here = this_datanode(gateway);
    let mut locations = ask.existing;
    let mut storage_ids = ask.existing_storages;
    storage_ids.resize(locations.len(), String::new());
    if !locations.iter().any(|location| location.id == here.id) {
        locations.push(here);
        storage_ids.extend(block.storage_ids.first().cloned());
    }
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

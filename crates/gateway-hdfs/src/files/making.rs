//! Opening files for writing: create and append.

use super::leases::{Wish, may_take};
use super::open::{Block, OpenFile, located};
use super::{blocks, located as blocks_of};
use crate::caller::Caller;
use crate::gateway::{Gateway, REPLICATION};
use crate::message::files::{Append, AppendAnswer, CREATE, Create, CreateAnswer, NEW_BLOCK, OVERWRITE};
use crate::message::hdfs::FileStatus;
use crate::names;
use crate::note::Note;
use crate::refusal::{ALREADY_BEING_CREATED, FILE_EXISTS, PARENT_NOT_DIRECTORY, RETRIABLE, Refusal};
use base::error::ErrorKind;
use client::{Attributes, CreateOptions, FileWriter};
use std::sync::Arc;

/// Makes a file and opens it.
pub async fn create(gateway: &Arc<Gateway>, caller: &Caller, ask: Create) -> Result<CreateAnswer, Refusal> {
    let (path, machine) = (ask.path.as_str(), caller.machine());
    let _alone = gateway.files.opening(path).await;
    let found = gateway.client.lookup(path).await?;
    let names = path.split('/').filter(|name| !name.is_empty()).count();
    let overwrite = ask.flags & OVERWRITE != 0;
    let mut replaced = None;
    match found.get(names) {
        Some(old) if old.directory => {
            return Err(Refusal::new(FILE_EXISTS, format!("{path} already exists as a directory")));
        }
        Some(old) if overwrite => replaced = Some(old.inode),
        Some(old) => {
            may_take(gateway, old, path, &ask.holder, machine, Wish::Create).await?;
            return Err(exists(path, machine));
        }
        None if ask.flags & CREATE == 0 => {
            return Err(Refusal::not_found(format!("Can't overwrite non-existent {path} for client {machine}")));
        }
        None => may_be_made(path, &found, names, ask.parents)?,
    }
    let note = Note { block_size: ask.block_size, replication: ask.replication, ..Note::default() };
    let above = found.iter().take(names).rfind(|above| above.directory);
    let options = CreateOptions {
        overwrite,
        parents: ask.parents,
        mode: Some(ask.masked.bits & 0o1777),
        owner: Some(caller.user.to_string()),
        group: above.map(|above| above.group.clone()).filter(|group| !group.is_empty()),
        note: prost::Message::encode_to_vec(&note),
        // Who made them must be able to go on below them.
        above_mode: above.map(|above| above.mode | 0o300),
        ..CreateOptions::default()
    };
    let writer = gateway.client.create(path, options).await.map_err(|error| match error.kind() {
        ErrorKind::Exists => exists(path, machine),
        ErrorKind::Full => no_room(path),
        _ => error.into(),
    })?;
    if let Some(replaced) = replaced {
        end(gateway, replaced).await;
    }
    let file = opened(gateway, writer, &ask.holder, machine, path, &note)?;
    Ok(CreateAnswer { status: Some(status(gateway, &file.attributes, &note)) })
}

/// Opens a file at its end.
pub async fn append(gateway: &Arc<Gateway>, caller: &Caller, ask: Append) -> Result<AppendAnswer, Refusal> {
    let (path, machine) = (ask.path.as_str(), caller.machine());
    let _alone = gateway.files.opening(path).await;
    let old = match gateway.client.stat(path).await {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let text = format!("Failed to append to non-existent file {path} for client {machine}");
            return Err(Refusal::not_found(text));
        }
        other => other?,
    };
    if old.directory {
        let text = format!("Cannot append to directory {path}; already exists as a directory.");
        return Err(Refusal::new(FILE_EXISTS, text));
    }
    may_take(gateway, &old, path, &ask.holder, machine, Wish::Append).await?;
    let writer = gateway.client.append(path).await.map_err(|error| match error.kind() {
        ErrorKind::Busy => {
            let why = Wish::Append.refused(path, &ask.holder, machine, "somebody else just opened it");
            Refusal::new(ALREADY_BEING_CREATED, why)
        }
        ErrorKind::Full => no_room(path),
        _ => error.into(),
    })?;
    let note = Note::read(&writer.attributes().note);
    let file = opened(gateway, writer, &ask.holder, machine, path, &note)?;
    let mut status = status(gateway, &file.attributes, &note);
    let mut state = file.state.lock().await;
    let length = state.position();
    status.length = length;
    let filled = length % file.block_size;
    // A block that is full is not shown: clients take it for one with room.
    if filled == 0 || ask.flags.unwrap_or(0) & NEW_BLOCK != 0 {
        return Ok(AppendAnswer { block: None, status: Some(status) });
    }
    let base = length - filled;
    let id = gateway.files.blocks.number(file.inode, base, file.block_size, gateway.clock.now());
    let block = Block { id, base };
    state.present = Some(block);
    let block = located(gateway, &file, block, state.stamp, filled);
    Ok(AppendAnswer { block: Some(block), status: Some(status) })
}

/// The file is open from now on.
fn opened(
    gateway: &Gateway,
    writer: FileWriter,
    holder: &str,
    machine: &str,
    path: &str,
    note: &Note,
) -> Result<Arc<OpenFile>, Refusal> {
    if !gateway.files.open.has_room() {
        let text =
            format!("too many files are open for writing; {path} was not opened; close some, or try again later");
        return Err(Refusal::new(RETRIABLE, text));
    }
    let file = Arc::new(OpenFile::new(writer, holder, machine, path, blocks_of::block_size(note)));
    gateway.files.open.insert(file.clone(), gateway.clock.now());
    Ok(file)
}

/// What a writer is told of its file. It has as many copies as clients are shown places.
fn status(gateway: &Gateway, attributes: &Attributes, note: &Note) -> FileStatus {
    let status = names::file_status("", attributes, note, &gateway.superuser);
    FileStatus { replication: Some(REPLICATION), ..status }
}

/// A file that was replaced is gone for whoever wrote it.
async fn end(gateway: &Gateway, inode: u64) {
    if let Some(file) = gateway.files.open.get(inode) {
        drop(file.take_away().await);
        gateway.files.open.remove(inode);
    }
}

/// Refuses if the directory is missing or none.
fn may_be_made(path: &str, found: &[Attributes], names: usize, parents: bool) -> Result<(), Refusal> {
    let parent = path.trim_end_matches('/').rsplit_once('/').map_or("/", |(parent, _)| parent);
    if found.last().is_some_and(|last| !last.directory) {
        return Err(Refusal::new(PARENT_NOT_DIRECTORY, format!("Parent path is not a directory: {parent}")));
    }
    if found.len() < names && !parents {
        return Err(Refusal::not_found(format!("Parent directory doesn't exist: {parent}")));
    }
    Ok(())
}

fn exists(path: &str, machine: &str) -> Refusal {
    Refusal::new(FILE_EXISTS, format!("{path} for client {machine} already exists"))
}

/// What clients of HDFS see when it is full.
pub fn no_room(path: &str) -> Refusal {
    Refusal::io(format!(
        "File {path} could only be written to 0 of the 1 minReplication nodes. There are 1 datanode(s) running and 0 \
         node(s) are excluded in this operation. (The store is full; what was acknowledged is safe.)"
    ))
}

/// The stamp of a file that nobody writes.
pub fn stamp_of(attributes: &Attributes) -> u64 {
    blocks::FIRST_STAMP.saturating_add(attributes.generation)
}

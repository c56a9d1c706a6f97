//! Files that a client has open through another gateway and goes on with here, because that gateway is gone or out of reach: they are
//! taken from there with what is written of them.

use super::leases::{is_held, take_back};
use super::making::{appended, created, opened};
use super::open::OpenFile;
use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::message::decode;
use crate::message::files::{Append, Create};
use crate::message::hdfs::ExtendedBlock;
use crate::note::Note;
use crate::refusal::{LEASE_EXPIRED, Refusal};
use base::error::ErrorKind;
use base::limit::HOLDER_MAX;
use bytes::Bytes;
use client::{Attributes, Looked, Seen};
use prost::Message;
use std::sync::Arc;

/// The answer to a create or append that another gateway did, with this file: it is open here from now on.
pub async fn opened_elsewhere(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    method: &str,
    request: Bytes,
    inode: u64,
) -> Result<Vec<u8>, Refusal> {
    let attributes = gateway.client.stat_inode(inode).await?;
    // Its client did not hear that it is open, so nothing was written.
    let machine = caller.machine();
    if method == "create" {
        let ask: Create = decode(request)?;
        let file = taken(gateway, &attributes, (&ask.holder, machine), true).await?;
        return Ok(created(gateway, &file, &Note::read(&attributes.note)).encode_to_vec());
    }
    let ask: Append = decode(request)?;
    let file = taken(gateway, &attributes, (&ask.holder, machine), true).await?;
    Ok(appended(gateway, &file, ask.flags).await?.encode_to_vec())
}

async fn taken(
    gateway: &Gateway,
    attributes: &Attributes,
    who: (&str, &str),
    untouched: bool,
) -> Result<Arc<OpenFile>, Refusal> {
    take_over(gateway, attributes, who, untouched, None).await?.ok_or_else(|| {
        let text = format!("File is not open for writing: (inode {}) Holder {}", attributes.inode, who.0);
        Refusal::new(LEASE_EXPIRED, text)
    })
}

/// A file that is open through another gateway for the same holder, on this machine, is open here from now on. `untouched`: its
/// holder has written nothing since it opened it, so nothing has to be asked of the device that was to take it. `block`: the one that
/// its holder takes for the last, which may have no byte yet. `None`: nobody has it open, or somebody else.
pub async fn take_over(
    gateway: &Gateway,
    attributes: &Attributes,
    (holder, machine): (&str, &str),
    untouched: bool,
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
        if file.attributes.generation >= attributes.generation {
            return Ok(Some(file).filter(|file| *file.holder == *holder));
        }
        // It was open here before another gateway took it over: how long it is, and who writes it, is no more what is known here.
        drop(file.take_away().await);
        gateway.files.open.remove(inode);
    }
    // Another file may have the name by now.
    let seen = Seen { inode, version: None };
    let store = gateway.client.relying_on(Looked { directories: 0, seen: vec![seen] });
    let unwritten = match untouched {
        true => store.take_over(&path, holder).await.map(Some),
        false => Ok(None),
    };
    let writer = match unwritten {
        Ok(Some(writer)) => writer,
        Err(error) if error.kind() != ErrorKind::Busy => return Err(error.into()),
        // It has bytes that only the device has: it is closed as it is, and goes on behind them.
        Ok(None) | Err(_) => {
            gateway.client.recover_at(inode, false, attributes.generation).await?;
            store.append_as(&path, holder).await?
        }
    };
    let note = Note::read(&writer.attributes().note);
    let file = opened(gateway, writer, holder, machine, &path, &note);
    let kept = (attributes.block_base != 0).then_some((attributes.block_base, attributes.block_number));
    let gone_on = file.state.lock().await.go_on(&file, kept, block).await;
    if let Err(error) = gone_on {
        take_back(gateway, &file).await?;
        return Err(error.into());
    }
    Ok(Some(file))
}

/// The holder of a file as the store keeps it: one with a name that is too long cannot go on elsewhere.
pub fn held_by(holder: &str) -> String {
    if holder.len() <= HOLDER_MAX { holder.to_string() } else { String::new() }
}

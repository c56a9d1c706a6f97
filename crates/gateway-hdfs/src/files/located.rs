//! Where a file's blocks are, cut at multiples of the file's block size: every node's gateway serves all of them, so those that hold
//! the bytes are named first, and this one behind.

use super::blocks::{first_stamp, has_numbers, number, place, place_of, start_of};
use super::open::Block;
use crate::caller::Caller;
use crate::cluster::{datanode_of, this_datanode};
use crate::gateway::{Gateway, POOL};
use crate::hdfs_attributes::HdfsAttributes;
use crate::message::hdfs::{ExtendedBlock, LocatedBlock, LocatedBlocks, STORAGE_DISK, Token};
use crate::message::located::{
    GetBlockLocations, GetBlockLocationsAnswer, GetReplicaVisibleLength, GetReplicaVisibleLengthAnswer,
};
use crate::names::file_for;
use crate::refusal::{ILLEGAL_ARGUMENT, REPLICA_NOT_FOUND, Refusal};
use base::error::ErrorKind;
use base::id::NodeId;
use base::limit::{HDFS_ENTRIES_AT_ONCE, HDFS_LOCATED_BLOCKS_MAX};
use base::permission::READ;
use bytes::Bytes;
use client::{Attributes, Extent, Host, Hosts, Listed};
use prost::Message;
use std::collections::BTreeMap;
use std::ops::Range;

/// A file of which blocks are named.
#[derive(Clone, Copy)]
struct File<'a> {
    attributes: &'a Attributes,
    note: &'a HdfsAttributes,
    /// Where its bytes are, if somebody said so already.
    extents: Option<&'a [Extent]>,
}

/// The blocks of a whole file, for listings that want them: those of a file that is being written as far as it is visible. Nothing is asked
/// for one of which the listing said where its bytes are.
pub async fn located(
    gateway: &Gateway,
    caller: &Caller,
    servers: &mut Servers,
    (listed, note): (Listed<'_>, &HdfsAttributes),
) -> Result<LocatedBlocks, Refusal> {
    let Listed { attributes, extents } = listed;
    let length = caller.share.aside(visible_length(gateway, attributes, 0)).await?;
    let file = File { attributes, note, extents: listed.is_located().then_some(extents) };
    blocks_of(gateway, caller, servers, (file, length, 0..length)).await
}

/// A block of `length` bytes with this stamp, at this gateway.
pub fn block_at(gateway: &Gateway, Block { id, base }: Block, generation_stamp: u64, length: u64) -> LocatedBlock {
    let block = ExtendedBlock { pool: POOL.to_string(), id, generation_stamp, length: Some(length) };
    LocatedBlock { offset: base, ..as_asked(gateway, block) }
}

/// A block at this gateway, as its writer names it.
pub fn as_asked(gateway: &Gateway, block: ExtendedBlock) -> LocatedBlock {
    at(this_datanode(gateway).encode_to_vec().into(), block)
}

/// A block at this server, an encoded `DatanodeInfo`.
fn at(datanode: Bytes, block: ExtendedBlock) -> LocatedBlock {
    LocatedBlock {
        block,
        offset: 0,
        locations: vec![datanode],
        corrupt: false,
        token: Token::default(),
        cached: vec![false],
        storage_types: vec![STORAGE_DISK],
        storage_ids: vec![STORAGE.to_string()],
    }
}

/// The one store within the one location.
const STORAGE: &str = "DS-1";

/// The blocks of a range of a file: a `GetBlockLocationsAnswer`.
pub async fn get_block_locations(
    gateway: &Gateway,
    caller: &Caller,
    ask: GetBlockLocations,
) -> Result<Vec<u8>, Refusal> {
    let GetBlockLocations { path, offset, length } = ask;
    for (number, what) in [(offset, "offset"), (length, "length")] {
        if i64::try_from(number).is_err() {
            let text = format!("Negative {what} is not supported. File: {path}");
            return Err(Refusal::new(ILLEGAL_ARGUMENT, text));
        }
    }
    let (_, attributes) = file_for(gateway, caller, &path, READ).await?;
    let note = HdfsAttributes::read(&attributes.note);
    let visible = visible_length(gateway, &attributes, u64::MAX).await?;
    let range = offset..offset.saturating_add(length);
    let file = File { attributes: &attributes, note: &note, extents: None };
    let mut servers = Servers::of(gateway, PlacesFor::Reading).await?;
    let located = blocks_of(gateway, caller, &mut servers, (file, visible, range)).await?;
    Ok(encoded(located).await)
}

/// A `GetBlockLocationsAnswer` of these blocks; of many, made in turns.
async fn encoded(mut located: LocatedBlocks) -> Vec<u8> {
    if located.blocks.len() <= HDFS_ENTRIES_AT_ONCE {
        return GetBlockLocationsAnswer { located: Some(located) }.encode_to_vec();
    }
    let blocks = std::mem::take(&mut located.blocks);
    // Behind the other fields, which is as good as between them.
    let mut fields = located.encode_to_vec();
    for some in blocks.chunks(HDFS_ENTRIES_AT_ONCE) {
        some.iter().for_each(|block| prost::encoding::message::encode(LocatedBlocks::BLOCKS, block, &mut fields));
        tokio::task::yield_now().await;
    }
    let mut answer = Vec::with_capacity(fields.len() + 8);
    prost::encoding::bytes::encode(GetBlockLocationsAnswer::LOCATED, &fields, &mut answer);
    answer
}

/// How many bytes of a block can be read.
pub async fn get_replica_visible_length(
    gateway: &Gateway,
    _: &Caller,
    GetReplicaVisibleLength { block }: GetReplicaVisibleLength,
) -> Result<GetReplicaVisibleLengthAnswer, Refusal> {
    let missing = || Refusal::new(REPLICA_NOT_FOUND, format!("Replica not found for {}", show(&block)));
    let place = place(block.id).ok_or_else(missing)?;
    let length = match gateway.client.open_inode(place.inode).await {
        Ok(reader) => {
            let length = reader.length_known_or_asked().await?;
            let attributes = reader.attributes();
            let base =
                place.byte(&attributes, HdfsAttributes::read(&attributes.note).block_size()).ok_or_else(missing)?;
            length.checked_sub(base).ok_or_else(missing)?
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(missing()),
        Err(error) => return Err(error.into()),
    };
    Ok(GetReplicaVisibleLengthAnswer { length })
}

/// A block's name as HDFS writes it.
pub fn show(block: &ExtendedBlock) -> String {
    format!("{}:blk_{}_{}", block.pool, block.id, block.generation_stamp)
}

/// How many bytes of a file can be read now. If it is at least so long, nobody waits to be told whether there are more.
pub async fn visible_length(gateway: &Gateway, attributes: &Attributes, enough: u64) -> Result<u64, Refusal> {
    if !attributes.open {
        return Ok(attributes.length);
    }
    Ok(gateway.client.open_inode(attributes.inode).await?.length_reaching(enough).await?)
}

/// The blocks of a file of this length that hold bytes of a range, and its last one.
async fn blocks_of(
    gateway: &Gateway,
    caller: &Caller,
    servers: &mut Servers,
    (file, length, range): (File<'_>, u64, Range<u64>),
) -> Result<LocatedBlocks, Refusal> {
    let File { attributes, note, .. } = file;
    let under_construction = attributes.open;
    if length == 0 {
        return Ok(LocatedBlocks { under_construction, ..LocatedBlocks::default() });
    }
    let size = note.block_size();
    let too_long = || {
        Refusal::io(format!("{length} bytes are too many for blocks of {size} bytes; write the file with larger ones"))
    };
    if !has_numbers(attributes.inode) {
        let text = "the file has a number that blocks cannot have; its bytes are safe: read it by `stormwell get`";
        return Err(Refusal::unsupported(text));
    }
    let last_place = place_of(length - 1, size).ok_or_else(too_long)?;
    let (here, generation_stamp) = (servers.here.clone(), first_stamp(attributes.generation));
    let block = |place: u64| {
        let base = start_of(place, size).unwrap_or(length);
        let behind = start_of(place.saturating_add(1), size).unwrap_or(length).min(length);
        let (id, length) = (number(attributes.inode, place), Some(behind.saturating_sub(base)));
        let block = ExtendedBlock { pool: POOL.to_string(), id, generation_stamp, length };
        LocatedBlock { offset: base, ..at(here.clone(), block) }
    };
    let end = range.end.min(length);
    let first_place = place_of(range.start.min(length - 1), size).unwrap_or(last_place);
    let behind = end.checked_sub(1).and_then(|last| place_of(last, size)).map_or(0, |last| last + 1);
    let count = behind.saturating_sub(first_place);
    if count > HDFS_LOCATED_BLOCKS_MAX {
        return Err(Refusal::io(format!(
            "{count} blocks were asked for at once, {HDFS_LOCATED_BLOCKS_MAX} is the most; ask for a part of the file, or \
             write it with a larger block size than {size} bytes"
        )));
    }
    // One more is the last block.
    caller.share.blocks(count.saturating_add(1)).await;
    let mut blocks = Vec::new();
    if range.start < end {
        for place in first_place..behind {
            blocks.push(block(place));
            if blocks.len().is_multiple_of(HDFS_ENTRIES_AT_ONCE) {
                tokio::task::yield_now().await;
            }
        }
    }
    let mut last = vec![block(last_place)];
    servers.add_to(gateway, file, size, &mut blocks).await?;
    match blocks.last() {
        Some(same) if same.offset == last[0].offset => last[0].clone_from(same),
        _ => servers.add_to(gateway, file, size, &mut last).await?,
    }
    Ok(LocatedBlocks {
        file_length: length,
        blocks,
        under_construction,
        last_block: last.pop(),
        // Its length is all that is visible, also while it is being written: clients need not ask further.
        last_block_complete: true,
    })
}

/// What a client does with the servers of blocks that it is told.
#[derive(Clone, Copy, Eq, PartialEq)]
pub enum PlacesFor {
    /// It may read there: this gateway, which it reaches, is among them.
    Reading,
    /// It plans where to work, and asks again before it reads: this gateway's node is named if it holds bytes, or if nobody who does can be named.
    Planning,
}

/// The servers of blocks as one answer names them, each an encoded `DatanodeInfo`: it is made once for all blocks that it serves.
pub struct Servers {
    places: PlacesFor,
    /// This gateway.
    here: Bytes,
    /// Who else may have bytes. None: nobody, as in a store of one node.
    others: Option<Hosts>,
    /// Those of them that were looked up.
    known: BTreeMap<NodeId, Option<Bytes>>,
}

impl Servers {
    /// As they are now.
    pub async fn of(gateway: &Gateway, places: PlacesFor) -> Result<Servers, Refusal> {
        let (hosts, here) = (gateway.client.hosts().await?, gateway.client.here());
        let serves = |host: &Host| !host.silent && !host.hdfs.is_empty() && Some(host.node) != here;
        let known = here.and_then(|node| datanode_of(gateway, hosts.get(node)?));
        let here = known.unwrap_or_else(|| this_datanode(gateway)).encode_to_vec().into();
        let others = hosts.all().any(serves);
        Ok(Servers { places, here, others: others.then_some(hosts), known: BTreeMap::new() })
    }

    fn get(&mut self, gateway: &Gateway, node: NodeId) -> Option<Bytes> {
        let Servers { others, known, .. } = self;
        let look = || {
            let host = others.as_ref()?.get(node).filter(|host| !host.silent)?;
            datanode_of(gateway, host).map(|datanode| datanode.encode_to_vec().into())
        };
        known.entry(node).or_insert_with(look).clone()
    }

    /// Names the nodes that hold bytes of these neighbouring blocks in front of this gateway.
    async fn add_to(
        &mut self,
        gateway: &Gateway,
        file: File<'_>,
        block_size: u64,
        blocks: &mut [LocatedBlock],
    ) -> Result<(), Refusal> {
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else { return Ok(()) };
        if self.others.is_none() {
            return Ok(());
        }
        let range = first.offset..last.offset.saturating_add(last.block.length.unwrap_or(0));
        // Behind many blocks they are larger: then of the first ones it is known who holds them.
        let block_size = block_size.max(first.block.length.unwrap_or(0));
        let holders = match file.extents {
            Some(extents) => gateway.client.holders_listed(extents, range, block_size).await?,
            None => gateway.client.holders(file.attributes.inode, range, block_size).await?,
        };
        for (block, holders) in blocks.iter_mut().zip(holders) {
            let here = gateway.client.here();
            // This gateway is there once, where its own bytes put it.
            let place = holders.iter().position(|holder| Some(*holder) == here);
            let (before, behind) = holders.split_at(place.unwrap_or(holders.len()));
            let mut locations: Vec<Bytes> = before.iter().filter_map(|node| self.get(gateway, *node)).collect();
            if place.is_some() || self.places == PlacesFor::Reading || locations.is_empty() {
                locations.append(&mut block.locations);
            }
            locations.extend(behind.iter().skip(1).filter_map(|node| self.get(gateway, *node)));
            let count = locations.len();
            block.locations = locations;
            (block.cached, block.storage_types) = (vec![false; count], vec![STORAGE_DISK; count]);
            block.storage_ids = vec![STORAGE.to_string(); count];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{LocatedBlocks, at, encoded};
    use crate::message::hdfs::ExtendedBlock;
    use crate::message::located::GetBlockLocationsAnswer;
    use base::limit::HDFS_ENTRIES_AT_ONCE;
    use bytes::Bytes;
    use prost::Message;

    /// An answer that is made in turns says what one says that is made at once.
    #[tokio::test]
    async fn in_turns() {
        for count in [0, 1, HDFS_ENTRIES_AT_ONCE, 3 * HDFS_ENTRIES_AT_ONCE + 1] {
            let block = |id| at(Bytes::new(), ExtendedBlock { id, ..ExtendedBlock::default() });
            let blocks = (0..count as u64).map(block).collect();
            let located =
                LocatedBlocks { file_length: 7, blocks, last_block: Some(block(9)), ..LocatedBlocks::default() };
            let bytes = encoded(located.clone()).await;
            let answer = GetBlockLocationsAnswer::decode(bytes.as_slice()).expect("an answer");
            assert!(answer.located == Some(located), "{count}");
        }
    }
}

//! BLOCK_CHECKSUM: one checksum of a block, made of those of its sectors, so that files are compared without being copied.

use super::connection::Connection;
use super::fail;
use super::read::{Opened, open_block};
use crate::files::blocks::place;
use crate::gateway::Gateway;
use crate::hdfs_attributes::HdfsAttributes;
use crate::message::transfer::{
    BlockChecksum, BlockChecksumAnswer, CHECKSUM_CRC32C, COMPOSITE_CRC, ChecksumOptions, ERROR, ERROR_UNSUPPORTED,
    MD5_OF_CRCS, OperationAnswer,
};
use base::checksum::{SECTOR, combine};
use base::error::{ErrorKind, Result};
use client::{ReadOptions, Sums};
use md5::{Digest, Md5};
use std::sync::Arc;
use tokio::sync::SemaphorePermit;

/// Answers with the checksum of a block or of its first bytes.
pub async fn block_checksum(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    request: &BlockChecksum,
) -> Result<()> {
    let kind = request.options.and_then(|options| options.kind).unwrap_or(MD5_OF_CRCS);
    if kind != MD5_OF_CRCS && kind != COMPOSITE_CRC {
        return connection.answer(ERROR_UNSUPPORTED, &format!("checksums of kind {kind} are not known")).await;
    }
    let _turn = match turn(gateway, connection).await {
        Err(error) if error.kind() == ErrorKind::Busy => return connection.answer(ERROR, error.text()).await,
        turn => turn?,
    };
    // It is over when its client is gone.
    let summed = tokio::select! {
        biased;
        summed = sum(gateway, request, kind) => summed,
        gone = connection.gone() => return Err(gone),
    };
    match summed {
        Ok(checksum) => {
            connection.write_message(&OperationAnswer { checksum: Some(checksum), ..OperationAnswer::default() }).await
        }
        Err(error) => fail(gateway, connection, "block checksum", error).await,
    }
}

/// Waits for the turn to make a checksum.
async fn turn<'a>(gateway: &'a Gateway, connection: &mut Connection) -> Result<SemaphorePermit<'a>> {
    if let Ok(turn) = gateway.sums.try_acquire() {
        return Ok(turn);
    }
    let turn = connection.rest_until(gateway.sums.acquire()).await?;
    Ok(turn.unwrap_or_else(|_| unreachable!("nobody closes it")))
}

async fn sum(gateway: &Arc<Gateway>, request: &BlockChecksum, kind: i32) -> Result<BlockChecksumAnswer> {
    let block = &request.header.block;
    let Opened { reader, base, length } = open_block(gateway, block, u64::MAX).await?;
    // A regular block ends where the next one begins, an irregular one where its writer said.
    let size = HdfsAttributes::read(&reader.attributes().note).block_size();
    let end = place(block.id).and_then(|place| place.end(size));
    let whole = end.map_or(length, |end| length.min(end.saturating_sub(base)));
    let wanted = block.length.filter(|length| *length > 0).map_or(whole, |length| length.min(whole));
    let mut range = reader.range(base, wanted, ReadOptions::default(), Sums::Sectors);
    let (mut md5, mut composite, mut left) = (Md5::new(), 0, wanted);
    while let Some(piece) = range.next().await? {
        for crc in &piece.sums {
            let bytes = left.min(SECTOR as u64);
            left -= bytes;
            if kind == COMPOSITE_CRC {
                composite = combine(composite, *crc, bytes);
            } else {
                md5.update(crc.to_be_bytes());
            }
        }
    }
    let checksum = if kind == COMPOSITE_CRC { u32::to_be_bytes(composite).to_vec() } else { md5.finalize().to_vec() };
    Ok(BlockChecksumAnswer {
        bytes_per_crc: SECTOR as u32,
        crcs: whole.div_ceil(SECTOR as u64),
        checksum,
        kind: Some(CHECKSUM_CRC32C),
        options: Some(ChecksumOptions { kind: Some(kind), stripe: None }),
    })
}

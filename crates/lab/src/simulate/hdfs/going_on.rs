//! A stream that broke goes on at any gateway under its block's next stamp, as long as nobody else has touched its file.

use super::blocks::BlockWriter;
use super::{Hdfs, Open, RECOVERY_MAX};
use crate::simulate::oracle::{Broken, Check};
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind, Result};
use gateway_hdfs::message::files::{BlockAnswer, Nothing, UpdateBlockForPipeline, UpdatePipeline};
use gateway_hdfs::message::hdfs::{ExtendedBlock, LocatedBlock};
use gateway_hdfs::message::transfer::SETUP_STREAMING_RECOVERY;
use std::time::Duration;

impl Hdfs {
    /// Goes on with the block that it wrote, behind what is there of it. False: it has none, or not any more.
    pub(super) async fn goes_on(&mut self, open: &mut Open) -> Check<bool> {
        open.writer = None;
        let Some((base, block, _)) = &open.block else { return Ok(false) };
        let (base, old) = (*base, block.block.clone());
        let begun = self.scene.clock.now();
        loop {
            if self.random.one_in(2) {
                self.calls.go_elsewhere();
            }
            match self.renewed(open, base, &old).await? {
                Ok((block, writer)) => {
                    open.block = Some((base, block, SETUP_STREAMING_RECOVERY));
                    open.writer = Some(writer);
                    self.scene.count("hdfs streams that went on");
                    return Ok(true);
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Err(self.directory.gone("go on with", &open.path, open.tag, &error));
                }
                // With what was written and not synced its block may be gone.
                Err(_) if self.scene.oracle().losses_of(open.tag) != self.losses_at_open => return Ok(false),
                // Nobody else has the file, and no device is away for longer.
                Err(error) if self.scene.clock.now().since(begun) > RECOVERY_MAX => {
                    let text = format!("{} is not gone on with, though nobody else has touched it: {error}", open.path);
                    return Err(Broken(format!("{}: {text}", self.name)));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(100 + self.random.below(1_500))).await,
            }
        }
    }

    /// Asks for the block's next stamp, begins to write under it, and says that the block goes on.
    async fn renewed(
        &mut self,
        open: &mut Open,
        base: u64,
        old: &ExtendedBlock,
    ) -> Check<Result<(LocatedBlock, BlockWriter)>> {
        let promise = self.scene.oracle().promise(open.tag);
        let heard = promise.synced.saturating_sub(base);
        let old = ExtendedBlock { length: Some(heard), ..old.clone() };
        let ask = UpdateBlockForPipeline { block: old.clone(), holder: self.holder() };
        let block = match self.call("hdfs updateBlockForPipeline", "updateBlockForPipeline", &ask).await? {
            Ok(BlockAnswer { block }) => block,
            Err(error) => return Ok(Err(error)),
        };
        let there = base + block.block.length.unwrap_or(0);
        if there < promise.synced || there > promise.handed {
            let text = format!("{} goes on at {there}: {promise:?}", open.path);
            return Err(Broken(format!("{}: {text}", self.name)));
        }
        open.position = there;
        let holder = self.holder();
        let begun = BlockWriter::begin(&self.net, &block, SETUP_STREAMING_RECOVERY, &holder);
        let writer = match self.scene.call(&self.name, "hdfs begin block", begun).await? {
            Ok(writer) => writer,
            Err(error) => return Ok(Err(Error::new(ErrorKind::Unreachable, error.text()))),
        };
        let pipeline = UpdatePipeline { holder, old, new: block.block.clone() };
        let said = self.call::<Nothing>("hdfs updatePipeline", "updatePipeline", &pipeline).await?;
        Ok(said.map(|_| (block, writer)))
    }
}

//! A stream that broke goes on at any gateway under its block's next stamp, as long as nobody else has touched its file.

use super::blocks::BlockWriter;
use super::{Hdfs, Open, PAUSE_MAX, RECOVERY_MAX};
use crate::simulate::oracle::{Broken, Check};
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind, Result};
use base::unit::Time;
use gateway_hdfs::message::files::{BlockAnswer, Nothing, UpdateBlockForPipeline, UpdatePipeline};
use gateway_hdfs::message::hdfs::ExtendedBlock;
use gateway_hdfs::message::transfer::{CLOSE_RECOVERY, SETUP_STREAMING_RECOVERY};
use std::time::Duration;

impl Hdfs {
    /// Goes on with the block that it wrote: as Hadoop's client does, it sends again what was not acknowledged, though it may be there. False:
    /// it has no block, or not any more.
    pub(super) async fn goes_on(&mut self, open: &mut Open) -> Check<bool> {
        let Some((base, ..)) = open.block else { return Ok(false) };
        let (mut heard, end, begun) = (open.broke(base), open.position, self.scene.clock.now());
        loop {
            if self.random.one_in(2) {
                self.calls.go_elsewhere();
            }
            let refused = match self.renewed(open, SETUP_STREAMING_RECOVERY, heard).await? {
                Ok((there, writer)) => {
                    self.has_kept(open, there, heard)?;
                    open.writer = Some(writer);
                    open.position = there.min(heard);
                    self.scene.count_more("hdfs bytes sent again", there - open.position);
                    let again = there.max(end) - open.position;
                    if self.send(open, again, false).await? {
                        self.scene.count("hdfs streams that went on");
                        return Ok(true);
                    }
                    heard = open.broke(base);
                    "its stream broke again".to_string()
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Err(self.directory.gone("go on with", &open.path, open.tag, &error));
                }
                Err(error) => error.to_string(),
            };
            if !self.may_ask_again(open, begun, "gone on with", &refused).await? {
                return Ok(false);
            }
        }
    }

    /// Everything of the block was acknowledged but its end: asks that it ends as it is, which syncs it. False: it has no block any more.
    pub(super) async fn ends_as_it_is(&mut self, open: &mut Open) -> Check<bool> {
        let begun = self.scene.clock.now();
        loop {
            let end = open.position;
            let refused = match self.renewed(open, CLOSE_RECOVERY, end).await? {
                Ok((there, _)) => {
                    self.has_kept(open, there, end)?;
                    self.scene.count("hdfs blocks that ended as they were");
                    // What comes next may sync it anyway: often the power goes before that.
                    if there == end && self.random.one_in(2) {
                        self.directory.synced(open.tag, end);
                        self.scene.end_now.notify_one();
                        tokio::time::sleep(Duration::from_millis(self.random.below(PAUSE_MAX))).await;
                    }
                    return Ok(there == end);
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Err(self.directory.gone("end a block of", &open.path, open.tag, &error));
                }
                Err(error) => error.to_string(),
            };
            if !self.may_ask_again(open, begun, "ended", &refused).await? {
                return Ok(false);
            }
        }
    }

    /// What was acknowledged is there unless a power loss took it.
    fn has_kept(&self, open: &Open, there: u64, heard: u64) -> Check<()> {
        if there >= heard || self.scene.oracle().losses_of(open.tag) != self.losses_at_open {
            return Ok(());
        }
        Err(Broken(format!("{}: {} has {there} bytes, and {heard} were acknowledged", self.name, open.path)))
    }

    /// Pauses before it asks once more: nobody else has the file, and no device is away for longer. False: with what was written and not synced
    /// its block may be gone.
    async fn may_ask_again(&mut self, open: &mut Open, begun: Time, what: &str, refused: &str) -> Check<bool> {
        if self.scene.oracle().losses_of(open.tag) != self.losses_at_open {
            return Ok(false);
        }
        if self.scene.clock.now().since(begun) > RECOVERY_MAX {
            let text = format!("{} is not {what}, though nobody else has touched it: {refused}", open.path);
            return Err(Broken(format!("{}: {text}", self.name)));
        }
        tokio::time::sleep(Duration::from_millis(100 + self.random.below(1_500))).await;
        Ok(true)
    }

    /// Asks for the block's next stamp, begins a stage under it, and says that the block goes on. What was acknowledged ends at `heard`; where
    /// what is there ends in the file.
    async fn renewed(&mut self, open: &mut Open, stage: i32, heard: u64) -> Check<Result<(u64, BlockWriter)>> {
        let Some((base, old)) = open.block.as_ref().map(|(base, block, _)| (*base, block.block.clone())) else {
            return Ok(Err(Error::new(ErrorKind::Invalid, "it has no block")));
        };
        let promise = self.scene.oracle().promise(open.tag);
        let old = ExtendedBlock { length: Some(promise.synced.saturating_sub(base)), ..old };
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
        let holder = self.holder();
        let begun = BlockWriter::begin(&self.net, &block, (stage, there.min(heard) - base), &holder);
        let writer = match self.scene.call(&self.name, "hdfs begin block", begun).await? {
            Ok(writer) => writer,
            Err(error) => return Ok(Err(Error::new(ErrorKind::Unreachable, error.text()))),
        };
        let pipeline = UpdatePipeline { holder, old, new: block.block.clone() };
        if let Err(error) = self.call::<Nothing>("hdfs updatePipeline", "updatePipeline", &pipeline).await? {
            return Ok(Err(error));
        }
        open.block = Some((base, block, SETUP_STREAMING_RECOVERY));
        Ok(Ok((there, writer)))
    }
}

//! A replica on a device that was given up and counts again is compared with a good one before it is good, and made anew if it is not the same.
//!
//! It is never good on its own word: it may be short, because its device lost what was not synced; or others went on without it. What was released
//! meanwhile is released there, too. Where it is not the same the good one is read before the other goes: it is all that is left then.

use super::copying::Copying;
use super::verifying::Read;
use crate::device::control::Extent;
use crate::log::Level;
use base::error::{ErrorKind, Result};

impl Copying {
    /// Makes the replica at the target what the original is, sealed and durable; how it is. If it is so already nothing is copied. Where both
    /// are one, because no other is left, it has to be as long as its group says. None: there is nothing. As after `at_rest`, who wants it to be good
    /// claims the group, and asks `confirm` under that claim.
    pub async fn made_sure(&self) -> Result<Option<Extent>> {
        let Some(original) = self.original_at_rest().await? else { return Ok(None) };
        let whole = Extent { sealed: true, ..original };
        if self.from.id() == self.to.id() || self.is_same(&whole).await? {
            return Ok(Some(whole));
        }
        self.check_original().await?;
        self.at_rest().await
    }

    /// Whether the replica at the target is what the original is, which is like this. What of it was released in the original is, too, then.
    async fn is_same(&self, whole: &Extent) -> Result<bool> {
        // It is durable when that is answered.
        match self.seal(&self.to, whole).await {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale) => {
                return Ok(self.is_other(error.text()));
            }
            sealed => sealed?,
        }
        let (original, copy) = self.both(whole).await?;
        if original.crc.is_none() || original.crc != copy.crc {
            match self.read_both().await? {
                Read::Same => (),
                Read::Unknown => return Ok(self.is_other("its checksum is another one")),
                Read::Differs(what) => return Ok(self.is_other(&what)),
            }
        }
        self.release().await?;
        let is_same = self.kept(&self.from).await?.ranges == self.kept(&self.to).await?.ranges;
        Ok(is_same || self.is_other("it does not keep the same bytes"))
    }

    /// It is not the same: it is said why.
    fn is_other(&self, what: &str) -> bool {
        let text = format!(
            "what {} has of chunk {} of group {} since before it was given up is not what {} has: {what}; it is made anew; no data is lost",
            self.to.shown(),
            self.chunk,
            self.group,
            self.from.shown()
        );
        self.node.log.say(Level::Warn, "repair", &text, &[]);
        false
    }
}

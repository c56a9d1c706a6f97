//! Whether a copy is what the original is. Bytes that are damaged on their way, in the memory of a node or by an order that came late are found here,
//! before the metadata names the copy and somebody deletes the original.
//!
//! If the original had all its bytes when it was copied, what is stored of both is the same, and so are the CRCs of it that their devices took when
//! the bytes came, whatever is released later: they are compared for nothing. Where it had released some, zeros are in the copy, and the CRC of the
//! original is of bytes that are gone: then both devices read what the original keeps, and their sums are compared.

use super::copying::{Copying, FETCH_WAIT};
use crate::device::control::Extent;
use crate::device_handle::DeviceHandle;
use crate::log;
use base::error::{Error, ErrorKind, Result};
use base::limit::{FETCH_MAX, LIST_PAGE_MAX};
use base::planted::Planted;
use net::message::chunk::Range;
use net::message::order::{Sums, SumsAnswer};
use tokio::time::timeout;

/// Ranges (start, end) of a chunk.
type Ranges = Vec<(u64, u64)>;

/// What comes of reading a copy and its original.
pub enum Read {
    /// They are the same.
    Same,
    /// Not all could be read: a node of an older version does not know the question.
    Unknown,
    /// They are not: how.
    Differs(String),
}

impl Copying {
    /// Compares the copy, which shall be like this, with the original: their lengths and what is stored of them. It takes as long as reading both if
    /// the original has released bytes, so it comes before the group is claimed. `Busy` if they differ: which of the two is wrong nobody can say, and
    /// the next copy is another one.
    pub async fn compare(&self, whole: &Extent) -> Result<()> {
        if self.planted == Some(Planted::CopyUncompared) {
            return Ok(());
        }
        let (original, copy) = self.both(whole).await?;
        match (original.crc, copy.crc) {
            (Some(of_original), Some(of_copy)) if !self.is_filled() => match of_original == of_copy {
                true => Ok(()),
                false => Err(self.differs(&format!("its CRC32C is {of_copy:08x} and not {of_original:08x}"))),
            },
            // Its writers are held back meanwhile.
            _ if !whole.sealed => Ok(()),
            _ => self.compare_kept().await,
        }
    }

    /// Looks once more whether the copy is there and as it was compared, and releases in it what was released in the original since. Under the claim of
    /// the group, so that nobody releases anything before it is named or given up.
    pub async fn confirm(&self, whole: &Extent) -> Result<()> {
        self.both(whole).await?;
        self.release().await?;
        let (original, copy) = (self.kept(&self.from).await?.ranges, self.kept(&self.to).await?.ranges);
        if original != copy && self.planted != Some(Planted::CopyUncompared) {
            let text =
                format!("it keeps {} ranges of bytes and not the {} of the original", copy.len(), original.len());
            return Err(self.differs(&text));
        }
        Ok(())
    }

    /// The original and the copy, if they are as they have to be. Else the copy may have been taken for something unknown, by its node when that was
    /// started again, or the original have grown.
    pub async fn both(&self, whole: &Extent) -> Result<(Extent, Extent)> {
        let (original, copy) = (self.stat(&self.from).await?, self.stat(&self.to).await?);
        let is_whole = |extent: &Extent| extent.sealed == whole.sealed && extent.length == whole.length;
        let may_be_open = |extent: &Extent| extent.length == whole.length && self.stays_open();
        match (original.filter(|extent| is_whole(extent) || may_be_open(extent)), copy.filter(is_whole)) {
            (Some(original), Some(copy)) => Ok((original, copy)),
            (None, _) => {
                let text = format!("chunk {} changed while it was copied; it is copied again", self.chunk);
                Err(Error::new(ErrorKind::Busy, text))
            }
            (_, None) => {
                let text = format!("the copy of chunk {} is not there any more; it is copied again", self.chunk);
                Err(Error::new(ErrorKind::Busy, text))
            }
        }
    }

    /// Compares what both devices read of the ranges that the original keeps.
    async fn compare_kept(&self) -> Result<()> {
        match self.read_both().await? {
            Read::Same | Read::Unknown => Ok(()),
            Read::Differs(what) => Err(self.differs(&what)),
        }
    }

    /// Whether both devices read the same where the original keeps bytes. `Corrupt`: those of the original are damaged.
    pub async fn read_both(&self) -> Result<Read> {
        let mut read = Read::Same;
        for ranges in orders(self.kept(&self.from).await?.ranges) {
            let (original, copy) =
                tokio::join!(self.sums(&self.from, ranges.clone()), self.sums(&self.to, ranges.clone()));
            // A node of an older version has no sums: then lengths and kept ranges are what is compared.
            let (Some(original), Some(copy)) = (original?, copy?) else {
                read = Read::Unknown;
                continue;
            };
            self.check_whole(&original)?;
            if !copy.damaged.is_empty() || original.crc != copy.crc {
                let (start, end) =
                    (ranges.first().map_or(0, |range| range.0), ranges.last().map_or(0, |range| range.1));
                return Ok(Read::Differs(format!("its bytes from {start} to {end} are others, or damaged")));
            }
        }
        Ok(read)
    }

    /// Reads all that the original keeps. `Corrupt`: some of it is damaged. A node of an older version cannot say.
    pub async fn check_original(&self) -> Result<()> {
        for ranges in orders(self.kept(&self.from).await?.ranges) {
            if let Some(original) = self.sums(&self.from, ranges).await? {
                self.check_whole(&original)?;
            }
        }
        Ok(())
    }

    fn check_whole(&self, original: &SumsAnswer) -> Result<()> {
        let Some(first) = original.damaged.first() else { return Ok(()) };
        let text = format!(
            "bytes {}..{} of chunk {} on {} do not match their checksums; it was not copied; read another copy or restore them",
            first.offset,
            first.offset.saturating_add(first.length),
            self.chunk,
            self.from.shown()
        );
        Err(Error::new(ErrorKind::Corrupt, text))
    }

    /// The sums of these ranges on one of its devices. None: its node does not know the question.
    async fn sums(&self, handle: &DeviceHandle, ranges: Ranges) -> Result<Option<SumsAnswer>> {
        let range = |(start, end): (u64, u64)| Range { offset: start, length: end - start };
        let ranges = ranges.into_iter().map(range).collect();
        let ask = Sums { device: handle.id().0.into(), chunk: self.chunk.0.into(), ranges };
        let asked = async {
            match handle {
                DeviceHandle::Local(_) => self.node.sums(ask).await,
                DeviceHandle::Remote(far) => far.ask(&ask).await,
            }
        };
        let late = || {
            let text = format!("{} has not read chunk {} in time", handle.shown(), self.chunk);
            Err(Error::new(ErrorKind::Unreachable, text))
        };
        match timeout(FETCH_WAIT, asked).await.unwrap_or_else(|_| late()) {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let text = format!(
                    "bytes of chunk {} on {} went while they were compared; it is copied again",
                    self.chunk,
                    handle.shown()
                );
                Err(Error::new(ErrorKind::Busy, text))
            }
            // A node that keeps no metadata, or does not lead, takes what it does not know for a question of names. If this one leads no more, the
            // next question says so, too.
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Moved) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The copy is not what the original is.
    fn differs(&self, what: &str) -> Error {
        let text = format!(
            "the copy of chunk {} of group {} on {} is not what {} has: {what}; it is deleted, and the chunk copied again; no data is lost",
            self.chunk,
            self.group,
            self.to.shown(),
            self.from.shown()
        );
        self.node.log.say(log::Level::Warn, "copy", &text, &[]);
        Error::new(ErrorKind::Busy, text)
    }
}

/// Cuts ranges into lists of which each is one order's: `FETCH_MAX` bytes and `LIST_PAGE_MAX` ranges at the most.
fn orders(ranges: Ranges) -> Vec<Ranges> {
    let (mut orders, mut order, mut room) = (Vec::new(), Vec::new(), FETCH_MAX);
    for (mut start, end) in ranges {
        while start < end {
            let stop = end.min(start.saturating_add(room));
            order.push((start, stop));
            room -= stop - start;
            start = stop;
            if room == 0 || order.len() == LIST_PAGE_MAX {
                orders.push(std::mem::take(&mut order));
                room = FETCH_MAX;
            }
        }
    }
    orders.extend((!order.is_empty()).then_some(order));
    orders
}

#[cfg(test)]
mod tests {
    use super::orders;
    use base::limit::{FETCH_MAX, LIST_PAGE_MAX};

    /// Nothing is left out, and no order is too large.
    #[test]
    fn ranges_are_cut_into_orders() {
        assert!(orders(Vec::new()).is_empty() && orders(vec![(5, 5)]).is_empty());
        let cut = orders(vec![(10, 20), (30, FETCH_MAX + 40)]);
        assert_eq!(cut, [vec![(10, 20), (30, FETCH_MAX + 20)], vec![(FETCH_MAX + 20, FETCH_MAX + 40)]]);
        let many: Vec<_> = (0..2 * LIST_PAGE_MAX as u64 + 1).map(|at| (2 * at, 2 * at + 1)).collect();
        let cut = orders(many.clone());
        assert_eq!(cut.iter().map(Vec::len).collect::<Vec<_>>(), [LIST_PAGE_MAX, LIST_PAGE_MAX, 1]);
        assert_eq!(cut.concat(), many);
    }
}

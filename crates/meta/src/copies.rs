//! Copies of the tree: a keeper that lacks what is not in the log of the others any more gets the tree of one of them, in pages, and begins anew
//! behind it. Here is what they tell each other; `source` gives, `target` takes.

mod format;
mod source;
mod target;

pub use source::{PageJob, Source, pin};
pub use target::{CopyJob, CopyResult, Target, Wish};

use bytes::Bytes;
use quorum::{KeeperId, Stamp};

/// What one keeper tells another. It may be lost, late, or come twice.
#[derive(Clone, Debug, PartialEq)]
pub enum KeeperMessage {
    /// Of the log.
    Log(quorum::Message),
    /// Of a copy of the tree.
    Copy(CopyMessage),
}

/// What is told of a copy of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyMessage {
    /// Who says it.
    pub from: KeeperId,
    /// Which copy: drawn by whoever gets it.
    pub copy: u64,
    /// What.
    pub what: What,
}

/// What is said of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Asks for the page behind this key. Empty: for the first one, of the tree as it is now.
    Asks {
        /// The key.
        behind: Bytes,
        /// The tree has to have all groups up to this index at the least.
        least: u64,
    },
    /// A page.
    Page(Page),
    /// It is not to be had any more.
    Gone,
}

/// Some of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The key that it was asked behind.
    pub behind: Bytes,
    /// The group of the log from behind which a keeper with this tree asks for the log.
    pub front: Stamp,
    /// Nothing follows.
    pub is_last: bool,
    /// Keys and values, in the order of the keys.
    pub pairs: Vec<(Bytes, Bytes)>,
}

impl KeeperMessage {
    /// Who says it.
    pub fn from(&self) -> KeeperId {
        match self {
            KeeperMessage::Log(message) => message.from(),
            KeeperMessage::Copy(message) => message.from,
        }
    }
}

impl CopyMessage {
    /// Whether it is a page.
    pub fn is_page(&self) -> bool {
        matches!(self.what, What::Page(_))
    }
}

#[cfg(test)]
mod tests;

//! Looking and acting: what a change depends on is looked up first, and the store makes the change only if that is so still. If it is not,
//! everything is looked up again.

use crate::names::way::Way;
use crate::refusal::{RETRIABLE, Refusal};
use base::error::{Error, ErrorKind};
use client::{Looked, Seen};

/// How often something is looked up for one change. Each time somebody else was faster by less than a call, so nobody gets this far
/// unless directories are renamed or get other rights all the time.
const LOOKS_MAX: u32 = 64;

/// How often a whole tree is walked for one change; after that its top alone has to be what it was.
const WALKS_MAX: u32 = 4;

/// How often something was looked up.
#[derive(Default)]
pub(crate) struct Looks(u32);

impl Looks {
    /// What was looked up is otherwise by now: look again. Or the refusal, if that was often enough or the error is another one.
    pub fn again(&mut self, error: Error) -> Result<(), Refusal> {
        if error.kind() != ErrorKind::Stale {
            return Err(error.into());
        }
        self.0 += 1;
        if self.0 < LOOKS_MAX {
            return Ok(());
        }
        let text = format!("{}; that was so {LOOKS_MAX} times one after another: try again", error.text());
        Err(Refusal::new(RETRIABLE, text))
    }

    /// The store did not make a change for a reason that was looked for and is not there any more: ask it again, unless that was so often
    /// enough, or there is no reason to look for.
    pub fn unexplained(&mut self, error: Error) -> Result<(), Refusal> {
        let may_have_gone = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Exists | ErrorKind::Invalid);
        if may_have_gone && self.0 < WALKS_MAX {
            self.0 += 1;
            return Ok(());
        }
        self.again(error)
    }

    /// What a change relies on for which the tree below a path was judged: while others change directories all the time, on the empty
    /// ones alone.
    pub fn walked(&self, judged: Looked) -> Looked {
        let directories = if self.0 < WALKS_MAX { judged.directories } else { 0 };
        Looked { directories, ..judged }
    }
}

impl Way {
    /// What a change of what the path names relies on: everything that was found on the way to it.
    pub fn looked(&self) -> Looked {
        Looked { directories: self.version, seen: vec![self.seen()], ..Looked::default() }
    }

    /// What the path names, as it was found.
    pub fn seen(&self) -> Seen {
        match self.last() {
            Some(last) => Seen { inode: last.inode, version: Some(last.version) },
            None => Seen { inode: 0, version: None },
        }
    }
}

/// A change of two paths or more relies on everything that was found on the way to each.
pub(crate) fn looked(first: &Way, others: &[Seen]) -> Looked {
    let mut looked = first.looked();
    looked.seen.extend_from_slice(others);
    looked
}

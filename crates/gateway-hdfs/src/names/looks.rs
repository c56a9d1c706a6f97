//! Looking and acting: what a change depends on is looked up first, and the store makes the change only if that is so still. If it is not,
//! everything is looked up again.

use crate::names::resolved_path::ResolvedPath;
use crate::refusal::{RETRIABLE, Refusal};
use base::error::{Error, ErrorKind};
use base::session::SessionOver;
use client::{Looked, Seen};

/// How often something is looked up for one change. Each time somebody else was faster by less than a call, so nobody gets this far
/// unless directories are renamed or get other rights all the time.
const LOOKS_MAX: u32 = 64;

/// How often a whole tree is walked for one change; after that its top alone has to be what it was.
const WALKS_MAX: u32 = 4;

/// How often something was looked up.
#[derive(Default)]
pub(crate) struct Looks {
    looks: u32,
    /// How often a tree was walked for it.
    walks: u32,
}

/// The refusal of a change that found something else so often.
fn too_often(error: &Error) -> Refusal {
    let text = format!("{}; that was so {LOOKS_MAX} times one after another: try again", error.text());
    Refusal::new(RETRIABLE, text)
}

impl Looks {
    /// What was looked up is otherwise by now: look again. Or the refusal, if that was often enough or the error is another one.
    pub fn again(&mut self, error: Error) -> Result<(), Refusal> {
        if error.kind() != ErrorKind::Stale || SessionOver::is(&error) {
            return Err(error.into());
        }
        self.looks += 1;
        if self.looks < LOOKS_MAX { Ok(()) } else { Err(too_often(&error)) }
    }

    /// The store wants what is below a directory to be judged: walk, unless that was so often enough. Each time it is another directory that
    /// somebody put there meanwhile.
    pub fn unjudged(&mut self, error: &Error) -> Result<(), Refusal> {
        self.walks += 1;
        if self.walks < LOOKS_MAX { Ok(()) } else { Err(too_often(error)) }
    }

    /// The store did not make a change for a reason that was looked for and is not there any more: ask it again, unless that was so often
    /// enough, or there is no reason to look for.
    pub fn unexplained(&mut self, error: Error) -> Result<(), Refusal> {
        let may_have_gone = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Exists | ErrorKind::Invalid);
        if may_have_gone && self.looks < WALKS_MAX {
            self.looks += 1;
            return Ok(());
        }
        self.again(error)
    }

    /// What a change relies on for which the tree below a path was judged: while others change directories all the time, on the empty
    /// ones alone.
    pub fn walked(&self, judged: Looked) -> Looked {
        let directories = if self.walks <= WALKS_MAX { judged.directories } else { 0 };
        Looked { directories, ..judged }
    }
}

impl ResolvedPath {
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
pub(crate) fn looked(first: &ResolvedPath, others: &[Seen]) -> Looked {
    let mut looked = first.looked();
    looked.seen.extend_from_slice(others);
    looked
}

#[cfg(test)]
mod tests {
    use super::{LOOKS_MAX, Looks, WALKS_MAX};
    use crate::refusal::{ACCESS_CONTROL, RETRIABLE, Refusal};
    use base::error::{Error, ErrorKind};
    use base::id::SessionId;
    use base::permission::Denied;
    use base::session::SessionOver;
    use client::Looked;

    /// Nobody goes on for ever: neither when what was looked up is always otherwise, nor when it is always another tree. The first walks hold only while
    /// no directory changes. When the session is over nobody looks again.
    #[test]
    fn looks_end() {
        let stale = || Error::new(ErrorKind::Stale, "it has changed");
        let below = Error::from(Denied::Below { path: "/d".to_string() });
        let class = |refused: Result<(), Refusal>| refused.map_err(|refusal| refusal.class);
        let mut looks = Looks::default();
        let counted = (0..1000).take_while(|_| looks.again(stale()).is_ok()).count() as u32;
        assert_eq!((counted, class(looks.again(stale()))), (LOOKS_MAX - 1, Err(RETRIABLE)));
        let mut looks = Looks::default();
        let judged = Looked { directories: 7, ..Looked::default() };
        let mut relied = 0;
        let counted = (0..1000).take_while(|_| {
            let goes_on = looks.unjudged(&below).is_ok();
            relied += u32::from(goes_on && looks.walked(judged.clone()).directories == 7);
            goes_on
        });
        assert_eq!((counted.count() as u32, relied), (LOOKS_MAX - 1, WALKS_MAX));
        assert_eq!(class(looks.unjudged(&below)), Err(RETRIABLE));
        let mut looks = Looks::default();
        assert_eq!(class(looks.again(SessionOver { session: SessionId(1) }.into())), Err(RETRIABLE));
        assert_eq!(class(looks.again(Denied::Giver { user: "bob".to_string() }.into())), Err(ACCESS_CONTROL));
    }
}

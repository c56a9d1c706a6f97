//! The directory that a client has for itself: which of its names it tries next, and what the answers to its calls say of the file there,
//! whichever protocol they came by.

use super::oracle::{Broken, Check, Promise, Stand};
use super::scene::{Scene, nothing_done};
use base::env::Random;
use base::error::{Error, ErrorKind, Result};
use sim::random::SimRandom;
use std::sync::Arc;

/// A directory, and whose it is.
pub struct Directory {
    scene: Arc<Scene>,
    random: SimRandom,
    /// Its client.
    who: String,
    pub path: String,
    /// Names that it has.
    names: u64,
}

/// A rename that is asked for: the file of `tag`, and what was at the new name before.
pub struct Renaming {
    pub from: String,
    pub to: String,
    tag: u64,
    before: Stand,
}

impl Directory {
    /// A directory with so many names.
    pub fn new(scene: Arc<Scene>, random: &SimRandom, who: &str, path: &str, names: u64) -> Directory {
        Directory { scene, random: random.fork("names"), who: who.to_string(), path: path.to_string(), names }
    }

    /// A path, and what stands there for certain.
    pub fn certain_path(&self) -> Option<(String, Stand)> {
        let path = format!("{}/f{}", self.path, self.random.below(self.names));
        let stand = self.scene.oracle().certain(&path)?;
        Some((path, stand))
    }

    /// A path at which a file stands for certain.
    pub fn certain_file(&self) -> Option<(String, u64)> {
        (0..self.names).find_map(|_| self.certain_path().and_then(|(path, stand)| Some((path, stand?))))
    }

    /// What is wrong when a file is not found.
    pub fn gone(&self, what: &str, path: &str, tag: u64, error: &Error) -> Broken {
        let promise = self.scene.oracle().promise(tag);
        Broken(format!("{}: {what} {path}: file {tag} ({promise:?}) is not there: {error}", self.who))
    }

    /// A call failed that was to make a file where `stand` was. What is there now is what the error says.
    pub fn not_made(&self, path: &str, stand: Stand, error: &Error) -> Check<()> {
        if error.kind() == ErrorKind::Exists {
            return Err(Broken(format!("{}: create {path}: nothing should be there: {error}", self.who)));
        }
        if nothing_done(error) {
            self.scene.oracle().becomes(path, stand);
        }
        Ok(())
    }

    /// A file was opened to go on at its end.
    pub fn opened_at(&self, path: &str, tag: u64, length: u64) -> Check<()> {
        let mut oracle = self.scene.oracle();
        let promise = oracle.promise_mut(tag);
        if length < promise.written.max(promise.synced) || length > promise.handed {
            return Err(Broken(format!("{path}: {length} bytes long when opened to append, {promise:?}")));
        }
        // Nobody else writes it any more: what is beyond this will never be there.
        promise.handed = length;
        oracle.is_opened(tag);
        Ok(())
    }

    /// A file was closed by somebody else than its writer.
    pub fn recovered(&self, path: &str, tag: u64, length: u64) -> Check<()> {
        let mut oracle = self.scene.oracle();
        let promise = oracle.promise_mut(tag);
        if length < promise.written.max(promise.synced) || length > promise.handed {
            return Err(Broken(format!("{path}: {length} bytes long when it was recovered, {promise:?}")));
        }
        *promise = Promise { handed: length, written: length, synced: length };
        oracle.all_is_synced(tag);
        Ok(())
    }

    /// A file was closed by its writer.
    pub fn closed(&self, tag: u64, length: u64) {
        {
            let mut oracle = self.scene.oracle();
            *oracle.promise_mut(tag) = Promise { handed: length, written: length, synced: length };
            oracle.all_is_synced(tag);
        }
        self.scene.acknowledged(&self.random);
    }

    /// Everything up to here was synced.
    pub fn synced(&self, tag: u64, position: u64) {
        {
            let mut oracle = self.scene.oracle();
            let promise = oracle.promise_mut(tag);
            (promise.written, promise.synced) = (position, position);
            oracle.all_is_synced(tag);
        }
        self.scene.acknowledged(&self.random);
    }

    /// An hflush up to here was acknowledged. False: it promises nothing. After a power loss (there were `losses` when the file was opened)
    /// one with nothing to send is answered by the client alone: it promises what the one before it did, which the power took.
    pub fn hflushed(&self, tag: u64, position: u64, losses: u64) -> bool {
        let mut oracle = self.scene.oracle();
        let promised = oracle.losses_of(tag) == losses;
        if promised {
            let promise = oracle.promise_mut(tag);
            promise.written = promise.written.max(position);
        }
        promised
    }

    /// A file is to be deleted.
    pub fn deleting(&self) -> Option<(String, u64)> {
        let (path, tag) = self.certain_file()?;
        self.scene.oracle().may_become(&path, None);
        Some((path, tag))
    }

    /// It was, or not.
    pub fn deleted(&self, path: &str, tag: u64, result: Result<()>) -> Check<()> {
        match result {
            Ok(()) => self.scene.oracle().becomes(path, None),
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(self.gone("delete", path, tag, &error)),
            Err(error) if nothing_done(&error) => self.scene.oracle().becomes(path, Some(tag)),
            Err(_) => {}
        }
        Ok(())
    }

    /// A file is to be renamed, in place of what has the name.
    pub fn renaming(&self) -> Option<Renaming> {
        let ((from, tag), (to, before)) = (self.certain_file()?, self.certain_path()?);
        // Eight bytes tell files apart.
        if from == to || self.scene.oracle().promise(tag).synced < 8 {
            return None;
        }
        self.scene.oracle().rename_begins(&from, &to, tag);
        Some(Renaming { from, to, tag, before })
    }

    /// It was, or not.
    pub fn renamed(&self, Renaming { from, to, tag, before }: &Renaming, result: Result<()>) -> Check<()> {
        match result {
            Ok(()) => self.scene.oracle().rename_ends(from, to, *tag, *before, true),
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(self.gone("rename", from, *tag, &error)),
            Err(error) if nothing_done(&error) => self.scene.oracle().rename_ends(from, to, *tag, *before, false),
            Err(_) => {}
        }
        Ok(())
    }
}

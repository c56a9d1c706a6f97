//! Copies of the tree between the stores of several keepers: what a leader has not in its log any more, another one gets from its tree.

use super::{Effect, Store};
use crate::copies::{self, CopyMessage, CopyResult, KeeperMessage, What, Wish};
use base::error::{Error, ErrorKind};
use base::unit::Time;
use bytes::Bytes;
use quorum::KeeperId;

impl<T> Store<T> {
    /// Whether it gets a copy of another keeper's tree, because it lacks more than that one's log has.
    pub fn copies(&self) -> bool {
        self.target.is_under_way()
    }

    /// What became of a page of a copy. When it was the last one this store ends (`Effect::Copied`).
    pub fn copied(&mut self, now: Time, done: CopyResult) {
        self.state.now = now;
        match self.target.written(now, done) {
            // A new leader may have had meanwhile what was lacking, and this one's tree has more than the copy, of which the log is not there any more.
            Ok(Some(front)) if front.index > self.log.committed_index() && self.log.failure().is_none() => {
                self.log.fail(self.elsewhere());
                self.effects.push(Effect::Copied);
            }
            Ok(_) => {}
            Err(error) => {
                self.failures.insert("copying the tree of another keeper", error);
            }
        }
        self.follow_log();
    }

    pub(super) fn receive_copy(&mut self, message: CopyMessage) {
        let CopyMessage { from, copy, what } = message;
        match what {
            What::Asks { behind, least } if self.log.is_other(from) => self.give(from, copy, behind, least),
            What::Asks { .. } => {}
            what => self.target.receive(self.state.now, CopyMessage { from, copy, what }),
        }
    }

    /// Reads a page of a copy, or begins one: of a tree that has all groups up to `least`.
    fn give(&mut self, to: KeeperId, copy: u64, behind: Bytes, least: u64) {
        let now = self.state.now;
        if !self.source.has(to, copy) {
            if !behind.is_empty() || self.source.has_ended(to, copy) {
                let gone = CopyMessage { from: self.log.own(), copy, what: What::Gone };
                return self.effects.push(Effect::Send { to, message: KeeperMessage::Copy(gone) });
            }
            // What is being merged lets go of what would have to follow the copy: it waits for that.
            if self.state.layers.is_merging() {
                self.copies_asked.retain(|(other, ..)| *other != to);
                return self.copies_asked.push((to, copy, least));
            }
            if self.log.failure().is_some() {
                return;
            }
            match copies::pin(&self.state.layers.database()) {
                Ok((table, sequence)) => {
                    let front = self.log.group_at(sequence);
                    if front.index < least {
                        return self.hurry(least);
                    }
                    self.copies_asked.retain(|(other, ..)| *other != to);
                    self.source.give(now, to, copy, (table, front));
                    self.log.hold(self.source.front());
                }
                Err(error) => {
                    self.failures.insert("copying the tree for another keeper", error);
                }
            }
        }
        let page = self.source.page(now, self.log.own(), (to, copy), behind);
        self.effects.extend(page.map(Effect::Page));
    }

    /// Somebody waits until the tree has all groups up to this index.
    fn hurry(&mut self, least: u64) {
        self.merges_soon = true;
        if self.part.leads() {
            self.log.go_on_to(self.state.now, least);
        }
    }

    /// Nothing is being merged now: gives the copies that were asked for meanwhile.
    pub(super) fn give_what_was_asked(&mut self) {
        for (to, copy, least) in std::mem::take(&mut self.copies_asked) {
            self.give(to, copy, Bytes::new(), least);
        }
    }

    pub(super) fn tick_copies(&mut self) {
        let now = self.state.now;
        self.source.tick(now, |to, front| self.log.has_nearly_all(to, front.index));
        self.target.tick(now);
        self.log.hold(self.source.front());
    }

    /// Where the log runs short of room it is not kept for copies: changes come first.
    pub(super) fn let_copies_go(&mut self) {
        if self.source.front().is_some() && self.log.wants_room() {
            let are_asked_for = self.source.forget();
            self.log.hold(None);
            if !are_asked_for {
                return;
            }
            let text = "changes come faster than a keeper that lacks some gets a copy of the tree; nothing is lost: its copy is begun anew";
            self.failures.insert("copying the tree for another keeper", Error::new(ErrorKind::Busy, text));
        }
    }

    pub(super) fn take_wishes(&mut self) {
        for wish in self.target.take_wishes() {
            self.effects.push(match wish {
                Wish::Send { to, message } => Effect::Send { to, message: KeeperMessage::Copy(message) },
                Wish::Copy(job) => Effect::Copy(job),
            });
        }
    }
}

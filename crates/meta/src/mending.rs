//! A keeper, one of several, that cannot open its store: its log lacks what it had said it has, or its tree does not read. It says nothing of the log, and
//! votes for nobody, until it has a copy of another one's tree that has all that it ever said it has: then it owes nothing any more.

use crate::copies::{CopyResult, KeeperMessage, Target, What, Wish};
use crate::settings::Settings;
use crate::store::Effect;
use base::disk::Disk;
use base::error::{Error, ErrorKind, Result};
use base::unit::Time;
use quorum::{KeeperId, promised};
use std::sync::Arc;
use std::time::Duration;

/// Another keeper is asked when one has said nothing for so long; one that has given pages is waited for longer, as all begins anew with another one.
const PATIENCE: Duration = Duration::from_secs(3);
const PATIENCE_WITH_PAGES: Duration = Duration::from_secs(60);

/// The others are asked as often.
const EVERY: Duration = Duration::from_millis(500);

/// A keeper that mends itself.
pub struct Mending {
    target: Target,
    others: Vec<KeeperId>,
    /// Which of them is asked.
    asks: usize,
    /// When that one was asked first, or said something last.
    heard: Time,
    patience: Duration,
    ticked: Option<Time>,
    is_whole: bool,
    /// It said so.
    ended: bool,
}

impl Mending {
    /// Begins to mend the keeper that has this disk, which could not be opened because of `why`: that again, if it has no others to mend from, or must not be
    /// mended: nobody knows what it voted, it is another keeper's, or its disk cannot be read. Blocks. Changes nothing.
    pub fn open(disk: &mut dyn Disk, settings: &Settings, now: Time, why: Error) -> Result<Mending> {
        let Some(seats) = settings.seats.as_ref().filter(|_| why.kind() == ErrorKind::Corrupt) else { return Err(why) };
        let others: Vec<KeeperId> = seats.voters.iter().copied().filter(|voter| *voter != seats.own).collect();
        let least = promised(disk, (seats.store, seats.own));
        let Some(least) = least.ok().filter(|_| !others.is_empty()) else { return Err(why) };
        let target = Target::new(seats.own, least, Arc::clone(&settings.random), settings.planted);
        Ok(Mending {
            target,
            others,
            asks: 0,
            heard: now,
            patience: PATIENCE,
            ticked: None,
            is_whole: false,
            ended: false,
        })
    }

    /// A message of another keeper came. What is not of the copy is not for this one now.
    pub fn receive(&mut self, now: Time, message: KeeperMessage) {
        let KeeperMessage::Copy(message) = message else { return };
        if message.from == self.others[self.asks] {
            match message.what {
                What::Page(_) => (self.heard, self.patience) = (now, PATIENCE_WITH_PAGES),
                What::Gone => self.patience = PATIENCE,
                What::Asks { .. } => {}
            }
        }
        self.target.receive(now, message);
    }

    /// Lets time pass.
    pub fn tick(&mut self, now: Time) {
        if self.is_whole {
            return;
        }
        self.ticked = Some(now);
        if now >= self.heard.after(self.patience) && !self.target.is_writing() {
            (self.asks, self.heard, self.patience) = ((self.asks + 1) % self.others.len(), now, PATIENCE);
        }
        self.target.needs(now, self.others[self.asks]);
        self.target.tick(now);
    }

    /// When `tick` has something to do; it may lie in the past.
    pub fn next_tick(&self) -> Option<Time> {
        (!self.is_whole).then(|| self.ticked.map_or(Time::ZERO, |ticked| ticked.after(EVERY)))
    }

    /// What became of a page of the copy; why it could not be written. Then it is begun anew.
    pub fn copied(&mut self, now: Time, done: CopyResult) -> Result<()> {
        self.heard = now;
        self.is_whole |= self.target.written(now, done)?.is_some();
        Ok(())
    }

    /// What it wants done since this was asked: messages, pages to be written, and in the end that the copy takes the place of the tree (`Effect::Copied`).
    pub fn take_effects<T>(&mut self) -> Vec<Effect<T>> {
        let wishes = self.target.take_wishes().into_iter().map(|wish| match wish {
            Wish::Send { to, message } => Effect::Send { to, message: KeeperMessage::Copy(message) },
            Wish::Copy(job) => Effect::Copy(job),
        });
        let ends = self.is_whole && !std::mem::replace(&mut self.ended, self.is_whole);
        wishes.chain(ends.then_some(Effect::Copied)).collect()
    }
}

//! A group ends before it is full, or with its file: its replicas are sealed, and those that lack something of it are named, so that the store
//! strikes them out with the change that closes the group.

use super::append::perform;
use super::group::Slot;
use super::{Flow, explain};
use crate::columns::{Head, together};
use base::ended::{Ending, Has, Known, ending};
use base::error::{Error, ErrorKind, Result};
use base::id::DeviceId;
use base::planted::Planted;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use net::message::{chunk, file};
use std::collections::BTreeSet;
use tokio::time::timeout;

/// How the replicas of a group ended.
pub(super) struct Ended {
    /// All are sealed with all of it: none of them lies on a device that is gone.
    pub(super) all_sealed: bool,
    /// How long the group is: bytes of it that outlive its devices, up to the first that does not.
    pub(super) length: u64,
}

/// Which of several errors a writer is told: that somebody else has the file says more than that a node is silent.
pub(super) fn worst<'a>(errors: impl Iterator<Item = &'a Error>) -> Option<&'a Error> {
    errors.min_by_key(|error| error.kind() != ErrorKind::Stale)
}

impl Flow {
    /// Whether the column of this replica has others.
    pub(super) fn has_beside(&self, slot: usize) -> bool {
        self.group.beside(slot).next().is_some()
    }

    /// Whether a replica takes bytes, as far as is known.
    pub(super) fn is_well(&self, slot: usize) -> bool {
        self.group.slots[slot].left.is_none() && self.refusals.gone(self.group.device(slot)).is_none()
    }

    /// Whether the column of this replica has another one that is well.
    pub(super) fn has_another(&self, slot: usize) -> bool {
        self.group.beside(slot).any(|beside| self.is_well(beside))
    }

    /// The group goes on, and ends, without this replica.
    pub(super) fn leave(&mut self, slot: usize, error: Error) {
        self.group.slots[slot].left.get_or_insert(error);
    }

    /// Whether a group can go on without a replica that says this when it is asked again, because others of its column do not: its node has lost
    /// what it had not synced, its chunk is damaged or fenced, or it cannot be reached.
    pub(super) fn is_asked_again(&self, slot: usize, error: &Error) -> bool {
        let is_of_one_replica = matches!(
            error.kind(),
            ErrorKind::Stale
                | ErrorKind::NotFound
                | ErrorKind::Corrupt
                | ErrorKind::Io
                | ErrorKind::Unreachable
                | ErrorKind::Refused
                | ErrorKind::Protocol
        );
        is_of_one_replica && self.has_beside(slot)
    }

    /// Asks replicas that are well once more for what they refused, in its order: an append that overtook another one would leave them without the
    /// rest of the group, though they are as good as the others.
    pub(super) async fn ask_well_ones(&mut self) {
        let mut refused = std::mem::take(&mut self.refused);
        refused.sort_by_key(|(append, _)| (append.number, append.slot));
        let mut behind = BTreeSet::new();
        for (append, _) in refused {
            let slot = append.slot;
            let takes_more = self.is_well(slot) && !self.refusals.has_refused(self.group.device(slot));
            if !takes_more || behind.contains(&slot) || self.reach_in_order(slot).await.is_err() {
                behind.insert(slot);
                continue;
            }
            let (link, limit) = (self.link(slot), self.limit_alone(slot));
            let (append, result) = perform(link, append, limit).await;
            match result {
                Ok(_) => self.acknowledged(&append),
                Err(_) => drop(behind.insert(slot)),
            }
        }
    }

    /// Seals the replicas at what they have acknowledged, unless they have nothing or were sealed with their last bytes, and says how the group
    /// ends by that. Every append is answered. Those that are gone stay as they are; if a column has no other what is acknowledged of it has to be
    /// synced, or it may be lost, and the writer has let go of it.
    pub(super) async fn end_slots(&mut self) -> Result<Ended> {
        let unsealed = self.group.slots.iter().enumerate().filter(|(_, slot)| slot.acknowledged > 0 && !slot.sealed);
        let unsealed: Vec<usize> = unsealed.map(|(slot, _)| slot).collect();
        let sealed = together(unsealed.iter().map(|slot| self.seal(*slot))).await;
        for (slot, asked) in unsealed.into_iter().zip(sealed) {
            match asked {
                Ok(()) => self.group.slots[slot].sealed = true,
                // Whatever it says, others of its column may not say it.
                Err(error) if self.is_gone(slot, &error) || self.has_beside(slot) => {
                    self.note_refusal(slot, &error);
                    self.leave(slot, error);
                }
                Err(error) => return Err(explain(error, &self.path)),
            }
        }
        self.seal_last_ones().await;
        self.check_left()?;
        let known: Vec<(usize, Known)> = (0..self.group.slots.len()).map(|slot| self.known(slot)).collect();
        match ending(self.group.layout.stripe(), self.acknowledged_to, &known) {
            Ending::Ends(end) if end.length >= self.acknowledged_to || self.leaves_unsynced() => {
                self.short = self.lacking(&end.parts);
                let all_sealed = self.short.is_empty() && self.group.slots.iter().all(|slot| slot.left.is_none());
                Ok(Ended { all_sealed, length: end.length })
            }
            Ending::Ends(end) => Err(self.lost(end.length)),
            // Whatever was sealed has all that it ever answered, and what is acknowledged all have answered.
            Ending::Waits(_) => Err(self.lost(0)),
        }
    }

    fn leaves_unsynced(&self) -> bool {
        self.client.planted == Some(Planted::UnsyncedLeftBehind)
    }

    /// Seals one replica. One that is known to be gone is not asked.
    async fn seal(&self, slot: usize) -> Result<()> {
        let has = &self.group.slots[slot];
        if let Some(gone) = has.left.as_ref().or_else(|| self.refusals.gone(self.group.device(slot))) {
            return Err(gone.clone());
        }
        let call = self.ask_to_seal(slot, has.acknowledged);
        match self.limit_alone(slot) {
            None => call.await,
            Some(limit) => limit.keep(call, self.group.device(slot)).await,
        }
    }

    async fn ask_to_seal(&self, slot: usize, length: u64) -> Result<()> {
        let Head { device, chunk } = self.group.slots[slot].head;
        let ask = chunk::Seal { device, chunk, generation: self.generation, length };
        self.client.ask_at(device, &ask).await.map(drop)
    }

    /// Seals the last replicas of a column, those that were left for their silence while none of the others is sealed. A replica is silent because
    /// others answered; when these are gone or silent themselves, it is waited for like one that is alone, until another one of them is sealed.
    async fn seal_last_ones(&mut self) {
        let is_silent = |has: &Slot| has.left.as_ref().is_some_and(|error| error.kind() == ErrorKind::Unreachable);
        let is_last =
            |slot: usize| self.group.of(self.group.slots[slot].column).all(|of| self.group.slots[of].left.is_some());
        let silent = self.group.slots.iter().enumerate().filter(|(_, has)| has.acknowledged > 0 && is_silent(has));
        let silent = silent.map(|(slot, _)| slot).filter(|slot| self.has_beside(*slot) && is_last(*slot));
        let silent: Vec<usize> = silent.collect();
        let answers = self.sealed_of(&silent).await;
        for (slot, asked) in answers {
            match asked {
                Ok(length) => {
                    let device = self.group.slots[slot].head.device;
                    let beside = self.client.session.routes.beside(device);
                    let beside = beside.into_iter().map(|beside| DeviceId(beside.value()));
                    self.refusals.is_heard_again(self.group.device(slot), beside);
                    let has = &mut self.group.slots[slot];
                    (has.acknowledged, has.synced, has.sealed, has.left) = (length, length, true, None);
                }
                // Somebody else has the file: that says more than its silence.
                Err(error) if error.kind() == ErrorKind::Stale => self.group.slots[slot].left = Some(error),
                Err(_still_silent) => (),
            }
        }
    }

    /// Seals these where they end. What those answered that did before another one of their column made up for them.
    async fn sealed_of(&self, silent: &[usize]) -> Vec<(usize, Result<u64>)> {
        let ask = async |slot: usize| (slot, self.seal_where_it_ends(slot).await);
        let mut asked: FuturesUnordered<_> = silent.iter().map(|slot| ask(*slot)).collect();
        let (mut left, mut answers) = (silent.to_vec(), Vec::new());
        while !left.is_empty() {
            let is_made_up_for = |slot: &usize| {
                let column = self.group.slots[*slot].column;
                answers.iter().any(|(other, sealed): &(usize, Result<u64>)| {
                    sealed.is_ok() && self.group.slots[*other].column == column
                })
            };
            let answer = match left.iter().all(is_made_up_for) {
                false => asked.next().await,
                true => timeout(self.patience, asked.next()).await.unwrap_or_default(),
            };
            let Some((slot, sealed)) = answer else { break };
            left.retain(|left| *left != slot);
            answers.push((slot, sealed));
        }
        answers
    }

    /// Seals a replica that was not waited for. It may have more than it told: appends of which nobody heard, the last of them perhaps in part. Up to
    /// where it has whole ones.
    async fn seal_where_it_ends(&self, slot: usize) -> Result<u64> {
        let Slot { head: Head { device, chunk }, column, acknowledged, .. } = self.group.slots[slot];
        let sent = self.unacknowledged.iter().filter(|sent| sent.column == column);
        let ends: Vec<u64> = sent.map(|sent| self.group.layout.stripe().column_length(sent.end, column)).collect();
        // An append that is on its way still may come in between.
        for _ in 0..=ends.len() {
            let known = self.client.ask_at(device, &chunk::Stat { device, chunk, start: false }).await?;
            if known.generation > self.generation {
                return Err(Error::new(ErrorKind::Stale, "another writer has fenced the chunk"));
            }
            if known.length < acknowledged {
                break;
            }
            match self.ask_to_seal(slot, known.length).await {
                Err(error) if error.kind() == ErrorKind::Stale => (),
                Err(error) => return Err(error),
                Ok(()) => {
                    let whole = ends.iter().copied().filter(|end| *end <= known.length).max();
                    return Ok(whole.unwrap_or(acknowledged).max(acknowledged));
                }
            }
        }
        let text = format!("device {} does not have what was written to it", DeviceId(device.value()));
        Err(Error::new(ErrorKind::NotFound, text))
    }

    /// A column all of whose replicas were left ends with what is synced if their devices are gone; if they refuse this writer, it has failed.
    fn check_left(&self) -> Result<()> {
        let is_left = |slot: usize| self.group.slots[slot].left.as_ref();
        let refusing = (0..self.group.slots.len()).filter_map(|slot| {
            let error = is_left(slot).filter(|error| !self.is_gone(slot, error))?;
            self.group.beside(slot).all(|beside| is_left(beside).is_some()).then_some(error)
        });
        match worst(refusing) {
            None => Ok(()),
            Some(error) => Err(explain(error.clone(), &self.path)),
        }
    }

    /// What is known of a replica when all that can be sealed are.
    fn known(&self, slot: usize) -> (usize, Known) {
        let has = &self.group.slots[slot];
        let of = &self.group.slots[self.group.of(has.column)];
        let known = match has.left {
            None => Known::Answered { length: has.acknowledged, sound: true },
            Some(_) if of.iter().any(|other| other.left.is_none()) => Known::Unanswered,
            // None is named for less than it has if each counts with what is synced on all.
            Some(_) => {
                let length = of.iter().map(|other| other.synced).min().unwrap_or_default();
                Known::Answered { length, sound: true }
            }
        };
        (has.column, known)
    }

    /// The replicas that lack something of the group that has ended.
    fn lacking(&self, parts: &[Has]) -> Vec<file::Replica> {
        if self.client.planted == Some(Planted::LaggardNotStruck) {
            return Vec::new();
        }
        let lacking = self.group.slots.iter().zip(parts).filter(|(_, has)| **has != Has::All);
        lacking.map(|(slot, _)| file::Replica { device: slot.head.device, chunk: slot.head.chunk }).collect()
    }

    /// What was acknowledged and not synced when a device went: from this byte of the group on.
    fn lost(&self, safe: u64) -> Error {
        let mut left = self.group.slots.iter().filter_map(|slot| Some((slot.head.device, slot.left.as_ref()?)));
        let Some((device, error)) = left.next() else {
            let text =
                format!("the replicas of {} have less than they acknowledged; this is a fault in Stormwell", self.path);
            return Error::new(ErrorKind::Protocol, text);
        };
        let text = format!(
            "bytes {} to {} of {} were written and not yet synced when device {} went, and may be lost; all before them are safe; write the \
             file anew, or see how long it is when the device is back and append to that ({})",
            self.start.saturating_add(safe),
            self.start.saturating_add(self.acknowledged_to),
            self.path,
            DeviceId(device.value()),
            error.text()
        );
        Error::new(error.kind(), text)
    }
}

//! What was refused goes out again: to where it was meant to go, or elsewhere because its device is full or gone.

use super::append::{Append, Part, Sent, perform};
use super::ended::{Ended, worst};
use super::refusals::{Next, Reason};
use super::{Flow, Marker, explain, patience};
use crate::room::Pauses;
use base::error::{Error, ErrorKind, Result};
use base::id::DeviceId;
use base::planted::Planted;
use base::policy::Level;
use bytes::Bytes;
use net::Link;
use net::message::chunk;
use std::collections::VecDeque;
use tokio::sync::OwnedSemaphorePermit;

/// What goes out again in the next group because the one before ended early: everything behind its first byte that is missing.
#[derive(Default)]
pub(super) struct Again {
    bytes: VecDeque<(Bytes, Option<OwnedSemaphorePermit>)>,
    /// Who waits for some of them.
    pub(super) markers: VecDeque<Marker>,
}

impl Again {
    /// Nothing goes out again, and nobody waits for it.
    fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.markers.is_empty()
    }

    /// Nothing of it is wanted any more.
    pub(super) fn forget(&mut self) {
        self.bytes.clear();
    }
}

impl Flow {
    /// Waits until every append is answered, and asks again for those that were refused for a reason that passes. If a device took no more
    /// the present group may be another one afterwards.
    pub(super) async fn all_answered(&mut self) -> Result<()> {
        loop {
            while let Some(outcome) = self.next_outcome().await {
                self.on_append_result(outcome);
            }
            self.check()?;
            if self.is_refused_by_another() || self.insist_on_refused().await? {
                self.go_on_elsewhere().await?;
            }
            if self.refusals.is_last_question() {
                self.go_on_elsewhere().await?;
            }
            if self.refused.is_empty() && !self.send_again().await? {
                return self.check();
            }
        }
    }

    /// Whether this error says that a device takes no more of this file while others may: its disk failed, or its node cannot be reached and
    /// is not the one that keeps the metadata. Where nothing is acknowledged yet it may also be none of the cluster's.
    pub(super) fn is_gone(&self, slot: usize, error: &Error) -> bool {
        let slot = &self.group.slots[slot];
        let is_lost = error.kind() == ErrorKind::NotFound && slot.acknowledged > 0;
        !is_lost && self.client.session.routes.is_gone(slot.head.device, error)
    }

    /// Whether a replica took no more, while those beside it may have, or a device that had not refused anything since the acknowledged bytes
    /// grew last. Then others may.
    fn is_refused_by_another(&mut self) -> bool {
        let refused = std::mem::take(&mut self.refused);
        let is_new = refused.iter().map(|(append, error)| {
            let is_left = self.group.slots[append.slot].left.is_some();
            self.note_refusal(append.slot, error) || is_left
        });
        let is_new = is_new.fold(false, |any, new| any | new);
        self.refused = refused;
        is_new
    }

    /// Remembers that the device of a replica takes no more, if this error says so. Whether that is new.
    pub(super) fn note_refusal(&mut self, slot: usize, error: &Error) -> bool {
        let (device, now) = (self.group.device(slot), self.client.session.clock.now());
        let is_gone = self.is_gone(slot, error);
        // One that others were heard beside may be gone also if its node alone keeps the metadata, and does that.
        let is_silent = error.kind() == ErrorKind::Unreachable && self.group.slots[slot].left.is_some();
        if !is_gone && !is_silent {
            return error.kind() == ErrorKind::Full && self.refusals.note(device, Reason::Full, now);
        }
        let is_new = self.refusals.note(device, Reason::Gone(error.clone()), now);
        if is_new && is_gone && error.kind() == ErrorKind::Unreachable && !self.is_heard(slot) {
            // The other devices of its node cannot be reached either; to find that out of each would take as long again.
            for beside in self.client.session.routes.beside(self.group.slots[slot].head.device) {
                self.refusals.note(DeviceId(beside.value()), Reason::Gone(error.clone()), now);
            }
        }
        is_new
    }

    /// Whether the node of a replica that others are beside was heard a moment ago: then a device of it is silent, and those beside it may be well.
    fn is_heard(&self, slot: usize) -> bool {
        let slot_of = &self.group.slots[slot];
        // It may have been asked on another link than its appends go over.
        let of_appends = slot_of.link.as_ref().and_then(Link::heard);
        let heard = of_appends.max(self.client.session.routes.heard(slot_of.head.device));
        let now = self.client.session.clock.now();
        self.has_beside(slot) && heard.is_some_and(|heard| now.since(heard) < patience::FIRST)
    }

    /// Asks again for what was refused, in its order, until a device refuses it that others may be tried instead of. True if the group is to be
    /// ended without replicas that refuse it for good: others of their columns do not.
    async fn insist_on_refused(&mut self) -> Result<bool> {
        let mut refused = std::mem::take(&mut self.refused);
        refused.sort_by_key(|(append, _)| (append.number, append.slot));
        let mut refused = refused.into_iter();
        let mut for_good: Vec<(Append, Error)> = Vec::new();
        while let Some((append, error)) = refused.next() {
            if for_good.iter().any(|(other, _)| other.slot == append.slot) {
                for_good.push((append, error));
                continue;
            }
            let slot = append.slot;
            match self.retry_until_room(append, error).await? {
                None => (),
                Some((append, error)) if self.has_beside(slot) && !self.is_passing(slot, &error) => {
                    for_good.push((append, error));
                }
                Some(elsewhere) => {
                    self.refused.push(elsewhere);
                    self.refused.extend(for_good);
                    self.refused.extend(refused);
                    return Ok(false);
                }
            }
            self.check()?;
        }
        if for_good.is_empty() {
            return Ok(false);
        }
        for (append, error) in &for_good {
            let is_well = |slot| self.is_well(slot) && !for_good.iter().any(|(other, _)| other.slot == slot);
            if !self.group.beside(append.slot).any(is_well) {
                let error = worst(for_good.iter().map(|(_, error)| error)).unwrap_or(error);
                return Err(explain(error.clone(), &self.path));
            }
        }
        for_good.iter().for_each(|(append, error)| self.leave(append.slot, error.clone()));
        self.refused = for_good;
        Ok(true)
    }

    /// Asks again for an append all of whose predecessors are there, as long as only room is missing, or its device. It comes back if
    /// that is not to be waited for, or if the replica refuses it for good and is not the only one.
    async fn retry_until_room(&mut self, mut append: Append, mut error: Error) -> Result<Option<(Append, Error)>> {
        let mut pauses = Pauses::default();
        loop {
            if self.is_passing(append.slot, &error) {
                let device = DeviceId(append.ask.device.value());
                match self.refusals.next(device, self.client.session.clock.now()) {
                    Next::Wait => pauses.rest().await,
                    Next::Elsewhere => return Ok(Some((append, error))),
                    Next::GiveUp => {
                        let only = self.refusals.only_full();
                        self.progress.send_modify(|written| written.full = only);
                        return Err(explain(error, &self.path));
                    }
                }
            }
            let mut result = self.reach_in_order(append.slot).await.map(|()| chunk::AppendAnswer::default());
            if result.is_ok() {
                let (link, limit) = (self.link(append.slot), self.limit_alone(append.slot));
                (append, result) = perform(link, append, limit).await;
            }
            match result {
                Err(again) if self.is_passing(append.slot, &again) => error = again,
                Err(again) if again.kind() == ErrorKind::Unsupported && append.part.plain.is_some() => {
                    append.part = Part::plain(append.part.plain.take().unwrap_or_default(), None);
                    error = again;
                }
                Err(again) if self.is_asked_again(append.slot, &again) => return Ok(Some((append, again))),
                Err(again) => return Err(explain(again, &self.path)),
                Ok(_) => {
                    self.acknowledged(&append);
                    return Ok(None);
                }
            }
        }
    }

    /// Whether only room is missing for an append that was refused so, or its device.
    fn is_passing(&self, slot: usize, error: &Error) -> bool {
        error.kind() == ErrorKind::Full || self.is_gone(slot, error)
    }

    /// Ends the present group with what is there of it, and begins the next on devices that have not refused anything, if there are
    /// such: else the same ones are waited for. Every append is answered.
    pub(super) async fn go_on_elsewhere(&mut self) -> Result<()> {
        self.is_ending = true;
        if self.group.layout.has_several() {
            self.ask_well_ones().await;
        }
        // What other columns have behind the first byte that is missing is sealed with the rest, and is garbage when the group has ended.
        let Ended { length, .. } = self.end_slots().await?;
        self.refused.clear();
        // Readers may have seen more than is acknowledged, if what is not answered before it is a wish to sync: it stays in its place.
        let ends_at_sent = self.client.planted == Some(Planted::GroupEndedAtSent);
        let end = if ends_at_sent { self.sent } else { length.max(self.acknowledged_to) };
        let from_wrong_byte = self.client.planted == Some(Planted::SentAgainFromWrongByte);
        let there = if from_wrong_byte { self.acknowledged_to } else { end };
        let again = std::mem::take(&mut self.again);
        let missing = self.unacknowledged.drain(..).filter(|sent| sent.end > there);
        let missing = missing.map(|Sent { bytes, permits, .. }| (bytes, permits));
        self.again.bytes = missing.chain(again.bytes).filter(|(bytes, _)| !bytes.is_empty()).collect();
        if self.client.planted == Some(Planted::SyncedAtEarlyEnd) {
            self.markers.drain(..).for_each(|marker| drop(marker.reply.send(Ok(()))));
        }
        self.again.markers = self.markers.drain(..).chain(again.markers).collect();
        let is_further = end > self.acknowledged_to;
        (self.sent, self.acknowledged_to) = (end, end);
        if is_further || !self.again.is_empty() {
            self.begin_group().await?;
        } else if !self.begins_at_once().await? {
            self.is_ending = false;
            return Ok(());
        }
        self.is_ending = false;
        // All of the group is acknowledged by now: what lacked some of it is struck out. Nothing else may come that would say so.
        self.tell(self.start);
        if is_further {
            self.refusals.progress();
        }
        Ok(())
    }

    /// Begins the next group for a writer of which nobody waits for anything. False: that cannot be now, and is done when more is written. What is
    /// there is sealed and acknowledged, and a writer that does nothing is not to fail for what it does not need.
    async fn begins_at_once(&mut self) -> Result<bool> {
        match self.next_group().await {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::Full | ErrorKind::Busy | ErrorKind::Unreachable) => {
                self.group.room = self.sent;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Begins the next group behind what was sent in the present one, all of which is acknowledged. Full devices may have room in a while; for
    /// one that is gone nobody waits.
    pub(super) async fn begin_group(&mut self) -> Result<()> {
        let mut pauses = Pauses::default();
        loop {
            let error = match self.next_group().await {
                Err(error) if error.kind() == ErrorKind::Full => error,
                Err(error) => return Err(error),
                Ok(()) => {
                    let slots = 0..self.group.slots.len();
                    let devices = slots.map(|slot| self.group.device(slot));
                    if self.refusals.is_given_again(devices) {
                        continue;
                    }
                    return Ok(());
                }
            };
            if self.refusals.is_over(self.client.session.clock.now()) {
                // All others are full, too, as far as the store knows.
                let Some(gone) = self.refusals.gone_alone() else { return Err(error) };
                let text =
                    format!("{}; no other device has room for what comes behind ({})", gone.text(), error.text());
                return Err(explain(Error::new(gone.kind(), text), &self.path));
            }
            pauses.rest().await;
        }
    }

    /// Sends what goes out again, as much as the present group has room for. False: there is nothing.
    async fn send_again(&mut self) -> Result<bool> {
        if self.again.is_empty() {
            return Ok(false);
        }
        if self.is_full() {
            self.begin_group().await?;
        }
        while let Some((mut bytes, mut permits)) = self.again.bytes.pop_front() {
            let room = usize::try_from(self.group.room - self.sent).unwrap_or(usize::MAX);
            let part = bytes.split_to(room.min(bytes.len()));
            let of_part = if bytes.is_empty() { permits.take() } else { None };
            if !bytes.is_empty() {
                self.again.bytes.push_front((bytes, permits));
            }
            self.add_within(part, (None, None), (Level::Written, self.group.room), of_part).await?;
            if self.is_full() && !self.again.bytes.is_empty() {
                return Ok(true);
            }
        }
        // Some of them may have been answered with fewer bytes than they wait for now: later is never wrong.
        if self.again.markers.iter().any(|marker| marker.synced.is_some()) {
            self.sync().await?;
        }
        for Marker { synced, reply, .. } in std::mem::take(&mut self.again.markers) {
            self.mark(synced.map(|_| self.sent), reply);
        }
        Ok(true)
    }
}

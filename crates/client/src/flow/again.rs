//! What was refused goes out again: to where it was meant to go, or elsewhere because its device is full or gone.

use super::append::{Append, Part, Sent, perform};
use super::refusals::{Next, Reason};
use super::{Flow, Marker, explain};
use crate::columns::{Head, together};
use crate::room::Pauses;
use base::error::{Error, ErrorKind, Result};
use base::id::DeviceId;
use base::planted::Planted;
use base::policy::Level;
use bytes::Bytes;
use futures_util::StreamExt;
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

/// How the columns of a group ended.
pub(super) struct Ended {
    /// All are sealed: none of them lies on a device that is gone.
    pub(super) sealed: bool,
    /// Bytes of the group that outlive its devices, up to the first that does not.
    safe: u64,
}

impl Again {
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
            while let Some(outcome) = self.in_flight.next().await {
                self.on_append_result(outcome);
            }
            self.check()?;
            if self.is_refused_by_another() {
                self.go_on_elsewhere().await?;
            } else {
                self.insist_on_refused().await?;
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
    pub(super) fn is_gone(&self, column: usize, error: &Error) -> bool {
        let is_lost = error.kind() == ErrorKind::NotFound && self.group.states[column].acknowledged > 0;
        !is_lost && self.client.session.routes.is_gone(self.group.head(column).device, error)
    }

    /// Whether a device took no more that had not refused anything since the acknowledged bytes grew last. Then others may.
    fn is_refused_by_another(&mut self) -> bool {
        let refused = std::mem::take(&mut self.refused);
        let is_new = refused.iter().map(|(append, error)| self.note_refusal(append.column, error));
        let is_new = is_new.fold(false, |any, new| any | new);
        self.refused = refused;
        is_new
    }

    /// Remembers that the device of a column takes no more, if this error says so. Whether that is new.
    fn note_refusal(&mut self, column: usize, error: &Error) -> bool {
        let (id, now) = (self.group.head(column).device, self.client.session.clock.now());
        let device = DeviceId(id.value());
        if !self.is_gone(column, error) {
            return error.kind() == ErrorKind::Full && self.refusals.note(device, Reason::Full, now);
        }
        let is_new = self.refusals.note(device, Reason::Gone(error.clone()), now);
        if is_new && error.kind() == ErrorKind::Unreachable {
            // The other devices of its node cannot be reached either; to find that out of each would take as long again.
            for beside in self.client.session.routes.beside(id) {
                self.refusals.note(DeviceId(beside.value()), Reason::Gone(error.clone()), now);
            }
        }
        is_new
    }

    /// Asks again for what was refused, in its order, until a device refuses it that others may be tried instead of.
    async fn insist_on_refused(&mut self) -> Result<()> {
        let mut refused = std::mem::take(&mut self.refused);
        refused.sort_by_key(|(append, _)| append.number);
        let mut refused = refused.into_iter();
        while let Some((append, error)) = refused.next() {
            self.retry_until_room(append, error).await?;
            self.check()?;
            if !self.refused.is_empty() {
                self.refused.extend(refused);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Asks again for an append all of whose predecessors are there, as long as only room is missing, or its device.
    async fn retry_until_room(&mut self, mut append: Append, mut error: Error) -> Result<()> {
        let mut pauses = Pauses::default();
        loop {
            if error.kind() == ErrorKind::Full || self.is_gone(append.column, &error) {
                let device = DeviceId(append.ask.device.value());
                match self.refusals.next(device, self.client.session.clock.now()) {
                    Next::Wait => pauses.rest().await,
                    Next::Elsewhere => {
                        self.refused.push((append, error));
                        return Ok(());
                    }
                    Next::GiveUp => {
                        let only = self.refusals.only_full();
                        self.progress.send_modify(|written| written.full = only);
                        return Err(explain(error, &self.path));
                    }
                }
            }
            let mut result = self.reach_in_order(append.column).await.map(|()| chunk::AppendAnswer::default());
            if result.is_ok() {
                (append, result) = perform(self.link(append.column), append).await;
            }
            match result {
                Err(again) if again.kind() == ErrorKind::Full || self.is_gone(append.column, &again) => error = again,
                Err(again) if again.kind() == ErrorKind::Unsupported && append.part.plain.is_some() => {
                    append.part = Part::plain(append.part.plain.take().unwrap_or_default(), None);
                    error = again;
                }
                Err(again) => return Err(explain(again, &self.path)),
                Ok(_) => {
                    self.acknowledged(&append);
                    return Ok(());
                }
            }
        }
    }

    /// Ends the present group with what is there of it, and begins the next on devices that have not refused anything, if there are
    /// such: else the same ones are waited for. Every append is answered.
    async fn go_on_elsewhere(&mut self) -> Result<()> {
        // What other columns have behind the first byte that is missing is sealed with the rest, and is garbage when the group has ended.
        let there: Vec<u64> = self.group.states.iter().map(|state| state.acknowledged).collect();
        let Ended { safe, .. } = self.end_columns(&there).await?;
        self.refused.clear();
        // Readers may have seen more than is acknowledged, if what is not answered before it is a wish to sync: it stays in its place.
        let ends_at_sent = self.client.planted == Some(Planted::GroupEndedAtSent);
        let end = if ends_at_sent { self.sent } else { safe.max(self.acknowledged_to) };
        let again = std::mem::take(&mut self.again);
        let missing = self.unacknowledged.drain(..).filter(|sent| sent.end > end);
        let missing = missing.map(|Sent { bytes, permits, .. }| (bytes, permits));
        self.again.bytes = missing.chain(again.bytes).filter(|(bytes, _)| !bytes.is_empty()).collect();
        if self.client.planted == Some(Planted::SyncedAtEarlyEnd) {
            self.markers.drain(..).for_each(|marker| drop(marker.reply.send(Ok(()))));
        }
        self.again.markers = self.markers.drain(..).chain(again.markers).collect();
        (self.sent, self.acknowledged_to) = (end, end);
        self.begin_group().await
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
                    let columns = 0..self.group.states.len();
                    let devices = columns.map(|column| DeviceId(self.group.head(column).device.value()));
                    if self.refusals.is_given_again(devices) {
                        continue;
                    }
                    return Ok(());
                }
            };
            // All others are full, too, as far as the store knows.
            if let Some(gone) = self.refusals.gone_alone() {
                let text =
                    format!("{}; no other device has room for what comes behind ({})", gone.text(), error.text());
                return Err(explain(Error::new(gone.kind(), text), &self.path));
            }
            if self.refusals.is_over(self.client.session.clock.now()) {
                return Err(error);
            }
            pauses.rest().await;
        }
    }

    /// Seals the columns, which have so many bytes, unless they have none or were sealed with their last ones. Those on devices that are gone
    /// stay as they are: what is acknowledged of them has to be synced, or it may be lost, and the writer has let go of it.
    pub(super) async fn end_columns(&mut self, lengths: &[u64]) -> Result<Ended> {
        let ending = self.group.states.iter().zip(lengths).enumerate();
        let ending = ending.filter(|(_, (state, length))| **length > 0 && !state.sealed).map(|(column, _)| column);
        let ending: Vec<usize> = ending.collect();
        let mut kept = lengths.to_vec();
        let mut of_gone = None;
        let sealed = together(ending.iter().map(|column| self.seal(*column, lengths[*column]))).await;
        for (column, asked) in ending.into_iter().zip(sealed) {
            let Err(error) = asked else { continue };
            if !self.is_gone(column, &error) {
                return Err(explain(error, &self.path));
            }
            self.note_refusal(column, &error);
            kept[column] = self.group.states[column].synced.min(lengths[column]);
            of_gone.get_or_insert((column, error));
        }
        let safe = self.group.layout.length(kept.into_iter().enumerate());
        let Some((column, error)) = of_gone else { return Ok(Ended { sealed: true, safe }) };
        if safe < self.acknowledged_to && self.client.planted != Some(Planted::UnsyncedLeftBehind) {
            return Err(self.lost(safe, column, &error));
        }
        Ok(Ended { sealed: false, safe })
    }

    /// Seals one column. A device that is known to be gone is not asked.
    async fn seal(&self, column: usize, length: u64) -> Result<()> {
        let Head { device, chunk } = self.group.head(column);
        if let Some(gone) = self.refusals.gone(DeviceId(device.value())) {
            return Err(gone.clone());
        }
        let ask = chunk::Seal { device, chunk, generation: self.generation, length };
        self.client.ask_at(device, &ask).await.map(drop)
    }

    /// What was acknowledged and not synced when a device went: from this byte of the group on.
    fn lost(&self, safe: u64, column: usize, error: &Error) -> Error {
        let text = format!(
            "bytes {} to {} of {} were written and not yet synced when device {} went, and may be lost; all before them are safe; write the \
             file anew, or see how long it is when the device is back and append to that ({})",
            self.start.saturating_add(safe),
            self.start.saturating_add(self.acknowledged_to),
            self.path,
            DeviceId(self.group.head(column).device.value()),
            error.text()
        );
        Error::new(error.kind(), text)
    }

    /// Sends what goes out again, as much as the present group has room for. False: there is nothing.
    async fn send_again(&mut self) -> Result<bool> {
        if self.again.bytes.is_empty() && self.again.markers.is_empty() {
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

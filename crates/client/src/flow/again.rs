//! What was refused goes out again: to where it was meant to go, or elsewhere because its device is full or gone.

use super::append::{Append, Part, Sent, perform};
use super::{Flow, Marker, explain};
use crate::columns::{Head, together};
use base::error::{Error, ErrorKind, Result};
use base::id::DeviceId;
use base::limit::{COLUMNS_MAX, FULL_WAIT};
use base::planted::Planted;
use base::policy::Level;
use base::unit::Time;
use bytes::Bytes;
use futures_util::StreamExt;
use net::message::{Id, chunk};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// The first wait for room on a full device; each is twice the one before, up to the last.
const FULL_PAUSE_FIRST: Duration = Duration::from_millis(20);
const FULL_PAUSE_LAST: Duration = Duration::from_secs(1);

/// What goes out again in the next group because the one before ended early: everything behind its first byte that is missing.
#[derive(Default)]
pub(super) struct Again {
    bytes: VecDeque<(Bytes, Option<OwnedSemaphorePermit>)>,
    /// Who waits for some of them.
    pub(super) markers: VecDeque<Marker>,
}

/// Devices that took no more since the acknowledged bytes of the file grew last.
#[derive(Default)]
pub(super) struct Refusals {
    /// They had no room.
    pub(super) full: BTreeSet<DeviceId>,
    /// They failed or cannot be reached, and what was heard of it.
    pub(super) gone: BTreeMap<DeviceId, Error>,
    /// When the first of them refused bytes.
    since: Option<Time>,
}

impl Refusals {
    /// Whether others may be tried instead of this one: each has its chance, and no writer waits for ever.
    fn is_new(&self, device: DeviceId) -> bool {
        self.count() < COLUMNS_MAX && !self.full.contains(&device) && !self.gone.contains_key(&device)
    }

    fn count(&self) -> usize {
        self.full.len() + self.gone.len()
    }

    /// Whether no device was found full, and some are gone.
    fn is_only_gone(&self) -> bool {
        self.full.is_empty() && !self.gone.is_empty()
    }
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
    pub(super) async fn settle(&mut self) -> Result<()> {
        loop {
            while let Some(outcome) = self.in_flight.next().await {
                self.sort(outcome);
            }
            self.check()?;
            if self.is_refused_by_another() {
                self.go_on_elsewhere().await?;
            } else {
                self.insist_on_refused().await?;
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
        let before = (self.refusals.count(), self.refusals.gone.len());
        for (append, error) in std::mem::take(&mut self.refused) {
            self.note_refusal(append.column, &error);
            self.refused.push((append, error));
        }
        (self.refusals.count(), self.refusals.gone.len()) != before
    }

    /// Remembers that the device of a column takes no more, if this error says so.
    fn note_refusal(&mut self, column: usize, error: &Error) {
        let id = self.group.head(column).device;
        let (device, is_gone) = (DeviceId(id.value()), self.is_gone(column, error));
        // One that was full and is gone by now is not sealed, and the store has to know that.
        let is_new = self.refusals.is_new(device) || is_gone && self.refusals.full.remove(&device);
        if !(is_gone || error.kind() == ErrorKind::Full) || !is_new {
            return;
        }
        self.refusals.since.get_or_insert(self.client.session.clock.now());
        if is_gone {
            self.refusals.gone.insert(device, error.clone());
            if error.kind() == ErrorKind::Unreachable {
                self.note_beside(id, error);
            }
        } else {
            self.refusals.full.insert(device);
        }
    }

    /// The other devices of a node that cannot be reached cannot be either; to find that out of each would take as long again.
    fn note_beside(&mut self, device: Id, error: &Error) {
        for beside in self.client.session.routes.beside(device).into_iter().map(|device| DeviceId(device.value())) {
            if self.refusals.is_new(beside) {
                self.refusals.gone.insert(beside, error.clone());
            }
        }
    }

    /// Asks again for what was refused, in its order, until a device refuses it that others may be tried instead of.
    async fn insist_on_refused(&mut self) -> Result<()> {
        let mut refused = std::mem::take(&mut self.refused);
        refused.sort_by_key(|(append, _)| append.number);
        let mut refused = refused.into_iter();
        while let Some((append, error)) = refused.next() {
            self.insist(append, error).await?;
            self.check()?;
            if !self.refused.is_empty() {
                self.refused.extend(refused);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Asks again for an append all of whose predecessors are there, as long as only room is missing, or its device.
    async fn insist(&mut self, mut append: Append, first: Error) -> Result<()> {
        let mut pause = FULL_PAUSE_FIRST;
        if first.kind() == ErrorKind::Full || self.is_gone(append.column, &first) {
            tokio::time::sleep(pause).await;
        }
        loop {
            let mut result = self.reach_in_order(append.column).await.map(|()| chunk::AppendAnswer::default());
            if result.is_ok() {
                (append, result) = perform(self.link(append.column), append).await;
            }
            match result {
                Err(error) if error.kind() == ErrorKind::Full || self.is_gone(append.column, &error) => {
                    let device = DeviceId(append.ask.device.value());
                    if self.refusals.is_new(device) {
                        self.refused.push((append, error));
                        return Ok(());
                    }
                    if self.is_over() {
                        let full = self.refusals.full.contains(&device).then_some(device);
                        self.progress.send_modify(|written| written.full = full);
                        return Err(explain(error, &self.path));
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(FULL_PAUSE_LAST);
                }
                Err(error) if error.kind() == ErrorKind::Unsupported && append.part.plain.is_some() => {
                    append.part = Part::plain(append.part.plain.take().unwrap_or_default(), None);
                }
                Err(error) => return Err(explain(error, &self.path)),
                Ok(_) => {
                    self.acknowledged(&append);
                    return Ok(());
                }
            }
        }
    }

    /// Ends the present group with what is acknowledged of it, and begins the next on devices that have not refused anything, if there are
    /// such: else the same ones are waited for. Every append is answered.
    async fn go_on_elsewhere(&mut self) -> Result<()> {
        // What other columns have behind the first byte that is missing is sealed with the rest, and is garbage when the group has ended.
        let there: Vec<u64> = self.group.states.iter().map(|state| state.acknowledged).collect();
        self.end_columns(&there).await?;
        self.refused.clear();
        let again = std::mem::take(&mut self.again);
        let missing = self.unacknowledged.drain(..).map(|Sent { bytes, permits, .. }| (bytes, permits));
        self.again.bytes = missing.chain(again.bytes).filter(|(bytes, _)| !bytes.is_empty()).collect();
        self.again.markers = self.markers.drain(..).chain(again.markers).collect();
        self.sent = self.acknowledged_to;
        self.begin_group().await
    }

    /// Begins the next group behind what was sent in the present one, all of which is acknowledged; elsewhere, if devices took no more of
    /// it. Full devices may have room again in a while; for one that is gone nobody waits.
    pub(super) async fn begin_group(&mut self) -> Result<()> {
        let mut pause = FULL_PAUSE_FIRST;
        loop {
            match self.next_group().await {
                Err(error) if error.kind() == ErrorKind::Full && self.refusals.is_only_gone() => {
                    return Err(self.nowhere_else(error));
                }
                // All others are full, too, as far as the store knows.
                Err(error) if error.kind() == ErrorKind::Full && !self.is_over() => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(FULL_PAUSE_LAST);
                }
                began => {
                    let full = began.as_ref().is_err_and(|error| error.kind() == ErrorKind::Full);
                    let device = self.refusals.full.first().copied().filter(|_| full);
                    self.progress.send_if_modified(|written| std::mem::replace(&mut written.full, device) != device);
                    return began;
                }
            }
        }
    }

    /// A device is gone, and no other has room.
    fn nowhere_else(&self, full: Error) -> Error {
        let Some(gone) = self.refusals.gone.values().next() else { return full };
        let text = format!("{}; no other device has room for what comes behind ({})", gone.text(), full.text());
        Error::new(gone.kind(), text)
    }

    /// Whether it is time to give up, should no other device be there to be tried.
    fn is_over(&mut self) -> bool {
        let now = self.client.session.clock.now();
        now.since(*self.refusals.since.get_or_insert(now)) >= FULL_WAIT
    }

    /// Seals the columns, which have so many bytes, unless they have none or were sealed with their last ones. Those on devices that are gone
    /// stay as they are: what is acknowledged of them has to be synced, or it may be lost, and the writer has let go of it. False: there
    /// are such.
    pub(super) async fn end_columns(&mut self, lengths: &[u64]) -> Result<bool> {
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
        let Some((column, error)) = of_gone else { return Ok(true) };
        let safe = self.group.layout.length(kept.into_iter().enumerate());
        if safe < self.acknowledged_to && self.client.planted != Some(Planted::UnsyncedLeftBehind) {
            return Err(self.lost(safe, column, &error));
        }
        Ok(false)
    }

    /// Seals one column. A device that is known to be gone is not asked.
    async fn seal(&self, column: usize, length: u64) -> Result<()> {
        let Head { device, chunk } = self.group.head(column);
        if let Some(gone) = self.refusals.gone.get(&DeviceId(device.value())) {
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

//! What was refused goes out again: to where it was meant to go, or elsewhere because its device is full.

use super::append::{Append, Part, Sent, perform};
use super::{Flow, Marker, explain};
use base::error::{Error, ErrorKind, Result};
use base::id::DeviceId;
use base::limit::{COLUMNS_MAX, FULL_WAIT};
use base::policy::Level;
use base::unit::Time;
use bytes::Bytes;
use futures_util::StreamExt;
use std::collections::{BTreeSet, VecDeque};
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

/// Devices that had no room since bytes were acknowledged last.
#[derive(Default)]
pub(super) struct NoRoom {
    pub(super) devices: BTreeSet<DeviceId>,
    /// When the first of them refused bytes.
    since: Option<Time>,
}

impl NoRoom {
    /// Whether others may be tried instead of this one: each has its chance, and no writer waits for ever.
    fn is_new(&self, device: DeviceId) -> bool {
        self.devices.len() < COLUMNS_MAX && !self.devices.contains(&device)
    }
}

impl Again {
    /// Nothing of it is wanted any more.
    pub(super) fn forget(&mut self) {
        self.bytes.clear();
    }
}

impl Flow {
    /// Waits until every append is answered, and asks again for those that were refused for a reason that passes. If a device had no room
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

    /// Whether a device had no room that had not refused anything since bytes were acknowledged last. Then others may have some.
    fn is_refused_by_another(&mut self) -> bool {
        let (before, now) = (self.no_room.devices.len(), self.client.session.clock.now());
        for (append, error) in &self.refused {
            let device = DeviceId(append.ask.device.value());
            if error.kind() == ErrorKind::Full && self.no_room.is_new(device) {
                self.no_room.devices.insert(device);
                self.no_room.since.get_or_insert(now);
            }
        }
        self.no_room.devices.len() > before
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

    /// Asks again for an append all of whose predecessors are there, as long as only room is missing.
    async fn insist(&mut self, mut append: Append, first: Error) -> Result<()> {
        let mut pause = FULL_PAUSE_FIRST;
        if first.kind() == ErrorKind::Full {
            tokio::time::sleep(pause).await;
        }
        loop {
            let result;
            (append, result) = perform(self.link(append.column), append).await;
            match result {
                Err(error) if error.kind() == ErrorKind::Full => {
                    let device = DeviceId(append.ask.device.value());
                    if self.no_room.is_new(device) {
                        self.refused.push((append, error));
                        return Ok(());
                    }
                    if self.is_over() {
                        self.progress.send_modify(|written| written.full = Some(device));
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
        self.seal_columns(&there).await.map_err(|error| explain(error, &self.path))?;
        self.refused.clear();
        let again = std::mem::take(&mut self.again);
        let missing = self.unacknowledged.drain(..).map(|Sent { bytes, permits, .. }| (bytes, permits));
        self.again.bytes = missing.chain(again.bytes).filter(|(bytes, _)| !bytes.is_empty()).collect();
        self.again.markers = self.markers.drain(..).chain(again.markers).collect();
        self.sent = self.acknowledged_to;
        let mut pause = FULL_PAUSE_FIRST;
        loop {
            match self.next_group().await {
                // All others are full, too, as far as the store knows.
                Err(error) if error.kind() == ErrorKind::Full && !self.is_over() => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(FULL_PAUSE_LAST);
                }
                began => {
                    let full = began.as_ref().is_err_and(|error| error.kind() == ErrorKind::Full);
                    let device = self.no_room.devices.first().copied().filter(|_| full);
                    self.progress.send_modify(|written| written.full = device);
                    return began;
                }
            }
        }
    }

    /// Whether it is time to give up, should no other device be there to be tried.
    fn is_over(&mut self) -> bool {
        let now = self.client.session.clock.now();
        now.since(*self.no_room.since.get_or_insert(now)) >= FULL_WAIT
    }

    /// Sends what goes out again, as much as the present group has room for. False: there is nothing.
    async fn send_again(&mut self) -> Result<bool> {
        if self.again.bytes.is_empty() && self.again.markers.is_empty() {
            return Ok(false);
        }
        if self.is_full() {
            self.next_group().await?;
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

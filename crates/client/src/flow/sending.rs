//! A piece goes to all replicas of its column at once, and is acknowledged when all of them have it.

use super::append::{Append, Calling, Outcome, Part, Sent, perform};
use super::{Flow, explain};
use crate::columns::Head;
use base::error::{Error, ErrorKind, Result};
use base::planted::Planted;
use base::policy::{Compression, Level};
use base::request;
use net::Link;
use net::message::chunk;
use std::future::poll_fn;
use std::task::Poll;
use tokio::sync::OwnedSemaphorePermit;

impl Flow {
    pub(super) fn link(&self, slot: usize) -> Link {
        match &self.group.slots[slot].link {
            Some(link) => link.clone(),
            None => unreachable!("an append goes out after its link is there"),
        }
    }

    /// Finds the link for appends to a replica that must arrive in their order. Replicas on one node share its links.
    pub(super) async fn reach_in_order(&mut self, slot: usize) -> Result<()> {
        if self.group.slots[slot].link.is_none() {
            let lane = *self.lane.get_or_insert_with(|| self.client.lane());
            let route = self.client.route(self.group.slots[slot].head.device).await?;
            self.group.slots[slot].link = Some(route.ordered(lane.wrapping_add(slot)));
        }
        Ok(())
    }

    /// Finds links for the only append to a column, which needs no order. Those that are not found now are looked for when it is sent.
    pub(super) async fn reach_for_one(&mut self, column: usize) {
        for slot in self.group.of(column) {
            if self.group.slots[slot].link.is_none()
                && let Ok(route) = self.client.route(self.group.slots[slot].head.device).await
            {
                self.group.slots[slot].link = Some(route.link());
            }
        }
    }

    /// Sends these bytes behind all before them, or nothing behind all that a column has, to each of its replicas.
    pub(super) async fn send_to_all(
        &mut self,
        column: usize,
        part: Part,
        (level, seal): (Level, bool),
        permits: Option<OwnedSemaphorePermit>,
    ) -> Result<()> {
        let (number, slots) = (self.next, self.group.of(column));
        let offset = self.group.layout.stripe().column_length(self.sent, column);
        self.next += 1;
        self.sent += part.length();
        let waits = (1 << slots.len()) - 1;
        self.unacknowledged.push_back(Sent {
            end: self.sent,
            column,
            level,
            waits,
            first: None,
            refused: None,
            bytes: part.bytes(),
            permits,
        });
        let mut part = Some(part);
        for slot in slots.clone() {
            self.group.slots[slot].unsynced = level < Level::Synced;
            let Head { device, chunk } = self.group.slots[slot].head;
            let ask = chunk::Append {
                device,
                chunk,
                group: self.group.number,
                generation: self.generation,
                offset,
                level: level as u32,
                seal,
                small_parts: false,
            };
            let part = if slot + 1 == slots.end { part.take() } else { part.clone() };
            let part = part.unwrap_or_else(Part::empty);
            self.send(Append { ask, number, slot, part, request: request::current() }).await?;
        }
        Ok(())
    }

    /// Starts an append behind those that are on their way.
    async fn send(&mut self, append: Append) -> Result<()> {
        match self.reach_in_order(append.slot).await {
            Ok(()) => (),
            Err(error) if self.is_gone(append.slot, &error) || self.is_asked_again(append.slot, &error) => {
                self.note_refused(append, error);
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        let (link, limit) = (self.link(append.slot), self.limit(append.slot));
        let mut call: Calling = Box::pin(perform(link, append, limit));
        // The first poll puts it into the link's queue, so pieces leave in their order; the rest of it needs no order.
        match poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await {
            Poll::Ready(outcome) => self.on_append_result(outcome),
            Poll::Pending => self.in_flight.push(call),
        }
        Ok(())
    }

    /// Forgets an append that went well; keeps one that may go better when those before it are there.
    pub(super) fn on_append_result(&mut self, (append, result): Outcome) {
        match result {
            Ok(answer) => {
                let end = append.ask.offset.saturating_add(append.part.length());
                if answer.length < end {
                    let text = format!(
                        "the node says that a chunk of {} is {} bytes long after an append that ends at {end}; the file keeps what hflush reported before; this is a fault in Stormwell",
                        self.path, answer.length
                    );
                    return self.fail(Error::new(ErrorKind::Protocol, text));
                }
                self.acknowledged(&append);
            }
            // An append that overtook another found a gap: the chunk is shorter than it says, or not there.
            // Once those before it are there, asking again tells whether that was the reason.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Stale
                        | ErrorKind::NotFound
                        | ErrorKind::Invalid
                        | ErrorKind::Busy
                        | ErrorKind::Full
                        | ErrorKind::Corrupt
                ) =>
            {
                self.note_refused(append, error);
            }
            // A node of an older version: it gets the bytes themselves.
            Err(error) if error.kind() == ErrorKind::Unsupported && append.part.plain.is_some() => {
                self.compression = Compression::None;
                self.note_refused(append, error);
            }
            // Others may take what is not acknowledged.
            Err(error) if self.is_gone(append.slot, &error) || self.is_asked_again(append.slot, &error) => {
                self.note_refused(append, error);
            }
            Err(error) => {
                self.fail(explain(error, &self.path));
            }
        }
    }

    /// Keeps an append that is asked again later.
    fn note_refused(&mut self, append: Append, error: Error) {
        if self.has_beside(append.slot) {
            let now = self.client.session.clock.now();
            if let Some(sent) = self.sent_as(append.number) {
                sent.refused.get_or_insert(now);
            }
        }
        self.refused.push((append, error));
    }

    /// What is kept of an append; nothing once all have it, or of a group that was ended while an append of it was asked again.
    fn sent_as(&mut self, number: u64) -> Option<&mut Sent> {
        let first = self.next - self.unacknowledged.len() as u64;
        self.unacknowledged.get_mut(number.checked_sub(first)? as usize)
    }

    /// A replica acknowledges an append: says up to where all replicas of all columns have. What they have behind a byte that is not there is no
    /// part of it.
    pub(super) fn acknowledged(&mut self, append: &Append) {
        let length = append.part.length();
        let slots = self.group.of(self.group.slots[append.slot].column);
        let slot = &mut self.group.slots[append.slot];
        let end = append.ask.offset.saturating_add(length);
        slot.acknowledged = slot.acknowledged.max(end);
        if append.ask.level == Level::Synced as u32 {
            // With everything before it in the chunk.
            slot.synced = slot.synced.max(end);
        }
        slot.sealed |= append.ask.seal;
        let answered = (slots.len() > 1).then(|| self.client.session.clock.now());
        slot.answered = answered;
        let is_enough = self.client.planted == Some(Planted::AcknowledgedWithoutAReplica);
        if let Some(sent) = self.sent_as(append.number) {
            sent.waits &= !(1 << (append.slot - slots.start));
            if is_enough {
                sent.waits = 0;
            }
            sent.first = sent.first.or(answered);
        }
        let mut reached = None;
        while let Some(sent) = self.unacknowledged.pop_front_if(|sent| sent.waits == 0) {
            reached = Some(sent.end);
        }
        if let Some(end) = reached {
            // What refused them is not to be forgotten before the group has ended without it.
            if end > self.acknowledged_to && !self.is_ending {
                self.refusals.progress();
            }
            self.acknowledged_to = end;
            self.tell(self.start.saturating_add(end));
            self.answer_markers();
        }
    }

    /// Says that the file is acknowledged up to here.
    pub(super) fn tell(&self, length: u64) {
        self.progress.send_if_modified(|written| {
            let further = written.length < length;
            written.length = written.length.max(length);
            further
        });
    }
}

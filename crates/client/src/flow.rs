//! What happens behind a file writer: one task that keeps pieces in order, starts new chunks, and asks again where that helps.

mod again;
mod append;
mod ended;
mod group;
mod idle;
pub(crate) mod patience;
mod refusals;
mod sending;

use crate::client::Client;
use crate::synced::Synced;
use crate::writer::Written;
use again::Again;
use append::{Append, Calling, Part, Sent};
use base::checksum::BlockSums;
use base::error::{Error, ErrorKind, Result};
use base::id::{DeviceId, RequestId};
use base::limit::{BLOCK, COLUMNS_MAX, COMPRESSED_MIN, RECORD_PAYLOAD_MAX};
use base::policy::{Compression, Level};
use base::request;
use base::unit::Time;
use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use group::Group;
use net::Payload;
use net::message::file::{self, Attributes, OpenedFile};
use refusals::Refusals;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

/// What a writer wants done, in order.
pub(crate) enum Order {
    /// Add these bytes; the permits go back when they are acknowledged. `ahead`: they are being compressed.
    Piece { bytes: Bytes, sums: Option<BlockSums>, permits: OwnedSemaphorePermit, ahead: Option<Compressing> },
    /// Say when everything so far is written.
    Flush(oneshot::Sender<Result<()>>),
    /// Add these bytes, and say when everything so far is synced.
    Sync { last: Bytes, sums: Option<BlockSums>, permits: OwnedSemaphorePermit, reply: oneshot::Sender<Result<()>> },
    /// Add these bytes, and end the file.
    Close { last: Bytes, permits: OwnedSemaphorePermit, reply: oneshot::Sender<Result<Attributes>> },
}

/// An order, and the request that it is a part of.
pub(crate) type Ordered = (RequestId, Order);

/// What is stored instead of bytes that are being compressed, if it is smaller.
pub(crate) type Compressing = JoinHandle<Result<Option<Bytes>>>;

/// The state behind one writer.
pub(crate) struct Flow {
    client: Client,
    path: String,
    inode: u64,
    generation: u64,
    modified_ms: u64,
    /// How its bytes are made smaller; not at all from when a node said that it does not know how to store them.
    compression: Compression,
    group: Group,
    /// Where in the file the present group's bytes begin.
    start: u64,
    /// Bytes of the present group that are acknowledged or on their way.
    sent: u64,
    /// Bytes of it that are acknowledged, up to the first that is not.
    acknowledged_to: u64,
    /// Which of a node's ordered links it takes first.
    lane: Option<usize>,
    in_flight: FuturesUnordered<Calling>,
    /// Appends that were refused because they overtook others, or because their device is full or gone.
    refused: Vec<(Append, Error)>,
    /// Appends from the first that is not acknowledged on, without a gap in their numbers.
    unacknowledged: VecDeque<Sent>,
    /// What goes out again before anything else does.
    again: Again,
    refusals: Refusals,
    /// Replicas of the present group, which has ended, that lack something of it: the store strikes them out.
    short: Vec<file::Replica>,
    /// The present group is being ended.
    is_ending: bool,
    /// It is the last: nothing comes behind it.
    is_last: bool,
    /// How long one replica is waited for when another one has answered.
    patience: Duration,
    /// When it was looked last whether the nodes of its replicas are there.
    looked_at: Time,
    /// The number of the next append.
    next: u64,
    /// Who waits for appends to be acknowledged, in their order.
    markers: VecDeque<Marker>,
    /// One permit for each byte that may be on its way; more when the file goes over more columns.
    window: Arc<Semaphore>,
    /// All of them.
    window_bytes: usize,
    /// Told to whoever looks.
    progress: watch::Sender<Written>,
    /// Tells the metadata store what is synced.
    synced: Synced,
}

/// A place between two appends of a stream. What comes behind it does not wait for it.
struct Marker {
    /// All appends with lower numbers come before it.
    behind: u64,
    /// What of the present group is synced then; none if nothing asks for that.
    synced: Option<u64>,
    /// Told when these are acknowledged, or that the stream has failed.
    reply: oneshot::Sender<Result<()>>,
}

/// What a writer may have on its way for each column, in pieces: one that the device writes and one that waits for it.
const PIECES_OF_COLUMN: usize = 2;

/// A fault ends the flow alone (`contained`): whoever waits for what it does has to hear of it.
impl Drop for Flow {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.fail(crate::writer::broken(&self.path));
        }
    }
}

impl Flow {
    pub(crate) fn new(
        client: Client,
        path: String,
        opened: OpenedFile,
        modified_ms: u64,
        (window, window_bytes): (Arc<Semaphore>, usize),
        progress: watch::Sender<Written>,
    ) -> Result<Flow> {
        let group = Group::new(&opened.group, client.sizes.file_chunk, &client.session.routes.table())?;
        Ok(Flow {
            client,
            path,
            inode: opened.inode,
            generation: opened.generation,
            modified_ms,
            compression: Compression::from_code(opened.compression).unwrap_or_default(),
            group,
            start: opened.length,
            sent: 0,
            acknowledged_to: 0,
            lane: None,
            in_flight: FuturesUnordered::new(),
            refused: Vec::new(),
            unacknowledged: VecDeque::new(),
            again: Again::default(),
            refusals: Refusals::default(),
            short: Vec::new(),
            is_ending: false,
            is_last: false,
            patience: patience::FIRST,
            looked_at: Time::ZERO,
            next: 0,
            markers: VecDeque::new(),
            window,
            window_bytes,
            progress,
            synced: Synced::default(),
        })
    }

    /// Carries out orders until the writer is gone and everything is answered.
    pub(crate) async fn run(mut self, mut inbox: mpsc::Receiver<Ordered>) {
        loop {
            // A refused piece keeps its part of the window, so it must not wait for the next order.
            if !self.refused.is_empty() {
                let answered = self.all_answered().await;
                self.record_error(answered);
            }
            let look = self.is_looked_after().then(|| self.until_a_look());
            tokio::select! {
                biased;
                Some(outcome) = self.next_outcome(), if !self.in_flight.is_empty() => self.on_append_result(outcome),
                order = inbox.recv() => match order {
                    Some((request, order)) => request::within(request, self.carry_out(order)).await,
                    None => break,
                },
                () = tokio::time::sleep(look.unwrap_or_default()), if look.is_some() => {
                    let looked = self.look_after_replicas().await;
                    self.record_error(looked);
                }
            }
        }
        let answered = self.all_answered().await;
        self.record_error(answered);
        self.synced.end(&self.client).await;
    }

    async fn carry_out(&mut self, order: Order) {
        match order {
            Order::Piece { bytes, sums, permits, ahead } => {
                let sent = self.add(bytes, (sums, ahead), permits).await;
                self.record_error(sent);
            }
            Order::Flush(reply) => self.mark(None, reply),
            Order::Sync { last, sums, permits, reply } => match self.send_synced(last, sums, permits).await {
                Ok(()) => self.mark(Some(self.sent), reply),
                Err(error) => self.answer(reply, Err(error)),
            },
            Order::Close { last, permits, reply } => {
                let closed = self.close(last, permits).await;
                if closed.is_ok() {
                    // The store knows how long the file is.
                    self.synced = Synced::default();
                }
                self.answer(reply, closed);
            }
        }
    }

    /// Remembers the first error, which stays.
    fn record_error<T>(&mut self, result: Result<T>) {
        if let Err(error) = result {
            self.fail(error);
        }
    }

    fn fail(&mut self, error: Error) {
        self.progress.send_if_modified(|written| {
            let first = written.failed.is_none();
            written.failed.get_or_insert(error);
            first
        });
        // Nothing goes out again: what waits for a part of the window hears so.
        for sent in &mut self.unacknowledged {
            (sent.bytes, sent.permits) = (Bytes::new(), None);
        }
        self.again.forget();
        self.markers.append(&mut self.again.markers);
        self.answer_markers();
    }

    /// Answers `reply` when everything that was sent so far is acknowledged.
    fn mark(&mut self, synced: Option<u64>, reply: oneshot::Sender<Result<()>>) {
        self.markers.push_back(Marker { behind: self.next, synced, reply });
        self.answer_markers();
    }

    /// Answers markers with nothing unacknowledged before them; all of them once the stream has failed.
    fn answer_markers(&mut self) {
        let failed = self.check();
        let acknowledged = self.next - self.unacknowledged.len() as u64;
        while let Some(marker) = self.markers.pop_front_if(|marker| failed.is_err() || marker.behind <= acknowledged) {
            // No group is begun before every append to the last one, and so every marker behind it, is answered.
            if let Some(length) = marker.synced.filter(|length| failed.is_ok() && *length > 0) {
                let (inode, generation) = (self.inode, self.generation);
                let synced = file::SyncLength { inode, generation, group: self.group.number, length };
                self.synced.note(&self.client, synced);
            }
            // Whoever stopped waiting does not need to know.
            let _gone = marker.reply.send(failed.clone());
        }
    }

    fn answer<T>(&mut self, reply: oneshot::Sender<Result<T>>, result: Result<T>) {
        if let Err(error) = &result {
            self.fail(error.clone());
        }
        // A writer that stopped waiting does not need to know.
        let _gone = reply.send(result);
    }

    /// Whether the last bytes of the present group are on their way.
    fn is_full(&self) -> bool {
        self.sent >= self.group.room
    }

    fn check(&self) -> Result<()> {
        self.progress.borrow().failed.clone().map_or(Ok(()), Err)
    }

    /// Sends bytes, cut where the present group ends.
    async fn add(
        &mut self,
        mut bytes: Bytes,
        (mut sums, mut ahead): (Option<BlockSums>, Option<Compressing>),
        permits: OwnedSemaphorePermit,
    ) -> Result<()> {
        let mut permits = Some(permits);
        while !bytes.is_empty() {
            self.check()?;
            self.make_room().await?;
            let room = self.group.room - self.sent;
            let part = bytes.split_to(usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len()));
            let permits = if bytes.is_empty() { permits.take() } else { None };
            // What is known of the whole is not known of its parts.
            let sums = sums.take().filter(|sums| sums.length() == part.len());
            let ahead = ahead.take().filter(|_| permits.is_some());
            self.add_within(part, (sums, ahead), (Level::Written, self.group.room), permits).await?;
        }
        Ok(())
    }

    /// Sends bytes that the present group has room for, cut where cells end. `end`: where the group will end.
    async fn add_within(
        &mut self,
        mut bytes: Bytes,
        (mut sums, mut ahead): (Option<BlockSums>, Option<Compressing>),
        (level, end): (Level, u64),
        permits: Option<OwnedSemaphorePermit>,
    ) -> Result<()> {
        let (mut permits, stripe) = (permits, self.group.layout.stripe());
        while !bytes.is_empty() {
            let mut piece = stripe.piece(self.sent, bytes.len() as u64);
            piece.length = self.cell_of(piece.length);
            let part = bytes.split_to(piece.length as usize);
            let ahead = ahead.take().filter(|_| bytes.is_empty());
            let permits = if bytes.is_empty() { permits.take() } else { None };
            let sums = sums.take().filter(|sums| sums.length() == part.len());
            let seal = piece.offset + piece.length == stripe.column_length(end, piece.column);
            // The seal that ends a chunk is synced, because the metadata store will count on its length.
            let level = if seal { Level::Synced } else { level };
            let part = self.part(part, sums, ahead).await?;
            self.send_to_all(piece.column, part, (level, seal), permits).await?;
        }
        Ok(())
    }

    /// Whether so many bytes are to be made smaller.
    fn compresses(&self, length: u64) -> bool {
        self.compression != Compression::None && length >= COMPRESSED_MIN
    }

    /// Of so many bytes those that go out together: whole blocks of one record, if they are to be made smaller.
    fn cell_of(&self, length: u64) -> u64 {
        if !self.compresses(length) {
            return length;
        }
        let length = length.min(RECORD_PAYLOAD_MAX as u64);
        length - length % BLOCK as u64
    }

    /// What goes out for these bytes.
    async fn part(&self, bytes: Bytes, sums: Option<BlockSums>, ahead: Option<Compressing>) -> Result<Part> {
        let length = bytes.len() as u64;
        if !self.compresses(length) || self.cell_of(length) < length {
            return Ok(Part::plain(bytes, sums));
        }
        let compressed = match ahead {
            Some(compressing) => compressing.await.unwrap_or_else(|error| {
                let text = format!(
                    "compressing {} was cut off: {error}; what hflush or sync reported before is safe",
                    self.path
                );
                Err(Error::new(ErrorKind::Io, text))
            }),
            None => self.client.session.compressor.compress_cell(self.compression, bytes.clone()).await,
        };
        Ok(match compressed? {
            Some(compressed) => Part { payload: Payload::new(compressed), plain: Some(bytes) },
            None => Part::plain(bytes, sums),
        })
    }

    /// Goes on in a new group if the present one is full.
    async fn make_room(&mut self) -> Result<()> {
        if !self.is_full() {
            return Ok(());
        }
        self.all_answered().await?;
        // It may have ended early, and what came behind it may have filled the next.
        if self.is_full() { self.begin_group().await } else { Ok(()) }
    }

    /// Goes on in a new group behind what was sent in the present one, all of which is acknowledged and sealed.
    async fn next_group(&mut self) -> Result<()> {
        let (full, gone) = self.refusals.avoided(self.client.session.clock.now());
        let ids = |devices: Vec<DeviceId>| devices.into_iter().map(|device| device.0.into()).collect();
        let ask = file::NextGroup {
            inode: self.inode,
            generation: self.generation,
            finished_group: self.group.number,
            finished_length: self.sent,
            columns_max: COLUMNS_MAX as u32,
            full: ids(full),
            gone: ids(gone),
            replicas_max: self.client.replicas_max,
            short: self.short.clone(),
            last: self.is_last,
        };
        let next = self.client.ask(&ask).await.map_err(|error| explain(error, &self.path))?;
        self.group = Group::new(&next, self.client.sizes.file_chunk, &self.client.session.routes.table())?;
        self.short.clear();
        self.widen_window();
        self.start = self.start.saturating_add(self.sent);
        (self.sent, self.acknowledged_to) = (0, 0);
        Ok(())
    }

    /// Lets so much be on its way that all columns have something to do.
    fn widen_window(&mut self) {
        let wanted = self.client.sizes.piece.saturating_mul(PIECES_OF_COLUMN * self.group.layout.columns().len());
        if wanted > self.window_bytes {
            self.window.add_permits(wanted - self.window_bytes);
            self.window_bytes = wanted;
        }
    }

    /// Sends the last bytes, and asks for everything so far to be synced. When all that was sent is acknowledged it is.
    async fn send_synced(&mut self, last: Bytes, sums: Option<BlockSums>, permits: OwnedSemaphorePermit) -> Result<()> {
        self.check()?;
        // The bytes and the wish to have them on stable media travel together: a synced append is answered when everything before it in
        // the chunk is synced, too. Those that end the group are synced with their seals.
        let within = !self.is_full() && !last.is_empty() && (last.len() as u64) < self.group.room - self.sent;
        if within {
            self.add_within(last, (sums, None), (Level::Synced, self.group.room), Some(permits)).await?;
        } else if !last.is_empty() {
            self.add(last, (sums, None), permits).await?;
        }
        if within { self.sync_columns(false).await } else { self.sync().await }
    }

    /// Asks for everything that was sent to be synced. Sealed chunks are with their seals; a group without bytes has nothing to lose.
    async fn sync(&mut self) -> Result<()> {
        if self.is_full() || self.sent == 0 { Ok(()) } else { self.sync_columns(true).await }
    }

    /// Asks the columns that have unsynced bytes to sync them. `ask_one`: at least the one with the last byte, which knows whether
    /// the file is still this writer's.
    async fn sync_columns(&mut self, ask_one: bool) -> Result<()> {
        let columns = 0..self.group.layout.columns().len();
        let mut columns: Vec<bool> = columns.map(|column| self.group.is_unsynced(column)).collect();
        if ask_one && !columns.contains(&true) {
            columns[self.group.layout.stripe().piece(self.sent - 1, 1).column] = true;
        }
        for column in (0..columns.len()).filter(|column| columns[*column]) {
            self.send_to_all(column, Part::empty(), (Level::Synced, false), None).await?;
        }
        Ok(())
    }

    /// Adds the last bytes and ends the file. Called by a writer itself if it had no order before.
    pub(crate) async fn close(&mut self, last: Bytes, permits: OwnedSemaphorePermit) -> Result<Attributes> {
        self.check()?;
        if !last.is_empty() {
            self.make_room().await?;
            let room = self.group.room - self.sent;
            if (last.len() as u64) < room {
                let piece = self.group.layout.stripe().piece(self.sent, last.len() as u64);
                if self.cell_of(piece.length) == last.len() as u64 {
                    self.reach_for_one(piece.column).await;
                }
                // The end of each column is sealed and synced by the append that brings it.
                let end = self.sent + last.len() as u64;
                self.add_within(last, (None, None), (Level::Written, end), Some(permits)).await?;
            } else {
                self.add(last, (None, None), permits).await?;
            }
        }
        self.all_answered().await?;
        if !self.end_slots().await?.all_sealed {
            self.is_last = true;
            // Nothing is missing; only the store knows whether all of it outlives its device, and it strikes out replicas that lack something.
            self.begin_group().await?;
        }
        let ask = file::Close {
            inode: self.inode,
            generation: self.generation,
            finished_group: self.group.number,
            finished_length: self.sent,
            modified_ms: self.modified_ms,
            mode: 0,
        };
        self.client.ask(&ask).await.map_err(|error| explain(error, &self.path))
    }
}

/// The error as a writer sees it.
fn explain(error: Error, path: &str) -> Error {
    match error.kind() {
        ErrorKind::Stale => Error::new(
            ErrorKind::Stale,
            format!(
                "somebody else opened {path} for writing, or this program was silent for too long; what hflush, sync or close reported before is safe, later bytes may be missing; look at the file, then append to go on ({})",
                error.text()
            ),
        ),
        _ => error.during(format!("write {path}")),
    }
}

//! What happens behind a file writer: one task that keeps pieces in order, starts new chunks, and asks again where that helps.

use crate::client::Client;
use crate::writer::Written;
use base::checksum::BlockSums;
use base::error::{Error, ErrorKind, Result};
use base::limit::FULL_WAIT;
use base::policy::Level;
use base::unit::Time;
use bytes::Bytes;
use net::message::chunk;
use net::message::file::{self, Attributes, NewGroup, OpenedFile};
use net::{Link, Payload};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio::task::JoinSet;

/// What a writer wants done, in order.
pub(crate) enum Order {
    /// Add these bytes; the permits go back when they are acknowledged.
    Piece { bytes: Bytes, sums: Option<BlockSums>, permits: OwnedSemaphorePermit },
    /// Say when everything so far is written.
    Flush(oneshot::Sender<Result<()>>),
    /// Add these bytes, and say when everything so far is synced.
    Sync { last: Bytes, sums: Option<BlockSums>, permits: OwnedSemaphorePermit, reply: oneshot::Sender<Result<()>> },
    /// Add these bytes, and end the file.
    Close { last: Bytes, permits: OwnedSemaphorePermit, reply: oneshot::Sender<Result<Attributes>> },
}

/// The state behind one writer.
pub(crate) struct Flow {
    client: Client,
    path: String,
    inode: u64,
    generation: u64,
    modified_ms: u64,
    group: NewGroup,
    /// Where in the file the present group's bytes begin.
    start: u64,
    /// Bytes of the present group that are acknowledged or on their way.
    sent: u64,
    /// Whether the present chunk's last bytes are on their way, with its seal.
    sealing: bool,
    /// Where appends to the present group go. None before its first: a file of one append needs no order, so no connection of its
    /// own.
    link: Option<Link>,
    /// Which of a node's ordered links it takes.
    lane: Option<usize>,
    in_flight: JoinSet<Outcome>,
    /// Appends that were refused because they overtook others, or because there was no room.
    refused: Vec<(Append, Error)>,
    /// Appends from the first that is not acknowledged on: where in the group they begin and end, and whether they are.
    unacknowledged: VecDeque<(u64, u64, bool)>,
    /// Told to whoever looks.
    progress: watch::Sender<Written>,
}

/// One append, with what is needed to ask again.
struct Append {
    ask: chunk::Append,
    payload: Payload,
    _permits: Option<OwnedSemaphorePermit>,
}

type Outcome = (Append, Result<chunk::AppendAnswer>);

/// The first wait for room on a full device; each is twice the one before, up to the last.
const FULL_PAUSE_FIRST: Duration = Duration::from_millis(20);
const FULL_PAUSE_LAST: Duration = Duration::from_secs(1);

impl Flow {
    pub(crate) fn new(
        client: Client,
        path: String,
        opened: OpenedFile,
        modified_ms: u64,
        progress: watch::Sender<Written>,
    ) -> Flow {
        Flow {
            client,
            path,
            inode: opened.inode,
            generation: opened.generation,
            modified_ms,
            group: opened.group,
            start: opened.length,
            sent: 0,
            sealing: false,
            link: None,
            lane: None,
            in_flight: JoinSet::new(),
            refused: Vec::new(),
            unacknowledged: VecDeque::new(),
            progress,
        }
    }

    /// Carries out orders until the writer is gone and everything is answered.
    pub(crate) async fn run(mut self, mut inbox: mpsc::Receiver<Order>) {
        loop {
            // A refused piece keeps its part of the window, so it must not wait for the next order.
            if !self.refused.is_empty() {
                let settled = self.settle().await;
                self.keep(settled);
            }
            tokio::select! {
                biased;
                Some(done) = self.in_flight.join_next(), if !self.in_flight.is_empty() => self.note(done),
                order = inbox.recv() => match order {
                    Some(order) => self.carry_out(order).await,
                    None => break,
                },
            }
        }
        let settled = self.settle().await;
        self.keep(settled);
    }

    async fn carry_out(&mut self, order: Order) {
        match order {
            Order::Piece { bytes, sums, permits } => {
                let sent = self.add(bytes, sums, permits).await;
                self.keep(sent);
            }
            Order::Flush(reply) => {
                let settled = self.settle().await;
                self.answer(reply, settled);
            }
            Order::Sync { last, sums, permits, reply } => {
                let synced = self.sync(last, sums, permits).await;
                self.answer(reply, synced);
            }
            Order::Close { last, permits, reply } => {
                let closed = self.close(last, permits).await;
                self.answer(reply, closed);
            }
        }
    }

    /// Remembers the first error, which stays.
    fn keep<T>(&self, result: Result<T>) {
        if let Err(error) = result {
            self.fail(error);
        }
    }

    fn fail(&self, error: Error) {
        self.progress.send_if_modified(|written| {
            let first = written.failed.is_none();
            written.failed.get_or_insert(error);
            first
        });
    }

    fn answer<T>(&self, reply: oneshot::Sender<Result<T>>, result: Result<T>) {
        if let Err(error) = &result {
            self.fail(error.clone());
        }
        // A writer that stopped waiting does not need to know.
        let _gone = reply.send(result);
    }

    fn link(&self) -> Link {
        match &self.link {
            Some(link) => link.clone(),
            None => unreachable!("an append goes out after its link is there"),
        }
    }

    /// Finds the link for appends to the present group that must arrive in their order.
    async fn reach_in_order(&mut self) -> Result<()> {
        if self.link.is_none() {
            let lane = *self.lane.get_or_insert_with(|| self.client.lane());
            self.link = Some(self.client.route(self.group.device).await?.ordered(lane));
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        self.progress.borrow().failed.clone().map_or(Ok(()), Err)
    }

    /// Sends bytes, cut at the chunk's end.
    async fn add(
        &mut self,
        mut bytes: Bytes,
        mut sums: Option<BlockSums>,
        permits: OwnedSemaphorePermit,
    ) -> Result<()> {
        let mut permits = Some(permits);
        while !bytes.is_empty() {
            self.check()?;
            self.make_room().await?;
            self.reach_in_order().await?;
            let room = self.client.sizes.file_chunk - self.sent;
            let part = bytes.split_to(usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len()));
            let full = part.len() as u64 == room;
            let permits = if bytes.is_empty() { permits.take() } else { None };
            // What is known of the whole is not known of its parts.
            let sums = sums.take().filter(|sums| sums.length() == part.len());
            // The seal that ends a chunk is synced, because the metadata store will count on its length.
            let level = if full { Level::Synced } else { Level::Written };
            self.send(payload(part, sums), level, full, permits).await;
        }
        Ok(())
    }

    /// Goes on in a new group if the present one is full.
    async fn make_room(&mut self) -> Result<()> {
        if !self.sealing {
            return Ok(());
        }
        self.settle().await?;
        let ask = file::NextGroup {
            inode: self.inode,
            generation: self.generation,
            finished_group: self.group.group,
            finished_length: self.sent,
        };
        self.group = self.client.ask(&ask).await.map_err(|error| explain(error, &self.path))?;
        self.start = self.start.saturating_add(self.sent);
        (self.sent, self.sealing, self.link) = (0, false, None);
        Ok(())
    }

    /// The append of these bytes behind all before them.
    fn next_append(
        &mut self,
        payload: Payload,
        level: Level,
        seal: bool,
        permits: Option<OwnedSemaphorePermit>,
    ) -> Append {
        let ask = chunk::Append {
            device: self.group.device,
            chunk: self.group.chunk,
            group: self.group.group,
            generation: self.generation,
            offset: self.sent,
            level: level as u32,
            seal,
            small_parts: false,
        };
        let begin = self.sent;
        self.sent += payload.length() as u64;
        if self.sent > begin {
            self.unacknowledged.push_back((begin, self.sent, false));
        }
        self.sealing |= seal;
        Append { ask, payload, _permits: permits }
    }

    /// Starts an append behind those that are on their way.
    async fn send(&mut self, payload: Payload, level: Level, seal: bool, permits: Option<OwnedSemaphorePermit>) {
        let append = self.next_append(payload, level, seal, permits);
        let mut call: Pin<Box<dyn Future<Output = Outcome> + Send>> = Box::pin(perform(self.link(), append));
        // The first poll puts it into the link's queue, so pieces leave in their order; the rest of it needs no order.
        match poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await {
            Poll::Ready(outcome) => self.sort(outcome),
            Poll::Pending => drop(self.in_flight.spawn(call)),
        }
    }

    /// Waits until every append is answered, and asks again for those that were refused for a reason that passes.
    async fn settle(&mut self) -> Result<()> {
        while let Some(done) = self.in_flight.join_next().await {
            self.note(done);
        }
        let mut again = std::mem::take(&mut self.refused);
        again.sort_by_key(|(append, _)| append.ask.offset);
        for (append, error) in again {
            self.check()?;
            self.insist(append, error).await?;
        }
        self.check()
    }

    fn note(&mut self, done: std::result::Result<Outcome, tokio::task::JoinError>) {
        match done {
            Ok(outcome) => self.sort(outcome),
            Err(error) => {
                let text = format!(
                    "writing {} was cut off: {error}; what hflush or sync reported before is safe; append to go on",
                    self.path
                );
                self.fail(Error::new(ErrorKind::Io, text));
            }
        }
    }

    /// Forgets an append that went well; keeps one that may go better when those before it are there.
    fn sort(&mut self, (append, result): Outcome) {
        match result {
            Ok(answer) => {
                let end = append.ask.offset.saturating_add(append.payload.length() as u64);
                if answer.length < end {
                    let text = format!(
                        "the node says that a chunk of {} is {} bytes long after an append that ends at {end}; the file keeps what hflush reported before; this is a fault in Stormwell",
                        self.path, answer.length
                    );
                    return self.fail(Error::new(ErrorKind::Protocol, text));
                }
                self.acknowledged(append.ask.offset);
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
                self.refused.push((append, error));
            }
            Err(error) => {
                self.fail(explain(error, &self.path));
            }
        }
    }

    /// The append that begins here in the group is acknowledged: says how far all of them are.
    fn acknowledged(&mut self, begin: u64) {
        if let Some(append) = self.unacknowledged.iter_mut().find(|append| append.0 == begin) {
            append.2 = true;
        }
        let mut reached = None;
        while let Some((_, end, true)) = self.unacknowledged.front().copied() {
            reached = Some(end);
            self.unacknowledged.pop_front();
        }
        if let Some(end) = reached {
            let length = self.start.saturating_add(end);
            self.progress.send_modify(|written| written.length = length);
        }
    }

    /// Asks again for an append all of whose predecessors are there, as long as only room is missing.
    async fn insist(&mut self, append: Append, first: Error) -> Result<()> {
        let clock = self.client.session.clock.clone();
        let (mut append, mut full_since): (Append, Option<Time>) = (append, None);
        let mut pause = FULL_PAUSE_FIRST;
        if first.kind() == ErrorKind::Full {
            full_since = Some(clock.now());
            tokio::time::sleep(pause).await;
        }
        loop {
            let result;
            (append, result) = perform(self.link(), append).await;
            match result {
                Err(error) if error.kind() == ErrorKind::Full => {
                    let since = *full_since.get_or_insert(clock.now());
                    if clock.now().since(since) >= FULL_WAIT {
                        return Err(explain(error, &self.path));
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(FULL_PAUSE_LAST);
                }
                Err(error) => return Err(explain(error, &self.path)),
                Ok(_) => {
                    self.acknowledged(append.ask.offset);
                    return Ok(());
                }
            }
        }
    }

    async fn sync(&mut self, last: Bytes, sums: Option<BlockSums>, permits: OwnedSemaphorePermit) -> Result<()> {
        if last.is_empty() || self.sealing || last.len() as u64 >= self.client.sizes.file_chunk - self.sent {
            if !last.is_empty() {
                self.add(last, sums, permits).await?;
            }
            self.settle().await?;
            // A sealed chunk was synced with its seal; one without bytes has nothing to lose.
            if self.sealing || self.sent == 0 {
                return Ok(());
            }
            self.send(Payload::empty(), Level::Synced, false, None).await;
            return self.settle().await;
        }
        // One round trip: the bytes and the wish to have them on stable media travel together. A synced append is
        // answered when everything before it in the chunk is synced, too.
        self.reach_in_order().await?;
        self.check()?;
        let append = self.next_append(payload(last, sums), Level::Synced, false, Some(permits));
        // Waited for here and not in a task of its own: a lone synced append is all about wake-ups.
        let outcome = perform(self.link(), append).await;
        self.sort(outcome);
        self.settle().await
    }

    /// Adds the last bytes and ends the file. Called by a writer itself if it had no order before.
    pub(crate) async fn close(&mut self, last: Bytes, permits: OwnedSemaphorePermit) -> Result<Attributes> {
        self.check()?;
        if !last.is_empty() {
            self.make_room().await?;
            let room = self.client.sizes.file_chunk - self.sent;
            if (last.len() as u64) < room {
                if self.link.is_none() {
                    self.link = Some(self.client.route(self.group.device).await?.link());
                }
                // The end of the file is sealed and synced by the same append.
                self.send(Payload::new(last), Level::Synced, true, Some(permits)).await;
            } else {
                self.add(last, None, permits).await?;
            }
        }
        self.settle().await?;
        if !self.sealing && self.sent > 0 {
            let ask = chunk::Seal {
                device: self.group.device,
                chunk: self.group.chunk,
                generation: self.generation,
                length: self.sent,
            };
            self.client.ask_at(ask.device, &ask).await.map_err(|error| explain(error, &self.path))?;
        }
        let ask = file::Close {
            inode: self.inode,
            generation: self.generation,
            finished_group: self.group.group,
            finished_length: self.sent,
            modified_ms: self.modified_ms,
            mode: 0,
        };
        self.client.ask(&ask).await.map_err(|error| explain(error, &self.path))
    }
}

/// These bytes to send; nobody passes over them again if their checksums are known.
fn payload(bytes: Bytes, sums: Option<BlockSums>) -> Payload {
    match sums {
        Some(sums) => Payload::summed(bytes, sums),
        None => Payload::new(bytes),
    }
}

async fn perform(link: Link, append: Append) -> Outcome {
    let result = link.call(&append.ask, append.payload.clone()).await.map(|(answer, _)| answer);
    (append, result)
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

//! What happens behind a file writer: one task that keeps pieces in order, starts new chunks, and asks again where that helps.

use crate::client::Client;
use base::error::{Error, ErrorKind, Result};
use base::limit::FULL_WAIT;
use base::policy::Level;
use base::unit::Time;
use bytes::Bytes;
use net::message::chunk;
use net::message::file::{self, Attributes, NewGroup, OpenedFile};
use net::{Link, Payload};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::JoinSet;

/// What a writer wants done, in order.
pub(crate) enum Order {
    /// Add these bytes; the permits go back when they are acknowledged.
    Piece { bytes: Bytes, permits: OwnedSemaphorePermit },
    /// Say when everything so far is written.
    Flush(oneshot::Sender<Result<()>>),
    /// Add these bytes, and say when everything so far is synced.
    Sync { last: Bytes, permits: OwnedSemaphorePermit, reply: oneshot::Sender<Result<()>> },
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
    /// Bytes of the present group that are acknowledged or on their way.
    sent: u64,
    /// Whether the present chunk's last bytes are on their way, with its seal.
    sealing: bool,
    /// Where appends go. None until the first piece: a file of one append needs no order, so no connection of its own.
    link: Option<Link>,
    in_flight: JoinSet<Outcome>,
    /// Appends that were refused because they overtook others, or because there was no room.
    refused: Vec<(Append, Error)>,
    failed: Arc<OnceLock<Error>>,
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
        failed: Arc<OnceLock<Error>>,
    ) -> Flow {
        Flow {
            client,
            path,
            inode: opened.inode,
            generation: opened.generation,
            modified_ms,
            group: opened.group,
            sent: 0,
            sealing: false,
            link: None,
            in_flight: JoinSet::new(),
            refused: Vec::new(),
            failed,
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
            Order::Piece { bytes, permits } => {
                let sent = self.add(bytes, permits).await;
                self.keep(sent);
            }
            Order::Flush(reply) => {
                let settled = self.settle().await;
                self.answer(reply, settled);
            }
            Order::Sync { last, permits, reply } => {
                let synced = self.sync(last, permits).await;
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
            let _later = self.failed.set(error);
        }
    }

    fn answer<T>(&self, reply: oneshot::Sender<Result<T>>, result: Result<T>) {
        if let Err(error) = &result {
            let _later = self.failed.set(error.clone());
        }
        // A writer that stopped waiting does not need to know.
        let _gone = reply.send(result);
    }

    fn link(&self) -> Link {
        self.link.clone().unwrap_or_else(|| self.client.link())
    }

    fn check(&self) -> Result<()> {
        self.failed.get().cloned().map_or(Ok(()), Err)
    }

    /// Sends bytes, cut at the chunk's end.
    async fn add(&mut self, mut bytes: Bytes, permits: OwnedSemaphorePermit) -> Result<()> {
        let mut permits = Some(permits);
        if self.link.is_none() {
            self.link = Some(self.client.ordered_link().await?);
        }
        while !bytes.is_empty() {
            self.check()?;
            self.make_room().await?;
            let room = self.client.sizes.file_chunk - self.sent;
            let part = bytes.split_to(usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len()));
            let full = part.len() as u64 == room;
            let permits = if bytes.is_empty() { permits.take() } else { None };
            // The seal that ends a chunk is synced, because the metadata store will count on its length.
            let level = if full { Level::Synced } else { Level::Written };
            self.send(part, level, full, permits).await;
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
        (self.sent, self.sealing) = (0, false);
        Ok(())
    }

    /// The append of these bytes behind all before them.
    fn next_append(&mut self, bytes: Bytes, level: Level, seal: bool, permits: Option<OwnedSemaphorePermit>) -> Append {
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
        self.sent += bytes.len() as u64;
        self.sealing |= seal;
        Append { ask, payload: Payload::new(bytes), _permits: permits }
    }

    /// Starts an append behind those that are on their way.
    async fn send(&mut self, bytes: Bytes, level: Level, seal: bool, permits: Option<OwnedSemaphorePermit>) {
        let append = self.next_append(bytes, level, seal, permits);
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
                let _later = self.failed.set(Error::new(ErrorKind::Io, text));
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
                    let _later = self.failed.set(Error::new(ErrorKind::Protocol, text));
                }
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
                let _later = self.failed.set(explain(error, &self.path));
            }
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
                Ok(_) => return Ok(()),
            }
        }
    }

    async fn sync(&mut self, last: Bytes, permits: OwnedSemaphorePermit) -> Result<()> {
        if last.is_empty() || self.sealing || last.len() as u64 >= self.client.sizes.file_chunk - self.sent {
            if !last.is_empty() {
                self.add(last, permits).await?;
            }
            self.settle().await?;
            // A sealed chunk was synced with its seal; one without bytes has nothing to lose.
            if self.sealing || self.sent == 0 {
                return Ok(());
            }
            self.send(Bytes::new(), Level::Synced, false, None).await;
            return self.settle().await;
        }
        // One round trip: the bytes and the wish to have them on stable media travel together. A synced append is
        // answered when everything before it in the chunk is synced, too.
        if self.link.is_none() {
            self.link = Some(self.client.ordered_link().await?);
        }
        self.check()?;
        let append = self.next_append(last, Level::Synced, false, Some(permits));
        // Waited for here and not in a task of its own: a lone synced append is all about wake-ups.
        let outcome = perform(self.link(), append).await;
        self.sort(outcome);
        self.settle().await
    }

    async fn close(&mut self, last: Bytes, permits: OwnedSemaphorePermit) -> Result<Attributes> {
        self.check()?;
        if !last.is_empty() {
            self.make_room().await?;
            let room = self.client.sizes.file_chunk - self.sent;
            if (last.len() as u64) < room {
                // The end of the file is sealed and synced by the same append.
                self.send(last, Level::Synced, true, Some(permits)).await;
            } else {
                self.add(last, permits).await?;
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
            self.client.ask(&ask).await.map_err(|error| explain(error, &self.path))?;
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

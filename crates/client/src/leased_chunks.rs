//! Chunks in a consumer's hands: their grants are renewed while somebody works on them, and acknowledgements travel in batches.

use crate::bag::Bag;
use crate::client::Client;
use base::error::{Error, ErrorKind, Result};
use base::id::ChunkId;
use base::limit::{ACKNOWLEDGED_AT_ONCE_MAX, ACKNOWLEDGEMENTS_AHEAD_MAX, UNANSWERED_MAX};
use base::unit::Time;
use bytes::Bytes;
use net::message::Id;
use net::message::bag::{Acknowledge, AcknowledgeAnswer, Grant, RenewGrants};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// A chunk that nobody else has while it is held.
///
/// Handled, it is acknowledged; dropped without that, its grant ends and somebody gets it again.
pub struct Chunk {
    /// Its name.
    pub id: ChunkId,
    /// Its bytes.
    pub bytes: Bytes,
    /// The pass it belongs to.
    pub pass: u32,
    key: Key,
    keeper: Arc<Keeper>,
    acknowledged: bool,
}

impl Chunk {
    /// Says that it is done with. Sent together with others, at most 100 ms late; how that fared is told by
    /// `Consumer::flush`.
    pub fn acknowledge(mut self) {
        self.acknowledged = true;
        self.keeper.ledger.acknowledge(self.key, self.pass);
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if !self.acknowledged {
            self.keeper.ledger.let_go(self.key);
        }
    }
}

/// An acknowledgement that was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The chunk.
    pub chunk: ChunkId,
    /// Why. `Stale`: somebody else has or had it; discard what you made of it.
    pub error: Error,
}

/// How acknowledgements fared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    /// Chunks whose acknowledgement is durable.
    pub accepted: Vec<ChunkId>,
    /// Chunks to discard, or whose fate is unknown, as the error says.
    pub refused: Vec<Refusal>,
}

/// What names a chunk in one's hands: the member it came from, the grant, the chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) member: u128,
    pub(crate) grant: u64,
    pub(crate) chunk: ChunkId,
}

/// Shared by a consumer and its chunks; with the last of them the background work ends, after what is queued is sent.
pub(crate) struct Keeper {
    pub(crate) ledger: Arc<Ledger>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.ledger.book().closed = true;
        self.ledger.news.notify_one();
    }
}

/// Grants and acknowledgements of one consumer.
pub(crate) struct Ledger {
    client: Client,
    bag: u64,
    /// Whether the bag retains.
    retain: bool,
    book: Mutex<Book>,
    /// Something was queued, or is due earlier than before.
    news: Notify,
    /// Acknowledgements that are queued or on their way.
    open: watch::Sender<usize>,
}

#[derive(Default)]
struct Book {
    /// Grants to be renewed, and when.
    held: BTreeMap<Key, Renewal>,
    /// Acknowledgements that wait to be sent.
    queued: Vec<(Key, u32)>,
    /// When the oldest of them must be sent.
    queued_due: Option<Time>,
    results: Acknowledged,
    closed: bool,
}

#[derive(Clone, Copy)]
struct Renewal {
    every: Duration,
    due: Time,
}

/// An acknowledgement waits at most so long for company.
const LATE_MAX: Duration = Duration::from_millis(100);

/// A device that could not be reached is asked again after this long.
const AGAIN_PAUSE: Duration = Duration::from_secs(1);

/// So many acknowledgements or renewals travel in one message.
const BATCH_MAX: usize = ACKNOWLEDGED_AT_ONCE_MAX;

/// Grants that end sooner are renewed as if they ended then: nobody can renew more often.
const GRANT_MIN: Duration = Duration::from_millis(100);

impl Keeper {
    /// A ledger, and its background work. Must be called within a tokio runtime.
    pub(crate) fn start(bag: &Bag) -> Arc<Keeper> {
        let ledger = Arc::new(Ledger {
            client: bag.client.clone(),
            bag: bag.number,
            retain: bag.retain,
            book: Mutex::new(Book::default()),
            news: Notify::new(),
            open: watch::Sender::new(0),
        });
        tokio::spawn(ledger.clone().work());
        Arc::new(Keeper { ledger })
    }

    /// A chunk that was pulled, as it is handed out.
    pub(crate) fn chunk(self: &Arc<Self>, key: Key, pass: u32, bytes: Bytes) -> Chunk {
        Chunk { id: key.chunk, bytes, pass, key, keeper: self.clone(), acknowledged: false }
    }
}

impl Ledger {
    /// A chunk came: its grant, which ends after `grant`, is renewed from now on.
    pub(crate) fn hold(&self, key: Key, grant: Duration) {
        let every = grant.max(GRANT_MIN) / 3;
        let due = self.client.session.clock.now().after(every);
        self.book().held.insert(key, Renewal { every, due });
        self.news.notify_one();
    }

    /// Stops renewing a grant.
    pub(crate) fn let_go(&self, key: Key) {
        self.book().held.remove(&key);
    }

    fn acknowledge(&self, key: Key, pass: u32) {
        let due = self.client.session.clock.now().after(LATE_MAX);
        self.open.send_modify(|open| *open += 1);
        let mut book = self.book();
        book.queued.push((key, pass));
        if book.queued_due.is_none() || book.queued.len() == BATCH_MAX {
            book.queued_due = Some(if book.queued.len() < BATCH_MAX { due } else { Time::ZERO });
            drop(book);
            self.news.notify_one();
        }
    }

    /// Sends what is queued for this member, without waiting for the answer, if these are at least so many.
    pub(crate) fn send_queued(self: &Arc<Self>, member: u128, least: usize) {
        let mut batch: Vec<(Key, u32)> = {
            let mut book = self.book();
            if book.queued.iter().filter(|(key, _)| key.member == member).count() < least {
                return;
            }
            let (batch, rest) = std::mem::take(&mut book.queued).into_iter().partition(|(key, _)| key.member == member);
            book.queued = rest;
            if book.queued.is_empty() {
                book.queued_due = None;
            }
            batch
        };
        // Acknowledgements of one message are of one pass.
        batch.sort_by_key(|(_, pass)| *pass);
        for same_pass in batch.chunk_by(|a, b| a.1 == b.1) {
            for part in same_pass.chunks(BATCH_MAX) {
                let keys = part.iter().map(|(key, _)| *key).collect();
                tokio::spawn(self.clone().send(member, part[0].1, keys));
            }
        }
    }

    /// Sends everything that is queued, waits for all answers, and gives the results that nobody has taken yet.
    pub(crate) async fn flush(self: &Arc<Self>) -> Acknowledged {
        self.send_all_queued();
        let mut open = self.open.subscribe();
        if open.wait_for(|open| *open == 0).await.is_err() {
            unreachable!("the ledger holds the sender");
        }
        std::mem::take(&mut self.book().results)
    }

    /// The results that have come in since somebody last took them.
    pub(crate) fn take_results(&self) -> Acknowledged {
        std::mem::take(&mut self.book().results)
    }

    fn send_all_queued(self: &Arc<Self>) {
        let mut members: Vec<u128> = self.book().queued.iter().map(|(key, _)| key.member).collect();
        members.sort_unstable();
        members.dedup();
        members.into_iter().for_each(|member| self.send_queued(member, 1));
    }

    async fn send(self: Arc<Self>, member: u128, pass: u32, keys: Vec<Key>) {
        let result = self.ask_until_answered(member.into(), pass, &keys).await;
        let mut book = self.book();
        let unusable = match &result {
            Ok(answer) if answer.results.len() == keys.len() => None,
            Ok(_) => Some(Error::new(
                ErrorKind::Protocol,
                "the node answered for another number of chunks than were acknowledged; whether they count as handled is not known; check that client and node have one version",
            )),
            Err(error) => Some(unknown(error)),
        };
        let failures = result.map(|answer| answer.results).unwrap_or_default();
        let mut failures = failures.into_iter();
        for key in &keys {
            book.held.remove(key);
            let error = match (&unusable, failures.next()) {
                (Some(error), _) => Some(error.clone()),
                (None, Some(failure)) if failure.code != 0 => Some(Error::from(failure)),
                (None, _) => None,
            };
            match error {
                Some(error) => book.results.refused.push(Refusal { chunk: key.chunk, error }),
                None => book.results.accepted.push(key.chunk),
            }
        }
        drop(book);
        self.open.send_modify(|open| *open -= keys.len());
    }

    /// Asks a device that cannot be reached, or remembers too much already, again and again, `UNANSWERED_MAX` at most: a second
    /// acknowledgement of the same chunk under the same grant does no harm.
    async fn ask_until_answered(&self, device: Id, pass: u32, keys: &[Key]) -> Result<AcknowledgeAnswer> {
        let session = &self.client.session;
        let number = session.streams.acknowledgement(device, ACKNOWLEDGEMENTS_AHEAD_MAX).await?;
        let began = session.clock.now();
        let (bag, retain, grants) = (self.bag, self.retain, grants_of(keys));
        let mut ask = Acknowledge { bag, device, pass, grants, retain, number: number.number, floor: 0 };
        loop {
            ask.floor = number.floor();
            match self.client.ask_at(device, &ask).await {
                Err(error)
                    if (session.routes.may_come_back(device, &error) || error.kind() == ErrorKind::Busy)
                        && session.clock.now().since(began) < UNANSWERED_MAX =>
                {
                    tokio::time::sleep(AGAIN_PAUSE).await;
                }
                result => return result,
            }
        }
    }

    /// Sends what is due until the consumer and all its chunks are gone.
    async fn work(self: Arc<Self>) {
        loop {
            let now = self.client.session.clock.now();
            let (due, closed) = {
                let book = self.book();
                let renewal = book.held.values().map(|renewal| renewal.due).min();
                (renewal.into_iter().chain(book.queued_due).min(), book.closed)
            };
            if closed {
                self.send_all_queued();
                return;
            }
            match due {
                Some(due) if due <= now => {
                    if self.book().queued_due.is_some_and(|due| due <= now) {
                        self.send_all_queued();
                    }
                    self.renew(now);
                }
                Some(due) => {
                    tokio::select! {
                        biased;
                        () = self.news.notified() => (),
                        () = tokio::time::sleep(due.since(now)) => (),
                    }
                }
                None => self.news.notified().await,
            }
        }
    }

    /// Renews the grants that are due, and with them those of the same member that will be soon.
    fn renew(self: &Arc<Self>, now: Time) {
        let mut by_member: BTreeMap<u128, Vec<Key>> = BTreeMap::new();
        for (key, renewal) in &mut self.book().held {
            if renewal.due <= now {
                renewal.due = now.after(renewal.every);
                by_member.entry(key.member).or_default().push(*key);
            }
        }
        for (member, keys) in by_member {
            for part in keys.chunks(BATCH_MAX) {
                let ask = RenewGrants { bag: self.bag, device: member.into(), grants: grants_of(part) };
                let client = self.client.clone();
                // A grant that could not be renewed ends; the acknowledgement will be refused and say so.
                tokio::spawn(async move { client.ask_at(ask.device, &ask).await });
            }
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The message as a whole was refused or not answered: it may have counted when it was asked before, so the refusal is no word on it.
fn unknown(error: &Error) -> Error {
    let kind = match error.kind() {
        ErrorKind::Stale | ErrorKind::NotFound => ErrorKind::Unreachable,
        kind => kind,
    };
    Error::new(kind, error.text()).during("acknowledge (whether the chunk counts as handled is not known)")
}

fn grants_of(keys: &[Key]) -> Vec<Grant> {
    keys.iter().map(|key| Grant { chunk: key.chunk.0.into(), grant: key.grant }).collect()
}

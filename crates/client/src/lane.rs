//! One lane of a packer: a shared group of its own, and one append in it at a time.
//!
//! Why lanes: the files of a compound are named by their offset in the chunk, so appends to a chunk must arrive in their
//! order, and calls may overtake each other on several connections. With one append in flight for each chunk nothing can
//! overtake, and several chunks spread over the devices.

use crate::client::Client;
use crate::columns::{Head, together};
use crate::flow::patience;
use crate::packer::{Compound, Results, Touched, Work};
use crate::room::Tries;
use crate::writer::CreateOptions;
use base::error::{Error, ErrorKind, Result};
use base::id::DeviceId;
use base::limit::REFUSED_MAX;
use base::planted::Planted;
use base::policy::Level;
use base::unit::Time;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use net::Payload;
use net::message::file::{FinishPack, NewAttributes, NewGroup, PackGroup, PutFile, PutFiles};
use net::message::{Id, chunk};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;

/// So long after it refused bytes a device is not asked for more if others take them.
const AVOIDED: Duration = Duration::from_secs(60);

/// Nobody takes a shared group over, so there is one generation of it.
const GENERATION: u64 = 1;

pub(crate) struct Lane {
    client: Client,
    results: Results,
    touched: Touched,
    /// The group in use.
    group: Option<Shared>,
    /// The device that refused the present append; none if that was not come to.
    asked: Option<Id>,
    /// Another one took it.
    others_answered: bool,
    /// Devices that took no more of a group, and when: for a while others are asked for.
    refused: Vec<(Id, Time)>,
    /// How long one replica is waited for when another one has answered: it doubles with each that is given up.
    patience: Duration,
}

/// A group that small files share.
struct Shared {
    number: u64,
    /// Its replicas, all of which get the same bytes: a file is named when each of them has it.
    replicas: Vec<Head>,
    /// Bytes in it.
    length: u64,
}

impl Shared {
    /// One without bytes. `Protocol` if it has several columns: small files lie one after another in one chunk.
    fn new(group: &NewGroup) -> Result<Shared> {
        let layout = group.layout.checked()?;
        let columns = layout.columns().len();
        if columns == 1 {
            let replicas = layout.replicas().map(Head::from).collect();
            return Ok(Shared { number: group.group, replicas, length: 0 });
        }
        let text = format!(
            "the node gives small files a group of {columns} columns; nothing was written; check that client and node have one version"
        );
        Err(Error::new(ErrorKind::Protocol, text))
    }
}

impl Lane {
    pub(crate) fn new(client: Client, results: Results, touched: Touched) -> Lane {
        Lane {
            client,
            results,
            touched,
            group: None,
            asked: None,
            others_answered: false,
            refused: Vec::new(),
            patience: patience::FIRST,
        }
    }

    /// Puts compounds until there will be no more.
    pub(crate) async fn run(mut self, inbox: Arc<Mutex<mpsc::Receiver<Work>>>) {
        loop {
            let work = inbox.lock().await.recv().await;
            let Some(work) = work else { break };
            let Work { compound, _permit } = work;
            self.put(compound).await;
        }
        self.leave().await;
    }

    async fn put(&mut self, mut compound: Compound) {
        let mut outcome = match self.store(&mut compound).await {
            Ok(()) => self.name(&compound).await,
            Err(error) => Err(error),
        };
        if let Ok(each) = &mut outcome {
            for ((result, file), bytes) in each.iter_mut().zip(&compound.files).zip(&compound.contents) {
                // Its directory's policy wants it on another tier than the group's.
                if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unsupported) {
                    *result = self.write_alone(file, bytes.clone()).await;
                }
            }
        }
        let paths = compound.files.into_iter().map(|file| file.path);
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        match outcome {
            Ok(each) => results.extend(paths.zip(each)),
            Err(error) => results.extend(paths.map(|path| {
                let error = error.clone().during(format!("put {path}"));
                (path, Err(error))
            })),
        }
    }

    /// Writes a file that cannot share a group as a file of its own: it, too, is there whole or not at all.
    async fn write_alone(&self, file: &PutFile, bytes: Bytes) -> Result<()> {
        let PutFile { overwrite, parents, mode, modified_ms, accessed_ms, .. } = *file;
        let mode = (mode != 0).then_some(mode);
        let options = CreateOptions { overwrite, parents, mode, modified_ms, ..CreateOptions::default() };
        let (unfinished, mut writer) = self.client.create_beside(&file.path, options).await?;
        let written = async {
            writer.write(bytes).await?;
            writer.close().await?;
            if accessed_ms != 0 {
                let accessed = NewAttributes { accessed_ms: Some(accessed_ms), ..NewAttributes::default() };
                self.client.set_attributes(unfinished.temporary(), accessed).await?;
            }
            unfinished.finish().await
        };
        match written.await {
            Ok(()) => {
                self.touched.lock().unwrap_or_else(PoisonError::into_inner).insert(unfinished.directory().to_string());
                Ok(())
            }
            Err(error) => Err(unfinished.give_up(error).await),
        }
    }

    /// Makes the bytes durable, and notes in each file where its own are.
    async fn store(&mut self, compound: &mut Compound) -> Result<()> {
        if compound.bytes == 0 {
            return Ok(());
        }
        let payload = Payload::new(self.gather(compound));
        let clock = self.client.session.clock.clone();
        let (mut tries, mut cut_short) = (Tries::default(), false);
        let (group, start) = loop {
            match self.append(&payload, &compound.files).await {
                Ok(place) => break place,
                // Its device failed or cannot be reached: the next group lies elsewhere once that is known. No file names what it may have taken.
                Err(error) if error.kind() == ErrorKind::Full || self.is_gone(&error) || self.is_silent(&error) => {
                    if !tries.goes_on(&*clock).await {
                        return Err(error);
                    }
                }
                // The node was killed with a part of the append written, so that the same one does not follow on. No file names
                // that part; another group takes all of it.
                Err(error) if error.kind() == ErrorKind::Stale && !cut_short => cut_short = true,
                Err(error) => return Err(error),
            }
        };
        let mut offset = start;
        for file in &mut compound.files {
            (file.group, file.offset) = (group, offset);
            offset += file.length;
        }
        Ok(())
    }

    /// Whether this error says that the device that was asked takes no more, while others may.
    fn is_gone(&self, error: &Error) -> bool {
        self.asked.is_some_and(|device| self.client.session.routes.is_gone(device, error))
    }

    /// Whether it says nothing while another replica did.
    fn is_silent(&self, error: &Error) -> bool {
        self.others_answered && error.kind() == ErrorKind::Unreachable
    }

    /// The bytes of all files one after another; those of a single file are not copied.
    fn gather(&self, compound: &Compound) -> Bytes {
        let mut contents = compound.contents.iter().filter(|bytes| !bytes.is_empty());
        if let (Some(only), None) = (contents.next(), contents.next()) {
            return only.clone();
        }
        let mut buffer = self.client.session.pool.take(compound.bytes);
        let mut at = 0;
        for bytes in &compound.contents {
            buffer[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        }
        buffer.freeze()
    }

    /// Appends the bytes of these files to the group in use, or to a new one, and answers with group and offset.
    async fn append(&mut self, payload: &Payload, files: &[PutFile]) -> Result<(u64, u64)> {
        let length = payload.length() as u64;
        if self.group.as_ref().is_some_and(|group| group.length.saturating_add(length) > self.client.sizes.file_chunk) {
            self.leave().await;
        }
        // Taken out, and put back only if all went well: after a failure nobody knows what is at that offset, and an
        // append of other bytes there would be taken for a repetition.
        (self.asked, self.others_answered) = (None, false);
        let group = match self.group.take() {
            Some(in_use) => in_use,
            None => {
                let path = files.iter().find(|file| file.length > 0).map(|file| file.path.clone()).unwrap_or_default();
                let (replicas_max, refused) = (self.client.replicas_max, self.refused());
                Shared::new(&self.client.ask(&PackGroup { path, replicas_max, refused }).await?)?
            }
        };
        let Shared { number, ref replicas, length: used } = group;
        let of = if self.client.planted == Some(Planted::PackedOnOne) { &replicas[..1] } else { replicas };
        if let Err((device, others_answered, error)) = self.append_to_all(of, (number, used), payload).await {
            (self.asked, self.others_answered) = (Some(device), others_answered);
            if self.is_silent(&error) {
                self.patience = patience::next(self.patience);
            }
            self.refused.push((device, self.client.session.clock.now()));
            self.finish(number).await;
            return Err(error);
        }
        self.group = Some(Shared { length: used.saturating_add(length), ..group });
        Ok((number, used))
    }

    /// Devices that refused something a moment ago.
    fn refused(&mut self) -> Vec<Id> {
        let now = self.client.session.clock.now();
        self.refused.retain(|(_, at)| now.since(*at) < AVOIDED);
        let behind = self.refused.len().saturating_sub(REFUSED_MAX);
        self.refused[behind..].iter().map(|(device, _)| *device).collect()
    }

    /// Appends to all replicas of a group, behind so many bytes. If a device did not take them: which, whether another one did, and why; what the
    /// others have is of no use then. One that is silent while another one has answered is given up as a writer gives it up.
    async fn append_to_all(
        &self,
        replicas: &[Head],
        at: (u64, u64),
        payload: &Payload,
    ) -> std::result::Result<(), (Id, bool, Error)> {
        let append = async |replica: &Head| (replica.device, self.append_to(*replica, at, payload).await);
        let mut waits: Vec<Id> = replicas.iter().map(|replica| replica.device).collect();
        let mut calls: FuturesUnordered<_> = replicas.iter().map(append).collect();
        let mut first = None;
        while !waits.is_empty() {
            let now = self.client.session.clock.now();
            let due = first.and_then(|first| {
                waits.iter().map(|device| (self.due(*device, first), *device)).min_by_key(|(due, _)| *due)
            });
            let late = match due {
                Some((due, device)) if due <= now => {
                    return Err((device, true, patience::silent(DeviceId(device.value()))));
                }
                due => due.map(|(due, _)| due.since(now)),
            };
            let answered = match late {
                None => calls.next().await,
                Some(left) => timeout(left, calls.next()).await.unwrap_or_default(),
            };
            let Some((device, appended)) = answered else { continue };
            if let Err(error) = appended {
                return Err((device, first.is_some(), error));
            }
            waits.retain(|waits| *waits != device);
            first = first.or(Some(self.client.session.clock.now()));
        }
        Ok(())
    }

    /// When a replica is given up that has not answered what another one answered at `first`: what it is asked is synced.
    fn due(&self, device: Id, first: Time) -> Time {
        patience::due_of_sync(first, self.client.session.routes.heard(device), self.patience)
    }

    /// Appends to one replica of a group, behind so many bytes.
    async fn append_to(&self, replica: Head, (group, used): (u64, u64), payload: &Payload) -> Result<()> {
        let Head { device, chunk } = replica;
        let ask = chunk::Append {
            device,
            chunk,
            group,
            generation: GENERATION,
            offset: used,
            level: Level::Synced as u32,
            seal: false,
            small_parts: true,
        };
        let (answer, _) = self.client.call_at(device, &ask, payload.clone()).await?;
        let length = payload.length() as u64;
        if answer.length != used.saturating_add(length) {
            let text = format!(
                "the node says that a shared chunk is {} bytes long after {length} bytes at {used}; the files were not put; this is a fault in Stormwell",
                answer.length
            );
            return Err(Error::new(ErrorKind::Protocol, text));
        }
        Ok(())
    }

    /// Makes the names. One result for each file.
    async fn name(&self, compound: &Compound) -> Result<Vec<Result<()>>> {
        let answer = self.client.ask(&PutFiles { files: compound.files.clone() }).await?;
        if answer.results.len() != compound.files.len() {
            let text = format!(
                "the node answered for {} files where {} were put; look which are there; check that client and node have one version",
                answer.results.len(),
                compound.files.len()
            );
            return Err(Error::new(ErrorKind::Protocol, text));
        }
        let result = |failure: net::message::Failure| if failure.code == 0 { Ok(()) } else { Err(failure.into()) };
        Ok(answer.results.into_iter().map(result).collect())
    }

    /// Seals the group in use. What is in it is durable whether this works or not.
    async fn leave(&mut self) {
        if let Some(Shared { number, replicas, length }) = self.group.take() {
            let seal = async |replica: Head| {
                let Head { device, chunk } = replica;
                let ask = chunk::Seal { device, chunk, generation: GENERATION, length };
                self.client.ask_at(device, &ask).await
            };
            let _sealed_later_if_not = together(replicas.into_iter().map(seal)).await;
            self.finish(number).await;
        }
    }

    /// Says that no more files come into a group, so that it gets its copies now and not when the session is over.
    async fn finish(&self, group: u64) {
        let _finished_with_the_session_if_not = self.client.ask(&FinishPack { group }).await;
    }
}

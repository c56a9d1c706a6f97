//! Reading one file: where its bytes are is asked for in pages and remembered; of what is being written, the chunk itself says how long it is.

use crate::client::Client;
use crate::columns::{Head, Places, brings_nothing, together};
use crate::grown::{Grown, Run};
use crate::replicas::is_of_one_device;
use crate::stream::FileStream;
use base::checksum::UnitSums;
use base::error::{Error, ErrorKind, Result};
use base::layout::Layout;
use base::limit::{FRAME_PAYLOAD_MAX, RECORD_PAYLOAD_MAX};
use base::net::Boxed;
use base::stripe::Piece;
use base::unit::Time;
use bytes::Bytes;
use net::Payload;
use net::cells;
use net::message::chunk;
use net::message::file::{Attributes, Extent, Locate};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How a file is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// The reader will not come back: the node need not keep the bytes in memory for it.
    pub once: bool,
}

/// A file that is being read. Clones share what is known about it.
///
/// A closed file is read as it was when it was opened, or at the last `length`; of a file that is being written, every
/// read sees what its writer has hflushed.
#[derive(Clone)]
pub struct FileReader {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    path: String,
    inode: u64,
    options: ReadOptions,
    known: Mutex<Known>,
}

/// What the metadata store said.
struct Known {
    attributes: Attributes,
    /// By first byte within the file.
    extents: BTreeMap<u64, Arc<Run>>,
    /// The open one of several replicas that was told last, also while it is not remembered: what was seen of it does not go away.
    open: Option<Arc<Run>>,
}

/// Extents remembered: at 256 MiB each those of a 16 TiB file. Beyond that a reader starts to remember afresh.
const EXTENTS_MAX: usize = 65_536;

/// Where an open extent ends the metadata store is asked again after so long: its writer may have gone on elsewhere because its device
/// failed or cannot be reached, and then no seal says so.
const OPEN_TOLD_MAX: Duration = Duration::from_secs(1);

/// So long a reader waits where it cannot be told how far a file of several replicas is written, and so often it looks again: because a replica
/// does not answer, or started anew. A writer that writes goes on without that replica after `PATIENCE` and a round trip; who ends a file for a
/// writer that is gone waits for it as long as its node is heard of.
const OPEN_WAIT: Duration = Duration::from_secs(10);
const OPEN_PAUSE: Duration = Duration::from_millis(250);

/// How often one read looks again for bytes that had moved on when it came to where it was told; then it fails. Each time a drain has copied
/// a whole chunk meanwhile.
const MOVES_MAX: usize = 16;

/// Pieces of columns that one read asks for at once.
const PIECES_MAX: usize = 64;

/// Bytes of a read as they came, and their checksums if they are wanted.
#[derive(Default)]
pub(crate) struct Gathered {
    pub(crate) parts: Vec<Bytes>,
    pub(crate) sums: Option<UnitSums>,
    /// The stored checksums do, if they are of the same units: then the bytes are not compared with them here.
    pub(crate) stored: bool,
}

/// How a read of one extent went.
enum Got {
    /// All that was asked for.
    Whole,
    /// The file ends here.
    End,
    /// What is remembered about this place does not hold any more.
    Outdated,
    /// A device does not have what it was just said to have, or cannot be reached.
    Gone(Error),
    /// So does one of an open group of several replicas, or it cannot be told how far that is written: it may go on without this device soon.
    Waits(Error),
}

/// What a node said, and the bytes that were asked for.
pub(crate) type Fetched = (chunk::ReadAnswer, Vec<Bytes>);

fn length_of(parts: &[Bytes]) -> u64 {
    parts.iter().map(|part| part.len() as u64).sum()
}

/// What a replica answered of bytes that are all there: one that is shorter than it should be is as good as none if others have its bytes, too.
fn whole_of_several(several: bool, piece: Piece, (answer, parts): Fetched) -> Result<Fetched> {
    if several && length_of(&parts) < piece.length {
        return Err(cut(&answer));
    }
    Ok((answer, parts))
}

fn cut(answer: &chunk::ReadAnswer) -> Error {
    let text = format!("its chunk ends at byte {}, and bytes behind that are missing", answer.chunk_length);
    Error::new(ErrorKind::Corrupt, text)
}

/// Asks for bytes of a chunk. `unchecked`, `blocks`: as `chunk::Read` has them.
fn question(head: Head, piece: Piece, options: ReadOptions, (unchecked, blocks): (bool, bool)) -> chunk::Read {
    let ranges = vec![chunk::Range { offset: piece.offset, length: piece.length }];
    let Head { device, chunk } = head;
    chunk::Read { device, chunk, ranges, once: options.once, unchecked, blocks, cells: true }
}

impl Client {
    /// Opens a file to read. `Invalid` if it is a directory.
    pub async fn open(&self, path: &str) -> Result<FileReader> {
        self.open_with(path, ReadOptions::default()).await
    }

    /// Opens a file to read in this way.
    pub async fn open_with(&self, path: &str, options: ReadOptions) -> Result<FileReader> {
        let ask = Locate { path: path.to_string(), inode: 0, offset: 0, length: u64::MAX };
        self.reader(path.to_string(), options, ask).await
    }

    async fn reader(&self, path: String, options: ReadOptions, ask: Locate) -> Result<FileReader> {
        let answer = self.ask(&ask).await?;
        if answer.attributes.directory {
            return Err(Error::new(ErrorKind::Invalid, format!("{path} is a directory; name a file, or list it")));
        }
        let inode = answer.attributes.inode;
        let known = Known { attributes: answer.attributes, extents: BTreeMap::new(), open: None };
        let shared = Shared { client: self.clone(), path, inode, options, known: Mutex::new(known) };
        let reader = FileReader { shared: Arc::new(shared) };
        reader.remember(&mut reader.known(), answer.extents)?;
        Ok(reader)
    }

    /// Opens a file to read by its number, whatever its name is now. `Invalid` if it is a directory.
    pub async fn open_inode(&self, inode: u64) -> Result<FileReader> {
        let ask = Locate { path: String::new(), inode, offset: 0, length: u64::MAX };
        self.reader(format!("the file of number {inode}"), ReadOptions::default(), ask).await
    }

    /// Where the bytes of a file are, by its number, from the piece with byte `from` on; and whether there are more pieces.
    pub async fn extents(&self, inode: u64, from: u64) -> Result<(Vec<Extent>, bool)> {
        let ask = Locate { path: String::new(), inode, offset: from, length: u64::MAX - from };
        let answer = self.ask(&ask).await?;
        Ok((answer.extents, answer.more))
    }

    /// All of a file's bytes: two round trips if it is small.
    pub async fn read_small(&self, path: &str) -> Result<Bytes> {
        let reader = self.open(path).await?;
        let length = reader.length_known_or_asked().await?;
        let parts = reader.read_at(0, length).await?;
        Ok(join(parts))
    }

    /// The bytes of a range of a chunk, from an answer in which cells are as they are stored.
    pub(crate) async fn restored(
        &self,
        (offset, length): (u64, u64),
        (answer, payload): (chunk::ReadAnswer, Payload),
    ) -> Result<Fetched> {
        let end = offset.saturating_add(length);
        let mut parts = Vec::new();
        for stored in cells::apart(&answer.cells, (offset, length), payload.into_bytes())? {
            if stored.cell == 0 {
                parts.push(stored.bytes);
                continue;
            }
            let asked = stored.part(offset, end);
            parts.push(self.session.compressor.restore_cell(stored).await?.slice(asked));
        }
        Ok((answer, parts))
    }
}

/// The parts as one; a single part is not copied.
pub(crate) fn join(mut parts: Vec<Bytes>) -> Bytes {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    Bytes::from(parts.concat())
}

impl FileReader {
    /// What the metadata store last said about the file.
    pub fn attributes(&self) -> Attributes {
        self.known().attributes.clone()
    }

    /// The path that it was opened by.
    pub fn path(&self) -> &str {
        &self.shared.path
    }

    /// The file's length now in bytes, with what a writer has hflushed. Later reads see at least that much.
    pub async fn length(&self) -> Result<u64> {
        self.length_reaching(u64::MAX).await
    }

    /// The length as `length`, without a wait if the file is at least so long: where it cannot be told how far it is written it may then be less than
    /// what a writer has hflushed, and less than what a later look says, never more.
    pub async fn length_reaching(&self, enough: u64) -> Result<u64> {
        let mut waits = None;
        loop {
            let began = self.shared.client.session.clock.now();
            match self.length_now().await? {
                (length, Some(error)) if length < enough => self.pause(*waits.get_or_insert(began), error).await?,
                (length, _) => return Ok(length),
            }
        }
    }

    /// The length as it is seen now, and why the file may be longer.
    async fn length_now(&self) -> Result<(u64, Option<Error>)> {
        let mut at = self.attributes().length;
        // The open extent is the last one of all.
        while self.locate(at).await? {
            let known = self.known();
            let Some(last) = known.extents.values().next_back() else { break };
            at = last.extent.offset.saturating_add(last.extent.length).max(at.saturating_add(1));
        }
        let (attributes, open) = {
            let known = self.known();
            let last = known.extents.values().next_back().filter(|run| run.extent.open);
            (known.attributes.clone(), last.cloned())
        };
        let Some(run) = open else { return Ok((attributes.length, None)) };
        let grown = run.grown(&self.shared.client).await;
        let Grown { length, in_doubt, .. } = grown.map_err(|error| self.explain(error))?;
        let within = length.saturating_sub(run.extent.group_offset);
        Ok((run.extent.offset.saturating_add(within).max(attributes.length), in_doubt))
    }

    /// Waits before it is looked again how far an open group is. The error if that has lasted since then for too long.
    async fn pause(&self, since: Time, error: Error) -> Result<()> {
        if self.shared.client.session.clock.now().since(since) >= OPEN_WAIT {
            return Err(self.explain(error));
        }
        tokio::time::sleep(OPEN_PAUSE).await;
        Ok(())
    }

    /// The length as it was said when the file was opened if nobody wrote it then, else as `length`.
    pub async fn length_known_or_asked(&self) -> Result<u64> {
        self.length_known_or_reaching(u64::MAX).await
    }

    /// The same, without a wait if the file is at least so long, as `length_reaching` says; nobody is asked if so much of a group of several replicas
    /// was seen already.
    pub async fn length_known_or_reaching(&self, enough: u64) -> Result<u64> {
        let (open, seen) = {
            let known = self.known();
            let run = known.extents.values().next_back().filter(|run| run.is_of_several());
            let seen =
                run.map(|run| run.extent.offset.saturating_add(run.visible().saturating_sub(run.extent.group_offset)));
            (known.attributes.open, if known.attributes.open { seen } else { Some(known.attributes.length) })
        };
        match seen {
            Some(length) if !open || length >= enough => Ok(length),
            _ => self.length_reaching(enough).await,
        }
    }

    /// `length` bytes from `offset`, in parts as they came; fewer only where the file ends.
    pub fn read_at(&self, offset: u64, length: u64) -> Boxed<'_, Result<Vec<Bytes>>> {
        Box::pin(self.read(offset, length))
    }

    async fn read(&self, offset: u64, length: u64) -> Result<Vec<Bytes>> {
        let gathered = self.gather(offset, length, self.shared.options, Gathered::default()).await?;
        Ok(gathered.parts)
    }

    /// As `read_at`, added to what was gathered before.
    pub(crate) async fn gather(
        &self,
        offset: u64,
        length: u64,
        options: ReadOptions,
        mut gathered: Gathered,
    ) -> Result<Gathered> {
        let end = offset.saturating_add(length);
        let (mut at, mut located_at, mut moves, mut waits) = (offset, None, 0, None);
        while at < end {
            let run = match self.extent_at(at) {
                Some(run) => run,
                None if self.ends_before(at) || located_at == Some(at) => break,
                None => {
                    self.locate(at).await?;
                    located_at = Some(at);
                    continue;
                }
            };
            let (fresh, before, began) = (located_at == Some(at), at, self.shared.client.session.clock.now());
            let got = self.read_extent(&run, (&mut at, end), fresh, options, &mut gathered).await?;
            waits = waits.filter(|_| at == before);
            match got {
                // What moved on before is behind: it may do so again further on.
                Got::Whole => moves = 0,
                Got::End => break,
                Got::Outdated => {
                    self.known().extents.remove(&run.extent.offset);
                    self.locate(at).await?;
                    located_at = Some(at);
                }
                Got::Gone(error) => {
                    // It may have moved on between the metadata store's answer and the read: then it is said to be elsewhere now.
                    self.known().extents.remove(&run.extent.offset);
                    match self.locate(at).await {
                        // Why nothing was read is what matters.
                        Err(_) if error.kind() != ErrorKind::NotFound => return Err(self.explain(error)),
                        located => drop(located?),
                    }
                    moves += 1;
                    let is_same = |now: &Run| match (now.extent.open, run.extent.open) {
                        (false, false) => brings_nothing(&now.layout, &run.layout),
                        (now_open, open) => now_open == open && now.layout == run.layout,
                    };
                    let stays = self.extent_at(at).is_some_and(|now| is_same(&now));
                    if stays && run.extent.open && error.kind() == ErrorKind::NotFound {
                        // Not begun yet.
                        break;
                    } else if stays || moves == MOVES_MAX {
                        return Err(self.explain(error));
                    }
                }
                Got::Waits(error) => {
                    self.pause(*waits.get_or_insert(began), error).await?;
                    self.known().extents.remove(&run.extent.offset);
                    self.locate(at).await?;
                    located_at = Some(at);
                }
            }
        }
        Ok(gathered)
    }

    /// Columns that the bytes at this place are in, as far as that is remembered; 0: one, or it is not known.
    pub(crate) fn columns_at(&self, at: u64) -> usize {
        self.extent_at(at).map(|run| run.layout.columns().len()).filter(|count| *count > 1).unwrap_or(0)
    }

    /// The client that it reads with.
    pub(crate) fn client(&self) -> &Client {
        &self.shared.client
    }

    /// The file's bytes from `offset` one after another, asked for ahead of their use.
    pub fn stream(&self, offset: u64) -> FileStream {
        let sizes = self.shared.client.sizes;
        FileStream::new(self.clone(), offset, sizes)
    }

    /// Reads a part of one extent. `fresh`: the extent was located for this very place.
    async fn read_extent(
        &self,
        run: &Run,
        (at, end): (&mut u64, u64),
        fresh: bool,
        options: ReadOptions,
        gathered: &mut Gathered,
    ) -> Result<Got> {
        let Run { extent, layout, .. } = run;
        let places = |piece: &Piece| Places::of(&layout.columns()[piece.column]);
        let within = *at - extent.offset;
        let from = extent.group_offset.saturating_add(within);
        let mut length = (end - *at).min(if extent.open { u64::MAX } else { extent.length - within });
        // Its writer may have gone on elsewhere.
        let may_have_left = |error: &Error| extent.open && error.kind() == ErrorKind::Unreachable;
        if run.is_bounded() && run.visible() < from.saturating_add(length) {
            // What a chunk has behind a byte that another one lacks is not to be seen.
            let grown = match run.grown(&self.shared.client).await {
                Err(error) if may_have_left(&error) => return Ok(Got::Gone(error)),
                asked => asked.map_err(|error| self.explain(error))?,
            };
            match grown {
                Grown { length: visible, .. } if visible > from => length = length.min(visible - from),
                Grown { in_doubt: Some(error), .. } => return Ok(Got::Waits(error)),
                Grown { over, .. } if !fresh && (over || self.is_old(run)) => return Ok(Got::Outdated),
                _ => return Ok(Got::End),
            }
        }
        let length = length.min(self.most_at_once(layout));
        let pieces: Vec<Piece> = layout.stripe().pieces(from, length).take(PIECES_MAX).collect();
        let length = pieces.iter().map(|piece| piece.length).sum::<u64>();
        let fetched = match (&mut gathered.sums, pieces.as_slice()) {
            (None, [_, _, ..]) => {
                let fetch = |piece: &Piece| self.fetch(places(piece), *piece, options);
                together(pieces.iter().map(fetch)).await
            }
            _ => {
                // Checksums of the whole are made in the order of the bytes.
                let mut fetched = Vec::with_capacity(pieces.len());
                for piece in &pieces {
                    fetched.push(self.fetch_for(places(piece), *piece, options, gathered).await);
                    if !matches!(fetched.last(), Some(Ok((_, parts))) if length_of(parts) == piece.length) {
                        break;
                    }
                }
                fetched
            }
        };
        let mut got = 0;
        for (piece, fetched) in pieces.iter().zip(fetched) {
            let (answer, parts) = match fetched {
                Ok(answered) => answered,
                // What came before is not lost; what the matter is, is seen when the rest is asked for.
                Err(_) if got > 0 => break,
                // Replaced, deleted, packed anew, or not begun: the metadata store knows.
                Err(error) if error.kind() == ErrorKind::NotFound && !fresh => return Ok(Got::Outdated),
                Err(error) if run.is_of_several() && is_of_one_device(error.kind()) => return Ok(Got::Waits(error)),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Got::Gone(error)),
                Err(error) if may_have_left(&error) => return Ok(Got::Gone(error)),
                // There may be more replicas by now, or others.
                Err(error) if !extent.open && !self.is_lost(&error) => return Ok(Got::Gone(error)),
                Err(error) => return Err(self.explain(error)),
            };
            let came = length_of(&parts);
            gathered.parts.extend(parts.into_iter().filter(|part| !part.is_empty()));
            *at += came;
            got += came;
            if came < piece.length && run.is_of_several() {
                // The only one of its column, which had more: it is passed over as one of several is, though no other one is left.
                return Ok(Got::Waits(cut(&answer)));
            }
            if came < piece.length {
                // Where progress was made, what was located is no longer located for this very place.
                let head = Head::from(&layout.columns()[piece.column]);
                return self.short(run, head, &answer, fresh && got == 0);
            }
        }
        assert!(got <= length, "each piece brought no more than was asked for");
        Ok(Got::Whole)
    }

    /// What it means that a chunk had less than it was asked for.
    fn short(&self, run: &Run, head: Head, answer: &chunk::ReadAnswer, fresh: bool) -> Result<Got> {
        let extent = &run.extent;
        match extent.open {
            true if !fresh && (answer.sealed || self.is_old(run)) => Ok(Got::Outdated),
            true => Ok(Got::End),
            false if !fresh => Ok(Got::Outdated),
            false => Err(self.explain(Error::new(
                ErrorKind::Corrupt,
                format!(
                    "chunk {:032x} on device {:032x} ends at byte {}, and bytes of the file at {} to {} are behind that: they are missing, the rest can be read; restore them, and look at the device with `stormwell device ls`",
                    head.chunk.value(),
                    head.device.value(),
                    answer.chunk_length,
                    extent.offset,
                    extent.offset.saturating_add(extent.length)
                ),
            ))),
        }
    }

    /// Whether this error is of a store that does not answer at all: the next question would wait as long.
    fn is_lost(&self, error: &Error) -> bool {
        error.kind() == ErrorKind::Unreachable && self.shared.client.session.routes.is_one_node()
    }

    /// Whether it is time to ask where an open extent that ends here goes on.
    fn is_old(&self, run: &Run) -> bool {
        self.shared.client.session.clock.now().since(run.told) >= OPEN_TOLD_MAX
    }

    /// Bytes asked for at once: of several columns as many as one stream may, for they come from many devices.
    fn most_at_once(&self, layout: &Layout) -> u64 {
        let sizes = self.shared.client.sizes;
        let most = if layout.columns().len() > 1 { sizes.read_piece.max(sizes.read_window) } else { sizes.read_piece };
        // Of a cell at either end more may come than is asked for.
        most.min(FRAME_PAYLOAD_MAX - 2 * RECORD_PAYLOAD_MAX) as u64
    }

    /// Bytes of a column, and their checksums where those are gathered.
    async fn fetch_for(
        &self,
        places: Places,
        piece: Piece,
        options: ReadOptions,
        gathered: &mut Gathered,
    ) -> Result<Fetched> {
        let stored = gathered.stored;
        let Some(sums) = &mut gathered.sums else { return self.fetch(places, piece, options).await };
        let (mark, several) = (sums.mark(), places.are_several());
        let mut asking = self.shared.client.asking(places, piece.length).await;
        loop {
            let added_to = &mut *sums;
            let ask = async move |head: Head| {
                let fetched = self.fetch_summed(head, piece, options, (stored, added_to)).await?;
                whole_of_several(several, piece, fetched)
            };
            match asking.next(ask).await {
                Ok(Some(fetched)) => return Ok(fetched),
                // What of it was added is not of those bytes that the next one brings, or the next question for them.
                Ok(None) => sums.back_to(mark),
                Err(error) => {
                    sums.back_to(mark);
                    return Err(error);
                }
            }
        }
    }

    async fn fetch_summed(
        &self,
        head: Head,
        piece: Piece,
        options: ReadOptions,
        (stored, sums): (bool, &mut UnitSums),
    ) -> Result<Fetched> {
        let ask = |unchecked| question(head, piece, options, (unchecked, unchecked && stored));
        let mark = sums.mark();
        let fetched = self.shared.client.fetch_summed(head.device, ask, sums).await?;
        if fetched.0.cells.is_empty() {
            return self.bounded(piece, fetched);
        }
        // Checksums of what is stored are not those of the bytes.
        sums.back_to(mark);
        let fetched = self.shared.client.restored((piece.offset, piece.length), fetched).await?;
        for part in &fetched.1 {
            sums.add(part);
        }
        Ok(fetched)
    }

    /// Bytes of a column.
    async fn fetch(&self, places: Places, piece: Piece, options: ReadOptions) -> Result<Fetched> {
        let several = places.are_several();
        let mut asking = self.shared.client.asking(places, piece.length).await;
        loop {
            let ask = async |head| whole_of_several(several, piece, self.fetch_from(head, piece, options).await?);
            if let Some(fetched) = asking.next(ask).await? {
                return Ok(fetched);
            }
        }
    }

    /// Bytes of one chunk.
    async fn fetch_from(&self, head: Head, piece: Piece, options: ReadOptions) -> Result<Fetched> {
        let ask = |unchecked| question(head, piece, options, (unchecked, false));
        let fetched = self.shared.client.fetch(head.device, ask).await?;
        if fetched.0.cells.is_empty() {
            return self.bounded(piece, fetched);
        }
        self.shared.client.restored((piece.offset, piece.length), fetched).await
    }

    fn bounded(&self, piece: Piece, fetched: (chunk::ReadAnswer, Payload)) -> Result<Fetched> {
        let (got, length) = (fetched.1.length() as u64, piece.length);
        if got > length {
            let text = format!(
                "the node answered {got} bytes where {length} were asked for; nothing was changed; check that client and node have one version"
            );
            return Err(Error::new(ErrorKind::Protocol, text));
        }
        Ok((fetched.0, fetched.1.parts().to_vec()))
    }

    /// The extent that is remembered to hold this byte, or to grow towards it.
    fn extent_at(&self, at: u64) -> Option<Arc<Run>> {
        let known = self.known();
        let (_, run) = known.extents.range(..=at).next_back()?;
        (run.extent.open || at - run.extent.offset < run.extent.length).then(|| run.clone())
    }

    /// Whether the file is known to end at or before this byte: nobody writes it, and it is no longer.
    fn ends_before(&self, at: u64) -> bool {
        let known = self.known();
        !known.attributes.open && at >= known.attributes.length
    }

    /// Asks where the bytes from `at` on are, and remembers a page of the answer. Answers whether there are more pages.
    async fn locate(&self, at: u64) -> Result<bool> {
        let ask = Locate { path: String::new(), inode: self.shared.inode, offset: at, length: u64::MAX - at };
        let answer = self.shared.client.ask(&ask).await.map_err(|error| self.explain(error))?;
        // In one go: a clone of this reader in another thread would else find the file without its end in between.
        let mut known = self.known();
        if known.attributes.generation != answer.attributes.generation {
            // Somebody wrote it, cut it or joined to it since: no place that was remembered need hold any more.
            known.extents.clear();
        }
        known.attributes = answer.attributes;
        // What was remembered behind this place, or as open, may be otherwise by now.
        known.extents.split_off(&at);
        if known.extents.last_entry().is_some_and(|last| last.get().extent.open) {
            known.extents.pop_last();
        }
        let more = answer.more && !answer.extents.is_empty();
        self.remember(&mut known, answer.extents)?;
        Ok(more)
    }

    fn remember(&self, known: &mut Known, extents: Vec<Extent>) -> Result<()> {
        if known.extents.len().saturating_add(extents.len()) > EXTENTS_MAX {
            known.extents.clear();
        }
        let told = self.shared.client.session.clock.now();
        for extent in extents {
            let layout = extent.layout.checked().map_err(|error| self.explain(error))?;
            let run = Arc::new(Run::new(extent, layout, told, known.open.as_deref()));
            if run.is_of_several() {
                known.open = Some(run.clone());
            }
            known.extents.insert(run.extent.offset, run);
        }
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.shared.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn explain(&self, error: Error) -> Error {
        error.during(format!("read {}", self.shared.path))
    }
}

//! Reading one file: where its bytes are is asked for in pages and remembered; of what is being written, the chunk itself says how long it is.

use crate::client::Client;
use crate::stream::FileStream;
use base::checksum::UnitSums;
use base::error::{Error, ErrorKind, Result};
use base::limit::FRAME_PAYLOAD_MAX;
use bytes::Bytes;
use net::message::chunk;
use net::message::file::{Attributes, Extent, Locate};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    extents: BTreeMap<u64, Extent>,
}

/// Extents remembered: at 256 MiB each those of a 16 TiB file. Beyond that a reader starts to remember afresh.
const EXTENTS_MAX: usize = 65_536;

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
        let known = Known { attributes: answer.attributes, extents: BTreeMap::new() };
        let shared = Shared { client: self.clone(), path, inode, options, known: Mutex::new(known) };
        let reader = FileReader { shared: Arc::new(shared) };
        reader.remember(answer.extents);
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
}

/// The parts as one; a single part is not copied.
fn join(mut parts: Vec<Bytes>) -> Bytes {
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
        let mut at = self.attributes().length;
        // The open extent is the last one of all.
        while self.locate(at).await? {
            let known = self.known();
            let Some(last) = known.extents.values().next_back() else { break };
            at = last.offset.saturating_add(last.length).max(at.saturating_add(1));
        }
        let (attributes, open) = {
            let known = self.known();
            let last = known.extents.values().next_back().filter(|extent| extent.open);
            (known.attributes.clone(), last.cloned())
        };
        let Some(extent) = open else { return Ok(attributes.length) };
        let ask = chunk::Stat { device: extent.device, chunk: extent.chunk };
        match self.shared.client.ask_at(extent.device, &ask).await {
            Ok(answer) => {
                let within = answer.length.saturating_sub(extent.chunk_offset);
                Ok(extent.offset.saturating_add(within).max(attributes.length))
            }
            // Its first byte has not come yet.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(extent.offset.max(attributes.length)),
            Err(error) => Err(self.explain(error)),
        }
    }

    /// The length as it was said when the file was opened if nobody wrote it then, else as `length`.
    pub async fn length_known_or_asked(&self) -> Result<u64> {
        let (open, length) = {
            let known = self.known();
            (known.attributes.open, known.attributes.length)
        };
        if open { self.length().await } else { Ok(length) }
    }

    /// `length` bytes from `offset`, in parts as they came; fewer only where the file ends.
    pub async fn read_at(&self, offset: u64, length: u64) -> Result<Vec<Bytes>> {
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
        let (mut at, mut located_at) = (offset, None);
        while at < end {
            let extent = match self.extent_at(at) {
                Some(extent) => extent,
                None if self.ends_before(at) || located_at == Some(at) => break,
                None => {
                    self.locate(at).await?;
                    located_at = Some(at);
                    continue;
                }
            };
            let fresh = located_at == Some(at);
            match self.read_extent(&extent, (&mut at, end), fresh, options, &mut gathered).await? {
                Got::Whole => {}
                Got::End => break,
                Got::Outdated => {
                    self.known().extents.remove(&extent.offset);
                    self.locate(at).await?;
                    located_at = Some(at);
                }
            }
        }
        Ok(gathered)
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
        extent: &Extent,
        (at, end): (&mut u64, u64),
        fresh: bool,
        options: ReadOptions,
        gathered: &mut Gathered,
    ) -> Result<Got> {
        let within = *at - extent.offset;
        let limit = if extent.open { u64::MAX } else { extent.length - within };
        let most = self.shared.client.sizes.read_piece.min(FRAME_PAYLOAD_MAX) as u64;
        let length = (end - *at).min(limit).min(most);
        let range = chunk::Range { offset: extent.chunk_offset.saturating_add(within), length };
        let stored = gathered.stored;
        let ask = |unchecked| chunk::Read {
            device: extent.device,
            chunk: extent.chunk,
            ranges: vec![range.clone()],
            once: options.once,
            unchecked,
            blocks: unchecked && stored,
        };
        let client = &self.shared.client;
        let fetched = match &mut gathered.sums {
            Some(sums) => client.fetch_summed(extent.device, ask, sums).await,
            None => client.fetch(extent.device, ask).await,
        };
        let (answer, payload) = match fetched {
            Ok(answered) => answered,
            // Replaced, deleted, packed anew, or not begun: the metadata store knows.
            Err(error) if error.kind() == ErrorKind::NotFound && !fresh => return Ok(Got::Outdated),
            Err(error) if error.kind() == ErrorKind::NotFound && extent.open => return Ok(Got::End),
            Err(error) => return Err(self.explain(error)),
        };
        let got = payload.length() as u64;
        if got > length {
            let text = format!(
                "the node answered {got} bytes where {length} were asked for; nothing was changed; check that client and node have one version"
            );
            return Err(self.explain(Error::new(ErrorKind::Protocol, text)));
        }
        gathered.parts.extend(payload.parts().iter().filter(|part| !part.is_empty()).cloned());
        // Where progress was made, what was located is no longer located for this very place.
        *at += got;
        let fresh = fresh && got == 0;
        match (got == length, extent.open) {
            (true, _) => Ok(Got::Whole),
            (false, true) if answer.sealed && !fresh => Ok(Got::Outdated),
            (false, true) => Ok(Got::End),
            (false, false) if !fresh => Ok(Got::Outdated),
            (false, false) => Err(self.explain(Error::new(
                ErrorKind::Corrupt,
                format!(
                    "chunk {:032x} ends at byte {} but {} bytes of the file should follow there; they are missing, the rest can be read; look at the device with `stormwell device ls`",
                    extent.chunk.value(), answer.chunk_length, length
                ),
            ))),
        }
    }

    /// The extent that is remembered to hold this byte, or to grow towards it.
    fn extent_at(&self, at: u64) -> Option<Extent> {
        let known = self.known();
        let (_, extent) = known.extents.range(..=at).next_back()?;
        (extent.open || at - extent.offset < extent.length).then(|| extent.clone())
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
        {
            let mut known = self.known();
            if known.attributes.generation != answer.attributes.generation {
                // Somebody wrote it, cut it or joined to it since: no place that was remembered need hold any more.
                known.extents.clear();
            }
            known.attributes = answer.attributes;
            // What was remembered behind this place, or as open, may be otherwise by now.
            known.extents.split_off(&at);
            if known.extents.last_entry().is_some_and(|last| last.get().open) {
                known.extents.pop_last();
            }
        }
        let more = answer.more && !answer.extents.is_empty();
        self.remember(answer.extents);
        Ok(more)
    }

    fn remember(&self, extents: Vec<Extent>) {
        let mut known = self.known();
        if known.extents.len().saturating_add(extents.len()) > EXTENTS_MAX {
            known.extents.clear();
        }
        for extent in extents {
            known.extents.insert(extent.offset, extent);
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.shared.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn explain(&self, error: Error) -> Error {
        error.during(format!("read {}", self.shared.path))
    }
}

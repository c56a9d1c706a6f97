//! Reading many small files of which a listing said where their bytes are: those that lie in one chunk are asked for together.
//!
//! Bytes of a closed file never change in their place: a chunk's name is not used again, and what was released or moved is refused. So what
//! comes is what the file had when it was listed, whole, or an error.

use crate::client::Client;
use crate::columns::{Head, Places, together};
use crate::reader::{ReadOptions, join};
use base::error::{Error, ErrorKind, Result};
use base::layout::Column;
use base::limit::{SMALL_FILE_MAX, SMALL_RANGES_MAX};
use bytes::Bytes;
use net::message::chunk;
use net::message::file::{Attributes, Extent};
use std::collections::BTreeMap;

/// Reads of one call that are on their way at once.
const AT_ONCE: usize = 16;

/// A file as a listing told of it (`Client::list_located`).
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// What it is.
    pub attributes: &'a Attributes,
    /// Where its bytes are; empty if the listing did not say so.
    pub extents: &'a [Extent],
}

impl Listed<'_> {
    /// Whether the listing said of all bytes of a closed file where they are.
    pub fn is_located(&self) -> bool {
        let Attributes { directory, open, length, .. } = *self.attributes;
        let end = |end: u64, extent: &Extent| match extent.offset == end && !extent.open {
            true => end.checked_add(extent.length),
            false => None,
        };
        !directory && !open && self.extents.iter().try_fold(0, end) == Some(length)
    }
}

/// Bytes of a chunk that are a part of a file.
struct Part {
    /// The file's place among those that are read.
    file: usize,
    /// The part's place among those of the file.
    place: usize,
    offset: u64,
    length: u64,
}

/// Parts that one question asks for, in the order of their chunk.
struct Question {
    column: Column,
    parts: Vec<Part>,
    /// Where they are: those that follow on each other are one range.
    ranges: Vec<chunk::Range>,
    bytes: u64,
}

impl Question {
    fn new(column: Column) -> Question {
        Question { column, parts: Vec::new(), ranges: Vec::new(), bytes: 0 }
    }

    /// Whether a part that lies behind the others goes into the same question, which has at most so many bytes. The first one always does.
    fn has_room(&self, part: &Part, most: u64) -> bool {
        let few = self.bytes.saturating_add(part.length) <= most
            && (self.ranges.len() < SMALL_RANGES_MAX || self.end() == Some(part.offset));
        few || self.parts.is_empty()
    }

    fn push(&mut self, part: Part) {
        let follows = self.end() == Some(part.offset);
        match self.ranges.last_mut().filter(|_| follows) {
            Some(last) => last.length += part.length,
            None => self.ranges.push(chunk::Range { offset: part.offset, length: part.length }),
        }
        self.bytes += part.length;
        self.parts.push(part);
    }

    /// Behind the last byte.
    fn end(&self) -> Option<u64> {
        self.ranges.last().map(|last| last.offset.saturating_add(last.length))
    }
}

/// Chunks by their devices, those that are asked first without a reason for others, with what is wanted of them. Of one that a listing
/// told twice, before and after it had more replicas, the first word counts: both are right.
type Chunks = BTreeMap<(u128, u128), (Column, Vec<Part>)>;

/// Which parts of which chunks the bytes of a file are.
fn parts(file: usize, listed: &Listed<'_>, into: &mut Chunks) -> Result<()> {
    if !listed.is_located() || listed.attributes.length > SMALL_FILE_MAX {
        let text = "the listing did not say where all bytes of a small file are; open it";
        return Err(Error::new(ErrorKind::NotFound, text));
    }
    // All or none of them.
    let layouts = listed.extents.iter().map(|extent| extent.layout.checked()).collect::<Result<Vec<_>>>()?;
    let mut place = 0;
    for (extent, layout) in listed.extents.iter().zip(&layouts) {
        for piece in layout.stripe().pieces(extent.group_offset, extent.length) {
            let column = &layout.columns()[piece.column];
            let part = Part { file, place, offset: piece.offset, length: piece.length };
            let known = into.entry((column.head().0, column.chunk().0));
            known.or_insert_with(|| (column.clone(), Vec::new())).1.push(part);
            place += 1;
        }
    }
    Ok(())
}

/// What to ask for, with at most so many bytes in each question. Files of which that cannot be said get their errors.
fn questions(files: &[Listed<'_>], most: u64) -> (Vec<Question>, Vec<Result<()>>) {
    let mut chunks = BTreeMap::new();
    let planned = files.iter().enumerate().map(|(file, listed)| parts(file, listed, &mut chunks)).collect();
    let mut questions = Vec::new();
    for (column, mut parts) in chunks.into_values() {
        parts.sort_by_key(|part| part.offset);
        let mut last = Question::new(column.clone());
        for part in parts {
            if !last.has_room(&part, most) {
                questions.push(std::mem::replace(&mut last, Question::new(column.clone())));
            }
            last.push(part);
        }
        questions.push(last);
    }
    (questions, planned)
}

impl Client {
    /// Reads small files, each whole, with few requests: for each its bytes, or why they did not come.
    ///
    /// An error is one of the question, which was for other files, too, or says that what was listed does not hold any more. Then the file is
    /// to be opened: it may be elsewhere, or another one, or a large one, by now.
    pub async fn read_listed(&self, files: &[Listed<'_>], options: ReadOptions) -> Vec<Result<Vec<Bytes>>> {
        let (questions, planned) = questions(files, self.sizes.read_piece as u64);
        let mut read: Vec<Result<Vec<(usize, Bytes)>>> =
            planned.into_iter().map(|planned| planned.map(|()| Vec::new())).collect();
        for some in questions.chunks(AT_ONCE) {
            let came = together(some.iter().map(|question| self.read_together(question, options))).await;
            for (question, mut came) in some.iter().zip(came) {
                for part in &question.parts {
                    let (file, place) = (&mut read[part.file], part.place);
                    match (&mut came, file) {
                        (Ok(bytes), Ok(parts)) => parts.push((place, bytes.split_to(part.length as usize))),
                        (Ok(bytes), Err(_)) => drop(bytes.split_to(part.length as usize)),
                        (Err(error), file) => *file = Err(error.clone()),
                    }
                }
            }
        }
        let in_order = |mut parts: Vec<(usize, Bytes)>| {
            parts.sort_unstable_by_key(|(place, _)| *place);
            parts.into_iter().map(|(_, bytes)| bytes).collect()
        };
        read.into_iter().map(|parts| parts.map(in_order)).collect()
    }

    /// All bytes of a question, one part after another.
    async fn read_together(&self, question: &Question, options: ReadOptions) -> Result<Bytes> {
        let mut asking = self.asking(Places::of(&question.column), question.bytes).await;
        loop {
            if let Some(came) = asking.next(|head| self.read_from(head, question, options)).await? {
                return Ok(came);
            }
        }
    }

    async fn read_from(&self, head: Head, question: &Question, options: ReadOptions) -> Result<Bytes> {
        let Question { ranges, bytes, .. } = question;
        let Head { device, chunk } = head;
        let ask = |unchecked| chunk::Read {
            device,
            chunk,
            ranges: ranges.clone(),
            once: options.once,
            unchecked,
            blocks: false,
            cells: true,
        };
        let (answer, payload) = self.fetch(device, ask).await?;
        let came = match (answer.cells.is_empty(), ranges.as_slice()) {
            (true, _) => payload.into_bytes(),
            (false, [only]) => join(self.restored((only.offset, only.length), (answer, payload)).await?.1),
            (false, _) => {
                let text = "several files of one chunk are compressed, and were not read together; open them";
                return Err(Error::new(ErrorKind::Unsupported, text));
            }
        };
        // One that is cut short is as good as none: nobody knows which of the parts lacks bytes.
        if came.len() as u64 == *bytes {
            return Ok(came);
        }
        let text = format!("{} bytes came where {bytes} were listed; open the files", came.len());
        Err(Error::new(ErrorKind::NotFound, text))
    }
}

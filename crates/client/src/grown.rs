//! An extent as a reader has it, and how far it is written while it is open: what each of its replicas says, and what of that may be shown.

use crate::client::Client;
use crate::columns::{Head, together};
use crate::replicas::PATIENCE;
use base::error::{Error, ErrorKind, Result};
use base::layout::{Column, Layout, Replica};
use base::planted::Planted;
use base::unit::Time;
use net::message::chunk;
use net::message::file::Extent;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::time::timeout;

/// An extent, and where its bytes are.
pub(crate) struct Run {
    pub(crate) extent: Extent,
    pub(crate) layout: Layout,
    /// Of an open one of several columns or replicas: bytes of its group that all of them were seen to hold, or are recorded to.
    visible: Arc<AtomicU64>,
    /// When the metadata store said so.
    pub(crate) told: Time,
}

/// How far an open group is.
pub(crate) struct Grown {
    /// Bytes of it that can be read.
    pub(crate) length: u64,
    /// It may be complete, or gone, and the file go on elsewhere: the metadata store knows.
    pub(crate) over: bool,
    /// Why there may be more that its writer has made visible, and that is not to be shown: then the file does not end here.
    pub(crate) in_doubt: Option<Error>,
}

/// What a replica of an open group says, and what that says of the bytes behind its last one.
struct Heard {
    column: usize,
    length: u64,
    /// How the group ends may rest on it: nothing behind its last byte is shown.
    counts: bool,
    /// It has all that it ever took: nothing behind its last byte was made visible.
    is_sure: bool,
}

impl Run {
    /// `before`: the one that was open when the metadata store was asked before. If it is the same, what was seen of it stays seen.
    pub(crate) fn new(extent: Extent, layout: Layout, told: Time, before: Option<&Run>) -> Run {
        let mut run = Run { extent, layout, visible: Arc::default(), told };
        if run.is_of_several() {
            let is_same = |before: &&Run| before.extent.offset == run.extent.offset && before.layout == run.layout;
            if let Some(before) = before.filter(is_same) {
                run.visible = before.visible.clone();
            }
            // What is recorded as synced is on all of them, and in the file for good.
            let recorded = run.extent.group_offset.saturating_add(run.extent.length);
            run.visible.fetch_max(recorded, Ordering::Relaxed);
        }
        run
    }

    /// Whether it is open and has several replicas.
    pub(crate) fn is_of_several(&self) -> bool {
        self.extent.open && self.layout.has_several()
    }

    /// Whether it is open and what one of its chunks has may not be shown while another one lacks it, or what comes before it.
    pub(crate) fn is_bounded(&self) -> bool {
        self.extent.open && (self.layout.columns().len() > 1 || self.layout.has_several())
    }

    /// Bytes of its group that were seen, and can be read whatever some of its replicas say.
    pub(crate) fn visible(&self) -> u64 {
        self.visible.load(Ordering::Relaxed)
    }

    /// How far an open group is now: up to the first byte that one of its columns has not. Of one of several replicas it is no error that
    /// some do not answer.
    pub(crate) async fn grown(&self, client: &Client) -> Result<Grown> {
        if self.layout.has_several() {
            return Ok(self.grown_of_several(client).await);
        }
        let stat = |column: &Column| {
            let Head { device, chunk } = Head::from(column);
            let ask = chunk::Stat { device, chunk, start: false };
            async move { client.ask_at(ask.device, &ask).await }
        };
        let (mut lengths, mut sealed) = (Vec::with_capacity(self.layout.columns().len()), false);
        for answer in together(self.layout.columns().iter().map(stat)).await {
            match answer {
                Ok(answer) => {
                    lengths.push(answer.length);
                    sealed |= answer.sealed;
                }
                // Its first byte has not come yet.
                Err(error) if error.kind() == ErrorKind::NotFound => lengths.push(0),
                Err(error) => return Err(error),
            }
        }
        let length = self.layout.length(lengths.iter().copied().enumerate());
        self.visible.fetch_max(length, Ordering::Relaxed);
        Ok(Grown { length, over: sealed || lengths.iter().all(|length| *length == 0), in_doubt: None })
    }

    /// All replicas have to answer: one that does not may be the one by which the group ends (`base::ended`). Until they do, nothing is shown
    /// that was not shown before, and the file does not end where that ends.
    async fn grown_of_several(&self, client: &Client) -> Grown {
        let stat = |Replica { device, chunk, .. }: Replica| {
            let ask = chunk::Stat { device: device.0.into(), chunk: chunk.0.into(), start: true };
            async move {
                let silent = |_| Err(Error::new(ErrorKind::Unreachable, format!("nothing was heard for {PATIENCE:?}")));
                let answer = timeout(PATIENCE, client.ask_at(ask.device, &ask)).await.unwrap_or_else(silent);
                answer.map_err(|error| not_told(ask.device.value(), &error))
            }
        };
        let answers: Result<Vec<chunk::StatAnswer>> =
            together(self.layout.replicas().map(stat)).await.into_iter().collect();
        let answers = match answers {
            Ok(answers) => answers,
            Err(error) => return Grown { length: self.visible(), over: false, in_doubt: Some(error) },
        };
        let heard: Vec<Heard> = self.heard(&answers);
        let (shown, made_visible) = self.lengths(&heard, client.planted);
        let length = self.visible.fetch_max(shown, Ordering::Relaxed).max(shown);
        let has_ended = answers.iter().any(|answer| self.has_ended(answer));
        let over = has_ended || answers.iter().all(|answer| answer.length == 0);
        Grown { length, over, in_doubt: (length < made_visible).then(ends_anew) }
    }

    /// Whether a chunk takes no more from the group's writer: it is complete, or fenced.
    fn has_ended(&self, answer: &chunk::StatAnswer) -> bool {
        answer.sealed || (self.extent.generation > 0 && answer.generation > self.extent.generation)
    }

    fn heard(&self, answers: &[chunk::StatAnswer]) -> Vec<Heard> {
        let columns: Vec<usize> = self.layout.replicas().map(|replica| replica.column).collect();
        let ends =
            |column: usize| answers.iter().zip(&columns).any(|(answer, of)| *of == column && self.has_ended(answer));
        let recorded = self.extent.group_offset.saturating_add(self.extent.length);
        let heard = |(at, answer): (usize, &chunk::StatAnswer)| {
            let (column, placed) = (columns[at], self.extent.starts.get(at).copied().unwrap_or(0));
            // A node or a leader that does not tell starts is believed, as it is where there is one replica.
            let stayed = placed == 0 || answer.start == 0 || answer.start == placed;
            let by_writer = answer.sealed && answer.generation <= self.extent.generation;
            // What ended without it may have deleted it.
            let may_be_deleted = answer.length == 0 && answer.generation == 0 && ends(column);
            // As whoever ends the group has it (`base::ended`): sure is one that told its start and lacks nothing of what is recorded as synced.
            let has_stayed = placed != 0 && answer.start == placed;
            let has_recorded = answer.length >= self.layout.stripe().column_length(recorded, column);
            let counts = stayed || self.has_ended(answer);
            let is_sure = (has_stayed || by_writer) && has_recorded && !may_be_deleted;
            Heard { column, length: answer.length, counts, is_sure }
        };
        answers.iter().enumerate().map(heard).collect()
    }

    /// Up to where the group may be shown, and how much of it its writer may have made visible at the most. A column is shown up to the least
    /// of those that count, and if none does, of all. So much of it may have been made visible as the least of those has that are sure, and
    /// if none is, as any has.
    fn lengths(&self, heard: &[Heard], planted: Option<Planted>) -> (u64, u64) {
        let columns = 0..self.layout.columns().len();
        let of = |column: usize| heard.iter().filter(move |heard| heard.column == column);
        let all = |column: usize| of(column).map(|heard| heard.length);
        let counting = |column: usize| of(column).filter(|heard| heard.counts).map(|heard| heard.length).min();
        let sure = |column: usize| of(column).filter(|heard| heard.is_sure).map(|heard| heard.length).min();
        let shown = |column: usize| match planted {
            Some(Planted::TailSeenOfOne) => all(column).max().unwrap_or(0),
            _ => counting(column).or(all(column).min()).unwrap_or(0),
        };
        let made_visible = |column: usize| sure(column).or(all(column).max()).unwrap_or(0);
        let group = |lengths: Vec<u64>| self.layout.stripe().group_length(&lengths);
        (group(columns.clone().map(shown).collect()), group(columns.map(made_visible).collect()))
    }
}

fn not_told(device: u128, error: &Error) -> Error {
    let text = format!(
        "how far the file is written cannot be told, as device {device:032x} does not answer: {}; what is written is safe where it is; read again \
         when that device answers, or its writer has gone on without it",
        error.text()
    );
    Error::new(ErrorKind::Unreachable, text)
}

fn ends_anew() -> Error {
    let text = "how far the file is written cannot be told before its last bytes are the same on all devices that have them: nodes started anew \
                while it was written; what is written is safe where it is; read again when its writer has gone on, or is gone";
    Error::new(ErrorKind::Unreachable, text)
}

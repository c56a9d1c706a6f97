//! Engine state and its `pump`, which advances every operation that is ready. Requests are identified by tickets.

use crate::admission::Admission;
use crate::checkpoint::Checkpoint;
use crate::commit::{Stream, Waiters};
use crate::data::{DataLog, HURRIED_BYTES, SYNC_BYTES, SYNC_WAIT};
use crate::early::EarlyLog;
use crate::index::{Index, Run};
use crate::journal::JournalLog;
use crate::read::Reading;
use crate::request::{Reply, Request};
use crate::settings::Settings;
use crate::space::Space;
use base::disk::{DiskError, Done, FileKind, FileName, Op};
use base::error::{Error, ErrorKind, Result};
use base::id::{BagId, ChunkId, DeviceId, Owner, PushName};
use base::planted::Planted;
use base::policy::Level;
use base::unit::Time;
use base::version::{ProgramVersion, newer};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// What to do about a disk that failed.
pub const REPLACE: &str = "replace the disk";

/// After a refusal of the file system the same thing is tried again this much later.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// What an operation in flight is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    DataWrite,
    JournalWrite,
    DataSync,
    JournalSync,
    /// Of this reading, this step.
    Read(u64, usize),
    CreateData(u32),
    CreateJournal(u32),
    Remove(u32),
    /// So many blocks of this data segment.
    Punch(u32, u32),
    Checkpoint,
    /// The file of a checkpoint that nobody needs.
    RemoveCheckpoint(u64),
}

/// A request that waits for room, since when.
pub(crate) struct Parked {
    pub since: Time,
    pub ticket: u64,
    pub request: Request,
}

/// Everything but the tags.
pub(crate) struct Core {
    pub settings: Settings,
    pub device: DeviceId,
    pub next_sequence: u64,
    next_token: u64,
    pub operations: BTreeMap<u64, Purpose>,
    pub submissions: Vec<(u64, Op)>,
    pub replies: Vec<(u64, Result<Reply>)>,
    pub now: Time,
    pub index: Index,
    pub data: Stream,
    pub journal: Stream,
    pub waiters: Waiters,
    pub data_log: DataLog,
    pub journal_log: JournalLog,
    pub early: EarlyLog,
    /// Up to here the journal's records were found early when the device was opened; whoever wants what they hold synced waits for them.
    pub found_early: u64,
    pub space: Space,
    pub checkpoint: Checkpoint,
    pub readings: BTreeMap<u64, Reading>,
    /// Appends that wait for room, in order.
    pub waiting: VecDeque<Parked>,
    /// Large appends whose turn has not come.
    pub admission: Admission,
    /// Seals that wait for room; they may use the reserve.
    pub waiting_seals: VecDeque<Parked>,
    /// Sequence number of the last deletion.
    pub deleted: u64,
    /// Acknowledgements that deleted a chunk of a bag, its bytes, and whose record is not known to be durable.
    pub acknowledged: VecDeque<(u64, BagId, u32)>,
    /// Why the device left service.
    pub failed: Option<String>,
    /// `Identity::least`.
    pub least: ProgramVersion,
    /// Chunks that were found damaged.
    pub damaged: BTreeSet<base::id::ChunkId>,
    /// Sealed chunks whose open state can go when their records are durable.
    pub closing: VecDeque<base::id::ChunkId>,
    /// Open chunks with tails, oldest first; may name chunks without one.
    pub tail_order: VecDeque<(base::id::ChunkId, u64)>,
    /// The device is being opened: tails stay where they are, so that a disk that takes no writes any more can still be read.
    pub opening: bool,
    /// Chunks whose tails were longer than a record when the device was opened.
    pub long_tails: VecDeque<base::id::ChunkId>,
}

/// Takes what `leaves` names out of a queue. Both keep their order.
pub(crate) fn take_out(queue: &mut VecDeque<Parked>, leaves: impl Fn(&Parked) -> bool) -> VecDeque<Parked> {
    let (taken, kept) = std::mem::take(queue).into_iter().partition(leaves);
    *queue = kept;
    taken
}

impl Core {
    pub fn new(settings: Settings, device: DeviceId, mut index: Index, next_sequence: u64, marks: [u64; 2]) -> Core {
        index.remembered.most = settings.remembered_max;
        Core {
            settings,
            device,
            next_sequence,
            next_token: 1 << 32,
            operations: BTreeMap::new(),
            submissions: Vec::new(),
            replies: Vec::new(),
            now: Time::ZERO,
            index,
            data: Stream::starting_at(marks[0]),
            journal: Stream::starting_at(marks[1]),
            waiters: Waiters::default(),
            data_log: DataLog::default(),
            journal_log: JournalLog::default(),
            early: EarlyLog::default(),
            found_early: 0,
            space: Space::default(),
            checkpoint: Checkpoint::default(),
            readings: BTreeMap::new(),
            waiting: VecDeque::new(),
            admission: Admission::default(),
            waiting_seals: VecDeque::new(),
            deleted: 0,
            acknowledged: VecDeque::new(),
            failed: None,
            least: ProgramVersion::default(),
            damaged: BTreeSet::new(),
            closing: VecDeque::new(),
            tail_order: VecDeque::new(),
            opening: false,
            long_tails: VecDeque::new(),
        }
    }

    /// The next sequence number.
    pub fn sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence - 1
    }

    /// Starts an operation.
    pub fn start(&mut self, purpose: Purpose, op: Op) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        self.operations.insert(token, purpose);
        self.submissions.push((token, op));
        token
    }

    pub fn reply(&mut self, ticket: u64, result: Result<Reply>) {
        self.replies.push((ticket, result));
    }

    /// Answers when the log is at `level` up to these sequence numbers.
    pub fn reply_at(&mut self, level: Level, needs: [u64; 2], ticket: u64, reply: Reply) {
        let level = match (self.settings.planted, level) {
            (Some(Planted::AnsweredBeforeSync), Level::Synced) => Level::Written,
            (Some(Planted::AnsweredBeforeWrite), Level::Written) => Level::Received,
            (_, level) => level,
        };
        let journal = if level == Level::Synced { needs[1].max(self.found_early) } else { needs[1] };
        let streams = [(&mut self.data, needs[0]), (&mut self.journal, journal)];
        if let Some(reply) = self.waiters.wait(streams, level, ticket, reply) {
            self.reply(ticket, Ok(reply));
        }
    }

    /// Takes a request.
    pub fn submit(&mut self, now: Time, ticket: u64, request: Request) {
        self.now = self.now.max(now);
        let changes = !matches!(request, Request::Read { .. } | Request::Stat { .. } | Request::List { .. });
        if changes && let Some(text) = &self.failed {
            let error = Error::new(ErrorKind::Io, text.clone());
            self.reply(ticket, Err(error));
        } else if let Some(error) = self.refuse_newer(&request) {
            self.reply(ticket, Err(error));
        } else {
            self.dispatch(now, ticket, request);
        }
    }

    /// Why a request is not done that would change what only a newer program knows. Nobody here makes chunks of such owners; who
    /// appends to one has named its kind, and so knows it.
    fn refuse_newer(&self, request: &Request) -> Option<Error> {
        let named: &[ChunkId] = match request {
            Request::Delete { chunks } => chunks,
            Request::Seal { chunk, .. } | Request::Fence { chunk, .. } | Request::Release { chunk, .. } => {
                std::slice::from_ref(chunk)
            }
            _ => return None,
        };
        let owner_of = |id: &ChunkId| Some((*id, self.index.chunks.get(id)?.owner));
        let (id, owner) = named.iter().filter_map(owner_of).find(|(_, owner)| matches!(owner, Owner::Newer(_)))?;
        Some(newer(format!("chunk {id} on device {} belongs to {owner}", self.device), self.least))
    }

    fn dispatch(&mut self, since: Time, ticket: u64, request: Request) {
        match request {
            Request::Append { .. } => {
                if let Some(parked) = self.hold(Parked { since, ticket, request }) {
                    self.take_append(parked);
                }
            }
            Request::Seal { chunk, generation, length } => {
                if !self.seal(ticket, chunk, generation, length) {
                    self.waiting_seals.push_back(Parked { since, ticket, request });
                }
            }
            Request::Fence { chunk, generation } => self.fence(ticket, chunk, generation),
            Request::Delete { chunks } => self.delete(ticket, &chunks),
            Request::Release { chunk, ranges } => self.release(ticket, chunk, &ranges),
            Request::BagPass { bag, pass, retain } => self.bag_pass(ticket, bag, pass, retain),
            Request::Acknowledge { chunks, pass, retain, by } => {
                self.acknowledge(ticket, &chunks, (pass, retain), by);
            }
            Request::SealBag { bag, epoch } => self.seal_bag(ticket, bag, epoch),
            Request::DropBag { bag } => self.drop_bag(ticket, bag),
            Request::ReadmitBag { bag } => self.readmit_bag(ticket, bag),
            Request::Read { chunk, ranges, caching, check, cells } => {
                self.read(ticket, chunk, &ranges, (caching, check, cells));
            }
            Request::Stat { chunk } => {
                let stat = self.index.stat(chunk).map(Reply::Stat).ok_or_else(|| crate::append::missing(chunk));
                self.reply(ticket, stat);
            }
            Request::List { after, limit } => self.list(ticket, after, limit),
        }
    }

    /// Whether an append to this chunk waits, for room or for its turn.
    pub fn waits(&self, chunk: base::id::ChunkId) -> bool {
        let is_its = |parked: &Parked| matches!(&parked.request, Request::Append { chunk: its, .. } if *its == chunk);
        self.admission.has(chunk) || self.waiting.iter().any(is_its)
    }

    /// Takes out what waits, for room or for its turn, to change this chunk, in the order in which it came.
    pub fn give_back(&mut self, chunk: base::id::ChunkId) -> Vec<Parked> {
        if self.settings.planted == Some(Planted::WaitingAppendStays) {
            return Vec::new();
        }
        let is_its = |parked: &Parked| match &parked.request {
            Request::Append { chunk: its, .. } | Request::Seal { chunk: its, .. } => *its == chunk,
            _ => false,
        };
        // What is kept back comes behind what waits for room, and a seal behind all appends.
        let mut given: Vec<Parked> = take_out(&mut self.waiting, is_its).into();
        given.extend(self.admission.take(is_its));
        given.extend(take_out(&mut self.waiting_seals, is_its));
        given
    }

    /// These sessions are over: nothing of them is asked again, and what of their pushes waits for room or for its turn is not stored any
    /// more. It may be the copy of a push that was handled, which nobody remembers from now on.
    pub fn forget_sessions(&mut self, sessions: &[u64]) {
        let over: BTreeSet<u64> = sessions.iter().copied().collect();
        let stays = self.settings.planted == Some(Planted::WaitingPushOutlivesSession);
        let is_theirs = |parked: &Parked| match &parked.request {
            Request::Append { chunk, owner: Owner::Bag(_), .. } => {
                !stays && over.contains(&PushName::of(*chunk).session)
            }
            _ => false,
        };
        let mut left = take_out(&mut self.waiting, is_theirs);
        left.extend(self.admission.take(is_theirs));
        for parked in left {
            let text = "the session that pushed this chunk is over; it was not stored; push it in a new session";
            self.reply(parked.ticket, Err(Error::new(ErrorKind::Stale, text)));
        }
        self.index.remembered.forget_sessions(sessions);
    }

    /// Does an append, or lets it wait for room behind those that do. One without bytes needs none, and waits for those to its chunk alone.
    pub fn take_append(&mut self, parked: Parked) {
        let Parked { since, ticket, request } = parked;
        let waits = match &request {
            Request::Append { chunk, payload, seal: false, .. } if payload.is_empty() => {
                let is_same =
                    |other: &Parked| matches!(&other.request, Request::Append { chunk: of, .. } if of == chunk);
                self.waiting.iter().any(is_same)
            }
            _ => !self.waiting.is_empty(),
        };
        if waits {
            self.waiting.push_back(Parked { since, ticket, request });
        } else if let Some(request) = self.append(ticket, request) {
            self.waiting.push_back(Parked { since, ticket, request });
        }
    }

    fn list(&mut self, ticket: u64, after: Option<base::id::ChunkId>, limit: usize) {
        let ids: Vec<_> = self.index.chunks.after(after).map(|(id, _)| id).take(limit.saturating_add(1)).collect();
        let more = ids.len() > limit;
        let chunks = ids.into_iter().take(limit).filter_map(|id| Some((id, self.index.stat(id)?))).collect();
        self.reply(ticket, Ok(Reply::List { chunks, more }));
    }

    /// Takes a finished operation.
    pub fn completed(&mut self, now: Time, done: Done) {
        self.now = self.now.max(now);
        let Some(purpose) = self.operations.remove(&done.token) else { return };
        match purpose {
            Purpose::DataWrite => self.data_written(done.token, done.result.map(drop)),
            Purpose::JournalWrite => self.journal_written(done.result.map(drop)),
            Purpose::DataSync => self.synced(FileKind::Data, done.result.map(drop)),
            Purpose::JournalSync => self.synced(FileKind::Journal, done.result.map(drop)),
            Purpose::Read(reading, step) => self.read_done(reading, step, done.result),
            Purpose::CreateData(number) => self.data_created(number, done.result.map(drop)),
            Purpose::CreateJournal(number) => self.journal_created(number, done.result.map(drop)),
            Purpose::Remove(number) => self.removed(number, done.result.map(drop)),
            Purpose::Punch(number, blocks) => self.punched(number, blocks, done.result.map(drop)),
            Purpose::RemoveCheckpoint(number) => self.checkpoint_removed(number, done.result.is_ok()),
            Purpose::Checkpoint => self.checkpoint_done(done.result.map(drop)),
        }
    }

    fn synced(&mut self, kind: FileKind, result: std::result::Result<(), DiskError>) {
        if let Err(error) = result {
            self.fail(&format!("failed to sync ({error})"), REPLACE);
            return;
        }
        let stream = if kind == FileKind::Data { &mut self.data } else { &mut self.journal };
        if stream.synced() {
            self.marks_moved();
            self.space.due = true;
        }
    }

    /// A mark of a stream moved: whoever waited for it goes on.
    pub fn marks_moved(&mut self) {
        if self.failed.is_some() {
            return;
        }
        let durable = self.journal.durable;
        while self.acknowledged.pop_front_if(|(sequence, ..)| *sequence <= durable).is_some() {}
        let mut replies = Vec::new();
        self.waiters.release(&mut self.data, &mut replies);
        self.waiters.release(&mut self.journal, &mut replies);
        self.replies.extend(replies.into_iter().map(|(ticket, reply)| (ticket, Ok(reply))));
        while let Some(id) = self.closing.front() {
            if let Some(open) = self.index.open.get(id)
                && self.index.chunks.get(id).is_some_and(|chunk| chunk.sealed)
            {
                let [data, journal] = open.needs(true);
                if !open.under_way.is_empty() || data > self.data.durable || journal > self.journal.durable {
                    break;
                }
                let id = *id;
                self.index.close(id);
            }
            self.closing.pop_front();
        }
    }

    /// Takes the device out of service after a second failed write.
    pub fn fail_to_write(&mut self, what: &str, first: &DiskError, error: &DiskError) {
        let remedy = match (first, error) {
            (DiskError::NoSpace, DiskError::NoSpace) => "make room on its file system and start its node again",
            // Room does not mend a disk that failed for another cause, too.
            _ => REPLACE,
        };
        self.fail(&format!("failed to write {what}twice ({error})"), remedy);
    }

    /// A file was not made: for want of room, which may come, or because names are not durable any more, which ends the device as a failed
    /// sync of data does.
    pub fn failed_to_create(&mut self, error: &DiskError) {
        match error {
            DiskError::Unnamed(_) => self.fail(&format!("failed to sync ({error})"), REPLACE),
            DiskError::NoSpace | DiskError::NotFound | DiskError::Io(_) => self.retry_later(),
        }
    }

    /// Takes the device out of service: everybody who waits for it is told, changes are refused from now on.
    pub fn fail(&mut self, what: &str, remedy: &str) {
        if self.failed.is_some() {
            return;
        }
        let text = format!(
            "device {} {what}; what was acknowledged before is safe as far as the disk kept it, reads go on; {remedy}",
            self.device
        );
        let mut tickets = self.waiters.give_up();
        tickets.extend(self.admission.give_up());
        let parked = [&mut self.waiting, &mut self.waiting_seals];
        tickets.extend(parked.into_iter().flat_map(std::mem::take).map(|parked| parked.ticket));
        for ticket in tickets {
            self.replies.push((ticket, Err(Error::new(ErrorKind::Io, text.clone()))));
        }
        self.failed = Some(text);
    }

    /// Does everything that can be done now.
    pub fn pump(&mut self) {
        if self.failed.is_some() {
            return;
        }
        self.seal_again();
        if !self.opening {
            self.fold_long_tails();
        }
        self.serve_waiting();
        self.serve_held();
        self.advance_checkpoint();
        if !self.opening {
            self.fold_oldest_tails();
        }
        self.prepare_segments();
        self.write_data();
        self.keep_early();
        self.write_journal();
        self.sync_streams();
        self.reclaim();
    }

    fn serve_waiting(&mut self) {
        while let Some(parked) = self.waiting_seals.pop_front() {
            let Request::Seal { chunk, generation, length } = parked.request else { continue };
            if !self.seal(parked.ticket, chunk, generation, length) {
                self.waiting_seals.push_front(parked);
                break;
            }
        }
        while let Some(Parked { since, ticket, request }) = self.waiting.pop_front() {
            if let Some(request) = self.append(ticket, request) {
                self.waiting.push_front(Parked { since, ticket, request });
                if !self.make_way() {
                    break;
                }
            }
        }
    }

    fn sync_streams(&mut self) {
        let mut needs = self.checkpoint.waits_for();
        needs[1] = needs[1].max(self.found_early);
        for kind in [FileKind::Data, FileKind::Journal] {
            let (stream, purpose, wanted, need) = match kind {
                FileKind::Data => {
                    let enough = if self.data.is_hurried() { HURRIED_BYTES } else { SYNC_BYTES };
                    let much = self.data.unsynced_bytes >= enough;
                    let late = self.data.unsynced_since.is_some_and(|since| self.now.since(since) >= SYNC_WAIT);
                    let wanted = much || (late || self.data_log.rests()) && self.data.is_awaited();
                    (&mut self.data, Purpose::DataSync, wanted, needs[0])
                }
                _ => {
                    let wanted = self.journal.is_awaited();
                    (&mut self.journal, Purpose::JournalSync, wanted, needs[1])
                }
            };
            let needed = stream.durable < need && need <= stream.written;
            if (wanted || needed) && stream.may_start_round() {
                for file in stream.start_round() {
                    self.start(purpose, Op::Sync { file });
                }
            }
        }
    }

    /// These runs are of no use any more; space comes back once everything up to now is durable.
    pub fn bury(&mut self, runs: &[Run]) {
        let after = self.journal.last;
        for run in runs {
            self.space.kill(run.segment, run.block, crate::format::record_blocks(run.stored()), after);
        }
        if !runs.is_empty() {
            self.space.due = true;
        }
    }

    /// What is due by `now`: waiting appends that waited too long, retries.
    pub fn tick(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.space.due |= self.reclaim_due().is_some_and(|at| at <= self.now);
        if self.repair_ends().is_some_and(|at| at <= self.now) {
            let what = "failed to write and has no room to write it again elsewhere";
            self.fail(what, "make room on its file system and start its node again");
        }
        if self.journal_ends().is_some_and(|at| at <= self.now) {
            let what = "has no room for its journal";
            self.fail(what, "make room on its file system and start its node again");
        }
        if self.space.is_making() {
            return;
        }
        let limit = base::limit::FULL_WAIT;
        let (used, reserve) = (self.used(), self.settings.reserve);
        for queue in [&mut self.waiting, &mut self.waiting_seals] {
            while let Some(parked) =
                queue.pop_front_if(|parked| parked.since.max(self.space.came_back).after(limit) <= self.now)
            {
                let text = format!(
                    "device {} is full: {} of {} used and {} kept back for deletes; everything acknowledged is safe; delete files or add a device",
                    self.device,
                    base::unit::show_bytes(used),
                    base::unit::show_bytes(self.settings.capacity),
                    base::unit::show_bytes(reserve),
                );
                self.replies.push((parked.ticket, Err(Error::new(ErrorKind::Full, text))));
                if let Request::Append { chunk, owner: Owner::Bag(_), .. } = parked.request {
                    self.index.remembered.refuse(chunk);
                }
            }
        }
    }

    /// When `tick` is due next.
    pub fn next_tick(&self) -> Option<Time> {
        let limit = base::limit::FULL_WAIT;
        // While a segment is being made the device is slow, not full: who waits is told so only after that.
        let waiting = [self.waiting.front(), self.waiting_seals.front()];
        let ends = waiting
            .into_iter()
            .flatten()
            .filter(|_| !self.space.is_making())
            .map(|parked| parked.since.max(self.space.came_back).after(limit));
        let retries = [self.space.retry_at, self.checkpoint.retry_at].into_iter().flatten();
        ends.chain(retries.filter(|at| *at > self.now))
            .chain(self.garbage_due())
            .chain(self.reclaim_due())
            .chain(self.repair_ends())
            .chain(self.journal_ends())
            .chain(self.journal_rests_until().filter(|until| *until > self.now))
            .min()
    }
}

/// A data segment's file.
pub(crate) fn data_file(number: u32) -> FileName {
    FileName::new(FileKind::Data, number)
}

/// A journal segment's file.
pub(crate) fn journal_file(number: u32) -> FileName {
    FileName::new(FileKind::Journal, number)
}

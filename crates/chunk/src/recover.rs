//! Opening a device: making an empty directory one, or finding everything again: the newer checkpoint, then the log behind it.

use crate::checkpoint::{checkpoint_file, load::Loaded, load::load};
use crate::core::{Core, data_file, journal_file};
use crate::early::find::find_early;
use crate::format::{
    CheckpointHeader, DataHeader, Fault, Identity, IdentityFault, Record, VERSION, VERSION_MIN, VERSION_SINCE,
    record_blocks,
};
use crate::index::{Index, Places};
use crate::request::Opened;
use crate::scan::{Chain, Group, Link, Scanned, join, journal_incarnation, payload_matches, scan_data, scan_journal};
use crate::settings::Settings;
use crate::space::{Segment, State};
use base::buffer::Buffer;
use base::checksum::crc32c;
use base::disk::{Caching, Disk, DiskError, Done, Early, FileKind, FileName, Fill, Op};
use base::error::{Error, ErrorKind, Result};
use base::id::{ChunkId, DeviceId, Owner};
use base::limit::{BLOCK, RECORD_PAYLOAD_MAX};
use base::planted::Planted;
use base::unit::Time;
use base::version::newer;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// `Disk::poll` without an end to wait for returns early only when somebody wakes it; so often, nobody does.
const EMPTY_POLLS_MAX: u32 = 500;
/// Reads in flight at once, and the bytes of each: 8 MiB of memory.
pub(crate) const READS: usize = 8;
const READ_MAX: usize = 1 << 20;
const IDENTITY: FileName = FileName::new(FileKind::Identity, 0);

/// Runs one operation at a time and waits for it.
pub(crate) struct Driver<'a> {
    disk: &'a mut dyn Disk,
    token: u64,
    bytes_read: u64,
    /// The first read that the disk refused, however often it was tried.
    refused: Option<String>,
}

/// So often a read is tried before it counts as refused: disks recover from some errors by themselves.
const READ_TRIES: usize = 3;

impl Driver<'_> {
    pub fn run(&mut self, op: Op) -> std::result::Result<Buffer, DiskError> {
        self.token += 1;
        self.disk.submit(self.token, op);
        let mut done: Vec<Done> = Vec::new();
        for _ in 0..EMPTY_POLLS_MAX {
            self.disk.poll(None, &mut done);
            if let Some(done) = done.drain(..).find(|done| done.token == self.token) {
                return done.result;
            }
        }
        Err(DiskError::Io("the disk gives no answer".into()))
    }

    /// Whether the disk has files for writes that are done at once.
    pub fn has_early(&self) -> bool {
        self.disk.has_early()
    }

    /// Such a file, which is there.
    pub fn early(&mut self, file: FileName) -> Option<Arc<dyn Early>> {
        self.disk.early(file)
    }

    /// Reads around the cache.
    pub fn read(&mut self, file: FileName, offset: u64, length: usize) -> std::result::Result<Buffer, DiskError> {
        self.read_by(Caching::Around, file, offset, length)
    }

    /// Reads, from the page cache if need be what is nowhere else.
    pub fn read_by(
        &mut self,
        caching: Caching,
        file: FileName,
        offset: u64,
        length: usize,
    ) -> std::result::Result<Buffer, DiskError> {
        let mut refusal = DiskError::NotFound;
        for _ in 0..READ_TRIES {
            match self.run(Op::Read { file, offset, length, caching }) {
                Ok(bytes) => {
                    self.bytes_read += bytes.len() as u64;
                    return Ok(bytes);
                }
                Err(error) => refusal = error,
            }
        }
        self.refused.get_or_insert_with(|| format!("cannot read {file} at byte {offset}: {refusal}"));
        Err(refusal)
    }

    /// An error if the disk refused a read since `refused` was last cleared. What cannot be read is neither the end of the log
    /// nor damage: acknowledged records may follow, and going on would overwrite them.
    fn check_refused(&self) -> Result<()> {
        let Some(refusal) = &self.refused else { return Ok(()) };
        let text = format!(
            "{refusal}; the device is not opened, so that nothing behind it is lost; its data is as it was; check the disk and try again, or copy its files to a good one"
        );
        Err(Error::new(ErrorKind::Io, text))
    }

    /// Reads around the cache what is too long for one operation, several pieces in flight.
    pub fn read_long(&mut self, file: FileName, offset: u64, length: usize) -> std::result::Result<Vec<u8>, DiskError> {
        let mut out = Vec::with_capacity(length);
        let mut at = 0;
        while at < length {
            let step = (length - at).min(READS * READ_MAX);
            let reads = (0..step.div_ceil(READ_MAX)).map(|place| {
                let from = at + place * READ_MAX;
                (file, offset + from as u64, READ_MAX.min(length - from))
            });
            for bytes in self.read_many(&reads.collect::<Vec<_>>()) {
                let bytes = bytes?;
                out.extend_from_slice(&bytes);
            }
            at += step;
        }
        Ok(out)
    }

    /// Reads around the cache, all at once: (file, offset, length) of each. At most `READS`.
    pub fn read_many(&mut self, reads: &[(FileName, u64, usize)]) -> Vec<std::result::Result<Buffer, DiskError>> {
        let first = self.token + 1;
        for (file, offset, length) in reads.iter().copied() {
            self.token += 1;
            self.disk.submit(self.token, Op::Read { file, offset, length, caching: Caching::Around });
        }
        let silent = || Err(DiskError::Io("the disk gives no answer".into()));
        let mut results: Vec<_> = reads.iter().map(|_| silent()).collect();
        let (mut left, mut empty) = (reads.len(), 0);
        let mut done: Vec<Done> = Vec::new();
        while left > 0 && empty < EMPTY_POLLS_MAX {
            self.disk.poll(None, &mut done);
            empty = if done.is_empty() { empty + 1 } else { 0 };
            for Done { token, result } in done.drain(..) {
                let place = token.checked_sub(first).and_then(|place| usize::try_from(place).ok());
                let Some(known) = place.and_then(|place| results.get_mut(place)) else { continue };
                self.bytes_read += result.as_ref().map_or(0, |bytes| bytes.len() as u64);
                *known = result;
                left -= 1;
            }
        }
        for (result, (file, offset, length)) in results.iter_mut().zip(reads.iter().copied()) {
            if result.is_err() {
                // Alone and several times, before it counts as refused.
                *result = self.read(file, offset, length);
            }
        }
        results
    }

    fn write_file(&mut self, file: FileName, bytes: &[u8]) -> std::result::Result<(), DiskError> {
        let mut buffer = Buffer::zeroed(bytes.len().next_multiple_of(BLOCK));
        buffer[..bytes.len()].copy_from_slice(bytes);
        let buffer: Bytes = buffer.freeze();
        self.run(Op::Create { file, size: buffer.len() as u64, fill: Fill::Reserved })?;
        self.run(Op::Write { file, offset: 0, parts: vec![buffer] })?;
        self.run(Op::Sync { file }).map(drop)
    }
}

fn disk_error(what: &str) -> impl Fn(DiskError) -> Error {
    let what = what.to_string();
    move |error| {
        Error::new(ErrorKind::Io, format!("{what}: {error}; nothing was changed; check the disk and open it again"))
    }
}

/// The numbers and lengths of the files of a kind.
fn of_kind(files: &[(FileName, u64)], kind: FileKind) -> Vec<(u32, u64)> {
    files.iter().filter(|(name, _)| name.kind == kind).map(|(name, length)| (name.number, *length)).collect()
}

/// Opens the device.
pub(crate) fn open(disk: &mut dyn Disk, mut settings: Settings, new_id: DeviceId, now: Time) -> Result<(Core, Opened)> {
    let mut files = disk.list().map_err(disk_error("cannot list the device directory"))?;
    let mut driver = Driver { disk, token: 0, bytes_read: 0, refused: None };
    let mut formatted = false;
    let identity = match find_identity(&mut driver, &files)? {
        Some(identity) => identity,
        None => {
            formatted = true;
            let identity = format(&mut driver, &settings, new_id)?;
            files = driver.disk.list().map_err(disk_error("cannot list the device directory"))?;
            identity
        }
    };
    if settings.keep_capacity && settings.capacity != identity.capacity {
        settings = Settings::for_capacity(identity.capacity, settings.pool);
    }
    (settings.data_segment, settings.journal_segment) = (identity.data_segment, identity.journal_segment);
    settings.group_max = settings.group_max.min(settings.journal_segment as usize);
    if let Some(fault) = settings.fault() {
        return Err(Error::new(ErrorKind::Invalid, format!("{fault}; give the device more room")));
    }
    // Of a life of which nothing was found the numbers are not known: each begins elsewhere, by chance, so that a segment that two of
    // them used is not taken to be of one. The id was drawn for a device that has none yet; its chance is as good as any.
    let life = (new_id.0 >> 96) as u64;
    let (mut core, mut opened) = recover(&mut driver, &files, settings, &identity, life)?;
    core.least = identity.least;
    upgrade(&mut driver, identity)?;
    (opened.version, opened.formatted) = (identity.version, formatted);
    core.now = now;
    core.begin_early(&mut driver, &files);
    drop_torn_pushes(&mut core);
    core.checkpoint.forced = opened.records_replayed > 0 || opened.torn > 0 || !opened.rot.is_empty();
    core.opening = true;
    work_off(&mut core, disk)?;
    core.opening = false;
    core.index.passed_over.clear();
    if core.journal.durable < core.found_early {
        let text = "what was written last before the end of the process is not in the journal yet, which finds no room; the device is not \
                    opened, so that nothing is lost; make room on its file system and open it again";
        return Err(Error::new(ErrorKind::Io, text));
    }
    Ok((core, opened))
}

/// From now on checkpoints are written that older programs do not know: they must refuse the device. The new version number
/// and its CRC lie in one sector, which a disk writes whole or not at all.
fn upgrade(driver: &mut Driver<'_>, identity: Identity) -> Result<()> {
    if identity.version == VERSION {
        return Ok(());
    }
    let mut block = Buffer::zeroed(BLOCK);
    block
        .copy_from_slice(&Identity { version: VERSION, least: identity.least.max(VERSION_SINCE), ..identity }.encode());
    let failed = disk_error("cannot write the device's identity");
    driver.run(Op::Write { file: IDENTITY, offset: 0, parts: vec![block.freeze()] }).map_err(&failed)?;
    driver.run(Op::Sync { file: IDENTITY }).map(drop).map_err(&failed)
}

/// A bag's chunk is pushed by one append that seals it. One that is not sealed is the beginning of a push that a kill cut
/// short: never acknowledged, in nobody's queue, and in the way of the push when it is asked again.
fn drop_torn_pushes(core: &mut Core) {
    let torn = core.index.chunks.iter().filter(|(_, chunk)| matches!(chunk.owner, Owner::Bag(_)) && !chunk.sealed);
    let torn: Vec<ChunkId> = torn.map(|(id, _)| id).collect();
    for chunk in torn {
        if core.settings.planted == Some(Planted::TornPushKept) {
            core.index.seal(chunk, 0);
            continue;
        }
        core.deleted = core.record(Record::Delete { chunk });
        let runs = core.index.remove(chunk);
        core.bury(&runs);
    }
}

/// Lets the engine do what it wants until nothing is under way.
fn work_off(core: &mut Core, disk: &mut dyn Disk) -> Result<()> {
    let mut done: Vec<Done> = Vec::new();
    let mut empty = 0;
    loop {
        core.pump();
        for (token, op) in core.submissions.drain(..) {
            disk.submit(token, op);
        }
        if let Some(text) = &core.failed {
            return Err(Error::new(ErrorKind::Io, text.clone()));
        }
        if core.operations.is_empty() {
            return Ok(());
        }
        disk.poll(None, &mut done);
        empty = if done.is_empty() { empty + 1 } else { 0 };
        if empty > EMPTY_POLLS_MAX {
            return Err(Error::new(ErrorKind::Io, "the disk gives no answer; check it and open the device again"));
        }
        for done in done.drain(..) {
            core.completed(core.now, done);
        }
    }
}

/// The identity, or `None` if the directory is to be made a device.
fn find_identity(driver: &mut Driver<'_>, files: &[(FileName, u64)]) -> Result<Option<Identity>> {
    let has_log = files.iter().any(|(name, _)| matches!(name.kind, FileKind::Data | FileKind::Journal | FileKind::Log));
    let refuse = |kind: ErrorKind, text: String| Err(Error::new(kind, text));
    if !files.iter().any(|(name, _)| *name == IDENTITY) {
        if has_log {
            return refuse(
                ErrorKind::Corrupt,
                "the directory holds a log but no identity file; nothing was changed; restore identity-00000000 or name another directory".into(),
            );
        }
        return Ok(None);
    }
    let block = driver.read(IDENTITY, 0, BLOCK).map_err(disk_error("cannot read the device's identity"))?;
    match Identity::decode(&block) {
        Ok(identity) => {
            // Whoever made the device may have been killed before it was synced.
            driver.run(Op::Sync { file: IDENTITY }).map_err(disk_error("cannot sync the device's identity"))?;
            Ok(Some(identity))
        }
        // It is written before any segment is made: what stopped in between is begun again.
        Err(IdentityFault::Blank | IdentityFault::Damaged) if !has_log => Ok(None),
        Err(IdentityFault::Newer { version, least }) => Err(newer(
            format!("the device has format version {version}, and versions {VERSION_MIN} to {VERSION} are read"),
            least,
        )),
        Err(IdentityFault::Foreign) => {
            refuse(ErrorKind::Unsupported, "the identity file is not Stormwell's; nothing was changed; name another directory".into())
        }
        Err(IdentityFault::Blank | IdentityFault::Damaged) => refuse(
            ErrorKind::Corrupt,
            "the device's identity file is damaged; nothing was changed; restore it from a copy, or take the device's data from replicas".into(),
        ),
    }
}

/// Makes the directory a device. The identity comes last: without it nothing counts.
fn format(driver: &mut Driver<'_>, settings: &Settings, device: DeviceId) -> Result<Identity> {
    if let Some(fault) = settings.fault() {
        return Err(Error::new(ErrorKind::Invalid, format!("{fault}; give the device more room")));
    }
    let body = Index::default().encode_head(&[]);
    let place = crate::format::LogPosition { segment: 0, incarnation: 1, block: 0, last: 0 };
    let header = CheckpointHeader {
        version: VERSION,
        number: 1,
        base: 1,
        sequence: 1,
        length: body.len() as u64,
        body_crc: crc32c(&body),
        data: place,
        journal: place,
    };
    let mut bytes = header.encode(device);
    bytes.extend_from_slice(&body);
    let failed = disk_error("cannot make the directory a device");
    driver.write_file(checkpoint_file(1), &bytes).map_err(&failed)?;
    let (capacity, data_segment, journal_segment) =
        (settings.capacity, settings.data_segment, settings.journal_segment);
    let least = VERSION_SINCE;
    let identity = Identity { version: VERSION, device, capacity, data_segment, journal_segment, least };
    driver.write_file(IDENTITY, &identity.encode()).map_err(&failed)?;
    Ok(identity)
}

/// Both streams as they were found.
struct Log {
    data: Chain<DataHeader>,
    journal: Chain<Group>,
    /// What follows the journal and is not in it.
    early: Vec<(u64, Record)>,
    data_segments: BTreeMap<u32, u64>,
    journal_segments: BTreeMap<u32, u64>,
    marks: [u64; 2],
    /// Higher than every sequence number and incarnation seen.
    beyond: u64,
}

fn numbers<R>(scanned: &[Scanned<R>]) -> BTreeMap<u32, u64> {
    scanned.iter().map(|segment| (segment.number, segment.incarnation)).collect()
}

fn read_log(
    driver: &mut Driver<'_>,
    device: DeviceId,
    files: &[(FileName, u64)],
    header: &CheckpointHeader,
    planted: Option<Planted>,
) -> Log {
    let (data_files, journal_files) = (of_kind(files, FileKind::Data), of_kind(files, FileKind::Journal));
    let mut thorough = false;
    loop {
        let data = scan_data(driver, device, &data_files, header.data, thorough);
        let journal = scan_journal(driver, device, &journal_files, header.journal, thorough);
        let mut marks = [header.data.last, header.journal.last];
        let mut beyond = header.sequence;
        let mut see = |link: &dyn Link, incarnation: u64| {
            let known = link.marks();
            marks = [marks[0].max(known[0]), marks[1].max(known[1])];
            beyond = beyond.max(link.sequences().1.saturating_add(1)).max(incarnation.saturating_add(1));
        };
        for segment in &data {
            segment.records.iter().for_each(|record| see(record, segment.incarnation));
        }
        for segment in &journal {
            segment.records.iter().for_each(|record| see(record, segment.incarnation));
        }
        let (data_segments, journal_segments) = (numbers(&data), numbers(&journal));
        let data = join(data, header.data.last, marks[0], planted);
        let journal = join(journal, header.journal.last, marks[1], planted);
        if thorough || (data.gaps.is_empty() && journal.gaps.is_empty()) {
            let early = Vec::new();
            return Log { data, journal, early, data_segments, journal_segments, marks, beyond };
        }
        thorough = true;
    }
}

/// Cuts off what had not become durable and is not whole: at the first such record the stream ends.
fn cut_torn(driver: &mut Driver<'_>, log: &mut Log, planted: Option<Planted>, opened: &mut Opened) {
    let mark = log.marks[0];
    let unchecked = planted == Some(Planted::ChecksumNotChecked);
    let whole = |record: &DataHeader| record.sequence <= mark || unchecked || payload_matches(driver, record);
    let end = {
        log.data.records.iter().position({
            let mut whole = whole;
            move |record| !whole(record)
        })
    };
    if let Some(end) = end {
        opened.torn += (log.data.records.len() - end) as u64;
        log.data.records.truncate(end);
    }
    let mark = log.marks[1];
    let torn = |group: &Group| group.records.is_none() && group.header.last > mark;
    if let Some(end) = log.journal.records.iter().position(torn) {
        opened.torn += (log.journal.records.len() - end) as u64;
        log.journal.records.truncate(end);
    }
    opened.torn += log.data.cut + log.journal.cut;
    for (first, last) in &log.data.gaps {
        opened.rot.push(format!("data records with sequence numbers {first} to {last} are damaged; what they held is lost here; restore it from replicas"));
    }
    for (first, last) in &log.journal.gaps {
        opened.rot.push(format!("journal records with sequence numbers {first} to {last} are damaged; what they held is lost here; restore it from replicas"));
    }
    for group in log.journal.records.iter().filter(|group| group.records.is_none()) {
        let (file, block) = (journal_file(group.header.segment), group.header.block);
        opened.rot.push(format!("the journal group at block {block} of {file} is damaged; what it held is lost here; restore it from replicas"));
    }
}

fn recover(
    driver: &mut Driver<'_>,
    files: &[(FileName, u64)],
    settings: Settings,
    identity: &Identity,
    life: u64,
) -> Result<(Core, Opened)> {
    let device = identity.device;
    let mut opened = Opened { id: device, ..Opened::default() };
    let found = load(driver, device, files);
    // The log behind the older checkpoint is kept, so one of the two is enough.
    if found.is_err() {
        driver.check_refused()?;
    }
    driver.refused = None;
    if matches!(found, Err(Fault::Newer)) {
        return Err(newer(format!("a checkpoint of device {device} says what is not known here"), identity.least));
    }
    let Ok(Loaded { header, mut index, segments, floor, kept, useless }) = found else {
        let text = format!(
            "both checkpoints of device {device} are damaged; nothing was changed; restore its data from replicas"
        );
        return Err(Error::new(ErrorKind::Corrupt, text));
    };
    // The process that wrote them may have been killed before it synced them: the next one builds upon them, and what it
    // gives back must not be needed again after a power loss.
    for known in kept.values() {
        driver.run(Op::Sync { file: known.file }).map_err(disk_error(&format!("cannot sync {}", known.file)))?;
    }
    let places = |header: &CheckpointHeader| Places { data: header.data, journal: header.journal };
    let mut log = read_log(driver, device, files, &header, settings.planted);
    cut_torn(driver, &mut log, settings.planted, &mut opened);
    let last = [
        log.data.records.last().map_or(header.data.last, |record| record.sequence),
        log.journal.records.last().map_or(header.journal.last, |group| group.header.last),
    ];
    log.early = find_early(driver, device, files, last[1], settings.planted);
    log.beyond = log.beyond.max(log.early.last().map_or(0, |(sequence, _)| sequence.saturating_add(1)));
    driver.check_refused()?;
    refuse_newer(&log, header.sequence, identity)?;
    sync_scanned(driver, &log)?;
    replay(&mut index, &log, header.sequence, &mut opened);
    let sealed = |id: &&ChunkId| index.chunks.get(id).is_some_and(|chunk| chunk.sealed);
    for id in index.open.keys().filter(sealed).copied().collect::<Vec<_>>() {
        index.close(id);
    }
    opened.bytes_scanned = driver.bytes_read;
    let next = log.beyond.saturating_add(settings.sequence_gap).saturating_add(life);
    let mut core = Core::new(settings, device, index, next, last);
    core.space.floor = floor;
    core.checkpoint.number = header.number;
    core.checkpoint.newest = places(&header);
    core.checkpoint.kept = kept;
    // What was punched may have come back with a power cut; nobody may be told of space as used that is dead.
    core.space.due = true;
    for file in useless {
        // It is in nobody's way if it stays.
        drop(driver.run(Op::Remove { file }));
    }
    core.tail_order =
        core.index.open.iter().filter(|(_, open)| !open.tail.is_empty()).map(|(id, open)| (*id, open.birth)).collect();
    let is_long =
        |(id, _): &&(ChunkId, u64)| core.index.open.get(id).is_some_and(|open| open.tail.len() > RECORD_PAYLOAD_MAX);
    core.long_tails = core.tail_order.iter().filter(is_long).map(|(id, _)| *id).collect();
    rebuild_data(driver, &mut core, files, &segments, &log, &mut opened);
    rebuild_journal(driver, &mut core, files, &log, &header);
    driver.check_refused()?;
    core.take_up_early(std::mem::take(&mut log.early));
    Ok((core, opened))
}

/// An error if a record that counts says what only a newer program knows: without it what comes after would be another history.
fn refuse_newer(log: &Log, start: u64, identity: &Identity) -> Result<()> {
    let data = log.data.records.iter().find(|header| header.sequence >= start && header.newer != 0);
    let groups = log.journal.records.iter().filter_map(|group| group.records.as_ref());
    let journal = groups.flatten().chain(&log.early).find_map(|(sequence, record)| match record {
        Record::Newer { kind, .. } if *sequence >= start => Some((*sequence, *kind)),
        _ => None,
    });
    let what = match (data, journal) {
        (Some(header), _) => format!("data record {} has the flags {:#x}", header.sequence, header.newer),
        (None, Some((sequence, kind))) => format!("journal record {sequence} is of kind {kind}"),
        (None, None) => return Ok(()),
    };
    Err(newer(format!("{what} on device {}", identity.device), identity.least))
}

/// What was found may only have been written, not synced, by a process that was killed.
fn sync_scanned(driver: &mut Driver<'_>, log: &Log) -> Result<()> {
    let data = log.data_segments.keys().map(|number| data_file(*number));
    for file in data.chain(log.journal_segments.keys().map(|number| journal_file(*number))) {
        driver.run(Op::Sync { file }).map_err(disk_error(&format!("cannot sync {file}")))?;
    }
    Ok(())
}

/// Applies both streams in the order of their sequence numbers, from `start` on: the first journal group may begin with records
/// that are in the checkpoint.
fn replay(index: &mut Index, log: &Log, start: u64, opened: &mut Opened) {
    enum Either<'a> {
        Data(&'a DataHeader),
        Journal(&'a Record),
    }
    let mut all: Vec<(u64, Either<'_>)> =
        log.data.records.iter().map(|header| (header.sequence, Either::Data(header))).collect();
    let groups = log.journal.records.iter().filter_map(|group| group.records.as_ref());
    all.extend(groups.flatten().chain(&log.early).map(|(sequence, record)| (*sequence, Either::Journal(record))));
    all.retain(|(sequence, _)| *sequence >= start);
    all.sort_by_key(|(sequence, _)| *sequence);
    for (sequence, record) in all {
        let fits = match record {
            Either::Data(header) => index.replay_data(header),
            Either::Journal(record) => index.replay(sequence, record),
        };
        // What does not fit continues a record that was cut off or, if that was reported, damaged.
        if fits { opened.records_replayed += 1 } else { opened.torn += 1 }
    }
}

/// The data segments: what of them is of use, what is dead.
fn rebuild_data(
    driver: &mut Driver<'_>,
    core: &mut Core,
    files: &[(FileName, u64)],
    listed: &BTreeMap<u32, u64>,
    log: &Log,
    opened: &mut Opened,
) {
    let size = (core.settings.data_segment / BLOCK as u64) as u32;
    // What only early records say to be dead may be needed again after a power loss until the journal has them.
    let after = log.early.last().map_or(0, |(sequence, _)| *sequence);
    let mut used: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
    for run in core.index.chunks.iter().flat_map(|(_, chunk)| chunk.runs) {
        used.entry(run.segment).or_default().push((run.block, record_blocks(run.stored())));
    }
    for (number, length) in of_kind(files, FileKind::Data) {
        let incarnation = log.data_segments.get(&number).or_else(|| listed.get(&number)).copied();
        let mut runs = used.remove(&number).unwrap_or_default();
        let Some(incarnation) = incarnation.filter(|_| length == core.settings.data_segment) else {
            // Made and never used, or used in a life that is over.
            if length == core.settings.data_segment && core.space.spare.is_none() {
                core.space.spare = Some(number);
                core.space.segments.insert(number, Segment::new(State::Spare, 0));
            } else if driver.run(Op::Remove { file: data_file(number) }).is_err() {
                let mut segment = Segment::new(State::Closed, 0);
                segment.misfit = length != core.settings.data_segment;
                core.space.segments.insert(number, segment);
                // It is removed, or used again, when space is looked for next.
                core.space.kill(number, 0, 0, 0);
            }
            continue;
        };
        let mut segment = Segment::new(State::Closed, incarnation);
        segment.end = size;
        runs.sort_unstable();
        let mut at = 0;
        for (block, blocks) in runs {
            segment.bury(at, block.saturating_sub(at));
            segment.live = segment.live.saturating_add(blocks);
            at = at.max(block.saturating_add(blocks));
        }
        segment.bury(at, size.saturating_sub(at));
        core.space.segments.insert(number, segment);
        core.space.kill(number, 0, 0, after);
    }
    for (number, runs) in used {
        opened.rot.push(format!(
            "{} is gone with {} records; restore them from replicas",
            data_file(number),
            runs.len()
        ));
    }
}

fn rebuild_journal(
    driver: &mut Driver<'_>,
    core: &mut Core,
    files: &[(FileName, u64)],
    log: &Log,
    header: &CheckpointHeader,
) {
    for (number, length) in of_kind(files, FileKind::Journal) {
        if length != core.settings.journal_segment {
            // Its making was interrupted; if it cannot be removed it is replaced when its number is due.
            drop(driver.run(Op::Remove { file: journal_file(number) }));
            continue;
        }
        let found = log.journal_segments.get(&number).copied();
        let incarnation = found.unwrap_or_else(|| {
            if number == header.journal.segment && header.journal.block > 0 {
                header.journal.incarnation
            } else {
                journal_incarnation(driver, core.device, number)
            }
        });
        // A segment that was begun behind both checkpoints, and of which no group counts, because the first one is torn, is as good as unused.
        let begun = [header.journal, core.space.floor.journal];
        let unused = found.is_some()
            && begun.iter().all(|place| place.segment != number || place.block == 0)
            && !log.journal.records.iter().any(|group| group.header.segment == number);
        core.journal_log.segments.insert(number, if unused { 0 } else { incarnation });
    }
}

#[cfg(test)]
mod tests {
    use super::{Disk, Record, Settings};
    use base::buffer::Pool;
    use base::id::{BagId, DeviceId};
    use base::unit::{MIB, Time};
    use sim::disk::{SimDevice, SimFaults};

    /// Numbers of records that were lost are not given again, however many these were: here as many as go into the journal of a
    /// large device before a checkpoint, of which the first came to the disk. A life of which nothing was found begins elsewhere
    /// than the next one.
    #[test]
    fn numbers_of_lost_records_are_not_given_again() {
        let device = SimDevice::new(1, SimFaults::default());
        let settings = Settings::for_capacity(256 * MIB, Pool::new(8 << 20));
        let open = |disk: &mut dyn Disk, life: u128| match super::open(
            disk,
            settings.clone(),
            DeviceId(life << 96),
            Time::ZERO,
        ) {
            Ok((core, _)) => core,
            Err(error) => panic!("{error}"),
        };
        let first = open(&mut device.attach(), 1).next_sequence;
        device.kill();
        assert_ne!(open(&mut device.attach(), 2).next_sequence, first);
        device.kill();
        let mut disk = device.attach();
        let mut core = open(&mut disk, 3);
        for epoch in 0..128 * MIB / 32 {
            core.record(Record::SealBag { bag: BagId(1), epoch });
            if epoch == 0 {
                super::work_off(&mut core, &mut disk).unwrap_or_else(|error| panic!("{error}"));
            }
        }
        let given = core.next_sequence;
        device.kill();
        assert!(open(&mut device.attach(), 1).next_sequence > given);
    }
}

//! Looking at devices without a server: what they hold, whether it is whole, and getting it out. Nothing is changed: the
//! engines recover on disks whose writes stay in memory, so there is one recovery and it is the real one.

use crate::device::answer::wire_cell;
use crate::keeping;
use crate::settings::{DeviceSetting, shown};
use base::buffer::Pool;
use base::checksum::{combine, crc32c};
use base::disk::{Caching, Disk, FileKind};
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind, Result};
use base::id::{ChunkId, DeviceId, SessionId};
use base::layout::{Column, Replica};
use base::limit::{LIST_PAGE_MAX, RECORD_PAYLOAD_MAX};
use base::policy::Class;
use base::unit::MIB;
use bytes::Bytes;
use chunk::{Check, Effect, Engine, Opened, Reply, Request, Usage};
use meta::request::{FileRef, NewGroup};
use net::cells::Stored;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use base::attributes::Attributes;
pub use chunk::ChunkStat;
pub use meta::request::BagInfo;

/// Bytes asked of an engine at once: four records, as its largest single read takes.
const STEP: u64 = 4 * RECORD_PAYLOAD_MAX as u64;

/// Damage is narrowed down to so many bytes where bytes are to be saved: the unit of checksums.
const FINEST: u64 = base::limit::BLOCK as u64;

/// Idle buffers kept: two steps.
const POOL_IDLE_MAX: usize = 8 * MIB as usize;

/// A store, or the part of one that was found in the directories given.
pub struct Inspection {
    /// The devices, in the order given.
    pub devices: Vec<InspectedDevice>,
    /// The metadata store, if one of the directories holds it.
    pub names: Option<Names>,
}

/// A device that is looked at.
pub struct InspectedDevice {
    /// Its directory, as it was given.
    pub directory: PathBuf,
    /// What recovery found.
    pub opened: Opened,
    /// How full it is.
    pub usage: Usage,
    /// Files of each kind: how many, bytes.
    pub files: Vec<(FileKind, u64, u64)>,
    disk: Box<dyn Disk>,
    engine: Engine<()>,
    clock: Arc<dyn Clock>,
}

/// Bytes that could not be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where they begin: in the chunk or in the file, whichever was read.
    pub start: u64,
    /// Behind the last of them.
    pub end: u64,
    /// What the matter is.
    pub why: String,
}

/// Takes bytes with their offset. An error of it ends the reading.
pub type Sink<'a> = &'a mut dyn FnMut(u64, Bytes) -> Result<()>;

impl Inspection {
    /// Opens what lies in these directories: each the `--data` of a server, or the directory `chunks` in one, or its `metadata_dir`. The
    /// metadata are also found where a device says that they are.
    ///
    /// # Errors
    /// `NotFound`: no device is there. `Busy`: a server has it. Else what recovery says.
    pub fn open(directories: &[PathBuf], clock: &Arc<dyn Clock>, random: &Arc<dyn Random>) -> Result<Inspection> {
        let tops: Vec<PathBuf> = directories.iter().map(|directory| top_of(directory)).collect();
        let mut devices: Vec<InspectedDevice> = Vec::new();
        for (directory, top) in directories.iter().zip(&tops) {
            // A place of the metadata alone.
            if !top.join("chunks").is_dir() && top.join(keeping::DIRECTORY).is_dir() {
                continue;
            }
            let chunks = if top.join("chunks").is_dir() { top.join("chunks") } else { directory.clone() };
            let device = InspectedDevice::open(directory, &chunks, clock)
                .map_err(|error| error.during(format!("inspect {}", shown(directory))))?;
            if devices.iter().any(|other| other.opened.id == device.opened.id) {
                let text = format!("{} holds a device that was named already; leave one out", shown(directory));
                return Err(Error::new(ErrorKind::Invalid, text));
            }
            devices.push(device);
        }
        let settings: Vec<DeviceSetting> = tops
            .into_iter()
            .map(|directory| DeviceSetting { directory, class: Class::default(), capacity: None })
            .collect();
        let found = keeping::find(&crate::world::OsWorld, &settings)?;
        let names = match found.filter(|directory| directory.join(crate::metadata::TREE).is_file()) {
            Some(directory) => Some(
                Names::open(&directory, clock, random)
                    .map_err(|error| error.during(format!("inspect {}", shown(&directory))))?,
            ),
            None => None,
        };
        Ok(Inspection { devices, names })
    }

    /// Reads a file from the devices that are here. What cannot be had comes back as damage, in offsets of the file.
    pub fn read_file(&mut self, path: &str, each: Sink<'_>) -> Result<Vec<Damage>> {
        let mut damage = Vec::new();
        let mut at = 0;
        while let Some(names) = &mut self.names {
            let located = names.locate(path, at)?;
            let length = located.attributes.length;
            for extent in &located.extents {
                let group = located.groups.iter().find(|group| group.group == extent.group);
                let Some(group) = group else { unreachable!("the answer names the group of each extent") };
                at = at.max(extent.file_offset.saturating_add(extent.length));
                // Of a file that was being written the devices know more bytes than the metadata store.
                let whole = if extent.open { self.group_length(group)? } else { 0 };
                let length = whole.saturating_sub(extent.group_offset).max(extent.length);
                self.read_extent(extent, group, length, (&mut *each, &mut damage))?;
            }
            if !located.more || located.extents.is_empty() {
                if at < length && located.extents.is_empty() {
                    let why = "no device is recorded for it".to_string();
                    damage.push(Damage { start: at, end: length, why });
                }
                break;
            }
        }
        Ok(damage)
    }

    /// How long a group is, by what its devices have; none of it where one of them is not here.
    fn group_length(&mut self, group: &NewGroup) -> Result<u64> {
        let mut lengths = Vec::with_capacity(group.layout.columns().len());
        for Replica { column, device, chunk } in group.layout.replicas() {
            if let Some(known) = self.devices.iter_mut().find(|known| known.opened.id == device) {
                lengths.push((column, known.length(chunk)?));
            }
        }
        Ok(group.layout.length(lengths))
    }

    /// Reads an extent of `length` bytes, piece after piece of its group's columns.
    fn read_extent(
        &mut self,
        extent: &meta::request::Extent,
        group: &NewGroup,
        length: u64,
        (each, damage): (Sink<'_>, &mut Vec<Damage>),
    ) -> Result<()> {
        let mut start = extent.file_offset;
        for piece in group.layout.stripe().pieces(extent.group_offset, length) {
            let end = start.saturating_add(piece.length);
            let column = &group.layout.columns()[piece.column];
            if !self.devices.iter().any(|known| column.has(known.opened.id)) {
                let devices: Vec<String> = column.devices().map(|device| device.to_string()).collect();
                let why = format!("it is on device {}, whose directory was not given", devices.join(" or "));
                note_damage(damage, start, end, &why);
            } else {
                let in_file = |at: u64| at - piece.offset + start;
                let mut placed = |offset: u64, bytes: Bytes| each(in_file(offset), bytes);
                let (from, to) = (piece.offset, piece.offset.saturating_add(piece.length));
                let bad = self.read_column(column, (from, to), &mut placed)?;
                damage.extend(bad.into_iter().map(|bad| Damage {
                    start: in_file(bad.start),
                    end: in_file(bad.end),
                    why: bad.why,
                }));
            }
            start = end;
        }
        Ok(())
    }

    /// Reads bytes of a column from the first of its devices that is here, and what cannot be had there from the next. Back comes what none
    /// of them has.
    fn read_column(&mut self, column: &Column, (from, to): (u64, u64), each: Sink<'_>) -> Result<Vec<Damage>> {
        let mut bad: Option<Vec<Damage>> = None;
        for device in column.devices() {
            let Some(known) = self.devices.iter_mut().find(|known| known.opened.id == device) else { continue };
            let wanted = bad.take().unwrap_or_else(|| vec![Damage { start: from, end: to, why: String::new() }]);
            let mut left = Vec::new();
            for Damage { start, end, why } in wanted {
                let here = known.read(column.chunk(), start, end, &mut *each)?;
                let said = |here: String| if why.is_empty() { here } else { format!("{why}; device {device}: {here}") };
                left.extend(here.into_iter().map(|here| Damage { why: said(here.why), ..here }));
            }
            let is_whole = left.is_empty();
            bad = Some(left);
            if is_whole {
                break;
            }
        }
        Ok(bad.unwrap_or_default())
    }
}

/// The bytes `from..to` of a chunk from what was read, cells restored.
fn plain_bytes(reply: Reply, (from, to): (u64, u64)) -> Result<Vec<Bytes>> {
    let Reply::Data { parts, cells, .. } = reply else { unreachable!("a read was answered by {reply:?}") };
    if cells.is_empty() {
        return Ok(parts);
    }
    let cells: Vec<_> = cells.into_iter().map(wire_cell).collect();
    let pool = Pool::new(0);
    let plain = |stored: Stored| {
        if stored.cell == 0 {
            return Ok(stored.bytes);
        }
        Ok(client::restore_cell(&stored, &pool)?.slice(stored.part(from, to)))
    };
    net::cells::apart(&cells, (from, to - from), Bytes::from(parts.concat()))?.into_iter().map(plain).collect()
}

/// The `--data` directory that this is, or is the `chunks` of.
fn top_of(directory: &Path) -> PathBuf {
    match directory.parent() {
        Some(parent) if directory.file_name().is_some_and(|name| name == "chunks") => match parent.as_os_str() {
            name if name.is_empty() => PathBuf::from("."),
            _ => parent.to_path_buf(),
        },
        _ => directory.to_path_buf(),
    }
}

impl InspectedDevice {
    fn open(directory: &Path, chunks: &Path, clock: &Arc<dyn Clock>) -> Result<InspectedDevice> {
        if !os::file::exists(directory)? {
            return Err(Error::new(
                ErrorKind::NotFound,
                "there is no such directory; check the path, and that the disk is mounted",
            ));
        }
        let pool = Pool::new(POOL_IDLE_MAX);
        let mut disk = os::disk::open_to_look(chunks, pool.clone())?;
        let listed = disk.list().map_err(|error| Error::new(ErrorKind::Io, error.to_string()))?;
        if !listed.iter().any(|(name, _)| name.kind == FileKind::Identity) {
            let text = "no device is here; name the directory that was given to `stormwell serve --data`";
            return Err(Error::new(ErrorKind::NotFound, text));
        }
        let files = FileKind::ALL
            .into_iter()
            .map(|kind| {
                let of_kind = listed.iter().filter(|(name, _)| name.kind == kind);
                of_kind.fold((kind, 0, 0), |(kind, count, bytes), (_, length)| (kind, count + 1, bytes + length))
            })
            .collect();
        let settings = chunk::Settings { keep_capacity: true, ..chunk::Settings::for_capacity(1 << 40, pool) };
        let (engine, opened) = Engine::open(disk.as_mut(), settings, DeviceId(0), clock.now())?;
        let usage = engine.usage();
        let directory = directory.to_path_buf();
        Ok(InspectedDevice { directory, opened, usage, files, disk, engine, clock: clock.clone() })
    }

    /// The chunks, in the order of their ids.
    pub fn chunks(&mut self) -> Result<Vec<(ChunkId, ChunkStat)>> {
        let mut all = Vec::new();
        loop {
            let after = all.last().map(|(chunk, _): &(ChunkId, ChunkStat)| *chunk);
            let reply = self.ask(Request::List { after, limit: LIST_PAGE_MAX })?;
            let Reply::List { chunks, more } = reply else { unreachable!("a list was asked for") };
            all.extend(chunks);
            if !more {
                return Ok(all);
            }
        }
    }

    /// Reads a whole chunk and compares every checksum, that of the whole chunk included. Returns what is damaged, to
    /// `FINEST` bytes, and how many bytes were released by their owner, which are no damage.
    pub fn read_chunk(&mut self, id: ChunkId, stat: &ChunkStat, each: Sink<'_>) -> Result<(Vec<Damage>, u64)> {
        let (mut crc, mut read) = (0, 0);
        let mut counted = |offset: u64, bytes: Bytes| {
            crc = combine(crc, crc32c(&bytes), bytes.len() as u64);
            read += bytes.len() as u64;
            each(offset, bytes)
        };
        let mut damage = self.read(id, 0, stat.length, &mut counted)?;
        let bad: u64 = damage.iter().map(|bad| bad.end - bad.start).sum();
        let released = stat.length.saturating_sub(read).saturating_sub(bad);
        // Where cells are, other bytes are stored than these; each was compared with its own.
        if damage.is_empty() && released == 0 && crc != stat.crc && !self.engine.has_cells(id) {
            let why = format!("its bytes have the checksum {crc:08x}, and {:08x} was recorded", stat.crc);
            damage.push(Damage { start: 0, end: stat.length, why });
        }
        Ok((damage, released))
    }

    /// The bytes that a chunk has; none if it is not here.
    fn length(&mut self, chunk: ChunkId) -> Result<u64> {
        match self.ask(Request::Stat { chunk }) {
            Ok(Reply::Stat(stat)) => Ok(stat.length),
            Ok(other) => unreachable!("a chunk was asked about: {other:?}"),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Reads bytes `start..end` of a chunk. What fails is tried again in halves down to blocks of `FINEST` bytes; what was released by
    /// its owner is left out.
    fn read(&mut self, chunk: ChunkId, start: u64, end: u64, each: Sink<'_>) -> Result<Vec<Damage>> {
        let mut damage: Vec<Damage> = Vec::new();
        let mut todo = Vec::new();
        let mut at = start;
        while at < end || !todo.is_empty() {
            let (from, to) = todo.pop().unwrap_or_else(|| {
                let from = at;
                at = at.saturating_add(STEP).min(end);
                (from, at)
            });
            let ranges = vec![(from, to - from)];
            let read = Request::Read { chunk, ranges, caching: Caching::Around, check: Check::Here, cells: true };
            let data = self.ask(read).and_then(|reply| plain_bytes(reply, (from, to)));
            match data {
                Ok(parts) => {
                    let mut offset = from;
                    for part in parts {
                        let length = part.len() as u64;
                        each(offset, part)?;
                        offset += length;
                    }
                    if offset < to {
                        let why = format!("the chunk ends at {offset}");
                        damage.push(Damage { start: offset, end: to, why });
                    }
                }
                Err(error) => {
                    // Part of it was released, or the whole chunk is not here.
                    let released = error.kind() == ErrorKind::NotFound && self.engine.holds(chunk);
                    let middle = from + (to - from) / 2;
                    // A block is bad as a whole: what is cut within it takes its neighbour along.
                    let middle = if released { middle } else { cut(from, to, middle) };
                    if from < middle && middle < to {
                        todo.push((middle, to));
                        todo.push((from, middle));
                    } else if !released {
                        note_damage(&mut damage, from, to, error.text());
                    }
                }
            }
        }
        Ok(damage)
    }

    /// Asks the engine and runs its operations until it answers.
    fn ask(&mut self, request: Request) -> Result<Reply> {
        self.engine.submit(self.clock.now(), request, ());
        let (mut effects, mut done, mut answer) = (Vec::new(), Vec::new(), None);
        loop {
            self.engine.take_effects(&mut effects);
            for effect in effects.drain(..) {
                match effect {
                    Effect::Disk { token, op } => self.disk.submit(token, op),
                    Effect::Reply { result, .. } => answer = Some(result),
                }
            }
            if let Some(answer) = answer {
                return answer;
            }
            self.disk.poll(None, &mut done);
            for finished in done.drain(..) {
                self.engine.completed(self.clock.now(), finished);
            }
        }
    }
}

/// Where to cut a range near this place, so that each half ends with a block; outside of the range if none ends within it.
fn cut(from: u64, to: u64, near: u64) -> u64 {
    let below = near / FINEST * FINEST;
    let cut = if below > from { below } else { below.saturating_add(FINEST) };
    if cut < to { cut } else { to }
}

/// Joins a damaged range to the one before it.
fn note_damage(damage: &mut Vec<Damage>, start: u64, end: u64, why: &str) {
    match damage.last_mut() {
        Some(last) if last.end == start => last.end = end,
        _ => damage.push(Damage { start, end, why: why.to_string() }),
    }
}

/// The metadata store, looked at.
pub struct Names {
    /// Where it is.
    pub directory: PathBuf,
    store: meta::Store<()>,
    disk: Box<dyn Disk>,
    clock: Arc<dyn Clock>,
}

impl Names {
    fn open(directory: &Path, clock: &Arc<dyn Clock>, random: &Arc<dyn Random>) -> Result<Names> {
        // The store makes what it does not find; in memory that would be an empty one.
        let mut disk = os::disk::open_to_look(directory, Pool::new(POOL_IDLE_MAX))?;
        let tree = Box::new(os::file::UnchangedFile::open(&directory.join(crate::metadata::TREE))?);
        let settings = meta::Settings::for_capacity(u64::MAX, random.clone());
        let (store, _) = meta::Store::open(disk.as_mut(), tree, &settings, clock.now(), clock.wall())?;
        Ok(Names { directory: directory.to_path_buf(), store, disk, clock: clock.clone() })
    }

    fn ask(&mut self, request: meta::Request) -> Result<meta::Reply> {
        let caller = meta::Caller { session: SessionId(0), call: 0, floor: 0 };
        self.store.submit(self.clock.now(), self.clock.wall(), caller, request, ());
        let (mut done, mut answer) = (Vec::new(), None);
        loop {
            for effect in self.store.take_effects(self.clock.now()) {
                match effect {
                    meta::Effect::Disk { token, op } => self.disk.submit(token, op),
                    meta::Effect::Reply { result, .. } => answer = Some(result),
                    // It is alone.
                    _ => {}
                }
            }
            if let Some(answer) = answer {
                return answer;
            }
            self.disk.poll(None, &mut done);
            for finished in done.drain(..) {
                self.store.completed(self.clock.now(), finished);
            }
        }
    }

    /// Counts of the whole store: files, directories, bytes.
    pub fn totals(&mut self) -> Result<meta::request::Totals> {
        match self.ask(meta::Request::Usage)? {
            meta::Reply::Usage(totals) => Ok(totals),
            other => unreachable!("the totals were asked for: {other:?}"),
        }
    }

    /// The devices of the store with their class, whether they were given or not.
    pub fn devices(&mut self) -> Result<Vec<(DeviceId, Class)>> {
        match self.ask(meta::Request::DeviceList)? {
            meta::Reply::Devices(devices) => Ok(devices.iter().map(|info| (info.device, info.class)).collect()),
            other => unreachable!("devices were asked for: {other:?}"),
        }
    }

    /// All bags: number and name.
    pub fn bags(&mut self) -> Result<Vec<BagInfo>> {
        let mut all: Vec<BagInfo> = Vec::new();
        loop {
            let after = all.last().map(|bag| bag.name.clone());
            let meta::Reply::Bags { bags, more } = self.ask(meta::Request::BagList { after, limit: LIST_PAGE_MAX })?
            else {
                unreachable!("bags were asked for")
            };
            all.extend(bags);
            if !more {
                return Ok(all);
            }
        }
    }

    /// Every file and directory below the root, a directory before what is in it. Calls `each` with the path and what is
    /// known of it; an error of it ends the walk.
    pub fn walk(&mut self, each: &mut dyn FnMut(&mut Names, &str, &Attributes) -> Result<()>) -> Result<()> {
        let mut open: Vec<(String, Option<String>)> = vec![(String::new(), None)];
        while let Some((directory, after)) = open.pop() {
            let path = if directory.is_empty() { meta::Path::root() } else { meta::Path::parse(&directory)? };
            let reply =
                self.ask(meta::Request::List { path, after, limit: LIST_PAGE_MAX, located: false, also: Vec::new() })?;
            let meta::Reply::Entries { entries, more, .. } = reply else { unreachable!("entries were asked for") };
            if let Some(last) = entries.last().filter(|_| more) {
                open.push((directory.clone(), Some(last.name.clone())));
            }
            for entry in entries {
                let path = format!("{directory}/{}", entry.name);
                each(self, &path, &entry.attributes)?;
                if entry.attributes.directory {
                    open.push((path, None));
                }
            }
        }
        Ok(())
    }

    /// The chunks that a file's bytes are in: device, chunk, where in the chunk, how many bytes.
    pub fn chunks_of(&mut self, path: &str) -> Result<Vec<(DeviceId, ChunkId, u64, u64)>> {
        let (mut all, mut at) = (Vec::new(), 0);
        loop {
            let located = self.locate(path, at)?;
            for extent in &located.extents {
                let group = located.groups.iter().find(|group| group.group == extent.group);
                let Some(group) = group else { unreachable!("the answer names the group of each extent") };
                let range = extent.group_offset..extent.group_offset.saturating_add(extent.length);
                for Replica { column, device, chunk } in group.layout.replicas() {
                    let there = group.layout.stripe().column_range(range.clone(), column);
                    if there.start < there.end {
                        all.push((device, chunk, there.start, there.end - there.start));
                    }
                }
                at = extent.file_offset.saturating_add(extent.length);
            }
            if !located.more || located.extents.is_empty() {
                return Ok(all);
            }
        }
    }

    fn locate(&mut self, path: &str, offset: u64) -> Result<meta::request::Located> {
        let file = FileRef::Path(meta::Path::parse(path)?);
        let request = meta::Request::Locate { file, offset, length: u64::MAX - offset };
        match self.ask(request)? {
            meta::Reply::Located(located) => Ok(located),
            other => unreachable!("a place was asked for: {other:?}"),
        }
    }
}

#[cfg(test)]
mod tests;

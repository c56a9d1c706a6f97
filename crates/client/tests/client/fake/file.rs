//! Names and extents of the fake.

use super::State;
use base::error::{Error, ErrorKind, Result};
use base::id::DeviceId;
use base::layout::Replica;
use base::limit::LISTED_EXTENTS_MAX;
use net::message::file::{
    Attributes, Close, Create, DiskUsage, DiskUsageAnswer, Entry, Extent, List, ListAnswer, Locate, LocateAnswer,
    MakeDirectory, NewGroup, NextGroup, OpenedFile, PutFiles, PutFilesAnswer,
};
use net::message::layout::{Column, Layout};
use net::message::{Done, Failure, Id};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub struct Files {
    pub by_path: BTreeMap<String, u64>,
    pub by_number: BTreeMap<u64, File>,
    pub directories: BTreeSet<String>,
    pub groups: BTreeMap<u64, NewGroup>,
    /// The start of each replica, by chunk and device, when it was placed.
    pub placed: BTreeMap<(u128, u128), u64>,
}

#[derive(Clone, Default)]
pub struct File {
    pub extents: Vec<Piece>,
    pub length: u64,
    pub modified_ms: u64,
    pub mode: u32,
    pub generation: u64,
    pub writer: Option<u64>,
    /// Bytes of its open group that are recorded as synced.
    pub recorded: u64,
}

/// Part of a file.
#[derive(Clone, Copy)]
pub struct Piece {
    pub start: u64,
    pub length: u64,
    pub group: u64,
    pub group_offset: u64,
}

/// How wide files become, and on how many devices; nothing of it: one column of one replica, as long as the client likes.
#[derive(Clone, Copy, Default)]
pub struct Wide {
    pub columns: u64,
    pub cell: u64,
    /// Of the first group, which has one column.
    pub narrow: u64,
    /// Of all others.
    pub room: u64,
    /// Of each column of a file, where there are so many devices.
    pub replicas: u64,
}

/// Where the bytes of a group are.
pub fn layout_of(group: &NewGroup) -> base::layout::Layout {
    group.layout.checked().expect("the fake's own")
}

fn key_of(replica: &Replica) -> (u128, u128) {
    (replica.chunk.0, replica.device.0)
}

fn error<T>(kind: ErrorKind, text: &str) -> Result<T> {
    Err(Error::new(kind, text))
}

impl State {
    pub fn new_group(&mut self) -> NewGroup {
        self.new_group_beside(&[])
    }

    /// A column that begins at a place of the round of devices, on those that were not found full if there are such.
    fn column_at(&self, place: u64, chunk: u128, full: &[Id]) -> Column {
        let all = (0..self.devices).map(|number| Id::from(u128::from((place + number) % self.devices) + 1));
        let all: Vec<Id> = all.collect();
        let mut devices = all.iter().filter(|device| !full.contains(device)).copied();
        let device = devices.next().unwrap_or(all[0]);
        let others = devices.take((self.wide.replicas as usize).saturating_sub(1)).collect();
        Column { device, chunk: chunk.into(), others }
    }

    fn place(&mut self, answer: NewGroup) -> NewGroup {
        for replica in layout_of(&answer).replicas() {
            let start = self.start_of(replica.device.0);
            self.files.placed.insert(key_of(&replica), start);
        }
        self.files.groups.insert(answer.group, answer.clone());
        answer
    }

    pub fn new_group_beside(&mut self, full: &[Id]) -> NewGroup {
        let group = self.number();
        let column = self.column_at(group, u128::from(group) << 64, full);
        let layout = Layout { columns: vec![column], cell: 0 };
        self.place(NewGroup { group, room: self.wide.narrow, layout })
    }

    fn wider_group(&mut self, most: u32, full: &[Id]) -> NewGroup {
        let Wide { columns, cell, room, .. } = self.wide;
        let only = self.new_group_beside(full);
        if columns < 2 {
            return only;
        }
        assert!(u64::from(most) >= columns, "a writer takes several columns");
        let chunk = only.layout.columns[0].chunk.value();
        let column = |number| self.column_at(only.group + number, chunk + u128::from(number), full);
        let columns = (0..columns).map(column).collect();
        self.place(NewGroup { group: only.group, room, layout: Layout { columns, cell } })
    }

    fn file(&mut self, path: &str) -> Result<(u64, &mut File)> {
        let missing = || Error::new(ErrorKind::NotFound, format!("there is no {path}"));
        let inode = *self.files.by_path.get(path).ok_or_else(missing)?;
        self.files.by_number.get_mut(&inode).map(|file| (inode, file)).ok_or_else(missing)
    }

    fn attributes(inode: u64, file: &File) -> Attributes {
        Attributes {
            inode,
            directory: false,
            length: file.length,
            modified_ms: file.modified_ms,
            mode: file.mode,
            open: file.writer.is_some(),
            generation: file.generation,
            ..Attributes::default()
        }
    }

    pub fn stat(&mut self, path: &str) -> Result<Attributes> {
        if self.files.directories.contains(path) {
            return Ok(Attributes { directory: true, ..Attributes::default() });
        }
        self.file(path).map(|(inode, file)| State::attributes(inode, file))
    }

    pub fn list(&mut self, ask: &List) -> Result<ListAnswer> {
        let prefix = format!("{}/", ask.path.trim_end_matches('/'));
        let names: Vec<String> =
            self.files.by_path.keys().filter_map(|path| path.strip_prefix(&prefix)).map(str::to_string).collect();
        let after: Vec<String> = names.into_iter().filter(|name| *name > ask.after).collect();
        // Pages of seven: a listing of any length has several.
        let mut entries = Vec::new();
        for name in after.iter().take(7) {
            let path = format!("{prefix}{name}");
            let extents = if ask.extents { self.few_extents(&path)? } else { Vec::new() };
            entries.push(Entry { name: name.clone(), attributes: self.stat(&path)?, extents });
        }
        Ok(ListAnswer { more: after.len() > 7, entries, others: Vec::new() })
    }

    /// Where the bytes of a closed file are, if that is few extents and the node is no older one.
    fn few_extents(&mut self, path: &str) -> Result<Vec<Extent>> {
        let file = self.file(path)?.1.clone();
        let few = file.writer.is_none() && file.extents.len() <= LISTED_EXTENTS_MAX && !self.faults.without_extents;
        Ok(if few { file.extents.iter().map(|piece| self.extent(piece, false)).collect() } else { Vec::new() })
    }

    fn extent(&self, piece: &Piece, open: bool) -> Extent {
        let layout = self.files.groups[&piece.group].layout.clone();
        let Piece { start: offset, length, group_offset, .. } = *piece;
        Extent { offset, length, group_offset, open, layout, starts: Vec::new(), generation: 0 }
    }

    /// The one that is being written, with what is needed to tell how far all of its replicas are.
    fn open_extent(&self, file: &File, group: u64) -> Extent {
        let extent = self.extent(&Piece { start: file.length, length: file.recorded, group, group_offset: 0 }, true);
        let layout = layout_of(&self.files.groups[&group]);
        if !layout.has_several() {
            return extent;
        }
        let starts =
            layout.replicas().map(|replica| self.files.placed.get(&key_of(&replica)).copied().unwrap_or(1)).collect();
        Extent { starts, generation: file.generation, ..extent }
    }

    /// What a node does with the bytes of files that were deleted or replaced: they can be read no more.
    pub fn release(&mut self) {
        let named = |group: u64, range: (u64, u64), files: &BTreeMap<u64, File>, inodes: &BTreeSet<u64>| {
            let holds = |piece: &Piece| piece.group == group && (piece.group_offset, piece.length) == range;
            inodes.iter().any(|inode| files[inode].extents.iter().any(holds))
        };
        let inodes: BTreeSet<u64> = self.files.by_path.values().copied().collect();
        for file in self.files.by_number.values() {
            for Piece { group, group_offset, length, .. } in &file.extents {
                if !named(*group, (*group_offset, *length), &self.files.by_number, &inodes) {
                    let chunk = self.files.groups[group].layout.columns[0].chunk.value();
                    self.released.push((chunk, *group_offset..group_offset + length));
                }
            }
        }
    }

    pub fn disk_usage(&mut self, ask: &DiskUsage) -> Result<DiskUsageAnswer> {
        let resume = String::from_utf8(ask.resume.clone()).unwrap_or_default();
        let mut files = self.files.by_path.iter().filter(|(path, _)| **path > resume);
        let Some((path, inode)) = files.next() else {
            return Ok(DiskUsageAnswer { directories: 1, ..DiskUsageAnswer::default() });
        };
        let bytes = self.files.by_number[inode].length;
        Ok(DiskUsageAnswer { files: 1, directories: 0, bytes, next: path.clone().into_bytes() })
    }

    pub fn make_directory(&mut self, ask: &MakeDirectory) -> Result<Done> {
        if !self.files.directories.insert(ask.path.clone()) && !ask.parents {
            return error(ErrorKind::Exists, "the directory exists");
        }
        Ok(Done {})
    }

    fn make(&mut self, path: &str, overwrite: bool, file: File) -> Result<u64> {
        if path.contains("/missing/") {
            return error(ErrorKind::NotFound, "there is no such directory");
        }
        if !overwrite && self.files.by_path.contains_key(path) {
            return error(ErrorKind::Exists, "the file exists");
        }
        let inode = self.number();
        self.files.by_path.insert(path.to_string(), inode);
        self.files.by_number.insert(inode, file);
        Ok(inode)
    }

    pub fn create(&mut self, _session: u128, ask: &Create) -> Result<OpenedFile> {
        let group = self.new_group();
        let file =
            File { mode: ask.mode.unwrap_or(0o644), generation: 1, writer: Some(group.group), ..File::default() };
        let inode = self.make(&ask.path, ask.overwrite, file)?;
        let attributes = self.stat(&ask.path).ok();
        let compression = self.compression.code();
        Ok(OpenedFile { inode, generation: 1, length: 0, group, attributes, limited: false, compression, lost: false })
    }

    pub fn append_open(&mut self, _session: u128, path: &str) -> Result<OpenedFile> {
        let (group, compression) = (self.new_group(), self.compression.code());
        let (inode, file) = self.file(path)?;
        if file.writer.is_some() {
            return error(ErrorKind::Busy, "the file has a writer");
        }
        file.generation += 1;
        file.writer = Some(group.group);
        let attributes = Some(State::attributes(inode, file));
        let (generation, length) = (file.generation, file.length);
        Ok(OpenedFile { inode, generation, length, group, attributes, limited: false, compression, lost: false })
    }

    /// What a node does when the leases of all writers are over: their chunks are fenced and keep what they have. The longest of each column
    /// counts; what is shorter, or is not heard of, is struck.
    pub fn end_leases(&mut self) {
        let writers: Vec<(u64, u64)> =
            self.files.by_number.iter().filter_map(|(inode, file)| Some((*inode, file.writer?))).collect();
        for (inode, group) in writers {
            let file = self.files.by_number.get_mut(&inode).expect("listed");
            file.generation += 1;
            file.writer = None;
            let generation = file.generation;
            let layout = layout_of(&self.files.groups[&group]);
            let mut longest = vec![0; layout.columns().len()];
            for replica in layout.replicas().filter(|replica| !self.dead.contains(&replica.device.0)) {
                let stored = self.chunks.entry((replica.chunk.0, replica.device.0)).or_default();
                (stored.sealed, stored.generation) = (true, generation);
                longest[replica.column] = stored.length.max(longest[replica.column]);
            }
            let length = layout.stripe().group_length(&longest);
            let is_short = |replica: &Replica| {
                let has = self.stored(replica.chunk, replica.device).map_or(0, |stored| stored.length);
                self.dead.contains(&replica.device.0) || has < layout.stripe().column_length(length, replica.column)
            };
            let short: Vec<_> = layout.replicas().filter(is_short).map(|replica| key_of(&replica)).collect();
            self.strike(group, &short);
            self.finish(inode, group, length);
        }
    }

    /// Names these replicas of a group no more, where others of the same chunk are left.
    fn strike(&mut self, group: u64, short: &[(u128, u128)]) {
        let group = self.files.groups.get_mut(&group).expect("it was made");
        for column in &mut group.layout.columns {
            let is_left = |device: &Id| !short.contains(&(column.chunk.value(), device.value()));
            let mut left = std::iter::once(column.device).chain(column.others.iter().copied()).filter(is_left);
            if let Some(device) = left.next() {
                (column.others, column.device) = (left.collect(), device);
            }
        }
    }

    fn finish(&mut self, inode: u64, group: u64, length: u64) {
        let file = self.files.by_number.get_mut(&inode).expect("asked for before");
        file.recorded = 0;
        if length > 0 {
            file.extents.push(Piece { start: file.length, length, group, group_offset: 0 });
            file.length += length;
        }
    }

    /// `early`: columns may have bytes behind the end. `gone`: if all replicas of a column are on these devices, they are not sealed. `short`
    /// are struck first, and every replica that is named then has its part.
    fn leased(
        &mut self,
        inode: u64,
        generation: u64,
        (group, length): (u64, u64),
        (early, gone, short): (bool, &[Id], &[(u128, u128)]),
    ) -> Result<()> {
        let file = self.files.by_number.get(&inode);
        if file.is_none_or(|file| file.generation != generation || file.writer != Some(group)) {
            return error(ErrorKind::Stale, "another writer took over");
        }
        let is_gone = |device: DeviceId| gone.contains(&device.0.into());
        let all_gone: Vec<bool> = layout_of(&self.files.groups[&group])
            .columns()
            .iter()
            .map(|column| column.devices().all(is_gone))
            .collect();
        self.strike(group, short);
        let layout = layout_of(&self.files.groups[&group]);
        for replica in layout.replicas() {
            let length = layout.stripe().column_length(length, replica.column);
            let durable = self.stored(replica.chunk, replica.device).is_some_and(|stored| {
                (stored.sealed || all_gone[replica.column])
                    && (stored.synced == length || early && stored.synced > length)
            });
            assert!(
                length == 0 || durable,
                "a group is finished of which {replica:?} is named and not sealed and synced at {length}"
            );
        }
        Ok(())
    }

    pub fn next_group(&mut self, ask: &NextGroup) -> Result<NewGroup> {
        let early = !ask.full.is_empty() || !ask.gone.is_empty() || !ask.short.is_empty();
        if self.without_groups {
            return error(ErrorKind::Full, "there is no place for another group");
        }
        let finished = (ask.finished_group, ask.finished_length);
        let short: Vec<_> = ask.short.iter().map(|short| (short.chunk.value(), short.device.value())).collect();
        self.leased(ask.inode, ask.generation, finished, (early, &ask.gone, &short))?;
        self.short.extend(short);
        self.finish(ask.inode, ask.finished_group, ask.finished_length);
        self.ended_early += u64::from(early);
        let group = self.wider_group(ask.columns_max, &[&ask.full[..], &ask.gone].concat());
        self.files.by_number.get_mut(&ask.inode).expect("leased").writer = Some(group.group);
        Ok(group)
    }

    pub fn close(&mut self, ask: &Close) -> Result<Attributes> {
        self.leased(ask.inode, ask.generation, (ask.finished_group, ask.finished_length), (false, &[], &[]))?;
        self.finish(ask.inode, ask.finished_group, ask.finished_length);
        let file = self.files.by_number.get_mut(&ask.inode).expect("leased");
        file.writer = None;
        file.modified_ms = ask.modified_ms;
        Ok(State::attributes(ask.inode, file))
    }

    pub fn put_files(&mut self, ask: &PutFiles) -> PutFilesAnswer {
        let mut results = Vec::new();
        for put in &ask.files {
            let mut file = File { length: put.length, modified_ms: put.modified_ms, mode: put.mode, ..File::default() };
            if put.length > 0 {
                let layout = layout_of(&self.files.groups[&put.group]);
                for replica in layout.replicas() {
                    let synced = self.stored(replica.chunk, replica.device).map_or(0, |stored| stored.synced);
                    assert!(synced >= put.offset + put.length, "{} is named before {replica:?} has it", put.path);
                }
                file.extents.push(Piece { start: 0, length: put.length, group: put.group, group_offset: put.offset });
            }
            let made = self.make(&put.path, put.overwrite, file);
            results.push(made.map_or_else(Failure::from, |_| Failure::default()));
        }
        PutFilesAnswer { results }
    }

    pub fn locate(&mut self, ask: &Locate) -> Result<LocateAnswer> {
        let inode = if ask.path.is_empty() { ask.inode } else { self.file(&ask.path)?.0 };
        let Some(file) = self.files.by_number.get(&inode) else {
            return error(ErrorKind::NotFound, "the file is gone");
        };
        let end = ask.offset.saturating_add(ask.length);
        let touching = |piece: &&Piece| piece.start < end && piece.start + piece.length > ask.offset;
        let mut extents: Vec<Extent> =
            file.extents.iter().filter(touching).map(|piece| self.extent(piece, false)).collect();
        if let Some(group) = file.writer {
            extents.push(self.open_extent(file, group));
        }
        // Pages of two: a file of a few chunks has several.
        let more = extents.len() > 2;
        extents.truncate(2);
        let attributes = State::attributes(inode, file);
        if let Some(left) = self.faults.moved.checked_sub(1) {
            self.faults.moved = left;
            self.move_chunks();
        }
        Ok(LocateAnswer { attributes, extents, more })
    }
}

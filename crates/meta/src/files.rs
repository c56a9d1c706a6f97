//! Files while they are written and read: leases, groups, extents.

use crate::attributes::format::kept;
use crate::attributes::{check_holder, check_mode, check_new};
use crate::convert;
use crate::devices::GroupOf;
use crate::format::{
    ExtentRecord, GroupRecord, InodeRecord, KeptRecord, NameRecord, RangeRecord, ReplicaRecord, WriterRecord,
};
use crate::key::Key;
use crate::names::{Found, gone};
use crate::path::Path;
use crate::placement::{self, Candidate};
use crate::quota::{Load, Taken};
use crate::reply::Reply;
use crate::request::{Began, FileHandle, FileRef, NewGroup, NewInode, Orphan, Refused};
use crate::state::{State, missing};
use base::error::{Error, ErrorKind, Result};
use base::id::{ChunkId, DeviceId, Generation, GroupId, InodeId, SessionId};
use base::layout::{Column, Layout};
use base::limit::{CHUNK_MAX, REPLICAS_MAX};
use base::planted::Planted;
use base::policy::{Class, Policy};
use base::unit::WallTime;
use base::version::newer;

/// Groups that go with a file because a writer lost it before their first byte; older ones go with their writers' sessions.
const FENCED_MAX: usize = 16;

impl State {
    /// A new group of up to so many columns where the policy wants it, held by nobody yet. Of each column as many replicas as the policy wants,
    /// the writer can write to and there are places for.
    fn allocate(
        &mut self,
        mut candidates: Vec<Candidate>,
        policy: Policy,
        (wanted, replicas_max): (usize, usize),
        avoid: &[DeviceId],
    ) -> Result<(NewGroup, GroupRecord)> {
        for candidate in &mut candidates {
            candidate.placed = self.devices.placed(candidate.device, wanted);
        }
        // A group of one column is a file's first, which is short, or a file's on one device, which goes on elsewhere no sooner.
        let room = if wanted == 1 { self.widths.narrow } else { self.widths.full };
        let devices = placement::place_columns(&candidates, policy, wanted, room, self.random.next())?;
        let others = (policy.replicas.unwrap_or(1) as usize).min(replicas_max).min(REPLICAS_MAX).saturating_sub(1);
        let homes = if others > 0 { self.homes_for(&candidates, avoid) } else { Vec::new() };
        let mut placed: Vec<Vec<DeviceId>> = devices.into_iter().map(|device| vec![device]).collect();
        let least = policy.least().min(others + 1);
        for replicas in placed.iter_mut().filter(|_| others > 0) {
            let head = replicas[0];
            replicas.extend(placement::place_others(&homes, head, others, room, self.random.next()));
            if replicas.len() < least && !avoid.is_empty() {
                // Those that refused something may take it by now: better than that nobody does.
                let all = self.homes_for(&candidates, &[]);
                replicas.truncate(1);
                replicas.extend(placement::place_others(&all, head, others, room, self.random.next()));
            }
        }
        // A group of fewer columns is better than none.
        let most = placed.iter().map(Vec::len).max().unwrap_or(0);
        placed.retain(|replicas| replicas.len() >= least);
        if placed.is_empty() {
            return Err(placement::too_few(most, least));
        }
        let mut columns = Vec::with_capacity(placed.len());
        for replicas in placed {
            replicas.iter().for_each(|device| self.devices.place(*device, wanted));
            let Some(column) = Column::new(ChunkId(self.random.wide()), replicas.into_iter()) else {
                unreachable!("placement names a device once, and no more than a column can have")
            };
            columns.push(column);
        }
        let Some(layout) = Layout::new(columns, self.widths.cell) else {
            unreachable!("placement gives as many columns as a group may have, and chunks have names drawn at random")
        };
        let (mut columns, cell) = (convert::column_records(&layout), layout.cell());
        if layout.has_several() {
            columns.iter_mut().flat_map(|column| &mut column.replicas).for_each(|replica| self.note_start(replica));
        }
        let wanted = policy.replicas.filter(|wanted| *wanted > 1).unwrap_or(0);
        let record = GroupRecord { columns, cell, open: true, wanted, ..GroupRecord::default() };
        Ok((NewGroup { group: self.next_group(), layout, room: 0 }, record))
    }

    /// Notes which start of its node a replica is placed on.
    fn note_start(&self, replica: &mut ReplicaRecord) {
        let node = DeviceId::from_slice(&replica.device).and_then(|device| self.devices.node_of(device));
        replica.start = node.map_or(0, |node| self.nodes.start_of(node));
    }

    /// A new group for a writer who can write to so many columns and replicas: the first, or one behind a group of `before` columns. Devices that
    /// `refused` its bytes are taken if there are no others; for replicas beside the first they are not.
    fn allocate_for_file(
        &mut self,
        policy: Policy,
        before: Option<usize>,
        (columns_max, replicas_max): (usize, usize),
        refused: &Refused,
    ) -> Result<NewGroup> {
        let (columns, room) = (self.widths.columns_max.min(columns_max), self.widths.full);
        let of = if before.is_none() { GroupOf::File } else { GroupOf::LongFile };
        let avoid: Vec<DeviceId> = refused.devices().collect();
        let policy = if refused.last { Policy { least: None, ..policy } } else { policy };
        let candidates = match avoid.is_empty() {
            true => self.next_candidates(of, policy, (columns, room))?,
            false => placement::without(self.candidates()?, policy, &avoid),
        };
        let possible = placement::columns_possible(&candidates, policy, self.widths.full);
        let possible = possible.min(columns_max).min(self.widths.columns_max);
        let wanted = (self.widths.columns(before, possible), replicas_max.max(1));
        let (group, record) = self.allocate(candidates, policy, wanted, &avoid)?;
        self.put_group(group.group, GroupRecord { references: 1, ..record });
        let room = self.widths.room(group.layout.columns().len(), possible);
        Ok(NewGroup { room, ..group })
    }

    /// A new group for small files of a session: on as many replicas as are wanted where one of them will be, and the caller appends to.
    pub fn allocate_for_pack(
        &mut self,
        session: SessionId,
        policy: Policy,
        (beside, replicas_max): (Option<&Path>, usize),
        refused: &[DeviceId],
    ) -> Result<NewGroup> {
        let there = beside.map_or(Ok(Policy::default()), |path| self.policy_at(path))?;
        let policy = Policy { replicas: policy.replicas.max(there.replicas), least: there.least, ..policy };
        let candidates = match refused {
            [] => self.next_candidates(GroupOf::SmallFiles, policy, (1, self.widths.narrow))?,
            _ => placement::without(self.candidates()?, policy, refused),
        };
        let (group, record) = self.allocate(candidates, policy, (1, replicas_max.max(1)), refused)?;
        let record = GroupRecord { packed: true, session: session.to_bytes().to_vec(), ..record };
        self.put_group(group.group, record);
        self.mark(&Key::SessionGroup(session, group.group));
        Ok(group)
    }

    /// The record of a group, to be used or changed: an error if only a newer program knows its kind.
    pub fn group(&self, group: GroupId) -> Result<GroupRecord> {
        let record = self.group_of_any_kind(group)?;
        if record.is_newer() {
            let GroupRecord { kind, data, parity, .. } = record;
            let text = format!("group {group} is of kind {kind} with {data} data and {parity} parity columns");
            return Err(newer(text, self.least));
        }
        Ok(record)
    }

    /// The record of a group, to be looked at.
    pub fn group_of_any_kind(&self, group: GroupId) -> Result<GroupRecord> {
        self.layers.record(&Key::Group(group))?.ok_or_else(|| missing(&format!("the record of group {group}")))
    }

    /// Does `Create`.
    pub fn create(
        &mut self,
        session: SessionId,
        path: &Path,
        overwrite: bool,
        parents: bool,
        (new, replicas_max): (&NewInode, usize),
    ) -> Result<Reply> {
        check_new(new)?;
        let (directory, name) = self.vacate(path, overwrite, parents.then_some(new))?;
        let inode = self.next_inode();
        let wish = placement::wish(None, new.copies, directory.policy.replicas, || self.devices.nodes());
        let policy = Policy { replicas: wish.replicas, ..directory.policy };
        let group = self.allocate_for_file(policy, None, (usize::MAX, replicas_max), &Refused::default())?;
        let writer = WriterRecord {
            session: session.to_bytes().to_vec(),
            group: group.group.0,
            policy: Some(convert::policy_record(policy)),
            holder: new.holder.clone(),
            ..WriterRecord::default()
        };
        let record = InodeRecord { writer: Some(writer), ..self.new_inode(&directory, name, new, false)? };
        self.charge(directory.inode, name, Load::NAME)?;
        self.counters.files += 1;
        self.put_name(directory.inode, name, &NameRecord { inode: inode.0, directory: false }, new.copied)?;
        self.put(&Key::Inode(inode), &record);
        self.mark(&Key::SessionFile(session, inode));
        self.heard_of(&new.holder);
        let generation = Generation(record.generation);
        let limited = self.is_limited(directory.inode)?;
        let attributes = record.attributes(inode);
        let compression = directory.policy.compression.unwrap_or_default();
        Ok(Reply::Handle(FileHandle {
            inode,
            generation,
            length: 0,
            group,
            attributes,
            limited,
            compression,
            lost: false,
        }))
    }

    /// Who opens a file is heard of: its gateway tells that only some time later, and by then another one could take the file from a
    /// holder that did nothing for a while before.
    fn heard_of(&mut self, holder: &str) {
        if !holder.is_empty() {
            self.holders.hear(holder, self.now);
        }
    }

    /// Does `AppendOpen`.
    pub fn append_open(
        &mut self,
        session: SessionId,
        file: &FileRef,
        holder: &str,
        (began, at): (Option<Began>, Option<Generation>),
        replicas_max: usize,
    ) -> Result<Reply> {
        check_holder(holder)?;
        let path = match file {
            FileRef::Path(path) => path.clone(),
            // Its name is looked up in the same step: no rename comes in between.
            FileRef::Inode(inode) => Path::parse(&self.path_of(*inode)?.ok_or_else(|| gone(*inode))?)?,
        };
        let Found { inode, mut record, policy } = self.find_file(&path)?;
        // Whoever goes on with a file has it still: it was not taken from him since, and he has not closed it.
        let is_its = |kept: &KeptRecord| kept.holder == holder;
        if at.is_some_and(|at| at.0 != record.generation || !record.is_kept().is_some_and(is_its)) {
            return Err(stale(inode));
        }
        let before = Taken::of(&record);
        if self.planted == Some(Planted::LateCallTakesFile) {
            self.take_as_empty(inode, &mut record, holder)?;
        }
        if let Some(writer) = &record.writer {
            let who = if writer.ended { "is being recovered after its writer went away" } else { "has a writer" };
            return Err(Error::new(ErrorKind::Busy, format!("'{path}' {who}; nothing was done: try again later")));
        }
        let above = self.wish_above(&path)?;
        let wish = self.wish_of(&record, above);
        let policy = Policy { replicas: wish.replicas, ..policy };
        let group = self.allocate_for_file(policy, None, (usize::MAX, replicas_max), &Refused::default())?;
        record.generation = record.generation.saturating_add(1);
        record.kept = None;
        let here = Began { length: record.length, generation: record.generation };
        let Began { length: began_length, generation: began_generation } = began
            .filter(|before| before.length <= here.length && (1..here.generation).contains(&before.generation))
            .unwrap_or(here);
        record.writer = Some(WriterRecord {
            session: session.to_bytes().to_vec(),
            group: group.group.0,
            start: record.length,
            began_length,
            began_generation,
            appending: true,
            holder: holder.to_string(),
            policy: Some(convert::policy_record(policy)),
            ..WriterRecord::default()
        });
        self.put_file_anyway(inode, &record, before)?;
        self.mark(&Key::SessionFile(session, inode));
        if record.copies != record.counted_as(wish) {
            // An older program noted what was asked for as if it were how often the file counts. All of it follows what holds now.
            self.rewant(inode, false);
        }
        self.heard_of(holder);
        let (generation, length) = (Generation(record.generation), record.length);
        let limited = self.is_limited(InodeId(record.parent))?;
        let attributes = record.attributes(inode);
        let compression = policy.compression.unwrap_or_default();
        Ok(Reply::Handle(FileHandle {
            inode,
            generation,
            length,
            group,
            attributes,
            limited,
            compression,
            lost: false,
        }))
    }

    /// What `Planted::LateCallTakesFile` does.
    fn take_as_empty(&mut self, inode: InodeId, record: &mut InodeRecord, holder: &str) -> Result<()> {
        let is_its = |writer: &WriterRecord| {
            !holder.is_empty() && !writer.ended && (writer.holder.as_str(), writer.length) == (holder, 0)
        };
        let Some(writer) = record.writer.take_if(|writer| is_its(writer)) else { return Ok(()) };
        if let Some(session) = SessionId::from_slice(&writer.session) {
            self.remove(&Key::SessionFile(session, inode));
        }
        self.drop_reference(GroupId(writer.group), None)
    }

    /// The record and the lease of a file, if this session has it with this generation, and what the file takes.
    fn leased(
        &self,
        session: SessionId,
        inode: InodeId,
        generation: Generation,
    ) -> Result<(InodeRecord, WriterRecord, Taken)> {
        let mut record: InodeRecord = self.layers.record(&Key::Inode(inode))?.ok_or_else(|| gone(inode))?;
        let before = Taken::of(&record);
        match record.writer.take() {
            Some(writer) if self.planted == Some(Planted::OldGenerationAccepted) => Ok((record, writer, before)),
            Some(writer)
                if record.generation == generation.0 && !writer.ended && writer.session == session.to_bytes() =>
            {
                Ok((record, writer, before))
            }
            _ => Err(stale(inode)),
        }
    }

    /// Does `SyncLength`.
    pub fn sync_length(
        &mut self,
        session: SessionId,
        inode: InodeId,
        generation: Generation,
        open: (GroupId, u64),
    ) -> Result<Reply> {
        let (mut record, mut writer, before) = self.leased(session, inode, generation)?;
        self.set_open_length(&mut record, &mut writer, open)?;
        record.writer = Some(writer);
        record.modified = self.wall.0;
        // These bytes are written, and synced: that they are too many is said where the group ends.
        self.put_file_anyway(inode, &record, before)?;
        Ok(Reply::Done)
    }

    /// Does `Reserve`.
    pub fn reserve(
        &mut self,
        session: SessionId,
        inode: InodeId,
        generation: Generation,
        length: u64,
    ) -> Result<Reply> {
        let (mut record, mut writer, before) = self.leased(session, inode, generation)?;
        writer.reserved = length;
        record.writer = Some(writer);
        self.put_file(inode, &record, before)?;
        Ok(Reply::Done)
    }

    /// Does `BeginBlock`.
    pub fn begin_block(
        &mut self,
        session: SessionId,
        inode: InodeId,
        generation: Generation,
        (base, number): (u64, u32),
    ) -> Result<Reply> {
        let (mut record, mut writer, before) = self.leased(session, inode, generation)?;
        (writer.block_base, writer.block_number) = (base, number);
        record.writer = Some(writer);
        self.put_file(inode, &record, before)?;
        Ok(Reply::Done)
    }

    /// Does `NextGroup`.
    pub fn next_group_of(
        &mut self,
        session: SessionId,
        inode: InodeId,
        generation: Generation,
        finished: (GroupId, u64),
        most: (usize, usize),
        refused: &Refused,
    ) -> Result<Reply> {
        let (mut record, mut writer, before) = self.leased(session, inode, generation)?;
        self.set_open_length(&mut record, &mut writer, finished)?;
        let ended = self.group(finished.0)?;
        self.check_outlives(&writer, &ended, refused)?;
        self.finish_group(inode, &writer, &refused.short)?;
        if refused.devices().next().is_some() || !refused.short.is_empty() {
            self.drop_rest(&writer, &ended, refused.gone.is_empty());
        }
        let (policy, columns) = (convert::policy(writer.policy), Some(ended.columns.len()));
        let group = self.allocate_for_file(policy, columns, most, refused)?;
        writer.group = group.group.0;
        writer.start = record.length;
        writer.length = 0;
        record.writer = Some(writer);
        record.modified = self.wall.0;
        self.put_file(inode, &record, before)?;
        Ok(Reply::Group(group))
    }

    /// Does `Close`. `attributes`: modification time and mode to record.
    pub fn close(
        &mut self,
        session: SessionId,
        inode: InodeId,
        generation: Generation,
        finished: Option<(GroupId, u64)>,
        attributes: (Option<WallTime>, Option<u32>),
    ) -> Result<Reply> {
        let (mut record, mut writer, before) = self.leased(session, inode, generation)?;
        if let Some(finished) = finished {
            self.set_open_length(&mut record, &mut writer, finished)?;
        }
        if writer.length == 0 {
            // Its writer has no bytes in it, so there is no chunk; should there be one all the same, the sweep finds it.
            self.remove_group(GroupId(writer.group))?;
        } else {
            self.finish_group(inode, &writer, &[])?;
        }
        self.remove(&Key::SessionFile(session, inode));
        record.modified = attributes.0.unwrap_or(self.wall).0;
        // Bits are given by whoever made the file. Who goes on with somebody else's may write to it, which gives him no right to these.
        if let Some(mode) = attributes.1.filter(|mode| !writer.appending && *mode != record.mode) {
            check_mode(mode)?;
            record.mode = mode;
            record.version = record.version.saturating_add(1);
        }
        self.put_file(inode, &record, before)?;
        Ok(Reply::Attributes(record.attributes(inode)))
    }

    /// Does `Abandon`.
    pub fn abandon(&mut self, session: SessionId, inode: InodeId, generation: Generation) -> Result<Reply> {
        let (mut record, writer, before) = self.leased(session, inode, generation)?;
        if writer.appending {
            record.length = writer.start;
            self.drop_reference(GroupId(writer.group), None)?;
            self.remove(&Key::SessionFile(session, inode));
            self.put_file_anyway(inode, &record, before)?;
        } else {
            let parent = InodeId(record.parent);
            let name = Key::Name(parent, &record.name);
            // The name may be gone already, or stand for something newer, if somebody deleted the directory above.
            if self.layers.record::<NameRecord>(&name)?.is_some_and(|found| found.inode == inode.0) {
                self.remove_name(parent, &record.name)?;
            }
            record.writer = Some(writer);
            self.detach(inode, record)?;
        }
        Ok(Reply::Done)
    }

    /// What chunks of a group that ended early have behind its end is garbage: other columns and replicas may be ahead of the one that took no
    /// more, and a device that cannot be reached may have taken what it did not answer. `ended`: as it was before.
    fn drop_rest(&mut self, writer: &WriterRecord, ended: &GroupRecord, is_sealed: bool) {
        let several = ended.columns.len() > 1 || ended.columns[0].replicas.len() > 1;
        if writer.length > 0 && (!is_sealed || several) {
            let from = if self.planted == Some(Planted::EarlyEndDropsAll) { 0 } else { writer.length };
            self.put(&Key::GarbageRange(GroupId(writer.group), from), &RangeRecord { length: u64::MAX - from });
        }
    }

    /// Whether what was synced on devices that are gone is still there when they come back, where no other replica has it. What was in memory
    /// need not be, and the writer has let go of it.
    fn check_outlives(&self, writer: &WriterRecord, ended: &GroupRecord, refused: &Refused) -> Result<()> {
        if writer.length == 0 || refused.gone.is_empty() {
            return Ok(());
        }
        let mut ended = ended.clone();
        strike_short(&mut ended, &refused.short);
        let layout = convert::placed(GroupId(writer.group), &ended)?.layout;
        let forgets = |device: DeviceId| self.class_of(device).is_none_or(|class| class == Class::Memory);
        let is_lost = |device: DeviceId| refused.gone.contains(&device) && forgets(device);
        match layout.columns().iter().find(|column| column.devices().all(is_lost)).map(Column::head) {
            None => Ok(()),
            Some(device) => Err(Error::new(
                ErrorKind::Io,
                format!(
                    "bytes {} to {} of the file may be lost: device {device}, which is gone, was memory or is not known any more; \
                     what is behind them was not written: write the file anew",
                    writer.start,
                    writer.start.saturating_add(writer.length)
                ),
            )),
        }
    }

    /// The fenced chunks of a group that never had a byte stay for as long as its writer's session, or the file: without them a first append
    /// that comes late would make them anew, and be acknowledged. One replica of each is enough, for its writer needs all of them: the others would
    /// be in the way of drains, and of devices that were given up and come back. `unfenced`: those that may take appends yet.
    fn keep_fence(
        &mut self,
        record: &mut InodeRecord,
        writer: &WriterRecord,
        unfenced: &[(ChunkId, DeviceId)],
    ) -> Result<()> {
        let group = GroupId(writer.group);
        let Some(session) = SessionId::from_slice(&writer.session).filter(|session| self.sessions.is_open(*session))
        else {
            return Ok(());
        };
        let mut kept = GroupRecord { session: writer.session.clone(), ..self.group(group)? };
        strike_short(&mut kept, unfenced);
        for column in &mut kept.columns {
            let counts = |device: &[u8]| DeviceId::from_slice(device).is_some_and(|device| self.devices.counts(device));
            column.replicas.sort_by_key(|replica| !counts(&replica.device));
            column.replicas.truncate(1);
        }
        self.put_group(group, kept);
        self.mark(&Key::SessionGroup(session, group));
        if record.fenced.len() == FENCED_MAX {
            record.fenced.remove(0);
        }
        record.fenced.push(group.0);
        Ok(())
    }

    /// A file goes: whoever appends to it does no harm.
    pub fn give_up_fences(&mut self, record: &mut InodeRecord) -> Result<()> {
        for group in std::mem::take(&mut record.fenced) {
            let kept = self.layers.record::<GroupRecord>(&Key::Group(GroupId(group)))?;
            if let Some(session) = kept.and_then(|kept| SessionId::from_slice(&kept.session)) {
                self.give_up_pack(session, GroupId(group))?;
            }
        }
        Ok(())
    }

    /// Notes how many bytes of the file the writer's group holds.
    fn set_open_length(
        &self,
        record: &mut InodeRecord,
        writer: &mut WriterRecord,
        (group, length): (GroupId, u64),
    ) -> Result<()> {
        let wrong = |why: String| Err(Error::new(ErrorKind::Invalid, format!("{why}; the file was not changed")));
        if group.0 != writer.group {
            return wrong(format!("group {group} is not the one being written, which is {}", writer.group));
        }
        if length < writer.length {
            return wrong(format!("group {group} had {} synced bytes and cannot have {length}", writer.length));
        }
        // The first column is the longest.
        let stripe = convert::placed(group, &self.group(group)?)?.layout.stripe();
        if stripe.column_length(length, 0) > CHUNK_MAX {
            return wrong(format!("group {group} cannot have {length} bytes, {CHUNK_MAX} are the most in a column"));
        }
        let Some(end) = writer.start.checked_add(length) else {
            return wrong("the file would be longer than 2^64 bytes".to_string());
        };
        writer.length = length;
        record.length = end;
        Ok(())
    }

    /// Makes the writer's open bytes an extent, whose reference the writer's becomes. `short`: replicas that do not have them all.
    fn finish_group(&mut self, inode: InodeId, writer: &WriterRecord, short: &[(ChunkId, DeviceId)]) -> Result<()> {
        let group = GroupId(writer.group);
        if writer.length == 0 {
            return self.drop_reference(group, None);
        }
        let mut record = GroupRecord { length: writer.length, open: false, ..self.group(group)? };
        match self.planted {
            Some(Planted::LastReplicaStruck) => strike_all(&mut record, short),
            _ => strike_short(&mut record, short),
        }
        record.columns.iter_mut().flat_map(|column| &mut column.replicas).for_each(|replica| replica.start = 0);
        // What was given up while it was written was passed over then.
        self.strike(&mut record);
        self.put_group(group, record);
        let extent = ExtentRecord {
            start: writer.start,
            group: writer.group,
            group_offset: 0,
            length: writer.length,
            crc: None,
        };
        self.put(&Key::Extent(inode, writer.start.saturating_add(writer.length)), &extent);
        Ok(())
    }

    /// The session that writes the file has ended: nobody may write under the old generation, and the group has to be sealed.
    pub fn orphan(&mut self, session: SessionId, inode: InodeId) -> Result<()> {
        self.remove(&Key::SessionFile(session, inode));
        let Some(mut record) = self.layers.record::<InodeRecord>(&Key::Inode(inode))? else { return Ok(()) };
        let Some(writer) = &mut record.writer else { return Ok(()) };
        writer.ended = true;
        record.generation = record.generation.saturating_add(1);
        self.put(&Key::Inode(inode), &record);
        self.mark(&Key::Orphan(inode));
        Ok(())
    }

    /// Does `Fence`.
    pub fn fence(
        &mut self,
        asker: SessionId,
        inode: InodeId,
        (only_gone, for_holder): (bool, bool),
        generation: Option<Generation>,
    ) -> Result<Reply> {
        let mut record: InodeRecord = self.layers.record(&Key::Inode(inode))?.ok_or_else(|| gone(inode))?;
        if record.directory || record.parent == 0 {
            return Err(gone(inode));
        }
        // Who asks for what a writer that is gone left has not taken it yet: opening it does.
        let releases = !for_holder && !only_gone;
        let Some(writer) = &record.writer else {
            // Who asks may have looked before its writer was ended, which raised the generation by one.
            let is_of_earlier = |at: Generation| at.0 > record.generation || record.generation - at.0 > 1;
            if releases && !generation.is_some_and(is_of_earlier) && record.kept.take().is_some() {
                self.put(&Key::Inode(inode), &record);
            }
            return Ok(Reply::Attributes(record.attributes(inode)));
        };
        // Fencing raises the generation by one: what was fenced and not closed is still that writer's, for who looked before and for
        // who has looked since.
        let fenced = u64::from(writer.ended);
        if generation.is_some_and(|at| at.0 > record.generation || record.generation - at.0 > fenced) {
            return Err(stale(inode));
        }
        let session = SessionId::from_slice(&writer.session).ok_or_else(|| missing("a writer's session"))?;
        if !writer.ended {
            if only_gone && session != asker && self.sessions.is_open(session) {
                let text = format!(
                    "file number {inode} has a writer, session {session}; nothing was done: try again when it is closed"
                );
                return Err(Error::new(ErrorKind::Busy, text));
            }
            self.orphan(session, inode)?;
        }
        if releases {
            self.release(inode)?;
        }
        Ok(Reply::Orphans(vec![self.orphan_of(inode)?]))
    }

    /// The holder of a file whose writer is fenced may not go on with it.
    fn release(&mut self, inode: InodeId) -> Result<()> {
        let Some(mut record) = self.layers.record::<InodeRecord>(&Key::Inode(inode))? else { return Ok(()) };
        let Some(writer) = record.writer.as_mut().filter(|writer| !writer.released) else { return Ok(()) };
        writer.released = true;
        self.put(&Key::Inode(inode), &record);
        Ok(())
    }

    /// Answers `FenceList`.
    pub fn fence_list(&mut self, after: Option<InodeId>, limit: usize) -> Result<Reply> {
        let mut orphans = Vec::new();
        let (inodes, resume) =
            self.numbers_from(|inode| Key::Orphan(InodeId(inode)), after.map(|after| after.0), limit)?;
        for inode in inodes {
            match self.orphan_of(InodeId(inode)) {
                // A newer program seals it.
                Err(error) if error.kind() == ErrorKind::Unsupported => {}
                orphan => orphans.push(orphan?),
            }
        }
        Ok(Reply::FenceList { orphans, resume: resume.map(InodeId) })
    }

    /// What the node has to end of a file whose writer went away.
    pub fn orphan_of(&self, inode: InodeId) -> Result<Orphan> {
        let record: InodeRecord =
            self.layers.record(&Key::Inode(inode))?.ok_or_else(|| missing("an orphan's record"))?;
        let writer = record.writer.ok_or_else(|| missing("an orphan's writer"))?;
        let (group, generation) = (GroupId(writer.group), Generation(record.generation));
        let placed = self.group(group)?;
        let starts = placed.columns.iter().flat_map(|column| &column.replicas).map(|replica| replica.start).collect();
        let group = convert::placed(group, &placed)?;
        Ok(Orphan { inode, generation, group, starts, start: writer.start, length: writer.length })
    }

    /// Does `Recovered`.
    pub fn recovered(
        &mut self,
        inode: InodeId,
        generation: Generation,
        length: u64,
        without: &[(ChunkId, DeviceId)],
    ) -> Result<Reply> {
        let mut record: InodeRecord = self.layers.record(&Key::Inode(inode))?.ok_or_else(|| gone(inode))?;
        let before = Taken::of(&record);
        match record.writer.take() {
            Some(mut writer) if writer.ended && record.generation == generation.0 => {
                // Where its devices have less than was recorded as synced, the file keeps its length: reading what is missing is an
                // error that says so, and a shorter file would be a loss that nobody sees.
                let length = length.max(writer.length);
                let group = GroupId(writer.group);
                self.set_open_length(&mut record, &mut writer, (group, length))?;
                if length == 0 && self.planted != Some(Planted::FenceForgotten) {
                    self.keep_fence(&mut record, &writer, without)?;
                }
                let ended = self.group(group)?;
                self.finish_group(inode, &writer, without)?;
                self.drop_rest(&writer, &ended, true);
                self.remove(&Key::Orphan(inode));
                let kept = KeptRecord { generation: generation.0, ..kept(&writer) };
                record.kept = (!kept.holder.is_empty()).then_some(kept);
                self.put_file_anyway(inode, &record, before)?;
                Ok(Reply::Attributes(record.attributes(inode)))
            }
            _ => Err(stale(inode)),
        }
    }
}

/// Names these replicas of a group no more, where others of the same chunk stay named.
fn strike_short(record: &mut GroupRecord, short: &[(ChunkId, DeviceId)]) {
    for column in &mut record.columns {
        if column.replicas.iter().any(|replica| !is_one_of(replica, short)) {
            column.replicas.retain(|replica| !is_one_of(replica, short));
        }
    }
}

/// What `Planted::LastReplicaStruck` does.
fn strike_all(record: &mut GroupRecord, short: &[(ChunkId, DeviceId)]) {
    record.columns.iter_mut().for_each(|column| column.replicas.retain(|replica| !is_one_of(replica, short)));
}

fn is_one_of(replica: &ReplicaRecord, short: &[(ChunkId, DeviceId)]) -> bool {
    short.iter().any(|(chunk, device)| replica.chunk == chunk.to_bytes() && replica.device == device.to_bytes())
}

fn stale(inode: InodeId) -> Error {
    Error::new(
        ErrorKind::Stale,
        format!("this lease of file number {inode} has ended; what was synced is kept: open the file again"),
    )
}

//! The state and its transactions: what a request reads and changes, kept whole or taken back whole.

use crate::access::Asker;
use crate::devices::Devices;
use crate::floors::Floors;
use crate::format::{self, CountersRecord, InodeRecord, NameRecord, SEQUENCE_MAX};
use crate::holders::Holders;
use crate::key::Key;
use crate::layers::{Layers, Slot};
use crate::names::Directory;
use crate::nodes::Nodes;
use crate::quota::{self, Load, Taken};
use crate::request::Asked;
use crate::sessions::Sessions;
use crate::slots::Slots;
use crate::widen::Widths;
use base::env::Random;
use base::error::{Error, ErrorKind, Result};
use base::id::{BagId, GroupId, InodeId};
use base::limit::{FORGOTTEN_CLIENTS_MAX, LIST_PAGE_MAX, REMEMBERED_ANSWERS, REMEMBERED_CALLS};
use base::planted::Planted;
use base::unit::{Time, WallTime};
use base::version::ProgramVersion;
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a key of the overlay had before the transaction under way changed it.
type Undo = (Vec<u8>, Option<Slot>);

/// Everything that requests read and change. The rules about it are in the files of their subjects.
pub struct State {
    /// The ordered state.
    pub layers: Layers,
    /// The next ids and the totals, with what the transaction under way did.
    pub counters: CountersRecord,
    /// Sessions that are open, and their calls.
    pub sessions: Sessions,
    /// Which calls of gateways' clients are remembered.
    pub answers: Slots<Asked>,
    /// Up to which numbers answers to such clients were forgotten.
    pub floors: Floors,
    /// The call whose answer the transaction under way remembers.
    pub answering: Option<Asked>,
    /// What devices reported.
    pub devices: Devices,
    /// Nodes, and when they were heard of.
    pub nodes: Nodes,
    /// When holders of files were heard of.
    pub holders: Holders,
    /// Directories looked up lately, by their text.
    pub directories: BTreeMap<String, Directory>,
    /// The version of the directories that lookups are told.
    /// Drawn when somebody looks first, so that it is another one after each start; zero before.
    directories_version: u64,
    /// Draws chunk ids and places.
    pub random: Arc<dyn Random>,
    /// The moment of the request under way.
    pub now: Time,
    /// The same moment on the calendar.
    pub wall: WallTime,
    /// Who makes the current request.
    pub asker: Asker,
    /// The user who may do everything, and owns what nobody claimed: whoever runs the node.
    pub superuser: String,
    /// How wide files become.
    pub widths: Widths,
    /// Answers that are remembered for one session at the most.
    pub remembered_max: usize,
    /// Entries, extents, groups and the like in one page of an answer at the most.
    pub page_max: usize,
    /// A fault put in on purpose, by the simulation alone.
    pub planted: Option<Planted>,
    /// Something is being taken apart in steps.
    pub collecting: bool,
    /// Something is being counted for a quota in steps.
    pub counting: bool,
    /// What is on devices that do not count any more is being looked through in steps.
    pub recounting: bool,
    /// Something is being gone through because its wish for copies changed.
    pub rewanting: bool,
    /// What has a lower number had its turn in this round.
    pub rewant_from: InodeId,
    /// The last that was damaged and passed over there since somebody asked.
    pub passed_over: Option<Error>,
    /// Which quotas something in a directory counts against.
    pub quotas_known: quota::Known,
    /// Something was put on a list that the node works off: garbage, or a file whose writer went away.
    pub made_work: bool,
    /// No group with a lower number is garbage.
    pub garbage_from: GroupId,
    /// What is being taken apart and has a lower number is for a newer program.
    pub collect_from: InodeId,
    /// The directory that is being taken apart and the last name that went: thousands of removals that are not merged yet lie before the
    /// next one, and would be passed over with each step. Nothing relies on it; none begins with the first name.
    pub collect_after: Option<(InodeId, String)>,
    /// `MergedRecord::least`.
    pub least: ProgramVersion,
    sequence: u64,
    entry_max: usize,
    merged_counters: CountersRecord,
    undo: Vec<Undo>,
}

/// A point in a transaction to which it can be taken back.
pub struct Savepoint {
    undo: usize,
    counters: CountersRecord,
}

impl State {
    /// The state in these layers, whose last change has this sequence number. `entry_max` bounds the bytes of a transaction.
    pub fn new(layers: Layers, sequence: u64, entry_max: usize, random: Arc<dyn Random>) -> Result<State> {
        let counters = layers.record::<CountersRecord>(&Key::Counters)?.ok_or_else(|| missing("the counters"))?;
        let CountersRecord { next_inode, next_group, next_bag, files, directories, epoch, quotas, .. } = counters;
        let CountersRecord { one_left, fewer, none_left, .. } = counters;
        if [next_inode, next_group, next_bag, files, directories, epoch, quotas, one_left, fewer, none_left]
            .into_iter()
            .any(|count| count > SEQUENCE_MAX)
        {
            return Err(missing("believable counters"));
        }
        Ok(State {
            layers,
            counters,
            sessions: Sessions::default(),
            answers: Slots::new(REMEMBERED_ANSWERS),
            floors: Floors::new(FORGOTTEN_CLIENTS_MAX),
            answering: None,
            devices: Devices::default(),
            nodes: Nodes::default(),
            holders: Holders::default(),
            directories: BTreeMap::new(),
            directories_version: 0,
            random,
            now: Time::ZERO,
            wall: WallTime(0),
            asker: Asker::default(),
            superuser: String::new(),
            widths: Widths::default(),
            remembered_max: REMEMBERED_CALLS,
            page_max: LIST_PAGE_MAX,
            planted: None,
            collecting: true,
            counting: true,
            recounting: true,
            rewanting: true,
            rewant_from: InodeId(0),
            passed_over: None,
            quotas_known: quota::Known::new(),
            made_work: true,
            garbage_from: GroupId(0),
            collect_from: InodeId(0),
            collect_after: None,
            least: ProgramVersion::default(),
            sequence,
            entry_max,
            merged_counters: counters,
            undo: Vec::new(),
        })
    }

    /// How much a page holds for an asker who wants at most so many.
    pub fn page(&self, limit: usize) -> usize {
        limit.clamp(1, self.page_max.max(1))
    }

    /// Sequence number of the last transaction.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The layers have what others changed, up to the transaction with this number.
    pub fn follow(&mut self, sequence: u64) {
        assert!(self.undo.is_empty(), "what others changed comes between transactions");
        self.sequence = sequence;
    }

    /// Puts a record under a key, in the transaction under way.
    pub fn put(&mut self, key: &Key<'_>, record: &impl Message) {
        self.made_work |= key.is_work();
        self.change(key.encode(), Some(record.encode_to_vec()));
    }

    /// Marks a key that has no record, in the transaction under way.
    pub fn mark(&mut self, key: &Key<'_>) {
        self.made_work |= key.is_work();
        if let Key::GarbageGroup(group) = key {
            self.garbage_from = self.garbage_from.min(*group);
        }
        self.change(key.encode(), Some(Vec::new()));
    }

    /// Removes a key, in the transaction under way.
    pub fn remove(&mut self, key: &Key<'_>) {
        self.change(key.encode(), None);
    }

    fn change(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        let before = self.layers.change(key.clone(), Slot { sequence: self.sequence + 1, value });
        self.undo.push((key, before));
    }

    /// A point to come back to.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint { undo: self.undo.len(), counters: self.counters }
    }

    /// Takes back what the transaction did since the savepoint.
    pub fn take_back(&mut self, savepoint: &Savepoint) {
        let changed = self.undo.len() > savepoint.undo;
        while self.undo.len() > savepoint.undo
            && let Some((key, before)) = self.undo.pop()
        {
            self.layers.restore(key, before);
        }
        self.counters = savepoint.counters;
        if changed {
            self.collect_after = None;
            self.directories.clear();
            self.quotas_known.clear();
        }
    }

    /// Takes back the whole transaction.
    pub fn roll_back(&mut self) {
        self.answering = None;
        self.take_back(&Savepoint { undo: 0, counters: self.merged_counters });
    }

    /// Ends the transaction: its log entry, or none if it changed nothing. One that is too large is taken back.
    pub fn commit(&mut self) -> Result<Option<Vec<u8>>> {
        if self.undo.is_empty() {
            return Ok(None);
        }
        if self.counters != self.merged_counters {
            let counters = self.counters;
            self.put(&Key::Counters, &counters);
        }
        let sequence = self.sequence + 1;
        let mut entry = Vec::with_capacity(64 * self.undo.len());
        let is_first = |before: &Option<Slot>| before.as_ref().is_none_or(|slot| slot.sequence != sequence);
        let changes = self.undo.iter().filter(|(_, before)| is_first(before)).count();
        format::begin_entry(&mut entry, sequence, changes as u32);
        for (key, before) in &self.undo {
            if is_first(before)
                && let Some(slot) = self.layers.overlay_slot(key)
            {
                format::add_change(&mut entry, key, slot.value.as_deref());
            }
        }
        if entry.len() > self.entry_max {
            let size = entry.len();
            self.roll_back();
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "the change takes {size} bytes of log and {} are the most; nothing was changed: do less at once",
                    self.entry_max
                ),
            ));
        }
        self.undo.clear();
        self.sequence = sequence;
        self.merged_counters = self.counters;
        Ok(Some(entry))
    }

    /// A directory changed in its name, its place, its rights or by going: what was looked up before is not to be relied on.
    pub fn directories_changed(&mut self) {
        self.directories.clear();
        self.quotas_known.clear();
        if self.directories_version != 0 {
            self.directories_version = self.directories_version.wrapping_add(1).max(1);
        }
    }

    /// The version of the directories: another one as soon as one was changed as `directories_changed` says.
    pub fn directories_version(&mut self) -> u64 {
        if self.directories_version == 0 {
            self.directories_version = self.random.next().max(1);
        }
        self.directories_version
    }

    /// Refuses unless no directory has changed since the asker looked.
    pub fn check_directories(&self, version: u64) -> Result<()> {
        if version == self.directories_version && version != 0 {
            return Ok(());
        }
        let text = "directories have changed since they were looked up; nothing was done: look again";
        Err(Error::new(ErrorKind::Stale, text))
    }

    /// A number for a new file or directory.
    pub fn next_inode(&mut self) -> InodeId {
        self.counters.next_inode += 1;
        InodeId(self.counters.next_inode - 1)
    }

    /// A number for a new group.
    pub fn next_group(&mut self) -> GroupId {
        self.counters.next_group += 1;
        GroupId(self.counters.next_group - 1)
    }

    /// A number for a new bag.
    pub fn next_bag(&mut self) -> BagId {
        self.counters.next_bag += 1;
        BagId(self.counters.next_bag - 1)
    }

    /// The file or directory that a name record speaks of.
    pub fn named_inode(&self, name: &NameRecord) -> Result<InodeRecord> {
        let inode = InodeId(name.inode);
        self.layers.record(&Key::Inode(inode))?.ok_or_else(|| missing(&format!("the record of inode {inode}")))
    }

    /// Puts a changed file record, which took `before`. `OverQuota` if it takes more than a quota allows.
    pub fn put_file(&mut self, inode: InodeId, record: &InodeRecord, before: Taken) -> Result<()> {
        self.charge(InodeId(record.parent), &record.name, Load::bytes(Taken::of(record).space - before.space))?;
        self.put_counted(inode, record, before);
        Ok(())
    }

    /// The same for what was written already: no quota refuses it.
    pub fn put_file_anyway(&mut self, inode: InodeId, record: &InodeRecord, before: Taken) -> Result<()> {
        self.charge_anyway(InodeId(record.parent), &record.name, Load::bytes(Taken::of(record).space - before.space))?;
        self.put_counted(inode, record, before);
        Ok(())
    }

    /// The same for what counts against no quota any more.
    pub fn put_counted(&mut self, inode: InodeId, record: &InodeRecord, before: Taken) {
        self.counters.bytes = self.counters.bytes.saturating_sub(before.length).saturating_add(record.length);
        self.put(&Key::Inode(inode), record);
    }
}

/// The error for something that the rules say must be there.
pub fn missing(what: &str) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("the metadata lacks {what}; nothing was changed: keep the files and report this"),
    )
}

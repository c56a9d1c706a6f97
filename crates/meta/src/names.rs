//! Names: finding, listing, making directories, renaming, deleting.

use crate::access::InodeRights;
use crate::acl::has_list;
use crate::attributes::{check_new, check_room, check_user_name, room};
use crate::convert;
use crate::format::{FIRST_GENERATION, InodeRecord, NameRecord};
use crate::key::{Key, after_prefix};
use crate::locate::Groups;
use crate::path::Path;
use crate::quota::Load;
use crate::reply::Reply;
use crate::request::{Entry, NewInode};
use crate::state::State;
use base::acl::{self, Acl};
use base::attributes::Attributes;
use base::error::{Error, ErrorKind, Result};
use base::id::{InodeId, ROOT};
use base::limit::{ATTRIBUTES_MAX, LIST_PAGE_BYTES, LOCATED_PAGE_MAX, PATH_DEPTH_MAX};
use base::policy::Policy;
use std::sync::Arc;

/// A page of a listing that is being filled.
#[derive(Default)]
struct Page {
    /// Names that there is still room for; another directory takes that of one more.
    room: usize,
    /// Where the bytes of files are is wanted, too.
    located: bool,
    /// Bytes that its entries take on the wire, estimated from above.
    bytes: usize,
    /// The groups of its extents.
    groups: Groups,
    /// Files whose bytes were looked for.
    looked: usize,
}

/// A directory that was looked up.
#[derive(Clone, Debug)]
pub struct Directory {
    /// Which.
    pub inode: InodeId,
    /// Its effective wishes.
    pub policy: Policy,
    /// What decides who may do what with it.
    pub rights: Arc<InodeRights>,
    /// The newest change that the lookup met.
    observed: u64,
}

/// Something that has a name.
pub struct Found {
    /// Which.
    pub inode: InodeId,
    /// What it is.
    pub record: InodeRecord,
    /// Its effective wishes.
    pub policy: Policy,
}

/// Directories remembered by text. Beyond that all are forgotten: cheaper than knowing which was used last.
const DIRECTORIES_MAX: usize = 4096;

/// Where a name begins in the bytes of `Key::Name`.
const NAME_AT: usize = 9;

impl State {
    /// The directory with this text (`Path::text`).
    pub fn directory(&mut self, text: &str) -> Result<Directory> {
        if let Some(directory) = self.directories.get(text) {
            self.layers.observe(directory.observed);
            return Ok(directory.clone());
        }
        let (inode, above) = match text.rsplit_once('/') {
            None => (ROOT, Policy::default()),
            Some((parent, name)) => {
                let parent = self.directory(parent)?;
                match self.layers.record::<NameRecord>(&Key::Name(parent.inode, name))? {
                    None => return Err(not_found(text)),
                    Some(found) if !found.directory => return Err(not_a_directory(text)),
                    Some(found) => (InodeId(found.inode), parent.policy),
                }
            }
        };
        let record = self.named_inode(&NameRecord { inode: inode.0, directory: true })?;
        let policy = convert::policy(record.policy).over(above);
        Ok(self.remember_directory(text, inode, policy, &record))
    }

    fn remember_directory(&mut self, text: &str, inode: InodeId, policy: Policy, record: &InodeRecord) -> Directory {
        let (rights, observed) = (Arc::new(self.rights_of(record)), self.layers.observed());
        let directory = Directory { inode, policy, rights, observed };
        if self.directories.len() >= DIRECTORIES_MAX {
            self.directories.clear();
        }
        self.directories.insert(text.to_string(), directory.clone());
        directory
    }

    /// The directory with this text, made if it is missing, with those above it as `new` says for these.
    pub fn make_directory(&mut self, text: &str, new: &NewInode) -> Result<Directory> {
        if self.directories.contains_key(text) {
            return self.directory(text);
        }
        let Some((parent, name)) = text.rsplit_once('/') else { return self.directory(text) };
        let parent = self.make_above(parent, new)?;
        if self.layers.has(&Key::Name(parent.inode, name))? {
            return self.directory(text);
        }
        let inode = self.next_inode();
        let record = self.new_inode(&parent, name, new, true)?;
        self.charge(parent.inode, name, Load::NAME)?;
        self.counters.directories += 1;
        self.put_name(parent.inode, name, &NameRecord { inode: inode.0, directory: true }, new.copied)?;
        self.put(&Key::Inode(inode), &record);
        // What this transaction made is met by whoever uses the directory before it is durable.
        self.layers.observe(self.sequence() + 1);
        Ok(self.remember_directory(text, inode, parent.policy, &record))
    }

    /// The directory with this text, made if it is missing as `new` says for what is made on the way.
    fn make_above(&mut self, text: &str, new: &NewInode) -> Result<Directory> {
        if self.directories.contains_key(text) {
            return self.directory(text);
        }
        let Some((parent, _)) = text.rsplit_once('/') else { return self.directory(text) };
        let parent = self.make_above(parent, new)?;
        let mode = new.above_mode.unwrap_or(parent.rights.mode & 0o777 | 0o300);
        let above = NewInode { mode, open: new.above_mode.and(new.open), note: Vec::new(), ..new.clone() };
        self.make_directory(text, &above)
    }

    /// A record for something new under this name, with what its directory hands down.
    pub fn new_inode(&self, parent: &Directory, name: &str, new: &NewInode, directory: bool) -> Result<InodeRecord> {
        let above = parent.rights.view();
        let (mode, list) = acl::inherited(above.acl, new.mode, new.open.unwrap_or(new.mode), directory);
        let or = |said: &Option<String>, name: &str| match said {
            Some(said) => Some(said.clone()),
            None => (!name.is_empty()).then(|| name.to_string()),
        };
        let group = match new.group_above {
            true => Some(above.group.to_string()),
            false => or(&new.group, self.asker.user.groups.first().map_or("", String::as_str)),
        };
        let record = InodeRecord {
            owner: or(&new.owner, &self.asker.user.name),
            group,
            modified: self.wall.0,
            created: self.wall.0,
            mode,
            note: new.note.clone(),
            // A note is a gateway's word, and brings no list: only those of older stores count.
            acl: (!list.is_empty() || has_list(&new.note)).then_some(Acl { entries: list }),
            copies: match new.copies {
                0 if !directory => parent.policy.replicas.filter(|replicas| *replicas > 1).unwrap_or(0),
                copies => copies,
            },
            asked: if directory { 0 } else { new.copies },
            generation: FIRST_GENERATION,
            parent: parent.inode.0,
            name: name.to_string(),
            ..InodeRecord::empty(directory)
        };
        // A gateway's user may have a name that an owner cannot have.
        for name in [&record.owner, &record.group].into_iter().flatten() {
            check_user_name(name)?;
        }
        check_room(&record)?;
        Ok(record)
    }

    /// What has this name, if anything.
    pub fn look_up(&mut self, path: &Path) -> Result<Option<Found>> {
        let Some((parent, name)) = path.split() else {
            let root = self.directory("")?;
            let record = self.named_inode(&NameRecord { inode: ROOT.0, directory: true })?;
            return Ok(Some(Found { inode: ROOT, record, policy: root.policy }));
        };
        let parent = self.directory(parent)?;
        let Some(found) = self.layers.record::<NameRecord>(&Key::Name(parent.inode, name))? else { return Ok(None) };
        let record = self.named_inode(&found)?;
        let policy = convert::policy(record.policy).over(parent.policy);
        Ok(Some(Found { inode: InodeId(found.inode), record, policy }))
    }

    /// What has this name; `NotFound` if nothing has.
    pub fn find(&mut self, path: &Path) -> Result<Found> {
        self.look_up(path)?.ok_or_else(|| not_found(path.text()))
    }

    /// The file with this name.
    pub fn find_file(&mut self, path: &Path) -> Result<Found> {
        let found = self.find(path)?;
        if found.record.directory {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("'{path}' is a directory, not a file; nothing was done"),
            ));
        }
        Ok(found)
    }

    /// Answers `Stat`.
    pub fn stat(&mut self, path: &Path) -> Result<Reply> {
        let found = self.find(path)?;
        Ok(Reply::Attributes(found.record.attributes(found.inode)))
    }

    /// Answers `Lookup`.
    pub fn lookup(&mut self, path: &Path, known: u64) -> Result<Reply> {
        let version = self.directories_version();
        if known == version
            && let Some((above, _)) = path.split()
            && self.directory(above).is_ok()
        {
            let found = self.look_up(path)?.map(|found| found.record.attributes(found.inode));
            return Ok(Reply::Found { found: found.into_iter().collect(), version, without_above: true });
        }
        let mut found: Vec<Attributes> = Vec::new();
        let text = path.text();
        let ends = text.match_indices('/').map(|(at, _)| at).skip(1).chain([text.len()]);
        // The root is the empty text, also when it is all there is.
        for end in [0].into_iter().chain(ends.filter(|end| *end > 0)) {
            let name = match (&text[..end], found.last()) {
                ("", _) => Some(NameRecord { inode: ROOT.0, directory: true }),
                (text, Some(parent)) if parent.directory => self.name_at(InodeId(parent.inode), text)?,
                _ => None,
            };
            let Some(name) = name else { break };
            found.push(self.named_inode(&name)?.attributes(InodeId(name.inode)));
        }
        Ok(Reply::Found { found, version, without_above: false })
    }

    /// What the last name of this text stands for in its directory.
    fn name_at(&mut self, parent: InodeId, text: &str) -> Result<Option<NameRecord>> {
        if let Some(Directory { inode, observed, .. }) = self.directories.get(text) {
            self.layers.observe(*observed);
            return Ok(Some(NameRecord { inode: inode.0, directory: true }));
        }
        let name = text.rsplit_once('/').map_or(text, |(_, name)| name);
        self.layers.record(&Key::Name(parent, name))
    }

    /// Answers `List`.
    pub fn list(
        &mut self,
        path: &Path,
        after: Option<&str>,
        (limit, located): (usize, bool),
        also: &[Path],
    ) -> Result<Reply> {
        let directory = self.directory(path.text())?.inode;
        let mut page = Page { room: self.page(limit), located, ..Page::default() };
        let names = self.names_in(directory, after.unwrap_or_default(), page.room + 1)?;
        let (entries, more) = self.fill(&mut page, names)?;
        let (mut others, mut names) = (Vec::new(), 0);
        for path in if more { &[] } else { also } {
            // On the way to all of them there are no more directories than to the deepest one.
            names += path.text().matches('/').count();
            if names > PATH_DEPTH_MAX {
                break;
            }
            // Whoever asks for this one by itself hears what is wrong with it.
            match self.list_whole(path, &mut page) {
                Ok(Some(entries)) => others.push(entries),
                Ok(None) | Err(_) => break,
            }
        }
        Ok(Reply::Entries { entries, groups: page.groups.into_all(), more, others })
    }

    /// All entries of a directory; none if the page has no room for them.
    fn list_whole(&mut self, path: &Path, page: &mut Page) -> Result<Option<Vec<Entry>>> {
        self.judge_looking_in(path)?;
        let directory = self.directory(path.text())?.inode;
        // It takes time, too, if it is empty.
        let Some(room) = page.room.checked_sub(1) else { return Ok(None) };
        page.room = room;
        let names = self.names_in(directory, "", room + 1)?;
        if names.len() > page.room {
            return Ok(None);
        }
        let (entries, more) = self.fill(page, names)?;
        Ok((!more).then_some(entries))
    }

    /// The entries of these names as far as the page has room, and whether that is not all of them.
    fn fill(&mut self, page: &mut Page, names: Vec<(String, NameRecord)>) -> Result<(Vec<Entry>, bool)> {
        let mut more = names.len() > page.room;
        let mut entries: Vec<Entry> = Vec::with_capacity(names.len().min(page.room));
        for (name, found) in names.into_iter().take(page.room) {
            if page.bytes > LIST_PAGE_BYTES || page.looked == LOCATED_PAGE_MAX {
                more = true;
                break;
            }
            let record = self.named_inode(&found)?;
            let said = |name: &Option<String>| name.as_ref().map_or(0, String::len);
            let holder = match &record.writer {
                Some(writer) => writer.holder.len(),
                None => record.is_kept().map_or(0, |kept| kept.holder.len()),
            };
            page.bytes +=
                name.len() + said(&record.owner) + said(&record.group) + room(&record) + holder + ATTRIBUTES_MAX;
            let inode = InodeId(found.inode);
            let mut extents = Vec::new();
            let has_bytes = !record.directory && record.writer.is_none() && record.length > 0;
            if page.located && has_bytes && self.may_read(&record) {
                extents = self.few_extents(inode, record.length, &mut page.groups)?;
                page.looked += 1;
            }
            page.bytes += page.groups.listed_bytes(&extents);
            entries.push(Entry { name, attributes: record.attributes(inode), extents });
        }
        page.room -= entries.len();
        Ok((entries, more))
    }

    /// Up to `limit` names in a directory, after `after`, in order.
    pub fn names_in(&self, directory: InodeId, after: &str, limit: usize) -> Result<Vec<(String, NameRecord)>> {
        let mut from = Key::Name(directory, after).encode();
        if !after.is_empty() {
            from.push(0);
        }
        let end = after_prefix(&Key::Name(directory, "").encode());
        let mut names = Vec::new();
        self.layers.scan(&from, &end, |key, value| {
            let name = String::from_utf8_lossy(key.get(NAME_AT..).unwrap_or_default()).into_owned();
            let record = prost::Message::decode(value).map_err(|_| crate::state::missing("a readable name record"))?;
            names.push((name, record));
            Ok(names.len() < limit)
        })?;
        Ok(names)
    }

    /// Does `Mkdir`.
    pub fn mkdir(&mut self, path: &Path, parents: bool, new: &NewInode) -> Result<Reply> {
        check_new(new)?;
        let Some((parent, _)) = path.split() else {
            return if parents { self.stat(path) } else { Err(exists(path)) };
        };
        if !parents {
            self.directory(parent)?;
            if self.look_up(path)?.is_some() {
                return Err(exists(path));
            }
        }
        let directory = self.make_directory(path.text(), new)?;
        let record = self.named_inode(&NameRecord { inode: directory.inode.0, directory: true })?;
        Ok(Reply::Attributes(record.attributes(directory.inode)))
    }

    /// Makes room for a new file of this name: the directory, made for it if `parents` says how, and the name. Removes a file that
    /// has the name, if that is allowed.
    pub fn vacate<'a>(
        &mut self,
        path: &'a Path,
        overwrite: bool,
        parents: Option<&NewInode>,
    ) -> Result<(Directory, &'a str)> {
        let Some((parent, name)) = path.split() else {
            return Err(Error::new(ErrorKind::Invalid, "'/' is the root directory, not a file; nothing was done"));
        };
        let directory = match parents {
            Some(new) => self.make_above(parent, new)?,
            None => self.directory(parent)?,
        };
        if let Some(old) = self.layers.record::<NameRecord>(&Key::Name(directory.inode, name))? {
            if old.directory {
                return Err(Error::new(ErrorKind::Exists, format!("'{path}' is a directory; nothing was done")));
            }
            if !overwrite {
                return Err(exists(path));
            }
            let record = self.named_inode(&old)?;
            self.replace_name(directory.inode)?;
            self.detach(InodeId(old.inode), record)?;
        }
        Ok((directory, name))
    }

    /// Does `Rename`.
    pub fn rename(&mut self, from: &Path, to: &Path, replace: bool) -> Result<Reply> {
        let (Some((from_parent, from_name)), Some((to_parent, to_name))) = (from.split(), to.split()) else {
            return Err(Error::new(
                ErrorKind::Invalid,
                "the root directory cannot be renamed or replaced; nothing was done",
            ));
        };
        let found = self.find(from)?;
        if from == to {
            return Ok(Reply::Done);
        }
        if found.record.directory && from.contains(to) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("'{from}' cannot be moved into itself ('{to}'); nothing was done"),
            ));
        }
        let above = self.directory(from_parent)?.policy.replicas;
        let target = self.directory(to_parent)?;
        let mut replaced = Load::default();
        if let Some(old) = self.look_up(to)? {
            if !replace {
                return Err(exists(to));
            }
            match (found.record.directory, old.record.directory) {
                (true, false) => {
                    return Err(Error::new(
                        ErrorKind::Exists,
                        format!("'{to}' is a file and '{from}' a directory; nothing was done"),
                    ));
                }
                (false, true) => {
                    return Err(Error::new(
                        ErrorKind::Exists,
                        format!("'{to}' is a directory and '{from}' a file; nothing was done"),
                    ));
                }
                (true, true) if self.has_names(old.inode)? => return Err(not_empty(to)),
                _ => {}
            }
            replaced = Load::of(&old.record);
            self.replace_name(target.inode)?;
            self.detach(old.inode, old.record)?;
        }
        let parent = InodeId(found.record.parent);
        let directory = found.record.directory;
        let name = NameRecord { inode: found.inode.0, directory };
        self.charge_move(found.inode, &found.record, (parent, from_name), (target.inode, to_name), replaced)?;
        self.remove_name(parent, from_name)?;
        self.put_name(target.inode, to_name, &name, false)?;
        let record = InodeRecord { parent: target.inode.0, name: to_name.to_string(), ..found.record };
        self.put(&Key::Inode(found.inode), &record);
        if directory {
            self.directories_changed();
        }
        // What goes through a directory does not meet a name that comes to be before where it is.
        let follows = above != target.policy.replicas || self.rewanting;
        if follows && !(directory && record.own_replicas().is_some()) {
            self.rewant(found.inode, directory);
        }
        Ok(Reply::Done)
    }

    /// Does `Delete`.
    pub fn delete(&mut self, path: &Path, recursive: bool) -> Result<Reply> {
        let Some((_, name)) = path.split() else {
            return Err(Error::new(ErrorKind::Invalid, "the root directory cannot be deleted; nothing was done"));
        };
        let found = self.find(path)?;
        if found.record.directory && !recursive && self.has_names(found.inode)? {
            return Err(not_empty(path));
        }
        self.remove_name(InodeId(found.record.parent), name)?;
        self.detach(found.inode, found.record)?;
        Ok(Reply::Done)
    }

    /// Puts a name into a directory, which has none of it or one that `replace_name` counted. `copied`: the directory keeps its times.
    pub fn put_name(&mut self, directory: InodeId, name: &str, found: &NameRecord, copied: bool) -> Result<()> {
        self.put(&Key::Name(directory, name), found);
        self.names_changed(directory, 1, copied)
    }

    /// Takes a name out of its directory.
    pub fn remove_name(&mut self, directory: InodeId, name: &str) -> Result<()> {
        self.remove(&Key::Name(directory, name));
        self.names_changed(directory, -1, false)
    }

    /// One of the directory's names is to stand for something else: whoever puts it counts it once more.
    fn replace_name(&mut self, directory: InodeId) -> Result<()> {
        self.names_changed(directory, -1, true)
    }

    /// A name came into the directory or left it: that is a change of the directory's content.
    fn names_changed(&mut self, directory: InodeId, change: i64, copied: bool) -> Result<()> {
        let mut record = self.named_inode(&NameRecord { inode: directory.0, directory: true })?;
        if copied && record.children.is_none() {
            return Ok(());
        }
        if !copied {
            record.modified = self.wall.0;
        }
        record.children = record.children.map(|children| children.saturating_add_signed(change));
        self.put(&Key::Inode(directory), &record);
        Ok(())
    }

    /// Whether anything is in the directory.
    pub fn has_names(&self, directory: InodeId) -> Result<bool> {
        Ok(!self.names_in(directory, "", 1)?.is_empty())
    }
}

/// The error for a file that its number does not lead to.
pub fn gone(inode: InodeId) -> Error {
    Error::new(ErrorKind::NotFound, format!("file number {inode} does not exist any more; it was deleted or replaced"))
}

fn not_found(text: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no '{text}'; check the name"))
}

fn not_a_directory(text: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("'{text}' is a file, not a directory; nothing was done"))
}

fn exists(path: &Path) -> Error {
    Error::new(ErrorKind::Exists, format!("'{path}' exists already; it was not changed"))
}

fn not_empty(path: &Path) -> Error {
    Error::new(
        ErrorKind::Exists,
        format!("the directory '{path}' is not empty; nothing was deleted: ask for a recursive delete"),
    )
}

//! Small files: many share a group, and come into being with one log entry.

use crate::attributes::check_mode;
use crate::convert;
use crate::format::{ExtentRecord, GroupRecord, InodeRecord, NameRecord};
use crate::key::Key;
use crate::path::Path;
use crate::quota::{Load, Taken};
use crate::reply::Reply;
use crate::request::{DIRECTORY_MODE, NewInode, PutFile};
use crate::state::State;
use base::acl;
use base::attributes::NewAttributes;
use base::error::{Error, ErrorKind, Result};
use base::id::{GroupId, InodeId, SessionId};
use base::limit::{CHUNK_MAX, COMPOUND_FILES_MAX};
use base::policy::Policy;

impl State {
    /// Does `FinishPack`.
    pub fn finish_pack(&mut self, session: SessionId, group: GroupId) -> Result<Reply> {
        // A fence that is kept for a session is under that key, too, and is none of its packs.
        let record = self.layers.record::<GroupRecord>(&Key::Group(group))?;
        if self.layers.has(&Key::SessionGroup(session, group))? && record.is_some_and(|record| record.packed) {
            self.give_up_pack(session, group)?;
        }
        Ok(Reply::Done)
    }

    /// The policy of a new file with this name, whose directories may not be there yet.
    pub fn policy_at(&mut self, path: &Path) -> Result<Policy> {
        let mut above = path.split().map_or("", |(directory, _)| directory);
        loop {
            match self.directory(above) {
                Ok(directory) => return Ok(directory.policy),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Invalid) && !above.is_empty() => {
                    above = above.rsplit_once('/').map_or("", |(above, _)| above);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Does `PutFiles`: each file is made or refused by itself.
    pub fn put_files(&mut self, session: SessionId, files: &[PutFile]) -> Result<Reply> {
        if files.len() > COMPOUND_FILES_MAX {
            let text = format!(
                "{} files came in one request and {COMPOUND_FILES_MAX} are the most; none was made",
                files.len()
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let mut results = Vec::with_capacity(files.len());
        for file in files {
            let savepoint = self.savepoint();
            let result = self.put_file_packed(session, file);
            if let Err(error) = &result {
                self.take_back(&savepoint);
                // What is wrong with the store is wrong with the whole request.
                if matches!(error.kind(), ErrorKind::Io | ErrorKind::Corrupt) {
                    return Err(error.clone());
                }
            }
            results.push(result);
        }
        Ok(Reply::Files(results))
    }

    fn put_file_packed(&mut self, session: SessionId, file: &PutFile) -> Result<InodeId> {
        check_mode(file.mode)?;
        self.judge_put(file)?;
        if file.directory {
            return self.put_directory(file);
        }
        if file.length > 0 {
            self.add_to_pack(session, file)?;
        }
        let new = NewInode { copied: file.modified.is_some(), ..NewInode::with_mode(file.mode) };
        let (directory, name) = self.vacate(&file.path, file.overwrite, file.parents.then_some(&new))?;
        if file.length > 0 {
            self.check_tier(file, directory.policy)?;
            self.want_for(file.group, directory.policy)?;
        }
        let inode = self.next_inode();
        let mut record = InodeRecord { length: file.length, ..self.new_inode(&directory, name, &new, false)? };
        record.modified = file.modified.map_or(record.modified, |time| time.0);
        record.accessed = file.accessed.map_or(0, |time| time.0);
        self.counters.files += 1;
        self.charge(directory.inode, name, Load::NAME)?;
        self.put_file(inode, &record, Taken { length: 0, space: 0 })?;
        self.put_name(directory.inode, name, &NameRecord { inode: inode.0, directory: false }, new.copied)?;
        if file.length > 0 {
            let extent = ExtentRecord {
                start: 0,
                group: file.group.0,
                group_offset: file.offset,
                length: file.length,
                crc: Some(file.crc),
            };
            self.put(&Key::Extent(inode, file.length), &extent);
        }
        Ok(inode)
    }

    /// A shared group has as many replicas as the file wants that wants most.
    fn want_for(&mut self, group: GroupId, policy: Policy) -> Result<()> {
        let wanted = policy.replicas.unwrap_or(1);
        let record = self.group(group)?;
        if wanted > record.wanted.max(1) {
            self.put_group(group, GroupRecord { wanted, ..record });
        }
        Ok(())
    }

    /// `Unsupported` if the directory's policy wants the bytes on another tier than that of the shared group.
    fn check_tier(&self, file: &PutFile, policy: Policy) -> Result<()> {
        let Some(tier) = policy.tier else { return Ok(()) };
        let layout = convert::placed(file.group, &self.group(file.group)?)?.layout;
        if layout.replicas().all(|replica| self.devices.class(replica.device) == Some(tier)) {
            return Ok(());
        }
        let (path, tier) = (&file.path, tier.name());
        Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "'{path}' belongs on the tier '{tier}' and shared groups are elsewhere; it was not made: write it by itself"
            ),
        ))
    }

    /// A directory with its times and bits, whether it was there before or not.
    fn put_directory(&mut self, file: &PutFile) -> Result<InodeId> {
        let PutFile { path, modified, accessed, mode, parents, .. } = file;
        if !parents && let Some((parent, _)) = path.split() {
            self.directory(parent)?;
        }
        let made = NewInode { copied: modified.is_some(), ..NewInode::with_mode(DIRECTORY_MODE) };
        let directory = self.make_directory(path.text(), &made)?;
        // The bits that it has when it is made like that: they are the mask of a list that its directory hands down.
        let mode = match path.split() {
            Some((above, _)) => {
                let above = self.directory(above)?.rights;
                acl::inherited(above.view().acl, *mode, *mode, true).0
            }
            None => *mode,
        };
        let new = NewAttributes {
            mode: Some(mode),
            modified_ms: modified.map(|time| time.0),
            accessed_ms: accessed.map(|time| time.0),
            ..NewAttributes::default()
        };
        self.set_attributes(path, &new)?;
        Ok(directory.inode)
    }

    /// One more reference to a packed group of the session. Taken before an old file goes, so that replacing never empties the group.
    fn add_to_pack(&mut self, session: SessionId, file: &PutFile) -> Result<()> {
        let group = file.group;
        let wrong = |why: String| {
            let path = &file.path;
            Error::new(ErrorKind::Invalid, format!("{why}; '{path}' was not made"))
        };
        let record: GroupRecord = match self.layers.record(&Key::Group(group))? {
            Some(record) => record,
            None => return Err(wrong(format!("there is no group {group}"))),
        };
        if record.is_newer() || !record.packed || record.session != session.to_bytes() {
            return Err(wrong(format!(
                "group {group} is not a group for small files of this session: ask for a new one"
            )));
        }
        let end = file.offset.checked_add(file.length).filter(|end| *end <= CHUNK_MAX);
        let Some(end) = end else {
            return Err(wrong(format!("{} bytes at {} do not fit in a group", file.length, file.offset)));
        };
        let length = record.length.max(end);
        let references = record.references.saturating_add(1);
        self.put_group(group, GroupRecord { length, references, ..record });
        Ok(())
    }
}

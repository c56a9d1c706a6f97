//! What is kept with a file or directory besides its bytes: permission bits, owners, times, extended attributes, a
//! gateway's note.

pub mod format;

use crate::format::{InodeRecord, SessionRecord, XattrRecord, XattrsRecord};
use crate::key::Key;
use crate::names::Found;
use crate::path::Path;
use crate::quota::Taken;
use crate::reply::Reply;
use crate::request::{NewInode, Request, Seen, User};
use crate::state::{State, missing};
use base::acl::{AclEntry, is_stored};
use base::attributes::NewAttributes;
use base::error::{Error, ErrorKind, Result};
use base::id::InodeId;
use base::limit::{
    EMPTY_DIRECTORIES_MAX, HOLDER_MAX, NOTE_MAX, USER_NAME_MAX, XATTR_NAME_MAX, XATTR_VALUE_MAX, XATTRS_BYTES_MAX,
    XATTRS_MAX,
};

/// The permission bits that there are: read, write and execute for three, and three special ones.
const MODE_BITS: u32 = 0o7777;

impl State {
    /// Does `SetAttributes`.
    pub fn set_attributes(&mut self, path: &Path, new: &NewAttributes) -> Result<Reply> {
        let Found { inode, mut record, .. } = self.find(path)?;
        let before = record.clone();
        let judged = record.change(new)?;
        // A number that is said again is followed again: there may be more nodes.
        let follows = !record.directory && new.copies.is_some();
        if follows {
            let above = self.wish_above(path)?;
            record.copies = record.counted_as(self.wish_of(&record, above));
            self.rewant_one(inode, &record);
        }
        if record != before {
            self.put_file(inode, &record, Taken::of(&before))?;
            if record.directory && judged {
                self.directories_changed();
            }
        }
        Ok(Reply::Done)
    }

    /// Answers `GetXattrs`.
    pub fn get_xattrs(&mut self, path: &Path, name: Option<&str>) -> Result<Reply> {
        let found = self.find(path)?;
        let xattrs = self.xattrs(&found)?.xattrs.into_iter();
        let seen = xattrs.filter(|xattr| self.sees_xattr(&xattr.name));
        let wanted = seen.filter(|xattr| name.is_none_or(|name| xattr.name == name));
        let found: Vec<_> = wanted.map(|xattr| (xattr.name, xattr.value)).collect();
        match name {
            Some(name) if found.is_empty() => Err(no_xattr(path, name)),
            _ => Ok(Reply::Xattrs(found)),
        }
    }

    /// Does `SetXattr`.
    pub fn set_xattr(&mut self, path: &Path, name: &str, value: Option<&[u8]>) -> Result<Reply> {
        let mut found = self.find(path)?;
        let mut record = self.xattrs(&found)?;
        let place = record.xattrs.binary_search_by(|xattr| xattr.name.as_str().cmp(name));
        match (place, value) {
            (Err(_), None) => return Err(no_xattr(path, name)),
            (Ok(place), None) => drop(record.xattrs.remove(place)),
            (place, Some(value)) => {
                check_xattr(path, name, value)?;
                let xattr = XattrRecord { name: name.to_string(), value: value.to_vec() };
                match place {
                    Ok(place) => record.xattrs[place] = xattr,
                    Err(place) => record.xattrs.insert(place, xattr),
                }
                check_xattrs(path, &record)?;
            }
        }
        let some = !record.xattrs.is_empty();
        if some {
            self.put(&Key::Xattrs(found.inode), &record);
        } else {
            self.remove(&Key::Xattrs(found.inode));
        }
        found.record.xattrs = some;
        found.record.version = found.record.version.saturating_add(1);
        self.put(&Key::Inode(found.inode), &found.record);
        Ok(Reply::Done)
    }

    /// Refuses unless each path that a change names stands for what its asker looked up. Nothing seen: nothing is compared.
    pub fn check_seen(&mut self, change: &Request, seen: &[Seen]) -> Result<()> {
        let paths = change.paths();
        if !seen.is_empty() && seen.len() != paths.len() {
            let text = format!(
                "a change of {} paths says what was looked up of {}; nothing was done: say it of each, in their order",
                paths.len(),
                seen.len()
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        for (path, seen) in paths.into_iter().zip(seen) {
            let there = match self.look_up(path) {
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Invalid) => None,
                there => there?,
            };
            let same = match (there, seen.inode) {
                (None, None) => true,
                (Some(there), Some(inode)) => {
                    there.inode == inode && seen.version.is_none_or(|version| version == there.record.version)
                }
                _ => false,
            };
            if !same {
                let text = format!("'{path}' has changed since it was looked up; nothing was done: look again");
                return Err(Error::new(ErrorKind::Stale, text));
            }
        }
        Ok(())
    }

    /// Refuses if somebody has put something into one of these directories since it was found empty. One that is gone is empty.
    pub fn check_empty(&self, directories: &[InodeId]) -> Result<()> {
        let count = directories.len();
        if count > EMPTY_DIRECTORIES_MAX {
            let text = format!(
                "{count} directories were said to be empty, {EMPTY_DIRECTORIES_MAX} are the most; nothing was done: do it in several steps"
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        for directory in directories {
            if self.has_names(*directory)? {
                let text = "a directory that was empty is not any more; nothing was done: look again";
                return Err(Error::new(ErrorKind::Stale, text));
            }
        }
        Ok(())
    }

    fn xattrs(&self, found: &Found) -> Result<XattrsRecord> {
        if !found.record.xattrs {
            return Ok(XattrsRecord::default());
        }
        let Found { inode, .. } = found;
        self.layers
            .record(&Key::Xattrs(*inode))?
            .ok_or_else(|| missing(&format!("the extended attributes of inode {inode}")))
    }

    /// Removes the record of a file or directory, and what is kept with it.
    pub fn remove_inode(&mut self, inode: InodeId, record: &InodeRecord) {
        if record.xattrs {
            self.remove(&Key::Xattrs(inode));
        }
        self.remove_quota(inode, record);
        self.remove(&Key::Inode(inode));
    }
}

/// The record of a session that begins.
pub fn session_record(user: &User) -> Result<SessionRecord> {
    for name in [&user.name].into_iter().chain(&user.groups) {
        if !name.is_empty() {
            check_user_name(name)?;
        }
    }
    let (group, groups) =
        user.groups.split_first().map(|(first, rest)| (first.clone(), rest.to_vec())).unwrap_or_default();
    Ok(SessionRecord { ended: false, owner: user.name.clone(), group, groups })
}

/// `Invalid` unless these are permission bits.
pub fn check_mode(mode: u32) -> Result<()> {
    if mode & !MODE_BITS == 0 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Invalid, format!("{mode:o} are not permission bits, 7777 are all; nothing was changed")))
}

/// `Invalid` unless something new can have all of this.
pub fn check_new(new: &NewInode) -> Result<()> {
    for name in [&new.owner, &new.group].into_iter().flatten() {
        check_user_name(name)?;
    }
    for mode in [Some(new.mode), new.open, new.above_mode].into_iter().flatten() {
        check_mode(mode)?;
    }
    check_holder(&new.holder)
}

/// Bytes of what a file or directory has beside its name and its numbers: a gateway's note, and its access control list.
pub fn room(record: &InodeRecord) -> usize {
    record.note.len() + record.acl.as_ref().map_or(0, prost::Message::encoded_len)
}

/// `Invalid` unless these fit into what is said of a file or directory.
pub fn check_room(record: &InodeRecord) -> Result<()> {
    let bytes = room(record);
    if bytes <= NOTE_MAX {
        return Ok(());
    }
    let text = format!(
        "the access control list and what a gateway keeps with a name take {bytes} bytes, and {NOTE_MAX} are the most; nothing was changed: use fewer or shorter names in the list"
    );
    Err(Error::new(ErrorKind::Invalid, text))
}

/// `Invalid` unless these entries are such as are stored.
pub fn check_acl(acl: &[AclEntry]) -> Result<()> {
    for entry in acl.iter().filter(|entry| !entry.name.is_empty()) {
        check_user_name(&entry.name)?;
    }
    if is_stored(acl) {
        return Ok(());
    }
    let text = "the entries of an access control list come in their order, once each, and only those that the permission bits do not say; nothing was changed";
    Err(Error::new(ErrorKind::Invalid, text))
}

/// `Invalid` unless somebody who holds a file can be called so.
pub fn check_holder(holder: &str) -> Result<()> {
    if holder.len() <= HOLDER_MAX {
        return Ok(());
    }
    let text = format!(
        "the name of a file's holder has {} bytes and {HOLDER_MAX} are the most; nothing was done",
        holder.len()
    );
    Err(Error::new(ErrorKind::Invalid, text))
}

/// `Invalid` unless an owner or a group of people can be called so.
pub fn check_user_name(name: &str) -> Result<()> {
    let wrong = |why: String| Err(Error::new(ErrorKind::Invalid, format!("{why}; nothing was changed")));
    if name.is_empty() || name.len() > USER_NAME_MAX {
        return wrong(format!("the name of an owner or group has 1 to {USER_NAME_MAX} bytes, not {}", name.len()));
    }
    if name.contains(|letter: char| letter.is_control() || letter == ':' || letter == '/') {
        return wrong(format!(
            "{name:?} cannot name an owner or group: ':', '/' and control characters are not allowed"
        ));
    }
    Ok(())
}

fn check_xattr(path: &Path, name: &str, value: &[u8]) -> Result<()> {
    let wrong = |why: String| {
        Err(Error::new(ErrorKind::Invalid, format!("{why}; the attributes of '{path}' were not changed")))
    };
    let with_namespace =
        name.split_once('.').is_some_and(|(namespace, rest)| !namespace.is_empty() && !rest.is_empty());
    if !with_namespace || name.contains('\0') {
        return wrong(format!(
            "{name:?} does not name an extended attribute: write its namespace first, as in user.NAME"
        ));
    }
    if name.len() > XATTR_NAME_MAX {
        return wrong(format!(
            "the name of an extended attribute has {} bytes and {XATTR_NAME_MAX} are the most",
            name.len()
        ));
    }
    if value.len() > XATTR_VALUE_MAX {
        return wrong(format!("the value of {name} has {} bytes and {XATTR_VALUE_MAX} are the most", value.len()));
    }
    Ok(())
}

fn check_xattrs(path: &Path, record: &XattrsRecord) -> Result<()> {
    let bytes: usize = record.xattrs.iter().map(|xattr| xattr.name.len() + xattr.value.len()).sum();
    if record.xattrs.len() > XATTRS_MAX || bytes > XATTRS_BYTES_MAX {
        let text = format!(
            "'{path}' would have {} extended attributes of {bytes} bytes, and {XATTRS_MAX} of {XATTRS_BYTES_MAX} are the most; nothing was changed: remove some",
            record.xattrs.len()
        );
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    Ok(())
}

fn no_xattr(path: &Path, name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("'{path}' has no extended attribute {name}; list those it has"))
}

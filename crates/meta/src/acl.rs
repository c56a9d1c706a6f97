//! Access control lists in the records of files and directories: read, and as they are stored.

use crate::format::{AclEntryRecord, AclRecord, InodeRecord, OldNoteRecord};
use base::acl::{AclEntry, is_stored};
use prost::Message;

impl InodeRecord {
    /// Its access control list, as it is stored; one that nobody would have stored counts as none.
    pub fn acl(&self) -> Vec<AclEntry> {
        let records = match &self.acl {
            Some(record) => record.entries.clone(),
            // Most have no note, and are asked about for every directory of every path.
            None if self.note.is_empty() => return Vec::new(),
            None => OldNoteRecord::decode(self.note.as_slice()).unwrap_or_default().acl,
        };
        let entry = |AclEntryRecord { scope, kind, permissions, name }| AclEntry { scope, kind, permissions, name };
        let entries: Vec<AclEntry> = records.into_iter().map(entry).collect();
        if is_stored(&entries) { entries } else { Vec::new() }
    }

    /// From now on it has this list, whatever its note says.
    pub fn set_acl(&mut self, entries: &[AclEntry]) {
        self.acl = Some(record(entries));
    }
}

/// A list as it is stored.
pub fn record(entries: &[AclEntry]) -> AclRecord {
    let record = |entry: &AclEntry| {
        let AclEntry { scope, kind, permissions, name } = entry.clone();
        AclEntryRecord { scope, kind, permissions, name }
    };
    AclRecord { entries: entries.iter().map(record).collect() }
}

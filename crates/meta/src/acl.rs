//! Access control lists in the records of files and directories: read, and as they are stored.

use crate::format::{InodeRecord, OldNoteRecord};
use base::acl::{Acl, AclEntry, is_stored};
use prost::Message;
use prost::encoding::{DecodeContext, decode_key, skip_field};

/// The tag of `OldNoteRecord::acl`.
const OLD_LIST_TAG: u32 = 5;

impl InodeRecord {
    /// Its access control list, as it is stored; one that nobody would have stored counts as none.
    pub fn acl(&self) -> Vec<AclEntry> {
        let entries = match &self.acl {
            Some(record) => record.entries.clone(),
            // Most have no note, and are asked about for every directory of every path.
            None if self.note.is_empty() => return Vec::new(),
            None => OldNoteRecord::decode(self.note.as_slice()).unwrap_or_default().acl,
        };
        if is_stored(&entries) { entries } else { Vec::new() }
    }

    /// From now on it has this list, whatever its note says. One that lay there goes: it would take room, and count for nothing.
    pub fn set_acl(&mut self, entries: &[AclEntry]) {
        self.note = self.take_acl_and_note().1;
        self.acl = Some(Acl { entries: entries.to_vec() });
    }

    /// Takes its list and its note, which has none any more that counts.
    pub fn take_acl_and_note(&mut self) -> (Vec<AclEntry>, Vec<u8>) {
        let (list, note) = (self.acl(), std::mem::take(&mut self.note));
        if self.acl.is_some() || list.is_empty() {
            return (list, note);
        }
        let rest = without_list(&note).unwrap_or(note);
        (list, rest)
    }
}

/// Whether a note would count as a list if nothing else said which list there is.
pub fn has_list(note: &[u8]) -> bool {
    !note.is_empty() && OldNoteRecord::decode(note).is_ok_and(|note| !note.acl.is_empty())
}

/// A note of format 2 without its list; `None` if it is none.
fn without_list(note: &[u8]) -> Option<Vec<u8>> {
    let (mut rest, mut kept) = (note, Vec::with_capacity(note.len()));
    while !rest.is_empty() {
        let field = rest;
        let (tag, kind) = decode_key(&mut rest).ok()?;
        skip_field(kind, tag, &mut rest, DecodeContext::default()).ok()?;
        if tag != OLD_LIST_TAG {
            kept.extend_from_slice(&field[..field.len() - rest.len()]);
        }
    }
    Some(kept)
}

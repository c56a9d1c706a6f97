//! A file's or directory's attributes as Hadoop's clients want them.

use crate::hdfs_attributes::HdfsAttributes;
use crate::message::hdfs::{DIRECTORY, FILE, FileStatus, HAS_ACL, Permission};
use base::permission::SUPERUSERS_GROUP;
use client::Attributes;

/// The status of what has these attributes; `name` is its name in a listing, empty elsewhere.
pub fn file_status(name: &str, attributes: &Attributes, note: &HdfsAttributes, superuser: &str) -> FileStatus {
    let Attributes { directory, .. } = *attributes;
    let or = |said: &str, other: &str| if said.is_empty() { other.to_string() } else { said.to_string() };
    // What nobody said that it was read counts as read when it was written.
    let accessed = if attributes.accessed_ms == 0 { attributes.modified_ms } else { attributes.accessed_ms };
    FileStatus {
        kind: if directory { DIRECTORY } else { FILE },
        path: name.as_bytes().to_vec(),
        length: if directory { 0 } else { attributes.length },
        permission: Permission { bits: attributes.mode & 0o1777 },
        owner: or(&attributes.owner, superuser),
        group: or(&attributes.group, SUPERUSERS_GROUP),
        modified: attributes.modified_ms,
        accessed: if directory { 0 } else { accessed },
        replication: Some(if directory { 0 } else { note.replication() }),
        block_size: Some(if directory { 0 } else { note.block_size() }),
        locations: None,
        inode: Some(attributes.inode),
        children: if directory {
            attributes.children.map(|count| i32::try_from(count).unwrap_or(i32::MAX))
        } else {
            Some(0)
        },
        storage_policy: Some(note.storage_policy),
        flags: Some(if attributes.acl.is_empty() { 0 } else { HAS_ACL }),
    }
}

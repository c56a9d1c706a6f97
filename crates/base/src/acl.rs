//! Access control lists as they are stored and inherited: beside the permission bits stand only the entries that these do not say.
//!
//! A whole list has entries for the owner, the group and others. Of one with named entries these and the group's are stored, and the group bits
//! are its mask; then come all entries that new children inherit (record 0076).

use prost::Message;

/// Scope of entries that say who may do what.
pub const ACCESS: u32 = 0;
/// Scope of entries that new children inherit.
pub const DEFAULT: u32 = 1;
/// Kind of entries about the owner or a named user.
pub const USER: u32 = 0;
/// About the owning group or a named one.
pub const GROUP: u32 = 1;
/// About the most that named ones and groups get.
pub const MASK: u32 = 2;
/// About everybody else.
pub const OTHER: u32 = 3;

/// Most entries of a scope, as in HDFS.
pub const ENTRIES_MAX: usize = 32;

/// An access control list as it is stored and sent.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Acl {
    /// In the order of their numbers and names.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<AclEntry>,
}

/// One entry of an access control list, with the numbers that HDFS has for scopes and kinds.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AclEntry {
    /// `ACCESS`, or `DEFAULT` for what new children inherit.
    #[prost(uint32, tag = "1")]
    pub scope: u32,
    /// `USER`, `GROUP`, `MASK` or `OTHER`.
    #[prost(uint32, tag = "2")]
    pub kind: u32,
    /// Permission bits rwx.
    #[prost(uint32, tag = "3")]
    pub permissions: u32,
    /// Whom it is about; empty: owner or owning group.
    #[prost(string, tag = "4")]
    pub name: String,
}

impl AclEntry {
    /// An entry that names nobody.
    pub fn unnamed(scope: u32, kind: u32, permissions: u32) -> AclEntry {
        AclEntry { scope, kind, permissions: permissions & 7, name: String::new() }
    }

    /// What orders entries and says which are about the same.
    pub fn key(&self) -> (u32, u32, &str) {
        (self.scope, self.kind, &self.name)
    }
}

/// Whether stored entries say more about access than the permission bits.
pub fn has_access_entries(stored: &[AclEntry]) -> bool {
    stored.first().is_some_and(|entry| entry.scope == ACCESS)
}

/// The whole list of something with these permission bits and stored entries.
pub fn whole(mode: u32, stored: &[AclEntry]) -> Vec<AclEntry> {
    let (access, default): (Vec<_>, Vec<_>) = stored.iter().cloned().partition(|entry| entry.scope == ACCESS);
    let mut list = vec![AclEntry::unnamed(ACCESS, USER, mode >> 6)];
    if access.is_empty() {
        list.push(AclEntry::unnamed(ACCESS, GROUP, mode >> 3));
    } else {
        list.extend(access);
        list.push(AclEntry::unnamed(ACCESS, MASK, mode >> 3));
    }
    list.push(AclEntry::unnamed(ACCESS, OTHER, mode));
    list.extend(default);
    list
}

/// Permission bits and stored entries for a whole list; of `mode` the sticky bit stays.
pub fn stored(list: &[AclEntry], mode: u32) -> (u32, Vec<AclEntry>) {
    let access: Vec<&AclEntry> = list.iter().filter(|entry| entry.scope == ACCESS).collect();
    // A checked list has an owner, a group and others. Of one that has not, the bits stay as they are.
    let [user, between @ .., other] = access.as_slice() else { return (mode & 0o1777, Vec::new()) };
    let Some(middle) = between.last() else { return (mode & 0o1777, Vec::new()) };
    let bits = (user.permissions << 6 | middle.permissions << 3 | other.permissions) | mode & 0o1000;
    let mut stored: Vec<AclEntry> = Vec::new();
    if access.len() > 3 {
        stored.extend(between[..between.len() - 1].iter().map(|entry| (*entry).clone()));
    }
    stored.extend(list.iter().filter(|entry| entry.scope == DEFAULT).cloned());
    (bits, stored)
}

/// Permission bits and stored entries of something new in a directory with these stored entries: `masked` if the directory
/// has nothing to inherit, else `open` as far as what is inherited allows.
pub fn inherited(parent: &[AclEntry], masked: u32, open: u32, directory: bool) -> (u32, Vec<AclEntry>) {
    let defaults: Vec<&AclEntry> = parent.iter().filter(|entry| entry.scope == DEFAULT).collect();
    if defaults.is_empty() {
        return (masked, Vec::new());
    }
    let minimal = defaults.len() == 3;
    let mut list = Vec::with_capacity(2 * defaults.len());
    for entry in &defaults {
        let allowed = match entry.kind {
            USER if entry.name.is_empty() => open >> 6,
            GROUP if minimal => open >> 3,
            MASK => open >> 3,
            OTHER => open,
            _ => 7,
        };
        list.push(AclEntry { scope: ACCESS, permissions: entry.permissions & allowed & 7, ..(*entry).clone() });
    }
    if directory {
        list.extend(defaults.into_iter().cloned());
    }
    stored(&list, open)
}

/// Whether entries are such as are stored: in order, none twice, only what the permission bits do not say, and whole.
pub fn is_stored(entries: &[AclEntry]) -> bool {
    let fits = |entry: &AclEntry| {
        let named = !entry.name.is_empty();
        let known = entry.scope <= DEFAULT && entry.kind <= OTHER && entry.permissions <= 7;
        let allowed = match (entry.scope, entry.kind) {
            (ACCESS, USER) => named,
            (ACCESS, GROUP) | (DEFAULT, USER | GROUP) => true,
            (DEFAULT, MASK | OTHER) => !named,
            _ => false,
        };
        known && allowed
    };
    let ordered = entries.windows(2).all(|pair| pair[0].key() < pair[1].key());
    let has = |scope, kind| entries.iter().any(|entry| entry.key() == (scope, kind, ""));
    let of = |scope| entries.iter().filter(move |entry| entry.scope == scope);
    let any = |scope| of(scope).next().is_some();
    let access = !any(ACCESS) || has(ACCESS, GROUP);
    let named = of(DEFAULT).any(|entry| !entry.name.is_empty());
    let default = has(DEFAULT, USER) && has(DEFAULT, GROUP) && has(DEFAULT, OTHER) && (!named || has(DEFAULT, MASK));
    let few = [ACCESS, DEFAULT].into_iter().all(|scope| of(scope).count() <= ENTRIES_MAX);
    entries.iter().all(fits) && ordered && access && (!any(DEFAULT) || default) && few
}

#[cfg(test)]
mod tests {
    use super::{ACCESS, AclEntry, DEFAULT, GROUP, MASK, OTHER, USER, inherited, is_stored, stored, whole};

    fn entry(scope: u32, kind: u32, permissions: u32, name: &str) -> AclEntry {
        AclEntry { scope, kind, permissions, name: name.to_string() }
    }

    /// Something new gets what its directory hands down, cut by the permission bits that the program said without umask;
    /// directories hand it on. Without anything to inherit the umask counts.
    #[test]
    fn inheritance() {
        let minimal = || vec![entry(DEFAULT, USER, 7, ""), entry(DEFAULT, GROUP, 5, ""), entry(DEFAULT, OTHER, 0, "")];
        let named = || {
            vec![
                entry(DEFAULT, USER, 7, ""),
                entry(DEFAULT, USER, 7, "bob"),
                entry(DEFAULT, GROUP, 5, ""),
                entry(DEFAULT, MASK, 7, ""),
                entry(DEFAULT, OTHER, 0, ""),
            ]
        };
        let access = || vec![entry(ACCESS, USER, 7, "bob"), entry(ACCESS, GROUP, 4, "")];
        let got = || vec![entry(ACCESS, USER, 7, "bob"), entry(ACCESS, GROUP, 5, "")];
        for (parent, masked, open, directory, mode, entries) in [
            (vec![], 0o644, 0o666, false, 0o644, vec![]),
            (access(), 0o644, 0o666, false, 0o644, vec![]),
            (minimal(), 0o600, 0o666, false, 0o640, vec![]),
            (minimal(), 0o700, 0o777, true, 0o750, minimal()),
            (named(), 0o644, 0o666, false, 0o660, got()),
            (named(), 0o600, 0o600, false, 0o600, got()),
            (named(), 0o755, 0o777, true, 0o770, [got(), named()].concat()),
        ] {
            let born = inherited(&parent, masked, open, directory);
            assert!(is_stored(&parent) && is_stored(&born.1));
            assert_eq!(born, (mode, entries), "{parent:?} {masked:o} {open:o}");
        }
    }

    /// A whole list is stored as bits and entries, and is the same when it is read again.
    #[test]
    fn stored_and_read() {
        let entries = vec![entry(ACCESS, USER, 6, "bob"), entry(ACCESS, GROUP, 4, "")];
        for (mode, entries) in [(0o640, vec![]), (0o1670, entries)] {
            let list = whole(mode, &entries);
            assert_eq!(stored(&list, mode), (mode, entries));
        }
        assert_eq!(stored(&[], 0o1640), (0o1640, vec![]));
    }

    /// Lists that nobody would have stored are none.
    #[test]
    fn foreign_lists() {
        for bad in [
            vec![entry(ACCESS, USER, 7, "bob")],
            vec![entry(ACCESS, GROUP, 4, ""), entry(ACCESS, USER, 7, "bob")],
            vec![entry(ACCESS, GROUP, 4, ""), entry(ACCESS, GROUP, 4, "")],
            vec![entry(ACCESS, GROUP, 8, "")],
            vec![entry(ACCESS, OTHER, 4, "")],
            vec![entry(DEFAULT, USER, 7, "")],
            vec![entry(2, USER, 7, "bob")],
            (0..33).map(|number| entry(ACCESS, GROUP, 1, &format!("{number:03}"))).collect(),
        ] {
            assert!(!is_stored(&bad), "{bad:?}");
        }
        assert!(is_stored(&[]));
    }
}

//! Access control lists, as HDFS changes, stores and inherits them.
//!
//! A whole list has entries for the owner, the group and others. Stored beside the permission bits is only what these do not
//! say: a list with named entries keeps those and the group's, and the group bits are its mask; then come all entries that new
//! children inherit.

use crate::note::AclEntry;
use crate::refusal::{ACL, Refusal};

/// Scope of entries that say who may do what.
pub(crate) const ACCESS: u32 = 0;
/// Scope of entries that new children inherit.
pub(crate) const DEFAULT: u32 = 1;
/// Kind of entries about the owner or a named user.
pub(crate) const USER: u32 = 0;
/// About the owning group or a named one.
pub(crate) const GROUP: u32 = 1;
/// About the most that named ones and groups get.
pub(crate) const MASK: u32 = 2;
/// About everybody else.
pub(crate) const OTHER: u32 = 3;

/// Most entries of a scope, as in HDFS.
const ENTRIES_MAX: usize = 32;

/// Whether stored entries say more about access than the permission bits.
pub(crate) fn has_access_entries(stored: &[AclEntry]) -> bool {
    stored.first().is_some_and(|entry| entry.scope == ACCESS)
}

/// The whole list of something with these permission bits and stored entries.
pub(crate) fn whole(mode: u32, stored: &[AclEntry]) -> Vec<AclEntry> {
    let (access, default): (Vec<_>, Vec<_>) = stored.iter().cloned().partition(|entry| entry.scope == ACCESS);
    let mut list = vec![entry(ACCESS, USER, mode >> 6)];
    if access.is_empty() {
        list.push(entry(ACCESS, GROUP, mode >> 3));
    } else {
        list.extend(access);
        list.push(entry(ACCESS, MASK, mode >> 3));
    }
    list.push(entry(ACCESS, OTHER, mode));
    list.extend(default);
    list
}

/// Permission bits and stored entries for a whole list; of `mode` the sticky bit stays.
pub(crate) fn stored(list: &[AclEntry], mode: u32) -> (u32, Vec<AclEntry>) {
    let access: Vec<&AclEntry> = list.iter().filter(|entry| entry.scope == ACCESS).collect();
    let [user, between @ .., other] = access.as_slice() else {
        unreachable!("a checked list has an owner, a group and others: {list:?}")
    };
    let Some(middle) = between.last() else { unreachable!("a checked list has a group: {list:?}") };
    let bits = (user.permissions << 6 | middle.permissions << 3 | other.permissions) | mode & 0o1000;
    let mut stored: Vec<AclEntry> = Vec::new();
    if access.len() > 3 {
        stored.extend(between[..between.len() - 1].iter().map(|entry| (*entry).clone()));
    }
    stored.extend(list.iter().filter(|entry| entry.scope == DEFAULT).cloned());
    (bits, stored)
}

/// The list with these entries changed or added.
pub(crate) fn merged(list: &[AclEntry], spec: Vec<AclEntry>) -> Result<Vec<AclEntry>, Refusal> {
    let mut change = Change::new(spec)?;
    for old in list {
        match change.find(old) {
            Some(_) => {}
            None => change.keep(old),
        }
    }
    for new in change.spec.clone() {
        change.scopes_changed[new.scope as usize] = true;
        change.masks_changed[new.scope as usize] |= new.kind == MASK;
        change.keep(&new);
    }
    change.finish()
}

/// The list without these entries; their permissions do not matter.
pub(crate) fn without(list: &[AclEntry], spec: Vec<AclEntry>) -> Result<Vec<AclEntry>, Refusal> {
    let mut change = Change::new(spec)?;
    for old in list {
        match change.find(old) {
            Some(_) => {
                change.scopes_changed[old.scope as usize] = true;
                change.masks_changed[old.scope as usize] |= old.kind == MASK;
            }
            None => change.keep(old),
        }
    }
    change.finish()
}

/// The list with these entries in the place of all others of their scopes.
pub(crate) fn replaced(list: &[AclEntry], spec: Vec<AclEntry>) -> Result<Vec<AclEntry>, Refusal> {
    let mut change = Change::new(spec)?;
    for new in change.spec.clone() {
        change.scopes_changed[new.scope as usize] = true;
        change.masks_changed[new.scope as usize] |= new.kind == MASK;
        change.keep(&new);
    }
    for old in list {
        if !change.scopes_changed[old.scope as usize] {
            change.keep(old);
        }
    }
    change.finish()
}

/// The list without what children inherit.
pub(crate) fn without_default(list: &[AclEntry]) -> Vec<AclEntry> {
    list.iter().filter(|entry| entry.scope == ACCESS).cloned().collect()
}

/// Permission bits and stored entries of something new in a directory with these stored entries: `masked` if the directory
/// has nothing to inherit, else `open` as far as what is inherited allows.
pub(crate) fn inherited(parent: &[AclEntry], masked: u32, open: u32, directory: bool) -> (u32, Vec<AclEntry>) {
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

fn entry(scope: u32, kind: u32, permissions: u32) -> AclEntry {
    AclEntry { scope, kind, permissions: permissions & 7, name: String::new() }
}

/// What orders entries and says which are about the same.
fn key(entry: &AclEntry) -> (u32, u32, &str) {
    (entry.scope, entry.kind, &entry.name)
}

fn wrong(text: impl Into<String>) -> Refusal {
    Refusal::new(ACL, text)
}

/// A list that is being changed. Masks are kept apart: they follow from the others unless somebody gave one.
struct Change {
    spec: Vec<AclEntry>,
    list: Vec<AclEntry>,
    masks: [Option<AclEntry>; 2],
    masks_changed: [bool; 2],
    scopes_changed: [bool; 2],
}

impl Change {
    fn new(mut spec: Vec<AclEntry>) -> Result<Change, Refusal> {
        if let Some(entry) =
            spec.iter().find(|entry| entry.scope > DEFAULT || entry.kind > OTHER || entry.permissions > 7)
        {
            return Err(wrong(format!("Invalid ACL: there is no such entry: {}.", shown(entry))));
        }
        spec.sort_by(|one, other| key(one).cmp(&key(other)));
        check_count(&spec)?;
        let (masks, changed) = ([None, None], [false; 2]);
        Ok(Change { spec, list: Vec::new(), masks, masks_changed: changed, scopes_changed: changed })
    }

    fn find(&self, entry: &AclEntry) -> Option<&AclEntry> {
        self.spec.iter().find(|spec| key(spec) == key(entry))
    }

    fn keep(&mut self, entry: &AclEntry) {
        if entry.kind == MASK {
            self.masks[entry.scope as usize & 1] = Some(entry.clone());
        } else {
            self.list.push(entry.clone());
        }
    }

    fn finish(mut self) -> Result<Vec<AclEntry>, Refusal> {
        self.copy_defaults();
        for scope in [ACCESS, DEFAULT] {
            self.add_mask(scope)?;
        }
        self.list.sort_by(|one, other| key(one).cmp(&key(other)));
        check(&self.list)?;
        Ok(self.list)
    }

    /// What children inherit about owner, group and others is as for the directory itself, unless it was said.
    fn copy_defaults(&mut self) {
        if !self.list.iter().any(|entry| entry.scope == DEFAULT) {
            return;
        }
        for kind in [USER, GROUP, OTHER] {
            let of = |scope| self.list.iter().find(|entry| key(entry) == (scope, kind, ""));
            if let (None, Some(access)) = (of(DEFAULT), of(ACCESS)) {
                let copy = AclEntry { scope: DEFAULT, ..access.clone() };
                self.list.push(copy);
            }
        }
    }

    fn add_mask(&mut self, scope: u32) -> Result<(), Refusal> {
        let at = scope as usize;
        let of_scope = || self.list.iter().filter(move |entry| entry.scope == scope);
        if of_scope().next().is_none() {
            return Ok(());
        }
        let needed = of_scope().any(|entry| !entry.name.is_empty());
        let union = of_scope()
            .filter(|entry| entry.kind == GROUP || !entry.name.is_empty())
            .fold(0, |bits, entry| bits | entry.permissions);
        let given = self.masks[at].take();
        match given {
            None if needed && self.masks_changed[at] => {
                Err(wrong("Invalid ACL: mask is required and cannot be deleted."))
            }
            Some(mask) if !self.scopes_changed[at] || self.masks_changed[at] => {
                self.list.push(mask);
                Ok(())
            }
            None if !needed => Ok(()),
            _ => {
                self.list.push(entry(scope, MASK, union));
                Ok(())
            }
        }
    }
}

fn check(list: &[AclEntry]) -> Result<(), Refusal> {
    if list.windows(2).any(|pair| key(&pair[0]) == key(&pair[1])) {
        return Err(wrong("Invalid ACL: multiple entries with same scope, type and name."));
    }
    if let Some(entry) = list.iter().find(|entry| !entry.name.is_empty() && entry.kind >= MASK) {
        return Err(wrong(format!("Invalid ACL: this entry type must not have a name: {}.", shown(entry))));
    }
    check_count(list)?;
    let has = |scope, kind| list.iter().any(|entry| key(entry) == (scope, kind, ""));
    let complete = |scope| has(scope, USER) && has(scope, GROUP) && has(scope, OTHER);
    if !complete(ACCESS) {
        return Err(wrong("Invalid ACL: the user, group and other entries are required."));
    }
    if list.iter().any(|entry| entry.scope == DEFAULT) && !complete(DEFAULT) {
        return Err(wrong("Invalid default ACL: the user, group and other entries are required."));
    }
    Ok(())
}

fn check_count(list: &[AclEntry]) -> Result<(), Refusal> {
    for (scope, name) in [(ACCESS, "access"), (DEFAULT, "default")] {
        let count = list.iter().filter(|entry| entry.scope == scope).count();
        if count > ENTRIES_MAX {
            let text = format!("Invalid ACL: ACL has {count} {name} entries, which exceeds maximum of {ENTRIES_MAX}.");
            return Err(wrong(text));
        }
    }
    Ok(())
}

fn shown(entry: &AclEntry) -> String {
    let scope = if entry.scope == DEFAULT { "default:" } else { "" };
    let kind = ["user", "group", "mask", "other"].get(entry.kind as usize).unwrap_or(&"?");
    let bits = ["---", "--x", "-w-", "-wx", "r--", "r-x", "rw-", "rwx"][(entry.permissions & 7) as usize];
    format!("{scope}{kind}:{}:{bits}", entry.name)
}

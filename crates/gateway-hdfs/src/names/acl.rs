//! How HDFS changes access control lists, which are stored as `base::acl` says.

use crate::refusal::{ACL, Refusal};
use base::acl::ENTRIES_MAX;
pub(crate) use base::acl::{ACCESS, AclEntry, DEFAULT, GROUP, MASK, OTHER, USER, stored, whole};

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
                let scope = old.scope as usize & 1;
                change.scopes_changed[scope] = true;
                change.masks_changed[scope] |= old.kind == MASK;
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
        if !change.scopes_changed[old.scope as usize & 1] {
            change.keep(old);
        }
    }
    change.finish()
}

/// The list without what children inherit.
pub(crate) fn without_default(list: &[AclEntry]) -> Vec<AclEntry> {
    list.iter().filter(|entry| entry.scope == ACCESS).cloned().collect()
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
        spec.sort_by(|one, other| one.key().cmp(&other.key()));
        check_count(&spec)?;
        let (masks, changed) = ([None, None], [false; 2]);
        Ok(Change { spec, list: Vec::new(), masks, masks_changed: changed, scopes_changed: changed })
    }

    fn find(&self, entry: &AclEntry) -> Option<&AclEntry> {
        self.spec.iter().find(|spec| spec.key() == entry.key())
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
        self.list.sort_by(|one, other| one.key().cmp(&other.key()));
        check(&self.list)?;
        Ok(self.list)
    }

    /// What children inherit about owner, group and others is as for the directory itself, unless it was said.
    fn copy_defaults(&mut self) {
        if !self.list.iter().any(|entry| entry.scope == DEFAULT) {
            return;
        }
        for kind in [USER, GROUP, OTHER] {
            let of = |scope| self.list.iter().find(|entry| entry.key() == (scope, kind, ""));
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
                self.list.push(AclEntry::unnamed(scope, MASK, union));
                Ok(())
            }
        }
    }
}

fn check(list: &[AclEntry]) -> Result<(), Refusal> {
    if list.windows(2).any(|pair| pair[0].key() == pair[1].key()) {
        return Err(wrong("Invalid ACL: multiple entries with same scope, type and name."));
    }
    if let Some(entry) = list.iter().find(|entry| !entry.name.is_empty() && entry.kind >= MASK) {
        return Err(wrong(format!("Invalid ACL: this entry type must not have a name: {}.", shown(entry))));
    }
    check_count(list)?;
    let has = |scope, kind| list.iter().any(|entry| entry.key() == (scope, kind, ""));
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

#[cfg(test)]
mod tests {
    use super::{AclEntry, merged, replaced, stored, whole, without, without_default};
    use crate::refusal::{ACL, Refusal};

    /// Entries as the shell writes them: `user:bob:rw-`, `default:group::r-x`.
    fn list(text: &str) -> Vec<AclEntry> {
        let read = |entry: &str| {
            let (scope, rest) = entry.strip_prefix("default:").map_or((0, entry), |rest| (1, rest));
            let mut parts = rest.split(':');
            let kind = match parts.next() {
                Some("user") => 0,
                Some("group") => 1,
                Some("mask") => 2,
                Some("other") => 3,
                other => panic!("{other:?}"),
            };
            let name = parts.next().expect("a name").to_string();
            let bits = parts.next().unwrap_or("---");
            let permissions = bits.chars().fold(0, |bits, letter| bits << 1 | u32::from(letter != '-'));
            AclEntry { scope, kind, permissions, name }
        };
        text.split(',').filter(|entry| !entry.is_empty()).map(read).collect()
    }

    fn text(list: &[AclEntry]) -> String {
        list.iter().map(super::shown).collect::<Vec<_>>().join(",")
    }

    /// What HDFS stores for the result of a change: the bits, and the entries beside them.
    fn after(result: Result<Vec<AclEntry>, Refusal>, mode: u32) -> String {
        match result {
            Ok(list) => {
                let (bits, stored) = stored(&list, mode);
                format!("{bits:o} {}", text(&stored))
            }
            Err(refusal) => {
                assert_eq!(refusal.class, ACL);
                refusal.text
            }
        }
    }

    /// A list that the store would not have taken ends nothing but the change: with a scope that there is not, without the group's entry, out of
    /// order, twice, with entries that the bits say.
    #[test]
    fn foreign_lists_are_not_believed() {
        let entry = |scope, kind, name: &str| AclEntry { scope, kind, permissions: 7, name: name.to_string() };
        for foreign in [
            vec![entry(7, 0, "")],
            vec![entry(u32::MAX, 9, "x")],
            vec![entry(0, 0, "bob")],
            list("group::r--,user:bob:rwx"),
            list("user:bob:rwx,user:bob:r--,group::r--"),
            list("user::rwx,group::r--"),
            list("group::r--,mask::rwx"),
            list("default:user::rwx"),
            vec![AclEntry { permissions: 8, ..entry(0, 1, "") }],
            (0..100).map(|number| entry(0, 1, &"x".repeat(number))).collect(),
        ] {
            assert!(!base::acl::is_stored(&foreign), "{foreign:?}");
            let spec = list("user::rw-,group::r--,other::---");
            drop(replaced(&foreign, spec.clone()));
            drop(without(&foreign, foreign.clone()));
            drop(merged(&foreign, spec));
            stored(&foreign, 0o640);
            base::acl::inherited(&foreign, 0o640, 0o640, true);
            whole(0o640, &foreign);
        }
    }

    /// A whole list and what is stored of it are the same thing twice.
    #[test]
    fn whole_and_stored() {
        for (mode, entries, expected) in [
            (0o640, "", "user::rw-,group::r--,other::---"),
            (0o1750, "user:bob:rwx,group::r--", "user::rwx,user:bob:rwx,group::r--,mask::r-x,other::---"),
            (
                0o750,
                "default:user::rwx,default:group::r-x,default:other::---",
                "user::rwx,group::r-x,other::---,default:user::rwx,default:group::r-x,default:other::---",
            ),
        ] {
            let full = whole(mode, &list(entries));
            assert_eq!(text(&full), expected);
            assert_eq!(stored(&full, mode), (mode, list(entries)));
        }
    }

    /// Changes give what HDFS gives: masks are computed anew unless somebody said one, defaults are completed from the access
    /// entries, and what makes no sense is refused.
    #[test]
    fn changes() {
        let file = |mode| whole(mode, &[]);
        let named = |mode| whole(mode, &list("user:bob:rwx,group::r--"));
        let table = [
            // Modify: a named entry makes a mask of the union; the group's own entry keeps what the bits were.
            (after(merged(&file(0o640), list("user:bob:rwx")), 0o640), "670 user:bob:rwx,group::r--"),
            (after(merged(&named(0o670), list("user:bob:r--")), 0o670), "640 user:bob:r--,group::r--"),
            (after(merged(&named(0o670), list("mask::r--")), 0o670), "640 user:bob:rwx,group::r--"),
            (after(merged(&named(0o640), list("other::r--")), 0o640), "674 user:bob:rwx,group::r--"),
            (after(merged(&file(0o640), list("other::r-x")), 0o1640), "1645 "),
            (
                after(merged(&file(0o750), list("default:user:bob:rw-")), 0o750),
                "750 default:user::rwx,default:user:bob:rw-,default:group::r-x,default:mask::rwx,default:other::---",
            ),
            (
                after(merged(&file(0o750), list("default:user::r--")), 0o750),
                "750 default:user::r--,default:group::r-x,default:other::---",
            ),
            // What children inherit is changed; the mask that somebody gave for access stays as it was.
            (
                after(merged(&named(0o640), list("default:user::r--")), 0o640),
                "640 user:bob:rwx,group::r--,default:user::r--,default:group::r--,default:other::---",
            ),
            // Remove.
            (after(without(&named(0o670), list("user:bob:")), 0o670), "640 group::r--"),
            (after(without(&named(0o670), list("user:bob:,mask::")), 0o670), "640 "),
            (
                after(without(&named(0o670), list("mask::")), 0o670),
                "Invalid ACL: mask is required and cannot be deleted.",
            ),
            (
                after(without(&file(0o640), list("user::")), 0o640),
                "Invalid ACL: the user, group and other entries are required.",
            ),
            // Set: all of a scope that is named, nothing of the other.
            (
                after(replaced(&named(0o670), list("user::r--,group::---,other::---,user:eve:rw-")), 0o670),
                "460 user:eve:rw-,group::---",
            ),
            (
                after(replaced(&named(0o670), list("default:user::rwx")), 0o670),
                "670 user:bob:rwx,group::r--,default:user::rwx,default:group::r--,default:other::---",
            ),
            (
                after(replaced(&file(0o640), list("user:bob:rwx")), 0o640),
                "Invalid ACL: the user, group and other entries are required.",
            ),
            (
                after(merged(&file(0o640), list("user:bob:r--,user:bob:rw-")), 0o640),
                "Invalid ACL: multiple entries with same scope, type and name.",
            ),
            (
                after(merged(&file(0o640), list("mask:bob:r--")), 0o640),
                "Invalid ACL: this entry type must not have a name: mask:bob:r--.",
            ),
        ];
        for (place, (got, expected)) in table.iter().enumerate() {
            assert_eq!(got, expected, "row {place}");
        }
        let many: String = (0..33).map(|number| format!("user:u{number}:r--,")).collect();
        let refused = after(merged(&file(0o640), list(&many)), 0o640);
        assert_eq!(refused, "Invalid ACL: ACL has 33 access entries, which exceeds maximum of 32.");
        let with_default =
            whole(0o750, &list("user:bob:r--,group::r--,default:user::rwx,default:group::r-x,default:other::---"));
        assert_eq!(stored(&without_default(&with_default), 0o750), (0o750, list("user:bob:r--,group::r--")));
        let unknown = AclEntry { scope: 7, kind: 9, permissions: 99, name: String::new() };
        assert!(merged(&file(0o640), vec![unknown]).is_err());
    }
}

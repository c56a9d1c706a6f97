//! A plain tree in memory, which says what the store must answer and hold.

use crate::world::path;
use base::error::ErrorKind;
use meta::Request;
use meta::request::{NewInode, PutFile};
use std::collections::BTreeMap;

/// The length of a file that is open for writing.
pub const OPEN: u64 = u64::MAX;

/// Names with their lengths; none for directories.
pub type Tree = BTreeMap<String, Option<u64>>;

type Outcome = Result<(), ErrorKind>;

fn parent(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Whether this is a directory: the error is what a path through it gets.
fn directory(tree: &Tree, name: &str) -> Outcome {
    if name.is_empty() {
        return Ok(());
    }
    directory(tree, parent(name))?;
    match tree.get(name) {
        None => Err(ErrorKind::NotFound),
        Some(None) => Ok(()),
        Some(Some(_)) => Err(ErrorKind::Invalid),
    }
}

fn has_children(tree: &Tree, name: &str) -> bool {
    tree.keys().any(|other| parent(other) == name)
}

fn make_directories(tree: &mut Tree, name: &str) -> Outcome {
    if name.is_empty() {
        return Ok(());
    }
    make_directories(tree, parent(name))?;
    match tree.get(name) {
        None => {
            tree.insert(name.to_string(), None);
            Ok(())
        }
        Some(None) => Ok(()),
        Some(Some(_)) => Err(ErrorKind::Invalid),
    }
}

fn put(tree: &mut Tree, name: &str, length: u64, overwrite: bool, parents: bool) -> Outcome {
    let before = tree.clone();
    let made = if parents { make_directories(tree, parent(name)) } else { directory(tree, parent(name)) };
    let outcome = made.and_then(|()| match tree.get(name) {
        Some(None) => Err(ErrorKind::Exists),
        Some(Some(_)) if !overwrite => Err(ErrorKind::Exists),
        _ => Ok(()),
    });
    match outcome {
        Ok(()) => {
            tree.insert(name.to_string(), Some(length));
        }
        Err(_) => *tree = before,
    }
    outcome
}

/// Something to do to a tree.
#[derive(Clone, Debug)]
pub enum Change {
    Mkdir(String, bool),
    /// Names, lengths, overwrite, parents.
    Put(Vec<(String, u64)>, bool, bool),
    Create(String, bool),
    Rename(String, String, bool),
    Delete(String, bool),
    Truncate(String, u64),
    /// The file that grows, the others.
    Concat(String, Vec<String>),
}

impl Change {
    /// Does it to the tree; what the store must answer: one outcome, or one for each file of a compound request.
    pub fn apply(&self, tree: &mut Tree) -> Vec<Outcome> {
        match self {
            Change::Mkdir(name, true) => {
                let before = tree.clone();
                let outcome = make_directories(tree, name);
                if outcome.is_err() {
                    *tree = before;
                }
                vec![outcome]
            }
            Change::Mkdir(name, false) => vec![directory(tree, parent(name)).and_then(|()| {
                if tree.contains_key(name) {
                    return Err(ErrorKind::Exists);
                }
                tree.insert(name.clone(), None);
                Ok(())
            })],
            Change::Put(files, overwrite, parents) => {
                files.iter().map(|(name, length)| put(tree, name, *length, *overwrite, *parents)).collect()
            }
            Change::Create(name, overwrite) => vec![put(tree, name, OPEN, *overwrite, false)],
            Change::Rename(from, to, replace) => vec![rename(tree, from, to, *replace)],
            Change::Delete(name, recursive) => vec![delete(tree, name, *recursive)],
            Change::Truncate(name, length) => vec![truncate(tree, name, *length)],
            Change::Concat(target, sources) => vec![concat(tree, target, sources)],
        }
    }

    /// The request for it. `group` has room for small files.
    pub fn request(&self, group: base::id::GroupId, offset: u64) -> Request {
        match self {
            Change::Mkdir(name, parents) => {
                Request::Mkdir { path: path(name), parents: *parents, new: NewInode::with_mode(0o755) }
            }
            Change::Put(files, overwrite, parents) => Request::PutFiles {
                files: files
                    .iter()
                    .map(|(name, length)| PutFile {
                        path: path(name),
                        group,
                        offset,
                        length: *length,
                        crc: 5,
                        modified: None,
                        accessed: None,
                        mode: 0o644,
                        overwrite: *overwrite,
                        parents: *parents,
                        directory: false,
                    })
                    .collect(),
            },
            Change::Create(name, overwrite) => Request::Create {
                replicas_max: 1,
                path: path(name),
                overwrite: *overwrite,
                parents: false,
                new: NewInode::with_mode(0o644),
            },
            Change::Rename(from, to, replace) => {
                Request::Rename { from: path(from), to: path(to), replace: *replace, removes: false }
            }
            Change::Delete(name, recursive) => Request::Delete { path: path(name), recursive: *recursive },
            Change::Truncate(name, length) => Request::Truncate { path: path(name), length: *length },
            Change::Concat(target, sources) => {
                Request::Concat { target: path(target), sources: sources.iter().map(|name| path(name)).collect() }
            }
        }
    }
}

fn rename(tree: &mut Tree, from: &str, to: &str, replace: bool) -> Outcome {
    directory(tree, parent(from))?;
    let kind = *tree.get(from).ok_or(ErrorKind::NotFound)?;
    if from == to {
        return Ok(());
    }
    if kind.is_none() && to.starts_with(&format!("{from}/")) {
        return Err(ErrorKind::Invalid);
    }
    directory(tree, parent(to))?;
    if let Some(old) = tree.get(to) {
        if !replace || old.is_none() != kind.is_none() || has_children(tree, to) {
            return Err(ErrorKind::Exists);
        }
        tree.remove(to);
    }
    let below = format!("{from}/");
    let moved: Vec<String> = tree.keys().filter(|name| *name == from || name.starts_with(&below)).cloned().collect();
    for name in moved {
        if let Some(value) = tree.remove(&name) {
            tree.insert(format!("{to}{}", &name[from.len()..]), value);
        }
    }
    Ok(())
}

fn delete(tree: &mut Tree, name: &str, recursive: bool) -> Outcome {
    directory(tree, parent(name))?;
    tree.get(name).ok_or(ErrorKind::NotFound)?;
    if !recursive && has_children(tree, name) {
        return Err(ErrorKind::Exists);
    }
    let below = format!("{name}/");
    tree.retain(|other, _| other != name && !other.starts_with(&below));
    Ok(())
}

/// The length of a file that nobody writes.
fn closed(tree: &Tree, name: &str) -> Result<u64, ErrorKind> {
    directory(tree, parent(name))?;
    match tree.get(name).ok_or(ErrorKind::NotFound)? {
        None => Err(ErrorKind::Invalid),
        Some(OPEN) => Err(ErrorKind::Busy),
        Some(length) => Ok(*length),
    }
}

fn truncate(tree: &mut Tree, name: &str, length: u64) -> Outcome {
    if length > closed(tree, name)? {
        return Err(ErrorKind::Invalid);
    }
    tree.insert(name.to_string(), Some(length));
    Ok(())
}

fn concat(tree: &mut Tree, target: &str, sources: &[String]) -> Outcome {
    let mut length = closed(tree, target)?;
    let mut taken = vec![target];
    for source in sources {
        length += closed(tree, source)?;
        if taken.contains(&source.as_str()) {
            return Err(ErrorKind::Invalid);
        }
        taken.push(source);
    }
    for source in sources {
        tree.remove(source);
    }
    tree.insert(target.to_string(), Some(length));
    Ok(())
}

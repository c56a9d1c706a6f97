//! Two trees, file by file and byte by byte.

use super::tree::Tree;
use base::error::Result;
use base::unit::MIB;

use std::io::Read;
use std::path::Path;

/// Differences that are named; the rest is only counted.
const NAMED_MAX: usize = 10;

/// What a comparison found.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Files that are the same on both sides.
    pub same: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Files that are missing, differ, or are there without having been put.
    pub wrong: u64,
    /// The first of those, in words.
    pub named: Vec<String>,
}

impl Comparison {
    fn wrong(&mut self, what: &str, file: &Path) {
        self.wrong += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(format!("{} {what}", file.display()));
        }
    }
}

/// Compares what was put with what came back.
pub fn compare(put: &Tree, back: &Path) -> Result<Comparison> {
    let back = Tree::walk(back)?;
    let mut comparison = Comparison::default();
    for file in &put.files {
        if back.files.binary_search(file).is_err() {
            comparison.wrong("is missing", file);
            continue;
        }
        match same(&put.root.join(file), &back.root.join(file))? {
            Some(bytes) => {
                comparison.same += 1;
                comparison.bytes += bytes;
            }
            None => comparison.wrong("differs", file),
        }
    }
    for file in &back.files {
        if put.files.binary_search(file).is_err() {
            comparison.wrong("was never put", file);
        }
    }
    Ok(comparison)
}

/// The length of both files if they are the same.
pub fn same(one: &Path, other: &Path) -> Result<Option<u64>> {
    let (mut one, mut other) = (os::file::open(one)?, os::file::open(other)?);
    let length = one.metadata()?.len();
    if other.metadata()?.len() != length {
        return Ok(None);
    }
    let piece = usize::try_from(length.clamp(1, MIB)).unwrap_or(MIB as usize);
    let (mut left, mut right) = (vec![0; piece], vec![0; piece]);
    let mut compared = 0;
    while compared < length {
        let count = one.read(&mut left)?;
        if count == 0 {
            return Ok(None);
        }
        if other.read_exact(&mut right[..count]).is_err() || left[..count] != right[..count] {
            return Ok(None);
        }
        compared += count as u64;
    }
    Ok(Some(length))
}

#[cfg(test)]
mod tests {
    use super::compare;
    use crate::demo::tree::Tree;
    use harness::scratch::Scratch;
    use std::fs::{create_dir_all, write};

    /// A changed byte, a missing file and a file too many are each found and named; equal trees have none.
    #[test]
    fn differences_are_found() {
        let scratch = Scratch::new(&std::env::temp_dir(), "stormwell-compare").unwrap();
        let (put, back) = (scratch.path().join("put"), scratch.path().join("back"));
        for root in [&put, &back] {
            create_dir_all(root.join("a/b")).unwrap();
            write(root.join("a/b/one"), vec![1; 3 << 20]).unwrap();
            write(root.join("a/two"), b"two").unwrap();
            write(root.join("empty"), b"").unwrap();
        }
        let tree = Tree::walk(&put).unwrap();
        let found = compare(&tree, &back).unwrap();
        assert_eq!((found.same, found.wrong), (3, 0));
        let mut changed = vec![1; 3 << 20];
        changed[(3 << 20) - 1] = 2;
        write(back.join("a/b/one"), changed).unwrap();
        std::fs::remove_file(back.join("empty")).unwrap();
        write(back.join("extra"), b"").unwrap();
        let found = compare(&tree, &back).unwrap();
        assert_eq!((found.same, found.wrong), (1, 3));
        assert_eq!(found.named, ["a/b/one differs", "empty is missing", "extra was never put"]);
    }
}

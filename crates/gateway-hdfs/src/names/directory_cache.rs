//! Directories that were looked up lately: what lies above a path is asked for once, and a change that nothing speaks against
//! goes to the store without a question before it. The store refuses it if any directory has changed since.

use client::Attributes;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that all attributes together may take. Beyond that all are forgotten: cheaper than knowing which was used last.
const BYTES_MAX: usize = 8 << 20;

/// What attributes take beyond their texts.
const ATTRIBUTES: usize = 200;

/// The directories on the way to something: the root, then each name.
pub(crate) type Above = Arc<[Attributes]>;

/// Directories that were looked up lately.
#[derive(Default)]
pub(crate) struct DirectoryCache(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// The version of the directories at which all were looked up.
    version: u64,
    /// By the path of the last.
    by_path: BTreeMap<Box<str>, Above>,
    /// About how many bytes they take.
    bytes: usize,
}

impl DirectoryCache {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The way down to this directory, itself included, and the version of the directories at which it was looked up.
    pub fn way_to(&self, directory: &str) -> Option<(Above, u64)> {
        let table = self.table();
        table.by_path.get(directory).map(|above| (above.clone(), table.version))
    }

    /// The way down to this directory was looked up.
    pub fn looked_up(&self, directory: &str, above: &Above, version: u64) {
        let mut table = self.table();
        let kept = |one: &Attributes| ATTRIBUTES + one.owner.len() + one.group.len() + one.note.len();
        let bytes = directory.len() + above.iter().map(kept).sum::<usize>();
        if table.version != version || table.bytes.saturating_add(bytes) > BYTES_MAX {
            *table = Table { version, ..Table::default() };
        }
        // A version of zero is none.
        if version != 0 && bytes <= BYTES_MAX && table.by_path.insert(directory.into(), above.clone()).is_none() {
            table.bytes += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Above, BYTES_MAX, DirectoryCache};
    use client::Attributes;

    fn above(count: usize, note: usize) -> Above {
        vec![Attributes { directory: true, note: vec![1; note], ..Attributes::default() }; count].into()
    }

    /// What was looked up at one version is known at that one; with another version all before is forgotten. A store without
    /// versions is asked each time.
    #[test]
    fn versions() {
        let known = DirectoryCache::default();
        known.looked_up("/a/b", &above(3, 0), 7);
        known.looked_up("/c", &above(2, 0), 7);
        assert_eq!(known.way_to("/a/b"), Some((above(3, 0), 7)));
        assert_eq!(known.way_to("/a"), None);
        known.looked_up("/d", &above(2, 0), 8);
        assert_eq!((known.way_to("/a/b"), known.way_to("/c")), (None, None));
        assert_eq!(known.way_to("/d"), Some((above(2, 0), 8)));
        known.looked_up("/e", &above(2, 0), 0);
        assert_eq!((known.way_to("/d"), known.way_to("/e")), (None, None));
    }

    /// What is known takes a bounded number of bytes, whatever is looked up.
    #[test]
    fn bounded() {
        let known = DirectoryCache::default();
        for number in 0..20_000 {
            let path = format!("/directory-{number}");
            known.looked_up(&path, &above(3, 1000), 1);
            known.looked_up(&path, &above(3, 1000), 1);
            assert!(known.way_to(&path).is_some());
            assert!(known.table().bytes <= BYTES_MAX, "{number}");
        }
        known.looked_up("/large", &above(BYTES_MAX / 1000, 1000), 1);
        assert!(known.way_to("/large").is_none());
    }
}

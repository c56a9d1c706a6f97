//! What one worker's directory must hold: names and bytes as they were acknowledged, and changes whose fate is open.

use super::report::{Finding, Found, Kind};
use std::collections::{BTreeMap, BTreeSet};

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A directory.
    Directory,
    /// A file.
    File(File),
}

/// A file: a content, and how much of it must and may be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// Which content.
    pub content: u64,
    /// Bytes that were acknowledged at a level that survives.
    pub at_least: u64,
    /// Bytes that were sent.
    pub at_most: u64,
}

/// Names, as absolute paths.
pub type Names = BTreeMap<String, Entry>;

/// A change whose fate is open: it was asked for and not answered, or answered after an image was begun.
#[derive(Clone, Debug)]
pub struct Change {
    /// Each path and what it stands for afterwards.
    pub edits: Vec<(String, Option<Entry>)>,
    /// All of it happens or nothing; else each edit for itself.
    pub whole: bool,
}

/// The model.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// With every change that was acknowledged.
    pub now: Names,
    /// Without those in `open`.
    base: Names,
    /// In the order in which they were asked for. What is found holds those up to some place and none behind it.
    open: Vec<Change>,
    /// An image is being taken: acknowledged changes may or may not be in it.
    holding: bool,
}

/// A file or directory as it was found.
#[derive(Clone, Debug)]
pub enum Actual {
    /// A directory.
    Directory,
    /// A file's length, and the contents that it is a beginning of.
    File(u64, BTreeSet<u64>),
}

fn apply(names: &mut Names, change: &Change) {
    for (path, entry) in &change.edits {
        match entry {
            Some(entry) => names.insert(path.clone(), *entry),
            None => names.remove(path),
        };
    }
}

impl Model {
    /// A change is asked for.
    pub fn begin(&mut self, change: Change) {
        self.open.push(change);
    }

    /// The change asked for last was acknowledged.
    pub fn done(&mut self) {
        let Some(change) = self.open.last() else { unreachable!("a change was begun") };
        apply(&mut self.now, change);
        if !self.holding
            && let Some(change) = self.open.pop()
        {
            apply(&mut self.base, &change);
        }
    }

    /// More bytes of a content are on their way.
    pub fn sent(&mut self, path: &str, at_most: u64) {
        let Some(Entry::File(file)) = self.now.get(path) else { return };
        let content = file.content;
        let edits = self.open.iter_mut().flat_map(|change| &mut change.edits).filter_map(|(_, entry)| entry.as_mut());
        for entry in self.now.values_mut().chain(self.base.values_mut()).chain(edits) {
            if let Entry::File(file) = entry
                && file.content == content
            {
                file.at_most = file.at_most.max(at_most);
            }
        }
    }

    /// So many bytes of a file were acknowledged at a level that survives.
    pub fn kept(&mut self, path: &str, at_least: u64) {
        let Some(Entry::File(file)) = self.now.get(path) else { return };
        let file = File { at_least: file.at_least.max(at_least), ..*file };
        self.begin(Change { edits: vec![(path.to_string(), Some(Entry::File(file)))], whole: true });
        self.done();
    }

    /// How much of each content was sent, at the most.
    pub fn all_sent(&self) -> BTreeMap<u64, u64> {
        let edits = self.open.iter().flat_map(|change| &change.edits).filter_map(|(_, entry)| entry.as_ref());
        let mut sent = BTreeMap::new();
        for entry in edits.chain(self.now.values()) {
            if let Entry::File(file) = entry {
                let most: &mut u64 = sent.entry(file.content).or_default();
                *most = file.at_most.max(*most);
            }
        }
        sent
    }

    /// What was sent and is not there may be on its way: files may still grow to what `sent` says.
    pub fn may_grow(&mut self, sent: &BTreeMap<u64, u64>) {
        for entry in self.now.values_mut().chain(self.base.values_mut()) {
            if let Entry::File(file) = entry
                && let Some(most) = sent.get(&file.content)
            {
                file.at_most = file.at_most.max(*most);
            }
        }
    }

    /// From here on acknowledged changes stay open.
    pub fn hold(&mut self) {
        self.holding = true;
    }

    /// The contents that a path may have.
    pub fn contents(&self, path: &str) -> BTreeSet<u64> {
        let edits = self.open.iter().flat_map(|change| &change.edits).filter(|(edited, _)| edited == path);
        let entries = edits.filter_map(|(_, entry)| entry.as_ref()).chain(self.base.get(path));
        let file = |entry: &Entry| match entry {
            Entry::File(file) => Some(file.content),
            Entry::Directory => None,
        };
        entries.filter_map(file).collect()
    }

    /// Compares with what was found, which becomes the state to go on from.
    pub fn settle(&mut self, found: &BTreeMap<String, Actual>) -> Found<()> {
        let mut names = self.base.clone();
        let mut first = None;
        for place in 0..=self.open.len() {
            let next = self.open.get(place);
            let in_parts = next.filter(|change| !change.whole);
            match matches(&names, None, found).or_else(|finding| match in_parts {
                Some(change) => matches(&names, Some(change), found),
                None => Err(finding),
            }) {
                Ok(settled) => {
                    *self = Model { now: settled.clone(), base: settled, open: Vec::new(), holding: false };
                    return Ok(());
                }
                Err(finding) => drop(first.get_or_insert(finding)),
            }
            if let Some(change) = next {
                apply(&mut names, change);
            }
        }
        let Some(mut finding) = first else { unreachable!("at least one state was compared") };
        finding.text.push_str(&format!("; changes whose fate was open: {:?}", self.open));
        Err(finding)
    }
}

/// Whether these names are what was found, where the paths of `in_parts` may also be as that change makes them. Answers with
/// the names as they were found.
fn matches(names: &Names, in_parts: Option<&Change>, found: &BTreeMap<String, Actual>) -> Found<Names> {
    let mut settled = Names::new();
    let other = |path: &String| {
        let edits = in_parts.map_or(&[][..], |change| &change.edits);
        edits.iter().find(|(edited, _)| edited == path).map(|(_, entry)| entry.as_ref())
    };
    for (path, entry) in names {
        let first = fits(path, Some(entry), found.get(path));
        let fitting = match (first, other(path)) {
            (Err(_), Some(changed)) => fits(path, changed, found.get(path)),
            (first, _) => first,
        };
        settled.extend(fitting?.map(|entry| (path.clone(), entry)));
    }
    for (path, actual) in found.iter().filter(|(path, _)| !names.contains_key(*path)) {
        let changed = other(path).flatten();
        settled.extend(fits(path, changed, Some(actual))?.map(|entry| (path.clone(), entry)));
    }
    Ok(settled)
}

/// Whether a path is as it should be; as it was found, with its real length.
fn fits(path: &str, expected: Option<&Entry>, found: Option<&Actual>) -> Found<Option<Entry>> {
    let finding = |kind, text: String| Err(Finding::new(kind, format!("{path} {text}")));
    match (expected, found) {
        (None, None) => Ok(None),
        (None, Some(actual)) => finding(Kind::Resurrected, format!("is there as {actual:?} and should not be")),
        (Some(entry), None) => finding(Kind::Lost, format!("is gone; it was {entry:?}")),
        (Some(Entry::Directory), Some(Actual::Directory)) => Ok(Some(Entry::Directory)),
        (Some(Entry::File(file)), Some(Actual::File(length, contents))) => {
            if !contents.contains(&file.content) {
                return finding(Kind::Corrupt, format!("has {length} bytes that are not those of {file:?}"));
            }
            if *length < file.at_least {
                return finding(Kind::Lost, format!("has {length} bytes; {file:?}"));
            }
            if *length > file.at_most {
                return finding(Kind::Corrupt, format!("has {length} bytes; {file:?}"));
            }
            Ok(Some(Entry::File(File { at_least: *length, at_most: *length, ..*file })))
        }
        (Some(entry), Some(actual)) => finding(Kind::Corrupt, format!("should be {entry:?} and is {actual:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Actual, Change, Entry, File, Model};
    use crate::trials::report::Kind;
    use std::collections::BTreeMap;

    fn file(content: u64, length: u64) -> Entry {
        Entry::File(File { content, at_least: length, at_most: length })
    }

    fn put(path: &str, entry: Option<Entry>) -> Change {
        Change { edits: vec![(path.to_string(), entry)], whole: true }
    }

    fn found(files: &[(&str, u64, u64)]) -> BTreeMap<String, Actual> {
        let actual = |(path, content, length): &(&str, u64, u64)| {
            ((*path).to_string(), Actual::File(*length, [*content].into()))
        };
        files.iter().map(actual).collect()
    }

    /// Each way to lose, damage or revive something is told apart; what was open may be so or so, a rename only as a whole.
    #[test]
    fn every_fault_is_seen() {
        let mut model = Model::default();
        model.begin(put("/a", Some(file(1, 10))));
        model.done();
        let kind = |model: &Model, files: &[(&str, u64, u64)]| {
            model.clone().settle(&found(files)).map_err(|finding| finding.kind)
        };
        assert_eq!(kind(&model, &[("/a", 1, 10)]), Ok(()));
        assert_eq!(kind(&model, &[]), Err(Kind::Lost));
        assert_eq!(kind(&model, &[("/a", 1, 9)]), Err(Kind::Lost));
        assert_eq!(kind(&model, &[("/a", 1, 11)]), Err(Kind::Corrupt));
        assert_eq!(kind(&model, &[("/a", 2, 10)]), Err(Kind::Corrupt));
        assert_eq!(kind(&model, &[("/a", 1, 10), ("/b", 1, 0)]), Err(Kind::Resurrected));
        let rename = vec![("/a".to_string(), None), ("/b".to_string(), Some(file(1, 10)))];
        model.begin(Change { edits: rename.clone(), whole: true });
        assert_eq!(kind(&model, &[("/a", 1, 10)]), Ok(()));
        assert_eq!(kind(&model, &[("/b", 1, 10)]), Ok(()));
        assert!(kind(&model, &[]).is_err());
        assert!(kind(&model, &[("/a", 1, 10), ("/b", 1, 10)]).is_err());
        model.open = vec![Change { edits: rename, whole: false }];
        assert_eq!(kind(&model, &[]), Ok(()));
    }

    /// While an image is taken, acknowledged changes may be in it up to any of them, but none without those before.
    #[test]
    fn images_hold_a_beginning() {
        let mut model = Model::default();
        model.hold();
        for (path, content) in [("/a", 1), ("/b", 2), ("/c", 3)] {
            model.begin(put(path, Some(file(content, 5))));
            model.done();
        }
        assert_eq!(model.now.len(), 3);
        for held in [&[][..], &[("/a", 1, 5)], &[("/a", 1, 5), ("/b", 2, 5)]] {
            assert!(model.clone().settle(&found(held)).is_ok(), "{held:?}");
        }
        assert!(model.clone().settle(&found(&[("/b", 2, 5)])).is_err());
    }

    /// Bytes that were sent and did not come may come later, no more than were sent and none of another content.
    #[test]
    fn bytes_on_their_way() {
        let mut model = Model::default();
        model.begin(put("/a", Some(file(1, 0))));
        model.done();
        model.sent("/a", 100);
        let sent = model.all_sent();
        model.settle(&found(&[("/a", 1, 40)])).expect("any length up to 100 fits");
        assert!(model.clone().settle(&found(&[("/a", 1, 60)])).is_err());
        model.may_grow(&sent);
        for (content, length, fits) in [(1, 39, false), (1, 60, true), (1, 101, false), (2, 60, false)] {
            assert_eq!(model.clone().settle(&found(&[("/a", content, length)])).is_ok(), fits, "{content} {length}");
        }
    }

    /// An open file may have any length between what was kept and what was sent.
    #[test]
    fn lengths_between() {
        let mut model = Model::default();
        model.begin(put("/a", Some(file(1, 0))));
        model.done();
        model.sent("/a", 100);
        model.kept("/a", 40);
        for (length, fits) in [(39, false), (40, true), (77, true), (100, true), (101, false)] {
            assert_eq!(model.clone().settle(&found(&[("/a", 1, length)])).is_ok(), fits, "{length}");
        }
    }
}

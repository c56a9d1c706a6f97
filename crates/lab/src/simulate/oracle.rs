//! What must be there: for each file the bytes that were handed in and the level up to which they were acknowledged, for each
//! chunk of a bag how far it has come. It is told before a call what the call may do, and afterwards what it did.

use super::format::content;
use std::collections::{BTreeMap, BTreeSet};

/// A promise that was broken, in a sentence.
#[derive(Clone, Debug)]
pub struct Broken(pub String);

/// The outcome of a check.
pub type Check<T> = Result<T, Broken>;

/// What is known of one file's bytes. They are those of `content` for its tag; only lengths need to be kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct Promise {
    /// Bytes that were handed to a writer: there are never more.
    pub handed: u64,
    /// Bytes that a kill may not take.
    pub written: u64,
    /// Bytes that nothing may take.
    pub synced: u64,
}

/// Where the bytes of a file are that only a kill may not take.
#[derive(Clone, Debug, Default)]
struct Whereabouts {
    /// Of each column of each group that may have some: the machines that have them, one for each replica.
    columns: Vec<BTreeSet<String>>,
    /// Nothing was handed in since somebody looked; else new bytes may be anywhere.
    is_known: bool,
    /// Machines with some whose power went since all was synced last: what they have may be short, also when they are back and looked at again.
    short: BTreeSet<String>,
    /// Machines that ended, killed or without power, since the file was opened: readers of its open group need not count what they have.
    ended: BTreeSet<String>,
    /// Power losses that may have taken some.
    losses: u64,
}

impl Whereabouts {
    /// Whether some of the bytes are on this machine, or may be.
    fn may_be_at(&self, machine: &str) -> bool {
        !self.is_known || self.columns.iter().any(|of| of.contains(machine))
    }

    /// Whether everything outlives the power of a machine that is in `short`: it is elsewhere, or there as well.
    fn outlives(&self, machine: &str) -> bool {
        let is_kept = |of: &BTreeSet<String>| !of.contains(machine) || of.iter().any(|one| !self.short.contains(one));
        self.is_known && self.columns.iter().all(is_kept)
    }
}

/// What may stand at a path: nothing, or the file of this tag.
pub type Stand = Option<u64>;

/// A rename whose outcome is not known: the file of `tag` is at `from`, or at `to` instead of what was there.
#[derive(Clone, Debug)]
struct Rename {
    from: String,
    to: String,
    tag: u64,
}

/// What must be in the store.
#[derive(Default)]
pub struct Oracle {
    paths: BTreeMap<String, BTreeSet<Stand>>,
    files: BTreeMap<u64, Promise>,
    renames: Vec<Rename>,
    next_tag: u64,
    whereabouts: BTreeMap<u64, Whereabouts>,
    /// The machine of each device that somebody was told of.
    devices: BTreeMap<u128, String>,
    /// Kills and power losses so far.
    pub ends: u64,
    /// Chunks of all bags.
    pub chunks: BTreeMap<u64, ChunkState>,
    /// Bags whose seal was acknowledged: they take no chunks any more.
    pub sealed: BTreeSet<usize>,
    /// Bags whose end was told: every chunk that they took has been handled, one whose push is acknowledged later, too.
    pub ended: BTreeSet<usize>,
    /// A device left service after a failed sync, and nothing else is wrong: everything can be read.
    pub out_of_service: bool,
    /// Names that somebody saw who did not make them.
    pub seen: BTreeSet<String>,
    /// No file is open any more: of each what all its replicas have is known to the store.
    pub is_all_closed: bool,
}

/// How far a chunk of a bag has come. A chunk is named by a number in its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChunkState {
    /// Which bag.
    pub bag: usize,
    /// Its length in bytes.
    pub length: usize,
    /// Its push was acknowledged.
    pub pushed: bool,
    /// Acknowledgements of it that were accepted.
    pub accepted: u64,
    /// Acknowledgements of it whose fate is not known.
    pub unsure: u64,
    /// It was pushed in a session that was over: it must never come.
    pub unwanted: bool,
}

impl Oracle {
    /// What may stand at a path.
    pub fn stands(&self, path: &str) -> BTreeSet<Stand> {
        self.paths.get(path).cloned().unwrap_or_else(|| BTreeSet::from([None]))
    }

    /// What stands at a path, if that is certain.
    pub fn certain(&self, path: &str) -> Option<Stand> {
        let stands = self.stands(path);
        if stands.len() == 1 { stands.first().copied() } else { None }
    }

    /// The promise of a file.
    pub fn promise(&self, tag: u64) -> Promise {
        self.files.get(&tag).copied().unwrap_or_default()
    }

    /// Changes the promise of a file.
    pub fn promise_mut(&mut self, tag: u64) -> &mut Promise {
        self.files.entry(tag).or_default()
    }

    /// A call is made that may put this at the path.
    pub fn may_become(&mut self, path: &str, stand: Stand) {
        let mut stands = self.stands(path);
        stands.insert(stand);
        self.paths.insert(path.to_string(), stands);
    }

    /// The path is known to hold this.
    pub fn becomes(&mut self, path: &str, stand: Stand) {
        self.paths.insert(path.to_string(), BTreeSet::from([stand]));
    }

    /// A tag for a new file.
    pub fn new_tag(&mut self) -> u64 {
        self.next_tag += 1;
        self.files.insert(self.next_tag, Promise::default());
        self.next_tag
    }

    /// A rename begins.
    pub fn rename_begins(&mut self, from: &str, to: &str, tag: u64) {
        self.may_become(from, None);
        self.may_become(to, Some(tag));
        self.renames.push(Rename { from: from.to_string(), to: to.to_string(), tag });
    }

    /// A rename is known to have happened, or not.
    pub fn rename_ends(&mut self, from: &str, to: &str, tag: u64, before: Stand, happened: bool) {
        self.renames.retain(|rename| rename.tag != tag || rename.from != from || rename.to != to);
        self.becomes(from, if happened { None } else { Some(tag) });
        self.becomes(to, if happened { Some(tag) } else { before });
    }

    /// Bytes are handed to the writer of this file: nobody knows on which machine they come to lie. Those before them stay where they are.
    pub fn may_be_anywhere(&mut self, tag: u64) {
        self.whereabouts.entry(tag).or_default().is_known = false;
    }

    /// What is not synced of a file is on these devices, all of it on each of a column: a power loss elsewhere does not touch it. False: of one of
    /// them it is not known whose it is.
    pub fn is_on(&mut self, tag: u64, columns: &[BTreeSet<u128>]) -> bool {
        let machines = |devices: &BTreeSet<u128>| -> Option<BTreeSet<String>> {
            devices.iter().map(|device| self.devices.get(device).cloned()).collect()
        };
        let Some(columns) = columns.iter().map(machines).collect() else { return false };
        let whereabouts = self.whereabouts.entry(tag).or_default();
        (whereabouts.columns, whereabouts.is_known) = (columns, true);
        true
    }

    /// A device is in this machine. It stays there, whatever becomes of the node.
    pub fn device_is_at(&mut self, device: u128, machine: &str) {
        self.devices.insert(device, machine.to_string());
    }

    /// Power losses that may have taken bytes of this file which were not synced.
    pub fn losses_of(&self, tag: u64) -> u64 {
        self.whereabouts.get(&tag).map_or(0, |whereabouts| whereabouts.losses)
    }

    /// The power of a machine went: of files with bytes there alone only what was synced is promised. Returns how many promises of more were
    /// kept because their bytes are elsewhere, and how many because they are elsewhere as well.
    pub fn power_lost(&mut self, machine: &str) -> (u64, u64) {
        let (mut beside, mut by_others) = (0, 0);
        for (tag, promise) in &mut self.files {
            let whereabouts = self.whereabouts.entry(*tag).or_default();
            whereabouts.ended.insert(machine.to_string());
            let is_there = whereabouts.may_be_at(machine);
            if is_there {
                whereabouts.short.insert(machine.to_string());
            }
            if !whereabouts.outlives(machine) {
                whereabouts.losses += 1;
                promise.written = promise.synced;
            } else if promise.written > promise.synced {
                *(if is_there { &mut by_others } else { &mut beside }) += 1;
            }
        }
        (beside, by_others)
    }

    /// A machine's processes were killed: what they wrote is there.
    pub fn killed(&mut self, machine: &str) {
        for tag in self.files.keys() {
            self.whereabouts.entry(*tag).or_default().ended.insert(machine.to_string());
        }
    }

    /// Everything that is promised of a file is synced on all that have it: nobody lacks any of it.
    pub fn all_is_synced(&mut self, tag: u64) {
        self.whereabouts.entry(tag).or_default().short.clear();
    }

    /// A file was opened to be written: its next group goes to machines as they run now.
    pub fn is_opened(&mut self, tag: u64) {
        self.whereabouts.entry(tag).or_default().ended.clear();
    }

    /// Whether a machine that has some of a file's bytes, or may have, lost some of them: its writer may be refused there, and where no other
    /// one answers be told that others have the file.
    pub fn may_be_short(&self, tag: u64) -> bool {
        let Some(whereabouts) = self.whereabouts.get(&tag) else { return false };
        let is_short = |of: &BTreeSet<String>| !of.is_disjoint(&whereabouts.short);
        !whereabouts.short.is_empty() && (!whereabouts.is_known || whereabouts.columns.iter().any(is_short))
    }

    /// Whether a promise of which it is known where its bytes are would end with the power of this machine.
    pub fn would_void(&self, machine: &str) -> bool {
        self.files.iter().filter(|(_, promise)| promise.written > promise.synced).any(|(tag, _)| {
            let Some(mut whereabouts) = self.whereabouts.get(tag).filter(|one| one.is_known).cloned() else {
                return false;
            };
            whereabouts.short.insert(machine.to_string());
            !whereabouts.outlives(machine)
        })
    }

    /// The least that a reader is shown of a file. While it is open a reader counts no replica whose machine ended, as long as there are others; if
    /// there is none the least of them all is what it is shown, and one that lost its power may lack all that is not synced. Who ends the file takes
    /// the longest.
    pub fn shown(&self, tag: u64) -> u64 {
        let promise = self.promise(tag);
        let is_hidden = self.whereabouts.get(&tag).is_some_and(|Whereabouts { columns, ended, short, .. }| {
            columns.iter().any(|of| of.is_subset(ended) && !of.is_disjoint(short))
        });
        if is_hidden && !self.is_all_closed { promise.synced } else { promise.written.max(promise.synced) }
    }

    /// Everything below a directory is gone.
    pub fn cleared(&mut self, directory: &str) {
        let prefix = format!("{directory}/");
        self.renames.retain(|rename| !rename.from.starts_with(&prefix));
        self.paths.retain(|path, _| !path.starts_with(&prefix));
    }

    /// Paths under a directory that hold something, or may.
    pub fn paths_under(&self, directory: &str) -> Vec<String> {
        let prefix = format!("{directory}/");
        self.paths.keys().filter(|path| path.starts_with(&prefix)).cloned().collect()
    }

    /// How many paths under a directory may hold this or that.
    pub fn uncertain_under(&self, directory: &str) -> usize {
        let prefix = format!("{directory}/");
        self.paths.iter().filter(|(path, stands)| path.starts_with(&prefix) && stands.len() > 1).count()
    }

    /// Which file of those that may stand at a path has these bytes; an error if none.
    pub fn recognise(&self, path: &str, bytes: &[u8]) -> Check<u64> {
        let stands = self.stands(path);
        let mut reasons = Vec::new();
        for tag in stands.iter().flatten() {
            let promise = self.promise(*tag);
            let (least, most) = (self.shown(*tag), promise.handed);
            if (bytes.len() as u64) < least || bytes.len() as u64 > most {
                reasons.push(format!("file {tag} has {least} to {most} bytes ({promise:?})"));
                continue;
            }
            let wanted = content(*tag, 0, bytes.len());
            match bytes.iter().zip(&wanted).position(|(got, want)| got != want) {
                None => return Ok(*tag),
                Some(place) => reasons.push(format!("byte {place} is not that of file {tag} ({promise:?})")),
            }
        }
        if stands.iter().all(Option::is_none) {
            reasons.push("nothing should be there: it was deleted or never made".to_string());
        }
        Err(Broken(format!("{path}: {} bytes were read: {}", bytes.len(), reasons.join("; "))))
    }

    /// A path was looked at when nothing was under way: it holds this from now on.
    pub fn settled(&mut self, path: &str, stand: Stand) {
        self.becomes(path, stand);
    }

    /// Checks renames whose outcome was not known, after all paths of a directory were looked at.
    pub fn check_renames(&mut self, directory: &str) -> Check<()> {
        let prefix = format!("{directory}/");
        let (mine, others): (Vec<Rename>, Vec<Rename>) =
            std::mem::take(&mut self.renames).into_iter().partition(|rename| rename.from.starts_with(&prefix));
        self.renames = others;
        for Rename { from, to, tag } in mine {
            let places = [&from, &to].into_iter().filter(|path| self.certain(path) == Some(Some(tag))).count();
            if places != 1 {
                let text = format!("file {tag} was renamed from {from} to {to} and is now in {places} of these places");
                return Err(Broken(text));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Oracle, Promise};
    use std::collections::BTreeSet;

    /// A power loss takes back what is promised of files with bytes on that machine, or of which nobody knows where they are, and
    /// of no others.
    #[test]
    fn power_is_lost_where_it_is() {
        let mut oracle = Oracle::default();
        oracle.device_is_at(1, "node1");
        oracle.device_is_at(2, "node2");
        let [here, both, unknown, again] = [&[1][..], &[1, 2], &[1, 3], &[1]].map(|devices| {
            let tag = oracle.new_tag();
            *oracle.promise_mut(tag) = Promise { handed: 9, written: 7, synced: 3 };
            let columns: Vec<BTreeSet<u128>> = devices.iter().map(|device| BTreeSet::from([*device])).collect();
            assert_eq!(oracle.is_on(tag, &columns), !devices.contains(&3));
            tag
        });
        oracle.may_be_anywhere(again);
        assert_eq!(oracle.power_lost("node2"), (1, 0));
        let left = |oracle: &Oracle, tag| (oracle.promise(tag).written, oracle.losses_of(tag));
        assert_eq!([here, both, unknown, again].map(|tag| left(&oracle, tag)), [(7, 0), (3, 1), (3, 1), (3, 1)]);
        assert_eq!(oracle.power_lost("node1"), (0, 0));
        assert_eq!(left(&oracle, here), (3, 1));
    }

    /// A file of these columns, of which 3 of 7 bytes are synced.
    fn on(columns: &[&[u128]]) -> (Oracle, u64) {
        let mut oracle = Oracle::default();
        (1..=4).for_each(|device| oracle.device_is_at(device, &format!("node{device}")));
        let tag = oracle.new_tag();
        *oracle.promise_mut(tag) = Promise { handed: 9, written: 7, synced: 3 };
        let columns: Vec<BTreeSet<u128>> = columns.iter().map(|of| of.iter().copied().collect()).collect();
        assert!(oracle.is_on(tag, &columns));
        (oracle, tag)
    }

    /// What several machines have stays promised until the power of all of them went since it was synced.
    #[test]
    fn replicas_keep_it() {
        let (mut oracle, tag) = on(&[&[1, 2]]);
        assert!(!oracle.would_void("node1") && !oracle.may_be_short(tag));
        assert_eq!((oracle.power_lost("node1"), oracle.promise(tag).written), ((0, 1), 7));
        assert!(oracle.may_be_short(tag) && !oracle.would_void("node1") && oracle.would_void("node2"));
        assert_eq!((oracle.power_lost("node1"), oracle.losses_of(tag)), ((0, 1), 0), "it had nothing more to lose");
        assert_eq!((oracle.power_lost("node3"), oracle.losses_of(tag)), ((1, 0), 0));
        assert_eq!((oracle.power_lost("node2"), oracle.promise(tag).written), ((0, 0), 3));
        assert_eq!(oracle.losses_of(tag), 1);
        // Who looks again finds the machine there and not what it lacks; a sync makes good for it.
        for (synced, left) in [(false, 3), (true, 7)] {
            let (mut oracle, tag) = on(&[&[1, 2]]);
            oracle.power_lost("node1");
            if synced {
                oracle.all_is_synced(tag);
            }
            assert!(oracle.is_on(tag, &[BTreeSet::from([1, 2])]));
            oracle.power_lost("node2");
            assert_eq!(oracle.promise(tag).written, left, "synced {synced}");
        }
    }

    /// Each column needs one that has it.
    #[test]
    fn each_column_is_kept() {
        let (mut oracle, tag) = on(&[&[1, 2], &[2, 3]]);
        assert_eq!((oracle.power_lost("node1"), oracle.power_lost("node3")), ((0, 1), (0, 1)));
        assert_eq!((oracle.power_lost("node2"), oracle.promise(tag).written), ((0, 0), 3));
        // Where new bytes are nobody knows.
        let (mut oracle, tag) = on(&[&[1, 2]]);
        oracle.may_be_anywhere(tag);
        assert!(!oracle.would_void("node4"));
        assert_eq!((oracle.power_lost("node4"), oracle.promise(tag).written), ((0, 0), 3));
    }

    /// A reader of an open file may be shown what one has whose power went, if the others ended as well; the file has all of it.
    #[test]
    fn readers_may_be_shown_less() {
        let (mut oracle, tag) = on(&[&[1, 2]]);
        oracle.killed("node2");
        assert_eq!(oracle.shown(tag), 7, "who was killed has it");
        oracle.power_lost("node1");
        assert_eq!((oracle.shown(tag), oracle.promise(tag).written), (3, 7));
        oracle.is_all_closed = true;
        assert_eq!(oracle.shown(tag), 7);
        oracle.is_all_closed = false;
        oracle.is_opened(tag);
        assert_eq!(oracle.shown(tag), 7);
    }
}

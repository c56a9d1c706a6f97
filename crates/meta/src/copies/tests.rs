//! What the two sides of a copy make of pages that are late, come twice, or are of something else.

use super::target::Wish;
use super::{CopyJob, CopyMessage, CopyResult, KeeperMessage, Page, Source, Target, What};
use crate::format::{MergedRecord, VERSION};
use crate::key::Key;
use crate::layers::read_table;
use crate::tree::{self, TABLE};
use base::error::ErrorKind;
use base::unit::Time;
use bytes::Bytes;
use prost::Message;
use quorum::{KeeperId, Stamp};
use redb::Database;
use sim::file::SimFileDevice;
use sim::random::SimRandom;
use std::sync::Arc;
use std::time::Duration;

const GIVES: KeeperId = KeeperId(1);
const GETS: KeeperId = KeeperId(2);
const FRONT: Stamp = Stamp { index: 30, term: 4, sum: 5 };

fn at(seconds: u64) -> Time {
    Time::ZERO.after(Duration::from_secs(seconds))
}

fn target(least: u64) -> Target {
    let mut target = Target::new(GETS, least, Arc::new(SimRandom::new(1)), None);
    target.needs(at(100), GIVES);
    target
}

/// The question that it asks, and the pages that it has written.
fn taken(target: &mut Target) -> (Option<(u64, Bytes)>, Vec<CopyJob>) {
    let (mut asked, mut jobs) = (None, Vec::new());
    for wish in target.take_wishes() {
        match wish {
            Wish::Send { message: CopyMessage { copy, what: What::Asks { behind, .. }, .. }, .. } => {
                asked = Some((copy, behind));
            }
            Wish::Send { message, .. } => panic!("{message:?}"),
            Wish::Copy(job) => jobs.push(job),
        }
    }
    (asked, jobs)
}

fn page(copy: u64, behind: &str, front: Stamp, pairs: &[(&str, &str)]) -> CopyMessage {
    let pairs = pairs.iter().map(|(key, value)| (Bytes::from(key.to_string()), Bytes::from(value.to_string())));
    let behind = Bytes::from(behind.to_string());
    let page = Page { behind, front, is_last: false, pairs: pairs.collect() };
    CopyMessage { from: GIVES, copy, what: What::Page(page) }
}

fn run(job: CopyJob) -> CopyResult {
    job.run(|| Ok(Box::new(SimFileDevice::new().open())))
}

/// A page counts once, if it is of the copy and behind the key that was asked for, and of a tree that has enough.
#[test]
fn pages_that_are_not_asked_for() {
    let mut target = target(20);
    let (asked, _) = taken(&mut target);
    let (copy, behind) = asked.expect("a question");
    assert!(behind.is_empty());
    let few = Stamp { index: 19, ..FRONT };
    let other = CopyMessage { from: KeeperId(3), ..page(copy, "", FRONT, &[("a", "1")]) };
    let of_others = [
        page(copy + 1, "", FRONT, &[("a", "1")]),
        page(copy, "x", FRONT, &[("a", "1")]),
        page(copy, "", few, &[]),
        other,
    ];
    for page in of_others {
        target.receive(at(100), page);
        assert!(taken(&mut target).1.is_empty());
    }
    let first = page(copy, "", FRONT, &[("a", "1"), ("b", "2")]);
    target.receive(at(100), first.clone());
    let (asked, mut jobs) = taken(&mut target);
    assert_eq!((asked, jobs.len()), (Some((copy, Bytes::from("b"))), 1), "the next one is asked for ahead");
    target.receive(at(100), first);
    target.receive(at(100), page(copy, "b", FRONT, &[("c", "3")]));
    target.receive(at(100), page(copy, "b", FRONT, &[("d", "4")]));
    let (asked, none) = taken(&mut target);
    assert!(asked.is_none() && none.is_empty(), "one is written at a time");
    let done = run(jobs.remove(0));
    assert!(matches!(target.written(at(100), done), Ok(None)));
    let (asked, jobs) = taken(&mut target);
    assert_eq!((asked, jobs.len()), (Some((copy, Bytes::from("c"))), 1));
}

/// Pages of two trees, or whose keys do not follow, end the copy; it is begun anew later, under another number.
#[test]
fn pages_that_do_not_follow() {
    let later = Stamp { index: 31, ..FRONT };
    for wrong in [page(0, "b", later, &[("c", "3")]), page(0, "b", FRONT, &[("a", "3")]), page(0, "b", FRONT, &[])] {
        let mut target = target(0);
        let (copy, _) = taken(&mut target).0.expect("a question");
        target.receive(at(100), page(copy, "", FRONT, &[("b", "2")]));
        let job = taken(&mut target).1.remove(0);
        assert!(target.written(at(100), run(job)).is_ok());
        target.receive(at(100), CopyMessage { copy, ..wrong });
        let job = taken(&mut target).1.remove(0);
        let error = target.written(at(100), run(job)).expect_err("it is wrong");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        target.needs(at(101), GIVES);
        assert!(taken(&mut target).0.is_none(), "it is begun anew at once");
        target.needs(at(106), GIVES);
        assert_ne!(taken(&mut target).0.expect("a question").0, copy);
    }
}

/// A copy that nobody says is needed ends; what is being written of it holds the next one up.
#[test]
fn a_copy_that_is_not_needed() {
    let mut target = target(0);
    let (copy, _) = taken(&mut target).0.expect("a question");
    target.receive(at(100), page(copy, "", FRONT, &[("b", "2")]));
    let job = taken(&mut target).1.remove(0);
    target.tick(at(102));
    assert!(taken(&mut target).0.is_some(), "it asks again");
    target.tick(at(105));
    assert_eq!(target.next_tick(), None);
    target.needs(at(106), GIVES);
    assert!(taken(&mut target).0.is_none(), "its file is still written");
    assert!(matches!(target.written(at(106), run(job)), Ok(None)));
    target.needs(at(106), GIVES);
    assert_ne!(taken(&mut target).0.expect("a question").0, copy);
}

/// A tree with so many pairs.
fn tree_of(pairs: u64) -> Database {
    let (database, storage) = tree::open(Box::new(SimFileDevice::new().open()), true).expect("a tree");
    storage.release().expect("it is written");
    let change = database.begin_write().expect("a change");
    {
        let mut table = change.open_table(TABLE).expect("the table");
        let merged = MergedRecord { version: VERSION, sequence: 9, ..MergedRecord::default() };
        table.insert(Key::Merged.encode().as_slice(), merged.encode_to_vec().as_slice()).expect("put");
        for at in 0..pairs {
            table.insert(format!("key-{at:04}").as_bytes(), &b"a value"[..]).expect("put");
        }
    }
    change.commit().expect("durable");
    database
}

/// A page that is asked for again is not read again at once; a copy that nobody asks for ends, and its log is held until it is caught up with.
#[test]
fn a_source_is_asked_again() {
    let mut source = Source::new(64);
    source.give(at(0), GETS, 7, (read_table(&tree_of(20)).expect("a reading"), FRONT));
    let ask = |source: &mut Source, seconds, key: &'static str| {
        source.page(at(seconds), GIVES, (GETS, 7), Bytes::from(key)).map(|job| job.run().expect("a page"))
    };
    let Some((GETS, KeeperMessage::Copy(CopyMessage { from: GIVES, copy: 7, what: What::Page(first) }))) =
        ask(&mut source, 0, "")
    else {
        panic!("no page")
    };
    assert!(!first.is_last && first.front == FRONT && !first.pairs.is_empty());
    assert!(ask(&mut source, 0, "").is_none() && ask(&mut source, 1, "").is_some(), "it may be lost");
    assert!(
        ask(&mut source, 2, "").is_none() && ask(&mut source, 3, "").is_some() && ask(&mut source, 4, "key").is_some()
    );
    source.tick(at(13), |_, _| false);
    assert!(source.has(GETS, 7));
    source.tick(at(14), |_, _| false);
    assert!(!source.has(GETS, 7) && ask(&mut source, 14, "").is_none());
    assert_eq!((source.front(), source.next_tick()), (Some(30), None), "what follows is held");
    source.tick(at(15), |_, _| true);
    assert_eq!(source.front(), None);
}

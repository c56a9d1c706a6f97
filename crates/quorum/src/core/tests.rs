//! What the library is told.

use super::{Core, Output, Start};
use crate::kept::{Entry, Kept, Vote};
use crate::message::{KeeperId, Message};
use crate::replay::Stamp;
use base::unit::Time;
use raft::eraftpb::{Entry as Inner, Message as InnerMessage, MessageType};
use sim::random::SimRandom;
use std::sync::Arc;

const OWN: u64 = 2;

fn append(from: u64, term: u64, entries: &[(u64, u64)], commit: u64) -> Message {
    let entry =
        |(index, term): &(u64, u64)| Inner { index: *index, term: *term, data: vec![1].into(), ..Inner::default() };
    let entries: Vec<Inner> = entries.iter().map(entry).collect();
    let (msg_type, entries) = (MessageType::MsgAppend, entries.into());
    let inner = InnerMessage {
        msg_type,
        from,
        to: OWN,
        term,
        log_term: 1,
        index: 1,
        entries,
        commit,
        ..InnerMessage::default()
    };
    Message { inner, life: 1, to_life: 1, everybody: 0, front: 0 }
}

/// What is written, cut off by a later write and written anew by a third one is not durable when the first write is: the library would take it
/// for that, as it finds the same entries in the log as it will be.
#[test]
fn cut_off_and_written_anew() {
    let voters: Vec<KeeperId> = (1..=5).map(KeeperId).collect();
    let kept = Kept::new(&voters, Vote::default(), Stamp::FIRST, 0, Vec::new()).expect("empty");
    let (random, now) = (Arc::new(SimRandom::new(1)), Time::ZERO);
    let mut core =
        Core::start(Start { own: KeeperId(OWN), life: 1, kept, uncommitted_max: 64 << 20, random, now, planted: None })
            .expect("it starts");
    core.receive(now, append(1, 2, &[(2, 2), (3, 2), (4, 2)], 1));
    core.receive(now, append(3, 3, &[(2, 3)], 1));
    core.receive(now, append(1, 4, &[(2, 2), (3, 2), (4, 2), (5, 4)], 4));
    let (mut writes, mut disk, mut told) = (Vec::new(), Vec::<Entry>::new(), 1);
    let mut take = |core: &mut Core, told: &mut u64| {
        for output in core.take_outputs() {
            match output {
                Output::Write { number, entries, .. } => writes.push((number, entries)),
                Output::Committed(entries) => *told = entries.last().map_or(*told, |entry| entry.index),
                Output::Send { .. } | Output::Turned(_) | Output::Lacks { .. } => {}
            }
        }
        std::mem::take(&mut writes)
    };
    let written = take(&mut core, &mut told);
    assert!(written.len() >= 3, "{written:?}");
    for (number, entries) in written {
        if let Some(first) = entries.first() {
            disk.retain(|entry| entry.index < first.index);
            disk.extend(entries);
        }
        core.durable(now, number);
        take(&mut core, &mut told);
        let end = disk.last().map_or(1, |entry| entry.index);
        let persisted = core.node.raft.raft_log.persisted;
        assert!(persisted <= end && told <= end, "write {number}: {persisted} and {told} of {end}");
    }
    assert_eq!((core.node.raft.raft_log.persisted, told), (5, 4));
}

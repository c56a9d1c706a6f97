//! What is refused of what others say, and that no bytes of theirs do harm.

use super::super::tests::{copy, log, seating};
use super::{PARTS_MAX, read};
use base::checksum::crc32c;
use base::env::Random;
use base::error::ErrorKind;
use base::id::NodeId;
use bytes::Bytes;
use meta::{KeeperId, KeeperMessage};
use net::message::keeper::Step;
use net::{Asker, Payload};
use prost::Message;
use sim::fuzz::{damage, seeds};
use sim::random::SimRandom;

const OWN: KeeperId = KeeperId(2);
const FROM: Asker = Asker::Node { node: NodeId(11), incarnation: 5, term: 0 };

fn step(parts: &[Vec<u8>]) -> (Step, Payload) {
    let lengths = parts.iter().map(|part| part.len() as u32).collect();
    let step = Step { store: 9.into(), from: 1, to: OWN.0, draw: 101.into(), parts: lengths };
    (step, Payload::new(parts.concat().into()))
}

fn parts() -> Vec<Vec<u8>> {
    let group = Bytes::from_static(b"a group");
    let messages = [log(3, (1, 2), 4, &[]), log(1, (1, 2), 4, &[group.clone(), group]), copy(2, 1, b"value")];
    messages.iter().map(|message| message.bytes().expect("bytes")).collect()
}

fn heard(step: &Step, asker: Asker, payload: Payload) -> Result<Vec<KeeperMessage>, (ErrorKind, String)> {
    let seating = seating(&["a".to_string(), "b".to_string(), "c".to_string()]);
    match read(step, asker, payload, (&seating, OWN)) {
        Ok(messages) => Ok(messages.into_iter().map(|(message, _)| message).collect()),
        Err(error) => Err((error.kind(), error.text().to_string())),
    }
}

/// All that another keeper says is heard in its order, with its length.
#[test]
fn all_is_heard() {
    let (step, payload) = step(&parts());
    let seating = seating(&["a".to_string(), "b".to_string(), "c".to_string()]);
    let messages = read(&step, FROM, payload, (&seating, OWN)).expect("it is right");
    let again: Vec<Vec<u8>> = messages.iter().map(|(message, _)| message.bytes().expect("bytes")).collect();
    assert_eq!(again, parts());
    assert!(messages.iter().all(|(message, length)| message.length() == *length));
}

/// Each thing that is wrong is a reason, and the words say which.
#[test]
fn wrong_ones() {
    let (right, payload) = step(&parts());
    let refused = |step: Step, asker, payload: &Payload, word: &str| {
        let (kind, text) = heard(&step, asker, payload.clone()).expect_err(word);
        assert_eq!(kind, ErrorKind::Invalid, "{text}");
        assert!(text.contains(word), "{text}");
    };
    refused(Step { store: 8.into(), ..right.clone() }, FROM, &payload, "another store");
    refused(Step { to: 3, ..right.clone() }, FROM, &payload, "for keeper 3");
    refused(Step { from: 4, ..right.clone() }, FROM, &payload, "none of the others");
    let itself = Asker::Node { node: NodeId(12), incarnation: 5, term: 0 };
    refused(Step { from: 2, draw: 102.into(), ..right.clone() }, itself, &payload, "none of the others");
    refused(Step { draw: 102.into(), ..right.clone() }, FROM, &payload, "another directory");
    refused(right.clone(), Asker::Client, &payload, "is on node");
    refused(right.clone(), Asker::Node { node: NodeId(13), incarnation: 5, term: 0 }, &payload, "is on node");
    // One of keeper 1's that keeper 3 says.
    let third = Asker::Node { node: NodeId(13), incarnation: 5, term: 0 };
    refused(Step { from: 3, draw: 103.into(), ..right.clone() }, third, &payload, "no message of keeper 3");
    let lengths = |change: &dyn Fn(&mut Vec<u32>)| {
        let mut step = right.clone();
        change(&mut step.parts);
        step
    };
    refused(lengths(&|parts| parts[0] += 1), FROM, &payload, "came");
    refused(lengths(&|parts| parts.extend([u32::MAX; 3])), FROM, &payload, "came");
    refused(lengths(&|parts| parts.push(0)), FROM, &payload, "0 bytes are no message");
    refused(lengths(&|parts| (parts[0], parts[1]) = (parts[1], parts[0])), FROM, &payload, "no message");
    refused(lengths(&|parts| parts.extend([0; PARTS_MAX])), FROM, &payload, "at the most");
    let garbled = Payload::new(vec![7; payload.length()].into());
    refused(right.clone(), FROM, &garbled, "no message");
    // Damaged on the way.
    let damaged = Payload::with_crc(payload.parts().to_vec(), payload.crc() ^ 1);
    assert_eq!(heard(&right, FROM, damaged).expect_err("it is damaged").0, ErrorKind::Corrupt);
}

/// Whatever comes, nothing panics, and what is heard is what was sent: messages of the one who says them, all of the bytes.
#[test]
fn fuzz_steps() {
    let (mut all, mut some) = (0, 0);
    for seed in seeds(3000) {
        let random = SimRandom::new(seed);
        let mut parts = parts();
        let at = random.below(parts.len() as u64) as usize;
        // Half of them with a checksum that is right.
        if random.one_in(2) {
            let part = &mut parts[at];
            part.truncate(part.len() - 4);
            damage(&random, part);
            part.extend(crc32c(part).to_le_bytes());
        }
        let (step, payload) = step(&parts);
        let mut encoded = step.encode_to_vec();
        let mut bytes = payload.into_bytes().to_vec();
        match random.below(3) {
            0 => damage(&random, &mut encoded),
            1 => damage(&random, &mut bytes),
            _ => {}
        }
        all += 1;
        let Ok(step) = Step::decode(&encoded[..]) else { continue };
        if let Ok(messages) = heard(&step, FROM, Payload::new(bytes.clone().into())) {
            let again: Vec<Vec<u8>> = messages.iter().map(|message| message.bytes().expect("bytes")).collect();
            assert_eq!(again.concat(), bytes, "seed {seed}");
            assert!(messages.iter().all(|message| message.from() == KeeperId(1)), "seed {seed}");
            some += 1;
        }
    }
    assert!(some > all / 20 && some < all, "{some} of {all} were heard");
}

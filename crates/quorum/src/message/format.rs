//! The bytes of a message between keepers. Numbers are little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 0 to 4 | `SWK1` |
//! | 4 | the kind, from 1: append, its answer, heartbeat, its answer, vote, its answer, vote that is thought of, its answer, take over now |
//! | 5 | 1: refused |
//! | 6 to 110 | to, from, term, term of the entry before, its index, committed, term of that, hint of who refuses, start of the sender, start of the receiver, everybody, front, priority |
//! | 110 to 114 | bytes of what the sender wants back, 64 at the most, which follow |
//! | then 4 | how many entries follow: each its term (8), the bytes of its group (4), and those; their indices follow that of the entry before |
//! | then 4 | CRC-32C of all before |

use super::Message;
use crate::format::COUNT_MAX;
use base::checksum::crc32c;
use bytes::Bytes;
use raft::eraftpb::{Entry, Message as Inner, MessageType};

const MAGIC: [u8; 4] = *b"SWK1";

/// Bytes that a sender may want back: a question of `lease` has sixteen, a campaign's word a few.
const CONTEXT_MAX: usize = 64;

/// In the order of their numbers.
const KINDS: [MessageType; 9] = [
    MessageType::MsgAppend,
    MessageType::MsgAppendResponse,
    MessageType::MsgHeartbeat,
    MessageType::MsgHeartbeatResponse,
    MessageType::MsgRequestVote,
    MessageType::MsgRequestVoteResponse,
    MessageType::MsgRequestPreVote,
    MessageType::MsgRequestPreVoteResponse,
    MessageType::MsgTimeoutNow,
];

/// Bytes of a message beside what its sender wants back and its entries; and of an entry beside its group.
const FIXED: usize = 4 + 2 + 13 * 8 + 4 + 4 + 4;
const ENTRY_FIXED: usize = 8 + 4;

impl Message {
    /// How many bytes it has.
    pub fn length(&self) -> usize {
        let groups: usize = self.inner.entries.iter().map(|entry| entry.data.len() + ENTRY_FIXED).sum();
        FIXED + self.inner.context.len() + groups
    }

    /// Its bytes. None if it is of a kind that keepers do not send each other.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        let Message { inner, life, to_life, everybody, front } = self;
        let kind = KINDS.iter().position(|kind| *kind == inner.msg_type)? as u8 + 1;
        let mut bytes = Vec::with_capacity(self.length());
        bytes.extend(MAGIC);
        bytes.extend([kind, u8::from(inner.reject)]);
        for count in [
            inner.to,
            inner.from,
            inner.term,
            inner.log_term,
            inner.index,
            inner.commit,
            inner.commit_term,
            inner.reject_hint,
            *life,
            *to_life,
            *everybody,
            *front,
            inner.priority as u64,
        ] {
            bytes.extend(count.to_le_bytes());
        }
        bytes.extend((inner.context.len() as u32).to_le_bytes());
        bytes.extend(&inner.context[..]);
        bytes.extend((inner.entries.len() as u32).to_le_bytes());
        for entry in &inner.entries {
            bytes.extend(entry.term.to_le_bytes());
            bytes.extend((entry.data.len() as u32).to_le_bytes());
            bytes.extend(&entry.data[..]);
        }
        bytes.extend(crc32c(&bytes).to_le_bytes());
        Some(bytes)
    }

    /// The message of these bytes, whose groups go on being theirs; none if it is none, or one that no keeper sends.
    pub fn read(bytes: &Bytes) -> Option<Message> {
        let end = bytes.len().checked_sub(4)?;
        let mut rest = bytes.slice(..end);
        if bytes[end..] != crc32c(&rest).to_le_bytes() || take(&mut rest, 4)? != MAGIC[..] {
            return None;
        }
        let flags = take(&mut rest, 2)?;
        let msg_type = *KINDS.get(usize::from(flags[0]).checked_sub(1)?)?;
        let mut counts = [0; 13];
        for place in &mut counts {
            *place = count(&mut rest)?;
        }
        let [to, from, term, log_term, index, commit, commit_term, hint, life, to_life, everybody, front, priority] =
            counts;
        let length = short(&mut rest)?;
        let context = take(&mut rest, Some(length).filter(|length| *length <= CONTEXT_MAX)?)?;
        let inner = Inner {
            msg_type,
            to,
            from,
            term,
            log_term,
            index,
            commit,
            commit_term,
            reject: flags[1] != 0,
            reject_hint: hint,
            context,
            priority: i64::try_from(priority).ok()?,
            entries: entries(&mut rest, (log_term, index, term))?.into(),
            ..Inner::default()
        };
        let right = flags[1] < 2 && from != 0 && to != 0 && rest.is_empty();
        let carries = inner.entries.is_empty() || msg_type == MessageType::MsgAppend;
        (right && carries).then_some(Message { inner, life, to_life, everybody, front })
    }
}

/// Entries behind that of this term and index, none of a later term than the message's. Nothing is made room for beforehand: how many come is foreign.
fn entries(rest: &mut Bytes, (mut before, mut index, term): (u64, u64, u64)) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    for _ in 0..short(rest)? {
        let of = count(rest).filter(|of| (before..=term).contains(of))?;
        let length = short(rest)?;
        (before, index) = (of, index + 1);
        entries.push(Entry { term: of, index, data: take(rest, length)?, ..Entry::default() });
    }
    Some(entries)
}

fn take(rest: &mut Bytes, length: usize) -> Option<Bytes> {
    (rest.len() >= length).then(|| rest.split_to(length))
}

fn short(rest: &mut Bytes) -> Option<usize> {
    let bytes = take(rest, 4)?;
    Some(u32::from_le_bytes(bytes[..].try_into().ok()?) as usize)
}

fn count(rest: &mut Bytes) -> Option<u64> {
    let bytes = take(rest, 8)?;
    Some(u64::from_le_bytes(bytes[..].try_into().ok()?)).filter(|count| *count <= COUNT_MAX)
}

#[cfg(test)]
mod tests {
    use super::{Bytes, Entry, Inner, KINDS, Message, MessageType};
    use base::checksum::crc32c;
    use base::env::Random;
    use sim::fuzz::{damage, seeds};
    use sim::random::SimRandom;

    fn message(kind: MessageType) -> Message {
        let entry =
            |index, group: &'static [u8]| Entry { term: 4, index, data: Bytes::from_static(group), ..Entry::default() };
        let entries = if kind == MessageType::MsgAppend { vec![entry(8, b"one"), entry(9, b"")] } else { Vec::new() };
        let inner = Inner {
            msg_type: kind,
            to: 2,
            from: 1,
            term: 5,
            log_term: 3,
            index: 7,
            commit: 6,
            commit_term: 3,
            reject: kind == MessageType::MsgAppendResponse,
            reject_hint: 11,
            context: Bytes::from_static(b"question"),
            priority: 1,
            entries: entries.into(),
            ..Inner::default()
        };
        Message { inner, life: 12, to_life: 13, everybody: 4, front: 3 }
    }

    /// A message is read as it was sent, of each kind; its bytes are those that older programs send.
    #[test]
    fn round_trip() {
        for kind in KINDS {
            let sent = message(kind);
            let bytes = sent.bytes().expect("bytes");
            assert_eq!(bytes.len(), sent.length(), "{kind:?}");
            assert_eq!(Message::read(&bytes.into()), Some(sent), "{kind:?}");
        }
        assert_eq!(message(MessageType::MsgPropose).bytes(), None, "keepers do not send it");
        let hex: String =
            message(MessageType::MsgAppend).bytes().expect("bytes").iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(hex.starts_with("53574b310100020000000000000001000000000000000500000000000000"), "{hex}");
        assert!(hex.contains("080000007175657374696f6e020000000400000000000000030000006f6e65"), "{hex}");
    }

    /// Bytes with a right checksum and whatever in them are a message that could have been sent, or none.
    #[test]
    fn fuzz_messages() {
        for seed in seeds(3000) {
            let random = SimRandom::new(seed);
            let kind = KINDS[random.below(KINDS.len() as u64) as usize];
            let mut bytes = message(kind).bytes().expect("bytes");
            bytes.truncate(bytes.len() - 4);
            (0..=random.below(3)).for_each(|_| damage(&random, &mut bytes));
            bytes.extend(crc32c(&bytes).to_le_bytes());
            if let Some(read) = Message::read(&bytes.into()) {
                let again = read.bytes().expect("bytes");
                assert_eq!(Message::read(&again.into()), Some(read.clone()), "seed {seed}");
                let mut before = (read.inner.log_term, read.inner.index);
                for entry in &read.inner.entries {
                    assert!(
                        entry.index == before.1 + 1 && entry.term >= before.0 && entry.term <= read.inner.term,
                        "seed {seed}"
                    );
                    before = (entry.term, entry.index);
                }
            }
        }
    }
}

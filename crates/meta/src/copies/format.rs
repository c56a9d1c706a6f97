//! The bytes of what keepers tell each other of a copy; of the log those of `quorum`, which begin otherwise. Numbers are little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 0 to 4 | `SWC1` |
//! | 4 | 1: asks, 2: a page, 3: gone |
//! | 5 | 1: the last page |
//! | 6 to 22 | from, the copy |
//! | 22 to 42 | of a page, the front: index, term, sum (4); of a question the least index |
//! | 42 to 46 | bytes of the key behind which is asked, which follow |
//! | then 4 | how many pairs follow: each the bytes of its key (4), of its value (4), and both |
//! | then 4 | CRC-32C of all before |

use super::{CopyMessage, KeeperMessage, Page, What};
use crate::format::SEQUENCE_MAX;
use base::checksum::crc32c;
use bytes::Bytes;
use quorum::{KeeperId, Stamp};

const MAGIC: [u8; 4] = *b"SWC1";

/// Bytes of the key behind which is asked: none is so long. Whoever gives a copy keeps it.
const KEY_MAX: usize = 4096;

/// Bytes of what is told of a copy beside keys and values; and of a pair beside those.
const FIXED: usize = 4 + 2 + 4 * 8 + 4 + 4 + 4 + 4;
const PAIR_FIXED: usize = 4 + 4;

impl KeeperMessage {
    /// How many bytes it has.
    pub fn length(&self) -> usize {
        match self {
            KeeperMessage::Log(message) => message.length(),
            KeeperMessage::Copy(message) => message.length(),
        }
    }

    /// Its bytes. None if it is nothing that keepers tell each other.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        match self {
            KeeperMessage::Log(message) => message.bytes(),
            KeeperMessage::Copy(message) => Some(message.bytes()),
        }
    }

    /// The message of these bytes, which go on being in use; none if it is none.
    pub fn read(bytes: &Bytes) -> Option<KeeperMessage> {
        if bytes.starts_with(&MAGIC) {
            return CopyMessage::read(bytes).map(KeeperMessage::Copy);
        }
        quorum::Message::read(bytes).map(KeeperMessage::Log)
    }
}

impl CopyMessage {
    fn length(&self) -> usize {
        match &self.what {
            What::Asks { behind, .. } => FIXED + behind.len(),
            What::Page(Page { behind, pairs, .. }) => {
                let pairs = pairs.iter().map(|(key, value)| PAIR_FIXED + key.len() + value.len());
                FIXED + behind.len() + pairs.sum::<usize>()
            }
            What::Gone => FIXED,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let none = Bytes::new();
        let (kind, is_last, front, behind, pairs) = match &self.what {
            What::Asks { behind, least } => (1, false, Stamp { index: *least, ..Stamp::default() }, behind, &[][..]),
            What::Page(Page { behind, front, is_last, pairs }) => (2, *is_last, *front, behind, &pairs[..]),
            What::Gone => (3, false, Stamp::default(), &none, &[][..]),
        };
        let mut bytes = Vec::with_capacity(self.length());
        bytes.extend(MAGIC);
        bytes.extend([kind, u8::from(is_last)]);
        for count in [self.from.0, self.copy, front.index, front.term] {
            bytes.extend(count.to_le_bytes());
        }
        bytes.extend(front.sum.to_le_bytes());
        bytes.extend((behind.len() as u32).to_le_bytes());
        bytes.extend(&behind[..]);
        bytes.extend((pairs.len() as u32).to_le_bytes());
        for (key, value) in pairs {
            bytes.extend((key.len() as u32).to_le_bytes());
            bytes.extend((value.len() as u32).to_le_bytes());
            bytes.extend(&key[..]);
            bytes.extend(&value[..]);
        }
        bytes.extend(crc32c(&bytes).to_le_bytes());
        bytes
    }

    fn read(bytes: &Bytes) -> Option<CopyMessage> {
        let end = bytes.len().checked_sub(4)?;
        let mut rest = bytes.slice(..end);
        if bytes[end..] != crc32c(&rest).to_le_bytes() || take(&mut rest, 4)? != MAGIC[..] {
            return None;
        }
        let flags = take(&mut rest, 2)?;
        let (from, copy) = (count(&mut rest)?, count(&mut rest)?);
        let (index, term, sum) = (count(&mut rest)?, count(&mut rest)?, short(&mut rest)?);
        let length = short(&mut rest)? as usize;
        let behind = take(&mut rest, Some(length).filter(|length| *length <= KEY_MAX)?)?;
        let pairs = pairs(&mut rest)?;
        // As the tree's own record is read.
        if index > SEQUENCE_MAX / 2 || term > SEQUENCE_MAX / 2 {
            return None;
        }
        let (front, is_last) = (Stamp { index, term, sum }, flags[1] == 1);
        let none = (term, sum) == (0, 0) && flags[1] == 0 && pairs.is_empty();
        let what = match flags[0] {
            1 if none => What::Asks { behind, least: index },
            2 if is_last || flags[1] == 0 => What::Page(Page { behind, front, is_last, pairs }),
            3 if none && index == 0 && behind.is_empty() => What::Gone,
            _ => return None,
        };
        rest.is_empty().then_some(CopyMessage { from: KeeperId(from), copy, what })
    }
}

/// Keys and values. Nothing is made room for beforehand: how many come is foreign.
fn pairs(rest: &mut Bytes) -> Option<Vec<(Bytes, Bytes)>> {
    let mut pairs = Vec::new();
    for _ in 0..short(rest)? {
        let (key, value) = (short(rest)? as usize, short(rest)? as usize);
        pairs.push((take(rest, key)?, take(rest, value)?));
    }
    Some(pairs)
}

fn take(rest: &mut Bytes, length: usize) -> Option<Bytes> {
    (rest.len() >= length).then(|| rest.split_to(length))
}

fn short(rest: &mut Bytes) -> Option<u32> {
    Some(u32::from_le_bytes(take(rest, 4)?[..].try_into().ok()?))
}

fn count(rest: &mut Bytes) -> Option<u64> {
    Some(u64::from_le_bytes(take(rest, 8)?[..].try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{Bytes, CopyMessage, KeeperId, KeeperMessage, Page, Stamp, What};
    use base::checksum::crc32c;
    use base::env::Random;
    use sim::fuzz::{damage, seeds};
    use sim::random::SimRandom;

    fn messages() -> Vec<KeeperMessage> {
        let pair = |key: &'static str, value: &'static str| (Bytes::from(key), Bytes::from(value));
        let page = Page {
            behind: Bytes::from("a"),
            front: Stamp { index: 7, term: 3, sum: 99 },
            is_last: true,
            pairs: vec![pair("b", "one"), pair("c", "")],
        };
        let told = |what| KeeperMessage::Copy(CopyMessage { from: KeeperId(2), copy: 11, what });
        vec![told(What::Asks { behind: Bytes::from("a"), least: 5 }), told(What::Page(page)), told(What::Gone)]
    }

    /// A message is read as it was sent, of each kind; its bytes are those that older programs send.
    #[test]
    fn round_trip() {
        let mut hex = Vec::new();
        for sent in messages() {
            let bytes = sent.bytes().expect("bytes");
            assert_eq!(bytes.len(), sent.length());
            assert_eq!(KeeperMessage::read(&bytes.clone().into()), Some(sent));
            hex.push(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        }
        assert!(hex[0].starts_with("535743310100020000000000000" /* from */), "{}", hex[0]);
        assert!(hex[1].contains("0100000061020000000100000003000000626f6e65"), "{}", hex[1]);
    }

    /// Bytes with a right checksum and whatever in them are a message that could have been sent, or none.
    #[test]
    fn fuzz_copies() {
        let messages = messages();
        for seed in seeds(3000) {
            let random = SimRandom::new(seed);
            let mut bytes = messages[random.below(messages.len() as u64) as usize].bytes().expect("bytes");
            bytes.truncate(bytes.len() - 4);
            (0..=random.below(3)).for_each(|_| damage(&random, &mut bytes));
            bytes.extend(crc32c(&bytes).to_le_bytes());
            if let Some(read) = KeeperMessage::read(&bytes.clone().into()) {
                assert_eq!(read.bytes(), Some(bytes), "seed {seed}");
            }
        }
    }
}

//! What a protobuf message would become if it was decoded, counted before it is: a field of two bytes on the wire may be hundreds in
//! memory.
//!
//! The count needs no schema. Every length-delimited field counts, and what lies in it is looked at as if it was a message itself: a text
//! or bytes that look like fields count for too much, never for too little. Numbers are not counted: decoded, they are at most eight times
//! what they are on the wire.

use crate::error::{Error, ErrorKind, Result};

/// How much a message may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Length-delimited fields (texts, bytes, messages), at all depths together.
    pub fields: usize,
    /// Messages in messages that are looked into. No message that a program knows may be deeper: what it does not know is skipped, and
    /// takes nothing.
    pub depth: usize,
}

/// Refuses a message that holds more than it may: `Protocol`. Bytes that are no message pass; decoding them will say so.
pub fn check(message: &[u8], bounds: Bounds) -> Result<()> {
    // Each field has a tag and a length at least.
    if message.len() / 2 <= bounds.fields {
        return Ok(());
    }
    let mut left = bounds.fields;
    if count(message, bounds.depth, &mut left) {
        return Ok(());
    }
    let text = format!(
        "a message of {} bytes holds more than {} texts and lists; it was not read, and nothing was done; ask for less at once",
        message.len(),
        bounds.fields
    );
    Err(Error::new(ErrorKind::Protocol, text))
}

/// Takes the fields of a message from `left`, as far as they can be read. False if there are more.
fn count(mut bytes: &[u8], depth: usize, left: &mut usize) -> bool {
    while let Some(key) = varint(&mut bytes) {
        let skipped = match key & 7 {
            0 => varint(&mut bytes).map(|_| 0),
            1 => Some(8),
            5 => Some(4),
            // A group: its fields count as those of what it is in.
            3 | 4 => Some(0),
            2 => varint(&mut bytes),
            _ => None,
        };
        let Some(length) = skipped.and_then(|length| usize::try_from(length).ok()) else { return true };
        let is_delimited = key & 7 == 2;
        if is_delimited {
            let Some(fewer) = left.checked_sub(1) else { return false };
            *left = fewer;
        }
        // One that is cut short is read as far as it goes, as a decoder would.
        let (inside, rest) = bytes.split_at(length.min(bytes.len()));
        if is_delimited && depth > 0 && !count(inside, depth - 1, left) {
            return false;
        }
        bytes = rest;
    }
    true
}

/// The next number, if there is one.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for place in 0..10 {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(7 * place).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{Bounds, check, count};

    fn fields(bytes: &[u8], depth: usize) -> usize {
        let mut left = usize::MAX;
        assert!(count(bytes, depth, &mut left));
        usize::MAX - left
    }

    /// Delimited fields count at every depth that may be looked into, numbers do not, and neither an end in the middle nor bytes
    /// that are no message hide what came before.
    #[test]
    fn what_counts() {
        assert_eq!(fields(&[], 9), 0);
        assert_eq!(fields(&[0x08, 0x96, 0x01, 0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0x1d, 0, 0, 0, 0], 9), 0);
        assert_eq!(fields(&[0x0a, 0, 0x0a, 0, 0x12, 1, b'x'], 9), 3);
        // One that holds one that holds two.
        let nested = [0x0a, 6, 0x0a, 4, 0x12, 0, 0x12, 0];
        assert_eq!([0, 1, 2, 9].map(|depth| fields(&nested, depth)), [1, 2, 4, 4]);
        // The outer length is more than there is: what is there counts.
        assert_eq!(fields(&[0x0a, 0x7f, 0x0a, 0, 0x0a, 0], 9), 3);
        // A key that is none ends the count, not what was counted.
        assert_eq!(fields(&[0x0a, 0, 0x0f, 0x0a, 0], 9), 1);
        // Groups count as what they are in.
        assert_eq!(fields(&[0x13, 0x0a, 0, 0x14, 0x0a, 0], 9), 2);
    }

    /// A message passes with as many fields as it may have, and not with one more, also where they are hidden below others.
    #[test]
    fn refused_beyond_its_bounds() {
        let bounds = Bounds { fields: 100, depth: 4 };
        assert!(check(&[0x0a, 0].repeat(100), bounds).is_ok());
        assert!(check(&[0x0a, 0].repeat(101), bounds).is_err());
        let mut hidden = [0x0a, 0].repeat(101);
        for _ in 0..3 {
            let length = hidden.len() as u8;
            hidden.splice(0..0, [0x12, 0x80 | (length & 0x7f), length >> 7]);
        }
        assert!(check(&hidden, bounds).is_err());
        // Deeper than anything that is known is skipped by who decodes it.
        assert!(check(&hidden, Bounds { depth: 2, ..bounds }).is_ok());
    }

    /// Whatever the bytes are, counting ends.
    #[test]
    fn fuzz_counting() {
        let mut state = 7u64;
        for round in 0..2000 {
            let mut bytes = vec![0u8; round % 300];
            for byte in &mut bytes {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *byte = (state >> 56) as u8;
            }
            let mut left = 50;
            count(&bytes, 8, &mut left);
            drop(check(&bytes, Bounds { fields: 1, depth: 8 }));
        }
    }
}

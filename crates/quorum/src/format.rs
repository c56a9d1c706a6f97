//! Bytes that keepers send and that are this crate's own. (What the library's messages look like on the wire and on the disk comes with them.)

/// A leader's question whether it still leads: its term and the question's number, both little-endian.
pub(crate) fn question(term: u64, number: u64) -> Vec<u8> {
    [term.to_le_bytes(), number.to_le_bytes()].concat()
}

/// The term and number of a question; none of other bytes.
pub(crate) fn read_question(bytes: &[u8]) -> Option<(u64, u64)> {
    let (term, number) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*term), u64::from_le_bytes(number.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::{question, read_question};

    /// What is asked is read again; anything else is not.
    #[test]
    fn questions() {
        let asked = question(3, 1 << 40);
        assert_eq!(read_question(&asked), Some((3, 1 << 40)));
        for length in (0..16).chain(17..20) {
            let mut other = asked.clone();
            other.resize(length, 0);
            assert_eq!(read_question(&other), None, "{length} bytes");
        }
    }
}

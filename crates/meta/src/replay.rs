//! Entries of the log, put into the overlay again.

use crate::format;
use crate::layers::{Layers, Slot};
use base::error::{Error, ErrorKind, Result};

/// Puts the entries of a group that are behind `sequence` into the overlay; the sequence number of the last one. Its first entry has to be `first`, and
/// the others to follow; `Corrupt` if not, or if one is left out.
pub fn apply(layers: &mut Layers, group: &[u8], first: u64, sequence: u64) -> Result<u64> {
    let wrong = |why: String| {
        Err(Error::new(
            ErrorKind::Corrupt,
            format!(
                "the metadata log {why}; acknowledged changes would be lost, so nothing was changed: keep the files and report this"
            ),
        ))
    };
    if first > sequence + 1 {
        return wrong(format!("lacks the changes {} to {}", sequence + 1, first - 1));
    }
    let (mut rest, mut expected) = (group, first);
    while !rest.is_empty() {
        let Some((number, changes, used)) = format::decode_entry(rest) else {
            return wrong(format!("has a change {expected} that does not read"));
        };
        if number != expected {
            return wrong(format!("has change {number} in the place of {expected}"));
        }
        rest = &rest[used..];
        if number > sequence {
            for change in changes {
                layers.change(change.key, Slot { sequence: number, value: change.value });
            }
        }
        expected += 1;
    }
    Ok(sequence.max(expected - 1))
}

/// The same of a group of the keepers' log, of which the tree may have a part, or all.
pub fn apply_group(layers: &mut Layers, group: &[u8], sequence: u64) -> Result<u64> {
    let first = format::first_of(group).unwrap_or(sequence + 1);
    apply(layers, group, first, sequence)
}

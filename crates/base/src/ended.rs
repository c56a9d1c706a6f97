//! How a group ends: how long it is then, and which of its replicas have their part of it. One rule, for a writer that lives and for the leader
//! when it is gone; what follows from it (bringing up, sealing, striking out, recording) is theirs.
//!
//! **The longest counts.** All replicas of a column get one writer's stream in order, under one generation, so each has a prefix of it and the
//! longest has whatever any other has. Bytes that were not acknowledged may be kept. So a short replica, whatever made it short, never cuts
//! bytes that another one has; replicas that an earlier leader or the writer sealed at different lengths do not contradict each other; and no
//! chunk is ever cut back. (Breaks M5 and M17 of the replication design, whose amendments 10, 11 and 14 take the least instead. Over columns the
//! group ends at the first byte that one lacks, record 0141; a fence makes chunks that are not there, record 0142.)
//!
//! **One sound replica is enough.** Sound is one that answered a fence or a seal by the very process that the group was placed into: that one
//! still has all that it took. Bytes are acknowledged when all replicas that the record names have them, and while a group is open none is
//! struck out of its record, so each sound replica has all that is acknowledged of its column. And it is fenced, durably: as all are needed,
//! nothing more is acknowledged. It need not be the longest; with it in hand others are only to be waited for as long as that costs nothing.
//!
//! **Without a sound one all have to answer**, but those that were given up: one that started anew may have lost its end with the power, and
//! which one has not lost it nobody can tell. The longest of all has what is left.
//!
//! **What readers saw** is kept by the same rule if a reader counts, of a group that it takes for open, all that may end it as sound: one that
//! started anew since it was placed need not be counted, unless it is fenced or sealed, for it may have been heard before; one that does not
//! answer may be left out only if it is recorded before that it is not sound any more, and an end that is recorded later may not rest on it.
//!
//! `tests.rs` goes through every history of small groups.

use crate::stripe::Stripe;

#[cfg(test)]
mod tests;

/// What is known of a replica of a group that is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It is fenced, or sealed, so that it takes nothing more.
    Answered {
        /// Bytes that it has, durably.
        length: u64,
        /// To the leader: the process that answered is the one that the group was placed into, its device is not given up, and no reader may
        /// have left it out. To the writer: it was sealed at no less than it ever answered to have.
        sound: bool,
    },
    /// It did not answer, or not that it was fenced: anything may be there, and it may take more.
    Unanswered,
    /// It did not answer, and its device is given up.
    Lost,
}

/// Whether a group can end, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Not yet: of these columns, in their order, no sound replica has answered, and not all others have.
    Waits(Vec<usize>),
    /// So. A later question with more answers may give a longer end; one with fewer, another that loses nothing either.
    Ends(End),
}

/// How a group ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Its length.
    pub length: u64,
    /// What each replica has of that, in the order in which they were told.
    pub parts: Vec<Has>,
    /// The length is less than what was recorded as synced: bytes are lost, and this has to be said.
    pub is_damaged: bool,
}

/// What a replica has of its column's part of a group that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Has {
    /// All of it, and perhaps more, which is garbage.
    All,
    /// Less: it is to be brought up, or struck out of the record.
    Less,
    /// Nobody knows: it is to be struck out of the record, unless its column has no other.
    Unknown,
}

/// How the group ends whose bytes go round its columns like this, by what is known of all its replicas, each told with the number of its
/// column. `floor` is what is known to be durable on all of them: of a group whose writer is gone what is recorded as synced, of a writer that
/// lives what it acknowledged. A replica that has less than its part of that is not sound, whichever process answered: something else
/// happened to it.
pub fn ending(stripe: Stripe, floor: u64, replicas: &[(usize, Known)]) -> Ending {
    let columns = 0..stripe.columns();
    let of = |column: usize| replicas.iter().filter(move |(of, _)| *of == column).map(|(_, known)| *known);
    let is_decided = |column: usize| {
        let least = stripe.column_length(floor, column);
        let is_sound = |known| matches!(known, Known::Answered { length, sound: true } if length >= least);
        of(column).any(is_sound) || !of(column).any(|known| known == Known::Unanswered)
    };
    let undecided: Vec<usize> = columns.clone().filter(|column| !is_decided(*column)).collect();
    if !undecided.is_empty() {
        return Ending::Waits(undecided);
    }
    let longest = |column| of(column).filter_map(Known::length).max().unwrap_or(0);
    let length = stripe.group_length(&columns.map(longest).collect::<Vec<u64>>());
    let has = |(column, known): &(usize, Known)| match known.length() {
        Some(has) if has >= stripe.column_length(length, *column) => Has::All,
        Some(_) => Has::Less,
        None => Has::Unknown,
    };
    Ending::Ends(End { length, parts: replicas.iter().map(has).collect(), is_damaged: length < floor })
}

impl Known {
    fn length(self) -> Option<u64> {
        match self {
            Known::Answered { length, .. } => Some(length),
            Known::Unanswered | Known::Lost => None,
        }
    }
}

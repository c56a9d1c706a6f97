//! Every message that travels between client and node: what is asked, what is answered, and the number of each kind.
//!
//! Messages are prost structs, defined here in Rust and nowhere else. A field's tag is never reused; new fields are
//! optional by nature (absent means zero or empty). Payload bytes travel beside the message, never inside it.

mod access;
pub mod bag;
pub mod chunk;
pub mod cluster;
pub mod device;
pub mod file;
mod id;
pub mod keeper;
pub mod layout;
mod looked;
mod names;
pub mod order;
mod outcome;
pub mod quota;
pub mod session;
mod xattrs;

use base::limit::{BAG_INFO, ENTRY_MAX, FRAME_MESSAGE_MAX, LOCATED, VIEWED, XATTRS_BYTES_MAX, XATTRS_MAX};
use prost::Message;

pub use id::Id;
pub use outcome::{Done, Failure};

/// A question that has one kind of answer.
pub trait Ask: Message + Default + Clone + 'static {
    /// Its number in the frame header. Never reused.
    const KIND: u16;
    /// What answers it.
    type Answer: Message + Default + 'static;
}

macro_rules! asks {
    ($($kind:literal $ask:path => $answer:path,)*) => {
        $(impl Ask for $ask {
            const KIND: u16 = $kind;
            type Answer = $answer;
        })*
        /// The name of a kind, for messages to people.
        pub fn kind_name(kind: u16) -> Option<&'static str> {
            match kind {
                $($kind => Some(stringify!($ask)),)*
                _ => None,
            }
        }
        /// Every kind.
        #[cfg(test)]
        const KINDS: &[u16] = &[$($kind),*];
        /// Reads a question of a kind, and writes it again.
        #[cfg(test)]
        fn reread_question(kind: u16, bytes: &[u8]) -> Result<Vec<u8>, prost::DecodeError> {
            match kind {
                $($kind => <$ask>::decode(bytes).map(|question| question.encode_to_vec()),)*
                _ => unreachable!("it is no kind"),
            }
        }
        /// The same of an answer to it.
        #[cfg(test)]
        fn reread_answer(kind: u16, bytes: &[u8]) -> Result<Vec<u8>, prost::DecodeError> {
            match kind {
                $($kind => <$answer>::decode(bytes).map(|answer| answer.encode_to_vec()),)*
                _ => unreachable!("it is no kind"),
            }
        }
    };
}

asks! {
    1 session::Renew => Done,
    2 session::NodeStatus => session::NodeStatusAnswer,
    3 session::Look => session::LookAnswer,

    16 file::Stat => file::Attributes,
    17 file::List => file::ListAnswer,
    18 file::MakeDirectory => Done,
    19 file::Create => file::OpenedFile,
    20 file::Append => file::OpenedFile,
    21 file::NextGroup => file::NewGroup,
    22 file::Close => file::Attributes,
    23 file::PackGroup => file::NewGroup,
    24 file::PutFiles => file::PutFilesAnswer,
    25 file::Locate => file::LocateAnswer,
    26 file::Rename => Done,
    27 file::Delete => Done,
    28 file::SetPolicy => Done,
    29 file::GetPolicy => file::PolicyAnswer,
    30 file::DiskUsage => file::DiskUsageAnswer,
    31 file::Devices => file::DevicesAnswer,
    32 file::SetAttributes => Done,
    33 file::GetXattrs => file::XattrsAnswer,
    34 file::SetXattr => Done,
    35 file::Truncate => file::Attributes,
    36 file::Concat => file::Attributes,
    37 file::Lookup => file::LookupAnswer,
    38 file::PathOf => file::PathOfAnswer,
    39 file::JudgeBelow => file::JudgeBelowAnswer,
    40 file::Recover => file::Attributes,
    41 file::Holders => file::HoldersAnswer,
    42 file::BeginBlock => Done,
    43 file::SyncLength => Done,
    44 quota::SetQuota => quota::QuotaAnswer,
    45 quota::GetQuota => quota::QuotaAnswer,
    46 quota::Reserve => Done,
    47 file::Answered => file::AnsweredAnswer,

    48 chunk::Append => chunk::AppendAnswer,
    49 chunk::Read => chunk::ReadAnswer,
    50 chunk::Seal => chunk::SealAnswer,
    51 chunk::Stat => chunk::StatAnswer,
    52 chunk::AppendCell => chunk::AppendAnswer,

    60 file::FinishPack => Done,

    64 bag::Create => bag::Info,
    65 bag::Stat => bag::Info,
    66 bag::List => bag::ListAnswer,
    67 bag::Seal => bag::Info,
    68 bag::Delete => Done,
    69 bag::Push => bag::PushAnswer,
    70 bag::Pull => bag::PullAnswer,
    71 bag::Acknowledge => bag::AcknowledgeAnswer,
    72 bag::RenewGrants => Done,
    73 bag::Rewind => bag::Info,

    80 device::Scrub => Done,
    81 device::Damage => device::DamageAnswer,
    82 device::Drain => Done,
    83 device::Scrubbed => device::ScrubbedAnswer,
    84 device::Lost => Done,

    96 cluster::Report => cluster::ReportAnswer,
    97 cluster::FindSession => cluster::OpenSession,
    98 cluster::View => cluster::ViewAnswer,
    99 cluster::DrainNode => Done,
    100 cluster::RemoveNode => Done,

    112 order::Fence => order::FenceAnswer,
    113 order::Delete => Done,
    114 order::Release => Done,
    115 order::Inventory => order::InventoryAnswer,
    116 order::BagCounts => order::BagCountsAnswer,
    117 order::BeginPass => Done,
    118 order::SealBag => Done,
    119 order::DropBag => Done,
    120 order::Kept => order::KeptAnswer,
    121 order::Fetch => Done,
    122 order::Follow => Done,
    123 order::Sums => order::SumsAnswer,

    128 keeper::Step => Done,
    129 keeper::Form => keeper::FormAnswer,
    130 keeper::Begin => Done,
}

/// Whether a question of this kind changes what the metadata store keeps. What is answered to it is remembered for as long as the
/// session may ask it again, so these alone hold a session's floor.
pub fn is_change(kind: u16) -> bool {
    matches!(
        kind,
        file::MakeDirectory::KIND
            | file::Create::KIND
            | file::Append::KIND
            | file::NextGroup::KIND
            | file::Close::KIND
            | file::PackGroup::KIND
            | file::FinishPack::KIND
            | file::PutFiles::KIND
            | file::Rename::KIND
            | file::Delete::KIND
            | file::SetPolicy::KIND
            | file::SetAttributes::KIND
            | file::SetXattr::KIND
            | file::Truncate::KIND
            | file::Concat::KIND
            | file::BeginBlock::KIND
            | file::SyncLength::KIND
            | file::Recover::KIND
            | quota::SetQuota::KIND
            | quota::Reserve::KIND
            | bag::Create::KIND
            | bag::Seal::KIND
            | bag::Delete::KIND
            | bag::Rewind::KIND
            | device::Drain::KIND
            | device::Lost::KIND
            | cluster::DrainNode::KIND
            | cluster::RemoveNode::KIND
    )
}

/// Whether a device answers a question of this kind, when it has done its part: not before, if it stands still.
pub fn is_for_device(kind: u16) -> bool {
    matches!(
        kind,
        chunk::Append::KIND
            | chunk::AppendCell::KIND
            | chunk::Read::KIND
            | chunk::Seal::KIND
            | chunk::Stat::KIND
            | bag::Push::KIND
            | device::Scrub::KIND
            | device::Damage::KIND
            | device::Scrubbed::KIND
    )
}

/// Most bytes of the answer to a question of this kind, if they may be many: memory for them is taken before the question is handed over.
/// 0: it is short, or no longer than what was asked; so are refusals. `question`: its message.
pub fn answer_max(kind: u16, question: &[u8]) -> usize {
    match kind {
        file::List::KIND | file::Devices::KIND => FRAME_MESSAGE_MAX,
        cluster::Report::KIND | session::Look::KIND => FRAME_MESSAGE_MAX,
        cluster::View::KIND => VIEWED,
        bag::List::KIND | device::Damage::KIND | device::Scrubbed::KIND => FRAME_MESSAGE_MAX,
        order::Inventory::KIND | order::Kept::KIND | order::Sums::KIND => FRAME_MESSAGE_MAX,
        file::GetXattrs::KIND => XATTRS_BYTES_MAX + XATTRS_MAX * 16,
        bag::Create::KIND | bag::Stat::KIND | bag::Seal::KIND | bag::Rewind::KIND => BAG_INFO,
        file::Locate::KIND => LOCATED,
        // The attributes of each directory on the way.
        file::Lookup::KIND => {
            let names = question.iter().filter(|byte| **byte == b'/').count() + 1;
            FRAME_MESSAGE_MAX.min(names * ENTRY_MAX)
        }
        _ => 0,
    }
}

/// Whether the answer may have fewer entries than were asked for, and its asker then asks for the next ones.
pub fn is_page(kind: u16) -> bool {
    matches!(kind, file::List::KIND | file::Locate::KIND)
}

/// Whether a device or another node has a part in the answer, so that it comes when that one has done its part.
pub fn is_of_others(kind: u16) -> bool {
    is_for_device(kind)
        || (bag::Create::KIND..=bag::Rewind::KIND).contains(&kind)
        || matches!(kind, file::Devices::KIND | session::Look::KIND)
}

#[cfg(test)]
mod tests {
    use super::{Failure, KINDS, reread_answer, reread_question};
    use base::error::Error;
    use base::limit::FRAME_MESSAGE_MAX;
    use prost::Message;
    use sim::random::SimRandom;

    /// Answers of every kind, and refusals, with whatever bytes in them, are read or refused by whoever asked, and so are questions, also those
    /// that only some nodes may ask; what is read is the same when it is written and read again.
    #[test]
    fn fuzz_answers() {
        for seed in sim::fuzz::seeds(20) {
            let random = SimRandom::new(seed);
            for kind in KINDS {
                for reread in [reread_question, reread_answer] {
                    let mut message = sim::fuzz::readable(&random, 20, |bytes| reread(*kind, bytes).is_ok());
                    for _ in 0..10 {
                        if let Ok(written) = reread(*kind, &message) {
                            assert_eq!(reread(*kind, &written).as_ref(), Ok(&written), "seed {seed}, kind {kind}");
                        }
                        sim::fuzz::damage(&random, &mut message);
                    }
                }
            }
            let mut refusal = sim::fuzz::readable(&random, 20, |bytes| Failure::decode(bytes).is_ok());
            for _ in 0..10 {
                drop(Failure::decode(refusal.as_slice()).map(Error::from));
                sim::fuzz::damage(&random, &mut refusal);
            }
        }
    }

    /// The largest answers, of fields of two bytes that are hundreds in memory, are read or refused in the memory that a test of decoders
    /// has: what a node answers may hold texts that look like fields, so it is not counted as questions are.
    #[test]
    fn fuzz_large_answers() {
        for seed in sim::fuzz::seeds(2) {
            for kind in KINDS {
                let tag = 1 + ((seed + u64::from(*kind)) % 10) as u8;
                drop(reread_answer(*kind, &[tag << 3 | 2, 0].repeat(FRAME_MESSAGE_MAX / 2)));
            }
        }
    }
}

//! Faults that are put into engines and nodes on purpose, one at a time, to see that the simulation notices them. Engines take one
//! in their settings, a node asks its world for one; nothing that a user can set leads there, and without one each costs the look
//! at a byte.

/// A fault put in on purpose. Each breaks one promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A device answers that bytes are synced when they are written.
    AnsweredBeforeSync,
    /// A device answers that bytes are written when they are received.
    AnsweredBeforeWrite,
    /// Recovery does not look for early records.
    EarlyRecordsForgotten,
    /// Early records are written over others that the journal does not have yet.
    EarlyRecordsOverwritten,
    /// The metadata store answers a change before its log is synced.
    ChangeAnsweredBeforeSync,
    /// A change that is asked again is made again instead of being answered from memory.
    RetriedChangeRepeated,
    /// Deletions are left out when the metadata store's changes are merged into the tree.
    TombstoneDroppedEarly,
    /// Recovery ends a stream of the log at the first record that does not follow, although a later segment goes on before it.
    ChainStaysEnded,
    /// Each write that fails counts against its device, also several that failed for one cause.
    StrikePerWrite,
    /// What failed to be written is written again only when one segment has room for all that waits.
    RepairInOnePiece,
    /// A checkpoint is taken while what it holds is not in the log yet.
    CheckpointAheadOfLog,
    /// Recovery takes a data record's payload for whole without comparing its checksums.
    ChecksumNotChecked,
    /// Recovery keeps the beginning of a push that a crash cut short, as if it were the whole chunk.
    TornPushKept,
    /// A chunk counts as handled when it is given out: one whose grant ends is not given again.
    CursorMovedBeforeAcknowledgement,
    /// An acknowledgement under a grant that ended is accepted although another one was.
    EndedGrantAccepted,
    /// A push that is asked again after its chunk was handled is stored once more.
    RetriedPushRepeated,
    /// A writer whose lease on a file is over is obeyed, by devices and by the metadata store.
    OldGenerationAccepted,
    /// A push or an append of a session that is over is stored.
    EndedSessionAccepted,
    /// What was answered to a change is forgotten when its session makes two more, whether it may be asked again or not.
    AnswerForgottenByCount,
    /// Changes that set something to a value are not remembered: one that is asked again is made again.
    ChangeNotRemembered,
    /// The metadata store answers a question before the changes that the answer shows are synced.
    ReadAnsweredBeforeSync,
    /// A device remembers the last few chunks that were handled, however long their pushes may still be asked again.
    HandledForgottenByCount,
    /// A sealed bag has ended for a device although a push that it accepted before is not durable yet.
    EndedBeforeDurable,
    /// A push that waits for room is stored although its session is over and nobody knows any more whether it was handled.
    WaitingPushOutlivesSession,
    /// What waits in a device to change a chunk stays there when the chunk is moved.
    WaitingAppendStays,
    /// A file whose device failed goes on elsewhere, though what was acknowledged on that device may not be synced.
    UnsyncedLeftBehind,
    /// A group that ends early ends with everything that was sent, as if it had been acknowledged.
    GroupEndedAtSent,
    /// Whoever waits for bytes to be synced is told so when their group ends early, before they went out again.
    SyncedAtEarlyEnd,
    /// The whole of a group that ended early is garbage, not only what is behind its end.
    EarlyEndDropsAll,
    /// Devices of nodes that are silent are left out when somebody asks for a bag's members.
    SilentMemberLeftOut,
    /// An acknowledgement counts for the pass that its device is in, whichever it was sent for.
    WrongPassAccepted,
    /// The report of an earlier start of a node is believed.
    OldIncarnationAccepted,
    /// A node that does not keep the metadata takes writes of a session that was open once.
    MemberSessionNeverEnds,
    /// A chunk's new device is named in the metadata without its bytes being copied there.
    MovedUncopied,
    /// A chunk that may still be written is moved to another node as if it were at rest.
    OpenChunkMoved,
    /// What was deleted while a node was away is not looked for on its devices.
    ReturnedKeepsDeleted,
    /// Chunks on a device that came back are deleted without a look at whether the metadata names them.
    ReturnedDeletedUncompared,
    /// A file whose writer is gone ends with nothing if the node of its last chunk cannot be reached.
    UnreachableTakenForEmpty,
    /// A device that is emptied leaves a bag while chunks of it are there.
    BagLeftWithChunks,
    /// A device joins a bag that takes no chunks any more.
    SealedBagJoined,
    /// A device that joins a bag is not told that the bag retains its chunks, neither then nor by those who acknowledge them.
    JoinerNotToldOfPass,
    /// A push that was sent to a device and has no answer is pushed elsewhere when the device has left.
    UnansweredPushedElsewhere,
    /// A change that a gateway's client asked long ago, and to which the answer was forgotten, is done again when it comes late.
    ForgottenCallRepeated,
    /// An append takes the file from its own holder, with nothing of what was written and is not recorded yet.
    LateCallTakesFile,
    /// The chunks of a group that was taken from its writer before it had a byte are collected at once.
    FenceForgotten,
    /// Chunks that were never made are not fenced when their file is taken from its writer.
    UnmadeNotFenced,
    /// A remembered answer to a create or append says that its file is open, whoever has it now.
    RememberedLeaseBelieved,
    /// A block of Hadoop's that its client ends as it is counts as synced, as its last packet may have asked, without a sync.
    BlockEndedUnsynced,
    /// A keeper answers with its vote before the vote is durable.
    VoteNotSynced,
    /// A keeper writes its votes to its two blocks in turn.
    VoteInOneBlock,
    /// A keeper answers that it has entries before they are durable.
    EntryAcknowledgedBeforeSync,
    /// A new leader answers questions before it knows what earlier terms committed.
    ServedBeforeOwnEntry,
    /// A leader answers questions without having asked whether it still leads.
    LeaseNotAsked,
    /// A leader that asked another keeper to take over goes on answering questions.
    LeaseKeptInTransfer,
    /// A keeper that started votes although it may have promised a leader not to.
    VotesRightAfterStart,
    /// A keeper's promise to vote for nobody ends when it forgets to whom it gave it.
    PromiseForgotten,
    /// What a keeper computed as leader is proposed by the next leader.
    ForwardedProposalTaken,
    /// A leader counts what a keeper acknowledged before it started again.
    StartNotHeard,
    /// A keeper takes for committed what its leader means by what it acknowledged before it started again.
    CommittedBeforeStart,
    /// A keeper merges changes into its tree that the keepers did not agree on yet.
    MergedUncommitted,
    /// A new leader of the keepers does not know what calls earlier ones answered.
    AnswersForgottenAtTurn,
    /// A new leader of the keepers does not know which calls nobody asks again.
    FloorForgottenAtTurn,
    /// A leader tells what it read as of when it began to read.
    StaleClockTaken,
    /// `membership`: a node carries out what the leader of an earlier term ordered.
    OldTermObeyed,
    /// A keeper whose directory was lost votes under its number again, with a new one.
    WipedKeeperVotes,
    /// A keeper that gets a copy of another one's tree takes the first page for all of it.
    HalfACopyCounts,
    /// A keeper whose log lacks what it said it has goes on with what is left.
    RotTakenForTear,
    /// What lacks replicas is not written down.
    LackNotMarked,
    /// A replica is named where nothing was copied to.
    RepairedUncopied,
    /// `node::control`: what a drain copied is named without a comparison with the original.
    CopyUncompared,
    /// `membership`: a delete that a link asks again is done again, however late it comes.
    OrderRepeatedByLink,
    /// Bytes are lost where no replica has them all: the end of a group strikes the last one of a chunk out.
    LastReplicaStruck,
    /// `meta`: of a device that was given up nothing is named any more, not even what nothing else has.
    SilentReplicaDropped,
    /// `node`: a leader gives up devices of nodes that are silent as soon as it leads, as if it had waited for them.
    GivenUpAfterATurn,
    /// Who ends a group for a writer that is gone takes a process that was started again for one that has all that it took.
    RestartedTakenForSound,
    /// `client`: a writer says that bytes are written when one of their replicas has them.
    AcknowledgedWithoutAReplica,
    /// `client`: a replica that lacks the end of a group that goes on elsewhere stays named.
    LaggardNotStruck,
    /// `client`: a file goes on elsewhere with bytes that the group before it has, too.
    SentAgainFromWrongByte,
    /// `client`: small files are named that are in one replica of their group.
    PackedOnOne,
    /// A reader shows of a file that is being written what one replica has, and not what all have.
    TailSeenOfOne,
    /// What is below a directory whose wish for copies changed is not gone through after the first step.
    PolicyForgottenAtStep,
    /// A group that files share wants as few replicas as that of them which was gone through last.
    SharedLowered,
    /// A writer makes its groups with the wish that held when it began.
    WriterKeepsOldWish,
    /// `meta`: what a device has that was given up counts again with it, as if nobody had gone on without it.
    ReturnedReplicaBelieved,
}

impl Planted {
    /// Every one of them.
    pub const ALL: [Planted; 84] = [
        Planted::AnsweredBeforeSync,
        Planted::AnsweredBeforeWrite,
        Planted::EarlyRecordsForgotten,
        Planted::EarlyRecordsOverwritten,
        Planted::ChangeAnsweredBeforeSync,
        Planted::RetriedChangeRepeated,
        Planted::TombstoneDroppedEarly,
        Planted::ChainStaysEnded,
        Planted::StrikePerWrite,
        Planted::RepairInOnePiece,
        Planted::CheckpointAheadOfLog,
        Planted::ChecksumNotChecked,
        Planted::TornPushKept,
        Planted::CursorMovedBeforeAcknowledgement,
        Planted::EndedGrantAccepted,
        Planted::RetriedPushRepeated,
        Planted::OldGenerationAccepted,
        Planted::EndedSessionAccepted,
        Planted::AnswerForgottenByCount,
        Planted::ChangeNotRemembered,
        Planted::ReadAnsweredBeforeSync,
        Planted::HandledForgottenByCount,
        Planted::EndedBeforeDurable,
        Planted::WaitingPushOutlivesSession,
        Planted::WaitingAppendStays,
        Planted::UnsyncedLeftBehind,
        Planted::GroupEndedAtSent,
        Planted::SyncedAtEarlyEnd,
        Planted::EarlyEndDropsAll,
        Planted::SilentMemberLeftOut,
        Planted::WrongPassAccepted,
        Planted::OldIncarnationAccepted,
        Planted::MemberSessionNeverEnds,
        Planted::MovedUncopied,
        Planted::OpenChunkMoved,
        Planted::ReturnedKeepsDeleted,
        Planted::ReturnedDeletedUncompared,
        Planted::UnreachableTakenForEmpty,
        Planted::BagLeftWithChunks,
        Planted::SealedBagJoined,
        Planted::JoinerNotToldOfPass,
        Planted::UnansweredPushedElsewhere,
        Planted::ForgottenCallRepeated,
        Planted::LateCallTakesFile,
        Planted::FenceForgotten,
        Planted::UnmadeNotFenced,
        Planted::RememberedLeaseBelieved,
        Planted::BlockEndedUnsynced,
        Planted::VoteNotSynced,
        Planted::VoteInOneBlock,
        Planted::EntryAcknowledgedBeforeSync,
        Planted::ServedBeforeOwnEntry,
        Planted::LeaseNotAsked,
        Planted::LeaseKeptInTransfer,
        Planted::VotesRightAfterStart,
        Planted::PromiseForgotten,
        Planted::ForwardedProposalTaken,
        Planted::StartNotHeard,
        Planted::CommittedBeforeStart,
        Planted::MergedUncommitted,
        Planted::AnswersForgottenAtTurn,
        Planted::FloorForgottenAtTurn,
        Planted::StaleClockTaken,
        Planted::OldTermObeyed,
        Planted::WipedKeeperVotes,
        Planted::HalfACopyCounts,
        Planted::RotTakenForTear,
        Planted::LackNotMarked,
        Planted::RepairedUncopied,
        Planted::CopyUncompared,
        Planted::OrderRepeatedByLink,
        Planted::LastReplicaStruck,
        Planted::SilentReplicaDropped,
        Planted::GivenUpAfterATurn,
        Planted::RestartedTakenForSound,
        Planted::AcknowledgedWithoutAReplica,
        Planted::LaggardNotStruck,
        Planted::SentAgainFromWrongByte,
        Planted::PackedOnOne,
        Planted::TailSeenOfOne,
        Planted::PolicyForgottenAtStep,
        Planted::SharedLowered,
        Planted::WriterKeepsOldWish,
        Planted::ReturnedReplicaBelieved,
    ];

    /// Whether only several nodes together can have it.
    pub fn is_of_cluster(self) -> bool {
        self as u8 >= Planted::SilentMemberLeftOut as u8
    }

    /// The unit test that puts it in and has to notice it, `crate module::test`, for a fault that histories do not show: what it needs is
    /// made there in one step and comes about in none of thousands of histories.
    pub fn unit_test(self) -> Option<&'static str> {
        match self {
            Planted::ChainStaysEnded => Some("chunk recovery::two_power_losses_without_a_checkpoint"),
            Planted::EarlyRecordsOverwritten => Some("chunk early::what_is_written_survives"),
            Planted::StrikePerWrite => Some("chunk recovery::writes_that_fail_together_are_one_failure"),
            Planted::RepairInOnePiece => Some("chunk recovery::a_repair_takes_several_segments"),
            Planted::WaitingPushOutlivesSession => Some("chunk again::parked_ones_end_with_their_session"),
            Planted::UnansweredPushedElsewhere => Some("client routes::a_node_that_leaves_without_an_answer"),
            Planted::ForgottenCallRepeated => Some("meta answers::a_repeated_call_is_seen"),
            Planted::LateCallTakesFile | Planted::FenceForgotten | Planted::RememberedLeaseBelieved => {
                Some("meta answers::planted_faults_are_seen")
            }
            Planted::UnmadeNotFenced => Some("node recover::an_append_on_its_way_is_too_late"),
            Planted::VoteNotSynced
            | Planted::VoteInOneBlock
            | Planted::EntryAcknowledgedBeforeSync
            | Planted::ServedBeforeOwnEntry
            | Planted::LeaseNotAsked
            | Planted::LeaseKeptInTransfer
            | Planted::VotesRightAfterStart
            | Planted::ForwardedProposalTaken
            | Planted::StartNotHeard
            | Planted::CommittedBeforeStart => Some("quorum histories::planted_faults_are_seen"),
            Planted::MergedUncommitted
            | Planted::AnswersForgottenAtTurn
            | Planted::HalfACopyCounts
            | Planted::RotTakenForTear => Some("meta keepers::planted_faults_are_seen"),
            Planted::FloorForgottenAtTurn => Some("meta keepers::named::a_late_call_is_not_done_again"),
            Planted::StaleClockTaken => Some("meta keepers::named::an_old_clock_tells_nothing"),
            Planted::OldTermObeyed => Some("node cluster::orders::a_leader_that_is_over"),
            Planted::CopyUncompared => Some("node leading::tests::copies::a_copy_of_other_bytes"),
            Planted::OrderRepeatedByLink => Some("node cluster::orders::a_delete_that_comes_late"),
            Planted::LastReplicaStruck => Some("meta replicas::none_is_the_last"),
            Planted::SilentReplicaDropped => Some("meta lacking::a_silent_replica_that_is_dropped_is_missed"),
            Planted::GivenUpAfterATurn => Some("node control::giving_up::tests::a_new_leader_begins_anew"),
            Planted::RestartedTakenForSound => Some("node cluster::replicas::restarted_ones_do_not_decide"),
            Planted::AcknowledgedWithoutAReplica => Some("client written::acknowledged_by_all"),
            Planted::LaggardNotStruck => Some("client written::a_laggard_is_noticed"),
            Planted::SentAgainFromWrongByte => Some("client written::again_from_its_end"),
            Planted::PackedOnOne => Some("client packer::on_all_replicas"),
            Planted::TailSeenOfOne => Some("client open::what_all_have"),
            Planted::PolicyForgottenAtStep | Planted::SharedLowered | Planted::WriterKeepsOldWish => {
                Some("meta rewant::planted_faults_are_seen")
            }
            Planted::ReturnedReplicaBelieved => Some("meta lacking::returned::a_returned_replica_is_doubted"),
            Planted::PromiseForgotten => Some("quorum named::a_refusal_ends_no_promise"),
            _ => None,
        }
    }

    /// What goes wrong with it, in a few words for people.
    pub fn says(self) -> &'static str {
        match self {
            Planted::AnsweredBeforeSync => "synced is answered when it is written",
            Planted::AnsweredBeforeWrite => "written is answered when it is received",
            Planted::EarlyRecordsForgotten => "early records are not looked for",
            Planted::EarlyRecordsOverwritten => "early records are overwritten before the journal has them",
            Planted::ChangeAnsweredBeforeSync => "a change of names is answered before its log is synced",
            Planted::RetriedChangeRepeated => "a change asked again is made again",
            Planted::TombstoneDroppedEarly => "deletions are not merged",
            Planted::ChainStaysEnded => "recovery cuts off what an earlier one went on with",
            Planted::StrikePerWrite => "two writes that fail at once end a device",
            Planted::RepairInOnePiece => "failed writes wait for one segment that holds all of them",
            Planted::CheckpointAheadOfLog => "a checkpoint counts before everything in it is durable in the log",
            Planted::ChecksumNotChecked => "recovery believes a torn record",
            Planted::TornPushKept => "the beginning of a push counts as the chunk",
            Planted::CursorMovedBeforeAcknowledgement => "a chunk given out is not given again",
            Planted::EndedGrantAccepted => "a second acknowledgement is accepted",
            Planted::RetriedPushRepeated => "a push asked again comes back after its chunk was handled",
            Planted::OldGenerationAccepted => "a writer whose lease is over is obeyed",
            Planted::EndedSessionAccepted => "a push or append of a session that is over is stored",
            Planted::AnswerForgottenByCount => "an answer is forgotten because others came",
            Planted::ChangeNotRemembered => "a setting asked again undoes a later one",
            Planted::ReadAnsweredBeforeSync => "a question is answered before what it saw is synced",
            Planted::HandledForgottenByCount => {
                "a chunk that was handled is forgotten while its push may be asked again"
            }
            Planted::EndedBeforeDurable => "a bag ends before a push that it accepted is durable",
            Planted::WaitingPushOutlivesSession => "a push that waits is stored after its session is over",
            Planted::WaitingAppendStays => "an append that waits when its chunk is moved is done where the chunk was",
            Planted::UnsyncedLeftBehind => {
                "a file goes on elsewhere without bytes that were not synced when its device failed"
            }
            Planted::GroupEndedAtSent => "a file goes on elsewhere behind bytes that a full device refused",
            Planted::SyncedAtEarlyEnd => "bytes that a full device refused count as synced before they are elsewhere",
            Planted::EarlyEndDropsAll => "what a full device has of a file that goes on elsewhere is deleted",
            Planted::SilentMemberLeftOut => "a bag is told without the members that are silent",
            Planted::WrongPassAccepted => "an acknowledgement of an earlier pass counts in this one",
            Planted::OldIncarnationAccepted => "an earlier start of a node is believed",
            Planted::MemberSessionNeverEnds => "a member takes writes of a session that is over",
            Planted::MovedUncopied => "a drain names the new place and copies nothing",
            Planted::OpenChunkMoved => "a drain moves a chunk that is being written",
            Planted::ReturnedKeepsDeleted => "a node that comes back keeps what was deleted",
            Planted::ReturnedDeletedUncompared => "a node that comes back loses what it has",
            Planted::UnreachableTakenForEmpty => "a chunk that cannot be reached counts as empty",
            Planted::BagLeftWithChunks => "a drained device leaves a bag with its chunks",
            Planted::SealedBagJoined => "a device joins a bag that is sealed",
            Planted::JoinerNotToldOfPass => "a device that joins a bag does not know that it retains",
            Planted::UnansweredPushedElsewhere => "a push that was not answered is pushed elsewhere, too",
            Planted::ForgottenCallRepeated => {
                "a call of Hadoop's that comes late is done again when its answer is forgotten"
            }
            Planted::LateCallTakesFile => "a call that comes late takes a file as if nothing were written",
            Planted::FenceForgotten => "a writer that lost its file before its first byte is obeyed later",
            Planted::UnmadeNotFenced => "a writer that lost its file before its first byte is obeyed",
            Planted::RememberedLeaseBelieved => "an answer that is remembered opens a file for a second writer",
            Planted::BlockEndedUnsynced => "a block that is ended as it is counts as synced, and is not",
            Planted::VoteNotSynced => "a keeper votes before its vote is durable",
            Planted::VoteInOneBlock => "a keeper has its vote in one block, and that rots",
            Planted::EntryAcknowledgedBeforeSync => "a keeper says that it has what is not durable",
            Planted::ServedBeforeOwnEntry => "a new leader answers before it knows what was committed",
            Planted::LeaseNotAsked => "a leader answers without asking whether it still leads",
            Planted::LeaseKeptInTransfer => "a leader answers after it asked another one to take over",
            Planted::VotesRightAfterStart => "a keeper that starts votes against its own promise",
            Planted::PromiseForgotten => "a keeper forgets its promise with the leader's name",
            Planted::ForwardedProposalTaken => "a deposed leader's changes are made by the next one",
            Planted::StartNotHeard => "a leader counts what a keeper acknowledged before it started again",
            Planted::CommittedBeforeStart => "a keeper that started takes for committed what it may have lost",
            Planted::MergedUncommitted => "a keeper merges what is not agreed on",
            Planted::AnswersForgottenAtTurn => "a new leader makes changes again that an earlier one answered",
            Planted::FloorForgottenAtTurn => "a new leader does a late call again that was answered",
            Planted::StaleClockTaken => "a leader answers by a lease that is over",
            Planted::OldTermObeyed => "a node does what an earlier leader orders late",
            Planted::WipedKeeperVotes => "a keeper that lost what it promised votes again",
            Planted::HalfACopyCounts => "a copy of a keeper's tree counts before it is whole",
            Planted::RotTakenForTear => "a keeper goes on without what it said it has",
            Planted::LackNotMarked => "what lacks replicas gets none",
            Planted::RepairedUncopied => "a replica is named that is not there",
            Planted::CopyUncompared => "a copy is named though its bytes are not those of the original",
            Planted::OrderRepeatedByLink => "a delete that was answered long ago is done when it comes late",
            Planted::LastReplicaStruck => "the end of a group leaves a chunk without a replica",
            Planted::SilentReplicaDropped => "what only a device has that was given up is forgotten",
            Planted::GivenUpAfterATurn => "a new leader gives up devices that it has not waited for",
            Planted::RestartedTakenForSound => "a file loses bytes that it had on a device which is away",
            Planted::AcknowledgedWithoutAReplica => "bytes are acknowledged that only one replica has",
            Planted::LaggardNotStruck => "a replica is named that lacks the end of its group",
            Planted::SentAgainFromWrongByte => "a file has bytes twice where it went on elsewhere",
            Planted::PackedOnOne => "a small file is named that a replica of it lacks",
            Planted::TailSeenOfOne => "a reader sees bytes that are gone when the writer is",
            Planted::PolicyForgottenAtStep => "most files of a directory do not follow its changed policy",
            Planted::SharedLowered => "a small file loses copies because another one in its group wants fewer",
            Planted::WriterKeepsOldWish => "a file that is being written does not follow a changed policy",
            Planted::ReturnedReplicaBelieved => "a replica counts because its device is back",
        }
    }
}

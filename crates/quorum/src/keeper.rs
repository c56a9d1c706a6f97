//! One keeper with its disk: `Core` and `Log` together. It is told what came, what the disk has done and what time it is, and says what the
//! disk is to do, what to send, and what is committed.

use crate::core::{Core, Output, Role, Start};
use crate::kept::{Entry, Kept, room_of};
use crate::log::{Log, Settings};
use crate::message::{KeeperId, Message};
use crate::open::{Opened, open};
use crate::replay::Stamp;
use base::disk::{Disk, Done, Op};
use base::env::Random;
use base::error::{Error, ErrorKind, Result};
use base::id::ClusterId;
use base::planted::Planted;
use base::unit::Time;
use bytes::Bytes;
use std::sync::Arc;

/// Which keeper it is, and with whom it agrees.
pub struct Seat {
    /// The cluster.
    pub cluster: ClusterId,
    /// Which one it is.
    pub own: KeeperId,
    /// Who votes.
    pub voters: Vec<KeeperId>,
    /// How its log is kept.
    pub settings: Settings,
    /// Its chance: when it campaigns.
    pub random: Arc<dyn Random>,
    /// A fault that is put in on purpose.
    pub planted: Option<Planted>,
}

/// What a keeper wants done, besides what its disk is to do.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "effects are taken at once, and messages are most of them")]
pub enum Effect {
    /// To be sent; it may be lost, late, or come twice.
    Send {
        /// To whom.
        to: KeeperId,
        /// What.
        message: Message,
    },
    /// Committed, and durable here: what follows the entries that were told before.
    Committed(Vec<Entry>),
    /// What it is from now on, in which term.
    Turned(Role),
    /// What it lacks is not in the log of this leader any more (`Output::Lacks`).
    Lacks {
        /// Who leads.
        leader: KeeperId,
    },
}

/// A keeper that runs.
pub struct Keeper {
    core: Core,
    log: Log,
    /// What the core was told of the log.
    durable: u64,
    effects: Vec<Effect>,
}

impl Keeper {
    /// Opens its disk, whose entries up to `base` are kept elsewhere, durably, and goes on. Blocks. Errors as of `open`.
    pub fn open(disk: &mut dyn Disk, seat: Seat, base: Stamp, now: Time) -> Result<Keeper> {
        let Seat { cluster, own, voters, settings, random, planted } = seat;
        let uncommitted_max = settings.segments_max as u64 * settings.segment_length / 4;
        let (log, Opened { life, vote, entries, committed }) = open(disk, (cluster, own), base, settings, now)?;
        let kept = Kept::new(&voters, vote, base, committed, entries)?;
        let core = Core::start(Start { own, life, kept, uncommitted_max, random, now, planted })?;
        let mut keeper = Keeper { core, log, durable: 0, effects: Vec::new() };
        keeper.go_on(now);
        Ok(keeper)
    }

    /// One that is alone begins a term, and leads in it when that is durable. Until then it has told what it found as committed, so that room can be made for
    /// what it begins with. Others do nothing.
    pub fn lead_alone(&mut self, now: Time) -> Result<()> {
        self.core.lead_alone(now)?;
        self.go_on(now);
        Ok(())
    }

    /// A message came. `now` is read after it was taken from its link.
    pub fn receive(&mut self, now: Time, message: Message) {
        self.core.receive(now, message);
        self.go_on(now);
    }

    /// Time has gone on. Call it when `next_tick` is due.
    pub fn tick(&mut self, now: Time) {
        if self.core.next_tick().is_some_and(|due| due <= now) {
            self.core.tick(now);
        }
        self.log.tick(now);
        self.go_on(now);
    }

    /// When `tick` is to be called next. None: not before something else happens.
    pub fn next_tick(&self) -> Option<Time> {
        self.core.next_tick().into_iter().chain(self.log.next_tick()).min()
    }

    /// Adds a group of changes that were computed as the leader of this term (`Core::propose`). `Invalid` if no segment takes it: it would end the logs
    /// of all keepers.
    pub fn propose(&mut self, now: Time, term: u64, group: Bytes) -> Result<u64> {
        if !self.log.takes(room_of(group.len())) {
            let text = format!(
                "a group of {} bytes is larger than a segment of the keepers' log; nothing was added",
                group.len()
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let index = self.core.propose(now, term, group)?;
        self.go_on(now);
        Ok(index)
    }

    /// Adds a group without changes, as the leader of this term (`Core::propose_nothing`).
    pub fn propose_nothing(&mut self, now: Time, term: u64) -> Result<u64> {
        let index = self.core.propose_nothing(now, term)?;
        self.go_on(now);
        Ok(index)
    }

    /// Asks another keeper to take over at once, if this one leads (`Core::hand_over`).
    pub fn hand_over(&mut self, now: Time) {
        if let Some(to) = self.core.next_to_lead(now) {
            self.core.hand_over(now, to);
            self.go_on(now);
        }
    }

    /// An operation of the disk is done. `Err` if the log failed with it: this keeper says nothing more, and is to be ended.
    pub fn completed(&mut self, now: Time, done: Done) -> Result<()> {
        self.log.completed(now, done)?;
        self.go_on(now);
        self.failure().map_or(Ok(()), |failure| Err(failure.clone()))
    }

    /// The index up to which all keepers have the log, as far as it is known here (`Core::everybody`).
    pub fn everybody(&self) -> u64 {
        self.core.everybody()
    }

    /// The index up to which another keeper is known to have the log, if this one leads (`Core::matched`).
    pub fn matched(&self, keeper: KeeperId) -> Option<u64> {
        self.core.matched(keeper)
    }

    /// Entries up to this one are kept elsewhere, durably, and whoever is to get them from the log has them (`Core::free`).
    pub fn free(&mut self, now: Time, to: u64) {
        self.core.free(to);
        self.log.free(now, self.core.front());
        self.go_on(now);
    }

    /// Whether entries should be kept elsewhere soon: the log runs short of room.
    pub fn wants_room(&self) -> bool {
        self.log.wants_room()
    }

    /// Whether nothing is to be proposed before entries are kept elsewhere: a full log takes not even what a new leader begins with. Half of its segments are
    /// full; about five eighths, where there are eight or more.
    pub fn is_too_long(&self) -> bool {
        self.log.is_too_long()
    }

    /// Whether a quarter of the log is taken: what some keeper lacks is not to be kept for it any more.
    pub fn is_long(&self) -> bool {
        self.log.is_long()
    }

    /// Bytes of groups, as they take them on the disk (`room_of`), that can be proposed and will find room, whatever becomes of freeing entries and
    /// making segments, if none takes more than a quarter of a segment (`group_max`).
    pub fn room(&self) -> u64 {
        self.log.room()
    }

    /// Whether there is the segment that is written, and a spare one, or two that nothing is in.
    pub fn has_spare(&self) -> bool {
        self.log.has_spare()
    }

    /// Why its log writes nothing any more. To be asked after each call: a keeper whose log failed is to be ended.
    pub fn failure(&self) -> Option<&Error> {
        self.log.failure()
    }

    /// Whether nobody else can lead now, so that reads are answered: of all that is committed.
    pub fn has_lease(&self, now: Time) -> bool {
        self.core.has_lease(now)
    }

    /// The highest index that is durable at a majority, as far as it is known here.
    pub fn committed(&self) -> u64 {
        self.core.committed()
    }

    /// What it is.
    pub fn role(&self) -> Role {
        self.core.role()
    }

    /// Operations to be put to the disk, in order.
    pub fn take_operations(&mut self) -> Vec<(u64, Op)> {
        self.log.take_operations()
    }

    /// What is to be done since this was asked, in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Takes what one of the two has for the other, until neither has.
    fn go_on(&mut self, now: Time) {
        loop {
            for output in self.core.take_outputs() {
                match output {
                    Output::Write { number, vote, entries } => {
                        self.log.push(now, number, vote, entries, self.core.committed());
                    }
                    Output::Send { to, message } => self.effects.push(Effect::Send { to, message }),
                    Output::Committed(entries) => self.effects.push(Effect::Committed(entries)),
                    Output::Turned(role) => self.effects.push(Effect::Turned(role)),
                    Output::Lacks { leader } => self.effects.push(Effect::Lacks { leader }),
                }
            }
            if self.log.durable() == self.durable {
                return;
            }
            self.durable = self.log.durable();
            self.core.durable(now, self.durable);
        }
    }
}

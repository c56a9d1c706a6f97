//! What a node has that keeps the metadata with others: where its directory is (`place`), who they are (`seating`), how they begin a store together
//! (`formation`), how they speak (`lanes`) and hear (`steps`). How this one begins to keep and to lead is in `control::turns`.

pub mod formation;
pub mod lanes;
pub mod place;
pub mod seating;
pub mod steps;
#[cfg(test)]
mod tests;

use crate::control::claims::lock;
use crate::leading::Leading;
use crate::log::{Level, Log};
use crate::membership::Membership;
use crate::metadata::Metadata;
use crate::node::Keeper;
use crate::world::Ended;
use base::error::{Error, Result};
use base::id::NodeId;
use base::moved::Moved;
use formation::Formation;
use lanes::Lanes;
use meta::{KeeperId, Part};
use seating::Seating;
use std::sync::{Arc, Mutex, OnceLock};

/// What is said of a keeper that reads its log.
const OPENS: &str = "its metadata are being opened, and it is none of the keepers that count until that is done";

/// What is said of a keeper that lacks more than the others' logs have.
const COPIES: &str = "it gets a copy of another keeper's metadata, and is none of those that count until that is done";

/// What a node has whose store several nodes keep.
pub struct Several {
    /// What every node of such a store is, those that keep it, too.
    pub membership: Arc<Membership>,
    /// How it begins to keep; none: it is not told to.
    pub formation: Option<Arc<Formation>>,
    /// It keeps.
    pub keeping: OnceLock<Keeping>,
    /// Why it does not, although it is told to.
    trouble: Mutex<Option<String>>,
}

/// What a node has that keeps a store with others.
pub struct Keeping {
    /// As one that keeps alone has it.
    pub keeper: Keeper,
    /// Who they are, and which of them it is.
    pub seating: Seating,
    pub own: KeeperId,
    /// The ways to the others.
    pub lanes: Arc<Lanes>,
    /// The threads of the metadata.
    pub engines: Mutex<Vec<Ended>>,
}

/// Opens the metadata when it is known who keeps them, and which one of them this is.
pub type Open = Box<dyn Fn(&Seating, KeeperId) -> Result<Opened> + Send + Sync>;

/// What was opened.
pub struct Opened {
    /// As one that keeps alone has it.
    pub keeper: Keeper,
    /// The ways to the others.
    pub lanes: Arc<Lanes>,
    /// The threads of the metadata.
    pub engines: Vec<Ended>,
    /// What people should know about its disk.
    pub note: Option<String>,
}

impl Several {
    /// What is not known yet to keep anything.
    pub fn new(membership: Arc<Membership>, formation: Option<Arc<Formation>>) -> Several {
        Several { membership, formation, keeping: OnceLock::new(), trouble: Mutex::default() }
    }

    /// What it has if it keeps.
    pub fn keeping(&self) -> Option<&Keeping> {
        self.keeping.get()
    }

    /// Why it does not keep although it is told to: what it waits for, or what it found; or what is wrong with what it keeps.
    pub fn troubles(&self) -> Vec<String> {
        if let Some(keeping) = self.keeping() {
            let metadata = &keeping.keeper.metadata;
            let opens = || (!metadata.has_opened()).then(|| OPENS.to_string());
            let copies = || metadata.copies().then(|| COPIES.to_string());
            return metadata.standing().or_else(opens).or_else(copies).into_iter().collect();
        }
        let found = lock(&self.trouble).clone();
        let waits = || self.formation.as_ref().map(|formation| formation.waits()).unwrap_or_default();
        found.map_or_else(waits, |found| vec![found])
    }

    /// The same for the others, who count on it: one that hears of no leader is none on whom they can.
    pub fn keeps_badly(&self) -> Vec<String> {
        let mut troubles = self.troubles();
        let part = self.keeping().map(|keeping| keeping.keeper.metadata.part());
        if troubles.is_empty() && matches!(part, Some(Part::Follows { leader: None, .. })) {
            troubles.push("it hears of no keeper that leads".to_string());
        }
        troubles
    }

    /// It keeps nothing, for this reason.
    pub fn tell(&self, log: &Log, trouble: String) {
        log.say(Level::Error, "metadata", &trouble, &[]);
        *lock(&self.trouble) = Some(trouble);
    }

    /// Its leadership.
    pub fn leading(&self) -> Result<Arc<Leading>> {
        self.keeping().and_then(|keeping| keeping.keeper.leading()).ok_or_else(|| self.moved())
    }

    /// The metadata store, if that leads.
    pub fn metadata(&self) -> Result<&Arc<Metadata>> {
        let metadata = self.keeping().map(|keeping| &keeping.keeper.metadata);
        metadata.filter(|metadata| metadata.part().leads()).ok_or_else(|| self.moved())
    }

    /// Who leads in its place, as far as it knows: what its keeper heard last, or what it was told as a member, whichever is later.
    fn moved(&self) -> Error {
        let told = self.membership.leads();
        let Some(keeping) = self.keeping() else { return told.into() };
        let moved = match keeping.keeper.metadata.part() {
            Part::Follows { leader: Some(leader), term } if term >= told.term => {
                Moved { leader: self.address(keeping, leader), term }
            }
            // It is about to: whoever led before does not.
            Part::Leads { term } | Part::Begins { term } => Moved { leader: None, term },
            Part::Follows { .. } => told,
        };
        // It was told itself that it leads, and it does not.
        let own = self.address(keeping, keeping.own);
        let leader = moved.leader.filter(|leader| own.as_ref() != Some(leader));
        Moved { leader, ..moved }.into()
    }

    /// Where the node of a keeper listens: as it reported, else where it was when the store began.
    fn address(&self, keeping: &Keeping, keeper: KeeperId) -> Option<String> {
        let seat = keeping.seating.of_number(keeper)?;
        Some(self.membership.address_of(seat.node).unwrap_or_else(|| seat.address.clone()))
    }

    /// The nodes that keep the store.
    pub fn keepers(&self) -> Vec<NodeId> {
        let seats = self.keeping().map(|keeping| keeping.seating.seats.iter().map(|seat| seat.node).collect());
        seats.unwrap_or_else(|| self.membership.keepers())
    }

    /// Says nothing to the other keepers any more.
    pub fn falls_silent(&self) {
        self.keeping().iter().for_each(|keeping| keeping.lanes.close());
    }

    /// The threads of what it keeps, for whoever waits until they have ended.
    pub fn engines(&self) -> Vec<Ended> {
        let engines = self.keeping().map(|keeping| std::mem::take(&mut *lock(&keeping.engines)));
        engines.unwrap_or_default()
    }
}

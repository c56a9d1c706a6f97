//! How the keepers of a store's metadata begin it together. Each asks all others what they have. When none of them has a store, and all were told
//! the same, the first one draws it, and tells the others. A directory that was none of them then keeps nothing: it is new, and one that votes under
//! the number of another, which is lost, could undo what that one promised.

mod others;
#[cfg(test)]
mod tests;

use super::place::{has_metadata, is_alone};
use super::seating::{FILE, KeeperFile, Seat, Seating};
use crate::settings::shown;
use crate::troubles::Troubles;
use crate::world::World;
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind, Result};
use base::id::{ClusterId, NodeId};
use base::planted::Planted;
use base::unit::{Time, WallTime};
use meta::KeeperId;
use net::message::Done;
use net::message::keeper as wire;
use os::disk::Backend;
pub use others::{Links, Others};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// How often the others are asked while there is no store.
const ROUND: Duration = Duration::from_secs(1);

/// Longest pause before one that did not take it is told again that the store began.
const TELL_PAUSE_MAX: Duration = Duration::from_secs(60);

/// How often the log says what is still waited for.
const SAID_AGAIN: Duration = Duration::from_secs(60);

/// What a keeper is formed from.
pub struct Given {
    /// Its disks.
    pub world: Arc<dyn World>,
    /// Its directory, `keepers::directory`.
    pub directory: PathBuf,
    /// How small files are written.
    pub backend: Backend,
    /// Where all keepers are, as its settings say.
    pub keepers: Vec<String>,
    /// Which of them it is, counted from zero.
    pub own: usize,
    /// Its node.
    pub node: NodeId,
    /// Whether devices of the node are in use already, `keepers::is_late`.
    pub late: bool,
    /// Draws directories and stores.
    pub random: Arc<dyn Random>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The node keeps the store with others.
    Keeps {
        /// All of them.
        seating: Seating,
        /// Which one it is.
        own: KeeperId,
        /// What its directory was given.
        draw: u128,
    },
    /// A store was begun, and this directory is not one of its keepers'. The node serves without keeping anything.
    Lost {
        /// Those that are.
        seating: Seating,
        /// What happened and what to do, for people.
        text: String,
    },
    /// The directory can be no keeper's. It says what to do; nothing was changed.
    Refused(Error),
}

/// What a keeper's directory is.
enum Part {
    /// It is not there and could not be made, beside devices that were in use: its disk may not be mounted. It is looked for again, and the node serves
    /// its devices meanwhile.
    Unmade(Error),
    /// No store began with it.
    Empty(KeeperFile),
    /// One of the keepers of a store.
    Keeps { draw: u128, seating: Seating, own: KeeperId },
    /// None of the keepers of the store that there is.
    Lost { seating: Seating },
    /// A store's that its node keeps alone.
    Alone(Error),
    /// Not to be used.
    Refused(Error),
}

struct State {
    part: Part,
    /// What is waited for, and what is wrong, in sentences for people.
    waits: Vec<String>,
}

/// A keeper's directory, its settings, and what it knows of the others. It answers them for as long as its node runs.
pub struct Formation {
    given: Given,
    /// Changes when the file is written, and is held meanwhile.
    state: Mutex<State>,
    /// The state has changed.
    changed: Notify,
}

/// What a store's keepers are to this directory.
enum Judged {
    /// It is one of them.
    Own(KeeperId),
    /// It is none of them.
    None,
    /// It is one of them by what it was given, and something else does not fit.
    Differs(Error),
}

fn invalid(text: String) -> Error {
    Error::new(ErrorKind::Invalid, text)
}

/// What a node says that is asked and is none of the keepers that its settings name.
pub fn none_here() -> Error {
    invalid(
        "this node is none of the `keepers` that its own settings name; nothing was changed; one that is to be a keeper has its own address, \
         `advertise` or `listen`, in that list, spelled as there"
            .to_string(),
    )
}

impl Formation {
    /// Looks at the directory, and makes it a new one if nothing is there. To be called before devices are opened. An error: the disk's.
    pub fn open(given: Given) -> Result<Formation> {
        let part = Formation::found(&given)?;
        let state = Mutex::new(State { part, waits: Vec::new() });
        Ok(Formation { given, state, changed: Notify::new() })
    }

    fn found(given: &Given) -> Result<Part> {
        let (world, directory) = (given.world.as_ref(), given.directory.as_path());
        let at = shown(directory);
        let file = match KeeperFile::read(world, directory) {
            Ok(file) => file,
            Err(error) => return Ok(Part::Refused(error)),
        };
        let Some(file) = file else {
            if is_alone(world, directory)? {
                let text = format!(
                    "{at} holds the metadata of a store that its node keeps alone, and `keepers` names several; nothing was changed; to go on with that \
                     store say meta = \"local\" here, and node:// with this node's address on the others; for a new one give all keepers new directories"
                );
                return Ok(Part::Alone(invalid(text)));
            }
            let file = KeeperFile { draw: given.random.wide(), late: given.late, seating: None };
            let made = world.make_directory(directory).and_then(|()| file.write(world, directory, given.backend));
            return match made {
                Ok(()) => Ok(Part::Empty(file)),
                Err(error) if given.late => Ok(Part::Unmade(error.during(&at))),
                // Before any device is made: else the next start would come late.
                Err(error) => Err(error.during(&at)),
            };
        };
        let Some(seating) = file.seating.clone() else {
            if has_metadata(world, directory)? {
                let text = format!(
                    "{at} holds metadata, and its file `{FILE}` says that no store was begun there; nothing was changed; one of both was put back from \
                     elsewhere: with the file that belongs to the metadata it starts; else move the directory away while the node is stopped: the node \
                     then starts, and keeps nothing"
                );
                return Ok(Part::Refused(invalid(text)));
            }
            return Ok(Part::Empty(file));
        };
        let own = given.own_seat(file.draw, &seating);
        Ok(match own {
            Some(seat) if seat.node == given.node => Part::Keeps { draw: file.draw, own: seat.number, seating },
            Some(seat) => Part::Refused(given.of_another_node(seat)),
            None => Part::Refused(invalid(format!(
                "the file `{FILE}` in {at} names the keepers of a store, and this directory is none of them; nothing was changed; put the file back from a \
                 backup of this very directory, or move the directory away while the node is stopped: the node then starts, and keeps nothing"
            ))),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is waited for, and what is wrong, in sentences for people. Empty: nothing, or not known yet.
    pub fn waits(&self) -> Vec<String> {
        self.state().waits.clone()
    }

    /// What came of it; none: nothing yet.
    pub fn outcome(&self) -> Option<Outcome> {
        match &self.state().part {
            Part::Unmade(_) | Part::Empty(_) => None,
            Part::Keeps { draw, seating, own } => {
                Some(Outcome::Keeps { seating: seating.clone(), own: *own, draw: *draw })
            }
            Part::Lost { seating } => Some(Outcome::Lost { seating: seating.clone(), text: self.given.lost(seating) }),
            Part::Alone(error) | Part::Refused(error) => Some(Outcome::Refused(error.clone())),
        }
    }

    /// Tells another keeper what this one has.
    pub fn form(&self, asker: NodeId, ask: &wire::Form) -> Result<wire::FormAnswer> {
        let state = self.state();
        let (draw, begun, alone) = match &state.part {
            Part::Empty(file) if file.late => return Err(self.given.is_late()),
            Part::Empty(file) => (file.draw, None, false),
            Part::Keeps { draw, seating, .. } => (*draw, Some(seating.begin()), false),
            // Only those that keep a store say that there is one: two that do not would go on believing each other after it is gone.
            Part::Lost { seating } => return Err(invalid(self.given.lost(seating))),
            Part::Alone(_) => (0, None, true),
            Part::Refused(error) | Part::Unmade(error) => return Err(error.clone()),
        };
        if !alone && ask.draw.value() == draw && asker != self.given.node {
            return Err(self.given.is_copied(asker));
        }
        let (keepers, place) = (self.given.keepers.clone(), self.given.own as u32);
        Ok(wire::FormAnswer { keepers, place, draw: draw.into(), begun, alone })
    }

    /// A store began, as one of its keepers says.
    pub fn begin(&self, asker: NodeId, ask: &wire::Begin) -> Result<Done> {
        let seating = Seating::of_begin(ask)?;
        if seating.seats.iter().all(|seat| seat.node != asker) {
            let text = format!("node {asker} told of a store that it does not keep itself; nothing was changed");
            return Err(invalid(text));
        }
        self.take(seating)?;
        Ok(Done {})
    }

    /// A store began with these keepers. Done: this directory is one of them, and says so, durably.
    fn take(&self, seating: Seating) -> Result<()> {
        let mut state = self.state();
        let draw = match &state.part {
            Part::Empty(file) => file.draw,
            Part::Keeps { seating: own, .. } if *own == seating => return Ok(()),
            Part::Keeps { seating: own, .. } => {
                let text = format!(
                    "{} keeps store {}, and was told of store {}; nothing was changed; one of both was begun by nodes that could not know of the other: \
                     stop the nodes of the one that is not wanted",
                    shown(&self.given.directory),
                    own.store,
                    seating.store
                );
                return Err(invalid(text));
            }
            Part::Lost { seating } => return Err(invalid(self.given.lost(seating))),
            Part::Alone(error) | Part::Refused(error) | Part::Unmade(error) => return Err(error.clone()),
        };
        match self.given.judge(draw, &seating) {
            Judged::Own(own) => self.write(&mut state, draw, seating, own),
            Judged::Differs(error) => Err(error),
            Judged::None => {
                let error = invalid(self.given.lost(&seating));
                *state = State { part: Part::Lost { seating }, waits: vec![error.text().to_string()] };
                self.changed.notify_one();
                Err(error)
            }
        }
    }

    /// First the file, then what is said of it. If writing fails the file may say it nevertheless; nobody was told so.
    fn write(&self, state: &mut State, draw: u128, seating: Seating, own: KeeperId) -> Result<()> {
        let file = KeeperFile { draw, late: false, seating: Some(seating.clone()) };
        file.write(self.given.world.as_ref(), &self.given.directory, self.given.backend)?;
        *state = State { part: Part::Keeps { draw, seating, own }, waits: Vec::new() };
        self.changed.notify_one();
        Ok(())
    }

    /// Asks all others, again and again, until it is known whether this directory keeps a store. It may be dropped and called again at any time.
    pub async fn run(&self, others: Arc<dyn Others>, clock: &dyn Clock, troubles: &Troubles) -> Outcome {
        let mut said: Option<(Vec<String>, Time)> = None;
        loop {
            if self.outcome().is_none() {
                self.round(&others, clock.wall()).await;
            }
            if let Some(outcome) = self.outcome() {
                return outcome;
            }
            let (waits, now) = (self.waits(), clock.now());
            if said.as_ref().is_none_or(|(said, at)| *said != waits || now.since(*at) >= SAID_AGAIN) {
                waits.iter().for_each(|text| troubles.tell("keepers", text, &[]));
                said = Some((waits, now));
            }
            tokio::select! {
                biased;
                () = tokio::time::sleep(ROUND) => (),
                () = self.changed.notified() => (),
            }
        }
    }

    /// What the directory was given, while no store began with it.
    fn empty_draw(&self) -> Option<u128> {
        let mut state = self.state();
        if matches!(state.part, Part::Unmade(_)) {
            let part = Formation::found(&self.given).unwrap_or_else(Part::Unmade);
            let waits = match &part {
                Part::Unmade(error) => vec![format!("the metadata cannot be kept here: {error}; it is tried again")],
                _ => Vec::new(),
            };
            *state = State { part, waits };
        }
        match &state.part {
            Part::Empty(file) => Some(file.draw),
            _ => None,
        }
    }

    /// Asks all others once.
    async fn round(&self, others: &Arc<dyn Others>, wall: WallTime) {
        let Some(draw) = self.empty_draw() else { return };
        let (keepers, place) = (self.given.keepers.clone(), self.given.own as u32);
        let ask = wire::Form { keepers, place, draw: draw.into() };
        let mut asked = JoinSet::new();
        for (place, at) in self.given.others() {
            let (others, ask, at) = (others.clone(), ask.clone(), at.clone());
            asked.spawn(async move { (place, others.form(&at, ask).await) });
        }
        let mut answers = Vec::new();
        while let Some(answer) = asked.join_next().await {
            // One that panicked has no answer.
            answers.extend(answer.ok());
        }
        answers.sort_by_key(|(place, _)| *place);
        self.hear(answers, wall);
    }

    /// What the others, each at its place, answered.
    fn hear(&self, answers: Vec<(usize, Result<(NodeId, wire::FormAnswer)>)>, wall: WallTime) {
        let (mut seats, mut waits, mut begun) = (Vec::new(), Vec::new(), false);
        for (place, answer) in answers {
            let heard = answer.and_then(|(node, answer)| match &answer.begun {
                Some(store) => {
                    begun = true;
                    Seating::of_begin(store).and_then(|seating| self.take(seating)).map(|()| None)
                }
                None => self.given.seat(place, node, &answer).map(Some),
            });
            match heard {
                Ok(seat) => seats.extend(seat.map(|seat| (place, seat))),
                Err(error) => waits.push(format!("keeper {}: {}", self.given.keepers[place], error.text())),
            }
        }
        let mut state = self.state();
        let Part::Empty(file) = &state.part else { return };
        let (draw, late) = (file.draw, file.late);
        if late {
            waits.push(self.given.is_late().text().to_string());
        }
        let is_all = seats.len() + 1 == self.given.keepers.len() && waits.is_empty() && !begun;
        if is_all && self.given.own == 0 {
            let error = self.draw(&mut state, draw, seats, wall).err();
            waits.extend(error.map(|error| format!("no store was begun: {}", error.text())));
        } else if is_all {
            waits.push(format!("all keepers are there; {} is to begin the store", self.given.keepers[0]));
        }
        state.waits = waits;
    }

    /// Begins the store: no keeper has one, all are there and were told the same.
    fn draw(&self, state: &mut State, draw: u128, others: Vec<(usize, Seat)>, wall: WallTime) -> Result<()> {
        let (address, node) = (self.given.keepers[0].clone(), self.given.node);
        let own = Seat { number: number(0), node, draw, address };
        let seats: Vec<Seat> = std::iter::once(own).chain(others.into_iter().map(|(_, seat)| seat)).collect();
        let seating = Seating { store: ClusterId(self.given.random.wide()), made: wall, seats };
        if let Some(fault) = seating.fault() {
            let text = format!("{fault}; nothing was changed; give each keeper a node and a directory of its own");
            return Err(invalid(text));
        }
        self.write(state, draw, seating, number(0))
    }

    /// Where the other keepers are now, as far as the settings can say so: where they were when the store began, if that is still named; else at the
    /// address that is in that place now.
    pub fn addresses(&self, seating: &Seating, own: KeeperId) -> Vec<(String, NodeId)> {
        let keepers = &self.given.keepers;
        let at = |(place, seat): (usize, &Seat)| {
            let moved =
                keepers.get(place).filter(|_| keepers.len() == seating.seats.len() && !keepers.contains(&seat.address));
            (seat.number != own).then(|| (moved.unwrap_or(&seat.address).clone(), seat.node))
        };
        seating.seats.iter().enumerate().filter_map(at).collect()
    }

    /// Tells the other keepers that the store began, each until it has answered. Nothing is done unless this one keeps it.
    pub async fn tell(&self, others: &dyn Others, troubles: &Troubles) {
        let Some(Outcome::Keeps { seating, own, .. }) = self.outcome() else { return };
        let mut untold = self.addresses(&seating, own);
        let mut pause = ROUND;
        loop {
            let mut left = Vec::new();
            for (at, node) in untold {
                match others.begin(&at, seating.begin()).await {
                    Ok(answered) if answered == node => continue,
                    Ok(answered) => {
                        let text = "another node is where a keeper is to be; the keeper there is not told that the store began";
                        troubles.tell("keepers", text, &[("at", &at), ("node", &answered), ("wanted", &node)]);
                    }
                    // It is away, which is said elsewhere, and may have known for years.
                    Err(error) if error.kind() == ErrorKind::Unreachable => {}
                    Err(error) => {
                        let text = "a keeper is not told yet that the store began";
                        troubles.tell("keepers", text, &[("at", &at), ("error", &error)]);
                    }
                }
                left.push((at, node));
            }
            untold = left;
            if untold.is_empty() {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(TELL_PAUSE_MAX);
        }
    }
}

/// The number of the keeper at this place of a new store.
fn number(place: usize) -> KeeperId {
    KeeperId(place as u64 + 1)
}

impl Given {
    /// All places but the own, and where they are.
    fn others(&self) -> impl Iterator<Item = (usize, &String)> {
        self.keepers.iter().enumerate().filter(|(place, _)| *place != self.own)
    }

    /// The seat of this directory: by what it was given, and by nothing else.
    fn own_seat<'a>(&self, draw: u128, seating: &'a Seating) -> Option<&'a Seat> {
        if self.world.planted() == Some(Planted::WipedKeeperVotes) {
            return seating.seats.get(self.own);
        }
        seating.of_draw(draw)
    }

    /// What these keepers of a store are to this directory, with which no store began.
    fn judge(&self, draw: u128, seating: &Seating) -> Judged {
        let Some(seat) = self.own_seat(draw, seating) else { return Judged::None };
        if seat.node != self.node {
            return Judged::Differs(self.of_another_node(seat));
        }
        if let Err(differs) = self.is_same_list(seating.seats.iter().map(|seat| &seat.address)) {
            let text = format!(
                "store {} was begun with this directory, and with other `keepers` than are set here: {differs}; nothing was changed; set them as they were \
                 then, in that order, until this keeper has begun",
                seating.store
            );
            return Judged::Differs(invalid(text));
        }
        // The place is the own one then: no two of a list are the same.
        Judged::Own(seat.number)
    }

    /// Whether other keepers have the same list. What differs, for people.
    fn is_same_list<'a>(&self, list: impl Iterator<Item = &'a String> + Clone) -> std::result::Result<(), String> {
        if list.clone().eq(&self.keepers) {
            return Ok(());
        }
        let list: Vec<&str> = list.take(self.keepers.len() + 1).map(String::as_str).collect();
        let shortened = |text: &str| text.chars().take(100).collect::<String>().escape_debug().to_string();
        let differing = self.keepers.iter().zip(&list).enumerate().find(|(_, (here, there))| here != *there);
        Err(match differing {
            Some((place, (here, there))) => {
                format!("number {} is {here} here and {} there", place + 1, shortened(there))
            }
            None => format!("here are {} of them, there more or fewer", self.keepers.len()),
        })
    }

    /// The seat of another keeper, which has no store: one that has what it takes to begin one.
    fn seat(&self, place: usize, node: NodeId, answer: &wire::FormAnswer) -> Result<Seat> {
        if answer.alone {
            return Err(invalid(
                "it holds the metadata of a store that it keeps alone; nothing was changed; its own log says what to do".to_string(),
            ));
        }
        if let Err(differs) = self.is_same_list(answer.keepers.iter()) {
            let text = format!(
                "its `keepers` are not the same: {differs}; nothing was changed; set them the same on all, in one order"
            );
            return Err(invalid(text));
        }
        if answer.place as usize != place || node == self.node {
            return Err(invalid(
                "another keeper answers at this address; nothing was changed; give each keeper one address, and name it in `keepers`".to_string(),
            ));
        }
        Ok(Seat { number: number(place), node, draw: answer.draw.value(), address: self.keepers[place].clone() })
    }

    fn lost(&self, seating: &Seating) -> String {
        format!(
            "store {} is kept by {}, and the directory {} of this node is not one of those that it was begun with: it is new, or its metadata were lost; the \
             node serves and keeps nothing; if the directory that was one of them is still there, stop the node and put it back; no copy of another keeper's fits",
            seating.store,
            seating.seats.iter().map(|seat| seat.address.as_str()).collect::<Vec<_>>().join(", "),
            shown(&self.directory)
        )
    }

    fn is_late(&self) -> Error {
        invalid(format!(
            "devices of this node are in use already, and its metadata directory {} was new; nothing was changed; if the node kept metadata, mount their \
             disk, or say with metadata_dir where they are; a new store begins only with devices that are new, too",
            shown(&self.directory)
        ))
    }

    fn is_copied(&self, asker: NodeId) -> Error {
        invalid(format!(
            "node {asker} has a copy of the directory {} of node {}; nothing was changed; remove the copy while its node is stopped, and let it make a \
             directory of its own",
            shown(&self.directory),
            self.node
        ))
    }

    fn of_another_node(&self, seat: &Seat) -> Error {
        invalid(format!(
            "{} is the directory of keeper {} on node {}, and this is node {}; nothing was changed; if it is a copy, move it away while the node is \
             stopped: the node then starts, and keeps nothing; else start it together with that node's devices, which say which node it is",
            shown(&self.directory),
            seat.number.0,
            seat.node,
            self.node
        ))
    }
}

//! Who keeps the metadata of a store that several keep, as each keeper's directory says it.

use base::id::{ClusterId, NodeId};
use base::unit::WallTime;
use meta::{KeeperId, Seats};
use net::message::keeper as wire;

/// The keepers of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seating {
    /// The store.
    pub store: ClusterId,
    /// When it began.
    pub made: WallTime,
    /// All of them, in the order of their numbers.
    pub seats: Vec<Seat>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Its number.
    pub number: KeeperId,
    /// The node that it is on.
    pub node: NodeId,
    /// What its directory was given when it was made.
    pub draw: u128,
    /// Where its node listens, `host:port`.
    pub address: String,
}

impl Seating {
    /// The keeper whose directory was given this.
    pub fn of_draw(&self, draw: u128) -> Option<&Seat> {
        self.seats.iter().find(|seat| seat.draw == draw)
    }

    /// The keeper of this number.
    pub fn of_number(&self, number: KeeperId) -> Option<&Seat> {
        self.seats.iter().find(|seat| seat.number == number)
    }

    /// What the store is opened with by this one of them.
    pub fn seats(&self, own: KeeperId) -> Seats {
        let voters = self.seats.iter().map(|seat| seat.number).collect();
        Seats { store: self.store, own, voters, made: self.made }
    }

    /// The same as the wire has it.
    pub fn begin(&self) -> wire::Begin {
        let seat = |seat: &Seat| wire::Seat {
            number: seat.number.0,
            node: seat.node.0.into(),
            draw: seat.draw.into(),
            address: seat.address.clone(),
        };
        wire::Begin { store: self.store.0.into(), made: self.made.0, seats: self.seats.iter().map(seat).collect() }
    }
}

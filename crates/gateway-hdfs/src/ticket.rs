//! A connection's place among all of the gateway: when it may rest, and when it has to leave.

use base::places::{Place, Places, Taken};
use std::sync::Arc;
use std::time::Duration;

/// A connection that does nothing is closed after this long while half of all places are taken. Hadoop's clients close those of calls
/// after ten seconds (`ipc.client.connection.maxidletime`).
pub const IDLE_MAX_CROWDED: Duration = Duration::from_secs(20);

/// A connection's place among all of the gateway.
pub struct Ticket {
    place: Place,
    places: Arc<Places>,
}

impl Ticket {
    /// One of these places, which was just taken.
    pub fn new(place: Place, places: Arc<Places>) -> Ticket {
        Ticket { place, places }
    }

    /// One of few places, all others of which are free.
    #[cfg(test)]
    pub fn alone() -> Ticket {
        Ticket::among(&Places::new(16))
    }

    /// One of these places, of a client of another machine that has said who it is.
    #[cfg(test)]
    pub fn among(places: &Arc<Places>) -> Ticket {
        let mut place = places.enter(false).unwrap_or_else(|taken| unreachable!("{taken}"));
        place.prove().unwrap_or_else(|taken| unreachable!("{taken}"));
        Ticket { place, places: places.clone() }
    }

    /// Who is at the other end has said it. Refused if there are too many of its kind, and none of them rests.
    pub fn known(&mut self) -> Result<(), Taken> {
        self.place.prove()
    }

    /// Nothing is under way: it gives way to newcomers if there is no other place for them, those that rest longest first.
    pub fn rest(&mut self) {
        self.place.rest();
    }

    /// Something is under way: it gives way to nobody. Refused if it has given way already, and there is no room for it to stay.
    pub fn work(&mut self) -> Result<(), Taken> {
        self.place.work()
    }

    /// Ready once the connection has to leave; with the reason.
    pub fn poll_leave(&self, context: &std::task::Context<'_>) -> std::task::Poll<Taken> {
        self.place.poll_leave(context)
    }

    /// Whether half of all places are taken: those that do nothing are kept for less time then.
    pub fn is_crowded(&self) -> bool {
        self.places.open() >= self.places.most() / 2
    }
}

//! Who may be connected to a server: a number of places that peers who have not proved who they are cannot take from others.
//!
//! A connection enters unproven. Unproven ones hold a quarter of all places at the most: when another comes, the one that has been there
//! longest is told to leave, one of this machine last. So whoever connects has a moment to prove itself, whatever others do. Those that
//! have proved themselves hold the rest, up to what is kept for newcomers and, beyond that, for peers of this machine.
//!
//! A place is a number in a table: no socket, no clock. What leaving means is up to whoever holds the place.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The places of one server.
#[derive(Debug)]
pub struct Places {
    most: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// By number, so the first is the oldest.
    unproven: BTreeMap<u64, Unproven>,
    /// Told to leave, and still there.
    leaving: usize,
    proven: usize,
}

#[derive(Debug)]
struct Unproven {
    near: bool,
    waker: Option<Waker>,
}

/// A connection's place, free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    number: u64,
    near: bool,
    proven: bool,
}

/// No place was to be had: why, for people at both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken(String);

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Places {
    /// So many places, at least 16.
    pub fn new(most: usize) -> Arc<Places> {
        Arc::new(Places { most: most.max(16), table: Mutex::default() })
    }

    /// Places in all.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Connections that have a place now.
    pub fn open(&self) -> usize {
        let table = self.lock();
        table.unproven.len() + table.leaving + table.proven
    }

    /// A place for one who has just connected; `near`: from this machine. If there are too many of its kind, the oldest is told to leave.
    pub fn enter(self: &Arc<Self>, near: bool) -> Result<Place, Taken> {
        let (number, woken) = {
            let mut table = self.lock();
            let table = &mut *table;
            let full = table.unproven.len() + table.leaving + table.proven >= self.most;
            let mut woken = None;
            if full || table.unproven.len() >= self.most / 4 {
                let far = table.unproven.iter().find(|(_, unproven)| !unproven.near).map(|(number, _)| *number);
                // One of this machine gives way only to another of it.
                let oldest = far.or_else(|| table.unproven.keys().next().copied().filter(|_| near));
                // Those that are leaving need a moment, for which there is room beyond the limit, but not for any number of them.
                let oldest = oldest.filter(|_| table.leaving < self.most / 4);
                let Some(left) = oldest.and_then(|number| table.unproven.remove(&number)) else {
                    return Err(Taken(format!(
                        "{} connections are open, which is the most; nothing was done; try again in a moment, or end some",
                        self.most
                    )));
                };
                table.leaving += 1;
                woken = left.waker;
            }
            let number = table.next;
            table.next += 1;
            table.unproven.insert(number, Unproven { near, waker: None });
            (number, woken)
        };
        if let Some(waker) = woken {
            waker.wake();
        }
        Ok(Place { places: self.clone(), number, near, proven: false })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Whether the peer is on this machine.
    pub fn is_near(&self) -> bool {
        self.near
    }

    /// The peer has proved who it is: it is not told to leave any more. Refused if all places for such peers are taken.
    pub fn prove(&mut self) -> Result<(), Taken> {
        if self.proven {
            return Ok(());
        }
        let most = self.places.most;
        // A sixteenth is for newcomers, who would not come to prove themselves without it; another one for peers of this machine.
        let allowed = if self.near { most - most / 16 } else { most - most / 8 };
        let mut table = self.places.lock();
        if table.proven >= allowed {
            return Err(Taken(format!(
                "{} connections are open, and the others are kept; nothing was done; try again in a moment, or end some",
                table.proven
            )));
        }
        if table.unproven.remove(&self.number).is_none() {
            return Err(Taken(pushed_out(most)));
        }
        table.proven += 1;
        drop(table);
        self.proven = true;
        Ok(())
    }

    /// Ready once this connection has to leave because others came before it had proved who it is; with the reason.
    pub fn poll_leave(&self, context: &Context<'_>) -> Poll<Taken> {
        if self.proven {
            return Poll::Pending;
        }
        match self.places.lock().unproven.get_mut(&self.number) {
            Some(unproven) => {
                if !unproven.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                    unproven.waker = Some(context.waker().clone());
                }
                Poll::Pending
            }
            None => Poll::Ready(Taken(pushed_out(self.places.most))),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.places.lock();
        if self.proven {
            table.proven -= 1;
        } else if table.unproven.remove(&self.number).is_none() {
            table.leaving -= 1;
        }
    }
}

fn pushed_out(most: usize) -> String {
    format!(
        "others connected, and of the {most} connections a quarter is for those that have not said who they are; nothing was done; try again"
    )
}

#[cfg(test)]
mod tests {
    use super::{Place, Places};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake, Waker};

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn leaves(place: &Place) -> bool {
        place.poll_leave(&Context::from_waker(Waker::noop())).is_ready()
    }

    /// Those that have not proved themselves have a quarter; the oldest goes when another comes, is woken to hear it, and cannot prove
    /// itself any more. Those that have are left alone.
    #[test]
    fn the_oldest_stranger_goes() {
        let places = Places::new(64);
        let mut good = places.enter(false).unwrap();
        good.prove().unwrap();
        let mut strangers: Vec<Place> = (0..16).map(|_| places.enter(false).unwrap()).collect();
        assert!(!strangers.iter().any(leaves));
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        assert!(strangers[0].poll_leave(&Context::from_waker(&waker)).is_pending());
        let newcomer = places.enter(false).unwrap();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(leaves(&strangers[0]) && strangers[0].prove().is_err());
        assert!(!strangers[1..].iter().any(leaves) && !leaves(&newcomer) && !leaves(&good));
        assert_eq!(places.open(), 18);
        strangers.clear();
        drop((newcomer, good));
        assert_eq!(places.open(), 0);
    }

    /// However many strangers come, one who proves itself at once gets in; they are refused at the door only while many that were
    /// told to leave are still there, and peers of this machine are not pushed out by others.
    #[test]
    fn strangers_keep_nobody_out() {
        let places = Places::new(64);
        let near = places.enter(true).unwrap();
        let (mut crowd, mut refused) = (Vec::new(), 0);
        for _ in 0..1000 {
            match places.enter(false) {
                Ok(place) => crowd.push(place),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > 0 && places.open() <= 64 + 16, "{}", places.open());
        assert!(!leaves(&near));
        crowd.retain(|place| !leaves(place));
        let mut good = places.enter(false).unwrap();
        good.prove().unwrap();
        assert!(!leaves(&good) && !leaves(&near));
    }

    /// Those that have proved themselves cannot fill all places either: newcomers can come and be told, and peers of this machine get in.
    #[test]
    fn some_places_are_kept() {
        let places = Places::new(64);
        let mut held = Vec::new();
        let mut full = None;
        for _ in 0..100 {
            let mut place = places.enter(false).unwrap();
            match place.prove() {
                Ok(()) => held.push(place),
                Err(taken) => full = Some(taken),
            }
        }
        assert_eq!(held.len(), 56);
        assert!(full.unwrap().to_string().contains("56 connections are open"));
        let mut near = places.enter(true).unwrap();
        near.prove().unwrap();
    }
}

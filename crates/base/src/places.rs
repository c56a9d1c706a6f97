//! Who may be connected to a server: a number of places that peers who have not proved who they are cannot take from others.
//!
//! A connection enters unproven. Unproven ones hold a quarter of all places at the most: when another comes, the one that has been there
//! longest is told to leave, one of this machine last. So whoever connects has a moment to prove itself, whatever others do; one that
//! proves itself before it has left stays. Those that have proved themselves hold the rest, up to what is kept for newcomers and, beyond
//! that, for peers of this machine. If all of that is taken, and some of them have said that nothing is under way on theirs, the one for
//! which that is true longest gives way as strangers do, unless something comes over it before it has left. Where strangers are few it goes
//! before any of them.
//!
//! A place is a number in a table: no socket, no clock. What leaving means is up to whoever holds the place.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Turns that whoever takes connections gives to others before it takes the next one, however many have not left by then.
const TURNS: usize = 8;

/// The places of one server.
#[derive(Debug)]
pub struct Places {
    most: usize,
    table: Mutex<Table>,
    scarce: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    unproven: Leavers,
    /// Told to leave, and still there.
    leaving: usize,
    proven: usize,
    /// Those of the proven on which nothing is under way.
    resting: Leavers,
}

/// Those that can be told to leave, and what wakes them: first those that are not of this machine, each kind in the order of its numbers.
type Leavers = BTreeMap<(bool, u64), Option<Waker>>;

/// A connection's place, free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    number: u64,
    near: bool,
    proven: bool,
    /// Its number among those that rest.
    resting: Option<u64>,
}

/// No place was to be had: why, for people at both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken(String);

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Table {
    fn open(&self) -> usize {
        self.unproven.len() + self.leaving + self.proven
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Those that are leaving need a moment, for which there is room beyond the limit, but not for any number of them.
    fn may_tell(&self, most: usize) -> bool {
        self.leaving < most / 4
    }

    /// Tells the oldest stranger to leave, for a newcomer that is `near`. What wakes it, if one was told.
    fn tell_stranger(&mut self, most: usize, near: bool) -> Option<Option<Waker>> {
        let waker = self.may_tell(most).then(|| tell_first(&mut self.unproven, near)).flatten()?;
        self.leaving += 1;
        Some(waker)
    }

    /// The same of those that have proved themselves and rest.
    fn tell_resting(&mut self, most: usize, near: bool) -> Option<Option<Waker>> {
        let waker = self.may_tell(most).then(|| tell_first(&mut self.resting, near)).flatten()?;
        self.leaving += 1;
        self.proven -= 1;
        Some(waker)
    }
}

/// Tells the first to leave; one of this machine gives way only to another of it, and last. What wakes it, if one was told.
fn tell_first(leavers: &mut Leavers, near: bool) -> Option<Option<Waker>> {
    let first = leavers.first_entry().filter(|first| near || !first.key().0)?;
    Some(first.remove())
}

/// Wakes one that was told to leave. Never with the table locked.
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl Places {
    /// So many places, at least 16.
    pub fn new(most: usize) -> Arc<Places> {
        Arc::new(Places { most: most.max(16), table: Mutex::default(), scarce: AtomicBool::new(false) })
    }

    /// Places in all.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Connections that have a place now.
    pub fn open(&self) -> usize {
        self.lock().open()
    }

    /// A place for one who has just connected; `near`: from this machine. If there are too many of its kind, the oldest is told to leave.
    pub fn enter(self: &Arc<Self>, near: bool) -> Result<Place, Taken> {
        let most = self.most;
        let (number, told) = {
            let mut table = self.lock();
            let full = table.open() >= most;
            let mut told = None;
            if full || table.unproven.len() >= most / 4 {
                // Where strangers are few, those that were told to leave and have not left yet fill the places: the oldest stranger may be
                // about to prove itself.
                let leaver = if full && table.unproven.len() <= most / 16 {
                    table.tell_resting(most, near).or_else(|| table.tell_stranger(most, near))
                } else {
                    let stranger = table.tell_stranger(most, near);
                    stranger.or_else(|| if full { table.tell_resting(most, near) } else { None })
                };
                let Some(waker) = leaver else {
                    return Err(Taken(format!(
                        "{most} connections are open, which is the most; nothing was done; try again in a moment, or end some"
                    )));
                };
                told = waker;
            }
            let number = table.number();
            table.unproven.insert((near, number), None);
            (number, told)
        };
        wake(told);
        Ok(Place { places: self.clone(), number, near, proven: false, resting: None })
    }

    /// Whether so many were told to leave, and are still there, that newcomers will soon find no room.
    pub fn is_crowded(&self) -> bool {
        self.lock().leaving >= self.most / 16
    }

    /// Whether half of the places are taken by those that have proved themselves: who has nothing under way should say so at once.
    pub fn is_scarce(&self) -> bool {
        self.scarce.load(Ordering::Relaxed)
    }

    /// Notes whether places are scarce now.
    fn note(&self, table: &Table) {
        let scarce = table.proven >= self.most / 2;
        if scarce != self.is_scarce() {
            self.scarce.store(scarce, Ordering::Relaxed);
        }
    }

    /// Lets those that were told to leave have their turns, for a moment: between two newcomers, so that the second finds room.
    pub async fn let_leave(&self) {
        for _ in 0..TURNS {
            if !self.is_crowded() {
                return;
            }
            tokio::task::yield_now().await;
        }
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

    /// How many that have proved themselves may be there for this one to be one of them. A sixteenth is for newcomers, who would not come
    /// to prove themselves without it; another one for peers of this machine.
    fn allowed(&self) -> usize {
        let most = self.places.most;
        if self.near { most - most / 16 } else { most - most / 8 }
    }

    /// The peer has proved who it is: it is not told to leave as long as something is under way, and stays if it was. If all places for
    /// such peers are taken, the one that rests longest is told to leave; refused if none does.
    pub fn prove(&mut self) -> Result<(), Taken> {
        if self.proven {
            return Ok(());
        }
        let most = self.places.most;
        let mut table = self.places.lock();
        let mut told = None;
        if table.proven >= self.allowed() {
            let Some(waker) = table.tell_resting(most, self.near) else {
                return Err(Taken(format!(
                    "{} connections are open, and the others are kept; nothing was done; try again in a moment, or end some",
                    table.proven
                )));
            };
            told = waker;
        }
        if table.unproven.remove(&(self.near, self.number)).is_none() {
            // It was told to leave, and is not the stranger that it was taken for.
            table.leaving -= 1;
        }
        table.proven += 1;
        self.places.note(&table);
        drop(table);
        self.proven = true;
        wake(told);
        Ok(())
    }

    /// Of one that has proved itself: nothing is under way from now on, so it may be told to leave.
    pub fn rest(&mut self) {
        if !self.proven || self.resting.is_some() {
            return;
        }
        let mut table = self.places.lock();
        let number = table.number();
        table.resting.insert((self.near, number), None);
        self.resting = Some(number);
    }

    /// Something is under way again: it stays. If it was told to leave, and its place is needed, another one that rests goes in its stead;
    /// refused if none does.
    pub fn work(&mut self) -> Result<(), Taken> {
        let Some(number) = self.resting else { return Ok(()) };
        let most = self.places.most;
        let mut table = self.places.lock();
        let mut told = None;
        if table.resting.remove(&(self.near, number)).is_none() {
            if table.proven >= self.allowed() || table.open() > most {
                let Some(waker) = table.tell_resting(most, self.near) else { return Err(Taken(gave_way(most))) };
                told = waker;
            }
            table.leaving -= 1;
            table.proven += 1;
        }
        self.places.note(&table);
        drop(table);
        self.resting = None;
        wake(told);
        Ok(())
    }

    /// Ready once this connection has to leave because others came before it had proved who it is, or while it rests; with the reason.
    pub fn poll_leave(&self, context: &Context<'_>) -> Poll<Taken> {
        if self.proven && self.resting.is_none() {
            return Poll::Pending;
        }
        let mut table = self.places.lock();
        let (waker, reason) = match (self.proven, self.resting) {
            (false, _) => (table.unproven.get_mut(&(self.near, self.number)), pushed_out as fn(usize) -> String),
            (true, Some(number)) => (table.resting.get_mut(&(self.near, number)), gave_way as fn(usize) -> String),
            (true, None) => return Poll::Pending,
        };
        match waker {
            Some(waker) => {
                if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                    *waker = Some(context.waker().clone());
                }
                Poll::Pending
            }
            None => Poll::Ready(Taken(reason(self.places.most))),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.places.lock();
        let told = match (self.proven, self.resting) {
            (false, _) => table.unproven.remove(&(self.near, self.number)).is_none(),
            (true, Some(number)) => table.resting.remove(&(self.near, number)).is_none(),
            (true, None) => false,
        };
        if told {
            table.leaving -= 1;
        } else if self.proven {
            table.proven -= 1;
        }
        self.places.note(&table);
    }
}

fn pushed_out(most: usize) -> String {
    format!(
        "others connected, and of the {most} connections a quarter is for those that have not said who they are; nothing was done; try again"
    )
}

fn gave_way(most: usize) -> String {
    format!(
        "others connected, all of the {most} connections are taken, and on this one nothing was under way for longest; connect again"
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

    /// Those that have not proved themselves have a quarter; the oldest goes when another comes, and is woken to hear it. Those that have
    /// are left alone.
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
        assert!(leaves(&strangers[0]));
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

    /// One whose proof was on its way when it was told to leave stays, and is counted as those that have proved themselves are; the places
    /// are said to be crowded while many have not left.
    #[test]
    fn who_proves_itself_before_it_has_left_stays() {
        let places = Places::new(64);
        let mut strangers: Vec<Place> = (0..20).map(|_| places.enter(false).unwrap()).collect();
        assert!(strangers[..4].iter().all(leaves) && places.is_crowded());
        strangers[0].prove().unwrap();
        assert!(!leaves(&strangers[0]) && !places.is_crowded() && places.open() == 20);
        strangers.clear();
        assert_eq!(places.open(), 0);
        assert!(!places.is_crowded());
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

    /// Places are all taken, because some that were told to leave are still there, and strangers are few: those that rest give way to
    /// newcomers, not the stranger that has not been heard yet.
    #[test]
    fn few_strangers_are_waited_for() {
        let places = Places::new(64);
        let mut held = resting(&places, 56);
        let mut strangers: Vec<Place> = (0..8).map(|_| places.enter(false).unwrap()).collect();
        let mut good = strangers.pop().unwrap();
        // Each tells one that rests to leave, which stays for a while.
        for mut stranger in strangers {
            stranger.prove().unwrap();
            stranger.rest();
            held.push(stranger);
        }
        assert!(places.open() == 64 && held[..7].iter().all(leaves) && !held[7..].iter().any(leaves));
        let crowd: Vec<Place> = (0..4).map(|_| places.enter(false).unwrap()).collect();
        assert!(!leaves(&good) && !crowd.iter().any(leaves));
        good.prove().unwrap();
        assert!(!leaves(&good) && held[..11].iter().all(leaves) && !held[11..].iter().any(leaves));
        // Of many strangers the oldest goes, as ever.
        let more: Vec<Place> = (0..2).map(|_| places.enter(false).unwrap()).collect();
        assert!(leaves(&crowd[0]) && !crowd[1..].iter().chain(&more).any(leaves));
    }

    /// So many that have proved themselves, and rest.
    fn resting(places: &Arc<Places>, count: usize) -> Vec<Place> {
        let one = |_| {
            let mut place = places.enter(false).unwrap();
            place.prove().unwrap();
            place.rest();
            place
        };
        (0..count).map(one).collect()
    }

    /// Those that say who they are and nothing more keep nobody out, however many come: the one that rests longest goes, and is woken
    /// to hear it; those on which something is under way stay.
    #[test]
    fn who_rests_longest_gives_way() {
        let places = Places::new(64);
        let mut busy = places.enter(false).unwrap();
        busy.prove().unwrap();
        busy.rest();
        busy.work().unwrap();
        let mut idle = resting(&places, 55);
        assert!(!idle.iter().any(leaves));
        let woken = Arc::new(Woken::default());
        assert!(idle[0].poll_leave(&Context::from_waker(&Waker::from(woken.clone()))).is_pending());
        // What came over the oldest but one makes it the youngest.
        idle[1].work().unwrap();
        idle[1].rest();
        idle.extend(resting(&places, 2));
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        let told: Vec<usize> = (0..idle.len()).filter(|at| leaves(&idle[*at])).collect();
        assert_eq!(told, [0, 2]);
        assert!(!leaves(&busy));
        for _ in 0..1000 {
            idle.retain(|place| !leaves(place));
            idle.extend(resting(&places, 1));
        }
        assert!(!leaves(&busy) && places.open() <= 57, "{}", places.open());
        drop((idle, busy));
        assert_eq!(places.open(), 0);
    }

    /// One over which something comes before it has left stays, and another one goes for it: however many do that, the places that are
    /// kept for newcomers stay free. Those of this machine give way to others of it alone.
    #[test]
    fn what_comes_before_it_has_left_counts() {
        let places = Places::new(64);
        let mut idle = resting(&places, 56);
        let mut stayed = 0;
        for _ in 0..25 {
            let mut place = places.enter(false).unwrap();
            place.prove().unwrap();
            idle.push(place);
            for told in idle.iter_mut().filter(|place| leaves(place)) {
                if told.work().is_ok() {
                    told.rest();
                    stayed += 1;
                }
            }
            idle.retain(|place| !leaves(place));
            assert!(places.open() <= 57, "{}", places.open());
        }
        assert!(stayed >= 8, "{stayed}");
        drop(idle);
        let mut near = Vec::new();
        for _ in 0..60 {
            let mut place = places.enter(true).unwrap();
            place.prove().unwrap();
            place.rest();
            near.push(place);
        }
        let mut far = places.enter(false).unwrap();
        assert!(far.prove().is_err());
        let mut other = places.enter(true).unwrap();
        other.prove().unwrap();
        assert_eq!(near.iter().filter(|place| leaves(place)).count(), 1);
        drop((near, far, other));
        assert_eq!(places.open(), 0);
    }
}

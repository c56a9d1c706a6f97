//! Deletes are done once. The leader numbers those that it orders of a device, in each term from 1 on, and its link asks again what was not answered: over
//! another connection, so that the first asking may come when the second was answered long ago, and the chunk is there anew. What was done, or is
//! below the floor that the leader says, which asks nothing lower any more, is answered and not done.
//!
//! In the memory of this process alone: what was asked of an earlier one does not reach it (`LinkSettings::meant`), and of an earlier term nothing is
//! obeyed (`terms`).

use base::error::{Error, ErrorKind, Result};
use base::id::DeviceId;
use base::planted::Planted;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Deletes of one device above its floor that are remembered: more than jobs have under way at once, and less than 1 MiB.
const REMEMBERED_MAX: usize = 10_000;

/// Knows what was deleted.
#[derive(Default)]
pub struct Deletes {
    devices: Mutex<BTreeMap<DeviceId, Numbers>>,
    /// A delete has ended.
    ended: Notify,
    /// A fault put in on purpose, by the simulation alone.
    planted: Option<Planted>,
}

/// Who ordered it: the term, and the start of the node that leads. Metadata that were put back from a copy may bring a term a second time.
pub type Leader = (u64, u64);

/// The deletes of a device that one leader ordered, the last one that was heard of.
#[derive(Default)]
struct Numbers {
    leader: Leader,
    /// Nothing lower is asked again.
    floor: u64,
    /// How those at or above it ended; none: they are under way. One that failed is not tried again under its number: its failure may have been heard of.
    asked: BTreeMap<u64, Option<Result<()>>>,
}

/// What is to be done with one.
enum Course {
    Do,
    Answer(Result<()>),
    Wait,
}

/// A delete that is being done. Dropped before its end, it was cut short.
struct Doing<'a> {
    deletes: &'a Deletes,
    device: DeviceId,
    leader: Leader,
    number: u64,
    ended: Option<Result<()>>,
}

impl Deletes {
    /// None yet.
    pub fn new(planted: Option<Planted>) -> Deletes {
        Deletes { planted, ..Deletes::default() }
    }

    fn devices(&self) -> MutexGuard<'_, BTreeMap<DeviceId, Numbers>> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the delete of this number, unless it was done; then that is answered, when it is. Zero: of a leader of an older version, which has no numbers.
    pub async fn once<F: Future<Output = Result<()>>>(
        &self,
        (device, leader): (DeviceId, Leader),
        (number, floor): (u64, u64),
        does: impl FnOnce() -> F,
    ) -> Result<()> {
        if number == 0 || self.planted == Some(Planted::OrderRepeatedByLink) {
            return does().await;
        }
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            // From here on no word is missed.
            ended.as_mut().enable();
            match self.course((device, leader), (number, floor.min(number))) {
                Course::Do => break,
                Course::Answer(answer) => return answer,
                Course::Wait => ended.await,
            }
        }
        let mut doing = Doing { deletes: self, device, leader, number, ended: None };
        let done = does().await;
        doing.ended = Some(done.clone());
        done
    }

    fn course(&self, (device, leader): (DeviceId, Leader), (number, floor): (u64, u64)) -> Course {
        let mut devices = self.devices();
        let numbers = devices.entry(device).or_default();
        if numbers.leader != leader {
            *numbers = Numbers { leader, ..Numbers::default() };
        }
        if floor > numbers.floor {
            numbers.floor = floor;
            // Those that are under way are waited for by whoever repeats them, and go when they end.
            numbers.asked.retain(|number, ended| *number >= floor || ended.is_none());
        }
        match numbers.asked.get(&number) {
            Some(None) => Course::Wait,
            Some(Some(ended)) => Course::Answer(ended.clone()),
            None if number < numbers.floor => Course::Answer(Ok(())),
            None if numbers.asked.len() >= REMEMBERED_MAX => {
                let text = format!(
                    "{REMEMBERED_MAX} deletes were ordered of device {device} since the oldest that is not answered; nothing was done; ask again"
                );
                Course::Answer(Err(Error::new(ErrorKind::Busy, text)))
            }
            None => {
                numbers.asked.insert(number, None);
                Course::Do
            }
        }
    }
}

impl Drop for Doing<'_> {
    fn drop(&mut self) {
        let Doing { device, leader, number, .. } = *self;
        let cut_short = || Err(Error::new(ErrorKind::Io, "a delete was cut short; whether it was done is not known"));
        let ended = self.ended.take().unwrap_or_else(cut_short);
        let mut devices = self.deletes.devices();
        if let Some(numbers) = devices.get_mut(&device).filter(|numbers| numbers.leader == leader) {
            match number < numbers.floor {
                true => drop(numbers.asked.remove(&number)),
                false => drop(numbers.asked.insert(number, Some(ended))),
            }
        }
        drop(devices);
        self.deletes.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::{Deletes, REMEMBERED_MAX};
    use base::error::{Error, ErrorKind, Result};
    use base::id::DeviceId;
    use base::planted::Planted;
    use std::cell::Cell;
    use std::time::Duration;
    use tokio::sync::oneshot;
    use tokio::time::timeout;

    const DEVICE: DeviceId = DeviceId(1);

    /// Asks for a delete; the answer, and whether it was done.
    async fn asked(deletes: &Deletes, term: u64, number: u64, floor: u64) -> (Result<()>, bool) {
        let done = Cell::new(false);
        let does = || async {
            done.set(true);
            Ok(())
        };
        (deletes.once((DEVICE, (term, 5)), (number, floor), does).await, done.get())
    }

    /// Each number is done once in a term, and nothing below the floor; another device and another term have numbers of their own. What has no number is
    /// done as often as it is asked.
    #[tokio::test]
    async fn once_each() {
        let deletes = Deletes::new(None);
        for (term, number, floor, done) in [
            (1, 1, 1, true),
            (1, 1, 1, false),
            (1, 3, 1, true),
            (1, 2, 1, true),
            (1, 2, 1, false),
            (1, 9, 6, true),
            (1, 4, 1, false),
            (1, 6, 1, true),
            (1, 6, 1, false),
            (1, 0, 0, true),
            (1, 0, 0, true),
            (2, 1, 1, true),
            (2, 1, 1, false),
        ] {
            assert_eq!(asked(&deletes, term, number, floor).await, (Ok(()), done), "{number} in term {term}");
        }
        let other =
            deletes.once((DeviceId(2), (2, 5)), (1, 1), || async { Err(Error::new(ErrorKind::Io, "it failed")) }).await;
        let again = deletes.once((DeviceId(2), (2, 5)), (1, 1), || async { Ok(()) }).await;
        assert_eq!((other.clone().is_err(), other), (true, again), "it was heard of");
        let planted = Deletes::new(Some(Planted::OrderRepeatedByLink));
        assert!(asked(&planted, 1, 1, 1).await.1 && asked(&planted, 1, 1, 1).await.1);
    }

    /// One that comes again while it is done is answered when it is. So many are remembered, and no more taken.
    #[tokio::test(start_paused = true)]
    async fn answered_when_it_is_done() {
        let deletes = Deletes::new(None);
        let (end, ends) = oneshot::channel::<()>();
        let does = || async {
            ends.await.expect("it ends");
            Ok(())
        };
        let first = deletes.once((DEVICE, (1, 5)), (1, 1), does);
        let again = async {
            let second = asked(&deletes, 1, 1, 1);
            tokio::pin!(second);
            assert!(timeout(Duration::from_secs(1), &mut second).await.is_err(), "it is not done");
            assert!(asked(&deletes, 1, 2, 2).await.1, "another one is nothing to it");
            end.send(()).expect("it is waited for");
            second.await
        };
        assert_eq!(tokio::join!(first, again), (Ok(()), (Ok(()), false)));
        for number in 3..REMEMBERED_MAX as u64 + 2 {
            assert!(asked(&deletes, 1, number, 2).await.1);
        }
        let next = REMEMBERED_MAX as u64 + 2;
        let (refused, done) = asked(&deletes, 1, next, 2).await;
        assert_eq!((refused.map_err(|error| error.kind()), done), (Err(ErrorKind::Busy), false));
        assert!(asked(&deletes, 1, next, next).await.1, "the others are answered");
    }
}

//! The numbers of what a session may ask again: its pushes to each device, and its messages of acknowledgements. A device remembers
//! what it answered until it hears that a number is passed.

use base::error::{Error, ErrorKind, Result};
use base::id::{ChunkId, PushName};
use net::message::Id;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The numbers of one session, by device.
pub(crate) struct Streams {
    /// `SessionId::mark` of the session.
    session: u64,
    devices: Mutex<BTreeMap<u128, Stream>>,
}

#[derive(Clone)]
struct Stream {
    /// Its number within the session.
    stream: u16,
    pushes: Arc<Numbers>,
    acknowledgements: Arc<Numbers>,
}

impl Streams {
    pub(crate) fn new(session: u64) -> Streams {
        Streams { session, devices: Mutex::default() }
    }

    fn to(&self, device: Id) -> Result<Stream> {
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = devices.get(&device.value()) {
            return Ok(stream.clone());
        }
        let Ok(stream) = u16::try_from(devices.len()) else {
            let text = "this session has met as many devices as it can; nothing was sent; begin a new one";
            return Err(Error::new(ErrorKind::Busy, text));
        };
        let stream = Stream { stream, pushes: Arc::default(), acknowledgements: Arc::default() };
        devices.insert(device.value(), stream.clone());
        Ok(stream)
    }

    /// The name of a new push to this device. Waits while that would be so many ahead of one that has no answer yet.
    pub(crate) async fn push(&self, device: Id, ahead: u64) -> Result<PushNumber> {
        let Stream { stream, pushes, .. } = self.to(device)?;
        let number = pushes.take(ahead).await;
        Ok(PushNumber { name: PushName { session: self.session, stream, number: number.number }.chunk(), number })
    }

    /// The number of a new message of acknowledgements to this device. Waits as `push` does.
    pub(crate) async fn acknowledgement(&self, device: Id, ahead: u64) -> Result<Number> {
        Ok(self.to(device)?.acknowledgements.take(ahead).await)
    }
}

/// The name of a push. Dropped, the push is not asked again.
pub(crate) struct PushNumber {
    pub(crate) name: ChunkId,
    pub(crate) number: Number,
}

/// Numbers that rise by one, and which of them may be asked again.
pub(crate) struct Numbers {
    state: Mutex<State>,
    passed: Notify,
}

struct State {
    next: u64,
    open: BTreeSet<u64>,
}

impl Default for Numbers {
    fn default() -> Numbers {
        // Zero says that there is no number.
        Numbers { state: Mutex::new(State { next: 1, open: BTreeSet::new() }), passed: Notify::new() }
    }
}

impl State {
    fn floor(&self) -> u64 {
        self.open.first().copied().unwrap_or(self.next)
    }
}

impl Numbers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next number, once it is less than `ahead` from the lowest that may be asked again.
    async fn take(self: &Arc<Self>, ahead: u64) -> Number {
        loop {
            // Whoever gives a number back from here on is heard.
            let passed = self.passed.notified();
            {
                let mut state = self.state();
                let number = state.next;
                if number - state.floor() < ahead.max(1) {
                    state.next += 1;
                    state.open.insert(number);
                    return Number { number, numbers: self.clone() };
                }
            }
            passed.await;
        }
    }
}

/// A number that may be asked again until this is dropped.
pub(crate) struct Number {
    pub(crate) number: u64,
    numbers: Arc<Numbers>,
}

impl Number {
    /// The lowest number that may be asked again.
    pub(crate) fn floor(&self) -> u64 {
        self.numbers.state().floor()
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        self.numbers.state().open.remove(&self.number);
        self.numbers.passed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::Streams;
    use base::id::PushName;
    use std::time::Duration;

    /// Numbers rise for each device by itself; the floor is the lowest that is held, and nobody gets further ahead of it than allowed.
    #[tokio::test(start_paused = true)]
    async fn floors() {
        let streams = Streams::new(5);
        let push = |device: u128| streams.push(device.into(), 3);
        let (first, second) = (push(1).await.expect("a name"), push(1).await.expect("a name"));
        let other = push(2).await.expect("a name");
        let name = |stream, number| PushName { session: 5, stream, number };
        let names = [&first, &second, &other].map(|push| PushName::of(push.name));
        assert_eq!(names, [name(0, 1), name(0, 2), name(1, 1)]);
        drop(second);
        let third = push(1).await.expect("a name");
        assert_eq!((third.number.floor(), other.number.floor()), (1, 1));
        let waits = tokio::time::timeout(Duration::from_secs(1), push(1)).await;
        assert!(waits.is_err(), "the fourth is three ahead of the first");
        let (fourth, ()) = tokio::join!(push(1), async { drop(first) });
        let fourth = fourth.expect("a name");
        assert_eq!((PushName::of(fourth.name), fourth.number.floor()), (name(0, 4), 3));
        drop((third, fourth));
        let fifth = push(1).await.expect("a name");
        assert_eq!(fifth.number.floor(), 5);
    }
}

//! A value that tasks wait for, and an end that they wait for. They are woken in the order in which they began to wait: those of tokio's `watch`
//! are woken by chance as soon as there are two, and no history of the simulation could be played twice.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The value. Clones are the same one.
#[derive(Debug, Default)]
pub struct Watched<T>(Arc<Inner<T>>);

#[derive(Debug, Default)]
struct Inner<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> Clone for Watched<T> {
    fn clone(&self) -> Watched<T> {
        Watched(self.0.clone())
    }
}

impl<T> Watched<T> {
    /// A value that nobody waits for yet.
    pub fn new(value: T) -> Watched<T> {
        Watched(Arc::new(Inner { value: Mutex::new(value), changed: Notify::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value now.
    pub fn get(&self) -> T
    where
        T: Clone,
    {
        self.lock().clone()
    }

    /// Something of the value now.
    pub fn look<S>(&self, look: impl FnOnce(&T) -> S) -> S {
        look(&self.lock())
    }

    /// It is this from now on.
    pub fn set(&self, value: T) {
        self.change(|now| *now = value);
    }

    /// Changes it.
    pub fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.lock());
        self.0.changed.notify_waiters();
    }

    /// Comes when the value is so, if it is so for long enough that whoever waits has his turn.
    pub fn until(&self, is_so: impl Fn(&T) -> bool + Send + 'static) -> impl Future<Output = ()> + Send + 'static
    where
        T: Send + 'static,
    {
        let watched = self.clone();
        async move {
            loop {
                let mut changed = std::pin::pin!(watched.0.changed.notified());
                // Before the look: what changes right after it is not missed.
                changed.as_mut().enable();
                if is_so(&watched.lock()) {
                    return;
                }
                changed.await;
            }
        }
    }
}

/// Says that something is over: when it is told to, or when it is dropped.
#[derive(Debug)]
pub struct Stop(Watched<bool>);

/// Hears that something is over. Clones hear the same, in the order in which they began to wait.
#[derive(Clone, Debug)]
pub struct Stopped(Watched<bool>);

impl Stop {
    /// Of something that goes on; and who hears when it is over.
    pub fn new() -> (Stop, Stopped) {
        let over = Watched::new(false);
        (Stop(over.clone()), Stopped(over))
    }

    /// It is over.
    pub fn stop(&self) {
        self.0.set(true);
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Stopped {
    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        self.0.get()
    }

    /// Comes when it is over; at once if it is.
    pub fn until(&self) -> impl Future<Output = ()> + Send + 'static {
        self.0.until(|over| *over)
    }
}

#[cfg(test)]
mod tests {
    use super::{Stop, Watched};
    use std::sync::{Arc, Mutex};

    /// Many wait: each hears of it, and in the order in which they came.
    #[tokio::test]
    async fn in_order() {
        let (watched, heard) = (Watched::new(0), Arc::new(Mutex::new(Vec::new())));
        let mut waiting = Vec::new();
        for number in 0..20 {
            let (until, heard) = (watched.until(|value| *value == 2), heard.clone());
            waiting.push(tokio::spawn(async move {
                until.await;
                heard.lock().unwrap().push(number);
            }));
        }
        for value in 1..3 {
            tokio::task::yield_now().await;
            assert!(heard.lock().unwrap().is_empty());
            watched.set(value);
        }
        for one in waiting {
            one.await.unwrap();
        }
        assert_eq!(*heard.lock().unwrap(), (0..20).collect::<Vec<_>>());
        assert_eq!(watched.get(), 2);
    }

    /// Many wait for an end: each hears of it in the order in which they came, and so whether it is told or nobody is left who could.
    #[tokio::test]
    async fn ends_in_order() {
        for is_told in [true, false] {
            let ((stop, stopped), heard) = (Stop::new(), Arc::new(Mutex::new(Vec::new())));
            let mut waiting = Vec::new();
            for number in 0..20 {
                let (until, heard) = (stopped.until(), heard.clone());
                waiting.push(tokio::spawn(async move {
                    until.await;
                    heard.lock().unwrap().push(number);
                }));
            }
            tokio::task::yield_now().await;
            assert!(heard.lock().unwrap().is_empty() && !stopped.is_over());
            if is_told {
                stop.stop();
            } else {
                drop(stop);
            }
            for one in waiting {
                one.await.unwrap();
            }
            assert_eq!(*heard.lock().unwrap(), (0..20).collect::<Vec<_>>());
            assert!(stopped.is_over());
            stopped.until().await;
        }
    }
}

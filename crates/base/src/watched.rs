//! A value that tasks wait for. They are woken in the order in which they began to wait: those of tokio's `watch` are woken by chance as soon as there
//! are two, and no history of the simulation could be played twice.

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

#[cfg(test)]
mod tests {
    use super::Watched;
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
}

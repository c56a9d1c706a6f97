//! Network cards as slow as they are told: what one machine sends to another, and what it receives, passes its card at a given rate.
//! Machines are nodes with the clients that stand on them; between those nothing passes a card.
//!
//! The side that connected counts for both: what it writes goes out of its card and into the other's, what it reads the other way.

use base::env::Clock;
use base::error::Result;
use base::net::{Boxed, Listener, Net, Stream};
use base::unit::Time;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Bytes are sent in pieces of at most this, so that streams of one card take turns.
const PIECE: usize = 64 * 1024;

/// A card that had nothing to do for a while makes up for at most so much of it: timers are a millisecond late, and threads later.
const CREDIT: Duration = Duration::from_millis(10);

/// Nobody sleeps for less.
const NAP: Duration = Duration::from_millis(1);

/// One direction of a card.
struct Lane {
    rate: u64,
    /// When everything taken so far has passed.
    free: Mutex<Time>,
}

impl Lane {
    fn new(rate: u64) -> Arc<Lane> {
        Arc::new(Lane { rate, free: Mutex::new(Time::ZERO) })
    }

    /// When so many bytes, which come now, have passed.
    fn take(&self, now: Time, bytes: usize) -> Time {
        let nanos = bytes as u128 * 1_000_000_000 / u128::from(self.rate.max(1));
        let earliest = Time::from_nanos(now.as_nanos().saturating_sub(CREDIT.as_nanos() as u64));
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        *free = free.max(earliest).after(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)));
        *free
    }
}

/// A machine's card.
#[derive(Clone)]
struct Nic {
    sends: Arc<Lane>,
    receives: Arc<Lane>,
}

/// The cards of all machines, which are numbered, and who listens on which of them.
pub struct Nics {
    net: Arc<dyn Net>,
    clock: Arc<dyn Clock>,
    rate: u64,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    cards: BTreeMap<usize, Nic>,
    listeners: BTreeMap<String, usize>,
}

impl Nics {
    /// Cards of this many bytes a second in each direction, over `net`.
    pub fn new(net: Arc<dyn Net>, clock: Arc<dyn Clock>, rate: u64) -> Nics {
        Nics { net, clock, rate, known: Mutex::default() }
    }

    /// The network as the machine of this number has it.
    pub fn host(self: &Arc<Self>, number: usize) -> Arc<dyn Net> {
        Arc::new(CardNet { cards: self.clone(), number })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn card(&self, number: usize) -> Nic {
        let new = || Nic { sends: Lane::new(self.rate), receives: Lane::new(self.rate) };
        self.known().cards.entry(number).or_insert_with(new).clone()
    }

    /// The machine that listens there.
    fn listener(&self, address: &str) -> Option<usize> {
        self.known().listeners.get(address).copied()
    }
}

/// The network of one machine.
struct CardNet {
    cards: Arc<Nics>,
    number: usize,
}

impl Net for CardNet {
    fn connect<'a>(&'a self, address: &'a str) -> Boxed<'a, Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let inner = self.cards.net.connect(address).await?;
            let other = match self.cards.listener(address) {
                Some(other) if other != self.number => self.cards.card(other),
                _ => return Ok(inner),
            };
            let mine = self.cards.card(self.number);
            let out = Way { lanes: [mine.sends, other.receives], after: None };
            let into = Way { lanes: [other.sends, mine.receives], after: None };
            Ok(Box::new(CardStream { inner, clock: self.cards.clock.clone(), out, into }) as Box<dyn Stream>)
        })
    }

    fn listen<'a>(&'a self, address: &'a str) -> Boxed<'a, Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let listener = self.cards.net.listen(address).await?;
            self.cards.known().listeners.insert(listener.address(), self.number);
            Ok(listener)
        })
    }

    fn is_here(&self, address: &str) -> bool {
        self.cards.listener(address) == Some(self.number)
    }
}

/// One direction of a stream: the lanes that it takes, and when the next piece may go.
struct Way {
    lanes: [Arc<Lane>; 2],
    after: Option<Pin<Box<Sleep>>>,
}

impl Way {
    /// Waits until the next piece may go.
    fn poll_free(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(after) = &mut self.after {
            ready!(after.as_mut().poll(context));
            self.after = None;
        }
        Poll::Ready(())
    }

    /// So many bytes went.
    fn went(&mut self, now: Time, bytes: usize) {
        let passed = self.lanes.iter().map(|lane| lane.take(now, bytes)).max().unwrap_or(now);
        let wait = passed.since(now);
        if wait >= NAP {
            self.after = Some(Box::pin(tokio::time::sleep(wait)));
        }
    }
}

/// A stream between two machines.
struct CardStream {
    inner: Box<dyn Stream>,
    clock: Arc<dyn Clock>,
    out: Way,
    into: Way,
}

impl Stream for CardStream {
    fn peer(&self) -> String {
        self.inner.peer()
    }
}

impl AsyncRead for CardStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.into.poll_free(context));
        let before = out.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, out))?;
        let now = self.clock.now();
        self.into.went(now, out.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for CardStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.out.poll_free(context));
        let piece = &bytes[..bytes.len().min(PIECE)];
        let went = ready!(Pin::new(&mut self.inner).poll_write(context, piece))?;
        let now = self.clock.now();
        self.out.went(now, went);
        Poll::Ready(Ok(went))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::{Lane, Nics};
    use base::env::{Clock, Random};
    use base::unit::Time;
    use sim::net::SimNet;
    use sim::random::SimRandom;
    use sim::runtime_clock::RuntimeClock;
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// What passes takes its time, one after the other; idle time is made up for, and no more than 10 ms of it.
    #[test]
    fn one_after_the_other() {
        let lane = Lane::new(1_000_000);
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        assert_eq!(lane.take(at(1000), 100_000), at(1090));
        assert_eq!(lane.take(at(1000), 100_000), at(1190));
        assert_eq!(lane.take(at(1200), 100_000), at(1290), "10 ms late");
        assert_eq!(lane.take(at(5000), 100_000), at(5090), "long idle");
    }

    /// Two streams from one machine share its card; on the machine itself nothing is slow.
    #[tokio::test(start_paused = true)]
    async fn streams_share_a_card() {
        let clock = Arc::new(RuntimeClock::starting_now());
        let seed = SimRandom::new(1).next();
        let cards =
            Arc::new(Nics::new(Arc::new(SimNet::new(seed, clock.clone(), "machine")), clock.clone(), 1_000_000));
        let mut listening = Vec::new();
        for number in 0..3 {
            let mut listener = cards.host(number).listen(&format!("at{number}")).await.expect("it listens");
            listening.push(tokio::spawn(async move {
                let mut stream = listener.accept().await.expect("somebody comes");
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes).await.expect("bytes come");
                bytes.len()
            }));
        }
        assert!(cards.host(0).is_here("at0") && !cards.host(0).is_here("at1"));
        let began = clock.now();
        let sending: Vec<_> = (0..3)
            .map(|number| {
                let net = cards.host(0);
                tokio::spawn(async move {
                    let mut stream = net.connect(&format!("at{number}")).await.expect("it connects");
                    stream.write_all(&vec![7; 500_000]).await.expect("it goes");
                    stream.shutdown().await.expect("it ends");
                })
            })
            .collect();
        for (number, one) in listening.into_iter().enumerate() {
            assert_eq!(one.await.expect("no panic"), 500_000);
            let millis = clock.now().since(began).as_millis();
            let expected = if number == 0 { 0..200 } else { 800..1200 };
            assert!(expected.contains(&millis), "machine {number} after {millis} ms");
        }
        for one in sending {
            one.await.expect("no panic");
        }
    }
}

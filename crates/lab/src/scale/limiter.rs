//! A device as slow as it is told: one request after another at a given rate, over whatever keeps the bytes. So many nodes on one
//! small machine have devices that are the bound, and not the machine.

use base::disk::{Disk, DiskError, Done, FileName, Op, Wake};
use base::env::Clock;
use base::unit::Time;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a device can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed {
    /// Bytes a second, of reads and writes together.
    pub rate: u64,
    /// What each request takes beyond its bytes; with `seeks` only one that does not go on where the last one ended.
    pub each: Duration,
    /// Whether the device has a head that moves.
    pub seeks: bool,
}

impl Speed {
    /// A solid-state disk of this many bytes a second: 0.1 ms for each request.
    pub fn ssd(rate: u64) -> Speed {
        Speed { rate, each: Duration::from_micros(100), seeks: false }
    }

    /// A disk with a head of this many bytes a second: 8 ms for each seek.
    pub fn hdd(rate: u64) -> Speed {
        Speed { rate, each: Duration::from_millis(8), seeks: true }
    }
}

/// What a device had to do so far, for whoever measures beside it. Nanoseconds, and bytes.
#[derive(Debug, Default)]
pub struct Busy {
    time: AtomicU64,
    free: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
}

impl Busy {
    /// How long it was busy since the start, and will be with what it was given.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.time.load(Ordering::Relaxed))
    }

    /// When it is done with everything that it was given.
    pub fn free(&self) -> Time {
        Time::from_nanos(self.free.load(Ordering::Relaxed))
    }

    /// Bytes that it was to read and to write.
    pub fn moved(&self) -> (u64, u64) {
        (self.read.load(Ordering::Relaxed), self.written.load(Ordering::Relaxed))
    }
}

/// A device that had nothing to do for a while makes up for at most so much of it. Threads of a busy machine wake that late.
const CREDIT: Duration = Duration::from_millis(10);

/// Says when requests are done by a device that serves one at a time, in the order in which they come.
#[derive(Debug)]
pub struct Meter {
    speed: Speed,
    /// When everything taken so far is done.
    free: Time,
    /// Where the last request ended.
    head: Option<(FileName, u64)>,
    /// Something was written that no sync has covered.
    dirty: bool,
    busy: Arc<Busy>,
}

impl Meter {
    /// A device with nothing to do, that tells what it does.
    pub fn new(speed: Speed, busy: Arc<Busy>) -> Meter {
        Meter { speed, free: Time::ZERO, head: None, dirty: false, busy }
    }

    /// When this request, which comes now, is done.
    pub fn take(&mut self, now: Time, op: &Op) -> Time {
        let earliest = Time::from_nanos(now.as_nanos().saturating_sub(CREDIT.as_nanos() as u64));
        let cost = self.cost(op);
        self.free = self.free.max(earliest).after(cost);
        self.busy.time.fetch_add(u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.busy.free.store(self.free.as_nanos(), Ordering::Relaxed);
        self.free
    }

    fn cost(&mut self, op: &Op) -> Duration {
        match op {
            Op::Read { file, offset, length, .. } => {
                self.busy.read.fetch_add(*length as u64, Ordering::Relaxed);
                self.transfer(*file, *offset, *length as u64)
            }
            Op::Write { file, offset, parts } => {
                self.dirty = true;
                let length = parts.iter().map(Bytes::len).sum::<usize>() as u64;
                self.busy.written.fetch_add(length, Ordering::Relaxed);
                self.transfer(*file, *offset, length)
            }
            // It waits for everything before it in any case; what it does itself is one request.
            Op::Sync { .. } => {
                if std::mem::take(&mut self.dirty) {
                    self.speed.each
                } else {
                    Duration::ZERO
                }
            }
            // A file of zeros is made when the device is new, and used again and again: it is as if it came with the device.
            Op::Create { .. } | Op::Remove { .. } | Op::Punch { .. } => self.speed.each,
        }
    }

    fn transfer(&mut self, file: FileName, offset: u64, length: u64) -> Duration {
        let goes_on = self.head == Some((file, offset));
        self.head = Some((file, offset.saturating_add(length)));
        let each = if self.speed.seeks && goes_on { Duration::ZERO } else { self.speed.each };
        let nanos = u128::from(length) * 1_000_000_000 / u128::from(self.speed.rate.max(1));
        each + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// A disk whose operations end no earlier than the meter says.
pub struct LimitedDisk {
    inner: Box<dyn Disk>,
    meter: Meter,
    clock: Arc<dyn Clock>,
    /// When operations that the inner disk has are done.
    due: BTreeMap<u64, Time>,
    /// What the inner disk has done and the meter has not, by its time.
    held: BTreeMap<(Time, u64), Done>,
    arrived: Vec<Done>,
}

impl LimitedDisk {
    /// Makes `inner` this slow, and tells what it does.
    pub fn new(inner: Box<dyn Disk>, speed: Speed, busy: Arc<Busy>, clock: Arc<dyn Clock>) -> LimitedDisk {
        let (due, held) = (BTreeMap::new(), BTreeMap::new());
        LimitedDisk { inner, meter: Meter::new(speed, busy), clock, due, held, arrived: Vec::new() }
    }
}

impl Disk for LimitedDisk {
    fn list(&mut self) -> Result<Vec<(FileName, u64)>, DiskError> {
        self.inner.list()
    }

    fn submit(&mut self, token: u64, op: Op) {
        self.due.insert(token, self.meter.take(self.clock.now(), &op));
        self.inner.submit(token, op);
    }

    /// May return early with nothing: the inner disk does not say whether it was woken or had something that is held now.
    fn poll(&mut self, wait: Option<Duration>, done: &mut Vec<Done>) {
        let now = self.clock.now();
        let next = self.held.first_key_value().map(|((due, _), _)| due.since(now));
        self.inner.poll(next.into_iter().chain(wait).min(), &mut self.arrived);
        for ended in self.arrived.drain(..) {
            let Some(due) = self.due.remove(&ended.token) else { unreachable!("only what was submitted ends") };
            self.held.insert((due, ended.token), ended);
        }
        let now = self.clock.now();
        while let Some(first) = self.held.first_entry()
            && first.key().0 <= now
        {
            done.push(first.remove());
        }
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.inner.waker()
    }

    fn backend(&self) -> &'static str {
        self.inner.backend()
    }
}

#[cfg(test)]
mod tests {
    use super::{LimitedDisk, Meter, Speed};
    use base::buffer::Buffer;
    use base::disk::{Caching, Disk, DiskError, Done, FileKind, FileName, Fill, Op, Wake};
    use base::env::Clock;
    use base::unit::Time;
    use bytes::Bytes;
    use sim::clock::SimClock;
    use std::sync::Arc;
    use std::time::Duration;

    const FILE: FileName = FileName::new(FileKind::Data, 1);

    fn write(offset: u64, length: usize) -> Op {
        Op::Write { file: FILE, offset, parts: vec![Bytes::from(vec![0; length])] }
    }

    fn read(offset: u64, length: usize) -> Op {
        Op::Read { file: FILE, offset, length, caching: Caching::Around }
    }

    fn millis(time: Time) -> f64 {
        time.as_nanos() as f64 / 1e6
    }

    /// Requests follow one another, reads and writes at one rate, each with its 0.1 ms; a sync costs one request if there is
    /// something to sync.
    #[test]
    fn one_at_a_time() {
        let mut meter = Meter::new(Speed::ssd(100_000_000), Arc::default());
        let now = Time::from_nanos(1_000_000_000);
        let mut last = 990.0;
        for (op, cost) in [
            (write(0, 1_000_000), 10.1),
            (read(0, 500_000), 5.1),
            (Op::Sync { file: FILE }, 0.1),
            (Op::Sync { file: FILE }, 0.0),
            (Op::Create { file: FILE, size: 2_000_000, fill: Fill::Zeros }, 0.1),
            (Op::Create { file: FILE, size: 2_000_000, fill: Fill::Reserved }, 0.1),
            (Op::Punch { file: FILE, offset: 0, length: 1 << 20 }, 0.1),
        ] {
            let due = millis(meter.take(now, &op));
            assert!((due - last - cost).abs() < 1e-6, "{op:?}: {due} after {last}");
            last = due;
        }
    }

    /// Idle time is made up for, and no more than 10 ms of it.
    #[test]
    fn credit_is_bounded() {
        let mut meter = Meter::new(Speed::ssd(100_000_000), Arc::default());
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        assert!((millis(meter.take(at(1000), &write(0, 1_000_000))) - 1000.1).abs() < 1e-6);
        assert!((millis(meter.take(at(1004), &write(0, 1_000_000))) - 1010.2).abs() < 1e-6, "4 ms late");
        assert!((millis(meter.take(at(5000), &write(0, 1_000_000))) - 5000.1).abs() < 1e-6, "4 s late");
    }

    /// A head pays for its way, and not for going on.
    #[test]
    fn seeks() {
        let mut meter = Meter::new(Speed::hdd(100_000_000), Arc::default());
        let now = Time::from_nanos(1_000_000_000);
        let mut last = 990.0;
        for (offset, cost) in [(0, 18.0), (1_000_000, 10.0), (2_000_000, 10.0), (0, 18.0)] {
            let due = millis(meter.take(now, &write(offset, 1_000_000)));
            assert!((due - last - cost).abs() < 1e-6, "{offset}: {due} after {last}");
            last = due;
        }
    }

    /// Does everything at once; waiting for it lets the clock go on.
    struct Instant {
        clock: Arc<SimClock>,
        done: Vec<Done>,
    }

    struct Nobody;

    impl Wake for Nobody {
        fn wake(&self) {}
    }

    impl Disk for Instant {
        fn list(&mut self) -> Result<Vec<(FileName, u64)>, DiskError> {
            Ok(Vec::new())
        }

        fn submit(&mut self, token: u64, _op: Op) {
            self.done.push(Done { token, result: Ok(Buffer::zeroed(0)) });
        }

        fn poll(&mut self, wait: Option<Duration>, done: &mut Vec<Done>) {
            if self.done.is_empty() {
                self.clock.advance(wait.expect("nobody would wake us"));
            }
            done.append(&mut self.done);
        }

        fn waker(&self) -> Arc<dyn Wake> {
            Arc::new(Nobody)
        }

        fn backend(&self) -> &'static str {
            "instant"
        }
    }

    /// A loop with four requests under way gets the device's rate, whatever the disk beneath could do, and everything that it
    /// asked for, in order.
    #[test]
    fn a_bare_loop_gets_the_rate() {
        let clock = Arc::new(SimClock::new());
        clock.set(Time::from_nanos(1_000_000_000));
        let inner = Box::new(Instant { clock: clock.clone(), done: Vec::new() });
        let mut disk = LimitedDisk::new(inner, Speed::ssd(80_000_000), Arc::default(), clock.clone());
        let (mut submitted, mut ended, mut done) = (0u64, 0u64, Vec::new());
        while ended < 1000 {
            while submitted < 1000 && submitted < ended + 4 {
                disk.submit(submitted, write(submitted << 20, 1 << 20));
                submitted += 1;
            }
            disk.poll(None, &mut done);
            for one in done.drain(..) {
                assert_eq!(one.token, ended);
                ended += 1;
            }
        }
        let seconds = clock.now().since(Time::from_nanos(1_000_000_000)).as_secs_f64();
        let rate = 1000.0 * f64::from(1 << 20) / seconds;
        assert!((0.98..=1.0).contains(&(rate / 80e6)), "{rate}");
    }
}

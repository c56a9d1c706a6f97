//! Troubles of the doors (store, console, hdfs): why connections were refused or cut, and which requests were slow or failed. A stranger who
//! knocks a thousand times a second, or a slow disk, must not fill the log, so of each kind of trouble only some lines a minute are written,
//! and the others are counted.

use crate::log::{Level, Log};
use base::env::Clock;
use base::request::Notable;
use base::unit::Time;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Lines of one kind that are written in a window.
const LINES_MAX: u32 = 5;

/// How long a window is.
const WINDOW: Duration = Duration::from_secs(60);

/// Kinds that are told apart at once; what is beyond counts as one.
const KINDS_MAX: usize = 64;

/// Bytes of a text that say which kind it is.
const KIND_BYTES: usize = 120;

/// Writes troubles to the log, and counts those of a kind that come too often. Clones count together.
#[derive(Clone)]
pub struct Troubles {
    log: Log,
    clock: Arc<dyn Clock>,
    kinds: Arc<Mutex<BTreeMap<(&'static str, String), Kind>>>,
}

/// One kind of trouble in its present window.
struct Kind {
    since: Time,
    written: u32,
    left_out: u64,
    /// The last one that was left out.
    last: String,
}

impl Troubles {
    /// Troubles for this log.
    pub fn new(log: Log, clock: Arc<dyn Clock>) -> Troubles {
        Troubles { log, clock, kinds: Arc::default() }
    }

    /// Tells of a request that was slow or failed.
    pub fn note(&self, area: &'static str, notable: &Notable<'_>) {
        let Notable { request, what, from, took, error } = notable;
        let ms = took.map(|took| took.as_millis());
        let mut fields: Vec<(&str, &dyn Display)> = vec![("request", request), ("from", from)];
        fields.extend(ms.iter().map(|ms| ("ms", ms as &dyn Display)));
        match error {
            Some(error) => {
                fields.push(("error", error));
                self.tell(area, &format!("{what} failed"), &fields);
            }
            None => self.tell(area, &format!("{what} was slow"), &fields),
        }
    }

    /// Tells the trouble of a door. `area` is the door's: `connection`, `console`, `hdfs`. `text` says which kind it is, the fields do not.
    pub fn tell(&self, area: &'static str, text: &str, fields: &[(&str, &dyn Display)]) {
        self.look();
        let now = self.clock.now();
        {
            let mut kinds = self.kinds();
            let mut name = (area, kind_of(text));
            if kinds.len() >= KINDS_MAX && !kinds.contains_key(&name) {
                name.1.clear();
            }
            let kind = kinds.entry(name).or_insert(Kind { since: now, written: 0, left_out: 0, last: String::new() });
            if kind.written >= LINES_MAX {
                kind.left_out = kind.left_out.saturating_add(1);
                kind.last =
                    fields.iter().fold(text.to_string(), |last, (name, value)| format!("{last} {name}={value}"));
                return;
            }
            kind.written += 1;
        }
        self.log.say(Level::Warn, area, text, fields);
    }

    /// Says how many were left out in the windows that are over. Called now and then.
    pub fn look(&self) {
        let now = self.clock.now();
        let over: Vec<_> = self.kinds().extract_if(.., |_, kind| now.since(kind.since) >= WINDOW).collect();
        for ((area, _), kind) in over {
            if kind.left_out > 0 {
                let fields: [(&str, &dyn Display); 2] = [("left_out", &kind.left_out), ("last", &kind.last)];
                self.log.say(Level::Warn, area, "more of the same trouble than is written here", &fields);
            }
        }
    }

    fn kinds(&self) -> MutexGuard<'_, BTreeMap<(&'static str, String), Kind>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The text without what is different each time: numbers, and with them addresses.
fn kind_of(text: &str) -> String {
    let mut kind = String::new();
    for letter in text.chars() {
        if kind.len() >= KIND_BYTES {
            break;
        }
        match letter {
            '0'..='9' if kind.ends_with('#') => (),
            '0'..='9' => kind.push('#'),
            letter => kind.push(letter),
        }
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::{KINDS_MAX, LINES_MAX, Troubles, WINDOW, kind_of};
    use crate::log::{Form, Log};
    use crate::world::{Ended, Open, World};
    use base::buffer::Pool;
    use base::disk::{BlockFile, Disk};
    use base::env::Random;
    use base::error::Result;
    use base::id::RequestId;
    use base::net::Boxed;
    use base::request::Notable;
    use os::disk::{Backend, Opened};
    use sim::clock::SimClock;
    use std::path::Path;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    /// A world that has nothing but a log.
    #[derive(Default)]
    struct Listener(Mutex<Vec<String>>);

    impl World for Listener {
        fn disk(&self, _: &Path, _: Backend, _: Pool) -> Result<Opened> {
            unreachable!("a log needs none")
        }
        fn tree(&self, _: &Path, _: Backend) -> Result<Box<dyn BlockFile>> {
            unreachable!("a log needs none")
        }
        fn make_directory(&self, _: &Path) -> Result<()> {
            unreachable!("a log needs none")
        }
        fn exists(&self, _: &Path) -> Result<bool> {
            unreachable!("a log needs none")
        }
        fn is_same(&self, _: &Path, _: &Path) -> bool {
            unreachable!("a log needs none")
        }
        fn read_text(&self, _: &Path) -> Result<String> {
            unreachable!("a log needs none")
        }
        fn replace(&self, _: &Path, _: &[u8], _: Backend) -> Result<()> {
            unreachable!("a log needs none")
        }
        fn free_bytes(&self, _: &Path) -> Result<u64> {
            unreachable!("a log needs none")
        }
        fn chunk_settings(&self, _: u64, _: Pool) -> chunk::Settings {
            unreachable!("a log needs none")
        }
        fn meta_settings(&self, _: u64, _: Arc<dyn Random>) -> meta::Settings {
            unreachable!("a log needs none")
        }
        fn run(&self, _: &str, _: Box<dyn Disk>, _: Open) -> Result<Ended> {
            unreachable!("a log needs none")
        }
        fn aside(&self, _: &str, _: Boxed<'static, ()>) -> Result<Ended> {
            unreachable!("a log needs none")
        }
        fn say(&self, line: &str) {
            self.0.lock().expect("no test panics with it").push(line.to_string());
        }
    }

    fn troubles() -> (Troubles, Arc<SimClock>, Arc<Listener>) {
        let (clock, world) = (Arc::new(SimClock::new()), Arc::new(Listener::default()));
        let log = Log::new(clock.clone(), Form::Text, world.clone());
        (Troubles::new(log, clock.clone()), clock, world)
    }

    fn said(world: &Listener) -> Vec<String> {
        std::mem::take(&mut *world.0.lock().expect("no test panics with it"))
    }

    /// A scanner's troubles are written a few times, whatever its addresses are, and then counted; another kind and another door
    /// have lines of their own. The count comes when the minute is over, and then lines are written again.
    #[test]
    fn a_few_lines_a_minute() {
        let (troubles, clock, world) = troubles();
        for number in 0..1000 {
            troubles.tell("hdfs", &format!("data connection from 10.0.{}.7:{number}: no message", number % 7), &[]);
        }
        troubles.tell("hdfs", "10.0.0.1:9: refused, 4096 connections are open", &[]);
        troubles.tell("connection", "data connection from 10.0.0.7:1: no message", &[]);
        let lines = said(&world);
        assert_eq!(lines.len(), LINES_MAX as usize + 2, "{lines:?}");
        troubles.look();
        assert!(said(&world).is_empty(), "the minute is not over");
        clock.advance(WINDOW);
        troubles.look();
        let lines = said(&world);
        let count = format!("left_out={}", 1000 - LINES_MAX);
        assert!(lines.len() == 1 && lines[0].contains(&count) && lines[0].contains("10.0.5.7:999"), "{lines:?}");
        troubles.tell("hdfs", "data connection from 10.0.0.7:1: no message", &[]);
        assert_eq!(said(&world).len(), 1);
    }

    /// Of a thousand slow requests a few have a line, with the id of each, and the last one's id is in the count.
    #[test]
    fn slow_requests_are_limited() {
        let (troubles, clock, world) = troubles();
        for number in 1..=1000 {
            let (request, from, took) = (RequestId(number), "10.0.0.9:1", Some(Duration::from_millis(1500)));
            troubles.note("connection", &Notable { request, what: "chunk::Append", from, took, error: None });
        }
        let lines = said(&world);
        assert_eq!(lines.len(), LINES_MAX as usize, "{lines:?}");
        let end = "chunk::Append was slow request=00000000000000000000000000000001 from=10.0.0.9:1 ms=1500";
        assert!(lines[0].ends_with(end), "{lines:?}");
        clock.advance(WINDOW);
        troubles.look();
        let lines = said(&world);
        assert!(lines.len() == 1 && lines[0].contains("request=000000000000000000000000000003e8"), "{lines:?}");
    }

    /// Texts that are never alike do not fill the memory or the log: what is beyond a bound counts as one kind.
    #[test]
    fn bounded() {
        let (troubles, clock, world) = troubles();
        for number in 0..10_000_u32 {
            let letters: String =
                format!("{number:05}").chars().map(|digit| (digit as u8 + b'a' - b'0') as char).collect();
            troubles.tell("hdfs", &letters, &[]);
        }
        assert_eq!(troubles.kinds().len(), KINDS_MAX + 1);
        assert_eq!(said(&world).len(), KINDS_MAX + LINES_MAX as usize);
        clock.advance(WINDOW);
        troubles.look();
        assert_eq!((troubles.kinds().len(), said(&world).len()), (0, 1));
        assert_eq!(kind_of("1.22.3:x4 5"), "#.#.#:x# #");
        assert!(kind_of(&"ü".repeat(1000)).len() <= super::KIND_BYTES + 1);
    }
}

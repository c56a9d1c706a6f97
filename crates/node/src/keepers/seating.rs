//! Who keeps the metadata of a store that several keep, as the small text file in each keeper's directory says it.

use crate::settings::shown;
use crate::world::World;
use base::error::{Error, ErrorKind, Result};
use base::id::{ClusterId, NodeId};
use base::unit::WallTime;
use meta::{KeeperId, Seats};
use net::message::keeper as wire;
use os::disk::Backend;
use std::collections::BTreeSet;
use std::path::Path;

/// The first line: what the file is and its version.
const HEAD: &str = "stormwell keeper 1";

/// The file's name.
pub const FILE: &str = "keeper";

/// Most keepers of a store. Five are wanted at the most; more are there while one is replaced.
const SEATS_MAX: usize = 16;

/// Longest address: a host has 253 letters at the most, a port five digits.
const ADDRESS_MAX: usize = 300;

/// What a line may say between the draw and the store.
const LATE: &str = "late";

/// The keepers of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seating {
    /// The store.
    pub store: ClusterId,
    /// When it began.
    pub made: WallTime,
    /// All of them, in the order of their numbers.
    pub seats: Vec<Seat>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Its number.
    pub number: KeeperId,
    /// The node that it is on.
    pub node: NodeId,
    /// What its directory was given when it was made.
    pub draw: u128,
    /// Where its node listens, `host:port`.
    pub address: String,
}

/// What a keeper's directory says of itself. It is written before anything else there, and once more when the store begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeeperFile {
    /// What the directory was given when it was made: another directory is another keeper.
    pub draw: u128,
    /// Devices of the node were in use when the directory was made: there was an older one, which is lost. No store begins with it.
    pub late: bool,
    /// The keepers of the store; none: no store began with this directory.
    pub seating: Option<Seating>,
}

impl Seating {
    /// The keeper whose directory was given this.
    pub fn of_draw(&self, draw: u128) -> Option<&Seat> {
        self.seats.iter().find(|seat| seat.draw == draw)
    }

    /// The keeper of this number.
    pub fn of_number(&self, number: KeeperId) -> Option<&Seat> {
        self.seats.iter().find(|seat| seat.number == number)
    }

    /// What the store is opened with by this one of them.
    pub fn seats(&self, own: KeeperId) -> Seats {
        let voters = self.seats.iter().map(|seat| seat.number).collect();
        Seats { store: self.store, own, voters, made: self.made }
    }

    /// The same as the wire has it.
    pub fn begin(&self) -> wire::Begin {
        let seat = |seat: &Seat| wire::Seat {
            number: seat.number.0,
            node: seat.node.0.into(),
            draw: seat.draw.into(),
            address: seat.address.clone(),
        };
        wire::Begin { store: self.store.0.into(), made: self.made.0, seats: self.seats.iter().map(seat).collect() }
    }

    /// What came over the wire.
    pub fn of_begin(begin: &wire::Begin) -> Result<Seating> {
        let seat = |seat: &wire::Seat| Seat {
            number: KeeperId(seat.number),
            node: NodeId(seat.node.value()),
            draw: seat.draw.value(),
            address: seat.address.clone(),
        };
        let seats: Vec<Seat> = begin.seats.iter().take(SEATS_MAX + 1).map(seat).collect();
        let seating = Seating { store: ClusterId(begin.store.value()), made: WallTime(begin.made), seats };
        match seating.fault() {
            None => Ok(seating),
            Some(fault) => {
                let text = format!(
                    "the keepers of a store were told, and {fault}; nothing was changed; use one version of Stormwell everywhere"
                );
                Err(Error::new(ErrorKind::Invalid, text))
            }
        }
    }

    /// What is wrong with it: whoever counts its keepers has to be able to tell them apart.
    pub fn fault(&self) -> Option<&'static str> {
        let seats = &self.seats;
        let count = seats.len();
        if !matches!(count, 1 | 3 | 5..=SEATS_MAX) {
            return Some("there are neither one nor three nor five of them or some more");
        }
        if !seats.is_sorted_by(|one, next| one.number < next.number) || seats[0].number == KeeperId(0) {
            return Some("their numbers do not rise from one on");
        }
        let draws: BTreeSet<u128> = seats.iter().map(|seat| seat.draw).collect();
        if draws.len() < count {
            return Some("two of them have one directory, or a copy of it");
        }
        let nodes: BTreeSet<NodeId> = seats.iter().map(|seat| seat.node).collect();
        if nodes.len() < count {
            return Some("two of them are on one node, or on a node and its copy");
        }
        let addresses: BTreeSet<&str> = seats.iter().map(|seat| seat.address.as_str()).collect();
        if addresses.len() < count {
            return Some("two of them have one address");
        }
        let is_line = |address: &str| !address.contains(|letter: char| letter.is_whitespace() || letter.is_control());
        let good = |address: &str| !address.is_empty() && address.len() <= ADDRESS_MAX && is_line(address);
        (!addresses.into_iter().all(good)).then_some("the address of one of them is none")
    }
}

impl KeeperFile {
    /// What the keeper's directory says; none: it has no such file. Whatever else is there is an error: nothing that was a keeper's may be taken
    /// for new.
    pub fn read(world: &dyn World, directory: &Path) -> Result<Option<KeeperFile>> {
        let path = directory.join(FILE);
        if !world.exists(&path)? {
            return Ok(None);
        }
        match world.read_text(&path).map(|text| KeeperFile::parse(&text)) {
            Ok(Some(file)) => Ok(Some(file)),
            found => {
                let because = found.err().map(|error| format!(" ({error})")).unwrap_or_default();
                let text = format!(
                    "{} does not say which keeper of the metadata this is{because}; the data beside it is untouched, and nothing is lost while most of the \
                     keepers run; put the file back from a backup of this very directory; without one move {} away while the node is stopped: the node \
                     then starts, and keeps nothing. No other keeper's file fits",
                    shown(&path),
                    shown(directory)
                );
                Err(Error::new(ErrorKind::Corrupt, text))
            }
        }
    }

    /// Makes the directory say this, durably and whole.
    pub fn write(&self, world: &dyn World, directory: &Path, backend: Backend) -> Result<()> {
        world.replace(&directory.join(FILE), self.text().as_bytes(), backend)
    }

    fn text(&self) -> String {
        let mut text = format!("{HEAD}\ndraw {:032x}\n", self.draw);
        if self.late {
            text += &format!("{LATE}\n");
        }
        if let Some(seating) = &self.seating {
            text += &format!("store {}\nmade {}\nkeepers {}\n", seating.store, seating.made.0, seating.seats.len());
            for seat in &seating.seats {
                text += &format!("keeper {} {} {:032x} {}\n", seat.number.0, seat.node, seat.draw, seat.address);
            }
        }
        text
    }

    fn parse(text: &str) -> Option<KeeperFile> {
        let mut lines = text.lines().peekable();
        if lines.next()? != HEAD {
            return None;
        }
        let draw = wide(lines.next()?.strip_prefix("draw ")?)?;
        let late = lines.next_if_eq(&LATE).is_some();
        let seating = match lines.next() {
            None => None,
            Some(store) => {
                let store = ClusterId(wide(store.strip_prefix("store ")?)?);
                let made = WallTime(lines.next()?.strip_prefix("made ")?.parse().ok()?);
                // A file of three that was cut short must not be one of a store of one.
                let count: usize = lines.next()?.strip_prefix("keepers ")?.parse().ok()?;
                let seats = lines.map(seat).take(SEATS_MAX + 1).collect::<Option<Vec<Seat>>>()?;
                let seating = Seating { store, made, seats };
                if seating.seats.len() != count || seating.fault().is_some() {
                    return None;
                }
                Some(seating)
            }
        };
        let file = KeeperFile { draw, late, seating };
        // Each has one spelling: what was not written by us in full, a file that was cut short among it, is none.
        (file.text() == text).then_some(file)
    }
}

fn wide(text: &str) -> Option<u128> {
    u128::from_str_radix(text, 16).ok()
}

fn seat(line: &str) -> Option<Seat> {
    let mut words = line.strip_prefix("keeper ")?.splitn(4, ' ');
    let number = KeeperId(words.next()?.parse().ok()?);
    let (node, draw) = (NodeId(wide(words.next()?)?), wide(words.next()?)?);
    Some(Seat { number, node, draw, address: words.next()?.to_string() })
}

#[cfg(test)]
mod tests {
    use super::{FILE, KeeperFile, SEATS_MAX, Seat, Seating};
    use crate::world::OsWorld;
    use base::error::ErrorKind;
    use base::id::{ClusterId, NodeId};
    use base::unit::WallTime;
    use meta::KeeperId;
    use os::disk::Backend;
    use sim::random::SimRandom;

    fn seating(count: u64) -> Seating {
        let seat = |number: u64| Seat {
            number: KeeperId(number),
            node: NodeId(u128::from(number) << 64),
            draw: u128::MAX - u128::from(number),
            address: format!("[fd00::{number}]:7400"),
        };
        Seating { store: ClusterId(0xabc), made: WallTime(7), seats: (1..=count).map(seat).collect() }
    }

    fn file(count: u64) -> KeeperFile {
        KeeperFile { draw: 5, late: false, seating: Some(seating(count)) }
    }

    /// What is written is read back; a file that was cut short, or is of another version, is none, and is not taken for one without a store.
    #[test]
    fn text() {
        for count in [1, 3, 5, SEATS_MAX as u64] {
            assert_eq!(KeeperFile::parse(&file(count).text()), Some(file(count)));
        }
        for late in [false, true] {
            let empty = KeeperFile { draw: 5, late, seating: None };
            assert_eq!(KeeperFile::parse(&empty.text()), Some(empty));
        }
        let whole = file(3).text();
        let alone = KeeperFile { draw: 5, late: false, seating: None }.text();
        for length in 0..whole.len() {
            // What is before the store is written by itself before there is one, and replaced as a whole.
            let is_first = whole[..length] == alone;
            assert_eq!(KeeperFile::parse(&whole[..length]).is_some(), is_first, "{length}");
        }
        assert!(KeeperFile::parse(&whole.replacen("keeper 1\n", "keeper 2\n", 1)).is_none());
        assert!(KeeperFile::parse(&whole.replace("draw 0", "draw +")).is_none());
    }

    /// Keepers that cannot be told apart, too few, too many, and addresses that are none, are refused, in the file and on the wire.
    #[test]
    fn bounds() {
        let mut wrong: Vec<Seating> = [0, 2, 4, SEATS_MAX as u64 + 1, 1_000].map(seating).into();
        let mut with = |change: &dyn Fn(&mut Vec<Seat>)| {
            let mut changed = seating(3);
            change(&mut changed.seats);
            wrong.push(changed);
        };
        with(&|seats| seats[1].number = KeeperId(1));
        with(&|seats| seats[0].number = KeeperId(0));
        with(&|seats| seats.swap(0, 1));
        with(&|seats| seats[1].draw = seats[2].draw);
        with(&|seats| seats[1].node = seats[2].node);
        with(&|seats| seats[1].address = seats[2].address.clone());
        for address in
            ["", "a b:1", "a:1\nlate", "a:1\r", "a:1\t"].map(str::to_string).into_iter().chain(["a".repeat(400)])
        {
            with(&|seats| seats[2].address = address.clone());
        }
        for wrong in wrong {
            let file = KeeperFile { seating: Some(wrong.clone()), ..file(3) };
            assert_eq!(KeeperFile::parse(&file.text()), None, "{wrong:?}");
            let refused = Seating::of_begin(&wrong.begin()).expect_err("refused");
            assert!(
                refused.kind() == ErrorKind::Invalid && refused.text().contains("nothing was changed"),
                "{refused}"
            );
        }
        assert_eq!(Seating::of_begin(&seating(5).begin()), Ok(seating(5)));
    }

    /// Whatever is in the file is what a keeper's directory says, which is then written as it is read, or none.
    #[test]
    fn fuzz_keepers() {
        for seed in sim::fuzz::seeds(5_000) {
            let (random, mut bytes) = (SimRandom::new(seed), file(3).text().into_bytes());
            for _ in 0..4 {
                sim::fuzz::damage(&random, &mut bytes);
                if let Some(read) = KeeperFile::parse(&String::from_utf8_lossy(&bytes)) {
                    assert_eq!(KeeperFile::parse(&read.text()), Some(read), "seed {seed}");
                }
            }
        }
    }

    /// A file that does not read is an error that says what to do, never none.
    #[test]
    fn what_does_not_read_is_not_empty() {
        let directory = std::env::temp_dir().join(format!("stormwell-seating-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("made");
        assert_eq!(KeeperFile::read(&OsWorld, &directory), Ok(None));
        for bad in [&b""[..], b"stormwell keeper 1\n", b"\xff\xfe", b"stormwell keeper 2\ndraw 1\n"] {
            std::fs::write(directory.join(FILE), bad).expect("written");
            let error = KeeperFile::read(&OsWorld, &directory).expect_err("an error");
            assert!(error.kind() == ErrorKind::Corrupt && error.text().contains("put the file back"), "{error}");
        }
        file(3).write(&OsWorld, &directory, Backend::Threads).expect("written");
        assert_eq!(KeeperFile::read(&OsWorld, &directory), Ok(Some(file(3))));
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}

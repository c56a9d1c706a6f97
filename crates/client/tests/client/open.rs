//! Readers of files that are being written to several replicas: they see what all have by which the file may end, wait where that cannot be
//! told, and never see a shorter file.

use crate::fake::Fake;
use crate::fake::file::{Wide, layout_of};
use crate::files::{SMALL, content};
use base::env::{Clock, Random};
use base::error::ErrorKind;
use base::planted::Planted;
use bytes::Bytes;
use client::{Client, FileReader};
use net::Ask;
use net::message::chunk::{Append, Read, Seal, Stat};
use net::message::file::{Create, Locate, NextGroup, OpenedFile, Replica};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A file that is being written; what each of its replicas has is put there by the test.
struct Open {
    fake: Arc<Fake>,
    opened: OpenedFile,
    /// Its devices, column after column.
    devices: Vec<u128>,
    bytes: Bytes,
}

impl Open {
    /// With a group of so many replicas of each column.
    fn new(seed: u64, wide: Wide) -> Open {
        let fake = Fake::new(seed);
        fake.state().wide = wide;
        let ask = Create { path: "/a".to_string(), ..Create::default() };
        let opened = fake.state().create(1, &ask).expect("the file is new");
        let devices = fake.state().devices_of("/a").concat();
        Open { fake, opened, devices, bytes: content(100_000, seed) }
    }

    /// With one column, of which the replicas have so many bytes.
    fn with(seed: u64, lengths: &[u64]) -> Open {
        let open = Open::new(seed, Wide { replicas: lengths.len() as u64, ..Wide::default() });
        for (device, length) in open.devices.iter().zip(lengths) {
            open.grow(*device, *length);
        }
        open
    }

    /// Writes to a replica of the only column until it has so many bytes.
    fn grow(&self, device: u128, to: u64) {
        let mut state = self.fake.state();
        let chunk = self.opened.group.layout.columns[0].chunk;
        let offset = state.chunks.get(&(chunk.value(), device)).map_or(0, |stored| stored.length);
        let (group, generation) = (self.opened.group.group, self.opened.generation);
        let ask = Append { device: device.into(), chunk, group, generation, offset, ..Append::default() };
        if offset < to {
            state.append(&ask, self.bytes.slice(offset as usize..to as usize)).expect("taken");
        }
    }

    /// All that was written to this replica is synced.
    fn sync(&self, device: u128) {
        let key = (self.opened.group.layout.columns[0].chunk.value(), device);
        let mut state = self.fake.state();
        let stored = state.chunks.get_mut(&key).expect("it is there");
        stored.synced = stored.length;
    }

    /// Its process starts anew, and lost what was not synced.
    fn lose_power(&self, device: u128) {
        self.fake.state().restart(device, true);
    }

    fn recorded(&self, length: u64) {
        self.fake.state().files.by_number.get_mut(&self.opened.inode).expect("it is there").recorded = length;
    }

    /// What the writer does when it goes on without the last replica: the others are sealed, and it is named no more.
    fn goes_on(&self, length: u64) {
        let chunk = self.opened.group.layout.columns[0].chunk;
        let (gone, others) = self.devices.split_last().expect("several");
        let mut state = self.fake.state();
        for device in others {
            let ask = Seal { device: (*device).into(), chunk, generation: self.opened.generation, length };
            state.seal(&ask).expect("sealed");
        }
        let ask = NextGroup {
            inode: self.opened.inode,
            generation: self.opened.generation,
            finished_group: self.opened.group.group,
            finished_length: length,
            gone: vec![(*gone).into()],
            short: vec![Replica { device: (*gone).into(), chunk }],
            ..NextGroup::default()
        };
        state.next_group(&ask).expect("it goes on");
    }

    fn client(&self) -> Client {
        self.fake.client().with_sizes(SMALL)
    }

    async fn reader(&self) -> FileReader {
        self.client().open("/a").await.expect("it was made")
    }

    fn calls<A: Ask>(&self) -> u64 {
        self.fake.state().calls.get(&A::KIND).copied().unwrap_or(0)
    }

    /// A new reader, and one that looks for more, see so many bytes, and the file ends there.
    async fn ends_at(&self, length: u64) {
        let began = self.fake.clock.now();
        let reader = self.reader().await;
        assert_eq!(reader.length().await.expect("told"), length);
        assert_eq!(self.read(&reader, 0, 1 << 20).await, length);
        assert_eq!(self.read(&self.reader().await, length, 1 << 20).await, 0);
        let mut stream = reader.stream(0);
        let mut streamed = Vec::new();
        while let Some(part) = stream.next().await.expect("read") {
            streamed.extend_from_slice(&part);
        }
        assert!(streamed == self.bytes[..length as usize]);
        assert!(self.fake.clock.now().since(began) < Duration::from_secs(1), "nobody waits");
    }

    /// Reads, and compares. How much came.
    async fn read(&self, reader: &FileReader, from: u64, length: u64) -> u64 {
        let got = reader.read_at(from, length).await.expect("read").concat();
        assert!(got == self.bytes[from as usize..][..got.len()], "other bytes from {from} on");
        got.len() as u64
    }

    /// So many bytes are read at once, and whoever asks for more, or for the length, waits and is told that it is not known.
    async fn is_in_doubt_from(&self, length: u64) {
        let began = self.fake.clock.now();
        let reader = self.reader().await;
        assert_eq!(self.read(&reader, 0, length).await, length);
        assert!(self.fake.clock.now().since(began) < Duration::from_secs(3), "what is known is there");
        for way in 0..3 {
            let (began, reader) = (self.fake.clock.now(), self.reader().await);
            let error = match way {
                0 => reader.length().await.map(drop),
                1 => reader.read_at(0, length + 1).await.map(drop),
                _ => reader.read_at(length, 1).await.map(drop),
            };
            let error = error.expect_err("nobody knows");
            assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
            assert!(error.text().contains("read /a") && error.text().contains("is safe"), "{error}");
            let took = self.fake.clock.now().since(began);
            assert!((Duration::from_secs(10)..Duration::from_secs(15)).contains(&took), "way {way}: {took:?}");
        }
    }

    /// As that, but the file is ended at its longest while readers wait: they see all of it.
    async fn is_told_when_it_ends(&self, seen: u64, length: u64) {
        let (reader, second) = (self.reader().await, self.reader().await);
        let (fake, began) = (self.fake.clone(), self.fake.clock.now());
        let ends = async move {
            tokio::time::sleep(Duration::from_secs(3)).await;
            fake.state().end_leases();
        };
        let (read, told, ()) = tokio::join!(self.read(&reader, 0, 1 << 20), second.length(), ends);
        assert_eq!((read, told.expect("told")), (length, length), "after {seen}");
        let took = self.fake.clock.now().since(began);
        assert!((Duration::from_secs(3)..Duration::from_secs(6)).contains(&took), "{took:?}");
    }
}

/// A file ends where the shortest of its replicas does, whichever that is, as long as all of them have what they took. With the fault of that
/// name put in, bytes are seen that the file may lose.
#[tokio::test(start_paused = true)]
async fn what_all_have() {
    for lengths in [[100, 100, 40], [40, 100, 100], [0, 100, 100], [100, 0, 100], [0, 0, 0], [50_000, 60_000, 49_000]] {
        let open = Open::with(1, &lengths);
        let (least, most) = (*lengths.iter().min().expect("three"), *lengths.iter().max().expect("three"));
        open.ends_at(least).await;
        let planted = open.client().with_planted(Some(Planted::TailSeenOfOne)).open("/a").await.expect("it was made");
        assert_eq!(planted.length().await.expect("told"), most, "it sees what one has");
        // What is seen grows with the shortest.
        let reader = open.reader().await;
        assert_eq!(open.read(&reader, 0, 1 << 20).await, least);
        open.devices.iter().for_each(|device| open.grow(*device, most + 10));
        assert_eq!(open.read(&reader, 0, 1 << 20).await, most + 10);
        open.ends_at(most + 10).await;
    }
}

/// Over several columns the file ends at the first byte that one of them lacks, and a column lacks what one of its replicas does.
#[tokio::test(start_paused = true)]
async fn over_columns() {
    for seed in 0..40 {
        let wide = Wide { columns: 3, cell: 8 << 10, narrow: 24 << 10, room: 200_000, replicas: 2 };
        let mut open = Open::new(seed, wide);
        let ask = NextGroup {
            inode: open.opened.inode,
            generation: open.opened.generation,
            finished_group: open.opened.group.group,
            columns_max: 16,
            replicas_max: 16,
            ..NextGroup::default()
        };
        open.opened.group = open.fake.state().next_group(&ask).expect("a group");
        let layout = layout_of(&open.opened.group);
        let mut lengths = Vec::new();
        let stripe = layout.stripe();
        for replica in layout.replicas() {
            let of = (0..8).map(|_| open.fake.random.below(50_000)).max().expect("eight");
            let length = stripe.column_length(of, replica.column);
            lengths.push((replica.column, length));
            let (mut its, mut at) = (Vec::new(), 0);
            for piece in stripe.pieces(0, of) {
                let part = &open.bytes[at..at + piece.length as usize];
                at += part.len();
                if piece.column == replica.column {
                    its.extend_from_slice(part);
                }
            }
            let (device, chunk) = (replica.device.0.into(), replica.chunk.0.into());
            let ask = Append { device, chunk, generation: open.opened.generation, ..Append::default() };
            open.fake.state().append(&ask, Bytes::from(its)).expect("taken");
        }
        open.ends_at(layout.length(lengths)).await;
    }
}

/// A replica that started anew and lost its end is passed over, by who asks how long the file is and by who reads it. Where it is sealed its
/// writer has acknowledged no more than it has.
#[tokio::test(start_paused = true)]
async fn one_that_started_anew() {
    for (seed, kept) in [0, 40, 100].into_iter().enumerate() {
        for lost in 0..3 {
            let open = Open::with(seed as u64, &[kept; 3]);
            let device = open.devices[lost];
            open.devices.iter().for_each(|device| {
                if kept > 0 {
                    open.sync(*device)
                }
            });
            open.devices.iter().for_each(|device| open.grow(*device, 100));
            open.lose_power(device);
            open.fake.state().readers_of.clear();
            for _ in 0..4 {
                open.ends_at(100).await;
            }
            let head_was_asked = open.fake.state().readers_of.contains(&open.devices[0]);
            assert!(head_was_asked, "it is the first that is asked, also where it has less");
            if kept == 40 {
                let chunk = open.opened.group.layout.columns[0].chunk;
                let seal = Seal { device: device.into(), chunk, generation: open.opened.generation, length: 40 };
                open.fake.state().seal(&seal).expect("sealed");
                open.ends_at(40).await;
            }
        }
    }
}

/// But where it is fenced the file may end by it, or by the others: nobody knows before it is ended.
#[tokio::test(start_paused = true)]
async fn one_that_started_anew_and_is_fenced() {
    for ended in [false, true] {
        let open = Open::with(2, &[40; 3]);
        open.devices.iter().for_each(|device| open.sync(*device));
        open.devices.iter().for_each(|device| open.grow(*device, 100));
        let before = open.reader().await;
        assert_eq!(before.length().await.expect("told"), 100);
        open.lose_power(open.devices[1]);
        for stored in open.fake.state().chunks.values_mut() {
            stored.generation += 1;
        }
        assert_eq!(open.read(&before, 0, 100).await, 100, "what was seen stays");
        match ended {
            true => open.is_told_when_it_ends(40, 100).await,
            false => open.is_in_doubt_from(40).await,
        }
        assert_eq!(open.read(&before, 0, 100).await, 100, "what was seen stays");
    }
}

/// When all of them started anew and have the same, the file ends there. Where they do not, nobody knows which of them lost what its
/// writer made visible.
#[tokio::test(start_paused = true)]
async fn all_started_anew() {
    let open = Open::with(3, &[100; 3]);
    open.devices.iter().for_each(|device| open.fake.state().restart(*device, false));
    open.ends_at(100).await;
    for ended in [false, true] {
        let open = Open::with(4, &[40, 70, 100]);
        open.devices.iter().for_each(|device| open.sync(*device));
        open.devices.iter().for_each(|device| open.grow(*device, 100));
        open.devices.iter().for_each(|device| open.lose_power(*device));
        match ended {
            true => open.is_told_when_it_ends(40, 100).await,
            false => open.is_in_doubt_from(40).await,
        }
    }
}

/// While one does not answer, what is recorded or was seen is read all the same, and nobody takes that for all of the file. When the writer has
/// gone on without it, whoever waits sees the rest.
#[tokio::test(start_paused = true)]
async fn one_is_dead() {
    let open = Open::with(5, &[100; 3]);
    open.recorded(30);
    let proven = open.reader().await;
    assert_eq!(open.read(&proven, 0, 1 << 20).await, 100);
    let dead = open.devices[2];
    open.fake.state().dead = [dead].into();
    let (stats, reader) = (open.calls::<Stat>(), open.reader().await);
    assert_eq!(open.read(&reader, 0, 30).await, 30);
    assert_eq!(open.calls::<Stat>(), stats, "nobody was asked how far it is");
    open.is_in_doubt_from(30).await;
    // The metadata store is asked again, and what was seen before that stays.
    assert_eq!(proven.length().await.err().map(|error| error.kind()), Some(ErrorKind::Unreachable));
    assert_eq!(open.read(&proven, 0, 100).await, 100);
    let began = open.fake.clock.now();
    let (reader, second) = (open.reader().await, open.reader().await);
    let goes_on = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        open.goes_on(100);
        // Nothing is written to the next group yet.
        open.fake.state().dead.clear();
    };
    let (read, told, ()) = tokio::join!(open.read(&reader, 0, 1 << 20), second.length(), goes_on);
    assert_eq!((read, told.expect("told")), (100, 100));
    assert!(open.fake.clock.now().since(began) < Duration::from_secs(6));
    open.ends_at(100).await;
}

/// While one does not answer, a stream hands out what is sure before it waits for what may be behind that; so does who wants no more than is sure.
#[tokio::test(start_paused = true)]
async fn what_is_sure_comes_first() {
    let open = Open::with(8, &[100; 3]);
    open.recorded(30);
    let dead = open.devices[2];
    open.fake.state().dead = [dead].into();
    let (began, stats, reader) = (open.fake.clock.now(), open.calls::<Stat>(), open.reader().await);
    let mut stream = reader.stream(0);
    assert_eq!(stream.next().await.expect("read"), Some(open.bytes.slice(..30)));
    assert_eq!(reader.length_known_or_reaching(30).await.expect("sure"), 30);
    assert_eq!((open.fake.clock.now(), open.calls::<Stat>()), (began, stats), "nobody was asked, and nobody waited");
    let took = open.fake.clock.now();
    assert_eq!(reader.length_reaching(30).await.expect("sure"), 30);
    assert!(open.fake.clock.now().since(took) < Duration::from_secs(3));
    let error = stream.next().await.expect_err("there may be more");
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(open.fake.clock.now().since(began) >= Duration::from_secs(10));
    assert!(reader.length_known_or_reaching(31).await.is_err());
    // The stream goes on where it was.
    open.fake.state().dead.clear();
    assert_eq!(stream.next().await.expect("read"), Some(open.bytes.slice(30..100)));
    assert_eq!(stream.next().await.expect("told"), None);
}

/// Bytes that none of them serves any more are an error after a while, never an end.
#[tokio::test(start_paused = true)]
async fn all_lost_what_was_seen() {
    let open = Open::with(6, &[100; 2]);
    let reader = open.reader().await;
    assert_eq!(open.read(&reader, 0, 100).await, 100);
    open.devices.iter().for_each(|device| open.lose_power(*device));
    let began = open.fake.clock.now();
    for from in [0, 50] {
        let error = reader.read_at(from, 100 - from).await.expect_err("it was seen");
        assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt), "{error}");
    }
    assert!(open.fake.clock.now().since(began) >= Duration::from_secs(20));
}

/// Of a file of one replica nobody asks more than before there were several, nor another way.
#[tokio::test(start_paused = true)]
async fn one_replica() {
    let open = Open::with(7, &[50_000]);
    let before = open.fake.state().calls.clone();
    let asked = |before: &BTreeMap<u16, u64>| {
        let calls = open.fake.state().calls.clone();
        [Locate::KIND, Stat::KIND, Read::KIND]
            .map(|kind| calls.get(&kind).copied().unwrap_or(0) - before.get(&kind).copied().unwrap_or(0))
    };
    let reader = open.reader().await;
    assert_eq!(reader.length().await.expect("told"), 50_000);
    assert_eq!(asked(&before), [2, 1, 0]);
    assert_eq!(open.read(&reader, 0, 1 << 20).await, 50_000);
    assert_eq!(asked(&before), [2, 1, 3]);
    let extents = reader_extents(&open).await;
    assert_eq!((extents[0].starts.len(), extents[0].generation), (0, 0));
    open.lose_power(open.devices[0]);
    assert_eq!(reader.length().await.expect("told"), 0, "as ever");
    open.fake.fail(|faults| faults.unreachable = true);
    assert_eq!(reader.length().await.err().map(|error| error.kind()), Some(ErrorKind::Unreachable));
}

async fn reader_extents(open: &Open) -> Vec<net::message::file::Extent> {
    open.client().extents(open.opened.inode, 0).await.expect("told").0
}

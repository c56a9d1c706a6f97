//! The experiment with files and a node that is drained: how fast that is beside what the devices leave, with nobody else there and
//! while clients read and write at about half of what the devices can do.

use super::ground::{Shape, Store, Tools};
use super::limiter::Speed;
use super::load::{self, Count, Load, Seat, Watch, Work};
use super::pace::{Pace, Paced, Pieces};
use super::row::Row;
use base::error::{Error, ErrorKind, Result};
use base::unit::{GIB, MIB};
use client::Client;
use net::message::device::DrainState;
use net::message::file::Device;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Drains {
    /// Nodes.
    pub devices: usize,
    /// What each can do.
    pub speed: Speed,
    /// What the clients of bags do.
    pub load: Load,
    /// Files are as many as fill the devices in so many seconds.
    pub seconds: f64,
    /// Bytes of most files. Every ninth has eight times as many, so that each kind has half of the bytes.
    pub file: u64,
    /// Clients read and write meanwhile.
    pub loaded: bool,
}

/// So often it is looked at how far the drain is.
const LOOK: Duration = Duration::from_millis(50);

/// The part of what the devices leave that is good enough.
const BAR: f64 = 0.80;

/// The part of what the load had before that it has to keep while the drain runs. It asks for half of what the devices can do, and
/// a drain has at most `FETCH_BUDGET` on its way to a device: there is room for both.
const LOAD_BAR: f64 = 0.95;

/// The part of the devices' sum that the load asks for.
const LOAD: f64 = 0.5;

/// The node that is drained. Not the first one, which keeps the metadata.
const DRAINED: usize = 1;

/// The load is there for so many seconds before it is looked at, and then for so many before the drain.
const BEFORE: [f64; 2] = [1.0, 3.0];

/// What the devices did until a moment, and the load.
#[derive(Clone, Debug)]
struct Moment {
    second: f64,
    /// (read, written) of each device, in bytes.
    devices: Vec<(u64, u64)>,
    load: u64,
}

/// What was seen of a drain by who looked at it as `node drain` does.
#[derive(Clone, Debug, Default)]
struct Followed {
    last: DrainState,
    /// Seconds until the first byte had moved.
    first: f64,
    /// When half had moved: the second, and how many seconds were left by what had moved until then.
    half: Option<(f64, f64)>,
    /// When the device was gone.
    end: f64,
}

/// The bytes of a drain and what the devices left for it.
struct Left {
    moved: f64,
    seconds: f64,
    /// Bytes that the load read from the drained device.
    taken: f64,
    /// What the drained device and the others left for the drain, in bytes a second.
    source: f64,
    others: f64,
}

impl Left {
    /// What the drained device leaves: its rate, less what the load read from it; that is all that it read but the bytes that
    /// moved, each of which it reads once. What the others leave: their rates, less what they read and wrote beside the bytes
    /// that moved, each of which one of them writes once.
    fn of(rate: u64, before: &Moment, after: &Moment, moved: u64) -> Left {
        let (moved, seconds) = (moved as f64, after.second - before.second);
        let did = |device: usize| {
            let ((read, written), (now_read, now_written)) = (before.devices[device], after.devices[device]);
            ((now_read - read) as f64, (now_written - written) as f64)
        };
        let (read, written) = did(DRAINED);
        let taken = read - moved;
        let others: Vec<usize> = (0..before.devices.len()).filter(|device| *device != DRAINED).collect();
        let busy: f64 = others.iter().map(|device| did(*device).0 + did(*device).1).sum();
        Left {
            moved,
            seconds,
            taken,
            source: rate as f64 - (taken.max(0.0) + written) / seconds,
            others: (rate as usize * others.len()) as f64 - (busy - moved).max(0.0) / seconds,
        }
    }
}

impl Drains {
    /// Drains a node. A row, and with a load another one of that.
    pub async fn run(&self, tools: &Tools) -> Result<Vec<Row>> {
        let capacity = (self.speed.rate as f64 * self.seconds * 4.0) as u64;
        let store = Store::start(tools, Shape::new(self.devices, self.speed, capacity.max(2 * GIB))).await?;
        let clients = store.clients(self.devices).await?;
        let pieces = Pieces::new(tools);
        let sizes = self.sizes();
        pieces.write_all(&clients, "/first", &sizes).await?;
        let watch = Watch::start()?;
        let paced = if self.loaded { Some(self.begin_load(tools, &clients, &pieces, &sizes).await?) } else { None };
        let moment = || Moment {
            second: watch.seconds(),
            devices: store.moved(),
            load: paced.as_ref().map_or(0, LoadUnderWay::bytes),
        };
        // Nodes report what they hold once a second.
        tokio::time::sleep(Duration::from_secs_f64(BEFORE[0])).await;
        let before = moment();
        if self.loaded {
            tokio::time::sleep(Duration::from_secs_f64(BEFORE[1])).await;
        }
        let begun = moment();
        let followed = follow(&clients[0], &watch).await?;
        let ended = moment();
        let cost = watch.end()?;
        let written = match paced {
            Some(load) => load.end(&clients[0]).await?,
            None => 0,
        };
        let left = Left::of(self.speed.rate, &begun, &ended, followed.last.bytes);
        let mut row = self.row(&left, &followed)?;
        row.processor = cost.processor / (left.moved / GIB as f64);
        let mut rows = vec![row];
        if self.loaded {
            rows.push(self.load_row(&rows[0], [&before, &begun, &ended], written));
        }
        pieces.compare_all(&clients, "/first", &sizes).await?;
        pieces.compare_all(&clients, "/second", &vec![SECOND; written]).await?;
        drop(clients);
        store.stop().await;
        Ok(rows)
    }

    fn sizes(&self) -> Vec<u64> {
        let bytes = (self.speed.rate as f64 * self.devices as f64 * self.seconds) as u64;
        let (mut sizes, mut sum) = (Vec::new(), 0);
        while sum < bytes {
            sizes.push(if sizes.len() % 9 == 8 { 8 * self.file } else { self.file });
            sum += sizes[sizes.len() - 1];
        }
        sizes
    }

    fn row(&self, left: &Left, followed: &Followed) -> Result<Row> {
        let mega = |bytes: f64| bytes / 1e6;
        let (half, said) = followed.half.unwrap_or_default();
        let note = format!(
            "{:.0} MB, the first after {:.1} s; the drained device read {:.1} MB/s for others, which leaves {:.1}, the others {:.0}; at the \
             half {said:.1} s were left by what had moved, and it took {:.1}; all bytes identical",
            mega(left.moved),
            followed.first,
            mega(left.taken / left.seconds),
            mega(left.source),
            mega(left.others),
            followed.end - half,
        );
        Ok(Row {
            experiment: "a node is drained",
            what: if self.loaded { "beside a load" } else { "with nobody else there" },
            devices: self.devices,
            rate: self.speed.rate,
            clients: 0,
            chunk: self.file as usize,
            window: 0,
            each: followed.last.chunks,
            seconds: left.seconds,
            throughput: left.moved / left.seconds,
            of: left.source.min(left.others),
            bar: Some(BAR),
            memory: os::process::usage(std::process::id())?.anonymous_bytes,
            note,
            ..Row::default()
        })
    }

    /// What the load got while the drain ran, beside what it got before.
    fn load_row(&self, drain: &Row, [before, begun, ended]: [&Moment; 3], written: usize) -> Row {
        let rate = |from: &Moment, to: &Moment| (to.load - from.load) as f64 / (to.second - from.second);
        let asked = LOAD * (self.speed.rate * self.devices as u64) as f64;
        Row {
            what: "the load beside it",
            clients: self.devices,
            throughput: rate(begun, ended),
            of: rate(before, begun),
            bar: Some(LOAD_BAR),
            note: format!(
                "asks for {:.0} MB/s: half of it reads of files, a quarter {written} new files, a quarter through a bag",
                asked / 1e6
            ),
            ..drain.clone()
        }
    }

    /// Half of the load's bytes are read from the files that are there, a quarter are new files, an eighth is pushed to a bag, and
    /// pulled.
    async fn begin_load(
        &self,
        tools: &Tools,
        clients: &[Client],
        pieces: &Pieces,
        sizes: &[u64],
    ) -> Result<LoadUnderWay> {
        let sum = LOAD * (self.speed.rate * self.devices as u64) as f64;
        let (half, quarter) = (clients.len() / 2, (clients.len() / 4).max(1));
        let pace = |part: f64, clients: usize| Pace::new(tools, sum * part / clients.max(1) as f64);
        let mut paced = Paced::new();
        for (number, client) in clients.iter().take(half).enumerate() {
            paced.read(client, pieces, pace(0.5, half), ("/first", sizes.to_vec()), number);
        }
        for client in clients.iter().skip(half).take(quarter) {
            paced.write(client, pieces, pace(0.25, quarter), ("/second", SECOND));
        }
        clients[0].bag_create("bag", false).await?;
        let (ours, count) = (&clients[clients.len() - quarter..], Arc::new(Count::default()));
        let seats = load::open(ours, "bag").await?;
        for Seat { bag, .. } in &seats {
            paced.push(tools, bag, pace(0.125, quarter), self.load, &count);
        }
        let pulling = Work::pull(&seats, self.load, &count);
        Ok(LoadUnderWay { paced, pulling, count, chunk: self.load.chunk as u64 })
    }
}

/// Bytes of a file of the load.
const SECOND: u64 = 64 * MIB;

struct LoadUnderWay {
    paced: Paced,
    pulling: Work,
    count: Arc<Count>,
    chunk: u64,
}

impl LoadUnderWay {
    /// What it read, wrote, pushed and pulled so far.
    fn bytes(&self) -> u64 {
        let chunks = self.count.pushed.load(Ordering::Relaxed) + self.count.pulled.load(Ordering::Relaxed);
        self.paced.bytes() + chunks * self.chunk
    }

    /// Ends it. How many files it wrote.
    async fn end(self, client: &Client) -> Result<usize> {
        let (files, pushed) = self.paced.end().await?;
        client.bag_seal("bag").await?;
        let pulled = self.pulling.end().await?;
        if pushed != pulled {
            let text = format!("{pushed} chunks were pushed and {pulled} acknowledged; this is a fault in Stormwell");
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
        Ok(files)
    }
}

/// Drains the node, and looks at it until its device is gone.
async fn follow(client: &Client, watch: &Watch) -> Result<Followed> {
    let name = Store::name(DRAINED);
    let members = client.view().await?.members;
    let member = members.iter().find(|member| member.node.name == name);
    let node = member.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("{name} has left")))?.node.node;
    let of = |devices: Vec<Device>| devices.into_iter().find(|device| device.node == Some(node));
    let began = watch.seconds();
    client.drain_node(node).await?;
    let (mut followed, mut counts) = (Followed::default(), began);
    loop {
        let device = of(client.devices().await?.devices);
        let second = watch.seconds();
        let Some(device) = device else {
            return Ok(Followed { end: second, ..followed });
        };
        let Device { drain: Some(drain), .. } = device else { continue };
        if drain.whole_bytes == 0 {
            counts = second;
        }
        if drain.bytes > 0 && followed.last.bytes == 0 {
            followed.first = second - began;
        }
        if followed.half.is_none() && drain.bytes * 2 >= drain.whole_bytes && drain.bytes > 0 {
            let left = drain.whole_bytes.saturating_sub(drain.bytes) as f64 / drain.bytes as f64 * (second - counts);
            followed.half = Some((second, left));
        }
        followed.last = drain;
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::{Left, Moment};

    /// What the drained device did beside the drain is taken off its rate, what the others did off theirs.
    #[test]
    fn what_devices_leave() {
        let moment = |second, devices| Moment { second, devices, load: 0 };
        let before = moment(1.0, vec![(10, 10), (0, 1000), (0, 0)]);
        let after = moment(11.0, vec![(110, 510), (800, 1000), (0, 300)]);
        let left = Left::of(100, &before, &after, 600);
        assert!((left.taken - 200.0).abs() < 1e-9 && (left.source - 80.0).abs() < 1e-9, "{}", left.source);
        assert!((left.others - (200.0 - (900.0 - 600.0) / 10.0)).abs() < 1e-9, "{}", left.others);
    }
}

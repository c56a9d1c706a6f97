//! The experiments with bags: weak and strong scaling, one client, and producers and consumers at once.

use super::ground::{Shape, Store, Tools};
use super::limiter::Speed;
use super::load::{self, Cost, Count, Load, Watch, Work};
use super::row::Row;
use base::error::{Error, ErrorKind, Result};
use base::unit::{GIB, MIB};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// One run of pushing so much and pulling it.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The experiment's name.
    pub experiment: &'static str,
    /// Devices.
    pub devices: usize,
    /// What each can do.
    pub speed: Speed,
    /// Clients.
    pub clients: usize,
    /// What each does.
    pub load: Load,
    /// Chunks that each client pushes.
    pub each: u64,
    /// The least part of the devices' sum that is good enough.
    pub bar: Option<f64>,
}

impl Run {
    /// Chunks of all clients together.
    fn chunks(&self) -> u64 {
        self.each * self.clients as u64
    }

    fn bytes(&self) -> u64 {
        self.chunks() * self.load.chunk as u64
    }

    /// Room for what an even spread brings, half as much again, and what the engine keeps back.
    fn capacity(&self) -> u64 {
        (self.bytes() / self.devices as u64 * 3 / 2).max(512 * MIB) * 5 / 4
    }

    fn row(&self, what: &'static str, cost: Cost) -> Result<Row> {
        let memory = os::process::usage(std::process::id())?.anonymous_bytes;
        Ok(Row {
            experiment: self.experiment,
            what,
            devices: self.devices,
            rate: self.speed.rate,
            clients: self.clients,
            chunk: self.load.chunk,
            window: self.load.window,
            each: self.chunks() / self.devices as u64,
            seconds: cost.seconds,
            throughput: self.bytes() as f64 / cost.seconds,
            of: (self.speed.rate * self.devices as u64) as f64,
            bar: self.bar,
            processor: cost.processor / (self.bytes() as f64 / GIB as f64),
            memory,
            note: String::new(),
        })
    }

    /// What devices did that were busy for so long before.
    fn use_of(&self, store: &Store, before: f64, seconds: f64) -> String {
        let part = (store.busy() - before) / seconds / self.devices as f64;
        format!("devices busy for {part:.3} of the time, done {:.2} s before the end", store.idle())
    }

    /// Pushes everything and then pulls everything; a row for each.
    pub async fn push_and_pull(&self, tools: &Tools) -> Result<[Row; 2]> {
        let shape = Shape::new(self.devices, self.speed, self.capacity());
        let store = Store::start(tools, shape).await?;
        let clients = store.clients(self.clients).await?;
        clients[0].bag_create("bag", false).await?;
        let bags = load::open(&clients, "bag").await?;
        let count = Arc::new(Count::default());
        let (watch, busy) = (Watch::start()?, store.busy());
        let pushed = Work::push(tools, &bags, self.load, self.each, &count).end().await?;
        let mut push = self.row("push", watch.end()?)?;
        push.note = format!("{}; {}", spread(&clients[0]).await?, self.use_of(&store, busy, push.seconds));
        clients[0].bag_seal("bag").await?;
        let (watch, busy) = (Watch::start()?, store.busy());
        let pulled = Work::pull(&bags, self.load, &count).end().await?;
        let mut pull = self.row("pull", watch.end()?)?;
        pull.window = self.load.pulls.unwrap_or(0);
        pull.note = self.use_of(&store, busy, pull.seconds);
        if pushed != pulled {
            let text = format!("{pushed} chunks were pushed and {pulled} acknowledged; this is a fault in Stormwell");
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
        drop((bags, clients));
        store.stop().await;
        Ok([push, pull])
    }
}

/// How evenly the chunks lie on the devices.
async fn spread(client: &client::Client) -> Result<String> {
    let chunks: Vec<u64> = client.devices().await?.devices.iter().map(|device| device.chunks).collect();
    let (least, most) = (chunks.iter().min().unwrap_or(&0), chunks.iter().max().unwrap_or(&0));
    Ok(format!("{least} to {most} chunks a device"))
}

/// How full the devices are allowed to get while producers and consumers work at once.
pub struct Buffer {
    /// What is run; its bar is a part of what the run one after the other reaches.
    pub run: Run,
    /// Bytes that each device holds.
    pub capacity: u64,
}

/// So often the backlog is looked at.
const LOOK: Duration = Duration::from_millis(100);

impl Buffer {
    /// Pushes and pulls at once. The row, of pushes and pulls together, and the backlog in bytes by seconds.
    pub async fn both(&self, tools: &Tools, unmixed: f64) -> Result<(Row, Vec<(f64, f64)>)> {
        let run = &self.run;
        let store = Store::start(tools, Shape::new(run.devices, run.speed, self.capacity)).await?;
        let (producers, consumers) = (store.clients(run.clients).await?, store.clients(run.clients).await?);
        producers[0].bag_create("bag", false).await?;
        let (sources, sinks) = (load::open(&producers, "bag").await?, load::open(&consumers, "bag").await?);
        let count = Arc::new(Count::default());
        let watch = Watch::start()?;
        let push = Work::push(tools, &sources, run.load, run.each, &count);
        let pull = Work::pull(&sinks, run.load, &count);
        let sealer = producers[0].clone();
        let sealed = async move {
            let pushed = push.end().await?;
            sealer.bag_seal("bag").await?;
            Ok::<u64, Error>(pushed)
        };
        let mut both = Box::pin(async { tokio::try_join!(sealed, pull.end()) });
        let mut backlog = Vec::new();
        let (pushed, pulled) = loop {
            tokio::select! {
                biased;
                ended = &mut both => break ended?,
                () = tokio::time::sleep(LOOK) => {
                    let waiting = count.pushed.load(Ordering::Relaxed).saturating_sub(count.pulled.load(Ordering::Relaxed));
                    backlog.push((watch.seconds(), (waiting * run.load.chunk as u64) as f64));
                }
            }
        };
        let cost = watch.end()?;
        if pushed != pulled {
            let text = format!("{pushed} chunks were pushed and {pulled} acknowledged; this is a fault in Stormwell");
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
        let mut row = run.row("push and pull at once", cost)?;
        (row.throughput, row.of) = (2.0 * row.throughput, unmixed);
        row.note =
            format!("{:.1} times the capacity", run.bytes() as f64 / (self.capacity * run.devices as u64) as f64);
        drop((both, sources, sinks, producers, consumers));
        store.stop().await;
        Ok((row, backlog))
    }
}

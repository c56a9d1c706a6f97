//! The experiment with a node that joins and one that is drained, while clients push all the time.

use super::ground::{Shape, Store, Tools};
use super::limiter::Speed;
use super::load::{self, Count, Load, Seat, Watch, Work};
use super::row::Row;
use base::error::{Error, ErrorKind, Result};
use base::unit::{GIB, MIB};
use client::{Client, ProducerOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Joins {
    /// Nodes at the beginning, and at the end.
    pub devices: usize,
    /// What each can do.
    pub speed: Speed,
    /// What each client does.
    pub load: Load,
    /// Seconds before the join, between it and the drain, and after that.
    pub seconds: f64,
}

/// So often it is looked at how much was pushed.
const LOOK: Duration = Duration::from_millis(100);

/// Throughput is to have followed after so many seconds.
const FOLLOWS: f64 = 5.0;

/// Throughput is taken over so many looks when it is asked whether it has followed: acknowledgements come in groups.
const OVER: usize = 10;

/// Which part of what all devices can do counts as having followed.
const BAR: f64 = 0.95;

/// What was seen.
pub struct Seen {
    /// A row for the time after the join, and one for the time after the drain began.
    pub rows: Vec<Row>,
    /// Bytes a second, by seconds.
    pub curve: Vec<(f64, f64)>,
    /// What the devices that take chunks can do, by seconds.
    pub devices: Vec<(f64, f64)>,
}

impl Joins {
    /// Pushes, lets a node join, drains another, and pulls everything at the end.
    pub async fn run(&self, tools: &Tools) -> Result<Seen> {
        let bytes = (self.speed.rate as f64 * self.seconds * 4.0) as u64;
        let shape = Shape::new(self.devices, self.speed, bytes.max(512 * MIB) * 5 / 4);
        let mut store = Store::start(tools, shape).await?;
        let clients = store.clients(self.devices + 1).await?;
        clients[0].bag_create("bag", false).await?;
        let seats = load::open(&clients, "bag").await?;
        let (count, stop) = (Arc::new(Count::default()), Arc::new(AtomicBool::new(false)));
        let watch = Watch::start()?;
        let pushing = self.push(tools, &seats, &count, &stop);
        let mut curve =
            Curve { watch: &watch, count: &count, chunk: self.load.chunk, points: Vec::new(), before: (0.0, 0) };
        curve.follow(self.seconds).await;
        store.join().await?;
        let joined = watch.seconds();
        curve.follow(joined + self.seconds).await;
        drain(&clients[0], &Store::name(1)).await?;
        let drained = watch.seconds();
        curve.follow(drained + self.seconds).await;
        stop.store(true, Ordering::Relaxed);
        let pushed = all(pushing).await?;
        let cost = watch.end()?;
        let curve = curve.points;
        clients[0].bag_seal("bag").await?;
        let pulled = Work::pull(&seats, self.load, &count).end().await?;
        if pushed != pulled {
            let text = format!("{pushed} chunks were pushed and {pulled} acknowledged; this is a fault in Stormwell");
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
        drop((seats, clients));
        store.stop().await;
        let (few, many) =
            ((self.speed.rate * self.devices as u64) as f64, (self.speed.rate * (self.devices as u64 + 1)) as f64);
        let mut rows = Vec::new();
        for (what, from, to, of) in
            [("push after it", joined, drained, many), ("push while another is drained", drained, f64::MAX, few)]
        {
            let after = followed(&curve, from, BAR * of);
            let steady = mean(&curve, from + FOLLOWS, to);
            let note = match after {
                Some(after) => format!("{:.0} % of the devices {after:.1} s after", 100.0 * BAR),
                None => format!("{:.0} % of the devices never", 100.0 * BAR),
            };
            rows.push(Row {
                experiment: "a node joins",
                what,
                devices: (of / self.speed.rate as f64).round() as usize,
                rate: self.speed.rate,
                clients: self.devices + 1,
                chunk: self.load.chunk,
                window: self.load.window,
                each: pushed / (self.devices as u64 + 1),
                seconds: to.min(watch.seconds()) - from,
                throughput: steady,
                of,
                bar: Some(BAR),
                processor: cost.processor / (pushed as f64 * self.load.chunk as f64 / GIB as f64),
                memory: os::process::usage(std::process::id())?.anonymous_bytes,
                note,
            });
        }
        let devices =
            vec![(0.0, few), (joined, few), (joined, many), (drained, many), (drained, few), (cost.seconds, few)];
        Ok(Seen { rows, curve, devices })
    }

    /// Clients that push until they are told to stop.
    fn push(&self, tools: &Tools, seats: &[Seat], count: &Arc<Count>, stop: &Arc<AtomicBool>) -> JoinSet<Result<u64>> {
        let mut tasks = JoinSet::new();
        for Seat { bag, scope } in seats {
            let producer = bag.producer(ProducerOptions {
                window: self.load.window * self.load.chunk,
                scope: *scope,
                ..ProducerOptions::default()
            });
            let (bytes, count, stop) = (tools.pattern.first(self.load.chunk), count.clone(), stop.clone());
            tasks.spawn(async move {
                let mut pushed = 0;
                while !stop.load(Ordering::Relaxed) {
                    producer.push(bytes.clone()).await?;
                    count.pushed.fetch_add(1, Ordering::Relaxed);
                    pushed += 1;
                }
                producer.flush().await?;
                Ok(pushed)
            });
        }
        tasks
    }
}

async fn all(mut tasks: JoinSet<Result<u64>>) -> Result<u64> {
    let mut chunks = 0;
    while let Some(ended) = tasks.join_next().await {
        chunks += ended.map_err(|error| Error::new(ErrorKind::Io, format!("a client ended: {error}")))??;
    }
    Ok(chunks)
}

async fn drain(client: &Client, name: &str) -> Result<()> {
    let members = client.view().await?.members;
    let member = members.iter().find(|member| member.node.name == name);
    let member = member.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("{name} has left")))?;
    client.drain_node(member.node.node).await
}

/// Throughput by time.
struct Curve<'a> {
    watch: &'a Watch,
    count: &'a Count,
    chunk: usize,
    points: Vec<(f64, f64)>,
    /// When it was last looked, and how many chunks had been pushed then.
    before: (f64, u64),
}

impl Curve<'_> {
    /// Looks until that second.
    async fn follow(&mut self, until: f64) {
        while self.watch.seconds() < until {
            tokio::time::sleep(LOOK).await;
            let (second, pushed) = (self.watch.seconds(), self.count.pushed.load(Ordering::Relaxed));
            let bytes = (pushed - self.before.1) as f64 * self.chunk as f64;
            self.points.push((second, bytes / (second - self.before.0)));
            self.before = (second, pushed);
        }
    }
}

/// How long after `from` throughput was at `least` for the first time, over a second.
fn followed(curve: &[(f64, f64)], from: f64, least: f64) -> Option<f64> {
    let after: Vec<(f64, f64)> = curve.iter().copied().filter(|(second, _)| *second > from).collect();
    let reached = after.windows(OVER).find(|looks| looks.iter().map(|look| look.1).sum::<f64>() >= least * OVER as f64);
    reached.map(|looks| looks[0].0 - from)
}

fn mean(curve: &[(f64, f64)], from: f64, to: f64) -> f64 {
    let looks: Vec<f64> = curve.iter().filter(|(second, _)| (from..to).contains(second)).map(|look| look.1).collect();
    looks.iter().sum::<f64>() / looks.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::{followed, mean};

    /// Throughput has followed when it is there for a second, not for a moment.
    #[test]
    fn follows() {
        let value = |look: u32| if look == 12 || look >= 30 { 100.0 } else { 50.0 };
        let curve: Vec<(f64, f64)> = (0..60).map(|look| (f64::from(look) / 10.0, value(look))).collect();
        let after = followed(&curve, 1.0, 96.0).expect("it follows");
        assert!((after - 2.0).abs() < 1e-9, "{after}");
        assert_eq!(followed(&curve, 1.0, 101.0), None);
        assert!((mean(&curve, 3.0, f64::MAX) - 100.0).abs() < 1e-9);
    }
}

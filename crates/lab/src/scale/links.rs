//! The experiments with links slower than devices, where Hurricane lost to HDFS: each client stands on a node and shares its card.

use super::ground::{Shape, Store, Tools};
use super::limiter::Speed;
use super::load::{self, Cost, Count, Load, Seat, Watch, Work};
use super::row::Row;
use base::error::{Error, ErrorKind, Result};
use base::unit::{GIB, MIB};
use client::{Client, Scope};
use std::sync::Arc;

/// What stands where.
#[derive(Clone, Copy, Debug)]
pub struct Links {
    /// Nodes, with one device each.
    pub devices: usize,
    /// What each device can do.
    pub speed: Speed,
    /// What each card can do, in bytes a second in each direction.
    pub card: u64,
    /// What each client does.
    pub load: Load,
    /// How long it is to take.
    pub seconds: f64,
}

/// Where a client's chunks go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// To its own node only.
    Local,
    /// To the next node only.
    Remote,
    /// Where the client likes.
    Both,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Local => "own node only",
            Way::Remote => "next node only",
            Way::Both => "as the client likes",
        }
    }

    /// What one client should get out of it in a second, if all do the same.
    fn rate(self, links: &Links) -> u64 {
        match self {
            Way::Local | Way::Both => links.speed.rate,
            Way::Remote => links.speed.rate.min(links.card),
        }
    }
}

impl Links {
    fn shape(&self, bytes: u64) -> Shape {
        let capacity = (bytes * 3 / 2).max(512 * MIB) * 5 / 4;
        Shape { card: Some(self.card), ..Shape::new(self.devices, self.speed, capacity) }
    }

    fn each(&self, rate: u64) -> u64 {
        ((rate as f64 * self.seconds / self.load.chunk as f64) as u64).max(1)
    }

    fn row(&self, experiment: &'static str, what: &'static str, clients: usize, each: u64, cost: Cost) -> Result<Row> {
        let bytes = each * clients as u64 * self.load.chunk as u64;
        Ok(Row {
            experiment,
            what,
            devices: self.devices,
            rate: self.speed.rate,
            clients,
            chunk: self.load.chunk,
            window: self.load.window,
            each: each * clients as u64 / self.devices as u64,
            seconds: cost.seconds,
            throughput: bytes as f64 / cost.seconds,
            processor: cost.processor / (bytes as f64 / GIB as f64),
            memory: os::process::usage(std::process::id())?.anonymous_bytes,
            ..Row::default()
        })
    }

    /// All clients at once: to their own nodes, to others, and as they like, which is compared with the better of the two.
    pub async fn all(&self, tools: &Tools, show: impl Fn(&[Row])) -> Result<Vec<Row>> {
        let mut rows: Vec<Row> = Vec::new();
        for way in [Way::Local, Way::Remote, Way::Both] {
            let each = self.each(way.rate(self));
            let store = Store::start(tools, self.shape(each * self.load.chunk as u64)).await?;
            let clients = store.clients(self.devices).await?;
            let mut measured = self.push_and_pull(tools, "slow links, all", &clients, way, each).await?;
            drop(clients);
            store.stop().await;
            for row in &mut measured {
                let better = rows.iter().filter(|other| other.what == row.what).map(|other| other.throughput);
                let devices = (self.speed.rate * self.devices as u64) as f64;
                row.of = if way == Way::Both { better.fold(0.0, f64::max) } else { devices };
                row.bar = (way == Way::Both).then_some(0.95);
                row.note = format!("{}; cards of {:.0} MB/s", way.name(), self.card as f64 / 1e6);
            }
            show(&measured);
            rows.extend(measured);
        }
        Ok(rows)
    }

    /// One client alone, which has its device and its link.
    pub async fn hot(&self, tools: &Tools) -> Result<Vec<Row>> {
        let both = self.speed.rate + self.card;
        let each = self.each(both);
        let store = Store::start(tools, self.shape(each * self.load.chunk as u64)).await?;
        // Not the node that keeps the metadata.
        let clients = [store.client(self.devices - 1).await?];
        let mut measured = self.push_and_pull(tools, "slow links, one", &clients, Way::Both, each).await?;
        drop(clients);
        store.stop().await;
        for row in &mut measured {
            (row.of, row.bar) = (both as f64, Some(0.95));
            row.note = format!("of its device and its card of {:.0} MB/s", self.card as f64 / 1e6);
        }
        Ok(measured.into())
    }

    async fn push_and_pull(
        &self,
        tools: &Tools,
        experiment: &'static str,
        clients: &[Client],
        way: Way,
        each: u64,
    ) -> Result<[Row; 2]> {
        clients[0].bag_create("bag", false).await?;
        let mut seats = load::open(clients, "bag").await?;
        if way != Way::Both {
            let members = clients[0].view().await?.members;
            let node = |number: usize| {
                let name = Store::name(number % self.devices);
                let member = members.iter().find(|member| member.node.name == name);
                member.map(|member| Scope::Node(base::id::NodeId(member.node.node.value())))
            };
            let ahead = if way == Way::Local { 0 } else { 1 };
            for (number, seat) in seats.iter_mut().enumerate() {
                let missing = || Error::new(ErrorKind::NotFound, "a node has left");
                *seat = Seat { scope: node(number + ahead).ok_or_else(missing)?, bag: seat.bag.clone() };
            }
        }
        let count = Arc::new(Count::default());
        let watch = Watch::start()?;
        let pushed = Work::push(tools, &seats, self.load, each, &count).end().await?;
        let push = self.row(experiment, "push", clients.len(), each, watch.end()?)?;
        clients[0].bag_seal("bag").await?;
        let watch = Watch::start()?;
        let pulled = Work::pull(&seats, self.load, &count).end().await?;
        let mut pull = self.row(experiment, "pull", clients.len(), each, watch.end()?)?;
        pull.window = self.load.pulls.unwrap_or(0);
        if pushed != pulled {
            let text = format!("{pushed} chunks were pushed and {pulled} acknowledged; this is a fault in Stormwell");
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
        Ok([push, pull])
    }
}

//! The experiment with a node that has 63 others and as many clients: what memory it takes while all are busy.
//!
//! The node that is measured keeps the metadata and is a process of its own, this program started anew; the others are in this one.

use super::ground::{Shape, Store, Tools};
use super::limiter::Speed;
use super::load::{self, Count, Load, Watch, Work};
use super::row::Row;
use base::error::{Error, ErrorKind, Result};
use base::id::ClusterId;
use base::unit::{GIB, MIB};
use harness::child::{SERVING, Server};
use harness::sampler::Sampler;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Nodes, the measured one too.
    pub devices: usize,
    /// What each device can do.
    pub speed: Speed,
    /// What each client does.
    pub load: Load,
    /// Chunks that each client pushes and pulls.
    pub each: u64,
}

/// The most that the node may take, in bytes.
const MOST: u64 = 300_000_000;

/// A node that does not serve after so long never will.
const START_WAIT: Duration = Duration::from_secs(60);

/// So often it is looked at what the node has.
const LOOK: Duration = Duration::from_millis(50);

/// Starts the measured node and waits until it serves.
fn start(cluster: ClusterId, rate: u64) -> Result<Server> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["scale", "--alone", &format!("{:032x}", cluster.0), "--rate", &(rate / 1_000_000).to_string()]);
    Server::start(command, START_WAIT)
}

/// Serves as the measured node: says where, and goes on until it is killed.
pub async fn alone(tools: &Tools, cluster: &str, speed: Speed) -> Result<()> {
    let cluster = u128::from_str_radix(cluster, 16);
    let cluster = ClusterId(cluster.map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?);
    let store = Store::of(tools, Shape::new(1, speed, GIB), cluster, None).await?;
    eprintln!("{SERVING}{}", store.address(0));
    std::future::pending().await
}

impl Memory {
    /// Pushes and pulls; a row that shows the most that the node had.
    pub async fn run(&self, tools: &Tools) -> Result<Row> {
        let cluster = ClusterId(tools.random.wide());
        let alone = start(cluster, self.speed.rate)?;
        let idle = os::process::usage(alone.child.id())?.anonymous_bytes;
        let each = self.each * self.load.chunk as u64;
        let shape = Shape::new(self.devices - 1, self.speed, (each * 3 / 2).max(512 * MIB) * 5 / 4);
        let store = Store::of(tools, shape, cluster, Some(alone.address.clone())).await?;
        let clients = store.clients(self.devices).await?;
        clients[0].bag_create("bag", false).await?;
        let seats = load::open(&clients, "bag").await?;
        let count = Arc::new(Count::default());
        let watch = Watch::start()?;
        let sampler = Sampler::start(alone.child.id(), LOOK)?;
        let pushed = Work::push(tools, &seats, self.load, self.each, &count).end().await?;
        let while_pushed = sampler.peak().max(idle);
        clients[0].bag_seal("bag").await?;
        let sampler = Sampler::start(alone.child.id(), LOOK)?;
        let pulled = Work::pull(&seats, self.load, &count).end().await?;
        let while_pulled = sampler.peak().max(idle);
        let cost = watch.end()?;
        if pushed != pulled {
            let text = format!("{pushed} chunks were pushed and {pulled} acknowledged; this is a fault in Stormwell");
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
        drop((seats, clients));
        store.stop().await;
        let memory = while_pushed.max(while_pulled);
        // The nodes of this process say what is wrong with them on the same stderr.
        let said = alone.child.said();
        said.iter().filter(|line| !line.starts_with(SERVING)).for_each(|line| eprintln!("{line}"));
        let bytes = 2.0 * (pushed * self.load.chunk as u64) as f64;
        Ok(Row {
            experiment: "memory of a node",
            what: "push, then pull",
            devices: self.devices,
            rate: self.speed.rate,
            clients: self.devices,
            chunk: self.load.chunk,
            window: self.load.window,
            each: pushed / self.devices as u64,
            seconds: cost.seconds,
            throughput: bytes / cost.seconds,
            of: (self.speed.rate * self.devices as u64) as f64,
            bar: None,
            processor: cost.processor / (bytes / GIB as f64),
            memory,
            note: format!(
                "the node that keeps the metadata, a process of its own: {:.0} MB idle, at most {:.0} while all push and {:.0} while all pull, {}",
                idle as f64 / 1e6,
                while_pushed as f64 / 1e6,
                while_pulled as f64 / 1e6,
                if memory <= MOST { "within 300" } else { "more than 300" }
            ),
        })
    }
}

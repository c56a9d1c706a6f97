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
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
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

/// So often it is looked at what the node has.
const LOOK: Duration = Duration::from_millis(50);

/// The measured node.
struct Alone {
    child: Child,
    address: String,
}

impl Alone {
    fn start(cluster: ClusterId, rate: u64) -> Result<Alone> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["scale", "--alone", &format!("{:032x}", cluster.0), "--rate", &(rate / 1_000_000).to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut address = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut address)?;
        }
        let address = address.trim().to_string();
        let alone = Alone { child, address };
        match alone.address.is_empty() {
            true => Err(Error::new(ErrorKind::Unreachable, "the measured node did not start; look at what it printed")),
            false => Ok(alone),
        }
    }

    fn memory(&self) -> Result<u64> {
        Ok(os::process::usage(self.child.id())?.anonymous_bytes)
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        // It ends when its stdin does; if it is gone already, so much the better.
        drop(self.child.stdin.take());
        let _ended = self.child.wait();
    }
}

/// Serves as the measured node: says where, and ends when stdin does.
pub async fn alone(tools: &Tools, cluster: &str, speed: Speed) -> Result<()> {
    let cluster = u128::from_str_radix(cluster, 16);
    let cluster = ClusterId(cluster.map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))?);
    let store = Store::of(tools, Shape::new(1, speed, GIB), cluster, None).await?;
    println!("{}", store.address(0));
    std::io::stdout().flush()?;
    let ended = tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())).await;
    ended.map_err(|error| Error::new(ErrorKind::Io, error.to_string()))??;
    store.stop().await;
    Ok(())
}

impl Memory {
    /// Pushes and pulls; a row that shows the most that the node had.
    pub async fn run(&self, tools: &Tools) -> Result<Row> {
        let cluster = ClusterId(tools.random.wide());
        let alone = Alone::start(cluster, self.speed.rate)?;
        let idle = alone.memory()?;
        let each = self.each * self.load.chunk as u64;
        let shape = Shape::new(self.devices - 1, self.speed, (each * 3 / 2).max(512 * MIB) * 5 / 4);
        let store = Store::of(tools, shape, cluster, Some(alone.address.clone())).await?;
        let clients = store.clients(self.devices).await?;
        clients[0].bag_create("bag", false).await?;
        let seats = load::open(&clients, "bag").await?;
        let count = Arc::new(Count::default());
        let watch = Watch::start(tools)?;
        let mut most = [idle; 2];
        let pushed = looked_at(Work::push(tools, &seats, self.load, self.each, &count), &alone, &mut most[0]).await?;
        clients[0].bag_seal("bag").await?;
        let pulled = looked_at(Work::pull(&seats, self.load, &count), &alone, &mut most[1]).await?;
        let cost = watch.end()?;
        if pushed != pulled {
            let text = format!("{pushed} chunks were pushed and {pulled} acknowledged; this is a fault in Stormwell");
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
        drop((seats, clients));
        store.stop().await;
        let memory = most[0].max(most[1]);
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
                most[0] as f64 / 1e6,
                most[1] as f64 / 1e6,
                if memory <= MOST { "within 300" } else { "more than 300" }
            ),
        })
    }
}

/// Waits for the end and looks at the node meanwhile.
async fn looked_at(work: Work, alone: &Alone, most: &mut u64) -> Result<u64> {
    let mut end = Box::pin(work.end());
    loop {
        tokio::select! {
            biased;
            ended = &mut end => return ended,
            () = tokio::time::sleep(LOOK) => *most = (*most).max(alone.memory()?),
        }
    }
}

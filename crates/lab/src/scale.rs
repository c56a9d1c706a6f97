//! `cargo x lab scale`: the evaluation of Hurricane, with many nodes on one machine, each with a device as slow as it is told.

mod bags;
mod bare;
mod compressed;
mod curves;
mod drains;
mod files;
mod ground;
mod joins;
mod limiter;
mod links;
mod load;
mod memory;
mod nic;
mod pace;
mod pattern_disk;
mod plot;
mod row;
mod world;

use bags::{Buffer, Run};
use base::error::{Error, ErrorKind, Result};
use base::net::Boxed;
use base::policy::Compression;
use base::unit::MIB;
use compressed::Content;
use drains::Drains;
use ground::Tools;
use joins::Joins;
use limiter::Speed;
use links::Links;
use load::Load;
use memory::Memory;
use row::{HEAD, Row};
use std::path::PathBuf;

/// What to measure.
#[derive(clap::Args)]
pub struct Args {
    /// Experiments, by their names: limiter, weak, strong, one, buffer, links, hot, joins, drains, memory, compression; all of them without this
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Sizes, in nodes with one device each, instead of the usual ones
    #[arg(long, value_delimiter = ',')]
    nodes: Vec<usize>,
    /// What each device can do, in MB/s, instead of 80 (20 for 32 devices, 12 for more)
    #[arg(long)]
    rate: Option<u64>,
    /// How long each measurement is to take, if the devices are the bound, instead of the usual times
    #[arg(long)]
    seconds: Option<f64>,
    /// KiB of a chunk, at most 1024, instead of 1024 (256 from 32 devices on)
    #[arg(long)]
    chunk: Option<usize>,
    /// Chunks that each client has on their way, instead of 12 (four a device if it is alone)
    #[arg(long)]
    window: Option<usize>,
    /// Pulls that each client has open, instead of as many as it finds right
    #[arg(long)]
    pulls: Option<usize>,
    /// What each network card can do in each direction, in MB/s, where links are slower than devices, instead of a quarter of a device
    #[arg(long)]
    card: Option<u64>,
    /// Serve as the node that is measured in a process of its own, of the cluster with this id
    #[arg(long, hide = true)]
    alone: Option<String>,
    /// Disks with a head: 8 ms a seek, instead of 0.1 ms a request
    #[arg(long)]
    hdd: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Draw the curves into docs/pictures
    #[arg(long)]
    record: bool,
    /// Measure nothing, and draw the curves of rows that were measured before and printed with --json
    #[arg(long, value_name = "FILE")]
    draw: Vec<PathBuf>,
}

/// The experiments, in the order in which they are run.
const EXPERIMENTS: [&str; 11] =
    ["limiter", "weak", "strong", "one", "buffer", "links", "hot", "joins", "drains", "memory", "compression"];

/// What an experiment found: rows, and pictures by their names.
#[derive(Default)]
struct Found {
    rows: Vec<Row>,
    charts: Vec<curves::Named>,
}

/// Runs the experiments. `Ok(false)`: a bar was missed.
pub fn run(args: &Args) -> Result<bool> {
    if let Some(unknown) = args.only.iter().find(|name| !EXPERIMENTS.contains(&name.as_str())) {
        let text = format!("there is no experiment `{unknown}`; there are {}", EXPERIMENTS.join(", "));
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    if args.chunk.is_some_and(|kib| kib == 0 || kib > 1024) {
        return Err(Error::new(ErrorKind::Invalid, "a chunk has 1 to 1024 KiB here"));
    }
    if !args.draw.is_empty() {
        return curves::record(&curves::of_rows(&curves::rows_of(&args.draw)?)).map(|()| true);
    }
    os::machine::raise_open_files()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let tools = Tools::new();
    if let Some(cluster) = &args.alone {
        return runtime.block_on(memory::alone(&tools, cluster, args.speed(64))).map(|()| true);
    }
    let mut all = Found::default();
    if !args.json {
        println!("{HEAD}");
    }
    for name in EXPERIMENTS.into_iter().filter(|name| args.only.is_empty() || args.only.iter().any(|only| only == name))
    {
        let run: Boxed<Result<Found>> = Box::pin(experiment(name, args, &tools));
        let found = runtime.block_on(run)?;
        all.rows.extend(found.rows);
        all.charts.extend(found.charts);
    }
    let rows: Vec<_> = all.rows.iter().map(Row::json).collect();
    all.charts.extend(curves::of_rows(&rows));
    if args.json {
        println!("{}", serde_json::json!({ "rows": rows }));
    }
    if args.record {
        curves::record(&all.charts)?;
    }
    Ok(all.rows.iter().all(Row::holds))
}

async fn experiment(name: &str, args: &Args, tools: &Tools) -> Result<Found> {
    match name {
        "limiter" => limiter(args, tools),
        "weak" => weak(args, tools).await,
        "strong" => strong(args, tools).await,
        "one" => one(args, tools).await,
        "buffer" => buffer(args, tools).await,
        "links" | "hot" => links(name, args, tools).await,
        "joins" => joins(args, tools).await,
        "drains" => drains(args, tools).await,
        "memory" => memory(args, tools).await,
        "compression" => compression(args, tools).await,
        other => unreachable!("{other} is no experiment"),
    }
}

impl Args {
    fn sizes(&self, usual: &[usize]) -> Vec<usize> {
        if self.nodes.is_empty() { usual.to_vec() } else { self.nodes.clone() }
    }

    /// Sixteen devices of 80 MB/s, or 64 of 12, are about what two processors carry through loopback with checksums.
    fn speed(&self, devices: usize) -> Speed {
        let usual = match devices {
            0..=16 => 80,
            17..=32 => 20,
            _ => 12,
        };
        let rate = self.rate.unwrap_or(usual) * 1_000_000;
        if self.hdd { Speed::hdd(rate) } else { Speed::ssd(rate) }
    }

    /// A chunk so large that 0.1 ms for each request is below a percent of its time, and so small that a device has a thousand.
    fn chunk(&self, devices: usize) -> usize {
        self.chunk.unwrap_or(if devices <= 16 { 1024 } else { 256 }) << 10
    }

    /// So large chunks, and so many of them on their way unless somebody said another number.
    fn load(&self, chunk: usize, window: usize) -> Load {
        Load { chunk, window: self.window.unwrap_or(window), pulls: self.pulls }
    }

    fn show(&self, rows: &[Row]) {
        if !self.json {
            rows.iter().for_each(|row| println!("{}", row.line()));
        }
    }
}

/// Chunks that a device's rate is worth in so many seconds.
fn chunks(speed: Speed, seconds: f64, chunk: usize) -> u64 {
    ((speed.rate as f64 * seconds / chunk as f64) as u64).max(1)
}

fn limiter(args: &Args, tools: &Tools) -> Result<Found> {
    let mut found = Found::default();
    for devices in [16, 64] {
        let (speed, chunk) = (args.speed(devices), args.chunk(devices));
        let bytes = chunks(speed, args.seconds.unwrap_or(3.0), chunk) * chunk as u64;
        let rows = bare::check(tools, speed, chunk, bytes)?;
        args.show(&rows);
        found.rows.extend(rows);
    }
    Ok(found)
}

/// Pushes and pulls with each of these numbers of devices; `run` says how from their number, their speed and the chunk's bytes.
async fn each_size(
    args: &Args,
    tools: &Tools,
    sizes: &[usize],
    run: impl Fn(usize, Speed, usize) -> Run,
) -> Result<Vec<Row>> {
    let mut found = Vec::new();
    for devices in sizes {
        let rows = run(*devices, args.speed(*devices), args.chunk(*devices)).push_and_pull(tools).await?;
        args.show(&rows);
        found.extend(rows);
    }
    Ok(found)
}

/// As many clients as devices, the same work for each.
async fn weak(args: &Args, tools: &Tools) -> Result<Found> {
    let run = |devices, speed, chunk| Run {
        experiment: "weak scaling",
        devices,
        speed,
        clients: devices,
        load: args.load(chunk, 12),
        each: chunks(speed, args.seconds.unwrap_or(14.0), chunk),
        bar: Some(if devices <= 16 { 0.97 } else { 0.95 }),
    };
    let rows = each_size(args, tools, &args.sizes(&[1, 2, 4, 8, 16, 32, 64]), run).await?;
    Ok(Found { rows, ..Found::default() })
}

/// The same work for all sizes together.
async fn strong(args: &Args, tools: &Tools) -> Result<Found> {
    let sizes = args.sizes(&[1, 2, 4, 8, 16]);
    // One size measured alone has the work that it has among the usual ones.
    let largest = sizes.iter().copied().fold(16, usize::max);
    let run = |devices, speed, chunk| Run {
        experiment: "strong scaling",
        devices,
        speed,
        clients: devices,
        load: args.load(chunk, 12),
        // A thousand chunks a device among the most of them; one device alone has minutes to do.
        each: chunks(speed, args.seconds.unwrap_or(14.0), chunk) * largest as u64 / devices as u64,
        bar: Some(0.97),
    };
    Ok(Found { rows: each_size(args, tools, &sizes, run).await?, ..Found::default() })
}

/// One client and more and more devices.
async fn one(args: &Args, tools: &Tools) -> Result<Found> {
    let run = |devices, speed, chunk| Run {
        experiment: "one client",
        devices,
        speed,
        clients: 1,
        load: args.load(chunk, 12.max(4 * devices)),
        each: chunks(speed, args.seconds.unwrap_or(4.0), chunk) * devices as u64,
        bar: Some(0.95),
    };
    let rows = each_size(args, tools, &args.sizes(&[1, 2, 4, 8, 16]), run).await?;
    let mut found = Found { rows, ..Found::default() };
    for devices in args.sizes(&[1, 2, 4, 8, 16]) {
        let speed = args.speed(devices);
        // A large one: with 16 devices the groups of one and of four columns cost a sixth of a second.
        let pieces = chunks(speed, args.seconds.unwrap_or(8.0), MIB as usize) * devices as u64;
        let rows = files::one_client(tools, devices, speed, pieces, 0.95).await?;
        args.show(&rows);
        found.rows.extend(rows);
    }
    Ok(found)
}

/// Producers and consumers at once; twenty times what the devices hold passes through.
async fn buffer(args: &Args, tools: &Tools) -> Result<Found> {
    let mut found = Found::default();
    for devices in args.sizes(&[4]) {
        let speed = Speed::ssd(args.rate.unwrap_or(300) * 1_000_000);
        let (capacity, chunk) = (128 * MIB, args.chunk(devices));
        let run = Run {
            experiment: "unbounded buffer",
            devices,
            speed,
            clients: devices,
            load: args.load(chunk, 12),
            each: 20 * capacity / chunk as u64,
            bar: None,
        };
        let [push, pull] = run.push_and_pull(tools).await?;
        // As many bytes of each, one after the other.
        let unmixed = 2.0 * push.throughput * push.seconds / (push.seconds + pull.seconds);
        args.show(&[push.clone(), pull.clone()]);
        let buffer = Buffer { run: Run { bar: Some(0.95), ..run }, capacity };
        let (row, backlog) = buffer.both(tools, unmixed).await?;
        args.show(std::slice::from_ref(&row));
        found.charts.push(("unbounded-buffer", curves::backlog(&buffer, &backlog)));
        found.rows.extend([push, pull, row]);
    }
    Ok(found)
}

/// One device of 450 MB/s: what compression gains beside content that nothing makes smaller. The original gained 2.8 and 2.2 times
/// on reads, 1.2 and 1.0 times on writes.
async fn compression(args: &Args, tools: &Tools) -> Result<Found> {
    let speed = Speed::ssd(args.rate.unwrap_or(450) * 1_000_000);
    let mut found = Found::default();
    let (mut plain, mut plain_file) = (None, None);
    for (content, how, bars) in [
        (Content::Noise, Compression::None, [0.0, 0.0]),
        (Content::Zeros, Compression::Lz4, [1.3, 2.8]),
        (Content::Rising, Compression::Lz4, [1.05, 2.2]),
        (Content::Rising, Compression::Zstd, [1.05, 2.2]),
        (Content::Noise, Compression::Lz4, [0.9, 0.9]),
    ] {
        let chunks = chunks(speed, args.seconds.unwrap_or(3.0), 4 * MIB as usize);
        let run = compressed::Run { speed, content, how, chunks, window: args.window.unwrap_or(16) };
        let of = plain.map(|[push, pull]: [f64; 2]| [(push, bars[0]), (pull, bars[1])]);
        let rows = run.push_and_pull(tools, of).await?;
        args.show(&rows);
        plain.get_or_insert([rows[0].throughput, rows[1].throughput]);
        found.rows.extend(rows);
        let of = plain_file.map(|[write, read]: [f64; 2]| [(write, bars[0]), (read, bars[1])]);
        let rows = run.write_and_read(tools, of).await?;
        args.show(&rows);
        plain_file.get_or_insert([rows[0].throughput, rows[1].throughput]);
        found.rows.extend(rows);
    }
    Ok(found)
}

/// Links slower than devices, by as much as a Gbit/s is slower than what Hurricane's lab had behind it: all clients, or one.
async fn links(name: &str, args: &Args, tools: &Tools) -> Result<Found> {
    let mut found = Found::default();
    for devices in args.sizes(&[8]) {
        let (speed, hot) = (args.speed(devices), name == "hot");
        let window = if hot { 32 } else { 12 };
        let links = Links {
            devices,
            speed,
            card: args.card.map_or(speed.rate / 4, |card| card * 1_000_000),
            load: args.load(args.chunk(devices), window),
            seconds: args.seconds.unwrap_or(10.0),
        };
        let rows = match hot {
            true => {
                let rows = links.hot(tools).await?;
                args.show(&rows);
                rows
            }
            false => links.all(tools, |rows| args.show(rows)).await?,
        };
        found.rows.extend(rows);
    }
    Ok(found)
}

/// A node joins, and one is drained, while clients push.
async fn joins(args: &Args, tools: &Tools) -> Result<Found> {
    let mut found = Found::default();
    for devices in args.sizes(&[8]) {
        let speed = args.speed(devices);
        let load = args.load(args.chunk(devices), 12);
        let seen = Joins { devices, speed, load, seconds: args.seconds.unwrap_or(12.0) }.run(tools).await?;
        args.show(&seen.rows);
        found.charts.push(("joins", curves::joining(&seen)));
        found.rows.extend(seen.rows);
    }
    Ok(found)
}

/// A node with files is drained, with nobody else there and beside a load.
async fn drains(args: &Args, tools: &Tools) -> Result<Found> {
    let mut found = Found::default();
    for devices in args.sizes(&[8]) {
        let (speed, load) = (args.speed(devices), args.load(args.chunk(devices), 12));
        let seconds = args.seconds.unwrap_or(6.0);
        for (file, loaded) in [(128 * MIB, false), (2 * MIB, false), (128 * MIB, true)] {
            let rows = Drains { devices, speed, load, seconds, file, loaded }.run(tools).await?;
            args.show(&rows);
            found.rows.extend(rows);
        }
    }
    Ok(found)
}

/// One node of many in a process of its own.
async fn memory(args: &Args, tools: &Tools) -> Result<Found> {
    let mut found = Found::default();
    for devices in args.sizes(&[64]) {
        let (speed, chunk) = (args.speed(devices), args.chunk(devices));
        let load = args.load(chunk, 12);
        let each = chunks(speed, args.seconds.unwrap_or(14.0), chunk);
        let row = Memory { devices, speed, load, each }.run(tools).await?;
        args.show(std::slice::from_ref(&row));
        found.rows.push(row);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::bags::{Buffer, Run};
    use super::compressed::{Content, Run as Compressed};
    use super::ground::Tools;
    use super::limiter::Speed;
    use super::load::Load;
    use base::policy::Compression;
    use base::unit::MIB;

    fn run() -> Run {
        let (speed, load) = (Speed::ssd(2_000_000_000), Load { chunk: 64 << 10, window: 4, pulls: None });
        Run { experiment: "smoke", devices: 2, speed, clients: 2, load, each: 40, bar: None }
    }

    /// Clients push to limited devices and pull everything back, and the rows say how much it was.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn pushes_and_pulls() {
        let [push, pull] = run().push_and_pull(&Tools::new()).await.expect("it runs");
        assert_eq!((push.each, pull.each), (40, 40));
        assert!(push.throughput > 0.0 && pull.throughput > 0.0);
    }

    /// A client writes a file to limited devices and reads it.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn writes_and_reads() {
        let speed = Speed::ssd(2_000_000_000);
        let [write, read] = super::files::one_client(&Tools::new(), 2, speed, 20, 0.0).await.expect("it runs");
        assert!(write.throughput > 0.0 && read.throughput > 0.0);
    }

    /// With links slower than devices clients push and pull as they like, all of them and one alone.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn links_are_slow() {
        let (speed, load) = (Speed::ssd(200_000_000), Load { chunk: 64 << 10, window: 8, pulls: None });
        let links = super::links::Links { devices: 2, speed, card: 50_000_000, load, seconds: 0.05 };
        assert_eq!(links.all(&Tools::new(), |_| ()).await.expect("it runs").len(), 6);
        assert_eq!(links.hot(&Tools::new()).await.expect("it runs").len(), 2);
    }

    /// A node joins and one is drained while clients push, and no chunk is lost.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_node_joins() {
        let (speed, load) = (Speed::ssd(100_000_000), Load { chunk: 64 << 10, window: 4, pulls: None });
        let seen = super::joins::Joins { devices: 2, speed, load, seconds: 0.5 }.run(&Tools::new()).await;
        assert_eq!(seen.expect("it runs").rows.len(), 2);
    }

    /// A node with files is drained with nobody else there and beside a load, and all bytes are what they were.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_node_is_drained() {
        // The drain is looked at each 50 ms and forgotten when it is over: 20 MB at 25 MB/s are 16 looks.
        let (speed, load) = (Speed::ssd(25_000_000), Load { chunk: 64 << 10, window: 4, pulls: None });
        let drains = super::drains::Drains { devices: 3, speed, load, seconds: 0.8, file: 4 * MIB, loaded: false };
        let mut rows = drains.run(&Tools::new()).await.expect("it runs");
        let drains = super::drains::Drains { loaded: true, ..drains };
        rows.extend(drains.run(&Tools::new()).await.expect("it runs"));
        assert_eq!(rows.len(), 3);
        assert!(rows.iter().all(|row| row.throughput > 0.0), "{rows:?}");
    }

    /// What a client pushes or writes compressed comes back, and less of it is stored.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn compresses() {
        let speed = Speed::ssd(2_000_000_000);
        let run = Compressed { speed, content: Content::Rising, how: Compression::Lz4, chunks: 10, window: 4 };
        let [push, pull] = run.push_and_pull(&Tools::new(), None).await.expect("it runs");
        assert!(push.throughput > 0.0 && pull.throughput > 0.0);
        assert!(push.note.contains("lz4: 0.4"), "{}", push.note);
        let [write, read] = run.write_and_read(&Tools::new(), None).await.expect("it runs");
        assert!(write.throughput > 0.0 && read.throughput > 0.0);
        assert!(write.note.contains("lz4: 0.4"), "{}", write.note);
    }

    /// More than the devices hold passes through them while it is consumed.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn passes_through() {
        let run = Run { load: Load { chunk: MIB as usize, window: 4, pulls: None }, each: 100, ..run() };
        let buffer = Buffer { run, capacity: 64 * MIB };
        let (row, _) = buffer.both(&Tools::new(), 1.0).await.expect("it runs");
        assert_eq!(row.each, 100);
    }
}

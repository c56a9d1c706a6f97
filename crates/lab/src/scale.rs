//! `cargo x lab scale`: the evaluation of Hurricane, with many nodes on one machine, each with a device as slow as it is told.

mod bags;
mod bare;
mod compressed;
mod files;
mod ground;
mod kept;
mod limiter;
mod load;
mod plot;
mod row;
mod world;

use bags::{Buffer, Run};
use base::error::{Error, ErrorKind, Result};
use base::policy::Compression;
use base::unit::MIB;
use compressed::Content;
use ground::Tools;
use limiter::Speed;
use load::Load;
use plot::{Chart, Line};
use row::{HEAD, Row};
use std::path::Path;

/// What to measure.
#[derive(clap::Args)]
pub struct Args {
    /// Experiments, by their names: limiter, weak, strong, one, buffer, compression; all of them without this
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Sizes, in nodes with one device each, instead of the usual ones
    #[arg(long, value_delimiter = ',')]
    nodes: Vec<usize>,
    /// What each device can do, in MB/s, instead of 80 (15 from 32 devices on)
    #[arg(long)]
    rate: Option<u64>,
    /// How long each measurement is to take, if the devices are the bound, instead of the usual times
    #[arg(long)]
    seconds: Option<f64>,
    /// KiB of a chunk, at most 1024, instead of 1024 (256 from 32 devices on)
    #[arg(long)]
    chunk: Option<usize>,
    /// Chunks that each client has on their way, instead of 16 (four a device if it is alone)
    #[arg(long)]
    window: Option<usize>,
    /// Disks with a head: 8 ms a seek, instead of 0.1 ms a request
    #[arg(long)]
    hdd: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Draw the curves into docs/pictures
    #[arg(long)]
    record: bool,
}

/// The experiments, in the order in which they are run.
const EXPERIMENTS: [&str; 6] = ["limiter", "weak", "strong", "one", "buffer", "compression"];

/// Where pictures lie, from the root of the tree.
const PICTURES: &str = "docs/pictures";

/// What an experiment found: rows, and pictures by their names.
#[derive(Default)]
struct Found {
    rows: Vec<Row>,
    charts: Vec<(&'static str, Chart)>,
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
    os::machine::raise_open_files()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let tools = Tools::new();
    let mut all = Found::default();
    if !args.json {
        println!("{HEAD}");
    }
    for name in EXPERIMENTS.into_iter().filter(|name| args.only.is_empty() || args.only.iter().any(|only| only == name))
    {
        let found = runtime.block_on(experiment(name, args, &tools))?;
        all.rows.extend(found.rows);
        all.charts.extend(found.charts);
    }
    if args.json {
        println!("{}", serde_json::json!({ "rows": all.rows.iter().map(Row::json).collect::<Vec<_>>() }));
    }
    if args.record {
        std::fs::create_dir_all(PICTURES)?;
        for (name, chart) in &all.charts {
            os::file::replace(&Path::new(PICTURES).join(format!("{name}.svg")), chart.svg().as_bytes())?;
        }
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
        "compression" => compression(args, tools).await,
        other => unreachable!("{other} is no experiment"),
    }
}

impl Args {
    fn sizes(&self, usual: &[usize]) -> Vec<usize> {
        if self.nodes.is_empty() { usual.to_vec() } else { self.nodes.clone() }
    }

    /// Sixteen devices of 80 MB/s, or more of 15, are about what two processors carry through loopback with checksums.
    fn speed(&self, devices: usize) -> Speed {
        let rate = self.rate.unwrap_or(if devices <= 16 { 80 } else { 15 }) * 1_000_000;
        if self.hdd { Speed::hdd(rate) } else { Speed::ssd(rate) }
    }

    /// A chunk so large that 0.1 ms for each request is below a percent of its time, and so small that a device has a thousand.
    fn chunk(&self, devices: usize) -> usize {
        self.chunk.unwrap_or(if devices <= 16 { 1024 } else { 256 }) << 10
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
        load: Load { chunk, window: args.window.unwrap_or(16) },
        each: chunks(speed, args.seconds.unwrap_or(14.0), chunk),
        bar: Some(if devices <= 16 { 0.97 } else { 0.95 }),
    };
    let sizes = args.sizes(&[1, 2, 4, 8, 16, 32, 64]);
    let mut found = Found { rows: each_size(args, tools, &sizes, run).await?, ..Found::default() };
    let original = Line::dashed(
        "Hurricane, read",
        vec![(1.0, 0.99), (2.0, 0.95), (4.0, 0.95), (8.0, 0.95), (16.0, 0.95), (64.0, 0.87)],
    );
    let mut chart = Chart {
        title: "Weak scaling of bags: as many clients as nodes".to_string(),
        x: "nodes, and as many clients".to_string(),
        y: "throughput, part of the devices' sum".to_string(),
        doubling: true,
        floor: 0.7,
        lines: lines(&found.rows, Row::ratio),
    };
    chart.lines.push(original);
    found.charts.push(("weak-scaling", chart));
    Ok(found)
}

/// The same work for all sizes together.
async fn strong(args: &Args, tools: &Tools) -> Result<Found> {
    let sizes = args.sizes(&[1, 2, 4, 8, 16]);
    let largest = sizes.iter().copied().max().unwrap_or(1);
    let run = |devices, speed, chunk| Run {
        experiment: "strong scaling",
        devices,
        speed,
        clients: devices,
        load: Load { chunk, window: args.window.unwrap_or(16) },
        each: chunks(speed, args.seconds.unwrap_or(3.2), chunk) * largest as u64 / devices as u64,
        bar: Some(0.97),
    };
    let mut found = Found { rows: each_size(args, tools, &sizes, run).await?, ..Found::default() };
    found
        .charts
        .push(("strong-scaling", throughput("Strong scaling of bags: the same work for all sizes", &found.rows)));
    Ok(found)
}

/// One client and more and more devices.
async fn one(args: &Args, tools: &Tools) -> Result<Found> {
    let run = |devices, speed, chunk| Run {
        experiment: "one client",
        devices,
        speed,
        clients: 1,
        load: Load { chunk, window: args.window.unwrap_or(16.max(4 * devices)) },
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
    found.charts.push(("one-client", throughput("One client: a bag, and a file", &found.rows)));
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
            load: Load { chunk, window: args.window.unwrap_or(16) },
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
        found.charts.push(("unbounded-buffer", backlog_chart(&buffer, &backlog)));
        found.rows.extend([push, pull, row]);
    }
    Ok(found)
}

/// One device of 450 MB/s: what compression gains beside content that nothing makes smaller. The original gained 2.8 and 2.2 times
/// on reads, 1.2 and 1.0 times on writes.
async fn compression(args: &Args, tools: &Tools) -> Result<Found> {
    let speed = Speed::ssd(args.rate.unwrap_or(450) * 1_000_000);
    let mut found = Found::default();
    let mut plain = None;
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
    }
    Ok(found)
}

fn backlog_chart(buffer: &Buffer, backlog: &[(f64, f64)]) -> Chart {
    let points: Vec<(f64, f64)> = backlog.iter().map(|(second, bytes)| (*second, bytes / 1e6)).collect();
    let (end, capacity) =
        (points.last().map_or(1.0, |point| point.0), buffer.capacity as f64 / 1e6 * buffer.run.devices as f64);
    Chart {
        title: "Unbounded buffer: producers and consumers at once".to_string(),
        x: "seconds".to_string(),
        y: "pushed and not pulled, MB".to_string(),
        doubling: false,
        floor: 0.0,
        lines: vec![
            Line::new("backlog", points),
            Line::dashed("what the devices hold", vec![(0.0, capacity), (end, capacity)]),
        ],
    }
}

/// Throughput by devices, beside their sum.
fn throughput(title: &str, rows: &[Row]) -> Chart {
    let mut lines = lines(rows, |row| row.throughput / 1e6);
    let sum = rows.iter().filter(|row| row.what == "push").map(|row| (row.devices as f64, row.of / 1e6)).collect();
    lines.push(Line::dashed("the devices' sum", sum));
    Chart { title: title.to_string(), x: "nodes".to_string(), y: "MB/s".to_string(), doubling: true, floor: 0.0, lines }
}

/// A line for each thing that was done.
fn lines(rows: &[Row], value: impl Fn(&Row) -> f64) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for row in rows {
        let point = (row.devices as f64, value(row));
        match lines.iter_mut().find(|line| line.name == row.what) {
            Some(line) => line.points.push(point),
            None => lines.push(Line::new(row.what, vec![point])),
        }
    }
    lines
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
        let (speed, load) = (Speed::ssd(2_000_000_000), Load { chunk: 64 << 10, window: 4 });
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

    /// What a client pushes compressed comes back, and less of it is stored.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn compresses() {
        let speed = Speed::ssd(2_000_000_000);
        let run = Compressed { speed, content: Content::Rising, how: Compression::Lz4, chunks: 10, window: 4 };
        let [push, pull] = run.push_and_pull(&Tools::new(), None).await.expect("it runs");
        assert!(push.throughput > 0.0 && pull.throughput > 0.0);
        assert!(push.note.contains("lz4: 0.4"), "{}", push.note);
    }

    /// More than the devices hold passes through them while it is consumed.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn passes_through() {
        let run = Run { load: Load { chunk: MIB as usize, window: 4 }, each: 100, ..run() };
        let buffer = Buffer { run, capacity: 64 * MIB };
        let (row, _) = buffer.both(&Tools::new(), 1.0).await.expect("it runs");
        assert_eq!(row.each, 100);
    }
}

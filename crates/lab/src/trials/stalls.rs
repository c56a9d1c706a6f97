//! `cargo x lab stalls`: writers flush a few KiB again and again to files of three copies, and a node goes away. For how long the writer that waits longest
//! has nothing acknowledged, and whether all that was acknowledged is there.

use super::keepers::{How, Keepers, PAUSE, at};
use super::server::scratch;
use base::env::Clock;
use base::error::{Error, ErrorKind, Result};
use base::unit::Time;
use bytes::Bytes;
use client::{Client, CreateOptions, Lacks};
use os::clock::SystemClock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// What to measure.
#[derive(clap::Args)]
pub struct Args {
    /// How often a node goes away
    #[arg(long, default_value_t = 20)]
    times: usize,
    /// Writers at once
    #[arg(long, default_value_t = 1)]
    writers: usize,
    /// How it goes
    #[arg(long, value_enum, default_value_t = How::Killed)]
    how: How,
    /// The node that leads the keepers goes away, too, and not only others
    #[arg(long)]
    leader: bool,
}

/// So long is written before the node goes, and after that.
const BEFORE: Duration = Duration::from_millis(1500);
const AFTER: Duration = Duration::from_secs(6);

/// What is flushed at once, in bytes: a line or two of a log.
const FLUSHED: usize = 4096;

/// Copies that are missing are made after so long.
const MADE_WAIT: Duration = Duration::from_secs(120);

/// Nodes beside the keepers: where the third copy goes when one is away.
const OTHERS: usize = 1;

/// What a writer did.
struct Written {
    path: String,
    /// Flushes that were acknowledged.
    count: usize,
    /// The longest time without one that ended after the node went.
    gap: Duration,
}

/// One time that a node goes, as its writers have it.
struct Round {
    clock: SystemClock,
    ends: AtomicBool,
}

fn line(number: usize) -> Bytes {
    let mut bytes = format!("{number} ").into_bytes();
    bytes.resize(FLUSHED, b'.');
    bytes.into()
}

/// Flushes line after line until all end. An error is one that a program would have seen.
async fn write(round: Arc<Round>, client: Client, path: String, gone: Time) -> Result<Written> {
    let mut writer = client.create(&path, CreateOptions::default()).await?;
    let (mut count, mut gap, mut last) = (0, Duration::ZERO, round.clock.now());
    while !round.ends.load(Ordering::Relaxed) {
        writer.write(line(count)).await?;
        writer.hflush().await?;
        let now = round.clock.now();
        if now >= gone {
            gap = gap.max(now.since(last));
        }
        (last, count) = (now, count + 1);
        sleep(PAUSE).await;
    }
    writer.close().await?;
    Ok(Written { path, count, gap })
}

/// Whether each acknowledged line is there, and nothing else.
async fn is_whole(client: &Client, written: &Written) -> Result<bool> {
    let read = client.read_small(&written.path).await?;
    let is_right = read.chunks(FLUSHED).enumerate().all(|(number, part)| *part == line(number)[..]);
    Ok(read.len() == written.count * FLUSHED && is_right)
}

async fn all_made(client: &Client) -> Result<()> {
    let clock = SystemClock::new();
    let began = clock.now();
    while clock.now().since(began) < MADE_WAIT {
        let Lacks { one_left, fewer, none_left, .. } = client.devices().await?.lacks.unwrap_or_default();
        if one_left + fewer + none_left == 0 {
            return Ok(());
        }
        sleep(PAUSE * 10).await;
    }
    Err(Error::new(ErrorKind::Unreachable, format!("copies are missing after {} s", MADE_WAIT.as_secs())))
}

/// Measures. False: something that was acknowledged is not there.
pub fn run(args: &Args) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(measure(args))
}

async fn measure(args: &Args) -> Result<bool> {
    let scratch = scratch("stalls")?;
    let mut keepers = Keepers::start(scratch.path(), OTHERS)?;
    let client = keepers.client().await?;
    let (mut gaps, mut lost) = (Vec::new(), 0);
    for time in 0..args.times {
        let leader = keepers.leader(&client).await?;
        let mut goes = time % keepers.count();
        if goes == leader && !args.leader {
            goes = (goes + 1) % keepers.count();
        }
        let directory = format!("/{time}");
        client.make_directory(&directory, false).await?;
        let round = Arc::new(Round { clock: SystemClock::new(), ends: AtomicBool::new(false) });
        let gone = round.clock.now().after(BEFORE);
        let mut writers = JoinSet::new();
        for number in 0..args.writers {
            writers.spawn(write(round.clone(), client.clone(), format!("{directory}/{number}"), gone));
        }
        sleep(gone.since(round.clock.now())).await;
        keepers.goes(goes, args.how).await?;
        sleep(AFTER).await;
        round.ends.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        while let Some(joined) = writers.join_next().await {
            all.push(joined.map_err(|error| Error::new(ErrorKind::Io, error.to_string()))??);
        }
        // What is there now is there without that node.
        for written in &all {
            if !is_whole(&client, written).await? {
                println!("{} has not what was acknowledged", written.path);
                lost += 1;
            }
        }
        if args.how != How::Paused {
            keepers.start_again(goes)?;
        }
        let longest = all.iter().map(|written| written.gap).max().unwrap_or_default();
        let flushes: usize = all.iter().map(|written| written.count).sum();
        println!("time {time}: {flushes} flushes, a writer waited {:.2} s at most", longest.as_secs_f64());
        gaps.push(longest);
        keepers.leader(&client).await?;
        all_made(&client).await?;
    }
    gaps.sort_unstable();
    println!(
        "a node {:?} {} times under {} writers: the longest wait {:.2} s in the middle, {:.2} s at the 99th of 100, {:.2} s at most; {lost} lost",
        args.how,
        gaps.len(),
        args.writers,
        at(&gaps, 50),
        at(&gaps, 99),
        at(&gaps, 100)
    );
    Ok(lost == 0)
}

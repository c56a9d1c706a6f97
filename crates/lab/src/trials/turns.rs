//! `cargo x lab turns`: three processes keep the metadata together, and whoever leads goes away again and again, while a client makes
//! directories one after the other. For how long none is acknowledged, and whether all that were are there.

use super::keepers::{How, Keepers, PAUSE, at};
use super::server::scratch;
use base::env::Clock;
use base::error::{Error, ErrorKind, Result};
use base::unit::Time;
use client::Client;
use os::clock::SystemClock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::sleep;

/// What to measure.
#[derive(clap::Args)]
pub struct Args {
    /// How often whoever leads goes away
    #[arg(long, default_value_t = 20)]
    turns: usize,
    /// How it goes
    #[arg(long, value_enum, default_value_t = How::Killed)]
    how: How,
}

/// So long directories are made before whoever leads goes, and after that.
const BEFORE: Duration = Duration::from_millis(500);
const AFTER: Duration = Duration::from_secs(4);

/// What a maker did.
struct Made {
    clock: SystemClock,
    /// When each directory was acknowledged.
    at: Mutex<Vec<Time>>,
    ends: AtomicBool,
}

impl Made {
    /// Makes directories below one until it ends, and says when each was acknowledged.
    async fn run(self: Arc<Made>, client: Client, below: String) -> Result<()> {
        client.make_directory(&below, false).await?;
        for number in 0.. {
            if self.ends.load(Ordering::Relaxed) {
                break;
            }
            client.make_directory(&format!("{below}/{number}"), false).await?;
            self.at.lock().unwrap_or_else(PoisonError::into_inner).push(self.clock.now());
            sleep(PAUSE).await;
        }
        Ok(())
    }

    /// The longest time without one after this moment, and how many there were.
    fn gap(&self, after: Time) -> (Duration, usize) {
        let at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let gaps = at.windows(2).filter(|pair| pair[1] >= after).map(|pair| pair[1].since(pair[0]));
        (gaps.max().unwrap_or(AFTER), at.len())
    }
}

/// Measures. False: something that was acknowledged is not there.
pub fn run(args: &Args) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(measure(args))
}

async fn measure(args: &Args) -> Result<bool> {
    let scratch = scratch("turns")?;
    let mut keepers = Keepers::start(scratch.path(), 0)?;
    let client = keepers.client().await?;
    let (mut gaps, mut lost) = (Vec::new(), 0);
    for turn in 0..args.turns {
        let leader = keepers.leader(&client).await?;
        let (made, below) = (
            Arc::new(Made { clock: SystemClock::new(), at: Mutex::default(), ends: AtomicBool::new(false) }),
            format!("/turn{turn}"),
        );
        let making = tokio::spawn(made.clone().run(client.clone(), below.clone()));
        sleep(BEFORE).await;
        let gone = made.clock.now();
        keepers.goes(leader, args.how).await?;
        sleep(AFTER).await;
        made.ends.store(true, Ordering::Relaxed);
        making.await.map_err(|error| Error::new(ErrorKind::Io, error.to_string()))??;
        if args.how != How::Paused {
            keepers.start_again(leader)?;
        }
        let (gap, count) = made.gap(gone);
        let mut listing = client.list_all(&below);
        let mut there = 0;
        while listing.next().await?.is_some() {
            there += 1;
        }
        // One may have been made and its answer still be on its way when it ended; none is missing.
        lost += count.saturating_sub(there);
        println!("turn {turn}: {count} directories, none acknowledged for {:.2} s", gap.as_secs_f64());
        gaps.push(gap);
    }
    gaps.sort_unstable();
    println!(
        "whoever leads {:?}, {} times: none acknowledged for {:.2} s in the middle, {:.2} s at the 99th of 100, {:.2} s at most; {lost} lost",
        args.how,
        gaps.len(),
        at(&gaps, 50),
        at(&gaps, 99),
        at(&gaps, 100)
    );
    Ok(lost == 0)
}

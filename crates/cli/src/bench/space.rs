//! The row about space: how soon it comes back after nine tenths of files and bag chunks of several sizes were deleted.

use super::ground::{Ground, at};
use super::payload::Payload;
use super::row::{Bar, Row};
use super::sequential::wrong;
use crate::child::Server;
use crate::context::Context;
use base::error::Result;
use base::unit::{GIB, KIB, MIB, show_bytes};
use client::{Bag, Client, ConsumerOptions, CreateOptions, ProducerOptions};
use harness::stopwatch::Stopwatch;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

/// What is stored again and again, one behind the other, so that every segment holds of everything.
const ITEMS: [Item; 7] = [
    Item::File(16 * KIB),
    Item::Chunk(100 * KIB),
    Item::File(MIB),
    Item::Chunk(4 * MIB),
    Item::Chunk(210 * KIB),
    Item::File(24 * MIB),
    Item::File(700 * KIB),
];

/// One turn of ten stays.
const TURNS: u64 = 10;

/// Space is looked at so often, and no longer than this.
const LOOK: Duration = Duration::from_millis(50);
const LOOK_MAX: Duration = Duration::from_secs(30);

/// Something stored, with its bytes.
#[derive(Clone, Copy, Debug)]
enum Item {
    File(u64),
    Chunk(u64),
}

/// The bags of a round: the chunks of one stay.
struct Bags {
    stay: Bag,
    go: Bag,
}

/// Bytes taken, as the store says and as the file system counts them.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    used: u64,
    blocks: u64,
}

impl Taken {
    fn most(self) -> u64 {
        self.used.max(self.blocks)
    }
}

/// `space`: seconds from the answer to the last delete until the store uses at most 1.1 times what stays and the sixteenth
/// of its capacity that is surely in reserve, as `df` says and as its files' blocks do.
pub async fn space(ground: &Ground, context: &Context) -> Result<Row> {
    let mut row = Row::new("space", "s");
    // On a small device the files that are there in any case are more than that.
    let (bar, patience) = if ground.quick { (Bar::Shown, ground.time) } else { (Bar::AtMost(10.0), LOOK_MAX) };
    row.bar = bar;
    let directory = ground.scratch.join("space");
    let capacity = 2 * ground.size.max(GIB);
    let server = Server::start(&[format!("{directory}:ssd:{capacity}")])?;
    let client = at(context, server.address()).connect("bench").await?;
    let payload = Payload::new(3001);
    for round in 0..ground.rounds {
        let (stays, goes) = store(&client, &payload, round, ground.size).await?;
        let before = taken(&client, &directory).await?;
        delete(&client, round, ground.size).await?;
        let watch = Stopwatch::start();
        let most = stays + stays / 10 + capacity / 16;
        let mut after = taken(&client, &directory).await?;
        while after.most() > most && watch.elapsed() < patience {
            tokio::time::sleep(LOOK).await;
            after = taken(&client, &directory).await?;
        }
        row.values.push(watch.seconds());
        row.note = format!(
            "{} of {} deleted on a device of {}; df went from {} to {}, the files' blocks from {} to {}: {:.2} of the {} allowed \
             (1.1 times {} and a sixteenth of the device)",
            show_bytes(goes),
            show_bytes(stays + goes),
            show_bytes(capacity),
            show_bytes(before.used),
            show_bytes(after.used),
            show_bytes(before.blocks),
            show_bytes(after.blocks),
            after.most() as f64 / most as f64,
            show_bytes(most),
            show_bytes(stays),
        );
        check_what_stayed(&client, &payload, round, ground.size).await?;
    }
    drop(server);
    std::fs::remove_dir_all(&directory)?;
    Ok(row)
}

fn stays(turn: u64) -> bool {
    turn % TURNS == 3
}

/// Turns through `ITEMS` that store about so many bytes: whole tens.
fn turns(size: u64) -> u64 {
    let bytes: u64 = ITEMS.iter().map(|item| item.bytes()).sum();
    (size / bytes / TURNS).max(1) * TURNS
}

impl Item {
    fn bytes(self) -> u64 {
        match self {
            Item::File(bytes) | Item::Chunk(bytes) => bytes,
        }
    }
}

fn path(round: usize, turn: u64, place: usize) -> String {
    format!("/space-{round}/{turn}-{place}")
}

fn bag_names(round: usize) -> [String; 2] {
    [format!("space-stay-{round}"), format!("space-go-{round}")]
}

/// Stores files and chunks: bytes of those that will stay and of those that will go.
async fn store(client: &Client, payload: &Payload, round: usize, size: u64) -> Result<(u64, u64)> {
    client.make_directory(&format!("/space-{round}"), false).await?;
    let [stay, go] = bag_names(round);
    let bags = Bags { stay: client.bag_create(&stay, false).await?, go: client.bag_create(&go, false).await? };
    let options = ProducerOptions::default();
    let (stay, go) = (bags.stay.producer(options), bags.go.producer(options));
    let (mut kept, mut gone) = (0, 0);
    for turn in 0..turns(size) {
        for (place, item) in ITEMS.into_iter().enumerate() {
            let sum = if stays(turn) { &mut kept } else { &mut gone };
            *sum += item.bytes();
            match item {
                Item::File(bytes) => write_file(client, &path(round, turn, place), payload, bytes).await?,
                Item::Chunk(bytes) => {
                    let producer = if stays(turn) { &stay } else { &go };
                    producer.push(payload.chunk(turn, bytes as usize)).await?;
                }
            }
        }
    }
    stay.flush().await?;
    go.flush().await?;
    Ok((kept, gone))
}

async fn write_file(client: &Client, path: &str, payload: &Payload, bytes: u64) -> Result<()> {
    let mut file = client.create(path, CreateOptions::default()).await?;
    let mut left = bytes;
    while left > 0 {
        let piece = left.min(MIB);
        file.write(payload.chunk(left, piece as usize)).await?;
        left -= piece;
    }
    file.close().await.map(drop)
}

/// Deletes nine turns of ten: their files; of their chunks a half is consumed, the rest goes with the bag.
async fn delete(client: &Client, round: usize, size: u64) -> Result<()> {
    let [_, go] = bag_names(round);
    let mut consumer = client.bag(&go).await?.consumer(ConsumerOptions::default());
    let chunks = ITEMS.iter().filter(|item| matches!(item, Item::Chunk(_))).count() as u64;
    for _ in 0..turns(size) * chunks / 2 {
        let Some(chunk) = consumer.pull().await? else { return Err(wrong("a bag that is not sealed ended")) };
        chunk.acknowledge();
    }
    if let Some(refusal) = consumer.flush().await.refused.first() {
        return Err(refusal.error.clone().during("acknowledge"));
    }
    client.bag_delete(&go).await?;
    for turn in (0..turns(size)).filter(|turn| !stays(*turn)) {
        for (place, item) in ITEMS.into_iter().enumerate() {
            if matches!(item, Item::File(_)) {
                client.delete(&path(round, turn, place), false).await?;
            }
        }
    }
    Ok(())
}

/// What stayed is there with its own bytes, and goes now.
async fn check_what_stayed(client: &Client, payload: &Payload, round: usize, size: u64) -> Result<()> {
    for turn in (0..turns(size)).filter(|turn| stays(*turn)) {
        for (place, item) in ITEMS.into_iter().enumerate() {
            let Item::File(bytes) = item else { continue };
            let mut stream = client.open(&path(round, turn, place)).await?.stream(0);
            let mut found = Vec::with_capacity(bytes as usize);
            while let Some(piece) = stream.next().await? {
                found.extend_from_slice(&piece);
            }
            let pieces = found.chunks(MIB as usize).enumerate();
            let right = |(place, piece): (usize, &[u8])| {
                payload.chunk(bytes.saturating_sub(place as u64 * MIB), piece.len()) == *piece
            };
            if found.len() as u64 != bytes || !pieces.into_iter().all(right) {
                return Err(wrong("a file that was not deleted has other bytes now"));
            }
        }
    }
    let [stay, _] = bag_names(round);
    let pushed = turns(size) / TURNS * ITEMS.iter().filter(|item| matches!(item, Item::Chunk(_))).count() as u64;
    let info = client.bag_stat(&stay).await?;
    if info.pushed != pushed || info.acknowledged != 0 {
        return Err(wrong("a bag that was not consumed has lost chunks"));
    }
    client.delete(&format!("/space-{round}"), true).await?;
    client.bag_delete(&stay).await
}

async fn taken(client: &Client, directory: &str) -> Result<Taken> {
    let answer = client.devices().await?;
    let used = answer.devices.iter().fold(0, |sum, device| device.used.saturating_add(sum));
    Ok(Taken { used, blocks: blocks(directory)? })
}

/// Bytes of the blocks that the file system keeps for everything under this directory.
fn blocks(directory: &str) -> Result<u64> {
    let mut open = vec![PathBuf::from(directory)];
    let mut bytes = 0;
    while let Some(directory) = open.pop() {
        for path in os::file::read_directory(&directory)? {
            match os::file::metadata(&path) {
                Ok(about) if about.is_dir() => open.push(path),
                Ok(about) => bytes += about.blocks() * 512,
                // Removed meanwhile.
                Err(_) => {}
            }
        }
    }
    Ok(bytes)
}

//! Rows about large transfers: a bag pushed and pulled, a file written and read, cold and hot.

use super::ground::{CHUNK, Ground, Spent};
use super::loopback::HotFile;
use super::payload::Payload;
use super::raw::Direction;
use super::row::{Bar, Moved, Row};
use base::error::{Error, ErrorKind, Result};
use base::unit::GIB;
use client::{Client, ConsumerOptions, CreateOptions, ProducerOptions, ReadOptions};

/// Bytes of one chunk, as the payload counts.
const SIZE: usize = CHUNK as usize;

/// How cold reads are made cold.
const COLD: &str = "cold: the kernel was made to forget the server's files (posix_fadvise DONTNEED), and what is read is not kept there";

/// Speeds are shown in MB/s, as disks are sold.
const MEGA: f64 = 1e6;

/// `bag_push`, `bag_pull` and `cpu_push`: the same chunks pushed synced by one producer, then pulled cold and acknowledged.
/// Raw runs only if `beside_raw`.
pub async fn bags(ground: &mut Ground, beside_raw: bool) -> Result<[Row; 3]> {
    let mut push = large_row(ground, "bag_push", "written and synced");
    let mut pull = large_row(ground, "bag_pull", "read, cold");
    let mut processor = Row::new("cpu_push", "s/GiB");
    processor.bar = Bar::AboveFloorAtMost(0.08);
    for round in 0..ground.rounds {
        let payload = Payload::new(round as u64 + 1);
        let name = format!("bench-{round}");
        ground.settle().await?;
        let gibibytes = ground.size as f64 / GIB as f64;
        // Before the raw write: it removes its file, and the raw read needs the one of the raw write.
        processor.floor.push(ground.raw.bare_push(ground.size)? / gibibytes);
        if beside_raw {
            push.floor.push(ground.raw.bare_stream_in(ground.size)? / MEGA);
            push.raw.push(ground.raw.sequential(Direction::Write, ground.size)? / MEGA);
        }
        let client = ground.connect().await?;
        let bag = client.bag_create(&name, false).await?;
        let since = ground.since()?;
        push_all(&bag, &payload, ground.size).await?;
        let spent = ground.spent(&since)?;
        push.values.push(ground.size as f64 / spent.seconds / MEGA);
        push.moved.push(spent.wrote(ground.size));
        processor.values.push((spent.client + spent.server) / gibibytes);
        processor.note = format!(
            "{:.2} s in the client and {:.2} s in the server for a GiB, at {:.0} MB/s (last round); checksums included",
            spent.client / gibibytes,
            spent.server / gibibytes,
            ground.size as f64 / spent.seconds / MEGA
        );
        bag.seal().await?;
        ground.forget_cache().await?;
        if beside_raw {
            pull.raw.push(ground.raw.sequential(Direction::Read, ground.size)? / MEGA);
            pull.floor.push(ground.raw.bare_stream_out(ground.size)? / MEGA);
            ground.raw.clean()?;
        }
        let since = ground.since()?;
        pull_all(&bag, &payload, ground.size).await?;
        let spent = ground.spent(&since)?;
        pull.values.push(ground.size as f64 / spent.seconds / MEGA);
        pull.moved.push(Moved { payload: ground.size, kernel: spent.read });
        pull.note = format!("{COLD}; {}", spent.processors());
        client.bag_delete(&name).await?;
        ground.given_back(&client).await?;
    }
    Ok([push, pull, processor])
}

/// `file_write` and `file_read`: one file written and closed, then read cold from front to back.
pub async fn files(ground: &mut Ground) -> Result<[Row; 2]> {
    let mut write = large_row(ground, "file_write", "written and synced");
    let mut read = large_row(ground, "file_read", "read, cold");
    for round in 0..ground.rounds {
        let payload = Payload::new(round as u64 + 101);
        let path = format!("/bench-file-{round}");
        ground.settle().await?;
        write.floor.push(ground.raw.bare_stream_in(ground.size)? / MEGA);
        write.raw.push(ground.raw.sequential(Direction::Write, ground.size)? / MEGA);
        let client = ground.connect().await?;
        let spent = write_file(ground, &client, &path, &payload).await?;
        write.values.push(ground.size as f64 / spent.seconds / MEGA);
        write.moved.push(spent.wrote(ground.size));
        write.note = spent.processors();
        ground.forget_cache().await?;
        read.raw.push(ground.raw.sequential(Direction::Read, ground.size)? / MEGA);
        read.floor.push(ground.raw.bare_stream_out(ground.size)? / MEGA);
        ground.raw.clean()?;
        let since = ground.since()?;
        read_file(&client, &path, &payload, ground.size, true).await?;
        let spent = ground.spent(&since)?;
        read.values.push(ground.size as f64 / spent.seconds / MEGA);
        read.moved.push(Moved { payload: ground.size, kernel: spent.read });
        read.note = format!("{COLD}; {}", spent.processors());
        client.delete(&path, false).await?;
        ground.given_back(&client).await?;
    }
    Ok([write, read])
}

/// `file_read_hot`: a file that the server's page cache holds, beside a bare loop that reads and sends one.
pub async fn hot(ground: &mut Ground) -> Result<Row> {
    let mut row = Row::new("file_read_hot", "MB/s");
    row.bar = Bar::RatioAtLeast(0.6);
    row.raw_is = "a bare pread+send loop over loopback".to_string();
    row.raw_tool = "internal";
    let (payload, path) = (Payload::new(1001), "/bench-hot");
    let client = ground.connect().await?;
    write_file(ground, &client, path, &payload).await?;
    let bare = HotFile::new(ground.scratch.path(), ground.size)?;
    ground.fill_cache()?;
    // Once to see whether memory is where it comes from.
    let since = ground.since()?;
    read_file(&client, path, &payload, ground.size, false).await?;
    let from_device = ground.spent(&since)?.read;
    let mut busy = String::new();
    for _ in 0..ground.rounds {
        row.raw.push(bare.send_over_loopback()? / MEGA);
        let since = ground.since()?;
        read_file(&client, path, &payload, ground.size, false).await?;
        let spent = ground.spent(&since)?;
        busy = spent.processors();
        row.values.push(ground.size as f64 / spent.seconds / MEGA);
    }
    row.note = format!("{busy}; {from_device} bytes came from the device after warming");
    client.delete(path, false).await?;
    Ok(row)
}

fn large_row(ground: &Ground, name: &'static str, how: &str) -> Row {
    let mut row = Row::new(name, "MB/s");
    row.bar = Bar::RatioAtLeast(if name == "bag_push" { 0.95 } else { 0.92 });
    row.raw_is = format!("{}, {how}", ground.raw.description());
    row.raw_tool = ground.raw.tool();
    row
}

/// Pushes every chunk, and waits until all are synced.
async fn push_all(bag: &client::Bag, payload: &Payload, size: u64) -> Result<()> {
    let producer = bag.producer(ProducerOptions::default());
    for number in 0..size / CHUNK {
        producer.push(payload.chunk(number, SIZE)).await?;
    }
    producer.flush().await
}

/// Pulls until the sealed bag has ended; every chunk must come as often as it was pushed, with its own bytes.
async fn pull_all(bag: &client::Bag, payload: &Payload, size: u64) -> Result<()> {
    let mut consumer = bag.consumer(ConsumerOptions::default());
    let chunks = size / CHUNK;
    let mut missing: Vec<u64> = (0..Payload::distinct(SIZE))
        .map(|number| chunks.saturating_sub(number).div_ceil(Payload::distinct(SIZE)))
        .collect();
    let mut left = chunks;
    while left > 0 {
        let Some(chunk) = consumer.pull().await? else { break };
        let known = payload.number_of(&chunk.bytes).filter(|number| payload.matches(*number, SIZE, 0, &chunk.bytes));
        let place = known.and_then(|number| missing.get_mut(number as usize)).filter(|count| **count > 0);
        match place {
            Some(count) => *count -= 1,
            None => return Err(wrong("a chunk came that was not pushed, or came twice")),
        }
        chunk.acknowledge();
        left -= 1;
    }
    let fates = consumer.flush().await;
    match fates.refused.first() {
        _ if left > 0 => Err(wrong("the bag ended before every chunk had come")),
        Some(refusal) => Err(refusal.error.clone().during("acknowledge")),
        None => Ok(()),
    }
}

async fn write_file(ground: &mut Ground, client: &Client, path: &str, payload: &Payload) -> Result<Spent> {
    let since = ground.since()?;
    let mut file = client.create(path, CreateOptions::default()).await?;
    for number in 0..ground.size / CHUNK {
        file.write(payload.chunk(number, SIZE)).await?;
    }
    file.close().await?;
    ground.spent(&since)
}

async fn read_file(client: &Client, path: &str, payload: &Payload, size: u64, once: bool) -> Result<()> {
    let reader = client.open_with(path, ReadOptions { once }).await?;
    let mut stream = reader.stream(0);
    let mut position = 0;
    while let Some(bytes) = stream.next().await? {
        if !payload.matches_file(position, SIZE, &bytes) {
            return Err(wrong("the bytes that were read are not those that were written"));
        }
        position += bytes.len() as u64;
    }
    if position == size { Ok(()) } else { Err(wrong("the file that was read has another length than was written")) }
}

/// The error that says that Stormwell itself is at fault.
pub fn wrong(what: &str) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("{what}; this is a fault in Stormwell: keep the data directory and report it"),
    )
}

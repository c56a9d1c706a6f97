//! The experiment with a file: one client writes one and reads it.

use super::ground::{Shape, Store, Tools};
use super::limiter::Speed;
use super::load::{Cost, Watch};
use super::row::Row;
use base::error::{Error, ErrorKind, Result};
use base::unit::GIB;
use client::CreateOptions;

/// Bytes that the client hands over at once.
const PIECE: usize = 1 << 20;

/// Writes a file of so many pieces of 1 MiB to a store of so many devices, closes it, and reads it; a row for each. The least part of the
/// devices' sum that is good enough is `bar`.
pub async fn one_client(tools: &Tools, devices: usize, speed: Speed, pieces: u64, bar: f64) -> Result<[Row; 2]> {
    let bytes = pieces * PIECE as u64;
    let store = Store::start(tools, Shape::new(devices, speed, (2 * bytes).max(GIB))).await?;
    let client = store.client(0).await?;
    let row = |what: &'static str, cost: Cost| -> Result<Row> {
        Ok(Row {
            experiment: "one client",
            what,
            devices,
            rate: speed.rate,
            clients: 1,
            chunk: PIECE,
            window: client::Sizes::default().write_window / PIECE,
            each: pieces / devices as u64,
            seconds: cost.seconds,
            throughput: bytes as f64 / cost.seconds,
            of: (speed.rate * devices as u64) as f64,
            bar: Some(bar),
            processor: cost.processor / (bytes as f64 / GIB as f64),
            memory: os::process::usage(std::process::id())?.anonymous_bytes,
            note: if devices > 1 { "its first 8 MiB on one device" } else { "" }.to_string(),
        })
    };
    let watch = Watch::start()?;
    let mut file = client.create("/file", CreateOptions::default()).await?;
    for _ in 0..pieces {
        file.write(tools.pattern.first(PIECE)).await?;
    }
    file.close().await?;
    let write = row("write of a file", watch.end()?)?;
    let watch = Watch::start()?;
    let mut stream = client.open("/file").await?.stream(0);
    let mut came = 0;
    while let Some(part) = stream.next().await? {
        came += part.len() as u64;
    }
    if came != bytes {
        let text = format!("{bytes} bytes were written and {came} read; this is a fault in Stormwell");
        return Err(Error::new(ErrorKind::Corrupt, text));
    }
    let read = row("read of a file", watch.end()?)?;
    drop((stream, client));
    store.stop().await;
    Ok([write, read])
}

//! Rows about what it costs to run: memory, and the time from start to the first durable write.

use super::ground::{Ground, at};
use super::row::{Bar, Row};
use crate::child::Server;
use crate::context::Context;
use base::error::{Error, ErrorKind, Result};
use bytes::Bytes;
use client::CreateOptions;
use harness::stopwatch::Stopwatch;
use std::time::Duration;

/// Memory is looked at so often.
pub const SAMPLE: Duration = Duration::from_millis(20);

/// A server counts as idle after so long without a client.
const IDLE: Duration = Duration::from_secs(2);

/// Memory of a server that has just started and serves nobody.
pub async fn memory_idle(ground: &mut Ground) -> Result<Row> {
    tokio::time::sleep(IDLE).await;
    let mut row = Row::new("memory_idle", "MB");
    row.values = vec![ground.used()?.anonymous_bytes as f64 / 1e6];
    row.bar = Bar::AtMost(60.0);
    row.note = format!("RssAnon of the server, {} s after it began to serve", IDLE.as_secs());
    Ok(row)
}

/// The most memory that the server had while the other rows ran.
pub fn memory_bench(ground: &Ground, others: usize) -> Result<Row> {
    if others == 0 {
        return Err(Error::new(ErrorKind::Invalid, "memory_bench needs other rows to run; name some in --only"));
    }
    let mut row = Row::new("memory_bench", "MB");
    row.values = vec![ground.sampler().peak() as f64 / 1e6];
    row.bar = Bar::AtMost(512.0);
    row.note = format!(
        "the highest RssAnon of the server, looked at every {} ms during {others} other rows",
        SAMPLE.as_millis()
    );
    Ok(row)
}

/// From starting the program on a fresh directory to the first acknowledged synced write.
pub async fn start_to_first_write(ground: &Ground, context: &Context) -> Result<Row> {
    let mut row = Row::new("start_to_first_write", "s");
    for round in 0..ground.rounds {
        let directory = ground.scratch.join(&format!("start-{round}"));
        let watch = Stopwatch::start();
        let server = Server::start(std::slice::from_ref(&directory))?;
        let client = at(context, server.address()).connect("bench").await?;
        let mut file = client.create("/first", CreateOptions::default()).await?;
        file.write(Bytes::from_static(&[b'x'; 4096])).await?;
        file.sync().await?;
        row.values.push(watch.seconds());
        file.close().await?;
        drop(server);
        std::fs::remove_dir_all(&directory)?;
    }
    row.bar = Bar::AtMost(0.5);
    row.note = "a new process on an empty directory, until 4 KiB of a new file are synced".to_string();
    Ok(row)
}

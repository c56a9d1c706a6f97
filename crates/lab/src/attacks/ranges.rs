//! Reads that name so many ranges that what has to be read for them is more than there is memory.

use super::target::Target;
use base::error::{Error, ErrorKind, Result};
use base::id::SessionId;
use bytes::Bytes;
use net::message::file::Locate;
use net::message::{Id, chunk};
use net::{Asker, CallNumbers, Credentials, Link, LinkSettings, Payload};
use os::clock::SystemClock;
use os::net::TcpNet;
use os::random::SystemRandom;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Ranges of one read; a message holds no more of them.
const RANGES: u64 = 65_536;

/// Reads at once.
const READS: usize = 16;

/// Bytes of the file that is read.
const LENGTH: u64 = 32 << 20;

/// One byte, named again and again.
pub async fn many_equal(target: &Target) -> Result<()> {
    read(target, |_| chunk::Range { offset: 65_536, length: 1 }).await
}

/// Bytes that lie so far apart that a block is read for each of them.
pub async fn far_apart(target: &Target) -> Result<()> {
    read(target, |number| chunk::Range { offset: number * 81_920 % (8 << 20), length: 1 }).await
}

async fn read(target: &Target, range: fn(u64) -> chunk::Range) -> Result<()> {
    let client = target.client().await?;
    let mut file = client.create("/attacked", client::CreateOptions::default()).await?;
    file.write(Bytes::from(vec![7; LENGTH as usize])).await?;
    file.close().await?;
    let settings = LinkSettings {
        session: SessionId(99),
        program: "lab attacks".to_string(),
        connections: 1,
        silence_max: Duration::from_secs(60),
        pool: base::buffer::Pool::new(64 << 20),
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SystemRandom),
        credentials: Credentials::default(),
        asker: Asker::Client,
        numbers: CallNumbers::default(),
        meant: None,
        once: false,
    };
    let link = Link::connect(Arc::new(TcpNet), &target.store, settings).await?;
    let locate = Locate { path: "/attacked".to_string(), length: LENGTH, ..Locate::default() };
    let (located, _) = link.call(&locate, Payload::empty()).await?;
    let extent = located.extents.first().ok_or_else(|| Error::new(ErrorKind::NotFound, "the file has no extent"))?;
    let (device, name): (Id, Id) = (extent.layout.columns[0].device, extent.layout.columns[0].chunk);
    let ranges: Vec<chunk::Range> = (0..RANGES).map(range).collect();
    let question = chunk::Read { device, chunk: name, ranges, ..chunk::Read::default() };
    let mut tasks = JoinSet::new();
    loop {
        while tasks.len() < READS {
            let (link, question) = (link.clone(), question.clone());
            target.count("reads");
            tasks.spawn(async move { link.call(&question, Payload::empty()).await.map(drop) });
        }
        match tasks.join_next().await {
            Some(Ok(Ok(()))) => target.count("answered"),
            Some(Ok(Err(error))) if error.kind() == ErrorKind::Invalid => target.count("refused"),
            _ => target.count("failed"),
        }
        // One that is refused at once is asked again a little later, not as fast as a processor can.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

//! Credit for large payloads, wished for and never used.

use super::frames::{begin, greeted};
use super::target::Target;
use base::error::Result;
use base::limit::FRAME_PAYLOAD_MAX;
use base::net::Stream;
use net::frame::{CREDIT, Header, PING};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

/// Connections; each may wish for the whole budget.
const CONNECTIONS: usize = 8;

/// Wishes of each.
const WISHES: usize = 64;

/// Wishes for all the credit there is, keeps it, and pings every second so that the connection looks alive. One that the server ends is made
/// again.
pub async fn hoarded(target: &Target) -> Result<()> {
    let mut tasks = JoinSet::new();
    let mut number = 1000;
    loop {
        while tasks.len() < CONNECTIONS {
            number += 1;
            let stream = greeted(target, number).await?;
            target.count("connections");
            tasks.spawn(hold(stream));
        }
        tasks.join_next().await;
        target.count("ended");
    }
}

async fn hold(mut stream: Box<dyn Stream>) -> std::io::Result<()> {
    let wish = Header { kind: CREDIT, credit: FRAME_PAYLOAD_MAX as u32, ..Header::default() };
    for _ in 0..WISHES {
        stream.write_all(&begin(wish, &[])).await?;
    }
    let mut answer = [0; 4096];
    loop {
        tokio::select! {
            read = stream.read(&mut answer) => if read? == 0 { return Ok(()) },
            () = tokio::time::sleep(Duration::from_secs(1)) => {
                stream.write_all(&begin(Header { kind: PING, ..Header::default() }, &[])).await?;
            }
        }
    }
}

//! Credit for large payloads, wished for and never used.

use super::frames::{begin, greeted};
use super::target::Target;
use base::error::Result;
use net::frame::{CREDIT, Header, PING};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

/// Connections; each may wish for the whole budget.
const CONNECTIONS: usize = 8;

/// Wishes of each.
const WISHES: usize = 64;

/// Wishes for all the credit there is, keeps it, and pings every second so that the connection looks alive.
pub async fn hoarded(target: &Target) -> Result<()> {
    let mut tasks = JoinSet::new();
    for number in 0..CONNECTIONS {
        let mut stream = greeted(target, 1000 + number as u128).await?;
        target.count("connections");
        tasks.spawn(async move {
            for _ in 0..WISHES {
                let wish = Header { kind: CREDIT, credit: 64 << 20, ..Header::default() };
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
        });
    }
    while let Some(ended) = tasks.join_next().await {
        let ended: std::result::Result<std::io::Result<()>, _> = ended;
        target.count(if matches!(ended, Ok(Ok(()))) { "ended with a word" } else { "ended" });
    }
    Ok(())
}

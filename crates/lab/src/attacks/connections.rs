//! Connections, by their number: ones that say nothing, and ones that say a byte now and then. One that the server ends is made again.

use super::target::Target;
use base::error::Result;
use base::net::Stream;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

/// A connection that was ended, or not taken, is made again after so long.
const AGAIN: Duration = Duration::from_secs(1);

/// Between two bytes.
const DRIP: Duration = Duration::from_secs(1);

/// Between two bytes of those that hurry least: less than a server gives them in all, more than half of it.
const SLOW_DRIP: Duration = Duration::from_secs(9);

/// Connections that are being made at once: as many as a listening socket keeps for its program.
const MAKING: usize = 512;

/// Opens all connections, says nothing, and holds them.
pub async fn silent(target: &Target, address: &str) -> Result<()> {
    crowd(target, address, Words { at_once: Vec::new(), dripped: Vec::new(), pause: DRIP }).await
}

/// Opens all connections and says these bytes, one a second; then nothing more.
pub async fn dripping(target: &Target, address: &str, bytes: Vec<u8>) -> Result<()> {
    crowd(target, address, Words { at_once: Vec::new(), dripped: bytes, pause: DRIP }).await
}

/// The same with the first byte at once and one every 9 s.
pub async fn slowly(target: &Target, address: &str, mut bytes: Vec<u8>) -> Result<()> {
    let dripped = bytes.split_off(1);
    crowd(target, address, Words { at_once: bytes, dripped, pause: SLOW_DRIP }).await
}

/// Opens all connections, says these bytes on each, and then nothing more.
pub async fn idle(target: &Target, address: &str, bytes: Vec<u8>) -> Result<()> {
    crowd(target, address, Words { at_once: bytes, dripped: Vec::new(), pause: DRIP }).await
}

/// What is said on each connection.
struct Words {
    at_once: Vec<u8>,
    /// One byte at a time, with this pause before each.
    dripped: Vec<u8>,
    pause: Duration,
}

async fn crowd(target: &Target, address: &str, words: Words) -> Result<()> {
    let (mut open, making) = (JoinSet::new(), tokio::sync::Semaphore::new(MAKING));
    let (making, words) = (std::sync::Arc::new(making), std::sync::Arc::new(words));
    let mut wanted = target.connections;
    loop {
        while wanted > 0 {
            wanted -= 1;
            target.count("connections");
            let (address, making, words) = (address.to_string(), making.clone(), words.clone());
            open.spawn(async move {
                let stream = {
                    // Never closed.
                    let _turn = making.acquire().await;
                    base::net::Net::connect(&os::net::TcpNet, &address).await
                };
                let ended = match stream {
                    Ok(stream) => hold(stream, &words).await,
                    Err(_) => "not taken",
                };
                tokio::time::sleep(AGAIN).await;
                ended
            });
        }
        // There are some: what ended is replaced.
        if let Some(Ok(ended)) = open.join_next().await {
            target.count(ended);
        }
        wanted += 1;
    }
}

/// Says the words, and reads until the other side ends it.
async fn hold(mut stream: Box<dyn Stream>, words: &Words) -> &'static str {
    let mut answer = [0; 4096];
    let mut told = 0;
    // A connection that is gone is noticed when it is read.
    let _ = stream.write_all(&words.at_once).await;
    let mut bytes = words.dripped.iter();
    loop {
        tokio::select! {
            read = stream.read(&mut answer) => match read {
                Ok(0) if told > 0 => return "ended with a word",
                Ok(length @ 1..) => told += length,
                Ok(_) | Err(_) => return if told > 0 { "ended with a word" } else { "ended without a word" },
            },
            () = tokio::time::sleep(words.pause) => if let Some(byte) = bytes.next() {
                let _ = stream.write_all(std::slice::from_ref(byte)).await;
            }
        }
    }
}

/// A request to the console that never ends.
pub fn endless_request() -> Vec<u8> {
    let mut request = b"GET /health/ready HTTP/1.1\r\nHost: a\r\nX: ".to_vec();
    request.resize(4096, b'x');
    request
}

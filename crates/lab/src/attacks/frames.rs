//! Frames that do not end, and messages that become much more than they are.

use super::target::Target;
use base::error::Result;
use base::limit::{CONCAT_FILES_MAX, FRAME_MESSAGE_MAX, SMALL_FRAMES_MAX};
use base::net::Stream;
use net::frame::{self, HEADER_LENGTH, HELLO, Header};
use net::message::session::Hello;
use net::message::{Ask, chunk, file};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

/// Connections that each send a large message.
const CONNECTIONS: usize = 1000;

/// Connections that join files.
const CONCAT_CONNECTIONS: usize = 16;

/// A frame with this message.
pub fn begin(header: Header, message: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::append(&mut bytes, header, |bytes| bytes.extend_from_slice(message));
    bytes
}

/// A greeting of nobody in particular.
pub fn greeting() -> Vec<u8> {
    hello(7)
}

fn hello(session: u128) -> Vec<u8> {
    let (version_min, version_max) = (frame::VERSION_MIN.into(), frame::VERSION_MAX.into());
    let program = "lab attacks".to_string();
    let hello = Hello { version_min, version_max, session: session.into(), program, ..Hello::default() };
    begin(Header { kind: HELLO, ..Header::default() }, &hello.encode_to_vec())
}

/// A connection to the store that has greeted, and whose welcome was read or will be.
pub async fn greeted(target: &Target, session: u128) -> Result<Box<dyn Stream>> {
    let mut stream = target.connect(&target.store).await?;
    stream.write_all(&hello(session)).await?;
    Ok(stream)
}

/// Sends messages of a MiB, each but for its last byte, and holds them.
pub async fn half(target: &Target) -> Result<()> {
    let header = Header { kind: file::Stat::KIND, number: 1, ..Header::default() };
    let bytes = begin(header, &vec![0x0a; FRAME_MESSAGE_MAX]);
    send_and_hold(target, bytes[..bytes.len() - 1].to_vec()).await
}

/// Sends messages that are decoded into as many things as fit in them.
pub async fn nested(target: &Target) -> Result<()> {
    // A range without anything in it: two bytes on the wire, 16 in memory. A file without anything: two, and 200 and more.
    let ranges = [0x1a, 0].repeat(FRAME_MESSAGE_MAX / 2);
    let files = [0x0a, 0].repeat(FRAME_MESSAGE_MAX / 2);
    let mut bytes = Vec::new();
    for number in 0..8 {
        let header = |kind| Header { kind, number: number + 1, ..Header::default() };
        bytes.extend(begin(header(file::PutFiles::KIND), &files));
        bytes.extend(begin(header(chunk::Read::KIND), &ranges));
    }
    send_and_hold(target, bytes).await
}

/// Joins files, as many at once as one question may name and with as many questions unanswered as a connection may have.
pub async fn concats(target: &Target) -> Result<()> {
    let concat =
        file::Concat { target: "/t".into(), sources: vec!["/a".into(); CONCAT_FILES_MAX], ..Default::default() };
    let message = concat.encode_to_vec();
    let header = |number| Header { kind: file::Concat::KIND, number, ..Header::default() };
    let bytes: Vec<u8> = (1..=SMALL_FRAMES_MAX as u64).flat_map(|number| begin(header(number), &message)).collect();
    let bytes = std::sync::Arc::new(bytes);
    let mut tasks = JoinSet::new();
    for number in 0..CONCAT_CONNECTIONS {
        let mut stream = greeted(target, 3000 + number as u128).await?;
        target.count("connections");
        let bytes = bytes.clone();
        tasks.spawn(async move {
            next(&mut stream).await?;
            let (mut reading, mut writing) = tokio::io::split(stream);
            let read = async {
                let mut answers = 0;
                while answers < SMALL_FRAMES_MAX {
                    answers += usize::from(next(&mut reading).await?.kind == file::Concat::KIND);
                }
                std::io::Result::Ok(())
            };
            tokio::try_join!(writing.write_all(&bytes), read).map(drop)
        });
    }
    while let Some(ended) = tasks.join_next().await {
        let ended: std::result::Result<std::io::Result<()>, _> = ended;
        target.count(if matches!(ended, Ok(Ok(()))) { "answered" } else { "ended" });
    }
    Ok(())
}

/// The next frame's header; the rest of it is passed over.
pub async fn next(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> std::io::Result<Header> {
    let mut bytes = [0; HEADER_LENGTH];
    stream.read_exact(&mut bytes).await?;
    let header = Header::decode(&bytes).map_err(std::io::Error::other)?;
    let mut rest = vec![0; header.message_length as usize + header.payload_length as usize];
    stream.read_exact(&mut rest).await?;
    Ok(header)
}

async fn send_and_hold(target: &Target, bytes: Vec<u8>) -> Result<()> {
    let bytes = std::sync::Arc::new(bytes);
    let mut tasks = JoinSet::new();
    for number in 0..CONNECTIONS.min(target.connections) {
        let Ok(mut stream) = greeted(target, 2000 + number as u128).await else {
            target.count("not taken");
            continue;
        };
        target.count("connections");
        let bytes = bytes.clone();
        tasks.spawn(async move {
            // What is not taken is not taken; what it answers is read and thrown away.
            let (mut reading, mut writing) = tokio::io::split(&mut stream);
            let mut sink = [0; 4096];
            let read = async { while reading.read(&mut sink).await.is_ok_and(|length| length > 0) {} };
            let write = async {
                let _ = writing.write_all(&bytes).await;
                std::future::pending::<()>().await;
            };
            tokio::select! { () = read => (), () = write => () }
        });
    }
    while tasks.join_next().await.is_some() {
        target.count("ended");
    }
    Ok(())
}

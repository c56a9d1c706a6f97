//! Strangers at the port for Hadoop's clients: calls that ask for much more than they are, calls and packets that do not end. The
//! bytes are written by hand: this program does not know the gateway's messages.

use super::target::Target;
use base::error::Result;
use base::net::Stream;
use prost::encoding::encode_varint;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

const PROTOCOL: &[u8] = b"org.apache.hadoop.hdfs.protocol.ClientProtocol";

/// Connections that each ask for something large.
const CONNECTIONS: usize = 64;

/// Calls that each of them makes without reading an answer.
const CALLS: usize = 64;

/// Connections that ping: as many as would hold all memory for answers, and not so many that no place is left.
const PINGS: usize = 1500;

/// A length-delimited field.
fn field(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![tag << 3 | 2];
    encode_varint(bytes.len() as u64, &mut out);
    [out, bytes.to_vec()].concat()
}

/// A number as a field.
fn number(tag: u8, value: u64) -> Vec<u8> {
    let mut out = vec![tag << 3];
    encode_varint(value, &mut out);
    out
}

fn delimited(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_varint(bytes.len() as u64, &mut out);
    [out, bytes.to_vec()].concat()
}

/// A frame of Hadoop RPC: the header of this call, and what follows.
fn frame(call: i32, rest: &[u8]) -> Vec<u8> {
    let zigzag = u64::from(((call << 1) ^ (call >> 31)) as u32);
    let header = [number(1, 2), number(2, 0), number(3, zigzag), field(4, &[9; 16]), number(5, 0)].concat();
    let content = [delimited(&header), rest.to_vec()].concat();
    [announced(content.len()), content].concat()
}

/// The length in front of a frame: four bytes, the highest first.
fn announced(length: usize) -> Vec<u8> {
    [24, 16, 8, 0].map(|shift| (length >> shift) as u8).to_vec()
}

/// What a user's connection begins with.
pub fn context(user: &str) -> Vec<u8> {
    let context = [field(2, &field(1, user.as_bytes())), field(3, PROTOCOL)].concat();
    [&b"hrpc\x09\x00\x00"[..], &frame(-3, &delimited(&context))].concat()
}

pub fn call(call: i32, method: &str, request: &[u8]) -> Vec<u8> {
    let header = [field(1, method.as_bytes()), field(2, PROTOCOL), number(3, 1)].concat();
    frame(call, &[delimited(&header), delimited(request)].concat())
}

/// Makes a call, and waits for what is answered, without its length.
pub async fn asked(stream: &mut Box<dyn Stream>, at: i32, method: &str, request: &[u8]) -> Result<Vec<u8>> {
    stream.write_all(&call(at, method, request)).await?;
    let length = stream.read_u32().await?;
    let mut answer = vec![0; (length as usize).min(1 << 20)];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

/// What `hdfs dfs -ls /` asks, over a connection of its own.
pub async fn listing(target: &Target) -> Result<()> {
    let mut stream = target.connect(&target.hdfs).await?;
    stream.write_all(&context("ada")).await?;
    served(asked(&mut stream, 1, "getFileInfo", &field(1, b"/")).await?)?;
    let request = [field(1, b"/"), field(2, b""), number(3, 0)].concat();
    served(asked(&mut stream, 2, "getListing", &request).await?)
}

/// A refusal says which exception it is.
fn served(answer: Vec<u8>) -> Result<()> {
    match answer.windows(10).any(|part| part == b"Exception:" || part == b".Retriable") {
        false => Ok(()),
        true => Err(base::error::Error::new(base::error::ErrorKind::Refused, String::from_utf8_lossy(&answer))),
    }
}

/// Connections that say these bytes and hold what comes of it without reading it. One that the server ends is made again.
pub async fn say_and_hold(target: &Target, count: usize, bytes: Vec<u8>) -> Result<()> {
    say_and_hold_at(target, &target.hdfs, count, bytes).await
}

/// The same at another door.
pub async fn say_and_hold_at(target: &Target, address: &str, count: usize, bytes: Vec<u8>) -> Result<()> {
    let bytes = std::sync::Arc::new(bytes);
    let mut open = JoinSet::new();
    loop {
        while open.len() < count {
            let Ok(mut stream) = target.connect(address).await else {
                target.count("not taken");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            };
            target.count("connections");
            let bytes = bytes.clone();
            open.spawn(async move {
                // A server that takes no more leaves this waiting; one that closes ends it.
                if stream.write_all(&bytes).await.is_ok() {
                    let mut pause = tokio::time::interval(std::time::Duration::from_millis(200));
                    while stream.write_all(&[]).await.is_ok() {
                        pause.tick().await;
                    }
                }
            });
        }
        open.join_next().await;
        target.count("ended");
    }
}

/// A path of 60 MiB, in a frame that announces it.
pub async fn long_paths(target: &Target) -> Result<()> {
    let request = field(1, &b"/a".repeat(30 << 20));
    let bytes = [context("eve"), call(1, "getFileInfo", &request)].concat();
    say_and_hold(target, 4, bytes).await
}

/// One attribute, named 8,000 times in each of many calls.
pub async fn attributes(target: &Target) -> Result<()> {
    let mut stream = target.connect(&target.hdfs).await?;
    let user = os::user::current().0;
    stream.write_all(&context(&user)).await?;
    let directory = [field(1, b"/attacked"), field(2, &number(1, 0o777)), number(3, 1)].concat();
    asked(&mut stream, 1, "mkdirs", &directory).await?;
    let attribute = [number(1, 0), field(2, b"x"), field(3, &[7; 16_000])].concat();
    asked(&mut stream, 2, "setXAttr", &[field(1, b"/attacked"), field(2, &attribute), number(3, 3)].concat()).await?;
    let name = field(2, &[number(1, 0), field(2, b"x")].concat());
    let request = [field(1, b"/attacked"), name.repeat(8000)].concat();
    let calls: Vec<u8> = (3..3 + CALLS as i32).flat_map(|at| call(at, "getXAttrs", &request)).collect();
    say_and_hold(target, CONNECTIONS, [context(&user), calls].concat()).await
}

/// Messages of nothing but empty messages.
pub async fn empty_messages(target: &Target) -> Result<()> {
    let request = [0x0A, 0].repeat(900_000);
    let calls: Vec<u8> = (1..8).flat_map(|at| call(at, "reportBadBlocks", &request)).collect();
    say_and_hold(target, CONNECTIONS, [context("eve"), calls].concat()).await
}

/// Listings and statuses, asked for again and again and never read.
pub async fn unread_answers(target: &Target) -> Result<()> {
    let mut stream = target.connect(&target.hdfs).await?;
    let user = os::user::current().0;
    stream.write_all(&context(&user)).await?;
    for at in 0..1000 {
        let path = format!("/unread/{at:0200}");
        let directory = [field(1, path.as_bytes()), field(2, &number(1, 0o777)), number(3, 1)].concat();
        asked(&mut stream, at + 1, "mkdirs", &directory).await?;
    }
    let request = [field(1, b"/unread"), field(2, b""), number(3, 0)].concat();
    let calls: Vec<u8> = (2000..2256).flat_map(|at| call(at, "getListing", &request)).collect();
    say_and_hold(target, CONNECTIONS, [context(&user), calls].concat()).await
}

/// Calls of almost 2 MiB that stop in the middle.
pub async fn half_calls(target: &Target) -> Result<()> {
    let bytes = [context("eve"), announced((2 << 20) - 1), vec![0; 100_000]].concat();
    say_and_hold(target, CONNECTIONS, bytes).await
}

/// Pings that are as long as a call without memory of its own may be.
pub async fn padded_pings(target: &Target) -> Result<()> {
    let ping = frame(-4, &vec![0; (16 << 10) - 64]);
    say_and_hold(target, PINGS, [context("eve"), ping].concat()).await
}

/// Sums over a tree, asked for with as much around them as is read, on connections that each ask again and again.
pub async fn walks(target: &Target) -> Result<()> {
    let mut stream = target.connect(&target.hdfs).await?;
    stream.write_all(&context(&os::user::current().0)).await?;
    for at in 0..1000 {
        let path = format!("/walked/{at}");
        let directory = [field(1, path.as_bytes()), field(2, &number(1, 0o755)), number(3, 1)].concat();
        asked(&mut stream, at + 1, "mkdirs", &directory).await?;
    }
    let request = [field(1, b"/walked"), field(15, &[0; 15 << 10])].concat();
    let calls: Vec<u8> = (1..40).flat_map(|at| call(at, "getContentSummary", &request)).collect();
    say_and_hold(target, CONNECTIONS, [context("eve"), calls].concat()).await
}

/// Files that are made for holders with names of 64 KiB.
pub async fn long_holders(target: &Target) -> Result<()> {
    let holder = field(3, &[b'h'; 60 << 10]);
    let calls: Vec<u8> = (1..65)
        .flat_map(|at| {
            let path = field(1, format!("/held/{at}").as_bytes());
            let rest = [number(4, 1), number(5, 1), number(6, 1), number(7, 1 << 20)].concat();
            call(at, "create", &[path, field(2, &number(1, 0o644)), holder.clone(), rest].concat())
        })
        .collect();
    say_and_hold(target, CONNECTIONS, [context(&os::user::current().0), calls].concat()).await
}

/// What a connection of a user begins with, for those that say it slowly, or nothing else.
pub fn greeting() -> Vec<u8> {
    context("eve")
}

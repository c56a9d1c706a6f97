//! What a stranger can make the HDFS gateway hold: memory, turns and places, each with its bound. The gateway runs in a process of
//! its own, so that its memory can be looked at.

use crate::Fixture;
use crate::hdfs_trouble::Elsewhere;
use crate::hdfs_user::{CLIENT_PROTOCOL, User, content, hdfs};
use crate::hdfs_write::{BLOCK_SIZE, Open, Writer, ask, with_length};
use base::limit::{HDFS_CALL_MAX, HDFS_CONTEXT_MAX, HELLO_WAIT_MAX};
use bytes::Bytes;
use gateway_hdfs::message::files::{CREATE, Create, CreateAnswer, Nothing};
use gateway_hdfs::message::hdfs::Permission;
use gateway_hdfs::message::located::GetBlockLocations;
use gateway_hdfs::message::names::{EmptyAnswer, PathRequest, StatusAnswer, XattrProto, XattrRequest, XattrsRequest};
use gateway_hdfs::message::rpc::{CallHeader, ConnectionContext, RequestHeader, ResponseHeader, UserInformation};
use gateway_hdfs::message::transfer::{
    BaseHeader, CHECKSUM_CRC32C, Checksum, NO_PACKET, OOB_RESTART, OperationHeader, PacketHeader, SETUP_CREATE,
    WriteBlock,
};
use prost::Message;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Nothing here takes this long; a test that waits longer has hung.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// So much more memory than before the gateway may have taken, at its highest: its budgets are below that together.
const GROWTH_MAX: u64 = 300 << 20;

/// A gateway in a process of its own.
pub async fn elsewhere(name: &str) -> Fixture {
    let directory = std::env::temp_dir().join(format!("stormwell-node-{}-{name}", std::process::id()));
    let mut fixture = Fixture::at(directory);
    fixture.elsewhere = Some(Elsewhere::start(&fixture));
    fixture
}

/// The most memory that the gateway's process ever had, in bytes.
pub fn highest(fixture: &Fixture) -> u64 {
    let id = fixture.elsewhere.as_ref().expect("it runs").id();
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux says it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

pub fn framed(parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    [&(length as u32).to_be_bytes()[..], &parts.concat()].concat()
}

/// A connection that asks without waiting for answers.
pub struct Stranger {
    pub stream: TcpStream,
    number: i32,
}

impl Stranger {
    /// One that has said nothing yet.
    pub async fn silent(fixture: &Fixture) -> Stranger {
        Stranger::at(hdfs(fixture)).await
    }

    /// The same at any gateway.
    pub async fn at(address: &str) -> Stranger {
        Stranger { stream: TcpStream::connect(address).await.expect("it listens"), number: 0 }
    }

    /// One that has said who it is.
    pub async fn named(fixture: &Fixture, user: &str) -> Stranger {
        Stranger::named_at(hdfs(fixture), user).await
    }

    /// The same at any gateway.
    pub async fn named_at(address: &str, user: &str) -> Stranger {
        let mut stranger = Stranger::at(address).await;
        let user = UserInformation { effective: Some(user.to_string()), real: None };
        let context = ConnectionContext { user: Some(user), protocol: Some(CLIENT_PROTOCOL.to_string()) };
        let frame = framed(&[&Stranger::header(-3), &context.encode_length_delimited_to_vec()]);
        stranger.say(&[&b"hrpc\x09\x00\x00"[..], &frame].concat()).await;
        stranger
    }

    pub fn header(call: i32) -> Vec<u8> {
        let client = Bytes::from_static(&[9; 16]);
        let header = RequestHeader { kind: Some(2), operation: Some(0), call, client, retry: Some(0) };
        header.encode_length_delimited_to_vec()
    }

    /// A call with this request, whatever it is.
    pub fn call(&mut self, method: &str, request: &[u8]) -> Vec<u8> {
        self.call_of(CLIENT_PROTOCOL, method, request)
    }

    /// The same of another protocol.
    pub fn call_of(&mut self, protocol: &str, method: &str, request: &[u8]) -> Vec<u8> {
        self.number += 1;
        let header = CallHeader {
            method: Bytes::copy_from_slice(method.as_bytes()),
            protocol: Bytes::copy_from_slice(protocol.as_bytes()),
            version: 1,
        };
        let mut length = Vec::new();
        prost::encoding::encode_varint(request.len() as u64, &mut length);
        let named = header.encode_length_delimited_to_vec();
        framed(&[&Stranger::header(self.number), &named, &length, request])
    }

    /// Sends what the other side takes. One that has closed the connection takes nothing, and one that takes no more for a
    /// second will not.
    pub async fn say(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            match timeout(Duration::from_secs(1), self.stream.write(rest)).await {
                Ok(Ok(written)) => rest = &rest[written..],
                _ => return,
            }
        }
    }

    /// The next answer's header. None: the connection is closed.
    pub async fn hear(&mut self) -> Option<ResponseHeader> {
        let heard = async {
            let length = self.stream.read_u32().await.ok()?;
            let mut content = vec![0; length as usize];
            self.stream.read_exact(&mut content).await.ok()?;
            ResponseHeader::decode_length_delimited(content.as_slice()).ok()
        };
        timeout(PATIENCE, heard).await.expect("an answer, or an end")
    }
}

/// The gateway has taken no more memory than it may since `before`, and serves others.
pub async fn bounded(fixture: &Fixture, before: u64, what: &str) {
    let mut other = User::superuser(fixture).await;
    let root: Result<StatusAnswer, _> =
        other.call(CLIENT_PROTOCOL, "getFileInfo", &PathRequest { path: "/".to_string() }).await;
    assert!(root.is_ok(), "{what}: {root:?}");
    let growth = highest(fixture).saturating_sub(before);
    assert!(growth <= GROWTH_MAX, "{what}: {} MiB more than before", growth >> 20);
}

pub async fn end(mut fixture: Fixture) {
    fixture.elsewhere.take().expect("it runs").kill();
}

/// A path of any length costs no more than the bytes that it comes in: it is refused before its names are looked for, and the
/// connection of one that is longer than any call is closed with a word.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_paths_cost_their_bytes() {
    let fixture = elsewhere("bounds-paths").await;
    let before = highest(&fixture);
    let path = |length: usize| PathRequest { path: "/a".repeat(length / 2) }.encode_to_vec();
    for (length, closed) in [(5000, false), (200 << 10, false), (1 << 20, false), (24 << 20, true)] {
        let mut strangers = Vec::new();
        for _ in 0..4 {
            let mut stranger = Stranger::named(&fixture, "eve").await;
            for method in ["getFileInfo", "getListing", "mkdirs", "isFileClosed"] {
                let call = stranger.call(method, &path(length));
                stranger.say(&call).await;
            }
            strangers.push(stranger);
        }
        for mut stranger in strangers {
            let answer = stranger.hear().await;
            match closed {
                // What was unread may have overtaken the word.
                true => assert!(answer.is_none_or(|answer| answer.status == 2), "{length}"),
                false => assert!(answer.is_some_and(|answer| answer.status == 1), "{length}: refused, and lives on"),
            }
        }
        bounded(&fixture, before, &format!("paths of {length} bytes")).await;
    }
    end(fixture).await;
}

/// An attribute is answered once, however often it is asked for: answers are no larger than what is stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attribute_is_answered_once() {
    let fixture = elsewhere("bounds-xattrs").await;
    let mut root = User::superuser(&fixture).await;
    let file = Open::new(&fixture, "/file").await;
    file.complete(&fixture, None).await.expect("closed");
    let xattr = XattrProto { namespace: 0, name: "x".to_string(), value: Some(vec![7; 16_000]) };
    let set = XattrRequest { path: "/file".to_string(), xattr: Some(xattr), flag: Some(1) };
    let _set: EmptyAnswer = root.call(CLIENT_PROTOCOL, "setXAttr", &set).await.expect("set");
    let before = highest(&fixture);
    let name = XattrProto { namespace: 0, name: "x".to_string(), value: None };
    let ask = |count: usize| XattrsRequest { path: "/file".to_string(), xattrs: vec![name.clone(); count] };
    let mut strangers = Vec::new();
    for _ in 0..2 {
        let mut stranger = Stranger::named(&fixture, &os::user::current().0).await;
        for _ in 0..32 {
            let call = stranger.call("getXAttrs", &ask(8000).encode_to_vec());
            stranger.say(&call).await;
        }
        strangers.push(stranger);
    }
    for stranger in &mut strangers {
        assert_eq!(stranger.hear().await.map(|answer| answer.status), Some(1), "more than a file may have");
    }
    bounded(&fixture, before, "an attribute asked for 8,000 times").await;
    let answer: gateway_hdfs::message::names::XattrsAnswer =
        root.call(CLIENT_PROTOCOL, "getXAttrs", &ask(32)).await.expect("it is there");
    assert_eq!(answer.xattrs.len(), 1);
    end(fixture).await;
}

/// A message of many empty fields is refused before it is decoded, and what a data connection says of other servers is not kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_messages_are_counted() {
    let fixture = elsewhere("bounds-fields").await;
    let before = highest(&fixture);
    for method in ["reportBadBlocks", "getAdditionalDatanode", "setAcl", "getXAttrs", "concat", "getBatchedListing"] {
        let mut stranger = Stranger::named(&fixture, "eve").await;
        for (tag, count) in [(0x0A, 400_000), (0x12, 400_000), (0x1A, 900_000)] {
            let call = stranger.call(method, &[tag, 0].repeat(count));
            stranger.say(&call).await;
            assert_eq!(stranger.hear().await.map(|answer| answer.status), Some(1), "{method}");
        }
        bounded(&fixture, before, method).await;
    }
    let file = Open::new(&fixture, "/file").await;
    let block = file.add(&fixture, None).await.expect("a block");
    let mut writers = Vec::new();
    for _ in 0..100 {
        let base = BaseHeader { block: block.block.clone(), token: None };
        let request = WriteBlock {
            header: OperationHeader { base, client: "one".to_string() },
            stage: SETUP_CREATE,
            checksum: Checksum { kind: CHECKSUM_CRC32C, bytes: 512 },
            ..WriteBlock::default()
        };
        let request = [request.encode_to_vec(), [0x12, 0].repeat(30_000)].concat();
        let mut bytes = vec![0, 28, 80];
        prost::encoding::encode_varint(request.len() as u64, &mut bytes);
        bytes.extend(request);
        let mut stranger = Stranger::silent(&fixture).await;
        stranger.say(&bytes).await;
        let answer = timeout(PATIENCE, stranger.stream.read_u8()).await.expect("an answer");
        assert!(answer.is_ok(), "an answer: {answer:?}");
        writers.push(stranger);
    }
    bounded(&fixture, before, "30,000 targets").await;
    end(fixture).await;
}

/// The locations of many blocks, asked for again and again by clients that read nothing, take no more than a budget, and another
/// client is answered meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_have_a_budget() {
    let fixture = elsewhere("bounds-answers").await;
    let file = create(&fixture, "/many", "one", 1024).await;
    let block = file.add(&fixture, None).await.expect("a block");
    // As HBase does, a client may write on in one block; it is shown as many.
    let bytes = content(30 << 20, 3);
    file.fill(&fixture, &block.block, 0, &bytes).await;
    let last = with_length(&block, bytes.len() as u64);
    file.complete(&fixture, Some(&last)).await.expect("closed");
    let before = highest(&fixture);
    let path = "/many".to_string();
    let ask = GetBlockLocations { path, offset: 0, length: 1 << 40 }.encode_to_vec();
    let mut strangers = Vec::new();
    for _ in 0..2 {
        let mut stranger = Stranger::named(&fixture, &os::user::current().0).await;
        let calls: Vec<u8> = (0..64).flat_map(|_| stranger.call("getBlockLocations", &ask)).collect();
        stranger.say(&calls).await;
        strangers.push(stranger);
    }
    for stranger in &mut strangers {
        // What is said at once is that there is an answer, and no more is taken of it.
        let mut begun = [0; 4];
        timeout(PATIENCE, stranger.stream.peek(&mut begun)).await.expect("an answer").expect("it is open");
    }
    bounded(&fixture, before, "64 times 30,720 blocks").await;
    end(fixture).await;
}

pub async fn create(fixture: &Fixture, path: &str, holder: &str, block_size: u64) -> Open {
    try_create(fixture, path, holder, block_size).await.expect("the file is new")
}

async fn try_create(fixture: &Fixture, path: &str, holder: &str, block_size: u64) -> Result<Open, (String, String)> {
    let create = Create {
        path: path.to_string(),
        masked: Permission { bits: 0o644 },
        holder: holder.to_string(),
        flags: CREATE,
        parents: true,
        replication: 1,
        block_size,
        ..Create::default()
    };
    let answer: CreateAnswer = ask(fixture, "create", &create).await?;
    let inode = answer.status.and_then(|status| status.inode).expect("clients need it");
    Ok(Open { path: path.to_string(), holder: holder.to_string(), inode })
}

/// The name of a holder is no longer than 255 bytes, and a block no smaller than the least that is set.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_kept_of_a_writer_is_small() {
    let mut fixture = Fixture::start("bounds-holders").await;
    create(&fixture, "/good", &"h".repeat(255), 1024).await;
    for (path, holder, block_size, word) in
        [("/long", "h".repeat(256), 1024, "256 bytes"), ("/small", "one".to_string(), 1023, "1023")]
    {
        let refused = try_create(&fixture, path, &holder, block_size).await.err();
        let (_, text) = refused.unwrap_or_else(|| panic!("{path} is refused"));
        assert!(text.contains(word), "{text}");
    }
    let renew = gateway_hdfs::message::files::RenewLease { holder: "h".repeat(70_000) };
    ask::<Nothing>(&fixture, "renewLease", &renew).await.expect_err("nobody has that name");
    fixture.stop().await;
}

/// Writers that stop in the middle of a packet keep nobody else from writing, and are sent away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_packets_stop_nobody() {
    const LARGE: usize = 15 << 20;
    let mut fixture = Fixture::start("bounds-packets").await;
    let mut stalled = Vec::new();
    for number in 0..9 {
        let file = create(&fixture, &format!("/stalled/{number}"), "one", 64 << 20).await;
        let block = file.add(&fixture, None).await.expect("a block");
        let mut writer = Writer::begin(&fixture, &block.block, SETUP_CREATE, 0).await.expect("it may");
        let sums = LARGE.div_ceil(512) * 4;
        let mut packet = Vec::new();
        PacketHeader { length: LARGE as u32, ..PacketHeader::default() }.encode(sums, &mut packet);
        packet.resize(packet.len() + sums, 0);
        writer.stream.write_all(&packet).await.expect("sent");
        stalled.push(writer);
    }
    let file = Open::new(&fixture, "/healthy").await;
    let block = file.add(&fixture, None).await.expect("a block");
    let bytes = content(BLOCK_SIZE as usize, 4);
    timeout(PATIENCE, file.fill(&fixture, &block.block, 0, &bytes)).await.expect("written beside those that stopped");
    // The first ones are sent away for those that wait, and may come back: nothing was acknowledged.
    for mut writer in stalled.into_iter().take(2) {
        assert_eq!(writer.said_to_the_end().await, [(NO_PACKET, OOB_RESTART)]);
    }
    fixture.stop().await;
}

/// A connection that does not say who it is within the time for it is closed, however it drips; what it says before is small.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn greetings_are_short_and_quick() {
    let mut fixture = Fixture::start("bounds-greetings").await;
    let mut long = Stranger::silent(&fixture).await;
    let length = (HDFS_CONTEXT_MAX as u32 + 1).to_be_bytes();
    long.say(&[&b"hrpc\x09\x00\x00"[..], &length].concat()).await;
    assert_eq!(long.hear().await.map(|answer| answer.status), Some(2), "told why");
    let mut slow = Stranger::silent(&fixture).await;
    // A frame that is long enough for an hour.
    slow.say(b"hrpc\x09\x00\x00\x00\x00\x0F\xFF").await;
    let dripping = async {
        loop {
            slow.say(&[0]).await;
            let mut byte = [0];
            if let Ok(Ok(0) | Err(_)) = timeout(Duration::from_secs(1), slow.stream.read(&mut byte)).await {
                break;
            }
        }
    };
    timeout(4 * HELLO_WAIT_MAX, dripping).await.expect("it is closed");
    fixture.stop().await;
}

/// Clients that announce long calls and send nothing of them keep nobody from making such calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_calls_that_do_not_come_stop_nobody() {
    let mut fixture = Fixture::start("bounds-frames").await;
    let mut stalled = Vec::new();
    for _ in 0..20 {
        let mut stranger = Stranger::named(&fixture, "eve").await;
        stranger.say(&(HDFS_CALL_MAX as u32).to_be_bytes()).await;
        stranger.say(&vec![0; 100_000]).await;
        stalled.push(stranger);
    }
    let mut other = Stranger::named(&fixture, "ada").await;
    let call = other.call("getFileInfo", &PathRequest { path: "/a".repeat(150_000) }.encode_to_vec());
    other.say(&call).await;
    assert_eq!(other.hear().await.map(|answer| answer.status), Some(1), "read, and refused for its length");
    for mut stranger in stalled.into_iter().take(5) {
        assert!(stranger.hear().await.is_none_or(|answer| answer.status == 2), "they are sent away");
    }
    fixture.stop().await;
}

/// A client that wants its data encrypted is told that this is not served, in words that its protocol has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encryption_is_refused_in_words() {
    let mut fixture = Fixture::start("bounds-sasl").await;
    let mut stranger = Stranger::silent(&fixture).await;
    // The magic, and an empty message of the handshake.
    stranger.say(&[0xDE, 0xAD, 0xBE, 0xEF, 2, 8, 0]).await;
    let mut said = Vec::new();
    timeout(PATIENCE, stranger.stream.read_to_end(&mut said)).await.expect("an answer").expect("and an end");
    // DataTransferEncryptorMessageProto: status ERROR, and a message.
    assert_eq!(
        (said.first().map(|length| usize::from(*length) + 1), &said[1..4]),
        (Some(said.len()), &[8, 2, 0x1A][..])
    );
    assert!(String::from_utf8_lossy(&said[5..]).contains("not served"));
    fixture.stop().await;
}

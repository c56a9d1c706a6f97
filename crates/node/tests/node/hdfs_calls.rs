//! Calls to the HDFS gateway in the words of Hadoop RPC: answers, refusals, what makes no sense, and calls that are asked again.

use crate::Fixture;
use crate::hdfs_bounds::{bounded, elsewhere, end, highest};
use crate::hdfs_user::hdfs;
use crate::until;
use base::env::Random;
use base::error::ErrorKind;
use base::limit::HDFS_FRAME_MAX;
use bytes::{Buf, Bytes};
use gateway_hdfs::message::files::{Create, IsFileClosed, RecoverLease};
use gateway_hdfs::message::hdfs::Permission;
use gateway_hdfs::message::names::{
    BoolAnswer, DeleteRequest, ListingAnswer, ListingRequest, MkdirsRequest, PathRequest, RenameRequest, StatusAnswer,
};
use gateway_hdfs::message::rpc::{
    CallHeader, ConnectionContext, RequestHeader, ResponseHeader, SASL_NEGOTIATE, SASL_SUCCESS, Sasl, UserInformation,
};
use gateway_hdfs::message::status::{
    DatanodeReport, DatanodeReportAnswer, GroupsAnswer, Name, SafeMode, ServerDefaultsAnswer, ServiceStatus,
    StorageReportAnswer, StoreStats, VersionAnswer, YesOrNo,
};
use net::Payload;
use net::message::{file, session};
use prost::Message;
use sim::random::SimRandom;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const CLIENT: &str = "org.apache.hadoop.hdfs.protocol.ClientProtocol";
const SIMPLE: &[u8] = b"hrpc\x09\x00\x00";

/// Nothing here takes this long; a test that waits longer has hung.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client of Hadoop RPC.
struct Calls {
    stream: TcpStream,
    client: [u8; 16],
    number: i32,
}

type Refused = (String, String, i32);

fn frame(parts: &[Vec<u8>]) -> Vec<u8> {
    let length: usize = parts.iter().map(Vec::len).sum();
    let mut bytes = (length as u32).to_be_bytes().to_vec();
    parts.iter().for_each(|part| bytes.extend(part));
    bytes
}

fn delimited(message: &impl Message) -> Vec<u8> {
    message.encode_length_delimited_to_vec()
}

fn header(call: i32, client: [u8; 16]) -> RequestHeader {
    let client = Bytes::copy_from_slice(&client);
    RequestHeader { kind: Some(2), operation: Some(0), call, client, retry: Some(0) }
}

fn context(user: &str) -> Vec<u8> {
    let user = UserInformation { effective: Some(user.to_string()), real: None };
    let context = ConnectionContext { user: Some(user), protocol: Some(CLIENT.to_string()) };
    frame(&[delimited(&header(-3, [7; 16])), delimited(&context)])
}

fn call_header(protocol: &str, method: &str) -> CallHeader {
    CallHeader { method: method.to_string().into(), protocol: protocol.to_string().into(), version: 1 }
}

fn call(number: i32, client: [u8; 16], method: &str, request: &impl Message) -> Vec<u8> {
    frame(&[delimited(&header(number, client)), delimited(&call_header(CLIENT, method)), delimited(request)])
}

fn superuser() -> String {
    os::user::current().0
}

fn path(path: &str) -> PathRequest {
    PathRequest { path: path.to_string() }
}

async fn connected(fixture: &Fixture, first: &[u8]) -> Calls {
    let mut stream = TcpStream::connect(hdfs(fixture)).await.expect("it listens");
    stream.set_nodelay(true).expect("set");
    stream.write_all(first).await.expect("sent");
    Calls { stream, client: [7; 16], number: 0 }
}

async fn client(fixture: &Fixture, user: &str) -> Calls {
    connected(fixture, &[SIMPLE, &context(user)].concat()).await
}

impl Calls {
    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("sent");
    }

    /// The next answer: its header and what follows. None: the gateway closed the connection.
    async fn hear(&mut self) -> Option<(ResponseHeader, Bytes)> {
        let heard = async {
            let length = self.stream.read_u32().await.ok()?;
            let mut content = vec![0; length as usize];
            self.stream.read_exact(&mut content).await.expect("a whole frame");
            Some(Bytes::from(content))
        };
        let mut content = tokio::time::timeout(PATIENCE, heard).await.expect("an answer")?;
        let length = prost::decode_length_delimiter(&mut content).expect("a header");
        let header = ResponseHeader::decode(content.split_to(length)).expect("a header");
        if header.status == 0 {
            let length = prost::decode_length_delimiter(&mut content).expect("a message");
            assert_eq!(content.remaining(), length, "nothing follows the message");
        } else {
            assert!(content.is_empty(), "nothing follows a refusal");
        }
        Some((header, content))
    }

    /// The answer to a call, or the refusal's class, text and number.
    async fn ask<A: Message + Default>(&mut self, method: &str, request: &impl Message) -> Result<A, Refused> {
        self.number += 1;
        let (number, client) = (self.number, self.client);
        self.send(&call(number, client, method, request)).await;
        self.answer(number).await
    }

    async fn answer<A: Message + Default>(&mut self, number: i32) -> Result<A, Refused> {
        let (header, message) = self.hear().await.expect("an answer");
        assert_eq!(header.call, number as u32);
        match header.status {
            0 => Ok(A::decode(message).expect("the message that belongs to it")),
            _ => Err((header.class.expect("a class"), header.text.expect("a text"), header.detail.expect("a number"))),
        }
    }

    async fn mkdirs(&mut self, path: &str) -> bool {
        let masked = Permission { bits: 0o755 };
        let ask = MkdirsRequest { path: path.to_string(), masked, parents: true, open: None };
        self.ask::<BoolAnswer>("mkdirs", &ask).await.expect("made").result
    }

    async fn create(&mut self, path: &str) -> Result<StatusAnswer, Refused> {
        let ask = Create {
            path: path.to_string(),
            masked: Permission { bits: 0o644 },
            holder: "writer".to_string(),
            flags: 1,
            parents: true,
            replication: 1,
            block_size: 1 << 20,
            ..Create::default()
        };
        self.ask("create", &ask).await
    }

    async fn is_closed(&mut self, path: &str) -> bool {
        let ask = IsFileClosed { path: path.to_string() };
        self.ask::<BoolAnswer>("isFileClosed", &ask).await.expect("the file is there").result
    }

    async fn recover_lease(&mut self, path: &str) -> bool {
        let ask = RecoverLease { path: path.to_string(), holder: "another".to_string() };
        self.ask::<BoolAnswer>("recoverLease", &ask).await.expect("the file is there").result
    }
}

/// Questions are answered; methods, protocols and versions that there are not are refused in the classes that clients know, and
/// the connection lives on. Pings are not answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_and_refusals() {
    let mut fixture = Fixture::start("calls").await;
    let mut calls = client(&fixture, &superuser()).await;
    let defaults: ServerDefaultsAnswer =
        calls.ask("getServerDefaults", &session::NodeStatus {}).await.expect("answered");
    assert_eq!((defaults.defaults.bytes_per_checksum, defaults.defaults.checksum), (512, Some(2)));
    assert_eq!(defaults.defaults.key_provider.as_deref(), Some(""), "set, and empty");
    let stats: StoreStats = calls.ask("getFsStats", &session::NodeStatus {}).await.expect("answered");
    assert_eq!((stats.capacity, stats.used + stats.remaining), (256 << 20, stats.capacity));
    let root: StatusAnswer = calls.ask("getFileInfo", &path("/")).await.expect("answered");
    assert!(root.status.is_some());
    let (class, text, detail) = calls.ask::<StatusAnswer>("fly", &path("/")).await.expect_err("there is none");
    assert_eq!((class.as_str(), detail), ("org.apache.hadoop.ipc.RpcNoSuchMethodException", 2));
    assert_eq!(text, format!("Unknown method fly called on {CLIENT} protocol."));
    calls.send(&frame(&[delimited(&header(-4, [7; 16]))])).await;
    let old = CallHeader { version: 2, ..call_header(CLIENT, "getFileInfo") };
    for (header_of_call, class, expected) in [
        (call_header("org.example.Flying", "fly"), "org.apache.hadoop.ipc.RpcNoSuchProtocolException", 3),
        (old, "org.apache.hadoop.ipc.RPC$VersionMismatch", 6),
    ] {
        calls.number += 1;
        let number = calls.number;
        calls.send(&frame(&[delimited(&header(number, [7; 16])), delimited(&header_of_call), vec![0]])).await;
        let (said, _, detail) = calls.answer::<BoolAnswer>(number).await.expect_err("refused");
        assert_eq!((said.as_str(), detail), (class, expected));
    }
    let (class, ..) = calls.ask::<StatusAnswer>("getFileInfo", &StoreStats::default()).await.expect_err("no path");
    assert!(class.starts_with("java.io.") || class.starts_with("org.apache.hadoop."), "{class}");
    assert!(calls.mkdirs("/still/here").await);
    fixture.stop().await;
}

/// A client that could prove who it is, is told that it need not, and goes on as every other one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_needs_to_be_proved() {
    let mut fixture = Fixture::start("sasl").await;
    let negotiate = frame(&[delimited(&header(-33, [0; 16])), delimited(&Sasl { state: SASL_NEGOTIATE })]);
    let mut calls = connected(&fixture, &[b"hrpc\x09\x00\xDF".as_slice(), &negotiate].concat()).await;
    let (answered, message) = calls.hear().await.expect("an answer");
    assert_eq!((answered.call as i32, answered.status), (-33, 0));
    assert_eq!(Sasl::decode(message).expect("a message").state, SASL_SUCCESS);
    calls.send(&context("BP-1:blk_1")).await;
    assert!(calls.ask::<StatusAnswer>("getFileInfo", &path("/")).await.is_ok());
    fixture.stop().await;
}

/// What makes no sense is answered so that a Java client tells its user why, the connection is closed, and others live on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense() {
    const SERVER: &str = "org.apache.hadoop.ipc.RpcServerException";
    const VERSION: &str = "org.apache.hadoop.ipc.RPC$VersionMismatch";
    const ACCESS: &str = "org.apache.hadoop.security.AccessControlException";
    let mut fixture = Fixture::start("nonsense").await;
    let mut other = client(&fixture, "ada").await;
    let too_long = (HDFS_FRAME_MAX as u32 + 1).to_be_bytes().to_vec();
    let after_context = |bytes: Vec<u8>| [SIMPLE, &context("ada"), &bytes].concat();
    let simple = |bytes: Vec<u8>| [SIMPLE, &bytes].concat();
    let headed = |header: RequestHeader| frame(&[delimited(&header)]);
    let sasl = |state| frame(&[delimited(&header(-33, [0; 16])), delimited(&Sasl { state })]);
    let nameless = frame(&[delimited(&header(-3, [7; 16])), delimited(&ConnectionContext::default())]);
    for (what, bytes, call, class, detail) in [
        ("an old version", b"hrpc\x08\x00\x00".to_vec(), -1, VERSION, 14),
        ("another magic", b"hrpx\x09\x00\x00".to_vec(), -1, VERSION, 14),
        ("a strange proof", b"hrpc\x09\x00\x50".to_vec(), -1, VERSION, 14),
        ("a long frame", simple(too_long), -1, SERVER, 13),
        ("a negative length", after_context(vec![0xFF; 4]), -1, SERVER, 13),
        ("an empty frame", simple(vec![0; 4]), -1, SERVER, 13),
        ("no header", after_context(frame(&[vec![3, 0xFF, 0xFF, 0xFF]])), -1, SERVER, 13),
        ("another kind", after_context(headed(RequestHeader { kind: Some(1), ..header(4, [7; 16]) })), 4, SERVER, 12),
        (
            "another operation",
            after_context(headed(RequestHeader { operation: None, ..header(4, [7; 16]) })),
            4,
            SERVER,
            12,
        ),
        ("a call without a context", simple(call_bytes(5)), 5, SERVER, 12),
        ("a second context", after_context(context("bob")), -3, SERVER, 12),
        ("an unknown number", after_context(headed(header(-7, [7; 16]))), -7, SERVER, 12),
        ("a proof unasked", simple(sasl(SASL_NEGOTIATE)), -33, SERVER, 12),
        ("a real proof", [b"hrpc\x09\x00\xDF".as_slice(), &sasl(2)].concat(), -33, ACCESS, 15),
        ("nobody", simple(nameless), -3, ACCESS, 15),
        ("a long name", simple(context(&"x".repeat(300))), -3, ACCESS, 15),
        ("no method", after_context(headed(header(6, [7; 16]))), 6, SERVER, 13),
    ] {
        let mut calls = connected(&fixture, &bytes).await;
        let (answer, _) = calls.hear().await.unwrap_or_else(|| panic!("{what}: an answer"));
        assert_eq!((answer.call as i32, answer.status), (call, 2), "{what}: {answer:?}");
        assert_eq!((answer.class.as_deref(), answer.detail), (Some(class), Some(detail)), "{what}: {answer:?}");
        assert!(calls.hear().await.is_none(), "{what}: closed");
    }
    let mut person = connected(&fixture, b"GET / HTTP/1.1\r\nHost: here\r\n\r\n").await;
    let mut page = String::new();
    person.stream.read_to_string(&mut page).await.expect("a page");
    assert!(page.starts_with("HTTP/1.1 404 ") && page.contains("fs.defaultFS"), "{page}");
    assert!(other.ask::<StatusAnswer>("getFileInfo", &path("/")).await.is_ok());
    fixture.stop().await;
}

fn call_bytes(number: i32) -> Vec<u8> {
    call(number, [7; 16], "getFileInfo", &path("/"))
}

/// Far more calls than are worked on at once, sent in one piece by a client that reads nothing until it has sent all and then
/// closes its half: each is answered once. Large answers wait until they are taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_at_once() {
    let mut fixture = Fixture::start("many").await;
    let mut maker = client(&fixture, &superuser()).await;
    for entry in 0..300 {
        assert!(maker.mkdirs(&format!("/d/{entry:0100}")).await);
    }
    let list = ListingRequest { path: "/d".to_string(), after: Vec::new(), located: false };
    let mut calls = client(&fixture, "ada").await;
    let numbers: BTreeSet<i32> = (0..3000).collect();
    let mut bytes = Vec::new();
    for number in &numbers {
        match number % 10 {
            0 => bytes.extend(call(*number, [7; 16], "getListing", &list)),
            _ => bytes.extend(call(*number, [7; 16], "getFileInfo", &path("/d"))),
        }
    }
    calls.send(&bytes).await;
    calls.stream.shutdown().await.expect("half closed");
    let mut left = numbers;
    while let Some((header, message)) = calls.hear().await {
        assert_eq!(header.status, 0, "{header:?}");
        let number = header.call as i32;
        assert!(left.remove(&number), "{number} is answered once");
        if number % 10 == 0 {
            let listing = ListingAnswer::decode(message).expect("a listing").listing.expect("it is there");
            assert_eq!(listing.entries.len(), 300);
        }
    }
    assert!(left.is_empty(), "{} are not answered", left.len());
    fixture.stop().await;
}

/// A change that is asked for again under the same name and number is answered as before and not made again, over another
/// connection too, and while it is being made; under another number it is another change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_made_once() {
    let mut fixture = Fixture::start("once").await;
    let mut calls = client(&fixture, &superuser()).await;
    assert!(calls.mkdirs("/from").await);
    let rename = RenameRequest { from: "/from".to_string(), to: "/to".to_string() };
    assert!(calls.ask::<BoolAnswer>("rename", &rename).await.expect("answered").result);
    let number = calls.number;
    let mut again = client(&fixture, &superuser()).await;
    again.number = number - 1;
    assert!(again.ask::<BoolAnswer>("rename", &rename).await.expect("answered").result, "as before");
    assert!(!again.ask::<BoolAnswer>("rename", &rename).await.expect("answered").result, "there is nothing to rename");
    for round in 100..150 {
        let directory = format!("/to/{round}");
        assert!(calls.mkdirs(&directory).await);
        let delete = DeleteRequest { path: directory, recursive: false };
        let mut askers = Vec::new();
        for _ in 0..4 {
            let mut asker = client(&fixture, &superuser()).await;
            asker.send(&call(round, [9; 16], "delete", &delete)).await;
            askers.push(asker);
        }
        for mut asker in askers {
            assert!(asker.answer::<BoolAnswer>(round).await.expect("answered").result);
        }
    }
    fixture.stop().await;
}

/// In safe mode changes are refused and questions answered; only the superuser turns it on and off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn safe_mode() {
    let mut fixture = Fixture::start("safe").await;
    let (mut root, mut ada) = (client(&fixture, &superuser()).await, client(&fixture, "ada").await);
    let (class, ..) = ada.ask::<YesOrNo>("setSafeMode", &SafeMode { action: 2 }).await.expect_err("refused");
    assert_eq!(class, "org.apache.hadoop.security.AccessControlException");
    for (action, on) in [(3, false), (2, true), (3, true)] {
        let mode = root.ask::<YesOrNo>("setSafeMode", &SafeMode { action }).await.expect("answered");
        assert_eq!(mode.yes, on);
    }
    let (class, ..) = root.create("/f").await.expect_err("refused");
    assert_eq!(class, "org.apache.hadoop.hdfs.server.namenode.SafeModeException");
    assert!(ada.ask::<StatusAnswer>("getFileInfo", &path("/")).await.is_ok());
    for action in [1, 4] {
        let mode = root.ask::<YesOrNo>("setSafeMode", &SafeMode { action }).await.expect("answered");
        assert!(!mode.yes);
    }
    assert!(root.create("/f").await.is_ok());
    fixture.stop().await;
}

/// What administrators' commands ask beside ClientProtocol is answered; what only the superuser may ask is refused to others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn administrators() {
    let mut fixture = Fixture::start("admin").await;
    let (mut root, mut ada) = (client(&fixture, &superuser()).await, client(&fixture, "no such user").await);
    let report = DatanodeReport { kind: 2 };
    let live: DatanodeReportAnswer = root.ask("getDatanodeReport", &report).await.expect("answered");
    let [datanode] = live.datanodes.as_slice() else { panic!("one server: {live:?}") };
    let address = fixture.running.as_ref().and_then(|running| running.hdfs.clone()).expect("it runs");
    assert_eq!(format!("{}:{}", datanode.id.ip, datanode.id.transfer_port), address);
    assert_eq!((datanode.id.ipc_port, datanode.capacity), (datanode.id.transfer_port, Some(256 << 20)));
    let dead: DatanodeReportAnswer =
        root.ask("getDatanodeReport", &DatanodeReport { kind: 3 }).await.expect("answered");
    assert!(dead.datanodes.is_empty());
    let storages: StorageReportAnswer = root.ask("getDatanodeStorageReport", &report).await.expect("answered");
    assert_eq!((storages.reports.len(), storages.reports[0].storages.len()), (1, 1));
    let refused = ada.ask::<DatanodeReportAnswer>("getDatanodeReport", &report).await.expect_err("refused");
    assert_eq!(refused.0, "org.apache.hadoop.security.AccessControlException");
    assert_eq!(
        refused.1,
        "Access denied for user no such user. Superuser privilege is required for operation datanodeReport"
    );
    for method in
        ["createSnapshot", "renameSnapshot", "deleteSnapshot", "renewDelegationToken", "cancelDelegationToken"]
    {
        let refused = root.ask::<BoolAnswer>(method, &path("/")).await.expect_err("refused");
        let text = format!("{method} is not supported by Stormwell; nothing was changed");
        assert_eq!((refused.0.as_str(), refused.1), ("java.lang.UnsupportedOperationException", text));
    }
    let name = |name: &str| Name { name: Some(name.to_string()) };
    for (protocol, method, request) in [
        ("org.apache.hadoop.hdfs.server.protocol.NamenodeProtocol", "versionRequest", name("")),
        ("org.apache.hadoop.ha.HAServiceProtocol", "getServiceStatus", name("")),
        ("org.apache.hadoop.security.RefreshUserMappingsProtocol", "refreshUserToGroupsMappings", name("")),
        ("org.apache.hadoop.ipc.RefreshCallQueueProtocol", "refreshCallQueue", name("")),
        ("org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol", "getDatanodeInfo", name("")),
        ("org.apache.hadoop.tools.GetUserMappingsProtocol", "getGroupsForUser", name(&superuser())),
    ] {
        root.number += 1;
        let number = root.number;
        let header = delimited(&header(number, [7; 16]));
        root.send(&frame(&[header, delimited(&call_header(protocol, method)), delimited(&request)])).await;
        match method {
            "versionRequest" => {
                let answer = root.answer::<VersionAnswer>(number).await.expect("answered");
                assert_eq!((answer.info.software.as_str(), answer.info.storage.layout as i32), ("3.4.3", -67));
            }
            "getServiceStatus" => {
                assert_eq!(root.answer::<ServiceStatus>(number).await.expect("answered").state, 1, "active");
            }
            "getGroupsForUser" => {
                let groups = root.answer::<GroupsAnswer>(number).await.expect("answered").groups;
                assert_eq!(groups.first(), Some(&os::user::current().1));
            }
            _ => drop(root.answer::<session::NodeStatus>(number).await.expect("answered")),
        }
    }
    fixture.stop().await;
}

/// The gateway's session does not end while the node serves, however long the machine stood still: files stay open and calls go
/// on. When the node stops, open files are closed, and stay their holders' until their leases are asked back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lives_as_long_as_the_node() {
    let mut fixture = Fixture::start("lives").await;
    let other = fixture.link(5).await;
    let mut calls = client(&fixture, &superuser()).await;
    calls.create("/open").await.expect("made");
    assert!(!calls.is_closed("/open").await);
    fixture.clock.ahead.fetch_add(60, std::sync::atomic::Ordering::Relaxed);
    // The clock is ahead of every session's lease; those that nobody keeps end when the node looks.
    let ended = async {
        let ask = file::Delete { path: "/x".to_string(), recursive: false, ..file::Delete::default() };
        while !other.call(&ask, Payload::empty()).await.is_err_and(|error| error.kind() == ErrorKind::Stale) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("the other session ends");
    assert!(calls.mkdirs("/later").await);
    assert!(!calls.is_closed("/open").await);
    other.close();
    fixture.stop().await;
    fixture.run().await;
    let mut calls = client(&fixture, &superuser()).await;
    let native = fixture.link(6).await;
    let look = file::Stat { path: "/open".to_string() };
    let is_open = async || native.call(&look, Payload::empty()).await.expect("it is there").0.open;
    until("long before a session ends for want of renewal", async || !is_open().await).await;
    assert!(!calls.is_closed("/open").await, "its holder may go on with it");
    assert!(calls.recover_lease("/open").await);
    assert!(calls.is_closed("/open").await);
    native.close();
    fixture.stop().await;
}

/// Every method with damaged requests, with fields that come thousands of times and with long paths, and damaged frames: the gateway
/// answers or closes the connection, takes no more memory than its budgets allow, and goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fuzz_calls() {
    let fixture = elsewhere("fuzzcalls").await;
    let before = highest(&fixture);
    let mut good = client(&fixture, &superuser()).await;
    for round in sim::fuzz::seeds(40) {
        let random = SimRandom::new(round);
        let user = if random.one_in(2) { superuser() } else { "eve".to_string() };
        let mut calls = client(&fixture, &user).await;
        let asked = 60;
        let mut bytes: Vec<u8> = (0..asked).flat_map(|number| damaged_call(&random, number)).collect();
        let cut = random.one_in(4);
        if cut {
            for _ in 0..=random.below(5) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << random.below(8);
            }
            bytes.truncate(random.below(bytes.len() as u64) as usize);
        }
        // A connection that was closed at the first nonsense takes no more.
        let _sent = calls.stream.write_all(&bytes).await;
        let _half_closed = calls.stream.shutdown().await;
        let mut answered = 0;
        let all = async {
            while calls.hear_any().await {
                answered += 1
            }
        };
        let repeat = "cargo test --release -p node fuzz_calls";
        tokio::time::timeout(PATIENCE, all).await.unwrap_or_else(|_| panic!("round {round} has no end: {repeat}"));
        assert!(cut || answered == asked, "round {round}: {answered} of {asked} were answered: {repeat}");
        let root = good.ask::<StatusAnswer>("getFileInfo", &path("/")).await;
        assert!(root.is_ok_and(|root| root.status.is_some()), "round {round}: {repeat}");
        bounded(&fixture, before, &format!("round {round}: {repeat}")).await;
    }
    end(fixture).await;
}

impl Calls {
    /// Reads one frame, whatever is in it. False at the end.
    async fn hear_any(&mut self) -> bool {
        let Ok(length) = self.stream.read_u32().await else { return false };
        self.stream.read_exact(&mut vec![0; length as usize]).await.is_ok()
    }
}

const METHODS: [&str; 57] = [
    "getBlockLocations",
    "getServerDefaults",
    "create",
    "append",
    "setReplication",
    "setPermission",
    "setOwner",
    "abandonBlock",
    "addBlock",
    "getAdditionalDatanode",
    "complete",
    "reportBadBlocks",
    "concat",
    "truncate",
    "rename",
    "rename2",
    "delete",
    "mkdirs",
    "getListing",
    "getBatchedListing",
    "renewLease",
    "recoverLease",
    "getFsStats",
    "getDatanodeReport",
    "getDatanodeStorageReport",
    "getPreferredBlockSize",
    "getFileInfo",
    "getLocatedFileInfo",
    "getFileLinkInfo",
    "getContentSummary",
    "getQuotaUsage",
    "setQuota",
    "fsync",
    "setTimes",
    "updateBlockForPipeline",
    "updatePipeline",
    "isFileClosed",
    "checkAccess",
    "setStoragePolicy",
    "unsetStoragePolicy",
    "getStoragePolicy",
    "getStoragePolicies",
    "modifyAclEntries",
    "removeAclEntries",
    "removeAcl",
    "setAcl",
    "getAclStatus",
    "setXAttr",
    "getXAttrs",
    "listXAttrs",
    "removeXAttr",
    "listOpenFiles",
    "setErasureCodingPolicy",
    "getErasureCodingPolicy",
    "getEnclosingRoot",
    "saveNamespace",
    "listCorruptFileBlocks",
];

/// A well-formed frame with a call of some method whose request is anything: fields of all kinds, paths among them.
fn damaged_call(random: &SimRandom, number: i32) -> Vec<u8> {
    let method = METHODS[random.below(METHODS.len() as u64) as usize];
    let mut request = Vec::new();
    for tag in 1..=random.below(9) as u8 {
        // So often that, decoded without a bound, it takes a hundred times what it takes here.
        if random.one_in(16) {
            request.extend([tag * 8 + 2, 0].repeat(random.below(20_000) as usize));
        }
        match random.below(6) {
            0 => (),
            5 if random.one_in(4) => {
                let path = "/a".repeat(random.below(20_000) as usize);
                request.push(tag * 8 + 2);
                prost::encoding::encode_varint(path.len() as u64, &mut request);
                request.extend(path.as_bytes());
            }
            1 => {
                request.push(tag * 8);
                prost::encoding::encode_varint(random.next() >> random.below(64), &mut request);
            }
            2 => {
                request.push(tag * 8 + 2);
                let length = random.below(200);
                prost::encoding::encode_varint(length, &mut request);
                request.extend((0..length).map(|at| b"/a\0.\xFF/x"[((at + length) % 7) as usize]));
            }
            _ => {
                let some = ["/", "/a", "/a/b", "/a/b/c", "writer", "", "user.x"][random.below(7) as usize];
                request.push(tag * 8 + 2);
                prost::encoding::encode_varint(some.len() as u64, &mut request);
                request.extend(some.as_bytes());
            }
        }
    }
    if random.one_in(8) {
        request.truncate(random.below(request.len() as u64 + 1) as usize);
    }
    let mut delimited_request = Vec::new();
    prost::encoding::encode_varint(request.len() as u64, &mut delimited_request);
    delimited_request.extend(request);
    frame(&[delimited(&header(number, [7; 16])), delimited(&call_header(CLIENT, method)), delimited_request])
}

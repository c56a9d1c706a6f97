//! What each client of the HDFS gateway keeps however much others take: memory for a call, turns, leases; and what is true of a user and
//! of a connection while others go down.

use crate::Fixture;
use crate::hdfs_bounds::{PATIENCE, Stranger, bounded, create, elsewhere, end, framed, highest};
use crate::hdfs_read::{Reader, ask as ask_read};
use crate::hdfs_user::{CLIENT_PROTOCOL, User, content};
use crate::hdfs_write::{BLOCK_SIZE, Open, PACKET, Writer, ask, with_length};
use base::limit::{CONNECTIONS_MAX, HDFS_LARGE_CALL, HDFS_OPEN_FILES_EACH, HDFS_WRITE_MEMORY_MAX, HOLDERS_UNTOLD_MAX};
use base::net::Net;
use base::watched::Stop;
use gateway_hdfs::message::files::{BlockAnswer, CREATE, Create, GetAdditionalDatanode, Nothing, RenewLease};
use gateway_hdfs::message::hdfs::{DatanodeInfo, ExtendedBlock};
use gateway_hdfs::message::names::{EmptyAnswer, MkdirsRequest, PathRequest, SetPermissionRequest, StatusAnswer};
use gateway_hdfs::message::rpc::CALL_PING;
use gateway_hdfs::message::transfer::{
    BaseHeader, BlockChecksum, CHECKSUM_CRC32C, Checksum, ERROR, NO_PACKET, OOB_RESTART, OperationHeader, PacketHeader,
    SETUP_CREATE, SETUP_STREAMING_RECOVERY, SUCCESS, WriteBlock,
};
use prost::Message;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// A call with a path of 5,000 bytes, which is more than there may be: it needs more than a connection's own memory, and is refused for it.
fn longer_call(stranger: &mut Stranger) -> Vec<u8> {
    stranger.call("getFileInfo", &PathRequest { path: "/a".repeat(2500) }.encode_to_vec())
}

/// Calls of both kinds are answered on new connections: small ones, and larger ones.
async fn answered(fixture: &Fixture, user: &str) {
    for _ in 0..20 {
        let mut other = Stranger::named(fixture, user).await;
        let small = other.call("getFileInfo", &PathRequest { path: "/".to_string() }.encode_to_vec());
        other.say(&small).await;
        assert_eq!(other.hear().await.map(|answer| answer.status), Some(0));
        let longer = longer_call(&mut other);
        other.say(&longer).await;
        assert_eq!(other.hear().await.map(|answer| answer.status), Some(1), "it is refused for its length, and read");
    }
}

/// Pings, however long, hold nothing: two thousand connections that sent one leave all memory for answers to others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn padded_pings_hold_nothing() {
    os::machine::raise_open_files().expect("a system that says it");
    let fixture = elsewhere("shares-pings").await;
    let header = Stranger::header(CALL_PING);
    let ping = framed(&[&header, &vec![0; HDFS_LARGE_CALL - 4 - header.len()]]);
    let mut strangers = Vec::new();
    for _ in 0..2000 {
        let mut stranger = Stranger::named(&fixture, "eve").await;
        stranger.say(&ping).await;
        strangers.push(stranger);
    }
    // One after another, so that the last comes when all pings have been taken.
    for _ in 0..10 {
        answered(&fixture, "ada").await;
    }
    drop(strangers);
    end(fixture).await;
}

/// Summaries of a large tree, asked for on many connections at once, with as much around them as is read: others are answered meanwhile,
/// and when those clients are gone nobody walks for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_calls_stop_nobody() {
    const DIRECTORIES: usize = 4000;
    let fixture = elsewhere("shares-waiting").await;
    let mut root = Stranger::named(&fixture, &os::user::current().0).await;
    for first in (0..DIRECTORIES).step_by(100) {
        for number in first..first + 100 {
            let masked = gateway_hdfs::message::hdfs::Permission { bits: 0o755 };
            let make =
                MkdirsRequest { path: format!("/t/{number}"), masked, parents: true, ..MkdirsRequest::default() };
            let call = root.call("mkdirs", &make.encode_to_vec());
            root.say(&call).await;
        }
        for _ in 0..100 {
            assert_eq!(root.hear().await.map(|answer| answer.status), Some(0));
        }
    }
    let path = PathRequest { path: "/t".to_string() }.encode_to_vec();
    // A field that nobody knows.
    let padding = vec![0; HDFS_LARGE_CALL - 200 - path.len()];
    let mut request = [path.clone(), vec![15 << 3 | 2]].concat();
    prost::encoding::encode_varint(padding.len() as u64, &mut request);
    request.extend(padding);
    let mut strangers = Vec::new();
    for _ in 0..40 {
        let mut stranger = Stranger::named(&fixture, "eve").await;
        let calls: Vec<u8> = (0..39).flat_map(|_| stranger.call("getContentSummary", &request)).collect();
        stranger.say(&calls).await;
        strangers.push(stranger);
    }
    answered(&fixture, "ada").await;
    for stranger in strangers {
        stranger.stream.set_zero_linger().expect("set");
    }
    // As the same user, so that it is behind whatever still waits for those.
    let mut eve = Stranger::named(&fixture, "eve").await;
    let call = eve.call("getContentSummary", &path);
    eve.say(&call).await;
    assert_eq!(eve.hear().await.map(|answer| answer.status), Some(0));
    end(fixture).await;
}

/// Large packets of which nothing but the checksums came hold no more than their memory's budget, and checksums are of 512 bytes at least.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checksums_wait_for_their_packets_memory() {
    const LARGE: usize = 15 << 20;
    let fixture = elsewhere("shares-checksums").await;
    let file = Open::new(&fixture, "/file").await;
    let block = file.add(&fixture, None).await.expect("a block").block;
    let before = highest(&fixture);
    for covered in [64, 512] {
        let base = BaseHeader { block: block.clone(), token: None };
        let request = WriteBlock {
            header: OperationHeader { base, client: "one".to_string() },
            stage: SETUP_CREATE,
            checksum: Checksum { kind: CHECKSUM_CRC32C, bytes: covered as u32 },
            ..WriteBlock::default()
        };
        let mut bytes = vec![0, 28, 80];
        request.encode_length_delimited(&mut bytes).expect("room");
        let sums = LARGE.div_ceil(covered) * 4;
        PacketHeader { length: LARGE as u32, ..PacketHeader::default() }.encode(sums, &mut bytes);
        bytes.resize(bytes.len() + sums, 0);
        let mut writers = Vec::new();
        for _ in 0..500 {
            let mut stranger = Stranger::silent(&fixture).await;
            let answered = async {
                stranger.say(&bytes).await;
                // The answer's length, and its first field: how it went.
                let mut answer = [0; 3];
                stranger.stream.read_exact(&mut answer).await.map(|_| answer)
            };
            let [_, field, status] = timeout(PATIENCE, answered).await.expect("in time").expect("an answer");
            assert_eq!((field, i32::from(status)), (8, if covered == 512 { SUCCESS } else { ERROR }), "{covered}");
            writers.push(stranger);
        }
        bounded(&fixture, before, &format!("checksums of {covered} bytes")).await;
    }
    end(fixture).await;
}

/// A client that stands still within a packet, as a paused one does, gives its memory to those who want it: it is told that the server
/// restarts, may send on without its connection breaking, and goes on behind what was acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_writers_go_on() {
    const PIECE: usize = 1 << 20;
    let fixture = elsewhere("shares-paused").await;
    let bytes = content(200_000, 9);
    let (before, behind) = bytes.split_at(70_000);
    let file = Open::new(&fixture, "/paused").await;
    let block = file.add(&fixture, None).await.expect("a block").block;
    let mut writer = Writer::begin(&fixture, &block, SETUP_CREATE, 0).await.expect("it may write");
    writer.send_all(0, before, PACKET).await;
    let packet = writer.packet(before.len() as u64, behind, false, false);
    let (half, rest) = packet.split_at(packet.len() / 2);
    writer.stream.write_all(half).await.expect("sent");
    // All memory for what is written, by others that stand still as well; then one that does not.
    let other = Open::new(&fixture, "/others").await;
    let others = other.add(&fixture, None).await.expect("a block").block;
    let mut standing = Vec::new();
    for _ in 0..HDFS_WRITE_MEMORY_MAX as usize / PIECE + 1 {
        let mut writer = Writer::begin(&fixture, &others, SETUP_CREATE, 0).await.expect("it may write");
        let packet = writer.packet(0, &content(60_000, 1), false, false);
        writer.stream.write_all(&packet[..30_000]).await.expect("sent");
        standing.push(writer);
    }
    let healthy = Open::new(&fixture, "/healthy").await;
    let healthy_block = healthy.add(&fixture, None).await.expect("a block");
    timeout(PATIENCE, healthy.fill(&fixture, &healthy_block.block, 0, &bytes)).await.expect("it has its turn");
    let told = timeout(PATIENCE, writer.hear()).await.expect("in time").expect("it is told");
    assert_eq!(told, (NO_PACKET, OOB_RESTART));
    // It goes on and has not heard it yet.
    for part in rest.chunks(10_000) {
        writer.stream.write_all(part).await.expect("the connection is there");
    }
    assert_eq!(writer.said_to_the_end().await, [], "nothing of that packet is acknowledged");
    let renewed = file.update(&fixture, &block).await.expect("it goes on");
    let mut onward =
        Writer::begin(&fixture, &renewed, SETUP_STREAMING_RECOVERY, renewed.generation_stamp).await.expect("it may");
    onward.send_all(before.len() as u64, behind, PACKET).await;
    onward.end(bytes.len() as u64).await;
    let last = ExtendedBlock { length: Some(bytes.len() as u64), ..renewed };
    assert_eq!(file.complete(&fixture, Some(&last)).await, Ok(true));
    let mut reader = Reader::connect(&fixture).await;
    let read = reader.read(&ask_read(&last, 0, bytes.len() as u64)).await.expect("it is there");
    assert!(read.bytes == bytes);
    drop(standing);
    end(fixture).await;
}

/// Reads of a large file whose bytes nobody takes hold no more than their budget, and another client reads meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_reads_stop_nobody() {
    let fixture = elsewhere("shares-reads").await;
    let bytes = content(32 << 20, 5);
    let file = Open::new(&fixture, "/file").await;
    let block = file.add(&fixture, None).await.expect("a block");
    file.fill(&fixture, &block.block, 0, &bytes).await;
    let last = with_length(&block, bytes.len() as u64);
    file.complete(&fixture, Some(&last)).await.expect("closed");
    let before = highest(&fixture);
    // As it is shown now: blocks of the file's own size, each of which leads on to the end.
    let ask = ask_read(&last, 0, bytes.len() as u64);
    let mut unread = Vec::new();
    for _ in 0..500 {
        let mut reader = Reader::connect(&fixture).await;
        reader.say(81, &ask).await;
        unread.push(reader);
    }
    let mut healthy = Reader::connect(&fixture).await;
    let read =
        timeout(PATIENCE, healthy.read(&ask)).await.expect("beside those that do not read").expect("it is there");
    assert!(read.bytes == bytes);
    bounded(&fixture, before, "500 reads").await;
    drop(unread);
    end(fixture).await;
}

/// Renewals for holders that do not exist, more of them than are noted, leave others theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invented_holders_renew_nothing_away() {
    let mut fixture = Fixture::start("shares-holders").await;
    let mut stranger = Stranger::named(&fixture, "eve").await;
    for first in (0..HOLDERS_UNTOLD_MAX + 200).step_by(200) {
        for number in first..first + 200 {
            let call = stranger.call("renewLease", &RenewLease { holder: format!("h{number}") }.encode_to_vec());
            stranger.say(&call).await;
        }
        for _ in 0..200 {
            stranger.hear().await.expect("an answer");
        }
    }
    ask::<Nothing>(&fixture, "renewLease", &RenewLease { holder: "ada".to_string() }).await.expect("renewed");
    fixture.stop().await;
}

/// A client names no more servers than a pipeline may have when it asks for one more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_servers_are_named() {
    let mut fixture = Fixture::start("shares-servers").await;
    let file = Open::new(&fixture, "/file").await;
    let block = file.add(&fixture, None).await.expect("a block").block;
    for (count, served) in [(3, true), (1000, false)] {
        let more = GetAdditionalDatanode {
            path: file.path.clone(),
            block: block.clone(),
            existing: vec![DatanodeInfo::default(); count],
            holder: file.holder.clone(),
            inode: Some(file.inode),
            ..GetAdditionalDatanode::default()
        };
        let answer = ask::<BlockAnswer>(&fixture, "getAdditionalDatanode", &more).await;
        assert_eq!(answer.is_ok(), served, "{count}: {answer:?}");
    }
    fixture.stop().await;
}

/// A second gateway of the node, in this process, which looks groups up as the test says and panics for one user.
async fn gateway(fixture: &Fixture, leads: Arc<AtomicBool>, connections: usize) -> (String, Stop) {
    let listener = os::net::TcpNet.listen("127.0.0.1:0").await.expect("it listens");
    let address = listener.address();
    let groups_of = move |user: &str| match user {
        "faulty" => panic!("planted"),
        "ada" if leads.load(Ordering::Relaxed) => vec!["leaders".to_string()],
        _ => Vec::new(),
    };
    let on_trouble = |said: String| assert!(!said.contains("version 7"), "planted");
    let settings = gateway_hdfs::Settings {
        client: crate::hdfs_user::client(fixture).await,
        clock: fixture.clock.clone(),
        random: Arc::new(os::random::SystemRandom),
        superuser: os::user::current().0,
        groups_of: Arc::new(groups_of),
        on_trouble: Arc::new(on_trouble),
        on_request: Arc::new(|_| ()),
        min_block_size: 1024,
        connections,
        planted: None,
    };
    let (stop, stopped) = Stop::new();
    tokio::spawn(gateway_hdfs::Gateway::serve(settings, listener, stopped));
    (address, stop)
}

/// Who comes into a group, or leaves it, has its rights, or has them no more, over the connection that it has: within seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_change_under_a_connection() {
    let mut fixture = Fixture::start("shares-groups").await;
    let leads = Arc::new(AtomicBool::new(false));
    let (address, _stop) = gateway(&fixture, leads.clone(), CONNECTIONS_MAX).await;
    let mut root = User::superuser(&fixture).await;
    let permission = gateway_hdfs::message::hdfs::Permission { bits: 0o750 };
    let make =
        MkdirsRequest { path: "/led/below".to_string(), masked: permission, parents: true, ..MkdirsRequest::default() };
    let _made: gateway_hdfs::message::names::BoolAnswer =
        root.call(CLIENT_PROTOCOL, "mkdirs", &make).await.expect("made");
    let set = SetPermissionRequest { path: "/led".to_string(), permission };
    let _set: EmptyAnswer = root.call(CLIENT_PROTOCOL, "setPermission", &set).await.expect("set");
    let own = gateway_hdfs::message::names::SetOwnerRequest {
        path: "/led".to_string(),
        owner: None,
        group: Some("leaders".to_string()),
    };
    let _owned: EmptyAnswer = root.call(CLIENT_PROTOCOL, "setOwner", &own).await.expect("set");
    let mut ada = User::connect_to(&address, "ada").await;
    let below = PathRequest { path: "/led/below".to_string() };
    for now in [false, true, false] {
        leads.store(now, Ordering::Relaxed);
        fixture.clock.ahead.fetch_add(11, Ordering::Relaxed);
        let seen: Result<StatusAnswer, _> = ada.call(CLIENT_PROTOCOL, "getFileInfo", &below).await;
        assert_eq!(seen.is_ok(), now, "{seen:?}");
    }
    fixture.stop().await;
}

/// A fault of ours in the task of a connection, in a call that it has under way, or in a data connection, ends that connection, is counted,
/// and leaves all others alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_ends_one_connection() {
    let mut fixture = Fixture::start("shares-faults").await;
    let (address, _stop) = gateway(&fixture, Arc::default(), CONNECTIONS_MAX).await;
    let mut ada = User::connect_to(&address, "ada").await;
    let root = PathRequest { path: "/".to_string() };
    let before = base::fault::contained_faults();
    // While it learns who calls; within a call; in a data connection that speaks another version.
    let mut named = Stranger::named_at(&address, "faulty").await;
    let mut called = Stranger::named_at(&address, "eve").await;
    let groups = PathRequest { path: "faulty".to_string() };
    let call =
        called.call_of("org.apache.hadoop.tools.GetUserMappingsProtocol", "getGroupsForUser", &groups.encode_to_vec());
    called.say(&call).await;
    let mut data = Stranger::at(&address).await;
    data.say(&[0, 7, 80, 0]).await;
    for stranger in [&mut named, &mut called, &mut data] {
        let mut byte = [0];
        let read = timeout(PATIENCE, stranger.stream.read(&mut byte)).await.expect("it ends");
        assert!(!read.is_ok_and(|read| read > 0), "without a word");
    }
    crate::until("all are counted", async || base::fault::contained_faults() >= before + 3).await;
    let seen: Result<StatusAnswer, _> = ada.call(CLIENT_PROTOCOL, "getFileInfo", &root).await;
    assert!(seen.is_ok(), "others go on: {seen:?}");
    let mut bob = User::connect_to(&address, "bob").await;
    let seen: Result<StatusAnswer, _> = bob.call(CLIENT_PROTOCOL, "getFileInfo", &root).await;
    assert!(seen.is_ok(), "and come: {seen:?}");
    fixture.stop().await;
}

/// A client that has not said yet who it is, and has to leave when others come, is told why in the words of Hadoop RPC before its connection
/// ends, and that it may try again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_to_leave_is_told_why() {
    const PLACES: usize = 16;
    let mut fixture = Fixture::start("shares-told").await;
    let (address, _stop) = gateway(&fixture, Arc::default(), PLACES).await;
    let mut silent = Stranger::at(&address).await;
    let mut others = Vec::new();
    for _ in 0..PLACES / 4 {
        others.push(Stranger::at(&address).await);
    }
    let said = silent.hear().await.expect("a word");
    assert_eq!(said.class.as_deref(), Some("org.apache.hadoop.ipc.RetriableException"), "{said:?}");
    assert!(said.text.as_deref().is_some_and(|text| text.contains("have not said who they are")), "{said:?}");
    assert!(silent.hear().await.is_none(), "its connection ends");
    fixture.stop().await;
}

/// More connections than there are places, all of which say who they are and nothing more, keep nobody out: those that rest longest go.
/// What is open goes on: a stream beside them, and its file over a new connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_keep_nobody_out() {
    os::machine::raise_open_files().expect("a system that says it");
    let fixture = elsewhere("shares-idle").await;
    let file = Open::new(&fixture, "/file").await;
    let block = file.add(&fixture, None).await.expect("a block");
    let mut stream = Writer::begin(&fixture, &block.block, SETUP_CREATE, 0).await.expect("it may");
    stream.send_all(0, b"before ", 512).await;
    let mut idle = Vec::new();
    for _ in 0..CONNECTIONS_MAX + 100 {
        idle.push(Stranger::named(&fixture, "eve").await);
    }
    answered(&fixture, "ada").await;
    assert!(idle[0].hear().await.is_none(), "the first one ends, without a word that answers nothing");
    stream.send_all(7, b"and behind", 512).await;
    stream.end(17).await;
    assert_eq!(file.complete(&fixture, Some(&with_length(&block, 17))).await, Ok(true));
    drop(idle);
    end(fixture).await;
}

/// One user, whatever the names of its holders, has half of the files that may be open, and no more; others go on making theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_user_has_half_of_the_open_files() {
    const AT_ONCE: usize = 128;
    let fixture = elsewhere("shares-open").await;
    let mut root = User::superuser(&fixture).await;
    let masked = gateway_hdfs::message::hdfs::Permission { bits: 0o777 };
    let make = MkdirsRequest { path: "/open".to_string(), masked, parents: true, ..MkdirsRequest::default() };
    let _made: gateway_hdfs::message::names::BoolAnswer =
        root.call(CLIENT_PROTOCOL, "mkdirs", &make).await.expect("made");
    let set = SetPermissionRequest { path: "/open".to_string(), permission: masked };
    let _set: EmptyAnswer = root.call(CLIENT_PROTOCOL, "setPermission", &set).await.expect("set");
    let making = |number: usize| Create {
        path: format!("/open/{number}"),
        masked: gateway_hdfs::message::hdfs::Permission { bits: 0o644 },
        holder: format!("holder {}", number % 1000),
        flags: CREATE,
        replication: 1,
        block_size: BLOCK_SIZE,
        ..Create::default()
    };
    let mut eve = Stranger::named(&fixture, "eve").await;
    for first in (0..HDFS_OPEN_FILES_EACH).step_by(AT_ONCE) {
        for number in first..first + AT_ONCE {
            let call = eve.call("create", &making(number).encode_to_vec());
            eve.say(&call).await;
        }
        for _ in 0..AT_ONCE {
            assert_eq!(eve.hear().await.map(|answer| answer.status), Some(0), "behind {first}");
        }
    }
    let call = eve.call("create", &making(HDFS_OPEN_FILES_EACH).encode_to_vec());
    eve.say(&call).await;
    let refused = eve.hear().await.expect("an answer");
    assert!(refused.status == 1 && refused.text.is_some_and(|text| text.contains("too many files")), "one more");
    for user in ["ada", &os::user::current().0] {
        let mut other = Stranger::named(&fixture, user).await;
        let create = Create { path: format!("/open/of {user}"), ..making(0) };
        let call = other.call("create", &create.encode_to_vec());
        other.say(&call).await;
        assert_eq!(other.hear().await.map(|answer| answer.status), Some(0), "{user}");
    }
    end(fixture).await;
}

/// Checksums of a large block, asked for by thousands who do not wait for them, are not made: who waits gets one. Thousands who do wait keep
/// nobody out: they rest until it is their turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checksums_are_made_for_those_who_wait() {
    os::machine::raise_open_files().expect("a system that says it");
    let fixture = elsewhere("shares-sums").await;
    let bytes = content(64 << 20, 8);
    // One block of all its bytes: it is as large as the file says that its blocks are.
    let file = create(&fixture, "/file", "one", bytes.len() as u64).await;
    let block = file.add(&fixture, None).await.expect("a block");
    file.fill(&fixture, &block.block, 0, &bytes).await;
    let last = with_length(&block, bytes.len() as u64);
    file.complete(&fixture, Some(&last)).await.expect("closed");
    let header = BaseHeader { block: last, token: None };
    let mut ask = vec![0, 28, 85];
    BlockChecksum { header, options: None }.encode_length_delimited(&mut ask).expect("room");
    for _ in 0..4000 {
        let mut stranger = Stranger::silent(&fixture).await;
        stranger.say(&ask).await;
    }
    let mut healthy = Stranger::silent(&fixture).await;
    healthy.say(&ask).await;
    let mut answer = [0; 3];
    timeout(PATIENCE, healthy.stream.read_exact(&mut answer)).await.expect("in time").expect("an answer");
    assert_eq!((answer[1], i32::from(answer[2])), (8, SUCCESS));
    let mut waiting = Vec::new();
    for _ in 0..CONNECTIONS_MAX + 100 {
        let mut stranger = Stranger::silent(&fixture).await;
        stranger.say(&ask).await;
        waiting.push(stranger);
    }
    answered(&fixture, "ada").await;
    drop(waiting);
    end(fixture).await;
}

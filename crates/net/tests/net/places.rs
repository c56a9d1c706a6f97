//! Many peers, and ones that hold what others need: whoever comes and says who it is gets in, and is told why if it does not.

use crate::support::{Doing, MemoryNet, Serving, echo, link, payload, push, serve};
use base::net::{Net, Stream};
use net::frame::{self, CREDIT, HELLO, Header, PING};
use net::message::session::Hello;
use net::message::{Ask, bag};
use net::{Call, Link};
use prost::Message;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::sleep;

fn hello() -> Vec<u8> {
    let (session, program) = (5.into(), "stranger".into());
    let hello = Hello { version_min: 1, version_max: 9, session, program, ..Hello::default() };
    let mut bytes = Vec::new();
    frame::append(&mut bytes, Header { kind: HELLO, ..Header::default() }, |bytes| hello.encode(bytes).unwrap());
    bytes
}

fn begin(header: Header, message: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::append(&mut bytes, header, |bytes| bytes.extend_from_slice(message));
    bytes
}

async fn greeted(net: &MemoryNet) -> Box<dyn Stream> {
    let mut stream = net.connect("a").await.unwrap();
    stream.write_all(&hello()).await.unwrap();
    stream
}

/// Waits, in time that passes at once, until the server has told of such a trouble.
async fn told(server: &Serving, what: &str) {
    for _ in 0..10_000 {
        if server.troubles.lock().unwrap().iter().any(|trouble| trouble.contains(what)) {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
    panic!("nobody told of '{what}': {:?}", server.troubles.lock().unwrap());
}

async fn is_served(link: &Link) {
    let (_, back) = link.call(&push(1), payload(1, 100_000)).await.unwrap();
    assert_eq!(back.length(), 100_000);
}

/// Ten times as many connections as there are places say nothing, while a client connects again and again: each time it is served.
/// The oldest of the silent ones are told why they have to leave.
#[tokio::test(start_paused = true)]
async fn silent_peers_keep_nobody_out() {
    let net = Arc::new(MemoryNet::default());
    let server = serve(&*net, "a", 64 << 20, Arc::new(Doing(echo))).await;
    let steady = link(net.clone(), "a").await;
    is_served(&steady).await;
    let mut silent = Vec::new();
    for number in 0..640 {
        silent.push(net.connect("a").await.unwrap());
        if number % 16 == 0 {
            is_served(&link(net.clone(), "a").await).await;
        }
    }
    is_served(&steady).await;
    told(&server, "is for those that have not said who they are").await;
    let mut said = Vec::new();
    silent[0].read_to_end(&mut said).await.unwrap();
    assert!(String::from_utf8_lossy(&said).contains("try again"), "{said:?}");
    assert!(server.stats.refused_connections.load(Ordering::Relaxed) > 500);
    assert!(server.stats.connections_open.load(Ordering::Relaxed) <= 64);
}

/// A frame of which a byte comes every second ends its connection, although something is heard of it all the time; so does a
/// greeting.
#[tokio::test(start_paused = true)]
async fn a_byte_now_and_then_keeps_nothing() {
    let net = Arc::new(MemoryNet::default());
    let server = serve(&*net, "a", 64 << 20, Arc::new(Doing(echo))).await;
    let frame = begin(Header { kind: bag::Push::KIND, number: 1, ..Header::default() }, &vec![0; 100_000]);
    let mut asking = greeted(&net).await;
    asking.write_all(&frame[..1000]).await.unwrap();
    for (mut stream, bytes, reason) in [
        (asking, &frame[1000..], "a frame of 100000 bytes was not there after"),
        (net.connect("a").await.unwrap(), &hello()[..], "no greeting within 10 s"),
    ] {
        let drip = async {
            for byte in bytes {
                if stream.write_all(&[*byte]).await.is_err() {
                    // It was ended; the reason comes.
                    std::future::pending::<()>().await;
                }
                sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::select! { () = told(&server, reason) => (), () = drip => panic!("it took all bytes") }
    }
}

/// Credit that is held and not used, by a client that pings all the while, is taken back as soon as another waits for it.
#[tokio::test(start_paused = true)]
async fn credit_is_not_hoarded() {
    let net = Arc::new(MemoryNet::default());
    let server = serve(&*net, "a", 20 << 20, Arc::new(Doing(echo))).await;
    let mut hoarder = greeted(&net).await;
    let wish = Header { kind: CREDIT, credit: 20 << 20, ..Header::default() };
    hoarder.write_all(&begin(wish, &[])).await.unwrap();
    while server.budget.available() > 0 {
        sleep(Duration::from_millis(1)).await;
    }
    let pinging = async {
        loop {
            if hoarder.write_all(&begin(Header { kind: PING, ..Header::default() }, &[])).await.is_err() {
                return;
            }
            sleep(Duration::from_secs(1)).await;
        }
    };
    let good = link(net.clone(), "a").await;
    tokio::join!(pinging, is_served(&good));
    told(&server, "nothing was used for").await;
}

/// A fault in the service while it takes a call ends that connection and is counted; the others go on, and the client's next call is
/// served over a new one.
#[tokio::test(start_paused = true)]
async fn a_fault_ends_one_connection() {
    let net = Arc::new(MemoryNet::default());
    let service = Doing(|call: Call| {
        assert!(call.kind != bag::List::KIND, "planted: a fault in the task of a connection");
        echo(call);
    });
    let server = serve(&*net, "a", 64 << 20, Arc::new(service)).await;
    let good = link(net.clone(), "a").await;
    let mut stranger = greeted(&net).await;
    let list = Header { kind: bag::List::KIND, number: 1, ..Header::default() };
    stranger.write_all(&begin(list, &[])).await.unwrap();
    let mut said = Vec::new();
    stranger.read_to_end(&mut said).await.unwrap();
    told(&server, "its task panicked").await;
    assert!(base::fault::contained_faults() > 0);
    is_served(&good).await;
    is_served(&link(net.clone(), "a").await).await;
}

/// Large messages that do not end take no more memory than there is for them: one too many is refused with a reason, and small calls
/// go on.
#[tokio::test(start_paused = true)]
async fn large_messages_are_bounded() {
    let net = Arc::new(MemoryNet::default());
    let server = serve(&*net, "a", 64 << 20, Arc::new(Doing(echo))).await;
    let half = begin(Header { kind: bag::Push::KIND, number: 1, ..Header::default() }, &vec![0; 1 << 20]);
    let mut held = Vec::new();
    for _ in 0..32 {
        let mut stream = greeted(&net).await;
        stream.write_all(&half[..1000]).await.unwrap();
        held.push(stream);
    }
    told(&server, "which is the most; this one was not read").await;
    is_served(&link(net.clone(), "a").await).await;
}

/// A message of two-byte fields, which would be a hundred times as large when it is decoded, is refused before it is.
#[tokio::test(start_paused = true)]
async fn what_a_message_holds_is_counted_before_it_is_decoded() {
    let net = Arc::new(MemoryNet::default());
    let service = Doing(|call: Call| match call.ask::<net::message::file::PutFiles>() {
        Ok(files) => panic!("{} files were decoded", files.files.len()),
        Err(error) => call.respond.fail(error),
    });
    let _server = serve(&*net, "a", 64 << 20, Arc::new(service)).await;
    let mut stream = greeted(&net).await;
    let ask = Header { kind: net::message::file::PutFiles::KIND, number: 1, ..Header::default() };
    stream.write_all(&begin(ask, &[0x0a, 0].repeat(400_000))).await.unwrap();
    let mut said = Vec::new();
    while !String::from_utf8_lossy(&said).contains("holds more than") {
        let mut byte = [0; 256];
        let length = stream.read(&mut byte).await.unwrap();
        assert!(length > 0, "it ended: {}", String::from_utf8_lossy(&said));
        said.extend_from_slice(&byte[..length]);
    }
}

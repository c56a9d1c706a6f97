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
use tokio::time::{sleep, timeout};

pub fn hello() -> Vec<u8> {
    let (session, program) = (5.into(), "stranger".into());
    let hello = Hello { version_min: 1, version_max: 9, session, program, ..Hello::default() };
    let mut bytes = Vec::new();
    frame::append(&mut bytes, Header { kind: HELLO, ..Header::default() }, |bytes| hello.encode(bytes).unwrap());
    bytes
}

pub fn begin(header: Header, message: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::append(&mut bytes, header, |bytes| bytes.extend_from_slice(message));
    bytes
}

pub async fn greeted(net: &MemoryNet) -> Box<dyn Stream> {
    let mut stream = net.connect("a").await.unwrap();
    stream.write_all(&hello()).await.unwrap();
    stream
}

/// Waits, in time that passes at once, until the server has told of such a trouble.
pub async fn told(server: &Serving, what: &str) {
    for _ in 0..10_000 {
        if server.troubles.lock().unwrap().iter().any(|trouble| trouble.contains(what)) {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
    panic!("nobody told of '{what}': {:?}", server.troubles.lock().unwrap());
}

/// Waits, in time that passes at once, until this is so.
pub async fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..100_000 {
        if is_so() {
            return;
        }
        sleep(Duration::from_millis(1)).await;
    }
    panic!("never: {what}");
}

pub async fn is_served(link: &Link) {
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

/// The credit that the node has granted, from what it says: at least so much.
async fn granted(stream: &mut Box<dyn Stream>, least: u64) -> u64 {
    let mut credit = 0;
    while credit < least {
        let mut bytes = [0; frame::HEADER_LENGTH];
        stream.read_exact(&mut bytes).await.unwrap();
        let header = Header::decode(&bytes).unwrap();
        let mut rest = vec![0; (header.message_length + header.payload_length) as usize];
        stream.read_exact(&mut rest).await.unwrap();
        credit += u64::from(header.credit);
    }
    credit
}

/// A connection that has wished for so much credit, and has it.
async fn with_credit(net: &MemoryNet, bytes: u32) -> Box<dyn Stream> {
    let mut stream = greeted(net).await;
    stream.write_all(&wish(bytes)).await.unwrap();
    granted(&mut stream, bytes.into()).await;
    stream
}

fn wish(bytes: u32) -> Vec<u8> {
    begin(Header { kind: CREDIT, credit: bytes, ..Header::default() }, &[])
}

/// A call with so much payload.
fn large(number: u64, length: usize) -> Vec<u8> {
    let sent = payload(1, length);
    let header = Header {
        kind: bag::Push::KIND,
        number,
        payload_length: length as u32,
        payload_crc: sent.crc(),
        ..Header::default()
    };
    [begin(header, &push(1).encode_to_vec()), sent.into_bytes().to_vec()].concat()
}

/// Twenty connections wish for all they can have and use nothing: they are granted it, no memory is kept for it, and a client with the
/// largest payload is served as if they were not there. None of them is ended for it.
#[tokio::test(start_paused = true)]
async fn credit_that_is_not_used_takes_nothing_from_others() {
    const BUDGET: u64 = 20 << 20;
    let net = Arc::new(MemoryNet::default());
    let server = serve(&*net, "a", BUDGET, Arc::new(Doing(echo))).await;
    let mut hoarders = Vec::new();
    for _ in 0..20 {
        let mut hoarder = greeted(&net).await;
        for _ in 0..64 {
            hoarder.write_all(&wish(16 << 20)).await.unwrap();
        }
        assert_eq!(granted(&mut hoarder, 32 << 20).await, 32 << 20);
        hoarders.push(hoarder);
    }
    assert_eq!(server.budget.available(), BUDGET);
    let good = link(net.clone(), "a").await;
    let (_, back) = good.call(&push(1), payload(1, 16 << 20)).await.unwrap();
    assert_eq!(back.length(), 16 << 20);
    assert!(server.troubles.lock().unwrap().is_empty(), "{:?}", server.troubles.lock().unwrap());
}

/// A payload of which a byte comes now and then keeps its memory for seconds at the most if others wait for it, not for as long as the
/// whole of it may take.
#[tokio::test(start_paused = true)]
async fn a_payload_that_trickles_keeps_nothing() {
    const BUDGET: u64 = 20 << 20;
    let net = Arc::new(MemoryNet::default());
    let server = serve(&*net, "a", BUDGET, Arc::new(Doing(echo))).await;
    let mut slow = with_credit(&net, 16 << 20).await;
    let whole = large(1, 16 << 20);
    let (beginning, rest) = whole.split_at(whole.len() - (16 << 20));
    slow.write_all(beginning).await.unwrap();
    until("it has its memory", || server.budget.available() < BUDGET).await;
    let trickling = async {
        for byte in rest.chunks(1) {
            // It is ended in between.
            let _ = slow.write_all(byte).await;
            sleep(Duration::from_millis(1500)).await;
        }
    };
    let good = link(net.clone(), "a").await;
    let asked = async {
        let question = push(2);
        timeout(Duration::from_secs(20), good.call(&question, payload(1, 16 << 20))).await
    };
    let answered = tokio::select! { answered = asked => answered, () = trickling => panic!("nobody was served") };
    assert_eq!(answered.expect("in time").unwrap().1.length(), 16 << 20);
}

/// A client that used its credit has memory kept for what it wishes next. When it uses nothing of it, although it pings, others that wait
/// get the memory; the credit itself stays good.
#[tokio::test(start_paused = true)]
async fn memory_that_is_kept_goes_to_those_who_wait() {
    const BUDGET: u64 = 20 << 20;
    let net = Arc::new(MemoryNet::default());
    let server = serve(&*net, "a", BUDGET, Arc::new(Doing(echo))).await;
    let mut hoarder = with_credit(&net, 10 << 20).await;
    hoarder.write_all(&large(1, 10 << 20)).await.unwrap();
    until("the first call is handed over", || server.stats.calls.load(Ordering::Relaxed) > 0).await;
    hoarder.write_all(&wish(10 << 20)).await.unwrap();
    granted(&mut hoarder, 10 << 20).await;
    until("memory is kept", || server.budget.available() == BUDGET - (10 << 20)).await;
    let pinging = async {
        loop {
            hoarder.write_all(&begin(Header { kind: PING, ..Header::default() }, &[])).await.unwrap();
            sleep(Duration::from_millis(500)).await;
        }
    };
    let good = link(net.clone(), "a").await;
    let largest = push(2);
    let asked = async { good.call(&largest, payload(1, 16 << 20)).await.unwrap() };
    tokio::select! { _ = asked => (), () = pinging => () }
    hoarder.write_all(&large(2, 10 << 20)).await.unwrap();
    until("the credit is good", || server.stats.calls.load(Ordering::Relaxed) == 3).await;
    assert!(server.troubles.lock().unwrap().is_empty(), "{:?}", server.troubles.lock().unwrap());
}

/// A payload that has credit and finds no memory waits for it, for as long as others are worked on, and its client hears that the node lives:
/// the call is neither given up nor asked again.
#[tokio::test(start_paused = true)]
async fn who_waits_for_memory_hears_that_the_node_lives() {
    let net = Arc::new(MemoryNet::default());
    let service = Doing(|call: Call| {
        tokio::spawn(async move {
            sleep(Duration::from_secs(60)).await;
            echo(call);
        });
    });
    let server = serve(&*net, "a", 16 << 20, Arc::new(service)).await;
    let (first, second) = (link(net.clone(), "a").await, link(net.clone(), "a").await);
    let (one, two) = (push(1), push(2));
    let asked = tokio::join!(first.call(&one, payload(1, 16 << 20)), second.call(&two, payload(1, 16 << 20)));
    assert_eq!((asked.0.unwrap().1.length(), asked.1.unwrap().1.length()), (16 << 20, 16 << 20));
    assert_eq!(server.stats.calls.load(Ordering::Relaxed), 2, "a call was asked again");
    assert!(server.troubles.lock().unwrap().is_empty(), "{:?}", server.troubles.lock().unwrap());
}

/// A node that has no place for a newcomer is asked again until it has one. Who waits in vain is told what the node said.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_full_is_asked_again() {
    let net = Arc::new(MemoryNet::default());
    let worked_on = Arc::new(std::sync::Mutex::new(Vec::new()));
    let stands = worked_on.clone();
    let service = Doing(move |call: Call| match call.kind == net::message::chunk::Append::KIND {
        true => stands.lock().unwrap().push(call),
        false => echo(call),
    });
    let server = serve(&*net, "a", 64 << 20, Arc::new(service)).await;
    let mut held = Vec::new();
    for _ in 0..56 {
        let mut stream = greeted(&net).await;
        let question = Header { kind: net::message::chunk::Append::KIND, number: 1, ..Header::default() };
        stream.write_all(&begin(question, &[])).await.unwrap();
        held.push(stream);
    }
    until("all are worked on", || worked_on.lock().unwrap().len() == 56).await;
    let refused = Link::connect(net.clone(), "a", crate::support::link_settings(1, 1)).await.err().unwrap();
    assert_eq!(refused.kind(), base::error::ErrorKind::Busy, "{refused}");
    assert!(refused.text().contains("56 connections are open"), "{refused}");
    let before = server.stats.refused_connections.load(Ordering::Relaxed);
    let leaving = async {
        until("a newcomer is refused", || server.stats.refused_connections.load(Ordering::Relaxed) > before).await;
        held.clear();
    };
    let (good, ()) = tokio::join!(link(net.clone(), "a"), leaving);
    is_served(&good).await;
}

/// Questions of sixteen connections that the service holds on to: no more are handed to it than there is memory for, the others wait with
/// their connections, and all are answered in the end.
#[tokio::test(start_paused = true)]
async fn questions_that_are_worked_on_are_bounded() {
    let net = Arc::new(MemoryNet::default());
    let (held, over) =
        (Arc::new(std::sync::Mutex::new(Vec::new())), Arc::new(std::sync::atomic::AtomicBool::new(false)));
    let service = {
        let (held, over) = (held.clone(), over.clone());
        Doing(move |call: Call| match over.load(Ordering::Relaxed) || call.kind == bag::Pull::KIND {
            true => echo(call),
            false => held.lock().unwrap().push(call),
        })
    };
    let server = serve(&*net, "a", 64 << 20, Arc::new(service)).await;
    let total = server.calls.total();
    let message = vec![0; 30_000];
    let mut streams = Vec::new();
    for _ in 0..16 {
        let (mut reading, mut writing) = tokio::io::split(greeted(&net).await);
        let questions: Vec<u8> = (1..=256)
            .flat_map(|number| {
                begin(Header { kind: net::message::file::Concat::KIND, number, ..Header::default() }, &message)
            })
            .collect();
        streams.push(tokio::spawn(async move {
            let mut answers = Vec::new();
            let write = async { writing.write_all(&questions).await.unwrap() };
            let read = async {
                // The welcome, and an answer to each.
                while answers.len() < 257 {
                    let mut bytes = [0; frame::HEADER_LENGTH];
                    reading.read_exact(&mut bytes).await.unwrap();
                    let header = Header::decode(&bytes).unwrap();
                    let mut rest = vec![0; header.message_length as usize];
                    reading.read_exact(&mut rest).await.unwrap();
                    // Beside the answers come signs that the node lives.
                    if header.kind != PING {
                        answers.push(header.number);
                    }
                }
            };
            tokio::join!(write, read);
        }));
    }
    until("a question waits for memory", || server.calls.is_short()).await;
    // Long enough for whoever would go on reading.
    sleep(Duration::from_secs(5)).await;
    let handed = held.lock().unwrap().len() as u64;
    assert!(handed > 0 && handed * base::limit::call_memory(30_000) <= total, "{handed} questions");
    // What waits for others is not kept from it.
    let pull = link(net.clone(), "a").await.call(&bag::Pull::default(), net::Payload::empty()).await;
    assert!(!pull.is_err_and(|error| error.kind() == base::error::ErrorKind::Unreachable));
    over.store(true, Ordering::Relaxed);
    held.lock().unwrap().drain(..).for_each(echo);
    for stream in streams {
        stream.await.unwrap();
    }
    assert_eq!(server.calls.available(), total);
}

/// A device that stands still holds the questions of fifty connections, more than there is memory for: names are asked for all the while.
#[tokio::test(start_paused = true)]
async fn a_device_that_stands_still_keeps_nobody_from_names() {
    let net = Arc::new(MemoryNet::default());
    let held = Arc::new(std::sync::Mutex::new(Vec::new()));
    let stands = held.clone();
    let service = Doing(move |call: Call| match call.kind == net::message::chunk::Append::KIND {
        true => stands.lock().unwrap().push(call),
        false => echo(call),
    });
    let server = serve(&*net, "a", 64 << 20, Arc::new(service)).await;
    let mut connections = Vec::new();
    for _ in 0..50 {
        let mut stream = greeted(&net).await;
        let questions = (1..=200).flat_map(|number| {
            begin(Header { kind: net::message::chunk::Append::KIND, number, ..Header::default() }, &[0; 100])
        });
        stream.write_all(&questions.collect::<Vec<u8>>()).await.unwrap();
        connections.push(stream);
    }
    // Long enough for all that would be taken.
    sleep(Duration::from_secs(5)).await;
    let taken = held.lock().unwrap().len() as u64;
    assert!(taken < 50 * 200 && (taken + 1) * base::limit::call_memory(100) > 24 << 20, "{taken} questions");
    let name = net::message::file::SetXattr::default();
    let asked = link(net.clone(), "a").await.call(&name, net::Payload::empty()).await;
    assert!(!asked.is_err_and(|error| error.kind() == base::error::ErrorKind::Unreachable));
    drop(connections);
    held.lock().unwrap().drain(..).for_each(echo);
    assert_eq!(server.calls.available(), server.calls.total());
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

/// As many large messages as there is memory for, each on a connection of its own, of which no more comes than the beginning.
async fn all_messages_begun(net: &MemoryNet) -> Vec<Box<dyn Stream>> {
    let half = begin(Header { kind: bag::Push::KIND, number: 1, ..Header::default() }, &vec![0; 1 << 20]);
    let mut held = Vec::new();
    for _ in 0..32 {
        let mut stream = greeted(net).await;
        stream.write_all(&half[..1000]).await.unwrap();
        held.push(stream);
    }
    held
}

/// Large messages that do not end take no more memory than there is for them. One more waits, and has its turn as soon as those that stand
/// still have been ended for it; small calls go on all the while.
#[tokio::test(start_paused = true)]
async fn large_messages_are_bounded() {
    let net = Arc::new(MemoryNet::default());
    let server = serve(&*net, "a", 64 << 20, Arc::new(Doing(echo))).await;
    let _held = all_messages_begun(&net).await;
    let good = link(net.clone(), "a").await;
    is_served(&good).await;
    let question = net::message::file::SetXattr { value: Some(vec![1; 100_000]), ..Default::default() };
    let answered = good.call(&question, net::Payload::empty()).await.unwrap_err();
    assert_eq!(answered.kind(), base::error::ErrorKind::Protocol, "the service had it: {answered}");
    told(&server, "others wait for the memory that it holds").await;
    assert_eq!(server.troubles.lock().unwrap().iter().filter(|trouble| trouble.contains("unreachable")).count(), 0);
    is_served(&good).await;
}

/// A large payload that stands still for seconds while others wait for memory of messages, which it has none of, goes on.
#[tokio::test(start_paused = true)]
async fn who_holds_other_memory_goes_on() {
    let net = Arc::new(MemoryNet::default());
    let server = serve(&*net, "a", 64 << 20, Arc::new(Doing(echo))).await;
    let mut slow = greeted(&net).await;
    slow.write_all(&wish(1 << 20)).await.unwrap();
    granted(&mut slow, 1 << 20).await;
    let whole = large(1, 1 << 20);
    let (beginning, rest) = whole.split_at(whole.len() / 2);
    slow.write_all(beginning).await.unwrap();
    until("it has its memory", || server.budget.available() < 64 << 20).await;
    let _held = all_messages_begun(&net).await;
    let good = link(net.clone(), "a").await;
    let question = net::message::file::SetXattr { value: Some(vec![1; 100_000]), ..Default::default() };
    drop(good.call(&question, net::Payload::empty()).await);
    told(&server, "others wait for the memory that it holds").await;
    let before = server.stats.calls.load(Ordering::Relaxed);
    slow.write_all(rest).await.unwrap();
    until("the slow call is handed over", || server.stats.calls.load(Ordering::Relaxed) > before).await;
}

/// A message of two-byte fields, which would be a hundred times as large when it is decoded, is refused before it is; and so is whatever
/// its connection sends behind it.
#[tokio::test(start_paused = true)]
async fn what_a_message_holds_is_counted_before_it_is_decoded() {
    let net = Arc::new(MemoryNet::default());
    let service = Doing(|call: Call| panic!("{} was handed over", call.kind));
    let server = serve(&*net, "a", 64 << 20, Arc::new(service)).await;
    let mut stream = greeted(&net).await;
    let ask = Header { kind: net::message::file::PutFiles::KIND, number: 1, ..Header::default() };
    let message = begin(ask, &[0x0a, 0].repeat(400_000));
    // The end may come before all of it is written.
    drop(stream.write_all(&[message.clone(), message].concat()).await);
    let mut said = Vec::new();
    while !String::from_utf8_lossy(&said).contains("holds more than") {
        let mut byte = [0; 256];
        let length = stream.read(&mut byte).await.unwrap();
        assert!(length > 0, "it ended: {}", String::from_utf8_lossy(&said));
        said.extend_from_slice(&byte[..length]);
    }
    told(&server, "holds more than").await;
    assert_eq!(server.stats.calls.load(Ordering::Relaxed), 0);
}

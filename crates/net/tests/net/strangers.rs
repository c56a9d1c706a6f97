//! Peers that break the rules: they are told why and cut off, and nobody else notices.

use crate::support::{Doing, MemoryNet, Serving, echo, link, payload, push, serve};
use base::net::{Net, Stream};
use net::frame::{self, FAILURE, HELLO, Header};
use net::message::session::Hello;
use net::message::{Ask, Failure, bag};
use prost::Message;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn hello(min: u32, max: u32) -> Vec<u8> {
    let hello =
        Hello { version_min: min, version_max: max, session: 5.into(), program: "stranger".into(), ..Hello::default() };
    let mut bytes = Vec::new();
    frame::append(&mut bytes, Header { kind: HELLO, ..Header::default() }, |bytes| hello.encode(bytes).unwrap());
    bytes
}

fn call(header: Header) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::append(&mut bytes, header, |bytes| push(1).encode(bytes).unwrap());
    bytes
}

/// Sends `bytes` and reads until the server closes; gives the text of the last failure frame.
async fn provoke(net: &MemoryNet, server: &Serving, bytes: &[u8]) -> String {
    let mut stream: Box<dyn Stream> = net.connect(&server.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).await.unwrap();
    let mut text = String::new();
    let mut rest = &said[..];
    while let Some(bytes) = rest.first_chunk::<{ frame::HEADER_LENGTH }>() {
        let header = Header::decode(bytes).unwrap();
        let (message, after) = rest[frame::HEADER_LENGTH..].split_at(header.message_length as usize);
        if header.flags & FAILURE != 0 {
            text = Failure::decode(message).unwrap().text;
        }
        rest = after;
    }
    text
}

/// Wrong magic, absurd lengths, unknown kinds, damage, too early calls, payload without credit, other versions: each ends
/// its own connection with a reason, while a second connection goes on.
#[tokio::test(start_paused = true)]
async fn each_breach_has_its_reason() {
    let net = Arc::new(MemoryNet::default());
    let server = serve(&*net, "a", 64 << 20, Arc::new(Doing(echo))).await;
    let good = link(net.clone(), "a").await;
    let ask = Header { kind: bag::Push::KIND, number: 1, ..Header::default() };
    let greeted = |bytes: Vec<u8>| [hello(2, 2), bytes].concat();
    let mut damaged_header = call(ask);
    damaged_header[20] ^= 1;
    let mut damaged_message = call(ask);
    damaged_message[frame::HEADER_LENGTH + 2] ^= 1;
    let mut other_layout = call(ask);
    other_layout[4] = 9;
    let breaches: Vec<(Vec<u8>, &str)> = vec![
        (b"GET / HTTP/1.1\r\nHost: somebody.example.org\r\nAccept: */*\r\n\r\n".to_vec(), "wrong magic"),
        (greeted(call(Header { payload_length: u32::MAX, ..ask })), "out of bounds"),
        (greeted(Header { message_length: 2 << 20, ..ask }.encode().to_vec()), "out of bounds"),
        (greeted(call(Header { kind: 9999, ..ask })), "unknown kind 9999"),
        (greeted(call(Header { flags: 1, ..ask })), "asked nothing"),
        (greeted(damaged_header), "header was damaged"),
        (greeted(damaged_message), "message was damaged"),
        (greeted(call(Header { payload_length: 1 << 20, ..ask })), "against a credit of 0"),
        (greeted(call(Header { kind: frame::RETURN, credit: 7, ..ask })), "against a credit of 0"),
        (greeted(call(Header { credit: (16 << 20) + 4097, ..ask })), "more than any payload has"),
        (greeted(hello(2, 2)), "second greeting"),
        (call(ask), "must be a greeting"),
        (hello(7, 9), "speaks protocol versions 2 to 2, the other side 7 to 9"),
        (greeted(other_layout), "speaks protocol versions 2 to 2, the other side 9 to 9"),
    ];
    let count = breaches.len() as u64;
    for (bytes, reason) in breaches {
        let said = provoke(&net, &server, &bytes).await;
        assert!(said.contains(reason), "expected '{reason}', was told '{said}'");
        let (_, back) = good.call(&push(1), payload(1, 100_000)).await.unwrap();
        assert_eq!(back.length(), 100_000);
    }
    assert_eq!(server.stats.refused_frames.load(Ordering::Relaxed), count);
    assert_eq!(server.troubles.lock().unwrap().len() as u64, count);
}

/// A frame that is cut short ends its connection; so does a peer that never greets.
#[tokio::test(start_paused = true)]
async fn unfinished_and_mute() {
    let net = Arc::new(MemoryNet::default());
    let server = serve(&*net, "a", 64 << 20, Arc::new(Doing(echo))).await;
    let cut = [hello(2, 2), call(Header { kind: bag::Push::KIND, ..Header::default() })[..60].to_vec()].concat();
    provoke(&net, &server, &cut).await;
    assert!(server.troubles.lock().unwrap().concat().contains("in the middle of a frame"));
    let mut mute = net.connect("a").await.unwrap();
    let mut said = Vec::new();
    mute.read_to_end(&mut said).await.unwrap();
    drop(mute);
    while server.stats.connections_open.load(Ordering::Relaxed) != 0 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    assert!(server.troubles.lock().unwrap().concat().contains("no greeting within 10 s"));
}

/// A peer that takes no answers is cut off; what it held is free again.
#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read() {
    let net = Arc::new(MemoryNet::default());
    let big = payload(1, 1 << 20);
    let service = Doing(move |call: net::Call| {
        call.respond.answer(bag::PushAnswer::default(), big.clone());
    });
    let server = serve(&*net, "a", 64 << 20, Arc::new(service)).await;
    let mut stream = net.connect("a").await.unwrap();
    stream.write_all(&hello(2, 2)).await.unwrap();
    stream.write_all(&call(Header { kind: bag::Push::KIND, ..Header::default() })).await.unwrap();
    while server.stats.connections_open.load(Ordering::Relaxed) != 0 || server.troubles.lock().unwrap().is_empty() {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    assert!(server.troubles.lock().unwrap().concat().contains("took no bytes for 10 s"));
}

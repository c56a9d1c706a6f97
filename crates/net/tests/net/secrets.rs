//! Who may speak with whom: secrets, clusters, and what becomes of those who only look as if they knew.

use crate::support::{Doing, MemoryNet, Serving, echo, link_settings, payload, push, serve_to};
use base::error::{Error, ErrorKind, Result};
use base::id::{ClusterId, NodeId};
use base::limit::GREETING_MAX;
use base::net::{Boxed, Listener, Net, Stream};
use net::frame::{self, FAILURE, HEADER_LENGTH, HELLO, Header, PROVE, REPLY};
use net::message::Failure;
use net::message::session::{Challenge, Hello, Proof, Welcome};
use net::{Asker, Call, Credentials, Link, Secret};
use prost::Message;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

/// A cluster's id and a secret made of one digit.
fn knows(cluster: u128, digit: &str) -> Credentials {
    Credentials { cluster: Some(ClusterId(cluster)), secret: Some(Secret::from_hex(&digit.repeat(64)).unwrap()) }
}

async fn guarded(net: &MemoryNet, credentials: Credentials) -> (Serving, Arc<Mutex<Vec<Asker>>>) {
    let askers: Arc<Mutex<Vec<Asker>>> = Arc::default();
    let seen = askers.clone();
    let service = Doing(move |call: Call| {
        seen.lock().unwrap().push(call.asker);
        echo(call);
    });
    (serve_to(net, "a", 64 << 20, Arc::new(service), credentials).await, askers)
}

async fn connect(net: Arc<dyn Net>, credentials: Credentials) -> Result<Link> {
    Link::connect(net, "a", net::LinkSettings { credentials, ..link_settings(1, 2) }).await
}

/// The words a server said when it cut somebody off; waits for them.
async fn trouble(server: &Serving) -> String {
    let said = async {
        while server.troubles.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(600), said).await.expect("the server says why");
    std::mem::take(&mut *server.troubles.lock().unwrap()).join("\n")
}

/// Who knows the secret is served over all connections, whether it names the cluster or not, and a node is known as one.
#[tokio::test(start_paused = true)]
async fn who_knows_the_secret_is_served() {
    let net = Arc::new(MemoryNet::default());
    let (server, askers) = guarded(&net, knows(7, "a")).await;
    for cluster in [None, Some(ClusterId(7))] {
        let link = connect(net.clone(), Credentials { cluster, ..knows(7, "A") }).await.unwrap();
        assert_eq!(link.node(), NodeId(42));
        let calls = (0..8).map(|bag| {
            let link = link.clone();
            tokio::spawn(async move { link.call(&push(bag), payload(bag, 300_000)).await })
        });
        for call in calls.collect::<Vec<_>>() {
            assert_eq!(call.await.unwrap().unwrap().1.length(), 300_000);
        }
    }
    assert!(askers.lock().unwrap().iter().all(|asker| *asker == Asker::Client));
    let asker = Asker::Node { node: NodeId(9), incarnation: 3, term: 6 };
    let settings = net::LinkSettings { credentials: knows(7, "a"), asker, ..link_settings(2, 1) };
    let link = Link::connect(net.clone(), "a", settings).await.unwrap();
    link.call(&push(1), payload(1, 10)).await.unwrap();
    assert_eq!(askers.lock().unwrap().last(), Some(&asker));
    assert!(server.troubles.lock().unwrap().is_empty());
}

/// Whoever does not belong is refused with words at both ends that say what to do, and nothing it asks reaches the service.
#[tokio::test(start_paused = true)]
async fn strangers_are_told_why_and_so_is_the_node() {
    let open = Credentials::default;
    let only = |cluster| Credentials { cluster: Some(ClusterId(cluster)), secret: None };
    for (node, program, told, logged) in [
        (knows(7, "a"), knows(7, "b"), "does not know the secret that this program", "said: the node does not know"),
        (knows(7, "a"), open(), "'test' gave no secret", "'test' gave no secret"),
        (knows(7, "a"), only(7), "--secret-file", "STORMWELL_SECRET_FILE"),
        (
            knows(7, "a"),
            knows(8, "a"),
            "belongs to cluster 00000000000000000000000000000007",
            "means cluster 0000000000",
        ),
        (open(), knows(7, "a"), "belongs to none", "serve --config"),
        (open(), Credentials { cluster: None, ..knows(7, "a") }, "keeps no secret", "said: the node keeps no secret"),
        (only(7), only(8), "belongs to cluster", "means cluster"),
    ] {
        let net = Arc::new(MemoryNet::default());
        let (server, askers) = guarded(&net, node).await;
        let error = connect(net.clone(), program).await.err().expect("refused");
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert!(error.text().contains(told), "{error} has no '{told}'");
        assert!(error.text().contains("; nothing was ") && error.text().rsplit("; ").next().is_some(), "{error}");
        let said = trouble(&server).await;
        assert!(said.contains(logged), "'{said}' has no '{logged}'");
        assert!(askers.lock().unwrap().is_empty());
    }
}

/// A node that comes back with another secret fails what waits at once, with the reason.
#[tokio::test(start_paused = true)]
async fn a_secret_that_changes() {
    let net = Arc::new(MemoryNet::default());
    let (server, _) = guarded(&net, knows(7, "a")).await;
    let link = connect(net.clone(), knows(7, "a")).await.unwrap();
    link.call(&push(1), payload(1, 10)).await.unwrap();
    server.task.abort();
    assert!(server.task.await.unwrap_err().is_cancelled());
    let (_server, askers) = guarded(&net, knows(7, "b")).await;
    let error = link.call(&push(2), payload(2, 10)).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(askers.lock().unwrap().is_empty());
}

/// Notes every byte that goes in either direction.
#[derive(Clone, Default)]
struct Tapped {
    net: Arc<MemoryNet>,
    out: Arc<Mutex<Vec<u8>>>,
    back: Arc<Mutex<Vec<u8>>>,
}

struct Tap {
    inner: Box<dyn Stream>,
    net: Tapped,
}

impl Net for Tapped {
    fn connect<'a>(&'a self, address: &'a str) -> Boxed<'a, Result<Box<dyn Stream>>> {
        Box::pin(async move {
            let inner = self.net.connect(address).await?;
            Ok(Box::new(Tap { inner, net: self.clone() }) as Box<dyn Stream>)
        })
    }

    fn listen<'a>(&'a self, address: &'a str) -> Boxed<'a, Result<Box<dyn Listener>>> {
        self.net.listen(address)
    }
}

impl Stream for Tap {
    fn peer(&self) -> String {
        self.inner.peer()
    }
}

impl AsyncRead for Tap {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let before = space.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, space);
        self.net.back.lock().unwrap().extend_from_slice(&space.filled()[before..]);
        polled
    }
}

impl AsyncWrite for Tap {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, bytes);
        if let Poll::Ready(Ok(length)) = &polled {
            self.net.out.lock().unwrap().extend_from_slice(&bytes[..*length]);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

fn framed(header: Header, message: &impl Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::append(&mut bytes, header, |bytes| message.encode(bytes).unwrap());
    bytes
}

fn hello(nonce: &[u8]) -> Vec<u8> {
    let hello = Hello {
        version_min: 2,
        version_max: 2,
        session: 5.into(),
        program: "thief\n".into(),
        nonce: nonce.to_vec().into(),
        ..Hello::default()
    };
    framed(Header { kind: HELLO, ..Header::default() }, &hello)
}

/// The next frame of a stream.
async fn next(stream: &mut Box<dyn Stream>) -> (Header, Vec<u8>) {
    let mut bytes = [0; HEADER_LENGTH];
    stream.read_exact(&mut bytes).await.unwrap();
    let header = Header::decode(&bytes).unwrap();
    let mut message = vec![0; header.message_length as usize];
    stream.read_exact(&mut message).await.unwrap();
    (header, message)
}

/// What a stream refuses with.
async fn refusal(stream: &mut Box<dyn Stream>) -> Error {
    let (header, message) = next(stream).await;
    assert_eq!(header.flags & FAILURE, FAILURE, "no refusal: {header:?}");
    Failure::decode(&message[..]).unwrap().into()
}

const PROOF: Header = Header {
    kind: PROVE,
    flags: REPLY,
    number: 0,
    message_length: 0,
    message_crc: 0,
    payload_length: 0,
    payload_crc: 0,
    credit: 0,
    floor: 0,
    request: base::id::RequestId::NONE,
};

/// What somebody overheard is of no use: neither a client's words said again to the node, nor the node's proof given back
/// to it, nor a proof of other words, nor the node's words said again to a client.
#[tokio::test(start_paused = true)]
async fn overheard_proofs_are_worthless() {
    let net = Arc::new(MemoryNet::default());
    let (server, askers) = guarded(&net, knows(7, "a")).await;
    let tapped = Tapped { net: net.clone(), ..Tapped::default() };
    drop(connect(Arc::new(tapped.clone()), knows(7, "a")).await.unwrap());
    let (said, answered) = (tapped.out.lock().unwrap().clone(), tapped.back.lock().unwrap().clone());
    let first = HEADER_LENGTH + Header::decode(said.first_chunk().unwrap()).unwrap().message_length as usize;

    let mut again = net.connect("a").await.unwrap();
    again.write_all(&said).await.unwrap();
    assert_eq!(next(&mut again).await.0.kind, PROVE);
    assert!(refusal(&mut again).await.text().contains("does not know the secret"));
    assert!(trouble(&server).await.contains("does not know the secret"));

    let mut mirrored = net.connect("a").await.unwrap();
    mirrored.write_all(&hello(&[1; 32])).await.unwrap();
    let challenge = Challenge::decode(&next(&mut mirrored).await.1[..]).unwrap();
    mirrored.write_all(&framed(PROOF, &Proof { proof: challenge.proof.clone() })).await.unwrap();
    let error = refusal(&mut mirrored).await;
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.text().contains(r"'thief\n' does not know"), "{error}");
    let said_there = trouble(&server).await;
    assert!(said_there.contains(r"'thief\n'") && !said_there.contains('\n'), "{said_there}");

    // The proof of the words that were overheard, after a greeting of other words.
    let mut other = net.connect("a").await.unwrap();
    other.write_all(&hello(&[1; 32])).await.unwrap();
    next(&mut other).await;
    other.write_all(&said[first..]).await.unwrap();
    assert_eq!(refusal(&mut other).await.kind(), ErrorKind::Refused);

    let false_node = Arc::new(MemoryNet::default());
    let mut listener = false_node.listen("a").await.unwrap();
    let node = tokio::spawn(async move {
        let mut stream = listener.accept().await.unwrap();
        stream.write_all(&answered).await.unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await.unwrap();
        heard
    });
    // The settings of another session: their chance, and so their nonce, is another one.
    let settings = net::LinkSettings { credentials: knows(7, "a"), ..link_settings(3, 1) };
    let error = Link::connect(false_node, "a", settings).await.err().expect("refused");
    assert!(error.text().contains("the node does not know the secret"), "{error}");
    // It learnt nothing: after the greeting came only a farewell.
    let heard = node.await.unwrap();
    let length = HEADER_LENGTH + Header::decode(heard.first_chunk().unwrap()).unwrap().message_length as usize;
    assert_eq!(Header::decode(heard[length..].first_chunk().unwrap()).unwrap().kind, frame::CLOSING);
    assert!(askers.lock().unwrap().is_empty());
}

/// A greeting is bounded at both ends: in bytes, in the order of its parts, and in time.
#[tokio::test(start_paused = true)]
async fn greetings_are_bounded() {
    let net = Arc::new(MemoryNet::default());
    let (server, askers) = guarded(&net, knows(7, "a")).await;
    let long = Proof { proof: vec![0; GREETING_MAX].into() };
    let short = Proof { proof: vec![0; 31].into() };
    let asked = framed(Header { kind: 69, number: 1, ..Header::default() }, &push(1));
    for (bytes, reason) in [
        (framed(PROOF, &long), "must be a proof"),
        (framed(Header { payload_length: 5, ..PROOF }, &short), "must be a proof"),
        (framed(PROOF, &short), "does not know the secret"),
        (asked, "must be a proof"),
        (hello(&[1; 32]), "must be a proof"),
    ] {
        let mut stream = net.connect("a").await.unwrap();
        stream.write_all(&[hello(&[1; 32]), bytes].concat()).await.unwrap();
        assert_eq!(next(&mut stream).await.0.kind, PROVE);
        assert!(trouble(&server).await.contains(reason), "{reason}");
    }
    let mut stream = net.connect("a").await.unwrap();
    stream.write_all(&hello(&[1; 31])).await.unwrap();
    assert!(trouble(&server).await.contains("31 random bytes, not 32"));
    let mut mute = net.connect("a").await.unwrap();
    mute.write_all(&hello(&[1; 32])).await.unwrap();
    let mut rest = Vec::new();
    mute.read_to_end(&mut rest).await.unwrap();
    assert!(trouble(&server).await.contains("no greeting within 10 s"));
    assert!(askers.lock().unwrap().is_empty());

    // The same at a client's end.
    let welcome = Header { kind: HELLO, flags: REPLY, ..Header::default() };
    let endless = Header { message_length: 1 << 20, ..welcome }.encode().to_vec();
    let laden = Header { payload_length: 1 << 24, ..welcome }.encode().to_vec();
    let early = framed(welcome, &Welcome { version: 1, node: 1.into(), incarnation: 1, cluster: Some(7.into()) });
    for (bytes, kind, reason) in [
        (endless, ErrorKind::Protocol, "1048576 bytes"),
        (laden, ErrorKind::Protocol, "payload of 16777216"),
        (early, ErrorKind::Refused, "keeps no secret"),
        (vec![], ErrorKind::Unreachable, "10 s"),
    ] {
        let net = Arc::new(MemoryNet::default());
        let mut listener = net.listen("a").await.unwrap();
        let node = tokio::spawn(async move {
            let mut stream = listener.accept().await.unwrap();
            stream.write_all(&bytes).await.unwrap();
            let mut heard = Vec::new();
            drop(stream.read_to_end(&mut heard).await);
        });
        let error = connect(net, knows(7, "a")).await.err().expect("refused");
        assert!(error.kind() == kind && error.text().contains(reason), "{error}");
        node.await.unwrap();
    }
}

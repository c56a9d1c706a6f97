//! Links that send once, links to one start of a node, and terms in greetings.

use crate::support::{Doing, MemoryNet, Serving, echo_to, link_settings, payload, push, serve_as};
use base::error::ErrorKind;
use base::id::{ClusterId, NodeId};
use base::limit::FRAME_PAYLOAD_MAX;
use base::net::Net;
use net::frame::{self, HELLO, Header};
use net::message::Id;
use net::message::bag::Push;
use net::message::session::{Hello, Welcome};
use net::{Asker, Call, Credentials, Link, LinkSettings, Secret, Sent, ServerSettings};
use prost::Message;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

/// The node of `serve_as`.
const NODE: NodeId = NodeId(42);

/// What a service saw: the bag of each push in its order, and who asked.
type Seen = Arc<Mutex<Vec<(u64, Asker)>>>;

/// A node in one of its starts. It answers even bags and holds the odd ones for ever; one that `answers` answers all.
async fn started(net: &MemoryNet, incarnation: u64, answers: bool, credentials: Credentials) -> (Serving, Seen) {
    let seen: Seen = Arc::default();
    let (noting, held) = (seen.clone(), Mutex::<Vec<Call>>::default());
    let service = Doing(move |mut call: Call| {
        let bag = call.ask::<Push>().unwrap().bag;
        noting.lock().unwrap().push((bag, call.asker));
        if answers || bag.is_multiple_of(2) {
            echo_to(bag, call);
        } else {
            held.lock().unwrap().push(call);
        }
    });
    let serving = serve_as(net, "a", 0, Arc::new(service), |settings| {
        (settings.incarnation, settings.credentials) = (incarnation, credentials);
    });
    (serving.await, seen)
}

async fn killed(serving: Serving) {
    serving.task.abort();
    assert!(serving.task.await.unwrap_err().is_cancelled());
}

/// Asks in a task of its own, which says how it went in one line.
fn asked(link: &Link, bag: u64, length: usize, sent: &Sent) -> JoinHandle<String> {
    let (link, sent) = (link.clone(), sent.clone());
    tokio::spawn(async move {
        match link.call_counted(&push(bag), payload(bag, length), &sent).await {
            Ok((answer, _)) => format!("answered {}", answer.waiting),
            Err(error) => format!("{:?}: {}", error.kind(), error.text()),
        }
    })
}

fn bags(seen: &Seen) -> Vec<u64> {
    seen.lock().unwrap().iter().map(|(bag, _)| *bag).collect()
}

/// Two calls of a link: the first, small or large, is at the node, which does not answer; the second waits for credit and has not left.
/// The node has memory for one of the largest payloads, which is held; on each connection another is on its way, and one waits for its turn
/// with all the credit that is granted (`CREDIT_WINDOW_MAX`).
async fn one_left(link: &Link, (length, connections): (usize, usize), seen: &Seen) -> [JoinHandle<String>; 2] {
    let sent = [Sent::default(), Sent::default()];
    let first = asked(link, 1, length, &sent[0]);
    while bags(seen).is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for number in 0..3 * connections as u64 {
        drop(asked(link, 11 + 2 * number, FRAME_PAYLOAD_MAX, &Sent::default()));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let second = asked(link, 5, 300_000, &sent[1]);
    // Long enough for it to be sent if it were: the clock is the test's.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(sent[0].is_sent() && !sent[1].is_sent());
    [first, second]
}

/// A call that left fails when its connection breaks, and comes once; one that had not left goes on the next connection. A link without
/// `once` asks both.
#[tokio::test(start_paused = true)]
async fn what_left_is_not_sent_again() {
    for (once, length, connections) in [(true, 10, 1), (true, 90_000, 1), (true, 10, 2), (false, 10, 1)] {
        let net = Arc::new(MemoryNet::default());
        let (server, seen) = started(&net, 1, false, Credentials::default()).await;
        let settings = LinkSettings { once, ..link_settings(1, connections) };
        let link = Link::connect(net.clone(), "a", settings).await.unwrap();
        let [first, second] = one_left(&link, (length, connections), &seen).await;
        killed(server).await;
        let (_server, again) = started(&net, 2, true, Credentials::default()).await;
        let first = first.await.unwrap();
        assert_eq!(second.await.unwrap(), "answered 5");
        if once {
            assert!(first.starts_with("Unreachable: it was sent to a, and the connection broke"), "{first}");
            assert!(first.contains("whether it was done is not known"), "{first}");
            let (earlier, later) = (bags(&seen), bags(&again));
            assert!(later.iter().all(|bag| !earlier.contains(bag)), "{earlier:?} came, and then {later:?}");
        } else {
            assert_eq!(first, "answered 1");
        }
        assert_eq!(asked(&link, 7, 300_000, &Sent::default()).await.unwrap(), "answered 7");
    }
}

/// What is asked before a node is there has not left.
#[tokio::test(start_paused = true)]
async fn what_waits_for_a_node_goes() {
    let net = Arc::new(MemoryNet::default());
    let link = Link::when_used(net.clone(), "a", LinkSettings { once: true, ..link_settings(1, 2) });
    let calls = [asked(&link, 2, 10, &Sent::default()), asked(&link, 4, 300_000, &Sent::default())];
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (_server, seen) = started(&net, 1, false, Credentials::default()).await;
    for (call, bag) in calls.into_iter().zip([2, 4]) {
        assert_eq!(call.await.unwrap(), format!("answered {bag}"));
    }
    let mut bags = bags(&seen);
    bags.sort_unstable();
    assert_eq!(bags, [2, 4]);
}

/// A link to one start of a node sends nothing to another: what is pending fails and says whether it had left, and so does all that is
/// asked of it later, over all its connections.
#[tokio::test(start_paused = true)]
async fn an_earlier_start_is_meant() {
    let secret = Credentials { cluster: Some(ClusterId(7)), secret: Some(Secret::from_hex(&"5a".repeat(32)).unwrap()) };
    for (credentials, once, connections) in
        [(secret.clone(), false, 1), (secret, true, 2), (Credentials::default(), true, 1)]
    {
        let net = Arc::new(MemoryNet::default());
        let (server, seen) = started(&net, 1, false, credentials.clone()).await;
        let settings = LinkSettings {
            meant: Some((NODE, 1)),
            once,
            credentials: credentials.clone(),
            ..link_settings(1, connections)
        };
        let link = Link::connect(net.clone(), "a", settings.clone()).await.unwrap();
        let [first, second] = one_left(&link, (10, connections), &seen).await;
        killed(server).await;
        let (server, again) = started(&net, 2, true, credentials.clone()).await;
        let (first, second) = (first.await.unwrap(), second.await.unwrap());
        assert!(first.starts_with("Unreachable: ") && first.contains("is not known"), "{first}");
        assert!(
            second.starts_with("Unreachable: the node at a is another one than is meant, or was started anew"),
            "{second}"
        );
        assert!(second.contains("nothing was sent to it"), "{second}");
        for (bag, length) in [(2, 10), (4, 300_000)] {
            let later = asked(&link, bag, length, &Sent::default()).await.unwrap();
            assert!(later.contains("started anew") && later.contains("nothing was sent"), "{later}");
        }
        let error = Link::connect(net.clone(), "a", settings.clone()).await.err().expect("another start");
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        assert!(error.text().contains("started anew"), "{error}");
        assert!(bags(&again).is_empty(), "{:?}", again.lock().unwrap());
        for meant in [None, Some((NODE, 2)), Some((NODE, 0))] {
            let settings = LinkSettings { meant, ..settings.clone() };
            let link = Link::connect(net.clone(), "a", settings).await.unwrap();
            assert_eq!(asked(&link, 2, 10, &Sent::default()).await.unwrap(), "answered 2");
        }
        assert!(server.troubles.lock().unwrap().is_empty(), "{:?}", server.troubles.lock().unwrap());
    }
}

/// Another node that has the address now, and was started as often, is not sent what was meant for the one before.
#[tokio::test(start_paused = true)]
async fn another_node_at_the_address() {
    let net = Arc::new(MemoryNet::default());
    let (server, seen) = started(&net, 3, false, Credentials::default()).await;
    let settings = LinkSettings { meant: Some((NODE, 3)), ..link_settings(1, 1) };
    let link = Link::connect(net.clone(), "a", settings).await.unwrap();
    let [first, _second] = one_left(&link, (10, 1), &seen).await;
    killed(server).await;
    let other: Seen = Arc::default();
    let noting = other.clone();
    let service = Doing(move |mut call: Call| {
        let bag = call.ask::<Push>().unwrap().bag;
        noting.lock().unwrap().push((bag, call.asker));
        echo_to(bag, call);
    });
    let another = |settings: &mut ServerSettings| (settings.incarnation, settings.node) = (3, NodeId(777));
    let _server = serve_as(&*net, "a", 0, Arc::new(service), another).await;
    let first = first.await.unwrap();
    assert!(first.starts_with("Unreachable: ") && first.contains("is not known"), "{first}");
    assert_eq!(bags(&other), []);
}

/// A node of an older version that does not say which start it is counts as the one that is meant.
#[tokio::test(start_paused = true)]
async fn a_start_that_is_not_said() {
    let net = Arc::new(MemoryNet::default());
    let (_server, _) = started(&net, 0, true, Credentials::default()).await;
    let settings = LinkSettings { meant: Some((NODE, 9)), ..link_settings(1, 1) };
    let link = Link::connect(net, "a", settings).await.unwrap();
    assert_eq!(asked(&link, 2, 10, &Sent::default()).await.unwrap(), "answered 2");
}

/// A greeting as programs sent it before there were terms.
#[derive(Clone, PartialEq, Message)]
struct OlderHello {
    #[prost(uint32, tag = "1")]
    version_min: u32,
    #[prost(uint32, tag = "2")]
    version_max: u32,
    #[prost(message, required, tag = "3")]
    session: Id,
    #[prost(int32, tag = "7")]
    role: i32,
    #[prost(message, optional, tag = "8")]
    node: Option<Id>,
    #[prost(uint64, tag = "9")]
    incarnation: u64,
}

/// The service sees in each call the term that the greeting said, on each connection; an older program says none, and an older node reads
/// a greeting with one.
#[tokio::test(start_paused = true)]
async fn terms_are_seen() {
    let net = Arc::new(MemoryNet::default());
    let (server, seen) = started(&net, 1, false, Credentials::default()).await;
    let asker = Asker::Node { node: NodeId(9), incarnation: 3, term: 6 };
    let link = Link::connect(net.clone(), "a", LinkSettings { asker, ..link_settings(1, 1) }).await.unwrap();
    assert_eq!(asked(&link, 2, 10, &Sent::default()).await.unwrap(), "answered 2");
    assert_eq!(*seen.lock().unwrap(), [(2, asker)]);
    killed(server).await;
    let (_server, seen) = started(&net, 2, true, Credentials::default()).await;
    assert_eq!(asked(&link, 4, 10, &Sent::default()).await.unwrap(), "answered 4");
    assert_eq!(*seen.lock().unwrap(), [(4, asker)]);

    let older =
        OlderHello { version_min: 2, version_max: 2, session: 5.into(), role: 1, node: Some(9.into()), incarnation: 3 };
    let mut bytes = Vec::new();
    frame::append(&mut bytes, Header { kind: HELLO, ..Header::default() }, |bytes| older.encode(bytes).unwrap());
    let asks = Header { kind: 69, number: 1, ..Header::default() };
    frame::append(&mut bytes, asks, |bytes| push(6).encode(bytes).unwrap());
    let mut stream = net.connect("a").await.unwrap();
    stream.write_all(&bytes).await.unwrap();
    let mut header = [0; frame::HEADER_LENGTH];
    stream.read_exact(&mut header).await.unwrap();
    let mut welcome = vec![0; Header::decode(&header).unwrap().message_length as usize];
    stream.read_exact(&mut welcome).await.unwrap();
    assert_eq!(Welcome::decode(&welcome[..]).unwrap().incarnation, 2);
    while bags(&seen).len() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(seen.lock().unwrap()[1], (6, Asker::Node { node: NodeId(9), incarnation: 3, term: 0 }));

    let today = Hello {
        version_min: 2,
        version_max: 2,
        session: 5.into(),
        role: 1,
        node: Some(9.into()),
        incarnation: 3,
        ..Hello::default()
    };
    assert_eq!(today.encode_to_vec(), older.encode_to_vec());
    let leads = Hello { term: u64::MAX, ..today };
    assert_eq!(OlderHello::decode(&leads.encode_to_vec()[..]), Ok(older));
}

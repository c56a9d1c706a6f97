//! The id that a request has on its way, and which requests a node tells of.

use crate::support::{Doing, MemoryNet, echo, link, link_settings, push, serve_as};
use base::error::{Error, ErrorKind};
use base::id::{RequestId, SessionId};
use base::limit::SLOW_REQUEST;
use base::request::within;
use net::message::bag::{Pull, PullAnswer};
use net::message::{Ask, kind_name};
use net::{Asker, Call, Link, LinkSettings, Payload};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A service that notes which request each call is a part of, and does this with it.
fn noting(does: impl Fn(Call) + Send + Sync + 'static) -> (Arc<Mutex<Vec<RequestId>>>, Arc<dyn net::Service>) {
    let came: Arc<Mutex<Vec<RequestId>>> = Arc::default();
    let notes = came.clone();
    let service = Doing(move |call: Call| {
        notes.lock().unwrap().push(call.request);
        does(call);
    });
    (came, Arc::new(service))
}

/// A call that belongs to nothing else is a request by itself: its session's mark and its number. What is asked within a request, over
/// whichever link, carries the id of that.
#[tokio::test(start_paused = true)]
async fn a_call_carries_its_request() {
    let network: Arc<MemoryNet> = Arc::default();
    let (came, service) = noting(echo);
    let _server = serve_as(&*network, "a", 1 << 20, service.clone(), |_| ()).await;
    let settings = LinkSettings { session: SessionId(7 << 64 | 9), ..link_settings(1, 1) };
    let far = Link::connect(network.clone(), "a", settings).await.unwrap();
    let near = Link::local(service, SessionId(7 << 64 | 9));
    let outer = RequestId(5 << 64 | 6);
    far.call(&push(1), Payload::empty()).await.unwrap();
    for link in [&far, &near] {
        within(outer, link.call(&push(2), Payload::empty())).await.unwrap();
    }
    far.call(&push(3), Payload::empty()).await.unwrap();
    let own = |number| RequestId::of(SessionId(7 << 64), number);
    assert_eq!(*came.lock().unwrap(), [own(1), outer, outer, own(3)]);
}

/// A node tells of a request that took long, once, with its id, what it asked and how long it took, and of one that failed for a reason of
/// the store's. Not of others, and not of a pull, which waits for what others push. Who asked learns the id with the error.
#[tokio::test(start_paused = true)]
async fn slow_and_failed_requests_are_told() {
    let network: Arc<MemoryNet> = Arc::default();
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let notes = told.clone();
    let almost = SLOW_REQUEST - Duration::from_millis(100);
    // A push of bag 0 is answered late, of 1 almost late, of the others with these errors.
    let (_, service) = noting(move |mut call: Call| {
        if call.kind == Pull::KIND {
            tokio::spawn(async move {
                tokio::time::sleep(2 * SLOW_REQUEST).await;
                call.respond.answer(PullAnswer::default(), Payload::empty());
            });
            return;
        }
        let bag = call.ask::<net::message::bag::Push>().unwrap().bag;
        let fail = |call: Call, kind| call.respond.fail(Error::new(kind, "planted"));
        match bag {
            2 => fail(call, ErrorKind::Io),
            3 => fail(call, ErrorKind::NotFound),
            bag => drop(tokio::spawn(async move {
                tokio::time::sleep(if bag == 0 { SLOW_REQUEST } else { almost }).await;
                crate::support::echo_to(bag, call);
            })),
        }
    });
    let _server = serve_as(&*network, "a", 1 << 20, service, |settings| {
        settings.on_request = Arc::new(move |notable| {
            let took = notable.took.unwrap().as_millis();
            let line = format!("{} {} {took} {:?}", notable.what, notable.request.0, notable.error);
            assert!(!notable.from.is_empty());
            notes.lock().unwrap().push(line);
        });
    })
    .await;
    let client = link(network.clone(), "a").await;
    let mut texts = Vec::new();
    for bag in 0..4 {
        texts.extend(client.call(&push(bag), Payload::empty()).await.err().map(|error| error.text().to_string()));
    }
    let pull = Pull { bag: 1, device: 7.into(), grant: 1, wait_ms: 5000, unchecked: false };
    client.call(&pull, Payload::empty()).await.unwrap();
    let name = kind_name(net::message::bag::Push::KIND).unwrap();
    let expected = [format!("{name} 1 1000 None"), format!("{name} 3 0 Some(\"planted\")")];
    assert_eq!(*told.lock().unwrap(), expected);
    assert_eq!(texts, ["planted (request 00000000000000000000000000000003)", "planted"]);
    // What one node tells another it may repeat, and compares: there it is the error as it was made.
    let asker = Asker::Node { node: base::id::NodeId(3), incarnation: 1, term: 0 };
    let node = Link::connect(network.clone(), "a", LinkSettings { asker, ..link_settings(2, 1) }).await.unwrap();
    assert_eq!(node.call(&push(2), Payload::empty()).await.unwrap_err().text(), "planted");
}

//! One id follows a request over all nodes that it passes, and is in the lines of their logs.

use super::{Client, Cluster, ask};
use crate::failing::FailingWorld;
use base::error::ErrorKind;
use net::message::{bag, session};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The session of the client, whose mark begins the ids of its requests.
const SESSION: u128 = 0xABCD << 64;
const BEGINS: &str = "request=000000000000abcd";

/// Two nodes whose logs are kept; the disk of the second obeys its world.
async fn two(name: &str) -> (Cluster, [Arc<FailingWorld>; 2]) {
    let mut cluster = Cluster::new(name);
    let worlds = [0, 1].map(|number| {
        let place = if number == 0 { "/nowhere".into() } else { cluster.directory(number) };
        Arc::new(FailingWorld { place, ..FailingWorld::default() })
    });
    for (number, world) in worlds.iter().enumerate() {
        let running = cluster.try_run_in(world.clone(), cluster.settings(number)).await.expect("the node starts");
        cluster.nodes.insert(number, running);
    }
    cluster.all_there(2).await;
    (cluster, worlds)
}

/// The lines of a log about requests of the client, each without what is before its id: the id, and what follows it.
fn lines(world: &FailingWorld) -> Vec<(String, String)> {
    let said = world.said.lock().expect("nobody panicked").clone();
    let line = |line: &str| {
        let at = line.find(BEGINS)?;
        let id = line[at..].split(' ').next()?.to_string();
        Some((id, line.to_string()))
    };
    said.lines().filter_map(line).collect()
}

impl Client {
    async fn seal(&self, bag: &str) -> base::error::Result<bag::Info> {
        ask(&self.keeper, &bag::Seal { name: bag.to_string() }).await
    }
}

/// A disk of the second node fails while the first one asks it for a client: the error that the client sees names the request, and so do
/// the logs of both nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_request_is_in_both_logs() {
    let (cluster, [first, second]) = two("request-failed").await;
    let client = cluster.client(SESSION).await;
    client.bag("b", false).await;
    second.broken.store(true, Ordering::SeqCst);
    let error = client.seal("b").await.expect_err("the sync fails");
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    let id = error.text().rsplit_once("(request ").expect("it names the request").1.trim_end_matches(')').to_string();
    for (world, what) in [(&first, "bag::Seal failed"), (&second, "order::SealBag failed")] {
        let lines = lines(world);
        assert!(
            lines.iter().any(|(of, line)| *of == format!("request={id}") && line.contains(what)),
            "{id}: {lines:?}"
        );
    }
    cluster.stop_all().await;
}

/// The disk of the second node stands still for a second while the first one asks it: both say that they were slow, with one id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_request_is_in_both_logs() {
    let (cluster, [first, second]) = two("request-slow").await;
    let client = cluster.client(SESSION).await;
    // The clock may go on before the order is at the second node; then it is tried once more.
    for number in 0..100 {
        ask(&client.keeper, &session::Renew::default()).await.expect("the session goes on");
        let name = format!("b{number}");
        client.bag(&name, false).await;
        second.still.begin();
        let (sealed, ()) = tokio::join!(client.seal(&name), async {
            for node in [0, 1, 0, 1] {
                cluster.calls(node, "none").await;
            }
            cluster.ahead(Duration::ZERO);
            second.still.end();
        });
        sealed.expect("sealed");
        if !lines(&second).is_empty() {
            break;
        }
    }
    let (here, there) = (lines(&first), lines(&second));
    assert!(there.len() == 1 && there[0].1.contains("order::SealBag was slow"), "{there:?}");
    let same = here.iter().find(|(id, _)| *id == there[0].0);
    assert!(same.is_some_and(|(_, line)| line.contains("bag::Seal was slow")), "{here:?} {there:?}");
    let ms = there[0].1.rsplit_once(" ms=").expect("it says how long").1.parse::<u64>().expect("a number");
    assert!((1000..10_000).contains(&ms), "{ms}");
    cluster.stop_all().await;
}

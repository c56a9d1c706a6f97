//! What becomes of what a session held when it is over.

use super::{Cluster, ask};
use crate::until;
use base::error::ErrorKind;
use base::limit::{GRANT_LEASE, SESSION_LEASE};
use net::Payload;
use net::message::bag;

/// A consumer whose session is over, because it renewed its grants and not its session, holds nothing any more, however well it goes on
/// to renew: what it has is given to others at once. What it acknowledged before is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_end_with_their_session() {
    let cluster = Cluster::start("grants", 2).await;
    let client = cluster.client(1 << 64).await;
    let info = client.bag("b", false).await;
    let devices = client.devices();
    let mut held = Vec::new();
    for (number, device) in devices.iter().copied().enumerate() {
        for chunk in 1..=2 {
            client.push(info.bag, device, (1 << 64) | (number as u128 * 10 + chunk)).await.expect("pushed");
        }
        let done = client.pull(info.bag, device, 1).await;
        client.acknowledge(info.bag, device, (done.chunk, done.pass), 1).await;
        held.push(client.pull(info.bag, device, 2).await.chunk);
    }
    let renew = async || {
        for (device, chunk) in devices.iter().copied().zip(&held) {
            let grants = vec![bag::Grant { chunk: *chunk, grant: 2 }];
            let renew = bag::RenewGrants { bag: info.bag, device, grants };
            client.at(device).call(&renew, Payload::empty()).await.expect("nothing is refused");
        }
    };
    let step = GRANT_LEASE * 4 / 5;
    for _ in 0..=SESSION_LEASE.as_secs() / step.as_secs() {
        renew().await;
        cluster.ahead(step);
    }
    renew().await;
    cluster.all_there(2).await;
    let other = cluster.client(2 << 64).await;
    for (device, chunk) in devices.iter().copied().zip(&held) {
        let pull = bag::Pull { bag: info.bag, device, grant: 1, wait_ms: 5000, ..bag::Pull::default() };
        let pulled = ask(other.at(device), &pull).await.expect("answered");
        assert_eq!((pulled.pulled, pulled.chunk), (bag::Pulled::Chunk as i32, *chunk), "given at once");
        let late = bag::Acknowledge {
            grants: vec![bag::Grant { chunk: *chunk, grant: 2 }],
            bag: info.bag,
            device,
            ..bag::Acknowledge::default()
        };
        let late = ask(client.at(device), &late).await.expect_err("its session is over");
        assert_eq!(late.kind(), ErrorKind::Stale, "{late}");
        other.acknowledge(info.bag, device, (pulled.chunk, pulled.pass), 1).await;
    }
    until("all are acknowledged, each once", async || {
        let counted = other.stat("b").await.expect("counted");
        counted.acknowledged == 2 * devices.len() as u64
    })
    .await;
    cluster.stop_all().await;
}

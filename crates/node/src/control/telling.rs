//! How the nodes of a store learn at once that another keeper leads: it tells them. They report to it then, and obey no earlier one any more. Until they
//! have, it knows of no device, and what needs a place waits.

use super::job::Job;
use crate::leading::Leading;
use crate::node::Node;
use base::error::Result;
use meta::request::NodeInfo;
use net::message::order::Follow;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// How long a new leader waits for the reports of all nodes before it gives places on those that it has: they need a round trip for it, and one that
/// went away with the leader before this one never reports.
const REPORTS_WAIT: Duration = Duration::from_millis(500);

/// How long for the first one. What needs a place is refused then, as long as there is none.
const FIRST_REPORT_WAIT: Duration = Duration::from_secs(5);

/// Between two looks at who has reported.
const LOOK: Duration = Duration::from_millis(5);

/// Waits for the reports of the nodes with which places can be given, and lets what needs one go on.
pub async fn gather(node: Arc<Node>, leading: Arc<Leading>) {
    let began = node.clock.now();
    let nodes = leading.nodes().await.map(|(_, nodes)| nodes).unwrap_or_default();
    loop {
        let waited = node.clock.now().since(began);
        let all = !nodes.is_empty() && nodes.iter().all(|known| leading.peers.find(known.info.node).is_some());
        let some = !leading.peers.devices().is_empty();
        if all || some && waited >= REPORTS_WAIT || waited >= FIRST_REPORT_WAIT {
            return leading.gathers();
        }
        sleep(LOOK).await;
    }
}

/// Nodes that are told at once. Each costs a connection, and one that is away a second.
const AT_ONCE: usize = 64;

/// Tells every node that has not reported since this leadership began.
pub struct TellNodes;

impl Job for TellNodes {
    const NAME: &'static str = "tell_nodes";

    async fn step(&mut self, node: &Arc<Node>, leading: &Arc<Leading>) -> Result<bool> {
        // Asked each time: what is answered is answered under a lease, so no other one leads at that moment.
        let (_, nodes) = leading.nodes().await?;
        let (_, address) = node.neighbours.itself();
        let (turns, mut telling) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new());
        for NodeInfo { address: of, .. } in
            nodes.into_iter().map(|known| known.info).filter(|info| leading.peers.find(info.node).is_none())
        {
            let (leading, turns, ask) = (leading.clone(), turns.clone(), Follow { address: address.clone() });
            telling.spawn(async move {
                let _turn = turns.acquire_owned().await;
                // One that is away is told again, or hears of it when it comes back and reports.
                let _told = leading.peers.tell(&of, &ask).await;
            });
        }
        while telling.join_next().await.is_some() {}
        Ok(false)
    }
}

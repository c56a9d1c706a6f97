//! The control plane: what the keeper does by itself, as jobs. Everything is computed from state, and may be repeated or lost.

pub mod claims;
pub mod cluster;
pub mod collecting;
pub mod comparing;
pub mod drain;
pub mod forgetting;
pub mod job;
pub mod joining;
pub mod moving;
pub mod orders;
pub mod orphans;
pub mod reports;
pub mod targets;

use crate::node::Node;
use collecting::Collect;
use comparing::{CompareReturned, Sweep, compare_all};
use drain::Drain;
use forgetting::{ForgetMemory, ForgetSessions};
use joining::JoinBags;
use orphans::EndAbandoned;
use reports::Report;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Runs all jobs until the node stops, which cuts them short, one after another: each hearing of it by itself would do so by chance, and no
/// history of the simulation could be played twice.
pub async fn run(node: Arc<Node>, mut stopped: watch::Receiver<bool>) {
    let mut running = JoinSet::new();
    // Unfinished copies go before new ones are made.
    let drains = node.clone();
    running.spawn(async move {
        let _comparing = compare_all(&drains).await;
        job::run(Drain::default(), drains).await;
    });
    running.spawn(job::run(Report::default(), node.clone()));
    running.spawn(job::run(ForgetSessions::default(), node.clone()));
    running.spawn(job::run(CompareReturned::default(), node.clone()));
    running.spawn(job::run(JoinBags::default(), node.clone()));
    running.spawn(job::run(ForgetMemory, node.clone()));
    running.spawn(job::run(EndAbandoned::default(), node.clone()));
    running.spawn(job::run(Collect::default(), node.clone()));
    running.spawn(job::run(Sweep::default(), node));
    // Its sender goes with the node.
    drop(stopped.wait_for(|stopped| *stopped).await);
    running.shutdown().await;
}

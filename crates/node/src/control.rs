//! The control plane: what the keeper does by itself, as jobs. Everything is computed from state, and may be repeated or lost.

pub mod away;
pub mod claims;
pub mod cluster;
pub mod collecting;
pub mod comparing;
mod confirming;
pub mod copying;
pub mod drain;
pub mod forgetting;
pub mod giving_up;
pub mod job;
pub mod joining;
pub mod moving;
pub mod orders;
pub mod orphans;
pub mod repairing;
pub mod reports;
pub mod targets;
pub mod telling;
pub mod turns;
pub mod verifying;

use crate::leading::Leading;
use crate::node::{Keeper, Node};
use collecting::Collect;
use comparing::{CompareReturned, Sweep, compare_all};
use drain::Drain;
use forgetting::{ForgetDevices, ForgetSessions};
use giving_up::{TakeBack, give_up_by_itself};
use joining::JoinBags;
use orphans::EndAbandoned;
use repairing::Repair;
use reports::Report;
use std::sync::Arc;
use telling::{TellNodes, gather};
use tokio::task::JoinSet;

/// The keeper of this node leads from now on, in this term, until its end (`Keeper::end`). One task begins and ends all leaderships of a keeper,
/// each when the one before it is over.
pub fn begin(node: &Arc<Node>, keeper: &Keeper, term: u64) -> Arc<Leading> {
    let leading = keeper.leads(node, term);
    leading.run(jobs(node, &leading));
    leading
}

/// All jobs. They run until they are cut short, which is when the leadership is over.
fn jobs(node: &Arc<Node>, leading: &Arc<Leading>) -> JoinSet<()> {
    let mut running = JoinSet::new();
    // Unfinished copies go before new ones are made.
    let (drains, of) = (node.clone(), leading.clone());
    running.spawn(async move {
        let _comparing = compare_all(&drains, &of).await;
        tokio::join!(job::run(Drain::default(), drains.clone(), of.clone()), job::run(Repair::default(), drains, of));
    });
    if !leading.alone {
        running.spawn(gather(node.clone(), leading.clone()));
        running.spawn(job::run(TellNodes, node.clone(), leading.clone()));
    }
    running.spawn(job::run(Report::default(), node.clone(), leading.clone()));
    running.spawn(job::run(ForgetSessions::default(), node.clone(), leading.clone()));
    running.spawn(job::run(CompareReturned::default(), node.clone(), leading.clone()));
    running.spawn(job::run(JoinBags::default(), node.clone(), leading.clone()));
    running.spawn(give_up_by_itself(node.clone(), leading.clone()));
    running.spawn(job::run(TakeBack::default(), node.clone(), leading.clone()));
    running.spawn(job::run(ForgetDevices, node.clone(), leading.clone()));
    running.spawn(job::run(EndAbandoned::default(), node.clone(), leading.clone()));
    running.spawn(job::run(Collect::default(), node.clone(), leading.clone()));
    running.spawn(job::run(Sweep::default(), node.clone(), leading.clone()));
    running
}

//! A job: something that the keeper does again and again by itself, in a task of its own, so that none waits for another one's slowest
//! device. Which jobs there are: `control::run`.
//!
//! A job has a step, which does what can be done now. A step may be repeated, cut short anywhere, and run beside all others: what is left
//! to do follows from the metadata store and the devices, and whatever two must not do to one thing at once is claimed. What a job
//! remembers between steps only spares work.

use crate::leading::Leading;
use crate::log::Level;
use crate::node::Node;
use base::error::{ErrorKind, Result};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How often most jobs look without being told to.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long a job waits after it was woken (a delete), so that one step does what many changes left: a step costs a sync of its own
/// and as much processor as ten deletes.
pub const GATHER: Duration = Duration::from_millis(50);

/// Something that the keeper does again and again.
pub trait Job: Send + 'static {
    /// Its name, for people.
    const NAME: &'static str;
    /// What wakes it, besides the clock; `work` for what comes onto the metadata store's lists.
    fn woken_by(_: &Leading) -> Option<Arc<Notify>> {
        None
    }

    /// Does what can be done now. Whether there is more to do at once.
    fn step(&mut self, node: &Arc<Node>, leading: &Arc<Leading>) -> impl Future<Output = Result<bool>> + Send;
}

/// Runs a job for this leadership, until it is cut short.
pub async fn run<J: Job>(mut job: J, node: Arc<Node>, leading: Arc<Leading>) {
    let wakes = J::woken_by(&leading);
    loop {
        let done = job.step(&node, &leading).await;
        if matches!(done, Ok(true)) {
            continue;
        }
        said(&node, J::NAME, done.map(drop));
        tokio::select! {
            biased;
            () = woken(wakes.as_deref()) => (),
            () = tokio::time::sleep(LOOK_EVERY) => (),
        }
    }
}

/// Waits until there is something to do, and a little more of it. For ever if nothing wakes.
async fn woken(wakes: Option<&Notify>) {
    match wakes {
        None => pending().await,
        Some(wakes) => wakes.notified().await,
    }
    tokio::time::sleep(GATHER).await;
}

/// Wakes a job when something comes onto the metadata store's lists of work: garbage, files whose writer is gone.
pub fn work(leading: &Leading) -> Option<Arc<Notify>> {
    Some(leading.metadata.work())
}

/// Says what went wrong with a job, once a step; the next one tries again. Returns whether it went well.
pub fn said(node: &Node, job: &str, result: Result<()>) -> bool {
    match result {
        Ok(()) => true,
        // The keeper leads no more, and its jobs are about to be ended: whoever leads now does it.
        Err(error) if error.kind() == ErrorKind::Moved => false,
        Err(error) => {
            let text = format!("{error}; no data is at risk; it is tried again");
            node.log.say(Level::Warn, "housekeeping", &text, &[("job", &job)]);
            false
        }
    }
}
